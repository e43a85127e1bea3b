"""Answer `torch.utils.tensorboard`: curves, pictures and texts for TensorBoard, written by tensorboardX.

The library's own SummaryWriter, whose methods take Lamina's tensors too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..ir.dtypes import bfloat16, float16
from ..ir.errors import ArgumentError
from ..ir.lazy import load
from ..runtime import Tensor

HALVES = (bfloat16, float16)
_base: Any = load("tensorboardX", "tensorboard")


def _plain(value: Any) -> Any:
    """A value of an argument with arrays in the places of tensors, numbers in those of tensors of no dims."""
    if isinstance(value, Tensor):
        if value.ndim == 0:
            return value.item()
        value = value.detach()
        return (value.float() if value.dtype in HALVES else value).numpy()  # NumPy has no bfloat16
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(_plain, value))
    return value


def _taking_tensors(method: Callable) -> Callable:
    @functools.wraps(method)
    def take(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})

    return take


class SummaryWriter(_base.SummaryWriter):
    """Writes what TensorBoard shows into a folder, by default runs/DATE_HOST.

    add_scalar, add_scalars, add_histogram, add_image, add_images, add_figure, add_text, add_hparams,
    add_pr_curve, add_embedding, add_mesh, add_video and their kin are tensorboardX's.  Source:
    https://tensorboardx.readthedocs.io.
    """

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, **_: Any) -> None:
        """Refused: such graphs are drawn of PyTorch's own traces.  Raises ArgumentError."""
        raise ArgumentError(
            "add_graph: TensorBoard's graphs are of PyTorch's nodes",
            "utils.summary(model, shape) lists modules; explain() and kernels() tell what a trace compiled",
        )


for _name, _method in vars(_base.SummaryWriter).items():
    if _name.startswith("add_") and _name not in vars(SummaryWriter):
        setattr(SummaryWriter, _name, _taking_tensors(_method))

__all__ = ["SummaryWriter"]
