"""Which ops, gradients and updates run as native code in eager: those that come often enough, on large arrays
or where NumPy would make several calls.

NumPy runs everything at first.  When something has been called on arrays of the same types for so long that
the wait is earned, it is looked for among what earlier processes compiled, and after longer still it is
compiled (compile_op.py); from then on all its calls are native.  Both waits are counted in elements, not in
seconds, so that a program that is run again changes over at the same calls.  $LAMINA_NATIVE says otherwise: 0
leaves everything to NumPy, 1 compiles what is large at the first call and leaves the rest to NumPy, so that
no call rounds otherwise than the next.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

import numpy as np

from ..ir.dtypes import ALL, on_default_change
from ..ir.errors import KernelError, LaminaError
from ..ir.lazy import load
from ..ir.locks import fork_safe_lock
from ..ir.lowering import NotLowered
from ..ir.op import Op
from ..ir.types import SMALL, Type, type_of
from . import asked_for
from .interrupts import let_through
from .operand_layouts import Arrays, Layout, layout_of, once

if TYPE_CHECKING:
    from .compile_kind import KindDraft
    from .plan import Plan

Types = tuple[Type | None, ...]

NEVER, EARNED, AT_ONCE = range(3)
WHEN = {"0": NEVER, "1": AT_ONCE}.get(os.environ.get("LAMINA_NATIVE", ""), EARNED)
LEAST = SMALL  # elements of the largest array; beyond it native code wins, but for the following
# NumPy's loops that run at the speed of memory: one thread can't beat them, two do from here on.
PLAIN_LEAST = 1 << 18
PLAIN = frozenset(
    (np.add, np.subtract, np.multiply, np.true_divide, np.negative, np.abs, np.maximum, np.minimum,
     np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
)  # fmt: skip
# Ops whose native code takes longer than NumPy on large arrays (1 Mi elements), for want of vectors: they
# scan, or join stretches of different lengths.
SLOWER = frozenset(("argmax", "argmin", "cat", "cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"))
# Elements read, until native code is looked for, and until it is compiled: at the nanosecond or two that
# NumPy takes for each they are worth the 5 ms, and the 50 ms, that these take.
LOOK, COMPILE = 5_000_000, 50_000_000
# As how many an element of these counts: they have no function of NumPy's, or a slow one (its time over two
# nanoseconds, EPYC "Zen 4" by AVX2, 2026-11-30).
DEAR = {
    "erfinv": 175, "lgamma": 108, "digamma": 33, "erfc": 21, "softplus": 9,
    "binary_cross_entropy_elements": 8, "floor_divide": 7, "mish": 7, "atan2": 6, "random_dropout": 6,
    "trigamma": 6, "expm1": 5, "log1p": 5, "logsigmoid": 5, "special_xlog1py": 5, "gelu": 4, "erf": 3,
    "log10": 3, "max_pool1d": 8, "max_pool2d": 8, "max_pool3d": 8, "avg_pool1d": 4, "avg_pool2d": 4,
    "avg_pool3d": 4,
}  # fmt: skip
# Small arrays: NumPy's time is that of its calls, half a microsecond each, and native code takes one call.
CALLS = 1_000  # of a small kind, until it is thought of
CALL = 1_000  # elements that each call of NumPy's counts for
WORTH_CODE = 2  # calls of NumPy for an op, from which on it is worth code, which is entered in 0.2 us
# Products are one call, of BLAS, which takes 0.4 us and more; native code takes half up to this many elements
# of the largest array (4 x 4 … 64 x 64: 0.2 … 2.5 us), and their gradients are several.  Not so for long sums
# beside a few columns, too few for a vector: 2 x 2048 x 2 takes twice BLAS's time.
PRODUCTS, SMALL_PRODUCT = frozenset(("matmul", "linear")), 4096
LONG_SUM, FEW_COLUMNS = 256, 8
LIMIT = 4096  # functions that are remembered
FEW = 8  # shapes of a kind that had better each have code of their own, where that is much quicker
NEVER_DUE = 1 << 62  # elements

_making = fork_safe_lock()  # held while code is made
_known: dict[tuple, Large] = {}
_kinds: dict[tuple, Kind] = {}
_seen = 0  # elements of all counted calls
changes = 0  # how often something changed over, after which a call may round otherwise than the last
_element_types = {d.numpy: d for d in ALL}


def forget() -> None:
    """Forget what has code and what was counted."""
    _known.clear()
    _kinds.clear()


on_default_change.append(forget)


class UnfitError(KernelError):
    """Native code can't do it as it should be done, or would gain nothing."""


