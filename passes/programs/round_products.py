"""Products of f32 on tensor cores: factors are rounded to 11 bits, or taken as two parts of so many.

    %y: f32[4096,4096] = matmul(%a, %b)    ->    %a1: f32[4096,4096] = relayout(%a)
                                                 %b1: f32[4096,4096] = relayout(%b)
                                                 %y: f32[4096,4096] = matmul(%a1, %b1)  # precision(tf32)

A tensor core reads such factors from shared memory with the sum innermost, and they are copied there 16 bytes
at a time where they lie so in memory too.  One of the two may be in registers instead, however it lies.

Other units are quickest where the sum is innermost in one factor at most (`sums_apart`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...ir.kernel.affine import Affine
from ...ir.kernel.scalar import Read
from ..kernels.product import Product, element, plain, product_of
from ..schedules.gpu import Precision
from ..schedules.steps import Schedule
from .image_layout import Order, copied_order, permuted, relayout
from .program import Array, Call, Program, Step

LARGE = 1 << 29  # multiplications of a product that is worth a copy of a factor ...
LARGE_SINGLE, MEETS_SINGLE = 1 << 28, 128  # the same for units that take three times as long without
REGISTERS = "tf32"  # the precision by which one factor may be in registers
MEETS = 256  # ... whose elements are multiplied so often each


def round_products(program: Program, precision: str) -> Program:
    """The program with its products of f32 by a `Precision`, and their factors with the sum innermost."""
    laid = _Laid()
    for step in program.steps:
        found = _product(step) if isinstance(step, Call) and step.how is None else None
        orders = None if found is None else _orders(found, precision)
        if orders is None:
            laid.steps.append(step)
        else:
            assert isinstance(step, Call)
            laid.steps.append(replace(laid.out(step, orders), how=Schedule(Precision(precision))))
    return program.replace(steps=tuple(laid.needed(program.results)))


def sums_apart(program: Program) -> Program:
    """The program with its products of f32 on units that don't round, of which both factors have the sum
    innermost, on a copy of one in which it is outermost.

    They run at 40 TF/s then on an H200, and at 13 without, as threads side by side read one bank of shared
    memory (of benchmarks/results/gpu_ways.txt, 2026-11-27, the products of a weight's gradient in tiles).
    """
    laid = _Laid()
    for step in program.steps:
        found = _product(step) if isinstance(step, Call) and step.how is None else None
        orders = {} if found is None else _outermost(found)
        laid.steps.append(laid.out(step, orders) if orders and isinstance(step, Call) else step)
    return program.replace(steps=tuple(laid.needed(program.results)))


def _outermost(product: Product) -> dict[str, Order]:
    """The order of the smaller factor's dimensions that has the sum first; none where it need not move."""
    kernel = product.kernel
    multiplications = prod(int(n) for n in kernel.extents.values())
    found: list[tuple[int, str, Order]] = []
    for factor in (product.left, product.right):
        access = element(factor)
        if access is None or kernel.buffers[access.buffer].dtype != "f32":
            return {}
        buffer = kernel.buffers[access.buffer]
        at = [d for d, part in enumerate(access.index) if plain(part) == product.depth]
        alone = sum(read.buffer == access.buffer for _, read in kernel.reads) == 1
        if len(at) != 1 or not alone or buffer.offset(access.index).coefficient(product.depth) != 1:
            return {}
        rest = tuple(d for d in range(len(buffer.shape)) if d != at[0])
        found.append((prod(map(int, buffer.shape)), buffer.name, (at[0], *rest)))
    size, name, order = min(found)
    worth = multiplications >= LARGE_SINGLE and multiplications >= MEETS_SINGLE * size
    return {name: order} if worth else {}


def _product(call: Call) -> Product | None:
    kernel = call.kernel
    found = product_of(kernel)
    is_sound = found is not None and found.is_matmul and not any(b.inplace for b in kernel.outputs)
    if not is_sound or any(store.axes or store.combine == "set" for store in kernel.stores):
        return None
    return found if kernel.dtypes[found.stage.name] == "f32" else None


def _orders(product: Product, precision: str) -> dict[str, Order] | None:
    """New orders of the factors' dimensions; None where the product is as quick as it is given.

    A factor in which the sum is not innermost may be read in registers, if it is of one part: on an H200 a
    product of 4096 takes 373 us so, and 423 with a copy; one of two parts (tf32x3) 1,487 with a copy and
    3,484 without (benchmarks/results/gpu_ways.txt and gpu.txt, 2026-11-27).  Of two such one is copied, and
    both if their elements meet many.
    """
    multiplications = prod(int(n) for n in product.kernel.extents.values())
    wanted = [_order(product, element(factor)) for factor in (product.left, product.right)]
    needed = [orders for orders in wanted if orders is not None]
    if multiplications < LARGE or len(needed) < (2 if precision == REGISTERS else 1):
        return {}
    worth = [
        {name: order}
        for orders in needed
        for name, order in orders.items()
        if multiplications >= MEETS * prod(map(int, product.kernel.buffers[name].shape))
    ]
    return {name: order for orders in worth for name, order in orders.items()} if worth else None


def _order(product: Product, access: Read | None) -> dict[str, Order] | None:
    """The order of a factor's dimensions that has the one last that the sum goes along.

    None where it is so, and where the factor is computed or of halves.
    """
    kernel = product.kernel
    if access is None or kernel.buffers[access.buffer].dtype != "f32":
        return None
    reads = [read for _, read in kernel.reads if read.buffer == access.buffer]
    parts = access.index
    if len({*reads}) != 1 or not all(isinstance(part, Affine) for part in parts):
        return None
    at = [d for d, part in enumerate(parts) if plain(part) == product.depth]
    if len(at) != 1 or kernel.buffers[access.buffer].offset(parts).coefficient(product.depth) == 1:
        return None
    return {access.buffer: (*(d for d in range(len(parts)) if d != at[0]), at[0])}


class _Laid:
    """The steps so far, and the arrays that were laid out anew."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.made: dict[tuple[Array, Order], Array] = {}
        self.passed: set[Array] = set()  # copies of which another one would have been made

    def out(self, call: Call, orders: dict[str, Order]) -> Call:
        """The call on factors in these orders."""
        names, inputs = [b.name for b in call.kernel.inputs], list(call.inputs)
        for buffer, order in orders.items():
            at = names.index(buffer)
            array = inputs[at]
            if (array, order) not in self.made:
                self.made[array, order] = self.laid(array, order)
            inputs[at] = self.made[array, order]
        return replace(call, kernel=permuted(call.kernel, orders), inputs=tuple(inputs))

    def laid(self, array: Array, order: Order) -> Array:
        """The array in that order; of a copy, what it was copied from, or a copy of that."""
        made = next((s for s in self.steps if isinstance(s, Call) and array in s.outputs), None)
        have = copied_order(made.kernel) if made is not None else None
        name = array.name
        if made is not None and have is not None:
            self.passed.add(array)
            (array,), order = made.inputs, tuple(have[d] for d in order)
        if order == tuple(range(len(order))):
            return array
        copy = relayout(array, order, name)
        self.steps.append(copy)
        return copy.outputs[0]

    def needed(self, results: Sequence[Array]) -> list[Step]:
        """The steps but for copies that nobody reads any more."""
        read = {array for step in self.steps for array in step.inputs}.union(results)
        idle = self.passed - read
        return [step for step in self.steps if not idle.intersection(step.outputs)]
