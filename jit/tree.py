"""The paths that calls can take: segments of one graph each, divided where Python asked for a value.

A path is cut by what its questions need.  The first segment computes the answer to the first question, and
hands over whatever else of it is wanted later; the last one computes the rest.  Values are told by how they
are computed, so a path that shares its beginning with another uses what is computed there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.dims import symbols_of
from ..ir.errors import ArgumentError
from ..ir.execute import executor
from ..ir.graph import Constant, Graph, Node, Value
from ..ir.locks import cached_property
from ..ir.meeting import Met
from ..ir.op import Op
from ..ir.types import Type
from ..passes.graphs.dce import refuses
from ..runtime import Tensor
from ..runtime.on_device import on_host
from ..runtime.places import Place
from ..runtime.storage import Inferred
from ..runtime.tensor import wrap
from .answers import RAISED, READERS, answered, hashable
from .draws import Undo, drawn
from .facts import Refusal, shown
from .observe.parts import Part, Reason, place_text
from .recording import Recording
from .report import Path
from .sized import with_sizes
from .sources import Answer, Fresh, Held, Made

if TYPE_CHECKING:
    from .guards import Conditions, Guard

Key = int  # of a value: equal where it is computed in the same way
MOST_ANSWERS = 8  # to one question


@dataclass
class Ask:
    """What Python, or a host op, makes of values: the next segment depends on the answer."""

    how: str
    keys: tuple[Key | None, ...]
    place: Place
    op: Op | None
    attrs: Mapping[str, Any] | None
    types: tuple[Type | None, ...]
    answers: tuple[Key, ...]  # of a host op's outputs

    def same(self, other: Ask) -> bool:
        return (self.how, self.keys, self.op, self.attrs) == (other.how, other.keys, other.op, other.attrs)

    @property
    def about(self) -> str:
        """What is asked for, for a reader."""
        if self.op is None:
            return f"the answer to {self.how}" if self.attrs is None else f"what {self.how}() drew"
        return "how much a mask selects" if self.op.name == "argwhere" else f"the size of {self.op.name}"

    def value(self, answer: Any) -> Any:
        """An answer for a reader: of a mask, how much it selects."""
        if self.op is None:
            return answered(answer)
        return answer[0][0] if self.op.name == "argwhere" else answer

    @property
    def remedy(self) -> str:
        """What to write instead where it has too many answers."""
        if self.op is None and self.attrs is None:
            return (
                "return the tensor and turn it into a number outside: running += loss.item() becomes "
                "running += loss"
            )
        if self.op is None:
            return "draw with lamina's generators, or pass the number in"
        return "write where(mask, x, 0), and mask.sum() for their number: its sizes stay"

    def __call__(self, values: dict[Key, np.ndarray], undo: Undo) -> Any:
        """The answer, hashable; outputs of a host op are added to the values.

        undo: notes the generators that are drawn from.
        """
        if self.op is None and self.attrs is not None:
            return hashable(drawn(self.attrs, undo))
        arrays = [None if k is None else values[k] for k in self.keys]
        if self.op is not None:
            arrays = [None if a is None else on_host(a) for a in arrays]
            run, _ = executor(self.op, self.types, self.attrs or {})
            outputs = run(*arrays)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            values.update(zip(self.answers, outputs, strict=False))
            return tuple(out.shape for out in outputs[: len(self.answers)])
        try:
            return hashable(READERS[self.how](arrays[0]))
        except (
            ValueError,
            OverflowError,
            ArgumentError,
        ) as error:  # as int(nan); the function itself will say
            return *RAISED, type(error)


def _any_in(slot: int) -> tuple[str, int]:
    """The key of the ways on for any answer, which goes into a slot."""
    return "any", slot


@dataclass
class Segment:
    """A graph, what it is given and what it gives; then a question, or the end of a path.

    frozen: the inputs that are weights, which the path does not write.  held: the numbers of these tensors,
    by position; None where there are none.
    """

    graph: Graph
    inputs: tuple[Key, ...]
    outputs: tuple[Key, ...]
    into: tuple[int | None, ...]
    frozen: frozenset[int]
    held: tuple[int | None, ...] | None = None
    ask: Ask | None = None
    branches: dict[Any, list[Branch]] = field(default_factory=dict)
    end: End | None = None
    code: Any = None  # what runs the graph; None until it is compiled
    reader: Any = None  # how a first segment's inputs are read, once that is known
    runs: int = 0
    full: str | None = None  # why calls that get here run eagerly: too many answers were seen
    slots: list[int] = field(default_factory=list)  # where answers go that are inputs of what follows
    symbols: Mapping[str, int] = field(default_factory=dict)  # sizes that are symbols, and their slots
    meetings: Sequence[tuple[str, dict[str, Any], Key]] = ()  # collectives before a question, in order

    def met(self, values: Mapping[Key, np.ndarray], S: list) -> list[Met]:
        """What its collectives gave in a call, for a call that must begin anew: no other rank would come."""
        sizes = {name: S[at] for name, at in self.symbols.items()}
        return [
            Met(kind, with_sizes(attrs.items(), sizes), values[key]) for kind, attrs, key in self.meetings
        ]

    def sizes(self, S: list) -> tuple[int, ...]:
        """What its symbols are in a call."""
        return tuple([S[at] for at in self.symbols.values()])

    def run(self, arrays: Sequence[np.ndarray], weights: Sequence[Tensor | None] | None, S: list) -> Sequence:
        """The outputs.  weights: the tensors behind its frozen inputs."""
        code = self.code.of(self.sizes(S)) if self.symbols else self.code
        return code.run(arrays, weights)

    @property
    def any_ways(self) -> list[Branch]:
        """The ways on for any answer."""
        return [branch for at in self.slots for branch in self.branches[_any_in(at)]]

    @property
    def is_full(self) -> bool:
        """Whether no more answers are worth a recording."""
        return len(self.branches) >= MOST_ANSWERS

    def ways(self, values: dict[Key, np.ndarray], S: list, undo: Undo) -> tuple[Any, Sequence[Branch]]:
        """The answer to the question, and the ways on: those of this very answer first."""
        assert self.ask is not None
        answer = self.ask(values, undo)
        ways = self.branches.get(answer, ())
        if self.slots and type(told := answered(answer)) in (int, float, list) and answer[:1] != RAISED:
            for at in self.slots:
                S[at] = told
            ways = [*ways, *self.any_ways]
        return answer, ways

    def told(self, answer: Any) -> str:
        """That an answer is new, for a reader."""
        assert self.ask is not None
        known = set(self.branches).difference(map(_any_in, self.slots))
        seen, new = (
            " or ".join([shown(self.ask.value(a)) for a in answers]) for answers in (known, [answer])
        )
        return f"{self.ask.about}: {seen} -> {new} ({place_text(self.ask.place)})"

    def all(self) -> Iterable[Segment]:
        """This segment and all that follow."""
        yield self
        for branches in self.branches.values():
            for branch in branches:
                if branch.segment is not None:
                    yield from branch.segment.all()


@dataclass(eq=False)
class Branch:
    """One way on: what must hold for it, and the segment that comes then, or why calls run eagerly there."""

    guard: Guard
    segment: Segment | None
    eager: str | None = None
    path: Path | None = None  # whose it is, for the report
    quick: Any = None  # the short way (quick.py), False where there is none
    watching: list[Any] = field(default_factory=list)  # weak references to what it depends on


def wrap_inferred(array: np.ndarray, kind: Type) -> Tensor:
    """A tensor as inference_mode() makes it."""
    x = wrap(array, kind)
    x._storage = Inferred()
    return x


@dataclass
class End:
    """The end of a path.

    results: of what is returned and then of what is written, the place among the last segment's outputs
    (None where an earlier one computed it), and the key.  Two results of one key are two arrays.  leftover:
    of the written params, those whose new values the last segment doesn't write itself: pairs of a param's
    position and a key.  params: the keys of all params.  types: of the results.
    conditions: what must hold besides the guards on the way.
    """

    recording: Recording
    results: tuple[tuple[int | None, Key], ...]
    leftover: tuple[tuple[int, Key], ...]
    params: tuple[Key, ...]
    types: tuple[Type, ...]
    conditions: Conditions
    live: Any = None  # the Differentiable, where what is returned has a history
    ready: bool = False  # whether all that leads here is compiled
    path: Any = None  # what the report says of it

    def live_for(self, S: list) -> Any:
        """The Differentiable for a call's sizes."""
        symbols = self.recording.symbols
        return self.live.of(tuple([S[at] for at in symbols.values()])) if symbols else self.live

    @cached_property
    def plain(self) -> tuple[tuple[int, Type, Callable], ...] | None:
        """The place and the type of each returned tensor, and what makes it of its array and type.

        None where new tensors are not all that a call leaves.
        """
        recording = self.recording
        if recording.gradients or recording.written or recording.writes or recording.draws or self.leftover:
            return None
        if recording.switched:
            return None
        found = []
        for maker in recording.makers:
            base = maker.base if isinstance(maker, Made) else None
            if not isinstance(base, Fresh) or base.order is not None:
                return None
            place = self.results[base.result][0]
            inferred = isinstance(maker, Made) and maker.inferred
            if maker != Made(base, (), False, False, "none", inferred=inferred) or place is None:
                return None
            found.append((place, self.types[base.result], wrap_inferred if inferred else wrap))
        return tuple(found) if len({place for place, *_ in found}) == len(found) else None


