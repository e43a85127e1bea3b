"""Each attribute and each method without arguments, asked in a traced function of tensors that a guard takes
for each other: they are of one type, with one layout and one kind of history, and were made in other ways.
"""

from __future__ import annotations

import inspect
from math import isclose, isnan
from typing import Any

import numpy as np
import pytest

import lamina
from lamina import Tensor

SHAPE = (3, 4)
# What draws, what gives addresses, and what Python asks of every object.
LEFT_OUT = {
    "apply_", "bernoulli", "bernoulli_", "cauchy_", "const_data_ptr", "data_ptr", "exponential_",
    "geometric_", "log_normal_", "multinomial", "normal_", "random_", "rrelu_", "uniform_", *dir(object),
    "__array_namespace__", "__del__", "__dlpack__", "__iter__", "__weakref__",
}  # fmt: skip
UNDERSCORED = {"_base", "_grad", "_is_view", "_version"}
WARM_UP = 3  # calls with the first way, until there is compiled code


def _asked(kind: Any) -> bool:
    return not isinstance(kind, (staticmethod, classmethod, type))


QUESTIONS = [
    name
    for name in dir(Tensor)
    if name not in LEFT_OUT and (name in UNDERSCORED or not name.startswith("_") or name.startswith("__"))
    if _asked(inspect.getattr_static(Tensor, name))
]


# ---- ways to make one ----
def _leaf(**changes: Any) -> Tensor:
    x = lamina.ones(SHAPE, requires_grad=True)
    for name, value in changes.items():
        setattr(x, name, value)
    return x


def _without_gradients() -> Tensor:
    with lamina.no_grad():
        return lamina.ones(24)[12:].view(SHAPE)


def _inferred() -> Tensor:
    with lamina.inference_mode():
        return lamina.ones(SHAPE)


def _read_only() -> Tensor:
    array = np.ones(SHAPE, np.float32)
    array.setflags(write=False)
    return lamina.from_numpy(array)


def _of_what_asks() -> Tensor:
    base = lamina.ones(12)
    part = base.view(SHAPE)
    base.requires_grad_()
    return part


def _hooked() -> Tensor:
    x = _leaf()
    x.register_hook(lambda g: g)
    return x


def _rested() -> Tensor:
    return _leaf(grad=lamina.ones(SHAPE)).requires_grad_(False).requires_grad_()


def _kept() -> Tensor:
    x = _leaf() * 2
    x.retain_grad()
    return x


def _walked() -> Tensor:
    x = _leaf() * 2
    x.sum().backward()
    return x


WAYS = {
    "without a history": (
        lambda: lamina.ones(SHAPE), lambda: lamina.ones(12).view(SHAPE),
        lambda: lamina.ones(24)[12:].view(SHAPE), _without_gradients, _inferred, _read_only,
        lambda: lamina.from_numpy(np.ones(SHAPE, np.float32)), lambda: lamina.ones(SHAPE).add_(0).mul_(1),
        _of_what_asks, lambda: _leaf().data, lambda: _leaf().detach(),
    ),
    "leaves": (
        _leaf, lambda: _leaf(grad=lamina.ones(SHAPE)), lambda: lamina.ones(12).view(SHAPE).requires_grad_(),
        _hooked, _rested,
    ),
    "computed": (
        lambda: _leaf() * 2, _kept, lambda: (lamina.ones(12, requires_grad=True) * 2).view(SHAPE),
        lambda: lamina.ones(2, *SHAPE, requires_grad=True).unbind(0)[1], _walked,
        lambda: (_leaf() * 2).add_(1),
    ),
}  # fmt: skip


# ---- asking ----
def _answer(value: Any) -> Any:
    """What is compared of an answer."""
    if isinstance(value, Tensor):
        kind = str(value.dtype), value.requires_grad, value.is_leaf, tuple(value.stride())
        return "a tensor", kind, value.tolist()
    if isinstance(value, (tuple, list)):
        return tuple(map(_answer, value))
    if isinstance(value, np.ndarray):
        return value.flags.writeable, value.tolist()
    return value if isinstance(value, (int, float, str, bytes, type(None))) else type(value).__name__


def _same(a: Any, b: Any) -> bool:
    """Whether two answers are the same, but for roundings."""
    if isinstance(a, (tuple, list)) and type(a) is type(b):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (isnan(a) and isnan(b)) or isclose(a, b, rel_tol=1e-5)
    return type(a) is type(b) and a == b


def _question(name: str) -> Any:
    def ask(x: Any) -> Any:
        found = getattr(x, name)
        return found() if called else found

    called = callable(inspect.getattr_static(Tensor, name))
    return ask


def _told(ask: Any, x: Any) -> Any:
    try:
        return _answer(ask(x)), x.tolist()
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)
def test_answers_are_eagers_however_the_tensor_was_made(ways):
    wrong = []
    for name in QUESTIONS:
        ask = _question(name)
        traced = lamina.jit.trace(_question(name))
        for way in (*ways[:1] * WARM_UP, *ways):
            eager = _told(ask, way())
            if not _same(eager, _told(traced, way())):
                wrong.append((name, ways.index(way)))
                break
            if eager in ("TypeError", "ArgumentError"):  # it takes arguments
                break
    assert len(QUESTIONS) > 500 and not wrong
