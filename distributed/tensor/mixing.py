"""What ordinary tensors beside DTensors are taken for, and ops without a rule."""

from __future__ import annotations

from contextvars import ContextVar

# Whether an ordinary tensor is one that every rank has.
implicit: ContextVar[bool] = ContextVar("implicit_replication", default=False)
# Where ops without a rule gather their operands: which did, and where they were called.  None: nowhere.
gathered: ContextVar[dict[str, None] | None] = ContextVar("gathered", default=None)
