"""Writing in place: histories, views, versions, and the errors that name both lines."""

import numpy as np
import pytest

import lamina
from lamina.ir.errors import ArgumentError, DTypeError, InplaceError, ShapeError
from lamina.runtime import grad


def leaf(*values: float) -> lamina.Tensor:
    return lamina.tensor(list(values), requires_grad=True)


def test_the_error_names_both_lines_and_the_way_out():
    y = leaf(1.0, 2.0) * 1.0
    z = y * y  # saved here
    y.add_(1)  # changed here
    with pytest.raises(InplaceError) as caught:
        z.sum().backward()
    text = str(caught.value)
    assert text.splitlines()[0] == "a tensor saved for backward was changed in place"
    assert "saved by      mul" in text and "# saved here" in text
    assert "changed by    add_" in text and "# changed here" in text
    assert "to keep both: write y = y + …, or clone() before line" in text


def test_the_line_is_that_of_the_write_after_the_save():
    writes = {
        "add_": lambda y: y.add_(1),
        "addcmul_": lambda y: y.addcmul_(y, y),
        "fill_": lambda y: y.zero_(),
        "copy_": lambda y: y.__setitem__(0, 1.0),
        "mul_": lambda y: y[0].mul_(2.0),
    }
    for name, write in writes.items():
        x, y = leaf(1.0, 2.0), lamina.tensor([1.0, 2.0])
        for other in writes.values():
            other(y)  # nobody has saved it: their lines are not noted
        z = x * y
        write(y)
        with pytest.raises(InplaceError, match=f"changed by    {name} .*test_inplace.py") as caught:
            z.sum().backward()
        assert f'"{name}": lambda' in str(caught.value)
        assert y._version == len(writes) + 1


def test_a_write_before_the_save_is_fine():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    y.add_(1.0)
    (y * y).sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]


def test_a_write_through_a_view_is_seen_by_what_saved_the_base():
    y = leaf(1.0, 2.0) * 1.0
    z = y * y
    y[0].add_(1.0)
    with pytest.raises(InplaceError, match="changed in place"):
        z.sum().backward()


def test_a_write_through_detach_is_seen():
    y = leaf(1.0, 2.0) * 1.0
    z = y * y
    y.detach().add_(1.0)
    with pytest.raises(InplaceError):
        z.sum().backward()


def test_a_write_through_data_is_not_seen():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    z = y * y
    y.data.add_(1.0)
    z.sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]


def test_a_saved_output_that_is_changed_is_noticed():
    y = leaf(1.0, 2.0).exp()
    y.mul_(2.0)
    with pytest.raises(InplaceError, match="changed in place"):
        y.sum().backward()


def test_an_in_place_op_that_saves_its_own_output_differentiates():
    x = leaf(0.5, -0.5)
    y = x * 1.0
    y.tanh_()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 1 - np.tanh([0.5, -0.5]) ** 2, rtol=1e-6)


def test_an_in_place_product_differentiates_both_operands():
    x, w = leaf(2.0, 3.0), leaf(5.0, 7.0)
    y = x * 1.0
    y.mul_(w)
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 7.0] and w.grad.tolist() == [2.0, 3.0]


def test_a_leaf_is_not_written():
    with pytest.raises(InplaceError, match="a leaf that requires gradients"):
        leaf(1.0).add_(1.0)
    with pytest.raises(InplaceError, match="a view of a leaf"):
        leaf(1.0, 2.0)[0].add_(1.0)


def test_a_leaf_is_written_under_no_grad():
    x = leaf(1.0, 2.0)
    with lamina.no_grad():
        x.add_(1.0)
        x[0] = 7.0
    assert x.tolist() == [7.0, 3.0] and x.requires_grad and x.is_leaf
    assert x._version == 2


# ---- views -------------------------------------------------------------------------------------------------
def test_writing_a_view_rebases_the_base():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1.0
    y[1:].mul_(10.0)
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 10.0, 10.0]


def test_writing_a_view_gives_other_views_new_histories():
    x = lamina.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x * 1.0
    row, turned = y[0], y.t()
    row.mul_(row * 2.0)
    (turned * turned).sum().backward()
    # turned[:, 0] = 2 x²: d/dx (2x²)² = 16 x³; the rest is x²
    assert x.grad.tolist() == [[16.0, 128.0], [6.0, 8.0]]


def test_writing_the_base_gives_its_views_new_histories():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    v = y[:1]
    y.mul_(3.0)
    v.sum().backward()
    assert x.grad.tolist() == [3.0, 0.0]


def test_a_view_of_a_view_is_written():
    x = lamina.ones(2, 3, requires_grad=True)
    y = x * 1.0
    y.t()[1:][0].mul_(5.0)
    y.sum().backward()
    assert x.grad.tolist() == [[1.0, 5.0, 1.0]] * 2


def test_a_base_without_history_gets_one_from_a_write():
    base, w = lamina.zeros(2, 2), leaf(5.0, 6.0)
    base[1] = w * 2
    assert base.requires_grad
    (base * base).sum().backward()
    assert w.grad.tolist() == [40.0, 48.0]


def test_a_value_written_over_gets_no_gradient():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    y[0] = 9.0
    (y * y).sum().backward()
    assert x.grad.tolist() == [0.0, 4.0]


