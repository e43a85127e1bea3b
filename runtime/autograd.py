"""Backward: walks history once, from the outputs to the leaves.

Counts and cotangents belong to the *run*, not to the nodes, so an exception, a second thread or a hook that
runs another backward leaves everything usable.  The walk is iterative: a chain of a million nodes is no
deeper than one.

Cotangents are plain arrays where the operands of a step were small, on the CPU and of one floating dtype, and
tensors otherwise (and always under create_graph, where they have a history of their own).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from ..ir.dtypes import ALL, float64
from ..ir.errors import ArgumentError, DTypeError, GradError, InplaceError, ShapeError
from ..ir.locks import fork_safe_lock
from ..ir.op import REGISTRY
from ..ir.shapes import fitting
from ..ir.types import Type, type_of
from . import modes
from .graph import Edge, Leaf, Node, Port
from .places import line_of, spell
from .plan import fit_array
from .storage import Storage
from .tensor import Retained, Tensor, wrap

ndarray, asarray, new = np.ndarray, np.asarray, object.__new__
_accumulating = fork_safe_lock()  # held for one addition into a leaf's gradient


def counted(g: Any) -> tuple[int, int]:
    """How many references there are to the array of a cotangent, and to the cotangent."""
    array = g if type(g) is ndarray else g._data
    return getrefcount(array), getrefcount(g)


def _alone(g: Any) -> tuple[int, int]:
    return counted(g)


# What `counted` says where one variable of its caller's caller, and nothing else, holds the cotangent: an
# array, or a tensor.  Found out by counting, as it differs between versions of Python.
def _calibrated() -> tuple[tuple[int, int], tuple[int, int]]:
    array = np.zeros(1)
    tensor = wrap(np.zeros(1), type_of(float64, (1,)))
    return _alone(array), _alone(tensor)


ARRAY_ALONE, TENSOR_ALONE = _calibrated()


def _given(g: Any) -> int:
    return getrefcount(g)


def _lone() -> int:
    h = np.zeros(1)
    return _given(h)


GIVEN = _lone()  # the same for an array that a function was given, asked inside it


# ---- checks ------------------------------------------------------------------------------------------------
def changed(node: Node) -> InplaceError | GradError:
    """Why the saved values of `node` can't be used."""
    if node.saved is None:
        return GradError(
            "backward through the same history a second time: what it saved was freed by the first",
            f"saved by      {node.name:<8} {spell(node.place)}",
            "to go through twice: pass retain_graph=True the first time",
        )
    guards = zip(node.guards[::2], node.guards[1::2], strict=True)
    store = next(s for s, v in guards if s.version != v)
    writer, place = store.writer or ("an op", None)
    line = f"before line {line_of(place)[1]}" if place is not None else "before that"
    return InplaceError(
        "a tensor saved for backward was changed in place",
        f"saved by      {node.name:<8} {spell(node.place)}",
        f"changed by    {writer:<8} {spell(place) if place is not None else 'an unknown line'}",
        f"to keep both: write y = {_out_of_place(writer)}, or clone() {line}",
    )


def check(node: Node) -> None:
    """Raise InplaceError where a saved tensor has been written since."""
    guards = node.guards
    for i in range(0, len(guards), 2):
        if guards[i].version != guards[i + 1]:
            raise changed(node)


def refuse_nan(node: Node, cotangents: Sequence[Any]) -> None:
    """Raise GradError where a gradient rule gave NaN."""
    for i, h in enumerate(cotangents):
        array = h._data if isinstance(h, Tensor) else h
        if array is not None and np.isnan(array).any():
            raise GradError(f"the gradient of {node.name} to operand {i} is NaN")


def noted(error: Exception, node: Node) -> Exception:
    """The error of a gradient rule, with the line whose gradient it was."""
    if not any("while differentiating" in n for n in getattr(error, "__notes__", ())):
        error.add_note(f"while differentiating {node.name}  {spell(node.place)}")
    return error


