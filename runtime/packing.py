"""Hooks on what nodes save for backward: `saved_tensors_hooks` and what follows from it.

While a pair of hooks is open, a node keeps what `pack` made of each saved tensor, and asks `unpack` for the
tensor again when its gradient is taken.  Such a node is a `Packing`: the quick ways of backward, which look
at saved arrays themselves, leave it alone as they do nodes with hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentError, GradError
from ..ir.types import Type
from . import modes
from .graph import Node, hooks_of
from .plan import OPERAND, OUTPUT, REST
from .storage import Literal, Storage
from .tensor import Tensor, wrap

new = object.__new__


class Packed:
    """What `pack` made of a saved tensor of type `kind`; whole: backward wants a tensor, not its array."""

    __slots__ = ("held", "unpack", "kind", "whole")

    def __init__(self, x: Tensor, kind: Type, whole: bool = False):
        pack, self.unpack = modes.local.packing or (_same, _same)
        storage = x._storage
        before = None if storage is None else storage.version
        with modes.no_grad(), _without_hooks():
            self.held = modes.call_user(pack, x)
        if x._storage is not None and x._storage.version != (before or 0):
            raise GradError("A saved tensor pack hook is modifying its input in place.",
                            f"tensor: {x._meta}", "let pack return a new one")  # fmt: skip
        self.kind, self.whole = kind, whole

    def opened(self) -> Tensor:
        """The tensor again.  Raises ArgumentError, GradError."""
        with _without_hooks():
            x = modes.call_user(self.unpack, self.held)
        if not isinstance(x, Tensor):
            raise ArgumentError(
                "Output of saved tensor unpack_hook expected to be a Tensor, and unpack must return one, not "
                f"{type(x).__name__}"
            )
        if x._meta is not self.kind and x.shape == self.kind.shape:
            x = x.to(self.kind.dtype)  # as kept in another precision, or a mask as numbers
        if x._meta is not self.kind:
            raise GradError("saved_tensors_hooks(…, unpack): unpack returned another type than was saved",
                            f"saved: {self.kind}", f"got: {x._meta}")  # fmt: skip
        return x


class Packing(Node):
    """A node of which some of what it saves is `Packed`."""

    __slots__ = ()

    def opened(self) -> Opened:
        """The same node with what it saved, for one step of a backward."""
        made = new(Opened)
        made.origin, made.plan, made.edges = self, self.plan, self.edges
        made.place, made.hooks = self.place, self.hooks
        guards: list[Any] = []
        kept = iter(zip(self.guards[::2], self.guards[1::2], strict=True))

        def entry(value: Any) -> Any:
            if value is None:
                return None
            if type(value) is tuple:
                return tuple(map(entry, value))
            if type(value) is not Packed:
                guards.extend(next(kept, ()))
                return value
            next(kept)
            x = value.opened()
            if x._storage is None:
                x._storage = Storage()
            guards.extend((x._storage, x._storage.version))
            return x if value.whole else x._data

        made.saved = tuple(map(entry, self.saved or ()))
        made.guards = tuple(guards)
        return made


class Opened(Node):
    """What a `Packing` node is for one step."""

    __slots__ = ("origin",)
    origin: Packing


def packed(n: Node, recipe: Any, operands: tuple, outs: tuple) -> Node:
    """The node, with what it saved packed by the open hooks."""
    if modes.local.hook is not None:
        modes.tell("refuse", "hooks on saved tensors are open")
    saved: list[Any] = []
    guards: list[Any] = []

    def entry(x: Tensor | None) -> Any:
        if x is None:
            return None
        if type(x._storage) is Literal:  # a number of the program's own, which all share
            guards.extend((x._storage, x._storage.version))
            return x._data
        guards.extend((Storage(), 0))
        return Packed(x, x._meta)

    for (what, at), value in zip(recipe, n.saved or (), strict=True):
        if value is None:
            saved.append(None)
        elif what == REST:
            saved.append(tuple(map(entry, operands[at:])))
        elif what == OPERAND and operands[at]._data is value:
            saved.append(entry(operands[at]))
        else:
            kind = outs[at] if what == OUTPUT else operands[at]._meta
            saved.append(entry(wrap(value, kind)))
    made = new(Packing)
    made.plan, made.edges, made.place, made.hooks = n.plan, n.edges, n.place, {}
    made.saved, made.guards = tuple(saved), tuple(guards)
    return made


class SavedTensor:
    """A place in what a node saved: where hooks can be hung on that one tensor."""

    def __init__(self, *given: Any):
        if len(given) != 2:
            raise GradError("Trying to create a SavedTensor object from Python is forbidden",
                            "a node's _raw_saved_self and its kin are such")  # fmt: skip
        self._node, self._at = given

    def register_hooks(self, *hooks: Callable) -> None:
        """register_hooks(pack_hook, unpack_hook): keep `pack_hook(tensor)`, ask `unpack_hook` for it again.

        Raises ArgumentError, GradError where nothing is saved here, where it was freed, or has hooks already.
        """
        if len(hooks) != 2 or not all(map(callable, hooks)):
            shown = ", ".join(type(hook).__name__ for hook in hooks)
            raise ArgumentError(
                f"register_hooks(): incompatible function arguments ({shown})", "pass two functions"
            )
        node, at = self._node, self._at
        if node.saved is None:
            raise GradError("hooks can't be set on a saved tensor after it has been freed")
        value = node.saved[at]
        if value is None:
            raise GradError("Calling register_hooks on a saved tensor with value None is forbidden")
        if type(value) is Packed:
            raise GradError("register_hooks: hooks of this saved tensor have already been set")
        x = unpack_of[0](node, True)[at]
        hooks_of(node)
        if type(node) is not Packing:
            node.__class__ = Packing
        with _opened_hooks(*hooks):
            made = Packed(x, x._meta, isinstance(value, Tensor))
        node.saved = (*node.saved[:at], made, *node.saved[at + 1 :])


unpack_of: list[Callable] = []  # step.py's, which stands above this module


# ---- the public face ---------------------------------------------------------------------------------------
class _without_hooks(modes._Mode):
    _changes = {"packing": None}


class _opened_hooks(modes._Mode):
    def __init__(self, pack: Callable, unpack: Callable):
        self._changes = {"packing": (pack, unpack)}


class saved_tensors_hooks(modes._Mode):
    """Keep `pack(tensor)` of each tensor that an op saves for backward, and ask `unpack` for it again.

    `unpack(pack(x))` must be a tensor of x's shape and dtype.  Of nested blocks the innermost counts.
    """

    def __init__(self, pack_hook: Callable, unpack_hook: Callable):
        for name, hook in (("pack_hook", pack_hook), ("unpack_hook", unpack_hook)):
            if not callable(hook):
                raise ArgumentError(
                    f"saved_tensors_hooks({name}): must be callable, not {type(hook).__name__}"
                )
        self._changes = {"packing": (pack_hook, unpack_hook)}

    def __enter__(self) -> None:
        refused = modes.local.unpacked
        if refused is not None:
            raise GradError(refused)
        super().__enter__()

    def clone(self) -> modes._Mode:
        return saved_tensors_hooks(*self._changes["packing"])


class save_on_cpu(saved_tensors_hooks):
    """Keep what is saved for backward in the CPU's memory, where Lamina's tensors are anyway."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        super().__init__(_same, _same)

    def clone(self) -> modes._Mode:
        return save_on_cpu()


