"""Backward: walks history once, from the outputs to the leaves.

Counts and cotangents belong to the *run*, not to the nodes, so an exception, a second thread or a hook that
runs another backward leaves everything usable.  The walk is iterative: a chain of a million nodes is no
deeper than one.  What a node and a leaf do with a cotangent stands in step.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from sys import _getframe, getrefcount
from threading import get_ident
from types import FrameType
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError, GradError, ShapeError
from ..ir.op import REGISTRY
from ..ir.types import CPU
from . import modes, on_device
from .below import WRAPPED, outer, plain
from .compound import Compound, NoArray, of_values
from .graph import Edge, GradientEdge, Leaf, Port
from .levels import gradients as gradients_through
from .meta import NoValues
from .meta import array as nothing
from .plan import fit_array
from .step import (
    AFTER,
    BEFORE,
    HELD,
    accumulate,
    accumulating,
    add_into,
    as_tensor,
    changed,
    check,
    fit_tensor,
    noted,
    plus,
    refuse_nan,
    require_place,
    run_hooks,
    run_posthooks,
    run_prehooks,
    step,
    without_parts,
)
from .tensor import Tensor, apart, wrap

ndarray, asarray, add, new = np.ndarray, np.asarray, np.add, object.__new__


def reachable(starts: Iterable[Edge]) -> dict[Edge, int]:
    """Every edge that the starts lead to, with the number of cotangents that it waits for."""
    counts: dict[Edge, int] = {}
    stack: list[Edge] = []
    for start in starts:
        if start not in counts:
            counts[start] = 0
            stack.append(start)
    pop, push, known = stack.pop, stack.append, counts.get
    while stack:
        for e in pop().edges:
            if e is not None:
                count = known(e)
                if count is not None:
                    counts[e] = count + 1
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
    recording = modes.is_recording()
    timing = modes.local.timing if modes.CHANGED else None
    ordinary = not create and targets is None and not anomaly and not recording and timing is None
    one = step if timing is None else partial(timing.of_step, step)
    if on_device.apart and not recording:
        one = partial(on_device.streamed().step_on_its_stream, one)
    if recording and modes.local.stepping is not None:
        one = partial(modes.local.stepping, one)
    while ready:
        e = pop()
        g = cotangents.pop(e, None)
        kind = type(e)
        if kind is Leaf:
            if g is not None and (targets is None or e in targets):
                if e.hooks:
                    g = run_hooks(e, g, create)
                    if BEFORE in e.hooks and leaves:
                        g = run_prehooks(e, g, create)
                if leaves:
                    accumulate(e, g, create)
                    if e.hooks and AFTER in e.hooks:
                        run_posthooks(e, (), g, create)
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
                                fresh = getrefcount(h) <= HELD and h.base is None
                                if fresh and x.grad is None and x.after is None and x.kind is not None:
                                    made = new(Tensor)  # an array that nobody else holds becomes the gradient
                                    made._data, made._meta = h, x.kind
                                    made._edge = made._storage = made._view = None
                                    with accumulating:
                                        if x.grad is None:
                                            x.grad = made
                                            continue
                                accumulate(x, h, False)
                                continue
                            push(x)
                        else:
                            counts[x] = left - 1
                        if c is None:
                            cotangents[x] = h
                        elif type(c) is not ndarray:
                            cotangents[x] = plus(c, h)
                        elif x in sums:  # nobody else holds it
                            add(c, h, c)
                        else:
                            sums.add(x)
                            cotangents[x] = asarray(add(c, h))
            except Exception as error:
                noted(error, e)
                raise
            if guards and not retain:
                e.saved = None
            h = c = g = saved = None  # so that a leaf can tell whether it alone holds its cotangent
            continue
        if plan.native is not None and ordinary and e.hooks is None and type(g) is ndarray:
            edges, saved, guards = e.edges, e.saved, e.guards
            if guards:
                if saved is None:
                    raise changed(e)
                if len(guards) == 4:
                    store, version, other, then = guards
                    if store.version != version or other.version != then:
                        raise changed(e)
                else:
                    check(e)
            whole = plan.whole if None not in edges else None
            try:
                if whole is not None:
                    hs = whole(g, *(saved or ()))
                else:
                    native = plan.native.get(tuple([x is None for x in edges]))
                    hs = None if native is None else native(g, saved)
            except Exception as error:
                noted(error, e)
                raise
            if hs is not None:
                for x, h in zip(edges if whole is not None else [x for x in edges if x is not None], hs):
                    c = arrived(x)
                    left = counts[x]
                    if left == 1:
                        if c is None and type(x) is Leaf and x.hooks is None and x.after is None:
                            if x.grad is None and x.kind is not None:
                                made = new(Tensor)  # native code's results are new, and no views
                                made._data, made._meta = h, x.kind
                                made._edge = made._storage = made._view = None
                                with accumulating:
                                    if x.grad is None:
                                        x.grad = made
                                        continue
                        push(x)
                    else:
                        counts[x] = left - 1
                    if c is None:
                        cotangents[x] = h
                    elif type(c) is not ndarray:
                        cotangents[x] = plus(c, h)
                    elif x in sums:
                        add(c, h, c)
                    else:
                        sums.add(x)
                        cotangents[x] = asarray(add(c, h))
                if guards and not retain:
                    e.saved = None
                hs = h = c = g = saved = None
                continue
            saved = None
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
            if e.hooks and BEFORE in e.hooks:
                g = run_prehooks(e, g, create)
            if e.saved is None:
                raise changed(e)
            check(e)
            try:
                try:
                    hs = one(e, g, create)
                except NoArray:
                    hs = one(e, without_parts(g), create)
                if anomaly is True:
                    refuse_nan(e, hs)
                if e.hooks and AFTER in e.hooks:
                    hs = run_posthooks(e, hs, g, create)
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
                        if (
                            not create
                            and type(c) is not list
                            and not recording
                            and not isinstance(c, Compound)
                            and not isinstance(getattr(c, "_data", None), NoValues)
                        ):
                            sums.add(x)  # a fresh sum: nobody else holds it, and what comes is added into it
                left = counts[x] = counts[x] - 1
                if not left:
                    push(x)
        hs = h = c = g = saved = None
    return captured


# ---- the public face ---------------------------------------------------------------------------------------
def _seed(output: Tensor, gradient: Any) -> Any:
    """The cotangent to start with."""
    if not isinstance(output, (Tensor, _Place)):
        raise ArgumentError(f"backward starts from tensors, not {type(output).__name__}")
    if output._node is None:
        raise GradError(
            "backward from a tensor that does not require gradients",
            f"tensor: {output._meta}",
            "no operand of what made it did, or it was made under no_grad() or detached",
        )
    if gradient is None:
        if output._meta.dtype.is_complex:
            raise GradError(
                "grad can be implicitly created only for real scalar outputs: it is 1 of a real number",
                f"tensor: {output._meta}",
                "take a real one of it (x.abs().sum()), or pass gradient=…",
            )
        if output._meta.size != 1:
            raise GradError(
                "grad can be implicitly created only for scalar outputs: it is 1 of one element",
                f"tensor: {output._meta}",
                "reduce it (x.sum().backward()) or pass gradient=…",
            )
        if output._meta.device is WRAPPED or output._meta.device.type == "cuda":
            return REGISTRY["ones_like"](wrap(output._data, output._meta))
        if output._meta.device is not CPU:
            return wrap(nothing(output._meta), output._meta)
        ones = np.ones(output._meta.shape, output._meta.dtype.numpy)
        if modes.CHANGED:
            modes.tell("made", ones)
        return (
            output._spread(wrap(ones, output._meta))
            if isinstance(output, Compound) and output.by_parts
            else ones
        )
    if not isinstance(gradient, Tensor):
        raise ArgumentError(f"gradient must be a tensor or None, not {type(gradient).__name__}")
    if gradient._meta.shape != output._meta.shape:
        raise ShapeError(
            "the gradient must have the shape of the output it belongs to: Mismatch in shape",
            f"output: {output._meta}",
            f"gradient: {gradient._meta}",
        )
    if gradient._meta.dtype.is_complex is not output._meta.dtype.is_complex:
        raise DTypeError(
            "the gradient of a complex output is complex, that of a real one real: they are required to have "
            "the same dtype",
            f"output: {output._meta}",
            f"gradient: {gradient._meta}",
        )
    require_place(gradient, output._meta, "a gradient to start from")
    if isinstance(output, Compound):
        return output._spread(gradient)
    gradient = plain(gradient, [])
    return fit_tensor(gradient.to_dense() if isinstance(gradient, Compound) else gradient, output._meta)


def _run(outputs, gradients, *, retain: bool | None, create: bool, targets, leaves: bool) -> dict:
    if len(outputs) != len(gradients):
        raise ArgumentError(f"{len(outputs)} outputs need as many gradients, not {len(gradients)}")
    if modes.CHANGED:
        modes.tell("backward", outputs)
    before = modes.local.grad if modes.CHANGED else True
    outer = _waiting.pop(get_ident(), None) if _waiting else None  # of a walk that this one runs inside of
    # Otherwise gradients are turned off only where the user's own code runs (`user_code`): what Lamina's
    # rules see has no history, so they record none.
    try:
        if create and not before:
            modes.update(grad=True)
        pairs = zip(outputs, gradients)
        seeds = [(x._node, _seed(x, g)) if hasattr(x, "_node") else _seed(x, g) for x, g in pairs]
        retain = create if retain is None else retain
        found = walk(seeds, retain=retain, create=create, targets=targets, leaves=leaves)
        while waiting := _waiting.pop(get_ident(), None):
            for function in waiting:
                function()
        return found
    except BaseException:
        if gone := _waiting.pop(get_ident(), None):
            gone.clear()
        raise
    finally:
        if outer is not None:
            _waiting[get_ident()] = outer
        if modes.CHANGED and modes.local.grad is not before:
            try:
                modes.update(grad=before)
            except BaseException:  # an interrupt
                modes.update(grad=before)
                raise


_waiting: dict[int, list[Callable[[], None]]] = {}  # by thread: what is to be called when its walk is done


def when_done(function: Callable[[], None]) -> list[Callable[[], None]]:
    """Call this once the walk that goes on in this thread is done, unless it ends in an error.

    Returns what stands for that walk: a list, which is empty after an error.
    """
    waiting = _waiting.setdefault(get_ident(), [])
    waiting.append(function)
    return waiting


def is_walking() -> bool:
    """Whether this thread is in a walk now, by the functions that it is in: a walk itself marks nothing."""
    frame: FrameType | None = _getframe(1)
    while frame is not None:
        if frame.f_code is walk.__code__ or frame.f_code is _run.__code__:
            return True
        frame = frame.f_back
    return False


def waiting_here() -> list[Callable[[], None]] | None:
    """What stands for the walk that goes on in this thread, if anything waits for its end."""
    return _waiting.get(get_ident())


def _listed(x: Any) -> tuple:
    return (x,) if x is None or isinstance(x, (Tensor, GradientEdge)) else tuple(x)


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
            raise ArgumentError(
                "backward(inputs=[]): inputs cannot be empty", "name at least one tensor, or leave it out"
            )
        targets = set()
        for x in inputs:
            if type(x) is GradientEdge:
                targets.add(_Place(x)._node)
                continue
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
    is_grads_batched: grad_outputs have a dim in front, and so have the gradients: one for each, by vmap.
    Raises GradError, ShapeError, InplaceError.
    """
    outputs, inputs = _listed(outputs), _listed(inputs)
    if materialize_grads:
        if allow_unused is False:
            raise ArgumentValueError(
                "grad: Expected allow_unused to be True or not passed when materialize_grads=True",
                "zeros take the place of what an unused input lacks",
            )
    if is_grads_batched:
        return _batched_grad(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
        )
    gradients = _listed(grad_outputs) if grad_outputs is not None else (None,) * len(outputs)
    outputs, inputs = ([_Place(x) if type(x) is GradientEdge else x for x in xs] for xs in (outputs, inputs))
    for x in inputs:
        if isinstance(x, _Place):
            continue
        if not isinstance(x, Tensor) or x._node is None:
            shown = x._meta if isinstance(x, Tensor) else type(x).__name__
            raise GradError("grad(outputs, inputs): an input does not require gradients", f"input: {shown}")
    if modes.CHANGED and modes.local.levels:
        every = _through_levels(outputs, inputs, gradients, retain_graph, create_graph)
    else:
        every = _plain(outputs, inputs, gradients, retain_graph, create_graph)
    results = []
    for i, (x, g) in enumerate(zip(inputs, every, strict=True)):
        if g is None and materialize_grads:
            if isinstance(x, _Place):
                raise GradError(
                    "grad: materialize_grads cannot be used when the given input is a GradientEdge",
                    "an edge does not hold its tensor: pass that",
                )
            # under create_graph to be differentiated like the others, though to nothing
            kind = of_values(x)._meta
            zeros = np.zeros(kind.shape, kind.dtype.numpy)
            if modes.CHANGED:
                modes.tell("made", zeros)
            g = as_tensor(zeros).requires_grad_(create_graph)
        if g is None and not allow_unused:
            raise GradError(
                f"grad(outputs, inputs): the outputs do not depend on input {i}",
                f"input: {x._meta}",
                "Set allow_unused=True to get None for it",
            )
        if isinstance(g, ndarray) and not g.flags.writeable:
            g = g.copy()
        elif not create_graph and isinstance(g, Tensor):  # made by ops, as where a run is recorded
            g = apart(g)
        g = as_tensor(g)
        if g is not None and isinstance(x, Compound):
            g = x._gradient(g)
        results.append(outer(g) if g is not None and g._meta.device is WRAPPED else g)
    return tuple(results)


