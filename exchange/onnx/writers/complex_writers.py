"""Write what is left of complex numbers, pairs of parts along a last dimension: Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt

import numpy as np

from ....ir.dtypes import int64
from ....ir.graph import Node
from .graph_writer import PAIRED, Name, Writer, Written, is_static, reason_against, writer
from .shape_writers import part


@writer("by_pairs")
def by_pairs(w: Writer, node: Node, *operands: Name) -> Written:
    body = node.attrs["body"]
    inner = body.nodes[0]
    if len(body.nodes) != 1 or body.results != inner.outputs or inner.op.name not in TRANSFORMS:
        op = next((each.op for each in body.nodes if each.op.name not in TRANSFORMS), inner.op)
        raise w.refusal(inner, reason_against(op) or "ONNX has it of real numbers alone")
    given = dict(zip(body.params, operands, strict=True))
    shape = inner.inputs[0].shape
    if not is_static([shape[d] for d in inner.attrs["dim"]]):
        raise w.refusal(inner, "it transforms a dimension whose size changes")
    return TRANSFORMS[inner.op.name](w, given[inner.inputs[0]], shape, **inner.attrs)


def c2c(w: Writer, pairs: Name, shape: Sequence[int], dim: Sequence[int], scale: str, forward: bool) -> Name:
    for d in dim:
        pairs = _transformed(w, pairs, d, inverse=not forward)
    return _scaled(w, pairs, [shape[d] for d in dim], scale, forward)


def r2c(w: Writer, real: Name, shape: Sequence[int], dim: Sequence[int], scale: str) -> Name:
    *others, last = dim
    pairs = _transformed(w, w.unsqueezed(real, len(shape)), last, onesided=1)
    for d in others:
        pairs = _transformed(w, pairs, d)
    return _scaled(w, pairs, [shape[d] for d in dim], scale, True)


def c2r(w: Writer, pairs: Name, shape: Sequence[int], dim: Sequence[int], size: int, scale: str) -> Name:
    """The half that is not there is the conjugate of the other, backwards."""
    *others, last = dim
    for d in others:
        pairs = _transformed(w, pairs, d, inverse=True)
    missing = size - shape[last]
    if missing:
        vectors = [np.array([n], np.int64) for n in (missing, 0, last, -1)]
        mirrored = w.emit("Slice", pairs, *map(w.constant, vectors))
        signs = w.constant(np.array([1, -1], w.dtypes[pairs].numpy))
        pairs = w.emit("Concat", pairs, w.emit("Mul", mirrored, signs), axis=last)
    full = (*shape[:last], size, *shape[last + 1 :])
    pairs = _scaled(w, _transformed(w, pairs, last, inverse=True), [full[d] for d in dim], scale, False)
    whole = [("slice", 0, n, 1) for n in full]
    return part(w, pairs, (*full, 2), (*whole, ("int", 0)))


PAIRED.update(("complex", "real", "imag", "pairs_to_complex", "view_as_complex", "view_as_real"))
TRANSFORMS: dict[str, Callable[..., Name]] = {"fft_c2c": c2c, "fft_r2c": r2c, "fft_c2r": c2r}

PAIRED.update(TRANSFORMS)


def _transformed(w: Writer, pairs: Name, dim: int, inverse: bool = False, **attrs: int) -> Name:
    if w.opset < 20:
        return w.emit("DFT", pairs, axis=dim, inverse=int(inverse), **attrs)
    return w.emit("DFT", pairs, None, w.constant(dim, int64), inverse=int(inverse), **attrs)


def _scaled(w: Writer, pairs: Name, sizes: Sequence[int], scale: str, forward: bool) -> Name:
    """ONNX divides by the size on the way back."""
    count = prod(sizes)
    factor = {"none": 1.0, "ortho": 1 / sqrt(count), "n": 1 / count}[scale] * (1 if forward else count)
    return pairs if factor == 1 else w.emit("Mul", pairs, factor)
