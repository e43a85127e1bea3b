"""Saves that go on while the program does: copies of what they write, and the thread that writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from ...runtime import Tensor
from ...runtime.tensor import tensor_of
from .metadata import Box


class Background:
    """The one save that is under way in a process.

    Invariant: nobody writes into `_room` while a thread reads from it: whoever does has waited for the last.
    A forked child does not have the thread, and begins anew.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._thread: ThreadPoolExecutor | None = None
        self._last: Future[Any] | None = None
        self._room: dict[tuple[str, Box], np.ndarray] = {}  # the last copies

    def wait(self) -> None:
        """Wait until the last save has ended, however it did."""
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]
        if self._last is not None:
            wait([self._last])

    def copied(self, chunks: Mapping[tuple[str, Box], Tensor]) -> dict[tuple[str, Box], Tensor]:
        """Copies of chunks, in the memory of the last ones where they are as large."""
        before, self._room = self._room, {}
        for each, tensor in chunks.items():
            array, room = tensor._data, before.pop(each, None)
            if room is None or room.dtype != array.dtype or room.shape != array.shape:
                room = np.empty(array.shape, array.dtype)
            np.copyto(room, array)
            self._room[each] = room
        return {each: tensor_of(room) for each, room in self._room.items()}

    def start(self, write: Callable[[], Any]) -> Future[Any]:
        """Write in the background."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="lamina-checkpoint")
        self._last = self._thread.submit(write)
        return self._last


BACKGROUND = Background()
