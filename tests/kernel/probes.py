"""The kernels that every part is tried on: canonical text, seeded inputs, and a direct NumPy formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lamina.ir.kernel import Kernel, parse, philox, verify


@dataclass(frozen=True)
class Probe:
    """text: canonical.  inputs: made from a generator.  formula: float64 in, one array for each output."""

    text: str
    inputs: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    formula: Callable[..., tuple[np.ndarray, ...]]

    @property
    def kernel(self) -> Kernel:
        return verify(parse(self.text))

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.inputs(np.random.default_rng(0))

    def wanted(self) -> tuple[np.ndarray, ...]:
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in self.arrays()]
        return self.formula(*wide)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


ADD = Probe(
    """\
kernel add(x: f32[37,100], b: f32[100]) -> (y: f32[37,100]) {
  parallel i:37 j:100
  y[i, j] = (x[i, j] + b[j])
}""",
    lambda rng: (normal(rng, 37, 100), normal(rng, 100)),
    lambda x, b: (x + b,),
)

WHERE = Probe(
    """\
kernel where(c: bool[5,33], x: f32[5,33], y: f32[33]) -> (z: f32[5,33]) {
  parallel i:5 j:33
  z[i, j] = select(c[i, j], x[i, j], y[j])
}""",
    lambda rng: (rng.random((5, 33)) < 0.5, normal(rng, 5, 33), normal(rng, 33)),
    lambda c, x, y: (np.where(c, x, y),),
)

SUM = Probe(
    """\
kernel sum(x: f32[7,33,100]) -> (y: f32[7,33]) {
  parallel i:7 r:33
  s = sum(j:100) x[i, r, j]
  y[i, r] = s
}""",
    lambda rng: (normal(rng, 7, 33, 100),),
    lambda x: (x.sum(2),),
)

MIDDLE_SUM = Probe(
    """\
kernel middle_sum(x: f32[5,33,100]) -> (y: f32[5,100]) {
  parallel i:5 j:100
  s = sum(r:33) x[i, r, j]
  y[i, j] = s
}""",
    lambda rng: (normal(rng, 5, 33, 100),),
    lambda x: (x.sum(1),),
)

REDUCTIONS = Probe(
    """\
kernel reductions(x: i32[40]) -> (total: i32[], most: i32[], least: i32[], some: bool[], every: bool[]) {
  parallel
  s = sum(i:40) x[i]
  hi = max(i:40) x[i]
  lo = min(i:40) x[i]
  any_negative = any(i:40) (x[i] < 0)
  all_negative = all(i:40) (x[i] < 0)
  total[] = s
  most[] = hi
  least[] = lo
  some[] = any_negative
  every[] = all_negative
}""",
    lambda rng: (rng.integers(-9, 9, 40).astype(np.int32),),
    lambda x: (x.sum(dtype=np.int32), x.max(), x.min(), (x < 0).any(), (x < 0).all()),
)

_BETTER = "((x[i, j] > best) | (isnan(x[i, j]) & (best == best)))"
_RIGHT = "((right.best > best) | (isnan(right.best) & (best == best)))"
_TIE = "((best == right.best) | (isnan(best) & isnan(right.best)))"
ARGMAX = Probe(
    f"""\
kernel argmax(x: f32[37,100]) -> (at: i64[37], value: f32[37]) {{
  parallel i:37
  best, place = fold(j:100) {{
    init f32(-inf), i64(0)
    step select({_BETTER}, x[i, j], best), select({_BETTER}, coord(j), place)
    merge select({_RIGHT}, right.best, best), \
select({_RIGHT}, right.place, select({_TIE}, min(place, right.place), place))
  }}
  at[i] = place
  value[i] = best
}}""",
    lambda rng: (_ties_and_nans(rng),),
    lambda x: (x.argmax(1), x.max(1)),  # NumPy too: the first of equals, and NaN wins
)


def _ties_and_nans(rng: np.random.Generator) -> np.ndarray:
    x = rng.integers(0, 20, (37, 100)).astype(np.float32)
    x[3, [17, 50]] = np.nan
    x[4] = -np.inf
    return x


MATMUL = Probe(
    """\
