"""backend="local": of one machine it is MPI, over several it is refused on every rank."""

import sys

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")


def test_ranks_of_one_machine(tmp_path):
    ranks.run(
        2,
        """
dist.init_process_group("local")
assert dist.get_backend() == "local"
dist.all_reduce(x := lamina.ones(1 << 18))
dist.all_reduce(x, group=dist.new_group([0, 1], backend="local"))
assert x.tolist() == [4.0] * (1 << 18)
""",
        tmp_path,
    )


def test_several_machines_are_refused_with_their_hosts_and_groups_of_one_are_not(tmp_path):
    """As two machines to mpiexec, of which each is this one."""
    version = ranks.command([str(ranks.MPIEXEC), "--version"])
    if "HYDRA" not in version:
        pytest.skip("only MPICH's mpiexec can be told that a host by another name is this one")
    script = tmp_path / "program.py"
    script.write_text(
        ranks.BEGIN
        + """
import socket
def refused(f, said):
    try:
        f()
    except RuntimeError as error:
        assert f"rank 1: host {socket.gethostname()}" in str(error) and said in str(error), error
        print("refused", flush=True)
    else:
        raise AssertionError("not refused")
refused(lambda: dist.init_process_group("local"), "is for ranks of one machine, and these are on several")
dist.init_process_group("mpi")
rank = dist.get_rank()
pair = rank // 2 * 2
if rank in (1, 2):
    refused(lambda: dist.new_group([1, 2], backend="local", use_local_synchronization=True), f"with [{rank}]")
mine = [dist.new_group(two, backend="local") for two in ([0, 1], [2, 3])][rank // 2]
dist.all_reduce(x := lamina.tensor([float(rank)]), group=mine)
assert x.item() == 2 * pair + 1
"""
    )
    words = [str(ranks.MPIEXEC), "-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2", "-n", "4", "-ppn", "2"]
    printed = ranks.command([*words, sys.executable, str(script)])
    assert printed.count("refused") == 6
