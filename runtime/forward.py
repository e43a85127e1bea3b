"""Forward mode: tensors that carry a tangent, how they change where the arguments move.

A dual has the type of its primal.  What an op makes of tangents follows from what its record says already:

    moves elements, or is linear     the op itself, of the tangents
    a product                        the product rule
    elementwise                      the gradient rule: its Jacobian is diagonal, so it is its own transpose
    anything else                    twice backward: v J is linear in v, and its derivative by v is J

So there is no second set of derivatives, and a tangent is computed by ordinary ops: it has a history where
primals or tangents have one, and both may be transformed further out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError, GradError, ShapeError, TransformError
from ..ir.op import REGISTRY, Op
from ..ir.shapes import check_together
from . import modes
from .autograd import grad as walk_back
from .batched import Batch
from .batching import listed
from .dispatch import named, run_general
from .function import Context
from .levels import (
    Level,
    Transformed,
    array_of,
    insides,
    kept_from_writes,
    level_of,
    opened,
    parts_at,
    unite_at,
)
from .on_device import share_memory
from .tensor import Tensor
from .trees import flatten, unflatten

new = object.__new__


class Dual(Transformed):
    """A tensor that varies: `_primal` is its value, `_tangent` how that changes."""

    __slots__ = ("_primal", "_tangent")
    _primal: Tensor
    _tangent: Tensor
    _level: Forward

    def _inside(self) -> Tensor:
        return self._primal

    @property
    def _data(self) -> Any:  # type: ignore[override]
        """The value is there to be asked for."""
        return self._primal._data

    @property
    def _version(self) -> int:
        return self._primal._version

    def backward(  # type: ignore[override]
        self, gradient: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """Where the level was opened by hand: add the gradients of the value into leaves."""
        if not self._level.by_hand:
            super().backward()
        self._primal.backward(gradient, *args, **kwargs)

    def detach_(self) -> Tensor:
        """Forget this tensor's history, and how it varies."""
        self._primal = self._primal.detach()
        self._tangent = zeros(self._primal)
        return self

    def __repr__(self) -> str:
        return f"{repr(self._primal).removesuffix(')')}, tangent={self._tangent!r})"


