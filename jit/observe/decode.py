"""Decodes the bytecode of CPython 3.11, 3.12, 3.13 and 3.14 into one set of operations.

A version is a table from instruction names to operations (`instructions.py` and `clauses.py` say what each
does).  An entry is text, "operation argument; operation argument…", or a function for an instruction whose
bits choose the operations.  Instructions that only serve CPython's own evaluation (caches, resumption points)
become nothing.  A code object with an instruction that stands in no table decodes to None: such a function
runs natively.

Source: the documentation of the module `dis` in each version, and Objects/exception_handling_notes.txt in
CPython for the table of exception handlers.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from .kinds import MISSING

REDUCING = ("sum", "mean")  # methods of what a mask selects that need not know how much that is

# What no handler here can run: they await.
ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR

Operation = tuple[str, Any]
Decoder = str | Callable[[dis.Instruction], list[Operation]]

BINARY = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
COMPARE = ("<", "<=", "==", "!=", ">", ">=")
CONVERSIONS = ("", "s", "r", "a")
COMMON = dict(enumerate((AssertionError, NotImplementedError, tuple, builtins.all, builtins.any)))
SPECIAL = {0: "__enter__", 1: "__exit__"}
# Where a version's CALL_INTRINSIC_1 and _2 do something that this interpreter does.
INTRINSICS_1 = {3: "stop_iteration_error", 5: "unary +", 6: "list_to_tuple"}
INTRINSICS_2 = {1: "prepare_reraise_star"}


class Unsupported(Exception):
    """An instruction that no table knows how to decode."""


@dataclass(slots=True)
class Decoded:
    """A code object as operations.

    operations: (name, argument); a jump's argument is an index into them.  offsets: where each stands in the
    bytecode.  handlers: for each operation under one, (index, height of the stack, whether the place of the
    error is pushed).
    """

    operations: list[Operation]
    offsets: list[int]
    handlers: dict[int, tuple[int, int, bool]]


# ---- what the bits of one instruction say


def _bits(at: dis.Instruction) -> int:
    return at.arg or 0


def _null_if(at: dis.Instruction) -> list[Operation]:
    """The empty slot of a call, where the lowest bit says that what is loaded is called."""
    return [("push_null", None)] * (_bits(at) & 1)


def _load_global_before(at: dis.Instruction) -> list[Operation]:
    """3.11, 3.12: the empty slot of a call comes before what is called."""
    return [*_null_if(at), ("load_global", at.argval)]


def _load_global_after(at: dis.Instruction) -> list[Operation]:
    return [("load_global", at.argval), *_null_if(at)]


def _load_attribute_before(at: dis.Instruction) -> list[Operation]:
    """3.12: a method to call has an empty slot below it."""
    return [("load_method" if _bits(at) & 1 else "load_attribute", at.argval)]


def _load_attribute_after(at: dis.Instruction) -> list[Operation]:
    return [("load_attribute", at.argval), *_null_if(at)]


def _load_super_before(at: dis.Instruction) -> list[Operation]:
    return _load_super_after(at) + [("swap", 2)] * (_bits(at) & 1)


def _load_super_after(at: dis.Instruction) -> list[Operation]:
    return [("load_super", (at.argval, bool(_bits(at) & 2))), *_null_if(at)]


def _load_constant(at: dis.Instruction) -> list[Operation]:
    """Constants that are containers are objects made in the run, for the recorder."""
    made = isinstance(at.argval, (tuple, frozenset, slice)) and at.argval != ()
    return [("load_made" if made else "load_constant", at.argval)]


def _return_constant(at: dis.Instruction) -> list[Operation]:
    return [*_load_constant(at), ("return_value", None)]


def _binary(at: dis.Instruction) -> list[Operation]:
    inplace, which = divmod(_bits(at), len(BINARY))
    if inplace > 1 and which:
        raise Unsupported(f"{at.opname} {at.arg}")
    if inplace > 1:  # from 3.14 on
        return [("load_item", None)]
    return [(f"binary {BINARY[which]}", bool(inplace))]


def _compare(shift: int, bool_bit: int) -> Decoder:
    """Which comparison; from 3.13 on a bit asks for the truth of its result."""
    return lambda at: [
        ("compare " + COMPARE[_bits(at) >> shift], None),
        *([("to_bool", None)] * bool(_bits(at) & bool_bit)),
    ]


def _two_locals(first: str, second: str) -> Decoder:
    return lambda at: [(first, _bits(at) >> 4), (second, _bits(at) & 15)]


def _format(at: dis.Instruction) -> list[Operation]:
    return [("format", (CONVERSIONS[_bits(at) & 3], bool(_bits(at) & 4)))]


def _make_function(at: dis.Instruction) -> list[Operation]:
    """3.11, 3.12: the parts lie below the code, defaults lowest."""
    return [("make_function", [bit for bit in (8, 4, 2, 1) if _bits(at) & bit])]


def _call_unpacked(at: dis.Instruction) -> list[Operation]:
    return [("push_null", None)] * (not _bits(at) & 1) + [("call_unpacked", None)]


def _send(keeps: bool) -> Decoder:
    """keeps: from 3.12 on the exhausted iterator stays below its value, for END_SEND to take away."""
    return lambda at: [("send", (at.argval, keeps))]


def _one_of(operation: str, choices: Mapping[int, Any]) -> Decoder:
    """An operation on the value that the argument stands for; without a name, that value is the operation."""

    def decoder(at: dis.Instruction) -> list[Operation]:
        if _bits(at) not in choices:
            raise Unsupported(f"{at.opname} {at.arg}")
        found = choices[_bits(at)]
        return [(operation, found) if operation else (found, None)]

    return decoder


# ---- the tables


def _by_name(names: str, what: str = "") -> dict[str, Decoder]:
    """Instructions whose operation has the same name; what: its argument, "arg" or "value"."""
    return {name: f"{name.lower()} {what}".strip() for name in names.split()}


_EVERY: dict[str, Decoder] = {
    **dict.fromkeys(("CACHE", "EXTENDED_ARG", "NOP", "RESUME"), ""),
    **_by_name(
        "BUILD_LIST BUILD_MAP BUILD_SET BUILD_SLICE BUILD_STRING BUILD_TUPLE CALL COPY DICT_MERGE "
        "DICT_UPDATE LIST_APPEND LIST_EXTEND MAKE_CELL MAP_ADD MATCH_CLASS SET_ADD SET_UPDATE SWAP",
        "arg",
    ),
    **_by_name("DELETE_GLOBAL DELETE_NAME IMPORT_FROM IMPORT_NAME LOAD_NAME STORE_GLOBAL", "value"),
    **_by_name(
        "LOAD_BUILD_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE POP_EXCEPT PUSH_EXC_INFO PUSH_NULL "
        "RERAISE RETURN_VALUE SETUP_ANNOTATIONS YIELD_VALUE",
    ),
    "BINARY_OP": _binary, "CHECK_EG_MATCH": "check_group_match", "CHECK_EXC_MATCH": "check_match",
    "CONTAINS_OP": "contains arg", "COPY_FREE_VARS": "copy_free_variables arg",
    "DELETE_ATTR": "delete_attribute value", "DELETE_DEREF": "delete_cell arg",
    "DELETE_FAST": "delete_local arg", "DELETE_SUBSCR": "delete_item", "GET_ITER": "get_iterator",
    "GET_LEN": "get_length", "GET_YIELD_FROM_ITER": "get_delegate", "IS_OP": "is arg",
    "JUMP_BACKWARD": "jump value", "JUMP_BACKWARD_NO_INTERRUPT": "jump value", "JUMP_FORWARD": "jump value",
    "LOAD_CLOSURE": "load_local arg", "LOAD_CONST": _load_constant, "LOAD_DEREF": "load_cell arg",
    "LOAD_FAST": "load_local arg", "POP_TOP": "pop", "RAISE_VARARGS": "raise arg",
    "RETURN_GENERATOR": "load_constant", "STORE_ATTR": "store_attribute value",
    "STORE_DEREF": "store_cell arg", "STORE_NAME": "store_name value", "STORE_FAST": "store_local arg",
    "STORE_SUBSCR": "store_item", "UNARY_INVERT": "unary ~", "UNARY_NEGATIVE": "unary -", "UNARY_NOT": "not",
    "UNPACK_EX": "unpack_rest arg", "UNPACK_SEQUENCE": "unpack arg", "WITH_EXCEPT_START": "call_exit",
}  # fmt: skip
_3_11: dict[str, Decoder] = {
    **_EVERY,
    **{
        f"POP_JUMP_{way}_IF_{what}": f"jump_if_{what.lower()} value"
        for way in ("FORWARD", "BACKWARD")
        for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
    "COMPARE_OP": _compare(0, 0),
    "LOAD_ASSERTION_ERROR": lambda at: [("load_constant", AssertionError)],
    "SEND": _send(False),
    "BEFORE_WITH": "before_with", "BINARY_SUBSCR": "load_item", "BUILD_CONST_KEY_MAP": "build_keyed_map arg",
    "CALL_FUNCTION_EX": _call_unpacked, "FORMAT_VALUE": _format, "FOR_ITER": "for_each value",
    "JUMP_IF_FALSE_OR_POP": "jump_if_false_or_pop value", "JUMP_IF_TRUE_OR_POP": "jump_if_true_or_pop value",
    "LIST_TO_TUPLE": "list_to_tuple", "LOAD_ATTR": "load_attribute value",
    "LOAD_CLASSDEREF": "load_class_cell arg", "LOAD_GLOBAL": _load_global_before,
    "LOAD_METHOD": "load_method value", "MAKE_FUNCTION": _make_function, "PRECALL": "",
    "PREP_RERAISE_STAR": "prepare_reraise_star", "UNARY_POSITIVE": "unary +",
}  # fmt: skip
_3_12: dict[str, Decoder] = {
    **{name: decoder for name, decoder in _3_11.items() if not name.startswith("POP_JUMP_")},
    **{
        f"POP_JUMP_IF_{what}": f"jump_if_{what.lower()} value"
        for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    },
    "CALL_INTRINSIC_1": _one_of("", INTRINSICS_1),
    "CALL_INTRINSIC_2": _one_of("", INTRINSICS_2),
    "COMPARE_OP": _compare(4, 0),
    "SEND": _send(True),
    "BINARY_SLICE": "build_slice 2; load_item", "CLEANUP_THROW": "cleanup_throw", "END_FOR": "",
    "END_SEND": "end_send", "LOAD_ATTR": _load_attribute_before,
    "LOAD_FAST_AND_CLEAR": "load_local_and_clear arg", "LOAD_FAST_CHECK": "load_local arg",
    "LOAD_FROM_DICT_OR_DEREF": "load_cell_or_from arg",
    "LOAD_FROM_DICT_OR_GLOBALS": "load_global_or_from value", "LOAD_LOCALS": "load_names",
    "LOAD_SUPER_ATTR": _load_super_before, "RETURN_CONST": _return_constant,
    "STORE_SLICE": "build_slice 2; store_item",
}  # fmt: skip
_3_13: dict[str, Decoder] = {
    **_3_12,
    "COMPARE_OP": _compare(5, 16),
    "CONVERT_VALUE": lambda at: [("convert", CONVERSIONS[at.arg or 0])],
    "FORMAT_SIMPLE": lambda at: [("format", ("", False))],
    "FORMAT_WITH_SPEC": lambda at: [("format", ("", True))],
    "LOAD_FAST_LOAD_FAST": _two_locals("load_local", "load_local"),
    "MAKE_FUNCTION": lambda at: [("make_function", [])],
    "STORE_FAST_LOAD_FAST": _two_locals("store_local", "load_local"),
    "STORE_FAST_STORE_FAST": _two_locals("store_local", "store_local"),
    "CALL_KW": "call_named arg", "FOR_ITER": "for_each_kept value", "LOAD_ATTR": _load_attribute_after,
    "LOAD_GLOBAL": _load_global_after, "LOAD_SUPER_ATTR": _load_super_after, "TO_BOOL": "to_bool",
}  # fmt: skip
_3_14: dict[str, Decoder] = {
    **_3_13,
    **dict.fromkeys(("ANNOTATIONS_PLACEHOLDER", "NOT_TAKEN"), ""),
    "LOAD_COMMON_CONSTANT": _one_of("load_constant", COMMON),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": _two_locals("load_local", "load_local"),
    "LOAD_SPECIAL": _one_of("load_special", SPECIAL),
    "BUILD_INTERPOLATION": "build_interpolation arg", "BUILD_TEMPLATE": "build_template",
    "CALL_FUNCTION_EX": "call_unpacked", "LOAD_FAST_BORROW": "load_local arg",
    "LOAD_SMALL_INT": "load_constant arg", "POP_ITER": "pop", "WITH_EXCEPT_START": "call_exit_method",
}  # fmt: skip
TABLES = {(3, 11): _3_11, (3, 12): _3_12, (3, 13): _3_13, (3, 14): _3_14}
JUMPS = {
    "jump", "for_each", "for_each_kept", "jump_if_false_or_pop", "jump_if_true_or_pop", "jump_if_true",
    "jump_if_false", "jump_if_none", "jump_if_not_none",
}  # fmt: skip


def _written(text: str, at: dis.Instruction) -> Iterator[Operation]:
    """The operations that a table writes as text.  `unary +` and the like are one name."""
    for part in text.split("; ") if text else ():
        name, _, what = part.partition(" ")
        if name == "unary":
            yield part, None
        else:
            yield name, at.arg if what == "arg" else at.argval if what == "value" else int(what or 0) or None


def _mark_selections(operations: list[Operation]) -> None:
    """Mark `d[m] = x[m]` and `x[m].sum()`: what is selected is used at once (see masks.py).

    An operation's place is a target of jumps, so none moves.
    """
    for at, (name, _) in enumerate(operations):
        if name != "load_item":
            continue
        end = at + 1
        while end < len(operations) and operations[end][0] in _LOADS:
            end += 1
        if end < len(operations) and operations[end][0] == "store_item" and end > at + 1:
            operations[at], operations[end] = ("load_selected", None), ("store_selected", None)
            continue
        behind, called = at + 1, []
        while len(called) < 4 and behind < len(operations):
            if operations[behind][0] != "push_null":
                called.append(operations[behind])
            behind += 1
            if called and called[-1][0].startswith("call"):
                break
        if called and called[0][0] in ("load_method", "load_attribute") and called[0][1] in REDUCING:
            given = repr([0 if argument is None else argument for _, argument in called[1:]])
            if called[-1][0] in ("call", "call_named") and given in (*_OF_ALL, *_OF_ROWS):
                operations[at] = ("load_reduced", (called[0][1], given in _OF_ROWS, behind))


# What is loaded for a call that reduces all, and for one that reduces the rows, and the count: `0`, `dim=0`.
_OF_ALL, _OF_ROWS = ("[0]",), ("[0, 1]", "[0, ('dim',), 1]")
_LOADS = {"load_local", "load_cell", "load_global", "load_constant", "load_attribute"}


def exception_table(code: CodeType) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, target, height of the stack, whether the place is pushed), offsets in bytes."""
    data = iter(code.co_exceptiontable)

    def number(first: int) -> int:
        found = first & 63
        while first & 64:
            first = next(data)
            found = found << 6 | first & 63
        return found

    for first in data:
        start = number(first) * 2
        length, target, height = number(next(data)) * 2, number(next(data)) * 2, number(next(data))
        yield start, start + length, target, height >> 1, bool(height & 1)


