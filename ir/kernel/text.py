"""The text form read back.  Law: str(parse(text)) == text for canonical text, which is what `str` prints.

A part of an expression that several places share, or that lies too deep, has a line of its own before the
stage (in a fold, before the line) that it belongs to: $0 = (a[i] * a[i]).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..dims import symbol
from ..errors import KernelError, LaminaError
from ..types import LARGEST
from .affine import Affine, Extent, as_affine
from .form import COMBINE, Axis, Buffer, Fold, Kernel, Local, Reduce, Stage, Store
from .scalar import INFIX, Const, Expr, Read, Ref, bitcast, cast, const, coordinate, read, ref
from .types import NUMPY
from .words import VOCABULARY

DEPTH = 60  # of brackets, so that hostile text meets an error and not the end of the stack

_TOKEN = re.compile(
    r"\s*("
    r"\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?"  # numbers
    r"|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?"  # names
    r"|\$\d+"
    r"|<<|>>|<=|>=|==|!=|->|[-+*/%()\[\]{},:<>=&|^~])",
    re.ASCII,
)
_DIGITS = 400  # of a number: more than the largest float64 has
_CONSTANTS = {"inf": float("inf"), "nan": float("nan"), "true": True, "false": False}
_WORDS = {symbol: name for name, symbol in INFIX.items()}
# How tightly the operators bind, loosest first, as in Python; canonical text has all its brackets.
_LEVELS = (("<", "<=", ">", ">=", "==", "!="), ("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/"))
_TIGHTNESS = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs}

Line = tuple[int, str]


def parse(text: str, first: int = 1) -> Kernel:
    """The kernel that `text` says.  first: the number of its first line, where it stands among others.

    It isn't verified.  Raises KernelError naming the line where reading stopped.
    """
    lines = [(n, line.strip()) for n, line in enumerate(text.split("\n"), first) if line.strip()]
    with _at(lines[0] if lines else (first, "")):
        reader = _Reader(lines[0][1] if lines else "")
        reader.expect("kernel")
        name = reader.name()
        symbols = tuple(reader.several("[", reader.name, "]")) if reader.peek() == "[" else ()
        inputs = tuple(reader.several("(", reader.buffer, ")"))
        reader.expect("->")
        outputs = tuple(reader.several("(", reader.buffer, ")"))
        reader.expect("{")
        reader.end()
    with _at(lines[-1]):
        if len(lines) < 3 or lines[-1][1] != "}":
            raise KernelError("a kernel ends with a line of its own: }", f"kernel: {name}")
    scope = _Scope({buffer.name for buffer in inputs + outputs}, set(symbols), set())
    with _at(lines[1]):
        reader = _Reader(lines[1][1], scope)
        reader.expect("parallel")
        parallel = reader.axes()
        reader.end()
    scope.axes |= {axis.name for axis in parallel}
    made = Kernel(name, inputs, outputs, parallel, tuple(_stages(lines[2:-1], scope)))
    if {*symbols} != {*made.symbols}:
        raise KernelError(
            "a kernel declares the symbols that its sizes are made of",
            f"kernel: {name}[{', '.join(symbols)}]",
            f"declare: {name}[{', '.join(made.symbols)}]",
        )
    return made


@contextmanager
def _at(line: Line) -> Iterator[None]:
    """Says of an error which line it is about; a symbol called None, which dims.py refuses, is one too."""
    try:
        yield
    except LaminaError as error:
        if isinstance(error, KernelError) and error.rule.startswith("line "):
            raise
        number, text = line
        raise KernelError(f"line {number}: {error.rule}", *error.details, f"line: {text}") from None


class _Scope:
    """The names that mean a buffer, a symbol or an axis; any other name is a stage.

    apart: the parts of expressions that have lines of their own, by their names.
    """

    def __init__(self, buffers: set[str], symbols: set[str], axes: set[str]):
        self.buffers, self.symbols, self.axes = buffers, symbols, axes
        self.apart: dict[str, Expr] = {}

    def inside(self, axes: tuple[Axis, ...]) -> _Scope:
        return _Scope(self.buffers, self.symbols, self.axes | {axis.name for axis in axes})

    def read_apart(self, lines: list[Line]) -> None:
        for line in lines:
            with _at(line):
                name, _, text = line[1].partition(" = ")
                self.apart[name] = _Reader(text, self).whole()


def _stages(lines: list[Line], scope: _Scope) -> Iterator[Stage]:
    waiting = iter(lines)
    apart: list[Line] = []
    for line in waiting:
        if line[1].startswith("$"):
            apart.append(line)
            continue
        if not line[1].endswith("{"):
            with _at(line):
                yield _stage(line[1], apart, scope)
            apart = []
            continue
        body: list[Line] = []
        for inner in waiting:
            if inner[1] == "}":
                break
            body.append(inner)
        else:
            with _at(line):
                raise KernelError("a fold ends with a line of its own: }")
        with _at(line):
            yield _fold(line[1], body, scope)


def _stage(line: str, apart: list[Line], scope: _Scope) -> Reduce | Local | Store:
    body, _, loops = line.partition(" for ")
    axes = _axes(loops, scope)
    reader = _Reader(body, scope.inside(axes))
    reduction = reader.reduction_ahead()
    if reduction:
        reader.scope = reader.scope.inside(reduction[2])
    reader.scope.read_apart(apart)
    if reduction:
        name, combine, over = reduction
        if axes:
            raise KernelError("a reduction has its axes in brackets, and no others")
        return Reduce(name, combine, over, reader.whole())
    target = reader.atom()
    combine = None
    if reader.peek() not in ("=", ""):
        combine = reader.name()
    reader.expect("=")
    value = reader.whole()
    if isinstance(target, Ref) and combine is None and target.axes == tuple(axis.name for axis in axes):
        return Local(target.name, axes, value)
    if not isinstance(target, Read) or target.other is not None:
        raise KernelError("a stage defines a name or stores to a buffer")
    return Store(target.buffer, target.index, value, axes, combine)


def _fold(line: str, body: list[Line], scope: _Scope) -> Fold:
    left, _, right = line.partition(" = ")
    reader = _Reader(right, scope)
    kind = reader.name()
    if kind not in ("fold", "scan"):
        raise KernelError("only a fold or a scan has a body in braces")
    reader.expect("(")
    axes = reader.axes()
    reader.expect(")")
    reader.expect("{")
    reader.end()
    own = tuple(axis.name for axis in axes) if kind == "scan" else ()
    targets = _Reader(left, scope.inside(axes)).listed()
    if not all(isinstance(target, Ref) and target.axes in ((), own) for target in targets):
        raise KernelError("a fold defines names, and a scan names at its axis")
    parts: dict[str, tuple[Expr, ...]] = {}
    apart: list[Line] = []
    for at in body:
        if at[1].startswith("$"):
            apart.append(at)
            continue
        with _at(at):
            label, _, exprs = at[1].partition(" ")
            if label not in ("init", "step", "merge"):
                raise KernelError("the lines of a fold are init, step and merge")
            if label in parts:
                raise KernelError(f"a fold has one {label}")
            inner = scope.inside(() if label == "init" else axes)
            inner.read_apart(apart)
            parts[label] = _Reader(exprs, inner).listed()
            apart = []
    if not {"init", "step"} <= set(parts):
        raise KernelError("a fold has an init and a step")
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
        self.tokens: list[str] = _TOKEN.findall(line)
        self.depth = 0
        if "".join(self.tokens) != "".join(line.split()):
            raise KernelError(f"unreadable text at {_unreadable(line)[:40]!r}")
        if len(line) > _DIGITS:
            for token in self.tokens:
                if len(token) > _DIGITS and not token.isidentifier():
                    raise KernelError(f"a number has at most {_DIGITS} digits, not {len(token)}")
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
            raise KernelError(f"expected {token!r}, found {self.peek()[:40] or 'the end'!r}")
        self.at += 1

    def end(self) -> None:
        if self.peek():
            raise KernelError(f"expected the end, found {self.peek()[:40]!r}")

    def name(self) -> str:
        if not self.peek().isidentifier():
            raise KernelError(f"expected a name, found {self.peek()[:40] or 'the end'!r}")
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
        return int(self.take()) if self.peek().isdigit() else symbol(self.name())

    def stride(self) -> Extent:
        if self.peek() != "-":
            return self.extent()
        self.take()
        if not self.peek().isdigit():
            raise KernelError(f"expected a number behind '-', found {self.peek()[:40] or 'the end'!r}")
        return -int(self.take())

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

    def reduction_ahead(self) -> tuple[str, str, tuple[Axis, ...]] | None:
        """`s = sum(c:64 r:3) ` in front of a value: a name, a combination, and axes."""
        ahead = self.tokens[self.at : self.at + 6]
        if not (len(ahead) == 6 and ahead[1] == "=" and ahead[2] in COMBINE and ahead[3] + ahead[5] == "(:"):
            return None
        name = self.name()
        self.expect("=")
        combine = self.name()
        self.expect("(")
        axes = self.axes()
        self.expect(")")
        return name, combine, axes

    # ---- expressions
    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH:
            raise KernelError(f"more than {DEPTH} brackets inside of one another")

    def listed(self) -> tuple[Expr, ...]:
        """Expressions with commas between them, up to the end of the line."""
        found = [self.expr()]
        while self.peek() == ",":
            self.take()
            found.append(self.expr())
        self.end()
        return tuple(found)

    def whole(self) -> Expr:
        """An expression that ends with the line."""
        value = self.expr()
        self.end()
        return value

    def expr(self) -> Expr:
        value = self.binary(0, False)
        if isinstance(value, Affine):
            raise KernelError(f"a coordinate is no value by itself: write coord({value})")
        return value

    def binary(self, level: int, index: bool) -> Expr | Affine:
        """Operators that bind at least as tightly as `level`."""
        left = self.unary(index)
        while (own := _TIGHTNESS.get(self.peek(), -1)) >= level:
            sign = self.take()
            left = self.combined(sign, left, self.binary(own + 1, index))
        return left

    def combined(self, sign: str, left: Expr | Affine, right: Expr | Affine) -> Expr | Affine:
        """Affine while it can be; beside an expression, an affine index becomes a coordinate."""
        if isinstance(left, Affine) and isinstance(right, Affine):
            made = None
            if sign in "+-":
                made = left + right if sign == "+" else left - right
            elif sign == "*" and not (left.terms and right.terms):
                made = left * right.constant if left.terms else right * left.constant
            if made is not None:
                numbers = (made.constant, *(c for _, c in made.terms))
                if any(abs(c) > LARGEST for c in numbers if isinstance(c, int)):
                    raise KernelError("the numbers of an index are below 2**63")
                return made
        return VOCABULARY[_WORDS[sign]](_value(left), _value(right))

    def unary(self, index: bool) -> Expr | Affine:
        if self.peek() not in ("~", "-"):
            return self.atom(index)
        self.deeper()
        sign, inner = self.take(), self.unary(index)
        self.depth -= 1
        if sign == "~":
            return VOCABULARY["bit_not"](_value(inner))
        if isinstance(inner, Affine):
            return inner * -1
        if isinstance(inner, Const) and inner.dtype is None:
            return const(-inner.value)
        return VOCABULARY["neg"](inner)

    def atom(self, index: bool = False) -> Expr | Affine:
        token = self.take()
        if token == "(":
            self.deeper()
            inner = self.binary(0, index)
            self.expect(")")
            self.depth -= 1
            return inner
        if token[:1] == "$":
            if token not in self.scope.apart:
                raise KernelError(f"{token} is used and not defined before")
            return self.scope.apart[token]
        if token[:1].isdigit() or token[:1] == ".":
            if index and token.isdigit():
                return Affine((), int(token))
            return const(int(token) if token.isdigit() else float(token))
        if not token.replace(".", "").isidentifier():
            raise KernelError(f"expected a value, found {token[:40] or 'the end'!r}")
        following = self.peek()
        if following in ("(", "["):
            self.deeper()
            found = self.call(token) if following == "(" else self.element(token)
            self.depth -= 1
            return found
        if token in _CONSTANTS:
            return const(_CONSTANTS[token])
        if token in self.scope.axes or token in self.scope.symbols:
            if not index and token in self.scope.axes:
                raise KernelError(f"a coordinate is no value by itself: write coord({token})")
            place = as_affine(token if token in self.scope.axes else symbol(token))
            return place if index else coordinate(place)
        return ref(token)

    def call(self, name: str) -> Expr:
        if name == "coord":
            self.expect("(")
            index = self.binary(0, True)
            self.expect(")")
            if not isinstance(index, Affine):
                raise KernelError("coord takes an affine index of axes")
            return coordinate(index)
        args = self.several("(", self.expr, ")")
        if name in NUMPY and len(args) == 1:
            return cast(args[0], name)
        if name.startswith("as_") and name[3:] in NUMPY and len(args) == 1:
            return bitcast(args[0], name[3:])
        if name not in VOCABULARY:
            raise KernelError(f"there is no word {name!r}")
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
        if not index or index != [as_affine(axis) for axis in axes]:
            raise KernelError(f"a stage is read at its own axes: {name}")
        return ref(name, tuple(axes))

    def number(self) -> Const:
        value = self.unary(False)
        if not isinstance(value, Const):
            raise KernelError("the value after else is a constant")
        return value


def _unreadable(line: str) -> str:
    """What a line says from the first character on that begins no token."""
    position = 0
    while match := _TOKEN.match(line, position):
        position = match.end()
    return line[position:].strip()


def _value(operand: Expr | Affine) -> Expr:
    if isinstance(operand, Affine):
        return coordinate(operand) if operand.terms else const(operand.constant)
    return operand
