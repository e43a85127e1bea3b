"""Forks, for each line of its input, a process that saves checkpoints for ever: whoever reads may kill it.

`python checkpoint_zygote.py FOLDER HOW`.  A line says the step that must at least be there.  It prints the
number of the process, "saved STEP" for each save, "ended SIGNAL"; at the end of the input the newest step.
"""

import os
import sys
import time
import warnings
from collections.abc import Iterable

import numpy as np

import lamina
import lamina.distributed.checkpoint as dcp
from lamina.distributed.checkpoint import scratch


def state_of(step: int) -> dict:
    return {"a": lamina.full((3000, 4), step), "b": {"c": np.full(500, step)}, "step": step}


def look(checkpoints: dcp.Checkpoints, least: int) -> int:
    """The newest checkpoint is whole, as it was saved, and none before `least`."""
    state = state_of(-1)
    found = checkpoints.restore(state)
    assert found is not None or least == 0
    step = state["step"] if found else 0
    assert step >= least, (step, least)
    assert not found or (state["a"] == step).all() and (state["b"]["c"] == step).all()
    return step


def run(checkpoints: dcp.Checkpoints, least: int, over: bool) -> None:
    step = look(checkpoints, least)
    while True:
        step += 1
        if over:
            dcp.save(state_of(step), checkpoint_id=checkpoints.path(1))
        else:
            checkpoints.save(step, state_of(step))
        os.write(1, f"saved {step}\n".encode())


def plant() -> None:
    """Have the index in place before the files are, as a save without a commit would."""

    def index_first(self: scratch.Scratch, index: bytes, files: Iterable[str]) -> None:
        place = os.path.join(self.target, "checkpoint.json")
        os.makedirs(self.target, exist_ok=True)
        scratch.write_file(place + ".new", [index], False)
        os.replace(place + ".new", place)
        time.sleep(0.02)
        for file in files:
            os.rename(os.path.join(self.folder, file), os.path.join(self.target, file))
        self._end()
        scratch.remove_others(self.target)

    scratch.Scratch.commit = index_first


FOLDER, HOW = sys.argv[1:]

if __name__ == "__main__":
    warnings.simplefilter("error")  # restore() warns where it leaves out what is damaged
    checkpoints = dcp.Checkpoints(FOLDER, keep=2)
    if "CHECKPOINT_PLANTED" in os.environ:
        plant()
    step = 0
    for line in sys.stdin:
        process = os.fork()
        if not process:
            try:
                run(checkpoints, int(line), HOW == "over")
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os.write(1, f"{process}\n".encode())
        _, status = os.waitpid(process, 0)
        os.write(1, f"ended {os.waitstatus_to_exitcode(status) * -1}\n".encode())
        step = int(line)
    step = look(checkpoints, step)
    if HOW == "over":
        dcp.save(state_of(step), checkpoint_id=checkpoints.path(1))
    else:
        checkpoints.save(step + 1, state_of(step))
    print(step, flush=True)
