"""What becomes of processes that end or hang while they run a network, and how a finding is cut."""

from __future__ import annotations

import pytest
import run
from network_drawing import draw
from network_pool import Runner, answers
from network_shrinking import shrunk


def outcome_with(wrong: str, limit: float) -> dict:
    """What is said of a network whose process does `wrong` when it forgets what was compiled."""
    runner = Runner([("jit.backend:forget", "_kept.clear()", wrong)], limit)
    try:
        return runner.outcome({"draw": 0})
    finally:
        runner.close()


def test_a_process_that_ends_is_a_finding():
    answer = outcome_with('__import__("os").abort()', 60)
    assert answer["outcome"] == "dies" and answer["detail"].startswith("SIGABRT")
    assert "in verdict" in answer["detail"]  # where it was


@pytest.mark.slow
def test_a_process_that_hangs_is_a_finding():
    answer = outcome_with('__import__("time").sleep(1e9)', 10)
    assert answer["outcome"] == "hangs" and "in verdict" in answer["detail"]


def test_the_others_go_on_when_a_process_ends():
    plant = [("jit.backend:forget", "_kept.clear()", '__import__("os").abort()')]
    requests = [{"draw": 0}, {"draw": 1, "plant": plant}, {"draw": 2}]
    found = {request["draw"]: answer["outcome"] for request, answer in answers(requests, 1)}
    assert found == {0: "agrees", 1: "dies", 2: "agrees"}


def test_a_network_is_asked_for_by_its_seed_or_in_full():
    assert run.described({"draw": 3, "change": {"mode": "inference"}}) == draw(3) | {"mode": "inference"}
    assert run.described(draw(3)) == draw(3)


def test_shrinking_keeps_what_the_finding_needs():
    """With a finding that is any convolution before a shuffle of channels."""

    def kinds(blocks):
        return [k for kind, params in blocks for k in (kind, *kinds(sum(params.get("bodies", ()), [])))]

    def outcome(description):
        found = kinds(description["blocks"])
        fault = "shuffle" in found and "conv" in found[: found.index("shuffle")]
        return {"outcome": "differs" if fault else "agrees", "detail": ""}

    wide = next(d for seed in range(10_000) if outcome(d := draw(seed))["outcome"] == "differs")
    small = shrunk(wide, "wrong", outcome)
    assert [kind for kind, _ in small["blocks"]] == ["conv", "shuffle"]
    assert small["mode"] == "inference" and set(small["input"]) == {1}
