"""What is on its way between ranks: one collective, or one message, which goes on whenever somebody looks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..ir.errors import DistributedError
from .mpi import MPI, NATIVE
from .mpi_arrays import After
from .waiting import wait

if TYPE_CHECKING:
    from .transport import Channel

EAGER, BYTES_A_SECOND = 200e-6, 0.5e9  # how long a wait is eager: at least, and for so many bytes
_LEFT: list[tuple[list[Any], Any]] = []  # requests that nobody waits for, and what they read and write


def _is_through(requests: list[Any]) -> bool:
    try:
        return MPI.Request.Testall(requests)
    except MPI.Exception:  # of messages that nobody asks for
        return True


def _looks_at(request: MPI.Request) -> Callable[[], bool] | None:
    """What looks at a request several times, gives way in between, and says whether it is done.

    It raises MPI's exceptions, as `request.Test` does.  None where only Python can.
    """
    if NATIVE is None:
        return None
    look, place = NATIVE.look, MPI._addressof(request)

    def often(request: MPI.Request = request) -> bool:  # which lives for as long as its address is known
        found = look(place)
        if found > 1:
            raise MPI.Exception(found - 2)
        return found == 1

    return often


class Flight:
    """A collective or message on its way.

    keep: what must live until it is done.  after: what is done with what arrived, once.  of: the ranks whose
    message it is; None for a collective.
    """

    def __init__(
        self,
        channel: Channel,
        text: str,
        requests: list[Any],
        nbytes: int,
        after: After,
        keep: Any,
        of: tuple[int, ...] | None = None,
    ):
        self.channel, self.text, self.requests, self.of = channel, text, requests, of
        self.begun, self.nbytes = time.perf_counter_ns(), nbytes
        channel.world.under_way += nbytes
        self.after, self.keep, self.count = after, keep, channel.count
        self.error: BaseException | None = None
        self.done = False

    @property
    def goes_ahead(self) -> bool:
        """Whether looks at it while this rank computes are worth a core's time.

        They are for messages, which somebody may wait for already, with ranks on other machines, and where a
        core has nothing else to do.
        """
        channel = self.channel
        return self.of is not None or len(channel.near) + 1 < channel.size or channel.world.has_idle_core

    @classmethod
    def over(cls, channel: Channel, text: str) -> Flight:
        """One whose results are there already."""
        made = cls(channel, text, [], 0, None, None)
        made.done = True
        return made

    def arrived(self) -> bool:
        """Whether it is done, without waiting; its results are then in place."""
        if self.done:
            return True
        requests = self.requests
        return self._asked(requests[0].Test if len(requests) == 1 else lambda: MPI.Request.Testall(requests))

    @property
    def often(self) -> Callable[[], bool] | None:
        """What asks as `arrived` does, many times; None where that is `arrived` itself."""
        look = _looks_at(self.requests[0]) if len(self.requests) == 1 else None
        return None if look is None else lambda: self._asked(look)

    def _asked(self, look: Callable[[], bool]) -> bool:
        try:
            there = look()
        except MPI.Exception as error:
            self.error = self.channel.failed(self.text, error)
            raise self.error from None
        if there:
            self.finish()
        return there

    def finish(self) -> None:
        """Put what arrived where it belongs."""
        if not self.done:
            self.done = True
            self.channel.world.under_way -= self.nbytes
            if self.channel.world.log is not None:
                self.channel.world.log.append((self.begun, time.perf_counter_ns(), self.nbytes))
            after, self.after, self.keep, self.requests = self.after, None, None, []
            if after is not None:
                after()

    def __del__(self) -> None:
        """Hold the memory of what nobody waits for any more until MPI is through with it."""
        if not self.done and self.requests and not MPI.Is_finalized():
            self.channel.world.under_way -= self.nbytes
            _LEFT[:] = [one for one in _LEFT if not _is_through(one[0])]
            _LEFT.append((self.requests, self.keep))

    def wait(self, timeout: float | None = None) -> None:
        """Return when the results are there.  Raises DistributedError where they will never be."""
        if self.error is not None:
            raise self.error
        limit = self.channel.timeout if timeout is None else timeout
        try:
            eager_for = EAGER + self.channel.world.under_way / BYTES_A_SECOND  # all go on at each look
            wait(
                self.arrived,
                eager_for,
                lambda waited: self.channel.look(self, waited, limit),
                often=self.often,
                all_came=None if self.of is not None else self.channel.all_came,
            )
        except DistributedError as error:
            self.error = error
            raise


class Message(Flight):
    """What is received from one rank, whose number in the group is put into `seen`."""

    def __init__(self, *flight: Any, **more: Any):
        *flight, self.seen = flight
        super().__init__(*flight, **more)

    @property
    def often(self) -> None:  # who sent how much is asked for with each look
        return None

    def arrived(self) -> bool:
        if self.done:
            return True
        status = MPI.Status()
        try:
            there = self.requests[0].Test(status)
        except MPI.Exception as error:
            self.error = self.channel.failed(self.text, error)
            if error.Get_error_class() == MPI.ERR_TRUNCATE:
                self.error = DistributedError(
                    f"{self.text}: more than its {self.nbytes} bytes came, which is another shape"
                )
            raise self.error from None
        if there:
            self.finish()
            came = status.Get_count(MPI.BYTE)
            if came != self.nbytes:
                who = self.channel.ranks[status.source]
                self.error = DistributedError(
                    f"{self.text}: {came} bytes came from rank {who}, which is another shape"
                )
                raise self.error
            if self.seen is not None:
                self.seen.append(status.source)
        return there
