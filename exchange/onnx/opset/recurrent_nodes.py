"""Operators that walk over sequences, and carry a state from step to step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ....nn import functional as F
from ....runtime import Tensor, ops
from ..declared import Node, OnnxError
from .registry import Value, as_tensor, ints, is_host, operator

State = tuple[Tensor, ...]

# ---- activations: a function, and the defaults of its alpha and beta
ACTIVATIONS: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
    "relu": (ops.relu, ()),
    "tanh": (ops.tanh, ()),
    "sigmoid": (ops.sigmoid, ()),
    "softsign": (F.softsign, ()),
    "softplus": (lambda x: ops.logaddexp(x, ops.zeros_like(x)), ()),
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1.0, 0.0)),
    "leakyrelu": (F.leaky_relu, (0.01,)),
    "thresholdedrelu": (lambda x, alpha: ops.where(x >= alpha, x, 0.0), (1.0,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * ops.tanh(beta * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, alpha, beta: ops.clamp(alpha * x + beta, 0.0, 1.0), (0.2, 0.5)),
    "elu": (F.elu, (1.0,)),
}


def _names(node: Node, kind: Kind, ways: int) -> list[str]:
    """The names of the activations, those of one direction after the other."""
    wanted = len(kind.activations) * ways
    names = [name.lower() for name in node.attr("activations", kind.activations * ways)]
    if len(names) < wanted:
        raise OnnxError(f"{node.op}: {wanted} activations are needed, not {len(names)}", str(node))
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown:
        raise OnnxError(f"{node.op}: {', '.join(unknown)} are no activations", f"known: {[*ACTIVATIONS]}")
    return names[:wanted]


def _arguments(given: Sequence[float], names: Sequence[str], at: int) -> list[float | None]:
    """For each activation its alpha (at 0), or its beta (1); None where the default holds.

    One is given for each activation, or one for each that takes one.
    """
    rest = iter(given)
    every = len(given) == len(names)
    return [next(rest, None) if every or len(ACTIVATIONS[name][1]) > at else None for name in names]


def _activations(node: Node, names: Sequence[str], count: int) -> list[Callable[[Tensor], Tensor]]:
    """The functions of these names, `count` to a direction, with what the node says of them.

    `clip` bounds what they are given, but for the third: that is an LSTM's cell, which other runtimes leave.
    """
    bound = node.attr("clip")
    if bound is not None and not bound > 0:
        raise OnnxError(f"{node.op}: clip is a positive number, not {bound}", str(node))
    alphas = _arguments(node.attr("activation_alpha", ()), names, 0)
    betas = _arguments(node.attr("activation_beta", ()), names, 1)
    made: list[Callable[[Tensor], Tensor]] = []
    for at, (name, alpha, beta) in enumerate(zip(names, alphas, betas, strict=True)):
        function, defaults = ACTIVATIONS[name]
        given = [d if own is None else own for d, own in zip(defaults, (alpha, beta), strict=False)]
        made.append(partial(_applied, function, given, None if at % count == 2 else bound))
    return made


def _applied(function: Callable, given: list[float], bound: float | None, x: Tensor) -> Tensor:
    return function(x if bound is None else ops.clamp(x, -bound, bound), *given)


# ---- one direction
@dataclass(frozen=True)
class Cell:
    """The weights of a direction, and what its steps are made of.

    w [g * h, i], r [g * h, h], their biases [g * h], peepholes [3 * h].  names: of the functions.  back: it
    begins with the last element.
    """

    node: Node
    w: Tensor
    r: Tensor
    w_bias: Tensor | None
    r_bias: Tensor | None
    peepholes: Tensor | None
    names: Sequence[str]
    functions: Sequence[Callable[[Tensor], Tensor]]
    back: bool


# A step takes an element's share of the gates and the state, and gives the next state.
def _step_rnn(cell: Cell, now: Tensor, state: State) -> State:
    return (cell.functions[0](now + F.linear(state[0], cell.r, cell.r_bias)),)


def _step_gru(cell: Cell, now: Tensor, state: State) -> State:
    (h,), (gate, candidate) = state, cell.functions
    size = h.shape[-1]
    if cell.node.attr("linear_before_reset", 0):
        hidden = F.linear(h, cell.r, cell.r_bias)
        z, r = _parts(gate(now[:, : 2 * size] + hidden[:, : 2 * size]), 2)
        inner = r * hidden[:, 2 * size :]
    else:
        biases = (None, None) if cell.r_bias is None else (cell.r_bias[: 2 * size], cell.r_bias[2 * size :])
        z, r = _parts(gate(now[:, : 2 * size] + F.linear(h, cell.r[: 2 * size], biases[0])), 2)
        inner = F.linear(r * h, cell.r[2 * size :], biases[1])
    new = candidate(now[:, 2 * size :] + inner)
    return (new + z * (h - new),)


def _step_lstm(cell: Cell, now: Tensor, state: State) -> State:
    (h, c), (gate, candidate, out) = state, cell.functions
    i, o, f, g = _parts(now + F.linear(h, cell.r, cell.r_bias), 4)
    sees = None if cell.peepholes is None else _parts(cell.peepholes, 3)
    if sees is not None:
        i, f = i + sees[0] * c, f + sees[2] * c
    i = gate(i)
    f = 1 - i if cell.node.attr("input_forget", 0) else gate(f)
    new = f * c + i * candidate(g)
    if sees is not None:
        o = o + sees[1] * new
    return gate(o) * out(new), new


def _parts(x: Tensor, count: int) -> list[Tensor]:
    return ops.split(x, x.shape[-1] // count, -1)


@dataclass(frozen=True)
class Kind:
    """What tells the operators apart.  order: their gates as Lamina's layers have them; layers: those that
    run all steps in one, by the names of the activations."""

    activations: tuple[str, ...]
    step: Callable[..., State]
    order: tuple[int, ...]
    layers: dict[tuple[str, ...], Callable]


RNN = Kind(
    ("tanh",),
    _step_rnn,
    (0,),
    {(name,): partial(ops.rnn_layer, nonlinearity=name) for name in ("tanh", "relu")},
)
GRU = Kind(("sigmoid", "tanh"), _step_gru, (1, 0, 2), {("sigmoid", "tanh"): ops.gru_layer})
LSTM = Kind(
    ("sigmoid", "tanh", "tanh"),
    _step_lstm,
    (0, 2, 3, 1),
    {("sigmoid", "tanh", "tanh"): ops.lstm_layer},
)


def _layer(kind: Kind, cell: Cell, lengths: Value) -> Callable | None:
    """The op that runs all steps of such a cell, if one does."""
    node = cell.node
    plain = lengths is None and cell.peepholes is None and "clip" not in node.attrs
    told = node.op == "GRU" and not node.attr("linear_before_reset", 0) or node.attr("input_forget", 0)
    return kind.layers.get(tuple(cell.names)) if plain and not told else None


def _rows(kind: Kind, x: Tensor | None) -> Tensor | None:
    """A weight or a bias with its gates as Lamina's layers have them."""
    if x is None or len(kind.order) == 1:
        return x
    parts = ops.split(x, x.shape[0] // len(kind.order), 0)
    return ops.cat([parts[at] for at in kind.order], 0)


def _run(kind: Kind, cell: Cell, x: Tensor, lengths: Tensor | None, state: State) -> tuple[Tensor, State]:
    """The hidden states of all steps [t, b, h], and the last state."""
    time, batch, width = x.shape
    if not time:
        return x.new_zeros((0, *state[0].shape)), state
    rows, layer = x.reshape((time * batch, width)), _layer(kind, cell, lengths)
    if layer is None:
        projected = F.linear(rows, cell.w, cell.w_bias).reshape((time, batch, cell.w.shape[0]))
        return _walk(partial(kind.step, cell), projected, lengths, state, cell.back)
    w, w_bias, r, r_bias = (_rows(kind, each) for each in (cell.w, cell.w_bias, cell.r, cell.r_bias))
    projected = F.linear(rows, w, w_bias).reshape((time, batch, w.shape[0]))
    made = layer(projected, *state, r, r_bias, back=cell.back)
    every = made if isinstance(made, (tuple, list)) else (made,)
    return every[0], tuple(each[0 if cell.back else -1] for each in every)


def _walk(
    step: Callable[..., State], projected: Tensor, lengths: Tensor | None, state: State, back: bool
) -> tuple[Tensor, State]:
    """The same step by step.  Behind its end a sequence keeps its state, and gives zeros."""
    times = range(projected.shape[0])
    outputs: list[Tensor] = [projected] * len(times)
    for t in reversed(times) if back else times:
        new = step(projected[t], state)
        outputs[t] = new[0]
        if lengths is not None:
            here = (lengths > t).reshape((-1, 1))
            new = tuple(ops.where(here, n, s) for n, s in zip(new, state, strict=True))
            outputs[t] = ops.where(here, new[0], 0.0)
        state = new
    return ops.stack(outputs), state


# ---- the operators
WAYS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _check(node: Node, wanted: dict[str, tuple[Value, tuple[int, ...]]]) -> None:
    """Raise OnnxError unless the operands are of these shapes."""
    for name, (x, shape) in wanted.items():
        if x is not None and tuple(x.shape) != shape:
            raise OnnxError(f"{node.op}: {name} must be of shape {[*shape]}, not {[*x.shape]}", str(node))


def _recurrent(
    kind: Kind, node: Node, x: Tensor, w: Tensor, r: Tensor, b: Value, lengths: Value, first: list[Value],
    p: Value = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What the operators have in common: directions, shapes, layout.  first: the initial states, or None."""
    ways = WAYS.get(node.attr("direction", "forward"))
    if ways is None:
        raise OnnxError(f"{node.op}: {node.attr('direction')!r} is none of {', '.join(WAYS)}", str(node))
    if x.ndim != 3 or w.ndim != 3 or r.ndim != 3:
        raise OnnxError(f"{node.op}: X, W, R have 3 dimensions, not {x.ndim}, {w.ndim}, {r.ndim}", str(node))
    swapped = bool(node.attr("layout", 0))
    if swapped:
        x, *first = (None if each is None else each.transpose(0, 1) for each in (x, *first))
    (_, batch, width), size, count = x.shape, r.shape[-1], len(ways)
    rows, states = len(kind.order) * size, (count, batch, size)
    wanted = {"W": (w, (count, rows, width)), "R": (r, (count, rows, size)), "B": (b, (count, 2 * rows))}
    wanted |= {"initial_h": (first[0], states), "initial_c": (first[-1], states), "P": (p, (count, 3 * size))}
    _check(node, wanted | {"sequence_lens": (lengths, (batch,))})
    if node.attr("hidden_size", size) != size:
        raise OnnxError(f"{node.op}: hidden_size is {node.attr('hidden_size')}, and R has {size}", str(node))
    names, each = _names(node, kind, count), len(kind.activations)
    functions, made = _activations(node, names, each), []
    for at, back in enumerate(ways):
        biases = (None, None) if b is None else (b[at, :rows], b[at, rows:])
        sees, own = None if p is None else p[at], slice(at * each, (at + 1) * each)
        cell = Cell(node, w[at], r[at], biases[0], biases[1], sees, names[own], functions[own], back)
        state = tuple(x.new_zeros((batch, size)) if h is None else h[at] for h in first)
        made.append(_run(kind, cell, x, lengths, state))
    outputs = ops.stack([found for found, _ in made], 1)
    last = [ops.stack(parts) for parts in zip(*(state for _, state in made), strict=True)]
    if swapped:
        return outputs.permute(2, 0, 1, 3), *(each.transpose(0, 1) for each in last)
    return outputs, *last


def _lengths(lengths: Value, x: Value, node: Node) -> Value:
    """The lengths of sequences as a tensor; None where none ends before the others."""
    time = x.shape[1 if node.attr("layout", 0) else 0] if x.ndim == 3 else 0
    if lengths is None or is_host(lengths) and all(n >= time for n in ints(lengths)):
        return None
    return as_tensor(lengths)


@operator("RNN", "GRU", raw=True)
def rnn(
    node: Node, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None, h: Value = None
) -> tuple[Tensor, ...]:
    lengths = _lengths(lengths, x, node)
    x, w, r, b, h = map(as_tensor, (x, w, r, b, h))
    return _recurrent(GRU if node.op == "GRU" else RNN, node, x, w, r, b, lengths, [h])


@operator("LSTM", raw=True)
def lstm(
    node: Node, x: Value, w: Value, r: Value, b: Value = None, lengths: Value = None, h: Value = None,
    c: Value = None, peepholes: Value = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    lengths = _lengths(lengths, x, node)
    x, w, r, b, h, c, peepholes = map(as_tensor, (x, w, r, b, h, c, peepholes))
    return _recurrent(LSTM, node, x, w, r, b, lengths, [h, c], peepholes)
