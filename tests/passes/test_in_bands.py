"""Calls in bands: which are, what memory they have, and that results are those of one after the other."""

import random
import re
from dataclasses import replace

import numpy as np
import pytest

from lamina.ir.errors import GraphError
from lamina.ir.kernel.text import parse
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.generate import divided
from lamina.passes.llvm.link import link
from lamina.passes.programs import in_bands as module
from lamina.passes.programs import winograd_tiles
from lamina.passes.programs.in_bands import SLACK, in_bands
from lamina.passes.programs.memory_plan import verify
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Array, Call, Program, interpret
from lamina.passes.programs.split_calls import in_turn
from lamina.passes.programs.winograd_tiles import tiled
from lamina.passes.schedules.steps import parse as parse_schedule
from lamina.runtime.native import Executable

HERE = host_target()


def bands(program):
    return in_bands(program, lambda call: divided(call.kernel, call.how, HERE))


def counts(program):
    """For each call in how many bands it is, 0 for one that is in none."""
    return [call.bands.count if call.bands else 0 for call in bands(program).calls]


def program(*kernels, also=(), how="vectorise(j)"):
    """A program of calls whose buffers of one name are one array.  also: results beside the last call's."""
    arrays, calls, params = {}, [], []
    how = parse_schedule(how)
    for text in kernels:
        kernel = parse(text)
        for buffer in kernel.inputs:
            if buffer.name not in arrays:
                arrays[buffer.name] = Array(buffer.name, buffer.dtype, buffer.shape)
                params.append(arrays[buffer.name])
        for buffer in kernel.outputs:
            arrays[buffer.name] = Array(buffer.name, buffer.dtype, buffer.shape)
        inputs, outputs = (
            tuple([arrays[b.name] for b in buffers]) for buffers in (kernel.inputs, kernel.outputs)
        )
        calls.append(Call(kernel, inputs, outputs, how))
    results = (*calls[-1].outputs, *(arrays[name] for name in also))
    return Program("banded", tuple(params), tuple(calls), results)


def chain(read="a[i, j, k]", rows=12, columns=96, depth=7, before="x[j, i, k]", **more):
    """y = sum over k of what is read of a = x + 1, where rows are the second dimension of x."""
    return program(
        f"kernel first(x: f32[{columns},{rows},{depth}]) -> (a: f32[{rows},{columns},{depth}]) {{\n"
        f"  parallel i:{rows} j:{columns} k:{depth}\n  a[i, j, k] = ({before} + 1.0)\n}}",
        f"kernel second(a: f32[{rows},{columns},{depth}]) -> (y: f32[{rows},{columns}]) {{\n"
        f"  parallel i:{rows} j:{columns}\n  s = sum(k:{depth}) {read}\n  y[i, j] = s\n}}",
        **more,
    )


def numbers(program):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(p.shape).astype(np.float32) for p in program.params]


@pytest.fixture
def small(monkeypatch):
    """Arrays of any size are far, so that small programs are in bands."""
    monkeypatch.setattr(module, "FAR", 1)
    monkeypatch.setattr(module, "LEAST", 1)


def test_bands_are_as_many_as_are_of_some_bytes(small, monkeypatch):
    made = bands(chain())
    assert str(made) == (
        "program banded(%x: f32[96,12,7]) -> (%y) {\n"
        "  %a: f32[12,2720] = first(%x)  # vectorise(j)\n"
        "  %y: f32[12,96] = second(%a)  # vectorise(j)\n"
        "}"
    )
    (a,) = made.steps[0].outputs
    assert a.nbytes // 12 == 96 * 7 * 4 + 2 * SLACK
    assert made.steps[0].bands is made.steps[1].bands
    row = 96 * 7 * 4
    monkeypatch.setattr(module, "LEAST", row + 1)
    assert counts(chain()) == [0, 0], "six bands of two rows are too few"
    monkeypatch.setattr(module, "FEWEST", 3)
    assert counts(chain()) == [6, 6]
    monkeypatch.setattr(module, "LEAST", 3 * row)
    assert counts(chain()) == [4, 4]
    monkeypatch.setattr(module, "NEAR", row - 1)
    monkeypatch.setattr(module, "LEAST", 1)
    assert counts(chain()) == [0, 0], "a row is more than what is near"


def test_lanes_are_no_more_than_threads_that_may_be_at_bands(small, monkeypatch):
    def lanes(rows):
        step = bands(chain(rows=rows)).steps[0]
        assert step.bands.count == rows
        assert step.outputs[0].shape[0] == step.bands.lanes
        return step.bands.lanes

    assert lanes(40) == 40
    assert lanes(90) == 64, "the bits of a word"
    monkeypatch.setattr(module, "LANES_BYTES", 20 * 96 * 7 * 4)
    assert [lanes(rows) for rows in (12, 40, 90)] == [12, 20, 20]
    monkeypatch.setattr(module, "LANES_BYTES", 1)
    assert lanes(90) == module.LANES


