"""Batch norm over ranks, and samples shared among them: each against one process that has the whole batch."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

# Every program here parts one batch among ranks, and compares with one process that has all of it.
SHARES = """
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
generator = np.random.default_rng(7)
def mine(whole, counts):
    begin = sum(counts[:rank])
    return lamina.tensor(whole[begin : begin + counts[rank]])
def near(a, b, eps=1e-10):
    return np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=eps, atol=eps)
"""


@pytest.mark.parametrize("counts", [[3, 3], [5, 1], [4, 0], [2, 0, 3]])
def test_outputs_gradients_and_statistics_are_those_of_the_whole_batch(counts, tmp_path):
    ranks.run(
        len(counts),
        SHARES
        + f"counts = {counts}"
        + """
for shape, norm in (((), nn.BatchNorm1d), ((5,), nn.BatchNorm1d), ((3, 2), nn.BatchNorm2d)):
    for momentum in (0.3, None):
        for dtype, eps in ((lamina.float64, 1e-10), (lamina.float32, 1e-4)):
            lamina.manual_seed(3)
            alone = norm(4, momentum=momentum).to(dtype)
            nn.init.normal_(alone.weight); nn.init.normal_(alone.bias)
            synced = nn.SyncBatchNorm.convert_sync_batchnorm(alone.__class__(4, momentum=momentum).to(dtype))
            synced.load_state_dict(alone.state_dict())
            for step in range(3):
                # far from 0, so that a sum of squares would lose what the variance is
                far = 1e4 if dtype is lamina.float64 else 3
                whole = generator.standard_normal((sum(counts), 4, *shape)) + far
                target = generator.standard_normal(whole.shape)
                x, all_x = mine(whole, counts).to(dtype), lamina.tensor(whole, dtype=dtype)
                x.requires_grad_(), all_x.requires_grad_()
                y, all_y = synced(x), alone(all_x)
                begin = sum(counts[:rank])
                part = slice(begin, begin + counts[rank])
                assert y.dtype is dtype and y.shape == x.shape
                assert near(y, all_y[part], eps * 100), (norm, y, all_y[part])
                synced.zero_grad(), alone.zero_grad()
                (y * mine(target, counts).to(dtype)).sum().backward()
                (all_y * lamina.tensor(target, dtype=dtype)).sum().backward()
                assert near(x.grad, all_x.grad[part], eps * 100), (norm, x.grad, all_x.grad[part])
                for p, q in ((synced.weight, alone.weight), (synced.bias, alone.bias)):
                    dist.all_reduce(p.grad)
                    assert near(p.grad, q.grad, eps * 1000)
                for name, value in alone.named_buffers():
                    assert near(getattr(synced, name), value, eps), name
            synced.eval(), alone.eval()
            assert near(synced(x), alone(all_x)[part], eps)
""",
        tmp_path,
    )


def test_halves_groups_and_modes(tmp_path):
    ranks.run(
        3,
        SHARES
        + """
x = lamina.tensor(generator.standard_normal((6, 4)), dtype=lamina.bfloat16)
synced = nn.SyncBatchNorm(4, track_running_stats=False).bfloat16()
y = synced(x[2 * rank : 2 * rank + 2])
assert y.dtype is lamina.bfloat16
alone = nn.BatchNorm1d(4, track_running_stats=False)(x.float())
assert near(y.float(), alone[2 * rank : 2 * rank + 2], 2.0**-7)
# groups of some ranks; a rank that is not in one has no batch norm over it
pair = dist.new_group([0, 2])
x = lamina.tensor(generator.standard_normal((3, 4, 2)))[rank : rank + 1]
other = nn.SyncBatchNorm(4, process_group=pair).double()
if rank == 1:
    try:
        other(x)
    except ValueError as error:
        assert "not in it" in str(error)
        print("refused")
