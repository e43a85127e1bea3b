"""Views and what is written through them: whose memory it is, whose history, and what was saved of it."""

import numpy as np
import pytest

import lamina
from lamina.ir.errors import DimError, GradError, InplaceError, ShapeError


def leaf(*values: float) -> lamina.Tensor:
    return lamina.tensor(list(values), dtype=lamina.float64, requires_grad=True)


@pytest.mark.parametrize("look", [lambda x: x.unfold(0, 1, 2), lambda x: x.as_strided((2,), (2,))])
def test_a_write_through_a_strided_view_reaches_the_base(look):
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1.0
    z = look(y)
    assert z._base is y and z._is_view()
    before = y._version
    z.mul_(5.0)
    assert y.tolist() == [5.0, 2.0, 15.0] and y._version == before + 1
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 1.0, 5.0]


def test_a_write_through_a_strided_view_is_seen_by_what_saved_the_base():
    y = leaf(1.0, 2.0) * 1.0
    z = y * y
    y.unfold(0, 1, 1).mul_(2.0)
    with pytest.raises(InplaceError):
        z.sum().backward()


def test_a_view_of_a_leaf_by_strides_is_not_written():
    with pytest.raises(InplaceError, match="a view of a leaf"):
        leaf(1.0, 2.0).unfold(0, 1, 1).zero_()


@pytest.mark.parametrize("shape", ["reshape", "view"])
def test_a_written_reshaped_view_differentiates_whatever_the_cotangent_s_strides(shape):
    """The transposed use makes a transposed cotangent, of which the chain of views is no view."""
    x = lamina.arange(6.0, dtype=lamina.float64).reshape(3, 2).requires_grad_()
    y = x * 1.0
    getattr(y, shape)(-1, 1).mul_(2.0)
    (y.t() * lamina.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=lamina.float64)).sum().backward()
    assert x.grad.tolist() == [[2.0, 8.0], [4.0, 10.0], [6.0, 12.0]]


def test_a_written_transposed_view_differentiates():
    x = lamina.arange(6.0, dtype=lamina.float64).reshape(2, 3).requires_grad_()
    y = x.t() * 1.0  # in memory as x
    y.t().view(-1)[1:].mul_(3.0)
    y.sum().backward()
    assert x.grad.tolist() == [[1.0, 3.0, 3.0], [3.0, 3.0, 3.0]]


def test_what_second_order_saves_sees_a_later_write():
    """Under create_graph the gradient of sin saves once more what sin saved."""
    x = leaf(1.0, 2.0)
    y = x * 1.0
    (g,) = lamina.autograd.grad(y.sin().sum(), [y], create_graph=True)
    y.mul_(2.0)
    with pytest.raises(InplaceError, match="changed in place"):
        lamina.autograd.grad(g.sum(), [x])


def test_what_second_order_saves_of_an_output_sees_a_later_write():
    x = leaf(0.5, 1.0)
    y = x.exp()
    (g,) = lamina.autograd.grad(y.sum(), [x], create_graph=True)
    with lamina.no_grad():
        y.zero_()
    with pytest.raises(InplaceError, match="changed in place"):
        g.sum().backward()


def test_second_order_through_an_in_place_op_that_saves_operand_and_output():
    x, w = leaf(0.5, 1.5), leaf(2.0, 3.0)
    y = x * 1.0
    y.pow_(w)  # saves both operands; y is written over
    (g,) = lamina.autograd.grad(y.sum(), [x], create_graph=True)
    (second,) = lamina.autograd.grad(g.sum(), [x])
    x_, w_ = np.array([0.5, 1.5]), np.array([2.0, 3.0])
    # a handful of roundings of numbers below 10
    np.testing.assert_allclose(second.numpy(), w_ * (w_ - 1) * x_ ** (w_ - 2), rtol=1e-14)


def test_copying_over_a_tensor_keeps_its_history():
    x = leaf(1.0, 2.0)
    y = x * 2.0
    y.copy_(lamina.tensor([5.0, 6.0], dtype=lamina.float64))
    assert y.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_a_quotient_may_be_written():
    x, d = leaf(1.0, 2.0), leaf(4.0, 8.0)
    y = x / d
    y += 1.0
    y.sum().backward()
    assert x.grad.tolist() == [0.25, 0.125] and d.grad.tolist() == [-0.0625, -0.03125]


def test_retained_gradients_are_of_what_the_tensor_is_now():
    x = leaf(1.0, 2.0)
    y = x * 3.0
    y.retain_grad()
    old = y * 10.0
    y.mul_(2.0)
    (y * 5.0 + old).sum().backward()
    assert y.grad.tolist() == [5.0, 5.0] and x.grad.tolist() == [60.0, 60.0]


