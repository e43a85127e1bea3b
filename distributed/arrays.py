"""Tensors as collectives take them: their memory where it is dense, a copy that is written back where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ..runtime import Tensor, modes
from ..runtime.history import storage_of
from ..runtime.inplace import OWN, check_writable
from ..runtime.places import here

NUMBERS = frozenset(np.dtype(f"{k}{n}").num for k in "iu" for n in (1, 2, 4, 8)) | {11, 12}  # and f4, f8


def need_tensor(name: str, x: Any) -> Tensor:
    """The tensor `x`.  Raises ArgumentError for anything else, DeviceError for one without values."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{name}: a tensor, not {type(x).__name__}")
    if x.is_sparse or not isinstance(x._data, np.ndarray):
        raise DeviceError(f"{name}: takes dense tensors with values, not {x._meta}")
    return x


def need_tensors(name: str, given: Any) -> list[Tensor]:
    """A list of tensors.  Raises ArgumentError."""
    if not isinstance(given, (list, tuple)) or not given:
        raise ArgumentError(f"{name}: a list of tensors, not {type(given).__name__}")
    return [need_tensor(name, x) for x in given]


def need_alike(name: str, tensors: Sequence[Tensor], count: int | None = None) -> None:
    """Raise ShapeError or DTypeError unless all are of one shape and dtype, and as many as `count`."""
    if count is not None and len(tensors) != count:
        raise ShapeError(f"{name}: {count} tensors, one for each rank of the group, not {len(tensors)}")
    for x in tensors:
        if x.shape != tensors[0].shape:
            raise ShapeError(f"{name}: tensors of one shape", f"{tensors[0]._meta} and {x._meta}")
        if x.dtype is not tensors[0].dtype:
            raise DTypeError(f"{name}: tensors of one dtype", f"{tensors[0]._meta} and {x._meta}")


def read(x: Tensor) -> np.ndarray:
    """The elements of a tensor, dense, in its shape; nobody writes them."""
    return np.asarray(x._data, order="C")  # np.ascontiguousarray would make 0-d 1-d


def plain_memory(x: Any) -> np.ndarray | None:
    """The memory of a tensor of numbers, where it may be written as it lies and nobody listens; or None."""
    if type(x) not in OWN or modes.CHANGED or type(data := x._data) is not np.ndarray:
        return None
    return data if data.flags.carray and x._view is None and data.dtype.num in NUMBERS else None


def opened(name: str, x: Tensor) -> tuple[np.ndarray, Callable[[], None]]:
    """A dense array to write what a tensor becomes into, and what to call once it is there.

    The array holds the tensor's elements.  Raises InplaceError for memory that can't be written.
    """
    check_writable(x, name, False)
    data, place = x._data, here()
    dense = data if data.flags.c_contiguous and data.flags.aligned else np.array(data, order="C")

    def close() -> None:
        if dense is not data:
            np.copyto(data, dense)
        storage_of(x).written((name, place))

    return dense, close


@contextmanager
def own_numbers() -> Iterator[None]:
    """Tell a recorder that numbers in what is done inside are of parameters, and of no size of the call."""
    modes.tell("apart", True)
    try:
        yield
    finally:
        modes.tell("apart", False)


def is_recorded() -> bool:
    """Whether somebody listens to ops, so that a collective must be one."""
    return bool(modes.CHANGED) and modes.local.hook is not None
