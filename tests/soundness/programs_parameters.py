"""Programs whose parameters and buffers change between calls."""

import io

from battery import lib as t
from battery import program
from networks import linear, numbers


# ---- parameters --------------------------------------------------------------------------------------------
@program("parameters")
def a_parameter_is_replaced(w):
    layer = linear()
    f = w.trace(layer.requires_grad_(False))

    for factor in w.rounds(1.0, 2.0):
        layer.weight = t.nn.Parameter(numbers(3, 4) * factor, requires_grad=False)
        w.call(f, w.x)


@program("parameters")
def a_parameter_is_deleted_and_registered_again(w):
    layer = linear().requires_grad_(False)
    f = w.trace(layer)

    def drop():
        del layer.bias
        layer.register_parameter("bias", None)

    def restore():
        layer.bias = t.nn.Parameter(t.ones(3), requires_grad=False)

    for change in w.rounds(drop, restore):
        change()
        w.call(f, w.x)


@program("parameters")
def the_shape_of_a_parameter_changes(w):
    layer = linear().requires_grad_(False)
    f = w.trace(layer)

    for n in w.rounds(3, 2):
        layer.weight = t.nn.Parameter(numbers(n, 4), requires_grad=False)
        layer.bias = t.nn.Parameter(numbers(n), requires_grad=False)
        w.call(f, w.x)


@program("parameters")
def the_data_of_a_parameter_is_replaced(w):
    layer = linear()

    @w.trace
    def f(x):
        return layer(x).detach()

    for factor in w.rounds(1.0, 2.0, 2.0):
        layer.weight.data = numbers(3, 4) * factor
        w.call(f, w.x)


@program("parameters")
def a_parameter_is_written_under_no_grad(w):
    layer = linear()
    w.see(layer=layer)

    @w.trace
    def f(x):
        with t.no_grad():
            layer.bias.add_(layer(x) * 0.01)
        return layer.bias.sum().item() > 0

    for value in w.rounds(0.5, -0.5):
        layer.bias.data.fill_(value)
        w.call(f, w.x)


@program("parameters")
def parameters_are_tied_and_untied(w):
    a, b = linear(4, 4), linear(4, 4)
    own = b.weight
    w.see(a=a, b=b)

    @w.trace
    def f(x):
        loss = b(a(x)).pow(2).sum() * 0.01
        loss.backward()
        return loss.detach()

    for tied in w.rounds(False, True):
        b.weight = a.weight if tied else own
        a.zero_grad()
        own.grad = None
        w.call(f, w.x)


@program("parameters")
def a_parameter_is_frozen_and_thawed(w):
    model = t.nn.Sequential(linear(), linear(3, 2))
    w.see(model=model)

    @w.trace
    def f(x):
        loss = model(x).pow(2).sum() * 0.01
        loss.backward()
        return loss.detach()

    for frozen in w.rounds(True, False):
        model[0].requires_grad_(not frozen)
        model.zero_grad()
        w.call(f, w.x)


