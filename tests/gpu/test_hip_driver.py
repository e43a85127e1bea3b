"""AMD's driver: what is its own on the fake of it, and tests of CUDA's that say nothing of either again.

The fake stands in for a driver and a device: no GPU of AMD's has run any of this.
"""

from __future__ import annotations

import ctypes
import re
import sys

import numpy as np
import pytest
import test_cuda_driver
import test_cuda_graphs
import test_device_streams
import test_device_tensors
import test_device_traces
from fake_cuda import CUDA, HIP, INVALID_VALUE, SETTINGS, Fake, library, missing, on_fake, on_hip, run
from made_hsaco import binary, described, hsaco, pointers
from test_cuda_driver import floats

import lamina
from lamina.ir.errors import ArgumentError, DeviceError, OutOfMemoryError
from lamina.runtime.cuda import driver, hip
from lamina.runtime.cuda.driver import Driver
from lamina.runtime.cuda.machine import machine

needs_fake = pytest.mark.skipif(bool(missing()), reason=missing())


# ---- opening
@on_fake(library=HIP, devices=2, capacity=1 << 20)
def test_device_describes_itself(fake: Fake):
    opened = Driver.open()
    assert (opened.version, opened.count, opened.vendor.interface) == ((6, 3), 2, "HIP")
    device = opened.device(1)
    assert (device.name, device.capability, device.target) == ("Fake device 1", (9, 4), "gfx942")
    assert (device.warp, device.shared_limit, device.multiprocessors) == (64, 64 << 10, 4)
    assert device.total_memory == 1 << 20 and repr(device) == "<cuda:1 Fake device 1, gfx942>"
    assert "cuda.bindings.driver" not in sys.modules  # nothing of NVIDIA's is needed
    assert machine(1).target == "gfx942"


@pytest.mark.parametrize(("name", "capability", "warp"), [("gfx90a", (9, 0), 64), ("gfx1100", (11, 0), 32)])
@needs_fake
def test_other_devices_say_their_names(name, capability, warp):
    program = "from lamina.runtime.cuda.driver import Driver\nd = Driver.open().device()\n"
    program += "print(d.target, d.capability, d.warp)"
    assert run(["-c", program], library=HIP, architecture=name).stdout == f"{name} {capability} {warp}\n"


