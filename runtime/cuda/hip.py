"""AMD's HIP by ctypes, under the names of CUDA's driver and with the results that cuda-bindings gives.

`driver` speaks to one table of functions.  Most of HIP's differ from CUDA's in their names alone; the rest is
here: a context is the index of a device, no kernel is loaded late, a stream that is destroyed may leave work
undone, and where a code object is loaded nobody says that it is copied.
Source: hip_runtime_api.h of HIP 7.1.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ...ir.errors import DeviceError

# How arguments are handed over, and what is written to the places whose addresses come first.
_TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p, "i": ctypes.c_int, "u": ctypes.c_uint, "z": ctypes.c_size_t, "b": ctypes.c_ubyte,
    "h": ctypes.c_ushort, "f": ctypes.c_float, "q": ctypes.c_ulonglong, "s": ctypes.c_char_p,
}  # fmt: skip
# CUDA's name: HIP's, what it writes, what it is given.
FUNCTIONS: dict[str, tuple[str, str, str]] = {
    "cuInit": ("hipInit", "", "u"),
    "cuDriverGetVersion": ("hipDriverGetVersion", "i", ""),
    "cuDeviceGetCount": ("hipGetDeviceCount", "i", ""),
    "cuDeviceGet": ("hipDeviceGet", "i", "i"),
    "cuDeviceTotalMem": ("hipDeviceTotalMem", "z", "i"),
    "cuDeviceGetAttribute": ("hipDeviceGetAttribute", "i", "ui"),
    "cuCtxGetCurrent": ("hipGetDevice", "i", ""),
    "cuCtxSetCurrent": ("hipSetDevice", "", "i"),
    "cuCtxSynchronize": ("hipDeviceSynchronize", "", ""),
    "cuMemAlloc": ("hipMalloc", "p", "z"),
    "cuMemFree": ("hipFree", "", "p"),
    "cuMemGetInfo": ("hipMemGetInfo", "zz", ""),
    "cuPointerGetAttribute": ("hipPointerGetAttribute", "i", "up"),
    "cuMemHostAlloc": ("hipHostMalloc", "p", "zu"),
    "cuMemFreeHost": ("hipHostFree", "", "p"),
    "cuMemcpyHtoDAsync": ("hipMemcpyHtoDAsync", "", "ppzp"),
    "cuMemcpyDtoHAsync": ("hipMemcpyDtoHAsync", "", "ppzp"),
    "cuMemcpyDtoDAsync": ("hipMemcpyDtoDAsync", "", "ppzp"),
    "cuMemsetD8Async": ("hipMemsetD8Async", "", "pbzp"),
    "cuMemsetD16Async": ("hipMemsetD16Async", "", "phzp"),
    "cuMemsetD32Async": ("hipMemsetD32Async", "", "pizp"),
    "cuStreamCreate": ("hipStreamCreateWithFlags", "p", "u"),
    "cuStreamSynchronize": ("hipStreamSynchronize", "", "p"),
    "cuStreamQuery": ("hipStreamQuery", "", "p"),
    "cuStreamWaitEvent": ("hipStreamWaitEvent", "", "ppu"),
    "cuEventCreate": ("hipEventCreateWithFlags", "p", "u"),
    "cuEventDestroy": ("hipEventDestroy", "", "p"),
    "cuEventRecord": ("hipEventRecord", "", "pp"),
    "cuEventQuery": ("hipEventQuery", "", "p"),
    "cuEventSynchronize": ("hipEventSynchronize", "", "p"),
    "cuEventElapsedTime": ("hipEventElapsedTime", "f", "pp"),
    "cuModuleGetFunction": ("hipModuleGetFunction", "p", "ps"),
    "cuLaunchKernel": ("hipModuleLaunchKernel", "", "puuuuuuuppp"),
    "cuStreamBeginCapture": ("hipStreamBeginCapture", "", "pu"),
    "cuGraphInstantiate": ("hipGraphInstantiateWithFlags", "p", "pq"),
    "cuGraphLaunch": ("hipGraphLaunch", "", "pp"),
    "cuGraphDestroy": ("hipGraphDestroy", "", "p"),
    "cuGraphExecDestroy": ("hipGraphExecDestroy", "", "p"),
}
# What `Hip` makes its own of.
OTHERS: dict[str, tuple[str, str]] = {
    "hipDeviceGetName": ("", "pii"),
    "hipGetDevicePropertiesR0600": ("", "pi"),
    "hipModuleLoadData": ("p", "p"),
    "hipModuleUnload": ("", "p"),
    "hipStreamDestroy": ("", "p"),
    "hipStreamEndCapture": ("", "pp"),
}
# hipDeviceProp_tR0600: its bytes, and where the name of the architecture begins among them.
PROPERTIES, ARCHITECTURE = 1472, 1160
# By CUDA's type and name: HIP's name of a constant, and what it is.
CONSTANTS: dict[str, dict[str, tuple[str, int]]] = {
    "CUstream_flags": {"CU_STREAM_NON_BLOCKING": ("hipStreamNonBlocking", 1)},
    "CUevent_flags": {
        "CU_EVENT_DEFAULT": ("hipEventDefault", 0),
        "CU_EVENT_DISABLE_TIMING": ("hipEventDisableTiming", 2),
    },
    "CUpointer_attribute": {
        "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL": ("HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL", 9),
    },
    "CUstreamCaptureMode": {
        "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL": ("hipStreamCaptureModeThreadLocal", 1),
    },
    "CUdevice_attribute": {
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": ("hipDeviceAttributeComputeCapabilityMajor", 23),
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": ("hipDeviceAttributeComputeCapabilityMinor", 61),
        "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": ("hipDeviceAttributeMultiprocessorCount", 63),
        # there is nothing to opt in to
        "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": (
            "hipDeviceAttributeMaxSharedMemoryPerBlock", 74,
        ),
        "CU_DEVICE_ATTRIBUTE_WARP_SIZE": ("hipDeviceAttributeWarpSize", 87),
    },
}  # fmt: skip
PORTABLE = "hipHostMallocPortable", 1


class Error(int):
    """A hipError_t.  name: HIP's own."""

    api: Hip

    @property
    def name(self) -> str:
        return self.api.error_text("hipGetErrorName", self)


