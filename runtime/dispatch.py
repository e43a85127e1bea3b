"""Runs ops on tensors: turns each record into a plain Python function, once.

`binary` and `unary` are the shapes that small programs are made of, written out so that an ordinary call does
only what it must: look up the plan, run the kernel, wrap the array, and where gradients are on note the
history.  The user's line is noted where an op saves something that could be changed (it costs as much as the
rest of the history together); under `detect_anomaly` for every op.
`shaped` serves ops with one operand and arguments (reductions, views), `ternary` three operands of which some
may be numbers, `joined` a sequence of tensors; `general` serves all others, and what these leave to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from math import inf
from operator import is_not
from sys import _getframe
from typing import Any, NoReturn

import numpy as np

from ..ir.dtypes import DType, from_numpy_dtype
from ..ir.errors import ArgumentError, DTypeError, LaminaError
from ..ir.op import Op, as_now
from ..ir.shapes import number_dtype, result_dtype
from ..ir.types import CPU, Type, type_of
from . import below, modes
from .autocasting import recast
from .compound import NoArray, served
from .forms import FORMS, CallForm, Form, by_formulas, by_rules, form_of, form_of_call
from .graph import Light, Port, Saving
from .history import make_view, record, storage_of
from .keys import ONCE, UNKNOWN, is_constant, picker, spelled, straight, told_apart
from .levels import run_through
from .modes import CHANGED, local
from .overriding import OPEN, UNSERVED, answered, met
from .places import USERS, here, spell
from .plan import LIMIT, ByArguments, ByType, Plan, described, memo, remember
from .refusal import flags_of, given, require_flags, told, writer_of_out
from .return_types import return_type
from .storage import Inferred, Literal, Storage
from .tensor import NUMBERS, Tensor, tensor_of, wrap

new = object.__new__
EAGER: dict[Op, Callable] = {}
# By an op's name: what a call may be instead, from its first operand and its arguments; None where it isn't.
INSTEAD: dict[str, Callable[[Tensor, tuple, dict], Any]] = {}

# What a call that failed may be elsewise, from its operands and attributes; None where it isn't.
ELSEWISE: dict[str, Callable[..., Any]] = {}


# ---- operands ----------------------------------------------------------------------------------------------
def lift(kind: Type, value: Any, compared: bool = False) -> Tensor:
    """A Python number as a 0-d tensor of the dtype it takes beside an operand of `kind`.

    compared: one that integers there can't hold is infinite.  Raises ArgumentError for others.

    They are kept, as a bare one costs NumPy 280 ns a call: beside floating kinds by their value, zeros and
    those beside others by their text, as -0.0 == 0.0 and 1.0 == 1.
    """
    kept = type(value) is int or (type(value) is float and kind.dtype.category == "float")
    key = value if kept and value and kind.dtype.category == "float" else repr(value) if kept else None
    if kept:
        known = kind.scalars.get(key)
        if known is not None:
            return known
    given = value
    if isinstance(value, np.generic):
        if from_numpy_dtype(value.dtype) is None:
            raise ArgumentError(f"a number is needed beside {kind}, not NumPy's {value.dtype}")
        value = value.item()
    dtype = number_dtype(value, kind)
    try:
        data = np.asarray(value, dtype.numpy)
    except OverflowError:
        if compared:
            return lift(kind, inf if value > 0 else -inf)
        raise ArgumentError(f"the number {value} does not fit into {dtype}") from None
    made = wrap(data, type_of(dtype, (), kind.device))
    made._storage = Literal()
    if type(given) not in (bool, int, float, complex):
        made._storage.number = given
    if kept:
        if len(kind.scalars) >= 256:
            kind.scalars.clear()
        kind.scalars[key] = made
    return made


def lifted(op: Op, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Every operand as a tensor: numbers in the dtype they take beside the tensors.  Raises ArgumentError."""
    kinds = [x._meta for x in operands if isinstance(x, Tensor)]
    kind = kinds[0] if kinds else None
    if kind is not None and len(kinds) > 1:
        try:
            dtype, sized = result_dtype(*kinds), [k for k in kinds if k.ndim]
            shape = sized[0].shape if sized and result_dtype(*sized) is dtype else ()
            kind = type_of(dtype, shape, kind.device)
        except DTypeError:  # types that don't promote: one is an index, a mask, or what is written over
            pass
    if op.number is not None and kinds:
        for x in operands[1:]:
            if isinstance(x, NUMBERS):
                op.number(kinds[0], x)
    found: list[Tensor | None] = []
    for i, x in enumerate(operands):
        if isinstance(x, Tensor):
            found.append(x)
        elif x is None and (op.variadic or op.operands[i] in op.optional):
            found.append(None)
        elif isinstance(x, NUMBERS):
            found.append(lift(kind, x, op.traits.compares) if kind is not None else tensor_of(x))
        elif isinstance(x, np.ndarray):
            found.append(tensor_of(x))
        else:
            name = op.operands[min(i, len(op.operands) - 1)].lstrip("*")
            raise ArgumentError(
                f"{op.name}({', '.join(op.operands)}): {name} must be a tensor or a number, "
                f"not {type(x).__name__}"
            )
    return tuple(found)


