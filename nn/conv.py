"""Convolutions and transposed convolutions in one, two and three dimensions, as modules."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

from ..ir.errors import ArgumentValueError, ShapeError
from ..ir.shapes import pair
from ..runtime import Parameter, Tensor, ops
from . import functional as F
from . import init
from .module import Module

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(Module):
    """What all convolutions share.  `sizes` is how many spatial dimensions the class has."""

    _sizes: int
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ):
        super().__init__()
        name, n = type(self).__name__, self._sizes
        if groups <= 0 or in_channels % groups or out_channels % groups:
            raise ArgumentValueError(
                f"{name}: groups must be a positive integer and divide the channels "
                f"(in {in_channels}, out {out_channels}, groups {groups})"
            )
        modes = ("zeros",) if self.transposed else PADDING_MODES
        if padding_mode not in modes:
            rule = f"padding_mode must be one of {modes}"
            rule = 'Only "zeros" can be padding_mode' if self.transposed else rule
            raise ArgumentValueError(f"{name}: {rule}, not {padding_mode!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = (
            pair(name, "kernel_size", kernel_size, n),
            pair(name, "stride", stride, n),
        )
        self.dilation = pair(name, "dilation", dilation, n)
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ArgumentValueError(
                    f"{name}: Invalid padding string {padding!r}: padding must be ints, 'same' or 'valid'"
                )
            if padding == "same" and any(s != 1 for s in self.stride):
                raise ArgumentValueError(f"{name}: padding='same' needs a stride of 1, not {self.stride}")
            self.padding: Any = padding
        else:
            self.padding = pair(name, "padding", padding, n)
        self.output_padding = pair(name, "output_padding", output_padding, n)
        self.padding_mode = padding_mode
        channels = (
            (in_channels, out_channels // groups)
            if self.transposed
            else (out_channels, in_channels // groups)
        )
        self.weight = Parameter(ops.empty(*channels, *self.kernel_size, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(ops.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias uniformly within 1 / sqrt(inputs of one output)."""
        init.kaiming_uniform_(self.weight, a=sqrt(5))
        if self.bias is not None:
            inputs = prod(self.weight.shape[1:])
            if inputs:
                init.uniform_(self.bias, -1 / sqrt(inputs), 1 / sqrt(inputs))

    @property
    def _reversed_padding_repeated_twice(self) -> list[int]:
        """What `pad` adds around the input: before and after each dimension, the last one first."""
        if self.padding == "valid":
            return [0] * (2 * self._sizes)
        if self.padding == "same":
            total = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
            around = [(t // 2, t - t // 2) for t in total]
        else:
            around = [(p, p) for p in self.padding]
        return [p for before_after in reversed(around) for p in before_after]

    def extra_repr(self) -> str:
        zeros, ones = (0,) * self._sizes, (1,) * self._sizes
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}",
            f"padding={self.padding}" if self.padding != zeros else "",
            f"dilation={self.dilation}" if self.dilation != ones else "",
            f"output_padding={self.output_padding}" if self.output_padding != zeros else "",
            f"groups={self.groups}" if self.groups != 1 else "",
            "bias=False" if self.bias is None else "",
            f"padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "",
        ]
        return ", ".join(part for part in parts if part)


class _ConvForward(_Conv):
    """A convolution; `run` is its function."""

    _run: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias, padding_mode,
            device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution by other weights.  PyTorch's name: derived classes call it, or replace it."""
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return self._run(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_ConvForward):
    """Slide a weight along the last dimension.

    Shapes: [N, C_in, L] -> [N, C_out, L_out]; the batch may be missing.
    """

    _sizes, _run = 1, staticmethod(ops.conv1d)


class Conv2d(_ConvForward):
    """Slide a weight over two dimensions.  Shapes: [N, C_in, H, W] -> [N, C_out, H_out, W_out]."""

    _sizes, _run = 2, staticmethod(ops.conv2d)


class Conv3d(_ConvForward):
    """Slide a weight over three dimensions.

    Shapes: [N, C_in, D, H, W] -> [N, C_out, D_out, H_out, W_out].
    """

    _sizes, _run = 3, staticmethod(ops.conv3d)


class _ConvTranspose(_Conv):
    """A transposed convolution; `run` is its function."""

    transposed = True
    _run: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        extra = self._output_padding(
            input, output_size, self.stride, self.padding, self.kernel_size, self._sizes, self.dilation
        )
        return self._run(
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _output_padding(
        self, input: Tensor, output_size: Any, stride: Any, padding: Any, kernel_size: Any,
        num_spatial_dims: int, dilation: Any = None,
    ) -> list[int]:  # fmt: skip
        """The output_padding that gives `output_size`, or the module's own; derived classes call it, too.

        Raises ShapeError where none does.
        """
        if output_size is None:
            return list(self.output_padding)
        n = num_spatial_dims
        output_size = tuple(output_size)[-n:]
        every = zip(input.shape[-n:], stride, padding, dilation or (1,) * n, kernel_size)
        least = [(i - 1) * s - 2 * p + d * (k - 1) + 1 for i, s, p, d, k in every]
        extra = [wanted - small for wanted, small in zip(output_size, least)]
        if len(output_size) != n or any(not 0 <= e < s for e, s in zip(extra, stride)):
            most = [small + s - 1 for small, s in zip(least, stride)]
            raise ShapeError(
                f"{type(self).__name__}: output_size {list(output_size)} is not between {least} and {most}"
            )
        return extra


class ConvTranspose1d(_ConvTranspose):
    """Undo the sizes of Conv1d.  Shapes: [N, C_in, L] -> [N, C_out, L_out]."""

    _sizes, _run = 1, staticmethod(ops.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """Undo the sizes of Conv2d.  Shapes: [N, C_in, H, W] -> [N, C_out, H_out, W_out]."""

    _sizes, _run = 2, staticmethod(ops.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """Undo the sizes of Conv3d.  Shapes: [N, C_in, D, H, W] -> [N, C_out, D_out, H_out, W_out]."""

    _sizes, _run = 3, staticmethod(ops.conv_transpose3d)
