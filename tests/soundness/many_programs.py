"""Runs many random programs in processes of their own, and keeps a record that a later run goes on from."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "networks"))  # the pool of processes is theirs

from network_pool import answers

WORKER = Path(__file__).parent / "program_worker.py"
LIMIT = 120.0  # seconds that a program may take; one is much


def told(rows: list[dict], since: float) -> None:
    """Print how far a run has come."""
    outcomes = Counter(row["outcome"] for row in rows)
    print(f"{len(rows)} programs, {time.monotonic() - since:.0f} s: {dict(outcomes)}", flush=True)


def record_of(
    kind: str,
    seeds: Iterable[int],
    workers: int = 1,
    record: Path | None = None,
    tell: Callable[[list[dict], float], None] | None = None,
) -> list[dict]:
    """Rows of what became of the programs of these seeds, and of those that the record held before.

    A row is what the worker answers, with the seed as "draw".  That it ends or hangs is an outcome too.
    """
    rows: list[dict] = []
    if record is not None and record.exists():
        rows = [json.loads(line) for line in record.read_text().splitlines()]
    known = {row["draw"] for row in rows}
    wanted = ({"kind": kind, "draw": seed} for seed in seeds if seed not in known)
    began = last = time.monotonic()
    with record.open("a") if record is not None else open("/dev/null", "w") as file:
        for request, answer in answers(wanted, workers, LIMIT, WORKER):
            rows.append({"draw": request["draw"], "features": [], "reasons": {}} | answer)
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
            if tell is not None and time.monotonic() - last > 20:
                last = time.monotonic()
                tell(rows, began)
    return rows


def seed_of_the_day() -> int:
    """Other programs every day; $LAMINA_PROGRAMS_SEED for those of another one."""
    return int(os.environ.get("LAMINA_PROGRAMS_SEED", 1_000_000 + int(time.time()) // 86_400 * 10_000))