def _out_of_place(writer: str) -> str:
    plain = {"add_": "y + …", "sub_": "y - …", "mul_": "y * …", "div_": "y / …"}
    return plain.get(writer, f"y.{writer.rstrip('_')}(…)" if writer.endswith("_") else "a new tensor")


# ---- one step ----------------------------------------------------------------------------------------------
def fit_tensor(h: Tensor, kind: Type) -> Tensor:
    """The same for a tensor, by ops, so that it has a history where gradients are on."""
    if h._meta is kind:
        return h
    if h._meta.shape != kind.shape:
        how = fitting(h._meta.shape, kind.shape)
        if how is not None:
            dims, shape = how
            if dims:
                h = REGISTRY["reshape"](REGISTRY["sum"](h, dim=dims), shape)
            else:
                h = REGISTRY["expand"](h, shape)
    if h._meta.dtype is not kind.dtype:
        h = REGISTRY["cast"](h, dtype=kind.dtype)
    return h


def unpack(n: Node, create: bool) -> tuple:
    """What `n` saved, as tensors; with their histories where `create`."""
    plan, found = n.plan, []
    stores = iter(n.guards[::2])  # of what was saved, in that order, but of hidden outputs
    for value, (is_operand, at) in zip(n.saved or (), plan.sources, strict=True):
        if value is None:
            found.append(None)
        elif isinstance(value, Tensor):
            next(stores)
            found.append(value)
        elif type(value) is tuple:
            found.append(
                tuple(
                    None
                    if v is None
                    else _rebuilt(v, plan.types[k], n.edges[k] if create else None, next(stores))
                    for k, v in enumerate(value, at)
                )
            )
        elif is_operand:
            found.append(_rebuilt(value, plan.types[at], n.edges[at] if create else None, next(stores)))
        else:
            kind, hidden = plan.outs[at], at >= len(plan.op.outputs)
            edge = None
            if create and kind.dtype.is_floating_point:
                edge = n if at == 0 and len(plan.op.outputs) == 1 else Port(n, at)
            found.append(_rebuilt(value, kind, edge, None if hidden else next(stores)))
    return tuple(found)


def _rebuilt(data: np.ndarray, kind: Type, edge: Edge | None, store: Storage | None) -> Tensor:
    """A saved tensor again; of its old storage, so that what saves it once more sees a later write."""
    made = wrap(data, kind)
    made._edge, made._storage = edge, store
    return made


def as_tensor(g: Any) -> Any:
    """A cotangent as a tensor; None stays None."""
    if g is None or isinstance(g, Tensor):
        return g
    from_dtype = _kinds[g.dtype]
    return wrap(g, type_of(from_dtype, g.shape))


_kinds = {d.numpy: d for d in ALL}


def step(n: Node, g: Any, create: bool) -> Sequence[Any]:
    """The cotangents of the operands of `n`, fitted; `g` is its cotangent, or a list of one per output."""
    plan, edges = n.plan, n.edges
    if plan.foreign:
        user_code(create)
    types, needs = plan.types, [e is not None for e in edges]
    gs = g if type(g) is list else [g, *plan.unused]
    if plan.small and not create:
        gs = [x._data if isinstance(x, Tensor) else x for x in gs]
        if plan.rules is not None:
            hs: Iterable = [
                rule(gs[0], n.saved) if need else None for rule, need in zip(plan.rules, needs, strict=True)
            ]
        else:
            hs = plan.op.vjp(n.saved, tuple(gs), plan.attrs, tuple(needs))
        return [
            fit_array(h._data if isinstance(h, Tensor) else h, t) if need and h is not None else None
            for h, t, need in zip(hs, types, needs, strict=True)
        ]
    gs = [as_tensor(x) for x in gs]
    saved = unpack(n, create)
    if plan.rules is not None:
        hs = [rule(gs[0], saved) if need else None for rule, need in zip(plan.rules, needs, strict=True)]
    else:
        hs = plan.op.vjp(saved, tuple(gs), plan.attrs, tuple(needs))
    return [
        fit_tensor(as_tensor(h), t) if need and h is not None else None
        for h, t, need in zip(hs, types, needs, strict=True)
    ]