def describe(x: Any) -> str:
    """An operand as errors show it: its type, and the line that made it where that is known."""
    if not isinstance(x, Tensor):
        return repr(x)
    node = x._node
    place = node.node.place if type(node) is Port else getattr(node, "place", None)
    return f"{x._meta}  made at {spell(place)}" if place is not None else str(x._meta)


def plan_for(op: Op, operands: tuple[Tensor | None, ...], attrs: dict[str, Any]) -> Plan:
    """The plan for these operands; errors of inference get a line for each operand."""
    types = tuple([None if x is None else x._meta for x in operands])
    if (plan := by_formulas(op, types, attrs)) is not None:
        return plan
    if not op.variadic and any([x is None for x in operands]):  # rules of shapes pass over absent ones
        known = _no_operand(op, zip(op.operands, operands, strict=False))
        if known is not None:
            raise known
    try:
        return by_rules(op, types, attrs)
    except LaminaError as error:
        raise described(error, op, operands, describe) from None
    except Exception as error:
        if isinstance(error, AttributeError):
            known = _no_operand(op, zip(op.operands, operands, strict=False))
            if known is not None:
                raise known from None
        refuse(error, op, operands, attrs)


def first_time(form: Form | CallForm, types: tuple[Type, ...], operands: Sequence[Tensor]) -> Tensor | None:
    """The result for sizes that are met the first time; None where there is more to it: that needs a plan."""
    records = True
    if CHANGED:
        if local.watched or local.inference:
            return None
        records = local.records
    if records:
        for x in operands:
            if (x._edge if x._view is None else x._node) is not None:
                return None
    found = form.once(types)
    if found is None:
        return None
    made = new(Tensor)
    made._meta, kernel, attrs, link = found
    x = operands[0]._data
    try:
        if len(operands) == 1:
            made._data = data = kernel(x, **attrs)
        elif len(operands) == 2:
            made._data = data = kernel(x, operands[1]._data, **attrs)
        else:
            made._data = data = kernel(*[y._data for y in operands], **attrs)
    except Exception:  # the plan's kernel says why
        return None
    made._storage = made._view = made._edge = None
    if link:
        if not (data is x or data.base is not None and (data.base is x or data.base is x.base)):
            return None
        if (base := operands[0])._view is None:  # as make_view, without a call
            store = made._storage = base._storage or storage_of(base)
            made._view = (base, link, store.history)
        else:
            make_view(made, base, link)
    return made


def refuse(error: Exception, op: Op, operands: Iterable[Any], attrs: dict[str, Any]) -> NoReturn:
    """Raise what an op failed with, told as an error of its operands and arguments."""
    names = (*op.operands, *[f"{op.operands[-1]}[{n}]" for n in range(99)]) if op.variadic else op.operands
    arguments = dict(zip(names, operands, strict=False)) | attrs
    mine = told(error, op.name, arguments)
    try:
        if mine is None:
            raise error
        raise mine[0] from mine[1]
    finally:
        del error, mine  # this frame stands in their traceback: they would hold themselves, and the operands


