"""What ops do on nested tensors, by the names of their records, or by the trait of being elementwise.

Importing this module fills `Nested.rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..ir.errors import ShapeError
from ..ir.op import REGISTRY, Op
from . import ops
from .compound import entering
from .dispatch import run_general
from .nested_tensor import Nested, nested_of, numbers, packed, padded, present
from .tensor import Tensor

RULES = Nested.rules
rule = entering(RULES)


# ---- element by element ------------------------------------------------------------------------------------
def _beside(x: Any, like: Nested) -> Any:
    """An operand as one of values: a nested tensor's, or a dense one that broadcasts to it; else None."""
    if x is None or not isinstance(x, Tensor):
        return x
    if isinstance(x, Nested):
        fits = x._where.fits(like._where) and x._ragged == like._ragged and x.ndim == like.ndim
        return x._stored if fits else NotImplemented
    if not x.ndim or x.ndim < like.ndim - like._ragged:
        return x
    if x.ndim > like.ndim:
        return NotImplemented
    whole = x.reshape((1,) * (like.ndim - x.ndim) + tuple(x.shape))
    if whole.shape[like._ragged] != 1:
        return packed(whole, like)._stored if whole.shape[0] == like.shape[0] else NotImplemented
    if whole.shape[0] == 1:
        return whole.squeeze(0)
    each = whole.squeeze(like._ragged).index_select(0, numbers(like._where.rows))
    return each.movedim(0, like._ragged - 1)


def elementwise(op: Op) -> Callable:
    """An op that does each element by itself, on the values."""

    def apply(*operands: Any, **attrs: Any) -> Any:
        like = max((x for x in operands if isinstance(x, Nested)), key=lambda x: x.ndim)
        values = [_beside(x, like) for x in operands]
        if any(v is NotImplemented for v in values):
            raise ShapeError(
                f"{op.name}: nested tensors go with those of the same lengths, and what broadcasts to them",
                *[f"operand: {x._meta}" for x in operands if isinstance(x, Tensor)],
            )
        return like._with(run_general(op, values, attrs))

    return apply


for _op in REGISTRY.values():
    if _op.traits.elementwise and len(_op.all_outputs) == 1:
        RULES[_op.name] = elementwise(_op)
RULES["cast"] = lambda x, dtype: x._with(x._stored.to(dtype))
RULES["clone"] = lambda x, **_: x._with(x._stored.clone())


def _filled(name: str) -> Callable:
    return lambda x, **attrs: x._with(run_general(REGISTRY[name], (x._stored,), attrs))


RULES.update({name: _filled(name) for name in ("zeros_like", "ones_like", "empty_like", "full_like")})


@rule("random_dropout")
def _dropout(x: Nested, state: Tensor, **attrs: Any) -> Any:
    found = run_general(REGISTRY["random_dropout"], (x._stored, state), attrs)
    return x._with(found[0] if isinstance(found, tuple) else found)


@rule("copy")
def _copy(x: Tensor, src: Tensor, **_: Any) -> Any:
    same = isinstance(x, Nested) and isinstance(src, Nested) and x._where.fits(src._where)
    return src.to(x.dtype) if same else NotImplemented


# ---- along dims that are not ragged ------------------------------------------------------------------------
@rule("linear")
def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not isinstance(input, Nested) or input._ragged == input.ndim - 1:
        return NotImplemented
    return input._with(run_general(REGISTRY["linear"], (input._stored, weight, bias), {}))


@rule("matmul")
def _matmul(a: Tensor, b: Tensor) -> Any:
    if not isinstance(a, Nested) or isinstance(b, Nested) or b.ndim != 2 or a._ragged == a.ndim - 1:
        return NotImplemented
    return a._with(ops.matmul(a._stored, b))


