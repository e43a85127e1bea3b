"""Joining tensors, and padding one with constants or with its own elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..dtypes import promote
from ..errors import ArgumentError, ArgumentValueError, DeviceError, DTypeError, ShapeError
from ..op import Traits, composite, define
from ..sample import Operand, Sample, sample
from ..shapes import broadcast_shapes, common_device, dim_of, result_dtype
from ..types import Type, type_of
from ..warned import warn
from .cast import cast, dtype_of
from .create import fits, zeros
from .rearrange import flip
from .view import expand, narrow, reshape, select, unsqueeze


def _promoted(*types: Type, **_: Any) -> tuple:
    return (result_dtype(*types),) * len(types)


def _several(op: str, tensors: Any) -> tuple:
    if not isinstance(tensors, (tuple, list)):
        raise ArgumentError(
            f"{op}(): tensors must be tuple of Tensors, not {type(tensors).__name__}",
            f"write {op}([a, b])",
        )
    if not tensors:
        raise ArgumentValueError(f"{op}(tensors): needs at least one tensor")
    return tuple(tensors)


def bind_cat(tensors, dim=0, *, axis=None):
    """Join tensors along a dimension that they have.  Element types are promoted.

    Shapes: [..., n1, ...], [..., n2, ...] -> [..., n1 + n2, ...].  Empty 1-d tensors are left out,
    whatever the dimensions of the others, but for their element types.  Raises ShapeError, DimError.
    """
    tensors = _several("cat", tensors)
    kept = tuple(t for t in tensors if t.ndim != 1 or t.shape[0] != 0) or tensors[:1]
    if len(kept) < len(tensors) and (dtypes := {dtype_of(t) for t in tensors}) > {dtype_of(t) for t in kept}:
        kept = (cast(kept[0], dtype=reduce(promote, dtypes)), *kept[1:])
    if not kept[0].ndim:
        raise ShapeError("cat(tensors): a 0-d tensor can't be joined", "stack(tensors) does")
    nothing = kept[0].ndim == 1 and kept[0].shape[0] == 0  # empty ones are joined along any dimension
    dim = 0 if nothing else dim_of("cat", dim if axis is None else axis, kept[0].ndim)
    for t in kept:
        if t.ndim != kept[0].ndim:
            raise ShapeError(f"cat(tensors): {kept[0].ndim} and {t.ndim} dimensions can't be joined")
    return kept, {"dim": dim, "sizes": tuple(t.shape[dim] for t in kept)}


def _infer_cat(*tensors: Type, dim: int, sizes: tuple) -> Type:
    first = tensors[0]
    for t in tensors[1:]:
        for d, (m, n) in enumerate(zip(first.shape, t.shape, strict=True)):
            if d != dim and not same(m, n):
                raise ShapeError(
                    f"cat(tensors, dim={dim}): Sizes of tensors must match except in dimension {dim}: "
                    f"{m} and {n} "
                    f"in dimension {d}"
                )
    shape = (*first.shape[:dim], sum(sizes), *first.shape[dim + 1 :])
    return type_of(result_dtype(*tensors), shape, common_device("cat", *tensors))


def _starts(sizes: Sequence) -> list:
    starts = [0]
    for n in sizes:
        starts.append(starts[-1] + n)
    return starts[:-1]


def _vjp_cat(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    (g,), dim, sizes = cotangents, attrs["dim"], attrs["sizes"]
    parts = zip(_starts(sizes), sizes, needs, strict=True)
    return tuple(narrow(g, dim, start, n) if need else None for start, n, need in parts)


def _build_cat(k: Any, *tensors: Any, dim: int, sizes: tuple) -> None:
    """One store for each operand: at the same points where all have one size, so that what makes them there
    is one kernel with it; else along a local axis of its own size.
    """
    shape = tensors[0].shape
    if all(n == sizes[0] for n in sizes):  # for all sizes: where that is open, each has its own axis
        axes = k.parallel(*shape)
        for t, start in zip(tensors, _starts(sizes), strict=True):
            k.store(t[axes], at=(*axes[:dim], axes[dim] + start, *axes[dim + 1 :]))
        return
    axes = k.parallel(*shape[:dim], *shape[dim + 1 :])
    before, after = axes[:dim], axes[dim:]
    for t, start, n in zip(tensors, _starts(sizes), sizes, strict=True):
        (r,) = k.axes(n)
        k.store(t[(*before, r, *after)], at=(*before, r + start, *after), over=(r,))


def _group(*shapes: tuple[int, ...]) -> tuple[Operand, ...]:
    return tuple(map(Operand, shapes))


def _joined_samples(*cases: tuple) -> Callable[[], list[Sample]]:
    return lambda: [Sample((_group(*shapes),), {"dim": dim}) for *shapes, dim in cases]


def _joined(tensors: Sequence[np.ndarray], dim: int) -> np.ndarray:
    """The arrays joined, row by row in memory: NumPy keeps the order of transposed ones."""
    out = np.concatenate(tensors, dim)
    return out if out.flags.c_contiguous else np.ascontiguousarray(out)


cat = define(
    "cat",
    complex="analytic",
    operands=("*tensors",),
    attrs=("dim", "sizes"),
    bind=bind_cat,
    infer=_infer_cat,
    casts=_promoted,
    reference=lambda *tensors, dim, sizes: _joined(tensors, dim),
    vjp=_vjp_cat,
    lower=lowering.kernel(_build_cat),
    traits=Traits(movement=True),
    aliases=("concat", "concatenate"),
    method=False,
    samples=_joined_samples(
        ((0,), 0), ((1,), (3,), 0), ((17,), (33,), (2,), 0), ((33,), 0), ((3, 17), (3, 2), 1),
        ((2, 0, 3), (2, 4, 3), -2),
    ),
    inapplicable={"0-d": "a 0-d tensor can't be joined"},
)  # fmt: skip


def bind_stack(tensors, dim=0):
    """Join tensors of one shape along a new dimension.  Element types are promoted.

    Shapes: k times [m, n] -> [k, m, n].  Raises ShapeError, DimError.
    """
    tensors = _several("stack", tensors)
    return tensors, {"dim": dim_of("stack", dim, tensors[0].ndim + 1)}


def _infer_stack(*tensors: Type, dim: int) -> Type:
    shape = tensors[0].shape
    for t in tensors[1:]:
        if len(t.shape) != len(shape) or not all(map(same, t.shape, shape)):
            raise ShapeError(f"stack(tensors): shapes must be equal, not {list(shape)} and {list(t.shape)}")
    shape = (*shape[:dim], len(tensors), *shape[dim:])
    return type_of(result_dtype(*tensors), shape, common_device("stack", *tensors))


def _stacked(*tensors: np.ndarray, dim: int) -> np.ndarray:
    shape = tensors[0].shape
    thin = (*shape[:dim], 1, *shape[dim:])
    return _joined([t.reshape(thin) for t in tensors], dim)


def _vjp_stack(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    return tuple(select(cotangents[0], attrs["dim"], i) if need else None for i, need in enumerate(needs))


def _build_stack(k: Any, *tensors: Any, dim: int) -> None:
    axes = k.parallel(*tensors[0].shape)
    for i, t in enumerate(tensors):
        k.store(t[axes], at=(*axes[:dim], i, *axes[dim:]))


stack = define(
    "stack",
    complex="analytic",
    operands=("*tensors",),
    attrs=("dim",),
    bind=bind_stack,
    infer=_infer_stack,
    casts=_promoted,
    reference=_stacked,
    vjp=_vjp_stack,
    lower=lowering.kernel(_build_stack),
    traits=Traits(movement=True),
    method=False,
    samples=_joined_samples(
        ((), (), 0), ((0,), (0,), 1), ((1,), 0), ((17,), (17,), (17,), -1), ((33,), (33,), 0),
        ((3, 17), (3, 17), 1),
    ),
)  # fmt: skip


# Compositions


@composite()
def atleast_1d(*tensors):
    """Give a 0-d tensor one dimension.  Several tensors, or a list of them, come back as a tuple."""
    return _each(tensors, lambda x: x if x.ndim else reshape(x, (1,)))


@composite()
def atleast_2d(*tensors):
    """Add dimensions in front until there are two.  Several tensors come back as a tuple."""
    return _each(tensors, lambda x: x if x.ndim >= 2 else reshape(x, (1, *(x.shape or (1,)))))


@composite()
def atleast_3d(*tensors):
    """Add dimensions until there are three: [n] -> [1, n, 1], [m, n] -> [m, n, 1].  Several give a tuple."""
    return _each(tensors, _with_three)


def _with_three(x: Any) -> Any:
    if x.ndim >= 3:
        return x
    return unsqueeze(x, 2) if x.ndim == 2 else reshape(x, (1, *(x.shape or (1,)), 1))


def _each(tensors: tuple, function: Callable) -> Any:
    if len(tensors) == 1 and not isinstance(tensors[0], (tuple, list)):
        return function(tensors[0])
    return tuple(map(function, tensors[0] if len(tensors) == 1 else tensors))


@composite(method=False)
def hstack(tensors):
    """Join along the columns (along the elements of one dimension)."""
    tensors = [atleast_1d(t) for t in _several("hstack", tensors)]
    return cat(tensors, 0 if tensors[0].ndim == 1 else 1)


@composite(method=False, aliases=("row_stack",))
def vstack(tensors):
    """Join along the rows; one dimension counts as one row."""
    return cat([atleast_2d(t) for t in _several("vstack", tensors)], 0)


@composite(method=False)
def dstack(tensors):
    """Join along the third dimension."""
    return cat([atleast_3d(t) for t in _several("dstack", tensors)], 2)


@composite(method=False)
def column_stack(tensors):
    """Join along the columns; one dimension counts as one column."""
    return hstack([reshape(t, (-1, 1)) if t.ndim <= 1 else t for t in _several("column_stack", tensors)])


@composite(method=False)
def broadcast_tensors(*tensors):
    """Expand tensors to their common shape.  Raises ShapeError."""
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    shape = broadcast_shapes("broadcast_tensors", *(t.shape for t in tensors))
    return tuple(expand(t, shape) for t in tensors)


@composite(method=False)
def meshgrid(*tensors, indexing=None):
    """Expand 1-d coordinates to grids, one of shape [n1, n2, ...] for each; indexing="xy": [n2, n1, ...].

    Without `indexing` it is "ij", with a warning.
    """
    if indexing is None:
        warn(
            "meshgrid: in an upcoming release of PyTorch, it will be required to pass the indexing argument",
            UserWarning,
            stacklevel=3,
        )
        indexing = "ij"
    tensors = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if indexing not in ("ij", "xy"):
        raise ArgumentValueError(f'meshgrid: indexing must be one of "xy" or "ij", not {indexing!r}')
    if not tensors:
        raise ArgumentValueError("meshgrid(*tensors): expects a non-empty TensorList")
    if any(t.ndim > 1 for t in tensors):
        raise ShapeError("meshgrid(*tensors): Expected 0D or 1D tensors, of at most one dimension")
    if len({dtype_of(t) for t in tensors}) > 1:
        raise DTypeError("meshgrid(*tensors): expects all tensors to have the same dtype")
    if len({t.device for t in tensors}) > 1:
        places = ", ".join(dict.fromkeys(str(t.device) for t in tensors))
        raise DeviceError(
            "meshgrid(*tensors): expects all tensors to have the same device", f"they are on {places}"
        )
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    sizes = [t.shape[0] if t.ndim else 1 for t in tensors]
    shape = tuple(sizes[i] for i in order)
    thin = [tuple(-1 if j == i else 1 for j in order) for i in range(len(tensors))]
    return tuple(expand(reshape(t, s), shape) for t, s in zip(tensors, thin, strict=True))


@composite(method=False)
def cartesian_prod(*tensors):
    """Give all combinations of 1-d tensors' elements as rows, the last element changing fastest."""
    if any(t.ndim != 1 for t in tensors):
        raise ShapeError("cartesian_prod(*tensors): takes tensors of one dimension")
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape(grid, (-1,)) for grid in meshgrid(*tensors, indexing="ij")], -1)


