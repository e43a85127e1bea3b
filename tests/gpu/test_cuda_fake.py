"""The fake driver sees misuse: what Lamina never does is done here through cuda-bindings itself."""

import ctypes
import os
import signal
import sys
import threading

import numpy as np
import pytest
from fake_cuda import Fake, on_fake
from made_cubin import binary, cubin, pointers, table

from lamina.ir.errors import DeviceError
from lamina.runtime.cuda.driver import Driver, Function, Stream


def api():
    from cuda.bindings import driver

    return driver


def launched(stream: Stream, function: Function, shared: int = 0, grid: int = 1, address: int = 0) -> str:
    """The name of what a launch returns."""
    pointers = function.packer.pack((address,))
    (error,) = api().cuLaunchKernel(function.handle, grid, 1, 1, 32, 1, 1, shared, stream.handle, pointers, 0)
    return error.name


@on_fake()
def test_freed_memory_is_poisoned(fake: Fake):
    device = Driver.open().device()
    for take, give in ((device.allocate, device.release), (device.host_allocate, device.host_release)):
        address = take(64)
        assert ctypes.string_at(address, 64) == b"\xff" * 64
        if take == device.allocate:  # pinned memory goes back to the C library, which writes to it
            give(address)
            assert ctypes.string_at(address, 64) == b"\xfb" * 64


@on_fake(capacity=4096)
def test_freed_addresses_come_again_only_late(fake: Fake):
    device, seen = Driver.open().device(), []
    for _ in range(10):
        seen.append(device.allocate(2048))
        device.release(seen[-1])
    assert len(set(seen)) == 10
    for _ in range(1000):  # though there is room for 4096 bytes at a time alone
        device.release(device.allocate(2048))


