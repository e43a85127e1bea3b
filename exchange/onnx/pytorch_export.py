"""`torch.onnx.export`, as programs call it."""

from __future__ import annotations

import enum
import inspect
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ...ir.errors import ArgumentError
from ...ir.own_files import replacing
from ...runtime import Tensor
from .writing import OPSETS, write

DEFAULT = 20  # the opset where none is asked for


class TrainingMode(enum.Enum):
    """What `training` of PyTorch's export is told; a module is written in the mode that it is in."""

    EVAL, PRESERVE, TRAINING = range(3)


class OperatorExportTypes(enum.Enum):
    """What `operator_export_type` of PyTorch's export is told; ONNX's own operators are written."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = range(4)


class ONNXProgram:
    """A model that was written: its bytes, to be saved."""

    def __init__(self, data: bytes):
        self._data = data

    def save(self, destination: str | os.PathLike) -> None:
        """Write the model as a file."""
        with replacing(os.fspath(destination)) as file:
            file.write(self._data)


def export(
    model: Callable,
    args: Any = (),
    f: str | os.PathLike | IO[bytes] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    **others: Any,
) -> ONNXProgram | None:
    """Write a model as an ONNX file.  Source: PyTorch's torch.onnx.export.

    args: the example's arguments, a tuple, or one tensor; kwargs: those by name.  f: the file, a path or
    opened for writing bytes; without it the model is returned, to be saved.  opset_version: 18 to 26; an
    older one becomes 18, with a warning.  dynamic_axes: by a name of `input_names`, or of a parameter, the
    dimensions that change, with names or as a list.  dynamic_shapes: the same as dictionaries in a tuple or
    by parameter, in which `torch.export.Dim` objects, names and True stand for a size that changes.
    Other arguments of PyTorch's say nothing here: weights are always part of the file, and constants folded.

    Raises ExportError, as of lamina.jit.export, and for ops that ONNX has nothing for.
    """
    given = args if isinstance(args, tuple) else (args,)
    names = _parameters(model, len(given))
    if kwargs:
        bound = inspect.signature(getattr(model, "forward", model)).bind(*given, **kwargs)
        bound.apply_defaults()
        given, names = bound.args, [*bound.arguments][: len(bound.args)]
    opset = DEFAULT if opset_version is None else opset_version
    if opset < OPSETS[0]:
        warnings.warn(f"ONNX models are written in opset {OPSETS[0]} at least, not {opset}", stacklevel=2)
        opset = OPSETS[0]
    dynamic = _changing(names, given, input_names or (), dynamic_axes or {}, dynamic_shapes)
    how = {"dynamic": dynamic, "opset": opset, "input_names": input_names, "output_names": output_names}
    if isinstance(f, (str, os.PathLike)):
        write(model, f, *given, **how)
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        write(model, path, *given, **how)
        data = path.read_bytes()
    if f is None:
        return ONNXProgram(data)
    f.write(data)
    return None


def is_in_onnx_export() -> bool:
    """Whether a model is being written: its code sees no difference."""
    return False


def _parameters(model: Callable, count: int) -> list[str]:
    named = inspect.signature(getattr(model, "forward", model)).parameters.values()
    names = [p.name for p in named if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*names, *map(str, range(len(names), count))][:count]


def _changing(
    names: Sequence[str], given: Sequence[Any], inputs: Sequence[str], axes: Mapping[str, Any], shapes: Any
) -> dict[Any, dict[int, Any]]:
    """What changes, as lamina.jit.export is told: by an argument's number, dimensions and their names."""
    tensors = [at for at, x in enumerate(given) if isinstance(x, Tensor)]
    places = dict(zip(inputs, tensors, strict=False)) | {name: at for at, name in enumerate(names)}
    found: dict[Any, dict[int, Any]] = {}
    outputs = {key for key in axes if key not in places}  # what is returned follows
    for key, said in axes.items():
        if key in outputs:
            continue
        dims = said.items() if isinstance(said, Mapping) else ((d, f"{key}_dim_{d}") for d in said)
        found[places[key]] = dict(dims)
    by_name = dict(zip(names, shapes, strict=False)) if isinstance(shapes, (tuple, list)) else shapes or {}
    for key, said in by_name.items():
        if key not in places:
            raise ArgumentError(
                f"export(dynamic_shapes): there is no argument {key!r}", f"names: {', '.join(names)}"
            )
        dims = said.items() if isinstance(said, Mapping) else enumerate(said or ())
        for dim, size in dims:
            if size is not None and not isinstance(size, int) or size is True:
                found.setdefault(places[key], {})[dim] = _name(key, dim, size)
    return found


def _name(key: str, dim: int, size: Any) -> Any:
    """What a size is called; with its bounds, if it has some."""
    name = (
        size if isinstance(size, str) and size.isidentifier() else getattr(size, "__name__", f"{key}_{dim}")
    )
    least, most = getattr(size, "min", None), getattr(size, "max", None)
    return (name, least, most) if isinstance(least, int) and isinstance(most, int) else name
