"""The standard's kinds of element types, its promotion, and what a function takes.

Strict: what the standard leaves undefined is refused.  Integers don't mix with floats, bool with nothing, and
a 0-d tensor counts like any other, which is where these functions differ from the operators of tensors: those
are PyTorch's.  Source: the array API standard 2024.12, "Type Promotion Rules" and "Data Types".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..ir import dtypes
from ..ir.dtypes import DType
from ..ir.errors import ArgumentError, DTypeError
from ..ir.types import CPU, Device
from ..runtime import Tensor, ops
from ..runtime.conversion import require_cpu

# The standard's own element types, by kind, in the order in which they are listed.
KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (dtypes.bool_,),
    "signed integer": (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    "unsigned integer": dtypes.UNSIGNED,
    "real floating": (dtypes.float32, dtypes.float64),
    "complex floating": dtypes.COMPLEX[::-1],
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]
KINDS["real"] = KINDS["integral"] + KINDS["real floating"]  # the standard's "real-valued"
KINDS["floating"] = KINDS["real floating"] + KINDS["complex floating"]
KINDS["integral or bool"] = KINDS["integral"] + KINDS["bool"]
KINDS["all"] = KINDS["numeric"] + KINDS["bool"]

NUMBERS = (bool, int, float, complex)
_LEVEL = {"bool": 0, "int": 1, "float": 2, "complex": 3}


def promoted(name: str, first: DType, *others: DType) -> DType:
    """The element type that holds all of these.  Raises DTypeError where the standard defines none."""
    found = first
    for dtype in others:
        mixed = {found.category, dtype.category}
        if len(mixed) > 1 and mixed != {"float", "complex"}:
            raise DTypeError(
                f"{name}: the array API standard promotes no {found.name} with {dtype.name}",
                f"convert one: array_api.astype(x, array_api.{found.name})",
            )
        found = dtypes.promote(found, dtype)
    return found


def of_number(name: str, number: Any, dtype: DType) -> DType:
    """The element type of a Python number beside a tensor of `dtype`: that one, if its kind can hold it."""
    level = (
        0 if type(number) is bool else 1 if isinstance(number, int) else 2 if isinstance(number, float) else 3
    )
    held = _LEVEL[dtype.category]
    if (held == 0) is not (level == 0) or level > held:
        if held == 2 and level == 3:
            return dtype.to_complex()
        raise DTypeError(
            f"{name}: a Python {type(number).__name__} does not go with {dtype.name}",
            f"array_api.asarray({number}) is a tensor",
        )
    return dtype


def tensor_in(name: str, x: Any, kind: str = "all") -> Tensor:
    """The tensor, if it is one of that kind.  Raises ArgumentError, DTypeError."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{name}: takes tensors, not {type(x).__name__}", "array_api.asarray makes one")
    if x.dtype not in KINDS[kind]:
        raise DTypeError(f"{name}: the array API standard takes {kind} types, not {x.dtype.name}")
    return x


def cast(x: Tensor, dtype: DType) -> Tensor:
    """The tensor in that element type; itself where it has it."""
    return x if x.dtype is dtype else x.to(dtype)


def together(name: str, operands: Iterable[Any], kind: str) -> list[Tensor]:
    """Tensors and Python numbers as tensors of their promoted type.  Raises ArgumentError, DTypeError."""
    operands = list(operands)
    tensors = [tensor_in(name, x, kind) for x in operands if not isinstance(x, NUMBERS)]
    if not tensors:
        raise ArgumentError(f"{name}: one operand at least must be a tensor", "array_api.asarray makes one")
    dtype = promoted(name, *(x.dtype for x in tensors))
    for x in operands:
        if isinstance(x, NUMBERS):
            dtype = of_number(name, x, dtype)
    return [ops.full((), x, dtype=dtype) if isinstance(x, NUMBERS) else cast(x, dtype) for x in operands]


def unary(name: str, kind: str, function: Callable) -> Callable:
    """A function of one tensor of a kind."""

    def apply(x, /):
        return function(tensor_in(name, x, kind))

    return _named(apply, name, f"`{name}` of each element.  Takes {kind} types.")


def binary(name: str, kind: str, function: Callable) -> Callable:
    """A function of two tensors, or of one and a Python number, in their promoted type."""

    def apply(x1, x2, /):
        return function(*together(name, (x1, x2), kind))

    return _named(apply, name, f"`{name}` of pairs of elements, broadcast and promoted.  Takes {kind} types.")


def _named(function: Callable, name: str, doc: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc + "  Raises ArgumentError, DTypeError."
    return function


def summed_type(x: Tensor, dtype: DType | None) -> DType:
    """What sums and products of many elements are: the default width at least, of the same signedness."""
    if dtype is not None or x.dtype.category != "int":
        return dtype or x.dtype
    return dtypes.int64 if x.dtype.is_signed else dtypes.uint64


def on_device(device: Any) -> Device:
    """The device, of which there is one.  Raises DeviceError."""
    require_cpu(device)
    return CPU
