"""Planted bugs: random networks must come upon each of them, and upon nothing where none is planted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from network_pool import Runner
from network_shrinking import FAULTS

sys.path.insert(0, str(Path(__file__).parent.parent / "jit"))

from planted_bugs import BUGS

# Layouts, their kernels, and what random graphs without convolutions don't meet: (where, right, wrong), as
# tests/jit/planted.py has them.  The first is a fault that was: ShuffleNet wrote beside its arrays.
PLANTED = {
    "an axis over groups of channels is cut into lanes": [
        (
            "passes.kernels.blocking:_closure",
            "_within_blocks(index[CHANNEL], lanes)",
            "names_in(index[CHANNEL])",
        ),
        (
            "passes.kernels.blocking:_blocked_index",
            "(name, c) for name, c in part.terms if c % lanes",
            '(name, 1) for name, c in part.terms if name.endswith("i")',
        ),
    ],
    "blocks are read from the wrong one": [
        ("passes.kernels.blocking:_blocked_index", "rest.constant // lanes", "0"),
    ],
    "a place is taken for another remainder's": [
        (
            "passes.kernels.residues:_of_remainders",
            "terms[place] = outer * step + Affine((), remainder)",
            "terms[place] = outer * step",
        ),
    ],
    "the last tap inside an image is left out": [
        (
            "passes.llvm.reductions:Reductions.reach",
            "self.minus(size - 1 + factor, rest)",
            "self.minus(size - 1, rest)",
        ),
    ],
    "taps of a packed weight are turned": [
        (
            "passes.programs.pack_convolution:packed",
            'read("weight", access.index, access.other)',
            'read("weight", (*access.index[:-2], access.index[-1], access.index[-2]), 0)',
        ),
    ],
}
ELSEWHERE = (  # in tests/jit/planted_bugs.py
    "blocks in another order", "the rest of a block", "images laid out wrongly",
    "a packed factor from another column", "the mean is not scaled", "missing bias of channels",
    "padding of zeros for -inf", "stale prologue", "lifetimes end too soon", "a wrong guard",
)  # fmt: skip
PLANTED |= {bug.name: [(bug.where, bug.right, bug.wrong), *bug.also] for bug in BUGS if bug.name in ELSEWHERE}
MOST = 1200  # networks; the rarest was found after 830


def networks_until_a_fault(plant: list) -> tuple[int | None, str]:
    """How many it takes to find one, and what it is."""
    runner = Runner(plant)
    try:
        for seed in range(MOST):
            answer = runner.outcome({"draw": seed})
            if answer["outcome"] in FAULTS:
                return seed + 1, f"{answer['outcome']}: {answer['detail'][:200]}"
        return None, ""
    finally:
        runner.close()


def test_networks_find_the_order_of_blocks():
    """The first of them; the others take longer."""
    count, _ = networks_until_a_fault(PLANTED["blocks in another order"])
    assert count is not None and count < 10


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("bug", PLANTED)
def test_networks_find(bug):
    count, what = networks_until_a_fault(PLANTED[bug])
    print(f"\n{bug}: after {count} networks, {what}")
    assert count is not None
