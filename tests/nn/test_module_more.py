"""Hooks of all modules, states loaded by code of the user's, and what else a module offers."""

import copy

import pytest

import lamina
import lamina.nn as nn
from lamina.nn import module as modules


def test_hooks_of_all_modules_come_first_and_go():
    seen = []
    m = nn.Sequential(nn.Linear(2, 2))
    m.register_forward_hook(lambda module, args, out: seen.append("own"))
    handles = [
        modules.register_module_forward_pre_hook(lambda module, args: seen.append(type(module).__name__)),
        modules.register_module_forward_hook(lambda module, args, out: seen.append("every")),
        modules.register_module_full_backward_pre_hook(lambda module, g: seen.append("backward pre")),
        modules.register_module_full_backward_hook(lambda module, i, o: seen.append("backward")),
    ]
    try:
        out = m(lamina.ones(1, 2))
        assert seen == ["Sequential", "Linear", "every", "every", "own"]
        out.sum().backward()
        assert seen[5:] == ["backward pre", "backward"] * 2
    finally:
        for handle in handles:
            handle.remove()
    m(lamina.ones(1, 2))
    assert seen[9:] == ["own"] and nn.Module.__call__ is modules._PLAIN_CALL


def test_hooks_of_all_modules_reach_traced_ones():
    m = nn.Linear(2, 2)
    traced = lamina.jit.trace(m)
    x = lamina.ones(1, 2)
    for _ in range(3):
        traced(x)
    with modules.register_module_forward_hook(lambda module, args, out: out * 0):
        assert (traced(x) == 0).all()
    assert lamina.equal(traced(x), m(x)) and (m(x) != 0).any()


def test_hooks_of_registration():
    seen = []
    handles = [
        getattr(modules, f"register_module_{kind}_registration_hook")(
            lambda module, name, value, kind=kind: seen.append((kind, name))
        )
        for kind in ("parameter", "buffer", "module")
    ]
    try:
        m = nn.Module()
        m.child = nn.Identity()
        m.weight = nn.Parameter(lamina.ones(1))
        m.register_buffer("mean", None)
    finally:
        for handle in handles:
            handle.remove()
    assert seen == [("module", "child"), ("parameter", "weight"), ("buffer", "mean")]


def test_hooks_are_shown():
    m = nn.Linear(1, 1)
    handle = m.register_forward_hook(print)
    m.register_forward_pre_hook(print)
    assert list(m._forward_hooks.values()) == [print] and handle.id in m._forward_hooks
    m._forward_hooks.clear()
    assert len(m._forward_hooks) == 0 and len(m._forward_pre_hooks) == 1


def test_a_class_may_load_its_state_itself():
    class Renamed(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            if prefix + "w" in state_dict:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "w")
            super()._load_from_state_dict(state_dict, prefix, *args)

    class Silent(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *args):
            self.kept = state_dict[prefix + "anything"]

    m = nn.Sequential(Renamed(1, 1, bias=False), Silent(1, 1))
    state = {"0.w": lamina.tensor([[3.0]]), "1.anything": 5}
    assert str(m.load_state_dict(state)) == "<All keys matched successfully>"
    assert m[0].weight.item() == 3.0 and m[1].kept == 5 and "0.w" in state


def test_a_hook_may_replace_the_state():
    m = nn.Linear(1, 1)
    m._register_state_dict_hook(lambda module, state, prefix, metadata: {"all": len(state)})
    assert m.state_dict() == {"all": 2}
    m = nn.Linear(1, 1)
    m.register_state_dict_post_hook(lambda module, state, prefix, metadata: {})
    with pytest.raises(TypeError, match="must return None"):
        m.state_dict()


