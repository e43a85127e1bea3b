"""What the runtime must know of a compiled program beside its code: plain data, so that it can be kept.

    [3, ["Launches", "net", ["x"], [["f32", [2, 3]]], ...]]

As text it is its format and its fields: a dataclass is its name and its fields in their order, a tuple is a
list.  The annotations of the fields say what may be read back, and nothing else is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import chain
from types import NoneType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

import numpy as np

from ...ir.kernel.types import NUMPY
from .. import cache as disk
from .memory_plan import MemoryPlan
from .program import Array

Kind = tuple[str, tuple[int, ...]]  # an array's element type and shape

LIMIT = 1 << 47  # bytes that a process can address


@dataclass(frozen=True)
class Manifest:
    """A program without its code.

    names: of the params.  into: for each result the param whose memory it goes to.  arena: bytes.  parts:
    what is run, in order.  checks: the kernels whose indices the program's own code checks.
    """

    FORMAT: ClassVar[int]  # of the text and of all that the code relies on: part of the key in the cache

    name: str
    names: tuple[str, ...]
    params: tuple[Kind, ...]
    results: tuple[Kind, ...]
    into: tuple[int | None, ...]
    constants: tuple[Kind, ...]
    arena: int
    parts: tuple[Any, ...]
    checks: tuple[str, ...]

    @classmethod
    def of(cls, plan: MemoryPlan, parts: tuple[Any, ...], checks: tuple[str, ...], **others: Any) -> Self:
        """The manifest of a planned program.  others: the fields that this kind of manifest has besides."""
        program = plan.program
        names = tuple(param.name for param in program.params)
        params, results, constants = map(_kinds, (program.params, program.results, program.constants))
        return cls(
            program.name, names, params, results, program.into, constants, plan.arena, parts, checks, **others
        )

    @property
    def written(self) -> list[int]:
        """The params that are overwritten."""
        return [at for at in self.into if at is not None]

    def json(self) -> str:
        """As text, which `from_json` makes the same manifest of."""
        return json.dumps([self.FORMAT, _plain(self)])

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Raises ValueError for anything but a manifest of this kind and format that can be meant."""
        try:
            data = json.loads(text)
        except RecursionError:
            raise ValueError("a manifest of too many brackets") from None
        if type(data) is not list or len(data) != 2 or data[0] != cls.FORMAT:
            raise ValueError("a manifest of another format")
        manifest = _reader(cls)(data[1])
        if not manifest.is_sound():
            raise ValueError("a manifest that means nothing")
        return manifest

    def is_sound(self) -> bool:
        """Whether its numbers and names can be meant."""
        kinds = (*self.params, *self.results, *self.constants)
        return (
            all(0 <= size < LIMIT for size in (self.arena, *chain.from_iterable(shape for _, shape in kinds)))
            and all(dtype in NUMPY for dtype, _ in kinds)
            and all(0 <= at < len(self.params) for at in self.written)
            and (len(self.names), len(self.into)) == (len(self.params), len(self.results))
        )

    def pack(self, constants: Sequence[np.ndarray], objects: Sequence[bytes] = ()) -> bytes:
        """A whole program as bytes.  objects: its code, where that is not kept by itself."""
        return disk.pack(self.json().encode(), *(value.tobytes() for value in constants), *objects)

    @classmethod
    def unpack(cls, data: bytes) -> tuple[Self, list[np.ndarray], list[bytes]]:
        """The manifest, constants and objects that were packed.  Raises ValueError for anything else."""
        text, *pieces = disk.unpack(data)
        manifest = cls.from_json(text)
        return manifest, *manifest.unpacked(pieces)

    def unpacked(self, pieces: Sequence[bytes]) -> tuple[list[np.ndarray], list[bytes]]:
        """The constants and the objects that stand behind it.  Raises ValueError for what these are not."""
        count = len(self.constants)
        constants = [
            np.frombuffer(piece, NUMPY[dtype]).reshape(shape)
            for piece, (dtype, shape) in zip(pieces[:count], self.constants, strict=True)
        ]
        return constants, [*pieces[count:]]


def _kinds(arrays: Sequence[Array]) -> tuple[Kind, ...]:
    return tuple((array.dtype, array.shape) for array in arrays)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [*map(_plain, value)]
    if is_dataclass(value):
        return [type(value).__name__, *(_plain(getattr(value, field.name)) for field in fields(value))]
    return value


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Reads what `_plain` made of a value of this type.  It raises ValueError for anything else."""
    if get_origin(kind) is tuple:
        return _tuple_reader(*get_args(kind))
    options = get_args(kind) or (kind,)
    atoms = tuple(option for option in options if option in (str, int, float, bool, NoneType))
    dataclasses = {option.__name__: _fields_reader(option) for option in options if is_dataclass(option)}

    def read(data: Any) -> Any:
        if type(data) in atoms:
            return data
        if type(data) is not list or not data or type(data[0]) is not str or data[0] not in dataclasses:
            raise ValueError(f"{kind}: another type")
        return dataclasses[data[0]](data[1:])

    return read


def _tuple_reader(first: Any, *others: Any) -> Callable[[Any], tuple]:
    same = _reader(first)
    each = [same, *map(_reader, others)] if others != (...,) else None

    def read(data: Any) -> tuple:
        if type(data) is not list:
            raise ValueError("no list where a tuple was")
        if each is None:
            return tuple(map(same, data))
        return tuple(reader(item) for reader, item in zip(each, data, strict=True))

    return read


def _fields_reader(kind: Any) -> Callable[[list], Any]:
    hints = get_type_hints(kind)
    readers = [_reader(hints[field.name]) for field in fields(kind)]
    return lambda data: kind(*(reader(item) for reader, item in zip(readers, data, strict=True)))
