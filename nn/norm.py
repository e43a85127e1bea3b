"""Normalisation modules: over a batch, a layer, groups of channels, neighbouring channels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError, ShapeError
from ..runtime import Parameter, Tensor, modes, ops
from . import functional as F
from . import init
from .module import Module


class _ByChannel(Module):
    """What batch and instance norm share: scale and shift by channel, and running statistics.

    `ranks`: the numbers of dimensions that an input may have.
    """

    _input_ranks: tuple[int, ...]
    _version = 2  # of its state, as PyTorch counts: 1 had no num_batches_tracked
    _optional_state = ("num_batches_tracked",)

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        kind = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ops.ones(num_features, **kind)) if affine else None)
        self.register_parameter(
            "bias", Parameter(ops.zeros(num_features, **kind)) if affine and bias else None
        )
        tracked = track_running_stats
        self.register_buffer("running_mean", ops.zeros(num_features, **kind) if tracked else None)
        self.register_buffer("running_var", ops.ones(num_features, **kind) if tracked else None)
        self.register_buffer(
            "num_batches_tracked", ops.zeros((), dtype=int64, device=device) if tracked else None
        )

    def reset_running_stats(self) -> None:
        """Set the running mean to 0, the running variance to 1, and forget how many batches were seen."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set the scale to 1 and the shift to 0, and reset the running statistics."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        """Refuse an input of another rank.  PyTorch's name: who derives a norm of his own replaces it."""
        if not hasattr(self, "_input_ranks"):
            raise NotImplementedError(f"{type(self).__name__} does not say which ranks it takes")
        if input.ndim not in self._input_ranks:
            ranks = " or ".join(str(n) for n in self._input_ranks)
            raise ShapeError(
                f"{type(self).__name__} takes an input of {ranks} dimensions, not {input.ndim}",
                f"input: {input._meta}",
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_ByChannel):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if momentum is None:  # the mean over all batches, whose count stays a tensor: no call asks for it
                momentum = 1.0 / self.num_batches_tracked.double()
        own = self.training or self.running_mean is None
        tracked = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if tracked else (None, None)
        return F.batch_norm(
            input, mean, var, self.weight, self.bias, own, 0.0 if momentum is None else momentum, self.eps
        )


class BatchNorm1d(_BatchNorm):
    """Normalise each channel over the batch.  Shapes: [N, C] or [N, C, L] -> the same."""

    _input_ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalise each channel over the batch.  Shapes: [N, C, H, W] -> the same."""

    _input_ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalise each channel over the batch.  Shapes: [N, C, D, H, W] -> the same."""

    _input_ranks = (5,)


class _InstanceNorm(_ByChannel):
    """`ranks`: without and with a batch."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def _get_no_batch_dim(self) -> int:
        """The rank of an input without a batch; replaced by who derives a norm of his own."""
        if not hasattr(self, "_input_ranks"):
            raise NotImplementedError(f"{type(self).__name__} does not say which ranks it takes")
        return self._input_ranks[0]

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        alone = input.ndim == self._get_no_batch_dim()
        channels = input.shape[1 - alone]
        if channels != self.num_features:
            if self.affine:
                raise ShapeError(
                    f"{type(self).__name__}: expected input's size at dim={1 - alone} to match num_features "
                    f"({self.num_features}), but got: {channels}",
                    f"input: {input._meta}",
                )
            if modes.CHANGED:
                modes.tell("once", "a norm warned of an input that has not its number of channels")
            warnings.warn(
                f"input's size at dim={1 - alone} does not match num_features. You can silence this warning "
                "by not passing in num_features, which is not used because affine=False",
                stacklevel=2,
            )
        own = self.training or not self.track_running_stats
        out = F.instance_norm(
            input.unsqueeze(0) if alone else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            own,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return out.squeeze(0) if alone else out


class InstanceNorm1d(_InstanceNorm):
    """Normalise each channel of each sample.  Shapes: [N, C, L] -> the same; the batch may be missing."""

    _input_ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalise each channel of each sample.  Shapes: [N, C, H, W] -> the same; the batch may be missing."""

    _input_ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalise each channel of each sample.

    Shapes: [N, C, D, H, W] -> the same; the batch may be missing.
    """

    _input_ranks = (4, 5)


class LayerNorm(Module):
    """Normalise over the last dimensions.  Shapes: [..., *normalized_shape] -> the same."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        shape = tuple(normalized_shape) if isinstance(normalized_shape, Iterable) else (normalized_shape,)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        kind = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ops.ones(shape, **kind)) if elementwise_affine else None)
        shifted = elementwise_affine and bias
        self.register_parameter("bias", Parameter(ops.zeros(shape, **kind)) if shifted else None)

    def reset_parameters(self) -> None:
        """Set the scale to 1 and the shift to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root of the mean square over the last dimensions.

    Shapes: [..., *normalized_shape] -> the same.
    """

    def __init__(
        self,
        normalized_shape: Any,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        shape = tuple(normalized_shape) if isinstance(normalized_shape, Iterable) else (normalized_shape,)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        made = Parameter(ops.ones(shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", made)

    def reset_parameters(self) -> None:
        """Set the scale to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalise each of `num_groups` groups of channels, sample by sample.

    Shapes: [N, C, ...] -> the same.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        if num_channels % num_groups:
            raise ArgumentValueError(
                f"GroupNorm: num_channels must be divisible by num_groups ({num_channels} by {num_groups})"
            )
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        kind = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ops.ones(num_channels, **kind)) if affine else None)
        self.register_parameter(
            "bias", Parameter(ops.zeros(num_channels, **kind)) if affine and bias else None
        )

    def reset_parameters(self) -> None:
        """Set the scale to 1 and the shift to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divide by a power of the mean square of `size` neighbouring channels.

    Shapes: [N, C, ...] -> the same.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """Divide by (k + alpha / size * sum of squares over neighbouring channels) ** beta.

    Shapes: [N, C, H, W] -> the same.  The channels summed are an odd number, size or size - 1, and, as in
    PyTorch, the first one again wherever the window has left it behind.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise ShapeError(
                f"CrossMapLRN2d takes an input of 4 dimensions, not {input.ndim}", f"input: {input._meta}"
            )
        reach, channels = (self.size - 1) // 2, input.shape[1]
        squares = input * input
        sums = F.pad(squares, (0, 0, 0, 0, reach, reach)).unfold(1, 2 * reach + 1, 1).sum(-1)
        if channels > reach + 1:
            first = squares[:, :1].expand(-1, channels - reach - 1, -1, -1)
            sums = sums + F.pad(first, (0, 0, 0, 0, reach + 1, 0))
        return input * (self.k + self.alpha / self.size * sums) ** -self.beta

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
