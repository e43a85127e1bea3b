"""torch.distributed.run, launch, launcher and elastic: PyTorch's names for starting ranks from programs."""

import os
import subprocess
import sys

import pytest

import lamina
import lamina.distributed as dist
from lamina.distributed import launcher, run
from lamina.distributed.launching import launchers
from lamina.ir.errors import ArgumentError, ArgumentValueError

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install 'lamina[mpi]'")
needs = pytest.mark.skipif(not launchers.is_there(), reason="there is no mpiexec: pip install 'lamina[mpi]'")


@launcher.record
def summed(base, size):
    dist.init_process_group()
    x = lamina.tensor([base + dist.get_rank()])
    dist.all_reduce(x)
    return x.item(), os.environ["LOCAL_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"], bytes(size)


def fails_at_first(path):
    if os.environ["RANK"] == "1" and not os.path.exists(path):
        open(path, "w").close()
        raise KeyError("boom")
    return os.environ["TORCHELASTIC_RESTART_COUNT"]


@needs
def test_a_function_is_called_on_each_rank_and_its_results_come_back():
    config = launcher.LaunchConfig(1, 1, 2, rdzv_backend="c10d", max_restarts=0)
    large = 1 << 18  # more than a pipe holds
    results = launcher.elastic_launch(config, summed)(10, large)
    assert results == {n: (21, str(n), "0", bytes(large)) for n in range(2)}


@needs
def test_ranks_are_started_anew_as_often_as_is_said(tmp_path):
    config = launcher.LaunchConfig(1, 1, 2, max_restarts=1)
    assert launcher.launch_agent(config, fails_at_first, [str(tmp_path / "a")]) == {0: "1", 1: "1"}
    config = launcher.LaunchConfig(1, 1, 2, max_restarts=0)
    with pytest.raises(
        launcher.ChildFailedError, match="fails_at_first failed\n  rank 1: process 1 raised"
    ) as told:
        launcher.elastic_launch(config, fails_at_first)(str(tmp_path / "b"))
    rank, failure = told.value.get_first_failure()
    assert rank == failure.local_rank == 1 and failure.exitcode == 1 and "KeyError: 'boom'" in failure.message


@needs
def test_a_command_is_run_on_each_rank(capfd):
    config = launcher.LaunchConfig(1, 1, 2, max_restarts=0)
    code = "import os, sys; print('rank', os.environ['RANK'], flush=True); sys.exit(int(sys.argv[1]))"
    assert launcher.elastic_launch(config, sys.executable)("-c", code, 0) == {}
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "rank 0", "rank 1"]
    with pytest.raises(launcher.ChildFailedError, match="rank 0: exit code 3"):
        launcher.elastic_launch(config, sys.executable)("-c", code, 3)


def test_refusals():
    with pytest.raises(
        ArgumentValueError, match=r"min_nodes=2.*\n  several machines: python -m lamina launch"
    ):
        launcher.LaunchConfig(2, 2, 1)
    with pytest.raises(ArgumentValueError, match="nproc_per_node is above 0"):
        launcher.LaunchConfig(1, 1, 0)
    with pytest.raises(ArgumentError, match="a function or a command, not 3"):
        launcher.elastic_launch(launcher.LaunchConfig(1, 1, 1), 3)


@needs
@pytest.mark.parametrize("module", ["run", "launch"])
def test_as_a_module_under_the_facade(module, tmp_path):
    (tmp_path / "program.py").write_text(
        """
import os, sys
import torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
@record
def main():
    dist.init_process_group("gloo")
    dist.all_reduce(x := torch.ones(1))
    print("sum", x.item(), *sys.argv[1:], flush=True)
    sys.exit(dist.get_rank() * 5)
main()
"""
    )
    words = [
        "-m",
        f"torch.distributed.{module}",
        "--standalone",
        "--nproc_per_node=2",
        "program.py",
        "--x",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "lamina", "run", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "sum 2.0 --x 1\n" * 2 and done.returncode == 5, done.stderr
    assert "rank 1 of 2" in done.stderr and "ended with exit status 5" in done.stderr


@needs
def test_run_takes_what_was_parsed(tmp_path):
    (tmp_path / "ends.py").write_text("import sys; sys.exit(int(sys.argv[1]))")
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    options = run.parse_args(["--nproc-per-node", "1", str(tmp_path / "ends.py"), "4"])
    assert options.training_script_args == ["4"] and options.nproc_per_node == "1"
    with pytest.raises(launcher.ChildFailedError, match="ends.py failed\n  rank 0: exit code 4"):
        run.run(options)
    assert run.run(run.get_args_parser().parse_args([str(tmp_path / "ends.py"), "0"])) is None
    assert other.poll() is None  # the command ends all that is below it, and this is not
    other.communicate(b"\n")
