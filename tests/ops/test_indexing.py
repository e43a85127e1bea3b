"""x[index] in all its forms against NumPy, writes through views, and what is refused."""

import numpy as np
import pytest

import lamina
from lamina.ir.errors import ArgumentValueError, DimError, ShapeError
from lamina.ir.ops.gather import gather
from lamina.ir.ops.getitem import getitem
from lamina.ir.ops.unview import unview, view_scatter
from lamina.ir.ops.view import basic_index, reshape, view
from lamina.ir.views import replay, step

X = np.arange(24.0).reshape(2, 3, 4)
PICK = np.array([1, 0, -1])
MASK = X % 5 < 2

FORMS = [
    np.s_[0], np.s_[-1, 1], np.s_[..., 2], np.s_[:, None, 1:], np.s_[::2, ::3], np.s_[5:1], np.s_[None],
    np.s_[()], np.s_[PICK], np.s_[:, PICK], np.s_[PICK, 1:, PICK], np.s_[..., PICK],
    np.s_[PICK[:, None], PICK], np.s_[[0, 1]], np.s_[MASK], np.s_[MASK[:, :, 0]], np.s_[:, MASK[0]],
    np.s_[:, [True, False, True]],
    np.s_[PICK[:0]], np.s_[[]], np.s_[True], np.s_[False], np.s_[None, PICK, ..., None],
]  # fmt: skip


@pytest.mark.parametrize("index", FORMS, ids=str)
def test_getitem_takes_what_numpy_takes(index):
    assert np.array_equal(getitem(X, index), X[index])
    assert np.array_equal(lamina.tensor(X)[index].numpy(), X[index])


@pytest.mark.parametrize("index", FORMS, ids=str)
def test_setitem_writes_where_numpy_writes(index):
    expected, written = X.copy(), lamina.tensor(X)
    expected[index] = -1.0
    written[index] = -1.0
    assert np.array_equal(written.numpy(), expected)


def test_an_int_beside_a_tensor_drops_its_dimension_first():
    """PyTorch's rule, not NumPy's: the int doesn't push the picked dimension to the front."""
    assert getitem(X, np.s_[0, :, PICK]).shape == (3, 3)
    assert np.array_equal(getitem(X, np.s_[0, :, PICK]), X[0][:, PICK])
    assert np.array_equal(getitem(X, np.s_[np.array(0), :, PICK]), X[0][:, PICK])


REFUSED = [
    (np.s_[2], DimError, "x[index]: index 2 is out of bounds for dimension 0 with size 2"),
    (np.s_[:, -4], DimError, "x[index]: index -4 is out of bounds for dimension 1 with size 3"),
    (np.s_[0, 0, 0, 0], DimError, "x[index]: too many indices for tensor of dimension 3: 4"),
    (np.s_[..., ...], DimError, "x[index]: an index can hold one Ellipsis (...), not 2"),
    (np.s_[::-1], ArgumentValueError, "x[index]: the step of a slice must be greater than 0, not -1"),
    (np.s_[:, np.array([0, 7])], DimError, "x[index]: index 7 is out of bounds for dimension 1 with size 3"),
    (
        np.s_[PICK[:2], PICK],
        DimError,
        "x[index]: shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]",
    ),
    (np.s_[MASK[:, :2]], DimError, "x[mask]: the mask has size 2 where dimension 1 has size 3"),
    (np.s_["a"], DimError, "x[index]: an index can't be a str"),
]


@pytest.mark.parametrize("index, error, rule", REFUSED, ids=lambda value: str(value)[:30])
def test_index_refused(index, error, rule):
    with pytest.raises(error) as raised:
        lamina.tensor(X)[index]
    assert raised.value.rule == rule


@pytest.mark.parametrize("bad", [4, -1])
def test_gather_counts_from_the_front_only(bad):
    with pytest.raises(DimError) as raised:
        gather(X[0], 1, np.array([[bad], [0], [0]]))
    assert raised.value.rule == f"gather: index {bad} is out of bounds for dimension 1 with size 4"


def test_view_refuses_to_copy_and_reshape_does_not():
    turned = X.transpose(2, 0, 1)
    with pytest.raises(ShapeError, match="use reshape"):
        view(turned, (-1,))
    assert np.array_equal(reshape(turned, (-1,)), turned.ravel())
    assert np.shares_memory(view(turned, (2, 2, 2, 3)), X)


CHAIN = (
    step("view", shape=(6, 4)),
    step("transpose", dim0=0, dim1=1),
    step("basic_index", index=(("slice", 1, 4, 2), ("slice", 0, 6, 1), ("new",))),
)


def test_view_scatter_replaces_what_the_chain_selects():
    region = replay(X, CHAIN)
    assert region.shape == (2, 6, 1)
    out = view_scatter(X, -region, CHAIN)
    assert np.array_equal(replay(out, CHAIN), -region)
    expected = X.copy()
    expected[..., 1::2] *= -1
    assert np.array_equal(out, expected)


def test_unview_is_the_transpose_of_the_chain():
    windows = (("unfold", (("dimension", 0), ("size", 3), ("step", 2))),)
    x, g = np.arange(8.0), np.arange(9.0).reshape(3, 3) - 4
    assert np.sum(replay(x, windows) * g) == np.sum(x * unview(g, (8,), windows))


def test_writes_through_views_reach_the_base_and_its_gradient():
    x = lamina.tensor(X, requires_grad=True)
    y = x * 1
    y.view(6, 4)[:, 1].mul_(3)
    y[0, PICK[:2]] = 0.0
    y.sum().backward()
    expected = np.ones_like(X)
    expected[..., 1] = 3
    expected[0, PICK[:2]] = 0
    assert np.array_equal(x.grad.numpy(), expected)


def test_slices_spelled_as_tuples_are_the_slices():
    assert np.array_equal(basic_index(X, (("slice", None, -1, None), 0)), X[:-1, 0])