def run_hooks(e: Edge, g: Any, create: bool) -> Any:
    """Hand a cotangent to the hooks of the value it belongs to; what they return takes its place."""
    user_code(create)
    index = e.index if type(e) is Port else 0
    hooks = (e.hooks or {}).get(index, ())
    for hook in sorted(hooks, key=lambda hook: type(hook) is Retained):  # what is retained is what goes on
        x = as_tensor(g)
        new = hook(x)
        if new is not None:
            if not isinstance(new, Tensor):
                raise ArgumentError(f"a gradient hook must return a tensor or None, not {type(new).__name__}")
            if new._meta.shape != x._meta.shape:
                raise ShapeError(
                    "a gradient hook must keep the gradient's shape",
                    f"got: {x._meta}",
                    f"returned: {new._meta}",
                )
            g = new
    return g


def accumulate(e: Leaf, g: Any, create: bool) -> None:
    """Add a cotangent into a leaf's gradient, whose memory no other leaf and nothing else shares."""
    if e.kind is None:  # its tensor stopped asking
        return
    plain = type(g) is ndarray and not create and not e.after
    if plain and e.grad is None and getrefcount(g) <= GIVEN and g.base is None:
        made = new(Tensor)  # the common case: a fresh array that nobody else holds
        made._data, made._meta = g, e.kind
        made._edge = made._storage = made._view = None
        with _accumulating:
            if e.grad is None:
                e.grad = made
                return
    if create:
        g = as_tensor(g)
        with _accumulating:
            e.grad = REGISTRY["clone"](g) if e.grad is None else e.grad + g
    else:
        # Ours alone: one reference from our caller's variable, and no other array over the same memory.
        references = counted(g)
        if type(g) is ndarray:
            array, alone = g, references <= ARRAY_ALONE
        else:
            array, alone = g._data, references[0] <= TENSOR_ALONE[0] and references[1] <= TENSOR_ALONE[1]
        alone = alone and array.base is None and array.flags.writeable
        with _accumulating:
            old = e.grad
            if old is None:
                made = e.grad = new(Tensor)
                made._data, made._meta = array if alone else array.copy(), e.kind
                made._edge = made._storage = made._view = None
            elif old._edge is not None or not old._data.flags.writeable:
                e.grad = wrap(asarray(old._data + array), e.kind)
            else:
                np.add(old._data, array, out=old._data)
                if old._storage is not None:
                    old._storage.version += 1
    if e.after:
        user_code(create)
        for hook in tuple(e.after):
            owner = e.owner()
            if owner is not None:
                hook(owner)


# ---- the walk ----------------------------------------------------------------------------------------------
def reachable(starts: Iterable[Edge]) -> dict[Edge, int]:
    """Every edge that the starts lead to, with the number of cotangents that it waits for."""
    counts: dict[Edge, int] = {}
    stack: list[Edge] = []
    for start in starts:
        if start not in counts:
            counts[start] = 0
            stack.append(start)
    pop, push = stack.pop, stack.append
    while stack:
        for e in pop().edges:
            if e is not None:
                if e in counts:
                    counts[e] += 1
                else:
                    counts[e] = 1
                    if type(e) is not Leaf:
                        push(e)
    return counts


def towards(starts: Iterable[Edge], targets: set[Edge]) -> set[Edge]:
    """The edges that lie between the starts and the targets, targets included."""
    order: list[Edge] = []
    seen: set[Edge] = set()
    stack: list[tuple[Edge, bool]] = [(s, False) for s in starts]
    while stack:
        e, done = stack.pop()
        if done:
            order.append(e)
        elif e not in seen:
            seen.add(e)
            stack.append((e, True))
            stack.extend((x, False) for x in e.edges if x is not None)
    found = set(targets)
    for e in order:  # operands stand before what was made of them
        if any(x is not None and x in found for x in e.edges):
            found.add(e)
    return found


