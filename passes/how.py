"""How a kernel runs, as text: what `Call.how` may be, each kind by its name and its fields.

    schedule {vector="j", unroll=3, keep=("e",)}
    panels {packed="b", row="i", column="j", rows=12, width=32, block=96, ahead=512}

Fields that have their default are left out.  What a field may hold is what its dataclass says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import lru_cache
from types import GenericAlias
from typing import Any, get_args, get_origin, get_type_hints

from ..ir.errors import GraphError
from ..ir.printing import attr_text
from .llvm.conv_rows import Rows
from .llvm.matmul import Dots, Panels
from .llvm.schedule import Schedule
from .llvm.windows import Windows
from .llvm.winograd import Winograd

KINDS: dict[str, type] = {
    "schedule": Schedule,
    "panels": Panels,
    "dots": Dots,
    "rows": Rows,
    "windows": Windows,
    "winograd": Winograd,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def how_text(how: Any) -> str:
    """The name of its kind and its fields.  Raises GraphError for what is of no known kind."""
    if type(how) not in NAMES:
        raise GraphError(f"how a kernel runs has no text where it is a {type(how).__name__}", *_known())
    held = {field.name: getattr(how, field.name) for field in fields(how)}
    spelled = [
        f"{f.name}={attr_text(_flat(held[f.name]))}" for f in fields(how) if held[f.name] != _default(f)
    ]
    return f"{NAMES[type(how)]} {{{', '.join(spelled)}}}"


def how_from(name: str, attrs: Mapping[str, Any]) -> Any:
    """The value that a name and fields, as a text spells them, stand for.  Raises GraphError."""
    if name not in KINDS:
        raise GraphError(f"no way to run a kernel is called {name!r}", *_known())
    kind = KINDS[name]
    hints, wanted = _hints(kind), {field.name: field for field in fields(kind)}
    if unknown := [key for key in attrs if key not in wanted]:
        raise GraphError(f"{name} has no field {unknown[0]!r}", f"its fields: {', '.join(wanted)}")
    if missing := [key for key, f in wanted.items() if key not in attrs and _default(f) is MISSING]:
        raise GraphError(f"{name} needs its field {missing[0]!r}")
    return kind(**{key: _held(f"{name}.{key}", value, hints[key]) for key, value in attrs.items()})


def _known() -> tuple[str]:
    return (f"the kinds are: {', '.join(KINDS)}",)


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _default(field: Field) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _flat(value: Any) -> Any:
    """Mappings as pairs and sets as tuples, in order: what a text has."""
    if isinstance(value, Mapping):
        return tuple(sorted(value.items()))
    return tuple(sorted(value)) if isinstance(value, frozenset) else value


def _held(place: str, value: Any, hint: Any) -> Any:
    """What a field of that type holds where a text says `value`."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in (int, str, bool, type(None)):
        if type(value) is not hint:
            raise GraphError(f"{place} is {hint.__name__}, not {value!r}")
        return value
    if origin in (tuple, frozenset) or isinstance(origin, type) and issubclass(origin, Mapping):
        if type(value) is not tuple:
            raise GraphError(f"{place} is several values in brackets, not {value!r}")
        if origin is tuple and parts[-1] is not Ellipsis:
            if len(value) != len(parts):
                raise GraphError(f"{place} is {len(parts)} values, not {len(value)}")
            return tuple(_held(place, v, part) for v, part in zip(value, parts, strict=True))
        item = GenericAlias(tuple, parts) if origin not in (tuple, frozenset) else parts[0]
        held = [_held(place, v, item) for v in value]
        return tuple(held) if origin is tuple else frozenset(held) if origin is frozenset else dict(held)
    for part in parts:  # a union
        if type(value) is part:
            return value
    raise GraphError(f"{place} can't be {value!r}")
