"""The element types, how NumPy stores them, and how two of them promote.

Source of the promotion rules: PyTorch's "Type promotion", which ranks categories (bool, integer, floating)
before widths and lets 0-d tensors and Python numbers only raise the category.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes  # a C extension of 2 MB, as NumPy itself has no bfloat16
import numpy as np

from .errors import ArgumentError, DTypeError

namespace = "lamina"  # what a dtype, a size and a layout print before their names


_written_in: dict[int, str] = {}  # classes that tell another module, by their identity


def known_as(name: str, classes: dict[type, str]) -> None:
    """Have what a program that imports Lamina by another name sees of it tell that name.

    Dtypes, sizes and layouts print it, and `classes` tell these modules.  Programs take such texts apart:
    `str(x.dtype).removeprefix("torch.")` is NumPy's name of a type, and the first part of the module of an
    array's class is the library whose functions take it (opt_einsum, autoray).
    """
    global namespace
    namespace = name
    for kind, module in classes.items():
        _written_in.setdefault(id(kind), kind.__module__)
        kind.__module__ = module


def home_of(kind: type) -> str:
    """The module that a class was written in, whatever it tells programs."""
    return _written_in.get(id(kind)) or kind.__module__


class DType:
    """An element type.  There is exactly one object for each, so `is` compares them."""

    __slots__ = ("name", "short", "numpy", "category", "itemsize", "compute", "inexact", "traced", "storage")

    def __init__(self, name: str, short: str, numpy: np.dtype, category: str):
        self.name, self.short, self.numpy, self.category = name, short, numpy, category
        self.itemsize = numpy.itemsize
        self.inexact = category in ("float", "complex")  # stands for real or complex numbers: has gradients
        # Halves are storage types: sums and products of them are taken in float32, and rounded once after.
        self.compute = self
        self.traced = False  # whether graphs and kernels hold it; eager's tensors hold all
        self.storage = False  # whether it is held, moved and converted, and nothing is computed in it

    @property
    def is_floating_point(self) -> bool:
        return self.category == "float"

    @property
    def is_complex(self) -> bool:
        return self.category == "complex"

    @property
    def is_signed(self) -> bool:
        return self.name not in ("bool", "float8_e8m0fnu") and self not in UNSIGNED

    @property
    def scalar_type(self) -> str:
        """What PyTorch's messages call it: Long, Float, ComplexDouble."""
        return _SCALAR_TYPES.get(self.name) or self.name.replace("uint", "UInt").replace("float8", "Float8")

    def refused(self, op: str, *remedy: str) -> DTypeError:
        """The error of an op that does not take this type."""
        rule = f"{op}: does not take {self.name}: not implemented for {self.scalar_type!r}"
        return DTypeError(rule, *remedy)

    def to_real(self) -> DType:
        """The element type of a complex type's parts; any other type itself."""
        return _PARTS.get(self, self)

    def to_complex(self) -> DType:
        """The complex type whose parts hold this one; complex64 for halves, as there is none of 32 bits.

        Raises DTypeError for integers and bools.
        """
        if not self.inexact:
            raise DTypeError(f"to_complex(): {self.name} has no complex type", "convert first: x.float()")
        return self if self.is_complex else complex128 if self is float64 else complex64

    def __repr__(self) -> str:
        return f"{namespace}.{self.name}"

    def __reduce__(self):
        return (dtype_named, (self.name,))


