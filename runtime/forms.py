"""Plans for types that differ in sizes alone from those of others: made by formulas, not by rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

from ..ir.dims import Condition, Dim, conditions, maximum
from ..ir.errors import LaminaError
from ..ir.execute import operand_dtypes, plain, unbound
from ..ir.graph import Builder
from ..ir.op import Op
from ..ir.types import CPU, Shape, Type, sized
from .kernels import Chooser, kind_key
from .of_symbols import of_symbols
from .plan import LIMIT, Plan, memo, remember

Types = tuple[Type | None, ...]
MET = (
    8  # shapes of a form, from which on plans are made by formulas, which take as long to make as some plans
)
VAIN = 128  # forms of an op that were met, none often: its attributes are of sizes, as those of slices
NEVER = -1  # there are no formulas
_NOTHING: dict[str, Any] = {}

FORMS: dict[tuple, Form | int] = memo()  # or how many of its shapes were met
_in_vain: dict[Op, int] = memo()


class Form:
    """What all plans of an op have in common whose types differ in sizes alone.

    first: one of them.  met: types that were served without a plan.  Raises LaminaError, TypeError where the
    rule of its shapes asks for more than follows for all sizes.
    """

    __slots__ = ("first", "link", "met", "found", "dtypes", "reference", "quick", "kernel")

    def __init__(self, first: Plan, key: tuple):
        op, attrs, types = first.op, first.attrs, first.types

        def infer(types: Types, sizes: Mapping[str, int]) -> tuple[tuple[Type, ...], Sequence[Condition]]:
            with conditions(sizes=sizes) as needs:
                made = op.infer(*types, **attrs)
            return made if isinstance(made, tuple) else (made,), needs

        found = of_symbols(types, infer)
        self.first, self.dtypes, self.met = first, [out.dtype for out in found.made], {}
        self.link = first.link if op.traits.view else ()
        shapes = [out.shape for out in found.made]
        self.found = found.function(shapes, (_largest((*shapes, *found.shapes)),))
        conversions = operand_dtypes(op, types, attrs)
        several = isinstance(op.infer(*types, **attrs), tuple)
        self.reference = plain(op, types, attrs, first.outs, several, conversions)
        quick = None if conversions else op.quick
        if quick is not None and op.traits.elementwise:  # the same for all sizes
            self.reference, quick = quick(types, attrs) or self.reference, None
        self.quick = quick
        self.kernel = Chooser(op, types, first.outs, key)

    def plan(self, types: Types) -> Plan | None:
        """The plan for these types of this form; None where only the rules can say what is to be said."""
        found = self.found(types)
        if found is None:
            return None
        first, (*shapes, largest) = self.first, found
        plan = _like(first, types, first.attrs, tuple(map(sized, self.dtypes, shapes)))
        if self.link:
            plan.link = self.link
        quick = self.quick and self.quick(types, plan.attrs)
        plan.kernel = self.kernel(plan, quick or self.reference, largest)
        return plan

    def once(self, types: Types) -> tuple[Type, Callable, dict[str, Any], tuple] | None:
        """For types that are met the first time what there is of a plan, of an op of one result.

        The result's type, what computes it, with which arguments, and the link of a view.  None for others,
        and where a plan does more: most shapes that are new never come again, and a plan takes thrice as long
        to make as this.
        """
        if types in self.met or (found := self.found(types)) is None:
            return None
        if not self.kernel.needs_no_plan(found[-1]):
            return None
        if len(self.met) >= LIMIT:
            self.met.clear()
        self.met[types] = None
        quick = self.quick and self.quick(types, self.first.attrs)
        return sized(self.dtypes[0], found[0]), quick or self.reference, _NOTHING, self.link

    def binds_alike(self, bind: Callable, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Whether a call with these arguments has the attributes of its plans, whatever the sizes are."""
        alike = False

        def call(types: Types, sizes: Mapping[str, int]) -> tuple[None, Sequence[Condition]]:
            nonlocal alike
            with Builder(self.first.op.name, sizes) as b:
                operand = b.param(types[0])
                operands, attrs = bind(operand, *args, **kwargs)
            alike = operands == (operand,) and repr(attrs) == repr(self.first.attrs) and not b.conditions
            return None, ()

        try:
            of_symbols(self.first.types, call)
        except (LaminaError, TypeError):
            return False
        return alike


