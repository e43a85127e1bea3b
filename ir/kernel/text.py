"""The text form read back.  Law: str(parse(text)) == text for canonical text, which is what `str` prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..errors import KernelError
from .affine import Affine, Extent, as_affine
from .form import COMBINE, Axis, Buffer, Fold, Kernel, Local, Reduce, Stage, Store
from .scalar import INFIX, Const, Expr, Read, Ref, bitcast, cast, const, coordinate, read, ref
from .types import NUMPY
from .words import VOCABULARY

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)"
    r"|(?P<sign><<|>>|<=|>=|==|!=|->|[-+*/%()\[\]{},:<>=&|^~]))"
)
_CONSTANTS = {"inf": float("inf"), "nan": float("nan"), "true": True, "false": False}
_WORDS = {symbol: name for name, symbol in INFIX.items()}
# How tightly the operators bind, loosest first, as in Python; canonical text has all its brackets.
_LEVELS = (("<", "<=", ">", ">=", "==", "!="), ("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/"))


def parse(text: str) -> Kernel:
    """The kernel that `text` says.

    It isn't verified.  Raises KernelError with the line where reading stopped.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    reader = _Reader(lines[0])
    reader.expect("kernel")
    name = reader.name()
    symbols = tuple(reader.several("[", reader.name, "]")) if reader.peek() == "[" else ()
    inputs = tuple(reader.several("(", reader.buffer, ")"))
    reader.expect("->")
    outputs = tuple(reader.several("(", reader.buffer, ")"))
    reader.expect("{")
    reader.end()
    if len(lines) < 3 or lines[-1] != "}":
        raise KernelError("a kernel ends with a line of its own: }", f"kernel: {name}")
    scope = _Scope({buffer.name for buffer in inputs + outputs}, set(symbols), set())
    reader = _Reader(lines[1], scope)
    reader.expect("parallel")
    parallel = reader.axes()
    reader.end()
    scope.axes |= {axis.name for axis in parallel}
    return Kernel(name, inputs, outputs, parallel, tuple(_stages(lines[2:-1], scope)), symbols)


class _Scope:
    """The names that mean a buffer, a symbol or an axis; any other name is a stage."""

    def __init__(self, buffers: set[str], symbols: set[str], axes: set[str]):
        self.buffers, self.symbols, self.axes = buffers, symbols, axes

    def inside(self, axes: tuple[Axis, ...]) -> _Scope:
        return _Scope(self.buffers, self.symbols, self.axes | {axis.name for axis in axes})


def _stages(lines: list[str], scope: _Scope) -> Iterable[Stage]:
    waiting = iter(lines)
    for line in waiting:
        if not line.endswith("{"):
            yield _stage(line, scope)
            continue
        body: list[str] = []
        for inner in waiting:
            if inner == "}":
                break
            body.append(inner)
        else:
            raise KernelError("a fold ends with a line of its own: }", f"line: {line}")
        yield _fold(line, body, scope)


def _stage(line: str, scope: _Scope) -> Reduce | Local | Store:
    body, _, loops = line.partition(" for ")
    axes = _axes(loops, scope)
    inner = scope.inside(axes)
    reader = _Reader(body, inner)
    target = reader.atom()
    combine = None
    if reader.peek() not in ("=", ""):
        combine = reader.name()
    reader.expect("=")
    if isinstance(target, Ref):
        reduction = reader.reduction()
        value = reader.expr()
        reader.end()
        return Reduce(target.name, *reduction, value) if reduction else Local(target.name, axes, value)
    value = reader.expr()
    reader.end()
    if not isinstance(target, Read):
        raise KernelError("a stage defines a name or stores to a buffer", f"line: {line}")
    return Store(target.buffer, target.index, value, axes, combine)


