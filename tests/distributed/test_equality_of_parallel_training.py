"""Every parallel way of training, and ways together, give one process's losses, parameters and buffers.

Fifty steps on 2, 4 and 8 ranks are slow, half an hour on two cores that others use too.
"""

import sys
from pathlib import Path

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
SCRIPT = str(Path(__file__).with_name("parallel_trainings.py"))
WAYS = {  # of "group" and "batch", ResNets, the former has GroupNorm, and the latter SyncBatchNorm
    "data": "ddp:gpt ddp:batch ddp:group ddp_traced:gpt ddp_traced:batch ddp_traced:group",
    "sharded": "fsdp:gpt fsdp:batch fsdp:group",
    "tensors": "tensor:gpt sequence:gpt channels:group",
    "pipelines_of_a_gpt": "gpipe:gpt 1f1b:gpt interleaved:gpt looped:gpt",
    "pipelines_of_a_resnet": "gpipe:group 1f1b:group interleaved:group looped:group",
}
TOGETHER = {
    "hybrid": "hsdp:gpt hsdp:batch fsdp_tensor:gpt",
    "pipelines": "pipe_ddp:gpt interleaved_ddp:gpt pipe_ddp:group pipe_fsdp:gpt pipe_fsdp:group",
}


def trained(n, steps, ways, timeout=110, **more):
    command = [str(ranks.MPIEXEC), "-n", str(n), sys.executable, SCRIPT, str(steps), *ways.split()]
    printed = ranks.command(command, timeout, **more)
    print(printed)
    return printed


def test_first_steps_are_those_of_one_process():
    ways = "ddp_traced:group fsdp:batch sequence:gpt interleaved:gpt 1f1b:group"
    assert trained(2, 3, ways).count("all are equal") == 2


def test_first_steps_of_ways_together_are_those_of_one_process():
    assert trained(4, 3, "fsdp_tensor:gpt pipe_ddp:group").count("all are equal") == 4


def test_each_comparison_sees_a_gradient_that_is_off_by_a_hundredth():
    """On one rank, of one parameter, in one step."""
    ways = "ddp:batch fsdp:gpt tensor:gpt sequence:gpt channels:group looped:gpt gpipe:group"
    assert trained(2, 4, ways, LAMINA_TEST_PLANTED="1").count("all are seen") == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("ways", WAYS)
def test_fifty_steps_are_those_of_one_process(ways, n):
    assert trained(n, 50, WAYS[ways], 880).count("all are equal") == n


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("n", [4, 8])
@pytest.mark.parametrize("ways", TOGETHER)
def test_fifty_steps_of_ways_together_are_those_of_one_process(ways, n):
    assert trained(n, 50, TOGETHER[ways], 880).count("all are equal") == n


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_steps_on_a_cube_of_data_pipelines_and_tensors():
    assert trained(8, 50, "cube:gpt", 880).count("all are equal") == 8
