"""scatter_reduce: elements that are sent to one place, reduced there together with what stands there."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..errors import ArgumentValueError, DTypeError
from ..op import REGISTRY, Traits, define
from ..sample import Operand, Sample
from ..shapes import dim_of
from ..types import Type
from .cast import dtype_of
from .gather import (
    combine_at,
    cropped,
    flat_along,
    gather,
    identity,
    infer_scatter,
    lined,
    padded_to,
    scatter,
    source_casts,
    ungather,
)

_COMBINE = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


def bind_scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """Reduce the elements of `src` that are sent to one place: by "sum", "prod", "mean", "amax" or "amin".

    For dim 0 element src[i][j] is sent to input[index[i][j]][j].  include_self: what stands there takes part.
    Places that nothing is sent to stay as they are.  Raises DimError for an index outside of the dimension,
    ShapeError, DTypeError.
    """
    if reduce not in _COMBINE:
        raise ArgumentValueError(f"scatter_reduce: reduce must be one of {list(_COMBINE)}, not {reduce!r}")
    dim = dim_of("scatter_reduce", dim, input.ndim)
    return (input, index, src), {"dim": dim, "reduce": reduce, "include_self": bool(include_self)}


def _infer(input: Type, index: Type, src: Type, *, dim: int, reduce: str, include_self: bool) -> Type:
    if reduce == "mean" and input.dtype.category == "bool":
        raise DTypeError("scatter_reduce: bools have no mean", "convert them first: x.int()")
    if reduce in ("amax", "amin") and input.dtype.is_complex:
        raise DTypeError(f"scatter_reduce: complex numbers have no order, and no {reduce}", "compare x.abs()")
    return infer_scatter("scatter_reduce")(input, index, src, dim=dim)


def _reduced(
    input: np.ndarray, index: np.ndarray, src: np.ndarray, *, dim: int, reduce: str, include_self: bool
) -> np.ndarray:
    combine = _COMBINE[reduce]
    out, index = np.array(input, order="C"), lined(index)
    places = flat_along("scatter_reduce", out.shape or (1,), index, dim)
    if not include_self:
        out.reshape(-1)[places] = identity(combine, out.dtype)
    combine_at(out, places, lined(src)[tuple(np.s_[:n] for n in index.shape)], combine)
    if reduce == "mean":
        counts = np.bincount(places, minlength=out.size).reshape(out.shape) + int(include_self)
        divide = np.floor_divide if out.dtype.kind in "iu" else np.true_divide  # PyTorch's rounds down
        counts = np.maximum(counts, 1)
        divide(out, counts.astype(out.dtype) if out.dtype.kind == "c" else counts, out=out, casting="unsafe")
    return out


def _counts(ones: Any, input: Any, dim: int, index: Any, include_self: bool) -> Any:
    """How many elements meet in each place; 1 where nothing is sent."""
    own = REGISTRY["ones_like"](input)
    return (own if include_self else scatter(own, dim, index, 0.0)) + ungather(ones, index, dim, input.shape)


def _vjp_shared(saved: tuple, g: Any, dim: int, include_self: bool) -> tuple[Any, Any]:
    """Of amax and amin: the elements that equal the result share its cotangent."""
    input, index, src, out = saved
    won = REGISTRY["where"](src == gather(out, dim, index), REGISTRY["ones_like"](src), 0.0)
    stood = REGISTRY["where"](input == out, REGISTRY["ones_like"](input), 0.0)
    if not include_self:
        stood = scatter(stood, dim, index, 0.0)
    part = g / (stood + ungather(won, index, dim, input.shape))
    return part * stood, gather(part, dim, index) * won


def _vjp_prod(saved: tuple, g: Any, dim: int, include_self: bool) -> tuple[Any, Any]:
    """Of prod: the product of the others, which for the only zero is that of all that are not zero."""
    where, one = REGISTRY["where"], REGISTRY["ones_like"]
    input, index, src, _ = saved
    own = input if include_self else scatter(input, dim, index, 1.0)
    no_own, no_src = where(own == 0, one(own), 0.0), where(src == 0, one(src), 0.0)
    own, src = where(own == 0, 1.0, own), where(src == 0, 1.0, src)
    zeros = no_own + ungather(no_src, index, dim, input.shape)
    full = g * scatter_reduce(own, dim, index, src, "prod")
    to_own = where(zeros == no_own, full / own, 0.0)
    to_src = where(gather(zeros, dim, index) == no_src, gather(full, dim, index) / src, 0.0)
    return to_own if include_self else scatter(to_own, dim, index, 0.0), to_src


def _vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    input, index, src, out = saved
    (g,), dim, include_self = cotangents, attrs["dim"], attrs["include_self"]
    used = cropped(src, index)
    if attrs["reduce"] in ("amax", "amin"):
        to_input, to_src = _vjp_shared((input, index, used, out), g, dim, include_self)
    elif attrs["reduce"] == "prod":
        to_input, to_src = _vjp_prod((input, index, used, out), g, dim, include_self)
    else:
        if attrs["reduce"] == "mean":
            g = g / _counts(REGISTRY["ones_like"](used), input, dim, index, include_self)
        to_input, to_src = g if include_self else scatter(g, dim, index, 0.0), gather(g, dim, index)
    return to_input, None, padded_to(to_src, src)


def _decomposed(input: Any, index: Any, src: Any, *, dim: int, reduce: str, include_self: bool) -> Any:
    src = cropped(src, index)
    ones = REGISTRY["ones_like"](src)
    met = ungather(src, index, dim, input.shape, _COMBINE[reduce])
    if include_self:
        join = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}[_COMBINE[reduce]]
        met = REGISTRY[join](input, met)
    else:
        met = REGISTRY["where"](ungather(ones, index, dim, input.shape, "set") != 0, met, input)
    if reduce != "mean":
        return met
    counts = _counts(ones, input, dim, index, include_self)
    return met / counts if dtype_of(input).inexact else REGISTRY["floor_divide"](met, counts)


def _samples() -> list[Sample]:
    places = Operand((3, 5), 0, 4, category="int")
    return [
        Sample(
            (Operand((3, 4), category=kind), 1, places, Operand((3, 5), category=kind)),
            {"reduce": reduce, "include_self": own},
        )
        for reduce, kind in ((r, "float" if r == "mean" else "any") for r in _COMBINE)
        for own in (True, False)
    ] + [
        Sample((Operand(shape), 0, Operand(index, 0, 1, category="int"), Operand(src), "sum"))
        for shape, index, src in (
            ((), (), ()), ((0,), (0,), (0,)), ((1,), (3,), (4,)),
            ((17,), (3,), (3,)), ((33,), (1,), (2,)),
        )
    ]  # fmt: skip


scatter_reduce = define(
    "scatter_reduce",
    complex="analytic",
    operands=("input", "index", "src"),
    attrs=("dim", "reduce", "include_self"),
    bind=bind_scatter_reduce,
    infer=_infer,
    casts=source_casts,
    reference=_reduced,
    vjp=_vjp,
    saves=("input", "index", "src", "out"),
    lower=lowering.decomposition(_decomposed),
    traits=Traits(inplace=True, refuses=True),
    samples=_samples,
)
