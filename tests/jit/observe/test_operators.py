"""Operators ask the operands' methods in Python's order, and read what C code reads."""

import copy
import datetime
import decimal
import math
import operator
from collections import Counter, OrderedDict, deque, namedtuple
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from watched import Thing, Watched, check

import lamina
from lamina.jit.observe.numbers import lifted
from lamina.jit.observe.operators import BINARY, COMPARISONS, UNARY


def asking(*names, of=object, answer=NotImplemented, log):
    """A class whose operators note that they were asked."""

    def method(name):
        def ask(self, *other):
            log.append(f"{type(self).__name__}.{name}")
            return answer

        ask.__name__ = name
        return ask

    return lambda title: type(title, (of,), {name: method(name) for name in names})


VALUES = [
    1,
    2.5,
    -3,
    True,
    "ab",
    b"c",
    (1, 2),
    [1],
    {"a": 1},
    {1, 2},
    None,
    2 + 1j,
    frozenset((1,)),
    range(2),
    OrderedDict(a=1),
    deque([1]),
    Counter("a"),
    Fraction(1, 2),
    np.float32(2),
    datetime.timedelta(1),
]


def outcome(run, *operands):
    try:
        found = run(*operands)
    except Exception as error:
        return type(error), str(error)
    return type(found), repr(found)


@pytest.mark.parametrize("symbol", BINARY)
@pytest.mark.parametrize("inplace", [False, True])
def test_binary_gives_what_python_gives(symbol, inplace):
    native = BINARY[symbol][2 if inplace else 1]
    for a in VALUES:
        for b in VALUES:
            w = Watched()
            x, y = (w.new(copy.copy(v)) for v in (a, b))
            found = outcome(lambda x, y: w.binary(symbol, x, y, inplace), x, y)  # noqa: B023
            assert found == outcome(native, copy.copy(a), copy.copy(b)), (a, symbol, b)


@pytest.mark.parametrize("symbol", COMPARISONS)
def test_compare_gives_what_python_gives(symbol):
    for a in VALUES:
        for b in VALUES:
            w = Watched()
            found = outcome(lambda x, y: w.compare(symbol, x, y), w.new(a), w.new(b))  # noqa: B023
            assert found == outcome(COMPARISONS[symbol][2], a, b), (a, symbol, b)


@pytest.mark.parametrize("symbol", UNARY)
def test_unary_gives_what_python_gives(symbol):
    for a in VALUES:
        if a is True:  # whose inversion warns
            continue
        w = Watched()
        assert outcome(lambda x: w.unary(symbol, x), w.new(a)) == outcome(UNARY[symbol][1], a)  # noqa: B023


NAMES = (
    "__add__",
    "__radd__",
    "__iadd__",
    "__mul__",
    "__rmul__",
    "__lt__",
    "__gt__",
    "__eq__",
    "__ne__",
    "__le__",
)


@pytest.mark.parametrize("order", ["apart", "derived", "base", "same", "list", "list_right", "tensor"])
@pytest.mark.parametrize("run", ["+", "+=", "*", "*=", "<", ">", "==", "!=", "<="])
def test_methods_are_asked_in_pythons_order(order, run):
    log = []
    A = asking(*NAMES, log=log)("A")
    B = asking(*NAMES, of=A if order in ("derived", "base") else object, log=log)("B")
    made = {
        "apart": (A, B),
        "derived": (A, B),
        "base": (B, A),
        "same": (A, A),
        "list": (A, lambda: [1]),
        "list_right": (lambda: [1], A),
        "tensor": (A, lambda: 3),
    }[order]
    inplace = run in ("+=", "*=")
    symbol = run[:-1] if inplace else run
    native = BINARY[symbol][2 if inplace else 1] if symbol in BINARY else COMPARISONS[symbol][2]
    expected = outcome(native, made[0](), made[1]())
    asked, log[:] = [*log], []
    w = Watched()
    a, b = w.new(made[0]()), w.new(made[1]())
    ask = (lambda: w.binary(symbol, a, b, inplace)) if symbol in BINARY else (lambda: w.compare(symbol, a, b))
    found = outcome(ask)
    assert log == asked and found[0] is expected[0]
    if expected[0] is TypeError and order != "list_right":
        assert found[1] == expected[1]


def test_reflected_method_of_a_derived_class_goes_first_only_where_it_is_its_own():
    log = []
    A = asking("__add__", "__radd__", answer=1, log=log)("A")
    B = type("B", (A,), {})
    w = Watched()
    w.binary("+", w.new(A()), w.new(B()))
    A() + B()
    assert log == ["A.__add__"] * 2


def test_ne_follows_from_eq():
    class Same:
        def __eq__(self, other):
            return True

    def run(w, o):
        found = w.compare("!=", w.attribute(o, "a"), w.attribute(o, "b"))
        assert w.called == ["__eq__"]
        return found

    check(lambda: Thing(a=Same(), b=1), run, result=False)


