"""Products of 8-bit integers with exact 32-bit sums, and the packing of 4-bit weights.

What else quantisation needs is ordinary ops: to quantise is to scale, round, clamp and cast, to dequantise is
to cast and scale, and a zero point z of the first factor is a sum over the second, taken once:

    sum of (a - z) * b  ==  int_matmul(a, b) - z * sum of b
"""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

from .. import dtypes, lowering
from ..dims import same
from ..errors import ArgumentValueError, DTypeError, ShapeError
from ..kernel import scalar
from ..op import Op, composite, define
from ..sample import Operand, Sample
from ..shapes import common_device
from ..types import Type, type_of
from .cast import cast
from .conv import build_conv, check_channels, conv_attrs
from .matmul import build_matmul, matmul_shape, need_dims, remedies
from .sliding import SAMPLE_SIZES, Window
from .view import reshape

# Float32 counts by ones to 2^24, so BLAS adds up this many products of a byte and an i8 without rounding.
EXACT = (1 << 24) // (255 * 128)


def check_bytes(call: str, first: tuple[str, Type], second: tuple[str, Type]) -> None:
    """Raise DTypeError unless the first factor is i8 or u8 and the second one i8."""
    (name, t), (other, u) = first, second
    if t.dtype not in (dtypes.int8, dtypes.uint8):
        raise DTypeError(
            f"{call}: {name} must be int8 or uint8, not {t.dtype.name}",
            "quantise first: (x / scale).round().clamp(-128, 127).to(lamina.int8)",
        )
    if u.dtype is not dtypes.int8:
        raise DTypeError(f"{call}: {other} must be int8, not {u.dtype.name}", "weights are signed")


def exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a @ b of small integers held as float32, summed in int32, which wraps.

    NumPy's product of integers has no BLAS: it takes a hundred times as long.
    """
    k = a.shape[-1]
    total = np.matmul(a[..., :EXACT], b[..., :EXACT, :]).astype(np.int32)
    for start in range(EXACT, k, EXACT):
        total += np.matmul(a[..., start : start + EXACT], b[..., start : start + EXACT, :]).astype(np.int32)
    return total


# ---- matmul


def bind_int_matmul(a, b):
    """Multiply matrices of bytes, or batches of them, with exact 32-bit sums, which wrap.

    Shapes: i8 or u8 [..., m, k] @ i8 [..., k, n] -> i32 [..., m, n], leading dimensions broadcast.
    Raises ShapeError, DTypeError.
    """
    return (a, b), {}


def infer_int_matmul(a: Type, b: Type) -> Type:
    check_bytes("int_matmul(a, b)", ("a", a), ("b", b))
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(
            f"int_matmul(a, b): both need 2 dimensions or more (they have {a.ndim} and {b.ndim})",
            "x[None] is a row, x[:, None] a column",
        )
    if not same(a.shape[-1], b.shape[-2]):
        raise ShapeError(
            f"int_matmul(a, b): the columns of a must equal the rows of b ({a.shape[-1]} != {b.shape[-2]})",
            *(line.replace("matmul(", "int_matmul(") for line in remedies(a, b)),
        )
    return type_of(dtypes.int32, matmul_shape(a.shape, b.shape), common_device("int_matmul", a, b))


def int_matmul_reference(a, b):
    x, y = a.astype(np.float32), b.astype(np.float32)
    if b.ndim > 2 or a.ndim == 2:
        return exact_product(x, y)
    rows = x.reshape(prod(a.shape[:-1]), a.shape[-1])  # one product in place of a batch of them
    return exact_product(rows, y).reshape(*a.shape[:-1], b.shape[-1])


class Wide:
    """A byte operand of a kernel whose elements are read as i32."""

    def __init__(self, k: Any, operand: Any):
        self.k, self.operand, self.shape, self.ndim = k, operand, operand.shape, operand.ndim

    def __getitem__(self, index: Any) -> Any:
        return self.k.cast(self.operand[index], dtypes.int32)

    def at(self, *index: Any, outside: Any) -> Any:
        return self.k.cast(self.operand.at(*index, outside=outside), dtypes.int32)

    def broadcast(self, *index: Any) -> Any:
        return self.k.cast(self.operand.broadcast(*index), dtypes.int32)


ANY: dict[str, Any] = {"low": -128, "high": 128}  # of u8 the tests take what is not negative
WEIGHT: dict[str, Any] = {"low": -128, "high": 128, "category": "int8"}


def _product_sample(a: tuple, b: tuple) -> Sample:
    return Sample((Operand(a, **ANY), Operand(b, **WEIGHT)))


int_matmul = define(
    "int_matmul",
    operands=("a", "b"),
    attrs=(),
    bind=bind_int_matmul,
    infer=infer_int_matmul,
    reference=int_matmul_reference,
    lower=lowering.kernel(lambda k, a, b: build_matmul(k, Wide(k, a), Wide(k, b))),
    dtypes="byte",
    method=False,
    samples=lambda: [
        _product_sample((1, 17), (17, 1)),
        _product_sample((3, 4), (4, 33)),
        _product_sample((0, 4), (4, 5)),
        _product_sample((3, 0), (0, 2)),
        _product_sample((5, 1100), (1100, 3)),
        _product_sample((2, 3, 4), (4, 2)),
        _product_sample((3, 4), (2, 4, 2)),
        _product_sample((3, 1, 2, 4), (2, 4, 2)),
    ],
    inapplicable={"0-d": "a product of matrices needs two dimensions"},
)


@composite(method=False)
def _int_mm(input, mat2):
    """Multiply two i8 matrices with exact 32-bit sums.  Shapes: [m, k], [k, n] -> i32 [m, n]."""
    need_dims("_int_mm(input, mat2)", input=(input, 2), mat2=(mat2, 2))
    return int_matmul(input, mat2)


# ---- convolutions


def infer_int_conv(op: str, n: int):
    def infer(input: Type, weight: Type, *, stride, padding, dilation, groups, padding_value) -> Type:
        check_bytes(f"{op}(input, weight)", ("input", input), ("weight", weight))
        check_channels(op, input, weight, n, groups)
        low, high = (0, 255) if input.dtype is dtypes.uint8 else (-128, 127)
        if not low <= padding_value <= high:
            raise ArgumentValueError(
                f"{op}: padding_value must be a number that {input.dtype.name} holds, not {padding_value}"
            )
        places = Window(weight.shape[2:], stride, padding, dilation).places(op, input.shape[-n:])
        shape = (*input.shape[: -n - 1], weight.shape[0], *places)
        return type_of(dtypes.int32, shape, common_device(op, input, weight))

    return infer


def int_conv_reference(input, weight, *, stride, padding, dilation, groups, padding_value):
    window = Window(weight.shape[2:], stride, padding, dilation)
    x = (input if input.ndim == weight.ndim else input[None]).astype(np.float32)
    batch, outs, places = x.shape[0], weight.shape[0], window.places("int_conv", x.shape[2:])
    terms = prod(weight.shape[1:])
    columns = window.view(x, places, padding_value).reshape(batch, groups, terms, prod(places))
    w = weight.astype(np.float32).reshape(groups, outs // groups, terms)
    y = exact_product(w, columns).reshape(batch, outs, *places)
    return y if input.ndim == weight.ndim else y[0]


def int_conv_samples(n: int):
    x, w = (7, 5)[:n], (3, 2)[:n]

    def of(a: tuple, b: tuple, **how: Any) -> Sample:
        return Sample((Operand(a, **ANY), Operand(b, **WEIGHT)), how)

    def samples():
        yield of((2, 3, *x), (4, 3, *w))
        yield of((2, 3, *x), (4, 3, *w), stride=2, padding=1, padding_value=3)
        yield of((0, 2, *x), (3, 2, *w))
        yield of((2, *x), (3, 2, *w), padding=1)
        yield of((1, 4, *x), (6, 2, *w), padding=(2, 1)[:n], dilation=(1, 2)[:n], groups=2, padding_value=9)
        yield of((2, 3, *x), (3, 1, *w), padding="same", groups=3)
        yield of((1, 600, *x), (2, 600, *(1,) * n))

    return samples


def make_int_conv(n: int) -> Op:
    op = f"int_conv{n}d"
    spatial = "".join(f", {d}" for d in "hw"[-n:])

    def bind(input, weight, stride=1, padding=0, dilation=1, groups=1, padding_value=0):
        attrs = conv_attrs(op, n, weight, stride, padding, dilation, groups)
        return (input, weight), attrs | {"padding_value": operator.index(padding_value)}

    bind.__doc__ = f"""Slide kernels of bytes over {n} dimension{"s" * (n > 1)}, with exact 32-bit sums.

    Shapes: i8 or u8 [n, c{spatial}], i8 [k, c / groups{spatial}] -> i32 [n, k{spatial}]; the batch may be
    missing.  stride, padding, dilation and groups as in conv{n}d.  padding_value: what lies beyond the edges,
    the zero point of input.  Raises ShapeError, DTypeError, ArgumentValueError.
    """

    def build(k: Any, input: Any, weight: Any, *, padding_value: int, **how: Any) -> None:
        build_conv(k, Wide(k, input), Wide(k, weight), None, outside=padding_value, **how)

    return define(
        op,
        operands=("input", "weight"),
        attrs=("stride", "padding", "dilation", "groups", "padding_value"),
        bind=bind,
        infer=infer_int_conv(op, n),
        reference=int_conv_reference,
        lower=lowering.kernel(build),
        samples=int_conv_samples(n),
        inapplicable=SAMPLE_SIZES,
        dtypes="byte",
        method=False,
    )


int_conv1d, int_conv2d = make_int_conv(1), make_int_conv(2)


# ---- packing


def grouped(call: str, shape: tuple, group: int) -> tuple[int, int]:
    """How many groups the last of `shape`'s dimensions has, and half a group's size.  Raises ShapeError."""
    if group < 2 or group % 2 or not shape or shape[-1] % group:
        raise ShapeError(
            f"{call}: groups are even and divide the last dimension ({group} of {list(shape)} do not)",
            f"group={shape[-1]} is one group" if shape and not shape[-1] % 2 else "pad by a zero",
        )
    return shape[-1] // group, group // 2


@composite(method=False)
def pack_int4(input, group):
    """Pack integers from -8 to 7 two in a byte.  Shapes: i8 [..., k] -> u8 [..., k / 2].

    Of each `group` numbers along the last dimension the first half stands in the low four bits, the second
    half in the high ones, as value + 8: a vector of bytes unpacks into two vectors of neighbours.
    Raises ShapeError unless groups are even and divide k, DTypeError for other numbers than i8.
    """
    if input.dtype is not dtypes.int8:
        raise DTypeError(
            f"pack_int4(input, group): input must be int8, not {input.dtype.name}",
            "quantise first: (x / scale).round().clamp(-8, 7).to(lamina.int8)",
        )
    count, half = grouped("pack_int4(input, group)", input.shape, group)
    parts = cast(reshape(input, (*input.shape[:-1], count, 2, half)) + 8, dtype=dtypes.uint8)
    return reshape(parts[..., 0, :] + parts[..., 1, :] * 16, (*input.shape[:-1], count * half))


def bind_unpack_int4(input, group):
    """Unpack what `pack_int4` packed.  Shapes: u8 [..., k / 2] -> i8 [..., k].  Raises ShapeError."""
    grouped("unpack_int4(input, group)", (2 * input.shape[-1],) if input.ndim else (), group)
    return (input,), {"group": group}


def infer_unpack_int4(input: Type, *, group: int) -> Type:
    if input.dtype not in (dtypes.int8, dtypes.uint8):
        raise DTypeError(f"unpack_int4(input): input must be uint8, not {input.dtype.name}")
    return type_of(dtypes.int8, (*input.shape[:-1], 2 * input.shape[-1]), common_device("unpack_int4", input))


def unpack_int4_reference(input, *, group):
    half = group // 2
    pairs = input.view(np.uint8).reshape(*input.shape[:-1], input.shape[-1] // half, 1, half)
    halves = np.concatenate([pairs & 15, pairs >> 4], axis=-2).astype(np.int8) - np.int8(8)
    return halves.reshape(*input.shape[:-1], 2 * input.shape[-1])


def build_unpack_int4(k: Any, input: Any, *, group: int) -> None:
    """In 32 bits, which a vector of weights is widened to in any case."""
    half = group // 2
    *rows, g, high, column = k.parallel(*input.shape[:-1], input.shape[-1] // half, 2, half)
    pair = k.cast(input[*rows, g * half + column], dtypes.int32)
    shift = k.cast(k.coordinate(high * 4), dtypes.int32)
    number = scalar.op("sub", scalar.op("bit_and", scalar.op("shr", pair, shift), 15), 8)
    k.store(k.cast(number, dtypes.int8), at=(*rows, g * group + high * half + column))


unpack_int4 = define(
    "unpack_int4",
    operands=("input",),
    attrs=("group",),
    bind=bind_unpack_int4,
    infer=infer_unpack_int4,
    reference=unpack_int4_reference,
    lower=lowering.kernel(build_unpack_int4),
    dtypes="byte",
    method=False,
    samples=lambda: [
        Sample((Operand(shape, **ANY),), {"group": group})
        for shape, group in (((1,), 2), ((17,), 34), ((33,), 2), ((0, 4), 4), ((3, 16), 8), ((2, 3, 8), 16))
    ],
    inapplicable={"0-d": "bytes of a row are needed"},
)