@program("parameters")
def a_tensor_becomes_a_parameter(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = None

        def forward(self, x):
            held = [p.numel() for p in self.parameters()]
            return x + (0.0 if self.shift is None else self.shift.detach()), held

    f = w.trace(model := Net())

    def add():
        del model.shift
        model.register_parameter("shift", t.nn.Parameter(t.ones(4)))

    def take():
        del model.shift
        model.shift = t.ones(4) * 2

    def forget():
        model.shift = None

    for change in w.rounds(add, take, forget):
        change()
        w.call(f, w.x)


@program("parameters")
def a_parameter_list_grows(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.shifts = t.nn.ParameterList([t.ones(4)])

        def forward(self, x):
            return sum((p.detach() * i for i, p in enumerate(self.shifts, 1)), x)

    model = Net()
    f = w.trace(model)
    for n in w.rounds(1, 2, 3):
        model.shifts = t.nn.ParameterList([numbers(4) * i for i in range(n)])
        w.call(f, w.x)


@program("parameters")
def parameters_are_iterated(w):
    model = t.nn.Sequential(linear(), t.nn.Tanh())

    @w.trace
    def f():
        total = sum(p.detach().pow(2).sum() for p in model.parameters())
        return total, [name for name, _ in model.named_parameters()]

    for layer in w.rounds(t.nn.Tanh(), linear(3, 2)):
        model[1] = layer
        w.call(f)


@program("parameters")
def a_state_is_loaded(w):
    layer = linear()
    states = [{k: v * s for k, v in layer.state_dict().items()} for s in (1.0, 2.0)]

    @w.trace
    def f(x):
        return layer(x).detach()

    for state in w.rounds(*states):
        layer.load_state_dict(state)
        w.call(f, w.x)


@program("parameters")
def a_state_is_loaded_by_assignment(w):
    layer = linear()
    states = [{k: v.clone() * s for k, v in layer.state_dict().items()} for s in (1.0, 2.0)]

    @w.trace
    def f(x):
        return layer(x).detach()

    for state in w.rounds(*states):
        layer.load_state_dict(state, assign=True)
        w.call(f, w.x)
        state["weight"].mul_(1.5)
        w.call(f, w.x)


@program("parameters")
def a_state_goes_through_a_file(w):
    layer = linear()
    w.see(layer=layer)

    @w.trace
    def f(x):
        loss = layer(x).pow(2).sum() * 0.01
        loss.backward()
        return loss.detach()

    for factor in w.rounds(0.5, 2.0):
        file = io.BytesIO()
        t.save({k: v * factor for k, v in layer.state_dict().items()}, file)
        file.seek(0)
        layer.load_state_dict(t.load(file))
        layer.zero_grad()
        w.call(f, w.x)


@program("parameters")
def a_state_is_read_inside(w):
    layer = linear()

    @w.trace
    def f():
        return {k: v + 1 for k, v in layer.state_dict().items()}

    for value in w.rounds(1.0, 2.0):
        layer.bias.data.fill_(value)
        w.call(f)


@program("parameters")
def a_model_is_cast(w):
    layer = linear().requires_grad_(False)
    f = w.trace(layer)

    for dtype in w.rounds(t.float32, t.float64):
        layer.to(dtype)
        w.call(f, w.x.to(dtype))
        w.call(f, w.x)


@program("parameters")
def a_model_is_cast_and_trained(w):
    layer = linear()
    w.see(layer=layer)

    @w.trace
    def f(x):
        layer(x).sum().backward()

    for dtype in w.rounds(t.float32, t.float64):
        layer.zero_grad()
        layer.to(dtype)
        w.call(f, w.x.to(dtype))


@program("parameters")
def a_function_is_applied_to_all_layers(w):
    model = t.nn.Sequential(linear(), linear(3, 2)).requires_grad_(False)
    f = w.trace(model)

    def fill(layer, value):
        if isinstance(layer, t.nn.Linear):
            layer.weight.fill_(value)

    for value in w.rounds(0.1, 0.2):
        model.apply(lambda layer: fill(layer, value))
        w.call(f, w.x)


@program("parameters")
def weights_come_from_one_vector(w):
    model = t.nn.Sequential(linear(), linear(3, 2)).requires_grad_(False)
    f = w.trace(model)
    flat = t.nn.utils.parameters_to_vector(model.parameters())

    for factor in w.rounds(1.0, -1.0):
        t.nn.utils.vector_to_parameters(flat * factor, model.parameters())
        w.call(f, w.x)


@program("parameters")
def weights_are_drawn_from_a_function_of_another(w):
    a, b = linear(4, 4), linear(4, 4)
    with t.no_grad():
        b.weight.copy_(a.weight.t())
    transposed = True

    @w.trace
    def f(x):
        return t.nn.functional.linear(a(x), a.weight.t() if transposed else b.weight).detach()

    for transposed in w.rounds(True, False):
        b.weight.data.mul_(0.5)
        w.call(f, w.x)


@program("parameters")
def a_convolution_is_folded_with_its_norm(w):
    conv, norm = t.nn.Conv1d(1, 2, 2), t.nn.BatchNorm1d(2)
    with t.no_grad():
        conv.weight.copy_(numbers(2, 1, 2))
    model = t.nn.Sequential(conv, norm).eval().requires_grad_(False)
    f = w.trace(model)

    for change in w.rounds(
        lambda: norm.running_var.fill_(2.0),
        lambda: norm.running_mean.add_(0.5),
        lambda: conv.weight.mul_(0.9),
        lambda: norm.weight.data.mul_(1.1),
    ):
        change()
        w.call(f, w.x.reshape(1, 1, 4))


# ---- buffers -----------------------------------------------------------------------------------------------
@program("buffers")
def a_buffer_is_registered_later(w):
    class Net(t.nn.Module):
        def forward(self, x):
            return x + self.shift if hasattr(self, "shift") else x * 2

    model = Net()
    f = w.trace(model)
    for present in w.rounds(False, True):
        if present:
            model.register_buffer("shift", t.ones(4))
        w.call(f, w.x)
        if present:
            model.shift += 1
            w.call(f, w.x)
            del model.shift


@program("buffers")
def a_buffer_becomes_none(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", None, persistent=False)

        def forward(self, x):
            return x if self.mask is None else x * self.mask

    model = Net()
    f = w.trace(model)
    for mask in w.rounds(None, t.tensor([1.0, 0.0, 1.0, 0.0]), t.tensor([True, False, True, True])):
        model.mask = mask
        w.call(f, w.x)


@program("buffers")
def a_causal_mask_is_kept_by_size(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", t.tril(t.ones(2, 2)), persistent=False)

        def forward(self, x):
            n = x.shape[-1]
            if self.mask.shape[0] < n:
                self.mask = t.tril(t.ones(n, n))
            return self.mask[:n, :n] @ x

    model = Net()
    w.see(model=model)
    f = w.trace(model)
    for x in w.rounds(w.x[:2], w.x, w.x[1:]):
        w.call(f, x)
