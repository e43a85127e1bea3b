"""The driver's objects on the fake library: their order, what they refuse, and what they leave behind."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from fake_cuda import (
    HERE,
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    LAUNCH_FAILED,
    OUT_OF_MEMORY,
    case,
    missing,
    on_fake,
    run,
)
from made_cubin import binary, cubin, pointers, table

from lamina.ir.errors import ArgumentValueError, DeviceError, OutOfMemoryError
from lamina.runtime.cuda.driver import Driver
from lamina.runtime.cuda.fits import OLDEST
from lamina.runtime.cuda.vendors import STICKY

KEPT: list[object] = []
needs_fake = pytest.mark.skipif(bool(missing()), reason=missing())


def floats(count: int) -> np.ndarray:
    return np.arange(1, count + 1, dtype=np.float32)


def fetch(stream, address: int, count: int) -> np.ndarray:
    """That many floats, once the stream has come so far."""
    found = np.empty(count, np.float32)
    stream.copy_out(found, address)
    stream.synchronize()
    return found


def doubling(fake) -> None:
    """Have each launch write twice the floats at its first address to its second one, as many as programs."""

    def launched(launch) -> None:
        source, target = launch.addresses
        read = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * launch.grid[0]).from_address(source))
        written = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * launch.grid[0]).from_address(target))
        written[...] = 2 * read

    fake.on_launch(launched)


# ---- opening
def test_missing_bindings_name_the_extra():
    program = (
        "import sys\n"
        "sys.modules['cuda'] = None\n"
        "from lamina.ir.lazy import MissingLibraryError\n"
        "from lamina.runtime.cuda.driver import Driver\n"
        "try:\n    Driver.open()\n"
        "except MissingLibraryError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "cuda is needed here and is not installed\n  pip install 'lamina[gpu]'\n", (
        done.stderr
    )


def opening(**settings) -> str:
    """What opening the driver says there."""
    program = "from lamina.runtime.cuda.driver import Driver\ntry:\n    print(Driver.open().version)\n"
    program += "except RuntimeError as error:\n    print(type(error).__name__, error)\n"
    done = run(["-c", program], **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_fake
def test_no_driver_library_is_explained():
    said = opening(LD_LIBRARY_PATH="")
    if said.startswith("("):
        pytest.skip("this machine has a CUDA driver")
    assert "DeviceError the GPU needs NVIDIA's driver, whose library libcuda.so.1 is not found" in said
    assert "nvidia-smi" in said


@needs_fake
def test_an_old_driver_is_refused_with_both_versions():
    said = opening(version=12020)
    assert said.startswith("DeviceError the CUDA driver is for CUDA 12.8 or newer\n  found: CUDA 12.2\n")
    assert opening(version=1000 * OLDEST[0] + 10 * OLDEST[1]) == f"{OLDEST}\n"


@needs_fake
def test_no_device_is_explained():
    assert "CUDA_ERROR_NO_DEVICE" in opening(devices=0)
    assert "CUDA_VISIBLE_DEVICES is '7'" in opening(devices=0, CUDA_VISIBLE_DEVICES="7")


@on_fake(devices=2, capability=86, capacity=1 << 20)
def test_device_describes_itself(fake):
    driver = Driver.open()
    assert Driver.open() is driver and driver.version == (13, 0) and driver.count == 2
    device = driver.device(1)
    assert device is driver.device(1) and device is not driver.device()
    assert (device.name, device.capability, device.target) == ("Fake device 1", (8, 6), "sm_86")
    assert device.total_memory == 1 << 20 and device.multiprocessors == 4 and device.shared_limit == 232448
    assert repr(device) == "<cuda:1 Fake device 1, sm_86>"
    with pytest.raises(DeviceError, match=r"cuda:2 is not there\n  devices: 2"):
        driver.device(2)


@on_fake()
def test_import_loads_no_bindings(fake):
    assert "cuda.bindings.driver" not in sys.modules
    Driver.open()
    assert "cuda.bindings.driver" in sys.modules and "torch" not in sys.modules


@on_fake(devices=2)
def test_context_is_retained_once_and_made_current_once_on_each_thread(fake):
    first, second = Driver.open().device(0), Driver.open().device(1)

    def work() -> None:
        for _ in range(3):
            first.memory()

    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert fake.live()["contexts"] == 2
    assert fake.calls("cuCtxSetCurrent") == 2
    second.memory()
    first.memory()
    assert fake.calls("cuCtxSetCurrent") == 4


# ---- memory and copies
@on_fake(capacity=1 << 20)
def test_memory_comes_and_goes(fake):
    device = Driver.open().device()
    one, two = device.allocate(1000), device.allocate(5)
    assert fake.blocks() == sorted([(one, 1000), (two, 5)])
    assert device.memory() == ((1 << 20) - 1024 - 512, 1 << 20)
    device.release(one)
    assert fake.blocks() == [(two, 5)]
    with pytest.raises(DeviceError, match=f"{one:#x} is not allocated, or was released before"):
        device.release(one)
    pinned = device.host_allocate(100)
    device.host_release(pinned)
    with pytest.raises(DeviceError, match="is not pinned"):
        device.host_release(pinned)
    device.release(two)
    assert fake.live()["device"] == fake.live()["host"] == 0


@on_fake(capacity=4 << 20)
def test_out_of_memory_says_what_is_held(fake):
    device = Driver.open().device()
    device.allocate(3 << 20)
    with pytest.raises(OutOfMemoryError) as caught:
        device.allocate(2 << 20)
    assert str(caught.value).splitlines()[:3] == [
        "cuda:0 has no 2.0 MiB left",
        "  free: 1.0 MiB of 4.0 MiB",
        "  held by this process: 3.0 MiB in 1 pieces",
    ]
    device.allocate(1 << 20)  # the device goes on
    fake.fail("cuMemHostAlloc", OUT_OF_MEMORY)
    with pytest.raises(OutOfMemoryError, match="the host has no 8 bytes left that can be pinned"):
        device.host_allocate(8)


@on_fake()
def test_fresh_memory_is_poisoned(fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(8)
    assert np.isnan(fetch(stream, address, 2)).all()
    stream.fill(address, 0, 8)
    assert (fetch(stream, address, 2) == 0).all()


@on_fake()
def test_copies_and_fills(fake):
    device = Driver.open().device()
    stream = device.stream()
    a, b = device.allocate(400), device.allocate(400)
    stream.copy_in(a, floats(100))
    stream.copy(b, a, 400)
    stream.fill(b + 40, 0, 40)
    stream.fill_words(b, np.float32(-np.inf).tobytes(), 2)
    stream.fill_words(b + 80, b"\x01\x02", 2)
    stream.fill_words(b + 84, b"\x07", 4)
    wanted = floats(100)
    wanted[10:20], wanted[:2] = 0, -np.inf
    wanted.view(np.uint16)[40:42] = 0x0201
    wanted.view(np.uint8)[84:88] = 7
    assert fetch(stream, b, 100).tobytes() == wanted.tobytes()


@on_fake()
def test_copies_refuse_what_is_not_dense_or_not_writable(fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(400)
    with pytest.raises(ArgumentValueError, match=r"takes a dense array\n  shape \(2, 3\), strides \(4, 8\)"):
        stream.copy_in(address, floats(6).reshape(3, 2).T)
    fixed = floats(3)
    fixed.flags.writeable = False
    stream.copy_in(address, fixed)
    with pytest.raises(ArgumentValueError, match="can be written to"):
        stream.copy_out(fixed, address)
    with pytest.raises(ArgumentValueError, match="words of 1, 2 or 4 bytes, not 8"):
        stream.fill_words(address, bytes(8), 1)
    before = fake.pending()
    stream.copy_in(address, np.empty(0, np.float32))  # nothing to do
    stream.copy(address, address, 0)
    stream.fill(address, 0, 0)
    assert fake.pending() == before


# ---- order
@on_fake()
def test_nothing_runs_until_something_waits(fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(40)
    stream.fill(address, 0, 40)
    event = stream.record()
    assert fake.pending() == 2 and not event.done() and not stream.done()
    event.synchronize()
    assert fake.pending() == 0 and event.done() and stream.done()


@on_fake()
def test_questions_come_to_an_end(fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(40)
    for seed in (0, 1):
        fake.seed(seed)
        stream.fill(address, 0, 40)
        event = stream.record()
        for _ in range(10000):
            if event.done():
                break
        assert event.done()


@on_fake()
def test_a_copy_reads_and_fills_the_hosts_memory_when_the_stream_comes_to_it(fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(8)
    pageable = floats(2)
    pinned = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 2).from_address(device.host_allocate(8)))
    for array in (pageable, pinned):
        array[...] = 1
        stream.copy_in(address, array)
        array[...] = 2
        assert (fetch(stream, address, 2) == 2).all()
        array[...] = 0
        stream.copy_out(array, address)
        assert (array == 0).all()
        stream.synchronize()
        assert (array == 2).all()


@on_fake()
def test_the_arrays_of_a_copy_live_until_the_stream_was_waited_for(fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(8)
    for wait in (stream.synchronize, device.synchronize):
        source, target = floats(2), floats(2)
        dead = [weakref.ref(source), weakref.ref(target)]
        stream.copy_in(address, source)
        stream.copy_out(target, address)
        del source, target
        assert (fake.pending(), [ref() is None for ref in dead]) == (2, [False, False])
        wait()
        assert (fake.pending(), [ref() is None for ref in dead]) == (0, [True, True])
    stream.copy_in(address, floats(2))
    del stream  # with a copy to make yet
    gc.collect()
    assert fake.pending() == 0


@on_fake()
def test_a_wait_lets_go_of_nothing_that_came_later(fake):
    """Threads share a stream: one waits while another one copies."""
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(8)
    for seed in range(4):
        fake.seed(seed)

        def work():
            for _ in range(100):
                stream.copy_in(address, floats(2))
                stream.synchronize()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stream.forget = lambda: stream.copy_in(address, floats(2))  # after the wait, before what it lets go of
    stream.synchronize()
    del stream.forget
    assert len(stream.kept.numbers()) == 1
    assert (fetch(stream, address, 2) == floats(2)).all() and not stream.kept.numbers()


def two_streams(fake, waits: bool, seed: int) -> np.ndarray:
    """One stream fills memory, another copies it: after the fill if it waits for that."""
    fake.seed(seed)
    device = Driver.open().device()
    one, two = device.stream(), device.stream()
    a, b = device.allocate(16), device.allocate(16)
    two.fill(b, 0, 16)
    two.synchronize()
    one.copy_in(a, floats(4))
    if waits:
        two.wait(one.record())
    two.copy(b, a, 16)
    return fetch(two, b, 4)


@on_fake()
def test_a_wait_orders_two_streams_and_a_missing_one_is_seen(fake):
    for seed in range(20):
        assert (two_streams(fake, True, seed) == floats(4)).all(), seed
    assert fake.races() == (0, "")
    fake.forgive()
    wrong = [seed for seed in range(20) if not (two_streams(fake, False, seed) == floats(4)).all()]
    assert 0 in wrong and len(wrong) < 20  # right by luck under some orders, which is why there are many
    fake.finish()
    assert fake.races()[0] >= len(wrong)


@on_fake()
def test_a_wait_is_for_what_was_recorded_before_it(fake):
    device = Driver.open().device()
    one, two = device.stream(), device.stream()
    a = device.allocate(16)
    fake.forgive()  # the second filling has no order
    one.fill(a, 0, 16)
    event = one.record()
    one.fill(a, 1, 16)
    two.wait(event)
    assert (fetch(two, a, 4) == 0).all() and fake.pending() == 1


@on_fake()
def test_time_between_events(fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(1 << 20)
    begin = stream.record(timing=True)
    stream.fill(address, 0, 1 << 20)
    end = stream.record(timing=True)
    assert end.since(begin) > 0 and end.since(begin) == -begin.since(end)
    with pytest.raises(DeviceError, match=r"record\(timing=True\) does"):
        stream.record().since(begin)


# ---- launches
@on_fake()
def test_launch(fake):
    device = Driver.open().device()
    doubling(fake)
    stream, function = device.stream(), device.load(binary())
    a, b = device.allocate(40), device.allocate(40)
    stream.copy_in(a, floats(10))
    stream.launch(function, 10, a, b)
    stream.launch(function, (0, 1, 1), 0, 0)  # no programs: no launch
    assert (fetch(stream, b, 10) == 2 * floats(10)).all()
    assert fake.calls("cuLaunchKernel") == 1 and fake.calls("cuModuleLoadData") == 1


@on_fake()
def test_launch_shape(fake):
    device, seen = Driver.open().device(), []
    fake.on_launch(lambda each: seen.append((each.name, each.grid, each.block, each.shared, each.cluster)))
    stream, a = device.stream(), device.allocate(8)
    stream.launch(device.load(binary("plain", 1, num_warps=8, shared=100)), 7, a)
    stream.launch(device.load(binary("grid", 1)), (7, 2, 3), a)
    stream.launch(device.load(binary("pair", 1, num_ctas=2)), (7, 2, 1), a)
    stream.launch(device.load(binary("large", 1, num_ctas=16, shared=200_000)), 2, a)
    stream.synchronize()
    assert seen == [
        ("plain", (7, 1, 1), (256, 1, 1), 100, 1),
        ("grid", (7, 2, 3), (128, 1, 1), 0, 1),
        ("pair", (14, 2, 1), (128, 1, 1), 0, 2),
        ("large", (32, 1, 1), (128, 1, 1), 200_000, 16),
    ]


@on_fake()
def test_scratch_memory_is_passed_and_asked_for(fake):
    device, seen = Driver.open().device(), []
    fake.on_launch(lambda each: seen.append(each.parameters[8:]))
    stream, a = device.stream(), device.allocate(64)
    function = device.load(binary("k", 1, num_ctas=2, global_scratch=(16, 8), profile_scratch=(4, 4)))
    assert function.scratch(5) == (160, 40) and function.scratch((5, 2, 1)) == (320, 80)
    with pytest.raises(DeviceError, match=r"k needs scratch memory.*\n.*16 global, 4 for the profiler"):
        stream.launch(function, 5, a)
    stream.launch(function, 5, a, scratch=a, profile=a + 8)
    stream.synchronize()
    assert seen == [a.to_bytes(8, "little") + (a + 8).to_bytes(8, "little")]


@on_fake(devices=2, capability=86)
def test_binaries_for_other_gpus_are_refused(fake):
    device = Driver.open().device()
    device.load(binary(target="sm_80"))
    for target in ("sm_89", "sm_90", "sm_75", "gfx942"):
        with pytest.raises(DeviceError, match=f"kernel is compiled for {target}, and cuda:0 is sm_86"):
            device.load(binary(target=target))
    with pytest.raises(DeviceError, match="needs 232449 bytes of shared memory"):
        device.load(binary(target="sm_86", shared=232449))
    function = device.load(binary(target="sm_86"))
    with pytest.raises(DeviceError, match="kernel was loaded on cuda:0, the stream is cuda:1's"):
        Driver.open().device(1).stream().launch(function, 1, 0, 0)


@on_fake(capability=103)
def test_code_of_newer_gpus_is_for_one_architecture(fake):
    with pytest.raises(DeviceError, match="compiled for sm_100, and cuda:0 is sm_103"):
        Driver.open().device().load(binary(target="sm_100"))
    Driver.open().device().load(binary(target="sm_103"))


@on_fake()
def test_layout_of_the_cubin_is_checked(fake):
    device = Driver.open().device()
    device.load(binary(arguments=2), ("*fp32", "i64"))
    with pytest.raises(DeviceError) as caught:
        device.load(binary(arguments=2), ("*fp32", "i32"))
    assert str(caught.value).splitlines() == [
        "kernel: the compiled kernel's parameters lie where a launch puts them",
        "  expected 4 parameters with the two of scratch memory, found 4",
        "  parameter 1, i32: at 8, 4 bytes; found at 8, 8 bytes",
    ]
    with pytest.raises(DeviceError, match="expected 3 parameters .* found 4"):
        device.load(binary(arguments=2), ("*fp32",))


@on_fake()
def test_a_refused_launch_names_kernel_op_and_line(fake):
    device = Driver.open().device()
    stream, function, a = device.stream(), device.load(binary()), device.allocate(8)
    fake.fail("cuLaunchKernel", INVALID_VALUE)
    with pytest.raises(DeviceError) as caught:
        stream.launch(function, 3, a, a, about="matmul at train.py:9")
    assert str(caught.value).splitlines() == [
        "cuda:0 could not launch kernel: CUDA_ERROR_INVALID_VALUE: invalid argument",
        "  for: matmul at train.py:9",
        "  grid 3 x 1 x 1, 128 threads, 0 bytes of shared memory",
    ]
    assert stream.unfinished() == []
    stream.launch(function, 3, a, a)
    stream.synchronize()


@on_fake()
def test_a_failed_load_says_for_what_it_was_compiled(fake):
    device = Driver.open().device()
    fake.fail("cuModuleLoadData", 200)
    with pytest.raises(
        DeviceError, match=r"could not load kernel: CUDA_ERROR_INVALID_IMAGE.*\n  compiled for"
    ):
        device.load(binary())


def loading(toolkit: str) -> str:
    """What loading a kernel says that an assembler of that CUDA made."""
    code = cubin({"kernel": table(pointers(2))}, toolkit)
    try:
        return str(Driver.open().device().load(binary(code=code)).name)
    except DeviceError as error:
        return str(error)


@on_fake(version=12080)
def test_code_of_newer_assemblers_than_the_driver_is_refused_with_both_ways_out(fake):
    assert loading("") == loading("12.8") == loading("12.9") == "kernel"
    assert loading("13.4").splitlines() == [
        "kernel was assembled for sm_90 by CUDA 13.4, and the driver is for CUDA 12.8",
        "  such code needs a driver for CUDA 13.0 or newer",
        "  update NVIDIA's driver to R580 or newer, or use a Triton with an older assembler: "
        "pip install 'triton==3.6.*'",
    ]
    assert fake.calls("cuModuleLoadData") == 3


@on_fake(version=13000)
def test_code_of_an_assembler_of_the_drivers_major_version_is_loaded(fake):
    assert loading("12.9") == loading("13.0") == loading("13.4") == "kernel"
    assert "update NVIDIA's driver to one for CUDA 14 or newer" in loading("14.0")


# ---- a device that is lost
@on_fake()
def test_a_fault_names_what_was_launched_and_stays(fake):
    device = Driver.open().device()
    stream, function = device.stream(), device.load(binary("late", 1))
    KEPT.extend([device.stream(), stream.record(), device.load(binary())])
    a, b = device.allocate(8), device.allocate(8)
    stream.launch(function, 1, a, about="add at train.py:3")
    stream.synchronize()
    stream.launch(function, 1, a, about="mul at train.py:4")
    stream.launch(function, 1, b, about="sum at train.py:5")
    device.release(b)  # too early
    with pytest.raises(DeviceError) as caught:
        stream.synchronize()
    assert str(caught.value).splitlines() == [
        "cuda:0 failed: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
        "  CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered, seen by: finish a stream",
        "  launched and not known to be done:",
        "    late mul at train.py:4",
        "    late sum at train.py:5",
        "  the process has lost the device: begin a new one",
    ]
    for later in (
        lambda: device.allocate(8),
        stream.synchronize,
        lambda: stream.launch(function, 1, a),
        device.stream,
    ):
        with pytest.raises(
            DeviceError, match=r"it was lost before\n  CUDA_ERROR_ILLEGAL_ADDRESS[^$]*late sum"
        ):
            later()
    KEPT.clear()
    gc.collect()  # closing what is left says nothing


@on_fake()
def test_a_kernel_that_fails_loses_the_device(fake):
    device = Driver.open().device()
    fake.on_launch(lambda launch: LAUNCH_FAILED)
    stream, a = device.stream(), device.allocate(8)
    stream.launch(device.load(binary("k", 1)), 1, a)
    with pytest.raises(DeviceError, match=r"cuda:0 failed: CUDA_ERROR_LAUNCH_FAILED[^$]*    k\n"):
        stream.synchronize()


def outside(act) -> None:
    """What `act` does with a stream and 16 bytes of memory must be an illegal address."""
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(16)
    with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        act(device, stream, address)
        stream.synchronize()


@on_fake()
def test_copy_past_the_end_is_seen(fake):
    outside(lambda device, stream, a: stream.copy_in(a, floats(5)))


@on_fake()
def test_copy_out_past_the_end_is_seen(fake):
    outside(lambda device, stream, a: stream.copy_out(floats(5), a))


@on_fake()
def test_copy_between_past_the_end_is_seen(fake):
    outside(lambda device, stream, a: stream.copy(a, a + 8, 16))


@on_fake()
def test_fill_past_the_end_is_seen(fake):
    outside(lambda device, stream, a: stream.fill(a + 1, 0, 16))


@on_fake()
def test_pinned_memory_freed_too_early_is_seen(fake):
    def act(device, stream, address):
        pinned = device.host_allocate(16)
        stream.copy_in(address, np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 4).from_address(pinned)))
        device.host_release(pinned)

    outside(act)


@on_fake()
def test_every_failure_of_the_driver_becomes_an_error(fake):
    device = Driver.open().device()
    stream, function, a = device.stream(), device.load(binary("k", 1)), device.allocate(16)
    event, pinned = stream.record(), device.host_allocate(8)
    acts = {
        "cuMemAlloc": lambda: device.allocate(8),
        "cuMemFree": lambda: device.release(a),
        "cuMemGetInfo": device.memory,
        "cuMemHostAlloc": lambda: device.host_allocate(8),
        "cuMemFreeHost": lambda: device.host_release(pinned),
        "cuStreamCreate": device.stream,
        "cuModuleLoadData": lambda: device.load(binary()),
        "cuModuleGetFunction": lambda: device.load(binary()),
        "cuFuncGetAttribute": lambda: device.load(binary(shared=50_000)),
        "cuFuncSetAttribute": lambda: device.load(binary(shared=50_000)),
        "cuCtxSynchronize": device.synchronize,
        "cuMemcpyHtoDAsync": lambda: stream.copy_in(a, floats(2)),
        "cuMemcpyDtoHAsync": lambda: stream.copy_out(floats(2), a),
        "cuMemcpyDtoDAsync": lambda: stream.copy(a, a, 1),
        "cuMemsetD8Async": lambda: stream.fill(a, 0, 1),
        "cuMemsetD32Async": lambda: stream.fill_words(a, bytes(4), 1),
        "cuEventCreate": stream.record,
        "cuEventRecord": stream.record,
        "cuStreamWaitEvent": lambda: stream.wait(event),
        "cuStreamSynchronize": stream.synchronize,
        "cuStreamQuery": stream.done,
        "cuEventQuery": event.done,
        "cuEventSynchronize": event.synchronize,
        "cuLaunchKernel": lambda: stream.launch(function, 1, a),
    }
    for name, act in acts.items():
        fake.fail(name, INVALID_VALUE)
        with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_VALUE: invalid argument"):
            act()
        if not name.startswith("cuModule") and name not in ("cuMemFree", "cuMemFreeHost"):
            act()  # a failed call changes nothing
    device.release(a)
    device.host_release(pinned)


# ---- ends
@on_fake()
def test_objects_are_closed_when_they_die(fake):
    device = Driver.open().device()
    stream = device.stream()
    events = [stream.record(), stream.record(timing=True)]
    functions = [device.load(binary(f"k{k}")) for k in range(3)]
    assert fake.live() | {"contexts": 1} == {
        "device": 0, "host": 0, "streams": 1, "events": 2, "modules": 3, "contexts": 1,
    }  # fmt: skip
    del events, stream
    del functions[1:]
    gc.collect()
    assert fake.live()["streams"] == fake.live()["events"] == 0
    assert fake.live()["modules"] == 3  # a launch could still be running
    device.synchronize()
    assert fake.live()["modules"] == 1 and fake.live()["contexts"] == 1


@on_fake()
def test_a_kernel_may_die_before_its_launch_runs(fake):
    device, ran = Driver.open().device(), []
    fake.on_launch(lambda launch: ran.append(launch.name))
    stream, a = device.stream(), device.allocate(8)
    for k in range(200):  # unloading those that died waits for the device first
        stream.launch(device.load(binary(f"k{k}", 1)), 1, a)
        if k % 20 == 19:
            stream.synchronize()
    assert fake.live()["modules"] < 100
    assert len(ran) == 200


@on_fake()
def test_a_kernel_and_its_stream_may_die_before_a_launch_runs(fake):
    device, ran = Driver.open().device(), []
    fake.on_launch(lambda launch: ran.append(launch.name))
    stream, a = device.stream(), device.allocate(8)
    for k in range(100):
        device.stream().launch(device.load(binary(f"k{k}", 1)), 1, a)
    stream.synchronize()
    assert len(ran) == 100 and fake.live()["modules"] == 0


@on_fake(seed=1)
def test_a_kernel_of_another_stream_may_die_before_its_launch_runs(fake):
    device, ran = Driver.open().device(), []
    fake.on_launch(lambda launch: ran.append(launch.name))
    streams, a = [device.stream(), device.stream()], device.allocate(8)
    for k in range(400):
        streams[k % 2].launch(device.load(binary(f"k{k}", 1)), 1, a)
        if k % 10 == 9:
            streams[0].synchronize()
    device.synchronize()
    assert len(ran) == 400 and fake.live()["modules"] == 0


@on_fake()
def test_a_load_waits_for_nothing_and_leaves_the_first_launch_nothing_to_load(fake):
    device = Driver.open().device()
    stream, a = device.stream(), device.allocate(8)
    for k in range(200):  # dead at once: they could be unloaded
        device.load(binary(f"k{k}", 1))
    function, api = device.load(binary("k", 1)), sys.modules["cuda.bindings.driver"]
    stream.fill(a, 0, 8)
    assert not api.cuStreamBeginCapture(stream.handle, api.CUstreamCaptureMode(0))[0]
    stream.launch(function, 1, a)
    assert not api.cuStreamEndCapture(stream.handle)[0]
    assert fake.pending() == 1  # the fill
    assert fake.calls("cuStreamSynchronize") == fake.calls("cuCtxSynchronize") == 0


# ---- other libraries' contexts
@on_fake(devices=2)
def test_another_library_may_make_its_context_current(fake):
    """Whatever is made belongs to its own device, whichever context is current when it is asked for."""
    first, second = Driver.open().device(0), Driver.open().device(1)
    second.use()
    api = sys.modules["cuda.bindings.driver"]
    first.use()
    ours, theirs = first._context, second._context

    def anew(act):
        """What `act` gives on a thread where theirs was made current, or none, after ours."""
        for context in (api.CUcontext(0), theirs):
            assert not api.cuCtxSetCurrent(context)[0]
            made = act()
        return made

    address, stream, function = anew(lambda: first.allocate(8)), anew(first.stream), None
    function = anew(lambda: first.load(binary("k", 1)))
    event = anew(stream.record)
    anew(first.memory)
    pinned = anew(lambda: first.host_allocate(8))
    assert api.cuCtxGetCurrent()[1] == ours
    api.cuCtxSetCurrent(theirs)
    stream.launch(function, 1, address)  # in the stream's context, whichever is current
    stream.wait(event)
    stream.copy_in(address, floats(2))
    assert (fetch(stream, address, 2) == floats(2)).all()
    stream.fill(address, 0, 8)
    anew(first.synchronize)
    assert fake.pending() == 0 and api.cuCtxGetCurrent()[1] == ours
    anew(lambda: None)  # theirs is current; what dies here leaves it so
    del event, function
    gc.collect()
    assert api.cuCtxGetCurrent()[1] == theirs and fake.live()["events"] == 0
    first.host_release(pinned)


# ---- what loses a device
@on_fake()
def test_every_error_that_the_documentation_calls_lasting_loses_the_device(fake):
    Driver.open().device()
    results = {each.name: each.__doc__ or "" for each in sys.modules["cuda.bindings.driver"].CUresult}
    said = ("further CUDA work will return the same error", "must be terminated", "cannot be used anymore")
    lasting = {name for name, text in results.items() if any(s in " ".join(text.split()) for s in said)}
    assert len(lasting) > 10 and results.keys() >= STICKY
    assert STICKY - lasting == {
        "CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    }  # fmt: skip
    assert lasting <= STICKY


@on_fake(devices=2)
def test_what_dies_on_another_device_leaves_this_one_current(fake):
    first, second = Driver.open().device(0), Driver.open().device(1)
    event = first.stream().record()
    second.use()
    del event
    sets = fake.calls("cuCtxSetCurrent")
    before = second.memory()
    address = second.allocate(512)
    assert second.memory()[0] == before[0] - 512 and fake.calls("cuCtxSetCurrent") == sets
    second.release(address)


@on_fake()
def test_what_dies_on_a_thread_of_its_own_is_closed(fake):
    device = Driver.open().device()
    held = [device.stream().record()]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert fake.live()["events"] == fake.live()["streams"] == 0


@case
def ends_with_objects(fake):
    device = Driver.open().device()
    stream = device.stream()
    KEPT.extend([stream, stream.record(), device.load(binary()), device])
    KEPT.append(KEPT)


@needs_fake
def test_the_end_of_the_process_closes_nothing_and_says_nothing():
    program = str(HERE / "fake_cuda.py")
    done = run([program, "test_cuda_driver", "ends_with_objects"], at_exit=1)
    assert (done.stdout, done.returncode) == ("done\n", 0)
    assert done.stderr == "alive: 1 streams, 1 events, 1 modules\n"


@on_fake()
def test_a_forked_child_gets_an_error_and_the_parent_goes_on(fake):
    device = Driver.open().device()
    stream, event, a = device.stream(), None, device.allocate(8)
    event = stream.record()
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        said = []
        for act in (Driver.open, device.use, stream.record, event.done, lambda: device.allocate(1)):
            try:
                act()
            except DeviceError as error:
                said.append(str(error).splitlines()[0])
        del stream, event
        gc.collect()
        os.write(writer, "\n".join(said).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(writer)
    said = os.read(reader, 10000).decode().splitlines()
    assert said == ["a process forked after CUDA was begun cannot use the GPU"] * 5
    device.release(a)


@on_fake()
def test_a_child_may_begin_cuda_if_its_parent_did_not(fake):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os._exit(0 if Driver.open().device().allocate(1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    Driver.open()


@on_fake()
def test_threads_launch_at_once(fake):
    device, seen = Driver.open().device(), []
    fake.on_launch(lambda launch: seen.append(launch.addresses))
    function, streams = device.load(binary("k", 2)), [device.stream() for _ in range(4)]
    places = [device.allocate(1000) for _ in streams]

    def work(k: int) -> None:
        for n in range(250):
            streams[k].launch(function, 1, places[k] + n, places[k] + n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    device.synchronize()
    assert sorted(seen) == sorted([p + n, p + n] for p in places for n in range(250))


@on_fake()
def test_ordered_programs_end_alike_under_every_order(fake):
    """Random work on three streams, each op waiting for those that touch its memory: as if done in turn."""
    rng = np.random.default_rng(7)
    device = Driver.open().device()
    doubling(fake)
    function = device.load(binary())
    for seed in range(60):
        fake.seed(seed)
        streams = [device.stream() for _ in range(3)]
        places = [device.allocate(16) for _ in range(4)]
        model = [np.full(4, k, np.float32) for k in range(4)]
        last: list[object] = [None] * 4
        for k, place in enumerate(places):
            streams[0].copy_in(place, model[k])
            last[k] = streams[0].record()
        for _ in range(25):
            source, target = rng.choice(4, 2, replace=False)
            stream = streams[rng.integers(3)]
            for k in (source, target):
                stream.wait(last[k])
            kind = rng.integers(3)
            if kind == 0:
                stream.copy(places[target], places[source], 16)
                model[target] = model[source].copy()
            elif kind == 1:
                stream.launch(function, 4, places[source], places[target])
                model[target] = 2 * model[source]
            else:
                stream.fill(places[target], 0, 16)
                model[target] = np.zeros(4, np.float32)
            last[source] = last[target] = stream.record()
        for k, place in enumerate(places):
            streams[1].wait(last[k])
            assert (fetch(streams[1], place, 4) == model[k]).all(), seed
            device.release(place)


@on_fake()
def test_illegal_results_are_injected_by_name(fake):
    device = Driver.open().device()
    fake.fail("cuStreamCreate", ILLEGAL_ADDRESS, nth=2)
    device.stream()
    with pytest.raises(DeviceError, match="cuda:0 failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        device.stream()
