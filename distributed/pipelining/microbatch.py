"""Cutting the arguments of a step into microbatches, and putting what comes of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.errors import ArgumentError, ShapeError
from ...ir.ops.join import cat
from ...runtime import Tensor


class TensorChunkSpec:
    """Along which dim a tensor is cut into microbatches; the first unless said."""

    def __init__(self, split_dim: int):
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: Sequence[int]) -> tuple[TensorChunkSpec, ...]:
        """One for each of several arguments."""
        return tuple([TensorChunkSpec(dim) for dim in chunk_dims])

    @staticmethod
    def from_dict(chunk_dims: Mapping[str, int]) -> dict[str, TensorChunkSpec]:
        """One for each of several named arguments."""
        return {name: TensorChunkSpec(dim) for name, dim in chunk_dims.items()}


class _Replicate:
    """Says that an argument is given to every microbatch as it is."""


def cut(name: str, value: Any, spec: Any, count: int) -> list[Any]:
    """The parts of one argument, of equal sizes; what is no tensor goes to each.

    spec: a TensorChunkSpec, a dim, or None for the first dim.  Raises ShapeError where it does not come out
    even.
    """
    if not isinstance(value, Tensor) or isinstance(spec, _Replicate) or spec is _Replicate:
        return [value] * count
    dim = spec.split_dim if isinstance(spec, TensorChunkSpec) else 0 if spec is None else spec
    if not isinstance(dim, int):
        raise ArgumentError(f"{name}: a TensorChunkSpec or a dim says how it is cut, not {spec!r}")
    if not -value.ndim <= dim < value.ndim or value.shape[dim] % count:
        raise ShapeError(
            f"{name}: a dim {dim} that parts into {count} microbatches",
            f"{name}: {value._meta}",
            "leave samples out (DataLoader's drop_last=True), or choose another n_microbatches",
        )
    size = value.shape[dim] // count
    return [value.narrow(dim, i * size, size) for i in range(count)]


def cut_all(args: Sequence[Any], specs: Any, count: int) -> list[tuple[Any, ...]]:
    """The arguments of each microbatch."""
    chosen = [None] * len(args) if specs is None else list(specs)
    if len(chosen) != len(args):
        raise ArgumentError(f"args_chunk_spec: one for each of {len(args)} arguments, not {len(chosen)}")
    parts = [cut(f"argument {i}", x, s, count) for i, (x, s) in enumerate(zip(args, chosen))]
    return [tuple([part[i] for part in parts]) for i in range(count)]


def cut_named(kwargs: Mapping[str, Any], specs: Any, count: int) -> list[dict[str, Any]]:
    """The named arguments of each microbatch."""
    chosen = {} if specs is None else dict(specs)
    parts = {name: cut(f"argument {name}", x, chosen.get(name), count) for name, x in kwargs.items()}
    return [{name: part[i] for name, part in parts.items()} for i in range(count)]


def merged(outputs: Sequence[Any], spec: Any) -> Any:
    """The outputs of all microbatches as those of the whole batch: tensors one behind the other."""
    if isinstance(outputs[0], (tuple, list)):
        specs = spec if isinstance(spec, (tuple, list)) else [spec] * len(outputs[0])
        return tuple([merged([out[k] for out in outputs], specs[k]) for k in range(len(outputs[0]))])
    if not isinstance(outputs[0], Tensor):
        return list(outputs)
    dim = spec.split_dim if isinstance(spec, TensorChunkSpec) else spec or 0
    return cat(list(outputs), dim) if outputs[0].ndim else list(outputs)