def test_operator_methods_are_facts():
    def made():
        kind = type("K", (), {"__add__": lambda self, other: 1})
        return Thing(a=kind())

    check(
        made,
        lambda w, o: w.binary("+", w.attribute(o, "a"), 1),
        result=1,
        changes=[
            lambda o: setattr(type(o.a), "__add__", lambda self, other: 2),
            lambda o: delattr(type(o.a), "__add__"),
        ],
    )
    check(
        made,
        lambda w, o: w.binary("+", w.attribute(o, "a"), 1, True),
        result=1,
        changes=[lambda o: setattr(type(o.a), "__iadd__", lambda self, other: 2)],
    )


# ---- what C code reads ----
def test_operands_are_read():
    both = lambda symbol: lambda w, o: w.binary(symbol, w.attribute(o, "a"), w.attribute(o, "b"))  # noqa: E731
    check(
        lambda: Thing(a=[1], b=[2]),
        both("+"),
        result=[1, 2],
        changes=[lambda o: o.a.append(1), lambda o: o.b.append(1)],
    )
    check(
        lambda: Thing(a={1, 2}, b={2}),
        both("&"),
        result={2},
        changes=[lambda o: o.a.remove(2), lambda o: o.b.add(1)],
    )
    check(
        lambda: Thing(a={"a": 1}, b={"b": 1}),
        both("|"),
        result={"a": 1, "b": 1},
        changes=[lambda o: o.a.update(a=2), lambda o: o.b.pop("b")],
    )
    check(lambda: Thing(a="%s", b=([1],)), both("%"), result="[1]", changes=[lambda o: o.b[0].append(1)])
    check(lambda: Thing(a="%s", b=(Thing(),)), both("%"), refused="Thing was given to C code")
    check(
        lambda: Thing(a=np.zeros(2), b=[[1, 2]]),
        lambda w, o: both("+")(w, o).tolist(),
        result=[[1.0, 2.0]],
        changes=[lambda o: o.a.__setitem__(0, 5), lambda o: o.b[0].append(1)],
    )
    check(lambda: Thing(a=int, b=None), lambda w, o: both("|")(w, o) == (int | None), result=True)


def test_numbers_of_a_class_of_its_own_are_read_by_value():
    Number, Text = type("Number", (int,), {}), type("Text", (str,), {})
    for value, run in [
        (Number(3), lambda w, x: w.binary("+", x, 1)),
        (Text("a"), lambda w, x: w.binary("+", x, "b")),
        (Number(3), lambda w, x: w.compare("==", x, 3)),
        (Number(3), lambda w, x: w.unary("-", x)),
        (Text("a"), lambda w, x: w.contains(x, "b")),
        (Number(3), lambda w, x: w.item([1, 2, 3, 4], x)),
    ]:
        w = Watched()
        w.argument("x", value)
        if run(w, value) is not None and w.refused is None:
            other = type(value)(7 if isinstance(value, int) else "z")
            assert w.holds(type(value)(value)) and not w.holds(other)


def test_decimal_depends_on_its_context_and_is_refused():
    w = Watched()
    w.binary("/", w.new(decimal.Decimal(1)), w.new(decimal.Decimal(3)))
    assert "Decimal" in w.refused


# ---- comparing containers ----
def test_containers_are_compared_item_by_item():
    @dataclass(order=True)
    class Point:
        x: int

    def run(symbol):
        return lambda w, o: (w.compare(symbol, w.attribute(o, "a"), w.attribute(o, "b")), w.called)

    check(lambda: Thing(a=[1, Point(1)], b=[1, Point(2)]), run("=="), result=(False, ["__eq__"]))
    check(lambda: Thing(a=[1, Point(1)], b=[1, Point(2)]), run("<"), result=(True, ["__eq__", "__lt__"]))
    check(
        lambda: Thing(a={"k": Point(1)}, b={"k": Point(1)}),
        run("=="),
        result=(True, ["__eq__"]),
        changes=[lambda o: o.a.update(k=5), lambda o: o.b.clear()],
    )
    check(
        lambda: Thing(a=[[1], [2]], b=[[1], [2]]),
        run("=="),
        result=(True, []),
        changes=[lambda o: o.a[0].append(1), lambda o: o.b[1].clear()],
    )
    Pair = namedtuple("Pair", "x y")
    check(
        lambda: Thing(a=Pair([1], 2), b=([1], 2)),
        run("=="),
        result=(True, []),
        changes=[lambda o: o.b[0].append(1)],
    )


def test_sets_of_objects_that_compare_themselves_are_refused():
    class Own:
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    own = Own()
    check(
        lambda: Thing(a={own}, b={own}),
        lambda w, o: w.compare("==", w.attribute(o, "a"), w.attribute(o, "b")),
        result=True,
        refused="compared objects of Own",
    )
    check(
        lambda: Thing(a={(own,)}, b={1}),
        lambda w, o: w.binary("|", w.attribute(o, "a"), w.attribute(o, "b")),
        refused="compared objects of tuple",
    )


