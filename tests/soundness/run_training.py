"""Runs random training programs (`training_make`), traced against eager, and counts calls that ran compiled.

python tests/soundness/run_training.py --count 1000 --seed 1 --workers 2 --record training.jsonl
    runs the seeds from 1 on which the record doesn't hold yet, and sums up all that it holds
python tests/soundness/run_training.py --seed 17 --show     one program, what became of it and why

After every call is compared what the call returned and printed, and all that the module's names hold: the
model's parameters, buffers and attributes, the optimizer's states, the numbers that are kept.  One program in
NATIVE is compiled to machine code; the graphs of the others are interpreted, which tracing doesn't notice.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import linecache
import logging
import re
import sys
import types
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from battery import EAGER, TRACED, Library, World, difference
from fuzz import FAULT, interpreted, sort_of
from many_programs import record_of, told
from training_make import make

import lamina
from lamina.runtime import methods

SETTLED = 10  # calls after which a program should be served
NATIVE = 10
# Rounding in float64 is 1e-16 of the largest number.  Optimizers divide a gradient by its size, plus 1e-8:
# where it is zero but for rounding (a bias before a batch norm) 25 steps go 1e-8 of their length astray.
ROUNDING = 1e-7
HELD = ("agrees", "set aside")  # the latter makes as much of a difference in the last bits by itself


class Watched(World):
    """A world of a whole program, looked at after each of its calls, with a note whether it ran compiled."""

    def __init__(self, library: Library):
        super().__init__(library)
        self.compiled: list[bool] = []
        self._before = (0, 0)

    def shown(self, result: Any) -> None:
        served, ran = (b - a for a, b in zip(self._before, self._counts()))
        self._before = self._counts()
        self.compiled.append(served > 0 and not ran)
        self.note(result)


def _fields(o: Any) -> dict[str, Any] | None:
    """Attributes of an object; of an optimizer what it shows, as inside it goes by addresses; not of loggers,
    which remember what they were asked.
    """
    if isinstance(o, logging.Logger):
        return None
    if isinstance(o, lamina.optim.Optimizer):
        return {"groups": o.param_groups, "state": o.state_dict()["state"]}
    return EAGER.fields(o)


def ran(text: str, library: Library) -> Watched:
    """Run a program in a world of a library, and return the world."""
    name, file = "programs_training_made", "programs_training_made.py"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    try:
        with Watched(replace(library, fields=_fields)) as world:
            world.patch(methods, "_numbers", itertools.count())  # the keys of hooks show
            space = module.__dict__
            space |= {"trace": world.trace, "shown": world.shown}
            world.see(module=lambda: _held(space))
            exec(compile(text, file, "exec", dont_inherit=True), space)
            return world
    finally:
        del sys.modules[name]


def _held(space: dict[str, Any]) -> dict[str, Any]:
    """What a module's names hold; of the step what is in its cells and defaults, of classes attributes."""
    shown: dict[str, Any] = {}
    for name, held in space.items():
        if name.startswith("__") or isinstance(held, types.ModuleType) or name in ("trace", "shown"):
            continue
        if name == "train_step":
            function = getattr(held, "__wrapped__", held)
            function = getattr(function, "__func__", function)
            shown[name] = function.__defaults__, function.__closure__
        elif isinstance(held, type) and held.__module__ == space["__name__"]:
            shown[name] = {k: v for k, v in vars(held).items() if isinstance(v, (int, float, list, dict))}
        elif not isinstance(held, type):
            shown[name] = held
    return shown


def near(a: Any, b: Any) -> bool:
    """Equal but for rounding, as runs in float64 may differ; of texts the numbers, to the last digit."""
    if isinstance(a, str):
        return _NUMBER.split(a) == _NUMBER.split(b) and all(
            abs(float(x) - float(y)) <= ROUNDING * max(1.0, abs(float(x))) + 1.01 * _unit(x)
            for x, y in zip(_NUMBER.findall(a), _NUMBER.findall(b))
        )
    if isinstance(a, np.ndarray) and a.dtype.kind not in "fc":
        return np.array_equal(a, b)
    if not isinstance(a, (float, np.ndarray)):
        return a == b
    size = max(1.0, np.max(np.abs(a[np.isfinite(a)]), initial=0.0) if isinstance(a, np.ndarray) else 0.0)
    return np.allclose(a, b, rtol=ROUNDING, atol=ROUNDING * size, equal_nan=True)


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def _unit(number: str) -> float:
    """The unit of the last digit of a number's text; 0 of a whole one, which is exact."""
    digits, _, power = number.partition("e")
    places = len(digits.partition(".")[2])
    return 10.0 ** (int(power or 0) - places) if places or power else 0.0


