"""Python functions of each element."""

import pytest

import lamina
from lamina.ir.errors import ArgumentError, DTypeError, GradError


def test_functions_of_each_element_replace_it():
    x = lamina.arange(6).reshape(2, 3).t()
    assert x.apply_(lambda n: n * n) is x
    assert x.tolist() == [[0, 9], [1, 16], [4, 25]]
    y = lamina.tensor([1.0, 2.0])
    assert y.map_(lamina.tensor([10.0]), lambda a, b: a + b).tolist() == [11, 12]
    assert y.map2_(y, lamina.tensor([2.0, 0.5]), lambda a, b, c: (a + b) * c).tolist() == [44, 12]
    assert lamina.ones(0).apply_(lambda n: 1 / 0).shape == (0,)
    assert lamina.tensor(2.5).apply_(int).item() == 2.0


def test_their_errors_are_the_functions_own_and_write_nothing():
    x = lamina.tensor([1.0, 0.0])
    with pytest.raises(ZeroDivisionError):
        x.apply_(lambda n: 1 / n)
    assert x.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda x: x.requires_grad_().apply_(abs),
            GradError,
            r"Can't call apply_\(\) on Variable that requires",
        ),
        (lambda x: x.map_(lamina.ones(2).double(), max), DTypeError, "of one dtype"),
        (lambda x: x.map2_(x, 3, max), ArgumentError, "takes tensors, not a int"),
        (lambda x: x.apply_(3), ArgumentError, "is not callable"),
    ],
)
def test_what_they_can_not_do_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call(lamina.ones(2))


def test_a_traced_function_that_calls_them_runs_undecorated():
    traced = lamina.jit.trace(lambda x: x.clone().apply_(lambda n: n + 1) * 2)
    for start in (1.0, 2.0, 3.0):
        assert traced(lamina.tensor([start])).tolist() == [2 * start + 2]
    assert "apply_" in traced.explain(detail=True)


def test_where_tensors_lie():
    x = lamina.zeros(2, 3, 4)
    assert x.dim_order() == (0, 1, 2) and x.permute(2, 0, 1).dim_order() == (1, 2, 0)
    assert x.is_set_to(x.view(2, 3, 4)) and not x.is_set_to(x.clone()) and not x.is_set_to(x[1:])
    assert x.is_same_size(lamina.ones(2, 3, 4)) and not x.is_same_size(x[0])
    assert lamina.tensor([3]).is_nonzero() and not lamina.tensor(0.0).is_nonzero()
    with pytest.raises(lamina.ir.errors.ArgumentValueError, match="does not have unique dim order"):
        lamina.zeros(2, 1, 4).dim_order(ambiguity_check=True)
