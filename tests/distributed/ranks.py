"""Run a program on several ranks by mpiexec, as its users would."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).with_name("mpiexec")
# A line that is printed goes out in one piece, also where PYTHONUNBUFFERED is set: ranks print at a time.
BEGIN = """
import sys
sys.stdout.reconfigure(write_through=False, line_buffering=True)
import warnings
warnings.simplefilter("error")
import numpy as np
import lamina
import lamina.distributed as dist
from lamina import jit, nn, optim
"""


def environment(**more):
    """The environment of a child: this house importable, a core for each rank, nothing of a launcher's."""
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PMI", "OMPI", "MPI", "RANK", "WORLD"))}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def run(n, source, tmp_path, timeout=100, status=0, begin=BEGIN, **more):
    """What `source` prints on n ranks; it ends with a status, or the test fails with all that was printed."""
    script = tmp_path / "program.py"
    script.write_text(begin + textwrap.dedent(source))
    return command([str(MPIEXEC), "-n", str(n), sys.executable, str(script)], timeout, status, **more)


def command(words, timeout=100, status=0, cwd=None, **more):
    """What a command prints; it is in a group of its own, of which nothing is left."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, cwd=cwd,
        env=environment(**more),
    ) as process:  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            raise AssertionError(f"not done in {timeout} s:\n{printed.decode('utf-8', 'replace')}") from None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    text = printed.decode("utf-8", "replace")
    if status is not None:
        assert process.returncode == status, text
    return text
