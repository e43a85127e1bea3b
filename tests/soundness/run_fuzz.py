"""Runs programs of the fuzzer (`fuzz`), traced against eager, for as long as one likes.

python tests/soundness/run_fuzz.py --count 100000 --seed 0 --workers 2 --record fuzz.jsonl
    runs the seeds from 0 on which the record doesn't hold yet, and sums up all that it holds
python tests/soundness/run_fuzz.py --kind state ...     without the parts of `fuzz_lives`
python tests/soundness/run_fuzz.py --kind refused ...   recordings are refused anywhere in a run
python tests/soundness/run_fuzz.py --seed 17 --show     one program, cut down if it is wrong

One program in NATIVE is compiled to machine code; the graphs of the others are interpreted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
from many_programs import record_of, told
from refused_anywhere import refused_anywhere

import lamina
from lamina.ir.op import REGISTRY
from lamina.ir.ops import extremum

NATIVE = 50


def verdict(seed: int, kind: str) -> dict[str, Any]:
    """What became of a program, as JSON has it."""
    refused = refused_anywhere(seed) if kind == "refused" else contextlib.nullcontext()
    text, _, eager = fuzz.program_run(seed, without(), programs_of(kind))
    with contextlib.nullcontext() if seed % NATIVE == 0 else fuzz.interpreted(), refused:
        found = fuzz.checked(text, eager=eager)
    outcome = "agrees" if found.wrong is None else "loud" if found.loud else "silent"
    if outcome == "silent" and (hangs_on_addresses(text, eager) or hangs_on_zeros(text)):
        outcome = "set aside"
    reasons = Counter(fuzz.sort_of(reason) for reason in found.reasons)
    answer = {"outcome": outcome, "detail": found.wrong or "", "counts": found.counts, "reasons": reasons}
    return answer | {"parts": sorted(part.name for part in fuzz.PARTS + fuzz.LIVES if part.text in text)}


def hangs_on_addresses(text: str, eager: Any) -> bool:
    """Whether a program does something else undecorated where objects lie elsewhere: sets go by addresses."""
    kept = []
    for count in range(40):
        kept.append([lamina.ones(()) for _ in range(count)])
        if fuzz.difference(eager, fuzz.ran(text, fuzz.EAGER))[0]:
            return True
    return False


def hangs_on_zeros(text: str) -> bool:
    """Whether it agrees undecorated once the largest of 0.0 and -0.0 is the other: `amax` leaves it open."""
    for sign in (1.0, -1.0):
        with zeros_of_extremes(sign):
            if fuzz.checked(text).wrong is None:
                return True
    return False


@contextlib.contextmanager
def zeros_of_extremes(sign: float) -> Iterator[None]:
    """Within this, eager amax, amin, max and min give zeros of one sign."""
    with contextlib.ExitStack() as stack:
        for op in (extremum.amax, extremum.amin, extremum.max_dim, extremum.min_dim):
            function = REGISTRY[op.name].reference
            at = function.__code__.co_freevars.index("ufunc")
            cell = function.__closure__[at]
            stack.callback(setattr, cell, "cell_contents", cell.cell_contents)
            cell.cell_contents = SignedZeros(cell.cell_contents, sign)
        yield


class SignedZeros:
    """np.maximum or np.minimum, whose zeros have a sign."""

    def __init__(self, ufunc: np.ufunc, sign: float):
        self.ufunc, self.sign = ufunc, sign

    def reduce(self, *args: Any, **kwargs: Any) -> Any:
        found = self.ufunc.reduce(*args, **kwargs)
        signed = found.dtype.kind == "f"
        return np.where(found == 0, np.copysign(found, self.sign), found) if signed else found


def programs_of(kind: str) -> str:
    """Which programs are made for a kind of run."""
    return "lives" if kind == "refused" else kind


def without() -> tuple[str, ...]:
    """Texts that $LAMINA_FUZZ_WITHOUT names: templates that hold one are left out."""
    return tuple(filter(None, os.environ.get("LAMINA_FUZZ_WITHOUT", "").split(",")))


def table(rows: list[dict], reasons: int = 15) -> str:
    """What a record came to."""
    counts: Counter[str] = sum((Counter(row.get("counts", {})) for row in rows), Counter())
    why: Counter[str] = sum((Counter(row["reasons"].keys()) for row in rows), Counter())
    outcomes = Counter(row["outcome"] for row in rows)
    calls = max(1, counts["calls"])
    lines = [
        f"{len(rows)} programs: {dict(outcomes)}",
        f"{calls} calls, {counts['served'] / calls:.0%} served, {counts['raised'] / calls:.0%} raised",
    ]
    wrong = [row for row in rows if row["outcome"] != "agrees"]
    met = Counter(part for row in rows for part in row.get("parts", ()))
    lines += [
        f"{count:6} programs with {part}: {sum(part in row.get('parts', ()) for row in wrong)} wrong"
        for part, count in met.most_common()
    ]
    lines += [
        f"{count:6} programs ran calls undecorated: {reason}" for reason, count in why.most_common(reasons)
    ]
    sorts = Counter(f"{row['outcome']}: {re.sub(r'[0-9.]+', '#', row['detail'])[:100]}" for row in wrong)
    lines += [f"{count:6} {sort}" for sort, count in sorts.most_common(reasons)]
    if wrong:
        lines.append("seeds: " + " ".join(str(row["draw"]) for row in wrong[:100]))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=("state", "lives", "refused"), default="lives")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--show", action="store_true", help="one program, in this process")
    options = parser.parse_args()
    if options.show:
        refused = refused_anywhere(options.seed) if options.kind == "refused" else contextlib.nullcontext()
        text, _ = fuzz.program(options.seed, without(), programs_of(options.kind))
        with fuzz.interpreted(), refused:
            found = fuzz.checked(text)
            print(text if found.wrong is None else fuzz.smaller(text, seconds=120))
        print(found.wrong)
        return found.wrong is not None
    seeds = range(options.seed, options.seed + options.count)
    rows = record_of(options.kind, seeds, options.workers, options.record, told)
    print(table(rows))
    return any(row["outcome"] != "agrees" for row in rows)


if __name__ == "__main__":
    sys.modules["run_fuzz"] = sys.modules["__main__"]
    sys.exit(main())
