"""Applies an optimizer's update: one op over many tensors, which it writes in place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from ..ir.errors import InplaceError
from ..ir.lowering import Decomposition
from ..ir.op import Op
from ..ir.ops.complex import pairs
from . import compound, modes, on_device
from .changes import advance_contents
from .history import storage_of
from .kernels import update_large
from .modes import enable_grad
from .places import here
from .tensor import Tensor, tensor_of

_DATA, _STORAGE, _WRITEABLE = attrgetter("_data"), attrgetter("_storage"), attrgetter("_data.flags.writeable")


class Gathered(Protocol):
    """Rows as one row of longer arrays (see optim/flat.py)."""

    def row(self, grads: Any, params: Any) -> tuple: ...

    def scatter(self, params: Any) -> None: ...


def apply_update(
    op: Op,
    columns: Sequence[tuple[Tensor, ...]],
    numbers: dict[str, Any],
    gathered: Gathered | None = None,
    source: tuple[Any, Any] = (None, None),
) -> None:
    """Run an update record (see ir/ops/update.py) over columns: gradients, parameters, and each state.

    gathered: all of them as one row, updated at once.  source: the optimizer and the group that the numbers
    are of, for a recorder, which reads them anew at each call.  The writes are noted.  Raises InplaceError,
    before any, for a parameter whose memory is read-only.
    """
    if compound.seen and any([x._compound for x in columns[1]]):
        columns = compound.parts_of(columns)
    params = columns[1]
    if not all(map(_WRITEABLE, params)):
        p = next(p for p in params if not _WRITEABLE(p))
        raise InplaceError(f"{op.name}: a parameter's memory is read-only", f"parameter: {p._meta}")
    assert op.rows is not None, f"{op.name} is no update"
    if any([x.is_cuda for x in params]):
        places = dict.fromkeys([x.device for x in params])
        for place in places if len(places) > 1 else ():  # a program for each of them
            there = [x.device == place for x in params]
            apply_update(op, [tuple(compress(column, there)) for column in columns], numbers, None, source)
        if len(places) == 1:
            _update_on_device(op, columns, numbers)
            _note(op, columns, numbers, source)
        return
    plain = numbers
    if modes.is_recording():  # what NumPy reads of a tensor here, Python never sees
        plain = {name: _plain(x) if isinstance(x, Tensor) else x for name, x in numbers.items()}
    arrays = [list(map(_DATA, column)) for column in columns]
    if any(array.dtype.kind == "c" for array in arrays[1]):  # a number's parts are updated on their own
        arrays = [
            [pairs(array) if array.dtype.kind == "c" else array for array in column] for column in arrays
        ]
    timing = modes.local.timing if modes.CHANGED else None
    event = None if timing is None else timing.begin(f"{op.name}_")
    rows = zip(*arrays) if gathered is None else [gathered.row(*arrays[:2])]
    others = update_large(op, plain, rows)
    if others:
        op.rows(tuple(plain.items()))(others)
    if gathered is not None:
        gathered.scatter(arrays[1])
    if timing is not None:
        timing.end(event)
    _note(op, columns, numbers, source)


def _update_on_device(op: Op, columns: Sequence[tuple[Tensor, ...]], numbers: dict[str, Any]) -> None:
    """The same where all parameters are on one GPU."""
    grads, params, *states = columns
    operands, attrs = op.bind(params, grads, *states, **numbers)
    given, written = tuple(map(_read, operands)), [*chain(params, *states)]
    on_device.eager().overwrite(op, given, attrs, params[0].device, written)


def _note(
    op: Op, columns: Sequence[tuple[Tensor, ...]], numbers: dict[str, Any], source: tuple[Any, Any]
) -> None:
    """Say that parameters and states were written."""
    _, params, *states = columns
    writer = (op.name, here())
    stores = list(map(_STORAGE, chain(*columns[1:])))
    if None in stores:
        stores = [storage_of(x) for x in chain(*columns[1:])]
    for store in stores:
        store.version += 1
        store.writer = writer
    advance_contents()
    if modes.CHANGED and modes.local.hook is not None:
        operands, attrs = op.bind(params, columns[0], *states, **numbers)
        read = tuple(map(_read, operands))
        scalars = dict(zip(op.operands[:-1], read))
        modes.tell("numbers", scalars, *source)
        modes.local.hook(op, attrs | {"inplace": True}, read, (*params, *chain(*states)))


def update_with_history(op: Op, columns: Sequence[tuple[Tensor, ...]], numbers: dict[str, Any]) -> None:
    """Run an update record as ops that autograd follows, and write the results into what it updates.

    Raises InplaceError where that is a leaf that asks for its gradient.
    """
    if modes.CHANGED:
        modes.tell("refuse", "an optimizer's step is to be differentiated; take it outside of the function")
    grads, params, *states = columns
    operands, attrs = op.bind(params, grads, *states, **numbers)
    count = len(op.operands) - 1
    scalars = [x.item() if isinstance(x, Tensor) and not x.requires_grad else x for x in operands[:count]]
    scalars = [float(x) if isinstance(x, int) else x for x in scalars]
    assert isinstance(op.lower, Decomposition), f"{op.name} is no update"
    with enable_grad():
        tensors = [x.clone() for x in operands[count:]]  # what is saved of them is not written below
        updated = op.lower.function(*scalars, *tensors, **attrs)
        for x, new in zip(chain(params, *states), updated, strict=True):
            x.copy_(new)


def _read(x: Any) -> Tensor | None:
    """An operand as a tensor: a number in float64, in which the rules keep its digits whatever the tensors
    are.
    """
    return x if x is None or isinstance(x, Tensor) else tensor_of(np.float64(x))


def _plain(x: Tensor) -> Any:
    """The number of a tensor that has one.  Raises ArgumentValueError."""
    return x._data.item() if x._data.size == 1 else float(x)  # which raises
