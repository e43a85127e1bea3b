"""Pieces of the standard library, interpreted all the way down, give what they give natively."""

from __future__ import annotations

import _pydecimal
import argparse
import bisect
import collections
import contextlib
import copy
import csv
import dataclasses
import difflib
import enum
import fnmatch
import fractions
import functools
import graphlib
import heapq
import html.parser
import inspect
import io
import json
import json.decoder
import json.encoder
import json.scanner
import keyword
import operator
import pprint
import random
import re
import shlex
import statistics
import string
import textwrap
import tokenize
import types
import typing
from abc import ABC, abstractmethod

import pytest
from test_interpreting import Interpreter, outcome

TEXT = "The quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs.\n  Indented.\n"
DATA = {"a": [1, 2.5, None, True, "x\u20ac\n"], "b": {"c": (), "d": {}}, "e": [[], [{}]]}


def to_json():
    encoder = json.encoder.JSONEncoder(indent=2, sort_keys=True)
    encode = json.encoder._make_iterencode(
        {},
        encoder.default,
        json.encoder.py_encode_basestring_ascii,
        "  ",
        float.__repr__,
        ": ",
        ",",
        True,
        False,
        False,
    )
    return "".join(encode(DATA, 0)), "".join(encoder.iterencode([1, {"k": DATA}]))


def from_json():
    decoder = json.decoder.JSONDecoder(object_pairs_hook=list)
    decoder.parse_string = json.decoder.py_scanstring
    decoder.scan_once = json.scanner.py_make_scanner(decoder)
    return decoder.decode(json.dumps(DATA)), decoder.decode(' {"k" : [1, 2e3, "\\u00e9\\ud834\\udd1e"] } ')


def from_broken_json():
    decoder = json.decoder.JSONDecoder()
    decoder.scan_once = json.scanner.py_make_scanner(decoder)
    return decoder.decode('{"a": [1, 2}')


def wraps_text():
    return (
        textwrap.wrap(TEXT, 20),
        textwrap.fill(TEXT, 30, initial_indent="* "),
        textwrap.dedent("  a\n   b\n"),
        textwrap.shorten(TEXT, 25),
        textwrap.indent("a\nb\n", "> "),
    )


@dataclasses.dataclass(order=True)
class Item:
    name: str
    price: float = 1.5
    tags: list = dataclasses.field(default_factory=list, compare=False)

    def __post_init__(self):
        self.name = self.name.title()


def uses_dataclasses():
    a, b = Item("pen"), Item("ink", 2.5, ["x"])
    return (
        a,
        dataclasses.asdict(b),
        dataclasses.replace(b, name="new"),
        a < b,
        dataclasses.astuple(a),
        a == Item("pen"),
    )


def makes_dataclass():
    made = dataclasses.make_dataclass(
        "Made", [("x", int), ("y", int, dataclasses.field(default=5))], frozen=True
    )
    return made(1), made(1) == made(1, 5), hash(made(1)) == hash(made(1))


def uses_functools():
    @functools.singledispatch
    def kind(v):
        return "any"

    @kind.register(int)
    def _(v):
        return "int"

    @functools.total_ordering
    class Number:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    class Lazy:
        @functools.cached_property
        def value(self):
            return [1]

    lazy = Lazy()
    compare = functools.cmp_to_key(lambda a, b: b - a)
    return (
        kind(1),
        kind("x"),
        Number(1) >= Number(0),
        lazy.value is lazy.value,
        sorted([1, 3, 2], key=compare),
        functools.reduce(lambda a, b: a * b, [1, 2, 3]),
        functools.partialmethod(kind, 1).func("x"),
    )


def uses_contextlib():
    said = []

    @contextlib.contextmanager
    def noted(name):
        said.append(name)
        try:
            yield name
        finally:
            said.append("-" + name)

    @noted("decorator")
    def inner():
        said.append("inner")

    inner()
    with contextlib.ExitStack() as stack, contextlib.suppress(ZeroDivisionError):
        stack.enter_context(noted("a"))
        stack.callback(said.append, "callback")
        stack.push(lambda *error: said.append(error[0]))
        1 / 0  # noqa: B018
    with contextlib.closing(io.StringIO("x")) as text, contextlib.nullcontext(5) as n:
        said.append((text.read(), n))
    return said


def exit_stack_reorders_errors():
    with contextlib.ExitStack() as stack:
        stack.callback(operator.truediv, 1, 0)
        stack.callback(int, "x")
        raise KeyError("k")


