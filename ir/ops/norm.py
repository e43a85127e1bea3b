"""Normalisation over the last dims: to mean 0 and variance 1, to mean square 1; and to length 1.

Means and variances that a gradient needs are outputs, hidden or visible: values with a gradient of their
own.  So the rules below take them as given, and are right to any order, because what they do with them is
differentiated too.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..dtypes import float32, float64
from ..errors import DTypeError, ShapeError
from ..op import Traits, composite, define
from ..sample import sample
from ..shapes import sizes_of
from ..types import Shape, Type, type_of
from .cast import type_as
from .extremes import clamp_min
from .powers import rsqrt
from .reduce import mean
from .spread import linalg_vector_norm
from .view import expand


def need_float(op: str, t: Type) -> None:
    """Refuse integers.  Raises DTypeError."""
    if not t.dtype.is_floating_point:
        raise DTypeError(f"{op}: {t.dtype} can't be normalised", "convert first: x.float()")


def need_shape(op: str, name: str, t: Type | None, shape: Shape) -> None:
    """Refuse a weight, bias or statistic of the wrong shape.  Raises ShapeError."""
    if t is not None and (t.ndim != len(shape) or not all(same(a, b) for a, b in zip(t.shape, shape))):
        raise ShapeError(f"{op}: {name} must have shape {list(shape)}, not {list(t.shape)}")


def _rows(k: Any, input: Any, first: int) -> tuple[tuple, tuple, tuple]:
    """Lay out a norm over the dims from `first` on: an element's index, its local part, a mean's index."""
    outer, inner = k.parallel(*input.shape[:first]), k.axes(*input.shape[first:])
    return (*outer, *inner), inner, (*outer, *(0 for _ in inner))


# Over the last dims


def _normalized(op: str, input: Any, normalized_shape: Any) -> tuple[int, ...]:
    """The dims that `normalized_shape` names: the last ones.  Raises ShapeError."""
    sizes = sizes_of(op, (normalized_shape,))
    first = input.ndim - len(sizes)
    if not sizes or first < 0 or not all(same(a, b) for a, b in zip(sizes, input.shape[first:])):
        raise ShapeError(f"{op}: normalized_shape {list(sizes)} is not the end of shape {list(input.shape)}")
    return tuple(range(first, input.ndim))


def bind_layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """Normalise over the last dims: (x - mean) / sqrt(variance + eps) * weight + bias.

    Shapes: input [..., *normalized_shape], weight and bias normalized_shape -> as input.  The variance is
    that of correction 0.  Raises ShapeError, and DTypeError for integers.  Source: Ba et al., Layer
    Normalization, eq. 4.
    """
    dims = _normalized("layer_norm", input, normalized_shape)
    return (input, weight, bias), {"dim": dims, "eps": float(eps)}


def _statistics(input: Type, dim: tuple[int, ...]) -> Type:
    """The type of a mean or scale: kept dims, and float32 for halves."""
    shape = tuple(1 if d in dim else n for d, n in enumerate(input.shape))
    return type_of(input.dtype.compute, shape, input.device)


def _infer_layer_norm(
    input: Type, weight: Type | None, bias: Type | None, *, dim: tuple, eps: float
) -> tuple:
    need_float("layer_norm", input)
    need_shape("layer_norm", "weight", weight, input.shape[dim[0] :])
    need_shape("layer_norm", "bias", bias, input.shape[dim[0] :])
    return input, _statistics(input, dim), _statistics(input, dim)


def _layer_norm(input: Any, weight: Any, bias: Any, *, dim: tuple[int, ...], eps: float) -> tuple:
    n = prod(input.shape[d] for d in dim)
    center = np.add.reduce(input, axis=dim, keepdims=True) / n
    out = input - center
    rstd = 1 / np.sqrt(np.add.reduce(out * out, axis=dim, keepdims=True) / n + eps)
    out *= rstd
    if weight is not None:
        out *= weight
    if bias is not None:
        out += bias
    return out, center, rstd


def _build_layer_norm(
    k: Any, input: Any, weight: Any, bias: Any, *, dim: tuple[int, ...], eps: float
) -> None:
    at, inner, row = _rows(k, input, dim[0])
    n = prod(input.shape[d] for d in dim)
    center = k.sum(input[at], over=inner) / n
    distance = input[at] - center
    rstd = rsqrt(k.sum(distance * distance, over=inner) / n + eps)
    out = distance * rstd
    out = out if weight is None else out * weight[inner]
    k.store(out if bias is None else out + bias[inner], at=at, over=inner)
    k.store(center, at=row, output=1)
    k.store(rstd, at=row, output=2)


def sum_of(*terms: Any) -> Any:
    """The sum of the cotangents there are; None where there is none."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


