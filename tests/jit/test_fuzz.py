"""Random programs, called again and again with what they read changed in between: traced must be eager."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from fuzz_steps import arguments, program, run, tensor

import lamina
from lamina import jit
from lamina.ir.errors import GradError, InplaceError
from lamina.jit import backend, interpreted

CALLS = 6


def copies(tensors):
    """The same tensors again, related to each other as they are."""
    done, found = {}, []
    for x in tensors:
        root = x._base if x._base is not None else x
        key = id(root._data)
        if key not in done:
            data = np.empty_like(root._data)  # of the same strides
            data[...] = root._data
            done[key] = lamina.from_numpy(data), root
        copy = done[key][0]
        if x is not root:
            if x._base is None:  # detached
                copy = copy.detach()
            elif x.ndim < root.ndim:
                copy = copy[0]
            else:
                copy = copy.t()
        elif x._data is root._data and done[key][1] is not x:
            copy = copy.detach()
        found.append(copy)
    return found


def layout(x):
    """How a tensor lies in memory, as far as it shows: strides of sizes other than 1."""
    return tuple(s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1)


def shared(tensors):
    """Which pairs of tensors share memory, and which are one object."""
    return [
        (i, j, a is b, bool(np.may_share_memory(a._data, b._data)))
        for i, a in enumerate(tensors)
        for j, b in enumerate(tensors[:i])
        if a.numel() and b.numel()
    ]


def assert_same(eager, traced, rough, what):
    assert len(eager) == len(traced), what
    for i, (a, b) in enumerate(zip(eager, traced, strict=True)):
        where = f"{what}, tensor {i}"
        assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad), where
        assert layout(a) == layout(b), where
        assert (a._base is None) == (b._base is None), where
        if rough:
            # Up to 50 operations of at most 2 roundings each, in float32, on numbers below 16 in size; those
            # that grow (exp) by their own size.
            np.testing.assert_allclose(
                a._data, b._data, rtol=100 * 2.0**-24, atol=1600 * 2.0**-24, err_msg=where
            )
        else:
            np.testing.assert_array_equal(a._data, b._data, err_msg=where)


def one(seed: int, ops: Counter, outcomes: Counter) -> None:
    draw = random.Random(seed)
    steps = program(draw)
    held = tensor(draw, (3,), lamina.float32)
    mine = held.clone()

    def eager(x, y, scale):
        return run(steps, [x, y, held * scale, held])

    def traced_body(x, y, scale):
        return run(steps, [x, y, mine * scale, mine])

    traced = jit.trace(traced_body)
    given, relation = arguments(draw)
    for call in range(CALLS):
        if call and draw.random() < 0.3:
            given, relation = arguments(draw)
        elif call:
            for x in {id(x): x for x in given}.values():
                if x._base is None:
                    x.copy_(tensor(draw, tuple(x.shape), x.dtype))
        if draw.random() < 0.2:
            held.add_(1)
            mine.add_(1)
        scale = draw.choice((1, 1, 1, 2, 1.0))
        ours, theirs = copies(given), copies(given)
        state = lamina.get_rng_state()
        what = f"seed {seed}, call {call}, {relation}"
        failed = None
        try:
            values, rough = eager(*ours, scale)
        except Exception as error:
            failed = error
        after = lamina.get_rng_state()
        lamina.set_rng_state(state)
        if failed is not None:
            with pytest.raises(type(failed)):
                traced(*theirs, scale)
            continue
        got, got_rough = traced(*theirs, scale)
        assert (after == lamina.get_rng_state()).all(), what
        assert_same(values, got, False, what)
        assert_same(rough, got_rough, True, what)
        assert_same([*ours, held], [*theirs, mine], False, f"{what}, after the call")
        assert [x._version for x in (*ours, held)] == [x._version for x in (*theirs, mine)], (
            f"{what}, versions"
        )
        assert shared([*ours, held, *values]) == shared([*theirs, mine, *got]), what
    for recording in traced._recorded_graphs():
        ops.update(node.op.name for node in recording.raw.nodes)
    outcomes["compiled"] += traced._log.hits
    outcomes["recorded"] += traced._log.recorded
    outcomes["eager"] += traced._log.reasons.total()
    for reason in traced._log.reasons:
        assert "failed" not in reason and "could not be compiled" not in reason, f"seed {seed}: {reason}"
    for refusal in traced._log.refusals:
        assert "recorder failed" not in refusal and "leads to" not in refusal, f"seed {seed}: {refusal}"


def show(ops: Counter, outcomes: Counter) -> None:
    """Print what was covered: `make slow` shows it, as `pytest -rP` does."""
    print(f"\n{dict(outcomes)}; {len(ops)} ops: " + ", ".join(f"{name} {n}" for name, n in ops.most_common()))


@pytest.mark.timeout(600)  # under LAMINA_GUARD a page and more for each array
@pytest.mark.parametrize("how", ["interpreted", "native"])
def test_random_programs_do_traced_what_they_do_eagerly(how, monkeypatch, of_the_day):
    if how == "interpreted":
        monkeypatch.setattr(backend, "compile_graph", interpreted.compile_graph)
    ops: Counter = Counter()
    outcomes: Counter = Counter()
    for seed in of_the_day(range(60), 2):
        one(seed, ops, outcomes)
    assert outcomes["compiled"] > outcomes["eager"], outcomes


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_thousand_random_programs():
    ops: Counter = Counter()
    outcomes: Counter = Counter()
    for seed in range(1000, 3000):
        one(seed, ops, outcomes)
    show(ops, outcomes)
    assert len(ops) > 50 and outcomes["compiled"] > outcomes["eager"]


def gradients_of_one(seed: int, ops: Counter, outcomes: Counter) -> None:
    """The same with gradients on: outputs must lead back to arguments and weights as they do eagerly.

    Some are written before backward, which eager allows for what it did not save; and backward starts from
    all, or from two of them one after the other, which it allows where what it saved for one is not freed.
    """
    draw = random.Random(seed)
    steps = tuple(step for step in program(draw) if step[1] not in ("to_int", "sort", "argmax", "any"))
    weight = tensor(draw, (3,), lamina.float32)
    weights = [weight.clone().requires_grad_() for _ in range(2)]
    shape = draw.choice(((3,), (2, 3), (3, 3)))
    frozen = draw.random() < 0.3

    def body(weight):
        def function(x, y):
            return run(steps, [x * 1, y, x * weight, weight])

        return function

    eager, traced = body(weights[0]), jit.trace(body(weights[1]))
    for call in range(4):
        first = tensor(draw, shape, lamina.float32)
        x = [first.clone().requires_grad_(not frozen) for _ in range(2)]
        second = tensor(draw, shape, lamina.float32)
        changed = draw.choice((None, None, draw.randrange(20)))
        apart = draw.choice((None, (draw.randrange(20), draw.randrange(20))))
        what = f"seed {seed}, call {call}, changed {changed}, apart {apart}"
        found = []
        for function, argument, weight in ((eager, x[0], weights[0]), (traced, x[1], weights[1])):
            lamina.manual_seed(seed)
            weight.grad = None
            y = second.clone()
            try:
                values, rough = function(argument, y)
                made = [*values, *rough]
                if changed is not None:
                    made[changed % len(made)].detach().mul_(2)
                leading = [v for v in made if v.requires_grad and v.is_floating_point()]
                if leading and apart is not None:
                    for i in apart:
                        leading[i % len(leading)].float().sum().backward()
                elif leading:
                    sum((v.float() * (i + 1)).sum() for i, v in enumerate(leading)).backward()
            except Exception as error:
                found.append((type(error), None, None, [y]))
                continue
            found.append(([v.requires_grad for v in made], argument.grad, weight.grad, [y, weight, *values]))
        (kinds, *grads, values), (got_kinds, *got, got_values) = found
        refused = [k for k in (kinds, got_kinds) if k in (GradError, InplaceError)]
        if apart is not None and refused and kinds != got_kinds:
            outcomes["op by op"] += 1  # see jit/autograd.py, _together
            continue
        assert kinds == got_kinds, what
        assert_same([v.detach() for v in values if v._base is None],
                    [v.detach() for v in got_values if v._base is None], False, what)  # fmt: skip
        assert [v._version for v in values[:2]] == [v._version for v in got_values[:2]], what
        for a, b in zip(grads, got, strict=True):
            assert (a is None) == (b is None), what
            if a is not None:
                # up to 50 steps of a few roundings each, whose terms are as large as the largest gradient
                size = float(np.max(np.abs(a._data), initial=1.0))
                np.testing.assert_allclose(a._data, b._data, rtol=0, atol=400 * size * 2.0**-24, err_msg=what)
    for recording in traced._recorded_graphs():
        if recording.live:
            ops.update(node.op.name for node in recording.raw.nodes)
    outcomes["compiled"] += traced._log.hits
    outcomes["recorded"] += traced._log.recorded
    outcomes["eager"] += traced._log.reasons.total()
    for reason in traced._log.reasons:
        outcomes[reason[:60]] += 1
        assert "failed" not in reason and "could not be compiled" not in reason, f"seed {seed}: {reason}"


def test_random_programs_have_the_gradients_of_eager(of_the_day):
    outcomes: Counter = Counter()
    for seed in of_the_day(range(60), 3):
        gradients_of_one(seed, Counter(), outcomes)
    assert outcomes["compiled"] > 15 and outcomes["op by op"] < 2, outcomes


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_gradients_of_a_thousand_random_programs():
    ops: Counter = Counter()
    outcomes: Counter = Counter()
    for seed in range(1000, 2000):
        gradients_of_one(seed, ops, outcomes)
    show(ops, outcomes)
    assert len(ops) > 40 and outcomes["compiled"] > 500
    assert outcomes["op by op"] < 10
