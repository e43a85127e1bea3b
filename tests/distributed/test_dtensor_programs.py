"""Random programs of ops on DTensors are what they are on whole tensors, gradients too."""

import sys
from pathlib import Path

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
SCRIPT = str(Path(__file__).with_name("sharded_programs.py"))


def programs(n, shape, first, count, planted="", *more, timeout=110):
    words = [sys.executable, SCRIPT] if not planted else [sys.executable, "-c", planted]
    command = [str(ranks.MPIEXEC), "-n", str(n), *words, shape, str(first), str(count), *more]
    return ranks.command(command, timeout, status=None if planted else 0)


@pytest.mark.parametrize(("n", "shape"), [(2, "2"), (4, "4"), (4, "2,2"), (3, "3")])
def test_dtensor_programs_agree_with_whole_tensors(n, shape):
    assert programs(n, shape, 0, 15).count("15 programs agree") == n


@pytest.mark.parametrize(("n", "shape"), [(2, "2"), (4, "2,2")])
def test_traced_dtensor_programs_agree_with_eager_ones(n, shape):
    assert programs(n, shape, 200, 3, "", "traced").count("3 programs agree") == n


@pytest.mark.slow
@pytest.mark.parametrize(("n", "shape"), [(2, "2"), (4, "2,2"), (3, "3")])
def test_many_traced_dtensor_programs_agree(n, shape):
    assert programs(n, shape, 2000, 25, "", "traced").count("25 programs agree") == n


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("n", "shape"), [(2, "2"), (4, "4"), (4, "2,2"), (3, "3")])
def test_dtensor_many_programs_agree(n, shape):
    assert programs(n, shape, 1000, 600, timeout=580).count("600 programs agree") == n


BEGIN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import sharded_programs as programs
from lamina.distributed.tensor import strategies, redistribution, crossings, dtensor
from lamina.distributed.tensor.strategies import FAMILIES, Family, P, R
"""
MAIN = "\nprograms.main(tuple(map(int, sys.argv[1].split(','))), *map(int, sys.argv[2:]))"
PLANTED = {
    "softmax_along_a_cut_dim": """
from lamina.distributed.tensor.placement_types import Shard
FAMILIES["softmax"] = Family(lambda c: [((Shard(d),), (Shard(d),)) for d in range(c.outs[0].ndim)])
programs.NAMES[:] = ["softmax", "redistribute"]
""",
    "a_maximum_of_partial_sums": """
FAMILIES["maximum"] = FAMILIES["add"]
programs.NAMES[:] = ["maximum", "partial"]
""",
    "a_gradient_that_is_not_added_up": "dtensor.groups_of = lambda *_: ()",
    "padding_that_stays": """
kept = redistribution.narrowed
redistribution.narrowed = lambda x, dim, begin, length: x if begin == 0 else kept(x, dim, begin, length)
""",
    "dropout_by_the_part": """
from lamina.ir.op import REGISTRY
from lamina.runtime.dispatch import run_general
strategies.INSTEAD["random_dropout"] = lambda x, state, p: x._with(
    run_general(REGISTRY["random_dropout"], (x._stored, state), {"p": p}))
programs.NAMES[:] = ["dropout", "redistribute"]
""",
}


@pytest.mark.parametrize("bug", PLANTED)
def test_dtensor_programs_see_a_planted_bug(bug):
    printed = programs(2, "2", 0, 20, BEGIN + PLANTED[bug] + MAIN)
    assert "programs agree" not in printed and "Error" in printed, printed
