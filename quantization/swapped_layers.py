"""Layers in place of layers: weights of 8 and 4 bits, activations quantised at run time, bfloat16.

The model stays the Python that it is, so that generation with caches and control flow go on as before.

| scheme | weights | what is computed |
|---|---|---|
| int8-dynamic | i8, a scale for each output | products of bytes, with a scale for each row of the input |
| int8-weights | i8, a scale for each output, or for each group of inputs | float products of q * scale |
| int4-weights | two in a byte, a scale for each group of inputs | the same |
| these two, activations="int8" | as they are | products of bytes, with a scale for each group of a row |
| bfloat16 | bfloat16 | in bfloat16; what goes in and comes out is as before |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import gcd
from typing import Any

import numpy as np

from ..ir.dtypes import DType, bfloat16, float32, float64, int8
from ..ir.errors import ArgumentError
from ..jit import mark_dynamic, trace
from ..nn import Buffer, Conv1d, Conv2d, Conv3d, Embedding, Linear, Module
from ..runtime import Parameter, Tensor, no_grad, ops
from ..runtime.levels import array_of
from ..runtime.tensor import tensor_of
from .schemes import Layers, QuantizationError, no_layers, not_finite
from .static_bytes import LEAST_SCALE, MOST, quantize_weight

CONVOLUTIONS = (Conv1d, Conv2d, Conv3d)
TOGETHER = 64  # inputs that are rounded together, or what of it divides all, where weights have no groups
FEW = 1 << 20  # weights that are rounded sooner op by op than a program is made for
Rounded = tuple[Tensor, Tensor, Tensor | None]


@dataclass(frozen=True)
class Weights:
    """How weights are stored.

    bits: 8 or 4.  group: how many inputs share a scale, None for all.  zero_points: whether a group's range
    need not lie around 0.  scale_dtype: of the scales, float32 or bfloat16.  activations: "int8" where what
    they are multiplied with is rounded too, None where it is not.
    """

    bits: int = 8
    group: int | None = None
    zero_points: bool = False
    scale_dtype: DType = float32
    activations: str | None = None

    def __post_init__(self) -> None:
        if self.group is not None and (not isinstance(self.group, int) or self.group < 2 or self.group % 2):
            raise ArgumentError(f"quantize(group): an even number of inputs, or None, not {self.group!r}")
        if self.scale_dtype not in (float32, bfloat16):
            raise ArgumentError(f"quantize(scale_dtype): float32 or bfloat16, not {self.scale_dtype}")
        if self.activations not in (None, "int8"):
            raise ArgumentError(f"quantize(activations): 'int8' or None, not {self.activations!r}")


def rounded(weight: Tensor, how: Weights) -> Rounded:
    """Steps, scales and zero points of a weight.  A scale is finite where its weights are.

    Shapes: [o, k] -> i8 [o, k] or u8 [o, k / 2], [o, g], i8 [o, g] or None.
    """
    outs, k = weight.shape
    w = weight.float().reshape(outs, -1, how.group or k)
    most, zero = 2 ** (how.bits - 1) - 1, None
    if how.zero_points:
        low, high = w.amin(-1), w.amax(-1)
        low, high = low.clamp(max=0.0), high.clamp(min=0.0)
        scale = (high - low) / (2 * most + 1)
    else:
        scale = w.abs().amax(-1) / most
    kept = scale.clamp(min=LEAST_SCALE).to(how.scale_dtype)
    scale = kept.float()
    steps = (w * (1 / scale).unsqueeze(-1)).round()
    if how.zero_points:
        zero = ((-low / scale).round() - most - 1).clamp(-most - 1, most)
        steps = steps + zero.unsqueeze(-1)
        zero = zero.to(int8)
    steps = steps.clamp(-most - how.zero_points, most).to(int8).reshape(outs, k)
    if how.bits == 4:
        steps = ops.FUNCTIONS["pack_int4"](steps, how.group or k)
    return steps, kept, zero


@cache
def _compiled(how: Weights, dtype: DType) -> Callable[[Tensor], Rounded]:
    """`rounded` as one program for weights of all sizes."""
    traced = trace(partial(rounded, how=how), budget=None)

    def run(weight: Tensor) -> Rounded:
        mark_dynamic(weight, 0)
        mark_dynamic(weight, 1)
        return traced(weight)

    for _ in range(2):  # the first call runs op by op, which takes long for what is large
        run(ops.ones((4, 3 * (how.group or 64)), dtype=dtype))
    return run


class WeightOnlyLinear(Module):
    """A linear layer whose weight is read as bytes and multiplied as floats.

    weight: i8 [o, k], or u8 [o, k / 2] of two in a byte.  scale: [o, k / group].  zero_point: i8 or None.
    together: so many inputs of a row are rounded to bytes in steps of one size; None where inputs are floats.
    """

    def __init__(self, weight: Tensor, bias: Any, how: Weights, name: str = "the layer"):
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bits, self.group = how.bits, how.group or self.in_features
        self.together = None
        if how.activations is not None:
            self.together = how.group or gcd(TOGETHER, self.in_features)
        if self.in_features % self.group or self.group % 2 and how.bits == 4:
            raise QuantizationError(
                f"quantize: {name} has {self.in_features} inputs, which are no whole groups of {self.group}",
                f"skip=({name!r},) leaves it in float, group= takes other groups",
            )
        with no_grad():
            run = partial(rounded, how=how) if weight.numel() < FEW else _compiled(how, weight.dtype)
            steps, scale, zero = run(weight.detach())
        _need_finite(scale, name)
        self.weight, self.scale = Buffer(steps), Buffer(scale)
        self.zero_point = None if zero is None else Buffer(zero)
        self.bias = bias

    def float_weight(self) -> Tensor:
        """What the weight stands for.  Shapes: f32 [o, k]."""
        steps = self.weight
        if self.bits == 4:
            steps = ops.FUNCTIONS["unpack_int4"](steps, self.group)
        real = steps.to(float32).reshape(self.out_features, -1, self.group)
        if self.zero_point is not None:
            real = real - self.zero_point.to(float32).unsqueeze(-1)
        real = real * self.scale.to(float32).unsqueeze(-1)
        return real.reshape(self.out_features, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        """Shapes: [..., k] -> [..., o].

        Halves are multiplied in float32, with weights that are not rounded to halves, and the result is
        rounded once; inputs are rounded to bytes before where that was asked for.
        """
        real = float64 if input.dtype is float64 else float32
        bias = None if self.bias is None else self.bias.to(real)
        x = input.to(real) if self.together is None else _in_bytes(input.float(), self.together).to(real)
        y = ops.FUNCTIONS["linear"](x, self.float_weight().to(real), bias)
        return y.to(input.dtype)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        rounds = "" if self.together is None else ", activations=int8"
        return f"{sizes}, bits={self.bits}, group={self.group}{rounds}"


def _in_bytes(x: Tensor, together: int) -> Tensor:
    """Numbers rounded to bytes, neighbours in steps of one size.  Shapes: f32 [..., k] -> the same."""
    steps, scale = _steps_of(x.reshape(*x.shape[:-1], x.shape[-1] // together, together))
    return (steps.to(float32) * scale).reshape(x.shape)


def _steps_of(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The bytes that rows are rounded to, and the step of each.

    Shapes: f32 [..., k] -> i8 [..., k], f32 [..., 1].
    """
    greatest = ops.FUNCTIONS["amax"](ops.FUNCTIONS["abs"](rows), -1, True)
    scale = ops.FUNCTIONS["clamp"](greatest, min=LEAST_SCALE) / MOST
    return ops.FUNCTIONS["quantize_affine"](rows, scale, low=-MOST, dtype=int8), scale


