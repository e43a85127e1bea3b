"""What Triton's interpreter gets wrong or lacks, put right, so that tests see faults of the sources alone.

Tried on Triton 3.6 and 3.9 with NumPy 2.4.  TRITON_INTERPRET must be set before triton is imported.
"""

from __future__ import annotations

import ctypes

import numpy as np
import triton.language as tl
from ml_dtypes import bfloat16
from triton.language.extra import libdevice
from triton.runtime import interpreter

from lamina.ir.kernel import special

Handle = interpreter.TensorHandle
Builder = interpreter.InterpreterBuilder


def repair() -> None:
    """Put right all that is listed here; once for a process."""
    _bfloat16()
    _libdevice()
    _all_ones()
    _comparisons()
    _ranges()
    _by_halves()


def _numbers(handle: Handle) -> np.ndarray:
    """A handle's values: bfloat16 is kept as its bits, in uint16."""
    return handle.data.view(bfloat16) if handle.dtype.scalar == tl.bfloat16 else handle.data


def _bfloat16() -> None:
    """3.6 and 3.9: tl.dot and atomics take the bits of bfloat16 for numbers; float32 is cut, not rounded, and
    a conversion to or from any other type converts the bits.  3.6: atomics read broadcast values as if they
    lay in order, and there are no constants of bfloat16.
    """
    plain_dot, plain_cast, plain_atomic = Builder.create_dot, Builder.cast_impl, Builder.create_atomic_rmw

    def create_dot(self, a, b, d, *rest):
        if tl.bfloat16 not in (a.dtype.scalar, b.dtype.scalar):
            return plain_dot(self, a, b, d, *rest)
        product = np.matmul(_numbers(a).astype(np.float32), _numbers(b).astype(np.float32))
        return Handle(product.astype(d.data.dtype) + d.data, d.dtype.scalar)

    def cast_impl(self, src, dst_type):
        if tl.bfloat16 not in (src.dtype.scalar, dst_type.scalar):
            return plain_cast(self, src, dst_type)
        if dst_type.scalar == tl.bfloat16:
            return Handle(_numbers(src).astype(bfloat16).view(np.uint16), tl.bfloat16)
        kind = interpreter._get_np_dtype(dst_type)
        return Handle(_numbers(src).astype(np.float32).astype(kind), dst_type.scalar)

    def create_fp_to_fp(self, src, dst_type, rounding_mode):
        return self.cast_impl(src, dst_type)

    def create_atomic_rmw(self, word, ptr, val, mask, *rest):
        if val.dtype.scalar != tl.bfloat16:
            ptr, val, mask = (Handle(np.ascontiguousarray(x.data), x.dtype) for x in (ptr, val, mask))
            return plain_atomic(self, word, ptr, val, mask, *rest)
        before = np.zeros(val.data.shape, np.uint16)
        for at in zip(*np.nonzero(mask.data), strict=True):  # the one that bfloat16 has is add
            element = np.frombuffer((ctypes.c_uint16 * 1).from_address(int(ptr.data[at])), np.uint16)
            before[at] = element[0]
            element.view(bfloat16)[0] += _numbers(val)[at]
        return Handle(before, tl.bfloat16)

    def get_bf16(self, value):
        return Handle(np.array([value], bfloat16).view(np.uint16), tl.bfloat16)

    Builder.create_dot, Builder.cast_impl = create_dot, cast_impl
    Builder.create_fp_to_fp, Builder.create_atomic_rmw = create_fp_to_fp, create_atomic_rmw
    Builder.get_bf16 = get_bf16
    for name in ("create_fp_ext", "create_fp_trunc", "create_si_to_fp", "create_ui_to_fp"):
        setattr(Builder, name, cast_impl)
    for name in ("create_fp_to_si", "create_fp_to_ui"):
        setattr(Builder, name, cast_impl)


# The functions that sources call, as NumPy has them.
LIBDEVICE = {
    name: getattr(np, numpy)
    for name, numpy in {
        "fmod": "fmod", "rint": "rint", "trunc": "trunc", "copysign": "copysign", "exp": "exp",
        "expm1": "expm1", "log10": "log10", "log1p": "log1p", "tan": "tan", "asin": "arcsin",
        "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
        "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "atan2": "arctan2", "pow": "power",
    }.items()
}  # fmt: skip
LIBDEVICE |= {"erfc": special.erfc, "erfinv": special.erfinv, "lgamma": special.lgamma}
LIBDEVICE["ldexp"] = lambda p, n: np.ldexp(p, np.clip(n, -5000, 5000)).astype(p.dtype)


