"""Products of matrices as native code of every width."""

import re
from dataclasses import replace

import numpy as np
import pytest
from image_programs import Builder, arguments
from native import LEVELS_HERE, code_of, run_program

from lamina.ir.errors import KernelError
from lamina.ir.kernel import parse
from lamina.ir.kernel.types import NUMPY
from lamina.passes.kernels.proof import prove
from lamina.passes.llvm import generate, units
from lamina.passes.llvm import reductions as module
from lamina.passes.llvm.binding import host_target, llvm, machine, tuned
from lamina.passes.llvm.units import Units, lower
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.program import Array, Call, Program, interpret, verify
from lamina.passes.schedules.steps import Join, Schedule, Vectorise, tiles
from lamina.passes.schedules.target import AVX512, CORES

TARGETS = [host_target(), *LEVELS_HERE[1:]]
PLAIN = Options()
SIZES = [(1, 10, 33), (3, 70, 64), (5, 5, 5), (17, 33, 40), (64, 48, 100), (14, 300, 50), (40, 16, 512)]


def check(program: Program, target, options: Options = PLAIN) -> None:
    """Against the interpreter, which sums in float64.

    A sum of n products errs by n roundings of its largest part at the worst, and by some sqrt(n) of them as a
    rule: 4 sqrt(n) for n < 1024 is 128.
    """
    same(program, verify(pack_matmuls(program, target, options)), target)


def same(program: Program, laid: Program, target) -> None:
    """Whether the laid out program's code gives what `check` says."""
    given = [a.astype(NUMPY[p.dtype]) for a, p in zip(arguments(program), program.params, strict=True)]
    for want, got in zip(interpret(program, *given), run_program(laid, given, target), strict=True):
        eps = 0 if want.dtype == bool else np.finfo(want.dtype).eps
        bound = 128 * eps * max(1, np.abs(want).max(initial=0))
        np.testing.assert_allclose(got, want, rtol=0, atol=bound)


def stated(text: str, dtype: str) -> Program:
    kernel = parse(text.replace("f32", dtype))
    params = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.inputs)
    outputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.outputs)
    return Program("net", params, (Call(kernel, params, outputs),), outputs)


def form(kind: str, m: int, n: int, k: int) -> str:
    """A product, its factors as they lie or turned, with something before it and after it."""
    left = ("i, k", f"{m},{k}") if kind[0] == "n" else ("k, i", f"{k},{m}")
    right = ("k, j", f"{k},{n}") if kind[1] == "n" else ("j, k", f"{n},{k}")
    return (
        f"kernel form(x: f32[{left[1]}], w: f32[{right[1]}], b: f32[{n}]) -> (y: f32[{m},{n}]) {{\n"
        f"  parallel i:{m} j:{n}\n"
        f"  acc = sum(k:{k}) (x[{left[0]}] * w[{right[0]}])\n"
        "  y[i, j] = max((acc + b[j]), 0.0)\n}"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("weight", [False, True], ids=["", "weight"])
@pytest.mark.parametrize("kind", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_form(size, kind, weight, target):
    options = Options(frozenset((1,)) if weight else frozenset())
    check(stated(form(kind, *size), "f32"), target, options)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("kind", ["nn", "tn"])
@pytest.mark.parametrize("size", [*SIZES, (30, 272, 9), (9, 1040, 24)], ids=str)
def test_nothing_fits_the_caches(size, kind, target):
    core = replace(target.core, streams=0, cache=1 << 10)
    check(stated(form(kind, *size), "f32"), replace(target, core=core), Options(only="panels"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("kind", ["nn", "nt"])
def test_float64(kind, target):
    check(stated(form(kind, 33, 50, 40), "f64"), target)


@pytest.mark.parametrize("weight", [False, True], ids=["", "weight"])
def test_halves_are_read_as_float32(weight):
    text = (
        "kernel half(x: f32[20,40], w: bf16[40,50]) -> (y: f32[20,50]) {\n  parallel i:20 j:50\n"
        "  acc = sum(k:40) (x[i, k] * f32(w[k, j]))\n  y[i, j] = acc\n}"
    )
    check(stated(text, "f32"), host_target(), Options(frozenset((1,)) if weight else frozenset()))


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 3, 20, 16), (2, 3, 16, 33)),
        ((4, 7, 24), (24, 50)),
        ((2, 40, 16), (2, 16, 17)),
        ((24,), (24, 50)),
        ((50, 64), (64,)),
        ((3, 1, 2, 4), (2, 4, 2)),
        ((2, 300, 16), (2, 16, 17)),
    ],
    ids=str,
)
def test_batches_and_vectors(shapes):
    b = Builder("net", shapes[0])
    check(b.program(b.op("matmul", b.image, b.param("w", shapes[1]))), host_target())