class Forward(Level):
    """One open level of forward mode.  by_hand: opened by `forward_ad`, which knows of one only."""

    what = "forward mode"
    remedies = ("the value is not known here",)

    def __init__(self, by_hand: bool = False):
        self.by_hand = by_hand
        self.adopted = {}

    def wrap(self, primal: Tensor, tangent: Tensor) -> Dual:
        made = new(Dual)
        made._meta, made._level = primal._meta, self
        made._primal, made._tangent = primal, tangent
        made._storage = made._view = None
        return made

    def split(self, x: Any) -> tuple:
        return (x._primal, x._tangent) if isinstance(x, Dual) else self.adopted[id(x)][1:]

    def adopt(self, x: Tensor, beside: Sequence[Any] = ()) -> None:
        """Have a plain tensor vary, which is about to be written, or a view of one: as it does not so far.

        beside: what is written; where that is mapped over, the tangent has to be.
        """
        if x._view is not None:
            root, chain, _ = x._view
            if id(root) not in self.adopted:
                self.adopt(root, beside)
            parts = self.adopted[id(root)][1:]
            for name, given in chain:
                parts = tuple(run_general(REGISTRY[name], (part,), dict(given)) for part in parts)
        else:
            others = [part for y in beside if isinstance(y, Tensor) for part in parts_at(self, y)]
            value = _batched_as(x.detach(), others)
            tangent = REGISTRY["clone"](_batched_as(zeros(x), others))
            parts = REGISTRY["clone"](value) if isinstance(value, Transformed) else value, tangent
        self.adopted[id(x)] = (x, *parts)  # held, as it is known by its id

    def constant(self, x: Tensor) -> tuple:
        return x, None

    def join(self, parts: Sequence) -> Tensor:
        primal, tangent = parts
        if tangent is None:
            return primal
        return self.wrap(zeros(tangent) if primal is None else primal, tangent)

    def gradients(self, outputs: list, inputs: list, cotangents: list, grad: Callable) -> list:
        """Of what is inside, and how these gradients change: those of the tangents, by symmetry."""
        xs = [x for x, _ in inputs]
        first = grad([y for y, _ in outputs], xs, [c for c, _ in cotangents])
        pairs = [
            pair
            for (y, dy), (c, dc) in zip(outputs, cotangents, strict=True)
            for pair in ((dy, c), (y, dc))
            if None not in pair
        ]
        second: Sequence = [None] * len(xs)
        if pairs:
            ys, cs = zip(*pairs, strict=True)
            second = grad(ys, xs, cs)
        return [None if g is None and t is None else (g, t) for g, t in zip(first, second)]

    # ---- ops ----
    def run(self, op: Op, plan: Any, operands: tuple) -> Any:
        pairs = [(None, None) if x is None else parts_at(self, x) for x in operands]
        primals, tangents = tuple(p for p, _ in pairs), tuple(t for _, t in pairs)
        attrs = plan.attrs
        if op.name.startswith("new_") or op.name.endswith("_like"):
            (made,) = listed(run_general(op, primals, attrs))
            return self.wrap(made, zeros(made)) if made._meta.dtype.inexact else made
        if not op.differentiable:
            return run_general(op, primals, attrs)
        found = self._pairs(op, primals, tangents, attrs, plan)
        out = [self.join(pair) for pair in found]
        if len(out) == 1 and len(op.outputs) == 1:
            return out[0]
        return named(op)(out) if len(out) == len(op.outputs) else tuple(out)

    def _pairs(self, op: Op, primals: tuple, tangents: tuple, attrs: dict, plan: Any) -> list[tuple]:
        """The outputs, each with its tangent."""
        if linear_in(op, attrs):
            moved = {k: 0 if k == "value" else v for k, v in attrs.items()}
            given = [
                p if t is None and (p is None or not p._meta.dtype.inexact) else zeros(p) if t is None else t
                for p, t in zip(primals, tangents)
            ]
            outs = listed(run_general(op, primals, attrs))
            return [*zip(outs, listed(run_general(op, given, moved)))]
        if op.name in PRODUCTS:
            out = run_general(op, primals, attrs)
            total = None
            for i, t in enumerate(tangents):
                if t is not None:
                    rest = primals[2:] if i < 2 else ()
                    if i < 2:
                        given = [t if k == i else p for k, p in enumerate(primals[:2])] + [None] * len(rest)
                        term = run_general(op, given, attrs)
                    else:  # a bias
                        term = run_general(op, (zeros(primals[0]), primals[1], t), attrs)
                    total = term if total is None else total + term
            return [(out, total)]
        kinds = [t for t in (*plan.types, *plan.outs) if t is not None]
        if op.traits.elementwise and len(op.all_outputs) == 1 and not any(t.dtype.is_complex for t in kinds):
            out = run_general(op, primals, attrs)
            return [(out, self._diagonal(op, primals, tangents, attrs, plan, out))]
        return self._twice_backward(op, primals, tangents, attrs)

    def _diagonal(self, op: Op, primals: tuple, tangents: tuple, attrs: dict, plan: Any, out: Tensor) -> Any:
        """The tangent of an elementwise op by its own gradient rules."""
        if not out._meta.dtype.inexact:
            return None
        by_name = dict(zip(op.operands, primals, strict=True)) | {op.outputs[0]: out}
        saved = tuple(by_name[name] for name in op.saves)
        total = None
        for i, t in enumerate(tangents):
            if t is None or not op.differentiates(i):
                continue
            if t._meta.shape != out._meta.shape:
                t = REGISTRY["expand"](t, tuple(out.shape))
            t = as_dtype(t, out)
            needs = tuple(k == i for k in range(len(primals)))
            term = op.cotangents(saved, (t,), attrs, needs, (*plan.types, *plan.outs))[i]
            if term is not None:
                total = term if total is None else total + term
        if total is None:
            return None
        if any(t is not None and isinstance(total, Tensor) and shares(total, t) for t in tangents):
            total = REGISTRY["clone"](total)  # the result may be written
        if not isinstance(total, Tensor):
            total = REGISTRY["full_like"](out, total)
        if total._meta.shape != out._meta.shape:
            total = REGISTRY["expand"](total, tuple(out.shape))
        return as_dtype(total, out)

    def _twice_backward(self, op: Op, primals: tuple, tangents: tuple, attrs: dict) -> list[tuple]:
        """The tangents of any differentiable op, by differentiating its gradient by the cotangent."""
        at = [i for i, t in enumerate(tangents) if t is not None]
        followed = modes.is_grad_enabled() and any(
            y._node is not None for x in (*primals, *tangents) if x is not None for y in insides(x)
        )
        given, own = list(primals), []
        with modes.enable_grad():
            for i in at:
                x = _batched_as(primals[i], [*primals, *tangents])
                given[i] = _own(x, own)
            outs = listed(run_general(op, given, attrs))
            ys = [y for y in outs if y._node is not None]
            found: dict[int, Tensor] = {}
            if ys:
                us = [_own(zeros(y), own) for y in ys]
                xs = [given[i] for i in at]
                gs = walk_back(ys, xs, us, True, True, allow_unused=True)
                ways = [
                    (g, as_dtype(tangents[i], g))
                    for g, i in zip(gs, at)
                    if g is not None and g._node is not None
                ]
                if ways:
                    gs, ts = zip(*ways, strict=True)
                    found = {
                        id(y): t
                        for y, t in zip(ys, walk_back(gs, us, ts, True, followed, allow_unused=True))
                        if t is not None
                    }
            pairs = [(y if followed else without_history(y), found.get(id(y))) for y in outs]
        for x in own:
            for y in insides(x):
                if y.is_leaf:
                    y._node.kind = None
        return pairs

    def apply(self, cls: Any, args: tuple) -> Any:
        """A custom function, by its own `jvp`."""
        if cls.jvp is None:
            raise TransformError(
                f"{cls.__name__}: a custom function must implement the jvp function to say what becomes of "
                "tangents",
                "give it a static method jvp(ctx, *tangents)",
            )
        pairs = [parts_at(self, x) if isinstance(x, Tensor) else (x, None) for x in args]
        ctx = Context()
        outs = cls.applied(ctx, tuple(p for p, _ in pairs))
        ctx._saved = ctx._forward
        given = [zeros(p) if t is None and ctx.materialize_grads and _varies(p) else t for p, t in pairs]
        before = [None if t is None else t._version for t in given]
        try:
            tangents = listed(modes.call_user(cls.jvp, ctx, *given))
        finally:
            ctx._saved = ()
        if len(tangents) != len(listed(outs)):
            raise TransformError(
                f"{cls.__name__}.jvp returned {len(tangents)} tangents for {len(listed(outs))} outputs"
            )
        found = []
        for out, returned, tangent in zip(listed(outs), ctx._returned, tangents, strict=True):
            if not isinstance(out, Tensor):
                found.append(out)
                continue
            at = next((i for i, (p, _) in enumerate(pairs) if id(p) == returned), None)
            _require_tangent(
                cls.__name__, ctx, out, returned, tangent, pairs if at is None else pairs[at : at + 1]
            )
            dirty = at is not None and any(x is pairs[at][0] for x in ctx._dirty)
            if not dirty:
                found.append(self.join((out, tangent)))
                continue
            assert at is not None
            if tangent is not given[at] or (tangent is not None and tangent._version == before[at]):
                raise TransformError(
                    "an inplace custom Function is not modifying the forward mode gradients inplace",
                    f"{cls.__name__}: the jvp function must modify the corresponding gradient inplace, and "
                    "return it",
                )
            found.append(args[at])
        return tuple(found) if isinstance(outs, tuple) else found[0]

    def write(self, op: Op, operands: tuple, attrs: dict[str, Any]) -> Tensor:
        x = operands[0]
        if level_of(x) is not self:
            if isinstance(x, Transformed) or x._node is not None or not x._meta.dtype.inexact:
                raise TransformError(
                    f"{op.name}_: what varies can't be written into a tensor that does not",
                    f"written: {x._meta}",
                    f"write y = {op.name}(…), or make the tensor of one that does: zeros_like(x), "
                    "x.new_zeros(…)",
                )
            self.adopt(x, operands[1:])
        found = run_general(op, (kept_from_writes(operands), *operands[1:]), attrs)
        found = found[0] if isinstance(found, tuple) else found
        if found._meta.shape != x._meta.shape:
            raise ShapeError(
                f"{op.name}_: the result's shape {list(found.shape)} is not that of the tensor written, "
                f"{list(x.shape)}",
            )
        primal, tangent = parts_at(self, found)
        into, moving = self.split(x)
        into.copy_(primal)
        if not may_be_written(moving):  # that of a dual: it is an expanded one
            moving = x._tangent = REGISTRY["clone"](moving)
        moving.copy_(zeros(primal) if tangent is None else tangent)
        return x


