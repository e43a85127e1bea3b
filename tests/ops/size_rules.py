"""Whether what a record's rules take for granted of symbols is enough, for all sizes.

A call of a sample is made on values whose sizes are symbols: those of operands, and whole numbers among the
other arguments, where the record takes them for symbols.  Its rules then say under which conditions the call
is right; at other sizes that satisfy them the same call on numbers must be accepted, and give the same types.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from harness import Case

from lamina.ir.dims import Dim, evaluate, symbol
from lamina.ir.dtypes import from_numpy_dtype
from lamina.ir.errors import LaminaError
from lamina.ir.graph import Builder
from lamina.ir.op import Op
from lamina.ir.sample import Operand
from lamina.ir.types import Type, type_of

LEAST = 2  # of a size that is a symbol, as jit/symbolic.py has it
TRIES = 40


class Sizes:
    """Numbers made symbols.  shared: equal numbers are one symbol."""

    def __init__(self, shared: bool):
        self.shared, self.values = shared, dict[str, int]()

    def dim(self, n: int) -> int | Dim:
        if type(n) is not int or n < LEAST:
            return n
        name = f"n{n}" if self.shared else f"s{len(self.values)}"
        self.values[name] = n
        return symbol(name)

    def inside(self, x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return type(x)(map(self.inside, x))
        return self.dim(x)


def given(case: Case, sizes: Sizes, opened: frozenset[Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call with types for tensors.  opened: which of the other arguments are symbols."""

    def one(key: Any, x: Any, array: Any) -> Any:
        if isinstance(x, Operand):
            return type_of(from_numpy_dtype(array.dtype), tuple(map(sizes.dim, x.shape)))
        if isinstance(x, (tuple, list)) and any(isinstance(y, Operand) for y in x):
            return type(x)(one(key, y, a) for y, a in zip(x, array, strict=True))
        return sizes.inside(x) if key in opened else x

    args = tuple(one(n, x, case.args[n]) for n, x in enumerate(case.sample.args))
    return args, {k: one(k, x, case.kwargs[k]) for k, x in case.sample.kwargs.items()}


def evaluated(x: Any, at: dict[str, int]) -> Any:
    if isinstance(x, (tuple, list)):
        return type(x)(evaluated(y, at) for y in x)
    if isinstance(x, dict):
        return {k: evaluated(y, at) for k, y in x.items()}
    if isinstance(x, Type):
        return x.with_shape(tuple(evaluate(n, at) for n in x.shape))
    return evaluate(x, at) if isinstance(x, Dim) else x


def called(op: Op, arguments: tuple, at: dict[str, int] | None) -> tuple[list[Type], list]:
    """The types that a call on values gives, and the conditions."""

    def value(x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            return type(x)(map(value, x))
        return b.param(x) if isinstance(x, Type) else x

    with Builder(op.name, at) as b:
        args, kwargs = arguments
        operands, attrs = op.bind(*map(value, args), **{k: value(x) for k, x in kwargs.items()})
        return [v.type for v in b.emit(op, operands, attrs).outputs], b.conditions


def with_symbols(op: Op, case: Case, shared: bool) -> Iterator[tuple[tuple, Sizes, list[Type], list]]:
    """The call on symbols: operands' sizes alone, and with each other argument that may be one."""
    others = [*range(len(case.sample.args)), *case.sample.kwargs]
    for opened in (frozenset(), *(frozenset([key]) for key in others)):
        sizes = Sizes(shared)
        arguments = given(case, sizes, opened)
        if not sizes.values or op.traits.host:  # whose values make sizes
            continue
        try:
            types, conditions = called(op, arguments, sizes.values)
        except (LaminaError, TypeError, ValueError, AttributeError, OverflowError):
            continue  # which costs a recording, and no more
        yield arguments, sizes, types, conditions


def check(op: Op, case: Case) -> int:
    """Hold one call to its rules.  Returns at how many sizes."""
    generator, tried = random.Random(0), 0
    for shared in (True, False):
        for arguments, sizes, types, conditions in with_symbols(op, case, shared):
            derived = {n for t in types for n in t.shape if isinstance(n, Dim)}
            for _ in range(TRIES):
                off = [generator.choice((-2, -1, 0, 0, 1, 2, 7)) for _ in sizes.values]
                at = {name: max(LEAST, n + by) for (name, n), by in zip(sizes.values.items(), off)}
                if not all(condition.holds(at) for condition in conditions):
                    continue
                if any(evaluate(n, at) < LEAST for n in derived):
                    continue  # derived sizes are held to be neither none nor one
                numbers = evaluated(arguments, at)
                text = f"{case}: {op.name}{numbers} of {arguments}, on {[*map(str, conditions)]}"
                try:
                    found, _ = called(op, numbers, None)
                except LaminaError as error:
                    raise AssertionError(f"{text}: {error}") from None
                assert found == evaluated(types, at), f"{text}: {found}"
                tried += 1
    return tried