# ---- who gets native code
def choose(plan: Plan, reference: Callable, key: tuple | None = None) -> Callable:
    """What runs a plan: its op's reference, or what changes over to native code and sets `plan.kernel`.

    key: of its kind, if that is known.
    """
    op, types, outs = plan.op, plan.types, plan.outs
    largest = _largest(op, types, outs)
    if largest <= LEAST:
        if not largest or not _counts(op):
            return reference
        return _small(plan, reference, largest, _kind(key or kind_key(op, plan.attrs, types)))
    if op.name in SLOWER or (_is_plain(op, types, outs) and outs[0].size < PLAIN_LEAST):
        return reference
    if WHEN == EARNED and (opened := _kind(key or kind_key(op, plan.attrs, types)).opened) is not None:
        return _at_once(plan, reference, opened) or _large(plan, reference)
    return _large(plan, reference)


class Chooser:
    """`choose` for plans of one kind, which is given the elements of a plan's largest array, too.

    key: of that kind; None where attributes hang on sizes, so that each size is a kind.
    """

    __slots__ = ("key", "kind", "never", "counts", "least")

    def __init__(self, op: Op, types: Types, outs: Types, key: tuple | None = None):
        untraced = any(t is not None and not t.dtype.traced for t in (*types, *outs))
        self.key, self.kind = key, None if key is None else _kind(key)
        self.never, self.counts = _has_no_kernel(op) or WHEN == NEVER or untraced, _counts(op)
        self.least = LEAST // _weight(op)

    def __call__(self, plan: Plan, reference: Callable, largest: int) -> Callable:
        if self.never:
            return reference
        if largest > self.least:
            return choose(plan, reference, self.key)
        if not self.counts or not largest:
            return reference
        return _small(plan, reference, largest, self.kind or Kind())

    def needs_no_plan(self, largest: int) -> bool:
        """Whether NumPy runs a call on a shape that is new; it counts as a call of its kind, as others do."""
        kind = self.kind
        if self.never or largest > self.least or not self.counts or kind is None:
            return self.never or largest <= self.least
        if kind.calls is None:
            kind.left -= 1  # beyond the last one a plan decides
            return kind.left >= 0
        return kind.calls < WORTH_CODE


def _counts(op: Op) -> bool:
    """Whether calls on small arrays may earn it native code."""
    return WHEN == EARNED and type(op.reference) is not np.ufunc


def _small(plan: Plan, reference: Callable, largest: int, kind: Kind) -> Callable:
    op = plan.op
    if op.name in PRODUCTS and (largest > SMALL_PRODUCT or _is_thin(plan.types, plan.outs)):
        return reference
    return Small(plan, reference, kind) if kind.calls is None else _decided(plan, reference, kind)


def choose_backward(op: Op, types: Types, attrs: Mapping[str, Any], outs: Types) -> Gradients | None:
    """What computes an op's gradients at once, where that may pay."""
    if op.name in SLOWER or _largest(op, types, outs) <= LEAST:
        return None
    return Gradients(op, types, attrs, outs)


def _has_no_kernel(op: Op) -> bool:
    """Whether an op has no native code, whatever it is run on."""
    return op.traits.view or op.traits.host or isinstance(op.lower, NotLowered)


def _weight(op: Op) -> int:
    """How many elements one of this op counts as."""
    return DEAR.get(op.name, 1) if WHEN == EARNED else 1


def _largest(op: Op, types: Types, outs: Types) -> int:
    """The elements of the largest array, as they count; 0 for what is never native."""
    if not types or WHEN == NEVER or _has_no_kernel(op):
        return 0
    largest: Any = 0
    last = None
    for t in (*types, *outs):
        if t is not None and t is not last:  # mostly they are one
            if not t.dtype.traced:  # kernels are of real numbers
                return 0
            size = prod(t.shape)
            if size > largest:
                largest = size
            last = t
    return largest * _weight(op)


def _is_thin(types: Types, outs: Types) -> bool:
    """Whether a product has long sums and a few columns."""
    first, out = types[0], outs[0]
    assert first is not None and out is not None
    return bool(out.shape) and 1 < out.shape[-1] < FEW_COLUMNS and first.shape[-1] > LONG_SUM