def verdict(seed: int, only: Collection[str] | None = None) -> dict[str, Any]:
    """What became of a program, as JSON has it."""
    program = make(seed, only)
    answer: dict[str, Any] = {"features": program.features, "detail": "", "reasons": {}}
    try:
        eager = ran(program.text, EAGER)
    except Exception as error:
        return answer | {"outcome": "unfit", "detail": f"{type(error).__name__}: {error}"}
    with contextlib.nullcontext() if seed % NATIVE == 0 else interpreted():
        try:
            traced = ran(program.text, TRACED)
        except Exception as error:
            return answer | {"outcome": "raises", "detail": f"{type(error).__name__}: {error}"}
    wrong, _ = difference(eager, traced, equal=near)
    faults = [reason for reason in traced.reasons if FAULT.search(reason)]
    if wrong is not None and not faults and scatters(program.text, eager):
        return answer | {"outcome": "set aside", "detail": wrong}
    if wrong is not None or faults:
        return answer | {"outcome": "differs" if wrong else "fails", "detail": wrong or faults[0]}
    answer |= {"compiled": "".join("x" if c else "." for c in traced.compiled), "reasons": _reasons(traced)}
    return answer | {"outcome": "agrees"}


def scatters(text: str, eager: Watched) -> bool:
    """Whether a program makes as much of rounding: undecorated, of weights with other last bits."""
    moved = "; torch.no_grad()(lambda: [p.mul_(1 + 2.0**-50) for p in model.parameters()])()"
    again, count = re.subn(r"^optimizer = .*\)$", lambda found: found[0] + moved, text, count=1, flags=re.M)
    return count == 1 and difference(eager, ran(again, EAGER), equal=near)[0] is not None


def _reasons(world: World) -> dict[str, int]:
    """Why calls did not run compiled: reasons by how many, and what was asked for in vain."""
    found: Counter[str] = Counter()
    for reason, count in world.reasons.items():
        found[sort_of(reason)] += count
    for traced in world._traced:
        for miss in traced._log.misses:
            found["miss: " + sort_of(miss)] += 1
    return dict(found.most_common(6))


# ---- the tables --------------------------------------------------------------------------------------------
def shares(rows: Collection[dict]) -> tuple[float, float, float]:
    """What ran compiled of all calls, and of those after the tenth; what programs are served."""
    calls = [row["compiled"] for row in rows]
    late = [c[SETTLED:] for c in calls]
    every, after = "".join(calls), "".join(late)
    served = sum(c.count("x") >= 0.9 * len(c) for c in late)
    return (
        every.count("x") / max(1, len(every)),
        after.count("x") / max(1, len(after)),
        served / max(1, len(rows)),
    )


def table(rows: list[dict], spellings: bool = True, reasons: int = 15) -> str:
    """What a record came to: outcomes, shares per feature and spelling, the most frequent reasons."""
    outcomes = Counter(row["outcome"] for row in rows)
    agree = [row for row in rows if row["outcome"] == "agrees"]
    groups: dict[str, list[dict]] = defaultdict(list)
    for row in agree:
        for feature in row["features"]:
            groups[feature.split(":")[0]].append(row)
            if spellings:
                groups[feature].append(row)
    lines = [
        f"{len(rows)} programs: {dict(outcomes)}",
        f"{'compiled':44}programs     all  after {SETTLED}  served",
    ]
    for name, group in [("all", agree), *sorted(groups.items())]:
        cells = "".join(f"{share:9.0%}" for share in shares(group))
        lines.append(f"{'  ' * (': ' in name) + name.rpartition(': ')[2]:44}{len(group):8}{cells}")
    counted: Counter[str] = Counter()
    for row in agree:
        counted.update(row["reasons"].keys())
    lines += [f"{count:6} programs: {reason}" for reason, count in counted.most_common(reasons)]
    lines += [f"seed {row['draw']}: {row['outcome']}: {row['detail'][:300]}" for row in rows
              if row["outcome"] != "agrees"][:40]  # fmt: skip
    return "\n".join(lines)


def smallest(seed: int, outcome: str) -> list[str]:
    """The features without which a program of a seed has not the same outcome any more."""
    left = make(seed).features
    for feature in list(left):
        fewer = [f for f in left if f != feature]
        if verdict(seed, fewer)["outcome"] == outcome:
            left = fewer
    return left


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--record", type=Path)
    parser.add_argument(
        "--show", action="store_true", help="one program, its text and its report, in this process"
    )
    options = parser.parse_args()
    if options.show:
        found = verdict(options.seed)
        if found["outcome"] in ("differs", "raises", "fails"):
            only = smallest(options.seed, found["outcome"])
            print(make(options.seed, only).text)
            print(verdict(options.seed, only))
        else:
            print(make(options.seed).text)
            print(found)
        return found["outcome"] not in HELD
    seeds = range(options.seed, options.seed + options.count)
    rows = record_of("training", seeds, options.workers, options.record, told)
    print(table(rows))
    return any(row["outcome"] not in HELD for row in rows)


if __name__ == "__main__":
    sys.modules["run_training"] = sys.modules["__main__"]
    sys.exit(main())
