"""Check what a profile hears: ops, steps of backward, traced calls and their kernels, and nothing else."""

import copy
import threading

import numpy as np
import pytest

import lamina
from lamina import nn
from lamina.ir.errors import ArgumentError, ArgumentValueError
from lamina.nn.functional import conv2d
from lamina.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule
from lamina.runtime import modes


def ordinary():
    return modes.local.timing is None and not modes.local.watched and modes.local.records


def named(p, name):
    return [event for event in p.events() if event.name == name]


def network():
    lamina.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


# ---- what is heard -----------------------------------------------------------------------------------------
def test_ops_and_what_they_happened_in():
    x = lamina.ones(3, 4)
    with profile(record_shapes=True) as p:
        with record_function("outside"):
            y = x @ lamina.ones(4, 5)
            with record_function("inside"):
                y.exp_()
        y + 1
    outside, inside, product, power = (named(p, name)[0] for name in ("outside", "inside", "matmul", "exp_"))
    assert outside.cpu_children == [named(p, "ones")[0], product, inside]
    assert (inside.cpu_children, power.cpu_parent, outside.cpu_parent) == ([power], inside, None)
    assert product.input_shapes == [[3, 4], [4, 5]]
    assert outside.is_user_annotation and not product.is_user_annotation
    assert len(named(p, "add")) == 1
    for event in p.events():
        inner = sum(child.cpu_time_total for child in event.cpu_children)
        assert 0 <= inner <= event.cpu_time_total
        assert event.self_cpu_time_total == pytest.approx(event.cpu_time_total - inner)
        for child in event.cpu_children:
            assert event.start <= child.start <= child.end <= event.end


def test_a_step_of_training():
    net, x = network(), lamina.randn(5, 6)
    plain = copy.deepcopy(net)
    optimizer, twin = (lamina.optim.Adam(n.parameters()) for n in (net, plain))
    with profile() as p:
        net(x).square().sum().backward()
        optimizer.step()
        lamina.ones(2).exp()
    plain(x).square().sum().backward()
    twin.step()
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    names = [event.name for event in p.events()]
    assert names.count("linear") == names.count("LinearBackward0") == 2
    assert names.count("ReluBackward0") == names.count("adam_update_") == 1
    (update,) = named(p, "adam_update_")
    assert update.end and named(p, "exp")[0].cpu_parent is None


@pytest.mark.parametrize("calls", [2, 12])
def test_kernels_of_traced_functions(calls):
    """After a few calls a path takes the short way, which tells nobody: not while a profile is open."""
    net = network().eval()
    traced, x = lamina.jit.trace(net), lamina.randn(5, 6)
    with lamina.no_grad():
        for _ in range(calls):
            want = traced(x)
        served = traced.counts()["served"]
        with profile(with_flops=True, record_shapes=True) as p:
            found = traced(x)
    np.testing.assert_array_equal(found.numpy(), want.numpy())
    (call,) = named(p, "traced Sequential")
    assert call.input_shapes == [[5, 6]]
    assert [event.name for event in call.cpu_children] == traced.kernels()
    # two products of (5, 6) with (6, 8) and (5, 8) with (8, 3), and what is added to them
    assert sum(event.flops for event in call.cpu_children) == 2 * 5 * 8 * 6 + 5 * 8 + 2 * 5 * 3 * 8 + 5 * 3
    assert traced.counts()["served"] == served + 1 >= calls


def test_a_traced_step_stays_right_under_a_profile():
    def made():
        net = network()
        optimizer = lamina.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    x, eager, traced = lamina.randn(5, 6), made(), lamina.jit.trace(made())
    for at in range(14):
        if at % 3:
            with profile():
                found = traced(x)
        else:
            found = traced(x)
        np.testing.assert_allclose(found.item(), eager(x).item(), rtol=1e-5)


def test_traced_functions_are_recorded_with_a_profile_open():
    @lamina.jit.trace
    def f(x):
        with record_function("label"):
            return lamina.tanh(x) * 2

    x = lamina.randn(100)
    with profile() as p:
        for _ in range(4):
            found = f(x)
    np.testing.assert_allclose(found.numpy(), np.tanh(x.numpy()) * 2, rtol=1e-6)
    assert len(named(p, "traced f")) == 4
    assert [event.name for event in named(p, "traced f")[-1].cpu_children] == f.kernels()
    assert f.counts()["served"] == 3


def test_labels_are_no_matter_to_what_is_traced():
    @lamina.jit.trace
    def f(x):
        with record_function("label"):
            y = x.exp()
        return y + 1

    for _ in range(4):
        f(lamina.ones(3))
    assert (f.counts()["served"], f.counts()["eager"]) == (3, 0)


