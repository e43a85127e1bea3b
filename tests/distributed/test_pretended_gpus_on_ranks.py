"""Programs that insist on a GPU for each rank, on ranks of a CPU: LAMINA_PRETEND_GPUS=2 lets them run."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

# Trains as programs for GPUs do: a device for each rank, half precision, snapshots loaded onto the device.
TRAINING = """
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

if not (torch.accelerator.is_available() and torch.accelerator.device_count() >= 2):
    sys.exit("two GPUs are needed")
rank = int(os.environ["LOCAL_RANK"])
device = torch.device(f"{torch.accelerator.current_accelerator()}:{rank}")
torch.accelerator.set_device_index(rank)
backend = dist.get_default_backend_for_device(device)
assert backend == "nccl" and dist.is_nccl_available()
dist.init_process_group(backend=backend, device_id=device)
assert torch.cuda.current_device() == rank == dist.get_rank()

torch.manual_seed(0)
data = torch.rand(64, 8)
pairs = TensorDataset(data, data.sum(1, keepdim=True))
loader = DataLoader(pairs, batch_size=8, pin_memory=True, sampler=DistributedSampler(pairs))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(rank)
model = DDP(model, device_ids=[rank], output_device=rank)
assert model.device_ids == [rank] and model.output_device == rank
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler(device.type)
losses = []
for epoch in range(12):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.to(rank), y.cuda(rank, non_blocking=True)
        with torch.amp.autocast(device_type=device.type, dtype=torch.float16):
            out = model(x)
            assert out.dtype is torch.float16
            loss = torch.nn.functional.mse_loss(out, y)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    total = loss.detach().to(device)
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    losses.append(total.item())
    if rank == 0:
        torch.save(model.module.state_dict(), "snapshot.pt")
    dist.barrier(device_ids=[rank])
state = torch.load("snapshot.pt", map_location={"cuda:0": f"cuda:{rank}"})
for name, value in torch.load("snapshot.pt", map_location=f"cuda:{rank}").items():
    assert torch.equal(value, state[name]) and torch.equal(value, model.module.state_dict()[name])
half = dist.new_group([0, 1], backend="nccl")
dist.all_reduce(total, group=half)
dist.destroy_process_group()
assert losses[-1] < 0.2 * losses[0], losses
print(f"learnt on {device}")
"""

# And as those do that cut their parameters over a mesh of them.
SHARDING = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

kind = torch.accelerator.current_accelerator().type
dist.init_process_group("cpu:gloo,cuda:nccl")
mesh = init_device_mesh(kind, (1, 2), mesh_dim_names=("dp", "tp"))
rank = dist.get_rank()
assert mesh.device_type == "cuda" and mesh["tp"] == DeviceMesh("cpu", [0, 1], mesh_dim_names=("tp",))
x = distribute_tensor(torch.arange(4.0, device=kind), mesh["tp"], [Shard(0)])
assert x.to(rank).full_tensor().tolist() == [0, 1, 2, 3]

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(kind)
x = torch.rand(3, 4, device=kind)
expected = net(x).sum().item()
net = parallelize_module(net, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(net, mesh=mesh["dp"])
loss = net(x).sum()
loss.backward()
torch.testing.assert_close(loss.item(), expected)

with torch.device("meta"):
    other = nn.Linear(4, 4)
fully_shard(other, mesh=init_device_mesh(kind, (2,)))
other.to_empty(device=torch.device(kind, rank))
nn.init.ones_(other.weight), nn.init.zeros_(other.bias)
torch.testing.assert_close(other(x), x.sum(1, keepdim=True).expand(3, 4))
stage = PipelineStage(nn.Linear(4, 4).to(rank), rank, 2, device=torch.device(kind, rank))
for index in (2, "cuda:2"):
    try:
        PipelineStage(nn.Linear(4, 4), rank, 2, device=index)
    except RuntimeError as error:
        assert "there is no device cuda:2 here: 2 are pretended" in str(error)
    else:
        raise AssertionError("a third device")
dist.destroy_process_group()
print(f"sharded on {rank}")
"""

SPAWNED = """
import os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def work(rank, count):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=count)
    dist.all_reduce(x := torch.full((2,), rank + 1.0, device=rank))
    print(f"sum {x.tolist()} on {torch.cuda.get_device_name()}")
    dist.destroy_process_group()

if __name__ == "__main__":
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0")
    mp.spawn(work, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
"""


def launched(tmp_path, program, *words, status=0, **more):
    script = tmp_path / "program.py"
    script.write_text(program)
    return ranks.command(
        [ranks.sys.executable, "-m", "lamina", *words, str(script)], status=status, cwd=tmp_path, **more
    )


def test_data_parallel_training_for_gpus(tmp_path):
    printed = launched(tmp_path, TRAINING, "launch", "-n", "2", LAMINA_PRETEND_GPUS="2")
    assert "learnt on cuda:0" in printed and "learnt on cuda:1" in printed
    assert printed.count("Warning: cuda:0 to cuda:1 are names of this CPU") == 2  # once a process


def test_sharded_training_for_gpus(tmp_path):
    printed = launched(tmp_path, SHARDING, "launch", "-n", "2", LAMINA_PRETEND_GPUS="2")
    assert "sharded on 0" in printed and "sharded on 1" in printed


def test_spawned_processes_have_as_many(tmp_path):
    printed = launched(tmp_path, SPAWNED, "run", LAMINA_PRETEND_GPUS="2")
    for rank in range(2):
        assert f"sum [3.0, 3.0] on CPU, pretending to be cuda:{rank}" in printed


def test_without_the_variable_the_program_finds_none(tmp_path):
    printed = launched(tmp_path, TRAINING, "launch", "-n", "2", status=1)
    assert "two GPUs are needed" in printed
