"""What must hold of values, as an op: it is asked in compiled code too, where Python's `if` is not."""

from __future__ import annotations

import numpy as np

from .. import lowering
from ..dtypes import bool_
from ..errors import ArgumentError, ArgumentValueError, ShapeError
from ..op import Traits, define
from ..sample import Operand, Sample
from ..types import Type, type_of

WITHOUT_MESSAGE = "an assertion does not hold"


def _bind(input, assert_msg=WITHOUT_MESSAGE):
    """Raise ArgumentValueError with `assert_msg` unless the one element of `input` is true.

    Returns the element as a bool.  Raises ShapeError for more elements, or none.
    """
    if not isinstance(assert_msg, str):
        raise ArgumentError(f"_assert_async: assert_msg must be a str, not {type(assert_msg).__name__}")
    return (input,), {"assert_msg": assert_msg}


def _infer(input: Type, *, assert_msg: str) -> Type:
    if any(n != 1 for n in input.shape):
        raise ShapeError(
            f"_assert_async(input): takes one element, not {list(input.shape)}", "input.all() makes one"
        )
    return type_of(bool_, (), input.device)


def _reference(input: np.ndarray, *, assert_msg: str) -> np.ndarray:
    if not input.all():
        raise ArgumentValueError(*assert_msg.split("\n  "))
    return np.array(True)


_assert_async = define(
    "_assert_async",
    bind=_bind,
    operands=("input",),
    attrs=("assert_msg",),
    infer=_infer,
    reference=_reference,
    lower=lowering.extern("raises an error"),
    traits=Traits(refuses=True),
    method=False,
    samples=lambda: [
        Sample((Operand(shape, 1, 2, category="int"),), {"assert_msg": 'as "said"'}) for shape in ((), (1,))
    ],
    inapplicable={
        **dict.fromkeys(("empty", "17", "33"), "takes one element"),
        **dict.fromkeys(("transposed", "strided", "broadcast"), "takes one element"),
    },
)
