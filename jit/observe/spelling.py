"""How a place of the heap is spelled to a reader: `thing.extra`, `the global scale`, the keys of `steps`.

Some facts say of a place only that something is there, or in what order; a reader is told what that is.
"""

from __future__ import annotations

from typing import Any

from ...nn import Module
from ...nn.members import fields
from ..facts import absent, exact, shown
from .frames import UNBOUND, contents
from .kinds import lookup

# What a fact is about, where it is not the value of an attribute or an item.
_ATTRIBUTES = ("attr", "own", "absent", "none", "has", "member")
_ITEMS = ("item", "in")
_OF = {
    "len": "the length of {}", "keys": "the keys of {}", "bool": "whether {} is true", "is": "{}",
    "value": "what {} holds", "text": "the text of {}", "mro": "the bases of {}",
    "refers": "what {} refers to", "kept": "what {} keeps", "dies": "whether {} has a __del__", "all": "{}",
    "end": "{}",
}  # fmt: skip
MODULE = "module "  # begins the path of another module's globals
PEEKED = ("absent", "none", "has", "member", "in", "keys", "mro", "empty")


def spelled(path: str, kind: str, key: Any) -> str:
    """What a reader calls a place.  path: of the object that it belongs to; kind, key: see `Facts.fact`."""
    if path == "globals" and kind in _ITEMS:
        return f"the global {key}"
    if path.startswith(MODULE) and kind in _ITEMS:
        return f"{path.removeprefix(MODULE)}.{key}"
    if kind in _ATTRIBUTES:
        return f"{path}.{key[1] if kind == 'member' else key}"
    if kind == "class":
        return f"{path}.__class__"
    if kind in _ITEMS:
        return f"{path}[{shown(key) if type(key) is int or not isinstance(key, int) else key}]"
    if kind == "closure":
        return f"variable {key} that {path} closes over"
    if kind == "context":
        return f"the context variable {path}"
    return _OF[kind].format(path) if kind in _OF else f"{kind} {shown(key)} of {path}"


def peek(o: Any, kind: str, key: Any) -> Any:
    """What stands at a place of which a fact says whether anything does, or all the keys.

    It runs no code of the user's.
    """
    if kind in ("in", "keys"):
        base = next((base for base in (dict, set, frozenset) if issubclass(type(o), base)), None)
        if base is None:
            return absent
        if kind == "keys":
            return [*base.__iter__(o)]
        found = next((k for k in base.__iter__(o) if exact(k, key)), absent)
        return dict.get(o, key, absent) if base is dict else found
    if kind == "mro":
        return o.__mro__
    if kind == "empty":
        found = contents(o)
        return absent if found is UNBOUND else found
    if kind == "none":
        return type.__dict__["__dict__"].__get__(o).get(key, absent)
    if kind == "member":
        which, key = key
        return fields(o)[which].get(key, absent)
    own = fields(o) if issubclass(type(o), Module) else dictionary_of(o)
    if key in own:
        return own[key]
    held = lookup(type(o), key)
    try:
        return held.__get__(o) if type(held) is _SLOT else absent
    except AttributeError:
        return absent


def dictionary_of(o: Any) -> dict[str, Any]:
    """An object's own dictionary, whatever its class would have `__dict__` give."""
    try:
        return object.__getattribute__(o, "__dict__")
    except AttributeError:  # it has slots alone
        return {}


class _Slotted:
    __slots__ = ("x",)


_SLOT = type(vars(_Slotted)["x"])
