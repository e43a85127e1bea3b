"""Running reductions along one dimension: sums, products, extrema, log-sums, linear recurrences."""

from __future__ import annotations

from itertools import accumulate
from math import inf
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import DType, bool_, int64, uint8
from ..errors import DTypeError, ShapeError
from ..kernel.types import greatest, least
from ..op import Traits, define
from ..sample import Operand, Sample, sample
from ..shapes import common_device, dim_of, float_dtype, result_dtype
from ..types import Shape, Type, type_of
from .arithmetic import abs
from .cast import in_reals
from .compare import eq, ne, where
from .create import ones_like, zeros_like
from .extremes import maximum
from .extremum import to_index
from .join import cat
from .math import exp, log1p, logaddexp_of
from .rearrange import flip
from .view import narrow


def lines(k: Any, shape: Shape, dim: int) -> tuple[tuple, Any]:
    """Lay out a scan: (an index with every axis, the local axis that runs along `dim`).  Not for 0-d."""
    outer = list(k.parallel(*(n for d, n in enumerate(shape) if d != dim)))
    (along,) = k.axes(shape[dim])
    return tuple(along if d == dim else outer.pop(0) for d in range(len(shape))), along


def shifted(input: Any, size: Any, dim: int, first: Any) -> Any:
    """`input` moved on by one along `dim`: `first` comes in, the last one goes."""
    return cat((first, narrow(input, dim, 0, size - 1)), dim)


# Shapes and dims of the samples.
_CALLS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((), 0), ((0,), 0), ((1,), 0), ((17,), 0), ((33,), -1), ((3, 17), 1), ((5, 3), 0), ((2, 3, 4), 1),
)  # fmt: skip


def _scan_samples(**domain: Any):
    return lambda: [Sample((Operand(shape, **domain),), {"dim": dim}) for shape, dim in _CALLS]


# Sums and products


def bind_cumsum(input, dim, *, dtype=None):
    """Add up the elements along `dim`, keeping every step: out[j] = x[0] + ... + x[j].

    Shapes: the same.  Integers and bools add up in int64; `dtype` is what the elements are converted to
    beforehand.  Raises DimError.
    """
    if dtype is not None:
        input = in_reals(input, dtype)
    return (input,), {"dim": dim_of("cumsum", dim, input.ndim), "dtype": dtype}


def bind_cumprod(input, dim, *, dtype=None):
    """Multiply the elements along `dim`, keeping every step: out[j] = x[0] ... x[j].

    Shapes: the same.  Integers and bools multiply in int64; `dtype` is what the elements are converted to
    beforehand.  Gradients are right where elements are zero, to any order.  Raises DimError.
    """
    if dtype is not None:
        input = in_reals(input, dtype)
    return (input,), {"dim": dim_of("cumprod", dim, input.ndim), "dtype": dtype}


def _dtype(input: Type, dtype: DType | None) -> DType:
    return dtype or (input.dtype if input.dtype.inexact else int64)


def _running(name: str, ufunc: np.ufunc, word: str, bind: Any, grad: Any, samples: Any):
    """The record of cumsum or cumprod."""

    def reference(input: Any, *, dim: int, dtype: DType | None) -> Any:
        if not input.ndim:
            return np.array(input, dtype=dtype and dtype.compute.numpy)
        out = ufunc.accumulate(input, axis=dim, dtype=dtype and dtype.compute.numpy)
        if ufunc is np.add and out.dtype.kind in "fc":
            out += 0  # sums start from 0.0, which -0.0 does not change
        return out

    def build(k: Any, input: Any, *, dim: int, dtype: DType | None) -> None:
        if not input.shape:
            return k.store(input[()], at=k.parallel())
        at, along = lines(k, input.shape, dim)
        k.store(k.scan(word, input[at], along=along)[along], at=at, over=(along,))

    return define(
        name,
        bind=bind,
        infer=lambda input, *, dim, dtype: input.with_dtype(_dtype(input, dtype)),
        casts=lambda input, *, dim, dtype: (_dtype(input, dtype),),
        reference=reference,
        complex="analytic",
        grad=grad,
        lower=lowering.kernel(build),
        traits=Traits(inplace=True, in_order=True),
        samples=samples,
    )


def _grad_cumsum(g: Any, dim: int) -> Any:
    """The sum of the cotangents from each place on."""
    return flip(cumsum(flip(g, (dim,)), dim), (dim,)) if g.ndim else g


