"""Check what all optimizers share: groups, steps, hooks, saving and loading, and what they refuse."""

import copy

import numpy as np
import pytest

import lamina
from lamina import nn, optim

RULES = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "dampening": 0.5},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1},
    "Adamax": {"lr": 0.1},
    "RMSprop": {"centered": True, "momentum": 0.5},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1},
    "Adadelta": {"lr": 0.5},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1, "betas": (0.5, 0.9)},
    "ASGD": {"lr": 0.1, "lambd": 0.1, "t0": 2},
    "Rprop": {},
    "Adafactor": {"lr": 0.5},
}


def parameter(*values):
    return nn.Parameter(lamina.tensor(values or [1.0, -2.0]))


def descend(optimizer, steps=1):
    """Steps down the sum of squares of all parameters."""
    for _ in range(steps):
        optimizer.zero_grad()
        loss = sum((p * p).sum() for group in optimizer.param_groups for p in group["params"])
        loss.backward()
        optimizer.step()


def values(optimizer):
    return [p.detach().numpy().copy() for group in optimizer.param_groups for p in group["params"]]


def same(xs, ys):
    return all(np.array_equal(x, y) for x, y in zip(xs, ys, strict=True))


# ---- one step
def test_sgd_takes_the_step_it_says():
    p = parameter(1.0, -2.0)
    descend(optim.SGD([p], lr=0.25))
    assert p.tolist() == [0.5, -1.0]


def test_momentum_starts_with_the_gradient_itself():
    p = parameter(1.0)
    optimizer = optim.SGD([p], lr=1.0, momentum=0.5, dampening=0.5)
    for step, place in ((1, 0.0), (2, -1.0), (3, -2.0)):  # buffers 1, 0.5 + 0.5, 0.5 + 0.5
        p.grad = lamina.ones(1)
        optimizer.step()
        assert p.tolist() == [place], step


def test_groups_have_their_own_settings():
    a, b = parameter(1.0), parameter(1.0)
    optimizer = optim.SGD([{"params": a}, {"params": [b], "lr": 0.5}], lr=0.25)
    descend(optimizer)
    assert (a.item(), b.item()) == (0.5, 0.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.5]


def test_named_parameters_keep_their_names():
    net = nn.Linear(2, 1)
    optimizer = optim.Adam(net.named_parameters())
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match="all parameters of a group come with names, or none"):
        optim.SGD([("a", parameter()), parameter()])


@pytest.mark.parametrize("name", RULES)
def test_a_parameter_without_a_gradient_stays(name):
    a, b, frozen = parameter(), parameter(), lamina.ones(2)
    optimizer = getattr(optim, name)([a, b, frozen], **RULES[name])
    a.grad = lamina.ones(2)
    optimizer.step()
    assert b.tolist() == [1.0, -2.0] and b not in optimizer.state and frozen.tolist() == [1, 1]
    assert a.tolist() != [1.0, -2.0]


@pytest.mark.parametrize("name", RULES)
def test_a_parameter_steps_alike_alone_and_among_others(name):
    def run(order):
        """Gradients of a in all steps, of b from the third on but not in the fifth; c joins at the fourth."""
        ps = {k: parameter() for k in "abc"}
        optimizer = getattr(optim, name)([ps[k] for k in order if k != "c"], **RULES[name])
        for step in range(6):
            if step == 3 and "c" in order:
                optimizer.add_param_group({"params": [ps["c"]]})
            for k in order:
                late = (k == "b" and step in (0, 1, 4)) or (k == "c" and step < 3)
                ps[k].grad = None if late else lamina.tensor([0.5 + step, 1.0])
            optimizer.step()
        return {k: ps[k].tolist() for k in order}

    together = run("abc")
    assert {**run("a"), **run("b")} == {k: together[k] for k in "ab"}
    assert together["c"] != [1.0, -2.0]


def test_parameters_of_one_count_share_a_step():
    a, b = parameter(), parameter()
    optimizer = optim.Adam([a, b])
    descend(optimizer, 3)
    assert optimizer.state[a]["step"] is optimizer.state[b]["step"]
    a.grad, b.grad = lamina.ones(2), None
    optimizer.step()
    assert (optimizer.state[a]["step"].item(), optimizer.state[b]["step"].item()) == (4, 3)


