"""Which rank computes what in which order, for each schedule; whether that can be done, and how it looks.

All ranks make the same tables, so that each knows in which order the others send.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.errors import ArgumentValueError

FORWARD, BACKWARD = "F", "B"
UNITS = {FORWARD: 1, BACKWARD: 2}  # how long each takes: backward multiplies twice for each product


@dataclass(frozen=True)
class Action:
    """A part of a batch goes forward or backward through a stage.  kind: "F" or "B"."""

    kind: str
    stage: int
    microbatch: int


Orders = list[list[Action]]  # by rank


@dataclass(frozen=True)
class Span:
    """When an action runs, in units of one forward."""

    action: Action
    begin: int
    end: int


class Timetable:
    """The orders of all ranks, and when each action runs if a forward takes 1 and a backward 2.

    Stage s is on rank s % ranks.  Raises ArgumentValueError for orders in which some rank waits for ever.
    """

    def __init__(self, name: str, ranks: int, stages: int, microbatches: int, orders: Orders):
        self.name, self.ranks, self.stages, self.microbatches = name, ranks, stages, microbatches
        self.orders = orders
        self.spans = self._timed()

    def _timed(self) -> list[list[Span]]:
        done: dict[Action, int] = {}
        clocks, next_up = [0] * self.ranks, [0] * self.ranks
        spans: list[list[Span]] = [[] for _ in range(self.ranks)]
        moved = True
        while moved:
            moved = False
            for rank, order in enumerate(self.orders):
                while next_up[rank] < len(order):
                    action = order[next_up[rank]]
                    before = [done.get(a) for a in self.before(action)]
                    if None in before:
                        break
                    begin = max([clocks[rank], *[t for t in before if t is not None]])
                    clocks[rank] = done[action] = begin + UNITS[action.kind]
                    spans[rank].append(Span(action, begin, clocks[rank]))
                    next_up[rank] += 1
                    moved = True
        stuck = [order[n] for order, n in zip(self.orders, next_up, strict=True) if n < len(order)]
        if stuck:
            raise ArgumentValueError(f"{self.name}: ranks wait for each other for ever", f"at {stuck}")
        return spans

    def before(self, action: Action) -> list[Action]:
        """What must be done before it, on this rank and on others."""
        kind, stage, i = action.kind, action.stage, action.microbatch
        if kind == FORWARD:
            return [Action(FORWARD, stage - 1, i)] if stage else []
        later = [Action(BACKWARD, stage + 1, i)] if stage + 1 < self.stages else []
        return [Action(FORWARD, stage, i), *later]

    @property
    def length(self) -> int:
        """How long all of it takes, in units of one forward."""
        return max((spans[-1].end for spans in self.spans if spans), default=0)

    def idle(self) -> float:
        """The share of all ranks' time in which they wait."""
        busy = sum(span.end - span.begin for spans in self.spans for span in spans)
        return 1 - busy / (self.length * self.ranks) if self.length else 0.0

    def held(self, rank: int) -> int:
        """How many activations of a stage a rank holds at most."""
        held = most = 0
        for action in self.orders[rank]:
            held += 1 if action.kind == FORWARD else -1
            most = max(most, held)
        return most

    def show(self) -> str:
        """A drawing: a line for each rank, a column for each unit of time.

        `2F0` is microbatch 0 forward through stage 2, of which `F0` is said where a rank has one stage.
        """
        several = self.stages > self.ranks

        def name(action: Action) -> str:
            return f"{action.stage if several else ''}{action.kind}{action.microbatch}"

        cell = max((len(name(a)) for order in self.orders for a in order), default=1) + 1
        lines = [
            f"{self.name}: {self.stages} stages on {self.ranks} ranks, {self.microbatches} microbatches; a "
            "backward takes two forwards"
        ]
        for rank, spans in enumerate(self.spans):
            cells = ["."] * self.length
            for span in spans:
                cells[span.begin : span.end] = [name(span.action), *["-"] * (span.end - span.begin - 1)]
            row = "".join(c.ljust(cell, "-" if c == "-" else " ") for c in _joined(cells, cell))
            lines.append(f"rank {rank:<3} {row.rstrip()}")
        held = ", ".join(str(self.held(rank)) for rank in range(self.ranks))
        lines.append(f"idle: {100 * self.idle():.0f} % of {self.length} units; activations held: {held}")
        return "\n".join(lines)


