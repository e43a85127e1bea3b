"""Whether what a recording took for granted still holds.

The order is that of cost: one number for all modules' attributes, one compiled function for what was found in
Python, a sweep of C code over the tensors, and only where these say no a closer look.
"""

from __future__ import annotations

from itertools import chain, pairwise
from operator import attrgetter, is_not
from typing import Any
from weakref import ref

import numpy as np

from ..nn import epoch
from ..nn.members import fields
from ..runtime import Tensor, methods
from ..runtime.graph import Leaf
from .facts import IMMUTABLE, PLAIN, compiled, exact, shown
from .reads import Reads
from .recording import Recording
from .replay import leaf_of
from .sources import Arg, Held, Number

DATA, EDGE, META = attrgetter("_data"), attrgetter("_edge"), attrgetter("_meta")


class Guards:
    """What `reads` found, as it is when this is made: before the run that is recorded.

    held: the tensors that are reached.  `failing()` says what no longer holds, None where all does.
    """

    def __init__(self, reads: Reads):
        self.facts = reads.facts
        self.check = compiled(reads.facts)
        self.epoch = epoch.value
        self.modules = [(ref(m), _module_now(m)) for m in reads.modules.values()]
        self.optimizers = [(ref(o), _state_of(o), _settings(o)) for o in reads.optimizers.values()]
        self.held = [x for x, _ in reads.tensors.values()]
        self.paths = [path for _, path in reads.tensors.values()]
        self.datas = list(map(DATA, self.held))
        self.metas = list(map(META, self.held))
        self.layouts = [d.flags.c_contiguous or d.strides for d in self.datas]
        self.edges = list(map(EDGE, self.held))
        self.hooks = methods.hooks_hung
        # What only the recording tells, see `complete`.
        self.leaves: list[tuple[Any, bool]] = []
        self.groups: list[_Group] = []
        self.grads: list[tuple[Any, Any, Any]] = []
        self.live: set[tuple[int, str]] = set()
        self.written: set[Any] = set()
        self.backward = self.writes = False
        # Of each argument, the tensor with its array that is reached otherwise.
        self.same: tuple | None = None
        self._shared()

    def _shared(self) -> None:
        """Know whose memory the tensors that are reached have: by array, and by owner."""
        self.arrays = {id(d): i for i, d in enumerate(self.datas)}
        self.owners = {id(owner(d)) for d in self.datas}

    def complete(self, recording: Recording, call: Any, backward: bool) -> None:
        """Add what a path turned out to depend on: gradients, hyper-parameters, memory that it writes."""
        self.written |= {recording.sources[i] for i in recording.written}
        self.writes = bool(self.written)
        order = [i for i, x in enumerate(call.leaves) if isinstance(x, Tensor)]
        self.written_args = {k for k, i in enumerate(order) if Arg(i) in self.written}
        self.written_held = {s.index for s in self.written if isinstance(s, Held)}
        self.same = self._twins([x for x in call.leaves if isinstance(x, Tensor)])
        self.leaves = self.leaves or list(recording.before)
        self.live |= {(s.group, s.name) for s in recording.sources if isinstance(s, Number)}
        self.groups = [
            _Group(optimizer, group, {name for number, name in self.live if number == i})
            for i, (optimizer, group) in enumerate(recording.groups)
        ]
        self.grads += recording.grads
        self.backward |= backward

    def read_numbers(self) -> list[dict[str, Any]] | None:
        """What the optimizers' groups say now; None where more than the numbers differs."""
        found = []
        for group in self.groups:
            given = group.read()
            if given is None:
                return None
            found.append(given)
        return found

    def failing(self, call: Any) -> str | None:
        """The first thing that is not as it was, as one line; None where everything is."""
        at = self.check()
        if at >= 0:
            return self.facts[at].change()
        if epoch.value != self.epoch and (why := self._modules_changed()) is not None:
            return why
        if any(map(is_not, map(DATA, self.held), self.datas)) and (why := self._replaced()) is not None:
            return why
        if any(map(is_not, map(EDGE, self.held), self.edges)):
            number = next(i for i, x in enumerate(self.held) if x._edge is not self.edges[i])
            return f"{self.paths[number]}: whether it requires gradients, or its history, has changed"
        for reach, state, _ in self.optimizers:
            optimizer = reach()
            if optimizer is None:
                return "an optimizer is gone"
            if len(state) != len(now := _state_of(optimizer)) or any(map(is_not, now, state)):
                return f"the parameters or the states of {type(optimizer).__name__} are others"
        for source, present in self.leaves:
            if (leaf_of(call.tensor(source)).grad is not None) != present:
                return f"the gradient of {self.spelled(source)} " + ("is gone" if present else "is there")
        for source, meta, layout in self.grads:
            grad = call.tensor(source)
            if grad._meta is not meta or (grad._data.flags.c_contiguous or grad._data.strides) != layout:
                return f"the gradient of {self.spelled(source.of)} is of another type or layout"
        if (why := self._aliased(call)) is not None:
            return why
        if self.backward and methods.hooks_hung != self.hooks:
            for x in self.held:
                if type(x._edge) is Leaf and (x._edge.hooks or x._edge.after):
                    return "a parameter has got a hook"
            self.hooks = methods.hooks_hung
        return None

    def _aliased(self, call: Any) -> str | None:
        """Whether arguments share memory as they did: with what is reached, and where writes are, at all."""
        tensors = [x for x in call.leaves if isinstance(x, Tensor)]
        given = [x._data for x in tensors]
        if self.same is not None and self._twins(tensors) != self.same:
            return "whether an argument is a tensor that the function also reaches otherwise"
        if not self.writes:
            return None
        written = [i in self.written_args for i in range(len(given))]
        for source, *_ in self.grads:
            given.append(call.tensor(source)._data)
            written.append(source in self.written)
        owners = [owner(d) for d in given]
        for i, (data, root) in enumerate(zip(given, owners, strict=True)):
            if written[i] and not data.flags.writeable:
                return "an argument that is written is read-only"
            foreign = type(root) is not np.ndarray or root.base is not None  # memory of another library
            near = ()
            if foreign or id(root) in self.owners:
                near = [d for k, d in enumerate(self.datas) if written[i] or k in self.written_held]
            others = [d for k, d in enumerate(given[:i])
                      if (written[i] or written[k]) and (foreign or owners[k] is root)]  # fmt: skip
            if any(d is not data and np.may_share_memory(d, data) for d in chain(near, others)):
                return "memory is written that an argument shares with another tensor"
        return None

    def _twins(self, tensors: list[Any]) -> tuple:
        """For each argument, the tensor with its array that is reached otherwise, and if it is that."""
        found = []
        for x in tensors:
            at = self.arrays.get(id(x._data))
            twin = None if at is None else self.held[at]
            found.append(None if twin is None else (at, twin is x, twin._storage is x._storage))
        return tuple(found)

    def effects(self) -> str | None:
        """What the run changed in Python: a replay would not change it.  Asked right after the run."""
        for fact in self.facts:
            if not fact.holds():
                return fact.change()
        for module, before in self.modules:
            found = module()
            if found is not None and (why := _difference(before, _module_now(found), type(found).__name__)):
                return why
        for reach, state, settings in self.optimizers:
            optimizer = reach()
            name = type(optimizer).__name__
            for before, now in zip(settings, _settings(optimizer)):
                if why := _difference(before, now, name):
                    return why
            if len(state) != len(now := _state_of(optimizer)) or any(map(is_not, now, state)):
                return f"the parameters or the states of {name}"
        return None

    def spelled(self, source: Any) -> str:
        """A source as a reader knows it."""
        kind = type(source).__name__
        return self.paths[source.index] if kind == "Held" else f"argument {source.index}"

    def _modules_changed(self) -> str | None:
        now = epoch.value
        for module, before in self.modules:
            found = module()
            if found is None:
                return "a module is gone"
            if why := _difference(before, _module_now(found), type(found).__name__):
                return why
        self.epoch = now
        return None

    def _replaced(self) -> str | None:
        """Look closer at tensors whose arrays are others: types and layouts must be the same."""
        datas = list(map(DATA, self.held))
        for x, meta, layout, path in zip(self.held, self.metas, self.layouts, self.paths, strict=True):
            if x._meta is not meta:
                return f"{path}: {meta} -> {x._meta}"
            if (x._data.flags.c_contiguous or x._data.strides) != layout:
                return f"{path}: its strides are others"
        if self.writes:
            ends = sorted(np.lib.array_utils.byte_bounds(d) for d in datas if d.size)
            if any(low < high for (_, high), (low, _) in pairwise(ends)):
                return "memory is written, and two tensors that the function reaches share it"
        self.datas = datas
        self._shared()
        return None