@composite(method=False)
def block_diag(*tensors):
    """Put matrices along the diagonal of one matrix of zeros.  Fewer dimensions count as a row."""
    blocks = [atleast_2d(t) for t in tensors]
    if any(b.ndim > 2 for b in blocks):
        raise ShapeError("block_diag(*tensors): takes tensors of at most two dimensions")
    if not blocks:
        return zeros((1, 0))
    width, start, rows = sum(b.shape[1] for b in blocks), 0, []
    for b in blocks:
        rows.append(constant_pad(b, ((0, 0), (start, width - start - b.shape[1])), 0))
        start = start + b.shape[1]
    return cat(rows, 0)


# Padding


def bind_constant_pad(input, pads, value=0):
    """Add `value` around the elements: pads[d] is (before, after) for dimension d; negative ones cut off.

    Raises ShapeError where more is cut off than is there.
    """
    pads = tuple((a, b) for a, b in pads)
    for d, (a, b) in enumerate(pads):
        if isinstance(input.shape[d], int) and input.shape[d] + a + b < 0:
            raise ShapeError(
                f"pad: {(a, b)} leaves less than nothing of dimension {d} with size {input.shape[d]}"
            )
    return (input,), {"pads": pads, "value": value}


def _padded_shape(shape: tuple, pads: tuple) -> tuple:
    return tuple(a + n + b for n, (a, b) in zip(shape, pads, strict=True))


