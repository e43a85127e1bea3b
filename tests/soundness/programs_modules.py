"""Programs whose modules change in their attributes, or keep state from call to call."""

from battery import lib as t
from battery import program
from networks import quietly


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


# ---- attributes --------------------------------------------------------------------------------------------
@program("attributes of modules")
def numbers_and_strings_of_a_module_change(w):
    model = quietly(Scaled())
    f = w.trace(model)

    for bias, name in w.rounds((0.5, "plain"), (2.0, "plain"), (0.5, "square")):
        model.bias, model.name = bias, name
        w.call(f, w.x)


@program("attributes of modules")
def containers_of_a_module_are_edited(w):
    model = quietly(Scaled())
    model.name = "square"
    f = w.trace(model)

    for power, last in w.rounds((2, 2.0), (3, 2.0), (2, -1.0)):
        model.options["power"] = power
        model.pair[1][0] = last
        w.call(f, w.x)


@program("attributes of modules")
def an_attribute_of_the_class_changes(w):
    model = quietly(Scaled())
    f = w.trace(model)

    for factor in w.rounds(1.0, 2.0):
        Scaled.factor = factor
        w.call(f, w.x)


@program("attributes of modules")
def an_attribute_shadows_the_class(w):
    model = quietly(Scaled())
    f = w.trace(model)

    for factor in w.rounds(None, 3.0):
        if factor is not None:
            model.factor = factor
        w.call(f, w.x)
        model.__dict__.pop("factor", None)


@program("attributes of modules")
def a_property_of_a_module_changes(w):
    class Net(Scaled):
        level = 1

        @property
        def factor(self):
            return self.level * 2.0

        @factor.setter
        def factor(self, value):
            self.level = value / 2

    model = quietly(Net())
    f = w.trace(model)
    for level in w.rounds(1, 3, 1):
        model.factor = level * 2.0
        w.call(f, w.x)


