"""Which of the generated tests are run on a day."""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

# How many cases a function has at least, and in how many days each of them is run; a mark says otherwise.
SHARES = ((16, 7), (6, 4))


def day() -> int:
    """What decides which generated tests are run: the date, or what $LAMINA_DAY says."""
    return int(os.environ.get("LAMINA_DAY", time.time() // 86_400))


def function_of(item: pytest.Item) -> tuple[Path, str]:
    return item.path, getattr(item, "originalname", item.name)


def is_drawn(item: pytest.Item, cases: Counter) -> bool:
    """Whether a test is of the day's sample.  One named by itself always is.

    cases: how many there are of each function.
    """
    marker = item.get_closest_marker("sampled")
    usual = next((days for least, days in SHARES if cases[function_of(item)] >= least), 1)
    days = marker.args[0] if marker is not None else usual
    if days == 1 or item.config.getoption("--all"):
        return True
    if any(item.name in str(given) for given in item.config.args):
        return True
    return (zlib.crc32(item.nodeid.encode()) + day()) % days == 0