def _large_of(
    op: Op, types: Types, attrs: Mapping[str, Any], outputs: int, reference: Callable, calls: int
) -> Large:
    key = (op, types, repr(attrs))  # repr tells 1 from 1.0 and True
    large = _known.get(key)
    if large is None:
        large = _remember(key, Large(Forward(op, attrs), types, outputs, reference, calls=calls))
    return large


def _large(plan: Plan, reference: Callable, calls: int = 0) -> Callable:
    large = _large_of(plan.op, plan.types, plan.attrs, len(plan.outs), reference, calls)
    if large.direct is None:
        large.plans.add(plan)
    return large.direct or large


def _decided(plan: Plan, reference: Callable, kind: Kind) -> Callable:
    """What runs a plan on small arrays, of whose kind is known how many calls of NumPy's one is worth."""
    plan.calls = calls = kind.calls or 0
    if calls < WORTH_CODE:
        return reference
    opened = kind.opened
    found = None if opened is None else _at_once(plan, reference, opened, calls)
    return found or _large(plan, reference, calls)


def _at_once(plan: Plan, reference: Callable, opened: KindDraft, calls: int = 0) -> Callable | None:
    """The code for all sizes as what runs a plan, if it serves its sizes."""
    op, types, attrs, outputs = plan.op, plan.types, plan.attrs, len(plan.outs)
    large: Large | None = None

    def otherwise(*arrays: np.ndarray | None) -> Any:
        nonlocal large
        if large is None:
            large = _large_of(op, types, attrs, outputs, reference, calls)
        return large(*arrays)

    return opened.direct(types, tuple([t is not None for t in types]), outputs > 1, otherwise)


def _is_plain(op: Op, types: Types, outs: Types) -> bool:
    """Whether NumPy is at its best: a loop over arrays of one shape, in a dtype that it computes in."""
    same = all(t is not None and t.shape == outs[0].shape and t.dtype is types[0].dtype for t in types)
    return op.reference in PLAIN and same and types[0].dtype.compute is types[0].dtype


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
            written = tuple(range(len(scalars) + 1, len(arrays)))
            assert op.write is not None, f"{op.name} is no update"
            reference = partial(op.write, **attrs)
            found = _remember(key, Large(Forward(op, attrs), types, len(written), reference, written))
        found(*arrays)
    return others


# ---- what is computed
@dataclass(frozen=True)
class Forward:
    """An op's outputs, hidden ones too, from its operands."""

    op: Op
    attrs: Mapping[str, Any]

    def operands(self, types: Types) -> Types:
        return types

    def kind(self, types: Types) -> tuple:
        """What it has in common with others that differ in sizes alone."""
        return kind_key(self.op, self.attrs, types)


@dataclass(frozen=True)
class Backward:
    """An op's gradients from the cotangents that there are, then from what was saved.

    types: of the operands, then of the outputs.  outputs: which of these have a cotangent.  saved: for each
    entry of `op.saves` whether there is one, or that for each array of a tuple.  needs: which operands want
    a gradient.
    """

    op: Op
    attrs: Mapping[str, Any]
    types: Types
    outputs: tuple[bool, ...]
    saved: tuple[bool | tuple[bool, ...], ...]
    needs: tuple[bool, ...]

    def operands(self, types: Types) -> Types:
        """The op's operands.  types: of what it is given."""
        return self.types[: len(self.types) - len(self.outputs)]

    def kind(self, types: Types) -> tuple:
        """What it has in common with others that differ in sizes alone."""
        key = kind_key(self.op, self.attrs, self.operands(types))
        return (key, self.outputs, self.saved, self.needs)

    @property
    def given(self) -> Types:
        """The types of what it is given: the cotangents that there are, and what was saved."""
        op, count = self.op, len(self.types) - len(self.outputs)
        found = [t for t, there in zip(self.types[count:], self.outputs, strict=True) if there]
        names = (*op.operands, *op.all_outputs)
        for name, there in zip(op.saves, self.saved, strict=True):
            at = names.index(name)
            if at >= len(op.operands):  # an output stands behind however many operands there are
                at += count - len(op.operands)
            rest = there if type(there) is tuple else (there,)
            found += [self.types[at + k] for k, one in enumerate(rest) if one]
        return tuple(found)


