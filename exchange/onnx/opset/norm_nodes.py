"""Operators that bring elements to a common mean and spread, or to a common length."""

from __future__ import annotations

from math import prod

from ....ir.dtypes import DType, from_numpy_dtype
from ....nn import functional as F
from ....runtime import Tensor, ops
from ..declared import Node, OnnxError
from ..element_types import element_type
from .registry import Value, axis_of, operator


def _need_rank(node: Node, x: Tensor, least: int) -> None:
    if x.ndim < least:
        raise OnnxError(f"{node.op}: it takes {least} dimensions or more, not {[*x.shape]}", str(node))


def _moments(x: Tensor, dims: tuple[int, ...], kept: bool = False) -> tuple[Tensor, Tensor]:
    """The mean and the variance, in a dtype that holds them."""
    wide = x.to(x.dtype.compute)
    return (
        ops.FUNCTIONS["mean"](wide, dims, kept),
        ops.FUNCTIONS["var"](wide, dims, correction=0, keepdim=kept),
    )


# ---- by channel
@operator("BatchNormalization")
def batch_norm(node: Node, x: Value, scale: Value, bias: Value, mean: Value, var: Value) -> Value:
    _need_rank(node, x, 1)
    shape, weights, given = x.shape, (scale, bias), (mean, var)
    if x.ndim == 1:  # a batch of one channel
        x = x.reshape((shape[0], 1))
    elif node.opset < 9 and not node.attr("spatial", 1):  # each place is a channel of its own
        x = x.reshape((shape[0], prod(shape[1:])))
        weights, given = (tuple(each.reshape((-1,)) for each in pair) for pair in (weights, given))
    trains = node.attr("training_mode", 0) if node.opset >= 14 else any(node.outputs[1:])
    own = _moments(x, (0, *range(2, x.ndim))) if trains else given
    out = F.batch_norm(x, *own, *weights, False, eps=node.attr("epsilon", 1e-5))
    out = out if out.ndim == len(shape) else out.reshape(shape)
    return (out, *_moved(node, own, (mean, var))) if trains else out


def _moved(node: Node, own: tuple[Tensor, Tensor], running: tuple[Tensor, Tensor]) -> list[Tensor]:
    """The running statistics after a batch, and those of the batch alone, which older opsets give too."""
    share = node.attr("momentum", 0.9)
    batch = [new.reshape(old.shape) for new, old in zip(own, running, strict=True)]
    moved = [old * share + new * (1 - share) for new, old in zip(batch, running, strict=True)]
    return [new.to(old.dtype) for new, old in zip((*moved, *batch), (*running, *running), strict=True)]


