"""Sparse tensors: parts, gradients of gradients, files, traces, refusals."""

import copy
import io
import pickle

import numpy as np
import pytest

import lamina
from lamina import jit


def matrix(requires_grad=False):
    indices = [[0, 1, 1], [2, 0, 2]]
    return lamina.sparse_coo_tensor(indices, [3.0, 4.0, 5.0], (2, 3), requires_grad=requires_grad)


def test_a_sparse_tensor_is_what_it_was_made_of():
    s = matrix()
    assert (s.is_sparse, s.layout, s.shape, s._nnz(), s.sparse_dim()) == (
        True, lamina.sparse_coo, (2, 3), 3, 2,
    )  # fmt: skip
    assert s.to_dense().tolist() == [[0, 0, 3], [4, 0, 5]]
    assert s.to_sparse_csr().crow_indices().tolist() == [0, 1, 3]
    assert not matrix().is_coalesced() and matrix().coalesce().is_coalesced()
    assert lamina.tensor([1.0]).layout is lamina.strided


def test_places_that_come_twice_hold_their_sum():
    s = lamina.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 3.0], (3,))
    assert s.coalesce().values().tolist() == [2, 4]
    assert s.to_dense().tolist() == [2, 4, 0]


def test_places_are_taken_as_floats_and_bools():
    for places in ([[0.0, 2.0]], lamina.tensor([[0, 2]], dtype=lamina.float32)):
        s = lamina.sparse_coo_tensor(places, [1.0, 2.0])
        assert s._indices().dtype is lamina.int64 and s.to_dense().tolist() == [1, 0, 2]
    assert lamina.sparse_coo_tensor([[True, False]], [1.0, 2.0]).to_dense().tolist() == [2, 1]
    with pytest.raises(lamina.LaminaError, match="must be integers"):
        lamina.sparse_coo_tensor([[float("nan")]], [1.0])


def test_a_tensor_is_told_whether_it_is_coalesced():
    s = lamina.sparse_coo_tensor([[0, 2]], [1.0, 2.0])
    assert s._coalesced_(True) is s and s.is_coalesced()
    assert not s._coalesced_(False).is_coalesced()
    with pytest.raises(lamina.LaminaError, match="places must ascend"):
        lamina.sparse_coo_tensor([[2, 0]], [1.0, 2.0])._coalesced_(True)


def test_products_have_gradients_of_both_operands():
    s, x = matrix(True), lamina.arange(6.0).reshape(3, 2).requires_grad_()
    (s @ x).sum().backward()
    assert s.grad.is_sparse and s.grad.to_dense().tolist() == [[0, 0, 9], [1, 0, 9]]
    assert x.grad.tolist() == [[4, 4], [0, 0], [8, 8]]


def test_second_order_is_that_of_the_values():
    x = lamina.ones(3, 2, dtype=lamina.float64)

    def through(values):
        return (lamina.sparse_coo_tensor([[0, 1], [1, 0]], values, (2, 3)).sin() @ x).pow(2)

    values = lamina.tensor([1.0, 2.0], dtype=lamina.float64, requires_grad=True)
    assert lamina.autograd.gradcheck(through, (values,))
    assert lamina.autograd.gradgradcheck(through, (values,))


def test_sparse_tensors_are_saved_pickled_and_copied():
    for s in (matrix(True), matrix().to_sparse_csr(), matrix().to_sparse_csc()):
        file = io.BytesIO()
        lamina.save({"s": s}, file)
        file.seek(0)
        loaded = lamina.load(file)["s"]
        assert not loaded.requires_grad  # PyTorch's form does not say of a sparse tensor that it wants one
        for again in (
            loaded.requires_grad_(s.requires_grad),
            pickle.loads(pickle.dumps(s)),
            copy.deepcopy(s),
        ):
            assert again.layout is s.layout and again.requires_grad == s.requires_grad
            assert np.array_equal(again.detach().to_dense().numpy(), s.detach().to_dense().numpy())


