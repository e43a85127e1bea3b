"""The meta device: tensors that have a type and no values.

Their arrays are `NoValues`: of a shape and dtype, all over one place in memory, and nothing that NumPy
computes takes them.  Ops run by plans whose kernels make more of the same, so the paths that ordinary tensors
take ask nothing; what would need a value says so.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NoReturn

import numpy as np

from ..ir.errors import DeviceError
from ..ir.op import Op
from ..ir.shapes import apart
from ..ir.types import CPU, Device, Type, placed, type_of
from . import modes
from .on_device import there

META = Device("meta")


class NoValuesError(DeviceError, NotImplementedError, TypeError):
    """A value was asked for of a tensor on the meta device."""


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise NoValuesError(
        "a tensor on the meta device has no values",
        "x.to_empty(device='cpu') of a module, or lamina.empty_like(x, device='cpu'), makes room for some",
    )


class NoValues(np.ndarray):
    """An array that nobody can read or write."""

    __array_ufunc__ = __array_function__ = _refuse
    item = tolist = tobytes = astype = fill = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse
    __getitem__ = __setitem__ = _refuse
    # Methods in C that ask nobody, and would read the ground.
    argmax = argmin = argpartition = argsort = partition = sort = searchsorted = nonzero = dot = _refuse
    take = put = choose = compress = repeat = byteswap = setfield = tofile = dump = dumps = _refuse

    def copy(self, order: Any = "C") -> NoValues:
        return self


_GROUND = np.zeros(64, np.uint8)  # room for one element of any dtype


def array(kind: Type) -> NoValues:
    """The array of a tensor of that type."""
    return NoValues(kind.shape, kind.dtype.numpy, _GROUND, 0, (0,) * kind.ndim)


def strides(kind: Type) -> tuple[int, ...]:
    """The steps of a contiguous tensor of that type, in elements."""
    sizes = [max(n, 1) for n in kind.shape]
    return tuple(prod(sizes[d + 1 :]) for d in range(kind.ndim))


class _making_at(modes._Mode):
    def __init__(self, place: Device):
        self._place = place = placed_at(place)
        self._changes = {"device": None if place is CPU else place}

    def clone(self) -> modes._Mode:
        return _making_at(self._place)


def _enter(self: Device) -> Device:
    """Make new tensors on this device for the length of a block.  Raises DeviceError."""
    placed_at(self)
    block = _making_at(self)
    self.blocks = (*getattr(self, "blocks", ()), block)
    block.__enter__()
    return self


def _leave(self: Device, *error: object) -> None:
    *rest, block = self.blocks
    self.blocks = tuple(rest)
    block.__exit__(*error)


def _around(self: Device, function: Callable) -> Callable:
    return _making_at(self)(function)


for _name, _method in {"__enter__": _enter, "__exit__": _leave, "__call__": _around}.items():
    setattr(Device, _name, _method)


# Ops whose indices may stay on the CPU beside what they index on a GPU, and those that take no tensor of no
# dims from there, as others do: PyTorch's rules, both.
INDEXING = frozenset(("index", "index_put", "unindex"))
JOINING = frozenset((
    "cat", "stack", "embedding", "gather", "index_add", "index_copy", "index_select", "scatter",
    "scatter_add", "scatter_reduce",
))  # fmt: skip


def place_of(op: Op, types: tuple[Type | None, ...], attrs: dict[str, Any]) -> Device:
    """Where the results of a call are.  Raises DeviceError where operands are in several places.

    Numbers go with any operand; so does the state of a generator; and a copy may be written to nowhere, and
    from one device to another.
    """
    asked = attrs.get("device")
    if isinstance(asked, Device):
        return placed_at(asked)
    given = [t for t in types if t is not None]
    if not any(t.device == META for t in given):
        return given[0].device if op.name == "copy" else _gpu_of(op, given)
    if op.name == "copy":
        if types[0] is not None and types[0].device == META:
            return META
        raise NoValuesError("copy_: the source is on the meta device and has no values")
    # places to look at, which functions make of Python's numbers, may be on the CPU
    for t in [t for t in given if t.ndim] or given:
        if t.device != META and (op.traits.elementwise or t.dtype.inexact) and not op.traits.random:
            raise DeviceError(f"{op.name}: operands on the CPU and on the meta device")
    return META


def placed_at(device: Any) -> Device:
    """A device by its one object: the CPU, META, or a GPU that is there.  Raises DeviceError."""
    return META if placed(device).type == "meta" else there(device)


def _gpu_of(op: Op, given: list[Type]) -> Device:
    """The same where nothing is on the meta device: the one GPU that all are on, but for what may be on the
    CPU beside it.  A number that is written to places comes from anywhere."""
    if op.name == "index_put" and not given[1].ndim and given[0].ndim:
        given = [given[0], *given[2:]]
    gpu = next((t.device for t in given if t.device is not CPU), CPU)
    for n, t in enumerate(given):
        if t.device != gpu and not (t.device is CPU and _may_stay(op, n, t, given)):
            raise apart(op.name, gpu, t.device)
    return gpu


def _may_stay(op: Op, n: int, t: Type, given: list[Type]) -> bool:
    """Whether operand `n`, which is on the CPU, goes with others on a GPU."""
    if op.traits.random:
        return n == len(given) - 1  # the state
    return (not t.ndim and op.name not in JOINING) or (n > 0 and op.name in INDEXING and not t.dtype.inexact)


def on_cpu(kind: Type | None) -> Type | None:
    return None if kind is None else type_of(kind.dtype, kind.shape, CPU)


def kernel(op: Op, outs: tuple[Type, ...]) -> Callable:
    """What runs an op where there are no values."""
    if op.traits.host:
        raise NoValuesError(
            f"{op.name}: what it returns depends on values, which a tensor on the meta device does not have"
        )
    if len(outs) == 1:
        kind = outs[0]
        return lambda *_: array(kind)
    return lambda *_: tuple([array(kind) for kind in outs])
