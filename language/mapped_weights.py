"""Weights as arrays in the memory of their files, which is read as it is used.

Several processes that map a file share its pages; what is written to an array stays this process's own.
Source: the safetensors format, github.com/huggingface/safetensors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..ir import lazy
from ..ir.dtypes import DType, float32
from ..nn import Module
from ..runtime import Parameter
from ..runtime.checkpoints.own_form import DTYPES
from ..runtime.tensor import tensor_of
from .untrusted import CheckpointError, mapped, parsed, read_object

MOST_HEADER = 100 << 20  # bytes, as the format says
FLOATS = ("f16", "bf16", "f32", "f64")
INDEX = "model.safetensors.index.json"


def map_folder(folder: Path) -> dict[str, np.ndarray]:
    """All arrays of a folder's safetensors files, by name.  Raises CheckpointError."""
    single = folder / "model.safetensors"
    if single.exists():
        return map_file(single)
    index = folder / INDEX
    if not index.exists():
        others = sorted(p.name for p in folder.glob("*.bin")) + sorted(p.name for p in folder.glob("*.pt*"))
        raise CheckpointError(
            f"{folder} has neither model.safetensors nor {INDEX}",
            *([f"{others[0]} is a pickle, which is not read: save it as safetensors"] if others else []),
        )
    told = read_object(index).get("weight_map")
    if not isinstance(told, dict) or not all(type(name) is str for name in told.values()):
        raise CheckpointError(f"{index} has no weight_map from names to files")
    found: dict[str, np.ndarray] = {}
    for name in sorted(set(told.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index} names {name!r}, which is no safetensors file of its folder")
        arrays = map_file(folder / name)
        strangers = [key for key in arrays if told.get(key) != name]
        if strangers:
            raise CheckpointError(
                f"{folder / name} holds {strangers[0]!r}, which {INDEX} has elsewhere or not"
            )
        found.update(arrays)
    absent = [key for key in told if key not in found]
    if absent:
        raise CheckpointError(f"{folder / told[absent[0]]} has no {absent[0]!r}, which {INDEX} says it has")
    return found


def map_file(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, not yet read.  Raises CheckpointError."""
    safetensors = lazy.load("safetensors")
    memory = mapped(path)
    try:
        with safetensors.safe_open(path, framework="numpy"):  # looks at every size and offset
            pass
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no safetensors file, or it is cut short: {error}") from None
    start = 8 + int.from_bytes(memory[:8].tobytes(), "little")
    if start > MOST_HEADER:
        raise CheckpointError(f"{path}: the header is larger than {MOST_HEADER} bytes")
    header = parsed(memory[8:start].tobytes(), path)
    header.pop("__metadata__", None)
    return {name: _array(path, name, entry, memory[start:]) for name, entry in header.items()}


def _array(path: Path, name: str, entry: Any, memory: np.ndarray) -> np.ndarray:
    dtype = DTYPES.get(entry["dtype"])
    if dtype is None:
        raise CheckpointError(f"{path}: {name!r} is of type {entry['dtype']}, which is not known")
    begin, end = entry["data_offsets"]
    part = np.asarray(memory[begin:end])
    if part.ctypes.data % dtype.numpy.itemsize:
        part = part.copy()  # kernels take elements that are aligned
    return part.view(dtype.numpy).reshape(entry["shape"])


def check_weights(arrays: Mapping[str, Any], module: Module, where: Any) -> None:
    """Compare names and shapes of arrays with a module's parameters, before any memory is taken.

    Raises CheckpointError, which lists what is missing, what is unknown, and sizes that differ.
    """
    wanted = dict(module.named_parameters())
    missing = [name for name in wanted if name not in arrays]
    unknown = [name for name in arrays if name not in wanted]
    wrong = [
        f"{name} is {[*arrays[name].shape]}, where config.json asks for {[*parameter.shape]}"
        for name, parameter in wanted.items()
        if name in arrays and tuple(arrays[name].shape) != tuple(parameter.shape)
    ]
    if missing or unknown or wrong:
        raise CheckpointError(
            f"{where}: the weights are not those of the model that config.json describes",
            *(f"missing: {_listed(names)}" for names in [missing] if names),
            *(f"unknown: {_listed(names)}" for names in [unknown] if names),
            *wrong[:4],
        )


def assign_weights(arrays: Mapping[str, Any], module: Module, dtype: DType) -> None:
    """Give a module its parameters: the arrays themselves where they are of the dtype, else converted.

    arrays: NumPy's, or blocks of GGUF, which `array()` makes numbers.
    """
    state = {}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            array = array.array()
        if array.dtype != dtype.numpy:
            array = array.astype(dtype.numpy)
        state[name] = Parameter(tensor_of(array), requires_grad=False)
    module.load_state_dict(state, assign=True)


def stored_dtype(arrays: Mapping[str, np.ndarray], where: Any) -> DType:
    """The dtype that most numbers of a checkpoint have.  Raises CheckpointError for what is no float."""
    counts: dict[DType, int] = {}
    known = {dtype.numpy: dtype for dtype in DTYPES.values()}
    for name, array in arrays.items():
        dtype = known[array.dtype]
        if dtype.short not in FLOATS:
            raise CheckpointError(f"{where}: {name!r} is of type {dtype.name}, and no weight of this model")
        counts[dtype] = counts.get(dtype, 0) + math.prod(array.shape)
    return max(counts, key=counts.__getitem__, default=float32)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more
