"""Read pickles opcode by opcode.  What a name stands for, and what is done with it, a `World` says.

Python's own unpickler calls whatever a file names; this one calls nothing.  It keeps a stack and a memo,
makes numbers, texts, tuples, lists, dicts and sets,
and asks its World for everything else.  Each opcode takes at
least a byte and makes at most as much as it takes, so a file needs no more memory than a few times its size.

Source: CPython's Lib/pickletools.py (protocols 0 to 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from types import FunctionType
from typing import Any, Protocol

from ...ir.types import Device
from .own_form import SavedFileError

Argument = Callable[["Pickle"], Any]
Action = Callable[["Pickle", Any], None]
# Python 2's names of modules, as PyTorch's files have them: protocol 2 is that of Python 2.
RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}
# Of a tuple that is a key, as hashing goes through all of it, within C's stack, each time; bits of an int.
KEY_LEAVES, KEY_DEPTH, KEY_BITS = 256, 20, 10_000
# Whose `__hash__` in Python is known: that of devices, members of enumerations, and paths.
HASHING = (Device.__module__, "enum", "pathlib", "pathlib._local")


class World(Protocol):
    """What a pickle may do besides plain containers."""

    def find(self, module: str, name: str) -> Any:
        """What a name stands for."""

    def call(self, function: Any, args: Any) -> Any:
        """What one of these makes of arguments."""

    def make(self, cls: Any, args: Any, kwargs: dict) -> Any:
        """An instance of one of these that is not initialised."""

    def build(self, obj: Any, state: Any) -> None:
        """Give an object its state."""

    def put(self, obj: Any, pairs: list[tuple[Any, Any]]) -> None:
        """Put items into what is no plain dict."""

    def extend(self, obj: Any, items: list) -> None:
        """Add items to what is no plain list."""

    def persistent(self, key: Any) -> Any:
        """What stands outside of the pickle."""


class Pickle:
    """A pickle that is being read, from a place in bytes on.

    encoding: of the texts of Python 2; "bytes" leaves them bytes.  After `read` the place is behind it.
    """

    def __init__(self, data: bytes, at: int, world: World, encoding: str, name: str):
        self.data, self.at, self.world, self.encoding, self.name = data, at, world, encoding, name
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.result: Any = None

    def read(self) -> Any:
        """The object.  Raises SavedFileError where the bytes are no pickle."""
        while True:
            begin = self.at
            code, argument, action = self._opcode()
            try:
                if action is None:
                    break
                action(self, argument)
            except (IndexError, KeyError, TypeError, ValueError, OverflowError) as error:
                raise self._damaged(begin, f"{code} has nothing that it could be done with") from error
        if self.marked or len(self.stack) != 1:
            raise self._damaged(begin, "it ends with more than one object, or none")
        return self.stack.pop()

    def _opcode(self) -> tuple[str, Any, Action | None]:
        begin = self.at
        opcode = OPCODES.get(self.take(1)[0])
        if opcode is None:
            raise self._damaged(begin, f"{self.data[begin]:#04x} is no opcode that a checkpoint needs")
        name, read, action = opcode
        try:
            return name, None if read is None else read(self), action
        except (ValueError, LookupError) as error:  # UnicodeDecodeError among them
            raise self._damaged(begin, f"{name} has an argument that means nothing") from error

    def names(self) -> Iterator[tuple[str, str]]:
        """The (module, name) of all that it names, without doing what it says.  Raises SavedFileError."""
        texts: list[str] = []
        memo: dict[int, str] = {}
        while True:
            begin = self.at
            code, argument, action = self._opcode()
            if action is None:
                return
            if code in ("GLOBAL", "INST"):
                yield argument
            elif code == "STACK_GLOBAL":
                if len(texts) < 2:
                    raise self._damaged(begin, "a name is missing")
                yield _renamed(texts[-2], texts[-1])
            elif isinstance(argument, str):
                texts.append(argument)
            elif code == "MEMOIZE":
                memo[len(memo)] = texts[-1] if texts else ""
            elif "PUT" in code:
                memo[argument] = texts[-1] if texts else ""
            elif "GET" in code and argument in memo:
                texts.append(memo[argument])

    def _damaged(self, at: int, why: str) -> SavedFileError:
        return SavedFileError(f"load(): the pickle in {self.name} is damaged at byte {at}: {why}")

    # ---- arguments ----
    def take(self, size: int) -> bytes:
        """The next bytes."""
        begin = self.at
        if size > len(self.data) - begin:
            raise self._damaged(begin, "it is cut short")
        self.at = begin + size
        return self.data[begin : self.at]

    def line(self) -> bytes:
        """The bytes before the next newline."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise self._damaged(self.at, "it is cut short")
        return self.take(end + 1 - self.at)[:-1]

    def text(self, raw: bytes) -> Any:
        """A text of Python 2."""
        return raw if self.encoding == "bytes" else raw.decode(self.encoding)

    # ---- the stack ----
    def push(self, value: Any) -> None:
        """Put a value on top."""
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        """Take what was pushed since the last mark."""
        items, self.stack = self.stack, self.marked.pop()
        return items


