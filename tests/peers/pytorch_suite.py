"""Runs PyTorch's own test files on PyTorch and on Lamina, and counts what passes on both.

python tests/peers/pytorch_suite.py --tests CHECKOUT/test [--write] [--again] [--seconds N] FILE [FILE ...]

CHECKOUT is a source tree of PyTorch, wherever it came from; nothing of it belongs into this repository.  Each
file is loaded in two processes, once as it is and once with Lamina as `torch` (`pytorch_substitute.py`).
Tests run in a process forked from that one, each with a limit of time, until it dies, which is an outcome of
the test that it was at.  What passes on PyTorch runs on Lamina; what fails there for the wording of an error
runs once more with any wording taken.  What became of each test is kept in CHECKOUT/outcomes.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import importlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import traceback
import unittest
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from pytorch_results import run_of, write

HERE = Path(__file__).resolve().parent
PASSED, SKIPPED = "pass", "skip"
# Tests of PyTorch's inside: its second implementations in Python, how it chooses among its convolutions.
INSIDE = re.compile(r"::test_\w+?__refs_|::test_conv_backend_")
RUN = "@"  # beside the outcomes: what ran, and when


class Late(BaseException):
    """A test took too long."""


# ---- in the process that loads a file ----------------------------------------------------------------------
def loaded(path: Path, on: str) -> dict[str, unittest.TestCase]:
    """The tests of a file by name."""
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(HERE), str(path.parent)]
    sys.argv = [str(path)]
    os.environ["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"
    if on == "lamina":
        from pytorch_substitute import name_absent, substitute

        substitute()
        name_absent(path)
    else:
        importlib.import_module("torch._dynamo")  # takes long, and the first test would ask for it
    _give_back_names()
    name = ".".join(path.with_suffix("").parts[len(tests_folder(path).parts) :])
    module = importlib.import_module(name) if "." not in name else _by_path(path)
    scripts = sys.modules.get("torch.testing._internal.jit_utils")
    if on == "lamina" and scripts is not None:  # between tests it has PyTorch's extension look for its module
        scripts.clear_class_registry = lambda: None  # type: ignore[attr-defined]
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    return {"::".join(test.id().rsplit(".", 2)[1:]): test for test in _flat(suite)}


def _give_back_names() -> None:
    """Let older test files import what newer tools have not: switches of other devices, and a list."""
    cuda, mkldnn, modules = (
        importlib.import_module(f"torch.testing._internal.common_{name}") for name in ("cuda", "mkldnn", "nn")
    )
    gone = {
        (cuda, "tf32_is_not_fp32"): lambda: False,
        (mkldnn, "bf32_on_and_off"): lambda *_: lambda test: test,
    }
    if hasattr(modules, "get_new_module_tests"):
        gone[modules, "new_module_tests"] = modules.get_new_module_tests()
    for (module, name), value in gone.items():
        if not hasattr(module, name):
            setattr(module, name, value)


def tests_folder(path: Path) -> Path:
    """The folder `test` of the checkout."""
    return next(p for p in path.parents if p.name == "test")


def _by_path(path: Path) -> Any:
    sys.path.insert(0, str(tests_folder(path)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _flat(test)
        else:
            yield test


class Outcome(unittest.TestResult):
    """What became of one test: its kind, and the first line of what it said."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.text = PASSED, ""

    def _failed(self, kind: str, error: Any) -> None:
        if isinstance(error[1], Late):
            self.kind, self.text = "late", "takes too long"
            return
        if self.kind in (PASSED, SKIPPED):
            said = str(error[1]).partition("To execute this test")[0]
            lines = [line for line in said.splitlines() if line.strip()] or [""]
            places = [f.lineno for f in traceback.extract_tb(error[2]) if "/test/" in f.filename]
            line = places[-1] if places else 0
            said = " / ".join(lines[:3]) if isinstance(error[1], AssertionError) else lines[0]
            self.kind, self.text = kind, f"{error[0].__name__}: {said} (line {line})"

    def addError(self, test: Any, err: Any) -> None:
        self._failed("error", err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._failed("fail", err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._failed("fail" if issubclass(err[0], AssertionError) else "error", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.kind, self.text = SKIPPED, reason

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.kind = PASSED

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.kind, self.text = "fail", "passes, which was not expected"


def ran(test: unittest.TestCase, seconds: float) -> Outcome:
    """Run a test; what it prints is dropped."""
    outcome = Outcome()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            test.run(outcome)
    except Late:
        outcome.kind, outcome.text = "late", f"takes more than {seconds:g} s"
    except BaseException as error:  # SystemExit, KeyboardInterrupt of a test
        outcome._failed("error", (type(error), error, error.__traceback__))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return outcome


@contextlib.contextmanager
def any_wording() -> Iterator[None]:
    """Have the tests' regular expressions for messages match whatever is said."""
    kind = unittest.case._AssertRaisesBaseContext  # type: ignore[attr-defined]
    before = kind.__init__

    def init(self: Any, expected: Any, test_case: Any, expected_regex: Any = None) -> None:
        before(self, expected, test_case, None)

    kind.__init__ = init
    try:
        yield
    finally:
        kind.__init__ = before


def serve(path: Path, on: str, seconds: float) -> None:
    """Load the file, print its tests, then run those whose names come in; one line of JSON each.

    `begin` before a test, so that the reader knows at which one this process died.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    tests = loaded(path, on)
    print(json.dumps(list(tests)), file=out, flush=True)

    def late(*_: Any) -> None:
        raise Late

    for line in sys.stdin:
        names = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, late)
            for name in names:
                print(json.dumps(["begin", name]), file=out, flush=True)
                outcome = ran(tests[name], seconds)
                wording = False
                if outcome.kind == "fail" and "does not match" in outcome.text:
                    with any_wording():
                        wording = ran(tests[name], seconds).kind == PASSED
                print(
                    json.dumps(["end", name, outcome.kind, outcome.text[:400], wording]), file=out, flush=True
                )
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(json.dumps(["over", status]), file=out, flush=True)


# ---- in the process that asks ------------------------------------------------------------------------------
def outcomes(
    path: Path, on: str, seconds: float, wanted: set[str] | None, found: dict[str, list[Any]]
) -> None:
    """Run a file's tests, those `wanted`.

    found: gets [kind, text, whether only the wording differs] of each.
    """
    command = [
        sys.executable,
        str(HERE / "pytorch_suite.py"),
        "--serve",
        on,
        "--seconds",
        str(seconds),
        str(path),
    ]
    log = open(f"/tmp/pytorch_suite_{path.stem}_{on}.log", "w")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        first = process.stdout.readline()
        if not first:
            raise RuntimeError(f"{path.name} does not load on {on}: see {log.name}")
        tests = json.loads(first)
        if wanted is not None:
            found.update({name: ["error", "the test is not made", False] for name in wanted - set(tests)})
            tests = [name for name in tests if name in wanted]
        waiting, at, began = tests, "", time.monotonic()
        over: set[str] = set()
        while waiting:
            process.stdin.write(json.dumps(waiting) + "\n")
            process.stdin.flush()
            while True:
                kind, *rest = json.loads(_line(process, 4 * seconds + 60))
                if kind == "begin":
                    at = rest[0]
                elif kind == "end":
                    found[rest[0]] = rest[1:]
                    over.add(rest[0])
                    if time.monotonic() - began > 30:
                        began = time.monotonic()
                        print(f"  {on}: {len(over)} of {len(tests)}", file=sys.stderr, flush=True)
                else:
                    break
            if rest[0]:
                found[at] = ["crash", f"the process ended with status {rest[0]}", False]
                over.add(at)
            waiting = [name for name in waiting if name not in over] if rest[0] else []
        process.stdin.close()


def _line(process: Any, limit: float) -> str:
    if not select.select([process.stdout], [], [], limit)[0]:
        # what runs is deaf to its alarm, in native code: end it, and the server tells that it died
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
    return process.stdout.readline()


def on_pytorch(path: Path, seconds: float) -> dict[str, list[Any]]:
    """Outcomes on PyTorch, from the last time if the file and the version are the same."""
    import importlib.metadata

    version = importlib.metadata.version("torch")
    key = hashlib.sha256(path.read_bytes() + version.encode()).hexdigest()[:16]
    kept = tests_folder(path).parent / "outcomes" / f"{path.stem}-{key}.json"
    if not kept.exists():
        found: dict[str, list[Any]] = {}
        outcomes(path, "torch", seconds, None, found)
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(found, indent=0))
    return json.loads(kept.read_text())


def reason(text: str) -> str:
    """The text of an outcome without what differs from test to test: to group by."""
    text = re.sub(r" \(line \d+\)$", "", text)
    text = re.sub(r"<class 'numpy\.\w+'>", "NUMPY", re.sub(r"tensor\(\[[^]]*\][^)]*\)", "tensor", text))
    text = re.sub(r"0x[0-9a-f]+|-?\b\d+(\.\d+)?(e[-+]?\d+)?\b", "#", text)
    text = re.sub(
        r"\b(lamina|torch)\.(u?int\d*|b?float\d*|complex\d*|bool|bfloat#?)\b|\b[uif]\d+|\bbf16", "DTYPE", text
    )
    return re.sub(r"\[[#, ]*\]|\([#, ]*\)", "[#]", text)[:160]


def report(
    name: str, theirs: dict[str, list[Any]], ours: dict[str, list[Any]], groups: int
) -> tuple[list[str], list[str]]:
    """A file's row for the table, and the groups of its failures."""
    passed = [t for t, o in theirs.items() if o[0] == PASSED and t in ours]
    right = [t for t in passed if ours[t][0] == PASSED]
    wording = [t for t in passed if ours[t][2]]
    grouped = collections.defaultdict(list)
    for test in passed:
        if ours[test][0] != PASSED:
            grouped[(ours[test][0], reason(ours[test][1]))].append(test)
    share = len(right) / len(passed) if passed else 1.0
    ordered = sorted(grouped.items(), key=lambda item: -len(item[1]))
    row = [name, str(len(theirs)), str(len(passed)), str(len(right)), f"{share:.1%}", str(len(wording))]
    row += ours.get(RUN, ["?", "?"])
    lines = [
        f"- {len(tests)} × {kind}: {text.replace('|', '/')} ({tests[0].partition('::')[2]},"
        f" {ours[tests[0]][1].rpartition('(')[2]}"
        for (kind, text), tests in ordered[:groups]
    ]
    return row, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", help="test files, relative to --tests")
    parser.add_argument("--tests", type=Path, default=Path(), help="the folder test of a checkout of PyTorch")
    parser.add_argument("--seconds", type=float, default=30, help="for one test, at most")
    parser.add_argument("--groups", type=int, default=60, help="how many groups of failures to print")
    parser.add_argument("--only", help="a regular expression for the names of tests")
    parser.add_argument("--again", action="store_true", help="only those that did not pass the last time")
    parser.add_argument("--keep", type=Path, help="a folder for what became of each test, as JSON")
    parser.add_argument("--kept", action="store_true", help="run nothing: count what is kept")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/pytorch_suite.md")
    parser.add_argument("--serve", choices=("torch", "lamina"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(Path(options.files[0]).resolve(), options.serve, options.seconds)
        return
    rows = []
    keep = options.keep or options.tests.parent / "outcomes"
    for file in options.files:
        path = (options.tests / file).resolve()
        theirs = on_pytorch(path, options.seconds)
        theirs = {name: o for name, o in theirs.items() if not INSIDE.search(name)}
        if options.only:
            theirs = {name: o for name, o in theirs.items() if re.search(options.only, name)}
        wanted = {name for name, o in theirs.items() if o[0] == PASSED}
        last = keep / f"{path.stem}-lamina.json"
        before = json.loads(last.read_text()) if last.exists() else {}
        if options.again:
            wanted = {name for name in wanted if before.get(name, [""])[0] != PASSED}
        if wanted and not options.kept:
            earlier = dict(before)
            try:
                outcomes(path, "lamina", options.seconds, wanted, before)
            finally:  # of a run that is interrupted, what it came to; `--again` goes on with the others
                if before != earlier:
                    before[RUN] = run_of()
                last.write_text(json.dumps(before, indent=0))
        rows.append(report(file, theirs, before, options.groups))
        print("| " + " | ".join(rows[-1][0]) + " |", *rows[-1][1], "", sep="\n", flush=True)
    if options.write:
        write(options.tests.parent, rows)


if __name__ == "__main__":
    main()
