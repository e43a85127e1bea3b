"""Functions that look at values: paths, their bounds, and what an unfinished path leaves behind (nothing)."""

from __future__ import annotations

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim
from lamina.ir.errors import ArgumentError, LaminaError


def same(a, b):
    np.testing.assert_array_equal(a._data, b._data)


def hits(traced):
    return traced._log.hits


def test_both_sides_of_a_branch_are_served():
    @jit.trace
    def f(x):
        y = x * 2
        return y + 1 if y.sum() > 0 else -y

    for value in (1.0, -1.0, 2.0, -2.0, 3.0, -3.0):
        x = lamina.full((3,), value)
        same(f(x), f.__wrapped__(x))
    assert hits(f) == 4
    segments = f._segments()
    assert len(segments) == 3  # the question, and a rest for each answer
    assert "the answer to bool: True -> False (test_paths.py:" in f.explain(detail=True)


def test_a_path_hands_over_what_is_used_later():
    @jit.trace
    def f(x):
        y = x.exp()
        z = y.sum()
        return y * 2 if z > 100 else y / 2

    for value in (0.0, 9.0, 1.0, 8.0):
        x = lamina.full((3,), value)
        # exp is within 1 ulp of the reference's, and scaled exactly
        np.testing.assert_allclose(f(x)._data, f.__wrapped__(x)._data, rtol=2 * 2.0**-23)
    assert hits(f) == 2
    first, *rest = f._segments()
    assert {node.op.name for node in first.graph.nodes} == {"exp", "sum", "gt"}
    assert all(node.op.name in ("mul", "div") for s in rest for node in s.graph.nodes)


@pytest.mark.parametrize("how", [bool, int, float, lamina.Tensor.item, lamina.Tensor.tolist])
def test_every_way_to_a_number_is_a_question(how):
    @jit.trace
    def f(x):
        return x * how(x.sum())

    for _ in range(2):
        for value in (1.0, 2.0):
            x = lamina.full((2,), value)
            same(f(x), f.__wrapped__(x))
    assert hits(f) >= 2 and f._segments()[0].ask.how in ("bool", "int", "float", "item", "tolist")


def test_answers_are_told_apart_by_type_and_bits():
    @jit.trace
    def f(x):
        value = x.item()
        return lamina.ones_like(x) * (1.0 if str(value) == "-0.0" else 2.0)

    for _ in range(2):
        assert f(lamina.tensor(0.0)).item() == 2.0
        assert f(lamina.tensor(-0.0)).item() == 1.0
        assert f(lamina.tensor(float("nan"))).item() == 2.0
    assert hits(f) == 3


def test_a_loop_ends_where_the_values_say():
    @jit.trace
    def f(x):
        n = 0
        while x.abs().amax() > 1:
            x = x / 2
            n += 1
        return x, n

    for value in (1.0, 8.0, 5.0, 3.0, 8.0, 3.0, 1.0):
        x = lamina.full((2,), value)
        (y, n), (z, m) = f(x), f.__wrapped__(x)
        same(y, z)
        assert n == m
    assert hits(f) == 4


def test_shapes_that_depend_on_values():
    @jit.trace
    def f(x):
        picked = x[x > 0]
        return picked * 2, x.nonzero(), len(picked)

    for values in ([1, 0, 2], [0, 3, 0], [5, 0, 1], [-1, 2, 0], [0, 0, 0]):
        x = lamina.tensor(values).float()
        for a, b in zip(f(x), f.__wrapped__(x), strict=True):
            assert a == b if isinstance(a, int) else True
            if not isinstance(a, int):
                same(a, b)
    assert hits(f) == 1  # the third call: each other one has other numbers of places


def test_nothing_is_written_before_the_last_question():
    state = lamina.zeros(2)

    @jit.trace
    def f(x):
        state.add_(1)
        noise = lamina.rand(2)
        if state.sum() > x:
            raise KeyError("enough")
        if x > 100:
            return noise
        return noise + state

    def run(function):
        state.zero_()
        lamina.manual_seed(3)
        found = []
        for limit in (50.0, 50.0, 200.0, 50.0, 200.0, 200.0, 1.0, 50.0):
            try:
                found.append(function(lamina.tensor(limit)).tolist())
            except KeyError:
                found.append("enough")
            found.append((state.tolist(), lamina.get_rng_state().tolist()))
        return found

    assert run(f) == run(f.__wrapped__)
    assert hits(f) >= 3


