"""Every operator of PyTorch's database, called with one argument wrong: a result or an error of Lamina's.

A day's share; all of them: python tests/peers/database_calls.py 0 1
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")
pytest.importorskip("expecttest", reason="PyTorch's operator database asks for it: pip install lamina[peers]")

CALLS = Path(__file__).with_name("database_calls.py")
SHARES = 64  # entries and forms are dealt to so many days


@pytest.mark.timeout(300)  # PyTorch loads much of itself at a first call
def test_a_days_share_ends_in_laminas_errors():
    share = int(time.time() // 86400) % SHARES
    done = subprocess.run(
        [sys.executable, str(CALLS), str(share), str(SHARES)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, f"the process ended at {done.stderr[-2000:]}"
    found = json.loads(done.stdout)
    print(f"share {share}: {found['calls']} calls")
    assert found["calls"] > 100
    assert not found["faults"], "\n".join(found["faults"])
