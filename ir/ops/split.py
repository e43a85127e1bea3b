"""Cutting a dimension apart into views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dims import minimum, number_of, same
from ..errors import DeviceError, DTypeError, ShapeError
from ..op import composite
from ..shapes import dim_of
from .cast import dtype_of
from .view import parts

MOST_SECTIONS = 1 << 20  # each is a tensor


@composite(by_type=True)
def unbind(input, dim=0):
    """Take a dimension apart.  Returns a tuple with one view per place of it.  Raises DimError."""
    dim = dim_of("unbind", dim, input.ndim)
    size = input.shape[dim] if input.ndim else 0
    return parts("unbind", input, dim, [("int", i) for i in range(number_of(size))])


def _cut(op: str, input: Any, dim: int, bounds: Sequence) -> tuple:
    """The views between successive bounds."""
    return parts(op, input, dim, [("slice", a, b, 1) for a, b in zip(bounds[:-1], bounds[1:], strict=True)])


def _sums(sizes: Sequence) -> list:
    bounds = [0]
    for n in sizes:
        bounds.append(bounds[-1] + n)
    return bounds


@composite(
    names={"split_size": "split_size_or_sections", "split_sizes": "split_size_or_sections"}, by_type=True
)
def split(tensor, split_size_or_sections, dim=0):
    """Cut a dimension into views of one size (the last may be smaller), or of the sizes given.

    Raises DimError; ShapeError where the sizes don't add up to the dimension's.
    """
    dim = dim_of("split", dim, tensor.ndim)
    n = tensor.shape[dim] if tensor.ndim else 0
    size = split_size_or_sections
    if isinstance(size, (tuple, list)):
        if not same(sum(size), n) or any(part < 0 for part in size):
            raise ShapeError(
                f"split: sizes {list(size)} must be at least 0 and add up to {n}, the size of dim {dim}"
            )
        return _cut("split", tensor, dim, _sums(size))
    if size < 0 or (size == 0 and n != 0):
        raise ShapeError(f"split expects split_size to be greater than 0, not {size}")
    if n == 0:
        return _cut("split", tensor, dim, [0, 0])
    return _cut("split", tensor, dim, [*(i * size for i in range(number_of((n + size - 1) // size))), n])


@composite(by_type=True)
def split_with_sizes(input, split_sizes, dim=0):
    """Cut a dimension into views of the sizes given."""
    return split(input, list(split_sizes), dim)


@composite(by_type=True)
def chunk(input, chunks, dim=0):
    """Cut a dimension into at most `chunks` views of one size, the last of which may be smaller."""
    if chunks <= 0:
        raise ShapeError(f"chunk expects chunks to be greater than 0, not {chunks}")
    dim = dim_of("chunk", dim, input.ndim)
    n = input.shape[dim] if input.ndim else 0
    if n == 0:
        return _cut("chunk", input, dim, [0] * (chunks + 1))
    return split(input, (n + chunks - 1) // chunks, dim)


_EITHER = {"indices": "indices_or_sections", "sections": "indices_or_sections"}


@composite(names=_EITHER, by_type=True)
def tensor_split(input, indices_or_sections, dim=0):
    """Cut a dimension at the places given, or into that many views whose sizes differ by one at most."""
    dim = dim_of("tensor_split", dim, input.ndim)
    n = input.shape[dim] if input.ndim else 0
    if not input.ndim:
        raise ShapeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    if hasattr(indices_or_sections, "tolist"):
        indices_or_sections = _places(indices_or_sections)
    if isinstance(indices_or_sections, (tuple, list)):
        starts = [0, *indices_or_sections]
        stops = [*indices_or_sections, None]
        pairs = zip(starts, stops, strict=True)
        return parts("tensor_split", input, dim, [("slice", a, b, 1) for a, b in pairs])
    sections = indices_or_sections
    if sections <= 0:
        raise ShapeError(f"tensor_split: number of sections must be larger than 0, got {sections}")
    if sections > MOST_SECTIONS:
        raise ShapeError(f"tensor_split: sections are at most {MOST_SECTIONS}, not {sections}")
    size, longer = divmod(n, sections)
    return _cut("tensor_split", input, dim, [i * size + minimum(i, longer) for i in range(sections + 1)])


def _places(given: Any) -> Any:
    """Places, or a number of sections, that a tensor holds.  Raises DTypeError, ShapeError."""
    if getattr(getattr(given, "device", None), "type", "cpu") == "cuda":
        raise DeviceError(
            f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {given.device}",
            "indices.cpu()",
        )
    if dtype_of(given).category != "int":
        raise DTypeError(
            "tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
            f"{dtype_of(given).scalar_type} ({dtype_of(given).name})"
        )
    if given.ndim > 1:
        raise ShapeError(
            "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional "
            f"tensor, but got a tensor with {given.ndim} dims"
        )
    return given.tolist()


def _split_along(op: str, input: Any, indices_or_sections: Any, dim: int, least: int) -> tuple:
    if input.ndim < least:
        raise ShapeError(
            f"torch.{op} requires a tensor with at least {least} dimension{'s' * (least > 1)}, but got a "
            f"tensor with {input.ndim} dimensions"
        )
    n, parts = input.shape[dim], indices_or_sections
    if isinstance(parts, int) and parts > 0 and n % parts:
        raise ShapeError(
            f"torch.{op} attempted to split along dimension {dim}, but the size of the dimension {n} is not "
            f"divisible by the split_size {parts}"
        )
    return tensor_split(input, parts, dim)


@composite(names=_EITHER, by_type=True)
def hsplit(input, indices_or_sections):
    """Cut columns apart (the elements of one dimension).  Raises ShapeError."""
    return _split_along("hsplit", input, indices_or_sections, 1 if input.ndim > 1 else 0, 1)


@composite(names=_EITHER, by_type=True)
def vsplit(input, indices_or_sections):
    """Cut rows apart.  Raises ShapeError."""
    return _split_along("vsplit", input, indices_or_sections, 0, 2)


@composite(names=_EITHER, by_type=True)
def dsplit(input, indices_or_sections):
    """Cut the third dimension.  Raises ShapeError."""
    return _split_along("dsplit", input, indices_or_sections, 2, 3)
