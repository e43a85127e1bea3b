"""What C code is given is what the user gave, and what it reads there the recorder knows: eager and traced
agree for dictionaries and lists that the run makes or changes, for objects with special methods of their
own, and for all that goes through them, formats them, counts by them or compares them in C code.
"""

import bisect
import builtins
import collections
import copy
import functools
import heapq
import itertools
import json
import math
import operator
import os
import pickle
import random
import string
import time
import types

import pytest

import lamina
from lamina import jit

CLASSES = """
class Plain:
    def __init__(self): self.n, self.d, self.l = 0, {"a": 0}, [0, 1]
    def __repr__(self): return f"P{self.n}"
class Sequence(Plain):
    def __getitem__(self, k): return self.l[k]
class Iterable(Plain):
    def __iter__(self): return iter(self.l)
class Mapping(Plain):
    def keys(self): return ["a", "n"]
    def __getitem__(self, k): return self.d[k]
class Number(Plain):
    def __index__(self): return self.n % 3
    def __int__(self): return self.n
    def __float__(self): return self.n + 0.5
    def __bool__(self): return self.n % 2 == 0
    def __hash__(self): return self.n
    def __eq__(self, other): return True
    def __lt__(self, other): return self.n < 20
    def __call__(self, *given, **named): return self.n
class Formatting(Mapping):
    def __format__(self, spec): return f"{self.n}|{spec}"
class Both(Number):
    def __iter__(self): return iter([self.n, 1])
    def __getitem__(self, k): return self.n
    def __len__(self): return 2
class Floating(Plain):
    __slots__ = ()
    def __float__(self): return self.n + 0.5
    def __index__(self): return self.n % 3
class Cutting(Plain):
    def __trunc__(self): return self.n
"""
PROGRAM = """
def f(x, dice, log, kept):
    n = dice.randrange(40)
    loss = x.sum()
    {}
    {}
    log.append(out)
    return loss
"""
SCOPE = {
    "bisect": bisect, "collections": collections, "copy": copy, "functools": functools, "heapq": heapq,
    "itertools": itertools, "json": json, "lamina": lamina, "math": math, "operator": operator,
    "pickle": pickle, "string": string, "types": types,
}  # fmt: skip
CALLS = 8


def told(source, decorate, words=True):
    """What eight calls of a program raise, write down and leave behind.  words: those of its errors, too."""
    scope = dict(SCOPE)
    exec(CLASSES + source, scope)
    f, dice, log, kept, raised = decorate(scope["f"]), random.Random(3), [], {"b": 1, "a": 2}, []
    for _ in range(CALLS):
        try:
            f(lamina.ones(3), dice, log, kept)
        except Exception as error:
            raised.append(f"{type(error).__name__}: {error if words else ''}")
    return repr((raised, log, kept))


def disagreeing(programs, words=True):
    """The programs of which traced calls tell something else, with what both tell."""
    found = []
    for maker, reader in programs:
        source = PROGRAM.format(maker, reader)
        eager = told(source, lambda f: f, words)
        if " at 0x" not in eager and (traced := told(source, jit.trace, words)) != eager:
            found.append((maker, reader, eager, traced))
    return found