def test_a_rebased_history_differentiates_to_second_order():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    y[0].mul_(y[1].clone())
    (g,) = grad((y * y).sum(), x, create_graph=True)
    # (x0 x1)² + x1²
    assert g.tolist() == [8.0, 8.0]
    (h,) = grad(g.sum(), x)
    # d/dx0 (2 x0 x1² + 2 x0² x1 + 2 x1) = 2 x1² + 4 x0 x1;  d/dx1 = 4 x0 x1 + 2 x0² + 2
    assert h.tolist() == [16.0, 12.0]


def test_an_op_between_the_view_and_the_write_keeps_the_old_history():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    v = y[0]
    before = v * 1.0
    v.mul_(10.0)
    (before + v).backward()
    assert x.grad.tolist() == [11.0, 0.0]


# ---- refusals ----------------------------------------------------------------------------------------------
def test_a_result_of_another_shape_is_not_written():
    with pytest.raises(ShapeError, match="is not that of the tensor written"):
        lamina.ones(3).add_(lamina.ones(2, 3))


def test_a_float_result_is_not_written_into_ints():
    with pytest.raises(DTypeError, match="can't be cast to"):
        lamina.tensor([1, 2]).mul_(0.5)


def test_an_expanded_tensor_is_not_written():
    with pytest.raises(InplaceError, match="share one place in memory"):
        lamina.ones(1, 3).expand(2, 3).add_(1.0)


def test_a_refused_write_changes_nothing():
    x = lamina.ones(3)
    for write, size in ((x.add_, (2,)), (x.add_, (2, 3)), (x.copy_, (4,))):
        with pytest.raises(ShapeError):
            write(lamina.ones(size))
    assert x.tolist() == [1.0, 1.0, 1.0] and x._version == 0


def test_versions_are_shared_by_views():
    x = lamina.ones(4)
    v = x[1:]
    v.add_(1.0)
    x.zero_()
    assert x._version == v._version == 2


def test_python_assignment_operators_write_in_place():
    x = lamina.ones(2)
    kept = x
    x += 1.0
    x *= 3.0
    assert kept is x and x.tolist() == [6.0, 6.0] and x._version == 2


def test_masked_and_indexed_assignment():
    x = lamina.arange(5, dtype=lamina.float32)
    x[x > 2] = 0.0
    x[lamina.tensor([0, 1])] = lamina.tensor([7.0, 8.0])
    x[-1] = 5
    assert x.tolist() == [7.0, 8.0, 2.0, 0.0, 5.0]


def test_a_tensor_becomes_its_own_transpose_in_place():
    x = lamina.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    y = x * 1.0
    row = y[0]  # made before, and still the first row of what y was
    y.t_()
    assert y.shape == (3, 2) and y.unsqueeze_(0).shape == (1, 3, 2)
    y.squeeze_(0)
    y[0].mul_(10.0)
    assert row.tolist() == [10.0, 2.0, 3.0]
    (y.sum() + row.sum()).backward()
    assert x.grad.tolist() == [[20.0, 2.0, 2.0], [10.0, 1.0, 1.0]]


def test_a_leaf_is_not_turned_in_place():
    with pytest.raises(InplaceError, match="a leaf that requires gradients"):
        lamina.ones(2, 3, requires_grad=True).t_()


@pytest.mark.parametrize("mode", [lamina.no_grad, lamina.inference_mode])
def test_a_view_without_history_of_a_tensor_that_has_one_is_written_without_gradients_alone(mode):
    x = lamina.ones(3, requires_grad=True)
    base = x * 1
    with mode():
        view = base[:2]
        view.mul_(3)
    with pytest.raises(InplaceError, match="A view was created in no_grad mode and is being"):
        view.mul_(2)
    view.detach().mul_(2)
    assert base.tolist() == [6.0, 6.0, 1.0]


@pytest.mark.parametrize("name", ["abs_", "gt_", "clamp_", "addcmul_", "igamma_", "leaky_relu_"])
@pytest.mark.parametrize("given", [None, 3.0, "a", [1.0]])
def test_what_is_no_tensor_is_not_written_into(name, given):
    """Each twice: the second call meets what the first one left in the memo."""
    x = lamina.ones(2)
    more = {"gt_": (x,), "clamp_": (x, x), "addcmul_": (x, x), "igamma_": (x,)}.get(name, ())
    for _ in range(2):
        with pytest.raises(ArgumentError, match="into a tensor|must be a tensor"):
            getattr(lamina.Tensor, name)(given, *more)


def test_parts_of_expanded_tensors_are_written_with_a_warning():
    x = lamina.zeros(2, 1).expand(2, 3)
    for write in (
        lambda: x.masked_fill_(lamina.tensor([[True, False, False], [False] * 3]), 1.0),
        lambda: x.index_fill_(1, lamina.tensor([1]), 2.0),
        lambda: x.index_put_((lamina.tensor([0]), lamina.tensor([2])), lamina.tensor(3.0)),
    ):
        with pytest.warns(UserWarning, match=r"_ on expanded tensors is deprecated"):
            write()
    assert x.tolist() == [[3, 3, 3], [2, 2, 2]]
    with pytest.raises(lamina.InplaceError, match="several elements of the tensor share one place"):
        x.index_put_((lamina.tensor([0]), lamina.tensor([2])), lamina.tensor(3.0), accumulate=True)
    y = (lamina.zeros(1, requires_grad=True) * 1).expand(3)
    with pytest.raises(lamina.InplaceError, match="several elements of the tensor share one place"):
        y.masked_fill_(lamina.tensor([True, False, True]), 1.0)
