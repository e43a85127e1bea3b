"""States of modules and optimizers by the names of parameters."""

import copy

import checkpoint_ranks as ranks
import pytest

import lamina
import lamina.distributed.checkpoint as dcp
from lamina import nn, optim
from lamina.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from lamina.ir.errors import ArgumentError, ArgumentValueError, StateError


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def step(model, optimizer, count=1):
    for i in range(count):
        optimizer.zero_grad()
        model(lamina.arange(15.0).reshape(5, 3).sin() + i).square().sum().backward()
        optimizer.step()


MAKERS = {
    "adam": lambda p: optim.Adam(p, lr=0.1), "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9), "rprop": lambda p: optim.Rprop(p),
    "adafactor": lambda p: optim.Adafactor(p),
    "rmsprop": lambda p: optim.RMSprop(p, centered=True, momentum=0.5),
}  # fmt: skip


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
def test_a_fresh_model_goes_on_where_the_other_was(kind, flat, tmp_path):
    """As a script does it: states of a fresh model to load into, then set."""
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    model, other = network(), network()
    optimizer, other_optimizer = MAKERS[kind](model.parameters()), MAKERS[kind](other.parameters())
    step(model, optimizer, 3)
    state, optimizer_state = get_state_dict(model, optimizer, options=options)
    dcp.save({"model": state, "optim": optimizer_state}, checkpoint_id=tmp_path / "a")
    other_state, other_optimizer_state = get_state_dict(other, other_optimizer, options=options)
    into = {"model": other_state, "optim": other_optimizer_state}
    dcp.load(into, checkpoint_id=tmp_path / "a")
    set_state_dict(
        other,
        other_optimizer,
        model_state_dict=into["model"],
        optim_state_dict=into["optim"],
        options=options,
    )
    step(model, optimizer, 2)
    step(other, other_optimizer, 2)
    assert ranks.same(dict(model.state_dict()), dict(other.state_dict()))
    assert ranks.same(optimizer.state_dict(), other_optimizer.state_dict())


def test_asking_changes_nothing():
    """A fresh optimizer's state is that of a copy: training goes on as if nobody had asked."""
    model = network()
    same = copy.deepcopy(model)
    optimizer, other = optim.Adam(model.parameters()), optim.Adam(same.parameters())
    called = []
    optimizer.register_step_pre_hook(lambda *args: called.append(1))
    state = get_optimizer_state_dict(model, optimizer)
    assert not optimizer.state and all(p.grad is None for p in model.parameters()) and not called
    assert list(state["state"]["0.weight"]) == ["step", "exp_avg", "exp_avg_sq"]
    assert ranks.same(dict(model.state_dict()), dict(same.state_dict()))
    step(model, optimizer, 2)
    step(same, other, 2)
    assert ranks.same(optimizer.state_dict(), other.state_dict()) and called


def test_names_and_not_orders_tell(tmp_path):
    """Groups in another order, and split otherwise: each parameter gets its own."""
    model, other = network(), network()
    optimizer = optim.Adam(
        [{"params": list(model[0].parameters()), "lr": 0.5}, {"params": list(model[2].parameters())}], lr=0.25
    )
    for p in model[1].parameters():
        p.requires_grad_(False)
        other[1].weight.requires_grad_(False)
    step(model, optimizer, 2)
    saved = get_optimizer_state_dict(model, optimizer)
    assert [group["params"] for group in saved["param_groups"]] == [
        ["0.weight", "0.bias"],
        ["2.weight", "2.bias"],
    ]
    swapped = optim.Adam([{"params": [other[2].bias, other[2].weight]}, {"params": [other[0].bias]}])
    set_optimizer_state_dict(other, swapped, saved)
    assert [group["lr"] for group in swapped.param_groups] == [0.25, 0.5]
    for theirs, mine in ((other[2].bias, model[2].bias), (other[0].bias, model[0].bias)):
        assert ranks.same(dict(swapped.state[theirs]), dict(optimizer.state[mine]))


