"""The stages of a graph's compilation, each of which can be tried on any graph by itself.

A stage is run on the same arrays before and after; what differs by more than rounding (rounding.py) is its
fault.  Programs are run by their kernels' texts, or kernel by kernel in native code, in memory that holds
garbage where nothing was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..ir.by_pairs import from_pairs, to_pairs
from ..ir.execute import executor
from ..ir.fused import fused
from ..ir.graph import Constant, Graph, Node
from ..ir.interpret import interpret
from ..ir.kernel.form import Kernel, Local, Store
from ..ir.kernel.interpret import interpret as interpret_kernel
from ..ir.locks import cached_property
from ..ir.lowering import Decomposition, NotLowered, Recurrence
from ..ir.put import put
from ..ir.verify import verify
from ..passes.graphs.expand import expand
from ..passes.graphs.fold_conv_bn import fold_conv_bn
from ..passes.graphs.lower import interpret_lowered
from ..passes.graphs.pair_complex import pair_complex
from ..passes.kernels.collapse import collapsed
from ..passes.pipeline import Options
from ..passes.programs.build_program import build_program
from ..passes.programs.program import Alias, Array, Call, Host, Program, Repeat, run_host, run_repeat
from ..passes.run import name_of, verified
from .garbage import planned
from .rounding import Difference, difference, graph_runs, kernel_runs
from .sampled import LARGE, windows, work
from .targets import CPU, Target

CODE = "native code"  # a target's, of one kernel
ROUNDS = (expand, fold_conv_bn)  # the passes over graphs whose results may differ in the sign of a zero, too


@dataclass(frozen=True)
class Case:
    """A graph, and what it is run on.  into, frozen, target: as `compile_graph` takes them.

    made: its programs, and what their arrays hold, by how many passes over programs have run.  noise: the
    runs with noise, once they are made, which are those of the graphs that passes make of this one, too.
    """

    graph: Graph
    arrays: tuple[np.ndarray, ...]
    into: tuple[int | None, ...]
    frozen: frozenset[int]
    target: Target = CPU
    made: dict[int, tuple[Program, dict[Array | None, Any]]] = field(
        default_factory=dict, compare=False, repr=False
    )
    noise: list[list[list[np.ndarray]]] = field(default_factory=list, compare=False, repr=False)

    def program(self, options: Options, passes: int) -> tuple[Program, dict[Array | None, Any]]:
        """The program after so many of the passes over programs, and what its arrays hold."""
        if passes not in self.made:
            if passes:
                steps = self.target.passes(replace(options, frozen=self.frozen))
                program = verified(steps[passes - 1](self.program(options, passes - 1)[0]))
            else:
                program = verified(build_program(self.graph, self.into))
            self.made[passes] = program, values_of(program, self.arrays)
        return self.made[passes]

    @cached_property
    def expected(self) -> tuple[np.ndarray, ...]:
        return tuple(map(np.asarray, interpret(self.graph, *map(np.array, self.arrays))))

    @property
    def runs(self) -> list[list[np.ndarray]]:
        """For each run in float64, without noise and with it, the results."""
        if not self.noise:
            found = graph_runs(self.graph, self.arrays)
            self.noise.append([[values[v] for v in self.graph.results] for values in found])
        return self.noise[0]

    def compare(
        self, found: Sequence[np.ndarray], signs: bool = False, winograd: bool = False
    ) -> tuple[int, Difference] | None:
        """The first result that differs, and how; None if none does."""
        return compared(self.expected, found, lambda: self.runs, signs, winograd)


@dataclass(frozen=True)
class Fault:
    """What a stage got wrong.

    stage: its name.  result: which result of the graph; None where that is not known.  how: the values that
    differ, or what was raised.  kernel: where it is one kernel's.  node: where it is one op's.
    """

    stage: str
    result: int | None
    how: Difference | str
    kernel: str | None = None
    node: Node | None = None


class Stage(Protocol):
    """A step of compilation that can be tried on any graph."""

    name: str

    def fault(self, case: Case) -> Fault | None: ...


def compared(
    expected: Sequence[np.ndarray],
    found: Sequence[np.ndarray],
    runs: Callable[[], Sequence[Sequence[np.ndarray]]],
    signs: bool = False,
    winograd: bool = False,
) -> tuple[int, Difference] | None:
    """The first of several arrays that differ, and how.  runs: of all of them, see `rounding.difference`."""
    for n, (a, b) in enumerate(zip(expected, found, strict=True)):
        own = difference(a, np.asarray(b), partial(_column, runs, n), signs=signs, winograd=winograd)
        if own is not None:
            return n, own
    return None


def _column(runs: Callable[[], Sequence[Sequence[np.ndarray]]], n: int) -> list[np.ndarray]:
    return [run[n] for run in runs()]


# ---- the stages --------------------------------------------------------------------------------------------
class GraphPass:
    """A pass over graphs."""

    def __init__(self, step: Callable[[Graph], Graph]):
        self.step, self.name = step, f"pass {name_of(step)}"

    def fault(self, case: Case) -> Fault | None:
        try:
            made = self.step(case.graph)
            if made is case.graph:
                return None
            verify(made)
            found = interpret(made, *map(np.array, case.arrays))
        except Exception as error:  # whatever a wrong pass may raise, or make the interpreter raise
            return Fault(self.name, None, f"{type(error).__name__}: {error}")
        wrong = case.compare(found, signs=self.step not in ROUNDS)
        return Fault(self.name, *wrong) if wrong else None


class Paired:
    """Complex values become pairs, of params and results too."""

    name = "pass pair_complex"

    def fault(self, case: Case) -> Fault | None:
        try:
            made = pair_complex(case.graph)
            verify(made)
            found = interpret(made, *(to_pairs(np.array(a)) for a in case.arrays))
        except Exception as error:
            return Fault(self.name, None, f"{type(error).__name__}: {error}")
        pairs = zip(found, case.graph.results, strict=True)
        wrong = case.compare([from_pairs(x) if v.dtype.is_complex else x for x, v in pairs])
        return Fault(self.name, *wrong) if wrong else None


def in_pairs(case: Case) -> Case:
    """The same case in real numbers."""
    return replace(
        case, graph=pair_complex(case.graph), arrays=tuple(map(to_pairs, case.arrays)), made={}, noise=[]
    )


class Built:
    """The program as built: lowerings, and their composition to kernels."""

    name = "build_program"

    def __init__(self, options: Options):
        self.options = options

    def fault(self, case: Case) -> Fault | None:
        try:
            program, values = case.program(self.options, 0)
        except Exception as error:
            return self.lowering(case) or Fault(self.name, None, f"{type(error).__name__}: {error}")
        wrong = case.compare([values[r] for r in program.results])
        if wrong is None:
            return None
        maker = next((s for s in program.steps if program.results[wrong[0]] in s.outputs), None)
        return self.lowering(case) or Fault(self.name, wrong[0], wrong[1], getattr(maker, "name", None))

    def lowering(self, case: Case) -> Fault | None:
        """The op whose own kernel is wrong by itself, in a graph whose program is wrong."""
        for node, given in nodes_of(case.graph, case.arrays):
            if isinstance(node.op.lower, (NotLowered, Decomposition, Recurrence)) or node.op in (fused, put):
                continue
            params = [v for v in node.inputs if v is not None]
            alone = Graph("node", tuple(dict.fromkeys(params)), (node,), node.visible)
            arrays = dict(zip(params, (x for x in given if x is not None), strict=True))
            known = tuple(x for v, x in arrays.items() if not isinstance(v, Constant))
            own = Case(_without_constants(alone), known, (None,) * len(alone.results), frozenset())
            name = f"the lowering of {node.op.name}"
            try:
                made = interpret_lowered(node.op, given, dict(node.attrs))
            except Exception as error:
                return Fault(name, None, f"{type(error).__name__}: {error}", node=node)
            if wrong := own.compare(made[: len(node.visible)]):
                return Fault(name, wrong[0], wrong[1], node=node)
        return None


def _without_constants(graph: Graph) -> Graph:
    return graph.replace(params=(p for p in graph.params if not isinstance(p, Constant)))


class ProgramPass:
    """A pass over programs, number `at` of those that the options ask for."""

    def __init__(self, at: int, name: str, options: Options):
        self.at, self.name, self.options = at, f"pass {name}", options

    def fault(self, case: Case) -> Fault | None:
        before, values = case.program(self.options, self.at)
        try:
            after, found = case.program(self.options, self.at + 1)
        except Exception as error:
            return Fault(self.name, None, f"{type(error).__name__}: {error}")
        expected = [values[r] for r in before.results]
        wrong = compared(expected, [found[r] for r in after.results], lambda: case.runs)
        if wrong is None:
            return None
        maker = next((s for s in after.steps if after.results[wrong[0]] in s.outputs), None)
        return Fault(self.name, wrong[0], wrong[1], getattr(maker, "name", None))


class _Compiled:
    """What all stages after the passes begin with: the whole program, and the values of its arrays."""

    def __init__(self, options: Options, target: Target):
        self.options, self.passes = options, len(target.passes(options))

    def whole(self, case: Case) -> tuple[Program, dict[Array | None, Any]]:
        return case.program(self.options, self.passes)


class Split(_Compiled):
    """What depends on weights alone is split off."""

    name = "pass prologue"

    def fault(self, case: Case) -> Fault | None:
        program, values = self.whole(case)
        try:
            found = _apart(case, program, case.arrays, _results_of)
        except Exception as error:
            return Fault(self.name, None, f"{type(error).__name__}: {error}")
        wrong = compared([values[r] for r in program.results], found, lambda: case.runs)
        return Fault(self.name, *wrong) if wrong else None


Run = Callable[[Program, Sequence[np.ndarray]], Sequence[np.ndarray]]


def _apart(case: Case, program: Program, arrays: Sequence[np.ndarray], run: Run) -> Sequence[np.ndarray]:
    """The results of a program whose weights' part is run first."""
    weights, main = case.target.split(program, case.frozen)
    values = dict(zip(program.params, arrays, strict=True))
    early = run(weights, [values[p] for p in weights.params]) if weights.results else ()
    values.update(zip(weights.results, early, strict=True))
    return run(main, [values[p] for p in main.params])


