"""cross_entropy over class indices as one op, and its gradient as another: training calls them at every step.

With p = softmax(x) over the classes, the loss of a sample is  L = A lse(x) - sum_c a_c x_c,  A = sum_c a_c,
where a is what the target asks of each class:  a_c = (1 - s) w_t [c = t] + s w_c / C  for smoothing s and
weights w, and 0 in all for a target to ignore.  So  dL/dx_c = A p_c - a_c.

The sum lse(x) = high + rest is never made: beside a great `high`, the greatest x, it would round off what p
is made of.  So  p = exp((x - high) - rest).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..dtypes import int64
from ..errors import ArgumentValueError, DimError, DTypeError, GradError, ShapeError
from ..op import REGISTRY, Traits, define
from ..sample import Operand, sample
from ..types import Type, type_of
from .compare import eq, ne, where
from .create import ones_like
from .extremum import amax
from .kept_arrays import ones, row_numbers
from .math import exp, log
from .reduce import sum
from .view import reshape, unsqueeze

REDUCTIONS = ("none", "mean", "sum")


def class_dim(input: Any) -> int:
    """The dim of the classes: [C], [N, C] or [N, C, d1, ...]."""
    return 0 if input.ndim == 1 else 1


def check_reduction(op: str, reduction: str) -> str:
    """Raises ArgumentValueError for a word that is no reduction."""
    if reduction not in REDUCTIONS:
        raise ArgumentValueError(f"{op}: reduction must be one of {', '.join(REDUCTIONS)}, not {reduction!r}")
    return reduction


def bind_softmax_cross_entropy(
    input, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0
):
    """Compute -log softmax(input)[target] for class indices: what cross_entropy calls.

    Shapes: input [C], [N, C] or [N, C, d1, ...] of logits, target the same without C of ints, weight [C] ->
    [] or, with reduction "none", as target.  "mean" divides by the weights of the targets that are not
    `ignore_index`.  Raises ShapeError, DTypeError, and DimError for a target outside [0, C).
    """
    if not 0.0 <= label_smoothing <= 1.0:
        raise ArgumentValueError(
            f"cross_entropy: label_smoothing must be between 0.0 and 1.0, not {label_smoothing}"
        )
    return (input, target, weight), {
        "ignore_index": int(ignore_index),
        "reduction": check_reduction("cross_entropy", reduction),
        "label_smoothing": float(label_smoothing),
    }


def check_classes(op: str, input: Type, target: Type, weight: Type | None) -> None:
    """Raises ShapeError and DTypeError for logits, class indices and weights that don't belong together."""
    if not input.ndim:
        raise ShapeError(f"{op}: the scores need a dimension of classes")
    if not input.dtype.is_floating_point or target.dtype.category != "int":
        raise DTypeError(
            f"{op}: takes floating scores and integer classes, or probabilities of the scores' shape"
        )
    dim = class_dim(input)
    wanted = input.shape[:dim] + input.shape[dim + 1 :]
    if target.ndim != len(wanted) or not all(same(a, b) for a, b in zip(target.shape, wanted)):
        raise ShapeError(
            f"{op}: {'1D target tensor expected, ' if input.ndim == 2 else ''}target must have the "
            "shape of input "
            "without its classes",
            f"{list(wanted)}, as the classes are dimension {dim} of {list(input.shape)}",
        )
    if weight is not None and (weight.ndim != 1 or not same(weight.shape[0], input.shape[dim])):
        raise ShapeError(
            f"{op}: weight tensor should be defined either for all {input.shape[dim]} classes or no classes, "
            f"not {list(weight.shape)}"
        )


def _infer(
    input: Type, target: Type, weight: Type | None, *, ignore_index, reduction, label_smoothing
) -> tuple:
    check_classes("cross_entropy", input, target, weight)
    out = type_of(input.dtype, target.shape if reduction == "none" else (), input.device)
    sample = type_of(input.dtype.compute, target.shape, input.device)
    return out, sample, sample, sample.with_shape(())


def _casts(input: Type, target: Type, weight: Type | None, **_: Any) -> tuple:
    return input.dtype, int64, input.dtype


def check_range(op: str, target: np.ndarray, classes: int, ignore_index: int) -> bool:
    """Whether any target is `ignore_index`.  Raises DimError for another one outside [0, classes)."""
    # As unsigned, a negative number is a huge one: one pass finds both kinds of stray.
    if not target.size or np.maximum.reduce(target.view(np.uint64), axis=None) < classes:
        return 0 <= ignore_index < classes and bool((target == ignore_index).any())
    stray = target[(target.view(np.uint64) >= classes) & (target != ignore_index)]
    if stray.size:
        raise DimError(
            f"{op}: target {stray[0]} is out of range for {classes} classes",
            f"targets lie in [0, {classes - 1}], or are ignore_index={ignore_index}",
        )
    return True


