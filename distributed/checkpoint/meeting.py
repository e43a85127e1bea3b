"""How the ranks of a checkpoint agree: each does a step, the first decides, all go on or all raise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ...ir.errors import ArgumentError
from ..collectives import barrier
from ..groups import ProcessGroup, default_group, is_initialized, new_group
from ..objects import broadcast_object_list, gather_object
from .failures import Failure, for_all

Said = TypeVar("Said")
Decided = TypeVar("Decided")


class Meeting(ABC):
    """Ranks that say small things to each other.  Every method is called on all of them, in one order."""

    rank: int
    size: int

    @abstractmethod
    def gather(self, said: Any) -> list[Any] | None:
        """What each rank said, by rank, on the first; None on the others."""

    @abstractmethod
    def broadcast(self, said: Any) -> Any:
        """What the first rank said."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all."""

    @abstractmethod
    def apart(self) -> Meeting:
        """The same ranks, for another thread: what is said there is not mixed up with what is said here.

        Made at the first call, on all ranks.
        """


class Alone(Meeting):
    """One process."""

    rank, size = 0, 1

    def gather(self, said: Any) -> list[Any]:
        return [said]

    def broadcast(self, said: Any) -> Any:
        return said

    def barrier(self) -> None:
        pass

    def apart(self) -> Meeting:
        return self


class ByGroup(Meeting):
    """The ranks of a process group."""

    def __init__(self, group: ProcessGroup):
        self.group, self.rank, self.size = group, group.rank(), group.size()
        self._apart: ByGroup | None = None

    def gather(self, said: Any) -> list[Any] | None:
        into = [None] * self.size if self.rank == 0 else None
        gather_object(said, into, group=self.group, group_dst=0)
        return into

    def broadcast(self, said: Any) -> Any:
        held = [said]
        broadcast_object_list(held, group=self.group, group_src=0)
        return held[0]

    def barrier(self) -> None:
        barrier(self.group)

    def apart(self) -> Meeting:
        if self._apart is None:
            self._apart = ByGroup(new_group(self.group.ranks, use_local_synchronization=True))
        return self._apart


_BY_GROUP: WeakKeyDictionary[ProcessGroup, ByGroup] = WeakKeyDictionary()


def meeting_of(process_group: Any, no_dist: bool = False) -> Meeting:
    """Who takes part: all ranks that joined, unless a group is said.  Raises ArgumentError."""
    if isinstance(process_group, Meeting):
        return process_group
    if no_dist or process_group is None and not is_initialized():
        return Alone()
    group = default_group() if process_group is None else process_group
    if not isinstance(group, ProcessGroup):
        raise ArgumentError(f"process_group: a group of processes, not {type(process_group).__name__}")
    if group.size() == 1:
        return Alone()
    return _BY_GROUP.setdefault(group, ByGroup(group))


def agree(
    meeting: Meeting,
    what: str,
    step: Callable[[], Said],
    decide: Callable[[list[Said]], Decided],
) -> Decided:
    """Do `step` on every rank, then on the first `decide` on what all returned; all get what it decided.

    Where either raises on any rank, all raise: CheckpointException, or in one process the error itself; who
    was interrupted raises that again once the others know.
    """
    said: Any = None
    error: BaseException | None = None
    try:
        said = step()
    except BaseException as caught:
        error = caught
    everyone = meeting.gather((said, None if error is None else Failure.of(error)))
    decided: Any = None
    failures: dict[int, Failure] = {}
    if everyone is not None:
        failures = {rank: failure for rank, (_, failure) in enumerate(everyone) if failure is not None}
        if not failures:
            try:
                decided = decide([each for each, _ in everyone])
            except BaseException as caught:
                error = caught
                failures = {0: Failure.of(caught)}
    failures, decided = meeting.broadcast((failures, decided))
    if not failures:
        return decided
    if error is not None and (meeting.size == 1 or not isinstance(error, Exception)):
        raise error
    raise for_all(what, failures) from error
