"""Arrays as MPI takes them: what it can't combine as it lies goes through a copy; and how they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..runtime.memory import address

After = Callable[[], None] | None  # what is done with what arrived


def raw(array: np.ndarray) -> np.ndarray:
    """The bytes of a dense array."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)


def plain(array: np.ndarray) -> np.ndarray:
    """Numbers as MPI knows them: bool as bytes."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def wide_of(dtype: np.dtype) -> np.dtype:
    """The type that numbers are combined in: float32 for halves."""
    small = dtype.itemsize <= 2 and dtype.kind not in "iub"
    return np.dtype(np.float32) if small else dtype


def is_over(input: np.ndarray, output: np.ndarray) -> bool:
    """Whether a result is to be written over its operand: two arrays of one shape, of the same memory."""
    return input is output or address(input) == address(output)


def widened(input: np.ndarray, output: np.ndarray, reduce: str, ranks: int) -> tuple[np.ndarray, After]:
    """The array to combine in, `input` itself if it can be, and what makes the results of it."""
    wide = input
    if wide_of(input.dtype) != input.dtype:
        wide = np.empty(output.shape, wide_of(input.dtype))

    def after() -> None:
        held = wide if wide is not input else output
        if reduce == "avg":
            held /= ranks
        if held is not output:
            np.copyto(output, held, casting="unsafe")

    return wide, after if wide is not input or reduce == "avg" else None


_SPELLED: dict[tuple, str] = {}
_OWN = ("group", "sent", "received")  # what is no part of what ranks agree on


def named(array: np.ndarray) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def spelled(kind: str, attrs: Mapping[str, Any], input: np.ndarray) -> str:
    key = kind, input.dtype, input.shape, *attrs.values()
    if (text := _SPELLED.get(key)) is None:
        said = [f", {name}={value}" for name, value in attrs.items() if name not in _OWN]
        text = f"{kind}({input.dtype.name if 'sent' in attrs else named(input)}{''.join(said)})"
        if len(_SPELLED) < 4096:
            _SPELLED[key] = text
    return text