def _varies(x: Any) -> bool:
    return isinstance(x, Tensor) and x._meta.dtype.inexact


def _require_tangent(name: str, ctx: Context, out: Tensor, returned: int, tangent: Any, pairs: list) -> None:
    """Refuse a tangent that can't be that of a custom function's output.  Raises TransformError.

    An output that is a view of an operand, or an operand as it is, has such a view of that one's tangent, or
    a later write would be seen by the one alone.
    """
    if tangent is None or any(x is out for x in ctx._dirty):
        return
    if returned in ctx._without or not out._meta.dtype.inexact:
        raise TransformError(
            f"{name}.jvp returned a tangent for an output without one: it is no float, or marked "
            "non-differentiable. You should return None at that position instead"
        )
    base = root(out)
    for p, t in pairs:
        if isinstance(p, Tensor) and t is not None and (id(p) == returned or base is root(p) is not out):
            what = "A custom Function's forward is returning a view (or an input as-is) but the jvp is not "
            if tangent._view is None:
                raise TransformError(f"{what}returning a view", "return x.view_as(x), or such a view")
            if root(tangent) is not root(t):
                of = "the same base" if p._view is not None else "the given tangent"
                raise TransformError(
                    f"{what}returning a view of {of}: jvp is not returning a view of {of}",
                )


