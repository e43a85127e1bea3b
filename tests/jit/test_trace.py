"""What a traced function returns and leaves behind is what the function itself would have."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim
from lamina.ir.errors import ArgumentError, GradError, ShapeError
from lamina.jit import backend
from lamina.jit.observe.known import Registry


def tensor(*shape):
    """Different small whole numbers."""
    return lamina.arange(int(np.prod(shape))).reshape(shape).float() - 3


def near(a, b, terms):
    """Equal but for rounding: sums of `terms` products of numbers up to the greatest that is there."""
    size = float(np.max(np.abs(b._data), initial=1.0))
    np.testing.assert_allclose(a._data, b._data, rtol=0, atol=2 * terms * size * 2.0**-24)


def hits(traced):
    return traced._log.hits


def test_the_second_call_runs_what_the_first_recorded():
    ran = []

    class Counted(nn.Module):
        def forward(self, x):
            return (x * 2 + 1).relu()

    traced = jit.trace(Counted())
    for number in range(3):
        x = tensor(2, 3) + number
        np.testing.assert_array_equal(traced(x)._data, (x * 2 + 1).relu()._data)
        ran.append(hits(traced))
    assert ran == [0, 1, 2]
    assert str(traced.graph()) == (
        "graph traced(%p0: f32[2,3]) -> (f32[2,3]) {\n"
        "  %0 = mul(%p0, 2.0:f32) : f32[2,3]\n"
        "  %1 = add(%0, 1.0:f32) : f32[2,3]\n"
        "  %2 = relu(%1) : f32[2,3]\n"
        "  return %2\n"
        "}"
    )


def test_weights_are_read_at_each_call():
    layer = nn.Linear(3, 2)
    traced = jit.trace(layer)
    x = tensor(4, 3)
    with lamina.no_grad():
        for _ in range(3):
            near(traced(x), layer(x), 4)
            layer.weight.add_(1)
        layer.weight.data = layer.weight.data * 2  # another array of the same type
        near(traced(x), layer(x), 4)
    assert hits(traced) == 3


# ---- arguments and results ---------------------------------------------------------------------------------
Pair = namedtuple("Pair", "first second")


@dataclass
class Batch:
    x: lamina.Tensor
    scale: float


def test_arguments_and_results_may_be_nested():
    @jit.trace
    def f(pair, batch, *, extra):
        return {"sum": pair.first + pair.second, "pair": Pair(batch.x * batch.scale, [extra[0], 3])}

    for k in range(3):
        x = tensor(2) + k
        got = f(Pair(x, x * 2), Batch(x, 2.0), extra=(x - 1, "text"))
        assert list(got) == ["sum", "pair"] and type(got["pair"]) is Pair and type(got["pair"].second) is list
        np.testing.assert_array_equal(got["sum"]._data, (x * 3)._data)
        np.testing.assert_array_equal(got["pair"].second[0]._data, (x - 1)._data)
        assert got["pair"].second[1] == 3
    assert hits(f) == 2


def test_keywords_and_defaults_are_the_functions_own():
    @jit.trace
    def f(x, scale=2.0, *, shift=1.0):
        return x * scale + shift

    x = tensor(3)
    for _ in range(2):
        np.testing.assert_array_equal(f(x)._data, (x * 2 + 1)._data)
        np.testing.assert_array_equal(f(x, shift=0.0)._data, (x * 2)._data)
        np.testing.assert_array_equal(f(x, 3.0)._data, (x * 3 + 1)._data)
    assert hits(f) == 3


def test_results_are_the_same_objects_and_views_as_eagerly():
    @jit.trace
    def f(x, y):
        z = x + y
        return x, z, z[0], z, x.t(), z.detach(), y.detach()

    for k in range(3):
        x, y = tensor(2, 2) + k, tensor(2, 2)
        given, z, row, again, turned, alias, ours = f(x, y)
        assert given is x and again is z
        assert row._base is z and turned._base is x and turned.stride() == (1, 2)
        assert alias is not z and alias._data is z._data
        z.add_(1)
        assert row._version == z._version == alias._version == 1
        ours.add_(1)
        assert y._version == 1
    assert hits(f) == 2


def test_results_have_memory_of_their_own():
    @jit.trace
    def f(x):
        return x + 1, x + 1, x.clone(), lamina.zeros(2), lamina.tensor([1.0, 2.0])

    x = tensor(2)
    f(x)
    first, second = f(x), f(x)
    arrays = [y._data for y in (*first, *second, x)]
    for i, a in enumerate(arrays):
        assert a.flags.writeable
        assert not any(np.may_share_memory(a, b) for b in arrays[:i])


def test_results_keep_the_order_of_their_dimensions_in_memory():
    @jit.trace
    def f(x):
        return x.t() + 1, x.permute(2, 0, 1).exp() if x.ndim == 3 else x

    x = tensor(3, 4).t()
    for _ in range(2):
        y, _ = f(x)
        assert y.stride() == (x.t() + 1).stride()
    z = tensor(2, 3, 4)
    expected = z.permute(2, 0, 1).exp().stride()

    @jit.trace
    def g(x):
        return x.permute(2, 0, 1).exp()

    assert g(z).stride() == g(z).stride() == expected


# ---- writes ------------------------------------------------------------------------------------------------
def test_writes_reach_arguments_with_their_count_and_their_line():
    @jit.trace
    def f(x):
        x[0].mul_(2)
        x += 1
        return x.sum()

    for k in range(3):
        x = tensor(2, 2) + k
        y = x.clone()
        y[0].mul_(2)
        y += 1
        assert f(x).item() == y.sum().item()
        np.testing.assert_array_equal(x._data, y._data)
        assert x._version == 2 and x._storage.writer[0] == "add_"
    assert hits(f) == 2


def test_a_write_is_seen_by_what_was_saved_for_backward():
    @jit.trace
    def f(x):
        x.mul_(2)

    x = lamina.ones(2)
    f(x)
    w = lamina.ones(2, requires_grad=True)
    loss = (w * x).sum()
    f(x)
    assert hits(f) == 1
    with pytest.raises(RuntimeError, match="changed by    mul_ "):
        loss.backward()


def test_strided_memory_is_written_in_its_place():
    @jit.trace
    def f(x):
        x.add_(1)
        return x * 2

    for _ in range(3):
        base = tensor(3, 4)
        expected = base + 1
        expected[:, 1::2] -= 1
        x = base[:, ::2]
        np.testing.assert_array_equal(f(x)._data, (base[:, ::2])._data * 2)
        np.testing.assert_array_equal(base._data, expected._data)
    assert hits(f) == 2


def test_buffers_of_batch_norm_are_written():
    norm, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    traced = jit.trace(lambda x: norm(x).detach())
    for k in range(4):
        x = tensor(4, 3) * (k + 1)
        np.testing.assert_allclose(traced(x)._data, other(x)._data, rtol=2**-20)
    # means of 4 numbers: 3 roundings, and the same again for squares
    np.testing.assert_allclose(norm.running_mean._data, other.running_mean._data, rtol=8 * 2**-24)
    np.testing.assert_allclose(norm.running_var._data, other.running_var._data, rtol=16 * 2**-24)
    assert norm.num_batches_tracked.item() == 4 and hits(traced) == 3


# ---- random numbers ----------------------------------------------------------------------------------------
def test_random_numbers_are_those_of_eager():
    own = lamina.Generator().manual_seed(5)

    @jit.trace
    def f(x):
        return F.dropout(x, 0.5), lamina.randn(3), lamina.rand(2, generator=own)

    def sequence(function):
        lamina.manual_seed(7)
        own.manual_seed(5)
        found = [y._data.copy() for _ in range(4) for y in (*function(lamina.ones(100)), lamina.rand(2))]
        return found

    for a, b in zip(sequence(f.__wrapped__), sequence(f), strict=True):
        # uniform ones are the same bits; normal ones go through a logarithm, a root and a cosine
        np.testing.assert_allclose(a, b, rtol=0, atol=16 * 2.0**-24)
    assert hits(f) == 3


def test_a_failed_run_draws_nothing():
    @jit.trace
    def f(x):
        y = lamina.rand(3)
        if x.sum() > 0:
            raise KeyError("positive")
        return y

    f(-lamina.ones(2))
    f(-lamina.ones(2))
    before = lamina.get_rng_state()
    with pytest.raises(KeyError):
        f(lamina.ones(2))
    used = lamina.get_rng_state()
    lamina.set_rng_state(before)
    with pytest.raises(KeyError):
        f.__wrapped__(lamina.ones(2))
    assert (used == lamina.get_rng_state()).all()


# ---- history -----------------------------------------------------------------------------------------------
def test_outputs_have_the_history_of_eager():
    layer = nn.Linear(3, 2)
    traced = jit.trace(lambda x: layer(x).tanh())
    x = lamina.randn(4, 3).requires_grad_()
    found = []
    for function in (traced, traced, traced.__wrapped__):
        layer.zero_grad()
        x.grad = None
        function(x).square().sum().backward()
        found.append([p.grad._data for p in (layer.weight, layer.bias, x)])
    assert hits(traced) == 1
    for a, b in zip(found[1], found[2], strict=True):
        # sums of 4 products, of values that went through tanh and its square: 16 roundings
        np.testing.assert_allclose(a, b, rtol=16 * 2**-24, atol=16 * 2**-24)


def test_backward_through_what_was_freed_raises():
    w = lamina.ones(3, requires_grad=True)

    @jit.trace
    def f(x):
        loss = (w * x).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        w.grad = None
        loss = f(lamina.ones(3))
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(GradError, match="a second time"):
            loss.backward()
    assert hits(f) >= 1


@pytest.mark.parametrize(
    "reduced", [lambda x: x.sum(0), lambda x: x.mean(), lambda x: x.sum(1, keepdim=True)]
)
def test_gradients_have_places_of_their_own(reduced):
    """Of what is summed one number is the gradient of many elements, which are written one by one."""

    def f(x):
        x = x.detach().requires_grad_()
        y = x * 2
        y.retain_grad()
        z = reduced(y)
        (found,) = lamina.autograd.grad(reduced(x), x, lamina.ones_like(z))
        z.sum().backward()
        strides = found.stride(), y.grad.stride()
        found[0], y.grad[1] = 7.0, 9.0
        return found, y.grad, strides

    traced, x = lamina.jit.trace(f, budget=None), lamina.ones(4, 3)
    for _ in range(3):
        for found, wanted in zip(traced(x)[:2], f(x)[:2], strict=True):
            assert found.tolist() == wanted.tolist() and found.stride() == wanted.stride() == (3, 1)
        assert traced(x)[2] == f(x)[2]


def test_gradients_are_added_to_those_that_are_there():
    w = lamina.ones(3, requires_grad=True)

    @jit.trace
    def f(x):
        (w * x).sum().backward()

    for k in range(1, 5):
        f(lamina.ones(3))
        assert w.grad.tolist() == [k] * 3
    before = w.grad
    f(lamina.ones(3))
    assert w.grad is before and before._version >= 1
    w.grad = None
    f(lamina.ones(3))
    f(lamina.ones(3))
    assert w.grad.tolist() == [2] * 3 and hits(f) == 5


def test_a_custom_function_is_recorded_where_backward_runs_inside():
    class Twice(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 5 + ctx.saved_tensors[0] * 0  # not the gradient, so that one sees which ran

    w = lamina.ones(3, requires_grad=True)

    @jit.trace
    def f(x):
        w.grad = None
        Twice.apply(w * x).sum().backward()
        return w.grad

    for _ in range(3):
        assert f(lamina.ones(3)).tolist() == [5.0] * 3
    assert hits(f) == 1  # one recording without a gradient before, one with


# ---- exceptions, threads, nesting --------------------------------------------------------------------------
def test_errors_are_the_users_own_and_leave_nothing_behind():
    state = lamina.zeros(2)

    @jit.trace
    def f(x, y):
        state.add_(1)
        return x @ y

    x = tensor(2, 3)
    for _ in range(2):
        with pytest.raises(ShapeError, match="matmul"):
            f(x, x)
    assert state.tolist() == [2.0, 2.0]
    f(x, x.t())
    f(x, x.t())
    assert state.tolist() == [4.0, 4.0] and hits(f) == 1


def test_an_index_out_of_range_raises_as_eagerly():
    table, seen = nn.Embedding(4, 3), lamina.zeros(())

    @jit.trace
    def f(at):
        seen.add_(1)
        with lamina.no_grad():
            return table(at) * 2

    for _ in range(2):
        f(lamina.tensor([0, 3]))
    for _ in range(2):
        with pytest.raises(IndexError, match="4"):
            f(lamina.tensor([0, 4]))
    near(f(lamina.tensor([1, 2])), f.__wrapped__(lamina.tensor([1, 2])), 1)
    assert hits(f) == 2 and seen.item() == 6


def test_an_argument_that_can_not_be_written():
    @jit.trace
    def f(x):
        x.add_(1)

    f(lamina.zeros(2)), f(lamina.zeros(2))
    data = np.zeros(2, np.float32)
    x = lamina.from_numpy(data)
    data.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        f(x)


def test_an_interrupt_leaves_the_tracer_usable():
    interrupted = []

    @jit.trace
    def f(x):
        y = x + 1
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return y

    with pytest.raises(KeyboardInterrupt):
        f(tensor(2))
    for _ in range(3):
        np.testing.assert_array_equal(f(tensor(2))._data, (tensor(2) + 1)._data)


def test_the_recursion_limit_is_as_before_where_runs_of_threads_overlap():
    limit, second_began, first_ended = sys.getrecursionlimit(), threading.Event(), threading.Event()

    def second(x):
        second_began.set()
        first_ended.wait()
        return x + 2

    thread = threading.Thread(target=jit.trace(second), args=(tensor(2),))

    def first(x):
        thread.start()
        second_began.wait()
        return x + 1

    jit.trace(first)(tensor(2))
    first_ended.set()
    thread.join()
    assert sys.getrecursionlimit() == limit


def test_an_error_of_the_recorders_own_is_not_the_users(monkeypatch):
    """What an operation of the interpreter's raises, and a plain run does not, is told of once."""
    w = tensor(2)

    def function(x):
        return x @ w

    code = Registry.number.__code__

    def number(self, x, path, place=None):
        raise RuntimeError("planted")

    monkeypatch.setattr(Registry, "number", number)
    monkeypatch.setattr(number, "__code__", number.__code__.replace(co_filename=code.co_filename))
    f = jit.trace(function)
    with pytest.warns(UserWarning, match="the recorder failed: RuntimeError: planted"):
        np.testing.assert_array_equal(f(tensor(2))._data, function(tensor(2))._data)
    np.testing.assert_array_equal(f(tensor(2))._data, function(tensor(2))._data)
    assert "the recorder failed" in f.explain()


