"""Scripts as people write them for PyTorch, run as they are: `python -m lamina run script.py`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_learns(script, tmp_path):
    command = (sys.executable, "-W", "error", "-m", "lamina", "run", str(script))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    first, last = map(float, re.fullmatch(r"loss (\S+) -> (\S+)", done.stdout.splitlines()[-1]).groups())
    assert last < 0.9 * first, f"the loss went from {first} to {last}"
