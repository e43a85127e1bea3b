"""The whole text of a program, and its reader.  Law: program_text(parse(text)) == text for canonical text.

    kernel matmul(a: f32[4,8], b: f32[8,3]) -> (y: f32[4,3]) {
      parallel i:4 j:3
      s = sum(k:8) (a[i, k] * b[k, j])
      y[i, j] = s
    }
    program net(%x: f32[4,8], %w: f32[3,8], %z: f32[4,3]) -> (%y into %z, %s) {
      @c: f32[2] = (1.0,2.5)
      @table: f32[1000] = 5f3c7e04a1b2c3d4
      %v: f32[8,3] = alias(%w) {offset=0}
      %y: f32[4,3] = matmul(%x, %v) by vectorise(j) tile(i, 4) unroll(k, 4)
      %s: f32[4,3], %i: i64[4,3] = host.sort(%y: f32[4,3]) {dim=1, descending=False, stable=False}
    }

Kernels stand once, before the program; those of one name are told apart by a number: matmul.1.  So do the
programs that one repeats, the innermost first: `%h: f32[9,8] = repeat.step(%x) {count=9, sequences=1,
kept=(), back=False}`.
Constants of at most FEW elements are spelled, a larger one is given by a digest of its bytes, and its data
beside the text.  Types of a host step's operands are those that its op is asked for.  `str(program)` is
shorter, and for people.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...ir import dtypes
from ...ir.errors import GraphError, KernelError, LaminaError
from ...ir.fused import STRUCTURAL
from ...ir.graph import Constant
from ...ir.kernel.form import Kernel
from ...ir.kernel.text import parse as parse_kernel
from ...ir.kernel.types import NUMPY
from ...ir.op import REGISTRY
from ...ir.printing import Namer, attr_text, scalar_text
from ...ir.recur import is_split
from ...ir.text import NAME, VALUE, Reader
from ...ir.types import LARGEST, RANK, Type
from ..graphs.attention_kernels import KERNELS
from ..schedules.steps import TEXT as SCHEDULE
from ..schedules.steps import Schedule
from ..schedules.steps import parse as parse_schedule
from .program import Alias, Array, Call, Program, Repeat, Step, of_op

FEW = 16  # elements of a constant that are spelled
KERNEL = re.compile(r"kernel (\w+)((?:\.\d+)?)(?=[\[(])", re.ASCII)
KERNEL_END = re.compile(r"\n\}[ \t]*(?=\n|$)")
SHAPE = re.compile(r"(\w+)\[((?:\d{1,19}(?:,\d{1,19})*)?)\]", re.ASCII)
HELD = re.compile(r"@([A-Za-z_][A-Za-z0-9_.]*)")
# What the text of a program that repeats says; where rows go through it in blocks, how many each has.
REPEATED, ROWS = ("count", "sequences", "kept", "back"), "rows"
DIGEST = re.compile(r"[0-9a-f]{16}(?!\w)")


# ---- written -----------------------------------------------------------------------------------------------
def program_text(program: Program) -> str:
    """Kernels, arrays and steps, all that `parse` needs but the data of large constants."""
    labels, texts = _labelled(program)
    namer, bodies = Namer(), dict[Program, str]()
    for body in dict.fromkeys(_bodies(program)):
        bodies[body] = namer.name(body.name)
        texts.append(_text(body, bodies[body], labels, bodies))
    return "\n".join([*texts, _text(program, program.name, labels, bodies)])


def _bodies(program: Program) -> Iterator[Program]:
    """What repeats, and inside of that: the innermost first, as a text reads."""
    for step in program.repeats:
        yield from _bodies(step.body)
        yield step.body


def _text(program: Program, name: str, labels: Mapping[Kernel, str], bodies: Mapping[Program, str]) -> str:
    names = _names(program)
    params = ", ".join(f"%{names[p]}: {p.type}" for p in program.params)
    results = ", ".join(
        f"{_name(r, program, names)}" + ("" if at is None else f" into %{names[program.params[at]]}")
        for r, at in zip(program.results, program.into, strict=True)
    )
    lines = [f"program {name}({params}) -> ({results}) {{"]
    for array, data in program.constants.items():
        lines.append(f"  @{names[array]}: {array.type} = {_data_text(data)}")
    for step in program.steps:
        outputs = ", ".join(f"%{names[o]}: {o.type}" for o in step.outputs)
        lines.append(f"  {outputs} = {_step_text(step, program, names, labels, bodies)}")
    return "\n".join([*lines, "}"])


def constants_of(program: Program) -> dict[str, np.ndarray]:
    """The data that the text of a program leaves out, by the names it has there."""
    names = _names(program)
    return {names[a]: data for a, data in program.constants.items() if not _is_spelled(data)}


def _names(program: Program) -> dict[Array, str]:
    namer = Namer()
    return {array: namer.name(array.name) for array in program.arrays()}


def _name(array: Array | None, program: Program, names: Mapping[Array, str]) -> str:
    if array is None:
        return "none"
    return ("@" if array in program.constants else "%") + names[array]


def _labelled(program: Program) -> tuple[dict[Kernel, str], list[str]]:
    """What each kernel is called, and the text of each that differs from the ones before."""
    namer = Namer()
    namer.name("alias")
    labels: dict[Kernel, str] = {}
    by_text: dict[str, str] = {}
    texts = []
    for kernel in dict.fromkeys(call.kernel for call in program.all_calls):
        text = str(kernel)
        if text not in by_text:
            by_text[text] = label = namer.name(kernel.name)
            texts.append(text.replace(f"kernel {kernel.name}", f"kernel {label}", 1))
        labels[kernel] = by_text[text]
    return labels, texts


def _step_text(
    step: Step,
    program: Program,
    names: Mapping[Array, str],
    labels: Mapping[Kernel, str],
    bodies: Mapping[Program, str],
) -> str:
    inputs = [_name(array, program, names) for array in step.inputs]
    if isinstance(step, Call):
        how = "" if step.how is None else f" by {step.how}"
        return f"{labels[step.kernel]}({', '.join(inputs)}){how}"
    if isinstance(step, Alias):
        return f"alias({inputs[0]})" + (f" {{offset={step.offset}}}" if step.offset else "")
    if isinstance(step, Repeat):
        said = (*REPEATED, ROWS) if is_split(step.rows) else REPEATED
        attrs = ", ".join(f"{k}={attr_text(getattr(step, k))}" for k in said)
        return f"repeat.{bodies[step.body]}({', '.join(inputs)}) {{{attrs}}}"
    typed = (i if t is None else f"{i}: {t}" for i, t in zip(inputs, step.types, strict=True))
    attrs = ", ".join(f"{k}={attr_text(v)}" for k, v in step.attrs.items())
    return f"host.{step.op.name}({', '.join(typed)})" + (f" {{{attrs}}}" if attrs else "")


def _is_spelled(data: np.ndarray) -> bool:
    return data.size <= FEW and bool((data == data).all())  # a NaN has many bits


def _data_text(data: np.ndarray) -> str:
    if not _is_spelled(data):
        return _digest(data)
    numbers = [scalar_text(Constant(np.asarray(n))).partition(":")[0] for n in np.ravel(data)]
    return f"({','.join(numbers)}{',' if len(numbers) == 1 else ''})"


def _digest(data: np.ndarray) -> str:
    """Of the elements' bytes in order: whether they are those that were meant."""
    return hashlib.sha256(np.ascontiguousarray(data).tobytes()).hexdigest()[:16]