def test_a_retained_gradient_is_the_one_that_hooks_leave():
    x = leaf(1.0)
    y = x * 3.0
    y.retain_grad()
    y.register_hook(lambda g: g * 0.5)
    y.sum().backward()
    assert y.grad.tolist() == [0.5] and x.grad.tolist() == [1.5]


def test_a_hook_off_the_way_to_the_inputs_does_not_run():
    x, seen = leaf(1.0), []
    y, z = x * 2.0, x * 3.0
    y.register_hook(seen.append)
    lamina.autograd.grad((y + z).sum(), [z])
    assert seen == []


@pytest.mark.parametrize("name, args", [("unsqueeze_", (0,)), ("t_", ()), ("squeeze_", ())])
def test_a_leaf_that_changes_its_shape_under_no_grad_stays_a_leaf(name, args):
    x = lamina.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    (x * x).sum().backward()
    with lamina.no_grad():
        getattr(x, name)(*args)
    assert x.is_leaf and x.requires_grad and x.grad.shape == x.shape
    (x * x).sum().backward()
    assert x.grad.reshape(-1).tolist() == [4.0, 8.0, 12.0]


def test_a_shape_changed_under_no_grad_keeps_the_history():
    x = leaf(1.0, 2.0)
    y = x * 3.0
    with lamina.no_grad():
        y.unsqueeze_(0)
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_joined_transposed_tensors_are_contiguous():
    x = lamina.arange(6).reshape(2, 3).t()
    assert lamina.cat([x, x], 1).view(-1).tolist() == [0, 3, 0, 3, 1, 4, 1, 4, 2, 5, 2, 5]
    assert lamina.stack([x, x]).is_contiguous()


def test_flatten_of_one_dimension_is_the_tensor_itself():
    x = leaf(1.0, 2.0)
    assert x.flatten() is x and lamina.tensor(1.0).flatten().shape == (1,)


class Doubled(lamina.autograd.Function):
    """Doubles its operand in place."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2.0)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2.0


def test_a_function_that_writes_a_view_gives_the_base_its_history():
    x = leaf(1.0, 2.0)
    y = x * 1.0
    Doubled.apply(y[:1])
    y.sum().backward()
    assert y.tolist() == [2.0, 2.0] and x.grad.tolist() == [2.0, 1.0]


def test_a_function_may_not_write_a_leaf():
    x = leaf(1.0, 2.0)
    with pytest.raises(InplaceError, match="Doubled: a leaf"):
        Doubled.apply(x)
    assert x.is_leaf


def test_a_function_that_returns_a_view_keeps_its_own_backward():
    class Front(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:1]

        @staticmethod
        def backward(ctx, g):
            return lamina.cat([g * 100.0, g])

    x = leaf(1.0, 2.0)
    y = x * 1.0
    z = Front.apply(y)
    y.mul_(3.0)
    z.sum().backward()
    assert x.grad.tolist() == [100.0, 1.0]


def test_detach_in_place():
    x = leaf(1.0, 2.0)
    y = x * 2.0
    assert y.detach_() is y and not y.requires_grad
    with pytest.raises(GradError, match="a view can't be detached"):
        (x * 2.0)[:1].detach_()
    assert lamina.ones(2)[:1].detach_().tolist() == [1.0]


def test_stride_and_size_name_the_range():
    x = lamina.ones(2, 3)
    assert x.stride() == (3, 1) and x.stride(-1) == 1 and x.size(-2) == 2
    with pytest.raises(DimError, match=r"stride\(dim\): Dimension out of range: dim 2 is not in \[-2, 1\]"):
        x.stride(2)
    with pytest.raises(DimError, match=r"size\(dim\): Dimension out of range: dim -3 is not in \[-2, 1\]"):
        x.size(-3)


def test_windows_that_share_elements_are_not_written():
    y = leaf(1.0, 2.0, 3.0) * 1.0
    with pytest.raises(InplaceError, match="several elements of the tensor share one place"):
        y.unfold(0, 2, 1).mul_(2.0)
    y.unfold(0, 1, 2).mul_(2.0)
    assert y.tolist() == [2.0, 2.0, 6.0]


def test_filling_with_a_tensor_differentiates_it():
    v = lamina.tensor(2.0, requires_grad=True)
    x = lamina.ones(3).fill_(v)
    x.sum().backward()
    assert x.tolist() == [2.0] * 3 and v.grad.item() == 3.0
    assert lamina.ones(2).fill_(lamina.tensor(5)).tolist() == [5.0, 5.0]
    with pytest.raises(ShapeError, match="value must be 0-d"):
        lamina.ones(2).fill_(lamina.ones(2, requires_grad=True))
