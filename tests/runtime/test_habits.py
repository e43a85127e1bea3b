"""What scripts take for granted besides ops: forms in place, older names, Python's types as dtypes."""

import numpy as np
import pytest

import lamina
from lamina import nn
from lamina.autograd import Variable, set_detect_anomaly
from lamina.runtime import modes


@pytest.mark.parametrize("shape, wrap", [((3, 3), False), ((2, 4), True), ((7, 3), False), ((7, 3), True)])
def test_fill_diagonal_is_numpys(shape, wrap):
    x, wanted = lamina.zeros(shape), np.zeros(shape, np.float32)
    np.fill_diagonal(wanted, 2, wrap)
    assert x.fill_diagonal_(2, wrap) is x and x.tolist() == wanted.tolist()
    y = lamina.ones(shape, requires_grad=True)
    (y * 1).fill_diagonal_(0.0, wrap).sum().backward()
    assert y.grad.tolist() == (wanted == 0).tolist()


def test_older_calls_warn_once_or_each_time():
    x = lamina.ones(2)
    with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
        lamina.set_warn_always(True)
        lamina.addcmul(x, 2, x, x)
    with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
        lamina.addcmul(x, 2, x, x)
    lamina.set_warn_always(False)
    assert lamina.addcmul(x, 2, x, x).tolist() == [3, 3]


def test_numpys_names_in_a_traced_function():
    @lamina.jit.trace
    def f(x):
        return lamina.max(x, axis=0).values - x.min(axis=1, keepdims=True).values

    x = lamina.tensor([[1.0, 4.0], [3.0, 2.0]])
    for _ in range(3):
        assert f(x).tolist() == [[2, 3], [1, 2]]
    with pytest.raises(lamina.ArgumentError, match="unexpected keyword argument 'axes'"):
        lamina.max(x, axes=0)


def test_fill_diagonal_of_a_cube():
    x = lamina.zeros(3, 3, 3).fill_diagonal_(1)
    assert x.sum() == 3 and x[1, 1, 1] == 1


def test_functions_written_with_ops_write_in_place_too():
    x, a = lamina.ones(2, 2), lamina.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.addmm_(a, a, beta=2) is x and x.tolist() == [[9, 12], [17, 24]]
    assert lamina.tensor([1.0, 5.0]).clamp_max_(2).clamp_min_(1.5).tolist() == [1.5, 2]
    assert lamina.tensor([lamina.nan, 1.0]).nan_to_num_(7.0).tolist() == [7, 1]
    y = lamina.ones(2, requires_grad=True)
    (y * 3).clamp_max_(2.0).sum().backward()
    assert y.grad.tolist() == [0, 0]


def test_where_of_a_condition_alone_and_as_a_method():
    mask = lamina.tensor([[True, False], [False, True]])
    rows, columns = lamina.where(mask)
    assert rows.tolist() == columns.tolist() == [0, 1]
    x = lamina.tensor([[1, 2], [3, 4]])
    assert x.where(mask, 0).tolist() == [[1, 0], [0, 4]]
    assert mask.where(~mask, lamina.tensor(False)).tolist() == [[False, False], [False, False]]


@pytest.mark.parametrize("make", [lamina.zeros_like, lamina.ones_like, lamina.rand_like, lamina.empty_like])
def test_likes_take_what_factories_take(make):
    x = lamina.ones(2)
    made = make(x, requires_grad=True, memory_format=lamina.preserve_format)
    assert made.requires_grad and made.is_leaf and not x.requires_grad
    assert x.new_zeros(3, requires_grad=True).requires_grad


def test_classes_of_python_stand_for_dtypes():
    for kind, dtype in ((bool, lamina.bool), (int, lamina.int64), (float, lamina.float64)):
        assert lamina.zeros(2, dtype=kind).dtype is lamina.tensor([1], dtype=kind).dtype is dtype
        assert lamina.ones(2).to(kind).dtype is lamina.ones(2).to(dtype=kind).dtype is dtype
        assert lamina.zeros_like(lamina.ones(2), dtype=kind).dtype is dtype
    assert lamina.arange(3, dtype=float).dtype is lamina.rand(2, dtype=float).dtype is lamina.float64
    x = lamina.ones(2, dtype=lamina.bool)
    assert x.to(bool) is x
    for given in ((bool,), ("cpu",), ("cpu", bool), (x,)):
        assert (
            x.to(*given, True) is x is x.to(*given, True, False)
        )  # non_blocking, then copy, by their places
        assert x.to(*given, False, True) is not x and x.to(*given, copy=True) is not x
    with pytest.raises(lamina.ArgumentError, match="3 flags"):
        x.to(bool, True, True, True)
    assert nn.Linear(2, 2).to(float).weight.dtype is lamina.float64


def test_there_is_one_layout():
    x = lamina.ones(1, 2, 3, 3)
    assert x.to(memory_format=lamina.channels_last) is x.contiguous(memory_format=lamina.channels_last) is x
    assert x.clone(memory_format=lamina.channels_last).is_contiguous()
    model = nn.Conv2d(2, 2, 1)
    assert model.to(memory_format=lamina.channels_last) is model


def test_variable_shares_its_data():
    x = lamina.tensor([1, 2])
    assert Variable(x).data_ptr() == x.data_ptr() and isinstance(x, Variable)
    assert Variable(lamina.ones(2), requires_grad=True).requires_grad


def test_anomalies_are_detected_from_here_on():
    try:
        set_detect_anomaly(True)
        assert modes.local.anomaly
        with set_detect_anomaly(False):
            assert not modes.local.anomaly
        assert modes.local.anomaly
    finally:
        set_detect_anomaly(False)
    assert not modes.CHANGED


def test_questions():
    x = lamina.ones(2, 1)
    assert lamina.get_device(x) == x.get_device() == -1 and x.is_cpu
    assert lamina.is_nonzero(lamina.tensor(2)) and not lamina.is_nonzero(lamina.tensor([0.0]))
    assert lamina.broadcast_shapes((2, 1), (3,), 3) == lamina.Size((2, 3))
    assert lamina.detach(x.requires_grad_()).requires_grad is False
