"""What a recording takes for granted, each seen to fail: the call is right, and `explain()` says why."""

from __future__ import annotations

import functools
import math
import operator
import types
import weakref
from collections import ChainMap, UserDict
from dataclasses import dataclass, field

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim

X = lamina.arange(4).float()


def same(a, b):
    np.testing.assert_array_equal(a._data, b._data)


class Case:
    """A function, and changes after each of which a call must be recorded anew; `why` is in the reason."""

    def __init__(self, function, *changes, why, args=lambda: (X.clone(),)):
        self.traced, self.changes, self.why, self.args = jit.trace(function), changes, why, args

    def check(self):
        traced = self.traced
        for number, change in enumerate((lambda: None, *self.changes)):
            change()
            for again in range(2):
                before = traced._log.hits
                given = self.args()
                expected = traced.__wrapped__(
                    *[g.clone() if isinstance(g, lamina.Tensor) else g for g in given]
                )
                same(traced(*given), expected)
                assert traced._log.hits == before + again, f"change {number}: {traced.explain()}"
        told = [traced.explain(detail=True), *traced.explain(as_dict=True)["misses"]]
        assert self.why in "\n".join(told), told


# ---- plain values ------------------------------------------------------------------------------------------
scale = 2.0
settings = {"scale": [1.0, 2.0]}
half = lambda x: x / 2  # noqa: E731 - is to be exchanged for another
module = types.ModuleType("user_module")
module.factor = 3.0


def change_global(value):
    def change():
        global scale
        scale = value

    return change


@pytest.mark.parametrize("value", [3.0, 2, True, -0.0, math.nan, math.inf])
def test_a_global_by_type_and_bits(value):
    change_global(2.0)()
    Case(lambda x: x * scale, change_global(value), why="the global scale: 2.0 -> ").check()


def test_zero_and_minus_zero_are_two():
    change_global(0.0)()
    Case(lambda x: x * scale - 0.0, change_global(-0.0), change_global(0), why="0.0 -> -0.0").check()


def test_an_item_of_a_dict_in_a_list():
    def change():
        settings["scale"][1] += 1

    Case(lambda x: x * settings["scale"][1], change, why="the global settings").check()


def test_a_closure():
    k = 1.0

    def change():
        nonlocal k
        k = 5.0

    Case(lambda x: x * k, change, why="k: 1.0 -> 5.0").check()


def test_an_attribute_of_a_users_module():
    Case(
        lambda x: x * module.factor, lambda: setattr(module, "factor", 4.0), why="user_module.factor"
    ).check()


@dataclass
class Config:
    scale: float = 2.0
    names: list = field(default_factory=lambda: ["a"])


class Plain:
    def __init__(self):
        self.config = Config()

    @property
    def doubled(self):
        return self.config.scale * 2


plain = Plain()


def test_an_attribute_of_an_attribute_behind_a_property():
    Case(
        lambda x: x * plain.doubled, lambda: setattr(plain.config, "scale", 5.0), why="scale: 2.0 -> 5.0"
    ).check()


class Family(type):
    @property
    def scale(cls):
        return plain.config.scale


class Member(metaclass=Family):
    pass


class Born:
    def __new__(cls):
        made = object.__new__(cls)
        made.scale = plain.config.scale
        return made


plain_reference = weakref.ref(plain)
user_dict = UserDict(scale=2.0)
chain_map = ChainMap({}, {"scale": 2.0})


@functools.lru_cache
def remembered():
    return plain.config.scale


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * Member.scale,
        lambda x: x * Born().scale,
        lambda x: x * plain_reference().config.scale,
        lambda x: x * operator.attrgetter("config.scale")(plain),
    ],
    ids=["metaclass", "__new__", "weakref", "attrgetter"],
)
def test_an_attribute_reached_in_a_roundabout_way(function):
    plain.config.scale = 2.0

    def change():
        plain.config.scale = 5.0

    Case(function, change, why="scale: 2.0 -> 5.0").check()


