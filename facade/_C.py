"""`lamina._C`: what programs reach for in PyTorch's extension module."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import ref

from ..ir.dtypes import DType
from ..ir.errors import GradError
from ..ir.errors import LinAlgError as _LinAlgError
from ..ir.types import Device
from ..nn import functional
from ..nn.module import destination
from ..runtime import Tensor, modes, ops
from ..runtime.backward_graph import Node
from ..runtime.function import Function
from ..runtime.graph import Leaf
from ..runtime.modes import is_grad_enabled
from ..runtime.overriding import DisableTorchFunction, DisableTorchFunctionSubclass
from ..runtime.packing import SavedTensor
from ..runtime.subclassing import disabled_torch_function as _disabled_torch_function_impl
from .absent import kind


class _WeakTensorRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Tensor):
        self._tensor = ref(tensor)

    def expired(self) -> bool:
        """Whether the tensor is gone."""
        return self._tensor() is None


class _Identity(Function):
    """A tensor as it is, whose gradient `rule` gives."""

    @staticmethod
    def forward(ctx: Any, rule: Any, *inputs: Tensor) -> Any:
        ctx.rule = rule
        ctx.set_materialize_grads(False)
        return inputs if len(inputs) > 1 else inputs[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return None, *ctx.rule(*cotangents)


class UndefinedGrad:
    """Hands tensors through, and no gradient back."""

    def __call__(self, *inputs: Tensor) -> Any:
        return _Identity.apply(lambda *gs: [None] * len(gs), *inputs)


class DelayedError:
    """Hands tensors through; a gradient of them raises GradError with this message."""

    def __init__(self, msg: str, num_inputs: int):
        self.msg, self.num_inputs = msg, num_inputs

    def __call__(self, *inputs: Tensor) -> Any:
        def rule(*_: Any) -> Any:
            raise GradError(self.msg)

        return _Identity.apply(rule, *inputs)


for _kind in (UndefinedGrad, DelayedError):  # PyTorch's are nodes themselves
    Node.register(_kind)


def _hooks_are_open() -> bool:
    return modes.local.unpacked is None


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Device | None, DType | None, bool, Any]:
    """The device, the dtype, whether not to wait, and the layout that arguments of `to` name."""
    layout = kwargs.get("memory_format")
    device, dtype = destination(args, kwargs)
    return None if device is None else Device(device), dtype, False, layout


class _NN(ModuleType):
    """Where PyTorch keeps `gelu` and its kin: pickles name them here."""

    _parse_to = staticmethod(_parse_to)

    def __getattr__(self, name: str) -> Any:
        return getattr(functional, name)


class _VariableFunctionsKind(type):
    def __getattr__(cls, name: str) -> Any:
        return getattr(ops, name)


class _Functions(ModuleType):
    """Where PyTorch's Python code finds ops: copies of it ask here."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(__name__.partition(".")[0]), name)


class _VariableFunctionsClass(metaclass=_VariableFunctionsKind):
    """Where PyTorch keeps `relu` and its kin: pickles name them as attributes of it."""


_nn = _NN(f"{__name__}._nn")
_VF = _Functions(f"{__name__.partition('.')[0]}._VF")
_functions = SimpleNamespace(AccumulateGrad=Leaf, DelayedError=DelayedError, UndefinedGrad=UndefinedGrad)
_autograd = SimpleNamespace(SavedTensor=SavedTensor, _saved_tensors_hooks_is_enabled=_hooks_are_open)

_TensorMeta = type(Tensor)
Graph, Value = (
    kind(name, "_C", "the graphs of PyTorch's own compiler are not here") for name in ("Graph", "Value")
)


def _switch(enabled: bool) -> bool:
    """Change nothing: PyTorch's own compiler, whose switch it is, is not here.  Returns that it is off."""
    return False


_jit_set_profiling_executor = _jit_set_profiling_mode = _jit_set_texpr_fuser_enabled = _switch
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_nvfuser_enabled = _switch


def _log_api_usage_once(*_: Any) -> None:
    """Count nothing."""


def _get_default_device() -> str:
    """The kind of device where new tensors are made."""
    return modes.local.device.type if modes.local.device else "cpu"


def _get_tracing_state() -> None:
    """PyTorch's tracer, which is not there."""


__all__ = [
    "DisableTorchFunction", "DisableTorchFunctionSubclass", "Graph", "Value", "_LinAlgError",
    "_WeakTensorRef", "_autograd", "_disabled_torch_function_impl", "_functions",
    "_get_default_device", "_get_tracing_state", "_nn", "_log_api_usage_once", "is_grad_enabled",
]  # fmt: skip
