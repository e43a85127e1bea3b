"""Kinds of Python objects, as a recorder of heap facts tells them apart.

What an object is, its type says: `issubclass(type(o), X)`.  `isinstance` asks the object for its `__class__`
as well, which code of the user's may answer, unheard, with whatever it likes.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections import OrderedDict
from typing import Any

from ...ir.dtypes import DType, home_of
from ...ir.types import Device, Type
from ...runtime import Size

Function = types.FunctionType
Method = types.MethodType
Builtin = types.BuiltinFunctionType

# Values that are compared by type and bits.
ATOMS = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented),
    DType, Device, Type, Size,
)  # fmt: skip
# Objects that are pinned by identity: what they are made of is no slot, or is asked for by name.
PINNED = (
    type, Function, Builtin, types.ModuleType, types.CodeType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.MethodWrapperType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.ClassMethodDescriptorType, property, staticmethod, classmethod,
    functools.partial,
)  # fmt: skip
BOUND = (Builtin, types.MethodWrapperType)  # methods of C code among these: they hold an object
ITERATORS = (
    types.GeneratorType, map, filter, zip, enumerate, reversed, itertools.chain, itertools.count,
    itertools.cycle, itertools.repeat, itertools.islice, itertools.accumulate, itertools.product,
    itertools.starmap, itertools.takewhile, itertools.dropwhile, itertools.combinations,
    itertools.permutations, itertools.pairwise, itertools.zip_longest, itertools.groupby,
    type(iter([])), type(reversed([])), type(iter(())), type(iter({})), type(iter({}.values())),
    type(iter({}.items())), type(reversed({})), type(iter(set())), type(iter(range(1))),
    type(iter(range(1 << 65))), type(iter("")), type(iter("é")), type(iter(b"")), type(iter(lambda: 0, 0)),
    type(iter(OrderedDict())),
)  # fmt: skip
_LINKED: OrderedDict = OrderedDict()
KEYS, VALUES_OF = (type({}.keys()), type(_LINKED.keys())), (type({}.values()), type(_LINKED.values()))
ITEMS = type({}.items()), type(_LINKED.items())
VIEWS = (*KEYS, *VALUES_OF, *ITEMS)


class _Sentinel:
    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


_ON_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # flags of classes
MISSING: Any = _Sentinel("nothing")  # where a name or a slot holds nothing
UNSUPPORTED: Any = _Sentinel("unsupported")  # what the interpreter returns for a function it can't run


def lookup(kind: type, name: str) -> Any:
    """What a class and its bases hold under a name, as it stands there; MISSING where none does."""
    for base in kind.__mro__:
        found = base.__dict__.get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


def is_iterable(value: Any) -> bool:
    """Whether `iter` takes a value."""
    kind = type(value)
    return lookup(kind, "__iter__") is not MISSING or lookup(kind, "__getitem__") is not MISSING


def heap_class(kind: type) -> bool:
    """Whether a class was made by a class statement, so that its attributes may change.

    Classes of C code may stand on the heap too, as more do with each Python; most of them can't be changed.
    """
    return kind.__flags__ & (_ON_HEAP | _IMMUTABLE) == _ON_HEAP


def of_lamina(kind: type) -> bool:
    """Whether a class says that it is Lamina's; its tests' and examples' do as well."""
    return home_of(kind).partition(".")[0] == "lamina"


TRANSPARENT: set[type] = set()  # classes whose objects stand for the function they wrap, `__wrapped__`
