"""Weights that are kept as bytes, or as half of them, are read so where they are multiplied."""

import random
from dataclasses import replace

import numpy as np
import pytest
from byte_programs import TARGETS, bf16, compiled, f32, i8, op, runs_here, same, u8

from lamina.ir.dtypes import bfloat16, float32
from lamina.ir.kernel import interpret, parse
from lamina.passes.kernels.nibbles import table_of
from lamina.passes.kernels.scales import split_scales
from lamina.passes.llvm import scaled_sums
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs import weight_panels
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.schedules.steps import Scale
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import AVX2, AVX512
from lamina.runtime.native import Executable

each_target = pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])


def weights(q, s, n: int, k: int, group: int, z=None):
    """q [n, k] as floats, each group of a row times its scale."""
    w = op("cast", op("reshape", q, (n, k // group, group)), float32)
    return op("reshape", (w if z is None else w - z) * s, (n, k))


def layer(seed: int):
    """A function and its arrays, and how many of these are weights."""
    rng = random.Random(seed)
    m, n = rng.choice((1, 2, 7, 40)), rng.choice((8, 33, 130))
    groups, group = rng.choice((1, 3, 4)), rng.choice((2, 32, 64))
    kind = rng.choice(("int8", "int4", "rows", "zeros", "after", "matmul", "bfloat16"))
    k = groups * group
    x, s, q = f32(m, k), np.abs(f32(n, groups, 1)), i8(n, k)

    def grouped(x, q, s, z=None):
        return op("linear", x, weights(q, s, n, k, group, z))

    if kind == "int8":
        return (lambda x, q, s, b: op("relu", grouped(x, q, s) + b)), [x, q, s, f32(n)], 3
    if kind == "int4":
        return (lambda x, q, s: grouped(x, op("unpack_int4", q, group), s)), [x, u8(n, k // 2), s], 2
    if kind == "zeros":
        return grouped, [x, u8(n, k), s, u8(n, groups, 1).astype(np.float32)], 3
    if kind == "rows":
        return (lambda x, q, s: op("linear", x, op("cast", q, float32) * s)), [x, q, s[:, 0]], 2
    if kind == "after":
        return (lambda x, q, s: op("linear", x, op("cast", q, float32)) * s), [x, q, s[:, 0, 0]], 2
    if kind == "matmul":
        return (lambda x, q, s: op("matmul", x, op("cast", q, float32) * s)), [x, i8(k, n), s[:, 0, 0]], 2
    given = [bf16(m, k), q, bf16(n, 1)]
    return (lambda x, q, s: op("linear", x, op("cast", q, bfloat16) * s)), given, 2


@each_target
@pytest.mark.parametrize("seed", range(40))
def test_layers_are_what_they_were(seed, target):
    function, arrays, kept = layer(seed)
    program = same(function, arrays, target, kept, terms=arrays[0].shape[-1])
    made = [a for call in program.calls for a in call.outputs if a not in program.results]
    floats = [a for a in made if a.dtype in ("f32", "bf16") and a.size >= arrays[0].shape[-1] * 8]
    scales = max((a.size for a in arrays[2:]), default=0)
    assert all(a.size < 8 * max(scales, 32) for a in floats), f"weights become floats\n{program}"


def test_the_program_says_it(golden):
    """Groups of weights in half a byte each: scaled after their sums, and read once."""
    arrays = [f32(2, 128), u8(40, 64), f32(40, 2, 1)]
    function = lambda x, q, s: op("linear", x, weights(op("unpack_int4", q, 64), s, 40, 128, 64))  # noqa: E731
    as_floats = replace(AVX2, shorts={})
    program = compiled(function, arrays, as_floats, 2)[1]
    kernels = "\n".join(f"{call.kernel} by {call.how}" for call in program.calls)
    golden("passes/read_narrow", f"{program}\n\n{kernels}\n")
    (last,) = (call for call in program.calls if call.kernel.name == "linear")
    text = code_of(last, as_floats).text
    # In two parts two vectors of a panel, in four one of the last: each load is for both halves of its bytes.
    assert text.count("load <8 x i8>") == 2 * 2 + 4


def test_a_planted_bug_is_found(monkeypatch):
    """A sum whose scale varies along it is not that scale times a sum."""
    monkeypatch.setattr(weight_panels, "scaled_axes", lambda flat, roles: [Scale(roles.stage.axes[0].name)])
    monkeypatch.setattr(
        scaled_sums,
        "split_scales",
        lambda *_: split_scales(_[0], _[1], [axis.name for axis in _[1].axes[1:]]),
    )
    arrays = [f32(2, 128), i8(40, 128), f32(40, 2, 1)]
    with pytest.raises((AssertionError, KeyError)):
        same(lambda x, q, s: op("linear", x, weights(q, s, 40, 128, 64)), arrays, AVX512, 2, terms=128)


def test_what_is_not_kept_is_left_as_it_is():
    """Weights that are arguments, and sources that are not much narrower."""
    arrays = [f32(2, 64), i8(40, 64), f32(40, 1)]
    function = lambda x, q, s: op("linear", x, op("cast", q, float32) * s)  # noqa: E731
    names = [call.kernel.name for call in compiled(function, arrays, AVX2)[1].calls]
    assert "cast_mul" in names or names == ["cast_mul_linear"]
    wide = [f32(2, 64), f32(40, 64), f32(40, 1)]
    assert "mul" in [
        call.kernel.name for call in compiled(lambda x, w, s: op("linear", x, w * s), wide, AVX2, 2)[1].calls
    ]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("i8((((i32(x[i]) >> 4) & 15) - 8))", range(-8, 8)),
        ("((i32(x[i]) & 15) + 100)", range(100, 116)),
        ("i8(((i32(x[i]) & 15) + 120))", None),  # wraps
        ("(i32(x[i]) & 31)", None),
        ("i32(x[i])", None),
    ],
)
def test_numbers_of_four_bits_are_looked_up(text, numbers):
    kernel = parse(f"kernel k(x: u8[64]) -> (y: f32[64]) {{\n  parallel i:64\n  y[i] = f32({text})\n}}")
    (store,) = kernel.stores
    found = table_of(store.value.arg)
    assert (None if found is None else found[1]) == (None if numbers is None else tuple(numbers))
    arrays = [Array(b.name, b.dtype, b.shape) for b in kernel.buffers.values()]
    call = Call(kernel, tuple(arrays[:1]), tuple(arrays[1:]), schedule("vectorise(i)"))
    assert ("permvar" in code_of(call, AVX512).text) == (numbers is not None)
    if runs_here(AVX512):
        x = np.arange(64, dtype=np.uint8) * 4 + 1
        (made,) = Executable(Program("k", call.inputs, (call,), call.outputs), AVX512)(x)
        np.testing.assert_array_equal(made, interpret(kernel, x)[0])
