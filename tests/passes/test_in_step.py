"""Calls in step: which are, where their units find what is handed on, and that results are those of one after
the other."""

import itertools
import random
from dataclasses import replace
from math import prod

import numpy as np
import pytest

import lamina
from lamina import nn
from lamina.ir.errors import GraphError
from lamina.ir.kernel.text import parse as parse_kernel
from lamina.passes import cache
from lamina.passes.llvm import main_function
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.link import link
from lamina.passes.programs import in_step as module
from lamina.passes.programs.in_step import in_step
from lamina.passes.programs.memory_plan import verify
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Array, Call, Program, interpret
from lamina.passes.schedules.default import unit_axes
from lamina.passes.schedules.steps import parse as parse_schedule
from lamina.runtime.native import Executable

HERE = host_target()
SHARED = "collapse() reorder(i, j) vectorise(j) block(j, 64) tile(i, 12) block(i, 96)"


def joined(rows=1210, columns=256, how=SHARED, its=SHARED, read="a[i, j]", also=()):
    """z = y v + x u, as two calls; read: what the second reads of the first's.  also: results beside z."""
    x, u = Array("x", "f32", (rows, 8)), Array("u", "f32", (8, columns))
    y, v = Array("y", "f32", (rows, 8)), Array("v", "f32", (8, columns))
    a, z = Array("a", "f32", (rows, columns)), Array("z", "f32", (rows, columns))
    one = parse_kernel(
        f"kernel one(x: f32[{rows},8], u: f32[8,{columns}]) -> (a: f32[{rows},{columns}]) {{\n"
        f"  parallel i:{rows} j:{columns}\n  t = sum(k:8) (x[i, k] * u[k, j])\n  a[i, j] = t\n}}"
    )
    two = parse_kernel(
        f"kernel two(y: f32[{rows},8], v: f32[8,{columns}], a: f32[{rows},{columns}]) -> "
        f"(z: f32[{rows},{columns}]) {{\n"
        f"  parallel i:{rows} j:{columns}\n  t = sum(k:8) (y[i, k] * v[k, j])\n  z[i, j] = (t + {read})\n}}"
    )
    calls = (
        Call(one, (x, u), (a,), parse_schedule(how)),
        Call(two, (y, v, a), (z,), parse_schedule(its)),
    )
    results = (z, *(a for _ in also))
    return Program("joined", (x, u, y, v), calls, results)


def numbers(program):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(p.shape).astype(np.float32) for p in program.params]


def passing(program):
    return in_step(program, HERE).steps[-1].in_step


def test_a_sum_that_is_added_to_another_is_handed_on_in_a_piece_of_memory():
    made = passing(joined())
    assert made.strides == ((13, 4, 96 * 256 * 4),)
    assert made.nbytes == 96 * 256 * 4 and made.before == 11 * 256 * 4


@pytest.mark.parametrize(
    "changed",
    [
        {"also": [1]},  # somebody else wants it
        {"read": "a[j, i]", "rows": 1024, "columns": 1024},
        {"read": "a[i-1, j else 0.0]"},
        {"read": "(a[i, j] + a[0, j])"},
        {"rows": 256},  # in a near cache anyway
        {"columns": 4096},  # a block of rows is too large for a thread to hold
    ],
)
def test_calls_that_stay_one_after_the_other(changed):
    assert passing(joined(**changed)) is None


def test_a_call_takes_the_schedule_of_the_next_where_that_costs_little():
    program = in_step(joined(how="vectorise(j) tile(i, 4)"), HERE)
    one, two = program.steps
    assert two.in_step is not None and [one.how.tiles, one.how.blocks] == [two.how.tiles, two.how.blocks]


def sizes(seed):
    """Schedules of blocks and tiles that do and do not divide their axes."""
    draw = random.Random(seed)
    tile = draw.choice((1, 3, 7, 12))
    rows, columns = draw.randrange(530, 1400), draw.choice((512, 496, 530))
    block = tile * draw.choice((1, 2, 5, 8)) if tile > 1 else draw.choice((1, 6, 32))
    how = f"{draw.choice(['', 'collapse() '])}reorder({draw.choice(['i, j', 'j, i'])}) vectorise(j) "
    how += f"block(j, {draw.choice((64, 128))}) {f'tile(i, {tile}) ' if tile > 1 else ''}block(i, {block})"
    return joined(rows, columns, how, how)


@pytest.mark.parametrize("seed", range(40))
def test_results_are_those_of_one_after_the_other(seed, monkeypatch):
    program = sizes(seed)
    arrays = numbers(program)
    monkeypatch.setattr(module, "MOST", 1 << 22)
    marked = in_step(program, HERE)
    made = marked.steps[-1].in_step
    first = program.steps[0]
    slowest = first.how.applied(first.kernel).parallel[0].name
    apart = first.how.block(slowest) * (first.outputs[0].shape[1] if slowest == "i" else 1) * 4
    assert (made is None) == (apart % 64 != 0)  # blocks begin on cache lines, or are not handed on
    if made is None:
        return
    assert "_in_turn" in link(program, HERE).texts[-1]
    (want,) = Executable(program, HERE, apart=True)(*arrays)
    for threads in (1, 2):
        (got,) = Executable(program, HERE, threads)(*arrays)
        assert np.array_equal(got, want)
    assert np.allclose(want, interpret(program, *arrays)[0], rtol=1e-4, atol=1e-4)
    outside = beyond(marked.steps[0], made)
    assert outside == (0, 0), outside


