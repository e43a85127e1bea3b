"""The products of an op, read off its operands and result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ..nn import Parameter
from ..runtime import Tensor
from .layer_costs import Product

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
CELLS = ("lstm_layer", "gru_layer", "rnn_layer")
PRODUCTS = ("linear", "matmul", "attention", *CONVOLUTIONS, *CELLS)


def parameter_of(x: Tensor) -> Parameter | None:
    """The parameter that a tensor is, or is a view of."""
    base = x if x._base is None else x._base
    return base if isinstance(base, Parameter) else None


def products_of(name: str, taken: Sequence[Tensor], out: Tensor | None) -> Iterator[Product]:
    """The products of an op, of the whole batch."""
    if out is None or len(taken) < 2:
        return
    a, b = taken[0], taken[1]
    if name == "linear":
        yield Product(prod(a.shape[:-1]), a.shape[-1], b.shape[0], weighted=parameter_of(b) is not None)
    elif name == "matmul" and a.ndim and b.ndim:
        inner, columns = a.shape[-1], b.shape[-1] if b.ndim > 1 else 1
        weighted = b.ndim <= 2
        if weighted:
            yield Product(prod(a.shape[:-1]), inner, columns, weighted=parameter_of(b) is not None)
        else:
            rows = a.shape[-2] if a.ndim > 1 else 1
            yield Product(rows, inner, columns, prod(out.shape) / (rows * columns), weighted=False)
    elif name == "attention":
        heads = prod(a.shape[:-2])
        yield Product(a.shape[-2], a.shape[-1], b.shape[-2], heads, "", False, 1.0, "result", True)
        yield Product(a.shape[-2], b.shape[-2], taken[2].shape[-1], heads, "", False, 1.0, "left", True)
    elif name in CONVOLUTIONS:
        channels = b.shape[0]
        yield Product(prod(out.shape) / channels, prod(b.shape[1:]), channels)
    elif name in CELLS:
        yield Product(prod(a.shape[:-1]), a.shape[-1], b.shape[-1])
