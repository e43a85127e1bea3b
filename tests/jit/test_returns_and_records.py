"""What loops keep besides tensors: lists of returns, literals of tuples, copies of the best state."""

import copy

import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn


def served(function, *calls, at_least):
    """Calls with each of some arguments give what plain ones give, and so many of them are compiled."""
    traced = jit.trace(function)
    for args in calls:
        wanted, found = function(*args), traced(*args)
        assert wanted.allclose(found), (wanted, found)
    assert traced.counts()["served"] >= at_least, traced.explain()


def over_a_list_of_pairs(x):
    for factor, more in [(1, 2), (3, 4)]:
        x = x * factor + more
    return x


def over_a_tuple_of_tuples(x):
    for pair in ((1, (2, 3)), (3, (4, 5))):
        x = x * pair[0] + pair[1][1]
    return x


def in_a_set_of_pairs(x):
    return x * sum((n, n + 1) in {(1, 2), (3, 4)} for n in range(4))


@pytest.mark.parametrize("function", [over_a_list_of_pairs, over_a_tuple_of_tuples, in_a_set_of_pairs])
def test_literals_of_tuples_are_gone_through(function):
    served(function, *[(lamina.ones(3) * n,) for n in range(6)], at_least=4)


def inserted_at_the_front(rewards):
    total, returns = 0.0, []
    for reward in rewards[::-1]:
        total = reward + 0.9 * total
        returns.insert(0, total)
    return lamina.tensor(returns) * 2


def inserted_in_the_middle(rewards):
    returns = [rewards[0], 1.0, rewards[1]]
    returns.insert(1, rewards[2])
    returns.insert(-1, 7.0)
    returns.reverse()
    return lamina.tensor(returns)


def reversed_in_place(rewards):
    total, returns = 0.0, []
    for reward in rewards[::-1]:
        total = reward + 0.9 * total
        returns.append(total)
    returns.reverse()
    return lamina.tensor(returns) - rewards[0]


def made_a_tensor(rewards):
    return lamina.tensor(rewards) * 2


@pytest.mark.parametrize(
    "function", [inserted_at_the_front, inserted_in_the_middle, reversed_in_place, made_a_tensor]
)
def test_returns_are_computed_from_rewards_that_change(function):
    served(function, *[([1.0 * n, 2.0, 3.0 + n],) for n in range(8)], at_least=5)


def test_tensors_of_one_number_are_made_a_tensor():
    def loss(values, returns):
        return sum(F.smooth_l1_loss(v, lamina.tensor([r])) for v, r in zip(values, returns, strict=True))

    calls = [
        ([lamina.ones(1) * n, lamina.ones(1)], [lamina.tensor(1.0 * n), lamina.tensor(2.0)]) for n in range(6)
    ]
    served(loss, *calls, at_least=4)


def test_the_best_state_is_copied():
    def training(traced):
        lamina.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        optimizer, best = lamina.optim.SGD(model.parameters(), 0.1), {}

        def step(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            best["state"] = copy.deepcopy(model.state_dict())
            return loss

        run = jit.trace(step) if traced else step
        states = []
        for n in range(8):
            lamina.manual_seed(n)
            run(lamina.randn(4, 2))
            states.append(best["state"])
        assert not traced or run.counts()["served"] >= 5, run.explain()
        return states

    for plain, traced in zip(training(False), training(True), strict=True):
        assert type(traced) is type(plain) and [*traced] == [*plain]
        assert traced._metadata == plain._metadata
        for name, value in plain.items():
            assert traced[name].dtype is value.dtype and traced[name].allclose(value, atol=1e-4), name
