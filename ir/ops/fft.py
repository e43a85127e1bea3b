"""Discrete Fourier transforms, by the libraries of ../transforms.py.

Three records do the work (complex to complex, real to half of a Hermitian signal, and back), and everything
that PyTorch has is written with them.  Their scale is said as one word, "none", "ortho" (1/sqrt(n)) or "n"
(1/n), so that the adjoint, which is the gradient, is the transform in the other direction with the same word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import lowering, transforms
from ..dtypes import COMPLEX, bfloat16, default_dtype, float16, float32, float64
from ..errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..op import Traits, composite, define
from ..sample import sample
from ..shapes import dim_of
from ..types import Type
from .cast import cast, dtype_of
from .complex import conj, is_complex_valued, real
from .join import cat, constant_pad
from .rearrange import roll
from .view import narrow

_LIBRARY = lowering.extern("Fourier transforms are a library of the host")


# ---- records


def bind_fft_c2c(input, dim, scale="none", forward=True):
    """Transform over the dimensions `dim`; scale: "none", "ortho" or "n".  Shapes: [...] -> complex [...]."""
    return (input,), {"dim": tuple(dim), "scale": scale, "forward": bool(forward)}


fft_c2c = define(
    "fft_c2c",
    bind=bind_fft_c2c,
    infer=lambda input, *, dim, scale, forward: input.with_dtype(input.dtype.to_complex()),
    reference=lambda input, *, dim, scale, forward: transforms.c2c(input, dim, scale, forward),
    dtypes="complex",
    complex="stated",
    grad=lambda g, dim, scale, forward: fft_c2c(g, dim, scale, not forward),
    traits=Traits(in_order=True),
    lower=_LIBRARY,
    method=False,
    samples=lambda: [
        sample((1,), dim=(0,)),
        sample((17,), dim=(0,)),
        sample((2, 3, 4), dim=(0, 2), scale="n", forward=False),
    ],
)


def bind_fft_r2c(input, dim, scale="none"):
    """Transform real numbers forwards over `dim`, and keep the first half of the last of these dimensions.

    Shapes: real [..., n, ...] -> complex [..., n // 2 + 1, ...].
    """
    return (input,), {"dim": tuple(dim), "scale": scale}


def _infer_r2c(input: Type, *, dim: tuple, scale: str) -> Type:
    at = dim[-1]
    shape = (*input.shape[:at], input.shape[at] // 2 + 1, *input.shape[at + 1 :])
    return input.with_shape(shape).with_dtype(input.dtype.to_complex())


def _grad_r2c(g: Any, input_type: Type, dim: tuple, scale: str) -> Any:
    """The half that is not there had no say: zeros in its place, and back."""
    at = dim[-1]
    missing = input_type.shape[at] - g.shape[at]
    return real(fft_c2c(_resized(g, at, g.shape[at] + missing), dim, scale, False))


fft_r2c = define(
    "fft_r2c",
    bind=bind_fft_r2c,
    infer=_infer_r2c,
    reference=lambda input, *, dim, scale: transforms.r2c(input, dim, scale),
    dtypes="complex",
    grad=_grad_r2c,
    traits=Traits(in_order=True),
    lower=_LIBRARY,
    method=False,
    samples=lambda: [
        sample((1,), dim=(0,)),
        sample((17,), dim=(0,)),
        sample((2, 3, 4), dim=(0, 2), scale="n"),
    ],
)


def bind_fft_c2r(input, dim, size, scale="n"):
    """Transform half of a Hermitian signal back to `size` real numbers along the last dimension of `dim`.

    Shapes: complex [..., size // 2 + 1, ...] -> real [..., size, ...].
    """
    return (input,), {"dim": tuple(dim), "size": int(size), "scale": scale}


def _infer_c2r(input: Type, *, dim: tuple, size: int, scale: str) -> Type:
    at = dim[-1]
    shape = (*input.shape[:at], size, *input.shape[at + 1 :])
    return input.with_shape(shape).with_dtype(input.dtype.to_real())


def _grad_c2r(g: Any, dim: tuple, size: int, scale: str) -> Any:
    """Every number but the first, and the last of an even size, stands for its mirror image as well."""
    half = fft_r2c(g, dim, scale)
    at, twice = dim[-1], (size - 1) // 2
    if not twice:
        return half
    parts = [narrow(half, at, 0, 1), narrow(half, at, 1, twice) * 2.0]
    if size % 2 == 0:
        parts.append(narrow(half, at, twice + 1, 1))
    return cat(parts, at)


fft_c2r = define(
    "fft_c2r",
    bind=bind_fft_c2r,
    infer=_infer_c2r,
    reference=lambda input, *, dim, size, scale: transforms.c2r(input, dim, size, scale),
    dtypes="complex",
    complex="stated",
    grad=_grad_c2r,
    traits=Traits(in_order=True),
    lower=_LIBRARY,
    method=False,
    samples=lambda: [
        sample((1,), dim=(0,), size=1),
        sample((9,), dim=(0,), size=17),
        sample((2, 3, 3), dim=(0, 2), size=4, scale="none"),
    ],
)


# ---- arguments


def _scale(op: str, norm: Any, forward: bool) -> str:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ArgumentValueError(f"{op}: norm is 'forward', 'backward', 'ortho' or None, not {norm!r}")
    if norm == "ortho":
        return "ortho"
    return "n" if (norm == "forward") is forward else "none"


def _ready(op: str, input: Any) -> Any:
    """The operand as floats or complex numbers; integers become the default float.  Raises DTypeError."""
    if not hasattr(input, "ndim"):
        raise ArgumentError(f"{op}: input must be a tensor, not {type(input).__name__}")
    dtype = dtype_of(input)
    if dtype in (float16, bfloat16):
        raise dtype.refused(op, "convert first: x.float()")
    return input if dtype.inexact else cast(input, dtype=default_dtype())


def _complexes(x: Any) -> Any:
    return x if is_complex_valued(x) else cast(x, dtype=dtype_of(x).to_complex())


def _reals(op: str, input: Any) -> Any:
    found = _ready(op, input)
    if is_complex_valued(found):
        raise DTypeError(
            f"{op}: takes real numbers, not {dtype_of(found).name}", f"{op[1:]} takes complex ones"
        )
    return found


def _resized(x: Any, dim: int, n: int) -> Any:
    """Cut, or continued by zeros, to size `n` along a dimension."""
    size = x.shape[dim]
    if n == size:
        return x
    if n < size:
        return narrow(x, dim, 0, n)
    return constant_pad(x, tuple((0, n - size if d == dim else 0) for d in range(x.ndim)))


def _length(op: str, n: Any) -> int:
    if not hasattr(n, "__index__") or isinstance(n, bool):
        raise ArgumentError(f"{op}: a size must be an int, not {type(n).__name__}")
    n = n.__index__()
    if n < 1:
        raise ArgumentValueError(f"{op}: Invalid number of data points ({n}) specified")
    return n


def _dim(op: str, dim: Any, input: Any) -> int:
    if not input.ndim:
        raise ShapeError(f"{op}: a 0-d tensor has no dimension to transform over")
    return dim_of(op, dim, input.ndim)


def _listed(op: str, name: str, value: Any) -> list[int]:
    if isinstance(value, (tuple, list)):
        values = list(value)
    elif hasattr(value, "__index__"):
        values = [value]
    else:
        raise ArgumentError(f"{op}: {name} must be ints, not {type(value).__name__}")
    if not all(hasattr(v, "__index__") for v in values):
        raise ArgumentError(f"{op}: {name} must be ints")
    return [v.__index__() for v in values]


def _over(op: str, input: Any, s: Any, dim: Any) -> tuple[list[int | None], tuple[int, ...]]:
    """The size asked for along each dimension (None: as it is), and the dimensions."""
    if s is not None:
        s = _listed(op, "s", s)
    if dim is None:
        count = input.ndim if s is None else len(s)
        if count > input.ndim:
            raise ArgumentValueError(f"{op}: {count} sizes, and the input has {input.ndim} dimensions")
        dims = tuple(range(input.ndim - count, input.ndim))
    else:
        dims = tuple(_dim(op, d, input) for d in _listed(op, "dim", dim))
        if len(set(dims)) < len(dims):
            raise ArgumentValueError(f"{op}: dims must be unique, not {dim}")
    if s is not None and len(s) != len(dims):
        raise ArgumentValueError(f"{op}: {len(s)} sizes for {len(dims)} dimensions")
    sizes: list[int | None]
    sizes = [None if n == -1 else _length(op, n) for n in s] if s is not None else [None] * len(dims)
    for n, d in zip(sizes, dims, strict=True):
        if n is None:
            _length(op, input.shape[d])
    return sizes, dims


def _fitted(x: Any, sizes: Sequence[int | None], dims: Sequence[int]) -> Any:
    for n, d in zip(sizes, dims, strict=True):
        x = x if n is None else _resized(x, d, n)
    return x


# ---- several dimensions


def _c2c_over(op: str, input: Any, s: Any, dim: Any, norm: Any, forward: bool) -> Any:
    scale = _scale(op, norm, forward)
    x = _ready(op, input)
    sizes, dims = _over(op, x, s, dim)
    x = _fitted(x, sizes, dims)
    return fft_c2c(x, dims, scale, forward) if dims else _complexes(x)


def _from_real(op: str, input: Any, s: Any, dim: Any, norm: Any, forward: bool) -> Any:
    """Half of the transform of real numbers; backwards it is the conjugate of the one forwards."""
    scale = _scale(op, norm, forward)
    x = _reals(op, input)
    sizes, dims = _over(op, x, s, dim)
    if not dims:
        raise ArgumentValueError(f"{op}: at least one dimension must be transformed")
    half = fft_r2c(_fitted(x, sizes, dims), dims, scale)
    return half if forward else conj(half)


def _to_real(op: str, input: Any, s: Any, dim: Any, norm: Any, forward: bool) -> Any:
    scale = _scale(op, norm, forward)
    x = _complexes(_ready(op, input))
    sizes, dims = _over(op, x, s, dim)
    if not dims:
        raise ArgumentValueError(f"{op}: at least one dimension must be transformed")
    last = sizes[-1] if sizes[-1] is not None else _length(op, 2 * (x.shape[dims[-1]] - 1))
    x = _fitted(x, [*sizes[:-1], last // 2 + 1], dims)
    return fft_c2r(conj(x) if forward else x, dims, last, scale)


_KINDS: dict[str, tuple[Callable, bool, str, str]] = {
    "fft": (_c2c_over, True, "Transform", "[..., n, ...] -> complex [..., n, ...]"),
    "ifft": (_c2c_over, False, "Transform back", "[..., n, ...] -> complex [..., n, ...]"),
    "rfft": (_from_real, True, "Transform real numbers", "real [..., n] -> complex [..., n // 2 + 1]"),
    "irfft": (_to_real, False, "Transform back to reals", "complex [..., n // 2 + 1] -> real [..., n]"),
    "hfft": (_to_real, True, "Transform a Hermitian signal", "complex [..., n // 2 + 1] -> real [..., n]"),
    "ihfft": (_from_real, False, "Transform back to half a signal", "real [..., n] -> [..., n // 2 + 1]"),
}  # fmt: skip


# Whose plainest calls need no look at their arguments, a third of a small one, and of which dtypes.
_SHORT: dict[str, tuple] = {"fft": COMPLEX, "ifft": COMPLEX, "rfft": (float32, float64)}


def _enter(kind: str) -> None:
    """Enter a transform of one dimension, of two and of any number."""
    run, forward, what, shapes = _KINDS[kind]
    short = _SHORT.get(kind, ())
    said = (
        f"Shapes: {shapes}, by default of as many points as there are.  norm: 'backward' (scaled on the way "
        "back), 'ortho', 'forward'.\n    Raises ArgumentValueError, DimError, DTypeError."
    )

    def one(input, n=None, dim=-1, norm=None):
        known = getattr(input, "dtype", None)
        if n is norm is None and type(dim) is int and known in short:
            at = dim + input.ndim if dim < 0 else dim
            if 0 <= at < input.ndim and input.shape[at]:
                if kind == "rfft":
                    return fft_r2c(input, (at,), "none")
                return fft_c2c(input, (at,), "none" if forward else "n", forward)
        return run(f"{kind}", input, None if n is None else (n,), (dim,), norm, forward)

    def two(input, s=None, dim=(-2, -1), norm=None):
        return run(f"{kind}2", input, s, dim, norm, forward)

    def several(input, s=None, dim=None, norm=None):
        return run(f"{kind}n", input, s, dim, norm, forward)

    docs = {
        one: f"{what} along `dim`, of `n` points (cut, or continued by zeros).",
        two: f"{what} over two dimensions, of sizes `s`; the last one is halved where one is.",
        several: f"{what} over `dim` (None: all, or the last ones that `s` has sizes for).",
    }
    for function, suffix in ((one, ""), (two, "2"), (several, "n")):
        function.__name__ = function.__qualname__ = f"fft_{kind}{suffix}"
        function.__doc__ = f"{docs[function]}\n\n    {said}"
        composite(method=False, by_type=True)(function)


for _kind in _KINDS:
    _enter(_kind)


# ---- order


def _moved(op: str, input: Any, dim: Any, sign: int) -> Any:
    dims = range(input.ndim) if dim is None else [_dim(op, d, input) for d in _listed(op, "dim", dim)]
    for d in dims:
        n = input.shape[d]
        input = roll(input, n // 2 if sign > 0 else (n + 1) // 2, d)
    return input


@composite(method=False)
def fft_fftshift(input, dim=None):
    """Move the frequency 0 to the middle of the dimensions `dim` (None: of all)."""
    return _moved("fftshift", input, dim, 1)


@composite(method=False)
def fft_ifftshift(input, dim=None):
    """Move the frequency 0 from the middle of the dimensions `dim` (None: of all) back to the front."""
    return _moved("ifftshift", input, dim, -1)
