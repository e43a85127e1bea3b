"""Planted bugs: `verify=True` finds each, and names the stage and the op that it is in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from planted import PROGRAMS, edited, function_at, planted, run_twice
from planted_bugs import BUGS

from lamina.jit import verify

# Planted plans of memory put arrays where guarded memory ends the process, as it should.
pytestmark = pytest.mark.unguarded

FOUND = 0.95  # the share of all that must be found and placed

AGAIN = """
import runpy, sys
sys.path.insert(0, {here!r})
from planted import planted
from planted_bugs import BUGS
bug = next(b for b in BUGS if b.name == {name!r})
with planted(bug):
    runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.fixture(autouse=True)
def scripts_go_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("LAMINA_REPRO_DIR", str(tmp_path))


def test_where_bugs_are_planted_the_text_stands_yet():
    """Each day, or one that plants it would find the text changed, long after."""
    for bug in BUGS:
        for where, right, wrong in ((bug.where, bug.right, bug.wrong), *bug.also):
            edited(function_at(where), right, wrong)


def test_bugs_are_found_and_placed(of_the_day):
    assert len(BUGS) >= 60 and len({bug.name for bug in BUGS}) == len(BUGS)
    lines, placed = [], 0
    for bug in (planted_today := of_the_day(BUGS, 3)):
        stage, right = result_of(bug)
        placed += right
        lines.append(f"{'placed' if right else 'MISSED':8}{bug.name:44}{bug.program:26}{stage}")
    print("", *lines, f"{placed} of {len(planted_today)} found and placed", sep="\n")
    assert len(planted_today) - placed <= (1 - FOUND) * len(BUGS), "\n".join(
        line for line in lines if line.startswith("MISSED")
    )


def result_of(bug):
    """The stage that is named, and whether it is the right one."""
    try:
        with planted(bug):
            run_twice(bug.program)
    except verify.TraceError as error:
        finding = error.finding
        if finding is None:
            return "(no stage)", False
        ops = [name for name, _ in finding.ops]
        return finding.stage, finding.stage.startswith(bug.stage) and (not bug.op or bug.op in ops)
    return "(nothing found)", False


@pytest.mark.sampled(6)
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_without_a_bug_pass(program, monkeypatch):
    looked = []
    real = verify.blame

    def counting(*given):
        looked.append(real(*given))
        return looked[-1]

    monkeypatch.setattr(verify, "blame", counting)
    run_twice(program)
    assert looked and not any(looked)


SHOWN = (
    "wrong fold constant", "the lowering of sum is along the wrong axis", "a tail that is not masked",
    "arrays over one another", "a stale alias", "images laid out wrongly",
)  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SHOWN)
def test_scripts_show_the_bug_again(name):
    """In a process of its own: with the bug planted it tells what differs, without it that nothing does."""
    bug = next(b for b in BUGS if b.name == name)
    with pytest.raises(verify.TraceError) as error, planted(bug):
        run_twice(bug.program)
    script = Path(str(error.value).rpartition("python ")[2])
    here = str(Path(__file__).parent)
    broken = ran("-c", AGAIN.format(here=here, name=name, script=str(script)))
    assert broken.returncode == 1, broken.stderr
    assert f"{error.value.finding.stage} changes result 0: element [" in broken.stdout
    right = ran(str(script))
    assert right.returncode == 0, right.stdout + right.stderr
    assert "nothing differs" in right.stdout


def ran(*arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "LAMINA_CACHE_DIR": ""}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
