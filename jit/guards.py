"""Whether what a recording took for granted still holds.

A `Guard` belongs to one stretch of a run, and checks what Python read there; the order is that of cost: a
compiled function, one number for all modules' attributes, a sweep over the captured tensors, and only where
these say no a closer look.  `Conditions` belong to a whole path: gradients, memory that is written,
optimizers' numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from operator import is_not
from types import MappingProxyType
from typing import Any

import numpy as np

from ..nn import epoch
from ..runtime import Tensor, changes, methods
from ..runtime.on_device import share_memory
from .facts import exact, shown
from .observe.facts import Facts
from .observe.known import Registry
from .observe.parts import HISTORIES, Part, Reason, history, layout
from .observe.whole import difference, module_now, optimizer_now, state_of, without
from .recording import Recording
from .replay import Call, leaf_of
from .sources import Arg, Held, Memory, Number

ELSEWHERE = Reason("what it reads can't be reached any more")


class Guard:
    """The guards of one stretch.  `failing()` says what no longer holds, None where all does."""

    def __init__(self, part: Part, registry: Registry):
        self.part, self.registry = part, registry
        self.check, self.later = part.compiled()
        # The first call looks closer: the run itself may have written.
        self.epoch: float | None = None
        self.hooks: int | None = None
        self.modules, self.optimizers = part.modules, part.optimizers
        self.held = [registry.refs[number] for number in part.held]
        self.states = [_state(r()) for r in self.held]
        self.objects: int | None = None

    def same(self, other: Guard) -> bool:
        """Whether two runs took the same for granted."""
        held = [(a[0] is b[0], a[1:] == b[1:]) for a, b in zip(self.states, other.states)]
        return self.part.same(other.part) and all(map(all, held))

    def failing(self, S: list) -> Reason | None:
        at = self.check(S)
        if at:
            return self.part.reasons[at - 1] if at > 0 else ELSEWHERE
        if epoch.value != self.epoch or methods.hooks_hung != self.hooks:
            epoch.settle()
            now, hooks = epoch.value, methods.hooks_hung
            if at := self.later(S):
                return self.part.late[at - 1] if at > 0 else ELSEWHERE
            if (found := self._module_that_changed()) is not None:
                return found
            self.epoch, self.hooks = now, hooks
        if changes.objects != self.objects:
            now = changes.objects
            for number, (reach, state) in enumerate(zip(self.held, self.states)):
                x = reach()
                if x is None or x._meta is not state[0] or layout(x) != state[1] or history(x) != state[2]:
                    return self._changed(number, x)
            self.objects = now
        for reach, (state, _), path, apart in self.optimizers:
            optimizer = reach()
            if optimizer is None:
                return ELSEWHERE
            if len(state) != len(objects := state_of(optimizer, apart)) or any(map(is_not, objects, state)):
                return _of_optimizer(path, state, objects)
        return None

    def _module_that_changed(self, written: Mapping[int, set[str]] = MappingProxyType({})) -> Reason | None:
        """written: attributes that are left out, by the identities of their modules."""
        for whole in self.modules:
            module = whole.reach()
            if module is None:
                return ELSEWHERE
            before, now = whole.before, module_now(module, whole.apart)
            if (names := written.get(id(module))) is not None:
                before, now = without(before, names), without(now, names)
            if found := difference(before, now, whole.texts):
                text = f"{whole.path}.{found[0]}"
                return Reason(text, whole.place, seen=found[1], now=found[2], slot=(text, "attr"))
        return None

    def blamed(self, reason: Reason, S: list) -> Reason:
        """The reason itself; where reading failed, what could not be read, or is not there any more."""
        if reason is not ELSEWHERE:
            return reason
        part = self.part
        found = part.first(part.lines, part.reasons, S) or part.first(part.later, part.late, S)
        if found is None and (found := self._module_that_changed()) in (None, ELSEWHERE):
            gone = [n for n, reach in enumerate(self.held) if reach() is None]
            if not gone:
                return ELSEWHERE
            return self._reason(gone[0], "{}", str(self.states[gone[0]][0]), "nothing")
        return found

    def unsteady(self, S: list) -> list[Reason]:
        """All places that are not as they were, of which this is known."""
        return self.part.failing(S)

    def resized(self, S: list) -> list[tuple]:
        """Which sizes of tensors are not as they were, once `unsteady` was asked."""
        return self.part.resized(S)

    def _reason(self, number: int, what: str, seen: str, now: str) -> Reason:
        """Of a captured tensor."""
        at = self.part.held[number]
        return Reason(what.format(self.registry.paths[at]), self.registry.places[at], seen=seen, now=now)

    def lost(self) -> tuple[Part, Reason]:
        """What died of what it depends on, and a part that can tell of it, which keeps nothing alive."""
        part = self.part
        dead = [name for name in part.weak if part.names[name]() is None]
        if (reason := part.naming(dead)) is not None:
            return part.light(reason)
        for whole in self.modules:
            if whole.reach() is None:
                return Part(), Reason(whole.path, whole.place, seen="a module", now="nothing")
        for number, reach in enumerate(self.held):
            if reach() is None:
                return self._lost(self._reason(number, "{}", str(self.states[number][0]), "another"))
        return Part(), ELSEWHERE

    def _lost(self, reason: Reason) -> tuple[Part, Reason]:
        """The same of a captured tensor; of one of a module's what stands there now can be told."""
        for whole in self.modules:
            owner, _, name = reason.text.rpartition(".")
            if owner == whole.path and name in whole.texts:
                part = Part(names={"owner": whole.reach}, weak={"owner"})
                return part, replace(reason, read=f"peek(owner, 'attr', {name!r})", seen=whole.texts[name])
        return Part(), reason

    def told(self, reason: Reason, S: list) -> str:
        """A reason for a reader, with what stands there now."""
        self.check(S)  # other guards have used the slots since
        return self.part.told(reason, S)

    def _changed(self, number: int, x: Tensor | None) -> Reason:
        if x is None:
            return ELSEWHERE
        meta, form, past = self.states[number]
        if x._meta is not meta:
            return self._reason(number, "{}", str(meta), str(x._meta))
        if layout(x) != form:
            return self._reason(number, "the layout of {}", _laid(form), _laid(layout(x)))
        return self._reason(number, "the history of {}", HISTORIES[past], HISTORIES[history(x)])

    def reached(self) -> list[Any]:
        """Weak references to all that is held weakly, each with the slot where it was found."""
        part = self.part
        named = [(part.names[name], part.places.get(name)) for name in part.weak]
        others = [*self.held, *(whole.reach for whole in self.modules), *(o for o, *_ in self.optimizers)]
        return [*named, *((reach, None) for reach in others)]

    def effects(self, facts: Facts) -> str | None:
        """What the run changed unseen in objects that were taken in whole: a replay would not change it."""
        if (found := self._module_that_changed(facts.written.names())) not in (None, ELSEWHERE):
            return f"{found.text} from {found.seen} to {found.now}"
        for reach, (state, settings), path, apart in self.optimizers:
            objects, now = optimizer_now(reach(), apart)
            for group, one, other in zip(reach().param_groups, settings, now):
                seen = {k for k in one if facts.written.has(group, "item", k)}
                one, other = ({k: v for k, v in each.items() if k not in seen} for each in (one, other))
                if found := difference(one, other):
                    return f"{path}: {found[0]}"
            if len(state) != len(objects) or any(map(is_not, objects, state)):
                return f"the parameters or the states of {path}"
        return None


