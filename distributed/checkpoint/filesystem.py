"""Chunks to files of safetensors, one of each rank, and from the parts of them that are wanted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir import dtypes
from ...ir.dtypes import DType
from ...ir.errors import ArgumentError
from ...ir.ops.complex import pairs
from ...runtime import Tensor
from ...runtime.checkpoints.own_form import laid_out
from ...runtime.tensor import tensor_of
from . import index_text
from .disk import Opened, Stamp, read_index, sync_folder, write_file
from .failures import DamagedCheckpointError
from .index_text import BLOCK, hash_of
from .metadata import Box, Chunk, ChunkStorageMetadata, Metadata, TensorStorageMetadata, volume
from .scratch import Scratch
from .slabs import Slab, blocks_of, overlap, slabs


# ---- writing -----------------------------------------------------------------------------------------------
class FileSystemWriter:
    """Writes checkpoints into a folder.

    sync_files: whether a save ends only once all is on the disk, so that it outlives the machine.
    overwrite: whether a checkpoint that is there is replaced, at once, when the new one is whole.
    The other arguments are PyTorch's and change nothing: each rank writes one file, from where tensors lie.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Any = None,
        serialization_format: Any = None,
    ):
        self.path = folder_of(path)
        self.sync_files, self.overwrite = sync_files, overwrite

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Write into another folder from now on."""
        if checkpoint_id is not None:
            self.path = folder_of(checkpoint_id)

    def begin(self) -> Scratch:
        """Make the folder that all ranks write into.  Raises OSError, ArgumentValueError."""
        return Scratch(self.path, self.overwrite, self.sync_files)

    def write(
        self, folder: str, identity: str, rank: int, chunks: Mapping[tuple[str, Box], Tensor]
    ) -> tuple[dict[str, int], dict[tuple[str, Box], ChunkStorageMetadata]]:
        """Write the file of a rank; its name and size, and where each chunk is.  Raises OSError."""
        if not chunks:
            return {}, {}
        file = f"{identity}-{rank:05}.safetensors"
        keys = _keys(chunks)
        header, places = laid_out(
            {keys[each]: _spelled(tensor) for each, tensor in chunks.items()},
            {"lamina.checkpoint": identity},
        )
        by_key = {key: each for each, key in keys.items()}
        written = {}

        def pieces() -> Iterator[bytes | memoryview]:
            yield header
            for key in places:
                name, (offsets, sizes) = each = by_key[key]
                hashes = []
                for piece in _blocks(chunks[each]):
                    hashes.append(hash_of(piece))
                    yield piece
                written[each] = ChunkStorageMetadata(offsets, sizes, file, places[key], key, tuple(hashes))

        size = write_file(os.path.join(folder, file), pieces(), self.sync_files)
        if self.sync_files:
            sync_folder(folder)
        return {file: size}, written


def folder_of(path: Any) -> str:
    """The name of a checkpoint's folder.  Raises ArgumentError."""
    if not isinstance(path, (str, os.PathLike)) or not (folder := os.fsdecode(path)) or "\0" in folder:
        raise ArgumentError(f"checkpoint_id: the path of a folder, not {path!r:.60}")
    return folder


def _spelled(tensor: Tensor) -> tuple[str, list[int], int]:
    """What a file of safetensors says of a tensor; it has no complex128, which are pairs of float64."""
    array, dtype = tensor._data, tensor.dtype
    if dtype is dtypes.complex128:
        return "F64", [*array.shape, 2], array.nbytes
    return dtype.short.upper(), list(array.shape), array.nbytes


