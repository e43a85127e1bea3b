"""Run kernels as Triton compiles them, on this machine's NVIDIA GPU; or only compile them, for another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from kernel_memory import GUARD, with_guards

from lamina.ir.kernel import Kernel
from lamina.passes.schedules.steps import Schedule
from lamina.passes.triton.code import Code
from lamina.passes.triton.generate import written
from lamina.passes.triton.opening import Open
from lamina.passes.triton.target import Target
from lamina.runtime.cuda.arrays import DeviceArray, uploaded
from lamina.runtime.cuda.machine import machine
from lamina.runtime.triton_compiler import Compiler, compiled

HELPERS = 16


def prepare(codes: Iterable[Code], target: str | None = None) -> int:
    """Put machine code into the cache, where a launch finds it.  Returns of how many codes it is.

    target: by default this machine's.
    """
    codes = dict.fromkeys(codes)
    with Compiler(Target.named(target or machine().target), helpers=HELPERS) as compiler:
        for code in codes:
            compiler.add(code)
        compiler.binaries()
    return len(codes)


def launch(
    kernel: Kernel, schedule: Schedule, arrays: dict[str, np.ndarray], opens: Open = Open.NOTHING
) -> None:
    """Run a kernel on the memory of its buffers, which goes there and back with the guards around it."""
    code = written(kernel, schedule, opens=opens)
    launch_code(code, [arrays[buffer.name] for buffer in kernel.buffers.values()])


def launch_code(code: Code, arrays: Sequence[np.ndarray]) -> None:
    """Run a code on arrays, which go there and back with the guards around them."""
    device = machine()
    device.use()
    (function,) = device.functions([code], compiled([code], Target.named(device.target)))
    raws = {id(raw): raw for raw in map(with_guards, arrays)}
    places: dict[int, DeviceArray] = {
        key: uploaded(device, raw.reshape(-1).view(np.uint8), "u8") for key, raw in raws.items()
    }

    def address(array: np.ndarray) -> int:
        raw = with_guards(array)
        return places[id(raw)].address + (GUARD if raw is not array else 0)

    spare = [DeviceArray(device, "u8", (nbytes,)) for nbytes in function.scratch(code.grid)]
    addresses = [address(array) for array in arrays]
    scratch, profile = (each.address for each in spare)
    device.stream.launch(
        function, code.grid, *addresses, *code.numbers, about=code.name, scratch=scratch, profile=profile
    )
    for key, raw in raws.items():
        if raw.flags.writeable:
            places[key].copy_to(raw.reshape(-1).view(np.uint8))
    device.stream.synchronize()
