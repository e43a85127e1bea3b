"""Random numbers as pure functions of a state, int64 [seed, offset].

The op reads Philox words from its state's counter on; how many is fixed by shape and dtype (`draws`), so that
a generator can hand out states that don't meet.  Bits, integers, uniforms and masks are equal on every
device; what goes through log, cos or sin agrees to a few ulps.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from .. import lowering
from ..dims import Dim
from ..dtypes import FLOATS, DType, as_dtype, bfloat16, bool_, default_dtype, float16, float32, float64, int64
from ..errors import ArgumentValueError, DTypeError, ShapeError
from ..kernel import scalar
from ..kernel.philox import random_element
from ..op import REGISTRY, Op, Traits, define
from ..random_bits import words
from ..sample import Operand, Sample
from ..types import Shape, Type, type_of
from ..views import flat_place, row_major

# How many 32-bit words each op's draw takes, of its operand types and attrs.
_WORDS: dict[str, Callable[..., int]] = {}


def draws(op: Op, *types: Type, **attrs: Any) -> int:
    """The number of Philox counters that a draw takes: what a generator's offset moves on by."""
    return -(-_WORDS[op.name](*types, **attrs) // 4)


def _random(name: str, *, takes: Callable[..., int], **record: Any) -> Op:
    _WORDS[name] = takes
    return define(name, **({"method": False} | record))


_STATE = Operand((2,), 0, 1000, category="int")
_FROM_STATE = dict.fromkeys(
    ("0-d", "empty", "1", "17", "33", "transposed", "strided", "broadcast"),
    "the operand is a generator's state",
)
_RANDOM = Traits(random=True)


def _wide(dtype: DType) -> int:
    """Words to an element: float64 takes two."""
    return 2 if dtype is float64 else 1


def _drawn(state: Type, *, size: Shape, dtype: DType, **_: Any) -> Type:
    return type_of(dtype, size, state.device)


def _bind(name: str) -> Callable:
    def bind(state, size, *, dtype=None):
        dtype = default_dtype() if dtype is None else as_dtype(dtype)
        if dtype not in FLOATS:
            raise DTypeError(f"{name}: dtype must be a floating type, not {dtype}")
        return (state,), {"size": tuple(size), "dtype": dtype}

    return bind


def _size_samples(dtypes: tuple[DType, ...]) -> Callable[[], list[Sample]]:
    return lambda: [
        Sample((_STATE,), {"size": size, "dtype": dtype}, differentiable=False)
        for dtype in dtypes
        for size in ((), (0,), (1,), (17,), (3, 33))
    ]


# ---- words in a kernel
def _flat(k: Any, axes: tuple, shape: Shape) -> Any:
    """The place of an element in row-major order, u64."""
    place = flat_place(axes, row_major(shape))
    return scalar.const(0, "u64") if isinstance(place, int) else scalar.cast(place.expr, "u64")


def _word(state: Any, number: Any) -> Any:
    """Word `number`, u64, of the draw at `state`, as u32."""
    seed, offset = scalar.cast(state[0], "u64"), scalar.cast(state[1], "u64")
    return random_element(scalar.cast(seed, "u32"), scalar.cast(seed >> 32, "u32"), offset, number)


# ---- uniform
# f16 and bf16 have 11 and 8 bits: more would round up to 1.
_BITS = {float32: 24, float16: 11, bfloat16: 8}


def _uniform(w: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers in [0, 1) of words, flat."""
    if dtype is float64:
        pairs = w.reshape(-1, 2)
        return ((pairs[:, 0] >> 5) * 67108864.0 + (pairs[:, 1] >> 6)) * 2.0**-53
    bits = _BITS[dtype]
    return (w >> (32 - bits)).astype(np.float32) * np.float32(2.0**-bits)


def _uniform_at(state: Any, element: Any, dtype: DType) -> Any:
    if dtype is float64:
        high, low = _word(state, element * 2) >> 5, _word(state, element * 2 + 1) >> 6
        return (scalar.cast(high, "f64") * 67108864.0 + scalar.cast(low, "f64")) * 2.0**-53
    bits = _BITS[dtype]
    return scalar.cast(_word(state, element) >> (32 - bits), "f32") * 2.0**-bits


def _build_uniform(k: Any, state: Any, *, size: Shape, dtype: DType) -> None:
    axes = k.parallel(*size)
    k.store(_uniform_at(state, _flat(k, axes, size), dtype), at=axes)


random_uniform = _random(
    "random_uniform",
    takes=lambda state, *, size, dtype: prod(size) * _wide(dtype),
    bind=_bind("random_uniform"),
    doc="Draw numbers uniformly from [0, 1), multiples of 2^-24 (f64: 2^-53, f16: 2^-11, bf16: 2^-8).",
    infer=_drawn,
    reference=lambda state, *, size, dtype: _uniform(words(state, prod(size) * _wide(dtype)), dtype).reshape(
        size
    ),
    lower=lowering.kernel(_build_uniform),
    traits=_RANDOM,
    samples=_size_samples(FLOATS),
    inapplicable=_FROM_STATE,
)


# ---- normal and exponential
def _open_uniform(w: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers in (0, 1], the middles of 2^32 steps (f64: of 2^53)."""
    if dtype is float64:
        return _uniform(w, float64) + 2.0**-54
    return w.astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)


def _open_uniform_at(state: Any, element: Any, dtype: DType) -> Any:
    if dtype is float64:
        return _uniform_at(state, element, float64) + 2.0**-54
    return scalar.cast(_word(state, element), "f32") * 2.0**-32 + 2.0**-33


_TURN = 6.283185307179586


def _normal(state: np.ndarray, *, size: Shape, dtype: DType) -> np.ndarray:
    count = prod(size)
    pairs = -(-count // 2)
    wide, real = _wide(dtype), np.float64 if dtype is float64 else np.float32
    w = words(state, 2 * pairs * wide).reshape(pairs, 2, wide)
    radius = np.sqrt(real(-2.0) * np.log(_open_uniform(w[:, 0].reshape(-1), dtype)))
    angle = real(_TURN) * _uniform(w[:, 1].reshape(-1), float64 if dtype is float64 else float32)
    out = np.empty((pairs, 2), real)
    np.multiply(radius, np.cos(angle), out=out[:, 0])
    np.multiply(radius, np.sin(angle), out=out[:, 1])
    return out.reshape(-1)[:count].reshape(size)


def _build_normal(k: Any, state: Any, *, size: Shape, dtype: DType) -> None:
    axes = k.parallel(*size)
    element = _flat(k, axes, size)
    odd = element & 1
    first = element - odd
    radius = scalar.op("sqrt", scalar.op("log", _open_uniform_at(state, first, dtype)) * -2.0)
    angle = _uniform_at(state, first + 1, float64 if dtype is float64 else float32) * _TURN
    turned = scalar.op("select", scalar.op("eq", odd, 0), scalar.op("cos", angle), scalar.op("sin", angle))
    k.store(radius * turned, at=axes)


random_normal = _random(
    "random_normal",
    takes=lambda state, *, size, dtype: -(-prod(size) // 2) * 2 * _wide(dtype),
    bind=_bind("random_normal"),
    doc="""Draw from the standard normal distribution; |x| < 6.7 (f64: 8.7).

    Two neighbours are the Box-Muller pair of two uniforms; devices agree to about 4 ulps of its radius.
    """,
    infer=_drawn,
    reference=_normal,
    lower=lowering.kernel(_build_normal),
    traits=_RANDOM,
    samples=_size_samples(FLOATS),
    inapplicable=_FROM_STATE,
)


def _exponential(state: np.ndarray, *, size: Shape, dtype: DType) -> np.ndarray:
    return -np.log(_open_uniform(words(state, prod(size) * _wide(dtype)), dtype)).reshape(size)


def _build_exponential(k: Any, state: Any, *, size: Shape, dtype: DType) -> None:
    axes = k.parallel(*size)
    k.store(-scalar.op("log", _open_uniform_at(state, _flat(k, axes, size), dtype)), at=axes)


random_exponential = _random(
    "random_exponential",
    takes=lambda state, *, size, dtype: prod(size) * _wide(dtype),
    bind=_bind("random_exponential"),
    doc="Draw from the exponential distribution of rate 1: -log(u), u uniform in (0, 1].",
    infer=_drawn,
    reference=_exponential,
    lower=lowering.kernel(_build_exponential),
    traits=_RANDOM,
    samples=_size_samples(FLOATS),
    inapplicable=_FROM_STATE,
)


# ---- integers
def _bind_integers(state, low, high, size, *, dtype=None):
    """Draw integers uniformly from low ... high - 1.

    An element is the upper 64 bits of (64 random bits) * (high - low): no value's probability is off by more
    than 2^-64.  Raises ArgumentValueError for an empty range.
    """
    dtype = dtype or int64
    if high <= low:
        raise ArgumentValueError(f"randint: low must be less than high, not {low} and {high}")
    if not isinstance(high - low, Dim) and high - low >= 1 << 64:
        raise ArgumentValueError(f"randint: the range {low} ... {high} doesn't fit into 64 bits")
    low, high = (n if isinstance(n, Dim) else int(n) for n in (low, high))
    return (state,), {"low": low, "high": high, "size": tuple(size), "dtype": dtype}


def _scaled(high: Any, low: Any, span: int, u64: Callable) -> Any:
    """The upper 64 bits of (2^32 high + low) * span, of 32-bit parts in 64-bit words."""
    a, b = u64(span >> 32), u64(span & 0xFFFFFFFF)
    half, mask = u64(32), u64(0xFFFFFFFF)
    low_low, low_high, high_low = low * b, low * a, high * b
    middle = (low_low >> half) + (low_high & mask) + (high_low & mask)
    return high * a + (low_high >> half) + (high_low >> half) + (middle >> half)


def _integers(state: np.ndarray, *, low: int, high: int, size: Shape, dtype: DType) -> np.ndarray:
    pairs = words(state, 2 * prod(size)).reshape(-1, 2).astype(np.uint64)
    found = _scaled(pairs[:, 0], pairs[:, 1], high - low, np.uint64) + np.uint64(low & 0xFFFFFFFFFFFFFFFF)
    return found.view(np.int64).reshape(size).astype(dtype.numpy)


def _build_integers(k: Any, state: Any, *, low: int, high: int, size: Shape, dtype: DType) -> None:
    axes = k.parallel(*size)
    first = _flat(k, axes, size) * 2
    upper, lower = (scalar.cast(_word(state, word), "u64") for word in (first, first + 1))
    found = _scaled(upper, lower, high - low, lambda n: scalar.const(n, "u64"))
    k.store(k.cast(scalar.cast(found, "i64") + low, dtype), at=axes)


random_integers = _random(
    "random_integers",
    takes=lambda state, *, low, high, size, dtype: 2 * prod(size),
    bind=_bind_integers,
    infer=_drawn,
    reference=_integers,
    lower=lowering.kernel(_build_integers),
    traits=_RANDOM,
    samples=lambda: [
        Sample((_STATE,), {"low": low, "high": high, "size": size})
        for low, high, size in (
            (0, 10, (17,)),
            (-5, 5, ()),
            (0, 1 << 62, (3, 33)),
            (3, 4, (1,)),
            (0, 2, (0,)),
        )
    ],
    inapplicable=_FROM_STATE,
)


def _bind_permutation(state, n, *, dtype=None):
    """Draw a permutation of 0 ... n - 1: the order of n random keys of 64 bits, equal ones by place."""
    if n < 0:
        raise ArgumentValueError(f"randperm: n can't be negative: {n}")
    made = dtype or int64
    most = (
        np.iinfo(made.numpy).max if made.category == "int" else 2 ** (ml_dtypes.finfo(made.numpy).nmant + 1)
    )
    if not (made is int64 and isinstance(n, Dim)) and n - 1 > most:
        raise ArgumentValueError(f"randperm: n is too large for result tensor type: {n} and {made.name}")
    return (state,), {"n": n if isinstance(n, Dim) else int(n), "dtype": made}


def _permutation(state: np.ndarray, *, n: int, dtype: DType) -> np.ndarray:
    keys = np.ascontiguousarray(words(state, 2 * n)).view(np.uint64)
    return keys.argsort(kind="stable").astype(dtype.numpy)


random_permutation = _random(
    "random_permutation",
    takes=lambda state, *, n, dtype: 2 * n,
    bind=_bind_permutation,
    infer=lambda state, *, n, dtype: type_of(dtype, (n,), state.device),
    reference=_permutation,
    lower=lowering.extern("sorts its keys"),
    traits=_RANDOM,
    samples=lambda: [Sample((_STATE,), {"n": n}) for n in (0, 1, 17, 33)],
    inapplicable=_FROM_STATE,
)


def _bind_words(state, size):
    """Draw words of 32 bits, as floats that hold them.  Shapes: -> float64[size]."""
    return (state,), {"size": tuple(size)}


def _words_of(state: np.ndarray, *, size: Shape) -> np.ndarray:
    return words(state, prod(size)).reshape(size).astype(np.float64)


def _build_words(k: Any, state: Any, *, size: Shape) -> None:
    axes = k.parallel(*size)
    k.store(scalar.cast(_word(state, _flat(k, axes, size)), "f64"), at=axes)


random_words = _random(
    "random_words",
    takes=lambda state, *, size: prod(size),
    bind=_bind_words,
    infer=lambda state, *, size: type_of(float64, size, state.device),
    reference=_words_of,
    lower=lowering.kernel(_build_words),
    traits=_RANDOM,
    samples=lambda: [Sample((_STATE,), {"size": size}) for size in ((), (0,), (1,), (17,), (3, 33))],
    inapplicable=_FROM_STATE,
)


# ---- draws that depend on a tensor
def _floating(op: str, t: Type) -> Type:
    if not t.dtype.is_floating_point:
        raise DTypeError(f"{op}: input must be of a floating type, not {t.dtype.name}")
    return t


def _build_bernoulli(k: Any, input: Any, state: Any) -> None:
    axes = k.parallel(*input.shape)
    below = scalar.op(
        "lt", _uniform_at(state, _flat(k, axes, input.shape), float32), k.cast(input[axes], float32)
    )
    k.store(k.cast(below, input.dtype), at=axes)


def _bernoulli(input: np.ndarray, state: np.ndarray) -> np.ndarray:
    if not ((input >= 0) & (input <= 1)).all():
        raise ArgumentValueError("bernoulli: probabilities must lie in [0, 1]")
    drawn = _uniform(words(state, input.size), float32).reshape(input.shape)
    return (drawn < input.astype(np.float32)).astype(input.dtype)


def _input_samples(*shapes: tuple, high: float = 1.0, **more: Any) -> Callable[[], list[Sample]]:
    shapes = shapes or ((), (0,), (1,), (17,), (33,), (3, 17))
    return lambda: [Sample((Operand(shape, 0.0, high), _STATE), dict(more)) for shape in shapes]


random_bernoulli = _random(
    "random_bernoulli",
    takes=lambda input, state: input.size,
    doc="Draw 1 with the probabilities `input` (to 2^-24), else 0.  Raises ArgumentValueError.",
    operands=("input", "state"),
    attrs=(),
    infer=lambda input, state: _floating("bernoulli", input),
    reference=_bernoulli,
    grad=(lambda g: g * 0.0, None),
    lower=lowering.kernel(_build_bernoulli),
    traits=_RANDOM,
    dtypes="float",
    samples=lambda: [Sample(s.args, differentiable=False) for s in _input_samples()()],
)


def _bind_dropout(input, state, p=0.5):
    """Zero elements with probability p and scale the others by 1 / (1 - p).  Shapes: [...] -> [...].

    Raises ArgumentValueError for a probability outside of [0, 1].
    """
    if not 0.0 <= p <= 1.0:
        raise ArgumentValueError(f"dropout: p must lie in [0, 1], not {p}")
    return (input, state), {"p": float(p)}


def _kept_scale(p: float) -> float:
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def _limit(p: float) -> int:
    """An element is dropped where its word is below this."""
    return round(p * 4294967296.0)


def _dropout(input: np.ndarray, state: np.ndarray, *, p: float) -> tuple[np.ndarray, np.ndarray]:
    limit = _limit(p)
    w = words(state, input.size).reshape(input.shape)
    mask = w >= np.uint32(limit) if limit <= 0xFFFFFFFF else np.zeros(input.shape, np.bool_)
    return np.where(mask, input * input.dtype.type(_kept_scale(p)), input.dtype.type(0)), mask


def _build_dropout(k: Any, input: Any, state: Any, *, p: float) -> None:
    axes = k.parallel(*input.shape)
    word = scalar.cast(_word(state, _flat(k, axes, input.shape)), "u64")
    mask = scalar.op("ge", word, scalar.const(_limit(p), "u64"))
    k.store(scalar.op("select", mask, input[axes] * _kept_scale(p), 0.0), at=axes)
    k.store(mask, at=axes, output=1)


random_dropout = _random(
    "random_dropout",
    takes=lambda input, state, *, p: input.size,
    bind=_bind_dropout,
    hidden=("mask",),
    infer=lambda input, state, *, p: (_floating("dropout", input), input.with_dtype(bool_)),
    reference=_dropout,
    grad=(lambda g, mask, p: REGISTRY["where"](mask, g * _kept_scale(p), 0.0), None),
    lower=lowering.kernel(_build_dropout),
    traits=_RANDOM,
    dtypes="float",
    samples=lambda: [s for p in (0.5, 0.0, 1.0) for s in _input_samples(p=p)()],
)


def _bind_multinomial(input, state, num_samples, replacement=False):
    """Draw places of the last dimension with probabilities proportional to its weights.

    Shapes: [n] -> int64[k], [m, n] -> int64[m, k].  Raises ArgumentValueError for weights that are negative,
    not finite or all zero, and for more draws without replacement than there are weights above zero.
    """
    if input.ndim not in (1, 2):
        raise ShapeError(f"multinomial: input must have one or two dimensions, not {input.ndim}")
    if num_samples <= 0:
        raise ArgumentValueError(f"multinomial: num_samples must be greater than 0, not {num_samples}")
    return (input, state), {"num_samples": int(num_samples), "replacement": bool(replacement)}


def _rows(shape: Shape) -> int:
    return prod(shape[:-1])


def _multinomial(input: np.ndarray, state: np.ndarray, *, num_samples: int, replacement: bool) -> np.ndarray:
    weights = input.reshape(-1, input.shape[-1]).astype(np.float64)
    if not np.isfinite(weights).all() or (weights < 0).any() or not (weights.sum(1) > 0).all():
        raise ArgumentValueError("multinomial: weights must be finite, at least 0, and not all 0 in a row")
    rows, n = weights.shape
    if replacement:
        drawn = _uniform(words(state, 2 * rows * num_samples), float64).reshape(rows, num_samples)
        sums = weights.cumsum(1)
        # the last weight above 0 is the last place that can be found, whatever the sum was rounded to
        found = np.zeros((rows, num_samples), np.int64)
        drawn *= sums[:, -1:]
        if n * num_samples <= min(rows, 4096):  # seven times quicker for 50,000 rows of 6
            for s in sums[:, :-1].T:
                found += s[:, None] <= drawn
        else:
            for row in range(rows):
                found[row] = np.searchsorted(sums[row, :-1], drawn[row], "right")
        last = n - 1 - (weights[:, ::-1] > 0).argmax(1)
        places = np.minimum(found, last[:, None])
    else:
        if (np.count_nonzero(weights, 1) < num_samples).any():
            raise ArgumentValueError(
                f"multinomial: {num_samples} draws without replacement need as many weights above 0"
            )
        # the first of independent exponential clocks with these rates is a draw; the next one, a draw from
        # the rest
        clocks = -np.log(_open_uniform(words(state, 2 * rows * n), float64)).reshape(rows, n)
        with np.errstate(divide="ignore"):
            places = (clocks / weights).argsort(1, kind="stable")[:, :num_samples].copy()
    return places.reshape(*input.shape[:-1], num_samples)


random_multinomial = _random(
    "random_multinomial",
    takes=lambda input, state, *, num_samples, replacement: (
        2 * _rows(input.shape) * (num_samples if replacement else input.shape[-1])
    ),
    bind=_bind_multinomial,
    infer=lambda input, state, *, num_samples, replacement: type_of(
        int64, (*_floating("multinomial", input).shape[:-1], num_samples), input.device
    ),
    reference=_multinomial,
    lower=lowering.extern("sorts, or searches in running sums"),
    traits=Traits(random=True, refuses=True),
    dtypes="float",
    samples=lambda: [
        Sample((Operand(shape, 0.1, 1.0), _STATE), {"num_samples": k, "replacement": again})
        for again, drawn in (
            (False, (((1,), 1), ((17,), 5), ((3, 17), 4))),
            (True, (((33,), 40), ((3, 17), 4))),
        )
        for shape, k in drawn
    ],
    inapplicable={"0-d": "needs a dimension to draw from", "empty": "needs a weight"},
)  # fmt: skip
