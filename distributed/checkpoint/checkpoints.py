"""A folder of checkpoints of one run, by the number of the step; the newest whole one is gone back to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from ...ir.errors import ArgumentValueError
from ...ir.warned import warn
from .disk import committed
from .failures import CheckpointException, DamagedCheckpointError
from .filesystem import FileSystemWriter, folder_of
from .leftovers import remove_checkpoint, sweep
from .meeting import agree, meeting_of
from .metadata import Metadata
from .planner import DefaultSavePlanner
from .state_dict_loader import load
from .state_dict_saver import save, save_apart

NAME = re.compile(r"step-(\d{8,})")


class Checkpoints:
    """The checkpoints of a run, in folders step-00001000 … of one folder.

    keep: how many of the newest stay; None for all.  every: steps from one to the next, which `is_due` tells.
    process_group: the ranks that save and load together.

        checkpoints = Checkpoints("runs/1", keep=3, every=1000)
        step = checkpoints.restore(state) or 0
        while step < end:
            …
            if checkpoints.is_due(step):
                checkpoints.save(step, state)
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        keep: int | None = 3,
        every: int | None = None,
        process_group: Any = None,
    ):
        for name, value in (("keep", keep), ("every", every)):
            if value is not None and (type(value) is not int or value < 1):
                raise ArgumentValueError(f"Checkpoints({name}): a positive int or None, not {value!r:.60}")
        self.folder = folder_of(folder)
        self.keep, self.every, self.process_group = keep, every, process_group

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is to be saved after a step."""
        return self.every is None or (step > 0 and step % self.every == 0)

    def path(self, step: int) -> str:
        """The folder of the checkpoint of a step."""
        if type(step) is not int or step < 0:
            raise ArgumentValueError(f"Checkpoints: a step is a number from 0 on, not {step!r:.60}")
        return os.path.join(self.folder, f"step-{step:08}")

    def steps(self) -> list[int]:
        """The steps of which there are checkpoints, the oldest first.  Their tensors are not looked at."""
        return sorted(step for step, there in self._folders().items() if there)

    def latest(self) -> int | None:
        """The newest step of which there is a checkpoint; None where there is none."""
        return max(self.steps(), default=None)

    def save(self, step: int, state_dict: Mapping[str, Any]) -> Metadata:
        """Save the checkpoint of a step, then remove those that are too many.  Raises as `save` does."""
        made = save(state_dict, checkpoint_id=self.path(step), process_group=self.process_group)
        if meeting_of(self.process_group).rank == 0:
            self._remove_old()
        return made

    def async_save(self, step: int, state_dict: Mapping[str, Any]) -> Future[Metadata]:
        """The same in the background; old ones are removed once this one is there."""
        first = meeting_of(self.process_group).rank == 0
        return save_apart(
            state_dict, FileSystemWriter(self.path(step)), DefaultSavePlanner(), self.process_group,
            self._remove_old if first else None,
        )  # fmt: skip

    def restore(self, state_dict: dict[str, Any]) -> int | None:
        """Load the newest checkpoint that is whole; its step, or None where there is none at all.

        A damaged one is left out, and the first rank warns of what is wrong with it.  Raises
        DamagedCheckpointError where all are damaged, StateError where the state dict does not fit.
        """
        meeting = meeting_of(self.process_group)
        steps = agree(meeting, "restore", lambda: None, lambda everyone: self.steps()[::-1])
        for i, step in enumerate(steps):
            try:
                load(state_dict, checkpoint_id=self.path(step), process_group=self.process_group)
                return step
            except DamagedCheckpointError as error:
                if i + 1 == len(steps):
                    raise
                if meeting.rank:
                    continue
                warn(f"{error}\n  the checkpoint of step {steps[i + 1]} is used instead", stacklevel=2)
        return None

    def _folders(self) -> dict[int, bool]:
        """By step, the folders of the run, and whether an index is in them."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return {}
        found = {}
        for name in names:
            match = NAME.fullmatch(name)
            if match and self.path(int(match[1])).endswith(name):
                found[int(match[1])] = _is_there(os.path.join(self.folder, name))
        return found

    def _remove_old(self) -> None:
        """Remove checkpoints beyond those that stay, and what is left of some whose removal was cut short."""
        sweep(self.folder)
        there = self._folders()
        whole = sorted(step for step, is_there in there.items() if is_there)
        old = whole[: -self.keep] if self.keep is not None else []
        for step in [*(step for step, is_there in there.items() if not is_there), *old]:
            try:
                remove_checkpoint(self.path(step))
            except (OSError, CheckpointException) as error:
                warn(f"the checkpoint of step {step} could not be removed: {error}", stacklevel=3)


def _is_there(folder: str) -> bool:
    try:
        return committed(folder) is not None
    except DamagedCheckpointError:
        return True  # there, and what is wrong with it is told as it is loaded
