"""What the simple operations of bytecode do: variables, attributes, items, operators, jumps, iteration.

A handler gets the frame, its stack and the operation's argument.  It returns None to go on, the index of the
operation to jump to, or one of the negative signals below.  `building.py` has the handlers that
make containers and functions and that call; `clauses.py` those of errors, context managers, patterns, classes
and imports.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from types import CellType, GeneratorType
from typing import Any

from . import masks
from .frames import NULL, UNBOUND, Frame, contents
from .kinds import ATOMS
from .operators import BINARY, COMPARISONS, UNARY

# What a handler tells the loop: the function returns or yields; an error's handler was entered or left.
# What the loop tells who runs it besides: that the function went on natively.
RETURN, YIELD, ENTER, LEAVE, NATIVE = -1, -2, -3, -4, -5

Handler = Callable[[Frame, list[Any], Any], int | None]
# The handler of each operation, and whether lifted numbers may pass through it without becoming plain.
OPERATIONS: dict[str, tuple[Handler, bool]] = {}
_NUMBERS = (int, float)
# Operations that let go of nothing, and those that let go of nothing but what is uppermost on the stack.
_KEEP = frozenset((
    "load_local", "load_local_and_clear", "load_constant", "load_made", "push_null", "copy", "swap",
    "load_cell", "load_global", "jump", "yield_value", "return_value", "build_tuple", "build_list",
    "build_set", "build_map", "make_function", "make_cell", "list_append", "set_add", "map_add",
))  # fmt: skip
_POP = frozenset((
    "pop", "load_attribute", "load_method", "load_item", "load_selected", "load_reduced", "not", "to_bool",
    "is", "contains", "format", "convert", "jump_if_true", "jump_if_false", "jump_if_none",
    "jump_if_not_none",
))  # fmt: skip
_KEEPING: set[Handler] = set()
_POPPING: set[Handler] = set()


def operation(*names: str, lifts: bool = False) -> Callable[[Handler], Handler]:
    """Register a handler.  lifts: it knows what to do with lifted numbers on the stack."""

    def register(handler: Handler) -> Handler:
        for name in names:
            OPERATIONS[name] = handler, lifts
            if name in _KEEP:
                _KEEPING.add(handler)
            elif name in _POP or name.startswith(("binary ", "compare ", "unary ")):
                _POPPING.add(handler)
        return handler

    return register


def may_drop(handler: Handler, argument: Any, stack: list[Any], variables: list[Any]) -> bool:
    """Whether an operation that is about to run may let go of the last reference to something.

    That which the recorder holds on to has one more (`Facts.strong`).
    """
    if handler in _KEEPING:
        return False
    if handler is store_local or handler is delete_local:
        last = variables[argument]
        return type(last) not in ATOMS and getrefcount(last) <= _LAST
    if handler in _POPPING:
        return any(type(x) not in ATOMS and getrefcount(x) <= _LAST + 1 for x in stack[-2:])
    return True


_LAST = 4  # where it stands, a name here, the argument of `getrefcount`, and the recorder's


# ---- the stack and the variables


@operation("load_local", lifts=True)
def load_local(frame: Frame, stack: list[Any], number: int) -> None:
    value = frame.locals[number]
    if value is UNBOUND:
        raise frame.unbound(number)
    stack.append(value)


@operation("store_local", lifts=True)
def store_local(frame: Frame, stack: list[Any], number: int) -> None:
    frame.locals[number] = stack.pop()


@operation("load_local_and_clear", lifts=True)
def load_local_and_clear(frame: Frame, stack: list[Any], number: int) -> None:
    stack.append(frame.locals[number])
    frame.locals[number] = UNBOUND


@operation("delete_local", lifts=True)
def delete_local(frame: Frame, stack: list[Any], number: int) -> None:
    if frame.locals[number] is UNBOUND:
        raise frame.unbound(number)
    frame.locals[number] = UNBOUND


@operation("load_constant", lifts=True)
def load_constant(frame: Frame, stack: list[Any], value: Any) -> None:
    stack.append(value)


@operation("load_made", lifts=True)
def load_made(frame: Frame, stack: list[Any], value: Any) -> None:
    stack.append(frame.observer.constant(value))


@operation("push_null", lifts=True)
def push_null(frame: Frame, stack: list[Any], _: None) -> None:
    stack.append(NULL)


@operation("pop", lifts=True)
def pop(frame: Frame, stack: list[Any], _: None) -> None:
    stack.pop()


@operation("copy", lifts=True)
def copy(frame: Frame, stack: list[Any], depth: int) -> None:
    stack.append(stack[-depth])


@operation("swap", lifts=True)
def swap(frame: Frame, stack: list[Any], depth: int) -> None:
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@operation("make_cell", lifts=True)
def make_cell(frame: Frame, stack: list[Any], number: int) -> None:
    value = frame.locals[number]
    made = frame.locals[number] = frame.observer.new(CellType())
    if value is not UNBOUND:
        frame.observer.store_cell(made, value)


@operation("copy_free_variables", lifts=True)
def copy_free_variables(frame: Frame, stack: list[Any], count: int) -> None:
    frame.locals[len(frame.locals) - count :] = frame.closure


@operation("load_cell", lifts=True)
def load_cell(frame: Frame, stack: list[Any], number: int) -> None:
    try:
        stack.append(frame.observer.load_cell(frame.locals[number]))
        return
    except ValueError:
        pass
    raise frame.unbound(number)


@operation("store_cell", lifts=True)
def store_cell(frame: Frame, stack: list[Any], number: int) -> None:
    frame.observer.store_cell(frame.locals[number], stack.pop())


@operation("delete_cell", lifts=True)
def delete_cell(frame: Frame, stack: list[Any], number: int) -> None:
    if contents(frame.locals[number]) is UNBOUND:
        raise frame.unbound(number)
    frame.observer.delete_cell(frame.locals[number])


@operation("load_global", lifts=True)
def load_global(frame: Frame, stack: list[Any], name: str) -> None:
    stack.append(frame.observer.load_global(frame.globals, frame.builtins, name))


@operation("store_global", lifts=True)
def store_global(frame: Frame, stack: list[Any], name: str) -> None:
    frame.observer.store_global(frame.globals, name, stack.pop())


@operation("delete_global", lifts=True)
def delete_global(frame: Frame, stack: list[Any], name: str) -> None:
    frame.observer.delete_global(frame.globals, name)


# ---- attributes and items


@operation("load_attribute", lifts=True)
def load_attribute(frame: Frame, stack: list[Any], name: str) -> None:
    stack[-1] = frame.observer.attribute(stack[-1], name)


@operation("load_method", lifts=True)
def load_method(frame: Frame, stack: list[Any], name: str) -> None:
    value = frame.observer.attribute(stack[-1], name)
    stack[-1] = NULL
    stack.append(value)


@operation("load_super")
def load_super(frame: Frame, stack: list[Any], argument: tuple[str, bool]) -> None:
    """`super().name` and, with two arguments, `super(kind, value).name`, whatever `super` is here."""
    name, given = argument
    value, kind, what = stack.pop(), stack.pop(), stack.pop()
    observer = frame.observer
    made = observer.call(what, (kind, value) if given or what is super else ())
    if type(made) is super:
        stack.append(observer.super_attribute(made, name))
    else:
        stack.append(observer.attribute(made, name))


@operation("store_attribute", lifts=True)
def store_attribute(frame: Frame, stack: list[Any], name: str) -> None:
    value = stack.pop()
    frame.observer.set_attribute(value, name, stack.pop())


@operation("delete_attribute", lifts=True)
def delete_attribute(frame: Frame, stack: list[Any], name: str) -> None:
    frame.observer.delete_attribute(stack.pop(), name)


@operation("load_item", lifts=True)
def load_item(frame: Frame, stack: list[Any], _: None) -> None:
    key = stack.pop()
    observer = frame.observer
    stack[-1] = observer.item(stack[-1], key)


@operation("store_item", lifts=True)
def store_item(frame: Frame, stack: list[Any], _: None) -> None:
    key, value = stack.pop(), stack.pop()
    observer = frame.observer
    observer.set_item(value, key, stack.pop())


@operation("load_selected", lifts=True)
def load_selected(frame: Frame, stack: list[Any], _: None) -> None:
    """`x[m]`, which goes into an item by loads alone."""
    frame.selected = masks.selected(frame.observer, stack[-2], stack[-1])
    if frame.selected is None:
        load_item(frame, stack, None)
    else:
        stack.pop()
        stack[-1] = frame.selected.values


@operation("store_selected", lifts=True)
def store_selected(frame: Frame, stack: list[Any], _: None) -> None:
    found, frame.selected = frame.selected, None
    observer = frame.observer
    if found is not None and stack[-3] is found.values:
        if masks.put(observer, found, stack[-2], stack[-1], stack[-3]):
            del stack[-3:]
            return
        if not observer.refused:
            stack[-3] = observer.item(found.source, found.mask)
    store_item(frame, stack, None)


@operation("load_reduced", lifts=True)
def load_reduced(frame: Frame, stack: list[Any], argument: tuple[str, bool, int]) -> int | None:
    """`x[m]` and a call of its method that needs no count: the name, whether of rows, where it goes on."""
    name, rows, behind = argument
    found = masks.reduced(frame.observer, stack[-2], stack[-1], name, rows)
    if found is None:
        load_item(frame, stack, None)
        return None
    stack.pop()
    stack[-1] = found
    return behind


@operation("delete_item", lifts=True)
def delete_item(frame: Frame, stack: list[Any], _: None) -> None:
    key = stack.pop()
    frame.observer.delete_item(stack.pop(), key)


# ---- operators


def _binary(symbol: str, natively: Callable[[Any, Any], Any]) -> None:
    """Register a binary operator.  Plain numbers of equal kind need no recorder."""

    @operation(f"binary {symbol}", lifts=True)
    def binary(frame: Frame, stack: list[Any], inplace: bool) -> None:
        right = stack.pop()
        left = stack[-1]
        kind = type(left)
        if kind is type(right) and kind in _NUMBERS:
            stack[-1] = natively(left, right)
        else:
            stack[-1] = frame.observer.binary(symbol, left, right, inplace)


for _symbol, (_, _function, _) in BINARY.items():
    _binary(_symbol, _function)


def _compare(symbol: str, natively: Callable[[Any, Any], Any]) -> None:
    @operation(f"compare {symbol}", lifts=True)
    def compare(frame: Frame, stack: list[Any], _: None) -> None:
        right = stack.pop()
        left = stack[-1]
        kind = type(left)
        if kind is type(right) and kind in _NUMBERS:
            stack[-1] = natively(left, right)
        else:
            stack[-1] = frame.observer.compare(symbol, left, right)


for _symbol, (_, _, _function) in COMPARISONS.items():
    _compare(_symbol, _function)


def _unary(symbol: str) -> None:
    @operation(f"unary {symbol}", lifts=True)
    def unary(frame: Frame, stack: list[Any], _: None) -> None:
        stack[-1] = frame.observer.unary(symbol, stack[-1])


for _symbol in UNARY:
    _unary(_symbol)


@operation("not", lifts=True)
def not_(frame: Frame, stack: list[Any], _: None) -> None:
    stack[-1] = not frame.observer.truth(stack[-1])


@operation("to_bool", lifts=True)
def to_bool(frame: Frame, stack: list[Any], _: None) -> None:
    stack[-1] = _truth(frame, stack[-1])


@operation("is", lifts=True)
def is_(frame: Frame, stack: list[Any], inverted: int) -> None:
    right = stack.pop()
    stack[-1] = frame.observer.identical(stack[-1], right) is not bool(inverted)


@operation("contains", lifts=True)
def contains(frame: Frame, stack: list[Any], inverted: int) -> None:
    container = stack.pop()
    stack[-1] = bool(frame.observer.contains(container, stack[-1])) is not bool(inverted)


# ---- jumps


def _truth(frame: Frame, value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    return bool(frame.observer.truth(value))


@operation("jump", lifts=True)
def jump(frame: Frame, stack: list[Any], target: int) -> int:
    return target


def _jump_if(wanted: bool) -> None:
    """Register the jumps that ask for a truth: the one pops it, the other only where it goes on."""

    @operation(f"jump_if_{wanted}".lower(), lifts=True)
    def jump_if(frame: Frame, stack: list[Any], target: int) -> int | None:
        value = stack.pop()
        found = value is True or value is not False and bool(frame.observer.truth(value))
        return target if found is wanted else None

    @operation(f"jump_if_{wanted}_or_pop".lower(), lifts=True)
    def jump_if_or_pop(frame: Frame, stack: list[Any], target: int) -> int | None:
        if _truth(frame, stack[-1]) is wanted:
            return target
        stack.pop()
        return None


_jump_if(True)
_jump_if(False)


@operation("jump_if_none", lifts=True)
def jump_if_none(frame: Frame, stack: list[Any], target: int) -> int | None:
    return target if stack.pop() is None else None


@operation("jump_if_not_none", lifts=True)
def jump_if_not_none(frame: Frame, stack: list[Any], target: int) -> int | None:
    return None if stack.pop() is None else target


@operation("return_value", lifts=True)
def return_value(frame: Frame, stack: list[Any], _: None) -> int:
    frame.value = stack.pop()
    return RETURN


# ---- iteration


@operation("get_iterator", lifts=True)
def get_iterator(frame: Frame, stack: list[Any], _: None) -> None:
    stack[-1] = frame.observer.iterator(stack[-1], unseen=True)


def _for_each(name: str, keeps: bool) -> None:
    """keeps: from 3.13 on the exhausted iterator is popped by an instruction of its own."""

    @operation(name, lifts=True)
    def for_each(frame: Frame, stack: list[Any], end: int) -> int | None:
        try:
            stack.append(frame.observer.next_of(stack[-1]))
        except StopIteration:
            if not keeps:
                stack.pop()
            return end
        return None


_for_each("for_each", False)
_for_each("for_each_kept", True)


@operation("get_delegate")
def get_delegate(frame: Frame, stack: list[Any], _: None) -> None:
    """What `yield from` draws from."""
    if type(stack[-1]) is not GeneratorType:
        stack[-1] = frame.observer.iterator(stack[-1])


@operation("yield_value", "yield_from", lifts=True)
def yield_value(frame: Frame, stack: list[Any], _: Any) -> int:
    frame.value = stack.pop()
    return YIELD


@operation("send")
def send(frame: Frame, stack: list[Any], argument: tuple[int, bool]) -> int | None:
    """Send a value to what `yield from` draws from; its result, once it ends, goes to the target."""
    value = stack.pop()
    source = stack[-1]
    observer = frame.observer
    try:
        if value is None:
            found = observer.next_of(source)
        elif type(source) is GeneratorType:
            found = source.send(value)
        else:
            found = observer.call(observer.attribute(source, "send"), (value,))
    except StopIteration as end:
        return delegated(stack, argument, end)
    stack.append(found)
    return None


def delegated(stack: list[Any], argument: tuple[int, bool], end: StopIteration) -> int:
    """Go on after a `yield from` with the result of what it drew from."""
    target, keeps = argument
    if keeps:
        stack.append(end.value)
    else:
        stack[-1] = end.value
    return target


@operation("end_send", lifts=True)
def end_send(frame: Frame, stack: list[Any], _: None) -> None:
    del stack[-2]
