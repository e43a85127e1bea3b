"""Page-locked arrays: over a simulated device whose streams finish late."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_device import SimulatedDevice, SimulatedStream

from lamina.ir.errors import ArgumentValueError, DeviceError, OutOfMemoryError
from lamina.runtime.cuda.pinned import PinnedMemory
from lamina.runtime.memory import address


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice()


@pytest.fixture
def pinned(device) -> PinnedMemory:
    return PinnedMemory(device, limit=1 << 24)


def copied(pinned: PinnedMemory, array: np.ndarray, stream: SimulatedStream) -> None:
    """Queue what a copy of the array is to a stream."""
    stream.given += 1
    assert pinned.used_by(array, stream)


@given(
    shape=st.lists(st.integers(0, 9), max_size=4),
    dtype=st.sampled_from(["f4", "f8", "i1", "?", ml_dtypes.bfloat16, "f2", "i8", "c8"]),
)
def test_an_array_has_its_shape_and_type_and_can_be_written(shape, dtype):
    pinned = PinnedMemory(SimulatedDevice())
    array = pinned.empty(shape, dtype)
    assert array.shape == tuple(shape) and array.dtype == np.dtype(dtype)
    assert array.flags.c_contiguous and array.flags.writeable and array.flags.aligned
    array[...] = 1
    assert (array == np.dtype(dtype).type(1)).all()
    assert pinned.holds(array) == bool(array.size)


def test_a_number_is_a_shape(pinned):
    assert pinned.empty(3, "f4").shape == (3,) and pinned.empty((), "f4").shape == ()


@pytest.mark.parametrize("nbytes, size", [(1, 4096), (4096, 4096), (4097, 8192), (100_000, 131_072)])
def test_buffers_have_powers_of_two(pinned, nbytes, size):
    array = pinned.empty(nbytes, np.uint8)
    assert pinned.statistics()["allocated_bytes.current"] == size
    assert array.nbytes == nbytes


def test_memory_serves_the_next_array_when_the_last_view_is_gone(device, pinned):
    array = pinned.empty((4, 5), "f4")
    at, view = address(array), array[1:].T[::2]
    del array
    other = pinned.empty((4, 5), "f4")
    assert address(other) != at
    del view
    assert address(pinned.empty((3, 7), "i2")) == at
    assert device.calls == 2


def test_memory_waits_for_the_last_copy_of_every_stream(device, pinned):
    one, two = device.stream(), device.stream()
    array = pinned.empty(100, "f4")
    at = address(array)
    copied(pinned, array, one)
    copied(pinned, array[50:], two)
    copied(pinned, array[::-1], one)
    del array
    one.advance(1)
    two.advance(1)
    other = pinned.empty(100, "f4")
    assert address(other) != at
    one.advance(1)
    assert address(pinned.empty(100, "f4")) == at


def test_what_waits_does_not_keep_back_what_is_ready(device, pinned):
    stream = device.stream()
    slow, quick = pinned.empty(100, "f4"), pinned.empty(100, "f4")
    at = address(quick)
    copied(pinned, slow, stream)
    del slow, quick
    assert address(pinned.empty(100, "f4")) == at


def test_arrays_of_other_memory_are_not_its_business(device, pinned):
    stream, other = device.stream(), PinnedMemory(device)
    assert not pinned.used_by(np.ones(3), stream)
    assert not pinned.used_by(other.empty(3, "f4"), stream)
    assert not pinned.used_by(np.empty((0, 3)), stream)
    assert pinned.used_by(np.from_dlpack(pinned.empty(3, "f4")), stream)  # whose base is no array
    assert pinned.used_by(np.frombuffer(memoryview(pinned.empty(3, "f4")), "u1"), stream)


def test_the_cache_is_given_back_after_its_copies(device, pinned):
    stream = device.stream()
    array, kept = pinned.empty(100, "f4"), pinned.empty(100, "f4")
    copied(pinned, array, stream)
    del array
    pinned.empty_cache()
    assert stream.come == stream.given == 1
    assert list(device.host) == [address(kept)]
    assert pinned.statistics() == {
        "allocations.current": 1,
        "allocated_bytes.current": 4096,
        "active_bytes.current": 4096,
        "num_host_alloc": 2,
        "num_host_free": 1,
    }


def test_an_event_that_fails_loses_no_memory(device, pinned):
    stream = device.stream()
    array = pinned.empty(100, "f4")
    copied(pinned, array, stream)
    del array

    def broken(what):
        raise DeviceError("the device is lost")

    device.called_back = broken
    for action in (lambda: pinned.empty(100, "f4"), pinned.empty_cache):
        with pytest.raises(DeviceError, match="the device is lost"):
            action()
    device.called_back = None
    pinned.empty_cache()
    assert not device.host


def test_the_limit_counts_what_is_cached_and_gives_it_up_first(device):
    pinned = PinnedMemory(device, limit=16384)
    cached, kept = pinned.empty(8192, "u1"), pinned.empty(4096, "u1")
    del cached
    array = pinned.empty(12288 // 3, "u1")
    assert len(device.host) == 3
    large = pinned.empty(5000, "u1")
    assert len(device.host) == 3 and pinned.statistics()["allocated_bytes.current"] == 16384
    with pytest.raises(OutOfMemoryError) as caught:
        pinned.empty(1, "u1")
    assert str(caught.value) == (
        "4.00 KiB more of page-locked memory would be beyond the limit\n"
        "  limit:  16.00 KiB\n"
        "  locked: 16.00 KiB, all in use by arrays\n"
        "  drop arrays that were copied already, or use ordinary ones"
    )
    del kept, array, large


def test_garbage_that_another_thread_is_collecting_is_waited_for(device, monkeypatch):
    """`gc.collect()` does nothing while another thread is at it."""
    pinned, collect, calls = PinnedMemory(device, limit=4096), gc.collect, []
    circle = [pinned.empty(100, "u1")]
    circle.append(circle)
    del circle
    monkeypatch.setattr(gc, "collect", lambda: calls.append(0) or (collect() if len(calls) > 2 else 0))
    assert pinned.empty(100, "u1").size == 100 and len(calls) == 3


def test_the_limit_is_half_of_the_machines_memory_by_default(device):
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    assert PinnedMemory(device).limit == page * pages // 2


def test_a_full_system_gets_the_cache_back(device, pinned):
    device.host_room = 8192
    array = pinned.empty(4097, "u1")
    del array
    assert pinned.empty(1, "u1").nbytes == 1
    assert list(map(len, device.host.values())) == [4096]
    with pytest.raises(OutOfMemoryError, match="host is full"):
        pinned.empty(9000, "u1")


def test_objects_and_negative_sizes_are_refused(pinned):
    with pytest.raises(ArgumentValueError, match="no page-locked array of shape .3,. and type object"):
        pinned.empty(3, object)
    with pytest.raises(ArgumentValueError, match="shape .2, -1."):
        pinned.empty((2, -1), "f4")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_reads_arrays_and_gives_nothing_back(device, pinned):
    array = pinned.empty(100, "f4")
    array[...] = 7
    calls = device.calls
    child = os.fork()
    if child == 0:
        answer = 1
        try:
            readable = bool((array == 7).all())
            del array
            pinned.empty_cache()
            refused = False
            try:
                pinned.empty(100, "f4")
            except DeviceError:
                refused = True
            answer = int(not (readable and refused and device.calls == calls and not pinned._cached[4096]))
        finally:
            os._exit(answer)
    assert os.waitpid(child, 0)[1] == 0
    assert (array == 7).all()


def test_arrays_that_outlive_the_program_say_nothing():
    """An array of a main program dies when most of Python is gone."""
    text = (
        "from simulated_device import SimulatedDevice\n"
        "from lamina.runtime.cuda.pinned import PinnedMemory\n"
        "import numpy as np, sys\n"
        "array = PinnedMemory(SimulatedDevice()).empty(3, 'f4')\n"
        "circle = [array]; circle.append(circle); sys.kept = array\n"
    )
    paths = [str(Path(__file__).parent), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def fuzzed(kind: type[PinnedMemory], seed: int, threads: int = 4) -> list[str]:
    """What goes wrong where threads make, fill, copy and drop arrays, the collector dropping some."""
    device, mistakes = SimulatedDevice(), []
    pinned = kind(device, limit=1 << 20)
    busy: dict[int, tuple[SimulatedStream, int]] = {}  # of each buffer, the last copy that it is part of

    def work(k: int) -> None:
        rng, stream, mine = random.Random(seed * 100 + k), device.stream(), []
        try:
            for _ in range(150):
                array = pinned.empty(rng.choice((10, 5000, 9000)), "u1")
                before = busy.pop(address(array), None)
                if before is not None and before[0].come < before[1]:
                    mistakes.append("reused before its copy was done")
                array[...] = k
                mine.append(array)
                if rng.random() < 0.6:
                    stream.given += 1
                    busy[address(array)] = stream, stream.given
                    pinned.used_by(array, stream)
                if rng.random() < 0.5:
                    stream.come = min(stream.given, stream.come + 1)
                if any((a != k).any() for a in mine):
                    mistakes.append("two arrays in one buffer")
                while len(mine) > 6:
                    dropped = mine.pop(rng.randrange(len(mine)))
                    if rng.random() < 0.3:
                        circle = [dropped]
                        circle.append(circle)
                        del circle
                    del dropped
                del array
        except BaseException as error:
            mistakes.append(repr(error))

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(5, 1, 1)
    sys.setswitchinterval(1e-5)
    try:
        running = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
    gc.collect()
    found = pinned.statistics()
    if found["active_bytes.current"] or found["allocated_bytes.current"] > 1 << 20:
        mistakes.append(f"accounts: {found}")
    pinned.empty_cache()
    if device.host or pinned.statistics()["allocated_bytes.current"]:
        mistakes.append("not all was given back")
    return mistakes


@pytest.mark.parametrize("seed", range(4))
def test_threads_share_nothing_they_still_use(seed):
    assert fuzzed(PinnedMemory, seed) == []


class ReusesAtOnce(PinnedMemory):
    def _taken(self, buffers, passed):
        return super()._taken(buffers, lambda event: True)


class ReturnsEarly(PinnedMemory):
    """The memory is free again when the array is made."""

    def empty(self, shape, dtype):
        array = super().empty(shape, dtype)
        self._cached[self._sizes[address(array)]].append((address(array), ()))
        return array

    def _returned(self, start):
        self._events.pop(start, None)


class ForgetsEvents(PinnedMemory):
    def used_by(self, array, stream):
        return True


@pytest.mark.parametrize("kind", [ReusesAtOnce, ReturnsEarly, ForgetsEvents])
def test_planted_bugs_are_seen(kind):
    assert any(fuzzed(kind, seed) for seed in range(5))