def _reference(input, target, weight, *, ignore_index: int, reduction: str, label_smoothing: float) -> tuple:
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    ignored = check_range("cross_entropy", target, classes, ignore_index)
    if ignored:
        kept = target != ignore_index
        target = np.where(kept, target, 0)
    high = np.maximum.reduce(input, axis=dim, keepdims=True, initial=-inf)
    distance = input - high
    rest = np.log(np.add.reduce(np.exp(distance), axis=dim))
    if input.ndim == 2:
        picked = distance[np.arange(len(target)), target]
    else:
        picked = np.take_along_axis(distance, np.expand_dims(target, dim), dim).reshape(target.shape)
    losses = rest - picked
    count: Any = target.size
    if weight is not None:
        chosen = weight[target]
        losses = losses * chosen
        count = np.add.reduce(np.where(kept, chosen, 0) if ignored else chosen, axis=None)
    elif ignored:
        count = np.count_nonzero(kept)
    if label_smoothing:
        row = weight if weight is None else weight.reshape((-1,) + (1,) * (input.ndim - 1 - dim))
        spread = distance if row is None else distance * row
        whole = classes if row is None else np.add.reduce(weight)
        smooth = rest * whole - np.add.reduce(spread, axis=dim)
        losses = (1 - label_smoothing) * losses + (label_smoothing / classes) * smooth
    if ignored:
        losses = np.where(kept, losses, 0)
    total = np.asarray(count, input.dtype)
    if reduction != "none":
        losses = np.add.reduce(losses, axis=None)
        if reduction == "mean":
            losses = losses / total
    return losses, high.reshape(rest.shape), rest, total


def _is_common(types: tuple, attrs: dict) -> bool:
    """Whether these are a small batch of scores and classes, with no weights and no smoothing."""
    input, target, weight = types[:3]
    plain = weight is None and not attrs["label_smoothing"] and attrs["reduction"] in ("mean", "sum")
    return plain and input.ndim == 2 and input.small and 0 < input.size <= 4096 and target.dtype is int64


def _quick(types: tuple, attrs: dict) -> Callable | None:
    """The reference with half the NumPy calls, for small batches without an ignored target."""
    if not _is_common(types, attrs):
        return None
    rows, classes = types[0].shape
    dtype = types[0].dtype.numpy
    total, first = np.asarray(rows, dtype), np.arange(rows) * classes
    row = row_numbers(rows, classes)  # a gathered column costs half of a broadcast one
    # Sums as products with ones: a reduction along an axis costs NumPy three times as much.
    across, down = ones(classes, dtype), ones(rows, dtype)
    if attrs["reduction"] == "mean":
        down = down / rows
    allowed = frozenset(range(classes))

    def quick(input, target, weight):
        if not allowed.issuperset(target.tolist()):
            return tuple(np.asarray(x, dtype) for x in _reference(input, target, weight, **attrs))
        high = np.maximum.reduce(input, 1)
        distance = input - high.take(row)
        rest = np.log(np.exp(distance).dot(across))
        loss = (rest - distance.ravel().take(first + target)).dot(down)
        return np.asarray(loss), high, rest, total

    return quick if not 0 <= attrs["ignore_index"] < classes else None


def _quick_grad(types: tuple, attrs: dict) -> tuple | None:
    if not _is_common(types, attrs):
        return None
    rows, classes = types[0].shape
    hot, mean = np.eye(classes, dtype=types[0].dtype.numpy), attrs["reduction"] == "mean"
    row = row_numbers(rows, classes)  # a gathered column costs half of a broadcast one

    def quick(g, saved):
        input, target, weight, high, rest, total = saved
        if total.item() != rows:  # some target was ignored
            return _grad_reference(g, *saved, **attrs, subtract=True)
        out = input - high.take(row)
        out -= rest.take(row)
        np.exp(out, out)
        out -= hot.take(target, 0)
        out *= g / total if mean else g
        return out

    return (quick, None, None) if classes <= 64 else None


