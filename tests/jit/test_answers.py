"""Numbers that Python is told of tensors: what keeps changing is an input of what follows, not a question."""

import pytest

import lamina
from lamina import nn
from lamina.jit import trace


def training():
    lamina.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = lamina.optim.SGD(model.parameters(), lr=0.1)
    x, y = lamina.randn(8, 4), lamina.randn(8, 1)

    def loss_of():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return loss_of


def returned(loss_of, kept):
    return loss_of().item()


def in_a_tuple(loss_of, kept):
    loss = loss_of()
    return loss.item(), 2.0 * loss.item()


def in_a_dictionary(loss_of, kept):
    loss = loss_of()
    return {"loss": loss.item(), "one": 1}


def added_up(loss_of, kept):
    kept["sum"] = kept["sum"] + loss_of().item()
    return kept["sum"]


def compared(loss_of, kept):
    value = loss_of().item()
    if value < kept["best"]:
        kept["best"] = value
    return value


def returned_twice(loss_of, kept):
    first = loss_of().item()
    return first + loss_of().item()


PROGRAMS = (returned, in_a_tuple, in_a_dictionary, added_up, compared, returned_twice)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_answers_that_only_leave_are_served(program):
    ways = []
    for wrap in (lambda f: f, trace):
        kept, loss_of = {"list": [], "sum": 0.0, "best": 1e9}, training()
        step = wrap(program)
        found = [step(loss_of, kept) for _ in range(12)]
        assert all(type(x) in (float, tuple, dict, type(None)) for x in found)
        ways.append((found, kept))
    assert step.counts()["served"] >= 8, step.explain()
    (eager, one), (traced, two) = ways
    assert [*map(repr, flat(traced))] and flat(traced) == pytest.approx(flat(eager), rel=1e-5)
    assert flat([two]) == pytest.approx(flat([one]), rel=1e-5)
    assert {type(x) for x in flat([two, *traced])} <= {float, int}


def flat(values) -> list:
    found = []
    for x in values:
        if isinstance(x, dict):
            found += flat(x.values())
        elif isinstance(x, (tuple, list)):
            found += flat(x)
        elif x is not None:
            found.append(x)
    return found


def test_a_question_that_divides_the_run_is_still_asked():
    @trace
    def branches(x):
        if x.sum().item() > 0:
            return x * 2
        return x * 3

    for k in range(20):
        x = lamina.full((3,), float((-1) ** k * (k + 1)))
        assert (branches(x) == x * (2 if k % 2 == 0 else 3)).all()
    assert branches.counts()["served"] >= 14, branches.explain()


def test_an_answer_that_c_code_takes_stays_a_question():
    """As one that is appended to a list, which anything may read: after a few answers the step is eager."""
    losses, loss_of = [], training()

    @trace
    def step():
        losses.append(loss_of().item())

    for _ in range(20):
        step()
    plain = training()
    assert losses == pytest.approx([plain().item() for _ in range(20)], rel=1e-5)
    assert {type(x) for x in losses} == {float} and step.counts()["recorded"] <= 12, step.explain()


def test_an_answer_that_something_else_reads_is_held_to():
    @trace
    def rounded(x):
        return x * len(str(x.sum().item()))

    for k in range(14):
        x = lamina.full((3,), 0.25 * 10 ** (k % 5))
        assert (rounded(x) == x * len(str(x.sum().item()))).all()


def test_not_a_number_is_an_answer_too():
    @trace
    def first(x):
        return (x * 2).sum().item()

    for value in (1.0, 2.0, 3.0, float("nan"), float("inf"), -0.0, 4.0):
        found, wanted = first(lamina.full((2,), value)), (lamina.full((2,), value) * 2).sum().item()
        assert repr(found) == repr(wanted)
