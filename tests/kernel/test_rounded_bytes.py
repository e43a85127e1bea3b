"""Floats rounded and cut to bytes: one conversion gives what the rounding, the step and both cuts give."""

from dataclasses import replace

import numpy as np
import pytest
from native import Native, call_of, each_level

from lamina.ir.kernel import NUMPY, parse
from lamina.ir.kernel.interpret import interpret
from lamina.passes.kernels.rounded_bytes import RoundedByte, rounded_byte
from lamina.passes.llvm.generate import code_of
from lamina.passes.schedules.steps import Scalar, Schedule, Vectorise

CASES = [
    ("u8", 0, 255, 0),
    ("u8", 0, 255, 133),
    ("u8", 3, 200, 0),
    ("i8", -128, 127, 0),
    ("i8", -127, 127, 0),
]
OTHERS = [("u8", 3, 200, 7), ("i8", -128, 127, 5)]  # where a NaN would be another byte


def kernel(dtype: str, low: int, high: int, zero: int, value: str = "(round(x[i]) + f32({}))"):
    """y[i] = x[i], rounded and cut."""
    value = value.format(float(zero))
    return parse(
        f"kernel cut(x: f32[48]) -> (y: {dtype}[48]) {{\n"
        "  parallel i:48\n"
        f"  y[i] = {dtype}(min(f32({float(high)}), max(f32({float(low)}), {value})))\n"
        "}"
    )


def numbers() -> list[np.ndarray]:
    """Ties, neighbours of ties and of bounds, what no i32 holds, and what is no number."""
    near = np.arange(-300, 300, 0.5, dtype=np.float32)
    odd = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 2**31, -(2**31), 2.0**31 - 128, 1e30, -1e30]
    every = np.concatenate(
        [
            np.float32(odd),
            near,
            np.nextafter(near, np.float32(np.inf)),
            np.nextafter(near, np.float32(-np.inf)),
        ]
    )
    return list(np.resize(every, (-(-every.size // 48), 48)))


@each_level
@pytest.mark.parametrize("dtype, low, high, zero", CASES + OTHERS)
@pytest.mark.parametrize("vectors", [True, False])
def test_bytes_are_those_of_a_rounding_and_two_cuts(dtype, low, high, zero, vectors, target):
    made = kernel(dtype, low, high, zero)
    how = Schedule(Vectorise("i")) if vectors else Schedule(Scalar())
    code, plain = (code_of(call_of(made, how), t) for t in (target, replace(target, rounds={})))
    (at_once,) = [name for lanes, name in target.rounds.items() if lanes == target.lanes]
    assert (at_once in code.text) == (vectors and (dtype, low, high, zero) in CASES)
    assert at_once not in plain.text
    by_one, by_many = Native(code, target), Native(plain, target)
    for x in numbers():
        y, want = np.empty(48, NUMPY[dtype]), np.empty(48, NUMPY[dtype])
        by_one(x, y)
        by_many(x, want)
        assert np.array_equal(y, want), (x[y != want], y[y != want], want[y != want])
        finite = np.isfinite(x)  # what NumPy makes of others is the processor's
        (reference,) = interpret(made, np.where(finite, x, 0).astype(np.float32))
        assert np.array_equal(y[finite], reference[finite])


def found(dtype: str, value: str) -> RoundedByte | None:
    made = parse(f"kernel k(x: f32[48]) -> (y: {dtype}[48]) {{\n  parallel i:48\n  y[i] = {value}\n}}")
    return rounded_byte(made.stages[-1].value)


@pytest.mark.parametrize(
    "value, low, high, zero",
    [
        ("u8(min(f32(255.0), max(f32(0.0), (round(x[i]) + f32(3.0)))))", 0, 255, 3),
        ("u8(max(min((f32(3.0) + round(x[i])), f32(200.0)), f32(5.0)))", 5, 200, 3),
        ("u8(min(f32(255.0), max(f32(0.0), round(x[i]))))", 0, 255, 0),
    ],
)
def test_what_is_a_rounded_byte(value, low, high, zero):
    byte = found("u8", value)
    assert byte is not None and (byte.low, byte.high, byte.zero, byte.dtype) == (low, high, zero, "u8")
    assert str(byte.value) == "x[i]"


@pytest.mark.parametrize(
    "dtype, value",
    [
        ("u8", "u8(min(f32(255.0), (round(x[i]) + f32(3.0))))"),  # too small ones wrap
        ("u8", "u8(max(f32(0.0), round(x[i])))"),
        ("u8", "u8(min(f32(255.0), max(f32(0.0), x[i])))"),  # is cut towards zero
        ("u8", "u8(min(f32(255.0), max(f32(0.0), (round(x[i]) + f32(0.5)))))"),
        ("u8", "u8(min(f32(254.5), max(f32(0.0), round(x[i]))))"),
        ("u8", "u8(min(f32(0.0), max(f32(255.0), round(x[i]))))"),  # all are 0
        ("u8", "u8(min(f32(255.0), min(f32(20.0), round(x[i]))))"),
        ("u8", "u8(min(f32(255.0), max(x[i], round(x[i]))))"),
        ("u8", "u8(min(f32(1e30), max(f32(0.0), round(x[i]))))"),
        ("i32", "i32(min(f32(255.0), max(f32(0.0), round(x[i]))))"),
    ],
)
def test_what_is_none(dtype, value):
    assert found(dtype, value) is None
