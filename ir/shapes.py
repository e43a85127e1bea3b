"""Rules of shape and dtype that many ops share: broadcasting, promotion, dims, reshaping, conv sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

from .dims import Dim, at_least, same
from .dtypes import DType, category_at_least, default_dtype, of_scalar, promote
from .errors import ArgumentError, DeviceError, DimError, ShapeError
from .types import CPU, Device, Shape, Type


def broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    """The common shape under NumPy's rule.  Raises ShapeError naming the dimension that disagrees.

    Only a dimension written 1 stretches: a symbol is taken not to be 1, or to meet its equal (a condition).
    """
    rank = max(map(len, shapes))
    known = all(type(n) is int for shape in shapes for n in shape)  # of symbols it isn't asked
    if known and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    result: list[Any] = [1] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            if is_one(result[d]):
                result[d] = size
            elif not is_one(size) and not same(result[d], size):
                spelled = " and ".join(str(list(s)) for s in shapes)
                raise ShapeError(
                    f"{op}: sizes {result[d]} and {size} of dimension {d - rank} don't broadcast",
                    f"shapes {spelled}: a dimension must be equal, 1 or missing",
                )
            elif isinstance(size, int) and size != 1:
                result[d] = size  # a symbol that must equal it: the number says more
    return tuple(result)


def is_one(size: Any) -> bool:
    """Whether a size is written 1: of a symbol, which may be, it isn't asked."""
    return isinstance(size, int) and size == 1


def fitting(from_shape: Shape, to_shape: Shape) -> None | tuple[tuple[int, ...], Shape]:
    """How a cotangent goes back to an operand that was broadcast: None as it is, else (dims, shape).

    Sum over `dims` and reshape to `shape`: [8,3,5] to [3,1] is ((0, 2), (3, 1)).  Without dims the cotangent
    is the smaller one and is expanded to `shape`.
    """
    if from_shape is to_shape:
        return None
    extra = len(from_shape) - len(to_shape)
    pairs = list(
        enumerate(zip(from_shape[max(extra, 0) :], to_shape[max(-extra, 0) :], strict=True), max(extra, 0))
    )
    dims = tuple(range(extra)) + tuple(d for d, (a, b) in pairs if is_one(b) and not is_one(a))
    grows = extra < 0 or any(is_one(a) and not is_one(b) for _, (a, b) in pairs)
    return (dims, to_shape) if dims or grows else None


def result_dtype(*types: Type) -> DType:
    """The promoted dtype.  A 0-d operand counts only where its category is higher than that of the others."""
    if len({t.dtype for t in types}) == 1:
        return types[0].dtype
    sized = scalar = None
    for t in types:
        if t.ndim:
            sized = t.dtype if sized is None else promote(sized, t.dtype)
        else:
            scalar = t.dtype if scalar is None else promote(scalar, t.dtype)
    if sized is None or scalar is None:
        found = sized or scalar
        assert found is not None, "an op without operands has no promoted dtype"
        return found
    if category_at_least(sized, scalar.category):
        return sized
    # Of floats with dimensions the width stays, that of what is 0-d only counts beside integers.
    return sized.to_complex() if sized.is_floating_point else promote(sized, scalar)


def scalar_dtype(dtype: DType, value: bool | int | float | complex) -> DType:
    """The dtype of a Python number beside a tensor of `dtype`: that one, unless its category is too low.

    i64 with 2.5 is the default float, bool with 2 is i64, f16 with any real number stays f16; f64 with 1j is
    c128.
    """
    own = of_scalar(value)
    if category_at_least(dtype, own.category):
        return dtype
    return dtype.to_complex() if dtype.is_floating_point else own


def number_dtype(value: bool | int | float | complex, *beside: Type, compared: bool = False) -> DType:
    """The dtype in which a Python number is held beside operands of these types.

    That of `scalar_dtype`; but float32 beside halves, which are computed in float32: 0.999 would be 1 in
    bfloat16.  A 0-d float32 operand does not widen the result where a half with dimensions is there.

    compared: with halves that were rounded as they were stored, so the number is as well: 0.1 is their 0.1.
    """
    dtype = scalar_dtype(result_dtype(*beside), value)
    sized = [t for t in beside if t.ndim]
    return dtype.compute if not compared and sized and result_dtype(*sized) is dtype else dtype


def float_dtype(*types: Type) -> DType:
    """The promoted dtype, or the default floating one where that is an integer or bool."""
    dtype = result_dtype(*types)
    return dtype if dtype.inexact else default_dtype()


def common_device(op: str, *types: Type | None) -> Device:
    """The device of all operands.  A 0-d CPU operand goes with any.  Raises DeviceError."""
    if all([t is None or t.device is CPU for t in types]):
        return CPU
    device = None
    for t in types:
        if t is None or (device is not None and t.ndim == 0 and t.device == CPU):
            continue
        if device is None or (device == CPU and t.device != CPU):
            device = t.device
        elif t.device != device:
            raise DeviceError(f"{op}: operands on {device} and {t.device}", f"move one: x.to('{device}')")
    return device or CPU


