"""A share of the changed texts in every run of the tests; `run.py` reads more."""

import itertools
import sys

import driver
import numpy as np
import pytest
from driver import Wrong
from hostile_texts import KINDS
from text_judges import judge_graph, judge_kernel

from lamina.ir.kernel.affine import Affine
from lamina.ir.kernel.form import Kernel

verifier = sys.modules["lamina.ir.kernel.verify"]  # the package has a function of that name
KERNEL = "kernel k(x: f32[4]) -> (y: f32[4]) {\n  parallel i:4\n  y[i] = x[i]\n}"
GRAPH = "graph g(%x: f32[3]) -> (f32[3]) {\n  %0 = neg(%x) : f32[3]\n  return %0\n}"


SHARES = {"graph": 10_000, "kernel": 2000, "program": 1000}  # about 2 s of the processor each


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", KINDS)
def test_changed_texts_are_refused_or_mean_what_they_say(name):
    totals = driver.run(name, KINDS[name](), SHARES[name], jobs=1)
    assert not totals.failed, totals.faults
    assert totals.verdicts["refused"] and totals.verdicts["parsed"] and totals.verdicts["ran"]


def test_judge_sees_a_kernel_that_leaves_its_buffer(monkeypatch):
    monkeypatch.setattr(Kernel, "inside", lambda self, part, size: True)
    with pytest.raises(Wrong, match="leaves"):
        judge_kernel(KERNEL.replace("x[i]", "x[i+1]"))


def test_judge_sees_elements_that_are_not_written(monkeypatch):
    monkeypatch.setattr(verifier, "_check_written", lambda *_: None)
    with pytest.raises(Wrong, match="0 to 1 times"):
        judge_kernel(KERNEL.replace("i:4", "i:3"))


def test_judge_sees_text_that_is_not_read_back(monkeypatch):
    numbers = itertools.count()
    monkeypatch.setattr(Affine, "__str__", lambda self: str(next(numbers)))
    with pytest.raises(Wrong, match="not read back"):
        judge_kernel(KERNEL.replace("y[i] = x[i]", "y[i] = f32(coord(2*i))"))


def test_judge_sees_results_of_another_type(monkeypatch):
    assert judge_graph(GRAPH) == "ran"
    monkeypatch.setattr("text_judges.interpret", lambda graph, *arrays: [np.zeros(3)])
    with pytest.raises(Wrong, match="declared"):
        judge_graph(GRAPH)
