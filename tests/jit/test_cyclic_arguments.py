"""Containers that hold themselves, given to what goes through containers: traced calls end as eager ones."""

import copy
import json
import logging
import pprint
import signal
from collections import OrderedDict, namedtuple

import pytest

import lamina
from lamina import distributions, jit, nn, optim
from lamina.func import functional_call, vmap
from lamina.utils import _pytree as pytree

SECONDS = 5
Pair = namedtuple("Pair", "first second")


def a_list():
    c = [1.0]
    c.append(c)
    return c


def a_dict():
    c = {"a": 1.0}
    c["b"] = c
    return c


def a_tuple():
    c = []
    t = (1.0, c)
    c.append(t)
    return t


def a_named_tuple():
    c = []
    t = Pair(1.0, c)
    c.append(t)
    return t


def an_object():
    c = type("Node", (), {})()
    c.next = c
    return c


def a_module():
    c = nn.Linear(2, 2)
    c.__dict__["again"] = c
    return c


KINDS = {k.__name__: k for k in (a_list, a_dict, a_tuple, a_named_tuple, an_object, a_module)}
net = nn.Linear(2, 2)
CALLS = {
    "returned": lambda x, c: c,
    "held": lambda x, c: [c, {"c": c}, (c,)],
    "compared": lambda x, c: c == c,
    "compared with a copy": lambda x, c: c == copy.copy(c),
    "text": lambda x, c: repr(c)[:5],
    "formatted": lambda x, c: f"{c}"[:5],
    "printed": lambda x, c: print(c),
    "logged": lambda x, c: logging.getLogger(__name__).warning("%s", c),
    "pprint": lambda x, c: pprint.pformat(c)[:5],
    "copied": lambda x, c: copy.copy(c),
    "deeply": lambda x, c: copy.deepcopy(c),
    "json": lambda x, c: json.dumps(c),
    "len": lambda x, c: len(c),
    "sorted": lambda x, c: sorted(c),
    "hash": lambda x, c: hash(c) and None,
    "list": lambda x, c: list(c),
    "dict": lambda x, c: OrderedDict(c),
    "sum": lambda x, c: sum(c),
    "tensor": lambda x, c: lamina.tensor(c),
    "as_tensor": lambda x, c: lamina.as_tensor(c),
    "added": lambda x, c: x + c,
    "added from the left": lambda x, c: c + x,
    "an index": lambda x, c: x[c],
    "written by": lambda x, c: x.clone().__setitem__(c, 1.0),
    "a written value": lambda x, c: x.clone().__setitem__(0, c),
    "stacked": lambda x, c: lamina.stack(c),
    "a shape": lambda x, c: x.reshape(c),
    "an argument by name": lambda x, c: lamina.sum(x, dim=c),
    "a module's": lambda x, c: net(c),
    "a module's beside": lambda x, c: nn.Sequential(net, net)(c),
    "of a module that is made": lambda x, c: nn.Sequential(c),
    "a list of modules": lambda x, c: nn.ModuleList(c),
    "a parameter": lambda x, c: nn.Parameter(c),
    "an optimizer's": lambda x, c: optim.SGD(c, lr=0.1),
    "a distribution's": lambda x, c: distributions.Normal(c, 1.0),
    "a distribution's method": lambda x, c: distributions.Normal(0.0, 1.0).log_prob(c),
    "gradients of": lambda x, c: lamina.autograd.grad(c, [x]),
    "gradients to": lambda x, c: lamina.autograd.grad(x.sum(), c),
    "backward": lambda x, c: lamina.autograd.backward(c),
    "vmap": lambda x, c: vmap(lambda y: y)(c),
    "functional_call": lambda x, c: functional_call(net, c, (x,)),
    "a checkpoint": lambda x, c: lamina.utils.checkpoint.checkpoint(lambda a: a, c, use_reentrant=False),
    "leaves": lambda x, c: pytree.tree_leaves(c),
    "a state": lambda x, c: net.load_state_dict(c),
    "norms clipped": lambda x, c: nn.utils.clip_grad_norm_(c, 1.0),
    "padded": lambda x, c: nn.utils.rnn.pad_sequence(c),
    "isinstance": lambda x, c: isinstance(c, (list, dict)),
}


class Hung(BaseException):
    pass


def hang(*_):
    raise Hung


@pytest.fixture(autouse=True)
def an_alarm():
    before = signal.signal(signal.SIGALRM, hang)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_traced_call_ends_as_eagers_does(call, make):
    def ended(decorate):
        c, x = make(), lamina.ones(2, requires_grad=True)

        @decorate
        def f(x):
            return x * 2, call(x, c)

        kinds = []
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                f(x)
                kinds.append("returned")
            except Exception as error:
                kinds.append(type(error).__name__)
            signal.setitimer(signal.ITIMER_REAL, 0)
        return kinds

    assert ended(jit.trace) == ended(lambda f: f)
