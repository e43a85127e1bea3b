"""How far rounding may take two runs of one computation apart, and where they are further apart than that.

The computation is repeated in float64 with noise: whatever would be rounded is moved by up to one eps of its
declared type, at random, a few times.  How far the results scatter is, element by element, how far rounding
reaches: a sum that cancels scatters much, a copy not at all.  So a bound needs no tolerance that somebody
chose, and a wrong last element of a long sum is not hidden behind the largest one.
Source: Parker, Monte Carlo Arithmetic (1997).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.random import default_rng

from ..ir.by_pairs import from_pairs, to_pairs
from ..ir.dtypes import FLOATS, DType, float64, from_numpy_dtype
from ..ir.execute import executor
from ..ir.fused import fused
from ..ir.graph import Constant, Graph, Node, Value
from ..ir.kernel.form import Kernel
from ..ir.kernel.interpret import interpret as interpret_kernel
from ..ir.kernel.types import NUMPY
from ..ir.lowering import Pointwise
from ..ir.specialise import specialise

TIMES = 6  # runs with noise
# Of the runs' scatter.  Noise of up to an eps scatters by 0.58 eps, and a word of the vocabulary is right
# within 4 eps, 7 times that.  Six samples give a scatter seven times too small for one element in a million.
MARGIN = 48
# Two results that are this many eps apart are as good as one: no runs with noise are needed to say so.
CLOSE = 2
# Both Winograd forms work on windows of 6 x 6, and round what a whole window sums up to; their transforms
# multiply errors by less than 10 in each direction, for the points that they use.
WINOGRAD = 100

LIMITS = {dtype: ml_dtypes.finfo(dtype.numpy) for dtype in FLOATS}
EPS = {dtype: float(about.eps) for dtype, about in LIMITS.items()}

Runs = Callable[[], Sequence[np.ndarray]]  # a result without noise, then with it


@dataclass(frozen=True)
class Difference:
    """Where two arrays differ by more than rounding: the first element, both values, and what was allowed."""

    index: tuple[int, ...]
    expected: Any
    found: Any
    bound: float
    count: int = 1

    def __str__(self) -> str:
        if self.count == 0:  # not the same kind of array
            return f"{self.expected} became {self.found}"
        allowed = f", where rounding explains {self.bound:.2g}" if self.bound else ""
        return f"element {list(self.index)} is {self.expected} and became {self.found}{allowed}"


def difference(
    expected: np.ndarray, found: np.ndarray, runs: Runs, *, signs: bool = False, winograd: bool = False
) -> Difference | None:
    """The first element that differs by more than rounding, None if there is none.

    Integers and bools must be equal, NaNs and infinities must stand in the same places, but where the runs
    with noise disagree about them.  signs: the sign of a zero counts too, where no noise reaches it.
    winograd: a Winograd convolution took part, which rounds the sums of whole windows, and in which an
    infinity or a NaN spoils its neighbours.
    """
    if expected.shape != found.shape or expected.dtype != found.dtype:
        one, other = (f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in (expected, found))
        return Difference((), one, other, 0.0, 0)
    dtype = from_numpy_dtype(expected.dtype)
    assert dtype is not None, "arrays are of known types"
    if dtype.is_complex:  # part by part
        return difference(
            to_pairs(expected),
            to_pairs(found),
            lambda: [*map(to_pairs, runs())],
            signs=signs,
            winograd=winograd,
        )
    if not dtype.is_floating_point:
        bad = expected != found
        if not bad.any():
            return None
        centre, *others = runs()
        for other in others:
            bad &= other == centre
        return _first(bad, expected, found, np.zeros(expected.shape))
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        zeros = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)) if signs else np.zeros(a.shape, bool)
        near = same | (np.abs(a - b) <= CLOSE * EPS[dtype] * np.minimum(np.abs(a), np.abs(b)))
        if near.all() and not zeros.any():
            return None
        reach = scatter(runs(), dtype)
        if winograd:
            reach = np.maximum(reach, WINOGRAD * np.max(reach, initial=0.0, where=np.isfinite(reach)))
        bad = ~same & ~(np.abs(a - b) <= MARGIN * reach) & ~np.isinf(reach)
        bad &= ~near
        bad |= zeros & (reach == 0)
        if winograd:
            bad &= np.isfinite(b)
    return _first(bad, expected, found, MARGIN * reach)


def scatter(runs: Sequence[np.ndarray], dtype: DType) -> np.ndarray:
    """How far rounding reaches, by element; inf where it decides between numbers and none, or overflows."""
    centre, *others = (r.astype(np.float64) for r in runs)
    with np.errstate(all="ignore"):
        square = sum((other - centre) ** 2 for other in others) / len(others)
        reach = np.asarray(np.sqrt(square))
    finite = np.isfinite(centre)
    mixed = np.zeros(centre.shape, bool)
    for other in others:
        mixed |= np.isfinite(other) != finite
    reach = np.where(finite, reach, 0.0)
    tiny = float(LIMITS[dtype].smallest_subnormal)  # the distance of subnormals
    reach = np.where((reach > 0) & (reach < tiny), tiny, reach)
    return np.where(mixed | (finite & (np.abs(centre) > 0.99 * float(LIMITS[dtype].max))), np.inf, reach)


def _first(bad: np.ndarray, a: np.ndarray, b: np.ndarray, bound: np.ndarray) -> Difference | None:
    if not bad.any():
        return None
    at = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return Difference(tuple(map(int, at)), a[at], b[at], float(bound[at]), int(bad.sum()))


# ---- graphs ------------------------------------------------------------------------------------------------
def graph_runs(graph: Graph, arrays: Sequence[np.ndarray]) -> list[dict[Value, np.ndarray]]:
    """The values of a graph in float64: without noise, then with it, always the same."""
    wide = specialise(graph, {}, float64)
    return [_values(graph, wide, arrays, default_rng(n) if n else None) for n in range(TIMES + 1)]


def _values(
    graph: Graph, wide: Graph, arrays: Sequence[Any], rng: np.random.Generator | None
) -> dict[Value, np.ndarray]:
    values: dict[Any, Any] = {None: None}
    for param, array in zip(graph.params, arrays, strict=True):
        values[param] = widened(array)
    for constant in graph.used():
        if isinstance(constant, Constant):
            values[constant] = widened(constant.data)
    with np.errstate(all="ignore"):
        for node, twin in zip(graph.nodes, wide.nodes, strict=True):
            outputs = _outputs(node, twin, [values[v] for v in node.inputs], rng)
            values.update(zip(node.outputs, outputs, strict=True))
    return values


def widened(array: np.ndarray) -> np.ndarray:
    dtype = from_numpy_dtype(array.dtype)
    if dtype is None or not dtype.inexact:
        return array
    return array.astype(np.complex128 if dtype.is_complex else np.float64)


def _outputs(
    node: Node, twin: Node, given: list[Any], rng: np.random.Generator | None
) -> Sequence[np.ndarray]:
    if node.op is fused:
        inner = _values(node.attrs["body"], twin.attrs["body"], given, rng)
        return [inner[v] for v in node.attrs["body"].results]
    traits = node.op.traits
    if traits.random or traits.host:  # what they draw depends on the type
        types = tuple(None if v is None else v.type for v in node.inputs)
        run, _ = executor(node.op, types, node.attrs)
        narrow = [None if v is None else x.astype(v.dtype.numpy) for v, x in zip(node.inputs, given)]
        found = run(*narrow)
        return [widened(np.asarray(x)) for x in (found if isinstance(found, tuple) else (found,))]
    run, _ = executor(twin.op, tuple(None if v is None else v.type for v in twin.inputs), twin.attrs)
    rounds = rng is not None and not traits.movement and not traits.view
    if rounds and any(v.dtype.inexact for v in node.outputs):
        factor = _roundings(_terms(node))
        given = [x if v is None else _moved(rng, x, v.dtype, factor) for v, x in zip(node.inputs, given)]
    found = run(*given)
    outputs = [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]
    if rounds:
        outputs = [_moved(rng, x, v.dtype) for v, x in zip(node.outputs, outputs, strict=True)]
    return outputs


def _terms(node: Node) -> float:
    """How many terms are added up for one element, at most: sums in another order round that often.

    A product of f32[m,k] and f32[k,n] has sqrt(mk * kn / mn) = k of them, a convolution no more than that.
    """
    if isinstance(node.op.lower, Pointwise):
        return 1.0
    sizes = sorted((v.type.size for v in node.inputs if v is not None), reverse=True)
    out = max(1, max(v.type.size for v in node.outputs))
    single = sizes[0] / out if sizes else 1.0
    return max(1.0, single, (sizes[0] * sizes[1] / out) ** 0.5 if len(sizes) > 1 and sizes[1] > 1 else 1.0)


def _roundings(terms: float) -> float:
    """As the kernel interpreter has it for sums of so many terms."""
    return float(terms**0.5 * max(1.0, terms**0.5 / 64))


def _moved(rng: Any, x: np.ndarray, dtype: DType, factor: float = 1.0) -> np.ndarray:
    if dtype.is_complex:
        return from_pairs(_moved(rng, to_pairs(x), dtype.to_real(), factor))
    if not dtype.is_floating_point:
        return x
    return x * (1 + factor * EPS[dtype] * rng.uniform(-1, 1, x.shape))


# ---- kernels -----------------------------------------------------------------------------------------------
def kernel_runs(kernel: Kernel, arrays: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
    """The outputs of a kernel in float64: without noise, then with it, always the same."""
    found = [interpret_kernel(kernel, *arrays, exact=True)]
    for n in range(TIMES):
        noise = partial(_rounded, default_rng(n))
        found.append(interpret_kernel(kernel, *arrays, exact=True, rounding=noise))
    return found


def _rounded(rng: np.random.Generator, value: np.ndarray, dtype: str, size: np.ndarray) -> np.ndarray:
    known = from_numpy_dtype(NUMPY[dtype])
    assert known is not None
    with np.errstate(all="ignore"):
        moved = value + size * (EPS[known] * rng.uniform(-1, 1, np.shape(value)))
    return np.where(np.isfinite(value), moved, value)
