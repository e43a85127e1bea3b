"""Keys of the states that torch.distributed.checkpoint gives, and what load and save do to a state dict."""

import pytest

torch = pytest.importorskip("torch", reason="compares with PyTorch")
import torch.distributed.checkpoint as theirs  # noqa: E402
import torch.distributed.checkpoint.state_dict as their_states  # noqa: E402

import lamina  # noqa: E402
import lamina.distributed.checkpoint as ours  # noqa: E402
import lamina.distributed.checkpoint.state_dict as our_states  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed is disabled:UserWarning", "ignore:.*weights_only:FutureWarning"
)
BOTH = ((torch, theirs, their_states), (lamina, ours, our_states))
OPTIMIZERS = {
    "adam": lambda m, p: m.optim.Adam(p), "sgd": lambda m, p: m.optim.SGD(p, lr=0.1),
    "momentum": lambda m, p: m.optim.SGD(p, lr=0.1, momentum=0.9), "adamw": lambda m, p: m.optim.AdamW(p),
    "rprop": lambda m, p: m.optim.Rprop(p), "rmsprop": lambda m, p: m.optim.RMSprop(p, centered=True),
}  # fmt: skip


def network(m):
    model = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.BatchNorm1d(4), m.nn.Linear(4, 4))
    model.tied = model[2]  # its parameters have two names
    return model


def shown(state):
    """Keys, and of values what they are."""
    if isinstance(state, dict):
        return {key: shown(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(map(shown, state))
    return list(state.shape) if hasattr(state, "shape") else state


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("stepped", [False, True], ids=["fresh", "stepped"])
@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
def test_keys_of_states(kind, stepped, flat):
    found = []
    for m, _, states in BOTH:
        model = network(m)
        optimizer = OPTIMIZERS[kind](m, model.parameters())
        if stepped:
            model(m.ones(5, 3)).sum().backward()
            optimizer.step()
        options = states.StateDictOptions(flatten_optimizer_state_dict=flat)
        found.append([shown(dict(part)) for part in states.get_state_dict(model, optimizer, options=options)])
    (model, optimizer), (our_model, our_optimizer) = found
    assert list(our_model) == list(model) and our_model == model
    if flat:  # groups of the two have their settings in orders of their own
        assert [k for k in our_optimizer if k[:6] == "state."] == [k for k in optimizer if k[:6] == "state."]
    assert our_optimizer == optimizer


@pytest.mark.parametrize("options", [{"ignore_frozen_params": True}, {"cpu_offload": True}])
def test_keys_with_options(options):
    found = []
    for m, _, states in BOTH:
        model = network(m)
        model[0].weight.requires_grad_(False)
        found.append(
            shown(dict(states.get_model_state_dict(model, options=states.StateDictOptions(**options))))
        )
    assert found[0] == found[1]


def test_names_in_a_checkpoint_and_what_is_put_back(tmp_path):
    found = []
    for m, dcp, _ in BOTH:
        state = {
            "model": {"w": m.arange(4.0), "deep": {"3": [m.ones(2), 7]}},
            "groups": [{"lr": 0.5, "betas": (1, 2)}], "step": 3, "tied": [1, 2],
        }  # fmt: skip
        folder = tmp_path / m.__name__
        dcp.save(state, checkpoint_id=folder)
        into = {
            "model": {"w": m.zeros(4), "deep": {"3": [m.zeros(2), 0]}},
            "groups": [{"lr": 0.1}], "step": 0, "tied": [],
        }  # fmt: skip
        w = into["model"]["w"]
        dcp.load(into, checkpoint_id=folder)
        assert into["model"]["w"] is w
        names = list(dcp.FileSystemReader(folder).read_metadata().state_dict_metadata)
        found.append((sorted(names), shown(into), w.tolist()))
    assert found[0] == found[1]


def test_what_is_missing_is_refused_alike(tmp_path):
    for m, dcp, _ in BOTH:
        folder = tmp_path / m.__name__
        dcp.save({"a": m.ones(2)}, checkpoint_id=folder)
        with pytest.raises((RuntimeError, BaseException)) as caught:
            dcp.load({"a": m.zeros(2), "b": m.zeros(2)}, checkpoint_id=folder)
        assert not isinstance(caught.value, (KeyboardInterrupt, SystemExit)) and "b" in str(caught.value)
        partly = dcp.DefaultLoadPlanner(allow_partial_load=True)
        into = {"a": m.zeros(2), "b": m.zeros(2)}
        dcp.load(into, checkpoint_id=folder, planner=partly)
        assert into["a"].tolist() == [1.0, 1.0] and into["b"].tolist() == [0.0, 0.0]
