"""Programs on a device as graphs: launched one by one a few times, then by one call, on the fake driver."""

from __future__ import annotations

import numpy as np
import pytest
from fake_cuda import OUT_OF_MEMORY, SETTINGS, Fake, case, missing, run_case

import lamina
from lamina import jit, nn, optim
from lamina.ir.errors import DeviceError, DimError
from lamina.nn import functional as F
from lamina.runtime.cuda.driver import Graph
from lamina.runtime.cuda.machine import machine

CALLS = ("cuGraphLaunch", "cuLaunchKernel", "cuMemcpyDtoHAsync", "cuStreamSynchronize", "cuMemAlloc")


def on_graphs(function):
    """A test on the fake where programs are graphs."""
    case(function)
    SETTINGS[function.__module__, function.__name__] = {"LAMINA_CUDA_GRAPHS": 1}

    @pytest.mark.skipif(bool(missing()), reason=missing())
    @pytest.mark.timeout(600)
    def test():
        run_case(function, LAMINA_CUDA_GRAPHS=1)

    test.__name__, test.__doc__ = function.__name__, function.__doc__
    return test


def interpreted(fake: Fake) -> list[str]:
    from cuda_interpreting import interpret_launches

    return interpret_launches(fake)


def counted(fake: Fake, call):
    before = {name: fake.calls(name) for name in CALLS}
    return call(), {name: n for name in CALLS if (n := fake.calls(name) - before[name])}


class Gpt(nn.Module):
    """Shapes: i64[batch, time] -> f32[batch, time, 11]."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Parameter(lamina.randn(5, 8) * 0.1)
        self.norm, self.heads, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down, self.last = nn.Linear(8, 16), nn.Linear(16, 8), nn.Linear(8, 11)

    def forward(self, x):
        x = self.tokens(x) + self.places
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in self.heads(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return self.last(x + self.down(F.gelu(self.up(x))))


def losses(device: str, fake: Fake, steps: int) -> tuple[list[float], list[dict], object]:
    lamina.manual_seed(0)
    model = Gpt().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.StepLR(optimizer, 4, 0.5)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    step = jit.trace(step) if device == "cuda" else step
    found, calls = [], []
    for _ in range(steps):
        x, y = (lamina.randint(0, 11, (3, 5)).to(device) for _ in range(2))
        loss, called = counted(fake, lambda x=x, y=y: step(x, y))
        schedule.step()
        found.append(loss.item())
        calls.append(called)
    return found, calls, step


@on_graphs
def test_a_gpts_training_step_is_one_launch_of_a_graph(fake: Fake):
    interpreted(fake)
    wanted, *_ = losses("cpu", fake, 12)
    found, calls, step = losses("cuda", fake, 12)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert step.counts()["served"] >= 10, step.explain()
    # a rate that changes makes another graph, whose memory the number is copied to
    assert calls[-1] == calls[-2] == {"cuGraphLaunch": 1}, calls
    assert {"cuLaunchKernel"} == calls[2].keys() and calls[2]["cuLaunchKernel"] > 20


@on_graphs
def test_graphs_follow_what_moves(fake: Fake):
    interpreted(fake)
    layers = nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3)
    model = nn.Sequential(*layers).cuda()
    f = jit.trace(model)
    results, called = [], {}
    with lamina.no_grad():
        for n in range(14):
            x = lamina.randn(5, 4).cuda()
            if n == 9:  # weights elsewhere
                for p in model.parameters():
                    p.data = (p.data * 2).clone()
            y, called = counted(fake, lambda x=x: f(x))
            results.append((y, model(x).cpu().numpy()))
        assert called.get("cuGraphLaunch") == 1
        for y, wanted in results:  # of which none is the graph's own
            np.testing.assert_allclose(y.cpu().numpy(), wanted, rtol=1e-5, atol=1e-6)


@on_graphs
def test_indices_are_looked_at_in_graphs_too(fake: Fake):
    interpreted(fake)
    layers = nn.Sequential(
        nn.Embedding(7, 4), nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2)
    ).cuda()
    f = jit.trace(layers)
    with lamina.no_grad():
        for _ in range(8):
            x = lamina.randint(0, 7, (3, 5), device="cuda")
            y, called = counted(fake, lambda x=x: f(x))
            np.testing.assert_allclose(y.cpu().numpy(), layers(x).cpu().numpy(), rtol=1e-5, atol=1e-6)
        assert called.get("cuGraphLaunch") == 1
        y = f(lamina.full((3, 5), 9, device="cuda"))
        with pytest.raises(DimError, match="out of range"):
            y.cpu()


@on_graphs
def test_a_graph_takes_no_work_that_waits(fake: Fake):
    stream = machine().stream
    block = machine().allocate(1024)
    graph = Graph(stream, lambda: stream.fill(block.address, 7, 1024))
    found = np.zeros(1024, np.uint8)
    for launch in (lambda: None, lambda: graph.launch(stream)):
        stream.fill(block.address, 1, 1024)
        launch()
        stream.copy_out(found, block.address)
        stream.synchronize()
    assert (found == 7).all()
    with pytest.raises(DeviceError, match="finish a stream"):
        Graph(stream, stream.synchronize)
    stream.synchronize()  # which is none any more that is captured
    fake.fail("cuGraphInstantiateWithFlags", OUT_OF_MEMORY)
    with pytest.raises(DeviceError, match="make a graph"):
        Graph(stream, lambda: stream.fill(block.address, 1, 8))
    graph.launch(stream)
    stream.synchronize()
