"""Dimensions: an int, or an expression of symbols that stand for sizes not known yet.

A `Dim` is a polynomial with integer coefficients over atoms: symbols, floor divisions, minima and maxima.  It
is kept in a canonical form, so that equal expressions mostly are equal values (`(2*n+1)//2` is `n`), and one
without symbols is a plain int.  A symbol is a size, so at least 0; a divisor is presumed to be at least 1.

`==` compares forms, as a dictionary key must, but where `conditions` says what the symbols are for once: it
is a question there as others are.  What an op's rule asks ("are these sizes equal?") is `same`; where that
can't be decided, the answer is yes on a `Condition`, which `with conditions()` collects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from math import gcd, inf
from operator import eq, ge, ne
from types import MappingProxyType
from typing import Any

from .dtypes import ALL
from .errors import ArgumentValueError, ShapeError
from .open_blocks import OpenBlocks

# Words that mean something else where the text form spells dimensions.
RESERVED = frozenset(
    {"min", "max", "inf", "nan", "none", "graph"} | {d.name for d in ALL} | {d.short for d in ALL}
)

# What sizes of symbols lie between where programs are made of them: the same for all, as proofs are kept.
LEAST, MOST = 2, 1 << 40


class Atom:
    """An indivisible factor: a symbol (the kind is its name), or `//`, `min` or `max` of two dims."""

    __slots__ = ("kind", "operands", "text")

    def __init__(self, kind: str, *operands: int | Dim):
        self.kind, self.operands = kind, operands
        if not operands:
            self.text = kind
        elif kind == "//":
            self.text = "//".join(
                s if isinstance(d, int) or s.isidentifier() else f"({s})"
                for d, s in zip(operands, map(str, operands), strict=True)
            )
        else:
            self.text = f"{kind}({operands[0]},{operands[1]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return f"({self.text})" if self.kind == "//" else self.text


Monomial = tuple[Atom, ...]  # a product, its factors in order; () is 1
Terms = dict[Monomial, int]

TERMS = 64  # of one dimension
LONGEST = 4000  # characters of one


class Dim:
    """A size that depends on symbols.  Made by `symbol` and arithmetic; never a constant."""

    __slots__ = ("terms", "text")

    terms: tuple[tuple[Monomial, int], ...]
    text: str

    def __add__(self, other: Any) -> int | Dim:
        if not _is_dim(other):
            return NotImplemented
        terms = dict(self.terms)
        for monomial, c in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + c
        return _dim(terms)

    __radd__ = __add__

    def __neg__(self) -> int | Dim:
        return self * -1

    def __sub__(self, other: Any) -> int | Dim:
        return self + other * -1 if _is_dim(other) else NotImplemented

    def __rsub__(self, other: Any) -> int | Dim:
        return self * -1 + other if _is_dim(other) else NotImplemented

    def __mul__(self, other: Any) -> int | Dim:
        if not _is_dim(other):
            return NotImplemented
        terms: Terms = {}
        for a, c in self.terms:
            for b, d in _terms(other):
                product = tuple(sorted(a + b, key=str))
                terms[product] = terms.get(product, 0) + c * d
        return _dim(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> int | Dim:
        return _quotient(self, other) if _is_dim(other) else NotImplemented

    def __rfloordiv__(self, other: Any) -> int | Dim:
        return _quotient(other, self) if _is_dim(other) else NotImplemented

    def __mod__(self, other: Any) -> int | Dim:
        return self - _quotient(self, other) * other if _is_dim(other) else NotImplemented

    def __rmod__(self, other: Any) -> int | Dim:
        return other - _quotient(other, self) * self if _is_dim(other) else NotImplemented

    def __divmod__(self, other: Any) -> tuple[int | Dim, int | Dim]:
        return (self // other, self % other) if _is_dim(other) else NotImplemented

    def __rdivmod__(self, other: Any) -> tuple[int | Dim, int | Dim]:
        return (other // self, other % self) if _is_dim(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if self is other or (isinstance(other, Dim) and self.text == other.text):
            return True
        block = _collecting.innermost()
        if block is None or block.sizes is None or not _is_dim(other):
            return False
        return _decided(self, "==", other)

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: Any) -> bool:
        return not self >= other if _is_dim(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return _decided(self, ">=", other + 1) if _is_dim(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return not self > other if _is_dim(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return _decided(self, ">=", other) if _is_dim(other) else NotImplemented

    def __bool__(self) -> bool:
        return not _decided(self, "==", 0)

    def __int__(self) -> int:
        raise Undecided(
            f"the size {self} is no number yet", "give sizes to its symbols", names=symbols_of(self)
        )

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def _is_dim(value: Any) -> bool:
    return isinstance(value, Dim) or (hasattr(value, "__index__") and not isinstance(value, bool))


def _terms(value: Any) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Dim) else (((), int(value)),)


def _dim(terms: Terms) -> int | Dim:
    """The canonical value of a sum: highest degree first, constant last; an int where no symbol is left."""
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    if len(kept) > TERMS:
        raise ShapeError(f"a dimension has at most {TERMS} terms, not {len(kept)}")
    if any(abs(c) >> 63 for _, c in kept):
        raise ShapeError("the numbers in a dimension are below 2**63", f"the largest: {_largest(kept)}")
    kept.sort(key=lambda term: (-len(term[0]), tuple(map(str, term[0]))))
    made = object.__new__(Dim)
    made.terms = tuple(kept)
    spelled = []
    for monomial, c in kept:
        product = (
            "*".join(map(str, monomial))
            if c in (1, -1) or not monomial
            else f"{abs(c)}*" + "*".join(map(str, monomial))
        )
        sign = "-" if c < 0 else "+" if spelled else ""
        spelled.append(sign + (product if monomial else str(abs(c))))
    text = "".join(spelled)
    if len(kept) == 1 and kept[0][1] == 1 and len(kept[0][0]) == 1:
        text = kept[0][0][0].text  # n//2 by itself needs no brackets
    if len(text) > LONGEST:
        raise ShapeError(
            f"a dimension is spelled in at most {LONGEST} characters", f"this begins {text[:200]}"
        )
    made.text = text
    return made


def _largest(terms: list[tuple[Monomial, int]]) -> str:
    digits = max(abs(c) for _, c in terms)
    return str(digits) if digits.bit_length() < 300 else f"about 2**{digits.bit_length()}"


def _of_atom(atom: Atom) -> Dim:
    made = _dim({(atom,): 1})
    assert isinstance(made, Dim)
    return made


def symbol(name: str) -> Dim:
    """The dimension called `name`, some size of at least 0.

    Raises ArgumentValueError unless the name is an identifier, and not a word of the text form (`f32`,
    `max`).
    """
    if not (name.isidentifier() and name.isascii()) or name in RESERVED or iskeyword(name):
        raise ArgumentValueError(f"symbol(name): a dimension can't be called {name!r}", "like: symbol('n')")
    return _of_atom(Atom(name))


def minimum(a: int | Dim, b: int | Dim) -> int | Dim:
    """The smaller of two dimensions, as an expression where it isn't known which that is."""
    return _extreme("min", a, b)


