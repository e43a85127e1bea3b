"""Groups of ranks: joining all of them, parts of them, and who is who."""

from __future__ import annotations

import datetime
import os
import socket
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import meeting, pretended_gpus
from ..ir.errors import ArgumentError, ArgumentValueError, DeviceError, DistributedError
from ..ir.types import Device
from ..runtime.changes import advance_objects
from . import rendezvous
from .store import seconds
from .work import Work, followed

if TYPE_CHECKING:
    from .transport import Channel, World

_NAME = 64  # bytes of a host's name
# PyTorch's for CPUs.
DEFAULT_TIMEOUT = datetime.timedelta(minutes=30)
_BACKENDS = ("mpi", "gloo", "local")
_OUTSIDE: Any = object()  # what `new_group` gives ranks that are not in it


class ProcessGroup:
    """Some ranks that meet in collectives.

    ranks: their numbers among all, in their order within the group.  name: PyTorch's `group_name`.
    communicator: of their GPUs, with backend="nccl" (nccl.py).
    """

    communicator: Any = None

    def __init__(self, channel: Channel, ranks: tuple[int, ...], name: str, backend: str, desc: str = ""):
        self._channel, self.ranks, self._name, self._backend = channel, ranks, name, backend
        self.group_desc = desc or "undefined"

    def rank(self) -> int:
        """This process's number within the group."""
        return self._channel.rank

    def size(self) -> int:
        """How many ranks it has."""
        return len(self.ranks)

    def name(self) -> str:
        """Its backend's name."""
        return self._backend

    @property
    def group_name(self) -> str:
        """A name that all ranks have it by."""
        return self._name

    @property
    def channel(self) -> Channel:
        """What carries its collectives of tensors.

        Raises ArgumentValueError once it was destroyed, DeviceError with backend="nccl".
        """
        self.need_host_memory()
        return self.side

    def need_host_memory(self) -> None:
        """Raise DeviceError where the group moves no tensors: they are on the CPU, and nccl is for GPUs."""
        if self._backend == "nccl":
            raise _on_the_cpu()

    @property
    def side(self) -> Channel:
        """What carries all that is no tensor, as barriers do.  Raises ArgumentValueError once destroyed."""
        if _STATE.groups.get(self._name) is not self:
            raise ArgumentValueError(f"the process group {self._name!r} was destroyed")
        return self._channel

    def __repr__(self) -> str:
        return f"ProcessGroup(ranks={list(self.ranks)}, backend={self._backend!r})"

    def __reduce__(self) -> Any:
        raise ArgumentError("a ProcessGroup can't be pickled: another process has another part in it")


def _on_the_cpu() -> DeviceError:
    return DeviceError(
        'backend="nccl" moves the memory of GPUs, and tensors are on the CPU',
        'init_process_group(backend="mpi") moves these; lamina.distributed.nccl.get_communicator() takes '
        "addresses of a GPU's memory",
    )


class _State:
    """What this process has joined.

    world: all ranks, kept for the life of the process, as MPI can be left once.  groups: by name.  carried:
    by ranks, the channel that ops take.  among_all: that of all ranks, where they are several.
    """

    def __init__(self) -> None:
        self.world: World | None = None
        self.default: ProcessGroup | None = None
        self.groups: dict[str, ProcessGroup] = {}
        self.carried: dict[tuple[int, ...], Channel] = {}
        self.among_all: Channel | None = None


_STATE = _State()


class _Carrier:
    """What ops reach other ranks by: the channel of their group."""

    def __init__(self, everyone: tuple[int, ...], rank: int):
        self.everyone, self.rank = everyone, rank

    def start(self, kind: str, attrs: Any, inputs: Any, outputs: Any, ahead: bool = False) -> Any:
        flight = channel_of(attrs["group"], kind).start(kind, attrs, inputs, outputs)
        return followed(Work(flight), outputs[0].nbytes) if ahead and flight.goes_ahead else flight


def channel_of(ranks: tuple[int, ...], name: str) -> Channel:
    """The channel between these ranks.  Raises ArgumentValueError for a group that was never made."""
    channel = _STATE.carried.get(ranks)
    if channel is None:
        if any(g.ranks == ranks and g.name() == "nccl" for g in _STATE.groups.values()):
            raise _on_the_cpu()
        raise ArgumentValueError(
            f"{name}: there is no group of the ranks {list(ranks)} that this process is in",
            "every rank makes it first: new_group(ranks)",
        )
    return channel