def test_set_submodule():
    m = nn.Sequential(nn.Sequential(nn.Linear(1, 1)))
    m.set_submodule("0.0", nn.ReLU())
    m.set_submodule("0.other", nn.Tanh())
    assert isinstance(m[0][0], nn.ReLU) and isinstance(m[0].other, nn.Tanh)
    with pytest.raises(AttributeError, match="no module 'x'"):
        m.set_submodule("0.x", nn.ReLU(), strict=True)
    for target, module in (("", nn.ReLU()), (None, nn.ReLU()), ("0.0", 3)):
        with pytest.raises(TypeError):
            m.set_submodule(target, module)


def test_arguments_of_module_init():
    class Base:
        def __init__(self, size):
            self.size = size

    class Both(nn.Module, Base):
        call_super_init = True

        def __init__(self):
            super().__init__(5)

    assert Both().size == 5
    with pytest.raises(TypeError, match="takes no arguments"):
        nn.Module(5)


def test_memory():
    m = nn.Linear(2, 3)
    weight = m.weight
    assert m.to_empty(device="cpu") is m and m.weight is weight and m.weight.shape == (3, 2)
    before = lamina.get_rng_state()
    made = nn.utils.skip_init(nn.Linear, 2, 3)
    assert lamina.equal(lamina.get_rng_state(), before) and made.weight.shape == (3, 2)
    with pytest.raises(ValueError, match="takes no device"):
        nn.utils.skip_init(nn.ReLU)
    assert m.share_memory() is m and m.weight is weight and weight.is_shared()


def test_attention_kernels_that_a_cpu_has():
    from lamina.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        nn.functional.scaled_dot_product_attention(*[lamina.ones(1, 2, 2)] * 3)
    with pytest.raises(RuntimeError, match="CUDNN_ATTENTION: a CPU has none such"):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            pass
    with pytest.raises(TypeError):
        with sdpa_kernel("math"):
            pass


def test_wrappers_for_several_devices():
    m = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    x = lamina.tensor([[1.0, 2.0], [3.0, 5.0]])
    expected = m(x)
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(m)
    assert isinstance(synced[0], nn.SyncBatchNorm) and lamina.equal(synced(x), expected)
    parallel = nn.DataParallel(m)
    assert list(parallel.state_dict())[0] == "module.0.weight" and lamina.equal(parallel(x), expected)
    with pytest.raises(RuntimeError, match="only the CPU"):
        nn.DataParallel(m, [0, 1])


def test_packed_sequences_convert():
    packed = nn.utils.rnn.pack_sequence([lamina.ones(2), lamina.ones(1)])
    assert packed.double().data.dtype is lamina.float64 and packed.float() is packed
    assert not packed.is_cuda and packed.cpu() is packed
    order = lamina.tensor([2, 0, 1])
    made = nn.utils.rnn.PackedSequence(packed.data, packed.batch_sizes, order)
    assert made.unsorted_indices.tolist() == [1, 2, 0]


