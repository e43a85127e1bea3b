"""Leaves: where gradients arrive, how they are added up, what stays when a tensor stops asking."""

import numpy as np
import pytest

import lamina
from lamina.ir.errors import GradError


def leaf(*values: float) -> lamina.Tensor:
    return lamina.tensor(list(values), requires_grad=True)


def test_a_0d_leaf_beside_a_larger_tensor_holds_an_array():
    x, y = lamina.tensor(2.0, requires_grad=True), leaf(1.0, 2.0)
    (x + y).sum().backward()
    assert type(x.grad._data) is np.ndarray and x.grad.shape == () and x.grad.item() == 2.0
    (x + y).sum().backward()
    assert x.grad.item() == 4.0 and x.grad.clone().add_(1.0).item() == 5.0


def test_gradients_are_added_in_place():
    x = leaf(1.0, 2.0)
    x.sum().backward()
    held, seen = x.grad, x.grad.detach()
    (x * 2.0).sum().backward()
    assert x.grad is held and seen.tolist() == [3.0, 3.0]


def test_a_gradient_in_memory_that_cannot_be_written_is_replaced():
    x = leaf(1.0, 2.0)
    x.grad = lamina.ones(1).expand(2)
    (x * 2.0).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_leaf_that_stops_asking_keeps_its_gradient_and_hooks():
    x, seen = leaf(1.0, 2.0), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    x.sum().backward()
    x.requires_grad_(False)
    assert not x.requires_grad and x.grad.tolist() == [1.0, 1.0]
    assert not (x * 2.0).requires_grad
    x.requires_grad_()
    x.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0] and seen == [[1.0, 1.0]] * 2


def test_history_from_before_reaches_a_leaf_that_asks_again():
    x = leaf(1.0, 2.0)
    y = (x * 3.0).sum()
    x.requires_grad_(False)
    x.requires_grad_(True)
    y.backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_no_gradient_arrives_while_a_leaf_does_not_ask():
    x = leaf(1.0, 2.0)
    y = (x * 3.0).sum()
    x.requires_grad_(False)
    y.backward()
    assert x.grad is None


def test_the_gradient_of_a_leaf_that_stopped_asking_can_be_dropped():
    x = leaf(1.0)
    x.sum().backward()
    x.detach_()
    assert x.is_leaf and x.grad.tolist() == [1.0]
    x.grad = None
    assert x.grad is None


def test_materialized_gradients_can_be_differentiated_under_create_graph():
    x, y = leaf(1.0), leaf(2.0)
    for create in (False, True):
        (g,) = lamina.autograd.grad(
            (x * x).sum(), [y], create_graph=create, allow_unused=True, materialize_grads=True
        )
        assert g.tolist() == [0.0] and g.requires_grad is create


def test_only_a_leaf_can_stop_asking():
    y = leaf(1.0) * 2.0
    with pytest.raises(GradError, match="only a leaf can stop requiring gradients"):
        y.requires_grad_(False)


def test_leaf_gradients_share_no_memory_in_any_way_they_come_about():
    """The last cotangent becomes the gradient itself only where nobody else holds it."""
    for make in (
        lambda a, b: (a + b).sum(), lambda a, b: (a - b).sum(), lambda a, b: (a.view(2) + b).sum(),
        lambda a, b: lamina.stack([a, b]).sum(), lambda a, b: lamina.where(lamina.tensor(True), a, b).sum(),
        lambda a, b: (a * b + a).sum(), lambda a, b: lamina.cat([a, b]).exp().sum(),
        lambda a, b: (a.clone() + b).sum(),
    ):  # fmt: skip
        a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
        values = a.tolist(), b.tolist()
        loss = make(a, b)
        loss.backward(retain_graph=True)
        first = a.grad.tolist(), b.grad.tolist()
        a.grad.mul_(7.0)
        assert b.grad.tolist() == first[1] and (a.tolist(), b.tolist()) == values
        loss.backward()
        assert b.grad.tolist() == [2.0 * g for g in first[1]]
        assert a.grad.tolist() == pytest.approx([8.0 * g for g in first[0]], rel=1e-6)


def test_a_hook_that_keeps_the_gradient_keeps_its_value():
    x, kept = leaf(1.0, 2.0), []
    x.register_hook(kept.append)
    for _ in range(3):
        (x * 2.0).sum().backward()
    assert [g.tolist() for g in kept] == [[2.0, 2.0]] * 3 and x.grad.tolist() == [6.0, 6.0]


@pytest.mark.filterwarnings("ignore:the .grad of a tensor that is no leaf")
def test_a_gradient_set_by_hand_stays_with_its_tensor():
    """One that asks for none holds it until it asks, one that is no leaf beside its history."""
    x = lamina.ones(3)
    x.grad = lamina.full((3,), 2.0)
    (x.requires_grad_() * 3).sum().backward()
    assert x.grad.tolist() == [5.0] * 3
    y = x * 2
    y.grad = lamina.ones(3)
    y.sum().backward()
    assert (y.grad.tolist(), x.grad.tolist()) == ([1.0] * 3, [7.0] * 3)
    y.grad = None
    assert y.grad is None
    given = [lamina.ones(2), lamina.ones(2) * x[0]]
    for each in given:
        each.grad = lamina.full((2,), 3.0)
    assert lamina.nn.utils.clip_grad_norm_(given, 1.0).item() == pytest.approx(6.0)
    assert given[1].grad.tolist() == pytest.approx([0.5, 0.5], rel=1e-5)
