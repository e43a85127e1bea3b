"""`python -m lamina run model.onnx`: one run of a model, on arrays from files or on random ones."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from math import inf, prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ...ir.errors import LaminaError
from ...ir.own_files import replacing
from ...jit import trace
from ...runtime import Tensor, tensor
from ...runtime.modes import no_grad
from .declared import Kind, OnnxError
from .network import OnnxModule, load

WARM, TIMED = 3, 5  # calls: to be recorded, compiled and entered; and of those the quickest is told


def run_file(path: str, args: Sequence[str]) -> int:
    """Run a model as the arguments say, and tell what it returns.  Returns the exit status."""
    parser = argparse.ArgumentParser(f"lamina run {path}", description="Run an ONNX model once.")
    about = "an .npy file for the next input, or NAME=FILE; those without get random numbers"
    parser.add_argument("--input", action="append", default=[], metavar="FILE", help=about)
    parser.add_argument("--output", metavar="FILE", help="an .npz file for what the model returns")
    parser.add_argument("--eager", action="store_true", help="run node by node, without compiling")
    options = parser.parse_args(args)
    try:
        model = load(path)
        given = inputs_of(model, options.input)
        for name, value in given.items():
            print(f"input   {name}: {spelled(value)}")
        found, seconds = timed(model if options.eager else trace(model), [*given.values()])
    except (LaminaError, OSError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 1
    results = dict(zip(model.outputs, found if isinstance(found, tuple) else (found,), strict=True))
    for name, value in results.items():
        print(f"output  {name}: {spelled(value)}")
    print(f"{seconds * 1e3:.3f} ms")
    if options.output:
        arrays = {name: value.numpy() for name, value in results.items() if isinstance(value, Tensor)}
        with replacing(options.output) as file:
            np.savez(file, **arrays)
    return 0


def timed(call: Callable, given: Sequence[Any]) -> tuple[Any, float]:
    """What a call returns, and the seconds that the quickest of a few took once it was compiled."""
    least = inf
    with no_grad():
        for turn in range(WARM + TIMED):
            start = perf_counter()
            found = call(*given)
            if turn >= WARM:
                least = min(least, perf_counter() - start)
    return found, least


def inputs_of(model: OnnxModule, files: Sequence[str]) -> dict[str, Any]:
    """The model's inputs, by name: from files, or random.  Raises OnnxError for one too many."""
    named = {}
    free = iter(model.inputs)
    for file in files:
        name, _, rest = file.partition("=")
        if not rest or name not in model.inputs:
            name, rest = next((each for each in free if each not in named), ""), file
        if not name:
            raise OnnxError(
                f"the model takes {len(model.inputs)} inputs: {', '.join(model.inputs)}", f"more: {file}"
            )
        named[name] = tensor(np.load(Path(rest), allow_pickle=False))
    rng = np.random.default_rng(0)
    for name, kind in model.inputs.items():
        if name not in named:
            named[name] = drawn(name, kind, rng, model.most_bytes)
    return {name: named[name] for name in model.inputs}


def drawn(name: str, kind: Kind, rng: np.random.Generator, most_bytes: int) -> Tensor:
    """Random numbers of a kind: normal ones, and of integers 0 and 1.  Raises OnnxError for what has none."""
    if kind.sequence or kind.dtype is None or kind.shape is None or kind.dtype == object:
        raise OnnxError(
            f"the input {name!r} is not said to be a tensor of numbers", f"give it: --input {name}=FILE"
        )
    shape = tuple(size if isinstance(size, int) else 1 for size in kind.shape)
    if min(shape, default=0) < 0 or 8 * prod(shape) > most_bytes:
        raise OnnxError(
            f"the input {name!r} is said to have the shape {[*shape]}", f"give it: --input {name}=FILE"
        )
    if kind.dtype.kind in "iub":
        return tensor(rng.integers(0, 2, shape).astype(kind.dtype))
    return tensor(rng.standard_normal(shape).astype(kind.dtype))


def spelled(value: Any) -> str:
    """A value in a line."""
    if not isinstance(value, Tensor):
        return str(value)
    line = f"{value.dtype.name}{[*value.shape]}"
    if value.numel() and value.dtype.is_floating_point:
        line += f", {value.min().item():.4g} to {value.max().item():.4g}, mean {value.mean().item():.4g}"
    return line
