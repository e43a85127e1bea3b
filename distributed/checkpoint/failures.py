"""What ends a save or a load: of one rank, and then of all."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.errors import LaminaError
from ...runtime.checkpoints.own_form import SavedFileError


class CheckpointException(LaminaError):
    """A save or a load that ended on some rank, and so on all.

    failures: by rank, what ended it there.
    """

    def __init__(self, rule: str, *details: str, failures: dict[int, str] | None = None):
        super().__init__(rule, *details)
        self.failures = failures or {}


class DamagedCheckpointError(CheckpointException, SavedFileError):
    """A checkpoint that is not as it was saved: cut short, changed, without a file, or none of Lamina's."""


@dataclass(frozen=True)
class Failure:
    """What ended a step on one rank, in a form that goes to the others.

    damaged: whether that was a file, so that an older checkpoint may do.
    """

    text: str
    damaged: bool

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            return cls("it was interrupted", False)
        if isinstance(error, LaminaError):
            return cls(str(error), isinstance(error, DamagedCheckpointError))
        return cls(f"{type(error).__name__}: {error}", False)


def for_all(what: str, failures: dict[int, Failure]) -> CheckpointException:
    """The error that all ranks raise where some failed."""
    kind = DamagedCheckpointError if all(each.damaged for each in failures.values()) else CheckpointException
    shown = [f"rank {rank}: {each.text}" for rank, each in sorted(failures.items())[:8]]
    if len(failures) > len(shown):
        shown.append(f"and {len(failures) - len(shown)} ranks more")
    ranks = "rank" if len(failures) == 1 else "ranks"
    names = ", ".join(map(str, sorted(failures)[:8]))
    lines = [line for text in shown for line in text.splitlines()]
    told = {rank: each.text for rank, each in failures.items()}
    return kind(f"{what}: ended on {ranks} {names}, and so on all", *lines, failures=told)
