"""Programs whose functions read, set or depend on modes: gradients, inference, default dtype, training."""

from __future__ import annotations

import contextlib

from battery import lib as t
from battery import program


@program("modes")
def gradients_are_off_around_the_call(w):
    weight = t.ones(4, requires_grad=True)
    f = w.trace(lambda x: x * weight)
    for on in w.rounds(True, False, True):
        t.set_grad_enabled(on)
        w.call(f, w.x)


@program("modes")
def the_mode_is_asked(w):
    f = w.trace(lambda x: x * 2 if t.is_grad_enabled() else x * 3)
    for on in w.rounds(True, False, True):
        t.set_grad_enabled(on)
        w.call(f, w.x)


@program("modes")
def gradients_are_off_inside(w):
    weight = t.ones(4, requires_grad=True)

    @w.trace
    def f(x, off):
        with t.no_grad() if off else contextlib.nullcontext():
            y = x * weight
        return y, y * weight

    for off in w.rounds(True, False, True):
        w.call(f, w.x, off)


@program("modes")
def gradients_are_on_inside_of_off(w):
    weight = t.ones(4, requires_grad=True)

    @w.trace
    def f(x):
        with t.enable_grad():
            y = x * weight
        return y, x * weight

    for on in w.rounds(True, False, True):
        t.set_grad_enabled(on)
        w.call(f, w.x)


@program("modes")
def the_mode_is_left_behind(w):
    @w.trace
    def f(x, on):
        t.set_grad_enabled(on)
        return x * 2

    for on in w.rounds(False, True, False):
        w.call(f, w.x, on)


@program("modes")
def a_decorator_turns_gradients_off(w):
    weight = t.ones(4, requires_grad=True)

    def plain(x):
        return x * weight

    held = [plain]
    f = w.trace(lambda x: held[0](x) + weight)
    for held[0] in w.rounds(plain, t.no_grad()(plain), plain):
        w.call(f, w.x)


@program("modes")
def inference_mode_around(w):
    f = w.trace(lambda x: (x * 2, t.is_inference_mode_enabled()))
    for scope in w.rounds(contextlib.nullcontext, t.inference_mode, t.no_grad):
        with scope():
            w.call(f, w.x)


@program("modes")
def the_default_dtype_changes(w):
    f = w.trace(lambda x: (x * 2, t.ones(2), t.tensor([1.0])))
    for dtype in w.rounds(t.float32, t.float64, t.float32):
        t.set_default_dtype(dtype)
        w.call(f, w.x)


@program("modes")
def the_default_dtype_is_asked(w):
    f = w.trace(lambda x: x.to(t.get_default_dtype()))
    for dtype in w.rounds(t.float32, t.float64, t.float32):
        t.set_default_dtype(dtype)
        w.call(f, w.x)


@program("modes")
def an_integer_divides_into_the_default_dtype(w):
    i = t.tensor([1, 2, 3, 4])
    f = w.trace(lambda x: (x / 2, x * 2.0))
    for dtype in w.rounds(t.float32, t.float64, t.float32):
        t.set_default_dtype(dtype)
        w.call(f, i)


@program("modes")
def the_default_dtype_is_set_inside(w):
    @w.trace
    def f(x, dtype):
        before = t.get_default_dtype()
        t.set_default_dtype(dtype)
        made = t.ones(2)
        t.set_default_dtype(before)
        return x * 2, made

    for dtype in w.rounds(t.float32, t.float64):
        w.call(f, w.x, dtype)


@program("modes")
def training_chooses(w):
    drop = t.nn.Dropout(1.0)
    f = w.trace(lambda x: drop(x) + 1)
    for training in w.rounds(True, False, True):
        drop.train(training)
        w.call(f, w.x)


@program("modes")
def training_of_a_child_alone(w):
    model = t.nn.Sequential(t.nn.Dropout(1.0), t.nn.ReLU())
    f = w.trace(lambda x: model(x) + 1)
    for training in w.rounds(True, False, True):
        model[0].train(training)
        w.call(f, w.x)


@program("modes")
def training_is_written_as_an_attribute(w):
    drop = t.nn.Dropout(1.0)
    f = w.trace(drop)
    for drop.training in w.rounds(True, False, True):
        w.call(f, w.x)


@program("modes")
def training_is_switched_inside(w):
    drop = t.nn.Dropout(1.0)

    @w.trace
    def f(x):
        drop.eval()
        y = drop(x)
        drop.train()
        return y, drop(x)

    w.see(training=lambda: drop.training)
    for training, by in w.rounds((True, 1.0), (False, 2.0)):
        drop.train(training)
        w.call(f, w.x * by)


@program("modes")
def autocast_inside(w):
    weight = t.ones(3, 2)

    @w.trace
    def f(x, enabled):
        with t.autocast("cpu", dtype=t.bfloat16, enabled=enabled):
            return x @ weight

    for enabled in w.rounds(False, True, False):
        w.call(f, w.m, enabled)


@program("modes")
def an_argument_begins_to_require_grad(w):
    f = w.trace(lambda x: x * 2)
    for needs in w.rounds(False, True, False):
        w.call(f, w.x.clone().requires_grad_(needs))


@program("modes")
def a_weight_is_frozen(w):
    weight = t.ones(4, requires_grad=True)
    f = w.trace(lambda x: x * weight)
    for needs in w.rounds(True, False, True):
        weight.requires_grad_(needs)
        w.call(f, w.x)


@program("modes")
def requires_grad_is_asked(w):
    weight = t.ones(4, requires_grad=True)
    f = w.trace(lambda x: x * 2 if weight.requires_grad else x * 3)
    for needs in w.rounds(True, False, True):
        weight.requires_grad_(needs)
        w.call(f, w.x)


@program("modes")
def a_gradient_is_there_or_not(w):
    weight = t.ones(4, requires_grad=True)
    f = w.trace(lambda x: x * 2 if weight.grad is None else x * weight.grad)
    for grad in w.rounds(None, t.ones(4) * 3, t.ones(4) * 4, None):
        weight.grad = grad
        w.call(f, w.x)