kernel matmul(a: f32[45,70], b: f32[70,100], c: f32[100]) -> (y: f32[45,100]) {
  parallel i:45 j:100
  acc = sum(k:70) (a[i, k] * b[k, j])
  y[i, j] = max((acc + c[j]), 0)
}""",
    lambda rng: (normal(rng, 45, 70), normal(rng, 70, 100), normal(rng, 100)),
    lambda a, b, c: (np.maximum(a @ b + c, 0),),
)

CONV2D = Probe(
    """\
kernel conv2d(x: f32[2,3,11,33], w: f32[16,3,3,3]) -> (y: f32[2,16,6,17]) {
  parallel n:2 k:16 i:6 j:17
  acc = sum(c:3 r:3 s:3) (x[n, c, 2*i+r-1, 2*j+s-1 else 0] * w[k, c, r, s])
  y[n, k, i, j] = acc
}""",
    lambda rng: (normal(rng, 2, 3, 11, 33), normal(rng, 16, 3, 3, 3)),
    lambda x, w: (np.einsum("ncijrs,kcrs->nkij", _windows(x, 0.0), w),),
)


def _windows(x: np.ndarray, outside: float) -> np.ndarray:
    """3 x 3 windows at stride 2 with one row and column of `outside` around."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=outside)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]


_WINDOW = "x[n, c, 2*i+r-1, 2*j+s-1 else -inf]"
_GREATER = f"(({_WINDOW} > best) | isnan({_WINDOW}))"
MAX_POOL2D = Probe(
    f"""\
kernel max_pool2d(x: f32[2,3,11,33]) -> (y: f32[2,3,6,17], at: i64[2,3,6,17]) {{
  parallel n:2 c:3 i:6 j:17
  best, place = fold(r:3 s:3) {{
    init f32(-inf), i64(0)
    step select({_GREATER}, {_WINDOW}, best), select({_GREATER}, coord(66*i+2*j+33*r+s-34), place)
  }}
  y[n, c, i, j] = best
  at[n, c, i, j] = place
}}""",
    lambda rng: (normal(rng, 2, 3, 11, 33),),
    lambda x: _max_pool(x),
)


