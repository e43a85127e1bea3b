"""A language model's program on disk: a later process does not record it, and it serves while it is true."""

import copy
import json
import pickle
import threading

import numpy as np
import pytest
from small_decoders import language_model

import lamina
from lamina import nn
from lamina.ir.errors import LaminaError
from lamina.jit import backend
from lamina.jit.kept_program import KeptProgram
from lamina.passes import cache as disk

TOKENS = [*np.random.default_rng(1).integers(0, 90, 300).tolist()]
ENDS = [0, 40, 41, 42, 300]
FORMS = [("float32", None), ("bfloat16", None), ("float32", "int8"), ("bfloat16", "int4")]


@pytest.fixture
def later(tmp_path, monkeypatch):
    """Forgets what the process knows but for what is on disk."""

    def forget():
        backend.forget()
        monkeypatch.setattr(disk, "_default", disk.Cache(tmp_path))

    forget()
    return forget


def answers(model):
    """Logits behind a prompt, single tokens, and more than a cache has room for."""
    cache = model.cache()
    return [model._logits(TOKENS[start:end], start, cache) for start, end in zip(ENDS, ENDS[1:])]


def eagerly(model):
    with lamina.no_grad():
        return [model.network(lamina.tensor([TOKENS[:end]]))[0, -1].numpy() for end in ENDS[1:]]


def agree(model):
    for found, wanted in zip(answers(model), eagerly(model), strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-4 * np.abs(wanted).max(), rtol=0)


@pytest.mark.parametrize(("dtype", "weights"), FORMS)
def test_a_later_process_does_not_record(later, dtype, weights):
    first = language_model(dtype, weights)
    wanted = answers(first)
    assert first.traced.counts()["recorded"] == 1 and first._kept._program is not None
    later()
    again = language_model(dtype, weights)
    found = answers(again)
    assert again.traced.counts()["recorded"] == 0
    assert all(made is not None and "programs" not in made.__dict__ for made in backend._templates.values())
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("is_first", [True, False])
def test_weights_may_change(later, is_first):
    model = language_model("float32", None)
    answers(model)
    if not is_first:
        later()
        model = language_model("float32", None)
        answers(model)
    with lamina.no_grad():
        model.network.layers[0].mlp.up_proj.weight.mul_(2.0)
    agree(model)
    norm = model.network.norm
    norm.weight = nn.Parameter(lamina.rand(64) + 0.5, requires_grad=False)
    agree(model)
    model.network.load_state_dict({name: x + 0.01 for name, x in model.network.state_dict().items()})
    agree(model)
    assert model.traced.counts()["recorded"] == is_first


def add_hook(network):
    network.layers[1].register_forward_hook(lambda module, given, made: made * 2)


def replace_layer(network):
    network.layers[0].mlp = nn.Sequential(nn.Linear(64, 64), nn.Tanh())


def replace_forward(network):
    network.layers[0].mlp.forward = lambda x: x * 0.5


def own_class(network):
    class Own(type(network.norm)):
        def forward(self, x):
            return super().forward(x) + 1.0

    network.norm.__class__ = Own


def other_number(network):
    network.norm.eps = 0.25


@pytest.mark.parametrize("change", [add_hook, replace_layer, replace_forward, own_class, other_number])
@pytest.mark.parametrize("is_known", [True, False])
def test_another_network_is_recorded(later, change, is_known):
    """Whether it was changed before the first token or after it."""
    answers(language_model("float32", None))
    later()
    model = language_model("float32", None)
    if is_known:
        answers(model)
        assert model.traced.counts()["recorded"] == 0
    with lamina.no_grad():
        change(model.network)
    agree(model)
    assert model.traced.counts()["recorded"] >= 1


def test_another_configuration_is_another_program(later):
    answers(language_model("float32", None))
    later()
    for name, value in [("rope_theta", 2e4), ("rms_norm_eps", 1e-2), ("hidden_act", "gelu")]:
        model = language_model("float32", None, **{name: value})
        agree(model)
        assert model.traced.counts()["recorded"] == 1


def test_somebody_who_keeps_a_modules_dictionary_costs_no_packing(later):
    model = language_model("float32", "int8")
    answers(model)
    running = model._kept._now[1]
    kept = vars(model.network.norm)
    agree(model)
    assert model._kept._now[1] is running
    kept["eps"] = 0.25
    agree(model)
    assert model._kept._now[1] is None


def test_not_under_autocast(later):
    model = language_model("float32", None)
    plain = answers(model)
    with lamina.autocast("cpu", dtype=lamina.bfloat16):
        rounded = answers(model)
    assert any((one != other).any() for one, other in zip(plain, rounded))
    agree(model)


@pytest.mark.parametrize("dtype", [None, lamina.float64])
def test_what_modes_change_is_not_kept(later, dtype):
    """Not even where the first call of all is under one."""
    model = language_model("float32", None)
    if dtype is None:
        with lamina.autocast("cpu", dtype=lamina.bfloat16):
            answers(model)
    else:
        lamina.set_default_dtype(dtype)
        try:
            answers(model)
        finally:
            lamina.set_default_dtype(lamina.float32)
    agree(model)
    later()
    agree(language_model("float32", None))


