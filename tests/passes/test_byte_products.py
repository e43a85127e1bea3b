"""Products of bytes on targets of every kind: exact, proved, and by the instructions that they have."""

import random
from collections import Counter

import numpy as np
import pytest
from byte_programs import (
    HERE,
    MATRICES,
    QUADS,
    TARGETS,
    compiled,
    f32,
    i8,
    op,
    runs_here,
    same,
    scaled,
    to_bytes,
    u8,
)

import lamina
from lamina.ir.errors import Unsayable
from lamina.ir.kernel import NUMPY, interpret, parse
from lamina.passes.llvm import neighbours
from lamina.passes.llvm.binding import emit_object
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs.program import Array, Call
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import AVX2, AVX512, NEON
from lamina.runtime import ops

each_target = pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])


def product(seed: int):
    """A function, its arrays and how many of them are weights: products of every form, of any sizes."""
    rng = random.Random(seed)
    m, k = rng.choice((1, 3, 8, 33, 70)), rng.choice((1, 7, 12, 32, 64, 100, 132))
    n, a = rng.choice((1, 5, 16, 37, 70)), rng.choice((i8, u8))
    kind = rng.choice(("linear", "matmul", "batched", "shared", "turned"))
    if kind == "linear":
        return (lambda x, w: op("int_matmul", x, op("permute", w, (1, 0)))), [a(m, k), i8(n, k)], 1
    if kind == "batched":
        return (lambda x, w: op("int_matmul", x, w)), [a(3, m, k), i8(3, k, n)], 0
    if kind == "shared":
        return (lambda x, w: op("int_matmul", x, w)), [a(2, 3, m, k), i8(k, n)], 1
    if kind == "turned":
        return (lambda x, w: op("int_matmul", op("permute", x, (1, 0)), w)), [a(k, m), i8(k, n)], 1
    return (lambda x, w: op("int_matmul", x, w)), [a(m, k), i8(k, n)], rng.choice((0, 1))


@each_target
@pytest.mark.parametrize("seed", range(24))
def test_products_are_exact(seed, target):
    function, arrays, weights = product(seed)
    same(function, arrays, target, weights)


@each_target
def test_the_greatest_sums_are_exact(target):
    """No instruction saturates, as vpmaddubsw would."""
    for a, b in ((255, -128), (255, 127)):
        arrays = [np.full((9, 256), a, np.uint8), np.full((256, 20), b, np.int8)]
        same(lambda x, w: op("int_matmul", x, w), arrays, target, 1)
    arrays = [np.full((9, 256), -128, np.int8), np.full((256, 20), -128, np.int8)]
    same(lambda x, w: op("int_matmul", x, w), arrays, target, 1)


def ways(target) -> Counter:
    """By which steps the products go."""
    found = Counter()
    for seed in range(24):
        for call in compiled(*product(seed)[:2], target, product(seed)[2])[1].calls:
            if call.kernel.name == "int_matmul" and call.how is not None:
                found.update({type(step).__name__ for step in call.how.steps})
    return found


def test_products_go_by_the_instructions_that_there_are():
    assert ways(MATRICES)["Matrix"] > 4 and ways(QUADS)["Quads"] > 12
    assert ways(AVX512)["Pairs"] > 12 and ways(AVX2)["Pairs"] > 12  # as pairs of i16
    assert not ways(NEON)["Pairs"] and ways(NEON)["Pack"] > 4


def layer(x, w, scale, bias, zero):
    """A layer from bytes to bytes: the zero point of its input is a sum over the weights."""
    sums = op("int_matmul", x, op("permute", w, (1, 0))) - zero
    return to_bytes(op("relu", scaled(sums, scale, bias)), 3.0)


@each_target
@pytest.mark.parametrize("a", [u8, i8])
def test_what_leaves_a_layer_is_bytes(a, target):
    w = i8(40, 64)
    zero = 7 * w.sum(1, dtype=np.int32)
    program = same(layer, [a(50, 64), w, np.abs(f32(40)) / 99, f32(40), zero], target, 4)
    (last,) = (call for call in program.calls if call.kernel.name.startswith("int_matmul"))
    assert [array.dtype for array in last.outputs] == ["u8"]


def test_the_program_says_it(golden):
    arrays = [u8(50, 64), i8(40, 64), f32(40), f32(40), np.zeros(40, np.int32)]
    parts = []
    for target in (MATRICES, QUADS, AVX2):
        program = compiled(layer, arrays, target, 4)[1]
        kernels = "\n".join(f"{call.kernel} by {call.how}" for call in program.calls)
        parts.append(f"{target.name}\n\n{program}\n\n{kernels}\n")
    golden("passes/byte_products", "\n".join(parts))