def _of_optimizer(path: str, before: list[Any], now: list[Any]) -> Reason:
    what, slot = f"the parameters or the states of {path}", (f"the states of {path}", "optimizer")
    if len(before) != len(now):
        return Reason(what, seen=f"{len(before)} of them", now=str(len(now)), slot=slot)
    at = next(n for n, (a, b) in enumerate(zip(before, now)) if a is not b)
    return Reason(f"{what}, number {at}", seen=shown(before[at]), now=shown(now[at]), slot=slot)


def _laid(form: Any) -> str:
    return "row by row" if form is True else f"strides of {form} bytes"


def _state(x: Tensor | None) -> tuple:
    """What must stay of a captured tensor; one that died in the run has none."""
    return (None, None, None) if x is None else (x._meta, layout(x), history(x))


class Conditions:
    """What a whole path depends on besides: asked before its last segment runs.

    Made right after the run.  held, slots: the numbers of captured tensors, and the slots of others.  arrays:
    those of all tensors that the run found, by source.
    """

    def __init__(
        self, recording: Recording, registry: Registry, held: list[int], slots: list[int],
        arrays: dict[Any, np.ndarray],
    ):  # fmt: skip
        self.registry, self.held, self.slots = registry, held, slots
        self.leaves, self.grads = recording.before, recording.grads
        self.written = {recording.sources[i] for i in recording.written}
        self.memories = [source for source in recording.sources if isinstance(source, Memory)]
        self.groups = []
        for number, numbers in recording.groups.items():
            optimizer, at = registry.groups[number]
            live = {s.name for s in recording.sources if isinstance(s, Number) and s.group == number}
            self.groups.append(_Group(number, optimizer, at, live, numbers))
        self._datas: list[np.ndarray] = []
        self._same = _twins([arrays[Held(number)] for number in held])
        # Tensors that are not one, and whose array is: the facts hold them to that.
        by_array: dict[int, list[Any]] = {}
        for source, array in arrays.items():
            by_array.setdefault(id(array), []).append(source)
        self.twins = {(a, b) for sources in by_array.values() for a in sources for b in sources if a != b}
        self._owners: set[int] = set()

    @property
    def none(self) -> bool:
        """Whether there are none."""
        return not (self.leaves or self.grads or self.groups or self.written)

    def failing(self, call: Call) -> Reason | None:
        for group in self.groups:
            given = group.read()
            if isinstance(given, Reason):
                return given
            call.numbers[group.number] = given
        for source, present in self.leaves:
            leaf = leaf_of(call.tensor(source))
            if (leaf is not None and leaf.grad is not None) != present:
                text = f"the gradient of {self._spelled(source)}"
                return Reason(text, seen=_there(present), now=_there(not present))
        for source, meta, form in self.grads:
            grad = call.tensor(source)
            if (
                type(grad) is not Tensor
                or grad._meta is not meta
                or (grad._data.flags.c_contiguous or grad._data.strides) != form
            ):
                return Reason(f"the gradient of {self._spelled(source.of)} is of another type or layout")
        if self.written and (why := self._overlapping(call)) is not None:
            return Reason(why)
        return None

    def _spelled(self, source: Any) -> str:
        if isinstance(source, Held):
            return self.registry.paths[source.index]
        return f"argument {source.index}"

    def _overlapping(self, call: Call) -> str | None:
        """Whether memory that is written belongs to another tensor too."""
        refs = call.registry.refs
        datas = [refs[number]()._data for number in self.held]
        if len(datas) != len(self._datas) or any(map(is_not, datas, self._datas)):
            if _share(datas) or _twins(datas) != self._same:
                return "memory is written, and two tensors that the function reaches share it"
            self._datas, self._owners = datas, {id(_owner(d)) for d in datas}
        sources = [*map(Arg, self.slots), *(source for source, *_ in self.grads), *self.memories]
        given = [call.array(source) for source in sources]
        written = [source in self.written for source in sources]
        owners = [_owner(d) for d in given]
        for i, (data, root) in enumerate(zip(given, owners, strict=True)):
            if written[i] and not data.flags.writeable:
                return f"{self._spelled(sources[i])}, which is written, is read-only"
            foreign = type(root) is not np.ndarray or root.base is not None  # memory of another library
            near: Sequence[tuple[Any, np.ndarray]] = ()
            if foreign or id(root) in self._owners:
                near = [
                    (Held(k), d) for k, d in zip(self.held, datas) if written[i] or Held(k) in self.written
                ]
            others = [(sources[k], d) for k, d in enumerate(given[:i])
                      if (written[i] or written[k]) and (foreign or owners[k] is root)]  # fmt: skip
            if any(share_memory(d, data) and not (d is data and (source, sources[i]) in self.twins)
                   for source, d in chain(near, others)):  # fmt: skip
                return "memory is written that an argument shares with another tensor"
        return None


