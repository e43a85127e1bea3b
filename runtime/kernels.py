"""Which ops run as native code in eager: those on large arrays, once they were called often enough.

NumPy runs every op at first.  When an op has been called on arrays of the same types for so long that the
wait is earned, it is looked for among what earlier processes compiled, and after longer still it is compiled;
from then on all its calls are native.  Both waits are counted in elements, not in seconds, so that a program
that is run again changes over at the same calls.  $LAMINA_NATIVE says otherwise: 0 leaves everything to
NumPy, 1 compiles at the first call, so that every call of an op rounds as the first one did.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..ir.dtypes import ALL, on_default_change
from ..ir.errors import KernelError, LaminaError
from ..ir.lazy import load
from ..ir.locks import fork_safe_lock
from ..ir.lowering import NotLowered
from ..ir.op import Op
from ..ir.types import SMALL, Type, type_of

Types = tuple[Type | None, ...]
Order = tuple[int, ...]  # the dims of an array, that of the longest stride first
Arrays = Sequence[np.ndarray | None]

NEVER, EARNED, AT_ONCE = range(3)
WHEN = {"0": NEVER, "1": AT_ONCE}.get(os.environ.get("LAMINA_NATIVE", ""), EARNED)
LEAST = SMALL  # elements of the largest array; beyond it native code wins, but for the following
# NumPy's loops that run at the speed of memory: one thread can't beat them, two do from here on.
PLAIN_LEAST = 1 << 18
PLAIN = frozenset(
    (np.add, np.subtract, np.multiply, np.true_divide, np.negative, np.abs, np.maximum, np.minimum,
     np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
)  # fmt: skip
SLOWER: frozenset[str] = frozenset()
# Elements read and written, until native code is looked for, and until it is compiled: at the nanosecond or
# so that NumPy takes for each they are worth the 5 ms, and the 50 ms, that these take.
LOOK, COMPILE = 5_000_000, 50_000_000
LIMIT = 4096  # ops of which is known how they run

_making = fork_safe_lock()  # held while code is made
_known: dict[tuple, Large] = {}
_seen = 0  # elements of all counted calls
on_default_change.append(_known.clear)


def choose(op: Op, types: Types, attrs: Mapping[str, Any], outs: Types, reference: Callable) -> Callable:
    """What runs an op on these types: its reference, or for large ones what changes over to native code."""
    if not types or WHEN == NEVER or op.traits.view or op.traits.host or isinstance(op.lower, NotLowered):
        return reference
    largest = max([t.size for t in (*types, *outs) if t is not None])
    if largest <= LEAST or op.name in SLOWER:
        return reference
    if _is_plain(op, types, attrs, outs) and largest < PLAIN_LEAST:
        return reference
    key = (op, types, repr(attrs))  # repr tells 1 from 1.0 and True
    found = _known.get(key)
    return found or _remember(key, Large(op, types, attrs, len(outs), reference))


def _remember(key: tuple, large: Large) -> Large:
    if len(_known) >= LIMIT:
        _known.clear()
    _known[key] = large
    return large


def update_large(op: Op, numbers: Mapping[str, Any], rows: Iterable[tuple]) -> list[tuple]:
    """Update the large parameters among `rows`, and return the rows of the others.

    rows: for each parameter its gradient, itself and its states (see ir/ops/update.py).
    """
    others, scalars, attrs = [], (), {}
    for row in rows:
        if row[1].size <= LEAST or WHEN == NEVER:
            others.append(row)
            continue
        if not attrs:
            operands, attrs = op.bind(*[[x] for x in (row[1], row[0], *row[2:])], **numbers)
            given = operands[: -len(row)]
            scalars = tuple([None if x is None else np.asarray(float(x)) for x in given])
        arrays = (*scalars, *row)
        types = tuple([x if x is None else type_of(_element_types[x.dtype], x.shape) for x in arrays])
        key = (op, types, repr(attrs))
        found = _known.get(key)
        if found is None:
            into = tuple(range(len(scalars) + 1, len(arrays)))
            found = _remember(key, Large(op, types, attrs, len(into), partial(op.write, **attrs), into))
        found(*arrays)
    return others


_element_types = {d.numpy: d for d in ALL}


def _is_plain(op: Op, types: Types, attrs: Mapping[str, Any], outs: Types) -> bool:
    """Whether NumPy is at its best: a simple loop over arrays of one shape and a dtype that it computes in."""
    same = all(t is not None and t.shape == outs[0].shape and t.dtype is types[0].dtype for t in types)
    return op.reference in PLAIN and same and types[0].dtype.compute is types[0].dtype


class UnfitError(KernelError):
    """Native code can't, or should not, do what the op's reference does."""


@dataclass(frozen=True)
class Layout:
    """How operands lie in memory.

    orders: per operand, the order in which its dims are dense, None where that is theirs (or a copy is made).
    single: per operand, the dims along which one element is repeated, of which the code reads one.  kept: the
    order of the result's dims, where that follows from the operands'.
    """

    orders: tuple[Order | None, ...]
    single: tuple[tuple[int, ...], ...] = ()
    kept: Order | None = None


class Large:
    """An op on large arrays of given types: NumPy's until it has earned its own code, for each layout."""

    __slots__ = ("op", "types", "attrs", "outputs", "reference", "into", "plain", "dense", "layouts")

    def __init__(
        self,
        op: Op,
        types: Types,
        attrs: Mapping[str, Any],
        outputs: int,
        reference: Callable,
        into: tuple[int | None, ...] = (),
    ):
        self.op, self.types, self.attrs, self.outputs = op, types, attrs, outputs
        self.reference, self.into, self.plain = reference, into, op.reference in PLAIN
        self.dense = Counted(self, Layout((None,) * len(types)))
        self.layouts: dict[Layout, Counted] = {}

    def __call__(self, *arrays: np.ndarray | None) -> Any:
        for x in arrays:
            if x is not None and not x.flags.c_contiguous:
                return self.laid_out(arrays)
        return self.dense.run(*arrays)

    def laid_out(self, arrays: Arrays) -> Any:
        """The same where an operand's elements do not lie in the order of its dims."""
        found = None if self.into else self.layout(arrays)
        if found is None:
            return self.reference(*arrays)
        counted = self.layouts.get(found)
        if counted is None:
            if len(self.layouts) >= LIMIT:
                self.layouts.clear()
            counted = self.layouts[found] = Counted(self, found)
        return counted.run(*arrays)

    def layout(self, arrays: Arrays) -> Layout | None:
        """The layout, or None for one that is left to NumPy."""
        single: tuple[tuple[int, ...], ...] = ()
        if self.op.traits.elementwise and any(x is not None and 0 in x.strides for x in arrays):
            single = tuple(map(repeated, arrays))
            shape = np.broadcast_shapes(*[x.shape for x in arrays if x is not None])
            arrays = [x if x is None else once(x, dims) for x, dims in zip(arrays, single, strict=True)]
            if np.broadcast_shapes(*[x.shape for x in arrays if x is not None]) != shape:
                return None
        orders = []
        for x in arrays:
            if x is None or x.flags.c_contiguous:
                orders.append(None)
            elif (order := dense_order(x)) is not None:
                orders.append(order)
            elif self.plain or self.op.traits.movement or list(x.strides) != sorted(x.strides)[::-1]:
                return None
            else:
                orders.append(None)
        if not self.op.traits.elementwise or self.attrs.get("order") == "C":
            return Layout(tuple(orders), single)
        kept = next((order for order in orders if order is not None), None)
        if kept is not None:
            for x in arrays:
                fits = x is None or not x.ndim or x.ndim == len(kept)
                if not fits or (x is not None and x.ndim and not x.transpose(kept).flags.c_contiguous):
                    return None
            orders = [None if x is None or not x.ndim else kept for x in arrays]
        return Layout(tuple(orders), single, kept)


