"""Ops that move elements: views, reshapes, joins, and picking along dims that are not cut."""

from __future__ import annotations

from typing import Any

from .parts import coordinate, local_shape, part_along
from .placement_types import Partial, Placement, Shard
from .strategies import Call, Family, P, R, Way, cuts, enter, linear_partials


def mapped(call: Call, to: dict[int, int]) -> list[Way]:
    """One operand, cut along a dim that becomes one of the result's; partial sums stay partial."""
    rest: list[Placement | None] = [None if x is None else R for x in call.operands[1:]]
    found: list[Way] = [((Shard(d), *rest), (Shard(to[d]),)) for d in cuts(call) if d in to]
    found += [((p, *rest), (p,)) for p in linear_partials(call)]
    p = call.given[0]
    if isinstance(p, Partial) and p.reduce_op in ("min", "max"):
        found.append(((p, *rest), (p,)))
    return found


# ---- reshape
def reshape_map(before: tuple[int, ...], after: tuple[int, ...], even: int) -> dict[int, int]:
    """Which dims of the result are those of the operand, cut alike, if both are cut in `even` parts or one.

    A dim that stays as long as it is may be cut anyhow; of dims that are joined or parted, the first may,
    where both part evenly.
    """
    found: dict[int, int] = {}
    if 0 in before or 0 in after:
        return found
    i = j = 0
    while i < len(before) and j < len(after):
        if before[i] == 1 and after[j] != 1:
            i += 1
            continue
        if after[j] == 1 and before[i] != 1:
            j += 1
            continue
        a, b, first, second = before[i], after[j], i, j
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * before[i], i + 1
            else:
                b, j = b * after[j], j + 1
        plain = i == first + 1 and j == second + 1
        if plain or before[first] % even == after[second] % even == 0:
            found[first] = second
    return found


def _reshape(call: Call) -> list[Way]:
    (before, *_), after = call.shapes, call.outs[0].shape
    assert before is not None
    return mapped(call, reshape_map(before, after, call.even))


def _shape_attrs(call: Call) -> dict[str, Any]:
    return {**call.attrs, "shape": call.local_out()}


enter(Family(_reshape, _shape_attrs), "reshape", "view")


# ---- dims in another order
def _permute(call: Call) -> list[Way]:
    return mapped(call, {d: i for i, d in enumerate(call.attrs["dims"])})


def _transpose(call: Call) -> list[Way]:
    a, b = call.attrs["dim0"], call.attrs["dim1"]
    same = {d: d for d in range(call.outs[0].ndim)}
    return mapped(call, {**same, a: b, b: a})


def _squeeze(call: Call) -> list[Way]:
    gone = set(call.attrs["dim"])
    kept = [d for d in range(len(call.shapes[0] or ())) if d not in gone]
    return mapped(call, {d: i for i, d in enumerate(kept)})


def _unsqueeze(call: Call) -> list[Way]:
    at = call.attrs["dim"]
    return mapped(call, {d: d + (d >= at) for d in range(call.outs[0].ndim - 1)})


def _expand(call: Call) -> list[Way]:
    before, after = call.shapes[0] or (), call.outs[0].shape
    more = len(after) - len(before)
    return mapped(call, {d: d + more for d, n in enumerate(before) if n == after[d + more]})


def _size_attrs(call: Call) -> dict[str, Any]:
    return {**call.attrs, "size": call.local_out()}


def _not_along(name: str) -> Any:
    def ways(call: Call) -> list[Way]:
        dims = call.attrs[name]
        gone = {dims} if isinstance(dims, int) else set(dims)
        return mapped(call, {d: d for d in range(call.outs[0].ndim) if d not in gone})

    return ways


def _matrices(call: Call) -> list[Way]:
    return mapped(call, {d: d for d in range(call.outs[0].ndim - 2)})


enter(Family(_permute), "permute")
enter(Family(_transpose), "transpose")
enter(Family(_squeeze), "squeeze")
enter(Family(_unsqueeze), "unsqueeze")
enter(Family(_expand, _size_attrs), "expand")
enter(Family(_not_along("dims")), "flip")
enter(Family(_matrices), "tril", "triu")


def _same_dims(more: int) -> Any:
    """The dims of the result, but the last ones where it has fewer."""
    return lambda call: mapped(call, {d: d for d in range(len(call.shapes[0] or ()) + min(more, 0))})


enter(Family(_same_dims(0)), "real", "imag", "view_as_real")
enter(Family(_same_dims(-1)), "view_as_complex", "pairs_to_complex")


