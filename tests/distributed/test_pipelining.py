"""Pipelines: schedules on paper, modules cut into stages, and training that equals one process's."""

import pytest
import ranks
from hypothesis import given
from hypothesis import strategies as st

import lamina
from lamina import nn
from lamina.distributed.pipelining import SplitPoint, get_schedule_class, pipeline, timetable
from lamina.distributed.pipelining.microbatch import TensorChunkSpec, cut_all, merged
from lamina.distributed.pipelining.timetable import BACKWARD, FORWARD, Action, Timetable

# ---- on paper ----------------------------------------------------------------------------------------------
SHOWN = """\
1F1B: 3 stages on 3 ranks, 4 microbatches; a backward takes two forwards
rank 0   F0 F1 F2 .  .  .  .  B0----F3 B1----.  B2----.  B3----
rank 1   .  F0 F1 .  .  B0----F2 B1----F3 B2----.  B3----.  .
rank 2   .  .  F0 B0----F1 B1----F2 B2----F3 B3----.  .  .  .
idle: 33 % of 18 units; activations held: 3, 2, 1"""
MAKERS = {
    "gpipe": timetable.gpipe,
    "1f1b": timetable.one_forward_one_backward,
    "looped": timetable.looped,
    "interleaved": timetable.interleaved,
}


def table(name, ranks, microbatches, own=1):
    return Timetable(name, ranks, ranks * own, microbatches, MAKERS[name](ranks, ranks * own, microbatches))


def test_schedule_is_drawn():
    orders = timetable.one_forward_one_backward(3, 3, 4)
    assert Timetable("1F1B", 3, 3, 4, orders).show() == SHOWN
    assert "2F1-" not in table("looped", 2, 2, 2).show() and " 2F1 " in table("looped", 2, 2, 2).show()