@program("attributes of modules")
def a_tensor_that_is_no_buffer_is_replaced(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = t.zeros(4)

        def forward(self, x):
            return x + self.shift

    model = Net()
    f = w.trace(model)
    for value in w.rounds(0.0, 1.0, 2.0):
        model.shift = t.full((4,), value)
        w.call(f, w.x)


@program("attributes of modules")
def another_object_of_a_module_changes(w):
    class Config:
        scale, depth = 1.0, 2

    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.config = Config()

        def forward(self, x):
            for _ in range(self.config.depth):
                x = x * self.config.scale
            return x

    model = Net()
    f = w.trace(model)
    for scale, depth in w.rounds((1.0, 2), (2.0, 2), (2.0, 3)):
        model.config.scale, model.config.depth = scale, depth
        w.call(f, w.x)


@program("attributes of modules")
def settings_of_layers_change(w):
    norm, drop, pool = t.nn.LayerNorm(4), t.nn.LeakyReLU(0.1), t.nn.Softmax(dim=0)
    model = quietly(t.nn.Sequential(norm, drop, pool))
    f = w.trace(model)

    for eps, slope in w.rounds((1e-5, 0.1), (1.0, 0.1), (1e-5, 0.9)):
        norm.eps, drop.negative_slope = eps, slope
        w.call(f, w.x)


@program("attributes of modules")
def the_strides_of_a_convolution_change(w):
    layer = quietly(t.nn.Conv1d(1, 2, 2))
    f = w.trace(layer)

    for stride, padding in w.rounds(((1,), (0,)), ((2,), (0,)), ((1,), (1,))):
        layer.stride, layer.padding = stride, padding
        w.call(f, w.x.reshape(1, 1, 4))


@program("attributes of modules")
def an_attribute_is_reached_by_getattr(w):
    class Net(Scaled):
        def __getattr__(self, name):
            if name.startswith("magic_"):
                return float(name[6:]) + self.bias
            return super().__getattr__(name)

        def forward(self, x):
            return x * getattr(self, f"magic_{self.pair[0]:.0f}")

    model = quietly(Net())
    f = w.trace(model)
    for bias, first in w.rounds((0.5, 1.0), (0.5, 2.0), (1.5, 2.0)):
        model.bias, model.pair = bias, (first, [0.0])
        w.call(f, w.x)


@program("attributes of modules")
def the_dict_of_a_module_is_written(w):
    model = quietly(Scaled())
    f = w.trace(model)

    for bias in w.rounds(0.5, 2.0):
        vars(model)["bias"] = bias
        w.call(f, w.x)


@program("attributes of modules")
def an_attribute_is_set_past_the_module(w):
    model = quietly(Scaled())
    f = w.trace(model)

    for bias in w.rounds(0.5, 2.0):
        object.__setattr__(model, "bias", bias)
        w.call(f, w.x)


@program("attributes of modules")
def the_class_of_a_module_changes(w):
    class Other(Scaled):
        def forward(self, x):
            return super().forward(x) * 10

    model = quietly(Scaled())
    f = w.trace(model)
    for kind in w.rounds(Scaled, Other):
        model.__class__ = kind
        w.call(f, w.x)


# ---- state kept on modules ---------------------------------------------------------------------------------
@program("state on modules")
def a_module_counts_its_calls(w):
    class Net(Scaled):
        def forward(self, x):
            self.steps += 1
            return super().forward(x) * self.steps

    model = quietly(Net())
    w.see(steps=lambda: model.steps)
    f = w.trace(model)
    for steps in w.rounds(0, 10):
        model.steps = steps
        w.call(f, w.x)


@program("state on modules")
def a_hidden_state_is_carried_over(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = t.nn.RNNCell(4, 3)
            self.hidden = None

        def forward(self, x):
            if self.hidden is None:
                self.hidden = x.new_zeros(1, 3)
            self.hidden = self.cell(x.reshape(1, 4), self.hidden)
            return self.hidden * 2

    model = quietly(Net())
    w.see(hidden=lambda: model.hidden)
    f = w.trace(model)
    for reset in w.rounds(True, False):
        if reset:
            model.hidden = None
        w.call(f, w.x)


@program("state on modules")
def a_detached_hidden_state_is_carried_over(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = t.nn.Linear(4, 4)
            self.hidden = t.zeros(4)

        def forward(self, x):
            h = t.tanh(self.mix(x + self.hidden))
            self.hidden = h.detach()
            return h.sum()

    model = Net()
    w.see(model=model)
    f = w.trace(model)

    def step(x):
        model.zero_grad()
        f(x).backward()

    for value in w.rounds(0.0, 1.0):
        model.hidden = t.full((4,), value)
        w.call(step, w.x)


@program("state on modules")
def a_cache_on_a_module(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = {}

        def forward(self, x, key):
            if key not in self.cache:
                self.cache[key] = x * 2
            return self.cache[key] + x

    model = Net()
    w.see(cache=model.cache)
    f = w.trace(model)
    for key, x in w.rounds(("a", w.x), ("b", w.x), ("a", w.x * 2)):
        w.call(f, x, key)
        model.cache.pop("b", None)


@program("state on modules")
def losses_are_collected_on_a_module(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.losses = []

        def forward(self, x):
            self.losses.append((x * x).mean())
            self.last = len(self.losses)
            return sum(self.losses)

    model = Net()
    w.see(losses=lambda: model.losses, last=lambda: getattr(model, "last", None))
    f = w.trace(model)
    for x in w.rounds(w.x, w.x * 2):
        model.losses.clear()
        w.call(f, x)


@program("state on modules")
def a_buffer_is_a_moving_average(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", t.zeros(4))

        def forward(self, x):
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * x
            return x - self.mean

    model = Net()
    w.see(buffers=lambda: list(model.buffers()))
    f = w.trace(model)
    for training in w.rounds(True, False):
        model.train(training)
        w.call(f, w.x)


@program("state on modules")
def a_buffer_is_written_in_place(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", t.zeros(()))

        def forward(self, x):
            self.count += 1
            return x / self.count

    model = Net()
    first = model.count
    w.see(model=model, first=first)
    f = w.trace(model)
    for replaced in w.rounds(False, True):
        model.count = t.zeros(()) if replaced else first
        w.call(f, w.x)


@program("state on modules")
def an_lstm_carries_its_state(w):
    model = quietly(t.nn.LSTM(4, 2))
    state = None

    @w.trace
    def f(x):
        nonlocal state
        y, state = model(x.reshape(1, 1, 4), state)
        return y

    w.see(state=lambda: state)
    for reset in w.rounds(True, False):
        if reset:
            state = None
        w.call(f, w.x)


@program("state on modules")
def a_lazy_layer_is_made_at_first_use(w):
    class Net(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = None

        def forward(self, x):
            if self.layer is None:
                self.layer = t.nn.Linear(x.shape[-1], 2)
            return self.layer(x).detach()

    model = Net()
    f = w.trace(model)
    for x in w.rounds(w.x, w.m):
        model.layer = None
        w.call(f, x)


@program("state on modules")
def a_traced_method_serves_two_instances(w):
    class Net(t.nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale, self.last = scale, None

        @w.trace
        def forward(self, x):
            self.last = x * self.scale
            return self.last + 1

    a, b = Net(1.0), Net(2.0)
    w.see(a=a, b=b)
    for model, scale in w.rounds((a, 1.0), (b, 2.0), (a, 3.0)):
        model.scale = scale
        w.call(model, w.x)


@program("state on modules")
def a_traced_module_is_switched_through_itself(w):
    class Net(t.nn.Module):
        def forward(self, x):
            return x * 2 if self.training else x + 1

    f = w.trace(Net())
    for training in w.rounds(True, False):
        f.train(training)
        w.call(f, w.x)
        w.note(f.training)


@program("attributes of modules")
def settings_of_a_loss_change(w):
    criterion = t.nn.CrossEntropyLoss()

    @w.trace
    def f(x, y):
        return criterion(x, y)

    weights = [None, t.tensor([1.0, 2.0, 0.5])]
    for smoothing, ignored, weight in w.rounds((0.0, -100, 0), (0.2, -100, 0), (0.0, 1, 0), (0.0, -100, 1)):
        criterion.label_smoothing, criterion.ignore_index = smoothing, ignored
        criterion.weight = weights[weight]
        w.call(f, w.m, t.tensor([0, 1]))


@program("attributes of modules")
def a_mask_for_attention_appears(w):
    attention = quietly(t.nn.MultiheadAttention(4, 2, batch_first=True))

    @w.trace
    def f(x, mask, want):
        return attention(x, x, x, attn_mask=mask, need_weights=want)

    x = t.arange(8.0).reshape(1, 2, 4) * 0.1
    for mask, want in w.rounds(
        (None, True), (t.tensor([[False, True], [False, False]]), True), (None, False)
    ):
        w.call(f, x, mask, want)


@program("attributes of modules")
def rows_of_an_embedding_change(w):
    table = quietly(t.nn.Embedding(5, 2))

    @w.trace
    def f(i):
        return table(i)

    for i, value in w.rounds(([0, 1], 1.0), ([4, 4], 2.0), ([1, 7], 3.0)):
        table.weight[1:] = value
        w.call(f, t.tensor(i))
