"""Run ops on tensors: operands become tensors, a call its plan, and what the plan's kernel made the result.

The functions that users call are made in calls.py, where what most calls are is written out; they leave to
these what is more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from math import inf
from typing import Any, NoReturn

import numpy as np

from ..ir.dtypes import DType, from_numpy_dtype, number_array
from ..ir.errors import ArgumentError, DTypeError, LaminaError
from ..ir.op import OF_NUMPY, Op, as_now
from ..ir.shapes import number_dtype, result_dtype
from ..ir.types import Type, type_of
from . import below, modes, on_device
from .autocasting import recast
from .compound import NoArray, served
from .forms import CallForm, Form, by_formulas, by_rules
from .graph import Port
from .history import make_view, record, storage_of
from .keys import spelled
from .levels import run_through
from .modes import CHANGED, local
from .places import spell
from .plan import Plan, described, memo, remember
from .refusal import flags_of, given, require_flags, told
from .return_types import return_type
from .storage import Inferred, Literal
from .tensor import NUMBERS, OPERANDS, Tensor, tensor_of, wrap

new = object.__new__
# By an op's name: what a call may be instead, from its first operand and its arguments; None where it isn't.
INSTEAD: dict[str, Callable[[Tensor, tuple, dict], Any]] = {}

# What a call that failed may be elsewise, from its operands and attributes; None where it isn't.
ELSEWISE: dict[str, Callable[..., Any]] = {}


# ---- operands ----------------------------------------------------------------------------------------------
def lift(kind: Type, value: Any, compared: bool = False) -> Tensor:
    """A Python number as a 0-d tensor of the dtype it takes beside an operand of `kind`.

    compared: one that integers there can't hold is infinite, and one beside halves is a half, as what stands
    there was rounded to one, too.  Raises ArgumentError for others.

    They are kept, as a bare one costs NumPy 280 ns a call: beside floating kinds by their value, zeros and
    those beside others by their text, as -0.0 == 0.0 and 1.0 == 1.
    """
    kept = type(value) is int or (type(value) is float and kind.dtype.category == "float")
    key = value if kept and value and kind.dtype.category == "float" else repr(value) if kept else None
    table = kind.compared if compared else kind.scalars
    if kept:
        known = table.get(key)
        if known is not None:
            return known
    given = value
    if isinstance(value, np.generic):
        if from_numpy_dtype(value.dtype) is None:
            raise ArgumentError(f"a number is needed beside {kind}, not NumPy's {value.dtype}")
        value = value.item()
    dtype = number_dtype(value, kind, compared=compared)
    try:
        data = number_array(value, dtype)
    except OverflowError:
        if compared:
            return lift(kind, inf if value > 0 else -inf)
        raise ArgumentError(f"the number {value} does not fit into {dtype}") from None
    if kind.device.type == "cuda":
        eager = on_device.eager()
        data = eager.uploaded_for_all(eager.machine_at(kind.device), data)
        kept = kept and len(kind.scalars) < 256  # work that is queued may still read those there
    made = wrap(data, type_of(dtype, (), kind.device))
    made._storage = Literal()
    if type(given) not in (bool, int, float, complex):
        made._storage.number = given
    if kept:
        if len(table) >= 256:
            table.clear()
        table[key] = made
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
            found.append(_of_array(x, kind))
        else:
            name = op.operands[min(i, len(op.operands) - 1)].lstrip("*")
            raise ArgumentError(
                f"{op.name}({', '.join(op.operands)}): {name} must be a tensor or a number, "
                f"not {type(x).__name__}"
            )
    return tuple(found)


def _of_array(x: np.ndarray, kind: Type | None) -> Tensor:
    """A NumPy array, as rules have places to look at, where the tensors beside it are."""
    made = tensor_of(x)
    return made if kind is None or kind.device.type != "cuda" else made.to(kind.device)


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
    try:
        x = operands[0]._data
        if len(operands) == 1:
            made._data = data = kernel(x, **attrs)
        elif len(operands) == 2:
            made._data = data = kernel(x, operands[1]._data, **attrs)
        else:
            made._data = data = kernel(*[y._data for y in operands], **attrs)
    except Exception:  # tensors of no one array, or the plan's kernel says why
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
    if plan.out.device.type == "meta":
        modes.tell("refuse", "a tensor on the meta device has no values")
    if modes.local.allowance is not None:
        modes.local.allowance.ask(op, plan.types, plan.outs)
    if modes.local.timing is not None:
        found = modes.local.timing.of_op(_computed, op, plan, operands)
    else:
        found = _computed(op, plan, operands)
    if modes.local.streams is not None:
        on_device.streamed().mark(found)
    return found


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
        elif on_device.share_memory(a, base):
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
    return named(op)(outputs) if len(op.outputs) == len(outputs) else outputs  # "*updated": any number


_named: dict[Op, Callable] = {}


def named(op: Op) -> Callable:
    """What makes a tuple of an op's several outputs: fields by the record's names, as `max(x, 0).indices`."""
    made = _named.get(op)
    if made is None:
        made = _named[op] = return_type(op.name, op.outputs)._make  # not by the type, which takes more forms
    return made


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


def _no_operand(op: Op, given: Iterable[tuple[str, Any]]) -> ArgumentError | None:
    """What to say of a call that failed, if an operand is something else than a tensor."""
    call = f"{op.name}({', '.join(op.operands)})"
    for name, x in given:
        if f"*{name}" in op.operands and isinstance(x, (tuple, list)):
            odd = [item for item in x if not isinstance(item, (Tensor, np.ndarray))]
            if odd:
                return ArgumentError(f"{call}: {name} must hold tensors, not {type(odd[0]).__name__}")
        elif name in op.operands and not isinstance(x, OPERANDS):
            if x is not None or name not in op.optional:
                return ArgumentError(f"{call}: {name} must be a tensor, not {type(x).__name__}")
    return None


def torch_names(op: Op, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments by their names in PyTorch, which takes NumPy's as well."""
    if kwargs.keys().isdisjoint(OF_NUMPY):
        return kwargs
    own = (*op.operands, *op.attrs)
    return {name if name in own else OF_NUMPY.get(name, name): value for name, value in kwargs.items()}