def walk(
    seeds: Sequence[tuple[Edge, Any]], *, retain: bool, create: bool, targets: set[Edge] | None, leaves: bool
) -> dict[Edge, Any]:
    """Push the seeds' cotangents through history; return those that arrive at `targets`.

    leaves: whether leaves accumulate them (those in `targets`, if any are given).
    """
    starts = [e for e, _ in seeds]
    counts = reachable(starts)
    needed = None if targets is None else towards(starts, targets)
    captured: dict[Edge, Any] = {}
    cotangents: dict[Edge, Any] = {}
    for e, g in seeds:
        cotangents[e] = g if e not in cotangents else plus(cotangents[e], g)
    ready = [e for e in dict.fromkeys(starts) if not counts[e]]
    pop, push, arrived = ready.pop, ready.append, cotangents.get
    sums: set[Edge] = set()
    anomaly = bool(modes.CHANGED) and modes.local.anomaly
    ordinary = not create and targets is None and not anomaly
    while ready:
        e = pop()
        g = cotangents.pop(e, None)
        kind = type(e)
        if kind is Leaf:
            if g is not None and (targets is None or e in targets):
                if e.hooks:
                    g = run_hooks(e, g, create)
                if leaves:
                    accumulate(e, g, create)
                else:
                    captured[e] = g
            continue
        if kind is Port:
            if g is not None and e.hooks and (needed is None or e in needed):
                g = run_hooks(e, g, create)
            if targets is not None and e in targets and g is not None:
                captured[e] = g
            below = e.node
            if g is not None:
                slots = arrived(below)
                if type(slots) is not list:
                    slots = cotangents[below] = [slots] + [None] * (len(below.plan.outs) - 1)
                slots[e.index] = g if slots[e.index] is None else plus(slots[e.index], g)
            left = counts[below] = counts[below] - 1
            if not left:
                push(below)
            slots = g = None
            continue
        plan = e.plan
        rules = plan.quick
        if rules is not None and ordinary and e.hooks is None and type(g) is ndarray:
            # The common case of `step`, written out: a third of its time.
            saved, guards = e.saved, e.guards
            if guards:
                if saved is None:
                    raise changed(e)
                if len(guards) == 2:
                    store, version = guards
                    if store.version != version:
                        raise changed(e)
                elif len(guards) == 4:
                    store, version, other, then = guards
                    if store.version != version or other.version != then:
                        raise changed(e)
                else:
                    check(e)
            try:
                for x, rule in zip(e.edges, rules):  # as long as each other, and hot
                    if x is not None:
                        h = rule(g, saved)
                        c = arrived(x)
                        left = counts[x]
                        if left == 1:  # this was the last it waited for
                            if c is None and type(x) is Leaf and x.hooks is None:
                                accumulate(x, h, False)
                                continue
                            push(x)
                        else:
                            counts[x] = left - 1
                        if c is None:
                            cotangents[x] = h
                        elif type(c) is ndarray:
                            c = c + h
                            cotangents[x] = c if type(c) is ndarray else asarray(c)
                        else:
                            cotangents[x] = plus(c, h)
            except Exception as error:
                noted(error, e)
                raise
            if guards and not retain:
                e.saved = None
            h = c = g = saved = None  # so that a leaf can tell whether it alone holds its cotangent
            continue
        if plan.raw_vjp is not None and ordinary and e.hooks is None and type(g) is ndarray:
            edges, guards = e.edges, e.guards
            if guards:
                if e.saved is None:
                    raise changed(e)
                check(e)
            try:
                needs = tuple([x is not None for x in edges])
                hs = plan.raw_vjp(e.saved, (g, *plan.unused), plan.attrs, needs)
                i = 0
                for x in edges:
                    if x is not None:
                        h = hs[i]
                        if h is not None:
                            h = fit_array(h, plan.types[i])
                            c = arrived(x)
                            cotangents[x] = h if c is None else plus(c, h)
                        left = counts[x] = counts[x] - 1
                        if not left:
                            push(x)
                    i += 1
            except Exception as error:
                noted(error, e)
                raise
            if guards and not retain:
                e.saved = None
            hs = h = c = g = None
            continue
        if e.hooks and g is not None and (needed is None or e in needed):
            if type(g) is not list:
                g = run_hooks(e, g, create)
            elif len(plan.op.outputs) == 1 and g[0] is not None:  # others are hidden; else the ports did it
                g[0] = run_hooks(e, g[0], create)
        if targets is not None and e in targets and g is not None:
            captured[e] = g[0] if type(g) is list else g
        edges, guards = e.edges, e.guards
        if g is None or (needed is not None and not any(x in needed for x in edges if x is not None)):
            hs = (None,) * len(edges)
        else:
            if e.saved is None:
                raise changed(e)
            check(e)
            try:
                hs = step(e, g, create)
                if anomaly:
                    refuse_nan(e, hs)
            except Exception as error:
                noted(error, e)
                raise
            if not retain and guards:
                e.saved = None
        for x, h in zip(edges, hs, strict=True):
            if x is not None:
                if h is not None:
                    c = arrived(x)
                    if c is None:
                        cotangents[x] = h
                    elif x in sums:
                        add_into(c, h)
                    else:
                        cotangents[x] = plus(c, h)
                        if not create and type(c) is not list:
                            sums.add(x)  # a fresh sum: nobody else holds it, and what comes is added into it
                left = counts[x] = counts[x] - 1
                if not left:
                    push(x)
        hs = h = c = g = saved = None
    return captured


