"""Every example runs as a user runs it, and learns: a few steps here, all of them under `make slow`."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

for library in ("sklearn", "matplotlib"):
    pytest.importorskip(library, reason=f"the examples use {library}: pip install 'lamina[demo]'")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("mlp", "convnet", "gpt", "lstm", "vae")
LAST_LINE = re.compile(r"\w+: first loss (\S+), last (\S+), baseline (\S+) \(.+\)")


def losses(name: str, *arguments: str) -> tuple[float, ...]:
    """First loss, last loss and baseline, as the example prints them."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    # Tests run several at a time: threads of OpenBLAS would then wait for one another.
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    matched = LAST_LINE.fullmatch(done.stdout.splitlines()[-1])
    assert matched, done.stdout
    return tuple(map(float, matched.groups()))


def test_every_example_is_listed():
    runnable = [f.stem for f in EXAMPLES.glob("*.py") if "__main__" in f.read_text()]
    assert sorted(runnable) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_example_quick(name):
    first, last, baseline = losses(name, "--quick")
    assert last < baseline
    assert last < first


# Somewhat above what they reach (examples/README.md), and far below what the quick runs do.
FULL = {"mlp": 0.03, "convnet": 0.15, "gpt": 1.9, "lstm": 1.8, "vae": 24.5}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_example_full(name):
    _, last, _ = losses(name)
    assert last < FULL[name]


@pytest.fixture
def curve(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXAMPLES)
    import curves

    monkeypatch.setattr(curves, "OUT", tmp_path / "out")
    made = curves.Curve("planted", 1.0, "what is to be beaten")
    for loss in (3.0, 2.0, 1.0):
        made.add(loss, 3)
    return made


@pytest.mark.parametrize("final", [1.0, 2.5, math.nan])
def test_curve_refuses_what_has_not_learnt(curve, final):
    with pytest.raises(SystemExit, match="should have fallen below its baseline"):
        curve.finish(final)


def test_curve_is_drawn(curve, tmp_path, capsys):
    curve.finish(0.5)
    assert (tmp_path / "out" / "planted.png").read_bytes().startswith(b"\x89PNG")
    assert LAST_LINE.fullmatch(capsys.readouterr().out.splitlines()[-1])
