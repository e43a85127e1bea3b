"""Runs random networks, traced against eager, for as long as one likes.

python tests/networks/run.py --count 10000 --seed 1 --workers 2 --record networks.jsonl
    runs the seeds from 1 on which the record doesn't hold yet, and sums up all that it holds
python tests/networks/run.py --count 300 --seed 1 --all     each in every mode, dtype and level
python tests/networks/run.py --count 300 --seed 1 --sizes   each on batches whose size changes
python tests/networks/run.py --count 300 --seed 1 --rounds  each with products in pairs of bfloat16, half
    of them on batches whose size changes
python tests/networks/run.py --count 300 --seed 1 --stacks  convolutions in a row, half of them by Winograd
    wherever they can
python tests/networks/run.py --replay '{"seed": ...}'       one network again, as a finding printed it
python tests/networks/run.py --shrink '{"seed": ...}'       the smallest network with the same finding
    both take '{"draw": 7}' too, the network of that seed
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from network_drawing import sizes_for, stack_for
from network_pool import Runner, answers
from network_shrinking import FAULTS, kind_of, shrunk

HERE = Path(__file__)


def requests(seeds: Iterable[int], how: str = "") -> Iterator[dict]:
    """how: as drawn; or "all", "sizes", "rounds", "stacks", which are the options' names."""
    for seed in seeds:
        if how == "stacks":
            yield {"draw": seed, "change": stack_for(seed)}
            continue
        if how == "sizes":
            yield {"draw": seed, "change": {"sizes": sizes_for(seed)}}
            continue
        if how == "rounds":
            change: dict = {"dtype": "bfloat16", "level": "avx512"}
            if seed % 2:
                change["sizes"] = sizes_for(seed)
            yield {"draw": seed, "change": change}
            continue
        if how != "all":
            yield {"draw": seed}
            continue
        for mode in ("inference", "backward", "training"):
            for dtype in ("float32", "float64"):
                for level in ("avx512", "avx2", "baseline"):
                    change = {"mode": mode, "dtype": dtype, "level": level, "train": mode != "inference"}
                    yield {"draw": seed, "change": change}


def findings(
    wanted: Iterable[dict],
    workers: int,
    told: list | None = None,
    record: TextIO | None = None,
    quiet: bool = True,
) -> tuple[Counter[str], list[dict]]:
    """Run networks: how many came to what, and the answers that are faults.

    told: gets a row for each network, which `record` is given too.
    """
    outcomes: Counter[str] = Counter()
    faults: list[dict] = []
    began = last = time.monotonic()
    for request, answer in answers(wanted, workers):
        outcomes[answer["outcome"]] += 1
        row = row_of(request, answer)
        if told is not None:
            told.append(row)
        if record is not None:
            record.write(json.dumps(row) + "\n")
            record.flush()
        if answer["outcome"] in FAULTS:
            faults.append(answer | {"request": request})
            if not quiet:
                print(f"{request}: {answer['outcome']}: {answer['detail'][:300]}", flush=True)
        if not quiet and time.monotonic() - last > 10:
            last = time.monotonic()
            done = outcomes.total()
            print(f"{done} networks, {done / (last - began):.2f} a second: {dict(outcomes)}", flush=True)
    return outcomes, faults


def row_of(request: dict, answer: dict) -> dict[str, Any]:
    """What a record keeps of a network."""
    row = request | {name: answer[name] for name in ("outcome", "seconds", "ratio")}
    if answer["outcome"] != "agrees":
        row["detail"] = answer["detail"][:1500]
    return row


def described(request: dict) -> dict:
    """The network that is asked for, by its seed or in full."""
    if "draw" not in request:
        return request
    from network_drawing import draw

    return draw(request["draw"]) | request.get("change", {})


def told(fault: dict, shrink: bool = True, seconds: float = 60.0, plant: list | None = None) -> str:
    """A fault for a reader: the smallest network that shows it, and how to run it again."""
    runner = Runner(plant)
    try:
        description = fault["description"]
        if description is None:  # the process died: nobody else knows it
            description = described(fault["request"])
        kind = kind_of(fault)
        if shrink and kind_of(runner.outcome(description)) == kind:
            description = shrunk(description, kind, runner.outcome, seconds)
            fault = runner.outcome(description)
    finally:
        runner.close()
    place = HERE.relative_to(HERE.parent.parent.parent)
    return f"{fault['outcome']}: {fault['detail']}\n  python {place} --replay '{json.dumps(description)}'"


def table(rows: list[dict]) -> str:
    """What a record came to."""
    outcomes = Counter(row["outcome"] for row in rows)
    lines = [f"{outcome:12}{count:8}" for outcome, count in outcomes.most_common()]
    seconds = sum(row["seconds"] for row in rows)
    lines.append(f"{'in all':12}{len(rows):8}   {seconds / max(1, len(rows)):.2f} s each")
    why = Counter(
        row.get("detail", "").partition("refused")[2][:90] or row.get("detail", "")[:60]
        for row in rows
        if row["outcome"] in ("uncompiled", "set aside")
    )
    lines += [f"{count:8}  {reason}" for reason, count in why.most_common(12)]
    ratios = sorted(row["ratio"] for row in rows if row["outcome"] == "agrees")
    if ratios:
        lines.append(
            "errors over what is allowed: "
            + ", ".join(
                f"{share:.1%} below {ratios[min(len(ratios) - 1, int(share * len(ratios)))]:.2g}"
                for share in (0.5, 0.99, 0.999)
            )
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", type=Path)
    for name, said in (
        ("all", "each network in every mode, dtype and level"),
        ("sizes", "each on batches whose size changes"),
        ("stacks", "convolutions in a row in place of each"),
        ("rounds", "each with products in pairs of bfloat16, where this CPU multiplies them"),
    ):
        parser.add_argument(f"--{name}", dest="how", action="store_const", const=name, default="", help=said)
    parser.add_argument("--replay")
    parser.add_argument("--shrink")
    parser.add_argument("--shrunk", type=int, default=5, help="how many findings are shrunk at the end")
    options = parser.parse_args()
    if options.replay or options.shrink:
        runner, description = Runner(), described(json.loads(options.replay or options.shrink))
        answer = runner.outcome(description)
        runner.close()
        print(f"{answer['outcome']}: {answer['detail']}")
        if options.shrink and answer["outcome"] in FAULTS:
            print(told(answer | {"description": description}, seconds=300))
        return answer["outcome"] in FAULTS
    rows: list[dict] = []
    if options.record is not None and options.record.exists():
        rows = [json.loads(line) for line in options.record.read_text().splitlines()]
    done = {json.dumps([row["draw"], row.get("change")]) for row in rows}
    wanted = (
        r
        for r in requests(range(options.seed, options.seed + options.count), options.how)
        if json.dumps([r["draw"], r.get("change")]) not in done
    )  # fmt: skip
    record = options.record.open("a") if options.record is not None else None
    _, faults = findings(wanted, options.workers, rows, record, quiet=False)
    print(table(rows))
    for fault in faults[: options.shrunk]:
        print(f"\n{fault['request']}\n{told(fault)}", flush=True)
    if len(faults) > options.shrunk:
        print(
            f"\n{len(faults) - options.shrunk} more: "
            + ", ".join(str(f["request"]["draw"]) for f in faults[options.shrunk :])
        )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
