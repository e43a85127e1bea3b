"""Attention's kernels by many tiles on an NVIDIA GPU, beside torch's: tiles are chosen by this.

    python benchmarks/gpu_attention.py [--only there] [--width 64] [--write]
    python benchmarks/gpu_attention.py --compile sm_90

Every tile's results are compared with torch's; its time is the least of several spans between events, and its
rate is of the products that it makes: two on the way there, three to queries, four to keys and values.  The
way back needs five of these seven, and torch's is one call.  --compile only puts the kernels into the cache,
on a machine without the GPU that they are for.  --write puts the table into
benchmarks/results/gpu_attention.txt.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import gpu
import numpy as np
from contest import RESULTS, where

from lamina.ir.dtypes import float32
from lamina.ir.errors import LaminaError
from lamina.ir.op import Op
from lamina.ir.types import type_of
from lamina.passes.graphs.attention_kernels import (
    attention_to_key_value,
    attention_to_query,
    attention_with_lse,
)
from lamina.passes.programs.program import Array, Whole
from lamina.passes.schedules.gpu import IEEE, PRECISIONS
from lamina.passes.triton.attention import attention_code
from lamina.passes.triton.attention_tiles import Tile
from lamina.passes.triton.code import Code
from lamina.passes.triton.target import Target
from lamina.runtime.cuda.arrays import DeviceArray, uploaded
from lamina.runtime.cuda.machine import Machine, machine
from lamina.runtime.triton_compiler import Compiler, compiled

HELPERS = 16
SIZES = {64: ((8, 12, 512, 64), (8, 12, 2048, 64), (2, 12, 8192, 64)), 128: ((4, 16, 4096, 128),)}
KERNELS = {
    "there": attention_with_lse,
    "to queries": attention_to_query,
    "to keys and values": attention_to_key_value,
}
# as `Tile` has them
TILES = {
    ("there", 64): (
        (64, 64, 4, 3, False), (64, 128, 4, 2, False), (128, 64, 4, 2, False), (128, 64, 8, 2, False),
        (128, 64, 8, 3, False), (128, 128, 8, 2, False), (256, 64, 8, 2, False), (64, 64, 4, 3, True),
        (64, 128, 4, 2, True), (128, 64, 4, 3, True), (128, 64, 8, 2, True), (128, 64, 8, 3, True),
        (128, 128, 8, 2, True), (256, 64, 8, 3, True),
    ),
    ("there", 128): (
        (128, 128, 8, 3, False), (128, 128, 8, 2, False), (128, 64, 8, 2, False), (128, 64, 8, 3, False),
        (64, 64, 4, 2, False), (64, 128, 4, 2, False), (128, 32, 4, 3, False), (128, 128, 8, 2, True),
        (128, 64, 8, 2, True), (128, 64, 8, 3, True), (64, 128, 4, 2, True), (256, 64, 8, 2, True),
        (64, 32, 4, 3, False), (64, 32, 4, 4, False), (64, 64, 4, 3, False), (64, 64, 4, 3, True),
    ),
    ("to queries", 64): (
        (128, 64, 8, 2, False), (128, 64, 8, 3, False), (64, 64, 4, 2, False), (64, 64, 4, 3, False),
        (128, 128, 8, 2, False), (64, 128, 4, 2, False), (128, 32, 8, 3, False), (128, 64, 4, 2, False),
        (128, 64, 8, 2, True), (128, 64, 8, 3, True), (64, 64, 4, 2, True), (128, 128, 8, 2, True),
    ),
    ("to queries", 128): (
        (128, 64, 8, 2, False), (64, 64, 4, 2, False), (128, 32, 8, 2, False), (128, 32, 8, 3, False),
        (64, 128, 8, 1, False), (128, 64, 8, 2, True), (128, 32, 8, 3, True), (64, 64, 4, 2, True),
        (64, 64, 8, 2, False), (128, 128, 8, 1, False), (64, 32, 4, 2, False), (64, 32, 4, 3, False),
        (64, 64, 4, 3, False), (64, 32, 4, 3, True),
    ),
    ("to keys and values", 64): (
        (64, 128, 8, 2, False), (64, 128, 8, 3, False), (64, 64, 4, 2, False), (64, 64, 4, 3, False),
        (128, 128, 8, 2, False), (32, 128, 8, 3, False), (128, 64, 4, 2, False), (32, 64, 4, 3, False),
        (64, 128, 8, 2, True), (64, 128, 8, 3, True), (64, 64, 4, 2, True), (128, 128, 8, 2, True),
        (32, 128, 4, 3, False),
    ),
    ("to keys and values", 128): (
        (64, 128, 8, 2, False), (32, 128, 8, 2, False), (32, 128, 8, 3, False), (64, 64, 4, 2, False),
        (32, 64, 4, 3, False), (64, 128, 8, 2, True), (32, 128, 8, 3, True), (64, 64, 4, 2, True),
        (64, 64, 8, 2, False), (128, 64, 8, 2, False), (16, 128, 8, 3, False), (64, 128, 8, 3, True),
        (32, 64, 4, 2, False), (32, 64, 4, 3, True), (64, 64, 4, 3, True), (64, 32, 4, 3, False),
    ),
}  # fmt: skip
SINGLES = tuple(
    (rows, columns, warps, stages, False)
    for rows, columns in ((64, 64), (64, 32), (32, 64), (32, 32), (128, 32), (32, 128), (128, 64), (64, 128))
    for warps, stages in ((4, 1), (4, 2), (8, 1), (8, 3))
    if rows * columns >= 512 * warps
)  # of f32
WORK = {"there": 4.0, "to queries": 6.0, "to keys and values": 8.0}  # for each score and element of a head


def tiles(kernel: str, width: int, dtype: str = "bf16") -> Iterator[tuple[str, Tile | None]]:
    yield "as chosen", None
    for rows, columns, warps, stages, copied in SINGLES if dtype == "f32" else TILES[kernel, width]:
        text = f"{rows} x {columns}, {warps} warps, {stages} stages{', copied' * copied}"
        yield text, Tile(rows, columns, warps, stages, copied)


@dataclass(frozen=True)
class Task:
    """One attention.  `code` gives its kernels by a tile, on (q, k, v), with (g, lse, products) on the way
    back.
    """

    sizes: tuple[int, ...]
    dtype: str
    is_causal: bool
    precision: str = IEEE

    @property
    def name(self) -> str:
        precision = "" if self.precision == IEEE else f" {self.precision}"
        return f"{' x '.join(map(str, self.sizes))} {self.dtype}{precision}{', causal' * self.is_causal}"

    def work(self, kernel: str) -> float:
        *lead, length, width = self.sizes
        return WORK[kernel] * math.prod(lead) * length**2 * width / (1 + self.is_causal)

    def code(self, kernel: str, tile: Tile | None, target: Target) -> Code:
        op: Op = KERNELS[kernel]
        kind, each = type_of(gpu.DTYPES[self.dtype], self.sizes), type_of(float32, self.sizes[:-1])
        types = (kind, kind, kind, None, *(() if kernel == "there" else (kind, each, each)))
        attrs = {"is_causal": self.is_causal, "scale": None, "precision": self.precision, "groups": 1}
        made = op.infer(*types, **attrs)
        outputs = made if isinstance(made, tuple) else (made,)
        arrays = tuple(None if t is None else Array("x", t.dtype.short, t.shape) for t in types)
        results = tuple(Array("y", t.dtype.short, t.shape) for t in outputs)
        step = Whole(op, attrs, types, arrays, results)
        return attention_code(step, (True,) * (len(types) - 1 + len(results)), target, tile)


def tasks(width: int | None, singles: str) -> Iterator[Task]:
    if singles:
        sizes = (8, 12, 2048, 64), (4, 12, 2048, 128), (4, 6, 2048, 256)
        yield from (Task(own, "f32", False, singles) for own in sizes if width in (None, own[-1]))
        return
    for own, every in SIZES.items():
        for sizes in every if width in (None, own) else ():
            for is_causal in (False, True):
                yield Task(sizes, "bf16", is_causal)


def codes(options: argparse.Namespace, target: Target) -> Iterator[tuple[Task, str, str, Code]]:
    for task in tasks(options.width, options.singles):
        for kernel in options.only or KERNELS:
            for text, tile in tiles(kernel, task.sizes[-1], task.dtype):
                yield task, kernel, text, task.code(kernel, tile, target)


# ---- on the device
def some_heads(array: np.ndarray) -> np.ndarray:
    """Those that are compared: a tenth, or the host has more to do than the device."""
    return array.reshape(-1, *array.shape[-2:])[::7]


class Theirs:
    """torch's, there and back: its results, and its times."""

    def __init__(self, task: Task, arrays: list[np.ndarray]):
        import torch

        self.torch = torch
        q, k, v, g = (gpu.on_torch(torch, a) for a in arrays)
        given = [x.requires_grad_() for x in (q, k, v)]
        call = torch.nn.functional.scaled_dot_product_attention

        def there() -> Any:
            with torch.no_grad():
                return call(*given, is_causal=task.is_causal)

        out = call(*given, is_causal=task.is_causal)

        def back() -> Any:
            return torch.autograd.grad(out, given, g, retain_graph=True)

        self.runs = {"there": there, "back": back}
        found = [out, *back()]
        self.products = (out.float() * g.float()).sum(-1).detach().cpu().numpy()
        self.results = [some_heads(x.detach().float().cpu().numpy()) for x in found]

    def times(self) -> dict[str, float]:
        contenders = {name: gpu.Theirs(run, self.torch) for name, run in self.runs.items()}
        return {name: t.least for name, t in gpu.turns(contenders, 0.1).items()}


