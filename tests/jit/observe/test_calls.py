"""The policy for calls: what is interpreted, what is an effect, what is refused and why."""

import abc
import collections
import contextlib
import contextvars
import copy
import dataclasses
import datetime
import enum
import functools
import heapq
import itertools
import json
import logging
import math
import operator
import os
import random
import re
import sys
import threading
import time
import types
import typing
import uuid
import warnings
import weakref

import numpy as np
import pytest
from served import Served, compared, holds, recorded

from lamina.jit.observe import policy
from lamina.jit.observe.policy import pure, reason_against


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    ONE = 1


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Point:
    x: int
    tags: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, order=True)
class Fixed:
    x: int


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...


class Square(Shape):
    def area(self):
        return 4


class Base:
    def __init__(self, a):
        self.a = a

    def hello(self):
        return "base"


class Derived(Base):
    def __init__(self, a, b):
        super().__init__(a)
        self.b = b

    def hello(self):
        return super().hello() + str(self.b)

    def __lt__(self, other):
        return self.a < other.a


class Tagging(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = "m"
        return made


class Tagged(metaclass=Tagging):
    def __init__(self, x):
        self.x = x


class Coded(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code


@contextlib.contextmanager
def noted(into):
    into.append("in")
    try:
        yield 7
    finally:
        into.append("out")


def _raised(x):
    try:
        raise Coded(x)
    except Coded as error:
        return error.code, str(error), error.args


def _contexts(x):
    seen = []
    with noted(seen) as v, contextlib.suppress(ValueError):
        seen.append(v)
        raise ValueError
    with contextlib.ExitStack() as stack:
        stack.enter_context(noted(seen))
    with contextlib.nullcontext(4) as v:
        seen.append(v)
    return seen


def _attributes(x):
    made = Base(x)
    name = "q"
    setattr(made, name, 2)
    delattr(made, name)
    return hasattr(made, "q"), getattr(made, "q", 9), vars(made), callable(made.hello)


VALUES = [3, 1, 2]
PATTERN = re.compile(r"(\d+)")
CONTEXT = contextvars.ContextVar("CONTEXT", default=3)
LOCK = threading.Lock()
KEPT = Base(1)
REFERENCE = weakref.ref(KEPT)

SERVED = {
    "aggregates": lambda x: (
        min(VALUES),
        max(VALUES, key=lambda v: -v),
        sum(VALUES),
        any(v > 2 for v in VALUES),
        all(VALUES),
    ),
    "sum_of_floats": lambda x: (
        sum([0.1] * 10),
        sum([0.1, 1e16, -1e16]),
        sum([[1], [2]], []),
        math.fsum([0.1] * 10),
    ),
    "sorted": lambda x: (sorted(VALUES), sorted(VALUES, key=lambda v: -v), sorted("ba", reverse=True)),
    "sorted_objects": lambda x: [o.a for o in sorted([Base(3), Base(1)], key=lambda o: o.a)],
    "attrgetter": lambda x: [o.a for o in sorted([Base(3), Base(1)], key=operator.attrgetter("a"))],
    "getters": lambda x: (
        operator.methodcaller("upper")("a"),
        operator.itemgetter(0, 1)(VALUES),
        operator.add(x, 2),
    ),
    "numbers": lambda x: (
        abs(-2),
        round(2.567, 1),
        divmod(7, 2),
        pow(2, 3),
        hex(10),
        int("3"),
        float("2.5"),
        complex(1, 2),
    ),
    "conversions": lambda x: (
        str(VALUES),
        repr({"a": VALUES}),
        f"{3.14159:.2f}",
        f"{x!r:>5}",
        ascii("é"),
        bytes([1]),
        list("ab"),
    ),
    "iterators": lambda x: (
        [*zip(VALUES, "abc")],
        [*enumerate(VALUES)],
        [*map(lambda a, b: a + b, VALUES, VALUES)],
        [*filter(lambda v: v > 1, VALUES)],
        [*reversed(VALUES)],
        next(iter(VALUES)),
        next(iter([]), 5),
    ),
    "itertools": lambda x: (
        [*itertools.chain(VALUES, [1])],
        [*itertools.product([1], [2])],
        [*itertools.islice(itertools.count(), 3)],
        [*itertools.accumulate(VALUES)],
        [*itertools.starmap(pow, [(2, 3)])],
        [*itertools.pairwise(VALUES)],
    ),
    "callbacks": lambda x: (
        [*map(Base, VALUES)][0].a,
        [*map({1: 2, 2: 3, 3: 4}.get, VALUES)],
        [*map(str.upper, "ab")],
        sorted(VALUES, key=functools.cmp_to_key(lambda a, b: b - a)),
        sorted(["b", "A"], key=str.lower),
    ),
    "reduce": lambda x: (
        functools.reduce(lambda a, b: a * b, VALUES, 1),
        functools.reduce(operator.add, VALUES),
    ),
    "partial": lambda x: (functools.partial(pow, 2)(3), functools.partial(lambda a, b: a - b, b=1)(5)),
    "attributes": _attributes,
    "classes": lambda x: (
        type(x),
        isinstance(x, (int, str)),
        issubclass(Derived, Base),
        Derived(1, 2).hello(),
        Derived(1, 2).a,
    ),
    "abstract": lambda x: (
        isinstance(Square(), Shape),
        Square().area(),
        isinstance(VALUES, collections.abc.Sequence),
    ),
    "metaclass": lambda x: (Tagged(1).tag, Tagged(2).x),
    "exceptions": _raised,
    "contexts": _contexts,
    "namedtuple": lambda x: (
        Pair(1, 2).a,
        Pair(1, 2)._replace(a=5),
        Pair._make([1, 2]),
        Pair(1, 2)._asdict(),
    ),
    "enum": lambda x: (Colour.RED.value, Colour(2), Colour["BLUE"], [c.name for c in Colour], Number.ONE + 1),
    "dataclass": lambda x: (
        Point(1),
        Point(1) == Point(1),
        dataclasses.replace(Point(1), x=2),
        dataclasses.asdict(Point(1, [2])),
        Fixed(1) < Fixed(2),
        hash(Fixed(1)) == hash(Fixed(1)),
        repr(Point(1)),
    ),
    "copy": lambda x: (
        copy.copy(VALUES),
        copy.deepcopy({"a": [1]}),
        copy.deepcopy(Base([1])),
        copy.copy(Base(1)),
    ),
    "re": lambda x: (re.sub("a", "b", "aa"), PATTERN.findall("a1b22"), PATTERN.sub(lambda m: m[0] * 2, "a1")),
    "json": lambda x: (json.dumps({"a": [1, 2.5, None]}), json.loads('{"a": [1]}')),
    "math": lambda x: (math.sqrt(2), math.prod(VALUES), math.floor(2.5)),
    "heap": lambda x: (heapq.nlargest(2, VALUES), heapq.heappushpop([1, 2], 3)),
    "numpy": lambda x: (
        np.sum(np.ones(3)),
        np.concatenate([np.zeros(1), [x]]),
        np.add.reduce([1, 2]),
        np.float32(2) * 2,
    ),
    "environment": lambda x: (
        os.environ.get("HOME"),
        os.getenv("NO_SUCH_NAME", "z"),
        os.path.join("a", "b"),
        os.getpid(),
    ),
    "thread": lambda x: (
        threading.get_ident(),
        threading.current_thread().name,
        CONTEXT.get(),
        REFERENCE() is KEPT,
    ),
    "locked": lambda x: LOCK.__enter__() and LOCK.__exit__(None, None, None),
}


@pytest.mark.parametrize("name", SERVED)
def test_calls_that_are_served(name):
    compared(lambda: (SERVED[name], None), serves=3)


class Dice(random.Random):
    """Of which nobody knows that it can be put back."""


DICE = Dice(1)
REFUSED = {
    "time.clock_gettime()": lambda x: time.clock_gettime(0),
    "time.sleep()": lambda x: time.sleep(0),
    "random.random()": lambda x: DICE.random(),
    "random.getrandbits()": lambda x: DICE.randint(1, 3),
    "numpy.random.": lambda x: np.random.rand(2),
    "posix.urandom()": lambda x: uuid.uuid4(),
    "posix.stat()": lambda x: os.path.exists("/"),
    "cached() keeps what it returned": lambda x: cached(np.float32(x)),
    "id() of an object": lambda x: id(Base(1)),
    "the text of a Base shows its address": lambda x: repr(Base(1)),
    "hash() of a Base hangs on an address": lambda x: hash(Base(1)),
    "a Derived was compared, added or printed by C code": lambda x: (
        sorted([Derived(2, 1), Derived(1, 1)])[0].a
    ),
    "Odd.__instancecheck__ answers isinstance()": lambda x: isinstance(x, AllOdd),
}


@functools.lru_cache
def cached(n):
    return n + 1


class Odd(type):
    def __instancecheck__(cls, o):
        return o % 2 == 1


class AllOdd(metaclass=Odd):
    pass


async def slow(x):
    return x


REFUSED["slow is a coroutine"] = lambda x: slow(x).close()


@pytest.mark.parametrize("why", REFUSED)
def test_calls_that_are_refused_and_say_why(why):
    traced = Served(REFUSED[why])
    traced(1)
    assert traced.count == 0
    assert why in traced.refused
    assert traced.refused.endswith(")")  # with the line


def test_reasons_name_the_callee_and_a_way_out():
    assert (
        reason_against("time", "time")
        == "time.time() gives another value at each call; pass the time as an argument"
    )
    assert reason_against("builtins", "input") == "input() asks the user; pass the answer as an argument"
    assert reason_against("unheard_of", "f").startswith("unheard_of.f() is C code that nobody here knows")
    assert "jit.pure(f)" in reason_against("unheard_of", "f")


# ---- functions themselves are facts ----
def test_a_function_that_changes_is_seen():
    def make():
        def helper(x, by=2, *, plus=0):
            return x * by + plus

        return (lambda x: helper(x)), helper

    for change in (
        lambda f: setattr(f, "__defaults__", (3,)),
        lambda f: setattr(f, "__kwdefaults__", {"plus": 4}),
        lambda f: setattr(f, "__code__", (lambda x, by=2, *, plus=0: -1).__code__),
    ):
        function, helper = make()
        traced = Served(function)
        assert [traced(2), traced(2)] == [4, 4]
        assert traced.count == 1
        change(helper)
        assert traced(2) == function(2) != 4


def test_a_partial_keeps_what_it_holds():
    state = [1]
    function = functools.partial(lambda held, x: held[0] + x, state)
    traced = Served(lambda x: function(x))
    assert [traced(1), traced(1)] == [2, 2]
    state[0] = 5
    assert traced(1) == 6
    assert traced.count == 1


def test_patched_module_functions_are_seen(monkeypatch):
    traced = Served(lambda x: math.sqrt(x))
    assert [traced(4), traced(4)] == [2.0, 2.0]
    monkeypatch.setattr(math, "sqrt", lambda x: "patched")
    assert traced(4) == "patched"


def test_environment_variables_are_read_again(monkeypatch):
    monkeypatch.setenv("SOME_NAME", "a")
    traced = Served(lambda x: os.environ.get("SOME_NAME"))
    assert [traced(1), traced(1)] == ["a", "a"]
    monkeypatch.setenv("SOME_NAME", "b")
    assert traced(1) == "b"
    assert traced.count == 1


def test_context_variables_are_read_again():
    traced = Served(lambda x: CONTEXT.get())
    assert [traced(1), traced(1)] == [3, 3]
    token = CONTEXT.set(5)
    try:
        assert traced(1) == 5
    finally:
        CONTEXT.reset(token)
    assert traced(1) == 3
    assert traced.count == 2


def test_weak_references_are_asked_again():
    held = [Base(1)]
    reference = weakref.ref(held[0])
    traced = Served(lambda x: reference() is None)
    assert [traced(1), traced(1)] == [False, False]
    held.clear()
    assert traced(1) is True


def test_registered_classes_are_seen():
    class Kind(abc.ABC):  # noqa: B024
        pass

    class Late:
        pass

    late = Late()
    traced = Served(lambda x: isinstance(late, Kind))
    assert [traced(1), traced(1)] == [False, False]
    Kind.register(Late)
    assert traced(1) is True


# ---- vouching ----
def test_pure_functions_are_called_once():
    calls = []

    @pure
    def drawn(n):
        calls.append(n)
        return [n, random.random()]

    def run(x):
        return drawn(x)

    traced = Served(run)
    assert traced(3) == traced(3)
    assert (calls, traced.count) == ([3], 1)
    assert traced(4)[0] == 4
    assert calls == [3, 4]


def test_pure_functions_of_c(monkeypatch):
    monkeypatch.setattr(policy, "_VOUCHED", {})  # for other tests it is none
    assert pure(os.urandom) is os.urandom
    traced = Served(lambda x: os.urandom(8))
    assert traced(1) == traced(1)


def test_pure_functions_must_return_plain_data():
    made = pure(lambda x: Base(x))
    traced = Served(lambda x: made(x).a)
    assert traced(1) == 1
    assert "returns a Base" in traced.refused


# ---- sinks ----
def test_print_happens_at_each_call(capsys):
    words = ["a", 1.5, {"k": [1]}, Derived(1, 2).hello()]
    traced = Served(lambda x: print(*words, x, sep="-", end="!\n"))
    for _ in range(3):
        traced(1)
        assert capsys.readouterr().out == "a-1.5-{'k': [1]}-base2-1!\n"
    assert traced.count >= 1


def test_print_shows_what_stood_there_then(capsys):
    def run(x):
        held = [x]
        print(held)
        held.append(2)
        print(held)

    traced = Served(run)
    for _ in range(3):
        traced(1)
        assert capsys.readouterr().out == "[1]\n[1, 2]\n"
    assert traced.count >= 1


class Keeping:
    """A stream of the user's."""

    def __init__(self):
        self.lines = []

    def write(self, text):
        self.lines.append(text)

    def flush(self):
        pass


def test_print_to_an_object_of_the_users():
    def make():
        out = Keeping()
        return (lambda x: (print("a", x, file=out), len(out.lines))), out

    compared(make, serves=0)

    def silent():
        out = Keeping()
        return (lambda x: print("a", x, file=out)), out

    compared(silent, serves=3)


def test_stdout_of_the_users_is_looked_at(monkeypatch):
    out = Keeping()
    monkeypatch.setattr(sys, "stdout", out)
    traced = Served(lambda x: (print("a"), len(out.lines))[1])
    assert [traced(1) for _ in range(3)] == [2, 4, 6]


class Collecting(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append((record.levelname, record.getMessage(), record.lineno))


def _logger(name):
    logger = logging.Logger(name)
    handler = Collecting()
    logger.addHandler(handler)
    return logger, handler


def test_log_messages_reach_their_handlers_at_each_call():
    logger, handler = _logger("own")

    def run(x):
        logger.warning("x is %d of %s", x, "all")
        logger.debug("never")

    logger.setLevel(logging.INFO)
    traced = Served(run)
    for _ in range(3):
        traced(1)
    line = run.__code__.co_firstlineno + 1
    assert handler.texts == [("WARNING", "x is 1 of all", line)] * 3
    assert traced.count == 2
    logger.setLevel(logging.ERROR)
    traced(1)
    assert len(handler.texts) == 3


def test_log_messages_keep_their_line(caplog):
    logger = logging.getLogger("lines")

    def run(x):
        logger.error("here %s", x)

    traced = Served(run)
    for _ in range(3):
        traced(1)
    assert traced.count >= 1
    line = run.__code__.co_firstlineno + 1
    assert [(r.lineno, r.funcName, r.filename, r.getMessage()) for r in caplog.records] == [
        (line, "run", "test_calls.py", "here 1")
    ] * 3


def test_a_handler_that_asks_the_time_is_told_it_anew():
    logger, handler = _logger("timed")
    handler.emit = lambda record: handler.texts.append(record.created)
    traced = Served(lambda x: logger.warning("x"))
    for _ in range(3):
        handler.texts.append(time.time())
        traced(1)
    assert traced.refused is None
    assert len(handler.texts) == 6 and handler.texts == sorted(handler.texts)


def test_warnings_are_given_at_each_call():
    def run(x):
        warnings.warn(f"careful {x}", DeprecationWarning)  # noqa: B028
        return x

    traced = Served(run)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            traced(1)
    assert traced.count == 2
    line = run.__code__.co_firstlineno + 1
    assert [(str(w.message), w.category, w.lineno) for w in seen] == [
        ("careful 1", DeprecationWarning, line)
    ] * 3


def test_a_warning_that_becomes_an_error_is_seen():
    traced = Served(lambda x: warnings.warn("careful"))  # noqa: B028
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced(1)
        traced(1)
        assert traced.count == 1
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="careful"):
            traced(1)


def test_a_progress_bar_from_outside_is_moved_at_each_call():
    tqdm = pytest.importorskip("tqdm", reason="tqdm is not installed")
    with open(os.devnull, "w") as nowhere, tqdm.tqdm(total=9, file=nowhere, mininterval=0) as bar:
        traced = Served(lambda x: bar.update(2))
        for _ in range(3):
            traced(1)
        assert (bar.n, traced.count) == (6, 2)
        asking = Served(lambda x: (bar.update(1), bar.n)[1])
        assert [asking(1), asking(1)] == [7, 8]
        assert "was read after it had been changed" in asking.refused


# ---- imports ----
def test_imports_are_facts(monkeypatch):
    def run(x):
        import colorsys
        from math import floor

        return colorsys.rgb_to_hsv(0, 0, x)[2], floor(1.5)

    watching = recorded(run, 1)
    assert watching.refused is None
    assert holds(watching, 1)
    monkeypatch.setitem(sys.modules, "colorsys", sys.modules["math"])
    assert not holds(watching, 1)


def test_what_c_code_calls_is_looked_at():
    table, factor = {1: 2}, [2]

    class Scaled:
        def __init__(self, x):
            self.x = x * factor[0]

    for function, change in (
        (lambda x: [*map(table.get, [x])], lambda: table.update({1: 3})),
        (lambda x: [made.x for made in map(Scaled, [x])], lambda: factor.__setitem__(0, 3)),
        (lambda x: sorted([1, 2], key=lambda v: v * factor[0]), lambda: factor.__setitem__(0, -1)),
    ):
        traced = Served(function)
        assert traced(1) == traced(1)
        assert traced.count == 1
        change()
        assert traced(1) == function(1)


FORMAT, FORM = "{0[a]} {0}", "%(a)s"


class Word(str):
    pass


# Arguments whose class alone says nothing of them: pairs of the same class that differ.
ARGUMENTS = {
    "numpy_scalar": (lambda x: (x * 2, np.add(x, 1), float(x), f"{x}"), np.float32(1), np.float32(3)),
    "array": (lambda x: (sum(x), x.sum(), [*map(float, x)]), np.ones(2), np.zeros(2)),
    "date": (lambda x: (x.isoformat(), x.year, str(x)), datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)),
    "pattern": (
        lambda x: (x.findall("ab"), re.findall(x, "ab"), x.pattern),
        re.compile("a"),
        re.compile("b"),
    ),
    "itemgetter": (lambda x: (x([5, 6]), sorted([[5, 2], [4, 3]], key=x)), *map(operator.itemgetter, (0, 1))),
    "methodcaller": (lambda x: x("aB"), operator.methodcaller("upper"), operator.methodcaller("lower")),
    "partial": (lambda x: x(1), functools.partial(pow, 2), functools.partial(pow, 3)),
    "function": (lambda x: [*map(x, [-1, 4])], abs, float),
    "enum": (lambda x: (x.value, x is Colour.RED), Colour.RED, Colour.BLUE),
    "text": (lambda x: (x.upper(), x + "q", f"{x:>3}", {"a": 1, "b": 2}[x], str(x)), Word("a"), Word("b")),
    "namedtuple": (lambda x: (x.a, x._replace(a=4) + x), Pair(1, 2), Pair(2, 2)),
    "tuple_key": (lambda x: {(1, 2): 5, (1, 3): 6}[x], (1, 2), (1, 3)),
    "range": (lambda x: ([*x], len(x), sum(x), [*reversed(x)], max(x), x.stop), range(2), range(3)),
    "slice": (lambda x: ([1, 2, 3][x], x.indices(5)), slice(1), slice(2)),
    "exception": (lambda x: (str(x), repr(x), x.args), ValueError("a"), ValueError("b")),
    "union": (lambda x: isinstance(1, x), int | str, str | bytes),
    "alias": (lambda x: x([1]), list[int], tuple[int]),
    "union's types": (lambda x: [t.__name__ for t in x.__args__], int | str, str | bytes),
    "alias's types": (lambda x: (x.__origin__, x.__args__[0].__name__), list[int], dict[str, int]),
    "typing's types": (lambda x: (typing.get_origin(x), typing.get_args(x)), int | None, list[int]),
    "copied tuple": (lambda x: copy.deepcopy(x), (1000, "abc", 2.5, None), (2000, "abcd", 3.5, None)),
    "copied tuples": (lambda x: copy.deepcopy(x), (1000, ("abc", [2.5])), (2000, ("abc", [2.5]))),
    "deque": (lambda x: (x.copy().maxlen, str(x)), collections.deque([1], 3), collections.deque([1], 4)),
    "defaultdict": (lambda x: str(x), collections.defaultdict(list, a=1), collections.defaultdict(int, a=1)),
    "counted": (lambda x: (collections.Counter(x), "-".join(x), dict.fromkeys(x)), ["a", "a"], ["b"]),
    "formatted": (lambda x: (FORMAT.format(x), FORM % x, "{a}".format_map(x)), {"a": 1}, {"a": 2}),
    "copied": (lambda x: (copy.deepcopy(x), json.dumps(x)), {"a": [1]}, {"a": [2]}),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_compared_by_what_is_read_of_them(name):
    function, first, second = ARGUMENTS[name]
    traced = Served(function)
    for x in (first, first, second, second, first):
        assert repr(traced(x)) == repr(function(x)), traced.refused
    assert traced.count >= 2, traced.refused


UNKNOWN = {
    "memoryview": (lambda x: bytes(x), memoryview(b"a"), memoryview(b"b")),
    "namespace": (lambda x: repr(x), types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_c_code_finds_in_unknown_objects_is_refused(name):
    function, first, second = UNKNOWN[name]
    traced = Served(function)
    for x in (first, first, second):
        assert traced(x) == function(x)
    assert "was given to C code" in traced.refused


class Unspelled:
    """Whose methods answer with what is none of what they are asked for."""

    def __int__(self):
        return None

    __float__ = __complex__ = __str__ = __bytes__ = __int__


@pytest.mark.parametrize("kind", [int, float, complex, str, bytes])
def test_an_answer_of_another_type_is_refused_as_cpython_refuses_it(kind):
    def made(kind):
        with contextlib.suppress(TypeError):
            return kind(Unspelled())
        return "refused"

    assert recorded(made, kind).result_of_run == made(kind) == "refused"
