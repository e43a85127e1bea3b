"""Processes that run networks or programs, fed over pipes; one that dies or hangs is a finding, replaced."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "network_worker.py"
LIMIT = 60.0  # seconds that a network may take; one second is much
LASTING = 400  # networks of one process: it is then replaced, so that what leaks doesn't add up


class Worker:
    """One process.  `ask` hands it a network, `answer` is what became of it."""

    def __init__(self, script: Path = WORKER) -> None:
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env=os.environ | {"MALLOC_PERTURB_": "165"},
        )  # fmt: skip
        self.asked: Any = None
        self.since = 0.0
        self.count = 0

    def ask(self, request: dict) -> None:
        assert self.process.stdin is not None
        self.asked, self.since = request, time.monotonic()
        self.count += 1
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # `answer` says how it ended

    def answer(self) -> dict:
        """What it said, or how it ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line.endswith(b"\n"):
            answer = json.loads(line)
        else:
            answer = self._ended()
        answer["seconds"] = time.monotonic() - self.since
        return answer

    def _ended(self) -> dict:
        code = self.process.wait()
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        self.errors.seek(0)
        told = self.errors.read()[-2000:]
        return {"outcome": "dies", "detail": f"{name}\n{told}", "ratio": 0.0, "description": None}

    def hung(self) -> dict:
        """End a process that takes too long."""
        self.process.send_signal(signal.SIGABRT)  # faulthandler writes where it is
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        answer = self._ended()
        return answer | {"outcome": "hangs", "seconds": time.monotonic() - self.since}

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()

    @property
    def gone(self) -> bool:
        return self.process.poll() is not None


def answers(
    requests: Iterable[dict], workers: int, limit: float = LIMIT, script: Path = WORKER
) -> Iterator[tuple[dict, dict]]:
    """(request, answer) as they come, from so many processes of a script at a time."""
    waiting = iter(requests)
    selector = selectors.DefaultSelector()
    running: list[Worker] = []

    def start(worker: Worker | None) -> None:
        """Give a worker its next request, or a new one in its place; close it when there is none."""
        request = next(waiting, None)
        if worker is not None and (request is None or worker.count >= LASTING or worker.gone):
            selector.unregister(worker.process.stdout)
            running.remove(worker)
            worker.close()
            worker = None
        if request is None:
            return
        if worker is None:
            worker = Worker(script)
            running.append(worker)
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        worker.ask(request)

    try:
        for _ in range(workers):
            start(None)
        while running:
            ready = [key.data for key, _ in selector.select(1.0)]
            late = [w for w in running if w not in ready and time.monotonic() - w.since > limit]
            for worker in ready + late:
                request = worker.asked
                answer = worker.answer() if worker in ready else worker.hung()
                if answer["outcome"] in ("dies", "hangs"):
                    worker.process.wait()
                start(worker)
                yield request, answer
    finally:
        for worker in running:
            worker.process.kill()
            worker.close()
        selector.close()


class Runner:
    """One process after another, asked for one network at a time."""

    def __init__(self, plant: list | None = None, limit: float = LIMIT):
        self.plant, self.limit = plant or [], limit
        self.worker: Worker | None = None

    def outcome(self, request: dict) -> dict:
        if self.worker is None or self.worker.gone:
            self.close()
            self.worker = Worker()
            request = request | {"plant": self.plant}
        worker = self.worker
        worker.ask(request)
        with selectors.DefaultSelector() as selector:
            selector.register(worker.process.stdout, selectors.EVENT_READ)
            answer = worker.answer() if selector.select(self.limit) else worker.hung()
        if answer["outcome"] in ("dies", "hangs"):
            worker.process.wait()
        return answer

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None