@cache
def library() -> ctypes.CDLL | None:
    """HIP's library, if it is installed where the system looks, or ROCm is."""
    folder = os.path.join(os.environ.get("ROCM_PATH", "/opt/rocm"), "lib")
    for name in ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", f"{folder}/libamdhip64.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def installed() -> str | None:
    """The version of the library that was loaded, as its file is called; None where that says none."""
    with open("/proc/self/maps") as maps:
        path = next((line.split(maxsplit=5)[5].strip() for line in maps if "libamdhip64.so" in line), "")
    return os.path.realpath(path).partition(".so.")[2] or None


class Hip:
    """The table of functions.  Raises DeviceError for a library that has not all of them."""

    CU_MEMHOSTALLOC_PORTABLE = PORTABLE[1]
    CUstream = int  # a stream of another library's, by its number

    if TYPE_CHECKING:  # the functions of the tables above

        def __getattr__(self, name: str) -> Callable[..., tuple]: ...

    def __init__(self, library: ctypes.CDLL):
        self._library = library
        self._images: dict[int, bytes] = {}  # by module: nobody says that a load copies them
        self._error = type("Error", (Error,), {"api": self})
        for type_, names in CONSTANTS.items():
            setattr(self, type_, SimpleNamespace(**{name: value for name, (_, value) in names.items()}))
        try:
            for name, (symbol, written, given) in FUNCTIONS.items():
                setattr(self, name, self._function(getattr(library, symbol), written, given))
            for symbol, (written, given) in OTHERS.items():
                setattr(self, f"_{symbol}", self._function(getattr(library, symbol), written, given))
            for symbol in ("hipGetErrorName", "hipGetErrorString"):
                getattr(library, symbol).restype = ctypes.c_char_p
        except AttributeError as missing:
            raise DeviceError(
                "HIP's library has all functions that a GPU is used by", str(missing), "update ROCm"
            ) from None

    def _function(self, call: Any, written: str, given: str) -> Callable[..., tuple]:
        """A function of the library, which gives its error and what it writes, as cuda-bindings' do."""
        places = [_TYPES[kind] for kind in written]
        call.argtypes = [ctypes.c_void_p for _ in places] + [_TYPES[kind] for kind in given]
        call.restype = self._error
        if not places:
            return lambda *arguments: (call(*arguments),)

        def writing(*arguments: object) -> tuple:
            found = [place() for place in places]
            error = call(*map(ctypes.byref, found), *arguments)
            return error, *(each.value for each in found)

        return writing

    def error_text(self, symbol: str, error: int) -> str:
        return getattr(self._library, symbol)(ctypes.c_int(error)).decode()

    def cuGetErrorString(self, error: int) -> tuple[int, bytes]:
        return 0, self.error_text("hipGetErrorString", error).encode()

    def cuDeviceGetName(self, room: int, device: int) -> tuple:
        text = ctypes.create_string_buffer(room)
        return *self._hipDeviceGetName(text, room, device), text.raw

    def architecture(self, device: int) -> tuple:
        """The name of a device's architecture, as b"gfx942:sramecc+:xnack-"."""
        found = ctypes.create_string_buffer(PROPERTIES)
        error = self._hipGetDevicePropertiesR0600(found, device)
        return *error, found.raw[ARCHITECTURE:].split(b"\0", 1)[0]

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple:
        """A device is there for as long as the process, and its index is what threads make current."""
        return 0, device

    def cuModuleLoadData(self, image: bytes) -> tuple:
        error, module = self._hipModuleLoadData(image)
        if not error:
            self._images[module] = image
        return error, module

    def cuModuleUnload(self, module: int) -> tuple:
        found = self._hipModuleUnload(module)
        self._images.pop(module, None)
        return found

    def cuStreamEndCapture(self, stream: int) -> tuple:
        graph = ctypes.c_void_p()
        return *self._hipStreamEndCapture(stream, ctypes.byref(graph)), graph.value

    def cuFuncLoad(self, function: int) -> tuple:
        """A code object's kernels are loaded with it."""
        return (0,)

    def cuStreamDestroy(self, stream: int) -> tuple:
        """Destroy a stream whose work goes on: HIP may drop what is not done, so that is waited for."""
        self.cuStreamSynchronize(stream)
        return self._hipStreamDestroy(stream)
