"""Gradients of convolutions: of the input, whose values are not needed, and of the weight, likewise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import ShapeError
from ..runtime import Tensor, enable_grad, grad, is_grad_enabled, ops
from . import functional as F

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradient(
    op: Callable, sides: tuple[Tensor, Tensor], which: int, grad_output: Tensor, settings: tuple
) -> Tensor:
    """The gradient of a convolution's input (0) or weight (1); it can be differentiated itself."""
    keep = is_grad_enabled()
    with enable_grad():
        sides[which].requires_grad_()
        output = op(sides[0], sides[1], None, *settings)
        if output.shape != grad_output.shape:
            raise ShapeError(
                f"{op.__name__}: the output is {[*output.shape]}, and grad_output {[*grad_output.shape]}"
            )
        return grad(output, sides[which], grad_output, create_graph=keep)[0]


def _of(n: int) -> tuple[Callable, Callable]:
    op = getattr(F, f"conv{n}d")

    def of_input(
        input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        input = ops.zeros(*input_size, dtype=weight.dtype, device=weight.device)
        return _gradient(op, (input, weight), 0, grad_output, (stride, padding, dilation, groups))

    def of_weight(
        input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        weight = ops.zeros(*weight_size, dtype=input.dtype, device=input.device)
        return _gradient(op, (input, weight), 1, grad_output, (stride, padding, dilation, groups))

    for function, side in ((of_input, "input"), (of_weight, "weight")):
        function.__name__ = function.__qualname__ = f"conv{n}d_{side}"
        function.__doc__ = (
            f"The gradient of conv{n}d's {side}, of shape `{side}_size`, for grad_output.  Raises ShapeError."
        )
    return of_input, of_weight


conv1d_input, conv1d_weight = _of(1)
conv2d_input, conv2d_weight = _of(2)
conv3d_input, conv3d_weight = _of(3)
