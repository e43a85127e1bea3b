"""A finished recording: the graph of what a run did, and all that a replay needs besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ir.detach import detach
from ..ir.dims import Condition, Dim, limits
from ..ir.graph import Builder, Constant, Graph, Value
from ..ir.op import REGISTRY
from ..ir.table import emitted_table
from ..ir.types import CPU, Device, Type
from ..ir.where import Where
from ..ir.write import write
from ..passes.graphs.functionalise import functionalise, written
from ..runtime import Tensor
from ..runtime.autograd import reachable
from ..runtime.graph import Leaf, Node, Port, Saving
from ..runtime.interrupts import let_through
from ..runtime.places import Place, line_of
from ..runtime.storage import Inferred
from . import pytree
from .facts import IMMUTABLE, PLAIN, Refusal
from .observe.outcome import Outcome
from .recorder import Event, Question, Recorder
from .sources import Arg, Fresh, Given, Grad, Held, Made, Maker, Memory, Source

KEEP = object()  # what becomes of a leaf's gradient: it stays the tensor it is


@dataclass(frozen=True)
class Ready:
    """A returned leaf: the tensor at that place of the makers."""

    at: int


@dataclass(frozen=True)
class Recording:
    """What one run did.

    raw: the graph with its writes and views.  graph: the same in values; its results are what `questions`
    ask about (`asked` says which ask which), from `first` on what is returned or becomes a gradient, then,
    for each of `written`, what the param becomes.  sources: of the params.
    makers: of the tensors that the run left.  outcome: what makes of them what is returned, and has the
    effects.  switched: arguments that the run had ask for gradients.
    shape, leaves: of what is returned: a leaf is a number of `makers`' or a plain value; None where something
    else is returned.
    gradients: leaves and what their gradients become.  before: which leaves had one, empty where that was of
    no account.  grads: types and layouts of those that are read.
    writes: whose storage counts how many writes, and the last.  draws: numbers of generators, and the
    counters taken from each, which may hang on sizes.  groups: of the optimizers' groups, by number, the
    numbers that are read before the run writes them.
    live: it returns what has history.  foreign: why such outputs can't be differentiated by the record.
    ops: how often each op ran.  symbols: the sizes that are symbols in the graph, with the slots that hold
    them.  sizes: what these were in the run.  guards: of those, where a recording does not hold, as Python,
    and why.  types: of tensors that were there, with symbols.
    needs: what the graph's types take for granted of symbols.  place: the device of all that it computes.
    """

    raw: Graph
    graph: Graph
    sources: tuple[Source, ...]
    questions: tuple[Question, ...]
    asked: tuple[tuple[int | None, ...], ...]
    first: int
    makers: tuple[Maker, ...]
    outcome: Outcome
    shape: pytree.Shape
    leaves: tuple[Any, ...] | None
    gradients: tuple[tuple[Source, Any], ...]
    before: tuple[tuple[Source, bool], ...]
    grads: tuple[tuple[Source, Any, Any], ...]
    written: tuple[int, ...]
    writes: tuple[tuple[Source, int, tuple[str, Place]], ...]
    draws: tuple[tuple[int, int | Dim], ...]
    groups: Mapping[int, dict[str, Any]]
    live: bool
    foreign: str | None
    switched: tuple[Source, ...] = ()
    ops: Mapping[str, int] = field(default_factory=dict)
    symbols: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    guards: tuple[tuple[str, Any], ...] = ()
    types: Mapping[Source, Type] = field(default_factory=dict)
    needs: tuple[Condition, ...] = ()
    place: Device = CPU


def finished(recorder: Recorder, outcome: Outcome, result: Any) -> Recording:
    """The recording of a run that returned `result` and left `outcome`.  Raises Refusal."""
    if recorder.reason is not None:
        raise Refusal(recorder.reason)
    recorder.check()
    if recorder.written and (overlap := recorder.overlapping()):
        raise Refusal(f"memory that is written belongs to two tensors: {overlap}")
    symbolic = recorder.symbolic
    symbolic.finish()
    found = None
    if symbolic.about:
        try:
            with limits(symbolic.limits):
                found = _Finish(recorder).recording(outcome, result)
        except Exception as error:  # what has no form for all sizes may have one for these
            let_through(error)
            symbolic.pin_all(f"{type(error).__name__}: {error}".partition("\n")[0])
    if found is None:
        found = _Finish(recorder).recording(outcome, result)
    outcome.tensors.clear()  # which are the user's from here on
    return found


class _Finish:
    def __init__(self, recorder: Recorder):
        self.r = recorder
        self.results: list[int | Question] = []  # value numbers, and questions about a value as it was then
        self.places: dict[int | Question, int] = {}
        self.live = False
        self.roots: list[int] = []  # whose memory each tensor that is left has
        self.makers: dict[int, Any] = {}  # by the id of the tensor, as one is to be one again

    def recording(self, outcome: Outcome, result: Any) -> Recording:
        r = self.r
        makers = [self.maker(x) for x in outcome.tensors]
        gradients = self.gradients()
        asked_of = [step for step in r.steps if isinstance(step, Question)]
        questions = tuple(step for step in asked_of if not step.leaves)
        makers += [self.told(step) for step in asked_of if step.leaves]
        if self.live and r.replaced:
            raise Refusal("its outputs have a history, and the data of a tensor was replaced")
        if self.live and r.switched:
            raise Refusal("its outputs have a history, and a tensor was asked for its gradient in the run")
        if self.live and r.detached & r.written:
            raise Refusal("its outputs have a history, and a tensor was written that is detached elsewhere")
        raw = self.graph()
        changed = written(raw)
        sources = tuple(map(r.symbolic.source, self.given().values()))
        asked, at = [], 0
        for question in questions:
            places: list[int | None] = []
            for v in question.inputs:
                places.append(None if v is None else at)
                at += v is not None
            asked.append(tuple(places))
        shape, leaves = _leaves(outcome, result)
        self.check_symbols(sources)
        ops: dict[str, int] = {}
        for step in r.steps:
            if step.op is not None:
                ops[step.op.name] = ops.get(step.op.name, 0) + 1
        return Recording(
            raw=raw,
            graph=functionalise(raw),
            sources=sources,
            questions=questions,
            asked=tuple(asked),
            first=at,
            makers=tuple(makers),
            outcome=outcome,
            shape=shape,
            leaves=leaves,
            gradients=tuple(gradients),
            switched=tuple(source for _, source in r.switched),
            before=tuple((s, grad is not None) for _, s, grad in r.leaves) if r.gradients else (),
            grads=tuple(
                (Grad(s), grad._meta, grad._data.flags.c_contiguous or grad._data.strides)
                for _, s, grad in r.leaves
                if grad is not None and isinstance(s, (Arg, Held)) and Grad(s) in sources
            ),
            written=changed,
            writes=tuple((s, len(writers), writers[-1]) for s, writers in r.writers.items()),
            draws=tuple(r.symbolic.drawn().items()),
            groups={number: r.read[number] for number in sorted(r.read)},
            live=self.live,
            foreign=r.foreign,
            ops=ops,
            symbols=r.symbolic.left(),
            sizes={name: r.symbolic.sizes[name] for name in r.symbolic.left()},
            guards=r.symbolic.guards(),
            types=r.symbolic.settled_types(),
            needs=r.symbolic.needs(),
            place=r.place,
        )

    def check_symbols(self, sources: Iterable[Source]) -> None:
        """Raise Refusal where something would differ between sizes that no condition tells of."""
        r = self.r
        if not r.symbolic.about:
            return
        if any(isinstance(s, (Grad, Memory)) and r.symbolic.is_open(s) for s in sources):
            raise Refusal("a gradient that was there has a size that changes")
        leaving = self.roots
        for step in r.steps:
            if isinstance(step, Event) and step.op.traits.copies and step.inputs[0] is not None:
                source, made = r.root(step.inputs[0])[0], r.root(step.outputs[0])[0]
                others = leaving.count(source) - (made == source)
                aliases = made in leaving and (source in r.params or others > 0)
                matters = aliases or not r.written.isdisjoint((source, made))
                if matters and r.symbolic.may_copy(step):
                    raise Refusal("whether a reshape copies may differ between sizes")

    # ---- what is returned ----
    def maker(self, x: Tensor) -> Maker:
        """How a tensor that the run left is made at a replay.  Raises Refusal."""
        if id(x) not in self.makers:
            self.makers[id(x)] = self.maker_of_tensor(x)
        return self.makers[id(x)]

    def maker_of_tensor(self, x: Tensor) -> Maker:
        source = self.r.source_of(x)
        if source is not None:
            return Given(source)
        if type(x) is not Tensor:
            raise Refusal(f"it returns a new {type(x).__name__}")
        root, chain = self.r.root(self.r.value(x))
        self.roots.append(root)
        chain = self.r.symbolic.settled_chain(chain)
        if x._view is not None and not chain:  # a view of all elements as they are: their arrays are one
            chain = x._view[1][-1:]
        origin, apart = self.r.params.get(root), False
        if x._view is not None and isinstance(origin, (Arg, Held, Grad)):
            origin, apart = self.seen_through(x._view[0], origin)
        if isinstance(origin, Memory):
            raise Refusal("a tensor over the memory of a NumPy array is left; clone() it")
        if isinstance(origin, (Arg, Held, Grad)):
            base: Given | Fresh = Given(origin)
        else:
            base = Fresh(self.result(root), self.r.copied.get(root))
        shares = x._storage is not None and self.shares(x, root)
        inferred = type(x._storage) is Inferred
        return Made(base, chain, x._view is not None, shares, self.history(x), apart, inferred)

    def seen_through(self, whole: Tensor, origin: Source) -> tuple[Source, bool]:
        """Which tensor that was there a view with this base is of; or whether of what the run detached.

        Tensors may have one array, as detach() gives it: which of them it was shows by its history later.
        """
        tensors = self.r.tensors()
        array = tensors[origin]._data
        for source in (origin, *tensors):
            t = tensors[source]
            if t._data is array and (t if t._view is None else t._view[0]) is whole:
                return source, False
        return origin, True

    def shares(self, x: Tensor, root: int) -> bool:
        """Whether it has the storage of the tensor that was there."""
        return root in self.r.params and self.r.owner(x, root) == self.r.params[root]

    def history(self, x: Tensor) -> Any:
        node = x._node
        if node is None:
            return "none"
        if type(node) is Leaf:
            if node.hooks or node.after or node.grad is not None:
                raise Refusal("it returns a new leaf with hooks or a gradient")
            return "leaf"
        spent = _spent(node)
        if spent is not None:
            if any(e.hooks for e in reachable([node]) if type(e) is not Leaf):
                raise Refusal("it returns a tensor whose history is freed, and has hooks")
            return spent
        if _stale(node):
            raise Refusal(
                "its outputs can't be differentiated: something saved for that was changed in place"
            )
        if self.of_own_leaf(node):
            raise Refusal("its outputs have the history of a leaf that the run made")
        self.live = True
        return "live"

    def of_own_leaf(self, edge: Any) -> bool:
        """Whether a history leads to a leaf that the run made."""
        seen, left = set(), [edge]
        while left:
            e = left.pop()
            if e is None or id(e) in seen or self.r.knows(e):
                continue
            if type(e) is Leaf:
                return True
            seen.add(id(e))
            left.extend((e.node if type(e) is Port else e).edges)
        return False

    def result(self, number: int | Question) -> int:
        """The place among the results of what is returned, or of what is told of then and there."""
        if number not in self.places:
            self.places[number] = len(self.results)
            self.results.append(number)
        return self.places[number]

    def told(self, question: Question) -> Maker:
        """What a number is read off, when the effects come."""
        (number,) = question.inputs
        assert number is not None
        later = self.live or self.r.root(number)[0] in self.r.written
        return Made(Fresh(self.result(question if later else number), None), (), False, False, "none")

    def gradients(self) -> list[tuple[Source, Any]]:
        """What becomes of the leaves' gradients."""
        found = []
        if self.r.gradients:
            for x, source, before in self.r.leaves:
                after = x._node.grad if type(x._node) is Leaf else None
                found.append(
                    (source, KEEP if after is before else None if after is None else self.maker(after))
                )
        return found

    # ---- the graph ----
    def given(self) -> dict[int, Source]:
        """What the graph is given: its params' sources, but for numbers that are sizes."""
        params, symbolic = self.r.params, self.r.symbolic
        return {v: source for v, source in params.items() if symbolic.number(source) is None}

    def graph(self) -> Graph:
        """The graph with its writes.  Its results: what questions ask about, then `self.results`."""
        r = self.r
        changed = r.written & r.constants.keys()
        with Builder("traced", r.symbolic.sizes) as b:
            values: dict[int, Value] = {}
            for number in self.given():
                values[number] = b.param(r.symbolic.type(number), f"p{len(values)}")
            for number, data in r.constants.items():
                constant = Constant(data, None if not data.ndim else "c", r.types[number])
                values[number] = constant
                if number in changed or number in self.places:
                    values[number] = REGISTRY["clone"](constant)
            asked: list[Value] = []
            then: dict[Question, Value] = {}
            for step in r.steps:
                within = r.within.get(step.outputs, "") if isinstance(step, Event) else ""
                b.where = Where(*line_of(step.place), within)
                if isinstance(step, Question) and step.leaves:
                    if step in self.places:
                        (v,) = step.inputs
                        assert v is not None
                        then[step] = self.snapshot(b, values[v], v)
                        if self.live:
                            then[step] = b.emit(detach, (then[step],), {}).outputs[0]
                elif isinstance(step, Question):
                    asked += [self.snapshot(b, values[v], v) for v in step.inputs if v is not None]
                else:
                    self.emit(b, step, values)
            left = [then[each] if isinstance(each, Question) else values[each] for each in self.results]
            r.symbolic.hold_to(b.conditions)
            return b.finish([*asked, *left])

    def snapshot(self, b: Builder, value: Value, number: int) -> Value:
        """What a value is now, where it may be written later."""
        if self.r.root(number)[0] not in self.r.written:
            return value
        return REGISTRY["clone"](value)

    def emit(self, b: Builder, event: Event, values: dict[int, Value]) -> None:
        symbolic = self.r.symbolic
        op, attrs = event.op, symbolic.attributes(event)
        inputs: list[Any] = []
        for i, v in enumerate(event.inputs):
            size = symbolic.operand(event, i)
            if size is None and v is not None:
                size = symbolic.number(self.r.params.get(v))
            if isinstance(size, tuple):
                size = emitted_table(b, dict(size))
            inputs.append(values[v] if size is None and v is not None else size)
        if self.live:
            for i, over in enumerate(event.ended):
                if over:
                    inputs[i] = b.emit(detach, (inputs[i],), {}).outputs[0]
        if op.traits.copies and not event.copied:
            op = REGISTRY["view"]
        node = b.emit(op, inputs, attrs)
        outputs = list(node.outputs)
        if event.copied and self.r.written:
            outputs[0] = REGISTRY["clone"](outputs[0])
        for number, value in zip(event.outputs, outputs, strict=False):
            kind = self.r.types[number]
            if not event.writes and symbolic.now(value.type) is not kind:
                raise Refusal(f"{op.name} gave {kind} where its record says {value.type}")
            values[number] = value
        for target, new in event.writes:
            b.emit(write, (values[target], values[new]), {})


