"""More blocks of random networks: positions and vectors, elementwise chains, and blocks that hold others."""

from __future__ import annotations

import math
from random import Random

from network_blocks import (
    ANY,
    IMAGES,
    KINDS,
    SEQUENCES,
    Apply,
    Shape,
    Unfit,
    divisor,
    kind,
    module_of,
    nothing,
)

import lamina
from lamina import nn
from lamina.nn import functional as F

MOST_NUMBERS = 40_000  # of a block's output
FEATURES = (1, 2, 3, 5, 7, 8, 10, 16, 17, 24, 32, 33, 40)


# ---- positions, sequences, vectors -------------------------------------------------------------------------
class Attention(nn.Module):
    """Attention over positions, [n, l, f] -> [n, l, f], spelled in one of several ways."""

    def __init__(self, features: int, heads: int, how: str, causal: bool):
        super().__init__()
        self.heads, self.how, self.causal = heads, how, causal
        if how == "module":
            self.attend = nn.MultiheadAttention(features, heads, batch_first=True)
        else:
            self.qkv, self.out = nn.Linear(features, 3 * features), nn.Linear(features, features)

    def forward(self, x):
        if self.how == "module":
            return self.attend(x, x, x, need_weights=False)[0]
        n, l, f = x.shape
        q, k, v = (
            part.view(n, l, self.heads, f // self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        if self.how == "function":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            if self.causal:
                above = lamina.ones(l, l, dtype=lamina.bool).triu(1)
                scores = scores.masked_fill(above, float("-inf"))
            y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(n, l, f))


class OverPositions(nn.Module):
    """A block for sequences on the places of an image."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        n, c, *places = x.shape
        y = self.inner(x.flatten(2).transpose(1, 2))
        return y.transpose(1, 2).reshape(n, y.shape[-1], *places)


@kind(
    "attend",
    lambda rng, s: {"heads": rng.choice((1, 2, 4)), "how": rng.choice(("module", "function", "spelled")),
                    "causal": rng.random() < 0.3},
    (3, 4), 1.5,
)  # fmt: skip
def attend(shape, heads, how, causal):
    features = shape[2] if len(shape) == 3 else shape[1]
    positions = shape[1] if len(shape) == 3 else math.prod(shape[2:])
    if positions > 100:
        raise Unfit("too many positions")
    made = Attention(features, divisor(features, heads), how, causal)
    return made if len(shape) == 3 else OverPositions(made)


@kind("linear", lambda rng, s: {"out": rng.choice(FEATURES), "bias": rng.random() < 0.8}, ANY, 2.0)
def linear(shape, out, bias):
    return nn.Linear(shape[-1], out, bias=bias)


def draw_mlp(rng: Random, shape: Shape) -> dict:
    sizes = rng.sample(FEATURES, 2)
    return {"inner": sizes[0], "out": sizes[1], "act": rng.choice(("ReLU", "GELU", "Tanh", "SiLU"))}


@kind("mlp", draw_mlp, (2, 3), 2.0)
def mlp(shape, inner, out, act):
    return nn.Sequential(nn.Linear(shape[-1], inner), getattr(nn, act)(), nn.Linear(inner, out))


def draw_recurrent(rng: Random, shape: Shape) -> dict:
    return {
        "how": rng.choice(("LSTM", "GRU", "RNN")), "hidden": rng.choice((1, 3, 5, 8, 16, 17)),
        "layers": rng.choice((1, 1, 2)), "both": rng.random() < 0.3, "first": rng.random() < 0.7,
        "last": rng.random() < 0.2,
    }  # fmt: skip


class Recurrent(nn.Module):
    def __init__(
        self, how: str, features: int, hidden: int, layers: int, both: bool, first: bool, last: bool
    ):
        super().__init__()
        self.layer = getattr(nn, how)(features, hidden, layers, batch_first=first, bidirectional=both)
        self.last = last

    def forward(self, x):
        y, state = self.layer(x)
        h = state[0] if isinstance(state, tuple) else state
        return y + h[-1].sum() if self.last else y


@kind("recurrent", draw_recurrent, SEQUENCES, 1.5)
def recurrent(shape, how, hidden, layers, both, first, last):
    if shape[1 if first else 0] > 12:
        raise Unfit("too long")
    return Recurrent(how, shape[2], hidden, layers, both, first, last)


@kind("positions", nothing, IMAGES, 0.7)
def positions(shape):
    if len(shape) == 3:
        return Apply(lambda x: x.transpose(1, 2))
    return Apply(lambda x: x.flatten(2).transpose(1, 2))


@kind("flatten", lambda rng, s: {"mean": rng.random() < 0.6}, IMAGES, 0.5)
def flatten(shape, mean):
    if mean:
        return Apply(lambda x: x.mean(tuple(range(2, x.ndim))))
    return nn.Flatten()


@kind("image", lambda rng, s: {"side": rng.choice((2, 3, 4))}, (2, 3), 0.7)
def image(shape, side):
    last = shape[-1]
    if len(shape) == 3:
        height = divisor(last, side)
        return Apply(lambda x: x.unflatten(-1, (height, last // height)))
    area = divisor(last, side * side)
    height = divisor(area, side)
    return Apply(lambda x: x.view(x.shape[0], last // area, height, area // height))


@kind("mix", lambda rng, s: {"scaled": rng.random() < 0.5}, (3, 4), 0.8)
def mix(shape, scaled):
    """Products of positions with themselves."""
    if shape[-2] > 64:
        raise Unfit("too many rows")
    by = 1 / math.sqrt(shape[-1]) if scaled else 1 / shape[-1]
    return Apply(lambda x: (x @ x.transpose(-1, -2) * by).tanh() @ x)


@kind("merged", lambda rng, s: {"by": rng.choice((2, 3, 4, 8))}, (4, 5), 0.8)
def merged(shape, by):
    """Something done to parts of the channels as if they were a batch, and back."""
    g = divisor(shape[1], by)
    if g == 1:
        raise Unfit("channels don't divide")
    c = shape[1] // g
    inner = module_of("Conv", len(shape), c, c, 3, padding=1)

    class Merged(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            n, _, *places = x.shape
            return self.inner(x.reshape(n * g, c, *places)).reshape(n, g * c, *places)

    return Merged()


# ---- elementwise -------------------------------------------------------------------------------------------
ACTIVATIONS = (
    "ReLU", "ReLU", "ReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "LeakyReLU", "ELU", "Hardswish", "ReLU6",
    "Softplus", "Mish", "Hardtanh", "PReLU", "SELU", "Softsign", "LogSigmoid",
)  # fmt: skip


@kind("act", lambda rng, s: {"name": rng.choice(ACTIVATIONS)}, ANY, 3.0)
def act(shape, name):
    return getattr(nn, name)()


@kind("glu", nothing, ANY, 0.5)
def glu(shape):
    if shape[1] % 2:
        raise Unfit("odd channels")
    return nn.GLU(1)


LINKS = {
    "affine": lambda x: x * 1.25 - 0.3,
    "abs": lambda x: x.abs(),
    "square": lambda x: x.square() * 0.5,
    "root": lambda x: (x * x + 1).sqrt(),
    "clamp": lambda x: x.clamp(-0.8, 0.9),
    "exp": lambda x: x.tanh().exp(),
    "log": lambda x: (x.abs() + 0.7).log(),
    "sin": lambda x: x.sin(),
    "where": lambda x: lamina.where(x > 0.1, x, x * 0.3 - 0.1),
    "larger": lambda x: lamina.maximum(x, x * -0.5),
    "self": lambda x: x * x.sigmoid(),
    "quotient": lambda x: x / (x.abs() + 1.1),
    "erf": lambda x: x.erf(),
    "cube": lambda x: x.tanh() ** 3,
    "lerp": lambda x: lamina.lerp(x, x.cos(), 0.3),
    "rsqrt": lambda x: x * (x * x + 0.4).rsqrt(),
}


@kind("chain", lambda rng, s: {"links": rng.choices([*LINKS], k=rng.randint(1, 4))}, ANY, 2.5)
def chain(shape, links):
    functions = [LINKS[name] for name in links]

    def forward(x):
        for function in functions:
            x = function(x)
        return x

    return Apply(forward)


def draw_scale(rng: Random, shape: Shape) -> dict:
    return {"dims": sorted(rng.sample(range(1, len(shape)), rng.randint(1, len(shape) - 1))),
            "how": rng.choice(("mul", "add", "both"))}  # fmt: skip


@kind("scale", draw_scale, ANY, 1.5)
def scale(shape, dims, how):
    sizes = [n if d in dims else 1 for d, n in enumerate(shape)][1:]

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.by, self.beside = nn.Parameter(lamina.ones(sizes)), nn.Parameter(lamina.zeros(sizes))

        def forward(self, x):
            if how == "mul":
                return x * self.by
            return x + self.beside if how == "add" else x * self.by + self.beside

    return Scale()


REDUCED = {
    "centre": lambda x, dim: x - x.mean(dim, keepdim=True),
    "spread": lambda x, dim: x / (x.std(dim, keepdim=True, correction=0) + 0.1),
    "softmax": lambda x, dim: x.softmax(dim),
    "log_softmax": lambda x, dim: x.log_softmax(dim),
    "high": lambda x, dim: x - x.amax(dim, keepdim=True),
    "sum": lambda x, dim: x + 0.1 * x.sum(dim, keepdim=True),
    "running": lambda x, dim: x.cumsum(dim) * 0.2,
    "norm": lambda x, dim: F.normalize(x, dim=dim, eps=0.1),
    "logsumexp": lambda x, dim: x - x.logsumexp(dim, keepdim=True),
    "largest": lambda x, dim: x + x.max(dim, keepdim=True).values,
}


@kind(
    "reduced",
    lambda rng, s: {"how": rng.choice([*REDUCED]), "dim": rng.choice([1, 1, *range(1, len(s)), -1])},
    ANY,
    2.0,
)
def reduced(shape, how, dim):
    function, dim = REDUCED[how], min(dim, len(shape) - 1)
    if shape[dim] < 2:
        raise Unfit("one element")
    return Apply(lambda x: function(x, dim))


@kind(
    "mean", lambda rng, s: {"dims": sorted(rng.sample(range(1, len(s)), rng.randint(1, 2)))}, (3, 4, 5), 0.5
)
def mean(shape, dims):
    dims = [d for d in dims if d < len(shape)]
    return Apply(lambda x: x.mean(dims, keepdim=True))


WRITES = {
    "add": lambda y: y.add_(1.0),
    "mul": lambda y: y.mul_(0.5),
    "fill": lambda y: y.fill_(0.25),
    "relu": lambda y: y.relu_(),
}


def draw_written(rng: Random, shape: Shape) -> dict:
    return {
        "dim": rng.choice([1, 1, *range(1, len(shape))]),
        "start": rng.randint(0, 3),
        "step": rng.choice((1, 2)),
        "how": rng.choice([*WRITES]),
    }


@kind("written", draw_written, ANY, 1.0)
def written(shape, dim, start, step, how):
    """Some rows of a copy changed in place."""
    dim = min(dim, len(shape) - 1)
    index = (slice(None),) * dim + (slice(start % shape[dim], None, step),)
    write = WRITES[how]

    def forward(x):
        y = x.clone()
        write(y[index])
        return y

    return Apply(forward)


# ---- blocks that hold others -------------------------------------------------------------------------------
CONVOLUTIONS = ("conv", "depthwise", "conv_transpose")
MOVES = (
    "shuffle",
    "slice",
    "rotate",
    "chunk",
    "take",
    "permuted",
    "transpose",
    "pad",
    "pixel_shuffle",
    "parted",
)
# What is drawn more often after some kinds: a layout is put to the test between two convolutions.
FOLLOWING = ((CONVOLUTIONS, (*MOVES, "norm")), (MOVES, CONVOLUTIONS))


def draw_blocks(rng: Random, shape: Shape, count: int, depth: int) -> tuple[list, Shape]:
    """Some blocks in a row for a shape, and the shape of what they give."""
    blocks: list = []
    tries = 0
    while len(blocks) < count and tries < 6 * count:
        tries += 1
        names = [n for n, k in KINDS.items() if len(shape) in k.ranks and (depth > 0 or n not in HOLDING)]
        likely = next((kinds for before, kinds in FOLLOWING if blocks and blocks[-1][0] in before), ())
        weights = [KINDS[n].weight * (6 if n in likely else 1) for n in names]
        name = rng.choices(names, weights)[0]
        seed = rng.randrange(1 << 30)
        try:
            params = KINDS[name].draw(Random(seed), shape)
            block = [name, params]
            after = shape_after([block], shape)
        except (Unfit, lamina.LaminaError, ValueError, ZeroDivisionError):
            continue
        if math.prod(after) > MOST_NUMBERS or 0 in after or len(after) < 2:
            continue
        blocks.append(block)
        shape = after
    return blocks, shape


def shape_after(blocks: list, shape: Shape) -> Shape:
    return made(blocks, shape)[1]


def made(blocks: list, shape: Shape) -> tuple[nn.Module, Shape]:
    """The module of blocks in a row, and the shape that it gives; raises Unfit, or one of Lamina's errors."""
    layers = []
    for name, params in blocks:
        if len(shape) not in KINDS[name].ranks:
            raise Unfit(f"{name} takes no {len(shape)} dimensions")
        layer = KINDS[name].make(shape, **params)
        with lamina.no_grad():
            shape = tuple(layer(lamina.full(shape, 0.5)).shape)
        if 0 in shape:
            raise Unfit("nothing is left")
        layers.append(layer)
    return nn.Sequential(*layers), shape


def cropped(x, shape: Shape):
    """The first elements along each dimension."""
    return x[tuple(slice(0, n) for n in shape)]


class Joined(nn.Module):
    """Branches from one input, whose results meet.  Those that are added are cropped to the smallest."""

    def __init__(self, branches: list[nn.Module], shapes: list[Shape], how: str):
        super().__init__()
        self.branches, self.how = nn.ModuleList(branches), how
        if len({len(shape) for shape in shapes}) > 1:
            raise Unfit("branches of several ranks")
        least = [min(sizes) for sizes in zip(*shapes)]
        if how == "cat":
            self.shapes = [(n, c, *least[2:]) for n, c, *_ in shapes]
        else:
            self.shapes = [tuple(least) for _ in shapes]

    def forward(self, x):
        results = []
        for branch in self.branches:
            y, shape = branch(x), self.shapes[len(results)]
            results.append(y if tuple(y.shape) == shape else cropped(y, shape))
        if self.how == "cat":
            return lamina.cat(results, 1)
        if self.how == "stack":
            return lamina.stack(results, 1).mean(1)
        total = results[0]
        for y in results[1:]:
            total = total + y if self.how == "add" else total * y.sigmoid()
        return total


def draw_branches(rng: Random, shape: Shape) -> dict:
    bodies = [draw_blocks(rng, shape, rng.randint(1, 2), 0)[0] for _ in range(rng.choice((2, 2, 2, 3)))]
    if rng.random() < 0.3:
        bodies[-1] = []
    return {"bodies": bodies, "how": rng.choice(("cat", "cat", "add", "mul", "stack"))}


@kind("branches", draw_branches, ANY, 3.0)
def branches(shape, bodies, how):
    parts = [made(body, shape) for body in bodies]
    return Joined([module for module, _ in parts], [after for _, after in parts], how)


def draw_residual(rng: Random, shape: Shape) -> dict:
    body = draw_blocks(rng, shape, rng.randint(1, 3), 0)[0]
    return {"bodies": [body, []], "how": "add"}


@kind("residual", draw_residual, ANY, 3.0)
def residual(shape, bodies, how):
    return branches(shape, bodies, how)


class Parted(nn.Module):
    """Each part of the channels through its own blocks, as ShuffleNet has it, and joined."""

    def __init__(self, sizes: list[int], parts: list[nn.Module], shapes: list[Shape]):
        super().__init__()
        self.sizes, self.parts = sizes, nn.ModuleList(parts)
        if len({len(shape) for shape in shapes}) > 1:
            raise Unfit("parts of several ranks")
        least = [min(sizes) for sizes in zip(*shapes)]
        self.shapes = [(n, c, *least[2:]) for n, c, *_ in shapes]

    def forward(self, x):
        parts = x.split(self.sizes, 1)
        results: list = []
        for layer in self.parts:
            n = len(results)
            results.append(cropped(layer(parts[n]), self.shapes[n]))
        return lamina.cat(results, 1)


def halves(c: int, first: int) -> list[int]:
    first = min(max(1, first), c - 1)
    return [first, c - first]


def draw_parted(rng: Random, shape: Shape) -> dict:
    if shape[1] < 2:
        raise Unfit("one channel")
    first = rng.choice((shape[1] // 2, shape[1] // 2, 1, 8, 16))
    sizes = halves(shape[1], first)
    return {
        "first": first,
        "bodies": [draw_blocks(rng, (shape[0], c, *shape[2:]), rng.randint(0, 2), 0)[0] for c in sizes],
    }


@kind("parted", draw_parted, ANY, 2.0)
def parted(shape, first, bodies):
    if shape[1] < 2:
        raise Unfit("one channel")
    sizes = halves(shape[1], first)
    parts = [made(body, (shape[0], c, *shape[2:])) for c, body in zip(sizes, bodies)]
    return Parted(sizes, [module for module, _ in parts], [after for _, after in parts])


@kind("twice", lambda rng, s: {"bodies": [draw_blocks(rng, s, 2, 0)[0]]}, ANY, 1.0)
def twice(shape, bodies):
    """The same blocks, and weights, applied twice."""
    module, after = made(bodies[0], shape)
    if len(after) != len(shape):
        raise Unfit("another rank")
    padding = [p for a, b in zip(shape[::-1], after[::-1]) for p in (0, a - b)]

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, x):
            y = self.module(x)
            return self.module(F.pad(y, padding) if any(padding) else y)

    return Twice()


@kind("wide", nothing, ANY, 0.5)
def wide(shape):
    """Something in float64, whatever is around it."""
    return Apply(lambda x: x + (x.double() * 1.5).tanh().to(x.dtype))


HOLDING = ("branches", "residual", "parted", "twice")


# ---- beginnings --------------------------------------------------------------------------------------------
class Tokens(nn.Module):
    """Rows of a table for whole numbers, [n, l] -> [n, l, f], and a table of positions beside."""

    def __init__(self, vocabulary: int, length: int, features: int):
        super().__init__()
        self.table, self.places = nn.Embedding(vocabulary, features), nn.Embedding(length, features)

    def forward(self, x):
        return self.table(x) + self.places(lamina.arange(x.shape[1]))