def _norm(name: str) -> Callable:
    def apply(input: Tensor, weight: Any = None, bias: Any = None, **attrs: Any) -> Any:
        if not isinstance(input, Nested) or attrs["dim"][0] <= input._ragged:
            return NotImplemented
        operands = (input._stored, weight, bias)[: len(REGISTRY[name].operands)]
        inner = {**attrs, "dim": tuple(d - 1 for d in attrs["dim"])}
        found = run_general(REGISTRY[name], operands, inner)
        return input._with(found[0] if isinstance(found, tuple) else found)

    return apply


RULES["layer_norm"], RULES["rms_norm"] = _norm("layer_norm"), _norm("rms_norm")


@rule("embedding")
def _embedding(input: Tensor, weight: Tensor, **attrs: Any) -> Any:
    return input._with(run_general(REGISTRY["embedding"], (input._stored, weight), attrs))


def _softmax(name: str) -> Callable:
    def apply(x: Nested, dim: int, **attrs: Any) -> Any:
        if not dim:
            return NotImplemented
        if dim != x._ragged:
            return x._with(run_general(REGISTRY[name], (x._stored,), {"dim": dim - 1, **attrs}))
        whole = run_general(REGISTRY[name], (padded(x, -np.inf),), {"dim": dim, **attrs})
        return packed(whole, x)

    return apply


RULES["softmax"], RULES["log_softmax"] = _softmax("softmax"), _softmax("log_softmax")


# ---- reductions --------------------------------------------------------------------------------------------
def _reduced(name: str, padding: float) -> Callable:
    def apply(x: Nested, dim: Any = None, keepdim: bool = False, **attrs: Any) -> Any:
        op, dims = REGISTRY[name], dim if isinstance(dim, tuple) or dim is None else (dim,)
        if dims is None or len(dims) == x.ndim:
            if keepdim:
                return NotImplemented
            return ops.FUNCTIONS[name](x._stored, **{k: v for k, v in attrs.items() if v is not None})
        if 0 in dims:
            return NotImplemented
        if x._ragged in dims:
            if name == "mean":
                total = RULES["sum"](x, dims, keepdim, **attrs)
                others = prod(x._meta.shape[d] for d in dims if d != x._ragged)
                lengths = numbers(x._where.lengths * others)
                rank = total.ndim - 1
                return total / lengths.reshape(-1, *(1,) * rank).to(total.dtype)
            return run_general(op, (padded(x, padding),), {"dim": dims, "keepdim": keepdim, **attrs})
        inner = tuple(d - 1 for d in dims)
        found = run_general(op, (x._stored,), {"dim": inner, "keepdim": keepdim, **attrs})
        gone = 0 if keepdim else sum(d < x._ragged for d in dims)
        return nested_of(found, x._where, x._ragged - gone, x._layout)

    return apply


RULES.update({
    "sum": _reduced("sum", 0), "mean": _reduced("mean", 0), "amax": _reduced("amax", -np.inf),
    "amin": _reduced("amin", np.inf),
})  # fmt: skip


# ---- shapes ------------------------------------------------------------------------------------------------
@rule("transpose")
def _transposed(x: Nested, dim0: int, dim1: int) -> Any:
    if dim0 == dim1:
        return x
    if 0 in (dim0, dim1):
        return NotImplemented
    ragged = {dim0: dim1, dim1: dim0}.get(x._ragged, x._ragged)
    return nested_of(x._stored.transpose(dim0 - 1, dim1 - 1), x._where, ragged, x._layout)


@rule("permute")
def _permuted(x: Nested, dims: tuple[int, ...]) -> Any:
    if dims[0]:
        return NotImplemented
    values = x._stored.permute(tuple(d - 1 for d in dims[1:]))
    return nested_of(values, x._where, dims.index(x._ragged), x._layout)


@rule("unsqueeze")
def _unsqueezed(x: Nested, dim: int) -> Any:
    if not dim:
        return NotImplemented
    return nested_of(x._stored.unsqueeze(dim - 1), x._where, x._ragged + (dim <= x._ragged), x._layout)


