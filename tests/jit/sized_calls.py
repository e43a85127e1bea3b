"""Calls on tensors of sizes that change, by name: what library functions and Python's own make of sizes.

CALLS has for each a function and what makes its argument of two sizes.  OFTENER tells which take more than
two recordings for SIZES, and why; ASKED which ask for values.
"""
# ruff: noqa: C408, C416, C417 - these spellings are what is tried

from __future__ import annotations

import collections
import functools
import heapq
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import lamina
import lamina as t
from lamina import nn
from lamina.nn import functional as F

SIZES = ((4, 6), (5, 7), (3, 8), (6, 5), (2, 9), (7, 4), (5, 7), (4, 6), (5, 6))
OFTENER = {
    "adaptive_avg_pool2d to several": "whether the parts divide the sizes is asked",
    "fft2": "transforms take their sizes as numbers", "irfft": "transforms take their sizes as numbers",
    "vmap": "its function is run once for all", "jvp": "its function is run once for all",
    "jacrev": "its function is run once for all", "vjp": "what it compares are sizes",
    "svdvals": "the least of two sizes", "qr": "the least of two sizes", "as_strided": "strides are numbers",
    "interpolate to a size": "that is the input's own once",
    "halves": "whether a half is one", "ceil": "a symbol of its own",
    "cast": "a symbol of its own", "gcd": "a symbol of its own", "steps": "whether it is even",
    "slice": "C code holds it", "full": "its value is asked for", "partial": "C code holds it",
    "parts that are split off": "whether one is one", "a five in a shape": "whether it is there",
}  # fmt: skip
ASKED = frozenset((
    "sorted", "itemgetter", "chained", "accumulated", "prod of NumPy's", "a set", "iter", "filter", "deque",
    "a generator function", "starmap", "starmap of a list", "greatest pair", "sorted pairs", "least pair",
    "among pairs", "among listed pairs", "a table of places", "a set of pairs", "a pair's equal", "texts",
    "counted", "an array", "an array of a map", "any", "flattened pairs", "some pairs", "some of a map",
    "while small", "grouped", "neighbours", "accumulated of a map", "count", "a key", "a key of a map",
    "among reversed", "among a map", "equal dictionaries", "equal repeated", "largest", "bytes", "one of two",
    "sorted of a map", "filtered", "first that", "place of the first", "a text", "a text of a map",
    "a text of a dictionary",
))  # fmt: skip

_linear, _convolution, _transposed = (
    nn.Linear(8, 8),
    nn.Conv2d(4, 4, 3, padding=1),
    nn.ConvTranspose2d(4, 3, 3, 2, 1, 1),
)
_lstm, _gru = nn.LSTM(8, 8, batch_first=True, bidirectional=True), nn.GRU(8, 8, batch_first=True)
_attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
_encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
_embedding = nn.Embedding(50, 8)


def numbers(*shape: int) -> Any:
    count = lamina.arange(math.prod(shape), dtype=lamina.float32)
    return (count * 0.7548776 % 1.0 * 4 - 1.9).reshape(shape)


def image(b: int, n: int) -> Any:
    return numbers(b, 4, n + 3, n + 5)


def sequence(b: int, n: int) -> Any:
    return numbers(b, n, 8)


def _ones(n: Any) -> Any:
    return t.ones(int(n))


