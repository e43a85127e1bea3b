"""What is sorted, selected, searched and counted on a GPU: by kernels that no kernel form says.

`passes/triton/order_text.py` has their sources.  A row of up to LONG elements is sorted by one launch; a
longer one tile by tile, and then by a launch for each doubling of what is in order.  The first few of a long
row are the first of each tile's first, again and again.  What has a size that depends on values (places of
what is not zero, distinct elements, counts) waits for the device once, to know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan, prod
from typing import Any

import numpy as np

from ...ir.dtypes import from_numpy_dtype
from ...ir.errors import ArgumentValueError
from ...ir.op import Op
from ...ir.types import Type
from ...passes.triton import order_text as text
from ...passes.triton.code import Code
from ...passes.triton.target import Target
from ..on_device import OnDevice
from ..triton_compiler import compiled
from .arrays import DeviceArray
from .by_hand import result_of
from .driver import Function
from .eager import allocated, brought, cast, dense, fetched, synchronize, uploaded
from .machine import Machine

FEW = text.LONG // 4  # the first so many of a long row are found without sorting all of it
MOST = (1 << 31) - 2 * text.LONG  # elements, that 32-bit numbers count with what a tile adds
Made = tuple[OnDevice, ...]


def kernel(
    op: Op, types: Sequence[Type | None], attrs: Mapping[str, Any], at: Machine
) -> Callable[..., Any] | None:
    """What runs an op on a device's arrays; None where its operands are of a kind that has no kernel here."""
    if not all(t is None or (t.dtype.short in text.KINDS and t.size < MOST) for t in types):
        return None
    if op.name in _TAKES and not _TAKES[op.name](types, attrs):
        return None
    made = _OPS[op.name]
    return lambda *arrays: made(at, *arrays, **attrs)


# ---- launches
def _launch(at: Machine, code: Code, programs: int, *values: Any) -> None:
    """Queue a kernel on arrays and numbers."""
    function = at.by_hand.get(code.name)
    if function is None:
        function = at.by_hand[code.name] = _loaded(at, code)
    given = [x.address if isinstance(x, (OnDevice, DeviceArray)) else x for x in values]
    at.stream.launch(function, programs, *given, about="ordering")


def _loaded(at: Machine, code: Code) -> Function:
    (function,) = at.functions([code], compiled([code], Target.named(at.target)))
    return function