class Kernels(_Compiled):
    """The code of each kernel, alone, on the arrays that it is given."""

    name = CODE

    def fault(self, case: Case) -> Fault | None:
        program, values = self.whole(case)
        for step in program.all_calls:
            given, outputs = ([values[a] for a in arrays] for arrays in (step.inputs, step.outputs))
            if how := self.wrong(case.target, step, given, outputs):
                stage, told = how
                result = next((n for n, r in enumerate(program.results) if r in step.outputs), None)
                return Fault(stage, result, told, step.name)
        return None

    def wrong(
        self, target: Target, call: Call, given: list, outputs: Sequence[np.ndarray]
    ) -> tuple[str, Any] | None:
        try:
            found = alone(target, call, given)
        except Exception as error:
            return self.name, f"{type(error).__name__}: {error}"
        return wrong_code(call, given, outputs, found)


def wrong_code(
    call: Call, given: list, outputs: Sequence[np.ndarray], found: Sequence[np.ndarray]
) -> tuple[str, Any] | None:
    """Whether native code gave something else than its kernel's text, and what rewrote that text wrongly."""
    kernel, winograd = call.kernel, call.sums_inputs
    signs = all(isinstance(stage, (Local, Store)) for stage in kernel.stages) and not _orders(kernel)
    if work(kernel) <= LARGE:
        told = compared(outputs, found, lambda: kernel_runs(kernel, given), signs, winograd)
    else:
        told = None
        for part, masks in windows(kernel):
            some = [a[m] for m, a in zip(masks, found, strict=True)]
            wanted = [a[m] for m, a in zip(masks, interpret_kernel(part, *given), strict=True)]
            told = compared(wanted, some, partial(_some_runs, part, given, masks), signs, winograd)
            if told:
                break
    if told is None:
        return None
    return _rewriting(kernel, given, outputs) or (CODE, told[1])


