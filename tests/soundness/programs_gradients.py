"""Programs that differentiate through traced functions, between whose halves something changes."""

from battery import lib as t
from battery import program


def leaf(*values):
    return t.tensor([float(v) for v in values], requires_grad=True)


@program("gradients outside")
def backward_through_a_traced_forward(w):
    weight = leaf(1, 2, 3, 4)
    w.see(weight=weight)

    @w.trace
    def f(x):
        return (x * weight).sum()

    def step(x, keep):
        if not keep:
            weight.grad = None
        f(x).backward()
        return weight.grad.clone()

    for x, keep in w.rounds((w.x, True), (w.x * 2, False)):
        w.call(step, x, keep)


@program("gradients outside")
def two_forwards_before_one_backward(w):
    weight = leaf(1, 2, 3, 4)
    w.see(weight=weight)

    @w.trace
    def f(x):
        return t.tanh(x * weight)

    def step(a, b):
        first, second = f(a), f(b)
        (first * second).sum().backward()
        return first.detach(), second.detach()

    for a, b in w.rounds((w.x, w.x * 0.5), (w.x, w.x), (w.x.abs(), -w.x)):
        weight.grad = None
        w.call(step, a, b)


@program("gradients outside")
def backward_twice(w):
    weight = leaf(1, 2, 3, 4)
    retain = True
    w.see(weight=weight)

    @w.trace
    def f(x):
        return (x * weight.exp()).sum()

    def step(x):
        y = f(x)
        y.backward(retain_graph=retain)
        y.backward()

    for retain in w.rounds(True, False):
        weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def a_gradient_of_a_gradient(w):
    power = 3
    weight = leaf(1, 2, 3, 4)
    w.see(weight=weight)

    @w.trace
    def f(x):
        return (x * weight**power).sum()

    def step(x):
        (grad,) = t.autograd.grad(f(x), weight, create_graph=True)
        (grad * grad).sum().backward()
        return grad.detach()

    for power in w.rounds(3, 2):
        weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def a_gradient_of_a_gradient_stops(w):
    weight = leaf(1, 2, 3, 4)
    create = True

    @w.trace
    def f(x):
        return (x * weight * weight).sum()

    def step(x):
        (grad,) = t.autograd.grad(f(x), weight, create_graph=create)
        return t.autograd.grad(grad.sum(), weight)[0]

    for create in w.rounds(True, False):
        w.call(step, w.x)


@program("gradients outside")
def the_weight_is_written_between_the_halves(w):
    weight = leaf(1, 2, 3, 4)
    write = False
    w.see(weight=weight)

    @w.trace
    def f(x):
        return (x * weight * weight).sum()

    def step(x):
        y = f(x)
        if write:
            with t.no_grad():
                weight.mul_(1.0)
        y.backward()
        return weight.grad.clone()

    for write in w.rounds(False, True):
        weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def the_input_is_written_between_the_halves(w):
    weight = leaf(1, 2, 3, 4)

    @w.trace
    def f(x):
        return (x * weight).sum() if needed else (x + weight).sum()

    def step():
        x = t.tensor([1.0, -2.0, 3.0, 0.5])
        y = f(x)
        x.add_(1.0)
        y.backward()
        return weight.grad.clone()

    for needed in w.rounds(False, True):
        weight.grad = None
        w.call(step)


@program("gradients outside")
def the_output_is_written_between_the_halves(w):
    weight = leaf(1, 2, 3, 4)
    saved = False

    @w.trace
    def f(x):
        return t.exp(x * weight) if saved else x * weight

    def step(x):
        y = f(x)
        y.mul_(2.0)
        y.sum().backward()
        return weight.grad.clone()

    for saved in w.rounds(False, True):
        weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def data_is_replaced_between_the_halves(w):
    weight = leaf(1, 2, 3, 4)
    w.see(weight=weight)

    @w.trace
    def f(x):
        return (x * weight * weight).sum()

    def step(x, value):
        y = f(x)
        weight.data = t.full((4,), value)
        y.backward()
        return weight.grad.clone()

    for value in w.rounds(1.0, -2.0):
        weight.grad = None
        w.call(step, w.x, value)


@program("gradients outside")
def a_weight_is_frozen(w):
    a, b = leaf(1, 2, 3, 4), leaf(4, 3, 2, 1)
    w.see(a=a, b=b)

    @w.trace
    def f(x):
        return (x * a + b).sum()

    def step(x):
        f(x).backward()

    for wants in w.rounds((True, True), (False, True), (True, False)):
        for weight, wanted in zip((a, b), wants):
            weight.requires_grad_(wanted)
            weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def the_input_wants_gradients_too(w):
    weight = leaf(1, 2, 3, 4)

    @w.trace
    def f(x):
        return (x * weight).sin().sum()

    def step(wanted):
        x = t.tensor([1.0, -2.0, 3.0, 0.5]).requires_grad_(wanted)
        f(x).backward()
        return x.grad, weight.grad.clone()

    for wanted in w.rounds(False, True):
        weight.grad = None
        w.call(step, wanted)


