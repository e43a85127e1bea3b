"""Subscripts, truth, iteration, membership."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...nn.members import Tracked
from ...runtime import Size, Tensor
from ...runtime.places import is_internal
from ..facts import holds_nan
from .contents import CONTAINERS, SEQUENCES, VALUES, Contents
from .kinds import ATOMS, ITERATORS, MISSING, PINNED, VIEWS, Function, heap_class, lookup
from .numbers import LIFTED, raw

# These hand out what was there before them, not tuples that they make.
_HAND_OUT = (
    type(iter([])), type(reversed([])), type(iter(())), type(iter(set())), type(iter({})),
    type(iter({}.values())), type(iter(collections.deque())),
)  # fmt: skip


class Items(Contents):
    """Reads and writes the items of containers."""

    # ---- reading items ----
    def item(self, o: Any, k: Any) -> Any:
        """`o[k]`.  Raises what Python raises."""
        o, k = self.plain(o), self.plain(k)
        kind = type(o)
        if self.refused:
            return o[k]
        if issubclass(type(o), Tensor):
            if (asked := self.patched(o, "__getitem__")) is not None:
                return self.call(asked, (o, k))
            self.read_deep(k)
            return o[k]
        if kind in ATOMS:
            return self.made(o[self.index(k)])
        if issubclass(type(o), (np.ndarray, np.generic)):
            self.read_all(o)
            self.read_deep(k)
            return self.made(operator.getitem(o, k))
        if kind is types.MappingProxyType:
            return self.item(self.behind(o), k) if not self.is_known(o) else self._item_of_dict(o, k)
        if issubclass(type(o), type):
            return self._item_of_class(o, k)
        getter = self.special(o, "__getitem__")
        if type(getter) is Function:
            return self.call(getter, (o, k))
        if issubclass(type(o), SEQUENCES):
            return self._item_of_sequence(o, self.index(k))
        if issubclass(type(o), dict):
            return self._item_of_dict(o, k)
        if issubclass(type(o), (str, bytes)) or kind in VALUES:
            self.read_value(o)
            return self.made(o[self.index(k)])
        if kind is bytearray and not self.is_fresh(o):
            self.read_value(o)
        elif kind is memoryview or not self.is_fresh(o):
            self.refuse(f"an item of a {kind.__name__} was read")
        return o[k]

    def index(self, k: Any) -> Any:
        """An index as Python's own number; a slice whose ends are such."""
        if type(k) is slice:
            if not self.is_fresh(k) and self.is_known(k):
                for name in ("start", "stop", "step"):
                    self.attribute(k, name)
            ends = [None if each is None else self.index(each) for each in (k.start, k.stop, k.step)]
            return slice(*ends)
        if (asked := self.patched(k, "__index__")) is not None:
            return self.call(asked, (k,))
        if heap_class(type(k)) and not issubclass(type(k), (Tensor, np.generic)):
            asked = self.special(k, "__index__")
            if type(asked) is Function:
                return self.call(asked, (k,))
            if issubclass(type(k), int):
                self.read_value(k)
        return k

    def _item_of_sequence(self, o: Any, k: Any) -> Any:
        base = self.base_of(o)
        if type(k) is slice:
            self.read_all(o)
            return self.new(base.__getitem__(o, k))
        if self.is_moved(o):
            self.read_all(o)
            return base.__getitem__(o, k)
        try:
            value = base.__getitem__(o, k)
        except IndexError:
            self.read_length(o)
            raise
        at = operator.index(k)
        if self.is_written(o) and at < 0:
            at += len(o)
        text = f"{{o}}[{at}]"
        if type(lookup(type(o), "__getitem__")) is Function:
            text = f"{self.const(base)}.__getitem__({{o}}, {at})"
        return self.fact(o, "item", at, text, value, lift=issubclass(type(o), list))

    def _item_of_dict(self, o: Any, k: Any) -> Any:
        if self.key(k, o) is None:
            return o[k]
        base = self.base_of(o)
        if base.__contains__(o, k):
            return self.dict_item(o, k, base.__getitem__(o, k), lift=True)
        self.membership(o, k)
        missing = self.special(o, "__missing__")
        if type(missing) is Function:
            return self.call(missing, (o, k))
        if issubclass(type(o), collections.defaultdict):
            factory = o.default_factory
            if not self.is_fresh(o):
                factory = self.fact(o, "attr", "default_factory", "{o}.default_factory", factory)
            if factory is not None:
                made = self.plain(self.call(factory, ()))
                self.set_item(o, k, made)
                return made
        return o[k]  # which raises

    def _item_of_class(self, o: type, k: Any) -> Any:
        getter = self.special(o, "__getitem__")
        if type(getter) is Function:
            return self.call(getter, (o, k))
        if heap_class(o):
            return self.call(self.attribute(o, "__class_getitem__"), (k,))
        return self.new(operator.getitem(o, k))

    # ---- writing items ----
    def array_changes(self, o: np.ndarray) -> None:
        """A NumPy array is written: one that the run made, and that shows no other's memory, may be."""
        if not self.is_fresh(o) or o.base is not None:
            self.refuse("a NumPy array was written; make it a tensor")

    def set_item(self, o: Any, k: Any, value: Any) -> None:
        """`o[k] = value`.  Raises what Python raises."""
        k = self.plain(k)
        if self.refused:
            o[k] = raw(value)
            return
        if issubclass(type(o), Tensor):
            if (asked := self.patched(o, "__setitem__")) is not None:
                self.call(asked, (o, k, value))
                return
            self.read_deep(k)
            self.read_deep(value)
            o[k] = value
            return
        if issubclass(type(o), np.ndarray):
            self.array_changes(o)
            self.read_deep(k)
            self.read_deep(value)
            o[k] = self.plain(value)
            return
        if issubclass(type(o), Tracked) and not self.is_fresh(o):
            self.refuse("a module's own dictionary was written; assign to the module's attribute")
        setter = self.special(o, "__setitem__")
        if type(setter) is Function and not self.refused:
            self.call(setter, (o, k, value))
        elif issubclass(type(o), dict):
            self._set_in_dict(o, k, value)
        elif issubclass(type(o), (list, collections.deque)):
            self._set_in_list(o, self.index(k), value)
        else:
            if not (self.is_fresh(o) and issubclass(type(o), bytearray)):
                self.refuse(f"an item of a {type(o).__name__} was written")
            o[k] = self.plain(value)

    def _set_in_dict(self, o: dict[Any, Any], k: Any, value: Any) -> None:
        if self.is_fresh(o):
            self.key(k, o)
            o[k] = self.plain(value)
            return
        if self.key(k, o) is None:
            o[k] = raw(value)
            return
        self.membership(o, k)  # whether it is a new one makes the length, the order and what is in it
        self.drops_item(o, k)
        self.writes_to(o)
        o[k] = raw(value)
        if self.source(o) is None:
            self.refuse(f"an item of a {type(o).__name__} was written that nothing known leads to")
        self.wrote(o, "item", k, value)
        self.effect(operator.setitem, o, k, value)

    def _set_in_list(self, o: Any, k: Any, value: Any) -> None:
        if type(k) is slice or self.is_fresh(o) or self.is_moved(o) or type(o) is not list:
            value = self.plain(value)
        if self.is_fresh(o):
            if type(k) is slice:
                value = self._spread(value)
            o[k] = value
            return
        if type(k) is slice:
            self.read_all(o)
            value = self._spread(value)
            self.drops_all(o, self.base_of(o).__getitem__(o, k))
            self.writes_to(o)
        else:
            self.read_length(o)
            self._drops_at(o, k)
            self.writes_at(o)
        o[k] = raw(value)
        if self.source(o) is None:
            self.refuse(f"an item of a {type(o).__name__} was written that nothing known leads to")
        if type(k) is not slice and not self.is_moved(o):
            at = operator.index(k)
            self.wrote(o, "item", at + len(o) if at < 0 else at, value)
        self.effect(operator.setitem, o, k, value)

    def _drops_at(self, o: Any, k: Any) -> None:
        """An item of a list is about to be replaced."""
        at, length = operator.index(k), len(o)
        at += length if at < 0 else 0
        if not self.is_fresh(o) and 0 <= at < length:
            held = self.base_of(o).__getitem__(o, at)
            read = f"{self.const(self.base_of(o))}.__getitem__({{o}}, {at})"
            self.drops(o, "item", at, None if self.is_moved(o) else read, held)

    def _spread(self, value: Any) -> list[Any]:
        """What a list is about to take in, as a list of its own."""
        return self.new([self.plain(each) for each in self.unpack(value)])

    def delete_item(self, o: Any, k: Any) -> None:
        """`del o[k]`.  Raises what Python raises."""
        k = self.plain(k)
        if self.refused:
            del o[k]
            return
        if issubclass(type(o), Tracked) and not self.is_fresh(o):
            self.refuse("a module's own dictionary was written; delete the module's attribute")
        deleter = self.special(o, "__delitem__")
        if type(deleter) is Function and not self.refused:
            self.call(deleter, (o, k))
            return
        if self.is_fresh(o):
            if issubclass(type(o), dict):
                self.key(k, o)
            del o[k]
            return
        if issubclass(type(o), dict):
            if self.key(k, o) is None:
                del o[k]
                return
            self.membership(o, k)
            self.drops_item(o, k)
            self.writes_to(o)
            del o[k]
            self.wrote(o, "item", k)
        elif issubclass(type(o), (list, collections.deque)):
            k = self.index(k)
            self.read_all(o)
            self.drops_all(o, [*self.base_of(o).__iter__(o)])
            self.writes_to(o)
            del o[k]
        else:
            self.refuse(f"an item of a {type(o).__name__} was deleted")
            del o[k]
            return
        if self.source(o) is None:
            self.refuse(f"an item of a {type(o).__name__} was deleted that nothing known leads to")
        self.effect(operator.delitem, o, k)

    # ---- truth ----
    def truth(self, o: Any) -> bool:
        """`bool(o)`.  Raises what Python raises."""
        if type(o) in LIFTED:
            found = bool(raw(o))
            if not self.refused:
                self.check(f"bool({o.expression}) is not {found}", f"whether {o.expression} is zero")
            return found
        kind = type(o)
        if self.refused or kind in ATOMS or issubclass(kind, (np.generic, *ITERATORS)):
            return bool(o)
        if issubclass(kind, Tensor) and self.patched(o, "__bool__") is None:
            return bool(o)
        if issubclass(kind, PINNED) and not (issubclass(kind, type) and heap_class(kind)):
            return bool(o)
        if issubclass(kind, np.ndarray):
            self.read_all(o)
            return bool(o)
        asked = self.special(o, "__bool__")
        if type(asked) is Function:
            found = self.plain(self.call(asked, (o,)))
            if type(found) is not bool:
                raise TypeError(f"__bool__ should return bool, returned {type(found).__name__}")
            return found
        if asked is None:
            return bool(o)  # which raises
        length = self.special(o, "__len__") if asked is MISSING else MISSING
        if type(length) is Function:
            found = operator.index(self.plain(self.call(length, (o,))))
            if found < 0:
                raise ValueError("__len__() should return >= 0")
            return found > 0
        if issubclass(kind, CONTAINERS):
            if self.is_written(o) or heap_class(kind):
                self.read_length(o)
            else:
                self.fact(o, "bool", 0, "(not {o})", not o)
        elif asked is not MISSING or length is not MISSING:
            self.read_value(o)
        return bool(o)

    # ---- iteration ----
    def iterator(self, o: Any) -> Any:
        """`iter(o)`.  Raises TypeError."""
        o = self.plain(o)
        kind = type(o)
        if self.refused:
            return iter(o)
        if kind in ATOMS or issubclass(kind, Tensor) and self.patched(o, "__iter__") is None:
            return self.new(iter(o))
        if issubclass(type(o), ITERATORS) or kind in VIEWS:
            if not self.is_fresh(o):
                self.refuse(f"a {kind.__name__} from outside was gone through, which that uses up")
            return self.new(iter(o))
        if issubclass(type(o), np.ndarray):
            self.read_all(o)
            return self.new(iter(o))
        asked = self.special(o, "__iter__")
        if type(asked) is Function:
            found = self.call(asked, (o,))
            if lookup(type(found), "__next__") is MISSING:
                raise TypeError(f"iter() returned non-iterator of type '{type(found).__name__}'")
            return found
        if issubclass(type(o), (*CONTAINERS, types.MappingProxyType)):
            self.in_order(o)
            self.read_all(o)
        elif issubclass(type(o), (str, bytes, bytearray)) or kind in VALUES:
            self.read_value(o)
        elif asked is MISSING:
            getter = self.special(o, "__getitem__")
            if type(getter) is Function:
                return self.new(self._by_index(o, getter))
        elif asked is not None and not self.is_fresh(o):
            self.refuse(f"a {kind.__name__}, which is C code, was gone through")
        return self.new(iter(o))

    def _by_index(self, o: Any, getter: Any) -> Iterator[Any]:
        """Python's old way through a sequence: by index, until IndexError."""
        at = 0
        while True:
            try:
                value = self.call(getter, (o, at))
            except (IndexError, StopIteration):
                return
            yield value
            at += 1

    def next_of(self, it: Any) -> Any:
        """`next(it)`.  Raises StopIteration."""
        if self.refused:
            return next(it)
        asked = lookup(type(it), "__next__")
        if type(asked) is Function and not is_internal(asked.__code__.co_filename):
            return self.call(self.special(it, "__next__"), (it,))
        if not self.is_fresh(it):
            self.refuse(f"a {type(it).__name__} from outside was gone through, which that uses up")
        value = next(it)
        if type(value) is tuple and not issubclass(type(it), _HAND_OUT):
            self._new_tuple(value)
        return value

    def _new_tuple(self, value: tuple[Any, ...]) -> None:
        """Mark what zip() and its kin make, and the tuples in it that another of them made."""
        if not self.is_known(value):
            self.new(value)
            for each in value:
                if type(each) is tuple:
                    self._new_tuple(each)

    def unpack(self, o: Any, limit: int | None = None) -> list[Any]:
        """The items of any iterable; with a limit, at most one more than it."""
        if self.refused:
            return [*o] if limit is None else [each for each, _ in zip(o, range(limit + 1))]
        if issubclass(type(o), (list, tuple)) and type(lookup(type(o), "__iter__")) is not Function:
            self.special(o, "__iter__")
            self.read_all(o)
            return [*o]
        it = self.iterator(o)
        found: list[Any] = []
        while limit is None or len(found) <= limit:
            try:
                found.append(self.next_of(it))
            except StopIteration:
                break
        return found

    # ---- membership ----
    def contains(self, o: Any, x: Any) -> bool:
        """`x in o`.  Raises what Python raises."""
        o, x = self.plain(o), self.plain(x)
        kind = type(o)
        if self.refused or issubclass(kind, Tensor) and self.patched(o, "__contains__") is None:
            return x in o
        if kind is Size:
            return self._among([*o], x)
        if issubclass(type(o), (str, bytes)):
            self.read_value(o)
            self.read_value(x)
            return x in o
        if issubclass(type(o), np.ndarray):
            self.read_all(o)
            self.read_deep(x)
            return x in o
        asked = self.special(o, "__contains__")
        if type(asked) is Function:
            return self.truth(self.call(asked, (o, x)))
        if issubclass(type(o), (dict, set, frozenset)):
            return self.membership(o, x)
        if kind is types.MappingProxyType:
            return self.membership(o, x) if self.is_known(o) else self.contains(self.behind(o), x)
        if issubclass(type(o), SEQUENCES):
            return self._among(self.unpack(o), x)
        if kind in VIEWS:
            return self._in_view(o, x)
        if asked is MISSING:
            return self._among(self.iterator(o), x)
        if asked is None:
            return x in o  # which raises
        if kind is range or kind is bytearray:
            self.read_value(o)
            if type(x) not in ATOMS:
                self.refuse(f"a {type(x).__name__} was looked for in a {kind.__name__}")
        else:
            self.refuse(f"a {kind.__name__}, which is C code, was asked what is in it")
        return x in o

    def _among(self, items: Any, x: Any) -> bool:
        if issubclass(type(items), list):
            if holds_nan(x):
                self.asks_for_nan(items)
            if type(x) in ATOMS and all(type(each) in ATOMS for each in items):
                return x in items
            items = self.new(iter(items))
        while True:
            try:
                each = self.next_of(items)
            except StopIteration:
                return False
            if holds_nan(x):
                self.asks_for_nan(each)
            if each is x or self.truth(self.compare("==", each, x)):
                return True

    def _in_view(self, o: Any, x: Any) -> bool:
        if not self.is_fresh(o):
            self.refuse("a dictionary's view from outside was asked what is in it")
        elif type(o) is not type({}.values()):
            held = self.behind(o.mapping)
            k = x[0] if type(x) is tuple and len(x) == 2 and type(o) is type({}.items()) else x
            if type(o) is type({}.keys()):
                return self.membership(held, k)
            self.read_deep(x)
            self.read_all(held, deep=True)
        else:
            return self._among([*o], x)
        return x in o
