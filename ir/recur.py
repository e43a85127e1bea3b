"""The node that runs a graph for each element of a dimension in turn, on what it made of the one before.

    %3, %4 = recur(%x, %h, %w) {body=graph step(...) -> (f32[4], f32[4,2]) {...}, count=9, sequences=1,
        kept=(False,), back=False, rows=0} : f32[4], f32[9,4,2]

The first operands are sequences, of which each run gets the next element; then come the states, which the
first run gets and each further one has from the run before; the others are the same for all.  A body returns
the new states, and then what is an element of a sequence again.  Of a state the node gives the last, or all
(kept).

rows=16 says that the rows of elements and states (their first dimension, of one size) don't hang on one
another: 16 of them go through all runs, and then the next 16, or on another thread.  The body is for as many
rows.  Where they don't come out even, the last block has some that the one before it had.

It is no operator of the operator set: what is a loop over time in eager (`ir/ops/walks.py`) lowers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from . import lowering
from .dims import Dim, is_at_least, same
from .errors import GraphError
from .graph import Builder, Graph, Value, active
from .interpret import interpret
from .op import REGISTRY, Op, Traits
from .types import Type

MOST = 1 << 24  # elements of a sequence


def is_split(rows: int | Dim) -> bool:
    """Whether rows go through all runs in blocks."""
    return isinstance(rows, Dim) or rows > 0


def _infer(
    *types: Type,
    body: Graph,
    count: int | Dim,
    sequences: int,
    kept: tuple[bool, ...],
    back: bool,
    rows: int | Dim = 0,
) -> tuple[Type, ...]:
    wanted = [p.type for p in body.params]
    if not sequences or isinstance(count, int) and not 0 < count <= MOST:
        raise GraphError(f"recur(*operands): there are sequences of 1 to {MOST} elements, not {count}")
    last = sequences + len(kept)
    given = [t.with_shape(t.shape[1:]) if n < sequences else t for n, t in enumerate(types)]
    made = [v.type for v in body.results]
    every: int | Dim = 0
    if is_split(rows):
        carried = [*given[:last], *made]
        if not all(t.ndim for t in carried) or not all(same(t.shape[0], rows) for t in made):
            raise GraphError(f"recur(*operands): what a body of {rows} rows is given and gives has so many")
        every = given[0].shape[0]
        if not is_at_least(every, rows) or not all(same(t.shape[0], every) for t in given[:last]):
            raise GraphError(f"recur(*operands): elements and states have the same rows, at least {rows}")
        given[:last] = [t.with_shape((rows, *t.shape[1:])) for t in given[:last]]
    if (
        given != wanted
        or wanted[sequences:last] != made[: len(kept)]
        or any(not t.ndim or not same(t.shape[0], count) for t in types[:sequences])
    ):
        raise GraphError(
            f"recur(*operands): graph {body.name} takes ({', '.join(map(str, wanted))}), of {sequences} "
            f"sequences of {count} and {len(kept)} states first; got ({', '.join(map(str, types))})"
        )
    if is_split(rows):
        made = [t.with_shape((every, *t.shape[1:])) for t in made]
    whole = [*kept, *(True for _ in made[len(kept) :])]
    return tuple(t.with_shape((count, *t.shape)) if all_ else t for t, all_ in zip(made, whole, strict=True))


def _reference(*operands: np.ndarray, body: Graph, **how: Any) -> tuple[np.ndarray, ...]:
    return in_turn(lambda *arrays: interpret(body, *arrays), operands, **how)


def in_turn(
    run: Callable[..., Sequence[np.ndarray]],
    arrays: Sequence[np.ndarray],
    *,
    count: int,
    sequences: int,
    kept: tuple[bool, ...],
    back: bool,
    rows: int = 0,
) -> tuple[np.ndarray, ...]:
    """What the node means on arrays: `run` gives the results of its body."""
    if rows:
        how: dict[str, Any] = {"count": count, "sequences": sequences, "kept": kept, "back": back}
        made_of = [
            in_turn(run, list(block_of(arrays, slice(first, first + rows), sequences, len(kept))), **how)
            for first in first_rows(arrays[0].shape[1], rows)
        ]
        every = arrays[0].shape[1]
        dims = [0 if n < len(kept) and not kept[n] else 1 for n in range(len(made_of[0]))]
        pairs = zip(zip(*made_of, strict=True), dims, strict=True)
        return tuple([joined_rows(found, every, dim, np.concatenate) for found, dim in pairs])
    states, fixed = arrays[sequences:][: len(kept)], arrays[sequences + len(kept) :]
    made: list[Sequence[np.ndarray]] = []
    for t in order(count, back):
        made.append(run(*(array[t] for array in arrays[:sequences]), *states, *fixed))
        states = made[-1][: len(kept)]
    every = enumerate(zip(*(made[::-1] if back else made)))
    return tuple(
        [np.array(made[-1][n]) if n < len(kept) and not kept[n] else np.stack(found) for n, found in every]
    )


def first_rows(every: int, rows: int) -> list[int]:
    """Where the blocks of rows begin."""
    return [min(first, every - rows) for first in range(0, every, rows)]


def block_of(operands: Sequence[Any], rows: slice, sequences: int, states: int) -> Iterator[Any]:
    """The operands of a block of rows."""
    for n, x in enumerate(operands):
        yield x[:, rows] if n < sequences else x[rows] if n < sequences + states else x


def joined_rows(blocks: Sequence[Any], every: int, dim: int, join: Callable) -> Any:
    """What blocks made, side by side along a dimension, of whose last those rows are left that are new."""
    *before, last = blocks
    left = every - sum([x.shape[dim] for x in before])
    return join([*before, last[-left:] if not dim else last[:, -left:]], dim)


def order(count: int, back: bool) -> range:
    """The places of a sequence as a run meets them."""
    return range(count - 1, -1, -1) if back else range(count)


recurrent = Op(
    "recur",
    operands=("*operands",),
    attrs=("body", "count", "sequences", "kept", "back", "rows"),
    outputs=("*results",),
    bind=lambda *operands, **attrs: (operands, attrs),
    infer=_infer,
    reference=_reference,
    lower=lowering.recurrence(),
    traits=Traits(movement=True),  # the nodes inside widen halves for themselves
    samples=lambda: [],
    doc="Run a graph for each element of a dimension in turn.",
)

Step = Callable[[tuple, tuple, tuple], tuple[Sequence[Any], Sequence[Any]]]


def recur(
    step: Step,
    sequences: tuple,
    states: tuple,
    fixed: tuple,
    kept: tuple[bool, ...],
    back: bool = False,
    rows: int | Dim = 0,
) -> tuple:
    """What `step` makes of each element of the sequences in turn: the states, and further sequences.

    step: (elements, states, fixed) -> (new states, elements of further sequences).  kept: for each state
    whether all are wanted, or the last.  back: the last element comes first.  rows: as of the node, 0 for all
    of them together.  On a graph's values this is one node, whose graph has the name of the function; on
    others the steps one after the other.
    """
    first = (*sequences, *states)[0]
    if isinstance(first, Value):
        return _node(step, sequences, states, fixed, kept, back, rows)
    runs = []
    for t in order(sequences[0].shape[0], back):
        states, items = step(tuple([s[t] for s in sequences]), tuple(states), fixed)
        runs.append((*states, *items))
    every = [REGISTRY["stack"](list(each), dim=0) for each in zip(*(runs[::-1] if back else runs))]
    return tuple([runs[-1][n] if n < len(kept) and not kept[n] else found for n, found in enumerate(every)])


def _node(
    step: Step,
    sequences: tuple,
    states: tuple,
    fixed: tuple,
    kept: tuple[bool, ...],
    back: bool,
    rows: int | Dim,
) -> tuple[Value, ...]:
    def of_rows(kind: Type, shape: tuple) -> Type:
        return kind.with_shape((rows, *shape[1:]) if is_split(rows) else shape)

    with Builder(step.__name__) as b:
        elements = tuple([b.param(of_rows(s.type, s.shape[1:]), "x") for s in sequences])
        before = tuple([b.param(of_rows(s.type, s.shape), "s") for s in states])
        same_for_all = tuple([None if f is None else b.param(f.type, "w") for f in fixed])
        after, items = step(elements, before, same_for_all)
        body = b.finish((*after, *items))
    attrs = {
        "body": body,
        "count": sequences[0].shape[0],
        "sequences": len(sequences),
        "kept": kept,
        "back": back,
        "rows": rows,
    }
    operands = (*sequences, *states, *(f for f in fixed if f is not None))
    return active().emit(recurrent, operands, attrs).outputs
