"""Small functions over every construct of a function's.  Each logs to a list in what order it went.

`PROGRAMS` holds them all; the helpers that they call are not among them.
"""

# They are odd on purpose: much of what they do is an error, or is written as nobody should.
# ruff: noqa: B008, B012, B016, B018, B023, B030, B904, C416, E722, E731, F401, F632, F821, F841
# ruff: noqa: PLE0704, PLE1132, UP008, UP037

from __future__ import annotations

import contextlib
import functools
import sys

PROGRAMS: list = []
counter = 0
TABLE = {"a": 1, "b": [1, 2, 3]}
ERRORS = (KeyError, (ValueError,))


def program(function):
    PROGRAMS.append(function)
    return function


class Loud:
    """An object that logs what is done with it."""

    def __init__(self, log, name, truth=True):
        self.__dict__.update(log=log, name=name, truth=truth)

    def __bool__(self):
        self.log.append(f"bool {self.name}")
        return self.truth

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.log.append(f"{self.name}.{name}")
        return 10

    def __setattr__(self, name, value):
        self.log.append(f"{self.name}.{name} = {value!r}")

    def __delattr__(self, name):
        self.log.append(f"del {self.name}.{name}")

    def __getitem__(self, key):
        self.log.append(f"{self.name}[{key!r}]")
        return 20

    def __setitem__(self, key, value):
        self.log.append(f"{self.name}[{key!r}] = {value!r}")

    def __delitem__(self, key):
        self.log.append(f"del {self.name}[{key!r}]")

    def __lt__(self, other):
        self.log.append(f"{self.name} < {other.name}")
        return Loud(self.log, f"({self.name}<{other.name})", self.name < other.name)

    def __contains__(self, other):
        self.log.append(f"in {self.name}")
        return self.truth

    def __iadd__(self, other):
        self.log.append(f"{self.name} += {other!r}")
        return self

    def __repr__(self):
        return self.name

    def __format__(self, spec):
        self.log.append(f"format {self.name} {spec!r}")
        return f"<{self.name}:{spec}>"

    def __iter__(self):
        self.log.append(f"iter {self.name}")
        return iter((1, 2, 3))

    def __enter__(self):
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(f"exit {self.name} {kind} {error}")
        return self.truth


def say(log, value):
    log.append(f"say {value!r}")
    return value


@program
def boolean_values(log):
    a, b, c = Loud(log, "a"), Loud(log, "b", False), Loud(log, "c")
    return [a and b, a or b, b or c, (a and b) and c, a and (b or c), not a, not (b or c), b and c or a and b]


@program
def boolean_tests(log):
    a, b, c = Loud(log, "a"), Loud(log, "b", False), Loud(log, "c")
    if a and b or not c:
        log.append("then")
    elif not (a and not b):
        log.append("else if")
    return 1 if b or c else 2


@program
def comparison_chains(log):
    a, b, c, d = (Loud(log, x) for x in "abcd")
    first = a < b < c < d
    second = a < c < b < d
    if a < b < c:
        log.append("ordered")
    return (
        first,
        second,
        1 < say(log, 2) <= 2 in [2] is not None,
        3 in (1, 2),
        3 not in (1, 2),
        None is None,
        a is not a,
    )


@program
def augmented(log):
    global counter
    a = Loud(log, "a")
    counter += 1
    say(log, a).x += say(log, 5)
    say(log, a)[say(log, 1)] += say(log, 6)
    a += 3
    x = [1]
    y = x
    y += [2]
    x[0] -= 4
    x[-1] **= 3
    return x, x is y, counter


@program
def evaluation_order_of_assignments(log):
    def at(name):
        log.append(name)
        return Loud(log, name)

    at("a").x, at("b")[at("i")], (at("c").y, *at("d").z), z = say(log, [1, 2, (3, 4, 5), 6])
    at("e").x = at("f")[0] = q = say(log, 7)
    [u, v] = w = (1, 2)
    p = m, n = [8, 9]
    return z, q, u, v, w, p, m, n


