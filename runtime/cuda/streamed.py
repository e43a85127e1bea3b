"""Work on streams that the user made: which is this thread's current one, and backward on the forward's.

A thread's choice is in `modes` (`local.streams`), so whatever runs under it is watched: nodes of history are
marked with the stream of their op.  `on_device.apart` says whether any stream but the default ones was made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import modes, on_device
from ..graph import Leaf, Port, hooks_of
from ..on_device import OnDevice
from ..tensor import Tensor
from .driver import Stream
from .machine import Machine, machine

STREAM = "stream"  # the key in a node's hooks of (machine, stream)
POOL = 32  # streams of a device, as many as PyTorch hands out before it begins anew


class chosen(modes._Mode):
    """Have a stream be the current one of its device for a block; the default one is no choice."""

    def __init__(self, at: Machine, stream: Stream):
        self._at, self._stream = at, stream
        self._changes = {"streams": choice(at, stream)}

    def clone(self) -> chosen:
        return chosen(self._at, self._stream)


def choice(at: Machine, stream: Stream) -> dict[int, Stream] | None:
    """This thread's choice with that stream for one device: None where all have their default ones."""
    made = {**(modes.local.streams or {}), at.device.ordinal: stream}
    if stream is at.default:
        del made[at.device.ordinal]
    return made or None


def another(at: Machine) -> Stream:
    """A stream of a device's pool."""
    if len(at.apart) < POOL:
        found = at.add_stream()
        on_device.apart.append(found)
        return found
    at.handed_out += 1
    return at.apart[at.handed_out % POOL]


def used_by(array: Any, stream: Stream) -> None:
    """Say that work on a stream uses an array's memory, which serves nobody else before that is done."""
    if isinstance(array, OnDevice) and array.memory.block is not None:
        array.memory.machine.allocator.used_by(array.memory.block, stream)


# ---- history -----------------------------------------------------------------------------------------------
def mark(found: Any) -> None:
    """Note on the nodes of what an op gave which stream it ran on."""
    for x in found if isinstance(found, tuple) else (found,):
        if isinstance(x, Tensor) and x.is_cuda and (node := x._node) is not None and type(node) is not Leaf:
            at = machine(x.get_device())
            hooks: Any = hooks_of(node.node if type(node) is Port else node)
            hooks.setdefault(STREAM, (at, at.stream))


def step_on_its_stream(one: Callable, e: Any, g: Any, create: bool) -> Any:
    """A step of a backward on the stream of its forward, behind what this thread's has and before what comes.

    So gradients are summed, and handed to hooks, in the order of the stream that backward was called on.
    """
    given = [x._data for x in (g if type(g) is list else [g]) if isinstance(x, Tensor)]
    there = [a.memory.machine for a in given if isinstance(a, OnDevice)]
    at, stream = (e.hooks or {}).get(STREAM) or (there[0] if there else None, None)
    if at is None:
        return one(e, g, create)
    here, stream = at.stream, stream or at.default
    if stream is here:
        return one(e, g, create)
    stream.wait(here.record())
    for array in given:
        used_by(array, stream)
    with chosen(at, stream):
        found = one(e, g, create)
    here.wait(stream.record())
    for h in found:
        used_by(getattr(h, "_data", None), here)
    return found
