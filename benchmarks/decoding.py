"""Decoding: a decoder like GPT-2 generates tokens, one traced step a token, beside torch and onnxruntime.

    python benchmarks/decoding.py [--threads 1 2] [--tokens 256] [--styles mask slice cat] [--write]

768 wide, 12 heads, a vocabulary of 50257, cut to 6 blocks, batch 1, float32, greedy.  A style is how the step
remembers: "mask" writes keys and values into a cache at the token's place and attends over all of it with a
mask; "slice" attends over its beginning; "cat" makes a longer one.  torch's step is the same one, eager.
onnxruntime's is always "cat", exported by torch: past keys and values go in, present ones come out, bound
where they lie and handed over as the next past; all its optimisations are on.  For each style, and each
number of threads in a process of its own: what all tokens take, once, with compiling or making the session,
but not with exporting, whose time is told apart; then tokens a second, the contenders in turns of 8 tokens,
at best and in the median; and the share of the memory's bandwidth that reading every weight once a token
is.  A turn begins after a rest, in which all threads fall asleep.  The bandwidth, 1 GiB read by two threads,
takes turns with them, as it changes with what else a machine does: best over best, median over median.
"Same" is the share of tokens on which all contenders agree.  --write puts the table into
results/decoding.txt.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from importlib.util import find_spec
from itertools import chain
from time import perf_counter, sleep
from types import SimpleNamespace
from typing import Any

import numpy as np
from contest import RESULTS, distance, where

WIDTH, HEADS, DEPTH, WORDS = 768, 12, 6, 50257
TURN = 8  # tokens
REST = 0.1  # seconds: onnxruntime's threads look for work for 0.06 of it (EPYC, two threads)
STYLES = ("mask", "slice", "cat")
NAMES = ["traced", "torch"] + ["onnxruntime"] * bool(find_spec("onnxruntime") and find_spec("onnx"))
PAST = [f"{what}{i}" for i in range(DEPTH) for what in ("keys", "values")]


def decoder(library: Any, longest: int) -> Any:
    """The network, with weights that do not depend on the library.

    They are so large that nearly every token is another: a step that forgets the past, or errs in the place,
    generates other ones.
    """
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
        for name, p in model.named_parameters():
            drawn = rng.standard_normal(tuple(p.shape), dtype=np.float32) * 0.1
            p.copy_(library.tensor(drawn + ("norm" in name and name.endswith("weight"))))
    return model


def stepper(library: Any, model: Any, style: str, longest: int) -> Any:
    """One token's step: (token, place, memory) -> (the next token, memory).

    A place is a number, or i64[1,1].
    """
    attention = library.nn.functional.scaled_dot_product_attention

    def step(token, at, memory):
        place = at if isinstance(at, library.Tensor) else library.tensor([[at]])
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


def onnx_bytes(model: Any) -> bytes:
    """The step of style "cat" as an ONNX model, of which the past's length is dynamic."""
    import torch

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.step = model, stepper(torch, model, "cat", 0)

        def forward(self, token, at, *past):
            token, kept = self.step(token, at, zip(past[::2], past[1::2]))
            return token, *chain(*kept)

    file, number = io.BytesIO(), torch.tensor([[3]])
    past = [torch.zeros(1, HEADS, 3, WIDTH // HEADS)] * len(PAST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Step().eval(), (number, number, *past), file, dynamo=False, opset_version=18,
            input_names=["token", "at", *PAST], output_names=["next", *(f"{x}_present" for x in PAST)],
            dynamic_axes={x: {2: "past"} for x in PAST} | {f"{x}_present": {2: "present"} for x in PAST},
        )  # fmt: skip
    return file.getvalue()


def onnx_stepper(model: bytes, threads: int) -> tuple[Any, Any]:
    """onnxruntime as the library that Generation needs, and its step, whose first call makes the session."""
    import onnxruntime

    @cache
    def session() -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def step(token: Any, at: int, memory: Any) -> Any:
        binding = session().io_binding()
        binding.bind_cpu_input("token", token)
        binding.bind_cpu_input("at", np.array([[at]]))
        for name, value in zip(PAST, chain(*memory)):
            binding.bind_ortvalue_input(name, value)
        for output in session().get_outputs():
            binding.bind_output(output.name)
        session().run_with_iobinding(binding)
        token, *kept = binding.get_outputs()
        return token.numpy(), zip(kept[::2], kept[1::2])

    def zeros(size: tuple[int, ...]) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(size, np.float32))

    return SimpleNamespace(zeros=zeros, tensor=np.array, no_grad=nullcontext), step


