"""Checkpoints without reentrance: what a part would save is dropped, and made anew when backward asks for it.

While the part runs, hooks on saved tensors hand each node a `Place` in a list instead of a tensor.  The first
place that backward opens runs the part again, with hooks that fill all places in the same order; it stops at
the last one.  Histories are those of the first run, so gradients of every order, hooks on nodes, `grad`
inside of the part and checkpoints within checkpoints all work.  An inner checkpoint keeps its arguments by
the hooks of the outer one, so they are dropped with the rest.
Source: Chen et al., Training deep nets with sublinear memory cost, 2016.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from weakref import ref

from ..ir.errors import GradError, InplaceError
from . import modes
from .autograd import is_walking, waiting_here, when_done
from .generator import fork_rng, get_rng_state, set_rng_state
from .packing import Packed, saved_tensors_hooks
from .tensor import Tensor
from .trees import like

PREFIX = "checkpoint: "
DIFFERS = (
    "A different number of tensors was saved during the original forward and recomputation.",
    "does the function look at something else that has changed meanwhile?",
)


class CheckpointError(GradError):
    """A part that did not do the same when it was run again."""


class _Stop(BaseException):
    """Everything that was asked for is there: no error, so that no program catches it."""


class Place:
    """Where one saved tensor stands among those of its checkpoint; the node that wants it holds this."""

    __slots__ = ("number", "kind", "__weakref__")

    def __init__(self, number: int, kind: Any):
        self.number, self.kind = number, kind


class Kept:
    """An argument of a checkpoint: a tensor, or what the hooks of an outer checkpoint made of it."""

    def __init__(self, x: Tensor):
        self.asks = x._node is not None
        self.packed = modes.local.packing is not None
        self.held: Any = Packed(x, x._meta, True) if self.packed else x
        self.version = None if x._storage is None else x._storage.version

    def opened(self) -> Tensor:
        """The tensor again, as a leaf if it had a history.  Raises InplaceError where it was written."""
        x: Tensor
        if self.packed:
            x = self.held.opened()
        else:
            x = self.held
            if x._storage is not None and x._storage.version != (self.version or 0):
                raise InplaceError(
                    f"{PREFIX}an argument was changed in place before backward ran the function on it again",
                    f"argument: {x._meta}",
                    "(one of the variables needed for gradient computation has been modified by an inplace "
                    "operation)",
                )
        return x.detach().requires_grad_() if self.asks else x


def opened(value: Any, done: dict[int, Tensor]) -> Any:
    """Nested lists, tuples and dictionaries with the tensors that were kept; one that stands twice is one."""
    if isinstance(value, Kept):
        if id(value) not in done:
            done[id(value)] = value.opened()
        return done[id(value)]
    if isinstance(value, dict):
        return {k: opened(v, done) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return like(value, [opened(x, done) for x in value])
    return value


class Casting(modes._Mode):
    """The mixed precision that a thread was in."""

    def __init__(self) -> None:
        local = modes.local
        self._changes = {"autocast": local.autocast, "autocast_dtype": local.autocast_dtype}


class Frame:
    """One call of a checkpoint.

    places: weakly, in the order they were saved.  made: the tensors of the run that goes on or was the last,
    by the number of their place; each leaves as it is asked for.  walk: the backward that they were made for.
    """

    def __init__(
        self, run: Callable[[], Any], again: Any, early_stop: bool, check: bool, debug: bool, preserve: bool
    ):
        self.run, self.again, self.check = run, again, check
        told = modes.local
        self.early_stop = early_stop if told.early_stop is None else told.early_stop
        self.debug = debug if told.recompute_debug is None else told.recompute_debug
        self.reached = 0
        self.state = get_rng_state() if preserve else None
        self.casting = Casting()
        self.places: list[ref[Place]] = []
        self.made: dict[int, Tensor] = {}
        self.walk: list | None = None
        self.complete = False  # whether the first run has ended

    # ---- the first run ----
    def pack(self, x: Tensor) -> Place:
        place = Place(len(self.places), x._meta)
        self.places.append(ref(place))
        return place

    def unpack(self, place: Place) -> Tensor:
        """The tensor of a place.  Raises CheckpointError where it is asked for twice by one backward."""
        if not is_walking():
            self._run_again()
            found, self.made = self.made.pop(place.number), {}
            return found
        walk = waiting_here()
        if walk is None or walk is not self.walk:
            self.walk = when_done(self._forget)
            self._run_again()
        elif place.number not in self.made:
            if place.number < self.reached:
                raise CheckpointError(
                    f"{PREFIX}Unpack is being triggered for a tensor that was already unpacked once",
                    "what is made anew is dropped as it is used: pass retain_graph=True and go back again, "
                    "or keep what ctx.saved_tensors gave",
                )
            self._run_again()  # it was saved after those that were made anew, as by `grad` inside of the part
        return self.made.pop(place.number)

    def _forget(self) -> None:
        self.made, self.walk = {}, None

    # ---- the second ----
    def _run_again(self) -> None:
        self.made, self.reached = {}, 0
        more = False

        def pack(x: Tensor) -> Tensor:
            nonlocal more
            number = self.reached
            if number >= len(self.places):
                if self.complete:
                    raise CheckpointError(
                        f"{PREFIX}trying to save more tensors during recomputation than during the original "
                        "forward pass.",
                        DIFFERS[1],
                    )
                more = True
                return x.detach()
            self.reached += 1
            if self.places[number]() is not None:
                self.made[number] = x if x._node is None else x.detach()
            if self.early_stop and self.reached == len(self.places):
                raise _Stop
            return x.detach()

        with fork_rng() if self.state is not None else contextlib.nullcontext():
            if self.state is not None:
                set_rng_state(self.state)
            with (
                contextlib.suppress(_Stop), saved_tensors_hooks(pack, lambda x: x), modes.enable_grad(),
                self.casting, self.again,
            ):  # fmt: skip
                self.run()
        if self.reached != len(self.places) and not more:
            raise CheckpointError(
                PREFIX + DIFFERS[0],
                f"first: {len(self.places)}",
                f"again: {self.reached}",
                DIFFERS[1],
            )
        if self.check:
            self._check_kinds()

    def _check_kinds(self) -> None:
        wrong = []
        for number, x in self.made.items():
            place = self.places[number]()
            if place is not None and place.kind is not x._meta:
                wrong.append(f"tensor {number}: {place.kind}, then {x._meta}")
        if not wrong:
            return
        told = [*wrong[:8]]
        if self.debug:
            told.append("You are seeing this error because you passed `debug=True` to checkpoint: the "
                        "tensors are counted in the order that ops save them")  # fmt: skip
        raise CheckpointError(
            f"{PREFIX}Recomputed values for the following tensors have different metadata than during the "
            "forward pass.",
            *told,
        )


class set_checkpoint_early_stop(modes._Mode):
    """Whether checkpoints that are made in this block stop their second run as soon as all is there."""

    def __init__(self, enable: bool):
        self._changes = {"early_stop": bool(enable)}

    def clone(self) -> modes._Mode:
        return type(self)(*self._changes.values())


class set_checkpoint_debug_enabled(set_checkpoint_early_stop):
    """Whether checkpoints that are made in this block say more where their second run differs."""

    def __init__(self, enabled: bool | None):
        self._changes = {"recompute_debug": enabled}


def recomputed(
    function: Callable, given: tuple[tuple, dict], template: Any, contexts: tuple[Any, Any], **settings: Any
) -> Any:
    """The function of the arguments given, whose saved tensors are dropped.

    template: the arguments with `Kept` in the places of tensors, for the second run.  contexts: of the first
    run and of the second.  settings: see `Frame`.
    """

    def again() -> None:
        args, kwargs = opened(template, {})
        function(*args, **kwargs)

    frame = Frame(again, contexts[1], **settings)
    with saved_tensors_hooks(frame.pack, frame.unpack), contexts[0]:
        found = function(*given[0], **given[1])
    frame.complete = True
    return found
