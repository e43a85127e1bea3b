"""Requests that wait for one model become one run where they can.

What came while the model was busy runs together as soon as it is free.  Where the last run was of several
requests, the next waits, at most `wait` seconds, until as many are there: their clients are about to send
again.  A request that comes alone never waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import numpy as np

from ..ir.errors import LaminaError
from ..jit.lamina_model import ModelError
from .bounds import Bounds
from .meters import BATCH_ROWS, QUEUE, RUN_SECONDS
from .refusals import Refusal, busy

LOG = logging.getLogger("lamina.serving")
# What a model says of arrays that it does not take, or of what it can't do with them.
REFUSED = (LaminaError, ModelError, TypeError, ValueError, IndexError, MemoryError)


class Runs(Protocol):
    """What the batcher asks of a model.  most_rows: of one run, or None where rows can't be put together."""

    name: str
    most_rows: int | None

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]: ...


@dataclass(eq=False)
class _Job:
    arrays: Sequence[np.ndarray]
    answer: asyncio.Future
    rows: int
    key: tuple = ()


class Batcher:
    """Runs a model in a thread of its own, for one event loop.

    Jobs whose futures are done, for their clients waited too long, are never run.
    """

    def __init__(self, model: Runs, bounds: Bounds):
        self.model, self.bounds = model, bounds
        self.busy_since: float | None = None
        self._queue: deque[_Job] = deque()
        self._thread = ThreadPoolExecutor(1, f"model {model.name}")
        self._pump: asyncio.Task | None = None
        self._came = asyncio.Event()
        self._last_jobs = 1  # of the last run, with those that waited then
        self._seconds = 0.0  # that a run takes, of late
        self._length = QUEUE.labels(model.name)
        self._rows = BATCH_ROWS.labels(model.name)
        self._timed = RUN_SECONDS.labels(model.name)
        self._most = min(bounds.batch, model.most_rows or 1)

    async def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The model's outputs for one request.  Raises Refusal: what it says, no place, too late."""
        if len(self._queue) >= self.bounds.queue:
            raise busy(f"{len(self._queue)} requests wait for {self.model.name}", self._expected())
        job = _Job(arrays, asyncio.get_running_loop().create_future(), 1)
        if self._most > 1:
            job.rows = arrays[0].shape[0]
            job.key = tuple(x.shape[1:] for x in arrays)
        self._queue.append(job)
        self._length.set(len(self._queue))
        self._came.set()
        if self._pump is None:
            self._pump = asyncio.create_task(self._run_all())
        try:
            async with asyncio.timeout(self.bounds.timeout):
                return await job.answer
        except TimeoutError:
            raise Refusal(504, f"{self.model.name} had no answer within {self.bounds.timeout:g} s") from None
        finally:
            if not job.answer.done() or job.answer.cancelled():  # too late, or unwanted
                job.answer.cancel()
                with suppress(ValueError):  # it is being run
                    self._queue.remove(job)

    def _expected(self) -> float:
        """The seconds after which what waits now will have run."""
        return self._seconds * len(self._queue) / max(1, min(self._most, self._last_jobs))

    async def _run_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while jobs := await self._gathered():
                self.busy_since = started = monotonic()
                answers = await loop.run_in_executor(self._thread, self._answers, jobs)
                self.busy_since, took = None, monotonic() - started
                self._seconds = took if not self._seconds else 0.8 * self._seconds + 0.2 * took
                self._last_jobs = len(jobs) + len(self._queue)
                self._timed.observe(took)
                self._rows.observe(sum(job.rows for job in jobs))
                for job, answer in zip(jobs, answers, strict=True):
                    if job.answer.done():
                        continue
                    if isinstance(answer, BaseException):
                        job.answer.set_exception(answer)
                    else:
                        job.answer.set_result(answer)
        finally:
            self._pump, self._last_jobs = None, 1  # who comes to an idle model never waits

    async def _gathered(self) -> list[_Job]:
        """The jobs of the next run; none where nothing waits."""
        until = monotonic() + self.bounds.wait
        wanted = min(self._most, self._last_jobs)
        while True:
            jobs, rows = self._fitting()
            left = until - monotonic()
            if rows >= wanted or wanted <= 1 or left <= 0:
                break
            self._came.clear()
            try:
                async with asyncio.timeout(left):
                    await self._came.wait()
            except TimeoutError:
                pass
        taken = {id(job) for job in jobs}
        self._queue = deque(job for job in self._queue if id(job) not in taken and not job.answer.done())
        self._length.set(len(self._queue))
        return jobs

    def _fitting(self) -> tuple[list[_Job], int]:
        """The oldest job and those that can run with it, in the order in which they came, and their rows."""
        jobs: list[_Job] = []
        rows = 0
        for job in self._queue:
            if job.answer.done():
                continue
            if not jobs or job.key == jobs[0].key and rows + job.rows <= self._most:
                jobs.append(job)
                rows += job.rows
                if rows >= self._most:
                    break
        return jobs, rows

    def _answers(self, jobs: list[_Job]) -> list:
        """What each job gets: outputs, or an exception.  In the model's thread."""
        if len(jobs) > 1:
            try:
                return self._together(jobs)
            except REFUSED:
                pass  # one of them is to blame, or they don't go together: each finds out for itself
            except Exception:
                LOG.exception("model %s failed on %d requests together", self.model.name, len(jobs))
        return [self._alone(job) for job in jobs]

    def _together(self, jobs: list[_Job]) -> list[list[np.ndarray]]:
        joined = [np.concatenate(arrays) for arrays in zip(*(job.arrays for job in jobs), strict=True)]
        outputs = self.model.run(joined)
        if any(x.ndim == 0 or x.shape[0] != joined[0].shape[0] for x in outputs):
            raise ValueError("an output has not one row for each of the inputs")
        ends = np.cumsum([job.rows for job in jobs])
        return [[x[end - job.rows : end] for x in outputs] for job, end in zip(jobs, ends, strict=True)]

    def _alone(self, job: _Job) -> list[np.ndarray] | Exception:
        try:
            return self.model.run(job.arrays)
        except MemoryError:
            return Refusal(503, f"{self.model.name}: there is not the memory for a request of these sizes")
        except REFUSED as error:
            told = getattr(error, "rule", None) or str(error) or type(error).__name__
            return Refusal(400, f"{self.model.name}: {told[:1000]}")
        except Exception as error:
            LOG.exception("model %s failed", self.model.name)
            return error

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
