"""Kernels of every family at ragged sizes, with arrays: what Triton sources are tried on beside the probes.

`FAMILIES` holds for each name a function that makes a verified kernel and its input arrays.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from ml_dtypes import bfloat16

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir import dtypes
from lamina.ir.kernel import NUMPY, Kernel, parse, verify
from lamina.ir.kernel.affine import as_affine
from lamina.ir.kernel.form import Axis
from lamina.ir.kernel.substitute import Substitution
from lamina.ir.kernel.types import is_floating
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.graphs.lower import lower

Made = tuple[Kernel, list[np.ndarray]]
FAMILIES: dict[str, Callable[[], Made]] = {}
TYPES = {dtype.short: dtype for dtype in dtypes.ALL}
HALVES = {"f16": np.float16, "bf16": bfloat16}


def filled(kernel: Kernel, seed: int, **ranges: tuple[int, int]) -> list[np.ndarray]:
    """Normal numbers, and whole ones from -9 to 9, or in the range given for a buffer."""
    rng, found = np.random.default_rng(seed), []
    for buffer in kernel.inputs:
        low, high = ranges.get(buffer.name, (-9, 10))
        dtype, shape = NUMPY[buffer.dtype], tuple(map(int, buffer.shape))
        if is_floating(buffer.dtype) and buffer.name not in ranges:
            found.append(rng.standard_normal(shape).astype(dtype))
        else:
            low = max(low, 0) if dtype.kind in "ub" else low
            found.append(np.asarray(rng.integers(low, high, shape)).astype(dtype))
    return found


def text(name: str, body: str, **ranges: tuple[int, int]) -> None:
    """A family from a kernel's text."""

    def make() -> Made:
        kernel = verify(parse(body))
        return kernel, filled(kernel, zlib.crc32(name.encode()), **ranges)

    FAMILIES[name] = make


def record(name: str, op: str, given: list, ranges: dict | None = None, dtype: str = "f32", **attrs) -> None:
    """A family from an op's record.

    given: for each positional argument a shape, of `dtype`; its type and shape; or what else it is.
    """

    def argument(what):
        if not isinstance(what, tuple):
            return what
        kind, shape = what if what and isinstance(what[0], str) else (dtype, what)
        return type_of(TYPES[kind], shape)

    def make() -> Made:
        operands, bound = REGISTRY[op].bind(*map(argument, given), **attrs)
        kernel = verify(lower(REGISTRY[op], operands, bound))
        return kernel, filled(kernel, zlib.crc32(name.encode()), **(ranges or {}))

    FAMILIES[name] = make


# ---- products
for half in ("f32", *HALVES):
    record(f"matmul {half}", "matmul", [(3, 45, 70), (3, 70, 100)], dtype=half)
    record(f"linear {half}", "linear", [(2, 67, 130), (97, 130), (97,)], dtype=half)
    text(
        f"outer product {half}",
        f"""kernel outer(a: {half}[45,1], b: {half}[1,70]) -> (y: f32[45,70]) {{
  parallel i:45 j:70
  acc = sum(k:1) (f32(a[i, k]) * f32(b[k, j]))
  y[i, j] = acc
}}""",
    )
    text(
        f"product with prologue and epilogue {half}",
        f"""kernel m(a: {half}[45,70], b: {half}[70,9], c: {half}[9]) -> (y: {half}[45,9], z: f32[45,9]) {{
  parallel i:45 j:9
  acc = sum(k:70) (exp(f32(a[i, k])) * f32(b[k, j]))
  y[i, j] = {half}(max((acc + f32(c[j])), 0))
  z[i, j] = acc
}}""",
    )
