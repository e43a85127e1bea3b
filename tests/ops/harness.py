"""What the tests generated from the op records share: calls made of samples, ways to run them, and error
bounds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir import dtypes
from lamina.ir.dtypes import DType, from_numpy_dtype, of_scalar
from lamina.ir.execute import executor
from lamina.ir.op import Op
from lamina.ir.sample import Operand, Sample
from lamina.ir.shapes import fitting, number_dtype
from lamina.ir.types import Type, type_of
from lamina.passes.graphs.lower import numbered

LAYOUTS = ("contiguous", "transposed", "strided", "broadcast")
SIZES: dict[str, Callable[[tuple[int, ...]], bool]] = {
    "0-d": lambda shape: shape == (),
    "empty": lambda shape: 0 in shape,
    "1": lambda shape: 1 in shape,
    "17": lambda shape: 17 in shape,
    "33": lambda shape: 33 in shape,
}
TAKES: dict[str, tuple[DType, ...]] = {
    "all": dtypes.ALL,
    "float": dtypes.FLOATS,
    "number": dtypes.FLOATS + dtypes.INTEGERS,
    "int": (*dtypes.INTEGERS, dtypes.bool_),
    "byte": (dtypes.int8, dtypes.uint8),
    "complex": (),  # test_complex.py has these
}
FURTHER = (dtypes.float16, dtypes.bfloat16, dtypes.int64, dtypes.int32, dtypes.uint8, dtypes.bool_)
EPS = {d: float(np.finfo(d.numpy).eps) for d in (dtypes.float64, dtypes.float32, dtypes.float16)}
EPS[dtypes.bfloat16] = 2.0**-7


@dataclass(frozen=True)
class Case:
    """One sample of a record as arrays: the user's call (args, kwargs), and what `bind` and lifting make of
    it.
    """

    op: Op
    sample: Sample
    args: tuple
    kwargs: dict[str, Any]
    operands: tuple[np.ndarray | None, ...]
    attrs: dict[str, Any]
    numbers: tuple[bool, ...]  # which operands were Python numbers
    label: str

    @property
    def names(self) -> tuple[str, ...]:
        """Of the outputs, hidden ones too."""
        return numbered(self.op.all_outputs, len(self.outs))

    @property
    def visible(self) -> int:
        """The number of outputs that the user is handed."""
        return len(self.outs) - len(self.op.hidden)

    @property
    def types(self) -> tuple[Type | None, ...]:
        return tuple(type_in(x) for x in self.operands)

    @property
    def outs(self) -> tuple[Type, ...]:
        found = self.op.infer(*self.types, **self.attrs)
        return found if isinstance(found, tuple) else (found,)

    def run(self, operands: Sequence[np.ndarray | None] | None = None) -> tuple[np.ndarray, ...]:
        """All outputs, hidden ones too, by the executor."""
        return executed(self.op, self.operands if operands is None else operands, self.attrs)

    def widened(self) -> Case:
        """The same call with every floating operand's value in float64."""
        wide = tuple(x.astype(np.float64) if is_float(x) else x for x in self.operands)
        return replace(self, operands=wide, label=f"{self.label} widened")

    def __str__(self) -> str:
        return self.label


def type_in(x: np.ndarray | None) -> Type | None:
    if x is None:
        return None
    dtype = from_numpy_dtype(x.dtype)
    assert dtype is not None, x.dtype
    return type_of(dtype, x.shape)


def is_float(x: np.ndarray | None) -> bool:
    return x is not None and from_numpy_dtype(x.dtype) in dtypes.FLOATS


