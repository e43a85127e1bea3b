"""Ranks with different numbers of batches: who is done goes on meeting the others, until none has one.

with Join([model, optimizer]):
    for batch in loader:              # of another length on each rank
        ...
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from ...ir.errors import ArgumentValueError, DistributedError
from ...runtime import Tensor
from ...runtime import tensor as make_tensor
from ..collectives import all_reduce
from ..groups import resolved
from ..work import Done, Work


class JoinHook:
    """What a rank that is done does for one of its Joinables.  active: how many ranks have a batch."""

    active = 0

    def main_hook(self) -> None:
        """Meet the others in all collectives of one of their steps; called for each."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """End the joining, when no rank has a batch.  is_last_joiner: this rank was among the last."""


class Joinable:
    """What meets other ranks at each step, and can do so without a batch.

    A class of this kind calls `Join.notify_join_context(self)` once a step, ahead of its collectives.
    """

    _join: Join | None = None  # the block that it is in

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What to do once this rank is done.  kwargs: those of the Join."""
        raise NotImplementedError(f"{type(self).__name__}.join_hook")

    @property
    def join_device(self) -> Any:
        """Where its collectives are."""
        raise NotImplementedError(f"{type(self).__name__}.join_device")

    @property
    def join_process_group(self) -> Any:
        """The ranks that it meets."""
        raise NotImplementedError(f"{type(self).__name__}.join_process_group")


class Join:
    """A block in which ranks have different numbers of batches, for all of these joinables.

    joinables: in the order in which a step comes to them; all meet the same ranks.  enable: False, and it
    does nothing.  throw_on_early_termination: all ranks raise DistributedError once one is done.  kwargs: for
    their hooks, as `divide_by_initial_world_size` of DistributedDataParallel.

    Raises ArgumentValueError where the joinables are of different groups, or are none.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ):
        if not joinables or not all(isinstance(one, Joinable) for one in joinables):
            raise ArgumentValueError("Join(joinables): a list of Joinables, at least one")
        groups = [resolved(one.join_process_group) for one in joinables]
        if any(group is not groups[0] for group in groups) or groups[0] is None:
            raise ArgumentValueError("Join(joinables): they meet the same ranks", f"{groups}")
        self._joinables, self._group, self._enable = list(joinables), groups[0], enable
        self._throws = throw_on_early_termination
        self._hooks = [one.join_hook(**kwargs) for one in joinables] if enable else []

    def __enter__(self) -> Join:
        if self._enable:
            for one in self._joinables:
                one._join = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._enable:
            return
        for one in self._joinables:
            one._join = None
        if kind is not None:
            return
        was_last = True
        while active := self._active(False):
            was_last = False
            for hook in self._hooks:
                hook.active = active
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(was_last)

    def _active(self, own: bool) -> int:
        """How many ranks have a batch."""
        count = make_tensor([int(own)])
        all_reduce(count, group=self._group)
        active = int(count.item())
        if self._throws and 0 < active < self._group.size():
            raise DistributedError(
                "Detected at least one rank that exhausted inputs.",
                f"{active} of {self._group.size()} ranks have a batch",
                "throw_on_early_termination=False lets them end one by one",
            )
        return active

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Work | None:
        """Say that this rank has a batch.

        Returns a Work whose result is how many have one, as a tensor; None outside of a block, and where
        another joinable of the step, the first, says so.  Raises DistributedError as the block asks for.
        """
        block = joinable._join
        if block is None or block._joinables[0] is not joinable:
            return None
        return Done([make_tensor([block._active(True)])])


def count_of(work: Work | None) -> int | None:
    """How many ranks have a batch, as a notice told; None where it was not said."""
    if work is None:
        return None
    (count,) = work.result()
    assert isinstance(count, Tensor)
    return int(count.item())