def _grad_cumprod(g: Any, input: Any, out: Any, input_type: Type, dim: int) -> Any:
    """(the product before j) * s[j], where s[j] = g[j] + x[j+1] s[j+1]: no division, so zeros are safe."""
    if not input_type.shape or input_type.shape[dim] == 0:
        return g
    size = input_type.shape[dim]
    backwards, last = flip(input, (dim,)), narrow(input, dim, 0, 1)
    after = linear_recurrence(shifted(backwards, size, dim, zeros_like(last)), flip(g, (dim,)), dim)
    return shifted(out, size, dim, ones_like(last)) * flip(after, (dim,))


cumsum = _running("cumsum", np.add, "sum", bind_cumsum, _grad_cumsum, _scan_samples())
cumprod = _running(
    "cumprod", np.multiply, "prod", bind_cumprod, _grad_cumprod, _scan_samples(low=0.5, high=1.5)
)


# Recurrences


def bind_linear_recurrence(decay, input, dim=-1):
    """Run h[j] = decay[j] * h[j-1] + input[j] along `dim` from h[-1] = 0, keeping every step.

    Shapes: decay, input and the result have one shape.  With decay 1 it is cumsum; with decays computed from
    data it is a gated linear recurrence (state-space models).  Raises DimError, ShapeError.
    """
    return (decay, input), {"dim": dim_of("linear_recurrence", dim, input.ndim)}


def _infer_recurrence(decay: Type, input: Type, *, dim: int) -> Type:
    if not result_dtype(decay, input).inexact:
        raise DTypeError(
            "linear_recurrence(decay, input): takes floating operands", "convert first: x.float()"
        )
    if decay.shape != input.shape:
        raise ShapeError(
            "linear_recurrence(decay, input): there is one decay for each element",
            f"shapes {list(decay.shape)} and {list(input.shape)}: expand decay to the shape of input",
        )
    return type_of(result_dtype(decay, input), input.shape, common_device("linear_recurrence", decay, input))


def _recurrence(decay: Any, input: Any, *, dim: int) -> Any:
    """Doubling: after each pass, place j has combined the steps of twice as many places before it."""
    if not input.ndim:
        return np.array(input)
    factor, state = np.moveaxis(decay, dim, 0).copy(), np.moveaxis(input, dim, 0).copy()
    reach = 1
    while reach < len(state):
        state[reach:] = state[reach:] + factor[reach:] * state[:-reach]
        factor[reach:] = factor[reach:] * factor[:-reach]
        reach *= 2
    return np.moveaxis(state, 0, dim)


def _build_recurrence(k: Any, decay: Any, input: Any, *, dim: int) -> None:
    if not input.shape:
        return k.store(input[()], at=k.parallel())
    at, along = lines(k, input.shape, dim)
    (state,) = k.scan_fold((0.0,), lambda s: (decay[at] * s[0] + input[at],), along=along)
    k.store(state[along], at=at, over=(along,))


def _backwards(g: Any, decay: Any, size: Any, dim: int) -> Any:
    """s[j] = g[j] + decay[j+1] s[j+1]: the cotangent of each state."""
    turned = flip(decay, (dim,))
    after = shifted(turned, size, dim, zeros_like(narrow(turned, dim, 0, 1)))
    return flip(linear_recurrence(after, flip(g, (dim,)), dim), (dim,))


def _grad_decay(g: Any, decay: Any, out: Any, input_type: Type, dim: int) -> Any:
    if not input_type.shape or input_type.shape[dim] == 0:
        return zeros_like(g)  # the first step has nothing to decay
    size = input_type.shape[dim]
    before = shifted(out, size, dim, zeros_like(narrow(out, dim, 0, 1)))
    return _backwards(g, decay, size, dim) * before


def _grad_recurrence(g: Any, decay: Any, input_type: Type, dim: int) -> Any:
    if not input_type.shape or input_type.shape[dim] == 0:
        return g
    return _backwards(g, decay, input_type.shape[dim], dim)


linear_recurrence = define(
    "linear_recurrence",
    complex="analytic",
    bind=bind_linear_recurrence,
    infer=_infer_recurrence,
    casts=lambda decay, input, *, dim: (result_dtype(decay, input),) * 2,
    reference=_recurrence,
    grad=(_grad_decay, _grad_recurrence),
    lower=lowering.kernel(_build_recurrence),
    samples=lambda: [sample(Operand(s, low=-1.0, high=1.0), s, dim=d) for s, d in _CALLS],
    inapplicable={"broadcast": "there is one decay for each element"},
    method=False,
    dtypes="float",
)


# Extrema