def kind_key(op: Op, attrs: Mapping[str, Any], types: Types) -> tuple:
    """What calls of an op have in common that differ in sizes alone; repr tells 1 from 1.0 and True."""
    return (op, repr(attrs) if attrs else "", *[t and t.form for t in types])


class Gradients:
    """The gradients of an op on large arrays of given types, as one function for each pattern of needs."""

    __slots__ = ("op", "types", "attrs", "outs", "calls", "patterns")

    def __init__(self, op: Op, types: Types, attrs: Mapping[str, Any], outs: Types, calls: int = 0):
        self.op, self.types, self.attrs, self.outs, self.calls = op, types, attrs, outs, calls
        self.patterns: dict[tuple, Large] = {}

    def __call__(self, saved: Sequence[Any], cotangents: Sequence[Any], needs: Sequence[bool]) -> Any:
        """A gradient for each operand that needs one, in order; None while that is left to the rules.

        saved: arrays, tuples of them and None.  cotangents: an array or None for each output.
        """
        saved = saved or self.nothing
        outputs = tuple([g is not None for g in cotangents])
        entries = tuple(
            [tuple([y is not None for y in x]) if type(x) is tuple else x is not None for x in saved]
        )
        key = (outputs, entries, tuple(needs))
        found = self.patterns.get(key)
        if found is None:
            found = self.patterns[key] = self.of(*key)
        arrays = [g for g in cotangents if g is not None]
        for x in saved:
            arrays += [y for y in x if y is not None] if type(x) is tuple else [x] if x is not None else []
        return (found.direct or found)(*arrays)

    @property
    def nothing(self) -> tuple[None, ...]:
        """What is saved where the rules that are needed look at nothing."""
        return (None,) * len(self.op.saves)

    def of(self, outputs: tuple, saved: tuple, needs: tuple) -> Large:
        """The function for one pattern: which cotangents and saved values there are, and what is needed."""
        what = Backward(self.op, self.attrs, (*self.types, *self.outs), outputs, saved, needs)
        return Large(what, what.given, sum(needs), lambda *arrays: None, calls=self.calls)


# ---- kinds
class Kind:
    """What arrays of all sizes share that an op, or its gradients, are computed of in one layout.

    left: small calls until native code is thought of.  calls: of NumPy's that one is worth, once that is
    asked.  seen: elements of all counted calls, of `shapes` shapes.  Code for all sizes is looked for once
    they are `due`, of at least `needed` shapes.  draft: of that code; opened: the same once it is code.
    """

    __slots__ = ("left", "calls", "seen", "shapes", "due", "needed", "draft", "opened")

    def __init__(self) -> None:
        self.left, self.calls = CALLS, None
        self.seen, self.shapes, self.due, self.needed = 0, 0, LOOK, 2
        self.draft: KindDraft | None = None
        self.opened: KindDraft | None = None

    @property
    def is_due(self) -> bool:
        return self.seen >= self.due and self.shapes >= self.needed

    def look(self, large: Large, layout: Layout) -> None:
        """Make code for all sizes, where it is compiled already or has been waited for long enough.

        Not under deterministic algorithms: long sums are not cut in parts by it, and round otherwise.
        """
        if self.opened is not None or asked_for.is_deterministic():
            return
        self.due = COMPILE
        if self.draft is None:
            try:
                make = load(f"{__package__}.compile_kind").KindDraft
                self.draft = draft = make(large.what, large.types, layout)
            except UnfitError:
                self.due = NEVER_DUE
                return
            if draft.prefers_own:
                self.needed = FEW
        if self.shapes >= self.needed and (self.seen >= COMPILE or self.draft.is_cached):
            self.draft.load()
            self.opened, self.due = self.draft, 0


NO_KIND = Kind()  # of what has code for its own sizes alone
NO_KIND.due = NEVER_DUE


def kind_of(what: Forward | Backward, types: Types, layout: Layout | None = None) -> Kind:
    """The kind that it is of.  layout: None where all operands are dense."""
    return _kind(what.kind(types), layout) if WHEN == EARNED else NO_KIND


def _kind(what: tuple, layout: Layout | None = None) -> Kind:
    key = (what, layout)
    found = _kinds.get(key)
    if found is None:
        if len(_kinds) >= LIMIT:
            _kinds.clear()
        found = _kinds[key] = Kind()
    return found