def _fold(line: str, body: list[str], scope: _Scope) -> Fold:
    left, _, right = line.partition(" = ")
    reader = _Reader(right, scope)
    kind = reader.name()
    if kind not in ("fold", "scan"):
        raise KernelError("only a fold or a scan has a body in braces", f"line: {line}")
    reader.expect("(")
    axes = reader.axes()
    reader.expect(")")
    reader.expect("{")
    reader.end()
    targets = _Reader(left, scope.inside(axes)).listed()
    parts: dict[str, tuple[Expr, ...]] = {}
    for text in body:
        label, _, exprs = text.partition(" ")
        if label not in ("init", "step", "merge"):
            raise KernelError("the lines of a fold are init, step and merge", f"line: {text}")
        parts[label] = _Reader(exprs, scope if label == "init" else scope.inside(axes)).listed()
    if not {"init", "step"} <= set(parts):
        raise KernelError("a fold has an init and a step", f"line: {line}")
    state = tuple(target.name for target in targets if isinstance(target, Ref))
    return Fold(state, axes, parts["init"], parts["step"], parts.get("merge"), kind == "scan")


def _axes(text: str, scope: _Scope) -> tuple[Axis, ...]:
    reader = _Reader(text, scope)
    axes = reader.axes()
    reader.end()
    return axes


