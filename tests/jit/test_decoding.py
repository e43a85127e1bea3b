"""Generating tokens one by one through a traced step: few recordings, caches written where they are."""

from __future__ import annotations

import math
from time import perf_counter

import numpy as np
import pytest

import lamina
from lamina import jit, nn
from lamina.nn import functional as F

WIDTH, HEADS, WORDS, LONGEST, TOKENS = 16, 2, 24, 40, 14
HEAD = WIDTH // HEADS


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )

    def heads(self, x):
        b, t, _ = x.shape
        return [y.view(b, t, HEADS, HEAD).transpose(1, 2) for y in self.qkv(self.norm(x)).split(WIDTH, 2)]

    def rest(self, x, y):
        b, h, t, d = y.shape
        return x + F.gelu(self.out(y.transpose(1, 2).reshape(b, t, h * d)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(WIDTH, WORDS)


@pytest.fixture
def model():
    lamina.manual_seed(3)
    return Decoder().eval()


def at_a_place(cache, at, new):
    cache[:, :, at] = new[:, :, 0]


def at_a_slice(cache, at, new):
    cache[:, :, at : at + 1] = new


def copied(cache, at, new):
    cache[:, :, at : at + 1].copy_(new)


def narrowed(cache, at, new):
    cache.narrow(2, at, 1).copy_(new)


def by_an_index(cache, at, new):
    cache.index_copy_(2, at.reshape(1) if isinstance(at, lamina.Tensor) else lamina.tensor([at]), new)


def scattered(cache, at, new):
    place = at if isinstance(at, lamina.Tensor) else lamina.tensor(at)
    cache.scatter_(2, place.reshape(1, 1, 1, 1).expand(1, HEADS, 1, HEAD), new)


WRITES = (at_a_place, at_a_slice, copied, narrowed, by_an_index, scattered)


def written(model, write, attends):
    """A step that writes a cache in place, and attends over its beginning, or over all with a mask."""

    def step(token, at, caches):
        place = at.reshape(1, 1) if isinstance(at, lamina.Tensor) else lamina.tensor([[at]])
        x = model.tokens(token) + model.places(place)
        for block, (keys, values) in zip(model.blocks, caches):
            q, k, v = block.heads(x)
            write(keys, at, k)
            write(values, at, v)
            if attends == "slice":
                y = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])
            else:
                mask = (lamina.arange(LONGEST) <= at)[None, None, None]
                y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = block.rest(x, y)
        return model.head(x)[:, -1]

    return step


def generate(step, place, count=TOKENS):
    """The scores of each token and the caches, greedily."""
    size = (1, HEADS, LONGEST, HEAD)
    caches = [(lamina.zeros(size), lamina.zeros(size)) for _ in range(2)]
    token, found = lamina.tensor([[1]]), []
    with lamina.no_grad():
        for i in range(count):
            found.append(step(token, place(i), caches))
            token = found[-1].argmax(-1, keepdim=True)
            if int(token) == -1:  # a condition that stops, outside of the step
                break
    return [*found, *(x for pair in caches for x in pair)]


