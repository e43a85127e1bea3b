"""Sizes that an exported model takes: what the user says of them, and what the function needs of them.

    wanted = named(function, (x,), {"x": {0: "batch", 1: ("time", 1, 4096)}})
    graph, sizes = opened(recording, params, wanted)

The example's dimensions are marked and recorded as symbols.  What the recording takes for granted of them is
then a range for each, and conditions that a file looks at when it is called.
"""

from __future__ import annotations

import ast
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..ir.dims import Condition, Dim, bounds, limits, maximum, minimum, substitute, symbol, symbols_of
from ..ir.errors import ArgumentError, LaminaError
from ..ir.graph import Graph
from ..ir.shapes import dim_of
from ..ir.specialise import specialise
from ..nn import Module
from ..runtime import Tensor
from . import pytree
from .artifact import MOST, ExportError, Need, Range, Sizes
from .observe.parts import place_text
from .observe.sizes import LEAST, mark, without_marks
from .recording import Recording

Wanted = list[tuple[Tensor, int, Range]]


# ---- what the user says ------------------------------------------------------------------------------------
def named(function: Callable, example: Sequence[Any], dynamic: Mapping[Any, Any]) -> Wanted:
    """The dimensions of arguments that are to change.

    dynamic: by the name or the number of an argument what is to change in it: for a tensor a dictionary from
    its dimensions to a name, or to (name, min, max); for a tuple, list or dictionary what changes in its
    items.
    Raises ArgumentError, DimError.
    """
    names = _parameters(function, len(example))
    if not isinstance(dynamic, Mapping):
        raise ArgumentError(f"export(dynamic): a dictionary by argument, not {type(dynamic).__name__}")
    wanted: Wanted = []
    for key, said in dynamic.items():
        at = names.index(key) if key in names else key
        if type(at) is not int or not 0 <= at < len(example):
            raise ArgumentError(
                f"export(dynamic): there is no argument {key!r}", f"arguments: {', '.join(names) or 'none'}"
            )
        wanted += _within(names[at], example[at], said)
    ranges: dict[str, Range] = {}  # said once, they hold for all of a name
    found: dict[str, int] = {}
    for x, dim, said in wanted:
        known, size = ranges.setdefault(said.name, said), found.setdefault(said.name, x.shape[dim])
        if size != x.shape[dim] or known != said and known.is_said and said.is_said:
            raise ArgumentError(
                f"export(dynamic): {said.name} is one size",
                f"{known}, {size} in the example; and {said}, {x.shape[dim]}",
            )
        ranges[said.name] = said if said.is_said else known
    return [(x, dim, ranges[said.name]) for x, dim, said in wanted]


def labels(function: Callable, example: Sequence[Any]) -> list[str]:
    """What a reader knows the tensors among arguments as, in order: `x`, `pair[0]`, `table['a']`."""
    found: list[str] = []

    def walk(path: str, x: Any) -> None:
        shape, _ = pytree.flatten(x)
        if isinstance(x, Tensor):
            found.append(path)
        elif shape is None:
            return
        elif isinstance(x, (tuple, list, dict)):
            for key, item in x.items() if isinstance(x, dict) else enumerate(x):
                walk(f"{path}[{key!r}]", item)
        else:  # a dataclass
            for name in shape[1]:
                walk(f"{path}.{name}", getattr(x, name))

    for name, x in zip(_parameters(function, len(example)), example, strict=True):
        walk(name, x)
    return found


