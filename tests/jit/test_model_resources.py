"""What an exported model holds of the system: given back when it goes, begun anew by a forked child."""

import copy
import gc
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina import jit
from lamina.jit.lamina_model import Model

X = np.linspace(0, 1, 300_000, dtype=np.float32)  # worth two threads


@pytest.fixture(scope="module")
def model_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.lam"
    example = lamina.from_numpy(X)
    jit.export(lambda x: (x.sin() * x.cos()).exp().tanh() + x.sqrt(), path, example, levels=["x86-64-v2"])
    return path


def held() -> dict[str, int]:
    """Descriptors, threads and mappings of a model's code that this process has."""
    gc.collect()
    with open("/proc/self/maps") as maps:
        mapped = sum("lamina_model" in line for line in maps)
    return {
        "fd": len(os.listdir("/proc/self/fd")),
        "task": len(os.listdir("/proc/self/task")),
        "maps": mapped,
    }


def test_a_model_that_goes_leaves_nothing(model_file):
    before = held()
    first = Model(model_file, threads=2)
    wanted = first.run(X)
    one = held()
    assert one["fd"] == before["fd"] and one["task"] == before["task"] + 1 and one["maps"] > before["maps"]
    others = [Model(model_file, threads=3) for _ in range(3)]
    assert all(np.array_equal(other.run(X), wanted) for other in others)
    assert held()["task"] == before["task"] + 1 + 3 * 2
    del others
    assert held() == one and np.array_equal(first.run(X), wanted)
    del first
    assert held() == before


def test_a_server_that_loads_again_and_again_never_runs_out(model_file):
    before, limits = held(), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, limits[0]), limits[1]))
    try:
        for _ in range(400):
            jit.load(model_file)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert held() == before


def test_a_model_that_could_not_be_made_leaves_nothing(model_file, monkeypatch):
    before = held()

    def fail(self, arrays):
        raise MemoryError

    monkeypatch.setattr("lamina.jit.lamina_model._Program.run", fail)
    with pytest.raises(MemoryError):
        Model(model_file, threads=2)
    assert held() == before


FORKED_WHILE_RUNNING = """
import os, signal, sys, threading
sys.path.insert(0, sys.argv[1])
import numpy as np, lamina_model
model = lamina_model.Model(sys.argv[1], threads=2)
x = np.linspace(0, 1, 300_000, dtype=np.float32)
wanted, stop = model.run(x), False
def busy():
    while not stop:
        model.run(x)
threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads:
    thread.start()
fine = 0
for _ in range(12):
    child = os.fork()
    if not child:
        signal.alarm(10)
        same = all(np.array_equal(model.run(x), wanted) for _ in range(3))
        same = same and len(os.listdir("/proc/self/task")) == 2
        os._exit(0 if same and np.array_equal(lamina_model.run(x), wanted) else 1)
    fine += os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads:
    thread.join()
assert fine == 12, fine
"""


def test_a_child_forked_while_others_run_the_model_runs_it_too(model_file):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED_WHILE_RUNNING, str(model_file)],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


WORKERS = """
import multiprocessing, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import lamina_model
x = np.linspace(0, 1, 300_000, dtype=np.float32)
wanted = lamina_model.run(x)
def work(k):
    return np.array_equal(lamina_model.run(x * k), wanted) == (k == 1)
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert all(pool.map(work, range(6)))
    assert np.array_equal(lamina_model.run(x), wanted)
"""


def test_forked_workers_use_the_parents_model(model_file):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", WORKERS, str(model_file)],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("native", [True, False])
def test_a_model_is_not_copied_but_loaded_where_it_is_needed(model_file, native):
    models = [jit.load(model_file, native=native)] + [Model(model_file)] * native
    for model in models:
        for way in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="load it where it is needed"):
                way(model)