def alike(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=3e-4, atol=3e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("attends", ["slice", "mask"])
@pytest.mark.parametrize("place", [int, lamina.tensor], ids=["int", "tensor"])
@pytest.mark.parametrize("write", WRITES)
def test_a_cache_is_written_in_place(model, write, place, attends):
    step = written(model, write, attends)
    traced = jit.trace(step, budget=None)
    alike(generate(traced, place), generate(step, place))
    counts = traced.counts()
    assert counts["recorded"] <= 3 and not counts["eager"], traced.explain(detail=True)


def grown(model, attends):
    def step(token, past):
        place = past[0][0].shape[2]
        x = model.tokens(token) + model.places(lamina.arange(place, place + 1))
        kept = []
        for block, (keys, values) in zip(model.blocks, past):
            q, k, v = block.heads(x)
            keys, values = lamina.cat([keys, k], 2), lamina.cat([values, v], 2)
            kept.append((keys, values))
            if attends == "function":
                y = F.scaled_dot_product_attention(q, keys, values)
            else:
                y = (q @ keys.transpose(-2, -1) / math.sqrt(HEAD)).softmax(-1) @ values
            x = block.rest(x, y)
        return model.head(x)[:, -1], kept

    return step


@pytest.mark.parametrize("attends", ["function", "products"])
def test_a_cache_grows(model, attends):
    step = grown(model, attends)
    traced, found = jit.trace(step, budget=None), []
    for function in (traced, step):
        token, told = lamina.tensor([[1]]), []
        past = [(lamina.zeros(1, HEADS, 0, HEAD), lamina.zeros(1, HEADS, 0, HEAD)) for _ in range(2)]
        with lamina.no_grad():
            for _ in range(7):
                scores, past = function(token, past)
                token = scores.argmax(-1, keepdim=True)
                told.append(scores)
        found.append([*told, *(x for pair in past for x in pair)])
    alike(*found)
    assert traced.counts()["recorded"] <= 3, traced.explain(detail=True)


class Cache:
    def __init__(self, size):
        self.keys, self.seen = [lamina.zeros(1, HEADS, size, HEAD)], 0


def longer(cache, key):
    cache.keys[0] = lamina.cat([cache.keys[0], key], 2)
    cache.seen += 1
    return cache.keys[0].sum(2) * 2


def filled(cache, key):
    cache.keys[0][:, :, cache.seen : cache.seen + 1] = key
    cache.seen += 1
    return cache.keys[0][:, :, : cache.seen].sum(2) * 2


@pytest.mark.parametrize("update, size", [(longer, 0), (filled, LONGEST)])
def test_caches_that_are_objects(update, size):
    traced = jit.trace(update, budget=None)
    one, two = Cache(size), Cache(size)
    for n in range(12):
        key = lamina.randn(1, HEADS, 1, HEAD)
        alike([traced(one, key), one.keys[0]], [update(two, key), two.keys[0]])
        assert one.seen == two.seen == n + 1
    assert traced.counts()["recorded"] <= 3, traced.explain(detail=True)


def test_a_prompt_and_what_follows():
    """The prompt is written at once, tokens one by one."""

    def step(x, at, cache):
        cache[:, at : at + x.shape[1]] = x
        return cache[:, : at + x.shape[1]].cumsum(1)[:, -1]

    traced = jit.trace(step, budget=None)
    one, two = lamina.zeros(2, LONGEST, 3), lamina.zeros(2, LONGEST, 3)
    at = 0
    for count in (5, 1, 1, 1, 1, 1, 1):
        x = lamina.randn(2, count, 3)
        alike([traced(x, at, one), one], [step(x, at, two), two])
        at += count
    assert traced.counts()["recorded"] <= 3, traced.explain(detail=True)


def test_a_window():
    traced = jit.trace(lambda x, at: x[:, max(0, at - 3) : at + 1].sum(1), budget=None)
    x = lamina.randn(2, 30, 3)
    for at in range(2, 20):
        alike([traced(x, at)], [x[:, max(0, at - 3) : at + 1].sum(1)])
    assert traced.counts()["recorded"] <= 4, traced.explain(detail=True)


def test_a_place_beyond_the_end_is_refused_as_eager_does():
    def step(cache, at, x):
        cache[:, at] = x
        return cache * 1

    traced, cache = jit.trace(step, budget=None), lamina.zeros(2, 8, 3)
    for at in range(6):
        traced(cache, at, lamina.ones(2, 3))
    before = cache.clone()
    for at in (8, -9):
        with pytest.raises(IndexError, match="out of range|out of bounds"):
            traced(cache, at, lamina.ones(2, 3) * 2)
        assert cache.equal(before)
    traced(cache, -1, lamina.ones(2, 3))
    assert cache[:, 7].eq(1).all()


OF_OTHER_KINDS = {
    "doubles": (lamina.float32, lambda n: lamina.full((3, 1), n + 0.5, dtype=lamina.float64)),
    "whole numbers": (lamina.float32, lambda n: lamina.full((3, 1), n)),
    "a number": (lamina.float32, lambda n: 2.5),
    "a number among whole ones": (lamina.int64, lambda n: 2.7),
    "floats among whole ones": (lamina.int32, lambda n: lamina.full((3, 1), n + 0.7)),
    "more dimensions": (lamina.float32, lambda n: lamina.full((1, 1, 3, 1), n + 0.5)),
    "fewer": (lamina.float32, lambda n: lamina.full((1,), n + 0.5)),
    "truths": (lamina.bool, lambda n: lamina.full((3, 1), n % 2 == 0)),
}


@pytest.mark.parametrize("name", OF_OTHER_KINDS)
def test_what_is_written_is_cast_and_broadcast(name):
    dtype, value = OF_OTHER_KINDS[name]

    def step(x, at, y):
        x[:, at : at + 1] = y
        x[0, at - 1] = 1
        return x * 1

    traced = jit.trace(step, budget=None)
    one, two = lamina.zeros(3, 12, dtype=dtype), lamina.zeros(3, 12, dtype=dtype)
    for at in range(12):
        found, wanted = traced(one, at, value(at)), step(two, at, value(at))
        assert found.equal(wanted) and one.equal(two) and found.dtype is wanted.dtype


def test_a_number_that_changes_is_written():
    def step(x, at, t):
        x[:, at] = t * 0.5
        x[0, 2] = t
        return x * 1

    traced = jit.trace(step, budget=None)
    one, two = lamina.zeros(3, 12), lamina.zeros(3, 12)
    for at in range(12):
        alike([traced(one, at, at * 0.7 + 0.1), one], [step(two, at, at * 0.7 + 0.1), two])
    assert traced.counts()["recorded"] == 2, traced.explain(detail=True)


def test_what_is_written_is_of_the_tensor_itself():
    def step(x, at):
        x[:, at : at + 2] = x[:, at + 1 : at + 3]
        x[:, at] += x[:, at + 1]
        return x.sum()

    traced = jit.trace(step, budget=None)
    one, two = (lamina.arange(36.0).reshape(3, 12) for _ in range(2))
    for at in range(9):
        alike([traced(one, at), one], [step(two, at), two])


def test_a_value_that_does_not_fit_is_refused_as_eager_does():
    def step(x, at, y):
        x[:, at : at + 1] = y
        return x * 1

    traced, x = jit.trace(step, budget=None), lamina.zeros(3, 12)
    for at in range(4):
        traced(x, at, lamina.ones(3, 1))
    with pytest.raises(RuntimeError, match="shape"):
        traced(x, 4, lamina.ones(3, 2))


def test_a_part_that_is_looked_at_after_its_write_is_a_view():
    def step(cache, at, x):
        part = cache[at]
        part.copy_(x)
        cache.mul_(2)
        return part + 1

    traced = jit.trace(step, budget=None)
    one, two = lamina.ones(9, 3), lamina.ones(9, 3)
    for at in range(9):
        x = lamina.full((3,), float(at))
        alike([traced(one, at, x), one], [step(two, at, x), two])


def test_beams_are_reordered():
    def step(past, scores, logits):
        beams, words = logits.shape
        best, places = (scores[:, None] + logits.log_softmax(-1)).view(-1).topk(beams)
        beam = places // words
        return past.index_select(0, beam), past[beam], past[:, beam], best, places % words

    traced = jit.trace(step, budget=None)
    for n in range(3, 14):
        given = lamina.randn(4, 4, n), lamina.randn(4), lamina.randn(4, WORDS)
        alike(traced(*given), step(*given))
    assert traced.counts()["recorded"] == 2, traced.explain(detail=True)


def most_likely(logits, temperature):
    logits = logits / temperature
    least = logits.topk(5)[0][:, -1:]
    logits = logits.masked_fill(logits < least, -float("inf"))
    return lamina.multinomial(logits.softmax(-1), 1)


def nucleus(logits, temperature):
    ordered, places = (logits / temperature).sort(descending=True)
    removed = ordered.softmax(-1).cumsum(-1) > 0.8
    removed[..., 1:] = removed[..., :-1].clone()
    removed[..., 0] = False
    logits = logits.masked_fill(removed.scatter(1, places, removed), -float("inf"))
    return lamina.multinomial(logits.softmax(-1), 1)


@pytest.mark.parametrize("draw", [most_likely, nucleus])
def test_tokens_are_drawn(draw):
    traced, found = jit.trace(draw, budget=None), []
    for function in (traced, draw):
        lamina.manual_seed(5)
        given = [(lamina.randn(2, WORDS), 0.5 + 0.1 * n) for n in range(9)]
        found.append([function(*each) for each in given])
    assert all(a.equal(b) for a, b in zip(*found, strict=True))
    assert traced.counts()["recorded"] <= 2, traced.explain(detail=True)


ALPHAS = lamina.linspace(0.95, 0.05, 100)


def denoised(x, t):
    a, noise = ALPHAS[t], (x * 2).tanh() * t
    return (x - (1 - a).sqrt() * noise) / a.sqrt() + ALPHAS.sqrt()[t] * lamina.randn_like(x)


@pytest.mark.parametrize("place", [int, lamina.tensor], ids=["int", "tensor"])
def test_a_sampler_of_many_steps(place):
    traced, found = jit.trace(denoised, budget=None), []
    for function in (traced, denoised):
        lamina.manual_seed(5)
        x = lamina.randn(3, 4)
        for t in reversed(range(100)):
            x = function(x, place(t))
            x = x / x.abs().max()
        found.append(x)
    alike(found[:1], found[1:])
    assert traced.counts()["recorded"] <= 2, traced.explain(detail=True)


# ---- attention over any length -----------------------------------------------------------------------------
def causal(x):
    return nn.Transformer.generate_square_subsequent_mask(x.shape[1])


HEADED = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
ENCODER = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True).eval()
LOWER = lamina.ones(64, 64, dtype=lamina.bool).tril()
OF_LENGTHS = {
    "several heads": lambda x, n: HEADED(x, x, x)[0],
    "masked": lambda x, n: HEADED(x, x, x, attn_mask=causal(x), is_causal=True, need_weights=False)[0],
    "padded": lambda x, n: HEADED(x, x, x, key_padding_mask=lamina.arange(x.shape[1]) >= n[:, None])[0],
    "an encoder": lambda x, n: ENCODER(x, src_mask=causal(x), is_causal=True),
    "causal": lambda x, n: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "lengths": lambda x, n: F.scaled_dot_product_attention(
        x, x, x, attn_mask=(lamina.arange(x.shape[1]) < n[:, None])[:, None]
    ),
    "a part of a mask": lambda x, n: (
        (x @ x.mT).masked_fill(~LOWER[: x.shape[1], : x.shape[1]], -float("inf")).softmax(-1) @ x
    ),
}


