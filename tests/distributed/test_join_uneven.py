"""Ranks with different numbers of batches: training goes on as if who is done had nothing to add."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

BEGIN = """
from lamina.distributed.algorithms.join import Join, Joinable, JoinHook
from lamina.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
lengths = [3, 7, 5][:size]
generator = np.random.default_rng(3)
xs = generator.standard_normal((size, max(lengths), 4, 3))
ys = generator.standard_normal((size, max(lengths), 4, 2))
def made():
    lamina.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).double()
def loss_of(model, r, i):
    return ((model(lamina.tensor(xs[r, i])) - lamina.tensor(ys[r, i])) ** 2).mean()
def expected(by_all, kind):
    model = made()
    optimizer = kind(model.parameters(), lr=0.05)
    for i in range(max(lengths)):
        active = [r for r in range(size) if i < lengths[r]]
        optimizer.zero_grad()
        (sum(loss_of(model, r, i) for r in active) / (size if by_all else len(active))).backward()
        optimizer.step()
    return model
def same(a, b):
    return all(np.allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-10, atol=1e-12)
               for p, q in zip(a.parameters(), b.parameters()))
"""


@pytest.mark.parametrize("n", [2, 3])
def test_who_is_done_meets_the_others(n, tmp_path):
    printed = ranks.run(
        n,
        BEGIN
        + """
for by_all in (True, False):
    for kind, zero in ((optim.SGD, False), (optim.Adam, True)):
        model = nn.parallel.DistributedDataParallel(made(), bucket_cap_mb=0.0001)
        if zero:
            optimizer = ZeroRedundancyOptimizer(model.parameters(), kind, lr=0.05)
            block = Join([model, optimizer], divide_by_initial_world_size=by_all)
        else:
            optimizer = kind(model.parameters(), lr=0.05)
            block = model.join(divide_by_initial_world_size=by_all)
        with block:
            for i in range(lengths[rank]):
                optimizer.zero_grad()
                loss_of(model, rank, i).backward()
                optimizer.step()
        assert same(model.module, expected(by_all, kind)), (by_all, kind)
        # and as before, once all are through
        optimizer.zero_grad()
        loss_of(model, rank, 0).backward()
        got = model.module[0].weight.grad.clone()
        other = made()
        other.load_state_dict(model.module.state_dict())
        (sum(loss_of(other, r, 0) for r in range(size)) / size).backward()
        assert np.allclose(got.numpy(), other[0].weight.grad.numpy(), rtol=1e-10, atol=1e-12)
print("equal")
""",
        tmp_path,
    )
    assert printed.count("equal") == n


def test_joinables_of_a_programs_own_and_early_ends(tmp_path):
    printed = ranks.run(
        3,
        BEGIN
        + """
class CounterHook(JoinHook):
    def __init__(self, counter, sync):
        self.counter, self.sync = counter, sync
    def main_hook(self):
        seen.append(self.active)
        dist.all_reduce(lamina.zeros(1), group=self.counter.join_process_group)
    def post_hook(self, is_last_joiner):
        seen.append(is_last_joiner)
        if self.sync:
            lengths_of = [None] * size
            dist.all_gather_object(lengths_of, int(self.counter.count))
            self.counter.most = max(lengths_of)
class Counter(Joinable):
    def __init__(self):
        super().__init__()
        self.count = lamina.zeros(1)
    def __call__(self):
        work = Join.notify_join_context(self)
        if work is not None:
            told.append(int(work.result()[0]))
        t = lamina.ones(1)
        dist.all_reduce(t)
        self.count += t
    def join_hook(self, **kwargs):
        return CounterHook(self, kwargs.get("sync", False))
    join_device = property(lambda self: lamina.device("cpu"))
    join_process_group = property(lambda self: dist.group.WORLD)
seen, told = [], []
counter = Counter()
with Join([counter], sync=True):
    for _ in range(lengths[rank]):
        counter()
assert counter.most == 15 and counter.count.item() == {3: 9, 5: 13, 7: 15}[lengths[rank]]
active = [3, 3, 3, 2, 2, 1, 1]
assert told == active[: lengths[rank]], told
assert seen == active[lengths[rank] :] + [lengths[rank] == 7], seen
with Join([counter], enable=False):
    assert Join.notify_join_context(counter) is None
model = nn.parallel.DistributedDataParallel(made())
try:
    with model.join(throw_on_early_termination=True):
        for i in range(lengths[rank]):
            loss_of(model, rank, i).backward()
except RuntimeError as error:
    assert "exhausted inputs" in str(error)
    print(f"told at {i}.")
assert model._join is None
pair = dist.new_group([0, 1])
class Elsewhere(Counter):
    join_process_group = property(lambda self: pair)
for call, says in ((lambda: Join([]), "at least one"), (lambda: Join([counter, model.module]), "Joinables"),
                   (lambda: Join([counter, Elsewhere()]), "the same ranks")):
    try:
        call()
    except ValueError as error:
        assert says in str(error)
    else:
        raise AssertionError(says)
try:
    with Join([counter]):
        raise KeyError("own")
except KeyError:
    print("own error")
