"""The host's side of copies: dense arrays, kept until they are made."""

from __future__ import annotations

import itertools

import numpy as np

from ...ir.errors import ArgumentValueError


class Kept:
    """Arrays of copies that a stream was given and that may not have been made.

    Several threads may add to it and wait for the stream.  What a thread let go of was added before its wait
    began, and it is added after the driver's call: so the wait was for its copy.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}
        self._numbers = itertools.count()

    def add(self, array: np.ndarray) -> None:
        self._arrays[next(self._numbers)] = array

    def numbers(self) -> list[int]:
        """What to let go of after a wait that begins now."""
        return [*self._arrays]

    def let_go(self, numbers: list[int]) -> None:
        for number in numbers:
            self._arrays.pop(number, None)


def check_dense(array: np.ndarray) -> None:
    """Raise ArgumentValueError for an array that is not row-major without gaps."""
    if not array.flags.c_contiguous:
        raise ArgumentValueError(
            "a copy to or from the device takes a dense array",
            f"shape {array.shape}, strides {array.strides}",
            "numpy.ascontiguousarray makes one",
        )
