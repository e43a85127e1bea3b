"""vmap: functions of one example run on many at once.

A batched tensor has the type of one example, and inside a tensor with the batch as its first axis.
batching.py says what ops make of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from ..ir.dtypes import float32, float64
from ..ir.errors import ArgumentError, ArgumentValueError, DimError, ShapeError, TransformError
from ..ir.op import REGISTRY, Op
from ..ir.ops.random import draws
from . import modes
from .autograd import vmap as offered
from .batching import Call, inserted, listed, otherwise, rule_for
from .dispatch import named, run_general
from .function import Context, Function, run_forward
from .generator import default_generator
from .levels import (
    Level,
    Transformed,
    kept_from_writes,
    kind_without,
    opened,
    parts_at,
    unite_at,
)
from .refusal import refusing
from .tensor import Tensor
from .trees import flatten, spread, unflatten

new = object.__new__
RANDOMNESS = ("error", "different", "same")


class Batched(Transformed):
    """A tensor that stands for one of many; `_value` holds all of them, along its first axis."""

    __slots__ = ("_value",)
    _value: Tensor

    def _inside(self) -> Tensor:
        return self._value

    def detach_(self) -> Tensor:
        """Forget this tensor's history."""
        self._value = self._value.detach()
        return self


class VmapInfo(NamedTuple):
    """What a custom function's `vmap` is told."""

    batch_size: int
    randomness: str


