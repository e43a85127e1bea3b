"""Operators that compute each element by itself, with operands broadcast."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from ....runtime import ops
from ..declared import Node
from .registry import Value, operator

# ---- one operand, or two, by Lamina's own op and NumPy's
ALIKE: dict[str, tuple[str, Callable | None]] = {
    "Abs": ("abs", np.abs), "Acos": ("acos", None), "Acosh": ("acosh", None), "Asin": ("asin", None),
    "Asinh": ("asinh", None), "Atan": ("atan", None), "Atanh": ("atanh", None), "Ceil": ("ceil", np.ceil),
    "Cos": ("cos", None), "Cosh": ("cosh", None), "Erf": ("erf", None), "Exp": ("exp", np.exp),
    "Floor": ("floor", np.floor), "Log": ("log", np.log), "Neg": ("neg", np.negative),
    "Reciprocal": ("reciprocal", np.reciprocal), "Round": ("round", np.round), "Sigmoid": ("sigmoid", None),
    "Sign": ("sign", np.sign), "Sin": ("sin", None), "Sinh": ("sinh", None), "Sqrt": ("sqrt", np.sqrt),
    "Tan": ("tan", None), "Tanh": ("tanh", None), "IsNaN": ("isnan", None), "Relu": ("relu", None),
    "Not": ("logical_not", np.logical_not), "BitwiseNot": ("bitwise_not", np.bitwise_not),
    "Add": ("add", np.add), "Sub": ("sub", np.subtract), "Mul": ("mul", np.multiply),
    "And": ("logical_and", np.logical_and), "Or": ("logical_or", np.logical_or),
    "Xor": ("logical_xor", np.logical_xor), "BitwiseAnd": ("bitwise_and", np.bitwise_and),
    "BitwiseOr": ("bitwise_or", np.bitwise_or), "BitwiseXor": ("bitwise_xor", np.bitwise_xor),
    "Equal": ("eq", np.equal), "Greater": ("gt", np.greater), "GreaterOrEqual": ("ge", np.greater_equal),
    "Less": ("lt", np.less), "LessOrEqual": ("le", np.less_equal),
}  # fmt: skip


def _alike(op: Callable) -> Callable:
    return lambda node, *operands: op(*operands)


for _name, (_op, _numpy) in ALIKE.items():
    operator(_name, host=_numpy and _alike(_numpy))(_alike(ops.FUNCTIONS[_op]))


def _divided(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """ONNX's division: of integers, what is left is cut off."""
    if x.dtype.kind not in "iu":
        return x / y
    with np.errstate(all="ignore"):
        found = np.floor_divide(x, y)
        return np.where((np.remainder(x, y) != 0) & ((x < 0) != (y < 0)), found + 1, found).astype(x.dtype)


@operator("Div", host=lambda node, x, y: _divided(x, y))
def div(node: Node, x: Value, y: Value) -> Value:
    mode = None if x.dtype.is_floating_point else "trunc"
    return ops.FUNCTIONS["div"](x, y, rounding_mode=mode)


@operator("Mod", host=lambda node, x, y: (np.fmod if node.attr("fmod", 0) else np.mod)(x, y))
def mod(node: Node, x: Value, y: Value) -> Value:
    return ops.FUNCTIONS["fmod" if node.attr("fmod", 0) else "remainder"](x, y)


@operator("Pow", host=lambda node, x, y: np.power(x, y).astype(x.dtype))
def power(node: Node, x: Value, y: Value) -> Value:
    return ops.FUNCTIONS["pow"](x, y).to(x.dtype)


def _folded(op: Callable) -> Callable:
    return lambda node, *operands: reduce(op, operands)


for _name, _op, _numpy in (
    ("Max", "maximum", np.maximum),
    ("Min", "minimum", np.minimum),
    ("Sum", "add", np.add),
):
    operator(_name, host=_folded(_numpy))(_folded(ops.FUNCTIONS[_op]))


@operator("Mean")
def mean(node: Node, *operands: Value) -> Value:
    return reduce(ops.FUNCTIONS["add"], operands) / len(operands)


@operator("Where", host=lambda node, test, x, y: np.where(test, x, y))
def where(node: Node, test: Value, x: Value, y: Value) -> Value:
    return ops.FUNCTIONS["where"](test, x, y)
