"""What programs set and ask around PyTorch's compilers and profilers of GPUs, which changes nothing here."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Optional, Union

from ..runtime import Tensor, batched
from . import pytree
from .absent import _nothing, _room
from .compiler import ROOT, Switches


def _module(name: str, doc: str, **names: Any) -> ModuleType:
    made = ModuleType(f"{ROOT}.{name}", doc)
    vars(made).update(names, __path__=[])
    return made


written_types = _module(
    "jit.annotations", "What programs write types with.", Any=Any, Dict=dict, List=list, Optional=Optional,
    Tuple=tuple, Union=Union,
)  # fmt: skip


# ---- PyTorch's compilers -----------------------------------------------------------------------------------
inductor = _module(
    "_inductor", "The compiler that PyTorch has below torch.compile.", config=Switches("_inductor.config")
)
for _part in ("triton", "cpp", "cuda", "aot_inductor", "trace", "test_configs"):
    setattr(inductor.config, _part, Switches(f"_inductor.config.{_part}"))
functorch = _module("_functorch", "What PyTorch has below torch.func.", config=Switches("_functorch.config"))
functorch_vmap = _module(
    "_functorch.vmap", "What containers that are mapped over call and replace.", Tensor=Tensor,
    _add_batch_dim=lambda tensor, in_dim, level: level.wrap(batched.to_front(tensor, in_dim)),
    _broadcast_to_and_flatten=pytree._broadcast_to_and_flatten,
    _get_name=lambda func: getattr(func, "__name__", repr(func)),
    _maybe_remove_batch_dim=lambda name, out, level, size, out_dim: batched.taken_out(level, out, out_dim),
    tree_flatten=pytree.tree_flatten, tree_unflatten=pytree.tree_unflatten,
)  # fmt: skip
batched.REPLACED = vars(functorch_vmap)
functorch_C = _module(
    "_C._functorch", "What vmap is made of.", _add_batch_dim=functorch_vmap._add_batch_dim,
    _remove_batch_dim=lambda out, level, size, out_dim: batched.taken_out(level, out, out_dim),
    get_unwrapped=lambda tensor: tensor._inside(),
    is_batchedtensor=lambda tensor: isinstance(tensor, batched.Batched),
)  # fmt: skip
guards = _room("_guards", "nothing is traced by fake tensors", active_fake_mode=_nothing)
subclasses = _room(
    "_subclasses", "the meta device has tensors without values", "FakeTensor", "FakeTensorMode"
)


def set_logs(**components: Any) -> None:
    """Do nothing: LAMINA_LOG=trace prints what is recorded as it happens."""


logging = _module("_logging", "What PyTorch's compiler prints.", set_logs=set_logs)
dynamo_utils = _module(
    "_dynamo.utils", "What PyTorch's compiler counts: here nothing.", counters=defaultdict(Counter)
)


class _Errors(ModuleType):
    """What PyTorch's compiler raises; here it is what `fullgraph=True` does."""

    def __getattr__(self, name: str) -> Any:
        if name not in ("TorchDynamoException", "Unsupported", "BackendCompilerFailed", "UserError"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return import_module(f"{ROOT}.jit").RefusedError


dynamo_errors = _Errors(f"{ROOT}._dynamo.exc", _Errors.__doc__)


# ---- profilers of GPUs -------------------------------------------------------------------------------------
@contextlib.contextmanager
def _noted(*_: Any, **__: Any) -> Iterator[None]:
    """Do nothing around a block: no profiler of a GPU listens."""
    yield


nvtx = _module(
    "cuda.nvtx", "Notes for NVIDIA's profilers.",
    range=_noted, range_push=_nothing, range_pop=_nothing, range_start=_nothing, range_end=_nothing,
    mark=_nothing,
)  # fmt: skip
cuda_profiler = _module(
    "cuda.profiler", "NVIDIA's profilers.", start=_nothing, stop=_nothing, init=_nothing, profile=_noted
)
