"""Random networks as values: drawn from a seed, written as JSON, and made into modules.

    {"seed": 7, "input": [2, 16, 8, 8], "tokens": 0, "blocks": [["conv", {"out": 32, ...}], ...],
     "mode": "backward", "dtype": "float32", "level": "avx2", ...}

The same value is always the same network with the same numbers.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
from network_blocks import KINDS, Shape, Unfit
from network_layers import MOST_NUMBERS, Tokens, draw_blocks, made, shape_after

import lamina
from lamina import nn

Description = dict[str, Any]
Noise = tuple[int, float] | None

MODES = ("inference", "backward", "training")
DTYPES = ("float32", "float32", "float32", "float64")
LEVELS = ("avx512", "avx2", "baseline")
BATCHES = (1, 1, 1, 2, 2, 3, 4, 5, 8, 16, 32, 33)
CHANNELS = (1, 2, 3, 4, 7, 8, 8, 16, 16, 16, 24, 32, 32, 32, 48, 64)
SIDES = (1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 11, 13, 16)
OPTIMIZERS = (
    ("SGD", {"lr": 0.05}), ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    # eps is large where a step divides by the size of gradients, lest it magnifies roundings of small ones
    ("Adam", {"lr": 0.02, "eps": 0.3}), ("AdamW", {"lr": 0.02, "eps": 0.3}),
    ("Adam", {"lr": 0.02, "eps": 0.3, "amsgrad": True}), ("RMSprop", {"lr": 0.02, "eps": 0.3}),
    ("Adagrad", {"lr": 0.02, "eps": 0.3}), ("Adamax", {"lr": 0.02, "eps": 0.3}), ("Adadelta", {"eps": 0.3}),
)  # fmt: skip
MOST_INPUTS = 12_000  # numbers


def draw(seed: int) -> Description:
    """The network of a seed."""
    rng = Random(seed)
    while True:
        shape, tokens = draw_input(rng)
        start = (*shape, rng.choice((4, 8, 16))) if tokens else shape
        blocks, _ = draw_blocks(rng, start, rng.choice((2, 3, 3, 4, 4, 5, 6)), 1)
        if blocks:
            break
    mode = rng.choice(MODES)
    return {
        "seed": seed,
        "input": list(shape),
        "tokens": [rng.randint(3, 11), start[-1]] if tokens else None,
        "blocks": blocks,
        "mode": mode,
        "dtype": rng.choice(DTYPES),
        "level": rng.choice(LEVELS),
        "train": rng.random() < (0.15 if mode == "inference" else 0.8),
        "loss": rng.choice(("mean", "target", "product", "classes")),
        "optimizer": rng.choice(OPTIMIZERS),
        "warm": rng.random() < 0.7,
        "frozen": rng.random() < 0.2,
        "touched": rng.random() < 0.3,
        "order": rng.choice(("dense", "dense", "dense", "last", "strided")),
        "threads": rng.choice((1, 1, 1, 2)),
        "optimisation": rng.choice((0, 0, 2)),
    }


def draw_input(rng: Random) -> tuple[Shape, bool]:
    batch = rng.choice(BATCHES)
    rank = rng.choices((4, 3, 2, 5, 0), (70, 12, 8, 5, 5))[0]
    while True:
        if rank == 0:
            return (min(batch, 8), rng.randint(2, 9)), True
        sides = [rng.choice(SIDES)]
        sides += [rng.choice((sides[0], rng.choice(SIDES))) for _ in range(rank - 3)]
        shape = (batch, rng.choice(CHANNELS), *(sides if rank > 2 else ()))
        if math.prod(shape) <= MOST_INPUTS:
            return shape, False


def combinations(description: Description) -> list[Description]:
    """The network in every mode and dtype, at every level."""
    return [
        description | {"mode": mode, "dtype": dtype, "level": level, "train": mode != "inference"}
        for mode in MODES
        for dtype in ("float32", "float64")
        for level in LEVELS
    ]


def build(description: Description, dtype: str, noise: Noise = None) -> tuple[nn.Module, Shape]:
    """The module in a dtype, and the shape of what it gives; its numbers are float32's, whatever the dtype.

    noise: (seed, size) moves each by up to so much of itself.
    """
    shape = tuple(description["input"])
    layers = []
    if description["tokens"]:
        vocabulary, features = description["tokens"]
        layers = [Tokens(vocabulary, shape[1], features)]
        shape = (*shape, features)
    body, shape = made(description["blocks"], shape)
    model = nn.Sequential(*layers, *body)
    model.to(getattr(lamina, dtype))
    rng = np.random.default_rng([description["seed"], 1])
    moved = np.random.default_rng(noise[0]) if noise else None
    named = [*model.named_parameters(), *model.named_buffers()]
    with lamina.no_grad():
        for name, x in named:
            if x.is_floating_point():
                numbers = perturbed(initial(rng, name, tuple(x.shape)), moved, noise)
                x.copy_(lamina.from_numpy(numbers).to(x.dtype))
    if description["frozen"]:
        for n, p in enumerate(model.parameters()):
            p.requires_grad_(n % 2 == 1)
    return model.train(description["train"]), shape


def initial(rng: np.random.Generator, name: str, shape: Shape) -> np.ndarray:
    """Numbers for a parameter or a buffer: of such a size that values keep theirs from layer to layer."""
    if name.endswith("running_var"):
        return rng.uniform(0.5, 2.0, shape).astype(np.float32)
    if len(shape) < 2:
        return (rng.uniform(-1.0, 1.0, shape) + name.endswith("weight")).astype(np.float32)
    fan = math.prod(shape[1:])
    return (rng.uniform(-1.7, 1.7, shape) / math.sqrt(fan)).astype(np.float32)


def perturbed(x: np.ndarray, rng: np.random.Generator | None, noise: Noise) -> np.ndarray:
    if rng is None or noise is None:
        return x
    return x.astype(np.float64) * (1 + noise[1] * rng.uniform(-1, 1, x.shape))


def sizes_for(seed: int) -> list[int]:
    """The batch of each call, where that changes; of one alone norms in training take no statistics."""
    rng = Random(-seed - 1)
    return [rng.choice((2, 2, 3, 3, 4, 5, 6, 7, 8, 9)) for _ in range(6)]


def stack_for(seed: int) -> Description:
    """What makes a network convolutions in a row, on images large enough for blocks of channels: windows of 1
    to 7 taps, strides, stems, channels that fill no vector; half by Winograd wherever they can.  A third are
    of batches that fill vectors, in training, with windows of 4 x 4 at every second place and transposed."""
    rng = Random(f"stack {seed}")
    sides = [rng.choice((6, 7, 9, 12, 14, 17, 20, 28, 33)) for _ in range(2)]
    is_batch = rng.random() < 1 / 3
    batch = rng.choice((4, 8, 8, 12, 16, 24, 32, 64) if is_batch else (1, 1, 1, 2, 3, 8))
    sides = [min(side, 17) for side in sides] if is_batch else sides
    first: Shape = (batch, rng.choice((1, 3, 3, 4, 16, 20, 24, 32, 48, 64)), *sides)
    shape, blocks = first, list[Any]()
    for _ in range(rng.randint(1, 4)):
        taps, bias = rng.choice((1, 2, 3, 3, 4, 5, 6, 7)), rng.random() < 0.7
        kind, stride = "conv", rng.choice((1, 1, 1, 1, 2, 2, 3, 4))
        if is_batch and rng.random() < 0.7:
            taps, stride = rng.choice(((3, 1), (3, 1), (4, 2)))
            kind = rng.choice(("conv", "conv_transpose")) if stride == 2 else "conv"
        params = {
            "out": rng.choice((1, 3, 8, 9, 16, 17, 20, 24, 32, 40, 48, 64, 72)), "kernel": taps, "bias": bias,
            "stride": stride,
            "padding": rng.choice((0, (taps - 1) // 2, taps // 2, taps - 1)),
        }  # fmt: skip
        if kind == "conv_transpose":
            params |= {"more": rng.choice((0, 0, 1)), "groups": 1}
        behind = rng.choice((None, "act", "norm"))
        try:
            after = shape_after([[kind, params]], shape)
            more = [] if behind is None else [[behind, KINDS[behind].draw(rng, after)]]
            if math.prod(after) <= MOST_NUMBERS and shape_after(more, after) == after:
                blocks, shape = [*blocks, [kind, params], *more], after
        except (Unfit, lamina.LaminaError, ValueError):
            continue
    return {
        "input": [*first], "tokens": None, "dtype": "float32", "winograd": rng.random() < 0.5,
        "blocks": blocks or [["conv", {"out": 24, "kernel": 5, "padding": 2}]],
        "mode": rng.choice(("backward", "training") if is_batch else ("inference", "inference", "backward")),
    }  # fmt: skip


def shape_of(description: Description, call: int) -> Shape:
    """The shape of a call's input."""
    shape, sizes = tuple(description["input"]), description.get("sizes")
    return (sizes[call % len(sizes)], *shape[1:]) if sizes else shape