def test_an_interrupted_compile_leaves_nothing_half_made(monkeypatch):
    real, interrupts = backend.compile_graph, [0, 1, 1, 0, 0, 0]

    def compile_graph(*args, **kwargs):
        if interrupts.pop(0):
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(backend, "compile_graph", compile_graph)

    @jit.trace
    def f(x):
        return x * 2 if x.sum() > 0 else x - 1

    for value in (1.0, 1.0, -1.0, 1.0, -1.0):
        x = lamina.full((2,), value)
        try:
            np.testing.assert_array_equal(f(x)._data, f.__wrapped__(x)._data)
        except KeyboardInterrupt:
            pass
    assert not interrupts


def test_threads_may_call_one_traced_function():
    layer = nn.Linear(8, 8)
    x = [lamina.randn(4, 8) for _ in range(4)]

    @jit.trace
    def f(x):
        with lamina.no_grad():
            y = layer(x)
            return y if y.sum() > 0 else -y

    expected = [f.__wrapped__(x[i]) for i in range(4)]
    for each in x:
        f(each)
    wrong = []

    def work(i):
        for _ in range(50):
            try:
                near(f(x[i]), expected[i], 9)
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not wrong
    assert hits(f) > 100


def test_large_scratch_memory_goes_with_its_recording():
    traced, x = jit.trace(lambda x: (x @ x).relu() @ x), lamina.ones(600, 600)
    traced(x), traced(x)
    code = weakref.ref(traced._segments()[0].code.code)
    assert code().arena > backend.SMALL and hits(traced) == 1
    del traced
    gc.collect()
    assert code() is None


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resizing_is_recorded(mode):
    x = lamina.randn(1, 2, 3, 4)
    traced = jit.trace(lambda x: nn.functional.interpolate(x, scale_factor=2, mode=mode))
    for _ in range(3):
        near(traced(x), traced.__wrapped__(x), 4)  # four taps a place
    assert hits(traced) == 2


