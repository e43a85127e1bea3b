"""What the operations do that make something of values on the stack: containers, text, functions, calls."""

from __future__ import annotations

import builtins
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType
from typing import Any

from .frames import NULL, UNBOUND, Frame, contents
from .instructions import operation
from .kinds import MISSING, is_iterable, lookup
from .numbers import LiftedSize, raw
from .signatures import misfits

_HANDED = (FunctionType, MethodType)  # of which the callee alone may hold what it is given
# Hashed and compared by C code alone.
_SIMPLE = frozenset({int, float, str, bytes, bool, type(None), complex, tuple, frozenset})


# ---- containers


def take(stack: list[Any], count: int | None) -> list[Any]:
    """The uppermost values, taken off."""
    if not count:
        return []
    values = stack[-count:]
    del stack[-count:]
    return values


def _hashed(frame: Frame, *values: Any) -> None:
    """Refuse what C code would hash or compare by the user's own methods, unseen."""
    frame.observer.asks_for_nan(*values)
    for value in values:
        frame.observer.hashed(value)
        if type(value) not in _SIMPLE and type(lookup(type(value), "__hash__")) is FunctionType:
            frame.observer.refuse(f"the hash of a {type(value).__name__} was taken by a display of Python")


@operation("build_tuple", lifts=True)
def build_tuple(frame: Frame, stack: list[Any], count: int | None) -> None:
    stack.append(frame.observer.filled(tuple, take(stack, count)) if count else ())


@operation("build_list", lifts=True)
def build_list(frame: Frame, stack: list[Any], count: int | None) -> None:
    stack.append(frame.observer.filled(list, take(stack, count)))


@operation("build_set")
def build_set(frame: Frame, stack: list[Any], count: int | None) -> None:
    values = take(stack, count)
    _hashed(frame, *values)
    stack.append(frame.observer.new(set(values)))


@operation("build_map", lifts=True)
def build_map(frame: Frame, stack: list[Any], count: int | None) -> None:
    values = take(stack, 2 * (count or 0))
    keys = [*map(frame.observer.plain, values[::2])]
    _hashed(frame, *keys)
    stack.append(frame.observer.filled_map(zip(keys, values[1::2], strict=True)))


@operation("build_keyed_map", lifts=True)
def build_keyed_map(frame: Frame, stack: list[Any], count: int) -> None:
    keys = stack.pop()
    stack.append(frame.observer.filled_map(zip(keys, take(stack, count), strict=True)))


@operation("build_string", lifts=True)
def build_string(frame: Frame, stack: list[Any], count: int) -> None:
    stack.append(frame.observer.joined(take(stack, count)))


@operation("build_slice", lifts=True)
def build_slice(frame: Frame, stack: list[Any], count: int) -> None:
    stack.append(frame.observer.sliced(take(stack, count)))


@operation("list_to_tuple", lifts=True)
def list_to_tuple(frame: Frame, stack: list[Any], _: None) -> None:
    observer = frame.observer
    stack[-1] = observer.filled(tuple, observer.unpack(stack[-1], lift=True))


@operation("list_append", lifts=True)
def list_append(frame: Frame, stack: list[Any], depth: int) -> None:
    value = stack.pop()
    frame.observer.added(stack[-depth], value)
    stack[-depth].append(raw(value))


@operation("set_add")
def set_add(frame: Frame, stack: list[Any], depth: int) -> None:
    value = stack.pop()
    _hashed(frame, value)
    stack[-depth].add(value)


@operation("map_add", lifts=True)
def map_add(frame: Frame, stack: list[Any], depth: int) -> None:
    value, key = stack.pop(), frame.observer.plain(stack.pop())
    _hashed(frame, key)
    stack[-depth][key] = frame.observer.put(stack[-depth], "item", key, value)


@operation("list_extend", lifts=True)
def list_extend(frame: Frame, stack: list[Any], depth: int) -> None:
    value, made = stack.pop(), stack[-depth]
    value = value if type(value) is LiftedSize else frame.observer.plain(value)
    for each in frame.observer.unpack(value, lift=True) if is_iterable(value) else [*value]:
        frame.observer.added(made, each)
        made.append(raw(each))


@operation("set_update")
def set_update(frame: Frame, stack: list[Any], depth: int) -> None:
    given = stack.pop()
    values = frame.observer.unpack(given)
    _hashed(frame, *values)
    stack[-depth].update(given if type(given) in (set, frozenset) else values)  # their order is told by both
    frame.observer.of_table(stack[-depth], given)


