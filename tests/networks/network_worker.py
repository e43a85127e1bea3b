"""A process that runs networks: JSON lines in, one JSON line for each out.

in: {"draw": seed} or a description; "plant": [[where, right, wrong], ...] are bugs to be
planted first, if they aren't yet (tests/jit/planted.py).
out: {"outcome": ..., "detail": ..., "ratio": ..., "description": ...}
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import sys
import traceback
import warnings
from contextlib import ExitStack
from pathlib import Path

os.environ |= {"LAMINA_CACHE_DIR": "", "LAMINA_NATIVE": "0", "LAMINA_TRACE_BUDGET": "none"}
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent.parent / "jit"))  # where bugs are planted

import guarded_memory
import network_blocks
import network_drawing
import network_running

import lamina
from lamina.jit import backend, targets
from lamina.passes.llvm import binding
from lamina.passes.schedules.target import LEVELS
from lamina.runtime import compiler, native, workers


def settle() -> None:
    """What makes a process fit for many small networks."""
    warnings.simplefilter("error")
    compiler.HELPERS = 0  # a process of its own takes longer than such a network
    native.Executable = guarded_memory.Guarded
    native.load_program = lambda *given: None  # nothing is kept but objects by their text


def at_level(name: str) -> None:
    """Compile for a level of CPU from now on: this machine's own where it is that, or has no more."""
    host = binding.host_target()
    level = next(level for level in LEVELS if level.name == name)
    chosen = host if level.lanes >= host.lanes else level
    targets.host_target = native.host_target = lambda: chosen


def with_threads(count: int) -> None:
    """Let programs run on so many threads, and split them however little there is to do."""
    lamina.set_num_threads(count)
    if count > 1:
        if workers.asleep:
            workers.wake()
        workers.pool().grain = 200


def verdict(description: dict) -> dict:
    """What becomes of a network, as JSON has it."""
    binding.OPTIMISATION = description["optimisation"]
    at_level(description["level"])
    with_threads(description["threads"])
    try:
        found = network_running.verdict(description)
        guarded_memory.check()
    except (network_blocks.Unfit, guarded_memory.WrittenOutside) as error:
        outcome = "unfit" if isinstance(error, network_blocks.Unfit) else "differs"
        found = network_running.Verdict(outcome, f"{type(error).__name__}: {error}", float("inf"))
    except Exception as error:
        lines = traceback.format_exception(error)
        found = network_running.Verdict("raises", f"{type(error).__name__}: {error}\n{''.join(lines[-4:])}")
    finally:
        backend.forget()
        guarded_memory._fenced.clear()
    made = {"outcome": found.outcome, "detail": found.detail, "ratio": found.ratio}
    return made | {"description": description}


def main() -> None:
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anything prints is no answer
    settle()
    planted: list = []
    with ExitStack() as stack:
        for count, line in enumerate(sys.stdin):
            asked = json.loads(line)
            for edit in asked.pop("plant", ()):
                if edit not in planted:
                    from planted import edit as plant  # loads all that bugs can be planted in

                    stack.enter_context(plant(*edit))
                    planted.append(edit)
            if "draw" in asked:
                asked = network_drawing.draw(asked["draw"]) | asked.get("change", {})
            answers.write(json.dumps(verdict(asked)) + "\n")
            answers.flush()
            if count % 20 == 19:
                gc.collect()


if __name__ == "__main__":
    main()