@pytest.mark.parametrize(
    "changed",
    [
        {"read": "a[i-1, j, k else 0.0]"},
        {"read": "(a[i, j, k] * a[0, j, k])"},
        {"read": "a[11-i, j, k]"},
        {"read": "a[j, i, k]", "rows": 96},
        {"rows": 7},  # fewer than threads would share
        {"also": ["a"]},  # somebody else wants it
        {"rows": 152, "how": "vectorise(j) block(i, 9)"},  # the last unit has fewer rows
        {"how": "vectorise(i)"},  # all rows are one unit's
    ],
)
def test_calls_that_are_in_no_bands(changed, small):
    assert counts(chain(**changed)) == [0, 0]


def test_units_of_several_rows_are_of_one_band(small):
    assert counts(chain(rows=160, how="vectorise(j) block(i, 5)")) == [32, 32]
    assert counts(chain(rows=152, how="vectorise(j) tile(i, 2) block(i, 4)")) == [38, 38]


def test_what_is_near_anyway_is_in_no_bands():
    assert counts(chain()) == [0, 0]


def third(text):
    """Three calls: the last one reads the second's rows, and whatever a text says of `a`."""
    first, second = (str(call.kernel) for call in chain().calls)
    return program(
        first,
        second,
        "kernel third(y: f32[12,96], a: f32[12,96,7]) -> (z: f32[12,96]) {\n  parallel i:12 j:96\n"
        f"  z[i, j] = (y[i, j] + {text})\n}}",
    )


def test_a_group_is_as_long_as_it_may_be(small):
    assert counts(third("a[i, j, 3]")) == [12, 12, 12]
    assert counts(third("a[0, j, 3]")) == [0, 0, 0], "a row of another band"


def test_a_call_beyond_the_group_reads_all_rows(small):
    first, second = (str(call.kernel) for call in chain().calls)
    sums = (
        "kernel sums(y: f32[12,96]) -> (z: f32[96]) {\n  parallel j:96\n"
        "  s = sum(i:12) y[i, j]\n  z[j] = s\n}"
    )
    assert counts(program(first, second, sums)) == [12, 12, 0]


def test_what_every_band_reads_again_counts(small):
    """Rows of 96 x 7 that are multiplied with weights: little is gained where these are read 12 times."""

    def multiplied(wide):
        first = str(chain(columns=96).calls[0].kernel)
        return program(
            first,
            f"kernel second(a: f32[12,96,7], w: f32[7,{wide}]) -> (y: f32[12,96,{wide}]) {{\n"
            f"  parallel i:12 j:96 c:{wide}\n  s = sum(k:7) (a[i, j, k] * w[k, c])\n  y[i, j, c] = s\n}}",
        )

    assert counts(multiplied(16)) == [12, 12]
    assert counts(multiplied(640)) == [0, 0]


def check(program):
    """That a program in bands gives what it gives call by call, and what the interpreter says."""
    arrays = numbers(program)
    assert "_bands" in link(program, HERE).texts[-1]
    want = Executable(program, HERE, apart=True)(*arrays)
    for threads in (1, 2, 3):
        run = Executable(program, HERE, threads)
        for _ in range(2):
            for one, other in zip(run(*arrays), want, strict=True):
                assert np.array_equal(one, other)
    for one, other in zip(want, interpret(program, *arrays), strict=True):
        assert np.allclose(one, other, atol=1e-5 * np.abs(other).max())


def test_vectors_may_lie_along_bands(small):
    made = chain(rows=256, columns=3, how="vectorise(i) block(i, 16)")
    assert counts(made) == [16, 16]
    check(made)
    flat = program(
        *(
            f"kernel {made}({given}: f32[16384]) -> ({made}: f32[16384]) {{\n  parallel j:16384\n"
            f"  {made}[j] = {value}\n}}"
            for made, given, value in (("y", "x", "(x[j] * x[j])"), ("z", "y", "sqrt(y[j])"))
        ),
        how="vectorise(j, 2) block(j, 512)",
    )
    assert counts(flat) == [32, 32]
    check(flat)


@pytest.mark.parametrize("seed", range(12))
def test_results_are_those_of_one_call_after_the_other(seed, small):
    draw = random.Random(seed)
    rows, columns, depth = draw.choice((8, 12, 13, 36, 40)), draw.randrange(3, 90), draw.randrange(1, 40)
    read = draw.choice(("a[i, j, k]", f"a[i, {columns - 1}-j, k]", "a[i, j-1, k else 0.0]"))
    before = draw.choice(("x[j, i, k]", "x[j, i-1, k else 0.5]"))
    check(chain(read, rows, columns, depth, before=before))


