"""The OpenBLAS that NumPy loaded: its functions, by the names that OpenBLAS's documentation gives them."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.locks import cached_property

# OpenBLAS carries a prefix and a suffix that depend on who built it; the wheels' are first.
WHEELS = ("scipy_openblas_{}64_", "scipy_openblas_{}")
SPELLINGS = (*WHEELS, "openblas_{}64_", "openblas_{}")


class OpenBlas:
    """A loaded OpenBLAS, whose functions are spelled in a certain way."""

    def __init__(self, library: ctypes.CDLL, spelling: str):
        self.library, self.spelling = library, spelling

    def has(self, name: str) -> bool:
        """Whether it has a function of this name, in its spelling."""
        return hasattr(self.library, self.spelling.format(name))

    def function(self, name: str, result: Any = None) -> Any:
        """A function by its plain name, which returns a `result`."""
        found = self.library[self.spelling.format(name)]
        found.restype = result
        return found

    def address(self, symbol: str) -> int | None:
        """Where one of its functions begins that have the same name in every spelling."""
        return ctypes.cast(self.library[symbol], ctypes.c_void_p).value

    @cached_property
    def _configuration(self) -> str:
        return self.function("get_config", ctypes.c_char_p)().decode()

    @property
    def version(self) -> tuple[int, ...]:
        """Three numbers, zeros where it does not say."""
        said = re.match(r"OpenBLAS (\d+)\.(\d+)\.(\d+)", self._configuration)
        return tuple(map(int, said.groups())) if said else (0, 0, 0)

    @property
    def slots(self) -> int:
        """How many threads may be at work at once, and so have scratch memory; 0 where it does not say."""
        said = re.search(r"MAX_THREADS=(\d+)", self._configuration)
        return int(said[1]) if said else 0


@functools.cache
def openblas() -> OpenBlas | None:
    """OpenBLAS as NumPy loaded it; None where NumPy has another library."""
    np.dot(np.ones((1, 1)), np.ones((1, 1)))  # loaded for sure
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if "openblas" in line}
    except OSError:
        return None
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        for spelling in SPELLINGS:
            made = OpenBlas(library, spelling)
            if made.has("get_num_threads") and made.has("set_num_threads"):
                return made
    return None


@functools.cache
def number_of_threads() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """OpenBLAS's (get, set) number of threads; None where NumPy has another library."""
    library = openblas()
    if library is None:
        return None
    get, put = library.function("get_num_threads", ctypes.c_int), library.function("set_num_threads")
    get.argtypes, put.argtypes = (), (ctypes.c_int,)
    return get, put
