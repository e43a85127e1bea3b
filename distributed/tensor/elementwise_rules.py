"""Ops that do each element by itself: cut alike, and what is linear keeps partial sums."""

from __future__ import annotations

from ...ir.op import REGISTRY
from .placement_types import Partial, Placement, Shard
from .strategies import Call, Family, R, Way, enter, sharded

# Of partial operands these make a partial result: all of them, one of them, the first alone.
_SUMS = ("add", "sub", "neg", "clone", "conj_physical")
_PRODUCTS = ("mul",)
_FIRST = ("div",)
# What the first operand holds is of no account.
_LIKE = ("zeros_like", "ones_like", "empty_like", "full_like", "fill", "copy")


def cut_alike(call: Call) -> list[Way]:
    """Every operand cut along a dim that it shares with the result; one that is broadcast is whole."""
    found: list[Way] = []
    shape = call.outs[0].shape
    for d in sharded(call):
        if -d > len(shape):
            continue
        ins: list[Placement | None] = []
        for own in call.shapes:
            if own is None:
                ins.append(None)
            else:
                has = -d <= len(own) and own[d] == shape[d]
                ins.append(Shard(len(own) + d) if has else R)
        found.append((tuple(ins), (Shard(len(shape) + d),)))
    return found


def _sums(call: Call) -> list[Way]:
    found = cut_alike(call)
    kinds = {p.reduce_op for p in call.given if isinstance(p, Partial)}
    for kind in kinds & {"sum", "avg"}:
        p = Partial(kind)
        found.append((tuple([None if x is None else p for x in call.operands]), (p,)))
    return found


def _products(call: Call) -> list[Way]:
    found = cut_alike(call)
    for i, p in enumerate(call.given):
        if isinstance(p, Partial) and p.reduce_op in ("sum", "avg"):
            ins = tuple([None if x is None else p if i == j else R for j, x in enumerate(call.operands)])
            found.append((ins, (p,)))
    return found


def _first(call: Call) -> list[Way]:
    return [way for way in _products(call) if not isinstance(way[1][0], Partial) or way[0][0] == way[1][0]]


def _like(call: Call) -> list[Way]:
    """As the operands that count lie; the first takes what it gets, which sends nothing."""
    found = cut_alike(call)
    if isinstance(call.given[0], Partial):
        rest = tuple([None if x is None else R for x in call.operands[1:]])
        found.append(((call.given[0], *rest), (R,)))
    return found


def _cast(call: Call) -> list[Way]:
    """To a wider dtype sums stay partial; what rounds is done to the sum, as in one process."""
    first = call.operands[0]
    assert first is not None
    before, after = first._meta.dtype, call.attrs["dtype"]
    wider = before.inexact and after.inexact and after.itemsize > before.itemsize
    return _sums(call) if wider else cut_alike(call)


for _op in REGISTRY.values():
    if _op.traits.elementwise and len(_op.all_outputs) == 1:
        enter(Family(cut_alike), _op.name)
enter(Family(_sums), *_SUMS)
enter(Family(_products), *_PRODUCTS)
enter(Family(_first), *_FIRST)
enter(Family(_like), *_LIKE)
enter(Family(_cast), "cast")
