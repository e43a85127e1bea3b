"""Rewrites expressions so that each operation asks a recorder; see `rewriting.py`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any

from .located import Unsupported
from .nodes import BINARY, Bound, compound, constant, name, placed, tupled, unstarred
from .patterns import Patterns

UNARY: dict[type, str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}
COMPARE: dict[type, str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
CONVERSIONS = {-1: "", 115: "s", 114: "r", 97: "a"}
CONVERTS_FIRST = sys.version_info >= (3, 13)  # f"{x!r:{w}}" converts x before it evaluates w


class _Asked:
    """Something false that counts how often it was asked."""

    count = 0

    def __bool__(self) -> bool:
        self.count += 1
        return False


def _asked_twice() -> bool:
    asked = _Asked()
    _ = (asked and 1) or 2
    return asked.count > 1


RETESTS = _asked_twice()  # Python 3.12 asks x twice in `x and y or z`, others once


class Expressions(Patterns):
    """The part of the rewriter that knows expressions and comprehensions."""

    load: Any
    place: Any
    place_of: Any
    target: Any
    unpacked: Any
    loose: Any
    scopes: list[set[str]]
    cells: frozenset[str]

    # ---- expressions

    def _Constant(self, node: ast.Constant) -> ast.expr:
        return node

    def _Name(self, node: ast.Name) -> ast.expr:
        return self.load(self.mangled(node.id))

    def _Attribute(self, node: ast.Attribute) -> ast.expr:
        made = self.ask("attribute", self.bare(node.value), constant(self.mangled(node.attr)))
        return placed(made, node, node)

    def _Subscript(self, node: ast.Subscript) -> ast.expr:
        return self.ask("item", self.bare(node.value), self.bare(node.slice))

    def _Slice(self, node: ast.Slice) -> ast.expr:
        return self.ask(
            "sliced", *(self.bare(x) if x else constant(None) for x in (node.lower, node.upper, node.step))
        )

    def _Call(self, node: ast.Call) -> ast.expr:
        if any(isinstance(arg, ast.Starred) for arg in node.args) or any(
            key.arg is None for key in node.keywords
        ):
            made = self.arguments(self.ask("callee", self.bare(node.func)), node.args, node.keywords, node)
        else:
            parts = [self.bare(node.func), tupled([self.loose(arg) for arg in node.args])]
            if node.keywords:
                keys: list[ast.expr | None] = [constant(key.arg) for key in node.keywords]
                parts.append(ast.Dict(keys, [self.loose(key.value) for key in node.keywords]))
            made = self.ask("call", *parts)
        return placed(made, node, node.func if isinstance(node.func, ast.Attribute) else None)

    def arguments(
        self, callee: ast.expr, args: Sequence[ast.expr], keywords: Sequence[ast.keyword], at: ast.AST
    ) -> ast.Call:
        """A call whose arguments are collected one by one: stars unpack and mappings merge in their turn."""

        def then(method: str, *given: ast.expr) -> None:
            nonlocal callee
            callee = placed(ast.Call(ast.Attribute(callee, method, ast.Load()), list(given), []), at)

        alone = len(args) == 1
        for arg in args:
            if isinstance(arg, ast.Starred):
                then("spread", self.bare(arg.value), constant(alone))
            else:
                then("take", self.loose(arg))
        for key in keywords:
            if key.arg is None:
                then("merge", self.bare(key.value))
            else:
                then("name", constant(key.arg), self.loose(key.value))
        then("call")
        assert isinstance(callee, ast.Call)
        return callee

    def _BinOp(self, node: ast.BinOp) -> ast.expr:
        return self.ask(
            "binary", constant(BINARY[type(node.op)]), self.loose(node.left), self.loose(node.right)
        )

    def _UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return self.test(node)
        symbol = UNARY[type(node.op)]
        return self.ask(
            "unary", constant(symbol), self.loose(node.operand) if symbol == "-" else self.bare(node.operand)
        )

    def _BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return ast.Attribute(self.boxes(node), "value", ast.Load())

    def boxes(self, node: ast.expr) -> ast.expr:
        """An `and` or `or` of boxes, which tell their truth when Python asks, and hold their values."""
        if not isinstance(node, ast.BoolOp):
            return self.ask("boxed", self.loose(node), at=node)
        parts = []
        for value in node.values:
            part = self.boxes(value)
            if RETESTS and isinstance(value, ast.BoolOp) and type(value.op) is not type(node.op):
                part = self.ask("boxed", placed(ast.Attribute(part, "value", ast.Load()), value), at=value)
            parts.append(part)
        return placed(ast.BoolOp(node.op, parts), node)

    def _Compare(self, node: ast.Compare) -> ast.expr:
        if len(node.ops) > 1:
            return ast.Attribute(self.chain(node), "value", ast.Load())
        op, left, right = node.ops[0], node.left, node.comparators[0]
        symbol = COMPARE[type(op)]
        if symbol in ("is", "is not"):
            nothing = isinstance(right, ast.Constant) and right.value is None
            return ast.Compare(self.loose(left) if nothing else self.bare(left), [op], [self.bare(right)])
        if symbol in ("in", "not in"):
            # The parts are evaluated in the order of the text, and `contains` takes the container first.
            return self.ask("within", self.bare(left), self.bare(right), constant(symbol == "in"))
        return self.ask("compare", constant(symbol), self.loose(left), self.loose(right))

    def chain(self, node: ast.Compare) -> ast.expr:
        """`a < b < c` as `link(a) == link(b, "<") == link(c, "<")`: Python evaluates b once, if at all."""
        links: list[ast.expr] = [self.ask("linked", self.loose(node.left), at=node.left)]
        for op, right in zip(node.ops, node.comparators):
            links.append(self.ask("linked", self.loose(right), constant(COMPARE[type(op)]), at=right))
        return placed(ast.Compare(links[0], [ast.Eq() for _ in node.ops], links[1:]), node)

    def _IfExp(self, node: ast.IfExp) -> ast.expr:
        return ast.IfExp(self.test(node.test), self.loose(node.body), self.loose(node.orelse))

    def _NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        text = self.mangled(node.target.id)
        return self.bind(text, self.bare(node.value) if text in self.cells else self.loose(node.value))

    def bind(self, text: str, value: ast.expr) -> ast.expr:
        """An expression that stores a value under a name of the function, and gives it."""
        if text in self.scopes[0]:
            return ast.NamedExpr(name(text, ast.Store()), value)
        return ast.Call(ast.Attribute(self.place(text), "assigned", ast.Load()), [value], [])

    def elements(self, display: ast.List | ast.Tuple | ast.Set) -> list[ast.expr]:
        return [
            placed(ast.Starred(self.each_of(node, display), ast.Load()), node)
            if isinstance(node, ast.Starred)
            else self.bare(node)
            for node in display.elts
        ]

    def each_of(self, node: ast.Starred, at: ast.expr) -> ast.expr:
        return self.ask("elements", self.bare(node.value), at=at)

    def _List(self, node: ast.List) -> ast.expr:
        return self.ask("new", placed(ast.List(self.elements(node), ast.Load()), node))

    def _Tuple(self, node: ast.Tuple) -> ast.expr:
        return self.ask("new", placed(tupled(self.elements(node)), node))

    def _Set(self, node: ast.Set) -> ast.expr:
        return self.ask("keyed", placed(ast.Set(self.elements(node)), node))

    def _Dict(self, node: ast.Dict) -> ast.expr:
        keys = [key and self.bare(key) for key in node.keys]
        values = [
            self.bare(value) if key else self.ask("mapping", self.bare(value), at=node)
            for key, value in zip(node.keys, node.values)
        ]
        return self.ask("keyed" if keys else "new", placed(ast.Dict(keys, values), node))

    def _JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return ast.JoinedStr([self._part(part) for part in node.values])

    def _part(self, node: ast.expr) -> ast.expr:
        if not isinstance(node, ast.FormattedValue):
            return node
        value, conversion = self.bare(node.value), CONVERSIONS[node.conversion]
        spec = self.loose(node.format_spec) if node.format_spec else constant("")
        if CONVERTS_FIRST and conversion and node.format_spec:
            value, conversion = self.ask("formatted", value, constant(conversion), constant(""), at=node), ""
        text = self.ask("formatted", value, constant(conversion), spec, at=node)
        return placed(ast.FormattedValue(text, -1, None), node)

    def _Yield(self, node: ast.Yield) -> ast.expr:
        return ast.Yield(node.value and self.bare(node.value))

    def _YieldFrom(self, node: ast.YieldFrom) -> ast.expr:
        return ast.YieldFrom(self.ask("delegate", self.bare(node.value), at=node))

    # ---- comprehensions

    def comprehension(self, node: Any, *values: str) -> ast.expr:
        """A comprehension stays one; what it goes through, tests and makes is rewritten in its own scope."""
        names = Bound(self.mangled)
        for generator in node.generators:
            names.visit(generator.target)
            if generator.is_async:
                raise Unsupported("it has an asynchronous comprehension")
        first = self.ask("each", self.bare(node.generators[0].iter), at=node.generators[0].iter)
        self.scopes.append(names.bound)
        generators: list[ast.comprehension] = []
        for i, generator in enumerate(node.generators):
            over = first if i == 0 else self.ask("each", self.bare(generator.iter), at=generator.iter)
            generators += self.through(generator.target, over)
            generators[-1].ifs = [self.test(condition) for condition in generator.ifs]
        made = type(node)(*(self.bare(getattr(node, value)) for value in values), generators)
        self.scopes.pop()
        hashed = isinstance(node, ast.SetComp | ast.DictComp)
        return self.ask("keyed" if hashed else "new", placed(made, node))

    def through(self, node: ast.expr, over: ast.expr) -> list[ast.comprehension]:
        """`for target in over`; a nested target unpacks in further `for`s over one thing each."""
        if not isinstance(node, ast.Tuple | ast.List):
            return [ast.comprehension(self.target(node)[0], over, [], 0)]
        held = self.temporary()
        self.scopes[-1].add(held)
        made = [ast.comprehension(name(held, ast.Store()), over, [], 0)]
        value = self.unpacked(node, name(held))
        if not any(compound(unstarred(part)) for part in node.elts):
            return [*made, ast.comprehension(self.target(node)[0], tupled([value]), [], 0)]
        parts = [self.temporary() for _ in node.elts]
        outer: list[ast.expr] = [name(text, ast.Store()) for text in parts]
        made.append(ast.comprehension(ast.Tuple(outer, ast.Store()), tupled([value]), [], 0))
        for part, text in zip(map(unstarred, node.elts), parts):
            made += self.through(part, tupled([name(text)]))
        return made

    def _ListComp(self, node: ast.expr) -> ast.expr:
        return self.comprehension(node, "elt")

    _SetComp = _GeneratorExp = _ListComp

    def _DictComp(self, node: ast.DictComp) -> ast.expr:
        return self.comprehension(node, "key", "value")
