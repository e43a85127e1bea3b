"""What a call shows, as plain data that can be compared: objects, tensors, memory, who is who."""

from __future__ import annotations

import collections
import contextlib
import functools
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import lamina


def identity(function: Any) -> Any:
    return function


@dataclass(frozen=True)
class Library:
    """A library, how it traces, and how to look at it from outside.

    trace: the decorator.  counts: of what `trace` made, how many of its calls compiled code served, and how
    many ran the function.  reasons: why it ran undecorated.  tensor: the class; array: its memory as a NumPy
    array, without copying.  fields: an object's attributes, or None.  strict: whether warnings, and the
    program's lines in tracebacks, are compared as well.
    """

    name: str
    module: Any
    trace: Callable[[Any], Any] = identity
    counts: Callable[[Any], tuple[int, int]] = lambda traced: (0, 0)
    reasons: Callable[[Any], Counter[str]] = lambda traced: Counter()
    pure: Callable[[Any], Any] = identity
    tensor: Any = lamina.Tensor
    array: Callable[[Any], np.ndarray] = lambda x: x._data
    fields: Callable[[Any], dict[str, Any] | None] = lambda o: own(o)
    strict: bool = True
    modes: Callable[[Any], tuple] = lambda module: (module.is_grad_enabled(), str(module.get_default_dtype()))


def own(o: Any) -> dict[str, Any] | None:
    """An object's own dictionary, without asking its `__getattr__`; None where it has none."""
    try:
        return object.__getattribute__(o, "__dict__")
    except AttributeError:
        return None


_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))
_BARE = frozenset((list, dict))  # which have no attributes


# ---- looking at what shows ---------------------------------------------------------------------------------
@dataclass
class Array:
    """The values of a tensor or of an array, copied, and which of the memories seen so far it lies in."""

    what: tuple
    values: np.ndarray
    memory: tuple[int, ...]


@dataclass
class Look:
    """One look at a world: turns objects into plain data that can be compared with another world's.

    Mutable objects become (number, contents) when first met, then their number: so identity is compared.
    """

    library: Library
    seen: dict[int, int] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    memories: list[np.ndarray] = field(default_factory=list)

    def at(self, o: Any) -> Any:
        kind = type(o)
        if kind in _PLAIN:
            return kind.__name__, hex(o) if kind is int and o.bit_length() > 10_000 else o  # repr has a limit
        if kind in _BARE:  # most of what is looked at; of tensors, functions and the like it is none
            return self.numbered(o, kind)
        if isinstance(o, np.generic):
            return kind.__name__, repr(o)
        if isinstance(o, tuple):
            return kind.__name__, [self.at(x) for x in o]
        if isinstance(o, (type, types.ModuleType)):
            return "name", o.__name__
        if isinstance(o, (types.FunctionType, types.BuiltinFunctionType)):
            return "function", o.__qualname__
        if isinstance(o, types.MethodType):
            return "method", o.__func__.__qualname__, self.at(o.__self__)
        if isinstance(o, self.library.tensor) and not hasattr(
            o, "stride"
        ):  # an array of JAX, which is a value
            return Array((str(o.dtype), o.shape), np.array(o), ())
        return self.numbered(o, kind)

    def numbered(self, o: Any, kind: type) -> tuple:
        """An object with its number, and what it holds when it is first met."""
        number = self.seen.get(id(o))
        if number is not None:
            return "object", number
        number = self.seen[id(o)] = len(self.seen)
        self.keep.append(o)
        return "object", number, kind.__name__, self.contents(o)

    def contents(self, o: Any) -> Any:
        at = self.at
        if type(o) is list:
            return [at(x) for x in o], (), ()
        if type(o) is dict:
            return [(("str", k) if type(k) is str else at(k), at(v)) for k, v in o.items()], (), ()
        if isinstance(o, self.library.tensor):
            return self.tensor(o)
        if isinstance(o, np.ndarray):
            return Array((str(o.dtype), o.shape), o.copy(), self.memory(o))
        held: list[Any] = []
        if isinstance(o, (list, collections.deque)):
            held = [self.at(x) for x in o]
        elif isinstance(o, (dict, types.MappingProxyType)):
            held = [(self.at(k), self.at(v)) for k, v in o.items()]
        elif isinstance(o, (set, frozenset)):
            # not in the set's own order, which goes by addresses
            held = [self.at(x) for x in sorted(o, key=lambda x: repr(Look(self.library).at(x)))]
        elif isinstance(o, (slice, range)):
            held = [repr(o)]
        elif isinstance(o, BaseException):
            held = [self.at(o.args)]
        elif isinstance(o, functools.partial):
            held = [self.at(o.func), self.at(o.args), self.at(o.keywords)]
        elif isinstance(o, types.CellType):
            with contextlib.suppress(ValueError):  # an empty cell
                held = [self.at(o.cell_contents)]
        attributes = self.library.fields(o)
        slots = {}
        for kind in type(o).__mro__:
            for name in vars(kind).get("__slots__", ()):
                if name in vars(kind) and not name.startswith("__"):
                    with contextlib.suppress(AttributeError):  # an empty slot
                        slots[name] = vars(kind)[name].__get__(o)  # by which no __getattr__ runs
        return (
            held,
            [(n, self.at(v)) for n, v in (attributes or {}).items()],
            [(n, self.at(v)) for n, v in slots.items()],
        )

    def tensor(self, x: Any) -> Any:
        data = self.library.array(x)
        strides = tuple(s for s, n in zip(x.stride(), x.shape) if n > 1)
        what = str(x.dtype), tuple(x.shape), strides, x.requires_grad, x.is_leaf
        grad = self.at(x.grad) if x.is_leaf and x.requires_grad else None
        hung = [(name, self.at(value)) for name, value in (self.library.fields(x) or {}).items()]
        return Array(what, data.copy(), self.memory(data)), grad, hung

    def memory(self, data: np.ndarray) -> tuple[int, ...]:
        """The numbers of the arrays seen before that share memory with this one."""
        found = tuple(i for i, a in enumerate(self.memories) if np.shares_memory(a, data))
        self.memories.append(data)
        return found


