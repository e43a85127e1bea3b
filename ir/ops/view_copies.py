"""Views as copies, and what a view shows replaced: `permute_copy`, `slice_scatter` and their kin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DimError, ShapeError
from ..indices import place
from ..op import REGISTRY, composite
from ..shapes import dim_of
from .cast import clone
from .split import chunk, split, split_with_sizes, unbind
from .unview import step, view_scatter
from .view import expand, narrow, permute, select, slice, squeeze, t, transpose, unsqueeze, view, whole
from .windows import as_strided, diagonal, unfold


def _copying(name: str, viewed: Callable, method: bool = False) -> Callable:
    """Enter `name_copy`: what `viewed` gives, in memory of its own."""

    def copied(*args: Any, **kwargs: Any) -> Any:
        found = viewed(*args, **kwargs)
        return tuple(map(clone, found)) if isinstance(found, tuple) else clone(found)

    copied.__name__ = copied.__qualname__ = f"{name}_copy"
    copied.__doc__ = f"Copy what `{name}` would show as a view."
    return composite(method=method)(copied)


for _name, _viewed in {
    "alias": lambda input: input, "as_strided": as_strided, "diagonal": diagonal, "expand": expand,
    "permute": permute, "select": select, "slice": slice, "split": split,
    "split_with_sizes": split_with_sizes,
    "squeeze": squeeze, "t": t, "transpose": transpose, "unbind": unbind, "unfold": unfold,
    "unsqueeze": unsqueeze, "view": view,
}.items():  # fmt: skip
    _copying(_name, _viewed)
_copying("narrow", narrow, method=True)


@composite()
def unsafe_split(tensor, split_size, dim=0):
    """Cut into parts of `split_size` as `split` does; the parts are views here too."""
    return split(tensor, split_size, dim)


@composite()
def unsafe_chunk(input, chunks, dim=0):
    """Cut into `chunks` parts as `chunk` does; the parts are views here too."""
    return chunk(input, chunks, dim)


@composite()
def unsafe_split_with_sizes(input, split_sizes, dim=0):
    """Cut into parts of these sizes as `split_with_sizes` does; the parts are views here too."""
    return split_with_sizes(input, split_sizes, dim)


def _replaced(op: str, input: Any, src: Any, name: str, *args: Any) -> Any:
    """`input` with the region that the view `name` of it shows replaced by `src`.  Raises ShapeError."""
    attrs = REGISTRY[name].bind(input, *args)[1]
    shown = REGISTRY[name](input, *args)
    if tuple(shown.shape) != tuple(src.shape):
        raise ShapeError(f"{op}: src must have shape {list(shown.shape)}, not {list(src.shape)}")
    return view_scatter(input, src, (step(name, **attrs),))


@composite()
def diagonal_scatter(input, src, offset=0, dim1=0, dim2=1):
    """Replace a diagonal by `src`, whose last dimension runs along it.  Raises ShapeError."""
    return _replaced("diagonal_scatter", input, src, "diagonal", offset, dim1, dim2)


@composite()
def select_scatter(input, src, dim, index):
    """Replace place `index` of a dimension by `src`.  Raises ShapeError, DimError."""
    dim = _dim("select_scatter", dim, input)
    item = ("int", int(place("select_scatter", index, dim, input.shape[dim])))
    index = (*map(whole, input.shape[:dim]), item)
    return _replaced("select_scatter", input, src, "basic_index", index)


@composite()
def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    """Replace places start, start + step, ... before end of a dimension by `src`.  Raises ShapeError."""
    dim = _dim("slice_scatter", dim, input)
    index = (*map(whole, input.shape[:dim]), ("slice", start, end, step))
    return _replaced("slice_scatter", input, src, "basic_index", index)


def _dim(op: str, dim: int, input: Any) -> int:
    if not input.ndim:
        raise DimError(f"{op}: a 0-d operand has no dimension to take a part of")
    return dim_of(op, dim, input.ndim)


@composite(public=False)
def new_empty_strided(
    input, size, stride, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):
    """Make a tensor of these sizes and strides, in elements, with the input's dtype by default."""
    if len(size) != len(stride):
        raise ShapeError(
            f"new_empty_strided(size, stride): dimensionality of sizes ({len(size)}) must match "
            f"dimensionality of strides ({len(stride)})"
        )
    reach = 0 if 0 in size else 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    memory = REGISTRY["new_empty"](input, (reach,), dtype=dtype, device=device)
    made = as_strided(memory, tuple(size), tuple(stride))
    return made.detach().requires_grad_() if requires_grad else made


@composite()
def as_strided_scatter(input, src, size, stride, storage_offset=None):
    """Replace the elements that `as_strided` shows by `src`.  Raises ShapeError."""
    return _replaced("as_strided_scatter", input, src, "as_strided", size, stride, storage_offset or 0)
