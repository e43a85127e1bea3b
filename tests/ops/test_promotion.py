"""Promotion, against a table written out from PyTorch's documented rules.

Source: PyTorch, "Tensor Attributes", torch.dtype: a type that is of a higher category than another (bool,
integer, floating) wins; among tensors with dimensions the wider wins; 0-d tensors and then Python numbers
count only where their category is higher than that of the tensors with dimensions.
"""

import numpy as np
import pytest

import lamina
from lamina.ir import dtypes
from lamina.ir.op import REGISTRY
from lamina.runtime.tensor import tensor_of

SHORT = {d.short: d for d in dtypes.ALL}
ORDER = ("u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "bool")
# Row with column, both with dimensions.
TABLE = """
        u8    i8    i16   i32   i64   f16   bf16  f32   f64   bool
u8      u8    i16   i16   i32   i64   f16   bf16  f32   f64   u8
i8      i16   i8    i16   i32   i64   f16   bf16  f32   f64   i8
i16     i16   i16   i16   i32   i64   f16   bf16  f32   f64   i16
i32     i32   i32   i32   i32   i64   f16   bf16  f32   f64   i32
i64     i64   i64   i64   i64   i64   f16   bf16  f32   f64   i64
f16     f16   f16   f16   f16   f16   f16   f32   f32   f64   f16
bf16    bf16  bf16  bf16  bf16  bf16  f32   bf16  f32   f64   bf16
f32     f32   f32   f32   f32   f32   f32   f32   f32   f64   f32
f64     f64   f64   f64   f64   f64   f64   f64   f64   f64   f64
bool    u8    i8    i16   i32   i64   f16   bf16  f32   f64   bool
"""
# A tensor with dimensions (row) with a Python number, or a 0-d tensor, of another kind (column).
NUMBERS = """
        True  2     2.5   i64   f64   f32   bf16  u8
u8      u8    u8    f32   u8    f64   f32   bf16  u8
i8      i8    i8    f32   i8    f64   f32   bf16  i8
i16     i16   i16   f32   i16   f64   f32   bf16  i16
i32     i32   i32   f32   i32   f64   f32   bf16  i32
i64     i64   i64   f32   i64   f64   f32   bf16  i64
f16     f16   f16   f16   f16   f16   f16   f16   f16
bf16    bf16  bf16  bf16  bf16  bf16  bf16  bf16  bf16
f32     f32   f32   f32   f32   f32   f32   f32   f32
f64     f64   f64   f64   f64   f64   f64   f64   f64
bool    bool  i64   f32   i64   f64   f32   bf16  u8
"""
# A 0-d tensor (row) with a Python number (column): the number still counts only by its category.
SCALARS = """
        True  2     2.5
i32     i32   i32   f32
u8      u8    u8    f32
f16     f16   f16   f16
f64     f64   f64   f64
bool    bool  i64   f32
"""
VALUES = {"True": True, "2": 2, "2.5": 2.5}


def cells(text):
    head, *rows = [line.split() for line in text.strip().splitlines()]
    return [(row[0], column, wanted) for row in rows for column, wanted in zip(head, row[1:], strict=True)]


def tensor(short, shape):
    return tensor_of(np.ones(shape, SHORT[short].numpy))


def other(column, shape):
    return VALUES[column] if column in VALUES else tensor(column, shape)


def returned(op, wanted):
    """What the result of an elementwise op is, where `wanted` is what its operands promote to."""
    out = op.infer(*(wanted_type(wanted),) * len(op.operands))
    return out.dtype


def wanted_type(dtype):
    return lamina.ir.types.type_of(dtype, (3,))


def accepts(op, dtype):
    try:
        op.infer(*(wanted_type(dtype),) * len(op.operands))
    except lamina.ir.errors.DTypeError:
        return False
    return True


NOT_PROMOTING = {
    "copy": "what is written takes the dtype of where it is written",
    "complex": "the parts of a number have one dtype",
}
BINARY = [
    op.name
    for op in REGISTRY.values()
    if op.traits.elementwise and len(op.operands) == 2 and not op.attrs and not op.optional and not op.hidden
    if op.name not in NOT_PROMOTING
]


CASES = {
    "tensors": (TABLE, ((3,), (3,))),
    "0-d tensors": (TABLE, ((), ())),
    "tensor with 0-d": (NUMBERS, ((3,), ())),
    "0-d with number": (SCALARS, ((), ())),
}


@pytest.mark.parametrize("text, shapes", CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", ["add", "mul", "maximum"])
def test_promotion_of_arithmetic_is_the_table(name, text, shapes):
    for row, column, wanted in cells(text):
        for a, b in (
            (tensor(row, shapes[0]), other(column, shapes[1])),
            (other(column, shapes[1]), tensor(row, shapes[0])),
        ):
            found = REGISTRY[name](a, b).dtype
            assert found is SHORT[wanted], (
                f"{name}({row}{list(shapes[0])}, {column}) is {found.short}, not {wanted}"
            )


@pytest.mark.parametrize("name", BINARY)
def test_promotion_of_every_binary_op_follows_the_operands(name):
    op = REGISTRY[name]
    for row, column, wanted in cells(TABLE) + cells(NUMBERS):
        dtype = SHORT[wanted]
        if not accepts(op, dtype) or ("bool" in (row, column) and not accepts(op, dtypes.bool_)):
            continue
        shape = (3,) if column in ORDER and (row, column, wanted) in cells(TABLE) else ()
        found = op(tensor(row, (3,)), other(column, shape)).dtype
        expected = returned(op, dtype)
        assert found is expected, (
            f"{name}({row}[3], {column}{list(shape)}) is {found.short}, not {expected.short}"
        )


def test_promotion_of_numbers_alone_takes_the_default_dtypes():
    assert lamina.tensor(2.5).dtype is dtypes.float32
    assert lamina.tensor(2).dtype is dtypes.int64
    assert lamina.tensor(True).dtype is dtypes.bool_


def test_number_beside_a_mask_keeps_the_precision_of_the_other_operand():
    mask, x = tensor_of(np.array([True, False])), tensor_of(np.zeros(2))
    assert REGISTRY["where"](mask, 0.1, x).tolist() == [0.1, 0.0]
