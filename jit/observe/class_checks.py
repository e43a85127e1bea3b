"""What `isinstance`, `issubclass`, `callable` and class patterns ask of classes: each step is a fact.

C code asks the class of the object, its bases, then its `__class__`.  An abstract class answers by its
caches, which only `register()` empties, or by what the bases of the other class hold.
"""

from __future__ import annotations

import _abc
import abc
import sys
import types
import typing
from typing import Any

from ...runtime import Tensor
from .binding import is_plain
from .contents import Contents
from .kinds import ATOMS, MISSING, Function, heap_class, lookup, of_lamina
from .numbers import raw

_PATTERNS = 1 << 5 | 1 << 6  # bits of a class's __flags__: whether it matches a sequence, a mapping
# Homes of metaclasses that Python knows, and of one whose answer stays as it was when a tensor was made.
_OWN_METAS = ("builtins", "abc", "_py_abc", "typing", "enum", "lamina.runtime.tensor")
_protocol_names: Any = typing._get_protocol_attrs  # type: ignore[attr-defined]


def is_instance(facts: Contents, o: Any, kinds: Any) -> bool:
    """`isinstance(o, kinds)`.  Raises TypeError."""
    o = raw(o)
    if type(o) is not kinds:
        _class_that_shows(facts, o)
        _kinds(facts, kinds, o)
    else:
        facts.class_of(o)
    return isinstance(o, kinds)


def is_subclass(facts: Contents, kind: Any, kinds: Any) -> bool:
    """`issubclass(kind, kinds)`.  Raises TypeError."""
    if issubclass(type(kind), type) and kind is not kinds:
        facts.bases(kind)
    _kinds(facts, kinds, kind, of_class=True)
    return issubclass(kind, kinds)


def is_callable(facts: Contents, o: Any) -> bool:
    """`callable(o)`."""
    if heap_class(type(o)) and not issubclass(type(o), Tensor):
        facts.special(o, "__call__")
    return callable(o)


def matches(facts: Contents, o: Any) -> int:
    """The bits that say whether an object's class is a sequence or a mapping to patterns."""
    kind = facts.class_of(o)
    if heap_class(kind):  # which register() may make one at any time
        facts.fact(kind, "asked", "flags", f"({{o}}.__flags__ & {_PATTERNS})", kind.__flags__ & _PATTERNS)
    return kind.__flags__


def _class_that_shows(facts: Contents, o: Any) -> None:
    """The class of an object with its bases, and the class that it gives out for its own."""
    kind = facts.class_of(o)
    facts.bases(kind)
    if facts.refused or not heap_class(kind) or of_lamina(kind) or kind in ATOMS:
        return
    held = facts.class_attribute(kind, "__class__")
    if held is not object.__dict__["__class__"] or not is_plain(lookup(kind, "__getattribute__")):
        facts.refuse(f"isinstance() asks a {kind.__name__} for its __class__, from C code")
    else:
        facts.class_attribute(kind, "__getattribute__")


def _kinds(facts: Contents, kinds: Any, asked: Any, of_class: bool = False) -> None:
    """What `isinstance` and `issubclass` ask of the classes on their right."""
    if issubclass(type(kinds), (tuple, types.UnionType)):
        facts.read_all(kinds) if issubclass(type(kinds), tuple) else facts.same(kinds)
        for kind in kinds if issubclass(type(kinds), tuple) else kinds.__args__:
            _kinds(facts, kind, asked, of_class)
        return
    if not issubclass(type(kinds), type):  # an alias of typing's
        origin = getattr(kinds, "__origin__", None)
        for kind in kinds.__args__ if origin is typing.Union else (origin,) if origin else ():
            _kinds(facts, kind, asked, of_class)
    if issubclass(type(kinds), abc.ABCMeta):  # whose register() may be called at any time
        facts.fact(_abc, "asked", "token", "{o}.get_cache_token()", _abc.get_cache_token())
        if getattr(kinds, "_is_protocol", False) and kinds is not typing.Protocol:
            _protocol(facts, kinds, asked, of_class)
    meta = type(kinds)
    for name in ("__instancecheck__", "__subclasscheck__"):
        check = facts.class_attribute(meta, name) if meta.__module__ not in _OWN_METAS else MISSING
        if type(check) is Function and check.__module__ not in _OWN_METAS:
            facts.refuse(f"{meta.__name__}.{name} answers isinstance(), from C code")
    hook = getattr(kinds, "__subclasshook__", None)
    inner = getattr(hook, "__func__", None)
    if type(inner) is Function and inner.__module__ not in sys.stdlib_module_names | {"collections.abc"}:
        facts.refuse(f"{kinds.__name__}.__subclasshook__ answers isinstance(), from C code")


def _protocol(facts: Contents, protocol: Any, asked: Any, of_class: bool) -> None:
    """What a protocol looks up: its names in the class and its bases, then in the object itself."""
    if facts.refused:
        return
    facts.bases(protocol)
    for base in protocol.__mro__:
        if heap_class(base) and not facts.is_fresh(base) and base.__module__ != "typing":
            names = facts.const(frozenset(base.__dict__))
            facts.fact(base, "asked", "names", f"({{o}}.__dict__.keys() == {names})", True)
    kind = asked if of_class else type(asked)
    if not issubclass(type(kind), type) or not heap_class(kind):
        return
    for name in sorted(_protocol_names(protocol)):
        held = facts.class_attribute(kind, name)
        if of_class:
            continue
        runs = held is not MISSING and type(held) is not Function and type(
            facts.of_descriptor(held, "__get__")
        ) is Function  # fmt: skip
        fallback = facts.class_attribute(kind, "__getattr__")
        if runs or issubclass(type(held), property) or facts.of_user(fallback):
            facts.refuse(
                f"isinstance() with the protocol {protocol.__name__} asks a {kind.__name__} for {name}, "
                "which is given by Python, from C code"
            )
            return
        facts.attribute(asked, name, None)