@program
def unpacking(log):
    a, *b, c = Loud(log, "x")
    *d, (e, f) = 1, 2, (3, 4)
    (g,) = [5]
    [] = ()
    h, i = {"k": 1, "l": 2}
    j, k = (n * n for n in (2, 3))
    *(m, n), o = 1, 2, 3
    return a, b, c, d, e, f, g, h, i, j, k, m, n, o


@program
def unpacking_too_few(log):
    a, b, c = [1, 2]


@program
def unpacking_too_many(log):
    a, b = iter((1, 2, 3))


@program
def unpacking_endless(log):
    def numbers():
        n = 0
        while True:
            log.append(n)
            yield n
            n += 1

    a, b = numbers()


@program
def unpacking_nothing(log):
    a, b = 5


@program
def unpacking_inner_fails_after_outer(log):
    a = 0
    try:
        a, (b, c) = 1, 5
    except TypeError as error:
        log.append(str(error))
    return a


@program
def starred_too_few(log):
    a, *b, c = [1]


@program
def loops(log):
    found = []
    for i, (a, *b) in enumerate([(1, 2, 3), (4, 5)]):
        if i == 5:
            break
        found.append((i, a, b))
    else:
        found.append("else")
    for TABLE["loop"] in range(3):
        if TABLE["loop"] == 1:
            continue
    n = 0
    while n < 5:
        n += 1
        if n == 4:
            break
    else:
        found.append("never")
    return found, n, TABLE.pop("loop")


@program
def comprehensions(log):
    limit = 2
    squares = [x * limit for x in range(5) if x if x < 4]
    pairs = {(x, y) for x in range(3) for y in range(x)}
    table = {say(log, k): say(log, v) for k, (v, *_) in [("a", (1, 2)), ("b", (3,))]}
    lazy = (say(log, x) for x in Loud(log, "it"))
    log.append("made")
    nested = [[y + limit for y in range(x)] for x in range(3)]
    deep = [a + b for (a, (b, c)), d in [((1, (2, 3)), 4)]]
    return squares, sorted(pairs), table, list(lazy), nested, deep