def _max_pool(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    windows = _windows(x, -np.inf).reshape(2, 3, 6, 17, 9)
    row, column = np.divmod(windows.argmax(-1), 3)
    i, j = np.arange(6)[:, None], np.arange(17)
    return windows.max(-1), (2 * i + row - 1) * 33 + 2 * j + column - 1


SOFTMAX = Probe(
    """\
kernel softmax(x: f32[37,101]) -> (y: f32[37,101]) {
  parallel i:37
  hi = max(j:101) x[i, j]
  e[j] = exp((x[i, j] - hi)) for j:101
  z = sum(j:101) e[j]
  r = (1.0 / z)
  y[i, j] = (e[j] * r) for j:101
}""",
    lambda rng: (normal(rng, 37, 101),),
    lambda x: (_softmax(x),),
)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


ONLINE_SOFTMAX = Probe(
    """\
kernel online_softmax(x: f32[37,101]) -> (y: f32[37,101]) {
  parallel i:37
  hi, z = fold(j:101) {
    init f32(-inf), f32(0.0)
    step max(hi, x[i, j]), (select((hi == -inf), 0.0, (z * exp((hi - max(hi, x[i, j]))))) \
+ exp((x[i, j] - max(hi, x[i, j]))))
    merge max(hi, right.hi), (select((hi == -inf), 0.0, (z * exp((hi - max(hi, right.hi))))) \
+ select((right.hi == -inf), 0.0, (right.z * exp((right.hi - max(hi, right.hi))))))
  }
  y[i, j] = (exp((x[i, j] - hi)) / z) for j:101
}""",
    SOFTMAX.inputs,
    SOFTMAX.formula,
)

GATHER = Probe(
    """\
kernel gather(x: f32[50,100], ids: i64[33]) -> (y: f32[33,100]) {
  parallel i:33 j:100
  y[i, j] = x[select((ids[i] < 0), (ids[i] + 50), ids[i]), j]
}""",
    lambda rng: (normal(rng, 50, 100), rng.integers(-50, 50, 33)),
    lambda x, ids: (x[ids],),
)

TAKE = Probe(
    """\
kernel take(x: f32[50], ids: i32[5,33]) -> (y: f32[5,33]) {
  parallel i:5 j:33
  y[i, j] = x[ids[i, j] else 7.5]
}""",
    lambda rng: (normal(rng, 50), rng.integers(-20, 70, (5, 33)).astype(np.int32)),
    lambda x, ids: (np.where((ids >= 0) & (ids < 50), x[ids.clip(0, 49)], 7.5),),
)

SCATTER_ADD = Probe(
    """\
kernel scatter_add(v: f32[33,100], ids: i64[33]) -> (y: f32[50,100]) {
  parallel i:33 j:100
  y[ids[i], j] add= v[i, j]
}""",
    lambda rng: (normal(rng, 33, 100), rng.integers(0, 9, 33)),
    lambda v, ids: (_added(np.zeros((50, 100)), ids, v),),
)

BINCOUNT = Probe(
    """\
kernel bincount(ids: i64[100]) -> (y: i64[9]) {
  parallel i:100
  y[ids[i]] add= 1
}""",
    lambda rng: (rng.integers(0, 9, 100),),
    lambda ids: (np.bincount(ids, minlength=9),),
)


def _added(target: np.ndarray, ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    np.add.at(target, ids, values)
    return target


CUMSUM = Probe(
    """\
kernel cumsum(x: f32[37,29]) -> (y: f32[37,29]) {
  parallel i:37
  s[j] = scan(j:29) {
    init f32(0.0)
    step (s + x[i, j])
  }
  y[i, j] = s[j] for j:29
}""",
    lambda rng: (normal(rng, 37, 29),),
    lambda x: (x.cumsum(1),),
)

DROPOUT = Probe(
    """\
kernel dropout(x: f32[7,33], key: u32[2], offset: u64[]) -> (y: f32[7,33], kept: bool[7,33]) {
  parallel i:7 j:33
  n = (offset[] + (u64(coord(33*i+j)) >> 2))
  lane = u32((u64(coord(33*i+j)) & 3))
  bits = random_bits(key[0], key[1], u32(n), u32((n >> 32)), u32(0), u32(0), lane)
  u = (f32(as_i32((bits >> 8))) * 5.960464477539063e-08)
  y[i, j] = select((u < 0.75), (x[i, j] * 1.3333333333333333), 0.0)
  kept[i, j] = (u < 0.75)
}""",
    lambda rng: (
        normal(rng, 7, 33),
        np.array([123, 456], np.uint32),
        np.array(2**32 - 3, np.uint64),  # the low word of the counter overflows inside
    ),
    lambda x, key, offset: _dropout(x, key, offset),
)


def _dropout(x: np.ndarray, key: np.ndarray, offset: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counter = offset + np.arange(58, dtype=np.uint64)
    low, high = counter.astype(np.uint32), (counter >> np.uint64(32)).astype(np.uint32)
    zero = np.uint32(0)
    words = np.stack(philox.philox_words((key[0], key[1]), (low, high, zero, zero)), -1)
    uniform = (words.reshape(-1)[: x.size].reshape(x.shape) >> np.uint32(8)) * 2.0**-24
    return np.where(uniform < 0.75, x * (1 / 0.75), 0), uniform < 0.75


TRANSPOSE = Probe(
    """\
kernel transpose(x: f32[50,48]) -> (y: f32[48,50]) {
  parallel i:48 j:50
  y[i, j] = x[j, i]
}""",
    lambda rng: (normal(rng, 50, 48),),
    lambda x: (x.T,),
)

HALVES = Probe(
    """\
kernel halves(x: bf16[5,33], w: f16[33]) -> (y: bf16[5,33]) {
  parallel i:5 j:33
  y[i, j] = bf16((f32(x[i, j]) * f32(w[j])))
}""",
    lambda rng: (_bf16(normal(rng, 5, 33)), normal(rng, 33).astype(np.float16)),
    lambda x, w: (x.astype(np.float64) * w,),
)


def _bf16(x: np.ndarray) -> np.ndarray:
    import ml_dtypes

    return x.astype(ml_dtypes.bfloat16)


PROBES = {
    name.lower(): value for name, value in globals().items() if isinstance(value, Probe) and name.isupper()
}

# In place, on a view with strides of its own: the arrays are views of one memory, so it stands apart.
INPLACE = """\
kernel inplace(x: f32[8,33] strides(66,2), b: f32[33]) -> (y: f32[8,33] strides(66,2) inplace x) {
  parallel i:8 j:33
  y[i, j] = (x[i, j] + b[j])
}"""
