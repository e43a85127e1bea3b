"""Code with fewer collectives, which runs in the calls in which all ranks of a group run such code.

    %1 = all_reduce([0, 0]) {reduce="min", group=(0,1)}      `distributed.functional.join_collectives()`
    ...                                                      collectives of the same group

Ranks meet in the order of eager calls, so that one may record anew, or run eagerly, while others run compiled
code.  What joins collectives breaks that order, and is agreed on at each call, before the first of them.  The
ballot is a collective that every call runs, however it runs: the smallest of what each rank gives.  Eagerly,
and in code that knows nothing of this, it gives zeros.  Where there is other code it gives (d, -d), d being a
digest of that code's collectives in their order: the smallest are these two if all ranks gave the same, and
nobody zeros.  So nobody waits for a rank that does otherwise, and what ranks decide by (sizes, a part that is
read) needs no proof that it is the same on all: where it is not, digests differ, and all run plain code.

Collectives of several groups stay: a rank that held one back for another group's could wait for itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir import meeting
from ..ir.dtypes import int64
from ..ir.graph import Constant, Graph, Node
from ..ir.specialise import specialise
from ..passes.graphs.bucket_collectives import bucket_collectives
from ..passes.graphs.cse import cse
from ..passes.graphs.dce import dce
from ..passes.graphs.fewer_collectives import fewer_collectives
from ..passes.graphs.fold_constants import fold_constants
from ..passes.graphs.simplify import simplify

BEFORE = (
    fold_constants,
    simplify,
    cse,
    dce,
)  # views of views, and what nobody reads, hide what could be joined
OWN = ("group", "sent", "received")  # attrs that ranks need not have alike, or that are one in a graph


class Agreed:
    """Two codes of a graph; which of them runs, all ranks decide in each call.

    plain, joined: both without the ballot.  digest: of the collectives of `joined`.  calls, together: how
    many there were, and in how many of them all ranks ran `joined`.  before, after: how many collectives each
    has.
    """

    main = None  # the short way runs one code

    def __init__(self, plain: Any, joined: Any, group: meeting.Group, digest: int, counts: tuple[int, int]):
        self.plain, self.joined, self.group = plain, joined, group
        self.ballot = np.array([digest, -digest], np.int64)
        self.before, self.after = counts
        self.calls = self.together = 0

    def run(self, arrays: Sequence[np.ndarray], tensors: Sequence[Any] | None = None) -> Any:
        """The results, by the code that all ranks run.  Raises DistributedError where a rank is lost."""
        attrs, least = {"reduce": "min", "group": self.group}, np.empty_like(self.ballot)
        meeting.met("all_reduce", attrs, (self.ballot,), least)
        is_together = np.array_equal(least, self.ballot)
        self.calls += 1
        self.together += is_together
        return (self.joined if is_together else self.plain).run(arrays, tensors)

    def text(self) -> str:
        """What became of the collectives, for `explain()`."""
        return (
            f"{self.before} collectives are {self.after} where all ranks agree, as in {self.together} of "
            f"{self.calls} calls"
        )

    def __getattr__(self, name: str) -> Any:
        """What the joined code has: kernels, source, statistics."""
        return getattr(self.joined, name)


def compiled(graph: Graph, sizes: Mapping[str, int], make: Callable[[Graph], Any]) -> Any:
    """A graph as code: two of them, if it begins with a ballot and has fewer collectives without it.

    sizes: of its symbols.  make: makes code of a graph with these params and results.
    """
    ballot = ballot_of(graph)
    if ballot is None:
        return make(graph)
    plain = graph.replace(nodes=[node for node in graph.nodes if node is not ballot])
    joined = plain
    for step in BEFORE:
        joined = step(joined)
    joined = bucket_collectives(fewer_collectives(joined, meeting.own_rank()))
    before, after = (len(meetings(g)) for g in (plain, joined))
    digest = digest_of(joined, sizes)
    if (before, digest) == (after, digest_of(plain, sizes)):
        return make(graph)
    return Agreed(make(plain), make(joined), ballot.attrs["group"], digest, (before, after))


def meetings(graph: Graph) -> list[Node]:
    """Its collectives, in their order."""
    return [node for node in graph.nodes if node.op.traits.meets]


def ballot_of(graph: Graph) -> Node | None:
    """The ballot, if the first collective is one, and all others are of its group of several ranks."""
    found = meetings(graph)
    if not found or found[0].op.name != "all_reduce" or found[0].attrs["reduce"] != "min":
        return None
    ballot, group = found[0], found[0].attrs["group"]
    (operand,) = ballot.inputs
    maker = next((node for node in graph.nodes if operand is not None and node.outputs[0] is operand), None)
    is_zeros = np.array_equal(operand.data, [0, 0]) if isinstance(operand, Constant) else _zeros(maker)
    read = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    if operand is None or operand.dtype is not int64 or not is_zeros or ballot.outputs[0] in read:
        return None
    is_one = len(group) > 1 and all(node.attrs["group"] == group for node in found)
    return ballot if is_one and not any(_meets_within(node) for node in graph.nodes) else None


def _zeros(maker: Node | None) -> bool:
    return maker is not None and maker.op.name == "zeros" and maker.attrs["size"] == (2,)


def _meets_within(node: Node) -> bool:
    body = node.attrs.get("body")
    return isinstance(body, Graph) and any(inner.op.traits.meets for inner in body.nodes)


def digest_of(graph: Graph, sizes: Mapping[str, int]) -> int:
    """A number, not 0, that tells the order of collectives from others, at some sizes."""
    said = []
    for node in meetings(specialise(graph, sizes) if sizes else graph):
        (x,) = node.inputs
        assert x is not None
        own = [f"{name}={value}" for name, value in node.attrs.items() if name not in OWN]
        shape = None if "sent" in node.attrs else tuple(x.shape)
        said.append(f"{node.op.name} {x.dtype.name} {shape} {own}")
    return 1 + int.from_bytes(hashlib.blake2b("\n".join(said).encode(), digest_size=7).digest(), "big")