class Batch(Level):
    """One open vmap.

    size: how many examples there are.  randomness: whether random ops draw for each, once for all, or are
    refused.
    """

    what = "vmap"
    axes = 1
    remedies = (
        "there is a value for each example: choose with lamina.where, and take values after vmap has ended",
    )

    def __init__(self, size: int, randomness: str):
        self.size, self.randomness = size, randomness

    def wrap(self, value: Tensor) -> Batched:
        made = new(Batched)
        made._meta = kind_without(value._meta, 1)
        made._value, made._level = value, self
        made._storage = made._view = None
        return made

    def split(self, x: Any) -> tuple:
        return (x._value,)

    def constant(self, x: Tensor) -> tuple:
        return (REGISTRY["expand"](x, (self.size, *x.shape)),)

    def join(self, parts: Sequence) -> Tensor:
        return self.wrap(parts[0])

    def gradients(self, outputs: list, inputs: list, cotangents: list, grad: Callable) -> list:
        """Examples don't meet, so one gradient of all of them holds that of each."""
        found = grad([y for (y,) in outputs], [x for (x,) in inputs], [c for (c,) in cotangents])
        return [None if g is None else (g,) for g in found]

    # ---- ops ----
    def call(self, op: Op, operands: tuple, attrs: dict[str, Any], outs: tuple) -> Call:
        batched = tuple(isinstance(x, Batched) and x._level is self for x in operands)
        values = tuple(x._value if b else x for x, b in zip(operands, batched))
        kinds = tuple(None if x is None else x._meta for x in operands)
        return Call(op, attrs, values, batched, kinds, outs, self.size)

    def run(self, op: Op, plan: Any, operands: tuple) -> Any:
        found = self._found(op, operands, plan.attrs, plan.outs)
        if len(found) == 1 and len(op.outputs) == 1:
            return found[0]
        return named(op)(found) if len(op.outputs) == len(found) else tuple(found)

    def _found(self, op: Op, operands: tuple, attrs: dict[str, Any], outs: tuple) -> list[Tensor]:
        """The visible outputs of an op."""
        found: Any = NotImplemented
        rule = rule_for(op, ())
        logical = getattr(rule, "logical", None)
        if rule is not None and logical is None:
            found = rule(self.call(op, operands, attrs, outs))
            if found is None:
                found = NotImplemented
            if found is NotImplemented:
                logical = otherwise(op)
            else:
                found = [self.wrap(y) for y in found]
        if logical is not None:
            found = list(listed(logical(*operands, **attrs)))[: len(op.outputs)]
        if found is NotImplemented:
            found = self.loop(op, operands, attrs)
        if not op.traits.host:
            for i, (y, kind) in enumerate(zip(found, outs)):
                if y._meta.dtype is not kind.dtype and y._meta.shape == kind.shape:
                    found[i] = y = REGISTRY["cast"](y, dtype=kind.dtype)
                if y._meta is not kind:
                    raise TransformError(
                        f"vmap: the rule of {op.name} gave {y._meta}, not {kind}: please report this"
                    )
        return found

    def loop(self, op: Op, operands: tuple, attrs: dict[str, Any]) -> list[Tensor]:
        """The op on one example after the other, for want of a rule; says so in a warning."""
        if op.traits.host:
            raise TransformError(
                f"{op.name}, inside of vmap: We do not support batching operators that can output dynamic "
                "shape: the result would have one for each example",
                *(f"operand: {x._meta}" for x in operands if x is not None),
                "call it outside of vmap",
            )
        if not self.size:
            raise TransformError(f"{op.name}: has no rule for vmap over no examples")
        warnings.warn(
            f"vmap runs {op.name} for one example after the other, as there is no rule for all at once",
            UserWarning,
            stacklevel=2,
        )
        call = self.call(op, operands, attrs, ())
        pairs = list(zip(call.values, call.batched))
        rows = [
            listed(run_general(op, tuple(REGISTRY["basic_index"](x, i) if b else x for x, b in pairs), attrs))
            for i in range(self.size)
        ]
        return [self.wrap(REGISTRY["stack"](column)) for column in zip(*rows, strict=True)]

    def apply(self, cls: Any, args: tuple) -> Any:
        """A custom function, by its own `vmap`, or by running what it does to one example on all."""
        batched = tuple(isinstance(x, Batched) and x._level is self for x in args)
        values = tuple(x._value if b else x for x, b in zip(args, batched))
        if cls.vmap is not None and cls.generate_vmap_rule:
            raise TransformError(
                f"{cls.__name__}: has both generate_vmap_rule=True and a static method vmap",
                "delete one of them",
            )
        if cls.vmap is not None:
            info = VmapInfo(self.size, self.randomness)
            dims = tuple(0 if b else None for b in batched)
            both = modes.call_user(cls.vmap, info, dims, *values)
            if not isinstance(both, tuple) or len(both) != 2:
                raise ArgumentError(
                    f"{cls.__name__}.vmap: Expected the vmap staticmethod to have two returns, an output and "
                    "out_dims with pytree structure compatible with the output"
                )
            out, out_dims = both
            shape, leaves = flatten(out)
            places = spread(out_dims, out, f"{cls.__name__}.vmap: returned an incompatible out_dims")
            return unflatten(
                shape, [y if d is None else self.wrap(to_front(y, d)) for y, d in zip(leaves, places)]
            )
        if not cls.generate_vmap_rule:
            raise TransformError(
                f"{cls.__name__}: this autograd.Function does not have vmap support",
                "give it generate_vmap_rule = True, or a static method vmap(info, in_dims, *args)",
            )
        found = _mapped(cls, self, batched).apply(*values)
        return tuple(map(self.wrap, found)) if isinstance(found, tuple) else self.wrap(found)

    def write(self, op: Op, operands: tuple, attrs: dict[str, Any]) -> Tensor:
        x = operands[0]
        if not (isinstance(x, Batched) and x._level is self):
            raise TransformError(
                f"{op.name}_: inside of vmap a tensor can't hold a value for each example: there exists a "
                "Tensor `other` in extra_args that has more elements than `self`",
                f"written: {x._meta}",
                *(f"operand: {y._meta}" for y in operands[1:] if y is not None),
                f"write y = {op.name}(…), or make the tensor of one that has them: x.new_zeros(…)",
            )
        if op.name in ("copy", "fill"):
            return self._copied(x, op, operands, attrs)
        found = run_general(op, (kept_from_writes(operands), *operands[1:]), attrs)
        found = found[0] if isinstance(found, tuple) else found
        _require_fit(op, x, found)
        value = found._value if isinstance(found, Batched) and found._level is self else found
        x._value.copy_(value)
        return x

    def _copied(self, x: Batched, op: Op, operands: tuple, attrs: dict[str, Any]) -> Tensor:
        if op.name == "fill":
            x._value.fill_(attrs["value"])
            return x
        call = self.call(op, operands, attrs, ())
        if call.ndim(1) > call.ndim(0):
            raise ShapeError(f"copy_: {call.kinds[1]} does not fit into {call.kinds[0]}")
        x._value.copy_(call.aligned(1, call.ndim(0)))
        return x