@given(st.sampled_from(sorted(MAKERS)), st.integers(1, 6), st.integers(1, 9), st.integers(1, 3))
def test_schedules_do_all_in_an_order_that_ends(name, ranks, microbatches, own):
    own = own if name in ("looped", "interleaved") else 1
    if name == "interleaved" and microbatches % max(1, microbatches // ranks):
        with pytest.raises(ValueError, match="don't part into"):
            table(name, ranks, microbatches, own)
        return
    made = table(name, ranks, microbatches, own)
    done = [action for order in made.orders for action in order]
    stages = range(ranks * own)
    assert len(done) == len(set(done)) == 2 * ranks * own * microbatches
    assert {(a.kind, a.stage, a.microbatch) for a in done} == {
        (kind, s, i) for kind in (FORWARD, BACKWARD) for s in stages for i in range(microbatches)
    }
    assert all(a.stage % ranks == rank for rank, order in enumerate(made.orders) for a in order)
    # a link carries microbatches in the order in which both its ends go: the messages have no numbers
    for kind in (FORWARD, BACKWARD):
        for s in stages:
            each = [a.microbatch for a in made.orders[s % ranks] if (a.kind, a.stage) == (kind, s)]
            assert each == list(range(microbatches))


def test_bubbles_and_memory_are_those_of_the_papers():
    for n in (2, 4, 6):
        for rounds in (1, 2, 4):
            m = n * rounds
            bubble = (n - 1) / (m + n - 1)  # Huang et al., 2019, section 2.3
            assert table("gpipe", n, m).idle() == pytest.approx(bubble)
            assert table("1f1b", n, m).idle() == pytest.approx(bubble)
            for own in (2, 3):  # Narayanan et al., 2021, section 2.2: own times smaller
                smaller = (n - 1) / own / (m + (n - 1) / own)
                assert table("interleaved", n, m, own).idle() == pytest.approx(smaller)
            assert [table("gpipe", n, m).held(r) for r in range(n)] == [m] * n
            assert [table("1f1b", n, m).held(r) for r in range(n)] == list(range(n, 0, -1))


def test_orders_that_never_end_are_refused():
    orders = timetable.gpipe(2, 2, 1)
    orders[0].reverse()
    with pytest.raises(ValueError, match="wait for each other for ever"):
        Timetable("mine", 2, 2, 1, orders)
    assert Action(FORWARD, 0, 0) in timetable.forwards(orders)[0]


def test_microbatches_are_cut_and_put_together():
    x, y = lamina.arange(12).reshape(6, 2), lamina.arange(12).reshape(2, 6)
    parts = cut_all((x, y, "same"), (None, TensorChunkSpec(1), None), 3)
    assert [p[0].tolist() for p in parts] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    assert [tuple(p[1].shape) for p in parts] == [(2, 2)] * 3 and parts[2][2] == "same"
    assert merged([p[1] for p in parts], TensorChunkSpec(1)).tolist() == y.tolist()
    got = merged([(p[0], p[1]) for p in parts], (TensorChunkSpec(0), TensorChunkSpec(1)))
    assert got[0].tolist() == x.tolist() and got[1].tolist() == y.tolist()
    with pytest.raises(ValueError, match="parts into 4 microbatches"):
        cut_all((x,), None, 4)
    assert get_schedule_class("1f1b") is get_schedule_class("Schedule1F1B")
    with pytest.raises(ValueError, match="GPipe, 1F1B, Interleaved1F1B"):
        get_schedule_class("ZBV")


# ---- cutting -----------------------------------------------------------------------------------------------
class Nested(nn.Module):
    """Chains within chains, and a loop over a list."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        x = self.body(x)
        for layer in self.layers:
            x = layer(x)
        return x


def test_stages_keep_names_and_make_the_module_again():
    module, x = Nested(), lamina.randn(2, 3)
    begin, end = SplitPoint.BEGINNING, SplitPoint.END
    pipe = pipeline(module, (x,), split_spec={"body.2.1": begin, "layers.1": end, "layers.0": begin})
    assert str(pipe) == (
        "Pipe(Nested, 4 stages)\n"
        "  0: body.0, body.1, body.2.0\n"
        "  1: body.2.1\n"
        "  2: layers.0, layers.1\n"
        "  3: layers.2"
    )
    parts = [pipe.get_stage_module(i) for i in range(4)]
    keys = [list(part.state_dict()) for part in parts]
    assert keys[2] == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]
    assert [k for part in keys for k in part] == list(module.state_dict())
    y = x
    for part in parts:
        y = part(y)
    assert lamina.equal(y, module(x)) and parts[0].get_parameter("body.0.weight") is module.body[0].weight
    assert pipeline(module, (x,)).num_stages == 1
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def broken(change):
    class Broken(Nested):
        def __init__(self):
            super().__init__()
            self.more = nn.Linear(4, 4)
            if change == "parameter":
                self.scale = nn.Parameter(lamina.ones(4))
            if change == "tied":
                self.layers[2].weight = self.layers[0].weight

        def forward(self, x):
            y = self.body(x)
            if change == "between":
                y = y * 2
            for layer in self.layers:
                y = layer(y)
            if change == "twice":
                y = self.layers[0](y)
            if change == "named":
                y = self.more(input=y)
            return y + 1 if change == "end" else y if change == "unused" else self.more(y)

    return Broken()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("between", "no chain between 'body' and 'layers.0'"),
        ("end", "no chain between 'layers.2' and its output"),
        ("parameter", "has scale of its own"),
        ("twice", "'layers.0' is called twice"),
        ("tied", "would share 'layers.0.weight' and 'layers.2.weight'"),
        ("named", "calls 'more' with named arguments"),
        ("unused", "'more.weight' is in no stage"),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(change, says):
    with pytest.raises(ValueError, match=says):
        pipeline(broken(change), (lamina.randn(2, 3),), split_spec={"layers.1": SplitPoint.BEGINNING})


def test_split_spec_is_checked():
    x = lamina.randn(2, 3)
    with pytest.raises(ValueError, match="no submodule 'nowhere'"):
        pipeline(Nested(), (x,), split_spec={"nowhere": SplitPoint.BEGINNING})
    with pytest.raises(TypeError, match="a SplitPoint"):
        pipeline(Nested(), (x,), split_spec={"body": 1})
    with pytest.raises(ValueError, match="'layers' is not called"):
        pipeline(Nested(), (x,), split_spec={"layers": SplitPoint.BEGINNING})
    with pytest.raises(ValueError, match="'layers.0' \\(Linear\\) calls no submodule|no submodule"):
        pipeline(Nested(), (x,), split_spec={"layers.0.weight": SplitPoint.BEGINNING})


# ---- on ranks ----------------------------------------------------------------------------------------------
GPT = """
from lamina.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, SplitPoint, pipeline,
                                           ScheduleInterleaved1F1B, ScheduleLoopedBFS)
