"""The program: kernels in order over arrays, between the graph and native code.

    program net(%x: f32[4,8], %w: f32[8,3]) -> (%z) {
      %y: f32[4,3] = matmul(%x, %w)
      %z: f32[4,3] = relu(%y)
      return %z
    }

A graph says which ops; a program says which kernels.  Layouts, packed weights and scratch copies are arrays
and calls like all others here.  It is in single assignment: every array is written by one call, and which of
them share memory is the memory plan's business.  It has a text, a verifier and a NumPy interpreter, so a pass
over programs is tested as a pass over graphs is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, TypeGuard

import numpy as np

from ...ir.dims import Dim, is_at_least, substitute
from ...ir.errors import GraphError, LaminaError
from ...ir.execute import run_reference
from ...ir.kernel.affine import Extent
from ...ir.kernel.form import Buffer, Kernel
from ...ir.kernel.interpret import interpret as interpret_kernel
from ...ir.kernel.substitute import bind
from ...ir.kernel.types import NUMPY
from ...ir.locks import cached_property
from ...ir.lowering import NotLowered
from ...ir.op import Op
from ...ir.printing import Namer
from ...ir.recur import MOST, in_turn, is_split
from ...ir.specialise import sized
from ...ir.types import Type
from ..schedules.steps import Schedule

DEEPEST = 8  # loops inside of one another


@dataclass(frozen=True, eq=False)
class Array:
    """A dense row-major array that calls read and one call writes.  `dtype` is a kernel's: f32, i64, bool."""

    name: str
    dtype: str
    shape: tuple[Any, ...]  # of ints, or of `Dim`s while sizes are symbols

    @cached_property
    def size(self) -> Any:
        return prod(self.shape)

    @cached_property
    def nbytes(self) -> Any:
        return self.size * NUMPY[self.dtype].itemsize

    @property
    def type(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True)
class Passing:
    """What a unit of one call hands to one of another: memory of the thread that runs both (in_step.py).

    strides: of each slow axis of units, its units, those of all faster ones, and how many bytes of the array
    its blocks are apart.  nbytes: of what a unit writes, at most, from where its blocks begin.  before: so
    many in front of that may be written, too.
    """

    strides: tuple[tuple[int, int, int], ...]
    nbytes: int
    before: int


@dataclass(frozen=True, eq=False)
class Bands:
    """What some calls that follow each other do together, part by part (in_bands.py).

    count: the parts.  lanes: of how many there is memory at a time.  passed: the arrays that have it.
    """

    count: int
    lanes: int
    passed: frozenset[Array]


@dataclass(frozen=True, eq=False)
class Call:
    """One kernel on arrays, in the order of its buffers.

    how: its schedule; None leaves that to the default of the target.  where: the user's file and line, where
    known; it has no meaning to the program.  in_step: each of its units runs right after that of the same
    number of the call before, whose operands live until it is over.  bands: what it does together with the
    calls beside it that have the same.
    """

    kernel: Kernel
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    how: Schedule | None = None
    where: tuple[str, int] | None = None
    in_step: Passing | None = None
    bands: Bands | None = None

    @property
    def name(self) -> str:
        return self.kernel.name

    @property
    def sums_inputs(self) -> bool:
        """Whether its sums are computed from sums of inputs: these round, and spread an infinity or a NaN."""
        return self.how is not None and self.how.sums_inputs


@dataclass(frozen=True, eq=False)
class Alias:
    """Consecutive elements of an array under another shape, all or some: no code, and the same memory.

    offset: the element of the source that is the first of the view.
    """

    inputs: tuple[Array]
    outputs: tuple[Array]
    offset: Extent = 0
    name = "alias"

    @property
    def nbytes_before(self) -> Extent:
        """The bytes of the source that are before the view."""
        return self.offset * NUMPY[self.inputs[0].dtype].itemsize


@dataclass(frozen=True, eq=False)
class Host:
    """An op without a kernel (sort, LAPACK), which its reference runs.  None: an operand left out.

    where: as of a call.  is_over: a collective that writes its result over its operand.
    """

    op: Op
    attrs: Mapping[str, Any]
    types: tuple[Type | None, ...]
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array, ...]
    where: tuple[str, int] | None = None
    is_over: bool = False

    @property
    def name(self) -> str:
        """For people: of what runs on pairs, what that is."""
        op = self.attrs["body"].name if "body" in self.attrs else self.op.name
        return f"host.{op}"


@dataclass(frozen=True, eq=False)
class Whole(Host):
    """An op that the target has code of its own for: beside the kernels it runs like a call."""

    @property
    def name(self) -> str:
        return self.op.name


