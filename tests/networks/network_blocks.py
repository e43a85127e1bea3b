"""The blocks of random networks: what each is drawn from, and the module that is made of it.

A block is a pair (kind, params) that JSON can hold.  `KINDS[kind]` draws params for a shape, and makes the
module of them: for that shape, or for another one when the blocks before it are gone; sizes that must divide
or fit are brought to the nearest that do.  What can't be made raises Unfit or an error of Lamina's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import lamina
from lamina import nn
from lamina.nn import functional as F

Shape = tuple[int, ...]

CHANNELS = (1, 2, 3, 3, 4, 5, 7, 8, 8, 12, 15, 16, 16, 16, 17, 20, 24, 24, 30, 32, 32, 32, 33, 40, 48, 64)


class Unfit(Exception):
    """A block has no meaning for this shape."""


@dataclass(frozen=True)
class Kind:
    """ranks: of the inputs that it takes.  weight: how often it is drawn, beside others."""

    draw: Callable[[Random, Shape], dict]
    make: Callable[..., nn.Module]
    ranks: tuple[int, ...]
    weight: float


KINDS: dict[str, Kind] = {}
IMAGES, SEQUENCES, ANY = (3, 4, 5), (3,), (2, 3, 4, 5)


def kind(name: str, draw: Callable[[Random, Shape], dict], ranks: tuple[int, ...], weight: float = 1.0):
    """Enter the decorated maker."""

    def enter(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
        KINDS[name] = Kind(draw, make, ranks, weight)
        return make

    return enter


class Apply(nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def nothing(rng: Random, shape: Shape) -> dict:
    return {}


def module_of(name: str, rank: int, *args, **options) -> nn.Module:
    """nn.Conv2d for ("Conv", 4), and so on."""
    return getattr(nn, f"{name}{rank - 2}d")(*args, **options)


def divisor(n: int, wanted: int) -> int:
    """The largest divisor of n that is at most `wanted`."""
    return next(d for d in range(max(1, min(n, wanted)), 0, -1) if n % d == 0)


# ---- convolutions ------------------------------------------------------------------------------------------
def window(rng: Random, shape: Shape) -> dict:
    """How a window moves: in most cases a 3x3 one or a 1x1 one, elsewhere anything that fits."""
    least = min(shape[2:])
    kernel = rng.choice((1, 1, 1, 3, 3, 3, 3, 3, 2, 2, 4, 5, 5, 7))
    dilation = rng.choice((1, 1, 1, 1, 2, 3)) if kernel > 1 else 1
    reach = dilation * (kernel - 1)
    padding = rng.choice((reach // 2, reach // 2, 0, rng.randint(0, reach), reach + rng.randint(0, 1)))
    if least + 2 * padding <= reach:
        padding = (reach - least) // 2 + 1
    return {
        "kernel": kernel,
        "stride": rng.choice((1, 1, 1, 2, 2, 3)),
        "padding": padding,
        "dilation": dilation,
    }


def draw_conv(rng: Random, shape: Shape) -> dict:
    params = {"out": rng.choice(CHANNELS), **window(rng, shape), "bias": rng.random() < 0.7}
    if rng.random() < 0.35:
        params["groups"] = rng.choice((2, 3, 4, 8, 16))
    if rng.random() < 0.1:
        params["mode"] = rng.choice(("reflect", "replicate", "circular"))
    if rng.random() < 0.1 and len(shape) == 4:
        params["kernel"] = [rng.choice((1, 3, 2)), rng.choice((1, 3, 5))]
        params["padding"] = [rng.choice((0, 1)), rng.choice((0, 1, 2))]
    return params


@kind("conv", draw_conv, IMAGES, 7.0)
def conv(shape, out, kernel, stride=1, padding=0, dilation=1, bias=True, groups=1, mode="zeros"):
    groups = math.gcd(groups, shape[1])
    out = -(-out // groups) * groups
    return module_of(
        "Conv", len(shape), shape[1], out, kernel, stride=stride, padding=padding, dilation=dilation,
        groups=groups, bias=bias, padding_mode=mode,
    )  # fmt: skip


@kind("depthwise", lambda rng, s: {**window(rng, s), "times": rng.choice((1, 1, 1, 2))}, IMAGES, 2.0)
def depthwise(shape, kernel, stride, padding, dilation, times):
    c = shape[1]
    return module_of(
        "Conv", len(shape), c, c * times, kernel, stride=stride, padding=padding, dilation=dilation, groups=c
    )


def draw_transposed(rng: Random, shape: Shape) -> dict:
    stride = rng.choice((1, 2, 2, 3))
    kernel = rng.choice((1, 2, 3, 3, 4))
    return {
        "out": rng.choice(CHANNELS), "kernel": kernel, "stride": stride,
        "padding": rng.randint(0, kernel - 1), "more": rng.randint(0, stride - 1),
        "groups": rng.choice((1, 1, 1, 2, 4)), "bias": rng.random() < 0.5,
    }  # fmt: skip


@kind("conv_transpose", draw_transposed, IMAGES, 1.2)
def conv_transpose(shape, out, kernel, stride, padding, more, groups, bias):
    groups = math.gcd(groups, shape[1])
    out = -(-out // groups) * groups
    return module_of(
        "ConvTranspose", len(shape), shape[1], out, kernel, stride=stride, padding=padding,
        output_padding=more, groups=groups, bias=bias,
    )  # fmt: skip


# ---- moving channels and places ----------------------------------------------------------------------------
def draw_shuffle(rng: Random, shape: Shape) -> dict:
    return {"groups": rng.choice((2, 2, 3, 4, 8)), "how": rng.choice(("view", "module", "flatten", "stack"))}


@kind("shuffle", draw_shuffle, IMAGES, 3.0)
def shuffle(shape, groups, how):
    g = divisor(shape[1], groups)
    if g == 1 or g == shape[1]:
        raise Unfit("nothing to shuffle")
    if how == "module":
        return nn.ChannelShuffle(g)
    if how == "flatten":
        return Apply(lambda x: x.unflatten(1, (g, -1)).transpose(1, 2).flatten(1, 2))
    if how == "stack":
        return Apply(lambda x: lamina.stack(x.chunk(g, 1), 2).flatten(1, 2))

    def forward(x):
        n, c, *places = x.shape
        return x.view(n, g, c // g, *places).transpose(1, 2).reshape(n, c, *places)

    return Apply(forward)


def draw_slices(rng: Random, shape: Shape) -> dict:
    dim = rng.choice([1, 1, *range(1, len(shape))])
    n = shape[dim]
    start = rng.randint(0, n // 2)
    return {"dim": dim, "start": start, "stop": rng.randint(start + 1, n), "step": rng.choice((1, 1, 1, 2))}


@kind("slice", draw_slices, ANY, 1.5)
def slice_(shape, dim, start, stop, step):
    dim = min(dim, len(shape) - 1)
    start = min(start, shape[dim] - 1)
    stop = max(start + 1, min(stop, shape[dim]))
    index = (slice(None),) * dim + (slice(start, stop, step),)
    return Apply(lambda x: x[index])


@kind(
    "rotate",
    lambda rng, s: {"dim": rng.choice([1, 1, *range(1, len(s))]), "by": rng.choice((1, 2, 3, 8, 16)),
                    "how": rng.choice(("cat", "roll", "split"))},
    ANY, 1.5,
)  # fmt: skip
def rotate(shape, dim, by, how):
    dim = min(dim, len(shape) - 1)
    by %= shape[dim]
    if by == 0:
        raise Unfit("a whole turn")
    if how == "roll":
        return Apply(lambda x: x.roll(by, dim))
    if how == "split":
        sizes = [by, shape[dim] - by]

        def halves(x):
            a, b = x.split(sizes, dim)
            return lamina.cat([b, a], dim)

        return Apply(halves)
    return Apply(lambda x: lamina.cat([x.narrow(dim, by, x.shape[dim] - by), x.narrow(dim, 0, by)], dim))


@kind("chunk", lambda rng, s: {"count": rng.choice((2, 2, 3, 4)), "order": rng.randint(1, 3)}, ANY, 1.5)
def chunk(shape, count, order):
    if shape[1] < 2:
        raise Unfit("one channel")

    def forward(x):
        parts = x.chunk(count, 1)
        turned = [parts[(i * order + 1) % len(parts)] for i in range(len(parts))]
        return lamina.cat([*turned, parts[0]], 1)

    return Apply(forward)


@kind("take", lambda rng, s: {"seed": rng.randint(0, 999), "how": rng.choice(("index", "select"))}, ANY, 0.8)
def take(shape, seed, how):
    places = list(range(shape[1]))
    Random(seed).shuffle(places)

    class Take(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("places", lamina.tensor(places[: max(1, len(places) - seed % 2)]))

        def forward(self, x):
            return x[:, self.places] if how == "index" else x.index_select(1, self.places)

    return Take()


def draw_permuted(rng: Random, shape: Shape) -> dict:
    return {"seed": rng.randint(0, 999), "inside": rng.choice(("gelu", "linear", "softmax", "norm", "none"))}


@kind("permuted", draw_permuted, IMAGES, 1.2)
def permuted(shape, seed, inside):
    """Something done in another order of dimensions, and back."""
    dims = list(range(1, len(shape)))
    Random(seed).shuffle(dims)
    dims = [0, *dims]
    back = [dims.index(d) for d in range(len(dims))]
    last = shape[dims[-1]]
    layer = {
        "gelu": nn.GELU, "linear": lambda: nn.Linear(last, last), "softmax": lambda: nn.Softmax(-1),
        "norm": lambda: nn.LayerNorm(last), "none": nn.Identity,
    }[inside]()  # fmt: skip

    class Permuted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x.permute(dims)).permute(back)

    return Permuted()


@kind("transpose", lambda rng, s: {"dims": rng.sample(range(1, len(s)), 2)}, IMAGES, 0.8)
def transpose(shape, dims):
    if max(dims) >= len(shape):
        raise Unfit("a dimension is missing")
    return Apply(lambda x: x.transpose(*dims))


@kind("flip", lambda rng, s: {"dims": rng.sample(range(len(s)), rng.randint(1, 2))}, ANY, 0.8)
def flip(shape, dims):
    dims = [d for d in dims if d < len(shape)] or [0]
    return Apply(lambda x: x.flip(dims))


def draw_pad(rng: Random, shape: Shape) -> dict:
    mode = rng.choice(("constant", "constant", "reflect", "replicate", "circular"))
    sides = [rng.randint(0, 2) for _ in range(2 * (len(shape) - 2))]
    if mode == "constant":
        sides = [rng.randint(-1, 2) for _ in sides] + ([0, rng.choice((1, 8))] if rng.random() < 0.3 else [])
    return {"sides": sides, "mode": mode, "value": rng.choice((0.0, 0.0, 1.5))}


@kind("pad", draw_pad, IMAGES, 1.0)
def pad(shape, sides, mode, value):
    return Apply(lambda x: F.pad(x, sides, mode, value if mode == "constant" else None))


# ---- pooling, resizing -------------------------------------------------------------------------------------
def draw_pool(rng: Random, shape: Shape) -> dict:
    kernel = rng.choice((2, 2, 3, 3, 4))
    return {
        "how": rng.choice(("Max", "Max", "Avg", "Avg", "LP")), "kernel": kernel,
        "stride": rng.choice((1, 2, 2, 3)), "padding": rng.randint(0, kernel // 2),
        "ceil": rng.random() < 0.3, "counted": rng.random() < 0.5,
    }  # fmt: skip


@kind("pool", draw_pool, IMAGES, 2.0)
def pool(shape, how, kernel, stride, padding, ceil, counted):
    kernel = min(kernel, *shape[2:])
    padding = min(padding, kernel // 2)
    if how == "LP":
        layer = module_of("LPPool", len(shape), 2, kernel, stride, ceil)
        return nn.Sequential(Apply(lambda x: x * x + 0.5), layer)  # a root, away from where it has no slope
    options = {"count_include_pad": counted} if how == "Avg" else {}
    return module_of(f"{how}Pool", len(shape), kernel, stride, padding, ceil_mode=ceil, **options)


def draw_adaptive(rng: Random, shape: Shape) -> dict:
    return {
        "how": rng.choice(("Avg", "Avg", "Max")),
        "sizes": [rng.choice((1, 2, 3, 4, 5)) for _ in shape[2:]],
    }


@kind("adaptive_pool", draw_adaptive, IMAGES, 1.0)
def adaptive_pool(shape, how, sizes):
    sizes = (sizes * 3)[: len(shape) - 2]
    return module_of(f"Adaptive{how}Pool", len(shape), sizes[0] if len(sizes) == 1 else tuple(sizes))


def draw_upsample(rng: Random, shape: Shape) -> dict:
    if rng.random() < 0.6:
        return {"mode": "nearest", "scale": rng.choice((2, 2, 3)), "corners": None}
    mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[len(shape)]
    return {"mode": mode, "scale": rng.choice((2, 1.5)), "corners": rng.random() < 0.5}


@kind("upsample", draw_upsample, IMAGES, 1.0)
def upsample(shape, mode, scale, corners):
    if mode != "nearest":
        mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[len(shape)]
    return nn.Upsample(scale_factor=scale, mode=mode, align_corners=corners)


@kind("pixel_shuffle", lambda rng, s: {"down": rng.random() < 0.5}, (4,), 0.8)
def pixel_shuffle(shape, down):
    if down and shape[2] % 2 == 0 and shape[3] % 2 == 0:
        return nn.PixelUnshuffle(2)
    if shape[1] % 4:
        raise Unfit("channels are no multiple of 4")
    return nn.PixelShuffle(2)


# ---- normalisation, attention to channels ------------------------------------------------------------------
def draw_norm(rng: Random, shape: Shape) -> dict:
    how = rng.choice(("batch", "batch", "batch", "group", "instance", "layer", "rms", "response"))
    return {"how": how, "groups": rng.choice((1, 2, 4, 8)), "affine": rng.random() < 0.8}


@kind("norm", draw_norm, ANY, 3.0)
def norm(shape, how, groups, affine):
    rank, c = len(shape), shape[1]
    eps = 1e-2  # small variances would magnify roundings
    if how == "batch":
        if math.prod(shape) // c < 4:
            raise Unfit("too few numbers for a variance")
        return getattr(nn, f"BatchNorm{max(1, rank - 2)}d")(c, eps=eps, affine=affine)
    if how == "group":
        g = divisor(c, groups)
        if math.prod(shape[1:]) // g < 4:
            raise Unfit("too few numbers for a variance")
        return nn.GroupNorm(g, c, eps=eps, affine=affine)
    if how == "instance" and rank > 2 and math.prod(shape[2:]) >= 4:
        return module_of("InstanceNorm", rank, c, eps=eps, affine=affine)
    if how == "response" and rank > 2:
        return nn.LocalResponseNorm(3, alpha=0.1)
    inner = shape[1:] if groups == 1 else shape[-1:]
    if math.prod(inner) < 4:
        raise Unfit("too few numbers for a variance")
    options = {"eps": eps, "elementwise_affine": affine}
    return (nn.RMSNorm if how == "rms" else nn.LayerNorm)(list(inner), **options)


class Excite(nn.Module):
    """Squeeze and excite: channels scaled by what their means say."""

    def __init__(self, channels: int, inner: int, gate: str, linear: bool):
        super().__init__()
        self.down = nn.Linear(channels, inner) if linear else nn.Conv2d(channels, inner, 1)
        self.up = nn.Linear(inner, channels) if linear else nn.Conv2d(inner, channels, 1)
        self.gate, self.linear = getattr(F, gate), linear

    def forward(self, x):
        if self.linear:
            s = x.flatten(2).mean(2)
            s = self.gate(self.up(F.relu(self.down(s))))
            return x * s.reshape(*s.shape, *(1 for _ in x.shape[2:]))
        s = F.adaptive_avg_pool2d(x, 1)
        return x * self.gate(self.up(F.silu(self.down(s))))


@kind(
    "excite",
    lambda rng, s: {"inner": rng.choice((1, 2, 4, 8, 16)), "gate": rng.choice(("sigmoid", "hardsigmoid")),
                    "linear": rng.random() < 0.5},
    IMAGES, 1.5,
)  # fmt: skip
def excite(shape, inner, gate, linear):
    return Excite(shape[1], inner, gate, linear or len(shape) != 4)
