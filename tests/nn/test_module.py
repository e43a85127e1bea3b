"""What a module does with attributes, names, dtypes and copies; and the epoch."""

import copy
import gc
import pickle
import weakref

import pytest

import lamina
import lamina.nn as nn
from lamina import ArgumentError, DTypeError


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = nn.Parameter(lamina.ones(2))
        self.register_buffer("count", lamina.zeros(1))
        self.register_buffer("scratch", lamina.zeros(3), persistent=False)

    def forward(self, x):
        return self.linear(x) * self.scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = nn.Sequential(nn.ReLU(), nn.Linear(2, 1, bias=False))
        self.tied = self.second[1]

    def forward(self, x):
        return self.tied(self.second[0](self.first(x)))


def names(pairs):
    return [name for name, _ in pairs]


def test_names_of_everything():
    net = Net()
    assert names(net.named_parameters()) == [
        "first.scale", "first.linear.weight", "first.linear.bias", "second.1.weight",
    ]  # fmt: skip
    assert names(net.named_parameters(prefix="net", recurse=False)) == []
    assert names(net.named_parameters(remove_duplicate=False))[-2:] == ["second.1.weight", "tied.weight"]
    assert names(net.named_buffers("n")) == ["n.first.count", "n.first.scratch"]
    assert names(net.named_modules()) == ["", "first", "first.linear", "second", "second.0", "second.1"]
    assert names(net.named_modules(remove_duplicate=False))[-1] == "tied"
    assert names(net.named_children()) == ["first", "second", "tied"]
    assert len(list(net.parameters())) == 4 and len(list(net.modules())) == 6


def test_shared_parameter_is_named_once():
    m = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)])
    m[1].weight = m[0].weight
    m[1].register_buffer("one", lamina.ones(1))
    m[1].register_buffer("again", m[1].one)
    assert names(m.named_parameters()) == ["0.weight"] and names(m.named_buffers()) == ["1.one"]
    assert names(m.named_parameters(remove_duplicate=False)) == ["0.weight", "1.weight"]
    assert list(m.state_dict()) == ["0.weight", "1.weight", "1.one", "1.again"]


def test_get_by_path():
    net = Net()
    assert net.get_submodule("second.1") is net.tied and net.get_submodule("") is net
    assert net.get_parameter("first.linear.bias") is net.first.linear.bias
    assert net.get_buffer("first.count") is net.first.count
    with pytest.raises(AttributeError, match="Block has no module 'conv', asked for by 'first.conv.x'"):
        net.get_submodule("first.conv.x")
    with pytest.raises(AttributeError, match="Linear has no parameter 'count'"):
        net.get_parameter("second.1.count")


def test_assignment_registers_and_moves_names():
    m = nn.Module()
    m.x = nn.Parameter(lamina.ones(1))
    m.x = nn.Linear(1, 1)
    assert not m._parameters and list(m._modules) == ["x"]
    m.x = nn.Parameter(lamina.ones(1))
    assert not m._modules and list(m._parameters) == ["x"]
    m.x = None
    assert m.x is None and m._parameters == {"x": None} and not list(m.parameters())
    m.plain = 3
    m.plain = nn.Parameter(lamina.ones(1))
    assert list(m._parameters) == ["x", "plain"]
    del m.plain
    assert not hasattr(m, "plain") and list(m._parameters) == ["x"]


def test_assignment_of_the_wrong_kind_is_refused():
    block = Block()
    with pytest.raises(ArgumentError, match="Block.scale is a parameter: only a Parameter or None") as caught:
        block.scale = lamina.zeros(2)
    assert "with no_grad(): module.scale.copy_(values)" in str(caught.value)
    with pytest.raises(ArgumentError, match="Block.linear is a module: only a Module or None"):
        block.linear = 3
    with pytest.raises(ArgumentError, match="Block.count is a buffer: only a tensor or None"):
        block.count = 3
    block.count = lamina.ones(4)
    assert block._buffers["count"] is block.count and block.count.shape == (4,)


def test_registration_refuses_bad_names_and_kinds():
    m = nn.Module()
    for name in ("", "a.b"):
        with pytest.raises(KeyError, match="can't be empty or contain a dot"):
            m.register_buffer(name, None)
    with pytest.raises(KeyError, match="attribute 'forward' already exists"):
        m.register_parameter("forward", None)
    with pytest.raises(ArgumentError, match="name should be a string. Got int"):
        m.add_module(0, nn.ReLU())
    with pytest.raises(ArgumentError, match="a child must be a Module or None, not Tensor: 'x'"):
        m.add_module("x", lamina.ones(1))
    with pytest.raises(ArgumentError, match="a parameter must be a Parameter or None, not Tensor: 'x'"):
        m.register_parameter("x", lamina.ones(1))
    with pytest.raises(ArgumentError, match="a buffer must be a tensor or None, not float: 'x'"):
        m.register_buffer("x", 1.0)


def test_a_parameter_may_take_the_name_of_a_property_that_has_no_value_yet():
    class Held(nn.Module):
        @property
        def scale(self):
            return self.raw.exp()

        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(lamina.ones(2))  # as `raw` is missing, so is `scale`
            self.raw = self._parameters.pop("scale")

    held = Held()
    assert [name for name, _ in held.named_parameters()] == ["raw"]
    with pytest.raises(KeyError, match="attribute 'scale' already exists"):
        held.scale = nn.Parameter(lamina.ones(2))


