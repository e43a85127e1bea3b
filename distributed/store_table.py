"""What a store keeps, and what is asked of it: requests on keys, by which ranks agree before they can meet.

A request is an op, keys and values, all bytes, and so is an answer.  Requests change a table in one way only,
so that whoever sees the same requests in the same order has the same table: a server's (`tcp_store.py`), a
process's own (`HashStore`), and one that each rank makes of a file's (`file_store.py`).
"""

from __future__ import annotations

import struct
from collections import deque
from enum import IntEnum
from typing import NamedTuple

from ..ir.errors import DistributedError

KEY, VALUE = 64 << 10, 8 << 20  # bytes of the longest
MOST, WHOLE = 1 << 16, 1 << 30  # keys or values of a request; bytes of all that is kept
FRAME = 64 << 20  # bytes of a request, and of an answer
_BIG, _SMALL = (1 << 63) - 1, -(1 << 63)


class Op(IntEnum):
    """What can be asked."""

    SET, GET, WAIT, ADD, APPEND, CHECK, COMPARE, DELETE, COUNT, KEYS, PUSH, POP, TAKE, LENGTH, JOIN, LEAVE = (
        range(16)
    )


CHANGES = frozenset(
    (Op.SET, Op.ADD, Op.APPEND, Op.COMPARE, Op.DELETE, Op.PUSH, Op.POP, Op.TAKE, Op.JOIN, Op.LEAVE)
)
# How many keys and values each op takes, where that is said.
_TAKES = {
    Op.ADD: (1, 1), Op.APPEND: (1, 1), Op.COMPARE: (1, 2), Op.DELETE: (1, 0), Op.COUNT: (0, 0),
    Op.KEYS: (0, 0), Op.PUSH: (1, 1), Op.POP: (1, 0), Op.TAKE: (1, 0), Op.LENGTH: (1, 0),
    Op.JOIN: (0, 0), Op.LEAVE: (0, 0),
}  # fmt: skip


class Request(NamedTuple):
    """What is asked, of which keys, with which values.  Of wrong sizes or numbers: `check` says so."""

    op: Op
    keys: list[bytes]
    values: list[bytes]

    def check(self) -> None:
        """Raises DistributedError for what is too long, or too many, or too few."""
        takes = _TAKES.get(self.op, (len(self.keys), len(self.keys) if self.op is Op.SET else 0))
        if (len(self.keys), len(self.values)) != takes:
            raise DistributedError(
                f"{self.op.name.lower()} takes {takes[0]} keys and {takes[1]} values, "
                f"not {len(self.keys)} and {len(self.values)}"
            )
        if len(self.keys) > MOST:
            raise DistributedError(f"a request has at most {MOST} keys, not {len(self.keys)}")
        for what, parts, longest in (("key", self.keys, KEY), ("value", self.values, VALUE)):
            if any(len(part) > longest for part in parts):
                raise DistributedError(
                    f"a {what} of a store has at most {longest} bytes, not {max(map(len, parts))}",
                    f"{self.op.name.lower()}({', '.join(map(shown, self.keys[:3]))})",
                )
        if sum(map(len, self.keys)) + sum(map(len, self.values)) > FRAME - (1 << 20):
            raise DistributedError(f"a request of a store has at most {FRAME - (1 << 20)} bytes")


def shown(key: bytes) -> str:
    """A key for people."""
    text = key.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 100 else f"{text[:100]}…")


