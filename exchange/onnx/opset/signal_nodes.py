"""Operators of signal processing: Fourier transforms, windows, and the mel scale."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....ir.dtypes import float32, float64
from ....runtime import Tensor, ops
from ....runtime.allowance import afford
from ..declared import Node, OnnxError
from ..element_types import element_type
from .registry import Value, as_tensor, axis_of, number, operator

MOST = 1 << 28  # numbers that a size of the file may ask for


def _size(node: Node, name: str, value: Value, least: int, most: int = MOST) -> int:
    """A size as a number.  Raises OnnxError for one that can't be."""
    found = number(value)
    if not least <= found <= most:
        raise OnnxError(f"{node.op}: {name} is a number from {least} to {most}, not {found}", str(node))
    return int(found)


# ---- Fourier transforms
def _wide(x: Tensor) -> Tensor:
    """Numbers of a dtype that transforms know."""
    return x if x.dtype is float64 else x.to(float32)


def _signal(node: Node, x: Tensor) -> Tensor:
    """Numbers [...] of their parts [..., 1 or 2]."""
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise OnnxError(f"{node.op}: {[*x.shape]} must end with the 1 or 2 parts of numbers", str(node))
    return x[..., 0] if x.shape[-1] == 1 else ops.view_as_complex(x.contiguous())


def _transformed(node: Node, x: Tensor, length: int | None, axis: int, half: bool, back: bool) -> Tensor:
    """The parts of a transform, whose complex side is but `half` of it where the other is real."""
    if half and back != x.dtype.is_complex:
        raise OnnxError(f"{node.op}: onesided is for real numbers, and inverse for complex ones", str(node))
    made = ops.FUNCTIONS[f"fft_{'i' * back}{'r' * half}fft"](x, length, axis)
    return ops.view_as_real(made) if made.dtype.is_complex else made[..., None]


@operator("DFT", raw=True)
def dft(node: Node, x: Value, length: Value = None, axis: Value = None) -> Tensor:
    x = as_tensor(x)
    at = node.attr("axis", 1) if node.opset < 20 else number(axis, -2)
    at = axis_of(at, x.ndim, node)
    if at == x.ndim - 1:
        raise OnnxError("DFT: the last axis holds the parts of numbers, not a signal", str(node))
    count = None if length is None else _size(node, "dft_length", length, 1)
    half, back = bool(node.attr("onesided", 0)), bool(node.attr("inverse", 0))
    return _transformed(node, _signal(node, _wide(x)), count, at, half, back).to(x.dtype)


@operator("STFT", raw=True)
def stft(node: Node, x: Value, step: Value, window: Value = None, length: Value = None) -> Tensor:
    x, window = as_tensor(x), as_tensor(window)
    if x.ndim != 3:
        raise OnnxError(f"STFT: the signal has 3 dimensions, not {x.ndim}", str(node))
    whole, by = x.shape[1], _size(node, "frame_step", step, 1)
    size = whole if window is None else int(window.numel())
    size = size if length is None else _size(node, "frame_length", length, 1)
    if window is not None and tuple(window.shape) != (size,):
        raise OnnxError(f"STFT: the window is of shape [{size}], not {[*window.shape]}", str(node))
    if not 1 <= size <= whole:
        raise OnnxError(f"STFT: frames of {size} do not fit into a signal of {whole}", str(node))
    frames = _wide(x).unfold(1, size, by)  # [b, frames, parts, size]
    frames = frames if window is None else frames * window.to(frames.dtype)
    signal = _signal(node, frames.transpose(2, 3))
    return _transformed(node, signal, None, 2, bool(node.attr("onesided", 1)), False).to(x.dtype)


# ---- windows: sums of cosines
WINDOWS = {"HannWindow": (0.5, 0.5), "HammingWindow": (25 / 46, 21 / 46), "BlackmanWindow": (0.42, 0.5, 0.08)}


def _window(factors: tuple[float, ...], node: Node, size: Value) -> np.ndarray:
    """a0 - a1 cos(t) + a2 cos(2t), from 0 to 2 pi; what has but one point is 1."""
    count = _size(node, "size", size, 0)
    afford((count,), 32, node.op)
    steps = count if node.attr("periodic", 1) else count - 1
    turns = 2 * np.pi * np.arange(count) / max(steps, 1)
    made = sum(a * (-1) ** n * np.cos(n * turns) for n, a in enumerate(factors))
    made = made if steps else np.ones(count)
    return made.astype(element_type(node.attr("output_datatype", 1)))


for _name, _factors in WINDOWS.items():
    operator(_name, raw=True)(partial(_window, _factors))


# ---- the mel scale
def _mel(hertz: float) -> float:
    return 2595 * np.log10(1 + hertz / 700)


@operator("MelWeightMatrix", raw=True)
def mel_weights(node: Node, bands: Value, length: Value, rate: Value, low: Value, high: Value) -> np.ndarray:
    """A triangle for each band, between points that lie evenly on the mel scale."""
    size = _size(node, "dft_length", length, 1)
    count = _size(node, "num_mel_bins", bands, 0, MOST // (size // 2 + 1))
    per_second = _size(node, "sample_rate", rate, 1, 1 << 62)
    begin, end = float(number(low)), float(number(high))
    if not 0 <= begin <= end < np.inf:
        raise OnnxError(f"MelWeightMatrix: there are no bands from {begin} to {end} hertz", str(node))
    afford((count + 2, size // 2 + 1), 32, node.op)
    step = (_mel(end) - _mel(begin)) / (count + 2)
    hertz = 700 * (10 ** ((_mel(begin) + step * np.arange(count + 2)) / 2595) - 1)
    points = np.floor((size + 1) * hertz / per_second)
    left, centre, right = points[:-2], points[1:-1], points[2:]
    at = np.arange(size // 2 + 1)[:, None]
    up = (at - left) / np.maximum(centre - left, 1)
    down = (right - at) / np.maximum(right - centre, 1)
    made = np.where(at == centre, 1.0, np.maximum(np.where(at < centre, up, down), 0))
    return made.astype(element_type(node.attr("output_datatype", 1)))