@pytest.mark.parametrize("name", OF_LENGTHS)
def test_attention_takes_one_recording_for_all_lengths(name):
    traced = jit.trace(OF_LENGTHS[name], budget=None)
    for n in (5, 6, 7, 9):
        given = lamina.randn(2, n, WIDTH), lamina.tensor([2, n])
        with lamina.no_grad():
            alike([traced(*given)], [OF_LENGTHS[name](*given)])
    assert traced.counts()["recorded"] == 2, traced.explain(detail=True)


# ---- where it is written -----------------------------------------------------------------------------------
@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_costs_what_is_written(write):
    """The cache has 64 MB, of which a copy takes milliseconds; the kernel that writes is in place of it."""
    cache = lamina.zeros(1, HEADS, 1 << 20, HEAD)

    def step(cache, at, new):
        write(cache, at, new)
        return new * 2

    traced, times, new = jit.trace(step, budget=None), [], lamina.ones(1, HEADS, 1, HEAD)
    with lamina.no_grad():
        for at in range(40):
            start = perf_counter()
            traced(cache, at, new)
            times.append(perf_counter() - start)
    assert cache[:, :, :40].eq(1).all() and not cache[:, :, 40:].any()
    start = perf_counter()
    cache.numpy().copy()
    assert min(times) < (perf_counter() - start) / 4, traced.explain(detail=True)


def test_layers_are_all_written_in_place():
    """Indices are looked at ahead of the first write, and one array may be written several times in turn."""

    def step(caches, stacked, at, x):
        for n, cache in enumerate(caches):
            cache[:, at] = x
            stacked[n, :, at] = x
            x = x * 2 + cache[:, at]
        return x

    traced = jit.trace(step, budget=None)
    given = [([lamina.zeros(8, 512, 8) for _ in range(3)], lamina.zeros(3, 8, 512, 8)) for _ in range(2)]
    for at in range(6):
        x = lamina.randn(8, 8)
        alike([traced(*given[0], at, x)], [step(*given[1], at, x)])
    for one, two in zip(*given, strict=True):
        alike(one, two)