def _decomposition(
    input: Any, target: Any, weight: Any, *, ignore_index, reduction, label_smoothing
) -> tuple:
    """Its outputs with other ops."""
    dim, gather = class_dim(input), REGISTRY["gather"]
    kept = ne(target, ignore_index)
    safe = where(kept, target, 0)
    highest = sum if same(input.shape[dim], 0) else amax  # which refuses to choose of nothing
    high = highest(input, dim, keepdim=True)
    distance = input - high
    high, rest = reshape(high, target.shape), log(sum(exp(distance), dim))
    losses = rest - (reshape(gather(input, dim, unsqueeze(safe, dim)), target.shape) - high)
    total = sum(kept)
    if weight is not None:
        chosen = where(kept, reshape(gather(weight, 0, reshape(safe, (-1,))), target.shape), 0.0)
        losses, total = losses * chosen, sum(chosen)
    if label_smoothing:
        smooth = unsqueeze(rest, dim) - distance
        if weight is not None:
            smooth = smooth * reshape(weight, (-1,) + (1,) * (input.ndim - 1 - dim))
        share = label_smoothing / input.shape[dim]
        losses = losses * (1 - label_smoothing) + sum(smooth, dim) * share
    losses = where(kept, losses, 0.0)
    if reduction == "none":
        return losses, high, rest, total
    return sum(losses) / total if reduction == "mean" else sum(losses), high, rest, total


def _vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    input, target, weight, high, rest, total = saved
    # Hidden outputs may be left out.  Only their sum counts, so `high` is as good as a constant.
    g, _, to_rest = (*cotangents, None, None)[:3]
    if needs[2]:
        raise GradError("cross_entropy: the weight of the classes has no gradient", "pass weight.detach()")
    if not needs[0]:
        return None, None, None
    to_input = None
    if g is not None:
        to_input = softmax_cross_entropy_grad(g, input, target, weight, high, rest, total, **attrs)
    if to_rest is not None:
        dim = class_dim(input)
        more = unsqueeze(to_rest, dim) * exp((input - unsqueeze(high, dim)) - unsqueeze(rest, dim))
        to_input = more if to_input is None else to_input + more
    return to_input, None, None


def _classes(shape: tuple, high: int) -> Operand:
    return Operand(shape, low=0, high=high, category="int")


def _loss_samples() -> list:
    weight = Operand((3,), low=1, high=4, category="int")  # weights and totals have no gradient
    return [
        sample((17,), _classes((), 17)),
        sample((1, 1), _classes((1,), 1)),
        sample((3, 33), _classes((3,), 33), reduction="sum"),
        sample((5, 3), _classes((5,), 3), weight, label_smoothing=0.2),
        sample((5, 3), _classes((5,), 3), ignore_index=1, reduction="none"),
        sample((5, 3), _classes((5,), 3), ignore_index=2, label_smoothing=0.3),
        sample((2, 3, 4), _classes((2, 4), 3), weight, ignore_index=0, label_smoothing=0.1),
        sample((0, 3), _classes((0,), 3), reduction="sum"),
    ]


softmax_cross_entropy = define(
    "softmax_cross_entropy",
    bind=bind_softmax_cross_entropy,
    infer=_infer,
    casts=_casts,
    reference=_reference,
    optional=("weight",),
    hidden=("high", "rest", "total"),
    quick=_quick,
    quick_grad=_quick_grad,
    vjp=_vjp,
    saves=("input", "target", "weight", "high", "rest", "total"),
    lower=lowering.decomposition(_decomposition),
    traits=Traits(refuses=True),
    samples=_loss_samples,
    inapplicable={"broadcast": "shapes belong together"},
    method=False,
    dtypes="float",
)


# The gradient, as an op


def bind_softmax_cross_entropy_grad(
    g, input, target, weight, high, rest, total, ignore_index, reduction, label_smoothing, subtract=True
):
    """Compute the gradient of softmax_cross_entropy to its input, scale_n (A_n p_nc - a_nc).

    g is the cotangent of the loss; `scale` is g, over `total` for reduction "mean".  Without `subtract` it is
    scale_n A_n p_nc, which the second derivative needs.
    """
    return (g, input, target, weight, high, rest, total), {
        "ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing,
        "subtract": subtract,
    }  # fmt: skip


def _infer_grad(
    g: Type, input: Type, target: Type, weight: Type | None, high: Type, rest: Type, total: Type, **_: Any
) -> Type:
    check_classes("softmax_cross_entropy_grad", input, target, weight)
    return input


