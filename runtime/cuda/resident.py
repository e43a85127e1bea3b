"""Programs whose arrays are on the device already, and whose results stay there."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.kernel.types import NUMPY
from ..on_device import OnDevice, on_host, over, part, write_over
from .eager import brought, dense, note, uploaded
from .executable import Executable


class Resident(Executable):
    """A program on arrays of a device, called as others are; nothing is waited for.

    Arrays of the host (numbers, states of generators, indices) are copied to the device at each call.  Of
    indices out of range the next wait tells.
    """

    def __call__(self, *arrays: Any) -> tuple[np.ndarray, ...]:
        """The results: new arrays, or the params that they were written over."""
        launches = self.launches
        given = [dense(brought(self.machine, x)) for x in arrays]
        for at in self._written:
            if not isinstance(arrays[at], OnDevice):
                given[at] = uploaded(self.machine, arrays[at])
        made = self.queued([x.address for x in given])
        count = len(made) - len(launches.checks)
        if launches.checks:
            note(self.machine, launches, made[count:])
        for at in self._written:
            if given[at] is not arrays[at]:
                write_over(arrays[at], given[at] if isinstance(arrays[at], OnDevice) else on_host(given[at]))
        return tuple([
            arrays[at] if at is not None else part(y, over(y), y.shape, NUMPY[y.dtype])
            for y, at in zip(made[:count], launches.into, strict=False)
        ])  # fmt: skip
