"""Methods of builtin objects: which read their object, which change it, and what that means at a replay."""

from __future__ import annotations

import io
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from ...runtime import Tensor
from .. import draws
from ..facts import holds_nan, literal
from . import contexts, locks, policy, reads
from .callbacks import Callbacks
from .contents import CONTAINERS, VALUES
from .heap import key_of, size_of
from .kinds import ATOMS, ITERATORS, MISSING, VIEWS, Function, heap_class, lookup
from .numbers import LIFTED, METHODS, raw, spelled
from .texts import Fields

_DICT_READS = frozenset(("items", "keys", "values", "copy", "__iter__", "__eq__", "__ne__", "__len__",
                         "__reversed__", "__or__", "__ror__"))  # fmt: skip
_DICT_KEYED = frozenset(("get", "__getitem__", "__contains__", "setdefault", "pop", "__missing__"))
_DICT_WRITES = frozenset(("update", "clear", "popitem", "__delitem__", "move_to_end", "__ior__"))
_CHANGED = "a {} was changed"  # of which nothing is known
_ADDING = ("append", "appendleft")
_BY_INDEX = ("pop", "insert", "rotate", "__imul__")
_MOVING = ("insert", "pop", "reverse")
_COMPARING = frozenset(("index", "count", "__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__",
                        "__ge__"))  # fmt: skip
_TEXTS_AND_NUMBERS = (str, int, float, bytes, complex)
_FILLING = ("format", "format_map")
_PLAINLY = {"__setattr__": 2, "__delattr__": 1, "__getattribute__": 1}
# What C code asks of an object that nobody's Python answers.
_OF_OBJECT = ("__eq__", "__ne__", "__init_subclass__", "__subclasshook__")


