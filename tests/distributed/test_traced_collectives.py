"""Collectives in compiled functions: ops of a program, begun early and waited for where they are read.

What carries them here is no MPI but a stand-in in this process, as if a second rank had the same tensors.  It
writes results as late as it may, garbage before that, and looks whether anybody wrote what it reads.
"""

from dataclasses import replace

import numpy as np
import pytest
import ranks

import lamina
from lamina import jit, nn, optim
from lamina.ir import meeting
from lamina.ir.errors import ArgumentValueError, DistributedError, GraphError
from lamina.ir.ops import collectives as ops
from lamina.ir.text import parse
from lamina.passes.llvm import main_function
from lamina.passes.llvm.binding import host_target
from lamina.passes.pipeline import optimise, to_program
from lamina.passes.programs.host_parts import Land, Meet
from lamina.passes.programs.memory_plan import verify
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Host
from lamina.passes.programs.prologue import prologue
from lamina.runtime.native import Executable

PAIR = (0, 1)


class Flight:
    def __init__(self, carrier, kind, attrs, x, out):
        self.carrier, self.kind, self.x, self.out = carrier, kind, x, out
        self.before = x.copy()
        self.result = self.of_two(kind, attrs, self.before)
        self.is_over = x.ctypes.data == out.ctypes.data and x.shape == out.shape
        assert self.is_over or not np.may_share_memory(x, out)
        out.reshape(-1).view(np.uint8)[:] = 0xFF
        self.garbage = out.tobytes()

    def of_two(self, kind, attrs, x):
        if kind in ("all_reduce", "reduce"):
            return x if attrs["reduce"] in ("avg", "min", "max") else x + x
        if kind == "all_gather":
            return np.concatenate([x, x], attrs["dim"])
        if kind == "reduce_scatter":
            return np.split(x + x, 2, attrs["dim"])[0]
        return x

    def wait(self):
        self.carrier.log.append(("wait", self.kind))
        assert self.is_over or self.x.tobytes() == self.before.tobytes(), (
            "its operand was written while it was on its way"
        )
        assert self.out.tobytes() == self.garbage, "its result was written while it was on its way"
        np.copyto(self.out, self.result)


class There:
    def wait(self):
        pass


class TwoAlike:
    """Carries between this process and one that has the same."""

    def __init__(self):
        self.log = []

    def start(self, kind, attrs, inputs, outputs, ahead=False):
        if meeting.got_before(kind, attrs, *outputs):
            return There()
        self.log.append(("begin", kind))
        return Flight(self, kind, attrs, *inputs, *outputs)


@pytest.fixture
def carrier():
    meeting.enter(made := TwoAlike())
    yield made
    meeting.enter(None)


def compiled(graph):
    return to_program(optimise(graph), (None,) * len(graph.results), host_target())


def test_a_group_that_nobody_joined_is_refused():
    with pytest.raises(ArgumentValueError, match="this process has joined none"):
        ops.all_reduce(lamina.ones(3), "sum", PAIR)


GRAPH = """
graph step(%x: f32[64,64], %y: f32[64,64]) -> (f32[64,64], f32[64,64]) {
  %0 = matmul(%x, %y) : f32[64,64]
  %1 = all_reduce(%0) {reduce="sum", group=(0,1)} : f32[64,64]
  %2 = matmul(%y, %y) : f32[64,64]
  %3 = all_reduce(%2) {reduce="avg", group=(0,1)} : f32[64,64]
  %4 = matmul(%2, %x) : f32[64,64]
  %5 = add(%1, %y) : f32[64,64]
  %6 = mul(%3, %5) : f32[64,64]
  return %4, %6
}
"""


def test_each_is_begun_where_it_stands_and_waited_for_where_it_is_read(carrier):
    graph = parse(GRAPH)
    assert str(parse(str(graph))) == str(graph)
    run = Executable(compiled(graph))
    parts = [
        type(p).__name__ + (str(p.number) if isinstance(p, Meet | Land) else "") for p in run.manifest.parts
    ]
    assert parts == ["Native", "Meet0", "Native", "Meet1", "Native", "Land0", "Land1", "Native"]
    x, y = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    four, six = run(x, y)
    # f32: sums of 64 products of numbers about 8, twice
    assert np.allclose(four, y @ y @ x, atol=1e-2) and np.allclose(
        six, (y @ y) * (2 * (x @ y) + y), atol=1e-2
    )


