"""What containers hold: keys, single items, lengths, and all of it.

What a run reads of a container is guarded as it was before the run wrote to it.  Single items are facts of
their own; what goes through a container takes all of it for granted, its order included.
"""

from __future__ import annotations

import collections
import datetime
import dis
import functools
import gc
import re
import sys
import types
from enum import Enum
from functools import cache
from operator import is_
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ...runtime import Tensor
from ..facts import exact, holds_nan
from .attributes import Attributes
from .fresh import NAN
from .heap import key_of, place_of
from .kinds import ATOMS, ITERATORS, KEYS, MISSING, PINNED, VIEWS, Function, heap_class, lookup
from .names import library_class

_NAMES = frozenset((
    "hash", "tuple", "frozenset", "type", "id", "len", "str", "int", "float", "bool", "repr", "isinstance",
    "sorted", "NotImplemented", "round", "abs", "super",
))  # fmt: skip
_METHODS = frozenset((
    "__hash__", "__eq__", "lower", "upper", "strip", "casefold", "encode", "items", "keys", "values",
))  # fmt: skip
_WRITES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_DEREF", "DELETE_", "IMPORT_",
           "YIELD_", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_BUILD_CLASS", "MAKE_FUNCTION")  # fmt: skip
_LOADS_METHODS = sys.version_info >= (3, 12)  # LOAD_ATTR does, and says so by its lowest bit


def is_quiet(function: FunctionType) -> bool:
    """Whether a function only reads attributes, and calls nothing but what Python has for values."""
    home = (function.__module__ or "").partition(".")[0]
    return home in sys.stdlib_module_names or _only_reads(function.__code__)


@cache
def _only_reads(code: CodeType) -> bool:
    for step in dis.get_instructions(code):
        if step.opname.startswith(_WRITES):
            return False
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval not in _NAMES:
            return False
        method = step.opname == "LOAD_METHOD" or (
            _LOADS_METHODS and step.opname == "LOAD_ATTR" and bool((step.arg or 0) & 1)
        )
        if method and step.argval not in _METHODS:
            return False
    return True


DEEPEST = 100  # containers within one another that are read
SEQUENCES = (list, tuple, collections.deque)
CONTAINERS = (*SEQUENCES, dict, set, frozenset)
# Objects of C in which C code finds nothing that could change.
_OF_C = (
    np.dtype, types.MethodType, types.GenericAlias, types.UnionType,
    re.Pattern, re.Match,
)  # fmt: skip
# What goes through dictionaries and sets by the places of their tables, and why that must not go on.
OF_TABLES = (
    type(iter({})), type(iter({}.values())), type(iter({}.items())), type(reversed({})),
    type(reversed({}.values())), type(reversed({}.items())), type(iter(set())),
)  # fmt: skip
CHANGED_WITHIN = "keys of a dictionary or a set changed while it was gone through: go through a list of them"
# Special methods that C code asks for no value: those that make, copy and describe.
_NOT_ASKED = frozenset((
    "__new__", "__init__", "__init_subclass__", "__class_getitem__", "__set_name__", "__getnewargs__",
    "__getnewargs_ex__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__copy__",
    "__deepcopy__", "__replace__", "__repr__", "__dir__", "__enter__", "__exit__", "__call__",
    "__annotate__", "__annotate_func__", "__post_init__",
))  # fmt: skip
# Classes of C whose objects are values, and never change.
VALUES = (range, datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)
# Python's numbers and texts, and how to get the bare one out of an object of a class that derives from them.
_BARE: dict[type, Any] = {
    int: int.__int__, float: float.__float__, str: str.__str__, complex: complex.__complex__,
    bytes: bytes.__bytes__,
}  # fmt: skip


def keys_are(o: Any, keys: list[Any]) -> bool:
    """Whether going through `o` gives these objects or, for plain values, ones of their types and bits."""
    return len(o) == len(keys) and all(map(is_, o, keys)) or exact([*o], keys)


def lies(o: Any) -> str:
    """How the items of a set lie in its table, as far as C code that copies it can tell."""
    copy = set(o)
    places = {id(each): at for at, each in enumerate(o)}
    return f"{o.__sizeof__()} {copy.__sizeof__()} {[places[id(each)] for each in copy]}"


