"""Programs that patch the library: its methods, functions, layers and optimizers, or what these hold."""

from battery import lib as t
from battery import program
from networks import goal, linear, network, quietly, stepping


@program("patched library")
def a_method_of_tensors_is_patched(w):
    tanh = t.Tensor.tanh

    @w.trace
    def f(x):
        return x.tanh() + 1

    for method in w.rounds(tanh, lambda self: tanh(self) * 2):
        w.patch(t.Tensor, "tanh", method)
        w.call(f, w.x)


@program("patched library")
def an_operator_of_tensors_is_patched(w):
    add = t.Tensor.__add__

    @w.trace
    def f(x):
        return x + 1

    for method in w.rounds(add, lambda self, other: add(self, other) * 2):
        w.patch(t.Tensor, "__add__", method)
        w.call(f, w.x)


@program("patched library")
def a_method_of_tensors_is_new(w):
    @w.trace
    def f(x):
        return x.doubled() if hasattr(x, "doubled") else x

    for factor in w.rounds(None, 2.0, 3.0):
        if factor is None:
            w.patch(t.Tensor, "doubled", property(lambda self: self.missing))
        else:
            w.patch(t.Tensor, "doubled", lambda self, factor=factor: self * factor)
        w.call(f, w.x)


@program("patched library")
def a_function_of_the_library_is_patched(w):
    sin = t.sin

    @w.trace
    def f(x):
        return t.sin(x) * 2

    for function in w.rounds(sin, t.cos, lambda x: sin(x) + 1):
        w.patch(t, "sin", function)
        w.call(f, w.x)


@program("patched library")
def a_container_of_the_library_is_patched(w):
    model = quietly(t.nn.Sequential(linear(), t.nn.Tanh()))
    f = w.trace(model)
    forward = t.nn.Sequential.forward

    for function in w.rounds(forward, lambda self, x: forward(self, x) * 2):
        w.patch(t.nn.Sequential, "forward", function)
        w.call(f, w.x)


@program("patched library")
def the_call_of_all_modules_is_patched(w):
    model = quietly(linear())
    call = t.nn.Module.__call__

    @w.trace
    def f(x):
        return model(x)

    for function in w.rounds(call, lambda self, x: call(self, x) + 1):
        w.patch(t.nn.Module, "__call__", function)
        w.call(f, w.x)


@program("patched library")
def an_attribute_is_put_on_a_class_of_the_library(w):
    model = quietly(t.nn.Sequential(linear(), t.nn.Tanh()))

    @w.trace
    def f(x):
        return model(x) * getattr(model[0], "gain", 1.0)

    for gain in w.rounds(1.0, 3.0):
        w.patch(t.nn.Linear, "gain", gain)
        w.call(f, w.x)


@program("patched library")
def a_layer_of_ones_own_below_the_librarys(w):
    class Mine(t.nn.Tanh):
        scale = 1.0

        def forward(self, x):
            return super().forward(x) * self.scale

    model = quietly(t.nn.Sequential(linear(), t.nn.Sequential(Mine())))
    f = w.trace(model)
    for scale in w.rounds(1.0, 2.0):
        Mine.scale = scale
        w.call(f, w.x)


@program("patched library")
def the_class_of_a_layer_below_changes(w):
    class Louder(t.nn.Tanh):
        def forward(self, x):
            return super().forward(x) * 10

    model = quietly(t.nn.Sequential(linear(), t.nn.Tanh()))
    f = w.trace(model)
    for kind in w.rounds(t.nn.Tanh, Louder):
        model[1].__class__ = kind
        w.call(f, w.x)