def _mapping(frame: Frame, value: Any) -> dict[Any, Any]:
    """What `**value` gives."""
    observer = frame.observer
    value = observer.plain(value)
    if issubclass(type(value), dict):
        if type(value) is dict and observer.lazily(value.values()) is not None:
            return {key: observer.item(value, key) for key in value}
        observer.read_all(value)
        return value
    if lookup(type(value), "keys") is MISSING:
        return {**value}  # raises
    keys = observer.unpack(observer.call(observer.attribute(value, "keys")))
    return {key: observer.item(value, key) for key in keys}


@operation("dict_update", lifts=True)
def dict_update(frame: Frame, stack: list[Any], depth: int) -> None:
    value = stack.pop()
    _put_all(frame, stack[-depth], _mapping(frame, value))


def _put_all(frame: Frame, into: dict[Any, Any], found: dict[Any, Any]) -> None:
    for key, value in found.items():
        into[key] = frame.observer.put(into, "item", key, value)


@operation("dict_merge", lifts=True)
def dict_merge(frame: Frame, stack: list[Any], depth: int) -> None:
    """Add `**value` to the arguments of a call, whose function lies below them for the text of errors."""
    value = frame.observer.plain(stack.pop())
    known = stack[-depth]
    function = stack[-depth - 2]
    if function is NULL:
        function = stack[-depth - 3]
    if lookup(type(value), "keys") is MISSING:
        function(**value)  # raises
    found = _mapping(frame, value)
    if not known.keys().isdisjoint(found):
        function(**known, **found)  # raises
    if not all(issubclass(type(key), str) for key in found):
        raise TypeError("keywords must be strings")
    _put_all(frame, known, found)


_UNPACKERS: dict[tuple[int, int], CodeType] = {}


def _misfit(value: Any, before: int, after: int = -1) -> None:
    """Raise CPython's error of a value that does not unpack.  after: names behind a starred one."""
    names = [
        *[f"a{n}" for n in range(before)],
        *(["*rest"] if after >= 0 else []),
        *[f"b{n}" for n in range(after)],
    ]
    code = _UNPACKERS.setdefault((before, after), compile(f"[{', '.join(names)}] = value", __file__, "exec"))
    exec(code, {"value": value})


@operation("unpack", lifts=True)
def unpack(frame: Frame, stack: list[Any], count: int | None) -> None:
    observer = frame.observer
    value = stack.pop()
    value = value if type(value) is LiftedSize else observer.plain(value)
    count = count or 0
    if type(value) in (list, tuple, LiftedSize):
        values = observer.unpack(value, lift=True)
    elif not is_iterable(value):
        _misfit(value, count)
        return
    else:
        source = observer.iterator(value, unseen=True)
        values = []
        try:
            while len(values) <= count:
                values.append(observer.next_of(source))
        except StopIteration:
            pass
    if len(values) != count:
        _misfit(values if type(value) in (list, tuple, dict) else iter(values), count)
    values.reverse()
    stack.extend(values)


@operation("unpack_rest", lifts=True)
def unpack_rest(frame: Frame, stack: list[Any], argument: int) -> None:
    value = stack.pop()
    value = value if type(value) is LiftedSize else frame.observer.plain(value)
    before, after = argument & 255, argument >> 8
    if not is_iterable(value):
        _misfit(value, before, after)
    values = frame.observer.unpack(value, lift=True)
    if len(values) < before + after:
        _misfit(values, before, after)
    end = len(values) - after
    stack.extend(reversed([*values[:before], frame.observer.filled(list, values[before:end]), *values[end:]]))


# ---- text


@operation("format", lifts=True)
def format_(frame: Frame, stack: list[Any], argument: tuple[str, bool]) -> None:
    conversion, given = argument
    spec = stack.pop() if given else ""
    stack[-1] = frame.observer.formatted(stack[-1], conversion, spec)


@operation("convert", lifts=True)
def convert(frame: Frame, stack: list[Any], conversion: str) -> None:
    stack[-1] = frame.observer.converted(stack[-1], conversion)


# ---- functions and calls


@operation("make_function", lifts=True)
def make_function(frame: Frame, stack: list[Any], parts: list[int]) -> None:
    """Make a function.  parts: what follows its code down the stack: defaults (1), those of named parameters
    (2), annotations (4), cells of free variables (8), the maker of annotations (16).
    """
    code = stack.pop()
    given = {part: stack.pop() for part in parts}
    for part in (1, 2, 4):  # defaults, which a call takes unseen, and annotations
        if part in given:
            frame.observer.read_all(given[part])
    made = FunctionType(code, frame.globals, None, given.get(1), given.get(8))
    made.__kwdefaults__ = given.get(2)
    if 4 in given:
        pairs = given[4]
        made.__annotations__ = (
            dict(zip(pairs[::2], pairs[1::2], strict=True)) if type(pairs) is tuple else pairs
        )
    if 16 in given:
        made.__annotate__ = given[16]  # type: ignore[attr-defined]
    stack.append(frame.observer.new(made))


