"""Answer `torch.testing`: whether what was computed is what was expected, and if not, how far off it is.

And tensors to try things with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from warnings import warn

import numpy as np

from ..ir.dtypes import DType, complex128, float32, float64, promote
from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Tensor, as_tensor, no_grad, ops, random
from .names import finfo, iinfo

__all__ = ["assert_allclose", "assert_close", "make_tensor"]

# (relative, absolute) by the name of a dtype; what is not here must be equal.
_TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


_ONCE = {"float16": (1e-3, 1e-3), "float32": (1e-4, 1e-5), "float64": (1e-5, 1e-8)}


class _Checks:
    """What two things must agree in, as `assert_close` was told."""

    def __init__(self, allow_subclasses: bool, rtol: float | None, atol: float | None, **checked: bool):
        if (rtol is None) != (atol is None):
            raise ArgumentValueError(
                "assert_close: rtol and atol must both be specified or both be unspecified, but got no "
                + ("rtol" if rtol is None else "atol")
            )
        self.allow_subclasses, self.tolerances = allow_subclasses, None if rtol is None else (rtol, atol)
        self.equal_nan = checked.pop("equal_nan")
        self.checked = checked

    def allowed(self, *dtypes: DType) -> tuple[float, float]:
        """The relative and the absolute difference that is let pass."""
        if self.tolerances is not None:
            return self.tolerances  # type: ignore[return-value]
        known = [_TOLERANCES.get(dtype.name, (0.0, 0.0)) for dtype in dtypes]
        return max(rtol for rtol, _ in known), max(atol for _, atol in known)


def assert_close(
    actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
    atol: float | None = None, equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True,
    check_layout: bool = True, check_stride: bool = False, msg: str | Callable[[str], str] | None = None,
) -> None:  # fmt: skip
    """Raise AssertionError unless |actual - expected| <= atol + rtol |expected|, and the attributes agree.

    actual, expected: tensors, what tensors are made of (numbers, arrays), or sequences and mappings of these,
    nested alike.  rtol, atol: both or none; by default those of the dtype (1.3e-6 and 1e-5 in float32), 0 of
    integers and bools.  msg: what the error says, or a function of what it would say.
    Raises ArgumentError (a TypeError) for what is no number, ArgumentValueError.
    """
    checks = _Checks(
        allow_subclasses, rtol, atol, equal_nan=equal_nan, device=check_device, dtype=check_dtype,
        layout=check_layout, stride=check_stride,
    )  # fmt: skip
    with no_grad():
        for place, found in _differences(actual, expected, checks, ""):
            said = f"{found}\n\nThe failure occurred for item {place}" if place else found
            raise AssertionError(said if msg is None else msg(said) if callable(msg) else msg)


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True,
    msg: str = "",
) -> None:  # fmt: skip
    """`assert_close` of tensors as it once was: of whatever dtypes, and within more of float32 and float64.

    Deprecated, as in PyTorch: warns with FutureWarning.
    """
    warn("assert_allclose is deprecated: use assert_close", FutureWarning, stacklevel=2)
    actual = actual if isinstance(actual, Tensor) else as_tensor(actual)
    expected = expected if isinstance(expected, Tensor) else as_tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        known = [_ONCE.get(x.dtype.name, (0.0, 0.0)) for x in (actual, expected)]
        rtol, atol = (max(bounds) for bounds in zip(*known, strict=True))
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None
    )


def _differences(actual: Any, expected: Any, checks: _Checks, place: str) -> Iterator[tuple[str, str]]:
    """Each place where two things differ, and how."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            missing, more = (
                sorted(a.keys() - b.keys(), key=str) for a, b in ((expected, actual), (actual, expected))
            )
            yield (
                place,
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {more}",
            )
            return
        for key in expected:
            yield from _differences(actual[key], expected[key], checks, f"{place}[{key!r}]")
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            yield place, f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            return
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            yield from _differences(a, e, checks, f"{place}[{i}]")
    elif actual is None or expected is None:
        if actual is not expected:
            yield place, f"None mismatch: {actual} is not {expected}"
    elif (found := _of_tensors(actual, expected, checks)) is not None:
        yield place, found


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, str | bytes)


