"""Custom differentiable functions: the user writes forward and backward, as PyTorch's `autograd.Function`."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, GradError, MissingError, ShapeError
from ..ir.lowering import extern
from ..ir.op import Op
from . import modes
from .compound import Compound
from .graph import Node, Port
from .history import storage_of
from .inplace import check_writable, rebase
from .levels import innermost
from .on_device import streamed
from .packing import Packed, Packing
from .places import here
from .plan import Plan
from .storage import Storage
from .tensor import Tensor, wrap

new = object.__new__


class Context:
    """What a Function's forward leaves for its backward.  Any attribute may be set on it."""

    def __init__(self) -> None:
        self._tensors: tuple = ()
        self._forward: tuple = ()
        self._saved: tuple = ()
        self._without: set[int] = set()
        self._dirty: tuple = ()
        self._returned: tuple[int, ...] = ()  # what forward returned, by id
        self.needs_input_grad: tuple[bool, ...] = ()
        self.materialize_grads = True
        self._materialize_non_diff_grads = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, which checks that nobody changed them in place meanwhile."""
        for x in tensors:
            if x is not None and not isinstance(x, Tensor):
                raise ArgumentError(
                    f"save_for_backward: takes tensors, not {type(x).__name__}", "set an attribute of ctx"
                )
        self._tensors = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for `jvp`."""
        self._forward = tensors

    @property
    def saved_tensors(self) -> tuple:
        """What `save_for_backward` kept; under create_graph, with history."""
        return self._saved

    @property
    def saved_variables(self) -> tuple:
        """The old name of `saved_tensors`."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self._saved

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Declare outputs that no gradient flows through."""
        self._without = {id(x) for x in outputs}

    def mark_dirty(self, *inputs: Tensor) -> None:
        """Declare inputs that forward changed in place."""
        self._dirty = inputs

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward sees zeros (True) or None (False) for an unused output."""
        self.materialize_grads = bool(value)


class BackwardCFunction(Node):
    """The node of an applied Function; a class of its own for each, FBackward for a Function F.

    It answers for what forward left in the context.
    """

    __slots__ = ()


class _Call(Plan):
    """One application of a Function: what a node asks of a plan, and no more."""

    __slots__ = ("ctx",)

    foreign = True

    def __init__(self, op: Op, types: tuple, outs: tuple, sources: tuple, ctx: Context):
        self.ctx = ctx
        self.op, self.types, self.outs, self.sources = op, types, outs, sources
        self.attrs: dict = {}
        self.vjp = op.vjp
        self.small, self.rules, self.quick, self.raw_vjp, self.gradients = False, None, None, None, None
        self.native = None
        self.unused = (None,) * (len(outs) - 1)
        self.floats = tuple(t.dtype.inexact for t in types)


class Function:
    """A differentiable function with its own backward.

    Subclass it with static methods `forward(ctx, *args)` and `backward(ctx, *cotangents)`, which returns one
    gradient or None for each argument of forward, and call `apply`.  Second order works where backward is
    written with differentiable ops.
    """

    setup_context: Callable | None = None  # (ctx, inputs, output); with it, forward does not take ctx
    vmap: Callable | None = None  # (info, in_dims, *args) -> (output, out_dims): forward of many
    generate_vmap_rule = False  # vmap by running forward and backward of one example on all
    jvp: Callable | None = None  # (ctx, *tangents) -> those of the outputs
    _backward_cls: type[BackwardCFunction] = BackwardCFunction

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._backward_cls = type(f"{cls.__name__}Backward", (BackwardCFunction,), {"__slots__": ()})

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise GradError(
            "Legacy autograd function with non-static forward method is deprecated, and not built",
            f"make its forward and backward static, and call {type(self).__name__}.apply",
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs: `forward(ctx, *args)`, or `forward(*args)` beside a `setup_context`."""
        raise MissingError("a Function must implement the forward function, a static method forward(ctx, …)")

    @staticmethod
    def backward(ctx: Context, *cotangents: Tensor) -> Any:
        """Give one gradient or None for each argument of forward, from one cotangent for each output."""
        raise MissingError(
            "a Function must implement either the backward or the vjp function to be differentiated",
            "write a static method backward(ctx, …)",
        )

    vjp = backward  # another name for it

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward, and note how to run backward."""
        if modes.CHANGED and modes.local.levels:
            level = innermost(args)
            if level is not None:
                return level.apply(cls, args)
        return cls.applied(Context(), args)

    @classmethod
    def applied(cls, ctx: Context, args: tuple) -> Any:
        """`apply` with this context, where no transform wraps an argument."""
        tensors = [(i, x) for i, x in enumerate(args) if isinstance(x, Tensor)]
        wanted = modes.is_grad_enabled() and any(x._node is not None for _, x in tensors)
        ctx.needs_input_grad = tuple(isinstance(x, Tensor) and x._node is not None for x in args)
        result = run_forward(cls, ctx, args)
        outputs = result if isinstance(result, tuple) else (result,)
        ctx._returned = tuple(map(id, outputs))
        for x in ctx._dirty:
            check_writable(x, cls.__name__, wanted)
            storage_of(x).written((cls.__name__, here()))
        if not wanted:
            return result
        inputs = [x for _, x in tensors]
        given = {id(x) for x in inputs}
        dirty = {id(x) for x in ctx._dirty}
        fresh = []
        for out in outputs:
            if isinstance(out, Tensor) and id(out) in given and id(out) not in dirty:
                out = out.detach()  # an input handed through must not get this node as its history
            fresh.append(out)
        _record(cls, ctx, inputs, [i for i, _ in tensors], fresh, [id(x) for x in outputs], dirty)
        return tuple(fresh) if isinstance(result, tuple) else fresh[0]


def _record(
    cls: type[Function],
    ctx: Context,
    inputs: list,
    positions: list[int],
    outputs: list,
    ids: list[int],
    dirty: set[int],
) -> None:
    """Give the outputs a node that runs `cls.backward`."""
    tensors = [x for x in outputs if isinstance(x, Tensor)]
    index_of_output = {id(x): k for k, x in enumerate(tensors)}
    index_of_input = {id(x): i for i, x in enumerate(inputs)}
    sources: list[tuple[bool, int]] = []
    saved: list[Any] = []
    guards: list[Any] = []
    for x in ctx._tensors:
        if x is None:
            saved.append(None)
            sources.append((True, 0))
            continue
        guards += (storage_of(x), storage_of(x).version)
        if isinstance(x, Compound):
            saved.append(x)
            sources.append((True, 0))
        elif id(x) in index_of_input and id(x) not in dirty:
            saved.append(x._data)
            sources.append((True, index_of_input[id(x)]))
        elif id(x) in index_of_output:
            saved.append(x._data)
            sources.append((False, index_of_output[id(x)]))
        else:
            kept = wrap(x._data, x._meta)
            kept._storage = storage_of(x)
            saved.append(kept)
            sources.append((True, 0))
    outs = tuple(x._meta for x in tensors)
    originals = [i for i, o in zip(ids, outputs) if isinstance(o, Tensor)]
    flows = [i not in ctx._without or ctx._materialize_non_diff_grads for i in originals]
    slots = [k for k, o in enumerate(outputs) if isinstance(o, Tensor)]
    types = tuple(x._meta for x in inputs)
    kept_tensors, count_out = ctx._tensors, len(outputs)
    ctx._tensors = ()
    if modes.CHANGED:
        modes.tell("foreign", cls.__name__)

    def vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
        ctx._saved = saved
        given: list[Any] = [None] * count_out  # one for each output, those too that are no tensors
        for slot, g, t, flow in zip(slots, cotangents, outs, flows, strict=True):
            given[slot] = _zeros(t) if g is None and flow and ctx.materialize_grads else g
        try:
            grads = modes.call_user(backward_of(cls), ctx, *given)
        finally:
            ctx._saved = ()
        grads = grads if isinstance(grads, tuple) else (grads,)
        count = len(ctx.needs_input_grad)
        if len(grads) < count or any(g is not None for g in grads[count:]):
            raise GradError(
                f"{cls.__name__}Backward returned an incorrect number of gradients (expected {count}, got "
                f"{len(grads)}): one for each argument of forward"
            )
        for i, t, need in zip(positions, types, needs):
            g = grads[i]
            if need and isinstance(g, Tensor) and g._meta.shape != t.shape:
                _require_shape(cls.__name__, i, g, t)
        return tuple(grads[i] for i in positions)

    op = Op(
        cls.__name__,
        operands=tuple(f"arg{i}" for i in positions),
        attrs=(),
        outputs=tuple(f"out{k}" for k in range(len(tensors))),
        reference=cls.forward,
        infer=lambda *types: outs,
        lower=extern("a function of the user's"),
        samples=tuple,
        vjp=vjp,
        doc=cls.__doc__,
    )
    packs = modes.CHANGED and modes.local.packing is not None
    if packs:
        kinds = iter([x._meta for x in kept_tensors if x is not None])
        tensors_kept = iter([x for x in kept_tensors if x is not None])
        saved = [
            None if v is None else Packed(next(tensors_kept), next(kinds), isinstance(v, Tensor))
            for v in saved
        ]
        guards = [each for _ in range(len(guards) // 2) for each in (Storage(), 0)]
    n = new(Packing if packs else cls._backward_cls)
    n.plan = _Call(op, types, outs, tuple(sources), ctx)
    n.edges = tuple(x._node if f else None for x, f in zip(inputs, n.plan.floats, strict=True))
    n.saved, n.guards = tuple(saved), tuple(guards)
    n.place, n.hooks = here(), {} if packs else None
    for k, (x, original) in enumerate(zip(tensors, originals)):
        if x._meta.dtype.inexact and original not in ctx._without:
            edge = n if len(tensors) == 1 else Port(n, k)
            if original in dirty:
                rebase(x, edge)
            else:
                x._edge, x._view = edge, None  # a view of an operand, too, has this history and no other
    if modes.CHANGED and modes.local.streams is not None:
        streamed().mark(tuple(tensors))


class _Once(Function):
    """What `once_differentiable` hands on: equal, and refusing to be differentiated."""

    @staticmethod
    def forward(ctx: Context, name: str, *gradients: Tensor) -> tuple:
        ctx.name = name  # type: ignore[attr-defined]
        return tuple([x.detach() for x in gradients])

    @staticmethod
    def backward(ctx: Context, *cotangents: Tensor) -> Any:
        raise GradError(
            f"{ctx.name}: trying to differentiate twice a function that was marked with @once_differentiable",  # type: ignore[attr-defined]
            "write its backward with differentiable ops, and leave the mark out",
        )


def once_differentiable(fn: Callable) -> Callable:
    """Mark a `backward` whose result can't be differentiated: under create_graph that is refused, not wrong.

    It runs without gradients, so it may compute in any way.
    """

    @functools.wraps(fn)
    def backward(ctx: Context, *cotangents: Any) -> Any:
        with modes.no_grad():
            found = fn(ctx, *cotangents)
        if not modes.is_grad_enabled() or not any(
            isinstance(g, Tensor) and g._node is not None for g in cotangents
        ):
            return found
        several = isinstance(found, tuple)
        gradients = found if several else (found,)
        kept = [x.detach().requires_grad_() for x in gradients if isinstance(x, Tensor)]
        marked = iter(_Once.apply(fn.__qualname__, *kept))
        gradients = tuple([next(marked) if isinstance(x, Tensor) else x for x in gradients])
        return gradients if several else gradients[0]

    return backward


class InplaceFunction(Function):
    """A Function made with `inplace=True` or without, which its own methods may ask for."""

    def __init__(self, inplace: bool = False):
        self.inplace = inplace


FunctionCtx = Context


def run_forward(cls: type[Function], ctx: Context, args: tuple) -> Any:
    """`forward` and `setup_context`, without history."""
    with modes.no_grad():
        if cls.setup_context is None:
            return modes.call_user(cls.forward, ctx, *args)
        result = modes.call_user(cls.forward, *args)
        modes.call_user(cls.setup_context, ctx, _with_defaults(cls.forward, args), result)
        return result


def _with_defaults(forward: Callable, args: tuple) -> tuple:
    """The arguments of a call, with those that it leaves to their defaults."""
    try:
        found = inspect.signature(forward).bind(*args)
    except (TypeError, ValueError):
        return args
    found.apply_defaults()
    return found.args


def backward_of(cls: type[Function]) -> Callable:
    """The static method that gives gradients, `backward` or `vjp`.  Raises GradError where there are both."""
    if cls.vjp is not Function.vjp:
        if cls.backward is not Function.backward:
            raise GradError(
                f"Implementing both 'backward' and 'vjp' for {cls.__name__} leaves open which is meant",
                "write one of them",
            )
        return cls.vjp
    return cls.backward


def _require_shape(name: str, number: int, g: Tensor, kind: Any) -> None:
    """Refuse a gradient that can't be summed or spread to its operand's shape.  Raises ShapeError."""
    try:
        np.broadcast_shapes(g._meta.shape, kind.shape)
    except ValueError:
        raise ShapeError(
            f"Function {name}Backward returned an invalid gradient at index {number} - got "
            f"{list(g._meta.shape)} but expected shape compatible with {list(kind.shape)}"
        ) from None


def _zeros(kind: Any) -> Tensor:
    made = wrap(np.zeros(kind.shape, kind.dtype.numpy), kind)
    if modes.CHANGED:
        modes.tell("made", made._data)
    return made
