"""Whether a method may run once more without anybody noticing, as its bytecode says.

C code asks keys for their hash and for equality; where a recording asks too, it must not show.
"""

from __future__ import annotations

import dis
import sys
from functools import cache
from types import CodeType, FunctionType

_NAMES = frozenset((
    "hash", "tuple", "frozenset", "type", "id", "len", "str", "int", "float", "bool", "repr", "isinstance",
    "sorted", "NotImplemented", "round", "abs", "super",
))  # fmt: skip
_METHODS = frozenset((
    "__hash__", "__eq__", "lower", "upper", "strip", "casefold", "encode", "items", "keys", "values",
))  # fmt: skip
_WRITES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_DEREF", "DELETE_", "IMPORT_",
           "YIELD_", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_BUILD_CLASS", "MAKE_FUNCTION")  # fmt: skip
_LOADS_METHODS = sys.version_info >= (3, 12)  # LOAD_ATTR does, and says so by its lowest bit


def is_quiet(function: FunctionType) -> bool:
    """Whether a function only reads attributes, and calls nothing but what Python has for values."""
    home = (function.__module__ or "").partition(".")[0]
    return home in sys.stdlib_module_names or _only_reads(function.__code__)


@cache
def _only_reads(code: CodeType) -> bool:
    for step in dis.get_instructions(code):
        if step.opname.startswith(_WRITES):
            return False
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval not in _NAMES:
            return False
        method = step.opname == "LOAD_METHOD" or (
            _LOADS_METHODS and step.opname == "LOAD_ATTR" and bool((step.arg or 0) & 1)
        )
        if method and step.argval not in _METHODS:
            return False
    return True
