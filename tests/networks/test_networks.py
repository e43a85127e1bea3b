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


def test_eight_networks_of_the_day_on_batches_of_changing_sizes():
    requests = [*run.requests(range(start := seed_of_the_day() + 50, start + 8), "sizes")]
    hold(requests, *run.findings(requests, 1))


def test_eight_networks_of_the_day_with_products_in_pairs_of_bfloat16():
    requests = [*run.requests(range(start := seed_of_the_day() + 60, start + 8), "rounds")]
    hold(requests, *run.findings(requests, 1))


def test_eight_stacks_of_convolutions_of_the_day():
    requests = [*run.requests(range(start := seed_of_the_day() + 70, start + 8), "stacks")]
    hold(requests, *run.findings(requests, 1))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_four_hundred_stacks_of_convolutions():
    start = seed_of_the_day() + 7000
    requests = [*run.requests(range(start, start + 400), "stacks")]
    hold(requests, *run.findings(requests, 1))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_four_hundred_networks_with_products_in_pairs_of_bfloat16():
    start = seed_of_the_day() + 6000
    requests = [*run.requests(range(start, start + 400), "rounds")]
    hold(requests, *run.findings(requests, 1))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_four_hundred_networks_on_batches_of_changing_sizes():
    start = seed_of_the_day() + 5000
    requests = [*run.requests(range(start, start + 400), "sizes")]
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
