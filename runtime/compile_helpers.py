"""Processes that compile Triton source beside this one: begun, kept for the next use, replaced.

One that has answered stays for a minute, so that the kernels of the next program need not wait 300 ms for it
to load Triton.  None outlives this process: their input ends with it.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..ir.errors import KernelError
from ..ir.locks import fork_safe_lock
from ..passes import cache as disk
from ..passes.triton import helper as program
from ..passes.triton.binary import Binary
from ..passes.triton.code import Code
from ..passes.triton.target import Target
from ..passes.triton.toolchain import IGNORED, settings

KEPT = program.IDLE - 5.0  # seconds: one that waited longer may be about to end by itself
# Of what a helper wrote to its stderr an error repeats so many lines:
MOST_LINES = 10  # the last ones of a helper that died
MOST_ERRORS = 3  # those with an error, of one that refused a code


class DiedError(Exception):
    """A helper ended in the middle of a job.  Its text says how, and what it wrote last."""


class Helper:
    """One process.  Raises OSError where it can't be begun."""

    def __init__(self) -> None:
        self._settings = settings()
        self._folder = tempfile.mkdtemp(prefix="lamina-compile-")
        self._errors = Path(self._folder, "stderr")
        try:
            with open(self._errors, "wb") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", program.__file__],
                    bufsize=0,  # no locks, which a fork could leave taken
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={name: value for name, value in os.environ.items() if name not in IGNORED},
                )
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        with _lock:
            _alive.add(self)
        self._begun = False
        self.given = 0.0  # when it last had nothing to do

    def compile(self, code: Code, target: Target) -> Binary:
        """A code's binary.  Raises KernelError where Triton refuses it, DiedError where the helper ends."""
        try:
            before = self._errors.stat().st_size
        except OSError:
            before = 0
        try:
            if not self._begun:
                path = [str(folder) for folder in sys.path]
                self._send(json.dumps({"path": path, "folder": self._folder}).encode())
                self._begun = True
            self._send(disk.pack(target.name.encode(), code.json().encode()))
            verdict, data = disk.unpack(self._receive())
        except (OSError, ValueError):
            raise DiedError(*self._last_words(before)) from None
        if verdict == b"made":
            return Binary.unpacked(data)
        rule, *details = json.loads(data)
        more = [line for line in self._written(before) if "error:" in line]  # the rest is whole modules
        raise KernelError(rule, *details, *more[:MOST_ERRORS])

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def is_fit(self) -> bool:
        """Whether it is there for the next job, under the environment as it is now."""
        waited = time.monotonic() - self.given
        return self.is_alive and waited < KEPT and self._settings == settings()

    def end(self) -> None:
        """Kill it, whatever it is doing."""
        with _lock:
            _alive.discard(self)
        self.process.kill()
        self.process.wait()
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def close(self) -> None:
        """Close this process's ends of the pipes."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def disown(self) -> None:
        """In a forked child, whose process it isn't: let it go."""
        self.process.returncode = 0  # or Popen would warn that it runs
        self.close()

    def _send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        left = memoryview(len(data).to_bytes(8, "little") + data)
        while left:
            left = left[self.process.stdin.write(left) :]

    def _receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(8), "little"))

    def _exactly(self, size: int) -> bytes:
        assert self.process.stdout is not None
        data = bytearray()
        while len(data) < size:
            part = self.process.stdout.read(min(size - len(data), 1 << 20))
            if not part:
                raise OSError("the helper has ended")
            data += part
        return bytes(data)

    def _last_words(self, before: int) -> list[str]:
        self.process.kill()
        status = self.process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return [f"its process ended with {how}", *self._written(before)[-MOST_LINES:]]

    def _written(self, before: int) -> list[str]:
        """The lines that it wrote to its stderr from some byte on."""
        try:
            text = self._errors.read_bytes()[before:].decode(errors="replace")
        except OSError:
            return []
        return [line.rstrip() for line in text.splitlines() if line.strip()]


_lock = fork_safe_lock()
_alive: set[Helper] = set()
_idle: list[Helper] = []
_over = False


def take() -> Helper | None:
    """A helper with nothing to do, or a new one; None where there can be none.  Give it back, or end it."""
    if _over:
        raise RuntimeError("this process is ending")
    if getattr(sys, "frozen", False) or not sys.executable:  # frozen: the executable is no Python
        return None
    while True:
        with _lock:
            helper = _idle.pop() if _idle else None
        if helper is None:
            break
        if helper.is_fit:
            return helper
        helper.end()
    try:
        return Helper()
    except OSError:
        return None


def give(helper: Helper) -> None:
    """Keep a helper for the next use."""
    helper.given = time.monotonic()
    with _lock:
        if not _over:
            _idle.append(helper)
            return
    helper.end()


def end_all() -> None:
    """End the helpers that have nothing to do."""
    with _lock:
        ended = _idle[:]
        _idle.clear()
    for helper in ended:
        helper.end()


@atexit.register
def _at_exit() -> None:
    global _over
    with _lock:
        _over = True
        ended = [*_alive]
        _idle.clear()
    for helper in ended:
        helper.end()


def _in_child() -> None:
    for helper in _alive:
        helper.disown()
    _alive.clear()
    _idle.clear()


os.register_at_fork(after_in_child=_in_child)
