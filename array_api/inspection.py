"""What the namespace offers, and the standard's functions about element types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..ir.dtypes import DType, default_dtype, int64
from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError
from ..ir.types import CPU, RANK, Device
from ..runtime import Tensor
from .kinds import KINDS, NUMBERS, cast, of_number, on_device, promoted, tensor_in

PUBLIC = (
    "bool",
    "signed integer",
    "unsigned integer",
    "real floating",
    "complex floating",
    "integral",
    "numeric",
)


class Info:
    """What `__array_namespace_info__` returns."""

    @staticmethod
    def capabilities() -> dict[str, Any]:
        """Boolean indexing and shapes that depend on data are served; dimensions are limited by NumPy."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": RANK}

    @staticmethod
    def default_device() -> Device:
        """The CPU."""
        return CPU

    @staticmethod
    def devices() -> list[Device]:
        """The CPU alone: eager runs nowhere else."""
        return [CPU]

    @staticmethod
    def default_dtypes(*, device: Any = None) -> dict[str, DType]:
        """The element types of Python's numbers, and of indices."""
        on_device(device)
        floating = default_dtype()
        return {
            "real floating": floating, "complex floating": floating.to_complex(), "integral": int64,
            "indexing": int64,
        }  # fmt: skip

    @staticmethod
    def dtypes(*, device: Any = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
        """The standard's element types by name; of one kind, or of several."""
        on_device(device)
        if kind is None:
            kind = ("bool", "numeric")
        kinds = kind if isinstance(kind, tuple) else (kind,)
        odd = [k for k in kinds if k not in PUBLIC]
        if odd:
            raise ArgumentValueError(f"dtypes(kind): no kind {odd[0]!r}", f"known: {', '.join(PUBLIC)}")
        return {dtype.name: dtype for k in kinds for dtype in KINDS[k]}


def __array_namespace_info__() -> Info:
    """What this namespace offers: devices, element types, capabilities."""
    return Info()


def astype(x, dtype, /, *, copy=True, device=None):
    """The tensor in another element type.  Raises DTypeError from a complex to a real one."""
    on_device(device)
    if not isinstance(dtype, DType):
        raise ArgumentError(f"astype(dtype): takes an element type, not {dtype!r}")
    if tensor_in("astype", x).is_complex() and not dtype.is_complex and dtype.category != "bool":
        raise DTypeError(f"astype: {x.dtype.name} has parts, {dtype.name} has none", "array_api.real(x)")
    found = cast(x, dtype)
    return x.clone() if copy and found is x else found


def can_cast(from_, to, /):
    """Whether an element type, or a tensor's, is promoted to another by the standard's rules."""
    dtype = from_.dtype if isinstance(from_, Tensor) else from_
    if not isinstance(dtype, DType) or not isinstance(to, DType):
        raise ArgumentError("can_cast(from_, to): takes a tensor or an element type, and an element type")
    try:
        return promoted("can_cast", dtype, to) is to
    except DTypeError:
        return False


@dataclass(frozen=True)
class FloatLimits:
    """What `finfo` returns."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerLimits:
    """What `iinfo` returns."""

    bits: int
    max: int
    min: int
    dtype: DType


def _type_in(name: str, given: Any, kind: str) -> DType:
    dtype = given.dtype if isinstance(given, Tensor) else given
    if not isinstance(dtype, DType) or dtype not in KINDS[kind]:
        raise DTypeError(f"{name}: takes {kind} types, not {dtype!r}")
    return dtype


def finfo(type, /):
    """The limits of a floating element type, or of a complex one's parts."""
    dtype = _type_in("finfo", type, "floating").to_real()
    found = ml_dtypes.finfo(dtype.numpy)
    bits, eps = dtype.itemsize * 8, float(found.eps)
    return FloatLimits(bits, eps, float(found.max), float(found.min), float(found.smallest_normal), dtype)


def iinfo(type, /):
    """The limits of an integer element type."""
    dtype = _type_in("iinfo", type, "integral")
    found = np.iinfo(dtype.numpy)
    return IntegerLimits(dtype.itemsize * 8, int(found.max), int(found.min), dtype)


def isdtype(dtype, kind):
    """Whether an element type is another, or of a kind, or one of several of these."""
    for k in kind if isinstance(kind, tuple) else (kind,):
        if isinstance(k, str):
            if k not in PUBLIC:
                raise ArgumentValueError(f"isdtype(kind): no kind {k!r}", f"known: {', '.join(PUBLIC)}")
            if dtype in KINDS[k]:
                return True
        elif isinstance(k, DType):
            if k is dtype:
                return True
        else:
            raise ArgumentError(f"isdtype(kind): takes element types and names of kinds, not {k!r}")
    return False


def result_type(*arrays_and_dtypes):
    """The element type of what is computed of these: tensors, element types, Python numbers."""
    known = [x.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes if not isinstance(x, NUMBERS)]
    if not known or not all(isinstance(x, DType) for x in known):
        raise ArgumentError("result_type: takes tensors and element types, and Python numbers beside them")
    dtype = promoted("result_type", *known)
    for x in arrays_and_dtypes:
        if isinstance(x, NUMBERS):
            dtype = of_number("result_type", x, dtype)
    return dtype
