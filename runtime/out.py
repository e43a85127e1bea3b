"""`out=`: results written into tensors that the caller gave, by one rule for every function.

The function runs as ever, and what it returns is copied over: cast where the function and the category
allow it, resized where the shape is another.  No history goes into or out of it, so a call that wants
gradients is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np

from ..ir.dtypes import DType, category_at_least, uint8
from ..ir.errors import ArgumentError, ArgumentValueError, DeviceError, DTypeError, GradError, InplaceError
from ..ir.op import REGISTRY
from ..ir.shapes import as_whole
from ..ir.types import CPU, type_of
from . import modes
from .changes import advance_objects
from .history import storage_of
from .inplace import check_writable, write
from .levels import Transformed
from .memory_view import memory_of
from .meta import array as nothing
from .ops import publish
from .places import here
from .refusal import refusing, writer_of_out
from .storage import Storage
from .tensor import Tensor, wrap


def into(name: str, function: Callable, args: tuple, kwargs: dict[str, Any], out: Any) -> Any:
    """Call the function and leave its results in `out`: a tensor, or for several results a sequence of them.

    Raises GradError where a gradient would be wanted, DTypeError where a result can't be cast, ArgumentError.
    """
    targets = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    for target in targets:
        if not isinstance(target, Tensor):
            raise ArgumentError(f"{name}(out=…): takes tensors, not {type(target).__name__}")
    if (
        modes.CHANGED
        and modes.local.levels
        and any(isinstance(x, Transformed) for x in (*args, *kwargs.values(), *targets))
    ):
        raise GradError(
            f"{name}(out=…): the out= function does not support tensors that a transform wraps",
            f"write y = {name}(…)",
        )
    if (not modes.CHANGED or modes.is_grad_enabled()) and any(map(_wants, (args, kwargs.values(), targets))):
        raise GradError(
            f"{name}(out=…): results that are written into a tensor have no gradient, and one is wanted",
            f"write y = {name}(…), or call it under no_grad()",
        )
    dtype = kwargs.get("dtype")
    if isinstance(dtype, DType) and name in NORMS:  # in which is computed
        dtype = dtype.to_real()
    if isinstance(dtype, DType) and len(targets) == 1 and targets[0]._meta.dtype is not dtype:
        raise DTypeError(
            f"{name}(out=…): Expected out tensor to have dtype {dtype.name}, but got "
            f"{targets[0]._meta.dtype.name} instead",
            f"out: {targets[0]._meta}",
            f"dtype: {dtype}",
        )
    with modes.no_grad():
        returned = function(*args, **kwargs)
        results = returned if isinstance(returned, tuple) else (returned,)
        if len(results) != len(targets) or isinstance(out, (tuple, list)) != isinstance(returned, tuple):
            raise ArgumentError(f"{name}(out=…): takes {len(results)} tensors, not {len(targets)}")
        for target, result in zip(targets, results, strict=True):
            if name in SPREAD and target._data.size == result._data.size:
                result = result.reshape(target._meta.shape)
            _leave(name, target, result, name in EXACT or len(targets) > 1)
    if not isinstance(returned, tuple):
        return out
    return type(returned)(*targets) if hasattr(returned, "_fields") else targets


def _wants(values: Iterable[Any]) -> bool:
    """Whether a tensor among these, or in lists of theirs, requires gradients."""
    return any(
        x.requires_grad if isinstance(x, Tensor) else isinstance(x, (tuple, list)) and _wants(x)
        for x in values
    )


# These select, order or multiply, and write a result as it is, as all with several results do.
SPREAD = ("arange", "linspace", "logspace", "range")  # fill whatever has so many elements
TELLING = ("isneginf", "isposinf", "signbit")  # write bools alone
NORMS = ("linalg_matrix_norm", "linalg_norm", "linalg_vector_norm", "norm")  # of complex numbers, real ones
OF_ANY = ("bernoulli",)  # zeros and ones are numbers of every dtype
EXACT = frozenset((
    "abs", "addbmm", "addmm", "addmv", "all", "amax", "amin", "any", "argmax", "argmin", "baddbmm",
    "bitwise_not", "bmm", "bucketize", "ceil", "clamp", "cross", "diag", "dot", "float_power", "floor",
    "frac", "gather", "histc", "index_add", "index_select", "inner", "log_softmax", "logcumsumexp",
    "masked_select", "matmul", "mm", "msort", "mv", "nan_to_num", "nanquantile", "neg", "nonzero", "norm",
    "quantile", "renorm", "round", "scatter", "searchsorted", "sgn", "sign", "softmax", "take",
    "take_along_dim", "tril", "triu", "trunc", "vdot", "where",
))  # fmt: skip


def _leave(name: str, target: Tensor, result: Tensor, exact: bool) -> None:
    if target._meta.device != result._meta.device and "cuda" in (target.device.type, result.device.type):
        raise DeviceError(
            f"{name}(out=…): Expected out tensor to have device {result.device}, but got {target.device} "
            "instead",
            f"out: {target._meta}",
        )
    if (exact or name in TELLING) and target._meta.dtype is not result._meta.dtype:
        if name in TELLING:
            raise DTypeError(f"{name} does not support non-boolean outputs.", f"out: {target._meta}")
        if name in ("all", "any"):
            if target._meta.dtype is not uint8:
                got = target._meta.dtype.scalar_type
                rule = f"{name} only supports bool tensor for result, got: {got}"
                raise DTypeError(rule, f"out: {target._meta}")
            return _leave(name, target, result.to(uint8), True)
        if name == "abs" and target._meta.dtype is result._meta.dtype.to_complex():
            return _leave(name, target, result.to(target._meta.dtype), True)
        raise DTypeError(
            f"{name}(out=…): expected out to have scalar type {result._meta.dtype.scalar_type} "
            f"({result._meta.dtype}), that of the result, not {target._meta.dtype}",
            f"out: {target._meta}",
        )
    if name in OF_ANY:
        result = result.to(target._meta.dtype)
    if not category_at_least(target._meta.dtype, result._meta.dtype.category):
        raise DTypeError(
            f"{name}(out=…): a result of {result._meta.dtype} can't be cast to {target._meta.dtype}",
            f"out: {target._meta}",
        )
    if target._meta.shape != result._meta.shape:
        if target._data.size:
            warnings.warn(
                f"{name}(out=…): The out tensor will be resized, from shape {list(target._meta.shape)} to "
                f"{list(result._meta.shape)}; give one that is empty, or has that shape",
                UserWarning,
                stacklevel=5,
            )
        resize(target, result._meta.shape, result.stride())
    write(REGISTRY["copy"], (target, result), {})


def resize(x: Tensor, shape: tuple[int, ...], like: tuple[int, ...] | None = None) -> None:
    """Give a tensor another shape in place: the elements of its memory in order, then zeros.

    like: strides of what will be written, whose order the elements take where they leave no gaps.

    Where it needs more memory than there is, it leaves what it shared with views.  Raises InplaceError for a
    tensor with history, and for one that would leave memory that NumPy sees.
    """
    check_writable(x, "resize_", x._node is not None)
    _check_size(x._meta.dtype.itemsize, shape)
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was resized in place")
    if x._meta.shape == shape:
        return
    store, size, before = storage_of(x), prod(shape), wrap(x._data, x._meta)
    if x._meta.device is CPU:
        line = memory_of(x)[x.storage_offset() :]
        if size > line.size and store.exposed:
            raise InplaceError(
                f"resize_: the memory is not resizable, as NumPy sees it: {size} elements are more than the "
                f"{line.size} that it holds",
                f"tensor: {x._meta}",
                "y = x.new_zeros(shape) has memory of its own",
            )
        if size <= line.size:
            store.memory = memory_of(x)
            data = line[:size]
        else:
            data = np.zeros(size, line.dtype)
            data[: line.size] = line
            x._storage = Storage()
        x._data = data.reshape(shape) if like is None else _in_order_of(data, shape, like)
    x._meta, x._view = type_of(x._meta.dtype, shape, x._meta.device), None
    if x._meta.device.type == "cuda":
        x._data = _longer(before, shape)
    elif x._meta.device is not CPU:
        x._data = nothing(x._meta)
    advance_objects()
    store.written(("resize_", here()))
    storage_of(x).version = store.version  # whoever saved it sees the write


def _in_order_of(line: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """A line of elements in that shape, the dimensions in memory as those strides have them."""
    order = sorted(range(len(shape)), key=lambda d: -strides[d])
    return line.reshape([shape[d] for d in order]).transpose(np.argsort(order))


def _longer(x: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of a tensor on a GPU in order, as many as fit into that shape, then zeros."""
    made = REGISTRY["zeros_like"](REGISTRY["expand"](REGISTRY["sum"](x), shape))
    line, given = (REGISTRY["reshape"](y, (-1,)) for y in (made, x))
    count = min(line.numel(), given.numel())
    write(REGISTRY["copy"], (line[:count], given[:count]), {})
    return made._data