# ---- joining and leaving
def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join all ranks of this job; every process of it calls this first.

    backend: "mpi"; "gloo" means the same; "local" too, of ranks on one machine alone; "nccl"
    joins the ranks' GPUs, by addresses alone (nccl.py), and is "mpi" where GPUs are pretended.
    Processes that mpiexec, srun or `python -m lamina launch` started meet through that.  Others, with RANK,
    WORLD_SIZE, MASTER_ADDR and MASTER_PORT in their environment, as torchrun leaves them, or with
    `init_method="tcp://host:port"` or "file:///path", rank and world_size, meet there; one without any of
    these is a job of one rank.  timeout: after which a collective that nobody comes to raises

    Raises ArgumentValueError for what can't be, and where it was called before; ImportError without mpi4py.
    """
    if _STATE.default is not None:
        raise ArgumentValueError("trying to initialize the default process group twice!")
    name = _backend(backend)
    limit = seconds(timeout, DEFAULT_TIMEOUT)
    nccl = import_module(".nccl", __package__) if name == "nccl" else None
    if nccl is not None:
        nccl.need()
    met = rendezvous.prepare(init_method, rank, world_size, store)
    world = _STATE.world
    if world is None:
        transport = import_module(".transport", __package__)  # loads MPI, which joins the job
        world = _STATE.world = transport.join(limit)
        if met not in (None, world.size):
            mpi = import_module(".mpi", __package__).library()
            raise DistributedError(
                f"init_process_group: {world.size} of {met} ranks met by {mpi}",
                "without a launcher ranks meet by MPICH's protocol alone: install no other MPI",
                "or start them by mpiexec, or python -m lamina launch",
            )
    for asked, known, what in ((world_size, world.size, "world_size"), (rank, world.rank, "rank")):
        if asked not in (-1, known):
            raise ArgumentValueError(
                f"init_process_group({what}={asked}): this process is rank {world.rank} of {world.size}",
                "what started it says so: leave rank and world_size out",
            )
    rendezvous.export(world.rank, world.size, world.local_rank, len(world.near))
    world.channel.timeout = limit
    world.channel.checked = _is_checked()
    if name == "local":
        need_one_machine(world.channel)
    default = ProcessGroup(world.channel, tuple(range(world.size)), "0", name, "default_pg")
    if nccl is not None:
        default.communicator = nccl.connect(world.channel, world.local_rank)
    _STATE.default = default
    _STATE.groups["0"] = default
    if nccl is None:
        _STATE.carried[default.ranks] = world.channel
        _STATE.among_all = world.channel if len(default.ranks) > 1 else None
    _enter(_Carrier(default.ranks, world.rank))


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leave a group; the default one: all groups, and `init_process_group` may be called again."""
    found = default_group() if group is None or group is _STATE.default else group
    if found is _STATE.default:
        for other in list(_STATE.groups.values()):
            _forget(other)
        _STATE.groups.clear()
        _STATE.carried.clear()
        _STATE.default = _STATE.among_all = None
        rendezvous.forget()
        _enter(None)
    else:
        _ = found.side  # or it was destroyed before
        _forget(found)


def _enter(carrier: _Carrier | None) -> None:
    meeting.enter(carrier)
    advance_objects()  # what was recorded before is not of these processes


def _forget(group: ProcessGroup) -> None:
    """Give back what a group has; another one of the same ranks carries their ops from then on."""
    if group.communicator is not None:
        group.communicator.destroy()
    _STATE.groups.pop(group.group_name, None)
    channel = group._channel
    if _STATE.carried.get(group.ranks) is channel:
        others = (g._channel for g in _STATE.groups.values() if g.ranks == group.ranks and g.name() != "nccl")
        if (other := next(others, None)) is not None:
            _STATE.carried[group.ranks] = other
        else:
            del _STATE.carried[group.ranks]
    if channel is not channel.world.channel:
        channel.free()


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: datetime.timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """Make a group of some ranks, all unless given; every rank of the job calls this, in it or not.

    With `use_local_synchronization` those in it alone call it.  Returns the ProcessGroup;
    `GroupMember.NON_GROUP_MEMBER` on a rank that is not in it.  Raises ArgumentValueError for a rank that
    there is none of, or twice the same.
    """
    world = need_world()
    chosen = tuple(range(world.size)) if ranks is None else tuple(ranks)
    if ranks is not None and not use_local_synchronization:
        chosen = tuple(sorted(chosen))
    _check_ranks("new_group", chosen, world.size)
    number = world.number_among(chosen) if use_local_synchronization else world.number()
    name = default_group().name() if backend is None else _backend(backend)
    limit = world.channel.timeout if timeout is None else seconds(timeout, DEFAULT_TIMEOUT)
    channel = world.subset(chosen, number, limit)
    if channel is None:
        return _OUTSIDE
    channel.checked = _is_checked()
    if name == "local":
        need_one_machine(channel)
    made = ProcessGroup(channel, chosen, str(number), name, group_desc or "")
    if name == "nccl":
        made.communicator = import_module(".nccl", __package__).connect(channel, world.local_rank)
    else:
        _STATE.carried.setdefault(chosen, channel)
    _STATE.groups[made.group_name] = made
    return made