def test_a_rate_may_be_a_tensor():
    plain, with_tensor = parameter(), parameter()
    descend(optim.Adam([plain], lr=0.25), 3)
    rate = lamina.tensor(0.25)
    optimizer = optim.Adam([with_tensor], lr=rate)
    descend(optimizer, 3)
    assert plain.tolist() == with_tensor.tolist()
    optim.lr_scheduler.ConstantLR(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.125


def test_closure_recomputes_the_loss_with_gradients():
    p = parameter(3.0)
    optimizer = optim.SGD([p], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with lamina.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert p.item() == 1.5 and optimizer.step() is None


def test_zero_grad_drops_or_zeroes():
    p = parameter(1.0)
    optimizer = optim.SGD([p, parameter()])
    p.grad = held = lamina.ones(1)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is held and held.tolist() == [0.0]
    optimizer.zero_grad()
    assert p.grad is None and held.tolist() == [0.0]


def test_zero_grad_drops_what_a_parameter_frozen_since_has_left():
    p = parameter(1.0)
    optimizer = optim.SGD([p], lr=1.0)
    p.grad = lamina.ones(1)
    p.requires_grad_(False)
    optimizer.zero_grad()
    optimizer.step()
    assert p.grad is None and p.tolist() == [1.0]


def test_hooks_see_each_step_until_removed():
    p, seen = parameter(1.0), []
    optimizer = optim.SGD([p], lr=0.25)
    before = optimizer.register_step_pre_hook(
        lambda o, args, kwargs: seen.append(("before", o is optimizer, p.item()))
    )
    optimizer.register_step_post_hook(
        lambda o, args, kwargs: seen.append(("after", o is optimizer, p.item()))
    )
    descend(optimizer)
    assert seen == [("before", True, 1.0), ("after", True, 0.5)]
    before.remove()
    descend(optimizer)
    assert seen[2:] == [("after", True, 0.25)]


def test_hooks_of_every_optimizer_stand_around_its_own():
    from lamina.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    p, seen = parameter(1.0), []

    def note(what):
        return lambda o, args, kwargs: seen.append((what, type(o).__name__))

    handles = [register_optimizer_step_pre_hook(note("before any")), None]
    handles[1] = register_optimizer_step_post_hook(note("after any"))
    try:
        optimizer = optim.SGD([p], lr=0.25)
        optimizer.register_step_pre_hook(note("before"))
        optimizer.register_step_post_hook(note("after"))
        descend(optimizer)
        found = ["before any", "before", "after", "after any"]
        assert seen == [(what, "SGD") for what in found]
        optim.LBFGS([p]).step(lambda: p.detach().sum())
        assert seen[4:] == [("before any", "LBFGS"), ("after any", "LBFGS")]
    finally:
        for handle in handles:
            handle.remove()
    seen.clear()
    optim.SGD([p], lr=0.25).step()
    assert seen == []


def test_a_step_after_forward_is_noticed_by_backward():
    p = parameter(1.0)
    loss = (p * p).sum()
    p.grad = lamina.ones(1)
    optim.SGD([p], lr=0.1).step()
    with pytest.raises(lamina.InplaceError, match="changed in place"):
        loss.backward()


# ---- saving and loading
@pytest.mark.parametrize("name", RULES)
def test_a_run_continued_from_a_saved_state_is_the_uninterrupted_run(name):
    make = getattr(optim, name)

    def groups(like=None):
        ps = [parameter(), parameter(0.5)]
        for p, x in zip(ps, like or (), strict=False):
            p.data.copy_(lamina.tensor(x))
        return [{"params": ps[:1]}, {"params": ps[1:], "lr": 0.2}]

    whole = make(groups(), **RULES[name])
    descend(whole, 8)
    first = make(groups(), **RULES[name])
    descend(first, 3)
    second = make(groups(values(first)))  # the settings come with the state
    second.load_state_dict(first.state_dict())
    third = copy.deepcopy(first)
    descend(first, 5)  # what was loaded is a copy
    descend(second, 5)
    descend(third, 5)
    assert (
        same(values(whole), values(first))
        and same(values(whole), values(second))
        and same(values(whole), values(third))
    )


def test_state_dict_numbers_parameters_through_the_groups():
    a, b, c = parameter(), parameter(), parameter()
    optimizer = optim.Adam([{"params": [a, b]}, {"params": [c], "lr": 0.5}])
    c.grad = lamina.ones(2)
    optimizer.step()
    state = optimizer.state_dict()
    assert [group["params"] for group in state["param_groups"]] == [[0, 1], [2]]
    assert list(state["state"]) == [2] and list(state["state"][2]) == ["step", "exp_avg", "exp_avg_sq"]
    assert state["param_groups"][1]["lr"] == 0.5


def test_loaded_states_take_the_parameters_dtype():
    p = nn.Parameter(lamina.ones(2, dtype=lamina.float64))
    source = optim.Adam([parameter()])
    descend(source)
    optimizer = optim.Adam([p])
    optimizer.load_state_dict(source.state_dict())
    assert optimizer.state[p]["exp_avg"].dtype is lamina.float64
    assert optimizer.state[p]["step"].dtype is lamina.float32


def test_loading_what_does_not_fit_changes_nothing():
    optimizer = optim.Adam([parameter(), parameter()])
    descend(optimizer)
    before = copy.deepcopy(optimizer.state_dict())
    longer = optim.Adam([{"params": [parameter()]}, {"params": [parameter()]}], lr=0.7)
    with pytest.raises(ValueError) as error:
        optimizer.load_state_dict(longer.state_dict())
    assert str(error.value) == (
        "load_state_dict: the groups differ in their numbers of parameters\n"
        "  this optimizer: [2]\n  state_dict: [1, 1]"
    )
    other = optim.Adam([parameter(), parameter(1.0, 2.0, 3.0)], lr=0.7)
    descend(other)
    with pytest.raises(lamina.ShapeError) as error:
        optimizer.load_state_dict(other.state_dict())
    assert str(error.value) == (
        "load_state_dict: exp_avg of parameter 1 must have the parameter's shape\n"
        "  parameter: f32[2]\n  exp_avg: f32[3]"
    )
    stray = optimizer.state_dict()
    stray["state"][9] = stray["state"][0]
    with pytest.raises(ValueError, match="there is no parameter 9"):
        optimizer.load_state_dict(stray)
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert all(
        np.array_equal(after["state"][i][k].numpy(), x.numpy())
        for i in (0, 1)
        for k, x in before["state"][i].items()
    )


# ---- refusals
@pytest.mark.parametrize(
    ("make", "kind", "says"),
    [
        (lambda p: optim.SGD(p), TypeError, "not one tensor\n  pass \\[tensor\\]"),
        (lambda p: optim.SGD([]), ValueError, "an empty list of parameters"),
        (lambda p: optim.SGD([3.0]), TypeError, "updates tensors, not float"),
        (lambda p: optim.SGD([p * 2]), ValueError, "leaves only"),
        (lambda p: optim.SGD([p, p]), UserWarning, "holds a parameter twice"),
        (lambda p: optim.SGD([{"params": [p]}, {"params": [p]}]), ValueError, "in more than one"),
        (lambda p: optim.SGD([{"params": {p}}]), TypeError, "an order that stays; a set has none"),
        (lambda p: optim.SGD([{"lr": 0.1}]), ValueError, "must have the key 'params'"),
        (lambda p: optim.SGD([{"params": [p]}, p]), TypeError, "must be a dict, not Parameter"),
        (lambda p: optim.SGD([p], lr=-1.0), ValueError, "invalid learning rate: -1.0"),
        (lambda p: optim.SGD([p], momentum=-1.0), ValueError, "invalid momentum value: -1.0"),
        (lambda p: optim.SGD([p], nesterov=True), ValueError, "requires a momentum and zero dampening"),
        (lambda p: optim.Adam([p], betas=(0.9, 1.0)), ValueError, "invalid beta parameter at index 1: 1.0"),
        (lambda p: optim.Adam([p], eps=-1.0), ValueError, "invalid epsilon value: -1.0"),
        (lambda p: optim.AdamW([p], weight_decay=-1.0), ValueError, "invalid weight_decay value: -1.0"),
        (lambda p: optim.Adadelta([p], rho=1.5), ValueError, "invalid rho value: 1.5"),
        (lambda p: optim.Adagrad([p], lr_decay=-1.0), ValueError, "invalid lr_decay value: -1.0"),
        (lambda p: optim.RMSprop([p], alpha=-1.0), ValueError, "invalid alpha value: -1.0"),
        (lambda p: optim.Adam([p], fused=True, foreach=True), RuntimeError, "fused=True excludes"),
        (lambda p: optim.Adam([p], lr=lamina.ones(2)), ValueError, "lr must have one element"),
        (lambda p: optim.Adam([p], rate=1.0), TypeError, "unexpected keyword argument 'rate'"),
        (lambda p: optim.Muon([p]), ValueError, "Muon updates matrices only"),
        (lambda p: optim.LBFGS([{"params": p}, {"params": parameter()}]), ValueError, "one param"),
        (lambda p: optim.LBFGS([p]).step(None), TypeError, "the closure must be callable"),
    ],
)  # fmt: skip
def test_refusals(make, kind, says):
    with pytest.raises(kind, match=says):
        make(parameter())


def test_a_group_that_is_refused_is_not_added():
    optimizer = optim.SGD([parameter()])
    with pytest.raises(TypeError):
        optimizer.add_param_group({"params": [parameter(), 3]})
    assert len(optimizer.param_groups) == 1


def test_read_only_memory_is_refused_before_anything_is_written():
    a = parameter()
    b = nn.Parameter(lamina.tensor([1.0, 2.0]))
    b._data.flags.writeable = False
    optimizer = optim.SGD([a, b], lr=1.0)
    a.grad, b.grad = lamina.ones(2), lamina.ones(2)
    with pytest.raises(lamina.InplaceError, match="read-only"):
        optimizer.step()
    assert a.tolist() == [1.0, -2.0]


def test_sparse_adam_says_that_gradients_are_dense():
    p = parameter()
    optimizer = optim.SparseAdam([p])
    optimizer.step()
    p.grad = lamina.ones(2)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        optimizer.step()


# ---- what PyTorch has besides
def test_a_parameter_given_twice_steps_twice():
    p = parameter(1.0)
    with pytest.warns(UserWarning, match="twice"):
        optimizer = optim.SGD([p, p], lr=0.25)
    p.grad = lamina.ones(1)
    optimizer.step()
    assert p.item() == 0.5


@pytest.mark.parametrize("name", RULES)
def test_a_differentiable_step_is_the_same_step_and_has_gradients(name):
    def stepped(differentiable):
        p = lamina.tensor([1.0, -2.0], dtype=lamina.float64, requires_grad=True)
        moved = p.clone() if differentiable else p
        moved.retain_grad()
        more = {"differentiable": True} if differentiable else {}
        optimizer = getattr(optim, name)([moved], **RULES[name], **more)
        for _ in range(3):
            optimizer.zero_grad()
            (moved * moved * 2).sum().backward(create_graph=differentiable)
            optimizer.step()
        return p, moved

    if name == "Adafactor":  # which has no such switch
        return
    (_, plain), (p, moved) = stepped(False), stepped(True)
    assert np.allclose(
        plain.detach().numpy(), moved.detach().numpy(), rtol=1e-12
    )  # 3 steps of some 30 roundings
    p.grad = None
    moved.sum().backward()
    assert moved.grad_fn is not None and (p.grad != 0).all()


def test_hooks_of_states_may_replace_them():
    optimizer, seen = optim.SGD([parameter()], lr=0.1), []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("before saving"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    last = optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append(state["more"]))
    optimizer.register_load_state_dict_pre_hook(
        lambda o, state: {**state, "more": state["more"] + 1}, prepend=True
    )
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == ["before saving", 2, "loaded"]
    last.remove()
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen[3:] == ["before saving", "loaded"]


def test_a_hook_before_a_step_may_replace_the_closure():
    p = parameter(1.0)
    optimizer = optim.SGD([p])
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: 7.0), {}))
    assert optimizer.step() == 7.0
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match=r"must return None or \(args, kwargs\)"):
        optimizer.step()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_finds_the_valley_of_rosenbrocks_function(search):
    p = parameter(-1.5, 2.0)
    optimizer = optim.LBFGS(
        [p], line_search_fn=search, lr=1.0 if search else 1e-3, max_iter=50 if search else 120
    )

    def closure():
        optimizer.zero_grad()
        loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert first.item() == pytest.approx(12.5)
    for _ in range(3):
        optimizer.step(closure)
    assert closure().item() < (1e-8 if search else 9)


