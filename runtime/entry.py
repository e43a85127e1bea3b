"""The quick way into a native program: a CPython function, made of native code, that checks and runs."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ..ir.errors import KernelError
from ..ir.kernel.types import NUMPY
from ..passes.llvm import enter as layout
from ..passes.llvm.binding import Library, host_target
from ..passes.llvm.native_manifest import NativeManifest
from ..passes.programs.memory_plan import Place
from . import memory
from .compiler import compiled
from .workers import immortal

RELEASE_FROM = 20_000  # nanoseconds of work from which other Python threads may run meanwhile
_FASTCALL = 0x80  # METH_FASTCALL of CPython's <methodobject.h>


class _MethodDef(ctypes.Structure):
    """PyMethodDef of CPython's <methodobject.h>."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Entry:
    """A program's own entry.  function(*params, *new results) -> 0 for done, else the call must be looked at.

    main: the program's only part, or 0 where it has several: those are then to be run, and `leave` called.
    busy: the mark of a program that runs, its own by default; of those that share one, one runs at a time.
    sizes: the function that looks at the arrays' sizes (read_sizes.py), where the manifest is of formulas.
    Where an interpreter or a NumPy has its objects laid out otherwise, the function takes no call at all.
    """

    function: Callable[..., int]

    def __init__(
        self,
        manifest: NativeManifest,
        main: int,
        table: np.ndarray,
        busy: np.ndarray | None = None,
        sizes: int = 0,
    ):
        params = [(kind, Place("param", at), at in manifest.into) for at, kind in enumerate(manifest.params)]
        fresh = [
            (kind, Place("result", at), True)
            for at, (kind, into) in enumerate(zip(manifest.results, manifest.into, strict=True))
            if into is None
        ]
        records: list[int] = []
        if sizes and manifest.written:
            raise KernelError(f"{manifest.name}: what is overwritten must be of known sizes")
        busy = np.zeros(1, np.int64) if busy is None else busy
        self._keep: list[Any] = [table, busy]
        for (dtype, shape), place, written in params + fresh:
            numpy_dtype, dims = NUMPY[dtype], np.array(() if sizes else shape, np.int64)
            self._keep += [numpy_dtype, dims]
            flags = layout.C_CONTIGUOUS | layout.ALIGNED | (layout.WRITEABLE if written else 0)
            size = int(np.prod(dims)) * numpy_dtype.itemsize
            # new arrays overlap nothing: only params that are overwritten must be tested
            tested = int(written and place.kind == "param")
            slot = manifest.slot(place)
            wanted = 0 if sizes else memory.address(dims)
            records += [id(numpy_dtype), len(shape), wanted, flags, slot, size, tested, 0]
        release = 0 if sizes else int(manifest.nanoseconds >= RELEASE_FROM)
        count = len(params) + len(fresh)
        head = [memory.address(busy), count, id(np.ndarray), main, memory.address(table), release, sizes]
        self._spec = np.array(head + records, np.int64)
        address = memory.address(self._spec)
        self._busy = ctypes.c_int64.from_address(memory.address(busy))
        method = _method()
        if method is None:
            self.function = takes_nothing
        else:
            self.function = _make_function(method, address)

    @property
    def is_busy(self) -> bool:
        """Whether the program runs."""
        return bool(self._busy.value)

    def leave(self) -> None:
        """Say that the parts have run: the next call may begin."""
        self._busy.value = 0


def takes_nothing(*arrays: Any) -> int:
    """The function of a program whose every call is looked at."""
    return 1


def _make_function(method: int, address: int) -> Callable[..., int]:
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )
    return make(method, address, None)


@cache
def _method() -> int | None:
    """The address of the method's definition, or None where objects are not laid out as the code expects."""
    head = object.__basicsize__
    if sys.implementation.name != "cpython" or head != 16 or not _known_layout(head):
        return None
    target = host_target()
    library = Library(compiled([layout.text(head)], target), target)
    definition = _MethodDef(b"enter", library.address(layout.SYMBOL), _FASTCALL, None)
    immortal(library)  # CPython asks the definition of a function even as it is freed
    immortal(definition)
    return ctypes.addressof(definition)


def _known_layout(head: int) -> bool:
    """Whether a NumPy array's fields are where its binary interface says, seen from one array."""
    array = np.empty((3, 5), np.float32)[1:]
    start = id(array) + head
    dims = ctypes.c_int64.from_address(start + layout.DIMS_AT).value
    return (
        ctypes.c_int64.from_address(id(array) + 8).value == id(np.ndarray)
        and ctypes.c_int64.from_address(start + layout.DATA_AT).value == memory.address(array)
        and ctypes.c_int32.from_address(start + layout.NDIM_AT).value == 2
        and (ctypes.c_int64 * 2).from_address(dims)[:] == [2, 5]
        and ctypes.c_int64.from_address(start + layout.DESCR_AT).value == id(array.dtype)
        and ctypes.c_int32.from_address(start + layout.FLAGS_AT).value == array.flags.num
    )
