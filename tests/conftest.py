"""Configure every test: seeds, golden texts, hypothesis, and a run that must not be empty."""

import gc
import os
import random
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

# Workers of pytest-xdist share the cores, and BLAS threads that wait for one another stand still when they do
# not run together: matrix products then take eight times as long.  Before NumPy loads its BLAS.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests count recordings, which must not hang on how long they take.
os.environ["LAMINA_TRACE_BUDGET"] = "none"

import hypothesis
import numpy as np
import pytest
from sampling import day, function_of, is_drawn

HERE = Path(__file__).parent

# The same examples on every machine and every run, and no clock: a deadline or the "too slow" check would
# fail tests for what else the machine does. `--hypothesis-profile=thorough` looks further (make slow).
STEADY = {"deadline": None, "derandomize": True, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("quick", max_examples=30, **STEADY)
hypothesis.settings.register_profile("thorough", max_examples=1000, **STEADY)
hypothesis.settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lamina")
    group.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden/*.txt with what the tests produced"
    )
    group.addoption(
        "--all", action="store_true", help="run what the day's sample of generated tests leaves out, too"
    )
    group.addoption(
        "--require-passed", action="store_true", help="fail when no test passed, as when all were skipped"
    )


class RootIsNoTestPackage:
    """Keep pytest from taking the repository's root, which has an `__init__.py`, for a package of tests.

    It would import the root under its folder's name: a second Lamina, which the packages' guards refuse.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        return pytest.Dir.from_parent(parent, path=path) if path == HERE.parent else None


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(RootIsNoTestPackage())
    if config.getoption("--update-golden") and os.environ.get("CI") == "true":
        raise pytest.UsageError(
            "--update-golden is refused in CI: update on your machine and read the difference"
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage while tests are collected: next to all stays, and it took 10 s of 34."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Collecting garbage then takes what it finds of a test's own, not all that stands for the session."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """The same for what a file's tests leave in caches: late in a session a collection took a second."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


def pytest_report_header(config: pytest.Config) -> str | None:
    if config.getoption("--all"):
        return None
    return f"generated tests: the sample of LAMINA_DAY={day()}; --all runs every one"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases = Counter(map(function_of, items))
    drawn: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        drawn[is_drawn(item, cases)].append(item)
    if drawn[False]:
        config.hook.pytest_deselected(items=drawn[False])
        items[:] = drawn[True]
    for item in items:
        if item.path.is_relative_to(HERE / "peers"):
            item.add_marker("peers")
        if os.environ.get("LAMINA_GUARD") and item.get_closest_marker("unguarded"):
            item.add_marker(pytest.mark.skip(reason="about what LAMINA_GUARD changes"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that leaves another limit of recursion behind: ever more of them end in a crash."""
    before = sys.getrecursionlimit()
    result = yield
    if (after := sys.getrecursionlimit()) != before:
        sys.setrecursionlimit(before)
        pytest.fail(f"the limit of recursion was {before}, and is {after}", pytrace=False)
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption("--require-passed"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not reporter.stats.get("passed"):  # a worker of xdist has no reporter
        reporter.write_line("\nno test passed, and --require-passed was given", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the battery of tests/soundness came to, in whichever workers its programs ran."""
    reports = [r for found in terminalreporter.stats.values() for r in found]
    calls = [r.user_properties for r in reports if getattr(r, "when", None) == "call"]
    rows = [value for properties in calls for name, value in properties if name == "soundness"]
    if not rows:
        return
    n: Counter[str] = sum((Counter(row["counts"]) for row in rows), Counter())
    reasons: Counter[str] = sum((Counter(row["reasons"]) for row in rows), Counter())
    terminalreporter.section("soundness")
    terminalreporter.write_line(
        f"{n['programs']} programs, {n['silently wrong']} silently wrong; compiled code served "
        f"{n['served given'] / n['calls given']:.0%} of the calls as given, "
        f"{n['served settled'] / n['calls settled']:.0%} once they settle (all of {n['settle']} programs); "
        f"of {n['servable']} programs that need not be refused "
        f"{n['servable settle'] / max(n['servable'], 1):.1%} do"
    )
    for reason, count in reasons.most_common(10):
        terminalreporter.write_line(f"{count:5} calls ran undecorated: {reason}")


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """Seed Python's and NumPy's generators from the test's name, so that neither order nor worker matters."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    np.random.seed(seed)


@pytest.fixture(autouse=True, scope="session")
def tree_as_it_was(request: pytest.FixtureRequest) -> Generator[None, None, None]:
    """Fail if a test left a file beside the package's: what tests write stands in folders of their own."""
    root = request.config.rootpath
    before = {*os.listdir(root)}
    yield
    left = [name for name in {*os.listdir(root)} - before if (root / name).is_file()]
    assert not left, f"tests left {left} in {root}"


@pytest.fixture
def of_the_day(request: pytest.FixtureRequest) -> Callable[[Iterable, int], list]:
    """Return `of_the_day(items, days)`: what one test that goes through many is to go through today.

    Each is on one of so many days; with --all every one is.
    """

    def drawn(items: Iterable, days: int) -> list:
        whole = request.config.getoption("--all")
        return [item for number, item in enumerate(items, day()) if whole or number % days == 0]

    return drawn


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Return `golden(name, text)`, which compares str(text) with tests/golden/<name>.txt.

    Under `--update-golden` it writes the file instead. A file ends in one newline, whatever the text does.
    """

    def compare(name: str, text: object) -> None:
        file = HERE / "golden" / f"{name}.txt"
        made = str(text).rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(made, encoding="utf-8")
            return
        if not file.exists():
            pytest.fail(f"tests/golden/{name}.txt is missing; pytest --update-golden writes it:\n{made}")
        assert made == file.read_text(encoding="utf-8"), (
            f"tests/golden/{name}.txt differs; if the new text is right, pytest --update-golden writes it"
        )

    return compare
