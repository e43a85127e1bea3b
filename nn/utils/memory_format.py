"""PyTorch's conversions of convolution weights to other memory formats, of which there is one here."""

from __future__ import annotations

from typing import Any

from ...ir.errors import ArgumentValueError
from ..module import Module

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]

FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def convert_conv2d_weight_memory_format(module: Module, memory_format: Any) -> Module:
    """Return the module: how its weights lie for the CPU's vectors is the compiler's affair.

    Raises ArgumentValueError for what is no memory format.
    """
    if memory_format not in FORMATS:
        raise ArgumentValueError(
            f"convert_conv_weight_memory_format: {memory_format!r} is none of {', '.join(FORMATS)}"
        )
    return module


convert_conv3d_weight_memory_format = convert_conv2d_weight_memory_format
