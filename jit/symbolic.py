"""Sizes that are symbols: what a recorded run's types and attributes are for any size, not for its own.

Every call of the library's on tensors whose sizes are symbols is made twice: on the tensors, and on values of
a graph whose types have symbols for sizes.  Op by op the second must do what the first was heard to do; where
it does, its types and attributes are those of the first for all sizes of which its conditions hold, and these
become guards.  What the library's Python asks about sizes is answered for this run, and the answer is such a
condition; it can't ask for a number: that raises, and the symbols of that call are the sizes of this run from
there on, which is a guard too (`pin`).  So nothing is concluded from one run's numbers, and what is not
understood costs a recording, never a wrong result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import gcd, inf
from typing import Any
from weakref import proxy

import numpy as np

from ..ir.dims import Condition, Dim, Undecided, bounds, conditions, limits, substitute, symbol, symbols_of
from ..ir.dtypes import DType, int64
from ..ir.errors import LaminaError
from ..ir.graph import Builder, Node, Value
from ..ir.op import REGISTRY, Op
from ..ir.shapes import fitting
from ..ir.size import size
from ..ir.table import emitted_table, table
from ..ir.types import Device, Type, type_of
from ..passes.graphs.differentiate import saved_by
from ..runtime import Generator, Tensor, default_generator, modes
from ..runtime.interrupts import let_through
from . import strides
from .sized import name_of
from .sources import Lifted

_STATE = type_of(int64, (2,))  # of a generator
_PLAIN = (int, bool, float, str, type(None), DType, Device)
LEAST = 2  # of a size that is a symbol: none and one are cases of their own, as strides and broadcasting are
IN_ORDER = frozenset(("view", "reshape", "unsqueeze", "flatten"))  # after which elements lie as before
# Ops of the walk backwards itself: sums of cotangents, copies into gradients, zeros where none came.
_OF_THE_WALK = frozenset(("add", "clone", "detach", "cast", "ones_like", "zeros_like"))


UNKNOWN: Any = object()  # what a call comes to for other sizes, where that can't be told


class Mismatch(Exception):
    """The call on symbols did other ops than the one on tensors: (what)."""


class Symbolic:
    """What is known of a run's values for any size.

    It belongs to a Recorder, by whose numbers it knows values.  sizes: those of this run, by symbol, of
    symbols that are none any more too.  pinned: symbols that are this run's sizes, and why.  attrs, operands:
    of heard events, by their outputs (events are copied), where they differ from what was heard: attributes
    with symbols in them, and operands that are sizes.  need: told each condition, which becomes a guard.
    hold: told each symbol that is pinned.  answer: makes calls of functions of tensors with values.
    """

    def __init__(self, recorder: Any):
        self.recorder = proxy(recorder)  # whose part it is
        self.sizes: dict[str, int] = {}
        self.builder = Builder("symbolic", self.sizes)
        self.slots: dict[str, int] = {}
        self.limits: dict[str, tuple[float, float]] = {}
        self.pinned: dict[str, str] = {}
        self.equal: dict[str, int | Dim] = {}  # replaced where it changes
        self._told: tuple[int, dict, dict[str, int | Dim]] = (0, self.equal, {})
        self.asked: list[tuple[str, Any]] = []  # where guards fail, as Python, and the reasons
        self.types: dict[Any, Type] = {}  # of tensors that were there, by source
        self.attrs: dict[tuple[int, ...], dict[str, Any]] = {}
        self.operands: dict[tuple[int, ...], dict[int, Any]] = {}
        self.numbered: set[str] = set()  # symbols that are numbers of Python's, and no tensor's sizes
        self.numbers: dict[str, Dim] = {}  # those that Python knows, by their expressions
        self.values: dict[int, Value] = {}
        self.counts: dict[Any, int] = {}  # counters that draws took, by source
        self.draws: dict[Any, int | Dim] = {}  # the same for any size
        self._counted: dict[Value, int | Dim] = {}
        self._totals: dict[int, int | Dim] = {}
        self.need: Callable[[Condition], None] = _nothing
        self.hold: Callable[[str], None] = _nothing
        self.answer: Callable = _nothing
        self.busy = False  # a call is made on the tensors, or on values: what it asks is its own affair
        self._mirrored: dict[int, Value] | None = None  # of ops on tensors that a call on values makes
        self._walking = False  # backwards: numbers in what is heard may be sizes
        self._numbers: dict[Value, int] = {}
        self._nodes: dict[
            int, tuple[Any, Any]
        ] = {}  # nodes of eager's history, and the events that made them
        self._matched = 0  # steps of the recorder that are accounted for
        self._own_numbers: list[list[int]] = []  # from which step to which numbers are no sizes of the call
        self._apart: set[Dim] = set()  # sizes that are held to be neither none nor one
        self._seen = 0  # conditions that were handed on

    def forget(self) -> None:
        """Let go of the run."""
        self.need = self.hold = self.answer = _nothing
        for held in (
            self.values,
            self._numbers,
            self._nodes,
            self.attrs,
            self.operands,
            self.sizes,
            self.pinned,
            self.asked,
        ):
            held.clear()
        self.builder = Builder("symbolic", self.sizes)

    # ---- symbols ----
    @property
    def about(self) -> bool:
        """Whether any size is a symbol."""
        return len(self.sizes) > len(self.pinned)

    def declare(self, slot: int, value: int, low: int = LEAST, high: int | None = None) -> Dim:
        """The symbol for what a slot of the guards holds, which lies between two sizes."""
        name = name_of(slot)
        self.sizes[name], self.slots[name], self.limits[name] = (
            value,
            slot,
            (low, inf if high is None else high),
        )
        return symbol(name)

    def value_of(self, dim: int | Dim) -> int:
        """What a size is in this run."""
        found = substitute(dim, self.sizes)
        assert isinstance(found, int)
        return found

    def bounds(self, dim: int | Dim) -> tuple[float, float]:
        """An interval that holds a size in every run that is served."""
        with limits(self.limits):
            return bounds(dim)

    def now(self, kind: Type) -> Type:
        """A type with this run's sizes."""
        return type_of(kind.dtype, tuple(map(self.value_of, kind.shape)), kind.device)

    def settled(self, dim: Any) -> Any:
        """A size, or what an attribute holds, without symbols that are numbers by now, or other symbols."""
        if isinstance(dim, tuple):
            return tuple(map(self.settled, dim))
        return substitute(dim, self._known) if isinstance(dim, Dim) else dim

    @property
    def _known(self) -> dict[str, int | Dim]:
        """The symbols that are numbers by now, or other symbols, and what they are."""
        so_far = len(self.pinned), self.equal
        if self._told[:2] != so_far:
            numbers = {name: self.sizes[name] for name in self.pinned}
            known = {name: substitute(dim, numbers) for name, dim in self.equal.items()} | numbers
            self._told = *so_far, known
        return self._told[2]

    def pin(self, names: Iterable[str], why: str) -> None:
        """Take symbols for this run's sizes from here on."""
        names = dict.fromkeys(names)
        for name in [*names]:
            names.update(dict.fromkeys(_symbols(self.equal.get(name, 0))))
        fresh = [name for name in names if name not in self.pinned]
        if not fresh:
            return
        for name in fresh:
            self.pinned[name] = why
            self.hold(name)
        for value in self.values.values():
            shape = self.settled(value.type.shape)
            if shape != value.type.shape:
                value.type = type_of(value.type.dtype, shape, value.type.device)
        for source, kind in self.types.items():
            self.types[source] = type_of(kind.dtype, self.settled(kind.shape), kind.device)

    def pin_all(self, why: str) -> None:
        self.pin(list(self.sizes), why)

    @property
    def least(self) -> int:
        """What no size may be below that is neither none nor one in this run: one where a symbol may be."""
        return int(min((low for low, _ in self.limits.values()), default=LEAST))

    # ---- values ----
    def value(self, number: int) -> Value:
        """The graph's value that stands for one of the recorder's."""
        found = self.values.get(number)
        if found is None:
            kind = self.recorder.types[number]
            source = self.recorder.params.get(number)
            if source is not None:
                kind = self._of_source(source, kind)
            found = self.builder.param(kind)
            self._set(number, found)
        return found

    def of_array(self, x: Any) -> Value:
        """The value that stands for a tensor, or for an array.  Raises Mismatch for one that is not known."""
        number = self.recorder.known(x._data if isinstance(x, Tensor) else x)
        if number is None:
            raise Mismatch("it met a tensor of unknown origin")
        return self.value(number)

    def met(self, x: Any) -> Any:
        """The value for a tensor that a call on values came upon; others as they are."""
        if not isinstance(x, Tensor):
            return x
        number = self.recorder.known(x._data)
        return self.shown(x) if number is None else self._meant(number)

    def _meant(self, number: int) -> Value:
        """The value for one of the recorder's, within a call on values."""
        if self._mirrored is not None and number in self._mirrored:
            return self._mirrored[number]
        constant = self.recorder.constants.get(number)
        return self.value(number) if constant is None else self.builder.constant(constant)

    def mirror(self, event: Any) -> None:
        """Let an op on tensors without symbols be a node as well, where a call on values runs it."""
        if self._mirrored is None or event.writes:
            return
        inputs = [None if v is None else self._meant(v) for v in event.inputs]
        node = self.builder.emit(event.op, inputs, event.attrs)
        self._mirrored.update(zip(event.outputs, node.outputs, strict=True))

    def shown(self, x: Tensor) -> Value:
        """The value that stands for a tensor, which may be met for the first time."""
        return self.value(self.recorder.value(x))

    def _of_source(self, source: Any, kind: Type) -> Type:
        owner = getattr(source, "of", source)  # a gradient is of its leaf's type
        return self.types.get(owner, kind)

    def _set(self, number: int, value: Value) -> None:
        self.values[number], self._numbers[value] = value, number

    def shape(self, x: Tensor) -> tuple[int | Dim, ...] | None:
        """The shape of a tensor, if a symbol is in it."""
        if not self.about:
            return None
        try:
            data = x._data
        except LaminaError:  # inside of a transform, whose call is made on values as a whole
            return None
        self.catch_up(len(self.recorder.steps))
        number = self.recorder.known(data)
        if number is not None:
            shape = self.value(number).type.shape
        else:
            origin = self.recorder._origins.get(id(data))
            if origin is None:
                return None
            shape = self._of_source(origin[1], x._meta).shape
        return shape if any(isinstance(n, Dim) for n in shape) else None

    def concerns(self, x: Any) -> bool:
        """Whether a value is a tensor with a symbol for a size."""
        return isinstance(x, Tensor) and self.shape(x) is not None

    def looked_at(self, x: Tensor) -> None:
        """Somebody was told a tensor's sizes as numbers."""
        if self.busy:
            return
        shape = self.shape(x)
        if shape is not None:
            self.pin(_symbols(shape), f"the sizes of a tensor {x._meta} were asked for as numbers")

    # ---- calls ----
    def call(
        self,
        function: Callable,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        again: Callable,
        given: tuple,
    ) -> tuple[Any, Any]:
        """What a function makes of tensors; and of values, UNKNOWN where symbols had to be pinned.

        again: the same as written for values, and `given` what it is given: (arguments, by name).
        """
        steps = self.recorder.steps
        self.catch_up(len(steps))
        begin = len(steps)
        try:
            with self._occupied():
                made = function(*args, **kwargs)
        except BaseException as error:  # which may be caught: for what sizes it is raised is not known
            self.pin_all(f"{type(error).__name__} was raised")
            raise
        if self.recorder.reason is not None:
            return made, UNKNOWN
        return made, self._shadowed(again, given, begin, made)

    @contextmanager
    def _occupied(self):
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before

    def _shadowed(self, again: Callable, given: tuple, begin: int, result: Any = UNKNOWN) -> Any:
        """Make a call on values, and have its ops stand for those that were heard from a step on."""
        for _ in range(8):
            heard = [
                self.value(v).type
                for event in self.recorder.steps[begin:]
                for v in event.inputs
                if v is not None
            ]
            named = _symbols_in(given) or _symbols(tuple([kind.shape for kind in heard]))
            try:
                return self._matching(again, given, begin, result)
            except Undecided as error:
                names, why = [n for n in error.names if n in self.sizes], error.rule
            except Mismatch as error:
                names, why = named, str(error)
            except Exception as error:
                let_through(error)
                names, why = named, f"{type(error).__name__}: {error}"
            names = [n for n in names if n not in self.pinned] or [n for n in named if n not in self.pinned]
            if not names:
                break
            called = getattr(again, "__name__", "a call")
            self.pin(names, f"{called}: {why}".partition("\n")[0])
            given = self._repinned(given)
        self._alone(begin)
        return UNKNOWN

    def _repinned(self, given: Any) -> Any:
        if isinstance(given, Dim):
            return self.settled(given)
        if isinstance(given, (tuple, list)):
            return type(given)(map(self._repinned, given))
        if isinstance(given, dict):
            return {k: self._repinned(v) for k, v in given.items()}
        if isinstance(given, slice):
            return slice(*map(self._repinned, (given.start, given.stop, given.step)))
        return given

    def _matching(self, again: Callable, given: tuple, begin: int, result: Any) -> Any:
        args, kwargs = given
        nodes, conditions = self.builder._nodes, self.builder.conditions
        start, before = len(nodes), len(conditions)
        try:
            events = self.recorder.steps[begin:]
            with self._occupied(), self.builder, limits(self.limits), self._without_effects(given):
                self.builder.tensors = self.answer
                self._mirrored = {}
                with modes.on_values(self.answer, _refuse_users):
                    made = again(*args, **kwargs)
            if result is not UNKNOWN and not _alike(result, made):
                raise Mismatch(f"it returns a {type(result).__name__}, in which sizes may stand")
            self._pair(events, nodes[start:])
        except BaseException:
            del nodes[start:], conditions[before:]
            raise
        finally:
            self._mirrored = None
        self._matched = len(self.recorder.steps)
        self._hand_on()
        return made

    @contextmanager
    def _without_effects(self, given: Any):
        """A call on values leaves nothing behind: no op on tensors, no draw.  Raises Mismatch."""
        steps = self.recorder.steps
        count, drawn = len(steps), dict(self.recorder.drawn)
        generators = {id(g): g for g in (default_generator, *self.recorder.generators, *_generators(given))}
        before = {key: g.position() for key, g in generators.items()}
        try:
            yield
        finally:
            moved = [g for key, g in generators.items() if g.position() != before[key]]
            for g in moved:
                now, then = g.position(), before[id(g)]
                g.advance(now, then[1] - now[1])
            del steps[count:]
            self.recorder.drawn.clear()
            self.recorder.drawn.update(drawn)
        if moved:
            raise Mismatch("it draws random numbers")

    def _pair(self, events: Sequence[Any], nodes: Sequence[Node]) -> None:
        """Let nodes stand for events, if they are the same ops on the same values.  Raises Mismatch."""
        sizes = {node.outputs[0]: node.attrs["value"] for node in nodes if node.op is size}
        tables = {node.outputs[0]: tuple(node.attrs.items()) for node in nodes if node.op is table}
        nodes = [node for node in nodes if node.op is not size and node.op is not table]
        told = [getattr(event, "op", None) for event in events]
        idle = [node for node in nodes if _is_idle(node)] if len(nodes) > len(told) else []
        nodes = [node for node in nodes if node not in idle]
        if told != [node.op for node in nodes]:
            spelled = (
                ", ".join(getattr(op, "name", "?") for op in ops) for ops in (told, [n.op for n in nodes])
            )
            raise Mismatch("tensors took {}; symbols {}".format(*(text or "nothing" for text in spelled)))
        for condition in self.builder.conditions[self._seen :]:
            if not condition.holds(self.sizes):
                raise Mismatch(f"{condition} does not hold")
        outputs: dict[Value, int] = {}
        pairs = [*zip(events, nodes, strict=True)]
        named = {v: n for event, node in pairs for v, n in zip(node.outputs, event.outputs)} if idle else {}
        for node in idle:
            (x,), (same,) = node.inputs, node.outputs
            number = outputs.get(x, named.get(x, self._numbers.get(x)))
            if number is None:
                raise Mismatch(f"{node.op.name} read something else")
            outputs[same] = number
        found: list[tuple[Any, Node, dict, dict]] = []
        for event, node in pairs:
            for number, value in zip(event.outputs, node.outputs, strict=True):
                kind = self.recorder.types[number]
                if self.now(value.type) is not kind:
                    raise Mismatch(f"{node.op.name} gave {kind}, of symbols {value.type}")
                outputs[value] = number
            operands: dict[int, Any] = {}
            for at, (number, value) in enumerate(zip(event.inputs, node.inputs, strict=True)):
                if value in sizes:
                    operands[at] = self._size(number, sizes[value])
                elif value in tables:
                    operands[at] = self._table(number, tables[value])
                elif value is not None and not self._same(number, value, outputs):
                    raise Mismatch(f"{node.op.name} read something else")
            attrs: dict[str, Any] = {}
            for name, given in node.attrs.items():
                if self._number(given) != event.attrs[name]:
                    raise Mismatch(f"{node.op.name}: {name} is {event.attrs[name]}, of symbols {given}")
                if _symbols(given):
                    attrs[name] = given
            found.append((event, node, attrs, operands))
        for event, node, attrs, operands in found:
            for number, value in zip(event.outputs, node.outputs, strict=True):
                self._set(number, value)
                self._keep_apart(value.type)
            if attrs:
                self.attrs[event.outputs] = dict(event.attrs) | attrs
            if operands:
                self.operands[event.outputs] = operands
            if event.op.traits.view:  # of a view with symbols, too, that the same call made
                self._along(event)

    def _along(self, event: Any) -> None:
        """Have a view's place in the memory that it shares be said with symbols."""
        homes, (number,) = self.recorder.homes, event.outputs
        if number in homes:
            root, chain = homes[number]
            before = homes.get(event.inputs[0], (root, ()))[1]
            own = (
                chain[-1][1] if event.outputs not in self.attrs else tuple(self.attrs[event.outputs].items())
            )
            homes[number] = root, (*before, (chain[-1][0], own))

    def _same(self, number: int | None, value: Value, outputs: Mapping[Value, int]) -> bool:
        """Whether an operand of a node is that of the event: a constant is by its value."""
        if number is None:
            return False
        if value in self._counted:
            return self._is_draw(number, value)
        own = outputs.get(value, self._numbers.get(value))
        if own is not None:
            return own == number
        constant = self.recorder.constants.get(number)
        data = getattr(value, "data", None)
        if constant is None or data is None:  # a number that is an input: its type is what counts
            return data is not None and self.recorder.types[number].shape == ()
        return constant.dtype == data.dtype and constant.tobytes() == np.ascontiguousarray(data).tobytes()

    def _keep_apart(self, kind: Type) -> None:
        """No size that is neither none nor one in this run is so in another."""
        for n in kind.shape:
            if not isinstance(n, Dim) or str(n) in self.sizes or n in self._apart:
                continue
            self._apart.add(n)
            value = self.value_of(n)
            least, _ = self.bounds(n)
            if value < LEAST:
                self.builder.conditions.append(Condition(n, "==", value))
            elif least < self.least:
                self.builder.conditions.append(Condition(n, ">=", self.least))

    # ---- random numbers ----
    def state(self) -> Value:
        """The value of a draw's state operand."""
        return self.builder.param(_STATE)

    def takes(self, state: Value, counters: int | Dim) -> None:
        """Note how many counters a draw takes."""
        self._counted[state] = counters

    def _is_draw(self, number: int, value: Value) -> bool:
        """Whether a value is the state of the draw that was heard; how many it takes is noted."""
        source = self.recorder.params.get(number)
        if value not in self._counted or source not in self.counts:
            return False
        count = self._counted[value]
        if self.value_of(count) != self.counts[source]:
            raise Mismatch("a draw takes other counters")
        self.draws[source] = count
        return True

    def number(self, source: Any) -> int | Dim | None:
        """The size that a lifted number is, which was an operand."""
        dim = self.numbers.get(source.expression) if isinstance(source, Lifted) and self.about else None
        if dim is None or symbols_of(dim) <= self.numbered:  # which is there as a number
            return None
        return self.settled(dim)

    def source(self, source: Any) -> Any:
        """A source of the recording, for any size: where a draw begins hangs on those before it."""
        return self._offsets().get(source, source) if source in self.counts else source

    def _offsets(self) -> dict[Any, Any]:
        totals: dict[int, int | Dim] = {}
        found = {}
        for source in sorted(self.counts, key=lambda source: source.offset):
            found[source] = replace(source, offset=totals.setdefault(source.generator, 0))
            totals[source.generator] += self.settled(self.draws.get(source, self.counts[source]))
        self._totals = totals
        return found

    def drawn(self) -> dict[int, int | Dim]:
        """The counters that are taken of each generator."""
        self._offsets()
        return self._totals

    def _size(self, number: int | None, dim: Dim) -> Dim:
        """A size that is an operand, which was heard as a number."""
        constant = None if number is None else self.recorder.constants.get(number)
        if constant is None or constant.shape or constant.item() != self.value_of(dim):
            raise Mismatch(f"{dim} was heard as another number")
        return dim

    def _table(self, number: int | None, attrs: tuple) -> tuple:
        """An array made of sizes, which was heard as a constant: the attributes of the node that makes it."""
        constant = None if number is None else self.recorder.constants.get(number)
        made = table.reference(**{name: self._number(value) for name, value in attrs})
        if constant is None or constant.dtype != made.dtype or constant.tobytes() != made.tobytes():
            raise Mismatch(f"{dict(attrs)['name']} was heard as another array")
        return attrs

    def _number(self, given: Any) -> Any:
        """What an attribute is in this run."""
        if isinstance(given, tuple):
            return tuple(map(self._number, given))
        return self.value_of(given) if isinstance(given, Dim) else given

    def _hand_on(self) -> None:
        """Have each new condition be a guard."""
        for condition in self.builder.conditions[self._seen :]:
            self.need(condition)
            self._identify(condition)
        self._seen = len(self.builder.conditions)

    def _identify(self, condition: Condition) -> None:
        """Two symbols that must be equal are one."""
        left, right = self.settled(condition.left), self.settled(condition.right)
        if condition.relation != "==" or left == right:
            return
        difference = left - right
        if isinstance(difference, Dim):  # 64*n == 64*m says n == m
            difference = difference // gcd(*[by for _, by in difference.terms])
        names = [name for name in _symbols(difference) if name in self.sizes]
        for name in sorted(names, key=self.slots.__getitem__, reverse=True):
            other = _solved(difference, name)
            if other is not None:
                self.equal = {k: substitute(v, {name: other}) for k, v in self.equal.items()} | {name: other}
                return

    # ---- what was heard by itself ----
    def catch_up(self, end: int) -> None:
        """Account for what was heard outside of any call that is made twice: no symbol may be in it."""
        steps = self.recorder.steps
        self._matched = min(self._matched, len(steps))
        if self.busy:
            return
        while self._matched < end:
            step = steps[self._matched]
            self._matched += 1
            shapes = [self.value(v).type.shape for v in step.inputs if v is not None]
            names = _symbols(tuple(shapes))
            if self._walking and self._may_tell_sizes(self._matched - 1):
                names = [*self.sizes]
            if names:
                what = getattr(step.op, "name", None) or getattr(step, "how", "an op")
                self.pin(names, f"{what} was heard of a call that is made on tensors alone")

    def stand_apart(self, begins: bool, at: int) -> None:
        """Numbers in what is heard from here on are no sizes of the call; or they may be again."""
        if begins:
            self._own_numbers.append([at, -1])
        elif self._own_numbers and self._own_numbers[-1][1] < 0:
            self._own_numbers[-1][1] = at

    def _may_tell_sizes(self, at: int) -> bool:
        """Whether numbers among the attributes of a step may be sizes."""
        if any(first <= at and (last < 0 or at < last) for first, last in self._own_numbers):
            return False
        return _tells_sizes(self.recorder.steps[at])

    def _alone(self, begin: int) -> None:
        self._matched = min(self._matched, begin)
        self.catch_up(len(self.recorder.steps))

    def made(self, outputs: Sequence[Tensor], event: Any) -> None:
        """Remember which event made a node of eager's history."""
        for x in outputs:
            node = x._node
            if node is not None:
                node = getattr(node, "node", node)
                self._nodes[id(node)] = node, event

    def attributes(self, event: Any) -> dict[str, Any]:
        """The attributes of an event, for any size."""
        found = self.attrs.get(event.outputs)
        return dict(event.attrs) if found is None else {k: self.settled(v) for k, v in found.items()}

    def operand(self, event: Any, at: int) -> Any:
        """The size that an operand of an event is, or the attributes of what makes it of sizes; else None."""
        found = self.operands.get(event.outputs, {}).get(at)
        return None if found is None else self.settled(found)

    def input(self, event: Any, at: int) -> Value | None:
        """The value of an operand of an event, within a call on values: what is made of sizes is so again."""
        number, of_sizes = event.inputs[at], self.operand(event, at)
        if isinstance(of_sizes, tuple):
            return emitted_table(self.builder, dict(of_sizes))
        if of_sizes is not None:
            return self.builder.emit(size, (), {"value": of_sizes}).outputs[0]
        return None if number is None else self.value(number)

    # ---- when the run is over ----
    def finish(self) -> None:
        """Account for all that was heard."""
        if self.about:
            self.before_step()

    def type(self, number: int) -> Type:
        """The type of one of the recorder's values, for any size."""
        if not self.about:
            return self.recorder.types[number]
        kind = self.value(number).type
        return type_of(kind.dtype, self.settled(kind.shape), kind.device)

    def is_open(self, source: Any) -> bool:
        """Whether a tensor that was there has a symbol in its type."""
        owner = getattr(source, "of", source)
        return owner in self.types and bool(_symbols(self.settled(self.types[owner].shape)))

    def guards(self) -> tuple[tuple[str, Any], ...]:
        """The guards of symbols: where they fail, as Python, and the reasons."""
        if not self.about:
            return ()
        own = {f"S[{at}]": self.settled(symbol(name)) for name, at in self.slots.items()}
        texts = {slot: re.sub(r"\bs(\d+)\b", r"S[\1]", f"({dim})") for slot, dim in own.items()}
        pattern = re.compile("|".join(map(re.escape, texts)))
        return tuple(
            [
                (pattern.sub(lambda found: texts[found[0]], condition), reason)
                for condition, reason in self.asked
                if pattern.search(condition)
            ]
        )

    def needs(self) -> tuple[Condition, ...]:
        """What the graph's types take for granted of symbols; all of it is guarded."""
        if not self.about:
            return ()
        found = map(self.settled_condition, self.builder.conditions)
        return tuple(dict.fromkeys(c for c in found if symbols_of(c.left) | symbols_of(c.right)))

    def settled_types(self) -> dict[Any, Type]:
        """The types of tensors that were there, by source, for any size."""
        if not self.about:
            return {}
        return {s: type_of(t.dtype, self.settled(t.shape), t.device) for s, t in self.types.items()}

    def left(self) -> dict[str, int]:
        """The symbols that are still some, and their slots."""
        return {n: s for n, s in self.slots.items() if n not in self.pinned and n not in self.equal}

    def settled_chain(self, chain: tuple) -> tuple:
        return tuple([(name, tuple([(k, self.settled(v)) for k, v in attrs])) for name, attrs in chain])

    def may_copy(self, event: Any) -> bool:
        """Whether an op is a view for some sizes and a copy for others, as far as is known."""
        numbers = (event.inputs[0], event.outputs[0])
        if not any(_symbols(self.type(v).shape) for v in numbers):
            return False
        root, chain = self.recorder.root(event.inputs[0])
        in_order = all(n in IN_ORDER for n, _ in chain)
        if root in self.recorder.copied or event.copied and in_order:
            return True
        return not in_order and self._copies(event, root, chain) is not event.copied

    def _copies(self, event: Any, root: int, chain: tuple) -> bool | None:
        """Whether a reshape of a view of what lies row by row copies; what decides it is a guard, then.

        None where it isn't known.
        """
        views = [step for step in self.recorder.steps if getattr(step, "op", None) and step.op.traits.view]
        at, number, steps = {step.outputs[0]: step for step in views}, event.inputs[0], []
        while number != root:
            if number not in at:
                return None
            steps.append(at[number])
            number = at[number].inputs[0]
        if 0 in self.recorder.types[root].shape:
            return None
        needed: list[Condition] = []
        with limits(self.limits), conditions(needed, self.sizes):
            layout: Any = strides.contiguous(self.type(root).shape)
            for step in reversed(steps):
                attrs, shape = self.attributes(step), self.type(step.outputs[0]).shape
                layout = strides.through(layout, step.op.name, attrs, shape)
                if layout is None:
                    return None
            found = strides.copies(layout, self.type(event.outputs[0]).shape)
        if found is event.copied:
            for condition in needed:
                self.need(condition)
        return found

    def hold_to(self, conditions: Sequence[Condition]) -> None:
        """Have the conditions of the finished graph be guards.  Raises Mismatch where one does not hold."""
        guarded = {str(self.settled_condition(c)) for c in self.builder.conditions}
        for condition in conditions:
            if not condition.holds(self.sizes):
                raise Mismatch(f"{condition} does not hold")
            if str(condition) not in guarded:
                self.need(condition)

    def settled_condition(self, condition: Condition) -> Condition:
        """A condition as it is known by now."""
        return Condition(self.settled(condition.left), condition.relation, self.settled(condition.right))

    # ---- the walk backwards ----
    @contextmanager
    def walk(self):
        """Within this, what is heard is the engine's own, or that of a step."""
        self.catch_up(len(self.recorder.steps))
        before, self._walking = self._walking, True
        try:
            yield
            self.before_step()
        finally:
            self._walking = before

    @contextmanager
    def beside_walk(self):
        """Within this, the user's code runs that a walk came to: its calls are made twice, as elsewhere."""
        if not self._walking or self.busy:
            yield
            return
        self.before_step()
        self._walking = False
        try:
            yield
        finally:
            self.catch_up(len(self.recorder.steps))
            self._walking = True

    def before_step(self) -> None:
        """A step of a backward begins: what was heard since the last are sums of cotangents and the like."""
        if self.busy:
            return
        steps = self.recorder.steps
        while self._matched < len(steps):
            begin, step = self._matched, steps[self._matched]
            op = getattr(step, "op", None)
            if op is not None and op.name in _OF_THE_WALK and not step.writes:
                self._emitted(op, step, begin)
            self.catch_up(begin + 1)

    def _emitted(self, op: Op, event: Any, begin: int) -> None:
        """Let an op without numbers among its attributes stand for an event."""
        if not self.recorder.constants.keys().isdisjoint(event.inputs):
            return
        inputs = [None if v is None else self.value(v) for v in event.inputs]
        nodes, conditions = self.builder._nodes, self.builder.conditions
        start, before = len(nodes), len(conditions)
        try:
            with self.builder, limits(self.limits):
                self.builder.emit(op, inputs, event.attrs)
            self._pair([event], nodes[start:])
        except Exception as error:
            let_through(error)
            del nodes[start:], conditions[before:]
            return
        self._matched = begin + 1
        self._hand_on()

    def step(self, run: Callable, n: Any, g: Any, create: bool) -> Any:
        """A step of a backward, made twice as other calls are."""
        if not self.about or self.busy or self.recorder.reason is not None:
            return run(n, g, create)
        self.before_step()
        begin = len(self.recorder.steps)
        with self._occupied():
            found = run(n, g, create)
        known = self._nodes.get(id(n))
        if self.recorder.reason is not None or self._matched > begin:
            return found
        told = UNKNOWN
        if known is not None and known[0] is n:
            told = self._shadowed(_rule_of(n.plan.op), ((self, known[1], n, g), {}), begin)
        if told is UNKNOWN:
            if any(map(self._may_tell_sizes, range(begin, len(self.recorder.steps)))):
                self.pin_all("a gradient was heard of what is written on tensors alone")
            self._alone(begin)
        return found


