"""Programs that differentiate inside traced functions, hook into gradients, or define their own."""

from battery import lib as t
from battery import program


def leaf(*values):
    return t.tensor([float(v) for v in values], requires_grad=True)


# ---- backward inside ---------------------------------------------------------------------------------------
@program("gradients inside")
def backward_inside(w):
    weight = leaf(1, 2, 3, 4)
    w.see(weight=weight)

    @w.trace
    def f(x):
        loss = (x * weight).pow(2).mean()
        loss.backward()
        return loss.detach()

    for grad in w.rounds(None, t.ones(4), None):
        weight.grad = grad
        w.call(f, w.x)


@program("gradients inside")
def the_grad_is_read_and_dropped_inside(w):
    weight = leaf(1, 2, 3, 4)
    drop = True
    w.see(weight=weight)

    @w.trace
    def f(x):
        if drop:
            weight.grad = None
        (x * weight * weight).sum().backward()
        return weight.grad, weight.grad * 2

    for drop in w.rounds(True, False):
        w.call(f, w.x)


@program("gradients inside")
def the_grad_is_zeroed_in_place(w):
    weight = leaf(1, 2, 3, 4)
    w.see(weight=weight)

    @w.trace
    def f(x):
        if weight.grad is not None:
            weight.grad.zero_()
        (x * weight * weight).sum().backward()
        return weight.grad.sum()

    for grad in w.rounds(None, w.x.clone()):
        weight.grad = grad
        w.call(f, w.x)


@program("gradients inside")
def one_grad_is_shared_by_two(w):
    a, b = leaf(1, 2, 3, 4), leaf(4, 3, 2, 1)
    w.see(a=a, b=b)

    @w.trace
    def f(x):
        (x * a + x * x * b).sum().backward()

    for shared in w.rounds(False, True):
        a.grad = t.zeros(4)
        b.grad = a.grad if shared else t.zeros(4)
        w.call(f, w.x)


@program("gradients inside")
def gradients_of_chosen_inputs(w):
    a, b = leaf(1, 2, 3, 4), leaf(4, 3, 2, 1)
    chosen = [a]

    @w.trace
    def f(x):
        return t.autograd.grad((x * a * b).sum(), chosen)

    for chosen in w.rounds([a], [b], [b, a]):
        w.call(f, w.x)


@program("gradients inside")
def an_unused_input(w):
    a, b = leaf(1, 2, 3, 4), leaf(4, 3, 2, 1)
    use = True

    @w.trace
    def f(x):
        y = (x * a * b).sum() if use else (x * a).sum()
        return t.autograd.grad(y, [a, b], allow_unused=allowed)

    for use, allowed in w.rounds((True, False), (False, True), (False, False)):
        w.call(f, w.x)


@program("gradients inside")
def a_gradient_penalty(w):
    weight = leaf(0.1, 0.2, 0.3, 0.4)
    strength = 1.0
    w.see(weight=weight)

    @w.trace
    def f(x):
        x = x.detach().requires_grad_(True)
        y = (x * x * weight).sum()
        (grad,) = t.autograd.grad(y, x, create_graph=True)
        loss = y + strength * grad.pow(2).sum()
        loss.backward()
        return loss.detach()

    for strength in w.rounds(1.0, 0.0, 2.0):
        weight.grad = None
        w.call(f, w.x)


@program("gradients inside")
def a_second_backward_inside_raises(w):
    weight = leaf(1, 2, 3, 4)
    again = False
    w.see(weight=weight)

    @w.trace
    def f(x):
        y = (x * weight.exp()).sum()
        y.backward()
        if again:
            y.backward()
        return y.detach()

    for again in w.rounds(False, True):
        weight.grad = None
        w.call(f, w.x)


@program("gradients inside")
def a_write_between_the_halves_inside(w):
    weight = leaf(1, 2, 3, 4)
    write = False
    w.see(weight=weight)

    @w.trace
    def f(x):
        h = x * weight
        y = (h * h).sum()
        if write:
            h.detach().mul_(2.0)
        y.backward()
        return y.detach()

    for write in w.rounds(False, True):
        weight.grad = None
        w.call(f, w.x)


@program("gradients inside")
def grads_are_clipped_by_hand(w):
    weight = leaf(1, 2, 3, 4)
    limit = 1.0
    w.see(weight=weight)

    @w.trace
    def f(x):
        weight.grad = None
        (x * weight * weight).sum().backward()
        norm = weight.grad.norm()
        if norm > limit:
            weight.grad.mul_(limit / norm)
        return norm

    for limit in w.rounds(1.0, 1000.0, 5.0):
        w.call(f, w.x)


@program("gradients inside")
def descent_by_hand(w):
    weight = leaf(1, 2, 3, 4)
    rate = 0.01
    w.see(weight=weight)

    @w.trace
    def f(x):
        nonlocal rate
        loss = ((x * weight).sum() - 1).pow(2)
        (grad,) = t.autograd.grad(loss, weight)
        with t.no_grad():
            weight.sub_(rate * grad)
        rate *= 0.5
        return loss.detach()

    for rate in w.rounds(0.01, 0.005):
        w.call(f, w.x)


