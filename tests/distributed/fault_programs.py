"""A training on several ranks of which one fails somehow; `test_faults_of_trainings.py` starts it.

    python fault_programs.py PROGRAM FAULT WHO STEP

kill, stop: the rank WHO is signalled from outside, at any moment; steps have no end.
slow:       it sleeps between the steps, shorter than the group's timeout: all end as they should.
late:       it sleeps for longer, once.
shape:      it comes with another shape at a step.
"""

import datetime
import re
import sys
import time
import warnings
from pathlib import Path

warnings.simplefilter("error")

import lamina  # noqa: E402
import lamina.distributed as dist  # noqa: E402
from lamina import jit, nn, optim  # noqa: E402
from lamina.distributed import pipelining  # noqa: E402
from lamina.distributed.fsdp import fully_shard  # noqa: E402
from lamina.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

LATE, SLOW = 6.0, 0.2  # seconds
program, fault, who, at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
limit = 3.0 if fault in ("slow", "late") else 60.0  # whoever is gone is missed before that
dist.init_process_group(timeout=datetime.timedelta(seconds=limit))
rank, size = dist.get_rank(), dist.get_world_size()
names = re.findall(r"/dev/shm/((?:mpich_shm|sm_segment|vader)\S+)", Path("/proc/self/maps").read_text())
print("segments", *sorted(set(names)), flush=True)
lamina.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh())


def trained(model, parameters):
    optimizer = optim.Adam(parameters, lr=1e-3)

    def step(rows):
        loss = model(lamina.randn(rows, 6)).square().mean(1)  # of each row
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss)  # a rank with fewer rows gives another shape
        return loss

    return step


if program == "ddp":
    step = trained(nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.0002), net.parameters())
elif program == "traced":
    step = jit.trace(trained(nn.parallel.DistributedDataParallel(net), net.parameters()))
elif program == "fsdp":
    for layer in (net[0], net[2], net[4]):
        fully_shard(layer)
    fully_shard(net)
    step = trained(net, net.parameters())
elif program == "tensor":
    mesh = dist.init_device_mesh("cpu", (size,))
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    step = trained(net, net.parameters())
elif program == "pipeline":
    cuts = {f"{2 * i}": pipelining.SplitPoint.BEGINNING for i in range(1, size)}
    pipe = pipelining.pipeline(net, (lamina.randn(4, 6),), split_spec=cuts)
    stage = pipe.build_stage(rank)
    schedule = pipelining.Schedule1F1B(stage, 4, loss_fn=lambda y, t: (y - t).square().mean())
    optimizer = optim.Adam(stage.submod.parameters(), lr=1e-3)

    def step(rows):
        optimizer.zero_grad()
        losses = []
        schedule.step(*[lamina.randn(4 * rows, 6)] * (rank == 0), losses=losses,
                      target=lamina.zeros(4 * rows, 6) if rank == size - 1 else None)  # fmt: skip
        optimizer.step()
        seen = lamina.zeros(rows)
        dist.all_reduce(seen)
else:  # messages: round in a ring

    def step(rows):
        got = lamina.empty(size, rows)
        sent = dist.isend(lamina.ones(size, rows), (rank + 1) % size)
        dist.recv(got, (rank - 1) % size)
        sent.wait()
        assert got.sum() == rows * size


steps = 0
while fault in ("kill", "stop") or steps < at + 5:
    if steps == 2:
        print(f"here {rank}", flush=True)
    if rank == who and steps == at and fault == "late":
        time.sleep(LATE)
    if rank == who and fault == "slow":
        time.sleep(SLOW)
    step(4 if rank == who and steps == at and fault == "shape" else 5)
    steps += 1
print(f"through {rank}", flush=True)
