"""What needs a fresh process: compiling with nothing in the cache, and an exported file without Lamina."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, time
from typing import NamedTuple

import numpy as np

import lamina
from lamina import jit

from .digits import Digits, Part
from .train import BATCH, Training

STARTS = 3  # of the exported file
ONE_THREAD = {"LAMINA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
COMPILING = "from lamina.demo.fresh import tell_compiling; tell_compiling()"
# What Lamina depends on can't be imported in this process, nor Lamina: NumPy is all there is.
STARTING = """
import json, sys, time
for name in ("lamina", "llvmlite", "ml_dtypes", "networkx", "safetensors"):
    sys.modules[name] = None
import numpy
ready = time.time()
sys.path.insert(0, sys.argv[1])
import lamina_model
images = numpy.load(sys.argv[2])
lamina_model.run(images[0])
done = time.time()
numpy.save(sys.argv[3], [lamina_model.run(batch) for batch in images])
print(json.dumps([ready, done]))
"""


class Compiling(NamedTuple):
    """Seconds of the call that records and compiles: of a training step, and of inference at a batch."""

    step: float
    inference: float


class Start(NamedTuple):
    """An exported file in a process with NumPy alone.

    numpy, first: seconds from the process's start until NumPy is there, and until the first result.
    logits: f32[k, 64, 10], of all batches.
    """

    numpy: float
    first: float
    logits: np.ndarray


def compiling() -> tuple[Compiling, Compiling]:
    """Compile in a fresh process with an empty cache, and in another with what that one left."""
    with tempfile.TemporaryDirectory(prefix="lamina-demo-") as cache:
        environment = {**os.environ, **ONE_THREAD, "LAMINA_CACHE_DIR": cache}
        cold, cached = (
            Compiling(*json.loads(_answer([COMPILING], environment).splitlines()[-1])) for _ in range(2)
        )
    return cold, cached


def tell_compiling() -> None:
    """In the fresh process: print the seconds of a `Compiling` as JSON."""
    lamina.set_num_threads(1)
    part = Part(lamina.rand(BATCH, 1, 8, 8), lamina.randint(0, 10, (BATCH,)))
    training = Training(Digits(part, part), epochs=3, seed=0, way=jit.trace)
    training.step(*part)  # AdamW makes the states of its parameters
    seconds = [_seconds(lambda: training.step(*part)), _seconds(training.inference(part.images))]
    print(json.dumps(seconds))


def start(file: Path, images: np.ndarray) -> Start:
    """Import the exported file and run it on batches, in several fresh processes; the quickest one counts.

    Shapes: images f32[k, 64, 1, 8, 8].
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="lamina-demo-") as folder:
        given, logits = Path(folder, "images.npy"), Path(folder, "logits.npy")
        np.save(given, images)
        for _ in range(STARTS):
            begin = time()
            told = _answer([STARTING, str(file), str(given), str(logits)], {**os.environ, **ONE_THREAD})
            ready, done = json.loads(told)
            found.append(Start(ready - begin, done - begin, np.load(logits)))
    return min(found, key=lambda s: s.first)


def _seconds(call) -> float:
    begin = perf_counter()
    call()
    return perf_counter() - begin


def _answer(arguments: list[str], environment: dict[str, str]) -> str:
    """What a fresh Python prints.  Raises RuntimeError with its last words if it fails."""
    done = subprocess.run([sys.executable, "-c", *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("a fresh process failed:\n" + "\n".join(done.stderr.splitlines()[-5:]))
    return done.stdout
