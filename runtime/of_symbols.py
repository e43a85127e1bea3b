"""What is made of types whose sizes are symbols: what follows for all sizes, and what must be so of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..ir.dims import LEAST, MOST, Condition, Dim, bounds, limits, symbol
from ..ir.types import Shape, Type

T = TypeVar("T")
Types = Sequence[Type | None]


@dataclass(frozen=True)
class OfSymbols(Generic[T]):
    """made: of types with symbols.  needs: what must be so of these where it serves.

    shapes: of those types.  sizes: of the symbols in the types that it was first made of.
    """

    made: T
    needs: tuple[Condition, ...]
    shapes: tuple[Shape | None, ...]
    sizes: dict[str, int]

    def function(self, results: Sequence[Shape], beside: Any = ()) -> Callable[[Types], Any]:
        """The results, a shape each, as a function of types; None for types that it doesn't serve.

        beside: what it gives after them, of numbers, sizes and what is made of these.  Python's own code.
        Raises TypeError where that can't be written down.
        """
        lines, tests = ["def function(types):"], [*map(str, self.needs)]
        for at, shape in enumerate(self.shapes):
            names = [f"s{at}_{d}" for d in range(len(shape or ()))]
            if names:
                lines.append(f"  {''.join(f'{name}, ' for name in names)}= types[{at}].shape")
            # others are that of another dim, or numbers
            tests += [f"{name} == {n}" for name, n in zip(names, shape or (), strict=True) if str(n) != name]
        with limits(dict.fromkeys(self.sizes, (LEAST, MOST))):  # no rule has asked whether a size is one
            tests += [f"{n} >= 0" for shape in results for n in shape if bounds(n)[0] < 0]
        if tests:
            lines.append(f"  if not ({' and '.join(tests)}): return None")
        lines.append(f"  return {_text((*results, *beside))}")
        scope: dict[str, Any] = {"min": min, "max": max, "slice": slice}
        exec("\n".join(lines), scope)
        return scope["function"]


def _text(value: Any) -> str:
    """Python's text of a value in which sizes are symbols."""
    kind = type(value)
    if kind is tuple:
        return f"({''.join(f'{_text(part)}, ' for part in value)})"
    if kind is dict:
        return f"{{{', '.join(f'{_text(name)}: {_text(part)}' for name, part in value.items())}}}"
    if kind is slice:
        return f"slice({_text(value.start)}, {_text(value.stop)}, {_text(value.step)})"
    if isinstance(value, Dim) or kind in (int, bool, str) or value is None:
        return str(value) if isinstance(value, Dim) else repr(value)
    raise TypeError(f"no text for {kind.__name__}")


def of_symbols(
    types: Types, make: Callable[[tuple[Type | None, ...], dict[str, int]], tuple[T, Sequence[Condition]]]
) -> OfSymbols[T]:
    """What `make` makes where each size above one is a symbol, and those that must be equal are one.

    make: is given such types and the symbols' sizes for once, and tells also on what conditions that is so.
    """
    sizes: dict[str, Any] = {
        f"s{at}_{d}": n
        for at, kind in enumerate(types)
        for d, n in enumerate(() if kind is None else kind.shape)
        if n > 1
    }
    values: dict[str, int | Dim] = {name: symbol(name) for name in sizes}
    with limits(dict.fromkeys(sizes, (LEAST, MOST))):
        while True:
            shaped = [
                kind
                and kind.with_shape(tuple([values.get(f"s{at}_{d}", n) for d, n in enumerate(kind.shape)]))
                for at, kind in enumerate(types)
            ]
            made, needs = make(tuple(shaped), sizes)
            equal = [pair for pair in map(_equal, needs) if pair is not None]
            if not equal:
                break
            for pair in equal:
                one, other = [values.get(str(n), n) for n in pair]
                if not isinstance(one, Dim):
                    one, other = other, one
                values = {name: other if value == one else value for name, value in values.items()}
    return OfSymbols(
        made,
        tuple(needs),
        tuple([None if kind is None else kind.shape for kind in shaped]),
        {name: sizes[name] for name, value in values.items() if str(value) == name},
    )


def _equal(condition: Condition) -> tuple[int | Dim, int | Dim] | None:
    """Two symbols, or one and a number, that a condition wants to be equal."""
    pair = condition.left, condition.right
    names = [str(n).isidentifier() for n in pair if isinstance(n, Dim)]
    return pair if condition.relation == "==" and names and all(names) else None
