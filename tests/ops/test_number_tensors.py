"""Where an operator takes a number, a tensor of no dims is the number that it holds at the call."""

import pytest

import lamina
from lamina import jit
from lamina.nn import functional as F

X = lamina.tensor([1.0, 2.0])
CALLS = {
    "softplus": lambda b: F.softplus(X, b),
    "leaky_relu": lambda b: F.leaky_relu(-X, b),
    "elu": lambda b: F.elu(-X, b),
    "hardtanh": lambda b: F.hardtanh(X, 0.0, b),
    "addmm": lambda b: lamina.addmm(lamina.ones(2, 2), lamina.ones(2, 2), lamina.ones(2, 2), beta=b),
    "sum": lambda b: lamina.ones(2, 3, 4).sum(b),
    "softmax": lambda b: lamina.arange(6.0).view(1, 2, 3).softmax(b),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_number_is_read_at_each_call(name):
    call, kind = CALLS[name], int if name in ("sum", "softmax") else float
    changing = lamina.tensor(kind(1))
    for value in (1, 2, 0, 1):
        changing.fill_(value)
        assert call(changing).equal(call(kind(value)))
        assert call(lamina.tensor(kind(value))).equal(call(kind(value)))


def test_numbers_that_print_alike_are_told_apart():
    first, second = (F.softplus(X.double(), lamina.tensor(b, dtype=lamina.float64)) for b in (2.0, 2.000001))
    assert not first.equal(second)


@pytest.mark.parametrize("name", CALLS)
def test_a_traced_function_reads_them_too(name):
    call, kind = CALLS[name], int if name in ("sum", "softmax") else float
    traced = jit.trace(call)
    for value in (1, 2, 0, 1, 2, 0):
        assert traced(lamina.tensor(kind(value))).allclose(call(kind(value)))


@pytest.mark.parametrize(
    "wrong", [lamina.ones(1), lamina.ones(1, 2, 1, 2, 1), lamina.ones((), requires_grad=True)]
)
def test_other_tensors_are_no_numbers(wrong):
    with pytest.raises(lamina.LaminaError):
        F.softplus(X, threshold=wrong)
    with pytest.raises(lamina.LaminaError):
        F.elu(X, wrong)
