"""Schedules found by measuring: kept, told, used again, and never where results must not change."""

import json
import zipfile
from time import time_ns

import numpy as np
import pytest

import lamina
from lamina import jit, nn
from lamina.ir.errors import ArgumentError
from lamina.jit import backend, tuning
from lamina.jit.export import tune_file
from lamina.passes.schedules.steps import Schedule, parse


@pytest.fixture
def quicker(monkeypatch, request):
    """Each other schedule wins its race: no outcome hangs on a clock.  Nothing is known of earlier tests."""
    monkeypatch.setattr(tuning, "_raced", lambda one, two, runs=0: (2.0, 2.0 - (one is not two)))
    version = f"{request.node.name} {time_ns()}"
    monkeypatch.setattr(backend, "version", lambda: version)
    monkeypatch.setattr(tuning, "_time", lambda run: 2.0)
    backend.forget()
    yield
    backend.forget()


def network() -> nn.Module:
    lamina.manual_seed(0)
    return nn.Sequential(nn.Linear(48, 40), nn.ReLU(), nn.Linear(40, 10), nn.Softmax(-1)).eval()


def traced(**options):
    net, x = network(), lamina.randn(7, 48)
    made = jit.trace(net, **options)
    with lamina.no_grad():
        found = [made(x) for _ in range(3)][-1]
        return made, found, net(x)


def test_a_tuned_program_computes_the_same_and_says_so(quicker):
    made, found, wanted = traced(tune=0.5)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=0, atol=1e-6)  # softmax of sums of 48
    text = made.explain(detail=True)
    assert "run by another schedule, which may round otherwise" in text and "searching for schedules" in text
    (code,) = {segment.code.code for segment in made._segments() if segment.code is not None}
    changed = [one for one in code.tuned if one.schedule]
    assert changed and all(one.after < one.before for one in changed)
    _, main = code.programs()
    for one in changed:
        assert all(main.calls[at].how == parse(one.schedule) for at in one.at)


def test_what_was_found_is_there_in_the_next_process(quicker, monkeypatch):
    traced(tune=0.5)
    backend.forget()
    monkeypatch.setattr(tuning._Search, "run", lambda self, seconds: pytest.fail("searched again"))
    made, _, _ = traced(tune=0.5)
    assert "run by another schedule" in made.explain(detail=True)


def test_one_kernel_of_two_programs_is_searched_once(quicker, monkeypatch):
    traced(tune=0.5)
    backend.forget()
    tried = []
    real = tuning._Search.search
    monkeypatch.setattr(tuning._Search, "search", lambda *args: tried.append(args) or real(*args))
    made, _, _ = traced(tune=0.1)  # another program by its options, of the same kernels
    assert not tried and "run by another schedule" in made.explain(detail=True)


def test_a_longer_search_goes_on_from_what_was_found(quicker, monkeypatch):
    traced(tune=0.1)
    backend.forget()
    begun = []
    real = tuning._Search.search
    monkeypatch.setattr(tuning._Search, "search", lambda self, *a: begun.append(self.best) or real(self, *a))
    traced(tune=3)
    assert any(how is not None for how in begun)


def test_arrays_are_held_for_one_kernel_at_a_time(quicker, monkeypatch):
    held, searches = [], []
    real = tuning._Search.__init__

    def made(self, *args):
        real(self, *args)
        searches.append(self)

    monkeypatch.setattr(tuning._Search, "__init__", made)
    searching = tuning._Search.search

    def seen(self, seconds):
        held.append(sum(bool(other.arrays or len(other.runs) > 1) for other in searches if other is not self))
        return searching(self, seconds)

    monkeypatch.setattr(tuning._Search, "search", seen)
    traced(tune=0.5)
    assert len(held) > 1 and not any(held)
    assert not any(search.arrays or search.runs for search in searches if search.tried)


def test_nothing_is_tuned_without_being_asked_or_under_deterministic_algorithms(quicker):
    made, _, _ = traced()
    assert "schedule" not in made.explain(detail=True)
    lamina.use_deterministic_algorithms(True)
    try:
        made, _, _ = traced(tune=0.5)
        assert "schedule" not in made.explain(detail=True)
    finally:
        lamina.use_deterministic_algorithms(False)


def test_a_schedule_that_computes_something_else_is_dropped(quicker, monkeypatch):
    monkeypatch.setattr(tuning, "wrong_code", lambda *args: ("native code", "3 != 4"))
    with pytest.warns(UserWarning, match="computes something else"):
        made, _, _ = traced(tune=0.5)
    assert "0 of" in made.explain(detail=True)


@pytest.mark.parametrize("tune", [-1, float("nan"), float("inf"), True, "long"])
def test_what_is_no_number_of_seconds_is_refused(tune):
    with pytest.raises(ArgumentError, match="so many seconds"):
        jit.trace(network(), tune=tune)


def test_an_exported_model_is_written_anew(quicker, tmp_path):
    net, x = network(), lamina.randn(7, 48)
    path = tmp_path / "model.lam"
    jit.export(net, path, x)
    told = []
    found = tune_file(path, 0.5, tmp_path / "tuned.lam", told.append)
    assert told == found and any(one.schedule for one in found)
    one, two = (jit.load(tmp_path / name)(x) for name in ("model.lam", "tuned.lam"))
    np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=0, atol=1e-6)
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(tmp_path / "tuned.lam") as after:
        levels = json.loads(before.read("manifest.json"))["levels"]
        changed = [level for level in levels if before.read(f"{level}.so") != after.read(f"{level}.so")]
    assert len(changed) == 1


def test_the_command_line_tells_each_kernel(quicker, tmp_path, capsys):
    from lamina.__main__ import main

    path = tmp_path / "model.lam"
    jit.export(network(), path, lamina.randn(7, 48))
    assert main(["tune", str(path), "--seconds", "0.3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("in their sum") and any(
        "->" in line and "vectorise" in line for line in lines[:-1]
    )


def test_a_search_takes_no_schedule_that_does_not_fit(quicker, monkeypatch):
    impossible = parse("vectorise(nowhere)")
    monkeypatch.setattr(tuning, "variants", lambda *args: iter([impossible]))
    made, _, _ = traced(tune=0.2)
    (code,) = {segment.code.code for segment in made._segments() if segment.code is not None}
    assert all(one.schedule != str(impossible) for one in code.tuned)
    assert isinstance(impossible, Schedule)
