"""What layers refuse, and what they do that has no counterpart to compare numbers with."""

import re

import numpy as np
import pytest

import lamina
import lamina.nn as nn
from lamina import ArgumentValueError, ShapeError
from lamina.nn import functional as F

REFUSED = {
    "conv groups": (
        lambda: nn.Conv2d(3, 4, 3, groups=2),
        "groups must be a positive integer and divide the channels",
    ),
    "conv mode": (
        lambda: nn.Conv2d(3, 4, 3, padding_mode="wrap"),
        "padding_mode must be one of .'zeros', 'reflect'",
    ),
    "conv same": (lambda: nn.Conv1d(3, 4, 3, stride=2, padding="same"), "padding='same' needs a stride of 1"),
    "transposed size": (
        lambda: nn.ConvTranspose1d(1, 1, 3, stride=2)(lamina.ones(1, 1, 4), output_size=[12]),
        "output_size \\[12\\] is not between \\[9\\] and \\[10\\]",
    ),
    "dropout": (lambda: nn.Dropout(1.5), "Dropout\\(p\\): a probability lies between 0 and 1, not at 1.5"),
    "batch rank": (lambda: nn.BatchNorm2d(3)(lamina.ones(2, 3)), "takes an input of 4 dimensions, not 2"),
    "instance channels": (
        lambda: nn.InstanceNorm1d(3, affine=True)(lamina.ones(2, 4, 5)),
        "the input has 4 channels, not 3",
    ),
    "group": (lambda: nn.GroupNorm(4, 6), "num_channels must be divisible by num_groups"),
    "embedding padding": (
        lambda: nn.Embedding(3, 2, padding_idx=3),
        "padding_idx 3 is outside the table of 3 rows",
    ),
    "embedding weight": (lambda: nn.Embedding.from_pretrained(lamina.ones(3)), "a matrix is wanted"),
    "lstm features": (lambda: nn.LSTM(3, 4)(lamina.ones(5, 2, 2)), "LSTM: 3 features are wanted, not 2"),
    "lstm rank": (lambda: nn.LSTM(3, 4)(lamina.ones(3)), "LSTM takes an input of 2 or 3 dimensions, not 1"),
    "lstm state": (
        lambda: nn.LSTM(3, 4)(lamina.ones(5, 2, 3), (lamina.ones(1, 2, 4), lamina.ones(1, 3, 4))),
        "c_0 must have shape \\[1, 2, 4\\], not \\[1, 3, 4\\]",
    ),
    "lstm pair": (
        lambda: nn.LSTM(3, 4)(lamina.ones(5, 2, 3), lamina.ones(1, 2, 4)),
        "hx must be a tuple \\(h_0, c_0",
    ),
    "rnn kind": (
        lambda: nn.RNN(3, 4, nonlinearity="step"),
        "Unknown nonlinearity: it must be 'tanh' or 'relu', not 'step'",
    ),
    "cell state": (
        lambda: nn.GRUCell(3, 4)(lamina.ones(2, 3), lamina.ones(2, 3)),
        "h must have shape \\[2, 4\\]",
    ),
    "heads": (lambda: nn.MultiheadAttention(5, 2), "embed_dim must be divisible by num_heads \\(5 by 2\\)"),
    "mask": (
        lambda: nn.MultiheadAttention(4, 2)(*[lamina.ones(3, 1, 4)] * 3, attn_mask=lamina.ones(2, 2)),
        "attn_mask must have shape \\[3, 3\\] or \\[2, 3, 3\\], not \\[2, 2\\]",
    ),
    "activation": (
        lambda: nn.TransformerEncoderLayer(4, 2, activation="step"),
        "must be 'relu', 'gelu' or a function",
    ),
    "reduction": (lambda: nn.MSELoss(reduction="average"), "average"),
    "pad": (lambda: nn.ZeroPad2d((1, 2)), "one int or 4 are wanted, not 2"),
    "interpolate": (
        lambda: F.interpolate(lamina.ones(1, 1, 4), 3, mode="bilinear"),
        "is no mode for 1 spatial",
    ),
    "interpolate size": (lambda: F.interpolate(lamina.ones(1, 1, 4)), "give either size or scale_factor"),
    "one_hot": (lambda: F.one_hot(lamina.tensor([0, 4]), 3), "class 4 is not between 0 and 2"),
    "bag": (
        lambda: F.embedding_bag(lamina.tensor([1]), lamina.ones(3, 2)),
        "the input is \\[B, n\\], or \\[n\\] with off",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, text = REFUSED[name]
    with pytest.raises((ShapeError, ArgumentValueError), match=text):
        call()


@pytest.fixture(autouse=True)
def seed():
    lamina.manual_seed(0)


def test_dropout_drops_and_scales():
    x = lamina.ones(100, 100, requires_grad=True)
    layer = nn.Dropout(0.3)
    y = layer(x)
    y.sum().backward()
    kept = y.detach().numpy() != 0
    assert abs(kept.mean() - 0.7) < 5 * 0.46 / 100  # five deviations sqrt(0.3 * 0.7 / 10,000)
    assert set(np.unique(y.detach().numpy())) == {np.float32(0), np.float32(1) / np.float32(0.7)}
    assert (x.grad.numpy() == y.detach().numpy()).all()
    assert (layer(x).detach().numpy() != y.detach().numpy()).any()
    assert layer.eval()(x) is x
    assert not nn.Dropout(1.0)(x).any()
    z = lamina.ones(10, 10)
    assert nn.Dropout(0.5, inplace=True)(z) is z and (z == 0).any()


def test_dropout_of_channels():
    for layer, shape in (
        (nn.Dropout1d(), (50, 8, 5)),
        (nn.Dropout2d(), (50, 8, 2, 3)),
        (nn.Dropout3d(), (400, 2, 2, 2)),
    ):
        y = layer(lamina.ones(*shape)).numpy()
        rows = (
            y.reshape(-1, int(np.prod(shape[-2:]))) if layer.__class__ is nn.Dropout2d else y.reshape(400, -1)
        )
        assert (rows == rows[:, :1]).all() and set(np.unique(rows)) == {0.0, 2.0}
        assert abs((rows[:, 0] == 0).mean() - 0.5) < 5 * 0.5 / 20  # of 400 channels


def test_alpha_dropout_keeps_mean_and_variance():
    y = nn.AlphaDropout(0.2)(lamina.randn(200, 200)).numpy().astype(np.float64)
    assert abs(y.mean()) < 5 / 200
    # The fourth moment of the mixture is below 5, so the variance's deviation below sqrt(5 - 1) / 200.
    assert abs(y.var() - 1) < 5 * 2 / 200


def test_rrelu_draws_its_slopes():
    x = -lamina.ones(1000)
    y = -nn.RReLU(0.2, 0.4)(x).numpy()
    assert 0.2 <= y.min() < 0.21 and 0.39 < y.max() < 0.4
    assert np.allclose(nn.RReLU(0.2, 0.4).eval()(x).numpy(), -0.3)


def test_gumbel_softmax_draws_like_its_logits():
    shares = np.array([0.1, 0.2, 0.7])
    logits = lamina.tensor(np.log(shares)).expand(4000, 3).clone().requires_grad_()
    y = F.gumbel_softmax(logits, tau=0.5, hard=True)
    # one-hot up to the rounding of 1 - s + s
    values = y.detach().numpy()
    assert np.abs(values.sum(1) - 1).max() < 4 * np.finfo(np.float64).eps
    assert np.abs(values.mean(0) - shares).max() < 5 * 0.5 / np.sqrt(4000)
    (y * lamina.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert (logits.grad != 0).any()


def test_attention_drops_weights_in_training():
    layer = nn.MultiheadAttention(4, 2, dropout=0.5)
    x = lamina.randn(6, 2, 4)
    dropped = layer(x, x, x)[1].detach().numpy()
    sums = layer.eval()(x, x, x)[1].detach().numpy().sum(-1)
    assert (np.abs(dropped.sum(-1) - 1) > 0.01).any()
    assert np.abs(sums - 1).max() < 16 * np.finfo(np.float32).eps  # 6 weights of 2 heads
    q = lamina.randn(2, 3, 4)
    out = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    assert (out.numpy() != F.scaled_dot_product_attention(q, q, q).numpy()).any()


def test_recurrent_dropout_between_layers_only():
    with pytest.warns(UserWarning, match="dropout comes between layers"):
        one = nn.GRU(3, 4, dropout=0.5)
    two = nn.GRU(3, 4, 2, dropout=0.5)
    x = lamina.randn(5, 2, 3)
    assert (one(x)[0] == one(x)[0]).all() and (two(x)[0] != two(x)[0]).any()
    two.eval()
    assert (two(x)[0] == two(x)[0]).all()


def test_embedding_max_norm_and_pretrained():
    table = nn.Embedding.from_pretrained(lamina.tensor([[3.0, 4.0], [0.3, 0.4]]), max_norm=1.0)
    assert not table.weight.requires_grad
    out = table(lamina.tensor([0, 1, 0])).numpy()
    np.testing.assert_allclose(out[0], [0.6, 0.8], rtol=1e-6)  # the norm is divided by itself plus 1e-7
    assert out[1].tolist() == [np.float32(0.3), np.float32(0.4)]
    assert (table.weight[0] == lamina.from_numpy(out[0])).all()


def test_one_hot():
    assert F.one_hot(lamina.tensor([[0, 2]])).tolist() == [[[1, 0, 0], [0, 0, 1]]]
    assert F.one_hot(lamina.tensor([1]), num_classes=4).dtype is lamina.int64


def test_max_pool_gives_indices_for_unpooling():
    x = lamina.tensor([[[1.0, 5.0, 2.0, 3.0]]])
    out, places = F.max_pool1d(x, 2, return_indices=True)
    assert places.tolist() == [[[1, 3]]]
    assert F.max_unpool1d(out, places, 2).tolist() == [[[0.0, 5.0, 0.0, 3.0]]]


def test_batch_norm_without_batches_is_refused_in_training_only():
    layer = nn.BatchNorm1d(3)
    with pytest.raises(ArgumentValueError):
        layer(lamina.ones(1, 3))
    layer.reset_running_stats()
    assert layer.num_batches_tracked.item() == 0
    assert layer.eval()(lamina.ones(1, 3)).shape == (1, 3)


def test_batch_norm_without_momentum_averages_all_batches():
    layer = nn.BatchNorm1d(1, momentum=None)
    for value in (1.0, 2.0, 6.0):
        layer(lamina.full((4, 1), value))
    # each step multiplies and adds once: two roundings of numbers up to 6
    assert abs(layer.running_mean.item() - 3.0) < 3 * 2 * 6 * np.finfo(np.float32).eps
    assert layer.num_batches_tracked.item() == 3


def test_subsequent_mask():
    inf = float("inf")
    assert nn.Transformer.generate_square_subsequent_mask(2).tolist() == [[0.0, -inf], [0.0, 0.0]]


@pytest.mark.parametrize("padding, size", [(2, -1), (3, -3), ((1, 2), [1, -1])])
def test_a_transposed_convolution_of_which_padding_leaves_nothing_is_refused(padding, size):
    layer = nn.ConvTranspose2d(3, 4, 3, padding=padding)
    sizes = size if isinstance(size, list) else [size, size]
    with pytest.raises(lamina.ShapeError, match=re.escape(f"its sizes would be {sizes}")):
        layer(lamina.ones(1, 3, 1, 1))


def test_local_response_norm_of_nothing_is_it():
    for dtype in (lamina.float32, lamina.int64):
        x = lamina.zeros(0, 1, 2, dtype=dtype)
        assert F.local_response_norm(x, 1) is x