def _blocks(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor; a copy of it is made only where it is not contiguous, and let go after."""
    array = pairs(tensor._data) if tensor.dtype is dtypes.complex128 else tensor._data
    line = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    for begin in range(0, len(line), BLOCK):
        yield line[begin : begin + BLOCK]


def _keys(chunks: Mapping[tuple[str, Box], Tensor]) -> dict[tuple[str, Box], str]:
    """A name of its own for each chunk in its file."""
    keys: dict[tuple[str, Box], str] = {}
    taken = {"__metadata__"}
    for name, (offsets, sizes) in chunks:
        key = start = name.encode(errors="replace").decode()  # half a surrogate pair is no UTF-8
        if any(offsets):
            key = start = f"{start}[{','.join(map(str, offsets))}]"
        count = 1
        while key in taken:
            count += 1
            key = f"{start}#{count}"
        taken.add(key)
        keys[name, (offsets, sizes)] = key
    return keys


# ---- reading -----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Wanted:
    """What of a stored chunk goes where: the box that it has in common with a chunk, in the whole tensor."""

    stored: ChunkStorageMetadata
    dtype: DType
    box: Box
    into: Chunk

    def slabs(self) -> Iterator[Slab]:
        """The rows of the stored chunk that hold the box."""
        begin = tuple(x - at for x, at in zip(self.box[0], self.stored.offsets, strict=True))
        return slabs(self.stored.sizes, (begin, self.box[1]), self.dtype.itemsize)


def wanted_of(stored: TensorStorageMetadata, into: Chunk) -> Iterator[Wanted]:
    """What of a stored tensor goes into a chunk, whichever chunks it was stored in."""
    for each in stored.chunks:
        box = overlap(each.box, (into.offsets, into.sizes))
        if box is not None:
            yield Wanted(each, stored.properties.dtype, box, into)


def room_for(stored: TensorStorageMetadata, name: str) -> np.ndarray:
    """An array that a stored tensor fits into.  Raises DamagedCheckpointError for a shape that none has."""
    try:
        return np.empty(tuple(stored.size), stored.properties.dtype.numpy)
    except ValueError:  # of no element, and beyond what NumPy counts
        raise DamagedCheckpointError(f"load(): {name:.200} has a shape that no array has") from None


class FileSystemReader:
    """Reads checkpoints from a folder, of each file the bytes that are wanted.

    They are read and not mapped: of a mapped file that becomes shorter, the system ends who looks at it.
    """

    def __init__(self, path: str | os.PathLike, _extension_registry: Any = None):
        self.path = folder_of(path)

    def reset(self, checkpoint_id: str | os.PathLike | None = None) -> None:
        """Read another folder from now on."""
        if checkpoint_id is not None:
            self.path = folder_of(checkpoint_id)

    def read_metadata(self) -> Metadata:
        """What the checkpoint holds.  Raises DamagedCheckpointError."""
        return index_text.from_bytes(read_index(self.path), self.path)

    def require_files(self, metadata: Metadata) -> None:
        """Hold the files against their sizes; what an index says takes then no more memory than they do.

        Raises DamagedCheckpointError.
        """
        for file, size in metadata.files.items():
            Opened(self.path, file, size).close()

    def verify(self, wanted: list[Wanted], files: Mapping[str, int]) -> dict[str, Stamp]:
        """Hold every block that is wanted against its hash; what tells of each file whether it stayed so.

        Raises DamagedCheckpointError, which names the file.
        """
        stamps = {}
        room = memoryview(bytearray(BLOCK))
        for file, requests in _by_file(wanted).items():
            with Opened(self.path, file, files[file]) as opened:
                stamps[file] = opened.stamp
                for (stored, dtype), numbers in _blocks_wanted(requests).items():
                    size = volume(stored.sizes) * dtype.itemsize
                    for number in sorted(numbers):
                        begin = number * BLOCK
                        block = room[: min(BLOCK, size - begin)]
                        opened.fill(stored.begin + begin, block)
                        if hash_of(block) != stored.hashes[number]:
                            raise DamagedCheckpointError(
                                f"load(): {opened.path} was changed since it was saved",
                                f"of {stored.key!r:.200}, from byte {begin} on, the hash is another",
                            )
        return stamps

    def fill(self, wanted: list[Wanted], files: Mapping[str, int], stamps: Mapping[str, Stamp]) -> None:
        """Read what is wanted into its places, from files that `verify` has seen."""
        for file, requests in _by_file(wanted).items():
            with Opened(self.path, file, files[file]) as opened:
                if opened.stamp != stamps[file]:
                    raise DamagedCheckpointError(f"load(): {opened.path} was changed while it was read")
                for each in requests:
                    for slab in each.slabs():
                        _place(opened, each, slab)


def _by_file(wanted: list[Wanted]) -> dict[str, list[Wanted]]:
    files: dict[str, list[Wanted]] = {}
    for each in wanted:
        files.setdefault(each.stored.file, []).append(each)
    return files


def _blocks_wanted(requests: list[Wanted]) -> dict[tuple[ChunkStorageMetadata, DType], set[int]]:
    found: dict[tuple[ChunkStorageMetadata, DType], set[int]] = {}
    for each in requests:
        numbers = found.setdefault((each.stored, each.dtype), set())
        for slab in each.slabs():
            numbers.update(blocks_of(slab))
    return found


def _place(opened: Opened, wanted: Wanted, slab: Slab) -> None:
    """Read a slab, and write what of it is wanted where it goes."""
    stored, into = wanted.stored, wanted.into
    raw = np.empty(slab.size, np.uint8)
    opened.fill(stored.begin + slab.begin, memoryview(raw))
    # A bool's byte must be 0 or 1, and a file may hold any.
    line = raw != 0 if wanted.dtype is dtypes.bool_ else raw.view(wanted.dtype.numpy)
    depth = len(slab.prefix)
    array = line.reshape(*(1,) * depth, slab.rows, *stored.sizes[depth + 1 :])
    offsets, extents = wanted.box
    target, here = into.tensor.detach(), []
    for d in range(len(offsets)):
        first, count = offsets[d], extents[d]
        if d <= depth:  # rows are read as they are wanted, columns whole
            first = stored.offsets[d] + (slab.first if d == depth else slab.prefix[d])
            count = slab.rows if d == depth else 1
            here.append(slice(None))
        else:
            here.append(slice(first - stored.offsets[d], first - stored.offsets[d] + count))
        target = target.narrow(d, first - into.offsets[d], count)
    array = array[tuple(here)] if offsets else array.reshape(())
    target.copy_(tensor_of(array))