def test_a_mask_on_the_way_to_a_factor_is_packed():
    """Of columns that fill no whole panel; what is beyond the last is no bool 0, but False."""
    text = (
        "kernel masked(x: f32[40,48], m: bool[48,50], w: f32[48,50]) -> (y: f32[40,50]) {\n"
        "  parallel i:40 j:50\n"
        "  acc = sum(k:48) (x[i, k] * select(m[k, j], w[k, j], (w[k, j] * 2.0)))\n  y[i, j] = acc\n}"
    )
    program = stated(text, "f32")
    laid = pack_matmuls(program, host_target(), Options(frozenset((1, 2))))
    assert [call.name for call in laid.calls].count("pack") == 1
    for call in laid.calls:
        prove(call.kernel)
    check(program, host_target(), Options(frozenset((1, 2))))


def test_what_stands_before_the_product():
    text = (
        "kernel gated(x: f32[40,48], w: f32[48,50]) -> (y: f32[40,50]) {\n  parallel i:40 j:50\n"
        "  acc = sum(k:48) (exp(x[i, k]) * tanh(w[k, j]))\n  y[i, j] = (acc * x[i, 0])\n}"
    )
    for target in TARGETS:
        check(stated(text, "f32"), target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("kind", ["nn", "nt"])
@pytest.mark.parametrize("columns", [7, 24, 40, 50, 96, 130])
@pytest.mark.parametrize("shift", [-17, -1, 1, 9])
def test_what_is_added_is_moved_to_the_side(kind, columns, shift, target):
    """Beside its columns there is padding: in the first panel, or the last, which has code of its own."""
    right = ("k, j", f"12,{columns}") if kind == "nn" else ("j, k", f"{columns},12")
    text = (
        f"kernel moved(x: f32[5,12], w: f32[{right[1]}], c: f32[5,{columns}]) -> (y: f32[5,{columns}]) {{\n"
        f"  parallel i:5 j:{columns}\n  acc = sum(k:12) (x[i, k] * w[{right[0]}])\n"
        f"  y[i, j] = (acc + c[i, j{shift:+} else 7.5])\n}}"
    )
    check(stated(text, "f32"), target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("size", [(4, 64), (5, 7), (33, 50), (1, 40), (40, 2)], ids=str)
def test_what_follows_sums_of_lanes_runs_on_vectors_of_them(size, dtype, target):
    """Read along the vectors, across them, moved to the side, by an index and by its place; stored along,
    across and as a bool."""
    m, n = size
    at = f"min(max(at[j], 0), {n - 1})"
    text = (
        f"kernel after(x: f32[{m},40], w: f32[{n},40], b: f32[{n}], c: f32[{n},{m}], at: i64[{n}]) -> "
        f"(y: f32[{m},{n}], z: f32[{n},{m}], less: bool[{m},{n}]) {{\n  parallel i:{m} j:{n}\n"
        "  scaled = (b[0] * b[j])\n"
        f"  acc = sum(k:40) (x[i, k] * w[{at}, k])\n"
        "  t = tanh((acc + b[j - 1 else 0.5]))\n"
        f"  y[i, j] = ((t + exp(c[j, i])) * (b[{at}] + scaled))\n"
        "  z[j, i] = (t + f32(coord(i + 2 * j)))\n"
        "  less[i, j] = (c[j, i] <= b[j])\n}"
    )
    program = stated(text, dtype)
    (call,) = program.calls
    along = Schedule(Vectorise("k"), *tiles({"i": min(m, 4), "j": min(n, 4)}), Join())
    same(program, program.replace(steps=(replace(call, how=along),)), target)


def test_no_number_leaves_its_vector():
    laid = pack_matmuls(stated(form("nt", 32, 64, 80), "f32"), AVX512, Options(only="dots"))
    text = lower(laid.calls[-1].kernel, AVX512, laid.calls[-1].how)
    assert "extractelement" not in text and "store <4 x float>" in text


def test_several_summed_axes():
    text = (
        "kernel two(x: f32[20,3,30], w: f32[3,30,40]) -> (y: f32[20,40]) {\n  parallel i:20 j:40\n"
        "  acc = sum(k:30 b:3) (x[i, b, k] * w[b, k, j])\n  y[i, j] = acc\n}"
    )
    for options in (Options(), Options(frozenset((1,)))):
        check(stated(text, "f32"), host_target(), options)


@pytest.mark.parametrize("size", [(96, 192, 256), (64, 48, 256), (60, 64, 100)], ids=str)
@pytest.mark.parametrize("cpu", [*CORES, "znver5"])
def test_the_sums_of_a_tile_stay_in_registers(cpu, size):
    """By the model of Intel's earlier cores LLVM would load so far ahead that they leave them."""
    core, tune = tuned(cpu, AVX512)
    target = replace(AVX512, cpu=cpu, core=core, tune=tune)
    laid = pack_matmuls(stated(form("nn", *size), "f32"), target, Options(only="packed"))
    code = code_of(laid.calls[-1], target)
    assembly = machine(target).emit_assembly(llvm.parse_assembly(code.text))
    assert "vfmadd" in assembly
    assert not re.findall(r"\(%rsp\), %zmm|%zmm\d+, -?\d*\(%rsp\)", assembly)


def test_a_panel_far_away_is_asked_for_ahead():
    b = Builder("net", (2, 1100))
    program = b.program(b.op("linear", b.image, b.param("w", (600, 1100))))
    laid = pack_matmuls(program, host_target(), Options(frozenset((1,))))
    assert laid.calls[-1].how.ahead
    check(program, host_target(), Options(frozenset((1,))))


# ---- planted bugs
def test_a_wrong_lane_order_is_seen(monkeypatch):
    generate._generic.cache_clear()
    generate._function.cache_clear()
    right = module.lane_sums
    for place in (module, units):
        monkeypatch.setattr(place, "lane_sums", lambda *given: right(*given)[::-1])
    with pytest.raises(AssertionError):
        check(stated(form("nt", 3, 71, 64), "f32"), host_target())


def test_a_value_of_other_lanes_is_seen(monkeypatch):
    """What a loop over the sum found of a point is of no use to vectors of points."""
    generate._generic.cache_clear()
    generate._function.cache_clear()
    right = Units.key
    monkeypatch.setattr(
        Units, "key", lambda self, *given: tuple(p for n, p in enumerate(right(self, *given)) if n != 2)
    )
    with pytest.raises((AssertionError, KernelError)):
        test_what_follows_sums_of_lanes_runs_on_vectors_of_them((33, 50), "f32", host_target())


def test_a_wrong_panel_is_seen(monkeypatch):
    generate._generic.cache_clear()
    generate._function.cache_clear()
    monkeypatch.setattr(Units, "times", lambda self, base, factor: base)
    with pytest.raises(AssertionError):
        check(stated(form("nn", 21, 71, 64), "f32"), host_target(), Options(frozenset((1,))))