IMAGES: dict[str, Callable] = {
    "adaptive_avg_pool2d to one": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_avg_pool2d of one": lambda x: F.adaptive_avg_pool2d(x[:, :, :1, :1], 1),
    "adaptive_avg_pool2d along": lambda x: F.adaptive_avg_pool2d(x, (1, None)),
    "adaptive_avg_pool2d to several": lambda x: F.adaptive_avg_pool2d(x, 2),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 1),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_pool2d, ceil_mode": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "avg_pool2d without padding": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_pool2d beyond the end": lambda x: F.avg_pool2d(F.pad(x, (0, 1, 0, 1)), 2, 2, 0, True, False),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool2d, dilation": lambda x: F.max_pool2d(x, 2, dilation=2),
    "lp_pool2d": lambda x: F.lp_pool2d(x, 2, 2),
    "interpolate by a factor": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "interpolate to a size": lambda x: F.interpolate(x, size=(7, 9), mode="bilinear"),
    "interpolate to twice": lambda x: F.interpolate(x, size=(x.shape[2] * 2, x.shape[3] * 2), mode="bicubic"),
    "interpolate, area": lambda x: F.interpolate(x, size=x.shape[-2:], mode="area"),
    "reflected": lambda x: F.pad(x, (1, 2, 1, 1), "reflect"),
    "padded to a multiple": lambda x: F.pad(x, (0, 8 - x.shape[3] % 8)),
    "unfold and fold": lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[-2:], 3, padding=1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2)), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "conv2d": lambda x: _convolution(x),
    "conv_transpose2d": lambda x: _transposed(x),
    "group_norm": lambda x: F.group_norm(x, 2),
    "windows": lambda x: (
        x[:, :, : x.shape[2] // 2 * 2, : x.shape[3] // 2 * 2]
        .reshape(x.shape[0], 4, x.shape[2] // 2, 2, x.shape[3] // 2, 2)
        .permute(0, 2, 4, 1, 3, 5)
        .reshape(-1, 4, 2, 2)
    ),
    "rolled by half": lambda x: x.roll(x.shape[2] // 2, 2),
    "fft2": lambda x: t.fft.fft2(x).abs(),
    "irfft": lambda x: t.fft.irfft(t.fft.rfft(x), n=x.shape[-1]),
    "grid_sample": lambda x: F.grid_sample(x, F.affine_grid(t.eye(2, 3).expand(x.shape[0], 2, 3), x.shape)),
}
SEQUENCES: dict[str, Callable] = {
    "lstm": lambda x: _lstm(x)[0], "gru": lambda x: _gru(x)[0],
    "attention": lambda x: _attention(x, x, x)[0], "encoder": lambda x: _encoder(x),
    "einsum of attention": lambda x: t.einsum("bnd,bmd->bnm", x, x),
    "einsum of a layer": lambda x: t.einsum("bnd,de->bne", x, _linear.weight),
    "einsum of rows": lambda x: t.einsum("bnd,bnd->bn", x, x),
    "einsum with dots": lambda x: t.einsum("...d,ed->...e", x, _linear.weight),
    "einsum over a size": lambda x: t.einsum("bnd,nk->bkd", x, t.ones(x.shape[1], 3)),
    "einsum of integers": lambda x: t.einsum("bnd,bmd->bnm", x.long(), x.long()),
    "tensordot": lambda x: t.tensordot(x, x, dims=([0, 1], [0, 1])),
    "sort and narrow": lambda x: x.sort(1)[0].narrow(1, 0, 2),
    "topk": lambda x: x.topk(2, 1)[0], "cumsum": lambda x: x.cumsum(1), "median": lambda x: x.median(1)[0],
    "softmax after reshape": lambda x: x.reshape(x.shape[0] * x.shape[1], -1).softmax(-1),
    "softmax of all": lambda x: x.reshape(-1, 8).softmax(0),
    "swapped": lambda x: x.swapaxes(0, 1).reshape(-1, 8),
    "heads": lambda x: x.unflatten(2, (2, 4)).transpose(1, 2).flatten(2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "turned": lambda x: x[:, t.arange(x.shape[1] - 1, -1, -1)],
    "sum": lambda x: x.sum(1), "sum of all": lambda x: x.sum(), "var": lambda x: x.var(1),
    "grad": lambda x: t.func.grad(lambda y: (y.sin() * y).sum())(x),
    "grad of a mean": lambda x: t.func.grad(lambda y: _linear(y).pow(2).mean())(x),
    "grad_and_value": lambda x: t.func.grad_and_value(lambda y: (y @ y.mT).softmax(-1)[0, 0, 0])(x)[0],
    "grad of one of two": lambda x: t.func.grad(lambda y, z: (y.detach() * z).sum(), 1)(x, x * 2),
    "grad of nothing": lambda x: t.func.grad(lambda y, z: z.sum(), (0, 1))(x, x)[0],
    "vjp": lambda x: t.func.vjp(lambda y: y.softmax(-1), x)[1](x)[0],
    "vmap": lambda x: t.func.vmap(lambda y: _linear(y).sum(0))(x),
    "jvp": lambda x: t.func.jvp(lambda y: y.sin(), (x,), (x,))[1],
    "jacrev": lambda x: t.func.jacrev(lambda y: y.sin().sum((0, 1)))(x),
    "svdvals": lambda x: t.linalg.svdvals(x), "qr": lambda x: t.linalg.qr(x)[0].abs(),
    "as_strided": lambda x: x.as_strided((x.shape[0], x.shape[1]), (x.shape[1] * 8, 8)),
    "cdist": lambda x: t.cdist(x, x), "one_hot": lambda x: F.one_hot(x.argmax(-1), 8),
    "embedding": lambda x: _embedding(x.argmax(-1)),
    "cross_entropy": lambda x: F.cross_entropy(x.reshape(-1, 8), x.reshape(-1, 8).argmax(-1)),
}  # fmt: skip


def _halves(x: Any) -> Any:
    a, b = [k // 2 for k in x.shape[:2]]
    return x[:a, :b]


def _unpacked(x: Any) -> Any:
    a, b = (k + 1 for k in x.shape[:2])
    return t.zeros(a, b) + x.sum()


def _yielded(x: Any) -> Any:
    def sizes():
        yield x.shape[0]
        yield x.shape[1]

    a, b = sizes()
    return t.zeros(a, b) + x.sum()


def _both(n: Any) -> Any:
    yield n
    yield n + 1


# ---- what Python's own functions make of a shape
OF_SHAPES: dict[str, Callable] = {
    "unpacked of a generator": _unpacked, "yielded": _yielded, "halves": _halves,
    "a map": lambda x: t.ones(*map(lambda k: k * 2, x.shape[:2])),
    "a tuple of a map": lambda x: t.ones(tuple(map(int, x.shape[:2]))),
    "sum of a map": lambda x: _ones(sum(map(abs, x.shape[:2]))),
    "zip": lambda x: t.ones([a * b for a, b in zip(x.shape, (1, 2))]),
    "enumerate": lambda x: t.ones([n + i for i, n in enumerate(x.shape[:2])]),
    "a dictionary": lambda x: _ones(dict(a=x.shape[0])["a"]),
    "a dictionary of a zip": lambda x: _ones({k: v for k, v in zip("abc", x.shape)}["b"]),
    "a dictionary handed on": lambda x: _ones((lambda **k: k["a"])(**dict(a=x.shape[0]))),
    "values of a dictionary": lambda x: _ones(sum(dict(a=x.shape[0], b=2).values())),
    "reversed": lambda x: x.reshape(tuple(reversed(x.shape))),
    "padding": lambda x: F.pad(x, [p for n in reversed(x.shape) for p in (0, (-n) % 4)]),
    "repeated": lambda x: _ones((x.shape[:1] * 2)[1]),
    "reduce": lambda x: _ones(functools.reduce(operator.mul, x.shape[:2])),
    "reduce from a start": lambda x: _ones(functools.reduce(max, x.shape[:2], 3)),
    "two at a time": lambda x: _ones([a + b for a, b in zip(map(abs, x.shape), reversed(x.shape))][0]),
    "map of two": lambda x: _ones([*map(operator.mul, x.shape, (2, 3, 4))][0]),
    "next": lambda x: _ones(next(map(abs, x.shape))),
    "tensor of a map": lambda x: t.tensor(list(map(abs, x.shape))),
    "tensor of pairs": lambda x: t.tensor(list(zip(x.shape, (1, 2)))),
    "rest": lambda x: (lambda a, *b: _ones(a + b[0]))(*map(abs, x.shape)),
    "ceil": lambda x: _ones(math.ceil(x.shape[0] / 2)), "cast": lambda x: _ones(int(x.shape[0] / 2)),
    "gcd": lambda x: _ones(math.gcd(x.shape[0], 4)), "steps": lambda x: t.arange(0, x.shape[0], 2),
    "slice": lambda x: x[slice(0, x.shape[0] // 2 + 1)], "full": lambda x: t.full((x.shape[0],), x.shape[1]),
    "partial": lambda x: functools.partial(t.ones, x.shape[0])(x.shape[1]),
    "the largest, or none": lambda x: _ones(max([x.shape[0], 2], default=0) + max([], default=1)),
    "the least, or none": lambda x: _ones(min(x.shape[:2], default=0)),
    "a one in a shape": lambda x: _ones(1 + (1 in x.shape)),
    "a five in a shape": lambda x: _ones(1 + (5 in x.shape)),
    "expanded": lambda x: x[:, None].expand(-1, 3, *x.shape[1:]),
    "expanded by sizes": lambda x: x[:, None].expand(x.shape[0], 3, *x.shape[1:]),
    "repeated by sizes": lambda x: x[:1].repeat(x.shape[0], *[1] * (x.ndim - 1)),
    "tensordot": lambda x: t.tensordot(x, x, ([0, 1], [0, 1])),
    "parts that are split off": lambda x: t.cat([p * 2 for p in x.split([1, x.shape[0] - 1])]),
    # each of these looks at values, and has a recording for each
    "sorted": lambda x: _ones(sorted(x.shape)[0]),
    "itemgetter": lambda x: _ones(operator.itemgetter(0)(x.shape)),
    "chained": lambda x: t.ones(*itertools.chain(x.shape[:1], x.shape[1:2])),
    "accumulated": lambda x: t.ones(*itertools.accumulate(x.shape[:2])),
    "prod of NumPy's": lambda x: _ones(np.prod(x.shape[:2])),
    "a set": lambda x: _ones(len({*x.shape[:1]}) + x.shape[0]),
    "iter": lambda x: _ones(next(iter(x.shape))),
    "filter": lambda x: t.ones(*filter(lambda n: n > 1, x.shape[:2])),
    "deque": lambda x: t.ones([*collections.deque([x.shape[0]])]),
    "a generator function": lambda x: t.ones(*_both(x.shape[0])),
    "starmap": lambda x: t.ones(*itertools.starmap(operator.mul, zip(x.shape[:2], (1, 2)))),
    "starmap of a list": lambda x: t.ones(
        *itertools.starmap(operator.mul, zip([x.shape[0], x.shape[1]], (1, 2)))
    ),
    "greatest pair": lambda x: _ones(max(zip(x.shape, (1, 2, 3)))[0]),
    "sorted pairs": lambda x: _ones(sorted(zip(x.shape, (1, 2, 3)))[0][0]),
    "least pair": lambda x: _ones(min(enumerate(x.shape))[1]),
    "among pairs": lambda x: _ones(1 + ((5, 1) in zip(x.shape, (1, 2)))),
    "among listed pairs": lambda x: _ones(1 + ((5, 1) in list(zip(x.shape, (1, 2))))),
    "a table of places": lambda x: _ones(dict(enumerate(x.shape))[0]),
    "a set of pairs": lambda x: _ones(len(set(zip(x.shape, (1, 1, 1))))),
    "a pair's equal": lambda x: _ones(1 + ([*zip(x.shape, (1, 2))][0] == (5, 1))),
    "texts": lambda x: _ones(len(",".join(map(str, x.shape)))),
    "counted": lambda x: _ones(len(collections.Counter(x.shape))),
    "an array": lambda x: _ones(np.array([*zip(x.shape, (1, 2))])[0, 0]),
    "an array of a map": lambda x: _ones(np.array([*map(abs, x.shape)])[0]),
    "any": lambda x: _ones(1 + any(a == 5 for a, _ in zip(x.shape, (1, 2)))),
    "flattened pairs": lambda x: _ones([*itertools.chain.from_iterable(zip(x.shape, (1, 2)))][0]),
    "some pairs": lambda x: _ones([*itertools.islice(zip(x.shape, (1, 2)), 1)][0][0]),
    "some of a map": lambda x: _ones([*itertools.islice(map(abs, x.shape), 1)][0]),
    "while small": lambda x: _ones(1 + len([*itertools.takewhile(lambda n: n < 6, map(abs, x.shape))])),
    "grouped": lambda x: _ones(len([*itertools.groupby(map(abs, x.shape))])),
    "neighbours": lambda x: _ones([*itertools.pairwise(map(abs, x.shape))][0][0]),
    "accumulated of a map": lambda x: _ones([*itertools.accumulate(map(abs, x.shape))][1]),
    "count": lambda x: _ones(1 + x.shape.count(5)),
    "a key": lambda x: _ones({(5, 7, 8): 3}.get(tuple(x.shape), 2)),
    "a key of a map": lambda x: _ones({(5, 7, 8): 3}.get(tuple(map(int, x.shape)), 2)),
    "among reversed": lambda x: _ones(1 + (5 in reversed(x.shape))),
    "among a map": lambda x: _ones(1 + (5 in map(int, x.shape))),
    "equal dictionaries": lambda x: _ones(1 + (dict(a=x.shape[0]) == {"a": 5})),
    "equal repeated": lambda x: _ones(1 + (x.shape[:1] * 2 == (5, 5))),
    "largest": lambda x: _ones(heapq.nlargest(1, map(int, x.shape))[0]),
    "bytes": lambda x: _ones(1 + bytes(map(int, x.shape))[0]),
    "one of two": lambda x: _ones(functools.reduce(lambda a, b: a if a == 5 else b, x.shape[:2])),
    "sorted of a map": lambda x: _ones(-sorted(map(operator.neg, x.shape))[0]),
    "filtered": lambda x: _ones([*filter(lambda n: n != 5, x.shape)][0]),
    "first that": lambda x: _ones(next((n for n in x.shape if n > 5), 1)),
    "place of the first": lambda x: _ones(1 + next(i for i, n in enumerate(x.shape) if n >= 7)),
    "a text": lambda x: _ones(len("{} {}".format(*map(lambda n: n * 1000, x.shape)))),
    "a text of a map": lambda x: _ones(len(f"{[*map(lambda n: n * 100, x.shape)]}")),
    "a text of a dictionary": lambda x: _ones(len(str(dict(a=x.shape[0] * 1000)))),
}  # fmt: skip

CALLS: dict[str, tuple[Callable, Callable]] = {
    **{name: (function, image) for name, function in IMAGES.items()},
    **{name: (function, sequence) for name, function in (SEQUENCES | OF_SHAPES).items()},
}