class Generation:
    """A contender's tokens so far."""

    def __init__(self, library: Any, step: Any, style: str, longest: int):
        size = (1, HEADS, 0 if style == "cat" else longest, WIDTH // HEADS)
        self.memory = [(library.zeros(size), library.zeros(size)) for _ in range(DEPTH)]
        self.library, self.step, self.token, self.told = library, step, library.tensor([[11]]), []

    def run(self, count: int) -> float:
        """Generate so many more; the seconds that takes."""
        sleep(REST)
        start = perf_counter()
        with self.library.no_grad():
            for _ in range(count):
                self.token, self.memory = self.step(self.token, len(self.told), self.memory)
                self.told.append(self.token.item())
        return perf_counter() - start


class Bandwidth:
    """What two threads read of 1 GiB, in bytes a second, each time that it is asked."""

    def __init__(self) -> None:
        self.halves = np.ones((2, 1 << 27), np.float32)
        self.pool = ThreadPoolExecutor(2)

    def __call__(self) -> float:
        sleep(REST)
        start = perf_counter()
        [*self.pool.map(lambda half: half.view(np.int64).max(), self.halves)]
        return self.halves.nbytes / (perf_counter() - start)


def rows(threads: int, tokens: int, styles: list[str]) -> list[str]:
    import torch

    import lamina

    lamina.set_num_threads(threads)
    torch.set_num_threads(threads)
    bandwidth, lines = Bandwidth(), []
    models = {library: decoder(library, tokens) for library in (lamina, torch)}
    read = sum(p.nbytes for p in models[torch].parameters())
    read -= sum(m.weight.nbytes for m in (models[torch].tokens, models[torch].places))
    start = perf_counter()
    graph = onnx_bytes(models[torch]) if "onnxruntime" in NAMES else b""
    exporting = perf_counter() - start
    for style in styles:
        steps = {library: stepper(library, model, style, tokens) for library, model in models.items()}
        traced = lamina.jit.trace(steps[lamina], budget=None)
        contenders = {"traced": (lamina, traced, style), "torch": (torch, steps[torch], style)}
        if graph:
            contenders["onnxruntime"] = *onnx_stepper(graph, threads), "cat"
        first, again = (
            {name: Generation(*contender, tokens) for name, contender in contenders.items()} for _ in range(2)
        )
        Generation(*contenders["torch"], tokens).run(1)
        totals = [generation.run(tokens) for generation in first.values()]
        same = sum(len({*told}) == 1 for told in zip(*(g.told for g in first.values()))) / tokens
        recorded = traced.counts()["recorded"]
        times: dict[str, list[float]] = {name: [] for name in NAMES}
        memory = []
        for turn in range(tokens // TURN):
            for name in NAMES if turn % 2 else NAMES[::-1]:
                times[name].append(again[name].run(TURN) / TURN)
            memory.append(bandwidth() / read)  # tokens a second that it would do for
        speeds = [(1 / min(t), 1 / statistics.median(t)) for t in times.values()]
        cells = [f"{total:.2f}" for total in totals]
        cells += [f"{best:.1f} ({median:.1f})" for best, median in speeds]
        most, usual = max(memory), statistics.median(memory)
        cells += [f"{best / most:.0%} ({median / usual:.0%})" for best, median in speeds]
        cells.append(f"{most * read / 1e9:.1f} ({usual * read / 1e9:.1f})")
        lines.append(f"{style:<8}{threads:>8}{recorded:>12}{same:>8.0%}{row(cells)}")
    lines.append(f"  {read / 1e6:.0f} MB of weights a token")
    if graph:
        lines[-1] += f"; exporting for onnxruntime took {exporting:.1f} s"
    return lines


def row(cells: list[str]) -> str:
    return "".join(f"{cell:>17}" for cell in cells)


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
        "batch 1: seconds in all with compiling; tokens a second, at best (and in the median); "
        "that of the bandwidth, which stands last, in GB/s",
        f"{'':<8}{'threads':>8}{'recordings':>12}{'same':>8}{row([*NAMES * 3, 'two threads read'])}",
    ]
    if "onnxruntime" not in NAMES:
        lines.append("onnxruntime is left out: it or onnx is not installed")
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
