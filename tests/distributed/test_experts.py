"""Experts that live on ranks: the collective that sends them tokens, and training as in one process."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")


def test_parts_of_any_size_have_gradients_of_each_order(tmp_path):
    ranks.run(
        3,
        """
import lamina.distributed.functional as F
from lamina.distributed.nn.functional import all_to_all_single
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
sizes = np.array([[2, 0, 1], [0, 0, 3], [4, 1, 1]])     # [from, to]
sent, received = sizes[rank].tolist(), sizes[:, rank].tolist()
generator = np.random.default_rng(4)
whole = [generator.standard_normal((2, sum(s), 3)) for s in sizes]
parts = [np.split(w, np.cumsum(s)[:-1], 1) for w, s in zip(whole, sizes)]
expected = np.concatenate([p[rank] for p in parts], 1)
x = lamina.tensor(whole[rank], requires_grad=True)
y = F.all_to_all_parts(x, sent, received, dim=1)
assert np.array_equal(y.detach().numpy(), expected)
weights = lamina.tensor(generator.standard_normal((2, 12, 3))[:, :1] * 0 + rank + 1)
(grad,) = lamina.autograd.grad((y**3 * weights).sum(), x, create_graph=True)
w = np.concatenate([np.full((2, n, 3), to + 1.0) for to, n in enumerate(sent)], 1)
assert np.allclose(grad.detach().numpy(), 3 * whole[rank] ** 2 * w, rtol=1e-12)
(second,) = lamina.autograd.grad(grad.sum(), x)
assert np.allclose(second.numpy(), 6 * whole[rank] * w, rtol=1e-12)
for dtype in (lamina.bool, lamina.bfloat16, lamina.int32, lamina.complex64):
    a = lamina.tensor(whole[rank] * 10).to(dtype)
    b = lamina.tensor(expected * 10).to(dtype)
    assert F.all_to_all_parts(a, sent, received, 1).tolist() == b.tolist()
flat = x.detach()[0].contiguous()
got = all_to_all_single(lamina.empty(sum(received), 3), flat, received, sent)
assert np.array_equal(got.numpy(), expected[0])
even = all_to_all_single(lamina.empty(3), lamina.arange(3.0) + 10 * rank)
assert even.tolist() == [rank + 10.0 * r for r in range(3)]
try:
    F.all_to_all_parts(x, [1, 1, 1], received, 0)
except ValueError as error:
    assert "add up to those of dim 0" in str(error)
    print("refused")
mapped = lamina.vmap(lambda t: F.all_to_all_parts(t, sent, received, 0))(lamina.tensor(whole[rank]))
assert np.array_equal(mapped.numpy(), expected)
""",
        tmp_path,
    )


MODEL = """
from lamina.distributed.experts import MixtureOfExperts, experts_of
D, E = 6, 4
def expert(i):
    lamina.manual_seed(100 + i)
    return nn.Sequential(nn.Linear(D, 8), nn.GELU(), nn.Linear(8, D))
class Net(nn.Module):
    def __init__(self, k, factor, balance, group=None):
        super().__init__()
        lamina.manual_seed(1)
        self.first = nn.Linear(3, D)
        self.mixture = MixtureOfExperts(D, E, expert, k, factor, group, return_balance=balance)
        lamina.manual_seed(2)
        self.last = nn.Linear(D, 2)
    def forward(self, x):
        h = self.first(x)
        m = self.mixture(h)
        m, balance = m if isinstance(m, tuple) else (m, 0.0)
        return self.last(h + m), balance
