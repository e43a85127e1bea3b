"""The driver of hostile inputs sees every kind of fault, wherever in a batch, and goes on behind it."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time

import driver
import pytest
from driver import Kind, Totals, Wrong


class Refused(Exception):
    pass


def behave(number: int) -> str:
    """What a reader may do, by the input's number."""
    if number % 100 == 7:
        raise Refused
    if number == 31:
        raise Wrong("2 is not 3")
    if number == 32:
        raise KeyError("missing")
    if number == 43:
        ctypes.string_at(1)
    if number == 54:
        while True:
            pass
    if number == 65:
        bytearray(1 << 36)  # more than a child can free of what thousands of tests have left
    if number == 78:
        os.abort()
    return "same"


@pytest.fixture
def by_number(monkeypatch):
    monkeypatch.setattr(driver, "rng", lambda name, seed, index: index)
    return Kind(lambda index: index, behave, (Refused,), batch=25, memory=1 << 28, seconds=0.2)


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_fault_is_counted_once_and_named(by_number, jobs, capfd):
    totals = driver.run("planted", by_number, 110, jobs=jobs)
    assert totals.next == 110 and totals.failed == 6
    assert totals.verdicts == {
        "same": 102,
        "refused Refused": 2,
        "wrong": 1,
        "internal": 2,
        "crash": 2,
        "hang": 1,
    }
    faults = {index: (word, text.split(" ")[0]) for index, word, text in totals.faults}
    assert faults == {
        31: ("wrong", "2"), 32: ("internal", "KeyError:"), 43: ("crash", "SIGSEGV"), 54: ("hang", "SIGPROF"),
        65: ("internal", "MemoryError:"), 78: ("crash", "SIGABRT"),
    }  # fmt: skip


def test_a_reader_that_waits_for_ever_is_a_hang(by_number, monkeypatch):
    monkeypatch.setattr(driver, "STILL", 0.5)
    waiting = Kind(by_number.make, lambda index: time.sleep(index == 3 and 600) or "same", (), batch=5)
    totals = driver.run("waiting", waiting, 10)
    assert totals.faults == [[3, "hang", signal.SIGKILL.name]] and totals.verdicts == {"same": 9, "hang": 1}


def test_a_run_is_gone_on_with(by_number):
    whole = driver.run("planted", by_number, 60)
    halves = driver.run("planted", by_number, 60, totals=driver.run("planted", by_number, 40))
    assert (halves.next, halves.verdicts, halves.faults) == (whole.next, whole.verdicts, whole.faults)
    assert driver.run("planted", by_number, 60, totals=halves) is halves and halves.failed == 4


@pytest.mark.sampled(4)
def test_a_record_is_gone_on_with_by_the_command(tmp_path):
    record = tmp_path / "record.json"
    command = [
        sys.executable,
        str(driver.HERE / "run_hostile.py"),
        "--kind",
        "cache",
        "--record",
        str(record),
    ]
    for count in (30, 50):
        done = subprocess.run([*command, "--count", str(count)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        kept = json.loads(record.read_text())["cache seed 0"]
        assert kept["next"] == count == sum(kept["verdicts"].values())
    assert [*tmp_path.iterdir()] == [record]


def test_inputs_depend_on_their_number_alone():
    def draws(seed: int, index: int) -> list[float]:
        rng = driver.rng("kind", seed, index)
        return [rng.random(), rng.random()]

    assert draws(0, 5) == draws(0, 5) != draws(0, 6) and draws(1, 5) != draws(0, 5)


def test_a_fault_of_the_driver_itself_is_no_verdict():
    def make(rng):
        raise ValueError("no input")

    with pytest.raises(RuntimeError, match="the driver failed at input 0"):
        driver.run("broken", Kind(make, str, ()), 1, totals=Totals())
