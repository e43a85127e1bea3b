"""Modules that learn from their first input how many features or channels they have."""

from __future__ import annotations

from typing import Any

from ..ir.dtypes import int64
from ..ir.errors import ArgumentValueError, ShapeError
from ..runtime import Tensor, no_grad, ops
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy


class LazyModuleMixin:
    """Let a module make its parameters when it is first called.

    A class puts this before the module's class among its bases, creates `UninitializedParameter`s, and says
    in `initialize_parameters(*input)` which shapes they get.  After that call, an instance is one of
    `cls_to_become`.  A state loaded before gives the shapes too.
    """

    cls_to_become: Any = None

    def __init__(self: Any, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give every uninitialised parameter its shape and values, from what forward gets."""
        raise ArgumentValueError(f"{type(self).__name__} defines no initialize_parameters(input)")

    def has_uninitialized_params(self: Any) -> bool:
        """Whether a parameter or buffer of this module's own has no shape yet."""
        return any(map(is_lazy, (*self._parameters.values(), *self._buffers.values())))

    def reset_parameters(self: Any) -> None:
        """Draw the parameters, if they have shapes."""
        if not self.has_uninitialized_params() and self._is_known():
            super().reset_parameters()  # type: ignore[misc]

    def _is_known(self) -> bool:
        """Whether the module knows the size that it learns."""
        return True

    def _infer_parameters(self: Any, module: Any, args: tuple, kwargs: dict[str, Any] | None = None) -> None:
        """Before the first forward: make the parameters, and become an ordinary module."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise ArgumentValueError(
                f"{type(module).__name__}.initialize_parameters left parameters without a shape"
            )
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _lazy_load_hook(self: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
        """Before a state is loaded: take the shapes from it."""
        for members in (self._parameters, self._buffers):
            for name, value in members.items():
                given = state.get(prefix + name)
                if is_lazy(value) and isinstance(given, Tensor) and not is_lazy(given):
                    with no_grad():
                        value.materialize(given.shape)


def _unmade(self: Any, name: str, kind: dict[str, Any]) -> None:
    """Put an uninitialised parameter, or a buffer where there is a buffer of that name, under `name`."""
    made = UninitializedBuffer if name in self._buffers else UninitializedParameter
    setattr(self, name, made(**kind))


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose `in_features` are those of the first input."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(0, 0, False)
        self.out_features = out_features
        for name in ("weight", "bias")[: 1 + bool(bias)]:
            _unmade(self, name, {"device": device, "dtype": dtype})

    def _is_known(self) -> bool:
        return self.in_features != 0

    def initialize_parameters(self, input: Tensor) -> None:
        """Take `in_features` from the last dimension."""
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        self.in_features = self.in_features or input.shape[-1]


class _LazyConv(LazyModuleMixin):
    """What lazy convolutions share."""

    def _later(self: Any, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.out_channels = out_channels
        for name in ("weight", "bias")[: 1 + bool(bias)]:
            _unmade(self, name, {"device": device, "dtype": dtype})

    def _is_known(self: Any) -> bool:
        return self.in_channels != 0

    def initialize_parameters(self: Any, input: Tensor, *_: Any, **__: Any) -> None:
        """Take `in_channels` from the dimension before the last `sizes` ones.  Raises ShapeError."""
        name = type(self).__name__
        if not self.has_uninitialized_params():
            self.in_channels = self.in_channels or input.shape[-self._sizes - 1]
            return
        ranks = self._sizes + 1, self._sizes + 2
        if input.ndim not in ranks:
            raise ShapeError(
                f"{name} takes an input of {ranks[0]} or {ranks[1]} dimensions, not {input.ndim}",
                f"input: {input._meta}",
            )
        channels = input.shape[-self._sizes - 1]
        if channels % self.groups:
            raise ArgumentValueError(f"{name}: groups must divide the channels ({channels} by {self.groups})")
        self.in_channels, out = channels, self.out_channels
        pair = (channels, out // self.groups) if self.transposed else (out, channels // self.groups)
        with no_grad():
            self.weight.materialize((*pair, *self.kernel_size))
            if self.bias is not None:
                self.bias.materialize((out,))
            self.reset_parameters()


class _LazyConvForward(_LazyConv):
    def __init__(
        self,
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
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._later(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConv):
    def __init__(
        self,
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
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode
        )
        self._later(out_channels, bias, device, dtype)


class LazyConv1d(_LazyConvForward, Conv1d):
    """A Conv1d whose `in_channels` are those of the first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvForward, Conv2d):
    """A Conv2d whose `in_channels` are those of the first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvForward, Conv3d):
    """A Conv3d whose `in_channels` are those of the first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A ConvTranspose1d whose `in_channels` are those of the first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A ConvTranspose2d whose `in_channels` are those of the first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A ConvTranspose3d whose `in_channels` are those of the first input."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin):
    """What lazy batch and instance norms share."""

    def __init__(
        self: Any,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        super().__init__(0, eps, momentum, False, False)
        self.affine, self.track_running_stats = affine, track_running_stats
        later = ("weight", "bias")[: 1 + bool(bias)] if affine else ()
        for name in (*later, *(("running_mean", "running_var") if track_running_stats else ())):
            _unmade(self, name, {"device": device, "dtype": dtype})
        if track_running_stats:
            self.num_batches_tracked = ops.zeros((), dtype=int64, device=device)

    def _is_known(self: Any) -> bool:
        return self.num_features != 0

    def reset_running_stats(self: Any) -> None:
        """Reset the running statistics, if they have shapes."""
        if not self.has_uninitialized_params():
            super().reset_running_stats()  # type: ignore[misc]

    def initialize_parameters(self: Any, input: Tensor) -> None:
        """Take `num_features` from the second dimension."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            with no_grad():
                for value in (*self._parameters.values(), *self._buffers.values()):
                    if is_lazy(value):
                        value.materialize((self.num_features,))
                self.reset_parameters()
        self.num_features = self.num_features or input.shape[1]


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A BatchNorm1d whose `num_features` are those of the first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A BatchNorm2d whose `num_features` are those of the first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A BatchNorm3d whose `num_features` are those of the first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An InstanceNorm1d whose `num_features` are those of the first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An InstanceNorm2d whose `num_features` are those of the first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An InstanceNorm3d whose `num_features` are those of the first input."""

    cls_to_become = InstanceNorm3d
