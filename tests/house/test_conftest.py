"""See the tests' own tools fail: run pytest in a small tree that has this project's conftest and settings."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import package_tree
import pytest
from sampling import TESTS, function_of, is_drawn

CASE = """
import random
import numpy as np
import pytest

def test_text(golden):
    golden("folder/text", "one\\ntwo\\n\\n")

def test_seeds(golden):
    golden("seeds", (random.random(), float(np.random.rand())))

@pytest.mark.skip(reason="as where a peer is missing")
def test_skipped():
    pass
"""


@pytest.fixture
def tree(tmp_path):
    """Make a tree whose root, as Lamina's, has an `__init__.py` that must not be imported by pytest."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "__init__.py").write_text("raise ImportError('imported under the name of its folder')\n")
    (tmp_path / "tests" / "test_case.py").write_text(CASE)
    for name in ("conftest.py", "sampling.py"):
        shutil.copy(package_tree.ROOT / "tests" / name, tmp_path / "tests")
    shutil.copy(package_tree.ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(tree, *words, **environment):
    """Run pytest in the tree; return (exit status, what it printed)."""
    inherited = {name: value for name, value in os.environ.items() if name != "CI" and "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=tree,
        env=inherited | environment,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_golden_missing_updated_kept_and_changed(tree):
    status, output = run(tree)
    assert status == 1 and "tests/golden/seeds.txt is missing" in output
    status, output = run(tree, "--update-golden")
    assert status == 0, output
    assert (tree / "tests" / "golden" / "folder" / "text.txt").read_text() == "one\ntwo\n"
    status, output = run(tree, "-n", "2")  # the same random numbers, by whichever process
    assert status == 0, output
    (tree / "tests" / "golden" / "folder" / "text.txt").write_text("one\n")
    status, output = run(tree)
    assert status == 1 and "tests/golden/folder/text.txt differs" in output


def cases(name, count, mark=None, *, whole=False, args=(), path=Path("test_case.py")):
    """Tests as pytest collects them, of one function."""
    config = SimpleNamespace(getoption=lambda option: whole, args=args)
    return [
        SimpleNamespace(
            config=config, path=path, originalname=name, name=f"{name}[{number}]",
            nodeid=f"test_case.py::{name}[{number}]", get_closest_marker=lambda _: mark,
        )
        for number in range(count)
    ]  # fmt: skip


MARK = SimpleNamespace(args=(5,))
SLOW = TESTS / "distributed" / "test_case.py"


@pytest.mark.parametrize(
    ("made", "days"),
    [
        (cases("few", 5), 1),
        (cases("several", 6), 4),
        (cases("many", 16), 7),
        (cases("marked", 1, MARK), 5),
        (cases("all", 16, MARK, whole=True), 1),
        (cases("named", 1, MARK, args=["tests/test_case.py::named[0]"]), 1),
        (cases("slow", 1, path=SLOW, args=[str(TESTS)]), 8),
        (cases("slow_and_many", 16, path=SLOW, args=[str(TESTS)]), 8),
        (cases("folder", 1, path=SLOW, args=[str(SLOW.parent)]), 1),
        (cases("file", 1, path=SLOW, args=[f"{SLOW}::another"]), 1),
        (cases("quick", 1, path=TESTS / "nn" / "test_case.py", args=[str(TESTS)]), 1),
    ],
    ids=lambda of: of[0].originalname if isinstance(of, list) else "",
)
@pytest.mark.sampled(1)
def test_each_case_is_run_on_one_of_its_days(made, days, monkeypatch):
    """What a day leaves out the others run: on so many in a row, wherever they begin, each is run once."""
    runs = Counter()
    for day in range(20_000, 20_000 + 2 * days):
        monkeypatch.setenv("LAMINA_DAY", str(day))
        runs.update(item.name for item in made if is_drawn(item, Counter(map(function_of, made))))
    assert runs == {item.name: 2 for item in made}


def test_update_golden_refused_in_ci(tree):
    status, output = run(tree, "--update-golden", CI="true")
    assert status == pytest.ExitCode.USAGE_ERROR and "--update-golden is refused in CI" in output
    assert not (tree / "tests" / "golden").exists()


def test_require_passed_refuses_a_run_of_skips(tree):
    status, output = run(tree, "-k", "skipped")
    assert status == 0, output
    status, output = run(tree, "-k", "skipped", "--require-passed")
    assert status == 1 and "no test passed" in output


def test_peers_are_marked(tree):
    (tree / "tests" / "peers").mkdir()
    shutil.move(tree / "tests" / "test_case.py", tree / "tests" / "peers")
    _, output = run(tree, "--collect-only", "-q", "-m", "peers")
    assert "3 tests collected" in output


def test_warnings_are_errors(tree):
    (tree / "tests" / "test_case.py").write_text(
        "import warnings\ndef test_warning():\n    warnings.warn('w')\n"
    )
    status, output = run(tree)
    assert status == 1 and "UserWarning: w" in output