def _infer_constant_pad(input: Type, *, pads: tuple, value: Any) -> Type:
    fits("pad", value, input.dtype)
    return input.with_shape(_padded_shape(input.shape, pads))


def _constant_pad(input: np.ndarray, *, pads: tuple, value: Any) -> np.ndarray:
    out = np.full(_padded_shape(input.shape, pads), value, input.dtype)
    inside = tuple(np.s_[max(a, 0) : max(a + n, 0)] for n, (a, _) in zip(input.shape, pads, strict=True))
    region = out[(*inside, ...)]
    kept = tuple(np.s_[max(-a, 0) : max(-a, 0) + m] for m, (a, _) in zip(region.shape, pads, strict=True))
    region[...] = input[kept]
    return out


def _build_constant_pad(k: Any, input: Any, *, pads: tuple, value: Any) -> None:
    axes = k.parallel(*_padded_shape(input.shape, pads))
    places = (axis - a for axis, (a, _) in zip(axes, pads, strict=True))
    k.store(input.at(*places, outside=value), at=axes)


constant_pad = define(
    "constant_pad",
    complex="analytic",
    bind=bind_constant_pad,
    infer=_infer_constant_pad,
    reference=_constant_pad,
    grad=lambda g, pads: constant_pad(g, tuple((-a, -b) for a, b in pads), 0),
    lower=lowering.kernel(_build_constant_pad),
    traits=Traits(movement=True),
    method=False,
    samples=lambda: [
        sample((), pads=()), sample((0,), pads=((1, 2),)), sample((1,), pads=((0, 3),)),
        sample((17,), pads=((-2, 1),)), sample((33,), pads=((-30, -1),)),
        sample((3, 17), pads=((1, 0), (2, -3)), value=1), sample((2,), pads=((-3, 4),)),
    ],
)  # fmt: skip