@on_fake()
def test_work_on_freed_memory_is_an_illegal_address(fake: Fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(64)
    stream.fill(address, 0, 64)
    device.release(address)
    assert api().cuStreamSynchronize(stream.handle)[0].name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert api().cuMemAlloc(8)[0].name == "CUDA_ERROR_ILLEGAL_ADDRESS"


@on_fake()
def test_a_thread_without_a_context_is_refused(fake: Fake):
    Driver.open().device().use()
    found = []
    thread = threading.Thread(target=lambda: found.append(api().cuMemAlloc(8)[0].name))
    thread.start()
    thread.join()
    assert found == ["CUDA_ERROR_INVALID_CONTEXT"] and api().cuMemAlloc(8)[0].name == "CUDA_SUCCESS"


@on_fake()
def test_nothing_works_before_cuinit(fake: Fake):
    assert api().cuDeviceGetCount()[0].name == "CUDA_ERROR_NOT_INITIALIZED"
    assert api().cuMemAlloc(8)[0].name == "CUDA_ERROR_NOT_INITIALIZED"


@on_fake()
def test_the_default_stream_and_waiting_ones_are_refused(fake: Fake):
    device = Driver.open().device()
    address = device.allocate(8)
    assert api().cuMemsetD8Async(address, 0, 8, 0)[0].name == "CUDA_ERROR_INVALID_HANDLE"
    assert api().cuStreamCreate(0)[0].name == "CUDA_ERROR_INVALID_VALUE"


@on_fake()
def test_destroyed_handles_are_refused(fake: Fake):
    device = Driver.open().device()
    stream = device.stream()
    _, event = api().cuEventCreate(0)
    _, other = api().cuStreamCreate(1)
    for destroy, handle in ((api().cuEventDestroy, event), (api().cuStreamDestroy, other)):
        assert not destroy(handle)[0]
        assert destroy(handle)[0].name == "CUDA_ERROR_INVALID_HANDLE"
    assert api().cuEventRecord(event, stream.handle)[0].name == "CUDA_ERROR_INVALID_HANDLE"
    assert api().cuStreamSynchronize(other)[0].name == "CUDA_ERROR_INVALID_HANDLE"


@on_fake()
def test_a_destroyed_stream_finishes_its_work(fake: Fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(8)
    _, other = api().cuStreamCreate(1)
    api().cuMemsetD8Async(address, 7, 8, other)
    _, event = api().cuEventCreate(2)
    api().cuEventRecord(event, other)
    api().cuStreamWaitEvent(stream.handle, event, 0)
    api().cuStreamDestroy(other)
    api().cuEventDestroy(event)
    found = np.zeros(8, np.uint8)
    stream.copy_out(found, address)
    stream.synchronize()
    assert (found == 7).all()


@on_fake()
def test_pageable_memory_that_is_freed_under_a_copy_is_seen(fake: Fake):
    device, array = Driver.open().device(), np.zeros(100_000, np.uint8)
    stream, address = device.stream(), device.allocate(100_000)
    stream.copy_in(address, array)
    stream.kept.let_go(stream.kept.numbers())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the fake says of it
    del array
    assert api().cuStreamSynchronize(stream.handle)[0].name == "CUDA_ERROR_ILLEGAL_ADDRESS"


@on_fake(devices=2)
def test_what_is_of_two_contexts_does_not_meet(fake: Fake):
    first, second = Driver.open().device(0), Driver.open().device(1)
    stream, other = first.stream(), second.stream()
    _, event = api().cuEventCreate(2)  # in the second's context, which is current
    assert api().cuEventRecord(event, stream.handle)[0].name == "CUDA_ERROR_INVALID_HANDLE"
    assert api().cuEventRecord(event, other.handle)[0].name == "CUDA_SUCCESS"
    assert launched(stream, second.load(binary("k", 1))) == "CUDA_ERROR_INVALID_HANDLE"
    api().cuMemsetD8Async(second.allocate(8), 0, 8, stream.handle)
    assert api().cuStreamSynchronize(stream.handle)[0].name == "CUDA_ERROR_ILLEGAL_ADDRESS"


@on_fake()
def test_what_may_wait_or_allocate_is_refused_while_a_stream_is_captured(fake: Fake):
    device = Driver.open().device()
    stream, other, function = device.stream(), device.stream(), device.load(binary("k", 1))
    address, event, pinned = device.allocate(8), stream.record(), device.host_allocate(8)
    _, module = api().cuModuleLoadData(binary("unloaded", 1).code)
    _, unloaded = api().cuModuleGetFunction(module, b"unloaded")
    device.synchronize()
    code, array, cu = binary("late", 1).code, np.zeros(8, np.uint8), api()
    unsafe = {
        "allocating": lambda: cu.cuMemAlloc(8),
        "freeing": lambda: cu.cuMemFree(address),
        "locking": lambda: cu.cuMemHostAlloc(8, 0),
        "unlocking": lambda: cu.cuMemFreeHost(pinned),
        "loading": lambda: cu.cuModuleLoadData(code),
        "loading lazily": lambda: cu.cuLaunchKernel(unloaded, 1, 1, 1, 32, 1, 1, 0, other.handle, 0, 0),
        "unloading": lambda: cu.cuModuleUnload(module),
        "waiting for the device": cu.cuCtxSynchronize,
        "waiting for another stream": lambda: cu.cuStreamSynchronize(other.handle),
        "asking for an event": lambda: cu.cuEventQuery(event._handle),
        "waiting for an event": lambda: cu.cuEventSynchronize(event._handle),
    }
    of_the_stream = {
        "waiting": lambda: cu.cuStreamSynchronize(stream.handle),
        "asking": lambda: cu.cuStreamQuery(stream.handle),
        "a pageable copy": lambda: cu.cuMemcpyHtoDAsync(address, array.ctypes.data, 8, stream.handle),
    }
    relaxed = {"allocating": lambda: cu.cuMemAlloc(8)}
    for mode, acts, said in (
        (0, unsafe | of_the_stream, "UNSUPPORTED"), (1, unsafe, "UNSUPPORTED"),
        (2, of_the_stream, "UNSUPPORTED"), (2, relaxed, ""),
    ):  # fmt: skip
        for what, act in acts.items():
            assert not cu.cuStreamBeginCapture(stream.handle, cu.CUstreamCaptureMode(mode))[0]
            assert launched(stream, function) == "CUDA_SUCCESS"
            wanted = ("CUDA_SUCCESS", "CUDA_SUCCESS")
            if said:
                wanted = ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")
            got = (act()[0].name, cu.cuStreamEndCapture(stream.handle)[0].name)
            assert got == wanted, (mode, what, got)
    assert fake.pending() == 0


@on_fake()
def test_a_lazy_load_waits_for_the_device(fake: Fake):
    device = Driver.open().device()
    stream, address = device.stream(), device.allocate(8)
    _, module = api().cuModuleLoadData(binary("k", 1).code)
    lazy = device.load(binary("k", 1))
    _, lazy.handle = api().cuModuleGetFunction(module, b"k")
    stream.fill(address, 0, 8)
    assert launched(stream, lazy) == "CUDA_SUCCESS" and fake.pending() == 1
    assert launched(stream, lazy) == "CUDA_SUCCESS" and fake.pending() == 2


@on_fake()
def test_launches_are_held_to_the_limits(fake: Fake):
    device = Driver.open().device()
    stream, function = device.stream(), device.load(binary("k", 1))
    large = device.load(binary("large", 1, shared=200_000))
    assert launched(stream, function, shared=48 << 10) == "CUDA_SUCCESS"
    assert launched(stream, function, shared=(48 << 10) + 1) == "CUDA_ERROR_INVALID_VALUE"
    assert launched(stream, large, shared=232_448) == "CUDA_SUCCESS"
    assert launched(stream, large, shared=232_449) == "CUDA_ERROR_INVALID_VALUE"
    assert launched(stream, function, grid=0) == "CUDA_ERROR_INVALID_VALUE"


@on_fake()
def test_a_cubin_says_its_block_and_its_architecture(fake: Fake):
    """What Triton's say: a launch in another block is refused, and so is code for another GPU."""
    device = Driver.open().device()
    for threads, wanted in ((32, "CUDA_SUCCESS"), (64, "CUDA_ERROR_INVALID_VALUE")):
        code = cubin({"k": table(pointers(1), threads)})
        assert launched(device.stream(), device.load(binary("k", 1, code=code))) == wanted
    for architecture in (80, 89, 91, 100):
        code = cubin({"k": table(pointers(1))}, architecture=architecture)
        with pytest.raises(DeviceError, match="CUDA_ERROR_NO_BINARY_FOR_GPU"):
            device.load(binary("k", 1, code=code))


@on_fake()
def test_addresses_of_a_launch_are_looked_at_when_it_runs(fake: Fake):
    device = Driver.open().device()
    stream, function, address = device.stream(), device.load(binary("k", 1)), device.allocate(8)
    assert launched(stream, function, address=address) == "CUDA_SUCCESS"
    assert launched(stream, function, address=1 << 20) == "CUDA_SUCCESS"  # a number, as far as one can tell
    stream.synchronize()
    assert launched(stream, function, address=address + 8) == "CUDA_SUCCESS"
    assert api().cuStreamSynchronize(stream.handle)[0].name == "CUDA_ERROR_ILLEGAL_ADDRESS"


@on_fake()
def test_addresses_of_a_launch_are_held_to_what_its_kernel_takes_for_granted(fake: Fake):
    device = Driver.open().device()
    stream, function, address = device.stream(), device.load(binary("k", 1)), device.allocate(64)
    fake.align("k", [16])
    assert launched(stream, function, address=address + 16) == "CUDA_SUCCESS"
    stream.synchronize()
    assert launched(stream, function, address=address + 12) == "CUDA_SUCCESS"
    assert api().cuStreamSynchronize(stream.handle)[0].name == "CUDA_ERROR_MISALIGNED_ADDRESS"


@on_fake()
def test_a_module_unloaded_under_a_launch_is_seen(fake: Fake):
    device = Driver.open().device()
    stream = device.stream()
    _, module = api().cuModuleLoadData(binary("k", 1).code)
    _, handle = api().cuModuleGetFunction(module, b"k")
    function = device.load(binary("k", 1))
    function.handle = handle
    assert launched(stream, function) == "CUDA_SUCCESS"
    api().cuModuleUnload(module)
    assert launched(stream, function) == "CUDA_ERROR_INVALID_HANDLE"
    assert api().cuStreamSynchronize(stream.handle)[0].name == "CUDA_ERROR_LAUNCH_FAILED"


@on_fake(version=12080)
def test_images_of_newer_assemblers_are_refused(fake: Fake):
    Driver.open().device().use()
    for toolkit, said in (("", "SUCCESS"), ("12.9", "SUCCESS"), ("13.0", "ERROR_INVALID_IMAGE")):
        image = cubin({"k": table(pointers(1))}, toolkit)
        assert api().cuModuleLoadData(image)[0].name == f"CUDA_{said}"


@on_fake()
def test_a_wait_from_within_a_kernel_is_refused(fake: Fake):
    device, found = Driver.open().device(), []
    stream, function = device.stream(), device.load(binary("k", 1))
    fake.on_launch(lambda launch: found.append(api().cuCtxSynchronize()[0].name))
    launched(stream, function)
    stream.synchronize()
    assert found == ["CUDA_ERROR_NOT_PERMITTED"]


@on_fake()
def test_a_forked_child_that_calls_on_is_ended(fake: Fake):
    Driver.open().device().use()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(2)  # what the fake says of it
        api().cuMemAlloc(8)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGABRT


@on_fake()
def test_every_order_is_taken_by_some_seed(fake: Fake):
    device, orders = Driver.open().device(), set()
    streams, ran = [device.stream() for _ in range(3)], []
    functions = [device.load(binary(f"k{k}", 1)) for k in range(3)]
    fake.on_launch(lambda launch: ran.append(launch.name))
    for seed in range(200):
        fake.seed(seed)
        ran.clear()
        for stream, function in zip(streams, functions, strict=True):
            stream.launch(function, 1, 0)
        device.synchronize()
        orders.add(tuple(ran))
    assert len(orders) == 6
