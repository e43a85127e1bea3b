"""Weights of few bits for matrix registers: bfloat16 that is made at each call, and exact."""

import random

import numpy as np
import pytest
from byte_programs import MATRICES, TARGETS, bf16, compiled, f32, i8, op, runs_here, same, u8

import lamina
from lamina.ir.dtypes import bfloat16, float32
from lamina.ir.kernel import scalar
from lamina.passes.kernels.scales import split_scales
from lamina.passes.llvm import matrix
from lamina.passes.programs import half_panels
from lamina.passes.programs.program import Program
from lamina.passes.programs.prologue import prologue
from lamina.passes.schedules.steps import Again, Apart, Matrix
from lamina.quantization.swapped_layers import WeightOnlyLinear, Weights

NATIVE = pytest.mark.skipif(not runs_here(MATRICES), reason="this CPU has no matrix registers")


def layer(rows: int, n: int, k: int, group: int, kind: str):
    """A layer of few bits behind what makes bfloat16, its arrays, and how many of these are weights."""
    groups = k // group

    def linear(x, q, s, z=None):
        steps = op("unpack_int4", q, group) if kind == "int4" else q
        w = op("cast", op("reshape", steps, (n, groups, group)), float32)
        w = w if z is None else w - op("cast", z, float32)
        x = x if kind == "float32" else op("cast", op("relu", x), float32)
        y = op("linear", x, op("reshape", w * s, (n, k)))
        return y if kind in ("float32", "zeros") else op("cast", y, bfloat16)

    q = u8(n, k // 2) if kind == "int4" else i8(n, k)
    x = f32(rows, k) if kind == "float32" else bf16(rows, k)
    weights = [q, np.abs(f32(n, groups, 1)), *([i8(n, groups, 1, seed=1)] if kind == "zeros" else [])]
    return linear, [x, *weights], len(weights)


def drawn(seed: int):
    rng = random.Random(seed)
    group = rng.choice((32, 64, 96))
    kind = rng.choice(("int8", "int4", "zeros", "int8", "int4"))
    rows, n = rng.choice((1, 3, 17, 32, 40, 70)), rng.choice((5, 16, 33, 70))
    return layer(rows, n, group * rng.choice((1, 2, 3)), group, kind)


def makers(program: Program) -> list:
    return [call for call in program.calls if call.how is not None and call.how.has(Again)]


@NATIVE
@pytest.mark.parametrize("seed", range(24))
def test_products_are_what_they_were(seed):
    function, arrays, kept = drawn(seed)
    program = same(function, arrays, MATRICES, kept, terms=arrays[0].shape[-1])
    last = program.calls[-1].how
    assert last is not None
    assert last.has(Matrix) == bool(makers(program)) == (arrays[0].shape[0] >= 32), program
    assert last.has(Matrix) or last.has(Apart)


def test_panels_of_bfloat16_are_made_at_each_call_of_bytes_that_one_row_reads_too():
    packed = []
    for rows in (1, 40):
        function, arrays, kept = layer(rows, 33, 128, 64, "int4")
        _, program = compiled(function, arrays, MATRICES, kept)
        before, main = prologue(program, frozenset(range(1, 1 + kept)))
        packed.append([(call.kernel, call.how) for call in before.calls])
        assert {a.dtype for a in before.results} == {"u8", "f32"}
        assert len(makers(main)) == (rows == 40)
    assert packed[0] == packed[1]


def test_the_program_says_it(golden):
    function, arrays, kept = layer(40, 33, 128, 64, "int4")
    _, program = compiled(function, arrays, MATRICES, kept)
    kernels = "\n".join(f"{call.kernel} by {call.how}" for call in program.calls)
    golden("passes/half_panels", f"{program}\n\n{kernels}\n")


@pytest.mark.parametrize(
    ("rows", "k", "group", "kind", "why"),
    [
        (40, 64, 8, "int8", "a group fills no register"),
        (24, 64, 64, "int8", "few rows"),
        (40, 64, 64, "float32", "a left factor that is no bfloat16"),
    ],
)
def test_what_stays_as_bytes(rows, k, group, kind, why):
    function, arrays, kept = layer(rows, 33, k, group, kind)
    _, program = compiled(function, arrays, MATRICES, kept)
    assert not makers(program), why


@NATIVE
def test_numbers_that_bfloat16_has_not_are_seen(monkeypatch):
    """Differences of bytes come to 255; of what goes beyond 256 not all are numbers of bfloat16."""
    monkeypatch.setitem(half_panels.BYTE_RANGES, "u8", (0, 1))
    function, (x, _, s, _), kept = layer(40, 33, 64, 64, "zeros")
    arrays = [x, u8(33, 64), s, np.full((33, 1, 1), -128, np.int8)]
    with pytest.raises(AssertionError):
        same(function, arrays, MATRICES, kept, terms=1)
    monkeypatch.undo()
    assert not makers(same(function, arrays, MATRICES, kept, terms=64))


@NATIVE
def test_sums_that_are_not_scaled_are_seen(monkeypatch):
    monkeypatch.setattr(matrix, "split_scales", lambda *given: (scalar.const(1.0), split_scales(*given)[1]))
    function, arrays, kept = layer(40, 33, 128, 64, "int8")
    with pytest.raises(AssertionError):
        same(function, arrays, MATRICES, kept, terms=128)


@NATIVE
def test_rows_of_a_factor_that_may_be_rounded_go_so_too():
    """Under precision="bfloat16" a left factor of float32 is rounded."""
    made = WeightOnlyLinear(lamina.tensor(f32(40, 128)), None, Weights(8, 64))
    x = lamina.tensor(bf16(40, 128).astype(np.float32))  # which loses nothing then
    traced = lamina.jit.trace(made, precision="bfloat16")
    with lamina.no_grad():
        for _ in range(3):
            found = traced(x)
        np.testing.assert_allclose(found.numpy(), made(x).numpy(), rtol=0, atol=1e-4)
    assert "3 kernels" in traced.explain(detail=True)  # that rounds, of the panels, of the product


@NATIVE
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_few_rows_read_weights_of_bfloat16_as_many_do(rows):
    """In pairs, which they widen; what is packed is the same."""
    packed = []
    for count in (rows, 40):
        arrays = [bf16(count, 96), bf16(37, 96)]
        program = same(lambda x, w: op("linear", op("relu", x), w), arrays, MATRICES, 1, terms=96)
        before, _ = prologue(program, frozenset((1,)))
        packed.append([(call.kernel, call.how) for call in before.calls])
    assert packed[0] == packed[1]
    assert [kernel.outputs[0].dtype for kernel, _ in packed[0]] == ["bf16"]


@pytest.mark.parametrize("target", TARGETS[1:], ids=[target.name for target in TARGETS[1:]])
def test_a_few_rows_read_what_many_do_without_matrix_registers(target):
    packed = []
    for count in (1, 40):
        arrays = [bf16(count, 96), bf16(37, 96)]
        program = same(lambda x, w: op("linear", op("relu", x), w), arrays, target, 1, terms=96)
        before, _ = prologue(program, frozenset((1,)))
        packed.append([(call.kernel, call.how) for call in before.calls])
    assert packed[0] == packed[1]