# ---- running
class Small:
    """A plan's kernel on small arrays: its reference, until its kind was called so often that native code is
    thought of.  Most plans are called a few times, and cost no more than this.
    """

    __slots__ = ("plan", "reference", "kind")

    def __init__(self, plan: Plan, reference: Callable, kind: Kind):
        self.plan, self.reference, self.kind = ref(plan), reference, kind

    def __call__(self, *arrays: np.ndarray | None) -> Any:
        self.kind.left -= 1
        if self.kind.left >= 0:
            return self.reference(*arrays)
        plan = self.plan()
        if plan is None:
            return self.reference(*arrays)
        if plan.kernel is self:  # not so for who kept this one
            self.decide(plan)
        return (self.reference if plan.kernel is self else plan.kernel)(*arrays)

    def decide(self, plan: Plan) -> None:
        """Leave the plan to NumPy for good, or to what compiles it when that is earned.

        The compiler is not loaded for a process that makes few calls in all.
        """
        global _seen
        _seen += CALLS * CALL
        kind = self.kind
        if _seen < COMPILE:
            kind.left = CALLS
            return
        if kind.calls is None:
            kind.calls = load(f"{__package__}.compile_op").numpy_calls(plan.op, plan.types, plan.attrs)
        plan.kernel = _decided(plan, self.reference, kind)
        if plan.flows is not None:
            earn_gradients(plan)


def earn_gradients(plan: Plan) -> None:
    """Have a small plan's gradients computed at once by native code, when that is earned and pays.

    They take more calls than the op itself.
    """
    if plan.calls < WORTH_CODE - 1 or True not in plan.floats:
        return
    if (plan.quick is not None or plan.raw_vjp is not None) and not any(s[0] == "*" for s in plan.op.saves):
        plan.raw_vjp = SmallGradients(plan)
        plan.quick = None
    elif plan.small and plan.gradients is None and plan.op.differentiable:  # several outputs, saved tuples
        plan.gradients = Gradients(plan.op, plan.types, plan.attrs, plan.outs, 2 * plan.calls)


class SmallGradients:
    """A plan's gradients on small arrays, in the place of its `raw_vjp`: NumPy's, until there is code."""

    __slots__ = ("plan", "cotangents", "rules", "vjp", "gradients", "patterns")

    def __init__(self, plan: Plan):
        self.plan = ref(plan)
        self.cotangents = (True, *map(bool, plan.unused))
        self.rules, self.vjp = plan.quick, plan.raw_vjp
        self.gradients = Gradients(plan.op, plan.types, plan.attrs, plan.outs, 2 * plan.calls)
        self.patterns: dict[tuple[bool, ...], Large] = {}

    def __call__(self, saved: tuple | None, cotangents: tuple, attrs: Mapping[str, Any], needs: tuple) -> Any:
        saved = saved or self.gradients.nothing
        arrays = [cotangents[0], *[x for x in saved if x is not None]]
        large = self.patterns.get(needs)
        if large is None:
            there = tuple([x is not None for x in saved])
            large = self.patterns[needs] = self.gradients.of(self.cotangents, there, needs)
        found = (large.direct or large)(*arrays)
        if found is not None:
            plan = self.plan()
            if plan is not None and large.direct is not None:
                if plan.native is None:
                    plan.native = {}
                if False not in needs and len(arrays) == 1 + len(saved):
                    plan.whole = large.direct
                plan.native[tuple([not need for need in needs])] = _of_saved(large.direct, saved)
            if False not in needs:
                return found
            made = iter(found)
            return [next(made) if need else None for need in needs]
        if self.rules is not None:
            g = cotangents[0]
            return [rule(g, saved) if need else None for rule, need in zip(self.rules, needs, strict=True)]
        assert self.vjp is not None
        return self.vjp(saved, cotangents, attrs, needs)


def _of_saved(direct: Callable, saved: tuple) -> Callable[[np.ndarray, tuple], tuple | None]:
    """Native gradients as a function of the cotangent and all that was saved, of which some is None."""
    there = [at for at, x in enumerate(saved) if x is not None]
    if len(there) == len(saved):
        return lambda g, saved: direct(g, *saved)
    return lambda g, saved: direct(g, *[saved[at] for at in there])


