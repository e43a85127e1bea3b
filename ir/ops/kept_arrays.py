"""Constant arrays that quick kernels of many sizes share: making them costs more than a call does."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

MOST = 4096  # elements


@lru_cache(64)
def _ones(dtype: np.dtype) -> np.ndarray:
    made = np.ones(MOST, dtype)
    made.flags.writeable = False
    return made


def ones(size: int, dtype: np.dtype) -> np.ndarray:
    """That many ones, at most MOST, not to be written."""
    return _ones(dtype)[:size]


@lru_cache(64)
def _rows(columns: int) -> np.ndarray:
    made = np.arange(MOST // columns).repeat(columns).reshape(-1, columns)
    made.flags.writeable = False
    return made


def row_numbers(rows: int, columns: int) -> np.ndarray:
    """The row of each element of a matrix of at most MOST elements, not to be written."""
    return _rows(columns)[:rows]


@lru_cache(64)
def _columns(columns: int) -> np.ndarray:
    made = np.tile(np.arange(columns), (MOST // columns, 1))
    made.flags.writeable = False
    return made


def column_numbers(rows: int, columns: int) -> np.ndarray:
    """The column of each element of such a matrix, not to be written."""
    return _columns(columns)[:rows]
