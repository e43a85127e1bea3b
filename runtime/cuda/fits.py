"""What a device and its driver must be for a kernel to run there, told before the driver is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.errors import DeviceError
from . import cubin

if TYPE_CHECKING:
    from ...passes.triton.binary import Binary
    from .driver import Device
    from .hsaco import Kernel

# The oldest that has cuEventElapsedTime as cuda-bindings 13 looks for it, and that loads what the assembler
# of Triton 3.6 makes.
OLDEST = (12, 8)
# By the CUDA whose assembler made a kernel, the oldest of NVIDIA's drivers that loads it; within a major
# version older drivers load what newer assemblers make.  Source: NVIDIA's CUDA Compatibility, "Minor Version
# Compatibility", table 1 (2026-11).
DRIVERS = {12: "R525", 13: "R580"}


def check_device(binary: Binary, device: Device) -> None:
    """Raise DeviceError for code of another kind of GPU.

    Code for 8.0 runs on 8.6 as well.  From 9.0 on Triton uses what one architecture alone has.
    """
    name, number = binary.name, binary.target.removeprefix("sm_").rstrip("a")
    major, minor = divmod(int(number), 10) if number.isdigit() else (0, 0)
    exact = major >= 9
    if (
        major != device.capability[0]
        or minor > device.capability[1]
        or (exact and minor != device.capability[1])
    ):
        raise DeviceError(
            f"{name} is compiled for {binary.target}, and cuda:{device.ordinal} is {device.target}"
        )


def check_shared(binary: Binary, device: Device, fixed: int = 0) -> None:
    """Raise DeviceError for code that wants more shared memory than there is.  fixed: what it has anyway."""
    if binary.shared + fixed > device.shared_limit:
        raise DeviceError(
            f"{binary.name} needs {binary.shared + fixed} bytes of shared memory for a block, "
            f"and cuda:{device.ordinal} has {device.shared_limit}",
            "smaller tiles or fewer stages need less",
        )


def check_code_object(kernel: Kernel, binary: Binary, device: Device) -> None:
    """Raise DeviceError for code of another of AMD's GPUs, or for other blocks than it is launched in."""
    if not kernel.target == binary.target == device.target:
        raise DeviceError(
            f"{binary.name} is compiled for {kernel.target}, and cuda:{device.ordinal} is {device.target}"
        )
    threads = device.warp * binary.num_warps
    if kernel.lanes != device.warp or threads > kernel.threads:
        raise DeviceError(
            f"{binary.name} is compiled for blocks of {kernel.threads} threads, {kernel.lanes} together, "
            f"and is launched in blocks of {threads}, {device.warp} together"
        )


def check_driver(binary: Binary, version: tuple[int, int]) -> None:
    """Raise DeviceError where the assembler is of a later CUDA than the driver, minor versions aside."""
    assembler = cubin.toolkit(binary.code)
    if assembler is None or assembler[0] <= version[0]:
        return
    newer = DRIVERS.get(assembler[0], f"one for CUDA {assembler[0]}")
    triton = "pip install 'triton==3.6.*'" if version[0] == 12 else "an older Triton"
    raise DeviceError(
        f"{binary.name} was assembled for {binary.target} by CUDA {assembler[0]}.{assembler[1]}, "
        f"and the driver is for CUDA {version[0]}.{version[1]}",
        f"such code needs a driver for CUDA {assembler[0]}.0 or newer",
        f"update NVIDIA's driver to {newer} or newer, or use a Triton with an older assembler: {triton}",
    )
