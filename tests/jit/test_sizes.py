"""Sizes that are symbols: one recording serves all that its guards admit, and none that they don't."""

from __future__ import annotations

import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import lamina
from lamina import jit, nn, profiler
from lamina.ir.dims import hints, limits
from lamina.ir.errors import ArgumentError
from lamina.jit import backend, sized
from lamina.jit.sized import Sized
from lamina.nn import functional as F
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.generate import open_code
from lamina.passes.schedules.steps import Residues
from lamina.runtime import memory

SIZES = (4, 6, 8, 5, 3, 7, 9)


def tensor(*shape):
    return lamina.tensor(np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32))


def whole(most, *shape):
    return lamina.tensor(np.random.default_rng(sum(shape)).integers(0, most, shape))


def close(found, wanted):
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=3e-4, atol=3e-5)


def serve(function, given, recordings, sizes=SIZES, **options):
    """Call a function on arguments of many sizes, traced and not; it is recorded so many times."""
    traced = jit.trace(function, budget=None, **options)
    for n in sizes:
        with lamina.no_grad():
            close(traced(*given(n)), function(*given(n)))
    counts = traced.counts()
    assert counts["recorded"] == recordings, traced.explain(detail=True)
    assert counts["served"] == len(sizes) - recordings, traced.explain(detail=True)
    return traced