class Large:
    """A function of arrays of given types: its reference, until it has earned code for their layout.

    calls: how many of NumPy's its reference makes, about.  written: the operands that the results are written
    over, where there are such.  direct: what does it for arrays that need no looking at, once there is code.
    plans: whose kernel that becomes then.
    """

    __slots__ = (
        "what", "types", "outputs", "reference", "written", "keeps", "copies", "dense", "layouts", "strides",
        "direct", "plans", "calls", "several",
    )  # fmt: skip

    def __init__(
        self,
        what: Forward | Backward,
        types: Types,
        outputs: int,
        reference: Callable,
        written: tuple[int, ...] = (),
        calls: int = 0,
    ):
        self.what, self.types, self.outputs, self.calls = what, types, outputs, calls
        self.reference, self.written = reference, written
        op, forward = what.op, isinstance(what, Forward)
        self.keeps = forward and op.traits.elementwise and what.attrs.get("order") != "C"
        self.copies = not written and op.reference not in PLAIN and not op.traits.movement
        self.layouts: dict[Layout, Counted] = {}
        self.strides: dict[tuple, Callable] = {}  # what runs arrays with them
        self.several = outputs > 1 or not forward
        self.direct: Callable | None = None
        self.plans: WeakSet[Plan] = WeakSet()
        kind = NO_KIND if written else kind_of(what, types)
        self.dense = Counted(self, Layout((None,) * len(types), ((),) * len(types)), kind)

    def __call__(self, *arrays: np.ndarray | None) -> Any:
        for x in arrays:
            if x is not None and not x.flags.c_contiguous:
                return self.laid_out(arrays)
        return self.dense.run(*arrays)

    def laid_out(self, arrays: Arrays) -> Any:
        """The same where an operand's elements do not lie in the order of its dims."""
        strides = tuple([None if x is None else x.strides for x in arrays])
        run = self.strides.get(strides)
        if run is None:
            if len(self.strides) >= LIMIT:
                self.strides.clear()
            run = self.strides[strides] = self.run_of(arrays)
        return run(*arrays)

    def run_of(self, arrays: Arrays) -> Callable:
        """What runs arrays in this layout."""
        always = self.what.op.inner is not None  # much is done with each element
        found = None if self.written else layout_of(arrays, self.keeps, self.copies, always)
        if found is None:
            return self.reference
        counted = self.layouts.get(found)
        if counted is None:
            if len(self.layouts) >= LIMIT:
                self.layouts.clear()
            counted = self.layouts[found] = Counted(self, found, kind_of(self.what, self.types, found))
        return lambda *arrays: counted.run(*arrays)

    def changes_over(self, direct: Callable | None) -> None:
        """Let that be what runs its plans on dense arrays, if it is anything."""
        self.direct = direct
        if direct is not None:
            for plan in self.plans:
                plan.kernel = direct
        self.plans.clear()