def full_name(kind: type) -> str:
    """The class with its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


class Methods(Callbacks):
    """Calls methods of C types.  `run` is the bound method, `unbound` what the class holds under the name."""

    draw: Callable[..., Any]  # a number of a generator's: see builtin_functions.py

    def method(self, o: Any, name: str, unbound: Any, run: Callable, args: tuple, kwargs: Any) -> Any:
        """Call a method of a builtin object: the reads become facts, the writes effects."""
        kind = type(o)
        if kind is str and name == "join" and (told := self._joined(o, *args)) is not None:
            return told
        if kind is str and name in _FILLING and not self.refused:
            return self._filled_in(o, name, run, args, kwargs)
        if name not in METHODS.get(kind, ()):
            args = tuple(map(self.plain, args))
        elif kind is dict:
            args = (*map(self.plain, args[:1]), *args[1:])
        if name != "update" or kind is not dict:
            kwargs = {k: self.plain(v) for k, v in kwargs.items()}
        if issubclass(kind, Tensor):
            self.read_deep(*args, *kwargs.values())
            return self.result(run(*args, **kwargs))
        if name in _PLAINLY and len(args) == _PLAINLY[name]:
            return self._plainly(o, name, unbound, run, args)
        if name == "__init__":
            return self._initialised(o, run, args, kwargs)
        if kind in ATOMS or issubclass(kind, _TEXTS_AND_NUMBERS):
            return self._of_atom(o, name, run, args, kwargs)
        if issubclass(kind, ITERATORS):
            if id(o) in self.shadow.handing and name == "__next__":
                return self.next_of(o)
            if not self.is_fresh(o):
                self.refuse(f"a {kind.__name__} from outside was used, and is used up by that")
            return run(*args, **kwargs)
        if issubclass(kind, (list, deque)):
            return self._of_list(o, name, unbound, run, args, kwargs)
        if issubclass(kind, dict):
            return self._of_dict(o, name, unbound, run, args, kwargs)
        if issubclass(kind, (set, frozenset)):
            return self._of_set(o, name, unbound, run, args, kwargs)
        if issubclass(kind, tuple):
            self.read_all(o, deep=True)
            self.read_deep(*args)
            if any(map(holds_nan, args)):
                self.asks_for_nan(tuple(o))
            return self.result(run(*args, **kwargs))
        if issubclass(kind, (np.ndarray, np.generic)):
            return self._of_array(o, name, run, args, kwargs)
        return self._of_other(o, name, unbound, run, args, kwargs)

    # ---- plain values, iterators ----
    def _filled_in(self, form: str, name: str, run: Callable, args: tuple, kwargs: Any) -> str:
        """`form.format(...)` or `form.format_map(...)`; some of what is given may be lifted."""
        if name == "format":
            return Fields(self, args, kwargs.__getitem__).text(form)
        if len(args) != 1 or kwargs:
            return run(*args, **kwargs)  # raises
        return Fields(self, None, lambda key: self.item(args[0], key)).text(form)

    def _joined(self, o: str, given: Any = None, *more: Any) -> str | None:
        """`o.join(given)` of texts some of which are lifted; None of anything else."""
        late = type(given) is types.GeneratorType and self.is_fresh(given)
        if self.refused or more or not (late or type(given) in (list, tuple) and given in self.shadow):
            return None
        texts = self.unpack(given, lift=True)
        if not all(type(raw(x)) is str for x in texts) or not any(type(x) in LIFTED for x in texts):
            return o.join([*map(self.plain, texts)]) if late else None
        words = ", ".join(map(spelled, texts))
        return self.told(o.join(map(raw, texts)), f"{literal(o)}.join(({words},))")

    def _of_atom(self, o: Any, name: str, run: Callable, args: tuple, kwargs: Any) -> Any:
        if type(o) not in ATOMS:
            self.read_value(o)
        if name == "translate" and type(args[0] if args else "") not in (dict, str, *ATOMS):
            return self.natively("translate() looks things up in C code", run, args, kwargs)
        home = next((k.__name__ for k in _TEXTS_AND_NUMBERS if issubclass(type(o), k)), "")
        asked = [reads.reads(f"builtins.{home}.{name}", "of", at) for at in range(1, len(args) + 1)]
        given = [self.for_c(value, each, True) for value, each in zip(args, asked, strict=True)]
        self.look_into(*kwargs.values())
        return self.result(run(*given, **kwargs))

    # ---- lists ----
    def _of_list(self, o: Any, name: str, unbound: Any, run: Callable, args: tuple, kwargs: Any) -> Any:
        if name in ("__getitem__", "__setitem__", "__delitem__"):
            if lookup(type(o), name) is not unbound:  # asked for past what a class of the user's makes of it
                self.read_all(o)
                if name == "__getitem__":
                    return self.result(run(*args))
                return self.natively(
                    f"list.{name} of a {type(o).__name__}, which has its own", run, args, kwargs
                )
            ways: dict[str, Callable] = {"__setitem__": self.set_item, "__delitem__": self.delete_item}
            return ways.get(name, self.item)(o, *args)
        if name == "__len__":
            self.read_length(o)
            return run()
        if name in policy.LIST_READS:
            self.read_settings(o)
            self.read_all(o, deep=name in _COMPARING)
            if name in ("__iter__", "__reversed__"):
                self.open(o)
            if name in _COMPARING:
                self.own_specials(*self.base_of(o).__iter__(o))
            self.look_into(*args)
            if any(map(holds_nan, args)) and "__add" not in name:
                self.asks_for_nan([*self.base_of(o).__iter__(o)])
            return self.result(run(*args, **kwargs))
        if name not in policy.LIST_WRITES and name not in policy.LIST_READ_WRITES:
            return self._of_other(o, name, unbound, run, args, kwargs)
        self.read_settings(o)
        if name in _BY_INDEX and args:
            args = (self.index(args[0]), *args[1:])
        if "extend" in name or name == "__iadd__":
            values = self.unpack(args[0], lift=True)
            if type(o) is list and any(type(value) in LIFTED for value in values):
                for value in values:
                    self._of_list(o, "append", list.append, o.append, (value,), {})
                return o if name == "__iadd__" else None
            args = (self.new([*map(self.plain, values)]),)
            run = getattr(o, name) if lookup(type(o), name) is unbound else types.MethodType(unbound, o)
        if name in _MOVING and type(o) is list and self.is_fresh(o) and not kwargs:
            self.writes_to(o)
            return self._moved(o, name, run, args)
        if name in policy.LIST_READ_WRITES:
            self._reads_of_list(o, name, args)
            for k, value in kwargs.items():
                if k != "key":
                    self.look_into(value)
            kwargs = {k: self.trampoline(v) if k == "key" else v for k, v in kwargs.items()}
        if name == "insert":
            self.read_length(o)
        self._drops_of_list(o, name, args)
        if name == "append":
            self.written.appends_to(o)
        else:
            self.writes_to(o)
        if name in _ADDING:
            self.added(o, args[0])
            run(raw(args[0]))
            self.effect_on(o, _CHANGED, unbound, *args)
            return None
        args = tuple(map(self.plain, args))
        if name not in ("extend", "__iadd__"):
            self.shadow.bare(o)  # what stands in it moves
        result = run(*args, **kwargs)
        if name == "sort":  # its outcome is known, its key may be made in the run
            self.effect_on(o, _CHANGED, _take_order, self.new([*self.base_of(o).__iter__(o)]))
        else:
            self.effect_on(o, _CHANGED, unbound, *args, **kwargs)
        return result

    def _moved(self, o: list, name: str, run: Callable, args: tuple) -> Any:
        """Change the order of a list that the run made; the lifted numbers in it move along."""
        places: list[int | None] = [*range(len(o))]
        at, *value = args or (-1,)
        at = self.plain(at)
        result = run(at, *map(raw, value)) if args else run()  # raises what Python raises
        taken = getattr(places, name)(*(at, *[None] * len(value))[: len(args)])
        lifted = None if taken is None else self.shadow.standing(o, "item", key_of(taken))
        self.shadow.move(o, places)
        if value:
            self.put(o, "item", places.index(None), value[0])
        return result if lifted is None else lifted

    def _reads_of_list(self, o: Any, name: str, args: tuple) -> None:
        """What a method that reads a list and changes it reads."""
        compares, base = name in ("sort", "remove"), self.base_of(o)
        size = base.__len__(o)
        if name == "pop" and not self.is_written(o) and size and (not args or args[0] in (-1, 0)):
            self.plain(self.item(o, args[0] if args and args[0] == 0 else size - 1))
            self.read_length(o)
        else:
            self.read_all(o)
        if compares:
            self.look_into(*base.__iter__(o), *args)
            if any(map(holds_nan, args)):
                self.asks_for_nan([*base.__iter__(o)])

    def _drops_of_list(self, o: Any, name: str, args: tuple) -> None:
        """What a method may take out of a list."""
        if self.refused or self.is_fresh(o):
            return
        base = self.base_of(o)
        if name == "pop" and not args:
            self.drops_all(o, [*base.__iter__(o)][-1:])
        elif name in ("pop", "popleft", "remove", "__imul__"):
            self.drops_all(o, [*base.__iter__(o)])
        elif name == "clear":
            self.drops(o, "all", 0, f"[*{self.const(base)}.__iter__({{o}})]", [*base.__iter__(o)])
        elif issubclass(base, deque) and o.maxlen is not None and name not in ("sort", "reverse", "rotate"):
            first, last = (f"{self.const(base)}.__getitem__({{o}}, {at}) if len({{o}}) else None"
                           for at in (0, -1))  # fmt: skip
            one = {"append": (first, 0), "appendleft": (last, -1)}.get(name)
            if one is None:
                self.drops(o, "all", 0, f"[*{self.const(base)}.__iter__({{o}})]", [*base.__iter__(o)])
            elif size_of(o):
                self.drops(o, "end", name, f"({one[0]})", base.__getitem__(o, one[1]))

    # ---- dictionaries ----
    def _of_dict(self, o: Any, name: str, unbound: Any, run: Callable, args: tuple, kwargs: Any) -> Any:
        if name in _DICT_KEYED:
            if kwargs:
                return self.natively(f"{name}() of a dictionary was given names", run, args, kwargs)
            if name == "pop" and not size_of(o):  # which hashes nothing
                self.read_length(o)
                return args[1] if len(args) > 1 else run(*args)
            return self._by_key(o, name, unbound, run, args)
        if name == "__setitem__":
            self.put_in_dict(o, *args)
            return None
        if name == "__len__":
            self.read_length(o)
            return run()
        if name in ("items", "keys", "values") and self.is_fresh(o):
            return self.new(run(*args, **kwargs))
        if name in ("items", "keys", "values", "copy") and not (args or kwargs) and self.changing(o):
            self.go_through_keys(o)
            if name == "copy":
                return self.filled_map([(key, self.item(o, key)) for key in o])
            return self.new(run())
        if name in _DICT_READS:
            self.read_all(o, deep=name in ("__eq__", "__ne__"))
            self.open(o)
            if name in ("__eq__", "__ne__"):
                self.asks_for_nan(*dict.values(o))
            for value in args:
                self.watch(value, name in ("__eq__", "__ne__"))
            return self.result(run(*args, **kwargs))
        if name not in _DICT_WRITES:
            return self._of_other(o, name, unbound, run, args, kwargs)
        if name in ("update", "__ior__"):
            if len(args) > 1:
                return run(*args, **kwargs)  # raises
            given = tuple([self._pairs(type(o), x) for x in args])
            several = [dict.items(x) if issubclass(type(x), dict) else x for x in given]
            pairs = [pair for each in several for pair in each]
            if not all(self._is_quiet(lookup(type(k), "__hash__")) for k, _ in pairs):
                self.refuse("a dictionary was updated with keys that hash themselves in Python")
                return run(*given, **kwargs)
            for key, value in (*dict(pairs).items(), *kwargs.items()):
                self.put_in_dict(o, key, value)
            return o if name == "__ior__" else None
        if name == "__delitem__":
            if self.key(args[0], o) is None:
                return run(*args)
            self.membership(o, args[0])
        self.read_all(o)
        keys = [*dict.__iter__(o)]
        if name != "move_to_end" and not self.is_fresh(o):
            self.drops_all(o, [*dict.keys(o), *dict.values(o)])
        self.writes_to(o)
        result = run(*args, **kwargs)
        self.effect_on(o, _CHANGED, unbound, *args, **kwargs)
        if not self.is_fresh(o):
            for key in keys:
                if not dict.__contains__(o, key):
                    self.wrote(o, "item", key)
        return self.result(result)

    def _pairs(self, target: type, given: Any) -> Any:
        """What a dictionary of a class is updated with."""
        if type(given) is dict and self.lazily(given.values()) is not None:
            return [(key, self.item(given, key)) for key in given]
        if issubclass(type(given), dict):  # CPython goes through it as such unless it is iterated otherwise
            order = lookup(type(given), "__iter__")
            reads = [lookup(type(given), name) for name in ("keys", "__getitem__")]
            asks = issubclass(target, OrderedDict) and reads != [dict.keys, dict.__getitem__]
            if order is dict.__iter__ and not asks:
                self.read_all(given)
                return given
            if order is OrderedDict.__iter__ and lookup(type(given), "keys") is OrderedDict.keys:
                if lookup(type(given), "__getitem__") is dict.__getitem__:
                    self.read_all(given)
                    return [(key, dict.__getitem__(given, key)) for key in OrderedDict.__iter__(given)]
        if lookup(type(given), "keys") is not MISSING:
            keys = self.unpack(self.call(self.attribute(given, "keys"), ()))
            return [(key, self.plain(self.item(given, key))) for key in keys]
        return [tuple(self.unpack(pair)) for pair in self.unpack(given)]

    def _by_key(self, o: Any, name: str, unbound: Any, run: Callable, args: tuple) -> Any:
        key = args[0]
        if self.refused or self.key(key, o) is None:
            return run(*map(self.plain, args))
        there = dict.__contains__(o, key)
        if name == "__contains__":
            self.membership(o, key)
            return there
        if name == "__getitem__" or (name == "get" and there):
            if there:
                return self.dict_item(o, key, dict.__getitem__(o, key), lift=True)
            self.membership(o, key)
            return run(*args)
        if there:
            found = self.dict_item(o, key, dict.__getitem__(o, key), lift=True)
            if name == "setdefault":
                return found
        else:
            self.membership(o, key)
        if name == "setdefault" and not there:
            value = args[1] if len(args) > 1 else None
            self.put_in_dict(o, key, value)
            return value
        if name == "pop" and there:
            self.drops_item(o, key)
            self.writes_to(o)
            run(key)
            self.put(o, "item", key, None)
            if not self.is_fresh(o):
                self.effect_on(o, _CHANGED, unbound, key)
                self.wrote(o, "item", key)
            return found
        return args[1] if name in ("get", "pop") and len(args) > 1 else run(*args)

    # ---- sets ----
    def _of_set(self, o: Any, name: str, unbound: Any, run: Callable, args: tuple, kwargs: Any) -> Any:
        if name == "__contains__":
            return self.membership(o, args[0])
        if name == "__len__":
            self.read_length(o)
            return run()
        if name in policy.SET_READS:
            self.read_all(o)
            self.asks_for_nan(*args)
            given = tuple([self.watch(value, True) for value in args])
            return self.of_table(self.result(run(*given)), o, *args)
        if name not in policy.SET_WRITES:
            return self._of_other(o, name, unbound, run, args, kwargs)
        one = name in ("add", "discard", "remove")
        if name.startswith("__i") and not issubclass(type(args[0]), (set, frozenset)):
            return run(*args)  # NotImplemented
        if one:
            self.look_into(args[0])
            if self.key(args[0], o) is None:
                return run(*args)
            self.membership(o, args[0])
        else:
            self.read_all(o)
            args = tuple([value if issubclass(type(value), (*CONTAINERS, str, bytes, *VIEWS)) else
                          self.new([*map(self.plain, self.unpack(value))]) for value in args])  # fmt: skip
            for value in args:
                self.watch(value, True)
                self.asks_for_nan(value)
        if name == "pop" and (not self.is_fresh(o) or id(o) in self.fresh.tables) and size_of(o) > 1:
            self.refuse("which item pop() takes out of a set hangs on its table; sort the items")
        if name != "add" and not self.is_fresh(o):
            self.drops_all(o, args if one else [*o])
        later = args if one or self.is_fresh(o) else tuple(map(self._as_now, args))
        self.writes_to(o)
        result = run(*args)
        if self.is_fresh(o):
            self.of_table(o, *args)
            if name not in ("add", "update", "__ior__"):
                self.fresh.dented.add(id(o))
        else:
            self.effect_on(o, _CHANGED, unbound, *later)
            if one:
                self.wrote(o, "item", args[0])
        return o if result is o else self.result(result)

    def _as_now(self, given: Any) -> Any:
        """What a set is changed with, as it is now; a set that was there is so when the effect comes."""
        if type(given) in (set, frozenset):
            return self.new(set(given)) if self.is_fresh(given) else given
        return self.new(list(given))

    # ---- arrays ----
    def _of_array(self, o: Any, name: str, run: Callable, args: tuple, kwargs: Any) -> Any:
        if name == "resize":
            self.abandon("resize() of a NumPy array asks who else holds it")
        if issubclass(type(o), np.ndarray):
            if name in ("item", "tolist") and id(o) in self.fresh.shown and not (args or kwargs):
                x = self.fresh.shown[id(o)][1]
                return self.call(self.attribute(x, name))
            if name in policy.ARRAY_WRITES and (not self.is_fresh(o) or o.base is not None):
                self.refuse(f"ndarray.{name}() changes an array in place: make a new one, or a tensor")
            self.read_all(o)
        if name in policy.ARRAY_FILES or "out" in kwargs:
            self.refuse(f"ndarray.{name}() writes to what it is given")
        self.read_deep(*args, *kwargs.values())
        return self.result(run(*args, **kwargs))

    # ---- object's own ----
    def _plainly(self, o: Any, name: str, unbound: Any, run: Callable, args: tuple) -> Any:
        """`object.__setattr__` and its kin, past what the class makes of it."""
        if type(args[0]) is not str:
            return self.natively(f"{name}() takes a text", run, args, {})
        if unbound not in (object.__setattr__, object.__delattr__, object.__getattribute__):
            if unbound is type.__getattribute__ and type(o) is type:
                return self.attribute(o, *args)
            if name == "__getattribute__" and issubclass(type(o), types.ModuleType):
                return self.attribute(o, *args)
            why = f"{getattr(unbound, '__qualname__', name)}() is C code that looks up attributes"
            return self.natively(why, run, args, {})
        if name == "__setattr__":
            return self.generic_set(o, *args)
        return self.generic_delete(o, *args) if name == "__delattr__" else self.generic_attribute(o, *args)

    def _initialised(self, o: Any, run: Callable, args: tuple, kwargs: Any) -> None:
        """`super().__init__(...)` of a C class."""
        if not self.is_fresh(o):
            self.refuse(f"__init__ of a {type(o).__name__} that was there was called again")
        if issubclass(type(o), (list, dict, set, deque)):
            first = args[:1] if issubclass(type(o), defaultdict) else ()  # what makes items is kept
            args = (*first, *[self.watch(value, False) for value in args[len(first) :]])
        else:
            for value in (*args, *kwargs.values()):
                if not issubclass(type(o), BaseException):
                    self.read_deep(value)
        run(*args, **kwargs)

    # ---- everything else ----
    def _of_other(self, o: Any, name: str, unbound: Any, run: Callable, args: tuple, kwargs: Any) -> Any:
        kind = type(o)
        where = full_name(kind)
        values = (*args, *kwargs.values())
        if kind in VIEWS:
            self.open_view(o)
            self.asks_for_nan(*args, [*o])
            return self.result(run(*[self.watch(value, True) for value in args], **kwargs))
        if kind is types.MappingProxyType:
            held = self.behind(o)
            if (
                self.is_fresh(o)
                and type(held) in (dict, OrderedDict)
                and hasattr(types.MappingProxyType, name)
            ):
                return self.method(held, name, getattr(type(held), name), getattr(held, name), args, kwargs)
            return self.natively("a mappingproxy was read", run, args, kwargs)
        if issubclass(kind, io.IOBase) or kind.__module__ in ("_io", "io"):
            return self._of_file(o, name, unbound, run, args, kwargs)
        if kind is slice and any(heap_class(type(end)) for end in (o.start, o.stop, o.step)):
            return self.natively("a slice asks its ends for numbers in C code", run, args, kwargs)
        if where in policy.CONSTANT_OBJECTS and all(type(x) in ATOMS or type(x) is kind for x in values):
            for value in (o, *values):
                if type(value) not in ATOMS:
                    (self.read_value if issubclass(type(value), VALUES) else self.same)(value)
            return self.result(run(*args, **kwargs))
        if where == "re.Pattern":
            self.same(o)
            return self.in_c(run, args, kwargs)
        if where == "_contextvars.ContextVar" or where == "contextvars.ContextVar":
            return contexts.asked(self, o, name, run, args)
        if where in policy.LOCKS and name in locks.METHODS:
            return locks.asked(self, o, name, run, args, kwargs)
        if issubclass(kind, BaseException):
            if name in ("__str__", "__repr__"):
                self.show(o)
            elif not self.is_fresh(o):
                self.refuse(f"{kind.__name__}.{name}() of an exception that was there")
            return self.result(run(*args, **kwargs))
        if name == "__get__":
            return self._bound(o, run, args)
        if name in _OF_OBJECT and unbound is getattr(object, name, None):
            return run(*args, **kwargs)
        if name == "__call__":
            plainly = issubclass(kind, type) and unbound is type.__call__
            return self.construct(o, args, kwargs) if plainly else self.call(o, args, kwargs)
        if issubclass(kind, type) and name in ("mro", "__instancecheck__", "__subclasscheck__"):
            return run(*args, **kwargs)
        if name == "__hash__":
            return self.natively("hash() of an object hangs on its address", run, args, kwargs)
        if name in ("__str__", "__repr__", "__format__") and unbound is getattr(object, name):
            if args and args != ("",):
                return run(*args, **kwargs)  # raises
            return self._text_of_object(o, name, run, args)
        if unbound in draws.PYTHONS and not kwargs:
            return self.draw(f"random.{name}", o, unbound, args)
        if kind.__module__ == "logging" or name == "__reduce_ex__":
            return self.natively(f"{name}() goes through an object in C code", run, args, kwargs)
        home = kind.__module__ if issubclass(type(kind.__module__), str) else None
        return self.natively(policy.reason_against(home, f"{kind.__name__}.{name}"), run, args, kwargs)

    def _text_of_object(self, o: Any, name: str, run: Callable, args: tuple) -> str:
        if name != "__repr__":  # which ask __repr__
            asked = self.special(o, "__str__" if name == "__format__" and not args[0] else "__repr__")
            if type(asked) is Function:
                return self.call(asked, (o,))
        return self.natively(f"the text of a {type(o).__name__} shows its address", run, args, {})

    def _bound(self, o: Any, run: Callable, args: tuple) -> Any:
        """`descriptor.__get__(object)`: a method, or for a slot what stands in it."""
        if issubclass(
            type(o), (Function, types.MethodDescriptorType, types.WrapperDescriptorType, classmethod)
        ):
            return self.new(run(*args))
        if issubclass(type(o), staticmethod):
            return run(*args)
        if issubclass(type(o), property) and args and args[0] is not None:
            return self.call(o.fget, (args[0],))
        if type(o) is types.MemberDescriptorType and args and args[0] is not None:
            return self.attribute(args[0], o.__name__)
        return self.natively(f"the descriptor {getattr(o, '__name__', '')} was asked", run, args, {})

    def _of_file(self, o: Any, name: str, unbound: Any, run: Callable, args: tuple, kwargs: Any) -> Any:
        if self.is_fresh(o):  # what is read of it later is text as it stands
            args, kwargs = self.bare(args, kwargs)
        if name in policy.FILE_WRITES and not kwargs:
            if name == "writelines":
                args = (self.new([self.plain(x) for x in self.unpack(args[0])]),)
                run = types.MethodType(unbound, o)
            elif not all(type(raw(x)) in (str, bytes) for x in args):
                return self.natively("a file was given something that is no text", run, args, kwargs)
            result = run(*map(raw, args))
            self.effect_on(o, _CHANGED, unbound, *args)
            if any(type(x) in LIFTED for x in args):  # how many characters were written
                return self.numbers.computed(result, f"{self.const(len)}({args[0].expression})")
            return result
        in_memory = issubclass(type(o), (io.StringIO, io.BytesIO))
        if in_memory and self.is_fresh(o) and name != "__setstate__":
            return self.result(run(*args, **kwargs))
        if name in ("isatty", "fileno", "writable", "readable", "seekable"):
            text = f"{{o}}.{name}()"
            if self.source(o):
                return self.fact(o, "asked", name, text, run(*args))
        why = f"{type(o).__name__}.{name}() {policy.DENIED_MODULES['io']}"
        return self.natively(why, run, args, kwargs)


def _take_order(held: list, items: list) -> None:
    """Give a list the order that sorting gave it."""
    list.__setitem__(held, slice(None), items)  # a subclass may have one of its own