def test_what_a_cache_keeps_is_a_fact():
    """Whether it calls its function is looked up in its table, and calls nothing."""
    traced = jit.trace(lambda x: x * remembered())
    plain.config.scale = 2.0
    remembered.cache_clear()
    for clear in (False, False, False, True, False, False):
        if clear:
            plain.config.scale = 5.0
            remembered.cache_clear()
        same(traced(X), X * plain.config.scale)
    assert traced._log.hits == 2 and remembered.cache_info()[:2] == (2, 1)
    assert "what the global remembered keeps: 2.0 -> 5.0" in traced.explain(detail=True)


@pytest.mark.parametrize("given", [user_dict, chain_map], ids=["UserDict", "ChainMap"])
def test_what_a_dict_of_the_standard_library_holds(given):
    Case(lambda x: x * given["scale"], lambda: given.update(scale=5.0), why="given.").check()


def test_an_attribute_that_was_not_there():
    thing = Plain()

    def f(x):
        return x * (thing.extra if hasattr(thing, "extra") else 1.0)

    Case(f, lambda: setattr(thing, "extra", 3.0), why="extra: nothing -> 3.0").check()


def test_the_length_of_a_list():
    names = ["a"]
    Case(lambda x: x * len(names), lambda: names.append("b"), why="names").check()


def test_another_function_under_the_same_name():
    def change():
        global half
        half = lambda x: x / 4  # noqa: E731

    Case(lambda x: half(x), change, why="the global half").check()


def test_the_code_of_a_function():
    def helper(x):
        return x + 1

    def other(x):
        return x + 2

    def change():
        helper.__code__ = other.__code__

    Case(lambda x: helper(x), change, why="__code__").check()


def test_the_defaults_of_a_function():
    def helper(x, by=1.0):
        return x + by

    def change():
        helper.__defaults__ = (3.0,)

    Case(lambda x: helper(x), change, why="__defaults__").check()


def test_a_value_that_a_helper_reads():
    state = {"k": 1.0}

    def inner(x):
        return x * state["k"]

    Case(lambda x: [inner(y) for y in (x,)][0], lambda: state.update(k=2.0), why="state").check()


def test_what_a_partial_holds():
    options = [1.0]
    f = functools.partial(lambda options, x: x * options[0], options)
    Case(lambda x: f(x), lambda: options.__setitem__(0, 2.0), why="f.args[0][0]: 1.0 -> 2.0").check()


def test_a_builtin_that_is_hidden_by_a_global():
    def f(x):
        return x * max(1, 2)

    def change():
        globals()["max"] = min

    try:
        Case(f, change, why="the global max").check()
    finally:
        globals().pop("max", None)


def test_a_method_of_a_users_class():
    class Doubler:
        def run(self, x):
            return x * 2

    thing = Doubler()

    def change():
        Doubler.run = lambda self, x: x * 3

    Case(lambda x: thing.run(x), change, why="run").check()


def test_a_small_array_by_value():
    weights = np.array([1.0, 2.0])
    Case(lambda x: x * float(weights[0]), lambda: weights.__setitem__(0, 5.0), why="weights").check()


# ---- modules -----------------------------------------------------------------------------------------------
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0
        self.layers = [1.0]
        self.inner = nn.Sequential(nn.Identity())

    def forward(self, x):
        y = self.inner(x * self.scale) + self.layers[0]
        return y * 2 if self.training else y


def test_an_attribute_of_a_module():
    net = Net()
    Case(net, lambda: setattr(net, "scale", 3.0), why="Net.scale: 2.0 -> 3.0").check()


def test_the_mode_of_a_module_and_back():
    net = Net()
    traced = Case(net, net.eval, why="Net.training: True -> False")
    traced.check()
    net.train()
    before = traced.traced._log.hits
    same(traced.traced(X), net(X))
    assert traced.traced._log.hits == before + 1


def test_a_list_inside_a_module():
    net = Net()
    Case(net, lambda: net.layers.__setitem__(0, 7.0), why="layers").check()


def test_a_child_that_is_exchanged():
    net = Net()
    Case(net, lambda: net.inner.__setitem__(0, nn.ReLU()), why="").check()


def test_a_parameter_that_is_exchanged():
    layer = nn.LayerNorm(4)

    def change():
        layer.weight = nn.Parameter(lamina.ones(4) * 2)

    Case(lambda x: layer(x).detach(), change, why="layer.weight: Parameter f32[4] -> another").check()