def test_traces_run_undecorated_on_sparse_tensors():
    s, x = matrix(), lamina.ones(3, 2)

    @jit.trace
    def given(s, x):
        return (s @ x).sum()

    @jit.trace
    def made(values, x):
        return (lamina.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values, (2, 3)) @ x).sum()

    for n in range(3):
        assert given(s * (n + 1), x).item() == made(s._values() * (n + 1), x).item() == 24 * (n + 1)
    assert "sparse tensor" in given.explain() and "sparse tensor" in made.explain()


def test_embeddings_have_sparse_gradients_that_add_up():
    table = lamina.nn.Embedding(5, 2, sparse=True)
    for _ in range(2):
        table(lamina.tensor([1, 3, 1])).sum().backward()
    assert table.weight.grad.is_sparse
    assert table.weight.grad.to_dense().tolist() == [[0, 0], [4, 4], [0, 0], [2, 2], [0, 0]]
    (table(lamina.tensor([0])).sum() + table.weight.sum()).backward()
    assert table.weight.grad.to_dense()[0].tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        other = lamina.nn.Embedding(5, 2, sparse=True)
        optimizer = lamina.optim.Adam(other.parameters())
        other(lamina.tensor([0])).sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (lambda s: s.exp(), "exp: is not built for sparse tensors"),
        (lambda s: s.numpy(), "no one array"),
        (lambda s: s.values(), "not coalesced"),
        (lambda s: lamina.sparse_coo_tensor([[0, 9]], [1.0, 2.0], (2,)), "place 9 is outside of dim 0"),
        (lambda s: lamina.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2)), "pointers must grow"),
        (lambda s: lamina.sparse_csr_tensor([0, 2], [1, 0], [1.0, 2.0], (1, 2)), "ascend within each line"),
        (lambda s: lamina.sparse_coo_tensor([[0.5]], [1.0]), "must be integers"),
        (lambda s: lamina.ones(3).to_sparse_csr(), "a matrix is needed"),
        (lambda s: s.to_sparse(layout="rows"), "no such layout"),
        (lambda s: s @ lamina.ones(3, dtype=lamina.float64), "dtypes"),
    ],
)
def test_refusals_say_what_is_wrong(refused, said):
    with pytest.raises(lamina.LaminaError, match=said):
        refused(matrix())


def test_a_damaged_sparse_file_is_refused():
    from lamina.runtime.sparse_tensor import restored

    good = ("sparse_coo", (lamina.tensor([[0]]),), lamina.tensor([1.0]), (1,), True, False)
    assert restored(*good).to_dense().tolist() == [1]
    for at, bad in enumerate(("strided", (lamina.tensor([[7]]),), lamina.tensor([1.0, 2.0]), (-1,), 1, None)):
        with pytest.raises(lamina.LaminaError):
            restored(*good[:at], bad, *good[at + 1 :])


def test_sparse_gradients_are_not_divided_by_how_often_rows_came():
    """Which is refused where there will be one, and nowhere else."""
    table, rows = lamina.ones(3, 2, requires_grad=True), lamina.tensor([[0, 2]])
    settings = {"sparse": True, "scale_grad_by_freq": True}
    for look_up in (lamina.nn.functional.embedding, lamina.nn.functional.embedding_bag):
        with pytest.raises(lamina.ArgumentValueError, match="dense gradients"):
            look_up(rows, table, **settings)
        with lamina.no_grad():
            assert bool((look_up(rows, table, **settings) == 1).all())


@pytest.mark.parametrize("shape", [(9, 5), (5, 9)])
def test_principal_components_of_a_sparse_matrix(shape):
    x = lamina.rand(shape, dtype=lamina.float64)
    x = x * (x > 0.6)
    centred = x - x.mean(0, keepdim=True)
    u, s, v = lamina.pca_lowrank(x.to_sparse(), q=5)
    # All five are found, so nothing but roundings is left: of float64, 1e-16 times the largest, times 9 rows.
    np.testing.assert_allclose((u * s @ v.T).numpy(), centred.numpy(), atol=1e-12)
    u, s, v = lamina.pca_lowrank(x.to_sparse(), q=5, center=False)
    np.testing.assert_allclose((u * s @ v.T).numpy(), x.numpy(), atol=1e-12)