def gradient(outs, channels, height, width, batch):
    """The gradient of a convolution's weight by Winograd's algorithm, as CPUs do it."""
    kernel = parse(
        f"kernel grad(g: f32[{outs},{height},{width},{batch}], x: f32[{channels},{height},{width},{batch}])"
        f" -> (w: f32[{outs},{channels},3,3]) {{\n  parallel i:{outs} j:{channels} r:3 s:3\n"
        f"  t = sum(y:{height} c:{width} n:{batch}) (g[i, y, c, n] * x[j, y+r-1, c+s-1, n else 0.0])\n"
        f"  w[i, j, r, s] = t\n}}"
    )
    params, results = (
        tuple([Array(b.name, b.dtype, b.shape) for b in buffers])
        for buffers in (kernel.inputs, kernel.outputs)
    )
    steps = tuple(in_turn(Call(kernel, params, results), tiled(kernel)))
    return Program("gradient", params, steps, results)


@pytest.mark.parametrize("way", ["dots", "packed", "plain"])
@pytest.mark.parametrize(("size", "parts"), [((32, 48, 34, 30, 16), 1), ((24, 16, 33, 64, 8), 2)])
def test_gradients_of_weights_are_made_in_bands(way, size, parts, small, monkeypatch):
    """parts: of a row of tiles, of which there are 9."""
    row = 4 * 36 * -(-size[3] // 4) * size[4] * (size[0] + size[1])
    monkeypatch.setattr(winograd_tiles, "FAR", 1)
    monkeypatch.setattr(winograd_tiles, "SUMMED", 0)
    monkeypatch.setattr(winograd_tiles, "NEAR", row // parts)
    monkeypatch.setattr(module, "NEAR", row // parts)
    program = pack_matmuls(gradient(*size), HERE, Options(only=way))
    made = counts(program)
    packed = sum(call.name == "pack" for call in program.calls)
    assert made[:3] == [9 * parts] * 3 or packed and made[2:4] == [9 * parts] * 2, made
    check(program)
    g, x = numbers(program)
    (got,) = Executable(program, HERE)(g, x)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = g.shape[1:3]
    for r, s in np.ndindex(3, 3):
        want = np.tensordot(g.astype(np.float64), padded[:, r : r + height, s : s + width], ((1, 2, 3),) * 2)
        assert np.allclose(got[:, :, r, s], want, atol=1e-4 * np.abs(want).max())


def test_nothing_lies_over_what_members_may_still_read_or_write(small):
    """The first call reads in every band, the last too: what this one writes is not over what that one reads,
    though it was read for the last time before by the order of the calls."""
    before, after = (
        f"kernel {name}({source}: f32[{shape}]) -> ({made}: f32[{shape}]) {{\n  parallel {axes}\n"
        f"  {made}[{index}] = {source}[{read}]\n}}"
        for name, source, made, shape, axes, index, read in (
            ("turned", "p", "x", "96,12,7", "i:96 k:12 j:7", "i, k, j", "i, k, j"),
            ("copied", "y", "z", "12,96", "i:12 j:96", "i, j", "11-i, j"),
        )
    )
    first, second = (str(call.kernel) for call in chain().calls)
    plan = verify(plan_memory(bands(program(before, first, second, after))))
    assert [call.bands is not None for call in plan.program.calls] == [False, True, True, False]
    x, y = (plan.program.calls[n].inputs[0] for n in (1, 3))
    assert {plan.places[x].kind, plan.places[y].kind} == {"arena"}
    over = plan.replace(places=plan.places | {y: plan.places[x]})
    with pytest.raises(GraphError, match="second writes over what it is in"):
        verify(over)


def test_members_are_not_in_place(small):
    """Or other code than the one whose units were looked at would be made."""
    first, second = (str(call.kernel) for call in chain().calls)
    before, plus, after = (
        f"kernel {name}({given}) -> ({made}: f32[12,96]) {{\n  parallel {axes}\n  {made}[i, j] = {value}\n}}"
        for name, given, made, axes, value in (
            ("turned", "p: f32[12,96]", "q", "j:96 i:12", "p[11-i, j]"),
            ("plus", "y: f32[12,96], q: f32[12,96]", "z", "i:12 j:96", "(y[i, j] + q[i, j])"),
            ("ended", "z: f32[12,96]", "e", "i:12 j:96", "z[11-i, j]"),
        )
    )

    def in_place(made):
        free = made.replace(steps=tuple([replace(step, how=None) for step in made.steps]))
        return [call.name for call in plan_memory(free).program.calls if call.kernel.outputs[0].inplace]

    given = program(before, first, second, plus, after)
    assert [call.bands is not None for call in bands(given).calls] == [False, True, True, True, False]
    assert in_place(given) == ["plus"]
    assert not in_place(bands(given))


def test_a_function_does_the_bands_of_a_thread(small):
    text = link(chain(), HERE).texts[-1]
    (body,) = re.findall(r"define internal void @lamina_main_bands0\(.*?\n}", text, re.S)
    assert body.count("call void @k") == 2, "the units of both calls"
    assert "call i64 @lamina_take_lane(ptr %args, i64 12)" in body
    assert f"mul i64 %lane, {96 * 7 * 4 + 2 * SLACK}" in body
    assert f"mul i64 %n, {-96 * 7 * 4}" in body
