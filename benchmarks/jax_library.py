"""The few modules that the benchmarks' networks use, under their PyTorch names, written in JAX.

`networks.py` takes this as its `library` like `lamina` and `torch`.  A model's arrays are swapped in for the
length of a call (`call(model, arrays, x)`), so that `jax.jit` and `jax.grad` see pure functions.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Module:
    training = True

    def children(self) -> dict[str, Module]:
        return {k: v for k, v in vars(self).items() if isinstance(v, Module)}

    def arrays(self, prefix: str = "") -> dict[str, Any]:
        """Parameters and buffers by PyTorch's names and in its order."""
        found = {prefix + k: v for k, v in vars(self).items() if isinstance(v, (np.ndarray, jax.Array))}
        for name, child in self.children().items():
            found |= child.arrays(f"{prefix}{name}.")
        return found

    def swap(self, arrays: dict[str, Any], prefix: str = "") -> None:
        for k, v in list(vars(self).items()):
            if prefix + k in arrays:
                vars(self)[k] = arrays[prefix + k]
            elif isinstance(v, Module):
                v.swap(arrays, f"{prefix}{k}.")

    def train(self, mode: bool = True) -> Module:
        self.training = mode
        for child in self.children().values():
            child.train(mode)
        return self

    def register_buffer(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)  # type: ignore[attr-defined]


class Sequential(Module):
    def __init__(self, *layers: Module):
        for i, layer in enumerate(layers):
            setattr(self, str(i), layer)

    def forward(self, x):
        for layer in self.children().values():
            x = layer(x)
        return x


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


class Linear(Module):
    def __init__(self, inputs: int, outputs: int):
        self.weight, self.bias = np.zeros((outputs, inputs), np.float32), np.zeros(outputs, np.float32)

    def forward(self, x):
        return x @ self.weight.T + self.bias


class Conv2d(Module):
    def __init__(self, inputs, outputs, kernel, stride=1, padding=0, groups=1, bias=True):
        self.weight = np.zeros((outputs, inputs // groups, *_pair(kernel)), np.float32)
        if bias:
            self.bias = np.zeros(outputs, np.float32)
        self.how = {"window_strides": (stride, stride), "padding": [(p, p) for p in _pair(padding)]}
        self.how |= {"feature_group_count": groups}

    def forward(self, x):
        y = lax.conv_general_dilated(x, self.weight, **self.how)
        return y + self.bias[:, None, None] if hasattr(self, "bias") else y


class BatchNorm2d(Module):
    def __init__(self, width: int):
        self.weight, self.bias = np.ones(width, np.float32), np.zeros(width, np.float32)
        self.running_mean, self.running_var = np.zeros(width, np.float32), np.ones(width, np.float32)
        self.num_batches_tracked = np.zeros((), np.int32)

    def forward(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            count = x.size // x.shape[1]
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
            self.running_mean = 0.9 * self.running_mean + 0.1 * lax.stop_gradient(mean)
            self.running_var = 0.9 * self.running_var + 0.1 * lax.stop_gradient(var) * count / (count - 1)
        scale = self.weight * lax.rsqrt(var + 1e-5)
        return x * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]


class LayerNorm(Module):
    def __init__(self, width: int):
        self.weight, self.bias = np.ones(width, np.float32), np.zeros(width, np.float32)

    def forward(self, x):
        x = x - x.mean(-1, keepdims=True)
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * self.weight + self.bias


class Embedding(Module):
    def __init__(self, count: int, width: int):
        self.weight = np.zeros((count, width), np.float32)

    def forward(self, index):
        return jnp.asarray(self.weight)[index]


class MaxPool2d(Module):
    def __init__(self, kernel: int, stride: int | None = None, padding: int = 0):
        self.how = (1, 1, kernel, kernel), (1, 1, stride or kernel, stride or kernel)
        self.padding = [(0, 0)] * 2 + [(padding, padding)] * 2

    def forward(self, x):
        return lax.reduce_window(x, -jnp.inf, lax.max, *self.how, self.padding)


class AdaptiveAvgPool2d(Module):
    def __init__(self, size: int):
        assert size == 1, "the networks pool to one pixel"

    def forward(self, x):
        return x.mean((2, 3), keepdims=True)


class _Recurrence(Module):
    """What LSTM and GRU share; a `step` takes the states and the gates of x, and gives the new ones."""

    gates: int
    states: int

    def __init__(self, inputs: int, hidden: int, batch_first: bool):
        assert batch_first
        self.weight_ih_l0 = np.zeros((self.gates * hidden, inputs), np.float32)
        self.weight_hh_l0 = np.zeros((self.gates * hidden, hidden), np.float32)
        self.bias_ih_l0, self.bias_hh_l0 = np.zeros((2, self.gates * hidden), np.float32)
        self.hidden = hidden

    def forward(self, x):
        given = jnp.swapaxes(x @ self.weight_ih_l0.T + self.bias_ih_l0, 0, 1)
        start = (jnp.zeros((x.shape[0], self.hidden), np.float32),) * self.states

        def step(states, given):
            states = self.step(states, given, states[0] @ self.weight_hh_l0.T + self.bias_hh_l0)
            return states, states[0]

        return jnp.swapaxes(lax.scan(step, start, given)[1], 0, 1), None


class LSTM(_Recurrence):
    gates, states = 4, 2

    def step(self, states, given, gates):
        i, f, g, o = jnp.split(given + gates, 4, -1)
        c = jax.nn.sigmoid(f) * states[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c


class GRU(_Recurrence):
    gates, states = 3, 1

    def step(self, states, given, gates):
        (r, z, n), (hr, hz, hn) = jnp.split(given, 3, -1), jnp.split(gates, 3, -1)
        z, n = jax.nn.sigmoid(z + hz), jnp.tanh(n + jax.nn.sigmoid(r + hr) * hn)
        return ((1 - z) * n + z * states[0],)


def _pointwise(function: Any) -> type:
    class Pointwise(Module):
        def forward(self, x):
            return function(x)

    return Pointwise


def _attention(q, k, v, is_causal):
    scores = q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        length = scores.shape[-1]
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ v


relu = jax.nn.relu


def arange(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int32)


nn = SimpleNamespace(
    Module=Module, Sequential=Sequential, Linear=Linear, Conv2d=Conv2d, BatchNorm2d=BatchNorm2d,
    LayerNorm=LayerNorm, Embedding=Embedding, MaxPool2d=MaxPool2d, AdaptiveAvgPool2d=AdaptiveAvgPool2d,
    LSTM=LSTM, GRU=GRU, ReLU=_pointwise(jax.nn.relu), ReLU6=_pointwise(jax.nn.relu6),
    GELU=_pointwise(lambda x: jax.nn.gelu(x, approximate=False)), Identity=_pointwise(lambda x: x),
    Flatten=_pointwise(lambda x: x.reshape(x.shape[0], -1)),
    functional=SimpleNamespace(scaled_dot_product_attention=_attention),
)  # fmt: skip


def call(model: Module, arrays: dict[str, Any], x: Any) -> tuple[Any, dict[str, Any]]:
    """The model's output with these arrays, and the arrays afterwards (batch norm writes its statistics)."""
    before = model.arrays()
    model.swap(arrays)
    try:
        return model(x), model.arrays()
    finally:
        model.swap(before)
