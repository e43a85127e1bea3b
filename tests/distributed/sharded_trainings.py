"""Random fully sharded trainings, held to the same in one process; run on several ranks by mpiexec.

    mpiexec -n 4 python sharded_trainings.py FIRST COUNT

Which modules are groups, when they give their parameters back, which dims are cut, what is frozen,
recomputed, called twice or not at all, how gradients accumulate, and what happens between steps is drawn
from a seed.
"""

import random
import sys
import warnings

warnings.simplefilter("error")

import numpy as np  # noqa: E402

import lamina  # noqa: E402
import lamina.distributed as dist  # noqa: E402
import lamina.nn.functional as F  # noqa: E402
from lamina import nn, optim  # noqa: E402
from lamina.distributed.fsdp import FSDPModule, fully_shard  # noqa: E402
from lamina.distributed.tensor import DTensor, Shard  # noqa: E402
from lamina.utils.checkpoint import checkpoint  # noqa: E402

ROWS, WIDTH = 12, 6  # rows part into 2, 3 and 4 ranks


class Piece(nn.Module):
    """A block of a network; drawn once, so that both networks have the same."""

    def __init__(self, rng):
        super().__init__()
        hidden = rng.choice([1, 3, 5, 8])
        self.norm = rng.choice([nn.LayerNorm, nn.RMSNorm])(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, hidden, bias=rng.random() < 0.5), nn.Linear(hidden, WIDTH)
        self.inner = Piece(rng) if rng.random() < 0.3 else None
        self.idle = nn.Linear(2, 2) if rng.random() < 0.2 else None
        self.returns = rng.choice(["tensor", "tuple", "dict"])

    def forward(self, x):
        y = self.down(F.gelu(self.up(self.norm(x))))
        if self.inner is not None:
            y = y + first(self.inner(x))
        return {"tensor": x + y, "tuple": (x + y, None), "dict": {"y": [x + y]}}[self.returns]


def first(found):
    if isinstance(found, dict):
        return found["y"][0]
    return found[0] if isinstance(found, tuple) else found


class Net(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.pieces = nn.ModuleList([Piece(rng) for _ in range(rng.randint(1, 4))])
        self.last = nn.Linear(WIDTH, 3)
        self.recomputed = {i for i in range(len(self.pieces)) if rng.random() < 0.3}
        self.twice = {i for i in range(len(self.pieces)) if rng.random() < 0.2}

    def forward(self, x):
        for i, piece in enumerate(self.pieces):
            for _ in range(1 + (i in self.twice)):
                x = first(checkpoint(piece, x, use_reentrant=False) if i in self.recomputed else piece(x))
        return self.last(x)


def build(seed):
    lamina.manual_seed(seed)
    return Net(random.Random(seed)).double()


def cut(net, rng, mesh):
    """Make groups of some modules."""
    by_longest = rng.random() < 0.3

    def longest(p):
        return Shard(max(range(p.ndim), key=lambda d: p.shape[d])) if by_longest else None

    for m in reversed(list(net.modules())):
        if isinstance(m, Piece) and rng.random() < 0.6 or isinstance(m, nn.Linear) and rng.random() < 0.2:
            flag = rng.choice([None, True, False])
            fully_shard(m, mesh=mesh, reshard_after_forward=flag, shard_placement_fn=longest)
    fully_shard(net, mesh=mesh, reshard_after_forward=rng.choice([None, True, False]))
    groups = [m for m in net.modules() if isinstance(m, FSDPModule)]
    for m in groups:
        if rng.random() < 0.2:
            m.set_reshard_after_backward(False)
        if rng.random() < 0.2:
            m.set_modules_to_forward_prefetch(rng.sample(groups, min(2, len(groups))))
            m.set_modules_to_backward_prefetch(rng.sample(groups, min(2, len(groups))))
    return net


def whole(p):
    return p.full_tensor() if isinstance(p, DTensor) else p


def trial(seed, mesh, parts, number):
    rng, arrays = random.Random(seed), np.random.default_rng(seed)
    plain, net = build(seed), cut(build(seed), rng, mesh)
    for (_, p), (_, q) in zip(plain.named_parameters(), net.named_parameters(), strict=True):
        if rng.random() < 0.15:
            p.requires_grad_(False)
            q.requires_grad_(False)
    make = rng.choice([lambda p: optim.SGD(p, 0.05, momentum=0.9), lambda p: optim.AdamW(p, 0.02, eps=1e-2)])
    ours, theirs = (make([p for p in m.parameters() if p.requires_grad]) for m in (net, plain))
    kept = None
    for step in range(4):
        micro = rng.choice([1, 1, 2])
        last_alone = rng.random() < 0.5
        for i in range(micro):
            x, y = arrays.standard_normal((ROWS, WIDTH)), arrays.integers(0, 3, ROWS)
            net.set_requires_gradient_sync(not last_alone or i == micro - 1)
            mine = slice(ROWS // parts * number, ROWS // parts * (number + 1))
            losses = []
            for m, rows in ((plain, slice(None)), (net, mine)):
                losses.append(F.cross_entropy(m(lamina.tensor(x[rows])), lamina.tensor(y[rows])))
                losses[-1].backward()
            kept = losses if rng.random() < 0.5 else None  # its history lives on
        if rng.random() < 0.3:  # its backward never comes, and the outermost module stays open
            net(lamina.ones(2, WIDTH, dtype=lamina.float64))
        for opt in (theirs, ours):
            nn.utils.clip_grad_norm_([p for group in opt.param_groups for p in group["params"]], 1.0)
            opt.step()
            opt.zero_grad(set_to_none=step % 2 == 0)
        what = rng.choice(["nothing", "eval", "state", "unshard"])
        if what == "eval":
            with lamina.no_grad():
                x = lamina.tensor(arrays.standard_normal((3, WIDTH)))
                assert np.allclose(net(x).numpy(), plain(x).numpy(), rtol=1e-9, atol=1e-12), seed
        elif what == "state":
            state = {k: v.detach().clone() for k, v in net.state_dict().items()}
            net.load_state_dict(state)
            ours.load_state_dict(ours.state_dict())
        elif what == "unshard":
            some = rng.choice([m for m in net.modules() if isinstance(m, FSDPModule)])
            handle = some.unshard(async_op=True)
            if rng.random() < 0.5:
                handle.wait()
                some.reshard()
    for m in net.modules():
        if isinstance(m, FSDPModule):
            m.reshard()
    for (name, p), (_, q) in zip(net.named_parameters(), plain.named_parameters(), strict=True):
        apart = (whole(p) - q).abs().max().item() / max(1.0, q.abs().max().item())
        assert apart < 1e-10, (seed, name, apart)
    return kept


def main(first_seed, count):
    dist.init_process_group()
    size, rank = dist.get_world_size(), dist.get_rank()
    meshes = [dist.init_device_mesh("cpu", (size,))]
    if size == 4:
        meshes.append(dist.init_device_mesh("cpu", (2, 2)))
    for seed in range(first_seed, first_seed + count):
        trial(seed, meshes[seed % len(meshes)], size, rank)
    print(f"{count} trainings agree")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