def of_op(op: Op, *parts: Any) -> Host:
    """The step of an op without a kernel, as its record says.  parts: the other fields of `Host`."""
    is_whole = isinstance(op.lower, NotLowered) and op.lower.kind == "whole"
    return (Whole if is_whole else Host)(op, *parts)


def is_meeting(step: object) -> TypeGuard[Host]:
    """Whether a step is a collective, which the processes of a group run together."""
    return isinstance(step, Host) and step.op.traits.meets


def is_on_host(step: object) -> TypeGuard[Host]:
    """Whether an op's reference runs it: on copies, and it may raise."""
    return isinstance(step, Host) and not isinstance(step, Whole)


@dataclass(frozen=True, eq=False)
class Repeat:
    """A program that runs `count` times: `ir/recur.py` says what it is given, what is kept, what rows are.

    body: its params are elements of the first inputs, states, and what is the same for all; its results the
    new states, and elements of the other outputs.  where: as of a call.
    """

    body: Program
    count: Extent
    sequences: int
    kept: tuple[bool, ...]
    back: bool
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    rows: Extent = 0
    where: tuple[str, int] | None = None

    @property
    def every(self) -> Extent:
        """The rows of elements and states, of which the body has `rows`; 0 where there are none."""
        return self.inputs[0].shape[1] if len(self.inputs[0].shape) > 1 else 0

    @property
    def name(self) -> str:
        return f"repeat.{self.body.name}"

    @property
    def states(self) -> range:
        """The positions of the states among the inputs."""
        return range(self.sequences, self.sequences + len(self.kept))

    @property
    def is_whole(self) -> tuple[bool, ...]:
        """For each output whether it has an element of every run, or is the last state."""
        return (*self.kept, *(True for _ in self.outputs[len(self.kept) :]))


Step = Call | Alias | Host | Repeat


@dataclass(frozen=True, eq=False)
class Program:
    """params: what the caller gives.  constants: arrays known when the program is made.  results: what it
    returns; `into` says for each whose memory it goes to: the position of the param that it overwrites when
    the program is done (None: a new array).  One array may be several results, and a param may be one.
    """

    name: str
    params: tuple[Array, ...]
    steps: tuple[Step, ...]
    results: tuple[Array, ...]
    constants: Mapping[Array, np.ndarray] = field(default_factory=dict)
    into: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        if not self.into:
            object.__setattr__(self, "into", (None,) * len(self.results))

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(step for step in self.steps if isinstance(step, Call))

    @property
    def hosts(self) -> tuple[Host, ...]:
        return tuple(step for step in self.steps if isinstance(step, Host))

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        return tuple(step for step in self.steps if isinstance(step, Repeat))

    @cached_property
    def depth(self) -> int:
        """How many loops are inside of one another."""
        return max([1 + step.body.depth for step in self.repeats], default=0)

    @property
    def all_calls(self) -> tuple[Call, ...]:
        """Those inside of what repeats, too."""
        return (*self.calls, *(call for step in self.repeats for call in step.body.all_calls))

    def arrays(self) -> Iterator[Array]:
        """Every array, in order of definition."""
        yield from self.params
        yield from self.constants
        for step in self.steps:
            yield from step.outputs

    def replace(self, **changes: Any) -> Program:
        return replace(self, **changes)

    def at(self, sizes: Mapping[str, int]) -> Program:
        """The program on arrays of the sizes that symbols are; its kernels keep their symbols."""
        made: dict[Array | None, Any] = {None: None}
        for array in self.arrays():
            shape = tuple([substitute(n, sizes) for n in array.shape])
            made[array] = array if shape == array.shape else Array(array.name, array.dtype, shape)
        steps: list[Any] = []
        for step in self.steps:
            inputs = tuple([made[array] for array in step.inputs])
            outputs = tuple([made[array] for array in step.outputs])
            changes: dict[str, Any] = {}
            if isinstance(step, Alias):
                changes = {"offset": substitute(step.offset, sizes)}
            elif isinstance(step, Host):
                attrs = {name: sized(value, sizes) for name, value in step.attrs.items()}
                changes = {"types": sized(step.types, sizes), "attrs": attrs}
            elif isinstance(step, Repeat):
                changes = {"body": step.body.at(sizes)} | {
                    name: substitute(getattr(step, name), sizes) for name in ("count", "rows")
                }
            steps.append(replace(step, inputs=inputs, outputs=outputs, **changes))
        return Program(
            self.name,
            tuple([made[array] for array in self.params]),
            tuple(steps),
            tuple([made[array] for array in self.results]),
            {made[array]: value for array, value in self.constants.items()},
            self.into,
        )

    def bound(self, sizes: Mapping[str, int]) -> Program:
        """The program of these sizes alone: its kernels have no symbols either."""
        made = self.at(sizes)
        return replace(made, steps=tuple([_bound(step, sizes) for step in made.steps]))

    def __str__(self) -> str:
        namer = Namer()
        names = {array: namer.name(array.name) for array in self.arrays()}
        params = ", ".join(f"%{names[p]}: {p.type}" for p in self.params)
        results = ", ".join(
            f"%{names[r]}" + ("" if at is None else f" into %{names[self.params[at]]}")
            for r, at in zip(self.results, self.into, strict=True)
        )
        lines = [f"program {self.name}({params}) -> ({results}) {{"]
        for constant in self.constants:
            lines.append(f"  %{names[constant]}: {constant.type} = constant")
        for step in self.steps:
            outputs = ", ".join(f"%{names[o]}: {o.type}" for o in step.outputs)
            inputs = ", ".join("none" if i is None else f"%{names[i]}" for i in step.inputs)
            how = "" if not isinstance(step, Call) or step.how is None else f"  # {step.how}"
            if isinstance(step, Alias) and step.offset:
                how = f" {{offset={step.offset}}}"
            lines.append(f"  {outputs} = {step.name}({inputs}){how}")
        return "\n".join([*lines, "}"])