# ---- dictionaries, and their views
DICTIONARIES = [
    "d = {**kept, 'a': n}", "d = {'b': 1, 'a': n}", "d = {k: n for k in 'ab'}", "d = dict(kept, a=n)",
    "d = kept | {'a': n}", "d = {'b': 1}; d['a'] = n", "d = {}; d.update(b=1, a=n)",
    "d = {'b': 1}; d.setdefault('a', n)", "d = dict(zip('ba', [1, n]))", "d = dict.fromkeys('ba', n)",
    "d = collections.OrderedDict(b=1, a=n)", "d = collections.defaultdict(int, b=1, a=n)",
    "d = collections.Counter(b=1, a=n)", "d = {'b': 1, 'a': n}.copy()", "d = copy.copy({'b': 1, 'a': n})",
    "kept['a'] = n; d = kept", "kept.update(a=n); d = kept", "d = kept; d |= {'a': n}",
    "kept['a'] += 1; d = kept", "kept['a'] += n; d = {**kept}", "d = collections.ChainMap({'a': n}, kept)",
    "d = types.MappingProxyType({'b': 1, 'a': n})", "d = vars(types.SimpleNamespace(b=1, a=n))",
    "d = collections.UserDict(b=1, a=n)",
]  # fmt: skip
OF_VIEWS = [
    "next(reversed(V))", "[*reversed(V)]", "max(reversed(V))", "list(map(str, reversed(V)))",
    "list(zip(reversed(V), 'ab'))", "[y for y in reversed(V)]", "list(enumerate(reversed(V)))",
    "sorted(V, key=str)", "str(V)", "operator.length_hint(reversed(V))", "V.__reversed__().__next__()",
    "list(itertools.chain(reversed(V), V))", "list(V.__iter__())", "next(iter(V))", "tuple(V)", "{*V}",
    "(lambda *a: a)(*reversed(V))", "(n, 1) in V, n in V, 5 in V, ('a', 7) in V", "f'{V}', '%s' % (V,)",
    "functools.reduce(lambda a, b: (a, b), reversed(V))", "json.dumps(list(reversed(V)))",
    "collections.deque(V, 1).pop()", "next(itertools.islice(reversed(V), 1, 2))", "min(V, default=3)",
    "list(filter(None, reversed(V)))", "[*copy.copy(reversed(V))]", "reversed(V).__reduce__()[1:]",
    "set(reversed(V))", "dict.fromkeys(reversed(V))", "any(reversed(V)), all(reversed(V))",
    "operator.contains(V, n), operator.countOf(reversed(V), n)", "V == V, V != [1]", "V & {('a', n)}",
    "V - {('a', n)}", "V ^ {('a', 3)}", "sorted(V | {('a', n)}, key=str)",
    "V.isdisjoint({('a', n), ('a', 3)})", "V <= {('a', n), ('b', 1)}", "pickle.dumps(list(reversed(V)))",
    "sum(y for y in reversed(V) if y != 'a')", "next(iter(reversed(V)))",
    "r = reversed(V); d['b'] = n + 1; out = list(r)", "V.mapping['a']",
    "r = iter(V); d['b'] = n + 1; out = list(r)", "r = V; d['b'] = n + 1; out = [*reversed(r)]",
    "r = iter(reversed(V)); next(r); d['b'] = n + 5; out = next(r)", "[*reversed(V.mapping.values())]",
    "r = zip(V, reversed(V)); d['b'] = n + 5; out = list(r)", "first, *rest = reversed(V); out = first",
]  # fmt: skip


def statement(reader):
    """A reader as a statement that leaves what it reads in `out`."""
    return reader if "out = " in reader else f"out = {reader}"


@pytest.mark.sampled(24)
@pytest.mark.parametrize("view", ["d", "d.keys()", "d.values()", "d.items()"])
@pytest.mark.parametrize("reader", OF_VIEWS)
def test_views_of_dictionaries(reader, view):
    assert not disagreeing([(maker, statement(reader.replace("V", view))) for maker in DICTIONARIES])


# ---- lists and their kin, changed while they are gone through
SEQUENCES = [
    "L = [n, 1, 2]", "L = [1, 2]; L.append(n)", "L = kept.setdefault('L', [0, 1, 2]); L[2] = n",
    "L = kept.setdefault('L', [0, 1, 2]); L[2] += 1",
    "L = kept.setdefault('L', [0, 1]); L[0] += 1; L = L[:]", "L = collections.deque([1, 2]); L.append(n)",
    "L = kept.setdefault('L', collections.deque([0, 1])); L[1] = n",
    "L = kept.setdefault('L', collections.deque([0, 1])); L.append(n)", "L = (1, n)", "L = sorted([n, 1])",
    "L = [[n], [1]]", "L = [1] + [n]", "L = list(range(n))[-3:]",
]  # fmt: skip
WAYS = [
    "reversed(L)", "iter(L)", "L", "enumerate(L)", "zip(L, L)", "map(str, L)", "itertools.chain(L)",
    "itertools.islice(L, 1, 2)", "filter(None, L)", "itertools.cycle(L)", "itertools.pairwise(L)",
    "L.__iter__()", "L.__reversed__()", "reversed(L[:])",
]  # fmt: skip
CHANGES = ["pass", "L[0] = n + 7", "L[-1] = n + 7", "L[-1] += 1", "L.append(n + 7)", "L.pop()", "L.reverse()"]


