"""Finds the first stage of a graph's compilation that changes what it computes, and the smallest graph that
shows it.

    the graph as recorded        each pass over graphs, in order
    the program built of it      each pass over programs, the split into prologue and rest
    each kernel alone            its native code against its own text
    the whole                    the memory plan, the linked code, the thread pool

The graph that the first faulty stage (stages.py) was given is cut: to the nodes that lead to the first value
that differs, and from those that come first on, to params that hold what these computed, for as long as the
stage still fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

import numpy as np

from ..ir.errors import LaminaError
from ..ir.fused import fused
from ..ir.graph import Constant, Graph, Node, Place, Value
from ..ir.interpret import interpret
from ..passes.graphs.dce import leading_to
from ..passes.graphs.functionalise import functionalise, written
from ..passes.graphs.pair_complex import has_complex
from ..passes.pipeline import Options
from .rounding import Difference
from .stages import Case, Fault, GraphPass, Paired, Stage, compared, in_pairs, stages_after

SECONDS = 10.0  # that cutting a graph may take
SCANNED = 64  # nodes that are asked for the first value that differs


@dataclass(frozen=True)
class Finding:
    """A fault on the smallest graph that shows it.

    by: the stage that was tried, by name.  node: what computes the value that differs.  ops: (name, place) of
    all in the graph.
    """

    fault: Fault
    case: Case
    by: str
    node: Node | None
    ops: tuple[tuple[str, Place | None], ...] = field(default=())

    @property
    def stage(self) -> str:
        return self.fault.stage

    @property
    def lines(self) -> list[str]:
        """The stage, the ops and the user's lines, the values."""
        what = f"{self.stage} changes result {self.fault.result or 0}" if isinstance(
            self.fault.how, Difference
        ) else f"{self.stage} fails"  # fmt: skip
        lines = [f"{what}: {self.fault.how}"]
        if self.fault.kernel is not None:
            lines.append(f"kernel: {self.fault.kernel}")
        spelled = dict.fromkeys(f"{n} at {where_text(where)}" if where else n for n, where in self.ops)
        if spelled:
            lines.append(f"of: {', '.join(list(spelled)[:8])}" + (", ..." if len(spelled) > 8 else ""))
        return lines


def where_text(place: Place) -> str:
    return f"{place[0].rpartition('/')[2]}:{place[1]}"


# ---- the search --------------------------------------------------------------------------------------------
def search(case: Case, options: Options) -> Finding | None:
    """The first stage of a graph's compilation that is at fault, on the smallest graph that shows it."""
    if has_complex(case.graph):
        pairing = Paired()
        fault = pairing.fault(case)
        if fault is not None:
            return smallest(pairing, case, fault)
        case = in_pairs(case)
    for step in options.passes():
        stage = GraphPass(step)
        fault = stage.fault(case)
        if fault is not None:
            return smallest(stage, case, fault)
        case = replace(case, graph=step(case.graph), made={})
    for later in stages_after(options, case.target):
        fault = later.fault(case)
        if fault is not None:
            return smallest(later, case, fault)
    return None


def smallest(stage: Stage, case: Case, fault: Fault) -> Finding:
    """Cut a graph on which a stage fails for as long as it does."""
    end = monotonic() + SECONDS
    values = _all_values(case)
    case, fault = _first_value(stage, case, fault, values, end)
    for node in case.graph.nodes:
        if monotonic() > end:
            break
        rest = [n for n in case.graph.nodes if n is not node]
        smaller = cut(case, rest, case.graph.results, values)
        if smaller is not None and (found := stage.fault(smaller)):
            case, fault = smaller, found
    if fault.node is not None:
        return Finding(fault, case, stage.name, fault.node, ((fault.node.op.name, fault.node.where),))
    result = case.graph.results[fault.result or 0] if case.graph.results else None
    node = next((n for n in case.graph.nodes if any(v is result for v in n.outputs)), None)
    return Finding(fault, case, stage.name, node, tuple(_ops(case.graph)))


def _ops(graph: Graph) -> Iterator[tuple[str, Place | None]]:
    for node in graph.nodes:
        if node.op is fused:
            yield from _ops(node.attrs["body"])
        else:
            yield node.op.name, node.where


def _all_values(case: Case) -> dict[Value, np.ndarray]:
    every = [*case.graph.params, *(v for node in case.graph.nodes for v in node.outputs)]
    whole = case.graph.replace(results=every)
    return dict(zip(every, interpret(whole, *map(np.array, case.arrays)), strict=True))


def _first_value(
    stage: Stage, case: Case, fault: Fault, values: dict[Value, np.ndarray], end: float
) -> tuple[Case, Fault]:
    """The case that gives the first value alone that differs; the whole one where no value alone does."""
    wanted = case.graph.results if fault.result is None else case.graph.results[fault.result :][:1]
    cone = leading_to(case.graph.nodes, wanted)
    first = cone if len(cone) <= SCANNED else []
    ways = [v for node in first for v in node.visible] + ([wanted[0]] if len(wanted) == 1 else [])
    for value in dict.fromkeys(ways):
        if monotonic() > end:
            break
        smaller = cut(case, leading_to(case.graph.nodes, [value]), [value], values)
        if smaller is not None and (found := stage.fault(smaller)):
            return smaller, found
    return case, fault


def cut(
    case: Case, nodes: Sequence[Node], results: Sequence[Value], values: dict[Value, np.ndarray]
) -> Case | None:
    """The case with some of its nodes alone; what they need of others is a param that holds it.

    None where a result is then none of theirs.
    """
    made = {v for node in nodes for v in node.outputs}
    if not all(v in made for v in results):
        return None
    into: dict[Value, int | None] = dict(zip(case.graph.results, case.into, strict=True))
    over = [case.graph.params[at] for v in results if (at := into.get(v)) is not None]
    used = {v for node in nodes for v in node.inputs if v is not None and v not in made} | set(over)
    params = [p for p in case.graph.params if p in used]
    known = set(params)
    params += [v for v in dict.fromkeys(v for n in nodes for v in n.inputs)
               if v is not None and v in used and v not in known and not isinstance(v, Constant)]  # fmt: skip
    places = {p: n for n, p in enumerate(params)}
    frozen = frozenset(places[p] for i in case.frozen if (p := case.graph.params[i]) in places)
    graph = Graph(case.graph.name, tuple(params), tuple(nodes), tuple(results))
    at = [into.get(v) for v in results]
    targets = tuple(None if n is None else places[case.graph.params[n]] for n in at)
    return Case(graph, tuple(values[p] for p in params), targets, frozen, case.target)


def functionalised(raw: Graph, arrays: Sequence[np.ndarray]) -> Finding | None:
    """Whether a graph with writes means something else once its writes are values."""
    given = [np.array(a) for a in arrays]
    changed = written(raw)
    results = interpret(raw, *given)
    expected = [np.array(r) for r in (*results, *(given[i] for i in changed))]
    stage = "pass functionalise"
    case = Case(raw, tuple(np.array(a) for a in arrays), (None,) * len(raw.results), frozenset())
    try:
        graph = functionalise(raw)
        own = Case(graph, case.arrays, (None,) * len(graph.results), frozenset())
        wrong = compared(expected, own.expected, lambda: own.runs)
    except LaminaError as error:
        fault = Fault(stage, None, f"{type(error).__name__}: {error}")
        return Finding(fault, case, stage, None, tuple(_ops(raw)))
    if wrong is None:
        return None
    node = raw.nodes[-1] if raw.nodes else None
    return Finding(Fault(stage, *wrong), case, stage, node, tuple(_ops(raw)))