def test_a_result_is_written_over_an_operand_that_nobody_else_reads(carrier):
    plan = plan_memory(compiled(parse(GRAPH)))
    first, second = [step for step in plan.program.steps if isinstance(step, Host)]
    assert plan.places[first.inputs[0]] == plan.places[first.outputs[0]]
    assert plan.places[second.inputs[0]] != plan.places[second.outputs[0]]  # %4 reads it, too
    verify(plan)
    steps = [replace(s, is_over=True) if s is second else s for s in plan.program.steps]
    planted = plan.replace(
        program=plan.program.replace(steps=tuple(steps)),
        places=plan.places | {second.outputs[0]: plan.places[second.inputs[0]]},
    )
    with pytest.raises(GraphError, match="is not at .* any more"):
        verify(planted)


def test_a_plan_that_forgets_what_is_on_its_way_is_seen(carrier, monkeypatch):
    """The planted bug: nobody waits until the end, so results are read before they are there."""
    monkeypatch.setattr(main_function.Main, "land", lambda *_: None)
    run = Executable(compiled(parse(GRAPH.replace("step", "forgets"))))
    x, y = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    try:
        _, six = run(x, y)
        assert not np.allclose(six, (y @ y) * (2 * (x @ y) + y), atol=1e-2)
    except AssertionError as error:
        assert "on its way" in str(error)


def test_none_is_left_out_merged_folded_or_run_ahead():
    graph = parse("""
graph g(%w: f32[4]) -> (f32[4]) {
  %0 = all_reduce(%w) {reduce="sum", group=(0,1)} : f32[4]
  %1 = all_reduce(%w) {reduce="sum", group=(0,1)} : f32[4]
  %2 = all_reduce(%w) {reduce="sum", group=(0,1)} : f32[4]
  return %0
}
""")
    made = optimise(graph)
    assert sum(node.op is ops.all_reduce for node in made.nodes) == 3
    first, rest = prologue(to_program(made, (None,), host_target()), frozenset([0]))
    assert not first.hosts and len(rest.hosts) == 3


def program(seed, parts=True):
    """A random function of three matrices with collectives of each kind, and what it is called with.

    parts: of sums, gathered again, of which the stand-in's other rank has the same one and not the other.
    """
    choose = np.random.default_rng(seed)
    count = int(choose.integers(4, 14))
    # drawn here: a function that draws at each call is not compiled
    plan = [(int(choose.integers(0, 9)), *choose.integers(0, 3 + n, 2).tolist()) for n in range(count)]
    last = int(choose.integers(0, 3 + count))

    def f(a, b, c):
        values = [a, b, c]
        for kind, i, j in plan:
            x, y = values[i], values[j]
            if kind == 0:
                made = x @ y
            elif kind == 1:
                made = lamina.tanh(x) + y
            elif kind == 2:
                made = x - y.mean(0, keepdim=True)
            elif kind == 3:
                made = ops.all_gather(x[:4], 0, PAIR)
            elif kind == 4 and parts:
                made = ops.all_gather(ops.reduce_scatter(x, 1, "sum", PAIR), 1, PAIR) * 0.5
            elif kind == 5:
                made = ops.broadcast(x * 2, 1, PAIR)
            elif kind == 6:
                made = lamina.cat([x[:2], ops.reduce(y, 0, "sum", PAIR)[2:]])
            else:
                made = ops.all_reduce(x, "sum" if kind == 7 else "avg", PAIR) * 0.3
            values.append(lamina.tanh(made))
        return values[-1], sum(values), values[last].sum()

    arrays = [lamina.tensor(choose.standard_normal((8, 8))) for _ in range(3)]
    return f, arrays


def outcome(f, arrays):
    inputs = [x.clone().requires_grad_() for x in arrays]
    results = f(*inputs)
    grads = lamina.autograd.grad(results[0].sum() + results[2], inputs, allow_unused=True)
    return [r.detach() for r in results] + [g for g in grads if g is not None]


@pytest.mark.parametrize("seed", range(60))
def test_random_functions(seed, carrier):
    f, arrays = program(seed)
    expected = outcome(f, arrays)
    begun = [what for what in carrier.log if what[0] == "begin"]

    @jit.trace
    def traced(a, b, c):
        return tuple(outcome(f, [a, b, c]))

    for _ in range(3):
        carrier.log.clear()
        results = traced(*arrays)
        assert [what for what in carrier.log if what[0] == "begin"] == begun, "another order than eager's"
        for got, wanted in zip(results, expected, strict=True):
            # float64: sums of 8 products, rounded otherwise
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-11, atol=1e-12)
    assert "served 2 of 3" in str(traced.explain()), traced.explain()


