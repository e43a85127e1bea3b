"""What this machine can do at most, measured: the yardstick for what a kernel reaches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cache
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ..passes.llvm.binding import engine, host_target
from ..runtime import get_num_threads

SUMS = 10  # independent: as many as hide the wait for a multiplication and an addition
ROUNDS = 5  # of which the quickest counts


SIZES = tuple(1 << power for power in range(18, 28, 2))  # bytes that are copied: in caches, and beyond them


class Limits(NamedTuple):
    """flops: multiplications and additions a second of all threads, in float32.  bandwidths: bytes a second
    that they copy, read and written ones both counted, for each of SIZES.  threads: how many those are."""

    flops: float
    bandwidths: tuple[float, ...]
    threads: int

    def seconds(self, flops: float, nbytes: float) -> float:
        """The least that so much work takes on all threads; in the smallest caches bytes move for nothing."""
        rates = [rate for size, rate in zip(SIZES, self.bandwidths) if 2 * size <= nbytes]
        return max(flops / self.flops, nbytes / rates[-1] if rates else 0.0)


def measured(threads: int | None = None) -> Limits:
    """The limits of so many threads, by default of as many as may be used.  Takes a quarter of a second."""
    return _measured(threads or get_num_threads())


@cache
def _measured(threads: int) -> Limits:
    rates = tuple(bandwidth(threads, size) for size in SIZES)
    return Limits(fma_peak() * threads, rates, threads)


def fma_peak() -> float:
    """Multiplications and additions a second of one core, in independent sums that stay in registers."""
    lanes = host_target().lanes
    kind = f"<{lanes} x float>"
    lines = [f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})"]
    lines += ["define void @peak(ptr %p, i64 %n) {", "entry:", f"  %x = load {kind}, ptr %p, align 4"]
    lines += ["  br label %loop", "loop:", "  %i = phi i64 [0, %entry], [%j, %loop]"]
    lines += [f"  %a{k} = phi {kind} [%x, %entry], [%b{k}, %loop]" for k in range(SUMS)]
    for k in range(SUMS):
        lines.append(f"  %b{k} = call {kind} @llvm.fma.v{lanes}f32({kind} %a{k}, {kind} %x, {kind} %x)")
    lines += ["  %j = add i64 %i, 1", "  %c = icmp slt i64 %j, %n", "  br i1 %c, label %loop, label %end"]
    total = "%b0"
    lines.append("end:")
    for k in range(1, SUMS):
        lines.append(f"  %t{k} = fadd {kind} {total}, %b{k}")
        total = f"%t{k}"
    lines += [f"  store {kind} {total}, ptr %p, align 4", "  ret void", "}", ""]
    made = engine("peak", "\n".join(lines), host_target())
    function = CFUNCTYPE(None, c_void_p, c_int64)(made.get_function_address("peak"))
    memory, count = np.zeros(lanes, np.float32), 200_000
    return 2 * lanes * SUMS * count / _least(lambda: function(memory.ctypes.data, count))


def bandwidth(threads: int, nbytes: int = SIZES[-1]) -> float:
    """Bytes a second of threads that each copy a part of so many, read and written ones both counted."""
    size = nbytes // 4 // threads
    pairs = [(np.ones(size, np.float32), np.zeros(size, np.float32)) for _ in range(threads)]
    times = max(1, (1 << 24) // nbytes)

    def copy(of: np.ndarray, to: np.ndarray) -> None:
        for _ in range(times):
            np.copyto(to, of)

    def all_copy() -> None:
        others = [threading.Thread(target=copy, args=pair) for pair in pairs[1:]]
        for each in others:
            each.start()
        copy(*pairs[0])
        for each in others:
            each.join()

    return 2 * 4 * size * threads * times / _least(all_copy)


def _least(call: Callable[[], None]) -> float:
    """Seconds of the quickest of some calls."""
    least = float("inf")
    for _ in range(ROUNDS):
        start = perf_counter()
        call()
        least = min(least, perf_counter() - start)
    return least
