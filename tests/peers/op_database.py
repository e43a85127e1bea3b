"""Compares all of PyTorch's operator database with Lamina, and writes what became of each entry.

python tests/peers/op_database.py [--write] [--samples N] [--dtypes NAME ...] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import collections
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import operator_comparison
import torch
from operator_comparison import FORMS, ORDER, REFERENCE, Outcome, examined
from operator_differences import EXPECTED, expected, title
from torch.testing._internal.common_methods_invocations import op_db

import lamina

BAD = ("absent", "raises", "differs")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "operators.md"


def whole(outcomes: dict[str, Outcome]) -> str:
    """An entry's outcome: the worst of its forms'."""
    kinds = {outcome.kind for outcome in outcomes.values()}
    if outcomes["function"].kind == "absent":
        return "absent"
    order = ("raises", "differs", "absent", REFERENCE, "agrees", "not testable")
    return next(kind for kind in order if kind in kinds)


def table(found: dict[str, dict[str, Outcome]], limit: str) -> str:
    """Counts, then every entry that does not agree in all its forms."""
    counts = {form: collections.Counter(o[form].kind for o in found.values() if form in o) for form in FORMS}
    counts["all forms"] = collections.Counter(map(whole, found.values()))
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in operator_comparison.DTYPES)
    lines = [
        "# Operators against PyTorch's operator database", "",
        f"`python tests/peers/op_database.py --write`: {len(found)} entries of torch {torch.__version__}",
        f"and Lamina {lamina.__version__}; {limit} in {names}; gradients in float64 and complex128.", "",
        f'"{REFERENCE}" is counted where PyTorch does not. Of results the reference is the entry\'s own',
        "`ref` (NumPy's or SciPy's, in float64), for out= what PyTorch's function returns without it; of",
        "gradients, the slopes of PyTorch's function by differences. It is asked where the two differ, and",
        "speaks for Lamina only where all of its numbers lie within tolerance and PyTorch's do not",
        "(`tests/peers/operator_references.py`).", "",
        "| | " + " | ".join(ORDER) + " |", "|---|" + "--:|" * len(ORDER),
    ]  # fmt: skip
    for form, counter in counts.items():
        lines.append(f"| {form} | " + " | ".join(str(counter[kind]) for kind in ORDER) + " |")
    lines += ["", "| entry | form | outcome | samples | of the first |", "|---|---|---|--:|---|"]
    for name, outcomes in found.items():
        for form, outcome in outcomes.items():
            if outcome.kind != "agrees" and (form == "function" or outcomes["function"].kind == "agrees"
                                             or outcome.kind != outcomes["function"].kind):  # fmt: skip
                total, note = sum(outcome.counts.values()), outcome.note
                if outcome.kind in BAD and expected(name, form):
                    note += f": {expected(name, form)}"
                share = f"{outcome.counts.get(outcome.kind, 0)} of {total}"
                lines.append(f"| {name} | {form} | {outcome.kind} | {share} | {note.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


class Late(BaseException):
    """An entry took too long."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--samples", type=int, help="at most so many of each entry and dtype")
    parser.add_argument("--dtypes", nargs="+", help="these alone: float32 int64 …")
    parser.add_argument("--only", nargs="+", help="entries by name")
    parser.add_argument("--seconds", type=int, default=120, help="for an entry, at most")
    options = parser.parse_args()
    if options.dtypes:
        operator_comparison.DTYPES = tuple(getattr(torch, name) for name in options.dtypes)
    found, began = {}, time.monotonic()

    def late(*_: Any) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)
    for entry in op_db:
        if options.only and entry.name not in options.only:
            continue
        signal.alarm(options.seconds)
        try:
            outcomes = examined(entry, options.samples)
        except Late:
            outcomes = {"function": Outcome()}
            outcomes["function"].add("not testable", f"takes more than {options.seconds} seconds")
        finally:
            signal.alarm(0)
        found[title(entry)] = outcomes
        bad = {form: o for form, o in outcomes.items() if o.kind in BAD}
        shown = "; ".join(
            f"{form}: {o.kind} {o.counts[o.kind]} of {sum(o.counts.values())}"
            f"{'' if expected(title(entry), form) else ', NOT LISTED'}: {o.note}"
            for form, o in bad.items()
        )
        print(f"{time.monotonic() - began:6.0f} s  {title(entry)}: {whole(outcomes)}  {shown}", flush=True)
        agreeing = [form for form in EXPECTED.get(title(entry), ()) if form not in bad]
        if agreeing and options.samples is None:
            print(f"          {title(entry)}: listed and agrees: {', '.join(agreeing)}")
    text = table(found, "all samples" if options.samples is None else f"up to {options.samples} samples")
    print(text.split("| entry |")[0])
    if options.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