def executed(op: Op, operands: Sequence[np.ndarray | None], attrs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    run, _ = executor(op, tuple(type_in(x) for x in operands), attrs)
    with np.errstate(all="ignore"):  # as the runtime sets it, once, at import
        out = run(*operands)
    return out if isinstance(out, tuple) else (out,)


# ---- making calls
def samples(op: Op) -> list[Sample]:
    return list(op.samples())


def cases(op: Op, dtype: DType, layout: str = "contiguous", count: int | None = None) -> Iterator[Case]:
    """The samples of a record as arrays of `dtype`; with `count`, that many, those of more elements first."""
    chosen = list(enumerate(samples(op)))
    if count is not None:
        chosen = sorted(chosen, key=lambda pair: -interest(pair[1]))[:count]
    for number, sample in chosen:
        yield case(op, sample, number, dtype, layout)


def interest(sample: Sample) -> int:
    """How much a sample can show where few are tried: the number of dimensions, then of elements."""
    shapes = [x.shape for x in tensors_of(sample)]
    return max((len(s) * 10_000 + min(int(np.prod(s)), 9_999) for s in shapes if 0 not in s), default=0)


def tensors_of(sample: Sample) -> list[Operand]:
    """The tensor operands of a sample, those in lists and given by keyword too."""
    found = []
    for x in (*sample.args, *sample.kwargs.values()):
        found += [y for y in (x if isinstance(x, (tuple, list)) else (x,)) if isinstance(y, Operand)]
    return found


def case(op: Op, sample: Sample, number: int, dtype: DType, layout: str = "contiguous") -> Case:
    """One call; its values depend on the op's name and the sample's number alone."""
    generator = np.random.default_rng([zlib.crc32(op.name.encode()), number])

    def made(x: Any) -> Any:
        if isinstance(x, Operand):
            return laid_out(x.array(generator, dtype.numpy), layout)
        if isinstance(x, (tuple, list)) and any(isinstance(y, Operand) for y in x):
            return type(x)(made(y) for y in x)
        return x

    args = tuple(made(x) for x in sample.args)
    kwargs = {name: made(x) for name, x in sample.kwargs.items()}
    operands, attrs = op.bind(*args, **kwargs)
    numbers = tuple(isinstance(x, (bool, int, float)) for x in operands)
    label = f"{op.name} {spelled(sample)} {dtype.name} {layout}"
    return Case(op, sample, args, kwargs, lifted(operands), attrs, numbers, label)


def spelled(sample: Sample) -> str:
    """A sample as the call it stands for."""

    def text(x: Any) -> str:
        if isinstance(x, Operand):
            return str(list(x.shape))
        if isinstance(x, (tuple, list)) and x and isinstance(x[0], Operand):
            return f"({', '.join(map(text, x))})"
        return repr(x)

    return f"({', '.join([*map(text, sample.args), *(f'{n}={text(x)}' for n, x in sample.kwargs.items())])})"


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """The values in another memory layout; `broadcast` repeats the first of each row, so it changes them."""
    if layout == "transposed":
        return x.T.copy().T if x.ndim > 1 else x
    if layout == "strided":
        gaps = np.zeros(tuple(2 * n + 1 for n in x.shape), x.dtype)
        inside = gaps[tuple(slice(1, None, 2) for _ in x.shape)] if x.ndim else gaps
        inside[...] = x
        return inside
    if layout == "broadcast":
        return np.broadcast_to(x[..., :1].copy(), x.shape) if x.ndim and x.size else x
    return x


def lifted(operands: Sequence[Any]) -> tuple[np.ndarray | None, ...]:
    """Numbers beside tensors as 0-d arrays, of the dtype they take there."""
    beside = [type_in(x) for x in operands if isinstance(x, np.ndarray)]

    def lift(x: Any) -> np.ndarray | None:
        if x is None or isinstance(x, np.ndarray):
            return x
        dtype = number_dtype(x, *beside) if beside else of_scalar(x)
        return np.asarray(x, dtype.numpy)

    return tuple(map(lift, operands))


SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-40, 1e30, -1e30)


def special_cases(op: Op, dtype: DType) -> Iterator[Case]:
    """Elementwise calls with every combination of NaN, infinities, zeros, and the very small and large."""
    tried = set()
    for number, sample in enumerate(samples(op)):
        tensors, others = (
            tensors_of(sample),
            repr(sample.kwargs) + repr([x for x in sample.args if not isinstance(x, Operand)]),
        )
        if others in tried or not tensors or any(x.category != "any" for x in tensors):
            continue
        tried.add(others)
        grids = iter(np.meshgrid(*[np.array(SPECIAL)] * len(tensors), indexing="ij"))
        plain = case(op, sample, number, dtype)

        def fill(x: Any, grids: Iterator = grids) -> Any:
            return next(grids).astype(dtype.numpy) if isinstance(x, Operand) else x

        args, kwargs = tuple(map(fill, sample.args)), {n: fill(x) for n, x in sample.kwargs.items()}
        operands, attrs = op.bind(*args, **kwargs)
        yield replace(
            plain,
            args=args,
            kwargs=kwargs,
            operands=lifted(operands),
            attrs=attrs,
            label=f"{plain} at special values",
        )


# ---- bounds
def bound(case: Case, exact: Sequence[np.ndarray], dtype: DType) -> list[np.ndarray]:
    """How far outputs computed in `dtype` may lie from those in float64, the operands being the same numbers.

    A backward-stable computation gives the exact outputs of operands that are off by one rounding for each of
    its steps.  So: the number of roundings (a sum of n terms, in any order, takes n - 1; 8 for what comes
    around it) times what one unit changes: eps of the output itself, and what the output moves by when the
    operands move by eps.  Elementwise ops are held to each element's own size or its operands' (x - tanh(x)
    cancels), others to that of the largest element, as their intermediate values are of that size.  Halves
    are computed in float32 and rounded once.
    """
    eps = EPS[dtype.compute]
    terms = (
        0 if case.op.traits.elementwise else max((x.size for x in case.operands if x is not None), default=0)
    )
    moved = [np.zeros(np.shape(y)) for y in exact]
    for probe in range(
        0 if case.op.traits.host else 3
    ):  # where values decide the shape there is nothing to compare
        generator = np.random.default_rng(probe)
        wide = case.widened().operands
        shaken = [
            x * (1 + eps * generator.choice([-1.0, 1.0], x.shape)) if is_float(x) and not number else x
            for x, number in zip(wide, case.numbers, strict=True)
        ]
        for total, y, z in zip(moved, exact, case.run(shaken), strict=True):
            with np.errstate(all="ignore"):
                np.maximum(total, np.nan_to_num(np.abs(z.astype(np.float64) - y), posinf=0.0), out=total)
    bounds = []
    for y, change in zip(exact, moved, strict=True):
        size = magnitude(y)
        scale = np.max(size, initial=0.0)
        if case.op.traits.elementwise:
            scale = reduce(np.maximum, [magnitude(x) for x in case.operands if is_float(x)], size)
        limit = (8 + terms) * (eps * scale + change) + float(np.finfo(np.float32).tiny)
        if dtype is not dtype.compute:
            limit = limit + EPS[dtype] * size + float(np.finfo(np.float16).smallest_subnormal)
        bounds.append(limit)
    return bounds


