"""Special methods of `Tensor` that the user replaces, another one at each call, and what C code asks."""

# ruff: noqa: UP031, UP032, C416 - ways of asking

import copy
import math
import operator

import numpy as np
import pytest

import lamina
from lamina import jit

Tensor = lamina.Tensor
x, y = lamina.tensor(2.5), lamina.tensor([1.0, 2.0])
whole = lamina.tensor(1)

# The special method, what the user's gives, and what asks it.
ASKS = [
    ("__float__", 7.0, lambda: float(x)),
    ("__float__", 7.0, lambda: "%.1f" % x),
    ("__float__", 7.0, lambda: math.sqrt(x)),
    ("__float__", 7.0, lambda: math.hypot(x, 1.0)),
    ("__int__", 7, lambda: int(x)),
    ("__int__", 7, lambda: "%d" % x),
    ("__index__", 1, lambda: [3, 4, 5][whole]),
    ("__index__", 1, lambda: list(range(whole))),
    ("__index__", 1, lambda: operator.index(whole)),
    ("__index__", 1, lambda: [3, 4, 5][: whole]),
    ("__index__", 1, lambda: "ab" * whole),
    ("__index__", 1, lambda: hex(whole)),
    ("__bool__", False, lambda: bool(x)),
    ("__bool__", False, lambda: 1 if x else 2),
    ("__bool__", False, lambda: not x),
    ("__bool__", False, lambda: all([x])),
    ("__bool__", False, lambda: len(list(filter(None, [x])))),
    ("__len__", 5, lambda: len(y)),
    ("__iter__", iter, lambda: len(list(y))),
    ("__iter__", iter, lambda: len([each for each in y])),
    ("__iter__", iter, lambda: dict(zip("abc", y)).keys()),
    ("__contains__", True, lambda: 9.0 in y),
    ("__repr__", "mine", lambda: repr(y)),
    ("__repr__", "mine", lambda: str(y)),
    ("__repr__", "mine", lambda: f"{y!r}"),
    ("__repr__", "mine", lambda: "%r %s" % (y, y)),
    ("__repr__", "mine", lambda: "{!r}".format(y)),
    ("__repr__", "mine", lambda: str([y])),
    ("__str__", "mine", lambda: str(y)),
    ("__str__", "mine", lambda: "%s" % y),
    ("__str__", "mine", lambda: f"{y!s}"),
    ("__format__", "mine", lambda: f"{x:.1f}"),
    ("__format__", "mine", lambda: format(x, ".1f")),
    ("__format__", "mine", lambda: "{:.1f}".format(x)),
    ("__hash__", 7, lambda: hash(x)),
    ("__hash__", 7, lambda: len({x: 1})),
    ("__eq__", True, lambda: x == 3),
    ("__eq__", True, lambda: [x].count(4)),
    ("__eq__", True, lambda: 4 in [x]),
    ("__lt__", True, lambda: x < 3),
    ("__lt__", True, lambda: max([x, x], default=0) is x),
    ("__add__", 7, lambda: x + 1),
    ("__radd__", 7, lambda: sum([x])),
    ("__neg__", 7, lambda: -x),
    ("__abs__", 7, lambda: abs(x)),
    ("__round__", 7, lambda: round(x)),
    ("__floor__", 7, lambda: math.floor(x)),
    ("__pow__", 7, lambda: pow(x, 2)),
    ("__divmod__", 7, lambda: divmod(x, 2)),
    ("__getitem__", 7, lambda: y[0]),
    ("__getitem__", 7, lambda: operator.itemgetter(0)(y)),
    ("__array__", np.zeros(1), lambda: np.asarray(y).tolist()),
    ("__deepcopy__", 7, lambda: copy.deepcopy(x)),
    ("__reversed__", 7, lambda: reversed(y)),
    ("__bytes__", b"mine", lambda: bytes(y)),
    ("__complex__", 7j, lambda: complex(x)),
]  # fmt: skip


def result(function):
    try:
        found = function()
    except Exception as error:
        return type(error).__name__
    return found.tolist() if isinstance(found, Tensor) else str(found)


@pytest.mark.parametrize("number", range(len(ASKS)), ids=lambda n: f"{ASKS[n][0]} {n}")
def test_what_c_code_asks_of_a_tensor_is_asked_anew(number):
    special, value, ask = ASKS[number]
    traced = jit.trace(ask)
    there = special in vars(Tensor)
    own = vars(Tensor).get(special)
    try:
        for mine in [False] * 3 + [True] * 3 + [False, True] * 8 + [False] * 8 + [True, False] * 4:
            if mine:  # a function of its own at each call
                given = (lambda self: iter([self])) if value is iter else (lambda self, *_: value)
                setattr(Tensor, special, given)
            elif there:
                setattr(Tensor, special, own)
            elif special in vars(Tensor):
                delattr(Tensor, special)
            wanted, found = result(ask), result(traced)
            assert wanted == found, (special, mine)
    finally:
        if there:
            setattr(Tensor, special, own)
        elif special in vars(Tensor):
            delattr(Tensor, special)