def _blocks(count: int) -> int:
    return -(-count // text.LANES)


def _short(x: OnDevice) -> str:
    dtype = from_numpy_dtype(x.dtype)
    assert dtype is not None
    return dtype.short


# ---- order
def ordered(
    at: Machine, x: OnDevice, dim: int, descending: bool, low: int = 0, count: int | None = None
) -> tuple[OnDevice, OnDevice]:
    """The elements along a dimension in order, and where they stood; of their ranks [low, low + count)."""
    x, shape = dense(brought(at, x)), x.shape or (1,)
    n, inner = shape[dim], prod(shape[dim + 1 :])
    count = n if count is None else count
    made = tuple([count if d == dim else size for d, size in enumerate(shape)]) if x.ndim else ()
    values, places = allocated(at, made, x.dtype), allocated(at, made, np.dtype(np.int64))
    if not values.size:
        return values, places
    at.use()
    rows, flip, dtype = x.size // n, -descending, _short(x)
    if n <= text.LONG:
        _tile(at, x, (), (values, places), text.ORDERED, rows, n, n, inner, flip, low, count)
    elif not low and count <= FEW:
        found, m = _first(at, x, rows, n, inner, flip, count)
        _tile(at, x, (found,), (values, places), text.ORDERED, rows, n, m, inner, flip, 0, count)
    else:
        order = _merged(at, x, rows, n, inner, flip)
        total = rows * count
        _launch(at, text.picked(dtype), _blocks(total), x, order, values, places, total, n, inner, low, count)
    return values, places


def _tile(
    at: Machine, x: OnDevice, given: Sequence[DeviceArray], outs: Sequence[Any], result: str, rows: int,
    n: int, m: int, inner: int, flip: int, low: int, count: int,
) -> None:  # fmt: skip
    """Sort rows, or tiles of them, of which m elements each take part."""
    log = min((m - 1).bit_length(), text.LONG.bit_length() - 1)
    lanes = text.SHORT if 1 << log <= text.SHORT else text.LONG
    stretches = rows * -(-m // (1 << log))
    code = text.tile(_short(x), lanes, result, bool(given))
    programs = -(-(stretches << log) // lanes)
    _launch(at, code, programs, x, *given, *outs, rows, n, m, inner, flip, log, low, count)


def _first(
    at: Machine, x: OnDevice, rows: int, n: int, inner: int, flip: int, count: int
) -> tuple[DeviceArray, int]:
    """The places of elements among which the first `count` of each row are, and of how many in a row."""
    given: tuple[DeviceArray, ...] = ()
    m = n
    while m > text.LONG:
        parts = -(-m // text.LONG)
        found = DeviceArray(at, "i32", (rows, parts * count))
        _tile(at, x, given, (found,), text.PLACES, rows, n, m, inner, flip, 0, count)
        given, m = (found,), parts * count
    return given[0], m


def _merged(at: Machine, x: OnDevice, rows: int, n: int, inner: int, flip: int) -> DeviceArray:
    """The places of the elements of long rows in order."""
    dtype = _short(x)
    keys, places, other, others = (
        DeviceArray(at, kind, (rows, n)) for kind in (text.key_of(dtype), "i32") * 2
    )
    _tile(at, x, (), (keys, places), text.KEYS, rows, n, n, inner, flip, 0, n)
    run, programs = text.LONG, rows * _blocks(n)
    while run < n:
        steps = run.bit_length()
        _launch(at, text.merge(dtype), programs, keys, places, other, others, n, run, steps)
        keys, places, other, others = other, others, keys, places
        run *= 2
    return places


def _sort(at: Machine, x: OnDevice, *, dim: int, descending: bool) -> Made:
    return ordered(at, x, dim, descending)


def _topk(at: Machine, x: OnDevice, *, k: int, dim: int, largest: bool, sorted: bool) -> Made:
    return ordered(at, x, dim, largest, 0, k if x.ndim else 1)


def _kthvalue(at: Machine, x: OnDevice, *, k: int, dim: int, keepdim: bool) -> Made:
    return _without(ordered(at, x, dim, False, k - 1, 1), dim, keepdim)


def _without(found: tuple[OnDevice, OnDevice], dim: int, keepdim: bool) -> Made:
    """The arrays without the dimension, of size 1, that something was picked along."""
    if keepdim or not found[0].ndim:
        return found
    return tuple([result_of("squeeze", x, dim) for x in found])


def _median_dim(at: Machine, x: OnDevice, *, dim: int, keepdim: bool) -> Made:
    shape = x.shape or (1,)
    if not x.size or x.dtype.kind in "iu":  # which hold no NaN
        return _without(ordered(at, x, dim, False, (shape[dim] - 1) // 2, 1), dim, keepdim)
    return _without(_middle(at, brought(at, x), dim, False), dim, keepdim)


def _middle(at: Machine, x: OnDevice, dim: int, skips: bool) -> tuple[OnDevice, OnDevice]:
    """The lower median along a dimension, which is kept, and where it stood."""
    values, order = ordered(at, x, dim, False)
    shape = x.shape or (1,)
    n, inner, rows = shape[dim], prod(shape[dim + 1 :]), x.size // shape[dim]
    made = tuple([1 if d == dim else size for d, size in enumerate(shape)]) if x.ndim else ()
    found, places = allocated(at, made, x.dtype), allocated(at, made, order.dtype)
    code, steps = text.middle(_short(x)), n.bit_length()
    _launch(at, code, _blocks(rows), values, order, found, places, rows, n, inner, steps, int(skips))
    return found, places


def _flat(at: Machine, x: OnDevice) -> OnDevice:
    return result_of("reshape", brought(at, x), (-1,))


def _median_all(at: Machine, x: OnDevice, skips: bool = False) -> OnDevice:
    if not x.size:
        return uploaded(at, np.array(nan, x.dtype))
    flat = _flat(at, x)
    if x.dtype.kind in "iu":
        found, _ = ordered(at, flat, 0, False, (x.size - 1) // 2, 1)
    else:
        found, _ = _middle(at, flat, 0, skips)
    return result_of("reshape", found, ())


def _nanmedian_all(at: Machine, x: OnDevice) -> OnDevice:
    return _median_all(at, x, True)


# ---- what values tell the size of
def _offsets(at: Machine, x: OnDevice, what: str) -> tuple[DeviceArray, int]:
    """How many elements are found before those of each program, and how many in all: the host waits."""
    blocks = _blocks(x.size)
    counts, before = DeviceArray(at, "i32", (blocks,)), DeviceArray(at, "i64", (blocks + 1,))
    at.use()
    _launch(at, text.counted(_short(x), what), blocks, x, counts, x.size)
    _launch(at, text.offsets(), 1, counts, before, blocks)
    total = np.empty(1, np.int64)
    at.stream.copy_out(total, before.address + 8 * blocks)
    synchronize(at)
    return before, int(total[0])


def _argwhere(at: Machine, x: OnDevice) -> OnDevice:
    x, rank = dense(brought(at, x)), x.ndim
    if not x.size:
        return allocated(at, (0, rank), np.dtype(np.int64))
    before, count = _offsets(at, x, text.TRUE)
    made = allocated(at, (count, rank), np.dtype(np.int64))
    if made.size:
        code = text.places(_short(x), rank)
        _launch(at, code, _blocks(x.size), x, before, made, x.size, *x.shape[1:])
    return made


def _unique_parts(at: Machine, x: OnDevice, *, dim: int | None, consecutive: bool) -> Made:
    flat, order = dense(_flat(at, x)), ()
    if not consecutive:
        flat, *order = ordered(at, flat, 0, False)
    places, kind = np.dtype(np.int64), _short(flat)
    inverse = allocated(at, x.shape, places)
    if not flat.size:
        return flat, inverse, allocated(at, (0,), places)
    before, count = _offsets(at, flat, text.RUNS)
    starts, lengths = (allocated(at, (count,), places) for _ in range(2))
    values = allocated(at, (count,), x.dtype)
    code = text.runs(kind, bool(order))
    _launch(at, code, _blocks(flat.size), flat, *order, before, starts, inverse, flat.size)
    _launch(at, text.of_runs(kind), _blocks(count), flat, starts, values, lengths, count, flat.size)
    return values, inverse, lengths


def _bincount(at: Machine, x: OnDevice, weights: OnDevice | None, *, minlength: int) -> OnDevice:
    places, count = cast(brought(at, x), np.dtype(np.int64)), minlength
    if x.size:
        ends = [result_of(name, places) for name in ("amin", "amax")]
        low, high = fetched(result_of("stack", ends)).tolist()
        if low < 0:
            raise ArgumentValueError(f"bincount only supports 1-d non-negative integral inputs: one is {low}")
        count = max(count, high + 1)
    each = result_of("ones_like", places) if weights is None else brought(at, weights)
    return result_of("scatter_add", result_of("new_zeros", each, (count,)), 0, places, each)


# ---- bisection
def _searchsorted(at: Machine, x: OnDevice, given: OnDevice, *, right: bool, out_int32: bool) -> OnDevice:
    kind = np.promote_types(x.dtype, given.dtype)  # as NumPy compares them
    x, given = (dense(y if y.dtype == kind else cast(y, kind)) for y in (brought(at, x), brought(at, given)))
    made = allocated(at, given.shape, np.dtype(np.int32 if out_int32 else np.int64))
    if made.size:
        n = x.shape[-1]
        each = given.size if x.ndim == 1 else given.shape[-1]
        at.use()
        code = text.searched(_short(x), "i32" if out_int32 else "i64")
        steps = n.bit_length()
        _launch(at, code, _blocks(made.size), x, given, made, made.size, n, each, steps, int(right))
    return made


def _are_compared(types: Sequence[Type | None], attrs: Mapping[str, Any]) -> bool:
    """Whether there is a type that NumPy compares operands in, and kernels for it."""
    try:
        kind = from_numpy_dtype(np.promote_types(*[t.dtype.numpy for t in types if t is not None]))
    except TypeError:  # of bfloat16 and some others
        return False
    return kind is not None and kind.short in text.KINDS


# What some ops' kernels take; the others' take all.
_TAKES: dict[str, Callable[[Sequence[Type | None], Mapping[str, Any]], bool]] = {
    "unique_parts": lambda types, attrs: attrs["dim"] is None or types[0] is not None and types[0].ndim == 1,
    "bincount": lambda types, attrs: types[1] is None or types[1].dtype.short in ("f32", "f64"),
    "searchsorted": _are_compared,
}
_OPS: dict[str, Callable[..., Any]] = {
    "sort": _sort,
    "topk": _topk,
    "kthvalue": _kthvalue,
    "median_dim": _median_dim,
    "median_all": _median_all,
    "nanmedian_all": _nanmedian_all,
    "argwhere": _argwhere,
    "unique_parts": _unique_parts,
    "bincount": _bincount,
    "searchsorted": _searchsorted,
}