def test_a_state_that_can_not_be_copied_changes_nothing():
    """What is refused in its groups is refused before the state of a parameter is taken over."""
    optimizer = optim.Adam([lamina.ones(3, requires_grad=True)])
    before = str(optimizer.state_dict())
    state = optimizer.state_dict()
    state["state"] = {0: {"step": lamina.tensor(3.0)}}
    state["param_groups"][0]["note"] = lamina.ones(2, requires_grad=True) * 2  # is no leaf
    with pytest.raises(lamina.LaminaError, match="only leaves"):
        optimizer.load_state_dict(state)
    assert str(optimizer.state_dict()) == before


@pytest.mark.parametrize("base", [optim.Optimizer, optim.Adam])
def test_states_of_ones_own_optimizer_have_the_shapes_that_it_gave_them(base):
    class Factored(base):
        def __init__(self, params):
            super().__init__(params, **({"defaults": {}} if base is optim.Optimizer else {}))

        def step(self):
            for p in self.param_groups[0]["params"]:
                self.state[p] = {"rows": p.detach().sum(1), "exp_avg": p.detach().reshape(-1)}
            self.state["all"] = {"calls": 1}

    weight = lamina.nn.Parameter(lamina.arange(6.0).reshape(2, 3))
    first, second = Factored([weight]), Factored([weight])
    first.step()
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.state[weight]["rows"].tolist() == [3, 12]
    assert second.state[weight]["exp_avg"].shape == (6,)
    assert second.state["all"] == {"calls": 1}