@pytest.mark.sampled(24)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("way", WAYS)
def test_sequences_changed_while_gone_through(way, change):
    ends = ("next(iter(r))", "list(itertools.islice(r, 6))")
    assert not disagreeing(
        [(maker, f"r = {way}; {change}; out = {end}") for maker in SEQUENCES for end in ends]
    )


# ---- objects of the user's
def objects(*kinds):
    """Statements that make one, or take one that was there; its number is set or counted on."""
    for kind in kinds:
        yield f"o = {kind}(); o.n = n; o.d['a'] = n; o.l[0] = n"
        yield f"o = kept.setdefault('o', {kind}()); o.n = n; o.d['a'] = n; o.l[0] = n"
        yield f"o = kept.setdefault('o', {kind}()); o.n += 1; o.d['a'] += 1; o.l[0] += 1"


FORMATS = [
    "'{.n}'.format(o)", "'{0.n:>5}'.format(o)", "'{0.d}'.format(o)", "'{0.d[a]}'.format(o)",
    "'{0[a]}'.format(o)", "'{0.l[0]}'.format(o)", "'{!s}'.format(o)", "'{:x}'.format(o)",
    "'{0.l} {0.n}'.format(o)", "'{o.l[0]:{w}}'.format(o=o, w=o.l[1] + 3)", "'{n:.3f} {d}'.format(**vars(o))",
    "'{}'.format(o)", "'{n:.3f} {d}'.format_map(vars(o))", "'{:{}}'.format(3, o.n)",
    "'{:>{w}}'.format('a', w=o.n)", "'%s' % o", "'%(n)s %(d)s' % vars(o)", "'{0!r:>30}'.format(o.d)",
    "'{0.n} {}'.format(o)", "'{} {1}'.format(o, 1)", "'{0.absent}'.format(o)", "'{3}'.format(o)",
    "'{k}'.format(o)", "'{0[absent]}'.format(o)", "'{'.format(o)", "'{{}}{}'.format(o.n)",
    "'{:{:{}}}'.format(o.n, 3, 1)", "'{0.l[-1]}'.format(o)", "str.format('{0.n}', o)",
    "'{0[0]} {1[a]:.2f}'.format(o.l, o.d)", "string.Formatter().format('{0.n} {0.l[0]}', o)",
    "'}'.format(3)", "string.Template('$n $d').substitute(vars(o))", "'{.n!r:>{}}'.format(o, 8)",
    "'{0.n.real}'.format(o)", "'{x.shape[0]} {x.dtype}'.format(x=x)", "'{0.__class__.__name__}'.format(o)",
    "'{:.3f}'.format(loss)", "'{0.loss:.3f}'.format(types.SimpleNamespace(loss=loss))",
    "'{0[l]:.3f}'.format({'l': loss.item()})", "'{o.n} {o.l[0]}'.format_map({'o': o})",
    "'{o.n} {p}'.format_map(collections.defaultdict(list, o=o))", "'{a}'.format_map(o.d)",
    "'{}'.format_map(o.d)", "'{a!z}'.format_map(o.d)", "'{a} {a:>4}'.format_map(o)",
    "'{a}'.format_map(collections.ChainMap(o.d, kept))", "'{a}'.format_map(types.MappingProxyType(o.d))",
    "''.format_map()", "'{a}'.format_map(3)", "'{:}}'.format(3)", "'{0.}'.format(3)", "'{0[}'.format(3)",
    "'{0[]}'.format(3)", "'{0.n!}'.format(o)", "'{0.n!rr}'.format(o)", "'{!a}'.format('é')",
    "'{-1}'.format(1)", "'{99999999999999999999}'.format(1)", "'{0x}'.format(1)", "'{ 0}'.format(1)",
    "'{:>{0}}'.format(5, 6)",
]  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("text", FORMATS)
def test_formats(text):
    kinds = ("Plain", "Sequence", "Iterable", "Mapping", "Formatting")
    assert not disagreeing([(maker, f"out = {text}") for maker in objects(*kinds)])


