"""Nested tensors: sequences of several lengths as one tensor, without padding.

A nested tensor is a `Compound`: `_stored` holds the elements of all sequences one behind the other, and
`_offsets` int64[B + 1] says where each begins.  Of a tensor [B, ..., lengths, ...] it has all dims but the
first, and the ragged one is as long as all together: [B, H, j, D] is held as [H, sum of lengths, D].

Its type is that of the padded tensor, so that an op's own rules of shapes hold for it; `shape` shows the
ragged size as a `Ragged`, an int that prints as j1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import count
from typing import Any

import numpy as np

from ..ir.dtypes import DType, int64
from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..ir.types import type_of
from . import ops, printing
from .compound import Compound, NoArray, made_of
from .conversion import require_cpu
from .creation import as_tensor
from .layouts import Layout, jagged, strided
from .tensor import Size, Tensor, wrap

_names = count(1)


class Ragged(int):
    """The size of a ragged dim: the length of the longest sequence, shown by a name."""

    name: str

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


class Places:
    """Where the sequences of nested tensors begin; tensors with one of these fit together.

    offsets: int64[B + 1].  size: that of the ragged dim.
    """

    def __init__(self, offsets: np.ndarray, least: int = 0):
        self.array = np.ascontiguousarray(offsets, np.int64)
        self.lengths = np.diff(self.array)
        self.size = Ragged(max(int(self.lengths.max(initial=0)), least))
        self.size.name = f"j{next(_names)}"
        self.offsets = wrap(self.array, type_of(int64, self.array.shape))
        self.rows = np.repeat(np.arange(len(self.lengths)), self.lengths)
        self.within = np.arange(len(self.rows)) - np.repeat(self.array[:-1] - self.array[0], self.lengths)

    @property
    def batch(self) -> int:
        return len(self.lengths)

    def fits(self, other: Places) -> bool:
        """Whether the sequences of both have the same lengths."""
        return self is other or np.array_equal(self.array, other.array)


class Nested(Compound):
    """Sequences of several lengths as one tensor."""

    __slots__ = ("_where", "_ragged", "_layout")
    _where: Places
    _ragged: int
    _layout: Layout
    what = "nested"
    remedy = "x.to_padded_tensor(0.0) is an ordinary tensor"
    rules: dict[str, Callable] = {}
    is_nested = True

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def shape(self) -> Size:
        sizes = list(self._meta.shape)
        sizes[self._ragged] = self._where.size
        return Size(sizes)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its entry `dim`."""
        return self.shape if dim is None else self.shape[self._dim("size", dim)]

    def numel(self) -> int:
        """The number of elements."""
        return self._stored.numel()

    nelement = numel

    def _with(self, values: Tensor) -> Nested:
        return nested_of(values, self._where, self._ragged, self._layout)

    def _spread(self, gradient: Tensor) -> Tensor:
        if not isinstance(gradient, Nested) or not gradient._where.fits(self._where):
            raise ShapeError("the gradient of a nested tensor is a nested one of the same lengths")
        return gradient._stored

    def _take(self, other: Nested) -> None:
        self._meta, self._stored, self._where = other._meta, other._stored, other._where
        self._ragged, self._layout = other._ragged, other._layout

    def values(self) -> Tensor:
        """The elements of all sequences, one behind the other."""
        held = self._stored
        return held.view_as(held) if held.requires_grad else held.detach()

    def offsets(self) -> Tensor:
        """Where each sequence begins, and the last one ends: int64[B + 1]."""
        return self._where.offsets

    def _nested_tensor_size(self) -> Tensor:
        """The sizes of each sequence: int64[B, n]."""
        lengths, inner = self._where.lengths, list(self._stored.shape)
        sizes = np.tile(np.array(inner, np.int64), (len(lengths), 1))
        sizes[:, self._ragged - 1] = lengths
        return numbers(sizes)

    def lengths(self) -> None:
        """None: there are no gaps between sequences."""

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """The sequences."""
        if dim % self.ndim:
            raise NoArray("unbind: a nested tensor is taken apart along dim 0", f"dim: {dim}")
        return self._stored.split([int(n) for n in self._where.lengths], self._ragged - 1)

    def to_padded_tensor(
        self, padding: float, output_size: Sequence[int] | None = None, out: Any = None
    ) -> Tensor:
        """An ordinary tensor, of the longest length or `output_size`, with `padding` behind shorter ones.

        Raises ShapeError.
        """
        found = padded(self, padding)
        if output_size is None:
            return found
        wanted = tuple(output_size)
        if len(wanted) != found.ndim or any(n < m for n, m in zip(wanted, found.shape)):
            raise ShapeError(
                "to_padded_tensor: output_size must have room", f"tensor: {found._meta}", f"{wanted}"
            )
        pads = [side for n, m in zip(reversed(wanted), reversed(found.shape)) for side in (0, n - m)]
        return ops.constant_pad_nd(found, pads, padding)

    def to_dense(self, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """`to_padded_tensor` with zeros."""
        found = padded(self, 0)
        return found if dtype is None else found.to(dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        grads = self.requires_grad and self.is_leaf
        return restored, (self._stored.detach(), self._where.array, self._ragged, self._layout.name, grads)

    def __deepcopy__(self, memo: dict) -> Nested:
        made = memo[id(self)] = self._with(self._stored.detach().clone())
        if self.requires_grad and self.is_leaf:
            made.requires_grad_()
        if self.grad is not None:
            made.grad = deepcopy(self.grad if self.grad.is_leaf else self.grad.detach(), memo)
        return made

    def __repr__(self) -> str:
        if self._layout is strided:
            text = ",\n".join("  " + repr(x.detach()).replace("\n", "\n  ") for x in self.unbind())
            past = printing.history(self)
            return f"nested_tensor([\n{text}\n]" + (f", {past})" if past else ")")
        past = printing.history(self)
        notes = [f"size={tuple(self.shape)}", f"offsets={self.offsets()!r}", *([past] if past else [])]
        return f"NestedTensor({', '.join(notes)}, contiguous={self._stored.is_contiguous()})"


def nested_of(values: Tensor, where: Places, ragged: int, layout: Layout) -> Nested:
    """A nested tensor of parts that fit."""
    sizes = list(values.shape)
    sizes[ragged - 1] = int(where.size)
    made = made_of(Nested, type_of(values.dtype, (where.batch, *sizes)), values)
    made._where, made._ragged, made._layout = where, ragged, layout
    return made


def restored(values: Tensor, offsets: np.ndarray, ragged: int, layout: str, requires_grad: bool) -> Nested:
    """A nested tensor of the parts that were pickled."""
    made = nested_of(values, Places(offsets), ragged, jagged if layout == "jagged" else strided)
    return made.requires_grad_() if requires_grad else made


def numbers(array: np.ndarray) -> Tensor:
    """Places as a tensor."""
    return wrap(array, type_of(int64, array.shape))


# ---- to and from padding -----------------------------------------------------------------------------------
def padded(x: Nested, padding: Any = 0) -> Tensor:
    """[B, ..., longest, ...] with `padding` behind shorter sequences."""
    where, first = x._where, x._stored.movedim(x._ragged - 1, 0)
    rest, size = tuple(first.shape[1:]), int(where.size)
    full = ops.full((where.batch * size, *rest), padding, dtype=x.dtype)
    at = numbers(where.rows * size + where.within)
    return full.index_copy(0, at, first).reshape(where.batch, size, *rest).movedim(1, x._ragged)


def packed(x: Tensor, like: Nested, ragged: int | None = None) -> Nested:
    """What stands in a padded tensor where sequences like those of another have elements."""
    where, ragged = like._where, like._ragged if ragged is None else ragged
    first = x.movedim(ragged, 1)
    flat = first.reshape(first.shape[0] * first.shape[1], *first.shape[2:])
    at = numbers(where.rows * first.shape[1] + where.within)
    return nested_of(flat.index_select(0, at).movedim(0, ragged - 1), where, ragged, like._layout)


def present(x: Nested) -> Tensor:
    """Where the padded tensor has elements: bool[B, longest]."""
    return wrap_mask(np.arange(int(x._where.size)) < x._where.lengths[:, None])


def wrap_mask(array: np.ndarray) -> Tensor:
    """A mask as a tensor."""
    return as_tensor(array)


# ---- constructors ------------------------------------------------------------------------------------------
def _layout(layout: Any) -> Layout:
    if layout is None or layout == strided:
        return strided
    if layout == jagged:
        return jagged
    raise ArgumentValueError(f"a nested tensor's layout is lamina.strided or lamina.jagged, not {layout!r}")


def _joined(parts: Sequence[Tensor], layout: Layout) -> Nested:
    """The nested tensor of sequences, which may have a history."""
    if not parts:
        return nested_of(ops.zeros(0), Places(np.zeros(1, np.int64)), 1, layout)
    first = parts[0]
    if any(x.ndim != first.ndim for x in parts):
        raise ShapeError("nested_tensor: the sequences must have one number of dims")
    if any(x.dtype is not first.dtype for x in parts):
        raise DTypeError("nested_tensor: the sequences must have one dtype")
    if not first.ndim:
        raise ShapeError("nested_tensor: numbers are no sequences", "lamina.tensor takes them")
    differ = [d for d in range(first.ndim) if len({x.shape[d] for x in parts}) > 1]
    if len(differ) > 1:
        raise ShapeError(
            f"nested_tensor: one dim may be ragged, not {len(differ)}: {differ}",
            *[f"sequence: {x._meta}" for x in parts[:2]],
            "pad all of them but one",
        )
    dim = differ[0] if differ else 0
    offsets = np.concatenate(([0], np.cumsum([x.shape[dim] for x in parts])))
    return nested_of(ops.cat(list(parts), dim), Places(offsets), dim + 1, layout)


def nested_tensor(
    tensor_list: Any, *, dtype: DType | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Nested:  # fmt: skip
    """A nested tensor of copies of these sequences, without their history.  One dim may be ragged.

    Raises ShapeError, DTypeError, ArgumentError.
    """
    require_cpu(device)
    if not isinstance(tensor_list, (list, tuple)):
        raise ArgumentError(f"nested_tensor(tensor_list): a list is needed, not {type(tensor_list).__name__}")
    parts = [as_tensor(x) if dtype is None else as_tensor(x, dtype=dtype) for x in tensor_list]
    made = _joined([x.detach() for x in parts], _layout(layout))
    made._stored = made._stored.clone()
    return made.requires_grad_() if requires_grad else made


def as_nested_tensor(ts: Any, dtype: DType | None = None, device: Any = None, layout: Any = None) -> Nested:
    """A nested tensor of sequences, or of the rows of a tensor, that gradients flow through.

    Raises ShapeError, DTypeError, ArgumentError.
    """
    require_cpu(device)
    if isinstance(ts, Nested):
        made = ts._with(ts._stored)
        made._layout = ts._layout if layout is None else _layout(layout)
        return made if dtype is None else made.to(dtype)
    if not isinstance(ts, (list, tuple, Tensor)) or isinstance(ts, Tensor) and not ts.ndim:
        raise ArgumentError(f"as_nested_tensor(ts): tensors are needed, not {type(ts).__name__}")
    parts = [
        x if isinstance(x, Tensor) else as_tensor(x) for x in (ts.unbind() if isinstance(ts, Tensor) else ts)
    ]
    return _joined(parts if dtype is None else [x.to(dtype) for x in parts], _layout(layout))


def nested_tensor_from_jagged(
    values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None, max_seqlen: int | None = None,
) -> Nested:  # fmt: skip
    """The nested tensor of sequences that stand one behind the other: [sum of lengths, ...] -> [B, j, ...].

    offsets: int[B + 1], or else lengths: int[B].  jagged_dim: which dim of the result is ragged, 1 unless
    given.
    Gradients flow to `values`.  Raises ShapeError, DTypeError, ArgumentValueError.
    """
    if offsets is None and lengths is None:
        raise ArgumentValueError("nested_tensor_from_jagged: give offsets or lengths")
    given: Any = offsets if offsets is not None else lengths
    if given.ndim != 1 or given.dtype.category != "int":
        raise ShapeError("nested_tensor_from_jagged: offsets and lengths are int[n]", f"given: {given._meta}")
    ragged = 1 if jagged_dim is None else jagged_dim
    if not 1 <= ragged <= values.ndim:
        raise ShapeError(f"nested_tensor_from_jagged: jagged_dim {ragged} is none of 1 to {values.ndim}")
    starts = given._data if offsets is not None else np.concatenate(([0], np.cumsum(given._data)))
    total = values.shape[ragged - 1]
    whole = len(starts) and starts[0] == 0 and starts[-1] == total and not (np.diff(starts) < 0).any()
    if offsets is not None and lengths is not None:
        whole = whole and np.array_equal(np.diff(starts), lengths._data)
    if not whole:
        raise ArgumentValueError(
            f"nested_tensor_from_jagged: sequences must follow each other without gaps, from 0 to {total}"
        )
    held = values.view_as(values) if values.requires_grad else values
    return nested_of(held, Places(starts, max_seqlen or 0), ragged, jagged)


def to_padded_tensor(
    input: Tensor, padding: float, output_size: Sequence[int] | None = None, out: Any = None
) -> Tensor:
    """The nested tensor as an ordinary one, `padding` behind shorter sequences.  Raises ShapeError."""
    return _nested(input, "to_padded_tensor").to_padded_tensor(padding, output_size)


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = strided) -> Nested:
    """The stretch of each row of a dense tensor that begins at `start` and is `length` long, as a nested one.

    start, length: ints, or int[B].  dim must be 1.  Raises ShapeError, ArgumentValueError.
    """
    if dim != 1 or tensor.ndim < 2:
        raise ShapeError(
            "nested.narrow: rows are narrowed in dim 1", f"dim: {dim}", f"tensor: {tensor._meta}"
        )
    rows, size = tensor.shape[0], tensor.shape[1]
    begins, sizes = (
        np.broadcast_to(np.asarray(x.tolist() if isinstance(x, Tensor) else x), (rows,))
        for x in (start, length)
    )
    if rows and (begins.min() < 0 or sizes.min() < 0 or (begins + sizes).max() > size):
        raise ArgumentValueError(f"nested.narrow: a stretch is outside of the {size} places of dim 1")
    where = Places(np.concatenate(([0], np.cumsum(sizes))))
    at = where.rows * size + np.repeat(begins, sizes) + where.within
    flat = tensor.reshape(rows * size, *tensor.shape[2:]).index_select(0, numbers(at.astype(np.int64)))
    return nested_of(flat, where, 1, _layout(layout))


def masked_select(tensor: Tensor, mask: Tensor) -> Nested:
    """The elements of each row where `mask` is true, as a nested tensor [B, j].  Raises DTypeError."""
    if mask.dtype.category != "bool":
        raise DTypeError("nested.masked_select: the mask must be bool", f"mask: {mask._meta}")
    full = mask.expand(tuple(tensor.shape))
    lengths = full._data.reshape(tensor.shape[0], -1).sum(1)
    return nested_of(
        ops.masked_select(tensor, full), Places(np.concatenate(([0], np.cumsum(lengths)))), 1, jagged
    )


def _nested(x: Any, call: str) -> Nested:
    if not isinstance(x, Nested):
        raise ArgumentError(f"{call}: a nested tensor is needed, not a {type(x).__name__}")
    return x
