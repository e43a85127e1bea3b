"""What tracing itself costs: guards and launch of small functions, and the recording run of a large model.

    python benchmarks/jit.py [--rounds 40] [--write]

- *a call*: a traced function of tensors so small that the kernels are nothing, against torch.compile (whose
  inductor backend needs a C++ compiler; without one its guards run with the backend "eager") and jax.jit on
  the same function, in turn; and against its own native code entered with arrays that stand ready, so that
  what is left is guards, finding the path, and making the results.
- *a model*: 60 modules with three attributes each, called for inference.
- *recording*: how much longer the first call of a traced ResNet-50 takes before its compilation begins than
  an eager call.

One thread; minima, and medians behind them.  --write puts the table into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import networks
import numpy as np
import torch
from contest import where

import lamina
from lamina import jit, nn
from lamina.jit.replay import Call

RESULTS = Path(__file__).parent / "results"


class Block(nn.Module):
    """A module with three attributes that its forward reads."""

    def __init__(self, number: int):
        super().__init__()
        self.weight = nn.Parameter(lamina.ones(4))
        self.scale, self.shift, self.flip = 1.0 + number * 1e-3, 0.5, number % 2 == 0

    def forward(self, x):
        y = x * self.weight * self.scale + self.shift
        return -y if self.flip else y


class Model(nn.Module):
    """Sixty blocks in a row."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(number) for number in range(60)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class TorchBlock(torch.nn.Module):
    """The same for torch."""

    def __init__(self, number: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.scale, self.shift, self.flip = 1.0 + number * 1e-3, 0.5, number % 2 == 0

    def forward(self, x):
        y = x * self.weight * self.scale + self.shift
        return -y if self.flip else y


class TorchModel(torch.nn.Module):
    """The same for torch."""

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([TorchBlock(number) for number in range(60)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def pair(x, y):
    """Two tensors in, one out."""
    return x * y + x


def native(traced: Any, *given: Any) -> Callable[[], Any]:
    """The one segment of a traced function, entered with arrays that stand ready."""
    (tree,) = traced._trees.values()
    (segment,) = tree.segments()
    code = segment.code
    call = Call([*given, *[None] * 64], traced._registry)
    arrays = [call.array(tree.sources[key]) for key in segment.inputs]
    if code.prologue is not None:
        arrays = [*arrays, *reversed(code.prologue.run([arrays[i] for i in code._at]))]
    main, picked = code._main, code._pick(arrays)
    return lambda: main(*picked)


def per_call(run: Callable[[], Any], count: int) -> float:
    """Microseconds of one call."""
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count * 1e6


def race(contenders: dict[str, Callable[[], Any]], rounds: int, count: int) -> dict[str, tuple[float, float]]:
    """Microseconds of each, minimum and median, measured in turn."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        per_call(run, count)
    for _ in range(rounds):
        for name, run in contenders.items():
            times[name].append(per_call(run, count))
    return {name: (min(found), statistics.median(found)) for name, found in times.items()}


def compiled(function: Any) -> tuple[str, Any]:
    """torch.compile's version of a function, and the name of the backend that could be had."""
    for backend in ("inductor", "eager"):
        try:
            made = torch.compile(function, backend=backend)
            with torch.no_grad():
                made(*[torch.ones(4)] * (2 if function is pair else 1))
            return f"torch.compile ({backend})", made
        except Exception as error:
            print(f"torch.compile, backend {backend}: {type(error).__name__}; the next one is tried")
            torch._dynamo.reset()
    raise RuntimeError("torch.compile has no backend here")


def calls(rounds: int) -> list[str]:
    """The table of calls."""
    import jax

    lines = []
    with lamina.no_grad(), torch.no_grad():
        traced, given = jit.trace(pair), (lamina.ones(4), lamina.ones(4))
        model = Model().eval()
        whole, x = jit.trace(model), lamina.ones(4)
        for _ in range(3):
            traced(*given)
            whole(x)
        name, peer = compiled(pair)
        _, peer_model = compiled(TorchModel().eval())
        a, b, t = torch.ones(4), torch.ones(4), torch.ones(4)
        jitted, j = jax.jit(pair), jax.numpy.ones(4)
        tables = {
            "two tensors": {
                "lamina": lambda: traced(*given), "lamina, native code alone": native(traced, *given),
                name: lambda: peer(a, b), "jax.jit": lambda: jitted(j, j), "torch eager": lambda: pair(a, b),
            },
            "60 modules": {
                "lamina": lambda: whole(x), "lamina, native code alone": native(whole, x),
                name: lambda: peer_model(t),
            },
        }  # fmt: skip
        for title, contenders in tables.items():
            found = race(contenders, rounds, 500)
            lines.append(f"{title}: microseconds of a call, minimum (median)")
            lines += [f"  {who:<28}{low:8.2f} ({mid:.2f})" for who, (low, mid) in found.items()]
            left = found["lamina"][0] - found["lamina, native code alone"][0]
            lines.append(f"  {'guards, path and results':<28}{left:8.2f}")
    return lines


def recording(rounds: int = 8) -> list[str]:
    """How long the recording run of ResNet-50 is, beyond the least of five eager calls."""
    x = lamina.from_numpy(np.random.default_rng(0).standard_normal((1, 3, 64, 64)).astype(np.float32))
    beyond, eager = [], []
    for _ in range(rounds):
        model = networks.resnet50(lamina).eval()
        with lamina.no_grad():
            eager.append(min(per_call(lambda: model(x), 1) for _ in range(5)) * 1e-6)  # noqa: B023 - called here
            traced = jit.trace(model)
            traced(x)
        record = traced.explain(as_dict=True)["paths"][0]["record_seconds"]
        beyond.append(record - eager[-1])
    return [
        "recording ResNet-50 (batch 1, 64 x 64), milliseconds beyond an eager call",
        f"  {min(beyond) * 1e3:.1f} (median {statistics.median(beyond) * 1e3:.1f})",
        f"  an eager call: {min(eager) * 1e3:.1f}",
    ]


def main() -> None:
    """Measure, print, and write on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lamina.set_num_threads(1)
    lines = [f"{date.today()}, {where(1)}", *calls(chosen.rounds), *recording()]
    print("\n".join(lines))
    if chosen.write:
        (RESULTS / "jit.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
