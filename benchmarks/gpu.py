"""Kernels of every family on an NVIDIA GPU: checked against their meaning, then timed beside torch's.

    python benchmarks/gpu.py [--only matmul] [--seconds 0.5] [--minutes 8] [--write]
    python benchmarks/gpu.py --compile sm_90
    python benchmarks/gpu.py --predict h200

Every case is first run at a small, ragged size and compared with the records' references in float64; a random
one bit by bit in its own type.  Then it takes turns with torch's eager mode at full size, in one process on
one device, each once untimed before it is timed; the two results are compared as well.  Times are those
between two events on the device's stream, so a call shorter than its launch from Python shows what the launch
costs.  What is read again and fits in the L2 comes from there, for both.  "model": what gpu_model.py predicts
of the compiled kernels, where it knows the device; a measurement beats it.

--compile only puts the kernels into the cache, on a machine without the GPU that they are for.  --predict
prints the model's column alone, there too.  --write puts
the table into benchmarks/results/gpu.txt.  The exit status is 1 if a result was wrong or a case
failed, and 2 if there is no device.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from contest import RESULTS, Time, where
from gpu_model import DEVICES, device_of, disassembler, seconds_of

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir.dtypes import ALL, float16, float32, float64
from lamina.ir.errors import DeviceError, LaminaError
from lamina.ir.graph import Builder, Graph
from lamina.ir.interpret import interpret
from lamina.ir.kernel.types import NUMPY
from lamina.ir.lazy import MissingLibraryError
from lamina.ir.op import REGISTRY as ops
from lamina.ir.ops.attention import scaled_dot_product_attention
from lamina.ir.types import type_of
from lamina.passes.graphs.differentiate import Options as Derivative
from lamina.passes.graphs.differentiate import differentiate
from lamina.passes.graphs.fuse import GPU
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.programs.memory_plan import Move, Place
from lamina.passes.programs.program import Array, Program
from lamina.passes.programs.prologue import prologue
from lamina.passes.triton.launches import Launch, launch_list
from lamina.passes.triton.target import ANY, Target
from lamina.runtime.cuda.arrays import DeviceArray, uploaded
from lamina.runtime.cuda.executable import Executable
from lamina.runtime.cuda.machine import Machine, machine
from lamina.runtime.triton_compiler import Compiler, compiled

DTYPES = {dtype.short: dtype for dtype in ALL}
EPS = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
ROUNDED = {"tf32": 2.0**-10, "tf32x3": 2.0**-20}  # a factor's rounding, or cutting off
SMALL_TERMS = 4096  # no sum of a small check has many more, but that of all elements, which is far from zero
RATE = 0.1  # of gradient descent
STRIDED = (2, 4, 6)  # blocks of a ResNet-18 that halve their images
COMPILED = "torch.compile"  # a contender of the steps, which takes a minute to make
RunProgram = Callable[[Program, Sequence[np.ndarray]], Sequence[np.ndarray]]


# ---- cases


@dataclass(frozen=True)
class Operand:
    """An array: normal numbers, or whole ones from 0 to below `below`."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    below: int = 0

    def array(self, seed: int) -> np.ndarray:
        """Its values.  Large ones repeat a million numbers, which take a second otherwise."""
        rng, count = np.random.default_rng(seed), min(math.prod(self.shape), 1 << 20)
        if self.below:
            values = rng.integers(0, self.below, count)
        else:
            values = rng.standard_normal(count, np.float32)
        return np.resize(values.astype(NUMPY[self.dtype]), self.shape)


@dataclass(frozen=True)
class Case:
    """function(library, *arrays), in terms that both libraries share.

    operands: at full size; small: those of the check.  work: flops, or bytes if `moves`.  terms: how many are
    added up in one element of the result, at full size.  roundings: to the result's type, one after another.
    weights: the positions of operands that stay as they are between calls.  precision: what factors
    of products of f32 may be rounded to.  random: draws its result, so torch's is another.  updated: the
    positions of operands that a step of gradient descent changes: the function then gives the loss.
    """

    name: str
    function: Callable[..., Any]
    operands: tuple[Operand, ...]
    small: tuple[Operand, ...]
    work: float
    moves: bool = True
    terms: int = 1
    roundings: int = 4
    weights: tuple[int, ...] = ()
    precision: str = "float32"
    random: bool = False
    updated: tuple[int, ...] = ()

    def tolerance(self, dtype: str, most_terms: int = 1 << 62) -> float:
        """How far from the truth, as a part of the largest element, a result may be that only rounded.

        Roundings of a sum go both ways, so they grow with the root of the terms; 8 are those of functions.
        """
        own = self.roundings * EPS.get(dtype, 0.0)
        sums = (8 + 2 * math.sqrt(min(self.terms, most_terms))) * EPS["f32"]
        return own + sums + max(4, self.roundings) * ROUNDED.get(self.precision, 0.0)


