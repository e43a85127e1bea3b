"""Write elementwise ops that ONNX has whole; all others are written by their bodies (word_writers.py)."""

from __future__ import annotations

from collections.abc import Callable

from ....ir.dtypes import bool_, float64, int64
from ....ir.graph import Node
from .graph_writer import Name, Writer, Written, writer

# ---- ops that are one operator


def _known(op: str, least: int = 0, **attrs: str | float) -> Callable[..., Written]:
    """What writes an op that ONNX has.  attrs: by ONNX's names, numbers or the op's names of them.

    In float64, of which runtimes have few, and of integers it is written by its body.
    """

    def write(w: Writer, node: Node, *operands: Name) -> Written:
        if w.opset < least or w.dtypes[operands[0]] is float64 or not w.dtypes[operands[0]].inexact:
            return None
        given = {name: float(node.attrs[a] if isinstance(a, str) else a) for name, a in attrs.items()}
        return w.emit(op, *operands, **given)

    return write


for _name, _write in {
    "relu": _known("Relu"),
    "leaky_relu": _known("LeakyRelu", alpha="negative_slope"),
    "elu": _known("Elu", alpha="alpha"),
    "celu": _known("Celu", alpha="alpha"),
    "selu": _known("Selu", alpha=1.6732632423543772848, gamma=1.0507009873554804934),
    "hardsigmoid": _known("HardSigmoid", alpha=1 / 6, beta=0.5),
    "hardswish": _known("HardSwish"),
    "softsign": _known("Softsign"),
    "_prelu": _known("PRelu"),
}.items():
    writer(_name)(_write)


@writer("gelu")
def gelu(w: Writer, node: Node, input: Name) -> Written:
    if w.opset < 20 or w.dtypes[input] is float64:
        return None
    return w.emit("Gelu", input, approximate=node.attrs["approximate"])


@writer("softplus")
def softplus(w: Writer, node: Node, input: Name) -> Written:
    plain = node.attrs["beta"] == 1 and node.attrs["threshold"] >= 20
    return w.emit("Softplus", input) if plain and w.dtypes[input] is not float64 else None


@writer("hardtanh", "relu6")
def limited(w: Writer, node: Node, input: Name) -> Written:
    low, high = node.attrs.get("min_val", 0), node.attrs.get("max_val", 6)
    return w.emit("Clip", input, low, high)


@writer("clamp")
def clamp(w: Writer, node: Node, input: Name, low: Name | None, high: Name | None) -> Written:
    if any(v is not None and v.ndim for v in node.inputs[1:]) or any(
        name is not None and w.dtypes[name] is not w.dtypes[input] for name in (low, high)
    ):
        return None
    return w.emit("Clip", input, low, high)


@writer("round")
def round(w: Writer, node: Node, input: Name) -> Written:
    return None if w.dtypes[input].is_floating_point else input


@writer("where")
def where(w: Writer, node: Node, condition: Name, input: Name, other: Name) -> Written:
    return w.emit("Where", condition, input, other)


@writer("detach")
def detach(w: Writer, node: Node, input: Name) -> Written:
    return input


@writer("isinf")
def isinf(w: Writer, node: Node, input: Name) -> Written:
    return w.emit("IsInf", input, dtype=bool_)


# ---- shifts, whose bits ONNX shifts in unsigned numbers alone


@writer("bitwise_left_shift")
def left_shift(w: Writer, node: Node, input: Name, other: Name) -> Written:
    return _shifted(w, input, other, w.emit("Mul", *_power(w, input, other)), w.constant(0, int64))


@writer("bitwise_right_shift")
def right_shift(w: Writer, node: Node, input: Name, other: Name) -> Written:
    wide, power = _power(w, input, other)
    rest = w.emit("Mod", wide, power)
    beyond = w.cast(w.emit("Less", wide, 0, dtype=bool_), int64)
    return _shifted(w, input, other, w.emit("Div", w.emit("Sub", wide, rest), power), w.emit("Neg", beyond))


def _power(w: Writer, input: Name, other: Name) -> tuple[Name, Name]:
    """The number as an int64, and the power of 2 that shifts it."""
    by = w.emit("Clip", w.cast(other, int64), 0, 62)
    return w.cast(input, int64), w.emit("Pow", w.constant(2, int64), by)


def _shifted(w: Writer, input: Name, other: Name, near: Name, beyond: Name) -> Name:
    dtype, by = w.dtypes[input], w.cast(other, int64)
    width = dtype.itemsize * 8
    inside = w.emit(
        "And",
        w.emit("GreaterOrEqual", by, 0, dtype=bool_),
        w.emit("Less", by, min(width, 63), dtype=bool_),
    )
    return w.cast(w.emit("Where", inside, near, beyond), dtype)