class WeightOnlyConv(Module):
    """A convolution whose weight is stored as i8, with a scale for each output channel."""

    def __init__(self, layer: Any, name: str = "the layer"):
        super().__init__()
        weight = layer.weight.detach()
        scale = channel_scale(weight, name)
        self.weight = Buffer(tensor_of(quantize_weight(weight.float(), scale)))
        self.scale = Buffer(scale.reshape(-1, *(1,) * (weight.ndim - 1)))
        self.layer = layer
        del self.layer.weight

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight.to(float32) * self.scale
        return self.layer._conv_forward(input, weight.to(input.dtype), self.layer.bias)


class WeightOnlyEmbedding(Module):
    """A table whose rows are stored as i8, each with a scale."""

    def __init__(self, layer: Embedding, name: str = "the layer"):
        super().__init__()
        weight = layer.weight.detach()
        scale = channel_scale(weight, name)
        self.weight = Buffer(tensor_of(quantize_weight(weight.float(), scale)))
        self.scale = Buffer(scale.reshape(-1, 1))
        self.dtype = weight.dtype

    def forward(self, input: Tensor) -> Tensor:
        rows = ops.FUNCTIONS["embedding"](input, self.scale)
        return (self.weight[input].to(float32) * rows).to(self.dtype)


class DynamicLinear(Module):
    """A linear layer of bytes, for which each row of the input gets the scale that its numbers need.

    Shapes: [..., k] -> [..., o].
    """

    def __init__(self, weight: Tensor, bias: Any, name: str = "the layer"):
        super().__init__()
        scale = channel_scale(weight.detach(), name)
        self.out_features, self.in_features = weight.shape
        self.weight = Buffer(tensor_of(quantize_weight(weight.detach().float(), scale)))
        self.scale = Buffer(scale)
        self.bias = bias

    def forward(self, input: Tensor) -> Tensor:
        x = input.to(float32)
        rows = x if x.ndim > 1 else x.unsqueeze(0)
        steps, scale = _steps_of(rows)
        total = ops.FUNCTIONS["int_matmul"](steps, self.weight.transpose(0, 1))
        y = total.to(float32) * scale * self.scale
        if self.bias is not None:
            y = y + self.bias
        return (y if x.ndim > 1 else y.squeeze(0)).to(input.dtype)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class Bfloat16(Module):
    """A layer that computes in bfloat16, between others that don't."""

    def __init__(self, layer: Module):
        super().__init__()
        self.layer = layer.to(bfloat16)

    def forward(self, input: Tensor) -> Tensor:
        return self.layer(input.to(bfloat16)).to(input.dtype)


