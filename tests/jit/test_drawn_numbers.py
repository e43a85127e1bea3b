"""Numbers of Python's and NumPy's generators in traced functions: drawn anew at each call, in their order."""

import random
import threading

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim

held = None
own, numpys, older = random.Random(3), np.random.default_rng(0), np.random.RandomState(2)


def seeded(seed=1):
    random.seed(seed)
    np.random.seed(seed)
    own.seed(seed)
    older.seed(seed)
    numpys.bit_generator.state = np.random.default_rng(seed).bit_generator.state


def states():
    return [
        random.getstate(), own.getstate(), str(np.random.get_state(legacy=False)),
        str(older.get_state(legacy=False)), numpys.bit_generator.state,
    ]  # fmt: skip


def mixed(x):
    share, order = np.random.beta(0.4, 0.4), x.argsort(0)
    return share * x + (1 - share) * x[order[:, 0]]


def flipped(x):
    if random.random() < 0.5:
        x = x.flip(1)
    if own.random() < 0.3:
        x = x * 2
    return x


def chosen(x):
    epsilon = 0.4
    if np.random.rand() < epsilon:
        return x + random.randrange(4)
    return x - 1


DRAWN = {
    "random": lambda x: x * random.random(), "uniform": lambda x: x * random.uniform(1, 2),
    "randint": lambda x: x + random.randint(0, 9), "gauss": lambda x: x * random.gauss(0, 1),
    "normal": lambda x: x * random.normalvariate(0, 1), "own": lambda x: x * own.random(),
    "rand": lambda x: x * np.random.rand(), "numpys": lambda x: x * numpys.beta(0.4, 0.4),
    "older": lambda x: x * older.uniform(1, 2), "numpys normal": lambda x: x * numpys.normal(1.0, 2.0),
    "float": lambda x: x * float(np.random.normal(0, 1)), "numpys int": lambda x: x * np.random.randint(5),
    "twice": lambda x: x * random.random() + random.random() + numpys.random(),
    "mixed": mixed, "flipped": flipped, "chosen": chosen,
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWN)
def test_draws_are_the_plain_runs(name):
    """The same numbers, and generators that stand where they stood."""
    function = DRAWN[name]
    traced, x = jit.trace(function), lamina.arange(12.0).reshape(4, 3)
    seeded()
    wanted = [function(x).tolist() for _ in range(30)]
    stood = states()
    seeded()
    found = [traced(x).tolist() for _ in range(30)]
    assert np.allclose(wanted, found, rtol=1e-6) and states() == stood
    assert traced.counts()["served"] >= 20, traced.explain()