def instead(error: Exception, op: Op, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """What an op gives on tensors that have no one array, which made it fail; else raise, as `refuse`."""
    if type(error) is NoArray:
        try:
            return served(op, tuple(operands), attrs)
        except Exception as inner:
            raise inner from inner.__cause__  # that there is no array is no part of the story
    if op.name in ELSEWISE and (found := ELSEWISE[op.name](*operands, **attrs)) is not None:
        return found
    refuse(error, op, operands, attrs)


def bound(op: Op, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The user's call as the record takes it.  Raises ArgumentError naming what is no tensor."""
    try:
        kwargs = torch_names(op, kwargs)
        flags = _flags.get(op)
        if flags is None:
            flags = _flags[op] = flags_of(op.bind)
        if flags:
            require_flags(op.name, flags, args, kwargs)
        operands, attrs = op.bind(*args, **kwargs)
        if attrs and not _SETTLED.issuperset([type(a) for a in attrs.values()]):
            attrs = {name: settled(op, name, a) for name, a in attrs.items()}
        return operands, attrs
    except LaminaError:
        raise
    except Exception as error:
        if isinstance(error, (AttributeError, TypeError)):
            if (now := as_now(op.bind, args, kwargs)) is not None:
                return bound(op, *now)
            named = zip(signature(op.bind).parameters, args, strict=False)
            known = _no_operand(op, (*named, *kwargs.items()))
            if known is not None:
                raise known from None
        mine = told(error, op.name, given(op.bind, args, kwargs))
        try:
            if mine is None:
                raise
            raise mine[0] from mine[1]
        finally:
            del mine


def _arrays_of(op: Op, operands: tuple, attrs: dict[str, Any]) -> tuple:
    """What the op's kernel makes of plain tensors, hidden outputs too: for __torch_dispatch__."""
    plan = plan_for(op, operands, attrs)
    found = plan.kernel(*[None if x is None else x._data for x in operands])
    return found if type(found) is tuple else (found,)


below.runs.append(_arrays_of)
below._dtypes.append(from_numpy_dtype)
_flags: dict[Op, tuple] = {}  # the arguments of an op that are True or False
_SETTLED = frozenset((int, float, bool, str, type(None), DType))


def settled(op: Op, name: str, attr: Any) -> Any:
    """An attribute as plans may keep it: the number that a tensor of no dims holds now, never the tensor.

    Raises ArgumentError for other tensors, and for sequences where elements are computed one by one.
    """
    if isinstance(attr, (Tensor, np.ndarray)):
        if attr.ndim or (isinstance(attr, Tensor) and attr.requires_grad):
            kind = f"a tensor of shape {list(attr.shape)}" if attr.ndim else "one that asks for gradients"
            raise ArgumentError(
                f"{op.name}({name}): must be a number, or a tensor of no dims; this is {kind}"
            )
        return attr.item()
    if op.traits.elementwise and isinstance(attr, (tuple, list, dict)):
        raise ArgumentError(f"{op.name}({name}): must be a number, not a {type(attr).__name__}")
    if type(attr) is tuple and not _SETTLED.issuperset(map(type, attr)):
        return tuple([settled(op, name, a) for a in attr])
    return attr


# ---- running -----------------------------------------------------------------------------------------------
def run(op: Op, plan: Plan, operands: tuple) -> Any:
    """Execute a plan on tensors, with history, views and the thread's hook."""
    records = True
    if CHANGED:
        mine = local
        if mine.watched:
            return run_watched(op, plan, operands)
        records = mine.records
    try:
        arrays = plan.kernel(*[None if x is None else x._data for x in operands])
    except Exception as error:
        return instead(error, op, operands, plan.attrs)
    if not plan.simple:
        return finished(op, plan, operands, arrays if type(arrays) is tuple else (arrays,))
    out = new(Tensor)  # what most calls are
    out._data = arrays[0] if type(arrays) is tuple else arrays
    out._meta = plan.out
    out._storage = out._view = out._edge = None
    if not records:
        if mine.inference:
            out._storage = Inferred()
        return out
    for x in operands:
        if x is not None and (x._edge if x._view is None else x._node) is not None:
            record(plan, operands, (out,), arrays if type(arrays) is tuple else (arrays,))
            break
    return out


def run_watched(op: Op, plan: Plan, operands: tuple) -> Any:
    """`run` where an op is more to the thread: it is cast, transformed, recorded, or its line noted."""
    if modes.local.autocast is not None:
        cast = recast(op.name, operands)
        if cast is not operands:
            return run_general(op, cast, plan.attrs)
    if modes.local.levels:
        found = run_through(op, plan, operands)
        if found is not NotImplemented:
            return found
    if plan.out.device is not CPU:
        modes.tell("refuse", "a tensor on the meta device has no values")
    if modes.local.timing is not None:
        return modes.local.timing.of_op(_computed, op, plan, operands)
    return _computed(op, plan, operands)


def _computed(op: Op, plan: Plan, operands: tuple) -> Any:
    try:
        arrays = plan.kernel(*[None if x is None else x._data for x in operands])
    except Exception as error:
        return instead(error, op, operands, plan.attrs)
    return finished(op, plan, operands, arrays if type(arrays) is tuple else (arrays,))


def finished(op: Op, plan: Plan, operands: tuple, arrays: tuple) -> Any:
    """What a call returns whose kernel made these arrays: tensors, named where there are several."""
    outs = plan.outs
    if op.traits.host:  # only the values tell the sizes
        outs = [type_of(t.dtype, a.shape, t.device) for a, t in zip(arrays, outs, strict=True)]
    visible = arrays[: len(arrays) - len(op.hidden)] if op.hidden else arrays
    outputs = tuple([wrap(a, t) for a, t in zip(visible, outs)])
    if op.traits.view:
        base = operands[0]._data
        a = arrays[0]
        if a is base or (a.base is not None and (a.base is base or a.base is base.base)):
            make_view(outputs[0], operands[0], plan.link)
        elif np.may_share_memory(a, base):
            make_view(outputs[0], operands[0], plan.link)
        elif not op.traits.copies:
            op.reference(base, **plan.attrs)  # says why it can't be a view
    if modes.CHANGED and modes.local.inference:
        for x in outputs:
            if x._storage is None:
                x._storage = Inferred()
    if not modes.CHANGED or modes.local.records:
        for x in operands:
            if x is not None and (x._edge if x._view is None else x._node) is not None:
                if op.differentiable:
                    record(plan, operands, outputs, arrays)
                break
    if modes.CHANGED and modes.local.hook is not None:
        hidden = [wrap(a, t) for a, t in zip(arrays[len(outputs) :], outs[len(outputs) :])]
        modes.local.hook(op, plan.attrs, operands, (*outputs, *hidden))
    if len(outputs) == 1:
        return outputs[0]
    return named(op)(*outputs) if len(op.outputs) == len(outputs) else outputs  # "*updated": any number


_named: dict[Op, Callable] = {}


def named(op: Op) -> Callable:
    """The tuple type of an op of several outputs: fields by the record's names, as `max(x, 0).indices`."""
    made = _named.get(op)
    if made is None:
        made = _named[op] = return_type(op.name, op.outputs)
    return made


# ---- the shapes of functions -------------------------------------------------------------------------------
def binary(op: Op) -> Callable:
    """A function of two operands and nothing else."""
    same: dict[Type, Plan] = memo()
    mixed: dict[tuple[Type, Type], Plan] = memo()
    wants = tuple(r.arrays if r else None for r in op.rules) or (None, None)
    first, second = op.operands
    number = op.number
    saves_none = wants == ((), ())
    crossed = wants == ((second,), (first,))  # each gradient looks at the other operand, as that of mul

    def apply(input, other, *, out=None):
        if out is not None:
            return writer_of_out[0](op.name, eager(op), (input, other), {}, out)
        if type(input) is not Tensor or type(other) is not Tensor:
            if OPEN and (found := answered(eager(op), (input, other), {})) is not UNSERVED:
                return found
            if type(other) in (float, int) and isinstance(input, Tensor):
                if number is not None:
                    number(input._meta, other)
                known = input._meta.scalars.get(other)
                other = known if known is not None else lift(input._meta, other, op.traits.compares)
            elif not isinstance(input, Tensor) or not isinstance(other, Tensor):
                if (found := met(eager(op), (input, other), {})) is not UNSERVED:
                    return found
                input, other = lifted(op, (input, other))
        m, p = input._meta, other._meta
        if m is p:
            plan = same.get(m)
            if plan is None:
                form = FORMS.get((op, "", m.form, m.form), 0)
                if type(form) is not int and (made := first_time(form, (m, m), (input, other))) is not None:
                    return made
                plan = remember(same, m, plan_for(op, (input, other), {}))
        else:
            plan = mixed.get((m, p))
            if plan is None:
                if modes.CHANGED and modes.local.autocast is not None:  # they may differ until they are cast
                    return run_general(op, (input, other), {})
                form = FORMS.get((op, "", m.form, p.form), 0)
                if type(form) is not int and (made := first_time(form, (m, p), (input, other))) is not None:
                    return made
                plan = remember(mixed, (m, p), plan_for(op, (input, other), {}))
        records = True
        if CHANGED:
            mine = local
            if mine.watched:
                if mine.functions and (found := answered(eager(op), (input, other), {})) is not UNSERVED:
                    return found
                return run(op, plan, (input, other))
            records = mine.records
        made = new(Tensor)
        try:
            x, y = input._data, other._data
            made._data = data = plan.kernel(x, y)
        except Exception as error:
            return instead(error, op, (input, other), {})
        made._meta = plan.out
        made._storage = made._view = made._edge = None
        if not records:
            if mine.inference:
                made._storage = Inferred()
            return made
        a = input._edge if input._view is None else input._node
        b = other._edge if other._view is None else other._node
        if a is None and b is None:
            return made
        if not plan.flows:
            record(plan, (input, other), (made,), (data,))
            return made
        if saves_none:
            n = made._edge = new(Light)
            n.plan = plan
            n.edges = (a, b)
            return made
        if crossed:
            n = new(Saving)
            if a is not None:
                t = other._storage
                if t is None:
                    t = other._storage = Storage()
                if b is not None:
                    s = input._storage
                    if s is None:
                        s = input._storage = Storage()
                    n.saved, n.guards = (x, y), (s, s.version, t, t.version)
                else:
                    n.saved, n.guards = (None, y), (t, t.version)
            else:
                s = input._storage
                if s is None:
                    s = input._storage = Storage()
                n.saved, n.guards = (x, None), (s, s.version)
        else:
            record(plan, (input, other), (made,), (data,))
            return made
        n.plan = plan
        n.edges = (a, b)
        try:
            frame = _getframe(1)
        except ValueError:  # called by C, as at exit
            frame = _getframe(0)
        code = frame.f_code
        n.place = (code, frame.f_lasti) if code.co_filename in USERS else here(frame)
        made._edge = n
        return made

    return apply


def unary(op: Op) -> Callable:
    """A function of one operand and nothing else."""
    plans: dict[Type, Plan] = memo()
    shorthand = len(op.rules) == 1 and op.rules[0] is not None
    saves_out, saves_in = op.saves == op.outputs, op.saves == op.operands

    def apply(input, *, out=None):
        if out is not None:
            return writer_of_out[0](op.name, eager(op), (input,), {}, out)
        if type(input) is not Tensor:
            if OPEN and (found := answered(eager(op), (input,), {})) is not UNSERVED:
                return found
            if not isinstance(input, Tensor):
                if (found := met(eager(op), (input,), {})) is not UNSERVED:
                    return found
                (input,) = lifted(op, (input,))
        m = input._meta
        plan = plans.get(m)
        if plan is None:
            form = FORMS.get((op, "", m.form), 0)
            if type(form) is not int and (made := first_time(form, (m,), (input,))) is not None:
                return made
            plan = remember(plans, m, plan_for(op, (input,), {}))
        records = True
        if CHANGED:
            mine = local
            if mine.watched:
                if mine.functions and (found := answered(eager(op), (input,), {})) is not UNSERVED:
                    return found
                return run(op, plan, (input,))
            records = mine.records
        made = new(Tensor)
        try:
            x = input._data
            made._data = data = plan.kernel(x)
        except Exception as error:
            return instead(error, op, (input,), {})
        made._meta = plan.out
        made._storage = made._view = made._edge = None
        if not records:
            if mine.inference:
                made._storage = Inferred()
            return made
        a = input._edge if input._view is None else input._node
        if a is None:
            return made
        if not shorthand or not plan.flows:
            if op.differentiable:
                record(plan, (input,), (made,), (data,))
            return made
        if saves_out:
            n = new(Saving)
            s = made._storage = Storage()
            n.saved, n.guards = (data,), (s, 0)
        elif saves_in:
            n = new(Saving)
            s = input._storage
            if s is None:
                s = input._storage = Storage()
            n.saved, n.guards = (x,), (s, s.version)
        else:
            record(plan, (input,), (made,), (data,))
            return made
        n.plan = plan
        n.edges = (a,)
        try:
            frame = _getframe(1)
        except ValueError:  # called by C, as at exit
            frame = _getframe(0)
        code = frame.f_code
        n.place = (code, frame.f_lasti) if code.co_filename in USERS else here(frame)
        made._edge = n
        return made

    return apply


def shaped(op: Op) -> Callable:
    """A function of one operand and arguments.  The memo is keyed by these as the user spelled them."""
    plans, named = memo(ByType), memo(ByType)
    formed: dict[tuple, Form | CallForm | int] = memo()
    is_view, copies = op.traits.view, op.traits.copies
    exact = not op.traits.elementwise  # whose arguments may be floats: 0.0 == -0.0 and 1 == 1.0

    def miss(input, args, kwargs):
        kind = input._meta
        form, types = 0, (kind,)
        if formed:
            try:
                form = formed.get((kind.form, args, *kwargs.items()) if kwargs else (kind.form, args), 0)
            except TypeError:  # an argument without hash
                pass
        if type(form) is not int and (made := first_time(form, types, (input,))) is not None:
            return made
        if type(form) is not int and (plan := form.plan(types)) is not None:
            table, key = (named, (args, tuple(kwargs.items()))) if kwargs else (plans, args)
            return remember(table.setdefault(input._meta, ByArguments()), key, plan)
        if op.name in INSTEAD and (found := INSTEAD[op.name](input, args, kwargs)) is not None:
            return found
        (operand,), attrs = bound(op, (input, *args), kwargs)
        if operand is not input:  # its parts, say: the plan would not be one of the input
            return run_general(op, (operand,), attrs)
        plan = known_plan(op, (operand,), attrs)
        given = (*args, *kwargs.values())
        if any([type(a) is float for a in given]):
            return plan  # 0.0 and -0.0 are one key
        if exact or not any([isinstance(a, (int, tuple)) for a in given]):
            table = named if kwargs else plans
            key = (args, tuple(kwargs.items())) if kwargs else args
            if not is_constant(given):  # a list; or a tensor, whose value may be another next time
                return plan
            if len(table) >= LIMIT:
                table.clear()
            remember(table.setdefault(input._meta, ByArguments()), key, plan)
            if type(form) is int and (is_view or op.name not in INSTEAD):
                key = (input._meta.form, args, *kwargs.items())
                remember(formed, key, form_of(plan, op.bind, args, kwargs, form))
        return plan

    def find(input, args, kwargs):
        if kwargs:
            return named[input._meta][args, tuple(kwargs.items())]
        return plans[input._meta][args]

    def apply(input, *args, **kwargs):
        if kwargs and "out" in kwargs:
            return _leaving(op, (input, *args), kwargs)
        if type(input) is not Tensor:
            if OPEN and (found := answered(eager(op), (input, *args), kwargs)) is not UNSERVED:
                return found
            if not isinstance(input, Tensor):
                if (found := met(eager(op), (input, *args), kwargs)) is not UNSERVED:
                    return found
                (input,) = lifted(op, (input,))
        try:
            plan = plans[input._meta][args] if not kwargs else find(input, args, kwargs)
        except TypeError:  # an argument without hash
            plan = None
        if type(plan) is not Plan:
            plan = miss(input, args, kwargs)  # not in the clause: what it raises would tell of the key
            if type(plan) is not Plan:
                return plan
        records = True
        if CHANGED:
            mine = local
            if mine.watched:
                if mine.functions and (found := answered(eager(op), (input, *args), kwargs)) is not UNSERVED:
                    return found
                return run(op, plan, (input,))
            records = mine.records
        out = new(Tensor)
        try:
            x = input._data
            out._data = data = plan.kernel(x)
        except Exception as error:
            return instead(error, op, (input,), plan.attrs)
        out._meta = plan.out
        parent = input._view
        base = data.base
        if not is_view:
            out._storage = out._view = None
        elif base is not None and (base is x or base is x.base) or data is x:
            store = input._storage
            if store is None:
                store = input._storage = Storage()
            out._storage = store
            if parent is None:
                out._view = (input, plan.link, store.history)
            else:
                out._view = (parent[0], parent[1] + plan.link, store.history)
        else:
            out._storage = out._view = None
            if np.may_share_memory(data, x):  # NumPy's as_strided hides whose memory it shows
                make_view(out, input, plan.link)
            elif not copies:
                op.reference(x, **plan.attrs)  # says why it can't be a view
        out._edge = None
        if not records:
            if mine.inference and out._storage is None:
                out._storage = Inferred()
            return out
        a = input._edge if parent is None else input._node
        if a is None:
            return out
        flows = plan.flows
        if not flows and (flows is False or not plan.plan_gradients()):
            return out
        if saves_none:
            n = out._edge = new(Light)
            n.plan = plan
            n.edges = (a,)
        else:
            record(plan, (input,), (out,), (data,))
        return out

    saves_none = op.saves == () and bool(op.rules)
    return apply


def run_general(op: Op, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Run an op that is bound already."""
    if not all([isinstance(x, Tensor) for x in operands]):
        operands = lifted(op, operands)
    if modes.CHANGED and modes.local.autocast is not None:
        operands = recast(op.name, operands)
    return run(op, known_plan(op, tuple(operands), attrs), tuple(operands))


def known_plan(op: Op, operands: tuple, attrs: dict[str, Any]) -> Plan:
    """The plan from the memo of canonical arguments."""
    plans = _general.get(op)
    if plans is None:
        plans = _general[op] = memo()
    key: Any = tuple([None if x is None else x._meta for x in operands])
    try:
        if attrs:
            key = (key, *[a if type(a) is int else spelled(a) for a in attrs.values()])
        plan = plans.get(key)
    except (TypeError, RecursionError) as error:  # an argument without hash or text, which no rule looked at
        refuse(error, op, operands, attrs)
    return plan if plan is not None else remember(plans, key, plan_for(op, operands, attrs))


_general: dict[Op, dict] = {}


_NUMBERS = frozenset((int, float))
UNSAID: Any = object()  # in the place of an argument that was not given
_FILLED = frozenset((Tensor, int, float, type(None)))


def ternary(op: Op) -> Callable:
    """A function of three operands, of which the last may be optional, and nothing else."""
    plans: dict[tuple, Plan] = memo()
    numbered: dict[tuple, tuple] = memo()  # by kinds and numbers: the plan, and these as tensors
    slow = general(op)
    second_name, third_name = op.operands[1:]

    def spelled_out(input, second, third, kwargs):
        given = (input, second, third) if third is not None else (input, second)
        return slow(*given, **kwargs) if second is not None or third is not None else slow(input, **kwargs)

    def filled(key, given):
        """The plan of a call in which numbers stand for operands, and these as tensors; remembered."""
        made = tuple(lifted(op, bound(op, given, {})[0]))
        plan = known_plan(op, made, {})
        literals = [y if type(x) in _NUMBERS else None for x, y in zip(given, made, strict=True)]
        return remember(numbered, key, (plan, *literals[1:]))

    def apply(input, second=None, third=None, **kwargs):
        if OPEN:
            given = (input,) if second is None and third is None else (input, second)
            given = given if third is None else (*given, third)
            if (found := answered(eager(op), given, kwargs)) is not UNSERVED:
                return found
        if kwargs:
            if second is None and second_name in kwargs:
                second = kwargs.pop(second_name)
            if third is None and third_name in kwargs:
                third = kwargs.pop(third_name)
            if kwargs:
                return spelled_out(input, second, third, kwargs)
        if third is None and not optional:  # bind says what is missing
            return spelled_out(input, second, third, kwargs)
        s, t = type(second), type(third)
        if second is None or s in _NUMBERS or t in _NUMBERS:
            several = second is not None or third is not None
            if type(input) is not Tensor or not several or s not in _FILLED or t not in _FILLED:
                return spelled_out(input, second, third, kwargs)
            if CHANGED and local.autocast is not None:
                return spelled_out(input, second, third, kwargs)
            a = second._meta if s is Tensor else second if second else repr(second)  # 0.0 == -0.0
            b = third._meta if t is Tensor else third if third else repr(third)
            found = numbered.get(key := (input._meta, a, b, s, t))
            plan, x, y = found or filled(key, (input, second, third))
            second, third = second if x is None else x, third if y is None else y
        else:
            try:
                key = (input._meta, second._meta, None if third is None else third._meta)
            except AttributeError:  # something else, or absent
                key = None
            if key is None:  # not in the clause: what is raised would tell of the key
                return spelled_out(input, second, third, kwargs)
            plan = plans.get(key)
            if plan is None:
                if modes.CHANGED and modes.local.autocast is not None:
                    return run_general(op, (input, second, third), {})
                if third is not None:
                    m, p, q = key
                    form = FORMS.get((op, "", m.form, p.form, q.form), 0)
                    if type(form) is not int:
                        if (made := first_time(form, key, (input, second, third))) is not None:
                            return made
                plan = remember(plans, key, plan_for(op, (input, second, third), {}))
        records = True
        if CHANGED:
            mine = local
            if mine.watched:
                return run(op, plan, (input, second, third))
            records = mine.records
        out = new(Tensor)
        try:
            x, y = input._data, None if second is None else second._data
            out._data = data = plan.kernel(x, y, None if third is None else third._data)
        except Exception as error:
            return instead(error, op, (input, second, third), {})
        out._meta = plan.out
        out._storage = out._view = out._edge = None
        if not records:
            if mine.inference:
                out._storage = Inferred()
            return out
        a = input._edge if input._view is None else input._node
        b = None if second is None else second._edge if second._view is None else second._node
        c = None if third is None else third._edge if third._view is None else third._node
        if a is None and b is None and c is None:
            return out
        if not saves_pair or b is None or plan.flows is None or not plan.out.dtype.inexact:
            record(plan, (input, second, third), (out,), (data,))
            return out
        s, t = input._storage, second._storage
        if s is None:
            s = input._storage = Storage()
        if t is None:
            t = second._storage = Storage()
        n = out._edge = new(Saving)
        n.plan = plan
        n.edges = (a, b, c)
        n.saved, n.guards = (x, y), (s, s.version, t, t.version)
        try:
            frame = _getframe(1)
        except ValueError:  # called by C, as at exit
            frame = _getframe(0)
        code = frame.f_code
        n.place = (code, frame.f_lasti) if code.co_filename in USERS else here(frame)
        return out

    saves_pair = op.vjp is not None and op.saves == op.operands[:2]  # as linear does
    optional = bool(op.optional)
    return apply


def joined(op: Op) -> Callable:
    """A function of a sequence of tensors and a dimension."""
    plans: dict[tuple, Plan] = memo()
    formed: dict[tuple, CallForm | int] = memo()
    slow = general(op)

    def planned(key: tuple, tensors: Sequence, dim: int) -> Plan | Tensor | None:
        """The plan, remembered, or the result; None where some tensors are left out."""
        types = key[1:]
        form = formed.get(like := (dim, *[kind.form for kind in types]), 0)
        if type(form) is not int and (made := first_time(form, types, tensors)) is not None:
            return made
        if type(form) is not int and (plan := form.plan(types)) is not None:
            return remember(plans, key, plan)
        operands, attrs = bound(op, (tensors, dim), {})
        if len(operands) != len(tensors) or any(map(is_not, operands, tensors)):
            return None
        plan = known_plan(op, operands, attrs)
        if type(form) is int:
            remember(formed, like, form_of_call(plan, lambda given: op.bind(given, dim), form))
        return remember(plans, key, plan)

    def apply(tensors=UNSAID, dim=UNSAID, *rest, **kwargs):
        if OPEN or kwargs or rest or type(tensors) not in _SEQUENCES or type(dim) is not int:
            if dim is not UNSAID or OPEN or kwargs or type(tensors) not in _SEQUENCES:
                if tensors is UNSAID:
                    return slow(**kwargs) if dim is UNSAID else slow(dim=dim, **kwargs)
                if dim is UNSAID:
                    return slow(tensors, **kwargs)
                return slow(tensors, dim, *rest, **kwargs)  # True is no dimension, and equals 1
            dim = 0
        try:
            key = (dim, *[x._meta for x in tensors])
        except AttributeError:
            key = None
        if key is None:
            return slow(tensors, dim)
        plan = plans.get(key)
        if plan is None:
            if CHANGED and local.autocast is not None:
                return run_general(op, *bound(op, (tensors, dim), {}))
            plan = planned(key, tensors, dim)
            if type(plan) is not Plan:
                return plan if plan is not None else run_general(op, *bound(op, (tensors, dim), {}))
        if CHANGED:
            return run(op, plan, tuple(tensors))
        out = new(Tensor)
        try:
            out._data = data = plan.kernel(*[x._data for x in tensors])
        except Exception as error:
            return instead(error, op, tensors, plan.attrs)
        out._meta = plan.out
        out._storage = out._view = out._edge = None
        for x in tensors:
            if (x._edge if x._view is None else x._node) is not None:
                record(plan, tuple(tensors), (out,), (data,))
                break
        return out

    return apply


_SEQUENCES = frozenset((tuple, list))


def _leaving(op: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call with `out=`."""
    rest = dict(kwargs)
    out = rest.pop("out")
    if out is None:
        return eager(op)(*args, **rest)
    if op.traits.view:
        raise ArgumentError(f"{op.name}(out=…): a view is made, nothing written", f"out.copy_({op.name}(…))")
    return writer_of_out[0](op.name, eager(op), args, rest, out)


def general(
    op: Op, act: Callable[[Op, Plan, tuple], Any] = run, called: Callable[[], Callable] | None = None
) -> Callable:
    """A function of any operands and arguments.  The memo is keyed by operands' types and arguments.

    act: what is done with plan and operands; an in-place form overwrites the first.  called: gives what a
    class that overrides functions is told was called, where that is not this function or the op's.
    """
    calls: dict[tuple, tuple[Plan | None, Callable | None]] = memo()

    def asked() -> Callable:
        return called() if called is not None else eager(op) if act is run else apply

    def miss(key, args, kwargs):
        if (found := met(asked(), args, kwargs)) is not UNSERVED:
            return found
        if op.name in INSTEAD and args and (found := INSTEAD[op.name](args[0], args[1:], kwargs)) is not None:
            return found
        operands, attrs = bound(op, args, kwargs)
        if act is not run and not isinstance(operands[0], Tensor):
            raise ArgumentError(f"{op.name}_(): writes into a tensor, not a {type(operands[0]).__name__}")
        if act is not run and args and operands[0] is not args[0]:
            raise DTypeError(
                f"{op.name}_(): what is computed in {operands[0].dtype.name} can't be written into "
                f"a tensor of {args[0]._meta}", f"write x.copy_(x.{op.name}(…))",
            )  # fmt: skip
        if not all([x is None or isinstance(x, Tensor) for x in operands]):
            operands = lifted(op, operands)
        operands = tuple(operands)
        if act is run and modes.CHANGED and modes.local.autocast is not None:
            return run_general(op, operands, attrs)
        plan = known_plan(op, operands, attrs)
        if key is not None and key not in calls:
            if len(calls) >= LIMIT:
                calls.clear()
            calls[key] = ONCE  # most shapes that come once come no more
        elif key is not None and calls.get(key) is ONCE:
            calls[key] = UNKNOWN  # unless this call tells where operands stand
            told = told_apart(args, kwargs)
            if told is not None:
                found = operands if told[0] is args else tuple(lifted(op, bound(op, *told)[0]))
                pick = picker(op, *told, found)
                if pick is not None:
                    calls[key] = (plan, None if pick is straight else pick)
        return act(op, plan, operands)

    def apply(*args, **kwargs):
        if OPEN and (found := answered(asked(), args, kwargs)) is not UNSERVED:
            return found
        if kwargs and "out" in kwargs and act is run:
            return _leaving(op, args, kwargs)
        key = None
        try:
            key = tuple([a._meta if type(a) is Tensor else a if type(a) is int else spelled(a) for a in args])
            if kwargs:
                key = (key, *kwargs, *map(spelled, kwargs.values()))
            plan, pick = calls[key]
        except KeyError:
            plan = None
        except (TypeError, RecursionError):  # an argument without hash, or nested without end
            key = plan = None
        if plan is None:
            return miss(key, args, kwargs)
        return act(op, plan, args if pick is None else pick(args, kwargs))

    return apply


def _no_operand(op: Op, given: Iterable[tuple[str, Any]]) -> ArgumentError | None:
    """What to say of a call that failed, if an operand is something else than a tensor."""
    call = f"{op.name}({', '.join(op.operands)})"
    for name, x in given:
        if f"*{name}" in op.operands and isinstance(x, (tuple, list)):
            odd = [item for item in x if not isinstance(item, (Tensor, np.ndarray))]
            if odd:
                return ArgumentError(f"{call}: {name} must hold tensors, not {type(odd[0]).__name__}")
        elif name in op.operands and not isinstance(x, (Tensor, np.ndarray, *NUMBERS)):
            if x is not None or name not in op.optional:
                return ArgumentError(f"{call}: {name} must be a tensor, not {type(x).__name__}")
    return None


_OF_NUMPY = {
    "axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other",
    "axis0": "dim0", "axis1": "dim1",
}  # fmt: skip


def torch_names(op: Op, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments by their names in PyTorch, which takes NumPy's as well."""
    if kwargs.keys().isdisjoint(_OF_NUMPY):
        return kwargs
    own = (*op.operands, *op.attrs)
    return {name if name in own else _OF_NUMPY.get(name, name): value for name, value in kwargs.items()}


def eager(op: Op) -> Callable:
    """The eager function of a record, made once."""
    made = EAGER.get(op)
    if made is None:
        made = _function(op)
        made.__name__ = made.__qualname__ = op.name
        made.__doc__ = op.__doc__
        EAGER[op] = made
    return made


def _function(op: Op) -> Callable:
    if op.variadic and len(op.operands) == 1:
        return joined(op)
    if op.variadic or op.traits.host or len(op.all_outputs) > 1:
        return general(op)
    if op.traits.view and len(op.operands) == 1:
        return shaped(op)
    if len(op.operands) == 3 and not op.attrs and not op.traits.view:
        return ternary(op)
    if op.optional or len(op.operands) not in (1, 2):
        return general(op)
    if op.attrs:
        return shaped(op) if len(op.operands) == 1 else general(op)
    fast = unary(op) if len(op.operands) == 1 else binary(op)
    if op.plain:
        return fast
    slow = general(op)

    def apply(*args, **kwargs):
        return fast(*args) if not kwargs and len(args) == count else slow(*args, **kwargs)

    count = len(op.operands)
    return apply


def operator(op: Op) -> Callable:
    """The function behind a Python operator: two operands, whatever further arguments the op's name takes."""
    return binary(op)


def create(op: Op, attrs: dict[str, Any]) -> Tensor:
    """Run an op that has no operands."""
    return run(op, Plan(op, (), attrs), ())
