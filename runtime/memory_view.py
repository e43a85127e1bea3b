"""The memory behind tensors, to look at: where it begins, how large it is, what it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtypes import DType, uint8
from ..ir.errors import ArgumentError
from ..ir.types import Device, type_of
from .refusal import refusing_methods
from .tensor import Tensor, wrap


class StorageView:
    """The memory that a tensor shares with its base and all views, as numbers of one dtype.

    It can be read and compared (`data_ptr`), not written, resized or exchanged: those are for tensors to do.
    """

    def __init__(self, tensor: Tensor, dtype: DType):
        self._tensor = tensor
        self.dtype = dtype
        self.device: Device = tensor.device

    def _whole(self) -> Tensor:
        """A line of all elements, in the order of memory."""
        root = (self._tensor._view[0] if self._tensor._view else self._tensor)._data
        reach = 1 + sum((n - 1) * s // root.itemsize for n, s in zip(root.shape, root.strides, strict=True))
        line = np.lib.stride_tricks.as_strided(root, (reach if root.size else 0,), (root.itemsize,))
        line = line.view(self.dtype.numpy)
        return wrap(line, type_of(self.dtype, line.shape, self.device))

    def data_ptr(self) -> int:
        """The address of the first byte."""
        base = self._tensor._view[0] if self._tensor._view else self._tensor
        return base.data_ptr()

    def nbytes(self) -> int:
        """The size in bytes."""
        return self._whole()._data.nbytes

    def size(self) -> int:
        """The number of elements."""
        return len(self)

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def tolist(self) -> list:
        """The elements as Python numbers."""
        return self._whole().tolist()

    def __len__(self) -> int:
        return self._whole()._data.size

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, (int, slice)):
            raise ArgumentError(f"a storage is indexed by ints and slices, not by a {type(index).__name__}")
        found = self._whole()[index]
        return found.tolist() if isinstance(index, slice) else found.item()

    def __repr__(self) -> str:
        return f"<the memory of {len(self)} elements of {self.dtype}>"


def untyped_storage(self: Tensor) -> StorageView:
    """The memory behind this tensor and its views, as bytes."""
    return StorageView(self, uint8)


def storage(self: Tensor) -> StorageView:
    """The memory behind this tensor and its views, as numbers of its dtype."""
    return StorageView(self, self.dtype)


refusing_methods((StorageView,))
setattr(Tensor, "untyped_storage", untyped_storage)  # noqa: B010 - methods, as those of methods.py
setattr(Tensor, "storage", storage)  # noqa: B010