# ---- the steps
KERNEL = """\
kernel product(x: u8[7,32], w: i8[8,16,4]) -> (y: i32[7,16]) {
  parallel i:7 j:16
  t = sum(k:8 d:4) (i32(x[i, 4*k+d]) * i32(w[k, j, d]))
  y[i, j] = t
}"""
HOW = "quads(d) vectorise(j) tile(i, 7)"


def call_of(text: str, how: str) -> Call:
    kernel = parse(text)
    arrays = [Array(b.name, b.dtype, b.shape) for b in kernel.buffers.values()]
    count = len(kernel.inputs)
    return Call(kernel, tuple(arrays[:count]), tuple(arrays[count:]), schedule(how))


def test_a_quad_is_one_instruction():
    text = code_of(call_of(KERNEL, HOW), QUADS).text
    assert text.count("= call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(") == 7
    assert "xor" not in text  # x is unsigned, as the instruction takes it
    if HERE.platform.machine == "x86_64":
        assert emit_object(text, QUADS)


def test_bytes_of_the_other_kind_are_turned_over_and_summed_beside():
    text = code_of(call_of(KERNEL.replace("x: u8", "x: i8"), HOW), QUADS).text
    assert text.count("= call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(") == 8  # one for the column
    assert text.count("= xor <16 x i32>") == 7 and text.count("= sub <16 x i32>") == 7


@pytest.mark.parametrize(
    ("kernel", "how", "target"),
    [
        (KERNEL, HOW, AVX512),
        (KERNEL.replace("w: i8", "w: u8"), HOW, QUADS),
        (KERNEL.replace("4*k+d", "k+8*d"), HOW, QUADS),
        (KERNEL.replace("i32", "i64"), HOW, QUADS),
        (KERNEL.replace("sum(", "max("), HOW, QUADS),
        (KERNEL, HOW.replace("quads(d)", "pairs(k)"), QUADS),
        (KERNEL, HOW.replace("tile(i, 7)", "block(j, 16) peel(j) tile(i, 7) matrix(i)"), MATRICES),
    ],
    ids=["target", "signs", "apart", "wide sums", "no sum", "another axis", "no panels"],
)
def test_what_is_no_sum_of_quads_is_refused(kernel, how, target):
    with pytest.raises(Unsayable):
        code_of(call_of(kernel, how), target)


@pytest.mark.skipif(not runs_here(QUADS), reason="this processor multiplies no bytes by fours")
def test_a_planted_bug_is_found(monkeypatch):
    """Without what is summed beside, bytes of the other kind are off."""
    monkeypatch.setattr(neighbours, "corrected", lambda *_: {})
    with pytest.raises(AssertionError, match="its code"):
        same(lambda x, w: op("int_matmul", x, w), [i8(5, 64), i8(64, 20)], QUADS, 1)


# ---- eager and traced
def test_eager_and_traced_are_the_same():
    f = lamina.jit.trace(lambda x, w: ops.int_matmul(x, w.T))
    for m, k, n in ((1, 64, 64), (33, 100, 17), (64, 700, 32)):
        x, w = lamina.tensor(i8(m, k)), lamina.tensor(i8(n, k))
        for _ in range(3):
            found = f(x, w)
        np.testing.assert_array_equal(found.numpy(), ops.int_matmul(x, w.T).numpy())
        np.testing.assert_array_equal(found.numpy(), i8(m, k).astype(np.int64) @ i8(n, k).T.astype(np.int64))


@pytest.mark.parametrize("seed", range(6))
def test_a_step_that_rewrites_leaves_the_meaning(seed):
    function, arrays, weights = product(seed)
    for call in compiled(function, arrays, MATRICES, weights)[1].calls:
        given = [np.random.default_rng(1).integers(0, 9, a.shape).astype(NUMPY[a.dtype]) for a in call.inputs]
        for step, kernel in call.how.kernels(call.kernel) if call.how else ():
            flat = [x.reshape(b.shape) for x, b in zip(given, kernel.inputs, strict=True)]
            for x, y in zip(interpret(call.kernel, *given), interpret(kernel, *flat), strict=True):
                np.testing.assert_array_equal(x.reshape(-1), y.reshape(-1), str(step))
