"""Applies an optimizer's update: one op over many tensors, which it writes in place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..ir.errors import InplaceError
from ..ir.op import Op
from . import modes
from .places import here
from .storage import Storage
from .tensor import Tensor, tensor_of


def apply_update(op: Op, params: Sequence[Tensor], grads: Sequence[Tensor], *states: Any, **numbers: Any) -> None:
    """Run an update record (see ir/ops/update.py) over `params` and `states`, and note the writes.

    Raises InplaceError, before anything is written, for a parameter whose memory can't be.
    """
    for p in params:
        if not p._data.flags.writeable:
            raise InplaceError(f"{op.name}: a parameter's memory is read-only", f"parameter: {p._meta}")
    operands, attrs = op.bind(params, grads, *states, **numbers)
    assert op.write is not None, f"{op.name} has no in-place form"
    op.write(*[getattr(x, "_data", x) for x in operands], **attrs)
    writer = (op.name, here())
    for x in chain(params, *states):
        store = x._storage
        if store is None:
            store = x._storage = Storage()
        store.version += 1
        store.writer = writer
    if modes.CHANGED and modes.local.hook is not None:
        written = tuple(x for group in (params, *states) for x in group)
        # The numbers as float64, in which the rules keep their digits whatever the tensors are.
        read = tuple(x if x is None or isinstance(x, Tensor) else tensor_of(np.float64(x)) for x in operands)
        modes.local.hook(op, attrs | {"inplace": True}, read, written)