def _some_runs(kernel: Kernel, given: list, masks: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """The runs of a part of a kernel, of each output those elements that it writes."""
    return [[a[m] for m, a in zip(masks, run, strict=True)] for run in kernel_runs(kernel, given)]


def _orders(kernel: Kernel) -> bool:
    """Whether a kernel orders values: of two zeros, the larger is either."""
    return any(word in str(kernel) for word in ("max(", "min("))


def _rewriting(kernel: Kernel, given: list, outputs: Sequence[np.ndarray]) -> tuple[str, Any] | None:
    """Whether the kernel with fewer axes, which code is made of, has another meaning already."""
    if work(kernel) > LARGE:
        return None
    flat = collapsed(kernel)
    arrays = [np.reshape(a, tuple(map(int, b.shape))) for a, b in zip(given, flat.inputs, strict=True)]
    try:
        found = interpret_kernel(flat, *arrays)
    except Exception as error:
        return "pass collapse", f"{type(error).__name__}: {error}"
    shaped = [np.reshape(b, np.shape(a)) for a, b in zip(outputs, found, strict=True)]
    told = compared(outputs, shaped, lambda: kernel_runs(kernel, given))
    return ("pass collapse", told[1]) if told else None


class Linked(_Compiled):
    """The programs as they run: planned, linked, on all threads."""

    name = "the linked program"

    def fault(self, case: Case) -> Fault | None:
        program, values = self.whole(case)
        expected = [values[r] for r in program.results]

        def differs(run: Run):
            try:
                return self.told(case, program, expected, run)
            except Exception as error:
                return None, f"{type(error).__name__}: {error}"

        target = case.target
        told = differs(lambda p, arrays: target.tried(p)(*arrays))
        if told is None:
            return None
        small = all(work(call.kernel) <= LARGE for call in program.all_calls)
        if small and (own := differs(lambda p, arrays: _planned(target, p, arrays))):
            return Fault("plan_memory", *own)
        if own := differs(lambda p, arrays: target.tried(p, alone=True)(*arrays)):
            return Fault(self.name, *own)
        return Fault("the thread pool", *told)

    def told(self, case: Case, program: Program, expected: Sequence[np.ndarray], run: Run) -> Any:
        arrays = tuple(np.array(a, order="C") for a in case.arrays)
        found = _apart(case, program, arrays, run)
        changed = [arrays[at] for at in case.into if at is not None]
        wanted = [e for e, at in zip(expected, case.into, strict=True) if at is not None]
        wrong = compared(expected, found, lambda: case.runs, winograd=has_winograd(program))
        if wrong is None and (late := compared(wanted, changed, lambda: self.changed_runs(case))):
            wrong = [n for n, at in enumerate(case.into) if at is not None][late[0]], late[1]
        return wrong

    def changed_runs(self, case: Case) -> list[list[np.ndarray]]:
        return [[r for r, at in zip(run, case.into, strict=True) if at is not None] for run in case.runs]


def has_winograd(program: Program) -> bool:
    return any(call.sums_inputs for call in program.all_calls)


def stage_named(name: str, options: Options, target: Target = CPU) -> Stage:
    """The stage of that name.  Raises KeyError."""
    passes: list[Stage] = [GraphPass(step) for step in options.passes()]
    return {stage.name: stage for stage in (*stages_after(options, target), *passes)}[name]


def stages_after(options: Options, target: Target = CPU) -> list[Stage]:
    """The stages that begin with the optimised graph."""
    passes = [ProgramPass(n, name_of(step), options) for n, step in enumerate(target.passes(options))]
    last = [stage(options, target) for stage in (Split, Kernels, Linked)]
    return [Built(options), *passes, *last]


# ---- running programs --------------------------------------------------------------------------------------
def values_of(program: Program, arrays: Sequence[np.ndarray]) -> dict[Array | None, Any]:
    """What every array of a program holds."""
    values: dict[Array | None, Any] = {None: None}
    values.update(program.constants)
    values.update(zip(program.params, arrays, strict=True))
    for step in program.steps:
        given = [values[a] for a in step.inputs]
        outputs: Sequence[np.ndarray]
        if isinstance(step, Alias):
            (view,) = step.outputs
            flat = np.ascontiguousarray(given[0]).reshape(-1)
            outputs = (flat[step.offset :][: view.size].reshape(view.shape),)
        elif isinstance(step, Host):
            outputs = run_host(step, given)
        elif isinstance(step, Repeat):
            outputs = run_repeat(step, given, lambda body, *given: _results_of(body, given))
        else:
            outputs = interpreted(step, given)
        values.update(zip(step.outputs, outputs, strict=True))
    return values


def _results_of(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    values = values_of(program, arrays)
    return [values[r] for r in program.results]


def interpreted(call: Call, given: list) -> Sequence[np.ndarray]:
    """By the kernel's text; a large one by the CPU's code, which `Kernels` looks at by itself."""
    return interpret_kernel(call.kernel, *given) if work(call.kernel) <= LARGE else alone(CPU, call, given)


def _planned(target: Target, program: Program, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """By the memory plan alone; flags of checked indices may be further results of that."""
    return planned(target.plan(program), arrays)[: len(program.results)]


def alone(target: Target, call: Call, given: list) -> Sequence[np.ndarray]:
    """One kernel's code."""
    params = dict(zip(call.inputs, given, strict=True))
    program = Program(call.name, tuple(params), (call,), call.outputs)
    return target.tried(program)(*(np.ascontiguousarray(a).reshape(p.shape) for p, a in params.items()))


def nodes_of(graph: Graph, arrays: Sequence[np.ndarray]) -> Iterator[tuple[Node, list]]:
    """Every node with the arrays that it is given, those inside fused nodes too."""
    values: dict[Any, Any] = {None: None} | dict(zip(graph.params, arrays, strict=True))
    values |= {c: c.data for c in graph.used() if isinstance(c, Constant)}
    for node in graph.nodes:
        given = [values[v] for v in node.inputs]
        if node.op in (fused, put):
            yield from nodes_of(node.attrs["body"], given)
        else:
            yield node, given
        values.update(zip(node.outputs, _run(node, given), strict=True))


def _run(node: Node, given: list) -> tuple[np.ndarray, ...]:
    run, _ = executor(node.op, tuple(None if v is None else v.type for v in node.inputs), node.attrs)
    with np.errstate(all="ignore"):
        found = run(*given)
    return found if isinstance(found, tuple) else (found,)
