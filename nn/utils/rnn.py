"""Sequences of different lengths in one tensor: padded, or packed without the padding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...ir.dtypes import DType, float16, float32, float64, int8, int16, int32, int64, uint8
from ...ir.errors import ArgumentError, ArgumentValueError, DeviceError
from ...runtime import Tensor, ops, tensor


class PackedSequence_(NamedTuple):
    """What a PackedSequence holds."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None


class PackedSequence(PackedSequence_):
    """Sequences without padding, step by step: `data` holds all first elements, then all second ones, ...

    batch_sizes: how many sequences reach each step (int64, never growing).  sorted_indices: the order,
    longest first, in which the sequences stand; unsorted_indices: the way back; None where they were sorted
    already.  Where one of them is given, the other follows from it.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ):
        if isinstance(data, tuple) and batch_sizes is None:
            data, batch_sizes = data
        if not isinstance(data, Tensor) or not isinstance(batch_sizes, Tensor):
            raise ArgumentError("PackedSequence(data, batch_sizes): two tensors are wanted")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with `data` on another device or of another dtype."""
        moved = self.data.to(*args, **kwargs)
        return self if moved is self.data else self._replace(data=moved)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on the CPU."""
        return self.to("cpu", *args, **kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a CUDA device.  Raises DeviceError, as there is none, unless it is pretended."""
        return self.to("cuda", *args, **kwargs)

    def pin_memory(self) -> PackedSequence:
        """The same: there is no device to copy to."""
        return self

    def is_pinned(self) -> bool:
        """Whether `data` is in memory that a device can copy from: never."""
        return False

    @property
    def is_cuda(self) -> bool:
        """Whether `data` is on a CUDA device: never."""
        return False


def _converted(dtype: DType) -> Callable:
    """The method that converts `data` to a dtype."""

    def convert(self: PackedSequence) -> PackedSequence:
        return self.to(dtype)

    convert.__doc__ = f"The same with `data` in {dtype.name}."
    return convert


for _name, _dtype in {
    "byte": uint8, "char": int8, "double": float64, "float": float32, "half": float16, "int": int32,
    "long": int64, "short": int16,
}.items():  # fmt: skip
    setattr(PackedSequence, _name, _converted(_dtype))


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes one; None of None."""
    if permutation is None:
        return None
    return ops.empty_like(permutation).scatter_(0, permutation, ops.arange(permutation.numel()))


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences.  Shapes: [T, B, ...], or [B, T, ...] with `batch_first`; lengths [B].

    Raises ArgumentValueError for lengths outside 1 to T, or not falling while `enforce_sorted`.
    """
    if batch_first:
        input = input.transpose(0, 1)
    if isinstance(lengths, Tensor) and lengths.is_cuda:
        raise DeviceError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got one on {lengths.device}",
            "lengths.cpu()",
        )
    sizes = lengths.tolist() if isinstance(lengths, Tensor) else [*map(int, lengths)]
    steps, batch = input.shape[0], input.shape[1]
    if not sizes or len(sizes) != batch or not all(0 < n <= steps for n in sizes):
        raise ArgumentValueError(
            f"pack_padded_sequence: a length between 1 and {steps} is wanted for each of {batch} sequences",
            f"lengths: {sizes}",
        )
    indices = ()
    if not enforce_sorted:
        order = sorted(range(batch), key=lambda i: -sizes[i])
        back = sorted(range(batch), key=order.__getitem__)
        place = input.device
        indices = tensor(order, dtype=int64, device=place), tensor(back, dtype=int64, device=place)
        sizes, input = [sizes[i] for i in order], input.index_select(1, indices[0])
    elif any(later > n for n, later in zip(sizes, sizes[1:])):
        raise ArgumentValueError(
            "pack_padded_sequence: lengths must be sorted in decreasing order",
            f"lengths: {sizes}",
            "You can pass `enforce_sorted=False` to have the sequences sorted",
        )
    reach = [sum(n > t for n in sizes) for t in range(max(sizes))]
    data = ops.cat([input[t, :n] for t, n in enumerate(reach)])
    return PackedSequence(data, tensor(reach, dtype=int64), *indices)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Pad packed sequences again.

    Returns the tensor [T, B, ...], or [B, T, ...] with `batch_first`, and the lengths.
    """
    if not isinstance(sequence, PackedSequence):
        raise ArgumentError(f"pad_packed_sequence: a PackedSequence is wanted, not {type(sequence).__name__}")
    reach = sequence.batch_sizes.tolist()
    steps = len(reach) if total_length is None else total_length
    if steps < len(reach):
        raise ArgumentValueError(
            "Expected total_length to be at least the length of the longest sequence in input: "
            f"{steps} < {len(reach)}"
        )
    batch = reach[0]
    lengths = tensor([sum(n > i for n in reach) for i in range(batch)], dtype=int64)
    rows, at = [], 0
    for n in reach:
        row = sequence.data[at : at + n]
        at += n
        if n < batch:
            missing = (batch - n, *row.shape[1:])
            row = ops.cat([row, ops.full(missing, padding_value, dtype=row.dtype, device=row.device)])
        rows.append(row)
    if steps > len(rows):
        rows += [ops.full_like(rows[0], padding_value).detach()] * (steps - len(rows))
    padded, dim = ops.stack(rows), 1
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(dim, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack tensors [T_i, ...] as [T, B, ...], or [B, T, ...] with `batch_first`, padded to the longest."""
    if padding_side not in ("left", "right"):
        raise ArgumentValueError(
            f"pad_sequence: padding_side must be 'left' or 'right', not {padding_side!r}"
        )
    if not isinstance(sequences, (Iterable, Tensor)):
        raise ArgumentError(
            "pad_sequence: Expected iterable for input sequences, but got arg of type "
            f"{type(sequences).__name__}"
        )
    sequences = list(sequences)
    longest = max(x.shape[0] for x in sequences)
    padded = []
    for x in sequences:
        shape = longest - x.shape[0], *x.shape[1:]
        missing = ops.full(shape, padding_value, dtype=x.dtype, device=x.device)
        padded.append(ops.cat([x, missing] if padding_side == "right" else [missing, x]))
    return ops.stack(padded, 0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors [T_i, ...]."""
    lengths = [x.shape[0] for x in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The tensors [T_i, ...] that `pad_sequence` padded."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(ops.unbind(rows), lengths.tolist())]


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The tensors [T_i, ...] that `pack_sequence` packed."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