def _of_tensors(actual: Any, expected: Any, checks: _Checks) -> str | None:
    if not checks.allow_subclasses and type(actual) is not type(expected):
        return f"The classes do not match: {type(actual)} and {type(expected)}"
    numbers = all(isinstance(x, int | float | complex) for x in (actual, expected))
    if numbers and checks.checked["dtype"] and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    a, e = _tensor(actual), _tensor(expected)
    for name in ("shape", "device", "dtype", "layout"):
        if getattr(a, name) != getattr(e, name) and (name == "shape" or checks.checked[name]):
            values = getattr(a, name), getattr(e, name)
            return f"The values for attribute '{name}' do not match: {values[0]} != {values[1]}."
    if checks.checked["stride"] and a.stride() != e.stride():
        return f"The values for attribute 'stride()' do not match: {a.stride()} != {e.stride()}."
    rtol, atol = checks.allowed(a.dtype, e.dtype)
    common = promote(a.dtype, e.dtype)
    x, y = (_wide(each.to_dense() if each.is_sparse else each, common) for each in (a, e))
    with np.errstate(all="ignore"):
        off = np.asarray(np.abs(x - y))
        within = np.asarray(off <= atol + rtol * np.abs(y), bool)
        if common.inexact:
            within &= np.isfinite(y)
            within |= np.isnan(x) & np.isnan(y) & checks.equal_nan
        close = np.asarray(np.asarray(x == y, bool) | within)
        if close.all():
            return None
        return _told(close, off, np.abs(y), x, y, (rtol, atol))