# ---- hooks on tensors, functions of one's own --------------------------------------------------------------
@program("tensor hooks")
def a_hook_on_a_weight_comes_and_goes(w):
    weight = leaf(1, 2, 3, 4)
    seen = []
    w.see(weight=weight, seen=seen)

    @w.trace
    def f(x):
        return (x * weight).sum()

    def step(x):
        f(x).backward()

    def hook(grad):
        seen.append(grad.sum().item())
        del seen[:-2]
        return grad * 2

    for hooked in w.rounds(False, True):
        weight.grad = None
        handle = weight.register_hook(hook) if hooked else None
        w.call(step, w.x)
        if handle is not None:
            handle.remove()


@program("tensor hooks")
def a_hook_on_an_intermediate(w):
    weight = leaf(1, 2, 3, 4)
    factor = 1.0
    w.see(weight=weight)

    @w.trace
    def f(x):
        h = x * weight
        h.register_hook(lambda grad: grad * factor)
        (h * h).sum().backward()
        return h.detach()

    for factor in w.rounds(1.0, 0.5, 2.0):
        weight.grad = None
        w.call(f, w.x)


@program("tensor hooks")
def a_hook_on_a_result(w):
    weight = leaf(1, 2, 3, 4)
    factor = 1.0

    @w.trace
    def f(x):
        return x * weight

    def step(x):
        y = f(x)
        if factor:
            y.register_hook(lambda grad: grad * factor)
        y.retain_grad()
        y.sum().backward()
        return y.grad, weight.grad.clone()

    for factor in w.rounds(0.0, 3.0):
        weight.grad = None
        w.call(step, w.x)


@program("tensor hooks")
def a_hook_after_accumulation(w):
    weight = leaf(1, 2, 3, 4)
    hooked = False
    w.see(weight=weight)

    @w.trace
    def f(x):
        (x * weight).sum().backward()

    def shrink(leaf):
        leaf.grad.mul_(0.5)

    for hooked in w.rounds(False, True):
        weight.grad = None
        handle = weight.register_post_accumulate_grad_hook(shrink) if hooked else None
        w.call(f, w.x)
        if handle is not None:
            handle.remove()


@program("tensor hooks")
def a_kept_gradient_of_an_intermediate(w):
    weight = leaf(1, 2, 3, 4)
    keep = True

    @w.trace
    def f(x):
        h = x * weight
        if keep:
            h.retain_grad()
        (h * h).sum().backward()
        return h.grad if keep else None

    for keep in w.rounds(True, False):
        weight.grad = None
        w.call(f, w.x)


@program("tensor hooks")
def a_function_of_ones_own(w):
    class Clip(t.autograd.Function):
        limit = 1.0

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad.clamp(-Clip.limit, Clip.limit) * x

    weight = leaf(1, 2, 3, 4)
    w.see(weight=weight)

    @w.trace
    def f(x):
        (Clip.apply(weight) * x).sum().backward()

    for limit in w.rounds(1.0, 10.0):
        Clip.limit = limit
        weight.grad = None
        w.call(f, w.x)


@program("tensor hooks")
def a_straight_through_estimate(w):
    class Round(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return t.round(x * steps) / steps

        @staticmethod
        def backward(ctx, grad):
            return grad

    weight = leaf(0.1, 0.3, 0.6, 0.9)
    steps = 1

    @w.trace
    def f(x):
        return Round.apply(weight) * x

    def step(x):
        y = f(x)
        y.sum().backward()
        return y.detach(), weight.grad.clone()

    for steps in w.rounds(1, 4):
        weight.grad = None
        w.call(step, w.x)


@program("tensor hooks")
def leaves_are_made_inside(w):
    wanted = True

    @w.trace
    def f(x):
        y = x.detach().clone().requires_grad_(wanted)
        z = (y * y).sum()
        if z.requires_grad:
            z.backward()
        return y, y.grad

    for wanted in w.rounds(True, False):
        w.call(f, w.x)


@program("tensor hooks")
def a_weight_is_frozen_inside(w):
    a, b = leaf(1, 2, 3, 4), leaf(4, 3, 2, 1)
    which = 0
    w.see(a=a, b=b)

    @w.trace
    def f(x):
        a.requires_grad_(which == 0)
        b.requires_grad_(which == 1)
        (a * b * x).sum().backward()

    for which in w.rounds(0, 1):
        a.grad = b.grad = None
        w.call(f, w.x)


@program("tensor hooks")
def a_result_is_cut_off_in_place(w):
    weight = leaf(1, 2, 3, 4)
    cut = False

    @w.trace
    def f(x):
        y = x * weight
        if cut:
            y.detach_()
        return y

    for cut in w.rounds(False, True):
        w.call(f, w.x)
