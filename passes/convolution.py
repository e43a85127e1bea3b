"""Recognise a convolution: which axes are channels, places and taps, and how its window moves."""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.kernel.affine import Affine
from ..ir.kernel.form import Kernel, Local, Reduce, Store, names
from ..ir.kernel.scalar import Op, Read


@dataclass(frozen=True)
class Convolution:
    """stage = sum(c, taps) input[n, c, place * stride + tap * dilation - padding] * weight[k, c, taps]

    Names are the kernel's; `group`, `channel` and a tap are None where they would have one point.  A
    depthwise convolution has a group for each channel: `out` is then the group.
    """

    stage: Reduce
    input: str
    weight: str
    batch: str | None
    group: str | None
    out: str
    channel: str | None
    places: tuple[str, ...]
    taps: tuple[str | None, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    window: tuple[int, ...]

    @property
    def depthwise(self) -> bool:
        return self.channel is None and self.group == self.out

    def __str__(self) -> str:
        """What a schedule is chosen by."""
        moved = [("stride", self.stride), ("padding", self.padding), ("dilation", self.dilation)]
        return " ".join(
            ["x".join(map(str, self.window)), *(f"{what}={list(by)}" for what, by in moved)]
            + (["depthwise"] if self.depthwise else ["grouped"] if self.group else [])
        )


def convolution(kernel: Kernel) -> Convolution | None:
    """The convolution that a squeezed kernel is, with any epilogue; None for all else."""
    reductions = [stage for stage in kernel.stages if not isinstance(stage, (Local, Store))]
    if kernel.symbols or len(reductions) != 1 or not isinstance(reductions[0], Reduce):
        return None
    (stage,) = reductions
    product = stage.value
    if stage.combine != "sum" or not (isinstance(product, Op) and product.name == "mul"):
        return None
    if not all(isinstance(factor, Read) for factor in product.args):
        return None
    for image, kernels in (product.args, product.args[::-1]):
        found = _roles(kernel, stage, image, kernels)
        if found is not None:
            return found
    return None


def _roles(kernel: Kernel, stage: Reduce, image: Read, kernels: Read) -> Convolution | None:
    """The roles of the axes if `image` is the input and `kernels` the weight, by their indices."""
    summed, parallel = set(names(stage.axes)), kernel.parallel_names
    if image.buffer == kernels.buffer or len(image.index) != len(kernels.index) or len(image.index) < 3:
        return None
    if kernels.other is not None or (image.other is not None and image.other.value != 0):
        return None
    if not all(isinstance(part, Affine) for part in (*image.index, *kernels.index)):
        return None
    n, c, *at = image.index
    k, inner, *taps = kernels.index
    batch, channel, out = _single(n), _single(inner), _single(k)
    if n != Affine() and batch not in parallel or inner != Affine() and channel not in summed:
        return None
    if out is None or out not in parallel:
        return None
    group = None
    if channel is None:
        group = _single(c)
        if group != out:
            return None
    elif _single(c) != channel:
        return None
    tap_names = [_single(tap) for tap in taps]
    if any(tap != Affine() and name not in summed for tap, name in zip(taps, tap_names, strict=True)):
        return None
    sizes = kernel.extents
    places, stride, dilation, padding = [], [], [], []
    for part, tap in zip(at, tap_names, strict=True):
        own = [(name, by) for name, by in part.terms if name != tap]
        if len(own) != 1 or own[0][0] not in parallel or own[0][1] < 1 or part.constant > 0:
            return None
        step = part.coefficient(tap) if tap else 1
        if step < 1:
            return None
        places.append(own[0][0])
        stride.append(own[0][1])
        dilation.append(step)
        padding.append(-part.constant)
    used = [name for name in (batch, out, channel, *places, *tap_names) if name]
    if len(set(used)) != len(used) or set(used) != parallel | summed:
        return None
    return Convolution(
        stage, image.buffer, kernels.buffer, batch, group, out, channel, tuple(places), tuple(tap_names),
        tuple(stride), tuple(dilation), tuple(padding),
        tuple(int(sizes[tap]) if tap else 1 for tap in tap_names),
    )  # fmt: skip


def _single(part: Affine) -> str | None:
    """The axis that an index is, or None."""
    return part.terms[0][0] if len(part.terms) == 1 and part == Affine(((part.terms[0][0], 1),)) else None
