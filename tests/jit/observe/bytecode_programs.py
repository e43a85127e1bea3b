"""Small programs that between them use every construct of Python's functions, for the interpreter's tests.

`PROGRAMS` has (function, arguments): each is run natively and interpreted, and must end alike.  What a program
does on the way it tells by `say`.
"""

# ruff: noqa - the odd constructs are what is tested
from __future__ import annotations

import contextlib
import functools
import sys
import traceback
import warnings

SAID: list = []
PROGRAMS: list = []
COUNTER = 0


def say(*what):
    SAID.append(repr(what))
    return what[0] if what else None


def program(*calls):
    """Register a function with the arguments of each of its calls."""

    def register(function):
        PROGRAMS.extend((function, args) for args in calls or ((),))
        return function

    return register


class Context:
    """A context manager that tells of its use, and swallows errors of a kind."""

    def __init__(self, name, swallows=(), fails=None):
        self.name, self.swallows, self.fails = name, swallows, fails

    def __enter__(self):
        say("enter", self.name)
        if self.fails == "enter":
            raise OSError("enter " + self.name)
        return self.name

    def __exit__(self, kind, error, trace):
        say("exit", self.name, kind, str(error), trace and trace.tb_lineno, str(sys.exc_info()[1]))
        if self.fails == "exit":
            raise OSError("exit " + self.name)
        return isinstance(error, self.swallows)


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __repr__(self):
        return f"Point({self.x}, {self.y})"

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)

    def __iadd__(self, other):
        self.x += other.x
        return self

    def __getitem__(self, key):
        return key


# ---- variables


@program((1,), (0,))
def unbound_local(x):
    if x:
        y = 1
    return y


@program((1,), (0,))
def deleted_local(x):
    if x:
        del x
    return x


@program()
def deleted_twice():
    x = 1
    del x
    del x


@program((1,), (0,))
def unbound_free(x):
    def inner():
        return y

    if x:
        y = 2
    return inner()


@program()
def deleted_cell():
    def inner():
        return y

    y = 2
    del y
    inner()


@program()
def unknown_global():
    return no_such_name


@program()
def unknown_global_deleted():
    global no_such_name
    del no_such_name


@program()
def counts_globally():
    global COUNTER
    COUNTER += 5
    COUNTER -= 5
    return COUNTER


@program((3,))
def nonlocals(n):
    def step():
        nonlocal total
        total += n
        return total

    total = 0
    return step(), step(), total


@program((2,))
def argument_in_a_cell(n, *rest, **named):
    def inner(k=1):
        return n + k, rest, named

    n += 1
    return inner(), inner(k=5)


@program((5,))
def makers(n):
    return [f() for f in [lambda i=i: i * n for i in range(3)]], [f() for f in [lambda: j for j in range(3)]]


@program(([1, 2, 3],), ([],))
def walrus(values):
    if (n := len(values)) > 1 and any((last := v) > 1 for v in values):
        return n, last
    return n


@program()
def augmented():
    a = [1, 2]
    b = a
    a += [3]
    a[0] += 5
    a[1] <<= 2
    p = Point(1, 2)
    q = p
    p += Point(5, 5)
    q.y *= 3
    x = 7
    x //= 2
    x **= 3
    x %= 10
    x |= 8
    x ^= 3
    x &= 14
    x >>= 1
    x /= 2
    x -= 0.5
    return a is b, a, p, x


@program((7, 2), (7.5, 2), (-7, 2), ("ab", 2), (1, 0), ([1], (2,)))
def operators(a, b):
    found = []
    for number in range(13):
        try:
            found.append((
                lambda: a + b, lambda: a - b, lambda: a * b, lambda: a / b, lambda: a // b, lambda: a % b,
                lambda: a**b, lambda: a & b, lambda: a | b, lambda: a ^ b, lambda: a << b, lambda: a >> b,
                lambda: a @ b,
            )[number]())  # fmt: skip
        except Exception as error:
            found.append(repr(error))
    return found


@program((3,), (3.5,), ("x",), (True,), (None,))
def unaries(a):
    found = []
    for each in (lambda: -a, lambda: +a, lambda: ~a, lambda: not a):
        try:
            found.append(each())
        except TypeError as error:
            found.append(str(error))
    return found


