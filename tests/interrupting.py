"""Raise an exception at each step of Python code in turn, as a signal's handler may."""

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType


class Interrupted(BaseException):
    """What is raised; like KeyboardInterrupt no Exception, but nobody else's."""


def at_each_step(run: Callable[[], object], inside: Callable[[CodeType], bool]) -> Iterator[int]:
    """Call `run` again and again, each time with an interrupt one step later.

    inside: whether a function's steps count.  A step is the call itself or an instruction of it.  Yields the
    number of the step after each call that was interrupted, until one is not.
    """
    step = 0
    while is_interrupted(run, inside, step):
        yield step
        step += 1
    assert step, "there is no step to interrupt"


def is_interrupted(run: Callable[[], object], inside: Callable[[CodeType], bool], step: int) -> bool:
    """Call `run`, interrupted at a step; whether it has so many.  Other exceptions are raised."""
    left = step

    def trace(frame: FrameType, event: str, argument: object) -> Callable | None:
        nonlocal left
        if not inside(frame.f_code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event in ("call", "opcode"):
            left -= 1
            if left == -1:
                raise Interrupted
        return trace

    before = sys.gettrace(), sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None  # a finalizer's
    sys.settrace(trace)
    try:
        run()
    except Interrupted:
        pass
    finally:
        sys.settrace(before[0])
        sys.unraisablehook = before[1]
    return left < 0
