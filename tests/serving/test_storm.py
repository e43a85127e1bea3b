"""A small storm of each kind; `python tests/serving/storm.py` makes large ones."""

import pytest
import storm


@pytest.mark.slow
def test_storm_of_requests_with_workers_killed(capsys):
    assert storm.main(["--requests", "4000", "--clients", "16", "--kill", "0.7"]) == 0, (
        capsys.readouterr().out
    )


@pytest.mark.slow
def test_storm_of_strangers(capsys):
    assert storm.main(["--hostile", "3000", "--clients", "16"]) == 0, capsys.readouterr().out


def test_a_wrong_answer_and_a_lost_request_would_be_seen():
    report = storm.Report()
    report.counts["good, answered 200"] += 1
    report.fault("a wrong answer")
    assert report.told() == "good, answered 200: 1\nFAULT a wrong answer"