def _is_idle(node: Node) -> bool:
    """Whether a node is no op on tensors, which hand their operand through: no dimension is squeezed."""
    return node.op.name == "squeeze" and node.outputs[0].type.shape == node.inputs[0].type.shape


def _tells_sizes(step: Any) -> bool:
    """Whether numbers among the attributes of what was heard may be sizes."""

    def told(given: Any) -> bool:
        return any(map(told, given)) if isinstance(given, tuple) else type(given) is int

    return any(map(told, (getattr(step, "attrs", None) or {}).values()))


def _rule_of(op: Op) -> Callable:
    def gradient(symbolic: Symbolic, event: Any, n: Any, g: Any) -> list[Value | None]:
        given = g if type(g) is list else [g, *n.plan.unused]
        inputs = tuple([symbolic.input(event, at) for at in range(len(event.inputs))])
        outputs = tuple(map(symbolic.value, event.outputs))
        node = Node(op, inputs, outputs, symbolic.attributes(event))
        cotangents = tuple([None if x is None else symbolic.of_array(x) for x in given])
        needs = tuple([e is not None for e in n.edges])
        types = tuple(None if v is None else v.type for v in (*inputs, *outputs))
        found = op.cotangents(saved_by(node), cotangents, dict(node.attrs), needs, types)
        return [
            _fitted(h, v.type) if need and h is not None and v is not None else None
            for v, need, h in zip(inputs, needs, found, strict=True)
        ]

    gradient.__name__ = f"the gradient of {op.name}"
    return gradient