def _grad_reference(
    g, input, target, weight, high, rest, total, *, ignore_index, reduction, label_smoothing, subtract
) -> Any:
    dim = 0 if input.ndim == 1 else 1
    s, classes = label_smoothing, input.shape[dim]
    row = (*input.shape[:dim], 1, *input.shape[dim + 1 :])  # the shape of one number a sample
    kept = target != ignore_index
    ignored = not np.logical_and.reduce(kept, axis=None)
    if ignored:
        target = np.where(kept, target, 0)
    out = np.exp((input - high.reshape(row)) - rest.reshape(row))
    asked: Any = 1 - s
    if weight is not None:
        weights = weight.reshape((-1,) + (1,) * (input.ndim - 1 - dim))
        chosen = weight[target].reshape(row)
        asked = chosen * (1 - s)
        out *= asked + np.add.reduce(weight) * (s / classes) if s else chosen
    if subtract:
        if s:
            out -= s / classes if weight is None else weights * (s / classes)
        if input.ndim == 2:
            out[np.arange(len(target)), target] -= asked if weight is None else asked[:, 0]
        else:
            at = target.reshape(row)
            np.put_along_axis(out, at, np.take_along_axis(out, at, dim) - asked, dim)
    scale = g / total if reduction == "mean" else g
    if reduction == "none":
        scale = scale.reshape(row)
    if not ignored:
        out *= scale
        return out
    return np.where(kept.reshape(row), out * scale, 0)  # where, as an ignored sample may hold inf


def _build_grad(
    k: Any, g, input, target, weight, high, rest, total, *, ignore_index, reduction, label_smoothing, subtract
) -> None:
    dim, s = class_dim(input), label_smoothing
    classes = input.shape[dim]
    at = k.parallel(*input.shape)
    c, n = at[dim], at[:dim] + at[dim + 1 :]
    kept = ne(target[n], ignore_index)
    safe = where(kept, target[n], 0)
    chosen = asked = 1.0
    if weight is not None:
        chosen = asked = weight[safe]
        if s:
            (every,) = k.axes(classes)
            asked = chosen * (1 - s) + k.sum(weight[every], over=(every,)) * (s / classes)
    value = exp((input[at] - high[n]) - rest[n]) * asked
    if subtract:
        value = value - where(eq(k.coordinate(c), safe), chosen * (1 - s), 0.0)
        if s:
            value = value - (s / classes if weight is None else weight[c] * (s / classes))
    scale = g[n] if reduction == "none" else g[()] / total[()] if reduction == "mean" else g[()]
    k.store(where(kept, value * scale, 0.0), at=at)


def _grad_vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """To g: <u, the gradient for g = 1>.  To input: u * (scale A p).  To high and to rest: minus its sum."""
    g, input, target, weight, high, rest, total = saved
    (u,) = cotangents
    dim = class_dim(input)
    to_g = to_input = to_sum = None
    if needs[0]:
        unit = u * softmax_cross_entropy_grad(ones_like(g), input, target, weight, high, rest, total, **attrs)
        to_g = sum(unit, dim) if attrs["reduction"] == "none" else sum(unit)
    if needs[1] or needs[4] or needs[5]:
        flat = attrs | {"subtract": False}
        to_input = u * softmax_cross_entropy_grad(g, input, target, weight, high, rest, total, **flat)
        to_sum = -sum(to_input, dim)
    given = (to_g, to_input, None, None, to_sum, to_sum, None)
    return tuple(x if need else None for x, need in zip(given, needs, strict=True))


def _grad_samples() -> list:
    weight, total = (Operand(shape, low=1, high=4, category="int") for shape in ((3,), ()))
    plain: dict[str, Any] = {"ignore_index": -100, "label_smoothing": 0.0}
    skip: dict[str, Any] = {"ignore_index": 1, "label_smoothing": 0.0}
    return [
        sample((), (17,), _classes((), 17), None, (), (), total, **plain, reduction="mean"),
        sample((), (3, 33), _classes((3,), 33), None, (3,), (3,), total, **plain, reduction="sum"),
        sample((5,), (5, 3), _classes((5,), 3), None, (5,), (5,), total, **skip, reduction="none"),
        sample(
            (), (2, 3, 4), _classes((2, 4), 3), weight, (2, 4), (2, 4), total,
            ignore_index=0, label_smoothing=0.1, reduction="mean",
        ),
        sample(
            (1,), (1, 3), _classes((1,), 3), None, (1,), (1,), total,
            **plain, reduction="none", subtract=False,
        ),
        sample((0,), (0, 3), _classes((0,), 3), None, (0,), (0,), total, **plain, reduction="none"),
    ]  # fmt: skip


softmax_cross_entropy_grad = define(
    "softmax_cross_entropy_grad",
    bind=bind_softmax_cross_entropy_grad,
    infer=_infer_grad,
    casts=lambda g, input, *_, **attrs: (
        input.dtype.compute, input.dtype, int64, input.dtype, *[input.dtype.compute] * 3
    ),
    reference=_grad_reference,
    optional=("weight",),
    vjp=_grad_vjp,
    saves=("g", "input", "target", "weight", "high", "rest", "total"),
    lower=lowering.kernel(_build_grad),
    traits=Traits(refuses=True),
    samples=_grad_samples,
    inapplicable={"broadcast": "shapes belong together"},
    method=False,
    dtypes="float",
)  # fmt: skip
