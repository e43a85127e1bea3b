"""A plan: everything about running one op on operands of given types that need not be worked out again.

Plans are memoised per op by the operands' interned types and the attrs; the tables are bounded and only ever
a memo.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..ir.dtypes import on_default_change
from ..ir.errors import LaminaError
from ..ir.execute import executor, with_attrs
from ..ir.op import REGISTRY, Op, Rule
from ..ir.shapes import fitting
from ..ir.stretch import stretched
from ..ir.types import CPU, Device, Type, type_of
from . import on_device
from .below import WRAPPED
from .below import kernel as kernel_below
from .kernels import Gradients, choose, choose_backward, earn_gradients
from .meta import META, on_cpu, place_of, placed_at
from .meta import kernel as kernel_of_nothing

ndarray, asarray = np.ndarray, np.asarray
T = TypeVar("T")
OPERAND, OUTPUT, REST, NOTHING = range(4)  # what an entry of a recipe saves; REST: all of a variadic operand
LIMIT = 4096  # entries of one op's memo; a program that makes more kinds than this starts over


class Plan:
    """How to run `op` with `attrs` on operands of `types`, and how to differentiate it.

    kernel: arrays -> array (or a tuple of arrays, hidden outputs included).  out: the first output's type.
    small: gradients may be taken on plain arrays.  rules: per operand f(cotangent, saved), or None, where the
    record has the shorthand.  sources: for each of `op.saves`, (is it an operand, its position).  floats: per
    operand, whether a gradient can flow to it; flows: to all of them.  recipes: per pattern of needs, what to
    save.  vjp: the general form, on tensors.  quick: the rules where backward may take the short way, on
    plain arrays; what they return fits the operands.  raw_vjp: the same for the general form, not fitted;
    unused: the cotangents of all outputs but the first.  simple: there is one visible output, no view.
    link: what a view made by this plan is, as a chain of one.  gradients: what may compute all of them at
    once, on arrays that are not small.  writer: f(first array, others) that writes the result over the first,
    which it fits; None until one was needed.  calls: of NumPy's that the kernel is worth, once that is asked.
    note: makes the node of a call (history.py); None until one was needed.  native: where there is code for
    all gradients at once (kernels.py), by which operands want none, f(cotangent, saved) -> new arrays of the
    types of those that do, or None.  whole: f(cotangent, *saved), the same where all do and all was saved.

    What is about gradients is worked out when an operand first wants one, as most plans that run once never
    do: until then `flows` is None and the rest of it is not set.  (No `__getattr__` does it: a class that has
    one makes Python read every attribute the slow way.)
    """

    __slots__ = (
        "op", "attrs", "types", "outs", "out", "kernel", "small", "rules", "sources", "floats", "flows",
        "recipes", "link", "quick", "simple", "raw_vjp", "vjp", "unused", "gradients", "writer",
        "calls", "note", "native", "whole", "__weakref__",
    )  # fmt: skip

    foreign = False  # a custom function's stand-in for a plan says True: its backward is the user's code
    op: Op
    attrs: dict[str, Any]
    types: tuple[Type | None, ...]
    outs: tuple[Type, ...]
    out: Type
    kernel: Callable
    small: bool
    rules: tuple[Any, ...] | None
    sources: tuple[tuple[bool, int], ...]
    floats: tuple[bool, ...]
    flows: bool | None
    recipes: dict[tuple[bool, ...], tuple | bool]
    link: tuple
    quick: tuple[Any, ...] | None
    simple: bool
    raw_vjp: Callable | None
    vjp: Callable | None
    unused: tuple[None, ...]
    gradients: Gradients | None
    writer: Callable | None
    calls: int
    note: Callable | None
    native: dict[tuple[bool, ...], Callable] | None
    whole: Callable[..., tuple] | None

    def __init__(self, op: Op, types: tuple[Type | None, ...], attrs: dict[str, Any]):
        self.op, self.types, self.attrs = op, types, attrs
        place = CPU
        if any([t is not None and t.device is not CPU for t in types]):
            wrapped = any([t is not None and t.device is WRAPPED for t in types])
            place = WRAPPED if wrapped else place_of(op, types, attrs)
        elif isinstance(attrs.get("device"), Device):
            place = placed_at(attrs["device"])
        here, plain = types, attrs
        if place is not CPU:
            here = tuple(map(on_cpu, types))
            plain = attrs | {"device": CPU} if place.type == "cuda" and "device" in attrs else attrs
        reference, self.outs = executor(op, here, plain)
        if place is not CPU:
            self.outs = tuple([type_of(t.dtype, t.shape, place) for t in self.outs])
        self.out, self.calls = self.outs[0], 0
        if place is WRAPPED:
            self.kernel = kernel_below(op, types, attrs)
        elif place is CPU or place.type == "cpu":
            self.kernel = choose(self, reference)
            if any([t is not None and t.device is not CPU for t in types]):  # a copy from a GPU
                self.kernel = on_device.eager().host_kernel(reference)
        elif place == META:
            self.kernel = kernel_of_nothing(op, self.outs)
        else:
            self.kernel = on_device.eager().kernel(op, here, plain, self.outs, reference)
        traits = op.traits
        self.simple = len(self.outs) - len(op.hidden) == 1 and not traits.view and not traits.host
        self.recipes, self.flows, self.writer = {}, None, None
        self.note = self.native = self.whole = None
        if traits.view:
            self.link = ((op.name, tuple(attrs.items())),)

    def plan_gradients(self) -> bool:
        """Fill in what is about gradients; of two threads at once each fills in the same.  Return `flows`."""
        op, types, attrs = self.op, self.types, self.attrs
        everyone = [t for t in (*types, *self.outs) if t is not None]
        floats = [t.dtype for t in everyone if t.dtype.inexact]
        self.small = not op.traits.host and (
            all([t.small or (not t.dtype.inexact and t.size <= 16_384) for t in everyone])
            and all([d is floats[0] for d in floats])
        )
        self.sources = tuple(
            (n in op.operands, op.operands.index(n) if n in op.operands else op.all_outputs.index(n))
            for n in op.saves
        )
        both = (*types, *self.outs)
        rules = tuple(r and _compiled(r, op.saves, attrs, both) for r in op.rules) if op.rules else None
        vjp = op.vjp
        if op.complex == "analytic" and any([t.dtype.is_complex for t in everyone]):
            rules, vjp = self._conjugated(rules, vjp)
        self.rules, self.vjp = rules, vjp
        visible = len(self.outs) - len(op.hidden)
        self.unused = (None,) * (len(self.outs) - 1)
        alone = self.small and visible == 1
        quick = op.quick_grad(both, attrs) if alone and op.quick_grad else None
        if alone and quick is None and rules is not None:
            fits = op.traits.elementwise and self.out.ndim > 0 and all([t is self.out for t in types])
            quick = rules if fits else tuple(map(_fitted, rules, types))
        self.quick, self.raw_vjp = quick, op.vjp if alone else None
        inexact = any([t.dtype.inexact for t in self.outs[:visible]])  # a cast to integers ends history
        self.floats = tuple(
            inexact and t is not None and t.dtype.inexact and op.differentiates(min(i, len(op.operands) - 1))
            for i, t in enumerate(types)
        )
        found = op.differentiable and not self.small and self.out.device is CPU
        self.gradients = choose_backward(op, types, attrs, self.outs) if found else None
        self.flows = all(self.floats)  # last, as it says that all are there
        if self.calls:
            earn_gradients(self)
        return self.flows

    def _conjugated(self, rules: tuple | None, vjp: Callable | None) -> tuple[tuple | None, Callable | None]:
        """The rules of an analytic function, or its vjp, by PyTorch's convention, dL/da + i dL/db.

        That is g times conj(f'), where a rule gives g * f': so conj(conj(g) * f').  A rule that looks at the
        cotangent alone, and at no complex number, is the same without.
        """
        fixed = not any(isinstance(x, complex) for x in self.attrs.values())
        if rules is not None:
            pairs = zip(self.op.rules, rules, strict=True)
            return tuple(f and (f if fixed and not r.arrays else _conjugating(f)) for r, f in pairs), vjp
        if vjp is not None and (self.op.saves or not fixed):
            return rules, _conjugating_vjp(vjp)
        return rules, vjp

    def recipe(self, needs: tuple[bool, ...]) -> tuple | bool:
        """What to save where these operands want a gradient: (kind, position) per entry of `op.saves`.

        () where nothing is looked at, False where no gradient can flow.
        """
        op = self.op
        made: tuple | bool
        if True not in needs:
            made = False
        else:
            wanted = set(op.saves)
            if op.vjp is None:
                pairs = zip(op.rules, needs, strict=True)
                wanted = {n for rule, need in pairs if rule and need for n in rule.arrays}

            def kind(name: str, is_operand: bool) -> int:
                if name not in wanted:
                    return NOTHING
                return OUTPUT if not is_operand else REST if name[0] == "*" else OPERAND

            made = tuple(
                (kind(name, is_operand), at)
                for name, (is_operand, at) in zip(op.saves, self.sources, strict=True)
            )
            if all(what == NOTHING for what, _ in made):
                made = ()
        self.recipes[needs] = made
        return made


def writer_of(plan: Plan) -> Callable:
    """The function that `writer` is, made when it is first needed."""
    op = plan.op
    if plan.out.device.type == "cuda":
        return lambda first, *others: on_device.eager().overwritten(plan.kernel, first, others)
    if plan.out.device is not CPU:
        return lambda *_: None
    kernel = plan.kernel
    if any([t is not None and t.device is not CPU for t in plan.types]):  # a copy from a GPU
        return lambda first, *others: np.copyto(first, kernel(first, *others))
    if op.write is not None:
        return with_attrs(op.write, plan.attrs)
    if type(kernel) is np.ufunc:
        if kernel is np.maximum or kernel is np.minimum:  # of which NumPy wants the written array by name
            named: Callable[..., Any] = kernel
            return lambda first, other: named(first, other, out=first)
        if len(plan.types) == 2:
            return lambda first, other: kernel(first, other, first)
        return lambda first, *others: kernel(first, *others, first)

    if len(plan.outs) > 1:
        return lambda first, *others: np.copyto(first, plan.kernel(first, *others)[0])

    def write(first: np.ndarray, *others: np.ndarray | None) -> None:
        first[...] = plan.kernel(first, *others)  # that of now

    return write


def fit_array(h: Any, kind: Type) -> np.ndarray:
    """A cotangent in the shape and dtype of the operand it belongs to."""
    if type(h) is not ndarray:
        h = asarray(h)
    if h.shape != kind.shape:
        how = fitting(h.shape, kind.shape)
        if how is not None:
            dims, shape = how
            # asarray: NumPy makes scalars of 0-d sums
            h = asarray(np.add.reduce(h, axis=dims)).reshape(shape) if dims else stretched(h, shape)
    if h.dtype is not kind.dtype.numpy:
        h = h.astype(kind.dtype.numpy)
    return h


def conjugate(x: Any) -> Any:
    """The conjugate of a cotangent (of None, or of a real one: itself)."""
    return REGISTRY["conj_physical"](x) if x is not None and x.dtype.is_complex else x


def _conjugating(rule: Callable) -> Callable:
    return lambda g, saved: conjugate(rule(conjugate(g), saved))


def _conjugating_vjp(vjp: Callable) -> Callable:
    def conjugated(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
        return tuple(map(conjugate, vjp(saved, tuple(map(conjugate, cotangents)), attrs, needs)))

    return conjugated


def _fitted(rule: Callable | None, kind: Type | None) -> Callable | None:
    """The rule, with what it returns made to fit the operand."""
    if rule is None or kind is None:
        return None
    shape, dtype = kind.shape, kind.dtype.numpy

    def fitted(g, saved):
        h = rule(g, saved)
        return h if type(h) is ndarray and h.dtype is dtype and h.shape == shape else fit_array(h, kind)

    return fitted


def _compiled(rule: Rule, saves: tuple[str, ...], attrs: dict, types: tuple) -> Callable:
    """The rule as f(cotangent, saved), with types and attrs bound: one call less in the backward loop."""
    fixed = rule.fixed(attrs, types)
    function = partial(rule.function, **fixed) if fixed else rule.function
    at = tuple(saves.index(n) for n in rule.arrays)
    if not at:
        return lambda g, saved: function(g)
    if len(at) == 1:
        (a,) = at
        return lambda g, saved: function(g, saved[a])
    if len(at) == 2:
        a, b = at
        return lambda g, saved: function(g, saved[a], saved[b])
    return lambda g, saved: function(g, *(saved[i] for i in at))


_memos: list[dict] = []


def memo(kind: type[dict] = dict) -> Any:
    """A table of plans, which a change of the default dtype empties: inference depends on that."""
    _memos.append(made := kind())
    return made


class ByArguments(dict):
    """Plans by how arguments are spelled; None for others, without a step of Python."""

    __missing__ = {}.get


class ByType(dict):
    """Such tables by the type of the operand."""

    __missing__ = staticmethod(partial({None: ByArguments()}.get, None))


def _forget() -> None:
    for table in _memos:
        table.clear()


on_default_change.append(_forget)


def remember(table: dict, key: Any, plan: T) -> T:
    """Enter a plan into a bounded memo."""
    if len(table) >= LIMIT:
        table.clear()
    table[key] = plan
    return plan


def described(error: LaminaError, op: Op, operands: tuple, describe: Callable[[Any], str]) -> LaminaError:
    """The error with a line for each operand between the rule and the way out."""
    names = [*op.operands]
    if op.variadic:
        names[-1:] = [f"{op.operands[-1][1:]}[{i}]" for i in range(len(operands) - len(names) + 1)]
    lines = [f"{name}: {describe(x)}" for name, x in zip(names, operands, strict=False) if x is not None]
    rule = error.rule if op.name in error.rule else f"{op.name}: {error.rule}"
    return type(error)(rule, *lines, *error.details)