def apart(name: str, one: Device, other: Device) -> DeviceError:
    """The error of a call whose tensors are in two places."""
    return DeviceError(
        f"{name}: Expected all tensors to be on the same device, but found at least two devices, "
        f"{one} and {other}!",
        f"x.to('{one}') moves one",
    )


def check_together(name: str, input: Any, other: Any) -> None:
    """Raise DeviceError where one of two tensors is on a GPU and the other is not there; arrays pass."""
    one, two = getattr(input, "device", None), getattr(other, "device", None)
    if isinstance(one, Device) and isinstance(two, Device) and one != two and "cuda" in (one.type, two.type):
        raise apart(name, one, two)


def dim_of(op: str, dim: int, ndim: int) -> int:
    """A dimension counted from the front (0-d operands have 0 and -1).  Raises DimError, ArgumentError."""
    if type(dim) is not int:
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise ArgumentError(f"{op}: dim must be an int, not {type(dim).__name__}")
        dim = dim.__index__()
    rank = ndim or 1
    if not -rank <= dim < rank:
        raise DimError(
            f"{op}: Dimension out of range: dim {dim} is not in [{-rank}, {rank - 1}], for {ndim} dimensions"
        )
    return dim % rank


def dims_of(op: str, dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the front, ascending; all for None or ().  Raises ShapeError if one repeats."""
    if dim is None:
        return tuple(range(ndim))
    if isinstance(dim, (tuple, list)):
        if not dim:
            return tuple(range(ndim))
        found = sorted(dim_of(op, d, ndim) for d in dim)
        for a, b in zip(found, found[1:], strict=False):
            if a == b:
                raise ShapeError(f"{op}: dim {a} appears multiple times in the list of dims {tuple(dim)}")
        return tuple(found) if ndim else ()
    return (dim_of(op, dim, ndim),) if ndim else (dim_of(op, dim, ndim),) * 0


def reduced_shape(shape: Shape, dims: tuple[int, ...], keepdim: bool) -> Shape:
    """The shape after a reduction over `dims`."""
    if keepdim:
        return tuple(1 if d in dims else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in dims)


def sizes_of(op: str, sizes: tuple) -> tuple:
    """The sizes in a call spelled f(2, 3), f((2, 3)) or f([2, 3])."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    found = []
    for n in sizes:
        try:
            found.append(n if isinstance(n, int) or hasattr(n, "terms") else index(n))
        except TypeError:
            raise ArgumentError(f"{op}: sizes must be ints, not {type(n).__name__} ({n!r})") from None
    return tuple(found)


def filled_in(op: str, shape: Shape, sizes: tuple) -> Shape:
    """`sizes` with its -1 computed so that it holds as many elements as `shape`.  Raises ShapeError."""
    if -1 in sizes:
        at = sizes.index(-1)
        if -1 in sizes[at + 1 :]:
            raise ShapeError(f"{op}: only one size can be -1, in {list(sizes)}")
        total, rest = prod(shape), prod(sizes[:at] + sizes[at + 1 :])
        left = rest and total % rest
        if rest == 0 and same(total, 0):
            raise ShapeError(
                f"{op}: no elements can have the shape {list(sizes)}, because the unspecified dimension size "
                "-1 can be any value and is ambiguous"
            )
        if rest == 0 or (isinstance(left, int) and left):
            raise ShapeError(
                f"{op}: shape '{list(sizes)}' is invalid for input of size {total} (of shape {list(shape)})"
            )
        sizes = (*sizes[:at], total // rest, *sizes[at + 1 :])
    for n in sizes:
        if not at_least(n, 0):
            raise ShapeError(f"{op}: a size can't be negative: {list(sizes)}")
    if not same(prod(sizes), prod(shape)):
        raise ShapeError(
            f"{op}: shape '{list(sizes)}' is invalid for input of size {prod(shape)} "
            f"(of shape {list(shape)}): it holds {prod(sizes)} elements"
        )
    return sizes


def as_whole(value: Any) -> int | Dim | None:
    """The int that `value` stands for, one of NumPy's or a tensor of one element too; None if for none."""
    if isinstance(value, (int, Dim)):
        return value
    try:
        return index(value)
    except TypeError:
        return None


def pair(op: str, name: str, value: int | Sequence[int], n: int = 2) -> tuple[int, ...]:
    """An argument given once for all `n` spatial dimensions, or once for each."""
    if not isinstance(value, (tuple, list)):
        value = (value,)
    values: tuple[Any, ...] = tuple(v for v in map(as_whole, value) if v is not None)
    if len(values) != len(value) or len(values) not in (1, n):
        value = value[0] if len(value) == 1 else value
        raise ArgumentError(f"{op}: {name} must either be a single int or {n} ints, not {value!r}")
    return values * n if len(values) == 1 else values
