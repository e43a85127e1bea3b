"""Random tensors: a seed gives the same numbers, distributions have their moments, arguments are checked."""

import copy
import math
import pickle
import threading

import numpy as np
import pytest

import lamina
from lamina.ir.errors import ArgumentError, ArgumentValueError, DTypeError, InplaceError, LaminaError

N = 20_000
# Seeds are fixed, so a test below passes always or never; six standard errors leave a wrong seed one chance
# in 10^9 for each statistic looked at, and still catch a mean or a deviation that is off by 5 %.
SIGMAS = 6.0


@pytest.fixture
def generator() -> lamina.Generator:
    return lamina.Generator().manual_seed(20)


def check_moments(x: lamina.Tensor, mean: float, variance: float, fourth: float) -> None:
    """Compare with the moments; `fourth`, the fourth central one, gives the variance's own error."""
    values = x.double().numpy()
    n = values.size
    assert abs(values.mean() - mean) < SIGMAS * math.sqrt(variance / n)
    assert (
        abs(values.var() - variance)
        < SIGMAS * math.sqrt((fourth - variance**2) / n) + SIGMAS**2 * variance / n
    )


def check_counts(x: lamina.Tensor, weights: list[float]) -> None:
    """Compare how often each number came with how often it should: binomial counts."""
    values, n = x.numpy().ravel(), x.numel()
    assert values.min() >= 0 and values.max() < len(weights)
    for value, p in enumerate(np.array(weights) / sum(weights)):
        assert abs((values == value).sum() - n * p) <= SIGMAS * math.sqrt(n * p * (1 - p))


# ---- distributions -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [lamina.float64, lamina.float32])
def test_uniform_numbers(generator, dtype):
    x = lamina.rand(N, generator=generator, dtype=dtype)
    assert x.dtype is dtype and 0.0 <= x.min().item() and x.max().item() < 1.0
    check_moments(x, 1 / 2, 1 / 12, 1 / 80)
    y = lamina.empty(N, dtype=dtype).uniform_(-1.0, 3.0, generator=generator)
    check_moments(y, 1.0, 16 / 12, 256 / 80)


@pytest.mark.parametrize("dtype", [lamina.float64, lamina.float32, lamina.float16, lamina.bfloat16])
def test_normal_numbers(generator, dtype):
    # halves are rounded to 8 or 11 bits, which adds a variance far below the error
    check_moments(lamina.randn(N, generator=generator, dtype=dtype), 0.0, 1.0, 3.0)
    check_moments(lamina.empty(N, dtype=dtype).normal_(1.0, 0.5, generator=generator), 1.0, 0.25, 3 * 0.25**2)


def test_neighbours_are_not_correlated(generator):
    for x in (lamina.rand(N, generator=generator) - 0.5, lamina.randn(N, generator=generator)):
        v = x.double().numpy()
        for lag in (1, 2, 4):
            r = (v[lag:] * v[:-lag]).mean() / v.var()
            assert abs(r) < SIGMAS / math.sqrt(N)


def test_exponential_numbers(generator):
    x = lamina.empty(N).exponential_(2.0, generator=generator)
    assert x.min().item() >= 0.0
    check_moments(x, 1 / 2, 1 / 4, 9 / 16)


def test_log_normal_numbers(generator):
    x = lamina.empty(N, dtype=lamina.float64).log_normal_(0.5, 0.25, generator=generator)
    check_moments(x.log(), 0.5, 0.25**2, 3 * 0.25**4)


def test_integers(generator):
    check_counts(lamina.randint(5, (N,), generator=generator), [1] * 5)
    check_counts(lamina.randint(-2, 2, (N,), generator=generator, dtype=lamina.int8).long() + 2, [1] * 4)
    check_counts(lamina.empty(N).random_(1, 4, generator=generator).long() - 1, [1] * 3)
    check_counts(lamina.empty(N, dtype=lamina.bool).random_(generator=generator).long(), [1, 1])


def test_bernoulli(generator):
    check_counts(lamina.bernoulli(lamina.full((N,), 0.3), generator=generator).long(), [0.7, 0.3])
    check_counts(lamina.empty(N).bernoulli_(0.9, generator=generator).long(), [0.1, 0.9])
    certain = lamina.tensor([0.0, 1.0])
    assert lamina.bernoulli(certain).tolist() == lamina.empty(2).bernoulli_(certain).tolist() == [0.0, 1.0]