# ---- what stays one recording ------------------------------------------------------------------------------
def attend(x):
    batch, time, channels = x.shape
    y = x.view(batch, time, 2, channels // 2).transpose(1, 2)
    return (y @ y.transpose(-2, -1)).softmax(-1).sum(-1).reshape(batch, -1).mean()


SERVED = {
    "pointwise": lambda x: x * 2 + 1,
    "mean": lambda x: x.mean(0) + x.std(0) + x.var(1).sum(),
    "numbers": lambda x: x.sum(0) / x.shape[0] + x.sum() / x.numel() + len(x) + x.size(0) * 2,
    "cat": lambda x: lamina.cat([x, x[1:], x[:-1] * 2], 0).cumsum(0),
    "flatten": lambda x: x.flatten() + x.reshape(-1).sum(),
    "pad": lambda x: F.pad(x, (1, 2)),
    "made": lambda x: (
        x + lamina.zeros(x.shape[0], 7) + lamina.ones_like(x) + lamina.arange(x.shape[0])[:, None]
    ),
    "stacked": lambda x: lamina.stack([x, x * 2]).permute(1, 0, 2).reshape(x.shape[0], -1),
    "unpacked": lambda x: (lambda n, c: x.view(n * c).reshape(c, n).t().contiguous())(*x.shape),
    "expanded": lambda x: x[:, None].expand(x.shape[0], 3, 7).sum(1) - x,
    "tensor of sizes": lambda x: x * lamina.full((x.shape[0], 1), 2.0),
    "list": lambda x: lamina.cat([x] * 3, 0).view(3, x.shape[0], 7).sum(0),
    "squeezed": lambda x: x.squeeze() + x[:, None].squeeze(1) + x.squeeze(0),
    "assigned": lambda x: written(x, assigned),
    "written": lambda x: written(x, lambda y, n: y[1:].zero_() + y[0].fill_(n) + y[-1:].mul_(3)),
    "into a buffer": lambda x: into(lamina.zeros(20, 7), x),
    "columns apart": lambda x: sum(x.chunk(7, 1)) + sum(x.t())[:1] + sum(x.unbind(1))[:, None],
    "shapes": lambda x: x * 2 if x.shape == (x.size(0), 7) and x.shape[1:] == (7,) else x,
    "lists of sizes": lambda x: x.reshape(list(x.shape)) + lamina.zeros(tuple(x.shape)),
    "products": lambda x: x.reshape(math.prod(x.shape)).view(x.shape) + x.view(x.shape.numel()).sum(),
    "how many sizes": lambda x: x.reshape([*x.shape][: len(x.shape)]).sum(len(x.shape) - 1),
    "divmod": lambda x: x * divmod(x.shape[0], 2)[0] + divmod(x.shape[0], 3)[1],
    "floats": lambda x: x * float(x.shape[0]) + x / math.sqrt(len(x)) + x.shape[0] ** 0.5 * (1 / len(x)),
    "extremes": lambda x: x * max(x.shape[0], 5) + min(len(x), x.shape[1]) + max(x.shape),
    "positions": lambda x: x * ((lamina.arange(x.shape[0]) + x.shape[0]) / x.shape[0])[:, None],
    "below": lambda x: x * (lamina.arange(20) < x.shape[0]).sum() + (lamina.arange(9) % x.shape[0]).sum(),
    "tril": lambda x: (x @ x.t()).masked_fill(lamina.ones(len(x), len(x)).tril() == 0, -1e9).softmax(-1),
    "linspace": lambda x: x * lamina.linspace(0, 1, x.shape[0])[:, None],
    "one hot": lambda x: F.one_hot((x[:, 0] > 0).to(lamina.int64), 5) + x[:, :5],
    "norms": lambda x: F.layer_norm(x, x.shape[1:]) + F.rms_norm(x, (7,)) + F.normalize(x, dim=0),
    "similarities": lambda x: F.cross_entropy(x @ x.t(), lamina.arange(x.shape[0])),
}


def written(x, write):
    y = x.clone()
    write(y, x.shape[0])
    return y


def assigned(y, n):
    y[: n // 3 + 1, 0] = 1.0
    y[lamina.arange(n), 1] = y[:, 2] * 2
    y[y > 0] = -0.5
    y[-1] = n
    y[:, 3:5] += 1


def into(buffer, x):
    buffer[: x.shape[0]] = x
    buffer[: len(x), 1:3].copy_(x[:, :2])
    return buffer.sum(0)


@pytest.mark.parametrize("name", SERVED)
def test_one_recording_serves_all_sizes(name):
    serve(SERVED[name], lambda n: (tensor(n, 7),), 2)


def test_two_sizes_change_at_once():
    serve(attend, lambda n: (tensor(n, n + 1, 8),), 2)


# What is a part of one, or of none, is another case.
ROUNDED = {
    "int": lambda x: x[: int(x.shape[0] * 0.6)].sum(0),
    "ceil": lambda x: x[: math.ceil(x.shape[0] / 2)].sum(0) + x[-(-x.shape[0] // 2) :].sum(0),
    "shifted": lambda x: x[: x.shape[0] >> 1].sum(0),
    "padded": lambda x: F.pad(x, (0, 0, 0, -x.shape[0] % 4)).view(-1, 4, 7).sum(0),
    "halves": lambda x: lamina.cat([c * i for i, c in enumerate(x.chunk(2))]),
    "split": lambda x: x.split([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2])[1].sum(0),
    "tensor_split": lambda x: sum(c.sum(0) * i for i, c in enumerate(x.tensor_split(2))),
    "topk": lambda x: x.topk(x.shape[0] // 2, 0)[0].sum(0),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_sizes(name):
    serve(ROUNDED[name], lambda n: (tensor(n, 7),), 2, (6, 10, 14, 18, 22))


IMAGES = {
    "patches": lambda x: x.reshape(
        x.shape[0], 3, x.shape[2] // 4, 4, x.shape[3] // 4, 4
    ).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2),
    "shuffled": lambda x: F.pixel_unshuffle(x, 2),
    "twice": lambda x: F.interpolate(x, scale_factor=2) + F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "half": lambda x: F.interpolate(x, scale_factor=0.5),
    "as another": lambda x: x + F.interpolate(F.max_pool2d(x, 2), size=x.shape[-2:], mode="bicubic"),
    "one pool": lambda x: F.adaptive_avg_pool2d(x, 1) + F.avg_pool2d(x, x.shape[2:]),
    "sampled": lambda x: F.grid_sample(
        x, F.affine_grid(lamina.eye(2, 3)[None].expand(x.shape[0], -1, -1), x.size(), align_corners=False),
        align_corners=False,
    ),
    "gated": lambda x: F.glu(x, 2) * sum(x.chunk(2, 3)).mean(),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_images_of_any_size(name):
    serve(IMAGES[name], lambda n: (tensor(2, 3, 4 * n, 4 * n + 4),), 2, (4, 6, 8, 3))


def batches(n):
    return tensor(n, n + 1, 8), whole(n, n) + 1


def masked(attend):
    def f(x, lengths):
        padded = lamina.arange(x.shape[1])[None] >= lengths[:, None]
        return attend(x, padded, nn.Transformer.generate_square_subsequent_mask(x.shape[1]))

    return f


def attention(x, padded, causal):
    y = x.view(*x.shape[:2], 2, 4).transpose(1, 2)
    mask = lamina.ones(x.shape[1], x.shape[1]).tril().bool()
    found = F.scaled_dot_product_attention(y, y, y, attn_mask=mask)
    return found + F.scaled_dot_product_attention(y, y, y, is_causal=True)


def test_attention_with_masks():
    lamina.manual_seed(0)
    heads = nn.MultiheadAttention(8, 2, batch_first=True)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    above = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)
    ways = (
        attention,
        lambda x, padded, causal: heads(x, x, x, key_padding_mask=padded, need_weights=False)[0],
        lambda x, padded, causal: heads(x, x, x, attn_mask=causal)[0],
        lambda x, padded, causal: layer(x, src_mask=causal, is_causal=True),
        lambda x, padded, causal: above(x, layer(x, src_key_padding_mask=padded), tgt_mask=causal),
    )
    for way in ways:
        serve(masked(way), batches, 2, (4, 6, 8, 5))


def test_statistics_of_batches():
    """Running statistics move as they do undecorated, whatever the size of a batch."""
    plain, traced = (nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU()) for _ in range(2))
    traced.load_state_dict(plain.state_dict())
    run = jit.trace(traced, budget=None)
    for n in SIZES:
        close(run(tensor(n, 3, n + 2)), plain(tensor(n, 3, n + 2)))
    for mine, theirs in zip(traced.buffers(), plain.buffers(), strict=True):
        close(mine, theirs)
    assert run.counts()["recorded"] == 2, run.explain(detail=True)


def test_modules_of_the_library():
    mlp = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 4))
    serve(mlp, lambda n: (tensor(n, 16),), 2)


def test_convolutions():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    ).eval()  # fmt: skip
    serve(net, lambda n: (tensor(n, 3, 16, 16),), 2, (4, 6, 8, 5, 3))


def test_a_batch_through_a_recurrent_network():
    lstm = nn.LSTM(8, 16, batch_first=True).eval()
    serve(lambda x: lstm(x)[0], lambda n: (tensor(n, 5, 8),), 2, (4, 6, 8, 5, 3))


def test_random_numbers_are_those_of_eager():
    def f(x):
        y = F.dropout(F.dropout(x, 0.5) * 2, 0.3) + lamina.randn_like(x) + lamina.rand(x.shape[0], 7)
        y = y + F.dropout1d(x[None], 0.5)[0] + x.new_empty(x.shape[0], 1).bernoulli_(0.5)
        y = y + lamina.normal(x, 2.0) + lamina.empty_like(x).exponential_() + F.gumbel_softmax(x, hard=True)
        y = y + lamina.randint(0, x.shape[0], (x.shape[0], 1)) + lamina.multinomial(x.softmax(-1), 2).sum()
        return y[lamina.randperm(x.shape[0])]

    traced = jit.trace(f, budget=None)
    for n in SIZES:
        found = []
        for function in (traced, f):
            lamina.manual_seed(n)
            found.append(
                (function(tensor(n, 7)), function(tensor(n, 7)))
            )  # the second goes on from the first
        for a, b in zip(*found, strict=True):
            close(a, b)
    assert traced.counts()["recorded"] == 2


# ---- training ----------------------------------------------------------------------------------------------
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True), 2)
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        return self.out(self.layers(self.embed(x)).mean(1))


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        x = F.relu(self.second(F.max_pool2d(F.relu(self.first(x)), 2)))
        return self.out(F.adaptive_avg_pool2d(x, 1).flatten(1))