# ---- read --------------------------------------------------------------------------------------------------
def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Program:
    """The program that a text spells.  It isn't verified.

    constants: the data of those that the text gives by a digest.  Raises GraphError naming the line, and
    KernelError for the text of a kernel.
    """
    reader = _Reader(text, constants or {}, {**REGISTRY, **STRUCTURAL, **KERNELS})
    try:
        program = reader.program()
        reader.end()
    except (GraphError, KernelError):
        raise
    except LaminaError as error:  # a symbol or a division that dims.py refuses
        raise reader.error(error.rule) from None
    return program


class _Reader(Reader):
    def program(self) -> Program:
        kernels: dict[str, Kernel] = {}
        while self.next_is("kernel"):
            self.kernel(kernels)
        self.bodies: dict[str, Program] = {}
        while True:
            at, program = self.at, self.one(kernels)
            if not self.next_is("program"):
                return program
            if program.name in self.bodies:
                raise self.error(f"a program {program.name} stands there already", at)
            self.bodies[program.name] = program

    def one(self, kernels: dict[str, Kernel]) -> Program:
        self.arrays: dict[str, Array] = {}
        self.expect("program ")
        name = self.need(NAME, "the program's name")[0]
        self.expect("(")
        params = tuple(self.listed(")", self.param))
        self.expect("->")
        self.expect("(")
        results = self.listed(")", self.result)
        self.expect("{")
        data: dict[Array, np.ndarray] = {}
        while self.next_is("@"):
            self.constant(data)
        steps = []
        while not self.take("}"):
            steps.append(self.step(kernels))
        found = tuple(self.known(*result[:2]) for result in results)
        into = tuple(self.overwritten(params, *result[2:]) for result in results)
        return Program(name, params, tuple(steps), found, data, into)

    def kernel(self, kernels: dict[str, Kernel]) -> None:
        at, head = self.at, KERNEL.match(self.text, self.at)
        end = KERNEL_END.search(self.text, self.at)
        if head is None or end is None:
            raise self.error("expected a kernel, which ends with a line that is }")
        label = head[1] + head[2]
        if label in kernels or label == "alias":
            raise self.error(f"a kernel {label} stands there already", at)
        body = f"kernel {head[1]}{self.text[head.end() : end.end()]}"
        kernels[label] = parse_kernel(body, self.text.count("\n", 0, at) + 1)
        self.at = end.end()
        self.space()

    # ---- arrays
    def defined(self, sign: str, name: str, at: int) -> Array:
        """An array of that name and the type that comes next."""
        self.expect(":")
        start, found = self.at, self.need(SHAPE, "the type of an array, as f32[8,3]")
        shape = tuple(map(int, found[2].split(","))) if found[2] else ()
        if found[1] not in NUMPY:
            raise self.error(f"there is no element type {found[1]!r}", start)
        nbytes = NUMPY[found[1]].itemsize
        for size in shape:
            nbytes *= size or 1
        if nbytes > LARGEST or len(shape) > RANK:
            raise self.error(f"an array has fewer than 2**63 bytes and at most {RANK} dimensions", start)
        if "%" + name in self.arrays or "@" + name in self.arrays:
            raise self.error(f"{sign}{name} is defined twice", at)
        array = self.arrays[sign + name] = Array(name, found[1], shape)
        return array

    def param(self) -> Array:
        at, name = self.at, self.need(VALUE, "a parameter: %name")[1]
        return self.defined("%", name, at)

    def result(self) -> tuple[int, str, int, str]:
        at, name = self.at, self.named()
        into_at, into = self.at, ""
        if self.take("into "):
            into_at, into = self.at, self.need(VALUE, "the param that is overwritten: %name")[0]
        return at, name, into_at, into

    def named(self) -> str:
        found = self.match(VALUE) or self.match(HELD)
        if found is None:
            raise self.error("expected an array: %name or @name")
        return found[0]

    def known(self, at: int, name: str) -> Array:
        if name not in self.arrays:
            raise self.error(f"{name} is not defined", at)
        return self.arrays[name]

    def overwritten(self, params: tuple[Array, ...], at: int, name: str) -> int | None:
        array = self.known(at, name) if name else None
        if array is not None and array not in params:
            raise self.error(f"{name} is no param, so nothing goes into it", at)
        return None if array is None else params.index(array)

    def constant(self, data: dict[Array, np.ndarray]) -> None:
        at, name = self.at, self.need(HELD, "a constant: @name")[1]
        array = self.defined("@", name, at)
        self.expect("=")
        data[array] = self.numbers(array) if self.take("(") else self.held(array, at)

    def numbers(self, array: Array) -> np.ndarray:
        at = self.at
        numbers = self.listed_loosely(self.factor)
        dtype = next((d for d in dtypes.ALL if d.short == array.dtype), None)
        if dtype is None or len(numbers) != array.size or len(numbers) > FEW:
            raise self.error(f"{len(numbers)} numbers are not a constant of type {array.type}", at)
        kinds = {"bool": (bool,), "int": (int,), "float": (float,)}[dtype.category]
        try:
            if not all(type(n) in kinds for n in numbers):
                raise ValueError
            with np.errstate(over="ignore"):
                return np.array(numbers, dtype.numpy).reshape(array.shape)
        except (ValueError, OverflowError):
            raise self.error(f"the numbers of a constant are {dtype}", at) from None

    def listed_loosely(self, item: Any) -> list[Any]:
        """Items between commas up to ')', the last of which may have a comma behind it."""
        found: list[Any] = []
        while not self.take(")"):
            found.append(item())
            if not self.take(",") and not self.next_is(")"):
                raise self.error("expected ',' or ')'")
        return found

    def held(self, array: Array, at: int) -> np.ndarray:
        """The data that was given beside the text."""
        digest = self.need(DIGEST, "the numbers of a constant in brackets, or a digest of them")[0]
        data = self.constants.get(array.name)
        if data is None:
            raise self.error(f"constant @{array.name} has no data: parse(text, constants={{...}})", at)
        data = np.asarray(data)
        if data.dtype != NUMPY[array.dtype] or data.shape != array.shape or _digest(data) != digest:
            raise self.error(f"the data of constant @{array.name} is not what the text was made of", at)
        return data

    # ---- steps
    def step(self, kernels: Mapping[str, Kernel]) -> Step:
        outputs = [self.output()]
        while self.take(","):
            outputs.append(self.output())
        self.expect("=")
        at, called = self.at, self.need(NAME, "a kernel, alias or host.op")[0]
        self.expect("(")
        operands = self.listed(")", self.operand_with_type)
        inputs, made = tuple(array for array, _ in operands), tuple(outputs)
        if called.startswith("host."):
            op = self.ops.get(called[5:])
            if op is None:
                raise self.error(f"no op is called {called[5:]!r}", at)
            return of_op(op, self.attrs(), tuple(kind for _, kind in operands), inputs, made)
        if None in inputs or any(kind is not None for _, kind in operands):
            raise self.error("only a host step leaves operands out, or gives them types", at)
        if called == "alias":
            attrs = self.attrs()
            offset = attrs.pop("offset", 0)
            if attrs or type(offset) is not int or len(inputs) != 1 or len(made) != 1:
                raise self.error("an alias is %view: type = alias(%source) {offset=int}", at)
            return Alias(inputs, made, offset)
        if called.startswith("repeat."):
            return self.repeat(at, called.removeprefix("repeat."), inputs, made)
        if called not in kernels:
            raise self.error(f"no kernel is called {called!r}", at)
        return Call(kernels[called], inputs, made, self.how() if self.take("by ") else None)

    def repeat(self, at: int, name: str, inputs: tuple, made: tuple) -> Repeat:
        attrs = self.attrs()
        kept = attrs.get("kept")
        rows = attrs.pop(ROWS, 0)
        if name not in self.bodies or tuple(attrs) != REPEATED or not isinstance(kept, tuple):
            raise self.error("what repeats is %y: type = repeat.name(...) {count, sequences, kept, back}", at)
        count, sequences, back = (attrs[k] for k in ("count", "sequences", "back"))
        if not all(type(n) is int and 0 <= n < LARGEST for n in (count, sequences, rows)) or not all(
            type(k) is bool for k in (*kept, back)
        ):
            raise self.error("the attrs of what repeats are numbers, and whether states are kept", at)
        return Repeat(self.bodies[name], count, sequences, kept, back, inputs, made, rows)

    def output(self) -> Array:
        at, name = self.at, self.need(VALUE, "a step (%name: type = kernel(...)), or '}'")[1]
        return self.defined("%", name, at)

    def operand_with_type(self) -> tuple[Array | None, Type | None]:
        at, found = self.at, NAME.match(self.text, self.at)
        if found and found[0] == "none":
            self.take("none")
            return None, None
        array = self.known(at, self.named())
        return array, self.type() if self.take(":") else None

    def attrs(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        if self.take("{"):
            self.listed("}", lambda: self.attr(attrs))
        return attrs

    def how(self) -> Schedule:
        at = self.at
        found = self.match(SCHEDULE)
        if found is None:
            raise self.error("expected how the kernel runs, as vectorise(j, 2) tile(i, 4)", at)
        try:
            return parse_schedule(found[0])
        except KernelError as error:
            raise self.error(error.rule, at) from None
