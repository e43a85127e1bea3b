"""Runs a program undecorated and traced, and holds one to the other."""

import pytest

import lamina
from lamina.jit import trace


def both_ways(make, calls=14, **given):
    """What a program gives undecorated and traced: make(wrap) returns a step, and what it wrapped last."""
    found = []
    for wrap in (lambda f: f, trace):
        lamina.manual_seed(0)
        step, wrapped = make(wrap, **given)
        found.append([float(step(i)) for i in range(calls)])
    eager, traced = found
    assert traced == pytest.approx(eager, rel=1e-5, abs=1e-6)
    return wrapped