def _joined(cells: list[str], width: int) -> list[str]:
    """The cells of a row, those of one action joined by a line."""
    return [
        c.ljust(width, "-") if i + 1 < len(cells) and cells[i + 1] == "-" and c != "." else c
        for i, c in enumerate(cells)
    ]


# ---- the orders of each schedule
def gpipe(ranks: int, stages: int, microbatches: int) -> Orders:
    """All forwards, then all backwards.  Source: Huang et al., GPipe, 2019, figure 2c."""
    return [
        [Action(FORWARD, rank, i) for i in range(microbatches)]
        + [Action(BACKWARD, rank, i) for i in range(microbatches)]
        for rank in range(ranks)
    ]


def one_forward_one_backward(ranks: int, stages: int, microbatches: int) -> Orders:
    """Forwards until the first backward can come, then one of each in turn.

    Source: Narayanan et al., Efficient large-scale language model training on GPU clusters, 2021, figure 4.
    """
    orders: Orders = []
    for rank in range(ranks):
        warm = min(microbatches, ranks - rank)
        order = [Action(FORWARD, rank, i) for i in range(warm)]
        for i in range(microbatches):
            order.append(Action(BACKWARD, rank, i))
            if warm + i < microbatches:
                order.append(Action(FORWARD, rank, warm + i))
        orders.append(order)
    return orders


def looped(ranks: int, stages: int, microbatches: int) -> Orders:
    """All microbatches through a rank's first stage, then its second ...; and back.

    Source: Lamy-Poirier, Breadth-first pipeline parallelism, 2022, figure 4.
    """
    own = [range(rank, stages, ranks) for rank in range(ranks)]
    return [
        [Action(FORWARD, stage, i) for stage in mine for i in range(microbatches)]
        + [Action(BACKWARD, stage, i) for stage in reversed(mine) for i in range(microbatches)]
        for mine in own
    ]


def interleaved(ranks: int, stages: int, microbatches: int) -> Orders:
    """One forward and one backward in turn, over rounds of microbatches through each of a rank's stages.

    Source: Narayanan et al., 2021, figure 4, for rounds of as many microbatches as ranks; others are parted
    into rounds of one size.  Raises ArgumentValueError where they can't be.
    """
    rounds = max(1, microbatches // ranks)
    if microbatches % rounds:
        raise ArgumentValueError(
            f"ScheduleInterleaved1F1B: {microbatches} microbatches don't part into {rounds} rounds for "
            f"{ranks} ranks",
            f"{rounds * (microbatches // rounds)} do, and every multiple of {ranks}",
        )
    per_round, own = microbatches // rounds, stages // ranks
    total = own * microbatches
    orders: Orders = []
    for rank in range(ranks):

        def action(kind: str, number: int, rank: int = rank) -> Action:
            turn, place = divmod(number, per_round * own)
            local, i = divmod(place, per_round)
            local = local if kind == FORWARD else own - 1 - local
            return Action(kind, local * ranks + rank, turn * per_round + i)

        warm = min(total, (own - 1) * per_round + 2 * (ranks - 1 - rank) + 1)
        order = [action(FORWARD, n) for n in range(warm)]
        for n in range(total):
            order.append(action(BACKWARD, n))
            if warm + n < total:
                order.append(action(FORWARD, warm + n))
        orders.append(order)
    return orders


def forwards(orders: Orders) -> Orders:
    """The same without backwards."""
    return [[action for action in order if action.kind == FORWARD] for order in orders]


Maker = Callable[[int, int, int], Orders]
