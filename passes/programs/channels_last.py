"""Lay images out with the channels innermost, as a GPU's products of convolutions read them.

    %y = conv2d(%x: f32[32,16,8,8], %w)        %x1: f32[32,8,8,16] = relayout(%x)
    %z = relu(%y)                        ->    %w1: f32[3,3,16,32] = relayout(%w)
                                               %y1: f32[32,8,8,32] = conv2d(%x1, %w1)
                                               %z1: f32[32,8,8,32] = relu(%y1)
                                               %z: f32[32,32,8,8] = relayout(%z1)

A convolution is then a product of matrices, one row for each place of the images and one column for each
channel of the result, whose factors and result are contiguous along the channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..kernels.product import Product, Windowed, product_of
from .image_layout import ImageLayout, Order
from .program import Array, Call, Program, Step
from .split_calls import in_turn
from .tile_convolutions import in_tiles

FEW = 2  # convolutions that are worth copies at both ends
# Terms and channels of a convolution that is worth them alone.  As it is given, one of 3 x 3 on 64 channels
# runs at 12.5 TF/s of f32 and 105 of f16 on an H100; with channels last at 40 and 290 on an H200
# (benchmarks/results/gpu.txt and gpu_tiles.txt, 2026-11-27).
TERMS, CHANNELS = 512, 64


def channels_last(program: Program, sums_last: bool = False, tiles: float = 0.0) -> Program:
    """The program with its images laid out anew, or the program itself where it has hardly a convolution.

    sums_last: weights have the channels innermost that are summed.  tiles: convolutions that take less than
    so much of their time by Winograd's algorithm are computed so.
    """
    products = {call: product_of(call.kernel) for call in program.calls if call.how is None}
    served = {call: roles for call, found in products.items() if found and (roles := found.widened)}
    if len(served) < FEW and not any(_is_large(products[call]) for call in served):
        return program
    return _Layout(program, served, sums_last, tiles).program()


def _is_large(product: Product | None) -> bool:
    assert product is not None
    extents = product.kernel.extents
    terms, channels = (math.prod(int(extents[axis]) for axis in axes) for axes in (product.k, product.n))
    return terms >= TERMS and channels >= CHANNELS


class _Layout(ImageLayout):
    def __init__(self, program: Program, served: Mapping[Call, Windowed], sums_last: bool, tiles: float):
        self.sums_last, self.tiles = sums_last, tiles
        super().__init__(program, served)

    def order(self, roles: Windowed | None, array: Array) -> Order:
        return (0, *range(2, len(array.shape)), 1)

    def weights(self, call: Call, roles: Windowed | None) -> dict[str, Order]:
        orders = super().weights(call, roles)
        if not self.sums_last:
            return orders
        return {name: (*order[:-2], order[-1], order[-2]) for name, order in orders.items()}

    def calls(self, call: Call, roles: Windowed | None) -> Iterable[Step]:
        kernels = in_tiles(call.kernel, roles, self.tiles) if self.tiles and roles is not None else None
        return (call,) if kernels is None else in_turn(call, kernels)