def check_key(value: Any) -> None:
    """Refuse what can't be hashed in a bounded time, or hashes by code of its own.  Raises TypeError."""
    todo, leaves = [(value, 0)], 0
    while todo:
        each, depth = todo.pop()
        if isinstance(each, (tuple, frozenset)):
            todo += ((inner, depth + 1) for inner in each)
        elif isinstance(each, int):
            if each.bit_length() > KEY_BITS:
                raise TypeError("an int that is a key is too large")
        elif isinstance(hasher := type(each).__hash__, FunctionType) and hasher.__module__ not in HASHING:
            raise TypeError(f"a key is a {type(each).__name__}, which hashes itself by code of its own")
        leaves += 1
        if leaves + len(todo) > KEY_LEAVES or depth > KEY_DEPTH:
            raise TypeError("a key is too large")


# ---- reading arguments -------------------------------------------------------------------------------------
def _number(form: str) -> Argument:
    struct = Struct(form)
    return lambda self: struct.unpack(self.take(struct.size))[0]


def _counted(width: int) -> Argument:
    """Bytes after their number, which stands in so many bytes."""
    return lambda self: self.take(int.from_bytes(self.take(width), "little"))


def _signed(width: int) -> Argument:
    read = _counted(width)
    return lambda self: int.from_bytes(read(self), "little", signed=True)


def _unicode(width: int) -> Argument:
    read = _counted(width)
    return lambda self: read(self).decode("utf-8", "surrogatepass")


def _old_text(width: int) -> Argument:
    read = _counted(width)
    return lambda self: self.text(read(self))


def _quoted(self: Pickle) -> Any:
    raw = self.line()
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise ValueError("quotes")
    return self.text(raw[1:-1].decode("unicode_escape").encode("latin-1"))


def _integer(self: Pickle) -> int | bool:
    raw = self.line()
    return raw == b"01" if raw in (b"00", b"01") else int(raw.removesuffix(b"L"))


def _renamed(module: str, name: str) -> tuple[str, str]:
    return RENAMED.get(module, module), name


def _name(self: Pickle) -> tuple[str, str]:
    return _renamed(self.line().decode(), self.line().decode())


# ---- what opcodes do ---------------------------------------------------------------------------------------
def _constant(make: Callable[[], Any]) -> Action:
    return lambda self, _: self.push(make())


def _put(self: Pickle, index: int) -> None:
    self.memo[index] = self.stack[-1]


def _pop(self: Pickle, _: Any) -> None:
    if self.stack:
        self.stack.pop()
    else:
        self.since_mark()


def _mark(self: Pickle, _: Any) -> None:
    self.marked.append(self.stack)
    self.stack = []


def _tuple(count: int) -> Action:
    def act(self: Pickle, _: Any) -> None:
        if len(self.stack) < count:
            raise IndexError("operands")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    return act


def _append(self: Pickle, items: list) -> None:
    target = self.stack[-1]
    if type(target) is list:
        target += items
    else:
        self.world.extend(target, items)


def _set_items(self: Pickle, flat: list) -> None:
    target = self.stack[-1]
    if len(flat) % 2:
        raise ValueError("pairs")
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    for key, _ in pairs:
        check_key(key)
    if type(target) is dict:
        target.update(pairs)
    else:
        self.world.put(target, pairs)


def _set_item(self: Pickle, _: Any) -> None:
    value, key = self.stack.pop(), self.stack.pop()
    _set_items(self, [key, value])


def _add(self: Pickle, _: Any) -> None:
    items = self.since_mark()
    for item in items:
        check_key(item)
    target = self.stack[-1]
    if type(target) is not set:
        raise TypeError("set")
    target.update(items)


def _dict(self: Pickle, _: Any) -> None:
    flat = self.since_mark()
    self.push({})
    _set_items(self, flat)


def _frozen(self: Pickle, _: Any) -> None:
    items = self.since_mark()
    for item in items:
        check_key(item)
    self.push(frozenset(items))


def _stack_name(self: Pickle, _: Any) -> None:
    name, module = self.stack.pop(), self.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise TypeError("names")
    self.push(self.world.find(*_renamed(module, name)))


def _reduce(self: Pickle, _: Any) -> None:
    args, function = self.stack.pop(), self.stack.pop()
    self.push(self.world.call(function, args))


def _new(self: Pickle, _: Any) -> None:
    args, cls = self.stack.pop(), self.stack.pop()
    self.push(self.world.make(cls, args, {}))


def _new_by_names(self: Pickle, _: Any) -> None:
    kwargs, args, cls = self.stack.pop(), self.stack.pop(), self.stack.pop()
    self.push(self.world.make(cls, args, kwargs))


