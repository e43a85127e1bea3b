"""A job that goes on after ranks were killed: the launcher starts it anew, and it restores its checkpoint."""

import sys

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

PROGRAM = """
import os, signal, sys
import lamina.distributed.checkpoint as dcp
from lamina.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from lamina.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
times = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
deadly = {int(k): tuple(map(int, v.split(":"))) for k, v in (x.split("=") for x in sys.argv[2:])}
lamina.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).double()
model = DDP(net)
optimizer = optim.Adam(net.parameters(), lr=1e-2)
checkpoints = dcp.Checkpoints(sys.argv[1], keep=2, every=2)
model_state, optimizer_state = get_state_dict(net, optimizer)
state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
if checkpoints.restore(state) is not None:
    set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
for step in range(state["step"] + 1, 13):
    if deadly.get(times) == (rank, step):
        os.kill(os.getpid(), signal.SIGKILL)
    generator = np.random.default_rng(step)
    x, y = generator.standard_normal((2, 8, 5)), generator.standard_normal((2, 8, 1))
    optimizer.zero_grad()
    loss = ((model(lamina.tensor(x[0][rank::size])) - lamina.tensor(y[0][rank::size])) ** 2).mean()
    loss.backward()
    optimizer.step()
    if checkpoints.is_due(step):
        model_state, optimizer_state = get_state_dict(net, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state, "step": step}
        checkpoints.async_save(step, state).result()
loss = loss.detach()
dist.all_reduce(loss, op=dist.ReduceOp.AVG)
if rank == 0:
    print("last loss", repr(loss.item()), "after", times, "restarts", flush=True)
"""


def launched(tmp_path, name, n, *deadly):
    script = tmp_path / "program.py"
    script.write_text(ranks.BEGIN + PROGRAM)
    words = [sys.executable, "-m", "lamina", "launch", "-n", str(n), "--max-restarts", "3", str(script)]
    printed = ranks.command([*words, str(tmp_path / name), *deadly], timeout=110)
    (line,) = [line for line in printed.splitlines() if line.startswith("last loss")]
    return float(line.split()[2]), int(line.split()[4]), printed


def test_killed_ranks_lose_what_came_after_the_last_checkpoint_alone(tmp_path):
    whole, times, _ = launched(tmp_path, "whole", 2)
    assert times == 0
    broken, times, printed = launched(tmp_path, "broken", 2, "0=1:4", "1=0:9")
    assert times == 2 and printed.count("SIGKILL") >= 2 and "starting all ranks anew" in printed
    assert broken == whole  # the same batches, in the same order, on the same number of ranks


@pytest.mark.slow
def test_it_goes_on_with_another_number_of_ranks(tmp_path):
    whole, _, _ = launched(tmp_path, "whole", 2)
    with pytest.raises(AssertionError):
        launched(tmp_path, "moved", 2, "0=1:7", "1=1:7", "2=1:7", "3=1:7")
    moved, times, _ = launched(tmp_path, "moved", 4)
    assert times == 0 and abs(moved / whole - 1) < 1e-10
