"""What accumulates starts from the identity of its word: the kernel that writes it there first."""

from __future__ import annotations

import math

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Kernel, Store, identity
from ...ir.kernel.scalar import const


def filling(kernel: Kernel, buffer: Buffer) -> Kernel | None:
    """The kernel that fills an output which accumulates with the identity, or None where none is needed."""
    word = next((s.combine for s in kernel.stores if s.buffer == buffer.name and s.combine), None)
    if word is None or buffer.inplace:
        return None
    value = 0 if word == "set" else identity(word, buffer.dtype)
    size = math.prod(buffer.shape)
    flat = Buffer("y", buffer.dtype, (size,))
    typed = const(bool(value) if buffer.dtype == "bool" else value, buffer.dtype)
    return Kernel("fill", (), (flat,), (Axis("i", size),), (Store("y", (Affine((("i", 1),)),), typed),))
