"""The front-end that runs instrumented copies does what CPython does, in the same order."""

from __future__ import annotations

import copy
import inspect
import linecache
import sys
import traceback

import bytecode_programs
import copied_programs
import natively
import pytest
from natively import Natively
from test_interpreting import outcome as ending

from lamina.jit.observe import tracebacks
from lamina.jit.observe.copying import Copying, copy_of
from lamina.jit.observe.front import Front
from lamina.jit.observe.interpret import Interpreting
from lamina.jit.observe.kinds import UNSUPPORTED
from lamina.jit.observe.numbers import LIFTED, lifted

tracebacks.HIDDEN.update((natively.__file__, __file__))


NATIVE = {"coroutine_stays_native", "f"}  # f is made by exec, and has no source


class Observer(Copying, Natively):
    pass


def outcome(run, *args):
    """What a run gives: its value, or its error with the lines it went through; and the log."""
    log: list = []
    try:
        result = ("returned", run(log, *args))
    except BaseException as error:
        result = ("raised", *told(error))
    return repr(result), repr(log)


def told(error):
    if error is None:
        return ()
    entries = traceback.extract_tb(tracebacks.clean(error.__traceback__))
    lines = [(entry.name, entry.lineno) for entry in entries if entry.filename != __file__]
    return type(error), str(error), lines, told(error.__cause__), told(error.__context__)


@pytest.mark.parametrize("program", copied_programs.PROGRAMS, ids=lambda f: f.__name__)
def test_copy_does_what_python_does(program):
    table = copy.deepcopy(copied_programs.TABLE)
    copied_programs.counter = 0
    expected = outcome(program)
    copied_programs.TABLE.clear()
    copied_programs.TABLE.update(table)
    copied_programs.counter = 0
    observer = Observer()
    assert not isinstance(copy_of(program.__code__), str), copy_of(program.__code__)
    assert outcome(lambda log: observer.call(program, (log,))) == expected
    assert program.__qualname__ not in observer.unsupported


@pytest.mark.parametrize(
    ("function", "args"),
    [pytest.param(f, a, id=f"{f.__name__}-{n}") for n, (f, a) in enumerate(bytecode_programs.PROGRAMS)],
)
def test_copy_ends_as_a_native_run(function, args):
    observer = Observer()
    expected = ending(lambda: function(*map(copy.copy, args)))
    bytecode_programs.with_defaults.__defaults__[0].clear()
    found = ending(lambda: observer.call(function, tuple(map(copy.copy, args))))
    bytecode_programs.with_defaults.__defaults__[0].clear()
    assert found == expected
    assert function.__qualname__ not in observer.unsupported or function.__name__ in NATIVE


WATCHED = (
    "attribute", "set_attribute", "delete_attribute", "item", "set_item", "delete_item", "load_global",
    "store_global", "delete_global", "iterator", "import_name", "super_attribute",
)  # fmt: skip


def watched(front):
    """An observer that notes what it is asked; numbers and texts the interpreter need not ask about."""

    class Watched(front, Natively):
        def __init__(self):
            super().__init__()
            self.asked = []

    def operation(name):
        def ask(self, *args, **kwargs):
            shown = [a for a in args if type(a) in (str, int, float, bool, type(None))]
            self.asked.append((name, [type(a).__name__ for a in args[:1]], shown))
            return getattr(Natively, name)(self, *args, **kwargs)

        return ask

    for name in WATCHED:
        setattr(Watched, name, operation(name))
    return Watched()


# What the front-ends ask in different ways: the bodies of classes are interpreted, but not copied; `super()`,
# frames and coroutines are looked at by other means; an error is thrown into a `yield from` by the loop, by
# Python in a copy; and the compiler makes a tuple of a list that is gone through.
DIFFERENT = ("class ", "super(", "Private", "locals()", "async ", ".throw(", ".send(", "in [(")


@pytest.mark.parametrize(
    "program",
    [p for p in copied_programs.PROGRAMS if not any(word in inspect.getsource(p) for word in DIFFERENT)],
    ids=lambda f: f.__name__,
)
def test_both_front_ends_ask_the_same_in_the_same_order(program):
    asked = []
    for front in (Copying, Interpreting):
        observer = watched(front)
        table = copy.deepcopy(copied_programs.TABLE)
        copied_programs.counter = 0
        outcome(lambda log: observer.call(program, (log,)))  # noqa: B023 - called at once
        copied_programs.TABLE.clear()
        copied_programs.TABLE.update(table)
        asked.append(list(dict.fromkeys(map(repr, observer.asked))))  # the interpreter keeps some answers
    assert asked[0] == asked[1]


