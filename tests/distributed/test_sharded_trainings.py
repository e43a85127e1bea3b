"""Random fully sharded trainings are what they are in one process."""

import sys
from pathlib import Path

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
SCRIPT = str(Path(__file__).with_name("sharded_trainings.py"))


def trainings(n, first, count, planted="", timeout=110):
    words = [sys.executable, SCRIPT] if not planted else [sys.executable, "-c", planted]
    command = [str(ranks.MPIEXEC), "-n", str(n), *words, str(first), str(count)]
    return ranks.command(command, timeout, status=None if planted else 0)


@pytest.mark.parametrize("n", [2, 4])
def test_sharded_trainings_agree_with_one_process(n):
    assert trainings(n, 0, 10).count("10 trainings agree") == n


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_sharded_many_trainings_agree(n):
    assert trainings(n, 1000, 100, timeout=580).count("100 trainings agree") == n


BEGIN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import sharded_trainings
from lamina.distributed.fsdp import gathered_memory, parameter_group, sharding
"""
MAIN = "\nsharded_trainings.main(*map(int, sys.argv[1:]))"
PLANTED = {
    "given_back_too_early": "parameter_group.ParameterGroup.has_frozen = property(lambda self: False)",
    "values_of_the_step_before": """
parameter_group.ParameterGroup.marks = lambda self: []
""",
    "a_part_that_is_not_sent": """
spread = parameter_group.Lane.spread
def broken(self, grads, dtype):
    flat = spread(self, grads, dtype)
    flat[-1] = 0
    return flat
parameter_group.Lane.spread = broken
""",
}


@pytest.mark.parametrize("bug", PLANTED)
def test_sharded_trainings_see_a_planted_bug(bug):
    printed = trainings(2, 0, 30, BEGIN + PLANTED[bug] + MAIN)
    assert "trainings agree" not in printed and "Error" in printed, printed