def repeated(x: np.ndarray | None) -> tuple[int, ...]:
    """The dims along which an array has the same element in every place."""
    if x is None:
        return ()
    return tuple(d for d, (n, s) in enumerate(zip(x.shape, x.strides, strict=True)) if s == 0 and n > 1)


def once(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """The array with one place along these dims."""
    return x[tuple([slice(0, 1) if d in dims else slice(None) for d in range(x.ndim)])] if dims else x


def dense_order(x: np.ndarray) -> Order | None:
    """The order of dims in which an array is dense; None where it isn't in any."""
    order = tuple(sorted(range(x.ndim), key=lambda d: -x.strides[d]))
    return order if x.transpose(order).flags.c_contiguous else None


class Counted:
    """An op on one layout; `run` is what a call does now: count, and then no longer.

    The first call on operands in another order than that of their dims shows whether the reference's result
    keeps that order: what a user may do with it (x.view(-1)) must not change with who computes it.
    """

    __slots__ = ("large", "layout", "run", "size", "seen", "draft")

    def __init__(self, large: Large, layout: Layout):
        self.large, self.layout = large, layout
        self.size = sum(t.size for t in large.types if t is not None)
        self.seen, self.draft = 0, None
        self.run: Callable = self.count if layout.kept is None else self.observe

    def observe(self, *arrays: np.ndarray | None) -> Any:
        """Run the reference, and see in which order it leaves its results."""
        found = self.large.reference(*arrays)
        results = found if type(found) is tuple else (found,)
        if all([y.flags.c_contiguous for y in results]):
            self.layout = replace(self.layout, kept=None)
        elif not all([y.transpose(self.layout.kept).flags.c_contiguous for y in results]):
            self.run = self.large.reference
            return found
        self.run = self.count
        return found

    def count(self, *arrays: np.ndarray | None) -> Any:
        """Run the reference, unless this call is the one that earns native code."""
        global _seen
        self.seen += self.size
        _seen += self.size
        if WHEN == AT_ONCE or (self.seen >= LOOK and _seen >= COMPILE):
            with _making:
                if self.run == self.count:
                    self.look()
            if self.run != self.count:
                return self.run(*arrays)
        return self.large.reference(*arrays)

    def look(self) -> None:
        """Change over to code that is compiled already, or has been waited for long enough."""
        try:
            if self.draft is None:
                self.draft = self.drafted()
            if WHEN == AT_ONCE or self.seen >= COMPILE or self.draft.is_cached:
                self.run, self.draft = self.adapted(self.draft.executable()), None
        except Exception as error:  # whatever it is, NumPy can do it
            self.run, self.draft = self.large.reference, None
            if not isinstance(error, UnfitError):
                _warn(self.large.op, error)

    def drafted(self) -> Any:
        """The op's code, to be compiled.  The first time, it loads the compiler: 0.1 s."""
        large, layout = self.large, self.layout
        types = list(large.types)
        for at, dims in enumerate(layout.single):
            t = types[at]
            if t is not None and dims:
                types[at] = t.with_shape(tuple(1 if d in dims else n for d, n in enumerate(t.shape)))
        orders = layout.orders
        if layout.kept is not None:  # the same on the dims in another order: an elementwise op has no other
            types = [
                t if order is None else t.with_shape(tuple(t.shape[d] for d in order))
                for t, order in zip(types, orders, strict=True)
            ]
            orders = (None,) * len(types)
        draft = load(f"{__package__}.compile_op").Draft
        return draft(large.op, types, large.attrs, orders, large.into)

    def adapted(self, execute: Callable[..., tuple]) -> Callable:
        """The code as a function of the operands, as the reference is."""
        reference, layout, several = self.large.reference, self.layout, self.large.outputs > 1
        given = [at for at, t in enumerate(self.large.types) if t is not None]
        everything = len(given) == len(self.large.types)
        orders, single = layout.orders, layout.single
        back = layout.kept and tuple(sorted(range(len(layout.kept)), key=layout.kept.__getitem__))

        def direct(*arrays):
            try:
                return execute(*arrays)[0]
            except LaminaError:  # an index out of range: the reference says which
                return reference(*arrays)

        def general(*arrays):
            operands = []
            for at in given:
                x = arrays[at]
                if single:
                    x = once(x, single[at])
                operands.append(x if orders[at] is None else x.transpose(orders[at]))
            try:
                results = execute(*operands)
            except LaminaError:
                return reference(*arrays)
            if back is not None:
                results = tuple([y.transpose(back) for y in results])
            return results if several else results[0]

        plain = everything and not several and not single and not any(orders)
        return direct if plain else general


_warned: set[str] = set()


def _warn(op: Op, error: Exception) -> None:
    if op.name not in _warned:
        _warned.add(op.name)
        warnings.warn(
            f"{op.name} on large arrays could not be compiled and is left to NumPy, which is slower: "
            f"{type(error).__name__}: {error}\nPlease report this, with what python -m lamina info prints; "
            "LAMINA_NATIVE=0 leaves everything to NumPy and says nothing",
            RuntimeWarning,
            stacklevel=2,
        )
