"""From a kernel to its results without a GPU: compiled, loaded, launched, and its source run by the fake."""

import sys
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import Fake, case, missing, on_fake, run_case

from lamina.ir.errors import DeviceError
from lamina.ir.kernel import NUMPY
from lamina.ir.kernel.form import identity
from lamina.passes.triton.code import Code
from lamina.passes.triton.generate import generate
from lamina.passes.triton.target import Target
from lamina.runtime.cuda.driver import Device, Driver, Stream

sys.path.insert(0, str(Path(__file__).parent.parent / "kernel"))
from probes import PROBES

needs_fake = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module", autouse=True)
def _triton():
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")


def start(kernel, buffer) -> np.ndarray:
    """What an output's memory has to hold before the launch: the identity, where it accumulates."""
    combine = next((s.combine for s in kernel.stores if s.buffer == buffer.name and s.combine), None)
    return np.full(buffer.shape, identity(combine, buffer.dtype) if combine else 0, NUMPY[buffer.dtype])


def uploaded(device: Device, stream: Stream, array: np.ndarray) -> int:
    address = device.allocate(max(array.nbytes, 1))
    stream.copy_in(address, np.ascontiguousarray(array))
    return address


@on_fake(capacity=256 << 20)
def test_probes_come_out_right(fake: Fake):
    from launched_sources import Sources

    from lamina.runtime.triton_compiler import compiled

    sources, device = Sources(fake), Driver.open().device()
    stream, wanted = device.stream(), {}
    codes = {name: generate(probe.kernel) for name, probe in PROBES.items() if name != "halves"}
    binaries = compiled([*codes.values()], Target.named(device.target))
    for (name, code), binary in zip(codes.items(), binaries, strict=True):
        sources.add(code, binary)
        kernel, arrays = PROBES[name].kernel, PROBES[name].arrays()
        outputs = [start(kernel, buffer) for buffer in kernel.outputs]
        places = [uploaded(device, stream, array) for array in (*arrays, *outputs)]
        stream.launch(device.load(binary, code.parameters), code.grid, *places, about=name)
        wanted[name] = outputs, places[len(arrays) :]
    assert not sources.ran  # all of it is still queued, and the functions are dead
    stream.synchronize()
    assert len(sources.ran) == len(codes)
    for name, (outputs, places) in wanted.items():
        for output, place, expected in zip(outputs, places, PROBES[name].wanted(), strict=True):
            stream.copy_out(output, place)
            stream.synchronize()
            scale = max(1.0, np.abs(np.asarray(expected, np.float64)).max(initial=0))
            # float32 sums of at most 101 terms as in test_kernel_llvm.py
            np.testing.assert_allclose(output, expected, rtol=0, atol=2e-6 * scale, err_msg=name)


COPY = """
import triton
import triton.language as tl

@triton.jit
def move(source, target, shift, scale):
    at = tl.program_id(0) * 4 + tl.arange(0, 4)
    value = tl.load(source + at + shift)
    tl.store(target + at, value * scale)
"""
MOVE = Code("move", COPY, ("*fp32", "*fp32", "i32", "fp32"), (True, True, False, False), 4, 1, 2)


def moving(fake: Fake, shift: int) -> np.ndarray:
    """Eight floats moved by a kernel, which reads them so much further on."""
    from launched_sources import Sources
    from made_cubin import binary, cubin, table

    from lamina.runtime.cuda.launch import layout

    sources, device = Sources(fake), Driver.open().device()
    sources.add(MOVE)
    stream = device.stream()
    source = uploaded(device, stream, np.arange(8, dtype=np.float32))
    target = uploaded(device, stream, np.zeros(8, np.float32))
    code = cubin({"move": table(layout(MOVE.parameters))})
    function = device.load(binary("move", code=code), MOVE.parameters)
    stream.launch(function, MOVE.grid, source, target, shift, 0.5)
    found = np.empty(8, np.float32)
    stream.copy_out(found, target)
    stream.synchronize()
    return found


@on_fake()
def test_numbers_are_handed_on(fake: Fake):
    assert (moving(fake, 0) == np.arange(8) / 2).all()


@case
def reads_past_the_end(fake: Fake) -> None:
    with pytest.raises(DeviceError, match="CUDA_ERROR_LAUNCH_FAILED"):
        moving(fake, 1)
    (error,) = fake.raised
    assert "a kernel reads 4 bytes at" in str(error) and "one of 1 places outside" in str(error)
    fake.raised.clear()


@needs_fake
def test_a_read_past_the_end_is_seen():
    run_case(reads_past_the_end)


@needs_fake
def test_a_case_cannot_end_with_a_launch_that_raised():
    with pytest.raises(pytest.fail.Exception, match="raised by a launch"):
        run_case(forgets)


@case
def forgets(fake: Fake) -> None:
    with pytest.raises(DeviceError):
        moving(fake, 1)