_SCALAR_TYPES = {
    "float64": "Double", "float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long",
    "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip

float64 = DType("float64", "f64", np.dtype(np.float64), "float")
float32 = DType("float32", "f32", np.dtype(np.float32), "float")
float16 = DType("float16", "f16", np.dtype(np.float16), "float")
bfloat16 = DType("bfloat16", "bf16", np.dtype(ml_dtypes.bfloat16), "float")
int64 = DType("int64", "i64", np.dtype(np.int64), "int")
int32 = DType("int32", "i32", np.dtype(np.int32), "int")
int16 = DType("int16", "i16", np.dtype(np.int16), "int")
int8 = DType("int8", "i8", np.dtype(np.int8), "int")
uint8 = DType("uint8", "u8", np.dtype(np.uint8), "int")
uint16 = DType("uint16", "u16", np.dtype(np.uint16), "int")
uint32 = DType("uint32", "u32", np.dtype(np.uint32), "int")
uint64 = DType("uint64", "u64", np.dtype(np.uint64), "int")
bool_ = DType("bool", "bool", np.dtype(np.bool_), "bool")
float8_e4m3fn = DType("float8_e4m3fn", "f8_e4m3", np.dtype(ml_dtypes.float8_e4m3fn), "float")
float8_e5m2 = DType("float8_e5m2", "f8_e5m2", np.dtype(ml_dtypes.float8_e5m2), "float")
float8_e4m3fnuz = DType("float8_e4m3fnuz", "f8_e4m3fnuz", np.dtype(ml_dtypes.float8_e4m3fnuz), "float")
float8_e5m2fnuz = DType("float8_e5m2fnuz", "f8_e5m2fnuz", np.dtype(ml_dtypes.float8_e5m2fnuz), "float")
float8_e8m0fnu = DType("float8_e8m0fnu", "f8_e8m0", np.dtype(ml_dtypes.float8_e8m0fnu), "float")
complex128 = DType("complex128", "c128", np.dtype(np.complex128), "complex")
complex64 = DType("complex64", "c64", np.dtype(np.complex64), "complex")
FLOAT8 = (float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu)
for _narrow in (float16, bfloat16, *FLOAT8):
    _narrow.compute = float32
for _stored in FLOAT8:
    _stored.storage = True
_PARTS = {complex128: float64, complex64: float32}

ALL = (float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool_)  # what kernels know
FLOATS = (float64, float32, float16, bfloat16)
INTEGERS = (int64, int32, int16, int8, uint8)
COMPLEX = (complex128, complex64)
UNSIGNED = (uint8, uint16, uint32, uint64)
EVERY = ALL + COMPLEX + UNSIGNED[1:] + FLOAT8  # what tensors hold
for _kernels_know in ALL:
    _kernels_know.traced = True

NAMES = frozenset(d.name for d in EVERY)
_by_name = {d.name: d for d in EVERY} | {d.short: d for d in EVERY}
_by_numpy = {d.numpy: d for d in EVERY}
_RANK = {"bool": 0, "int": 1, "float": 2, "complex": 3}


def dtype_named(name: str) -> DType:
    """The element type of a long (float32) or short (f32) name.  Raises KeyError."""
    return _by_name[name]


def from_numpy_dtype(dtype: np.dtype) -> DType | None:
    """The element type that NumPy's `dtype` stores; None where Lamina has none (objects, strings)."""
    return _by_numpy.get(dtype) or _by_numpy.get(dtype.newbyteorder("="))


_PYTHONS: dict[Any, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}


def as_dtype(x: Any) -> DType | None:
    """The element type that `x` is, or that it stands for as a class of Python's numbers; None for others."""
    return x if isinstance(x, DType) else _PYTHONS.get(x) if isinstance(x, type) else None


def of_scalar(value: bool | int | float | complex) -> DType:
    """The element type a Python number takes where no tensor says otherwise."""
    if isinstance(value, complex):
        return default_dtype().to_complex()
    return bool_ if isinstance(value, bool) else int64 if isinstance(value, int) else default_dtype()


_default = float32
on_default_change: list[Callable[[], None]] = []  # who remembers what was inferred forgets it in one of these


def default_dtype() -> DType:
    """The element type of a Python float, float32 until `set_default_dtype` says otherwise."""
    return _default


def set_default_dtype(dtype: DType) -> None:
    """Make `dtype` the element type of new floating tensors.  Raises ArgumentError for any other."""
    global _default
    if not isinstance(dtype, DType) or dtype.category != "float" or dtype.storage:
        shown = dtype if isinstance(dtype, DType) else f"a {type(dtype).__name__}"
        raise ArgumentError(f"set_default_dtype(dtype): a floating dtype is needed, not {shown}")
    _default = dtype
    for forget in on_default_change:
        forget()


def promote(a: DType, b: DType) -> DType:
    """The element type that holds both.

    Categories win over widths (int64 with float16 is float16), but float64 with complex64 is complex128;
    an unsigned type with a signed one takes the next signed one that holds both; float16 with bfloat16 is
    float32.  Raises DTypeError for uint64 with a signed type, and for float8 with another.
    """
    if a is b:
        return a
    if a.storage or b.storage:
        raise DTypeError(
            f"Promotion for Float8 Types is not supported: there is no type for {a.name} with {b.name}",
            "convert: x.float()",
        )
    if a.category != b.category:
        if float64 in (a, b) and complex64 in (a, b):
            return complex128
        return a if _RANK[a.category] > _RANK[b.category] else b
    if a.category == "float":
        return float32 if {a, b} == {float16, bfloat16} else a if a.itemsize > b.itemsize else b
    if a.is_signed is b.is_signed or a.category != "int":
        return a if a.itemsize > b.itemsize else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    if unsigned is uint64:
        raise DTypeError(
            f"no integer type holds both {a.name} and {b.name}",
            "convert one: x.long(), or x.to(lamina.uint64)",
        )
    return {1: int16, 2: int32, 4: int64}[unsigned.itemsize]


def category_at_least(dtype: DType, category: str) -> bool:
    """Whether `dtype` stands at or above `category` in bool < int < float < complex."""
    return _RANK[dtype.category] >= _RANK[category]


def _narrowed(dtype: DType) -> Callable[[np.ndarray], np.ndarray]:
    """What makes a copy of an array in a float8 type, rounded and saturated as PyTorch does it.

    All are reached by way of float32.  float8_e4m3fn has no infinity: what is too large becomes its largest,
    NaN stays NaN.  float8_e8m0fnu has neither sign nor zero: it holds magnitudes, 0 as the smallest of them.
    Source: PyTorch 2.13's conversions, compared by bits (tests/peers); the rounding is that of ml_dtypes.
    """

    def narrow(array: np.ndarray) -> np.ndarray:
        wide = converted(array, np.dtype(np.float32))
        if dtype is float8_e4m3fn:
            wide = np.clip(wide, -448, 448)
        elif dtype is float8_e8m0fnu:
            wide = np.abs(wide)
        made = np.asarray(wide).astype(dtype.numpy)
        if dtype is float8_e5m2:
            made.view(np.uint8)[np.isnan(wide)] |= 0x7F
        elif dtype is float8_e8m0fnu:
            made.view(np.uint8)[wide == 0] = 0
        return made

    return narrow


_NARROW = {d.numpy: _narrowed(d) for d in FLOAT8}


def converter(dtype: np.dtype, source: np.dtype) -> Callable[[np.ndarray], np.ndarray] | None:
    """What makes a copy of an array of `source` in `dtype`, where NumPy's `astype` does not do as it should.

    Since ml_dtypes 0.7 what is out of an integer's range becomes 0, as from no other type, and in no kernel.
    """
    if dtype.kind in "iu" and (source in _NARROW or source == bfloat16.numpy):
        return lambda array: converted(array, np.dtype(np.float32)).astype(dtype)
    return _NARROW.get(dtype)


def over(array: np.ndarray, shape: tuple, strides: tuple, writeable: bool = True) -> np.ndarray:
    """NumPy's `as_strided`, for every element type: it goes by texts, and "<f1" of float8_e5m2 is none."""
    plain = array.view(f"u{array.itemsize}") if array.dtype in _NARROW else array
    return np.lib.stride_tricks.as_strided(plain, shape, strides, writeable=writeable).view(array.dtype)


def dense(array: np.ndarray) -> np.ndarray:
    """The array, or where a stride is 0 one without values that has the strides of a copy of it.

    NumPy's copies take a stride of 0 for the smallest, which would put the dimension that `expand` added
    innermost.  It says nothing of an order: the iterator leaves such a dimension where it stands.
    """
    if 0 not in array.strides:
        return array
    operands = np.nditer([array, None], ["zerosize_ok"], [["readonly"], ["writeonly", "allocate"]]).operands
    return operands[1]


def number_array(value: bool | int | float | complex, dtype: DType) -> np.ndarray:
    """A Python number as a 0-d array; beyond the largest half it is infinite.  Raises OverflowError."""
    if dtype.compute is dtype:
        return np.asarray(value, dtype.numpy)
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype.compute.numpy).astype(dtype.numpy)


def converted(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy of `array` in `dtype`, which Lamina knows."""
    convert = converter(dtype, array.dtype)
    if convert is not None:
        return convert(array)
    if (like := dense(array)) is array:
        return array.astype(dtype)
    made = np.empty_like(like, dtype)
    np.copyto(made, array, "unsafe")
    return made