@rule("squeeze")
def _squeezed(x: Nested, dim: Any = None) -> Any:
    if dim is None:
        return NotImplemented
    dims = [d for d in (dim if isinstance(dim, tuple) else (dim,)) if x._meta.shape[d] == 1]
    if 0 in dims or x._ragged in dims:
        return NotImplemented
    values = x._stored.squeeze(tuple(d - 1 for d in dims)) if dims else x._stored
    return nested_of(values, x._where, x._ragged - sum(d < x._ragged for d in dims), x._layout)


@rule("view", "reshape")
def _reshaped(x: Nested, shape: tuple[int, ...]) -> Any:
    before, size = prod(x._meta.shape[1 : x._ragged]), x._meta.shape[x._ragged]
    if not shape or shape[0] != x._meta.shape[0]:
        return NotImplemented
    for at in range(1, len(shape)):
        if shape[at] == size and prod(shape[1:at]) == before:
            total = x._stored.shape[x._ragged - 1]
            return nested_of(
                x._stored.reshape(*shape[1:at], total, *shape[at + 1 :]), x._where, at, x._layout
            )
    return NotImplemented


@rule("basic_index")
def _indexed(x: Nested, index: tuple) -> Any:
    first, rest = index[0], index[1:]
    if first[0] == "int":
        begin, end = x._where.array[first[1] : first[1] + 2]
        found = x._stored.narrow(x._ragged - 1, int(begin), int(end - begin))
        return found[_python(_of_length(rest, x, int(end - begin)))] if rest else found
    sizes = x._meta.shape
    if first != ("slice", 0, sizes[0], 1) or any(item[0] == "new" for item in rest):
        return NotImplemented
    if rest[x._ragged - 1 : x._ragged] and rest[x._ragged - 1] != ("slice", 0, sizes[x._ragged], 1):
        return NotImplemented
    items = list(rest)
    if len(items) >= x._ragged:
        items[x._ragged - 1] = ("slice", None, None, None)
    gone = sum(item[0] == "int" for item in items[: x._ragged - 1])
    return nested_of(x._stored[_python(items)], x._where, x._ragged - gone, x._layout)


def _of_length(items: tuple, x: Nested, length: int) -> list:
    """The index of one sequence: the whole of the longest is the whole of this one."""
    made = list(items)
    at = x._ragged - 1
    if len(made) > at and made[at] == ("slice", 0, x._meta.shape[x._ragged], 1):
        made[at] = ("slice", 0, length, 1)
    return made


def _python(items: Any) -> tuple:
    return tuple({"new": None, "int": i[-1], "slice": slice(*i[1:])}[i[0]] for i in items)


@rule("cat")
def _joined(*tensors: Tensor, dim: int = 0, **_: Any) -> Any:
    first = tensors[0]
    if not isinstance(first, Nested) or dim in (0, first._ragged):
        return NotImplemented
    parts = [_beside(x, first) if isinstance(x, Nested) else NotImplemented for x in tensors]
    if any(p is NotImplemented for p in parts):
        return NotImplemented
    return first._with(ops.cat(parts, dim - 1))


# ---- attention ---------------------------------------------------------------------------------------------
def attended(attend: Callable, query: Any, key: Any, value: Any, mask: Any, is_causal: bool) -> Any:
    """Attention between nested tensors [B, ..., j, e]: on padded ones, of which none sees what is padding.

    attend(query, key, value, mask) -> [B, ..., longest, v].
    """
    if mask is not None or not all(
        isinstance(x, Nested) and x._ragged == x.ndim - 2 for x in (query, key, value)
    ):
        raise ShapeError(
            "scaled_dot_product_attention: nested tensors are [B, ..., j, e], all three, without a mask"
        )
    if not key._where.fits(value._where):
        raise ShapeError("scaled_dot_product_attention: keys and values must have the same lengths")
    seen = present(key).reshape(key.shape[0], *(1,) * (key.ndim - 2), int(key._where.size))
    if is_causal:
        size = (int(query._where.size), int(key._where.size))
        seen = seen & ops.ones(size, dtype=seen.dtype).tril()
    return packed(attend(padded(query), padded(key), padded(value), seen), query)
