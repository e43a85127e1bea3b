"""backend="local": MPI between ranks of one machine alone, which goes through memory that they share.

MPI sees by itself which ranks share a machine, and has such memory for them.  What is asked here is that no
byte leaves the machine.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import numpy as np

from ..ir.errors import DistributedError

if TYPE_CHECKING:
    from .transport import Channel

_NAME = 64  # bytes of a host's name


def need_one_machine(channel: Channel) -> None:
    """Raises DistributedError on each rank where not all of a channel's share a machine: who is where."""
    if set(channel.ranks) <= set(channel.world.near):
        return
    own = np.zeros(_NAME, np.uint8)
    name = socket.gethostname().encode()[:_NAME]
    own[: len(name)] = np.frombuffer(name, np.uint8)
    names = [np.empty(_NAME, np.uint8) for _ in channel.ranks]
    channel.exchange('the hosts of backend="local"', [own] * channel.size, names).wait()
    hosts = [bytes(one).rstrip(b"\0").decode("utf-8", "replace") for one in names]
    raise DistributedError(
        'backend="local" is for ranks of one machine, and these are on several',
        *[f"rank {rank}: host {host}" for rank, host in zip(channel.ranks, hosts, strict=True)],
        f"this rank shares its machine with {[r for r in channel.world.near if r in channel.ranks]}",
        'backend="mpi" is for several; new_group(ranks, backend="local") makes a group of those of one',
    )
