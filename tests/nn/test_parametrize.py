"""Weights that are computed whenever they are read, and pruned ones."""

import copy
import pickle

import numpy as np
import pytest

import lamina
import lamina.nn as nn
from lamina.facade import future
from lamina.nn.utils import parametrizations, parametrize, prune
from lamina.nn.utils.stateless import functional_call


class Symmetric(nn.Module):
    calls = 0

    def forward(self, x):
        Symmetric.calls += 1
        return x.triu() + x.triu(1).mT


class Square(nn.Module):
    def forward(self, x):
        return x * x

    def right_inverse(self, x):
        return x.sqrt()


def parametrized():
    return parametrize.register_parametrization(nn.Linear(3, 3), "weight", Symmetric())


def test_a_parametrized_weight_is_computed_and_learnt():
    m = parametrized()
    assert lamina.equal(m.weight, m.weight.mT) and type(m).__name__ == "ParametrizedLinear"
    assert list(m.state_dict()) == ["bias", "parametrizations.weight.original"]
    m(lamina.ones(2, 3)).sum().backward()
    assert m.parametrizations.weight.original.grad.tril(-1).abs().sum() == 0
    with pytest.raises(lamina.ir.errors.ArgumentError, match="no right_inverse"):
        m.weight = lamina.ones(3, 3)


def test_two_parametrizations_and_their_removal():
    m = parametrized()
    before = m.weight
    parametrize.register_parametrization(m, "weight", Square(), unsafe=True)
    assert lamina.equal(m.weight, before**2)
    assert parametrize.type_before_parametrizations(m) is nn.Linear
    other = copy.deepcopy(m)
    parametrize.remove_parametrizations(m, "weight")
    assert type(m) is nn.Linear and isinstance(m.weight, nn.Parameter) and lamina.equal(m.weight, before**2)
    assert parametrize.is_parametrized(other, "weight") and not parametrize.is_parametrized(m)
    with pytest.raises(
        lamina.ir.errors.ArgumentValueError, match="does not have a parametrization on weight"
    ):
        parametrize.remove_parametrizations(m, "weight")
    with pytest.raises(RuntimeError, match="can't be pickled"):
        pickle.dumps(other)


def test_assignment_goes_through_the_inverse():
    m = nn.Module()
    m.register_buffer("scale", lamina.tensor([4.0]))
    parametrize.register_parametrization(m, "scale", Square())
    assert m.parametrizations.scale.original.tolist() == [2.0] and m.scale.tolist() == [4.0]
    m.scale = lamina.tensor([9.0])
    assert m.parametrizations.scale.original.tolist() == [3.0]


def test_shapes_and_dtypes_are_held():
    class Flat(nn.Module):
        def forward(self, x):
            return x.flatten()

    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", Flat())
    with pytest.raises(ValueError, match="does not have a parameter, buffer or parametrized tensor 'x'"):
        parametrize.register_parametrization(nn.Linear(2, 2), "x", Flat())


def test_cached_computes_once():
    m = parametrized()
    Symmetric.calls = 0
    with parametrize.cached():
        with parametrize.cached():
            assert m.weight is m.weight
        m(lamina.ones(1, 3))
    assert Symmetric.calls == 1
    assert m.weight is not m.weight


@pytest.mark.parametrize("make", [
    parametrized,
    lambda: parametrizations.weight_norm(nn.Linear(3, 3)),
    lambda: parametrizations.spectral_norm(nn.Linear(3, 3)),
    lambda: prune.l1_unstructured(nn.Linear(3, 3), "weight", 0.5),
])  # fmt: skip
def test_computed_weights_are_traced(make):
    lamina.manual_seed(0)
    plain = make()
    lamina.manual_seed(0)
    m = make()
    m.load_state_dict(plain.state_dict())
    traced = lamina.jit.trace(m)
    for k in range(4):
        x = lamina.full((2, 3), 0.1 * k)
        for run in (plain, traced):
            run(x).sum().backward()
        for p, q in zip(m.parameters(), plain.parameters(), strict=True):
            assert lamina.allclose(p.grad, q.grad, rtol=1e-5, atol=1e-6)  # some dozen roundings of about 1
    assert traced.counts()["served"] > 0


def test_pruning_says_what_is_wrong():
    m = nn.Linear(3, 2)
    for amount, kind in ((-1, ValueError), (1.5, ValueError), ("a", TypeError), (7, ValueError)):
        with pytest.raises(kind, match="prune.amount"):
            prune.l1_unstructured(m, "weight", amount)
    with pytest.raises(ValueError, match="weight is not pruned"):
        prune.remove(m, "weight")
    with pytest.raises(ValueError, match="structured pruning needs at least 2 dimensions"):
        prune.random_structured(m, "bias", 1, 0)
    with pytest.raises(TypeError, match="not unstructured"):
        prune.global_unstructured([(m, "weight")], prune.LnStructured, amount=1, n=2)


