"""Make of each record the plain Python function that users call, once.

`binary` and `unary` are the shapes that small programs are made of, written out so that an ordinary call does
only what it must: look up the plan, run the kernel, wrap the array, and where gradients are on note the
history.  The user's line is noted where an op saves something that could be changed (it costs as much as the
rest of the history together); under `detect_anomaly` for every op.
`shaped` serves ops with one operand and arguments (reductions, views), `ternary` three operands of which some
may be numbers, `joined` a sequence of tensors; `general` serves all others, and what these leave to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_not
from sys import _getframe
from typing import Any

from ..ir.errors import ArgumentError, DTypeError
from ..ir.op import Op
from ..ir.types import Type
from . import modes
from .below import Asked
from .dispatch import (
    INSTEAD,
    bound,
    first_time,
    instead,
    known_plan,
    lift,
    lifted,
    plan_for,
    run,
    run_general,
)
from .forms import FORMS, CallForm, Form, form_of, form_of_call
from .graph import Light, Saving
from .history import make_view, record
from .keys import ONCE, UNKNOWN, is_constant, picker, spelled, straight, told_apart
from .modes import CHANGED, local
from .on_device import share_memory
from .overriding import OPEN, UNSERVED, answered, met
from .places import USERS, here
from .plan import LIMIT, ByArguments, ByType, Plan, memo, remember
from .refusal import writer_of_out
from .storage import Inferred, Storage
from .tensor import OPERANDS, Tensor

new = object.__new__
EAGER: dict[Op, Callable] = {}


def binary(op: Op, spelled: bool = False) -> Callable:
    """A function of two operands and nothing else.

    spelled: by Python's operator, which leaves what is no operand of an op to its own class.
    """
    same: dict[Type, Plan] = memo()
    mixed: dict[tuple[Type, Type], Plan] = memo()
    wants = tuple(r.arrays if r else None for r in op.rules) or (None, None)
    first, second = op.operands
    number, compares = op.number, op.traits.compares
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
                kind = input._meta
                known = (kind.compared if compares else kind.scalars).get(other)
                other = known if known is not None else lift(kind, other, compares)
            elif not isinstance(input, Tensor) or not isinstance(other, Tensor):
                if (found := met(eager(op), (input, other), {})) is not UNSERVED:
                    return found
                if spelled and not isinstance(other, OPERANDS):
                    return NotImplemented
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

    code = apply.__code__  # the arguments are called as the operands: pow(x, exponent=2)
    apply.__code__ = code.replace(co_varnames=(first, second, *code.co_varnames[2:]))
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
    slow = general(op)
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

    def apply(input=UNSAID, *args, **kwargs):
        if kwargs and "out" in kwargs and input is not UNSAID:
            return _leaving(op, (input, *args), kwargs)
        if type(input) is not Tensor:
            if input is UNSAID:  # it stands among the others, under a name of its own
                return slow(**kwargs)
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
            if isinstance(x, Asked):  # its class answered with a plain tensor
                pass
            elif share_memory(data, x):  # NumPy's as_strided hides whose memory it shows
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
    if len(op.operands) == 1 and not op.attrs and op.operands[0] != "input":  # which `unary` calls it
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
    return binary(op, spelled=True)
