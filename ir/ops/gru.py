"""A layer of a GRU: its steps over a whole sequence are one op, and so are those back."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import lowering
from ..op import define
from ..recur import order, recur
from ..sample import sample
from ..types import Type
from .cells import parts, sigmoid_of, total
from .create import zeros_like
from .join import cat
from .math import sigmoid, tanh
from .matmul import linear
from .recurrent import LAYER_SIZES, before, check_layer, in_time, rows_together, times, weight_and_bias


def bind_gru_layer(projected, h, weight, bias=None, *, back=False):
    """Run a GRU over a sequence whose inputs' share of the gates is known.

    Of step t, projected[t] holds ri, zi, ni side by side, and h @ weight.T + bias holds rh, zh, nh:
    r = sigmoid(ri + rh), z = sigmoid(zi + zh), n = tanh(ni + r * nh) and h' = (1 - z) * n + z * h.
    Shapes: [t, b, 3 * h], [b, h], [3 * h, h], [3 * h] -> all h' [t, b, h].
    back: begin with the last element.  Raises ShapeError, DTypeError.
    Source: Cho et al., 2014, with the reset gate after the product.
    """
    return (projected, h, weight, bias), {"back": bool(back)}


def infer_gru_layer(projected: Type, h: Type, weight: Type, bias: Type | None, *, back: bool):
    check_layer("gru_layer", 3, projected, weight, bias, h=h)
    states = h.with_shape((projected.shape[0], *h.shape))
    return states, projected, states


def gru_layer_reference(projected, h, weight, bias, *, back):
    gates = projected.copy()
    output = np.empty((len(gates), *h.shape), gates.dtype)
    candidates, size = np.empty_like(output), h.shape[-1]
    for t in times(gates, back):
        now, out = gates[t], output[t]
        hidden = h @ weight.T
        if bias is not None:
            hidden += bias
        candidates[t] = hidden[:, 2 * size :]
        r, z, n = parts(now, 3)
        rz = now[:, : 2 * size]
        rz += hidden[:, : 2 * size]
        sigmoid_of(rz)
        n += r * candidates[t]
        np.tanh(n, out=n)
        np.subtract(h, n, out=out)
        out *= z
        out += n
        h = out
    return output, gates, candidates


def _step(elements: tuple, states: tuple, fixed: tuple) -> tuple:
    (h,) = states
    ri, zi, ni = parts(elements[0], 3)
    rh, zh, candidate = parts(linear(h, *fixed), 3)
    r, z = sigmoid(ri + rh), sigmoid(zi + zh)
    n = tanh(ni + r * candidate)
    return (n + z * (h - n),), (cat([r, z, n], -1), candidate)


def gru_layer_by_steps(projected, h, weight, bias, *, back, split=True):
    rows = rows_together(h, weight, split)
    return recur(_step, (projected,), (h,), (weight, bias), (True,), back, rows)


def vjp_gru_layer(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    h, weight, output, gates, candidates = saved
    to_output, to_gates, to_candidates = (*cotangents, None, None)[:3]  # of hidden outputs: may be left out
    states = before(output, h, attrs["back"])
    to_projected, to_hidden, to_h = gru_layer_backward(
        to_output, to_gates, to_candidates, weight, states, gates, candidates, **attrs
    )
    return (to_projected, to_h, *weight_and_bias(to_hidden, output, h, attrs["back"], needs[2], needs[3]))


gru_layer = define(
    "gru_layer",
    bind=bind_gru_layer,
    operands=("projected", "h", "weight", "bias"),
    optional=("bias",),
    attrs=("back",),
    infer=infer_gru_layer,
    reference=gru_layer_reference,
    outputs=("output",),
    hidden=("gates", "candidates"),
    vjp=vjp_gru_layer,
    saves=("h", "weight", "output", "gates", "candidates"),
    lower=lowering.decomposition(gru_layer_by_steps, partial(gru_layer_by_steps, split=False)),
    samples=lambda: [
        sample((1, 2, 3), (2, 1), (3, 1)),
        sample((3, 2, 9), (2, 3), (9, 3), (9,), back=True),
        sample((5, 0, 6), (0, 2), (6, 2), (6,)),
        sample((4, 17, 99), (17, 33), (99, 33), (99,)),
        sample((2, 45, 9), (45, 3), (9, 3), back=True),  # in two blocks of rows
    ],
    inapplicable=LAYER_SIZES,
    dtypes="float",
    method=False,
)


# ---- the way back


def bind_gru_layer_backward(
    to_output, to_gates, to_candidates, weight, states, gates, candidates, *, back=False
):
    """Take the cotangents of what a GRU's layer gave back through its steps.

    to_output, to_candidates [t, b, h], to_gates [t, b, 3 * h]: None where there is none.  states: those that
    steps began with.  Gives the cotangents of projected, of all products with the hidden weight, and of h.
    """
    return (to_output, to_gates, to_candidates, weight, states, gates, candidates), {"back": bool(back)}


def infer_gru_layer_backward(
    to_output: Type | None,
    to_gates: Type | None,
    to_candidates: Type | None,
    weight: Type,
    states: Type,
    gates: Type,
    candidates: Type,
    *,
    back: bool,
):
    h = states.with_shape(states.shape[1:])
    check_layer("gru_layer_backward", 3, gates, weight, None, h=h)
    return gates, gates, h


def _slopes(gates: Any) -> tuple:
    """The gates, and what the functions behind them vary by."""
    r, z, n = parts(gates, 3)
    return (r, z, n), (r * (1.0 - r), z * (1.0 - z), 1.0 - n * n)


def _inner(to_h: Any, own: tuple, gates: tuple, slopes: tuple, candidate: Any, h: Any) -> tuple:
    """The cotangents of r, z and n, before their slopes."""
    r, z, n = gates
    of_n = total(to_h * (1.0 - z), own[2])
    return total(of_n * slopes[2] * candidate, own[0]), total(to_h * (h - n), own[1]), of_n


def _back(elements: dict, to_h: Any, weight: Any) -> tuple:
    """One step back: the cotangents of projected, of the product with the weight, and of the state before."""
    to_h = total(to_h, elements.get("to_output"))
    gates, slopes = _slopes(elements["gates"])
    own = parts(elements["to_gates"], 3) if "to_gates" in elements else (None,) * 3
    inner = _inner(to_h, own, gates, slopes, elements["candidates"], elements["states"])
    of_r, of_z, of_n = (x * slope for x, slope in zip(inner, slopes))
    of_candidate = total(of_n * gates[0], elements.get("to_candidates"))
    to_hidden = cat([of_r, of_z, of_candidate], -1)
    return cat([of_r, of_z, of_n], -1), to_hidden, to_hidden @ weight + to_h * gates[1]


def gru_layer_backward_reference(
    to_output, to_gates, to_candidates, weight, states, gates, candidates, *, back
):
    given = {"to_output": to_output, "to_gates": to_gates, "to_candidates": to_candidates}
    given |= {"states": states, "gates": gates, "candidates": candidates}
    given = {name: x for name, x in given.items() if x is not None}
    to_projected, to_hidden = np.empty_like(gates), np.empty_like(gates)
    to_h = np.zeros_like(states[0])
    for t in times(gates, not back):
        to_projected[t], to_hidden[t], to_h = _back({name: x[t] for name, x in given.items()}, to_h, weight)
    return to_projected, to_hidden, to_h


def gru_layer_backward_by_steps(
    to_output, to_gates, to_candidates, weight, states, gates, candidates, *, back, split=True
):
    given = {"to_output": to_output, "to_gates": to_gates, "to_candidates": to_candidates}
    given |= {"states": states, "gates": gates, "candidates": candidates}
    names = [name for name, x in given.items() if x is not None]

    def step(elements: tuple, carried: tuple, fixed: tuple) -> tuple:
        now, hidden, to_h = _back(dict(zip(names, elements, strict=True)), carried[0], fixed[0])
        return (to_h,), (now, hidden)

    zeros, sequences = zeros_like(states[0]), tuple([given[name] for name in names])
    rows = rows_together(zeros, weight, split)
    to_h, to_projected, to_hidden = recur(step, sequences, (zeros,), (weight,), (False,), not back, rows)
    return to_projected, to_hidden, to_h


def vjp_gru_layer_backward(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """By steps, twice: what they had on the way back, and then the cotangents of that, forward in time.

    Written with ops, so that it has gradients of its own; the length must be a number.
    """
    to_output, to_gates, to_candidates, weight, states, gates, candidates = saved
    of_projected, of_hidden, of_h = cotangents
    of_h = zeros_like(states[0]) if of_h is None else of_h
    every = order(int(gates.shape[0]), attrs["back"])
    to_h, had = zeros_like(states[0]), {}
    for t in reversed(every):
        to_h = total(to_h, None if to_output is None else to_output[t])
        (r, z, n), slopes = _slopes(gates[t])
        own = (None,) * 3 if to_gates is None else parts(to_gates[t], 3)
        inner = _inner(to_h, own, (r, z, n), slopes, candidates[t], states[t])
        of_r, of_z, of_n = (x * slope for x, slope in zip(inner, slopes))
        of_candidate = total(of_n * r, None if to_candidates is None else to_candidates[t])
        hidden = cat([of_r, of_z, of_candidate], -1)
        had[t] = to_h, (r, z, n), slopes, inner, of_n, hidden
        to_h = hidden @ weight + to_h * z
    names = ("to_output", "to_gates", "to_candidates", "states", "gates", "candidates")
    found: dict[str, dict[int, Any]] = {name: {} for name in names}
    of_weight = None
    for t in every:
        to_h, (r, z, n), slopes, inner, of_n, hidden = had[t]
        h, candidate = states[t], candidates[t]
        of_weight = total(of_weight, hidden.mT @ of_h)
        from_hidden = parts(total(of_h @ weight.mT, None if of_hidden is None else of_hidden[t]), 3)
        of_gates = from_hidden[0], from_hidden[1], from_hidden[2] * r
        if of_projected is not None:
            of_gates = tuple([x + y for x, y in zip(of_gates, parts(of_projected[t], 3))])
        outer_r, outer_z = of_gates[0] * slopes[0], of_gates[1] * slopes[1]
        at_n = of_gates[2] + outer_r * candidate
        outer_n = at_n * slopes[2]
        found["to_gates"][t] = cat([outer_r, outer_z, outer_n], -1)
        found["to_candidates"][t] = from_hidden[2]
        found["candidates"][t] = outer_r * of_n
        found["states"][t] = outer_z * to_h
        found["gates"][t] = cat(
            [
                of_gates[0] * inner[0] * (1.0 - 2.0 * r) + from_hidden[2] * of_n,
                of_gates[1] * inner[1] * (1.0 - 2.0 * z) - outer_n * to_h + of_h * to_h,
                -2.0 * n * at_n * inner[2] - outer_z * to_h,
            ],
            -1,
        )
        of_h = outer_z * (h - n) + outer_n * (1.0 - z) + of_h * z
        found["to_output"][t] = of_h
    whole = {name: in_time(each) for name, each in found.items()}
    return (
        None if to_output is None else whole["to_output"],
        None if to_gates is None else whole["to_gates"],
        None if to_candidates is None else whole["to_candidates"],
        of_weight,
        whole["states"],
        whole["gates"],
        whole["candidates"],
    )


gru_layer_backward = define(
    "gru_layer_backward",
    bind=bind_gru_layer_backward,
    operands=("to_output", "to_gates", "to_candidates", "weight", "states", "gates", "candidates"),
    optional=("to_output", "to_gates", "to_candidates"),
    attrs=("back",),
    infer=infer_gru_layer_backward,
    reference=gru_layer_backward_reference,
    outputs=("to_projected", "to_hidden", "to_h"),
    vjp=vjp_gru_layer_backward,
    saves=("to_output", "to_gates", "to_candidates", "weight", "states", "gates", "candidates"),
    lower=lowering.decomposition(
        gru_layer_backward_by_steps, partial(gru_layer_backward_by_steps, split=False)
    ),
    samples=lambda: [
        sample((1, 2, 1), (1, 2, 3), (1, 2, 1), (3, 1), (1, 2, 1), (1, 2, 3), (1, 2, 1)),
        sample((3, 2, 3), None, None, (9, 3), (3, 2, 3), (3, 2, 9), (3, 2, 3), back=True),
        sample(None, (5, 0, 6), None, (6, 2), (5, 0, 2), (5, 0, 6), (5, 0, 2)),
        sample((4, 17, 33), None, None, (99, 33), (4, 17, 33), (4, 17, 99), (4, 17, 33)),
        sample((2, 45, 3), None, None, (9, 3), (2, 45, 3), (2, 45, 9), (2, 45, 3)),
    ],
    inapplicable=LAYER_SIZES,
    dtypes="float",
    method=False,
)