def test_a_traced_function_inside_another_is_recorded_with_it():
    @jit.trace
    def inner(x):
        return x * 2

    @jit.trace
    def outer(x):
        return inner(x) + inner(x + 1)

    for _ in range(3):
        np.testing.assert_array_equal(outer(tensor(2))._data, (tensor(2) * 4 + 2)._data)
    assert (hits(inner), hits(outer)) == (0, 2)


def test_recursion_is_recorded():
    @jit.trace
    def power(x, n):
        return x if n == 0 else power(x * 2, n - 1)

    for _ in range(3):
        np.testing.assert_array_equal(power(tensor(2), 3)._data, (tensor(2) * 8)._data)
    assert hits(power) == 2


class Scaled:
    def __init__(self, scale):
        self.scale = scale
        self.weight = lamina.ones(2) * scale

    @jit.trace
    def __call__(self, x):
        return x * self.weight + self.scale


def test_methods_are_traced_for_each_object():
    one, two = Scaled(1.0), Scaled(2.0)
    for _ in range(3):
        assert one(lamina.ones(2)).tolist() == [2.0, 2.0]
        assert two(lamina.ones(2)).tolist() == [4.0, 4.0]
    two.scale = 5.0
    assert two(lamina.ones(2)).tolist() == [7.0, 7.0]
    assert hits(Scaled.__call__) == 5