def test_a_forward_hook():
    net = Net()
    Case(net, lambda: net.register_forward_hook(lambda m, a, y: y + 1), why="_call_hooks").check()


def test_the_forward_of_a_class():
    class Other(nn.Module):
        def forward(self, x):
            return x + 1

    def change():
        Other.forward = lambda self, x: x + 2

    Case(Other(), change, why="forward").check()


# ---- tensors -----------------------------------------------------------------------------------------------
def test_types_and_shapes_of_arguments():
    traced = jit.trace(lambda x: x * 2 + 1, dynamic=False)
    for dtype in (lamina.float32, lamina.float64, lamina.int64, lamina.float16):
        for shape in ((2,), (3,), (2, 3), ()):
            for _ in range(2):
                x = lamina.ones(shape, dtype=dtype)
                same(traced(x), x * 2 + 1)
    assert traced._log.hits == 16


def test_the_strides_of_an_argument():
    x = lamina.arange(12).reshape(3, 4).float()
    given = [x]
    Case(
        lambda x: x.reshape(-1) + 1, lambda: given.__setitem__(0, x.t()), why="", args=lambda: (given[0],)
    ).check()


def test_the_type_of_a_tensor_that_is_reached():
    w = lamina.ones(4)
    Case(lambda x: x * w, lambda: setattr(w, "data", lamina.ones(4, dtype=lamina.float64)),
         why="w: f32[4] -> f64[4]").check()  # fmt: skip


def test_whether_a_parameter_requires_gradients():
    layer = nn.Linear(4, 2)

    def f(x):
        layer.zero_grad()
        y = layer(x).sum()
        y.backward()
        return y.detach() * sum(p.requires_grad for p in layer.parameters())

    traced = jit.trace(f)
    for frozen in (False, False, False, True, True, True):
        layer.weight.requires_grad_(not frozen)
        x = lamina.randn(3, 4)
        expected = f(x)
        np.testing.assert_allclose(traced(x)._data, expected._data, rtol=0, atol=2**-18)  # sums of 12 numbers
        assert (layer.weight.grad is None) == frozen
    assert traced._log.hits >= 2


def test_arguments_that_are_one_tensor():
    def f(x, y):
        x.add_(1)
        return x * y

    traced = jit.trace(f)
    for _ in range(2):
        x, y = X.clone(), X.clone()
        same(traced(x, y), (X + 1) * X)
        x = X.clone()
        same(traced(x, x), (X + 1) * (X + 1))
        x = X.clone()
        same(traced(x, x.detach()), (X + 1) * (X + 1))
    assert traced._log.hits == 3


def test_arguments_that_share_memory_where_one_is_written():
    def f(x, y):
        x.add_(1)
        return x.sum() + y.sum()

    traced = jit.trace(f)
    for _ in range(3):
        x, y = X.clone(), X.clone()[1:]
        assert traced(x, y).item() == 10 + 6
        x = X.clone()
        assert traced(x, x[1:]).item() == 10 + 9
    assert "shares with another tensor" in traced.explain(detail=True)


def test_an_argument_that_is_a_tensor_of_the_functions_own():
    buffer = X.clone()

    def f(x):
        buffer.add_(1)
        return x * 2

    traced = jit.trace(f)
    for _ in range(2):
        same(traced(X.clone()), X * 2)
        expected = (buffer + 1) * 2
        same(traced(buffer), expected)
        assert traced(buffer[1:]).tolist() == ((buffer + 0)[1:] * 2).tolist()
    assert traced._log.hits >= 1


# ---- modes and optimizers ----------------------------------------------------------------------------------
def test_modes():
    w = lamina.ones(4, requires_grad=True)
    traced = jit.trace(lambda x: x * w * (2 if lamina.is_grad_enabled() else 3))
    for _ in range(2):
        same(traced(X), (X * 2))
        with lamina.no_grad():
            y = traced(X)
            same(y, X * 3)
            assert not y.requires_grad
        with lamina.inference_mode():
            same(traced(X), X * 3)
    assert traced._log.hits == 3


def test_the_default_dtype():
    traced = jit.trace(lambda x: x + lamina.ones(4))
    for dtype in (lamina.float32, lamina.float64, lamina.float32):
        lamina.set_default_dtype(dtype)
        try:
            assert traced(X).dtype is dtype and traced(X).dtype is dtype
        finally:
            lamina.set_default_dtype(lamina.float32)


