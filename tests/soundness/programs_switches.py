"""Programs whose switches are turned between calls and inside: gradients, inference, train and eval."""

import threading

from battery import lib as t
from battery import program


# ---- gradients on and off ----------------------------------------------------------------------------------
@program("switches")
def gradients_are_switched_off_outside(w):
    weight = t.ones(4, requires_grad=True)

    @w.trace
    def f(x):
        y = x * weight
        return y, y.requires_grad, t.is_grad_enabled()

    for on in w.rounds(True, False):
        t.set_grad_enabled(on)
        w.call(f, w.x)
        w.call(f, w.x + 1)
    t.set_grad_enabled(True)


@program("switches")
def a_call_inside_no_grad(w):
    weight = t.ones(4, requires_grad=True)

    @w.trace
    def f(x):
        return (x * weight).sum()

    @t.no_grad()
    def without(x):
        return f(x)

    for g in w.rounds(f, without):
        w.call(g, w.x)
        w.call(g, w.x * 2)


@program("switches")
def gradients_are_left_off(w):
    wanted = True

    @w.trace
    def f(x):
        t.set_grad_enabled(wanted)
        return x * 2

    for wanted in w.rounds(True, False, True):
        w.call(f, w.x.clone().requires_grad_(True))


@program("switches")
def an_exception_leaves_a_no_grad_block(w):
    @w.trace
    def f(x, i):
        with t.no_grad():
            y = x * 2
            y = y + [1.0, 2.0][i]
        return y

    for i in w.rounds(0, 5, 1):
        w.call(f, w.x.clone().requires_grad_(True), i)


@program("switches")
def one_part_runs_without_gradients(w):
    weight = t.ones(4, requires_grad=True)
    freeze = False

    @w.trace
    def f(x):
        with t.set_grad_enabled(not freeze):
            h = x * weight
        return h * 2, h.requires_grad

    for freeze in w.rounds(False, True):
        w.call(f, w.x)


@program("switches")
def the_inner_mode_is_exchanged(w):
    inner = t.enable_grad

    @w.trace
    @t.no_grad()
    def f(x):
        a = x * 2
        with inner():
            b = x * 3
        return a.requires_grad, b.requires_grad, (a + b).detach()

    for inner in w.rounds(t.enable_grad, t.no_grad):
        w.call(f, w.x.clone().requires_grad_(True))


@program("switches")
def inference_mode_comes_and_goes(w):
    weight = t.ones(4, requires_grad=True)

    @w.trace
    def f(x):
        y = x * weight
        return y.requires_grad, t.is_inference_mode_enabled(), y.sum().item()

    def inside(x):
        with t.inference_mode():
            return f(x)

    for g in w.rounds(f, inside):
        w.call(g, w.x)


@program("switches")
def a_detached_tensor_is_written(w):
    cut = False

    @w.trace
    def f(x):
        y = x * 2
        z = y.detach() if cut else y.clone()
        z.add_(1.0)
        return y.sum().item(), z.requires_grad

    for cut in w.rounds(False, True):
        w.call(f, w.x.clone().requires_grad_(True))


@program("switches")
def another_thread_has_other_switches(w):
    weight = t.ones(4, requires_grad=True)

    @w.trace
    def f(x):
        return (x * weight).requires_grad, t.is_grad_enabled()

    def threaded(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(f(x)))
        thread.start()
        thread.join()
        return found

    for on, g in w.rounds((False, f), (False, threaded), (True, threaded)):
        t.set_grad_enabled(on)
        w.call(g, w.x)
    t.set_grad_enabled(True)


@program("switches")
def tensors_are_made_under_another_dtype(w):
    @w.trace
    def f(x):
        return t.eye(2), t.nn.init.ones_(t.empty(2)), t.tensor([1.5]) + x.sum(), t.linspace(0, 1, 3)

    for dtype in w.rounds(t.float32, t.float64):
        t.set_default_dtype(dtype)
        w.call(f, w.x)
        w.call(f, w.x.to(t.int64))
    t.set_default_dtype(t.float32)


# ---- train and eval ----------------------------------------------------------------------------------------
@program("train and eval")
def dropout_is_switched(w):
    model = t.nn.Sequential(t.nn.Dropout(0.5), t.nn.ReLU())
    f = w.trace(model)

    for training in w.rounds(False, True):
        model.train(training)
        w.call(f, w.x)
        w.call(f, w.x * 2)


@program("train and eval")
def one_layer_alone_is_switched(w):
    norm = t.nn.BatchNorm1d(3)
    model = t.nn.Sequential(norm, t.nn.Flatten(0))
    w.see(norm=norm)

    @w.trace
    def f(x):
        with t.no_grad():
            return model(x)

    for training in w.rounds(True, False):
        norm.train(training)
        w.call(f, w.m)
        w.call(f, w.m + 1)


@program("train and eval")
def batch_norm_counts_its_batches(w):
    norm = t.nn.BatchNorm1d(3)
    f = w.trace(norm)
    w.see(norm=norm)

    for momentum in w.rounds(0.1, None, 0.5):
        norm.momentum = momentum
        w.call(f, w.m)


@program("train and eval")
def batch_norm_loses_its_statistics(w):
    norm = t.nn.BatchNorm1d(3)
    w.see(norm=norm)

    @w.trace
    def f(x):
        return norm(x).detach()

    def forget():
        norm.running_mean, norm.running_var, norm.num_batches_tracked = None, None, None

    def restart():
        norm.running_mean, norm.running_var = t.zeros(3), t.ones(3)
        norm.num_batches_tracked = t.tensor(0)

    norm.eval()
    for change in w.rounds(restart, forget):
        change()
        w.call(f, w.m)
        w.call(f, w.m * 2)


@program("train and eval")
def statistics_are_reset(w):
    norm = t.nn.BatchNorm1d(3, affine=False)
    w.see(norm=norm)

    @w.trace
    def f(x):
        return norm(x), norm.num_batches_tracked.item() > 2

    for training in w.rounds(True, False):
        norm.train(training)
        norm.reset_running_stats()
        w.call(f, w.m)


@program("train and eval")
def a_batch_norm_has_statistics_of_its_own(w):
    norm = t.nn.InstanceNorm1d(2, track_running_stats=True)
    w.see(norm=norm)

    @w.trace
    def f(x):
        return norm(x)

    for training, momentum in w.rounds((True, 0.1), (True, 0.5), (False, 0.5)):
        norm.train(training)
        norm.momentum = momentum
        w.call(f, w.x.reshape(1, 2, 2))


@program("train and eval")
def a_model_is_switched_inside(w):
    model = t.nn.Sequential(t.nn.BatchNorm1d(3))
    w.see(model=model)

    @w.trace
    def f(x, training):
        model.train(training)
        y = model(x).detach()
        model.eval()
        return y, model(x).detach()

    for training in w.rounds(True, False):
        w.call(f, w.m, training)


@program("train and eval")
def the_functional_form_reads_the_flag(w):
    class Net(t.nn.Module):
        def forward(self, x):
            x = t.nn.functional.dropout(x, 0.5, training=self.training)
            return x + 1 if self.training else x

    model = Net()
    f = w.trace(model)
    for training in w.rounds(True, False):
        model.training = training
        w.call(f, w.x)


@program("train and eval")
def the_probability_of_dropout_changes(w):
    drop = t.nn.Dropout(0.5)

    @w.trace
    def f(x):
        return drop(x) * 2

    for p in w.rounds(0.0, 0.5, 1.0):
        drop.p = p
        w.call(f, w.x)
