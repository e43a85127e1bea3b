"""Initialisation: values where they are fixed, moments and bounds where they are drawn."""

from math import sqrt

import numpy as np
import pytest

import lamina
import lamina.nn as nn
from lamina.nn import init

N = 200  # draws are of N * N = 40,000 elements
# The mean of n draws of deviation s has deviation s / sqrt(n), their standard deviation one of about
# s / sqrt(2 n) (normal) or less (uniform).  Five of them: one chance in 3 million, and seeded.
FIVE = 5 / N


@pytest.fixture(autouse=True)
def seed():
    lamina.manual_seed(0)


DRAWS = {
    "uniform": (lambda x: init.uniform_(x, 1.0, 3.0), 2.0, 2 / sqrt(12), 1.0, 3.0),
    "normal": (lambda x: init.normal_(x, 1.0, 0.5), 1.0, 0.5, None, None),
    "xavier_uniform": (init.xavier_uniform_, 0.0, sqrt(2 / (2 * N)), -sqrt(6 / (2 * N)), sqrt(6 / (2 * N))),
    "xavier_normal": (lambda x: init.xavier_normal_(x, gain=2.0), 0.0, 2 * sqrt(2 / (2 * N)), None, None),
    "kaiming_uniform": (init.kaiming_uniform_, 0.0, sqrt(2 / N), -sqrt(6 / N), sqrt(6 / N)),
    "kaiming_normal": (
        lambda x: init.kaiming_normal_(x, mode="fan_out", nonlinearity="tanh"),
        0.0,
        5 / 3 / sqrt(N),
        None,
        None,
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_have_their_moments(name):
    draw, mean, std, low, high = DRAWS[name]
    x = nn.Parameter(lamina.empty(N, N))
    assert draw(x) is x and x.grad_fn is None and x.requires_grad
    values = x.detach().numpy().astype(np.float64)
    assert abs(values.mean() - mean) < FIVE * std
    assert abs(values.std() - std) < FIVE * std
    if low is not None:
        width = high - low
        assert low <= values.min() < low + FIVE * width and high - FIVE * width < values.max() <= high


def test_trunc_normal_stays_inside_and_keeps_its_shape():
    values = init.trunc_normal_(lamina.empty(N, N), 0.0, 1.0, -1.0, 2.0).numpy().astype(np.float64)
    assert -1.0 <= values.min() and values.max() <= 2.0
    # below 0 lies (0.5 - P(x < -1)) / (P(x < 2) - P(x < -1)) = 0.34134 / 0.81859 of the mass
    assert abs((values < 0).mean() - 0.41699) < FIVE * 0.5


def test_generator_decides_the_draws():
    def drawn(function, seed):
        return function(lamina.empty(4, 4), generator=lamina.Generator().manual_seed(seed)).tolist()

    for function in (
        init.normal_,
        init.uniform_,
        init.kaiming_uniform_,
        init.orthogonal_,
        init.trunc_normal_,
    ):
        assert drawn(function, 1) == drawn(function, 1) != drawn(function, 2)


def test_constants():
    assert init.ones_(lamina.empty(2)).tolist() == [1.0, 1.0]
    assert init.zeros_(lamina.ones(2)).tolist() == [0.0, 0.0]
    assert init.constant_(lamina.empty(2), 0.5).tolist() == [0.5, 0.5]
    assert init.eye_(lamina.empty(2, 3)).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 2, 3)])
def test_orthogonal(shape):
    x = init.orthogonal_(lamina.empty(*shape), gain=2.0).numpy().astype(np.float64).reshape(shape[0], -1)
    product = x @ x.T if x.shape[0] <= x.shape[1] else x.T @ x
    # entries were rounded to float32; a product sums at most 6 terms of size 4 at most
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=6 * 4 * np.finfo(np.float32).eps)


def test_orthogonal_draws_both_signs():
    assert {init.orthogonal_(lamina.empty(1, 1)).item() for _ in range(64)} == {1.0, -1.0}


def test_dirac_hands_channels_on():
    conv = nn.Conv1d(4, 4, 3, padding=1, groups=2, bias=False)
    init.dirac_(conv.weight, groups=2)
    x = lamina.randn(2, 4, 5)
    assert conv(x).tolist() == x.tolist()


def test_sparse_zeroes_a_share_of_each_column():
    x = init.sparse_(lamina.empty(10, 7), 0.25).numpy()
    assert (x == 0).sum(0).tolist() == [3] * 7


def test_gains_and_refusals():
    assert init.calculate_gain("relu") == sqrt(2) and init.calculate_gain("leaky_relu", 1) == 1.0
    with pytest.raises(lamina.ArgumentValueError, match="there is no nonlinearity 'step'"):
        init.calculate_gain("step")
    with pytest.raises(
        lamina.ShapeError, match="xavier_uniform_\\(tensor\\): the tensor must have at least two dim"
    ):
        init.xavier_uniform_(lamina.empty(3))
    with pytest.raises(lamina.ArgumentValueError, match="mode must be 'fan_in' or 'fan_out', not 'both'"):
        init.kaiming_normal_(lamina.empty(3, 3), mode="both")
    with pytest.raises(lamina.ShapeError, match="eye_"):
        init.eye_(lamina.empty(3))
    with pytest.raises(lamina.ArgumentValueError, match="groups must divide the first size \\(4 % 3 != 0\\)"):
        init.dirac_(lamina.empty(4, 1, 1), groups=3)


BOUNDS = {
    "linear": (lambda: nn.Linear(N, N), 1 / sqrt(N)),
    "conv": (lambda: nn.Conv2d(20, N, (2, 5)), 1 / sqrt(N)),
    "lstm": (lambda: nn.LSTM(50, N), 1 / sqrt(N)),
    "gru cell": (lambda: nn.GRUCell(50, N), 1 / sqrt(N)),
    "bilinear": (lambda: nn.Bilinear(N, 4, 50), 1 / sqrt(N)),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_modules_start_uniform(name):
    make, bound = BOUNDS[name]
    for param in make().parameters():
        values = np.abs(param.detach().numpy())
        # of n uniform draws the greatest is below 0.9 of the bound with a chance of 0.9 ** n
        assert 0.9 * bound < values.max() <= bound * (1 + np.finfo(np.float32).eps) and param.numel() >= 50


def test_embedding_and_attention_start():
    table = nn.Embedding(N, N, padding_idx=3).weight.detach().numpy()
    assert not table[3].any() and abs(np.delete(table, 3, 0).std() - 1) < FIVE
    attention = nn.MultiheadAttention(N, 2)
    assert not attention.in_proj_bias.any() and not attention.out_proj.bias.any()
    assert attention.in_proj_weight.abs().max().item() <= sqrt(6 / (4 * N))


@pytest.mark.parametrize("name", [
    "uniform", "normal", "constant", "eye", "dirac", "xavier_uniform", "xavier_normal", "kaiming_uniform",
    "kaiming_normal", "orthogonal", "sparse",
])  # fmt: skip
def test_names_without_the_underscore_warn_and_do_the_same(name):
    more = {"constant": (3.0,), "sparse": (0.5,)}.get(name, ())
    old, new = (lamina.empty(*[4] * (3 if name == "dirac" else 2)) for _ in range(2))
    lamina.manual_seed(1)
    with pytest.warns(
        FutureWarning, match=rf"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`"
    ):
        assert getattr(init, name)(old, *more) is old
    lamina.manual_seed(1)
    assert getattr(init, f"{name}_")(new, *more).tolist() == old.tolist()
