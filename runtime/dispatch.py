"""Runs ops on tensors: turns each record into a plain Python function, once.

`binary` and `unary` are the shapes that small programs are made of, written out so that an ordinary call does only
what it must: look up the plan, run the kernel, wrap the array, and where gradients are on note the history.
`shaped` serves ops with one operand and arguments (reductions, views); `general` serves all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import _getframe
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, LaminaError
from ..ir.op import Op
from ..ir.shapes import scalar_dtype
from ..ir.types import Type, type_of
from . import modes
from .graph import Node, Port
from .places import _internal, here, spell
from .plan import Plan, described, remember
from .storage import Storage
from .tensor import Tensor, tensor_of, wrap

new = object.__new__
NUMBERS = (bool, int, float, np.generic)
EAGER: dict[Op, Callable] = {}


# ---- operands ------------------------------------------------------------------------------------------------------
def lift(kind: Type, value: Any) -> Tensor:
    """A Python number as a 0-d tensor of the dtype it takes beside an operand of `kind`.

    Kept per kind, as a bare float costs NumPy 280 ns.  Only where the key says all: -0.0 equals 0.0, 1 equals True.
    """
    exact = value and type(value) is (float if kind.dtype.category == "float" else int)
    if exact:
        known = kind.scalars.get(value)
        if known is not None:
            return known
    if isinstance(value, np.generic):
        value = value.item()
    dtype = scalar_dtype(kind.dtype, value)
    try:
        data = np.asarray(value, dtype.numpy)
    except OverflowError:
        raise ArgumentError(f"the number {value} does not fit into {dtype}") from None
    made = wrap(data, type_of(dtype, (), kind.device))
    if exact:
        if len(kind.scalars) >= 256:
            kind.scalars.clear()
        kind.scalars[value] = made
    return made


def lifted(op: Op, operands: Sequence[Any]) -> tuple[Tensor | None, ...]:
    """Every operand as a tensor: numbers beside the first tensor, arrays as they are.  Raises ArgumentError."""
    kind = None
    for x in operands:
        if isinstance(x, Tensor):
            if kind is None or (x._meta.ndim and not kind.ndim):
                kind = x._meta
    found: list[Tensor | None] = []
    for i, x in enumerate(operands):
        if isinstance(x, Tensor):
            found.append(x)
        elif x is None and (op.variadic or op.operands[i] in op.optional):
            found.append(None)
        elif isinstance(x, NUMBERS):
            found.append(lift(kind, x) if kind is not None else tensor_of(x))
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
    try:
        return Plan(op, tuple([None if x is None else x._meta for x in operands]), attrs)
    except LaminaError as error:
        raise described(error, op, operands, describe) from None


# ---- history -------------------------------------------------------------------------------------------------------
def storage_of(x: Tensor) -> Storage:
    found = x._storage
    if found is None:
        found = x._storage = Storage()
    return found


def record(plan: Plan, operands: tuple, outputs: tuple, arrays: tuple, place: Any) -> None:
    """Give the outputs of a differentiable op their history.  `arrays` holds hidden outputs as well."""
    edges = tuple([x._node if x is not None and f else None for x, f in zip(operands, plan.floats, strict=True)])
    needs = tuple([e is not None for e in edges])
    if True not in needs:
        return
    op = plan.op
    n = new(Node)
    n.plan, n.edges, n.place, n.hooks = plan, edges, place, None
    saved: list[Any] = []
    stores: list[Storage] = []
    for keep, (is_operand, at) in zip(plan.keeps(needs), plan.sources, strict=True):
        if not keep:
            saved.append(None)
        elif not is_operand:
            saved.append(arrays[at])
            if at < len(outputs):
                stores.append(storage_of(outputs[at]))
        elif op.variadic and at == len(op.operands) - 1:
            saved.append(tuple([None if x is None else x._data for x in operands[at:]]))
            stores.extend([storage_of(x) for x in operands[at:] if x is not None])
        elif operands[at] is None:
            saved.append(None)
        else:
            saved.append(operands[at]._data)
            stores.append(storage_of(operands[at]))
    n.saved, n.stores = tuple(saved), tuple(stores)
    n.versions = tuple([s.version for s in stores])
    if len(arrays) == 1:
        outputs[0]._node = n
    else:
        for k, out in enumerate(outputs):
            if out._meta.dtype.category == "float":
                out._node = Port(n, k)


def make_view(out: Tensor, base: Tensor, link: tuple) -> None:
    """Tie a view to the tensor whose memory it shares: same storage, and the way to get it from there again."""
    store = base._storage
    if store is None:
        store = base._storage = Storage()
    out._storage = store
    parent = base._view
    out._view = (base, link) if parent is None else (parent[0], parent[1] + link)
    store.add_view(out)


def run(op: Op, plan: Plan, operands: tuple, place: Any = None) -> Any:
    """Execute a plan on tensors, with history, views and the thread's hook."""
    arrays = plan.kernel(*[None if x is None else x._data for x in operands])
    if type(arrays) is not tuple:
        arrays = (arrays,)
    outputs = tuple([wrap(a, t) for a, t in zip(arrays, plan.outs, strict=True)][: len(op.outputs)])
    if op.traits.view:
        base = operands[0]._data
        a = arrays[0]
        if a is base or (a.base is not None and (a.base is base or a.base is base.base)):
            make_view(outputs[0], operands[0], plan.link)
    if not modes.CHANGED or modes.is_grad_enabled():
        if op.differentiable:
            record(plan, operands, outputs, arrays, place or here(2))
    if modes.CHANGED and modes.local.hook is not None:
        modes.local.hook(op, plan.attrs, operands, outputs)
    return outputs[0] if len(outputs) == 1 else named(op)(*outputs)


