"""Products: cut along rows, columns or batches, or along what is summed, which makes partial sums."""

from __future__ import annotations

from .placement_types import Placement, Shard
from .strategies import Call, Family, P, R, Way, cuts, enter, linear_partials


def _matmul(call: Call) -> list[Way]:
    a, b = call.shapes[0] or (), call.shapes[1] or ()
    out = call.outs[0].ndim
    rows, columns = len(a) > 1, len(b) > 1
    found: list[Way] = [((Shard(len(a) - 1), Shard(max(len(b) - 2, 0))), (P,))]
    if rows:
        found.append(((Shard(len(a) - 2), R), (Shard(out - 1 - columns),)))
    if columns:
        found.append(((R, Shard(len(b) - 1)), (Shard(out - 1),)))
    shape = call.outs[0].shape
    for d in range(out - rows - columns):
        ins: list[Placement | None] = []
        for own in (a, b):
            at = len(own) - 2 - (out - rows - columns - d)
            ins.append(Shard(at) if at >= 0 and own[at] == shape[d] else R)
        found.append((tuple(ins), (Shard(d),)))
    found += [((p, R), (p,)) for p in linear_partials(call, 0)]
    found += [((R, p), (p,)) for p in linear_partials(call, 1)]
    return found


def _linear(call: Call) -> list[Way]:
    input = call.shapes[0] or ()
    last = len(input) - 1
    bias = call.operands[2] is not None

    def way(x: Placement, weight: Placement, b: Placement, out: Placement) -> Way:
        return (x, weight, b if bias else None), (out,)

    found = [way(Shard(last), Shard(1), P, P), way(R, Shard(0), Shard(0), Shard(last))]
    found += [way(Shard(d), R, R, Shard(d)) for d in range(last)]
    found += [way(p, R, p, p) for p in linear_partials(call, 0)]
    found += [way(R, p, p, p) for p in linear_partials(call, 1)]
    return found


def _conv(call: Call) -> list[Way]:
    """Examples apart, or filters apart."""
    bias: list[Placement | None] = [None if call.operands[2] is None else R]
    found: list[Way] = [((Shard(0), R, *bias), (Shard(0),))]
    if call.attrs["groups"] == 1:
        filters: list[Placement | None] = [None if call.operands[2] is None else Shard(0)]
        found.append(((R, Shard(0), *filters), (Shard(1),)))
    return found


def _attention(call: Call) -> list[Way]:
    """Batches and heads apart."""
    shape, found = call.outs[0].shape, list[Way]()
    for d in range(len(shape) - 2):
        ins: list[Placement | None] = []
        for own in call.shapes:
            at = None if own is None else len(own) - len(shape) + d
            if own is None or at is None:
                ins.append(None)
            else:
                ins.append(Shard(at) if at >= 0 and own[at] == shape[d] else R)
        found.append((tuple(ins), (Shard(d),)))
    return found


def _pool(spatial: int) -> Family:
    def ways(call: Call) -> list[Way]:
        free = range(len(call.shapes[0] or ()) - spatial)
        return [((Shard(d),), (Shard(d),) * len(call.outs)) for d in cuts(call) if d in free]

    return Family(ways)


enter(Family(_matmul), "matmul")
enter(Family(_linear), "linear")
enter(Family(_conv), "conv1d", "conv2d", "conv3d")
enter(Family(_attention), "attention")
for _n in (1, 2, 3):
    enter(
        _pool(_n), f"max_pool{_n}d", f"avg_pool{_n}d", f"adaptive_max_pool{_n}d",
        f"max_pool{_n}d_with_indices", f"adaptive_max_pool{_n}d_with_indices",
    )  # fmt: skip
