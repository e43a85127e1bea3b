"""cuSOLVER and cuBLAS, NVIDIA's libraries of linear algebra, by ctypes, where they are installed.

They come in wheels of their own (the extra `gpu-linalg`), or with the CUDA toolkit; nothing here needs their
headers.  Matrices lie by columns there.  A handle is a stream's: what is called by it is queued on that
stream, and memory of its own that it has serves one stream alone.

The functions return before their work is done, unless they wait inside: how often they do is not documented.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from ...ir.errors import DeviceError, OutOfMemoryError
from ...ir.locks import fork_safe_lock
from .driver import Stream
from .machine import Machine

LOWER, UPPER = 0, 1  # of cublasFillMode_t
NORMAL, TRANSPOSED, ADJOINT = 0, 1, 2  # of cublasOperation_t
RIGHT = 1  # of cublasSideMode_t
VECTORS = 1  # of cusolverEigMode_t
ALL, SOME = ord("A"), ord("S")  # of gesvd's columns

# What functions take behind their handle: i an int, a an address on the device, h one on the host, b a byte,
# n an int to write to.  Source: cusolverDn.h and cublas_api.h of CUDA 12.9.
SOLVER = {
    "potrf_bufferSize": "iiain", "potrf": "iiaiaia", "potrfBatched": "iiaiai",
    "getrf_bufferSize": "iiain", "getrf": "iiaiaaa", "getrs": "iiiaiaaia",
    "geqrf_bufferSize": "iiain", "geqrf": "iiaiaaia",
    "orgqr_bufferSize": "iiiaian", "orgqr": "iiiaiaaia",
    "syevd_bufferSize": "iiiaian", "syevd": "iiiaiaaia",
    "gesvd_bufferSize": "iin", "gesvd": "bbiiaiaaiaiaiaa",
}  # fmt: skip
BLAS = {
    "trsm_v2": "iiiiiihaiai", "trsmBatched": "iiiiiihaiaii", "getrfBatched": "iaiaai",
    "getrsBatched": "iiiaiaaini",
}  # fmt: skip
OF_COMPLEX = {"orgqr": "ungqr", "syevd": "heevd"}  # what LAPACK calls otherwise there
LETTERS = {"f4": "S", "f8": "D", "c8": "C", "c16": "Z"}

_TYPES: dict[str, Any] = {
    "i": ctypes.c_int, "a": ctypes.c_void_p, "h": ctypes.c_void_p, "b": ctypes.c_byte,
    "n": ctypes.POINTER(ctypes.c_int),
}  # fmt: skip
_STATUS = {  # of cusolverStatus_t and cublasStatus_t
    True: {1: "NOT_INITIALIZED", 2: "ALLOC_FAILED", 3: "INVALID_VALUE", 4: "ARCH_MISMATCH",
           6: "EXECUTION_FAILED", 7: "INTERNAL_ERROR", 9: "NOT_SUPPORTED"},
    False: {1: "NOT_INITIALIZED", 3: "ALLOC_FAILED", 7: "INVALID_VALUE", 8: "ARCH_MISMATCH",
            13: "EXECUTION_FAILED", 14: "INTERNAL_ERROR", 15: "NOT_SUPPORTED"},
}  # fmt: skip


class Release(NamedTuple):
    """The files of one release of CUDA, in an order in which each finds what it needs, and their folders in
    the wheels' common one.
    """

    files: tuple[str, ...]
    blas: str
    solver: str
    folders: tuple[str, ...]


RELEASES = {  # by the major version of CUDA, which the driver's may not be less than
    13: Release(
        ("libnvJitLink.so.13", "libcublasLt.so.13", "libcusparse.so.12"), "libcublas.so.13",
        "libcusolver.so.12", ("cu13/lib",),
    ),
    12: Release(
        ("libnvJitLink.so.12", "libcublasLt.so.12", "libcusparse.so.12"), "libcublas.so.12",
        "libcusolver.so.11", ("nvjitlink/lib", "cublas/lib", "cusparse/lib", "cusolver/lib"),
    ),
}  # fmt: skip


def symbol(name: str, dtype: np.dtype) -> str:
    """What a function is called in its library."""
    letter = LETTERS[dtype.str[1:]]
    if name in BLAS:
        return f"cublas{letter}{name}"
    base, bar, rest = name.partition("_")
    return f"cusolverDn{letter}{OF_COMPLEX.get(base, base) if dtype.kind == 'c' else base}{bar}{rest}"


class Libraries:
    """Both libraries' functions.  Raises AttributeError where one is missing."""

    def __init__(self, blas: ctypes.CDLL, solver: ctypes.CDLL):
        self._functions: dict[str, Any] = {}
        for kinds, library in ((SOLVER, solver), (BLAS, blas)):
            for name, given in kinds.items():
                for letter in LETTERS:
                    self._add(library, symbol(name, np.dtype(letter)), "a" + given)
        for prefix, suffix, library in (("cusolverDn", "", solver), ("cublas", "_v2", blas)):
            self._add(library, f"{prefix}Create{suffix}", "h")
            self._add(library, f"{prefix}SetStream{suffix}", "aa")

    def _add(self, library: ctypes.CDLL, name: str, given: str) -> None:
        function = getattr(library, name)
        function.argtypes, function.restype = [_TYPES[kind] for kind in given], ctypes.c_int
        self._functions[name] = function

    def __getitem__(self, name: str) -> Any:
        return self._functions[name]


