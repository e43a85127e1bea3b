"""What eager ops on large arrays cost beside PyTorch's.

    python benchmarks/large.py [--sizes 65536 1048576] [--threads 1 2] [--only softmax gelu] [--write]

Each line is a user's call, timed for Lamina and for torch in turn in one process, forward without gradients
unless it says backward.  Lamina compiles at the first call here (LAMINA_NATIVE=1), which is not timed; that
is what a program comes to that calls an op often.  --write puts the table into benchmarks/results/large.*.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("LAMINA_NATIVE", "1")  # before Lamina is imported, which reads it once

import numpy as np
import torch
from contest import RESULTS, race, where

import lamina

# x, y: floats [rows, columns]; row, shift: [columns]; col: [rows, 1]; z: y's shape the other way round; i: a
# row for each row; at: a column for each element; label: a column for each row; image, kernel: what a
# convolution takes; h: x in half precision.
CALLS = {
    "x + y": "x + y",
    "x + row": "x + row",
    "x + col": "x + col",
    "x * 2.5": "x * 2.5",
    "x / y": "x / y",
    "x > y": "x > y",
    "where(x > y, x, y)": "M.where(x > y, x, y)",
    "exp": "x.exp()",
    "log(abs)": "x.abs().log()",
    "sin": "x.sin()",
    "tanh": "x.tanh()",
    "sigmoid": "x.sigmoid()",
    "gelu": "F.gelu(x)",
    "silu": "F.silu(x)",
    "relu": "x.relu()",
    "softplus": "F.softplus(x)",
    "x ** 3": "x ** 3",
    "sqrt(x * x)": "(x * x).sqrt()",
    "to float16": "x.to(M.float16)",
    "from float16": "h.to(M.float32)",
    "to bfloat16": "x.to(M.bfloat16)",
    "sum": "x.sum()",
    "sum(1)": "x.sum(1)",
    "sum(0)": "x.sum(0)",
    "mean": "x.mean()",
    "max": "x.max()",
    "max(1)": "x.max(1)",
    "argmax(1)": "x.argmax(1)",
    "var(1)": "x.var(1)",
    "norm": "x.norm()",
    "cumsum(1)": "x.cumsum(1)",
    "softmax(1)": "x.softmax(1)",
    "log_softmax(1)": "x.log_softmax(1)",
    "layer_norm": "F.layer_norm(x, (columns,), row, shift)",
    "batch_norm": "F.batch_norm(image, None, None, None, None, True)",
    "t().contiguous()": "x.t().contiguous()",
    "x + y.t()": "x + z.t()",
    "cat": "M.cat((x, y), 1)",
    "index_select": "x.index_select(0, i)",
    "embedding": "F.embedding(i, x)",
    "gather(1)": "x.gather(1, at)",
    "index_add": "x.index_add(0, i, y)",
    "scatter_add(1)": "x.scatter_add(1, at, y)",
    "max_pool2d": "F.max_pool2d(image, 2)",
    "avg_pool2d": "F.avg_pool2d(image, 2)",
    "cross_entropy": "F.cross_entropy(x, label)",
    "mse_loss": "F.mse_loss(x, y)",
    "conv2d 3x3": "F.conv2d(image, kernel, padding=1)",
    "x @ thin": "x @ thin",
    "linear": "F.linear(x, weight, row[:64])",
}
BACKWARD = {
    "gelu": "F.gelu(x)",
    "silu": "F.silu(x)",
    "softmax(1)": "x.softmax(1)",
    "layer_norm": "F.layer_norm(x, (columns,), row, shift)",
    "cross_entropy": "F.cross_entropy(x, label)",
    "max_pool2d": "F.max_pool2d(image, 2)",
    "conv2d 3x3": "F.conv2d(image, kernel, padding=1)",
    "embedding": "F.embedding(i, x)",
}
OPTIMIZERS = {
    "SGD with momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "Adam": ("Adam", {"lr": 1e-3}),
    "AdamW": ("AdamW", {"lr": 1e-3}),
}


def arrays(size: int) -> dict[str, np.ndarray]:
    """The operands for `size` elements."""
    columns = 256 if size <= 1 << 16 else 1024
    rows, draw = size // columns, np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape, dtype=np.float32)

    x, channels = normal(rows, columns), 64
    return {
        "x": x,
        "y": normal(rows, columns),
        "z": normal(columns, rows),
        "h": x.astype(np.float16),
        "row": normal(columns),
        "shift": normal(columns),
        "col": normal(rows, 1),
        "i": draw.integers(0, rows, rows),
        "at": draw.integers(0, columns, (rows, columns)),
        "label": draw.integers(0, columns, rows),
        "image": normal(max(1, size // (channels * 1024)), channels, 32, 32),
        "kernel": normal(channels, channels, 3, 3),
        "thin": normal(columns, 16),
        "weight": normal(64, columns),
    }


def operands(library: Any, given: dict[str, np.ndarray]) -> dict[str, Any]:
    columns = given["x"].shape[1]
    tensors = {name: library.tensor(value) for name, value in given.items()}
    return tensors | {"M": library, "F": library.nn.functional, "columns": columns}


def forward(source: str) -> Callable[[Any, dict], Callable[[], object]]:
    return lambda library, given: eval(f"lambda: {source}", operands(library, given))


def backward(source: str) -> Callable[[Any, dict], Callable[[], object]]:
    """The gradients to all operands that the call names and that have any, of a result made once."""

    def made(library: Any, given: dict[str, np.ndarray]) -> Callable[[], object]:
        scope = operands(library, given)
        names = [
            name for name in ("x", "row", "shift", "image", "kernel") if re.search(rf"\b{name}\b", source)
        ]
        leaves = [scope[name].requires_grad_() for name in names]
        out = eval(source, scope)
        cotangent = library.ones_like(out)
        return lambda: library.autograd.grad(out, leaves, cotangent, retain_graph=True)

    return made


def update(name: str, settings: dict) -> Callable[[Any, dict], Callable[[], object]]:
    def made(library: Any, given: dict[str, np.ndarray]) -> Callable[[], object]:
        parameter = library.nn.Parameter(library.tensor(given["x"]))
        parameter.grad = library.tensor(given["y"])
        return getattr(library.optim, name)([parameter], **settings).step

    return made


def cases() -> dict[str, Callable[[Any, dict], Callable[[], object]]]:
    found = {name: forward(source) for name, source in CALLS.items()}
    found |= {f"{name}, backward": backward(source) for name, source in BACKWARD.items()}
    return found | {f"{name}, step": update(*what) for name, what in OPTIMIZERS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1 << 16, 1 << 20, 1 << 24])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", help="names of calls, or parts of them")
    parser.add_argument("--seconds", type=float, default=0.4, help="for one line")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/large.*")
    arguments = parser.parse_args()
    chosen = {
        name: make
        for name, make in cases().items()
        if not arguments.only or any(part in name for part in arguments.only)
    }
    lines, figures = [where()], []
    print(lines[0])

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    for size in arguments.sizes:
        given = arrays(size)
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            lamina.set_num_threads(threads)
            say(f"\n{size} elements, {threads} thread{'s' * (threads > 1)}")
            say(f"{'microseconds':<28}{'lamina':>12}{'torch':>12}{'ratio':>8}")
            ratios = []
            for name, make in chosen.items():
                contenders = {"lamina": make(lamina, given), "torch": make(torch, given)}
                found = race(contenders, arguments.seconds)
                ours, theirs = found["lamina"].least, found["torch"].least
                ratios.append(ours / theirs)
                figures.append([size, threads, name, ours, theirs])
                say(f"{name:<28}{ours * 1e6:>12.1f}{theirs * 1e6:>12.1f}{ours / theirs:>8.2f}")
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            over = sum(ratio > 1.1 for ratio in ratios)
            say(f"geometric mean {mean:.2f}; {over} of {len(ratios)} above 1.1")
    if arguments.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "large.txt").write_text("\n".join(lines) + "\n")
        (RESULTS / "large.json").write_text(
            json.dumps({"where": lines[0], "figures": figures}, indent=1) + "\n"
        )


if __name__ == "__main__":
    sys.exit(main())
