"""Statements that change nothing when they are recorded, and something at a later call."""

import warnings

import pytest

import lamina
from lamina import jit

FIRST = """
import collections, contextvars, logging, math, os, random, sys, types
import numpy as np
import lamina
from lamina import nn, optim
class A: pass
w, p = lamina.ones(3), lamina.ones(3, requires_grad=True)
u = p * 2
net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
opt = optim.SGD(net.parameters(), lr=0.1)
a, d, l, s, q = A(), {'k': 1}, [], {1}, collections.deque()
o, c, table = collections.OrderedDict(k=1, m=2), collections.Counter(k=1), collections.defaultdict(int)
array, count, flag = np.ones(3), 0, None
a.x = 1
handle = net.register_forward_hook(lambda *_: None)
handle.remove()
logger = logging.getLogger('lamina.idle')
logger.setLevel(30)
variable = contextvars.ContextVar('v', default=0)
"""
# What is done in each call, at first in vain; what others do then; what shows it.
IDLE = [
    ("w.grad = None", "w.grad = lamina.ones(3)", "w.grad"),
    ("p.grad = None", "p.grad = lamina.ones(3)", "p.grad"),
    ("u.grad = None", "u.grad = lamina.ones(3)", "u.grad"),
    ("del w.grad", "w.grad = lamina.ones(3)", "w.grad"),
    ("w.requires_grad_(False)", "w.requires_grad_()", "w.requires_grad"),
    ("w.requires_grad = False", "w.requires_grad_()", "w.requires_grad"),
    ("p.requires_grad_()", "p.requires_grad_(False)", "p.requires_grad"),
    ("w.detach_()", "w.requires_grad_()", "w.requires_grad"),
    ("w.squeeze_()", "w.data = lamina.ones(1, 3)", "w.shape"),
    ("w.resize_(3)", "w.data = lamina.ones(5)", "w.shape"),
    ("w.clamp_(0, 1)", "w.data.fill_(7)", "w.tolist()"),
    ("w.data = w.data", "w.data = lamina.zeros(4)", "w.shape"),
    ("net.train()", "net.eval()", "[m.training for m in net.modules()]"),
    ("net[1].train(True)", "net.eval()", "[m.training for m in net.modules()]"),
    ("net.training = True", "net.eval()", "[m.training for m in net.modules()]"),
    ("net.requires_grad_()", "net[0].weight.requires_grad_(False)", "net[0].weight.requires_grad"),
    ("net.zero_grad()", "net[0].weight.grad = lamina.ones(3, 3)", "net[0].weight.grad"),
    ("opt.zero_grad()", "net[0].weight.grad = lamina.ones(3, 3)", "net[0].weight.grad"),
    ("opt.zero_grad(set_to_none=False)", "net[0].weight.grad = lamina.ones(3, 3)", "net[0].weight.grad"),
    ("opt.step()", "net[0].weight.grad = lamina.ones(3, 3)",
     "net[0].weight.sum().item() * 0 + len(opt.state)"),
    ("nn.utils.clip_grad_norm_(net.parameters(), 1.0)", "net[0].weight.grad = lamina.ones(3, 3)",
     "net[0].weight.grad"),
    ("net.float()", "net.double()", "net[0].weight.dtype"),
    ("net.to(lamina.float32)", "net.double()", "net[0].weight.dtype"),
    ("handle.remove()", "handle = net.register_forward_hook(lambda *_: None)", "len(net._forward_hooks)"),
    ("opt.param_groups[0]['lr'] = 0.1", "opt.param_groups[0]['lr'] = 0.5", "opt.param_groups[0]['lr']"),
    ("lamina.set_grad_enabled(True)", "lamina.set_grad_enabled(False)", "lamina.is_grad_enabled()"),
    ("lamina.set_default_dtype(lamina.float32)", "lamina.set_default_dtype(lamina.float64)",
     "lamina.get_default_dtype()"),
    ("a.x = 1", "a.x = 2", "a.x"),
    ("setattr(a, 'x', 1)", "a.x = 2", "a.x"),
    ("a.__dict__.update(x=1)", "a.x = 2", "a.x"),
    ("a.__dict__.pop('y', None)", "a.y = 2", "vars(a)"),
    ("hasattr(a, 'y') and delattr(a, 'y')", "a.y = 2", "vars(a)"),
    ("A.y = None", "A.y = 2", "A.y"),
    ("d['k'] = 1", "d['k'] = 2", "d"),
    ("d.pop('z', None)", "d['z'] = 2", "d"),
    ("d.setdefault('k', 5)", "d.clear()", "d"),
    ("d.update({})", "d['z'] = 2", "d"),
    ("d.update(k=1)", "d['k'] = 2", "d"),
    ("d |= {'k': 1}", "d['k'] = 2", "d"),
    ("o.move_to_end('m')", "o.move_to_end('k')", "[*o]"),
    ("c.update()", "c['z'] = 2", "c"),
    ("table['k'] += 0", "table['k'] = 2", "dict(table)"),
    ("l.clear()", "l.append(2)", "l"),
    ("l.extend([])", "l.append(2)", "l"),
    ("l.sort()", "l.extend([2, 1])", "l"),
    ("l.reverse()", "l.extend([2, 1])", "l"),
    ("l[:] = []", "l.append(2)", "l"),
    ("del l[:]", "l.append(2)", "l"),
    ("l *= 1", "l.append(2)", "l"),
    ("l *= 0", "l.append(2)", "l"),
    ("s.add(1)", "s.clear()", "s"),
    ("s.discard(7)", "s.add(7)", "s"),
    ("s &= {1}", "s.add(7)", "s"),
    ("s -= {7}", "s.add(7)", "s"),
    ("s.clear() if not s else None", "s.clear()", "s"),
    ("q.clear()", "q.append(2)", "[*q]"),
    ("q.rotate(1)", "q.extend([1, 2])", "[*q]"),
    ("array[0] = 1", "array[0] = 2", "array.tolist()"),
    ("np.clip(array, 0, 1, out=array)", "array[0] = 2", "array.tolist()"),
    ("count *= 1", "count = 2", "count"),
    ("count = 0", "count = 2", "count"),
    ("flag = flag or None", "flag = 3", "flag"),
    ("logger.setLevel(30)", "logger.setLevel(10)", "logger.level"),
    ("os.environ.pop('LAMINA_IDLE', None)", "os.environ['LAMINA_IDLE'] = '1'",
     "os.environ.get('LAMINA_IDLE')"),
    ("variable.set(0)", "variable.set(5)", "variable.get()"),
    ("sys.path[:] = [each for each in sys.path if each != 'idle']", "sys.path.append('idle')",
     "'idle' in sys.path"),
    ("w[w > 5] = 0", "w.data.fill_(7)", "w.tolist()"),
    ("w.masked_fill_(w > 5, 0)", "w.data.fill_(7)", "w.tolist()"),
    ("w.add_(0)", "w.data = lamina.zeros(3)", "w.tolist()"),
    ("w.zero_() if w.sum() > 5 else None", "w.data.fill_(7)", "w.tolist()"),
    ("lamina.manual_seed(3)", "lamina.manual_seed(4)", "lamina.initial_seed()"),
    ("random.seed(3)", "random.seed(4)", "random.random()"),
]  # fmt: skip


def found(decorate, statement, change, seen):
    scope, told, x = {}, [], lamina.arange(3.0)
    exec(FIRST, scope)
    exec(f"def f(x):\n    global count, flag, d, l, s\n    y = x * 2\n    {statement}\n    return y", scope)
    f = decorate(scope["f"])
    try:
        for between in ("pass", "pass", "pass", change, "pass", change, "pass"):
            exec(between, scope)
            try:
                told.append(f(x).tolist())
            except Exception as error:
                told.append(f"{type(error).__name__} {str(error)[:60]}")
            told.append(repr(eval(seen, scope)))
    finally:
        lamina.set_grad_enabled(True)
        lamina.set_default_dtype(lamina.float32)
    return told


@pytest.mark.parametrize(("statement", "change", "seen"), IDLE, ids=[s for s, _, _ in IDLE])
def test_what_was_idle_is_done_when_it_matters(statement, change, seen):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = found(lambda f: f, statement, change, seen)
        assert found(jit.trace, statement, change, seen) == eager
