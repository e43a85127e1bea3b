"""Learning rates and other numbers of an optimizer's groups that a traced step sets itself."""

import math

import pytest

import lamina
from lamina import jit, nn, optim


def steps(rule, change, calls=8, trace=True, **settings):
    """The weights after some steps, and the traced function."""
    lamina.manual_seed(0)
    net, x = nn.Linear(3, 2), lamina.randn(4, 3)
    o = rule(net.parameters(), lr=0.1, **settings)
    count, seen = [0], []

    def step(x):
        count[0] += 1
        change(o.param_groups[0], count[0], before=True)
        o.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        o.step()
        change(o.param_groups[0], count[0], before=False)
        return loss

    run = jit.trace(step) if trace else step
    for _ in range(calls):
        run(x)
        seen.append({k: v for k, v in o.param_groups[0].items() if k != "params"})
    return [p.detach().numpy().copy() for p in net.parameters()], seen, run


def both(rule, change, served, **settings):
    weights, seen, run = steps(rule, change, **settings)
    plain, told, _ = steps(rule, change, trace=False, **settings)
    assert seen == told and all(type(a[k]) is type(b[k]) for a, b in zip(seen, told) for k in a)
    for a, b in zip(weights, plain):
        assert abs(a - b).max() <= 1e-5
    assert run.counts()["served"] == served, run.explain()
    return run


def cosine(group, n, before):
    if before:
        group["lr"] = 0.1 * 0.5 * (1 + math.cos(math.pi * n / 100))


def decay(group, n, before):
    if not before:
        group["lr"] *= 0.9


def warmed(group, n, before):
    if before:
        group["lr"] = 0.01 * min(1.0, n / 5)


def around(group, n, before):
    group["lr"] = 0.3 if before else 0.1


def also_others(group, n, before):
    if before:
        group["weight_decay"] = 0.1 / n
        group["lr"] = group["lr"] * 0.95


@pytest.mark.parametrize("change", [cosine, decay, warmed, around, also_others])
@pytest.mark.parametrize("rule", [optim.SGD, optim.Adam, optim.RMSprop])
def test_rates_that_a_step_sets_are_inputs(rule, change):
    both(rule, change, 6 - (rule is not optim.SGD), weight_decay=0.01)


def test_numbers_that_come_to_nothing_are_recorded_anew():
    def fading(group, n, before):
        if before:
            group["weight_decay"] = max(0.0, 0.3 - 0.1 * n)

    both(optim.SGD, fading, 5, weight_decay=0.01)


@pytest.mark.parametrize("key", ["betas", "maximize"])
def test_other_settings_are_not_changed_before_a_step(key):
    def change(group, n, before):
        if before:
            group[key] = (0.8, 0.9) if key == "betas" else n % 2 == 0

    run = both(optim.Adam, change, 0)
    assert f"{key} of an optimizer's group is changed before its step" in run.explain(detail=True)


def test_groups_that_others_change_between_calls_are_read_anew():
    net, x = nn.Linear(2, 1), lamina.ones(3, 2)
    o = optim.SGD(net.parameters(), lr=0.1, momentum=0.5)

    @jit.trace
    def step(x):
        o.param_groups[0]["lr"] = 0.25
        o.zero_grad()
        net(x).sum().backward()
        o.step()
        o.param_groups[0]["lr"] = 0.5

    for n in range(8):
        o.param_groups[0]["lr"] = float(n)
        o.param_groups[0]["momentum"] = 0.0 if n > 4 else 0.1 * (n + 1)
        before = net.bias.item()
        buffers = [s["momentum_buffer"].item() for p, s in o.state.items() if p is net.bias]
        step(x)
        m = 0.0 if n > 4 else 0.1 * (n + 1)
        moved = 3.0 if not m or not buffers else 3.0 + m * buffers[0]
        assert abs(net.bias.item() - (before - 0.25 * moved)) < 1e-5
        assert o.param_groups[0]["lr"] == 0.5