def magnitude(x: np.ndarray) -> np.ndarray:
    """The absolute values, 0 for NaN and infinities."""
    return np.abs(np.nan_to_num(np.asarray(x, np.float64), nan=0.0, posinf=0.0, neginf=0.0))


def held(exact: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Exact numbers, but for those beyond what a dtype holds: infinities."""
    with np.errstate(over="ignore"):
        beyond = np.isinf(exact.astype(dtype).astype(np.float64))
    return np.where(beyond, np.copysign(np.inf, exact), exact)


def assert_near(found: np.ndarray, wanted: np.ndarray, tolerance: Any, what: str) -> None:
    """Fail with the worst element, unless all lie within the tolerance and NaN and inf at the same places."""
    assert np.shape(found) == np.shape(wanted), f"{what}: shape {np.shape(found)}, not {np.shape(wanted)}"
    with np.errstate(all="ignore"):
        found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
        equal = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
        error = np.where(equal, 0.0, np.abs(found - wanted))
        bad = ~equal & ~(error <= tolerance)
    if np.any(bad):
        worst = np.unravel_index(
            int(np.argmax(np.where(bad, np.nan_to_num(error, nan=np.inf), -1.0))), np.shape(bad)
        )
        limit = np.broadcast_to(tolerance, np.shape(bad))[worst]
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.size} elements differ; at {list(map(int, worst))} "
            f"found {found[worst]!r}, wanted {wanted[worst]!r} within {limit:.3g}"
        )


def assert_same(found: np.ndarray, wanted: np.ndarray, what: str) -> None:
    """Fail unless dtype, shape and every element agree (NaN with NaN, 0.0 with -0.0)."""
    assert found.dtype == wanted.dtype, f"{what}: dtype {found.dtype}, not {wanted.dtype}"
    assert_near(found, wanted, 0.0, what)


# ---- gradients on arrays
def needs_of(case: Case) -> tuple[bool, ...]:
    """Which operands a gradient can flow to."""
    last = len(case.op.operands) - 1
    return tuple(is_float(x) and case.op.differentiates(min(i, last)) for i, x in enumerate(case.operands))


def saved_of(op: Op, operands: Sequence[Any], outputs: Sequence[Any]) -> tuple:
    """What `saves` names; a variadic operand is the tuple of all."""
    fixed = len(op.operands) - op.variadic
    values = dict(zip(op.operands, operands[:fixed], strict=False)) | dict(
        zip(op.all_outputs, outputs, strict=True)
    )
    if op.variadic:
        values[op.operands[-1]] = tuple(operands[fixed:])
    return tuple(values[name] for name in op.saves)


def cotangents_for(case: Case, outputs: Sequence[np.ndarray], seed: int = 0) -> tuple[np.ndarray | None, ...]:
    """A random cotangent for each visible output that is floating."""
    generator = np.random.default_rng([seed, 7])
    visible = outputs[: case.visible]
    return tuple(
        generator.uniform(0.5, 1.5, y.shape).astype(y.dtype) if is_float(y) else None for y in visible
    )


def gradients(
    case: Case, cotangents: tuple, outputs: Sequence[np.ndarray] | None = None
) -> list[np.ndarray | None]:
    """The record's rules run on plain arrays, their results fitted to the operands as the engine does it."""
    op = case.op
    outputs = case.run() if outputs is None else outputs
    types = (*case.types, *case.outs)
    with np.errstate(all="ignore"):
        found = op.cotangents(
            saved_of(op, case.operands, outputs), cotangents, case.attrs, needs_of(case), types
        )
        pairs = zip(found, case.types, needs_of(case), strict=True)
        return [fitted(g, t) if need and g is not None else None for g, t, need in pairs]


def fitted(g: Any, t: Type) -> np.ndarray:
    """A cotangent summed over what was broadcast and cast to the operand's dtype."""
    g = np.asarray(g)
    fit = fitting(g.shape, t.shape)
    if fit is not None and fit[0]:
        g = np.add.reduce(g, axis=fit[0]).reshape(fit[1])
    return (
        np.broadcast_to(g, t.shape).astype(t.dtype.numpy) if g.shape != t.shape else g.astype(t.dtype.numpy)
    )