def new_subgroups(
    group_size: int | None = None, group: Any = None, timeout: Any = None, backend: Any = None, **_: Any
) -> tuple[Any, list[Any]]:
    """Cut all ranks into groups of `group_size` neighbours, those of a machine unless given.

    Returns the group that this rank is in, and all.  Raises ArgumentValueError if they don't come out even.
    """
    world = need_world()
    size = len(world.near) if group_size is None else group_size
    if size < 1 or world.size % size:
        raise ArgumentValueError(
            f"new_subgroups({size}): the world size {world.size} must be divisible by it"
        )
    parts = [list(range(i, i + size)) for i in range(0, world.size, size)]
    return new_subgroups_by_enumeration(parts, timeout, backend)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: Any = None, backend: Any = None, **_: Any
) -> tuple[Any, list[Any]]:
    """Make one group for each list of ranks.  Returns the one that this rank is in (or None), and all."""
    every = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if not every or len(set(every)) < len(every):
        raise ArgumentValueError("new_subgroups_by_enumeration: lists of ranks, of which none is in two")
    made = [new_group(ranks, timeout, backend) for ranks in ranks_per_subgroup_list]
    own = [group for group in made if isinstance(group, ProcessGroup)]
    return (own[0] if own else None), made


def _check_ranks(name: str, ranks: tuple[int, ...], size: int) -> None:
    if not ranks or len(set(ranks)) < len(ranks) or not all(isinstance(r, int) for r in ranks):
        raise ArgumentValueError(f"{name}(ranks): distinct ranks, at least one, not {list(ranks)}")
    if not all(0 <= r < size for r in ranks):
        raise ArgumentValueError(f"{name}(ranks): ranks are 0 … {size - 1}, not {list(ranks)}")


def _backend(name: str | None) -> str:
    asked = "mpi" if name is None or name == "" else str(name).lower()
    for part in asked.split(","):  # "cpu:gloo,cuda:nccl"
        device, _, one = part.rpartition(":")
        if one in _BACKENDS and device in ("", "cpu"):
            return one
    if asked in ("nccl", "cuda:nccl"):
        return "mpi" if pretended_gpus.count() else "nccl"
    raise ArgumentValueError(f"the backend {name!r}: one of {', '.join(_BACKENDS)}, nccl")


def _is_checked() -> bool:
    """Whether each collective is compared on all ranks first, as PyTorch's variable asks."""
    return os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper() == "DETAIL"


# ---- who is who
def is_available() -> bool:
    """Whether there is an MPI to join by: mpi4py is installed."""
    return find_spec("mpi4py") is not None


def is_mpi_available() -> bool:
    """Whether backend="mpi" can be used."""
    return is_available()


def is_gloo_available() -> bool:
    """Whether backend="gloo" can be used, which is MPI."""
    return is_available()


def is_nccl_available() -> bool:
    """Whether backend="nccl" moves tensors: where GPUs are pretended, and then it is MPI."""
    return pretended_gpus.count() > 0 and is_available()


def is_initialized() -> bool:
    """Whether this process has joined its job's ranks."""
    return _STATE.default is not None


