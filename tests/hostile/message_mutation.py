"""Changes of protobuf messages that leave them messages: fields say something else, or are others'."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from mutations import EXTREMES

# Sizes that memory might hold, and those that it can't.
SIZES = (16, 100, 1000, 1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28, 1 << 30, 1 << 34, 1 << 40)
NUMBERS = (*EXTREMES, *SIZES, -1, -2, -8, -(1 << 31), -(1 << 63))
REALS = (0.0, -1.0, 0.5, 1e30, -1e30, 1e-30, float("nan"), float("inf"), float("-inf"))
TEXTS = ("", "x", "y", "NOTSET", "SAME_UPPER", "linear", "../x", "a" * 300, "\ud800", "ai.onnx", "ai.onnx.ml")
DEEP = 40  # messages inside of each other, where one is put into itself
LONG = 2000  # elements of a field that is doubled no further


def fields(message: Any) -> list[tuple[Any, Any]]:
    """(message, field) of every field that says something, of the messages inside too."""
    found, todo = [], [message]
    while todo:
        each = todo.pop()
        for field, value in each.ListFields():
            found.append((each, field))
            if field.message_type is not None:
                todo += value if field.is_repeated else [value]
    return found


def number(rng: random.Random, field: Any, old: int) -> int:
    """A number that a field of integers can hold."""
    near = old + rng.choice((-1, 1))
    new = rng.choice((rng.choice(NUMBERS), rng.choice(SIZES), rng.choice(SIZES), rng.randrange(-3, 20), near))
    bits = 32 if "32" in _kind(field) or field.enum_type is not None else 64
    low = 0 if _kind(field).startswith("uint") else -(1 << (bits - 1))
    return min(max(new, low), (1 << bits) - 1 + low)


def _kind(field: Any) -> str:
    names = {
        field.CPPTYPE_INT32: "int32", field.CPPTYPE_INT64: "int64", field.CPPTYPE_UINT32: "uint32",
        field.CPPTYPE_UINT64: "uint64", field.CPPTYPE_ENUM: "int32", field.CPPTYPE_BOOL: "bool",
        field.CPPTYPE_FLOAT: "float", field.CPPTYPE_DOUBLE: "float", field.CPPTYPE_STRING: "text",
        field.CPPTYPE_MESSAGE: "message",
    }  # fmt: skip
    return "bytes" if field.type == field.TYPE_BYTES else names[field.cpp_type]


def value(rng: random.Random, field: Any, old: Any, names: Sequence[str]) -> Any:
    """Another value of a field that holds no message."""
    match _kind(field):
        case "float":
            return rng.choice((*REALS, old * 2))
        case "bool":
            return not old
        case "text":
            return rng.choice((*names, *TEXTS)).encode("utf-8", "replace").decode()
        case "bytes":
            if rng.random() < 0.5 and old and len(old) % 8 == 0:  # whole numbers, sizes among them
                at = rng.randrange(len(old) // 8) * 8
                return old[:at] + (rng.choice(NUMBERS) % (1 << 64)).to_bytes(8, "little") + old[at + 8 :]
            cut = old[: rng.randrange(len(old) + 1)]
            return rng.choice((cut, old + old[:8], bytes(len(old)), b"\xff" * len(old), rng.randbytes(8)))
    return number(rng, field, old)


def altered(rng: random.Random, message: Any, others: Sequence[Any]) -> None:
    """Change a message at one to four places.  others: messages of its type, whose parts may stand in it."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        places = fields(message)
        if not places:
            return
        named = [_several(m, f) for m, f in places if f.name in ("input", "output")]
        names = [name for several in named for name in several if type(name) is str]
        inside, field = rng.choice(places)
        try:
            _change(rng, inside, field, names, others)
        except (TypeError, ValueError):  # a value that the field does not take
            continue


def _several(message: Any, field: Any) -> list[Any]:
    found = getattr(message, field.name)
    return [*found] if field.is_repeated else [found]


def _change(rng: random.Random, inside: Any, field: Any, names: Sequence[str], others: Sequence[Any]) -> None:
    way = rng.randrange(8)
    if way == 0:
        inside.ClearField(field.name)
    elif field.message_type is not None and way < 4:  # one of the same kind from elsewhere
        donor = rng.choice(others)
        alike = [v for m, f in fields(donor) if f.message_type is field.message_type for v in _several(m, f)]
        if alike:
            other = rng.choice(alike)
            if not field.is_repeated:
                getattr(inside, field.name).CopyFrom(other)
            elif way == 1 and len(getattr(inside, field.name)):
                rng.choice(getattr(inside, field.name)).CopyFrom(other)
            else:
                getattr(inside, field.name).add().CopyFrom(other)
    elif field.is_repeated:
        _repeated(rng, inside, field, names, way)
    elif field.message_type is not None:
        if way == 7:
            _nested(getattr(inside, field.name))
    else:
        setattr(inside, field.name, value(rng, field, getattr(inside, field.name), names))


def _repeated(rng: random.Random, inside: Any, field: Any, names: Sequence[str], way: int) -> None:
    several = getattr(inside, field.name)
    at = rng.randrange(len(several))
    if way == 4 and len(several) < LONG:
        several.extend([*several])
    elif way == 5:
        del several[at]
    elif way == 6 and len(several) > 1:
        kept = [*several]
        rng.shuffle(kept)
        del several[:]
        several.extend(kept)
    elif field.message_type is None:
        several[at] = value(rng, field, several[at], names)


def _nested(message: Any) -> None:
    """Put a copy of a message into the first graph inside of itself, again and again."""
    for _ in range(DEEP):
        inner = next((v for m, f in fields(message) if f.name == "g" for v in _several(m, f)), None)
        if inner is None or message.ByteSize() > 1 << 20:
            return
        copy = type(message)()
        copy.CopyFrom(message)
        if type(inner) is type(copy):
            inner.CopyFrom(copy)
