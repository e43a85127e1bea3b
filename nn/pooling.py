"""Pooling modules: the greatest, the mean, the p-norm of each window."""

from __future__ import annotations

from typing import Any

from ..ir.errors import ArgumentValueError
from ..ir.shapes import pair
from ..runtime import Tensor
from . import functional as F
from .module import Module


class _MaxPool(Module):
    _function: Any

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            ceil_mode=self.ceil_mode,
            return_indices=self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The greatest of each window.

    Shapes: [N, C, L] -> [N, C, L_out]; `return_indices`: and where it stood.
    """

    _function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The greatest of each window.  Shapes: [N, C, H, W] -> [N, C, H_out, W_out]."""

    _function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The greatest of each window.  Shapes: [N, C, D, H, W] -> [N, C, D_out, H_out, W_out]."""

    _function = staticmethod(F.max_pool3d)


class _MaxUnpool(Module):
    _function: Any
    _sizes: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        super().__init__()
        name, n = type(self).__name__, self._sizes
        self.kernel_size = pair(name, "kernel_size", kernel_size, n)
        self.stride = pair(name, "stride", kernel_size if stride is None else stride, n)
        self.padding = pair(name, "padding", padding, n)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return self._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Put the results of MaxPool1d back where they stood, zeros elsewhere."""

    _function, _sizes = staticmethod(F.max_unpool1d), 1


class MaxUnpool2d(_MaxUnpool):
    """Put the results of MaxPool2d back where they stood, zeros elsewhere."""

    _function, _sizes = staticmethod(F.max_unpool2d), 2


class MaxUnpool3d(_MaxUnpool):
    """Put the results of MaxPool3d back where they stood, zeros elsewhere."""

    _function, _sizes = staticmethod(F.max_unpool3d), 3


class AvgPool1d(Module):
    """The mean of each window.  Shapes: [N, C, L] -> [N, C, L_out]."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        super().__init__()
        self.kernel_size = pair("AvgPool1d", "kernel_size", kernel_size, 1)
        self.stride = pair("AvgPool1d", "stride", kernel_size if stride is None else stride, 1)
        self.padding = pair("AvgPool1d", "padding", padding, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    _function: Any

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(_AvgPool):
    """The mean of each window.  Shapes: [N, C, H, W] -> [N, C, H_out, W_out]."""

    _function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPool):
    """The mean of each window.  Shapes: [N, C, D, H, W] -> [N, C, D_out, H_out, W_out]."""

    _function = staticmethod(F.avg_pool3d)


class _LPPool(Module):
    _function: Any

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
        super().__init__()
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = (
            norm_type,
            kernel_size,
            stride,
            ceil_mode,
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of [N, C, L]."""

    _function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """The p-norm of each window of [N, C, H, W]."""

    _function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """The p-norm of each window of [N, C, D, H, W]."""

    _function = staticmethod(F.lp_pool3d)


class _Adaptive(Module):
    _function: Any

    def __init__(self, output_size: Any):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        return self._function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """Means of windows chosen so that `output_size` of them cover [N, C, L]."""

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_Adaptive):
    """Means of windows chosen so that `output_size` of them cover [N, C, H, W]; None keeps a size."""

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_Adaptive):
    """Means of windows chosen so that `output_size` of them cover [N, C, D, H, W]; None keeps a size."""

    _function = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self._function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The greatest of windows chosen so that `output_size` of them cover [N, C, L]."""

    _function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The greatest of windows chosen so that `output_size` of them cover [N, C, H, W]; None keeps a size."""

    _function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The greatest of windows chosen so that `output_size` of them cover [N, C, D, H, W].

    None keeps a size.
    """

    _function = staticmethod(F.adaptive_max_pool3d)


class _FractionalMaxPool(Module):
    _function: Any
    _sizes: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ):
        super().__init__()
        name, n = type(self).__name__, self._sizes
        if (output_size is None) == (output_ratio is None):
            raise ArgumentValueError(f"{name}: one of output_size and output_ratio must be given")
        self.kernel_size = pair(name, "kernel_size", kernel_size, n)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else pair(name, "output_size", output_size, n)
        ratio = output_ratio
        if ratio is not None:
            ratio = tuple(ratio) if isinstance(ratio, (tuple, list)) else (ratio,) * n
            if len(ratio) != n or not all(isinstance(r, (int, float)) and 0 < r < 1 for r in ratio):
                raise ArgumentValueError(
                    f"{name}: output_ratio must lie between 0 and 1, not at {output_ratio}"
                )
        self.output_ratio = ratio

    def forward(self, input: Tensor) -> Any:
        return self._function(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The greatest of windows at places drawn at random.  Shapes: [N, C, H, W] -> [N, C, *output_size]."""

    _sizes, _function = 2, staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """The greatest of windows at places drawn at random.  Shapes: [N, C, D, H, W] -> [N, C, *output_size]."""

    _sizes, _function = 3, staticmethod(F.fractional_max_pool3d)