@operation("call", lifts=True)
def call(frame: Frame, stack: list[Any], count: int | None) -> None:
    if frame.observer.refused:
        stack.append(freely(frame, stack, count))
        return
    values = take(stack, count)
    first, function = stack.pop(), stack.pop()
    if function is NULL:
        function = first
    elif first is not NULL:
        values.insert(0, first)
    del first
    stack.append(called(frame, function, values if type(function) in _HANDED else tuple(values), {}))


@operation("call_named", lifts=True)
def call_named(frame: Frame, stack: list[Any], count: int) -> None:
    """A call whose last arguments are given by name; the names are on top."""
    names = stack.pop()
    if frame.observer.refused:
        stack.append(freely(frame, stack, count, names))
        return
    values = take(stack, count)
    first, function = stack.pop(), stack.pop()
    if function is NULL:
        function = first
    elif first is not NULL:
        values.insert(0, first)
    del first
    place = len(values) - len(names)
    named = dict(zip(names, values[place:], strict=True))
    del values[place:]
    stack.append(called(frame, function, values if type(function) in _HANDED else tuple(values), named))


@operation("call_unpacked", lifts=True)
def call_unpacked(frame: Frame, stack: list[Any], _: None) -> None:
    named, args = frame.observer.plain(stack.pop()), stack.pop()
    args = args if type(args) is LiftedSize else frame.observer.plain(args)
    first, function = stack.pop(), None
    if first is not NULL:
        function = first
        if stack and stack[-1] is NULL:
            stack.pop()
    else:
        function = stack.pop()
    observer = frame.observer
    named = observer.new({}) if named is NULL else named
    if not is_iterable(args):
        function(*args)  # raises
    given = tuple(observer.unpack(args, lift=True))
    stack.append(called(frame, function, given, dict(_mapping(frame, named))))


def freely(frame: Frame, stack: list[Any], count: int | None, names: tuple[str, ...] = ()) -> Any:
    """The result of a call that nobody records, which alone holds what it is given."""
    values, observer = take(stack, count), frame.observer
    first, function = stack.pop(), stack.pop()
    if function is NULL:
        function = first
    elif first is not NULL:
        values.insert(0, first)
    del first
    if function is super and not values:
        return observer.call(super, own_super(frame))
    if type(function) is BuiltinFunctionType and function in observer.own_calls:
        place = len(values) - len(names)
        named = dict(zip(names, values[place:], strict=True))
        if misfits(function, values[:place], named):
            return function(*values[:place], **named)  # raises
        return observer.own_calls[function](observer, frame, tuple(values[:place]), named)
    if type(function) is MethodType:
        values.insert(0, function.__self__)
        function = function.__func__
    values[:] = map(raw, values)
    return observer.freely(function, values, names)


def called(frame: Frame, function: Any, args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of a call.  What depends on the calling frame is looked at here.

    args: a list is emptied, and with it the named ones, where a frame of the user's takes them over.
    """
    observer = frame.observer
    if observer.numbers.about:
        args, kwargs = observer.passed(function, args, kwargs)
    kind = type(function)
    if kind is BuiltinFunctionType:
        if function in observer.own_calls and not misfits(function, args, kwargs):
            return observer.own_calls[function](observer, frame, args, kwargs)
    elif function is super and not args:
        return observer.call(super, own_super(frame))
    return observer.call(function, args, kwargs)


def own_super(frame: Frame) -> tuple[Any, Any]:
    """The arguments that `super()` takes from where it stands."""
    program = frame.program
    if not program.code.co_argcount:
        raise RuntimeError("super(): no arguments")
    value = frame.locals[0]
    if type(value) is CellType and program.variables[0] in program.code.co_cellvars:
        value = contents(value)
    if value is UNBOUND:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in program.code.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    kind = contents(frame.locals[program.variables.index("__class__")])
    if kind is UNBOUND:
        raise RuntimeError("super(): empty __class__ cell")
    return kind, value


@operation("load_build_class")
def load_build_class(frame: Frame, stack: list[Any], _: None) -> None:
    name = "__build_class__"
    if name not in frame.builtins:
        raise NameError(f"{name} not found", name=name)
    stack.append(frame.builtins.get(name, builtins.__build_class__))