def dense(net, x, k, counts, factor):
    # each expert on every token, kept where it was chosen; by capacity the first of each rank's tokens
    h = net.first(x)
    p = nn.functional.softmax(net.mixture.gate(h), -1)
    w, chosen = p.topk(k, -1)
    w = w / w.sum(-1, keepdim=True) if k > 1 else w
    out = lamina.zeros_like(h)
    keep = lamina.ones(len(x), k, dtype=lamina.bool)
    if factor:
        begin = 0
        for n in counts:
            capacity = -(-factor * k * n // E)
            seen = [0] * E
            for t in range(begin, begin + n):
                for j in range(k):
                    e = int(chosen[t, j])
                    keep[t, j] = seen[e] < capacity
                    seen[e] += 1
            begin += n
        assert not keep.all(), "nothing was left out: choose a smaller factor"
    for e in range(E):
        mine = ((chosen == e) & keep) * w
        out = out + net.mixture.experts[str(e)](h) * mine.sum(-1, keepdim=True)
    return net.last(h + out)
"""

TRAIN = """
k, factor = CASE
counts = [5, 5, 5, 5][:dist_size] if factor or dist_size == 4 else [7, 2]
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
alone = dist.new_group([rank], use_local_synchronization=True)
whole = Net(k, factor, False, alone).double()
net = Net(k, factor, False).double()
assert len(net.mixture.experts) == E // size and len(whole.mixture.experts) == E
names = list(experts_of(net))
assert len(names) == 4 * E // size and all(n.startswith("mixture.experts.") for n in names)
net._ddp_params_and_buffers_to_ignore = names
model = nn.parallel.DistributedDataParallel(net)
generator = np.random.default_rng(6)
a, b = (optim.SGD(m.parameters(), lr=0.02, momentum=0.9) for m in (model, whole))
begin = sum(counts[:rank])
mine = slice(begin, begin + counts[rank])
def step(x, y, scale):
    a.zero_grad()
    # the mean over all samples, which ranks have different numbers of
    loss = ((model(x)[0] - y) ** 2).sum() * scale
    loss.backward()
    a.step()
    return loss.detach()
if TRACED:
    step = jit.trace(step)
first = None
scale = size / sum(counts)
for i in range(20):
    x, y = generator.standard_normal((sum(counts), 3)), generator.standard_normal((sum(counts), 2))
    loss = step(lamina.tensor(x[mine]), lamina.tensor(y[mine]), scale).clone()
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    b.zero_grad()
    out = dense(whole, lamina.tensor(x), k, counts, factor)
    expected = ((out - lamina.tensor(y)) ** 2).sum() / sum(counts)
    expected.backward()
    b.step()
    assert abs(loss.item() - expected.item()) < 1e-10 * abs(expected.item()), (i, loss, expected)
theirs = dict(whole.named_parameters())
for name, p in net.named_parameters():
    assert np.allclose(p.detach().numpy(), theirs[name].detach().numpy(), rtol=1e-10, atol=1e-12), name
print("equal")
if TRACED:
    print(step.explain())
"""


@pytest.mark.parametrize(
    ("n", "case", "traced"),
    [
        (2, (2, None), False),
        (2, (1, 0.75), True),
        pytest.param(4, (2, 0.75), False, marks=pytest.mark.slow),
        pytest.param(4, (1, None), False, marks=pytest.mark.slow),
        pytest.param(2, (2, None), True, marks=pytest.mark.slow),
    ],
)
def test_training_equals_one_process_with_every_expert_on_every_token(n, case, traced, tmp_path):
    source = MODEL + f"CASE, TRACED, dist_size = {case}, {traced}, {n}\n" + TRAIN
    printed = ranks.run(n, source, tmp_path)
    assert printed.count("equal") == n
    if traced and case[1]:
        assert printed.count("served 1") == n, printed  # of 20 calls all but those that were recorded
    elif traced:  # the sizes of parts come from other ranks, and Python asks for them
        said = "step: not served, because a value was asked for after a collective (all_to_all)"
        assert printed.count(said) == n, printed


def test_balance_empty_ranks_and_refusals(tmp_path):
    printed = ranks.run(
        2,
        MODEL
        + """
whole = Net(2, None, True)                       # before any group: alone
x = lamina.randn(8, 3)
out, balance = whole(x)
p = nn.functional.softmax(whole.mixture.gate(whole.first(x)), -1)
share = nn.functional.one_hot(p.argmax(-1), E).float().mean(0)
assert abs(balance.item() - E * (share * p.mean(0)).sum().item()) < 1e-5
dist.init_process_group()
rank = dist.get_rank()
net = Net(2, None, False)
mine = lamina.randn(3 * rank, 3)                 # rank 0 has no tokens, and experts all the same
out, _ = net(mine)
assert out.shape == (3 * rank, 2)
out.sum().backward()
grads = [p.grad for p in net.parameters()]
assert all(g is not None for g in grads) and all(g.isfinite().all() for g in grads)
if rank == 0:
    assert any(g.abs().sum() > 0 for g in [p.grad for p in net.mixture.experts.parameters()])
for call, says in ((lambda: MixtureOfExperts(D, 3, expert), "3 experts"),
                   (lambda: MixtureOfExperts(D, 4, expert, k=5), "5 for each token"),
                   (lambda: MixtureOfExperts(D, 4, expert, capacity_factor=0.0), "above 0"),
                   (lambda: net.mixture(lamina.ones(2, 5)), "tokens of 6 numbers")):
    try:
        call()
    except ValueError as error:
        assert says in str(error), error
    else:
        raise AssertionError(says)
print("said " + net.mixture.extra_repr())
""",
        tmp_path,
    )
    assert printed.count("said dim=6, num_experts=4, k=2, capacity_factor=None, ranks=2") == 2