F = nn.functional
V, D, T = 11, 8, 6
class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
    def forward(self, tokens):
        return self.tok(tokens) + self.pos.weight
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
    def forward(self, x):
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (y.reshape(len(x), T, 2, D // 2).transpose(1, 2) for y in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(len(x), T, D))
        return x + self.mlp(self.norm2(x))
class GPT(nn.Module):
    def __init__(self, blocks=4):
        super().__init__()
        self.embed = Embed()
        self.layers = nn.ModuleList(Block() for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V)
    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
def made():
    lamina.manual_seed(5)
    return GPT().double()
def criterion(output, target):
    return F.cross_entropy(output.reshape(-1, V), target.reshape(-1))
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
generator = np.random.default_rng(2)
tokens = lamina.tensor(generator.integers(0, V, (20, 8, T)))
targets = lamina.tensor(generator.integers(0, V, (20, 8, T)))
def alone():
    model = made()
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x, y in zip(tokens, targets):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses
def same_parameters(model, modules):
    whole = dict(model.named_parameters())
    for module in modules:
        for name, p in module.named_parameters():
            q = whole[name.removeprefix("module.")]
            assert np.allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-10, atol=1e-10), name
"""

TRAIN = """
cuts = {f"layers.{4 // count * i}": SplitPoint.BEGINNING for i in range(1, count)}
pipe = pipeline(made(), (tokens[0, :2],), split_spec=cuts)
assert pipe.num_stages == count, pipe
own = [pipe.build_stage(i, "cpu") for i in range(rank, count, size)]
several = Schedule in (ScheduleInterleaved1F1B, ScheduleLoopedBFS)
schedule = Schedule(own if several else own[0], 4, loss_fn=criterion)
optimizer = optim.AdamW([p for s in own for p in s.submod.parameters()], lr=0.01)
got, last = [], (count - 1) % size
for x, y in zip(tokens, targets):
    optimizer.zero_grad()
    losses = ["what was there"]
    args = (x,) if rank == 0 else ()
    out = schedule.step(*args, target=y if rank == last else None, losses=losses)
    optimizer.step()
    if rank == last:
        assert out.shape == (8, T, V) and len(losses) == 4 and not out.requires_grad
        got.append(lamina.stack(losses).mean().item())
    else:
        assert out is None
model, expected = alone()
same_parameters(model, [s.submod for s in own])
if rank == last:
    assert np.allclose(got, expected, rtol=1e-10, atol=0), (got, expected)
    assert got[-1] < got[0]
out = schedule.eval(*((tokens[0],) if rank == 0 else ()))
if rank == last:
    assert np.allclose(out.numpy(), model(tokens[0]).detach().numpy(), rtol=1e-9, atol=1e-9)
print("equal")
"""


@pytest.mark.parametrize(
    ("n", "name", "stages"),
    [
        (2, "ScheduleInterleaved1F1B", 4),
        pytest.param(4, "Schedule1F1B", 4, marks=pytest.mark.slow),
        pytest.param(2, "ScheduleGPipe", 2, marks=pytest.mark.slow),
        pytest.param(4, "ScheduleGPipe", 4, marks=pytest.mark.slow),
        pytest.param(2, "Schedule1F1B", 2, marks=pytest.mark.slow),
        pytest.param(2, "ScheduleLoopedBFS", 4, marks=pytest.mark.slow),
        pytest.param(1, "ScheduleInterleaved1F1B", 2, marks=pytest.mark.slow),
    ],
)
def test_a_gpt_in_stages_trains_as_in_one_process(n, name, stages, tmp_path):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    printed = ranks.run(n, GPT + f"count, Schedule = {stages}, {name}" + TRAIN, tmp_path)
    assert printed.count("equal") == n


@pytest.mark.slow
def test_a_mesh_of_pipelines_that_average_their_gradients(tmp_path):
    """2 x 2: two pipelines of two stages, each with half of a batch; DDP averages once a step."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    printed = ranks.run(
        4,
        GPT
        + """
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
pipe = pipeline(made(), (tokens[0, :2],), split_spec={"layers.2": SplitPoint.BEGINNING})
group, number = mesh.get_group("pp"), mesh.get_local_rank("pp")
stage = pipe.build_stage(number, group=group)
wrapped = nn.parallel.DistributedDataParallel(stage.submod, process_group=mesh.get_group("dp"))
stage = PipelineStage(wrapped, number, 2, group=group)
sent = []
Averaging = type(wrapped._reducer.averaging)
begin = Averaging.send
Averaging.send = lambda self, bucket: (sent.append(bucket.index), begin(self, bucket))[1]
schedule = Schedule1F1B(stage, 2, loss_fn=criterion)
optimizer = optim.AdamW(wrapped.parameters(), lr=0.01)
half = slice(4 * mesh.get_local_rank("dp"), 4 * mesh.get_local_rank("dp") + 4)
got = []
for step, (x, y) in enumerate(zip(tokens, targets)):
    optimizer.zero_grad()
    losses = []
    schedule.step(*((x[half],) if number == 0 else ()), target=y[half] if number else None, losses=losses)
    optimizer.step()
    assert len(sent) == len(wrapped._reducer.averaging.buckets) * (step + 1), sent
    if number:
        mean = lamina.stack(losses).mean()
        dist.all_reduce(mean, dist.ReduceOp.AVG, mesh.get_group("dp"))
        got.append(mean.item())
model, expected = alone()
same_parameters(model, [wrapped])
assert not number or np.allclose(got, expected, rtol=1e-10, atol=0)
print("equal")
""",
        tmp_path,
    )
    assert printed.count("equal") == 4


