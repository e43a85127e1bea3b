"""How processes that no MPI launcher started find each other: rank 0 keeps a table of their addresses.

MPI processes ask what started them who the others are, in MPICH's wire protocol PMI-1: lines of words, of
which a handful matter (put a value, get one, wait for all).  Where RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT say what mpiexec would, as torchrun, `multiprocessing` or a scheduler leave them, rank 0 starts a
small process that answers in its place (`pmi_server.py`).  Nothing but addresses goes through it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from ..ir.errors import ArgumentValueError, DistributedError

# What launchers of MPI leave in the environment of a rank.
_LAUNCHED = ("PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE")
IS_SERVED = "LAMINA_MEETS_BY_ITSELF"  # in the environment of processes that no launcher watches
PATIENCE = 300.0  # seconds that a rank waits for rank 0 to be there


def is_launched() -> bool:
    """Whether an MPI launcher started this process."""
    return any(name in os.environ for name in _LAUNCHED)


def prepare(init_method: str | None, rank: int, world_size: int) -> None:
    """See to it that MPI finds the other ranks when it is loaded.

    Raises ArgumentValueError where it is half said how; DistributedError where rank 0 can't be reached.
    """
    if is_launched() or "mpi4py.MPI" in sys.modules:
        return
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
        return  # a job of one
    if number is None or size is None:
        missing = "rank (RANK)" if number is None else "world_size (WORLD_SIZE)"
        raise ArgumentValueError(f"init_process_group: {missing} is not said", "or start by mpiexec")
    if not 0 <= number < size:
        raise ArgumentValueError(f"init_process_group: rank {number} of {size} ranks")
    if size == 1:
        return
    if parts.scheme == "env":
        address, port = os.environ.get("MASTER_ADDR"), _number(os.environ.get("MASTER_PORT"), "MASTER_PORT")
        if address is None or port is None:
            raise ArgumentValueError(
                "init_process_group: MASTER_ADDR and MASTER_PORT say where rank 0 is, and one is not set"
            )
    elif parts.scheme == "tcp":
        address, port = parts.hostname or "", parts.port
        if not address or port is None:
            raise ArgumentValueError(f"init_process_group(init_method={told!r}): tcp://host:port")
    elif parts.scheme == "file":
        address, port = _by_file(Path(parts.path), number, size)
    else:
        raise ArgumentValueError(f"init_process_group(init_method={told!r}): env://, tcp:// or file://")
    if number == 0 and parts.scheme != "file":
        serve(size, port, address)
    _reach(address, port)
    place = f"{socket.gethostbyname(address)}:{port}"
    os.environ.update({"PMI_PORT": place, "PMI_ID": str(number), IS_SERVED: "1"})


def export(rank: int, size: int, local_rank: int, local_size: int) -> None:
    """Leave in the environment what torchrun would, for those who ask there."""
    said = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": local_size}
    for name, value in said.items():
        os.environ.setdefault(name, str(value))


def serve(size: int, port: int, address: str = "127.0.0.1") -> int:
    """Start the process that answers for `size` ranks.  Returns its port, which it chooses if that is 0."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    mapping = f"(vector,(0,{max(1, -(-size // local))},{local}))"
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


def _reach(address: str, port: int) -> None:
    """Wait until somebody listens there.  Raises DistributedError."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise DistributedError(
                    f"init_process_group: nobody listens at {address}:{port} after {PATIENCE:.0f} s",
                    str(error),
                    "rank 0 does: is it started, and MASTER_ADDR its host?",
                ) from None
            time.sleep(0.05)


def _by_file(path: Path, rank: int, size: int) -> tuple[str, int]:
    """Where rank 0 listens, by a file that all ranks see."""
    if rank == 0:
        port = serve(size, 0, "")
        host = socket.gethostname()
        try:
            socket.gethostbyname(host)
        except OSError:
            host = "127.0.0.1"
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "w") as file:
            file.write(f"{host} {port}\n")
        os.replace(name, path)
        return host, port
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            words = path.read_text().split()
        except OSError:
            words = []
        if len(words) == 2 and words[1].isdigit():
            return words[0], int(words[1])
        time.sleep(0.05)
    raise DistributedError(f"init_process_group: rank 0 wrote no {path} for {PATIENCE:.0f} s")


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ArgumentValueError(f"init_process_group: {name} is {text!r}, no number") from None
