"""Which rank a process is: every launcher's variables, what they leave out, and what can't be."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.distributed.environment import FAMILIES, Place, exported, place, without_launchers
from lamina.ir.errors import ArgumentValueError


@st.composite
def places(draw):
    """Any place that there can be."""
    local_size = draw(st.integers(1, 9))
    size = draw(st.integers(local_size, 99))
    nodes = draw(st.integers(1, 9))
    return Place(
        rank=draw(st.integers(0, size - 1)),
        world_size=size,
        local_rank=draw(st.integers(0, local_size - 1)),
        local_world_size=local_size,
        node_rank=draw(st.integers(0, nodes - 1)),
        nodes=nodes,
        master_addr=draw(st.sampled_from([None, "127.0.0.1", "node-0.cluster", "::1"])),
        master_port=draw(st.none() | st.integers(1, 65535)),
    )


@given(places())
def test_what_is_exported_is_read_again(there):
    assert place(exported(there)) == there


@given(places())
def test_every_launcher_says_the_same(there):
    """What one launcher says, the others do in their words: the same ranks and sizes come out."""
    facts = ("world_size", "local_rank", "local_world_size", "node_rank", "nodes")
    values = {fact: getattr(there, fact) for fact in facts}
    for names in FAMILIES:
        environ = {names.rank: str(there.rank), "SLURM_STEP_NUM_TASKS": str(there.world_size)}
        environ |= {getattr(names, f)[0]: str(v) for f, v in values.items() if getattr(names, f)}
        if names.launcher == "PMIx":
            environ["WORLD_SIZE"], environ["RANK"] = str(there.world_size), str(there.rank)
        found = place(environ)
        assert (found.rank, found.world_size) == (there.rank, there.world_size)
        if names.local_rank and names.local_world_size:
            assert (found.local_rank, found.local_world_size) == (there.local_rank, there.local_world_size)
        if names.nodes:
            assert (found.node_rank, found.nodes) == (there.node_rank, there.nodes)


@given(places(), st.text("0123456789abc -+.", max_size=6))
def test_any_text_is_a_number_or_refused(there, text):
    """No variable's text gets through but as the number that it spells."""
    environ = exported(there) | {"LOCAL_RANK": text}
    try:
        found = place(environ)
    except ArgumentValueError as error:
        assert "LOCAL_RANK" in str(error) or "local_rank" in str(error)
    else:
        assert found.local_rank == int(text)


def test_nobody_said_anything():
    assert place({}) is None
    assert place({"MASTER_ADDR": "127.0.0.1", "HOME": "/root"}) is None


def test_mpich():
    environ = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
    found = place(environ)
    assert found == Place(5, 8, 1, 4, node_rank=1, nodes=2)
    assert found.told_by == "MPICH"


def test_open_mpi():
    environ = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "3"}
    environ |= {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    environ |= {"OMPI_COMM_WORLD_NODE_RANK": "1"}  # the rank on the node once more, not the node's
    assert place(environ) == Place(3, 4, 1, 2, node_rank=1, nodes=2)


def test_slurm_counts_tasks_of_each_node():
    environ = {"SLURM_PROCID": "6", "SLURM_NTASKS": "7", "SLURM_LOCALID": "0", "SLURM_NODEID": "3"}
    environ |= {"SLURM_NNODES": "4", "SLURM_TASKS_PER_NODE": "2(x3),1"}
    assert place(environ) == Place(6, 7, 0, 1, node_rank=3, nodes=4)


def test_slurm_with_pmix_gives_what_pmix_leaves_out():
    environ = {"PMIX_RANK": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}
    environ |= {"SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "0", "SLURM_NNODES": "2"}
    assert place(environ) == Place(1, 4, 1, 2, node_rank=0, nodes=2)


def test_slurm_that_only_started_mpiexec_is_not_asked():
    environ = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "PMI_RANK": "2", "PMI_SIZE": "4"}
    assert place(environ) == Place(2, 4, 2, 4)


def test_slurm_batch_script_is_no_rank():
    environ = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}
    assert place(environ) is None
    assert place(environ | {"SLURM_STEP_ID": "0"}).world_size == 8


def refusal(environ):
    with pytest.raises(ArgumentValueError) as refused:
        place(environ)
    return str(refused.value)


def test_refusals_name_variables_and_the_way_out():
    assert refusal({"RANK": "one", "WORLD_SIZE": "2"}) == "RANK must be a whole number, not 'one'"
    assert refusal({"RANK": "2", "WORLD_SIZE": "2"}) == (
        "rank counts from 0 and is below world_size: rank 2, world_size 2\n  RANK=2\n  WORLD_SIZE=2"
    )
    assert refusal({"PMIX_RANK": "0"}) == (
        "PMIX_RANK is set, but not how many ranks there are\n  PMIX_RANK=0\n  set WORLD_SIZE too"
    )
    assert refusal({"WORLD_SIZE": "2"}) == (
        "WORLD_SIZE is set, but RANK is not\n  WORLD_SIZE=2\n"
        "  set RANK too, or unset WORLD_SIZE for a process by itself"
    )
    assert refusal({"RANK": "0", "WORLD_SIZE": "4", "PMI_RANK": "0", "PMI_SIZE": "2"}) == (
        "torchrun and MPICH disagree about the world size\n  WORLD_SIZE=4\n  PMI_SIZE=2\n"
        "  start the ranks by one of the two: python -m lamina launch -n 4 script.py"
    )
    assert refusal({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "3"}).startswith(
        "a machine has no more ranks than there are: local_world_size 3 > world_size 2"
    )
    assert refusal({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "x2"}) == (
        "SLURM_TASKS_PER_NODE must be counts like 2(x3),1, not 'x2'"
    )


def test_a_launcher_in_a_rank_hands_nothing_of_the_rank_on():
    kept = {"PATH": "/bin", "OMP_NUM_THREADS": "2", "OMPI_MCA_btl": "self", "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    gone = exported(Place(0, 2, 0, 2, master_addr="a", master_port=1))
    gone |= {"PMI_FD": "7", "PMIX_NAMESPACE": "x", "HYDI_CONTROL_FD": "7", "TORCHELASTIC_RUN_ID": "1"}
    gone |= {"MPI_LOCALRANKID": "0", "OMPI_COMM_WORLD_RANK": "0"}
    assert without_launchers(kept | gone) == kept


def test_reading_it_loads_no_mpi():
    text = "import lamina.distributed.environment, sys; sys.exit('mpi4py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text]).returncode == 0
