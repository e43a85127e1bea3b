"""`autograd.graph`: looking at the nodes of history, hooks on them, and on what they save.

Importing this module hangs `register_hook`, `register_prehook` and PyTorch's `_saved_*` on nodes.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from threading import get_ident
from types import SimpleNamespace
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, GradError
from . import autograd, modes
from .creation import Variable
from .function import Context
from .graph import GradientEdge, Leaf, Port, hooks_of
from .graph import Node as _Step
from .history import storage_of
from .methods import Handle, hooked
from .packing import (
    Packing,
    SavedTensor,
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)
from .step import AFTER, BEFORE, unpack
from .tensor import Tensor


class Node(abc.ABC):  # noqa: B024
    """What history consists of: steps, where leaves take gradients, what a Function's methods are given.

    They are no subclasses, and answer isinstance and issubclass.
    """


for _kind in (_Step, Leaf, Context):
    Node.register(_kind)


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """Where the gradient of a tensor is found.  Raises ArgumentError, GradError."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"get_gradient_edge(tensor): takes a tensor, not {type(tensor).__name__}")
    node = tensor._node
    if node is None:
        raise GradError("get_gradient_edge: the tensor does not require gradients", f"tensor: {tensor._meta}")
    return GradientEdge(node.node if type(node) is Port else node, tensor.output_nr)


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Count a write into tensors that nobody else could count."""
    for x in (tensor,) if isinstance(tensor, Tensor) else tuple(tensor):
        if not isinstance(x, Tensor):
            raise ArgumentError(f"increment_version(tensor): takes tensors, not {type(x).__name__}")
        storage_of(x).written(("increment_version", None))


# ---- hooks on nodes ----------------------------------------------------------------------------------------
def _hang(node: Any, key: str, hook: Callable) -> Handle:
    if not callable(hook):
        raise ArgumentError(f"a hook on a node must be callable, not {type(hook).__name__}")
    hooks = hooks_of(node).setdefault(key, [])
    hooks.append(hook)
    hooked(type(hook).__name__)
    return Handle(hooks, hook)


def _register_hook(self: Any, fn: Callable) -> Handle:
    """Call `fn(grad_inputs, grad_outputs)`, tuples, when they are known; what it returns replaces the
    former."""
    return _hang(self, AFTER, fn)


def _register_prehook(self: Any, fn: Callable) -> Handle:
    """Call `fn(grad_outputs)`, a tuple, before they are used; what it returns replaces them."""
    return _hang(self, BEFORE, fn)


class _Gathering:
    """What `register_multi_grad_hook` gathers, apart for each walk: by thread, and by the walk's own list."""

    def __init__(self, count: int, fn: Callable, all_of_them: bool):
        self.fn, self.all, self.count = fn, all_of_them, count
        self.found: dict[int, tuple[list, dict[int, Tensor]]] = {}

    def take(self, at: int, gradient: Tensor) -> None:
        me, walk = get_ident(), autograd.waiting_here()
        known = self.found.get(me)
        if known is None or known[0] is not walk:  # the first of this walk; what is known failed
            walk = autograd.when_done(self._finish)
            self.found[me] = known = walk, {}
            if not self.all:
                modes.call_user(self.fn, gradient)
        known[1][at] = gradient

    def _finish(self) -> None:
        _, found = self.found.pop(get_ident())
        if self.all:
            modes.call_user(self.fn, [found.get(i) for i in range(self.count)])


class _Handles:
    def __init__(self, handles: list[Handle]):
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all") -> _Handles:
    """Call `fn` when gradients of these tensors are known in a backward.

    mode "all": with the list of them, None for what got none, once the walk is done.  mode "any": with the
    first.
    """
    if mode not in ("all", "any"):
        raise ArgumentValueError(
            f"register_multi_grad_hook: Expects mode to be one of ('all', 'any') but got {mode}"
        )
    gathering = _Gathering(len(tensors), fn, mode == "all")

    def taking(at: int) -> Callable:
        return lambda gradient: gathering.take(at, gradient)

    return _Handles([x.register_hook(taking(i)) for i, x in enumerate(tensors)])