def _solved(difference: Dim, name: str) -> int | Dim | None:
    """What a symbol is where a difference is none, if that is a whole number of it or none."""
    by = sum(by for monomial, by in difference.terms if [atom.text for atom in monomial] == [name])
    rest = difference - by * symbol(name)
    return -by * rest if by in (1, -1) and name not in symbols_of(rest) else None


def _generators(given: Any) -> list[Generator]:
    if isinstance(given, (tuple, list)):
        return [g for each in given for g in _generators(each)]
    if isinstance(given, dict):
        return _generators(tuple(given.values()))
    return [given] if isinstance(given, Generator) else []


def _fitted(h: Value, kind: Type) -> Value:
    """A cotangent in its operand's shape and dtype, by the ops that `fit_tensor` takes for a tensor."""
    how = fitting(h.shape, kind.shape)
    if how is not None:
        dims, shape = how
        h = REGISTRY["reshape"](REGISTRY["sum"](h, dim=dims), shape) if dims else REGISTRY["expand"](h, shape)
    return h if h.dtype is kind.dtype else REGISTRY["cast"](h, dtype=kind.dtype)


def _refuse_users(function: Callable, *_: Any) -> Any:
    raise Mismatch("it calls a function of the user's, which is called once")


def _alike(result: Any, told: Any) -> bool:
    """Whether what a call returns can hold no size but those that were told for all."""
    if isinstance(result, Tensor):
        return isinstance(told, Value)
    if type(result) is int and isinstance(told, Dim):
        return True
    if isinstance(result, (tuple, list)):
        same = isinstance(told, (tuple, list)) and len(told) == len(result)
        return same and all(
            _alike(a, b) and not isinstance(b, Dim) for a, b in zip(result, told, strict=True)
        )
    return type(result) in _PLAIN and type(told) is type(result) and told == result


def _nothing(what: Any) -> None:
    pass


def _symbols(given: Any) -> list[str]:
    """The symbols in a size, or in tuples of such."""
    if isinstance(given, tuple):
        return list(dict.fromkeys(name for each in given for name in _symbols(each)))
    return sorted(symbols_of(given)) if isinstance(given, Dim) else []


def _symbols_in(given: Any) -> list[str]:
    """The symbols in what a call is given: sizes, and the types of values."""
    if isinstance(given, Value):
        return _symbols(given.type.shape)
    if isinstance(given, (tuple, list)):
        return list(dict.fromkeys(name for each in given for name in _symbols_in(each)))
    if isinstance(given, dict):
        return _symbols_in(tuple(given.values()))
    if isinstance(given, slice):
        return _symbols_in((given.start, given.stop, given.step))
    return _symbols(given)