def _libdevice() -> None:
    """3.6 and 3.9: the functions of libdevice do nothing."""

    def calling(function):
        def call(*operands):
            arrays = np.broadcast_arrays(*(x.handle.data for x in operands))
            value = np.asarray(function(*arrays)).astype(arrays[0].dtype)
            return tl.core.tensor(Handle(value, operands[0].dtype.scalar), _type(operands, value))

        return call

    for name, function in LIBDEVICE.items():
        setattr(libdevice, name, calling(function))


def _type(operands, value: np.ndarray):
    """Of scalars a scalar; a block beside one spreads it, as Triton's compiler does."""
    kind = operands[0].dtype.scalar
    blocks = any(x.type.is_block() for x in operands)
    return tl.block_type(kind, list(value.shape)) if blocks else kind


def _all_ones() -> None:
    """3.6: ~x of an unsigned type asks NumPy for -1 in it."""

    def get_all_ones_value(self, type):
        kind = interpreter._get_np_dtype(type)
        return Handle(np.array([-1], np.int64).astype(kind), type.scalar)

    Builder.get_all_ones_value = get_all_ones_value


def _comparisons() -> None:
    """3.6 and 3.9: what a comparison of scalars gives is kept as a number of their type once it is spread."""
    for name in [n for n in dir(Builder) if n.startswith(("create_icmp", "create_fcmp"))]:
        plain = getattr(Builder, name)

        def compare(self, lhs, rhs, plain=plain):
            return Handle(plain(self, lhs, rhs).data.astype(np.bool_), tl.int1)

        setattr(Builder, name, compare)


def _ranges() -> None:
    """3.6: a loop over range(tensor) fails with NumPy 2.4, which makes no integer of an array of one."""
    plain = interpreter._patch_lang_tensor

    def patched(tensor, *rest):
        result = plain(tensor, *rest)
        tensor.__index__ = lambda self: int(self.handle.data.squeeze())
        return result

    interpreter._patch_lang_tensor = patched


def _by_halves() -> None:
    """3.6 and 3.9: tl.reduce and tl.associative_scan with functions of one's own call them for each element
    by itself, which takes seconds; and results of int1 are numbers.  Here whole tensors are combined, as a
    GPU's threads do it: the first half with the second, and so on.
    """

    def combined(op, left: tuple, right: tuple, like: tuple) -> tuple:
        def tensors(arrays: tuple) -> list:
            return [op.to_tensor(np.ascontiguousarray(a), x.dtype) for a, x in zip(arrays, like, strict=True)]

        result = op.combine_fn.fn(*tensors(left), *tensors(right))
        results = result if isinstance(result, tuple) else (result,)
        return tuple(r.handle.data.astype(a.dtype) for r, a in zip(results, left, strict=True))

    def generic_reduce(self, input):
        data = tuple(np.moveaxis(x.handle.data, self.axis, 0) for x in input)
        while len(data[0]) > 1:
            half = len(data[0]) // 2
            data = combined(self, tuple(a[:half] for a in data), tuple(a[half:] for a in data), input)
        kept = (np.moveaxis(a, 0, self.axis) if self.keep_dims else a[0] for a in data)
        return [self.to_tensor(np.ascontiguousarray(a), x.dtype) for a, x in zip(kept, input, strict=True)]

    def generic_scan(self, input):
        data, step = tuple(np.moveaxis(x.handle.data, self.axis, 0) for x in input), 1
        while step < len(data[0]):
            before = tuple(np.roll(a, step, 0) for a in data)  # whole: Triton wants powers of two
            later = combined(self, before, data, input)
            data = tuple(np.concatenate([a[:step], b[step:]]) for a, b in zip(data, later, strict=True))
            step *= 2
        kept = (np.ascontiguousarray(np.moveaxis(a, 0, self.axis)) for a in data)
        return [self.to_tensor(a, x.dtype) for a, x in zip(kept, input, strict=True)]

    interpreter.ReduceOps.generic_reduce = generic_reduce
    interpreter.ScanOps.generic_scan = generic_scan
