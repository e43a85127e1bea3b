"""Rooms of PyTorch's for devices and processes that Lamina does not drive: they are there to say so.

Programs ask `torch.distributed.is_initialized()` or `torch.xpu.is_available()` before they do anything else.
"""

from __future__ import annotations

import enum
from types import ModuleType
from typing import Any, NoReturn

from ..ir.errors import ArgumentValueError


class _Absent(ModuleType):
    """A room whose other names are refused with what to do instead."""

    __path__: Any = ()  # a package: what stands below it is looked for

    def __init__(self, name: str, instead: str, **offered: Any):
        super().__init__(
            f"lamina.{name}", f"What PyTorch keeps in torch.{name}, of which nothing is here: {instead}."
        )
        self.__dict__.update(offered, _instead=instead)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Lamina has no torch.{self.__name__.partition('.')[2]}.{name}: {self._instead}")


def kind(name: str, room: str, instead: str) -> type:
    """A class that programs ask `isinstance` of, and of which nothing can be made here."""

    below = f".{room}" if room else ""

    def refuse(cls: type, *_: Any, **__: Any) -> NoReturn:
        raise ArgumentValueError(f"Lamina has no torch{below}.{name}: {instead}")

    doc = f"What nothing here is: {instead}."
    return type(name, (), {"__new__": refuse, "__module__": f"lamina{below}", "__doc__": doc})


def _kinds(room: str, instead: str, *names: str) -> dict[str, type]:
    return {name: kind(name, room, instead) for name in names}


def _room(room: str, instead: str, *names: str, **offered: Any) -> _Absent:
    return _Absent(room, instead, **_kinds(room, instead, *names), **offered)


def _no(*_: Any, **__: Any) -> bool:
    """False: there is none."""
    return False


def _none(*_: Any, **__: Any) -> int:
    """0: there is none."""
    return 0


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: there is none."""


def _alone(*_: Any, **__: Any) -> NoReturn:
    """Refuse: there is no group of processes."""
    raise ArgumentValueError(
        "Default process group has not been initialized: Lamina runs in one process",
        "ask is_initialized() first",
    )


def _refusing(room: str, instead: str, *names: str) -> dict[str, Any]:
    """Functions that programs import ahead of time, refused where they are called."""

    def one(name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> NoReturn:
            raise ArgumentValueError(f"torch.{room}.{name}(): {instead}", "ask is_available() first")

        refuse.__name__ = refuse.__qualname__ = name
        refuse.__doc__ = f"Refused: {instead}."
        return refuse

    return {name: one(name) for name in names}


def _as_it_is(fn: Any = None, *_: Any, **__: Any) -> Any:
    return fn


_DEVICE = {
    "is_available": _no, "device_count": _none, "empty_cache": _nothing, "synchronize": _nothing,
    "manual_seed": _nothing, "manual_seed_all": _nothing, "is_initialized": _no, "memory_allocated": _none,
    "max_memory_allocated": _none, "memory_reserved": _none, "is_bf16_supported": _no,
}  # fmt: skip
_NO_DEVICE = "there is no such device"
_NO_STREAMS = "eager runs on the CPU, in order"
Stream, Event = (kind(name, "", _NO_STREAMS) for name in ("Stream", "Event"))
xpu = _room("xpu", _NO_DEVICE, "Stream", "Event", "device", **_DEVICE)
mps = _room("mps", _NO_DEVICE, current_allocated_memory=_none, driver_allocated_memory=_none, **_DEVICE)
mtia = _room("mtia", _NO_DEVICE, **_DEVICE)
hpu, npu, mlu, musa = (_room(name, _NO_DEVICE, **_DEVICE) for name in ("hpu", "npu", "mlu", "musa"))
accelerator = _Absent(
    "accelerator", "eager runs on the CPU", is_available=_no, device_count=_none,
    current_accelerator=lambda check_available=False: None, synchronize=_nothing,
)  # fmt: skip

_ONE = "it runs in one process"


class _ReduceOp(enum.Enum):
    """How processes would combine their tensors."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)


class _Group:
    """The group of all processes: there is none."""

    WORLD = None


distributed = _Absent(
    "distributed", _ONE, is_available=_no, is_initialized=_no, get_rank=_alone,
    get_world_size=_alone, barrier=_alone, get_backend=_alone, is_torchelastic_launched=_no,
    is_nccl_available=_no, is_gloo_available=_no, is_mpi_available=_no, is_ucc_available=_no,
    **_kinds("distributed", _ONE, "ProcessGroup", "Work", "DeviceMesh"), ReduceOp=_ReduceOp,
    group=_Group, GroupMember=_Group,
    **_refusing(
        "distributed", _ONE, "init_process_group", "destroy_process_group", "new_group", "monitored_barrier",
        "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all",
        "all_to_all_single", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce",
        "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "recv", "isend",
        "irecv", "get_process_group_ranks", "get_global_rank", "get_group_rank",
    ),
)  # fmt: skip
PyTorchFileReader = kind("PyTorchFileReader", "", "load(mmap=True) reads tensors when they are used")
DistributedDataParallel = kind("DistributedDataParallel", "nn.parallel", _ONE)
_mesh = _room("distributed.device_mesh", _ONE, "DeviceMesh", init_device_mesh=_alone)
vars(_mesh)["DeviceMesh"] = distributed.__dict__["DeviceMesh"]
_tensor = _room(
    "distributed.tensor", _ONE, "DTensor", "Placement", "Replicate", "Shard", "Partial",
    distribute_tensor=_alone, distribute_module=_alone,
)  # fmt: skip
_fsdp = _room(
    "distributed.fsdp", _ONE, "FullyShardedDataParallel", "FSDPModule", "MixedPrecision",
    "MixedPrecisionPolicy", "CPUOffload", "CPUOffloadPolicy", "ShardingStrategy", "StateDictType",
    fully_shard=_alone,
)  # fmt: skip
# By their names below `torch`.
DISTRIBUTED = {
    "distributed": distributed,
    "distributed.device_mesh": _mesh,
    "distributed.tensor": _tensor,
    "distributed.fsdp": _fsdp,
    "distributed.nn": _room("distributed.nn", _ONE),
    "distributed.algorithms": _room("distributed.algorithms", _ONE),
    "distributed.checkpoint": _room("distributed.checkpoint", _ONE),
    "distributed.distributed_c10d": distributed,
    "distributed.elastic": _room("distributed.elastic", _ONE),
    "distributed._functional_collectives": _room("distributed._functional_collectives", _ONE),
}
for _name, _below in DISTRIBUTED.items():
    if _name != "distributed":
        vars(distributed)[_name.partition(".")[2]] = _below

_TRACE = "jit.export(f, inputs, path) writes a traced function, with its kernels"
export = _room("export", _TRACE, "ExportedProgram", "Dim")
_flex = _room(
    "nn.attention.flex_attention", "scaled_dot_product_attention(attn_mask=...) takes any mask", "BlockMask"
)