def _tensor(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x
    wide = float64 if isinstance(x, float) else complex128 if isinstance(x, complex) else None
    try:
        return as_tensor(x, wide)
    except Exception as error:
        raise ArgumentError(
            f"assert_close: No comparison pair was able to handle inputs of type {type(x).__name__}",
        ) from error


def _wide(x: Tensor, dtype: DType) -> np.ndarray:
    """The values, so that differences of integers don't wrap around."""
    array = x.detach().to(dtype).numpy()
    if dtype.category in ("bool", "int"):
        return array.astype(object if dtype.name in ("int64", "uint64") else np.int64)
    return array.astype(np.complex128 if dtype.is_complex else np.float64)


def _told(
    close: np.ndarray, off: np.ndarray, size: np.ndarray, x: np.ndarray, y: np.ndarray,
    allowed: tuple[float, float],
) -> str:  # fmt: skip
    equality = allowed == (0.0, 0.0)
    off = np.asarray(np.where(close, 0, off), np.float64)
    relative = np.where(close, 0, off / np.where(size == 0, np.nan, np.asarray(size, np.float64)))
    relative = np.where(np.isnan(relative) & ~close & (size == 0), np.inf, relative)
    if not close.ndim:
        head = (
            f"Scalars are not {'equal' if equality else 'close'}!\n\nExpected {y.item()} but got {x.item()}."
        )
        parts = [
            (f"Absolute difference: {off.item()}", allowed[1]),
            (f"Relative difference: {relative.item()}", allowed[0]),
        ]
    else:
        wrong = int((~close).sum())
        head = (
            f"Tensor-likes are not {'equal' if equality else 'close'}!\n\n"
            f"Mismatched elements: {wrong} / {close.size} ({100 * wrong / close.size:.1f}%)"
        )
        parts = []
        for name, found, most in (("absolute", off, allowed[1]), ("relative", relative, allowed[0])):
            flat = np.where(close, -1.0, np.where(np.isnan(found), np.inf, found)).ravel()
            at = tuple(int(i) for i in np.unravel_index(int(flat.argmax()), found.shape))
            parts.append((f"Greatest {name} difference: {found[at]} at index {at}", most))
    tail = [text if equality else f"{text} (up to {most} allowed)" for text, most in parts]
    return "\n".join([head, *tail])


# ---- tensors to try things with ----------------------------------------------------------------------------
def make_tensor(
    *shape: Any, dtype: DType, device: Any, low: float | None = None, high: float | None = None,
    requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Draw a tensor uniformly from low ... high, high left out.  Shapes: as of `ones`.

    low, high: by default -9 and 9, of integers -9 and 10, of bools 0 and 2; taken to be in the dtype's range.
    noncontiguous: each second of a row's elements, where there are several elements.  exclude_zero: with the
    dtype's least normal number for 0, or 1.  Raises ArgumentValueError where there is nothing to draw from.
    """
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    if noncontiguous and memory_format is not None:
        raise ArgumentValueError("make_tensor: noncontiguous and memory_format are mutually exclusive")
    if requires_grad and not dtype.inexact:
        raise ArgumentValueError(
            f"make_tensor: `requires_grad=True` is not supported for boolean and integral dtypes, not {dtype}"
        )
    noncontiguous = noncontiguous and math.prod(sizes) > 1
    if noncontiguous:
        sizes = (*sizes[:-1], 2 * sizes[-1])
    low, high = _bounds(dtype, low, high)
    if dtype.inexact:
        made = _uniform(sizes, dtype, device, low, high)
    else:
        made = random.randint(math.ceil(low), math.ceil(high), sizes, dtype=dtype, device=device)
    if noncontiguous:
        made = made[..., 1::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        made.masked_fill_(made == 0, finfo(dtype).tiny if dtype.inexact else 1)
    return made.requires_grad_() if requires_grad else made


def _bounds(dtype: DType, low: float | None, high: float | None) -> tuple[float, float]:
    """What `make_tensor` draws from.  Raises ArgumentValueError."""
    least, most, usual = _RANGES[dtype.category](dtype)
    low, high = (default if x is None else x for x, default in zip((low, high), usual, strict=True))
    if math.isnan(low) or math.isnan(high):
        raise ArgumentValueError(f"make_tensor: `low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and dtype.inexact:
        warn(
            "Passing `low==high` to make_tensor for floating or complex types is deprecated: use full",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise ArgumentValueError(f"make_tensor: `low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= most:
        raise ArgumentValueError(
            f"make_tensor: The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} "
            f"only supports [{least}, {most})"
        )
    return min(max(low, least), most), min(max(high, least), most)


def _of_integers(dtype: DType) -> tuple[int, int, tuple[int, int]]:
    # one more than the greatest, which int64 and uint64 can't say
    return iinfo(dtype).min, iinfo(dtype).max + (dtype.itemsize < 8), (-9, 10)


def _of_floats(dtype: DType) -> tuple[float, float, tuple[float, float]]:
    return finfo(dtype).min, finfo(dtype).max, (-9, 9)


# By the category of a dtype: the least, the end, and what is drawn from by default.
_RANGES: dict[str, Callable] = {
    "bool": lambda dtype: (0, 2, (0, 2)), "int": _of_integers, "float": _of_floats, "complex": _of_floats,
}  # fmt: skip


def _uniform(sizes: tuple[int, ...], dtype: DType, device: Any, low: float, high: float) -> Tensor:
    if dtype.storage:  # which nothing is drawn in
        return _uniform(sizes, float32, device, low, high).to(dtype)
    made = ops.empty(sizes, dtype=dtype, device=device)
    parts = ops.view_as_real(made) if dtype.is_complex else made
    if high - low >= finfo(dtype).max:  # drawn in halves: the width is no number of the dtype
        parts.uniform_(low / 2, high / 2).mul_(2)
    else:
        parts.uniform_(low, high)
    return made
