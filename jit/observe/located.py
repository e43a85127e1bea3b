"""Finds the syntax tree of a code object, and makes sure that it was compiled from that very source."""

from __future__ import annotations
import __future__

import ast
import linecache
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef
COMPREHENSIONS = (
    "<listcomp>",
    "<setcomp>",
    "<dictcomp>",
    "<genexpr>",
)  # a scope of its own, but inline in the text
FUTURE = 0  # the bits by which code objects remember `from __future__ import`
for _name in __future__.all_feature_names:
    FUTURE |= getattr(__future__, _name).compiler_flag


class Unsupported(Exception):
    """A function of which no instrumented copy can be made, and why."""


@dataclass(frozen=True)
class Located:
    """node: the definition.  owner: the name of the class around it, by which private names are mangled."""

    node: Scope
    owner: str | None


def locate(code: types.CodeType) -> Located:
    """The definition of a function.  Raises Unsupported without source, or where that has changed since."""
    lines = linecache.getlines(_file_of(code.co_filename))
    if not lines:
        raise Unsupported("its source is not at hand")
    tree, codes = _parsed("".join(lines), code.co_filename, code.co_flags & FUTURE)
    if code not in codes:
        raise Unsupported("its source is not what it was compiled from")
    found = [place for place in _definitions(tree, None) if defines(place.node, code)]
    if not found:
        raise Unsupported("its definition is not found in its source")
    return found[-1]  # of lambdas around each other the inner one comes last


def _file_of(filename: str) -> str:
    """Where the source stands; modules that are frozen into Python have it beside the others."""
    if filename.startswith("<frozen "):
        return getattr(sys.modules.get(filename[8:-1]), "__file__", None) or filename
    return filename


def defines(node: Scope, code: types.CodeType) -> bool:
    """Whether a definition may be the one that was compiled to a code object.

    Names and first lines tell all but lambdas of one line apart; these have bodies at different columns.
    """
    if _name_of(node) != code.co_name or first_line(node) != code.co_firstlineno:
        return False
    if not isinstance(node, ast.Lambda):
        return True
    body = node.body
    start, end = (body.lineno, body.col_offset), (body.end_lineno or 0, body.end_col_offset or 0)
    spans = list(_spans(code))
    if not spans:  # a lambda that gives a constant may have none: those that give the same do the same
        return isinstance(body, ast.Constant) and _gives(code, node, body.value)
    return all(start <= (line, left) and (last, right) <= end for line, last, left, right in spans)


def _gives(code: types.CodeType, node: ast.Lambda, value: object) -> bool:
    """Whether a code object has a lambda's parameters and its constant."""
    args = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    same = any(type(constant) is type(value) and repr(constant) == repr(value) for constant in code.co_consts)
    return same and list(code.co_varnames[:count]) == args


def first_line(node: Scope) -> int:
    """The line that a definition's code object gives as its first: of its first decorator, if it has one."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])


def code_of(node: Scope, within: types.CodeType) -> types.CodeType:
    """The code object, among those that a function's code holds, of a definition in that function.

    For a definition with type parameters it is the code that makes them, which holds the definition's own.
    """
    name = f"<generic parameters of {_name_of(node)}>" if getattr(node, "type_params", ()) else _name_of(node)
    for code in _held(within):
        if code.co_name == name and (name[0] == "<" and name != "<lambda>" or defines(node, code)):
            if code.co_firstlineno == first_line(node):
                return code
    raise Unsupported(f"{_name_of(node)} is not in its code")


def _held(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            if constant.co_name in COMPREHENSIONS:
                yield from _held(constant)


def _name_of(node: Scope) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _spans(code: types.CodeType) -> Iterator[tuple[int, int, int, int]]:
    for line, last, left, right in code.co_positions():
        if line and last and left is not None and right is not None and (left, right) != (0, 0):
            yield line, last, left, right


@lru_cache(maxsize=256)
def _parsed(source: str, filename: str, flags: int) -> tuple[ast.Module, frozenset[types.CodeType]]:
    """A file's syntax tree, and all code objects that it compiles to."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown when the user's own import compiled the file
            tree = ast.parse(source, filename)
            whole = compile(source, filename, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Unsupported(f"its source does not compile: {error}") from None
    return tree, frozenset(_nested(whole))


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _definitions(node: ast.AST, owner: str | None) -> Iterator[Located]:
    """Every function and lambda below a node, outer ones first."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield Located(child, owner)
        if isinstance(child, ast.ClassDef):
            outside = [*child.decorator_list, *child.bases, *child.keywords]
            for part in outside:
                yield from _definitions(ast.Expr(part), owner)
            for part in child.body:
                yield from _definitions(ast.Module([part], []), child.name)
        else:
            yield from _definitions(child, owner)
