"""Programs of symbols on disk: a later process neither runs passes nor compiles."""

import os
import subprocess
import sys

import numpy as np
import pytest

import lamina
from lamina import jit, nn
from lamina.jit import backend
from lamina.passes import cache as disk
from lamina.passes.llvm.variant import need_formulas
from lamina.runtime import native


@pytest.fixture
def folder(tmp_path, monkeypatch):
    a_later_process(tmp_path, monkeypatch)
    return tmp_path


def a_later_process(folder, monkeypatch):
    """Forget what the process knows but for what is on disk."""
    backend.forget()
    monkeypatch.setattr(disk, "_default", disk.Cache(folder))


def network(width=40):
    lamina.manual_seed(0)
    return nn.Sequential(nn.Linear(24, width), nn.GELU(), nn.Linear(width, 8), nn.Softmax(-1))


def run(net, counts):
    """What a trace makes of inputs of so many rows, and its codes."""
    traced, found = jit.trace(net, budget=None), []
    with lamina.no_grad():
        for count in counts:
            x = lamina.tensor(np.random.default_rng(count).standard_normal((count, 24)).astype(np.float32))
            jit.mark_dynamic(x, 0)
            found.append((traced(x).numpy(), net(x).numpy()))
    for got, wanted in found:
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)
    return [got for got, _ in found], [made for made in backend._templates.values() if made]


def test_a_later_process_takes_the_code_from_disk(folder, monkeypatch):
    counts = [16, 64, 3, 2, 16]
    first, (made,) = run(network(), counts)
    assert made.is_whole and "programs" in made.__dict__
    a_later_process(folder, monkeypatch)
    again, (kept,) = run(network(), counts)
    assert "programs" not in kept.__dict__, "passes ran again"
    assert kept.at(dict.fromkeys(kept.names, 16))[2]
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_sizes_that_no_earlier_process_met_are_made_and_kept(folder, monkeypatch):
    run(network(), [64])
    a_later_process(folder, monkeypatch)
    _, (made,) = run(network(), [64, 2])
    assert "programs" in made.__dict__ and len(made._codes) == 2
    a_later_process(folder, monkeypatch)
    _, (kept,) = run(network(), [2, 64, 100])
    assert "programs" not in kept.__dict__


def test_a_report_makes_the_programs_again(folder, monkeypatch):
    width = 41  # which kernels there are is chosen for the sizes that the process met first, of no other test
    run(network(width), [16])
    a_later_process(folder, monkeypatch)
    net = network(width)
    traced = jit.trace(net, budget=None)
    x = lamina.ones(16, 24)
    jit.mark_dynamic(x, 0)
    with lamina.no_grad():
        traced(x), traced(x)
    assert traced.kernels() == ["linear_gelu", "linear", "softmax"]
    (segment,) = traced._segments()
    assert segment.code.from_disk and segment.code.source()


@pytest.mark.parametrize("what", ["cut", "zeros", "other formulas", "gone"])
def test_damaged_entries_are_made_again(folder, monkeypatch, what):
    wanted, (made,) = run(network(), [16, 2])
    keys = [disk.key("template", made._key)]
    for n, code in enumerate(made._codes):
        keys.append(native._program_key(f"variant {made._own_key} {n}", code.target))
    for key in keys:
        a_later_process(folder, monkeypatch)
        cache = disk.default()
        data = cache.get(key)
        assert data
        if what == "gone":
            cache.forget(key)
        else:
            other = {"cut": data[: len(data) // 2], "zeros": bytes(len(data))}
            cache.put(key, other.get(what) or data.replace(b"s1", b"q1"))
        found, _ = run(network(), [16, 2])
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_array_equal(one, other)


FORMULAS = {
    "a call": "__import__('os').system('false')",
    "an attribute": "s1.real",
    "a name": "os",
    "a word": "s1 if s1 else 2",
}


@pytest.mark.parametrize("text", FORMULAS.values(), ids=FORMULAS)
def test_formulas_from_disk_are_of_sizes_alone(text):
    need_formulas(["s1*(s2+15)//16*64", "max(s1,2)-1"], ["s1", "s2"])
    with pytest.raises(ValueError, match="no formula"):
        need_formulas([text], ["s1"])


def test_a_process_of_its_own(tmp_path):
    program = """
import sys, numpy as np, lamina
from lamina import jit, nn
from lamina.jit import backend
lamina.manual_seed(0)
net = nn.Sequential(nn.Linear(24, 40), nn.GELU(), nn.Linear(40, 8))
traced = jit.trace(net, budget=None)
with lamina.no_grad():
    for count in (16, 5, 16):
        x = lamina.ones(count, 24)
        jit.mark_dynamic(x, 0)
        y = traced(x)
        assert abs(y - net(x)).max() < 1e-5
(made,) = backend._templates.values()
print("programs" in made.__dict__)
"""
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "LAMINA_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.strip())
    assert told == ["True", "False"]


def test_processes_that_chose_by_other_sizes_at_a_time(folder, monkeypatch):
    """Each writes what the other reads: what was made for a few images, and for many, is never mixed."""
    lamina.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 24, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 5, 3))

    def run(counts):
        traced = jit.trace(net, budget=None)
        with lamina.no_grad():
            for count in counts:
                x = lamina.tensor(np.random.default_rng(count).standard_normal((count, 3, 9, 10), np.float32))
                jit.mark_dynamic(x, 0)
                np.testing.assert_allclose(traced(x).numpy(), net(x).numpy(), rtol=2e-5, atol=1e-5)
        return [made for made in backend._templates.values() if made]

    abouts = []
    for counts in ([50], [3]):
        a_later_process(folder, monkeypatch)
        (made,) = run(counts)
        key = disk.key("template", made._key)
        abouts.append(disk.default().get(key))
        disk.default().forget(key)
    assert None not in abouts and abouts[0] != abouts[1]
    for about in abouts:
        a_later_process(folder, monkeypatch)
        disk.default().put(key, about)
        for made in run([50, 3, 64, 2]):
            assert all(code.variant.fixed.kernels == len(made.wiring.kernels[1]) for code in made._codes)
