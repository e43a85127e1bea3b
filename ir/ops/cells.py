"""Steps of recurrent networks.  What follows the matrix products is one op for each kind of cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..errors import DTypeError, ShapeError
from ..op import composite, define
from ..sample import sample
from ..types import Type
from .activation import relu
from .join import cat
from .math import sigmoid, tanh
from .matmul import linear


def check_gates(op: str, count: int, state: str, **types: Type) -> Type:
    """The state's type.  Raises ShapeError, DTypeError unless the others hold `count` gates for it."""
    kept = types[state]
    for name, t in types.items():
        if t.dtype is not kept.dtype or not t.dtype.is_floating_point:
            raise DTypeError(
                f"{op}: operands of one floating dtype are needed, not {t.dtype.name} and {kept.dtype.name}"
            )
        wanted = (
            kept.shape if name == state else (*kept.shape[:-1], kept.shape[-1:] and kept.shape[-1] * count)
        )
        if not kept.ndim or t.ndim != kept.ndim or not all(map(same, t.shape, wanted)):
            raise ShapeError(f"{op}: {name} must be [..., {count} * h], and {state} [..., h]")
    return kept


def parts(x: Any, count: int) -> tuple:
    """The `count` equal parts of the last dimension."""
    n = x.shape[-1] // count
    return tuple(x[..., i * n : (i + 1) * n] for i in range(count))


def total(*terms: Any) -> Any:
    """The sum of the terms there are, or None."""
    found = None
    for term in terms:
        if term is not None:
            found = term if found is None else found + term
    return found


def times(g: Any, factor: Any) -> Any:
    return None if g is None else g * factor


def joined(terms: list, shape_of: Any) -> Any:
    """Cotangents side by side, zeros for those that are None."""
    return cat([shape_of * 0.0 if term is None else term for term in terms], dim=-1)


def sigmoid_of(x: np.ndarray) -> None:
    """Put 1 / (1 + exp(-x)) in place of x."""
    # Not np.negative: NumPy 2.4.6 errs where an operand's step is 4 elements of 4 bytes, or 8 of 8, and the
    # result's is more than one (seen where it has AVX2 and not AVX-512).
    np.multiply(x, -1, out=x)
    np.exp(x, out=x)
    x += 1
    np.reciprocal(x, out=x)


# ---- LSTM


def bind_lstm_gates(input_gates, hidden_gates, c):
    """Let the gates of an LSTM act: what follows its two matrix products.

    The sum of the first two holds the pre-activations of the gates i, f, g, o, side by side:
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g) and h' = sigmoid(o) * tanh(c').
    Shapes: [..., 4 * h], [..., 4 * h], [..., h] -> h' [..., h], c' [..., h].  Raises ShapeError, DTypeError.
    Source: Hochreiter and Schmidhuber, 1997; Gers et al., 2000.
    """
    return (input_gates, hidden_gates, c), {}


def infer_lstm_gates(input_gates: Type, hidden_gates: Type, c: Type) -> tuple[Type, ...]:
    check_gates("lstm_gates", 4, "c", input_gates=input_gates, hidden_gates=hidden_gates, c=c)
    return c, c, input_gates


def lstm_gates_reference(input_gates, hidden_gates, c):
    gates = input_gates + hidden_gates
    i, f, g, o = parts(gates, 4)
    squashed = np.tanh(g)
    sigmoid_of(gates)  # all of it at once, and g again over it: fewer calls
    g[...] = squashed
    new = f * c
    new += i * g
    h = np.tanh(new)
    h *= o
    return h, new, gates


