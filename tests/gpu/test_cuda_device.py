"""The driver's objects and compiled kernels on a real GPU; skipped where there is none."""

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina import jit
from lamina.ir.errors import DeviceError, OutOfMemoryError
from lamina.ir.kernel import NUMPY
from lamina.ir.kernel.form import identity
from lamina.passes.triton.generate import generate
from lamina.passes.triton.target import Target
from lamina.runtime.cuda.driver import Device, Driver

sys.path.insert(0, str(Path(__file__).parent.parent / "kernel"))
from probes import PROBES

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module")
def device() -> Device:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed: the extra gpu has it")
    try:
        return Driver.open().device()
    except DeviceError as error:
        pytest.skip(str(error).replace("\n", ";"))


def test_copies_and_fills(device):
    stream, values = device.stream(), np.arange(100_000, dtype=np.float32)
    a, b = device.allocate(values.nbytes), device.allocate(values.nbytes)
    stream.copy_in(a, values)
    stream.copy(b, a, values.nbytes)
    stream.fill(b, 0, 400)
    stream.fill_words(b, np.float32(-np.inf).tobytes(), 10)
    values[:100], values[:10] = 0, -np.inf
    found = np.empty_like(values)
    stream.copy_out(found, b)
    stream.synchronize()
    assert found.tobytes() == values.tobytes()
    device.release(a)
    device.release(b)


def test_streams_wait_for_each_other(device):
    one, two, size = device.stream(), device.stream(), 64 << 20
    a, b = device.allocate(size), device.allocate(size)
    pinned = device.host_allocate(size)
    found = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pinned))
    for byte in range(1, 20):
        one.fill(a, byte, size)
        two.wait(one.record())
        two.copy(b, a, size)
        one.wait(two.record())
    two.copy_out(found, b)
    two.synchronize()
    assert (found == 19).all() and two.done()
    begin = one.record(timing=True)
    one.fill(a, 0, size)
    assert one.record(timing=True).since(begin) > 0
    one.synchronize()
    for address in (a, b):
        device.release(address)
    device.host_release(pinned)


def test_too_much_memory_is_refused_and_the_device_goes_on(device):
    with pytest.raises(OutOfMemoryError, match="free: .* of "):
        device.allocate(2 * device.total_memory)
    device.release(device.allocate(1 << 20))


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "bool"]
)
def test_parts_of_arrays_are_read_where_they_begin(device, dtype):
    """A wide access at an address that is no multiple of it would lose the device."""
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    x = lamina.randint(0, 2 if dtype == "bool" else 9, (1025, 3)).to(getattr(lamina, dtype))
    for first in (1, 2, 16):
        f = jit.trace(lambda x, first=first: x[first:] * x[0], target="cuda")
        wanted = f(x).tolist()  # recorded: eager
        assert f(x).tolist() == wanted and f.counts()["served"] == 1


@pytest.mark.parametrize("name", PROBES)
def test_probe(device, name):
    """Compiled, loaded and run: the results are the interpreter's, as test_kernel_llvm.py bounds them."""
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    from lamina.runtime.triton_compiler import compiled

    kernel, arrays = PROBES[name].kernel, PROBES[name].arrays()
    code = generate(kernel)
    (binary,) = compiled([code], Target.named(device.target))
    outputs = []
    for buffer in kernel.outputs:
        combine = next((s.combine for s in kernel.stores if s.buffer == buffer.name and s.combine), None)
        begin = identity(combine, buffer.dtype) if combine else 0
        outputs.append(np.full(buffer.shape, begin, NUMPY[buffer.dtype]))
    stream, places = device.stream(), []
    for array in (*arrays, *outputs):
        places.append(device.allocate(max(array.nbytes, 1)))
        stream.copy_in(places[-1], np.ascontiguousarray(array))
    stream.launch(device.load(binary, code.parameters), code.grid, *places, about=name)
    bound = 2.0**-8 if name == "halves" else 2e-6
    for output, place, wanted in zip(outputs, places[len(arrays) :], PROBES[name].wanted(), strict=True):
        stream.copy_out(output, place)
        stream.synchronize()
        wanted = np.asarray(wanted, np.float64)
        scale = max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
        np.testing.assert_allclose(output.astype(np.float64), wanted, rtol=0, atol=bound * scale)
    for place in places:
        device.release(place)