def _old_instance(self: Pickle, name: tuple[str, str] | None) -> None:
    args = self.since_mark()
    cls = args.pop(0) if name is None else self.world.find(*name)
    self.push(self.world.make(cls, tuple(args), {}))


def _build(self: Pickle, _: Any) -> None:
    state = self.stack.pop()
    self.world.build(self.stack[-1], state)


_value: Action = Pickle.push  # the argument itself is the value
# By code: pickletools' name, what reads the argument, what is done; STOP ends.
OPCODES: dict[int, tuple[str, Argument | None, Action | None]] = {
    ord(code): (name, argument, action)
    for code, name, argument, action in (
        ("\x80", "PROTO", _number("<B"), lambda self, _: None),
        ("\x95", "FRAME", _number("<Q"), lambda self, _: None),
        (".", "STOP", None, None),
        ("N", "NONE", None, _constant(lambda: None)),
        ("\x88", "NEWTRUE", None, _constant(lambda: True)),
        ("\x89", "NEWFALSE", None, _constant(lambda: False)),
        (")", "EMPTY_TUPLE", None, _constant(tuple)),
        ("]", "EMPTY_LIST", None, _constant(list)),
        ("}", "EMPTY_DICT", None, _constant(dict)),
        ("\x8f", "EMPTY_SET", None, _constant(set)),
        ("J", "BININT", _number("<i"), _value),
        ("K", "BININT1", _number("<B"), _value),
        ("M", "BININT2", _number("<H"), _value),
        ("G", "BINFLOAT", _number(">d"), _value),
        ("\x8a", "LONG1", _signed(1), _value),
        ("\x8b", "LONG4", _signed(4), _value),
        ("I", "INT", _integer, _value),
        ("L", "LONG", _integer, _value),
        ("F", "FLOAT", lambda self: float(self.line()), _value),
        ("X", "BINUNICODE", _unicode(4), _value),
        ("\x8c", "SHORT_BINUNICODE", _unicode(1), _value),
        ("\x8d", "BINUNICODE8", _unicode(8), _value),
        ("V", "UNICODE", lambda self: self.line().decode("raw_unicode_escape"), _value),
        ("U", "SHORT_BINSTRING", _old_text(1), _value),
        ("T", "BINSTRING", _old_text(4), _value),
        ("S", "STRING", _quoted, _value),
        ("C", "SHORT_BINBYTES", _counted(1), _value),
        ("B", "BINBYTES", _counted(4), _value),
        ("\x8e", "BINBYTES8", _counted(8), _value),
        ("\x96", "BYTEARRAY8", _counted(8), lambda self, raw: self.push(bytearray(raw))),
        ("q", "BINPUT", _number("<B"), _put),
        ("r", "LONG_BINPUT", _number("<I"), _put),
        ("p", "PUT", lambda self: int(self.line()), _put),
        ("\x94", "MEMOIZE", None, lambda self, _: _put(self, len(self.memo))),
        ("h", "BINGET", _number("<B"), lambda self, index: self.push(self.memo[index])),
        ("j", "LONG_BINGET", _number("<I"), lambda self, index: self.push(self.memo[index])),
        ("g", "GET", lambda self: int(self.line()), lambda self, index: self.push(self.memo[index])),
        ("(", "MARK", None, _mark),
        ("0", "POP", None, _pop),
        ("1", "POP_MARK", None, lambda self, _: self.since_mark().clear()),
        ("2", "DUP", None, lambda self, _: self.push(self.stack[-1])),
        ("t", "TUPLE", None, lambda self, _: self.push(tuple(self.since_mark()))),
        ("\x85", "TUPLE1", None, _tuple(1)),
        ("\x86", "TUPLE2", None, _tuple(2)),
        ("\x87", "TUPLE3", None, _tuple(3)),
        ("l", "LIST", None, lambda self, _: self.push(self.since_mark())),
        ("d", "DICT", None, _dict),
        ("\x91", "FROZENSET", None, _frozen),
        ("a", "APPEND", None, lambda self, _: _append(self, [self.stack.pop()])),
        ("e", "APPENDS", None, lambda self, _: _append(self, self.since_mark())),
        ("s", "SETITEM", None, _set_item),
        ("u", "SETITEMS", None, lambda self, _: _set_items(self, self.since_mark())),
        ("\x90", "ADDITEMS", None, _add),
        ("c", "GLOBAL", _name, lambda self, name: self.push(self.world.find(*name))),
        ("\x93", "STACK_GLOBAL", None, _stack_name),
        ("i", "INST", _name, _old_instance),
        ("o", "OBJ", None, lambda self, _: _old_instance(self, None)),
        ("R", "REDUCE", None, _reduce),
        ("\x81", "NEWOBJ", None, _new),
        ("\x92", "NEWOBJ_EX", None, _new_by_names),
        ("b", "BUILD", None, _build),
        ("Q", "BINPERSID", None, lambda self, _: self.push(self.world.persistent(self.stack.pop()))),
    )
}
