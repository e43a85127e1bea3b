"""This machine's CPU as a device, measured.

A rank is a process that has its share of the cores; a collective copies through shared memory, and a message
wakes another thread of control.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from time import perf_counter

import numpy as np

from ..profiler.limits import bandwidth
from ..runtime import Tensor, get_num_threads, ops
from .accelerators import Accelerator, Link

ROUNDS = 5  # of which the quickest counts
SIDE = 768  # of the matrices that are multiplied
TRIPS = 200


def calibrate(threads: int | None = None) -> Accelerator:
    """Measure products, copies, small ops and messages.  Takes about a second.

    threads: how many the processes of a plan have among them, by default as many as Lamina uses.
    """
    threads = threads or get_num_threads()
    a, b = (Tensor(np.ones((SIDE, SIDE), np.float32)) for _ in range(2))
    products = 2 * SIDE**3 / least(lambda: ops.matmul(a, b))
    copied = bandwidth(threads)
    small = Tensor(np.ones(16, np.float32)).requires_grad_()

    def there_and_back() -> None:
        x = small
        for _ in range(TRIPS):
            x = ops.mul(x, small)
        ops.sum(x).backward()

    launch = least(there_and_back) / (3 * TRIPS)  # a backward counts as two kernels
    message = _message()
    # In a collective every byte is written by one process and read by another: a copy, of which both count.
    link = Link(copied / 2, message, message, share=1.0)
    return Accelerator(
        "cpu", {"fp32": products, "tf32": products}, memory(), copied, threads, link, link,
        products=1.0, attention=0.5, streaming=1.0, launch=launch, shared=True,
    )  # fmt: skip


def least(call: Callable[[], object]) -> float:
    """Seconds of the quickest of some calls, the first of which prepares."""
    call()
    seconds = float("inf")
    for _ in range(ROUNDS):
        start = perf_counter()
        call()
        seconds = min(seconds, perf_counter() - start)
    return seconds


def memory() -> float:
    """Bytes of memory that this machine has."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _message() -> float:
    """Seconds from one thread's sending a byte until another that slept has it."""
    here, there = socket.socketpair()

    def answer() -> None:
        while there.recv(1):
            there.send(b"x")

    other = threading.Thread(target=answer)
    other.start()

    def trips() -> None:
        for _ in range(TRIPS):
            here.send(b"x")
            here.recv(1)

    try:
        return least(trips) / (2 * TRIPS)
    finally:
        here.close()
        other.join()
        there.close()
