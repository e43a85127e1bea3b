"""Rooms of PyTorch's for devices and processes that Lamina does not drive: they are there to say so.

Programs ask `torch.distributed.is_initialized()` or `torch.xpu.is_available()` before they do anything else.
"""

from __future__ import annotations

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


_DEVICE = {
    "is_available": _no, "device_count": _none, "empty_cache": _nothing, "synchronize": _nothing,
    "manual_seed": _nothing, "manual_seed_all": _nothing, "is_initialized": _no, "memory_allocated": _none,
    "max_memory_allocated": _none, "memory_reserved": _none, "is_bf16_supported": _no,
}  # fmt: skip
_NO_DEVICE = "there is no such device"
xpu = _room("xpu", _NO_DEVICE, "Stream", "Event", "device", **_DEVICE)
mps = _room("mps", _NO_DEVICE, current_allocated_memory=_none, driver_allocated_memory=_none, **_DEVICE)
mtia = _room("mtia", _NO_DEVICE, **_DEVICE)
hpu, npu, mlu, musa = (_room(name, _NO_DEVICE, **_DEVICE) for name in ("hpu", "npu", "mlu", "musa"))

_LATER = "this part of it is not built"
PyTorchFileReader = kind("PyTorchFileReader", "", "load(mmap=True) reads tensors when they are used")
# By their names below `torch`, what is entered when it is imported: what is not built of what processes do
# together, and what programs import ahead of kernels of their own, beside which they have plain code.
LATE = {
    f"distributed.{name}": _room(f"distributed.{name}", _LATER, *names, **offered)
    for name, names, offered in (
        ("checkpoint.hf_storage", ("HuggingFaceStorageReader", "HuggingFaceStorageWriter"), {}),
        ("elastic", (), {}),
        ("rpc", ("RRef", "TensorPipeRpcBackendOptions", "WorkerInfo"), {"is_available": _no}),
    )
}
LATE["utils.cpp_extension"] = _room(
    "utils.cpp_extension", "nothing is compiled against PyTorch's headers", "BuildExtension", "CppExtension",
    "CUDAExtension", "load", "load_inline", "include_paths", CUDA_HOME=None, is_ninja_available=_no,
)  # fmt: skip

_TRACE = "jit.export(f, inputs, path) writes a traced function, with its kernels"
export = _room("export", _TRACE, "ExportedProgram", "Dim")
_flex = _room(
    "nn.attention.flex_attention", "scaled_dot_product_attention(attn_mask=...) takes any mask", "BlockMask"
)
