"""Mutated ONNX files, loaded and run in processes of their own: no crash, no hang, no error but Lamina's.

    python tests/exchange/mutated_onnx.py [--count 2000] [--seed 0] [--workers 2]

Each worker takes models of the node tests, changes some bytes or some fields of the message, and loads and
runs what comes out, within 4 GiB of memory and 20 seconds.  A worker that dies is a finding, with the file's
seed; so is any exception that is neither Lamina's nor MemoryError.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import signal
import sys
import traceback
from collections import Counter
from typing import Any

import node_tests

MEMORY, SECONDS = 4 << 30, 20


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with some changed, left out, doubled or exchanged."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not changed:
            break
        at, size = rng.randrange(len(changed)), rng.choice((1, 1, 2, 4, 8))
        match rng.randrange(5):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + size]
            case 2:
                changed[at:at] = changed[at : at + size]
            case 3:
                changed[at] ^= 1 << rng.randrange(8)
            case 4:
                changed[at : at + size] = rng.choice((b"\x00", b"\xff", b"\x7f", b"\x80")) * size
    return bytes(changed)


def altered(data: bytes, rng: random.Random) -> bytes:
    """A model that is still a message, with numbers and names that mean something else."""
    import onnx

    model = onnx.ModelProto()
    model.ParseFromString(data)
    graph = model.graph
    numbers = (-1, 0, 1, 2, 7, 1 << 31, (1 << 63) - 1, -(1 << 63))
    for _ in range(rng.choice((1, 1, 2, 3))):
        node = rng.choice(graph.node) if graph.node else None
        match rng.randrange(6):
            case 0 if node is not None and node.attribute:
                attribute = rng.choice(node.attribute)
                attribute.i = rng.choice(numbers)
                for at in range(len(attribute.ints)):
                    if rng.random() < 0.5:
                        attribute.ints[at] = rng.choice(numbers)
                attribute.f = rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
            case 1 if node is not None and node.input:
                names = [each.name for each in graph.input] + [o for n in graph.node for o in n.output] + [""]
                node.input[rng.randrange(len(node.input))] = rng.choice(names)
            case 2 if node is not None:
                node.op_type = rng.choice(graph.node).op_type
            case 3 if node is not None and node.attribute:
                del node.attribute[rng.randrange(len(node.attribute))]
            case 4 if graph.initializer:
                tensor = rng.choice(graph.initializer)
                tensor.dims[:] = [rng.choice(numbers) for _ in tensor.dims]
            case 5 if model.opset_import:
                model.opset_import[0].version = rng.randrange(1, 30)
    return model.SerializeToString()


def allowed(error: BaseException) -> bool:
    import lamina

    return isinstance(error, (lamina.LaminaError, MemoryError))


def work(seeds: range, findings: Any, about: Any) -> None:
    """Try the files of these seeds; `about` tells whoever looks which one is tried."""
    import lamina

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    lamina.set_num_threads(1)
    tests = list(node_tests.every([]))
    for seed in seeds:
        about.value = seed
        rng = random.Random(seed)
        test = rng.choice(tests)
        data = test.model.SerializeToString()
        signal.alarm(SECONDS)
        try:
            file = altered(data, rng) if rng.random() < 0.6 else mutated(data, rng)
            model = lamina.onnx.load(file)
            inputs = list(map(node_tests.given, test.data_sets[0][0]))
            if rng.random() < 0.3 and inputs:
                inputs[rng.randrange(len(inputs))] = lamina.ones(
                    *(rng.randrange(4) for _ in range(rng.randrange(4)))
                )
            with lamina.no_grad():
                model(*inputs)
            findings.put((seed, "ran", ""))
        except BaseException as error:
            kind = "refused" if allowed(error) else f"{type(error).__name__}: {str(error)[:160]}"
            where = "" if kind == "refused" else traceback.format_exc().splitlines()[-3].strip()
            findings.put((seed, kind, f"{test.name} {where}"))
        finally:
            signal.alarm(0)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    findings: Any = context.Queue()
    counts: Counter[str] = Counter()
    faults: list[str] = []
    first, end = options.seed, options.seed + options.count
    spans = [range(first + n, end, options.workers) for n in range(options.workers)]
    running: list[tuple[Any, range, Any]] = []

    def begin(seeds: range) -> None:
        about = context.Value("q", -1)
        process = context.Process(target=work, args=(seeds, findings, about))
        process.start()
        running.append((process, seeds, about))

    for span in spans:
        begin(span)
    while running:
        for entry in list(running):
            process, seeds, about = entry
            process.join(0.2)
            while not findings.empty():
                seed, kind, where = findings.get()
                counts["ran" if kind == "ran" else "refused" if kind == "refused" else "fault"] += 1
                if kind not in ("ran", "refused"):
                    faults.append(f"seed {seed}: {kind}  [{where}]")
            if process.is_alive():
                continue
            running.remove(entry)
            if process.exitcode:
                counts["died"] += 1
                faults.append(f"seed {about.value}: the process died with {process.exitcode}")
                rest = range(about.value + seeds.step, seeds.stop, seeds.step)
                if rest:
                    begin(rest)
        if sys.stderr.isatty():
            print(f"\r{dict(counts)}", end="", file=sys.stderr, flush=True)
    print(*faults[:200], sep="\n")
    print(f"{options.count} files: {dict(counts)}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