def test_functions_of_ones_own_are_heard_in_backward():
    class Twice(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = lamina.ones(3, requires_grad=True)
    with profile() as p:
        Twice.apply(x).sum().backward()
    (step,) = named(p, "TwiceBackward")
    assert [event.name for event in step.cpu_children] == ["mul"]


def test_only_the_thread_that_began_is_heard():
    with profile() as p:
        thread = threading.Thread(target=lambda: lamina.ones(2) + 1)
        thread.start()
        thread.join()
        lamina.ones(2) * 2
    assert named(p, "mul") and not named(p, "add")


# ---- from when to when -------------------------------------------------------------------------------------
def test_nothing_is_heard_before_and_after():
    with profile() as p:
        assert not ordinary()
        lamina.ones(2) + 1
    assert ordinary()
    count = len(p.events())
    lamina.ones(2) + 1
    assert len(p.events()) == count


def test_errors_end_what_was_open():
    with profile() as p:
        with pytest.raises(lamina.ShapeError), record_function("label"):
            lamina.ones(2) + lamina.ones(3)
        lamina.ones(2).exp()
    assert ordinary()
    assert named(p, "exp")[0].cpu_parent is None
    assert all(event.end >= event.start > 0 for event in p.events())
    with pytest.raises(ZeroDivisionError), profile() as p:
        raise ZeroDivisionError
    assert ordinary() and p.events() == []


def test_a_profile_that_dies_ends():
    p = profile()
    p.start()
    assert not ordinary()
    del p
    assert ordinary()


def test_started_twice_or_never():
    p = profile()
    with pytest.raises(ArgumentValueError, match="nothing has been recorded"):
        p.events()
    with p:
        with pytest.raises(ArgumentValueError, match="has been started"):
            p.start()
    with profile(enabled=False) as p:
        lamina.ones(2) + 1
        assert ordinary()
    with pytest.raises(ArgumentValueError, match="not enabled"):
        p.key_averages()


def test_what_has_happened_so_far_can_be_asked_for():
    with profile() as p, record_function("label"):
        lamina.ones(2) + 1
        (label,) = named(p, "label")
        assert label.end >= named(p, "add")[0].end > 0


def test_a_schedule_is_followed():
    seen = []

    def ready(p):
        seen.append([event.name for event in p.events() if event.is_user_annotation])
        assert all(event.cpu_parent is None for event in p.events() if event.is_user_annotation)

    plan = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=plan, on_trace_ready=ready) as p:
        for _ in range(12):
            lamina.ones(2) + 1
            p.step()
    assert seen == [["ProfilerStep#3", "ProfilerStep#4"], ["ProfilerStep#7", "ProfilerStep#8"]]
    assert ordinary()


def test_what_a_schedule_says():
    plan = schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=2)
    none, warm, record, save = ProfilerAction
    assert [plan(step) for step in range(8)] == [none, none, none, warm, record, save, none, none]
    with pytest.raises(ArgumentValueError, match="active"):
        schedule(wait=0, warmup=0, active=0)


def test_what_can_not_be_heard_is_refused():
    with pytest.raises(ArgumentValueError, match="activities"):
        profile(activities=[ProfilerActivity.XPU])
    with pytest.raises(ArgumentError, match="no argument colour"):
        profile(colour=True)
    with pytest.raises(ArgumentError, match="schedule"):
        profile(schedule=3)


# ---- work and memory ---------------------------------------------------------------------------------------
def flops_of(function):
    with profile(with_flops=True) as p:
        function()
    return sum(event.flops for event in p.events())


@pytest.mark.parametrize(
    "function, flops",
    [
        (lambda: lamina.ones(7, 5).matmul(lamina.ones(5, 3)), 2 * 7 * 5 * 3),
        (lambda: lamina.ones(2, 7, 5) @ lamina.ones(2, 5, 3), 2 * 2 * 7 * 5 * 3),
        (lambda: conv2d(lamina.ones(2, 4, 9, 9), lamina.ones(6, 4, 3, 3)), 2 * 2 * 6 * 49 * 36),
        (lambda: conv2d(lamina.ones(1, 4, 8, 8), lamina.ones(4, 2, 1, 1), groups=2), 2 * 4 * 64 * 2),
        # three of four taps meet nothing
        (
            lambda: lamina.conv_transpose2d(lamina.ones(2, 6, 4, 4), lamina.ones(6, 3, 4, 4), None, 2, 1),
            2 * 2 * 3 * 8 * 8 * 6 * 4,
        ),
        (lambda: lamina.ones(7) + lamina.ones(7), 7),
        (lambda: lamina.ones(7).relu(), 0),
        (lambda: lamina.ones(7, 3).reshape(21).t(), 0),
        (lambda: lamina.ones(7, dtype=lamina.int64) * 3, 0),
        (lambda: lamina.ones(0, 3).exp(), 0),
    ],
)  # fmt: skip
def test_operations_are_those_of_the_definition(function, flops):
    assert flops_of(function) == flops


def test_memory_is_what_new_tensors_hold():
    with profile(profile_memory=True) as p:
        a = lamina.ones(1000, dtype=lamina.float64)
        with record_function("label"):
            b = a.exp()
            b.exp()  # and gone
        b.add_(1)
        view = b[10:]
        del view
    (label,) = named(p, "label")
    assert label.cpu_memory_usage == 8000
    assert [event.cpu_memory_usage for event in named(p, "exp")] == [8000, 8000]
    assert label.self_cpu_memory_usage == -8000
    assert named(p, "add_")[0].cpu_memory_usage == 0
    assert sum(nbytes for _, nbytes, _ in p._recorder.changes) == 16000


def test_gradients_count_as_memory():
    x = lamina.ones(1000, requires_grad=True)
    with profile(profile_memory=True) as p:
        x.exp().sum().backward()
    assert named(p, "ExpBackward0")[0].cpu_memory_usage >= 4000


def test_stacks_name_the_users_lines():
    def inner():
        return lamina.ones(2) + 1

    with profile(with_stack=True) as p:
        inner()
    first, second, *_ = named(p, "add")[0].stack
    assert first.endswith(": inner") and "test_profiles.py(" in first
    assert second.endswith(": test_stacks_name_the_users_lines")