class _Place:
    """An output or input of `grad` given as a GradientEdge."""

    def __init__(self, edge: Any):
        several = not isinstance(edge.node, Leaf) and len(edge.node.plan.op.outputs) > 1
        self._node = Port(edge.node, edge.output_nr) if several else edge.node
        self._meta = edge.node.kind if isinstance(edge.node, Leaf) else edge.node.plan.outs[edge.output_nr]


def _plain(outputs, inputs, gradients, retain: bool | None, create: bool) -> list:
    """What arrives at inputs that no transform wraps."""
    targets = {x._node for x in inputs}
    found = _run(outputs, gradients, retain=retain, create=create, targets=targets, leaves=False)
    return [found.get(x._node) for x in inputs]


def _through_levels(outputs, inputs, gradients, retain: bool | None, create: bool) -> list:
    """What arrives at inputs that function transforms may wrap."""
    retain = retain or any(not level.axes for level in modes.local.levels)  # forward mode goes back twice
    given = [_cotangent(y, g) for y, g in zip(outputs, gradients, strict=len(outputs) == len(gradients))]

    def plain(ys: Sequence, xs: Sequence, gs: Sequence) -> list:
        kept = [(y, g) for y, g in zip(ys, gs, strict=True) if g is not None and y._node is not None]
        reached = [x for x in xs if x._node is not None]
        if not kept or not reached:
            return [None] * len(xs)
        ys, gs = zip(*kept, strict=True)
        found = dict(zip(map(id, reached), _plain(ys, reached, gs, retain, create), strict=True))
        return [as_tensor(found.get(id(x))) for x in xs]

    return gradients_through(outputs, inputs, given, plain)


