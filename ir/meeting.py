"""Where ops reach other processes: what carries arrays between the ranks of a group is entered here.

A collective is an op like others: a record with types, a gradient and a reference.  The reference hands its
arrays to the carrier, which `lamina.distributed` enters when it joins a group; so `ir` knows of no transport.
Of a group of one rank nothing is carried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .errors import ArgumentValueError

Group = tuple[int, ...]  # the ranks that meet, by their numbers among all, in their order within the group
Arrays = tuple[np.ndarray, ...]


class Pending(Protocol):
    """A collective on its way; nobody may write its operands or look at its results until `wait` returns."""

    def wait(self) -> None:
        """Return when the results are there.  Raises what the collective raises."""
        ...


class Carrier(Protocol):
    """What carries arrays between processes.

    everyone: all ranks of the job.  rank: this process's number among them.
    """

    everyone: Group
    rank: int

    def start(
        self, kind: str, attrs: Mapping[str, Any], inputs: Arrays, outputs: Arrays, ahead: bool = False
    ) -> Pending:
        """Begin the collective `kind`, a record's name, on dense arrays; the group stands in `attrs`.

        ahead: it is not waited for at once, so somebody must see to it meanwhile.
        """
        ...


CARRIER: Carrier | None = None


def enter(carrier: Carrier | None) -> None:
    """Let collectives run by `carrier` from now on; None: there are no other processes any more."""
    global CARRIER
    CARRIER = carrier


def everyone() -> Group:
    """All ranks that this process has joined; itself alone where it has joined none."""
    return (0,) if CARRIER is None else CARRIER.everyone


def own_rank() -> int:
    """This process's number among `everyone`."""
    return 0 if CARRIER is None else CARRIER.rank


def carrier_for(kind: str, group: Group) -> Carrier:
    """Who carries for a group of several ranks.  Raises ArgumentValueError where this process is alone."""
    if CARRIER is None:
        raise ArgumentValueError(
            f"{kind}: its group has {len(group)} ranks, and this process has joined none",
            "lamina.distributed.init_process_group() joins them",
        )
    return CARRIER


def met(kind: str, attrs: Mapping[str, Any], inputs: Arrays, out: np.ndarray) -> np.ndarray:
    """Run a collective to its end, and return `out`, which it wrote."""
    arrays = tuple([np.ascontiguousarray(x) for x in inputs])
    carrier_for(kind, attrs["group"]).start(kind, attrs, arrays, (out,)).wait()
    return out