class Tree:
    """All recorded paths of calls with as many arguments, of the same names, under the same modes.

    dense: which of the captured tensors lie row by row.  sources: what each param's key stands for.  lost,
    places: why a path was dropped since the last miss, and all that such paths depended on, held weakly.
    """

    def __init__(self) -> None:
        self.dense: set[int] = set()
        self.branches: list[Branch] = []
        self.sources: dict[Key, Any] = {}
        self.paths = self.slots = 0
        self.lost: tuple[Part, Reason] | None = None
        self.places: list[tuple[Any, tuple]] = []
        self._keys: dict[tuple, Key] = {}

    def segments(self) -> Iterable[Segment]:
        """All segments of all paths."""
        for branch in self.branches:
            if branch.segment is not None:
                yield from branch.segment.all()

    def way_to(self, segment: Segment | None) -> list[Branch]:
        """The branches that lead to a segment."""
        return _way(self.branches, segment) or []

    def key(self, *described: Any) -> Key:
        return self._keys.setdefault(described, len(self._keys))

    def keys_of(self, recording: Recording) -> dict[Value, Key]:
        """The key of every value of a recording's graph."""
        keys: dict[Value, Key] = {}
        for value, source in zip(recording.graph.params, recording.sources, strict=True):
            keys[value] = self.key("param", source)
            self.sources[keys[value]] = source
        for value in recording.graph.used():
            if isinstance(value, Constant) and value not in keys:
                data = value.data
                keys[value] = self.key("constant", data.dtype.str, data.shape, data.tobytes())
        for place, node in enumerate(recording.graph.nodes):
            inputs = tuple(None if v is None else keys[v] for v in node.inputs)
            for number, value in enumerate(node.outputs):
                apart = (place,) if node.op.traits.meets else ()  # two that are equal are both run
                keys[value] = self.key(node.op.name, repr(dict(node.attrs)), inputs, number, *apart)
        return keys

    def insert(
        self, recording: Recording, guards: Sequence[Guard], conditions: Conditions
    ) -> tuple[list[Segment], list[tuple[list[Branch], Branch]]]:
        """Prepare a path: its new segments, and its branches, those to hang in too, with where they belong.

        guards: of each stretch.  Raises Refusal where it contradicts what is known.
        """
        keys = self.keys_of(recording)
        cut = _Cut(self, recording, keys, conditions)
        here, made, way = self.branches, [], []
        for number, question in enumerate(recording.questions):
            ask, nodes = cut.ask(number), cut.nodes(number)
            known = next((b for b in here if b.segment is not None and b.guard.same(guards[number])), None)
            if known is None or known.segment is None:
                segment = cut.segment(number, ask, nodes)
                made.append(segment)
                way.append((here, Branch(guards[number], segment)))
            else:
                segment = known.segment
                way.append((here, known))
                if segment.ask is None or not segment.ask.same(ask):
                    raise Refusal("two runs on the same arguments and state did different things")
            cut.known.update(segment.outputs)
            cut.run.update(nodes)
            answer = hashable(question.answer) if question.op is None else question.answer
            if question.slot is not None:
                answer = _any_in(question.slot)
            here = segment.branches.setdefault(answer, [])
            if question.slot is not None and question.slot not in segment.slots:
                segment.slots.append(question.slot)  # after its ways: an interrupt may come between
        last = cut.last()
        way.append((here, Branch(guards[len(recording.questions)], last)))
        return [*made, last], way


