"""From a list of samples to a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.errors import ArgumentError, ArgumentValueError, ShapeError
from ..runtime import Tensor, as_tensor, ops, tensor
from ..runtime.refusal import refusing

SHOWN = 8  # samples that an error names of each kind
HOLDS_NUMBERS = "biufcV"  # NumPy's kinds of element; V: ml_dtypes' bfloat16


def default_collate(batch: Sequence[Any]) -> Any:
    """Put samples together: stack arrays and tensors, make numbers a tensor, keep what containers there are.

    Shapes: tensors f32[...] of b samples -> f32[b, ...]. Python's floats become float64, ints int64, bools
    bool. Strings and bytes stay a list. A tuple becomes a list, a named tuple stays one; dicts keep their
    keys and, like lists, their class. Raises ShapeError, which names the samples that differ; ArgumentError
    for what it can't put together.  What `default_collate_fn_map` was told of classes goes first.
    """
    return _collate(batch, "", default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Callable] | None = None) -> Any:
    """`default_collate`, with functions for classes: `{Points: f}`, f(batch, collate_fn_map=…) -> a batch."""
    return _collate(batch, "", {} if collate_fn_map is None else collate_fn_map)


def _of_class(first: Any, table: Mapping[Any, Callable]) -> Callable | None:
    """What a table that somebody filled says of an object's class, or of one above it."""
    if (found := table.get(type(first))) is not None:
        return None if _KNOWN.get(type(first)) is found else found
    for kind, found in table.items():
        if _KNOWN.get(kind) is not found and isinstance(first, kind):
            return found
    return None


def _collate(batch: Sequence[Any], at: str, table: Mapping[Any, Callable]) -> Any:
    first = batch[0]
    if table and (function := _of_class(first, table)) is not None:
        return function(batch, collate_fn_map=table)
    if isinstance(first, Tensor):
        return _stacked(batch, at)
    if isinstance(first, np.ndarray):
        if first.dtype.kind not in HOLDS_NUMBERS:
            raise ArgumentError(f"default_collate: no tensor holds an array of {first.dtype}", *_place(at))
        return _stacked([as_tensor(x) for x in batch], at)
    if isinstance(first, (bool, int, np.generic)) and not isinstance(first, (str, bytes)):
        return as_tensor(np.array(batch))
    if isinstance(first, float):
        return tensor(batch, dtype=dtypes.float64)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        made = {key: _collate([x[key] for x in batch], f"{at}[{key!r}]", table) for key in first}
        return _like(first, made)
    if isinstance(first, Sequence):
        return _transposed(first, batch, at, table)
    raise ArgumentError(
        "default_collate: samples must be tensors, arrays, numbers, strings, or dicts and lists of these, "
        f"not {type(first).__name__}",
        *_place(at),
        "pass a collate_fn of your own",
    )


def _transposed(
    first: Sequence, batch: Sequence[Sequence], at: str, table: Mapping[Any, Callable]
) -> Any:  # fmt: skip
    lengths = [len(x) for x in batch]
    if len(set(lengths)) > 1:
        raise ArgumentValueError(
            "default_collate: the samples' lists must have one length",
            *_place(at),
            *_groups(lengths, "{} entries"),
        )
    made = [_collate(column, f"{at}[{i}]", table) for i, column in enumerate(zip(*batch, strict=True))]
    if hasattr(first, "_fields"):
        return type(first)(*made)
    return made if isinstance(first, tuple) else _like(first, made)


def _stacked(batch: Sequence[Tensor], at: str) -> Tensor:
    shapes = [tuple(x.shape) for x in batch]
    if len(set(shapes)) > 1:
        raise ShapeError(
            "default_collate: the samples' tensors must have one shape",
            *_place(at),
            *_groups([str(x._meta) for x in batch], "{}"),
            "pass a collate_fn that brings them to one shape, for example by nn.utils.rnn.pad_sequence",
        )
    return ops.stack(list(batch))


def _place(at: str) -> tuple[str, ...]:
    """The line that says where in a sample the trouble is, unless the sample itself is it."""
    return (f"at sample{at}",) if at else ()


def _groups(kinds: list, form: str) -> list[str]:
    """A line for each kind: which samples of the batch are of it."""
    lines = []
    for kind in dict.fromkeys(kinds):
        found = [i for i, k in enumerate(kinds) if k == kind]
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        named = ", ".join(map(str, found[:SHOWN]))
        lines.append(f"sample{'s' * (len(found) > 1)} {named}{more}: {form.format(kind)}")
    return lines


def _like(first: Any, made: Any) -> Any:
    """`made` as an object of the class of `first`, where one can be filled; else a plain dict or list."""
    if type(first) in (dict, list):
        return made
    if isinstance(first, (MutableMapping, MutableSequence)):
        clone = copy.copy(first)  # keeps what the class has besides, such as a default factory
        if isinstance(clone, MutableMapping):
            clone.update(made)
        else:
            clone[:] = made
        return clone
    try:
        return type(first)(made)
    except TypeError:  # its constructor takes something else
        return made


def _alike(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """A batch of what `default_collate` knows by itself."""
    return _collate(batch, "", {})


# By class, as programs add to it: a function of a batch and of this table.
_KNOWN: dict[Any, Callable] = dict.fromkeys(
    (Tensor, np.ndarray, (np.bool_, np.number, np.object_), float, int, str, bytes), _alike
)
default_collate_fn_map = {**_KNOWN}


def default_convert(data: Any) -> Any:
    """A sample with its arrays and NumPy numbers as tensors, and everything else as it is."""
    if isinstance(data, np.ndarray) and data.dtype.kind in HOLDS_NUMBERS:
        return as_tensor(data)
    if isinstance(data, np.generic) and data.dtype.kind in HOLDS_NUMBERS:
        return as_tensor(np.array(data))
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(x) for key, x in data.items()})
    if isinstance(data, tuple):
        made = [default_convert(x) for x in data]
        return type(data)(*made) if hasattr(data, "_fields") else made
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _like(data, [default_convert(x) for x in data])
    return data


default_collate = refusing(default_collate)
