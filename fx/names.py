"""Names: of the values in a graph, and of functions, classes and constants in the code made of it."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from importlib import import_module
from typing import Any

ROOT = __package__.partition(".")[0]
# Where Lamina's functions are offered, the room that others know them by first.
ROOMS = (
    "",
    "nn.functional",
    "special",
    "linalg",
    "fft",
    "nn.init",
    "nn.utils",
    "nn",
    "autograd.functional",
    "func",
)
_ILLEGAL = re.compile(r"[^0-9a-zA-Z_]+")
_NUMBERED = re.compile(r"(.*)_(\d+)$")
_CONSTANTS = frozenset({"inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"})


class Namespace:
    """Names that are taken, each by an object or by none."""

    def __init__(self) -> None:
        self._taken: dict[str, Any] = {}
        self._of: dict[int, str] = {}
        self._next: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """A name like `candidate` that nothing else has; the same again for the same object."""
        if obj is not None and id(obj) in self._of:
            return self._of[id(obj)]
        candidate = _ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        matched = _NUMBERED.match(candidate)
        base, number = (matched[1], int(matched[2])) if matched else (candidate, None)
        if number is None or candidate in self._taken:
            number = number if number is not None else self._next.get(base, 0)
        while candidate in self._taken or self._is_illegal(candidate, obj):
            number = (number or 0) + 1
            candidate = f"{base}_{number}"
        self._taken[candidate] = obj
        self._next[base] = number or 0
        if obj is not None:
            self.associate_name_with_obj(candidate, obj)
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Note that an object has a name already."""
        self._of[id(obj)] = name
        self._taken[name] = obj

    def _is_illegal(self, name: str, obj: Any) -> bool:
        if keyword.iskeyword(name) or name in ("getattr", "wrap"):
            return True
        if name in vars(builtins):
            return vars(builtins)[name] is not obj
        return name in _CONSTANTS and not (name in ("torch",) and obj is sys.modules.get(ROOT))

    def copy(self) -> Namespace:
        """A namespace with the same names taken, by nobody known."""
        made = Namespace()
        made._taken, made._next = dict.fromkeys(self._taken), dict(self._next)
        return made


def snake_case(name: str) -> str:
    """`MaxPool2d` as `max_pool2d`."""
    parts = []
    for i, letter in enumerate(name):
        if letter.isupper() and i and (name[i - 1].islower() or name[i - 1].isdigit()) and name[i - 1] != "_":
            parts.append("_")
        parts.append(letter.lower())
    return "".join(parts)


def qualified_name(target: Any) -> str:
    """The dotted name of a function or class, as a program that imports its module would write it."""
    name = (
        getattr(target, "__qualname__", None)
        or getattr(target, "__name__", None)
        or type(target).__qualname__
    )
    module = getattr(target, "__module__", None)
    plain = name.rpartition(".")[2]
    if module is not None and module.partition(".")[0] == ROOT:
        for room in ROOMS:
            held = _room(room)
            for leaf in dict.fromkeys((plain, str(getattr(target, "__name__", plain)))):
                if held is not None and getattr(held, leaf, None) is target:
                    return ".".join(filter(None, ("torch", room, leaf)))
        return f"torch.{module.partition('.')[2]}.{name}"
    if getattr(builtins, plain, None) is target:
        return plain
    if module is None:  # a method descriptor: of its class
        owner = getattr(target, "__objclass__", None)
        return f"{qualified_name(owner)}.{plain}" if owner is not None else plain
    return f"{'operator' if module == '_operator' else module}.{name if '<' not in name else plain}"


def _room(name: str) -> Any:
    return import_module(f"{ROOT}.{name}") if name else import_module(ROOT)


def written(target: Any) -> str:
    """A function or class by its qualified name, anything else by its repr."""
    return qualified_name(target) if callable(target) and hasattr(target, "__name__") else repr(target)