def _way(branches: Iterable[Branch], segment: Segment | None) -> list[Branch] | None:
    for branch in branches:
        if branch.segment is not None:
            if branch.segment is segment:
                return [branch]
            way = _way(chain.from_iterable(branch.segment.branches.values()), segment)
            if way is not None:
                return [branch, *way]
    return None


class _Cut:
    """Divides one recording's graph into segments.

    known: keys of what earlier segments handed over.  run: the nodes that they ran.
    """

    def __init__(self, tree: Tree, recording: Recording, keys: dict[Value, Key], conditions: Conditions):
        self.tree, self.recording, self.graph, self.keys = tree, recording, recording.graph, keys
        self.conditions = conditions
        self.known: set[Key] = set()
        self.run: set[Node] = set()
        self.maker = {v: node for node in self.graph.nodes for v in node.outputs}
        self.meetings = [node for node in self.graph.nodes if node.op.traits.meets]

    def ask(self, number: int) -> Ask:
        question, places = self.recording.questions[number], self.recording.asked[number]
        values = [None if at is None else self.graph.results[at] for at in places]
        answers = []
        if question.op is not None:
            answers = [self.tree.key("param", Answer(number, i)) for i in range(len(question.answer))]
        return Ask(
            question.how, tuple(None if v is None else self.keys[v] for v in values), question.place,
            question.op, question.attrs, tuple(None if v is None else v.type for v in values), tuple(answers),
        )  # fmt: skip

    def needed(self, wanted: Iterable[Value], known: set[Key]) -> list[Node]:
        """The nodes that compute `wanted` from params and what is known, in order."""
        found: set[int] = set()
        stack = list(wanted)
        while stack:
            value = stack.pop()
            node = self.maker.get(value)
            if node is not None and self.keys[value] not in known and id(node) not in found:
                found.add(id(node))
                stack.extend(v for v in node.inputs if v is not None)
                if node.op.traits.meets:  # after all before it, as on every rank
                    before = self.meetings[: self.meetings.index(node)]
                    stack.extend(other.outputs[0] for other in before)
        return [node for node in self.graph.nodes if id(node) in found]

    def asked(self, number: int) -> list[Value]:
        return [self.graph.results[at] for at in self.recording.asked[number] if at is not None]

    def nodes(self, number: int) -> list[Node]:
        """What computes the answer to a question."""
        return self.needed(self.asked(number), self.known)

    def segment(self, number: int, ask: Ask, nodes: list[Node]) -> Segment:
        """What computes the answer to a question, and hands over what of it is used later."""
        asked = self.asked(number)
        mine = {v: None for node in nodes for v in node.outputs}
        done = self.known | {self.keys[v] for v in mine}
        later = [self.graph.results[at] for places in self.recording.asked[number + 1 :]
                 for at in places if at is not None]  # fmt: skip
        rest = [*later, *self.graph.results[self.recording.first :]]
        used = {v for node in self.needed(rest, done) for v in node.inputs} | {*rest}
        met = [node for node in nodes if node.op.traits.meets]
        outputs = dict.fromkeys([*asked, *(v for v in mine if v in used), *(n.outputs[0] for n in met)])
        made = self.made(nodes, [v for v in outputs if self.keys[v] not in self.known], ask=ask)
        made.meetings = [(n.op.name, dict(n.attrs), self.keys[n.outputs[0]]) for n in met]
        return made

    def last(self) -> Segment:
        """What computes the rest of a path, and writes."""
        graph, recording = self.graph, self.recording
        results = graph.results[recording.first :]
        written = len(recording.written)
        returned, changed = results[: len(results) - written], results[len(results) - written :]
        refusing = [v for node in graph.nodes if refuses(node) and node not in self.run for v in node.outputs]
        nodes = self.needed([*results, *refusing], self.known)
        mine = {v for node in nodes for v in node.outputs}
        outputs = [v for v in dict.fromkeys(returned) if v in mine or isinstance(v, Constant)]
        places: dict[Value, int] = {v: i for i, v in enumerate(outputs)}
        ends: list[tuple[int | None, Key]] = [(places.get(v), self.keys[v]) for v in returned]
        into: list[int | None] = [None] * len(outputs)
        leftover, targets = [], []
        for position, value in zip(recording.written, changed, strict=True):
            if value in mine or isinstance(value, Constant):
                ends.append((len(outputs), self.keys[value]))
                outputs.append(value)
                into.append(position)
                targets.append(graph.params[position])
            else:
                ends.append((None, self.keys[value]))
                if value is not graph.params[position]:
                    leftover.append((position, self.keys[value]))
        made = self.made(nodes, outputs, targets=targets, into=into)
        made.end = End(
            recording, tuple(ends), tuple(leftover), tuple(self.keys[p] for p in graph.params),
            tuple(v.type.at(recording.place) for v in results), self.conditions,
        )  # fmt: skip
        return made

    def made(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[Value],
        ask: Ask | None = None,
        targets: Sequence[Value] = (),
        into: Sequence[int | None] | None = None,
    ) -> Segment:
        mine = {v for node in nodes for v in node.outputs}
        used = [v for node in nodes for v in node.inputs] + list(outputs)
        wanted = {v for v in used if v is not None and v not in mine and not isinstance(v, Constant)}
        wanted.update(targets)
        params = [p for p in self.graph.params if p in wanted]
        wanted.difference_update(params)
        params += [v for v in dict.fromkeys(used) if v in wanted]
        places = {p: i for i, p in enumerate(params)}
        written = {self.graph.params[i] for i in self.recording.written}
        sources = [self.tree.sources.get(self.keys[p]) for p in params]
        frozen = frozenset(
            i for i, (p, s) in enumerate(zip(params, sources, strict=True))
            if isinstance(s, Held) and s.index in self.tree.dense and p not in written
        )  # fmt: skip
        graph = Graph("traced", tuple(params), tuple(nodes), tuple(outputs))
        at = [None if i is None else places[self.graph.params[i]] for i in into or (None,) * len(outputs)]
        keys = tuple(self.keys[v] for v in outputs)
        held = tuple(s.index if i in frozen else None for i, s in enumerate(sources)) if frozen else None
        names = symbols_in(graph)
        symbols = {name: at for name, at in self.recording.symbols.items() if name in names}
        inputs = tuple(self.keys[p] for p in params)
        return Segment(graph, inputs, keys, tuple(at), frozen, held, ask, symbols=symbols)


def symbols_in(held: Any) -> set[str]:
    """The symbols in a graph: in types, and in attributes, one of which may be a size as a number."""
    if isinstance(held, Graph):
        values = {*held.params, *held.results, *(v for node in held.nodes for v in node.outputs)}
        sizes = [n for v in values for n in v.shape]
        return symbols_in((*sizes, *(attr for node in held.nodes for attr in node.attrs.values())))
    if isinstance(held, tuple):
        return {name for each in held for name in symbols_in(each)}
    return set(symbols_of(held))
