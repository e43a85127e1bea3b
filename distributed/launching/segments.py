"""The pieces of shared memory that an MPI leaves in /dev/shm when its ranks are killed.

MPICH names them mpich_shm_…, UCX ucx_shm_posix_…, Open MPI sm_segment.… or vader_segment.…; all unlink them
when the ranks end as they should.  Only the standard library is used here: a watcher does not load Lamina.
"""

from __future__ import annotations

import os
import re

FOLDER = "/dev/shm"
NAMES = re.compile(r"(mpich_shm_|ucx_shm_posix_|sm_segment\.|vader_segment\.|Intel_MPI_)[\w.+-]+$")


def mapped(pid: int) -> set[str]:
    """The names of those that a process has mapped; empty where it is gone."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return set()
    start = f"{FOLDER}/".encode()
    paths = {line[line.index(start) + len(start) :] for line in lines if start in line}
    return {name for path in paths if NAMES.match(name := os.fsdecode(path))}


def orphans(since: float) -> set[str]:
    """Those of this user that were made after a time and that no process has mapped any more."""
    try:
        entries = [entry for entry in os.scandir(FOLDER) if NAMES.match(entry.name)]
    except OSError:
        return set()
    made = {e.name for e in entries if _is_ours(e, since)}
    for pid in os.listdir("/proc") if made else ():
        if pid.isdigit():
            made -= mapped(int(pid))
    return made


def _is_ours(entry: os.DirEntry, since: float) -> bool:
    try:
        facts = entry.stat()
    except OSError:
        return False
    return facts.st_uid == os.geteuid() and facts.st_ctime >= since


def unlink(names: set[str]) -> None:
    """Take them away; another watcher of the machine may have been quicker."""
    for name in names:
        try:
            os.unlink(f"{FOLDER}/{name}")
        except OSError:
            pass
