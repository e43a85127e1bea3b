"""Reads the text form of graphs (printing.py shows one).  Law: str(parse(text)) == text for canonical text.

    graph   ::= "graph" name "(" [ value ":" type, ... ] ")" "->" "(" [ type, ... ] ")" "{"
                    { "@"name ":" type }  { node }  "return" [ operand, ... ] "}"
    node    ::= value, ... "=" op "(" [ operand, ... ] ")" [ "{" attr "=" term, ... "}" ] ":" type, ...
    operand ::= "none" | value | "@"name | number ":" dtype
    type    ::= dtype "[" [ term, ... ] "]" [ "@"device ]
    term    ::= sums, products and // of: number | symbol | min(term, term) | max(term, term) | "(" term ")"
                or one of: True | False | None | inf | nan | "string" | dtype | type | "@"device | tuple |
                graph

`# file:line` after a node is where the user's program made it; other comments, spaces and line ends mean
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import dtypes
from .dims import Dim, maximum, minimum, symbol
from .errors import GraphError, LaminaError, ShapeError
from .fused import STRUCTURAL, fused
from .graph import Constant, Graph, Node, Value
from .op import REGISTRY, Op
from .printing import types_text
from .types import CPU, Device, Type, type_of

DEPTH = 60  # of brackets and nested graphs, so that hostile text meets an error and not the end of the stack

SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
PLACE = re.compile(r"[ \t]*# ([^\n]+):(\d{1,9})[ \t]*(?=\n|$)", re.ASCII)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
VALUE = re.compile(r"%([A-Za-z_][A-Za-z0-9_.]*|\d{1,9})", re.ASCII)
CONSTANT = re.compile(r"@([A-Za-z_][A-Za-z0-9_.]*)")
SCALAR = re.compile(
    r"(-?(?:inf\b|nan\b|\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,5})?)|True|False):(\w+)", re.ASCII
)
NUMBER = re.compile(
    r"\d{1,400}\.\d{0,400}(?:[eE][+-]?\d{1,5})?|\d{1,400}[eE][+-]?\d{1,5}|\d{1,300}(?!\d)", re.ASCII
)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
DEVICE = re.compile(r"@((?:cpu|cuda|meta)(?::\d{1,4})?)", re.ASCII)
TYPE = re.compile(
    r"(\w+)\[((?:\d{1,18}(?:,\d{1,18})*)?)\](?![@\w])", re.ASCII
)  # the common kind: sizes known, on the CPU
WORDS = {"True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan")}
DTYPES = {d.short: d for d in dtypes.EVERY}


def parse(
    text: str,
    constants: Mapping[str, Constant | np.ndarray] | None = None,
    ops: Mapping[str, Op] | None = None,
) -> Graph:
    """The graph that a text spells.

    constants: the data of those that the text names.  ops: operators beside the operator set's.  Names, scope
    and syntax are checked here, the rest by `verify`.  Raises GraphError naming the line.
    """
    reader = Reader(text, constants or {}, {**REGISTRY, **STRUCTURAL, **(ops or {})})
    try:
        graph = reader.graph()
        reader.end()
    except GraphError:
        raise
    except LaminaError as error:  # a symbol or a division that dims.py refuses
        raise reader.error(error.rule) from None
    return graph


class Reader:
    """Reads a graph from where it stands in a text; passes/programs/program_text.py reads with it, too."""

    def __init__(self, text: str, constants: Mapping[str, Any], ops: Mapping[str, Op]):
        self.text, self.at, self.depth = text, 0, 0
        self.constants, self.ops = constants, ops
        self.types: dict[str, Type] = {}
        self.space()

    # ---- tokens --------------------------------------------------------------------------------------------
    def space(self) -> None:
        self.at = self.after_space()

    def after_space(self) -> int:
        found = SPACE.match(self.text, self.at)
        return found.end() if found else self.at

    def next_is(self, literal: str) -> bool:
        return self.text.startswith(literal, self.at)

    def take(self, literal: str) -> bool:
        """Whether `literal` came next; then it is behind us."""
        if not self.text.startswith(literal, self.at):
            return False
        self.at += len(literal)
        self.space()
        return True

    def expect(self, literal: str) -> None:
        if not self.take(literal):
            raise self.error(f"expected {literal!r}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            self.space()
        return found

    def need(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = self.match(pattern)
        if found is None:
            raise self.error(f"expected {what}")
        return found

    def error(self, message: str, at: int | None = None) -> GraphError:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        source = self.text.split("\n")[line - 1].strip()
        found = (
            self.text[at : at + 20].split("\n")[0] or "the end of the line"
            if at < len(self.text)
            else "the end"
        )
        place = f", found {found!r}" if message.startswith("expected") else ""
        return GraphError(f"line {line}: {message}{place}", *([source[:200]] if source else []))

    def end(self) -> None:
        if self.at < len(self.text):
            raise self.error("expected the end of the text after the graph's '}'")

    def listed(self, close: str, item: Callable[[], Any]) -> list[Any]:
        """Items between commas up to `close`, which is taken as well."""
        found: list[Any] = []
        if self.take(close):
            return found
        while True:
            found.append(item())
            if self.take(close):
                return found
            if not self.take(","):
                raise self.error(f"expected ',' or {close!r}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH:
            raise self.error(f"more than {DEPTH} brackets inside of one another")

    # ---- graphs --------------------------------------------------------------------------------------------
    def graph(self) -> Graph:
        self.deeper()
        self.expect("graph ")
        name = self.need(NAME, "the graph's name")[0]
        names: dict[str, Value] = {}
        self.expect("(")
        params = self.listed(")", lambda: self.parameter(names))
        self.expect("->")
        self.expect("(")
        start = self.at
        declared = self.listed(")", self.type)
        self.expect("{")
        while found := self.match(CONSTANT):
            self.declaration(found[1], names)
        nodes = []
        while not self.take("return"):
            nodes.append(self.node(names))
        results = [] if self.next_is("}") else [self.operand(names)]
        while results and self.take(","):
            results.append(self.operand(names))
        self.expect("}")
        if any(v is None for v in results):
            raise self.error("none can't be returned", start)
        types = [v.type for v in results]
        if types != declared:
            raise self.error(
                f"graph {name} declares ({types_text(declared)}) and returns ({types_text(types)})",
                start,
            )
        self.depth -= 1
        return Graph(name, tuple(params), tuple(nodes), tuple(results))

    def parameter(self, names: dict[str, Value]) -> Value:
        at, name = self.at, self.need(VALUE, "a parameter: %name")[1]
        self.expect(":")
        return self.define(name, self.type(), names, at)

    def define(self, name: str, type: Type, names: dict[str, Value], at: int) -> Value:
        if name in names:
            raise self.error(f"%{name} is defined twice", at)
        value = names[name] = Value(type, None if name.isdigit() else name)
        return value

    def declaration(self, name: str, names: dict[str, Value]) -> None:
        self.expect(":")
        at, type = self.at, self.type()
        if "@" + name in names:
            raise self.error(f"@{name} is declared twice", at)
        data = self.constants.get(name)
        if data is None:
            raise self.error(f"constant @{name} has no data: parse(text, constants={{{name!r}: array}})", at)
        constant = data if isinstance(data, Constant) else Constant(np.asarray(data), name, None)
        if constant.type != type:
            raise self.error(f"constant @{name} is declared {type}, its data is {constant.type}", at)
        names["@" + name] = constant

    def node(self, names: dict[str, Value]) -> Node:
        start = self.at
        outputs = [(self.at, self.need(VALUE, "a node (%name = op(...)), or return")[1])]
        while self.take(","):
            outputs.append((self.at, self.need(VALUE, "a value: %name")[1]))
        self.expect("=")
        at, name = self.at, self.need(NAME, "the name of an op")[0]
        op = self.ops.get(name)
        if op is None:
            raise self.error(f"no op is called {name!r}", at)
        self.expect("(")
        inputs = self.listed(")", lambda: self.operand(names))
        attrs: dict[str, Any] = {}
        if self.take("{"):
            self.listed("}", lambda: self.attr(attrs))
        if attrs.keys() == set(op.attrs):
            attrs = {key: attrs[key] for key in op.attrs}
        if op is fused and not isinstance(attrs.get("body"), Graph):  # which is looked into unasked
            raise self.error("fused has a body, a graph", at)
        if not self.next_is(":"):
            raise self.error("expected ':' and the types of the outputs")
        self.expect(":")
        types = [self.type(space=False)]
        while self.text.startswith(",", self.after_space()):
            self.space()
            self.expect(",")
            types.append(self.type(space=False))
        found = PLACE.match(self.text, self.at)
        self.space()
        if len(types) != len(outputs):
            raise self.error(f"{len(outputs)} values are defined and {len(types)} types are given", start)
        values = [self.define(n, t, names, at) for (at, n), t in zip(outputs, types, strict=True)]
        where = (found[1], int(found[2])) if found else None
        return Node(op, tuple(inputs), tuple(values), attrs, where)

    def operand(self, names: dict[str, Value]) -> Value | None:
        at = self.at
        if found := self.match(VALUE):
            name = found[1]
        elif found := self.match(CONSTANT):
            name = "@" + found[1]
        elif found := self.match(SCALAR):
            return self.scalar(found[1], found[2], at)
        else:
            self.expect_word("none", "an operand: %name, @name, none or a number with its dtype, as 2.5:f32")
            return None
        if name not in names:
            kind = "declared" if name.startswith("@") else "defined"
            raise self.error(f"{found[0]} is used and not {kind} before", at)
        return names[name]

    def expect_word(self, word: str, what: str) -> None:
        found = NAME.match(self.text, self.at)
        if found is None or found[0] != word:
            raise self.error(f"expected {what}")
        self.take(word)

    def scalar(self, spelled: str, dtype_name: str, at: int) -> Constant:
        dtype = DTYPES.get(dtype_name)
        if dtype is None:
            raise self.error(f"no dtype is called {dtype_name!r}", at)
        if dtype.is_complex:
            raise self.error("a complex number has a name: @c, declared before the nodes", at)
        try:
            if dtype.category == "bool":
                value: Any = {"True": True, "False": False}[spelled]
            else:
                value = int(spelled) if dtype.category == "int" else float(spelled)
            with np.errstate(over="ignore"):
                return Constant(np.asarray(value, dtype.numpy))
        except (KeyError, ValueError, OverflowError):
            raise self.error(f"{spelled} is no number of dtype {dtype.short}", at) from None

    def attr(self, attrs: dict[str, Any]) -> None:
        at, name = self.at, self.need(NAME, "an attr: name=value")[0]
        if name in attrs:
            raise self.error(f"attr {name} is given twice", at)
        self.expect("=")
        attrs[name] = self.term()

    # ---- types and terms -----------------------------------------------------------------------------------
    def type(self, space: bool = True) -> Type:
        found = TYPE.match(self.text, self.at)
        if found and found[1] in DTYPES:
            self.at = found.end()
            made = self.types.get(found[0])
            if made is None:
                sizes = tuple(map(int, found[2].split(","))) if found[2] else ()
                made = self.types[found[0]] = self.typed(DTYPES[found[1]], sizes)
        else:
            name = NAME.match(self.text, self.at)
            if name is None or name[0] not in DTYPES:
                raise self.error("expected a type, as f32[8,3]")
            self.at = name.end()
            made = self.type_after(DTYPES[name[0]])
        if space:
            self.space()
        return made

    def typed(self, dtype: dtypes.DType, sizes: tuple, device: Device = CPU) -> Type:
        try:
            return type_of(dtype, sizes, device)
        except ShapeError as error:
            raise self.error(error.rule) from None

    def type_after(self, dtype: dtypes.DType) -> Type:
        """The rest of a type behind its dtype, and no space: a comment there means something."""
        if not self.text.startswith("[", self.at):
            raise self.error("expected '[' and the sizes of a type")
        self.at += 1
        self.space()
        sizes = []
        while not self.next_is("]"):
            at, size = self.at, self.term()
            if not isinstance(size, (int, Dim)) or isinstance(size, bool):
                raise self.error(f"a size must be an int or an expression of symbols, not {size!r}", at)
            sizes.append(size)
            if not self.take(",") and not self.next_is("]"):
                raise self.error("expected ',' or ']'")
        self.at += 1
        device = DEVICE.match(self.text, self.at)
        if device is None:
            return self.typed(dtype, tuple(sizes))
        self.at = device.end()
        return self.typed(dtype, tuple(sizes), Device(device[1]))

    def term(self) -> Any:
        at, total = self.at, self.product()
        while self.next_is("+") or self.next_is("-"):
            minus = self.next_is("-")
            self.take(self.text[self.at])
            right = self.product()
            self.need_dims(at, total, right)
            total = self.sane(at, total - right if minus else total + right)
        return total

    def product(self) -> Any:
        at, total = self.at, self.factor()
        while self.next_is("*") or self.next_is("//"):
            divide = self.take("//") or not self.take("*")
            right = self.factor()
            self.need_dims(at, total, right)
            if divide and right == 0:
                raise self.error("a dimension can't be divided by 0", at)
            total = self.sane(at, total // right if divide else total * right)
        return total

    def sane(self, at: int, value: int | Dim) -> int | Dim:
        if isinstance(value, int) and value.bit_length() > 1024:
            raise self.error("a number has at most 300 digits", at)
        return value

    def need_dims(self, at: int, *values: Any) -> None:
        if not all(isinstance(v, (int, Dim)) and not isinstance(v, bool) for v in values):
            raise self.error("+ - * // are for ints and dimensions", at)

    def factor(self) -> Any:
        at = self.at
        if self.take("-"):
            self.deeper()
            value = self.factor()
            self.depth -= 1
            if not isinstance(value, (int, float, Dim)) or isinstance(value, bool):
                raise self.error("- is for numbers and dimensions", at)
            return -value
        if self.take("("):
            return self.group()
        if found := self.match(NUMBER):
            return int(found[0]) if found[0].isdigit() else float(found[0])
        if found := self.match(STRING):
            try:
                return json.loads(found[0])
            except ValueError:
                raise self.error(f"{found[0]} is no string as JSON spells it", at) from None
        if found := self.match(DEVICE):
            return Device(found[1])
        word = NAME.match(self.text, self.at)
        if word is None:
            raise self.error("expected a value")
        if word[0] == "graph":
            return self.graph()
        self.at = word.end()
        return self.word(word[0], at)

    def word(self, word: str, at: int) -> Any:
        if word in DTYPES:
            value = self.type_after(DTYPES[word]) if self.next_is("[") else DTYPES[word]
        elif word in WORDS:
            value = WORDS[word]
        elif word in ("min", "max"):
            self.space()
            self.expect("(")
            self.deeper()
            operands = self.listed(")", self.term)
            self.depth -= 1
            self.need_dims(at, *operands)
            if len(operands) != 2:
                raise self.error(f"{word} is of two dimensions, not {len(operands)}", at)
            return (minimum if word == "min" else maximum)(*operands)
        else:
            value = symbol(word)
        self.space()
        return value

    def group(self) -> Any:
        """A term in brackets, or a tuple: (), (1,), (1,2)."""
        self.deeper()
        items, comma = [], False
        while not self.take(")"):
            items.append(self.term())
            comma = self.take(",")
            if not comma and not self.next_is(")"):
                raise self.error("expected ',' or ')'")
        self.depth -= 1
        return items[0] if len(items) == 1 and not comma else tuple(items)
