"""Be a rank that `python -m lamina launch` started: know the place, run the program, tell how it fails."""

from __future__ import annotations

import atexit
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from ..environment import FAILED, WATCHED, Place, exported, place

ROOT = __package__.partition(".")[0]  # lamina
FOLDER = str(Path(__file__).resolve().parents[2]) + os.sep


def main(argv: Sequence[str]) -> int:
    """Run `CONTROL SIZES KIND …`.  Returns 0, or ends the process.

    CONTROL: the descriptor that the watcher listens to.  SIZES: how many ranks each machine has, `2,2`.
    KIND: `run` and a program's words as `python -m lamina run` takes them, `exec` and those of a program that
    is not Python's, or `call` and where spawn.py says what is to be called.
    """
    control, sizes, kind, *words = argv
    os.set_inheritable(int(control), False)
    os.environ[WATCHED] = "1"
    here = _placed([int(size) for size in sizes.split(",")])
    if kind != "call":  # whose function is told its rank as an argument
        os.environ.update(exported(here))
    # Line by line, as on a terminal: what a rank has printed is seen, whatever becomes of it.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        if kind == "run":
            script = import_module(f"{ROOT}.facade.script")
            status = script.run(words[0], words[1:])
        elif kind == "exec":
            os.execvp(words[0], words)
        else:
            status = import_module(f"{__package__}.spawn").run_call(words, here)
    except SystemExit as leaving:
        status = _status(leaving)
    except BaseException as error:  # the program's, whatever it is
        _report(int(control), error, aloud=kind != "call")
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    if status:
        _leave(status)
    return 0


def _placed(sizes: list[int]) -> Place:
    """This rank's place, with the machine's number, which MPICH and Open MPI don't tell."""
    here = place()
    assert here is not None
    if sum(sizes) != here.world_size or here.nodes == len(sizes) == 1:
        return here
    node = next(n for n in range(len(sizes)) if here.rank < sum(sizes[: n + 1]))
    return replace(
        here, node_rank=node, nodes=len(sizes), local_rank=here.rank - sum(sizes[:node]),
        local_world_size=sizes[node],
    )  # fmt: skip


def _status(leaving: SystemExit) -> int:
    """The exit status that Python gives to a SystemExit, which says its words first."""
    code = leaving.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _report(control: int, error: BaseException, aloud: bool) -> None:
    """Print the traceback as Python would, if asked to, and tell the watcher."""
    told = describe(error)
    if aloud:
        sys.excepthook(type(error), error, error.__traceback__)
    line = json.dumps(told).encode() + b"\n"
    try:
        os.write(control, line)
    except OSError:  # the watcher is gone
        pass


def describe(error: BaseException) -> dict[str, Any]:
    """What is told of an error: `error`, kind and first line; `place`, file:line; `text`, the traceback."""
    last = "".join(traceback.format_exception_only(error)[-1:]).strip()
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not _is_ours(frame.filename)]
    frame = next(reversed(outside or frames), None)
    trace = error.__traceback__
    while outside and trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    return {
        "error": last.partition("\n")[0][:1000],
        "place": f"{frame.filename}:{frame.lineno}" if frame is not None else "",
        "text": text if len(text) <= 20_000 else f"{text[:10_000]}\n…\n{text[-10_000:]}",
        "at": time.time(),
    }


def _is_ours(path: str) -> bool:
    return path.startswith((FOLDER, "<frozen "))


def _leave(status: int) -> NoReturn:
    """End a rank that failed, after what is to run at exit, but for MPI's own end.

    That would wait for the other ranks, which may wait for this one.
    """
    os.environ[FAILED] = "1"
    try:
        atexit._run_exitfuncs()
    except BaseException:  # each has printed what it had to say
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # None, gone or closed
            pass
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
