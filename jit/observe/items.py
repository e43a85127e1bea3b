"""Subscripts, truth, iteration, membership."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ...nn.members import Tracked
from ...runtime import Size, Tensor, ops
from ...runtime.places import is_internal
from ..facts import holds_nan, shown
from .contents import CONTAINERS, SEQUENCES, VALUES, Contents
from .heap import key_of, size_of
from .indices import opened, part, put, told
from .kinds import (
    ATOMS,
    ITEMS,
    ITERATORS,
    KEYS,
    MISSING,
    PINNED,
    VALUES_OF,
    VIEWS,
    Function,
    heap_class,
    lookup,
)
from .lifted_numbers import liftable
from .numbers import LIFTED, LiftedFloat, LiftedInt, LiftedSize, is_number, raw
from .parts import Reason

# These hand out what was there before them, not tuples that they make.
_HAND_OUT = (
    type(iter([])), type(reversed([])), type(iter(())), type(iter(set())), type(iter({})),
    type(iter({}.values())), type(iter(collections.deque())),
)  # fmt: skip


_LISTED = (list, tuple, set, frozenset, dict, range)  # in which numbers are found by their values


_FEW = 64  # items of a slice that are told apart, lest one that changes makes all of them anew
_LATE = (LiftedInt, slice, tuple)  # an index that may hold lifted numbers


class Places:
    """Goes through a list, tuple or dictionary that the run made; lifted numbers in it stay lifted.

    No code of the user's gets hold of it: a loop does, or a `zip` that is marked as lifting.  how: "items" or
    "values" of a dictionary, None for a sequence.
    """

    def __init__(self, reader: Items, o: Any, how: str | None):
        self.reader, self.o, self.how, self.at, self.size = reader, o, how, 0, size_of(o)
        self.keys = None if how is None else [*o]

    def __iter__(self) -> Places:
        return self

    def __next__(self) -> Any:
        at, self.at = self.at, self.at + 1
        if self.keys is None:
            if at >= size_of(self.o):
                raise StopIteration
            return self.reader.item(self.o, at)
        if size_of(self.o) != self.size:
            raise RuntimeError("dictionary changed size during iteration")
        if at >= len(self.keys):
            raise StopIteration
        if self.keys[at] not in self.o:
            raise RuntimeError("dictionary keys changed during iteration")
        value = self.reader.item(self.o, self.keys[at])
        return value if self.how == "values" else self.reader.filled(tuple, (self.keys[at], value))


class _ByIndex:
    """What Python goes through in its old way, by index until IndexError, for a class without `__iter__`."""

    def __init__(self, item: Callable[[int], Any]):
        self._item = item

    def __getitem__(self, at: int) -> Any:
        return self._item(at)


class Items(Contents):
    """Reads and writes the items of containers."""

    # ---- reading items ----
    def item(self, o: Any, k: Any) -> Any:
        """`o[k]`.  Raises what Python raises."""
        if type(o) is LiftedSize and not self.refused:
            return self._of_sizes(o, self.index(self.bare_index(k)))
        o = self.plain(o)
        if issubclass(type(o), Tensor) and type(k) in _LATE and not self.refused:
            k = told(self, k)
            if self.numbers.about and self.patched(o, "__getitem__") is None:
                k = opened(self, o, k)
        if issubclass(type(o), Tensor) and self.sizes.concern(o, k) and self.sizes.are_sizes(k):
            if self.patched(o, "__getitem__") is None:
                self._read_index(k)
                return self.sizes.call(operator.getitem, (o, k), {})
        if self.numbers.about and issubclass(type(o), Tensor) and type(k) in _LATE and not self.refused:
            if self.patched(o, "__getitem__") is None and (found := part(self, o, k)) is not None:
                return found
        if type(k) is LiftedInt and type(o) in (list, tuple) and (found := self._number_at(o, k)) is not None:
            return found
        k = self.bare_index(k)
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
        if type(k) is slice and issubclass(type(o), collections.deque):
            return o[k]  # raises
        if issubclass(type(o), SEQUENCES):
            return self._item_of_sequence(o, self.index(k))
        if issubclass(type(o), dict):
            return self._item_of_dict(o, k)
        if issubclass(type(o), (str, bytes)) or kind in VALUES:
            self.read_value(o)
            return self.made(o[self.index(k)])
        if kind is bytearray:
            k = self.index(k)
            if not self.is_fresh(o):
                self.read_value(o)
        elif kind is memoryview or not self.is_fresh(o):
            self.refuse(f"an item of a {kind.__name__} was read")
        return o[k]

    def _read_index(self, k: Any) -> None:
        """Take an index for granted, but for sizes in it, which are guarded as they are used."""
        for each in self.unpack(k, lift=True) if type(k) is tuple else (k,):
            if type(each) is slice:
                if self.is_known(each) and not self.is_fresh(each):
                    for name in ("start", "stop", "step"):
                        self.attribute(each, name)
            elif type(each) not in LIFTED:
                self.read_deep(each)

    def bare_index(self, k: Any) -> Any:
        """An index of which the numbers are guarded, those of slices in it too."""
        for each in k if type(k) is tuple else (k,):
            if type(each) is slice:
                self.shadow.bare(each)
        return self.plain(k)

    def index(self, k: Any) -> Any:
        """An index as Python's own number; a slice whose ends are such."""
        if type(k) is slice:
            if not self.is_fresh(k) and self.is_known(k):
                for name in ("start", "stop", "step"):
                    self.attribute(k, name)
            ends = [None if each is None else self.index(each) for each in (k.start, k.stop, k.step)]
            return slice(*ends)
        if (asked := self.patched(k, "__index__")) is not None:
            return self.plain(self.call(asked, (k,)))
        if heap_class(type(k)) and not issubclass(type(k), (Tensor, np.generic)):
            asked = self.special(k, "__index__")
            if type(asked) is Function:
                return self.plain(self.call(asked, (k,)))
            if issubclass(type(k), int):
                self.read_value(k)
        return k

    def _number_at(self, o: list | tuple, k: LiftedInt) -> Any:
        """A number of a sequence at a place that changes, read anew at each call; None where it can't be."""
        at, text = raw(k), self.known.source(o)
        if (
            self.refused
            or text is None
            or self.is_fresh(o)
            or o in self.written
            or not self.numbers.may_read(k)
        ):
            return None
        if not -len(o) <= at < len(o) or not liftable(o[at]):
            return None
        words = f"{self.known.path(o)}[{self.numbers.in_words(k.expression)}]"
        self.check(f"not -len({text}) <= {k.expression} < len({text})", f"whether {words} is there")
        value = f"{text}[{k.expression}]"
        return self.numbers.read(value, o[at], Reason(words, self.place(), value, shown(o[at])))

    def _item_of_sequence(self, o: Any, k: Any) -> Any:
        base = self.base_of(o)
        if type(k) is slice:
            if (places := self._places_of(o, k)) is not None:
                return self.filled(list, [self._item_of_sequence(o, at) for at in places])
            self.read_all(o)
            return self.new(base.__getitem__(o, k))
        if self.written.is_moved(o):
            at, appended = operator.index(k), self.written.appended.get(id(o), 0)
            if -appended <= at < 0:
                standing = self.standing(o, "appended", key_of(appended + at))
                return base.__getitem__(o, k) if standing is None else standing
            if not appended or not 0 <= at < len(self.before(o)):
                self.read_all(o)
                return base.__getitem__(o, k)
        if issubclass(type(o), collections.deque):
            self.shadow.bare(o)
        try:
            value = base.__getitem__(o, k)
        except IndexError:
            self.read_length(o)
            raise
        at = operator.index(k)
        if (self.is_fresh(o) or self.is_written(o)) and at < 0:
            at += size_of(o)
        text = f"{{o}}[{at}]"
        if type(lookup(type(o), "__getitem__")) is Function:
            text = f"{self.const(base)}.__getitem__({{o}}, {at})"
        return self.fact(o, "item", at, text, value, lift=True)

    def _of_sizes(self, o: LiftedSize, k: Any) -> Any:
        """An item or a slice of a shape in which sizes are lifted."""
        raw(o)[k]  # which may raise
        found = o.items[k]
        return self.shape_of(found) if type(k) is slice else found

    def _places_of(self, o: Any, k: slice) -> list[int] | None:
        """The places of a slice of a list, those of what was appended from the end; None to read it whole."""
        appended, size = self.written.appended.get(id(o), 0), size_of(o)
        if type(o) is not list or self.refused or self.written.is_moved(o) and not appended:
            return None
        places = range(*k.indices(size))
        if len(places) > _FEW:
            return None
        self.read_length(o)
        return [at if at < size - appended else at - size for at in places]

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
            try:
                made = self.attribute(o, "__class_getitem__")
            except AttributeError:
                return operator.getitem(o, k)  # which raises
            return self.call(made, (k,))
        return self.new(operator.getitem(o, k))

    # ---- containers that the run makes ----
    def filled_map(self, pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
        """A new dictionary of pairs, some of whose values may be lifted."""
        pairs = [*pairs]
        made = self.new({key: raw(value) for key, value in pairs})
        for key, value in pairs:
            self.put(made, "item", key, value)
        return made

    def filled(self, make: Callable, values: Iterable[Any]) -> Any:
        """A new list or tuple of values, some of which may be lifted."""
        values = [*values]
        made = self.new(make([*map(raw, values)]))
        for at, value in enumerate(values):
            if type(value) in LIFTED:
                self.put(made, "item", at, value)
        return made

    def sliced(self, ends: list[Any]) -> slice:
        """A new slice, some of whose ends may be lifted."""
        made = self.new(slice(*map(raw, ends)))
        for name, end in zip(("start", "stop", "step"), ends):
            self.put(made, "attr", name, end)
        return made

    def added(self, o: Any, value: Any) -> None:
        """Note that what may be lifted is appended to a list or deque."""
        if self.is_fresh(o) and type(o) is list:
            self.put(o, "item", size_of(o), value)
        elif id(o) in self.written.appended:
            self.put(o, "appended", self.written.appended[id(o)] - 1, value)
        else:  # places move, or are not known
            self.put(o, "somewhere", self.shadow.count(o), value)

    # ---- writing items ----
    def array_changes(self, o: np.ndarray) -> None:
        """A NumPy array is written: one that the run made, and that shows no other's memory, may be."""
        if not self.is_fresh(o) or o.base is not None:
            self.refuse("a NumPy array was written; make it a tensor")

    def set_item(self, o: Any, k: Any, value: Any) -> None:
        """`o[k] = value`.  Raises what Python raises."""
        o = self.plain(o)
        if issubclass(type(o), Tensor) and not self.refused and self.patched(o, "__setitem__") is None:
            if type(k) in _LATE:
                k = told(self, k)
                if self.numbers.about:
                    if not self.sizes.concern(o, value) and put(self, o, k, value):
                        return
                    k = opened(self, o, k)
            if self.sizes.concern(o, k, value) and self.sizes.are_sizes(k):
                self._read_index(k)
                self.read_deep(value)
                self.sizes.assign(o, k, value)
                return
        k = self.bare_index(k)
        if self.refused:
            o[k] = raw(value)
            return
        if issubclass(type(o), Tensor):
            if (asked := self.patched(o, "__setitem__")) is not None:
                self.call(asked, (o, k, value))
                return
            self.read_deep(k, value)
            o[k] = value
            return
        if issubclass(type(o), np.ndarray):
            self.array_changes(o)
            self.read_deep(k, value)
            o[k] = self.plain(value)
            return
        if issubclass(type(o), Tracked) and not self.is_fresh(o):
            self.refuse("a module's own dictionary was written; assign to the module's attribute")
            o[k] = raw(value)  # by its own method, which the instance dictionary follows
            return
        setter = self.special(o, "__setitem__")
        if type(setter) is Function and not self.refused:
            self.call(setter, (o, k, value))
        elif issubclass(type(o), dict):
            self.put_in_dict(o, k, value)
        elif type(k) is slice and issubclass(type(o), collections.deque):
            o[k] = raw(value)  # raises
        elif issubclass(type(o), (list, collections.deque)):
            self._set_in_list(o, self.index(k), value)
        else:
            if not (self.is_fresh(o) and issubclass(type(o), bytearray)):
                self.refuse(f"an item of a {type(o).__name__} was written")
            o[k] = self.plain(value)

    def put_in_dict(self, o: dict[Any, Any], k: Any, value: Any) -> None:
        """Store an item past what the class makes of that."""
        put = collections.OrderedDict if issubclass(type(o), collections.OrderedDict) else dict
        if self.key(k, o) is None or self.is_fresh(o):
            self.changes_keys(o, k)
            put.__setitem__(o, k, self.put(o, "item", k, value))
            return
        self.membership(o, k)  # whether it is a new one makes the length, the order and what is in it
        self.drops_item(o, k)
        self.writes_to(o, k)
        put.__setitem__(o, k, raw(value))
        self.wrote(o, "item", k, value)
        self.effect_on(o, "an item of a {} was written", put.__setitem__, k, value)

    def _set_in_list(self, o: Any, k: Any, value: Any) -> None:
        if type(k) is slice or self.written.is_moved(o) or type(o) is not list:
            value = self.plain(value)
        if self.is_fresh(o):
            if type(k) is slice:
                self.shadow.bare(o)
                o[k] = self._spread(value)
                return
            o[k] = raw(value)  # which raises, if there is no such place
            at = operator.index(k)
            self.put(o, "item", at + size_of(o) if at < 0 else at, value)
            return
        if type(k) is slice:
            self.read_all(o)
            value = self._spread(value)
            self.drops_all(o, self.base_of(o).__getitem__(o, k))
            self.writes_to(o)
        else:
            self.read_length(o)
            self._drops_at(o, k)
            self.written.writes_at(o)
            if self.written.appended.pop(id(o), 0):
                self.shadow.bare(o)
        o[k] = raw(value)
        if type(k) is not slice and not self.written.is_moved(o):
            at = operator.index(k)
            self.wrote(o, "item", at + size_of(o) if at < 0 else at, value)
        self.effect_on(o, "an item of a {} was written", operator.setitem, k, value)

    def _drops_at(self, o: Any, k: Any) -> None:
        """An item of a list is about to be replaced."""
        at, length = operator.index(k), size_of(o)
        at += length if at < 0 else 0
        if not self.is_fresh(o) and 0 <= at < length:
            held = self.base_of(o).__getitem__(o, at)
            read = f"{self.const(self.base_of(o))}.__getitem__({{o}}, {at})"
            self.drops(o, "item", at, None if self.written.is_moved(o) else read, held)

    def _spread(self, value: Any) -> list[Any]:
        """What a list is about to take in, as a list of its own."""
        return self.new([self.plain(each) for each in self.unpack(value)])

    def delete_item(self, o: Any, k: Any) -> None:
        """`del o[k]`.  Raises what Python raises."""
        o, k = self.plain(o), self.bare_index(k)
        if self.refused:
            del o[k]
            return
        if issubclass(type(o), Tracked) and not self.is_fresh(o):
            self.refuse("a module's own dictionary was written; delete the module's attribute")
            del o[k]
            return
        deleter = self.special(o, "__delitem__")
        if type(deleter) is Function and not self.refused:
            self.call(deleter, (o, k))
            return
        if self.is_fresh(o):
            if issubclass(type(o), dict):
                self.key(k, o)
                self.changes_keys(o)
                self.put(o, "item", k, None)
            else:
                self.shadow.bare(o)
                k = self.index(k)
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
        self.effect_on(o, "an item of a {} was deleted", operator.delitem, k)

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
    def iterator(self, o: Any, unseen: bool = False) -> Any:
        """`iter(o)`.  unseen: of which no code of the user's gets hold.  Raises TypeError."""
        if unseen and type(o) is LiftedSize and not self.refused:
            return Places(self, o, None)
        o = self.plain(o)
        kind = type(o)
        if self.refused:
            return iter(o)
        if unseen and (places := self._places(o)) is not None:
            return places
        if kind in ATOMS or issubclass(kind, Tensor) and self.patched(o, "__iter__") is None:
            if issubclass(kind, Tensor) and self.sizes.concern(o):
                return self.iterator(self.call(ops.unbind, (o,)), unseen)
            return self.new(iter(o))
        if issubclass(type(o), ITERATORS) or kind in VIEWS:
            if not self.is_fresh(o):
                self.refuse(f"a {kind.__name__} from outside was gone through, which that uses up")
            self.open_view(o)
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
        if self.changing(o):
            self.go_through_keys(o)
        elif issubclass(type(o), (*CONTAINERS, types.MappingProxyType)):
            self.in_order(o)
            self.read_all(o)
            self.open(o)
        elif issubclass(type(o), (str, bytes, bytearray)) or kind in VALUES:
            self.read_value(o)
        elif asked is MISSING:
            getter = self.special(o, "__getitem__")
            if type(getter) is Function:
                return self.new(iter(_ByIndex(lambda at: self.call(getter, (o, at)))))
        elif asked is not None and not self.is_fresh(o):
            self.refuse(f"a {kind.__name__}, which is C code, was gone through")
        return self.new(iter(o))

    def _places(self, o: Any) -> Places | None:
        """A way through what holds lifted numbers; None where C code goes through it."""
        if issubclass(type(o), (list, tuple)):
            if any(type(lookup(type(o), name)) is Function for name in ("__iter__", "__getitem__")):
                return None
            lifted = o in self.shadow and self.is_fresh(o) or self._keeps_changing(o)
            return Places(self, o, None) if lifted else None
        how = "items" if type(o) in ITEMS else "values" if type(o) in VALUES_OF else None
        held = None if how is None else self.behind(o.mapping)
        if type(held) is not dict or not (self.is_fresh(held) and held in self.shadow or self.changing(held)):
            return None
        self.go_through_keys(held)
        return Places(self, held, how)

    def _keeps_changing(self, o: Any) -> bool:
        """Whether a sequence that was there holds numbers that keep changing."""
        if not self.numbers.lift or not self.is_known(o) or self.is_written(o) or self.refused:
            return False
        places = [(self.known.spelled(o, "item", at), "item") for at in range(size_of(o))]
        if not any(map(self.numbers.lift.__contains__, places)):
            return False
        self.read_length(o)
        return True

    def lazily(self, o: Any) -> Any:
        """What a `zip` is to go through: lifted numbers stay lifted; None where C code goes through it."""
        if id(o) in self.shadow.handing:
            return o
        return self._places(o)

    def next_of(self, it: Any) -> Any:
        """`next(it)`.  Raises StopIteration."""
        if type(it) is Places:
            return next(it)
        self.goes_on(it)
        if id(it) in self.shadow.handing:
            value = next(it)
            made = type(value) is tuple and type(it) in (zip, enumerate)
            return self._lifting_tuple(value) if made else value
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

    def _lifting_tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """What a lifting `zip` made, and those in it that another made."""
        return self.filled(tuple, [self._lifting_tuple(x) if type(x) is tuple and not self.is_fresh(x) and
                                   not self.is_known(x) else x for x in value])  # fmt: skip

    def _new_tuple(self, value: tuple[Any, ...]) -> None:
        """Mark what zip() and its kin make, and the tuples in it that another of them made."""
        if not self.is_known(value):
            self.new(value)
            for each in value:
                if type(each) is tuple:
                    self._new_tuple(each)

    def each(self, iterator: Any) -> Iterator[Any]:
        """What is left in an iterator."""
        try:
            while True:
                yield self.next_of(iterator)
        except StopIteration:
            return

    def unpack(self, o: Any, lift: bool = False) -> list[Any]:
        """The items of any iterable.  lift: as they are, lifted."""
        if self.refused:
            return [*o]
        if type(o) is LiftedSize:
            return [*o.items] if lift else [*self.plain(o)]
        if issubclass(type(o), (list, tuple)) and type(lookup(type(o), "__iter__")) is not Function:
            self.special(o, "__iter__")
            if lift and self._places(o) is not None:
                return [self.item(o, at) for at in range(size_of(o))]
            self.read_all(o)
            return [*o]
        it = self.iterator(o, unseen=lift)
        return [value if lift else self.plain(value) for value in self.each(it)]

    # ---- membership ----
    def contains(self, o: Any, x: Any) -> bool:
        """`x in o`.  Raises what Python raises."""
        if type(o) is LiftedSize and not self.refused and is_number(raw(x)):
            return any([self.compare("==", size, x) for size in self.unpack(o, lift=True)])
        o = self.plain(o)
        kind = type(o)
        if type(o) in (int, float):
            return x in o  # which raises
        if type(x) in (LiftedInt, LiftedFloat) and kind in _LISTED and not self.refused and raw(x) == raw(x):
            if kind is range or all(type(each) in (int, float, str) and each == each for each in o):
                (self.read_value if kind is range else self.read_all)(o)
                there, listed = raw(x) in o, self.const(o if kind is range else frozenset(o))
                words = f"whether {self.numbers.in_words(x.expression)} is in {shown(o)}"
                self.check(f"({x.expression} in {listed}) is not {there}", words)
                return there
        x = self.plain(x)
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
        if issubclass(type(o), SEQUENCES) and type(lookup(kind, "__iter__")) is Function:
            self.read_all(o)  # C code asks no `__iter__` of a subclass
            return self._among([*self.base_of(o).__iter__(o)], x)
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
        for each in self.each(items):
            if holds_nan(x):
                self.asks_for_nan(each)
            if each is x or self.truth(self.compare("==", each, x)):
                return True
        return False

    def _in_view(self, o: Any, x: Any) -> bool:
        self.open_view(o)
        if not self.is_fresh(o):
            self.refuse("a dictionary's view from outside was asked what is in it")
        elif type(o) not in VALUES_OF:
            held = self.behind(o.mapping)
            k = x[0] if type(x) is tuple and len(x) == 2 and type(o) in ITEMS else x
            if type(o) in KEYS:
                return self.membership(held, k)
            self.read_deep(x)
            self.read_all(held, deep=True)
        else:
            return self._among([*o], x)
        return x in o