class Lamina:
    """The records, under torch's names."""

    def __getattr__(self, name: str) -> Any:
        return ops[name]

    def rand(self, state, shape):
        return ops["random_uniform"](state, shape)

    def scaled_dot_product_attention(self, *operands, **attrs):
        return scaled_dot_product_attention(*operands, **attrs)

    def half(self, x):
        return ops["cast"](x, dtype=float16)

    def single(self, x):
        return ops["cast"](x, dtype=float32)

    def batch_norm(self, x, weight, bias):
        return ops["batch_norm_train"](self.single(x), weight, bias, eps=1e-5)[0]

    def cross_entropy(self, x, labels):
        return ops["softmax_cross_entropy"](self.single(x), labels)

    def attention_gradients(self, q, k, v, g, is_causal):
        out = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return out, *ops["attention_backward"](g, q, k, v, is_causal=is_causal)

    def to_input(self, x, w, g, window):
        return ops["conv_input_grad"](g, w, size=x.shape[2:], **window, groups=1)

    def to_weight(self, x, w, g, window):
        return ops["conv_weight_grad"](g, x, size=w.shape[2:], **window, groups=1)


class Torch:
    def __init__(self) -> None:
        import torch

        self.torch, self.functional = torch, torch.nn.functional

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functional, name, None) or getattr(self.torch, name)

    def rand(self, state, shape):
        return self.torch.rand(shape, device="cuda")

    def half(self, x):
        return x.half()

    def batch_norm(self, x, weight, bias):
        return self.functional.batch_norm(x, None, None, weight, bias, training=True)

    def cross_entropy(self, x, labels):
        return self.functional.cross_entropy(x.float(), labels)

    def attention_gradients(self, q, k, v, g, is_causal):
        with self.torch.inference_mode(False), self.torch.enable_grad():
            given = [x.detach().requires_grad_() for x in (q, k, v)]
            out = self.functional.scaled_dot_product_attention(*given, is_causal=is_causal)
            return out.detach(), *self.torch.autograd.grad(out, given, g)

    def to_input(self, x, w, g, window):
        return self._gradients(x, w, g, window, (True, False, False))[0]

    def to_weight(self, x, w, g, window):
        return self._gradients(x, w, g, window, (False, True, False))[1]

    def _gradients(self, x, w, g, window, wanted):
        by = window["stride"], window["padding"], window["dilation"], False, (0, 0), 1, wanted
        return self.torch.ops.aten.convolution_backward(g, x, w, None, *by)


HALVES = ("f32", "f16", "bf16")
BYTES = {"f32": 4, "f16": 2, "bf16": 2}


def pointwise() -> Iterator[Case]:
    n = 1 << 26
    for t in HALVES:
        x, small = Operand((n,), t), Operand((1003,), t)
        work = 2 * n * BYTES[t]
        yield Case(f"gelu(x * x + x) {t}", lambda lib, x: lib.gelu(x * x + x), (x,), (small,), work)
    row, small = (Operand((8192, 8192)), Operand((8192,))), (Operand((37, 101)), Operand((101,)))
    yield Case("relu(x * y + x), y a row", lambda lib, x, y: lib.relu(x * y + x), row, small, 8 << 26)


def reductions() -> Iterator[Case]:
    x, small, work = (Operand((16384, 4096)),), (Operand((45, 1003)),), 4 << 26
    yield Case("sum", lambda lib, x: lib.sum(x), x, small, work, terms=1 << 26)
    yield Case("sum of rows", lambda lib, x: lib.sum(x, 1), x, small, work, terms=4096)
    yield Case("sum of columns", lambda lib, x: lib.sum(x, 0), x, small, work, terms=16384)
    yield Case("argmax of rows", lambda lib, x: lib.argmax(x, 1), x, small, work)


def rows() -> Iterator[Case]:
    for t in HALVES:
        for shape in ((16384, 1024), (512, 100_000)):
            n, label = math.prod(shape), " x ".join(map(str, shape))
            x, small, work = (Operand(shape, t),), (Operand((45, 1003), t),), 2 * n * BYTES[t]
            yield Case(f"softmax {label} {t}", lambda lib, x: lib.softmax(x, 1), x, small, work)
    x, w = Operand((16384, 1024)), Operand((1024,))
    small = Operand((45, 1003)), Operand((1003,)), Operand((1003,))
    yield Case(
        "layer_norm 16384 x 1024",
        lambda lib, x, w, b: lib.layer_norm(x, (x.shape[1],), w, b),
        (x, w, w), small, 8 << 24, terms=1024,
    )  # fmt: skip