@composite(method=False, fresh=True)
def pad(input, pad, mode="constant", value=None):
    """Pad dimensions from the last on: `pad` is (before, after) of the last, then of the one before it, ...

    mode: "constant" (with `value`, 0 if None), "reflect" (mirrored, without the edge itself), "replicate"
    (the edge repeated) or "circular".  Negative numbers cut off.  Raises ArgumentValueError, ShapeError.
    """
    widths = tuple(pad)
    if len(widths) % 2 or len(widths) > 2 * input.ndim:
        raise ShapeError(
            f"pad: {len(widths)} numbers for {input.ndim} dimensions",
            "it takes two for each dimension padded",
        )
    pads = [(0, 0)] * (input.ndim - len(widths) // 2)
    pads += [(widths[i], widths[i + 1]) for i in range(len(widths) - 2, -2, -2)]
    if mode == "constant":
        return constant_pad(input, tuple(pads), 0 if value is None else value)
    if mode not in _BORDERS:
        raise ArgumentValueError(f"pad: mode must be one of {['constant', *_BORDERS]}, not {mode!r}")
    if value is not None and value != 0:
        raise ArgumentValueError(f"pad: mode {mode!r} takes no value, but got {value}")
    if mode == "replicate" and min(widths) < 0:  # the edges that count are those before anything is cut off
        for d, (a, b) in enumerate(pads):
            if (a, b) != (0, 0):
                n = input.shape[d]
                places = [min(max(i, 0), n - 1) for i in range(-a, n + b)]
                input = input[(*(_ALL for _ in range(d)), places)]
        return input
    x = constant_pad(input, tuple((min(a, 0), min(b, 0)) for a, b in pads), 0) if min(widths) < 0 else input
    for d, (a, b) in enumerate(pads):
        if a > 0 or b > 0:
            x = cat(_BORDERS[mode](x, d, max(a, 0), max(b, 0)), d)
    return x


padded = pad  # which is the name of an argument below


@composite(method=False)
def constant_pad_nd(input, pad, value=0):
    """Pad with a number: pad(input, pad, "constant", value), under its other name."""
    return padded(input, pad, "constant", value)


_ALL = slice(None)


def _limit(x: Any, dim: int, most: int, widths: tuple[int, int], mode: str) -> None:
    if max(widths) > most:
        raise ShapeError(
            f"pad: Padding size should be less than the corresponding input dimension: mode {mode!r} "
            "takes at "
            f"most {most} places of dimension {dim}, not {max(widths)}"
        )


def _reflected(x: Any, d: int, a: int, b: int) -> list:
    n = x.shape[d]
    _limit(x, d, n - 1, (a, b), "reflect")
    return [flip(narrow(x, d, 1, a), (d,)), x, flip(narrow(x, d, n - 1 - b, b), (d,))]


def _replicated(x: Any, d: int, a: int, b: int) -> list:
    n, shape = x.shape[d], x.shape
    if not n and not (a or b):
        return [x]
    if not n:
        raise ShapeError(f"pad: dimension {d} has size 0 and no edge to replicate")
    edges = (narrow(x, d, 0, 1), a), (narrow(x, d, n - 1, 1), b)
    first, last = (expand(edge, (*shape[:d], k, *shape[d + 1 :])) for edge, k in edges)
    return [first, x, last]


def _wrapped(x: Any, d: int, a: int, b: int) -> list:
    n = x.shape[d]
    _limit(x, d, n, (a, b), "circular")
    return [narrow(x, d, n - a, a), x, narrow(x, d, 0, b)]


_BORDERS = {"reflect": _reflected, "replicate": _replicated, "circular": _wrapped}
