"""Listens to an eager run and writes down what it did: the ops, and what Python was told.

Values are known by the NumPy array that holds them: detached tensors, gradients' own copies of what was saved
and the like are other tensors around the same array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any
from weakref import ref

import numpy as np

from ..ir.dtypes import from_numpy_dtype, int64
from ..ir.op import Op
from ..ir.types import CPU, Device, Type, type_of
from ..runtime import Generator, Tensor
from ..runtime.autograd import reachable
from ..runtime.compound import Compound
from ..runtime.graph import Leaf
from ..runtime.interrupts import let_through
from ..runtime.on_device import on_host, share_memory
from ..runtime.places import Place, here
from ..runtime.storage import Literal
from .facts import Refusal
from .observe.numbers import LIFTED
from .sources import Answer, Arg, Draw, Grad, Held, Lifted, Memory, Number, Source
from .symbolic import Symbolic

MOST_EVENTS = 200_000
MOST_IN_PASSING = 1024  # elements of a tensor, to compute with which takes no time that a clock shows
LONGEST = 64  # numbers that `tolist` may hand out and still be a guard


@dataclass(frozen=True)
class Event:
    """One op.  Values are numbers.  writes: pairs of a value written and the output it gets.

    ended: which inputs have no history though their values do.  copied: a reshape that had to copy.
    """

    op: Op
    attrs: Mapping[str, Any]
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    place: Place
    writes: tuple[tuple[int, int], ...] = ()
    ended: tuple[bool, ...] = ()
    copied: bool = False


@dataclass(frozen=True, eq=False)
class Question:
    """What Python, or a host op, made of values: the recording holds only where the answer is the same.

    how: "item", "bool", "int", "float", "complex", "tolist", or "host", whose answer is its outputs' shapes;
    or the name of what drew a number, which the attrs say (draws.py).
    slot: where an answer goes that may be another at each call, and is an input of what follows.  leaves:
    whether it only leaves the run, which it divides no more (observe/leaving.py).
    """

    how: str
    inputs: tuple[int | None, ...]
    answer: Any
    place: Place
    op: Op | None = None
    attrs: Mapping[str, Any] | None = None
    slot: int | None = None
    leaves: bool = False


class _Known(ref):
    """A weak reference to an array, which knows the number of its value."""

    __slots__ = ("number",)
    number: int


class Recorder:
    """What a run did, as far as it went.

    It learns of tensors that were there before as the run comes upon them (`origin`).  `reason`: why it can't
    be replayed; `once`: why only this run's recording is of no use.  asked: how many questions there were.
    generators, groups: of all recordings of the function, as sources count them.  symbolic: what the run is
    for other sizes.  around: tells the modules that run, as `Where` has them.
    """

    def __init__(self, generators: list[Generator] | None = None, groups: list[Any] | None = None):
        self.asked = 0
        self.symbolic = Symbolic(self)
        self.steps: list[Event | Question] = []
        self.around: Callable[[], str] = str
        self.within: dict[tuple[int, ...], str] = {}  # the modules that ran events, by their outputs
        self.types: list[Type] = []  # by value number
        self.params: dict[int, Source] = {}
        self.constants: dict[int, np.ndarray] = {}
        self.homes: dict[int, tuple[int, tuple]] = {}  # of views: the root and the chain from there
        self.flows: list[bool] = []  # whether differentiating the record would flow to a value
        self.copied: dict[int, tuple[int, ...]] = {}
        self.groups: list[tuple[Any, Any]] = groups if groups is not None else []
        self.generators: list[Generator] = generators if generators is not None else []
        self.drawn: dict[int, int] = {}
        self.read: dict[int, dict[str, Any]] = {}  # groups whose numbers are read: what these were before
        self.written: set[int] = set()  # roots
        self.writers: dict[Source, list[tuple[str, Place]]] = {}  # by whose storage counts the writes
        self.reason: str | None = None
        self.once: str | None = None
        self.foreign: str | None = None
        self.gradients = self.backward = self.acted = False
        self.replaced: set[int] = set()  # tensors that were there, by id, which were given other memory
        self.parts: dict[int, tuple[int, int]] = {}  # views that ops picked: the root, the step that picked
        self.detached: set[int] = set()  # roots whose memory is that of detached tensors, too
        self._values: dict[int, _Known] = {}  # by the id of the array, which another may have by now
        self._origins: dict[int, tuple[np.ndarray, Source, bool]] = {}
        self._given: dict[int, Source] = {}
        self._tensors: list[tuple[Tensor, Source]] = []
        self._by_array: dict[int, Tensor] = {}
        self._of_gradients: set[int] = set()  # the ids of their arrays
        self.leaves: list[tuple[Tensor, Source, Tensor | None]] = []
        self.switched: list[tuple[Tensor, Source]] = []  # which ask for their gradients since the run
        self.memories: list[Memory] = []
        self._edges: set[int] = set()
        self._before: list[tuple[Tensor, np.ndarray, Any]] = []
        self._devices: dict[Device, None] = {}  # of what is computed, and of what it is computed with

    @property
    def place(self) -> Device:
        """Where all of it runs.  Raises Refusal where that is more than one device."""
        if len(self._devices) > 1:
            raise Refusal(f"its tensors are on {' and on '.join(map(str, self._devices))}")
        return next(iter(self._devices), CPU)

    def origin(self, x: Tensor, source: Source) -> Tensor | None:
        """Take note of a tensor that was there before the run; return one met before with the same array."""
        if self.reason is not None:
            return None
        if id(x) in self._given:
            if self._given[id(x)] != source and self.reason is None:
                self.reason = f"a tensor {x._meta} is reached as a gradient, and otherwise too"
            return None
        if self.known(x._data) is not None and id(x._data) not in self._origins and self.reason is None:
            self.reason = f"a tensor {x._meta} that the run made is met as one that was there"
        if id(x._data) in self._of_gradients and self.reason is None:
            self.reason = f"a tensor {x._meta} is the memory of a gradient"
        twin = self._by_array.setdefault(id(x._data), x)
        if (twin._node is None) is not (x._node is None) and self.reason is None:
            self.reason = f"a tensor {x._meta} is the memory of another one, detached"
        self._given[id(x)] = source
        self._tensors.append((x, source))
        self._before.append((x, x._data, x._edge))
        self._origin(x, source)
        edge = x._node
        if edge is not None:
            self._edges.add(id(x._edge))
        if type(edge) is Leaf:
            self._follow(x, source, edge)
        return None if twin is x else twin

    def _follow(self, x: Tensor, source: Source, edge: Leaf) -> None:
        """Take note of a leaf, and of the gradient that it has."""
        self.leaves.append((x, source, edge.grad))
        if isinstance(edge.grad, Compound):
            self.reason = f"a gradient {edge.grad._meta} is a {edge.grad.what} tensor"
        elif edge.grad is not None:
            if id(edge.grad._data) in self._origins and self.reason is None:
                self.reason = f"a gradient {edge.grad._meta} is the memory of another tensor"
            self._of_gradients.add(id(edge.grad._data))
            self._origin(edge.grad, Grad(source))
            if self._given.setdefault(id(edge.grad), Grad(source)) == Grad(source):
                self._tensors.append((edge.grad, Grad(source)))

    def arrays(self) -> dict[Source, np.ndarray]:
        """The arrays of the tensors that were there before, by source."""
        return {source: x._data for x, source in self._tensors}

    def _origin(self, x: Tensor, source: Source) -> None:
        self._origins.setdefault(id(x._data), (x._data, source, x._node is not None))

    def knows(self, edge: Any) -> bool:
        """Whether the history of a tensor that was there before the run begins there."""
        return id(edge) in self._edges

    def tensors(self) -> dict[Source, Tensor]:
        """The tensors that were there before the run, by source."""
        return {source: x for x, source in self._tensors}

    @property
    def repeatable(self) -> bool:
        """Whether the run has changed no tensor, gradient or generator so far."""
        if self.written or self.drawn or self.gradients or self.backward or self.once or self.acted:
            return False
        return all(x._data is data and x._edge is edge for x, data, edge in self._before)

    def forget(self) -> None:
        """Let go of all tensors of the run."""
        for known in (self._tensors, self._before, self._by_array, self.leaves, self._given, self._origins,
                      self._values):  # fmt: skip
            known.clear()

    # ---- values ----
    def source_of(self, x: Tensor) -> Source | None:
        """Where a tensor object that was there before the run comes from."""
        return self._given.get(id(x))

    def value(self, x: Tensor) -> int:
        """The number of a tensor's value.  Raises Refusal for a tensor of unknown origin."""
        data = x._data
        found = self.known(data)
        if found is not None:
            return found
        origin = self._origins.get(id(data))
        if origin is not None:
            own = isinstance(origin[1], (Arg, Held, Grad)) and x._meta.ndim and x._meta.dtype.inexact
            number = self._new(x._meta, origin[2], neutral=not own)
            self.params[number] = origin[1]
            self._hold(data, number)
            return number
        if type(x._storage) is Literal:
            given: Any = x._storage.number
            if type(given) in LIFTED:
                return self._lifted(x, Lifted(given.expression, x._meta.dtype.name))
            return self._constant(data, x._meta)
        raise Refusal(f"a tensor {x._meta} was read that the run came by unseen")

    def known(self, data: np.ndarray) -> int | None:
        """The number of an array's value, if it has one."""
        found = self._values.get(id(data))
        return found.number if found is not None and found() is data else None

    def _lifted(self, x: Tensor, source: Lifted) -> int:
        dtype = x._meta.dtype
        if not dtype.inexact and dtype is not int64:  # which holds all ints that are lifted
            raise Refusal("a number that changes from call to call meets a tensor of integers")
        known = next((n for n, s in self.params.items() if s == source), None)
        number = self._new(x._meta, neutral=True) if known is None else known
        self.params[number] = source
        self._hold(x._data, number)
        return number

    def _new(self, kind: Type, flows: bool = False, neutral: bool = False) -> int:
        """A further value.  neutral: on the CPU it may go along with what is on a device."""
        if kind.device is not CPU or not neutral:
            self._devices[kind.device] = None
        if kind.device is not CPU:
            if kind.dtype.is_complex:
                raise Refusal("it computes with complex numbers on a device")
            kind = type_of(kind.dtype, kind.shape)
        if not (kind.dtype.traced or kind.dtype.is_complex):
            raise Refusal(f"it computes with {kind.dtype.name} ({kind}), which kernels don't know")
        self.types.append(kind)
        self.flows.append(flows)
        return len(self.types) - 1

    def made_by(self, number: int) -> Event | None:
        """The op that computed a value, and did nothing else."""
        return next(
            (
                s
                for s in reversed(self.steps)
                if isinstance(s, Event) and s.outputs == (number,) and not s.writes
            ),
            None,
        )

    def number_like(self, number: int) -> int:
        """A new value's number, of a value of that type."""
        return self._new(self.types[number], self.flows[number], neutral=True)

    def _constant(self, data: np.ndarray, kind: Type | None = None) -> int:
        if kind is None:
            dtype = from_numpy_dtype(data.dtype)
            if dtype is None:
                raise Refusal(f"an array of NumPy's {data.dtype} became a tensor")
            kind = type_of(dtype, data.shape)
        number = self._new(kind, False, neutral=True)
        self.constants[number] = np.array(on_host(data))
        self._hold(data, number)
        return number

    def _hold(self, data: np.ndarray, number: int) -> None:
        """Know the array by its id, for as long as it lives."""
        known = _Known(data)
        known.number = number
        self._values[id(data)] = known

    def root(self, number: int) -> tuple[int, tuple]:
        """The value whose memory this one is or shares, and the views that lead there."""
        return self.homes.get(number, (number, ()))

    # ---- what the hook hears ----
    def hear(self, op: Op, attrs: dict[str, Any], operands: tuple, outputs: tuple) -> None:
        if self.reason is None:
            try:
                self._hear(op, attrs, operands, outputs)
            except Refusal as refusal:
                self.reason = str(refusal)
            except Exception as error:  # the user's run goes on, whatever is wrong here
                let_through(error)
                self.reason = f"the recorder failed at {op.name}: {type(error).__name__}: {error}"

    def notice(self, kind: str, *what: Any) -> None:
        if self.reason is None:
            try:
                getattr(self, f"_{kind}")(*what)
            except Refusal as refusal:
                self.reason = str(refusal)
            except Exception as error:
                let_through(error)
                self.reason = f"the recorder failed at {kind}: {type(error).__name__}: {error}"

    def _hear(self, op: Op, attrs: dict[str, Any], operands: tuple, outputs: tuple) -> None:
        if len(self.steps) > MOST_EVENTS:
            raise Refusal(f"it runs more than {MOST_EVENTS} ops")
        inplace = "inplace" in attrs
        inputs = tuple([None if x is None else self.value(x) for x in operands])
        place = here()
        if op.traits.host:
            self._host(op, attrs, inputs, outputs, place)
            return
        ended = tuple([
            v is not None and self.flows[v] and x._node is None for x, v in zip(operands, inputs, strict=True)
        ])  # fmt: skip
        flows = op.differentiable and any(
            v is not None and self.flows[v] and not e for v, e in zip(inputs, ended, strict=True)
        )
        count = len(self.steps)
        if inplace:
            attrs = {name: value for name, value in attrs.items() if name != "inplace"}
            self._written(op, attrs, inputs, outputs, flows, ended, place)
        elif op.traits.view:
            self._viewed(op, attrs, operands[0], inputs, outputs[0], flows, ended, place)
        else:
            self._computed(op, attrs, inputs, outputs, flows, ended, place)
        if len(self.steps) == count:  # what is handed through is another's
            return
        event = self.steps[-1]
        assert isinstance(event, Event)
        self.within[event.outputs] = self.around()
        if self.symbolic.about:
            self.symbolic.made(outputs, event)
            self.symbolic.mirror(event)

    def _computed(
        self, op: Op, attrs: Mapping[str, Any], inputs: tuple, outputs: tuple, flows: bool, ended: tuple,
        place: Place,
    ) -> None:  # fmt: skip
        numbers = []
        for x in outputs:
            known = self.known(x._data)
            if known is not None and len(outputs) == 1:  # handed through
                return
            number = self._new(x._meta, flows and x._meta.dtype.inexact)
            self._hold(x._data, number)
            self._laid_out(number, x._data)
            numbers.append(number)
        self.steps.append(Event(op, dict(attrs), inputs, tuple(numbers), place, (), ended))

    def _viewed(
        self, op: Op, attrs: Mapping[str, Any], x: Tensor, inputs: tuple, out: Tensor, flows: bool,
        ended: tuple, place: Place,
    ) -> None:  # fmt: skip
        if out._data is x._data:
            return
        number = self._new(out._meta, flows)
        self._hold(out._data, number)
        shared = out._view is not None
        if shared:
            root, chain = self.root(inputs[0])
            name = "view" if op.traits.copies else op.name
            self.homes[number] = root, (*chain, (name, tuple(attrs.items())))
        else:
            self._laid_out(number, out._data)
        self.steps.append(
            Event(op, dict(attrs), inputs, (number,), place, (), ended, op.traits.copies and not shared)
        )

    def _written(
        self, op: Op, attrs: dict, inputs: tuple, outputs: tuple, flows: bool, ended: tuple, place: Place
    ) -> None:  # fmt: skip
        """An op whose results stand in tensors that were there: in-place forms, and updates."""
        if op.traits.mutates:
            targets = inputs[len(inputs) - len(outputs) :]
            made, hidden = outputs, ()
        else:
            targets, made, hidden = inputs[:1], outputs[:1], outputs[1:]
        numbers = tuple([self._new(x._meta, flows, neutral=not x._meta.ndim) for x in made])
        for x in hidden:
            number = self._new(x._meta, flows)
            self._hold(x._data, number)
            numbers = (*numbers, number)
        self.steps.append(
            Event(op, attrs, inputs, numbers, place, tuple(zip(targets, numbers, strict=False)), ended)
        )
        spelled = op.name if op.traits.mutates else f"{op.name}_"
        for target, x in zip(targets, made, strict=True):
            root = self.root(target)[0]
            self.written.add(root)
            if root in self.parts and x._node is not None:  # which knows where the part was this time
                raise Refusal("x[t] is a view where t is a 0-d tensor, and it was written with a history; "
                              "write x[int(t)]")  # fmt: skip
            source = self.owner(x, root)
            if source is not None:
                self.writers.setdefault(source, []).append((spelled, place))
            if (flows or self.flows[target]) and not (x._node is not None and not self._is_leaf(x)):
                self.foreign = f"a tensor with history was written by {spelled} without gradients"
            self.flows[root] = self.flows[root] or flows
            self.flows[target] = self.flows[target] or flows

    def owner(self, x: Tensor, root: int) -> Source | None:
        """The tensor that was there before the run, and whose storage counts what is written through `x`."""
        first = self.params.get(root)
        found = [source for t, source in self._tensors if t._storage is x._storage]
        return None if first is None or not found else first if first in found else found[0]

    @staticmethod
    def _is_leaf(x: Tensor) -> bool:
        return type(x._node) is Leaf

    def _laid_out(self, number: int, data: np.ndarray) -> None:
        """Note the order of the dimensions in memory, where it isn't row by row."""
        if not data.flags.c_contiguous and data.size:
            order = tuple(sorted(range(data.ndim), key=lambda d: (-abs(data.strides[d]), d)))
            self.copied[number] = order

    def _host(self, op: Op, attrs: Mapping[str, Any], inputs: tuple, outputs: tuple, place: Place) -> None:
        number = self.asked
        shapes = tuple(x._data.shape for x in outputs)
        self.steps.append(Question("host", inputs, shapes, place, op, dict(attrs)))
        self.asked += 1
        for index, x in enumerate(outputs):
            value = self._new(x._meta, neutral=True)
            self.params[value] = Answer(number, index)
            self._hold(x._data, value)

    # ---- what else it is told (see modes.tell) ----
    def _escape(self, x: Tensor, how: str, value: Any) -> None:
        if how == "tolist" and x._data.size > LONGEST:
            raise Refusal(f"tolist() handed {x._data.size} numbers to Python, more than the {LONGEST} that a "
                          "call can be held to")  # fmt: skip
        self.steps.append(Question(how, (self.value(x),), value, here()))
        self.asked += 1

    def is_work(self, step: Event | Question) -> bool:
        """Whether a step takes time that a clock is asked for."""
        if isinstance(step, Event) and step.op.traits.view:
            return False
        numbers = (*step.inputs, *(step.outputs if isinstance(step, Event) else ()))
        return any(v is not None and prod(self.types[v].shape) > MOST_IN_PASSING for v in numbers)

    def draw(self, name: str, generator: Any, draw: Any, args: tuple, value: Any) -> None:
        """Hear of a number that a generator of Python's or NumPy's drew."""
        about = {"generator": generator, "draw": draw, "args": args}
        self.steps.append(Question(name, (), value, here(), None, about))
        self.asked += 1
        self.acted = True

    def lift_answer(self, slot: int) -> None:
        """The last answer goes into a slot, and may be another at each call."""
        self.steps[-1] = replace(self.steps[-1], slot=slot)

    def _made(self, array: np.ndarray) -> None:
        if self.known(array) is None and id(array) not in self._origins:
            self._constant(array)

    def _drawn(self, generator: Generator, counters: int, state: Tensor) -> None:
        known = self.generators
        number = next((i for i, g in enumerate(known) if g is generator), len(known))
        if number == len(known):
            known.append(generator)
        drawn = self.drawn.get(number, 0)
        source = Draw(number, drawn)
        self._origins[id(state._data)] = (state._data, source, False)
        self.symbolic.counts[source] = counters
        self.drawn[number] = drawn + counters

    def _numbers(
        self, scalars: dict[str, Tensor | None], optimizer: Any, group: Any,
        written: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Hear of what an update reads; written: what the run itself has put there."""
        if optimizer is None:
            raise Refusal("an optimizer's update ran that no optimizer of lamina.optim asked for")
        at = next(i for i, g in enumerate(optimizer.param_groups) if g is group)
        known = self.groups
        number = next((i for i, (o, k) in enumerate(known) if o() is optimizer and k == at), len(known))
        if number == len(known):
            known.append((ref(optimizer), at))
        given = optimizer._asked(group)
        self.read.setdefault(number, {}).update({k: v for k, v in given.items() if k not in written})
        for name, x in scalars.items():
            number_of_run = written.get(name)
            if x is None or type(given.get(name)) not in (int, float):
                continue
            if type(number_of_run) in LIFTED:
                source: Source = Lifted(number_of_run.expression, x._meta.dtype.name)
            elif name in written:
                continue  # a constant
            else:
                source = Number(number, name)
            self._values.pop(id(x._data), None)
            self._origins[id(x._data)] = (x._data, source, False)

    def _gradients(self, leaf: Leaf | None = None) -> None:
        self.gradients = True
        if leaf is not None and id(leaf) not in self._edges:
            owner = leaf.owner()
            if owner is None or self.known(owner._data) is None:
                raise Refusal("backward reaches a leaf that nothing the function names leads to")

    def _kept(self, x: Tensor, gradient: Tensor | None) -> None:
        """Nothing here: who observes Python makes it a fact."""

    def _backward(self, outputs: Iterable[Any]) -> None:
        self.backward = True
        outside = {id(edge) for _, _, edge in self._before if edge is not None and type(edge) is not Leaf}
        begins = [x._node for x in outputs if isinstance(x, Tensor) and x._node is not None]
        if outside and any(id(edge) in outside for edge in reachable(begins)):
            raise Refusal("backward ran on into the history of a tensor from outside; detach() it before")

    def _detached(self, x: Tensor) -> None:
        if self.known(x._data) is not None or id(x._data) in self._origins:
            self.detached.add(self.root(self.value(x))[0])

    def _picked(self, x: Tensor, part: Tensor) -> None:
        self.parts[self.value(part)] = self.root(self.value(x))[0], len(self.steps) - 1

    def _replaced(self, x: Tensor) -> None:
        """A tensor that was there was given memory that the run has made: an effect does so again."""
        root = self.root(self.value(x))[0]
        kind = next(data for other, data, _ in self._before if other is x)
        if root in self.params or root in self.constants:
            raise Refusal(f"the data of a tensor {x._meta} became that of another one; copy it: x.copy_(y)")
        if x._data.shape != kind.shape or x._data.dtype != kind.dtype:
            raise Refusal(f"the data of a tensor was replaced by others of another type, {x._meta}")
        self.replaced.add(id(x))

    def may_have_written(self, array: Any) -> bool:
        """Whether the run may have changed the memory of an array of NumPy's."""
        tensors = [x._data for x, _ in self._tensors] if self.written else []
        return any(share_memory(data, array) for data in tensors)

    def over(self, x: Tensor, source: Memory) -> None:
        """Take note of a tensor over the memory of an array that was there before."""
        self._origins[id(x._data)] = x._data, source, False
        self.memories.append(source)

    def _switched(self, x: Tensor) -> None:
        """An argument asks for its gradient from here on; of any other tensor `check` refuses that."""
        self.acted = True
        source, edge = self.source_of(x), x._node
        alone = all(t is x or t._data is not x._data for t, _ in self._tensors)
        if not isinstance(source, Arg) or not alone or x._view is not None or type(edge) is not Leaf:
            return
        if any(t is x for t, *_ in self.leaves) or isinstance(edge.grad, Compound):
            return
        self.switched.append((x, source))
        self._edges.add(id(edge))
        data, _, _ = self._origins.get(id(x._data), (x._data, source, True))
        self._origins[id(x._data)] = data, source, True
        if (number := self.known(x._data)) is not None:
            self.flows[number] = True
        self._follow(x, source, edge)

    def _foreign(self, what: str) -> None:
        self.foreign = what

    def _sized(self, x: Tensor) -> None:
        self.symbolic.looked_at(x)

    def _once(self, reason: str) -> None:
        self.once = reason

    def _refuse(self, reason: str) -> None:
        raise Refusal(reason)

    def _apart(self, begins: bool) -> None:
        self.symbolic.stand_apart(begins, len(self.steps))

    # ---- afterwards ----
    def check(self) -> None:
        """Refuse what the run did that a replay could not.  Raises Refusal."""
        if any(isinstance(self.params.get(root), Memory) for root in self.written):
            raise Refusal("a tensor over the memory of a NumPy array was written; clone() it first")
        for x, data, edge in self._before:
            if x._data is not data and id(x) not in self.replaced:
                raise Refusal(f"the data of a tensor {x._meta} was replaced")
            switched = any(t is x for t, _ in self.switched)
            if switched and type(x._node) is not Leaf or not switched and x._edge is not edge:
                raise Refusal(f"the history of a tensor {x._meta} that was there before was changed")

    def overlapping(self) -> str | None:
        """Say if memory that is written is also that of another param."""
        used = [(data, source) for data, source, _ in self._origins.values()]
        roots = {self.params.get(root) for root in self.written}
        for written, source in used:
            if source in roots:
                for other, theirs in used:
                    if other is not written and share_memory(other, written):
                        return f"{theirs} and {source}"
        return None
