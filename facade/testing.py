"""Answer `torch.testing`: whether what was computed is what was expected, and if not, how far off it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from warnings import warn

import numpy as np

from ..ir.dtypes import DType, complex128, float64, promote
from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Tensor, as_tensor, no_grad

__all__ = ["assert_allclose", "assert_close"]

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