class disable_saved_tensors_hooks(modes._Mode):
    """Refuse that hooks on saved tensors are opened in this block, with this message."""

    def __init__(self, error_message: str, fail_if_non_empty: bool = True):
        if not isinstance(error_message, str):
            raise ArgumentError(
                f"disable_saved_tensors_hooks(error_message): a string, not {type(error_message).__name__}"
            )
        self._fails = fail_if_non_empty
        self._changes = {"unpacked": error_message}

    def __enter__(self) -> None:
        if self._fails and modes.local.packing is not None:
            raise GradError(self._changes["unpacked"])
        super().__enter__()

    def clone(self) -> modes._Mode:
        return disable_saved_tensors_hooks(self._changes["unpacked"], self._fails)


class allow_mutation_on_saved_tensors(saved_tensors_hooks):
    """Let tensors that were saved for backward be written afterwards: each is copied as it is saved."""

    def __init__(self) -> None:
        super().__init__(_copied, _same)

    def __enter__(self) -> Any:
        if modes.local.packing is not None and modes.local.packing[0] is _copied:
            raise GradError("allow_mutation_on_saved_tensors contexts cannot be nested", "one is enough")
        super().__enter__()
        return self

    def clear(self) -> None:
        """Nothing: copies belong to their nodes."""

    def clone(self) -> modes._Mode:
        return allow_mutation_on_saved_tensors()


def _same(x: Tensor) -> Tensor:
    return x.detach()


def _copied(x: Tensor) -> Tensor:
    return x.detach().clone()
