"""What a checkpoint holds, by name: tensors in chunks, and values.  Chunks of a tensor that a rank has."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ...ir.dtypes import DType
from ...ir.errors import ArgumentValueError
from ...runtime import Size, Tensor

Sizes = tuple[int, ...]
Box = tuple[Sizes, Sizes]  # offsets, sizes


@dataclass(frozen=True)
class Chunk:
    """The part of a tensor that begins at `offsets` and has `sizes`; `tensor` holds it."""

    offsets: Sizes
    sizes: Sizes
    tensor: Tensor


@runtime_checkable
class Sharded(Protocol):
    """A tensor of which each rank has chunks.

    shape: of the whole.  Two ranks may have one chunk; it is saved once.
    """

    @property
    def shape(self) -> Any: ...

    def __lamina_chunks__(self) -> list[Chunk]: ...


def is_tensor(value: Any) -> bool:
    """Whether a value is saved in chunks."""
    return isinstance(value, (Tensor, Sharded))


def chunks_of(value: Any, name: str) -> tuple[Sizes, list[Chunk]]:
    """The shape of a tensor and the chunks of it that are here.  Raises ArgumentValueError."""
    shape = tuple(int(n) for n in value.shape)
    if not isinstance(value, Sharded):
        return shape, [Chunk((0,) * len(shape), shape, value)]
    chunks = list(value.__lamina_chunks__())
    for each in chunks:
        fits = len(each.offsets) == len(each.sizes) == len(shape) and all(
            0 <= begin and 0 <= size and begin + size <= n
            for begin, size, n in zip(each.offsets, each.sizes, shape, strict=True)
        )
        if not fits or tuple(each.tensor.shape) != tuple(each.sizes):
            raise ArgumentValueError(
                f"{name}: a chunk must lie in its tensor, and have the sizes that it says",
                f"tensor: {list(shape)}",
                f"chunk: at {list(each.offsets)} of {list(each.sizes)}, holds {list(each.tensor.shape)}",
            )
    return shape, chunks


@dataclass(frozen=True)
class ChunkStorageMetadata:
    """A chunk in a file.

    begin: its first byte there.  hashes: of each block of its bytes.  key: its entry there, for others.
    """

    offsets: Sizes
    sizes: Sizes
    file: str = ""
    begin: int = 0
    key: str = ""
    hashes: tuple[str, ...] = ()

    @property
    def box(self) -> Box:
        return self.offsets, self.sizes


@dataclass(frozen=True)
class TensorProperties:
    """The element type of a saved tensor."""

    dtype: DType


@dataclass(frozen=True)
class TensorStorageMetadata:
    """A saved tensor: its shape, and the chunks that it consists of."""

    properties: TensorProperties
    size: Size
    chunks: list[ChunkStorageMetadata]


@dataclass(frozen=True)
class BytesStorageMetadata:
    """A saved value that is no tensor, as JSON says it."""

    value: Any


# A step of the way to a value: a key of a dict, or the place in a list or a tuple.
@dataclass(frozen=True)
class At:
    """The place in a list, or in a tuple."""

    index: int
    of_tuple: bool = False

    def __str__(self) -> str:
        return str(self.index)


Path = tuple[str | int | At, ...]


@dataclass(frozen=True)
class Metadata:
    """What a checkpoint holds.

    state_dict_metadata: by the names of the values, which are their ways joined by dots.
    ways: by name.  arrays: which of the tensors were NumPy's arrays.  same: of a tensor that lies where
    another does, the name of that one.  files: their sizes in bytes.
    """

    identity: str
    state_dict_metadata: dict[str, TensorStorageMetadata | BytesStorageMetadata]
    ways: dict[str, Path] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    arrays: frozenset[str] = frozenset()
    files: dict[str, int] = field(default_factory=dict)


def volume(sizes: Sizes) -> int:
    """How many elements a box has."""
    return math.prod(sizes)
