"""NVIDIA's NCCL as a C library: where it is, what its functions take, what its errors say.

The table below follows nccl.h of NCCL 2.10 and newer, where all of these are.  It was tried against a fake
library alone (tests/distributed/fake_nccl.py): no GPU has run it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..ir.errors import DistributedError
from ..ir.lazy import MissingLibraryError

NAME = "libnccl.so.2"
OLDEST = 21000  # 2.10.0, as ncclGetVersion counts: the first with ncclAvg and bfloat16
ID_BYTES = 128


class UniqueId(ctypes.Structure):
    """What the ranks of a communicator find each other by: one makes it, all get the same bytes."""

    _fields_ = [("internal", ctypes.c_byte * ID_BYTES)]

    def to_bytes(self) -> bytes:
        """Its bytes, to be sent."""
        return ctypes.string_at(ctypes.addressof(self), ID_BYTES)

    @classmethod
    def of(cls, data: bytes) -> UniqueId:
        """The one with these bytes."""
        return cls.from_buffer_copy(data)


_COMM = _STREAM = _ADDRESS = ctypes.c_void_p
_COUNT, _INT, _TYPE, _OP = ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int
# By name: the arguments, in order.  All return a result code but those of TEXTS, which return text.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ncclGetVersion": (ctypes.POINTER(_INT),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(_COMM), _INT, UniqueId, _INT),  # comm, ranks, id, rank
    "ncclCommDestroy": (_COMM,),
    "ncclCommAbort": (_COMM,),
    "ncclCommGetAsyncError": (_COMM, ctypes.POINTER(_INT)),
    "ncclCommCount": (_COMM, ctypes.POINTER(_INT)),
    "ncclCommUserRank": (_COMM, ctypes.POINTER(_INT)),
    "ncclGetErrorString": (_INT,),
    "ncclGetLastError": (_COMM,),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
    # source, target, count, type, …, communicator, stream
    "ncclAllReduce": (_ADDRESS, _ADDRESS, _COUNT, _TYPE, _OP, _COMM, _STREAM),
    "ncclReduce": (_ADDRESS, _ADDRESS, _COUNT, _TYPE, _OP, _INT, _COMM, _STREAM),
    "ncclBroadcast": (_ADDRESS, _ADDRESS, _COUNT, _TYPE, _INT, _COMM, _STREAM),
    "ncclAllGather": (_ADDRESS, _ADDRESS, _COUNT, _TYPE, _COMM, _STREAM),
    "ncclReduceScatter": (_ADDRESS, _ADDRESS, _COUNT, _TYPE, _OP, _COMM, _STREAM),
    # address, count, type, peer, communicator, stream
    "ncclSend": (_ADDRESS, _COUNT, _TYPE, _INT, _COMM, _STREAM),
    "ncclRecv": (_ADDRESS, _COUNT, _TYPE, _INT, _COMM, _STREAM),
}
TEXTS = ("ncclGetErrorString", "ncclGetLastError")
TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
REDUCTIONS = {"sum": 0, "product": 1, "max": 2, "min": 3, "avg": 4}
SUCCESS, IN_PROGRESS = 0, 7


def folders() -> list[Path]:
    """Where wheels of NVIDIA's put the library."""
    spec = find_spec("nvidia")
    places: Sequence[str] = () if spec is None else spec.submodule_search_locations or ()
    return [Path(place) / "nccl" / "lib" for place in places]


def open_library() -> Any:
    """The library: of an installed wheel, or where the system's loader finds it.

    Raises MissingLibraryError.
    """
    tried = [str(folder / NAME) for folder in folders() if (folder / NAME).exists()]
    errors = []
    for path in (*tried, NAME):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            errors.append(str(error))
    raise MissingLibraryError(
        f"NCCL's library {NAME} is needed here and is not found",
        *errors,
        "pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 for CUDA 13",
    )


class Nccl:
    """The functions of a library, each called with the types of the table, and its errors raised.

    version: as NCCL counts, 22105 for 2.21.5.
    """

    def __init__(self, library: Any):
        self._functions: dict[str, Any] = {}
        for name, arguments in SIGNATURES.items():
            function = getattr(library, name, None)
            if function is None:
                raise DistributedError(f"{NAME} has no {name}", "Lamina needs NCCL 2.10 or newer")
            function.argtypes = list(arguments)
            function.restype = ctypes.c_char_p if name in TEXTS else _INT
            self._functions[name] = function
        version = _INT()
        self.call("ncclGetVersion", ctypes.byref(version))
        self.version = version.value
        if self.version < OLDEST:
            raise DistributedError(
                f"NCCL {self.version} is older than {OLDEST}, the oldest that Lamina knows",
                "pip install --upgrade nvidia-nccl-cu12",
            )

    def call(self, name: str, *arguments: Any, comm: int | None = None) -> None:
        """Call a function.  comm: whose last error is told.  Raises DistributedError for what it refuses."""
        code = self._functions[name](*arguments)
        if code not in (SUCCESS, IN_PROGRESS):
            raise DistributedError(f"{name}: {self.said(code)}", *self._details(comm), f"result {code}")

    def said(self, code: int) -> str:
        """What a result code means."""
        text = self._functions["ncclGetErrorString"](code)
        return text.decode("utf-8", "replace") if text else "unknown"

    def _details(self, comm: int | None) -> list[str]:
        text = self._functions["ncclGetLastError"](comm)
        return [text.decode("utf-8", "replace").strip()] if text else []

    def unique_id(self) -> UniqueId:
        """A new one, for one communicator."""
        made = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(made))
        return made
