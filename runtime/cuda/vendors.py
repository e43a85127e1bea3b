"""The makers of GPUs that tensors are computed on, and what differs between them beside names of functions.

AMD's devices are "cuda" too, as PyTorch has it; where both makers' are there, NVIDIA's are taken.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Protocol

from ...ir.errors import DeviceError
from ...ir.lazy import load
from . import cubin
from .fits import OLDEST, check_code_object, check_device, check_driver, check_shared
from .launch import Layout

if TYPE_CHECKING:
    from ...passes.triton.binary import Binary
    from .driver import Device

# The errors that lose a device: from then on every call of the process fails there, with the same code.
# Source: the documentation of CUresult in cuda.h of CUDA 13.  Of each it says that "any further CUDA work
# will return the same error", that the process "must be terminated and relaunched", or that the context can't
# be used anymore; of the last three only that what can't be corrected happened, or that the context is gone.
STICKY = frozenset(
    {
        "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_CONTAINED",
        "CUDA_ERROR_EXTERNAL_DEVICE",
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_LAUNCH_TIMEOUT",
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    }
)
# HIP's documentation says nothing of the kind: its names of some of the above.
HIP_STICKY = frozenset(
    {
        "hipErrorAssert",
        "hipErrorContextIsDestroyed",
        "hipErrorECCNotCorrectable",
        "hipErrorIllegalAddress",
        "hipErrorLaunchFailure",
        "hipErrorLaunchTimeOut",
    }
)


class Vendor(Protocol):
    """interface: what its driver is for.  driver: of whom that is.  oldest: version that is spoken to.

    visible: the environment variables that hide devices.  unasked: bytes of shared memory that every kernel
    may have; None where that is all there is.  sticky: the errors that lose a device.
    """

    interface: str
    driver: str
    oldest: tuple[int, int]
    visible: tuple[str, ...]
    unasked: int | None
    sticky: frozenset[str]

    def is_here(self) -> bool:
        """Whether its driver is installed."""

    def table(self) -> Any:
        """The driver's functions, by their names in CUDA.  Raises MissingLibraryError, DeviceError."""

    def version(self, number: int) -> tuple[int, int]:
        """What the driver says that it is for, as (13, 0)."""

    def architecture(self, api: Any, handle: Any, name: str) -> tuple[Any, str]:
        """An error, and what a device is called after its architecture; its name, where it is not."""

    def target(self, architecture: str, capability: tuple[int, int]) -> str:
        """What kernels are compiled for on a device, as "sm_90"."""

    def layout(self, binary: Binary, device: Device) -> Layout:
        """Where a kernel has its parameters.  Raises DeviceError for one that can't run on the device."""


class Nvidia:
    """CUDA's driver, by way of cuda-bindings."""

    interface, driver, oldest = "CUDA", "NVIDIA's driver", OLDEST
    visible: tuple[str, ...] = ("CUDA_VISIBLE_DEVICES",)
    unasked: int | None = 48 << 10
    sticky = STICKY

    def is_here(self) -> bool:
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
        return True

    def table(self) -> Any:
        return load("cuda.bindings.driver", "gpu")

    def version(self, number: int) -> tuple[int, int]:
        return number // 1000, number % 1000 // 10

    def architecture(self, api: Any, handle: Any, name: str) -> tuple[Any, str]:
        return 0, name

    def target(self, architecture: str, capability: tuple[int, int]) -> str:
        return "sm_{}{}".format(*capability)

    def layout(self, binary: Binary, device: Device) -> Layout:
        check_device(binary, device)
        check_shared(binary, device)
        check_driver(binary, device.driver.version)
        return cubin.parameters(binary.code, binary.name)


class Amd:
    """HIP, by its own library: `hip.py`, which no other program loads."""

    interface, driver = "HIP", "ROCm"
    oldest = (6, 0)  # the first with the properties of devices that hip.py reads
    visible: tuple[str, ...] = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    unasked: int | None = None
    sticky = HIP_STICKY

    def is_here(self) -> bool:
        return _of_amd("hip").library() is not None

    def table(self) -> Any:
        hip = _of_amd("hip")
        library = hip.library()
        if library is None:
            raise DeviceError("AMD's GPUs need ROCm, whose library libamdhip64.so is not found")
        return hip.Hip(library)

    def version(self, number: int) -> tuple[int, int]:
        return number // 10_000_000, number % 10_000_000 // 100_000

    def architecture(self, api: Any, handle: Any, name: str) -> tuple[Any, str]:
        error, found = api.architecture(handle)
        return error, found.decode()

    def target(self, architecture: str, capability: tuple[int, int]) -> str:
        return architecture.split(":")[0]  # behind it: what memory has switched on

    def layout(self, binary: Binary, device: Device) -> Layout:
        kernel = _of_amd("hsaco").kernel(binary.code, binary.name)
        check_code_object(kernel, binary, device)
        check_shared(binary, device, kernel.group)
        return kernel.arguments


def _of_amd(name: str) -> Any:
    return load(f"{__package__}.{name}")


VENDORS: tuple[Vendor, ...] = (Nvidia(), Amd())


def are_here() -> bool:
    """Whether any maker's driver is installed."""
    return any(vendor.is_here() for vendor in VENDORS)


def hip_version() -> str | None:
    """The version of HIP, where its driver alone is installed.  Nothing is begun: processes may fork."""
    nvidia, amd = VENDORS
    if nvidia.is_here() or not amd.is_here():
        return None
    return _of_amd("hip").installed() or ".".join(map(str, amd.oldest))