def test_attributes_before_init_are_refused():
    class Late(nn.Module):
        def __init__(self):
            self.linear = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match="cannot assign modules before Module.__init__\\(\\) call"):
        Late()

    class Never(nn.Module):
        def __init__(self):
            self.size = 3

        def forward(self, x):
            return x

    with pytest.raises(AttributeError, match="super\\(\\).__init__\\(\\) first"):
        Never()(1)


def test_missing_attribute_reads_as_python_says():
    with pytest.raises(AttributeError, match="^'Block' object has no attribute 'weight'$"):
        Block().weight  # noqa: B018


def test_members_dictionaries_and_attributes_agree():
    block = Block()
    new = nn.Parameter(lamina.zeros(2))
    block._parameters["scale"] = new
    assert block.scale is new
    del block._buffers["count"]
    assert not hasattr(block, "count")
    block._modules.clear()
    assert not hasattr(block, "linear") and "linear" not in dir(block)
    assert {"scale", "forward"} < set(dir(block))


def test_train_and_eval():
    net = Net()
    assert net.eval() is net and not net.second[1].training
    assert net.train().first.linear.training
    with pytest.raises(ArgumentError, match="a bool is wanted, not str"):
        net.train("no")


def test_to_keeps_parameters_and_converts_gradients():
    block = Block()
    block.register_buffer("number", lamina.tensor([3]))
    weight = block.linear.weight
    block(lamina.ones(1, 2)).sum().backward()
    assert block.double() is block
    assert block.linear.weight is weight
    assert weight.dtype is weight.grad.dtype is block.count.dtype is lamina.float64
    assert block.number.dtype is lamina.int64
    block.to("cpu", lamina.float32)
    assert weight.dtype is weight.grad.dtype is lamina.float32
    assert block.to(lamina.ones(1, dtype=lamina.float16)).scale.dtype is lamina.float16
    assert block.bfloat16().scale.dtype is lamina.bfloat16
    block.float()
    block.zero_grad()
    block(lamina.ones(1, 2)).sum().backward()
    assert weight.grad.dtype is lamina.float32
    with pytest.raises(DTypeError, match="parameters are floating or complex, which lamina.int64 is not"):
        block.to(lamina.int64)
    with pytest.raises(ArgumentError, match="takes device, dtype or tensor, got sort"):
        block.to(sort=3)
    assert block.to() is block and block.to(device=None, dtype=None) is block


def test_zero_grad_and_requires_grad():
    net = Net()
    net(lamina.ones(3, 2)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert all(p.grad.abs().sum() == 0 for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


def test_apply_goes_from_the_leaves_up():
    seen = []
    net = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh()))
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["ReLU", "Tanh", "Sequential", "Sequential"]


def test_call_without_forward_is_refused():
    with pytest.raises(ArgumentError, match="Module can't be called: its class defines no forward"):
        nn.Module()(1)


def test_deepcopy_and_pickle_keep_sharing_and_share_nothing():
    net = Net()
    net.first.note = ["kept"]
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.tied is other.second[1] and other.tied is not net.tied
        assert other.tied.weight.tolist() == net.tied.weight.tolist()
        with lamina.no_grad():
            other.tied.weight.add_(1.0)
        assert other.tied.weight.tolist() != net.tied.weight.tolist()
        other.tied.weight = nn.Parameter(lamina.zeros(1, 2))
        assert other(lamina.ones(1, 2)).item() == 0.0
        assert list(other.state_dict()) == list(net.state_dict())
        assert isinstance(other.tied.weight, nn.Parameter) and other.first.note == ["kept"]


def test_state_set_by_hand_as_in_a_user_setstate():
    class Kept(nn.Linear):
        def __getstate__(self):
            return self.__dict__.copy()

        def __setstate__(self, state):
            self.__dict__.update(state)

    original = Kept(2, 1)
    old = original.weight
    twin = nn.Linear(2, 1)
    twin.__dict__ = original.__dict__.copy()
    for m in (copy.deepcopy(original), twin):
        m.weight = nn.Parameter(lamina.zeros(1, 2))
        assert m._parameters["weight"] is m.weight and m(lamina.ones(2)).item() == m.bias.item()
    assert original._parameters["weight"] is original.weight is old


def test_module_is_freed_without_the_collector():
    gc.disable()
    try:
        net = Net()
        gone, weight = weakref.ref(net.first), weakref.ref(net.first.linear.weight)
        del net
        assert gone() is None and weight() is None
    finally:
        gc.enable()


CHANGES = {
    "attribute": lambda m: setattr(m, "rate", 2),
    "deleted": lambda m: delattr(m, "rate"),
    "parameter": lambda m: setattr(m, "scale", nn.Parameter(lamina.ones(2))),
    "buffer": lambda m: setattr(m, "count", lamina.ones(1)),
    "child": lambda m: setattr(m.linear, "bias", None),
    "mode": lambda m: m.eval(),
    "members": lambda m: m._parameters.pop("scale"),
    "members updated": lambda m: m._buffers.update(count=None),
    "vars": lambda m: vars(m).update(rate=3),
    "hook": lambda m: m.register_forward_hook(print),
    "state hook": lambda m: m.register_state_dict_post_hook(print),
    "dtype": lambda m: m.double(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_epoch_advances_with(change):
    block = Block()
    block.rate = 1
    before = nn.epoch.value
    CHANGES[change](block)
    assert nn.epoch.value != before


def test_epoch_stays_while_nothing_changes():
    net = Net()
    before = nn.epoch.value
    net(lamina.ones(3, 2)).sum().backward()
    list(net.named_parameters()), net.state_dict(), repr(net), net.training
    assert nn.epoch.value == before
