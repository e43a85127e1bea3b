"""Pieces of syntax trees, their places in the user's text, and the names that a scope binds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Node = TypeVar("Node", bound=ast.AST)
BINARY: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip


def name(text: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(text, context or ast.Load())


def constant(value: Any) -> ast.Constant:
    return ast.Constant(value)


def tupled(parts: Sequence[ast.expr]) -> ast.Tuple:
    return ast.Tuple(list(parts), ast.Load())


def unstarred(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def compound(node: ast.expr | None) -> bool:
    """Whether a target is several, so that what is stored there is unpacked."""
    return isinstance(node, ast.Tuple | ast.List)


def placed(node: Node, at: ast.AST, attribute: ast.Attribute | None = None) -> Node:
    """The node with the place of another one.

    attribute: one spread over lines, from whose name on Python counts the place of a read or call of it.
    """
    ast.copy_location(node, at)
    if attribute is not None and attribute.lineno != attribute.end_lineno:
        place: Any = node
        place.lineno = attribute.end_lineno
        place.col_offset = max(0, (attribute.end_col_offset or 0) - len(attribute.attr))
    return node


def settle(tree: ast.Module) -> None:
    """Give every node a place.  A copy's own attributes stand on one line: Python would move them else."""
    ast.fix_missing_locations(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            node.end_lineno, node.end_col_offset = node.lineno, node.col_offset


class Bound(ast.NodeVisitor):
    """The names that a scope binds; `globals` and `nonlocals` are those it declares to be outside."""

    def __init__(self, mangled: Callable[[str], str]):
        self.mangled = mangled
        self.bound: set[str] = set()
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.inside = 0  # comprehensions around the node: they have variables of their own

    def function(self, node: Any) -> None:
        args = node.args
        every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
        self.bound |= {self.mangled(arg.arg) for arg in every if arg}
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)

    def add(self, text: str | None) -> None:
        if text is not None:
            self.bound.add(self.mangled(text))

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load) and not self.inside:
            self.add(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.add(node.target.id)  # of the function, even inside a comprehension
        self.visit(node.value)

    def _comprehension(self, node: ast.AST) -> None:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.add(node.name)
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(part)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.add(node.name)
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.add(node.name)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self.add(alias.asname or alias.name.split(".")[0])

    visit_ImportFrom = visit_Import

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self.add(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.add(node.rest)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.globals |= set(map(self.mangled, node.names))

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.nonlocals |= set(map(self.mangled, node.names))