def opening(**settings) -> str:
    """What opening the driver says there."""
    program = "from lamina.runtime.cuda.driver import Driver\ntry:\n    print(Driver.open().version)\n"
    program += "except RuntimeError as error:\n    print(type(error).__name__, error)\n"
    done = run(["-c", program], library=HIP, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_fake
def test_old_drivers_and_missing_devices_are_explained():
    assert opening(version=50_731_921) == (
        "DeviceError the HIP driver is for HIP 6.0 or newer\n  found: HIP 5.7\n  update ROCm\n"
    )
    assert opening(version=70_125_424) == "(7, 1)\n"
    said = opening(devices=0, HIP_VISIBLE_DEVICES="7")
    assert "the HIP driver finds a GPU\n  hipErrorNoDevice: no ROCm-capable device" in said
    assert "HIP_VISIBLE_DEVICES is '7'" in said


def test_a_library_without_all_functions_is_refused():
    with pytest.raises(DeviceError, match=r"HIP's library has all functions.*\n.*hipInit.*\n  update ROCm"):
        hip.Hip(ctypes.CDLL(None))


@needs_fake
def test_nvidias_devices_come_first_and_amds_where_their_driver_cannot_be_begun():
    program = "from lamina.runtime.cuda.driver import Driver\nprint(Driver.open().vendor.interface)"
    for before, expected in (("", "CUDA"), ("import sys\nsys.modules['cuda'] = None\n", "HIP")):
        folders = f"{library(CUDA)}:{library(HIP)}"
        done = run(["-c", before + program], LD_LIBRARY_PATH=folders)
        assert done.stdout == f"{expected}\n", done.stderr


# ---- what is HIP's own
@on_fake(library=HIP)
def test_values_arrive_where_the_code_object_says(fake: Fake):
    device, seen = Driver.open().device(), []
    fake.on_launch(lambda each: seen.append((each.name, each.grid, each.block, each.shared, each.parameters)))
    layout = ((0, 8), (8, 4), (16, 8), (24, 2), (32, 8), (40, 8))
    code = hsaco([described("other", pointers(1)), described("k", layout)])
    function = device.load(binary("k", code=code), ("*fp32", "i32", "i64", "fp16"))
    stream, a = device.stream(), device.allocate(64)
    stream.launch(function, (5, 2, 3), a, -7, 1 << 40, 1.5)
    stream.synchronize()
    expected = a.to_bytes(8, "little") + (-7).to_bytes(4, "little", signed=True) + bytes(4)
    expected += (1 << 40).to_bytes(8, "little") + np.float16(1.5).tobytes() + bytes(6) + bytes(16)
    assert seen == [("k", (5, 2, 3), (256, 1, 1), 0, expected)]


@on_fake(library=HIP)
def test_a_block_has_all_its_memory_without_asking(fake: Fake):
    device, seen = Driver.open().device(), []
    fake.on_launch(lambda each: seen.append(each.shared))
    stream = device.stream()
    stream.launch(device.load(binary("k", 0, shared=64 << 10)), 1)
    stream.synchronize()
    assert seen == [64 << 10] and not fake.calls("cuFuncSetAttribute")
    with pytest.raises(DeviceError, match="k needs 65537 bytes of shared memory"):
        device.load(binary("k", 0, shared=65537))
    fixed = hsaco([described("k", pointers(0), group_segment_fixed_size=65000)])
    with pytest.raises(DeviceError, match="k needs 66000 bytes of shared memory"):
        device.load(binary("k", 0, shared=1000, code=fixed))


@on_fake(library=HIP)
def test_code_for_others_is_refused(fake: Fake):
    device = Driver.open().device()
    for target in ("gfx90a", "gfx1100", "gfx950"):
        with pytest.raises(DeviceError, match=f"kernel is compiled for {target}, and cuda:0 is gfx942"):
            device.load(binary(target=target))
    from made_cubin import cubin, table

    with pytest.raises(DeviceError, match="a code object is a 64-bit ELF file for AMD's GPUs"):
        device.load(binary(code=cubin({"kernel": table(pointers(2))})))
    narrow = hsaco([described("kernel", pointers(2), wavefront_size=32)])
    with pytest.raises(DeviceError, match="blocks of 256 threads, 32 together, .* 256, 64 together"):
        device.load(binary(code=narrow))
    with pytest.raises(DeviceError, match="blocks of 256 threads, 64 together, .* 512, 64 together"):
        device.load(binary(num_warps=8))
    with pytest.raises(DeviceError, match="parameters lie where a launch puts them"):
        device.load(binary(), ("*fp32", "i32"))
    other = binary(target="gfx90a")
    with pytest.raises(DeviceError, match="hipErrorNoBinaryForGpu"):  # as the driver itself says it
        device._done("load it", driver._api.cuModuleLoadData(other.code))
    assert device.allocate(8)


@on_fake(library=HIP)
def test_no_launch_has_as_many_threads_as_32_bits_count(fake: Fake):
    device = Driver.open().device()
    stream, function = device.stream(), device.load(binary("k", 0))
    with pytest.raises(DeviceError) as caught:
        stream.launch(function, 1 << 24, about="add at train.py:9")
    assert str(caught.value).splitlines() == [
        "cuda:0 could not launch k: hipErrorInvalidConfiguration: invalid configuration argument",
        "  for: add at train.py:9",
        "  grid 16777216 x 1 x 1, 256 threads, 0 bytes of shared memory",
    ]
    stream.launch(function, (1 << 24) - 1)
    stream.synchronize()


@on_fake(library=HIP)
def test_a_stream_that_dies_finishes_its_work(fake: Fake):
    device = Driver.open().device()
    stream, a, ran = device.stream(), device.allocate(8), []
    fake.on_launch(lambda each: ran.append(each.name))
    stream.launch(device.load(binary("k", 1)), 1, a)
    del stream
    assert ran == ["k"] and fake.live()["streams"] == 0


@on_fake(library=HIP, devices=2)
def test_threads_are_on_the_device_that_they_use(fake: Fake):
    first, second = Driver.open().device(0), Driver.open().device(1)
    b = second.allocate(8)
    a = first.allocate(8)
    with pytest.raises(DeviceError, match="illegal memory access"):  # the other device's memory
        stream = second.stream()
        stream.fill(a, 0, 8)
        stream.synchronize()
    assert b != a


@on_fake(library=HIP)
def test_the_code_of_a_kernel_is_kept_as_long_as_it_is_loaded(fake: Fake):
    """HIP does not say that a load copies it."""
    device = Driver.open().device()
    images = driver._api._images
    function = device.load(binary("k", 0))
    assert len(images) == 1 and next(iter(images.values()))[:4] == b"\x7fELF"
    del function
    device.synchronize()
    assert not images and fake.live()["modules"] == 0


@on_fake(library=HIP, capacity=1 << 20)
def test_errors_say_hips_names(fake: Fake):
    device = Driver.open().device()
    stream, function, a = device.stream(), device.load(binary("k", 1)), device.allocate(16)
    event = stream.record()
    acts = {
        "cuMemAlloc": lambda: device.allocate(8),
        "cuMemFree": lambda: device.release(a),
        "cuMemGetInfo": device.memory,
        "cuMemHostAlloc": lambda: device.host_allocate(8),
        "cuStreamCreate": device.stream,
        "cuModuleLoadData": lambda: device.load(binary()),
        "cuModuleGetFunction": lambda: device.load(binary()),
        "cuCtxSynchronize": device.synchronize,
        "cuMemcpyHtoDAsync": lambda: stream.copy_in(a, floats(2)),
        "cuMemcpyDtoHAsync": lambda: stream.copy_out(floats(2), a),
        "cuMemcpyDtoDAsync": lambda: stream.copy(a, a, 1),
        "cuMemsetD8Async": lambda: stream.fill(a, 0, 1),
        "cuMemsetD16Async": lambda: stream.fill_words(a, bytes(2), 1),
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
        with pytest.raises(DeviceError, match="hipErrorInvalid(Value|DevicePointer): invalid"):
            act()
    with pytest.raises(OutOfMemoryError, match=r"cuda:0 has no 2.0 MiB left\n  free: "):
        device.allocate(2 << 20)
    stream.launch(function, 1, device.allocate(8) + 8192)
    with pytest.raises(DeviceError, match="cuda:0 failed: hipErrorIllegalAddress"):
        stream.synchronize()
    with pytest.raises(DeviceError, match="it was lost before"):
        device.allocate(8)
    with pytest.raises(DeviceError, match="cuda:0 was lost"):
        device.check()


# ---- what PyTorch's build for ROCm says
@on_fake(library=HIP, devices=2)
def test_the_face_says_what_pytorchs_build_for_rocm_does(fake: Fake):
    assert re.fullmatch(r"\d+\.\d+(\.\d+)*", lamina.version.hip) and lamina.version.cuda is None
    assert not fake.calls("cuInit")  # to ask for the version begins nothing
    assert lamina.cuda.is_available() and lamina.cuda.device_count() == 2
    x = lamina.ones(2, device="cuda")
    assert str(x.device) == "cuda:0" and x.is_cuda and lamina.accelerator.current_accelerator().type == "cuda"
    about = lamina.cuda.get_device_properties(1)
    assert (about.gcnArchName, about.warp_size) == ("gfx942:sramecc+:xnack-", 64)
    assert lamina.cuda.get_device_capability() == (about.major, about.minor) == (9, 4)
    assert lamina.cuda.get_device_name() == "Fake device 0" and lamina.cuda.is_bf16_supported()
    free, total = lamina.cuda.mem_get_info()
    assert 0 < free <= total


@on_fake(devices=1)
def test_the_face_says_what_pytorchs_build_for_cuda_does(fake: Fake):
    assert lamina.version.hip is None and not fake.calls("cuInit")
    about = lamina.cuda.get_device_properties()
    assert about.gcnArchName == about.name == "Fake device 0" and about.warp_size == 32


# ---- CUDA's tests again
@on_fake(library=HIP)
def test_capsules_say_whose_memory_they_carry(fake: Fake):
    x = lamina.tensor([1.0, 2.0], device="cuda")
    assert x.__dlpack_device__() == (10, 0) and "dltensor" in repr(x.__dlpack__(stream=0))
    y = lamina.from_dlpack(x)
    assert y.data_ptr() == x.data_ptr() and y.tolist() == [1.0, 2.0]
    assert lamina.as_tensor(Described(x), device="cuda").data_ptr() == x.data_ptr()
    with pytest.raises(ArgumentError, match="takes None, -1, 0 or the number of a stream, not 1"):
        x.__dlpack__(stream=1)


class Described:
    """An array of another library's."""

    def __init__(self, x):
        self.__cuda_array_interface__ = x.__cuda_array_interface__


DRIVER = (
    "test_fresh_memory_is_poisoned", "test_copies_and_fills", "test_nothing_runs_until_something_waits",
    "test_copies_refuse_what_is_not_dense_or_not_writable", "test_questions_come_to_an_end",
    "test_a_copy_reads_and_fills_the_hosts_memory_when_the_stream_comes_to_it",
    "test_the_arrays_of_a_copy_live_until_the_stream_was_waited_for",
    "test_a_wait_lets_go_of_nothing_that_came_later", "test_time_between_events", "test_launch",
    "test_a_wait_orders_two_streams_and_a_missing_one_is_seen", "test_memory_comes_and_goes",
    "test_a_wait_is_for_what_was_recorded_before_it", "test_layout_of_the_cubin_is_checked",
    "test_a_kernel_may_die_before_its_launch_runs", "test_threads_launch_at_once",
    "test_a_kernel_of_another_stream_may_die_before_its_launch_runs",
    "test_what_dies_on_another_device_leaves_this_one_current",
    "test_what_dies_on_a_thread_of_its_own_is_closed", "test_ordered_programs_end_alike_under_every_order",
    "test_a_forked_child_gets_an_error_and_the_parent_goes_on",
    "test_a_child_may_begin_cuda_if_its_parent_did_not", "test_out_of_memory_says_what_is_held",
)  # fmt: skip
AGAIN = [(test_cuda_driver.__name__, name) for name in DRIVER]
# Tensors, traced programs and graphs of launches: what they compute, in which order, with how many calls.
TENSORS = [room.__name__ for room in (test_device_streams, test_device_tensors, test_device_traces)]
AGAIN += [key for key in SETTINGS if key[0] in TENSORS]
AGAIN += [(test_cuda_graphs.__name__, "test_graphs_follow_what_moves")]


@needs_fake
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("module", "name"), AGAIN)  # some a day, as all that has many cases
def test_what_says_nothing_of_either_driver_holds_of_amds(module, name):
    on_hip(module, name)