_named: dict[Op, Callable] = {}


def named(op: Op) -> Callable:
    """The tuple type that an op of several outputs returns: fields by the record's names, as `max(x, 0).indices`."""
    made = _named.get(op)
    if made is None:
        from collections import namedtuple

        made = _named[op] = namedtuple(op.name, op.outputs)
    return made


# ---- the shapes of functions ---------------------------------------------------------------------------------------
def binary(op: Op) -> Callable:
    """A function of two operands and nothing else."""
    same: dict[Type, Plan] = {}
    mixed: dict[tuple[Type, Type], Plan] = {}
    saves = op.saves
    shorthand = bool(op.rules) and all(op.rules)
    saves_both = shorthand and saves == op.operands and all(
        r.arrays == (saves[1 - i],) or r.arrays == saves for i, r in enumerate(op.rules)
    )  # fmt: skip
    saves_none = shorthand and saves == ()

    def apply(input, other):
        if type(input) is not Tensor or type(other) is not Tensor:
            if not isinstance(input, Tensor) or not isinstance(other, Tensor):
                input, other = lifted(op, (input, other))
        m, p = input._meta, other._meta
        if m is p:
            plan = same.get(m)
            if plan is None:
                plan = remember(same, m, plan_for(op, (input, other), {}))
        else:
            plan = mixed.get((m, p))
            if plan is None:
                plan = remember(mixed, (m, p), plan_for(op, (input, other), {}))
        if modes.CHANGED and (modes.local.hook is not None or not modes.is_grad_enabled()):
            return run(op, plan, (input, other))
        x, y = input._data, other._data
        data = plan.kernel(x, y)
        out = new(Tensor)
        out._data, out._meta, out._storage, out._view = data, plan.out, None, None
        a, b = input._node, other._node
        if a is None and b is None:
            out._node = None
            return out
        if saves_none:
            saved = stores = versions = ()
        elif saves_both and a is not None and b is not None:
            saved = x, y
            s, t = input._storage, other._storage
            if s is None:
                s = input._storage = Storage()
            if t is None:
                t = other._storage = Storage()
            stores, versions = (s, t), (s.version, t.version)
        else:
            out._node = None
            record(plan, (input, other), (out,), (data,), here(2))
            return out
        n = out._node = new(Node)
        n.plan, n.edges, n.saved, n.stores, n.versions, n.hooks = plan, (a, b), saved, stores, versions, None
        frame = _getframe(1)
        code = frame.f_code
        n.place = (code, frame.f_lasti) if _internal.get(code.co_filename) is False else here(2)
        return out

    return apply