@program
def walrus(log):
    if (n := len(TABLE)) > 1:
        log.append(n)
    found = [last := x for x in range(4) if (half := x // 2) or x]
    return n, last, half, found, (y := [1]), y, [z for z in (TABLE or [1])]


@program
def walrus_global(log):
    global counter
    return (counter := counter + 5), counter


@program
def calls(log):
    def f(a, /, b=2, *args, c=3, **kw):
        return a, b, args, c, kw

    return (
        f(1), f(1, 2, 3, c=4, d=5), f(*[1, 2], *(3,), **{"c": 9}, e=1),
        f(say(log, 1), *say(log, [2]), c=say(log, 3)),
        f(1, **{"a": 2}), max(*[3, 1], key=lambda x: -x), f(*Loud(log, "l")),
    )  # fmt: skip


@program
def call_with_wrong_arguments(log):
    def f(a, b):
        return a

    return f(1)


@program
def call_with_doubled_keyword(log):
    def f(**kw):
        return kw

    return f(**{"a": 1}, **{"a": 2})


@program
def call_with_doubled_keyword_of_builtin(log):
    return dict(a=1, **{"a": 2})


@program
def call_star_of_nothing(log):
    return print(*5)


@program
def call_star_of_nothing_among_others(log):
    return print(1, *5)


@program
def call_mapping_of_nothing(log):
    return print(**5)


@program
def call_what_is_no_function(log):
    x = 5
    return x(1)


@program
def displays(log):
    return [1, *Loud(log, "l"), 2], (*"ab",), {*[1, 2], 3}, {**TABLE, "c": 3, **{"a": 0}}, (), [], {}, [*[]]


@program
def display_star_of_nothing(log):
    return [*None]


@program
def display_mapping_of_nothing(log):
    return {**None}


@program
def subscripts(log):
    class Keys:
        def __getitem__(self, key):
            return key

        def __delitem__(self, key):
            log.append(key)

    k = Keys()
    rest = (2, 3)
    x = list(range(10))
    x[1:3] = [say(log, 0)]
    del x[::4], k[1, 2:3]
    return k[1:2, ...], k[1, *rest], k[::2], k[:], x, x[-3:]


@program
def deletions(log):
    global counter
    a, b, c = Loud(log, "a"), [1, 2, 3], 5
    del a.x, a[1], b[0], c
    counter = 3
    del counter
    try:
        counter
    except NameError as error:
        log.append(str(error))
    try:
        del counter
    except NameError as error:
        log.append(str(error))
    counter = 0
    try:
        del c
    except UnboundLocalError as error:
        log.append(str(error))
    return b


@program
def texts(log):
    a, width = Loud(log, "a"), 6
    return f"{a}{a!r:>{width}}{a!s}{a!a:{say(log, 5)}}|{width:0{width}d}|{1.5:.2f}|{'x'!r}|{{}}|{width=}"


@program
def errors(log):
    for error in (KeyError("k"), ValueError, IndexError("i"), TypeError("t")):
        try:
            try:
                raise error
            except ERRORS[0] as e:
                log.append(("key", str(e)))
            except (ValueError, LookupError) as e:
                log.append(("other", repr(e)))
                raise RuntimeError("again") from e
            else:
                log.append("else")
            finally:
                log.append("finally")
        except RuntimeError as e:
            log.append((repr(e.__cause__), repr(e.__context__)))
        except:
            log.append(repr(sys.exc_info()[1]))
    try:
        e
    except NameError as gone:
        return str(gone)


@program
def reraised(log):
    try:
        {}["x"]
    except KeyError:
        log.append("seen")
        raise


@program
def chained_errors(log):
    try:
        1 / 0
    except ZeroDivisionError:
        raise KeyError("inner") from None


@program
def raise_nothing(log):
    raise


@program
def raise_no_error(log):
    raise 5


@program
def raise_from_no_error(log):
    raise ValueError from 5


@program
def nested_except_tuples(log):
    try:
        raise ValueError(1)
    except ERRORS:
        return "caught"


@program
def catch_no_class(log):
    try:
        raise ValueError(1)
    except 5:
        pass


@program
def finally_overrides(log):
    for i in range(2):
        try:
            if i:
                return "try"
            continue
        finally:
            log.append(i)
            if i:
                return "finally"


@program
def groups(log):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
    except* (ValueError, TypeError) as g:
        log.append([repr(e) for e in g.exceptions])
    except* KeyError as g:
        log.append(repr(g))


@program
def groups_left(log):
    try:
        raise ExceptionGroup("g", [ValueError(1), OSError(2)])
    except* ValueError:
        raise KeyError("new")


@program
def managers(log):
    with Loud(log, "a") as a, Loud(log, "b", False), contextlib.suppress(KeyError):
        log.append(a.name)
    with Loud(log, "c") as TABLE["c"]:
        raise ValueError("swallowed")
    with contextlib.nullcontext((1, (2, 3))) as (x, (y, z)):
        pass
    TABLE.pop("c")
    with Loud(log, "d", False):
        for i in range(3):
            with Loud(log, "e"):
                if i == 1:
                    return x, y, z


@program
def manager_raises(log):
    with Loud(log, "a", False):
        raise ValueError("out")


@program
def no_manager(log):
    with 5:
        pass


@program
def generators(log):
    def count(n):
        got = None
        try:
            for i in range(n):
                got = yield (i, got)
        except KeyError as error:
            yield ("caught", str(error))
        finally:
            log.append("closed")
        return "done"

    def outer():
        result = yield from count(2)
        log.append(result)
        yield from [7, 8]
        result = yield from count(5)
        log.append(result)

    g = outer()
    found = [next(g), g.send("x"), next(g), next(g), next(g), g.send("y"), g.throw(KeyError("k"))]
    g.close()
    h = outer()
    next(h)
    h.close()
    return found, list(outer())


@program
def delegation_to_plain_iterators(log):
    def outer():
        yield from iter([1, 2])

    g = outer()
    next(g)
    try:
        g.send(5)
    except AttributeError as error:
        log.append(str(error))
    h = outer()
    next(h)
    try:
        h.throw(KeyError("x"))
    except KeyError as error:
        log.append(str(error))


@program
def stop_in_generator(log):
    def g():
        yield 1
        raise StopIteration(5)

    return list(g())


@program
def closures(log):
    total = 0
    names = []

    def add(n, *, twice=say(log, False)):
        nonlocal total
        total += n
        names.append(n)
        return add(n) if twice else total

    fs = [lambda x=i: x + i for i in range(3)]
    add(2, twice=True)
    del names[0]

    def later():
        return undefined

    try:
        later()
    except NameError as error:
        log.append(str(error))
    return total, [f() for f in fs], names, add.__qualname__, add.__kwdefaults__, fs[0].__name__


@program
def empty_closure(log):
    def inner():
        return later

    if log:
        later = 1
    return inner()


@program
def deleted_closure(log):
    x = 1

    def inner():
        nonlocal x
        del x
        try:
            del x
        except NameError as error:
            log.append(str(error))
        return x

    return inner()


@program
def decorated_functions(log):
    def mark(name):
        log.append(f"make {name}")

        def wrap(f):
            log.append(f"wrap {name}")

            @functools.wraps(f)
            def inner(*args, **kwargs):
                log.append(f"call {name}")
                return f(*args, **kwargs)

            return inner

        return wrap

    @mark("a")
    @mark("b")
    def f(x: int, *y: str, z: list[int] = say(log, 5), **w: "dict") -> float:
        """What f does."""
        return x, y, z, w

    return (
        f(1, 2, q=3),
        f.__name__,
        f.__doc__,
        f.__annotations__,
        f.__module__,
        f.__qualname__,
        f.__wrapped__.__kwdefaults__,
    )


@program
def classes(log):
    base = say(log, object)
    x = "outer"

    class Point(base):
        """A point."""

        x = x if False else "own"
        kinds = [k for k in ("a", "b")]

        def __init__(self, x):
            super().__init__()
            self.x = x
            self.__hidden = x * 2

        def hidden(self):
            return self.__hidden, __class__.__name__

        @property
        def doubled(self):
            return self.x * 2

        @classmethod
        def make(cls):
            return cls(4)

        def __eq__(self, other):
            return isinstance(other, Point) and self.x == other.x

    class Sub(Point):
        def hidden(self):
            return ("sub", *super().hidden(), super(Sub, self).doubled)

    p, q = Point(3), Sub.make()
    return (
        p.x,
        p.hidden(),
        q.hidden(),
        p == q,
        Point.x,
        Point.kinds,
        Point.__qualname__,
        Point.__doc__,
        sorted(vars(q)),
    )


@program
def class_with_keywords(log):
    class Meta(type):
        def __new__(cls, name, bases, names, **kw):
            log.append((name, kw))
            return super().__new__(cls, name, bases, names)

    class C(metaclass=Meta, flag=say(log, 3)):
        pass

    return type(C).__name__


class Private:
    __shared = [1]

    def __init__(self):
        self.__value = 3

    def __secret(self, __argument, *, __named=2):
        __local = __argument

        def inner():
            return __local + self.__value

        return inner(), __named

    def both(self, log):
        self.__value += 1
        try:
            Private.__missing
        except AttributeError as error:
            log.append(str(error))
        return self.__secret(5), self.__shared, [__x for __x in (1, 2)]


class Deeper(Private):
    def __init__(self):
        super().__init__()
        s = super
        self.kind = s(Deeper, self).__init__.__qualname__

    def both(self, log):
        return [super(Deeper, self).both(log) for _ in range(1)], self.kind


@program
def private_names(log):
    return Private().both(log), Deeper().both(log)


@program
def imports(log):
    import collections.abc
    import os.path as path
    from collections import OrderedDict as Ordered
    from math import floor, pi

    return collections.abc.Sized.__name__, path.join("a", "b"), Ordered.__name__, floor(pi)


@program
def import_of_nothing(log):
    from math import floor, nothing_such


@program
def import_of_no_module(log):
    import no_such_module_here


@program
def assertions(log):
    assert say(log, [1]), "never"
    assert 1 < 2 < 3
    assert not say(log, [1]), f"shown {log}"


@program
def annotated(log):
    x: int = 5
    y: log.append("never")
    z: list = [x]
    z[0]: int = 7
    try:
        y
    except UnboundLocalError as error:
        log.append(str(error))
    return x, z


@program
def frame_builtins(log):
    a, b = 1, 2

    def inner(c):
        return (
            b,
            dict(locals()),
            sorted(vars()),
            dir(),
            eval("c + 1"),
            globals() is sys.modules[__name__].__dict__,
        )

    del log
    return sorted(locals()), inner(5)[0:5], eval("a + b"), eval("x", {"x": 9})


@program
def unknown_name(log):
    return undefined_name


@program
def error_in_many_lines(log):
    x = [
        1,
        2,
    ]
    return x.count(1) + x.nothing(
        3,
    )


@program
def error_in_nested_call(log):
    def deep(n):
        if n:
            return deep(n - 1)
        return [x for x in (1, 0) if 1 / x]

    return deep(3)


@program
def deep_recursion(log):
    def down(n):
        return n and down(n - 1) + 1

    return down(400)


@program
def matches(log):
    class P:
        __match_args__ = ("x", "y")

        def __init__(self, x, y):
            self.x, self.y = x, y

        def __repr__(self):
            return f"P({self.x}, {self.y})"

    def kind(v):
        match v:
            case 0 | -1:
                return "small"
            case None | True | False:
                return ("single", v)
            case "text" | b"b" as t:
                return ("text", t)
            case [] | {"no": _}:
                return "empty"
            case [1, _]:
                return "one and any"
            case [x, [y, *z], *_, last] if say(log, x) > 5:
                return x, y, z, last
            case (first, *_):
                return "first", first
            case {"a": 1, "b": [p, q], **rest}:
                return p, q, rest
            case {"k": str() | int() as s}:
                return "k", s
            case P(0, y=y):
                return "axis", y
            case P(x, P(a, b)) | P(P(a, b), x):
                return "nested", x, a, b
            case P():
                return "point"
            case float(f):
                return "float", f
            case sys.maxsize:
                return "max"
            case other:
                return "other", repr(other)

    values = [
        0, -1, None, True, "text", b"b", [], {"no": 1}, [1, 2], (1, 9),
        [6, [7, 8, 9], 1, 2], [2, [7], 3], range(2),
        "abc",
        {"a": 1, "b": (1, 2), "c": 3}, {"a": 2}, {"k": "v"}, {"k": 2.0}, P(0, 1), P(1, P(2, 3)),
        P(P(4, 5), 6), P(7, 8),
        1.5, sys.maxsize, {1}, {},
    ]  # fmt: skip
    return [kind(v) for v in values]


@program
def match_with_too_many(log):
    class P:
        __match_args__ = ("x",)

    match P():
        case P(1, 2):
            return 1


@program
def match_of_no_class(log):
    kind = 5
    match 1:
        case kind():
            return 1


@program
def match_flow(log):
    found = []
    for v in (1, [2], [3, 4], "x"):
        match v:
            case int():
                continue
            case [n]:
                found.append(n)
            case [a, b] if a > b:
                found.append("never")
            case str():
                break
        found.append("after")
    return found


@program
def generator_matches_and_manages(log):
    def g():
        with Loud(log, "g"):
            match (yield 1):
                case [a, b]:
                    yield a
        yield from (x for x in range(2))

    i = g()
    return next(i), i.send([5, 6]), list(i)


@program
def unary(log):
    class N:
        def __neg__(self):
            return "neg"

        def __invert__(self):
            return "inv"

    return -N(), ~N(), +5, -5, ~5, not N(), -True


@program
def unary_of_nothing(log):
    return -"x"


@program
def binary_of_nothing(log):
    return 1 + "x"


@program
def attribute_of_nothing(log):
    return log.nothing


@program
def many_operators(log):
    import operator

    a, b = 17, 5
    return (
        a + b,
        a - b,
        a * b,
        a / b,
        a // b,
        a % b,
        a**b,
        a & b,
        a | b,
        a ^ b,
        a << b,
        a >> b,
        operator.matmul,
    )


@program
def conditional_lambda(log):
    f = lambda *a, k=(1 if log else 2), **kw: (a, k, kw)
    g, h = (lambda: say(log, 1)), (lambda x: lambda: x + 1)
    return f(1, z=2), g(), h(3)(), (lambda: (yield))().__class__.__name__


@program
def async_is_only_made(log):
    async def f():
        return 1

    c = f()
    c.close()
    return f.__name__
