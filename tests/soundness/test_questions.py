"""What is asked of a value in a traced function is what eager code is told, however the value was made.

Of tensors: each attribute and each method without arguments, of such as a guard takes for each other: they
are of one type, with one layout and one kind of history.  Of containers, numbers, objects and
modules, and of two tensors that may share memory: see ways.py; other draws every day.
"""

from __future__ import annotations

import inspect
import random
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from math import isclose, isnan
from typing import Any

import numpy as np
import pytest
import ways
import ways_of_modules
from many_programs import seed_of_the_day

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
        lambda: (_leaf() * 2).add_(1), lambda: _leaf().exp(),
        lambda: lamina.ones(6, 4, requires_grad=True).chunk(2)[1],
    ),
}  # fmt: skip


# ---- asking ----
def _answer(value: Any) -> Any:
    """What is compared of an answer."""
    if isinstance(value, Tensor):
        modes = value.requires_grad, value.is_leaf, value.is_inference()
        kind = str(value.dtype), *modes, tuple(value.stride())
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
        return (isnan(a) and isnan(b)) or isclose(a, b, rel_tol=1e-4, abs_tol=1e-5)
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
def test_answers_are_eagers_however_the_tensor_was_made(ways, of_the_day):
    wrong = []
    for name in of_the_day(QUESTIONS, 3):
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


# ---- other values ----
WAYS_OF = ways.WAYS | ways_of_modules.WAYS
QUESTIONS_OF = ways.QUESTIONS | ways_of_modules.QUESTIONS
DRAWS, SLOW_DRAWS = 40, 20_000
AFTERWARDS = 6  # calls with ways met before


def _shown(value: Any, depth: int = 4) -> Any:
    """A value as plain data: its class and what it holds, without addresses."""
    kind = type(value)
    if isinstance(value, Tensor):
        return "a tensor", value.tolist(), str(value.dtype), value.requires_grad
    if isinstance(value, lamina.nn.Module):
        return kind.__name__, ways_of_modules.shown(value, _shown)
    if isinstance(value, np.ndarray):
        return "an array", _text(value.tolist()), str(value.dtype)
    if isinstance(value, dict) and depth:
        return kind.__name__, [(_shown(k, depth - 1), _shown(v, depth - 1)) for k, v in dict.items(value)]
    base = next((base for base in (list, tuple, deque, set, frozenset) if isinstance(value, base)), None)
    if base is not None and depth:
        settings = value.maxlen if base is deque else None
        return kind.__name__, settings, [_shown(v, depth - 1) for v in base.__iter__(value)]
    return kind.__name__, _text(value)


def _text(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _outcome(function: Callable, *args: Any) -> Any:
    """What a call gives, and what it leaves of its arguments."""
    try:
        found = _shown(function(*args))
    except Exception as error:
        found = type(error).__name__
    return found, _shown(args)


def _asking(questions: list[Callable]) -> Callable:
    """A function that asks questions one after the other, and goes on where one is refused."""

    def ask(x: Any) -> Any:
        answers = []
        for question in questions:
            try:
                answers.append(question(x))
            except Exception as error:
                answers.append(type(error).__name__)
        return answers

    return questions[0] if len(questions) == 1 else ask


def _draw(drawn: random.Random) -> str | None:
    """Ask some questions of a few values in turn, handed over or captured, made anew or kept from call to
    call; what is wrong, if anything is."""
    kind = drawn.choice([*QUESTIONS_OF])
    numbers = [drawn.randrange(len(QUESTIONS_OF[kind])) for _ in range(drawn.choice((1, 1, 2, 3)))]
    question = _asking([QUESTIONS_OF[kind][at] for at in numbers])
    captured, kept = drawn.random() < 0.5, drawn.random() < 0.3
    some = drawn.sample(range(len(WAYS_OF[kind])), 5)
    order = [some[0]] * WARM_UP + some + [drawn.choice(some) for _ in range(AFTERWARDS)]
    box: dict[str, Any] = {}

    def of_the_box() -> Any:
        return question(box["x"])

    def of_an_argument(x: Any) -> Any:
        return question(x)

    ask: Any = of_the_box if captured else of_an_argument
    runs: list[tuple[Any, dict]] = [(ask, {}), (lamina.jit.trace(ask), {})]
    for way in order:
        found = []
        for function, made in runs:
            lamina.manual_seed(0)
            if way not in made or not kept:
                made[way] = WAYS_OF[kind][way]()
            box["x"] = x = made[way]
            found.append((_outcome(function, *([] if captured else [x])), _shown(x)))
        if not _same(*found):
            how = f"{', captured' * captured}{', kept' * kept}"
            return f"questions {numbers} of a {kind}{how}, {order}: {found[0]} became {found[1]}"
    return None


def _wrong(count: int, seed: int) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [told for each in range(count) if (told := _draw(random.Random(seed + each))) is not None]


def test_values_of_the_day():
    assert not (wrong := _wrong(DRAWS, seed_of_the_day())), "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_values():
    assert not (wrong := _wrong(SLOW_DRAWS, 1000)), "\n".join(wrong)


# ---- pairs of tensors ----
def _gradients(result: Any, x: Tensor, y: Tensor) -> Any:
    """What backward from a result leaves with the leaves, or raises."""
    if not isinstance(result, Tensor) or not result.requires_grad:
        return None
    try:
        result.sum().backward()
    except RuntimeError as error:
        return type(error).__name__
    return [None if not z.is_leaf or z.grad is None else z.grad.tolist() for z in (x, y)]


def _of_a_pair(function: Callable, x: Tensor, y: Tensor) -> Iterator[Any]:
    """What a function of two tensors gives, leaves of them, hands back, and shares with the first."""
    try:
        result = function(x, y)
    except Exception as error:
        yield type(error).__name__
        result = None
    yield _shown(result), x.tolist(), y.tolist()
    yield _gradients(result, x, y)
    handed = [z for z in (result if isinstance(result, tuple) else (result,)) if isinstance(z, Tensor)]
    before = [z.tolist() for z in handed]
    x.detach().add_(100)
    yield [values == z.tolist() for values, z in zip(before, handed, strict=True)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pairs", ways.PAIRS.values(), ids=ways.PAIRS)
@pytest.mark.parametrize("function", ways.OF_PAIRS, ids=lambda function: function.__name__)
def test_pairs_of_tensors(function, pairs):
    traced = lamina.jit.trace(function)
    for make in (*pairs[:1] * WARM_UP, *pairs, *pairs[::-1]):
        assert [*_of_a_pair(traced, *make())] == [*_of_a_pair(function, *make())], pairs.index(make)