def unary(op: Op) -> Callable:
    """A function of one operand and nothing else."""
    plans: dict[Type, Plan] = {}
    saves = op.saves
    shorthand = len(op.rules) == 1 and op.rules[0] is not None
    saves_out, saves_in, saves_none = saves == op.outputs, saves == op.operands, saves == ()

    def apply(input):
        if type(input) is not Tensor and not isinstance(input, Tensor):
            (input,) = lifted(op, (input,))
        m = input._meta
        plan = plans.get(m)
        if plan is None:
            plan = remember(plans, m, plan_for(op, (input,), {}))
        if modes.CHANGED and (modes.local.hook is not None or not modes.is_grad_enabled()):
            return run(op, plan, (input,))
        x = input._data
        data = plan.kernel(x)
        out = new(Tensor)
        out._data, out._meta, out._storage, out._view, out._node = data, plan.out, None, None, None
        a = input._node
        if a is None:
            return out
        if not shorthand:
            record(plan, (input,), (out,), (data,), here(2)) if op.differentiable else None
            return out
        if saves_out:
            s = out._storage = Storage()
            saved, stores, versions = (data,), (s,), (0,)
        elif saves_in:
            s = input._storage
            if s is None:
                s = input._storage = Storage()
            saved, stores, versions = (x,), (s,), (s.version,)
        elif saves_none:
            saved = stores = versions = ()
        else:
            record(plan, (input,), (out,), (data,), here(2))
            return out
        n = out._node = new(Node)
        n.plan, n.edges, n.saved, n.stores, n.versions, n.hooks = plan, (a,), saved, stores, versions, None
        frame = _getframe(1)
        code = frame.f_code
        n.place = (code, frame.f_lasti) if _internal.get(code.co_filename) is False else here(2)
        return out

    return apply


def shaped(op: Op) -> Callable:
    """A function of one operand and arguments.  The memo is keyed by the arguments as the user spelled them."""
    plans: dict[Any, Plan] = {}
    bind, is_view = op.bind, op.traits.view
    exact = not op.traits.elementwise  # elementwise arguments may be floats, for which 0.0 == -0.0 and 1 == 1.0

    def miss(input, key, args, kwargs):
        (operand,), attrs = bind(input, *args, **kwargs)
        plan = plan_for(op, (operand,), attrs)
        if exact and key is not None:
            remember(plans, key, plan)
        return plan

    def apply(input, *args, **kwargs):
        if type(input) is not Tensor and not isinstance(input, Tensor):
            (input,) = lifted(op, (input,))
        try:
            key = (input._meta, args, tuple(kwargs.items())) if kwargs else (input._meta, args)
            plan = plans.get(key)
        except TypeError:  # a list among the arguments
            key = plan = None
        if plan is None:
            plan = miss(input, key, args, kwargs)
        if modes.CHANGED and (modes.local.hook is not None or not modes.is_grad_enabled()):
            return run(op, plan, (input,))
        x = input._data
        data = plan.kernel(x)
        out = new(Tensor)
        out._data, out._meta, out._storage, out._view, out._node = data, plan.out, None, None, None
        if is_view:
            base = data.base
            if data is x or (base is not None and (base is x or base is x.base)):
                make_view(out, input, plan.link)
        a = input._node
        if a is not None and plan.floats[0]:
            n = out._node = new(Node)
            n.plan, n.edges, n.saved, n.stores, n.versions, n.hooks = plan, (a,), (), (), (), None
            frame = _getframe(1)
            code = frame.f_code
            n.place = (code, frame.f_lasti) if _internal.get(code.co_filename) is False else here(2)
        return out

    def apply_saving(input, *args, **kwargs):
        if not isinstance(input, Tensor):
            (input,) = lifted(op, (input,))
        try:
            key = (input._meta, args, tuple(kwargs.items()))
            plan = plans.get(key)
        except TypeError:
            key = plan = None
        return run(op, plan or miss(input, key, args, kwargs), (input,))

    saves_none = op.saves == () and len(op.all_outputs) == 1 and (not op.differentiable or bool(op.rules))
    return apply if saves_none else apply_saving


def run_general(op: Op, operands: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Run an op that is bound already, through the memo of canonical arguments."""
    if not all([isinstance(x, Tensor) for x in operands]):
        operands = lifted(op, operands)
    plans = _general.get(op)
    if plans is None:
        plans = _general[op] = {}
    key: Any = tuple([None if x is None else x._meta for x in operands])
    if attrs:
        key = (key, tuple(attrs.values()))
        if op.traits.elementwise:
            key = repr(key)  # tells 1 from 1.0 and 0.0 from -0.0
    plan = plans.get(key)
    if plan is None:
        plan = remember(plans, key, plan_for(op, tuple(operands), attrs))
    return run(op, plan, tuple(operands))


_general: dict[Op, dict] = {}


def general(op: Op) -> Callable:
    """A function of any operands and arguments."""
    bind = op.bind

    def apply(*args, **kwargs):
        operands, attrs = bind(*args, **kwargs)
        return run_general(op, operands, attrs)

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
    if op.variadic or op.optional or len(op.operands) not in (1, 2) or len(op.all_outputs) > 1:
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