def test_multinomial(generator):
    weights = lamina.tensor([1.0, 0.0, 3.0, 4.0])
    check_counts(lamina.multinomial(weights, N, replacement=True, generator=generator), [1, 0, 3, 4])
    rows = lamina.multinomial(weights.expand(500, 4), 3, generator=generator)
    assert rows.sort(1).values.unique(dim=0).tolist() == [[0, 2, 3]]
    first = lamina.multinomial(weights.expand(N, 4), 1, generator=generator)
    check_counts(first, [1, 0, 3, 4])


def test_permutations(generator):
    for n in (0, 1, 17):
        assert lamina.randperm(n, generator=generator).sort().values.tolist() == list(range(n))
    firsts = lamina.stack([lamina.randperm(3, generator=generator) for _ in range(3000)])
    check_counts(firsts[:, 0] * 2 + (firsts[:, 1] > firsts[:, 2]).long(), [1] * 6)  # each of the six orders


def test_dropout(generator):
    x = lamina.dropout(lamina.ones(N), 0.25, generator=generator)
    check_counts((x != 0).long(), [0.25, 0.75])
    assert lamina.tensor([0.0, 1 / 0.75]).tolist() == x.unique().tolist()
    y = lamina.ones(5)
    assert lamina.dropout(y, 0.25, False) is y and lamina.dropout(y, 0.0) is y
    assert lamina.dropout(y, 1.0).tolist() == [0.0] * 5


# ---- seeds and states --------------------------------------------------------------------------------------
DRAWS = [
    lambda g: lamina.rand(2, 3, generator=g), lambda g: lamina.randn(7, generator=g),
    lambda g: lamina.randint(9, (5,), generator=g), lambda g: lamina.randperm(9, generator=g),
    lambda g: lamina.bernoulli(lamina.full((9,), 0.5), generator=g),
    lambda g: lamina.multinomial(lamina.ones(9), 4, generator=g),
    lambda g: lamina.dropout(lamina.ones(9), generator=g),
    lambda g: lamina.empty(5).exponential_(generator=g), lambda g: lamina.empty(5).uniform_(generator=g),
    lambda g: lamina.normal(lamina.zeros(5), 1.0, generator=g),
    lambda g: lamina.rand_like(lamina.ones(5), generator=g),
    lambda g: lamina.randn_like(lamina.ones(5), generator=g), lambda g: lamina.empty(9).random_(generator=g),
]  # fmt: skip


@pytest.mark.parametrize("draw", DRAWS)
def test_a_seed_decides_the_numbers_and_a_draw_moves_on(draw):
    g = lamina.Generator().manual_seed(5)
    first, second = draw(g).tolist(), draw(g).tolist()
    assert first != second
    assert [draw(g.manual_seed(5)).tolist(), draw(g).tolist()] == [first, second]
    assert draw(lamina.Generator().manual_seed(6)).tolist() != first


@pytest.mark.parametrize("draw", DRAWS)
def test_the_default_generator_is_used_where_none_is_given(draw):
    lamina.manual_seed(5)
    assert draw(None).tolist() == draw(lamina.Generator().manual_seed(5)).tolist()


