"""What was computed of weights is used again just as long as they are the same."""

import gc
import threading
import weakref

import numpy as np
import pytest

import lamina
from lamina.jit.prologues import Prologue


def doubled(arrays):
    return [a * 2 for a in arrays]


@pytest.fixture
def weight():
    return lamina.nn.Parameter(lamina.randn(4))


def check(prologue, *tensors):
    """The results are those of now; returns how often the prologue has run."""
    for found, x in zip(prologue.results(tensors), tensors, strict=True):
        np.testing.assert_array_equal(found, x._data * 2)
    return prologue.runs


def test_results_are_kept(weight):
    prologue = Prologue(doubled)
    first = prologue.results([weight])
    assert prologue.results([weight])[0] is first[0] and prologue.runs == 1


def in_place(w):
    with lamina.no_grad():
        w.add_(1)


def by_an_optimizer(w):
    w.grad = lamina.ones(4)
    lamina.optim.Adam([w]).step()


def through_data(w):
    w.data.add_(1)


def through_data_of_data(w):
    w.data.data.fill_(7.0)


def by_index(w):
    w.data[1] = 5.0


def through_a_view(w):
    with lamina.no_grad():
        w.view(2, 2)[0].zero_()


def through_detach(w):
    w.detach().mul_(3)


def by_other_data(w):
    w.data = lamina.zeros(4)


def by_loading(w):
    module = lamina.nn.Module()
    module.w = w
    module.load_state_dict({"w": lamina.ones(4) * 9})


def by_copy(w):
    with lamina.no_grad():
        w.copy_(lamina.ones(4) * 3)


def by_initialising(w):
    lamina.nn.init.uniform_(w)


CHANGES = [
    in_place, by_an_optimizer, through_data, through_data_of_data, by_index, through_a_view, through_detach,
    by_other_data, by_loading, by_copy, by_initialising,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_every_way_to_write_is_seen(weight, change):
    prologue = Prologue(doubled)
    other = lamina.randn(3)
    assert check(prologue, other, weight) == 1
    change(weight)
    assert check(prologue, other, weight) == 2
    assert check(prologue, other, weight) == 2
    change(weight)
    assert check(prologue, other, weight) == 3


def test_a_tensor_that_became_a_parameter_shares_its_count():
    data = lamina.randn(4)
    weight = lamina.nn.Parameter(data)
    prologue = Prologue(doubled)
    check(prologue, weight)
    data.add_(1)
    assert check(prologue, weight) == 2


def test_data_given_to_another_tensor_shares_its_count():
    one, two = lamina.randn(4), lamina.randn(4)
    two.data = one.data
    for read, written in ((one, two), (two, one)):
        prologue = Prologue(doubled)
        check(prologue, read)
        written.add_(1)
        assert check(prologue, read) == 2


@pytest.mark.parametrize("expose", [
    lambda w: w.detach().numpy(), lambda w: w.data.numpy(), lambda w: np.from_dlpack(w.detach()),
    lambda w: np.asarray(w.data),
])  # fmt: skip
def test_exposed_memory_is_not_trusted(weight, expose):
    prologue = Prologue(doubled)
    check(prologue, weight)
    array = expose(weight)
    if array.flags.writeable:
        array += 1
    assert check(prologue, weight) == 2
    assert check(prologue, weight) == 3


def test_another_tensor_is_another_weight(weight):
    prologue = Prologue(doubled)
    check(prologue, weight)
    assert check(prologue, lamina.nn.Parameter(lamina.randn(4))) == 2


def test_results_go_with_the_prologue_and_weights_are_not_held(weight):
    prologue = Prologue(doubled)
    result = weakref.ref(prologue.results([weight])[0])
    array = weakref.ref(weight._data)
    weight.data = lamina.zeros(4)
    gc.collect()
    assert array() is None
    del prologue
    gc.collect()
    assert result() is None


def test_a_write_while_it_is_computed_is_found_by_the_next_call(weight):
    def slow(arrays):
        results = doubled(arrays)
        if not prologue.runs:
            in_place(weight)
        return results

    prologue = Prologue(slow)
    prologue.results([weight])
    assert check(prologue, weight) == 2


def test_threads_get_results_of_one_state(weight):
    prologue, wrong = Prologue(doubled), []

    def read():
        for _ in range(200):
            (found,) = prologue.results([weight])
            if len(set((found / 2).tolist())) != 1:
                wrong.append(found)

    with lamina.no_grad():
        weight.fill_(0.0)
    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(100):
        with lamina.no_grad():
            weight.fill_(float(n))
    for thread in threads:
        thread.join()
    assert not wrong
    check(prologue, weight)