def test_what_passes_between_stages(tmp_path):
    """Several tensors, such that need no gradient, other sizes each step; what does not fit is said."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    printed = ranks.run(
        2,
        """
from lamina.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
dist.init_process_group()
rank = dist.get_rank()
class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.frozen = nn.Linear(3, 4), nn.Linear(3, 4).requires_grad_(False)
    def forward(self, x, mask):
        return self.linear(x), self.frozen(x).half().float(), mask, x[:, 0] > 0
class Second(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)
    def forward(self, a, b, mask, positive, factor=1.0):
        assert a.requires_grad == lamina.is_grad_enabled() and not b.requires_grad
        assert mask.dtype is lamina.int64 and positive.dtype is lamina.bool
        return self.linear((a + b) * mask[:, None] * positive[:, None]) * factor
lamina.manual_seed(1)
first, second = First(), Second()
loss_fn = lambda out, y: ((out - y) ** 2).sum()
stage = PipelineStage([first, second][rank], rank, 2)
schedule = ScheduleGPipe(stage, 3, loss_fn, scale_grads=False)
for batch in (6, 12, 3):
    x, mask, y = lamina.randn(batch, 3), lamina.randint(0, 2, (batch,)), lamina.randn(batch, 2)
    first.zero_grad(), second.zero_grad()
    loss_fn(second(*first(x, mask)), y).backward()
    expected = [p.grad for p in [first.linear, second.linear][rank].parameters()]
    first.zero_grad(), second.zero_grad()
    if rank == 0:
        assert schedule.step(x, mask) is None
    else:
        out = schedule.step(target=y, losses=(losses := []), factor=1.0)
        assert np.allclose(out.numpy(), second(*first(x, mask)).detach().numpy(), rtol=1e-5, atol=1e-6)
        assert len(losses) == 3
        assert schedule.eval.__doc__
    got = [p.grad for p in [first.linear, second.linear][rank].parameters()]
    assert all(np.allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5) for a, b in zip(expected, got))
    assert first.frozen.weight.grad is None
    out = schedule.eval(*((x, mask) if rank == 0 else ()))
    assert (out is None) == (rank == 0)
