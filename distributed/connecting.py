"""Connect to a process that may not listen yet."""

from __future__ import annotations

import socket
import time

from ..ir.errors import DistributedError

PAUSE, LONGEST = 0.01, 0.2  # seconds between attempts, at first and at last


def connected(host: str, port: int, end: float, what: str, remedy: str) -> socket.socket:
    """A connection, once somebody listens there.  end: until when it is tried, by time.monotonic.

    Raises DistributedError after `what`, with `remedy` as the way out.
    """
    begun, pause = time.monotonic(), PAUSE
    while True:
        try:
            return socket.create_connection((host, port), timeout=max(0.05, min(5.0, end - time.monotonic())))
        except OSError as error:
            if time.monotonic() + pause > end:
                waited = time.monotonic() - begun
                raise DistributedError(
                    f"{what}: nobody listens at {host}:{port} after {waited:.1f} s", str(error), remedy
                ) from None
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST)