def _parameters(function: Callable, count: int) -> list[str]:
    """The names of the first arguments; their numbers where there are no names."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    try:
        known = inspect.signature(function.forward if isinstance(function, Module) else function).parameters
    except (TypeError, ValueError):
        known = {}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, parameter in known.items() if parameter.kind in kinds][:count]
    return [*names, *(f"input{n}" for n in range(len(names), count))]


def _within(path: str, x: Any, said: Any) -> Wanted:
    if said is None:
        return []
    if isinstance(x, Tensor):
        if not isinstance(said, (Mapping, tuple, list)):
            raise ArgumentError(f"export(dynamic): {path} is a tensor: say {{dimension: name}}, not {said!r}")
        pairs = said.items() if isinstance(said, Mapping) else enumerate(said)
        return [_dimension(path, x, dim, each) for dim, each in pairs if each is not None]
    if isinstance(x, Mapping) and isinstance(said, Mapping):
        unknown = [key for key in said if key not in x]
        items = [(f"{path}[{key!r}]", x[key], each) for key, each in said.items() if key in x]
    elif isinstance(x, (tuple, list)) and isinstance(said, (tuple, list, Mapping)):
        each = said.items() if isinstance(said, Mapping) else enumerate(said)
        pairs = [*each]
        unknown = [at for at, _ in pairs if type(at) is not int or not 0 <= at < len(x)]
        items = [(f"{path}[{at}]", x[at], s) for at, s in pairs if at not in unknown]
    else:
        raise ArgumentError(f"export(dynamic): {path} is a {type(x).__name__}, and only tensors have sizes")
    if unknown:
        raise ArgumentError(f"export(dynamic): {path} has no item {unknown[0]!r}")
    return [found for item in items for found in _within(*item)]


def _dimension(path: str, x: Tensor, dim: Any, said: Any) -> tuple[Tensor, int, Range]:
    if type(dim) is not int:
        raise ArgumentError(f"export(dynamic): a dimension of {path} is a number, not {dim!r}")
    at = dim_of("export(dynamic)", dim, x.ndim)
    name, *ends = said if isinstance(said, (tuple, list)) and said else (said,)
    if type(name) is not str or not name.isidentifier() or len(ends) > 2:
        raise ArgumentError(
            f"export(dynamic): a size is a name, or (name, min, max), not {said!r}", f"argument: {path}"
        )
    low = ends[0] if ends else 1
    high = ends[1] if len(ends) > 1 and ends[1] is not None else MOST
    if type(low) is not int or type(high) is not int or not 1 <= low <= high <= MOST:
        raise ArgumentError(f"export(dynamic): {name} is from {low!r} to {high!r}: sizes from 1 on, in order")
    if not max(low, LEAST) <= x.shape[at] <= high:
        raise ArgumentError(
            f"export(dynamic): the example's {name} is {x.shape[at]}",
            f"give an example whose {name} is from {max(low, LEAST)} to {high}: what is none or one may take "
            "another way through the function",
        )
    return x, at, Range(name, low, high, bool(ends))


@contextmanager
def marked(tensors: Iterable[Tensor], wanted: Wanted) -> Iterator[None]:
    """Have recordings made within this take these sizes of tensors for symbols, and no others of theirs."""
    with without_marks(tensors):
        for x, dim, said in wanted:
            mark(x, dim, said.low, None if said.high == MOST else said.high)
        yield


# ---- what the function needs -------------------------------------------------------------------------------
def opened(
    recording: Recording, shapes: Mapping[int, tuple], wanted: Wanted, told: Sequence[str]
) -> tuple[Graph, Sizes]:
    """The recording's graph with the user's sizes in it, named d0, d1 and so on, and what it needs of them.

    shapes: of the tensors among the arguments that it came to, by their identity, with its symbols.  told:
    what was said of sizes that are none.  Raises ExportError.
    """
    sizes = Sizes()
    names: dict[str, Dim] = {}  # by the user's
    known: dict[str, int | Dim] = {}  # by the recording's
    equations: list[tuple[Dim, int | Dim, str]] = []
    for x, dim, said in wanted:
        if said.name not in names:
            made = names[said.name] = symbol(f"d{len(names)}")
            sizes.ranges[str(made)], sizes.example[str(made)] = said, x.shape[dim]
        found = shapes[id(x)][dim] if id(x) in shapes else names[said.name]
        if not isinstance(found, Dim):
            raise ExportError(f"export(dynamic): {said.name} can't change", *_about(told, found))
        text = str(found)
        if text in recording.symbols and text not in known:
            known[text] = names[said.name]
        elif found is not names[said.name]:
            equations.append((names[said.name], found, said.name))
    if strange := recording.symbols.keys() - known.keys():
        slots = [f"S[{recording.symbols[name]}]" for name in strange]
        asked = [reason.text for text, reason in recording.guards if any(slot in text for slot in slots)]
        raise ExportError(
            "export(dynamic): a size is needed that only Python can compute", *dict.fromkeys(asked)
        )
    for own, found, name in equations:
        dim = substitute(found, known)
        if dim != own:
            raise ExportError(
                f"export(dynamic): {name} is always {sizes.words(dim)}",
                "give it the same name, or leave it out" if isinstance(dim, Dim) else "leave it out",
            )
    for text, reason in recording.guards:
        for condition in _conditions(text, reason, {v: known.get(k) for k, v in recording.symbols.items()}):
            _take(sizes, condition, reason)
    return specialise(recording.graph, known), sizes


def _about(told: Sequence[str], size: int) -> list[str]:
    lines = [line.strip() for line in told if re.search(r" is \d+ alone: ", line)]
    return lines or [f"it is {size} in the recording: give a contiguous tensor that the function uses"]


def _take(sizes: Sizes, condition: Condition, reason: Any) -> None:
    """Note a condition, if not all sizes satisfy it.  Raises ExportError where less is left than was said."""
    place = f" ({place_text(reason.place)})" if reason.place is not None else ""
    words = f"{sizes.words(condition.left)} {condition.relation} {sizes.words(condition.right)}{place}"
    with limits({name: (r.low, r.high) for name, r in sizes.ranges.items()}):
        low, high = bounds(condition.left - condition.right)
    if {"==": low == high == 0, "!=": low > 0 or high < 0, ">=": low >= 0}[condition.relation]:
        return
    end = _end(condition, sizes)
    if end is not None:
        name, low, high = end
        said = sizes.ranges[name]
        if said.is_said or low > high:
            raise ExportError(
                f"export(dynamic): {said} holds sizes for which the function does something else: {words}",
                f"say a range within that, {(said.name, max(low, said.low), high)}"
                if low <= high
                else "no size is left",
            )
        sizes.ranges[name] = Range(said.name, low, high)
        return
    if all(need.condition != condition for need in sizes.needs):
        sizes.needs.append(Need(condition, words))


def _end(condition: Condition, sizes: Sizes) -> tuple[str, int, int] | None:
    """The range that a condition leaves of one size; None where it says something else."""
    difference = condition.left - condition.right
    names = symbols_of(difference) if isinstance(difference, Dim) else ()
    if len(names) != 1:
        return None
    (name,) = names
    if not all([atom.text for atom in monomial] in ([], [name]) for monomial, _ in difference.terms):
        return None  # not linear
    said, rest = sizes.ranges[name], int(substitute(difference, {name: 0}))
    by = int(substitute(difference, {name: 1})) - rest
    if condition.relation == "!=":
        at = -rest // by if rest % by == 0 else None
        if at == said.low:
            return name, said.low + 1, said.high
        return (name, said.low, said.high - 1) if at == said.high else None
    if condition.relation == "==":
        return (name, -rest // by, -rest // by) if rest % by == 0 else (name, 1, 0)
    if by > 0:
        return name, max(said.low, -(rest // by)), said.high
    return name, said.low, min(said.high, rest // -by)


# ---- guards as conditions ----------------------------------------------------------------------------------
_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_NEGATED = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip


def _conditions(text: str, reason: Any, sizes: Mapping[int, Any]) -> list[Condition]:
    """What must hold where a guard does not fail.  Raises ExportError for what no formula says."""
    try:
        return _hold(ast.parse(text, mode="eval").body, False, sizes)
    except (LaminaError, ArithmeticError, TypeError, KeyError):
        place = f" ({place_text(reason.place)})" if reason.place is not None else ""
        raise ExportError(
            "export(dynamic): a file can't look at what the function asks of a size",
            f"{reason.text}{place}",
        ) from None


def _hold(node: ast.expr, wanted: bool, sizes: Mapping[int, Any]) -> list[Condition]:
    """The conditions under which an expression is true, or false."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _hold(node.operand, not wanted, sizes)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) is wanted:
        return [each for part in node.values for each in _hold(part, wanted, sizes)]
    if not isinstance(node, ast.Compare):
        raise TypeError
    if len(node.ops) > 1:  # a < b < c
        if not wanted:
            raise TypeError
        sides = [node.left, *node.comparators]
        return [
            each
            for n, op in enumerate(node.ops)
            for each in _compared(op, sides[n], sides[n + 1], sizes)
        ]  # fmt: skip
    (op,), (right,) = node.ops, node.comparators
    if isinstance(op, (ast.Is, ast.IsNot)) and isinstance(right, ast.Constant) and type(right.value) is bool:
        return _hold(node.left, (right.value is isinstance(op, ast.Is)) is wanted, sizes)
    return _compared(op if wanted else _NEGATED[type(op)](), node.left, right, sizes)


def _compared(op: Any, a: ast.expr, b: ast.expr, sizes: Mapping[int, Any]) -> list[Condition]:
    left, right = _size(a, sizes), _size(b, sizes)
    made = {
        ast.Eq: lambda: Condition(left, "==", right),
        ast.NotEq: lambda: Condition(left, "!=", right),
        ast.GtE: lambda: Condition(left, ">=", right),
        ast.LtE: lambda: Condition(right, ">=", left),
        ast.Gt: lambda: Condition(left, ">=", right + 1),
        ast.Lt: lambda: Condition(right, ">=", left + 1),
    }
    return [made[type(op)]()]


def _size(node: ast.expr, sizes: Mapping[int, Any]) -> Any:
    match node:
        case ast.Constant(value=int() as value) if type(value) is int:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return 0 - _size(operand, sizes)
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_size(left, sizes), _size(right, sizes))
        case ast.Subscript(value=ast.Name(id="S"), slice=ast.Constant(value=int() as at)):
            return sizes[at]
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[a, b]):
            return (minimum if name == "min" else maximum)(_size(a, sizes), _size(b, sizes))
    raise TypeError