TRAINED = {
    "mlp": (lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 5)), lambda n: tensor(n, 16)),
    "images": (Images, lambda n: tensor(n, 3, 16, 16)),
    "encoder": (Encoder, lambda n: whole(50, n, n + 3)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRAINED)
def test_training_steps(name):
    make, batch = TRAINED[name]
    steps = []
    for trace in (lambda f: f, lambda f: jit.trace(f, budget=None)):
        lamina.manual_seed(0)
        model = make()
        optimizer = lamina.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        def step(x, y, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        steps.append((trace(step), model))
    for n in SIZES[:6]:
        plain, traced = (step(batch(n), whole(5, n)) for step, _ in steps)
        close(traced, plain)
    for p, q in zip(*(model.parameters() for _, model in steps), strict=True):
        close(p, q)
    assert steps[1][0].counts()["recorded"] == 3  # the first makes the optimizer's states


WALKS = {
    "batch mean": lambda x, p: F.kl_div((x * p).log_softmax(1), x.softmax(0), reduction="batchmean"),
    "covariances": lambda x, p: lamina.cov((x * p).t()).sum(),
    "written": lambda x, p: into(lamina.zeros(20, 7), x * p).square().sum(),
    "resized": lambda x, p: (
        F.interpolate((x * p)[None, None], scale_factor=2, mode="bilinear").square().sum()
    ),
    "norms": lambda x, p: (F.layer_norm(x * p, (7,)) * F.normalize(x, dim=0)).sum(),
    "masked": lambda x, p: ((x * p) @ x.t()).masked_fill(lamina.ones(len(x), len(x)).tril() == 0, -9.0).sum(),
}


@pytest.mark.parametrize("name", WALKS)
def test_gradients_of_inputs_and_of_what_is_there(name):
    """Numbers of a gradient that are sizes are so for each size: a mean's share, where a part lies."""
    parameters = [nn.Parameter(tensor(7)) for _ in range(2)]

    def program(p):
        def f(x):
            p.grad = None
            x = x.clone().requires_grad_()
            WALKS[name](x, p).backward()
            return x.grad, p.grad.clone()

        return f

    plain, traced = program(parameters[0]), jit.trace(program(parameters[1]), budget=None)
    for n in SIZES[:5]:
        for found, wanted in zip(traced(tensor(n, 7)), plain(tensor(n, 7)), strict=True):
            assert found.shape == wanted.shape
            close(found, wanted)
    if name != "written":  # whose gradient goes through what the engine makes of views
        assert traced.counts()["recorded"] == 2, traced.explain(detail=True)


def test_backward_outside():
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 5))
    traced = jit.trace(net, budget=None)
    for n in SIZES:
        gradients = []
        for function in (traced, net):
            net.zero_grad()
            function(tensor(n, 16)).square().sum().backward()
            gradients.append([p.grad.clone() for p in net.parameters()])
        for a, b in zip(*gradients, strict=True):
            close(a, b)
    assert traced.counts()["recorded"] == 2


