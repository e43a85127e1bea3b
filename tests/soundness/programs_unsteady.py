"""Programs that exchange functions and methods, and what objects leave when they are made again, or die."""

import collections
import copy
import dataclasses
import types
import weakref

import numpy as np
from battery import lib as t
from battery import program
from networks import quietly


class Scale:
    """Has methods, and a number that they read."""

    def __init__(self, by):
        self.by = by

    def times(self, x):
        return x * self.by

    def minus(self, x):
        return x - self.by


# ---- other functions in one place --------------------------------------------------------------------------
@program("calls")
def functions_of_the_library_take_turns(w):
    state = types.SimpleNamespace(act=None)
    f = w.trace(lambda x: state.act(x) + 1)
    for state.act in w.rounds(t.relu, t.tanh, t.sigmoid, t.exp, lambda x: x - 4, t.sin):
        w.call(f, w.x)


@program("calls")
def functions_of_the_library_take_turns_as_arguments(w):
    f = w.trace(lambda x, act: act(x) + 1)
    for act in w.rounds(t.relu, t.tanh, t.sigmoid, t.exp, lambda x: x - 4, t.sin):
        w.call(f, w.x, act)


@program("calls")
def functions_of_numpy_take_turns(w):
    state = types.SimpleNamespace(count=None)
    f = w.trace(lambda x: x * float(state.count("abc")))
    for state.count in w.rounds(len, np.size, lambda s: 3 * len(s), np.ndim, np.size):
        w.call(f, w.x)


@program("calls")
def methods_take_turns(w):
    state = types.SimpleNamespace(act=None)
    one, other = Scale(2.0), Scale(3.0)
    f = w.trace(lambda x: state.act(x) + 1)
    for state.act in w.rounds(one.times, other.times, one.minus, other.minus, one.times):
        w.call(f, w.x)
        one.by += 1


@program("calls")
def methods_take_turns_as_arguments(w):
    one, other = Scale(2.0), Scale(3.0)
    f = w.trace(lambda x, act: act(x) + 1)
    for act in w.rounds(one.times, other.times, one.minus, other.minus, one.times):
        w.call(f, w.x, act)


