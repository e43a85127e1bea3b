"""Decoding: a decoder like GPT-2 generates tokens, one traced step a token, beside torch's eager one.

    python benchmarks/decoding.py [--threads 1 2] [--tokens 256] [--styles mask slice cat] [--write]

768 wide, 12 heads, a vocabulary of 50257, cut to 6 blocks, batch 1, float32, greedy.  A style is how the step
remembers: "mask" writes keys and values into a cache at the token's place and attends over all of it with a
mask; "slice" attends over its beginning; "cat" makes a longer one.  For each, and each number of threads in
a process of its own: what all tokens take with compiling, once; then tokens a second, the contenders in turns
of 8 tokens, least and median; and the share of the memory's bandwidth that reading every weight once a token
is.  The bandwidth is that of the same run: 1 GiB read by two threads.  --write puts the table into
results/decoding.txt.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from contest import RESULTS, distance, where

WIDTH, HEADS, DEPTH, WORDS = 768, 12, 6, 50257
TURN = 8  # tokens
STYLES = ("mask", "slice", "cat")


def decoder(library: Any, longest: int) -> Any:
    """The network, with weights that do not depend on the library."""
    nn = library.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def heads(self, x):
            split = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
            return [part.view(split).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(WIDTH, 2)]

        def rest(self, x, y):
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(longest, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    model, rng = Decoder().eval(), np.random.default_rng(0)
    with library.no_grad():
        for p in model.parameters():
            drawn = rng.standard_normal(tuple(p.shape), dtype=np.float32) * 0.02
            p.copy_(library.tensor(drawn + (p.ndim == 1)))
    return model


def stepper(library: Any, model: Any, style: str, longest: int) -> Any:
    """One token's step: (token, place, memory) -> (the next token, memory)."""
    attention = library.nn.functional.scaled_dot_product_attention

    def step(token, at, memory):
        place = library.tensor([[at]])
        x = model.tokens(token) + model.places(place)
        mask = (library.arange(longest) <= place[0])[None, None, :] if style == "mask" else None
        kept = []
        for block, (keys, values) in zip(model.blocks, memory):
            q, k, v = block.heads(x)
            if style == "cat":
                keys, values = library.cat([keys, k], 2), library.cat([values, v], 2)
                y = attention(q, keys, values)
            else:
                keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
                if style == "mask":
                    y = attention(q, keys, values, attn_mask=mask)
                else:
                    y = attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])
            kept.append((keys, values))
            x = block.rest(x, y)
        return model.head(model.norm(x))[:, -1].argmax(-1, keepdim=True), kept

    return step


class Generation:
    """A contender's tokens so far."""

    def __init__(self, library: Any, step: Any, style: str, longest: int):
        size = (1, HEADS, 0 if style == "cat" else longest, WIDTH // HEADS)
        self.memory = [(library.zeros(size), library.zeros(size)) for _ in range(DEPTH)]
        self.library, self.step, self.token, self.told = library, step, library.tensor([[11]]), []

    def run(self, count: int) -> float:
        """Generate so many more; the seconds that takes."""
        start = perf_counter()
        with self.library.no_grad():
            for _ in range(count):
                self.token, self.memory = self.step(self.token, len(self.told), self.memory)
                self.told.append(int(self.token))
        return perf_counter() - start


def bandwidth() -> float:
    """Bytes a second that two threads read of 1 GiB, at best."""
    halves = np.ones((2, 1 << 27), np.float32)
    found = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(8):
            start = perf_counter()
            [*pool.map(lambda half: half.view(np.int64).max(), halves)]
            found.append(halves.nbytes / (perf_counter() - start))
    return max(found)


def rows(threads: int, tokens: int, styles: list[str]) -> list[str]:
    import torch

    import lamina

    lamina.set_num_threads(threads)
    torch.set_num_threads(threads)
    speed, lines = bandwidth(), []
    models = {library: decoder(library, tokens) for library in (lamina, torch)}
    read = sum(p.nbytes for p in models[torch].parameters())
    read -= sum(m.weight.nbytes for m in (models[torch].tokens, models[torch].places))
    for style in styles:
        steps = {library: stepper(library, model, style, tokens) for library, model in models.items()}
        traced = lamina.jit.trace(steps[lamina], budget=None)
        contenders = {lamina: traced, torch: steps[torch]}

        def begun(contenders: Any = contenders, style: str = style) -> dict[Any, Generation]:
            return {lib: Generation(lib, step, style, tokens) for lib, step in contenders.items()}

        first, again = begun(), begun()
        Generation(torch, steps[torch], style, tokens).run(1)
        totals = {library: g.run(tokens) for library, g in first.items()}
        same = math.fsum(a == b for a, b in zip(first[lamina].told, first[torch].told)) / tokens
        recorded = traced.counts()["recorded"]
        times: dict[Any, list[float]] = {library: [] for library in contenders}
        for turn in range(tokens // TURN):
            for library in (lamina, torch) if turn % 2 else (torch, lamina):
                times[library].append(again[library].run(TURN) / TURN)
        least, median = ({lib: of(t) for lib, t in times.items()} for of in (min, statistics.median))
        lines.append(
            f"{style:<8}{threads:>8}{recorded:>12}{same:>8.0%}{totals[lamina]:>9.2f}{totals[torch]:>8.2f}"
            f"{1 / least[lamina]:>10.1f}{1 / median[lamina]:>8.1f}"
            f"{1 / least[torch]:>8.1f}{1 / median[torch]:>8.1f}"
            f"{read / least[lamina] / speed:>9.0%}{read / median[lamina] / speed:>7.0%}"
            f"{read / least[torch] / speed:>7.0%}{read / median[torch] / speed:>7.0%}"
        )
    lines.append(f"  {read / 1e6:.0f} MB of weights a token; two threads read {speed / 1e9:.1f} GB/s")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--styles", nargs="*", default=[*STYLES])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    if options.alone:
        print("\n".join(rows(options.threads[0], options.tokens, options.styles)))
        return
    lines = [
        f"{where()}, {distance()}",
        f"{options.tokens} tokens of a decoder, {DEPTH} blocks of {WIDTH}, {HEADS} heads, {WORDS} words, "
        "batch 1: seconds in all with compiling; tokens a second, at best and in the median; "
        "that of the bandwidth",
        f"{'':<8}{'threads':>8}{'recordings':>12}{'same':>8}{'traced':>9}{'torch':>8}{'traced':>10}{'':>8}"
        f"{'torch':>8}{'':>8}{'traced':>9}{'':>7}{'torch':>7}",
    ]
    if not find_spec("onnxruntime"):
        lines.append("onnxruntime is left out: it is not installed")
    else:
        lines.append("onnxruntime is left out: its models keep no cache that they write in place")
    print("\n".join(lines), flush=True)
    rest = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}  # which slows NumPy's products
    with tempfile.TemporaryDirectory() as cache:
        for threads in options.threads:
            given = ["--alone", "--threads", threads, "--tokens", options.tokens, "--styles", *options.styles]
            command = [sys.executable, __file__, *map(str, given)]
            environment = rest | {"LAMINA_CACHE_DIR": f"{cache}/{threads}"}
            told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            lines.append(told.stdout.rstrip() or f"{threads} threads failed: {told.stderr[-2000:]}")
            print(lines[-1], flush=True)
    if options.write:
        (RESULTS / "decoding.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