""",
        tmp_path,
    )
    assert printed.count("own error") == 3
    assert printed.count("told at 2.") == 1 and printed.count("told at 3.") == 2, printed


HOOKS = (
    BEGIN
    + """
from lamina.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook as power
from lamina.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
def gradients(register, dtype=lamina.float64, steps=1):
    model = nn.parallel.DistributedDataParallel(made().to(dtype), bucket_cap_mb=0.0001)
    assert len(model._reducer.averaging.buckets) > 1
    register(model)
    total = None
    for _ in range(steps):
        model.zero_grad()
        x, y = (lamina.tensor(a[rank, 0]).to(dtype) for a in (xs, ys))
        ((model(x) - y) ** 2).mean().backward()
        grads = [p.grad.double().numpy().copy() for p in model.parameters()]
        total = grads if total is None else [a + b for a, b in zip(total, grads)]
    return [t / steps for t in total]
plain = gradients(lambda model: None)
near = lambda a, b, eps: all(np.allclose(x, y, rtol=eps, atol=eps * np.abs(y).max()) for x, y in zip(a, b))
"""
)


def test_hooks_average_as_without_them(tmp_path):
    printed = ranks.run(
        2,
        HOOKS
        + """
mean = default_hooks.allreduce_hook
assert near(gradients(lambda m: m.register_comm_hook(None, mean)), plain, 1e-12)
assert near(gradients(lambda m: m.register_comm_hook(dist.group.WORLD, mean)), plain, 1e-12)
for name, eps in (("fp16", 2.0**-10), ("bf16", 2.0**-7)):
    hook = getattr(default_hooks, f"{name}_compress_hook")
    around = getattr(default_hooks, f"{name}_compress_wrapper")(mean)
    for each in (hook, around):
        got = gradients(lambda m: m.register_comm_hook(None, each), lamina.float32)
        assert near(got, plain, 2 * eps) and not near(got, plain, eps / 100), name
# PowerSGD of full rank is exact; of rank 1 it is not, and what it left out comes later
full = lambda m: m.register_comm_hook(power.PowerSGDState(None, 5, 2, 0.01), power.powerSGD_hook)
assert near(gradients(full, steps=5), plain, 1e-10)
def narrow(feedback):
    def register(m):
        state = power.PowerSGDState(None, 1, 2, 0.01, use_error_feedback=feedback)
        m.register_comm_hook(state, power.powerSGD_hook)
    return register
once = [gradients(narrow(f), steps=60) for f in (True, False)]
off = [max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(got, plain)) for got in once]
assert off[0] < 0.05 < off[1], off
late = lambda m: m.register_comm_hook(power.PowerSGDState(None, 1, 100), power.powerSGD_hook)
assert near(gradients(late, steps=3), plain, 1e-12)
# a traced step with a hook runs as it is
model = nn.parallel.DistributedDataParallel(made())
model.register_comm_hook(None, mean)
optimizer = optim.SGD(model.parameters(), lr=0.1)
x, y = lamina.tensor(xs[rank, 0]), lamina.tensor(ys[rank, 0])
@jit.trace
def step(x, y):
    optimizer.zero_grad()
    ((model(x) - y) ** 2).mean().backward()
    optimizer.step()
for _ in range(5):
    step(x, y)
other = made()
optimizer = optim.SGD(other.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    (sum(loss_of(other, r, 0) for r in range(size)) / size).backward()
    optimizer.step()
assert same(model.module, other)
assert "a hook of DistributedDataParallel" in str(step.explain()), step.explain()
for given in (dict(matrix_approximation_rank=0), dict(start_powerSGD_iter=1)):
    try:
        power.PowerSGDState(None, **given)
    except ValueError as error:
        print("refused")
""",
        tmp_path,
    )
    assert printed.count("refused") == 4


def test_models_are_averaged_now_and_then(tmp_path):
    printed = ranks.run(
        2,
        HOOKS
        + """
model, averager = made(), PeriodicModelAverager(period=2, warmup_steps=3)
others = [made() for _ in range(size)]
optimizer = optim.SGD(model.parameters(), lr=0.05)
theirs = [optim.SGD(m.parameters(), lr=0.05) for m in others]
for i in range(9):
    optimizer.zero_grad()
    loss_of(model, rank, i % 3).backward()
    optimizer.step()
    averager.average_parameters(optimizer.param_groups if i % 2 else model.parameters())
    for r, (m, o) in enumerate(zip(others, theirs)):
        o.zero_grad()
        loss_of(m, r, i % 3).backward()
        o.step()
    if i in (3, 5, 7):
        with lamina.no_grad():
            for ps in zip(*(m.parameters() for m in others)):
                mean = sum(ps) / size
                for p in ps:
                    p.copy_(mean)
    assert same(model, others[rank]), i
    apart = not np.allclose(others[0][0].weight.detach().numpy(), others[1][0].weight.detach().numpy())
    assert apart == (i not in (3, 5, 7)), i
for given in ((0,), (1, -1)):
    try:
        PeriodicModelAverager(*given)
    except ValueError:
        print("refused")
""",
        tmp_path,
    )
    assert printed.count("refused") == 4
