"""Raise an exception at each step of Python code in turn, as a signal's handler may."""

import dis
import functools
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


# ---- where CPython itself answers signals ------------------------------------------------------------------
Place = tuple[CodeType, int]  # and the offset of the instruction; of the call itself BEGINNING
BEGINNING = -1


def places(run: Callable[[], object], inside: Callable[[CodeType], bool]) -> dict[Place, int]:
    """Where an interrupt may come while `run` goes on, and how often each place is visited.

    CPython answers signals as a function begins, as a loop goes back, and after each call.
    """
    visits: dict[Place, int] = {}
    answering = functools.cache(_answering)

    def trace(frame: FrameType, event: str, argument: object) -> Callable | None:
        code = frame.f_code
        if not inside(code):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        place = code, frame.f_lasti if event == "opcode" else BEGINNING
        if event == "call" or event == "opcode" and frame.f_lasti in answering(code):
            visits[place] = visits.get(place, 0) + 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return visits


def _answering(code: CodeType) -> set[int]:
    """The offsets of instructions before which signals are answered.

    Not those to which another handler belongs than to the call before them, to which Python attributes it.
    """
    found, table = set(), [(e.start, e.end, e.target) for e in dis.Bytecode(code).exception_entries]
    instructions = [*dis.get_instructions(code)]

    def handlers(offset: int) -> list[int]:
        return [target for start, end, target in table if start <= offset < end]

    for one, after in zip(instructions, instructions[1:]):
        if one.opname.startswith("CALL") or after.opname.startswith("JUMP_BACKWARD"):
            if handlers(one.offset) == handlers(after.offset):
                found.add(after.offset)
    return found


def interrupt(run: Callable[[], object], place: Place, visit: int, error: type[BaseException]) -> str:
    """Call `run`, and raise an error at a visit of a place; what became of it.

    What raises it is given the frame that it stops, as a handler is.  "not met": the place was not visited
    so often.  "raised": it left `run`, which is as it should be.  "ignored": Python printed it, as in
    finalizers.  "lost": `run` went on.
    """
    code, offset = place
    left, told = visit, []

    def trace(frame: FrameType, event: str, argument: object) -> Callable | None:
        nonlocal left
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "call" and offset == BEGINNING or event == "opcode" and frame.f_lasti == offset:
            left -= 1
            if left == -1:
                raise error("from outside")
        return trace

    before = sys.gettrace(), sys.unraisablehook
    sys.unraisablehook = told.append
    sys.settrace(trace)
    try:
        run()
    except error:
        return "raised"
    finally:
        sys.settrace(before[0])
        sys.unraisablehook = before[1]
    return "not met" if left >= 0 else "ignored" if told else "lost"