else:
    got = other(x)
    dist.all_gather(every := [lamina.empty_like(x) for _ in range(2)], x, pair)
    assert near(got, nn.BatchNorm1d(4).double()(lamina.cat(every))[rank // 2 : rank // 2 + 1])
one = nn.SyncBatchNorm(4, process_group=dist.group.WORLD).double()
assert one(x).shape == x.shape
# without statistics of its own, eval() takes the batch's on this rank, as BatchNorm does
bare = nn.SyncBatchNorm(2, track_running_stats=False).double().eval()
z = lamina.tensor(generator.standard_normal((2 + rank, 2)))
assert near(bare(z), nn.BatchNorm1d(2, track_running_stats=False).double()(z))
# a step where nobody has a value leaves the statistics
empty = nn.SyncBatchNorm(4).double()
assert empty(lamina.zeros(0, 4).double()).shape == (0, 4)
assert empty.running_mean.tolist() == [0.0] * 4 and empty.running_var.tolist() == [1.0] * 4
model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4)))
keys = list(model.state_dict())
converted = nn.SyncBatchNorm.convert_sync_batchnorm(model, pair if rank != 1 else None)
assert [type(m).__name__ for m in converted.modules()].count("SyncBatchNorm") == 2
assert list(converted.state_dict()) == keys and converted[1].weight is model[1].weight
""",
        tmp_path,
    )


TRAINING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
                                  nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                                  nn.Linear(4 * 16, 5), nn.BatchNorm1d(5))
    def forward(self, x):
        return self.body(x)
def made():
    lamina.manual_seed(11)
    return Net().double()
images = generator.standard_normal((24, 2, 6, 6))
labels = generator.integers(0, 5, 24)
"""


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_training_with_shares_of_each_batch_is_training_with_the_whole(n, tmp_path):
    """A sampler that asks the group, a loader, sync batch norm, DDP: one process's losses, traced too."""
    printed = ranks.run(
        n,
        SHARES
        + TRAINING
        + """
from lamina.utils.data import DataLoader, DistributedSampler, TensorDataset
lamina.set_num_threads(1)
data = TensorDataset(lamina.tensor(images), lamina.tensor(labels))
batch = 12
def run(model, batches, sum_up, traced):
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    if traced:
        step = jit.trace(step)
    losses = []
    for epoch in range(4):
        for x, y in batches(epoch):
            loss = step(x, y).clone()
            if sum_up:
                dist.all_reduce(loss, dist.ReduceOp.AVG)
            losses.append(loss.item())
    if traced:
        said = str(step.explain())
        assert "served 6 of 8" in said or "served 5 of 8" in said, said
    return losses
sampler = DistributedSampler(data, seed=1)
assert (sampler.num_replicas, sampler.rank) == (size, rank)
def shares(epoch):
    sampler.set_epoch(epoch)
    yield from DataLoader(data, batch // size, sampler=sampler)
def wholes(epoch):
    order = lamina.randperm(24, generator=lamina.Generator().manual_seed(1 + epoch)).tolist()
    for i in range(0, 24, batch):
        # the i-th batch of every rank, put together in the order of ranks
        at = [order[i:i + batch][r::size] for r in range(size)]
        at = [k for part in at for k in part]
        yield lamina.tensor(images[at]), lamina.tensor(labels[at])
expected = run(made(), wholes, False, False)
for traced in (False, True):
    model = nn.SyncBatchNorm.convert_sync_batchnorm(made())
    got = run(nn.parallel.DistributedDataParallel(model), shares, True, traced)
    assert np.allclose(got, expected, rtol=1e-10, atol=0), (traced, got, expected)
assert expected[-1] < expected[0]
# without it, each rank's own statistics give another training
other = run(nn.parallel.DistributedDataParallel(made()), shares, True, False)
assert not np.allclose(other, expected, rtol=1e-4)
print("equal")
""",
        tmp_path,
    )
    assert printed.count("equal") == n


def test_one_value_a_channel_over_all_ranks_is_refused_on_each(tmp_path):
    """As of BatchNorm; nobody hangs, the group can be used on, and one value on each rank is no error."""
    printed = ranks.run(
        3,
        SHARES
        + """
synced = nn.SyncBatchNorm(4).double()
before = {n: b.clone() for n, b in synced.named_buffers()}
steps = [lambda x: synced(x).sum(), jit.trace(lambda x: synced(x).sum())]
for owner in range(3):
    for step in steps:
        x = lamina.ones(int(rank == owner), 4).double()
        try:
            step(x)
        except ValueError as error:
            assert "SyncBatchNorm: a channel has one value on all ranks [0, 1, 2]" in str(error)
            assert f"f64[{int(rank == owner)},4]" in str(error) and "or call eval()" in str(error)
            print("refused", flush=True)
        y = synced.eval()(x)
        synced.train()
assert all(near(b, before[n]) for n, b in synced.named_buffers())
x = lamina.tensor(generator.standard_normal((3, 4)))
assert near(synced(x[rank : rank + 1]), nn.BatchNorm1d(4).double()(x)[rank : rank + 1])
""",
        tmp_path,
    )
    assert printed.count("refused") == 18