text(
    "product with a number that no half is",
    """kernel mm(a: f16[45,70], c: bool[45,70], b: f16[70,9]) -> (y: f32[45,9]) {
  parallel i:45 j:9
  acc = sum(k:70) (select(c[i, k], f32(a[i, k]), 1000.3) * f32(b[k, j]))
  y[i, j] = acc
}""",
)
text(
    "product over two axes of each kind",
    """kernel mm(a: f16[3,5,7,40], b: f16[7,40,2,9]) -> (y: f32[2,5,9,3]) {
  parallel n:2 m:5 o:9 l:3
  acc = sum(p:7 k:40) (f32(a[l, m, p, k]) * f32(b[p, k, n, o]))
  y[n, m, o, l] = acc
}""",
)
text(
    "product in groups",
    """kernel mm(a: f16[1100,17], b: f16[17,200]) -> (y: f16[1100,200]) {
  parallel i:1100 j:200
  acc = sum(k:17) (f32(a[i, k]) * f32(b[k, j]))
  y[i, j] = f16(acc)
}""",
)
for half in ("f32", *HALVES):
    wide = "f32" if half in HALVES else ""
    text(
        f"product of matrices {half}",
        f"""kernel mm(a: {half}[2,45,72], b: {half}[72,104]) -> (y: {half}[2,45,104]) {{
  parallel l:2 i:45 j:104
  acc = sum(k:72) ({wide}(a[l, i, k]) * {wide}(b[k, j]))
  y[l, i, j] = {half}(acc)
}}""",
    )
    text(
        f"product of turned matrices {half}",
        f"""kernel mm(a: {half}[72,48], b: {half}[40,72]) -> (y: {half}[45,37]) {{
  parallel i:45 j:37
  acc = sum(k:70) ({wide}(a[k, i]) * {wide}(b[j, k]))
  y[i, j] = {half}(acc)
}}""",
        a=(-9, 10),
        b=(-9, 10),
    )
for dtype in ("f64", "i64", "i32"):
    record(f"matmul {dtype}", "matmul", [(2, 45, 33), (33, 70)], dtype=dtype)
record("matrix by vector", "matmul", [(45, 333), (333,)])
record("vector by matrix", "matmul", [(333,), (333, 45)])

