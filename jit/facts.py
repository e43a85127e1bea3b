"""What a recording took for granted: facts, and the one function that checks them all.

A fact is an expression that reads something, and how what is read must compare with what the recording saw.
All facts of a recording are compiled into one Python function, so that a check is a few bytecodes, and it
returns the number of the first fact that no longer holds.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.dtypes import DType
from ..ir.types import Device, Type
from ..runtime import Size

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)
IMMUTABLE = (DType, Device, Type, Size)
absent = type("Absent", (), {"__repr__": lambda self: "nothing"})()


@dataclass(frozen=True)
class Fact:
    """`read`, an expression over `names` (written $name in it), must give what it gave.

    test: how it is compared; "is": the same object; "value": equal in type and bits, containers item by item.
    text: what it is, for `explain()`; place: where the function names it.
    """

    text: str
    read: str
    test: str
    seen: Any
    names: dict[str, Any] = field(default_factory=dict)
    place: str = ""

    def now(self) -> Any:
        """What the expression reads now; `absent` where it can't be read."""
        try:
            return eval(self.read.replace("$", ""), {"absent": absent, **self.names})
        except Exception:
            return absent

    def holds(self) -> bool:
        now = self.now()
        return now is self.seen if self.test == "is" else exact(now, self.seen)

    def change(self) -> str:
        """How it differs now, on one line."""
        at = f" ({self.place})" if self.place else ""
        return f"{self.text}: {shown(self.seen)} -> {shown(self.now())}{at}"


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
    if kind in PLAIN or isinstance(a, IMMUTABLE):
        return a == b
    return False


def shown(value: Any) -> str:
    """A value in a few words."""
    text = repr(value) if isinstance(value, (*PLAIN, *IMMUTABLE, tuple, list, dict, set)) else ""
    if text and len(text) <= 60:
        return text
    return text[:57] + "..." if text else f"a {type(value).__name__}" if value is not absent else "nothing"


def compiled(facts: Sequence[Fact]) -> Callable[[], int]:
    """A function that returns -1 where all facts hold, else the number of the first that doesn't."""
    given: dict[str, Any] = {"absent": absent, "exact": exact}
    lines = ["def check():", "  try:", "    at = 0"]
    for number, fact in enumerate(facts):
        names = {old: f"{old}_{number}" for old in fact.names}
        given.update({new: fact.names[old] for old, new in names.items()})
        read = fact.read
        for old in sorted(names, key=len, reverse=True):
            read = read.replace(f"${old}", names[old])
        seen = f"seen_{number}"
        given[seen] = fact.seen
        lines.append(f"    at = {number}")
        if fact.test == "is":
            lines.append(f"    if {read} is not {seen}: return {number}")
        else:
            lines.append(f"    v = {read}")
            lines.append(f"    if v is not {seen} and not exact(v, {seen}): return {number}")
    lines += ["  except Exception: return at", "  return -1"]
    # What is known when the function is made goes in as defaults: locals are the quickest names.
    lines[0] = f"def check({', '.join(f'{name}={name}' for name in given)}):"
    exec("\n".join(lines), given)
    return given["check"]