def maximum(a: int | Dim, b: int | Dim) -> int | Dim:
    """The larger of two dimensions, as an expression where it isn't known which that is."""
    return _extreme("max", a, b)


def _extreme(kind: str, a: int | Dim, b: int | Dim) -> int | Dim:
    low, high = bounds(a - b)
    if low >= 0:
        return b if kind == "min" else a
    if high <= 0:
        return a if kind == "min" else b
    return _of_atom(Atom(kind, *sorted((a, b), key=str)))


def _quotient(a: int | Dim, b: int | Dim) -> int | Dim:
    """The floor of a / b in canonical form: whatever is a multiple of b stands outside of the division."""
    if isinstance(b, int):
        return _by_constant(a, int(b))
    if bounds(b)[1] <= 0:
        raise ShapeError(f"a dimension can't be divided by {b}, which is not positive")
    exact = _exact(a, b)
    if exact is not None:
        return exact
    whole: Terms = {}
    rest: Terms = {}
    if len(b.terms) == 1:
        ((divisor, c),) = b.terms
        for monomial, d in _terms(a):
            left = _without(monomial, divisor)
            if left is not None and d % c == 0:
                whole[left] = d // c
            else:
                rest[monomial] = d
        a = _dim(rest)
    low, high = bounds(a)
    if low >= 0 and bounds(b - a)[0] >= 1:
        return _dim(whole)
    return _dim(whole) + _of_atom(Atom("//", a, b))


