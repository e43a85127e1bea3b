"""Random programs: pointwise chains, broadcasts, reductions, transposes, parts of arrays, kernels in place,
host ops.
"""

import random
from collections.abc import Iterable

import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir.dtypes import float32
from lamina.ir.kernel import parse, verify
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.programs.program import Alias, Array, Call, Host, Program
from lamina.passes.programs.program import verify as verify_program

ROWS, COLUMNS = 5, 7
SHAPES = ((ROWS, COLUMNS), (COLUMNS,), (COLUMNS, ROWS), (ROWS * COLUMNS,))


def call(text: str, *inputs: Array, names: Iterable[str] = ()) -> Call:
    """A call of the kernel of that text, with new arrays for its outputs."""
    kernel = verify(parse(text))
    labels = list(names) or [buffer.name for buffer in kernel.outputs]
    outputs = tuple(
        Array(label, buffer.dtype, buffer.shape) for label, buffer in zip(labels, kernel.outputs, strict=True)
    )
    return Call(kernel, inputs, outputs)


def spelled(shape: tuple[int, ...]) -> str:
    return f"f32[{','.join(map(str, shape))}]"


def axes(shape: tuple[int, ...]) -> tuple[str, str]:
    """`i:5 j:7` and `i, j`."""
    letters = "ij"[: len(shape)]
    return " ".join(f"{a}:{n}" for a, n in zip(letters, shape, strict=True)), ", ".join(letters)


def pointwise(name: str, expression: str, *inputs: Array) -> Call:
    """`expression` says a, b for the operands at the point: `(a + b)`; of one shape."""
    shape = inputs[0].shape
    points, index = axes(shape)
    for letter in "abc"[: len(inputs)]:
        expression = expression.replace(f"%{letter}", f"{letter}[{index}]")
    given = ", ".join(f"{letter}: {spelled(shape)}" for letter in "abc"[: len(inputs)])
    text = f"kernel {name}({given}) -> (y: {spelled(shape)}) {{\n  parallel {points}\n"
    return call(f"{text}  y[{index}] = {expression}\n}}", *inputs)


def two_outputs(a: Array, b: Array) -> Call:
    """A step of an optimizer in small: both operands are replaced."""
    points, index = axes(a.shape)
    kind = spelled(a.shape)
    return call(
        f"kernel step(a: {kind}, b: {kind}) -> (y: {kind}, z: {kind}) {{\n  parallel {points}\n"
        f"  m = ((a[{index}] * 0.5) + b[{index}])\n"
        f"  y[{index}] = m\n  z[{index}] = (b[{index}] - m)\n}}",
        a,
        b,
    )


def add_row(a: Array, row: Array) -> Call:
    n, m = a.shape
    return call(
        f"kernel add_row(a: f32[{n},{m}], b: f32[{m}]) -> (y: f32[{n},{m}]) {{\n  parallel i:{n} j:{m}\n"
        "  y[i, j] = (a[i, j] + b[j])\n}",
        a,
        row,
    )


def transpose(a: Array) -> Call:
    n, m = a.shape
    return call(
        f"kernel transpose(a: f32[{n},{m}]) -> (y: f32[{m},{n}]) {{\n  parallel i:{m} j:{n}\n"
        "  y[i, j] = a[j, i]\n}",
        a,
    )


def mean_rows(a: Array) -> Call:
    n, m = a.shape
    return call(
        f"kernel mean_rows(a: f32[{n},{m}]) -> (y: f32[{m}]) {{\n  parallel j:{m}\n"
        f"  s = sum(i:{n}) a[i, j]\n  y[j] = (s * {1 / n})\n}}",
        a,
    )


def overwrite_first(a: Array) -> Call:
    """Declared in place: the first row is replaced, the others stay."""
    n, m = a.shape
    return call(
        f"kernel overwrite_first(a: f32[{n},{m}]) -> (y: f32[{n},{m}] inplace a) {{\n  parallel j:{m}\n"
        "  y[0, j] = (a[0, j] * 0.25)\n}",
        a,
    )


def sort(a: Array) -> Host:
    dim = len(a.shape) - 1
    values = Array("values", "f32", a.shape)
    places = Array("indices", "i64", a.shape)
    attrs = {"dim": dim, "descending": False}
    return Host(REGISTRY["sort"], attrs, (type_of(float32, a.shape),), (a,), (values, places))


def reshape(a: Array, shape: tuple[int, ...]) -> Alias:
    return Alias((a,), (Array("alias", a.dtype, shape),))


def part(a: Array, first: int, rows: int) -> Alias:
    """Some of the rows of a matrix; of one row, a vector."""
    shape = (rows, *a.shape[1:]) if rows > 1 else a.shape[1:]
    return Alias((a,), (Array("part", a.dtype, shape),), first * a.shape[1])


def random_program(seed: int, hosts: bool = True) -> Program:
    """A program of 3 to 14 steps with params that results go to."""
    rng = random.Random(seed)
    params = tuple(Array(f"p{k}", "f32", rng.choice(SHAPES[:2])) for k in range(rng.randint(2, 4)))
    constants = {Array("c", "f32", SHAPES[0]): np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(SHAPES[0])}
    known, steps = [*params, *constants], []
    for _ in range(rng.randint(3, 14)):
        a = rng.choice(known[-4:] if rng.random() < 0.7 else known)
        same = [k for k in known if k.shape == a.shape]
        b = rng.choice(same)
        choices = [
            lambda a=a: pointwise("scale", "((%a * 0.5) + 1.0)", a),
            lambda a=a, b=b: pointwise("add", "((%a * 0.5) - %b)", a, b),
            lambda a=a, b=b: two_outputs(a, b),
        ]
        if len(a.shape) == 2:
            rows = [k for k in known if k.shape == a.shape[1:]]
            choices += [lambda a=a: transpose(a), lambda a=a: mean_rows(a), lambda a=a: overwrite_first(a)]
            choices += [lambda a=a, rows=rows: add_row(a, rng.choice(rows))] if rows else []
        fits = [shape for shape in SHAPES if np.prod(shape) == a.size and shape != a.shape]
        choices += [lambda a=a, fits=fits: reshape(a, rng.choice(fits))] if fits else []
        if len(a.shape) == 2 and a.shape[0] > 2:
            first, rows = rng.randrange(a.shape[0] - 1), rng.randint(1, 2)
            choices += [lambda a=a, first=first, rows=rows: part(a, first, rows)]
        choices += [lambda a=a: sort(a)] if hosts and rng.random() < 0.3 else []
        step = rng.choice(choices)()
        steps.append(step)
        known += [array for array in step.outputs if array.dtype == "f32"]
    results, into = [], []
    free = list(range(len(params)))
    for _ in range(rng.randint(1, 4)):
        array = rng.choice(known[-5:] if rng.random() < 0.8 else known)
        fits = [at for at in free if params[at].shape == array.shape]
        at = rng.choice(fits) if fits and rng.random() < 0.6 else None
        if at is not None:
            free.remove(at)
        results.append(array)
        into.append(at)
    program = Program(f"random{seed}", params, tuple(steps), tuple(results), constants, tuple(into))
    return verify_program(program)


def arguments(program: Program, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(p.shape).astype(np.float32) for p in program.params]
