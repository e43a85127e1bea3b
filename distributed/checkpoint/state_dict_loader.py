"""Load a checkpoint into a state dict, whichever ranks saved it and whichever load it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir.errors import ArgumentError, StateError
from ...runtime import modes
from ...runtime.checkpoints import own_form
from ...runtime.tensor import tensor_of
from . import index_text
from .disk import read_index
from .entries import Entry, Stateful, entries_of, put_back, states_of
from .filesystem import FileSystemReader, Wanted, room_for, wanted_of
from .meeting import agree, meeting_of
from .metadata import (
    BytesStorageMetadata,
    Chunk,
    Metadata,
    TensorStorageMetadata,
    chunks_of,
)
from .planner import DefaultLoadPlanner, LoadPlanner


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike | None = None,
    storage_reader: FileSystemReader | None = None,
    planner: LoadPlanner | None = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Load what a state dict names from a checkpoint, in place: into its tensors.  Every rank calls it.

    Ranks and chunks may be others than saved it; each rank reads what goes into its own.  A tensor takes the
    values in its own dtype.  Values that are no tensors, and arrays, are put in place of those there; what is
    Stateful at the top gets its state by load_state_dict().  No code in a checkpoint is run.

    Everything is held against its hash before anything is changed, on all ranks: where one can't load, no
    tensor of any has changed, unless it is interrupted, or the disk fails, as it reads a second time.

    Raises DamagedCheckpointError for files, StateError for a state dict that does not fit; on more than one
    rank CheckpointException.
    """
    if modes.CHANGED:
        modes.tell("refuse", "distributed.checkpoint.load() read files")
    reader, asked = _arguments(checkpoint_id, storage_reader, planner)
    meeting = meeting_of(process_group, no_dist)
    read: list[bytes] = []

    def look() -> None:
        if not isinstance(state_dict, dict):
            raise ArgumentError(f"load(state_dict): a dict, not {type(state_dict).__name__}")
        if meeting.rank == 0:
            read.append(read_index(reader.path))
            reader.require_files(index_text.from_bytes(read[0], reader.path))

    text = agree(meeting, "load", look, lambda everyone: read[0])
    plan: list[LoadPlan] = []

    def verify() -> None:
        metadata = index_text.from_bytes(text, reader.path)
        states = states_of(state_dict)
        made = LoadPlan(states, metadata, asked.allow_partial_load)
        made.stamps = reader.verify(made.wanted, metadata.files)
        plan.append(made)

    agree(meeting, "load", verify, lambda everyone: None)

    def fill() -> None:
        made = plan[0]
        reader.fill(made.wanted, made.files, made.stamps)
        put_back(made.states, made.values)
        for key, value in state_dict.items():
            if isinstance(value, Stateful):
                value.load_state_dict(made.states[key])
            else:
                state_dict[key] = made.states[key]

    agree(meeting, "load", fill, lambda everyone: None)


def _arguments(checkpoint_id: Any, reader: Any, planner: Any) -> tuple[FileSystemReader, DefaultLoadPlanner]:
    planner = DefaultLoadPlanner() if planner is None else planner
    if not isinstance(planner, DefaultLoadPlanner):
        raise ArgumentError(f"load(planner): a DefaultLoadPlanner, not {type(planner).__name__}")
    if reader is None:
        if checkpoint_id is None:
            raise ArgumentError("load(): from where?", "pass checkpoint_id, the path of a folder")
        return FileSystemReader(checkpoint_id), planner
    if not isinstance(reader, FileSystemReader):
        raise ArgumentError(f"load(storage_reader): a FileSystemReader, not {type(reader).__name__}")
    reader.reset(checkpoint_id)
    return reader, planner


@dataclass
class LoadPlan:
    """What of a checkpoint goes where on this rank.

    wanted: into tensors, and arrays that are among `values`, which then go into the state dict.
    Raises StateError where the state dict does not fit.
    """

    states: dict[str, Any]
    metadata: Metadata
    partial: bool
    wanted: list[Wanted] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    stamps: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entries = entries_of(self.states)
        for name, entry in entries.items():
            stored = self.metadata.state_dict_metadata.get(name)
            if stored is None:
                if not self.partial and not _is_empty(entry):
                    raise self._missing(name, entries)
            elif (entry.kind == "value") is not isinstance(stored, BytesStorageMetadata):
                kind = "a value" if isinstance(stored, BytesStorageMetadata) else "a tensor"
                raise StateError(
                    f"load(): {name} is {kind} in the checkpoint, and a {type(entry.value).__name__} in the "
                    "state dict"
                )
            elif isinstance(stored, BytesStorageMetadata):
                self.values[name] = own_form.from_json(stored.value)
            else:
                self._tensor(name, entry, stored)

    @property
    def files(self) -> Mapping[str, int]:
        return self.metadata.files

    def _tensor(self, name: str, entry: Entry, stored: TensorStorageMetadata) -> None:
        if entry.kind == "array":
            self.values[name] = array = room_for(stored, name)
            into = [Chunk((0,) * array.ndim, array.shape, tensor_of(array))]
        else:
            shape, into = chunks_of(entry.value, name)
            if shape != tuple(stored.size):
                raise StateError(
                    f"load(): {name} has another shape in the checkpoint",
                    f"checkpoint: {list(stored.size)}",
                    f"state dict: {list(shape)}",
                )
        for chunk in into:
            self.wanted += wanted_of(stored, chunk)

    def _missing(self, name: str, entries: Mapping[str, Entry]) -> StateError:
        lacking = [
            each for each, entry in entries.items()
            if each not in self.metadata.state_dict_metadata and not _is_empty(entry)
        ]  # fmt: skip
        unused = [each for each in self.metadata.state_dict_metadata if each not in entries]
        return StateError(
            f"load(): the checkpoint has no {name}, which the state dict names",
            f"lacking: {_some(lacking)}",
            f"in the checkpoint, and not in the state dict: {_some(unused)}",
            "planner=DefaultLoadPlanner(allow_partial_load=True) leaves what is lacking as it is",
        )


def _is_empty(entry: Entry) -> bool:
    """Whether an entry is an empty container, which asks for nothing."""
    return isinstance(entry.value, (dict, list, tuple)) and not entry.value


def _some(names: list[str]) -> str:
    shown = ", ".join(name[:100] for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown or "nothing"
