"""Exchanging what two tensors are."""

from __future__ import annotations

from typing import Any

from ..ir.errors import ArgumentError, GradError
from . import modes
from .changes import advance_objects
from .graph import Leaf, Owner
from .tensor import Tensor, fields, new


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Exchange what two tensors are, their classes, memory, history and attributes.

    Whoever holds one of them sees what the other was.  A backward through a history that leads to one of
    them as it was is refused: the gradient would be added to the other.  Raises ArgumentError.
    """
    for x in (t1, t2):
        if not isinstance(x, Tensor):
            raise ArgumentError(f"swap_tensors: takes two tensors, not a {type(x).__name__}")
    if modes.CHANGED:
        modes.tell("refuse", "tensors were swapped")
    kinds = type(t1), type(t2)
    try:
        t1.__class__, t2.__class__ = kinds[1], kinds[0]
    except TypeError:
        t1.__class__ = kinds[0]
        names = " and ".join(kind.__name__ for kind in kinds)
        raise ArgumentError(
            f"swap_tensors: Cannot swap t1 and t2 if they have different slots: {names}"
        ) from None
    slots = _slots_of(kinds[0])  # and the other's are the same ones
    parts = [{name: slot.__get__(x) for name, slot in slots.items() if _is_set(slot, x)} for x in (t1, t2)]
    attributes = [dict(fields(x)) for x in (t1, t2)]
    for x, old, held, hung in zip((t1, t2), parts, parts[::-1], attributes[::-1], strict=True):
        for name in old.keys() - held.keys():
            slots[name].__delete__(x)
        for name, value in held.items():
            slots[name].__set__(x, _leaf_of_another(value, x) if type(value) is Leaf else value)
        fields(x).clear()
        fields(x).update(hung)
    advance_objects()


def _slots_of(kind: type) -> dict[str, Any]:
    """What instances hold beside their attributes, by name, past all properties that stand before it."""
    found = {}
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__weakref__", "__dict__"):
                found[name] = vars(base)[name]
    return found


def _is_set(slot: Any, x: Tensor) -> bool:
    try:
        slot.__get__(x)
    except AttributeError:
        return False
    return True


def _leaf_of_another(old: Leaf, owner: Tensor) -> Leaf:
    """A leaf with the gradient and the hooks of one whose tensor was swapped; that one refuses gradients."""
    made = new(Leaf)
    made.kind, made.grad, made.hooks, made.after = old.kind, old.grad, old.hooks, old.after
    made.owner = Owner(owner)
    old.grad, old.after, old.hooks = None, None, {"before": [_refuse_swapped]}
    return made


def _refuse_swapped(*_: Any) -> None:
    raise GradError(
        "Trying to execute AccumulateGrad node that was poisoned by swap_tensors: the tensor of this history "
        "was swapped with another",
        "change the device or dtype of a module before its forward, or after its backward",
    )
