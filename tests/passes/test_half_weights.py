"""Products of halves where a target multiplies no pairs: weights stay halves, and rows are made floats."""

from dataclasses import replace

import numpy as np
import pytest
from byte_programs import AVX2, AVX512, BASELINE, NEON, bf16, compiled, f32, op, same

from lamina.ir.dtypes import bfloat16, float16

LEVELS = [AVX512, AVX2, BASELINE, NEON]


def halves(dtype, *shape: int) -> np.ndarray:
    return f32(*shape).astype(dtype.numpy)


def linear(x, w):
    return op("linear", x, w)


def packed_in(program) -> set[str]:
    return {a.dtype for call in program.calls if call.name == "pack" for a in call.outputs}


@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("target", LEVELS, ids=[target.name for target in LEVELS])
@pytest.mark.parametrize(("rows", "n", "k"), [(1, 70, 129), (3, 16, 64), (40, 33, 96)])
def test_weights_stay_what_they_are(rows, n, k, target, dtype):
    program = same(linear, [halves(dtype, rows, k), halves(dtype, n, k)], target, 1, terms=k)
    narrow = dtype is bfloat16 or target.has_halves
    assert packed_in(program) == {("bf16" if dtype is bfloat16 else "f16") if narrow else "f32"}


def test_rows_are_made_floats_once_for_all_that_read_them():
    def both(x, w, v):
        return linear(x, w), linear(x, v)

    program = same(both, [bf16(7, 64), bf16(33, 64), bf16(40, 64)], AVX2, 2, terms=64)
    assert [call.outputs[0].dtype for call in program.calls if call.name == "left"] == ["f32"]


def test_one_row_and_many_read_the_same_panels():
    packed = []
    for rows in (1, 2, 40):
        _, program = compiled(linear, [bf16(rows, 64), bf16(33, 64)], AVX2, 1)
        packed.append([(call.kernel, call.how) for call in program.calls if call.name == "pack"])
    assert packed[0] == packed[1] == packed[2]


def test_pairs_are_multiplied_as_pairs():
    """Where an instruction takes two at once."""
    target = replace(AVX512, features="+avx512bf16", pairs="llvm.x86.avx512bf16.dpbf16ps.512")
    _, program = compiled(linear, [bf16(7, 64), bf16(33, 64)], target, 1)
    assert all(call.name != "left" for call in program.calls)
