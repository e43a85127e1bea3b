"""Save a state dict that is spread over ranks: now, or in the background."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from ...ir.errors import ArgumentError
from ...runtime import Size, Tensor, modes
from ...runtime.tensor import tensor_of
from . import index_text
from .disk import told
from .entries import states_of
from .filesystem import FileSystemWriter
from .meeting import Meeting, agree, meeting_of
from .metadata import (
    Box,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from .planner import Chunks, DefaultSavePlanner, SavePlan, SavePlanner, described, planned
from .scratch import Scratch

Written = tuple[dict[str, int], dict[tuple[str, Box], ChunkStorageMetadata]]


class Background:
    """The one save that is under way in a process.

    Invariant: nobody writes into `_room` while a thread reads from it: whoever does has waited for the last.
    A forked child does not have the thread, and begins anew.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[Any] | None = None
        self._room: dict[tuple[str, Box], np.ndarray] = {}  # the last copies

    def wait(self) -> None:
        """Wait until the last save has ended, however it did."""
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]
        if self._last is not None:
            wait([self._last])

    def copied(self, chunks: Mapping[tuple[str, Box], Tensor]) -> dict[tuple[str, Box], Tensor]:
        """Copies of chunks, in the memory of the last ones where they are as large."""
        before, self._room = self._room, {}
        for each, tensor in chunks.items():
            array, room = tensor._data, before.pop(each, None)
            if room is None or room.dtype != array.dtype or room.shape != array.shape:
                room = np.empty(array.shape, array.dtype)
            np.copyto(room, array)
            self._room[each] = room
        return {each: tensor_of(room) for each, room in self._room.items()}

    def start(self, write: Callable[[], Any]) -> Future[Any]:
        """Write in the background."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="lamina-checkpoint")
        self._last = self._thread.submit(write)
        return self._last


BACKGROUND = Background()


def save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Metadata:
    """Save a state dict, whose tensors may be spread over ranks, into a folder.  Every rank calls it.

    Each rank writes the chunks that it has into a file of its own; what several have is written once.  What
    was saved there before stays whole until the new checkpoint is, and is on the disk.
    state_dict: nested dicts, lists and tuples of tensors, arrays, numbers, texts, None; at the top also
    modules, optimizers and others with a state_dict().  Values that are no tensors are those of the first
    rank that has them.  use_collectives: taken because scripts give it.

    Raises CheckpointException, on all ranks if any fails; in one process ArgumentError for what can't be
    saved.
    """
    _refuse_recording("save")
    writer, asked = _arguments("save", checkpoint_id, storage_writer, planner)
    meeting = meeting_of(process_group, no_dist)
    plan, chunks = _planned("save", meeting, state_dict, asked)
    return _write(meeting, writer, plan, chunks)


def async_save(
    state_dict: Mapping[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: SavePlanner | None = None,
    process_group: Any = None,
    async_checkpointer_type: Any = None,
    async_stager: Any = None,
    no_dist: bool = False,
    use_collectives: bool = True,
) -> Future[Metadata]:
    """Copy what this rank is to write, and write it in the background; training may go on at once.

    The copies' memory is used again by the next one, which first waits for this one to end.  What can't be
    saved is refused at once; what goes wrong as it is written is raised by `.result()` of what is returned,
    and by nothing else.  A process that ends waits for it.  Arguments as of `save`; async_checkpointer_type,
    async_stager and use_collectives are taken because scripts give them.
    """
    _refuse_recording("async_save")
    writer, asked = _arguments("async_save", checkpoint_id, storage_writer, planner)
    return save_apart(state_dict, writer, asked, None if no_dist else process_group)


def save_apart(
    state_dict: Mapping[str, Any],
    writer: FileSystemWriter,
    planner: DefaultSavePlanner,
    process_group: Any,
    after: Callable[[], None] | None = None,
) -> Future[Metadata]:
    """`async_save`, and in the background `after` once it has succeeded."""
    meeting = meeting_of(process_group)
    BACKGROUND.wait()
    plan, chunks = _planned("async_save", meeting, state_dict, planner)
    apart = meeting.apart()
    copies: Chunks = {}
    agree(meeting, "async_save", lambda: copies.update(BACKGROUND.copied(chunks)), lambda everyone: None)

    def write() -> Metadata:
        made = _write(apart, writer, plan, copies)
        if after is not None:
            after()
        return made

    return BACKGROUND.start(write)


def _refuse_recording(name: str) -> None:
    if modes.CHANGED:
        modes.tell("refuse", f"distributed.checkpoint.{name}() wrote files")


def _arguments(
    name: str, checkpoint_id: Any, writer: Any, planner: Any
) -> tuple[FileSystemWriter, DefaultSavePlanner]:
    planner = DefaultSavePlanner() if planner is None else planner
    if not isinstance(planner, DefaultSavePlanner):
        raise ArgumentError(f"{name}(planner): a DefaultSavePlanner, not {type(planner).__name__}")
    if writer is None:
        if checkpoint_id is None:
            raise ArgumentError(f"{name}(): where to?", "pass checkpoint_id, the path of a folder")
        return FileSystemWriter(checkpoint_id), planner
    if not isinstance(writer, FileSystemWriter):
        raise ArgumentError(f"{name}(storage_writer): a FileSystemWriter, not {type(writer).__name__}")
    writer.reset(checkpoint_id)
    return writer, planner


def _planned(
    name: str, meeting: Meeting, state_dict: Any, planner: DefaultSavePlanner
) -> tuple[SavePlan, Chunks]:
    """Who writes what, and the chunks that this rank writes."""
    chunks: Chunks = {}

    def look() -> Any:
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"{name}(state_dict): a dict, not {type(state_dict).__name__}")
        descriptions, here = described(states_of(state_dict))
        chunks.update(here)
        return descriptions

    plan = agree(meeting, name, look, lambda everyone: planned(everyone, planner))
    return plan, {each: chunks[each] for each in plan.of(meeting.rank)}


def _write(
    meeting: Meeting, writer: FileSystemWriter, plan: SavePlan, chunks: Mapping[Any, Tensor]
) -> Metadata:
    """Write what was planned: each rank its file, then the first the index."""
    scratch: list[Scratch] = []

    def begin(_: Any) -> tuple[str, str]:
        scratch.append(_tells(writer, writer.begin))
        return scratch[0].folder, scratch[0].identity

    def commit(everyone: list[Written]) -> bytes:
        metadata = _metadata(plan, everyone, identity)
        text = index_text.to_bytes(metadata)
        _tells(writer, lambda: scratch[0].commit(text, metadata.files))
        return text

    try:
        folder, identity = agree(meeting, "save", lambda: None, begin)
        text = agree(
            meeting,
            "save",
            lambda: _tells(writer, lambda: writer.write(folder, identity, meeting.rank, chunks)),
            commit,
        )
    except BaseException:
        for each in scratch:
            each.abandon()
        raise
    return index_text.from_bytes(text, writer.path)


def _tells(writer: FileSystemWriter, step: Any) -> Any:
    """A step whose OSErrors say what they mean for a checkpoint."""
    try:
        return step()
    except OSError as error:
        raise told(error, writer.path) from error


def _metadata(plan: SavePlan, everyone: list[Written], identity: str) -> Metadata:
    files = {file: size for files, _ in everyone for file, size in files.items()}
    written = {each: stored for _, part in everyone for each, stored in part.items()}
    found: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    for name, entry in plan.entries.items():
        if entry.kind == "value":
            found[name] = BytesStorageMetadata(json.loads(entry.text))
        elif entry.same is None:
            assert entry.dtype is not None
            stored = [written[name, box] for box, _ in entry.chunks]
            found[name] = TensorStorageMetadata(TensorProperties(entry.dtype), Size(entry.shape), stored)
    same = {name: entry.same for name, entry in plan.entries.items() if entry.same is not None}
    found |= {name: found[other] for name, other in same.items()}
    ways = {name: entry.path for name, entry in plan.entries.items()}
    arrays = frozenset(name for name, entry in plan.entries.items() if entry.kind == "array")
    return Metadata(identity, found, ways, same, arrays, files)
