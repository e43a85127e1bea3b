"""Operators, by Python's own rules: which operand's method is asked first, and what when it declines."""

from __future__ import annotations

import collections
import contextlib
import operator
import re
import types
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from ...ir.dtypes import int64
from ...nn.members import Tracked
from ...runtime import Parameter, Size, Tensor
from ..facts import exact, holds_nan, literal
from .items import CONTAINERS, SEQUENCES, VALUES, Items
from .kinds import ATOMS, ITERATORS, MISSING, PINNED, VIEWS, Function, Method, heap_class, lookup
from .numbers import (
    FUNCTIONS,
    LIFTED,
    OF_SEVERAL,
    SEARCHES,
    LiftedInt,
    LiftedSize,
    LiftedText,
    is_number,
    raw,
    spelled,
)

_ITEM = vars(Tensor)["item"]
_SPELLING = ("__str__", "__repr__", "__float__", "__int__", "__index__")  # what `%` asks
_OF_FLOATS = re.compile(r"(?:[^%]|%%|%[-+ #0]*\d*(?:\.\d+)?[eEfFgG])*")  # takes floats alone
BINARY: dict[str, tuple[str, Callable, Callable]] = {
    "+": ("add", operator.add, operator.iadd), "-": ("sub", operator.sub, operator.isub),
    "*": ("mul", operator.mul, operator.imul), "/": ("truediv", operator.truediv, operator.itruediv),
    "//": ("floordiv", operator.floordiv, operator.ifloordiv), "%": ("mod", operator.mod, operator.imod),
    "**": ("pow", operator.pow, operator.ipow), "@": ("matmul", operator.matmul, operator.imatmul),
    "&": ("and", operator.and_, operator.iand), "|": ("or", operator.or_, operator.ior),
    "^": ("xor", operator.xor, operator.ixor), "<<": ("lshift", operator.lshift, operator.ilshift),
    ">>": ("rshift", operator.rshift, operator.irshift),
}  # fmt: skip
UNARY: dict[str, tuple[str, Callable]] = {
    "-": ("__neg__", operator.neg), "+": ("__pos__", operator.pos), "~": ("__invert__", operator.invert),
}  # fmt: skip
# The method of the left operand, that of the right one, and the comparison.
COMPARISONS: dict[str, tuple[str, str, Callable]] = {
    "<": ("__lt__", "__gt__", operator.lt), "<=": ("__le__", "__ge__", operator.le),
    "==": ("__eq__", "__eq__", operator.eq), "!=": ("__ne__", "__ne__", operator.ne),
    ">": ("__gt__", "__lt__", operator.gt), ">=": ("__ge__", "__le__", operator.ge),
}  # fmt: skip
_LIFTING = frozenset("+ - * / // % ** & | ^ << >>".split())  # operators of numbers that give a number
_OF_TENSORS = frozenset("+ - * / // % **".split())  # operators of a tensor that take a lifted number
_OF_WHOLE = frozenset("+ - * / // %".split())  # those of a tensor of integers that take a size
_EXACT = (-2, -1, -0.5, 0, 0.5, 1, 2, 3)  # exponents that ops take for products and roots
_CLOSED = frozenset("+ - * / // %".split())  # of which the classes of the operands tell that of the result


_HEARD = frozenset((*ATOMS, Tensor, Parameter))  # between these, operators run no Python of the user's
_JOINED = (list, tuple, str, bytes, bytearray, collections.deque)


def _of_sequence(method: Any) -> bool:
    """Whether a method is that by which C code joins or repeats a sequence."""
    names = ("__add__", "__iadd__", "__mul__", "__imul__", "__rmul__")
    return (
        type(method) is types.WrapperDescriptorType
        and method.__name__ in names
        and method.__objclass__ in _JOINED
    )


def _changes(symbol: str, a: Any) -> bool:
    """Whether an in-place operator changes a container."""
    if issubclass(type(a), (list, collections.deque)):
        return symbol in "+*"
    return issubclass(type(a), dict) and symbol == "|" or issubclass(type(a), set) and symbol in "|&-^"