def test_a_value_that_never_repeats_ends_in_eager_with_advice():
    total = 0.0

    @jit.trace
    def f(x):
        return [float(str(x.sum().item()).strip())]

    for number in range(20):
        total += f(lamina.full((2,), float(number)))[0]
    assert total == sum(2.0 * n for n in range(20))
    text = f.explain()
    assert "f: not served, because the answer to item took more than 8 values\n  at test_paths.py:" in text
    assert "instead: return the tensor and turn it into a number outside: running += loss.item() " in text
    assert f._log.recorded == 8


def test_a_number_that_keeps_changing_becomes_an_input():
    @jit.trace
    def f(x, n):
        return x * n

    for n in range(50):
        same(f(lamina.ones(2), n), lamina.ones(2) * n)
    assert f._log.recorded == 2 and f._log.hits == 48


def test_recordings_are_bounded():
    @jit.trace(dynamic=False)
    def f(x):
        return x * 2

    for n in range(50):
        same(f(lamina.ones(n)), lamina.ones(n) * 2)
    assert f._log.recorded == 32
    assert "32 recordings were made, and none fits; the last differs in: x: f32[" in f.explain(detail=True)


def test_the_bound_is_the_users_and_may_be_an_error():
    def f(x):
        return x * 2

    eager = jit.trace(f, max_recordings=2, dynamic=False)
    strict = jit.trace(f, max_recordings=2, when_full="error", dynamic=False)
    for n in (1, 2, 1, 2):
        for traced in (eager, strict):
            same(traced(lamina.ones(n)), lamina.ones(n) * 2)
    same(eager(lamina.ones(3)), lamina.ones(3) * 2)
    with pytest.raises(jit.TooManyRecordings, match="f: 2 recordings were made, and none .* f32.3.") as e:
        strict(lamina.ones(3))
    assert isinstance(e.value, LaminaError) and isinstance(e.value, RuntimeError)
    for traced in (eager, strict):  # what was recorded is served still
        same(traced(lamina.ones(1)), lamina.ones(1) * 2)
        assert traced._log.recorded == 2 and hits(traced) == 3
    assert eager.counts()["eager"] == 1
    strict.reset()
    same(strict(lamina.ones(3)), lamina.ones(3) * 2)
    with pytest.raises(ArgumentError, match="when_full 'eager' or 'error', not 'now' and 'raise'"):
        jit.trace(f, when_full="raise")
    with pytest.raises(ArgumentError, match="compile is 'now' or 'background'"):
        jit.trace(f, compile="later")


def test_branches_inside_a_training_step():
    def make():
        lamina.manual_seed(1)
        net = nn.Linear(3, 1)
        optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.5)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            if loss > 1:
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            return loss

        return net, step

    (a, one), (b, two) = make(), make()
    traced = jit.trace(one)
    for number in range(12):
        x = lamina.randn(4, 3, generator=lamina.Generator().manual_seed(number)) * (1 + 3 * (number % 2))
        traced(x), two(x)
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            # 12 steps, each with sums of 12 products, whose errors the contraction does not grow
            np.testing.assert_allclose(p._data, q._data, rtol=0, atol=12 * 16 * 2.0**-24)
    assert hits(traced) >= 8


def test_questions_about_what_is_written_see_the_value_of_their_time():
    @jit.trace
    def f(x):
        y = x * 1
        first = y.sum()
        if first > 0:
            y.zero_()
        if y.sum() > 0:
            return y
        return y + first

    for value in (1.0, -1.0, 2.0, -2.0):
        x = lamina.full((2,), value)
        same(f(x), f.__wrapped__(x))
    assert hits(f) == 2


def test_what_differs_from_run_to_run_is_not_replayed():
    class Dice:
        def __init__(self):
            self.thrown = iter(range(100))

        def __bool__(self):
            return next(self.thrown) % 2 == 0

    dice = Dice()

    @jit.trace
    def f(x):
        return x + 1 if dice else x - 1

    for number in range(6):
        assert f(lamina.zeros(())).item() == (1 if number % 2 == 0 else -1)