def indexed() -> Iterator[Case]:
    def index(n: int, below: int) -> Operand:
        return Operand((n,), "i64", below)

    table, small = Operand((50_000, 512)), Operand((45, 33))
    work = 2 * 65536 * 512 * 4
    yield Case(
        "gather of 65536 rows", lambda lib, x, i: lib.index_select(x, 0, i),
        (table, index(65536, 50_000)), (small, index(70, 45)), work,
    )  # fmt: skip
    yield Case(
        "scatter-add of 65536 rows", lambda lib, x, i, y: lib.index_add(x, 0, i, y),
        (table, index(65536, 50_000), Operand((65536, 512))),
        (small, index(70, 45), Operand((70, 33))), work + 2 * 50_000 * 512 * 4, terms=16,
    )  # fmt: skip


def pooling() -> Iterator[Case]:
    x, small = (Operand((64, 64, 112, 112)),), (Operand((2, 3, 17, 19)),)
    size = 64 * 64 * 4
    yield Case(
        "max_pool2d 3 x 3 / 2", lambda lib, x: lib.max_pool2d(x, 3, 2, 1), x, small,
        size * (112 * 112 + 56 * 56),
    )  # fmt: skip
    yield Case(
        "avg_pool2d 2 x 2", lambda lib, x: lib.avg_pool2d(x, 2), x, small, size * (112 * 112 + 56 * 56)
    )


def matmul() -> Iterator[Case]:
    for name in ("f32", "tf32x3", "tf32", "f16", "bf16"):
        t, precision = ("f32", name) if name in ROUNDED else (name, "float32")
        for n in (512, 1024, 2048, 4096, 8192):
            yield Case(
                f"matmul {n} {name}", lambda lib, a, b: lib.matmul(a, b),
                (Operand((n, n), t),) * 2, (Operand((45, 70), t), Operand((70, 101), t)),
                2.0 * n**3, moves=False, terms=n, roundings=1, precision=precision,
            )  # fmt: skip
    rows, small = Operand((65536, 64), "bf16"), Operand((1003, 17), "bf16")
    yield Case(
        "matmul 64 x 65536 x 64 bf16", lambda lib, x, y: lib.matmul(lib.transpose(x, 0, 1), y),
        (rows, rows), (small, small), 2.0 * 64 * 64 * 65536, moves=False, terms=65536, roundings=1,
    )  # fmt: skip
    for m in (1, 32):
        yield Case(
            f"linear {m} x 4096 x 4096 f16, bytes of weights", lambda lib, x, w: lib.linear(x, w),
            (Operand((m, 4096), "f16"), Operand((4096, 4096), "f16")),
            (Operand((m, 70), "f16"), Operand((101, 70), "f16")), 2.0 * 4096**2, terms=4096, weights=(1,),
        )  # fmt: skip
    square = Operand((4096, 4096)), Operand((45, 70)), Operand((101, 70))
    yield Case(
        "linear 4096 f32", lambda lib, x, w: lib.linear(x, w), square[:1] * 2, square[1:], 2.0 * 4096**3,
        moves=False, terms=4096, roundings=1,
    )  # fmt: skip
    m, n, k = 4096, 4096, 1024
    yield Case(
        f"gelu(linear) {m} x {n} x {k} f16", lambda lib, x, w, b: lib.gelu(lib.linear(x, w, b)),
        (Operand((m, k), "f16"), Operand((n, k), "f16"), Operand((n,), "f16")),
        (Operand((45, 70), "f16"), Operand((101, 70), "f16"), Operand((101,), "f16")),
        2.0 * m * n * k, moves=False, terms=k, weights=(1, 2),
    )  # fmt: skip


