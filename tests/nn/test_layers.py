"""What layers refuse, and what they do that has no counterpart to compare numbers with."""

import itertools
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
        "expected input.s size at dim=1 to match num_features \\(3\\), but got: 4",
    ),
    "group": (lambda: nn.GroupNorm(4, 6), "num_channels must be divisible by num_groups"),
    "embedding padding": (
        lambda: nn.Embedding(3, 2, padding_idx=3),
        "Padding_idx must be within num_embeddings, which is 3; it is 3",
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
        "an input of one dimension needs offsets",
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


def test_gradients_of_rows_have_places_of_their_own():
    table, rows = nn.Embedding(10, 3, sparse=True), lamina.tensor([7, 1, 3])
    table(rows).sum().backward()
    rows[0] = 8
    assert table.weight.grad._indices().tolist() == [[7, 1, 3]]
    table(rows).sum().backward()
    assert table.weight.grad._indices().tolist() == [[7, 1, 3, 8, 1, 3]]  # as they come, like PyTorch's
    assert not table.weight.grad.is_coalesced()
    assert table.weight.grad.to_dense().sum(1).tolist() == [0, 6, 0, 6, 0, 0, 0, 3, 3, 0]
    out = table(rows).sum()
    rows[0] = 2
    with pytest.raises(RuntimeError, match="saved for backward was changed in place"):
        out.backward()


@pytest.mark.parametrize(("rows", "width"), [(0, 0), (10, 0), (0, 3)])
def test_gradients_of_empty_tables_are_sparse(rows, width):
    table = nn.Embedding(rows, width, sparse=True)
    table(lamina.tensor([0, 2] if rows else [], dtype=lamina.int64)).sum().backward()
    assert table.weight.grad.is_sparse and table.weight.grad.shape == (rows, width)


def test_scaling_rows_down_has_no_derivative():
    weight, tangent = 4 * lamina.ones(3, 4), lamina.ones(3, 4)
    with lamina.autograd.forward_ad.dual_level():
        dual = lamina.autograd.forward_ad.make_dual(weight, tangent)
        out = F.embedding(lamina.tensor([0, 2]), dual, max_norm=1.0)
        found = lamina.autograd.forward_ad.unpack_dual(out)
    assert found.tangent.tolist() == [[1.0] * 4] * 2
    assert weight.norm(dim=1).tolist() == [pytest.approx(1), 8, pytest.approx(1)]


@pytest.mark.parametrize(("call", "kind", "says"), [
    (lambda: nn.Embedding(3, 2, padding_idx=-4), AssertionError, "Padding_idx must be within num_embeddings"),
    (lambda: nn.EmbeddingBag(3, 2, padding_idx=3), AssertionError, "padding_idx must be within num_embeddi"),
    (lambda: F.embedding(lamina.tensor([0]), lamina.ones(3, 2), padding_idx=3), AssertionError, "Padding"),
    (
        lambda: F.embedding_bag(lamina.tensor([[0]]), lamina.ones(3, 2), padding_idx=3),
        RuntimeError, "padding_idx must be within the number of embeddings",
    ),
    (lambda: F.embedding(lamina.tensor([0]), lamina.ones(3)), RuntimeError, "'weight' must be 2-D"),
    (lambda: F.embedding_bag(lamina.ones(1, 1, 1).long(), lamina.ones(3, 2)), ValueError, "to be 1D or 2D"),
    (
        lambda: F.embedding_bag(lamina.tensor([0]), lamina.ones(3, 2), lamina.tensor([[0]])),
        ValueError, "offsets has to be a 1D Tensor",
    ),
    (
        lambda: F.embedding_bag(lamina.tensor([0]), lamina.ones(3), lamina.tensor([0])),
        ValueError, "weight has to be a 2D Tensor",
    ),
])  # fmt: skip
def test_refusals_of_tables_are_pytorchs(call, kind, says):
    with pytest.raises(kind, match=says):
        call()


@pytest.mark.parametrize(("shapes", "masks", "says"), [
    ([(4, 4, 4), (4, 4), (4, 4, 4)], {}, "`key` and `value` to be 3-D but found 2-D and 3-D tensors resp"),
    ([(4, 4), (4, 4), (4, 4, 4)], {}, "`key` and `value` to be 2-D but found 2-D and 3-D tensors resp"),
    ([(4,)] * 3, {}, "query should be unbatched 2D or batched 3D tensor but received 1-D"),
    ([(4, 4, 4)] * 3, {"key_padding_mask": (3,)}, "`key_padding_mask` to be `None` or 2-D but found 1-D"),
    ([(4, 4)] * 3, {"key_padding_mask": (1, 4)}, "`key_padding_mask` to be `None` or 1-D but found 2-D"),
    ([(4, 4, 4)] * 3, {"attn_mask": (3,)}, "`attn_mask` to be `None`, 2-D or 3-D but found 1-D tensor"),
    ([(4, 4)] * 3, {"attn_mask": (5, 4, 4)}, r"`attn_mask` shape to be \(2, 4, 4\) but got \(5, 4, 4\)"),
    ([(4, 4, 6), (4, 4, 4), (4, 4, 4)], {}, "was expecting embedding dimension of 4, but got 6"),
])  # fmt: skip
def test_attention_asserts_ranks_as_pytorchs(shapes, masks, says):
    given = {name: lamina.zeros(*shape, dtype=lamina.bool) for name, shape in masks.items()}
    with pytest.raises(AssertionError, match=says):
        nn.MultiheadAttention(4, 2)(*(lamina.ones(*shape) for shape in shapes), **given)


@pytest.mark.parametrize(("sizes", "settings", "says"), [
    (2, {"kernel_size": (1,), "output_size": 3}, "kernel_size must either be a single int or 2 ints"),
    (2, {"kernel_size": (), "output_size": 3}, "kernel_size must either be a single int or 2 ints"),
    (3, {"kernel_size": 2, "output_size": (3, 3)}, "output_size must either be a single int or 3 ints"),
    (2, {"kernel_size": 2, "output_size": (9, 3)}, "too large relative to input height"),
    (2, {"kernel_size": 2, "output_size": (3, 9)}, "too large relative to input width"),
    (3, {"kernel_size": 2, "output_size": (9, 3, 3)}, "too large relative to input time"),
])  # fmt: skip
def test_fractional_pools_refuse_as_pytorchs(sizes, settings, says):
    with pytest.raises(RuntimeError, match=says):
        getattr(F, f"fractional_max_pool{sizes}d")(lamina.ones(1, 2, *[7] * sizes), **settings)


@pytest.mark.parametrize("norm", [nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d])
@pytest.mark.parametrize("batch", [True, False])
def test_instance_norms_name_the_dimension_of_channels(norm, batch):
    x = lamina.randn(*[3] * batch, *[2] * norm(1)._get_no_batch_dim())
    says = f"input's size at dim={int(batch)}"
    with pytest.raises(ValueError, match=f"expected {says} to match num_features .4., but got: 2"):
        norm(4, affine=True)(x)
    with pytest.warns(UserWarning, match=f"{says} does not match num_features"):
        norm(4)(x)


@pytest.mark.parametrize("loss", [F.nll_loss, F.cross_entropy])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_class_of_one_example_may_be_a_tensor_of_one_element(loss, reduction):
    scores = lamina.randn(3, requires_grad=True)
    plain = loss(scores, lamina.tensor(1), reduction=reduction)
    found = loss(scores, lamina.tensor([1]), reduction=reduction)
    assert found.shape == () and found.item() == plain.item()
    assert loss(lamina.zeros(1), lamina.tensor([0])).item() == 0
    with pytest.raises(RuntimeError):
        loss(scores, lamina.tensor([1, 1, 1]))


@pytest.mark.parametrize("classes", [10, 600])
@pytest.mark.parametrize("settings", [{}, {"label_smoothing": 0.2, "reduction": "sum"}])
@pytest.mark.parametrize("traced", [False, True])
def test_cross_entropy_of_large_scores_is_as_precise_as_of_small_ones(classes, settings, traced):
    """Beside scores of 10,000 their log-sum-exp in float32 is off by half a thousandth."""
    random = np.random.default_rng(0)
    scores = (random.standard_normal((16, classes)) * 3 + 1e4).astype(np.float32)
    target = lamina.tensor(random.integers(0, classes, 16))

    def of(x):
        loss = lamina.jit.trace(lambda x: F.cross_entropy(x, target, **settings))
        loss = loss if traced else loss.__wrapped__
        for _ in range(3):
            x = x.detach().requires_grad_()
            out = loss(x)
            (slope,) = lamina.autograd.grad(out, x, create_graph=True)
            (second,) = lamina.autograd.grad((slope * slope).sum(), x)
        return out, slope, second

    for found, wanted in zip(of(lamina.tensor(scores)), of(lamina.tensor(scores).double()), strict=True):
        wanted = wanted.detach().numpy()
        np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-5, atol=4e-6 * abs(wanted).max())