def _share(datas: Sequence[np.ndarray]) -> bool:
    """Whether any two arrays that are not one have memory in common."""
    different = {id(d): d for d in datas if d.size}.values()
    ends = sorted(np.lib.array_utils.byte_bounds(d) for d in different)
    return any(low < high for (_, high), (low, _) in pairwise(ends))


def _twins(datas: Sequence[np.ndarray]) -> list[int]:
    """For each array, the place of the first that it is."""
    first: dict[int, int] = {}
    return [first.setdefault(id(d), i) for i, d in enumerate(datas)]


def _owner(data: np.ndarray) -> np.ndarray:
    """The array whose memory this one shows."""
    while type(data.base) is np.ndarray:
        data = data.base
    return data


def _there(present: bool) -> str:
    return "is there" if present else "is None"


class _Group:
    """An optimizer's group, some of whose numbers are read anew at each call; the rest must stay."""

    def __init__(self, number: int, optimizer: Any, at: int, live: set[str], given: dict[str, Any]):
        self.number, self.optimizer, self.at, self.live = number, optimizer, at, live
        group = optimizer().param_groups[at]
        self.path = f"{type(optimizer()).__name__}.param_groups[{at}]"
        self.identity = id(group)
        self.fixed = {name: value for name, value in given.items() if name not in live}
        self.seen = {name: shown(given[name]) for name in live}
        self.zeros = {name for name in live if given[name] == 0}

    def read(self) -> dict[str, Any] | Reason:
        """What the group says now; a reason where that is not as it was."""
        optimizer = self.optimizer()
        if optimizer is None or len(optimizer.param_groups) <= self.at:
            return Reason(self.path, seen="a dict", now="nothing")
        group = optimizer.param_groups[self.at]
        if id(group) != self.identity:
            return Reason(self.path, seen="a dict", now="another dict")
        given = optimizer._asked(group)
        for name, value in self.fixed.items():
            if not exact(given[name], value):
                return Reason(f"{self.path}[{name!r}]", seen=shown(value), now=shown(given[name]))
        for name in self.live:
            value = given[name]
            # An optional number that is 0 takes no part at all in the update.
            if type(value) not in (int, float) or (value == 0) != (name in self.zeros):
                return Reason(f"{self.path}[{name!r}]", seen=self.seen[name], now=shown(value))
        return given
