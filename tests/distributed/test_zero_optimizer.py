"""States of an optimizer on ranks: the same parameters as one process's, a share of the memory."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

BEGIN = """
from lamina.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
generator = np.random.default_rng(3)
xs, ys = generator.standard_normal((20, 2 * size, 6)), generator.standard_normal((20, 2 * size, 4))
def made():
    lamina.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4)).double()
def groups(model):
    return [{"params": [p for n, p in model.named_parameters() if "weight" in n], "weight_decay": 0.1},
            {"params": [p for n, p in model.named_parameters() if "weight" not in n], "lr": 0.02}]
def same(a, b):
    return all(np.allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-10, atol=1e-12)
               for p, q in zip(a.parameters(), b.parameters()))
"""

TRAIN = """
def train(model, optimizer, ranges, mine, traced=False):
    scheduler = optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()
    if traced:
        step = jit.trace(step)
    for i in ranges:
        part = slice(2 * rank, 2 * rank + 2) if mine else slice(None)
        step(lamina.tensor(xs[i, part]), lamina.tensor(ys[i, part]))
        scheduler.step()
    return step
"""


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_training_and_states_are_those_of_one_process(n, tmp_path):
    printed = ranks.run(
        n,
        BEGIN
        + TRAIN
        + """
for kind, settings in ((optim.AdamW, dict(lr=0.01)), (optim.SGD, dict(lr=0.05, momentum=0.9)),
                       (optim.Adagrad, dict(lr=0.05))):
    alone = made()
    reference = kind(groups(alone), **settings)
    train(alone, reference, range(10), False)
    model = nn.parallel.DistributedDataParallel(made())
    optimizer = ZeroRedundancyOptimizer(groups(model), kind, **settings)
    train(model, optimizer, range(10), True)
    assert same(alone, model.module), kind
    own = [p for p in model.parameters() if p in optimizer.state and optimizer.state[p]]
    sizes = [None] * size
    dist.all_gather_object(sizes, (len(own), sum(p.numel() for p in own)))
    assert sum(n for n, _ in sizes) == 6
    assert sum(n for _, n in sizes) == sum(p.numel() for p in model.parameters())
    assert max(n for _, n in sizes) <= 112, sizes            # of 212, in pieces of at most 96
    try:
        optimizer.state_dict()
    except RuntimeError as error:
        assert "consolidate_state_dict" in str(error)
    optimizer.consolidate_state_dict(to=1)
    if rank == 1:
        saved = optimizer.state_dict()
        wanted = reference.state_dict()
        assert list(saved["state"]) == list(wanted["state"]) == list(range(6))
        assert [g["lr"] for g in saved["param_groups"]] == [g["lr"] for g in wanted["param_groups"]]
        for i, state in wanted["state"].items():
            for name, value in state.items():
                if value is not None:
                    ours = np.asarray(saved["state"][i][name])
                    assert np.allclose(ours, np.asarray(value), rtol=1e-10), name
    # from one process's file, and on from there
    again = nn.parallel.DistributedDataParallel(made())
    again.module.load_state_dict(alone.state_dict())
    other = ZeroRedundancyOptimizer(groups(again), kind, **settings)
    other.load_state_dict(reference.state_dict())
    assert sum(bool(other.state.get(p)) for p in again.parameters()) == len(own)
    train(alone, reference, range(10, 20), False)
    train(again, other, range(10, 20), True)
    assert same(alone, again.module), kind
print("equal")
""",
        tmp_path,
    )
    assert printed.count("equal") == n


def test_traced_steps_follow_schedules(tmp_path):
    printed = ranks.run(
        2,
        BEGIN
        + TRAIN
        + """
alone = made()
train(alone, optim.AdamW(groups(alone), lr=0.01), range(20), False)
model = nn.parallel.DistributedDataParallel(made())
step = train(model, ZeroRedundancyOptimizer(groups(model), optim.AdamW, lr=0.01), range(20), True, True)
said = str(step.explain())
assert "served 1" in said and "not served" not in said, said
assert same(alone, model.module)
print("equal")
""",
        tmp_path,
    )
    assert printed.count("equal") == 2, printed


def test_groups_that_come_later_closures_and_refusals(tmp_path):
    printed = ranks.run(
        2,
        BEGIN
        + """
alone, model = made(), made()
reference = optim.Adam(alone[0].parameters(), lr=0.1)
optimizer = ZeroRedundancyOptimizer(model[0].parameters(), optim.Adam, lr=0.1)
for o, m in ((reference, alone), (optimizer, model)):
    o.add_param_group({"params": m[3].parameters(), "lr": 0.01})
assert isinstance(optimizer, optim.Optimizer) and len(optimizer.param_groups) == 2
x, y = lamina.tensor(xs[0]), lamina.tensor(ys[0])
seen = []
optimizer.register_step_post_hook(lambda *_: seen.append(1))
for _ in range(3):
    losses = []
    for o, m in ((reference, alone), (optimizer, model)):
        def closure():
            o.zero_grad()
            loss = ((m(x) - y) ** 2).mean()
            loss.backward()
            return loss
        losses.append(o.step(closure).item())
    assert abs(losses[0] - losses[1]) < 1e-12
assert same(alone, model) and seen == [1] * 3
assert all(p.grad is not None for p in model[0].parameters())      # which stay those that backward made
for kind, more, says in ((optim.LBFGS, {}, "all parameters together"), ("Adam", {}, "an Optimizer"),
                         (optim.Adam, {"overlap_with_ddp": True}, "leave")):
    try:
        ZeroRedundancyOptimizer(model.parameters(), kind, **more)
    except (ValueError, TypeError) as error:
        assert says in str(error), error
        print("refused")
""",
        tmp_path,
    )
    assert printed.count("refused") == 6
