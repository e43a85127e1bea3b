"""Collectives: what all ranks of a group compute together, each with a tensor of its own.

    all_reduce       every rank gets the sum (or mean, minimum ...) of all
    reduce           one rank gets it; the others zeros
    broadcast        every rank gets the tensor of one
    all_gather       every rank gets all, one behind the other along a dim
    reduce_scatter   every rank gets its part of the sum
    all_to_all       every rank gives each other one a part
    all_to_all_parts ... of any sizes
    permute_ranks    every rank gives its tensor to another, as pairs say

`group` holds the ranks that meet, by their numbers among all.  The gradients are those of the sum of what all
ranks compute: what a rank gave to others gets back what became of it there.  So every rank of the group must
go backward through a collective, as it went forward.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..errors import ArgumentValueError, DimError, DTypeError, GradError, ShapeError
from ..meeting import Group, met
from ..op import Traits, define
from ..sample import Operand, Sample
from ..types import Type

REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
_BITS = ("band", "bor", "bxor")
_TOGETHER = lowering.extern("several processes compute it together")
MEETS = Traits(meets=True, refuses=True)
MOVES = Traits(meets=True, refuses=True, movement=True)
_ALONE: Group = (0,)


def bytes_sent(name: str, kind: Type, ranks: int) -> int:
    """What a rank sends of an operand of this type, where as little is sent as can be.

    Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in
    MPICH", 2005.
    """
    whole = kind.size * kind.dtype.itemsize
    if ranks == 1:
        return 0
    return round(whole * {
        "all_reduce": 2 * (ranks - 1) / ranks, "all_gather": ranks - 1, "reduce_scatter": (ranks - 1) / ranks,
        "all_to_all": (ranks - 1) / ranks, "all_to_all_parts": (ranks - 1) / ranks,
    }.get(name, 1))  # fmt: skip


# ---- what calls mean
def _bind_group(name: str, group: Any) -> Group:
    ranks = tuple(group)
    if not ranks or len(set(ranks)) != len(ranks) or not all(isinstance(r, int) and r >= 0 for r in ranks):
        raise ArgumentValueError(f"{name}(group): distinct ranks, at least one, not {group!r}")
    return ranks


def _bind_dim(name: str, dim: int, ndim: int) -> int:
    if not -ndim <= dim < ndim:
        raise DimError(f"{name}(dim={dim}): the tensor has {ndim} dims", "a 0-d tensor: unsqueeze it")
    return dim % ndim


def _bind_reduce(name: str, reduce: str) -> str:
    if reduce not in REDUCTIONS:
        raise ArgumentValueError(f"{name}(reduce): one of {', '.join(REDUCTIONS)}, not {reduce!r}")
    return reduce


def _bind_rank(name: str, rank: int, group: Group) -> int:
    if rank not in group:
        raise ArgumentValueError(f"{name}: rank {rank} is not in its group {list(group)}")
    return rank


def _check_reduced(name: str, input: Type, reduce: str) -> None:
    dtype = input.dtype
    if reduce == "avg" and not dtype.inexact:
        raise DTypeError(f"{name}(reduce='avg'): takes floats, not {dtype.name}", "sum, and divide")
    if reduce == "sum" and dtype.name == "bool":
        raise DTypeError(f"{name}(reduce='sum'): does not take bool", "'max' asks whether any is true")
    if reduce in _BITS and dtype.inexact:
        raise DTypeError(f"{name}(reduce={reduce!r}): takes integers and bool, not {dtype.name}")
    if reduce in ("min", "max") and dtype.is_complex:
        raise DTypeError(f"{name}(reduce={reduce!r}): complex numbers have no order")


def _parts(name: str, input: Type, dim: int, group: Group) -> Any:
    size = input.shape[dim]
    if size % len(group) != 0:
        raise ShapeError(
            f"{name}(dim={dim}): {size} does not part into {len(group)} ranks",
            f"input: {input}",
            "pad it to a multiple",
        )
    return size // len(group)


def _resized(input: Type, dim: int, size: Any) -> Type:
    return input.with_shape((*input.shape[:dim], size, *input.shape[dim + 1 :]))


# ---- their meaning
def _collective(name: str, shape: Any = None, **record: Any) -> Any:
    """Enter a collective.  shape: (the operand's, **attrs) -> that of what a rank gets, if it is another."""

    def run(input: np.ndarray, **attrs: Any) -> np.ndarray:
        if len(attrs["group"]) == 1:
            return input.copy()
        made = input.shape if shape is None else shape(input.shape, **attrs)
        return met(name, attrs, (input,), np.empty(made, input.dtype))

    given = {"reference": run, "traits": MEETS, **record}
    return define(name, complex="analytic", operands=("input",), lower=_TOGETHER, method=False, **given)


def _at(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _same(input: Type, *, group: Group, **_: Any) -> Type:
    return input


def _reduced(name: str) -> Any:
    def infer(input: Type, *, reduce: str, group: Group, **_: Any) -> Type:
        _check_reduced(name, input, reduce)
        return input

    return infer


# ---- all_reduce
def _bind_all_reduce(input, reduce="sum", group=_ALONE):
    """Combine the tensors of all ranks of `group`, element by element; every rank gets the result.

    reduce: "sum", "avg", "product", "min", "max", or "band", "bor", "bxor" of integers.
    Shapes: [...] -> [...], the same on every rank.
    """
    group = _bind_group("all_reduce", group)
    return (input,), {"reduce": _bind_reduce("all_reduce", reduce), "group": group}


def _all_reduce_vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    _check_linear("all_reduce", attrs["reduce"])
    return (all_reduce(cotangents[0], **attrs),)


def _check_linear(name: str, reduce: str) -> None:
    if reduce not in ("sum", "avg"):
        raise GradError(f"{name}(reduce={reduce!r}) has no gradient", "sum and avg have one")


def _samples(*shapes: tuple[int, ...], **kwargs: Any) -> Any:
    made = [Sample((Operand(s),), {**kwargs, "group": _ALONE}) for s in shapes]
    return lambda: made


_ANY = ((), (0,), (1,), (17,), (33,), (2, 3, 4))
_LONG = ((0,), (1,), (17,), (33,), (2, 3, 4))
_NOT_0D: dict[str, str] = {"0-d": "needs a dim"}

all_reduce = _collective(
    "all_reduce",
    bind=_bind_all_reduce,
    attrs=("reduce", "group"),
    infer=_reduced("all_reduce"),
    vjp=_all_reduce_vjp,
    samples=_samples(*_ANY),
    dtypes="number",
)


# ---- reduce, and its transpose
def _bind_reduce_to(input, dst, reduce="sum", group=_ALONE):
    """Combine the tensors of all ranks of `group` for rank `dst`, which gets the result; others get zeros.

    reduce: as of `all_reduce`.  Shapes: [...] -> [...].
    """
    group = _bind_group("reduce", group)
    attrs = {"dst": _bind_rank("reduce", dst, group), "reduce": _bind_reduce("reduce", reduce)}
    return (input,), {**attrs, "group": group}


def _reduce_vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    _check_linear("reduce", attrs["reduce"])
    g = broadcast(cotangents[0], attrs["dst"], attrs["group"])
    return (g if attrs["reduce"] == "sum" else g / len(attrs["group"]),)


reduce = _collective(
    "reduce",
    bind=_bind_reduce_to,
    attrs=("dst", "reduce", "group"),
    infer=_reduced("reduce"),
    vjp=_reduce_vjp,
    samples=_samples(*_ANY, dst=0),
    dtypes="number",
)


def _bind_broadcast(input, src, group=_ALONE):
    """Give the tensor of rank `src` to all ranks of `group`.  Shapes: [...] -> [...]."""
    group = _bind_group("broadcast", group)
    return (input,), {"src": _bind_rank("broadcast", src, group), "group": group}


broadcast = _collective(
    "broadcast",
    bind=_bind_broadcast,
    attrs=("src", "group"),
    infer=_same,
    grad=lambda g, src, group: reduce(g, src, "sum", group),
    traits=MOVES,
    samples=_samples(*_ANY, src=0),
)


# ---- all_gather and reduce_scatter
def _bind_all_gather(input, dim=0, group=_ALONE):
    """Put the tensors of all ranks of `group` one behind the other along `dim`; every rank gets the whole.

    Shapes: [..., n, ...] -> [..., ranks * n, ...].
    """
    dim = _bind_dim("all_gather", dim, input.ndim)
    return (input,), {"dim": dim, "group": _bind_group("all_gather", group)}


all_gather = _collective(
    "all_gather",
    bind=_bind_all_gather,
    attrs=("dim", "group"),
    infer=lambda input, *, dim, group: _resized(input, dim, input.shape[dim] * len(group)),
    shape=lambda shape, dim, group: _at(shape, dim, shape[dim] * len(group)),
    grad=lambda g, dim, group: reduce_scatter(g, dim, "sum", group),
    traits=MOVES,
    samples=_samples(*_LONG, dim=0),
    inapplicable=_NOT_0D,
)


def _bind_reduce_scatter(input, dim=0, reduce="sum", group=_ALONE):
    """Combine the tensors of all ranks of `group`; each gets its part of the result, cut along `dim`.

    reduce: as of `all_reduce`.  Shapes: [..., ranks * n, ...] -> [..., n, ...].  Raises ShapeError for a size
    that does not part evenly.
    """
    attrs = {
        "dim": _bind_dim("reduce_scatter", dim, input.ndim),
        "reduce": _bind_reduce("reduce_scatter", reduce),
    }
    return (input,), {**attrs, "group": _bind_group("reduce_scatter", group)}


def _infer_reduce_scatter(input: Type, *, dim: int, reduce: str, group: Group) -> Type:
    _check_reduced("reduce_scatter", input, reduce)
    return _resized(input, dim, _parts("reduce_scatter", input, dim, group))


def _reduce_scatter_vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    _check_linear("reduce_scatter", attrs["reduce"])
    g = all_gather(cotangents[0], attrs["dim"], attrs["group"])
    return (g if attrs["reduce"] == "sum" else g / len(attrs["group"]),)


reduce_scatter = _collective(
    "reduce_scatter",
    bind=_bind_reduce_scatter,
    attrs=("dim", "reduce", "group"),
    infer=_infer_reduce_scatter,
    shape=lambda shape, dim, group, **_: _at(shape, dim, shape[dim] // len(group)),
    vjp=_reduce_scatter_vjp,
    samples=_samples(*_LONG, dim=0),
    inapplicable=_NOT_0D,
    dtypes="number",
)


# ---- all_to_all and permute_ranks
def _bind_all_to_all(input, split_dim=0, cat_dim=0, group=_ALONE):
    """Cut the tensor along `split_dim`, give each rank of `group` its part, and join what all gave.

    Shapes: [..., ranks * n, ..., m, ...] -> [..., n, ..., ranks * m, ...], n along `split_dim` and m along
    `cat_dim`, which may be the same.  Raises ShapeError for a size that does not part evenly.
    """
    attrs = {
        "split_dim": _bind_dim("all_to_all", split_dim, input.ndim),
        "cat_dim": _bind_dim("all_to_all", cat_dim, input.ndim),
    }
    return (input,), {**attrs, "group": _bind_group("all_to_all", group)}


def _exchanged(shape: tuple[int, ...], split_dim: int, cat_dim: int, ranks: int) -> tuple[int, ...]:
    part = _at(shape, split_dim, shape[split_dim] // ranks)
    return _at(part, cat_dim, part[cat_dim] * ranks)


def _infer_all_to_all(input: Type, *, split_dim: int, cat_dim: int, group: Group) -> Type:
    part = _resized(input, split_dim, _parts("all_to_all", input, split_dim, group))
    return _resized(part, cat_dim, part.shape[cat_dim] * len(group))


all_to_all = _collective(
    "all_to_all",
    bind=_bind_all_to_all,
    attrs=("split_dim", "cat_dim", "group"),
    infer=_infer_all_to_all,
    shape=lambda shape, split_dim, cat_dim, group: _exchanged(shape, split_dim, cat_dim, len(group)),
    grad=lambda g, split_dim, cat_dim, group: all_to_all(g, cat_dim, split_dim, group),
    traits=MOVES,
    samples=_samples(*_LONG),
    inapplicable=_NOT_0D,
)


def _bind_all_to_all_parts(input, sent, received, dim=0, group=_ALONE):
    """Cut the tensor along `dim` into parts of the sizes `sent`, give each rank of `group` its one, and join
    what all gave, whose sizes are `received`.

    What a rank sends to another is what that one receives from it.  Shapes: [..., sum of sent, ...] ->
    [..., sum of received, ...].  Raises ShapeError where the parts are not the whole.
    """
    group = _bind_group("all_to_all_parts", group)
    attrs: dict[str, Any] = {"dim": _bind_dim("all_to_all_parts", dim, input.ndim)}
    for name, sizes in (("sent", sent), ("received", received)):
        attrs[name] = sizes = tuple([int(n) for n in sizes])
        if len(sizes) != len(group) or min(sizes) < 0:
            raise ArgumentValueError(
                f"all_to_all_parts({name}): a size for each of {len(group)} ranks, not {list(sizes)}"
            )
    return (input,), {**attrs, "group": group}


def _infer_all_to_all_parts(
    input: Type, *, dim: int, sent: tuple[int, ...], received: tuple[int, ...], group: Group
) -> Type:
    if not same(input.shape[dim], sum(sent)):
        raise ShapeError(
            f"all_to_all_parts(sent={list(sent)}): its sizes add up to those of dim {dim}", f"input: {input}"
        )
    return _resized(input, dim, sum(received))


all_to_all_parts = _collective(
    "all_to_all_parts",
    bind=_bind_all_to_all_parts,
    attrs=("dim", "sent", "received", "group"),
    infer=_infer_all_to_all_parts,
    shape=lambda shape, dim, received, **_: _at(shape, dim, sum(received)),
    grad=lambda g, dim, sent, received, group: all_to_all_parts(g, received, sent, dim, group),
    traits=MOVES,
    samples=lambda: [
        Sample((Operand(s),), {"sent": (s[0],), "received": (s[0],), "group": _ALONE}) for s in _LONG
    ],
    inapplicable=_NOT_0D,
)


def _bind_permute_ranks(input, pairs, group=_ALONE):
    """Give the tensor of rank a to rank b for each (a, b) of `pairs`; who gets none has zeros.

    No rank gives twice, and none gets two.  Shapes: [...] -> [...].
    """
    group = _bind_group("permute_ranks", group)
    pairs = tuple([(a, b) for a, b in pairs])
    for ranks in zip(*pairs, strict=True):
        if len(set(ranks)) != len(ranks):
            raise ArgumentValueError("permute_ranks(pairs): a rank gives once, and gets once", f"{pairs}")
        for rank in ranks:
            _bind_rank("permute_ranks", rank, group)
    return (input,), {"pairs": pairs, "group": group}


def _permuted(input: np.ndarray, *, pairs: tuple, group: Group) -> np.ndarray:
    if len(group) == 1:
        return input.copy() if pairs else np.zeros_like(input)
    return met("permute_ranks", {"pairs": pairs, "group": group}, (input,), np.empty_like(input, order="C"))


permute_ranks = _collective(
    "permute_ranks",
    bind=_bind_permute_ranks,
    attrs=("pairs", "group"),
    infer=_same,
    reference=_permuted,
    grad=lambda g, pairs, group: permute_ranks(g, tuple([(b, a) for a, b in pairs]), group),
    traits=MOVES,
    samples=_samples(*_ANY, pairs=((0, 0),)),
)
