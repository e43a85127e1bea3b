"""A process that runs random programs: JSON lines in, one JSON line for each out.

in: {"kind": "training", "state", "lives" or "refused", "draw": seed}
out: {"outcome": ..., "detail": ..., ...}
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import json
import os
import sys
from collections.abc import Callable

os.environ |= {"LAMINA_CACHE_DIR": "", "LAMINA_NATIVE": "0"}
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import run_fuzz
import run_training

from lamina.jit import backend

VERDICTS: dict[str, Callable[[int], dict]] = {
    "training": run_training.verdict,
    "state": functools.partial(run_fuzz.verdict, kind="state"),
    "lives": functools.partial(run_fuzz.verdict, kind="lives"),
    "refused": functools.partial(run_fuzz.verdict, kind="refused"),
}


def main() -> None:
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything prints is no answer
    gc.freeze()  # so that collecting after a program takes as long as that deserves
    for count, line in enumerate(sys.stdin):
        asked = json.loads(line)
        found = VERDICTS[asked["kind"]](asked["draw"])
        backend.forget()
        answers.write(json.dumps(found) + "\n")
        answers.flush()
        if count % 20 == 19:
            gc.collect()
            gc.freeze()


if __name__ == "__main__":
    main()
