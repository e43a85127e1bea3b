"""The battery of tests/soundness, run by Lamina and by its peers: who is silently wrong, and how often.

    python benchmarks/soundness.py [--only torch.compile ...] [--words globals ...] [--inductor] [--write]

Each program changes something between calls; a tracer's calls are compared with the same program undecorated,
in the same library.  Silently wrong: another value, type, layout, alias or side effect, and no exception.
torch.compile runs with the backend {backend}: what is compared are its guards and its capture, which
are dynamo's whatever the backend.  torch.jit.trace is given each function's first arguments as its example.
JAX runs the programs that are declared for it, against jax.numpy undecorated; its contract asks for functions
that read nothing but their arguments, so this counts what keeping to it is left to its users to see.  jit
turns the numbers that a function returns into arrays, so the undecorated run does too.  Warnings and
tracebacks are compared for Lamina alone.  A call counts as served when compiled code ran in it and nothing
was recorded or compiled; for torch.compile also where it ran in part; calls that raise are not counted.
tests/soundness/refusable.py lists the programs that can only be refused (clocks, files, chance, frames, ...)
and one that goes through a hole which Lamina documents: it is wrong there, and counted apart.  Each tracer
runs in a process of its own, which is renewed where a program brings it down.
"""

from __future__ import annotations

import argparse
import functools
import logging
import multiprocessing
import os
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "soundness"))

import battery
import numpy as np
from battery import EAGER, TRACED, Verdict
from contest import RESULTS, where
from observations import Library

SECONDS = 120  # a program may take; then its process is ended
NEEDS = {"lamina": "lamina", "torch.compile": "torch", "torch.jit.trace": "torch", "jax.jit": "jax"}


# ---- the peers ---------------------------------------------------------------------------------------------
def _torch_array(x: Any) -> np.ndarray:
    import ml_dtypes
    import torch

    x = x.detach()
    if x.dtype == torch.bfloat16:
        return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return x.numpy()


def _torch_fields(o: Any) -> dict[str, Any] | None:
    """Attributes of an object, without the marks that torch.compile leaves on modules and tensors."""
    found = getattr(o, "__dict__", None)
    return found and {n: v for n, v in found.items() if not n.startswith(("_is_torch_compile", "_dynamo_"))}


def _torch(name: str, trace: Callable, counts: Callable = lambda traced: (0, 0)) -> tuple[Library, Library]:
    import torch

    common: dict[str, Any] = {
        "tensor": torch.Tensor, "array": _torch_array, "fields": _torch_fields, "strict": False,
    }  # fmt: skip
    return Library("torch", torch, **common), Library(name, torch, trace=trace, counts=counts, **common)


def torch_compile(inductor: bool) -> tuple[Library, Library]:
    import torch
    from torch._dynamo import list_backends, lookup_backend

    assert "aot_eager" in list_backends(exclude_tags=())
    below = lookup_backend("inductor" if inductor else "aot_eager")
    made = Counter()

    def backend(graph: Any, inputs: Any) -> Callable:
        made["compiled"] += 1
        compiled = below(graph, inputs)

        def run(*args: Any) -> Any:
            made["ran"] += 1
            return compiled(*args)

        return run

    def trace(function: Any) -> Any:
        return torch.compile(function, backend=backend)

    return _torch("torch.compile", trace, lambda traced: (made["ran"], made["compiled"]))


def torch_jit_trace() -> tuple[Library, Library]:
    import torch

    def trace(function: Any) -> Any:
        traced: list[Any] = []

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not traced:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # that jit.trace itself is deprecated
                    warnings.simplefilter("ignore", FutureWarning)
                    example: dict[str, Any] = {"example_kwarg_inputs": kwargs} if kwargs else {}
                    inputs = {} if kwargs else {"example_inputs": args}
                    traced.append(torch.jit.trace(function, **inputs, **example, check_trace=False))
                    call.count = 0
            else:
                call.count += 1
            return traced[0](*args, **kwargs)

        call.count = 0
        return call

    return _torch("torch.jit.trace", trace, lambda traced: (getattr(traced, "count", 0), 0))


def jax_jit() -> tuple[Library, Library]:
    import jax
    import jax.numpy as jnp

    names = types.SimpleNamespace(**{n: v for n, v in vars(jnp).items() if not n.startswith("_")})
    names.tensor, names.relu = jnp.asarray, jax.nn.relu

    def as_arrays(function: Callable) -> Callable:
        return lambda *args, **kwargs: jax.tree.map(jnp.asarray, function(*args, **kwargs))

    def trace(function: Callable) -> Callable:
        count = Counter()

        def heard(*args: Any, **kwargs: Any) -> Any:
            count["traced"] += 1
            return function(*args, **kwargs)

        jitted = jax.jit(heard)

        def call(*args: Any, **kwargs: Any) -> Any:
            count["calls"] += 1
            return jitted(*args, **kwargs)

        call.count = count
        return call

    common: dict[str, Any] = {
        "tensor": jax.Array, "array": np.asarray, "strict": False, "modes": lambda module: (),
    }  # fmt: skip
    eager = Library("jax", names, trace=as_arrays, **common)
    return eager, Library(
        "jax.jit", names, trace=trace,
        counts=lambda f: (f.count["calls"] - f.count["traced"], f.count["traced"]), **common,
    )  # fmt: skip


def libraries(name: str, inductor: bool) -> tuple[Library, Library]:
    """A tracer, and the library that it traces, undecorated."""
    if name == "lamina":
        return EAGER, TRACED
    return {"torch.compile": lambda: torch_compile(inductor), "torch.jit.trace": torch_jit_trace,
            "jax.jit": jax_jit}[name]()  # fmt: skip


