"""Random networks: what is traced and compiled must be what eager computes, whole modules and training steps.

`python tests/networks/run.py` runs more of them, for as long as one likes.
"""

from __future__ import annotations

import json
import os
import time

import pytest
import run

MOST_UNCOMPILED = 0.05  # of the networks: what tracing refuses is no fault, but isn't tested either


def seed_of_the_day() -> int:
    """Other networks every day; $LAMINA_NETWORKS_SEED for those of another one."""
    return int(os.environ.get("LAMINA_NETWORKS_SEED", 1_000_000 + int(time.time()) // 86_400 * 10_000))


def hold(requests, outcomes, faults) -> None:
    """Fail with the smallest network of each of the first faults, and what it takes to run it again."""
    print(f"\nseeds from {requests[0]}: {dict(outcomes)}")
    told = "\n\n".join(f"{fault['request']}\n{run.told(fault)}" for fault in faults[:3])
    assert not faults, f"{len(faults)} of {outcomes.total()} networks, from {requests[0]} on:\n{told}"
    assert outcomes["agrees"] > 0.9 * outcomes.total(), f"from {requests[0]} on: {dict(outcomes)}"
    assert outcomes["uncompiled"] <= max(2, MOST_UNCOMPILED * outcomes.total())


def test_twenty_networks_of_the_day():
    requests = [*run.requests(range(start := seed_of_the_day(), start + 20))]
    hold(requests, *run.findings(requests, 1))


# Batches of changing sizes; products in pairs of bfloat16; stacks of convolutions.
@pytest.mark.parametrize(("how", "first"), [("sizes", 50), ("rounds", 60), ("stacks", 70)])
def test_eight_networks_of_the_day(how, first):
    requests = [*run.requests(range(start := seed_of_the_day() + first, start + 8), how)]
    hold(requests, *run.findings(requests, 1))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("how", "first"), [("sizes", 5000), ("rounds", 6000), ("stacks", 7000)])
def test_four_hundred_networks(how, first):
    start = seed_of_the_day() + first
    requests = [*run.requests(range(start, start + 400), how)]
    hold(requests, *run.findings(requests, 1))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_thousand_networks():
    start = seed_of_the_day() + 100
    requests = [*run.requests(range(start, start + 1700))]
    hold(requests, *run.findings(requests, 1))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_three_hundred_networks_in_every_mode_dtype_and_level():
    start = seed_of_the_day() + 2000
    requests = [*run.requests(range(start, start + 300), "all")]
    hold(requests, *run.findings(requests, 1))


def test_descriptions_are_values():
    """A network that went through JSON is the network, and the same each time."""
    from network_drawing import build, draw

    for seed in range(20):
        description = draw(seed)
        assert description == draw(seed)
        again = json.loads(json.dumps(description))
        one, other = (build(d, "float64")[0].state_dict() for d in (description, again))
        assert all((one[name] == other[name]).all() for name in one | other)