class Table:
    """Values by key, queues by key, and how many joined and left.

    nbytes: of all keys and values, at most WHOLE.
    """

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, deque[bytes]] = {}
        self.nbytes = self.joined = self.left = 0

    def answer(self, request: Request) -> list[bytes] | None:
        """Do what is asked.  None, and nothing is done, where a key that it waits for is not there.

        Raises DistributedError where it can't be done, and nothing is.
        """
        request.check()
        op, keys, values = request
        if op in (Op.GET, Op.WAIT) and not all(key in self.values for key in keys):
            return None
        return (
            getattr(self, f"_{op.name.lower()}")(keys, *values)
            if op is not Op.SET
            else self._set(keys, values)
        )

    def _put(self, key: bytes, value: bytes) -> None:
        before = self.values.get(key)
        more = len(value) - (len(before) if before is not None else -len(key))
        self._count_bytes(more)
        self.values[key] = value

    def _count_bytes(self, more: int) -> None:
        if self.nbytes + more > WHOLE:
            raise DistributedError(f"the store is full: it keeps at most {WHOLE} bytes")
        self.nbytes += more

    def _set(self, keys: list[bytes], values: list[bytes]) -> list[bytes]:
        new = sum(map(len, keys)) + sum(map(len, values))
        self._count_bytes(new)  # room for all ahead of the first
        self.nbytes -= new
        for key, value in zip(keys, values, strict=True):
            self._put(key, value)
        return []

    def _get(self, keys: list[bytes]) -> list[bytes]:
        found = [self.values[key] for key in keys]
        if sum(map(len, found)) > FRAME - (1 << 20):
            raise DistributedError(
                f"an answer of a store has at most {FRAME - (1 << 20)} bytes: get fewer keys"
            )
        return found

    def _wait(self, keys: list[bytes]) -> list[bytes]:
        return []

    def _add(self, keys: list[bytes], amount: bytes) -> list[bytes]:
        (key,) = keys
        total = _number(key, self.values.get(key, b"0")) + _number(key, amount)
        if not _SMALL <= total <= _BIG:
            raise DistributedError(f"add({shown(key)}): {total} is no 64-bit number")
        self._put(key, str(total).encode())
        return [self.values[key]]

    def _append(self, keys: list[bytes], value: bytes) -> list[bytes]:
        (key,) = keys
        whole = self.values.get(key, b"") + value
        if len(whole) > VALUE:
            raise DistributedError(f"append({shown(key)}): a value has at most {VALUE} bytes")
        self._put(key, whole)
        return []

    def _check(self, keys: list[bytes]) -> list[bytes]:
        return [b"1" if all(key in self.values for key in keys) else b"0"]

    def _compare(self, keys: list[bytes], expected: bytes, desired: bytes) -> list[bytes]:
        (key,) = keys
        held = self.values.get(key)
        if held == expected or held is None and not expected:
            self._put(key, desired)
            return [desired]
        return [expected if held is None else held]

    def _delete(self, keys: list[bytes]) -> list[bytes]:
        (key,) = keys
        value = self.values.pop(key, None)
        if value is None:
            return [b"0"]
        self.nbytes -= len(key) + len(value)
        return [b"1"]

    def _count(self, keys: list[bytes]) -> list[bytes]:
        return [b"%d" % len(self.values)]

    def _keys(self, keys: list[bytes]) -> list[bytes]:
        if len(self.values) > MOST or sum(map(len, self.values)) > FRAME - (1 << 20):
            raise DistributedError(f"list_keys(): the store has too many keys to list: {len(self.values)}")
        return sorted(self.values)

    def _push(self, keys: list[bytes], value: bytes) -> list[bytes]:
        (key,) = keys
        self._count_bytes(len(value) + (0 if key in self.queues else len(key)))
        self.queues.setdefault(key, deque()).append(value)
        return []

    def _pop(self, keys: list[bytes]) -> list[bytes] | None:
        (key,) = keys
        queue = self.queues.get(key)
        if not queue:
            return None
        value = queue.popleft()
        self.nbytes -= len(value)
        if not queue:
            del self.queues[key]
            self.nbytes -= len(key)
        return [value]

    def _take(self, keys: list[bytes]) -> list[bytes]:
        return self._pop(keys) or []

    def _length(self, keys: list[bytes]) -> list[bytes]:
        return [b"%d" % len(self.queues.get(keys[0], ()))]

    def _join(self, keys: list[bytes]) -> list[bytes]:
        self.joined += 1
        return []

    def _leave(self, keys: list[bytes]) -> list[bytes]:
        self.left += 1
        return [b"%d %d" % (self.joined, self.left)]


def _number(key: bytes, text: bytes) -> int:
    if len(text) > 20 or not text.removeprefix(b"-").isdigit():
        raise DistributedError(f"add({shown(key)}): the value is no number: {text[:100]!r}")
    return int(text)


# ---- as bytes: the length of what follows, an op or status, the number of keys, and each with its length
HEAD = struct.Struct(">IBI")
_LENGTH = struct.Struct(">I")


def packed(kind: int, keys: list[bytes], values: list[bytes]) -> bytes:
    """A request (kind: its op), or an answer (its status)."""
    body = b"".join([part for one in (*keys, *values) for part in (_LENGTH.pack(len(one)), one)])
    return HEAD.pack(HEAD.size - _LENGTH.size + len(body), kind, len(keys)) + body


def unpacked(data: bytes) -> tuple[int, list[bytes], list[bytes]]:
    """What `packed` was given, of the bytes behind the first length.

    Raises ValueError for bytes that it never makes.
    """
    if len(data) < HEAD.size - _LENGTH.size:
        raise ValueError("too short")
    kind, keys = struct.unpack_from(">BI", data)
    parts, at = [], HEAD.size - _LENGTH.size
    while at < len(data):
        if len(data) - at < _LENGTH.size or len(parts) > 2 * MOST:
            raise ValueError("a part without its length, or too many")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > len(data) - at:
            raise ValueError("a part that is longer than what came")
        parts.append(data[at : at + length])
        at += length
    if keys > len(parts):
        raise ValueError("fewer parts than keys")
    return kind, parts[:keys], parts[keys:]


def request_of(data: bytes) -> Request:
    """The request that was packed.  Raises ValueError for bytes that are none."""
    kind, keys, values = unpacked(data)
    return Request(Op(kind), keys, values)