class Ours:
    """A code on arrays that are on the device."""

    def __init__(self, device: Machine, code: Code, arrays: list[DeviceArray]):
        (self.function,) = device.functions([code], compiled([code], Target.named(device.target)))
        self.device, self.code, self.arrays = device, code, arrays
        self.spare = [DeviceArray(device, "u8", (n,)) for n in self.function.scratch(code.grid)]

    def __call__(self) -> None:
        scratch, profile = (x.address for x in self.spare)
        self.device.stream.launch(
            self.function, self.code.grid, *(x.address for x in self.arrays), scratch=scratch, profile=profile
        )


def measured(
    device: Machine, task: Task, rows: list, say: Callable[[str], None], begin: Callable[[str], None]
) -> bool:
    """Say a task's table; returns whether all was right.  rows: kernel, tile and code.  begin: is told of
    each before it runs: which one it was, if the device is lost.
    """
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(1 << 20, np.float32).astype(gpu.NUMPY[task.dtype]) for _ in range(4)]
    arrays = [np.resize(x, task.sizes) for x in values]
    theirs = Theirs(task, arrays)
    q, k, v, g = (uploaded(device, a, task.dtype) for a in arrays)
    out, *back = (DeviceArray(device, task.dtype, task.sizes) for _ in range(4))
    lse = DeviceArray(device, "f32", task.sizes[:-1])
    products = uploaded(device, theirs.products, "f32")
    memory = {
        "there": ([q, k, v, out, lse], [out]),
        "to queries": ([q, k, v, g, lse, products, back[0]], back[:1]),
        "to keys and values": ([q, k, v, g, lse, products, *back[1:]], back[1:]),
    }
    wanted = dict(zip(KERNELS, (theirs.results[:1], theirs.results[1:2], theirs.results[2:]), strict=True))
    Ours(device, task.code("there", None, Target.named(device.target)), memory["there"][0])()
    peer = theirs.times()
    least: dict[str, float] = {}
    lines: dict[str, list] = {}
    right = True
    for kernel, text, code in rows:
        given, results = memory[kernel]
        begin(f"{task.name}, {kernel}, {text}")
        try:
            run = Ours(device, code, given)
        except LaminaError as error:
            say(f"  {kernel}, {text}: {str(error).splitlines()[0]}")
            continue
        for x in results:
            device.stream.fill(x.address, 0xFF, x.nbytes)  # NaN
        run()
        # of halves both round to 8 bits, weights once more, and sums of them in another order
        errors = [
            gpu.error_of(some_heads(x.numpy()), want) for x, want in zip(results, wanted[kernel], strict=True)
        ]
        wrong = "" if max(errors) < (1e-4 if task.dtype == "f32" else 0.03) else f"WRONG {max(errors):.1e}"
        right = right and not wrong
        time = gpu.turns({"lamina": gpu.Ours(run, device)}, 0.01)["lamina"].least
        lines.setdefault(kernel, []).append((time, text, wrong))
        least[kernel] = min(least.get(kernel, math.inf), time)
    ours = least.get("there", math.nan), sum(least.get(kernel, math.nan) for kernel in (*KERNELS,)[1:])
    both = zip(("there", "back"), peer.values(), ours, strict=True)
    say(f"{task.name}: " + ", ".join(f"{n} torch {a * 1e6:.1f} us, here {b * 1e6:.1f}" for n, a, b in both))
    for kernel, found in lines.items():
        for time, text, wrong in sorted(found):
            rate = f"{task.work(kernel) / time / 1e12:>6.1f} TF/s"
            say(f"  {kernel:<19}{time * 1e6:>9.1f} us {rate}  {text} {wrong}")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=KERNELS, action="append")
    parser.add_argument("--width", type=int)
    parser.add_argument("--singles", choices=PRECISIONS, default="", help="f32, by this precision")
    parser.add_argument("--compile", metavar="TARGET", help="compile for it, and measure nothing")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    target = Target.named(options.compile or machine().target)
    wanted = [*codes(options, target)]
    with Compiler(target, helpers=HELPERS) as compiler:
        for *_, code in wanted:
            compiler.add(code)
        try:
            compiler.binaries()
        except LaminaError as error:  # of one; the others are made
            print(error, file=sys.stderr)
    if options.compile:
        print(f"{len({code for *_, code in wanted})} kernels for {options.compile}")
        return 0
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        print(line, flush=True)

    begin = partial(print, file=sys.stderr, flush=True)
    device, right = machine(), True
    say(where())
    say(f"{device.device.name} ({device.target}), triton {version('triton')}, torch {version('torch')}")
    for task in tasks(options.width, options.singles):
        rows = [(kernel, text, code) for own, kernel, text, code in wanted if own == task]
        right = (not rows or measured(device, task, rows, say, begin)) and right
        device.allocator.empty_cache()
    if options.write:
        (RESULTS / "gpu_attention.txt").write_text("\n".join(said) + "\n", encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
