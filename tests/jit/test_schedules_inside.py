"""Numbers that follow a schedule, inside a traced step: rates, averages, modes, and arguments of ops."""

import copy
import math
import types
from collections import namedtuple

import pytest
from both_ways import both_ways

import lamina
from lamina import nn, optim
from lamina.jit import trace

F = nn.functional
SCHEDULES = {
    "StepLR": {"step_size": 3}, "MultiStepLR": {"milestones": [4, 8]}, "ExponentialLR": {"gamma": 0.9},
    "LambdaLR": {"lr_lambda": lambda epoch: 0.95**epoch}, "CosineAnnealingLR": {"T_max": 10},
    "CosineAnnealingWarmRestarts": {"T_0": 5}, "OneCycleLR": {"max_lr": 0.1, "total_steps": 40},
    "LinearLR": {"total_iters": 20}, "PolynomialLR": {"total_iters": 20},
}  # fmt: skip


def parts():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    return model, optim.SGD(model.parameters(), lr=0.1), lamina.randn(16, 4), lamina.randn(16, 1)


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def scheduled(wrap, name):
    model, optimizer, x, y = parts()
    schedule = getattr(optim.lr_scheduler, name)(optimizer, **SCHEDULES[name])

    @wrap
    def train():
        loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        schedule.step()
        return loss

    return lambda i: train(), train


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_stepped_inside(name):
    train = both_ways(scheduled, name=name)
    assert train.counts()["served"] >= 9, train.explain()


def a_rate_by_hand(wrap):
    model, optimizer, x, y = parts()

    @wrap
    def train(step):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * min(1.0, (step + 1) / 10) * 0.5 * (1 + math.cos(math.pi * step / 20))
        loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        return loss

    return train, train


def an_average_with_a_warm_up(wrap):
    model, optimizer, x, y = parts()
    average, state = copy.deepcopy(model), {"updates": 0}

    @wrap
    def train(_):
        loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        state["updates"] += 1
        decay = min(0.999, (1 + state["updates"]) / (10 + state["updates"]))
        with lamina.no_grad():
            for mean, p in zip(average.parameters(), model.parameters()):
                mean.mul_(decay).add_(p, alpha=1 - decay)
        return loss + average[0].weight.sum()

    return train, train


def an_average_by_lerp(wrap):
    model, optimizer, x, y = parts()
    average = copy.deepcopy(model)

    @wrap
    def train(step):
        loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        weight = 1 / (step + 2)
        with lamina.no_grad():
            for mean, p in zip(average.parameters(), model.parameters()):
                mean.lerp_(p, weight)
        return loss + average[0].weight.sum()

    return train, train


def modes_of_modules(wrap):
    model, optimizer, x, y = parts()

    @wrap
    def train(_):
        model.eval()
        with lamina.no_grad():
            before = F.mse_loss(model(x), y)
        model.train()
        loss = F.mse_loss(model(x), y)
        update(optimizer, loss)
        return loss + before

    return train, train


def bounds_of_a_clamp(wrap):
    x = lamina.randn(5, requires_grad=True)

    @wrap
    def f(step):
        high = 1.0 / (step + 1)
        return (x.clamp(-high, high) + lamina.clamp(x, max=high) + lamina.clamp_min(x, -high)).sum()

    return f, f


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.second, self.calls = nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1), 0

    def forward(self, x):
        self.calls += 1
        return self.second(self.drop(self.first(x)))


def a_rate_on_a_module(wrap):
    lamina.manual_seed(0)
    model, target, x, y = Dropping(), Dropping(), lamina.randn(16, 4), lamina.randn(16, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @wrap
    def train(step):
        model.drop.p = max(0.1, 0.5 - 0.02 * step)
        with lamina.no_grad():
            wanted = target.eval()(x)
        loss = F.mse_loss(model(x), y) + F.mse_loss(model(x), wanted)
        update(optimizer, loss)
        target.load_state_dict(model.state_dict())
        return loss + model.calls

    return train, train


class Counting:
    steps = 0


def counted_on_a_class(wrap):
    Counting.steps = 0
    x = lamina.randn(3)

    @wrap
    def f(_):
        Counting.steps += 1
        return x.sum() * Counting.steps

    return f, f


Where = namedtuple("Where", "step seen")


def a_tuple_that_is_replaced(wrap):
    x, state = lamina.randn(3), types.SimpleNamespace(where=Where(0, 0.0))

    @wrap
    def f(_):
        state.where = state.where._replace(step=state.where.step + 1)
        largest = max(part.item() for part in x * state.where.step)
        state.where = state.where._replace(seen=max(state.where.seen, largest, -math.inf))
        return (x * state.where.step).sum() + state.where.seen

    return f, f


def numbers_of_ops(wrap):
    x = lamina.randn(5)

    @wrap
    def f(step):
        t = 0.1 + step / 20
        found = lamina.add(x, x, alpha=t) + lamina.sub(x, 1.0, alpha=t) + lamina.lerp(x, -x, t)
        return (found + F.softmax(x / t, dim=0) + F.leaky_relu(x, 0.01) + x.mul(t).pow(2) + (x > t)).sum()

    return f, f


def a_rate_of_dropout(wrap):
    x = lamina.randn(64)

    @wrap
    def f(step):
        return F.dropout(x, 0.5 - 0.02 * step, True).sum() + lamina.rand(3).sum()

    return f, f


@pytest.mark.parametrize("program", [
    a_rate_by_hand, an_average_with_a_warm_up, an_average_by_lerp, modes_of_modules, bounds_of_a_clamp,
    numbers_of_ops, a_rate_of_dropout, a_rate_on_a_module, counted_on_a_class, a_tuple_that_is_replaced,
], ids=lambda p: p.__name__)  # fmt: skip
def test_what_follows_a_schedule_is_compiled_once(program):
    wrapped = both_ways(program)
    assert wrapped.counts()["served"] >= 10, wrapped.explain()


def test_dropout_by_words_draws_as_dropout_does():
    x = lamina.randn(1000)
    for dtype in (lamina.float32, lamina.float64, lamina.float16):
        for p in (0.1, 0.5, 1.0, 1 / 3):
            lamina.manual_seed(3)
            plain = lamina.runtime.random.dropout(x.to(dtype), p)
            lamina.manual_seed(3)
            assert lamina.equal(lamina.runtime.random.dropout_by_words(x.to(dtype), p), plain)


def test_the_mode_of_a_module_is_what_the_call_leaves():
    """Written and read in one run, whatever it was before: two functions that disagree about it."""
    model, optimizer, x, y = parts()

    @trace
    def train():
        model.train()
        update(optimizer, F.mse_loss(model(x), y))

    @trace
    def test():
        model.eval()
        with lamina.no_grad():
            return F.mse_loss(model(x), y)

    plain_model, plain_optimizer, *_ = parts()
    plain_model.load_state_dict(model.state_dict())
    for _ in range(12):
        train()
        assert model.training and model[1].training
        plain_model.train()
        update(plain_optimizer, F.mse_loss(plain_model(x), y))
        plain_model.eval()
        assert test().item() == pytest.approx(F.mse_loss(plain_model(x), y).item(), rel=1e-5)
        assert not (model.training or model[1].training)
    assert train.counts()["served"] >= 9 and test.counts()["served"] >= 9