# ---- where they are
@cache
def found(major: int) -> tuple[Libraries | None, str]:
    """The libraries for a driver of that major version of CUDA, or why there are none."""
    reason = "it is not installed"
    for release, files in RELEASES.items():
        if release > major:
            continue
        try:
            for name in files.files:
                if (path := _in_wheels(name, files.folders)) is not None:
                    ctypes.CDLL(path)  # who needs it finds it loaded
            blas, solver = (
                ctypes.CDLL(_in_wheels(name, files.folders) or name) for name in (files.blas, files.solver)
            )
            return Libraries(blas, solver), ""
        except (OSError, AttributeError) as error:
            if _in_wheels(files.solver, files.folders) is not None or isinstance(error, AttributeError):
                reason = f"what is installed can't be used: {error}"
    return None, reason


def _in_wheels(name: str, folders: tuple[str, ...]) -> str | None:
    """A file of NVIDIA's wheels."""
    spec = find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        for folder in folders:
            if os.path.exists(path := os.path.join(root, folder, name)):
                return path
    return None


def missing(at: Machine) -> str | None:
    """Why a device has no cuSOLVER; None where it has.  AMD's have none."""
    driver = at.device.driver
    if driver.vendor.interface != "CUDA":
        return "it is for NVIDIA's GPUs"
    libraries, reason = found(driver.version[0])
    return None if libraries is not None else reason


# ---- calls
class Calls:
    """The functions on one stream of a device.  Any number of threads may call them, one after the other."""

    def __init__(self, at: Machine, stream: Stream):
        libraries, _ = found(at.device.driver.version[0])
        assert libraries is not None
        self._libraries, self._at, self._stream = libraries, at, stream
        self._turn = fork_safe_lock()
        at.use()
        self._handles = {solver: self._handle(solver) for solver in (True, False)}

    def _handle(self, solver: bool) -> int:
        prefix, suffix = ("cusolverDn", "") if solver else ("cublas", "_v2")
        made = ctypes.c_void_p()
        self._done(solver, f"{prefix}Create{suffix}", ctypes.byref(made))
        assert made.value is not None
        self._done(solver, f"{prefix}SetStream{suffix}", made, self._stream.handle)
        return made.value

    def size(self, name: str, dtype: np.dtype, *values: int) -> int:
        """The elements of memory that a function works in."""
        room = ctypes.c_int()
        self._call(f"{name}_bufferSize", dtype, *values, ctypes.byref(room))
        return max(room.value, 1)

    def queue(self, name: str, dtype: np.dtype, *values: Any) -> None:
        """Queue a function's work.  Addresses are of memory that stays until then, as the allocator has it.

        Raises DeviceError for what the library refuses, OutOfMemoryError.
        """
        self._stream.note(self._call(name, dtype, *values))

    def _call(self, name: str, dtype: np.dtype, *values: Any) -> str:
        self._at.use()
        solver, function = name in SOLVER, symbol(name, dtype)
        with self._turn:
            self._done(solver, function, self._handles[solver], *values)
        return function

    def _done(self, solver: bool, name: str, *values: Any) -> None:
        status = self._libraries[name](*values)
        if not status:
            return
        said = _STATUS[solver].get(status, str(status))
        kind = OutOfMemoryError if said == "ALLOC_FAILED" else DeviceError
        raise kind(
            f"cuda:{self._at.device.ordinal} could not run {name}: {said}",
            "of " + ("cuSOLVER" if solver else "cuBLAS") + ", NVIDIA's library",
        )


_calls: WeakKeyDictionary[Stream, Calls] = WeakKeyDictionary()
_making = fork_safe_lock()


def calls(at: Machine) -> Calls:
    """Those of this thread's stream of a device that has the libraries."""
    stream = at.stream
    made = _calls.get(stream)
    if made is None:
        with _making:
            made = _calls.get(stream)
            if made is None:
                made = _calls[stream] = Calls(at, stream)
    return made
