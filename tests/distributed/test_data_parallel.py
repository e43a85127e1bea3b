"""DistributedDataParallel: steps on parts of batches are those of one process on the whole; its corners."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

EQUAL = """
from lamina.nn import functional as F
from lamina.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.calls = heads, 0
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        grown = nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), *grown)
    def forward(self, x):
        self.calls += 1
        n, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, d))
        return x + self.mlp(x)

def gpt():
    return nn.Sequential(nn.Embedding(11, 16), Block(16, 2), Block(16, 2), nn.Linear(16, 11))

def convnet():
    first = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU()
    second = nn.Conv2d(8, 8, 3, stride=2), nn.GroupNorm(2, 8), nn.ReLU()
    return nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

def losses(make, batch, distributed, traced, steps, **how):
    lamina.manual_seed(4)
    net = make().double()
    model = DDP(net, **how) if distributed else net
    optimizer = optim.AdamW(net.parameters(), lr=3e-3)
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        loss = loss.detach()
        if distributed:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        return loss
    run = jit.trace(step) if traced else step
    generator = np.random.default_rng(9)
    found = []
    for _ in range(steps):
        x, y = batch(generator)
        part = slice(rank, None, size) if distributed else slice(None)
        found.append(run(lamina.tensor(x[part]), lamina.tensor(y[part])).item())
    if traced and distributed:
        assert int(str(run.explain()).split("served ")[1].split()[0]) >= steps - 4, run.explain()
    return np.array(found)

CASES = {
    "gpt": (gpt, lambda g: (g.integers(0, 11, (8, 6)), g.integers(0, 11, (8, 6)))),
    "convnet": (convnet, lambda g: (g.standard_normal((8, 3, 9, 9)), g.integers(0, 5, (8,)))),
}
for name, (make, batch) in CASES.items():
    one = losses(make, batch, False, False, STEPS)
    for traced in (False, True):
        for how in ({}, {"bucket_cap_mb": 0.004}, {"gradient_as_bucket_view": True}):
            if traced and "gradient_as_bucket_view" in how:
                continue
            far = np.abs(losses(make, batch, True, traced, STEPS, **how) / one - 1).max()
            # float64: sums over the batch in another order, and STEPS steps that follow from them
            assert far < 1e-10, (name, traced, how, far)
