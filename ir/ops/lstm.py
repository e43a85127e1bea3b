"""A layer of an LSTM: its steps over a whole sequence are one op, and so are those back."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import lowering
from ..op import define
from ..recur import order, recur
from ..sample import sample
from ..types import Type
from .cells import arrays_vjp_lstm_gates, parts, sigmoid_of, total, vjp_lstm_gates
from .create import zeros_like
from .join import cat
from .math import sigmoid, tanh
from .matmul import linear
from .recurrent import LAYER_SIZES, after, before, check_layer, in_time, rows_together, times, weight_and_bias


def bind_lstm_layer(projected, h, c, weight, bias=None, *, back=False):
    """Run an LSTM over a sequence whose inputs' share of the gates is known.

    Step t takes the gates projected[t] + h @ weight.T + bias, side by side as i, f, g, o, and gives the state
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g) and h' = sigmoid(o) * tanh(c') to the next.
    Shapes: [t, b, 4 * h], [b, h], [b, h], [4 * h, h], [4 * h] -> all h' [t, b, h], all c' [t, b, h].
    back: begin with the last element.  Raises ShapeError, DTypeError.
    Source: Hochreiter and Schmidhuber, 1997; Gers et al., 2000.
    """
    return (projected, h, c, weight, bias), {"back": bool(back)}


def infer_lstm_layer(projected: Type, h: Type, c: Type, weight: Type, bias: Type | None, *, back: bool):
    check_layer("lstm_layer", 4, projected, weight, bias, h=h, c=c)
    states = h.with_shape((projected.shape[0], *h.shape))
    return states, states, projected


def lstm_layer_reference(projected, h, c, weight, bias, *, back):
    gates = projected.copy() if bias is None else projected + bias
    output = np.empty((len(gates), *h.shape), gates.dtype)
    cells = np.empty_like(output)
    for t in times(gates, back):
        now, new = gates[t], cells[t]
        now += h @ weight.T
        i, f, g, o = parts(now, 4)
        squashed = np.tanh(g)
        sigmoid_of(now)  # all of it at once, and g again over it: fewer calls
        g[...] = squashed
        np.multiply(f, c, out=new)
        new += i * g
        h, c = np.tanh(new, out=output[t]), new
        h *= o
    return output, cells, gates


def _step(elements: tuple, states: tuple, fixed: tuple) -> tuple:
    hidden = linear(states[0], *fixed)
    gates = elements[0] + hidden  # with the product; what follows is one kernel
    i, f, g, o = parts(gates, 4)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    new = f * states[1] + i * g
    return (o * tanh(new), new), (cat([i, f, g, o], -1),)


def lstm_layer_by_steps(projected, h, c, weight, bias, *, back, split=True):
    rows = rows_together(h, weight, split)
    return recur(_step, (projected,), (h, c), (weight, bias), (True, True), back, rows)


def vjp_lstm_layer(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    h, c, weight, output, cells, gates = saved
    back = attrs["back"]
    to_output, to_cells, to_gates = (*cotangents, None)[:3]  # the hidden output's may be left out
    to_projected, to_h, to_c = lstm_layer_backward(
        to_output, to_cells, to_gates, c, weight, cells, gates, back=back
    )
    return (to_projected, to_h, to_c, *weight_and_bias(to_projected, output, h, back, needs[3], needs[4]))


lstm_layer = define(
    "lstm_layer",
    bind=bind_lstm_layer,
    operands=("projected", "h", "c", "weight", "bias"),
    optional=("bias",),
    attrs=("back",),
    infer=infer_lstm_layer,
    reference=lstm_layer_reference,
    outputs=("output", "cells"),
    hidden=("gates",),
    vjp=vjp_lstm_layer,
    saves=("h", "c", "weight", "output", "cells", "gates"),
    lower=lowering.decomposition(lstm_layer_by_steps, partial(lstm_layer_by_steps, split=False)),
    samples=lambda: [
        sample((1, 2, 4), (2, 1), (2, 1), (4, 1)),
        sample((3, 2, 12), (2, 3), (2, 3), (12, 3), (12,), back=True),
        sample((5, 0, 8), (0, 2), (0, 2), (8, 2), (8,)),
        sample((4, 17, 132), (17, 33), (17, 33), (132, 33), (132,)),
        sample((2, 45, 12), (45, 3), (45, 3), (12, 3), back=True),  # in two blocks of rows
    ],
    inapplicable=LAYER_SIZES,
    dtypes="float",
    method=False,
)


# ---- the way back


def bind_lstm_layer_backward(to_output, to_cells, to_gates, c, weight, cells, gates, *, back=False):
    """Take the cotangents of what an LSTM's layer gave back through its steps.

    to_output, to_cells [t, b, h], to_gates [t, b, 4 * h]: None where there is none.  c, weight: as the layer
    had them; cells, gates: as it gave them.  Gives the cotangents of projected, h and c.
    """
    return (to_output, to_cells, to_gates, c, weight, cells, gates), {"back": bool(back)}


def infer_lstm_layer_backward(
    to_output: Type | None,
    to_cells: Type | None,
    to_gates: Type | None,
    c: Type,
    weight: Type,
    cells: Type,
    gates: Type,
    *,
    back: bool,
):
    check_layer("lstm_layer_backward", 4, gates, weight, None, c=c)
    return gates, c, c


def lstm_layer_backward_reference(to_output, to_cells, to_gates, c, weight, cells, gates, *, back):
    to_projected = np.empty_like(gates)
    to_h = np.zeros_like(c)
    to_c = np.zeros_like(c)
    found = times(gates, back)
    for n in range(len(found))[::-1]:
        t = found[n]
        if to_output is not None:
            to_h = to_h + to_output[t]
        if to_cells is not None:
            to_c = to_c + to_cells[t]
        earlier = cells[found[n - 1]] if n else c
        now, _, to_c = arrays_vjp_lstm_gates((earlier, cells[t], gates[t]), to_h, to_c)
        if to_gates is not None:
            i, f, g, o = parts(gates[t], 4)
            slope = np.concatenate([i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)], -1)
            now += to_gates[t] * slope
        to_projected[t] = now
        to_h = now @ weight
    return to_projected, to_h, to_c


def lstm_layer_backward_by_steps(to_output, to_cells, to_gates, c, weight, cells, gates, *, back, split=True):
    given = {"to_output": to_output, "to_cells": to_cells, "to_gates": to_gates}
    given |= {"before": before(cells, c, back), "cells": cells, "gates": gates}
    names = [name for name, x in given.items() if x is not None]

    def step(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        at = dict(zip(names, elements, strict=True))
        to_h, to_c = total(states[0], at.get("to_output")), total(states[1], at.get("to_cells"))
        now, _, earlier = vjp_lstm_gates(
            (at["before"], at["cells"], at["gates"]),
            (to_h, to_c, at.get("to_gates")),
            {},
            (True, False, True),
        )
        return (now @ fixed[0], earlier), (now,)

    zeros, sequences = zeros_like(c), tuple([given[name] for name in names])
    rows = rows_together(c, weight, split)
    to_h, to_c, to_projected = recur(
        step, sequences, (zeros, zeros), (weight,), (False, False), not back, rows
    )
    return to_projected, to_h, to_c


def vjp_lstm_layer_backward(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """By steps, twice: what they had on the way back, and then the cotangents of that, forward in time.

    Written with ops, so that it has gradients of its own; the length must be a number.
    """
    to_output, to_cells, to_gates, c, weight, cells, gates = saved
    of_projected, of_h, of_c = cotangents
    of_h = zeros_like(c) if of_h is None else of_h
    of_c = zeros_like(c) if of_c is None else of_c
    earlier = before(cells, c, attrs["back"])
    every = order(int(gates.shape[0]), attrs["back"])
    to_h, to_c = zeros_like(c), zeros_like(c)
    had = {}
    for t in reversed(every):
        i, f, g, o = parts(gates[t], 4)
        squashed = tanh(cells[t])
        to_h = total(to_h, None if to_output is None else to_output[t])
        to_c = total(to_c, None if to_cells is None else to_cells[t])
        through = to_c + to_h * o * (1.0 - squashed * squashed)
        own = (None,) * 4 if to_gates is None else parts(to_gates[t], 4)
        inner = (  # of the gates, before their slopes
            total(through * g, own[0]),
            total(through * earlier[t], own[1]),
            total(through * i, own[2]),
            total(to_h * squashed, own[3]),
        )
        slopes = i * (1.0 - i), f * (1.0 - f), 1.0 - g * g, o * (1.0 - o)
        now = cat([x * slope for x, slope in zip(inner, slopes)], -1)
        had[t] = (i, f, g, o), squashed, to_h, through, inner, slopes, now
        to_h, to_c = now @ weight, through * f
    found: dict[str, dict[int, Any]] = {
        name: {} for name in ("to_output", "to_cells", "to_gates", "cells", "gates", "earlier")
    }
    of_weight = None
    for t in every:
        (i, f, g, o), squashed, to_h, through, inner, slopes, now = had[t]
        of_weight = total(of_weight, now.mT @ of_h)
        of_now = of_h @ weight.mT
        of_now = of_now if of_projected is None else of_now + of_projected[t]
        outer = parts(of_now, 4)
        own = [x * slope for x, slope in zip(outer, slopes)]
        of_through = own[0] * g + own[1] * earlier[t] + own[2] * i + of_c * f
        bend = 1.0 - squashed * squashed
        of_to_h = own[3] * squashed + of_through * o * bend
        of_squashed = own[3] * to_h - 2.0 * squashed * of_through * to_h * o
        found["to_output"][t], found["to_cells"][t] = of_to_h, of_through
        found["to_gates"][t] = cat(own, -1)
        found["cells"][t] = of_squashed * bend
        found["earlier"][t] = own[1] * through
        found["gates"][t] = cat(
            [
                outer[0] * inner[0] * (1.0 - 2.0 * i) + own[2] * through,
                outer[1] * inner[1] * (1.0 - 2.0 * f) + of_c * through,
                own[0] * through - 2.0 * g * outer[2] * inner[2],
                outer[3] * inner[3] * (1.0 - 2.0 * o) + of_through * to_h * bend,
            ],
            -1,
        )
        of_h, of_c = of_to_h, of_through
    of_cells, of_first = after(in_time(found["earlier"]), attrs["back"])
    whole = {name: in_time(each) for name, each in found.items()}
    return (
        None if to_output is None else whole["to_output"],
        None if to_cells is None else whole["to_cells"],
        None if to_gates is None else whole["to_gates"],
        of_first,
        of_weight,
        whole["cells"] + of_cells,
        whole["gates"],
    )


lstm_layer_backward = define(
    "lstm_layer_backward",
    bind=bind_lstm_layer_backward,
    operands=("to_output", "to_cells", "to_gates", "c", "weight", "cells", "gates"),
    optional=("to_output", "to_cells", "to_gates"),
    attrs=("back",),
    infer=infer_lstm_layer_backward,
    reference=lstm_layer_backward_reference,
    outputs=("to_projected", "to_h", "to_c"),
    vjp=vjp_lstm_layer_backward,
    saves=("to_output", "to_cells", "to_gates", "c", "weight", "cells", "gates"),
    lower=lowering.decomposition(
        lstm_layer_backward_by_steps, partial(lstm_layer_backward_by_steps, split=False)
    ),
    samples=lambda: [
        sample((1, 2, 1), (1, 2, 1), (1, 2, 4), (2, 1), (4, 1), (1, 2, 1), (1, 2, 4)),
        sample((3, 2, 3), None, None, (2, 3), (12, 3), (3, 2, 3), (3, 2, 12), back=True),
        sample((5, 0, 2), (5, 0, 2), None, (0, 2), (8, 2), (5, 0, 2), (5, 0, 8)),
        sample((4, 17, 33), (4, 17, 33), None, (17, 33), (132, 33), (4, 17, 33), (4, 17, 132)),
        sample((2, 45, 3), None, (2, 45, 12), (45, 3), (12, 3), (2, 45, 3), (2, 45, 12)),
    ],
    inapplicable=LAYER_SIZES,
    dtypes="float",
    method=False,
)
