"""Operators that multiply matrices, or are made of such products."""

from __future__ import annotations

from ....ir.dtypes import int64
from ....nn import functional as F
from ....runtime import Tensor, ops
from ..declared import Node, OnnxError
from .registry import Value, operator


@operator("MatMul")
def matmul(node: Node, x: Value, y: Value) -> Value:
    return ops.FUNCTIONS["matmul"](x, y)


@operator("Gemm")
def gemm(node: Node, x: Value, y: Value, c: Value = None) -> Value:
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if x.ndim != 2 or y.ndim != 2:
        raise OnnxError(f"Gemm: it takes matrices, not {[*x.shape]} and {[*y.shape]}", str(node))
    if _is_linear(node, x, y, c):
        return F.linear(x, y, c)
    found = ops.FUNCTIONS["mm"](x.T if node.attr("transA", 0) else x, y.T if node.attr("transB", 0) else y)
    if alpha != 1:
        found = found * alpha
    if c is not None and beta != 0:
        c = ops.FUNCTIONS["expand"](c, found.shape)
        found = found + (c if beta == 1 else c * beta)
    return found.to(x.dtype)  # numbers times integers are floating-point


def _is_linear(node: Node, x: Tensor, y: Tensor, c: Tensor | None) -> bool:
    """Whether a product is that of a layer: x @ y.T + c."""
    if node.attr("transA", 0) or not node.attr("transB", 0) or node.attr("alpha", 1.0) != 1:
        return False
    return c is None or (node.attr("beta", 1.0) == 1 and tuple(c.shape) == (y.shape[0],))


@operator("Einsum")
def einsum(node: Node, *operands: Value) -> Value:
    equation = node.attr("equation", "")
    if not operands:
        raise OnnxError(f"Einsum: there are no operands for {equation!r}", str(node))
    dtype = operands[0].dtype
    if dtype.is_floating_point:
        return ops.FUNCTIONS["einsum"](equation, *operands)
    # Sums of integers are int64, which products with the other operands need to be then.
    return ops.FUNCTIONS["einsum"](equation, *(each.to(int64) for each in operands)).to(dtype)


@operator("Det")
def det(node: Node, x: Value) -> Value:
    return ops.FUNCTIONS["linalg_det"](x.to(x.dtype.compute)).to(x.dtype)
