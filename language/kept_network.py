"""A network as a program that later processes find on disk, and need neither record nor compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any

import numpy as np

from ..ir.dtypes import DType, default_dtype, float32
from ..ir.errors import LaminaError
from ..ir.locks import fork_safe_lock
from ..jit import TracedFunction
from ..jit.backend import version
from ..jit.kept_program import KeptProgram, Running, kept_program, tensors_of
from ..nn import Module, epoch
from ..nn.members import HOOKS, MEMBERS, fields
from ..passes import cache as disk
from ..runtime import Tensor, changes, modes

ROOT = __name__.partition(".")[0]
ROOMS = "nn", "quantization", "language"  # whose files a graph hangs on, besides the compiler's
# What of a module is looked at by itself, or is of no account where nothing is trained.
KNOWN = {*MEMBERS, *HOOKS, "_non_persistent_buffers_set"}
# Modes that a call under `no_grad` does not hang on.
NO_MATTER = {"grad", "inference", "multithreading", "anomaly", "early_stop", "recompute_debug", "timing"}
PLAIN = {name: value for name, value in modes.ORDINARY.items() if name not in NO_MATTER}


class Untold(Exception):
    """Something of a network that no text tells."""


class KeptNetwork:
    """A network's call with one kind of arguments, as a program that is kept on disk.

    It serves for as long as the network is what it was, but for its weights' values.  kind: what tells the
    arguments from others.  traced: the network, traced.  record: calls it with such arguments, whose sizes
    are marked as they may be, 1 among them, and returns them.
    """

    def __init__(self, network: Module, kind: str, traced: TracedFunction, record: Callable[[], tuple]):
        self.network, self.kind, self._traced, self._record = network, kind, traced, record
        self._is_ready, self._lock = False, fork_safe_lock()
        self._key: str | None = None
        self._program: KeptProgram | None = None
        # What was seen of all modules and tensors, and the program on the weights as they were then.
        self._now: tuple[Any, Running | None] = None, None

    def __reduce__(self) -> Any:
        """Of a copy the program is found anew."""
        return KeptNetwork, (self.network, self.kind, self._traced, self._record)

    def __call__(self, *args: Any) -> np.ndarray | None:
        """What the network returns; None where this is not the program of such a call, now."""
        if not _is_plain():
            return None
        self.ready()
        seen, running = self._now
        if seen is None or seen[0] != epoch.value or seen[1] != changes.objects:  # nan equals nothing
            running = self._renewed()
        return None if running is None else running(tensors_of(args))

    def ready(self) -> None:
        """Find the program on disk, or record it, if that was not done, and no mode changes what it is."""
        with self._lock:
            if not self._is_ready and _is_plain():
                self._key = self._described()
                self._program = self._stored() or self._recorded()
                self._is_ready = True

    def _renewed(self) -> Running | None:
        """The program on the weights as they are now; None where the network is another."""
        with self._lock:
            seen, running = (epoch.value, changes.objects), None
            if self._program is not None and self._described() == self._key:
                weights, before = dict(_weights(self.network)), self._now[1]
                is_same = before is not None and before.is_on(weights)
                running = before if is_same else self._program.on(weights)
            self._now = seen, running  # in one step
            return running

    def _stored(self) -> KeptProgram | None:
        """What an earlier process kept."""
        data = None if self._key is None else disk.default().get(self._key)
        if self._key is None or data is None:
            return None
        try:
            return KeptProgram.unpack(data)
        except (ValueError, TypeError, KeyError, LaminaError):
            disk.default().forget(self._key)
            return None

    def _recorded(self) -> KeptProgram | None:
        """The program of a call that is made now, kept for later processes; None where it can't be."""
        args = self._record()
        if self._key is None:
            return None
        found = kept_program(self._traced, args, {id(x): name for name, x in _weights(self.network)}, least=1)
        if found is not None:
            disk.default().put(self._key, found.pack())
        return found

    def _described(self) -> str | None:
        """The entry of the program; None for a network that has what no text tells: somebody's own hook."""
        try:
            return disk.key("network", version(*ROOMS), self.kind, *_told(self.network))
        except Untold:
            return None


def _is_plain() -> bool:
    """Whether no mode of this thread changes what a call does."""
    is_usual = not modes.CHANGED or all(getattr(modes.local, name) == x for name, x in PLAIN.items())
    return is_usual and default_dtype() is float32


def _weights(network: Module) -> Iterator[tuple[str, Tensor]]:
    return chain(
        network.named_parameters(remove_duplicate=False), network.named_buffers(remove_duplicate=False)
    )


def _told(network: Module) -> Iterator[str]:
    """All that the network's graph hangs on, but for the values of its weights.  Raises Untold."""
    speller = Speller()
    for name, module in network.named_modules():
        own, kind = fields(module), type(module)
        if any(own[hooks] for hooks in HOOKS):
            raise Untold(name)
        members = KNOWN.union(*(own[kind] for kind in MEMBERS))
        held = [(key, value) for key, value in own.items() if key not in members]
        yield f"{name} {speller.of([kind, kind.forward, kind.__call__, held])}"
    for name, x in _weights(network):
        yield f"{name} {speller.of(type(x))} {x._meta} {x._data.flags.c_contiguous}"


class Speller:
    """Texts of values, those of equal text equal.  What many modules hold is spelled once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, Any]] = {}  # by id, with what must live until then

    def of(self, value: Any) -> str:
        """Raises Untold for what has no text of its own: a closure, an object of somebody's class."""
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        if isinstance(value, tuple | list):
            return f"{type(value).__name__}({', '.join(map(self.of, value))})"
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = self._of_object(value), value
        return found[0]

    def _of_object(self, value: Any) -> str:
        if isinstance(value, partial):
            return f"partial{self.of((value.func, value.args, [*value.keywords.items()]))}"
        if isinstance(value, DType):
            return value.name
        if is_dataclass(value) and not isinstance(value, type):
            return f"{self.of(type(value))}{self.of([*vars(value).items()])}"
        if not isinstance(value, type | FunctionType) or not value.__module__.startswith(f"{ROOT}."):
            raise Untold(repr(value)[:100])
        if "<" in value.__qualname__:  # of which there may be several
            raise Untold(value.__qualname__)
        return f"{value.__module__}.{value.__qualname__}"