def test_members_by_getattr():
    layer = nn.Linear(2, 3)
    layer.register_buffer("steps", lamina.ones(1))
    layer.inner, layer.plain = nn.Linear(1, 1), 3
    for name in ("weight", "steps", "inner"):
        assert layer.__getattr__(name) is getattr(layer, name)
    for name in ("plain", "forward", "lacking"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            layer.__getattr__(name)

    class Wrapping(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        @property
        def weight(self):
            raise AttributeError("there is none of its own")

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("layer"), name)

    assert Wrapping().plain == 3 and Wrapping().weight is layer.weight


class Asking(nn.Module):
    """Hears which members are read, as a class may that gives something else in their place."""

    def __init__(self):
        super().__init__()
        self.weight, self.layer = nn.Parameter(lamina.ones(2)), nn.Linear(2, 2)
        self.register_buffer("steps", lamina.zeros(1))

    def __getattr__(self, name):
        found = super().__getattr__(name)
        return found * self.times if name == "weight" else found

    def forward(self, x):
        return x * self.weight + self.steps


def test_a_classs_own_getattr_is_asked_for_members():
    module = Asking()
    module.times = 3.0
    assert module.weight.tolist() == [3.0, 3.0] and module.steps is module._buffers["steps"]
    assert module(lamina.ones(2)).tolist() == [3.0, 3.0]
    assert {"weight", "steps", "layer"} <= {*dir(module)} and "weight" not in module.__dict__
    assert [name for name, _ in module.named_parameters()] == ["weight", "layer.weight", "layer.bias"]
    copied = copy.deepcopy(module)
    copied.times = 5.0
    copied.weight = nn.Parameter(lamina.full((2,), 2.0))
    assert copied.weight.tolist() == [10.0, 10.0] and module.weight.tolist() == [3.0, 3.0]
    with pytest.raises(KeyError, match="already exists"):
        module.register_buffer("weight", lamina.ones(1))
    del module.steps
    assert not hasattr(module, "steps")

    became = nn.Module()
    became.weight, became.times = nn.Parameter(lamina.ones(2)), 2.0
    became.__class__ = Asking
    assert became.weight.tolist() == [2.0, 2.0]
    became.__class__ = nn.Module
    assert became.weight.tolist() == [1.0, 1.0]


def test_a_classs_own_getattr_is_traced():
    module = Asking()
    module.times = 3.0
    traced = lamina.jit.trace(module)
    for times in (3.0, 3.0, 4.0):
        module.times = times
        assert traced(lamina.ones(2)).tolist() == [times, times]
    with lamina.no_grad():
        module._parameters["weight"].fill_(2.0)
    assert traced(lamina.ones(2)).tolist() == [8.0, 8.0]
    module._parameters["weight"] = nn.Parameter(lamina.full((2,), 3.0))
    assert traced(lamina.ones(2)).tolist() == [12.0, 12.0]


def test_a_member_by_getattr_is_guarded_where_it_is_traced():
    layer = nn.Linear(1, 1, bias=False)
    traced = lamina.jit.trace(lambda x: x * layer.__getattr__("weight"))
    for value in (2.0, 2.0, 3.0):
        layer.weight = nn.Parameter(lamina.full((1, 1), value))
        assert traced(lamina.ones(1, 1)).tolist() == [[value]]


def test_named_members_by_a_function():
    module = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))
    found = dict(module._named_members(lambda each: each._buffers.items(), "net"))
    assert found.keys() == {"net.1.running_mean", "net.1.running_var", "net.1.num_batches_tracked"}


def test_conversions_do_not_ask_a_to_of_the_users():
    class Own(nn.Linear):
        def to(self, *args, **kwargs):
            return self.cpu().float()

    assert (
        Own(1, 1).double().weight.dtype is lamina.float64 and Own(1, 1).to("meta").weight.device.type == "cpu"
    )


def test_a_module_that_loads_itself_leniently():
    class Lenient(nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, metadata, strict, *lists):
            super()._load_from_state_dict(state_dict, prefix, metadata, False, *lists)

    module, bias = nn.Sequential(Lenient(1, 1), nn.Linear(1, 1)), lamina.full((1,), 3.0)
    state = {**module[1].state_dict(prefix="1."), "0.bias": bias, "0.older": bias}
    assert module.load_state_dict(state) == ([], []) and module[0].bias.item() == 3.0
    with pytest.raises(RuntimeError, match="Missing key.*1.bias"):
        module.load_state_dict({"0.bias": bias, "1.weight": state["1.weight"]})
    assert module.load_state_dict({"0.bias": bias, "2.bias": bias}, strict=False) == (
        ["1.weight", "1.bias"],
        ["2.bias"],
    )


def test_an_op_as_a_class_attribute_takes_no_self():
    class Own(nn.Module):
        conv, act = nn.functional.conv1d, lamina.relu

        def forward(self, x, weight):
            return self.act(self.conv(x, weight))

    x, weight = lamina.randn(1, 2, 5), lamina.randn(3, 2, 2)
    wanted = lamina.relu(nn.functional.conv1d(x, weight))
    assert lamina.equal(Own()(x, weight), wanted)
    traced = lamina.jit.trace(Own())
    assert all(lamina.equal(traced(x, weight), wanted) for _ in range(3))
