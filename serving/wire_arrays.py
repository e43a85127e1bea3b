"""Arrays as requests and answers carry them: nested lists, flat bytes, safetensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..ir import dtypes
from ..jit.lamina_model import ModelError, tensors
from .bounded_json import NOT_FINITE, parsed, written
from .refusals import Refusal

# What the Open Inference Protocol calls the dtypes that models are served with; safetensors calls them as
# Lamina does, in capitals.
DATATYPES = {
    "bool": "BOOL", "u8": "UINT8", "i8": "INT8", "i16": "INT16", "i32": "INT32", "i64": "INT64",
    "f16": "FP16", "bf16": "BF16", "f32": "FP32", "f64": "FP64",
}  # fmt: skip
NUMPY = {d.short: np.dtype(d.numpy) for d in dtypes.EVERY if d.short in DATATYPES}
SHORT = {dtype: short for short, dtype in NUMPY.items()}
HEADER_VALUES = 10_000  # in the header of a safetensors body: some hundred arrays
MOST_DIMS = 64


@dataclass(frozen=True)
class Spec:
    """An input or output.  shape: sizes, and names of those that change."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def described(self) -> dict:
        return {"name": self.name, "dtype": self.dtype, "shape": [*self.shape]}

    def check(self, array: np.ndarray) -> None:
        """Raises Refusal for an array of another type."""
        fits = len(array.shape) == len(self.shape) and all(
            isinstance(own, str) or own == size for own, size in zip(self.shape, array.shape)
        )
        if array.dtype != NUMPY[self.dtype] or not fits:
            came = f"{SHORT.get(array.dtype, array.dtype)}[{', '.join(map(str, array.shape))}]"
            raise self.refused(f"{came} came")

    def refused(self, why: str) -> Refusal:
        return Refusal(400, f"input {self.name!r} is {self}: {why}", param=self.name)


def in_order(given: Mapping[str, Any], specs: Sequence[Spec]) -> list[tuple[Spec, Any]]:
    """What came for each input.  Raises Refusal, which names those that are missing or unknown."""
    names = [spec.name for spec in specs]
    missing = [name for name in names if name not in given]
    unknown = [name[:100] for name in given if name not in names][:5]
    if missing or unknown:
        takes = ", ".join(f"{spec.name}: {spec}" for spec in specs)
        told = [f"missing: {name}" for name in missing] + [f"not among them: {name}" for name in unknown]
        raise Refusal(400, f"the model takes {takes}; {'; '.join(told)}", param=(missing + unknown)[0])
    return [(spec, given[spec.name]) for spec in specs]


# ---- nested lists ------------------------------------------------------------------------------------------
def of_lists(value: Any, spec: Spec, shape: Sequence[int] | None = None) -> np.ndarray:
    """The array of nested lists of numbers.  shape: where the lists are flat, or nested as this says.

    Raises Refusal for lists that are ragged, and for what the dtype does not hold.
    """
    sizes, flat = _flattened(value, spec)
    if shape is not None:
        if math.prod(shape) != len(flat):
            raise spec.refused(f"the shape {[*shape]} has {math.prod(shape)} elements, the data {len(flat)}")
        sizes = [*shape]
    kinds = set(map(type, flat))
    wanted = NUMPY[spec.dtype]
    try:
        if wanted.kind == "b":
            if not kinds <= {bool}:
                raise spec.refused(f"{_named(kinds - {bool})} came")
            array = np.array(flat, wanted)
        elif wanted.kind in "iu":
            if not kinds <= {int}:
                raise spec.refused(f"{_named(kinds - {int})} came")
            wide = np.array(flat, np.int64)
            about = np.iinfo(wanted)
            if wide.min(initial=0) < about.min or wide.max(initial=0) > about.max:
                raise spec.refused(f"it holds numbers from {about.min} to {about.max}, others came")
            array = wide.astype(wanted)
        else:
            array = _floats(flat, kinds, spec, wanted)
    except OverflowError:
        raise spec.refused("a number came that is too large for it") from None
    return _shaped(array, sizes, spec)


