"""Recognise a convolution and its two gradients as what they are: one form in three arrays.

    sum of x[n, c, i * stride + r * dilation - padding] * w[k, c, r] * y[n, k, i]

Each of the three is the sum over what the other two leave.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.kernel.affine import Affine
from ..ir.kernel.form import Kernel, Local, Reduce, Store
from ..ir.kernel.scalar import Expr, Op, Read


@dataclass(frozen=True)
class Windowed:
    """The roles of a kernel's buffers: two images, which have the batch, and a weight, which has not.

    images: the two buffers, inputs before the output.  weight: the third buffer; it is the output where
    `gradient`.  batch: the axis.  channels: those of the images, None for a single one.
    """

    stage: Reduce
    batch: str
    images: tuple[str, str]
    weight: str
    gradient: bool
    channels: tuple[str | None, str | None]


def windowed(kernel: Kernel) -> Windowed | None:
    """The roles of the buffers of a convolution or of one of its gradients, with any epilogue.

    None for all else: groups, and products of matrices, whose weight has no dimensions for taps.
    """
    sums = [stage for stage in kernel.stages if not isinstance(stage, (Local, Store))]
    if kernel.symbols or len(sums) != 1 or not isinstance(sums[0], Reduce) or len(kernel.outputs) != 1:
        return None
    (stage,) = sums
    product = stage.value
    if stage.combine != "sum" or not (isinstance(product, Op) and product.name == "mul"):
        return None
    factors = [element(factor) for factor in product.args]
    stores = kernel.stores
    if any(f is None for f in factors) or len(stores) != 1 or stores[0].axes or not kernel.is_order_free:
        return None
    three = [*((f.buffer, f.index) for f in factors if f is not None), (stores[0].buffer, stores[0].index)]
    rank = len(three[0][1])
    if rank < 3 or len({name for name, _ in three}) != 3 or any(len(index) != rank for _, index in three):
        return None
    for at in range(3):
        weight, first, second = three[at], *(three[k] for k in range(3) if k != at)
        batch = single(first[1][0])
        channels = first[1][1], second[1][1]
        free = {name for part in weight[1] if isinstance(part, Affine) for name in part.names}
        if (
            batch is not None
            and single(second[1][0]) == batch
            and batch not in free
            and set(weight[1][:2]) == set(channels)
            and all(isinstance(part, Affine) for part in channels)
        ):
            images = (first[0], second[0])
            return Windowed(
                stage, batch, images, weight[0], at == 2, (single(channels[0]), single(channels[1]))
            )
    return None


def element(factor: Expr) -> Read | None:
    """The read of a factor that is 0 where its conditions do not hold: select(condition, x[...], 0)."""
    while isinstance(factor, Op) and factor.name == "select" and str(factor.args[2]) in ("0", "0.0"):
        factor = factor.args[1]
    return factor if isinstance(factor, Read) else None


def single(part: Affine | Expr) -> str | None:
    """The axis that an index is, or None."""
    if isinstance(part, Affine) and len(part.terms) == 1 and part == Affine(((part.terms[0][0], 1),)):
        return part.terms[0][0]
    return None