def refused(call, *words):
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError("not refused")
refused(lambda: PipelineStage(first, 1 - rank, 2), "is not that of rank")
refused(lambda: PipelineStage(first, rank, 3), "3 is not that of rank")
refused(lambda: PipelineStage(first, rank, 2, device="cuda:0"), "on the CPU")
refused(lambda: Schedule1F1B(stage, 0), "above 0")
refused(lambda: Schedule1F1B([stage], 2), "a PipelineStage")
if rank == 0:
    refused(lambda: schedule.step(lamina.randn(4, 3), lamina.ones(4)), "parts into 3 microbatches")
else:
    refused(lambda: schedule.step(), "needs target")
    refused(lambda: schedule.step(x, target=y), "takes no batch")
# two ways to say what comes, of which one is wrong
held = PipelineStage([first, second][rank], rank, 2, input_args=(lamina.zeros(2, 5),))
other = ScheduleGPipe(held, 2, loss_fn)
if rank == 0:
    try:
        other.step(x[:2], mask[:2])
    except RuntimeError as error:
        print("other rank", str(error).splitlines()[0])
else:
    refused(lambda: other.step(target=y[:2]), "input_args said", "f32[2,5]", "f32[1,4]")
    print("refused")
    import os; os._exit(0)
""",
        tmp_path,
        status=None,
    )
    assert "refused" in printed and "Error" not in printed.replace("DistributedError", ""), printed


@pytest.mark.slow
def test_compiled_stages_and_traced_steps(tmp_path):
    """A stage may be compiled; a function around a step is not recorded, and stays right."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    printed = ranks.run(
        2,
        GPT
        + """
pipe = pipeline(made(), (tokens[0, :2],), split_spec={"layers.2": SplitPoint.BEGINNING})
stage = pipe.build_stage(rank)
stage.submod.compile()
schedule = ScheduleGPipe(stage, 2, criterion)
optimizer = optim.AdamW(stage.submod.parameters(), lr=0.01)
@jit.trace
def step(*args, **kwargs):
    optimizer.zero_grad()
    out = schedule.step(*args, **kwargs)
    optimizer.step()
    return out
for x, y in zip(tokens, targets):
    step(*((x,) if rank == 0 else ()), **({"target": y} if rank else {}))
model, _ = alone()
same_parameters(model, [stage.submod])
said = str(step.explain())
assert "a message came from another rank" in said or "a message went to another rank" in said, said
print("equal")
""",
        tmp_path,
    )
    assert printed.count("equal") == 2, printed


@pytest.mark.parametrize("n", [1, 2])
def test_a_step_that_ended_in_an_error_leaves_no_garbage(n, tmp_path):
    """In one process it may be tried again; of several, others are still in it, and the next is refused."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    printed = ranks.run(
        n,
        GPT
        + f"count = {2 * n}"
        + """
cuts = {f"layers.{4 // count * i}": SplitPoint.BEGINNING for i in range(1, count)}
pipe = pipeline(made(), (tokens[0, :2],), split_spec=cuts)
own = [pipe.build_stage(i, "cpu") for i in range(rank, count, size)]
calls = []
def fails(output, target):
    calls.append(1)
    if len(calls) == 3:
        raise KeyError("in the middle")
    return criterion(output, target)
schedule = ScheduleLoopedBFS(own, 4, loss_fn=fails)
parameters = [p for s in own for p in s.submod.parameters()]
def step():
    schedule.step(*[tokens[0]] * (rank == 0), target=targets[0] if rank == size - 1 else None)
if rank == size - 1:
    try:
        step()
    except KeyError:
        for p in parameters:
            p.grad = None
if size == 1:
    step()
    model = made()
    criterion(model(tokens[0]), targets[0]).backward()
    whole = dict(model.named_parameters())
    for s in own:
        for name, p in s.submod.named_parameters():
            assert np.allclose(p.grad.numpy(), whole[name].grad.numpy(), rtol=1e-10, atol=1e-13), name
    print("as if nothing had been")
else:
    step()  # the first is still in the one that failed
""",
        tmp_path,
        status=None,
    )
    if n == 1:
        assert "as if nothing had been" in printed, printed
    else:
        assert "the step before ended in an error on this rank" in printed, printed