def _called(kind: type) -> str:
    """What Python's own messages call a class."""
    return (
        kind.__name__
        if heap_class(kind) or kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__name__}"
    )


TOLD = frozenset((int, float, str, bool, type(None)))  # whose text C code makes of their values alone
_BOXED = {int, float, complex, str, bytes}  # whose values, not whose objects, are guarded


def _floating(operands: tuple) -> bool:
    """Whether one operand is a floating tensor: any number fits beside it."""
    return any(issubclass(type(x), Tensor) and x.is_floating_point() for x in operands)


def _whole(operands: tuple) -> bool:
    """Whether a whole number that changes stands beside a tensor of int64, which holds all such."""
    kinds = {type(x) for x in operands if not issubclass(type(x), Tensor)}
    tensors = [x for x in operands if issubclass(type(x), Tensor)]
    return kinds == {LiftedInt} and all(x.dtype is int64 for x in tensors)


class Operators(Items):
    """Runs operators."""

    def read_numpys_settings(self) -> None:
        """What NumPy does about division by zero and the like is asked at each of its operations."""
        if not self.refused and (0, "settings", "numpy") not in self.known.facts:
            self.known.facts[0, "settings", "numpy"] = True
            self.check(f"geterr() != {np.geterr()!r}", "numpy.geterr()")

    def read_print_options(self) -> None:
        """How NumPy writes arrays and its numbers is asked whenever it does."""
        if not self.refused and (0, "settings", "printed") not in self.known.facts:
            self.known.facts[0, "settings", "printed"] = True
            self.check(f"repr(printoptions()) != {repr(np.get_printoptions())!r}", "numpy.get_printoptions()")

    def _on_tensors(self, run: Callable, plain: Callable, *operands: Any) -> Any:
        """An operator's C code on tensors, and numbers, which the recorder of ops knows if they are lifted.

        plain: the operator that writes nothing.
        """
        if not self.sizes.concern(*(x for x in operands if issubclass(type(x), Tensor))):
            return run(*operands)
        return self.sizes.operator(run, plain, operands)

    def _whole_and_size(self, a: Any, b: Any) -> bool:
        """Whether of two operands one is a tensor of integers, the other a size: an operand there."""
        x, n = (a, b) if issubclass(type(a), Tensor) else (b, a)
        return type(x) is Tensor and x.dtype is int64 and type(n) is LiftedInt and self.sizes.is_size(n)

    # ---- arithmetic ----
    def binary(self, symbol: str, a: Any, b: Any, inplace: bool = False) -> Any:
        """`a + b`, or `a += b`, for any operator.  Raises what Python raises."""
        name, plain, within = BINARY[symbol]
        run = within if inplace else plain
        if symbol == "%" and type(a) is str and (told := self._percent(a, b)) is not None:
            return told
        if symbol == "+" and type(a) is type(b) and type(a) in (list, tuple) and not inplace:
            if self._places(a) is not None or self._places(b) is not None:
                return self.filled(type(a), [*self.unpack(a, lift=True), *self.unpack(b, lift=True)])
        if symbol == "*" and type(a) in (list, tuple) and type(b) in (int, LiftedInt) and not inplace:
            if a in self.shadow and self.is_fresh(a) and not self.refused:
                return self.filled(type(a), self.unpack(a, lift=True) * self.plain(b))
        if (
            symbol == "*"
            and type(a) in (Size, LiftedSize)
            and type(b) in (int, LiftedInt)
            and not self.refused
        ):
            return self.filled(tuple, self.unpack(a, lift=True) * self.plain(b))
        if symbol == "+" and LiftedSize in (type(a), type(b)) and not self.refused:
            if issubclass(type(a), Size) and issubclass(type(b), tuple):
                return self.shape_of([*self.unpack(a, lift=True), *self.unpack(b, lift=True)])
        if symbol == "+" and inplace and type(a) is list and type(b) in (list, tuple) and b in self.shadow:
            self.call(self.attribute(a, "extend"), (b,))
            return a
        if type(a) in LIFTED or type(b) in LIFTED:
            bare = raw(a), raw(b)
            if symbol == "+" and type(bare[0]) is type(bare[1]) is str:
                return self.joined([a, b])
            if not self.refused and symbol in _LIFTING and is_number(bare[0]) and is_number(bare[1]):
                with contextlib.suppress(ArithmeticError, TypeError, ValueError):
                    value, text = plain(*bare), f"{spelled(a)} {symbol} {spelled(b)}"
                    if is_number(value):
                        divides = symbol in ("/", "//", "%") and type(b) in LIFTED
                        if divides and b.expression not in self.numbers.clocks.told:
                            self.check(f"{b.expression} == 0", "a divisor that is 0")
                        made = self.numbers.computed(value, text, symbol in _CLOSED)
                        self.sizes.computed(symbol, a, b, made)
                        return made
            if not self.refused and symbol in _OF_WHOLE and self._whole_and_size(a, b):
                if self._unpatched(name, inplace, a, b):
                    return self.sizes.call(run, (a, b), {}, plain)
            fits = symbol in _OF_TENSORS and _floating(bare) or symbol in "+-*" and _whole((a, b))
            if not self.refused and fits:
                self.exponent(b if symbol == "**" else None)
                if self._unpatched(name, inplace, a, b):
                    return self._on_tensors(run, plain, a, b)
            a, b = self.plain(a), self.plain(b)
        if self.refused or type(a) in _HEARD and type(b) in _HEARD and self._unpatched(name, inplace, a, b):
            return self._on_tensors(run, plain, a, b)
        steps = self._steps(name, a, b, inplace)
        if any(self.of_user(method) or type(method) is Function and not self._is_native(owner)
               for owner, _, method in steps):  # fmt: skip
            return self._in_turn(symbol, steps, a, b, inplace)
        native = self._is_native(a) or self._is_native(b)
        if any(issubclass(type(o), (np.ndarray, np.generic)) for o in (a, b)):
            self.read_numpys_settings()
        if native or symbol == "%" and issubclass(type(a), (str, bytes)):
            self.read_deep(a, b)
        if inplace and not native and _changes(symbol, a):
            return self._within(symbol, run, a, b)
        if symbol == "*":  # in place, C code does not repeat the right one
            a, b = a if inplace else self._count_for(b, a), self._count_for(a, b)
        self._read_operand(symbol, a)
        self._read_operand(symbol, b)
        if inplace and issubclass(type(a), np.ndarray):
            self.array_changes(a)
        result = run(a, b)
        return result if result is a or result is b else self.of_table(self.made(result), a, b)

    def exponent(self, number: Any) -> None:
        """A lifted exponent of a tensor stays one as long as it has no way of its own."""
        if type(number) in LIFTED:
            special = raw(number) in _EXACT
            text = f"({number.expression} in {_EXACT}) is not {special}"
            self.check(text, f"whether {self.numbers.in_words(number.expression)} is a small power")
            if special:
                self.plain(number)

    def of_numbers(self, function: Callable, args: tuple) -> Any:
        """A function of numbers, some of them lifted: the number it gives is lifted, its truth a fact.

        MISSING where it is given something else, or raises, or gives what is no number.
        """
        bare = tuple(map(raw, args))
        if self.refused or not any(type(a) in LIFTED for a in args):
            return MISSING
        if function in SEARCHES:
            return self._searched(function, *args)
        if function not in FUNCTIONS:
            return MISSING
        if not all(map(is_number, bare)) or len(args) < 2 and function in OF_SEVERAL:
            return MISSING
        with contextlib.suppress(ArithmeticError, TypeError, ValueError):
            value, text = function(*bare), f"{self.const(function)}({', '.join(map(spelled, args))})"
            if type(value) is bool:
                self.check(f"{text} is not {value}", f"whether {self.numbers.in_words(text)}")
                return value
            if is_number(value):
                late = self.numbers.clocks.is_late(a.expression for a in args if type(a) in LIFTED)
                made = self.numbers.computed(value, text, closed=late and function not in OF_SEVERAL)
                self.sizes.of_function(function, args, made)
                return made
        return MISSING

    def _searched(self, function: Callable, items: Any, x: Any, *rest: Any) -> Any:
        """A place in a sorted list, by `bisect` and its kin; MISSING where not all are numbers."""
        if type(items) not in (list, tuple) or not all(map(is_number, (*items, raw(x), *rest))):
            return MISSING
        self.read_all(items)
        listed = "".join([f"{spelled(each)}, " for each in items])
        text = f"{self.const(function)}(({listed}), {', '.join(map(spelled, (x, *rest)))})"
        return self.numbers.computed(function(items, raw(x), *rest), text)

    def _unpatched(self, name: str, inplace: bool, a: Any, b: Any) -> bool:
        """Whether an operator of tensors is Lamina's own; which it is becomes a fact."""
        if not (issubclass(type(a), Tensor) or issubclass(type(b), Tensor)):
            return True
        asked = [
            f"__{name}__",
            *([f"__r{name}__"] if type(a) is not type(b) else ()),
            *([f"__i{name}__"] * inplace),
        ]
        found = [self.class_attribute(Tensor, special) for special in asked]
        return not any(map(self.of_user, found))

    def _is_native(self, o: Any) -> bool:
        """Whether an object's operators are Lamina's or NumPy's own."""
        return issubclass(type(o), (Tensor, np.ndarray, np.generic, Size)) and not self._of_users_class(o)

    def _of_users_class(self, o: Any) -> bool:
        home = type(o).__module__.partition(".")[0]
        if home in ("lamina", "numpy"):
            return False
        self.refuse(f"{type(o).__name__}, a class of the user's own, derives from a tensor or an array")
        return True

    def _steps(self, name: str, a: Any, b: Any, inplace: bool) -> list[tuple[Any, Any, Any]]:
        """The methods that Python asks in turn: (of whom, the other operand, the method)."""

        def method(o: Any, name: str) -> Any:
            if type(o) is Tensor:
                return self.class_attribute(Tensor, name)  # which may be replaced by one of the user's
            return lookup(type(o), name) if type(o) in ATOMS or self._is_native(o) else self.special(o, name)

        forward, backward = (a, b, method(a, f"__{name}__")), (b, a, MISSING)
        if type(a) is not type(b):
            backward = (b, a, method(b, f"__r{name}__"))
        steps = [forward, backward]
        if type(a) is not type(b) and issubclass(type(b), type(a)):
            if backward[2] is not lookup(type(a), f"__r{name}__"):
                steps = [backward, forward]
        if inplace:
            steps.insert(0, (a, b, method(a, f"__i{name}__")))
        asked = [step for step in steps if step[2] is not MISSING]
        if inplace and heap_class(
            type(a)
        ):  # C code does not repeat the right one in place of such a left one
            asked = [step for step in asked if step[0] is a or not _of_sequence(step[2])]
        return sorted(asked, key=lambda step: _of_sequence(step[2]))  # which C code asks last

    def _in_turn(self, symbol: str, steps: list[tuple[Any, Any, Any]], a: Any, b: Any, inplace: bool) -> Any:
        """Ask one method after the other, some of which are the user's Python."""
        for owner, other, method in steps:
            within = type(method) is not Function and getattr(method, "__name__", "").startswith("__i")
            if within and _changes(symbol, owner):
                result = self._within(symbol, method, owner, other)
            else:
                result = self._asked(symbol, owner, other, method)
            if result is not NotImplemented:
                return result
        spelled = "** or pow()" if symbol == "**" and not inplace else f"{symbol}{'=' if inplace else ''}"
        kinds = f"'{_called(type(a))}' and '{_called(type(b))}'"
        raise TypeError(f"unsupported operand type(s) for {spelled}: {kinds}")

    def _asked(self, symbol: str, owner: Any, other: Any, method: Any) -> Any:
        """Ask one operand's method about the other operand."""
        if type(method) is Function and (self.of_user(method) or not self._is_native(owner)):
            return self.call(method, (owner, other))
        if self._is_native(owner):
            self.read_deep(other)
            if issubclass(type(owner), np.ndarray) and getattr(method, "__name__", "").startswith("__i"):
                self.array_changes(owner)
        self._read_operand(symbol, owner)
        self._read_operand(symbol, other, asked=True)
        if symbol == "*" and _of_sequence(method):
            other = self._times(other)
        if type(method) in (types.WrapperDescriptorType, types.MethodDescriptorType, Function):
            result = method(owner, other)
        elif method is None:
            raise TypeError(f"unsupported operand type(s) for {symbol}: '{type(owner).__name__}'")
        else:
            self.refuse(f"the operator {symbol} of a {type(owner).__name__} is no plain method")
            result = method.__get__(owner, type(owner))(other)
        return result if result is owner or result is other else self.made(result)

    def _count_for(self, sequence: Any, count: Any) -> Any:
        """An operand as C code takes it: beside a sequence a number, by its own `__index__`."""
        counts = (
            issubclass(type(sequence), _JOINED) and heap_class(type(count)) and not self._is_native(count)
        )
        return self.index(count) if counts and issubclass(type(sequence), _JOINED) else count

    def _times(self, count: Any) -> Any:
        """How often a sequence is repeated."""
        if type(count) not in ATOMS and self.special(count, "__index__") is MISSING:
            raise TypeError(f"can't multiply sequence by non-int of type '{_called(type(count))}'")
        return self.index(count)

    def _read_operand(self, symbol: str, o: Any, asked: bool = False) -> None:
        """C code looks at an operand; asked: at one whose class need not be known to it."""
        kind = type(o)
        if kind in ATOMS or issubclass(kind, (Tensor, np.generic, np.dtype, *PINNED)) or self.refused:
            return
        if issubclass(kind, np.ndarray):
            self.read_all(o)
        elif kind is types.MappingProxyType:
            self.read_deep(o)
        elif issubclass(kind, CONTAINERS):
            self.read_all(o)
            if issubclass(kind, (set, frozenset, dict)):
                self._read_hashed(symbol, o)
        elif issubclass(kind, (int, float, complex, str, bytes)) or kind in VALUES or kind is bytearray:
            self.read_value(o)
        elif kind in VIEWS:
            self.open_view(o)
            if not self.is_fresh(o):
                self.refuse(f"a dictionary's view from outside was an operand of {symbol}")
            self._read_hashed(symbol, o)
        elif kind.__module__ in ("decimal", "_decimal"):
            self.refuse(f"{symbol} of a {kind.__name__} rounds as its context says, which may change")
        elif kind in (types.UnionType, types.GenericAlias) or issubclass(kind, ITERATORS) or asked:
            return
        elif not self.is_fresh(o):
            self.refuse(f"a {kind.__name__} was an operand of {symbol}, which C code answers")

    def _read_hashed(self, symbol: str, o: Any) -> None:
        """C code looks up what is in a set: by hash and by `==`."""
        for each in o:
            self.asks_for_nan(each)
            kind = type(each)
            inside = issubclass(type(each), (tuple, frozenset)) and not self.by_value(each)
            written = any(type(lookup(kind, name)) is Function for name in ("__eq__", "__hash__"))
            if inside or written and not issubclass(type(each), (Tensor, Enum)):
                self.refuse(f"{symbol} of a set compared objects of {kind.__name__}, which do so in Python")

    def _within(self, symbol: str, run: Callable, a: Any, b: Any) -> Any:
        """An in-place operator on a container."""
        if issubclass(type(a), Tracked) and not self.is_fresh(a):
            self.refuse("a module's own dictionary was written; assign to the module's attribute")
        if symbol == "+":
            b = self.new([self.plain(each) for each in self.unpack(b)])  # as it is now, come what may
        elif symbol == "*":
            self.read_all(a)
            b = self._times(b)
        elif issubclass(type(a), dict):
            self.read_all(a)
            if issubclass(type(b), dict):
                self.read_all(b)
                b = self.new(dict(b))
            elif lookup(type(b), "keys") is not MISSING:
                self.refuse(f"a dictionary was updated with a {type(b).__name__}")
            else:
                b = self.new([x if type(x) in ATOMS else self.new(self.unpack(x)) for x in self.unpack(b)])
        else:
            self._read_operand(symbol, a)
            self._read_operand(symbol, b)
            b = self.new(set(b)) if type(b) is set else b
        if self.is_fresh(a):
            self.changes_keys(a)
            if symbol in "-&^":
                self.fresh.dented.add(id(a))
            if symbol != "+":
                self.shadow.bare(a)
            return self.of_table(run(a, b), b)
        if self.refused:
            return run(a, b)
        if symbol != "+":
            items = dict.values(a) if issubclass(type(a), dict) else self.base_of(a).__iter__(a)
            self.drops_all(a, [*items])
            del items
        self.writes_to(a)
        result = run(a, b)
        if result is not a:
            return self.made(result)
        if issubclass(type(a), dict):
            for k in dict(b):
                self.wrote(a, "item", k)
        self.effect_on(a, f"{symbol}= changed a {{}}", run, b)
        return result

    def unary(self, symbol: str, a: Any) -> Any:
        """`-a`, `+a` or `~a`.  Raises what Python raises."""
        name, run = UNARY[symbol]
        if type(a) in LIFTED:
            if symbol != "~" and not self.refused:
                made = self.numbers.computed(run(raw(a)), f"{symbol}{a.expression}")
                if symbol == "-":
                    self.sizes.computed("-", 0, a, made)
                return made
            a = self.plain(a)
        patched = self.patched(a, name)
        if patched is None and (self.refused or type(a) in ATOMS or self._is_native(a)):
            if issubclass(type(a), np.ndarray):
                self.read_all(a)
            return run(a) if type(a) in ATOMS else self.made(self._on_tensors(run, run, a))
        method = self.special(a, name) if patched is None else patched
        if type(method) is Function:
            return self.call(method, (a,))
        if method is not MISSING:
            self._read_operand(symbol, a)
        return self.made(run(a))

    def identical(self, a: Any, b: Any) -> bool:
        """`a is b`."""
        if type(a) in LIFTED and b is None or type(b) in LIFTED and a is None:
            return False  # whatever number it is
        if type(a) in LIFTED or type(b) in LIFTED:
            a, b = self.plain(a), self.plain(b)
        if not self.refused and a is not b and type(a) in _BOXED and type(a) is type(b) and exact(a, b):
            self.refuse(f"equal values of {type(a).__name__} were asked if they are one object")
        elif not self.refused and a is b and type(a) in _BOXED and not (type(a) is int and -5 <= a <= 256):
            self.refuse(f"a value of {type(a).__name__} was asked if it is another object")
        return a is b

    # ---- comparisons ----
    def compare(self, symbol: str, a: Any, b: Any) -> Any:
        """`a < b` and its kin.  Raises what Python raises."""
        forward, backward, run = COMPARISONS[symbol]
        if symbol in ("==", "!=") and LiftedSize in (type(a), type(b)) and not self.refused:
            if {type(a), type(b)} <= {LiftedSize, Size, tuple}:
                return self._same_sizes(a, b) is (symbol == "==")
        if symbol in ("==", "!=") and type(a) is tuple is type(b) and not self.refused:
            if a in self.shadow or b in self.shadow:  # shapes that were put together
                if all(type(x) is int for x in (*a, *b)):
                    return self._same_sizes(a, b) is (symbol == "==")
        if type(a) in LIFTED or type(b) in LIFTED:
            bare = raw(a), raw(b)
            if not self.refused and is_number(bare[0]) and is_number(bare[1]):
                found = run(*bare)
                if self.sizes.decides(symbol, a, b):
                    return found
                text = f"{spelled(a)} {symbol} {spelled(b)}"
                # the relation, not the value
                self.check(f"({text}) is not {found}", f"whether {self.numbers.in_words(text)}")
                return found
            whole = self._whole_and_size(a, b)
            if not self.refused and (whole or _floating(bare) or _whole((a, b))):
                if self.patched(a, forward) is None and self.patched(b, backward) is None:
                    return self.sizes.call(run, (a, b), {}) if whole else self._on_tensors(run, run, a, b)
            a, b = self.plain(a), self.plain(b)
        if self.refused or type(a) in _HEARD and type(b) in _HEARD:
            if self.patched(a, forward) is None and self.patched(b, backward) is None:
                return self._on_tensors(run, run, a, b)
        alike = any(issubclass(type(a), base) and issubclass(type(b), base) for base in (*SEQUENCES, dict))
        if alike and self._plain_container(a) and self._plain_container(b):
            return self._compare_containers(symbol, a, b)
        steps = [(a, b, forward), (b, a, backward)]
        if type(a) is not type(b) and issubclass(type(b), type(a)):
            steps.reverse()
        for owner, other, name in steps:
            result = self._compared(symbol, owner, other, name)
            if result is not NotImplemented:
                return result
        if symbol == "==":
            return a is b
        if symbol == "!=":
            return a is not b
        kinds = f"'{_called(type(a))}' and '{_called(type(b))}'"
        raise TypeError(f"'{symbol}' not supported between instances of {kinds}")

    def _compared(self, symbol: str, owner: Any, other: Any, name: str) -> Any:
        known = type(owner) in ATOMS or self._is_native(owner)
        method = self.patched(owner, name)
        if method is None:
            method = lookup(type(owner), name) if known else self.special(owner, name)
        if method is MISSING or method is None:
            return NotImplemented
        if method is object.__ne__ and not known:
            result = self._compared(symbol, owner, other, "__eq__")
            return result if result is NotImplemented else not self.truth(result)
        if method is object.__eq__:
            return True if owner is other else NotImplemented
        if method is lookup(object, name):
            return NotImplemented
        if issubclass(type(owner), (Method, *PINNED)) and type(method) is not Function:
            return method(owner, other)
        return self._asked(symbol, owner, other, method)

    def _plain_container(self, o: Any) -> bool:
        """Whether a container is compared by C code that goes through it."""
        if not issubclass(type(o), (*SEQUENCES, dict)):
            return False
        self.class_of(o)
        names = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
        return not any(type(lookup(type(o), name)) is Function for name in names)

    def _same_sizes(self, a: Any, b: Any) -> bool:
        """Whether shapes are equal: size by size, up to the first that differs."""
        sides = self.unpack(a, lift=True), self.unpack(b, lift=True)
        return len(sides[0]) == len(sides[1]) and all(
            self.truth(self.compare("==", x, y)) for x, y in zip(*sides, strict=True)
        )

    def _compare_containers(self, symbol: str, a: Any, b: Any) -> Any:
        """Compare item by item as C code does, so that a user's `==` is run like all his Python."""
        self.read_all(a)
        self.read_all(b)
        if issubclass(type(a), dict):
            if symbol not in ("==", "!="):
                return COMPARISONS[symbol][2](a, b)  # which raises
            return self._same_dicts(a, b) is (symbol == "==")
        base = self.base_of(a)  # of both; C code asks no `__len__` of a subclass
        if symbol in ("==", "!=") and base.__len__(a) != base.__len__(b):
            return symbol == "!="
        for x, y in zip([*base.__iter__(a)], [*base.__iter__(b)]):
            if holds_nan(x):
                self.asks_for_nan(y)
            if x is y or self.truth(self.compare("==", x, y)):
                continue
            if symbol in ("==", "!="):
                return symbol == "!="
            return self.compare(symbol, x, y)
        return COMPARISONS[symbol][2](base.__len__(a), base.__len__(b))

    def _same_dicts(self, a: dict[Any, Any], b: dict[Any, Any]) -> bool:
        if dict.__len__(a) != dict.__len__(b):
            return False
        if issubclass(type(a), collections.OrderedDict) and issubclass(type(b), collections.OrderedDict):
            if not self.truth(self.compare("==", self.new([*a]), self.new([*b]))):
                return False
        for k in [*dict.__iter__(a)]:
            if not self.membership(b, k):
                return False
            x, y = dict.__getitem__(a, k), dict.__getitem__(b, k)
            if holds_nan(x):
                self.asks_for_nan(y)
            if x is not y and not self.truth(self.compare("==", x, y)):
                return False
        return True

    # ---- texts ----
    def formatted(self, value: Any, conversion: str | None, spec: str) -> str:
        """A value in an f-string: `{value!conversion:spec}`; conversion: "s", "r", "a" or None."""
        if conversion:
            value = self.converted(value, conversion)
        spec = self.plain(spec)
        if (asked := self.patched(value, "__format__")) is not None:
            return self.call(asked, (value, spec))
        value = self.as_number(value)
        if type(value) in LIFTED:
            if type(value) is LiftedText and not spec:
                return value
            return self.told(format(raw(value), spec), f"{self.const(format)}({value.expression}, {spec!r})")
        if type(value) is str and not spec:
            return value
        if type(value) in (tuple, list) and not spec:
            return self.converted(value, "s")
        if type(value) in ATOMS:
            return format(value, spec)
        return self.call(format, (value, spec))

    def as_number(self, value: Any) -> Any:
        """The number that a 0-d tensor formats as; anything else as it is."""
        if type(value) is not Tensor or value.ndim or not value.is_floating_point() or self.refused:
            return value
        return self.call(_ITEM, (value,))

    def converted(self, value: Any, conversion: str) -> str:
        """A value's text, as `str`, `repr` or `ascii` gives it: "s", "r", "a"."""
        function: Any = {"s": str, "r": repr, "a": ascii}[conversion]
        if type(value) not in LIFTED:
            if type(value) in (tuple, list) and (text := self._listed(value)) is not None:
                return self.told(function(value), f"{self.const(function)}({text})")
            return self.call(function, (value,))
        if function is str and type(value) is LiftedText:
            return value
        return self.told(function(raw(value)), f"{self.const(function)}({value.expression})")

    def _listed(self, o: Any) -> str | None:
        """The expression of a tuple or a list of plain values, some of which are lifted; else None."""
        if self.refused or o not in self.shadow or not self.is_fresh(o):
            return None
        items = self.unpack(o, lift=True)
        if not all(type(raw(x)) in TOLD for x in items) or not any(type(x) in LIFTED for x in items):
            return None
        text = "".join(f"{spelled(x)}, " for x in items)
        return f"({text})" if type(o) is tuple else f"[{text}]"

    def joined(self, texts: list[str]) -> str:
        """The parts of an f-string as one text."""
        if not any(type(text) in LIFTED for text in texts):
            return "".join(texts)
        return self.told("".join(map(raw, texts)), f"''.join(({', '.join(map(spelled, texts))},))")

    def _percent(self, form: str, given: Any) -> str | None:
        """`form % given`, where some of what is given is lifted; None where it is not plain values alone."""
        if self.refused:
            return None
        several = type(given) is tuple and self.is_fresh(given)
        for x in given if type(given) is tuple else (given,):
            if any(self.patched(x, name) is not None for name in _SPELLING):
                self.refuse("% of a tensor whose class spells numbers and texts in a way of the user's")
                return None
        values = [given]
        if several and (given in self.shadow or any(issubclass(type(x), Tensor) for x in given)):
            values = self.unpack(given, lift=True)
        floats = (*LIFTED, float, Tensor)
        if _OF_FLOATS.fullmatch(form) and all(type(x) in floats for x in values):
            values = [self.as_number(x) for x in values]
        if not any(type(x) in LIFTED for x in values):
            return None
        if not all(type(x) in LIFTED or type(x) in TOLD for x in values):
            return None
        words = f"{', '.join(map(spelled, values))},"
        return self.told(form % tuple(map(raw, values)), f"{literal(form)} % ({words})")

    def told(self, text: str, expression: str) -> Any:
        """A text that tells of lifted numbers: lifted too."""
        return text if self.refused else self.numbers.computed(text, expression)
