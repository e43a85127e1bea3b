"""Which rank a process is, by the variables that its launcher has set."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..ir.errors import ArgumentValueError

# In the environment of a rank: that the launcher's program runs it, and tells of its errors; that it failed.
WATCHED, FAILED = "LAMINA_WATCHED_RANK", "LAMINA_FAILED_RANK"


@dataclass(frozen=True)
class Place:
    """Where a process stands: 0 <= rank < world_size, and likewise on its machine and among the machines.

    node_rank: the machine's number, of `nodes`.  master_addr, master_port: where rank 0 is, if that was said.
    told_by: whose variables said so.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node_rank: int = 0
    nodes: int = 1
    master_addr: str | None = None
    master_port: int | None = None
    told_by: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        _check_below("rank", self.rank, "world_size", self.world_size)
        _check_below("local_rank", self.local_rank, "local_world_size", self.local_world_size)
        _check_below("node_rank", self.node_rank, "nodes", self.nodes)
        if self.local_world_size > self.world_size:
            raise ArgumentValueError(
                "a machine has no more ranks than there are: "
                f"local_world_size {self.local_world_size} > world_size {self.world_size}"
            )


def _check_below(name: str, value: int, limit_name: str, limit: int) -> None:
    if not 0 <= value < limit:
        raise ArgumentValueError(
            f"{name} counts from 0 and is below {limit_name}: {name} {value}, {limit_name} {limit}"
        )


class Names(NamedTuple):
    """A launcher's variables; the first of each list that is set counts.

    tasks_per_node: as Slurm writes them, `2(x3),1`.
    """

    launcher: str
    rank: str
    world_size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    local_world_size: tuple[str, ...] = ()
    node_rank: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    tasks_per_node: tuple[str, ...] = ()


TORCHRUN = Names(
    "torchrun", "RANK", ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",), ("GROUP_RANK",),
    ("GROUP_WORLD_SIZE",),
)  # fmt: skip
OPEN_MPI = Names(  # its NODE_RANK is a rank on the node, not of it
    "Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",),
    ("OMPI_COMM_WORLD_LOCAL_SIZE",),
)  # fmt: skip
MPICH = Names("MPICH", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID",), ("MPI_LOCALNRANKS",))
PMIX = Names("PMIx", "PMIX_RANK")  # whose server tells the rest, but to programs alone
SLURM = Names(
    "Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"), ("SLURM_LOCALID",), (),
    ("SLURM_NODEID",), ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
)  # fmt: skip
# The nearest launcher first: Slurm often starts the others, and its variables then say what those are.
FAMILIES = (TORCHRUN, OPEN_MPI, MPICH, PMIX, SLURM)
FACTS = ("world_size", "local_rank", "local_world_size", "node_rank", "nodes")
# What launchers of ranks leave in the environment, and a launcher inside of a rank must not hand on.
INHERITED = re.compile(
    r"(PMI|PMIX|OMPI|PRTE|HYDI|HYDRA|TORCHELASTIC)_(?!ALLOW_|MCA_|PARAM_)|MPI_LOCAL(RANKID|NRANKS)$"
    r"|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)$|ROLE_NAME$|MASTER_(ADDR|PORT)$"
)


def place(environ: Mapping[str, str] | None = None) -> Place | None:
    """Where this process stands, or None where no launcher said anything.

    What the nearest launcher leaves out, the next one tells; what nobody tells is as on one machine.
    Raises ArgumentValueError where a variable is no whole number, where two launchers disagree about the rank
    or the number of ranks, and where a rank comes without the number of ranks.
    """
    environ = os.environ if environ is None else environ
    present = [names for names in FAMILIES if names.rank in environ and not _only_batch(names, environ)]
    if not present:
        _check_nothing_half_said(environ)
        return None
    told = [(names, _facts(names, environ)) for names in present]
    launchers = [entry for entry in told if entry[0] is not SLURM] or told
    _check_agreement(launchers, environ)
    # Slurm's numbers are those of its own tasks: of use where it started the ranks, by PMIx or PMI.
    if told[-1] not in launchers and told[-1][1].get("rank") == launchers[0][1]["rank"]:
        launchers = [*launchers, told[-1]]
    facts: dict[str, int] = {}
    for _, more in reversed(launchers):
        facts.update(more)
    if "world_size" not in facts:
        wanted = present[0].world_size or ("WORLD_SIZE",)
        raise ArgumentValueError(
            f"{present[0].rank} is set, but not how many ranks there are",
            f"{present[0].rank}={environ[present[0].rank]}",
            f"set {wanted[0]} too",
        )
    return _placed(facts, environ, present[0])


