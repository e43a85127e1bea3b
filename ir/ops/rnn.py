"""A layer of a plain recurrent network: its steps over a whole sequence are one op, and so are those back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import lowering
from ..errors import ArgumentValueError
from ..op import define
from ..recur import order, recur
from ..sample import Operand, sample
from ..types import Type
from .activation import relu
from .cells import total
from .compare import gt, where
from .create import zeros_like
from .math import tanh
from .matmul import linear
from .recurrent import LAYER_SIZES, check_layer, in_time, rows_together, times, weight_and_bias

FUNCTIONS: dict[str, tuple[Callable, Callable]] = {
    "tanh": (np.tanh, tanh),
    "relu": (lambda x: np.maximum(x, 0), relu),
}


def _attrs(nonlinearity: str, back: bool) -> dict:
    if nonlinearity not in FUNCTIONS:
        raise ArgumentValueError(f"rnn_layer: nonlinearity is 'tanh' or 'relu', not {nonlinearity!r}")
    return {"nonlinearity": nonlinearity, "back": bool(back)}


def bind_rnn_layer(projected, h, weight, bias=None, *, nonlinearity="tanh", back=False):
    """Run a plain recurrent network over a sequence whose inputs' share is known.

    h' = tanh(projected[t] + h @ weight.T + bias), or relu for tanh.
    Shapes: [t, b, h], [b, h], [h, h], [h] -> all h' [t, b, h].
    back: begin with the last element.  Raises ShapeError, DTypeError, ArgumentValueError.
    Source: Elman, 1990.
    """
    return (projected, h, weight, bias), _attrs(nonlinearity, back)


def infer_rnn_layer(
    projected: Type, h: Type, weight: Type, bias: Type | None, *, nonlinearity: str, back: bool
) -> Type:
    check_layer("rnn_layer", 1, projected, weight, bias, h=h)
    return projected


def rnn_layer_reference(projected, h, weight, bias, *, nonlinearity, back):
    output = projected.copy() if bias is None else projected + bias
    function = FUNCTIONS[nonlinearity][0]
    for t in times(output, back):
        output[t] += h @ weight.T
        output[t] = h = function(output[t])
    return output


def rnn_layer_by_steps(projected, h, weight, bias, *, nonlinearity, back, split=True):
    function = FUNCTIONS[nonlinearity][1]

    def step(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        return (function(elements[0] + linear(states[0], *fixed)),), ()

    rows = rows_together(h, weight, split)
    return recur(step, (projected,), (h,), (weight, bias), (True,), back, rows)[0]


def vjp_rnn_layer(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    h, weight, output = saved
    to_projected, to_h = rnn_layer_backward(cotangents[0], weight, output, **attrs)
    own = weight_and_bias(to_projected, output, h, attrs["back"], needs[2], needs[3])
    return (to_projected, to_h, *own)


rnn_layer = define(
    "rnn_layer",
    bind=bind_rnn_layer,
    operands=("projected", "h", "weight", "bias"),
    optional=("bias",),
    attrs=("nonlinearity", "back"),
    infer=infer_rnn_layer,
    reference=rnn_layer_reference,
    outputs=("output",),
    vjp=vjp_rnn_layer,
    saves=("h", "weight", "output"),
    lower=lowering.decomposition(rnn_layer_by_steps, partial(rnn_layer_by_steps, split=False)),
    samples=lambda: [
        sample((1, 2, 1), (2, 1), (1, 1)),
        sample((3, 2, 3), (2, 3), (3, 3), (3,), back=True),
        sample((3, 2, 3), (2, 3), (3, 3), (3,), nonlinearity="relu"),
        sample((5, 0, 2), (0, 2), (2, 2), (2,)),
        sample((4, 17, 33), (17, 33), (33, 33), (33,)),
        sample((2, 45, 3), (45, 3), (3, 3), back=True),  # in two blocks of rows
    ],
    inapplicable=LAYER_SIZES,
    dtypes="float",
    method=False,
)


# ---- the way back


def bind_rnn_layer_backward(to_output, weight, output, *, nonlinearity="tanh", back=False):
    """Take the cotangent of what a plain recurrent layer gave back through its steps.

    Shapes: [t, b, h], [h, h], [t, b, h] -> the cotangents of projected [t, b, h] and h [b, h].
    """
    return (to_output, weight, output), _attrs(nonlinearity, back)


def infer_rnn_layer_backward(to_output: Type, weight: Type, output: Type, *, nonlinearity: str, back: bool):
    h = output.with_shape(output.shape[1:])
    check_layer("rnn_layer_backward", 1, output, weight, None, h=h)
    return output, h


def _slope(cotangent: Any, output: Any, nonlinearity: str) -> Any:
    """The cotangent of what the function was applied to."""
    if nonlinearity == "relu":
        return where(gt(output, 0), cotangent, 0.0)
    return cotangent * (1.0 - output * output)


def rnn_layer_backward_reference(to_output, weight, output, *, nonlinearity, back):
    to_projected = np.empty_like(output)
    to_h = np.zeros_like(output[0])
    for t in times(output, not back):
        to_projected[t] = _slope(to_h + to_output[t], output[t], nonlinearity)
        to_h = to_projected[t] @ weight
    return to_projected, to_h


def rnn_layer_backward_by_steps(to_output, weight, output, *, nonlinearity, back, split=True):
    def step(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        now = _slope(states[0] + elements[0], elements[1], nonlinearity)
        return (now @ fixed[0],), (now,)

    zeros = zeros_like(output[0])
    rows = rows_together(zeros, weight, split)
    to_h, to_projected = recur(step, (to_output, output), (zeros,), (weight,), (False,), not back, rows)
    return to_projected, to_h


def vjp_rnn_layer_backward(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """By steps, twice: what they had on the way back, and then the cotangents of that, forward in time.

    Written with ops, so that it has gradients of its own; the length must be a number.
    """
    to_output, weight, output = saved
    of_projected, of_h = cotangents
    of_h = zeros_like(output[0]) if of_h is None else of_h
    how = attrs["nonlinearity"]
    every = order(int(output.shape[0]), attrs["back"])
    to_h, had = zeros_like(output[0]), {}
    for t in reversed(every):
        to_h = to_h + to_output[t]
        now = _slope(to_h, output[t], how)
        had[t] = to_h, now
        to_h = now @ weight
    of_weight = None
    to_outputs, outputs = dict[int, Any](), dict[int, Any]()
    for t in every:
        to_h, now = had[t]
        of_weight = total(of_weight, now.mT @ of_h)
        of_now = total(of_h @ weight.mT, None if of_projected is None else of_projected[t])
        outputs[t] = of_now * to_h * (-2.0 * output[t]) if how == "tanh" else zeros_like(of_now)
        to_outputs[t] = of_h = _slope(of_now, output[t], how)
    return in_time(to_outputs), of_weight, in_time(outputs)


rnn_layer_backward = define(
    "rnn_layer_backward",
    bind=bind_rnn_layer_backward,
    operands=("to_output", "weight", "output"),
    attrs=("nonlinearity", "back"),
    infer=infer_rnn_layer_backward,
    reference=rnn_layer_backward_reference,
    outputs=("to_projected", "to_h"),
    vjp=vjp_rnn_layer_backward,
    saves=("to_output", "weight", "output"),
    lower=lowering.decomposition(
        rnn_layer_backward_by_steps, partial(rnn_layer_backward_by_steps, split=False)
    ),
    samples=lambda: [
        sample((1, 2, 1), (1, 1), (1, 2, 1)),
        sample((3, 2, 3), (3, 3), (3, 2, 3), back=True),
        sample((3, 2, 3), (3, 3), Operand((3, 2, 3), away_from=(0.0,)), nonlinearity="relu"),
        sample((5, 0, 2), (2, 2), (5, 0, 2)),
        sample((4, 17, 33), (33, 33), (4, 17, 33)),
        sample((2, 45, 3), (3, 3), (2, 45, 3)),
    ],
    inapplicable=LAYER_SIZES,
    dtypes="float",
    method=False,
)