def test_multilabel_margin_loss_of_one_class_takes_its_target_with_a_dim_or_without():
    scores = (lamina.tensor(0.5), lamina.tensor([0.5]))
    for input, target in itertools.product(scores, (lamina.tensor(0), lamina.tensor([0]))):
        assert F.multilabel_margin_loss(input, target, reduction="none").shape == ()


@pytest.mark.parametrize("loss", [F.multi_margin_loss, F.multilabel_margin_loss])
@pytest.mark.parametrize("shape", [(0,), (10, 0), (2, 3, 4)])
def test_margins_need_scores(loss, shape):
    with pytest.raises(
        RuntimeError, match="Expected non-empty vector or matrix with optional 0-dim batch size"
    ):
        loss(lamina.zeros(*shape), lamina.ones(10).long())
    many = lamina.zeros(0, 4, requires_grad=True)  # no examples, though
    loss(many, lamina.ones(*((0, 4) if loss is F.multilabel_margin_loss else (0,))).long()).backward()
    assert many.grad.shape == (0, 4)


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_of_a_sparse_weight(layout, shape, bias):
    weight = lamina.randn(5, 4, dtype=lamina.float64)
    weight[lamina.rand(5, 4) < 0.5] = 0
    sparse = nn.Parameter(getattr(weight, layout)())
    assert isinstance(sparse, nn.Parameter) and sparse.layout is not lamina.strided
    b = lamina.randn(5, dtype=lamina.float64, requires_grad=True) if bias else None
    x = lamina.randn(*shape, dtype=lamina.float64, requires_grad=True)
    dense = weight.clone().requires_grad_()
    out, wanted = F.linear(x, sparse, b), F.linear(x, dense, b)
    g = lamina.randn(*out.shape, dtype=lamina.float64)
    found = lamina.autograd.grad(out, [x, sparse, *[b] * bias], g)
    known = lamina.autograd.grad(wanted, [x, dense, *[b] * bias], g)
    # sums of four products, in another order
    np.testing.assert_allclose(out.detach().numpy(), wanted.detach().numpy(), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found[0].numpy(), known[0].numpy(), rtol=1e-13, atol=1e-14)
    at_places = lamina.where(weight != 0, known[1], 0.0)  # a sparse tensor's gradient has its places
    np.testing.assert_allclose(found[1].to_dense().numpy(), at_places.numpy(), rtol=1e-13, atol=1e-14)
    if bias:
        np.testing.assert_allclose(found[2].numpy(), known[2].numpy(), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("affine", [True, False])
def test_running_statistics_have_gradients_in_both_modes(affine):
    """They were constants to both, silently; PyTorch refuses them."""
    sizes = [(3, 2, 5), (2,), (2,), *[(2,)] * (2 * affine)]
    x, mean, var, *more = (lamina.rand(*size, dtype=lamina.float64) + 0.5 for size in sizes)

    def norm(*given):
        return F.batch_norm(*given, training=False)

    given = [t.requires_grad_() for t in (x, mean, var, *more)]
    assert lamina.autograd.gradcheck(norm, given, check_forward_ad=True)
    assert lamina.autograd.gradgradcheck(norm, given)


@pytest.mark.parametrize("which", ["key", "value"])
def test_attention_has_no_bias_for_static_keys(which):
    m, x = nn.MultiheadAttention(4, 2, add_bias_kv=True), lamina.ones(3, 1, 4)
    with pytest.raises(AssertionError, match=f"bias cannot be added to static {which}"):
        F.multi_head_attention_forward(
            x, x, x, 4, 2, m.in_proj_weight, m.in_proj_bias, m.bias_k, m.bias_v, False, 0.0,
            m.out_proj.weight, m.out_proj.bias, **{f"static_{which[0]}": lamina.ones(2, 3, 2)},
        )  # fmt: skip


@pytest.mark.parametrize("half", [lamina.float16, lamina.bfloat16])
@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.BatchNorm2d(6),
        lambda: nn.BatchNorm2d(6).eval(),
        lambda: nn.GroupNorm(2, 6),
        lambda: nn.InstanceNorm2d(6, affine=True),
        lambda: nn.LayerNorm(4),
        lambda: nn.RMSNorm(4),
    ],
)
def test_norms_of_halves_beside_weights_in_float32(make, half):
    """As mixed precision has them: the result is of the input's dtype, and rounded once."""
    module = make()
    for p in module.parameters():
        with lamina.no_grad():
            p.uniform_(0.5, 1.5)
    x = lamina.randn(3, 6, 5, 4).to(half)
    y = module(x.requires_grad_())
    y.backward(lamina.ones_like(y))
    exact = module.double()(x.detach().double())
    assert y.dtype is x.grad.dtype is half
    # statistics in float32 move numbers by less than the 16th part of a half's last bit
    assert (
        abs(y.double() - exact) <= lamina.finfo(half).eps * (0.5 + 1 / 16) * abs(exact).clamp(min=0.01)
    ).all()
