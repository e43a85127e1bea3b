"""The bytecode interpreter against CPython: programs that use every construct must end alike, both ways."""

from __future__ import annotations

import contextlib
import copy
import io
import os
import sys
import traceback
from types import SimpleNamespace

import bytecode_programs
import logged_programs
import natively
import pytest
from served import recorded

from lamina.jit.observe import tracebacks
from lamina.jit.observe.decode import TABLES, decode
from lamina.jit.observe.instructions import OPERATIONS
from lamina.jit.observe.interpret import Interpreting
from lamina.jit.observe.numbers import LIFTED, lifted

tracebacks.HIDDEN.add(natively.__file__)


class Interpreter(Interpreting, natively.Natively):
    """The loop alone: it records nothing."""

    recorder = SimpleNamespace(steps=())


def described(error):
    """Everything of an exception that a user can see, but addresses."""
    if error is None:
        return None
    entries = traceback.extract_tb(tracebacks.clean(error.__traceback__))
    return (
        type(error),
        str(error),
        [
            (entry.filename, entry.name, entry.lineno, entry.colno)
            for entry in entries
            if entry.filename != __file__
        ],
        error.__suppress_context__,
        described(error.__cause__),
        described(error.__context__),
        getattr(error, "name", None),
        [described(each) for each in getattr(error, "exceptions", ())],
    )


def outcome(call, *args):
    """What a call gives, raises, says and prints."""
    bytecode_programs.SAID.clear()
    written = io.StringIO()
    value = error = None
    with contextlib.redirect_stdout(written):
        try:
            value = repr(call(*args))
        except BaseException as raised:
            error = described(raised)
    return {
        "value": value,
        "error": error,
        "said": list(bytecode_programs.SAID),
        "written": written.getvalue(),
    }


def compare(function, args, interpreter=None):
    """Run a call natively and interpreted; return the interpreter."""
    interpreter = interpreter or Interpreter()
    expected = outcome(function, *_fresh(args))
    bytecode_programs.with_defaults.__defaults__[0].clear()
    found = outcome(interpreter.call, function, tuple(_fresh(args)))
    bytecode_programs.with_defaults.__defaults__[0].clear()
    assert found == expected
    return interpreter


def _fresh(args):
    """Arguments that an earlier run has not used up."""
    return [copy.copy(each) for each in args]


NATIVE = {"coroutine_stays_native"}


@pytest.mark.parametrize(
    ("function", "args"),
    [pytest.param(f, a, id=f"{f.__name__}-{n}") for n, (f, a) in enumerate(bytecode_programs.PROGRAMS)],
)
def test_interpreting_ends_as_a_native_run(function, args):
    interpreter = compare(function, args)
    assert function.__qualname__ not in interpreter.unsupported
    assert bool(interpreter.unsupported) == (function.__name__ in NATIVE)


@pytest.mark.parametrize("program", logged_programs.PROGRAMS, ids=lambda f: f.__name__)
def test_interpreting_goes_in_the_order_of_a_native_run(program, monkeypatch):
    table, interpreter = logged_programs.TABLE, Interpreter()

    def run(call, *args):
        monkeypatch.setattr(logged_programs, "TABLE", copy.deepcopy(table))
        monkeypatch.setattr(logged_programs, "counter", 0)
        log = []
        return outcome(call, *args, log), repr(log)

    expected = run(program)
    assert run(lambda log: interpreter.call(program, (log,))) == expected
    assert program.__qualname__ not in interpreter.unsupported


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
def test_type_parameters_are_those_of_a_native_run():
    scope = {"__name__": "made"}
    exec(TYPE_PARAMETERS, scope)
    expected = outcome(scope["generic"], [])
    assert outcome(lambda log: Interpreter().call(scope["generic"], (log,)), []) == expected


TYPE_PARAMETERS = """
def generic(log):
    def first[T: int](x: T, *rest: T, y: list[T] = log) -> T:
        log.append(T.__name__)
        return x, y is log, first.__type_params__ == (T,), first.__annotations__["y"] == list[T]

    type Pair[A] = tuple[A, A]
    return first(1), Pair.__name__, f"{"nested " + f"{1:{2 + 3}}"}"
"""


def test_texts_are_evaluated_as_the_module_they_stand_in_would():
    text = """def run():
    names = {}
    exec("def f(x: int): pass", names)
    return names["f"].__annotations__, eval("  1 + 1")"""
    scope = {}
    exec(compile(text, "<made>", "exec", dont_inherit=True), scope)  # without this module's annotations
    compare(scope["run"], ())


def test_a_place_is_told_where_the_standard_library_goes_on_in_a_handler():
    text = """def run(x):
    def steps():
        try:
            raise KeyError
        except KeyError:
            yield
            yield float(MOST)
    it = steps()
    next(it)
    return x * next(it)"""
    scope = {"MOST": 3}
    exec(compile(text, os.path.join(os.path.dirname(os.__file__), "made_up.py"), "exec"), scope)
    assert recorded(scope["run"], 2).result_of_run == 6.0