def beyond(first, made):
    """How many bytes in front of and behind its memory a unit of the first call writes, at most."""
    kernel = first.how.applied(first.kernel)
    (store,) = kernel.stores
    offset = kernel.buffers[store.buffer].offset(store.index)
    axes = [(axis.name, int(axis.extent), first.how.block(axis.name)) for axis in kernel.parallel]
    counts = [count for _, count in unit_axes(kernel, first.how)]
    slow, most = len(made.strides), [0, 0]
    assert [stride[:2] for stride in made.strides] == [
        (count, prod(counts[n + 1 :])) for n, count in enumerate(counts[:slow])
    ]
    for blocks in itertools.product(*(sorted({0, n // 2, n - 1}) for n in counts)):
        low = high = 0
        for (name, extent, size), block in zip(axes, blocks, strict=True):
            start, end = block * size, min(block * size + size, extent)
            start = min(start, end - min(first.how.tiles.get(name, 1), extent))  # a tile that overlaps
            by = offset.coefficient(name) * 4
            low, high = low + start * by, high + (end - 1) * by
        begin = sum(block * by for block, (_, _, by) in zip(blocks[:slow], made.strides, strict=True))
        most = [max(most[0], begin - made.before - low), max(most[1], high + 4 - begin - made.nbytes)]
    return max(most[0], 0), max(most[1], 0)


def test_units_that_write_outside_are_seen():
    """Planted: memory without what tiles that overlap write in front of it, and half of a unit's."""
    program = in_step(joined(rows=1157), HERE)  # of which 5 are in the last block, and a tile has 12
    made = program.steps[1].in_step
    assert beyond(program.steps[0], made) == (0, 0)
    assert beyond(program.steps[0], replace(made, before=0))[0] > 0
    assert beyond(program.steps[0], replace(made, nbytes=made.nbytes // 2))[1] > 0


def copied(name, x, made, index):
    """A call that doubles an array."""
    rows, columns = x.shape
    text = (
        f"kernel {name}(x: f32[{rows},{columns}]) -> (y: f32[{rows},{columns}]) {{\n"
        f"  parallel i:{rows} j:{columns}\n  y[i, j] = (x[{index}] * 2.0)\n}}"
    )
    return Call(parse_kernel(text), (x,), (made,))


def test_operands_of_the_first_live_until_the_second_is_over():
    program = joined()
    one, two = program.steps
    w, r = Array("w", "f32", one.inputs[0].shape), Array("r", "f32", two.outputs[0].shape)
    steps = (
        copied("first", w, one.inputs[0], "i, j"),
        one,
        two,
        copied("last", two.outputs[0], r, "i, 255-j"),
    )
    program = Program("long", (w, *program.params[1:]), steps, (r,))
    marked = in_step(program, HERE)
    assert marked.steps[2].in_step is not None
    plan = verify(plan_memory(marked))
    with pytest.raises(GraphError, match="two writes over what it is in step or in bands with"):
        verify(replace(plan, places={**plan.places, one.inputs[0]: plan.places[two.outputs[0]]}))
    arrays = numbers(program)
    wanted = interpret(program, *arrays)[0]
    assert np.allclose(Executable(program, HERE)(*arrays)[0], wanted, rtol=1e-4, atol=1e-4)


class Joined(nn.Module):
    """A block whose shortcut is a convolution, as at the beginning of a ResNet's stage."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(16, 128, 1), nn.Conv2d(32, 128, 1, stride=2)

    def forward(self, x, y):
        return (self.one(x) + self.two(y)).relu()


def test_a_quantised_block_is_in_step_and_gives_the_same_bytes(monkeypatch, tmp_path):
    joins, before = [], main_function.Main.together
    monkeypatch.setattr(main_function.Main, "together", lambda *given: (joins.append(1), before(*given))[1])
    kept = cache.Cache(tmp_path / "kept")  # or code of an earlier process is taken
    monkeypatch.setattr(cache, "default", lambda: kept)
    lamina.manual_seed(0)
    x, y = lamina.randn(2, 16, 56, 56), lamina.randn(2, 32, 112, 112)
    small = lamina.quantize(Joined().eval(), [(x, y)])
    with lamina.no_grad():
        want = small(x, y)
        traced = lamina.jit.trace(small, budget=None)
        for _ in range(2):
            assert lamina.equal(traced(x, y), want)
        assert joins or not HERE.quads  # else products of bytes take longer than their way through memory
        lamina.jit.export(small, tmp_path / "model.lam", x, y)
        loaded = lamina.jit.load(tmp_path / "model.lam")
        assert lamina.equal(loaded(x, y), want)