def _vjp_layer_norm(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    input, weight, center, rstd = saved
    g, to_center, to_rstd = (*cotangents, None, None)[:3]  # hidden outputs may be left out
    dim = attrs["dim"]
    n = prod(input.shape[d] for d in dim)
    g = g if g is None else type_as(g, rstd)  # halves: sums to weight and bias are rounded once
    scaled = (input - center) * rstd
    to_input = None
    if needs[0]:
        if g is not None:
            inner = g if weight is None else g * weight
            to_input = (inner - mean(inner, dim, True) - scaled * mean(inner * scaled, dim, True)) * rstd
        if to_rstd is not None:  # d rstd / d x = -rstd^2 scaled / n
            to_input = sum_of(to_input, scaled * (to_rstd * rstd * rstd * (-1.0 / n)))
        if to_center is not None:
            to_input = sum_of(to_input, expand(to_center / n, input.shape))
    to_weight = g * scaled if needs[1] and g is not None else None
    return to_input, to_weight, g if needs[2] else None


layer_norm = define(
    "layer_norm",
    bind=bind_layer_norm,
    infer=_infer_layer_norm,
    reference=_layer_norm,
    optional=("weight", "bias"),
    hidden=("mean", "rstd"),
    vjp=_vjp_layer_norm,
    saves=("input", "weight", "mean", "rstd"),
    lower=lowering.kernel(_build_layer_norm),
    traits=Traits(in_order=True),
    samples=lambda: [
        sample((17,), [17]),
        sample((0, 3), [3]),
        sample((2, 33), [33], (33,), (33,)),
        sample((3, 1), [1], (1,)),
        sample((2, 3, 4), [3, 4], (3, 4), (3, 4)),
        sample((2, 3, 4), [4], None, (4,), eps=0.1),
    ],
    inapplicable={"0-d": "needs a dim to normalise over", "broadcast": "weight and bias have one shape"},
    method=False,
    dtypes="float",
)


def bind_rms_norm(input, normalized_shape, weight=None, eps=None):
    """Divide by the root of the mean square over the last dims: x / sqrt(mean(x^2) + eps) * weight.

    Shapes: input [..., *normalized_shape], weight normalized_shape -> as input.  `eps` of None is the
    resolution of the type computed in.  Of complex numbers it is the same formula, whose squares are no
    absolute ones.  Raises ShapeError, and DTypeError for integers.  Source: Zhang and Sennrich, Root Mean
    Square Layer Normalization, eq. 4.
    """
    dims = _normalized("rms_norm", input, normalized_shape)
    return (input, weight), {"dim": dims, "eps": None if eps is None else float(eps)}


def _infer_rms_norm(input: Type, weight: Type | None, *, dim: tuple[int, ...], eps: float | None) -> tuple:
    if not input.dtype.is_complex:
        need_float("rms_norm", input)
        if weight is not None and weight.dtype.is_complex:
            raise DTypeError(
                "rms_norm: a complex weight needs a complex input",
                f"input: {input}, weight: {weight}", "convert first: x.cfloat()",
            )  # fmt: skip
    need_shape("rms_norm", "weight", weight, input.shape[dim[0] :])
    return input, _statistics(input, dim)


def _rms_norm(input: Any, weight: Any, *, dim: tuple[int, ...], eps: float | None) -> tuple:
    n = prod(input.shape[d] for d in dim)
    eps = float(np.finfo(input.dtype).eps) if eps is None else eps
    rstd = 1 / np.sqrt(np.add.reduce(input * input, axis=dim, keepdims=True) / n + eps)
    out = input * rstd
    return out if weight is None else out * weight, rstd


def _build_rms_norm(k: Any, input: Any, weight: Any, *, dim: tuple[int, ...], eps: float | None) -> None:
    at, inner, row = _rows(k, input, dim[0])
    n = prod(input.shape[d] for d in dim)
    if eps is None:
        eps = float(np.finfo((float64 if input.dtype is float64 else float32).numpy).eps)
    rstd = rsqrt(k.sum(input[at] * input[at], over=inner) / n + eps)
    out = input[at] * rstd
    k.store(out if weight is None else out * weight[inner], at=at, over=inner)
    k.store(rstd, at=row, output=1)


def _vjp_rms_norm(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    input, weight, rstd = saved
    g, to_rstd = (*cotangents, None)[:2]  # hidden outputs may be left out
    dim = attrs["dim"]
    g = g if g is None else type_as(g, rstd)  # halves: the sum to the weight is rounded once
    scaled = input * rstd
    to_input = None
    if needs[0]:
        if g is not None:
            inner = g if weight is None else g * weight
            to_input = (inner - scaled * mean(inner * scaled, dim, True)) * rstd
        if to_rstd is not None:  # d rstd / d x = -rstd^2 scaled / n
            n = prod(input.shape[d] for d in dim)
            to_input = sum_of(to_input, scaled * (to_rstd * rstd * rstd * (-1.0 / n)))
    return to_input, g * scaled if needs[1] and g is not None else None


rms_norm = define(
    "rms_norm",
    complex="analytic",
    bind=bind_rms_norm,
    infer=_infer_rms_norm,
    reference=_rms_norm,
    optional=("weight",),
    hidden=("rstd",),
    vjp=_vjp_rms_norm,
    saves=("input", "weight", "rstd"),
    lower=lowering.kernel(_build_rms_norm),
    traits=Traits(in_order=True),
    samples=lambda: [
        sample((17,), [17]),
        sample((0, 3), [3]),
        sample((2, 33), [33], (33,)),
        sample((3, 1), [1], (1,)),
        sample((2, 3, 4), [3, 4], (3, 4), eps=0.1),
    ],
    inapplicable={"0-d": "needs a dim to normalise over", "broadcast": "the weight has one shape"},
    method=False,
    dtypes="float",
)


# To length 1


@composite(method=False)
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """Divide by the `p`-norm over `dim`, or by `eps` where that is greater.  Shapes: the same."""
    return input / clamp_min(linalg_vector_norm(input, p, dim, True), eps)