def _shaped(array: np.ndarray, sizes: Sequence[int], spec: Spec) -> np.ndarray:
    """The array in this shape, which has as many elements.  Raises Refusal."""
    try:
        return array.reshape(sizes)
    except ValueError:  # no elements, as one size is 0, and others whose product NumPy can't count
        raise spec.refused(f"the shape {[*sizes]} came") from None


def _flattened(value: Any, spec: Spec) -> tuple[list[int], list]:
    """The shape of nested lists, and what they hold in one list."""
    sizes: list[int] = []
    level = [value]
    while level and type(level[0]) is list:
        lengths = set(map(len, level)) if set(map(type, level)) == {list} else set()
        if len(lengths) != 1 or len(sizes) == MOST_DIMS:
            raise spec.refused("the lists that came are ragged")
        sizes.append(lengths.pop())
        level = list(chain.from_iterable(level))
    if list in set(map(type, level)):
        raise spec.refused("the lists that came are ragged")
    return sizes, level


def _floats(flat: list, kinds: set[type], spec: Spec, wanted: np.dtype) -> np.ndarray:
    infinite = 0  # of these words; other infinities were numbers like 1e999
    if str in kinds:
        odd = next((x for x in flat if type(x) is str and x not in NOT_FINITE), None)
        if odd is not None:
            raise spec.refused(f"the string {odd[:50]!r} came")
        infinite = flat.count("Infinity") + flat.count("-Infinity")
        flat = [NOT_FINITE[x] if type(x) is str else x for x in flat]
    if not kinds <= {int, float, str}:
        raise spec.refused(f"{_named(kinds - {int, float, str})} came")
    wide = np.array(flat, np.float64)
    with np.errstate(over="ignore"):
        array = wide.astype(wanted)
    if np.count_nonzero(np.isinf(array)) != infinite:
        raise spec.refused("a number came that is too large for it")
    return array


def _named(kinds: set[type]) -> str:
    words = {
        type(None): "null",
        dict: "an object",
        str: "a string",
        bool: "true or false",
        float: "a fraction",
    }
    return " and ".join(sorted(words.get(kind, "a number") for kind in kinds))


def to_lists(array: np.ndarray) -> Any:
    """Nested lists of numbers that JSON can say."""
    if SHORT.get(array.dtype) in ("f16", "bf16"):
        array = array.astype(np.float32)
    return array.tolist()


# ---- bytes -------------------------------------------------------------------------------------------------
def of_bytes(data: memoryview, spec: Spec, shape: Sequence[int]) -> np.ndarray:
    """The array of a shape whose elements stand in little-endian bytes.  Raises Refusal."""
    wanted = NUMPY[spec.dtype]
    if math.prod(shape) * wanted.itemsize != len(data):
        raise spec.refused(
            f"{spec.dtype}{[*shape]} has {math.prod(shape) * wanted.itemsize} bytes, {len(data)} came"
        )
    array = np.frombuffer(data, np.uint8 if wanted.kind == "b" else wanted)
    if wanted.kind == "b":
        if array.max(initial=0) > 1:
            raise spec.refused("bytes came that are neither 0 nor 1")
        array = array.view(wanted)
    return _shaped(array, shape, spec)


def to_bytes(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# ---- safetensors -------------------------------------------------------------------------------------------
def of_safetensors(body: bytes) -> dict[str, np.ndarray]:
    """The arrays in a safetensors body, over its bytes.  Raises Refusal for a damaged one."""
    length = int.from_bytes(body[:8], "little")
    if len(body) < 8 or length > len(body) - 8:
        raise Refusal(400, "the body is no safetensors file: its header is larger than itself")
    header = parsed(body[8 : 8 + length], HEADER_VALUES, 4)
    if not isinstance(header, dict):
        raise Refusal(400, "the body is no safetensors file: its header is no object")
    try:
        arrays = tensors(body)
    except ModelError as error:
        told = str(error).partition("damaged: ")[2]
        raise Refusal(400, f"the body is no safetensors file that is served: {told[:200]}") from None
    return {name: x.view(NUMPY["bf16"]) if x.dtype == np.uint16 else x for name, x in arrays.items()}


def to_safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file of these arrays."""
    header: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": SHORT[array.dtype].upper(), "shape": [*array.shape], "data_offsets": [begin, end],
        }  # fmt: skip
    text = written(header)
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *map(to_bytes, arrays.values())])