def test_settings_of_an_optimizer():
    w = nn.Parameter(lamina.ones(2))
    other = nn.Parameter(lamina.ones(2))
    a = optim.SGD([w], lr=0.5)
    b = optim.SGD([other], lr=0.5)

    def make(p, optimizer):
        def step(x):
            optimizer.zero_grad()
            (p * x).sum().backward()
            optimizer.step()

        return step

    traced, eager = jit.trace(make(w, a)), make(other, b)
    x = lamina.ones(2)
    for change in (
        {},
        {},
        {},
        {"lr": 0.25},
        {"weight_decay": 0.1},
        {"weight_decay": 0.2},
        {"maximize": True},
        {},
    ):
        for optimizer in (a, b):
            optimizer.param_groups[0].update(change)
        traced(x), eager(x)
        # each of the few operations of an update rounds once; values stay near 1
        np.testing.assert_allclose(w._data, other._data, rtol=8 * 2**-24)
    assert traced._log.hits >= 3


def test_fields_of_an_argument_that_is_an_object():
    def f(net, x):
        return x * net.scale

    traced, net = jit.trace(f), Net()
    same(traced(net, X), X * 2)
    same(traced(net, X), X * 2)
    net.scale = 3.0
    same(traced(net, X), X * 3)
    same(traced(Net(), X), X * 2)
    assert traced._log.hits == 1


def test_recordings_of_objects_that_are_gone_are_dropped():
    traced = jit.trace(lambda net, x: x * net.scale)
    for _ in range(40):
        same(traced(Net(), X), X * 2)
    assert sum(len(tree.branches) for tree in traced._trees.values()) <= 2


def test_functions_of_the_package_are_not_looked_through():
    traced = jit.trace(lambda x: F.gelu(x) + lamina.softmax(x, 0))
    traced(X)
    assert traced.explain(as_dict=True)["paths"][0]["guards"] < 20


class Held:
    """An object whose attribute a traced function reads."""


PLAIN = (
    None, True, False, ..., NotImplemented, 0, -1, 2**80, -0.0, 1.5, math.nan, math.inf, 1j, "", "...",
    "a'b\n", b"\0", (), (1, (..., None)),
)  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_a_plain_value_passes_its_own_guard(value):
    """In a cell, a list, a dictionary, an attribute and a default: the text of its guard is true of it."""
    held = Held()
    held.value = value

    def f(x, default=value):
        met = [value, listed[0], named["k"], held.value, default]
        return x * (1 + sum([v == value for v in met]))

    listed, named = [value], {"k": value}
    traced = jit.trace(f)
    for _ in range(4):
        same(traced(X), f(X))
    assert traced._log.hits >= 2, str(traced.explain(detail=True))


class WithBuffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", lamina.zeros(2))
        self.register_buffer("more", lamina.zeros(2))


STATE_CHANGES = {
    "a hook on states": lambda net: net.register_state_dict_post_hook(lambda m, d, p, meta: d.update(z=X)),
    "a hook before states": lambda net: net.register_state_dict_pre_hook(
        lambda m, prefix, keep: m.register_buffer("third", X)
    ),
    "registered anew": lambda net: net.register_buffer("more", net.more, persistent=False),
    "registered anew with another": lambda net: net.register_buffer("more", X, persistent=False),
    "a name added": lambda net: net._non_persistent_buffers_set.add("more"),
    "names joined": lambda net: net._non_persistent_buffers_set.__ior__({"more", "seen"}),
    "names toggled": lambda net: net._non_persistent_buffers_set.symmetric_difference_update({"more"}),
    "another set": lambda net: setattr(net, "_non_persistent_buffers_set", {"more"}),
    "taken out": lambda net: delattr(net, "more"),
}


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("change", STATE_CHANGES.values(), ids=STATE_CHANGES)
def test_what_a_state_leaves_out_is_part_of_a_module(change, writes):
    net = WithBuffers()

    def f(x):
        if writes:
            net.seen = x.detach()
        return x * len(net.state_dict())

    traced = jit.trace(f)
    for call in range(8):
        if call == 4:
            assert traced._log.hits >= 1
            change(net)
        same(traced(X), f(X))
