"""What compiling costs: the first call of a traced network, in its parts, beside the peers' first calls.

    python benchmarks/compile.py [--only resnet18 gpt] [--repeats 3] [--alone] [--write]
    python benchmarks/compile.py --only resnet18_step gpt6_step seq2seq_step --alone

Every figure comes from a process of its own, inference at batch 1; a name that ends in _step is a training
step, which is traced alone, as peers have other optimizers.  Cold: with an empty cache; cached: a
second process with what that one left.  A first call is all of it: for Lamina the eager run that is recorded
and the compiling, for torch.compile (with freezing) and jax.jit tracing, compiling and the run; for
onnxruntime and OpenVINO the making of a session from a model that is in memory.  Imports are not counted.
Least of the repeats, the median in parentheses.  --alone leaves the peers out.  --write puts the tables into
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import networks
import numpy as np
from contest import RESULTS, where
from models import made
from networks import CASES

NETWORKS = ("digits", "mlp", "lenet", "gpt", "mobilenet_v2", "resnet18", "resnet50")
STEPS = ("resnet18_step", "gpt6_step", "seq2seq_step", "truncated_bptt_step")
# Seconds of the first call, in order: the eager run that is recorded; passes over the graph; the program and
# its layouts; the text of its kernels; machine code; loading it.  The rest is mostly writing to the cache.
# "compile" is all of them but the eager run.
PARTS = ("record", "passes", "program", "text", "llvm", "load", "rest")
PEERS = ("torch", "jax", "onnxruntime", "openvino")
WITH_CACHE = ("lamina", "torch")  # those that keep compiled code on disk
SLOWEST = 5


# ---- in the fresh process ----------------------------------------------------------------------------------
def timed(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return perf_counter() - start


class Clock:
    """Adds up what functions take, by the name of the part they are."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(("compile", "proofs", *PARTS), 0.0)

    def watch(self, module: Any, function: str, part: str) -> None:
        """Time a function of a module, or of a class, from now on."""
        watched = getattr(module, function)
        setattr(module, function, lambda *args, **kwargs: self.run(part, watched, *args, **kwargs))

    def run(self, part: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            self.seconds[part] += perf_counter() - start


def of_lamina(name: str, slowest: bool) -> dict[str, Any]:
    """The first call of the traced network, in parts; with `slowest`, each code compiled by itself."""
    import lamina

    case = CASES[name]
    model, x = made(case, lamina).eval(), lamina.tensor(case.inputs(1))
    traced = lamina.jit.trace(model)
    with lamina.no_grad():
        eager = min(timed(lambda: model(x)) for _ in range(2))
        answer = compiling(lambda: traced(x), 1, slowest)
        wanted, found = model(x).numpy(), traced(x).numpy()
    # Compared to show that what was compiled is the network, not how exact it is.
    if not np.abs(found - wanted).max() < 1e-3 * np.abs(wanted).max():
        raise SystemExit(f"{name}: the compiled network computes something else")
    return answer | {"eager": eager}


def of_lamina_step(name: str, slowest: bool) -> dict[str, Any]:
    """The first two calls of a training step: an optimizer makes its states in the first."""
    import lamina

    lamina.manual_seed(0)
    return compiling(step_of(name), 2, slowest)


def step_of(name: str) -> Callable[[], Any]:
    import before

    import lamina

    if name == "resnet18_step":
        return before.timed("resnet18", "train")
    if name == "gpt6_step":
        return gpt_step(lamina)
    from programs import PROGRAMS, sequences  # noqa: F401 - enters them

    programs = {"seq2seq_step": "seq2seq_attention", "truncated_bptt_step": "truncated_bptt"}
    step = PROGRAMS[programs[name]](lamina, lamina.jit.trace)
    return lambda: step(0)


def gpt_step(lamina: Any) -> Callable[[], Any]:
    """Six layers, AdamW, clipped gradients."""
    import before

    case = replace(CASES["gpt"], make=partial(networks.gpt, depth=6))
    model = made(case, lamina).train()
    optimizer = lamina.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = lamina.tensor(case.inputs(case.training, training=True)), lamina.tensor(case.labels(case.training))
    return before.training_step(model, optimizer, x, y, clipped=1.0)


def compiling(call: Callable[[], Any], calls: int, slowest: bool) -> dict[str, Any]:
    """What compiling takes in the first calls of a traced function, in parts."""
    from lamina.jit import backend, targets
    from lamina.runtime import native

    clock, codes = Clock(), []
    compile_graph = backend.compile_graph

    def kept(*args, **kwargs):
        codes.append(compile_graph(*args, **kwargs).code)
        return codes[-1]

    def bound(*args, **kwargs):
        return backend.Bound(clock.run("compile", kept, *args, **kwargs))

    backend.compile_graph = bound  # type: ignore[assignment]
    clock.watch(backend, "optimise", "passes")
    clock.watch(targets, "to_program", "program")
    clock.watch(targets, "prologue", "program")
    clock.watch(native, "link", "text")
    watch_proofs(clock)
    before = os.times()
    seconds = timed(lambda: [call() for _ in range(calls)])
    spent = sum(os.times()[:4]) - sum(before[:4])
    executables = [e for code in codes for e in (code.first, code.main) if e is not None]
    from_disk = all(code.from_disk for code in codes)
    parts = dict(clock.seconds)
    total, proofs = parts.pop("compile"), parts.pop("proofs")
    parts["record"] = seconds - total
    parts["load"] = sum(e.statistics.load_seconds for e in executables)
    # Beside the text: a helper has compiled while it was written.
    parts["llvm"] = sum(e.statistics.compile_seconds for e in executables) - parts["text"]
    if from_disk:
        parts["llvm"] = 0.0
    parts["rest"] = max(0.0, total - sum(parts[p] for p in PARTS[1:-1]))
    answer = {
        "first": seconds,
        "cpu": spent,
        "compile": total,
        "proofs": proofs,
        "parts": parts,
        "from_disk": from_disk,
        "kernels": sum(e.manifest.kernels for e in executables),
        "codes": sum(e.manifest.codes for e in executables),
        "bytes": sum(len(o) for e in executables for o in e.objects),
    }
    if slowest:
        programs = [program for code in codes for program in code.programs()]
        answer["slowest"] = slowest_codes(programs)
    return answer


def watch_proofs(clock: Clock) -> None:
    """What it takes to prove that no code leaves its arrays: kernels, and accesses as they are written."""
    from lamina.passes.llvm import generate
    from lamina.passes.llvm.conv_function import Function
    from lamina.passes.llvm.memory import Memory

    watched = (generate, "prove"), (Memory, "stays_inside"), (Memory, "keeps_inside"), (Function, "holds")
    for place, name in watched:
        clock.watch(place, name, "proofs")


def slowest_codes(programs: Any) -> list[tuple[str, float, float, int]]:
    """(kernel, seconds of its text, of its machine code, bytes) of the slowest codes, compiled one by one."""
    from lamina.passes.llvm.binding import emit_object, host_target
    from lamina.passes.llvm.link import code_of, module_text

    target, found = host_target(), {}
    for program in programs:
        for call in program.calls:
            start = perf_counter()
            code = code_of(call, target)
            text = perf_counter() - start
            symbols = tuple(phase.symbol for phase in code.phases)
            if symbols not in found:
                start = perf_counter()
                made = emit_object(module_text(call, code), target)
                found[symbols] = (call.name, text, perf_counter() - start, len(made))
    return sorted(found.values(), key=lambda f: -f[1] - f[2])[:SLOWEST]


def of_torch(name: str) -> dict[str, Any]:
    import torch
    import torch._inductor.config as config

    config.freezing = True
    case = CASES[name]
    model, x = made(case, torch).eval(), torch.tensor(case.inputs(1))
    with torch.no_grad():
        model(x)
        return {"first": timed(lambda: torch.compile(model)(x))}


def of_jax(name: str) -> dict[str, Any]:
    import jax
    import jax_library
    import peers

    jax.numpy.zeros(1).block_until_ready()  # starts it
    case = CASES[name]
    return {"first": timed(peers.jax_jit(made(case, jax_library), case.inputs(1)))}


def of_session(peer: str, name: str, model: Path) -> dict[str, Any]:
    import peers

    data, threads = model.read_bytes(), len(os.sched_getaffinity(0))
    __import__(peer)
    return {"first": timed(lambda: getattr(peers, peer)(data, CASES[name].inputs(1), threads))}


def export(name: str, path: Path) -> None:
    """The network as ONNX, for those that take it so."""
    import peers
    import torch

    path.write_bytes(peers.onnx_bytes(made(CASES[name], torch), CASES[name].inputs(1)))


def answer(contender: str, name: str, folder: Path, slowest: bool) -> dict[str, Any]:
    if contender == "export":
        export(name, folder / "model.onnx")
        return {}
    if contender in ("onnxruntime", "openvino"):
        return of_session(contender, name, folder / "model.onnx")
    if contender == "lamina":
        return (of_lamina_step if name in STEPS else of_lamina)(name, slowest)
    return {"torch": of_torch, "jax": of_jax}[contender](name)


# ---- in the process that asks ------------------------------------------------------------------------------
def ask(contender: str, name: str, folder: Path, cache: Path, *flags: str) -> dict[str, Any]:
    """The answer of a fresh process whose caches are in `cache`."""
    into = folder / "answer.json"
    environment = {
        "LAMINA_CACHE_DIR": str(cache / "lamina"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torch"),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, __file__, "--child", contender, name, str(folder), "--into", str(into), *flags]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{contender}, {name}:\n{done.stderr[-2000:]}")
    return json.loads(into.read_text())


def measure(name: str, contenders: list[str], repeats: int) -> dict[str, list[dict[str, Any]]]:
    """All answers about a network, by contender, with " cached" for those of second processes."""
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="lamina-compile-") as temporary:
        folder = Path(temporary)
        if {"onnxruntime", "openvino"} & set(contenders):
            ask("export", name, folder, folder)
        for repeat in range(repeats):
            for contender in contenders:
                with tempfile.TemporaryDirectory(dir=folder) as cache:
                    cold = ask(contender, name, folder, Path(cache))
                    found.setdefault(contender, []).append(cold)
                    if contender in WITH_CACHE:
                        # The second process has made no text yet, so it can tell what each takes.
                        flags = ["--slowest"] if contender == "lamina" and not repeat else []
                        cached = ask(contender, name, folder, Path(cache), *flags)
                        found.setdefault(f"{contender} cached", []).append(cached)
    assert all(run["from_disk"] for run in found["lamina cached"]), "the second process compiled again"
    return found


def cell(values: list[float], scale: float = 1e3) -> str:
    least, median = min(values) * scale, statistics.median(values) * scale
    return f"{spelled(least)} ({spelled(median)})"


def spelled(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def parts_table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> list[str]:
    columns = [*PARTS, "compile", "from cache", "CPU, all", "eager call"]
    lines = [
        f"{'ms, cold':<20}" + "".join(f"{c:>14}" for c in columns) + f"{'kernels':>9}{'codes':>7}{'KiB':>6}"
    ]
    for name, runs in found.items():
        cold, cached = runs["lamina"], runs["lamina cached"]
        cells = [cell([run["parts"][part] for run in cold]) for part in PARTS]
        cells += [cell([r["compile"] for r in cold]), cell([r["compile"] for r in cached])]
        cells += [
            cell([r["cpu"] for r in cold]),
            cell([r["eager"] for r in cold]) if "eager" in cold[0] else "-",
        ]
        one = cold[0]
        lines.append(
            f"{name:<20}"
            + "".join(f"{c:>14}" for c in cells)
            + f"{one['kernels']:>9}{one['codes']:>7}{one['bytes'] / 1024:>6.0f}"
        )
    return lines


def peers_table(found: dict[str, dict[str, list[dict[str, Any]]]], contenders: list[str]) -> list[str]:
    columns = [c for name in contenders for c in ([name, f"{name} cached"] if name in WITH_CACHE else [name])]
    titles = {"torch": "torch.compile", "torch cached": "cached", "lamina cached": "cached", "jax": "jax.jit"}
    lines = [f"{'ms, first call':<14}" + "".join(f"{titles.get(c, c):>18}" for c in columns)]
    for name, runs in found.items():
        lines.append(f"{name:<14}" + "".join(f"{cell([r['first'] for r in runs[c]]):>18}" for c in columns))
    return lines


def proofs_table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> list[str]:
    lines = [f"{'ms, in text':<20}{'proofs':>9}{'of compiling':>14}"]
    for name, runs in found.items():
        proofs = min(run["proofs"] for run in runs["lamina"])
        share = proofs / min(run["compile"] for run in runs["lamina"])
        lines.append(f"{name:<20}{proofs * 1e3:>9.1f}{share:>13.1%}")
    return lines


def slowest_table(found: dict[str, dict[str, list[dict[str, Any]]]]) -> list[str]:
    lines = [f"{'slowest codes, one by one':<26}{'ms text':>9}{'ms LLVM':>9}{'KiB':>7}  kernel"]
    for name, runs in found.items():
        for kernel, text, machine, size in runs["lamina cached"][0]["slowest"]:
            lines.append(f"{name:<26}{text * 1e3:>9.1f}{machine * 1e3:>9.1f}{size / 1024:>7.1f}  {kernel}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[*NETWORKS, *STEPS], choices=[*CASES, *STEPS])
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes for each figure (3)")
    parser.add_argument("--alone", action="store_true", help="leave the peers out")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/compile.*")
    # How a fresh process is asked.
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--slowest", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        contender, name, folder = arguments.child
        arguments.into.write_text(json.dumps(answer(contender, name, Path(folder), arguments.slowest)))
        return
    peers = [] if arguments.alone else [p for p in PEERS if find_spec(p)]
    if missing := set(PEERS) - set(peers):
        print(f"not compared: {', '.join(sorted(missing))}")
    head = f"{where()}; load {os.getloadavg()[0]:.1f}; least of {arguments.repeats} (median)"
    print(head, flush=True)
    found, text = {}, head
    for name in arguments.only:
        found[name] = measure(name, ["lamina", *(peers if name in CASES else [])], arguments.repeats)
        print(f"measured: {name}", flush=True)
        compared = {name: runs for name, runs in found.items() if name in CASES}
        tables = [parts_table(found), peers_table(compared, ["lamina", *peers])]
        tables += [proofs_table(found), slowest_table(found)]
        text = "\n\n".join([head, *("\n".join(table) for table in tables)])
        if arguments.write:  # after each, as all of them take long
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "compile.txt").write_text(f"{text}\n")
            (RESULTS / "compile.json").write_text(
                json.dumps({"head": head, "networks": found}, indent=1) + "\n"
            )
    print(f"\n{text}")


if __name__ == "__main__":
    main()
