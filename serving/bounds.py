"""What one worker of the server may be made to spend: every limit, in one place."""

from __future__ import annotations

from dataclasses import dataclass

MEBI = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """Limits of one worker.  Seconds, bytes, counts.

    batch, wait: most rows of one run, and how long it waits for more.  queue: requests that wait, by model.
    timeout, generate_timeout: from a request's arrival to its answer, and to the end of a text.  body,
    bodies: of one request, and of what all together may hold (bodies, what JSON becomes, answers on their
    way).  values, depth: of JSON.  call_bytes: that one run of a model may ask for.  max_tokens: of one text.
    characters: of the texts that one request brings to be read.
    generations: texts that are written at once.  connections, header_bytes, header_time, body_time: of HTTP.
    idle: between two requests of a connection.  grace: that a stopping worker gives what it began.
    """

    batch: int = 32
    wait: float = 0.002
    queue: int = 256
    timeout: float = 60.0
    generate_timeout: float = 600.0
    body: int = 64 * MEBI
    bodies: int = 512 * MEBI
    values: int = 1_000_000
    depth: int = 64
    call_bytes: int | None = None
    max_tokens: int = 4096
    characters: int = MEBI
    generations: int = 4
    connections: int = 1024
    header_bytes: int = 32 << 10
    header_time: float = 10.0
    body_time: float = 60.0
    idle: float = 15.0
    grace: float = 30.0


class Budget:
    """Bytes that are taken and given back.  Of one thread: the event loop's."""

    def __init__(self, whole: int):
        self.whole, self.held = whole, 0

    def take(self, count: int) -> bool:
        """Whether there were so many left; they are taken then."""
        if self.held + count > self.whole:
            return False
        self.held += count
        return True

    def give(self, count: int) -> None:
        self.held -= count