def attention() -> Iterator[Case]:
    """Scores, softmax and sums, as functions of their own and as the one that is a kernel."""

    def heads(lib, q, k, v):
        scores = lib.matmul(q, lib.transpose(k, 2, 3)) * q.shape[-1] ** -0.5
        return lib.matmul(lib.softmax(scores, 3), v)

    for t in ("f16", "bf16"):
        for length in (512, 2048):
            x, small = Operand((8, 12, length, 64), t), Operand((2, 3, 37, 24), t)
            yield Case(
                f"attention 8 x 12 x {length} x 64 {t}", heads, (x, x, x), (small, small, small),
                4.0 * 8 * 12 * length**2 * 64, moves=False, terms=length, roundings=8,
            )  # fmt: skip
    whole = ((8, 12, 512, 64), (8, 12, 2048, 64), (2, 12, 8192, 64), (4, 16, 4096, 128))
    for t, sizes, causal in (
        *itertools.product(("f16", "bf16"), whole, (False, True)),
        ("f32", whole[1], False),
        ("tf32x3", whole[1], False),
    ):
        lead, (length, width) = sizes[:2], sizes[2:]
        name = f"{' x '.join(map(str, sizes))} {t}{', causal' * causal}"
        t, precision = ("f32", t) if t in ROUNDED else (t, "float32")
        x, small = Operand(sizes, t), Operand((2, 3, 37, 24), t)
        yield Case(
            f"sdpa {name}",
            lambda lib, q, k, v, causal=causal: lib.scaled_dot_product_attention(q, k, v, is_causal=causal),
            (x, x, x), (small, small, small), 4.0 * math.prod(lead) * length**2 * width / (1 + causal),
            moves=False, terms=length, roundings=8, precision=precision,
        )  # fmt: skip
    for t, sizes, causal in (
        *itertools.product(("f16", "bf16"), whole, (False, True)),
        ("f32", whole[1], False),
        ("tf32x3", whole[1], False),
    ):
        name = f"{' x '.join(map(str, sizes))} {t}{', causal' * causal}"
        t, precision = ("f32", t) if t in ROUNDED else (t, "float32")
        x, small, (*lead, length, width) = Operand(sizes, t), Operand((2, 3, 37, 24), t), sizes
        yield Case(
            f"sdpa {name}, there and back",
            lambda lib, *given, causal=causal: lib.attention_gradients(*given, causal),
            (x,) * 4, (small,) * 4, 14.0 * math.prod(lead) * length**2 * width / (1 + causal),
            moves=False, terms=length, roundings=16, precision=precision,
        )  # fmt: skip


def convolution() -> Iterator[Case]:
    for name in ("f32", "tf32", "f16"):
        t, precision = ("f32", name) if name in ROUNDED else (name, "float32")
        for c, h, k, r in ((64, 56, 64, 3), (256, 14, 256, 3), (256, 56, 64, 1), (512, 7, 2048, 1)):
            yield Case(
                f"conv 64 x {c} x {h}^2 -> {k}, {r} x {r} {name}",
                lambda lib, x, w, r=r: lib.relu(lib.conv2d(x, w, padding=r // 2)),
                (Operand((64, c, h, h), t), Operand((k, c, r, r), t)),
                (Operand((2, 17, 9, 11), t), Operand((19, 17, r, r), t)),
                2.0 * 64 * h * h * c * k * r * r, moves=False, terms=c * r * r, roundings=1, weights=(1,),
                precision=precision,
            )  # fmt: skip


def gradients() -> Iterator[Case]:
    """Those of convolutions, which sum over channels and taps, or over images and places."""
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1)}
    for name in ("f32", "tf32", "f16"):
        t, precision = ("f32", name) if name in ROUNDED else (name, "float32")
        for c, h, k in ((64, 56, 64), (256, 14, 256)):
            x, w, g = ((64, c, h, h), (k, c, 3, 3), (64, k, h, h))
            small = ((2, 17, 9, 11), (19, 17, 3, 3), (2, 19, 9, 11))
            for what, terms in (("input", 9 * k), ("weight", 64 * h * h)):
                yield Case(
                    f"conv 64 x {c} x {h}^2 -> {k}, to {what} {name}",
                    lambda lib, x, w, g, what=what: getattr(lib, f"to_{what}")(x, w, g, window),
                    tuple(Operand(shape, t) for shape in (x, w, g)),
                    tuple(Operand(shape, t) for shape in small),
                    2.0 * 64 * h * h * c * k * 9, moves=False, terms=terms, roundings=1, precision=precision,
                )  # fmt: skip


def random() -> Iterator[Case]:
    state = Operand((2,), "i64", 1000)
    yield Case(
        "rand", lambda lib, state, like: lib.rand(state, like.shape),
        (state, Operand((1 << 26,))), (state, Operand((1003,))), 4 << 26, random=True,
    )  # fmt: skip


def network() -> Iterator[Case]:
    """Two convolutions with pooling and a classifier: some ten launches, each of a few microseconds."""

    def forward(lib, x, w1, w2, w3, b3):
        x = lib.max_pool2d(lib.relu(lib.conv2d(x, w1, padding=1)), 2)
        x = lib.max_pool2d(lib.relu(lib.conv2d(x, w2, padding=1)), 2)
        return lib.softmax(lib.linear(lib.mean(x, (2, 3)), w3, b3), 1)

    def operands(n: int, c: int, h: int) -> tuple[Operand, ...]:
        shapes = ((n, 3, h, h), (c, 3, 3, 3), (2 * c, c, 3, 3), (10, 2 * c), (10,))
        return tuple(map(Operand, shapes))

    work = 2.0 * 128 * 9 * (32 * 32 * 3 * 32 + 16 * 16 * 32 * 64)
    yield Case(
        "small network, batch 128", forward, operands(128, 32, 32), operands(3, 5, 13), work,
        moves=False, terms=1024, weights=(1, 2, 3, 4),
    )  # fmt: skip