# ---- parts
def _basic_index(call: Call) -> list[Way]:
    """Cut along dims that are taken whole."""
    to, d, out = {}, 0, 0
    shape = call.shapes[0] or ()
    for item in call.attrs["index"]:
        if item[0] == "new":
            out += 1
            continue
        if item == ("slice", 0, shape[d], 1):
            to[d] = out
        out += item[0] != "int"
        d += 1
    return mapped(call, to)


def _index_attrs(call: Call) -> dict[str, Any]:
    (places, *_), shape, found, d = call.ins, call.shapes[0] or (), [], 0
    cut = {p.dim for p in places or () if isinstance(p, Shard)}
    lengths = dict(zip(sorted(cut), _local_lengths(call, sorted(cut)), strict=True))
    for item in call.attrs["index"]:
        if item[0] != "new":
            if d in cut:
                item = ("slice", 0, lengths[d], 1)
            d += 1
        found.append(item)
    assert d == len(shape)
    return {**call.attrs, "index": tuple(found)}


def _local_lengths(call: Call, dims: list[int]) -> list[int]:
    shape, places = call.shapes[0] or (), call.ins[0] or ()
    return [part_along(shape[d], d, call.mesh, places, coordinate(call.mesh))[1] for d in dims]


enter(Family(_basic_index, _index_attrs), "basic_index")


def _gather(call: Call) -> list[Way]:
    """Along a dim that is not cut; both cut alike along another."""
    dim, (own, other) = call.attrs["dim"], (call.shapes[0] or (), call.shapes[1] or ())
    cut = {p.dim for p in call.given if isinstance(p, Shard)}
    return [
        ((Shard(d), Shard(d)), (Shard(d),)) for d in sorted(cut) if d != dim and own[d] == other[d]
    ] + [((p, R), (p,)) for p in linear_partials(call)]  # fmt: skip


def _index_select(call: Call) -> list[Way]:
    dim = call.attrs["dim"]
    found = mapped(call, {d: d for d in range(len(call.shapes[0] or ())) if d != dim})
    if isinstance(call.given[1], Shard):
        found.append(((R, Shard(0)), (Shard(dim),)))
    return found


def _index(call: Call) -> list[Way]:
    """x[tensors]: the operand cut along dims that are not picked; or the tensors, if they are alike."""
    dims, shape = call.attrs["dims"], call.shapes[0] or ()
    together = dims[-1] - dims[0] == len(dims) - 1
    place = dims[0] if together else 0
    more = call.outs[0].ndim - (len(shape) - len(dims))
    rest = [d for d in range(len(shape)) if d not in dims]
    to = {d: i if i < place else i + more for i, d in enumerate(rest)}
    found = mapped(call, to)
    indices = call.shapes[1:]
    if len(set(indices)) == 1:
        cut = {p.dim for p in call.given[1:] if isinstance(p, Shard)}
        found += [((R, *[Shard(d)] * len(indices)), (Shard(place + d),)) for d in sorted(cut)]
    return found


def _shape_of_input(call: Call) -> dict[str, Any]:
    return {**call.attrs, "shape": local_shape(call.shapes[0] or (), call.mesh, call.ins[0] or ())}


enter(Family(_gather), "gather")
enter(Family(_index_select), "index_select")
enter(Family(_index, _shape_of_input), "index")


# ---- joins
def _cat(call: Call) -> list[Way]:
    return _joined(call, lambda d: d if d != call.attrs["dim"] else None)


def _stack(call: Call) -> list[Way]:
    return _joined(call, lambda d: d + (d >= call.attrs["dim"]))


def _joined(call: Call, to: Any) -> list[Way]:
    count = len(call.operands)
    cut = sorted({p.dim for p in call.given if isinstance(p, Shard)})
    found: list[Way] = [((Shard(d),) * count, (Shard(to(d)),)) for d in cut if to(d) is not None]
    if any(p == P for p in call.given):
        found.append(((P,) * count, (P,)))
    return found


enter(Family(_cat), "cat")
enter(Family(_stack), "stack")


def _pad(call: Call) -> list[Way]:
    before, after = call.shapes[0] or (), call.outs[0].shape
    same = {d: d for d, n in enumerate(before) if n == after[d]}
    return [way for way in mapped(call, same) if isinstance(way[0][0], Shard)]


enter(Family(_pad), "constant_pad")


# ---- new ones
def _new(call: Call) -> list[Way]:
    """Whole, whatever the operand is, which sends nothing."""
    given = call.given[0]
    assert given is not None
    return [((given,), (R,))]


enter(Family(_new), "new_zeros", "new_ones", "new_empty", "new_full")
