"""The bits of integers: and, or, xor, not, and shifts.  On bools they are the logical ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import DType
from ..elementwise import elementwise
from ..errors import DTypeError
from ..kernel import scalar
from ..sample import binary_samples
from ..shapes import broadcast_shapes, result_dtype
from ..types import Type
from .arithmetic import BOTH


def _bitwise(name: str, ufunc: np.ufunc, word: str, doc: str) -> Any:
    return elementwise(
        name, word, reference=ufunc, operands=BOTH, dtypes="int", commutative=True, grad=None, doc=doc
    )


bitwise_and = _bitwise(
    "bitwise_and", np.bitwise_and, "bit_and", "Combine the bits by and; on bools the logical one."
)
bitwise_or = _bitwise(
    "bitwise_or", np.bitwise_or, "bit_or", "Combine the bits by or; on bools the logical one."
)
bitwise_xor = _bitwise(
    "bitwise_xor", np.bitwise_xor, "bit_xor", "Combine the bits by xor; on bools the logical one."
)
bitwise_not = elementwise(
    "bitwise_not",
    "bit_not",
    reference=np.invert,
    dtypes="int",
    grad=None,
    doc="Invert every bit; on bools not.",
)


def _shifted(word: str, beyond: Any) -> lowering.Lowering:
    """A shift by the width or more, which no processor defines: `beyond` decides."""

    def build(k: Any, input: Any, other: Any) -> None:
        axes = k.parallel(*broadcast_shapes(word, input.shape, other.shape))
        x, by = input.broadcast(*axes), other.broadcast(*axes)
        width = input.dtype.itemsize * 8
        near = (by >= 0) & (by < width)
        held = scalar.op("select", near, by, 0)
        k.store(scalar.op("select", near, scalar.op(word, x, held), beyond(x)), at=axes)

    return lowering.kernel(build)


def _shift(name: str, ufunc: np.ufunc, lower: lowering.Lowering, doc: str) -> Any:
    return elementwise(
        name,
        name,
        lower=lower,
        reference=ufunc,
        operands=BOTH,
        dtypes="int",
        result=_integers,
        grad=None,
        samples=binary_samples(
            {"low": 0, "high": 20, "category": "int"}, {"low": 0, "high": 6, "category": "int"}
        ),
        doc=doc,
    )


def _integers(*types: Type) -> tuple[DType, DType]:
    dtype = result_dtype(*types)
    if dtype.category == "bool":
        raise DTypeError("shift: does not take bool", "convert the operands: x.long()")
    return dtype, dtype


bitwise_left_shift = _shift(
    "bitwise_left_shift",
    np.left_shift,
    _shifted("shl", lambda x: 0),
    "Shift the bits to the left.  By the dtype's width or more, or by a negative number, gives 0.",
)
bitwise_right_shift = _shift(
    "bitwise_right_shift",
    np.right_shift,
    _shifted("shr", lambda x: scalar.op("select", x < 0, scalar.op("bit_not", x * 0), 0)),
    "Shift the bits to the right, the sign filling in.  By the width or more, or by a negative number, "
    "gives 0 or -1.",
)
