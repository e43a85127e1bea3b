"""Programs of modules in lists, dictionaries and rows, gone through in the ways that people write."""

from __future__ import annotations

import collections
import inspect
import itertools
import keyword

from battery import lib as t
from battery import program
from networks import linear, numbers, quietly

nn = t.nn


def layers(*sizes, scale=1.0):
    """Layers one after another, with fixed weights, other ones for each."""
    found = [quietly(linear(a, b)) for a, b in itertools.pairwise(sizes)]
    for place, layer in enumerate(found, 4):
        layer.weight.data.mul_(scale * place / 4)
    return found


class Stack(nn.Module):
    """Layers held in a ModuleList and gone through by `through`, which changes between calls."""

    def __init__(self, through, *sizes):
        super().__init__()
        self.layers = nn.ModuleList(layers(*sizes or (4, 4, 4, 4)))
        self.through = through

    def forward(self, x):
        return self.through(self.layers, x)


def walked(w, through, *edits):
    """Trace a stack, and call it after each edit of its list."""
    model = Stack(through)
    f = w.trace(model)
    spare = layers(4, 4, 4, scale=-0.5)
    for edit in w.rounds(*edits or (lambda m, s: None, exchanged)):
        edit(model.layers, spare)
        w.call(f, w.x)


def exchanged(held, spare):
    """Put a spare layer into the list's second place."""
    held[1], spare[0] = spare[0], held[1]


def scaled(held, spare):
    """Turn the sign of one weight."""
    held[0].weight.data.neg_()


# ---- lists -------------------------------------------------------------------------------------------------
@program("containers of modules")
def layers_by_index(w):
    def through(held, x):
        for i in range(len(held)):
            x = held[i](x) * (i + 1)
        return x

    walked(w, through)


@program("containers of modules")
def layers_by_enumeration(w):
    def through(held, x):
        for i, layer in enumerate(held, 1):
            x = layer(x) + i
        return x

    walked(w, through, scaled, exchanged)


@program("containers of modules")
def layers_in_pairs(w):
    def through(held, x):
        for one, two in zip(held, held[1:]):
            x = x + one(x) - two(x)
        return x

    walked(w, through)


@program("containers of modules")
def layers_backwards(w):
    def through(held, x):
        for layer in reversed(held):
            x = layer(x)
        return x

    walked(w, through)


@program("containers of modules")
def a_slice_of_layers(w):
    walked(w, lambda held, x: held[-1](sum(layer(x) for layer in held[:2])))


