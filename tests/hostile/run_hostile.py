"""Read many hostile inputs: python tests/hostile/run_hostile.py --kind graph --count 100000 --record FILE

Without --kind, all kinds.  With --record, an interrupted run is gone on with, and a larger count adds to it.
Ends with status 1 if there is a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

import driver


def _read(record: Path | None) -> dict[str, dict]:
    return json.loads(record.read_text()) if record and record.exists() else {}


def _write(record: Path, totals: dict[str, dict]) -> None:
    part = record.with_name(f"{record.name}.{os.getpid()}")
    part.write_text(json.dumps(totals, indent=1))
    os.replace(part, record)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    makers = driver.kinds()
    parser.add_argument("--kind", choices=sorted(makers), action="append")
    parser.add_argument("--count", type=int, default=10_000, help="inputs of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="children at a time")
    parser.add_argument("--record", type=Path, help="where totals are kept; an earlier run is gone on with")
    parser.add_argument("--only", type=int, metavar="INDEX", help="read this input alone, in this process")
    options = parser.parse_args()
    record, failed = options.record, 0
    for name in options.kind or sorted(makers):
        if absent := driver.missing(name):
            print(f"{name}: not read, as {', '.join(absent)} can't be imported")
            continue
        made = makers[name]()
        if options.only is not None:
            data = made.make(driver.rng(name, options.seed, options.only))
            print(repr(data) if len(repr(data)) < 10_000 else f"{repr(data)[:10_000]}…")
            print(made.check(data))
            continue
        at = f"{name} seed {options.seed}"
        kept = _read(record).get(at, {})
        totals = driver.Totals(**kept | {"verdicts": Counter(kept.get("verdicts", {}))})
        told = [time.monotonic()]

        def tell(totals: driver.Totals, at: str = at, told: list[float] = told) -> None:
            if record:  # other kinds may be run beside
                _write(record, _read(record) | {at: vars(totals)})
            if time.monotonic() - told[0] > 10:
                told[0] = time.monotonic()
                print(f"{at}: {totals}", flush=True)

        totals = driver.run(name, made, options.count, options.seed, options.jobs, totals, tell)
        print(f"{at}: {totals}")
        for index, word, text in totals.faults[:20]:
            print(f"  {word} {name} --seed {options.seed} --only {index}: {text}")
        failed += totals.failed
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