class CallForm:
    """The same for calls of one argument list, whose attributes are formulas of sizes, too.

    first: the plan of such a call.  bind: gives operands and attributes for operands of other sizes.  Raises
    LaminaError, TypeError where there are no formulas.
    """

    __slots__ = ("first", "met", "dtype", "found", "conversions", "quick", "kernel", "direct")

    def __init__(self, first: Plan, bind: Callable[[tuple], tuple[tuple, dict]]):
        op = first.op

        def infer(types: Types, sizes: Mapping[str, int]) -> tuple[tuple[Type, dict], Sequence[Condition]]:
            with Builder(op.name, sizes) as b:
                given = tuple(map(b.param, types))
                operands, attrs = bind(given)
            if operands != given:
                raise TypeError("the operands are not what was given")
            with conditions(sizes=sizes) as needs:
                made = op.infer(*types, **attrs)
            if isinstance(made, tuple):
                raise TypeError("there are several results")
            return (made, attrs), (*b.conditions, *needs)

        found = of_symbols(first.types, infer)
        made, attrs = found.made
        self.first, self.dtype, self.met = first, made.dtype, {}
        self.conversions = operand_dtypes(op, first.types, first.attrs)
        link = ((op.name, tuple(attrs.items())),) if op.traits.view else ()
        largest = _largest((made.shape, *found.shapes))
        self.found = found.function([made.shape], (attrs, link, largest))
        self.kernel = Chooser(op, first.types, first.outs)
        self.quick = None if self.conversions else op.quick
        self.direct = None if op.quick or self.conversions else unbound(op, first.types, first.out)
        if self.found(first.types)[:2] != (first.out.shape, first.attrs):
            raise TypeError("the formulas are of another call")

    def plan(self, types: Types) -> Plan | None:
        """The plan for these types; None where only the rules can say what is to be said."""
        found = self.found(types)
        if found is None:
            return None
        shape, attrs, link, largest = found
        outs = (sized(self.dtype, shape),)
        plan = _like(self.first, types, attrs, outs)
        quick = self.quick and self.quick(types, attrs)
        reference = quick or plain(plan.op, types, attrs, outs, False, self.conversions)
        plan.kernel = self.kernel(plan, reference, largest)
        if link:
            plan.link = link
        return plan

    def once(self, types: Types) -> tuple[Type, Callable, dict[str, Any], tuple] | None:
        """As of a `Form`."""
        if types in self.met or (found := self.found(types)) is None:
            return None
        shape, attrs, link, largest = found
        if not self.kernel.needs_no_plan(largest):
            return None
        if len(self.met) >= LIMIT:
            self.met.clear()
        self.met[types] = None
        out = sized(self.dtype, shape)
        if self.direct is not None:
            return out, self.direct, attrs, link
        quick = self.quick and self.quick(types, attrs)
        reference = quick or plain(self.first.op, types, attrs, (out,), False, self.conversions)
        return out, reference, _NOTHING, link


def _largest(shapes: Iterable[Shape | None]) -> int | Dim:
    """How many elements the largest of these has."""
    return reduce(maximum, {prod(shape): None for shape in shapes if shape is not None})


def _like(first: Plan, types: Types, attrs: dict[str, Any], outs: tuple[Type, ...]) -> Plan:
    """A plan that shares with another what hangs on no size; its kernel, and a view's link, are to be set."""
    plan = object.__new__(Plan)
    plan.op, plan.types, plan.attrs, plan.outs, plan.out = first.op, types, attrs, outs, outs[0]
    plan.simple, plan.recipes, plan.calls = first.simple, first.recipes, 0
    plan.flows = plan.writer = plan.note = plan.native = plan.whole = None
    return plan


def by_formulas(op: Op, types: Types, attrs: dict[str, Any]) -> Plan | None:
    """A new plan for these types, if there are formulas for it."""
    if attrs and _in_vain.get(op, 0) >= VAIN:
        return None
    form = FORMS.get(kind_key(op, attrs, types))
    return form.plan(types) if type(form) is Form else None


def by_rules(op: Op, types: Types, attrs: dict[str, Any]) -> Plan:
    """A new plan for these types.  Raises what the op's rules do for types and attributes that don't fit."""
    plan = Plan(op, types, attrs)
    if _in_vain.get(op, 0) >= VAIN:
        return plan
    key = kind_key(op, attrs, types)
    form = FORMS.get(key, 0)
    if isinstance(form, int) and form != NEVER:
        if not form:
            _in_vain[op] = _in_vain.get(op, 0) + 1
        remember(FORMS, key, form + 1 if form < MET else _form_of(plan, key))
    return plan


def form_of(
    plan: Plan, bind: Callable, args: tuple, kwargs: dict[str, Any], met: int
) -> Form | CallForm | int:
    """The form of a plan of one operand, if the arguments behind it mean the same for all its sizes.

    met: what `form_of_call` gave for the last such call.
    """
    if met != NEVER and _in_vain.get(plan.op, 0) < VAIN:
        form = FORMS.get(kind_key(plan.op, plan.attrs, plan.types))
        if isinstance(form, Form) and form.binds_alike(bind, args, kwargs):
            return form
    return form_of_call(plan, lambda operands: bind(*operands, *args, **kwargs), met)


def form_of_call(plan: Plan, bind: Callable[[tuple], tuple[tuple, dict]], met: int) -> CallForm | int:
    """The form of all calls of one argument list; how often such were met while that is seldom, or NEVER.

    met: what this gave for the last one, 0 for the first.
    """
    if met == NEVER or len(plan.outs) > 1 or plan.op.traits.host or not _is_here(plan):
        return NEVER
    if met + 1 < 2 * MET:  # a form of the attributes would be there by then
        return met + 1
    try:
        return CallForm(plan, bind)
    except (LaminaError, TypeError):
        return NEVER


def _is_here(plan: Plan) -> bool:
    return not any([t.device is not CPU for t in (*plan.types, *plan.outs) if t is not None])


def _form_of(plan: Plan, key: tuple) -> Form | int:
    if plan.op.traits.host or not _is_here(plan):
        return NEVER
    try:
        _in_vain[plan.op] = 0
        return Form(plan, key)
    except (LaminaError, TypeError):  # a size is no number, and what asks for one says so
        return NEVER
