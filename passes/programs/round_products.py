"""Products of f32 on tensor cores: factors are rounded to 11 bits, or taken as two parts of so many.

    %y: f32[4096,4096] = matmul(%a, %b)    ->    %b1: f32[4096,4096] = relayout(%b)
                                                 %y: f32[4096,4096] = matmul(%a, %b1)  # precision(tf32)

A tensor core reads such factors from shared memory with the sum innermost, and they are copied there 16 bytes
at a time where they lie so in memory too: an H200 multiplies 4096 x 4096 at 325 TF/s then, the copy included,
and at 87 where the columns are innermost (benchmarks/results/gpu.txt, 2026-11-27).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...ir.kernel.affine import Affine
from ...ir.kernel.scalar import Read
from ..kernels.product import Product, element, plain, product_of
from ..schedules.gpu import Precision
from ..schedules.steps import Schedule
from .image_layout import Order, permuted, relayout
from .program import Array, Call, Program, Step

LARGE = 1 << 29  # multiplications of a product that is worth a copy of a factor ...
MEETS = 256  # ... of which each element meets so many


def round_products(program: Program, precision: str) -> Program:
    """The program with its products of f32 by a `Precision`, and their factors with the sum innermost."""
    laid = _Laid()
    for step in program.steps:
        found = _product(step) if isinstance(step, Call) and step.how is None else None
        orders = None if found is None else _orders(found)
        if orders is None:
            laid.steps.append(step)
        else:
            assert isinstance(step, Call)
            laid.steps.append(replace(laid.out(step, orders), how=Schedule(Precision(precision))))
    return program.replace(steps=tuple(laid.steps))


def _product(call: Call) -> Product | None:
    kernel = call.kernel
    found = product_of(kernel)
    is_sound = found is not None and found.is_matmul and not any(b.inplace for b in kernel.outputs)
    if not is_sound or any(store.axes or store.combine == "set" for store in kernel.stores):
        return None
    return found if kernel.dtypes[found.stage.name] == "f32" else None


def _orders(product: Product) -> dict[str, Order] | None:
    """New orders of the factors' dimensions; None where the product is as quick as it is given.

    One that is large reads a factor of which the sum is not innermost by single elements: that is slower than
    to multiply on the other units.
    """
    extents = {axis: int(n) for axis, n in product.kernel.extents.items()}
    found: dict[str, Order] = {}
    if prod(extents[axis] for axis in (*product.batch, *product.m, *product.n, *product.k)) < LARGE:
        return found
    for factor, met_by in ((product.left, product.n), (product.right, product.m)):
        wanted = _order(product, element(factor), extents)
        if wanted is None:
            continue
        if prod(extents[axis] for axis in met_by) < MEETS:
            return None
        found |= wanted
    return found


def _order(product: Product, access: Read | None, extents: dict[str, int]) -> dict[str, Order] | None:
    """The order of a factor's dimensions that has the longest of the summed ones last.

    None where it is so, and where the factor is computed or of halves.
    """
    kernel = product.kernel
    if access is None or kernel.buffers[access.buffer].dtype != "f32":
        return None
    reads = [read for _, read in kernel.reads if read.buffer == access.buffer]
    longest = max(product.k, key=lambda axis: extents[axis])
    parts = access.index
    if len({*reads}) != 1 or not all(isinstance(part, Affine) for part in parts):
        return None
    at = [d for d, part in enumerate(parts) if plain(part) == longest]
    if len(at) != 1 or at[0] == len(parts) - 1:
        return None
    return {access.buffer: (*(d for d in range(len(parts)) if d != at[0]), at[0])}


class _Laid:
    """The steps so far, and the arrays that were laid out anew."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.made: dict[tuple[Array, Order], Array] = {}

    def out(self, call: Call, orders: dict[str, Order]) -> Call:
        """The call on factors in these orders."""
        names, inputs = [b.name for b in call.kernel.inputs], list(call.inputs)
        for buffer, order in orders.items():
            at = names.index(buffer)
            array = inputs[at]
            if (array, order) not in self.made:
                copy = relayout(array, order, array.name)
                self.steps.append(copy)
                (self.made[array, order],) = copy.outputs
            inputs[at] = self.made[array, order]
        return replace(call, kernel=permuted(call.kernel, orders), inputs=tuple(inputs))
