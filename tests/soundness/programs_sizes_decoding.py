"""Programs that generate: caches that grow or are written at a place, positions, beams, and what is sampled.

The numbers are places and lengths, which change with each call, and batches, which change with each prompt.
"""

from __future__ import annotations

import math

from battery import lib as t
from battery import program
from sized import data_of

nn, F = t.nn, t.nn.functional
data = data_of(t)


class Attention(nn.Module):
    """One head over what a cache gives back."""

    def __init__(self, width=4):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x, cache, at=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        k, v = cache.update(k, v) if at is None else cache.update(k, v, at)
        n, m = q.shape[1], k.shape[1]
        mask = t.ones(n, m, dtype=t.bool).tril(m - n)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Grown:
    def __init__(self):
        self.k = self.v = None

    def __len__(self):
        return 0 if self.k is None else self.k.shape[1]

    def update(self, k, v):
        self.k = k if self.k is None else t.cat([self.k, k], 1)
        self.v = v if self.v is None else t.cat((self.v, v), dim=1)
        return self.k, self.v

    def reorder(self, index):
        self.k, self.v = self.k.index_select(0, index), self.v[index]


class Written:
    def __init__(self, batch, longest, width=4):
        self.k, self.v = t.zeros(batch, longest, width), t.zeros(batch, longest, width)

    def update(self, k, v, at):
        n = k.shape[1]
        self.k[:, at : at + n] = k
        self.v[:, at : at + n].copy_(v)
        return self.k[:, : at + n], self.v[:, : at + n]


@program("sizes")
def prompts_and_then_tokens(w):
    layer, state = Attention(), {"cache": Grown()}
    w.see(state=state)

    @w.trace
    @t.no_grad()
    def step(x):
        y = layer(x + len(state["cache"]), state["cache"])
        return y[:, -1], len(state["cache"])

    for batch, n in w.rounds(
        (2, 4), (2, 1), (2, 1), (2, 1), (3, 5), (3, 1), (3, 1), (1, 2), (1, 1), (1, 1), (1, 1)
    ):
        if n > 1:
            state["cache"] = Grown()
        w.once(step, data(batch, n, 4))


@program("sizes")
def a_cache_that_is_written_at_places(w):
    layer, state = Attention(), {"cache": None}
    w.see(state=state)

    @w.trace
    @t.no_grad()
    def step(x, at):
        return layer(x, state["cache"], at)

    for batch, n, at in w.rounds(
        (2, 3, 0),
        (2, 1, 3),
        (2, 1, 4),
        (2, 2, 5),
        (2, 1, 7),
        (3, 2, 0),
        (3, 1, 2),
        (3, 3, 3),
        (1, 1, 0),
        (1, 1, 1),
    ):
        if at == 0:
            state["cache"] = Written(batch, 8)
        w.once(step, data(batch, n, 4), at)