def is_torchelastic_launched() -> bool:
    """Whether a launcher that starts failed jobs anew started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def default_group() -> ProcessGroup:
    """The group of all ranks.  Raises ArgumentValueError before `init_process_group`."""
    if _STATE.default is None:
        raise ArgumentValueError(
            "Default process group has not been initialized, please make sure to call init_process_group."
        )
    return _STATE.default


def channel_among_all() -> Channel | None:
    """What carries tensors of all ranks, where there are several and one may."""
    return _STATE.among_all


def need_world() -> World:
    """All ranks, joined.  Raises ArgumentValueError before `init_process_group`."""
    default_group()
    assert _STATE.world is not None
    return _STATE.world


def resolved(group: Any) -> ProcessGroup | None:
    """The group that a caller means: None is all ranks.  None for a group that this process is not in."""
    if group is None or group is GroupMember.WORLD:
        return default_group()
    if group is _OUTSIDE:
        return None
    if not isinstance(group, ProcessGroup):
        raise ArgumentError(f"group: a ProcessGroup or None, not {type(group).__name__}")
    return group


def get_rank(group: Any = None) -> int:
    """This process's number within a group, -1 outside of it.  Raises ArgumentValueError before joining."""
    found = resolved(group)
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks a group has, -1 outside of it.  Raises ArgumentValueError before joining."""
    found = resolved(group)
    return -1 if found is None else found.size()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number among those of its machine."""
    if _STATE.world is not None:
        return _STATE.world.local_rank
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise ArgumentValueError("get_node_local_rank: nothing says so yet", "init_process_group() first")
    return fallback_rank


def get_backend(group: Any = None) -> str:
    """The name that a group's backend was asked for by."""
    found = resolved(group)
    if found is None:
        raise ArgumentValueError("get_backend(group): this process is not in it")
    return found.name()


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks of a group, by their numbers among all."""
    found = resolved(group)
    if found is None:
        raise ArgumentValueError("get_process_group_ranks(group): this process is not in it")
    return list(found.ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The number among all of the `group_rank`-th rank of a group."""
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise ArgumentValueError(f"get_global_rank: the group has no rank {group_rank}, but {len(ranks)}")
    return ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The number within a group of a rank."""
    ranks = get_process_group_ranks(group)
    if global_rank not in ranks:
        raise ArgumentValueError(f"get_group_rank: rank {global_rank} is not part of group {ranks}")
    return ranks.index(global_rank)


def outside(name: str) -> None:
    """Warn that a rank called a collective of a group that it is not in, which does nothing."""
    warnings.warn(f"Running {name} on global rank {get_rank()} which does not belong to the given group.",
                  stacklevel=4)  # fmt: skip


class GroupMember:
    """`GroupMember.WORLD`, all ranks, and what `new_group` returns to a rank that is not in it."""

    NON_GROUP_MEMBER = _OUTSIDE

    class _World:
        """Stands for all ranks."""

    WORLD: Any = _World


group = GroupMember  # PyTorch's other name of it


class Backend(str):
    """A backend's name, as PyTorch has it: in small letters, one that there is."""

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    default_device_backend_map = {"cpu": "gloo"}

    def __new__(cls, name: str) -> Backend:
        """Raises ArgumentValueError for a name that is no str."""
        if not isinstance(name, str):
            raise ArgumentValueError(f"Backend constructor parameter must be string-ish, not {name!r}")
        return super().__new__(cls, name.lower())


def get_default_backend_for_device(device: Any) -> str:
    """The backend of groups with tensors on a device: "gloo", "nccl" on a pretended GPU; both are MPI."""
    return "nccl" if pretended_gpus.count() and Device(device).type == "cuda" else "gloo"


def get_pg_count() -> int:
    """How many groups this process is in."""
    return len(_STATE.groups)


def need_one_machine(channel: Channel) -> None:
    """Raises DistributedError on each rank where not all of a channel's share a machine: who is where.

    MPI sees by itself which ranks do, and has memory for them that they share: of backend="local" no byte
    leaves the machine.
    """
    if set(channel.ranks) <= set(channel.world.near):
        return
    own = np.zeros(_NAME, np.uint8)
    name = socket.gethostname().encode()[:_NAME]
    own[: len(name)] = np.frombuffer(name, np.uint8)
    names = [np.empty(_NAME, np.uint8) for _ in channel.ranks]
    channel.exchange('the hosts of backend="local"', [own] * channel.size, names).wait()
    hosts = [bytes(one).rstrip(b"\0").decode("utf-8", "replace") for one in names]
    raise DistributedError(
        'backend="local" is for ranks of one machine, and these are on several',
        *[f"rank {rank}: host {host}" for rank, host in zip(channel.ranks, hosts, strict=True)],
        f"this rank shares its machine with {[r for r in channel.world.near if r in channel.ranks]}",
        'backend="mpi" is for several; new_group(ranks, backend="local") makes a group of those of one',
    )