def argument(description: Description, call: int, dtype: str, noise: Noise = None):
    """The input of a call: a new tensor."""
    rng = np.random.default_rng([description["seed"], 2, call])
    shape = shape_of(description, call)
    if description["tokens"]:
        return lamina.from_numpy(rng.integers(0, description["tokens"][0], shape))
    moved = np.random.default_rng([noise[0], call]) if noise else None
    numbers = perturbed(rng.standard_normal(shape).astype(np.float32), moved, noise)
    order = description["order"]
    if order == "last" and len(shape) > 2:
        dense = np.ascontiguousarray(np.moveaxis(numbers, 1, -1))
        return lamina.from_numpy(dense).to(getattr(lamina, dtype)).movedim(-1, 1)
    if order == "strided":
        wide = np.zeros((*shape[:-1], 2 * shape[-1]), numbers.dtype)
        wide[..., ::2] = numbers
        return lamina.from_numpy(wide).to(getattr(lamina, dtype))[..., ::2]
    return lamina.from_numpy(numbers).to(getattr(lamina, dtype))


def random_like(description: Description, shape: Shape, dtype: str):
    """Fixed numbers of a shape: what outputs are multiplied with, or trained towards."""
    rng = np.random.default_rng([description["seed"], 3])
    return lamina.from_numpy(rng.standard_normal(shape).astype(np.float32)).to(getattr(lamina, dtype))