def _running_extremum(name: str, ufunc: np.ufunc, better: np.ufunc, adjective: str):
    """The record of cummax or cummin, whose index is that of the last among equals, as PyTorch's is."""

    def bind(input, dim):
        return (input,), {"dim": dim_of(name, dim, input.ndim)}

    def reference(input: Any, *, dim: int) -> tuple:
        if not input.ndim:
            return np.array(input), np.array(0)
        values = ufunc.accumulate(input, axis=dim)
        shape = tuple(-1 if d == dim else 1 for d in range(input.ndim))
        places = np.arange(input.shape[dim]).reshape(shape)
        new = better(input, values) | (input != input)  # NaN != NaN: it wins and stays
        return values, np.maximum.accumulate(np.where(new, places, 0), axis=dim)

    def build(k: Any, input: Any, *, dim: int) -> None:
        if not input.shape:
            k.store(input[()], at=k.parallel())
            return k.store(0, at=(), output=1)
        at, along = lines(k, input.shape, dim)
        dtype = uint8 if input.dtype is bool_ else input.dtype
        value, place = k.cast(input[at], dtype), k.coordinate(along)

        def step(state: tuple) -> tuple:
            best, found = state
            beats = value >= best if name == "cummax" else value <= best
            if dtype.inexact:
                beats = (beats & eq(best, best)) | ne(value, value)  # NaN != NaN: it wins and stays
            return where(beats, value, best), where(beats, place, found)

        worst = (least if name == "cummax" else greatest)(dtype.short)
        values, indices = k.scan_fold((k.cast(worst, dtype), 0), step, along=along)
        k.store(values[along], at=at, over=(along,))
        k.store(indices[along], at=at, over=(along,), output=1)

    return define(
        name,
        bind=bind,
        infer=lambda input, *, dim: (input, input.with_dtype(int64)),
        reference=reference,
        grad=lambda g, indices, input_type, dim: to_index(g, indices, input_type.shape, dim, True),
        outputs=("values", "indices"),
        lower=lowering.kernel(build),
        traits=Traits(in_order=True),
        samples=_scan_samples(distinct=True),
        doc=f"""Find the {adjective} element up to each place along `dim`.

        Returns (values, int64 indices) of the input's shape.  Of equal elements the last counts; a NaN stays.
        The gradient goes to the elements chosen.  Raises DimError.
        """,
    )


cummax = _running_extremum("cummax", np.maximum, np.greater_equal, "largest")
cummin = _running_extremum("cummin", np.minimum, np.less_equal, "smallest")


# log(cumsum(exp(x)))


def bind_logcumsumexp(input, dim):
    """Compute log(exp(x[0]) + ... + exp(x[j])) along `dim` without overflow.

    Shapes: the same.  Raises DimError.
    """
    return (input,), {"dim": dim_of("logcumsumexp", dim, input.ndim)}


def _build_logcumsumexp(k: Any, input: Any, *, dim: int) -> None:
    if not input.shape:
        return k.store(input[()], at=k.parallel())
    at, along = lines(k, input.shape, dim)
    value = input[at]

    def step(state: tuple) -> tuple:
        high = maximum(state[0], value)
        gap = abs(state[0] - value)  # of two equal infinities it is NaN
        return (high + where(eq(gap, gap), log1p(exp(-gap)), where(eq(value, value), 0.0, value)),)

    (total,) = k.scan_fold((-inf,), step, along=along)
    k.store(total[along], at=at, over=(along,))


def _grad_logcumsumexp(g: Any, input: Any, out: Any, input_type: Type, dim: int) -> Any:
    """exp(x[j] - out[j]) s[j] with s[j] = g[j] + exp(out[j] - out[j+1]) s[j+1]: no exponent is above 0."""
    if not input_type.shape or input_type.shape[dim] == 0:
        return g
    size = input_type.shape[dim]
    decay = exp(shifted(out, size, dim, narrow(out, dim, 0, 1)) - out)
    return exp(input - out) * _backwards(g, decay, size, dim)


def _logcumsumexp(input: np.ndarray, *, dim: int) -> np.ndarray:
    if not input.ndim or not input.size:
        return np.array(input)
    if input.dtype.kind != "c":
        return np.logaddexp.accumulate(input, axis=dim) + 0  # 0.0, not -0.0
    lines = np.moveaxis(input, dim, 0)
    steps = accumulate(lines, logaddexp_of)
    return np.moveaxis(np.array(list(steps)), 0, dim)


logcumsumexp = define(
    "logcumsumexp",
    bind=bind_logcumsumexp,
    infer=lambda input, *, dim: input.with_dtype(float_dtype(input)),
    casts=lambda input, *, dim: (float_dtype(input),),
    reference=_logcumsumexp,
    complex="analytic",
    grad=_grad_logcumsumexp,
    lower=lowering.kernel(_build_logcumsumexp),
    traits=Traits(in_order=True),
    samples=_scan_samples(),
)