def test_random_pruning_takes_as_many_as_it_is_told():
    m = prune.random_unstructured(nn.Linear(5, 4), "weight", 7)
    assert (m.weight_mask == 0).sum() == 7
    m = prune.random_structured(nn.Linear(5, 4), "weight", 2, dim=1)
    assert (m.weight_mask.sum(0) == 0).sum() == 2


def test_functional_call_leaves_the_module_as_it_was():
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    own, x = m[0].weight, lamina.ones(1, 2)
    w = lamina.full((2, 2), 0.5, requires_grad=True)
    functional_call(m, {"0.weight": w}, x).sum().backward()
    assert m[0].weight is own and own.grad is None and w.grad is not None and [*m[0]._parameters] == [
        "weight", "bias",
    ]  # fmt: skip
    tied = functional_call(m, {"0.weight": w}, x)
    assert lamina.equal(tied, functional_call(m, {"0.weight": w, "1.weight": w}, x))
    assert not lamina.equal(tied, functional_call(m, {"0.weight": w}, x, tie_weights=False))
    with pytest.raises(RuntimeError, match="missing: 0.bias"):
        functional_call(m, {"0.weight": w, "1.weight": w}, x, strict=True)


def test_functional_call_and_written_members_are_right_under_tracing():
    m = nn.Linear(2, 2, bias=False)

    def called(w, x):
        return functional_call(m, {"weight": w}, x)

    def written(w, x):
        own = m._parameters["weight"]
        m._parameters["weight"] = w
        try:
            return m(x)
        finally:
            m._parameters["weight"] = own

    for f in (called, written):
        traced = lamina.jit.trace(f)
        for k in range(3):
            w, x = lamina.full((2, 2), float(k)), lamina.ones(1, 2)
            assert lamina.equal(traced(w, x), x @ w.T)


@pytest.mark.parametrize("trivial", [False, True])
@pytest.mark.parametrize("which", ["cayley", "matrix_exp"])
@pytest.mark.parametrize("sizes", [(4, 4), (5, 3), (3, 5)])
def test_orthogonal_complex_matrices_are_unitary(sizes, which, trivial):
    layer = parametrizations.orthogonal(
        nn.Linear(*sizes, dtype=lamina.complex128), orthogonal_map=which, use_trivialization=trivial
    )
    for _ in range(2):
        q = layer.weight.detach().numpy()
        q = q if q.shape[0] >= q.shape[1] else q.T
        np.testing.assert_allclose(q.conj().T @ q, np.eye(min(sizes)), rtol=0, atol=1e-14)
        with lamina.no_grad():
            layer.parametrizations.weight.original.add_(lamina.randn(sizes[::-1], dtype=lamina.complex128))


class Halved(nn.Module):
    """Makes half of a tensor; what it is from, `back` says."""

    def __init__(self, back):
        super().__init__()
        self.back = back

    def forward(self, x):
        return x / 2

    def right_inverse(self, x):
        return self.back(x)


@pytest.mark.parametrize(("back", "first", "second"), [
    (lambda x: x.double(), "outputs one tensor, it may not change the dtype", "must have the same dtype"),
    (lambda x: x[:1], None, "must have the same shape"),
    (lambda x: (x, x), None, "right_inverse must return a tensor"),
    (lambda x: None, "must return a Tensor or a Sequence of", "right_inverse must return a tensor"),
])  # fmt: skip
def test_refusals_of_right_inverse_say_what_pytorchs_say(back, first, second):
    m = nn.Linear(2, 2)
    if first is not None:
        with pytest.raises(ValueError, match=first):
            parametrize.register_parametrization(m, "weight", Halved(back))
        assert not parametrize.is_parametrized(m)
    parametrize.register_parametrization(m, "weight", nn.Identity())
    with pytest.raises(ValueError, match=second):
        parametrize.register_parametrization(m, "weight", Halved(back))
    assert len(m.parametrizations.weight) == 1


def test_originals_are_swapped_where_that_is_asked_for():
    class Named(lamina.Tensor):
        pass

    m = nn.Linear(2, 2)
    weight, values = m.weight, m.weight.tolist()
    future.set_swap_module_params_on_conversion(True)
    try:
        parametrize.register_parametrization(m, "weight", Halved(lambda x: (2 * x).as_subclass(Named)))
        assert m.parametrizations.weight.original is weight and type(weight) is Named
        assert isinstance(weight, nn.Parameter) and m.weight.tolist() == values
        parametrize.remove_parametrizations(m, "weight")
    finally:
        future.set_swap_module_params_on_conversion(False)
    assert m.weight is weight and weight.tolist() == values and isinstance(weight, nn.Parameter)