SWAPPED = (WeightOnlyLinear, WeightOnlyConv, WeightOnlyEmbedding, DynamicLinear, Bfloat16)


def channel_scale(weight: Tensor, name: str) -> Tensor:
    """A scale for each output channel, symmetric.  Shapes: [o, ...] -> f32 [o].  Raises QuantizationError."""
    flat = ops.FUNCTIONS["abs"](weight.float().reshape(weight.shape[0], -1))
    scale = ops.FUNCTIONS["clamp"](ops.FUNCTIONS["amax"](flat, 1) / MOST, min=LEAST_SCALE)
    _need_finite(scale, name)
    return scale


def _need_finite(scale: Tensor, name: str) -> None:
    """Raises QuantizationError for the scales of a weight that is not finite, as they aren't either."""
    if not np.isfinite(array_of(scale.float())).all():
        raise not_finite("the weight", name)


# ---- from a model to one with other layers
def _rows(layer: Module) -> Tensor | None:
    """The weight of a layer that is linear, a row for each output; None for others.

    transformers' `Conv1D` is one, whose weight is turned around.
    """
    if type(layer) is Linear:
        return layer.weight.detach()
    if type(layer).__name__ == "Conv1D" and isinstance(getattr(layer, "weight", None), Parameter):
        return layer.weight.detach().transpose(0, 1) if layer.weight.ndim == 2 else None
    return None


def _swapping(scheme: str, how: Weights) -> Callable[[str, Module], Module | None]:
    """What takes the place of a layer of this name; None where there is nothing for its kind."""

    def swap(name: str, layer: Module) -> Module | None:
        rows = _rows(layer)
        if scheme == "bfloat16":
            return Bfloat16(layer) if rows is not None or type(layer) in CONVOLUTIONS else None
        if rows is not None:
            bias = layer.bias
            return (
                DynamicLinear(rows, bias, name)
                if scheme == "int8-dynamic"
                else WeightOnlyLinear(rows, bias, how, name)
            )
        if scheme == "int8-weights" and type(layer) in CONVOLUTIONS:
            return WeightOnlyConv(layer, name)
        if scheme == "int8-weights" and type(layer) is Embedding and layer.max_norm is None:
            return WeightOnlyEmbedding(layer, name)
        return None

    return swap


def swap_layers(model: Module, scheme: str, chosen: Layers, how: Weights) -> Module:
    """Put other layers in place of a model's, in the model itself; returns it, or what stands for it.

    Raises QuantizationError where there is none that can be, ArgumentError as of `Layers`.
    """
    kinds = (Linear, *CONVOLUTIONS, Embedding)
    swap = _swapping(scheme, how)
    layers = {name: x for name, x in model.named_modules() if isinstance(x, kinds) or _rows(x) is not None}
    reasons = {name: why for name, layer in layers.items() if (why := _reason(scheme, layer)) is not None}
    found = {name: layer for name, layer in layers.items() if name not in reasons}
    kept = chosen.kept([*found])
    wanted = {name: layer for name, layer in found.items() if name not in kept}
    if not wanted:
        raise no_layers(kept | reasons)
    with no_grad():
        for name, layer in wanted.items():
            made = swap(name, layer)
            assert made is not None, "what is found is taken"
            made.train(layer.training)
            if scheme != "bfloat16":  # whose layer runs as it is, with its hooks
                made._call_hooks, layer._call_hooks = layer._call_hooks, made._call_hooks
            if not name:
                return made
            above, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(above), leaf, made)
    return model


def _reason(scheme: str, layer: Any) -> str | None:
    """Why a layer stays in float; None for one that doesn't."""
    linear = type(layer) is Linear or _rows(layer) is not None
    taken = {"bfloat16": CONVOLUTIONS, "int8-weights": (*CONVOLUTIONS, Embedding)}.get(scheme, ())
    if not linear and type(layer) not in taken:
        return f"{scheme} has nothing for a {type(layer).__name__}"
    if scheme != "bfloat16" and not isinstance(layer.weight, Parameter):
        return "its weight is no parameter: something computes it"
    if type(layer) is Embedding and layer.max_norm is not None:
        return "its rows are scaled as they are read (max_norm)"
    return None