def plus(a: Any, b: Any) -> Any:
    """The sum of two cotangents of a value; where `a` is a list, one per output, `b` is for the first."""
    if type(a) is list:
        a[0] = b if a[0] is None else plus(a[0], b)
        return a
    if type(a) is ndarray and type(b) is ndarray:
        return asarray(a + b)
    return as_tensor(a) + as_tensor(b)


def add_into(total: Any, h: Any) -> None:
    """Add a cotangent into a sum of cotangents."""
    array = total if type(total) is ndarray else total._data
    np.add(array, h if type(h) is ndarray else h._data, out=array)


# ---- the public face ---------------------------------------------------------------------------------------
def _seed(output: Tensor, gradient: Any) -> Any:
    """The cotangent to start with."""
    if not isinstance(output, Tensor):
        raise ArgumentError(f"backward starts from tensors, not {type(output).__name__}")
    if output._node is None:
        raise GradError(
            "backward from a tensor that does not require gradients",
            f"tensor: {output._meta}",
            "no operand of what made it did, or it was made under no_grad() or detached",
        )
    if gradient is None:
        if output._data.size != 1:
            raise GradError(
                "backward without a gradient can only start from one element",
                f"tensor: {output._meta}",
                "reduce it (x.sum().backward()) or pass gradient=…",
            )
        return np.ones(output._meta.shape, output._meta.dtype.numpy)
    if not isinstance(gradient, Tensor):
        raise ArgumentError(f"gradient must be a tensor or None, not {type(gradient).__name__}")
    if gradient._meta.shape != output._meta.shape:
        raise ShapeError(
            "the gradient must have the shape of the output it belongs to",
            f"output: {output._meta}",
            f"gradient: {gradient._meta}",
        )
    if not gradient._meta.dtype.is_floating_point:
        raise DTypeError("the gradient must be floating", f"gradient: {gradient._meta}")
    return fit_tensor(gradient, output._meta)