def test_several_optimizers():
    model = network()
    first, second = optim.Adam(model[0].parameters()), optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)
    step(model, first)
    step(model, second)
    state = get_optimizer_state_dict(model, [first, second])
    assert (
        list(state["state"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
        and len(state["param_groups"]) == 2
    )
    before = copy.deepcopy(first.state_dict()), copy.deepcopy(second.state_dict())
    step(model, first)
    step(model, second)
    set_optimizer_state_dict(model, (first, second), state)
    assert not ranks.same(before, (1, 1))
    # Their tensors went on with the steps; settings and names are what was saved.
    assert [o.state_dict()["param_groups"] for o in (first, second)] == [b["param_groups"] for b in before]


def test_wrappers_leave_names_as_they_are():
    class DistributedDataParallel(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

    model = network()
    wrapped = nn.Sequential(DistributedDataParallel(model[0]), lamina.compile(model[2]))
    assert list(wrapped.state_dict())[0] == "0.module.weight"
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert list(get_model_state_dict(wrapped)) == names
    optimizer = optim.SGD(wrapped.parameters(), lr=0.1)
    assert get_optimizer_state_dict(wrapped, optimizer)["param_groups"][0]["params"] == names
    ones = {name: lamina.ones_like(value) for name, value in get_model_state_dict(wrapped).items()}
    assert set_model_state_dict(wrapped, ones) == ([], [])
    assert all((p == 1).all() for p in model[0].parameters())
    lacking = {name: value for name, value in ones.items() if name != "0.bias"}
    found = set_model_state_dict(
        wrapped, lacking | {"x": lamina.ones(1)}, options=StateDictOptions(strict=False)
    )
    assert found.missing_keys == ["0.bias"] and found.unexpected_keys == ["x"]
    holder = nn.Module()
    holder.module = nn.Linear(2, 2)  # a name that is no wrapper's
    assert list(get_model_state_dict(holder)) == ["module.weight", "module.bias"]


def test_options():
    model = network()
    model[0].weight.requires_grad_(False)
    frozen = get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=True))
    assert "0.weight" not in frozen and "1.running_mean" in frozen
    with pytest.warns(FutureWarning, match="submodules= is deprecated"):
        part = get_model_state_dict(model, submodules={model[2]})
    assert list(part) == ["2.weight", "2.bias"]
    with pytest.warns(FutureWarning):
        part = get_model_state_dict(
            model, submodules={model[2]}, options=StateDictOptions(keep_submodule_prefixes=False)
        )
    assert list(part) == ["weight", "bias"]

    class Spread:
        def full_tensor(self):
            return lamina.ones(3)

    class Holder(nn.Module):
        def state_dict(self, *args, **kwargs):
            return {"x": Spread()}

    whole = get_model_state_dict(Holder(), options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert whole["x"].tolist() == [1.0] * 3
    with pytest.raises(ArgumentValueError, match="needs full_state_dict=True"):
        get_model_state_dict(model, options=StateDictOptions(broadcast_from_rank0=True))


def test_what_does_not_fit_is_named():
    model = network()
    optimizer = optim.Adam(model.parameters())
    step(model, optimizer)
    state = get_optimizer_state_dict(model, optimizer)
    del state["state"]["2.bias"]
    with pytest.raises(StateError, match="the saved state has nothing of 2.bias"):
        set_optimizer_state_dict(model, optimizer, state)
    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(strict=False))
    assert not optimizer.state[model[2].bias]
    state["param_groups"][0]["params"].remove("0.bias")
    with pytest.raises(StateError, match="0.bias is in none of the saved groups"):
        set_optimizer_state_dict(model, optimizer, state)
    with pytest.raises(StateError, match="what is no parameter of the model"):
        get_optimizer_state_dict(model[0], optimizer)
    with pytest.raises(ArgumentError, match="an Optimizer, or several, not int"):
        get_optimizer_state_dict(model, 3)
    flat = get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True)
    )
    flat["param_groups.0.bias.lr"] = 7.0
    with pytest.raises(StateError, match="lr of 0.bias was saved as 7.0, of 0.weight as 0.001"):
        set_optimizer_state_dict(model, optimizer, flat)