def test_a_training_step_begins_while_backward_goes_on(carrier):
    class Summed(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return ops.all_reduce(g, "avg", PAIR)

    lamina.manual_seed(0)
    nets = []
    for _ in range(2):
        lamina.manual_seed(0)
        nets.append(nn.Sequential(*[nn.Linear(16, 16) for _ in range(4)]))
    hooked, plain = nets
    for p in hooked.parameters():
        p.register_hook(lambda g: ops.all_reduce(g, "avg", PAIR))
    steps = []
    for net in nets:
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        def step(x, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (net(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        steps.append(jit.trace(step))
    x = lamina.randn(4, 16)
    for _ in range(4):
        carrier.log.clear()
        a, b = steps[0](x), steps[1](x)
        assert np.allclose(a.item(), b.item(), rtol=1e-5)
    log = [what for what, _ in carrier.log]
    assert log.count("begin") == 8 and log[:3] == ["begin"] * 3, log  # several are on their way at once


def test_a_value_that_python_asks_for_behind_a_collective(carrier):
    """A new answer lets the run begin anew; what it got of others is not asked for again."""

    @jit.trace
    def f(x):
        y = ops.all_reduce(x, "sum", PAIR)
        if y.sum().item() > 0:
            return y * 2
        return y * 3

    for sign in (1, 1, 1, -1, -1, 1, -1):
        carrier.log.clear()
        assert f(lamina.ones(3) * sign)[0].item() == sign * (4 if sign > 0 else 6)
        assert [what for what, _ in carrier.log].count("begin") == 1, "each call meets once"
    assert "served 5 of 7" in str(f.explain()), str(f.explain())


def test_an_answer_that_hangs_on_no_collective_is_asked_for_before_any(carrier):
    """And one that does only after all collectives before it, as on every other rank."""

    @jit.trace
    def f(x, y):
        a = ops.all_reduce(x, "sum", PAIR)
        b = ops.all_reduce(y * 2, "avg", PAIR)
        if x.sum().item() > 0:  # of no collective
            a = a * 2
        if b.sum().item() > 0:  # of the second
            a = ops.broadcast(a + 1, 0, PAIR)
        return a, b

    x, y = lamina.ones(3), lamina.ones(4)
    for one, two in [(1, 1), (1, 1), (-1, 1), (1, -1), (-1, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)]:
        carrier.log.clear()
        a, b = f(x * one, y * two)
        assert a[0].item() == 2 * one * (2 if one > 0 else 1) + (two > 0) and b[0].item() == 2 * two
        begun = [kind for what, kind in carrier.log if what == "begin"]
        assert begun == ["all_reduce", "all_reduce"] + ["broadcast"] * (two > 0), (one, two)
    assert "served 5 of 9" in str(f.explain()), str(f.explain())


def test_a_run_that_does_otherwise_the_second_time_is_said():
    met = [meeting.Met("all_reduce", {"reduce": "max", "group": PAIR}, np.ones(3, np.float32))]
    with pytest.raises(DistributedError, match="in another way than the first time"):
        with meeting.begun_anew(met):
            meeting.got_before("all_reduce", {"reduce": "sum", "group": PAIR}, np.ones(3, np.float32))
    with pytest.raises(DistributedError, match="less often than the first time"):
        with meeting.begun_anew(met):
            pass


def test_a_value_that_is_returned_is_served(carrier):
    @jit.trace
    def f(x):
        return ops.all_reduce(x, "sum", PAIR).sum().item()

    assert [f(lamina.ones(3) * i) for i in range(5)] == [0.0, 6.0, 12.0, 18.0, 24.0]
    assert "served 4 of 5" in str(f.explain()), str(f.explain())


def test_ranks_and_traced_functions(tmp_path):
    ranks.run(
        2,
        """
        import lamina.distributed.functional as F
        dist.init_process_group()
        rank, size = dist.get_rank(), dist.get_world_size()

        @jit.trace
        def f(x, w):
            y = x @ w
            total = F.all_reduce(y)
            dist.all_reduce(y, op=dist.ReduceOp.MAX)
            rows = F.all_gather(x, 0)
            return total + y, rows.sum(0), F.reduce_scatter(rows.T @ rows, 0)

        generator = np.random.default_rng(1)
        for i in range(6):
            every = generator.standard_normal((size, 4, 6))
            w = generator.standard_normal((6, 3))
            got = f(lamina.tensor(every[rank]), lamina.tensor(w))
            rows = every.reshape(-1, 6)
            expected = ((every @ w).sum(0) + (every @ w).max(0), rows.sum(0),
                        (rows.T @ rows * size)[rank * 3:][:3])
            assert all(np.allclose(a.numpy(), b) for a, b in zip(got, expected)), i
        assert "served 5 of 6" in str(f.explain()) or "served 4 of 6" in str(f.explain()), f.explain()
        """,
        tmp_path,
    )


def test_batches_of_other_sizes_on_each_rank(tmp_path):
    """One recording serves all sizes, on one rank while another records anew."""
    ranks.run(
        2,
        """
        import lamina.distributed.functional as F
        dist.init_process_group()
        rank, size = dist.get_rank(), dist.get_world_size()

        @jit.trace
        def f(x, w):
            y = F.all_reduce(lamina.tanh(x @ w))
            return F.all_gather(y, 0).sum(0), y * 2, F.all_reduce(y.sum())

        w = np.random.default_rng(0).standard_normal((5, 3))
        for n in (2, 4, 6, 8, 10, 12, 14, 7, 9, 3):
            every = np.random.default_rng(n).standard_normal((size, n, 5))
            rows, doubled, total = f(lamina.tensor(every[rank]), lamina.tensor(w))
            y = np.tanh(every @ w).sum(0)
            assert np.allclose(doubled.numpy(), 2 * y) and np.allclose(rows.numpy(), size * y.sum(0))
            assert np.allclose(total.item(), size * y.sum()), n
        served = lambda traced: int(str(traced.explain()).split("served ")[1].split()[0])
        assert served(f) >= 6, f.explain()
        net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1)).double()
        model = nn.parallel.DistributedDataParallel(net)
        optimizer = optim.SGD(net.parameters(), lr=0.01)

        @jit.trace
        def step(x):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        for n in (2, 4, 6, 8, 10, 12 + rank, 14, 7 + rank, 9, 3):
            step(lamina.randn(n, 5).double())
        every = [None] * size
        dist.all_gather_object(every, net[0].weight.tolist())
        assert every[0] == every[1]
        assert served(step) >= 6, step.explain()
        """,
        tmp_path,
    )


def test_a_rank_that_is_traced_meets_one_that_runs_eagerly(tmp_path):
    """Each rank decides for itself when it records and what it is served: what they say must be the same."""
    printed = ranks.run(
        2,
        """
        import lamina.distributed.functional as F
        dist.init_process_group()
        rank, size = dist.get_rank(), dist.get_world_size()

        def listed(x):
            made = [x.new_empty(x.shape) for _ in range(size)]
            dist.all_gather(made, x)
            return made

        def into(shape, f):
            def run(x):
                made = x.new_empty(shape)
                f(made, x)
                return made
            return run

        def written(f):
            def run(x):
                y = x * 1
                f(y)
                return y
            return run

        calls = {
            "all_reduce": written(lambda y: dist.all_reduce(y)),
            "all_reduce max": written(lambda y: dist.all_reduce(y, dist.ReduceOp.MAX)),
            "all_reduce avg": written(lambda y: dist.all_reduce(y, dist.ReduceOp.AVG, async_op=True).wait()),
            "coalesced": written(lambda y: dist.all_reduce_coalesced([y[:2], y[2:]])),
            "broadcast": written(lambda y: dist.broadcast(y, 1)),
            "reduce": written(lambda y: dist.reduce(y, 0)),
            "all_gather": lambda x: listed(x)[1] - listed(x)[0],
            "all_gather_into_tensor": into((2 * size, 3), dist.all_gather_into_tensor),
            "all_gather_into_tensor behind": into((size, 2, 3), dist.all_gather_into_tensor),
            "reduce_scatter_tensor": into((1, 3), dist.reduce_scatter_tensor),
            "reduce_scatter": into((1, 3), lambda y, x: dist.reduce_scatter(y, list(x.split(1)))),
            "all_to_all_single": into((2, 3), dist.all_to_all_single),
            "F.all_reduce": F.all_reduce, "F.all_gather": lambda x: F.all_gather(x, 1),
            "F.reduce_scatter": F.reduce_scatter, "F.all_to_all": F.all_to_all,
            "F.broadcast": lambda x: F.broadcast(x, 0), "F.reduce": lambda x: F.reduce(x, 1),
            "F.permute_ranks": lambda x: F.permute_ranks(x, [(0, 1), (1, 0)]),
        }
        for name, plain in calls.items():
            traced = jit.trace(plain)
            for i in range(4):
                x = lamina.tensor(np.random.default_rng(rank + 2 * i).standard_normal((2, 3)))
                expected = plain(x)
                got = (traced if rank == i % 2 else plain)(x)
                got = (traced if rank == i % 2 else plain)(x)
                assert np.allclose(got.numpy(), expected.numpy()), name
            served = int(str(traced.explain()).split("served ")[1].split()[0]) if rank == 0 else 1
            assert served > 0, (name, str(traced.explain()))
        print(f"{len(calls)} agree")
        """,
        tmp_path,
    )
    assert printed.count("19 agree") == 2


@pytest.mark.parametrize("unused", [False, True])
def test_a_traced_step_meets_an_eager_one(tmp_path, unused):
    """Steps of one rank in a recording, of the other without."""
    ranks.run(
        2,
        f"""
        dist.init_process_group()
        rank, losses = dist.get_rank(), []

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.Sequential(nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 2))
                self.spare = nn.Linear(300, 2) if {unused} else None

            def forward(self, x):
                return self.layers(x)

        for mixed in (False, True):
            lamina.manual_seed(0)
            net = Net().double()
            model = nn.parallel.DistributedDataParallel(net, find_unused_parameters={unused})
            optimizer = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

            def step(x):
                optimizer.zero_grad()
                loss = (model(x) ** 2).mean()
                loss.backward()
                optimizer.step()
                return loss

            traced = jit.trace(step)
            generator = np.random.default_rng(rank)
            for i in range(8):
                x = lamina.tensor(generator.standard_normal((4, 300)))
                loss = (traced if mixed and (rank + i // 4) % 2 else step)(x)
                losses.append(loss.item())
        assert np.allclose(losses[:8], losses[8:], rtol=1e-10), losses
        every = [None] * 2
        dist.all_gather_object(every, net.layers[0].weight.tolist())
        assert every[0] == every[1]
        """,
        tmp_path,
    )


def test_one_rank_records_anew_while_another_runs_its_program(tmp_path):
    """A size or a type that one rank alone has not met: both meet in the same collectives, of no dims too."""
    printed = ranks.run(
        2,
        """
        from lamina.nn.parallel import DistributedDataParallel as DDP
        dist.init_process_group()
        rank = dist.get_rank()
        lamina.manual_seed(0)
        net = nn.Linear(3, 2).double()
        model = DDP(net)
        optimizer = optim.SGD(net.parameters(), lr=0.1)
        def step(x, scale):
            optimizer.zero_grad()
            loss = (model(x) * scale).square().mean()
            loss.backward()
            optimizer.step()
            loss = loss.detach()
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
            return loss, dist.functional.all_reduce(x.sum()), dist.functional.all_gather(x[:1], 0)
        traced = jit.trace(step)
        generator = np.random.default_rng(1)
        for i in range(14):
            scale = 2.0 + (i in (6, 11)) if rank == 1 else 2.0
            kind = lamina.float32 if i in (4, 8, 9) and rank == 0 else lamina.float64
            x = lamina.tensor(generator.standard_normal((4 + (rank == 1) * (i > 9), 3)), dtype=kind).double()
            state = {k: v.clone() for k, v in net.state_dict().items()}
            found = traced(x if i != 7 or rank else x.clone().requires_grad_(), scale)
            after = [p.detach().clone() for p in net.parameters()]
            net.load_state_dict(state)
            assert all(np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)
                       for a, b in zip(found, step(x, scale))), i
            assert all(np.allclose(a.numpy(), p.detach().numpy(), rtol=1e-12)
                       for a, p in zip(after, net.parameters())), i
        assert "served" in str(traced.explain())
        print("agreed")
        """,
        tmp_path,
    )
    assert printed.count("agreed") == 2


@pytest.mark.parametrize("calls", [1, 3, 20])
def test_a_collective_that_failed_is_not_begun_again(calls, tmp_path):
    """While it is recorded, run by its program, and by the short way: others would meet it twice."""
    ranks.run(
        2,
        f"calls = {calls}"
        + """
import time
dist.init_process_group()
rank = dist.get_rank()
channel = dist.groups.need_world().channel
@jit.trace
def f(x):
    return dist.functional.all_reduce(x * 2) + 1
for i in range(calls - 1):
    assert f(lamina.full((3,), float(i)))[0].item() == 4 * i + 1
dist.barrier()
before = channel.count
if rank == 1:
    time.sleep(2)
    assert f(lamina.ones(3))[0].item() == 5  # what the other gave is there
else:
    channel.timeout = 0.5
    try:
        f(lamina.ones(3))
    except RuntimeError as error:
        assert "nobody came" in str(error)
    else:
        raise AssertionError("it did not fail")
    channel.timeout = 30.0
assert channel.count == before + 1, (before, channel.count)
assert f(lamina.full((3,), 7.0))[0].item() == 29
""",
        tmp_path,
    )
