"""`trace(verify=True)`, `explain()`, and what else shows what was made of a function."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim
from lamina.ir import parse
from lamina.ir.errors import ArgumentError
from lamina.ir.graph import Constant
from lamina.jit import backend, verify
from lamina.passes import cache as disk


def make():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5))
    optimizer = optim.Adam(net.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss, x[0] * 2

    return step


def test_verified_runs_do_what_eager_does_once():
    lamina.manual_seed(1)
    step = make()
    traced = jit.trace(verify=True)(step)
    for _ in range(5):
        traced(lamina.randn(2, 4))
    assert traced._log.hits == 3


def test_verified_runs_look_at_values_too():
    @jit.trace(verify=True)
    def f(x):
        x.add_(1)
        return x * 2 if x.sum() > 0 else x - 1

    for value in (1.0, -5.0, 2.0, -7.0):
        x = lamina.full((2,), value)
        got = f(x)
        assert x.tolist() == [value + 1] * 2
        assert got.tolist() == ([(value + 1) * 2] * 2 if value > 0 else [value] * 2)
    assert f._log.hits == 2


class Broken:
    """Code that gives a wrong result for one of its outputs."""

    from_disk = False

    def __init__(self, code):
        self.code = code

    def run(self, arrays, tensors=None):
        first, *rest = self.code.run(arrays, tensors)
        first = first.copy()
        first.reshape(-1)[-1] += 1
        return (first, *rest)

    def kernels(self):
        return []


def test_wrong_code_is_named(monkeypatch):
    real = backend.compile_graph
    monkeypatch.setattr(backend, "compile_graph", lambda *a, **k: Broken(real(*a, **k)))

    @jit.trace(verify=True)
    def f(x):
        return (x * 2).exp()

    f(lamina.zeros(3))
    with pytest.raises(verify.TraceError) as error:
        f(lamina.zeros(3))
    text = str(error.value)
    assert "f: what was compiled is not what was recorded" in text
    assert "the code that is kept of exp changes result 0: element [2] is 1.0 and became 2.0" in text
    assert "of: exp at test_explain.py:" in text


def test_a_wrong_pass_is_named(monkeypatch):
    def negate(graph):
        return graph.replace(results=graph.params[:1])

    monkeypatch.setattr(verify.Options, "passes", lambda self: (negate,))

    class Wrong:
        from_disk = False

        def run(self, arrays, tensors=None):
            return (arrays[0],)

        def kernels(self):
            return []

    monkeypatch.setattr(backend, "compile_graph", lambda *a, **k: Wrong())
    f = jit.trace(lambda x: x * 2, verify=True)
    f(lamina.ones(2))
    with pytest.raises(
        verify.TraceError, match="pass negate changes result 0: element .0. is 2.0 and became 1.0"
    ):
        f(lamina.ones(2))


def test_explain_tells_what_happened():
    scale = [2.0]

    @jit.trace
    def f(x):
        return x * scale[0]

    f(lamina.ones(2)), f(lamina.ones(2))
    scale[0] = 3.0
    f(lamina.ones(2))
    f(np.zeros(1 << 20)), f(np.zeros(1 << 20))
    short, text = f.explain(), f.explain(detail=True)
    too_large = "x is a NumPy array of 8388608 bytes, too large to be compared at each call"
    assert re.match(
        r"f: served 1 of 5 calls, at [\d.e-]+ of eager's time\n  test_explain.py:\d+: x is", short
    )
    assert f": {too_large} (2 calls)\n    instead: make it a tensor\n" in short
    assert re.search(r"\n  cost: recording took .* m?s, compiling .* m?s$", short)
    assert text.startswith(
        f"{short}\n  in all: 3 recordings, 1 compiled call, 1 eager call\n  recording 1: 1 op, "
    )
    assert "    1 hit, " in text and " us on average" in text
    assert "  missed: scale[0]: 2.0 -> 3.0 (test_explain.py:" in text
    assert f"  refused: {too_large}; make it a tensor" in text and f"  eager, 1 call: {too_large}" in text
    assert "; recorded in " in text and (", compiled in " in text or ", from the cache in " in text)
    assert f.counts() == {"served": 1, "recorded": 3, "eager": 1, "raised": 0, "within": 0}


def test_the_report_as_plain_values():
    @jit.trace
    def f(x, n):
        steps.append(n)
        return x * 2 if x.sum() > 0 else x

    steps = []
    for value in (1.0, 1.0, 1.0, -1.0, -1.0):
        f(lamina.full((2,), value), 1)
    with pytest.raises(TypeError):
        f(lamina.ones(2), None, 3)
    found = json.loads(json.dumps(f.explain(as_dict=True)))
    counts = {"served": 3, "recorded": 2, "eager": 0, "raised": 1, "within": 0}
    assert f.counts() == counts and found.items() >= counts.items() and found["name"] == "f"
    one, two = found["paths"]
    assert (one["hits"], two["hits"]) == (2, 1) and one["number"] == 1 and not one["history"]
    assert one["asked"] == 1 and one["effects"] == 1 and one["inputs"] == 1 and one["ops"] >= 2
    assert one["record_seconds"] > 0 and one["compile_seconds"] > 0 and one["run_seconds"] > 0
    assert len(found["misses"]) == 1 and found["misses"][0].startswith("the answer to bool: True -> False")
    assert steps == [1] * 5


def test_a_success_says_nothing_that_reads_like_a_failure():
    step = jit.trace(make())
    x = lamina.randn(2, 4)
    assert step.explain() == "step: not called yet"
    step(x)
    assert step.explain().startswith(
        "step: not recorded yet: Adam made the states of its parameters\n  cost: "
    )
    step(x)
    assert step.explain().startswith("step: recorded, and ready to serve\n  cost: ")
    for _ in range(8):
        step(x)
    verdict, cost = step.explain().splitlines()
    assert re.fullmatch(r"step: served 8 of 10 calls(, at [\d.e-]+ of eager's time)?", verdict)
    assert cost.startswith("  cost: recording took ")
    text = step.explain(detail=True)
    assert not re.search("refus|not kept|miss|eager,|fail|rais", text), text
    assert "  warm-up: Adam made the states of its parameters" in text


def test_what_is_not_served_is_told_with_line_and_remedy():
    @jit.trace
    def f(x):
        return x * time.time()

    for _ in range(3):
        f(lamina.ones(2))
    verdict, at, instead, cost = f.explain().splitlines()
    assert verdict == "f: not served, because time.time() gives another value at each call"
    assert re.fullmatch(r"  at test_explain.py:\d+ \(3 calls\)", at)
    assert instead == "    instead: pass the time as an argument" and cost.startswith("  cost: ")
    (cause,) = f.explain(as_dict=True)["causes"]
    assert cause.items() >= {"instead": "pass the time as an argument", "calls": 3}.items()
    assert cause["where"] == at.split()[1] and f.explain(as_dict=True)["verdict"] == verdict


def test_what_is_recorded_again_and_again_is_one_cause():
    word = "a"

    @jit.trace(max_recordings=4)
    def f(x):
        return x * len(word.upper())

    for n in range(8):
        word = "a" * (n + 1)
        f(lamina.ones(2))
    verdict, at, instead, _ = f.explain().splitlines()
    assert verdict == "f: not served, because word changed: 'aaaa' -> 'aaaaa'"
    assert at.endswith(" (7 calls)")
    assert instead == "    instead: let it be the same at each call, or one of a few"
    detail = f.explain(detail=True)
    assert detail.count("missed") == 1 and "  missed 10 times: word: " in detail, detail


def test_a_few_recordings_more_are_no_cause():
    table = {"n": 0}

    @jit.trace
    def f(x):
        table["n"] += 1
        return x * table["n"]

    for _ in range(20):
        f(lamina.ones(2))
    assert f.explain().startswith("f: served 18 of 20 calls") and f.explain(as_dict=True)["causes"] == []


def test_events_are_told_as_they_happen(capsys, monkeypatch):
    k = 1.0

    @jit.trace
    def f(x):
        return x * k

    x = lamina.ones(2)
    f(x)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("LAMINA_LOG", "trace")
    k = 2.0
    f(x), f(x)
    for _ in range(3):
        with pytest.raises(TypeError):
            f(open)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("lamina: f: ") for line in lines), lines
    told = [line.removeprefix("lamina: f: ") for line in lines]
    assert told[0].startswith("miss: k: 1.0 -> 2.0 (test_explain.py:")
    assert told[1].startswith("recording 2: 1 op, 2 inputs, ")
    assert told[2].startswith("miss: x: f32[2] -> function open (test_explain.py:")
    assert told[-1] == "eager: the recording run raised, and a run that raises is not recorded"


def test_graph_kernels_and_source():
    f = jit.trace(lambda x: (x * 2 + 1).relu().sum())
    with pytest.raises(ArgumentError, match="has no recording: call it first"):
        f.graph()
    x = lamina.ones(8, 8)
    f(x), f(x)
    assert [node.op.name for node in f.graph().nodes] == ["mul", "add", "relu", "sum"]
    assert len(f.kernels()) == 1  # all in one
    assert "define " in f.source("llvm")
    with pytest.raises(ArgumentError, match="there is 'llvm', not 'ptx'"):
        f.source("ptx")


def test_the_recorded_graph_shows_writes():
    @jit.trace
    def f(x):
        x[0].add_(1)

    f(lamina.ones(2, 2))
    assert [node.op.name for node in f.graph(raw=True).nodes] == ["basic_index", "add", "write"]
    assert [node.op.name for node in f.graph().nodes] == ["basic_index", "add", "view_scatter"]


def test_equal_recordings_are_compiled_once():
    backend.forget()
    one, two = (jit.trace(lambda x: x.tanh() * 3) for _ in range(2))
    for f in (one, two):
        f(lamina.ones(5)), f(lamina.ones(5))
    codes = {id(s.code.code) for f in (one, two) for s in f._segments()}
    assert len(codes) == 1


def test_what_is_made_of_constants_alone_is_made_again_from_disk(tmp_path, monkeypatch):
    """A factor that is known is packed once, in a program without params, which is known for what it does."""
    monkeypatch.setattr(disk, "_default", disk.Cache(tmp_path))
    factor = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float32)
    text = """graph f(%x: f32[64,64]) -> (f32[64,64]) {
  @factor : f32[64,64]
  %0 = matmul(%x, @factor) : f32[64,64]
  return %0
}"""
    graph = parse(text, {"factor": Constant(factor, "factor")})
    keys = set()
    for from_disk in (False, True):
        backend.forget()
        code = backend.compile_graph(graph)
        keys.add(code.first_key)
        assert code.from_disk is from_disk and code.first is not None and not code.first_params
        np.testing.assert_array_equal(code.run([factor])[0], factor @ factor)  # sums of small integers
        del code
    assert len(keys) == 1 and None not in keys