def root(x: Tensor) -> Tensor:
    """The tensor whose memory a view looks at."""
    while x._view is not None:
        x = x._view[0]
    return x


def may_be_written(tangent: Tensor) -> bool:
    """Whether a tangent is no expanded one."""
    data = array_of(tangent)
    return 0 not in data.strides or data.size < 2


# Records that are linear in their floating operands together, though they compute.
LINEAR = frozenset((
    "avg_pool_grad", "avg_pool1d", "avg_pool2d", "avg_pool3d", "col2im", "cumsum", "index_add",
    "max_pool_grad", "mean",
    "scatter_add", "spread_at", "sum", "unview",
))  # fmt: skip
# Records that are linear in each of the first two operands; a third is added.
PRODUCTS = frozenset((
    "matmul", "linear", "conv1d", "conv2d", "conv3d", "conv_input_grad", "conv_weight_grad", "mul",
))  # fmt: skip


def linear_in(op: Op, attrs: dict[str, Any]) -> bool:
    """Whether an op's tangent is the op of the tangents."""
    if op.name in ("ungather", "unindex"):
        return attrs["combine"] == "add"
    if op.name in ("all_reduce", "reduce", "reduce_scatter"):
        return attrs["reduce"] in ("sum", "avg")
    return op.name in LINEAR or (op.traits.movement and not op.traits.elementwise)