def test_a_step_of_training_with_draws():
    def made():
        lamina.manual_seed(0)
        net = nn.Linear(3, 2)
        return net, optim.SGD(net.parameters(), lr=0.1)

    def step(net, optimizer, x, y):
        share = np.random.beta(0.4, 0.4)
        if random.random() < 0.5:
            x = x.flip(0)
        out = net(share * x)
        loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y.flip(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    traced, told = jit.trace(step), []
    for function in (step, traced):
        seeded()
        net, optimizer = made()
        x, y = lamina.arange(12.0).reshape(4, 3) / 12, lamina.tensor([0, 1, 1, 0])
        told.append([function(net, optimizer, x, y) for _ in range(20)])
    assert np.allclose(*told, rtol=1e-5)
    assert traced.counts()["served"] >= 14, traced.explain()


def test_what_has_a_history_comes_after_draws():
    weight = lamina.ones(3, requires_grad=True)

    def loss(x):
        return (weight * x * random.random()).sum()

    traced = jit.trace(loss)
    for seed in range(6):
        gradients = []
        for function in (loss, traced):
            seeded(seed)
            weight.grad = None
            function(lamina.arange(3.0)).backward()
            gradients.append(weight.grad.tolist())
        assert np.allclose(*gradients)
    assert traced.counts()["served"] >= 3, traced.explain()


@pytest.mark.parametrize("options", [{"verify": True}, {"compile": "background"}, {"max_recordings": 1}])
def test_calls_that_find_no_path_draw_once(options):
    """After other shapes, other answers, and while a path is still being compiled."""

    def function(x):
        y = x * random.random() + numpys.random()
        return y * 2 if (y.sum() > len(x)).item() else y

    traced, sizes = jit.trace(function, **options), [3, 3, 3, 4, 3, 5, 5, 5, 3, 4, 4] * 3
    seeded()
    wanted = [function(lamina.ones(size)).tolist() for size in sizes]
    stood = states()
    seeded()
    found = [traced(lamina.ones(size)).tolist() for size in sizes]
    assert all(np.allclose(a, b) for a, b in zip(wanted, found)) and states() == stood


def test_an_effect_that_raises_leaves_generators_as_they_are():
    class Kept(list):
        def append(self, item):
            if len(self) == 4:
                raise ValueError("full")
            super().append(item)

    def function(kept, x):
        kept.append(random.random())
        return x * 2

    told = []
    for call in (function, jit.trace(function)):
        seeded()
        kept = Kept()
        for _ in range(4):
            call(kept, lamina.ones(2))
        with pytest.raises(ValueError, match="full"):
            call(kept, lamina.ones(2))
        told.append((list(kept), states()))
    assert told[0] == told[1]


def test_another_generator_in_its_place_is_asked():
    traced = jit.trace(lambda x: x * held.random())
    for generator in (np.random.default_rng(1), np.random.default_rng(2), random.Random(5)):
        globals()["held"] = generator
        for _ in range(3):
            traced(lamina.ones(2))
    fresh = np.random.default_rng(1)
    globals()["held"] = np.random.default_rng(1)
    for _ in range(5):
        assert np.allclose(traced(lamina.ones(2)).tolist(), [fresh.random()] * 2)


def test_functions_that_the_user_replaced_are_asked(monkeypatch):
    traced, x = jit.trace(lambda x: x * random.random() * np.random.rand()), lamina.ones(1)
    for _ in range(3):
        traced(x)
    monkeypatch.setattr(random, "random", lambda: 2.0)
    monkeypatch.setattr(np.random, "rand", lambda: 3.0)
    for _ in range(3):
        assert traced(x).item() == 6.0


class Loaded(random.Random):
    def random(self):
        return 0.25


loaded = Loaded(1)
REFUSED = {
    "seeds": lambda x: random.seed(3) or x * random.random(),
    "states": lambda x: x * len(random.getstate()) * random.random(),
    "shuffles": lambda x: random.shuffle(items) or x * items[0],
    "arrays": lambda x: x * lamina.tensor(np.random.rand(3)),
    "made": lambda x: x * np.random.default_rng(3).random(),
    "loaded": lambda x: x * loaded.random() * loaded.uniform(1, 2),
    "many": lambda x: x * sum(random.random() < 0.5 for _ in range(12)),
    "choice": lambda x: x * random.choice([1.0, 2.0, 3.0]),
    "weighed": lambda x: x * random.choices([1.0, 2.0], [0.3, 0.7])[0],
}
items = [1.0, 2.0, 3.0]


@pytest.mark.parametrize("name", REFUSED)
def test_other_ways_to_draw_stay_right(name):
    function, told = REFUSED[name], []
    for call in (function, jit.trace(function)):
        seeded()
        items[:] = [1.0, 2.0, 3.0]
        told.append([call(lamina.ones(3)).tolist() for _ in range(12)])
        told[-1].append(str(states()))
    assert np.allclose(told[0][:-1], told[1][:-1]) and told[0][-1] == told[1][-1]


def test_threads_that_draw():
    """Each number is drawn once, by whoever it was."""
    traced, found = jit.trace(lambda x: x * random.random()), []

    def draw():
        for _ in range(50):
            found.append(traced(lamina.ones(1, dtype=lamina.float64)).item())

    traced(lamina.ones(1, dtype=lamina.float64)), traced(lamina.ones(1, dtype=lamina.float64))
    seeded()
    threads = [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seeded()
    assert sorted(found) == sorted(random.random() for _ in range(100))


def test_a_draw_that_is_never_the_same_leaves_what_is_called_compiled():
    """A value that must be known is no reason to record again and again."""
    layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(8)])

    def crop(x):
        n = int(np.sqrt(1 - np.random.beta(1.0, 1.0)) * 6)
        return layers(x).mean().detach() * n

    traced, told = jit.trace(crop), []
    for function in (crop, traced):
        seeded()
        told.append([function(lamina.ones(2, 8)).item() for _ in range(20)])
    assert np.allclose(*told)
    counts = traced.counts()
    assert counts["within"] >= 15, traced.explain()


def test_a_reader_is_told_what_changes():
    traced = jit.trace(lambda x: x * [1.0, 2.0, 3.0][random.randrange(3)])
    for _ in range(40):
        traced(lamina.ones(2))
    assert traced.counts()["served"] > 25
    assert "random.getrandbits() drew" in traced.explain(detail=True)