def _mapped(cls: Any, level: Batch, batched: tuple[bool, ...]) -> Any:
    """A custom function of all examples, by its forward and backward of one."""

    class Mapped(Function):
        """`forward` and `backward` inside of a vmap each."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with opened(Batch(level.size, level.randomness)) as inner:
                ctx.inner = Context()
                ctx.inner.needs_input_grad = ctx.needs_input_grad
                given = tuple(inner.wrap(x) if b else x for x, b in zip(args, batched))
                found = run_forward(cls, ctx.inner, given)
                kept = ctx.inner._tensors
                ctx.saved_batched = [isinstance(x, Batched) for x in kept]
                ctx.save_for_backward(*(x._value if isinstance(x, Batched) else x for x in kept))
                outs = [y._value if isinstance(y, Batched) else level.constant(y)[0] for y in listed(found)]
                ctx.single = not isinstance(found, tuple)
                return outs[0] if ctx.single else tuple(outs)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            with opened(Batch(level.size, level.randomness)) as inner:
                pairs = zip(ctx.saved_tensors, ctx.saved_batched, strict=True)
                ctx.inner._saved = tuple(inner.wrap(x) if b else x for x, b in pairs)
                given = [g if g is None else inner.wrap(g) for g in cotangents]
                found = listed(modes.call_user(cls.backward, ctx.inner, *given))
                results = []
                for g, b in zip(found, batched):
                    if isinstance(g, Batched):
                        g = g._value if b else g._value.sum(0)  # one gradient for all examples
                    elif g is not None and b:
                        g = level.constant(g)[0]
                    elif g is not None:
                        g = g * level.size
                    results.append(g)
                return tuple(results)

    Mapped.__name__ = Mapped.__qualname__ = cls.__name__
    return Mapped


def _require_fit(op: Op, x: Tensor, found: Tensor) -> None:
    if found._meta.shape != x._meta.shape:
        raise ShapeError(
            f"{op.name}_: the result's shape {list(found.shape)} is not that of the tensor written, "
            f"{list(x.shape)}",
            f"write y = {op.name}(…) to get a new tensor",
        )


# ---- in and out --------------------------------------------------------------------------------------------
def _sizes(func: Callable, leaves: list, dims: list) -> int:
    """The one size of all that is mapped over.  Raises ArgumentValueError."""
    sizes = []
    for x, dim in zip(leaves, dims, strict=True):
        if dim is None:
            continue
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise ArgumentValueError(f"vmap(in_dims): must hold ints and None, not {dim!r}")
        if not isinstance(x, Tensor):
            raise ArgumentValueError(
                f"vmap: Got in_dim={dim} for an input but the input is of type {type(x)}",
                "give it None, and every example gets it as it is",
            )
        if not -x.ndim <= dim < x.ndim:
            raise ArgumentValueError(
                f"vmap: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                f"{x.ndim}: expected {-x.ndim} <= in_dim < {x.ndim}",
                f"tensor: {x._meta}",
            )
        sizes.append(x.shape[dim])
    if not sizes:
        raise ArgumentValueError(
            "vmap: at least one Tensor must be mapped over, and all of in_dims is None"
            if leaves
            else "vmap: got no inputs, so that there is nothing to map over"
        )
    if len(set(sizes)) > 1:
        raise ArgumentValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes}"
        )
    return sizes[0]


def to_front(x: Tensor, dim: int) -> Tensor:
    """The tensor with one of its axes moved to the front."""
    dim %= x.ndim
    return x if not dim else REGISTRY["permute"](x, (dim, *(d for d in range(x.ndim) if d != dim)))


def from_front(x: Tensor, dim: int) -> Tensor:
    """The tensor with its first axis moved to `dim`."""
    return x if not dim else REGISTRY["permute"](x, (*range(1, dim + 1), 0, *range(dim + 1, x.ndim)))


def _taken_out(level: Batch, out: Any, out_dims: Any) -> Any:
    """The results of a mapped function, their batch axes where `out_dims` says."""
    shape, leaves = flatten(out)
    if isinstance(out_dims, tuple) and not isinstance(out, (tuple, list, dict)) and len(out_dims) == 1:
        out_dims = out_dims[0]
    dims = spread(out_dims, out, "vmap: out_dims is not compatible with the structure of `outputs`")
    return unflatten(shape, [taken_out(level, y, dim) for y, dim in zip(leaves, dims, strict=True)])


def taken_out(level: Batch, y: Any, dim: Any) -> Any:
    """One result of a mapped function, its batch axis at `dim`."""
    if not isinstance(y, Tensor):
        if dim is None:
            return y
        raise ArgumentValueError(
            f"vmap: the function must only return Tensors, got type {type(y)}",
            f"returned: {y!r}",
        )
    mine = isinstance(y, Batched) and y._level is level
    if dim is None:
        if mine:
            raise ArgumentValueError(
                "vmap: the function can not return a BatchedTensor when out_dim is None, which is for what "
                "is the same for every example",
                f"result: {y._meta}",
            )
        return y
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise ArgumentValueError(
            f"vmap: `out_dims` must be an int, None or a python collection of ints, not {dim!r}"
        )
    rank = y.ndim + 1
    if not -rank <= dim < rank:
        raise DimError(
            f"vmap(out_dims): Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], with "
            f"the batch, but got {dim})",
            f"result of one example: {y._meta}",
        )
    return from_front(y._value if mine else level.constant(y)[0], dim % rank)


# What programs put into `torch._functorch.vmap`, so that containers of their own are mapped over.
REPLACED: dict[str, Any] = {}


def vmap(
    func: Callable,
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable:
    """Make a function of one example into one of many, which stand along a dim of its arguments.

    in_dims: that dim for each argument, nested as they are; None for what every example gets whole, as it
    does arguments given by name.
    out_dims: where the results have it.  randomness: what random ops do: "error", "different" numbers for
    each example, or the "same".  chunk_size: at most so many examples at once.
    The function sees tensors without the dim, and must not ask for values.  Raises ArgumentValueError for
    dims and sizes that don't fit, TransformError for what can't be done for all at once.
    """
    if not callable(func):
        raise ArgumentError(f"vmap(func): func must be callable, not {type(func).__name__}")
    if randomness not in RANDOMNESS:
        raise ArgumentValueError(f"vmap(randomness): {randomness!r} is none of {', '.join(RANDOMNESS)}")
    if chunk_size is not None and (
        isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1
    ):
        raise ArgumentValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size!r})")

    def mapped(*args: Any, **kwargs: Any) -> Any:
        if chunk_size is None and "_unwrap_batched" in REPLACED:
            size, dims, leaves, shape = REPLACED["_process_batched_inputs"](in_dims, args, func)
            with opened(Batch(size, randomness)) as level:
                given = REPLACED["_create_batched_inputs"](dims, leaves, level, shape)
                out = modes.call_user_with(func, given, kwargs)
                return REPLACED["_unwrap_batched"](out, out_dims, level, size, func)
        prefix = tuple(in_dims) if isinstance(in_dims, list) else in_dims
        if isinstance(prefix, tuple) and len(prefix) != len(args):
            raise ArgumentValueError(
                "vmap: in_dims is not compatible with the structure of `inputs`: there are "
                f"{len(prefix)} for {len(args)} arguments",
                "one for each, or one int",
            )
        if not isinstance(prefix, (int, tuple)):
            raise ArgumentValueError(f"vmap(in_dims): must be an int or a tuple, not {in_dims!r}")
        shape, leaves = flatten(args)
        dims = spread(prefix, args, "vmap: in_dims is not compatible with the structure of `inputs`")
        size = _sizes(func, leaves, dims)
        moved = [x if d is None else to_front(x, d) for x, d in zip(leaves, dims, strict=True)]

        def run(rows: list, size: int) -> Any:
            with opened(Batch(size, randomness)) as level:
                given = [x if d is None else level.wrap(x) for x, d in zip(rows, dims)]
                out = modes.call_user_with(func, unflatten(shape, given), kwargs)
                return _taken_out(level, out, out_dims)

        if chunk_size is None or chunk_size >= size:
            return run(moved, size)
        state = default_generator.get_state() if randomness == "same" else None
        parts = []
        for s in range(0, size, chunk_size):
            if s and state is not None:  # or each chunk would have numbers of its own
                default_generator.set_state(state)
            rows = [x if d is None else x[s : s + chunk_size] for x, d in zip(moved, dims)]
            parts.append(run(rows, min(chunk_size, size - s)))
        shapes = [flatten(part) for part in parts]
        places = spread(out_dims if not isinstance(out_dims, list) else tuple(out_dims), parts[0], "out_dims")
        joined = [
            column[0] if d is None else REGISTRY["cat"](column, dim=d)
            for d, *column in zip(places, *(leaves for _, leaves in shapes))
        ]
        return unflatten(shapes[0][0], joined)

    mapped.__name__ = mapped.__qualname__ = getattr(func, "__name__", "vmapped")
    mapped.__wrapped__ = func  # type: ignore[attr-defined]
    return refusing(mapped)


vmap = refusing(vmap)
offered.append(vmap)


# ---- random numbers ----------------------------------------------------------------------------------------
def drawn(name: str, operands: tuple, attrs: dict[str, Any], reserve: Callable[[int], Tensor]) -> Any:
    """What a random op does inside of vmap; NotImplemented where no vmap is open.

    reserve(count): a state to draw so many words from.  What asks for a shape alone gets the numbers of the
    whole shape, examples in front.  Raises TransformError where vmap was told to refuse.
    """
    batches = [level for level in modes.local.levels if isinstance(level, Batch)]
    if not batches:
        return NotImplemented
    if any(level.randomness == "error" for level in batches):
        raise TransformError(
            f"{name.removeprefix('random_')}: called random operation while in randomness error mode: vmap "
            "was not told whether each example gets numbers of its own",
            'pass randomness="different" or randomness="same" to vmap',
        )
    own = [level for level in batches if level.randomness == "different"]

    def wrapped(found: Tensor) -> Tensor:
        for level in own:
            found = level.wrap(found)
        return found

    def sized(name: str, size: tuple, **more: Any) -> Tensor:
        whole = (*(level.size for level in own), *size)
        return wrapped(_plain(REGISTRY[name], (), {"size": whole, **more}, reserve))

    if "size" in attrs:
        return sized(name, attrs["size"], **{k: v for k, v in attrs.items() if k != "size"})
    if name == "random_permutation":
        sizes = tuple(level.size for level in own)
        rows = [_plain(REGISTRY[name], (), attrs, reserve) for _ in range(prod(sizes))]
        n = attrs["n"]
        if not rows:
            return wrapped(REGISTRY["new_empty"](reserve(0), (*sizes, n), dtype=attrs["dtype"]))
        return wrapped(REGISTRY["reshape"](REGISTRY["stack"](rows), (*sizes, n)))
    if name not in _BY_SIZE:
        return _drawn_for(REGISTRY[name], operands, attrs, batches, reserve)
    (operand,) = operands
    shape = tuple(operand.shape)
    if name == "random_bernoulli":  # as the op has it
        chances = REGISTRY["cast"](operand, dtype=float32)
        return REGISTRY["cast"](sized("random_uniform", shape, dtype=float32) < chances, dtype=operand.dtype)
    if name == "random_dropout":
        p = attrs["p"]
        kept = sized("random_words", shape) >= float(round(p * 4294967296.0))
        return REGISTRY["where"](kept, operand * (1.0 / (1.0 - p) if p < 1.0 else 0.0), 0.0)
    count = attrs["num_samples"]
    if not attrs["replacement"]:  # the smallest of exponential times of these rates
        times = sized("random_exponential", shape, dtype=float64) / operand
        return REGISTRY["topk"](times, count, dim=-1, largest=False)[1]
    sums = REGISTRY["cumsum"](REGISTRY["cast"](operand, dtype=float64), dim=-1)
    at = sized("random_uniform", (*shape[:-1], count), dtype=float64) * sums[..., -1:]
    return REGISTRY["searchsorted"](sums, at, right=True)


# Draws for an operand that are made of draws of its shape.
_BY_SIZE = ("random_bernoulli", "random_dropout", "random_multinomial")


def _plain(op: Op, operands: tuple, attrs: dict[str, Any], reserve: Callable[[int], Tensor]) -> Tensor:
    """A draw that no vmap has a part in."""
    count = draws(op, *(x._meta for x in operands), reserve(0)._meta, **attrs)
    return run_general(op, (*operands, reserve(count)), attrs)


def _drawn_for(
    op: Op, operands: tuple, attrs: dict[str, Any], batches: list[Batch], reserve: Callable[[int], Tensor]
) -> Tensor:
    """A draw for each element of operands, where it hangs on them how many numbers that takes.

    "different": one draw for all examples.  The "same": a draw from one state for each of them.
    """
    if not batches:
        return _plain(op, operands, attrs, reserve)
    *outer, level = batches
    varying = [_holds(level, x) for x in operands]
    if level.randomness == "same" and not any(varying):
        return _drawn_for(op, operands, attrs, outer, reserve)
    if level.randomness == "different" or not level.size:
        rank = max(x.ndim for x in operands)
        full = tuple(inserted(parts_at(level, x)[0], rank - x.ndim) for x in operands)
        return unite_at(level, (_drawn_for(op, full, attrs, outer, reserve),))
    states: dict[int, Tensor] = {}

    def again(count: int) -> Tensor:
        if count not in states:
            states[count] = reserve(count)
        return states[count]

    whole = tuple(parts_at(level, x)[0] if v else x for x, v in zip(operands, varying))
    rows = [
        tuple(REGISTRY["basic_index"](x, i) if v else x for x, v in zip(whole, varying))
        for i in range(level.size)
    ]
    return unite_at(level, (REGISTRY["stack"]([_drawn_for(op, row, attrs, outer, again) for row in rows]),))


def _holds(level: Level, x: Any) -> bool:
    """Whether a tensor is wrapped by this level, on whatever depth."""
    if not isinstance(x, Transformed):
        return False
    return x._level is level or any(_holds(level, part) for part in x._level.split(x))


__all__ = ["Batch", "Batched", "drawn", "from_front", "to_front", "vmap"]