def test_a_state_can_be_taken_and_put_back():
    g = lamina.Generator().manual_seed(-3)
    lamina.rand(3, generator=g)
    state = g.get_state()
    expected = lamina.rand(5, generator=g).tolist()
    assert lamina.rand(5, generator=g).tolist() != expected
    for other in (g.set_state(state), lamina.Generator().set_state(state)):
        assert lamina.rand(5, generator=other).tolist() == expected
    g.set_state(state)
    for other in (g.clone_state(), copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert lamina.rand(5, generator=other).tolist() == expected
    assert lamina.rand(5, generator=g).tolist() == expected


def test_the_default_state_can_be_taken_and_put_back():
    state = lamina.get_rng_state()
    expected = lamina.rand(3).tolist()
    lamina.set_rng_state(state)
    assert lamina.rand(3).tolist() == expected


def test_fork_rng_gives_the_state_back():
    lamina.manual_seed(1)
    expected = lamina.rand(3).tolist()
    lamina.manual_seed(1)
    with lamina.fork_rng():
        lamina.rand(100)
    assert lamina.rand(3).tolist() == expected
    lamina.manual_seed(1)
    with lamina.fork_rng(enabled=False):
        lamina.rand(3)
    assert lamina.rand(3).tolist() != expected


def test_seeds():
    assert lamina.manual_seed(7) is lamina.default_generator and lamina.initial_seed() == 7
    g = lamina.Generator()
    assert g.seed() == g.initial_seed() and g.seed() != g.seed()
    assert g.manual_seed(np.int64(3)).initial_seed() == 3
    drawn = [lamina.rand(4, generator=g.manual_seed(seed)).tolist() for seed in (0, 1, 1 << 40, -1)]
    assert len({tuple(x) for x in drawn}) == 4  # every part of a seed counts


def test_threads_never_draw_the_same_numbers():
    lamina.manual_seed(3)
    found, barrier = [], threading.Barrier(4)

    def draw():
        barrier.wait(10)
        for _ in range(50):
            found.append(tuple(lamina.rand(3).tolist()))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    lamina.manual_seed(3)
    alone = [tuple(lamina.rand(3).tolist()) for _ in range(200)]
    assert sorted(found) == sorted(alone) and len(set(found)) == 200


# ---- shapes, dtypes, in place ------------------------------------------------------------------------------
def test_shapes_and_dtypes():
    assert lamina.rand(2, 3).shape == lamina.rand((2, 3)).shape == lamina.randn([2, 3]).shape == (2, 3)
    assert lamina.rand(0, 3).shape == (0, 3) and lamina.rand(()).shape == ()
    assert lamina.randint(5, size=(2,)).max().item() < 5 and lamina.randint(
        low=4, high=5, size=(2,)
    ).tolist() == [4, 4]
    assert lamina.randint(high=1, size=(3,)).tolist() == [0, 0, 0]
    assert (
        lamina.randint(5, (2,)).dtype is lamina.int64
        and lamina.randint(5, (2,), dtype=lamina.float16).dtype is lamina.float16
    )
    assert lamina.randint_like(lamina.ones(3), 7, 8).tolist() == [7.0, 7.0, 7.0]
    assert lamina.randperm(3, dtype=lamina.int32).dtype is lamina.int32
    assert lamina.rand(2, requires_grad=True).is_leaf and lamina.rand(2, requires_grad=True).requires_grad
    means = lamina.tensor([[0.0], [100.0]], dtype=lamina.float64)
    x = lamina.normal(means, lamina.zeros(3))
    assert x.tolist() == [[0.0] * 3, [100.0] * 3] and x.dtype is lamina.float64
    assert lamina.normal(5.0, 0.0, (2,)).tolist() == [5.0, 5.0]


def test_drawing_into_a_view_writes_the_base_and_counts():
    x = lamina.zeros(2, 3)
    assert x[0].uniform_(1.0, 2.0) is not x and x._version == 1
    assert (x[0] >= 1.0).all() and (x[1] == 0.0).all()
    y = x.t()
    y.random_(5, 6)
    assert x.tolist() == [[5.0] * 3] * 2


def test_what_was_saved_notices_a_draw():
    x = lamina.ones(2, requires_grad=True)
    y = x * 1.0
    z = y * y
    y.normal_()
    with pytest.raises(InplaceError, match="changed in place"):
        z.sum().backward()


def test_drawing_over_a_tensor_with_history_gives_zero_gradients():
    x = lamina.ones(2, requires_grad=True)
    y = x * 3.0
    y[:1].uniform_()
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 3.0]


