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


def apply_update(op: Op, rows: Sequence[tuple[Tensor, ...]], numbers: dict[str, Any]) -> None:
    """Run an update record (see ir/ops/update.py) over rows (gradient, parameter, states...), and note the writes.

    Raises InplaceError, before anything is written, for a parameter whose memory can't be.
    """
    arrays = []
    for row in rows:
        if not row[1]._data.flags.writeable:
            raise InplaceError(f"{op.name}: a parameter's memory is read-only", f"parameter: {row[1]._meta}")
        arrays.append([x._data for x in row])
    assert op.rows is not None, f"{op.name} is no update"
    op.rows(tuple(numbers.items()))(arrays)
    writer = (op.name, here())
    for row in rows:
        for x in row[1:]:
            store = x._storage
            if store is None:
                store = x._storage = Storage()
            store.version += 1
            store.writer = writer
    if modes.CHANGED and modes.local.hook is not None:
        grads, params, *states = zip(*rows, strict=True)
        operands, attrs = op.bind(params, grads, *states, **numbers)
        # The numbers as float64, in which the rules keep their digits whatever the tensors are.
        read = tuple(x if x is None or isinstance(x, Tensor) else tensor_of(np.float64(x)) for x in operands)
        modes.local.hook(op, attrs | {"inplace": True}, read, (*params, *chain(*states)))