def owner(data: np.ndarray) -> np.ndarray:
    """The array whose memory this one shows."""
    while type(data.base) is np.ndarray:
        data = data.base
    return data


class _Group:
    """An optimizer's group, some of whose numbers are read anew at each call; the rest must stay."""

    def __init__(self, optimizer: Any, group: dict[str, Any], live: set[str]):
        self.optimizer, self.group, self.live = optimizer, group, live
        given = optimizer().numbers(group)
        self.fixed = {name: value for name, value in given.items() if name not in live}
        self.zeros = {name for name in live if given[name] == 0}

    def read(self) -> dict[str, Any] | None:
        optimizer = self.optimizer()
        if optimizer is None or not any(group is self.group for group in optimizer.param_groups):
            return None
        given = optimizer.numbers(self.group)
        for name, value in self.fixed.items():
            if not exact(given[name], value):
                return None
        for name in self.live:
            value = given[name]
            # An optional number that is 0 takes no part at all in the update.
            if type(value) not in (int, float) or (value == 0) != (name in self.zeros):
                return None
        return given


def _module_now(module: Any) -> dict[str, Any]:
    """A module's attributes, and its hooks."""
    own = dict(fields(module))
    for name in ("_call_hooks", "_parameters", "_buffers", "_modules"):
        if name in own:
            own[name] = tuple(own[name].items())
    return own


def _difference(before: dict[str, Any], now: dict[str, Any], owner: str) -> str | None:
    for name in before.keys() | now.keys():
        a, b = before.get(name, _MISSING), now.get(name, _MISSING)
        if a is not b and not (type(a) in _COMPARED and exact(a, b)):
            return f"{owner}.{name}: {shown(a)} -> {shown(b)}"
    return None


_MISSING = object()
_COMPARED = {*PLAIN, *IMMUTABLE, tuple}


def _state_of(optimizer: Any) -> list[Any]:
    """The objects that an optimizer's parameters and states are, in order."""
    return [
        *chain.from_iterable(group["params"] for group in optimizer.param_groups),
        *chain.from_iterable(map(dict.values, optimizer.state.values())),
    ]


def _settings(optimizer: Any) -> list[Any]:
    """The plain values in an optimizer's groups."""
    return [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
