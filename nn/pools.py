"""Max pooling with `return_indices`, which decides how many results there are."""

from __future__ import annotations

from typing import Any

from ..runtime import Tensor, ops

_PLAIN = {1: ops.max_pool1d, 2: ops.max_pool2d, 3: ops.max_pool3d}
_INDEXED = {1: ops.max_pool1d_with_indices, 2: ops.max_pool2d_with_indices, 3: ops.max_pool3d_with_indices}
_ADAPTIVE = {1: ops.adaptive_max_pool1d, 2: ops.adaptive_max_pool2d, 3: ops.adaptive_max_pool3d}
_ADAPTIVE_INDEXED = {
    1: ops.adaptive_max_pool1d_with_indices,
    2: ops.adaptive_max_pool2d_with_indices,
    3: ops.adaptive_max_pool3d_with_indices,
}


def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window of [N, C, L], and with `return_indices` its place in L."""
    return (_INDEXED if return_indices else _PLAIN)[1](
        input, kernel_size, stride, padding, dilation, ceil_mode
    )


def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window of [N, C, H, W], and with `return_indices` its place in H W, flattened."""
    return (_INDEXED if return_indices else _PLAIN)[2](
        input, kernel_size, stride, padding, dilation, ceil_mode
    )


def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window of [N, C, D, H, W], and with `return_indices` its place in D H W."""
    return (_INDEXED if return_indices else _PLAIN)[3](
        input, kernel_size, stride, padding, dilation, ceil_mode
    )


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` parts of L, and with `return_indices` its place."""
    return (_ADAPTIVE_INDEXED if return_indices else _ADAPTIVE)[1](input, output_size)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` parts of H and W, and with `return_indices` its place."""
    return (_ADAPTIVE_INDEXED if return_indices else _ADAPTIVE)[2](input, output_size)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of each of `output_size` parts of D, H and W, and with `return_indices` its place."""
    return (_ADAPTIVE_INDEXED if return_indices else _ADAPTIVE)[3](input, output_size)
