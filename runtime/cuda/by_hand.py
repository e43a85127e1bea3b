"""Ops that no kernel form says and a device does all the same: which modules know how, and their tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...ir.dtypes import from_numpy_dtype
from ...ir.lazy import load
from ...ir.op import REGISTRY, Op
from ...ir.types import Device, Type, type_of
from ..below import runs
from ..dispatch import bound, lifted
from ..on_device import ALIGNMENT, OnDevice, over, part, there
from ..tensor import wrap
from .machine import Machine

ORDERING, FACTORING = f"{__package__}.ordering", f"{__package__}.factoring"  # each loaded with its first op
MODULES = dict.fromkeys(
    ("sort", "topk", "kthvalue", "median_dim", "median_all", "nanmedian_all", "argwhere", "unique_parts",
     "bincount", "searchsorted"), ORDERING,
) | dict.fromkeys(
    ("linalg_cholesky", "cholesky_parts", "cholesky_inverse", "cholesky_solve", "solve_matrix",
     "solve_triangle", "linalg_inv", "linalg_det", "linalg_slogdet", "linalg_lu_factor", "pivoted_order",
     "linalg_qr", "geqrf", "linalg_eigh", "linalg_svd", "pseudo_inverse"), FACTORING,
)  # fmt: skip


def kernel(
    op: Op, types: Sequence[Type | None], attrs: Mapping[str, Any], at: Machine
) -> Callable[..., Any] | None:
    """What runs an op on a device's arrays; None where nothing but the host does."""
    module = MODULES.get(op.name)
    return None if module is None else load(module).kernel(op, types, attrs, at)


def advice(name: str, at: Machine) -> str:
    """What would have the op done on the device, as the end of a sentence; nothing where nothing would."""
    return load(FACTORING).advice(at) if MODULES.get(name) == FACTORING else ""


def result_of(name: str, *operands: Any, **attrs: Any) -> OnDevice:
    """What an op that has a kernel makes of arrays and numbers; nobody records it."""
    op = REGISTRY[name]
    given, settled = bound(op, tuple(map(_tensor, operands)), attrs)
    return runs[0](op, lifted(op, given), settled)[0]


def _tensor(x: Any) -> Any:
    if not isinstance(x, OnDevice):
        return [*map(_tensor, x)] if isinstance(x, list) else x
    dtype, place = from_numpy_dtype(x.dtype), there(Device("cuda", x.memory.machine.device.ordinal))
    assert dtype is not None
    return wrap(x, type_of(dtype, x.shape, place))


class Lent:
    """Memory of a device that is another's, for as long as work that is queued now may run."""

    def __init__(self, machine: Machine, address: int, nbytes: int):
        self.machine, self.address, self.nbytes = machine, address, nbytes


def lying(at: Machine, address: int, shape: tuple[int, ...], dtype: np.dtype) -> OnDevice:
    """The array that lies there, row by row."""
    beyond = address % ALIGNMENT  # memory begins at a multiple of it, arrays in it need not
    memory: Any = Lent(at, address - beyond, beyond + prod(shape) * dtype.itemsize)
    return part(memory, over(memory), shape, dtype, beyond)