def _cotangent(output: Any, gradient: Any) -> Any:
    """The cotangent to start with, as a tensor: ones where none is given."""
    if gradient is None and isinstance(output, Tensor) and output.numel() == 1 and output._node is not None:
        return REGISTRY["ones_like"](output.detach())
    _seed(output, gradient)
    return fit_tensor(gradient, output._meta)


vmap: list[Any] = []  # batched.py's, which is built on this module


def _batched_grad(outputs, inputs, gradients, retain, create, allow_unused, materialize) -> tuple:
    """`grad` for each of the cotangents that stand along the first dim of those given."""
    given = [None] * len(outputs) if gradients is None else [*_listed(gradients)]
    if len(given) != len(outputs) or not any(isinstance(g, Tensor) for g in given):
        raise ArgumentError(
            f"grad(is_grads_batched=True): {len(outputs)} outputs need as many batches of gradients",
            "pass them as grad_outputs",
        )
    for y, g in zip(outputs, given, strict=True):
        if isinstance(g, Tensor) and isinstance(y, Tensor) and g._meta.shape[1:] != y._meta.shape:
            raise ShapeError(
                "grad: If `is_grads_batched=True`, we interpret the first dimension of each grad_output as "
                "the batch dimension, and the others are those of the output",
                f"output: {y._meta}",
                f"gradients: {g._meta}",
            )
    got: list[bool] = []

    def one(*row: Tensor) -> list:
        each = iter(row)
        cotangents = [None if g is None else next(each) for g in given]
        found = grad(outputs, inputs, cotangents, retain, create, True, allow_unused, False, materialize)
        got[:] = [g is not None for g in found]
        return [g for g in found if g is not None]

    found = iter(vmap[0](one)(*(g for g in given if g is not None)))
    return tuple(next(found) if there else None for there in got)


__all__ = ["backward", "grad"]