def shares(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors may have memory in common."""
    return share_memory(array_of(x), array_of(y))


def zeros(x: Tensor) -> Tensor:
    return REGISTRY["zeros_like"](without_history(x))


def as_dtype(x: Tensor, like: Tensor) -> Tensor:
    return x if x._meta.dtype is like._meta.dtype else REGISTRY["cast"](x, dtype=like._meta.dtype)


def without_history(x: Tensor) -> Tensor:
    """The tensor without history; what wraps it, tangents too, stays."""
    if isinstance(x, Transformed):
        return x._level.join([p if p is None else without_history(p) for p in x._level.split(x)])
    return x if x._node is None else x.detach()


def _batched_as(x: Tensor, others: Sequence[Any]) -> Tensor:
    """`x`, mapped over by every vmap that one of the others is."""
    levels: dict[int, Level] = {}

    def look(y: Any) -> None:
        while isinstance(y, Transformed):
            if isinstance(y._level, Batch):
                levels[y._level.depth] = y._level
            for part in y._level.split(y)[1:]:
                look(part)
            y = y._inside()

    for y in others:
        look(y)
    for depth in sorted(levels):
        x = unite_at(levels[depth], parts_at(levels[depth], x))
    return x


def _own(x: Tensor, made: list[Tensor]) -> Tensor:
    """The tensor as one that gradients are taken by, with its history where it has one."""
    if isinstance(x, Transformed):
        first, *rest = x._level.split(x)
        return x._level.join([_own(first, made), *rest])
    if x._node is not None:
        return REGISTRY["view"](x, tuple(x.shape))
    found = x.detach().requires_grad_()
    made.append(found)
    return found


# ---- the function ------------------------------------------------------------------------------------------
def _checked(primals: Any, tangents: Any) -> tuple:
    for x, what in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(x, tuple) or not x:
            raise ArgumentError(
                f"jvp: Expected {what} to be a tuple with at least one Tensor for each argument, not {x!r}"
            )
    shape, xs = flatten(primals)
    other, ts = flatten(tangents)
    if shape != other:
        raise ArgumentValueError("jvp: Expected primals and tangents to have the same python structure")
    for x, t in zip(xs, ts, strict=True):
        for value, what in ((x, "primals"), (t, "tangents")):
            if not isinstance(value, Tensor):
                raise ArgumentError(f"jvp({what}): must hold tensors, not a {type(value).__name__}")
        check_tangent("jvp", x, t)
    return shape, xs, ts


class InexactError(DTypeError, ValueError):
    """A primal or tangent of integers."""


def check_tangent(name: str, x: Tensor, t: Tensor) -> None:
    """Refuse a tangent that is not of the primal's shape and dtype.  Raises ShapeError, DTypeError."""
    check_together(name, x, t)
    for each, what in ((x, "primal"), (t, "tangent")):
        if not each._meta.dtype.inexact:
            raise InexactError(
                f"{name}: Expected {what} to be floating point or complex",
                f"{what}: {each._meta}",
                "convert it: x.float()",
            )
    if x._meta.shape != t._meta.shape:
        raise ShapeError(
            f"{name}: a tangent must have the shape of its primal: Trying to set a forward gradient that has "
            "a different size than that of the original Tensor",
            f"primal: {x._meta}",
            f"tangent: {t._meta}",
        )
    if x._meta.dtype is not t._meta.dtype:
        raise DTypeError(
            f"{name}: a tangent must have the dtype of its primal",
            f"primal: {x._meta}",
            f"tangent: {t._meta}",
        )


def jvp_of(
    func: Callable, primals: Any, tangents: Any, *, has_aux: bool = False, strict: bool = False
) -> tuple:
    """func(*primals) and its tangents, nested alike; see func.jvp."""
    shape, xs, ts = _checked(primals, tangents)
    with opened(Forward()) as level:
        given = unflatten(shape, [level.wrap(x, t) for x, t in zip(xs, ts, strict=True)])
        out = modes.call_user_with(func, given, {})
        aux = None
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise ArgumentValueError(
                    f"jvp(has_aux=True): the function must return (output, aux), not {out!r}"
                )
            out, aux = out
        out_shape, ys = flatten(out)
        pairs = []
        for y in ys:
            if not isinstance(y, Tensor):
                raise ArgumentError(f"jvp: what func returns must be tensors, not {type(y).__name__}")
            pair = parts_at(level, y)
            if strict and pair[1] is None:
                raise GradError(
                    "jvp(strict=True): an output does not depend on the primals", f"output: {y._meta}"
                )
            pairs.append(pair)
        aux_shape, extra = flatten(aux)
        extra = [parts_at(level, a)[0] if isinstance(a, Tensor) else a for a in extra]
    found = (
        unflatten(out_shape, [p for p, _ in pairs]),
        unflatten(out_shape, [zeros(p) if t is None else t for p, t in pairs]),
    )
    return (*found, unflatten(aux_shape, extra)) if has_aux else found


# ---- by hand -----------------------------------------------------------------------------------------------
class UnpackedDualTensor(NamedTuple):
    """A value and its tangent, None where it does not vary."""

    primal: Tensor
    tangent: Tensor | None


_OPEN = threading.local()  # .mode: the one that `enter_dual_level` opened, held until `exit_dual_level`


def _level_by_hand(name: str, level: int | None) -> Forward:
    if level is not None and (isinstance(level, bool) or not isinstance(level, int)):
        raise ArgumentError(f"{name}(level): must be an int or None, not {type(level).__name__}")
    for found in reversed(modes.local.levels):
        if isinstance(found, Forward) and found.by_hand:
            return found
    raise TransformError(f"{name}: no dual level is open", "with lamina.autograd.forward_ad.dual_level(): …")


class dual_level(opened):
    """A `with` block in which `make_dual` gives tensors tangents, and ops carry them along.

    Raises TransformError inside of another: there is one.
    """

    def __init__(self) -> None:
        super().__init__(Forward(by_hand=True))

    def __enter__(self) -> int:
        if any(isinstance(level, Forward) and level.by_hand for level in modes.local.levels):
            raise TransformError(
                "dual_level: one is open already. Nested forward mode AD is not supported at the moment",
                "use lamina.func.jvp inside of it",
            )
        self._level = Forward(by_hand=True)
        super().__enter__()
        return 0


def enter_dual_level() -> int:
    """Open a level of forward mode until `exit_dual_level`; return its number, 0.

    Raises TransformError where one is open.
    """
    mode = dual_level()
    mode.__enter__()
    _OPEN.mode = mode
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close what `enter_dual_level` opened, tangents are gone.  Raises TransformError where none is open."""
    _level_by_hand("exit_dual_level", level)
    mode = getattr(_OPEN, "mode", None)
    if mode is None:
        raise TransformError("exit_dual_level: the level is a block's, which ends it")
    _OPEN.mode = None
    mode.__exit__()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor of the value of `tensor` that changes by `tangent`.

    Raises TransformError outside of a dual level, ShapeError and DTypeError for a tangent of another type.
    """
    mine = _level_by_hand("make_dual", level)
    for x, what in ((tensor, "tensor"), (tangent, "tangent")):
        if not isinstance(x, Tensor):
            raise ArgumentError(f"make_dual({what}): must be a tensor, not {type(x).__name__}")
    check_tangent("make_dual", tensor, tangent)
    if parts_at(mine, tangent)[1] is not None:
        raise TransformError("make_dual: the tangent has a forward gradient at the same level itself")
    return unite_at(mine, (parts_at(mine, tensor)[0], tangent))


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a tensor and its tangent, which is None where it has none, or outside of a dual level."""
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"unpack_dual(tensor): must be a tensor, not {type(tensor).__name__}")
    if isinstance(tensor, Dual) and tensor._level.closed:
        return UnpackedDualTensor(tensor._primal, None)
    if not any(isinstance(found, Forward) and found.by_hand for found in modes.local.levels):
        return UnpackedDualTensor(tensor, None)
    primal, tangent = parts_at(_level_by_hand("unpack_dual", level), tensor)
    return UnpackedDualTensor(REGISTRY["view"](primal, tuple(primal.shape)), tangent)


def without_tangents(x: Tensor) -> Tensor:
    """The value of a tensor, to be written as if it did not vary."""
    while isinstance(x, Dual):
        x = x._primal
    return x


def __getattr__(name: str) -> Any:
    if name == "_current_level":  # as PyTorch counts: -1 where none is open
        return 0 if any(isinstance(x, Forward) and x.by_hand for x in modes.local.levels) else -1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual",
]  # fmt: skip