def uses_collections():
    class Words(collections.UserDict):
        def __missing__(self, key):
            return key * 2

    words = Words(a=1)
    words.update(b=2)
    chained = collections.ChainMap({"a": 1}, {"b": 2, "a": 5})
    counted = collections.Counter("abracadabra")
    pair = collections.namedtuple("Pair", "a b", defaults=[5])
    listed = collections.UserList([3, 1])
    listed.append(2)
    listed.sort()
    return (
        words["a"],
        words["zz"],
        sorted(words),
        dict(chained),
        chained.new_child({"c": 3})["b"],
        counted.most_common(2),
        counted - collections.Counter("aab"),
        +counted,
        pair(1),
        pair(1, 2)._asdict(),
        pair(1)._replace(a=9),
        listed,
    )


def uses_statistics():
    values = [1, 2, 2, 3.5, 8]
    return (
        statistics.mean(values),
        statistics.median(values),
        statistics.stdev(values),
        statistics.mode(values),
        statistics.quantiles(values),
        statistics.fmean(values),
        statistics.variance(values),
        statistics.harmonic_mean(values),
    )


def statistics_of_nothing():
    return statistics.mean([])


def uses_fractions():
    a, b = fractions.Fraction(3, 4), fractions.Fraction("1.25")
    return (
        a + b,
        a * b,
        a / b,
        a**2,
        round(b),
        a < b,
        fractions.Fraction(3.14159).limit_denominator(100),
        -a,
        a // b,
        divmod(b, a),
    )


def uses_decimals():
    D = _pydecimal.Decimal
    with _pydecimal.localcontext() as context:
        context.prec = 12
        return (
            D(1) / D(7),
            D("1.10") + D("2.2"),
            D(2).sqrt(),
            D("1e5").normalize(),
            D(3).ln(),
            f"{D('1234.5'):,.2f}",
        )


def decimals_fail():
    return _pydecimal.Decimal(1) / _pydecimal.Decimal(0)


def uses_difflib():
    a, b = ["one\n", "two\n", "three\n"], ["one\n", "tree\n", "emu\n"]
    return (
        list(difflib.ndiff(a, b)),
        list(difflib.unified_diff(a, b)),
        difflib.get_close_matches("appel", ["ape", "apple"]),
        difflib.SequenceMatcher(None, "abcd", "bcde").ratio(),
    )


def uses_string():
    template = string.Template("$a and ${b} for $$5")
    return (
        template.substitute(a=1, b=2),
        template.safe_substitute(a=1),
        string.capwords("a bc"),
        string.Formatter().format("{0!r:>5} {k[1]} {0.real}", 5, k=[1, 2]),
    )


def template_fails():
    return string.Template("$a").substitute(b=1)


def parses_arguments():
    parser = argparse.ArgumentParser("prog", description="Says.")
    parser.add_argument("files", nargs="+")
    parser.add_argument("-n", "--number", type=int, default=5, choices=range(9), help="how many")
    parser.add_argument("--flag", action="store_true")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--x", action="append")
    group.add_argument("--y", action="count")
    commands = argparse.ArgumentParser("other")
    sub = commands.add_subparsers(dest="command").add_parser("go")
    sub.add_argument("where", nargs="?")
    return (
        vars(parser.parse_args(["a", "b", "-n", "3", "--flag", "--x", "1"])),
        parser.format_usage(),
        vars(commands.parse_args(["go", "home"])),
    )


def arguments_fail():
    argparse.ArgumentParser("prog", exit_on_error=False).parse_args(["--no"])


def uses_heaps():
    heap = []
    for value in (5, 2, 8, 1):
        heap.append(value)
        heapq._siftdown(heap, 0, len(heap) - 1)
    heapq._siftup(heap, 0)
    return (
        heap,
        list(heapq.merge([1, 4], [2, 3], reverse=False)),
        heapq.nlargest(2, [3, 1, 2], key=lambda v: -v),
        heapq.nsmallest(2, "hello"),
    )


def uses_bisect():
    return [f([1, 2, 2, 3], 2) for f in (bisect.bisect_left, bisect.bisect_right)], bisect.bisect(
        [(1,), (2,)], 1, key=lambda v: v[0]
    )


class Node:
    def __init__(self, name):
        self.name, self.others = name, []


def copies():
    a, b = Node("a"), Node("b")
    a.others.append(b)
    b.others.append(a)
    made = copy.deepcopy([a, {"k": (1, a)}, {1, 2}])
    shallow = copy.copy(a)
    return (
        made[0].others[0].others[0] is made[0],
        made[1]["k"][1] is made[0],
        made[2],
        shallow.others is a.others,
    )


