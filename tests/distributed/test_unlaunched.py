"""Ranks that no launcher started: who shares a machine, and that no shared memory outlives them."""

import os
import signal
import socket
import subprocess
import sys

import pytest
import ranks
from hypothesis import given
from hypothesis import strategies as st

from lamina.distributed.launching import segments
from lamina.distributed.pmi_server import mapping_of


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_ranks_of_one_address_share_a_machine(hosts):
    """Read as MPICH reads it: each block is machines in a row, with so many ranks."""
    read = []
    begin, *blocks = mapping_of(hosts).removesuffix(")").split(",(")
    assert begin == "(vector"
    for block in blocks:
        first, machines, each = map(int, block.removesuffix(")").split(","))
        read += [first + m for m in range(machines) for _ in range(each)]
    assert len(read) == len(hosts)
    assert all((read[i] == read[j]) == (hosts[i] == hosts[j]) for i in range(len(hosts)) for j in range(i))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", ["mpiexec", "alone"])
def test_no_shared_memory_outlives_ranks_that_are_killed(how, tmp_path):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    script = tmp_path / "killed.py"
    script.write_text(
        ranks.BEGIN
        + """
import os, signal
from lamina.distributed.launching import segments
unlink, mine = segments.unlink, set()
segments.unlink = lambda names: (mine.update(names), unlink(names))
dist.init_process_group()
dist.all_reduce(x := lamina.ones(1 << 16))
dist.all_reduce(x, group=dist.new_group([0, 1]))
assert x.tolist() == [4.0] * (1 << 16)
print("mapped", *mine, flush=True)
dist.barrier()
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    if how == "mpiexec":
        printed = ranks.command([str(ranks.MPIEXEC), "-n", "2", sys.executable, str(script)], status=None)
    else:
        told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        both = [
            subprocess.Popen(
                [sys.executable, str(script)], env=ranks.environment(RANK=str(rank), **told),
                stdout=subprocess.PIPE,
            )
            for rank in range(2)
        ]  # fmt: skip
        printed = "".join(process.communicate(timeout=60)[0].decode() for process in both)
        assert [process.returncode for process in both] == [-signal.SIGKILL] * 2
    names = {name for line in printed.splitlines() if line.startswith("mapped") for name in line.split()[1:]}
    assert names, printed
    assert not [name for name in names if os.path.exists(f"{segments.FOLDER}/{name}")]
