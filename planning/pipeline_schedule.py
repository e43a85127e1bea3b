"""When each rank of a pipeline does what: one forward, one backward in turn (1F1B), interleaved or not.

Source: Narayanan et al. 2021, section 2.2.  With `chunks` above 1 rank r holds the r-th, (r + pp)-th … part
of the layers, and micro-batches come in rounds of pp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Task(NamedTuple):
    """Work of a rank on a micro-batch, from start to end in seconds."""

    rank: int
    chunk: int
    micro_batch: int
    backward: bool
    start: float
    end: float


def warm_up(rank: int, pp: int, chunks: int, micro_batches: int) -> int:
    """How many forwards a rank does before its first backward, short of the one that it begins with."""
    if chunks == 1:
        return min(pp - rank - 1, micro_batches)
    return min(2 * (pp - rank - 1) + (chunks - 1) * pp, micro_batches * chunks)


def in_flight(rank: int, pp: int, chunks: int, micro_batches: int) -> int:
    """Of how many (micro-batch, chunk) a rank holds activations at most."""
    return min(warm_up(rank, pp, chunks, micro_batches) + 1, micro_batches * chunks)


def order_of(rank: int, pp: int, chunks: int, micro_batches: int) -> list[tuple[bool, int, int]]:
    """The (backward, chunk, micro-batch) of a rank's tasks, in the order in which it does them."""
    total = micro_batches * chunks

    def part(number: int, backward: bool) -> tuple[bool, int, int]:
        if chunks == 1:
            return backward, 0, number
        turn, within = divmod(number, pp * chunks)
        chunk = within // pp
        return backward, chunks - 1 - chunk if backward else chunk, turn * pp + within % pp

    before = warm_up(rank, pp, chunks, micro_batches)
    tasks = [part(number, False) for number in range(before)]
    for number in range(total - before):
        tasks += [part(before + number, False), part(number, True)]
    return tasks + [part(number, True) for number in range(total - before, total)]


def simulate(
    forward: Sequence[Sequence[float]], backward: Sequence[Sequence[float]], micro_batches: int
) -> list[Task]:
    """All tasks of a step.  forward[rank][chunk]: seconds of one micro-batch, with what it sends.

    Each rank does its tasks in its order, each as soon as what it needs has come.
    """
    pp, chunks = len(forward), len(forward[0])
    orders = [order_of(rank, pp, chunks, micro_batches) for rank in range(pp)]
    ended: dict[tuple[int, bool, int, int], float] = {}
    at, free, tasks = [0] * pp, [0.0] * pp, []
    moved = True
    while moved:
        moved = False
        for rank in range(pp):
            while at[rank] < len(orders[rank]):
                back, chunk, micro = orders[rank][at[rank]]
                needs = _needs(rank, back, chunk, micro, pp, chunks)
                if any(need not in ended for need in needs):
                    break
                start = max([free[rank], *(ended[need] for need in needs)])
                end = start + (backward if back else forward)[rank][chunk]
                ended[rank, back, chunk, micro] = free[rank] = end
                tasks.append(Task(rank, chunk, micro, back, start, end))
                at[rank] += 1
                moved = True
    assert at == [len(order) for order in orders], "a schedule that waits for itself"
    return tasks


def _needs(
    rank: int, back: bool, chunk: int, micro: int, pp: int, chunks: int
) -> list[tuple[int, bool, int, int]]:
    """What must have ended on other ranks: the part before, or after where it goes back.  Its own forward
    a rank does before its backward by its order.
    """
    place = chunk * pp + rank
    if not back:
        return [((place - 1) % pp, False, (place - 1) // pp, micro)] if place else []
    if place == pp * chunks - 1:
        return []
    return [((place + 1) % pp, True, (place + 1) // pp, micro)]


def closed_form(ranks: Sequence[float], chunks: int, micro_batches: int) -> float:
    """Seconds of a step from those of a micro-batch on each rank: the slowest's work, and filling the rest.

    For equal ranks m (f + b) + (pp - 1) (f + b) / chunks, which is what `simulate` gives.
    """
    slowest = max(ranks)
    return micro_batches * slowest + (sum(ranks) - slowest) / chunks
