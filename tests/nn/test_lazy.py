"""Modules and tensors whose shapes the first input decides."""

import copy
import pickle

import pytest

import lamina
import lamina.nn as nn
from lamina.nn.parameter import is_lazy


def model():
    return nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2))


def test_the_first_call_makes_ordinary_modules():
    m = model()
    assert list(m.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"] and is_lazy(m[0].weight)
    m(lamina.ones(3, 4)).sum().backward()
    assert [type(part) for part in m] == [nn.Linear, nn.ReLU, nn.Linear]
    assert type(m[0].weight) is nn.Parameter and m[0].weight.grad.shape == (5, 4)
    assert not m[0]._forward_pre_hooks and m[0].in_features == 4


def test_what_has_no_shape_refuses_to_compute():
    weight = nn.LazyLinear(2).weight
    for use in (
        lambda: weight + 1,
        lambda: weight.shape,
        lambda: weight.sum(),
        lambda: lamina.stack([weight]),
    ):
        with pytest.raises(ValueError, match="an uninitialized parameter .* has no shape yet"):
            use()
    assert weight.dtype is lamina.float32 and weight.requires_grad
    assert "UninitializedParameter" in repr(weight)


def test_lazy_modules_are_copied_pickled_converted_and_loaded():
    m = model().double()
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert is_lazy(other[0].weight) and other[0].weight is not m[0].weight
        assert other(lamina.ones(1, 3, dtype=lamina.float64)).dtype is lamina.float64
    loaded = model()
    made = model()
    made(lamina.ones(1, 3))
    loaded.load_state_dict(made.state_dict())
    x = lamina.ones(1, 3)
    assert lamina.equal(loaded(x), made(x))
    with pytest.raises(lamina.ir.errors.StateError, match="has no shape yet"):
        made.load_state_dict(model().state_dict())


def test_lazy_modules_are_traced_once_they_are_made():
    m = model()
    traced = lamina.jit.trace(m)
    for k in range(5):
        x = lamina.full((3, 4), float(k))
        assert lamina.allclose(traced(x), m[2](m[1](m[0](x))), atol=1e-6)  # a dozen roundings of about 1
    assert traced.counts()["served"] > 0


def test_buffers_as_values():
    m = nn.Module()
    m.a = nn.Buffer(lamina.ones(2))
    m.b = nn.Buffer(lamina.ones(2), persistent=False)
    assert list(m.state_dict()) == ["a"] and [*dict(m.named_buffers())] == ["a", "b"]
    assert isinstance(m.a, nn.Buffer) and not isinstance(m.a, nn.Parameter)
    m.a = lamina.zeros(2)
    assert list(m.state_dict()) == ["a"]


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_norms_of_weights_without_a_shape_say_what_to_do(norm):
    with pytest.raises(
        ValueError, match="can't have uninitialized parameters.(.|\n)*run a forward pass first"
    ):
        norm(nn.LazyLinear(7))
