"""Containers that stand in code: of equal ones in a file CPython makes one, which may be an argument."""

import pytest

import lamina
from lamina import jit

ONE, OTHER = (1, 2), (1, 3)
EQUAL = tuple(n for n in ONE)
X = lamina.ones(2)


def read(x, pair, here=(1, 2)):
    first = (1, 2)[0]
    return x * (pair[0] * 10 + pair[1] + first)


def compared(x, pair):
    here = (1, 2)
    return x * (2 if pair == here else 3) + (pair is here)


def looked_up(x, pair):
    return x * {(1, 2): 5, (1, 3): 6}[pair]


def gone_through(x, pair):
    for a, b in [(1, 2), (1, 3)]:
        x = x * a + b * pair[1]
    return x


def deeper(x, pair):
    for number, each in ((1, (1, 2)), (3, (1, 3))):
        x = x * number + (each is pair) + each[1]
    return x


def in_a_set(x, pair):
    return x * (pair in {(1, 2), (2, 3)}) + pair[1]


def kept(x, pair):
    held = [(1, 2), pair]
    return x * (held[0] is held[1]) + held[1][1]


FUNCTIONS = [read, compared, looked_up, gone_through, deeper, in_a_set, kept]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_an_argument_is_the_constant_or_is_not(function):
    assert ONE is read.__defaults__[0]  # what this is about
    traced = jit.trace(function)
    for pair in (ONE, ONE, ONE, OTHER, OTHER, EQUAL, ONE, EQUAL, OTHER, OTHER):
        assert traced(X, pair).tolist() == function(X, pair).tolist(), (pair, pair is ONE)
    assert traced.counts()["served"] >= 3, traced.explain()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_place_holds_the_constant_or_does_not(function):
    held = {"pair": ONE}
    traced = jit.trace(lambda x: function(x, held["pair"]))
    for pair in (ONE, ONE, OTHER, OTHER, EQUAL, ONE, EQUAL, OTHER):
        held["pair"] = pair
        assert traced(X).tolist() == function(X, pair).tolist(), (pair, pair is ONE)
