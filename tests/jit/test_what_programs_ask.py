"""What programs ask of Python and of libraries, which others change between calls."""

import os
import re
import sys

import pytest

import lamina
from lamina import jit

IMPORTS = """
import abc, builtins, collections, contextvars, decimal, enum, functools, gc, inspect, io, logging, math, os
import re, string, sys, threading, types, typing, weakref
import numpy as np
import lamina
from lamina import nn, optim, distributions as D
import lamina.nn.functional as F
class A:
    x = 1
    def __init__(self): self.k = 1
class Base(abc.ABC): pass
@functools.singledispatch
def dispatched(x): return 0
def helper(a, b=2): return a + b
def leaf(): return lamina.ones(2, requires_grad=True)
old = helper.__code__
"""
# What is there at first; what is asked; what changes it, in order, the last of which puts it back.
ASKED = [
    ("x = lamina.ones(2); x.foo = 1", "x.foo", ["x.foo = 2", "x.foo = 1"]),
    ("x = lamina.ones(2)", "hasattr(x, 'foo')", ["x.foo = 2", "del x.foo"]),
    ("x = lamina.ones(2)", "x.grad is None", ["x.grad = lamina.ones(2)", "x.grad = None"]),
    ("x = leaf()", "x.grad_fn is None, x.is_leaf", ["x = x * 2", "x = x.detach()", "x = leaf()"]),
    ("x = leaf() * 2", "x.grad_fn.name()", ["x = leaf().exp()", "x = leaf() * 2"]),
    ("x = leaf() * 2", "len(x.grad_fn.next_functions)", ["a = leaf(); x = a * a", "x = leaf() * 2"]),
    ("x = leaf() * 2", "type(x.grad_fn).__name__", ["x = leaf().exp()", "x = leaf() * 2"]),
    ("x = leaf().chunk(2)[0]", "x.output_nr", ["x = leaf().chunk(2)[1]", "x = leaf().chunk(2)[0]"]),
    ("x = lamina.ones(4)", "x.storage_offset(), x.stride()",
     ["x = lamina.ones(8)[::2]", "x = lamina.ones(4)"]),
    ("x = lamina.ones(4)", "x._base is None", ["x = lamina.ones(5)[1:]", "x = lamina.ones(4)"]),
    ("x = lamina.ones(4)", "x.untyped_storage().nbytes()", ["x = lamina.ones(8)[:4]", "x = lamina.ones(4)"]),
    ("", "os.environ.get('LAMINA_WORD')",
     ["os.environ['LAMINA_WORD'] = '1'", "del os.environ['LAMINA_WORD']"]),
    ("", "os.getenv('LAMINA_WORD', 0)", ["os.environ['LAMINA_WORD'] = '1'", "del os.environ['LAMINA_WORD']"]),
    ("", "math.pi", ["math.pi = 3", "math.pi = 3.141592653589793"]),
    ("", "math.floor(2.5)", ["was = math.floor; math.floor = lambda x: 7", "math.floor = was"]),
    ("", "len([1, 2])", ["was = builtins.len; builtins.len = lambda x: 9", "builtins.len = was"]),
    ("o = logging.getLogger('lamina.q')", "o.isEnabledFor(10)", ["o.setLevel(10)", "o.setLevel(30)"]),
    ("o = logging.getLogger('lamina.r')", "o.level, o.isEnabledFor(40)",
     ["logging.disable(50)", "logging.disable(0)"]),
    ("t = threading.current_thread()", "threading.current_thread().name",
     ["t.name = 'z'", "t.name = 'MainThread'"]),
    ("c = decimal.getcontext()", "decimal.getcontext().prec", ["c.prec = 5", "c.prec = 28"]),
    ("c = decimal.getcontext()", "str(decimal.Decimal(1) / 3)", ["c.prec = 5", "c.prec = 28"]),
    ("", "dispatched(1)", ["dispatched.register(int)(lambda x: 5)", "dispatched.register(int)(lambda x: 0)"]),
    ("b = A()", "isinstance(b, Base)", ["Base.register(A)"]),
    ("", "gc.isenabled()", ["gc.disable()", "gc.enable()"]),
    ("", "sys.getrecursionlimit()",
     ["n = sys.getrecursionlimit(); sys.setrecursionlimit(n + 9)", "sys.setrecursionlimit(n)"]),
    ("", "helper(1)", ["helper.__defaults__ = (5,)", "helper.__defaults__ = (2,)"]),
    ("", "helper(1)", ["helper.__code__ = (lambda a, b=2: a - b).__code__", "helper.__code__ = old"]),
    ("", "len(inspect.signature(helper).parameters)",
     ["helper.__code__ = (lambda a: a).__code__", "helper.__code__ = old"]),
    ("", "helper.__name__", ["helper.__name__ = 'q'", "helper.__name__ = 'helper'"]),
    ("", "helper.__doc__", ["helper.__doc__ = 'q'", "helper.__doc__ = None"]),
    ("", "getattr(helper, 'tag', 0)", ["helper.tag = 1", "del helper.tag"]),
    ("b = A()", "b.x", ["A.x = 2", "b.x = 3", "del b.x", "A.x = 1"]),
    ("b = A()", "b.__class__.__name__", ["b.__class__ = type('B', (A,), {})", "b.__class__ = A"]),
    ("b = A()", "b.k", ["b.__dict__ = {'k': 4}", "b.__dict__ = {'k': 1}"]),
    ("b = A()", "[*vars(b)]", ["b.z = 1", "del b.z"]),
    ("b = A()", "dir(b)[-1]", ["b.zz = 1", "del b.zz"]),
    ("", "np.geterr()['divide']", ["was = np.seterr(divide='raise')", "np.seterr(**was)"]),
    ("g = lamina.Generator()", "g.initial_seed()", ["g.manual_seed(3)", "g.manual_seed(4)"]),
    ("g = lamina.Generator()", "lamina.rand(2, generator=g).tolist()",
     ["g.manual_seed(0)", "g.manual_seed(4)"]),
    ("n = nn.Linear(2, 2)", "len(n._forward_hooks)", ["h = n.register_forward_hook(print)", "h.remove()"]),
    ("n = nn.Linear(2, 2)", "[k for k, _ in n.named_parameters()]",
     ["n.p = nn.Parameter(leaf())", "del n.p"]),
    ("n = nn.Linear(2, 2)", "n.extra_repr()", ["n.in_features = 7", "n.in_features = 2"]),
    ("n = nn.Linear(2, 2)", "repr(n)", ["n.in_features = 7", "n.in_features = 2"]),
    ("n = nn.Sequential(nn.ReLU())", "[type(m).__name__ for m in n.modules()]",
     ["n[0] = nn.ELU()", "n[0] = nn.ReLU()"]),
    ("o = optim.SGD([leaf()], lr=0.1)", "o.param_groups[0]['lr'], len(o.state)",
     ["o.param_groups[0]['lr'] = 0.2"]),
    ("o = optim.SGD([leaf()], lr=0.1)", "o.defaults['lr']",
     ["o.defaults['lr'] = 0.3", "o.defaults['lr'] = 0.1"]),
    ("d = D.Normal(0.0, 1.0)", "d.mean.item(), d.scale.item()",
     ["d.scale = lamina.tensor(3.0)", "d.loc = lamina.tensor(3.0)"]),
    ("d = D.Normal(0.0, 1.0)", "d.support",
     ["D.Normal.support = D.constraints.positive", "D.Normal.support = D.constraints.real"]),
    ("x = lamina.ones(2)", "isinstance(x, nn.Parameter)", ["x = nn.Parameter(x)", "x = lamina.ones(2)"]),
    ("E = enum.Enum('E', 'a b')", "E['a'].value", ["E = enum.Enum('E', 'b a')", "E = enum.Enum('E', 'a b')"]),
    ("q = re.compile('a')", "bool(q.match('a'))", ["q = re.compile('b')", "q = re.compile('a')"]),
    ("", "F.relu(lamina.tensor([-1.0])).item()", ["was = F.relu; F.relu = lambda x: x + 5", "F.relu = was"]),
    ("T = lamina.Tensor", "lamina.ones(2).sum().item()",
     ["was = T.sum; T.sum = lambda s: s[0] * 7", "T.sum = was"]),
    ("s = io.StringIO('abc')", "s.read(1)", ["s.seek(0)"]),
    ("i = iter(range(99))", "next(i)", ["next(i)"]),
    ("a = np.arange(3.0)", "a.sum()", ["a[0] = 4", "a = a * 2"]),
    ("a = np.arange(3.0)", "lamina.from_numpy(a).sum().item()", ["a[0] = 4", "a = a * 2", "a = a[::2]"]),
    ("a = np.arange(3.0)", "a.flags.writeable", ["a.flags.writeable = False", "a = a * 2"]),
    ("a = bytearray(b'ab')", "bytes(a)", ["a[0] = 99"]),
    ("a = memoryview(bytearray(b'ab'))", "a[0]", ["a[0] = 99"]),
    ("c = contextvars.ContextVar('c', default=0)", "c.get()", ["k = c.set(1)", "c.set(2)", "c.reset(k)"]),
    ("t = threading.local(); t.x = 0", "t.x", ["t.x = 1", "t.x = 0"]),
    ("w = A(); r = weakref.ref(w)", "r() is None", ["del w"]),
    ("d = {'a': 1}; m = types.MappingProxyType(d)", "m['a']", ["d['a'] = 2"]),
    ("m = collections.ChainMap({'a': 1}, {'a': 2})", "m['a']", ["m.maps[0].pop('a')", "m.maps[1]['a'] = 5"]),
    ("m = collections.UserDict(a=1)", "m['a']", ["m['a'] = 2", "m['a'] = 1"]),
    ("q = collections.deque([1, 2], maxlen=2)", "q[0]", ["q.append(5)", "q.rotate(1)"]),
    ("p = functools.partial(helper, 1)", "p()",
     ["p.__setstate__((helper, (9,), {}, {}))", "p = functools.partial(helper, 1)"]),
    ("", "typing.get_type_hints(A)", ["A.__annotations__ = {'x': int}", "A.__annotations__ = {}"]),
    ("W = '.3f'", "f'{3.14159:{W}}'", ["W = '.2f'", "W = '.1f'"]),
    ("", "__name__", ["__name__ = 'z'", "__name__ = 'y'"]),
    ("K = None", "sorted([3, 1, 2], key=K)", ["K = lambda v: -v", "K = None"]),
]  # fmt: skip


@pytest.mark.parametrize(("first", "asked", "changes"), ASKED, ids=[f"{a} {c[0]}" for _, a, c in ASKED])
def test_an_answer_is_that_of_now(first, asked, changes):
    ends = []
    for decorate in (lambda f: f, jit.trace):
        scope, found, x = {"__name__": "asking"}, [], lamina.arange(3.0)
        exec(IMPORTS + first, scope)
        exec(f"def f(t):\n    y = t * 2\n    return y, {asked}", scope)
        f = decorate(scope["f"])
        for change in ["pass", "pass", *changes]:
            exec(change, scope)
            found += [_told(f, x), _told(f, x)]
        ends.append(found)
    assert ends[1] == ends[0]


def _told(f, x):
    try:
        y, answer = f(x)
        return y.tolist(), re.sub("0x[0-9a-f]+", "", repr(answer))
    except Exception as error:
        return type(error).__name__, str(error)[:80]


def test_nothing_is_left_changed():
    assert "LAMINA_WORD" not in os.environ
    assert sys.modules["math"].pi > 3.14
