"""Calls of C libraries: sizes that change, misuse, threads."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from c_models import aligned, digits, plain, pointer, same, write

import lamina
from lamina import nn
from lamina.jit.artifact import levels_here

R = lamina.randn
pytestmark = pytest.mark.skipif(not levels_here(), reason="native programs run on Linux alone")


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "model.so"


# ---- sizes
def test_sizes_that_change(path):
    model = digits().eval()
    library = write(model, path, R(4, 1, 8, 8), dynamic={0: {0: ("batch", 1, 300)}})
    (about,) = library.sizes
    assert (about.name, about.low, about.high) == (b"batch", 1, 300)
    assert list(library.inputs[0].shape[:4]) == [-1, 1, 8, 8]
    for batch in (1, 2, 3, 7, 64, 300):
        x = R(batch, 1, 8, 8)
        with lamina.no_grad():
            same(library.run(x, sizes=[batch]), model(x))
    x = R(4, 1, 8, 8)
    outputs = library.fresh(np.array([4]))
    for batch in (0, -1, 301, -(1 << 63), (1 << 63) - 1):
        sizes = np.array([batch])
        code = library.raw([plain(x)], outputs, sizes)
        assert code == 3 and library.said(code) == "a size is out of range: batch from 1 to 300"
        assert library.need(sizes) == -3
        assert library.function("output_shape")(0, pointer(sizes), pointer(np.zeros(2, np.int64))) == 3
    assert library.raw([plain(x)], outputs, None) == 1  # sizes are NULL


def folded(x):
    y = x.reshape(x.shape[0], 4, -1)
    return y.sum(1), (x @ x.transpose(0, 1)).softmax(1), y[:, 1:].exp()


def test_what_must_hold_of_sizes(path):
    library = write(folded, path, R(2, 12), dynamic={"x": {0: "batch", 1: ("time", 1, 400)}})
    assert [each.name for each in library.sizes] == [b"batch", b"time"]
    for batch, time in ((1, 4), (3, 8), (17, 400)):
        x = R(batch, time)
        same(library.run(x, sizes=[batch, time]), folded(x))
        assert library.shape("output", 2, np.array([batch, time])) == (batch, 3, time // 4)
    for time in (1, 5, 399):
        sizes = np.array([2, time])
        assert library.need(sizes) == -4
        assert library.raw([plain(R(2, time))], library.fresh(np.array([2, 400])), sizes) == 4
    told = library.said(4)
    assert told.startswith("these sizes do not fit: the model takes such that ") and "time" in told


def test_sizes_beyond_64_bits_are_refused(path):
    library = write(lambda x: x * 2, path, R(2, 3, 5), dynamic={0: {0: "a", 1: "b", 2: "c"}})
    assert library.need(np.array([1 << 40, 1 << 40, 1 << 40])) == -3
    assert library.need(np.array([1 << 40, 1 << 21, 1])) == -3  # 2^63 bytes
    x = R(2, 2, 2)
    same(library.run(x, sizes=[2, 2, 2]), x * 2)


def test_memory_that_there_is_not_is_a_code(path):
    library = write(lambda x: (x @ x.T).softmax(1).sum(1), path, R(4, 3), dynamic={0: {0: "n"}})
    sizes = np.array([1 << 30])
    assert library.need(sizes) > 1 << 60
    assert library.raw([1 << 45], [1 << 46], sizes) == 8  # nothing is read or written before
    assert library.said(8) == "there is too little memory"


# ---- one call
def test_callers_own_the_workspace(path):
    model, x = digits().eval(), R(5, 1, 8, 8)
    library = write(model, path, x)
    need = library.need()
    assert need > 0
    room = aligned(need + 64)
    room[need:] = 0x5A
    with lamina.no_grad():
        same(library.run(x, workspace=room[:need], beyond=1), model(x))
    assert (room[need:] == 0x5A).all()
    outputs, given = library.fresh(None), [plain(x)]
    assert library.raw(given, outputs, None, room, need - 1) == 5
    assert library.said(5) == "the workspace is smaller than model_workspace says"
    assert library.raw(given, outputs, None, room[1:], need) == 2
    large = aligned(need + (1 << 16))
    inside = large.ctypes.data + 64
    for over in ([inside], outputs), (given, [inside]):
        assert library.raw(*over, None, large, need) == 6
    assert library.raw([large.ctypes.data + (need + 63) // 64 * 64], outputs, None, large, need) == 0


def test_misuse_is_a_code(path):
    library = write(lambda x, y: (x + y, x * y), path, R(4, 6), R(4, 6))
    x, y = (np.ones((4, 6), np.float32) for _ in range(2))
    a, b = library.fresh(None)
    assert library.raw([x, y], [a, b]) == 0
    assert library.raw([x, 0], [a, b]) == 1
    assert library.raw([x, y], [a, 0]) == 1
    run = library.function("run")
    assert run(None, pointer(a), None, None, 0) == 1
    assert run(pointer(a), None, None, None, 0) == 1
    assert library.raw([x, y.ctypes.data + 1], [a, b]) == 2
    assert library.raw([x, y], [a.ctypes.data + 2, b]) == 2
    assert library.raw([x, y], [a, a]) == 6
    assert library.raw([x, y], [a, a.ctypes.data + 92]) == 6  # the last of its 24 elements
    assert library.raw([x, y], [x, b]) == 6
    assert library.raw([x, x], [a, b]) == 0  # inputs may be one
    assert library.said(6) == "an output or the workspace overlaps another array"
    shape = pointer(np.zeros(2, np.int64))
    assert library.function("input_shape")(2, None, shape) == 14
    assert library.function("output_shape")(-1, None, shape) == 14
    assert library.function("output_shape")(0, None, None) == 1
    for code in (-1, 15, 1 << 20):
        assert library.said(code) == "this is no code of this library's"
    assert library.function("set_threads")(0) == 14 and library.function("set_threads")(257) == 14


def test_an_index_out_of_range_is_a_code(path):
    table = nn.Embedding(20, 5)
    library = write(table, path, lamina.tensor([[1, 2], [3, 19]]))
    good, bad = np.array([[0, 1], [2, 3]]), np.array([[0, 1], [20, 3]])
    outputs = library.fresh(None)
    assert library.raw([bad], outputs) == 7
    assert library.said(7) == "an index among the inputs' values is out of range"
    assert library.raw([good], outputs) == 0
    same(outputs, table(lamina.tensor(good)))


def test_threads_call_at_once(path):
    model = digits().eval()
    library = write(model, path, R(4, 1, 8, 8), dynamic={0: {0: "batch"}})
    wrong: list[str] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for batch in random.integers(1, 40, 30):
            x = random.standard_normal((batch, 1, 8, 8)).astype(np.float32)
            room = aligned(library.need(np.array([batch]))) if seed % 2 else None
            (found,) = library.run(x, sizes=[batch], workspace=room)
            with lamina.no_grad():
                wanted = model(lamina.tensor(x)).numpy()
            if not np.allclose(found, wanted, atol=1e-4):
                wrong.append(f"{seed}: {batch}")

    assert library.function("set_threads")(2) == 0  # and two of them beside for who comes first
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert library.function("set_threads")(1) == 0


def test_calls_run_on_several_threads(path):
    model, x = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).eval(), R(512, 256)
    library = write(model, path, x)

    def running() -> int:
        return len(os.listdir("/proc/self/task"))

    with lamina.no_grad():
        wanted = model(x)
    same(library.run(x), wanted)
    before = running()
    for n in (3, 2, 5, 1):
        assert library.function("set_threads")(n) == 0
        assert running() == before + n - 1
        same(library.run(x), wanted)
    assert library.function("set_threads")(2) == 0
    child = os.fork()
    if child == 0:  # which has none of the threads
        try:
            same(library.run(x), wanted)
            assert library.function("set_threads")(2) == 0
            same(library.run(x), wanted)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert library.function("set_threads")(1) == 0