def decode(code: CodeType, version: tuple[int, int] = sys.version_info[:2]) -> Decoded | None:
    """The operations of a code object; None where a version or an instruction is not known, or it awaits."""
    table = TABLES.get(version)
    if table is None or code.co_flags & ASYNCHRONOUS:
        return None
    operations: list[Operation] = []
    offsets: list[int] = []
    index: dict[int, int] = {}  # of the first operation at an offset or after it
    names: Any = MISSING  # of the arguments given by name, as 3.11 and 3.12 announce them before the call
    sending: Any = None
    for at in dis.get_instructions(code):
        index[at.offset] = len(operations)
        if at.opname == "KW_NAMES":
            names = code.co_consts[at.arg or 0]
            continue
        if at.opname == "SET_FUNCTION_ATTRIBUTE":  # always right behind MAKE_FUNCTION
            operations[-1][1].append(at.arg)
            continue
        decoder = table.get(at.opname)
        if decoder is None:
            return None
        try:
            made = list(_written(decoder, at)) if isinstance(decoder, str) else decoder(at)
        except Unsupported:
            return None
        if at.opname == "CALL" and names is not MISSING:
            made, names = [("load_constant", names), ("call_named", at.arg)], MISSING
        if at.opname == "SEND":
            sending = made[0][1]
        elif at.opname == "YIELD_VALUE" and operations and operations[-1][0] == "send":
            made = [("yield_from", sending)]
        operations += made
        offsets += [at.offset] * len(made)
    for number, (name, argument) in enumerate(operations):
        if name in JUMPS:
            operations[number] = (name, index[argument])
        elif name in ("send", "yield_from"):
            operations[number] = (name, (index[argument[0]], argument[1]))
    _mark_selections(operations)
    handlers = {}
    for start, end, target, height, pushed in exception_table(code):
        for number in range(bisect_left(offsets, start), bisect_left(offsets, end)):
            handlers[number] = (index[target], height, pushed)
    return Decoded(operations, offsets, handlers)
