"""What classes hold, and what becomes of it on the way to an attribute: Python's descriptors."""

from __future__ import annotations

import functools
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ...nn import Module
from ...runtime import Tensor
from ...runtime.places import is_internal
from ..draws import is_numpys
from .facts import Facts
from .kinds import ATOMS, MISSING, PINNED, Function, Method, heap_class, lookup, of_lamina
from .numbers import LIFTED

_TUPLE_GETTER = type(functools._CacheInfo.hits)  # the descriptor of a named tuple's field
_BINDS_IN_C = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
    functools._lru_cache_wrapper,
)  # fmt: skip
# Their attributes are looked up, or written, in ways of their own.
_PECULIAR = (
    type, super, types.ModuleType, types.MethodType, types.GenericAlias, types.UnionType, threading.local,
    weakref.ProxyType, weakref.CallableProxyType,
)  # fmt: skip
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)


def is_plain(hook: Any) -> bool:
    """Whether `__getattribute__` or its kin, found in a class, does what that of `object` does.

    Classes written in C often name object's own anew; of Python's own we know which do otherwise.
    """
    if type(hook) is not types.WrapperDescriptorType:
        return False
    owner = hook.__objclass__
    home = owner.__module__.partition(".")[0]
    return owner is object or owner not in _PECULIAR and (home in sys.stdlib_module_names or home == "numpy")


def dictionary_getter(kind: type) -> Any:
    """The descriptor that gives an instance's own dictionary; None for a class whose instances have none."""
    for base in kind.__mro__:
        found = base.__dict__.get("__dict__")
        if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType):  # as SimpleNamespace's
            return found
    return None


def unset(slot: Any, o: Any) -> bool:
    """Whether an object's slot holds nothing."""
    try:
        slot.__get__(o)
    except AttributeError:
        return True
    return False


@functools.cache
def _dictionary(kind: type) -> types.MappingProxyType:
    """The dictionary of one of Lamina's classes: always the same object, so that guards may be compared."""
    return kind.__dict__