@program((1, 2), (2, 2), ("a", "b"), ("a", 1), (None, None), ([1], [1]))
def comparisons(a, b):
    found = [a == b, a != b, a is b, a is not b]
    try:
        found += [a < b, a <= b, a > b, a >= b, a < b < a]
    except TypeError as error:
        found.append(str(error))
    return found


@program((1, [1, 2]), (5, (1,)), ("a", "cat"), (1, {1: 2}), (1, 1), (2, range(3)))
def membership(a, b):
    return a in b, a not in b


@program((0, 1), (1, 0), ([], ""), ({}, None))
def logic(a, b):
    return a and b, a or b, (a or b) and not (a and b), 1 if a else 2, a if b is None else b is not None


@program((0,), (1,), (2,), (11,))
def chained(x):
    return 0 < x < 10, 0 < say(x) <= say(2) != say(5)


# ---- items


@program(([0, 1, 2, 3, 4],), ("hello",), ((1, 2),))
def slices(v):
    return v[1:], v[:-1], v[::2], v[1:3], v[-1], v[:]


@program()
def slice_stores():
    v = list(range(10))
    v[2:4] = ["a", "b", "c"]
    v[::5] = "xy"[: len(v[::5])] + "z" * (len(v[::5]) - 2)
    del v[1:3], v[-1]
    return v, Point(0, 0)[1:2, ::3, ...]


@program(({},), ({"a": 1},), ([],), (5,))
def item_errors(v):
    try:
        return v["a"]
    except (KeyError, TypeError) as error:
        return repr(error)


@program()
def dictionaries():
    d = {"a": 1, **{"b": 2}, "c": 3}
    d["d"] = d.pop("a")
    del d["b"]
    return d, {**d, "c": 0}, {1: 2, 3: 4}, {k: v for k, v in d.items() if v > 1}


@program()
def displays():
    a, b = [1, 2], (3, 4)
    return [*a, 0, *b], (*a, *b), {*a, *b, 1}, {1, 2}, [], (), {}, {*()}, (1,), [(1, [2])], {"k": (1, 2)}


@program((5,), (None,))
def starred_display(v):
    return [*v]


@program((5,), (None,), ([1],))
def starred_mapping(v):
    return {**v}


@program(
    ((1, 2),), ([1, 2],), ("ab",), ((1,),), ((1, 2, 3),), ({1: 2, 3: 4},), (5,), (iter([1, 2, 3]),), ({1},)
)
def unpacks(v):
    a, b = v
    return a, b


@program(((1, 2),), ([1, 2, 3, 4],), ("abc",), ((1,),), (5,), (range(5),))
def unpacks_rest(v):
    a, *b, c = v
    return a, b, c


@program()
def unpacks_no_more_than_it_needs():
    source = iter([1, 2, 3, 4, 5])
    try:
        a, b = source
    except ValueError as error:
        say(str(error))
    (x, (y, *z)), w = (1, "abc"), 2
    return list(source), x, y, z, w


# ---- text


@program((3.14159, "x"), ("s", 5), (None, Point(1, 2)))
def formats(a, b):
    return f"{a} {b!r} {a!s:>10} {b!a:^8.5} {a=} {{}} {f'{b}'}", f"{a}", "%s-%r" % (a, b), f"{'':>{4}}|"


@program((5,), ("x",))
def format_spec(v):
    return f"{v:05d}"


# ---- calls


