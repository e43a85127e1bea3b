"""A C library in this process, as a function of arrays: its own account of itself says what it takes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

import lamina
from lamina import jit, nn
from lamina.ir.kernel.types import NUMPY
from lamina.jit.artifact import levels_here
from lamina.jit.export import arrays_of, compare

ONE = levels_here()[:1]  # of one level: the quicker to write


class Array(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("element", ctypes.c_int32),
    ]


class Range(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("low", ctypes.c_int64), ("high", ctypes.c_int64)]


def aligned(count: int, to: int = 64, beyond: int = 0) -> np.ndarray:
    """Bytes that begin so many beyond a multiple."""
    memory = np.zeros(count + 2 * to, np.uint8)
    start = -memory.ctypes.data % to + beyond
    return memory[start : start + count]


class Library:
    """A library that jit.export wrote.  `run(*inputs)` gives its outputs at the sizes of the inputs."""

    def __init__(self, path: Path, name: str | None = None):
        self.name, self.path = name or path.stem, path
        self.library = ctypes.CDLL(str(path))
        for each, kind in (("input", Array), ("output", Array), ("size", Range)):
            self.function(each).restype = ctypes.POINTER(kind)
        for each in ("error", "level"):
            self.function(each).restype = ctypes.c_char_p
        self.function("workspace").restype = ctypes.c_int64
        self.inputs, self.outputs, self.sizes = map(self._listed, ("input", "output", "size"))

    def function(self, name: str):
        return getattr(self.library, f"{self.name}_{name}")

    def _listed(self, what: str) -> list:
        found = []
        while at := self.function(what)(len(found)):
            found.append(at.contents)
        return found

    def shape(self, what: str, number: int, sizes: np.ndarray) -> tuple[int, ...]:
        rank = getattr(self, f"{what}s")[number].rank
        found = np.full(rank, -7, np.int64)
        code = self.function(f"{what}_shape")(number, pointer(sizes), pointer(found))
        assert code == 0, self.said(code)
        return tuple(found.tolist())

    def said(self, code: int) -> str:
        return self.function("error")(code).decode()

    def need(self, sizes: np.ndarray | None = None) -> int:
        return self.function("workspace")(pointer(sizes))

    def raw(self, inputs, outputs, sizes=None, workspace=None, nbytes: int = 0) -> int:
        """The code of a call with these arrays, or addresses."""
        given, made = (
            [x if isinstance(x, int) else x.ctypes.data for x in each] for each in (inputs, outputs)
        )
        return self.function("run")(
            (ctypes.c_void_p * len(given))(*given),
            (ctypes.c_void_p * len(made))(*made),
            pointer(sizes),
            pointer(workspace),
            ctypes.c_size_t(nbytes),
        )

    def fresh(self, sizes: np.ndarray | None, beyond: int = 0) -> list[np.ndarray]:
        """Memory for the outputs.  beyond: multiples of 64, in elements."""
        found = []
        for n, about in enumerate(self.outputs):
            shape = self.shape("output", n, sizes)
            dtype = np.dtype(NUMPY[about.dtype.decode()])
            memory = aligned(int(np.prod(shape)) * dtype.itemsize, beyond=beyond * dtype.itemsize)
            found.append(memory.view(dtype).reshape(shape))
        return found

    def run(self, *inputs, sizes=(), workspace=None, beyond: int = 0) -> list[np.ndarray]:
        arrays = [np.ascontiguousarray(plain(x)) for x in inputs]
        numbers = np.array(sizes, np.int64)
        outputs = self.fresh(numbers, beyond)
        nbytes = 0 if workspace is None else len(workspace)
        code = self.raw(arrays, outputs, numbers, workspace, nbytes)
        assert code == 0, self.said(code)
        return outputs


def pointer(array: np.ndarray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def plain(x) -> np.ndarray:
    return x.detach()._data if isinstance(x, lamina.Tensor) else x


def write(function, path: Path, *example, **options) -> Library:
    """A function as a library that is loaded."""
    jit.export(function, path, *example, **{"levels": ONE, **options})
    return Library(path, options.get("name"))


def same(found: list[np.ndarray], returned) -> None:
    """With the bound that export itself has."""
    compare([bits(x) for x in arrays_of(returned)], [bits(x) for x in found])


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def digits() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    )
