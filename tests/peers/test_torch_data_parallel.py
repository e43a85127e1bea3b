"""Training on two ranks in float32 strays from one process no further than PyTorch's own does, on gloo."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("mpi4py", reason="mpi4py is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "distributed"))
import ranks  # noqa: E402

PROGRAM = """
import sys
import torch
import torch.distributed as gloo
torch.set_num_threads(1)
dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()
gloo.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=size)

def block(nn):
    return nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
MODELS = {
    "gpt": (lambda nn: nn.Sequential(block(nn), block(nn), nn.Linear(32, 8)), (8, 6, 32)),
    "convnet": (lambda nn: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2),
        nn.GroupNorm(2, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8),
    ), (8, 3, 9, 9)),
}

def losses(library, meeting, name, weights, distributed):
    make, shape = MODELS[name]
    net = make(library.nn)
    net.load_state_dict({k: library.tensor(v) for k, v in weights.items()})
    model = library.nn.parallel.DistributedDataParallel(net) if distributed else net
    optimizer = library.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    generator, found = np.random.default_rng(3), []
    for _ in range(50):
        x = generator.standard_normal(shape).astype(np.float32)
        part = slice(rank, None, size) if distributed else slice(None)
        optimizer.zero_grad()
        loss = (model(library.tensor(x[part])) ** 2).mean()
        loss.backward()
        optimizer.step()
        loss = loss.detach().clone()
        if distributed:
            meeting.all_reduce(loss)
            loss /= size
        found.append(loss.item())
    return np.array(found)

for name, (make, _) in MODELS.items():
    torch.manual_seed(0)
    weights = {k: v.numpy() for k, v in make(torch.nn).state_dict().items()}
    far = {}
    for library, meeting in ((lamina, dist), (torch, gloo)):
        one, several = (losses(library, meeting, name, weights, d) for d in (False, True))
        far[library.__name__] = float(np.abs(several / one - 1).max())
    if rank == 0:
        print("far", name, far["lamina"], far["torch"], flush=True)
gloo.destroy_process_group()
"""


def test_how_far_training_on_two_ranks_strays(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(ranks.BEGIN + PROGRAM)
    words = [str(ranks.MPIEXEC), "-n", "2", sys.executable, str(script), str(tmp_path / "meet")]
    lines = [line.split() for line in ranks.command(words).splitlines() if line.startswith("far")]
    assert [line[1] for line in lines] == ["gpt", "convnet"]
    for _, name, ours, theirs in lines:
        # one rounding of a sum is 6e-8: what is below that is no straying of either
        assert float(ours) <= 2 * max(float(theirs), 6e-8), (name, ours, theirs)