class Counted:
    """A function on one layout; `run` is what a call does now: count, and then no longer.

    The first call on operands in another order shows in which one the reference leaves its results: what a
    user can do with them (x.view(-1)) must not change with who computes them.
    """

    __slots__ = ("large", "layout", "kind", "run", "size", "seen", "due", "draft")

    def __init__(self, large: Large, layout: Layout, kind: Kind):
        self.large, self.layout, self.kind = large, layout, kind
        what = large.what
        elements = sum([t.size for t in large.types if t is not None])
        self.size = max(CALL * large.calls, elements * _weight(what.op))
        if what.op.inner is not None:
            self.size += what.op.inner(what.operands(large.types))
        self.seen, self.due = 0, LOOK  # elements, and from how many on something is to be done
        self.draft: Any = None
        self.run: Callable = self.observe if large.keeps and any(layout.orders) else self.count
        kind.shapes += 1
        if kind.opened is not None and self.run == self.count:
            self.open()

    def observe(self, *arrays: np.ndarray | None) -> Any:
        """Run the reference, and see in which order it leaves its results."""
        found = self.large.reference(*arrays)
        results, kept = found if type(found) is tuple else (found,), self.layout.kept
        self.run = self.count
        if all(y.flags.c_contiguous for y in results):
            self.layout = replace(self.layout, kept=None)
        elif kept is None or not all(y.transpose(kept).flags.c_contiguous for y in results):
            self.run = self.large.reference
        return found

    def count(self, *arrays: np.ndarray | None) -> Any:
        """Run the reference, unless this call is the one that earns native code."""
        global _seen
        self.seen += self.size
        self.kind.seen += self.size
        _seen += self.size
        is_due = _seen >= COMPILE and (self.seen >= self.due or self.kind.is_due)
        if is_due or WHEN == AT_ONCE:  # the first to look loads the compiler
            if _making.acquire(False):  # else another thread is at it
                try:
                    if self.run == self.count:
                        self.look()
                finally:
                    _making.release()
            if self.run != self.count:
                return self.run(*arrays)
        return self.large.reference(*arrays)

    def look(self) -> None:
        """Change over to code that is compiled already, or has been waited for long enough."""
        global changes
        large = self.large
        try:
            if self.kind.is_due:
                self.kind.look(large, self.layout)
                if self.kind.opened is not None and self.open():
                    changes += 1
                    return
            if self.seen < self.due and WHEN != AT_ONCE:
                return
            self.due = COMPILE
            if self.draft is None:
                compile_op = load(f"{__package__}.compile_op")
                self.draft = compile_op.Draft(large.what, large.types, self.layout, large.written)
                if isinstance(large.what, Forward):  # by more than its elements, now that a guess is cheap
                    calls = compile_op.numpy_calls(large.what.op, large.types, large.what.attrs)
                    self.size = max(self.size, CALL * calls)
            if WHEN == AT_ONCE or self.seen >= COMPILE or self.draft.is_cached:
                execute = self.draft.executable()
                self.run, self.draft = self.adapted(execute), None
                changes += 1
                if self is large.dense and type(execute) is not FunctionType and not large.written:
                    given = [t is not None for t in large.types]
                    large.changes_over(execute.direct(large, given, large.several))
        except Exception as error:  # whatever it is, NumPy can do it
            let_through(error)
            self.run, self.draft = large.reference, None
            if not isinstance(error, UnfitError):
                warn(large.what.op, error)

    def open(self) -> bool:
        """Change over to the code that its kind has for all sizes; whether that serves these."""
        large, draft = self.large, self.kind.opened
        assert draft is not None
        sizes = draft.sizes_of(large.what.operands(large.types))
        code = None if sizes is None or self.layout != draft.layout else draft.opened(sizes)
        if code is None:
            self.kind = NO_KIND
            return False
        given = [t is not None for t in large.types]
        slowly = draft.slowly(sizes)
        if self.layout.is_dense:
            self.run = lambda *arrays: self.adapted(slowly)(*arrays)  # as seldom as that is wanted
            large.changes_over(code.at(sizes, tuple(given), large.several, large))
        else:
            self.run = self.adapted(code.at(sizes, (True,) * sum(given), True, slowly) or slowly)
        return True

    def adapted(self, execute: Callable[..., tuple]) -> Callable:
        """Native code as a function of the operands, as the reference is."""
        reference, layout, types = self.large.reference, self.layout, self.large.types
        several = self.large.several
        given = [at for at, t in enumerate(types) if t is not None]
        kept = layout.kept
        back = kept and tuple(sorted(range(len(kept)), key=kept.__getitem__))

        def first(*arrays):
            try:
                return execute(*arrays)[0]
            except LaminaError:  # an index out of range: the reference says which
                return reference(*arrays)

        def all_of(*arrays):
            try:
                return execute(*arrays)
            except LaminaError:
                return reference(*arrays)

        def general(*arrays):
            operands = []
            for at in given:
                x = once(arrays[at], layout.single[at])
                order = layout.orders[at]
                operands.append(x if order is None else x.transpose(order))
            try:
                results = execute(*operands)
            except LaminaError:
                return reference(*arrays)
            if back is not None:
                results = tuple([y.transpose(back) for y in results])
            return results if several else results[0]

        if not layout.is_dense or len(given) < len(types):
            return general
        return all_of if several else first


_warned: set[str] = set()


def warn(op: Op, error: Exception) -> None:
    if op.name not in _warned:
        _warned.add(op.name)
        warnings.warn(
            f"{op.name} on large arrays could not be compiled and is left to NumPy, which is slower: "
            f"{type(error).__name__}: {error}\nPlease report this, with what python -m lamina info prints; "
            "LAMINA_NATIVE=0 leaves everything to NumPy and says nothing",
            RuntimeWarning,
            stacklevel=2,
        )
