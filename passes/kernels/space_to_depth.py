"""A strided convolution of few channels as one of stride 1, of the places that a stride passes as channels.

    y[n, k, i, j] = sum(c r s) x[n, c, 2*i+r-p, 2*j+s-p] * w[k, c, r, s]          7 x 7 taps of 3 channels
    ->
    d[n, 4*c+2*e+f, i, j] = x[n, c, 2*i+e-p, 2*j+f-p]                             zeros outside
    u[k, 4*c+2*e+f, r, s] = w[k, c, 2*r+e, 2*s+f]
    y[n, k, i, j] = sum(q r s) d[n, q, i+r, j+s] * u[k, q, r, s]                  4 x 4 taps of 12

Nothing is saved so, but of stride 1 Winograd takes a third of the multiplications, and channels that fill
vectors are quick to transform.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Reduce, Store
from ...ir.kernel.scalar import op, read
from .blocking import fresh
from .product import Convolution


@dataclass(frozen=True)
class Deep:
    """What becomes of a convolution.

    kernel: of stride 1, under the old names; its image needs no padding.  roles: of its axes.
    image: what makes that image of the old one, its channels filled up to whole blocks, its rows to whole
    vectors.  weight: what makes its weight.
    """

    kernel: Kernel
    roles: Convolution
    image: Kernel
    weight: Kernel


def space_to_depth(kernel: Kernel, roles: Convolution, lanes: int) -> Deep | None:
    """The convolution with a stride's places as channels; None where it has none, or they fill no blocks."""
    step, taps = roles.stride[0], roles.window[0]
    if (roles.stride, roles.window, roles.dilation) != ((step, step), (taps, taps), (1, 1)) or step == 1:
        return None
    if roles.group is not None or sum(access.buffer == roles.input for _, access in kernel.reads) > 1:
        return None
    image, weight = kernel.buffers[roles.input], kernel.buffers[roles.weight]
    batch, channels, *size = image.shape
    outs, places = weight.shape[0], [kernel.extents[axis] for axis in roles.places]
    if not all(isinstance(n, int) for n in (channels, outs, taps, *size, *places)):
        return None
    deep, window, each = channels * step**2, -(-taps // step), lanes // gcd(lanes, step**2)
    filled = -(-channels // each) * each
    if filled * step**2 != -(-deep // lanes) * lanes:
        return None
    height, width = (n + window - 1 for n in places)
    new = Buffer(image.name, image.dtype, (batch, deep, height, -(-width // lanes) * lanes))
    taken = Buffer(weight.name, weight.dtype, (outs, deep, window, window))
    q, r, s = (fresh(kernel, name) for name in "qrs")
    at = {name: Affine.of({name: 1}) for name in (q, r, s, roles.out, *roles.places)}
    n = Affine.of({roles.batch: 1}) if roles.batch else Affine()
    moved = [at[place] + at[tap] for place, tap in zip(roles.places, (r, s), strict=True)]
    value = op(
        "mul", read(new.name, (n, at[q], *moved)), read(taken.name, (at[roles.out], at[q], at[r], at[s]))
    )
    total = Reduce(roles.stage.name, "sum", (Axis(q, deep), Axis(r, window), Axis(s, window)), value)
    made = kernel.replace(
        inputs=tuple({new.name: new, taken.name: taken}.get(b.name, b) for b in kernel.inputs),
        stages=tuple(total if stage is roles.stage else stage for stage in kernel.stages),
    )
    found = replace(
        roles, stage=total, channel=q, taps=(r, s), stride=(1, 1), padding=(0, 0), window=(window, window)
    )
    whole = batch, filled * step**2, *new.shape[2:]
    return Deep(made, found, _image(image, whole, roles), _weight(weight, taken.shape, step))


def _image(image: Buffer, shape: tuple[int, ...], roles: Convolution) -> Kernel:
    """y[n, 4*c+2*e+f, i, j] = x[n, c, 2*i+e-p, 2*j+f-p else 0]"""
    step = roles.stride[0]
    batch, filled, height, width = shape
    axes = {"n": batch, "c": filled // step**2, "e": step, "f": step, "i": height, "j": width}
    n, c, i, j = (Affine.of({name: 1}) for name in "ncij")
    places = [
        Affine.of({place: step, phase: 1}, -padding)
        for place, phase, padding in zip("ij", "ef", roles.padding, strict=True)
    ]
    return Kernel(
        "space_to_depth",
        (Buffer("x", image.dtype, image.shape),),
        (Buffer("y", image.dtype, shape),),
        tuple(Axis(name, size) for name, size in axes.items()),
        (
            Store(
                "y", (n, c * step**2 + Affine.of({"e": step, "f": 1}), i, j), read("x", (n, c, *places), 0.0)
            ),
        ),
    )


def _weight(weight: Buffer, shape: tuple[int, ...], step: int) -> Kernel:
    """u[k, 4*c+2*e+f, r, s] = w[k, c, 2*r+e, 2*s+f else 0]"""
    outs, channels = weight.shape[:2]
    axes = {"k": outs, "c": channels, "e": step, "f": step, "r": shape[2], "s": shape[3]}
    k, c, r, s = (Affine.of({name: 1}) for name in "kcrs")
    taps = [Affine.of({tap: step, phase: 1}) for tap, phase in ("re", "sf")]
    return Kernel(
        "taps_to_depth",
        (Buffer("w", weight.dtype, weight.shape),),
        (Buffer("u", weight.dtype, shape),),
        tuple(Axis(name, size) for name, size in axes.items()),
        (Store("u", (k, c * step**2 + Affine.of({"e": step, "f": 1}), r, s), read("w", (k, c, *taps), 0.0)),),
    )
