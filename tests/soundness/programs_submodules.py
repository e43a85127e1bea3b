"""Programs whose submodules are exchanged, whose forwards are patched, whose models are copied."""

import copy
import functools
import pickle
import types

from battery import lib as t
from battery import program
from networks import quietly

F = t.nn.functional


class Scaled(t.nn.Module):
    """A layer that reads attributes of many kinds; pickled by one program, so found by name."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.layer = t.nn.Linear(4, 3)
        self.bias, self.name, self.options, self.pair = 0.5, "plain", {"power": 2}, (1.0, [2.0])
        self.steps = 0

    def forward(self, x):
        y = self.layer(x) * self.factor + self.bias
        if self.name == "square":
            y = y ** self.options["power"]
        return y * self.pair[0] - self.pair[1][0]


# ---- submodules --------------------------------------------------------------------------------------------
@program("submodules")
def a_submodule_is_swapped(w):
    model = quietly(t.nn.Sequential(t.nn.Linear(4, 4), t.nn.ReLU()))
    f = w.trace(model)

    for layer in w.rounds(t.nn.ReLU(), t.nn.Tanh(), quietly(t.nn.Linear(4, 2))):
        model[1] = layer
        w.call(f, w.x)


READERS = {
    "parameters": lambda model: sum(p.sum() for p in model.parameters()),
    "named_parameters": lambda model: [p.sum() for _, p in model.named_parameters()][-1],
    "state_dict": lambda model: model.state_dict()["layer.bias"].sum(),
    "modules": lambda model: list(model.modules())[-1].bias.sum(),
    "children": lambda model: list(model.children())[-1].bias.sum(),
}


def _of_kept_layers(name):
    def layers_take_turns(w):
        model = quietly(Scaled())
        layers = [quietly(t.nn.Linear(4, 3)) for _ in range(2)]  # neither dies

        @w.trace
        def f(x):
            return x * READERS[name](model)

        for model.layer in w.rounds(*layers, model, layers[0]):
            if name != "state_dict" or model.layer is not model:
                w.call(f, w.x)

    layers_take_turns.__name__ = f"turns_{name}"
    return layers_take_turns


globals().update({f"turns_{_name}": program("submodules")(_of_kept_layers(_name)) for _name in READERS})


@program("submodules")
def a_buffer_of_its_own_is_given(w):
    class Counting(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", t.zeros(4))

        def forward(self, x):
            y = x.float() + 1.0
            self.seen.add_(1)
            return y

    model = Counting()
    f = w.trace(model)
    w.see(seen=lambda: model.seen)
    for given in w.rounds(model.seen, w.x, model.seen, t.zeros(4)):
        w.call(f, given)


@program("submodules")
def a_submodule_is_added_and_deleted(w):
    model = quietly(Scaled())

    @w.trace
    def f(x):
        y = model(x)
        return model.head(y) if hasattr(model, "head") else y

    def add():
        model.head = t.nn.Softmax(dim=0)

    for change in w.rounds(add, lambda: delattr(model, "head")):
        change()
        w.call(f, w.x)


@program("submodules")
def a_module_list_is_edited(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = t.nn.ModuleList([t.nn.Tanh(), t.nn.ReLU()])

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x) * (i + 1)
            return x, len(self.layers)

    model = Net()
    f = w.trace(model)
    layers = model.layers
    for change in w.rounds(
        lambda: layers.append(t.nn.Sigmoid()),
        lambda: layers.insert(0, t.nn.Softplus()),
        lambda: layers.__setitem__(0, t.nn.Tanh()),
        lambda: layers.__delitem__(slice(2, None)),
    ):
        change()
        w.call(f, w.x)


@program("submodules")
def a_module_dict_is_edited(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = t.nn.ModuleDict({"a": t.nn.Tanh()})

        def forward(self, x, head):
            out = {name: layer(x) for name, layer in self.heads.items()}
            return out, self.heads[head](x) if head in self.heads else None

    model = Net()
    f = w.trace(model)
    heads = model.heads
    for change in w.rounds(
        lambda: heads.update({"b": t.nn.ReLU()}),
        lambda: heads.update({"a": t.nn.Sigmoid()}),
        lambda: heads.pop("b"),
    ):
        change()
        w.call(f, w.x, "b")


@program("submodules")
def a_sequential_grows(w):
    model = t.nn.Sequential(t.nn.Tanh())
    f = w.trace(model)

    for change in w.rounds(lambda: model.append(t.nn.ReLU()), lambda: model.__delitem__(1)):
        change()
        w.call(f, w.x)


@program("submodules")
def modules_in_a_plain_list(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [quietly(t.nn.Linear(4, 4)), t.nn.ReLU()]

        def forward(self, x):
            return functools.reduce(lambda x, layer: layer(x), self.hidden, x)

    model = Net()
    f = w.trace(model)
    for change in w.rounds(
        lambda: model.hidden.reverse(),
        lambda: model.hidden.append(t.nn.Tanh()),
        lambda: [layer.bias.fill_(0.5) for layer in model.hidden if hasattr(layer, "bias")],
        lambda: model.hidden.pop(),
    ):
        change()
        w.call(f, w.x)


@program("submodules")
def a_module_is_shared_by_two(w):
    a, b = quietly(t.nn.Linear(4, 4)), quietly(t.nn.Linear(4, 4))
    model = t.nn.Sequential(a, b)
    f = w.trace(model)

    for second in w.rounds(b, a):
        model[1] = second
        a.weight.mul_(0.9)
        w.call(f, w.x)


@program("submodules")
def two_models_take_turns(w):
    models = [quietly(t.nn.Linear(4, 3)) for _ in range(2)]
    model = models[0]

    @w.trace
    def f(x):
        return model(x)

    for model in w.rounds(*models):
        w.call(f, w.x)


@program("submodules")
def a_model_is_an_argument(w):
    models = [quietly(t.nn.Linear(4, 3)), quietly(t.nn.Linear(4, 3, bias=False)), t.nn.Tanh()]

    @w.trace
    def f(model, x):
        return model(x)

    for model in w.rounds(*models):
        w.call(f, model, w.x)
        w.call(f, copy.deepcopy(model), w.x * 2)


# ---- forward and what it calls -----------------------------------------------------------------------------
@program("patched forwards")
def forward_is_patched_on_an_instance(w):
    model = quietly(t.nn.Sequential(t.nn.Linear(4, 4), t.nn.ReLU()))
    layer, f = model[1], w.trace(model)

    for patch in w.rounds(None, lambda x: x * 2, t.tanh):
        if patch is not None:
            layer.forward = patch
        w.call(f, w.x)
        layer.__dict__.pop("forward", None)


@program("patched forwards")
def forward_is_patched_on_a_class(w):
    model = quietly(Scaled())
    f = w.trace(model)
    original = Scaled.forward

    for patch in w.rounds(original, lambda self, x: original(self, x) * 2, lambda self, x: x):
        Scaled.forward = patch
        w.call(f, w.x)


@program("patched forwards")
def forward_is_bound_anew(w):
    model = quietly(Scaled())
    f = w.trace(lambda x: model(x))

    def other(self, x):
        return self.layer(x) - self.bias

    for function in w.rounds(Scaled.forward, other):
        model.forward = types.MethodType(function, model)
        w.call(f, w.x)


@program("patched forwards")
def a_functional_is_patched(w):
    class Net(t.nn.Module):
        def forward(self, x):
            return F.relu(x) + 1

    f = w.trace(Net())
    relu = F.relu
    for function in w.rounds(relu, t.tanh, lambda x: relu(x) * 2):
        w.patch(F, "relu", function)
        w.call(f, w.x)


@program("patched forwards")
def a_layer_of_the_library_is_patched(w):
    model = quietly(t.nn.Sequential(t.nn.Linear(4, 3), t.nn.ReLU()))
    f = w.trace(model)
    forward = t.nn.ReLU.forward

    for function in w.rounds(forward, lambda self, x: forward(self, x) * 2):
        w.patch(t.nn.ReLU, "forward", function)
        w.call(f, w.x)


@program("patched forwards")
def a_method_is_chosen_by_name(w):
    class Net(t.nn.Module):
        mode = "first"

        def first(self, x):
            return x * 2

        def second(self, x):
            return x + 3

        def forward(self, x):
            return getattr(self, self.mode)(x)

    model = Net()
    f = w.trace(model)
    for mode in w.rounds("first", "second", "third"):
        model.mode = mode
        w.call(f, w.x)


@program("patched forwards")
def call_is_overridden(w):
    class Net(Scaled):
        def __call__(self, x):
            return super().__call__(x) * self.factor

    model = quietly(Net())
    f = w.trace(lambda x: model(x))
    for factor in w.rounds(1.0, 3.0):
        model.factor = factor
        w.call(f, w.x)


@program("patched forwards")
def an_activation_is_an_attribute(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.activation = t.tanh

        def forward(self, x):
            return self.activation(x)

    model = Net()
    f = w.trace(model)
    for activation in w.rounds(
        t.tanh, functools.partial(F.leaky_relu, negative_slope=0.3), t.nn.ReLU().forward
    ):
        model.activation = activation
        w.call(f, w.x)


# ---- copies of traced things -------------------------------------------------------------------------------
@program("copies")
def a_traced_module_is_copied(w):
    model = quietly(Scaled())
    f = w.trace(model)
    twin = copy.deepcopy(f)

    for bias in w.rounds(0.5, 2.0):
        model.bias = bias
        w.call(f, w.x)
        w.call(twin, w.x * 2)


@program("copies")
def a_model_with_a_traced_part_is_copied(w):
    model = quietly(Scaled())
    model.layer.forward = w.trace(model.layer.forward)
    twin = copy.deepcopy(model)

    for value in w.rounds(1.0, 2.0):
        model.layer.weight.fill_(value)
        w.call(model, w.x)
        w.call(twin, w.x)


@program("copies")
def a_model_goes_through_pickle(w):
    model = quietly(Scaled())
    current = model

    @w.trace
    def f(x):
        return current(x)

    for bias in w.rounds(0.5, 2.0):
        current = pickle.loads(pickle.dumps(model))
        current.bias = bias
        w.call(f, w.x)


@program("copies")
def a_copy_shares_what_it_is_told_to(w):
    model = quietly(t.nn.Linear(4, 3))
    twin = copy.deepcopy(model, {id(model.weight): model.weight})

    @w.trace
    def f(x):
        model.bias.add_(1.0)
        return twin(x) + model(x)

    for value in w.rounds(1.0, 2.0):
        model.weight.fill_(value)
        w.call(f, w.x)


@program("submodules")
def layers_are_made_inside(w):
    size = 2

    @w.trace
    def f(x):
        layer = t.nn.Linear(4, size)
        with t.no_grad():
            layer.weight.fill_(0.5)
            layer.bias.zero_()
        return layer(x).detach(), layer

    for size in w.rounds(2, 3):
        w.call(f, w.x)


@program("submodules")
def a_branch_is_dropped_at_random(w):
    class Net(t.nn.Module):
        keep = 0.5

        def __init__(self):
            super().__init__()
            self.branches = t.nn.ModuleList([t.nn.Tanh(), t.nn.ReLU(), t.nn.Sigmoid()])

        def forward(self, x):
            for branch in self.branches:
                if t.rand(()) < self.keep:
                    x = x + branch(x)
            return x

    model = Net()
    f = w.trace(model)
    for keep in w.rounds(0.5, 1.0, 0.0):
        model.keep = keep
        w.call(f, w.x)
