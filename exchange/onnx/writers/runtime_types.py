"""The types in which ONNX Runtime's CPU computes operators.  Those that are not here take every type."""

from __future__ import annotations

from collections.abc import Sequence

from ....ir.dtypes import DType, dtype_named

_REAL, _NUMBERS = "f32 f64", "f32 f64 i32 i64"
# Some have more in its newest versions.
KERNELS: dict[str, frozenset[str]] = {
    op: frozenset(types.split())
    for types, ops in (
        (_REAL, "Sqrt Reciprocal Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf"),
        (_REAL, "Sigmoid Floor Ceil Round Softplus Softsign LeakyRelu Elu Selu HardSigmoid HardSwish Gelu"),
        (_REAL, "Relu PRelu Celu Softmax LogSoftmax Gemm Conv ConvTranspose AveragePool BatchNormalization"),
        (_REAL, "LayerNormalization Det Col2Im IsNaN IsInf DFT"),
        (_NUMBERS, "Add Sub Mul Div Pow Max Min Less LessOrEqual Greater GreaterOrEqual Neg Clip MatMul"),
        (_NUMBERS, "CumSum TopK Range ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2"),
        (_NUMBERS, "Trilu EyeLike"),
        ("f32 f64 i32 i64 bool", "Equal"),
        ("f32 f64 i32", "ArgMax ArgMin"),
        ("f32 f64 i8 u8", "MaxPool"),
        ("f32 f64 i64 i32 i16 i8 u8", "Abs Sign Mod"),
        ("f32 f64 i64 i32 u8", "Where"),
        ("f32 f64 i64 i32 i8 u8 bool", "Pad"),
        ("f32 f64 f16 i64 i32 i16 i8 u8 bool", "Expand"),
        ("f32", "LSTM GRU RNN"),
        ("bool", "And Or Xor Not"),
    )
    for op in ops.split()
}
# Types that hold every value of another, in the order in which they are tried; 2^53 is the last int64 of all.
WIDER = {
    "bool": ("u8", "i32"), "u8": ("i32", "i64"), "i8": ("i32", "i64"), "i16": ("i32", "i64"),
    "i32": ("i64", "f64"), "i64": ("f64",), "f16": ("f32",), "bf16": ("f32",),
}  # fmt: skip
# The operands of one type, where not all are.
SUBJECTS: dict[str, tuple[int, ...]] = {
    op: at
    for at, ops in (
        ((), "ConstantOfShape Shape Scan"),
        ((0,), "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ArgMax ArgMin"),
        ((0,), "CumSum TopK Trilu Expand Gather GatherElements GatherND Slice Reshape Squeeze Unsqueeze"),
        ((0,), "Col2Im DFT Cast QuantizeLinear DequantizeLinear MatMulInteger ConvInteger"),
        ((0, 2), "Pad ScatterElements ScatterND"),
        ((1, 2), "Where"),
        ((0, 1, 2, 3, 5), "GRU RNN"),
        ((0, 1, 2, 3, 5, 6), "LSTM"),
    )
    for op in ops.split()
}


def subjects(op: str, count: int) -> Sequence[int]:
    """Which of so many operands are of the type that counts."""
    return [i for i in SUBJECTS.get(op, range(count)) if i < count]


def computed_in(op: str, dtype: DType) -> DType:
    """The type that an operator computes in, given one: a wider one, or its own if there is none."""
    known = KERNELS.get(op)
    if known is None or dtype.short in known:
        return dtype
    return next((dtype_named(short) for short in WIDER.get(dtype.short, ()) if short in known), dtype)