def test_every_operation_of_every_version_has_a_handler():
    texts = [text for table in TABLES.values() for text in table.values() if isinstance(text, str) and text]
    named = {part.partition(" ")[0] for text in texts for part in text.split("; ")}
    assert named - {"unary"} <= set(OPERATIONS)


def test_a_function_that_cannot_be_interpreted_runs_natively():
    async def waits():
        return 5

    interpreter = Interpreter()
    made = interpreter.call(waits)
    made.close()
    assert interpreter.unsupported == [waits.__qualname__]
    assert decode(waits.__code__) is None
    assert decode(compare.__code__, (3, 99)) is None


def test_after_a_refusal_calls_run_natively():
    def inner():
        return sys._getframe(1).f_code.co_name

    def function():
        before = inner()
        locals()
        return before, inner()

    interpreter = Interpreter()
    assert interpreter.call(function)[0] == "function"
    assert interpreter.refused == "sys._getframe() was called"
    assert inner.__qualname__ in interpreter.entered


def test_locals_are_one_dictionary_or_a_copy_each_as_this_python_has_it():
    def function():
        first = locals()
        later = 5
        first["later"] = first["more"] = 6
        second = locals()
        seen = first is second, sorted(first), second.get("more"), later
        del later
        exec("made = 1")
        return seen, sorted(locals()), "made" in locals(), first.get("later")

    assert Interpreter().call(function) == function()


def test_the_recursion_limit_is_as_before_and_deep_calls_succeed():
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    limit, frame, depth = sys.getrecursionlimit(), sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    deep = limit - depth - 100
    assert down(deep) == Interpreter().call(down, (deep,)) == deep
    assert sys.getrecursionlimit() == limit
    with pytest.raises(RecursionError):
        Interpreter().call(down, (limit,))
    assert sys.getrecursionlimit() == limit


def test_a_printed_traceback_is_that_of_a_native_run():
    def fails(n):
        if n:
            return fails(
                n - 1
            )  # fmt: skip
        return (n
                / 0)  # fmt: skip

    def printed(call, *args):
        try:
            call(*args)
        except ZeroDivisionError as error:
            return traceback.format_exception(error.with_traceback(tracebacks.clean(error.__traceback__)))[2:]

    found = printed(Interpreter().call, fails, (2,))
    assert found == printed(fails, 2)
    assert "n - 1" in found[0] or "fails(" in found[0]


def test_the_frames_of_a_traceback_have_the_variables_of_a_native_run_and_no_caller():
    def fails(n, *rest, **named):
        cell = n + 1
        if n:
            return fails(n - 1, n, key=n)
        del n
        return (lambda: cell / 0)()

    def shown(call, *args):
        try:
            call(*args)
        except ZeroDivisionError as error:
            found = [entry for entry, _ in traceback.walk_tb(tracebacks.clean(error.__traceback__))][-4:]
        return [(frame.f_code.co_name, dict(frame.f_locals)) for frame in found], found

    variables, frames = shown(lambda n: Interpreter().call(fails, (n,)), 2)
    expected, _ = shown(fails, 2)
    assert variables == expected
    assert [frame.f_back for frame in frames] == [None] * 4


class Lifting(Interpreter):
    """Reads the argument 3 as a lifted number, and notes which numbers became plain."""

    def __init__(self):
        super().__init__()
        self.numbers.about = True
        self.plained = []

    def plain(self, value):
        if isinstance(value, LIFTED):
            self.plained.append(value.expression)
        return super().plain(value)

    def binary(self, symbol, a, b, inplace=False):
        found = super().binary(symbol, self.bare(a), self.bare(b), inplace)
        return lifted(found, "sum") if isinstance(a, LIFTED) or isinstance(b, LIFTED) else found

    def bare(self, value):
        return super().plain(value)


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        (lambda v: v, []),
        (lambda v: v + 1, []),
        (lambda v: (lambda w: w + 1)(v), []),
        (lambda v: [v], []),
        (lambda v: v + 1 in (1, 4), []),
        (lambda v: (lambda *w: w)(v), []),
        (lambda v: str(v), []),
        (lambda v: "abcd"[v], []),  # whoever reads items guards them, as a tensor's part can do without
        (lambda v: f"{v}", []),
        (lambda v: not v, []),
        (lambda v: v if v else 0, []),
        (lambda v: (lambda: v)(), []),
        (lambda v: next((lambda w: (yield w))(v)), ["S"]),
        (lambda v: {v: 1}, ["S"]),
        (lambda v: {1: v}, []),
        (lambda v: slice(v).stop, ["S"]),
    ],
)
def test_lifted_numbers_stay_only_where_they_may(function, plain):
    interpreter = Lifting()
    found = interpreter.call(function, (lifted(3, "S"),))
    assert interpreter.plained == plain
    numbers = found.values() if type(found) is dict else found if type(found) in (list, tuple) else ()
    assert not any(isinstance(x, LIFTED) for x in numbers)  # containers hold bare ones