class Colour(enum.Enum):
    RED = 1
    GREEN = enum.auto()

    @property
    def loud(self):
        return self.name + "!"


class Bits(enum.Flag):
    A = 1
    B = 2


def uses_enums():
    return (
        Colour(2),
        Colour["RED"].loud,
        list(Colour),
        Bits.A | Bits.B,
        ~Bits.A,
        Bits.A in (Bits.A | Bits.B),
        Bits(3),
    )


def makes_enums():
    class Level(enum.IntEnum):
        LOW = 1
        HIGH = 2

    return list(Level), Level.LOW < Level.HIGH, Level(2).name, enum.Enum("Made", "A B").B.value


def enum_fails():
    return Colour(7)


def uses_typing():
    class Pair(typing.NamedTuple):
        a: int
        b: str = "x"

    class Movie(typing.TypedDict):
        name: str

    T = typing.TypeVar("T")
    return (
        Pair(1),
        Pair(1, "y").b,
        Movie(name="n"),
        typing.get_type_hints(Item),
        typing.Callable[[int], str],
        typing.Iterable[T][int],
    )


def uses_abc():
    class Shape(ABC):
        @abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return 4

    try:
        Shape()
    except TypeError as error:
        return str(error), Square().area(), isinstance(Square(), Shape)


def uses_inspect():
    def f(a, /, b: int = 1, *args, c, d=2, **kwargs) -> str:
        """Doc."""

    bound = inspect.signature(f).bind(1, 2, 3, c=4, z=5)
    bound.apply_defaults()
    return (
        str(inspect.signature(f)),
        bound.arguments,
        inspect.getdoc(f),
        inspect.isgeneratorfunction(f),
        inspect.unwrap(f) is f,
    )


def binding_fails():
    return inspect.signature(lambda a, *, b: 0).bind(1, 2)


def compiles_patterns():
    re.purge()
    found = re.compile(r"(?P<y>\d{4})-(?:a|bc+)*?[x-z]\b", re.IGNORECASE)
    return (
        found.groups,
        found.search("on 2024-aBCz!").groupdict(),
        re.sub(r"\w+", lambda m: m[0].upper(), "ab cd"),
        re.escape("a.b"),
    )


def pattern_fails():
    re.purge()
    return re.compile("(a")


def writes_csv():
    out = io.StringIO()
    writer = csv.DictWriter(out, ["a", "b"])
    writer.writeheader()
    writer.writerow({"a": 1, "b": "x,y"})
    return out.getvalue(), list(csv.DictReader(io.StringIO("a,b\n1,2\n")))


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, attrs))

    def handle_data(self, data):
        self.seen.append(data)


def parses_html():
    tags = Tags()
    tags.feed('<p class="x">a &amp; b<br/></p><!-- c -->')
    tags.close()
    return tags.seen


def tokenizes():
    source = "def f(x):\n    return x + 1  # c\n"
    return [
        (t.type, t.string) for t in tokenize.generate_tokens(io.StringIO(source).readline)
    ], keyword.iskeyword("if")


def prints_prettily():
    return pprint.pformat(DATA, width=20), pprint.pformat([list(range(20))] * 3)


def splits():
    return (
        shlex.split('a \'b c\' "d\\"e" # f', comments=True),
        shlex.quote("a b"),
        fnmatch.filter(["a.py", "b.c"], "*.py"),
    )


def sorts_graph():
    return list(graphlib.TopologicalSorter({"d": {"b", "c"}, "b": {"a"}, "c": {"a"}}).static_order())[::3]


def graph_fails():
    graphlib.TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


def shuffles():
    source = random.Random(5)
    values = list(range(8))
    source.shuffle(values)
    return values, source.choice("abc"), source.sample(range(50), 4), source.randint(1, 6), source.gauss(0, 1)


def makes_classes():
    made = types.new_class("Made", (Node,), {}, lambda names: names.update(x=5))
    space = types.SimpleNamespace(a=1)
    return made("n").name, made.x, space, types.DynamicClassAttribute(lambda self: 1).fget(0)


CASES = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__module__ == __name__
]


@pytest.mark.parametrize("function", [pytest.param(each, id=each.__name__) for each in CASES])
def test_library_code_ends_as_a_native_run(function):
    expected = outcome(function)
    interpreter = Interpreter()
    found = outcome(interpreter.call, function)
    assert found == expected
    assert function.__qualname__ in interpreter.entered or expected["error"]
    assert function.__qualname__ not in interpreter.unsupported
