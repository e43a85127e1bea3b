"""Updates that look at a parameter as a whole: Adafactor, Muon (see update.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..dtypes import bfloat16, float32, from_numpy_dtype
from ..errors import ArgumentValueError, ShapeError
from ..sample import Operand, Sample
from .cast import cast
from .extremes import maximum
from .matmul import matmul
from .powers import sqrt
from .reduce import mean, sum
from .update import moved, update
from .update_means import decayed, lesser
from .view import transpose


def norm(x: Any) -> Any:
    """The root of the sum of the squares."""
    return sqrt(sum(x * x))


# ---- Adafactor
def adafactor_states(shape, *, factored, **_):
    """The shapes of the means of rows and columns, or of all elements."""
    if factored and len(shape) < 2:
        raise ShapeError(f"adafactor_update(factored=True): takes matrices, not {list(shape)}")
    return ((*shape[:-1], 1), (*shape[:-2], 1, shape[-1])) if factored else (shape,)


def adafactor(step, lr, beta2_decay, eps1, eps2, d, weight_decay, *, factored, maximize):
    keep = 1 - step**beta2_decay
    rate = lesser(lr, 1 / step**0.5)

    def one(g, p, *spread):
        g = -g if maximize else g
        root = math.prod(p.shape) ** 0.5 or 1.0
        size = maximum(norm(p) / root, eps2) * rate
        p = decayed(p, lr, weight_decay, True)
        squared = g * g
        if factored:
            row = moved(spread[0], mean(squared, dim=-1, keepdim=True), keep)
            col = moved(spread[1], mean(squared, dim=-2, keepdim=True), keep)
            variance = matmul(row, col) / maximum(mean(row, dim=-2, keepdim=True), eps1)
            spread = (row, col)
        else:
            spread = (variance := moved(spread[0], squared, keep),)
        change = g / sqrt(maximum(variance, eps1 * eps1))
        return p - change * (size / maximum(norm(change) / (root * d), 1.0)), *spread

    return one


def adafactor_samples() -> Iterator[Sample]:
    given = {"step": 2, "lr": 0.25, "eps1": 1e-3, "maximize": False}
    every: tuple[tuple[int, ...], ...] = ((), (1,), (0,), (17,), (33,), (3, 4), (2, 5, 3))
    for shape in every:
        factored = len(shape) > 1
        shapes = [shape, shape, *adafactor_states(shape, factored=factored)]
        lists = tuple((Operand(s, 0.6, 0.75),) for s in shapes)
        yield Sample(
            lists, given | {"factored": factored, "weight_decay": 0.5 * factored}, differentiable=False
        )


adafactor_update = update(
    "adafactor_update",
    adafactor,
    numbers={"step": None, "lr": None, "beta2_decay": -0.8, "eps1": None, "eps2": 1e-3, "d": 1.0,
             "weight_decay": 0},
    flags={"factored": False, "maximize": False},
    states=("row_vars", "col_vars"),
    whole=True,
    spread=adafactor_states,
    held=lambda factored, **_: ("row_vars", "col_vars") if factored else ("variances",),
    samples=adafactor_samples,
    doc="""Take a step of Adafactor.

    adafactor_update(params, grads, row_vars, col_vars, *, step, lr, beta2_decay=-0.8, eps1, eps2=1e-3, d=1,
    weight_decay=0, factored=True, maximize=False), or with variances in place of both where `factored` is
    False.  Shapes: [..., n, m] has row_vars [..., n, 1] and col_vars [..., 1, m]; states start as zeros.

        a = max(eps2, rms(p)) * min(lr, 1 / sqrt(step)),  b = 1 - step ** beta2_decay
        r <- b * r + (1 - b) * mean(g ** 2, -1),  c <- b * c + (1 - b) * mean(g ** 2, -2)
        u = g / sqrt(max(r @ c / max(mean(r, -2), eps1), eps1 ** 2))
        p <- p * (1 - lr * weight_decay) - a * u / max(1, rms(u) / d)
    Source: Shazeer and Stern, Adafactor: adaptive learning rates with sublinear memory cost, 2018.
    """,
)  # fmt: skip


# ---- Muon
def half(x: Any) -> Any:
    """Rounded to bfloat16, which float32 holds: products of such are summed in float32."""
    return cast(cast(x, dtype=bfloat16), dtype=float32)


def as_type_of(x: Any, p: Any) -> Any:
    """In the dtype of `p`."""
    return cast(x, dtype=from_numpy_dtype(p.dtype) if isinstance(p.dtype, np.dtype) else p.dtype)


def orthogonal(x: Any, a: Any, b: Any, c: Any, eps: Any, steps: int) -> Any:
    """Near the nearest matrix of orthonormal rows or columns, by a Newton-Schulz iteration in bfloat16."""
    tall = x.shape[0] > x.shape[1]
    x = transpose(half(x), 0, 1) if tall else half(x)
    x = half(x / maximum(half(norm(x)), eps))
    for _ in range(steps):
        gram = half(matmul(x, transpose(x, 0, 1)))
        gram = half(gram * b + matmul(gram, gram) * c)
        x = half(x * a + matmul(gram, x))
    return transpose(x, 0, 1) if tall else x


def muon(lr, momentum, weight_decay, a, b, c, eps, *, nesterov, ns_steps, adjust):
    if not isinstance(ns_steps, int) or not 0 <= ns_steps < 100:
        raise ArgumentValueError(f"muon_update: ns_steps must be fewer than 100, not {ns_steps}")

    def one(g, p, buffer):
        buffer = moved(buffer, g, momentum)
        ahead = buffer - (buffer - g) * (1 - momentum) if nesterov else buffer
        change = as_type_of(orthogonal(ahead, a, b, c, eps, ns_steps), p)
        rows, columns = p.shape
        scale = 0.2 * max(rows, columns) ** 0.5 if adjust else max(1.0, rows / max(columns, 1)) ** 0.5
        return decayed(p, lr, weight_decay, True) - change * (lr * scale), buffer

    return one


def muon_samples() -> Iterator[Sample]:
    # One step: roundings to bfloat16 are no smooth function.
    for rows, columns in ((3, 5), (5, 3), (1, 1), (1, 17), (33, 1), (0, 2)):
        lists = tuple((Operand((rows, columns), 0.6, 0.75),) for _ in range(3))
        yield Sample(lists, {"lr": 0.25, "ns_steps": 1}, differentiable=False)


muon_update = update(
    "muon_update",
    muon,
    numbers={"lr": None, "momentum": 0.95, "weight_decay": 0, "a": 3.4445, "b": -4.775, "c": 2.0315,
             "eps": 1e-7},
    flags={"nesterov": True, "ns_steps": 5, "adjust": False},
    states=("momentum_buffers",),
    whole=True,
    samples=muon_samples,
    inapplicable={"0-d": "it updates matrices"},
    doc="""Take a step of Muon, for matrices.

    muon_update(params, grads, momentum_buffers, *, lr, momentum=0.95, weight_decay=0, a=3.4445, b=-4.775,
    c=2.0315, eps=1e-7, nesterov=True, ns_steps=5, adjust=False); buffers start as zeros.  Shapes: [n, m].

        b <- momentum * b + (1 - momentum) * g;  u = momentum * b + (1 - momentum) * g if nesterov else b
        x = u / norm(u);  ns_steps times: x <- a * x + (b * x x' + c * (x x') ** 2) x
        p <- p * (1 - lr * weight_decay) - lr * k * x
    k is sqrt(max(1, n / m)), or 0.2 * sqrt(max(n, m)) with `adjust`, which makes steps as long as AdamW's.
    Source: Jordan et al., Muon: an optimizer for hidden layers, 2024; Liu et al., Muon is scalable, 2025.
    """,
)  # fmt: skip