class Binding(Facts):
    """Looks names up in classes, each step as a fact, and binds what is found there."""

    # What the layers above give.
    enter: Callable[..., Any]  # interpret a Python function; UNSUPPORTED where that can't be done
    user: Callable[..., Any]
    read_function: Callable[..., None]
    users: Callable[[], Iterator[Any]]  # the frames that a plain run would have
    import_name: Callable[..., Any]
    call: Callable[..., Any]
    load_cell: Callable[..., Any]
    read_all: Callable[..., None]
    membership: Callable[..., bool]
    compare: Callable[..., Any]
    construct: Callable[..., Any]

    # ---- helps ----
    def word(self, name: str) -> str:
        """A name as a constant in the text of a fact, which has braces for the object alone."""
        return self.const(name) if "{" in name or "}" in name else repr(name)

    def made(self, value: Any) -> Any:
        """What C code has just made: new, unless it was there."""
        if type(value) in ATOMS or issubclass(type(value), (Tensor, *PINNED)) or self.is_known(value):
            return value
        return self.new(value)

    def of_user(self, function: Any) -> bool:
        """Whether a function is Python, and not Lamina's own."""
        return type(function) is Function and not is_internal(function.__code__.co_filename)

    # ---- classes ----
    def class_of(self, o: Any) -> type:
        """`type(o)`."""
        kind = type(o)
        if self.refused or kind in ATOMS or self.is_fresh(o) and kind not in _PROXIES:
            return kind
        if kind in _PROXIES:
            self.refuse("a weak proxy, which stands for another object, was used")
        elif issubclass(kind, threading.local):
            self.refuse("thread-local state was used")
        elif heap_class(kind) and not issubclass(kind, (Tensor, type)) and self.captured(o):
            self.fact(o, "class", 0, "type({o})", kind)
        return kind

    def bases(self, kind: type) -> None:
        """The bases of a class, in the order in which they are asked, become a fact."""
        if heap_class(kind) and not self.is_fresh(kind) and not of_lamina(kind):
            names = "".join([f"{self.const(base)}, " for base in kind.__mro__])
            self.fact(kind, "mro", 0, f"({{o}}.__mro__ == ({names}))", kind.__mro__ == (*kind.__mro__,))

    def of_base(self, base: type, name: str) -> Any:
        """What a class itself holds under a name, not its bases; MISSING where nothing."""
        found = base.__dict__.get(name, MISSING)
        if self.refused or not heap_class(base):
            return found
        own = self.const(_dictionary(base)) if of_lamina(base) else "{o}.__dict__"
        if found is not MISSING:
            return self.fact(base, "own", name, f"{own}[{self.word(name)}]", found, lift=True)
        elif not self.written.has(base, "own", name):
            self.fact(base, "none", name, f"({self.word(name)} in {own})", False)
        return found

    def class_attribute(self, kind: type, name: str) -> Any:
        """What a class or its bases hold under a name, as it stands there; MISSING where none does."""
        if self.refused:
            return lookup(kind, name)
        self.bases(kind)
        for base in kind.__mro__:
            found = self.of_base(base, name)
            if found is not MISSING:
                return found
        return MISSING

    def special(self, o: Any, name: str) -> Any:
        """The method by which Python asks an object itself, as `__len__`; MISSING where it has none."""
        return self.class_attribute(self.class_of(o), name)

    def patched(self, o: Any, name: str) -> Any:
        """What the user put in the place of a special method of tensors; None where it is Lamina's own.

        Which it is becomes a fact.
        """
        if self.refused or not issubclass(type(o), Tensor):
            return None
        held = self.class_attribute(Tensor, name)
        return held if self.of_user(held) else None

    # ---- an object's own dictionary ----
    def own_of(self, o: Any) -> dict[str, Any] | None:
        """An object's own dictionary, read without any of its Python; None where it has none."""
        getter = dictionary_getter(type(o))
        return None if getter is None else getter.__get__(o)

    def own_text(self, kind: type) -> str:
        """The expression of the own dictionary of an object {o}."""
        if issubclass(kind, Module):
            return "fields({o})"
        getter = dictionary_getter(kind)
        if lookup(kind, "__dict__") is getter and is_plain(lookup(kind, "__getattribute__")):
            return "{o}.__dict__"
        return f"{self.const(getter)}.__get__({{o}})"

    # ---- descriptors ----
    def of_descriptor(self, held: Any, name: str) -> Any:
        """`__get__`, `__set__` or `__delete__` of what a class holds; MISSING where it has none."""
        return self.special(held, name) if heap_class(type(held)) else lookup(type(held), name)

    def is_data(self, held: Any) -> bool:
        """Whether what a class holds goes before an object's own dictionary."""
        if type(held) in LIFTED:
            return False
        return any(self.of_descriptor(held, name) is not MISSING for name in ("__set__", "__delete__"))

    def bound(self, held: Any, o: Any, kind: type, name: str) -> Any:
        """What `held`, found in `kind`, gives for `o`; None stands for the class itself."""
        form = type(held)
        if form in LIFTED:
            return held
        if form is Function:
            return held if o is None else self.new(Method(held, o))
        if form is staticmethod:
            return held.__func__
        if form is classmethod:
            inner = held.__func__
            if not callable(inner) or issubclass(type(inner), property):
                self.refuse(f"{name} is a class method around a descriptor")
                return held.__get__(o, kind)
            return self.new(Method(inner, kind))
        getter = self.of_descriptor(held, "__get__")
        if getter is MISSING:
            return held
        if type(getter) is Function:
            return self.call(getter, (held, o, kind))
        if issubclass(type(held), property):
            if o is None:
                return held
            return held.__get__(o, kind) if held.fget is None else self.call(held.fget, (o,))
        if o is None and form in (types.MemberDescriptorType, types.GetSetDescriptorType, _TUPLE_GETTER):
            return held
        if form is types.MemberDescriptorType:
            return self._in_slot(held, o, name)
        if form is types.GetSetDescriptorType:
            return self._in_c(held, o, kind, name)
        if form is _TUPLE_GETTER:
            index = held.__reduce__()[1][0]
            read = f"tuple.__getitem__({{o}}, {index})"
            return self.fact(o, "item", index, read, tuple.__getitem__(o, index), lift=True)
        if form in _BINDS_IN_C or is_numpys(o):
            return self.made(getter(held, o, kind))
        self.refuse(f"{name} is given by a {form.__name__}, which is C code")
        return getter(held, o, kind)

    def _plain_text(self, held: Any, kind: type, name: str) -> str:
        """The expression of a value that C code keeps in an object {o}."""
        plain = lookup(kind, name) is held and name.isidentifier()
        # no Python of the user's may run for it, as __getattr__ would were the value gone
        if plain and is_plain(lookup(kind, "__getattribute__")) and lookup(kind, "__getattr__") is MISSING:
            return f"{{o}}.{name}"
        return f"{self.const(held)}.__get__({{o}})"

    def _in_slot(self, held: Any, o: Any, name: str) -> Any:
        try:
            value = held.__get__(o)
        except AttributeError:
            if not self.written.has(o, "attr", name):
                read = f"{self.const(unset)}({self.const(held)}, {{o}})"
                self.fact(o, "absent", name, read, True, late=False)
            raise
        read = self._plain_text(held, type(o), name)
        return self.fact(o, "attr", name, read, value, lift=True, late=False)

    def _in_c(self, held: Any, o: Any, kind: type, name: str) -> Any:
        """A value that C code gives: one that it keeps is a fact, one that it makes can't be watched."""
        value = held.__get__(o, kind)
        if self.is_fresh(o) or (kind is types.CodeType and type(value) is tuple):  # which never changes
            return self.made(value)
        if type(value) in ATOMS or issubclass(type(value), PINNED) or held.__get__(o, kind) is value:
            return self.fact(o, "attr", name, self._plain_text(held, type(o), name), value)
        self.refuse(f"{kind.__name__}.{name} is made anew by C code at each read")
        return self.new(value)