def _by_groups(x: Tensor, groups: int, scale: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalise each group of channels of each sample; scale and shift by channel."""
    samples, channels, *places = x.shape
    rows = x.to(x.dtype.compute).reshape((samples, groups, channels // groups * prod(places)))
    row = (1, channels, *(1 for _ in places))
    out = F.layer_norm(rows, (rows.shape[2],), eps=eps).reshape(x.shape)
    return (out * scale.reshape(row) + bias.reshape(row)).to(x.dtype)


@operator("InstanceNormalization")
def instance_norm(node: Node, x: Value, scale: Value, bias: Value) -> Value:
    _need_rank(node, x, 2)
    return _by_groups(x, x.shape[1], scale, bias, node.attr("epsilon", 1e-5))


@operator("GroupNormalization")
def group_norm(node: Node, x: Value, scale: Value, bias: Value) -> Value:
    _need_rank(node, x, 2)
    groups, channels = node.attr("num_groups", 0), x.shape[1]
    if groups < 1 or channels % groups:
        raise OnnxError(
            f"GroupNormalization: {channels} channels don't divide into {groups} groups", str(node)
        )
    if node.opset < 21:  # one number a group
        scale, bias = (ops.FUNCTIONS["repeat_interleave"](each, channels // groups) for each in (scale, bias))
    return _by_groups(x, groups, scale, bias, node.attr("epsilon", 1e-5))


@operator("LRN")
def local_response_norm(node: Node, x: Value) -> Value:
    _need_rank(node, x, 3)
    size, alpha = node.attr("size", 0), node.attr("alpha", 1e-4)
    if size < 1:
        raise OnnxError(f"LRN: there are no {size} neighbouring channels", str(node))
    reach = min(size, 2 * x.shape[1] + 1)  # from there on each channel sees all
    # Of an even number of neighbours ONNX counts one more behind, PyTorch one more before.
    turned = (lambda x: ops.FUNCTIONS["flip"](x, (1,))) if reach % 2 == 0 else lambda x: x
    numbers = {"alpha": alpha * reach / size, "beta": node.attr("beta", 0.75), "k": node.attr("bias", 1.0)}
    return turned(F.local_response_norm(turned(x), reach, **numbers))


# ---- over the last axes
def _is_of(x: Value, shape: tuple[int, ...]) -> bool:
    return x is None or tuple(x.shape) == shape


@operator("LayerNormalization")
def layer_norm(node: Node, x: Value, scale: Value, bias: Value = None) -> Value:
    first, eps = axis_of(node.attr("axis", -1), x.ndim, node), node.attr("epsilon", 1e-5)
    shape = tuple(x.shape[first:])
    if _is_of(scale, shape) and _is_of(bias, shape):
        out = F.layer_norm(x, shape, scale, bias, eps)
    else:
        out = F.layer_norm(x, shape, eps=eps) * ops.FUNCTIONS["expand"](scale, x.shape)
        out = out if bias is None else out + ops.FUNCTIONS["expand"](bias, x.shape)
    if len(node.outputs) == 1:
        return out
    mean, var = _moments(x, tuple(range(first, x.ndim)), True)
    stash = _stash(node)
    return out, mean.to(stash), ops.FUNCTIONS["rsqrt"](var + eps).to(stash)


def _stash(node: Node) -> DType:
    """The dtype of the statistics.  Whatever it is, they are computed in float32, or float64 of such."""
    number = node.attr("stash_type", 1)
    found = from_numpy_dtype(element_type(number))
    if found is None or not found.is_floating_point:
        raise OnnxError(f"{node.op}: statistics are no {element_type(number)}", str(node))
    return found


@operator("RMSNormalization")
def rms_norm(node: Node, x: Value, scale: Value) -> Value:
    first, eps = axis_of(node.attr("axis", -1), x.ndim, node), node.attr("epsilon", 1e-5)
    shape = tuple(x.shape[first:])
    if _is_of(scale, shape) and scale.dtype is x.dtype:
        return F.rms_norm(x, shape, scale, eps)
    # The result is of the scale's dtype.
    return F.rms_norm(x, shape, eps=eps).to(scale.dtype) * ops.FUNCTIONS["expand"](scale, x.shape)


# ---- over any axes
@operator("LpNormalization")
def lp_norm(node: Node, x: Value) -> Value:
    p = node.attr("p", 2)
    if p not in (1, 2):
        raise OnnxError(f"LpNormalization: p is 1 or 2, not {p}", str(node))
    norm = ops.FUNCTIONS["linalg_vector_norm"](x, p, axis_of(node.attr("axis", -1), x.ndim, node), True)
    return x / ops.FUNCTIONS["where"](norm == 0, 1.0, norm)  # zeros stay such


@operator("MeanVarianceNormalization")
def mean_variance_norm(node: Node, x: Value) -> Value:
    dims = tuple(axis_of(axis, x.ndim, node) for axis in node.attr("axes", (0, 2, 3)))
    wide = x.to(x.dtype.compute)
    mean, var = _moments(wide, dims, True)
    return ((wide - mean) / (ops.FUNCTIONS["sqrt"](var) + 1e-9)).to(x.dtype)
