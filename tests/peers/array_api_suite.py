"""Runs the array API standard's own test suite on lamina.array_api, and writes what became of it.

git clone --recurse-submodules https://github.com/data-apis/array-api-tests CHECKOUT
pip install pytest-json-report ndindex
python tests/peers/array_api_suite.py CHECKOUT [--max-examples 50] [--only test_fft.py ...] [--write]

Nothing of the suite is kept here.  What is known to fail stands in array_api_xfails.txt, each class with its
reason.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import lamina.array_api

XFAILS = Path(__file__).with_name("array_api_xfails.txt")
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "array_api.md"
OUTCOMES = ("passed", "failed", "skipped", "xfailed", "xpassed")


def version(checkout: Path) -> str:
    """The suite's commit and its date."""
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%h, %cs"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run(checkout: Path, file: str, examples: int) -> tuple[dict[str, int], str]:
    """How many tests of a file came to what, and the lines of those that failed.  Raises RuntimeError."""
    settings = {
        "ARRAY_API_TESTS_MODULE": "lamina.array_api",
        "ARRAY_API_TESTS_VERSION": lamina.array_api.__array_api_version__,
    }
    mine = [line for line in XFAILS.read_text().splitlines() if line.startswith(f"array_api_tests/{file}:")]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as xfails:  # the suite warns of names that it lacks
        xfails.write("\n".join(mine))
        xfails.flush()
        command = [
            sys.executable, "-m", "pytest", "-q", "-rfE", "--no-header", "--tb=no", "-p", "no:cacheprovider",
            "--disable-deadline", "--max-examples", str(examples), "--xfails-file", xfails.name,
            f"array_api_tests/{file}",
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=checkout, capture_output=True, text=True, env=os.environ | settings
        )
    lines = done.stdout.splitlines()
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (\w+)", lines[-1] if lines else "")}
    if done.returncode not in (0, 1, 5):
        raise RuntimeError(f"{file}: pytest ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    shown = {what: counts.get(what, 0) for what in OUTCOMES}
    shown["failed"] += counts.get("error", 0) + counts.get("errors", 0)
    return shown, "\n".join(line for line in lines if line.startswith(("FAILED", "ERROR")))


def known() -> dict[str, list[int]]:
    """The rows of an earlier run: file -> examples and counts."""
    if not RESULTS.exists():
        return {}
    rows = re.findall(r"^\| (test_\w+\.py) \|([\d |]+)\|$", RESULTS.read_text(), re.M)
    return {file: [int(n) for n in numbers.split("|")] for file, numbers in rows}


def page(rows: dict[str, list[int]], suite: str) -> str:
    """The results as a page."""
    sums = [sum(column) for column in list(zip(*rows.values(), strict=True))[1:]]
    cells = [(file, *numbers) for file, numbers in sorted(rows.items())] + [("all", "", *sums)]
    return "\n".join([
        "# The array API standard's test suite on lamina.array_api",
        "",
        f"data-apis/array-api-tests at {suite}; standard {lamina.array_api.__array_api_version__};",
        f"Lamina {lamina.__version__}, {datetime.date.today()};",
        "`python tests/peers/array_api_suite.py CHECKOUT --write`. Those expected to fail stand",
        "in tests/peers/array_api_xfails.txt, each class with its reason; one passes where the examples",
        "drawn don't show it.",
        "",
        "| file | examples | passed | failed | skipped | failed as expected | passed all the same |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *("| " + " | ".join(map(str, row)) + " |" for row in cells),
        "",
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--max-examples", type=int, default=50)
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE")
    parser.add_argument("--write", action="store_true", help=f"update {RESULTS.name}")
    options = parser.parse_args()
    tests = sorted(path.name for path in (options.checkout / "array_api_tests").glob("test_*.py"))
    rows, bad = known(), 0
    for file in options.only or tests:
        counts, failures = run(options.checkout, file, options.max_examples)
        print(file, counts, failures, sep="\n", flush=True)
        rows[file] = [options.max_examples, *counts.values()]
        bad += counts["failed"]
        if options.write:
            RESULTS.write_text(page(rows, version(options.checkout)))
    return min(bad, 1)


if __name__ == "__main__":
    raise SystemExit(main())