def run(source, name, **given):
    """A function of a source that `linecache` knows."""
    filename = f"<test of {name}>"
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    scope = {"__name__": "made", **given}
    exec(compile(source, filename, "exec"), scope)
    return scope[name]


NEW_SYNTAX = """
def generic(log):
    def first[T: int](x: T, *rest: T, y: list[T] = log) -> T:
        log.append(T.__name__)
        return x, y is log, first.__type_params__ == (T,), first.__annotations__["y"] == list[T]

    type Pair[A] = tuple[A, A]
    return first(1), Pair.__name__, f"{"nested " + f"{1:{2 + 3}}"}"
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters came with Python 3.12")
def test_type_parameters_are_python_s():
    function = run(NEW_SYNTAX, "generic")
    observer = Observer()
    assert outcome(lambda log: observer.call(function, (log,))) == outcome(function)
    assert observer.refused is not None and "type parameters" in observer.refused


def test_function_without_source_is_unsupported():
    scope: dict = {}
    exec(compile("def f(x): return x", "<nowhere>", "exec"), scope)
    assert Observer().enter(scope["f"], (1,), {}) is UNSUPPORTED
    assert copy_of(scope["f"].__code__) == "its source is not at hand"


def test_function_whose_source_has_changed_is_unsupported():
    function = run("def f(x):\n    return x + 1\n", "f")
    linecache.cache["<test of f>"] = 9, None, ["def f(x):\n", "    return x + 2\n"], "<test of f>"
    assert Observer().enter(function, (1,), {}) is UNSUPPORTED
    assert copy_of(function.__code__) == "its source is not what it was compiled from"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("async def f():\n    return 1\n", "it is asynchronous"),
        ("def f():\n    return [(x async for x in y) for y in ()]\n", "it has an asynchronous comprehension"),
    ],
)
def test_asynchronous_function_is_unsupported(source, why):
    function = run(source, "f")
    assert Observer().enter(function, (), {}) is UNSUPPORTED
    assert copy_of(function.__code__) == why


def test_lambdas_of_one_line_are_told_apart():
    first, second, third = run("f = (lambda: 1), (lambda: lambda: 2), (lambda x=(lambda: 3): x)\n", "f")
    observer = Observer()
    assert [
        observer.call(first),
        observer.call(observer.call(second)),
        observer.call(observer.call(third)),
    ] == [1, 2, 3]
    assert not observer.unsupported


def test_function_made_in_a_copy_is_the_user_s_own():
    function = run("def f(n):\n    def g(x=n):\n        return x + n\n    return g\n", "f")
    made, native = Observer().call(function, (3,)), function(3)
    assert made.__code__ is native.__code__ and made.__globals__ is function.__globals__
    assert made() == native() == 6 and made.__closure__[0].cell_contents == 3


class Plainly(Observer):
    """Notes where lifted numbers are made plain."""

    lifts = True

    def __init__(self):
        super().__init__()
        self.made_plain = []

    def plain(self, value):
        if isinstance(value, LIFTED):
            self.made_plain.append(value)
        return super().plain(value)


LIFTING = """
def keeps(n):
    m = n
    return taken(m)

def taken(n):
    return n

def wraps(n):
    return [n]

def hides(n):
    return lambda: n

def yields(n):
    yield n

def spreads(n):
    return rest(n)

def rest(*n):
    return n

def looks(n):
    return {n: 1}, f"{n}", n is n, n in (1,), (n or 1) is not None, slice(n).stop
"""


@pytest.mark.parametrize("name", ["wraps", "hides", "yields", "spreads", "looks"])
def test_lifted_number_goes_nowhere_unseen(name):
    observer = Plainly()
    function = run(LIFTING, name)
    found = observer.call(function, (lifted(7, "S[0]"),))
    found = list(found) if name == "yields" else found() if name == "hides" else found
    assert observer.made_plain
    assert not any(
        isinstance(value, LIFTED) for value in (found if isinstance(found, list | tuple) else [found])
    )


def test_lifted_number_stays_lifted_in_variables_and_calls():
    observer = Plainly()
    assert observer.call(run(LIFTING, "keeps"), (lifted(7, "S[0]"),)).expression == "S[0]"
    assert not observer.made_plain


def test_names_of_the_copies_hide_none_of_the_recorder():
    own = {name for name in vars(Copying) if not name.startswith("__")}
    assert own & set(dir(Front)) <= {"call", "enter", "_native_limit"}