def test_methods_of_our_classes_may_be_replaced(later, monkeypatch):
    answers(language_model("float32", None))
    later()
    model, forward = language_model("float32", None), nn.RMSNorm.forward
    monkeypatch.setattr(nn.RMSNorm, "forward", lambda self, x: forward(self, x) * 2)
    agree(model)
    monkeypatch.undo()


def test_under_inference_mode(later):
    model = language_model("float32", "int8")
    with lamina.inference_mode():
        first = answers(model)
    for one, other in zip(first, answers(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_told_of_a_network_is_not_told_at_each_token(later):
    model, told = language_model("float32", None), []
    describe = model._kept._described
    model._kept._described = lambda: told.append(1) or describe()
    for _ in range(3):
        answers(model)
    assert len(told) <= 3


def test_writes_to_a_cache_are_counted(later):
    model = language_model("float32", None)
    cache = model.cache()
    keys, values = cache.kept[0]
    for count in (1, 2, 3):
        before = keys._version, values._version
        model._logits([5], count, cache)
        if count > 1:  # the first of all is recorded
            assert (keys._version, values._version) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_have_a_program_of_their_own(later, copied):
    model = language_model("float32", "int8")
    wanted = answers(model)
    other = copied(model)
    for one, found in zip(wanted, answers(other), strict=True):
        np.testing.assert_array_equal(one, found)
    with lamina.no_grad():
        other.network.norm.weight.mul_(2.0)
    agree(other)
    for one, found in zip(wanted, answers(model), strict=True):
        np.testing.assert_array_equal(one, found)


def test_threads(later):
    model = language_model("float32", "int8")
    wanted, found = answers(model), {}
    threads = [threading.Thread(target=lambda n=n: found.setdefault(n, answers(model))) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(found) == [0, 1, 2, 3]
    for each in found.values():
        for one, other in zip(wanted, each, strict=True):
            np.testing.assert_array_equal(one, other)


def test_damaged_entries(later):
    """What can't be read is refused as ValueError and its like, and recorded again."""
    model = language_model("float32", None)
    wanted = answers(model)
    key, data = model._kept._key, model._kept._program.pack()
    assert KeptProgram.unpack(data).pack() == data
    draw = np.random.default_rng(2)
    refused = 0
    for _ in range(300):
        made = bytearray(data)
        for at in draw.integers(0, len(data), draw.integers(1, 4)):
            made[at] = draw.integers(0, 256)
        try:
            KeptProgram.unpack(bytes(made))
        except (ValueError, TypeError, KeyError, LaminaError):
            refused += 1
    assert refused > 150
    for other in (data[:-100], b"", json.dumps([1, 2]).encode()):
        later()
        disk.default().put(key, other)
        again = language_model("float32", None)
        for one, found in zip(wanted, answers(again), strict=True):
            np.testing.assert_array_equal(one, found)
        assert again.traced.counts()["recorded"] == 1


def written_in_place(weight):
    with lamina.no_grad():
        weight.mul_(1.5)


def written_as_data(weight):
    weight.data.add_(0.25)


def given_other_memory(weight):
    weight.data = weight.data * 1.5


def written_by_numpy(weight):
    weight.numpy()[:] *= 1.5


def written_by_an_optimizer(weight):
    weight.requires_grad_(True)
    weight.grad = lamina.ones_like(weight)
    lamina.optim.SGD([weight], lr=0.25).step()
    weight.grad = None
    weight.requires_grad_(False)


CHANGES = [written_in_place, written_as_data, given_other_memory, written_by_numpy, written_by_an_optimizer]


def steps(model, cache, count):
    """Single tokens, between which nothing happens to any tensor."""
    return [model._logits(TOKENS[at : at + 1], at, cache) for at in range(40, 40 + count)]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_weights_that_change_between_tokens(later, change):
    """What is kept of weights is not looked at anew as long as nothing happens to any tensor."""
    model = language_model("float32", None)
    cache = model.cache()
    model._logits(TOKENS[:40], 0, cache)
    steps(model, cache, 3)
    weight = model.network.layers[1].mlp.down_proj.weight
    assert model._kept._now[1]._steady  # or this tests nothing
    change(weight)
    model._logits(TOKENS[:40], 0, cache)
    found = steps(model, cache, 3)
    with lamina.no_grad():
        wanted = [model.network(lamina.tensor([TOKENS[: at + 1]]))[0, -1].numpy() for at in (40, 41, 42)]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4 * np.abs(other).max(), rtol=0)


def test_arrays_that_somebody_holds_are_looked_at_each_time(later):
    """NumPy's writes are seen by nobody: memory that is out is never trusted."""
    model = language_model("float32", None)
    weight = model.network.layers[1].mlp.down_proj.weight
    seen = weight.numpy()
    cache = model.cache()
    model._logits(TOKENS[:40], 0, cache)
    before = steps(model, cache, 2)
    assert not model._kept._now[1]._steady
    seen *= 1.5
    assert np.abs(steps(model, cache, 2)[1] - before[1]).max() > 1e-3


def test_a_write_that_nobody_counts_is_seen(later):
    """The planted fault: one that draws no number."""

    def uncounted(weight):
        weight._data *= np.float32(1.5)
        weight._storage.version += 1

    with pytest.raises(AssertionError):
        test_weights_that_change_between_tokens(later, uncounted)
