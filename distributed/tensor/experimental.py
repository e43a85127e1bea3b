"""Ordinary tensors beside DTensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .mixing import implicit


@contextmanager
def implicit_replication() -> Iterator[None]:
    """Take ordinary tensors beside DTensors as ones that every rank has, inside."""
    before = implicit.set(True)
    try:
        yield
    finally:
        implicit.reset(before)