def without_unread(
    steps: Sequence[Step], results: Iterable[Array], may_go: Callable[[Step], bool]
) -> tuple[Step, ...]:
    """The steps but for those that may go and make what nobody reads."""
    used, kept = {*results}, list[Step]()
    for step in reversed(steps):
        if not may_go(step) or not used.isdisjoint(step.outputs):
            used.update(array for array in step.inputs if array is not None)
            kept.append(step)
    return tuple(reversed(kept))


def verify(program: Program) -> Program:
    """The program, if every array is defined once and before its use, and fits its kernel's buffer.

    Raises GraphError.
    """
    defined: set[Array] = set()
    for array in (*program.params, *program.constants):
        _define(program, array, defined)
    for step in program.steps:
        for array in step.inputs:
            if array is not None and array not in defined:
                raise GraphError(f"program {program.name}: {array} is read before it is written", step.name)
        if isinstance(step, Call):
            _fits(program, step, step.inputs, step.kernel.inputs)
            _fits(program, step, step.outputs, step.kernel.outputs)
        elif isinstance(step, Alias):
            (source,), (view,) = step.inputs, step.outputs
            inside = is_at_least(step.offset, 0) and is_at_least(source.size - view.size, step.offset)
            if source.dtype != view.dtype or not inside:
                raise GraphError(
                    f"program {program.name}: an alias has elements of its source",
                    f"{source}, {view} from element {step.offset} on",
                )
        elif isinstance(step, Repeat):
            _repeat_fits(program, step)
        else:
            _host_fits(program, step)
        for array in step.outputs:
            _define(program, array, defined)
    written = [at for at in program.into if at is not None]
    if len(set(written)) < len(written):
        raise GraphError(f"program {program.name}: two results overwrite one param")
    for array, at in zip(program.results, program.into, strict=True):
        if array not in defined:
            raise GraphError(f"program {program.name}: the result {array} is never written")
        if at is not None and (program.params[at].dtype, program.params[at].shape) != (
            array.dtype,
            array.shape,
        ):
            raise GraphError(
                f"program {program.name}: a result fits the param it overwrites",
                f"{array} into {program.params[at]}",
            )
    return program


def _define(program: Program, array: Array, defined: set[Array]) -> None:
    if array in defined:
        raise GraphError(f"program {program.name}: {array} is written twice")
    defined.add(array)


def _fits(program: Program, call: Call, arrays: tuple[Array, ...], buffers: tuple[Buffer, ...]) -> None:
    if [(a.dtype, a.shape) for a in arrays] != [(b.dtype, b.shape) for b in buffers]:
        raise GraphError(
            f"program {program.name}: the arrays of a call are those its kernel says",
            f"call: {call.name}({', '.join(map(repr, arrays))})",
            f"kernel: {', '.join(map(str, buffers))}",
        )