@program("patched library")
def the_step_of_an_optimizer_is_patched(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step, plain = stepping(w, model, optimizer), optimizer.step

    def twice():
        plain()
        plain()

    for function in w.rounds(None, twice):
        if function is not None:
            optimizer.step = function
        w.call(step, w.m, goal(6.0, 8.0))
        vars(optimizer).pop("step", None)


@program("patched library")
def parameters_leave_a_group(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step, everything = stepping(w, model, optimizer), list(model.parameters())

    for n in w.rounds(4, 2, 3):
        optimizer.param_groups[0]["params"][:] = everything[:n]
        model.zero_grad()
        w.call(step, w.m, goal(6.0, 8.0))


@program("patched library")
def the_groups_are_replaced(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step, group = stepping(w, model, optimizer), optimizer.param_groups[0]

    for lr in w.rounds(0.002, 0.001):
        optimizer.param_groups = [{**group, "lr": lr}]
        w.call(step, w.m, goal(6.0, 8.0))


@program("patched library")
def a_schedule_is_turned_back(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    schedule = t.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    w.see(parameters=list(model.parameters()), lr=lambda: optimizer.param_groups[0]["lr"])

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        t.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        schedule.step()

    for gamma in w.rounds(0.9, 0.5):
        schedule.gamma, optimizer.param_groups[0]["lr"] = gamma, 0.002
        w.call(step, w.m, goal(6.0, 8.0))


@program("patched library")
def a_parameter_changes_places_with_a_buffer(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = t.nn.Parameter(t.ones(4))
            self.register_buffer("other", t.ones(4) * 2)

        def forward(self, x):
            return (x * self.weight - self.other).detach()

    model = Net()
    f = w.trace(model)
    a, b = model.weight, model.other
    for swapped in w.rounds(False, True):
        model.weight.data, model.other.data = (
            (b.clone(), a.detach().clone()) if swapped else (t.ones(4), t.zeros(4))
        )
        w.call(f, w.x)


# ---- what Python asks of tensors ---------------------------------------------------------------------------
def _patching(w, name, f, made):
    """Call f while a special method of tensors is the library's own, or one that `made` makes of it."""
    own = vars(t.Tensor)[name]
    f = w.trace(f)
    for method in w.rounds(own, made(own, 1), made(own, 2)):
        w.patch(t.Tensor, name, method)
        w.call(f, w.x)


@program("patched library", peers=False)
def a_comparison_of_tensors_is_patched(w):
    _patching(w, "__gt__", lambda x: (x > x * 0, 0 < x), lambda own, k: lambda a, b: own(a, b + k))


@program("patched library", peers=False)
def a_sign_of_tensors_is_patched(w):
    _patching(w, "__neg__", lambda x: -x, lambda own, k: lambda a: own(a) * k)


@program("patched library", peers=False)
def the_absolute_value_of_tensors_is_patched(w):
    _patching(w, "__abs__", abs, lambda own, k: lambda a: own(a) * k)


@program("patched library", peers=False)
def a_subscript_of_tensors_is_patched(w):
    _patching(w, "__getitem__", lambda x: x[1], lambda own, k: lambda a, i: own(a, i + k))


@program("patched library", peers=False)
def a_written_subscript_of_tensors_is_patched(w):
    def f(x):
        y = x * 1
        y[0] = 1.0
        return y

    _patching(w, "__setitem__", f, lambda own, k: lambda a, i, b: own(a, i, b + k))


@program("patched library", peers=False)
def the_length_of_tensors_is_patched(w):
    _patching(w, "__len__", lambda x: x * len(x), lambda own, k: lambda a: own(a) + k)


@program("patched library", peers=False)
def the_truth_of_tensors_is_patched(w):
    _patching(w, "__bool__", lambda x: 1 if x[0] else 2, lambda own, k: lambda a: k == 1)


@program("patched library", peers=False)
def iterating_over_tensors_is_patched(w):
    _patching(w, "__iter__", lambda x: [y + 1 for y in x], lambda own, k: lambda a: iter([a * k]))


@program("patched library", peers=False)
def a_tensor_as_an_index_is_patched(w):
    _patching(w, "__index__", lambda x: [1, 2, 3, 4][x[0].long()], lambda own, k: lambda a: k)


@program("patched library", peers=False)
def a_tensor_as_a_float_is_patched(w):
    _patching(w, "__float__", lambda x: float(x[0]), lambda own, k: lambda a: own(a) + k)


@program("patched library", peers=False)
def membership_in_tensors_is_patched(w):
    _patching(w, "__contains__", lambda x: 1.0 in x, lambda own, k: lambda a, b: k == 1)


@program("patched library", peers=False)
def an_operator_is_patched_beside_a_number_that_changes(w):
    own = t.Tensor.__mul__
    f = w.trace(lambda x, n: x * n)
    for k in w.rounds(0, 1):
        w.patch(t.Tensor, "__mul__", (lambda a, b: own(a, b) + 1) if k else own)
        for number in (1.0, 2.0, 3.0, 4.0):
            w.once(f, w.x, number)