# ---- what objects leave ------------------------------------------------------------------------------------
class Speaking:
    """Says when it dies."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def __del__(self):
        self.log.append(self.name)


@program("objects")
def a_dying_object_speaks(w):
    log = []

    @w.trace
    def f(x):
        first, second = Speaking("first", log), Speaking("second", log)
        del second
        log.append("between")
        del first
        log.append("after")
        return x + 1

    w.see(log=log)
    for x in w.rounds(w.x, w.x * 2):
        log.clear()
        w.call(f, x)


@program("objects")
def a_weak_reference_to_an_object_made_inside(w):
    @w.trace
    def f(x):
        made = Scale(2.0)
        reach = weakref.ref(made)
        before = reach() is made
        del made
        return x + 1, before, reach() is None

    for x in w.rounds(w.x, w.x * 2):
        w.call(f, x)


@program("objects")
def a_container_with_a_copy_of_its_own(w):
    log = []

    class Table(dict):
        def copy(self):
            log.append("copied")
            return Table(self)

    table = Table(scale=1.0)

    @w.trace
    def f(x):
        table["seen"] = len(table)
        return x * table["scale"]

    w.see(table=table, log=log)
    for table["scale"] in w.rounds(1.0, 2.0):
        w.call(f, w.x)


# ---- results that are made again ---------------------------------------------------------------------------
@dataclasses.dataclass(slots=True)
class Slotted:
    first: object
    rest: list = dataclasses.field(default_factory=list)


@program("structures", peers=False)
def a_dataclass_with_slots_is_returned(w):
    @w.trace
    def f(x, k):
        made = Slotted(x + k)
        made.rest.append(made.first)
        return made

    for k in w.rounds(1.0, 2.0):
        w.call(f, w.x, k)


@program("structures")
def arrays_that_share_memory_are_returned(w):
    @w.trace
    def f(x):
        whole = np.arange(6.0).reshape(2, 3)
        return x * 2, whole, whole[0], np.broadcast_to(whole[1], (2, 3))

    for x in w.rounds(w.x, w.x * 2):
        w.call(f, x)


@program("structures")
def a_part_of_a_captured_array_is_returned(w):
    array = np.arange(6.0)
    f = w.trace(lambda x: (x * float(array[0]), array[1:]))
    w.see(array=array)
    for array[0] in w.rounds(1.0, 2.0):
        w.call(f, w.x)


@program("structures")
def an_array_in_another_order_is_returned(w):
    @w.trace
    def f(x):
        return x * 2, np.asfortranarray(np.ones((2, 3)))

    def laid(x):
        doubled, array = f(x)
        return doubled, array.flags.f_contiguous

    for x in w.rounds(w.x, w.x * 2):
        w.call(laid, x)


@program("structures")
def the_order_of_a_returned_set(w):
    @w.trace
    def f(x, k):
        return x * 2, {7, 15, k}, frozenset([15, 7, k + 8]), {23, 7, 15}

    def listed(k):
        return [list(s) for s in f(w.x, k)[1:]]

    for k in w.rounds(23, 31):
        w.call(listed, k)


@program("structures")
def a_new_range_each_time(w):
    f = w.trace(lambda x, k: (x * 2, range(k)))
    for k in w.rounds(2, 3):
        w.call(f, w.x, k)


@program("structures")
def a_default_is_a_method_of_an_object_made_inside(w):
    @w.trace
    def f(x, k):
        return x + 1, collections.defaultdict(Scale(k).times, first=k)

    for k in w.rounds(2.0, 3.0):
        w.call(f, w.x, k)


@program("exceptions")
def an_error_holds_more_than_its_arguments(w):
    @w.trace
    def f(x):
        return x + 1, OSError(2, "No such file", "data.bin")

    def named(x):
        more, error = f(x)
        return more, error.filename

    for x in w.rounds(w.x, w.x * 2):
        w.call(named, x)


@program("exceptions")
def an_error_that_was_raised_is_kept(w):
    errors = []

    @w.trace
    def f(x):
        try:
            try:
                [].pop()
            except IndexError as error:
                raise ValueError("empty") from error
        except ValueError as error:
            errors.append(error)
        return x + 1

    def kept(x):
        return f(x), errors[-1].__traceback__ is None, repr(errors[-1].__cause__)

    for x in w.rounds(w.x, w.x * 2):
        w.call(kept, x)


# ---- settings ----------------------------------------------------------------------------------------------
@program("globals")
def how_numpy_prints_changes(w):
    f = w.trace(lambda x: (x + 1, repr(np.arange(3) / 7)))
    w.undo(lambda: np.set_printoptions(precision=8))
    for digits in w.rounds(3, 8, 5):
        np.set_printoptions(precision=digits)
        w.call(f, w.x)


@program("optimizers")
def the_text_of_an_optimizer(w):
    optimizer = t.optim.SGD([t.ones(4, requires_grad=True)], lr=0.5)
    f = w.trace(lambda x: (x + 1, repr(optimizer)))
    for rate in w.rounds(0.5, 0.25):
        optimizer.param_groups[0]["lr"] = rate
        w.call(f, w.x)


# ---- a traced module stands for the module -----------------------------------------------------------------
class Scaled(t.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 1.0
        self.linear = t.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * self.scale


@program("attributes of modules")
def an_attribute_is_set_through_the_traced_module(w):
    net = w.trace(quietly(Scaled()))
    for scale in w.rounds(1.0, 2.0):
        net.scale = scale
        w.call(net, w.x)


@program("attributes of modules", peers=False)
def an_attribute_is_set_through_a_traced_module_inside(w):
    net = w.trace(quietly(Scaled()))

    @w.trace
    def f(x):
        net.scale = net.scale + 1
        return net(x)

    w.see(scale=lambda: net.scale)
    for net.scale in w.rounds(1.0, 2.0):
        w.call(f, w.x)
        w.call(net, w.x)


@program("attributes of modules", peers=False)
def a_shallow_copy_of_a_traced_module(w):
    net = w.trace(quietly(Scaled()))
    for scale in w.rounds(1.0, 2.0):
        copied = copy.copy(net)
        copied.scale = scale + 2
        w.call(copied, w.x)
        w.call(net, w.x)
        net.scale = scale


# ---- one object in two places, one of which is unsteady ----------------------------------------------------
@program("parameters")
def a_weight_is_tied_then_exchanged(w):
    first, second = quietly(t.nn.Linear(4, 4)), quietly(t.nn.Linear(4, 4))
    one, other, third = (first.weight, second.weight, t.nn.Parameter(second.weight.detach() + 1))
    f = w.trace(lambda x: second(first(x)))
    for a, b in w.rounds((one, other), (other, one), (third, one), (one, one), (other, one), (third, third)):
        first.weight, second.weight = a, b
        w.call(f, w.x)


@program("containers")
def a_key_that_is_met_elsewhere_too(w):
    keys = [Scale(1.0), Scale(2.0), Scale(5.0)]
    table = dict.fromkeys(keys, 1.0)
    state = types.SimpleNamespace(chosen=None)

    @w.trace
    def f(x):
        return x * state.chosen.by + sum(key.by * held for key, held in table.items())

    for state.chosen in w.rounds(Scale(7.0), Scale(8.0), keys[0], keys[1], Scale(9.0), keys[2]):
        w.call(f, w.x)


@program("containers")
def a_method_of_what_is_met_elsewhere_too(w):
    one, other = Scale(2.0), Scale(3.0)
    state, fixed = types.SimpleNamespace(chosen=None), types.SimpleNamespace(act=one.times)
    f = w.trace(lambda x: x * state.chosen.by + fixed.act(x))
    for state.chosen in w.rounds(Scale(7.0), Scale(8.0), one, other, one, Scale(4.0)):
        w.call(f, w.x)


@program("parameters", chained=True)
def an_optimizer_keeps_a_weight_that_its_layer_lost(w):
    layer = t.nn.Linear(4, 1)
    optimizer = t.optim.SGD([layer.weight], lr=0.01)
    weights = [layer.weight, *(t.nn.Parameter(t.full((1, 4), float(k))) for k in (1, 2, 3))]

    @w.trace
    def f(x):
        layer(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    w.see(weights=weights)
    for k, held in w.rounds((0, 0), (1, 1), (2, 2), (3, 3), (1, 3), (3, 1), (2, 2)):
        layer.weight = weights[k]
        optimizer.param_groups[0]["params"][0] = weights[held]
        w.call(f, w.x)
