"""The largest and smallest elements, and where they stand."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import bool_, int64, uint8
from ..errors import DTypeError
from ..op import REGISTRY, Traits, composite, define
from ..sample import Operand, Sample, sample
from ..shapes import dim_of, dims_of
from ..types import Shape, Type
from .compare import eq, isnan, logical_and, logical_or, where
from .create import ones_like
from .extremes import maximum, minimum
from .reduce import Dims, keep, not_empty, nothing, reduced, stages, sum


def share(g: Any, input: Any, out: Any, dim: Dims) -> Any:
    """Split g evenly among the elements of `input` that equal `out`, as NaN does NaN here.

    g and out have `dim` as ones.
    """
    winner = logical_or(eq(input, out), logical_and(isnan(input), isnan(out)))
    part = where(winner, g, 0.0)
    return part / sum(where(winner, ones_like(part), 0.0), dim=dim, keepdim=True)


def _extremum(name: str, ufunc: np.ufunc):
    """The record of amax or amin: at ties the gradient is shared evenly."""

    def bind(input, dim=(), keepdim=False):
        return (input,), {"dim": dims_of(name, dim, input.ndim), "keepdim": bool(keepdim)}

    def infer(input: Type, *, dim: Dims, keepdim: bool) -> Type:
        not_empty(name, input.shape, dim)
        return reduced(input, dim, keepdim)

    def build(k: Any, input: Any, *, dim: Dims, keepdim: bool) -> None:
        element, over, at = stages(k, input, dim, keepdim)
        if input.dtype is bool_:
            combine = k.any if name == "amax" else k.all
        else:
            combine = k.max if name == "amax" else k.min
        k.store(combine(element, over=over), at=at)

    def grad(g: Any, input: Any, out: Any, input_type: Type, dim: Dims, keepdim: bool) -> Any:
        shape = input_type.shape
        return share(keep(g, shape, dim, keepdim), input, keep(out, shape, dim, keepdim), dim)

    adjective = "largest" if name == "amax" else "smallest"
    return define(
        name,
        bind=bind,
        infer=infer,
        reference=lambda input, *, dim, keepdim: ufunc.reduce(input, axis=dim, keepdims=keepdim),
        grad=grad,
        lower=lowering.kernel(build),
        traits=Traits(in_order=True),
        samples=_extremum_samples,
        doc=f"""Find the {adjective} element over `dim` (an int, several, or (): all).  A NaN wins.

        Of 0.0 and -0.0 it may give either.
        Shapes: [..., n, ...] -> [...], or [..., 1, ...] with `keepdim`.  At ties the gradient is shared
        evenly.  Raises DimError and ShapeError where there is nothing to choose from.
        """,
    )


def _extremum_samples() -> list[Sample]:
    calls: list[tuple[Any, dict]] = [
        ((), {}), ((1,), {}), ((17,), {}), ((33,), {"dim": 0}), ((3, 17), {"dim": 1}), ((3, 17), {"dim": 0}),
        ((2, 3, 4), {"dim": (0, 2)}), ((2, 3, 4), {"dim": 1, "keepdim": True}), ((0, 3), {"dim": 1}),
    ]  # fmt: skip
    return [Sample((Operand(shape, distinct=True),), kwargs) for shape, kwargs in calls]


amax = _extremum("amax", np.maximum)
amin = _extremum("amin", np.minimum)


def _bind_pick(name: str):
    def bind(input, dim, keepdim=False):
        return (input,), {"dim": dim_of(name, dim, input.ndim), "keepdim": bool(keepdim)}

    return bind


def to_index(g: Any, indices: Any, shape: Shape, dim: int, keepdim: bool) -> Any:
    """Send the cotangent of values that were picked along `dim` back to where they came from."""
    if not shape:
        return g
    dims = (dim,)
    g, indices = keep(g, shape, dims, keepdim), keep(indices, shape, dims, keepdim)
    return REGISTRY["ungather"](g, indices, dim, shape)


def _extremum_dim(name: str, ufunc: np.ufunc):
    """The record of max or min along one dim, with indices: the gradient goes to the index chosen."""

    def infer(input: Type, *, dim: int, keepdim: bool) -> tuple[Type, Type]:
        not_empty(name, input.shape, (dim,) if input.ndim else ())
        return reduced(input, (dim,), keepdim), reduced(input, (dim,), keepdim, int64)

    def reference(input: Any, *, dim: int, keepdim: bool) -> tuple:
        if not input.ndim:
            return np.array(input), np.array(0)
        indices = (input.argmax if name == "max" else input.argmin)(dim, keepdims=keepdim)
        return ufunc.reduce(input, axis=dim, keepdims=keepdim), indices

    def build(k: Any, input: Any, *, dim: int, keepdim: bool) -> None:
        element, over, at = stages(k, input, (dim,) if input.shape else (), keepdim)
        ordered = k.cast(element, uint8) if input.dtype is bool_ else element
        value, index = (k.argmax if name == "max" else k.argmin)(ordered, over=over)
        k.store(value, at=at)
        k.store(index, at=at, output=1)

    return define(
        f"{name}_dim",
        bind=_bind_pick(name),
        infer=infer,
        reference=reference,
        grad=lambda g, indices, input_type, dim, keepdim: to_index(
            g, indices, input_type.shape, dim, keepdim
        ),
        outputs=("values", "indices"),
        lower=lowering.kernel(build),
        traits=Traits(in_order=True),
        samples=_pick_samples,
        method=False,
        doc=f"""Find the {name}imum along `dim` and where it stands: what `{name}(input, dim)` calls.

        Shapes: [..., n, ...] -> values and int64 indices [...], or [..., 1, ...] with `keepdim`.  A NaN wins;
        of equal elements the first.  The gradient goes to the element chosen.  Raises DimError.
        """,
    )


def _pick_samples() -> list[Sample]:
    calls: list[tuple[Any, dict]] = [
        ((), {"dim": 0}), ((1,), {"dim": 0}), ((17,), {"dim": 0}), ((33,), {"dim": 0, "keepdim": True}),
        ((3, 17), {"dim": 1}), ((17, 3), {"dim": 0}), ((0, 3), {"dim": 1}),
        ((2, 3, 4), {"dim": -2, "keepdim": True}),
    ]  # fmt: skip
    return [Sample((Operand(shape, distinct=True),), kwargs) for shape, kwargs in calls]


max_dim = _extremum_dim("max", np.maximum)
min_dim = _extremum_dim("min", np.minimum)


@composite(by_type=True)
def max(input, dim=None, keepdim=False, *, other=None):
    """Find the largest element: of all, along `dim` with indices, or of two tensors elementwise.

    max(input) -> a 0-d tensor, whose gradient is shared evenly at ties.  max(input, dim, keepdim) -> (values,
    indices), whose gradient goes to the index.  max(input, other) is maximum(input, other).  A NaN wins.
    Raises DimError and ShapeError where there is nothing to choose from.
    """
    return _choose(input, dim, keepdim, other, amax, max_dim, maximum)


@composite(by_type=True)
def min(input, dim=None, keepdim=False, *, other=None):
    """Find the smallest element: of all, along `dim` with indices, or of two tensors elementwise.

    min(input) -> a 0-d tensor, whose gradient is shared evenly at ties.  min(input, dim, keepdim) -> (values,
    indices), whose gradient goes to the index.  min(input, other) is minimum(input, other).  A NaN wins.
    Raises DimError and ShapeError where there is nothing to choose from.
    """
    return _choose(input, dim, keepdim, other, amin, min_dim, minimum)


def _choose(input: Any, dim: Any, keepdim: bool, other: Any, whole: Any, along: Any, elementwise: Any) -> Any:
    if other is not None or (hasattr(dim, "shape") and not isinstance(dim, np.integer)):
        return elementwise(input, dim if other is None else other)
    if dim is not None:
        return along(input, dim, keepdim)
    if 0 in input.shape:
        raise nothing(along.name.removesuffix("_dim"))
    return whole(input)


def _arg_extremum(name: str):
    """The record of argmax or argmin."""

    def bind(input, dim=None, keepdim=False):
        return (input,), {
            "dim": None if dim is None else dim_of(name, dim, input.ndim), "keepdim": bool(keepdim),
        }  # fmt: skip

    def infer(input: Type, *, dim: int | None, keepdim: bool) -> Type:
        if input.dtype is bool_:
            raise DTypeError(f"{name}: bools have no order", "convert them first: x.int()")
        dims = tuple(range(input.ndim)) if dim is None or not input.ndim else (dim,)
        not_empty(name, input.shape, dims)
        return reduced(input, dims, keepdim, int64)

    def reference(input: Any, *, dim: int | None, keepdim: bool) -> Any:
        if not input.ndim:
            return np.array(0)
        return (input.argmax if name == "argmax" else input.argmin)(dim, keepdims=keepdim)

    def build(k: Any, input: Any, *, dim: int | None, keepdim: bool) -> None:
        dims = tuple(range(len(input.shape))) if dim is None or not input.shape else (dim,)
        element, over, at = stages(k, input, dims, keepdim)
        k.store((k.argmax if name == "argmax" else k.argmin)(element, over=over)[1], at=at)

    def samples() -> list[Sample]:
        whole = [sample(s) for s in ((), (17,), (3, 4))] + [sample((3, 4), keepdim=True)]
        return whole + _pick_samples()

    return define(
        name,
        bind=bind,
        infer=infer,
        reference=reference,
        lower=lowering.kernel(build),
        samples=samples,
        dtypes="number",
        doc=f"""Find where the {name[3:]}imum stands along `dim` (None: in all elements, counted row by row).

        Shapes: [..., n, ...] -> int64 [...], or [..., 1, ...] with `keepdim`.  A NaN wins; of equal elements
        the first.  Raises DimError and ShapeError where there is nothing to choose from, DTypeError for
        bools.
        """,
    )


argmax = _arg_extremum("argmax")
argmin = _arg_extremum("argmin")
