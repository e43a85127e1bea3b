"""How tensors print: golden text, so that it is held without PyTorch too."""

import pickle

import numpy as np
import pytest

import lamina
from lamina.ir.errors import ArgumentValueError


def _shown() -> list[lamina.Tensor]:
    ramp = lamina.arange(1200.0)
    leaf = lamina.tensor([1.5, -2.0, 3.25], requires_grad=True)
    return [
        lamina.tensor([1.0, 2.0, 30.0]),
        lamina.tensor([[0.1, -20.25], [1e-3, 4.0]]),
        lamina.tensor([1e-9, 1.0]),
        lamina.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 2.0]),
        lamina.tensor(3.14159),
        lamina.tensor([[True, False]]),
        lamina.tensor([1, -20, 300]),
        lamina.tensor([1, 2], dtype=lamina.uint8),
        lamina.tensor([1.5], dtype=lamina.bfloat16),
        lamina.tensor([1.5], dtype=lamina.float64),
        lamina.tensor([]),
        lamina.zeros(2, 0, 3),
        ramp,
        ramp.view(3, 20, 20) / 7,
        leaf,
        leaf * leaf,
        leaf.view(3, 1).log_softmax(0),
        lamina.Parameter(lamina.ones(2, 2)),
    ]


def test_printing_golden(golden):
    golden("printing", "\n".join(map(repr, _shown())))


def test_return_types_golden(golden):
    golden("return_types", lamina.max(lamina.tensor([[1.0, 5.0], [7.0, 2.0]]), 0))


def test_return_types_are_tuples_that_can_be_pickled():
    found = pickle.loads(pickle.dumps(lamina.tensor([[3.0, 1.0]]).sort()))
    values, indices = found
    assert found.values is values and values.tolist() == [[1.0, 3.0]] and indices.tolist() == [[1, 0]]
    assert type(found) is type(lamina.tensor([2.0]).sort())


def test_functions_of_the_user_print_under_their_name():
    class Twice(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    assert repr(Twice.apply(lamina.ones(1, requires_grad=True))) == "tensor([2.], grad_fn=<TwiceBackward>)"


def test_printing_leaves_mode_and_history_alone():
    x = lamina.ones(3, requires_grad=True)
    y = x * x
    version = y._version
    repr(y)
    assert y._version == version and lamina.is_grad_enabled()
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_options_refuse_an_unknown_profile():
    with pytest.raises(ArgumentValueError, match="no profile 'long'\n  known: 'default', 'short', 'full'"):
        lamina.set_printoptions(profile="long")


def test_options_change_and_come_back():
    x = lamina.tensor([np.pi, 1.0])
    try:
        lamina.set_printoptions(precision=2, sci_mode=True)
        assert repr(x) == "tensor([3.14e+00, 1.00e+00])"
    finally:
        lamina.set_printoptions(profile="default")
    assert repr(x) == "tensor([3.1416, 1.0000])"


def test_zero_d_tensors_format_as_numbers():
    assert f"{lamina.tensor(2.5):.2f} {lamina.tensor(3):02d}" == "2.50 03"
    with pytest.raises(TypeError):
        f"{lamina.ones(2):.2f}"