def taking(a, b=2, /, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


CALLS = [
    ((1,), {"d": 4}), ((1, 2, 3, 4, 5), {"d": 4, "f": 6}), ((), {"d": 1}), ((1,), {}), ((1,), {"d": 1, "a": 2}),
    ((1, 2, 3), {"d": 1, "c": 2}), ((1,), {"b": 2, "d": 1}), ((1, 2), {"c": 5, "d": 1, "e": 2}),
]  # fmt: skip


@program(*CALLS)
def calls_with(args, kwargs):
    return taking(*args, **kwargs)


def plain(a, b):
    return a, b


def with_defaults(a, b=[]):
    b.append(a)
    return list(b)


def only_named(*, a, b=1):
    return a, b


def only_positional(a, /, b):
    return a, b


@program(
    (plain, (), {}), (plain, (1,), {}), (plain, (1, 2, 3), {}), (plain, (1,), {"c": 2}), (plain, (1,), {"a": 2}),
    (plain, (), {"b": 1, "a": 2}), (only_named, (1,), {}), (only_named, (), {}), (only_named, (), {"a": 1, "c": 2}),
    (only_named, (), {"a": 1}), (only_positional, (), {"a": 1, "b": 2}), (only_positional, (1,), {"b": 2}),
    (with_defaults, (1,), {}), (lambda: 1, (1,), {}), (plain, (1, 2), {1: 2}), (Point, (1,), {}),
    (Point.__repr__, (), {}), (len, (), {}), (5, (), {}),
)  # fmt: skip
def binds(function, args, kwargs):
    return function(*args, **kwargs)


@program((5,), ([1, 2],), ("ab",), (iter("cd"),))
def calls_unpacked(v):
    return plain(*v)


@program((5,), ({"a": 1},), ({"a": 1, "b": 2},), ({"b": 2, "c": 3},))
def calls_unpacked_names(v):
    return plain(1, **v)


@program((5,), ({"a": 1},), ({"b": 1},))
def merges_names(v):
    return plain(**{"a": 1}, **v)


@program()
def mixed_calls():
    return (
        taking(1, *(2, 3), 4, *[5], d=1, **{"z": 1}, y=2),
        print.__name__,
        max(1, *[2, 3], key=lambda v: -v),
    )


@program()
def methods():
    p = Point(1, 2)
    unbound, bound = Point.__repr__, p.__repr__
    return (
        unbound(p),
        bound(),
        p + Point(2, 3),
        [].append(1),
        "a-b".split("-"),
        functools.partial(plain, 1)(b=2),
    )


@program()
def missing_attribute():
    return Point(1, 2).z


@program()
def attributes():
    p = Point(1, 2)
    p.z = 5
    p.z += 1
    del p.x
    return vars(p) if False else p.__dict__


def decorate(note):
    def with_note(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            say(note, args, kwargs)
            return function(*args, **kwargs)

        return wrapper

    return with_note


@program()
def decorated():
    @decorate("outer")
    @decorate("inner")
    def f(a, b: int = 5) -> int:
        """Doc."""
        return a + b

    return f(1), f.__name__, f.__doc__, f.__defaults__, sorted(f.__annotations__)


# ---- loops


@program((5,), (0,))
def loops(n):
    found = []
    for i in range(n):
        if i == 1:
            continue
        if i == 4:
            break
        found.append(i)
    else:
        found.append("else")
    while n:
        n -= 1
        if n == 2:
            break
    else:
        found.append("while else")
    return found


@program()
def nested_loops():
    return [(i, j) for i in range(4) if i % 2 for j in range(i) if j != 1], [
        [j for j in range(i)] for i in range(3)
    ]


@program((5,), (None,), (Point(1, 2),))
def iterates(v):
    for _, each in zip(range(3), v, strict=False):
        say(each)


class Failing:
    def __iter__(self):
        return self

    def __next__(self):
        raise ValueError("next")


@program()
def iterator_fails():
    for _ in Failing():
        pass


@program(([3, 1, 2],))
def comprehensions(values):
    i = "kept"
    found = [i for i in values], {i for i in values}, {i: -i for i in values}, list(i for i in values)
    return found, i, [(lambda: k)() for k in values], [x for x in [y for y in values] if x]


@program()
def comprehension_fails():
    x = 1
    try:
        return [1 / x for x in (1, 0)]
    except ZeroDivisionError:
        return x


@program()
def comprehension_unbound():
    try:
        y = [z for z in (1, 2) if late]
    except NameError as error:
        say(str(error))
    late = 1
    del late
    return [late for _ in (1,)]


# ---- errors


@program((0,), (1,), (2,), (3,), (4,))
def tries(x):
    try:
        say("try")
        if x == 1:
            raise ValueError("one")
        if x == 2:
            raise KeyError("two")
        if x == 4:
            return "early"
    except ValueError as error:
        say("except", str(error), sys.exc_info()[0])
        if x == 1:
            return "caught"
    else:
        say("else")
        if x == 3:
            raise TypeError("else")
    finally:
        say("finally", str(sys.exc_info()[1]))
    return "end"


@program()
def contexts_chain():
    try:
        try:
            raise ValueError("first")
        except ValueError:
            raise KeyError("second")
    except KeyError as error:
        try:
            raise TypeError("third") from error
        except TypeError:
            try:
                {}[1]
            finally:
                [][5]


@program()
def context_from_none():
    try:
        1 / 0
    except ZeroDivisionError:
        raise ValueError("x") from None


@program()
def context_is_cut():
    try:
        raise ValueError("a")
    except ValueError as a:
        try:
            raise KeyError("b")
        except KeyError:
            raise a


@program()
def bare_raise():
    def inner():
        raise

    try:
        [].x
    except AttributeError:
        inner()


@program()
def bare_raise_of_nothing():
    raise


@program()
def raised_again():
    try:
        1 / 0
    except ZeroDivisionError as error:
        say(len(traceback.extract_tb(error.__traceback__)))
        raise error


@program()
def reraised():
    try:
        unknown_global()
    except NameError:
        try:
            raise
        finally:
            say("out")


@program((5,), (int,), ("x",), (ValueError,), (ValueError("v"),), (None,))
def raises(what):
    raise what


@program((5,), (int,), (ValueError,), (ValueError("v"),), (None,))
def raises_from(cause):
    raise KeyError("k") from cause


@program((ValueError,), ((KeyError, ValueError),), (5,), ((KeyError, 5),), (Exception,), ((),))
def catches(kinds):
    try:
        raise ValueError("v")
    except kinds as error:
        return repr(error)


@program()
def except_unbinds():
    error = 5
    try:
        1 / 0
    except ZeroDivisionError as error:
        pass
    return error


@program((1,), (0,))
def asserts(x):
    assert x, f"x is {x}"
    assert x
    return x


@program()
def deep_traceback():
    def a(n):
        if n:
            return b(n - 1)
        return {}["key"]

    def b(n):
        return (
            a(n - 1)
            if n
            else a(
                n
            )
        )  # fmt: skip

    return a(5)


@program()
def reports():
    def fail():
        raise RuntimeError("oh")

    try:
        fail()
    except RuntimeError as error:
        text = traceback.format_exc()
        say(text, traceback.format_tb(error.__traceback__), sys.exc_info()[1] is error)
        with contextlib.suppress(KeyError):
            {}[0]
        say(repr(sys.exc_info()[1]))
    say(repr(sys.exc_info()))


@program()
def error_through_c():
    return sorted([1, 2], key=lambda v: v / 0)


@program()
def error_in_called_class():
    class Bad:
        def __init__(self):
            raise ValueError("init")

    Bad()


@program((0,), (1,), (2,), (3,), (4,))
def groups(x):
    errors = [[ValueError(1)], [ValueError(1), KeyError(2)], [TypeError(3)], [], [KeyError(1), OSError(2)]][x]
    try:
        if x == 3:
            raise ValueError("naked")
        raise ExceptionGroup("g", [*errors, ExceptionGroup("h", [ValueError(9)])])
    except* ValueError as group:
        say("value", [repr(e) for e in group.exceptions])
    except* KeyError as group:
        say("key", str(group))
        raise OSError("other")
    finally:
        say("done")
    return x


@program()
def group_of_wrong_kind():
    try:
        raise ValueError(1)
    except* 5:
        pass


@program()
def recursion_is_limited():
    def f(n):
        return f(n + 1)

    try:
        f(0)
    except RecursionError as error:
        return str(error)[:32]


@program((400,))
def recursion(n):
    return 0 if not n else 1 + recursion(n - 1)


# ---- context managers


@program((0,), (1,), (2,))
def withs(x):
    with Context("a") as a, Context("b", swallows=KeyError):
        say(a)
        if x == 1:
            raise KeyError("k")
        if x == 2:
            return "early"
    return "end"


@program(("enter",), ("exit",))
def with_fails(how):
    with Context("a"), Context("b", fails=how):
        raise KeyError("inside")


@program((5,), (None,))
def with_wrong(v):
    with v as x:
        return x


@program()
def with_half():
    class Half:
        def __enter__(self):
            return 1

    with Half():
        pass


@contextlib.contextmanager
def managed(name):
    say("before", name)
    try:
        yield name
    except ValueError as error:
        say("swallowed", str(error))
    finally:
        say("after", name)


@program((0,), (1,), (2,))
def generator_context(x):
    with managed("m") as m, contextlib.ExitStack() as stack:
        stack.callback(say, "called back")
        stack.enter_context(Context("inner"))
        if x == 1:
            raise ValueError(m)
        if x == 2:
            raise TypeError(m)
    return x


@program()
def loop_in_with():
    for i in range(3):
        with Context(str(i)):
            if i == 1:
                continue
            if i == 2:
                break
            say(i)


# ---- generators


def counting(n):
    say("start")
    try:
        while n:
            got = yield n
            if got is not None:
                say("got", got)
            n -= 1
        return "result"
    except ValueError as error:
        say("inside", str(error), sys.exc_info()[0])
        yield "after"
        raise KeyError("from generator") from error
    finally:
        say("finally")


@program()
def generates():
    return list(counting(3)), tuple(x * 2 for x in counting(2)), sum(counting(4))


@program()
def sends():
    g = counting(3)
    return next(g), g.send("x"), next(g, None), next(g, "end"), next(g, "ended")


@program()
def throws():
    g = counting(3)
    next(g)
    say(g.throw(ValueError("thrown")))
    g.send(1)


@program()
def throws_other():
    g = counting(3)
    next(g)
    g.throw(OSError("thrown"))


@program()
def throws_at_start():
    g = counting(3)
    try:
        g.throw(OSError("thrown"))
    except OSError as error:
        return str(error), next(g, "ended")


@program()
def closes():
    g = counting(3)
    next(g)
    g.close()
    g.close()
    return next(g, "closed"), g.__name__, g.__qualname__


@program()
def refuses_to_close():
    def stubborn():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    g = stubborn()
    next(g)
    g.close()


@program()
def stops_inside():
    def g():
        yield 1
        raise StopIteration(5)

    return list(g())


@program()
def sends_to_new():
    counting(2).send(5)


def delegating(source):
    say("delegates")
    try:
        found = yield from source
        say("found", found)
        yield "more"
    except KeyError as error:
        say("caught", str(error), str(error.__cause__))
        yield "caught"
    return "done"


@program()
def delegates():
    g = delegating(counting(2))
    return next(g), g.send("deep"), list(g), list(delegating([1, 2])), list(delegating("ab"))


@program((ValueError("v"),), (OSError("o"),), (GeneratorExit(),), (StopIteration(7),))
def throws_through(error):
    g = delegating(counting(2))
    say(next(g))
    say(g.throw(error))
    return list(g)


@program((ValueError("v"),), (StopIteration(7),), (KeyError("k"),))
def throws_through_list(error):
    g = delegating([1, 2, 3])
    say(next(g))
    say(g.throw(error))
    return list(g)


class Source:
    def __iter__(self):
        return self

    def __next__(self):
        return "next"

    def send(self, value):
        if value == "stop":
            raise StopIteration("sent")
        return value

    def throw(self, error):
        say("throw", repr(error))
        if isinstance(error, ValueError):
            raise StopIteration("thrown")
        return "thrown"

    def close(self):
        say("close")
        raise OSError("close")


@program()
def delegates_to_object():
    g = delegating(Source())
    say(next(g), g.send(5), g.throw(TypeError()), g.throw(ValueError()), next(g, None))
    g = delegating(Source())
    next(g)
    say(g.send("stop"))
    g = delegating(Source())
    next(g)
    g.close()


@program((5,), (None,))
def delegates_to_nothing(v):
    return list(delegating(v))


@program()
def yields_in_except():
    def g():
        try:
            raise ValueError("v")
        except ValueError:
            say(str(sys.exc_info()[1]))
            yield 1
            say(str(sys.exc_info()[1]))
            try:
                yield 2
            except KeyError as error:
                say(repr(error.__context__))
                raise

    it = g()
    try:
        raise OSError("outer")
    except OSError:
        say(next(it), repr(sys.exc_info()[1]))
    say(next(it), repr(sys.exc_info()[1]))
    it.throw(KeyError("k"))


@program()
def throws_into_one_that_handles_nothing():
    def g():
        try:
            yield
        finally:
            raise KeyError("k")

    it = g()
    next(it)
    thrown = ValueError("thrown")
    thrown.__context__ = TypeError("its own")
    try:
        raise OSError("outer")
    except OSError:
        try:
            it.throw(thrown)
        except KeyError as error:
            say(repr(error.__context__), repr(error.__context__.__context__))


@program()
def names_keywords_by_numbers():
    try:
        dict(**{1: 2})
    except TypeError as error:
        say(error)


@program()
def infinite():
    def naturals(n=0):
        while True:
            yield n
            n += 1

    return [x for x, _ in zip(naturals(), range(5), strict=False)], [*zip("ab", naturals(3), strict=False)]


@program()
def recursive_generator():
    def walk(tree):
        for each in tree:
            if isinstance(each, list):
                yield from walk(each)
            else:
                yield each

    return list(walk([1, [2, [3, 4], []], 5]))


@program()
def generator_fails():
    def g():
        yield 1
        yield 1 / 0

    for x in g():
        say(x)


# ---- classes


@program()
def classes():
    class Base:
        kind = "base"
        names: list = []

        def __init__(self, x):
            self.x = x

        def show(self):
            return f"{self.kind} {self.x}"

        @property
        def double(self):
            return self.x * 2

        @double.setter
        def double(self, value):
            self.x = value // 2

        @classmethod
        def make(cls, x):
            return cls(x)

        @staticmethod
        def helper(a):
            return a + 1

        def __private(self):
            return "private"

        def reveals(self):
            return self.__private()

    class Child(Base):
        kind = "child"

        def __init__(self, x, y):
            super().__init__(x)
            self.y = y

        def show(self):
            return super().show() + f" {self.y} {__class__.__name__} {super(Child, self).kind}"

        @classmethod
        def make(cls, x):
            return cls(x, super().make.__name__)

    c = Child.make(3)
    c.double = 10
    return c.show(), c.double, Base.helper(1), c.reveals(), Child.__mro__[1].__name__, Base.__qualname__


@program()
def class_scopes():
    x = "enclosing"

    class A:
        y = x
        x = "inner"
        z = [x for _ in range(2)] if False else x

        def get(self):
            return x

        class B:
            w = x

        del x

    return A.y, A.z, A().get(), A.B.w, hasattr(A, "x"), A.__module__, A.B.__qualname__


class Meta(type):
    @classmethod
    def __prepare__(cls, name, bases, **named):
        say("prepare", name, named)
        return {"prepared": True}

    def __new__(cls, name, bases, names, **named):
        say("new", name, sorted(key for key in names if key[0] != "_"), named)
        return super().__new__(cls, name, bases, names)

    def __init__(cls, name, bases, names, **named):
        super().__init__(name, bases, names)

    def __call__(cls, *args):
        return "made", super().__call__(*args).__class__.__name__


class Field:
    def __set_name__(self, owner, name):
        say("set name", owner.__name__, name)


@program()
def metaclasses():
    class A(metaclass=Meta, option=5):
        x = 1

        def f(self):
            return __class__

    class Registry:
        known = []

        def __init_subclass__(cls, **named):
            super().__init_subclass__()
            Registry.known.append((cls.__name__, named))

    class B(Registry, tag="b"):
        field = Field()

    return A(), A.prepared, Registry.known


@program()
def class_body_fails():
    class A:
        x = 1
        y = x / 0


@program()
def unknown_in_class():
    class A:
        del nothing


@program()
def zero_argument_super_fails():
    def f():
        return super().x

    f()


@program()
def super_with_arguments():
    class A:
        def f(self):
            return "A"

    class B(A):
        def f(self):
            return [super(B, self).f() for _ in range(1)]

    return B().f(), super(B, B()).f()


# ---- patterns


@program(
    (1,), ("a",), ([],), ([1],), ([1, 2],), ([1, 2, 3, 4],), ((1, "x"),), ({},), ({"k": 1},), ({"k": 2, "l": 3},),
    (Point(0, 5),), (Point(1, 2),), (Point(3, 3),), (None,), (True,), (3.5,), (b"x",), ("abc",), ({"t": [1, 2]},),
)  # fmt: skip
def matches(v):
    match v:
        case None:
            return "none"
        case True | False:
            return "bool"
        case int(n) if n > 0:
            return "positive", n
        case "a" | "b":
            return "letter"
        case str() as text:
            return "text", text
        case []:
            return "empty"
        case [x]:
            return "one", x
        case [int(x), str(y)]:
            return "pair", x, y
        case [x, *rest, last]:
            return "many", x, rest, last
        case {"k": 1, **rest}:
            return "k1", rest
        case {"k": k, "l": l}:
            return "kl", k, l
        case {"t": [first, _]}:
            return "nested", first
        case {}:
            return "mapping"
        case Point(x=0, y=y):
            return "axis", y
        case Point(x, y) if x == y:
            return "diagonal"
        case Point(x, _):
            return "point", x
        case float() | bytes():
            return "other"


class Odd:
    __match_args__ = ["x"]


@program((Odd(), Odd), (Point(1, 2), Point), (5, int), (5, 5))
def match_errors(v, kind):
    match v:
        case kind(1, 2, 3):
            return "no"


@program((Point(1, 2),))
def match_twice(v):
    match v:
        case Point(1, x=1):
            return "no"


@program((Odd(), Odd), (5, 5))
def match_args_of_wrong_kind(v, kind):
    match v:
        case kind(1):
            return "no"


# ---- imports and scopes


@program()
def imports():
    import os.path as path
    from collections import OrderedDict as Ordered
    from math import floor, pi

    import math

    return path.join("a", "b"), Ordered([(1, 2)]), floor(pi), math.ceil(pi)


@program()
def import_fails():
    from math import no_such_thing


@program()
def import_of_nothing():
    import no_such_module


@program((5,))
def scopes(n):
    k = 3

    def inner():
        return sorted(locals()), n

    return (
        sorted(locals()),
        inner()[1],
        eval("n + 1"),
        globals() is inner.__globals__,
        dir()[:1],
        sorted(vars()),
    )


@program()
def executes():
    exec("say('executed', 1)")
    space = {}
    exec("x = 5", space)
    return eval("x + 1", space), eval("y", {"y": 2}), eval("z", {}, {"z": 3})


@program()
def frames():
    return sys._getframe().f_code.co_name, sys._getframe(0).f_globals is globals()


@program()
def lambdas():
    return (lambda *a, b=2, **c: (a, b, c))(1, 2, b=3, d=4), (lambda: (yield))().__class__.__name__


@program()
def annotated():
    x: int = 5
    y: str
    try:
        return y
    except UnboundLocalError as error:
        return x, str(error)


@program()
def docs():
    def f():
        """Says something."""

    def g(a, /, b: int = 1, *, c: str = "x") -> None: ...

    return f.__doc__, g.__doc__, g.__kwdefaults__, g.__defaults__, g.__qualname__, g.__module__


@program()
def coroutine_stays_native():
    async def f():
        return 5

    c = f()
    try:
        c.send(None)
    except StopIteration as stop:
        return stop.value


# ---- what some version has no syntax for, or warns of


def _written(source, version=(3, 11)):
    """Register the function `f` of a source."""
    if sys.version_info >= version:
        scope = {"__name__": __name__, "say": say, "Point": Point, "Context": Context}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            exec(compile(source, "written.py", "exec"), scope)
        PROGRAMS.append((scope["f"], ()))


_written("""
def f():
    for i in range(3):
        try:
            if i == 1:
                continue
            1 / (i - 2)
        except ZeroDivisionError:
            break
        finally:
            say(i)
    for i in range(2):
        try:
            1 / 0
        finally:
            continue
    try:
        return "try"
    finally:
        return "finally"
""")
_written(
    """
def f():
    return f"{'a' + f'{"b"}'} {Point(1, 2)!r:>{10 + 5}} {[x for x in (1, 2)]=}"
""",
    (3, 12),
)
_written(
    """
def f():
    x = 5
    class A:
        y = [x + i for i in range(2)]
        x = 1
        z = [x + i for i in range(2)]
        w = [(lambda: i)() for i in range(3)]
    def late():
        return [(lambda: i + x)() for i in range(3)], [i for i in range(2) for x in [i]], x
    return A.y, A.z, A.w, late()
""",
    (3, 12),
)
_written(
    """
def f():
    a, b = 5, "x"
    made = t"a {a!r:>{3}} b {b} {{}}"
    return made.strings, [(i.value, i.expression, i.conversion, i.format_spec) for i in made.interpolations], t"".values
""",
    (3, 14),
)
_written(
    """
def f():
    class A:
        x: int = 5
        if x:
            y: unknown
    def g(a: unknown = 1, *, b: int = 2) -> str:
        x: unknown = 3
        return a, b, x
    try:
        g.__annotations__
    except NameError as error:
        say(str(error))
    return g(), A.x, g.__kwdefaults__
""",
    (3, 14),
)