class _Reader:
    """Recursive descent over one line."""

    def __init__(self, line: str, scope: _Scope | None = None):
        self.line, self.scope = line, scope or _Scope(set(), set(), set())
        self.tokens: list[str] = []
        position, end = 0, len(line.rstrip())
        while position < end:
            match = _TOKEN.match(line, position)
            if match is None:
                raise KernelError(f"unreadable text at {line[position:].strip()!r}", f"line: {line}")
            self.tokens.append(match[0].strip())
            position = match.end()
        self.at = 0

    # ---- tokens
    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, token: str) -> None:
        if self.peek() != token:
            raise KernelError(f"expected {token!r}, found {self.peek() or 'the end'!r}", f"line: {self.line}")
        self.at += 1

    def end(self) -> None:
        if self.peek():
            raise KernelError(f"expected the end, found {self.peek()!r}", f"line: {self.line}")

    def name(self) -> str:
        if not self.peek().isidentifier():
            raise KernelError(f"expected a name, found {self.peek() or 'the end'!r}", f"line: {self.line}")
        return self.take()

    def several(self, opening: str, item: Callable, closing: str) -> list:
        self.expect(opening)
        items = []
        while self.peek() != closing:
            items.append(item())
            if self.peek() != closing:
                self.expect(",")
        self.expect(closing)
        return items

    # ---- headers
    def extent(self) -> Extent:
        return int(self.take()) if self.peek().isdigit() else self.name()

    def stride(self) -> Extent:
        if self.peek() != "-":
            return self.extent()
        self.take()
        return -int(self.take()) if self.peek().isdigit() else self.name()

    def buffer(self) -> Buffer:
        name = self.name()
        self.expect(":")
        dtype = self.name()
        shape = tuple(self.several("[", self.extent, "]"))
        layout = inplace = None
        if self.peek() == "strides":
            self.take()
            layout = tuple(self.several("(", self.stride, ")"))
        if self.peek() == "inplace":
            self.take()
            inplace = self.name()
        return Buffer(name, dtype, shape, layout, inplace)

    def axes(self) -> tuple[Axis, ...]:
        axes = []
        while self.peek() not in (")", ""):
            name = self.name()
            self.expect(":")
            axes.append(Axis(name, self.extent()))
        return tuple(axes)

    def reduction(self) -> tuple[str, tuple[Axis, ...]] | None:
        """`sum(c:64 r:3) ` in front of a value: a combination, an axis and a colon."""
        ahead = self.tokens[self.at : self.at + 4]
        if not (len(ahead) == 4 and ahead[0] in COMBINE and ahead[1] == "(" and ahead[3] == ":"):
            return None
        combine = self.name()
        self.expect("(")
        axes = self.axes()
        self.expect(")")
        self.scope = self.scope.inside(axes)
        return combine, axes

    # ---- expressions
    def listed(self) -> tuple[Expr, ...]:
        """Expressions with commas between them, up to the end of the line."""
        found = [self.expr()]
        while self.peek() == ",":
            self.take()
            found.append(self.expr())
        self.end()
        return tuple(found)

    def expr(self) -> Expr:
        value = self.binary(0, False)
        if isinstance(value, Affine):
            raise KernelError(
                f"a coordinate is no value by itself: write coord({value})", f"line: {self.line}"
            )
        return value

    def binary(self, level: int, index: bool) -> Expr | Affine:
        if level == len(_LEVELS):
            return self.unary(index)
        left = self.binary(level + 1, index)
        while self.peek() in _LEVELS[level]:
            sign = self.take()
            left = self.combined(sign, left, self.binary(level + 1, index))
        return left

    def combined(self, sign: str, left: Expr | Affine, right: Expr | Affine) -> Expr | Affine:
        """Affine while it can be; beside an expression, an affine index becomes a coordinate."""
        if isinstance(left, Affine) and isinstance(right, Affine):
            if sign in "+-":
                return left + right if sign == "+" else left - right
            if sign == "*" and not (left.terms and right.terms):
                return right * left.constant if not left.terms else left * right.constant
        return VOCABULARY[_WORDS[sign]](_value(left), _value(right))

    def unary(self, index: bool) -> Expr | Affine:
        if self.peek() == "~":
            self.take()
            return VOCABULARY["bit_not"](_value(self.unary(index)))
        if self.peek() != "-":
            return self.atom(index)
        self.take()
        inner = self.unary(index)
        if isinstance(inner, Affine):
            return inner * -1
        if isinstance(inner, Const) and inner.dtype is None:
            return const(-inner.value)
        return VOCABULARY["neg"](inner)

    def atom(self, index: bool = False) -> Expr | Affine:
        token = self.take()
        if token == "(":
            inner = self.binary(0, index)
            self.expect(")")
            return inner
        if token[:1].isdigit() or token[:1] == ".":
            if index and token.isdigit():
                return Affine((), int(token))
            return const(int(token) if token.isdigit() else float(token))
        if not token.replace(".", "").isidentifier():
            raise KernelError(f"expected a value, found {token or 'the end'!r}", f"line: {self.line}")
        following = self.peek()
        if following == "(":
            return self.call(token)
        if following == "[":
            return self.element(token)
        if token in _CONSTANTS:
            return const(_CONSTANTS[token])
        if token in self.scope.axes or token in self.scope.symbols:
            if not index and token in self.scope.axes:
                raise KernelError(
                    f"a coordinate is no value by itself: write coord({token})", f"line: {self.line}"
                )
            return Affine(((token, 1),)) if index else coordinate(token)
        return ref(token)

    def call(self, name: str) -> Expr:
        if name == "coord":
            self.expect("(")
            index = self.binary(0, True)
            self.expect(")")
            if not isinstance(index, Affine):
                raise KernelError("coord takes an affine index of axes", f"line: {self.line}")
            return coordinate(index)
        args = self.several("(", self.expr, ")")
        if name in NUMPY and len(args) == 1:
            return cast(args[0], name)
        if name.startswith("as_") and name[3:] in NUMPY and len(args) == 1:
            return bitcast(args[0], name[3:])
        if name not in VOCABULARY:
            raise KernelError(f"there is no word {name!r}", f"line: {self.line}")
        return VOCABULARY[name](*args)

    def element(self, name: str) -> Expr:
        """name[...]: a read of a buffer, or a stage at its local axes."""
        self.expect("[")
        index: list[Expr | Affine] = []
        other: Const | None = None
        while self.peek() != "]":
            index.append(self.binary(0, True))
            if self.peek() == "else":
                self.take()
                other = self.number()
            elif self.peek() != "]":
                self.expect(",")
        self.expect("]")
        if name in self.scope.buffers:
            return read(name, tuple(index), other)
        axes = [part.terms[0][0] for part in index if isinstance(part, Affine) and part.terms]
        if index != [as_affine(axis) for axis in axes]:
            raise KernelError(f"a stage is read at its own axes: {name}", f"line: {self.line}")
        return ref(name, tuple(axes))

    def number(self) -> Const:
        value = self.unary(False)
        if not isinstance(value, Const):
            raise KernelError("the value after else is a constant", f"line: {self.line}")
        return value


def _value(operand: Expr | Affine) -> Expr:
    if isinstance(operand, Affine):
        return coordinate(operand) if operand.terms else const(operand.constant)
    return operand