LISTS = ["L = [4, 5, 6, 7]", "L = kept.setdefault('L', [4, 5, 6, 7])", "L = collections.deque([4, 5, 6, 7])"]
BY_INDEX = [
    "out = L[o]", "out = L[o:]", "out = L[:o]", "out = L.pop(o)", "out = L.insert(o, 9)", "out = L * o",
    "out = o * L", "out = L.index(5, o)", "out = L.__getitem__(o)", "out = L.__mul__(o)",
    "out = L.__delitem__(o)", "out = L.__setitem__(o, 3)", "out = list(itertools.islice(L, o))",
    "out = operator.getitem(L, o)", "out = operator.delitem(L, o)", "out = operator.setitem(L, o, 5)",
    "out = operator.itemgetter(o)(L)", "out = operator.mul(L, o)", "out = L.rotate(o)",
    "out = operator.imul(L, o)", "out = L.copy().pop(o)", "del L[o]; out = L", "L[o] = 8; out = L",
    "del L[o:]; out = L", "L[o:] = [8]; out = L", "L *= o; out = L", "L[o] += n; out = L",
    "L[o:o] = [n]; out = L",
]  # fmt: skip
BY_NUMBER = [
    "'abc'[o]", "'abcd'[o:]", "(1, 2, 3)[o]", "(1, 2, 3) * o", "'ab' * o", "o * 'ab'", "b'ab'[o]",
    "list(range(o))", "range(9)[o]", "round(2.555, o)", "bytes(o)", "bytes([1, o])", "chr(o)", "int(o)",
    "float(o)", "complex(o)", "'x'.zfill(o)", "'x'.center(o)", "x[o]", "x[o:].sum().item()",
    "lamina.zeros(o).shape", "math.comb(9, o)", "lamina.arange(o).tolist()",
    "lamina.full((2,), float(o)).tolist()", "math.sqrt(o)", "math.hypot(o, o)", "'%d' % o",
    "operator.index(o)", "'abc'.find('c', o)", "'a,b,c'.split(',', o)", "'aaa'.replace('a', 'b', o)",
    "math.ldexp(1.0, o)", "math.gcd(o, 4)", "slice(o, 4).indices(5)", "memoryview(b'abc')[o]",
    "int('11', o)", "bytearray(b'abc')[o]", "[*itertools.repeat(1, o)]",
    "[*itertools.combinations([1, 2, 3], o)]", "[*itertools.product([1, 2], repeat=o)]",
    "[*enumerate('ab', o)]", "x.repeat(o).shape", "x.roll(o).tolist()",
    "lamina.tensor([float(o), 1.0]).tolist()", "b'n' % o", "o == 2", "operator.eq(o, o), operator.ne(o, 2)",
    "operator.countOf([3, o], o)", "operator.indexOf([3, o], o)", "bisect.bisect([3, 1], o)",
    "[3, o].index(o)", "max(o, 2), min(2, o)",
    "ascii(o), ascii('é\\n' + str(o))", "str(object=o)", "int(o, 2)", "sum([o], 1)",
]  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("reader", BY_INDEX)
def test_lists_by_numbers_of_the_users(reader):
    makers = objects("Number", "Floating", "Both")
    assert not disagreeing([(f"{maker}; {held}", f"{reader}; out = (out, list(L))")
                            for maker in makers for held in LISTS])  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize("reader", BY_NUMBER)
def test_numbers_of_the_users(reader):
    kinds = ("Number", "Floating", "Cutting", "Both", "Iterable")
    assert not disagreeing([(maker, f"out = {reader}") for maker in objects(*kinds)])