def _leaves(outcome: Outcome, result: Any) -> tuple[pytree.Shape, tuple[Any, ...] | None]:
    """The structure of what is returned, and its leaves as `Recording` has them."""
    if not outcome.constant:
        return None, None
    try:
        shape, leaves = pytree.flatten(result)
    except RecursionError:  # it holds itself
        return None, None
    if not all(issubclass(type(x), (*PLAIN, *IMMUTABLE, Tensor)) for x in leaves):
        return None, None
    places = {id(x): Ready(i) for i, x in enumerate(outcome.tensors)}
    if not all(
        id(x) in places for x in leaves if issubclass(type(x), Tensor)
    ):  # those of a container that was there
        return None, None
    return shape, tuple([places[id(x)] if issubclass(type(x), Tensor) else x for x in leaves])


def _stale(edge: Any) -> bool:
    """Whether a tensor that a node below `edge` saved was written since."""
    return any(
        store.version != version
        for e in reachable([edge])
        if type(e) is not Leaf and type(e) is not Port
        for store, version in zip(e.guards[::2], e.guards[1::2], strict=True)
    )


def _spent(edge: Any) -> Node | None:
    """A node that raises in backward what the first freed one below `edge` would; None if none is freed."""
    for e in reachable([edge]):
        if type(e) is not Leaf and type(e) is not Port and e.saved is None:
            made = object.__new__(Saving)
            made.plan, made.edges, made.saved, made.place = e.plan, (), None, e.place
            made.guards = e.guards
            return made
    return None
