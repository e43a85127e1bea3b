"""Lanes a few elements apart, which are picked out of whole vectors, and put between those of others: every
stride, type and length, between pages that may not be touched."""

import numpy as np
import pytest
from native import LEVELS_HERE, Native, call_of, each_level

from lamina.ir.kernel import NUMPY, parse
from lamina.ir.kernel.interpret import interpret
from lamina.passes.llvm import memory
from lamina.passes.llvm.generate import code_of
from lamina.passes.schedules.default import MOST_STRIDE, default_schedule
from lamina.passes.schedules.steps import Schedule, Vectorise
from lamina.passes.schedules.target import AVX2, AVX512
from lamina.runtime import guard

STRIDES = [by * sign for by in range(1, MOST_STRIDE + 2) for sign in (1, -1) if by * sign != 1]
LENGTHS = (1, 7, 16, 17, 40)


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


def put(count: int, length: int, dtype: str, backwards: bool = False):
    """y[i, k] = x[k, i] for each of so many k, in turn."""
    places = range(count)[::-1] if backwards else range(count)
    stores = "".join(f"  y[i, {k}] = x[{k}, i]\n" for k in places)
    return parse(
        f"kernel put(x: {dtype}[{count},{length}]) -> (y: {dtype}[{length},{count}]) {{\n"
        f"  parallel i:{length}\n{stores}}}"
    )


def run(kernel, target) -> tuple[np.ndarray, np.ndarray]:
    """What is expected, and what vectors give between fences."""
    (given,) = kernel.inputs
    numbers = np.arange(1, np.prod(given.shape) + 1).reshape(given.shape).astype(NUMPY[given.dtype])
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


@each_level
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "bf16", "u8"])
def test_stores_beside_each_other(target, dtype):
    for count in range(2, MOST_STRIDE + 2):
        for length in LENGTHS:
            want, got = run(put(count, length, dtype), target)
            np.testing.assert_array_equal(got, want, err_msg=f"{count} {length}")


@pytest.mark.parametrize("count", range(2, MOST_STRIDE + 2))
def test_few_stores_scatter(count):
    for length in (16, 40):
        text = code_of(call_of(put(count, length, "f32"), Schedule(Vectorise("i"))), AVX512).text
        assert ("masked.scatter" in text) == (count > MOST_STRIDE)


def test_stores_in_another_order():
    want, got = run(put(3, 40, "f32", backwards=True), LEVELS_HERE[0])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axes", ["i:40 j:33", "j:33 i:40"])
def test_lanes_lie_along_the_axis_whose_elements_are_near(axes):
    kernel = parse(
        "kernel swap(x: f32[40,33,2]) -> (y: f32[40,33,2]) {\n"
        f"  parallel {axes}\n"
        "  y[i, j, 0] = x[i, j, 1]\n"
        "  y[i, j, 1] = x[i, j, 0]\n"
        "}"
    )
    assert default_schedule(kernel, AVX512).axis == "j"


# ---- planted bugs
def one_further(shuffle):
    return lambda self, x, y, picks: shuffle(self, x, y, [*picks[1:], picks[0]])


def the_first_of_both(shuffle):
    return lambda self, x, y, picks: shuffle(self, x, y, [pick % self.lanes for pick in picks])


@pytest.mark.parametrize("bug", [one_further, the_first_of_both], ids=lambda bug: bug.__name__)
def test_the_comparison_sees(bug, monkeypatch):
    monkeypatch.setattr(memory.Memory, "shuffle", bug(memory.Memory.shuffle))
    for kernel in (take(2, 32, "f32"), put(2, 32, "f32")):  # whole vectors: no mask is shuffled
        want, got = run(kernel, LEVELS_HERE[0])
        assert not np.array_equal(got, want)
