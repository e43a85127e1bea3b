"""Programs whose modules get hooks, lose them, or have weights that hooks compute."""

from battery import lib as t
from battery import program
from networks import linear, numbers


# ---- hooks on modules --------------------------------------------------------------------------------------
@program("module hooks")
def a_forward_hook_comes_and_goes(w):
    layer = linear().requires_grad_(False)
    f = w.trace(t.nn.Sequential(layer, t.nn.ReLU()))

    for factor in w.rounds(None, 2.0, -1.0):
        handle = layer.register_forward_hook(lambda module, args, out: out * factor) if factor else None
        w.call(f, w.x)
        if handle is not None:
            handle.remove()


@program("module hooks")
def a_hook_on_the_traced_module_itself(w):
    layer = linear().requires_grad_(False)
    f = w.trace(layer)

    for hooked in w.rounds(False, True):
        if hooked:
            handle = layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        w.call(f, w.x)
        if hooked:
            handle.remove()


@program("module hooks")
def a_hook_records_activations(w):
    kept = {}
    model = t.nn.Sequential(linear(), t.nn.Tanh()).requires_grad_(False)
    f = w.trace(model)
    w.see(kept=kept)

    for i in w.rounds(0, 1):
        kept.clear()
        handle = model[i].register_forward_hook(
            lambda module, args, out: kept.update({type(module).__name__: out})
        )
        w.call(f, w.x)
        w.call(f, w.x * 2)
        handle.remove()


@program("module hooks")
def what_a_hook_reads_changes(w):
    layer = linear().requires_grad_(False)
    settings = {"scale": 1.0}
    layer.register_forward_hook(lambda module, args, out: out * settings["scale"])
    f = w.trace(layer)

    for scale in w.rounds(1.0, 3.0):
        settings["scale"] = scale
        w.call(f, w.x)


@program("module hooks")
def a_pre_hook_computes_the_weight(w):
    layer = t.nn.Linear(4, 3).requires_grad_(False)
    base, f = numbers(3, 4), w.trace(layer)

    def compute(module, args):
        module.weight.copy_(base / base.norm())

    layer.register_forward_pre_hook(compute)
    for factor in w.rounds(1.0, 2.0):
        base[0] = numbers(4) * factor
        w.call(f, w.x)


@program("module hooks")
def a_backward_hook_comes_and_goes(w):
    layer, seen = linear(), []
    w.see(parameters=list(layer.parameters()), seen=seen)

    @w.trace
    def f(x):
        layer(x).sum().backward()

    def hook(module, given, got):
        seen.append([None if g is None else tuple(g.shape) for g in (*given, *got)])
        del seen[:-2]

    for hooked in w.rounds(False, True):
        layer.zero_grad()
        handle = layer.register_full_backward_hook(hook) if hooked else None
        w.call(f, w.x)
        if handle is not None:
            handle.remove()


@program("module hooks")
def a_backward_hook_changes_the_gradient(w):
    layer = linear()
    factor = 1.0
    handle = layer.register_full_backward_hook(lambda module, given, got: tuple(g * factor for g in given))
    w.undo(handle.remove)

    @w.trace
    def f(x):
        return layer(x).sum()

    def step():
        x = t.tensor([1.0, -2.0, 3.0, 0.5], requires_grad=True)
        f(x).backward()
        return x.grad

    for factor in w.rounds(1.0, 2.0):
        w.call(step)


@program("module hooks")
def a_hook_stops_at_a_value(w):
    layer = linear().requires_grad_(False)
    f = w.trace(layer)

    def refuse(module, args, out):
        if not bool((out < 10).all()):
            raise ValueError("too large")

    layer.register_forward_hook(refuse)
    for factor in w.rounds(1, 10, -1):
        w.call(f, w.x * factor)


@program("module hooks")
def hooks_are_called_in_order(w):
    layer, order = t.nn.Tanh(), []
    f = w.trace(layer)
    w.see(order=order)

    def make(name, scale):
        def hook(module, args, out):
            order.append(name)
            del order[:-3]
            return out * scale + 1

        return hook

    for first in w.rounds(False, True):
        handles = [
            layer.register_forward_hook(make("a", 2.0)),
            layer.register_forward_hook(make("b", 3.0), prepend=first),
        ]
        w.call(f, w.x)
        for handle in handles:
            handle.remove()


@program("module hooks")
def a_hook_takes_keyword_arguments(w):
    class Net(t.nn.Module):
        def forward(self, x, scale=1.0):
            return x * scale

    model = Net()
    f = w.trace(model)
    boost = 1.0

    def hook(module, args, kwargs):
        return args, {**kwargs, "scale": kwargs.get("scale", 1.0) * boost}

    model.register_forward_pre_hook(hook, with_kwargs=True)
    for boost in w.rounds(1.0, 2.0):
        w.call(f, w.x)
        w.call(f, w.x, scale=3.0)


# ---- weights computed from others --------------------------------------------------------------------------
@program("computed weights", peers=False)
def weight_norm_is_put_on_and_taken_off(w):
    layer = linear().requires_grad_(False)

    @w.trace
    def f(x):
        return layer(x).detach()

    def length():
        t.nn.utils.weight_norm(layer)
        layer.weight_g.data.mul_(1.5)

    for change in w.rounds(length, lambda: t.nn.utils.remove_weight_norm(layer)):
        change()
        w.call(f, w.x)


@program("computed weights", peers=False)
def the_parts_of_a_weight_norm_change(w):
    layer = t.nn.utils.weight_norm(linear())
    w.see(parameters=list(layer.parameters()))

    @w.trace
    def f(x):
        layer(x).sum().backward()
        return layer.weight.detach().sum()

    for factor in w.rounds(0.5, 2.0):
        layer.zero_grad()
        layer.weight_g.data.mul_(factor)
        w.call(f, w.x)


@program("computed weights", peers=False)
def spectral_norm_steps_in_training_only(w):
    t.manual_seed(1)
    layer = t.nn.utils.spectral_norm(linear())

    @w.trace
    def f(x):
        return layer(x).detach(), layer.weight_u.clone()

    for training in w.rounds(True, False):
        layer.train(training)
        layer.weight_orig.data[0].mul_(-1.0)
        w.call(f, w.x)


@program("computed weights")
def a_low_rank_update_is_merged(w):
    layer = linear().requires_grad_(False)
    a, b = numbers(3, 1), numbers(1, 4)
    merged = False

    @w.trace
    def f(x):
        return layer(x) if merged else layer(x) + a @ (b @ x)

    for merge in w.rounds(True, False):
        layer.weight.add_(2 * a @ b if merge else -2 * a @ b)
        merged = merge
        w.call(f, w.x)