def _by_constant(a: int | Dim, k: int) -> int | Dim:
    if k <= 0:
        raise ShapeError(f"a dimension can't be divided by {k}, which is not positive")
    whole = _dim({m: c // k for m, c in _terms(a)})
    rest = {m: c % k for m, c in _terms(a)}
    common = gcd(k, *(c for m, c in rest.items() if m))
    # floor(floor(x / g) / (k / g)) is floor(x / k): what the symbols' coefficients share with k falls out of
    # both
    inner, k = _dim({m: c // common for m, c in rest.items()}), k // common
    if k == 1 or isinstance(inner, int):
        return whole + inner // k
    symbolic = [(m, c) for m, c in inner.terms if m]
    if len(symbolic) == 1 and symbolic[0][1] == 1 and len(symbolic[0][0]) == 1:
        atom = symbolic[0][0][0]
        if atom.kind == "//" and isinstance(atom.operands[1], int):  # (a//b + c)//k is (a + b*c)//(b*k)
            a, b = atom.operands
            return whole + _by_constant(a + (inner - _of_atom(atom)) * b, b * k)
    low, high = bounds(inner)
    if low // k == high // k:  # floor of infinity is not a number, which equals nothing
        return whole + int(low // k)
    return whole + _of_atom(Atom("//", inner, k))


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in divisor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _exact(a: int | Dim, b: Dim) -> int | Dim | None:
    """The polynomial q with q * b == a, or None.  Divides leading term by leading term."""
    quotient: int | Dim = 0
    lead, c = b.terms[0]
    for _ in range(len(_terms(a)) + 8):  # each step cancels the leading term; enough for any size met
        if isinstance(a, int):
            return quotient if a == 0 else None
        monomial, d = a.terms[0]
        left = _without(monomial, lead)
        if left is None or d % c:
            return None
        step = _dim({left: d // c})
        quotient, a = quotient + step, a - step * b
    return None


DEEP = 4  # terms of one dimension that are looked into: each further one doubles the work


def bounds(dim: int | Dim, deep: int = DEEP) -> tuple[float, float]:
    """An interval that holds every value of `dim`; ints, or infinite."""
    if not isinstance(dim, Dim):
        return dim, dim
    low, high = _interval(dim, deep)
    if len(dim.terms) == 1 or not deep:
        return low, high
    for monomial, c in dim.terms:  # with what an atom lies between in its place, terms may cancel: n - n//2
        if len(monomial) == 1 and monomial[0].operands:
            below, above = _without_atom(monomial[0], c, dim - c * _of_atom(monomial[0]), deep - 1)
        elif (found := _of_multiple(monomial, c)) is not None:
            (x, y), times = found
            rest = dim - _dim({monomial: c})
            ends = [bounds(rest + times * x, deep - 1), bounds(rest + times * (x - y + 1), deep - 1)]
            below, above = min(e for e, _ in ends), max(e for _, e in ends)
        else:
            continue
        low, high = max(low, below), min(high, above)
        break
    return low, high


def _without_atom(atom: Atom, c: int, rest: int | Dim, deep: int) -> tuple[float, float]:
    """Bounds of c * atom + rest, by what the atom lies between."""
    x, y = atom.operands
    if atom.kind != "//":
        below, above = zip(bounds(rest + c * x, deep), bounds(rest + c * y, deep), strict=True)
        # c * min(x, y) is the smaller of c*x and c*y where c > 0, else the larger; of max, the other way
        least = (atom.kind == "min") == (c > 0)
        return (min(below) if least else max(below)), (min(above) if least else max(above))
    if not isinstance(y, int):  # from 0 to x, which is not negative
        if bounds(x, deep)[0] < 0:
            return -inf, inf
        ends = [bounds(rest + c * x, deep), bounds(rest, deep)]
        return min(e for e, _ in ends), max(e for _, e in ends)
    # x//y lies between (x-y+1)/y and x/y
    ends = [bounds(rest * y + c * x, deep), bounds(rest * y + c * (x - y + 1), deep)]
    return (
        min(e if e == -inf else -(-e // y) for e, _ in ends),
        max(e if e == inf else e // y for _, e in ends),
    )


def _of_multiple(monomial: Monomial, c: int) -> tuple[tuple[Any, Any], int] | None:
    """((x, y), times) where c * monomial is times * y * (x//y), which lies between x - y + 1 and x."""
    for atom in monomial:
        x, y = atom.operands or (0, 0)
        if atom.kind == "//" and isinstance(y, Dim) and len(y.terms) == 1:
            ((divisor, d),) = y.terms
            if c % d == 0 and _without(monomial, (atom, *divisor)) == ():
                return (x, y), c // d
    return None


def _interval(dim: Dim, deep: int) -> tuple[float, float]:
    if len(dim.terms) > 1:  # what all terms have in common is taken out: of m*n - n, n*(m - 1)
        for atom in dim.terms[0][0]:
            if all(atom in monomial for monomial, _ in dim.terms):
                rest = _dim({_without(monomial, (atom,)) or (): c for monomial, c in dim.terms})
                ends = [_times(x, y) for x in _atom_interval(atom, deep) for y in bounds(rest, deep)]
                return min(ends), max(ends)
    low: float = 0
    high: float = 0
    for monomial, c in dim.terms:
        ends = (1, 1)
        for atom in monomial:
            inner = _atom_interval(atom, deep)
            products = [_times(x, y) for x in ends for y in inner]
            ends = min(products), max(products)
        ends = tuple(sorted((_times(ends[0], c), _times(ends[1], c))))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _times(x: float, y: float) -> float:
    return 0 if x == 0 or y == 0 else x * y  # 0 * inf: a size, however large, is finite


def _atom_interval(atom: Atom, deep: int) -> tuple[float, float]:
    if not atom.operands:
        block = _limiting.innermost()
        return (0, inf) if block is None else block.limits.get(atom.kind, (0, inf))
    (a, b), (c, d) = (bounds(operand, deep) for operand in atom.operands)
    if atom.kind == "min":
        return min(a, c), min(b, d)
    if atom.kind == "max":
        return max(a, c), max(b, d)
    c = max(c, 1)
    low = _floor(a, d if a >= 0 else c)
    return low, _floor(b, c if b >= 0 else d)


def _floor(x: float, y: float) -> float:
    if y == inf:
        return 0 if x >= 0 else -1
    return x if abs(x) == inf else x // y


def symbols_of(dim: int | Dim) -> frozenset[str]:
    """The names that `dim` depends on."""
    if not isinstance(dim, Dim):
        return frozenset()
    found: set[str] = set()
    for monomial, _ in dim.terms:
        for atom in monomial:
            found.update(*map(symbols_of, atom.operands)) if atom.operands else found.add(atom.kind)
    return frozenset(found)


def substitute(dim: int | Dim, values: Mapping[Any, int | Dim]) -> int | Dim:
    """`dim` with dimensions in place of some symbols.  Keys are all symbols, or all their names."""
    if not isinstance(dim, Dim) or not values:
        return dim
    named = values if type(next(iter(values))) is str else {str(k): v for k, v in values.items()}
    if symbols_of(dim).isdisjoint(named):
        return dim
    total: int | Dim = 0
    for monomial, c in dim.terms:
        product: int | Dim = c
        for atom in monomial:
            product = product * _substituted(atom, named)
        total = total + product
    return total


def _substituted(atom: Atom, values: Mapping[Any, int | Dim]) -> int | Dim:
    if not atom.operands:
        return values[atom.kind] if atom.kind in values else _of_atom(atom)
    a, b = (substitute(d, values) for d in atom.operands)
    return _quotient(a, b) if atom.kind == "//" else _extreme(atom.kind, a, b)


def evaluate(dim: int | Dim, values: Mapping[Any, int]) -> int:
    """The size where every symbol is known.  Raises ShapeError naming those that are not."""
    found = substitute(dim, values)
    if isinstance(found, Dim):
        missing = ", ".join(sorted(symbols_of(found)))
        raise ShapeError(f"{dim} has no value without one for {missing}", f"known: {dict(values)}")
    return found


def function_of(
    names: Sequence[str],
    dims: Sequence[int | Dim | str],
    greatest: Mapping[str, Sequence[int | Dim | str]] = MappingProxyType({}),
) -> Callable[..., tuple[int, ...]]:
    """The sizes as a function of the symbols of these names: Python's own code, which takes microseconds.

    dims: or their texts, of somebody whom one trusts.  greatest: of further symbols, what each is the
    greatest of, of names and of the symbols before it.
    """
    lines = [f"def function({', '.join(names)}):"]
    for name, ends in greatest.items():
        told = ", ".join(map(str, ends))
        lines.append(f"  {name} = max({told})" if len(ends) > 1 else f"  {name} = {told}")
    lines.append(f"  return ({''.join(f'{dim}, ' for dim in dims)})")
    scope: dict[str, Any] = {"min": min, "max": max}
    exec("\n".join(lines), scope)
    found: Callable[..., tuple[int, ...]] = scope["function"]
    return found


@dataclass(frozen=True)
class Condition:
    """What must hold of the symbols for an inferred shape to be right: left ==, != or >= right."""

    left: int | Dim
    relation: str
    right: int | Dim

    def holds(self, values: Mapping[Any, int]) -> bool:
        """Whether it is true of these sizes.  Raises ShapeError where a symbol's is missing."""
        left, right = evaluate(self.left, values), evaluate(self.right, values)
        return _RELATIONS[self.relation](left, right)

    def otherwise(self) -> Condition:
        """What holds where it does not."""
        if self.relation == ">=":
            return Condition(self.right, ">=", self.left + 1)
        return Condition(self.left, "!=" if self.relation == "==" else "==", self.right)

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}"


_RELATIONS: dict[str, Any] = {"==": eq, "!=": ne, ">=": ge}
_collecting = OpenBlocks()
_limiting = OpenBlocks()
_hinting = OpenBlocks()
_facts = OpenBlocks()


class limits:
    """Says in its block between what sizes symbols lie: `with limits({"n": (2, inf)})`.

    What is said around the block holds in it, too.
    """

    def __init__(self, limits: Mapping[str, tuple[float, float]]):
        self.limits = dict(limits)

    def __enter__(self) -> None:
        around = _limiting.innermost()
        for name, (low, high) in (around.limits if around is not None else {}).items():
            least, most = self.limits.get(name, (low, high))
            self.limits[name] = max(low, least), min(high, most)
        _limiting.enter(self)

    def __exit__(self, *_: object) -> None:
        _limiting.leave(self)


class conditions:
    """Collects what `same` and `at_least` can't decide in its block, instead of their raising.

    sizes: what the symbols are for once, if that is known: all questions about sizes are answered by these
    then, comparisons of Python's too, and each answer is a condition.
    """

    def __init__(self, into: list[Condition] | None = None, sizes: Mapping[str, int] | None = None):
        self.into: list[Condition] = [] if into is None else into
        self.sizes = sizes

    def __enter__(self) -> list[Condition]:
        _collecting.enter(self)
        return self.into

    def __exit__(self, *_: object) -> None:
        _collecting.leave(self)


def same(a: int | Dim, b: int | Dim) -> bool:
    """Whether two dimensions are equal; where symbols leave it open, yes on a condition (see `conditions`).

    Raises ShapeError for an open question outside of `with conditions()`.
    """
    if a == b:
        return True
    if not (isinstance(a, Dim) or isinstance(b, Dim)):
        return False
    answer = _answer(a, "==", b)
    return _assumed(a, "==", b) if answer is None else answer


def at_least(a: int | Dim, b: int | Dim) -> bool:
    """Whether a >= b; where symbols leave it open, yes on a condition.  Raises as `same` does."""
    if not (isinstance(a, Dim) or isinstance(b, Dim)):
        return a >= b
    answer = _answer(a, ">=", b)
    return _assumed(a, ">=", b) if answer is None else answer


def number_of(dim: int | Dim) -> int:
    """What a size is where the sizes are known for once, on that condition: how many tensors come of a call.

    Raises Undecided elsewhere.
    """
    if not isinstance(dim, Dim):
        return dim
    block = _collecting.innermost()
    if block is None or block.sizes is None:
        return int(dim)
    found = evaluate(dim, block.sizes)
    _assumed(dim, "==", found)
    return found


def is_at_least(a: int | Dim, b: int | Dim) -> bool:
    """Whether a >= b is known for all sizes."""
    if not (isinstance(a, Dim) or isinstance(b, Dim)):
        return a >= b
    return _answer(a, ">=", b) is True


class hints:
    """Says in its block what sizes symbols have for once, to choose by: what is chosen must be right for all.

    Questions about sizes are not answered by them.  chosen: what `likely` was asked, as it is for once.
    """

    def __init__(self, sizes: Mapping[str, int]):
        self.sizes = sizes
        self.chosen: dict[Condition, None] = {}

    def __enter__(self) -> None:
        _hinting.enter(self)

    def __exit__(self, *_: object) -> None:
        _hinting.leave(self)


def hint(dim: int | Dim) -> int:
    """The size for once.  Raises ShapeError where `hints` says none."""
    return evaluate(dim, for_once()) if isinstance(dim, Dim) else dim


def likely(a: int | Dim, b: int | Dim) -> bool:
    """Whether a >= b for once, where so much hangs on it that other sizes had better have a choice of their
    own: `hints` keeps what is so.
    """
    condition = Condition(a, ">=", b)
    if not condition.holds(for_once()):
        condition = condition.otherwise()
    if isinstance(a, Dim) or isinstance(b, Dim):
        block = _hinting.innermost()
        assert block is not None  # or it had not been known for once
        block.chosen[condition] = None
    return condition.left is a


def has_hint(dim: int | Dim) -> bool:
    """Whether a size is a number, or has one for once."""
    return not isinstance(dim, Dim) or symbols_of(dim) <= for_once().keys()


def for_once() -> Mapping[str, int]:
    """The sizes of the innermost `hints`."""
    block = _hinting.innermost()
    return {} if block is None else block.sizes


class facts:
    """Says in its block what is so of symbols, so that `same` and `at_least` need no condition.

    Comparisons and proofs are not answered by it: what follows of them may be kept, by the text of a node or
    a kernel, for where it isn't so.  ranges: between what sizes symbols lie.
    """

    def __init__(self, conditions: Iterable[Condition], ranges: Mapping[str, tuple[float, float]]):
        self.conditions, self.ranges = tuple(conditions), dict(ranges)

    def __enter__(self) -> None:
        _facts.enter(self)

    def __exit__(self, *_: object) -> None:
        _facts.leave(self)


def _is_fact(a: int | Dim, relation: str, b: int | Dim) -> bool:
    block, difference = _facts.innermost(), a - b
    if block is None:
        return False
    with limits(block.ranges):
        if _answer(a, relation, b):
            return True
    for fact in block.conditions:
        own = fact.left - fact.right
        if fact.relation == relation and (difference == own or relation != ">=" and difference == -own):
            return True
        if relation == fact.relation == ">=" and bounds(difference - own)[0] >= 0:
            return True
    return False


def _answer(a: int | Dim, relation: str, b: int | Dim) -> bool | None:
    difference = a - b
    low, high = bounds(difference)
    if relation == ">=":
        return True if low >= 0 else False if high < 0 else None
    if low > 0 or high < 0:
        return False
    if not isinstance(difference, Dim):
        return True
    constant = dict(difference.terms).get((), 0)
    if constant % gcd(*(c for m, c in difference.terms if m)):
        return False  # 2*n + 1 == 0 has no solution in integers
    return None


def _assumed(a: int | Dim, relation: str, b: int | Dim) -> bool:
    condition = Condition(a, relation, b)
    block = _collecting.innermost()
    if block is None:
        if _is_fact(a, relation, b):
            return True
        raise _open(condition)
    holds = block.sizes is None or condition.holds(block.sizes)
    condition = condition if holds else condition.otherwise()
    if str(condition) not in map(str, block.into):  # as texts: a question would be one more condition
        block.into.append(condition)
    return holds


def _decided(a: int | Dim, relation: str, b: int | Dim) -> bool:
    answer = _answer(a, relation, b)
    if answer is None:
        block = _collecting.innermost()
        if block is None or block.sizes is None:
            raise _open(Condition(a, relation, b))
        return _assumed(a, relation, b)
    return answer


class Undecided(ShapeError):
    """A question about sizes that symbols leave open.  names: those symbols."""

    def __init__(self, *texts: str, names: frozenset[str] = frozenset()):
        super().__init__(*texts)
        self.names = names


def _open(condition: Condition) -> Undecided:
    symbols = symbols_of(condition.left) | symbols_of(condition.right)
    names = ", ".join(sorted(symbols))
    return Undecided(
        f"whether {condition} can't be decided while {names} may be any size",
        f"give sizes to {names}, or declare dimensions for which it holds or fails always",
        names=symbols,
    )