def arrays_vjp_lstm_gates(saved: tuple, to_h: Any, to_new: Any) -> tuple:
    """The same on arrays, all gates at once: a third of the calls, which are what small ones cost."""
    c, new, gates = saved
    n = c.shape[-1]
    i, f, g, o = (gates[..., q * n : (q + 1) * n] for q in range(4))
    before = np.subtract(1, gates)
    before *= gates
    to_i, to_f, to_g, to_o = (before[..., q * n : (q + 1) * n] for q in range(4))
    np.multiply(g, g, out=to_g)
    np.subtract(1, to_g, out=to_g)
    through = to_new
    if to_h is not None:
        squashed = np.tanh(new)
        to_o *= to_h
        to_o *= squashed
        squashed *= squashed
        through = np.subtract(1, squashed, out=squashed)
        through *= o
        through *= to_h
        if to_new is not None:
            through += to_new
    else:
        to_o[...] = 0
    to_i *= g
    to_f *= c
    to_g *= i
    for part in (to_i, to_f, to_g):
        part *= through
    return before, before, through * f


def vjp_lstm_gates(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    c, new, gates = saved
    if type(gates) is np.ndarray and (len(cotangents) < 3 or cotangents[2] is None):
        return arrays_vjp_lstm_gates(saved, *cotangents[:2])
    to_h, to_new, to_gates = (*cotangents, None)[:3]  # the hidden output's may be left out
    i, f, g, o = parts(gates, 4)
    squashed = tanh(new)
    through = total(to_new, times(to_h, o * (1.0 - squashed * squashed)))
    before = None
    if needs[0] or needs[1]:
        own = (None,) * 4 if to_gates is None else parts(to_gates, 4)
        before = joined(
            [
                times(total(times(through, g), own[0]), i * (1.0 - i)),
                times(total(times(through, c), own[1]), f * (1.0 - f)),
                times(total(times(through, i), own[2]), 1.0 - g * g),
                times(total(times(to_h, squashed), own[3]), o * (1.0 - o)),
            ],
            new,
        )
    return before, before, times(through, f) if needs[2] else None


def build_lstm_gates(k, input_gates, hidden_gates, c):
    axes = k.parallel(*c.shape)
    *lead, j = axes
    places = [(*lead, j + q * c.shape[-1]) for q in range(4)]
    i, f, g, o = (input_gates[at] + hidden_gates[at] for at in places)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    new = f * c[axes] + i * g
    k.store(o * tanh(new), at=axes)
    k.store(new, at=axes, output=1)
    for gate, at in zip((i, f, g, o), places, strict=True):
        k.store(gate, at=at, output=2)


CELL_SIZES = {"0-d": "a state has a dimension", "broadcast": "nothing is broadcast"}

lstm_gates = define(
    "lstm_gates",
    bind=bind_lstm_gates,
    infer=infer_lstm_gates,
    reference=lstm_gates_reference,
    outputs=("h", "new_c"),
    hidden=("gates",),
    vjp=vjp_lstm_gates,
    saves=("c", "new_c", "gates"),
    lower=lowering.kernel(build_lstm_gates),
    samples=lambda: [
        sample((4,), (4,), (1,)),
        sample((0,), (0,), (0,)),
        sample((68,), (68,), (17,)),
        sample((132,), (132,), (33,)),
        sample((3, 20), (3, 20), (3, 5)),
        sample((2, 3, 8), (2, 3, 8), (2, 3, 2)),
    ],
    inapplicable=CELL_SIZES
    | dict.fromkeys(("1", "17", "33"), "the state has that size, its gates four times it"),
    dtypes="float",
    method=False,
)


# ---- GRU


def bind_gru_gates(input_gates, hidden_gates, h):
    """Let the gates of a GRU act: what follows its two matrix products.

    Both hold pre-activations for r, z, n, side by side: r = sigmoid(ri + rh), z = sigmoid(zi + zh),
    n = tanh(ni + r * nh) and h' = (1 - z) * n + z * h.
    Shapes: [..., 3 * h], [..., 3 * h], [..., h] -> [..., h].  Raises ShapeError, DTypeError.
    Source: Cho et al., 2014, with the reset gate after the product.
    """
    return (input_gates, hidden_gates, h), {}


def infer_gru_gates(input_gates: Type, hidden_gates: Type, h: Type) -> tuple[Type, ...]:
    check_gates("gru_gates", 3, "h", input_gates=input_gates, hidden_gates=hidden_gates, h=h)
    return h, input_gates


def gru_gates_reference(input_gates, hidden_gates, h):
    size = h.shape[-1]
    gates = input_gates + hidden_gates
    r, z, n = parts(gates, 3)
    sigmoid_of(gates[..., : 2 * size])
    np.multiply(r, hidden_gates[..., 2 * size :], out=n)
    n += input_gates[..., 2 * size :]
    np.tanh(n, out=n)
    out = h - n
    out *= z
    out += n
    return out, gates


def vjp_gru_gates(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    hidden_gates, h, gates = saved
    g, to_gates = (*cotangents, None)[:2]  # the hidden output's may be left out
    r, z, n = parts(gates, 3)
    to_input = to_hidden = None
    if needs[0] or needs[1]:
        own = (None,) * 3 if to_gates is None else parts(to_gates, 3)
        at_n = times(total(times(g, 1.0 - z), own[2]), 1.0 - n * n)
        at_r = times(total(times(at_n, parts(hidden_gates, 3)[2]), own[0]), r * (1.0 - r))
        at_z = times(total(times(g, h - n), own[1]), z * (1.0 - z))
        to_input = joined([at_r, at_z, at_n], h) if needs[0] else None
        to_hidden = joined([at_r, at_z, times(at_n, r)], h) if needs[1] else None
    return to_input, to_hidden, times(g, z) if needs[2] else None


def build_gru_gates(k, input_gates, hidden_gates, h):
    axes = k.parallel(*h.shape)
    *lead, j = axes
    places = [(*lead, j + q * h.shape[-1]) for q in range(3)]
    r, z = (sigmoid(input_gates[at] + hidden_gates[at]) for at in places[:2])
    n = tanh(input_gates[places[2]] + r * hidden_gates[places[2]])
    k.store(n + z * (h[axes] - n), at=axes)
    for gate, at in zip((r, z, n), places, strict=True):
        k.store(gate, at=at, output=1)


gru_gates = define(
    "gru_gates",
    bind=bind_gru_gates,
    infer=infer_gru_gates,
    reference=gru_gates_reference,
    hidden=("gates",),
    vjp=vjp_gru_gates,
    saves=("hidden_gates", "h", "gates"),
    lower=lowering.kernel(build_gru_gates),
    samples=lambda: [
        sample((3,), (3,), (1,)),
        sample((0,), (0,), (0,)),
        sample((51,), (51,), (17,)),
        sample((33,), (33,), (11,)),
        sample((3, 15), (3, 15), (3, 5)),
        sample((2, 3, 6), (2, 3, 6), (2, 3, 2)),
    ],
    inapplicable=CELL_SIZES | dict.fromkeys(("1", "17"), "the state has that size, its gates three times it"),
    dtypes="float",
    method=False,
)


# ---- whole cells


@composite(method=False)
def lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """Take one step of an LSTM.  hx: the state (h, c).  Returns the next one.

    Shapes: [..., k], ([..., h], [..., h]), [4 * h, k], [4 * h, h], [4 * h], [4 * h] -> [..., h], [..., h].
    """
    h, c = hx
    return lstm_gates(linear(input, w_ih, b_ih), linear(h, w_hh, b_hh), c)


@composite(method=False)
def gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """Take one step of a GRU.

    Shapes: [..., k], [..., h], [3 * h, k], [3 * h, h], [3 * h], [3 * h] -> [..., h].
    """
    return gru_gates(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), hx)


@composite(method=False)
def rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """Take one step of a plain recurrent network: tanh of both products' sum.

    Shapes: [..., k], [..., h], [h, k], [h, h], [h], [h] -> [..., h].
    """
    return tanh(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))


@composite(method=False)
def rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """Take one step of a plain recurrent network: relu of both products' sum.  Shapes as in rnn_tanh_cell."""
    return relu(linear(input, w_ih, b_ih) + linear(hx, w_hh, b_hh))