@program("sizes")
def beams_are_chosen_and_reordered(w):
    layer, out = Attention(), nn.Linear(4, 5)
    state = {"cache": Grown(), "scores": t.zeros(3)}
    w.see(state=state)

    @w.trace
    @t.no_grad()
    def step(x):
        beams = x.shape[0]
        logits = out(layer(x, state["cache"])[:, -1]).log_softmax(-1)
        scores, at = (state["scores"][:, None] + logits).view(-1).topk(beams)
        state["scores"] = scores
        state["cache"].reorder(at // logits.shape[-1])
        return at % logits.shape[1], scores

    for beams, n in w.rounds((3, 2), (3, 1), (3, 1), (2, 3), (2, 1), (4, 1), (4, 1), (4, 1), (1, 2), (1, 1)):
        if beams != len(state["scores"]) or n > 1:
            state["cache"], state["scores"] = Grown(), t.zeros(beams)
        w.once(step, data(beams, n, 4))


@program("sizes")
def beams_that_are_finished_are_dropped(w):
    """The batch shrinks by what the values say, and the cache with it."""
    state = {"cache": t.zeros(5, 0, 2)}
    w.see(state=state)

    @w.trace
    def step(x, done):
        state["cache"] = t.cat([state["cache"], x[:, None]], 1)[~done]
        return state["cache"].sum(1), (~done).sum(), state["cache"].shape[0] * 1.0

    for alive, done in w.rounds((5, ()), (5, (1,)), (4, ()), (4, (0, 3)), (2, ()), (2, (0,)), (1, ())):
        if alive == 5 and not done:
            state["cache"] = t.zeros(5, 0, 2)
        mask = t.zeros(alive, dtype=t.bool)
        mask[list(done)] = True
        w.once(step, data(alive, 2), mask)


@program("sizes")
def the_last_token_that_is_no_padding(w):
    @w.trace
    def f(tokens, hidden):
        lengths = (tokens != 0).sum(-1) - 1
        lengths = lengths % tokens.shape[-1]
        last = hidden[t.arange(tokens.shape[0]), lengths]
        first = hidden.gather(
            1, (tokens != 0).int().argmax(-1).view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
        )
        return last, first.squeeze(1), lengths

    for b, n in w.rounds((2, 4), (3, 5), (4, 6), (5, 3), (2, 2), (1, 4), (3, 1), (1, 1)):
        tokens = (t.arange(b * n) * 7 % 5).view(b, n)
        w.once(f, tokens, data(b, n, 3))


@program("sizes")
def prompts_are_padded_on_the_left(w):
    @w.trace
    def f(prompts):
        longest = max(len(prompt) for prompt in prompts)
        ids = t.stack([F.pad(prompt, (longest - len(prompt), 0), value=-1) for prompt in prompts])
        mask = ids != -1
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        causal = t.full((longest, longest), float("-inf")).triu(1)
        return ids, places, causal[None] + t.where(mask, 0.0, -math.inf)[:, None]

    for lengths in w.rounds((3, 4), (4, 6), (5, 7), (7, 5), (2, 2), (3, 1, 5), (6, 2, 4), (4,), (1, 1)):
        w.once(f, [t.arange(n) for n in lengths])


@program("sizes")
def tokens_are_appended_to_what_is_given(w):
    """The result of a call is the argument of the next."""
    embed, out = nn.Embedding(7, 4), nn.Linear(4, 7)

    @w.trace
    @t.no_grad()
    def step(ids):
        ids = ids[:, -5:]
        h = embed(ids).cumsum(1) / t.arange(1, ids.shape[1] + 1)[:, None]
        token = out(h[:, -1]).argmax(-1, keepdim=True)
        return t.cat([ids, token], dim=1)

    ids = None
    for b, start in w.rounds((2, 3), (2, 0), (2, 0), (2, 0), (3, 2), (3, 0), (3, 0), (1, 1), (1, 0), (1, 0)):
        ids = (t.arange(b * start) * 5 % 7).view(b, start) if start else step(ids)
        w.once(step, ids)


@program("sizes")
def tokens_are_drawn_from_the_topmost(w):
    @w.trace
    def f(logits, k, p):
        k = min(k, logits.size(-1))
        logits = logits.masked_fill(logits < logits.topk(k).values[..., -1:], float("-inf"))
        ordered, at = logits.sort(descending=True)
        gone = ordered.softmax(-1).cumsum(-1) > p
        gone[..., 1:] = gone[..., :-1].clone()
        gone[..., 0] = False
        logits = logits.masked_fill(gone.scatter(-1, at, gone), float("-inf"))
        return t.multinomial(logits.softmax(-1), 1), (~gone).sum(-1)

    for b, n, k, p in w.rounds(
        (2, 6, 3, 0.9),
        (3, 6, 3, 0.9),
        (4, 8, 5, 0.9),
        (2, 5, 7, 0.5),
        (1, 7, 2, 0.8),
        (3, 4, 1, 0.9),
        (1, 3, 2, 0.9),
    ):
        w.once(f, data(b, n), k, p)


@program("sizes")
def a_table_of_rotations_is_cut(w):
    """As rotary embeddings: the table is made anew when a longer text comes, and cut at the place."""

    class Rotary(nn.Module):
        def __init__(self):
            super().__init__()
            self.longest = 0
            self.register_buffer("cos", t.zeros(0, 2), persistent=False)
            self.register_buffer("sin", t.zeros(0, 2), persistent=False)

        def grow(self, n):
            self.longest = n
            angle = t.outer(t.arange(n).float(), 1.0 / 10 ** t.arange(0.0, 1.0, 0.5))
            self.cos, self.sin = angle.cos(), angle.sin()

        def forward(self, x, at=0):
            n = x.shape[1]
            if at + n > self.longest:
                self.grow(max(at + n, 2 * self.longest))
            cos, sin = self.cos[at : at + n], self.sin[at : at + n]
            a, b = x[..., ::2], x[..., 1::2]
            return t.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

    state = {"module": Rotary()}
    w.see(module=state["module"])
    f = w.trace(state["module"])
    for n, at in w.rounds((3, 0), (1, 3), (1, 4), (4, 0), (6, 2), (2, 8), (5, 0), (1, 15), (1, 16), (9, 1)):
        if (n, at) == (3, 0):
            state["module"].longest = 0
        w.once(f, data(2, n, 4), at)


@program("sizes")
def distances_that_are_looked_up(w):
    """As relative positions in buckets: a table by the distance of two places."""
    table = nn.Embedding(6, 2)

    @w.trace
    @t.no_grad()
    def f(x, k):
        n, m = x.shape[-1], k.shape[-1]
        distance = t.arange(m)[None] - t.arange(m - n, m)[:, None]
        bucket = distance.clamp(-3, 2) + 3
        far = (distance.abs().clamp(min=1).float().log2() / math.log2(max(m, 2)) * 2).long().clamp(max=1)
        return x[:, None] + k[None] + table(bucket).sum(-1), far, bucket

    for n, m in w.rounds((4, 4), (6, 6), (8, 8), (1, 9), (3, 7), (5, 5), (2, 3), (1, 1), (1, 4)):
        w.once(f, data(n), data(m)) if n == m else w.once(f, data(n), data(m)[: max(m, n)])


@program("sizes")
def slopes_and_bands_of_attention(w):
    """A window of places, with a slope for each head: how wide is a number, how long a size."""

    @w.trace
    def f(scores, window):
        heads, n, m = scores.shape
        far = t.arange(n)[:, None] + (m - n) - t.arange(m)
        slopes = 2.0 ** (-8 / heads * t.arange(1, heads + 1))
        scores = scores - slopes[:, None, None] * far
        return scores.masked_fill((far < 0) | (far >= window), float("-inf")).softmax(-1), far[0]

    for heads, n, m, window in w.rounds(
        (2, 4, 4, 2),
        (2, 6, 6, 2),
        (4, 8, 8, 3),
        (3, 5, 7, 4),
        (2, 1, 9, 5),
        (1, 3, 3, 9),
        (4, 1, 1, 1),
        (2, 7, 8, 3),
    ):
        w.once(f, data(heads, n, m), window)


@program("sizes")
def chunks_of_a_long_text_with_a_memory(w):
    """As recurrent attention: the last places of one call are seen by the next."""
    state = {"memory": t.zeros(2, 3)}
    w.see(state=state)

    @w.trace
    def f(x):
        whole = t.cat([state["memory"], x])
        n, m = x.shape[0], whole.shape[0]
        y = (x @ whole.t()).masked_fill(t.ones(n, m).triu(m - n + 1).bool(), float("-inf")).softmax(
            -1
        ) @ whole
        state["memory"] = whole[-min(4, m) :].detach()
        return y, m

    for n in w.rounds(4, 6, 3, 1, 1, 5, 2, 8, 1):
        if n == 4:
            state["memory"] = t.zeros(2, 3)
        w.once(f, data(n, 3))


@program("sizes")
def a_draft_is_accepted_up_to_a_place(w):
    """As speculative decoding: how many tokens agree is a value, and it cuts."""

    @w.trace
    def f(draft, wanted):
        n = draft.shape[0]
        agree = (draft == wanted[:n]).long().cumprod(0)
        count = int(agree.sum())
        return wanted[: count + 1], draft[:count].sum(), n - count, agree

    for n, wrong in w.rounds((4, 9), (4, 2), (6, 3), (6, 9), (5, 0), (3, 1), (1, 0), (1, 9), (7, 4)):
        draft, wanted = t.arange(n) * 3 % 5, t.arange(n + 1) * 3 % 5
        if wrong < n:
            draft[wrong] += 1
        w.once(f, draft, wanted)


@program("sizes")
def greedy_loops_inside(w):
    """All of a text is generated in one call: the loop's rounds are a number, and each is one longer."""
    embed, out = nn.Embedding(5, 3), nn.Linear(3, 5)

    @w.trace
    @t.no_grad()
    def f(ids, count):
        for _ in range(count):
            token = out(embed(ids).mean(1)).argmax(-1, keepdim=True)
            ids = t.cat([ids, token], 1)
        return ids, ids.shape[1]

    for b, n, count in w.rounds(
        (2, 2, 2), (3, 3, 2), (4, 4, 3), (2, 5, 3), (1, 1, 3), (3, 2, 1), (5, 1, 2), (2, 3, 0)
    ):
        w.once(f, (t.arange(b * n) * 3 % 5).view(b, n), count)
