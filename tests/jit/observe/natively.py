"""A recorder that records nothing: every operation does natively what its name says.

It stands where `lamina.jit.observe.calls.Calls` stands below the interpreter, so that the loop alone can be
compared with CPython.  Python functions, methods, classes with a Python `__new__` or `__init__` and objects
with a Python `__call__` go to the loop's `enter`; properties and operators of user classes run natively.
"""

from __future__ import annotations

import builtins
import functools
import operator
import types

from lamina.jit.observe.handing import handed
from lamina.jit.observe.kinds import MISSING, UNSUPPORTED, lookup
from lamina.jit.observe.numbers import raw

BINARY = {
    "+": (operator.add, operator.iadd), "-": (operator.sub, operator.isub),
    "*": (operator.mul, operator.imul),
    "/": (operator.truediv, operator.itruediv), "//": (operator.floordiv, operator.ifloordiv),
    "%": (operator.mod, operator.imod), "**": (operator.pow, operator.ipow),
    "@": (operator.matmul, operator.imatmul), "&": (operator.and_, operator.iand),
    "|": (operator.or_, operator.ior), "^": (operator.xor, operator.ixor),
    "<<": (operator.lshift, operator.ilshift), ">>": (operator.rshift, operator.irshift),
}  # fmt: skip
UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
COMPARE = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq,
    "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
CONVERSIONS = {"": lambda value: value, "s": str, "r": repr, "a": ascii}


class Natively:
    abandoned = False
    freely = staticmethod(handed)

    def __init__(self):
        self.refused = None
        self.numbers = types.SimpleNamespace(about=False)
        self.shadow = types.SimpleNamespace(handing=set())
        self.fresh = types.SimpleNamespace(suspended=set(), prune=lambda: None)
        self.constant = self.new
        self.unsupported = []  # the functions the interpreter did not run
        self.entered = set()  # the qualified names of those it ran

    def refuse(self, why):
        self.refused = self.refused or why

    def new(self, value):
        return value

    def raised(self, error):
        pass

    def is_known(self, value):
        return False

    def abandon(self, why):
        self.refuse(why)

    def identical(self, a, b):
        return a is b

    def plain(self, value):
        return raw(value)

    # ---- attributes

    def load_global(self, scope, builtins, name):
        if name in scope:
            return scope[name]
        if name in builtins:
            return builtins[name]
        raise NameError(f"name {name!r} is not defined", name=name)

    def store_global(self, scope, name, value):
        scope[name] = value

    def delete_global(self, scope, name):
        if name not in scope:
            raise NameError(f"name {name!r} is not defined", name=name)
        del scope[name]

    def load_cell(self, cell):
        return cell.cell_contents

    def store_cell(self, cell, value):
        cell.cell_contents = raw(value)

    def delete_cell(self, cell):
        del cell.cell_contents

    def class_of(self, value):
        return type(value)

    def bases(self, kind):
        """What `except` asks of an error's class."""

    def of_table(self, made, *sources):
        """Nor is the order of sets."""

    def asks_for_nan(self, *values):
        """Nothing is kept here, so NaN may be looked for."""

    def fact(self, *read):
        """Nothing is kept here."""

    def class_attribute(self, kind, name):
        return lookup(kind, name)

    def special(self, value, name):
        return lookup(type(value), name)

    def attribute(self, value, name, default=MISSING):
        return getattr(value, name) if default is MISSING else getattr(value, name, default)

    def super_attribute(self, value, name):
        return getattr(value, name)

    def set_attribute(self, value, name, to):
        setattr(value, name, to)

    def delete_attribute(self, value, name):
        delattr(value, name)

    # ---- items

    def item(self, value, key):
        return value[key]

    def set_item(self, value, key, to):
        value[key] = to

    def delete_item(self, value, key):
        del value[key]

    def truth(self, value):
        return bool(value)

    def iterator(self, value, unseen=False):
        return iter(value)

    def next_of(self, iterator):
        return next(iterator)

    def unpack(self, value, lift=False):
        return list(value)

    # ---- containers that hold lifted numbers in their shadow

    def put(self, container, kind, key, value):
        return raw(value)

    def added(self, container, value):
        pass

    def lazily(self, value):
        return None

    def hashed(self, value):
        pass

    def sliced(self, ends):
        return slice(*map(raw, ends))

    def filled(self, make, values):
        return make([*map(raw, values)])

    def filled_map(self, pairs):
        made = {}
        for key, value in pairs:
            made[key] = raw(value)
        return made

    def contains(self, value, element):
        return element in value

    def membership(self, value, key):
        return key in value

    def read_length(self, value):
        return len(value)

    def read_all(self, value, deep=False):
        pass

    def read_deep(self, value):
        pass

    # ---- operators

    def binary(self, symbol, a, b, inplace=False):
        return BINARY[symbol][inplace](a, b)

    def unary(self, symbol, value):
        return UNARY[symbol](value)

    def compare(self, symbol, a, b):
        return COMPARE[symbol](a, b)

    def formatted(self, value, conversion, spec):
        """What an f-string puts for a value: conversion is "", "s", "r" or "a"."""
        return format(CONVERSIONS[conversion](value), spec)

    def converted(self, value, conversion):
        return CONVERSIONS[conversion](value)

    def joined(self, texts):
        return "".join(texts)

    # ---- calls

    def call(self, function, args=(), kwargs={}):  # noqa: B006 - never written
        if self.refused:
            return function(*args, **kwargs)
        kind = type(function)
        if kind is types.FunctionType:
            found = self.enter(function, args, kwargs)
            if found is UNSUPPORTED:
                self.unsupported.append(function.__qualname__)
                return function(*args, **kwargs)
            self.entered.add(function.__qualname__)
            return found
        if kind is types.MethodType:
            return self.call(function.__func__, (function.__self__, *args), kwargs)
        if kind is functools.partial:
            return self.call(function.func, (*function.args, *args), {**function.keywords, **kwargs})
        if isinstance(function, type):
            return self._make(function, args, kwargs)
        method = lookup(kind, "__call__")
        if isinstance(method, types.FunctionType):
            return self.call(method, (function, *args), kwargs)
        return function(*args, **kwargs)

    def _make(self, kind, args, kwargs):
        """An instance, as `type.__call__` makes one."""
        if lookup(type(kind), "__call__") is not type.__call__ or kind is type:
            return kind(*args, **kwargs)
        make, begin = lookup(kind, "__new__"), lookup(kind, "__init__")
        make = make.__func__ if isinstance(make, staticmethod) else make
        if isinstance(make, types.FunctionType):
            value = self.call(make, (kind, *args), kwargs)
        elif isinstance(begin, types.FunctionType) and kind.__new__ is object.__new__:
            value = object.__new__(kind)
        elif isinstance(begin, types.FunctionType):
            value = kind.__new__(kind, *args, **kwargs)
        else:
            return kind(*args, **kwargs)
        if not isinstance(value, kind):
            return value
        if isinstance(begin, types.FunctionType):
            self.call(begin, (value, *args), kwargs)
        else:
            type(value).__init__(value, *args, **kwargs)
        return value

    def import_name(self, name, scope, fromlist, level):
        return builtins.__import__(name, scope, None, fromlist, level)

    def trampoline(self, value):
        return value