# ---- convolutions
for half in ("f32", *HALVES):
    image, grads = (2, 19, 13, 11), (2, 24, 7, 6)
    strided = {"stride": 2, "padding": 1}
    record(f"conv2d {half}", "conv2d", [image, (24, 19, 3, 3), (24,)], dtype=half, **strided)
    more = {"dilation": 1, "groups": 1}
    record(
        f"conv input grad {half}", "conv_input_grad", [grads, (24, 19, 3, 3)], dtype=half, size=(13, 11),
        **{**strided, **more, "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)},
    )  # fmt: skip
    record(
        f"conv weight grad {half}", "conv_weight_grad", [grads, image], dtype=half, size=(3, 3),
        **{**more, "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)},
    )  # fmt: skip
record(
    "conv input grad 1 x 1", "conv_input_grad", [(2, 24, 7, 6), (24, 19, 1, 1)], size=(13, 11), stride=(2, 2),
    padding=(0, 0), dilation=(1, 1), groups=1,
)  # fmt: skip
record("conv2d in groups", "conv2d", [(2, 6, 13, 11), (8, 3, 3, 3), None], groups=2, padding=1, dilation=2)
record("conv2d depthwise", "conv2d", [(2, 6, 13, 11), (6, 1, 3, 3), (6,)], groups=6, padding=1)
record("conv1d", "conv1d", [(3, 20, 101), (33, 20, 5), (33,)], padding=2)
record("conv3d", "conv3d", [(2, 4, 7, 6, 9), (17, 4, 3, 3, 3), None], stride=2)
for pool in ("max_pool2d", "max_pool2d_with_indices"):
    record(pool, pool, [(2, 5, 13, 11)], kernel_size=3, stride=2, padding=1)
record("avg_pool2d", "avg_pool2d", [(2, 5, 33, 21)], kernel_size=7, stride=2, padding=3)

# ---- reductions
for half in ("f32", *HALVES):
    record(f"rows {half}", "sum", [(37, 3001)], dtype=half, dim=1)
    record(f"columns {half}", "sum", [(513, 70)], dtype=half, dim=0)
    record(f"softmax {half}", "softmax", [(7, 333)], dtype=half, dim=1)
    record(f"long softmax {half}", "softmax", [(3, 20_001)], dtype=half, dim=1)
    record(f"softmax over columns {half}", "softmax", [(300, 45)], dtype=half, dim=0)
    record(f"layer norm {half}", "layer_norm", [(33, 200), [200], (200,), (200,)], dtype=half)
    record(f"long argmax {half}", "argmax", [(3, 10_007)], {"input": (-90, 90)}, dtype=half, dim=1)
record("sum of all", "sum", [(7, 33, 101)])
record("short axes", "sum", [(5, 9, 11, 8)], dim=(1, 2, 3))
record("argmin over columns", "argmin", [(300, 45)], {"input": (-20, 20)}, dim=0)
record("any", "any", [("bool", (7, 1000))], dim=1)
record("product of integers", "prod", [("i64", (7, 100))], dim=1)
record("var", "var", [(6, 1003)], dim=1)
text(
    "blocks of other axes in one kernel",
    """kernel two(x: f32[9,40,50]) -> (y: f32[9], z: f32[9,40]) {
  parallel i:9
  whole = sum(j:40 k:50) x[i, j, k]
  first = max(j:40) x[i, j, 0]
  y[i] = (whole + first)
  z[i, j] = (x[i, j, 3] - first) for j:40
}""",
)
text(
    "no points to sum",
    "kernel none(x: f32[5,0]) -> (y: f32[5]) {\n  parallel i:5\n  s = sum(j:0) x[i, j]\n  y[i] = (s + 1)\n}",
)
text(
    "no points at all",
    "kernel none(x: f32[0,5]) -> (y: f32[0,5]) {\n  parallel i:0 j:5\n  y[i, j] = x[i, j]\n}",
)
text(
    "zeros of both signs",
    """kernel zeros(x: f32[9], y: f16[9]) -> (a: f32[9], b: f32[9], c: f16[9], d: f64[9]) {
  parallel i:9
  a[i] = (1.0 / (f32(-0.0) * (x[i] * x[i])))
  b[i] = (1.0 / neg(x[i+5 else -0.0]))
  c[i] = f16((1.0 / f32(y[i+5 else -0.0])))
  d[i] = (1.0 / neg((f64(x[i]) * f64(x[i]))))
}""",
    x=(0, 2),
)
text("one point", "kernel one(x: f32[], c: i64[]) -> (y: f32[]) {\n  parallel\n  y[] = (x[] * f32(c[]))\n}")

# ---- scans
for op in ("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"):
    record(f"{op} of rows", op, [(5, 99)], dim=1)
    record(f"{op} of columns", op, [(41, 13)], dim=0)
for half in HALVES:
    record(f"cumsum {half}", "cumsum", [(5, 99)], dtype=half, dim=1)
record("long cumsum", "cumsum", [(2, 20_001)], dim=1)
record("cumsum of integers", "cumsum", [("i64", (3, 9001))], dim=1)
text(
    "a scan read by all kinds of stages",
    """kernel readers(x: f32[5,40], w: f32[40,3]) -> (y: f32[5,40], z: f32[5], v: f32[5,40,3], at: i64[5]) {
  parallel i:5
  s[j] = scan(j:40) {
    init f32(0.5)
    step (s + x[i, j])
  }
  d[j] = (s[j] * 2.0) for j:40
  t = max(j:40) d[j]
  best, place = fold(j:40) {
    init f32(-inf), i64(0)
    step select((s[j] > best), s[j], best), select((s[j] > best), coord(j), place)
  }
  u[j] = scan(j:40) {
    init f32(1.0)
    step max((u * 0.5), s[j])
  }
  y[i, j] = ((s[j] - t) + u[j]) for j:40
  z[i] = (t + best)
  v[i, j, k] = (s[j] * w[j, k]) for j:40 k:3
  at[i] = place
}""",
)

# ---- indices from data
record("rows by number", "embedding", [("i64", (33,)), (50, 100)], {"input": (0, 50)})
WORDS = ("add", "mul", "max", "min", "set")
for word in WORDS:
    for dtype in ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"):
        text(
            f"scatter {word} {dtype}",
            f"""kernel scatter(v: {dtype}[33,40], ids: i64[33]) -> (y: {dtype}[9,40]) {{
  parallel i:33 j:40
  y[ids[i], j] {word}= v[i, j]
}}""",
            ids=(0, 9),
            v=(-2, 3),
        )
text(
    "scatter of all points to few",
    """kernel scatter(v: f32[6,7], ids: i64[6,7]) -> (y: f32[5]) {
  parallel i:6
  y[ids[i, j]] set= v[i, j] for j:7
}""",
    ids=(0, 5),
)
text(
    "scatter over a sum",
    """kernel scatter(v: f32[30,7,40], ids: i32[30]) -> (y: f32[9,7]) {
  parallel i:30 j:7
  t = sum(k:40) v[i, j, k]
  y[ids[i], j] mul= (t * 0.1)
}""",
    ids=(0, 9),
)
text(
    "scatter max of NaN",
    """kernel scatter(v: f32[40], ids: i64[40]) -> (y: f32[3], z: f32[3]) {
  parallel i:40
  y[ids[i]] max= (v[i] / v[i])
  z[ids[i]] min= (v[i] / v[i])
}""",
    ids=(0, 3),
    v=(0, 12),
)

text(
    "scatter in the order of two axes",
    """kernel scatter(v: f32[6,7], ids: i64[6,7]) -> (y: f32[5]) {
  parallel i:6 j:7
  y[ids[i, j]] set= v[i, j]
}""",
    ids=(0, 5),
)
text(
    "scatter along a local axis",
    """kernel scatter(v: f32[100], ids: i64[100]) -> (y: f32[9]) {
  parallel
  y[ids[j]] mul= v[j] for j:100
}""",
    ids=(0, 9),
)
text(
    "scatter onto NaN",
    """kernel scatter(x: f32[4], w: f32[4], v: f32[40], ids: i64[40])
-> (y: f32[4] inplace x, z: f32[4] inplace w) {
  parallel i:40
  y[ids[i]] max= v[i]
  z[ids[i]] min= v[i]
}""".replace("\n->", " ->"),
    ids=(0, 4),
)


def _onto_nan(make: Callable[[], Made]) -> Made:
    kernel, arrays = make()
    for array in arrays[:2]:
        array[:2] = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)  # of both signs
    return kernel, arrays


FAMILIES["scatter onto NaN"] = partial(_onto_nan, FAMILIES["scatter onto NaN"])

# ---- words and types
for dtype in ("i64", "i32", "i16", "i8", "u8"):
    text(
        f"integer powers {dtype}",
        f"kernel p(x: {dtype}[37], y: {dtype}[37]) -> (z: {dtype}[37]) {{\n  parallel i:37\n"
        "  z[i] = pow(x[i], y[i])\n}",
        y=(-3, 70),
    )
text(
    "strides, a view and a transposition",
    """kernel views(x: f32[8,66], y: f32[33,8]) -> (z: f32[33,8]) {
  parallel j:33 i:8
  z[j, i] = (x[i, 2*j] + y[j, 7-i])
}""",
)
for size in ("f32", "f64"):
    for name in ("uniform", "normal", "exponential"):
        attrs = {"size": (5, 333), "dtype": TYPES[size]}
        record(f"random {name} {size}", f"random_{name}", [("i64", (2,))], {"state": (0, 1 << 40)}, **attrs)
record("random dropout", "random_dropout", [(5, 333), ("i64", (2,))], {"state": (0, 1 << 40)}, p=0.3)
record(
    "random integers", "random_integers", [("i64", (2,)), -5, 1000], {"state": (0, 1 << 40)}, size=(5, 333)
)


# ---- names
HOSTILE = (
    "tl",
    "triton",
    "for",
    "pid",
    "x",
    "x_ptr",
    "x_at",
    "v1",
    "v2",
    "float",
    "range",
    "libdevice",
    "None",
)
HOSTILE += (
    "add_f32_helper",
    "flat_tile",
    "row",
    "row_tile",
    "rows_tile",
    "k_tile",
    "__name__",
    "\u212a",
    "K",
)


def hostile(turn: int) -> Made:
    """A layer norm, with the names of the generated module for everything in it."""
    kernel, arrays = FAMILIES["layer norm f32"]()
    names = iter(HOSTILE[turn:] + HOSTILE[:turn])
    buffers = {buffer: next(names) for buffer in kernel.buffers}
    axes = {axis: next(names) for axis in kernel.extents}
    stages = {name: next(names) for stage in kernel.stages for name in stage.defines}
    return renamed(kernel, HOSTILE[turn], buffers, axes, stages), arrays


def renamed(kernel: Kernel, name: str, buffers: dict, axes: dict, stages: dict) -> Kernel:
    """A kernel in other names."""

    renaming = Substitution(
        indices={old: as_affine(new) for old, new in axes.items()},
        axes={a.name: (Axis(axes[a.name], a.extent),) for a in kernel.axes},
        buffers={b.name: replace(b, name=buffers[b.name]) for b in kernel.buffers.values()},
        stages=stages,
    )
    return verify(renaming.kernel(kernel).replace(name=name))


for turn in range(0, len(HOSTILE), 4):
    FAMILIES[f"hostile names {turn}"] = partial(hostile, turn)


# ---- ways to run that are not those of `default_schedule`
SCHEDULES = {
    "conv2d f32": (
        "lanes(m, 16, i2, i3) lanes(n, 32, i1) along(k, 16, r, r1, r2) dot(t) group(2) warps(2)",
        "lanes(n, 16, i2) lanes(m, 16, i1) stages(1)",
    ),
    **{
        f"product of matrices {half}": (
            "lanes(m, 16, i) lanes(n, 32, j) along(k, 16, k) dot(acc) descriptors()",
            "lanes(m, 32, i) lanes(n, 16, j) along(k, 32, k) dot(acc) descriptors() persistent(3) group(2)",
            "lanes(n, 64, j) lanes(m, 16, i) along(k, 16, k) dot(acc) persistent(5)",
        )
        for half in ("f32", *HALVES)
    },
    **{
        f"product of turned matrices {half}": (
            "lanes(m, 16, i) lanes(n, 16, j) along(k, 16, k) dot(acc) descriptors()",
            "lanes(n, 16, j) lanes(m, 32, i) along(k, 128, k) dot(acc) descriptors()",
        )
        for half in HALVES
    },
    "product of turned matrices f32": (
        "lanes(m, 16, i) lanes(n, 16, j) along(k, 16, k) dot(acc) precision(tf32) registers()",
        "lanes(m, 16, i) lanes(n, 16, j) along(k, 16, k) dot(acc) precision(tf32) registers() descriptors()",
    ),
    "matmul f64": ("lanes(flat, 64, i2) along(row, 16, r)", "lanes(m, 4, i1) lanes(n, 64, i, i2)"),
    "softmax f32": ("lanes(column, 4, i) along(row, 64, r)", "lanes(flat, 8, i)", "warps(1)"),
    "blocks of other axes in one kernel": ("along(row, 64, j)", "along(row, 16, k) lanes(flat, 2, i)"),
    "cumsum of rows": ("along(row, 16, r)",),
    "scatter mul i8": ("serial(i, j)", "lanes(flat, 8, j) serial(i) warps(2)"),
}
