"""Lanes a few elements apart, which are picked out of whole vectors: every stride, type and length, between
pages that may not be touched."""

import numpy as np
import pytest
from native import LEVELS_HERE, Native, call_of, each_level

from lamina.ir.kernel import NUMPY, parse
from lamina.ir.kernel.interpret import interpret
from lamina.passes.llvm import memory
from lamina.passes.llvm.generate import code_of
from lamina.passes.schedules.default import MOST_STRIDE
from lamina.passes.schedules.steps import Schedule, Vectorise
from lamina.passes.schedules.target import AVX2, AVX512
from lamina.runtime import guard

STRIDES = [by * sign for by in range(1, MOST_STRIDE + 2) for sign in (1, -1) if by * sign != 1]
LENGTHS = (1, 3, 7, 8, 15, 16, 17, 31, 40)


def take(stride: int, length: int, dtype: str, outside: int = 0):
    """y[i] = x[stride * i], from the one end of x to the other, or from so far outside of both."""
    size = abs(stride) * (length - 1) + 1
    start = 0 if stride > 0 else size - 1
    shift, other = (f"-{outside}", " else 0") if outside else ("", "")
    size -= 2 * outside
    return parse(
        f"kernel take(x: {dtype}[{size}]) -> (y: {dtype}[{length}]) {{\n"
        f"  parallel i:{length}\n"
        f"  y[i] = x[{stride}*i+{start}{shift}{other}]\n"
        "}"
    )


def run(kernel, target) -> tuple[np.ndarray, np.ndarray]:
    """What is expected, and what vectors give between fences."""
    (given,) = kernel.inputs
    numbers = np.arange(1, given.shape[0] + 1).astype(NUMPY[given.dtype])
    code = code_of(call_of(kernel, Schedule(Vectorise("i"))), target)
    (want,) = interpret(kernel, numbers)
    for mode in (1, 2):
        x, y = guard.copy(numbers, mode), guard.array(want.shape, want.dtype, mode)
        Native(code, target)(x, y, parts=1)
        if not np.array_equal(y, want):
            break
    return want, y


@each_level
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "bf16", "u8"])
def test_every_stride(target, dtype):
    for stride in STRIDES:
        for length in LENGTHS:
            want, got = run(take(stride, length, dtype), target)
            np.testing.assert_array_equal(got, want, err_msg=f"{stride} {length}")


@each_level
@pytest.mark.parametrize("stride", STRIDES)
def test_what_lies_outside_is_not_read(target, stride):
    for length in (16, 17, 40):
        for outside in (1, 2, 5):
            want, got = run(take(stride, length, "f32", outside), target)
            np.testing.assert_array_equal(got, want, err_msg=f"{length} {outside}")
            assert want[0] == want[-1] == 0


@pytest.mark.parametrize("stride", STRIDES)
def test_few_strides_gather(stride):
    """Unless a mask would have to be spread, on a machine whose masks are vectors."""
    for target, length in ((AVX512, 40), (AVX2, 40)):
        text = code_of(call_of(take(stride, length, "f32"), Schedule(Vectorise("i"))), target).text
        assert ("masked.gather" in text) == (abs(stride) > MOST_STRIDE)
    guarded = code_of(call_of(take(stride, 40, "f32", 2), Schedule(Vectorise("i"))), AVX512).text
    assert ("masked.gather" in guarded) == (abs(stride) > MOST_STRIDE)


# ---- planted bugs
def one_further(shuffle):
    return lambda self, x, y, picks: shuffle(self, x, y, [*picks[1:], picks[0]])


def the_first_of_both(shuffle):
    return lambda self, x, y, picks: shuffle(self, x, y, [pick % self.lanes for pick in picks])


@pytest.mark.parametrize("bug", [one_further, the_first_of_both], ids=lambda bug: bug.__name__)
def test_the_comparison_sees(bug, monkeypatch):
    monkeypatch.setattr(memory.Memory, "shuffle", bug(memory.Memory.shuffle))
    want, got = run(take(2, 32, "f32"), LEVELS_HERE[0])  # whole vectors: no mask is shuffled
    assert not np.array_equal(got, want)
