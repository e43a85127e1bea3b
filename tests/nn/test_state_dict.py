"""Taking state out of modules and putting it back."""

import pytest

import lamina
import lamina.nn as nn
from lamina.ir.errors import StateError


def net():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))


def values(module):
    return {key: value.tolist() for key, value in module.state_dict().items()}


def test_keys_in_order_and_memory_shared():
    m = net()
    state = m.state_dict()
    assert list(state) == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
        "1.num_batches_tracked", "2.weight", "2.bias",
    ]  # fmt: skip
    assert not state["0.weight"].requires_grad
    state["0.weight"].fill_(7.0)
    assert m[0].weight.tolist() == [[7.0, 7.0]] * 3
    assert m.state_dict(keep_vars=True)["0.weight"] is m[0].weight
    assert list(m[0].state_dict(prefix="a.")) == ["a.weight", "a.bias"]


def test_load_copies_into_the_same_parameters():
    a, b = net(), net()
    weight = b[0].weight
    result = b.load_state_dict(a.state_dict())
    assert repr(result) == "<All keys matched successfully>" and result.missing_keys == []
    assert values(a) == values(b) and b[0].weight is weight
    a[0].weight.data.fill_(0.0)
    assert values(a) != values(b)


def test_misfit_lists_everything_and_changes_nothing():
    m = net()
    before = values(m)
    state = {key: value + 1 for key, value in net().state_dict().items()}
    del state["0.bias"]
    state["3.weight"] = lamina.ones(1)
    state["2.weight"] = lamina.ones(3, 1)
    state["1.bias"] = [0.0, 0.0, 0.0]
    with pytest.raises(StateError) as caught:
        m.load_state_dict(state)
    assert str(caught.value) == (
        "Error(s) in loading state_dict for Sequential: "
        "the state does not fit the module; nothing was loaded\n"
        '  Missing key(s) in state_dict: "0.bias"\n'
        '  Unexpected key(s) in state_dict: "3.weight"\n'
        "  1.bias: expected torch.Tensor or Tensor-like object from checkpoint but received <class 'list'>\n"
        "  size mismatch for 2.weight: copying a param with shape f32[3,1] from the state into f32[1,3]"
    )
    assert values(m) == before


def test_misfit_of_keys_alone_tells_the_way_out():
    with pytest.raises(StateError, match="load_state_dict\\(state, strict=False\\) loads what both have"):
        net().load_state_dict({})
    with pytest.raises(StateError, match=r'Unexpected key\(s\) in state_dict: "more"\n'):
        net().load_state_dict({**net().state_dict(), "more": lamina.ones(1)})
    assert issubclass(StateError, RuntimeError)


def test_load_not_strict_returns_what_had_no_partner():
    m = net()
    result = m.load_state_dict({"0.bias": lamina.ones(3), "x": lamina.ones(1)}, strict=False)
    assert m[0].bias.tolist() == [1.0] * 3
    assert result.unexpected_keys == ["x"]
    assert result.missing_keys == [
        key for key in m.state_dict() if key not in ("0.bias", "1.num_batches_tracked")
    ]
    with pytest.raises(
        StateError, match="size mismatch for 0.bias: .* f32\\[2\\] from the state into f32\\[3\\]"
    ):
        m.load_state_dict({"0.bias": lamina.ones(2)}, strict=False)


def test_load_assign_takes_the_tensors_themselves():
    m = nn.Linear(2, 1)
    m.bias.requires_grad_(False)
    weight = lamina.ones(1, 2, dtype=lamina.float64)
    m.load_state_dict({"weight": weight, "bias": lamina.zeros(1)}, assign=True)
    assert isinstance(m.weight, nn.Parameter) and m.weight.dtype is lamina.float64
    assert m.weight.requires_grad and not m.bias.requires_grad
    weight.fill_(5.0)
    assert m.weight.tolist() == [[5.0, 5.0]]


def test_load_refuses_what_is_no_mapping():
    with pytest.raises(lamina.ArgumentError, match="Expected state_dict to be dict-like, got list"):
        net().load_state_dict([])


def test_batch_counter_may_be_missing():
    state = net().state_dict()
    del state["1.num_batches_tracked"]
    assert net().load_state_dict(state).missing_keys == []


def test_extra_state():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = 0

        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
    a[0].seen = 5
    state = a.state_dict()
    assert state == {"0._extra_state": {"seen": 5}}
    b.load_state_dict(state)
    assert b[0].seen == 5
    with pytest.raises(StateError, match=r'Missing key\(s\) in state_dict: "0._extra_state"'):
        b.load_state_dict({})


def test_hooks_of_saving_and_loading():
    m, seen = nn.Sequential(nn.Linear(1, 1, bias=False)), []

    def rename(module, state, prefix, *rest):
        state[prefix + "weight"] = state.pop(prefix + "old")

    m[0].register_load_state_dict_pre_hook(rename)
    m.register_load_state_dict_post_hook(lambda module, keys: seen.append(keys))
    m.load_state_dict({"0.old": lamina.ones(1, 1)})
    assert m[0].weight.tolist() == [[1.0]] and seen == [([], [])]
    m.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append((prefix, keep)))
    handle = m.register_state_dict_post_hook(lambda module, state, prefix, data: state.update(note=1))
    assert list(m.state_dict()) == ["0.weight", "note"] and seen[-1] == ("", False)
    handle.remove()
    assert list(m.state_dict()) == ["0.weight"]