HOLDERS = [
    "slice(1, o)", "itertools.repeat(o)", "itertools.repeat(o, 2)", "functools.partial(len, o)",
    "functools.partial(len, k=o)", "functools.partial(functools.partial, [o])", "operator.itemgetter(o)",
    "operator.methodcaller('a', o)", "types.MappingProxyType({'a': o})", "collections.deque([[o]], 3)",
    "{'a': o}.values()", "{'a': o}.items()", "{o.n: 1}.keys()", "collections.OrderedDict(a=o)",
    "collections.defaultdict(int, a=o)", "collections.Counter(a=o.n)", "collections.ChainMap({'a': o})",
    "collections.UserList([o])", "collections.UserDict(a=o)", "types.SimpleNamespace(a=o)",
    "types.GenericAlias(list, o)", "list[o]", "dict[str, o]", "ValueError(o)", "KeyError('a', [o])",
    "collections.namedtuple('T', 'a')(o)", "types.MethodType(len, o)", "staticmethod(o)", "([[o]],)",
    "[slice(o)]", "({'a': [o]}.values(),)", "bytearray(o.n)", "ExceptionGroup('a', [ValueError(o)])",
    "UnicodeDecodeError('a', b'c', o.n, 3, 'x')", "OSError(o.n, str(o))", "StopIteration(o)", "{o.n}",
    "itertools.count(o.n, 2)", "operator.attrgetter('n')(o)", "[functools.partial(len, o)]",
]  # fmt: skip
TEXTS = ["repr(h)", "str(h)", "f'{h}'", "'%s' % (h,)", "'{!r}'.format(h)", "repr([h])", "ascii(h)"]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("holder", HOLDERS)
def test_texts_of_what_holds_objects(holder):
    programs = [(f"{maker}; h = {holder}", f"out = {text}") for maker in objects("Plain") for text in TEXTS]
    assert not disagreeing(programs)


# ---- everything of C's, given everything
NOT_CALLED = {
    "breakpoint", "compile", "copyright", "credits", "delattr", "dir", "eval", "exec", "exit", "globals",
    "hash", "help", "id", "input", "license", "locals", "memoryview", "object", "open", "print", "quit",
}  # fmt: skip


def functions_of_c():
    """The functions and classes of modules of C, and the methods of plain values, as programs call them."""
    for module in (builtins, operator, math, itertools, functools, bisect, heapq, copy, json, collections):
        home = "" if module is builtins else f"{module.__name__}."
        for name, held in sorted(vars(module).items()):
            error = isinstance(held, type) and issubclass(held, BaseException)
            if callable(held) and not name.startswith("_") and name not in NOT_CALLED and not error:
                yield f"{home}{name}"
    for value in ("n{}%s", 3, 2.5, b"n", [3, 1], (3, 1), {"n": 1}, {3}, frozenset((3,))):
        for name, held in sorted(vars(type(value)).items()):
            if callable(held) and name not in ("__new__", "__init__", "__getattribute__", "__sizeof__",
                                               "__getnewargs__", "__class_getitem__"):  # fmt: skip
                yield f"({value!r}).{name}"


FORMS = ["(o)", "(o, 2)", "(2, o)", "('n', o)", "([o], [o])", "(o, o)", "(o, 'n')", "([3, 1], o)", "([o])"]
SHOWN = (
    "r = {}; out = [type(r).__name__, r if type(r) in (int, float, str, bool, bytes, complex, type(None)) "
    "else sorted(map(repr, itertools.islice(r, 3))) "
    "if hasattr(type(r), '__iter__') and not isinstance(r, (Plain, type)) else 0]"
)
KINDS = ("Sequence", "Iterable", "Mapping", "Number", "Both")


@pytest.mark.sampled(40)
@pytest.mark.parametrize("function", [*functions_of_c()])
def test_functions_of_c(function):
    programs = [(maker, SHOWN.format(function + form)) for form in FORMS for maker in objects(*KINDS)]
    draw = random.Random(f"{function} {os.environ.get('LAMINA_DAY', time.time() // 86_400)}")
    assert not disagreeing(draw.sample(programs, 20), words=False)