# ---- in a process of its own -------------------------------------------------------------------------------
def serve(pipe: Any, name: str, inductor: bool) -> None:
    """Judge the programs whose kinds and names come, until None comes."""
    logging.disable(logging.NOTSET)
    eager, traced = libraries(name, inductor)
    if name == "torch.compile":
        import torch

        torch._logging.set_logs(all=logging.CRITICAL)
    found = {(p.kind, p.name): p for p in battery.programs()}
    while (asked := pipe.recv()) is not None:
        program = found[asked]
        if name == "torch.compile":
            torch._dynamo.reset()
        try:
            reference = battery.ran(program, eager)
        except Exception as error:  # the program uses what this library has not
            pipe.send(f"{type(error).__name__}: {error}")
            continue
        verdict = battery.judged(program, reference, traced)
        pipe.send(
            (verdict.wrong, verdict.loud, verdict.warned, verdict.calls, verdict.served, verdict.reasons)
        )


class Process:
    """A process that judges programs, renewed when one brings it down or holds it up."""

    def __init__(self, name: str, inductor: bool):
        self.arguments = name, inductor
        self.process: Any = None

    def judge(self, program: battery.Program) -> Verdict | str:
        """The verdict on a program, or why this library can't run it undecorated."""
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=serve, args=(other, *self.arguments), daemon=True)
            self.process.start()
            other.close()
        try:
            self.pipe.send((program.kind, program.name))
            if not self.pipe.poll(SECONDS):
                raise EOFError
            found = self.pipe.recv()
        except (EOFError, OSError):
            self.process.kill()
            self.process = None
            return Verdict(
                program, "the process ended or stood still", True, False, Counter(), Counter(), Counter()
            )
        return found if isinstance(found, str) else Verdict(program, *found)

    def end(self) -> None:
        if self.process is not None:
            self.pipe.send(None)
            self.process.join()


# ---- the tables --------------------------------------------------------------------------------------------
HEADINGS = (
    "tracer", "programs", "do not run undecorated", "silently wrong", "of these with a warning",
    "raise another exception, or where eager does not", "calls served as given", "calls served settled",
    "programs served settled", "of those that need not be refused",
)  # fmt: skip


def row(name: str, verdicts: list[Verdict], left_out: int) -> tuple[str, ...]:
    n = max(1, len(verdicts))
    silent = [v for v in verdicts if v.silent]
    servable = [v for v in verdicts if not v.refusable]
    shares = []
    for phase in ("given", "settled"):
        served, calls = sum(v.served[phase] for v in verdicts), sum(v.calls[phase] for v in verdicts)
        shares.append(f"{served / max(1, calls):.0%}")
    return (
        name, str(len(verdicts)), str(left_out), f"{len(silent)} ({len(silent) / n:.0%})",
        str(sum(v.warned for v in silent)), str(sum(v.wrong is not None and v.loud for v in verdicts)),
        *shares, f"{sum(v.settled for v in verdicts) / n:.0%}",
        f"{sum(v.settled for v in servable) / max(1, len(servable)):.1%}",
    )  # fmt: skip


def markdown(rows: list[tuple[str, ...]]) -> list[str]:
    head, *body = rows
    return [f"| {' | '.join(r)} |" for r in (head, ("---", *("--:" for _ in head[1:])), *body)]


def report(found: dict[str, tuple[list[Verdict], int]], backend: str) -> str:
    """The page of results."""
    text = (__doc__ or "").split("\n\n", 2)[2].strip().format(backend=backend)
    lines = [
        "# Soundness: what tracers make of programs that change something between calls",
        "",
        where(),
        "",
    ]
    lines += [text, "", *markdown([HEADINGS, *(row(n, v, out) for n, (v, out) in found.items())])]
    lines += ["", "## Silently wrong, by kind of program", ""]
    kinds = sorted({v.program.kind for verdicts, _ in found.values() for v in verdicts})
    table = [("kind", *found)]
    for kind in kinds:
        cells = []
        for verdicts, _ in found.values():
            group = [v for v in verdicts if v.program.kind == kind]
            cells.append(f"{sum(v.silent for v in group)} of {len(group)}" if group else "")
        table.append((kind, *cells))
    lines += markdown(table)
    for name, (verdicts, _) in found.items():
        wrong = [f"{v.program.name} ({v.program.kind})" for v in verdicts if v.silent]
        if wrong:
            lines += ["", f"## Programs that {name} gets silently wrong", "", ", ".join(wrong)]
    return "\n".join(lines) + "\n"


def main() -> None:
    text = (__doc__ or "").format(backend="aot_eager, or inductor if asked")
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(NEEDS), default=list(NEEDS))
    parser.add_argument("--words", nargs="+", default=[], help="programs whose kind or name has one of these")
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    chosen = battery.programs(*options.words)
    found: dict[str, tuple[list[Verdict], int]] = {}
    for name in options.only:
        if find_spec(NEEDS[name]) is None:
            print(f"{name}: {NEEDS[name]} is not installed")
            continue
        process, verdicts, left_out = Process(name, options.inductor), [], 0
        for program in chosen:
            if name != "lamina" and not (program.jax if name == "jax.jit" else program.peers):
                continue
            verdict = process.judge(program)
            if isinstance(verdict, str):
                left_out += 1
                print(
                    f"{name}: {program.kind}: {program.name} does not run: {verdict[:200]}", file=sys.stderr
                )
            else:
                verdicts.append(verdict)
                if verdict.wrong is not None:
                    print(f"{name}: {program.kind}: {program.name}: {verdict.wrong[:200]}", file=sys.stderr)
        process.end()
        found[name] = verdicts, left_out
        print("  ".join(row(name, verdicts, left_out)), flush=True)
    page = report(found, "inductor" if options.inductor else "aot_eager")
    print(page)
    if options.write:
        (RESULTS / "soundness.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