def _repeat_fits(program: Program, step: Repeat) -> None:
    """The arrays are those of the body, with a dimension before where they are of all runs."""
    body, split = verify(step.body), is_split(step.rows)

    def outside(array: Array, is_of_all_runs: bool, has_rows: bool) -> tuple:
        """The shape of what an array of the body is of."""
        shape = array.shape
        if split and has_rows:  # or () is no shape of such an array
            shape = (step.every, *shape[1:]) if shape[:1] == (step.rows,) else (None,)
        return (step.count, *shape) if is_of_all_runs else shape

    inputs = enumerate(zip(step.inputs, body.params))
    pairs = [(a, b, outside(b, n < step.sequences, n < step.states.stop)) for n, (a, b) in inputs]
    outputs = zip(step.outputs, body.results, step.is_whole)
    pairs += [(a, b, outside(b, is_whole, True)) for a, b, is_whole in outputs]
    is_one = (
        step.sequences
        and (len(step.inputs), len(step.outputs)) == (len(body.params), len(body.results))
        and step.states.stop <= len(body.params)
        and len(step.kept) <= len(body.results)
    )
    states = [body.params[at] for at in step.states] if is_one else []
    if (
        not is_one
        or any((a.dtype, a.shape) != (b.dtype, shape) for a, b, shape in pairs)
        or split
        and not is_at_least(step.every, step.rows)
        or any((a.dtype, a.shape) != (b.dtype, b.shape) for a, b in zip(states, body.results))
        or body.hosts
        or body.depth >= DEEPEST
        or any(at is not None for at in body.into)
        or not isinstance(step.count, Dim)
        and not 0 < step.count <= MOST
    ):
        raise GraphError(
            f"program {program.name}: the arrays of what repeats are those of its body, of kernels alone and "
            f"{DEEPEST} loops deep at most",
            f"step: {step.name}({', '.join(map(repr, step.inputs))}) -> {', '.join(map(repr, step.outputs))}",
            f"body: ({', '.join(map(repr, body.params))}) -> {', '.join(map(repr, body.results))}",
        )


def _host_fits(program: Program, step: Host) -> None:
    """The arrays are those of the types that the op is asked for, and that it gives."""
    try:
        inferred = step.op.infer(*step.types, **step.attrs)
    except LaminaError as error:
        raise GraphError(
            f"program {program.name}: the operands of {step.name} break its rule", error.rule, *error.details
        ) from None
    except Exception as error:  # rules presume operands and attrs as `bind` makes them; a text may say any
        raise GraphError(
            f"program {program.name}: the operands and attrs of {step.name} are not what its rule takes",
            f"{type(error).__name__}: {error}",
        ) from error
    given = inferred if isinstance(inferred, tuple) else (inferred,)
    arrays, types = (*step.inputs, *step.outputs), (*step.types, *given)
    wanted = [None if t is None else (t.dtype.short, t.shape) for t in types]
    if len(step.inputs) != len(step.types) or wanted != [a and (a.dtype, a.shape) for a in arrays]:
        raise GraphError(
            f"program {program.name}: the arrays of a step are of its op's types",
            f"step: {step.name}({', '.join(map(repr, step.inputs))}) -> {', '.join(map(repr, step.outputs))}",
            f"types: {', '.join(map(str, types))}",
        )


def interpret(program: Program, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results, each kernel run by the kernel interpreter: the meaning of a program.

    The params are not written, whatever `into` says.
    """
    values: dict[Array | None, Any] = {None: None}
    values.update(program.constants)
    values.update(zip(program.params, arrays, strict=True))
    for step in program.steps:
        given = [values[a] for a in step.inputs]
        if isinstance(step, Alias):
            (view,) = step.outputs
            elements = np.ascontiguousarray(given[0]).reshape(-1)[step.offset :][: view.size]
            results: Any = (elements.reshape(view.shape),)
        elif isinstance(step, Host):
            results = run_host(step, given)
        elif isinstance(step, Repeat):
            results = run_repeat(step, given, interpret)
        else:
            results = interpret_kernel(step.kernel, *given)
        values.update(zip(step.outputs, results, strict=True))
    return tuple(np.array(values[r]) for r in program.results)


def run_repeat(
    step: Repeat, arrays: list[Any], run: Callable[..., Sequence[np.ndarray]]
) -> tuple[np.ndarray, ...]:
    """What a program that repeats makes of the arrays; `run(body, *arrays)` gives the results of one time."""
    return in_turn(
        partial(run, step.body),
        arrays,
        count=int(step.count),
        sequences=step.sequences,
        kept=step.kept,
        back=step.back,
        rows=int(step.rows),
    )


def run_host(step: Host, arrays: list[Any]) -> tuple[np.ndarray, ...]:
    """What the op's reference makes of the arrays.  Raises GraphError where it can't run."""
    found = run_reference(step.op, step.types, step.attrs, arrays)
    for array, made in zip(step.outputs, found, strict=True):
        if np.shape(made) != tuple(array.shape):  # a text's attr was none that `bind` makes
            raise GraphError(f"{step}: {array} has shape {list(array.shape)}, and is {list(np.shape(made))}")
    return found


def _bound(step: Step, sizes: Mapping[str, int]) -> Step:
    """A step whose arrays have sizes already, without symbols in what it does."""
    if isinstance(step, Repeat):
        return replace(step, body=step.body.bound(sizes))
    if not isinstance(step, Call) or not step.kernel.symbols:
        return step
    kernel = bind(step.kernel, **{name: sizes[name] for name in step.kernel.symbols})
    return replace(step, kernel=kernel, how=step.how and step.how.fitted(kernel))
