"""Operators that draw random numbers: from the default generator, or anew in each run from a `seed`."""

from __future__ import annotations

from math import prod

import numpy as np

from ....ir.dtypes import DType, float32, float64, from_numpy_dtype, int32
from ....runtime import Generator, Tensor, ops
from ....runtime import random as draws
from ..declared import Node, OnnxError
from ..element_types import element_type
from .registry import operator

MOST = 1 << 28  # numbers that a file may ask for
# Operators whose results differ from run to run.
DRAWING = frozenset((
    "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial",
    "Dropout",
))  # fmt: skip


def _generator(node: Node) -> Generator | None:
    """That of the node's seed, whose bits are told apart; None without one."""
    seed = node.attr("seed")
    return None if seed is None else Generator().manual_seed(int(np.float32(seed).view(np.uint32)))


def _dtype(node: Node, default: DType) -> DType:
    number = node.attr("dtype")
    found = default if number is None else from_numpy_dtype(element_type(number))
    if found is None:
        raise OnnxError(f"{node.op}: there are no tensors of {element_type(number)}", str(node))
    return found


def _drawn(node: Node, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Numbers of a node's distribution.  Those of narrow dtypes are rounded once, at the end."""
    if not dtype.is_floating_point:
        raise OnnxError(f"{node.op}: it draws floating-point numbers, not {dtype.name}", str(node))
    about = {"size": shape, "generator": _generator(node), "dtype": float64 if dtype is float64 else float32}
    if node.op.startswith("RandomNormal"):
        return (node.attr("mean", 0.0) + node.attr("scale", 1.0) * draws.randn(**about)).to(dtype)
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return (low + (high - low) * draws.rand(**about)).to(dtype)


@operator("RandomNormal", "RandomUniform")
def random(node: Node) -> Tensor:
    shape = tuple(node.attr("shape", ()))
    if min(shape, default=0) < 0 or prod(shape) > MOST:
        raise OnnxError(f"{node.op}: there is no drawing numbers of shape {[*shape]}", str(node))
    return _drawn(node, shape, _dtype(node, float32))


@operator("RandomNormalLike", "RandomUniformLike")
def random_like(node: Node, x: Tensor) -> Tensor:
    return _drawn(node, tuple(x.shape), _dtype(node, x.dtype))


@operator("Bernoulli")
def bernoulli(node: Node, x: Tensor) -> Tensor:
    wide = float64 if x.dtype is float64 else float32
    drawn = draws.rand(size=tuple(x.shape), generator=_generator(node), dtype=wide)
    return (drawn < x.to(wide)).to(_dtype(node, x.dtype))


@operator("Multinomial")
def multinomial(node: Node, x: Tensor) -> Tensor:
    count = node.attr("sample_size", 1)
    if x.ndim != 2:
        raise OnnxError(f"Multinomial: it takes [batch, classes], not {[*x.shape]}", str(node))
    if count < 0 or count * x.shape[0] > MOST:
        raise OnnxError(f"Multinomial: there is no drawing {count} samples", str(node))
    weights = ops.softmax(x if x.dtype is float64 else x.to(float32), -1)
    found = draws.multinomial(weights, count, True, generator=_generator(node))
    return found.to(_dtype(node, int32))
