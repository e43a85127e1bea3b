"""What ordinary tensors beside DTensors are taken for, and ops without a rule."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Whether an ordinary tensor is one that every rank has.
implicit: ContextVar[bool] = ContextVar("implicit_replication", default=False)
# Where ops without a rule gather their operands: which did, and where they were called.  None: nowhere.
gathered: ContextVar[dict[str, None] | None] = ContextVar("gathered", default=None)


@contextmanager
def implicit_replication() -> Iterator[None]:
    """Take ordinary tensors beside DTensors as ones that every rank has, inside."""
    before = implicit.set(True)
    try:
        yield
    finally:
        implicit.reset(before)
