"""Whatever an optimizer, a schedule, a distribution or another object tells without arguments.

(Tensors and modules are asked in tests/soundness/test_questions.py.)
Objects of one kind that differ in how they were made, and in nothing that arguments say, are given in
turn to a traced function that asks each: it must tell of each what an undecorated one does.
"""

import re
import warnings

import numpy as np
import pytest

import lamina
from lamina import distributions, jit, nn, optim

# What says where something lies, or what chance drew.
NEVER_ALIKE = {
    "__class__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__del__", "__reduce__",
    "__reduce_ex__", "__getstate__", "__sizeof__", "__hash__", "__dir__", "__getattribute__", "__weakref__",
    "__dict__", "__setstate__", "data_ptr", "seed", "position", "_cdata", "_place",
}  # fmt: skip


def optimizers():
    for kind in (optim.SGD, optim.Adam):
        p = nn.Parameter(lamina.ones(2))
        x = kind([p], lr=0.1)
        yield x
        p.grad = lamina.ones(2)
        x.step()
        yield x
        x.param_groups[0]["lr"] = 0.5
        yield x
        x.add_param_group({"params": [nn.Parameter(lamina.ones(1))], "lr": 3.0})
        yield x
        x.zero_grad()
        yield x


def schedules():
    for steps in range(3):
        optimizer = optim.SGD([nn.Parameter(lamina.ones(1))], lr=1.0)
        x = optim.lr_scheduler.StepLR(optimizer, 1)
        for _ in range(steps):
            optimizer.step()
            x.step()
        yield x


def laws():
    for at in (0.0, 2.0):
        where = lamina.tensor(at)
        yield distributions.Normal(where, lamina.tensor(1.0))
        yield distributions.Categorical(logits=lamina.tensor([at, 1.0]))
        asked = distributions.Categorical(logits=lamina.tensor([at, 1.0]))
        asked.probs  # noqa: B018 - which is kept
        yield asked
        yield distributions.Bernoulli(where / 4)
        yield distributions.Independent(distributions.Normal(lamina.ones(2) * at, 1.0), 1)
        yield distributions.LogNormal(where, 1.0)


def generators():
    for seed in (0, 1):
        x = lamina.Generator()
        x.manual_seed(seed)
        yield x
        lamina.rand(2, generator=x)
        yield x


def others():
    yield from (lamina.Size((2, 3)), lamina.Size((3, 2)), lamina.Size(()), lamina.Size((0,)))
    yield from (lamina.float32, lamina.int64, lamina.bfloat16, lamina.bool)
    yield from (lamina.ones(n).untyped_storage() for n in (4, 8))
    yield lamina.zeros(4).untyped_storage()


KINDS = [optimizers, schedules, laws, generators, others]


def told(v):
    """A value as text, or as numbers to be compared closely."""
    if isinstance(v, lamina.Tensor):
        kind = str(v.dtype), tuple(v.shape), v.stride(), v.requires_grad, v.is_leaf, v.is_inference()
        return [kind, v.detach().clone() if v.dtype.is_complex else v.detach().double().tolist()]
    if isinstance(v, dict):
        return {str(key): told(each) for key, each in v.items()}
    if isinstance(v, (list, tuple)) or hasattr(v, "__next__"):
        return [type(v).__name__, *map(told, v)]
    return re.sub(r"0x[0-9a-f]+", "", repr(v))


def state(x):
    if isinstance(x, (optim.Optimizer, optim.lr_scheduler.LRScheduler)):
        optimizer = getattr(x, "optimizer", x)
        return [told(optimizer.param_groups), len(optimizer.state), str(getattr(x, "last_epoch", 0))]
    return told(x.get_state()) if isinstance(x, lamina.Generator) else None


def alike(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True))
    if isinstance(a, lamina.Tensor):
        return lamina.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


def asking():
    """Each kind of object with each name that one of it has."""
    for kind in KINDS:
        names = {name for x in kind() for name in dir(x)} - NEVER_ALIKE
        yield from (pytest.param(kind, name, id=f"{kind.__name__}.{name}") for name in sorted(names))


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("kind", "name"), [*asking()])
def test_each_tells_what_it_tells_an_undecorated_function(kind, name):
    ends = []
    for decorate in (lambda f: f, jit.trace):
        scope = {}
        exec(f"def f(x):\n    v = x.{name}\n    return v() if callable(v) else v", scope)
        f, found = decorate(scope["f"]), []
        for x in (*kind(), *kind()):
            for _ in range(2):
                lamina.manual_seed(0)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        found.append([told(f(x)), state(x)])
                    except Exception as error:
                        found.append([type(error).__name__, str(error)[:60], state(x)])
        ends.append(found)
    for at, (eager, traced) in enumerate(zip(*ends, strict=True)):
        assert alike(eager, traced), f"call {at}: {eager} became {traced}"