def test_identity_of_objects():
    thing = Thing()
    check(
        lambda: Thing(a=thing),
        lambda w, o: w.compare("==", w.attribute(o, "a"), thing),
        result=True,
        changes=[lambda o: setattr(o, "a", Thing())],
    )


# ---- in place ----
def test_in_place_on_containers():
    w, o = Watched(), Thing(c=[1], d={"a": 1}, s={1})
    w.pin(o)
    given = w.new([2])
    c, d, s = (w.attribute(o, name) for name in "cds")
    assert w.binary("+", c, given, inplace=True) is c
    given.append(3)  # later, and not in the list
    w.binary("|", d, w.new({"b": 2}), inplace=True)
    w.binary("|", s, w.new({5}), inplace=True)
    assert (o.c, o.d, o.s) == ([1, 2], {"a": 1, "b": 2}, {1, 5}) and len(w.written.effects) == 3
    assert w.item(d, "b") == 2
    o.c[:], o.s = [8, 8, 8], s
    o.d.pop("b"), o.s.remove(5)
    assert w.holds()
    for function, args, _ in w.written.effects:
        function(*args)
    assert (o.c, o.d, o.s) == ([8, 8, 8, 2], {"a": 1, "b": 2}, {1, 5})


def test_in_place_on_arrays_is_refused():
    check(
        lambda: Thing(a=np.ones(2)),
        lambda w, o: w.binary("+", w.attribute(o, "a"), 1, True).tolist(),
        result=[2.0, 2.0],
        refused="NumPy array was written",
    )


def test_list_in_place_with_an_operand_that_declines():
    class Declines:
        def __radd__(self, other):
            return NotImplemented

        def __iter__(self):
            return iter([5])

    w, o = Watched(), Thing(c=[1])
    w.pin(o)
    assert w.binary("+", w.attribute(o, "c"), w.new(Declines()), inplace=True) == [1, 5]
    assert w.called == ["__radd__", "__iter__"]


# ---- lifted numbers ----
def test_lifted_numbers():
    w = Watched()
    x = lifted(3, f"S[{w.guards.slot()}]")
    y = w.binary("+", x, 1)
    assert (y, y.expression) == (4, "S[1]") and w.binary("+", x, 1) is y
    assert w.binary("/", 1.5, x) == 0.5 and w.unary("-", x) == -3
    assert w.binary("*", -1, x) == -3 and w.binary("**", w.unary("-", x), 2) == 9
    assert w.of_numbers(max, (x, 2.5)) == 3 and w.of_numbers(math.isnan, (x,)) is False
    assert w.guards.part.lines == [
        "v = S[1] = S[0] + 1", "if S[0] == 0: return 1", "v = S[2] = 1.5 / S[0]", "v = S[3] = -S[0]",
        "v = S[4] = (-1) * S[0]", "v = S[5] = S[3] ** 2", "if type(v) is not int: return 2",
        "v = S[6] = k0_(S[0], 2.5)", "if type(v) is not int: return 3", "if k1_(S[0]) is not False: return 4",
    ]  # fmt: skip
    assert w.numbers.in_words("S[6]") == "(max(S[0], 2.5))"
    assert w.compare("<", x, 5) is True
    assert w.holds(4) and not w.holds(6)
    assert w.truth(x) is True
    assert not w.holds(0) and not w.holds(2)
    assert w.plain(y) == 4 and w.plain(y) == 4 and len(w.guards.part.reasons) == 7
    assert w.holds(3) and not w.holds(4)


def test_lifted_number_beside_one_that_has_no_text():
    w = Watched()
    w.guards.slot()
    assert w.binary("*", lifted(2.0, "S[0]"), float("inf")) == float("inf")  # "float('inf')"
    assert w.holds(2.0) and w.holds(3.0)
    found = w.binary("*", lifted(2.0, "S[0]"), float("nan"))
    assert found != found and w.holds(2.0) and not w.holds(3.0)


def test_tensors_are_native():
    w, x = Watched(), lamina.ones(2)
    w.argument("x", x)
    assert w.binary("+", x, 1).tolist() == [2.0, 2.0]
    assert w.binary("*", 2, x, inplace=True).tolist() == [2.0, 2.0]
    assert w.compare("<", x, 2).tolist() == [True, True]
    assert w.unary("-", x).tolist() == [-1.0, -1.0]
    assert w.compare("==", x.shape, w.new((2,))) is True and w.refused is None


def test_formatted():
    w = Watched()
    assert w.formatted(3.14159, None, ".2f") == "3.14" and w.formatted("a", "r", ">5") == "  'a'"
    assert w.formatted("a", "", "") == "a"


def test_after_refusing_everything_runs_natively():
    w = Watched()
    w.refuse("enough")
    x = lifted(3, "S[0]")
    assert w.binary("+", x, 1) == 4 and w.compare("<", x, 5) and w.unary("-", [x][0]) == -3
    assert w.binary("+", [1], [2]) == operator.add([1], [2])