@program("gradients outside")
def some_of_several_outputs_are_used(w):
    weight = leaf(1, 2, 3, 4)

    @w.trace
    def f(x):
        h = x * weight
        return h.sum(), (h * h).sum(), {"mean": h.mean(), "count": h.numel(), "raw": h.detach()}

    def step(x, which):
        a, b, rest = f(x)
        [a, b, rest["mean"], a + b][which].backward()
        return weight.grad.clone(), rest

    for which in w.rounds(0, 1, 2, 3):
        weight.grad = None
        w.call(step, w.x, which)


@program("gradients outside")
def the_same_weight_comes_in_twice(w):
    @w.trace
    def f(a, b):
        return (a * b * b).sum()

    def step(shared):
        a = leaf(1, 2, 3, 4)
        b = a if shared else leaf(1, 2, 3, 4)
        f(a, b).backward()
        return a.grad, b.grad

    for shared in w.rounds(False, True):
        w.call(step, shared)


@program("gradients outside")
def a_view_of_a_leaf_comes_in(w):
    @w.trace
    def f(a, b):
        return (a * b.sum()).sum()

    def step(viewed):
        a = leaf(1, 2, 3, 4)
        f(a, a[1:3] if viewed else a.detach()[1:3]).backward()
        return a.grad

    for viewed in w.rounds(False, True):
        w.call(step, viewed)


@program("gradients outside")
def the_grad_has_another_dtype_or_memory(w):
    weight = leaf(1, 2, 3, 4)
    kept = t.zeros(4)
    w.see(weight=weight, kept=kept)

    @w.trace
    def f(x):
        return (x * weight).sum()

    def step(x):
        f(x).backward()

    for grad in w.rounds(None, kept, t.ones(4)):
        weight.grad = grad
        w.call(step, w.x)


@program("gradients outside")
def gradients_pass_through_views_and_writes(w):
    weight = leaf(1, 2, 3, 4)
    i = 0

    @w.trace
    def f(x):
        h = x * weight
        h[i] = 0.0
        h[2:].mul_(h[:2].detach().clone())
        return h.view(2, 2).t().reshape(-1)

    def step(x):
        y = f(x)
        y.sum().backward()
        return y.detach(), weight.grad.clone()

    for i in w.rounds(0, 3):
        weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def backward_is_given_a_cotangent(w):
    weight = leaf(1, 2, 3, 4)

    @w.trace
    def f(x):
        return x * weight, x + weight

    def step(x, seed):
        y, z = f(x)
        t.autograd.backward([y, z], [seed, seed.flip(0).contiguous()])
        return weight.grad.clone()

    for seed in w.rounds(t.ones(4), t.ones(1).expand(4), t.arange(8.0)[::2]):
        weight.grad = None
        w.call(step, w.x, seed)


@program("gradients outside")
def a_result_without_history_is_differentiated(w):
    weight = leaf(1, 2, 3, 4)
    cut = False

    @w.trace
    def f(x):
        y = (x * weight).sum()
        return y.detach() if cut else y

    def step(x):
        f(x).backward()
        return weight.grad.clone()

    for cut in w.rounds(False, True):
        weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def a_traced_function_in_a_traced_function(w):
    weight = leaf(1, 2, 3, 4)
    scale = 1.0

    @w.trace
    def inner(x):
        return x * weight * scale

    @w.trace
    def outer(x):
        return inner(inner(x)).sum()

    def step(x):
        outer(x).backward()
        return weight.grad.clone(), inner(x).detach()

    for scale in w.rounds(1.0, 2.0):
        weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def a_buffer_takes_a_detached_result(w):
    weight, kept = leaf(1, 2, 3, 4), t.zeros(4)
    turned = False
    w.see(kept=kept)

    @w.trace
    def f(x):
        y = x * weight
        kept.copy_(-y.detach() if turned else y.detach())
        return y

    def step(x):
        y = f(x)
        kept.add_(1.0)
        y.sum().backward()
        return y.detach(), weight.grad.clone()

    for turned in w.rounds(False, True):
        weight.grad = None
        w.call(step, w.x)


@program("gradients outside")
def an_argument_takes_a_detached_result(w):
    weight = leaf(1, 2, 3, 4)
    part = slice(None)

    @w.trace
    def f(x, out):
        y = x * weight
        with t.no_grad():
            out[part] = y[part]
        return y, out

    for part in w.rounds(slice(None), slice(2)):
        w.call(f, w.x, t.zeros(4))