def differing(a: Any, b: Any, where: str = "", equal: Callable[[Any, Any], bool] | None = None) -> str | None:
    """The first place where two looks differ, in words, or None.

    equal: of two plain values of one type, or arrays, whether they count as equal; `within` unless given.
    """
    found = _differing(a, b, equal or within)
    return None if found is None else where + found


def _differing(a: Any, b: Any, equal: Callable[[Any, Any], bool]) -> str | None:
    """What follows the place that both are looked at from; what is one object for both is not gone into."""
    kind = type(a)
    if kind is not type(b):
        return f": {a!r} became {b!r}"
    if kind is tuple or kind is list:
        if len(a) != len(b):
            return f": {a!r} became {b!r}"
        for i, x in enumerate(a):
            y = b[i]
            if x is y or type(x) is type(y) is str and x == y:  # most of what there is
                continue
            if (found := _differing(x, y, equal)) is not None:
                return f"[{i}]{found}"
        return None
    if kind is dict:
        if a.keys() != b.keys():
            return f": {list(a)} became {list(b)}"
        for k, x in a.items():
            if x is not b[k] and (found := _differing(x, b[k], equal)) is not None:
                return f".{k}{found}"
        return None
    if kind is Array:
        if a.what != b.what:
            return f": {a.what} became {b.what}"
        if a.memory != b.memory:
            return f": shares memory with tensors {a.memory}, became {b.memory}"
        return None if equal(a.values, b.values) else f": {a.values} became {b.values}"
    return None if equal(a, b) else f": {a!r} became {b!r}"


def within(a: Any, b: Any, chained: int = 0) -> bool:
    """Equal in bits, or for floating point within 32 roundings of the largest value; Python's are float32's.

    Programs compute little, and the order of a sum is free.  NaN, infinities and the sign of zero must agree.
    Where calls go on from each other's numbers, each adds as many roundings, of numbers of size 1
    (parameters) whatever is left of them (a small loss); steps at a rate that converges don't make them grow.

    chained: how many calls led here from each other's numbers.
    """
    if not isinstance(a, (float, np.ndarray)):
        return a == b
    a, b = (np.asarray(v, np.float32) if isinstance(v, float) else v for v in (a, b))
    if a.dtype.kind not in "fcV":  # ml_dtypes' bfloat16 is of kind V
        return np.array_equal(a, b)
    eps = float(lamina.finfo(lamina.bfloat16).eps) if a.dtype.kind == "V" else float(np.finfo(a.dtype).eps)
    wide = complex if a.dtype.kind == "c" else float
    a, b = a.astype(wide), b.astype(wide)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    a, b = a[finite], b[finite]
    zero = (a == 0) & (b == 0)  # a sum that is -1e-7 in another order is no -0
    if wide is float and not chained and not np.array_equal(np.signbit(a[zero]), np.signbit(b[zero])):
        return False
    size = np.max(np.abs(a), initial=1.0 if chained else 0.0)
    return bool(np.all(np.abs(a - b) <= 32 * max(1, chained) * eps * size))