def _run(outputs, gradients, *, retain: bool | None, create: bool, targets, leaves: bool) -> dict:
    if len(outputs) != len(gradients):
        raise ArgumentError(f"{len(outputs)} outputs need as many gradients, not {len(gradients)}")
    before = modes.local.grad if modes.CHANGED else True
    if create and not before:
        modes.update(grad=True)
    # Otherwise gradients are turned off only where the user's own code runs (`user_code`): what Lamina's
    # rules see has no history, so they record none.
    try:
        pairs = zip(outputs, gradients)
        seeds = [(x._node, _seed(x, g)) if isinstance(x, Tensor) else _seed(x, g) for x, g in pairs]
        retain = create if retain is None else retain
        return walk(seeds, retain=retain, create=create, targets=targets, leaves=leaves)
    finally:
        if modes.CHANGED and modes.local.grad is not before:
            modes.update(grad=before)


def user_code(create: bool) -> None:
    """Turn gradients off for what is left of this run, as hooks and custom functions expect."""
    if not create and modes.local.grad:
        modes.update(grad=False)


def _listed(x: Any) -> tuple:
    return (x,) if x is None or isinstance(x, Tensor) else tuple(x)


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None) -> None:
    """Add the gradients of `tensors` into the `.grad` of the leaves they came from.

    grad_tensors: the cotangents, one per tensor; may be missing for tensors of one element.  inputs: only
    into these. Raises GradError, ShapeError, InplaceError.
    """
    outputs = _listed(tensors)
    gradients = _listed(grad_tensors) if grad_tensors is not None else (None,) * len(outputs)
    targets = None
    if inputs is not None:
        inputs = _listed(inputs)
        if not inputs:
            raise ArgumentError("backward(inputs=[]): name at least one tensor, or leave it out")
        targets = set()
        for x in inputs:
            if x._node is None:
                raise GradError(
                    "backward(inputs=…): an input does not require gradients", f"input: {x._meta}"
                )
            if type(x._node) is not Leaf:
                x.retain_grad()
            targets.add(x._node)
    _run(outputs, gradients, retain=retain_graph, create=create_graph, targets=targets, leaves=True)


def grad(
    outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, only_inputs=True,
    allow_unused=None, is_grads_batched=False, materialize_grads=False,
) -> tuple:  # fmt: skip
    """The gradients of `outputs` with respect to `inputs`, without touching any `.grad`.

    allow_unused: return None for an input that the outputs do not depend on, in place of raising.
    Raises GradError, ShapeError, InplaceError.
    """
    if is_grads_batched:
        raise ArgumentError(
            "grad(is_grads_batched=True) is not supported", "call grad once for each cotangent"
        )
    outputs, inputs = _listed(outputs), _listed(inputs)
    gradients = _listed(grad_outputs) if grad_outputs is not None else (None,) * len(outputs)
    for x in inputs:
        if not isinstance(x, Tensor) or x._node is None:
            shown = x._meta if isinstance(x, Tensor) else type(x).__name__
            raise GradError("grad(outputs, inputs): an input does not require gradients", f"input: {shown}")
    targets = {x._node for x in inputs}
    found = _run(outputs, gradients, retain=retain_graph, create=create_graph, targets=targets, leaves=False)
    results = []
    for i, x in enumerate(inputs):
        g = found.get(x._node)
        if g is None and materialize_grads:
            # under create_graph to be differentiated like the others, though to nothing
            g = as_tensor(np.zeros(x._meta.shape, x._meta.dtype.numpy)).requires_grad_(create_graph)
        if g is None and not allow_unused:
            raise GradError(
                f"grad(outputs, inputs): the outputs do not depend on input {i}",
                f"input: {x._meta}",
                "pass allow_unused=True to get None for it",
            )
        if isinstance(g, ndarray) and not g.flags.writeable:
            g = g.copy()
        results.append(as_tensor(g))
    return tuple(results)


__all__ = ["backward", "grad"]
