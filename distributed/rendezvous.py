"""How processes that no MPI launcher started find each other: rank 0 keeps a table of their addresses.

MPI processes ask what started them who the others are, in MPICH's wire protocol PMI-1: lines of words, of
which a handful matter (put a value, get one, wait for all).  Where RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT say what mpiexec would, as torchrun, `multiprocessing` or a scheduler leave them, rank 0 starts a
small process that answers in its place (`pmi_server.py`).  Nothing but addresses goes through it.  Where that
process is, others know by MASTER_ADDR and MASTER_PORT, or rank 0 says so in a store.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..ir.errors import ArgumentValueError, DistributedError
from .connecting import connected
from .environment import MPICH, OPEN_MPI, PMIX
from .file_store import FileStore
from .store import PrefixStore
from .tcp_store import TCPStore

# What launchers of MPI leave in the environment of a rank.
_LAUNCHED = (MPICH.rank, OPEN_MPI.rank, PMIX.rank, "PMI_FD", "PMI_PORT", "PMIX_NAMESPACE")
IS_SERVED = "LAMINA_MEETS_BY_ITSELF"  # in the environment of processes that no launcher watches
PATIENCE = 300.0  # seconds that a rank waits for rank 0 to be there
_KEY = "lamina/rank 0"  # in a store: the host and port where rank 0's process answers
_REMEDY = "rank 0 does: is it started, and MASTER_ADDR its host?"

# The store that ranks met by, until the default group is left: a file may be one's that whoever started them
# removes.
_kept: dict[str, Any] = {}


def forget() -> None:
    """Let go of what the default group's ranks met by."""
    _kept.clear()


def is_launched() -> bool:
    """Whether an MPI launcher started this process."""
    return any(name in os.environ for name in _LAUNCHED)


def prepare(init_method: str | None, rank: int, world_size: int, store: Any = None) -> int | None:
    """See to it that MPI finds the other ranks when it is loaded.

    Returns how many ranks will then have met here; None where that is not done here, or there is one.
    Raises ArgumentValueError where it is half said how; DistributedError where rank 0 can't be reached.
    """
    if store is not None and init_method is not None:
        raise ArgumentValueError("init_process_group: store or init_method, not both")
    if is_launched() or "mpi4py.MPI" in sys.modules:
        return None
    told = init_method or "env://"
    parts = urlsplit(told)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    number = rank if rank >= 0 else _number(query.get("rank") or os.environ.get("RANK"), "RANK")
    size = (
        world_size
        if world_size > 0
        else _number(query.get("world_size") or os.environ.get("WORLD_SIZE"), "WORLD_SIZE")
    )
    if number is None and size is None:
        return None  # a job of one
    if number is None or size is None:
        missing = "rank (RANK)" if number is None else "world_size (WORLD_SIZE)"
        raise ArgumentValueError(f"init_process_group: {missing} is not said", "or start by mpiexec")
    if not 0 <= number < size:
        raise ArgumentValueError(f"init_process_group: rank {number} of {size} ranks")
    if size == 1:
        return None
    if parts.scheme == "file":
        store = FileStore(parts.path, size)  # the last rank that leaves removes the file
    if store is not None:
        _kept["store"] = store
        address, port = _by_store(store, number, size)
    elif parts.scheme == "env":
        address, port = os.environ.get("MASTER_ADDR"), _number(os.environ.get("MASTER_PORT"), "MASTER_PORT")
        if address is None or port is None:
            raise ArgumentValueError(
                "init_process_group: MASTER_ADDR and MASTER_PORT say where rank 0 is, and one is not set"
            )
    elif parts.scheme == "tcp":
        address, port = parts.hostname or "", parts.port
        if not address or port is None:
            raise ArgumentValueError(f"init_process_group(init_method={told!r}): tcp://host:port")
    else:
        raise ArgumentValueError(f"init_process_group(init_method={told!r}): env://, tcp:// or file://")
    if store is None:
        if number == 0:
            serve(size, port, address)
        connected(address, port, time.monotonic() + PATIENCE, "init_process_group", _REMEDY).close()
    place = f"{socket.gethostbyname(address)}:{port}"
    os.environ.update({"PMI_PORT": place, "PMI_ID": str(number), IS_SERVED: "1"})
    return size


def export(rank: int, size: int, local_rank: int, local_size: int) -> None:
    """Leave in the environment what torchrun would, for those who ask there."""
    said = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size}
    for name, value in said.items():
        os.environ.setdefault(name, str(value))


def serve(size: int, port: int, address: str = "127.0.0.1") -> int:
    """Start the process that answers for `size` ranks.  Returns its port, which it chooses if that is 0."""
    local = _number(os.environ.get("LOCAL_WORLD_SIZE"), "LOCAL_WORLD_SIZE")
    mapping = f"(vector,(0,{max(1, -(-size // local))},{local}))" if local else ""
    server = Path(__file__).with_name("pmi_server.py")
    host = "127.0.0.1" if address in ("localhost", "127.0.0.1") else ""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(server), str(size), host, str(port), mapping],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    said = process.stdout.readline()
    if not said:
        raise DistributedError(
            f"init_process_group: rank 0 can't listen at {address}:{port}",
            process.stderr.read().decode("utf-8", "replace").strip()[-500:],
            "another job may: choose another MASTER_PORT",
        )
    process.stdout.close()
    process.stderr.close()
    process.returncode = 0  # it ends with the ranks: nobody waits for it, or is warned that it runs
    return int(said)


def _by_store(store: Any, rank: int, size: int) -> tuple[str, int]:
    """Where rank 0's process answers, which it says in a store and is there."""
    if rank == 0:
        address = _address(store)
        port = serve(size, 0, address)
        store.set(_KEY, f"{address} {port}")
        return address, port
    end = time.monotonic() + PATIENCE
    while True:
        text = store.get(_KEY).decode("utf-8", "replace")
        address, _, port = text.partition(" ")
        if not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise DistributedError(f"init_process_group(store): {_KEY!r} is no host and port: {text[:100]!r}")
        try:  # a file may have been left by a job that was killed, until rank 0 is here
            connected(
                address, int(port), min(end, time.monotonic() + 0.5), "init_process_group", _REMEDY
            ).close()
            return address, int(port)
        except DistributedError:
            if time.monotonic() > end:
                raise


def _address(store: Any) -> str:
    """By which address others reach this process: by a TCPStore, as it reaches the master."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    host = store.host if isinstance(store, TCPStore) else socket.gethostname()
    try:
        family, kind, _, _, where = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(where)  # which sends nothing
            return probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ArgumentValueError(f"init_process_group: {name} is {text!r}, no number") from None
