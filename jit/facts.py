"""How values are compared, and how they are shown: what a recording took for granted, and what it found."""

from __future__ import annotations

import struct
import types
from typing import Any

from ..ir.dtypes import DType
from ..ir.types import Device, Type
from ..nn.parameter import is_lazy
from ..runtime import Size, Tensor

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)
IMMUTABLE = (DType, Device, Type, Size)
absent = type("Absent", (), {"__repr__": lambda self: "nothing"})()


class Words(str):
    """What is shown as it is, without quotes."""

    __repr__ = str.__str__


class Refusal(Exception):
    """Why a function can't be recorded, as one sentence."""


def exact(a: Any, b: Any) -> bool:
    """Whether two values are the same in type and bits: 1 is not 1.0, 0.0 is not -0.0, NaN is NaN.

    Containers are compared item by item, in order; what else there is, by identity.
    """
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if kind is complex:
        return exact(a.real, b.real) and exact(a.imag, b.imag)
    if issubclass(kind, (tuple, list)):
        return len(a) == len(b) and all(map(exact, a, b))
    if issubclass(kind, dict):
        return len(a) == len(b) and all(map(exact, a, b)) and all(map(exact, a.values(), b.values()))
    if issubclass(kind, (set, frozenset)):
        return a == b
    if kind is slice:
        return exact((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if kind in PLAIN or issubclass(kind, IMMUTABLE):
        return a == b
    return False


def holds_nan(value: Any) -> bool:
    """Whether a value is NaN, which is found by identity alone, or a container that holds it."""
    if type(value) in (float, complex):
        return value != value
    if type(value) not in _HOLDING:
        return False
    left, seen = [value], set()  # a list may hold itself
    while left:
        o = left.pop()
        if type(o) in (float, complex):
            if o != o:
                return True
        elif type(o) in _HOLDING and id(o) not in seen:
            seen.add(id(o))
            left += o
    return False


_HOLDING = (tuple, list, set, frozenset)


def shown(value: Any) -> str:
    """A value in a few words: plain ones as Python writes them, tensors by their type, the rest by name."""
    if _is_large(value):
        return f"an int of {value.bit_length()} bits"
    text = repr(value) if _spelled(value) else ""
    if text:
        return text if len(text) <= 60 else text[:57] + "..."
    if value is absent:
        return "nothing"
    kind = type(value)
    if issubclass(kind, Tensor) and not is_lazy(value):
        return f"{value._meta}" if kind is Tensor else f"{kind.__name__} {value._meta}"
    if issubclass(kind, type):
        return f"class {type.__dict__['__qualname__'].__get__(value)}"
    if kind in (types.FunctionType, types.BuiltinFunctionType):
        return f"function {value.__qualname__}"
    return f"module {value.__name__}" if kind is types.ModuleType else indefinite(kind)


def literal(value: Any) -> str:
    """A plain value as Python source.  Large ints are in hexadecimal, which Python writes at any size."""
    return hex(value) if _is_large(value) else repr(value)


def _is_large(value: Any) -> bool:
    """Whether Python may refuse to write an int in decimal: its limit can't be set below 640 digits."""
    return type(value) is int and value.bit_length() > 2000


def indefinite(kind: type) -> str:
    """A thing of a class, with its article."""
    name = kind.__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def changed(seen: str, now: str) -> str:
    """How what is shown of a place changed: "1 -> 2"; where both read the same, that it is another one."""
    if seen != now:
        return f"{seen} -> {now}"
    return f"{seen} -> another {now.removeprefix('a ').removeprefix('an ')}"


def _spelled(value: Any, depth: int = 4) -> bool:
    """Whether a value's text runs no code of a user's and asks no tensor: a plain one, or a small container.

    depth: containers within containers that are looked into; one may hold itself.
    """
    if type(value) in (tuple, list, set, dict):
        held = (*value, *value.values()) if type(value) is dict else value
        return depth > 0 and len(value) <= 20 and all(_spelled(x, depth - 1) for x in held)
    return not _is_large(value) and (type(value) in (*PLAIN, Words) or issubclass(type(value), IMMUTABLE))
