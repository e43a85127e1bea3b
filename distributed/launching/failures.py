"""What ended a job: which rank, how, and what is said of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Any

STATUS_OF_SILENCE = 124  # as the command `timeout` has it


@dataclass(frozen=True)
class Failure:
    """Why a job ended before its time.

    rank: whose failure, or None where it is nobody's.  how: what is said of it, after "rank 1".  status: the
    launcher's exit status.  at: seconds since the epoch, by the clock of the rank's machine.  raised: what
    the rank told of an exception (`error`, `place`, `text`).  ended: the rank's own status, negative for a
    signal.
    """

    how: str
    status: int
    rank: int | None = None
    at: float = 0.0
    host: str = ""
    pid: int = 0
    raised: dict[str, Any] | None = None
    ended: int | None = None
    last_line: str = ""

    def told(self, ranks: int) -> str:
        """The failure in one line, or two where the rank had written something."""
        if self.rank is None:
            who = ""
        else:
            place = ", ".join([f"host {self.host}", f"pid {self.pid}"] if self.pid else [])
            who = f"rank {self.rank} of {ranks}{f' ({place})' if place else ''} "
        last = f"\n  its last line: {self.last_line}" if self.last_line else ""
        return f"{who}{self.how}{last}"


def signal_name(number: int) -> str:
    """A signal by its name, SIGKILL; one without a name by its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def of_an_end(rank: int, told: dict[str, Any], raised: dict[str, Any] | None) -> Failure:
    """The failure of a rank that ended as its watcher tells."""
    ended = told["status"]
    status = ended if ended > 0 else 128 - ended
    if raised is not None and ended == -signal.SIGKILL:  # it had raised, and did not get to its end
        status = ended = 1
    if raised is not None:
        place = f" at {raised['place']}" if raised["place"] else ""
        how = f"raised {raised['error']}{place}"
    elif told.get("aborted"):
        how = f"called MPI_Abort with status {ended}"
    elif ended > 0:
        how = f"ended with exit status {ended}"
    else:
        how = f"was ended by {signal_name(-ended)}"
        if told.get("out_of_memory"):
            how += ", by the system: memory ran out"
    how += f", after {told['seconds']} s"
    failure = Failure(how, status, rank, told["at"], raised=raised, ended=ended)
    return failure if raised is None else replace(failure, at=raised["at"])