def test_a_traced_module_has_what_the_module_has():
    traced = jit.trace(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    assert len(list(traced.parameters())) == 2
    x = lamina.randn(3, 2)
    traced.eval()
    with lamina.no_grad():
        near(traced(x), traced(x), 3)
    assert hits(traced) == 1


def test_background_compiling_lets_calls_go_on():
    @jit.trace(compile="background")
    def f(x):
        return x * 2

    for _ in range(200):
        np.testing.assert_array_equal(f(tensor(2))._data, (tensor(2) * 2)._data)
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.current_thread():
            thread.join(1)
    f(tensor(2))
    assert hits(f) >= 1


def test_reset_forgets():
    @jit.trace
    def f(x):
        return x * 2

    f(tensor(2)), f(tensor(2))
    f.reset()
    assert hits(f) == 0
    with pytest.raises(ArgumentError, match="f has no recording"):
        f.graph()


def test_trace_takes_what_can_be_called_and_recorded():
    with pytest.raises(ArgumentError, match="takes a function or a module, not int"):
        jit.trace(3)
    with pytest.raises(ArgumentError, match="Linear is a class"):
        jit.trace(nn.Linear)
    with pytest.raises(ArgumentError, match="stops in the middle"):

        @jit.trace
        def generator(x):
            yield x


def test_an_optimizer_may_be_made_anew():
    w = nn.Parameter(lamina.ones(2))

    @jit.trace
    def step(optimizer, x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    for lr in (0.5, 0.25):
        optimizer = optim.SGD([w], lr=lr)
        for _ in range(3):
            before = w.tolist()
            step(optimizer, lamina.ones(2))
            assert w.tolist() == [v - lr for v in before]
    assert hits(step) >= 2


def test_traced_modules_are_copied_and_pickled_without_their_recordings():
    traced = jit.trace(nn.Linear(3, 2))
    x = lamina.randn(4, 3)
    with lamina.no_grad():
        y = traced(x)
        for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
            assert other.__wrapped__ is not traced.__wrapped__ and "0 recordings" in repr(other)
            assert np.array_equal(other(x).numpy(), y.numpy())


def test_recordings_of_what_is_gone_are_not_counted():
    @jit.trace
    def evaluated(model, x):
        return model(x)

    x = lamina.randn(2, 3)
    with lamina.no_grad():
        for _ in range(40):  # more than one function may have
            evaluated(nn.Linear(3, 1), x)
        model = nn.Linear(3, 1)
        evaluated(model, x)
        evaluated(model, x)
    assert "1 compiled call" in evaluated.explain(detail=True)


def test_an_index_error_that_the_function_catches_is_no_fault_of_the_compiler():
    table = lamina.arange(12.0).reshape(4, 3)

    @jit.trace
    def look_up(index):
        try:
            return table[index] * 2
        except IndexError:
            return table[:1]

    assert look_up(lamina.tensor([1])).tolist() == [[6.0, 8.0, 10.0]]
    assert look_up(lamina.tensor([1])).tolist() == [[6.0, 8.0, 10.0]]
    assert look_up(lamina.tensor([9])).tolist() == [[0.0, 1.0, 2.0]]  # warnings are errors here


@jit.trace
def named(x):
    return x * 2


def test_a_traced_function_is_pickled_and_copied_as_the_function_would_be():
    assert pickle.loads(pickle.dumps(named)) is named
    assert copy.copy(named) is named and copy.deepcopy(named) is named


def test_a_shallow_copy_of_a_traced_module_shares_its_layers_and_not_its_attributes():
    traced = jit.trace(nn.Linear(2, 2))
    traced.scale = 2.0
    other = copy.copy(traced)
    other.scale = 3.0
    assert (traced.scale, traced.__wrapped__.scale, other.scale) == (2.0, 2.0, 3.0)
    assert other.weight is traced.weight
    del traced.scale
    assert not hasattr(traced, "scale") and other.scale == 3.0


def test_a_recording_keeps_neither_what_it_was_given_nor_what_it_returned():
    f = jit.trace(lambda x, held: [x * 2, *held])
    gc.disable()
    try:
        for _ in range(3):
            x, held = lamina.ones(3), [lamina.ones(3)]
            kept = f(x, held)
            reach = [weakref.ref(each) for each in (x, held[0], kept[0])]
            del x, held, kept
            assert [each() for each in reach] == [None, None, None]
    finally:
        gc.enable()


def test_wrapped_function_that_is_replaced_is_the_one_that_runs():
    traced = lamina.jit.trace(lambda x: x * 2)
    x = lamina.ones(2)
    assert [traced(x).tolist() for _ in range(3)] == [[2.0, 2.0]] * 3
    traced.__wrapped__ = lambda x: x * 3
    assert [traced(x).tolist() for _ in range(3)] == [[3.0, 3.0]] * 3
    assert traced.counts()["served"] == 2
