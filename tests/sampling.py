"""Which tests are run on a day: a part of those that are generated, and of those of slow folders."""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

# How many cases a function has at least, and in how many days each of them is run; a mark says otherwise.
SHARES = ((16, 7), (6, 4))
# Whose tests start processes, or take seconds for another reason: in how many days each of theirs is run at
# least, where no argument names their folder or file.
FOLDERS = {
    "demo": 2, "distributed": 8, "docs": 2, "exchange": 2, "facade": 2, "hostile": 2, "jit": 2, "kernel": 2,
    "language": 2, "networks": 2, "passes": 2, "quantization": 2, "runtime": 2, "serving": 2, "soundness": 2,
    "viewer": 2,
}  # fmt: skip
TESTS = Path(__file__).parent


def day() -> int:
    """What decides which generated tests are run: the date, or what $LAMINA_DAY says."""
    return int(os.environ.get("LAMINA_DAY", time.time() // 86_400))


def function_of(item: pytest.Item) -> tuple[Path, str]:
    return item.path, getattr(item, "originalname", item.name)


def days_of_folder(item: pytest.Item) -> int:
    """In how many days its folder's tests are run, where the whole of them is asked for."""
    if not item.path.is_relative_to(TESTS):
        return 1
    asked = [Path(str(given).partition("::")[0]).absolute() for given in item.config.args]
    if any(item.path.is_relative_to(path) for path in asked if path.is_relative_to(TESTS) and path != TESTS):
        return 1
    return FOLDERS.get(item.path.relative_to(TESTS).parts[0], 1)


def is_drawn(item: pytest.Item, cases: Counter) -> bool:
    """Whether a test is of the day's sample.  One named by itself always is.

    cases: how many there are of each function.
    """
    marker = item.get_closest_marker("sampled")
    usual = next((days for least, days in SHARES if cases[function_of(item)] >= least), 1)
    days = marker.args[0] if marker is not None else max(usual, days_of_folder(item))
    if days == 1 or item.config.getoption("--all"):
        return True
    if any(item.name in str(given) for given in item.config.args):
        return True
    return (zlib.crc32(item.nodeid.encode()) + day()) % days == 0