# ---- what hangs on a size ----------------------------------------------------------------------------------
def test_a_decision_is_a_guard():
    traced = serve(lambda x: x * 2 if x.shape[0] > 5 else x - 1, lambda n: (tensor(n, 3),), 3)
    assert "whether x.shape[0] > 5" in traced.explain(detail=True)


def test_a_loop_over_a_size_has_a_recording_for_each():
    def f(x):
        total = x[0]
        for i in range(1, x.shape[0]):
            total = total + x[i] * i
        return total

    serve(f, lambda n: (tensor(n, 3),), 3, (4, 6, 8, 6, 4, 8))


def test_what_library_code_decides_is_a_guard():
    """A size that a function of the library's looks at is answered for the run, and the answer is guarded."""
    serve(lambda x: lamina.stack(x.split(2)[:1]), lambda n: (tensor(n, 3),), 3, (4, 6, 6, 4, 6, 8))


def test_sizes_of_none_and_one_are_cases_of_their_own():
    serve(lambda x: x.sum(0) + x.reshape(-1).sum(), lambda n: (tensor(n, 3),), 4, (4, 6, 8, 1, 0, 1, 0, 5))


def test_a_part_that_becomes_one_is_recorded_anew():
    serve(lambda x: x[: x.shape[0] // 2] * 2, lambda n: (tensor(n, 3),), 3, (8, 6, 4, 3, 2, 3, 9))


def test_equal_sizes_that_later_differ():
    def f(x, y):
        return x.sum() + y.sum() if x.shape[0] != y.shape[0] else (x + y).sum() * 2

    traced = jit.trace(f, budget=None)
    for a, b in ((4, 4), (6, 6), (8, 8), (8, 5), (6, 7), (3, 3), (9, 2)):
        close(traced(tensor(a, 3), tensor(b, 3)), f(tensor(a, 3), tensor(b, 3)))


def test_broadcasting_that_begins_and_ends():
    traced = jit.trace(lambda x, y: x * y, budget=None)
    for a, b in ((4, 4), (6, 6), (6, 1), (8, 8), (1, 8), (1, 1), (5, 1), (7, 7)):
        close(traced(tensor(a, 3), tensor(b, 3)), tensor(a, 3) * tensor(b, 3))


def test_errors_are_those_of_eager():
    traced = jit.trace(lambda x: x.view(-1, 4), budget=None)
    for n in (4, 8, 12, 16):
        close(traced(tensor(n)), tensor(n).view(-1, 4))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="invalid for input of size 6"):
            traced(tensor(6))
    close(traced(tensor(20)), tensor(20).view(-1, 4))


def test_what_is_handled_may_not_be_raised_for_other_sizes():
    def f(x):
        try:
            y = x.view(-1, 4)
        except RuntimeError as error:
            return x * 2, str(error)
        return y, ""

    traced = jit.trace(f, budget=None)
    for n in (5, 6, 7, 8, 12, 9):
        found, wanted = traced(tensor(n)), f(tensor(n))
        close(found[0], wanted[0])
        assert found[1] == wanted[1]


def test_a_size_alone_is_a_symbol_of_the_code():
    """The tensor whose size is a number here is not among what the code is given."""
    serve(lambda x, y: y * x.shape[0], lambda n: (tensor(n, 3), tensor(2)), 2)


def test_a_size_less_another_may_divide():
    serve(lambda x: x * (10 // (x.shape[0] - 5)), lambda n: (tensor(n, 3),), 2, (4, 6, 8, 3, 2, 9))


def test_a_part_that_is_picked_by_a_size_leaves_other_views_as_they_are():
    def picked(x, y, v):
        return y[0, x.shape[0] & 3] * x.shape[0], v[:, None] * v[None]

    traced = jit.trace(picked, budget=None)
    for n, k in (5, 3), (9, 7), (8, 3), (9, 5), (5, 8), (9, 4):
        given = tensor(n, 3), tensor(4, 4), tensor(k)
        for found, wanted in zip(traced(*given), picked(*given), strict=True):
            close(found, wanted)
    assert traced.counts()["eager"] == 0, traced.explain(detail=True)


def test_an_index_from_outside_is_a_fact():
    places, cut = [0, 1], [slice(0, 2)]

    def f(x):
        y = x.clone()
        y[places] = 0.5
        return x[places].sum(0) + x[cut[0]].sum(0) + y.sum(0)

    traced = jit.trace(f, budget=None)
    for n in SIZES:
        close(traced(tensor(n, 3)), f(tensor(n, 3)))
    places[1] = 2
    close(traced(tensor(5, 3)), f(tensor(5, 3)))
    cut[0] = slice(1, 3)
    close(traced(tensor(5, 3)), f(tensor(5, 3)))


def test_shapes_that_are_asked_if_they_are_equal():
    traced = jit.trace(lambda x, y: (x + y).sum() if x.shape == y.shape else x.sum() - y.sum(), budget=None)
    for a, b in ((4, 4), (6, 5), (8, 7), (6, 6), (7, 7), (5, 4)):
        given = tensor(a, 3), tensor(b, 3)
        close(traced(*given), given[0].sum() + given[1].sum() * (1 if a == b else -1))


def test_a_reshape_of_a_permuted_view_is_a_view_or_a_copy_as_undecorated():
    def f(x):
        y = x.permute(0, 2, 1).reshape(x.shape[0], -1)
        y += 1
        z = x.transpose(0, 1).unsqueeze(0).reshape(x.shape[1], x.shape[0], x.shape[2])
        z.mul_(3.0)
        return y * 2

    traced = jit.trace(f, budget=None)
    for n in SIZES:
        x, other = tensor(n, 4, 3), tensor(n, 4, 3)
        close(traced(x), f(other))
        close(x, other)


def test_results_that_share_memory_for_some_sizes():
    """Of x[:, :n] a reshape is a view where n is the whole; both leave."""

    def f(x):
        x = x.new_full((x.shape[0], 3), 0.5)
        return x, x[:, : x.shape[0]].reshape(-1)

    traced = jit.trace(f, budget=None)
    for n in (3, 2, 9, 4, 2, 5):
        whole, part = traced(tensor(n, 3))
        part.fill_(2.0)
        assert bool(whole.eq(2.0).all()) == (n >= 3)


def test_indices_that_follow_from_a_size_are_checked_against_another():
    def first(x, y):
        return y.index_select(0, lamina.arange(x.shape[0])) * 2

    traced = jit.trace(first, budget=None)
    for n, m in (8, 8), (3, 7), (5, 5):
        close(traced(tensor(n, 3), tensor(m, 3)), first(tensor(n, 3), tensor(m, 3)))
    with pytest.raises(IndexError):
        traced(tensor(8, 3), tensor(4, 3))
    assert traced.counts()["recorded"] == 2, traced.explain(detail=True)


def test_a_size_that_is_the_extent_of_nothing():
    serve(
        lambda x, v: F.pad(v.view(-1, 1), (0, 0, x.shape[0], 1)) * 2,
        lambda n: (tensor(n, 3), tensor(5)),
        2,
    )


def test_images_that_are_resized_have_one_program():
    """The taps of a resize are arrays of its own for each size, and the program takes them."""
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, 1, 1), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Upsample(scale_factor=2)
    )
    f = jit.trace(lambda x: net(x), budget=None)
    for n in (4, 6, 8, 5, 9, 6):
        x = tensor(2, 2, n, n + 1)
        with lamina.no_grad():
            close(f(x), net(x))
    made = [template for template in backend._templates.values() if template and template._tables]
    assert made and all(template.is_whole for template in made)


PARTS = {
    "its beginning": lambda held, n: held[:, : n + 1],
    "its end": lambda held, n: held[:, -n:],
    "from a place on": lambda held, n: held[:, n - 1 :],
    "between": lambda held, n: held[:, n : 2 * n],
    "every second": lambda held, n: held[:, : 2 * n : 2],
    "of both": lambda held, n: held[: n // 2, : n + 1],
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_what_has_one_size_have_one_recording(name):
    """Where they end is proven of all sizes: those that go beyond the end, too."""
    held = tensor(6, 24)
    backend.forget()

    def function(n):
        y = PARTS[name](held, n)
        return F.softmax(y @ y.mT, -1) @ y + y.sum(-1, keepdim=True)

    f = jit.trace(function, budget=None)
    beyond = () if name in ("from a place on", "between") else (30, 40)  # of those nothing is left there
    for n in (4, 7, 5, 11, *beyond, 9):
        with lamina.no_grad():
            close(f(n), function(n))
    assert f.counts()["recorded"] == 2, f.explain(detail=True)
    (template,) = backend._templates.values()
    assert template is not None
    packed_from_zero = name in ("its beginning", "every second", "of both")
    assert template.is_whole == packed_from_zero  # others are packed from a place that is a formula


def test_images_lie_by_how_many_there_are():
    """Few in blocks of channels, many with the batch innermost: a program for each, made when it is met."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(4, 5, 3, 2))
    backend.forget()
    f = jit.trace(lambda x: net(x), budget=None)
    for n in (50, 61, 70, 3, 49, 5, 100):
        x = tensor(n, 3, 9, 10)
        with lamina.no_grad():
            close(f(x), net(x))
    made = [*filter(None, backend._templates.values())]
    assert len(made) == 2
    assert {any(call.how and call.how.has(Residues) for call in t.programs.main.calls) for t in made} == {
        True,
        False,
    }
    assert all(template.is_whole for template in made)


def test_few_images_are_convolved_by_winograd_too():
    net, sizes = nn.Conv2d(64, 64, 3, padding=1), (40, 50, *range(2, 14), 45)
    backend.forget()
    f = jit.trace(lambda x: net(x), budget=None)
    for n in sizes:
        x = tensor(n, 64, 8, 8)
        with lamina.no_grad():
            close(f(x), net(x))
    (template,) = filter(None, backend._templates.values())
    (call,) = (call for call in template.programs.main.calls if call.how is not None and call.how.winograd)
    with hints({"s1": 40}), limits({"s1": (1, 1 << 40)}):
        code = open_code(call, host_target())
    assert code is not None and not code.least


def test_sizes_that_a_view_says_are_equal():
    """As of a cache of keys and one of values, both of which grow."""

    def grown(k, v):
        n, v = k.shape[1], lamina.cat([v, v[:, :1]], 1)
        return v.view(1, n + 1, 4, 16) * 2

    traced = serve(grown, lambda n: (tensor(1, n, 64), tensor(1, n, 64)), 2, (3, 4, 6, 5, 9))
    assert "v.shape[1] is k.shape[1]" in traced.explain(detail=True)


def test_what_is_handed_through_is_no_op():
    """Which the recorder of ops never hears of, while on symbols squeeze is one."""
    serve(lambda x: x.squeeze(), lambda n: (tensor(n, 3),), 2, (4, 6, 8, 8, 6))


def test_views_of_an_argument_stay_views():
    traced = jit.trace(lambda x: x.view(-1)[: x.shape[0]], budget=None)
    for n in SIZES:
        x = tensor(n, 3)
        made = traced(x)
        made.fill_(5.0)
        assert x.view(-1)[:n].eq(5.0).all() and not x.view(-1)[n:].eq(5.0).any()


def test_a_reshape_that_copies_for_some_sizes():
    """Of x[:, :k] it is a view where k is the whole: what is written there shows, or doesn't."""

    def f(x, y):
        part = x[:, : y.shape[0]].reshape(-1)
        part += 1
        return x * 1

    for sizes in ((3, 4), (3, 5), (3, 6), (3, 3), (4, 4), (3, 6)), ((4, 4), (5, 5), (6, 6), (3, 5), (6, 6)):
        traced = jit.trace(f, budget=None)
        for k, n in sizes:
            x, other = tensor(2, n), tensor(2, n)
            close(traced(x, tensor(k)), f(other, tensor(k)))
            close(x, other)


def test_a_cache_by_size():
    def program():
        made = {}

        def f(x):
            n = x.shape[0]
            if n not in made:
                made[n] = lamina.full((n, 1), float(n))
            return x * made[n]

        return f

    plain, traced = program(), jit.trace(program(), budget=None)
    for n in (4, 6, 8, 4, 6, 8, 5, 5):
        close(traced(tensor(n, 3)), plain(tensor(n, 3)))


def test_sizes_that_are_told():
    def f(x):
        return x * 2, x.shape, x.shape[0] + 1, f"{x.shape[0]} rows", tuple(x.shape), len(x), x.numel()

    traced = jit.trace(f, budget=None)
    for n in SIZES:
        found, wanted = traced(tensor(n, 3)), f(tensor(n, 3))
        close(found[0], wanted[0])
        assert found[1:] == wanted[1:] and [*map(type, found)] == [*map(type, wanted)]


# ---- what the user says ------------------------------------------------------------------------------------
def test_dynamic_is_the_users():
    serve(lambda x: x * 2, lambda n: (tensor(n, 3),), 1, dynamic=True)
    serve(lambda x: x * 2, lambda n: (tensor(n, 3),), len(SIZES), dynamic=False)


def test_marked_dimensions():
    traced = jit.trace(lambda x: x * 2, budget=None)
    x = tensor(4, 6)
    jit.mark_dynamic(x, 0, min=2, max=8)
    traced(x)
    for n in (5, 8, 2):
        close(traced(tensor(n, 6)), tensor(n, 6) * 2)
    assert traced.counts()["recorded"] == 1
    traced(tensor(9, 6))
    assert traced.counts()["recorded"] == 2
    with pytest.raises(ArgumentError, match="takes a tensor"):
        jit.mark_dynamic([1], 0)
    with pytest.raises(ArgumentError, match="at least 2"):
        jit.mark_dynamic(x, 0, min=0)
    with pytest.raises(IndexError):
        jit.mark_dynamic(x, 2)


def test_explain_tells_symbols_relations_and_what_none_is():
    def f(x, y):
        return (x + y).reshape(-1)[:4] * len([*range(x.shape[1])])

    traced = jit.trace(f, budget=None)
    for n in (4, 6, 8):
        traced(tensor(n, n + 1), tensor(n, n + 1))
    told = traced.explain(detail=True)
    assert "x.shape[0] is any size from 2 on" in told
    assert "y.shape[0] is x.shape[0]" in told
    assert "x.shape[1] is 9 alone: its value was asked for" in told
    assert traced.explain(as_dict=True)["paths"][-1]["sizes"]


def test_an_exported_model_takes_the_sizes_of_its_example(tmp_path):
    traced = jit.trace(lambda x: x * 2 + x.shape[0], budget=None)
    for n in (4, 6, 8):
        traced(tensor(n, 3))
    jit.export(traced, tmp_path / "m.lam", tensor(5, 3))
    close(jit.load(tmp_path / "m.lam")(tensor(5, 3)), tensor(5, 3) * 2 + 5)


def many_steps(x):
    y = (x @ x.T).softmax(-1)
    return (y @ x).sum(0) + (y.T @ x).sum(0)


def test_all_sizes_share_scratch_memory_though_several_threads_run():
    traced = jit.trace(many_steps, budget=None)
    sizes = [64, 72, 80, 88, 96, 104, 112]
    given = {n: tensor(n, 16) for n in sizes}
    for _ in range(2):
        for x in given.values():
            traced(x)
    (code,) = [segment.code for segment in traced._segments() if type(segment.code) is Sized]
    executables = [bound.code.main for bound in code._made.values()]
    assert len(executables) == len(sizes) - 1  # the first was recorded for itself
    needs = [executable.manifest.arena for executable in executables]
    pieces = {memory.address(e._quick.arena): e._quick.arena.nbytes for e in executables}
    assert sum(pieces.values()) < 3 * max(needs) < sum(needs)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: (n, traced(given[n])), sizes * 50))
    for n, value in found:
        close(value, many_steps(given[n]))


def test_arrays_of_sizes_that_are_asked_for_later_are_constants():
    """Until then nodes stand for what resizing makes of sizes; no code can be made of those."""

    def f(x):
        y = F.interpolate(x, scale_factor=1.5) + F.interpolate(x, scale_factor=1.5, mode="bilinear")
        return y * sum(1 for _ in range(x.shape[-1]))

    traced = serve(f, lambda n: (tensor(1, 2, 4, n),), 3, (4, 6, 8, 6, 8, 4))
    assert "x.shape[3] is 6 alone" in traced.explain(detail=True)


def test_a_formula_that_is_too_long_is_linked_for_each_set_of_sizes():
    """Formulas of a program's manifest are sums of what its kernels say, longer than any that a type has."""
    made = []
    for trace in (lambda f: f, lambda f: jit.trace(f, budget=None)):
        module = nn.BatchNorm1d(3)
        optimizer = lamina.optim.SGD(module.parameters(), lr=0.1)

        def step(x, module=module, optimizer=optimizer):
            parts = x.chunk(max(1, x.shape[0] // 4))
            loss = lamina.cat([module(part) for part in parts]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        made.append((trace(step), module))
    for n in (4, 6, 8, 9, 12, 13):  # warnings are errors here, as of what could not be compiled
        plain, traced = (step(tensor(n, 3)) for step, _ in made)
        close(traced, plain)
        close(made[1][1].weight, made[0][1].weight)
    assert made[1][0].counts()["eager"] == 0


def shown(function, *args):
    """The texts of the warnings that a call shows."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function(*args)
    return [str(warning.message) for warning in found]


WARNS = {
    "a target of another size": lambda x: F.mse_loss(x, x[:1]),
    "turned": lambda x: x[None].T,
    "grids": lambda x: lamina.meshgrid(x[0], x[0]),
    "masks of bytes": lambda x: x[:, lamina.ones(7, dtype=lamina.uint8)],
    "dimensions": lambda x: F.dropout2d(x, 0.0),
}


@pytest.mark.parametrize("name", WARNS)
def test_warnings_of_the_library_are_given_at_each_call_that_shows_them(name):
    f = WARNS[name]
    traced = jit.trace(f, budget=None)
    for n in (4, 6, 8, 6):
        wanted = shown(f, tensor(n, 7))
        assert shown(traced, tensor(n, 7)) == wanted and len(wanted) == 1


def test_warnings_that_are_shown_once_leave_calls_compiled():
    traced = jit.trace(WARNS["turned"], budget=None)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for n in SIZES:
            traced(tensor(n, 7))
    assert traced.counts()["served"] == len(SIZES) - 2 and found


def test_complex_numbers_within_a_graph_have_code_for_each_set_of_sizes():
    serve(lambda x: lamina.fft.irfft(lamina.fft.rfft(x) * 2), lambda n: (tensor(n, 6),), 2)


def test_a_profiler_sees_the_kernels_that_run():
    """Weights are packed for the program of all sizes: one of its own sizes would lay them out otherwise."""
    net = nn.Conv2d(256, 256, 3, padding=1)
    backend.forget()
    f = jit.trace(lambda x: net(x), budget=None)
    with lamina.no_grad():
        for n in (13, 12, 2, 2):
            f(tensor(n, 256, 4, 4))
        x = tensor(2, 256, 4, 4)
        with warnings.catch_warnings(), profiler.profile() as profile:
            warnings.simplefilter("error")
            found = f(x)
        close(found, net(x))
    assert f.counts()["eager"] == 0, f.explain(detail=True)
    assert [event.name for event in profile.events() if "conv" in event.name]


def test_explain_tells_whether_code_is_for_all_sizes():
    whole = jit.trace(lambda x: F.relu(x @ x.mT).sum(0))
    parts = jit.trace(lambda x: lamina.sort(x * 2, 0)[0] + 1)
    for n in (3, 5, 7):
        whole(tensor(n, 4))
        parts(tensor(n, 4))
    assert "\n    code for all sizes\n" in whole.explain(detail=True)
    assert "\n    code for each set of sizes: sort has no kernel\n" in parts.explain(detail=True)


@pytest.mark.parametrize(("unfit", "kept"), [("", 5), ("sort has no kernel", 3)])
def test_more_sets_of_sizes_are_kept_where_one_code_serves_all(unfit, kept, monkeypatch):
    monkeypatch.setattr(sized, "MOST", 5)
    monkeypatch.setattr(sized, "MOST_OWN", 3)
    held = Sized(("s1",), lambda sizes: SimpleNamespace(unfit=unfit), lambda is_new: None)
    for n in range(9):
        held.of((n,))
    assert len(held) == kept and held.known((8,)) and not held.known((8 - kept,))
