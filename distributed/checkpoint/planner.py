"""Which rank writes which chunks: each chunk once, spread by bytes over the ranks that have it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir.dtypes import DType
from ...ir.errors import ArgumentValueError
from ...ir.warned import warn
from ...runtime import Tensor
from ...runtime.checkpoints import own_form
from ...runtime.tensor import tensor_of
from .entries import Entry, entries_of
from .metadata import Box, Chunk, Path, Sizes, chunks_of, volume
from .tiling import untiled


class SavePlanner:
    """How what is to be saved is spread over the ranks."""


class DefaultSavePlanner(SavePlanner):
    """Each chunk is written once, by that rank of those that have it which has the least to write.

    dedup_save_to_lowest_rank: by the lowest of them.  The other arguments are PyTorch's and change nothing:
    state dicts are always flattened, chunks that several have always written once.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ):
        self.dedup_save_to_lowest_rank = dedup_save_to_lowest_rank


class LoadPlanner:
    """What of a checkpoint is loaded."""


class DefaultLoadPlanner(LoadPlanner):
    """All that the state dict names.

    allow_partial_load: what the checkpoint lacks stays as it is.  The others are PyTorch's and mean nothing.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ):
        self.allow_partial_load = allow_partial_load


# ---- what a rank has ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Described:
    """What a rank says of an entry.

    kind: tensor, array or value.  text: JSON of a value.  same: the name of a tensor in the same place.
    dtype is None where the rank has no chunk.
    """

    path: Path
    kind: str
    shape: Sizes = ()
    dtype: DType | None = None
    boxes: tuple[Box, ...] = ()
    same: str | None = None
    text: str = ""


Chunks = dict[tuple[str, Box], Tensor]


def described(state_dict: Mapping[str, Any]) -> tuple[dict[str, Described], Chunks]:
    """What this rank has of a state dict: descriptions for the first rank, and the chunks.

    Raises ArgumentError, ArgumentValueError.
    """
    descriptions: dict[str, Described] = {}
    chunks: Chunks = {}
    known: dict[Any, str] = {}  # where the one chunk of a tensor lies -> its name
    for name, entry in entries_of(state_dict).items():
        if entry.kind == "value":
            text = json.dumps(own_form.as_json(entry.value, name), separators=(",", ":"))
            descriptions[name] = Described(entry.path, "value", text=text)
            continue
        shape, here = _here(entry, name)
        dtypes = {each.tensor.dtype for each in here}
        if len(dtypes) > 1:
            raise ArgumentValueError(f"{name}: its chunks differ in dtype: {', '.join(map(str, dtypes))}")
        chunks.update(((name, (each.offsets, each.sizes)), each.tensor) for each in here)
        same = known.setdefault(_place(shape, here), name) if shape and volume(shape) and here else name
        descriptions[name] = Described(
            entry.path, entry.kind, shape, next(iter(dtypes), None),
            tuple((each.offsets, each.sizes) for each in here), None if same == name else same,
        )  # fmt: skip
    return descriptions, chunks


def _here(entry: Entry, name: str) -> tuple[Sizes, list[Chunk]]:
    value = tensor_of(entry.value) if entry.kind == "array" else entry.value
    shape, chunks = chunks_of(value, name)
    ints = [Chunk(tuple(map(int, c.offsets)), tuple(map(int, c.sizes)), c.tensor) for c in chunks]
    unique = {(each.offsets, each.sizes): each for each in ints}
    return shape, list(unique.values())


def _place(shape: Sizes, chunks: list[Chunk]) -> Any:
    """Where a tensor lies, if another that lies there is the same."""
    arrays = [(each.offsets, each.tensor.dtype, each.tensor._data) for each in chunks]
    return shape, *(
        (offsets, dtype, a.__array_interface__["data"][0], a.shape, a.strides) for offsets, dtype, a in arrays
    )


# ---- who writes what ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Planned:
    """An entry of the checkpoint.  chunks: each with the rank that writes it."""

    path: Path
    kind: str
    shape: Sizes = ()
    dtype: DType | None = None
    chunks: tuple[tuple[Box, int], ...] = ()
    same: str | None = None
    text: str = ""


@dataclass
class SavePlan:
    """What is written, by name."""

    entries: dict[str, Planned] = field(default_factory=dict)

    def of(self, rank: int) -> list[tuple[str, Box]]:
        """What a rank writes."""
        return [
            (n, box) for n, entry in self.entries.items() for box, writer in entry.chunks if writer == rank
        ]


def planned(everyone: list[dict[str, Described]], planner: DefaultSavePlanner) -> SavePlan:
    """Decide, on the first rank, who writes what.

    Raises ArgumentValueError where ranks contradict each other, or chunks don't make up their tensor.
    """
    names = dict.fromkeys(name for each in everyone for name in each)
    merged = {n: {rank: d[n] for rank, d in enumerate(everyone) if n in d} for n in names}
    entries: dict[str, Planned] = {}
    holders: dict[tuple[str, Box], list[int]] = {}
    for name, by_rank in merged.items():
        first, first_rank = _agreed(name, by_rank)
        same = first.same
        shared = same is not None and all(
            each.same == same and by_rank.keys() == merged[same].keys() for each in by_rank.values()
        )
        entries[name] = Planned(
            first.path, first.kind, first.shape, first.dtype,
            same=same if shared else None, text=by_rank[first_rank].text,
        )  # fmt: skip
        if first.kind != "value" and not shared:
            for rank, each in by_rank.items():
                for box in each.boxes:
                    holders.setdefault((name, box), []).append(rank)
    writers = _spread(holders, entries, len(everyone), planner)
    for (name, box), rank in writers.items():
        entry = entries[name]
        entries[name] = Planned(**{**vars(entry), "chunks": (*entry.chunks, (box, rank))})
    for name, entry in entries.items():
        if entry.kind != "value" and entry.same is None:
            why = untiled(entry.shape, (box for box, _ in entry.chunks))
            if why:
                raise ArgumentValueError(
                    f"save(): the chunks of {name} don't make up the tensor {list(entry.shape)}: {why}",
                    "each rank must pass what it has, and all of them the whole",
                )
    return SavePlan(entries)


def _agreed(name: str, by_rank: dict[int, Described]) -> tuple[Described, int]:
    """What the ranks say alike of an entry, and the first that has a dtype."""
    rank = next((r for r, each in by_rank.items() if each.dtype is not None), min(by_rank))
    first = by_rank[rank]
    if first.dtype is None and first.kind != "value":
        raise ArgumentValueError(f"save(): no rank has a chunk of {name}, so its dtype is not known")
    for other, each in by_rank.items():
        if (each.kind, each.path, each.shape) != (first.kind, first.path, first.shape) or each.dtype not in (
            None,
            first.dtype,
        ):
            raise ArgumentValueError(
                f"save(): {name} is not the same on all ranks",
                f"rank {rank}: {first.kind} {first.dtype or ''} {list(first.shape)}",
                f"rank {other}: {each.kind} {each.dtype or ''} {list(each.shape)}",
            )
        if each.text != first.text:
            warn(
                f"save(): {name} is {first.text:.60} on rank {rank} and {each.text:.60} on rank {other}; "
                f"that of rank {rank} is saved. To save both, give each rank's a name of its own",
                stacklevel=4,
            )
            break
    return first, rank


def _spread(
    holders: dict[tuple[str, Box], list[int]],
    entries: dict[str, Planned],
    size: int,
    planner: DefaultSavePlanner,
) -> dict[tuple[str, Box], int]:
    """Who writes each chunk: those that one rank has first, then the largest first."""
    load = [0] * size

    def bytes_of(key: tuple[str, Box]) -> int:
        dtype = entries[key[0]].dtype
        return volume(key[1][1]) * (dtype.itemsize if dtype is not None else 0)

    writers = {}
    for key in sorted(holders, key=lambda key: (len(holders[key]) > 1, -bytes_of(key))):
        ranks = holders[key]
        least = min(ranks) if planner.dedup_save_to_lowest_rank else min(ranks, key=lambda r: (load[r], r))
        load[least] += bytes_of(key)
        writers[key] = least
    return {key: writers[key] for key in holders}
