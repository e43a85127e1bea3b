"""Where ops reach other processes: what carries arrays between the ranks of a group is entered here.

A collective is an op like others: a record with types, a gradient and a reference.  The reference hands its
arrays to the carrier, which `lamina.distributed` enters when it joins a group; so `ir` knows of no transport.
Of a group of one rank nothing is carried.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from .errors import ArgumentValueError, DistributedError

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

        It asks `got_before` whether there is anything to do.  ahead: the collective is not waited for at
        once, so somebody must see to it meanwhile.
        """
        ...


CARRIER: Carrier | None = None


def enter(carrier: Carrier | None) -> None:
    """Let collectives run by `carrier` from now on; None: there are no other processes any more."""
    global CARRIER
    CARRIER = carrier


class Met(NamedTuple):
    """A collective that is over: what it was, and what this rank got."""

    kind: str
    attrs: Mapping[str, Any]
    got: np.ndarray


class _Anew(threading.local):
    left: tuple[Met, ...] = ()


_ANEW = _Anew()


@contextmanager
def begun_anew(met: Sequence[Met]) -> Iterator[None]:
    """Within this the thread does again what met other processes already, and gets what it got.

    The others go on, and would not come a second time.  Raises DistributedError at the end where the second
    run left some out, for then the ranks are no longer in step.
    """
    before = _ANEW.left
    try:
        _ANEW.left = (*met, *before)
        yield
        if len(_ANEW.left) > len(before):
            raise DistributedError(
                "a run was begun anew, and met other processes less often than the first time",
                f"left out: {_ANEW.left[0].kind}",
                "what a traced function does must follow from its arguments and from what it read",
            )
    finally:
        _ANEW.left = before


def is_anew() -> bool:
    """Whether a run was begun anew that has yet to get what the first got."""
    return bool(_ANEW.left)


def got_before(kind: str, attrs: Mapping[str, Any], out: np.ndarray) -> bool:
    """Whether this collective was met before, by a run that was begun anew; `out` is then written.

    Raises DistributedError where that run met for something else.
    """
    if not _ANEW.left:
        return False
    first, *rest = _ANEW.left
    same = first.kind == kind and first.got.dtype == out.dtype and first.got.size == out.size
    if not same or any(first.attrs[name] != value for name, value in attrs.items()):
        raise DistributedError(
            "a run was begun anew, and met other processes in another way than the first time",
            f"first: {first.kind}{list(first.got.shape)}",
            f"then: {kind}{list(out.shape)}",
        )
    _ANEW.left = tuple(rest)
    out[...] = first.got.reshape(out.shape)
    return True


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
    arrays = tuple([np.asarray(x, order="C") for x in inputs])  # np.ascontiguousarray would make 0-d 1-d
    carrier_for(kind, attrs["group"]).start(kind, attrs, arrays, (out,)).wait()
    return out
