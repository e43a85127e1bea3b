"""The arrays that a compiled program is given: of the right type and shape, dense, apart where written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..ir.kernel.types import NUMPY
from ..passes.programs.manifest import Manifest


def check_count(program: Manifest, arrays: Sequence[Any]) -> None:
    """Raises ArgumentError unless there is an array for each param."""
    if len(arrays) != len(program.params):
        raise ArgumentError(
            f"{program.name} takes {len(program.params)} arrays, not {len(arrays)}",
            f"they are: {', '.join(program.names)}",
        )


def dense(program: Manifest, at: int, array: Any) -> np.ndarray:
    """The array for a param, or a dense copy of it.

    Raises ArgumentError, DTypeError, ShapeError; ArgumentValueError if it can't be written, but is to be.
    """
    dtype, shape = program.params[at]
    about = f"{program.name}: {program.names[at]} is {dtype}[{','.join(map(str, shape))}]"
    if not isinstance(array, np.ndarray):
        raise ArgumentError(about, f"given: {type(array).__name__}", "give a NumPy array")
    what = f"given: {array.dtype}[{','.join(map(str, array.shape))}]"
    if array.dtype != NUMPY[dtype]:
        raise DTypeError(about, what)
    if array.shape != shape:
        raise ShapeError(about, what)
    if at in program.into and not array.flags.writeable:
        raise ArgumentValueError(f"{about}, and overwritten: the array given is read-only")
    if array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.array(array, order="C", copy=True, subok=False)


def check_apart(
    program: Manifest, arrays: Sequence[np.ndarray], overlap: Callable[[np.ndarray, np.ndarray], bool]
) -> list[int]:
    """The params that share memory with one that is overwritten, and so need a copy.

    Raises ArgumentValueError if two that are overwritten share memory.
    """
    found = []
    for at in program.written:
        for other, array in enumerate(arrays):
            if other == at or not overlap(arrays[at], array):
                continue
            if other in program.into:
                raise ArgumentValueError(
                    f"{program.name}: two params that are overwritten share memory",
                    f"params: {program.names[at]}, {program.names[other]}",
                )
            found.append(other)
    return found
