"""The programs that start MPI's ranks: which one is there, and what it is called with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...ir.errors import ArgumentValueError, StateError
from ..environment import MPICH, OPEN_MPI, SLURM, Names


class Host(NamedTuple):
    """A machine, and how many ranks run on it.  Written `name:2`."""

    name: str
    ranks: int


@dataclass(frozen=True)
class Launcher:
    """A program that starts ranks: its path, whose it is, what its version is, and what it tells them by."""

    path: str
    kind: str
    version: str
    names: Names

    @property
    def local_size(self) -> str:
        """The variable that says how many ranks a machine has; with Slurm the nearest that does."""
        return self.names.local_world_size[0] if self.names.local_world_size else "SLURM_NTASKS_PER_NODE"

    def command(self, ranks: int, hosts: Sequence[Host] = (), nodes: int = 1) -> list[str]:
        """The words before the rank's own: so many ranks in all, on these hosts, in their order.

        nodes: as many machines of a batch system's, which knows their names.  Raises ArgumentValueError.
        """
        counts = {host.ranks for host in hosts} or {ranks // nodes}
        return [self.path, *{
            "MPICH": self._mpich, "Intel MPI": self._intel, "Open MPI": self._open_mpi, "Slurm": self._slurm,
        }[self.kind](ranks, hosts, nodes, counts)]  # fmt: skip

    def _mpich(self, ranks: int, hosts: Sequence[Host], nodes: int, counts: set[int]) -> list[str]:
        words = ["-n", str(ranks)]
        if hosts:
            words += ["-hosts", ",".join(f"{host.name}:{host.ranks}" for host in hosts)]
        return words + (["-ppn", str(ranks // nodes)] if nodes > 1 else [])

    def _intel(self, ranks: int, hosts: Sequence[Host], nodes: int, counts: set[int]) -> list[str]:
        per_host = self._same_on_each(counts)
        words = ["-n", str(ranks)]
        if hosts:
            words += ["-hosts", ",".join(host.name for host in hosts)]
        return words + (["-ppn", str(per_host)] if hosts or nodes > 1 else [])

    def _open_mpi(self, ranks: int, hosts: Sequence[Host], nodes: int, counts: set[int]) -> list[str]:
        # Ranks may be more than cores, and threads of theirs go where the system puts them.
        words = ["-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:  # as in most containers; it refuses otherwise
            words.append("--allow-run-as-root")
        if hosts:
            words += ["--host", ",".join(f"{host.name}:{host.ranks}" for host in hosts)]
        return words + (["--map-by", f"ppr:{ranks // nodes}:node"] if nodes > 1 else [])

    def _slurm(self, ranks: int, hosts: Sequence[Host], nodes: int, counts: set[int]) -> list[str]:
        per_host = self._same_on_each(counts)
        words = [f"--ntasks={ranks}", f"--ntasks-per-node={per_host}", f"--nodes={len(hosts) or nodes}"]
        if hosts:
            words.append(f"--nodelist={','.join(host.name for host in hosts)}")
        return [*words, "--kill-on-bad-exit=0", "--wait=0", "--cpu-bind=none"]

    def _same_on_each(self, counts: set[int]) -> int:
        if len(counts) > 1:
            raise ArgumentValueError(
                f"{self.kind} takes the same number of ranks on each host, not {sorted(counts)}",
                f"launcher: {self.path}",
                "write the same number behind each host, or use the mpiexec of MPICH or Open MPI",
            )
        return counts.pop()


# What `--version` says, and what that program is; the first that fits.
_KINDS = (
    (r"Open ?MPI|OpenRTE|PRRTE", "Open MPI", OPEN_MPI),
    (r"Intel\(R\) MPI", "Intel MPI", MPICH),
    (r"HYDRA|MPICH", "MPICH", MPICH),
    (r"^slurm", "Slurm", SLURM),
)
CHOSEN = "LAMINA_MPIEXEC"
NONE = (
    "mpiexec is not here: it starts the ranks",
    "pip install 'lamina[mpi]' installs one; where MPI is installed, put its mpiexec on PATH",
)


def find(path: str | None = None) -> Launcher:
    """The launcher at a path, or at that of LAMINA_MPIEXEC; else one that is found.

    Looked for are the mpiexec beside this Python, the one on PATH, and within an allocation Slurm's srun.
    Raises StateError where there is none, or one that is not known.
    """
    path = path or os.environ.get(CHOSEN)
    candidates = [path] if path else _candidates()
    for candidate in candidates:
        if found := shutil.which(candidate):
            return _identified(os.path.abspath(found))
    if path:
        raise StateError(f"no program to start ranks with at {path}")
    raise StateError(*NONE)


def is_there() -> bool:
    """Whether `find` would find one, without asking what it is."""
    chosen = os.environ.get(CHOSEN)
    return any(shutil.which(candidate) for candidate in ([chosen] if chosen else _candidates()))


def _candidates() -> list[str]:
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    return [beside, "mpiexec", *(["srun"] if "SLURM_JOB_ID" in os.environ else [])]


def _identified(path: str) -> Launcher:
    try:
        done = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=30,
        )  # fmt: skip
        text = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StateError(f"{path} --version failed: {error}") from error
    for pattern, kind, names in _KINDS:
        if re.search(pattern, text, re.MULTILINE):
            version = re.search(r"\d+(\.\d+)+\w*", text)
            return Launcher(path, kind, version[0] if version else "", names)
    first = next(iter(text.strip().splitlines()), "nothing")
    raise StateError(
        f"{path} is no launcher of ranks that is known: MPICH's, Open MPI's, Intel MPI's, Slurm's",
        f"its --version says: {first}",
        f"name another one: --mpiexec PATH, or {CHOSEN}=PATH",
    )


def hosts_of(text: str) -> list[Host]:
    """Hosts as they are written on a command line, `a:2,b:2`; one rank where no number stands.

    Raises ArgumentValueError.
    """
    return [_host(entry) for entry in text.split(",")]


def hosts_in(text: str) -> list[Host]:
    """Hosts of a file: one a line, as `a`, `a:2` or `a slots=2`; `#` begins a comment.

    Raises ArgumentValueError.
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    found = [_host(re.sub(r"\s+slots\s*=\s*", ":", line)) for line in lines if line]
    if not found:
        raise ArgumentValueError("a file of hosts names at least one")
    return found


def _host(entry: str) -> Host:
    found = re.fullmatch(r"([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,6}))?", entry.strip())
    if found is None or found[2] is not None and int(found[2]) == 0:
        raise ArgumentValueError(f"a host is written name or name:ranks, not {entry!r}")
    return Host(found[1], int(found[2] or 1))