@pytest.mark.parametrize("call, kind, says", [
    (lambda: lamina.rand(-1), ArgumentValueError, "rand: a size can't be negative"),
    (lambda: lamina.rand(2.0), ArgumentError, "rand"),
    (lambda: lamina.rand(2, dtype=lamina.int64), DTypeError, "must be a floating type"),
    (lambda: lamina.rand(2, generator=3), ArgumentError, "takes a lamina.Generator, not int"),
    (lambda: lamina.rand(2, device="cuda"), LaminaError, "there is no device cuda"),
    (lambda: lamina.randint(5), ArgumentError, "size must be a tuple of ints"),
    (lambda: lamina.randint(5, 5, (2,)), ArgumentValueError, "low must be less than high, not 5 and 5"),
    (lambda: lamina.randint(1.5, (2,)), ArgumentError, "randint: high must be an int, not float"),
    (lambda: lamina.randint(0, 300, (2,), dtype=lamina.uint8),
     ArgumentValueError, "out of bounds for lamina.uint8, which can't hold all of 0 … 299"),
    (lambda: lamina.empty(2, dtype=lamina.int8).random_(0, 129),
     ArgumentValueError, "out of bounds for lamina.int8, which can't hold all of 0 … 128"),
    (lambda: lamina.empty(2).random_(0), ArgumentValueError, "less than 'to', but got from=0 >= to=0"),
    (lambda: lamina.empty(2).random_(upto=3), ArgumentError, "unknown: upto"),
    (lambda: lamina.randperm(-1), ArgumentValueError, "n can't be negative"),
    (lambda: lamina.randperm(2.5), ArgumentError, "randperm: n must be an int, not float"),
    (lambda: lamina.normal(0.0, 1.0), ArgumentError, "size is needed where mean and std are numbers"),
    (lambda: lamina.normal(0.0, -1.0, (2,)), ArgumentValueError, "a standard deviation can't be negative"),
    (lambda: lamina.normal(lamina.zeros(2), -lamina.ones(2)),
     ArgumentValueError, "a standard deviation can't be negative"),
    (lambda: lamina.bernoulli(lamina.tensor([1.5])),
     ArgumentValueError, r"probabilities must lie in \[0, 1\]"),
    (lambda: lamina.bernoulli(lamina.tensor([math.nan])),
     ArgumentValueError, r"probabilities must lie in \[0, 1\]"),
    (lambda: lamina.bernoulli(0.5), ArgumentError, "takes a tensor of probabilities, not float"),
    (lambda: lamina.multinomial(lamina.ones(2), 3), ArgumentValueError, "3 draws without replacement"),
    (lambda: lamina.multinomial(lamina.tensor([-1.0, 1.0]), 1),
     ArgumentValueError, "weights must be finite, at least 0"),
    (lambda: lamina.multinomial(lamina.zeros(2), 1), ArgumentValueError, "not all 0 in a row"),
    (lambda: lamina.dropout(lamina.ones(2), 1.5), ArgumentValueError, r"p must lie in \[0, 1\], not 1.5"),
    (lambda: lamina.empty(2).uniform_(2.0, 1.0), ArgumentValueError, "from must not be greater than to"),
    (lambda: lamina.empty(2, dtype=lamina.int64).uniform_(),
     DTypeError, "uniform_: a floating tensor is needed"),
    (lambda: lamina.empty(2).normal_(0.0, -1.0),
     ArgumentValueError, "the standard deviation can't be negative"),
    (lambda: lamina.empty(2).exponential_(0.0), ArgumentValueError, "the rate must be greater than 0"),
    (lambda: lamina.empty(2).log_normal_(0.0, 0.0), ArgumentValueError, "must be greater than 0"),
    (lambda: lamina.empty(2).bernoulli_(math.nan), ArgumentValueError, r"p must lie in \[0, 1\]"),
    (lambda: lamina.ones(2, requires_grad=True).uniform_(), InplaceError, "a leaf that requires gradients"),
    (lambda: lamina.Generator("cuda"), ArgumentError, "there is no device cuda here"),
    (lambda: lamina.Generator().set_state(lamina.zeros(3)),
     ArgumentValueError, r"takes what get_state\(\) returned"),
    (lambda: lamina.manual_seed(1 << 64), ArgumentValueError, "does not fit into 64 bits"),
    (lambda: lamina.manual_seed(1.5), ArgumentError, "seed must be an int, not float"),
    (lambda: lamina.manual_seed(True), ArgumentError, "seed must be an int, not bool"),
])  # fmt: skip
def test_wrong_arguments_are_refused(call, kind, says):
    with pytest.raises(kind, match=says):
        call()