def _only_batch(names: Names, environ: Mapping[str, str]) -> bool:
    """Whether Slurm's variables are those of a batch script, which is no task of a step."""
    return names is SLURM and "SLURM_JOB_ID" in environ and "SLURM_STEP_ID" not in environ


def _check_nothing_half_said(environ: Mapping[str, str]) -> None:
    for name in ("WORLD_SIZE", "LOCAL_RANK"):
        if name in environ:
            raise ArgumentValueError(
                f"{name} is set, but RANK is not",
                f"{name}={environ[name]}",
                f"set RANK too, or unset {name} for a process by itself",
            )


def _facts(names: Names, environ: Mapping[str, str]) -> dict[str, int]:
    facts = {"rank": _whole(names.rank, environ)}
    for fact in FACTS:
        name = next((name for name in getattr(names, fact) if name in environ), None)
        if name is not None:
            facts[fact] = _whole(name, environ)
    name = next((name for name in names.tasks_per_node if name in environ), None)
    if name is not None:
        counts = _tasks_per_node(name, environ[name])
        if (node := facts.get("node_rank", 0)) < len(counts):
            facts["local_world_size"] = counts[node]
    return facts


def _whole(name: str, environ: Mapping[str, str]) -> int:
    text = environ[name].strip()
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ArgumentValueError(f"{name} must be a whole number, not {environ[name]!r}")
    return int(text)


def _tasks_per_node(name: str, text: str) -> list[int]:
    counts: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([0-9]{1,9})(?:\(x([0-9]{1,6})\))?\s*", part)
        if found is None:
            raise ArgumentValueError(f"{name} must be counts like 2(x3),1, not {text!r}")
        counts += [int(found[1])] * int(found[2] or 1)
    return counts


def _check_agreement(told: list[tuple[Names, dict[str, int]]], environ: Mapping[str, str]) -> None:
    (first, facts), *others = told
    for names, more in others:
        for fact in ("rank", "world_size"):
            if fact in facts and fact in more and facts[fact] != more[fact]:
                ours, theirs = (_name_of(n, fact, environ) for n in (first, names))
                raise ArgumentValueError(
                    f"{first.launcher} and {names.launcher} disagree about the {fact.replace('_', ' ')}",
                    f"{ours}={environ[ours]}",
                    f"{theirs}={environ[theirs]}",
                    "start the ranks by one of the two: python -m lamina launch -n 4 script.py",
                )


def _name_of(names: Names, fact: str, environ: Mapping[str, str]) -> str:
    return names.rank if fact == "rank" else next(n for n in getattr(names, fact) if n in environ)


def _placed(facts: dict[str, int], environ: Mapping[str, str], names: Names) -> Place:
    rank, size = facts["rank"], facts["world_size"]
    local_size = facts.get("local_world_size", size)
    even = 0 < local_size <= size and size % local_size == 0
    nodes = facts.get("nodes", size // local_size if even else 1)
    port = _whole("MASTER_PORT", environ) if "MASTER_PORT" in environ else None
    try:
        return Place(
            rank=rank,
            world_size=size,
            local_rank=facts.get("local_rank", rank % local_size if even else rank),
            local_world_size=local_size,
            node_rank=facts.get("node_rank", rank // local_size if even and nodes > 1 else 0),
            nodes=nodes,
            master_addr=environ.get("MASTER_ADDR"),
            master_port=port,
            told_by=names.launcher,
        )
    except ArgumentValueError as error:
        shown = [f"{name}={environ[name]}" for name in _every_name() if name in environ]
        raise ArgumentValueError(error.rule, *error.details, *shown) from None


def _every_name() -> list[str]:
    lists = [(names.rank, *(n for fact in FACTS for n in getattr(names, fact))) for names in FAMILIES]
    return [name for names in lists for name in names]


def exported(place: Place) -> dict[str, str]:
    """The variables by which torchrun tells a process its place; the master's only where it is known."""
    variables = {
        "RANK": place.rank, "WORLD_SIZE": place.world_size, "LOCAL_RANK": place.local_rank,
        "LOCAL_WORLD_SIZE": place.local_world_size, "GROUP_RANK": place.node_rank,
        "GROUP_WORLD_SIZE": place.nodes, "ROLE_NAME": "default", "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": place.world_size, "MASTER_ADDR": place.master_addr,
        "MASTER_PORT": place.master_port,
    }  # fmt: skip
    return {name: str(value) for name, value in variables.items() if value is not None}


def without_launchers(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment less what a launcher of ranks tells a rank: for a launcher that a rank starts."""
    return {name: value for name, value in environ.items() if not INHERITED.match(name)}
