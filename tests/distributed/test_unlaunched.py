"""Ranks that no launcher started: who shares a machine, and that no shared memory outlives them."""

import os
import signal
import socket
import subprocess
import sys
import time

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


STARTS = """
import sys
from lamina.distributed import rendezvous
print(rendezvous.serve(2, 0), flush=True)
sys.stdin.read()
"""


def asked(rank, line):
    rank.sendall(line.encode() + b"\n")
    rank.settimeout(10)
    return rank.makefile("rb").readline().decode()


@pytest.fixture
def two_ranks():
    """What started a server, which is ended by `close`, and the sockets of two ranks that have joined."""
    first = subprocess.Popen([sys.executable, "-c", STARTS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    port = int(first.stdout.readline())
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    for number, one in enumerate(sockets):
        assert "initack rc=0" in asked(one, f"cmd=initack pmiid={number}")
    yield first, sockets
    [one.close() for one in sockets]
    first.stdin.close()
    first.wait(20)
    first.stdout.close()


def gone(first):
    """End the process that started the server, and give the server time to see it."""
    first.stdin.close()
    first.wait(20)
    time.sleep(2.5)


def last_line(rank, line):
    """What a rank hears last after a question; empty where nobody answers any more."""
    try:
        rank.sendall(line.encode() + b"\n")
        rank.shutdown(socket.SHUT_WR)
        rank.settimeout(10)
        return rank.makefile("rb").read().decode().splitlines()[-1:]
    except OSError:
        return []


def test_who_leaves_after_the_first_rank_is_answered(two_ranks):
    """MPICH, which asks as the process ends, crashes where it isn't."""
    first, sockets = two_ranks
    assert last_line(sockets[0], "cmd=finalize") == ["cmd=finalize_ack rc=0"]
    gone(first)
    assert last_line(sockets[1], "cmd=finalize") == ["cmd=finalize_ack rc=0"]


def test_who_waits_for_a_first_rank_that_is_gone_is_let_go(two_ranks):
    first, sockets = two_ranks
    sockets[1].sendall(b"cmd=barrier_in\n")
    sockets[0].close()
    gone(first)
    assert last_line(sockets[1], "cmd=finalize") != ["cmd=finalize_ack rc=0"]


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