def queue_callback(callback: Callable) -> None:
    """Call this when the backward that runs in this thread is done.  Raises GradError outside of one."""
    if not callable(callback):
        raise ArgumentError(f"queue_callback: must be callable, not {type(callback).__name__}")
    if not autograd.is_walking():
        raise GradError("Final callbacks can only be installed during backward pass.")
    autograd.when_done(lambda: modes.call_user(callback))


# ---- what a node saved -------------------------------------------------------------------------------------
_NAMES = {"self": "input", "result": "out", "mat2": "other"}


def _saved(self: _Step, name: str) -> Any:
    """PyTorch's `_saved_self` and its kin: an operand or output that was saved, or an argument of the op."""
    if self.plan.foreign and not name.startswith(("__", "_raw_saved_")):
        plan: Any = self.plan
        return getattr(plan.ctx, name)  # what forward left there
    if name.startswith("_raw_saved_"):
        return _raw_saved(self, name.removeprefix("_raw_saved_"))
    if not name.startswith("_saved_"):
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
    wanted = name.removeprefix("_saved_")
    op = self.plan.op
    if wanted in self.plan.attrs:
        return self.plan.attrs[wanted]
    for spelled in _spellings(op, wanted):
        if spelled in op.saves:
            if self.saved is None:
                raise GradError(
                    "Trying to access saved tensors after they have already been freed, by a backward",
                    f"node: {self.name()}",
                )
            opened: _Step = self.opened() if type(self) is Packing else self
            return unpack(opened, True)[op.saves.index(spelled)]
    raise AttributeError(f"{self.name()} saves no {wanted}; it has {[*op.saves, *self.plan.attrs]}")


def _spellings(op: Any, wanted: str) -> tuple:
    """What a record may call what PyTorch's nodes call so."""
    first = op.operands[0] if wanted == "self" and op.operands else None
    return wanted, _NAMES.get(wanted), first, op.outputs[0] if wanted == "result" else None


def _raw_saved(self: _Step, wanted: str) -> Any:
    """Where what `_saved` gives is kept; `_raw_saved_tensors` of a custom function: all of them."""
    op = self.plan.op
    if self.saved is None:
        raise GradError("Trying to access saved tensors after they have already been freed, by a backward")
    if wanted == "tensors" and self.plan.foreign:
        return tuple([SavedTensor(self, i) for i in range(len(self.saved))])
    for spelled in _spellings(op, wanted):
        if spelled in op.saves:
            return SavedTensor(self, op.saves.index(spelled))
    raise AttributeError(f"{self.name()} saves no {wanted}; it has {[*op.saves]}")


def _saved_tensors(self: _Step) -> tuple:
    """What a custom function saved.  Raises AttributeError for other nodes."""
    if not self.plan.foreign:
        raise AttributeError(f"{self.name()} has no saved_tensors", name="saved_tensors", obj=self)
    if self.saved is None:
        raise GradError("Trying to access saved tensors after they have already been freed, by a backward")
    return unpack(self.opened() if type(self) is Packing else self, True)


def _metadata(self: Any) -> dict:
    """What a program wants to remember of a node, which lives as long as it."""
    hooks: Any = hooks_of(self)
    return hooks.setdefault("metadata", {})


def install() -> None:
    """Hang the methods on nodes; done once, when the runtime is imported."""
    for kind in (_Step, Leaf):
        setattr(kind, "register_hook", _register_hook)  # noqa: B010
        setattr(kind, "register_prehook", _register_prehook)  # noqa: B010
        setattr(kind, "metadata", property(_metadata))  # noqa: B010
    setattr(_Step, "__getattr__", _saved)  # noqa: B010
    setattr(Variable, "_execution_engine", SimpleNamespace(queue_callback=queue_callback))  # noqa: B010
    setattr(_Step, "saved_tensors", property(_saved_tensors))  # noqa: B010


install()

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