def training() -> Iterator[Case]:
    """Steps of gradient descent: the small network, and a ResNet-18 for images of 32 x 32."""

    def small(half, lib, x, w1, w2, w3, b3, labels):
        for w in (w1, w2):
            x = lib.max_pool2d(lib.relu(lib.conv2d(half(lib, x), half(lib, w), padding=1)), 2)
        x = lib.linear(half(lib, lib.mean(x, (2, 3))), half(lib, w3), half(lib, b3))
        return lib.cross_entropy(x, labels)

    def resnet18(half, lib, x, *rest):
        weights, labels = iter(rest[:-1]), rest[-1]

        def conv(x, stride=1):
            w = next(weights)
            x = lib.conv2d(half(lib, x), half(lib, w), stride=stride, padding=w.shape[-1] // 2)
            return lib.batch_norm(x, next(weights), next(weights))

        x = lib.relu(conv(x))
        for number in range(8):
            stride = 1 + (number in STRIDED)
            made = conv(lib.relu(conv(x, stride)))
            x = lib.relu(made + (conv(x, stride) if stride > 1 else x))
        x = lib.linear(half(lib, lib.mean(x, (2, 3))), half(lib, next(weights)), half(lib, next(weights)))
        return lib.cross_entropy(x, labels)

    def of_small(n: int, c: int, h: int) -> tuple[Operand, ...]:
        shapes = ((n, 3, h, h), (c, 3, 3, 3), (2 * c, c, 3, 3), (10, 2 * c), (10,))
        return (*map(Operand, shapes), Operand((n,), "i64", 10))

    def of_resnet(n: int, c: int, h: int) -> tuple[Operand, ...]:
        shapes: list[tuple[int, ...]] = [(n, 3, h, h), (c, 3, 3, 3), (c,), (c,)]
        for number in range(8):
            inputs, c = c, 2 * c if number in STRIDED else c
            shapes += [(c, inputs, 3, 3), (c,), (c,), (c, c, 3, 3), (c,), (c,)]
            shapes += [(c, inputs, 1, 1), (c,), (c,)] if number in STRIDED else []
        return (*map(Operand, (*shapes, (10, c), (10,))), Operand((n,), "i64", 10))

    convolutions = {"small network": 9 * (32 * 32 * 3 * 32 + 16 * 16 * 32 * 64), "ResNet-18 of 32^2": 555e6}
    for (name, work), function, operands, channels in zip(
        convolutions.items(), (small, resnet18), (of_small, of_resnet), (32, 64), strict=True
    ):
        for kind in ("f32", "tf32", "f16"):
            half = (lambda lib, x: lib.half(x)) if kind == "f16" else (lambda lib, x: x)
            full = operands(128, channels, 32)
            yield Case(
                f"{name}, a step on 128 {kind}", partial(function, half), full, operands(4, 4, 16),
                6.0 * 128 * work,
                moves=False, terms=1 << 17, precision="tf32" if kind == "tf32" else "float32",
                # to 11 bits in twenty layers: the records themselves are 3.4e-2 off the same in f64
                roundings={"f16": 64 << 13, "tf32": 64}.get(kind, 4),
                updated=tuple(range(1, len(full) - 1)),
            )  # fmt: skip


SECTIONS = {
    f.__name__: f
    for f in (
        pointwise,
        reductions,
        rows,
        indexed,
        pooling,
        matmul,
        attention,
        convolution,
        gradients,
        random,
        network,
        training,
    )  # fmt: skip
}


# ---- ours: from a case to a program, and to launches on arrays that stay on the device


def graph_of(case: Case, operands: Sequence[Operand]) -> Graph:
    with Builder("case") as b:
        params = [b.param(type_of(DTYPES[o.dtype], o.shape), f"x{k}") for k, o in enumerate(operands)]
        made = case.function(Lamina(), *params)
        graph = b.finish(list(made) if isinstance(made, (tuple, list)) else [made])
    return stepped(graph, case.updated) if case.updated else graph


def stepped(graph: Graph, updated: tuple[int, ...]) -> Graph:
    """The graph of a loss with what a step of gradient descent makes of some params, behind the loss."""
    graph = differentiate(graph, Derivative(wrt=updated, seeds="ones"))
    with Builder.extending(graph) as b:
        loss, *gradients = graph.results
        changed = [graph.params[at] - g * RATE for at, g in zip(updated, gradients, strict=True)]
        return b.finish([loss, *changed])


def program_of(
    case: Case, graph: Graph, arrays: Sequence[np.ndarray], run: RunProgram
) -> tuple[Program, list]:
    """What is run at every call, and its arrays: what depends on weights alone was run before."""
    options = Options(frozen=frozenset(case.weights), precision=case.precision, limits=GPU)
    program = to_program(optimise(graph, options), (None,) * len(graph.results), ANY, options)
    return without_weights(case, program, arrays, run)


def without_weights(
    case: Case, program: Program, arrays: Sequence[np.ndarray], run: RunProgram
) -> tuple[Program, list]:
    """The program of every call and its arrays, once the program of weights was run."""
    weights, main = prologue(program, frozenset(case.weights))
    at = {array: k for k, array in enumerate(program.params)}
    made = run(weights, [arrays[at[a]] for a in weights.params]) if weights.steps else ()
    held: dict[Array, np.ndarray] = dict(zip(weights.results, made, strict=True))
    return main, [held[a] if a in held else arrays[at[a]] for a in main.params]


def error_of(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, as a part of the largest element."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape or not np.isfinite(got).all():
        return math.inf
    return float(np.abs(got - want).max(initial=0.0) / max(np.abs(want).max(initial=0.0), 1e-300))


def check(case: Case, run: RunProgram) -> float:
    """How far the small results are from the references'.  Raises AssertionError beyond the tolerance."""
    graph = graph_of(case, case.small)
    arrays = [o.array(k) for k, o in enumerate(case.small)]
    program, given = program_of(case, graph, arrays, run)
    wanted = interpret(graph, *arrays, dtype=None if case.random else float64)
    worst = 0.0
    for result, got, want in zip(graph.results, run(program, given), wanted, strict=True):
        error = error_of(got, want)
        allowed = 0.0 if case.random else case.tolerance(result.type.dtype.short, SMALL_TERMS)
        assert error <= allowed, f"{case.name}: differs from the reference by {error:.1e}, not {allowed:.1e}"
        worst = max(worst, error)
    return worst


class Resident:
    """A program whose arrays and scratch memory are on the device for good: a call queues its launches, and
    nothing else.
    """

    def __init__(self, machine: Machine, program: Program, arrays: Sequence[np.ndarray]):
        launches, constants = launch_list(program, Target.named(machine.target))
        functions = machine.functions(launches.codes, compiled(launches.codes, Target.named(machine.target)))
        self.results = [DeviceArray(machine, dtype, shape) for dtype, shape in launches.results]
        self._memory = {
            "param": [
                uploaded(machine, a, dtype) for a, (dtype, _) in zip(arrays, launches.params, strict=True)
            ],
            "constant": [
                uploaded(machine, a, dtype)
                for a, (dtype, _) in zip(constants, launches.constants, strict=True)
            ],
            "arena": [DeviceArray(machine, "u8", (launches.arena,))],
            "result": self.results,
        }
        self._scratch: list[DeviceArray] = []  # of kernels that need some
        self.steps: list[Callable[[], None]] = []
        self.labels: list[str] = []  # of steps: the kernel, and how many programs it has
        for part in launches.parts:
            if isinstance(part, Launch):
                addresses = map(self._address, part.arguments)
                function, grid = functions[part.code], launches.codes[part.code].grid
                launch = partial(machine.stream.launch, function, grid, *addresses)
                scratch = [DeviceArray(machine, "u8", (nbytes,)) for nbytes in function.scratch(grid)]
                self._scratch += scratch
                self.steps.append(partial(launch, scratch=scratch[0].address, profile=scratch[1].address))
                self.labels.append(f"{part.about}, {grid}")
            elif isinstance(part, Move):
                source, target = self._address(part.source), self._address(part.target)
                self.steps.append(partial(machine.stream.copy, target, source, part.nbytes))
                self.labels.append(f"{part}: {part.nbytes} bytes")
            else:
                raise LaminaError("a step of the host can't be timed on the device", part.text)

    def _address(self, place: Place) -> int:
        if place.kind == "arena":
            return self._memory["arena"][0].address + place.at
        return self._memory[place.kind][place.at].address + place.beyond

    def __call__(self) -> None:
        for step in self.steps:
            step()


# ---- turns


class Contender(Protocol):
    """queue: begins a call.  mark: a point in what was queued.  milliseconds: between two, once both came."""

    def queue(self) -> None: ...
    def mark(self) -> Any: ...
    def milliseconds(self, start: Any, end: Any) -> float: ...


@dataclass
class Ours:
    run: Callable[[], None]
    machine: Machine

    def queue(self) -> None:
        self.run()

    def mark(self) -> Any:
        return self.machine.stream.record(timing=True)

    def milliseconds(self, start: Any, end: Any) -> float:
        return end.since(start)


@dataclass
class Theirs:
    run: Callable[[], Any]
    torch: Any

    def queue(self) -> None:
        self.run()

    def mark(self) -> Any:
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def milliseconds(self, start: Any, end: Any) -> float:
        end.synchronize()
        return start.elapsed_time(end)


def span(contender: Contender, repeats: int) -> float:
    """Seconds of one of so many calls in a row, after one untimed.  Waits for them."""
    contender.queue()
    start = contender.mark()
    for _ in range(repeats):
        contender.queue()
    return contender.milliseconds(start, contender.mark()) / 1e3 / repeats


def turns(contenders: dict[str, Contender], seconds: float) -> dict[str, Time]:
    """Each one's time, from 5 to 100 rounds in which all have a turn of half a millisecond or one call."""
    once = {name: max(span(contender, 3), 1e-6) for name, contender in contenders.items()}
    repeats = {name: max(1, min(200, round(5e-4 / t))) for name, t in once.items()}
    spent = sum(t * (repeats[name] + 1) for name, t in once.items())
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(max(5, min(100, int(seconds / spent)))):
        for name, contender in contenders.items():
            found[name].append(span(contender, repeats[name]))
    return {name: Time(min(times), statistics.median(times)) for name, times in found.items()}


# ---- theirs


def on_torch(torch: Any, array: np.ndarray) -> Any:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(array).cuda()


def theirs(
    case: Case, arrays: Sequence[np.ndarray], by_compiler: bool = False
) -> tuple[Theirs, Callable[[], list[np.ndarray]]] | None:
    """torch's contender and a way to its results; None where there is no torch for this device.

    by_compiler: through torch.compile.
    """
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    library, given = Torch(), [on_torch(torch, a) for a in arrays]

    function = partial(case.function, library)
    if by_compiler:
        function = torch.compile(function)

    def run() -> Any:
        if case.updated:
            return descended(function)
        with torch.inference_mode():
            return function(*given)

    def descended(function: Callable[..., Any]) -> list[Any]:
        weights = [given[at].requires_grad_() for at in case.updated]
        loss = function(*given)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            return [loss.detach(), *torch._foreach_sub(weights, torch._foreach_mul(gradients, RATE))]

    def results() -> list[np.ndarray]:
        made = run()
        made = list(made) if isinstance(made, (tuple, list)) else [made]
        return [(r.float() if r.is_floating_point() else r).cpu().numpy() for r in made]

    return Theirs(run, torch), results


# ---- for a machine that is not here
def compile_ahead(case: Case, compiler: Compiler) -> None:
    """Have all that `measured` would run compiled."""

    def add(program: Program, arrays: Sequence[np.ndarray] = ()) -> list[np.ndarray]:
        for code in launch_list(program, compiler.target)[0].codes:
            compiler.add(code)
        return [np.zeros(x.shape, NUMPY[x.dtype]) for x in program.results]

    for operands in (case.small, case.operands):
        arrays = [np.broadcast_to(np.zeros((), NUMPY[o.dtype]), o.shape) for o in operands]
        add(program_of(case, graph_of(case, operands), arrays, add)[0])


def program_ahead(case: Case) -> Program:
    """What is run at every call at full size, for a machine that is not here."""

    def nothing(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.broadcast_to(np.zeros((), NUMPY[x.dtype]), x.shape) for x in program.results]

    arrays = [np.broadcast_to(np.zeros((), NUMPY[o.dtype]), o.shape) for o in case.operands]
    return program_of(case, graph_of(case, case.operands), arrays, nothing)[0]


# ---- the table


@dataclass
class Row:
    """What came out of a case; `wrong` says what was wrong with it.  predicted: seconds."""

    case: Case
    times: dict[str, Time] = field(default_factory=dict)
    error: float = math.nan
    wrong: str = ""
    predicted: float | None = None

    def __str__(self) -> str:
        if self.wrong:
            return f"  {self.case.name:<38}{self.wrong}"
        cells = ""
        for name in ("lamina", "torch"):
            t = self.times.get(name)
            cells += f"{t.least * 1e6:>12.1f}{t.median * 1e6:>12.1f}" if t else f"{'-':>12}{'-':>12}"
            if name == "lamina":
                cells += f"{'-':>12}" if self.predicted is None else f"{self.predicted * 1e6:>12.1f}"
        mine = self.times["lamina"].least
        rate = self.case.work / mine / (1e9 if self.case.moves else 1e12)
        ahead = f"{self.times['torch'].least / mine:>8.2f}x" if "torch" in self.times else ""
        unit = "GB/s" if self.case.moves else "TF/s"
        if COMPILED in self.times:
            ahead += f"{self.times[COMPILED].least / mine:>8.2f}x of {COMPILED}"
        return f"  {self.case.name:<38}{cells}{rate:>10.1f} {unit}{self.error:>10.1e}{ahead}"


HEADER = (
    f"  {'':<38}{'lamina us':>12}{'median':>12}{'model us':>12}{'torch us':>12}{'median':>12}{'rate':>15}"
    f"{'error':>10}{'ahead':>9}"
)


def measured(case: Case, machine: Machine, seconds: float, by_compiler: bool = False) -> Row:
    """Check a case and time it.  Never raises what is the case's own fault."""
    row = Row(case)
    try:
        row.error = check(case, lambda program, arrays: Executable(program, machine)(*arrays))
        arrays = [o.array(k) for k, o in enumerate(case.operands)]
        program, given = program_of(
            case, graph_of(case, case.operands), arrays, lambda p, a: Executable(p, machine)(*a)
        )
        device, target = device_of(machine.device.name), Target.named(machine.target)
        if device is not None and disassembler() is not None:
            row.predicted, _ = seconds_of(program, target, device)
        resident = Resident(machine, program, given)
        contenders: dict[str, Contender] = {"lamina": Ours(resident, machine)}
        peer = theirs(case, arrays)
        if peer is not None:
            contenders["torch"], results = peer
            resident()
            if not case.random:
                for made, want in zip(resident.results, results(), strict=False):  # flags of checks come last
                    error = error_of(made.numpy(), want)
                    assert error <= 2 * case.tolerance(made.dtype), f"differs from torch's by {error:.1e}"
            if by_compiler and case.updated:
                compiled_peer = theirs(case, arrays, by_compiler=True)
                assert compiled_peer is not None
                contenders[COMPILED], _ = compiled_peer
        row.times = turns(contenders, seconds)
    except (AssertionError, LaminaError) as error:
        row.wrong = f"WRONG: {str(error).splitlines()[0]}"
    return row


def table(
    sections: Sequence[str],
    measure: Callable[[Case], Row],
    until: float,
    say: Callable[[str], None],
    named: str = "",
) -> bool:
    """Say a row for every case of that name until the time is over; returns whether all were right."""
    right, left_out = True, []
    for section in sections:
        say(section)
        for case in SECTIONS[section]():
            if named not in case.name:
                continue
            if time.monotonic() > until:
                left_out.append(case.name)
                continue
            row = measure(case)
            right = right and not row.wrong
            say(str(row))
    if left_out:
        say(f"left out, as the time was over: {', '.join(left_out)}")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SECTIONS, action="append")
    parser.add_argument("--seconds", type=float, default=0.5, help="for one case's rounds")
    parser.add_argument("--minutes", type=float, default=8.0, help="no case begins later")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--compile", metavar="TARGET", help="compile for it, and measure nothing")
    parser.add_argument("--predict", choices=DEVICES, help="what the model says of it, and measure nothing")
    parser.add_argument("--case", default="", help="those whose names have this in them")
    parser.add_argument("--compiled", action="store_true", help="steps beside torch.compile's too")
    options = parser.parse_args()
    if options.compile:
        with Compiler(Target.named(options.compile)) as compiler:
            for section in options.only or SECTIONS:
                for case in SECTIONS[section]():
                    if options.case in case.name:
                        compile_ahead(case, compiler)
            print(f"{len(compiler.binaries())} kernels for {options.compile}")
        return 0
    if options.predict:
        for section in options.only or SECTIONS:
            print(section)
            for case in SECTIONS[section]():
                if options.case in case.name:
                    seconds, _ = seconds_of(
                        program_ahead(case), Target.named("sm_90"), DEVICES[options.predict]
                    )
                    print(f"  {case.name:<50}{seconds * 1e6:>12.1f} us", flush=True)
        return 0
    until = time.monotonic() + 60 * options.minutes
    try:
        device = machine()
    except (DeviceError, MissingLibraryError) as error:
        print(f"nothing is measured, for there is no NVIDIA GPU to use here:\n{error}", file=sys.stderr)
        return 2
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    driver = ".".join(map(str, device.device.driver.version))
    say(where())
    say(f"{device.device.name} ({device.target}), driver for CUDA {driver}, triton {version('triton')}")
    say("times between events on the device, the least and the median; error: of the small check")
    say(HEADER)

    def measure(case: Case) -> Row:
        row = measured(case, device, options.seconds, options.compiled)
        device.allocator.empty_cache()
        return row

    right = table(options.only or list(SECTIONS), measure, until, say, options.case)
    if options.write:
        (RESULTS / "gpu.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
