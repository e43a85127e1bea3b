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

from ..kernels.product import Windowed, product_of
from .image_layout import ImageLayout, Order
from .program import Array, Program

FEW = 2  # convolutions that are worth copies at both ends


def channels_last(program: Program) -> Program:
    """The program with its images laid out anew, or the program itself where it has hardly a convolution."""
    served = {
        call: roles
        for call in program.calls
        if call.how is None and (found := product_of(call.kernel)) and (roles := found.windowed)
    }
    return program if len(served) < FEW else _Layout(program, served).program()


class _Layout(ImageLayout):
    def order(self, roles: Windowed | None, array: Array) -> Order:
        return (0, *range(2, len(array.shape)), 1)
