"""Recurrent networks: RNN, LSTM and GRU over whole sequences, and their cells for single steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from math import sqrt
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, ShapeError
from ..runtime import Function, Parameter, Tensor, ops
from . import functional as F
from . import init
from .module import Module
from .utils.rnn import PackedSequence

State = tuple[Tensor, ...]


class Rows(Function):
    """Cut a matrix into blocks of rows.

    The gradient is one `cat`, where slices would each fill a whole matrix.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        ctx.sizes = sizes
        return tuple(ops.split(input, sizes))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        return ops.cat(grads), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, input: Tensor, sizes: list[int]) -> tuple:
        return tuple(ops.split(input, sizes, 1)), 0

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, sizes: None) -> tuple[Tensor, ...]:
        return tuple(ops.split(tangent, ctx.sizes))


# One step takes the inputs' share of the gates [B, gates * H], the state before, and the hidden part's weight
# and bias.
def _step_tanh(projected: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    return (ops.tanh(projected + ops.linear(state[0], weight, bias)),)


def _step_relu(projected: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    return (ops.relu(projected + ops.linear(state[0], weight, bias)),)


def _step_lstm(projected: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    return tuple(ops.lstm_gates(projected, ops.linear(state[0], weight, bias), state[1]))


def _step_gru(projected: Tensor, state: State, weight: Tensor, bias: Tensor | None) -> State:
    return (ops.gru_gates(projected, ops.linear(state[0], weight, bias), state[0]),)


# All steps of sequences of one length take the same of all steps [T, B, gates * H], and what to begin with;
# they give each tensor of the state at all times.
def _all_tanh(projected: Tensor, state: State, weight: Tensor, bias: Tensor | None, back: bool) -> State:
    return (ops.rnn_layer(projected, *state, weight, bias, back=back),)


def _all_relu(projected: Tensor, state: State, weight: Tensor, bias: Tensor | None, back: bool) -> State:
    return (ops.rnn_layer(projected, *state, weight, bias, nonlinearity="relu", back=back),)


def _all_lstm(projected: Tensor, state: State, weight: Tensor, bias: Tensor | None, back: bool) -> State:
    return tuple(ops.lstm_layer(projected, *state, weight, bias, back=back))


def _all_gru(projected: Tensor, state: State, weight: Tensor, bias: Tensor | None, back: bool) -> State:
    return (ops.gru_layer(projected, *state, weight, bias, back=back),)


class _Gates:
    """What tells recurrent networks apart: how many gates, how many tensors of state, a step, all steps."""

    def __init__(self, count: int, states: int, step: Callable[..., State], steps: Callable[..., State]):
        self.count, self.states, self.step, self.steps = count, states, step, steps


TANH, RELU = _Gates(1, 1, _step_tanh, _all_tanh), _Gates(1, 1, _step_relu, _all_relu)
LSTM_GATES, GRU_GATES = _Gates(4, 2, _step_lstm, _all_lstm), _Gates(3, 1, _step_gru, _all_gru)


def _shape_error(name: str, what: str, wanted: tuple, got: Tensor) -> ShapeError:
    return ShapeError(
        f"{name}: {what} must have shape {list(wanted)}, not {list(got.shape)}", f"{what}: {got._meta}"
    )


MOST_LAYERS = 1 << 12  # each is four parameters under names of their own


def _by_nonlinearity(self: Any) -> _Gates:
    """The step of what is named by its nonlinearity; a pickle has that alone."""
    return RELU if self.nonlinearity == "relu" else TANH


class RNNBase(Module):
    """What RNN, LSTM and GRU share: layers, directions, weights by PyTorch's names, and the walk over time.

    Shapes: input [T, B, input_size], [B, T, input_size] with `batch_first`, [T, input_size] without a batch,
    or a PackedSequence; state [layers * directions, B, H] -> output [T, B, directions * H] and the last
    state.
    """

    _gates: _Gates

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        name = type(self).__name__
        if not 0 <= dropout <= 1:
            raise ArgumentValueError(f"{name}: dropout is a probability between 0 and 1, not {dropout}")
        for what, value in (("hidden_size", hidden_size), ("num_layers", num_layers)):
            if not isinstance(value, int) or value <= 0:
                raise ArgumentValueError(f"{name}: {what} must be a positive int, not {value!r}")
        if num_layers > MOST_LAYERS:
            raise ArgumentValueError(f"{name}: num_layers is at most {MOST_LAYERS}, not {num_layers}")
        if not 0 <= proj_size < hidden_size or (proj_size and self._gates.states == 1):
            raise ArgumentValueError(
                f"{name}: only an LSTM has a proj_size, less than hidden_size; got {proj_size}"
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        if dropout and num_layers == 1:
            warnings.warn(
                f"{name}: dropout comes between layers, and there is one: dropout={dropout} does nothing",
                UserWarning,
                stacklevel=3,
            )
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        rows, given = self._gates.count * hidden_size, proj_size or hidden_size

        def empty(*shape: int) -> Parameter:
            return Parameter(ops.empty(*shape, device=device, dtype=dtype))

        for layer in range(num_layers):
            inputs = input_size if layer == 0 else given * self._directions
            for end in self._ends(layer):
                setattr(self, f"weight_ih{end}", empty(rows, inputs))
                setattr(self, f"weight_hh{end}", empty(rows, given))
                if bias:
                    setattr(self, f"bias_ih{end}", empty(rows))
                    setattr(self, f"bias_hh{end}", empty(rows))
                if proj_size:
                    setattr(self, f"weight_hr{end}", empty(proj_size, hidden_size))
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        """2 where the network also walks backwards."""
        return 2 if self.bidirectional else 1

    def _ends(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self._directions]

    def reset_parameters(self) -> None:
        """Draw everything uniformly within 1 / sqrt(hidden_size)."""
        bound = 1 / sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: PyTorch lays the weights out for cuDNN here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _all_weights(self) -> list[list[str]]:
        """Their names."""
        kinds = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else [])]
        kinds += ["weight_hr"] if self.proj_size else []
        ends = [end for layer in range(self.num_layers) for end in self._ends(layer)]
        return [[kind + end for kind in kinds] for end in ends]

    @property
    def mode(self) -> str:
        """PyTorch's name of what runs: LSTM, GRU, RNN_TANH or RNN_RELU."""
        return {3: "GRU", 4: "LSTM"}.get(self._gates.count) or f"RNN_{self.nonlinearity.upper()}"

    @property
    def _flat_weights(self) -> list[Parameter]:
        """All of them in one list, under PyTorch's name."""
        return [weight for weights in self.all_weights for weight in weights]

    def _init_flat_weights(self) -> None:
        """Nothing, as with `flatten_parameters`: the list is made where it is asked for."""

    _update_flat_weights = _init_flat_weights

    @property
    def _flat_weights_names(self) -> list[str]:
        return list(self._parameters)

    # ---- one direction of one layer ----
    def _evenly(self, input: Tensor, state: State, weights: list[Parameter], back: bool) -> tuple:
        """The outputs [T, B, H] of sequences [T, B, features] of one length, and the last state."""
        time, batch, features = input.shape
        rows = input.reshape(time * batch, features)
        projected = ops.linear(rows, weights[0], weights[2] if self.bias else None)
        if self.proj_size or any(x.dtype is not projected.dtype for x in (*state, *weights[1:])):
            if not time:
                raise ShapeError(
                    f"{type(self).__name__}: a sequence must have at least one step", f"input: {input._meta}"
                )
            outputs, last = self._walk(projected, [batch] * time, state, weights, back)
            return outputs.reshape(time, batch, outputs.shape[1]), last
        projected = projected.reshape(time, batch, projected.shape[1])
        made = self._gates.steps(projected, state, weights[1], weights[3] if self.bias else None, back)
        return made[0], tuple([each[0 if back else -1] for each in made])

    def _walk(
        self, projected: Tensor, sizes: list[int], state: State, weights: list[Parameter], back: bool
    ) -> tuple:
        """The outputs, flat as the inputs' share of the gates, and the last state.

        sizes: how many sequences reach each step.
        """
        weight_hh = weights[1]
        bias_hh = weights[3] if self.bias else None
        narrow = weights[-1] if self.proj_size else None
        step, first = self._gates.step, state
        blocks = Rows.apply(projected, sizes)
        times = range(len(sizes))
        outputs: list = [None] * len(sizes)
        ended: list[State] = []
        for t in reversed(times) if back else times:
            wanted, have = sizes[t], state[0].shape[0]
            if back and t == len(sizes) - 1 and wanted < have:
                state = tuple(s[:wanted] for s in state)
            elif wanted < have:
                ended.append(tuple(s[wanted:] for s in state))
                state = tuple(s[:wanted] for s in state)
            elif wanted > have:
                state = tuple(ops.cat([s, f[have:wanted]]) for s, f in zip(state, first))
            state = step(blocks[t], state, weight_hh, bias_hh)
            if narrow is not None:
                state = (ops.linear(state[0], narrow), state[1])
            outputs[t] = state[0]
        if ended:
            state = tuple(ops.cat(parts) for parts in zip(state, *reversed(ended)))
        return ops.cat(outputs), state

    def _layers(self, rows: Tensor, sizes: list[int] | None, states: State) -> tuple[Tensor, State]:
        """The outputs of the last layer, and the last states stacked.

        sizes: how many sequences reach each step, where rows are of all of them; None for [T, B, features].
        """
        every, last = self.all_weights, []
        for layer in range(self.num_layers):
            outputs = []
            for way in range(self._directions):
                at = layer * self._directions + way
                first, weights = tuple(s[at] for s in states), every[at]
                if sizes is None:
                    out, state = self._evenly(rows, first, weights, way == 1)
                else:
                    projected = ops.linear(rows, weights[0], weights[2] if self.bias else None)
                    out, state = self._walk(projected, sizes, first, weights, way == 1)
                outputs.append(out)
                last.append(state)
            rows = outputs[0] if len(outputs) == 1 else ops.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                rows = F.dropout(rows, self.dropout, self.training)
        return rows, tuple(ops.stack(parts) for parts in zip(*last))

    # ---- the call ----
    def _widths(self) -> list[int]:
        """The features of each tensor of the state."""
        return [self.proj_size or self.hidden_size, self.hidden_size][: self._gates.states]

    def _start(self, input: Tensor, batch: int, hx: Any, alone: bool, order: Tensor | None) -> State:
        """The first states [layers * directions, B, H], zeros unless given.  Raises ShapeError."""
        count, name = self.num_layers * self._directions, type(self).__name__
        if hx is None:
            return tuple(
                ops.zeros(count, batch, n, dtype=input.dtype, device=input.device) for n in self._widths()
            )
        given = hx if self._gates.states > 1 else (hx,)
        if not isinstance(given, (tuple, list)) or len(given) != self._gates.states:
            raise ArgumentValueError(f"{name}: hx must be a tuple (h_0, c_0)")
        for what, state, n in zip(("h_0", "c_0"), given, self._widths()):
            if not isinstance(state, Tensor):
                raise ArgumentError(f"{name}: {what} must be a tensor, not {type(state).__name__}")
            wanted = (count, n) if alone else (count, batch, n)
            if tuple(state.shape) != wanted:
                raise _shape_error(name, what, wanted, state)
        states = tuple(s.unsqueeze(1) for s in given) if alone else tuple(given)
        return states if order is None else tuple(s.index_select(1, order) for s in states)

    def _result(self, output: Any, states: State) -> tuple:
        return output, states if self._gates.states > 1 else states[0]

    def forward(self, input: Any, hx: Any = None) -> tuple:
        name = type(self).__name__
        if isinstance(input, PackedSequence):
            sizes = input.batch_sizes.tolist()
            self._check_features(input.data)
            states = self._start(input.data, sizes[0], hx, False, input.sorted_indices)
            rows, states = self._layers(input.data, sizes, states)
            if input.unsorted_indices is not None:
                states = tuple(s.index_select(1, input.unsorted_indices) for s in states)
            return self._result(input._replace(data=rows), states)
        if input.ndim not in (2, 3):
            raise ShapeError(
                f"{name} takes an input of 2 or 3 dimensions, not {input.ndim}", f"input: {input._meta}"
            )
        self._check_features(input)
        alone = input.ndim == 2
        swapped = self.batch_first and not alone
        x = input.unsqueeze(1) if alone else input.transpose(0, 1) if swapped else input
        states = self._start(x, x.shape[1], hx, alone, None)
        output, states = self._layers(x, None, states)
        if alone:
            return self._result(output.squeeze(1), tuple(s.squeeze(1) for s in states))
        return self._result(output.transpose(0, 1) if swapped else output, states)

    def _check_features(self, input: Tensor) -> None:
        if input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: {self.input_size} features are wanted, not {input.shape[-1]}",
                f"input: {input._meta}",
            )

    def extra_repr(self) -> str:
        parts = [
            f"{self.input_size}, {self.hidden_size}",
            f"proj_size={self.proj_size}" if self.proj_size else "",
            f"num_layers={self.num_layers}" if self.num_layers != 1 else "",
            "" if self.bias else "bias=False",
            "batch_first=True" if self.batch_first else "",
            f"dropout={self.dropout}" if self.dropout else "",
            "bidirectional=True" if self.bidirectional else "",
        ]
        return ", ".join(part for part in parts if part)


class RNN(RNNBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu for tanh; see RNNBase for arguments and shapes."""

    nonlinearity = "tanh"
    _gates = property(_by_nonlinearity)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        _nonlinearity("RNN", nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory; the state is (h, c).  See RNNBase for arguments and shapes.

    Source: Hochreiter and Schmidhuber 1997, with forget gates; gates stand in the order i, f, g, o.
    """

    _gates = LSTM_GATES


class GRU(RNNBase):
    """Gated recurrent units; see RNNBase for arguments and shapes.

    Source: Cho et al. 2014, with the reset after the matrix product; gates stand in the order r, z, n.
    """

    _gates = GRU_GATES

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )


def _nonlinearity(name: str, given: str) -> None:
    if given not in ("tanh", "relu"):
        raise ArgumentValueError(f"{name}: Unknown nonlinearity: it must be 'tanh' or 'relu', not {given!r}")


class RNNCellBase(Module):
    """One step of a recurrent network.

    Shapes: input [B, input_size] or [input_size], state [B, H] or [H].
    """

    _gates: _Gates

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows, kind = self._gates.count * hidden_size, {"device": device, "dtype": dtype}
        self.weight_ih = Parameter(ops.empty(rows, input_size, **kind))
        self.weight_hh = Parameter(ops.empty(rows, hidden_size, **kind))
        self.register_parameter("bias_ih", Parameter(ops.empty(rows, **kind)) if bias else None)
        self.register_parameter("bias_hh", Parameter(ops.empty(rows, **kind)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw everything uniformly within 1 / sqrt(hidden_size)."""
        bound = 1 / sqrt(self.hidden_size) if self.hidden_size else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        name, several = type(self).__name__, self._gates.states > 1
        if input.ndim not in (1, 2):
            raise ShapeError(
                f"{name} takes an input of 1 or 2 dimensions, not {input.ndim}", f"input: {input._meta}"
            )
        alone = input.ndim == 1
        x = input.unsqueeze(0) if alone else input
        if hx is None:
            zeros = ops.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device)
            state: State = (zeros,) * self._gates.states
        else:
            state = tuple(hx) if several else (hx,)
            wanted = (self.hidden_size,) if alone else (x.shape[0], self.hidden_size)
            for what, s in zip(("h", "c"), state):
                if tuple(s.shape) != wanted:
                    raise _shape_error(name, what, wanted, s)
            state = tuple(s.unsqueeze(0) for s in state) if alone else state
        projected = ops.linear(x, self.weight_ih, self.bias_ih)
        state = self._gates.step(projected, state, self.weight_hh, self.bias_hh)
        state = tuple(s.squeeze(0) for s in state) if alone else state
        return state if several else state[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(RNNCellBase):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu for tanh."""

    nonlinearity = "tanh"
    _gates = property(_by_nonlinearity)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ):
        _nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        shown = "" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}"
        return super().extra_repr() + shown


class LSTMCell(RNNCellBase):
    """One step of an LSTM: (h, c) -> (h', c')."""

    _gates = LSTM_GATES


class GRUCell(RNNCellBase):
    """One step of a GRU: h -> h'."""

    _gates = GRU_GATES