assert one[-1] < one[0]
print("equal")
"""


@pytest.mark.parametrize(
    ("n", "steps"),
    [(2, 12), pytest.param(2, 50, marks=pytest.mark.slow), pytest.param(4, 50, marks=pytest.mark.slow),
     pytest.param(8, 50, marks=pytest.mark.slow)],
)  # fmt: skip
def test_losses_are_those_of_one_process(n, steps, tmp_path):
    assert ranks.run(n, f"STEPS = {steps}\n" + EQUAL, tmp_path, timeout=500).count("equal") == n


def test_its_corners(tmp_path):
    ranks.run(
        2,
        """
        from lamina.nn.parallel import DistributedDataParallel as DDP
        try:
            DDP(nn.Linear(2, 2))
        except ValueError as error:
            assert "init_process_group" in str(error)
        dist.init_process_group()
        rank, size = dist.get_rank(), dist.get_world_size()
        from lamina.distributed.tensor.parallel import ColwiseParallel, parallelize_module
        mesh = dist.init_device_mesh("cpu", (2,))
        cut = parallelize_module(nn.Sequential(nn.Linear(2, 2)), mesh, {"0": ColwiseParallel()})
        for wrong, says in ((lambda: DDP(nn.ReLU()), "any parameter that requires a gradient"),
                            (lambda: DDP(nn.Linear(2, 2), device_ids=[0]), "device_ids=[0]"),
                            (lambda: DDP(cut), "0.weight is a distributed tensor, of which ranks have")):
            try:
                wrong()
            except ValueError as error:
                assert says in str(error), error
                continue
            raise AssertionError("not refused")
        # parameters and buffers begin as the first rank's, keys are those of the wrapped module
        lamina.manual_seed(rank)
        net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
        model = DDP(net)
        every = [None] * size
        dist.all_gather_object(every, net[0].weight.tolist())
        assert every[0] == every[1] and next(iter(model.state_dict())) == "module.0.weight"
        x = lamina.randn(4, 3).double()
        for _ in range(3):
            model(x).sum().backward()
        model(x)
        # no_sync: gradients add up on each rank, and are averaged by the next backward
        net = nn.Linear(3, 2).double()
        model = DDP(net)
        with model.no_sync():
            model(x).sum().backward()
        mine = net.weight.grad.clone()
        model(x).sum().backward()
        dist.all_reduce(mine.mul_(2))
        assert np.allclose((mine / size).numpy(), net.weight.grad.numpy(), rtol=1e-14)
        # parameters that some ranks or none use
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
            def forward(self, x, first):
                return (self.a if first else self.b)(x)
        two = DDP(Two(), find_unused_parameters=True)
        for _ in range(3):
            two.zero_grad()
            two(lamina.ones(1, 2), rank == 0).sum().backward()
            assert two.module.c.weight.grad is None
            assert two.module.a.weight.grad.tolist() == two.module.b.weight.grad.tolist() == [[0.5] * 2] * 2
        two = DDP(Two())
        two(lamina.ones(1, 2), True).sum().backward()
        try:
            two(lamina.ones(1, 2), True)
        except RuntimeError as error:
            assert "b.weight" in str(error) and "find_unused_parameters=True" in str(error)
        else:
            raise AssertionError("not refused")
        # ranks with other numbers of batches
        for by_all in (True, False):
            net = nn.Linear(2, 1).double()
            model = DDP(net)
            optimizer = optim.SGD(net.parameters(), lr=0.1)
            seen = []
            with model.join(divide_by_initial_world_size=by_all):
                for i in range(2 + 2 * rank):
                    optimizer.zero_grad()
                    model(lamina.ones(1, 2).double() * (rank + 1)).sum().backward()
                    optimizer.step()
                    seen.append(net.weight.grad[0, 0].item())
            dist.all_gather_object(every, net.weight.tolist())
            assert every[0] == every[1]
            alone = 1.0 if by_all else 2.0
            assert seen == [1.5] * 2 + [alone] * 2 * rank, seen
        # a hook of the user's
        calls = []
        model = DDP(nn.Linear(2, 2))
        def hook(state, bucket):
            state.append((bucket.index(), bucket.is_last(), tuple(bucket.buffer().shape)))
            return dist.all_reduce(bucket.buffer().div_(size), async_op=True).get_future()
        model.register_comm_hook(calls, hook)
        model(lamina.ones(1, 2) * (rank + 1)).sum().backward()
        assert calls == [(0, True, (6,))] and model.module.weight.grad.tolist() == [[1.5] * 2] * 2
        # modules that differ
        try:
            DDP(nn.Linear(2 + rank, 2))
        except RuntimeError as error:
            assert "rank 0: weight: f32[2,2]" in str(error) and "rank 1: weight: f32[2,3]" in str(error)
        else:
            raise AssertionError("not refused")
        """,
        tmp_path,
    )


def test_a_traced_step_sees_what_the_module_does_in_python(tmp_path):
    ranks.run(
        2,
        """
        from lamina.nn.parallel import DistributedDataParallel as DDP
        dist.init_process_group()
        class Counting(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear, self.calls, self.double = nn.Linear(2, 2), 0, False
            def forward(self, x):
                self.calls += 1
                return self.linear(x) * 2 if self.double else self.linear(x)
        net = Counting()
        model = DDP(net)
        optimizer = optim.SGD(net.parameters(), lr=0.0)
        @jit.trace
        def step(x):
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            return loss
        for i in range(5):
            one = step(lamina.ones(1, 2)).item()
        assert net.calls == 5 and "served 3 of 5" in str(step.explain()), step.explain()
        net.double = True
        assert abs(step(lamina.ones(1, 2)).item() - 2 * one) < 1e-5
        # as PyTorch's: what is computed under no_sync stays on the rank
        with model.no_sync():
            step(lamina.ones(1, 2) * (dist.get_rank() + 1))
        assert net.linear.bias.grad.tolist() == [2.0, 2.0]
        assert net.linear.weight.grad.tolist() == [[2.0 * (dist.get_rank() + 1)] * 2] * 2
        """,
        tmp_path,
    )


def test_a_backward_that_ends_in_an_error_leaves_the_next_one_right(tmp_path):
    """What it had sent is on its way, from the memory that the next gradients go into."""
    printed = ranks.run(
        2,
        """
        import time
        from lamina.nn.parallel import DistributedDataParallel as DDP
        dist.init_process_group()
        lamina.manual_seed(0)
        net = nn.Sequential(*[nn.Linear(150, 150) for _ in range(3)]).double()
        model = DDP(net, bucket_cap_mb=0.19)
        def fails(grad):
            raise KeyError("in the middle")
        handle = net[0].bias.register_hook(fails)
        x = lamina.ones(4, 150).double() * (dist.get_rank() + 1)
        time.sleep(0.5 * dist.get_rank())  # the first has sent its gradients, and goes on
        try:
            model(x * 100).sum().backward()
        except KeyError:
            print("failed")
        handle.remove()
        time.sleep(0.5 * dist.get_rank())
        net.zero_grad()
        model(x).sum().backward()
        found = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        net(lamina.ones(4, 150).double() * 1.5).sum().backward()
        assert all(np.allclose(g.numpy(), p.grad.numpy(), rtol=1e-12)
                   for g, p in zip(found, net.parameters()))
        # the same backward, gone through again
        handle = net[0].bias.register_hook(fails)
        loss = model(x).sum()
        try:
            loss.backward(retain_graph=True)
        except KeyError:
            handle.remove()
        net.zero_grad()
        loss.backward()
        assert all(np.allclose(g.numpy(), p.grad.numpy(), rtol=1e-12)
                   for g, p in zip(found, net.parameters()))
        """,
        tmp_path,
    )
    assert printed.count("failed") == 2


def test_copies_average_by_themselves(tmp_path):
    """deepcopy, as averages of weights are made, a pickle, and a module that left its wrapper."""
    printed = ranks.run(
        2,
        """
        import copy, pickle
        from lamina.nn.parallel import DistributedDataParallel as DDP
        from lamina.optim.swa_utils import AveragedModel
        dist.init_process_group()
        rank = dist.get_rank()
        net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).double()
        alone = dist.new_group([0]), dist.new_group([1])
        x = lamina.randn(2, 4, 3, generator=lamina.Generator().manual_seed(1)).double()
        def gradient(model):
            model(x[rank]).square().sum().backward()
            return model.module[0].weight.grad
        model = DDP(net, bucket_cap_mb=0.5)
        expected = gradient(model).clone()
        if rank == 0:  # nobody is met
            copied, text = copy.deepcopy(model), pickle.dumps(model)
        else:
            copied, text = copy.deepcopy(model), pickle.dumps(model)
        for other in (copied, pickle.loads(text), AveragedModel(model).module):
            other.zero_grad()
            assert lamina.equal(other.module[0].weight, net[0].weight) and other.module is not net
            assert np.allclose(gradient(other).numpy(), expected.numpy(), rtol=1e-12)
        net.zero_grad()
        inside = DDP(net, process_group=alone[rank])
        assert copy.deepcopy(inside).process_group is alone[rank]
        copy.deepcopy(net)(x[rank]).sum().backward()
        print("averaged")
        """,
        tmp_path,
    )
    assert printed.count("averaged") == 2
