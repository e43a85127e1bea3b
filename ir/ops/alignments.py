"""What connectionist temporal classification sums over: all ways to align labels with a sequence in time.

Both ops are loops over time, in which a place hears of itself and of the two before it.
Halves become float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import lowering
from ..dims import is_at_least, same
from ..errors import DTypeError, ShapeError
from ..op import define
from ..recur import order, recur
from ..sample import sample
from ..types import Type
from .cast import cast, dtype_of
from .compare import gt, where
from .create import full_like, zeros_like
from .extremes import maximum
from .join import cat, stack
from .math import exp, log
from .view import narrow

# Stands for log(0): its exponential is 0, and unlike -inf its differences are numbers, so no gradient is NaN.
NEVER = -1e30
REACH = 3  # a place hears of itself, of the one before it, and of the one before that
NO_SIZES = {"0-d": "a sequence has dimensions", "broadcast": "nothing is broadcast"}


def _later(x: Any, by: int, first: Any) -> Any:
    """What stands `by` places before each; `first`, of the same shape, comes in."""
    size = x.shape[-1]
    if not by or isinstance(size, int) and size <= by:
        return first if by else x
    return cat((narrow(first, -1, 0, by), narrow(x, -1, 0, size - by)), -1)


def _earlier(x: Any, by: int) -> Any:
    """The transpose of `_later`, where 0 comes in."""
    size = x.shape[-1]
    if not by or isinstance(size, int) and size <= by:
        return zeros_like(x) if by else x
    return cat((narrow(x, -1, by, size - by), zeros_like(narrow(x, -1, 0, by))), -1)


def _before(states: Any, first: Any) -> Any:
    """The state that each time began with."""
    return cat((first[None], narrow(states, 0, 0, states.shape[0] - 1)), 0)


# ---- the sums of probabilities


def bind_ctc_paths(emitted, may_skip):
    """Add up, in logarithms, the probabilities of all ways to come to each place of the labels at each time.

    out[t, j] = emitted[t, j] + log(exp(out[t-1, j]) + exp(out[t-1, j-1]) + exp(out[t-1, j-2])), the last only
    where may_skip[j] > 0; before all time one is at the first place, and -1e30 stands for log(0).
    Shapes: [t, n, places], [n, places] -> [t, n, places].  Raises ShapeError.
    Source: Graves et al. 2006, eq. 6 and 7.
    """
    return (emitted, may_skip), {}


def infer_ctc_paths(emitted: Type, may_skip: Type) -> Type:
    _check("ctc_paths", emitted, "may_skip", may_skip, emitted.shape[1:])
    return emitted.with_dtype(emitted.dtype.compute)


def _check(op: str, sequence: Type, name: str, other: Type, wanted: tuple) -> None:
    """Raise ShapeError, DTypeError unless these are the operands of a loop over a sequence."""
    told = f"sequence: {sequence}\n  {name}: {other}"
    if sequence.dtype is not other.dtype or not other.dtype.is_floating_point:
        raise DTypeError(f"{op}: operands of one floating dtype are needed", told)
    if sequence.ndim != 3 or other.ndim != len(wanted) or not all(map(same, other.shape, wanted)):
        raise ShapeError(f"{op}: the sequence is [t, n, places], and {name} fits it", told)
    if not is_at_least(sequence.shape[0], 1):
        raise ShapeError(f"{op}: a sequence must have at least one step", told)


def _first(like: Any) -> Any:
    """Before all time."""
    return cat(
        (zeros_like(narrow(like, -1, 0, 1)), full_like(narrow(like, -1, 1, like.shape[-1] - 1), NEVER)), -1
    )


def ctc_paths_reference(emitted: np.ndarray, may_skip: np.ndarray) -> np.ndarray:
    out = np.empty_like(emitted)
    padded = np.full((*may_skip.shape[:1], may_skip.shape[1] + REACH - 1), NEVER, emitted.dtype)
    here, one, two = padded[:, 2:], padded[:, 1:-1], padded[:, :-2]
    here[:, :1] = 0
    for t in range(len(out)):
        two_here = np.where(may_skip > 0, two, NEVER)
        most = np.maximum(np.maximum(here, one), two_here)
        sums = np.exp(here - most) + np.exp(one - most) + np.exp(two_here - most)
        here[...] = out[t] = np.log(sums) + most + emitted[t]
    return out


def ctc_paths_by_steps(emitted, may_skip):
    emitted, may_skip = (cast(x, dtype=dtype_of(x).compute) for x in (emitted, may_skip))

    def step(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        here = states[0]
        one, two = _heard(here, fixed[0])
        most = maximum(maximum(here, one), two)
        sums = exp(here - most) + exp(one - most) + exp(two - most)
        return (log(sums) + most + elements[0],), ()

    return recur(step, (emitted,), (_first(emitted[0]),), (may_skip,), (True,))[0]


def _heard(states: Any, may_skip: Any) -> tuple[Any, Any]:
    """Of the place before each, and the one before that."""
    none = full_like(states, NEVER)
    return _later(states, 1, none), where(gt(may_skip, 0), _later(states, 2, none), none)


def vjp_ctc_paths(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """The share that each place has in the sums it is heard in, and then back in time.

    Where no way leads, what is emitted changes nothing.
    """
    emitted, may_skip, out = saved
    before, sums, comes = _before(out, _first(out[0])), out - emitted, gt(out, NEVER / 2)
    shares = [where(comes, exp(heard - sums), 0.0) for heard in (before, *_heard(before, may_skip))]
    return where(comes, band_scan(cotangents[0], stack(shares, dim=1), back=True), 0.0), None


ctc_paths = define(
    "ctc_paths",
    bind=bind_ctc_paths,
    operands=("emitted", "may_skip"),
    infer=infer_ctc_paths,
    casts=lambda emitted, may_skip: (emitted.dtype.compute, may_skip.dtype.compute),
    reference=ctc_paths_reference,
    vjp=vjp_ctc_paths,
    saves=("emitted", "may_skip", "out"),
    lower=lowering.decomposition(ctc_paths_by_steps),
    samples=lambda: [
        sample((1, 2, 1), (2, 1)),
        sample((4, 2, 5), (2, 5)),
        sample((3, 0, 3), (0, 3)),
        sample((17, 3, 7), (3, 7)),
        sample((2, 1, 33), (1, 33)),
    ],  # fmt: skip
    inapplicable=NO_SIZES,
    dtypes="float",
    method=False,
)


# ---- the way back, and its own


def bind_band_scan(input, weight, *, back=False):
    """Add to each time what its places hear, by weight, of those of the time before.

    out[t, j] = input[t, j] + sum(k < 3) weight[t, k, j] * out[t-1, j-k]; with `back` the transpose of that,
    out[t, j] = input[t, j] + sum(k < 3) weight[t+1, k, j+k] * out[t+1, j+k].
    Shapes: [t, n, places], [t, 3, n, places] -> [t, n, places].  Raises ShapeError.
    """
    return (input, weight), {"back": bool(back)}


def infer_band_scan(input: Type, weight: Type, *, back: bool) -> Type:
    _check("band_scan", input, "weight", weight, (*input.shape[:1], REACH, *input.shape[1:]))
    return input.with_dtype(input.dtype.compute)


def band_scan_reference(input: np.ndarray, weight: np.ndarray, *, back: bool) -> np.ndarray:
    out = np.array(input)
    for t in order(len(out), back)[1:]:
        near = out[t + 1] * weight[t + 1] if back else out[t - 1]
        for k in range(min(REACH, out.shape[2])):
            if back:
                out[t, :, : out.shape[2] - k] += near[k, :, k:]
            else:
                out[t, :, k:] += weight[t, k, :, k:] * near[:, : out.shape[2] - k]
    return out


def band_scan_by_steps(input, weight, *, back):
    input, weight = (cast(x, dtype=dtype_of(x).compute) for x in (input, weight))

    def forth(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        (now, shares), before = elements, states[0]
        for k in range(REACH):
            now = now + shares[k] * _later(before, k, zeros_like(before))
        return (now,), ()

    def backwards(elements: tuple, states: tuple, fixed: tuple) -> tuple:
        now = elements[0] + states[0]
        heard = [_earlier(elements[1][k] * now, k) for k in range(REACH)]
        return (heard[0] + heard[1] + heard[2],), (now,)

    none = zeros_like(input[0])
    if back:
        return recur(backwards, (input, weight), (none,), (), (False,), True)[1]
    return recur(forth, (input, weight), (none,), (), (True,))[0]


def vjp_band_scan(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    """A scan the other way; a weight's is what it is multiplied by on either way."""
    weight, out = saved
    other = band_scan(cotangents[0], weight, back=not attrs["back"])
    if not needs[1]:
        return other, None
    forth, back = (other, out) if attrs["back"] else (out, other)
    before = _before(forth, zeros_like(forth[0]))
    shares = [back * _later(before, k, zeros_like(before)) for k in range(REACH)]
    return other, stack(shares, dim=1)


band_scan = define(
    "band_scan",
    bind=bind_band_scan,
    operands=("input", "weight"),
    attrs=("back",),
    infer=infer_band_scan,
    casts=lambda input, weight, *, back: (input.dtype.compute, weight.dtype.compute),
    reference=band_scan_reference,
    vjp=vjp_band_scan,
    saves=("weight", "out"),
    lower=lowering.decomposition(band_scan_by_steps),
    samples=lambda: [
        sample(shape, (shape[0], REACH, *shape[1:]), back=back)
        for shape in ((1, 2, 1), (4, 2, 5), (3, 0, 3), (17, 3, 7), (2, 1, 33))
        for back in (False, True)
    ],
    inapplicable=NO_SIZES,
    dtypes="float",
    method=False,
)
