"""Writes random networks as files, quantises them and makes pages of them, for as long as one likes.

    python tests/networks/run_written.py --count 300 --seed 1          each in one way, drawn from its seed
    python tests/networks/run_written.py --seed 17 --way int8.lam      one network in one way, in this process

Ways are `lam`, `so`, `onnx`, `page`, and a scheme of quantisation alone or before one of these: `int8.lam`.
A writer tries its file in a fresh process, on the example and on other batches; a quantised network is
compared traced with eager.  Ends with status 1 where a result is not the network's, an error is not Lamina's,
a process dies or takes longer than --seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from network_drawing import argument, build, draw

import lamina
from lamina import jit
from lamina.jit.artifact import levels_here

SCHEMES = ("int8", "int8-dynamic", "int8-weights", "int4-weights")
FORMATS = ("lam", "so", "onnx", "page")
WAYS = (*FORMATS, *SCHEMES, *(f"{scheme}.{form}" for scheme in SCHEMES for form in FORMATS))
FAULTS = ("is not the function's", "does not run in a fresh process", "ONNX Runtime does not", "does not run")
MEMORY = 6 << 30  # bytes of address space
CLOSE = 80 * 2.0**-23  # of the largest number, traced beside eager: as in network_running


def way_of(seed: int) -> str:
    return Random(seed).choice(WAYS)


def changing(x: Any, seed: int) -> dict | None:
    """The sizes that change in a file: in half of those that can."""
    return {0: {0: "batch"}} if seed % 2 and x.shape[0] > 1 else None


def quantised(model: Any, scheme: str, x: Any, seed: int) -> Any:
    if scheme == "int8":
        return lamina.quantize(model, [(x,)], dynamic=changing(x, seed))
    return lamina.quantize(model, scheme=scheme)


def tried(seed: int, way: str) -> str:
    """What became of a network in a way: "ok", or what refused it.  Raises what is a fault."""
    description = draw(seed) | {"train": False}
    model, _ = build(description, "float32")
    model.eval()
    x = argument(description, 0, "float32")
    if seed % 2:  # whose sizes may change where it is dense
        x = x.contiguous()
    scheme, _, form = way.rpartition(".") if way not in SCHEMES else (way, "", "")
    with lamina.no_grad():
        if not np.isfinite(model(x).numpy()).all():
            return "set aside"
        if scheme:
            model = quantised(model, scheme, x, seed)
            compare(model, x)
        if form:
            written(model, x, form, seed)
    return "ok"


def compare(model: Any, x: Any) -> None:
    """A quantised network traced is the eager one: integers are exact, what is around them rounds."""
    wanted, function = model(x).numpy(), jit.trace(model)
    for _ in range(2):
        found = function(x).numpy()
        off = np.abs(found - wanted)
        largest = np.abs(wanted).max(initial=1e-6)
        # A number at the border of two steps may fall to either side: a step is 1/127 of the range or less.
        if found.shape != wanted.shape or not (
            np.median(off) <= CLOSE * largest or off.max() <= largest / 16
        ):
            raise AssertionError(
                f"traced and eager differ by {off.max() / largest:.3g} of the largest number"
            )


def written(model: Any, x: Any, form: str, seed: int) -> None:
    dynamic = changing(x, seed)
    with tempfile.TemporaryDirectory() as folder:
        if form == "page":
            path = Path(folder, "page.html")
            jit.show(model, path, x, time=bool(seed % 3))
            assert path.stat().st_size > 10_000
            return
        levels = {} if form == "onnx" else {"levels": levels_here()[seed % len(levels_here()) :][:1]}
        path = Path(folder, f"model.{form}")
        jit.export(model, path, x, dynamic=dynamic, **levels)
        if form == "lam":
            wanted = model(x).numpy()
            for native in (True, False):
                found = jit.load(path, native=native)(x).numpy()
                assert np.allclose(found, wanted, 1e-2, 1e-2 * np.abs(wanted).max(initial=1e-6)), native
            jit.show(path, Path(folder, "page.html"), time=False)


def verdict(seed: int, way: str) -> tuple[str, str]:
    try:
        return tried(seed, way), ""
    except lamina.LaminaError as error:
        text = str(error)
        if any(words in text for words in FAULTS):
            return "fault", text[:1500]
        return f"refused: {text.splitlines()[0][:80]}", ""
    except Exception:
        return "fault", traceback.format_exc()[-1500:]


def child(seed: int, way: str, seconds: int) -> tuple[str, str]:
    """The verdict of a process of its own."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
        signal.alarm(seconds)
        try:
            os.write(into, json.dumps(verdict(seed, way)).encode()[: 1 << 15])
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as file:
        said = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return tuple(json.loads(said)) if said else ("fault", f"the process ended with {status}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--way", choices=WAYS)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument(
        "--record", type=Path, help="a line of JSON for each network; those in it are left out"
    )
    options = parser.parse_args()
    if not options.count:
        print(options.way or way_of(options.seed), tried(options.seed, options.way or way_of(options.seed)))
        return 0
    rows = [json.loads(line) for line in options.record.read_text().splitlines()] if options.record and (
        options.record.exists()) else []  # fmt: skip
    done = {row["seed"] for row in rows}
    for seed in range(options.seed, options.seed + options.count):
        if seed in done:
            continue
        way = options.way or way_of(seed)
        word, text = child(seed, way, options.seconds)
        rows.append({"seed": seed, "way": way, "outcome": word, "detail": text})
        if options.record:
            with options.record.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
        if word == "fault":
            print(f"fault: --seed {seed} --way {way}\n  {text}", flush=True)
    for outcome, count in Counter((row["outcome"]) for row in rows).most_common():
        print(f"{count:6}  {outcome}")
    print(f"{len(rows):6}  networks: {dict(Counter(row['way'] for row in rows))}")
    return int(any(row["outcome"] == "fault" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