def _check_size(itemsize: int, shape: tuple[int, ...]) -> None:
    """Refuse what no memory can hold, or no stride can step over.  Raises ArgumentValueError."""
    if prod(shape) * itemsize >> 63:
        raise ArgumentValueError(f"resize_: Storage size calculation overflowed with sizes={list(shape)}")
    if prod(shape[1:]) >> 63:
        raise ArgumentValueError(f"resize_: Stride calculation overflowed with sizes={list(shape)}")


def checked_sizes(sizes: tuple, name: str) -> tuple[int, ...]:
    """The sizes in a call spelled f(2, 3) or f((2, 3)).  Raises ArgumentValueError."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    found = tuple(n for n in map(as_whole, sizes) if isinstance(n, int) and n >= 0)
    if len(found) != len(sizes):
        raise ArgumentValueError(f"{name}: sizes must be ints, none negative, not {list(sizes)!r}")
    return found


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Give this tensor another shape: its elements in order, as far as there are any, then zeros."""
    resize(self, checked_sizes(sizes, "resize_"))
    return self


def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """Give this tensor the shape of another: see resize_."""
    resize(self, the_template._meta.shape)
    return self


writer_of_out.append(into)
for _method in (resize_, resize_as_):
    setattr(Tensor, _method.__name__, refusing(_method))
publish(refusing(resize_as_), "resize_as_")
