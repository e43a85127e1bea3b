"""Whole training steps: each compiled step must be the eager step from the same state."""

from __future__ import annotations

import contextlib
import copy
import math

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim
from lamina.jit import backend

EPS = 2.0**-24  # half a unit in the last place of float32, relative


def digits(seed):
    """A network as the demo's, smaller, with all that has state: norms and dropout."""
    lamina.manual_seed(seed)
    block = [nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*block, nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 10))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        shape = (b, t, 3, self.heads, c // self.heads)
        q, k, v = self.qkv(self.first(x)).reshape(shape).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    def __init__(self, words=17, length=8, width=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(lamina.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def digit_batch(number):
    source = lamina.Generator().manual_seed(number)
    return lamina.rand(8, 1, 8, 8, generator=source), lamina.randint(0, 10, (8,), generator=source)


def text_batch(number):
    source = lamina.Generator().manual_seed(number)
    tokens = lamina.randint(0, 17, (4, 9), generator=source)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous().reshape(-1)


def gpt(seed):
    lamina.manual_seed(seed)
    return GPT()


def make_step(net, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        logits = net(x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: optim.Adam(p, lr=1e-3),
    "adamw": lambda p: optim.AdamW(p, lr=1e-3, weight_decay=0.1),
}
NETWORKS = {"digits": (digits, digit_batch), "gpt": (gpt, text_batch)}


def put_state(source, optimizer, target, other):
    """Make the second network and its optimizer what the first are."""
    with lamina.no_grad():
        for p, q in zip(source.state_dict().values(), target.state_dict().values(), strict=True):
            q.copy_(p)
    if optimizer.state:
        for p, q in zip(optimizer.param_groups[0]["params"], other.param_groups[0]["params"], strict=True):
            for name, value in optimizer.state[p].items():
                if other.state[q]:
                    other.state[q][name].copy_(value)


def gradient_bound(eager):
    """How far two gradients may be apart: sums of n terms in two orders.

    A gradient of these networks is a sum of at most 512 products (batch times places), which are themselves
    results of a chain of sums of at most 128 products, norms and a softmax, in all under 2,000 roundings in a
    row. Independent roundings grow with the root of their number; 8 is for the worst of many elements.
    """
    size = float(np.max(np.abs(eager), initial=0.0))
    return 8 * 2000**0.5 * EPS * size + 1e-9  # gradients that are nothing but what cancelled


def assert_same_step(kind, traced, eager, optimizer):
    """Compare parameters and gradients: what a difference of gradients does follows from the rule."""
    lr = optimizer.param_groups[0]["lr"]
    for (name, p), q in zip(traced.named_parameters(), eager.parameters(), strict=True):
        g, h = p.grad._data, q.grad._data
        bound = gradient_bound(h)
        difference = np.abs(g - h)
        assert difference.max(initial=0.0) <= bound, f"{name}: {difference.max()} > {bound}"
        rounding = 8 * EPS * (np.abs(q._data) + lr)
        if kind == "sgd":
            moved = lr * difference
        else:
            # Adam: p -= lr * m^ / (sqrt(v^) + eps), both corrected by 1 - beta ** step.
            state = optimizer.state[q]
            step = state["step"].item()
            m = (1 - 0.9) * difference / (1 - 0.9**step)
            mean = np.abs(state["exp_avg"]._data) / (1 - 0.9**step)
            root = np.sqrt(state["exp_avg_sq"]._data / (1 - 0.999**step)) + 1e-8
            # The root of a sum of squares moves no further than one of its terms.
            droot = np.sqrt((1 - 0.999) / (1 - 0.999**step)) * difference
            low = np.maximum(root - droot, 1e-8)
            moved = lr * (m / low + mean * droot / (root * low) + mean / root * 16 * EPS)
        apart = np.abs(p._data - q._data)
        worst = np.unravel_index(np.argmax(apart - moved - rounding), apart.shape)
        assert (apart <= moved + rounding).all(), (
            f"{name}: {apart[worst]} > {(moved + rounding)[worst]}; gradients {g[worst]}, {h[worst]}"
        )
    for (name, a), b in zip(traced.named_buffers(), eager.buffers(), strict=True):
        # means and variances over 512 numbers
        np.testing.assert_allclose(a._data, b._data, rtol=64 * EPS, atol=64 * EPS, err_msg=name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_hundred_steps_are_the_eager_steps_from_the_same_state(kind, network):
    make, batch = NETWORKS[network]
    a, b = make(0), make(0)
    one, two = OPTIMIZERS[kind](a.parameters()), OPTIMIZERS[kind](b.parameters())
    traced, eager = jit.trace(make_step(a, one)), make_step(b, two)
    for number in range(100):
        x, y = batch(number)
        put_state(a, one, b, two)
        lamina.manual_seed(number)
        loss = traced(x, y)
        lamina.manual_seed(number)
        expected = eager(x, y)
        # a mean of at most 32 logarithms, below 8 each
        np.testing.assert_allclose(loss._data, expected._data, rtol=0, atol=64 * 8 * EPS)
        assert_same_step(kind, a, b, two)
    assert traced._log.hits == 98, traced.explain()
    assert traced._log.recorded == 2


def test_a_hundred_adam_steps_under_a_schedule_make_two_recordings():
    net = digits(0)
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=100)
    step = jit.trace(make_step(net, optimizer))
    losses = []
    for number in range(100):
        losses.append(step(*digit_batch(number % 4)).item())
        if number < 99:
            schedule.step()
    assert step._log.recorded == 2 and step._log.hits == 98
    assert sum(losses[-4:]) < sum(losses[:4]) / 2


def test_gradients_are_clipped_and_accumulated_as_eagerly():
    def make():
        lamina.manual_seed(3)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = optim.SGD(net.parameters(), lr=0.1)

        def accumulate(x, y):
            F.mse_loss(net(x), y).backward()

        def finish():
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
            return norm

        return net, accumulate, finish

    (a, add, end), (b, plus, stop) = make(), make()
    add, end = jit.trace(add), jit.trace(end)
    for number in range(6):
        for part in range(3):
            source = lamina.Generator().manual_seed(10 * number + part)
            x, y = lamina.randn(5, 4, generator=source), lamina.randn(5, 2, generator=source)
            add(x, y), plus(x, y)
        np.testing.assert_allclose(end()._data, stop()._data, rtol=64 * EPS)
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            # 6 steps of lr 0.1, gradients clipped to 0.1, sums of at most 60 terms
            np.testing.assert_allclose(p._data, q._data, rtol=0, atol=6 * 64 * EPS)
    assert add._log.hits >= 14 and end._log.hits >= 4


def test_zero_grad_at_the_end_of_a_step():
    net = nn.Linear(3, 2)
    twin = copy.deepcopy(net)
    one, two = optim.AdamW(net.parameters(), lr=0.1), optim.AdamW(twin.parameters(), lr=0.1)

    def make(net, optimizer):
        def step(x):
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    traced, eager = jit.trace(make(net, one)), make(twin, two)
    for number in range(5):
        x = lamina.randn(4, 3, generator=lamina.Generator().manual_seed(number))
        traced(x), eager(x)
        assert net.weight.grad is None
        np.testing.assert_allclose(net.weight._data, twin.weight._data, rtol=0, atol=5 * 64 * EPS)
    assert traced._log.hits == 3


def test_another_batch_size_is_recorded_once_more():
    net = digits(1)
    optimizer = optim.SGD(net.parameters(), lr=0.01)
    step = jit.trace(make_step(net, optimizer))
    for _ in range(3):
        for size in (8, 8, 3):
            x, y = digit_batch(0)
            step(x[:size].contiguous(), y[:size].contiguous())
    assert step._log.recorded == 3  # the first leaves gradients behind, which the second finds


def test_states_loaded_from_a_file_are_used():
    net = nn.Linear(3, 2)
    optimizer = optim.Adam(net.parameters(), lr=0.1)
    step = jit.trace(make_step(net, optimizer))
    x, y = lamina.randn(4, 3), lamina.tensor([0, 1, 0, 1])
    for _ in range(4):
        step(x, y)
    saved = copy.deepcopy(net.state_dict()), optimizer.state_dict()
    saved = (
        saved[0],
        {
            **saved[1],
            "state": {k: {n: v.clone() for n, v in s.items()} for k, s in saved[1]["state"].items()},
        },
    )
    step(x, y)
    after = net.weight.clone()
    net.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    step(x, y)
    np.testing.assert_allclose(net.weight._data, after._data, rtol=64 * EPS)


def test_a_backward_that_can_not_be_compiled_is_interpreted(monkeypatch):
    compiled = backend.compile_graph
    made = []

    def failing(graph, **kwargs):
        made.append(graph)
        if len(made) > 1:
            raise ZeroDivisionError("planted")
        return compiled(graph, **kwargs)

    traced = jit.trace(lambda x: (x * x.sin()).sum())
    gradients = []
    monkeypatch.setattr(backend, "compile_graph", failing)
    warned = pytest.warns(UserWarning, match="could not be compiled: ZeroDivisionError: planted")
    for warns in (contextlib.nullcontext(), warned, contextlib.nullcontext()):
        x = lamina.tensor([1.0, 2.0], requires_grad=True)
        y = traced(x)
        with warns:  # the second call is the first that compiled code serves
            y.backward()
        gradients.append(x.grad.tolist())
    wanted = [math.sin(v) + v * math.cos(v) for v in (1.0, 2.0)]
    assert all(found == pytest.approx(wanted, rel=1e-6) for found in gradients)
    assert len(made) == 2 and traced.counts()["served"] == 2


def test_a_sum_over_windows_without_channels_is_compiled():
    """The gradient of a weight of one channel, whose planes go in strips."""
    norm = lamina.nn.BatchNorm3d(1)
    traced = jit.trace(norm)
    norm.weight.requires_grad_(False)
    for _ in range(3):
        x = lamina.randn(8, 1, 6, 6, 15, requires_grad=True)
        traced(x).square().mean().backward()
    assert traced.counts()["served"] == 2