class Contents(Attributes):
    """Reads what containers hold."""

    # ---- keys ----
    def by_value(self, k: Any) -> bool:
        """Whether a key is found by its value, which no Python of the user's looks at."""
        kind = type(k)
        if kind in ATOMS:
            return True
        if issubclass(kind, (tuple, frozenset)):
            methods = (tuple.__hash__, tuple.__eq__, frozenset.__hash__, frozenset.__eq__)
            return lookup(kind, "__hash__") in methods and lookup(kind, "__eq__") in methods and all(
                map(self.by_value, k)
            )  # fmt: skip
        return issubclass(kind, (int, str, bytes, float)) and not any(
            type(lookup(kind, name)) is Function for name in ("__hash__", "__eq__")
        )

    def hashed(self, k: Any) -> None:
        """Take for granted what a key is made of: a tuple that the run made may hold numbers that change."""
        if self.by_value(k) and (self.is_known(k) or self.is_fresh(k)):
            self.read_deep(k)

    def key(self, k: Any, o: Any) -> str | None:
        """The text of a key; None, after refusing where it matters, if no later call could find it."""
        if not self._hash_is_read(k, o):
            return None
        if holds_nan(k):
            self.refuse(NAN)
            return None
        self.hashed(k)
        if self.is_fresh(o):
            return ""
        if self.by_value(k):
            return self.key_word(k) if type(k) in (str, bytes) else self.guards.key_text(k)
        if issubclass(type(k), PINNED) or self.is_known(k):
            return self.source(k)
        self.refuse(f"a {type(k).__name__} made in this run, or reached unseen, was looked up")
        return None

    def _hash_is_read(self, k: Any, o: Any) -> bool:
        """See to it that a key's own hash is run like all Python of the user's; whether that can be."""
        kind = type(k)
        if issubclass(kind, (tuple, frozenset)) and not self.by_value(k):
            return all(self._hash_is_read(each, ()) for each in k)
        if not heap_class(kind) or issubclass(kind, (Tensor, type)):
            return True
        there = self.is_known(k) or self.is_fresh(k)
        hasher = self.special(k, "__hash__") if there else lookup(kind, "__hash__")
        if type(hasher) is Function and hasher is not Enum.__hash__:
            if not any(k is each for each in o):
                self.refuse(f"a {kind.__name__}, which hashes itself in Python, was looked up by its value")
                return False
            if not self._is_quiet(hasher) or not self._is_quiet(lookup(kind, "__eq__")):
                self.refuse(f"the hash of a {kind.__name__} does more than read its attributes; it runs once")
                return False
            self.call(hasher, (k,))
        return True

    def _is_quiet(self, method: Any) -> bool:
        return type(method) is not Function or is_quiet(method)

    def key_word(self, k: str | bytes) -> str:
        """A text as a key, which may hold braces."""
        text = repr(k)
        return self.const(k) if "{" in text or "}" in text else text

    def membership(self, o: Any, k: Any) -> bool:
        """Whether a dictionary or a set holds a key; what it held before this run becomes a fact."""
        base = self.base_of(o)
        text = None if self.refused else self.key(k, o)
        if text and not (self.written.has(o, "item", k) or self.written.has(o, "in", k)):
            read = f"({text} in {{o}})"
            if type(lookup(type(o), "__contains__")) is Function:
                read = f"{base.__name__}.__contains__({{o}}, {text})"
            self.fact(o, "in", k, read, base.__contains__(self.before(o), k))
        return base.__contains__(o, k)

    def base_of(self, o: Any) -> Any:
        """The builtin class of a container, whose methods no subclass has overridden."""
        return next(base for base in (*CONTAINERS, types.MappingProxyType) if issubclass(type(o), base))

    def dict_item(self, o: Any, k: Any, value: Any, lift: bool = False) -> Any:
        """`value`, which a dictionary holds under a key.  lift: see `fact`."""
        text = None if self.refused else self.key(k, o)
        standing = self.standing(o, "item", key_of(k)) if o in self.shadow else None
        if standing is not None:
            return standing if lift else self.plain(standing)
        if not text:
            return value
        if self.is_written(o) and not self.written.has(o, "item", k):
            if self.before(o).get(k, MISSING) is not value:
                return value  # put there by this run, in one go with others
        return self.fact(o, "item", k, self._item_text(o, text), value, lift=lift)

    def _item_text(self, o: Any, text: str) -> str:
        """The expression of an item of a dictionary {o}."""
        return f"{{o}}[{text}]" if type(o) in (dict, types.MappingProxyType) else f"item({{o}}, {text})"

    def drops_item(self, o: Any, k: Any) -> None:
        """What a dictionary holds under a key is about to go."""
        if self.refused or self.is_fresh(o) or not dict.__contains__(o, k):
            return
        text = self.key(k, o)
        self.drops(o, "item", k, f"dict.get({{o}}, {text})" if text else None, dict.get(o, k))

    def open(self, o: Any) -> None:
        """C code goes through a container from here on: what is put there now is read unseen."""
        if not issubclass(type(o), (tuple, frozenset)):
            self.shadow.open(o)

    def changing(self, o: Any) -> bool:
        """Whether a dictionary that was there holds lifted numbers, or such as keep changing."""
        if type(o) is not dict or self.refused or not self.is_known(o):
            return False
        if o in self.shadow:
            return True
        lift = self.numbers.lift
        return bool(lift) and any(
            (self.known.spelled(o, "item", k), "item") in lift for k in o if type(k) in ATOMS
        )

    def go_through_keys(self, o: dict) -> None:
        """What going through a dictionary gives becomes a fact, but for its values."""
        self._read_keys(o, self.before(o))
        self.shadow.enter(o)

    def open_view(self, o: Any) -> None:
        """C code goes through a view of a dictionary, if it is one."""
        if type(o) in VIEWS and self.is_fresh(o):
            held = self.behind(o.mapping)
            if type(o) in KEYS:
                self.go_through_keys(held)
            elif self.is_fresh(held):
                self.shadow.bare(held)
                self.open(held)
            else:
                self.read_all(held)
                self.open(held)

    # ---- lengths ----
    def read_length(self, o: Any, lift: bool = False) -> Any:
        """How long a container was before the run becomes a fact; lift: where it keeps changing, an input."""
        base = self.base_of(o)
        read = "len({o})"
        if type(lookup(type(o), "__len__")) is Function:
            read = f"{self.const(base)}.__len__({{o}})"
        return self.fact(o, "len", 0, read, base.__len__(self.before(o)), lift=lift)

    def asks_for_nan(self, *values: Any) -> None:
        """C code looks for values among others by identity and by `==`: refuse to do so with NaN."""
        if not self.refused and any(map(holds_nan, values)):
            self.refuse(NAN)

    # ---- the order of sets ----
    def in_order(self, o: Any) -> None:
        """The order of a set is asked: what it holds must give it, not how its table came to be."""
        if self.refused or not issubclass(type(o), (set, frozenset)) or len(o) < 2:
            return
        if id(o) in self.fresh.tables if self.is_fresh(o) else self.is_written(o):
            self.refuse("the order of a set hangs on the table of one that was there before; sort its items")

    def of_table(self, made: Any, *sources: Any) -> Any:
        """A new set that C code made of others: how those lie in their tables becomes a fact."""
        if issubclass(type(made), (set, frozenset)) and self.is_fresh(made):
            for source in sources:
                if not issubclass(type(source), (set, frozenset)) or source is made:
                    continue
                if id(source) in self.fresh.tables or self.is_written(source):
                    self.fresh.tables.add(id(made))
                elif self.is_known(source) and not self.refused:
                    self.fact(source, "asked", "table", f"{self.const(lies)}({{o}})", lies(source))
        return made

    def writes_to(self, o: Any, *keys: Any) -> None:
        """A container that was there is about to change in any way; keys: only by what is put there."""
        self.changes_keys(o, *keys)
        self.written.writes_to(o)

    def changes_keys(self, o: Any, *keys: Any) -> None:
        """The keys of a table are about to change: who goes through it goes on as the table happens to lie.

        What an iterator gives next, if anything, hangs on where keys once stood.
        """
        if self.refused or id(o) not in self.shadow.entered or keys and all(k in o for k in keys):
            return
        self.shadow.entered.discard(id(o))
        for it in gc.get_referrers(o):
            if type(it) not in OF_TABLES:
                continue
            if not self.is_fresh(it):
                self.refuse(CHANGED_WITHIN)
            self.shadow.spoilt.add(id(it))

    def goes_on(self, it: Any) -> None:
        """Something is about to be taken out of an iterator."""
        if not self.shadow.spoilt or self.refused:
            return
        inside, seen = [it], set()
        while inside:
            each = inside.pop()
            if id(each) in self.shadow.spoilt:
                self.refuse(CHANGED_WITHIN)
                return
            if issubclass(type(each), (tuple, *ITERATORS)) and id(each) not in seen:
                seen.add(id(each))
                if type(each) is not types.GeneratorType:  # which takes out of others by what it runs
                    inside += gc.get_referents(each)

    # ---- reading in whole ----
    def read_value(self, o: Any) -> None:
        """The value of an object that can't change, or of one that C code makes bytes of, becomes a fact."""
        if self.refused or self.is_fresh(o) or type(o) in ATOMS:
            return
        for base, bare in _BARE.items():
            if issubclass(type(o), base):
                self.fact(o, "value", 0, f"{self.const(bare)}({{o}})", bare(o))
                return
        kind = type(o)
        if kind is bytearray:
            self.fact(o, "value", 0, "bytes({o})", bytes(o))
        elif kind in VALUES:
            self.fact(o, "value", 0, f"({{o}} == {self.const(o)})", True)
            self.fact(o, "text", 0, "repr({o})", repr(o))
        elif kind is types.MappingProxyType:
            self.read_all(o)
        elif kind not in VIEWS or not self.is_fresh(o):
            self.refuse(f"a {kind.__name__}, which is C code, was asked")

    def read_all(self, o: Any, deep: bool = False) -> None:
        """Take for granted all that a container holds; deep: and all in that, as C code may look there."""
        if self.refused or type(o) in ATOMS or deep and ("read", id(o)) in self.busy:
            return
        if len(self.busy) >= DEEPEST:
            self.refuse(f"{DEEPEST} containers within one another were read")
            return
        self.busy.add(("read", id(o)))
        try:
            self._read_all(o, deep)
        finally:
            self.busy.discard(("read", id(o)))

    def read_settings(self, o: Any) -> None:
        """What a container of C has besides its items."""
        for kind, name in ((collections.deque, "maxlen"), (collections.defaultdict, "default_factory")):
            if issubclass(type(o), kind):
                self.fact(o, "attr", name, f"{{o}}.{name}", getattr(o, name))

    def _read_all(self, o: Any, deep: bool) -> None:
        self.shadow.bare(o)
        self.read_settings(o)  # what C code makes of it may have them, too
        if issubclass(type(o), SEQUENCES):
            self.read_length(o)
            base = next(base for base in SEQUENCES if issubclass(type(o), base))
            own = type(lookup(type(o), "__getitem__")) is Function
            for at, value in enumerate([*base.__iter__(self.before(o))]):
                if self.refused:
                    return
                text = f"{self.const(base)}.__getitem__({{o}}, {at})" if own else f"{{o}}[{at}]"
                self.fact(o, "item", at, text, value)
                if deep:
                    self.read_deep(value)
        elif issubclass(type(o), (dict, set, frozenset)):
            held = self.before(o)
            self._read_keys(o, held)
            for k in [*self.base_of(o).__iter__(held)]:
                if self.refused:
                    return
                if issubclass(type(o), dict):
                    value = dict.__getitem__(held, k)
                    text = "" if self.is_fresh(o) or self.refused else self.key(k, o) or ""
                    self.fact(o, "item", k, self._item_text(o, text), value)
                    if deep:
                        self.read_deep(value)
                if deep:
                    self.read_deep(k)
        elif type(o) is types.MappingProxyType:
            self.read_all(self.behind(o), deep)
        elif issubclass(type(o), np.ndarray) and not self.is_fresh(o):
            if id(o) in self.fresh.shown:
                self.refuse("numpy() handed out a tensor's memory, and it was read")
            elif not self.is_known(o):
                self.refuse("a NumPy array that nothing known leads to was read")
            elif o.dtype.hasobject:
                self.refuse("a NumPy array of objects was read")
            else:
                self.guards.read_array(o)

    def _read_keys(self, o: Any, held: Any) -> None:
        """What going through a dictionary or a set gives, in order, becomes a fact."""
        if self.is_fresh(o) or place_of(o, "keys", 0) in self.known.facts or self.refused:
            return
        base = next(
            base for base in (collections.OrderedDict, dict, set, frozenset) if issubclass(type(o), base)
        )
        keys = [*base.__iter__(held)]
        if any(map(holds_nan, keys)):
            self.refuse(NAN)
            return
        name = self.const(keys)
        for at, k in enumerate(keys):
            if self.by_value(k) and not heap_class(type(k)):
                continue
            if issubclass(type(k), Tensor):
                self.note(f"{name}[{at}]", k, True, f"a key of {self.path(o)}")
            elif not issubclass(type(k), PINNED) and not self.is_known(k):
                if not self.captured(o):
                    self.refuse(
                        f"a {type(o).__name__} of objects was gone through, which came with the arguments"
                    )
                    return
                self.pin(k, f"a key of {self.path(o)}")
            elif not self.captured(k):  # met in a slot, which must still hold this key
                self.note(f"{name}[{at}]", k, True, f"a key of {self.path(o)}")
        read = "{o}"
        if type(lookup(type(o), "__iter__")) is Function:
            read = f"[*{self.const(base)}.__iter__({{o}})]"
        self.fact(o, "keys", 0, f"{self.const(keys_are)}({read}, {name})", True)

    def same(self, o: Any) -> None:
        """An object that can't change, or that nobody does, must be the one it was."""
        if self.is_fresh(o) or self.refused or (self.is_known(o) and self.captured(o)):
            return
        self.fact(o, "is", 0, f"({{o}} is {self.const(o)})", True)

    def constant(self, o: Any) -> Any:
        """A container that stands in code, with those in it: new, unless the run was given the very object.

        CPython makes one object of equal constants of a file, so an argument or a global may be it.
        """
        for item in () if type(o) is slice else o:
            if type(item) in (tuple, frozenset) and item:
                self.constant(item)
        if self.is_known(o):
            self.same(o)
            return o
        return self.fresh.constant(o)

    def read_deep(self, *values: Any) -> None:
        """Take for granted all that can be reached from values that C code or Lamina is given."""
        for o in values:
            self._read_deep(o)

    def _read_deep(self, o: Any) -> None:
        kind = type(o)
        if self.refused or kind in ATOMS or issubclass(kind, (Tensor, *PINNED, *ITERATORS)):
            if kind is Function or issubclass(kind, functools.partial):  # which may stand in a slot
                self.same(o)
            return
        if kind in (*CONTAINERS, collections.OrderedDict, collections.defaultdict, types.MappingProxyType):
            self.in_order(o)
            self.read_all(o, deep=True)
        elif kind is slice:
            self.shadow.bare(o)
            for name in ("start", "stop", "step"):
                self.read_deep(self.attribute(o, name))
        elif issubclass(kind, (np.ndarray, np.generic)):
            self.read_all(o)
        elif heap_class(kind) and not library_class(kind):
            if issubclass(kind, tuple) and not self._overrides(kind):
                self.read_all(o, deep=True)  # a named tuple
            elif issubclass(kind, tuple(_BARE)) and not self._overrides(kind):
                self.read_value(o)
            else:
                self.refuse(f"a {kind.__name__} was given to C code, which may look at anything in it")
        elif kind in VALUES or kind is bytearray:
            self.read_value(o)
        elif not heap_class(kind) and kind is not object and not issubclass(kind, _OF_C):
            self.refuse(f"a {kind.__name__} was given to C code, which may look at anything in it")

    def _overrides(self, kind: type) -> bool:
        """Whether a class has Python answer where C code asks."""
        return any(type(lookup(kind, name)) is Function for name in (
            "__eq__", "__hash__", "__len__", "__iter__", "__getitem__", "__bool__", "__index__", "__str__",
            "__int__", "__float__", "__format__", "__lt__", "__contains__",
        )) or any(
            name not in _NOT_ASKED and name.startswith("__") and self._written_by_user(lookup(kind, name))
            for base in kind.__mro__ if heap_class(base) for name in base.__dict__
        )  # fmt: skip

    def _written_by_user(self, held: Any) -> bool:
        if not self.of_user(held):
            return False
        return (held.__module__ or "").partition(".")[0] not in sys.stdlib_module_names

    def behind(self, proxy: types.MappingProxyType) -> Any:
        """The mapping that a mapping proxy shows."""
        return gc.get_referents(proxy)[0]