class Counted(nn.Module):
    """A layer of the user's own, which counts its calls."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.calls = layer, 0

    def forward(self, x):
        self.calls += 1
        return self.layer(x) * (1 + self.calls % 2)


@program("containers of modules")
def a_slice_of_layers_of_ones_own(w):
    held = nn.ModuleList(map(Counted, layers(4, 4, 4, 4)))
    depth = 2

    def step(x):
        for layer in held[:depth]:
            x = layer(x)
        return x + len(inspect.signature(held[0].forward).parameters) + keyword.iskeyword("in")

    f = w.trace(step)
    for depth in w.rounds(2, 3, 2):
        w.call(f, w.x)
        w.once(lambda: w.x * sum(layer.calls for layer in held))
        held[0] = Counted(held[0].layer)


@program("containers of modules")
def layers_are_chained_with_an_iterator(w):
    def through(held, x):
        steps = iter(held)
        x = next(steps)(x)
        for layer in steps:
            x = layer(x) * 0.5
        return x

    walked(w, through)


@program("containers of modules")
def outputs_of_layers_are_stacked(w):
    walked(w, lambda held, x: t.stack([layer(x) for layer in held]).mean(0))


@program("containers of modules")
def the_last_but_one_layer(w):
    walked(w, lambda held, x: held[-2](x) if len(held) > 2 else held[-1](x))


@program("containers of modules")
def layers_are_unpacked(w):
    def through(held, x):
        first, *rest = held
        x = first(x)
        for layer in rest:
            x = x + layer(x)
        return x

    walked(w, through)


@program("containers of modules")
def layers_of_a_kind(w):
    def through(held, x):
        for layer in held:
            x = layer(x) if isinstance(layer, nn.Linear) else x * 2
        return x

    def other(held, spare):
        held[2] = nn.Identity() if isinstance(held[2], nn.Linear) else spare[1]

    walked(w, through, lambda h, s: None, other)


@program("containers of modules")
def a_list_of_lists(w):
    class Grid(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.ModuleList(nn.ModuleList(layers(4, 4, 4)) for _ in range(2))

        def forward(self, x):
            for row in self.rows:
                x = x + sum(layer(x) for layer in row)
            return x

    grid = Grid()
    f = w.trace(grid)
    for _ in w.rounds(0, 1):
        grid.rows[1] = nn.ModuleList(reversed(list(grid.rows[1])))
        grid.rows[0][0].bias.data.add_(1)
        w.call(f, w.x)


@program("containers of modules")
def a_list_grows_by_depth(w):
    model = Stack(lambda held, x: [x := layer(x) for layer in held][-1], 4, 4)
    f = w.trace(model)
    for more in w.rounds(layers(4, 4), layers(4, 4, 4)):
        model.layers.extend(more)
        w.call(f, w.x)
        del model.layers[1:]
        w.call(f, w.x)


@program("containers of modules")
def exits_after_some_layers(w):
    class Exits(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers(4, 4, 4, 4))
            self.depth = 1

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if i + 1 == self.depth:
                    break
            return x

    model = Exits()
    f = w.trace(model)
    for model.depth in w.rounds(1, 2, 3):
        w.call(f, w.x)


# ---- dictionaries ------------------------------------------------------------------------------------------
class Named(nn.Module):
    def __init__(self, through):
        super().__init__()
        self.parts = nn.ModuleDict(zip(("body", "head", "tail"), layers(4, 4, 4, 4)))
        self.through, self.active = through, "body"

    def forward(self, x):
        return self.through(self, x)


def named(w, through, *actives):
    model = Named(through)
    f = w.trace(model)
    for model.active in w.rounds(*actives or ("body", "head", "tail")):
        w.call(f, w.x)


@program("containers of modules")
def a_part_by_its_name(w):
    named(w, lambda m, x: m.parts[m.active](x))


@program("containers of modules")
def parts_in_their_order(w):
    def through(m, x):
        for name, part in m.parts.items():
            x = part(x) if name != m.active else x - part(x)
        return x

    named(w, through)


@program("containers of modules")
def values_of_parts(w):
    named(w, lambda m, x: sum(part(x) for part in m.parts.values()) - m.parts[m.active](x))


@program("containers of modules")
def keys_of_parts(w):
    named(w, lambda m, x: [x := m.parts[k](x) for k in sorted(m.parts.keys()) if k >= m.active][-1])


@program("containers of modules")
def a_part_is_there_or_not(w):
    model = Named(lambda m, x: m.parts["extra"](x) if "extra" in m.parts else x * 2)
    f = w.trace(model)
    for extra in w.rounds(False, True):
        if extra:
            model.parts["extra"] = layers(4, 4)[0]
        elif "extra" in model.parts:
            model.parts.pop("extra")
        w.call(f, w.x)


@program("containers of modules")
def a_part_by_getattr(w):
    named(w, lambda m, x: getattr(m.parts, m.active)(x))


# ---- rows --------------------------------------------------------------------------------------------------
@program("containers of modules")
def a_row_by_index_and_slice(w):
    row = nn.Sequential(*layers(4, 4, 4, 4))
    f = w.trace(lambda x: row[1](x) + row[:2](x) + row[-1](x))
    for k in w.rounds(0, 1):
        row[k].weight.data.neg_()
        w.call(f, w.x)


@program("containers of modules")
def a_row_of_named_layers(w):
    one, two = layers(4, 4, 4)
    row = nn.Sequential(collections.OrderedDict(first=one, act=nn.ReLU(), last=two))
    f = w.trace(lambda x: row(x) + row.first(x))
    for row.act in w.rounds(nn.ReLU(), nn.Tanh()):
        w.call(f, w.x)


@program("containers of modules")
def a_row_goes_on_with_another(w):
    row = nn.Sequential(*layers(4, 4, 4))
    f = w.trace(lambda x: row(x))
    for size in w.rounds(2, 3):
        while len(row) > size:
            del row[-1]
        while len(row) < size:
            row.append(nn.Tanh())
        w.call(f, w.x)


@program("containers of modules")
def features_of_a_row_are_collected(w):
    row = nn.Sequential(*layers(4, 4, 4, 4))
    wanted = {0, 2}

    @w.trace
    def f(x):
        kept = []
        for i, layer in enumerate(row):
            x = layer(x)
            if i in wanted:
                kept.append(x)
        return kept

    for change in w.rounds({0, 2}, {1}, {0, 1}):
        wanted.clear()
        wanted.update(change)
        w.call(f, w.x)


# ---- parameters --------------------------------------------------------------------------------------------
@program("containers of modules")
def a_list_of_parameters(w):
    class Scales(nn.Module):
        def __init__(self):
            super().__init__()
            self.scales = nn.ParameterList([nn.Parameter(numbers(4) + i) for i in range(3)])

        def forward(self, x):
            for i, scale in enumerate(self.scales):
                x = x * scale + i
            return x + self.scales[-1]

    model = quietly(Scales())
    f = w.trace(model)
    for value in w.rounds(1.0, 2.0):
        model.scales[1] = nn.Parameter(t.full((4,), value), requires_grad=False)
        w.call(f, w.x)


@program("containers of modules")
def a_dict_of_parameters(w):
    class Tasks(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterDict(
                {"a": nn.Parameter(numbers(4)), "b": nn.Parameter(numbers(4) * 2)}
            )
            self.task = "a"

        def forward(self, x):
            return x * self.weights[self.task] + sum(p.sum() for p in self.weights.values())

    model = quietly(Tasks())
    f = w.trace(model)
    for model.task in w.rounds("a", "b"):
        model.weights["a"].data.add_(1)
        w.call(f, w.x)


# ---- all modules -------------------------------------------------------------------------------------------
@program("containers of modules")
def modules_are_counted_by_class(w):
    model = nn.Sequential(*layers(4, 4, 4), nn.ReLU())

    @w.trace
    def f(x):
        kinds = collections.Counter(type(m).__name__ for m in model.modules())
        return model(x) * kinds["Linear"], dict(kinds)

    for model[-1] in w.rounds(nn.ReLU(), nn.Tanh()):
        w.call(f, w.x)


@program("containers of modules")
def weights_by_dotted_names(w):
    model = nn.Sequential(nn.Sequential(*layers(4, 4, 4)), *layers(4, 4))
    frozen = "0."

    @w.trace
    def f(x):
        penalty = sum((p * p).sum() for n, p in model.named_parameters() if not n.startswith(frozen))
        return model(x) + penalty

    for frozen in w.rounds("0.", "1.", "0.1"):
        w.call(f, w.x)


@program("containers of modules")
def a_submodule_by_its_path(w):
    model = nn.Sequential(nn.Sequential(*layers(4, 4, 4)), *layers(4, 4))
    path = "0.1"
    f = w.trace(lambda x: model.get_submodule(path)(x))
    for path in w.rounds("0.1", "1", "0.0"):
        w.call(f, w.x)


@program("containers of modules")
def children_with_weights(w):
    model = nn.Sequential(*layers(4, 4, 4), nn.ReLU())

    @w.trace
    def f(x):
        for name, child in model.named_children():
            x = child(x) + len(name) if hasattr(child, "weight") else child(x) * 2
        return x

    for model[-1] in w.rounds(nn.ReLU(), nn.Identity()):
        w.call(f, w.x)


@program("containers of modules")
def the_number_of_weights(w):
    model = nn.Sequential(*layers(4, 4, 4))

    @w.trace
    def f(x):
        return model(x) / sum(p.numel() for p in model.parameters() if p.requires_grad is False)

    for size in w.rounds(2, 3):
        while len(model) > size:
            del model[-1]
        while len(model) < size:
            model.append(layers(4, 4)[0])
        w.call(f, w.x)


@program("containers of modules")
def modules_in_a_dict_of_ones_own(w):
    table = dict(zip("ab", layers(4, 4, 4)))
    f = w.trace(lambda x: [x := layer(x) for layer in table.values()][-1])
    for _ in w.rounds(0, 1):
        first = next(iter(table))
        table[first] = table.pop(first)
        w.call(f, w.x)
