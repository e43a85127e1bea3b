"""Programs that remember a size, or leave one behind: in modules, tensors, containers, texts and iterators.

programs_sizes_kept.py has the plain ones.
"""

from __future__ import annotations

import contextlib
import functools
import itertools

import numpy as np
from battery import lib as t
from battery import program
from sized import ROWS, data_of, sized

nn, F = t.nn, t.nn.functional
data = data_of(t)
MANY = (4, 6, 8, 5, 3, 7, 2, 1, 9, 12, 10)


def rows(n):
    return n, 3


# ---- modules -----------------------------------------------------------------------------------------------
@program("sizes")
def a_mask_that_is_kept_by_length(w):
    """The mask of the longest text so far; it is cut for shorter ones, and made anew for longer ones."""

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", None, persistent=False)

        def forward(self, x):
            n = x.shape[0]
            if self.mask is None or self.mask.size(0) < n:
                self.mask = t.full((n, n), float("-inf")).triu_(1)
            return (x @ x.t() + self.mask[:n, :n]).softmax(-1)

    module = Causal()
    w.see(module=module)
    f = w.trace(module)
    for n in w.rounds(*ROWS):
        if n == 4:
            module.mask = None
        w.once(f, data(n, 3))


@program("sizes")
def masks_that_are_kept_in_a_dictionary(w):
    class Masks(nn.Module):
        def __init__(self):
            super().__init__()
            self.masks = {}

        @functools.cache  # noqa: B019
        def positions(self, n):
            return t.arange(n) / n

        def forward(self, x, past=0):
            key = x.shape[0], past
            mask = self.masks.setdefault(key, t.ones(x.shape[0], x.shape[0] + past).tril(past))
            return mask.sum(1, keepdim=True) * x + self.positions(x.shape[0])[:, None]

    module = Masks()
    w.see(masks=module.masks)
    f = w.trace(module)
    for n, past in w.rounds((4, 0), (6, 0), (8, 0), (5, 2), (3, 1), (1, 6), (1, 7), (4, 0), (2, 2)):
        w.once(f, data(n, 3), past)


@program("sizes")
def positions_that_are_added_up_to_a_length(w):
    """More positions than the table has are refused, by an error of the module's own."""

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(data(8, 3))
            self.seen = []

        def forward(self, x):
            n = x.shape[0]
            if n > self.table.shape[0]:
                raise ValueError(f"Sequence length {n} is longer than {len(self.table)}")
            self.seen = [*self.seen[-2:], n]
            return x + self.table[:n].detach(), self.table[-n:].detach().mean()

    module = Positions()
    w.see(seen=lambda: module.seen)
    sized(w, module, rows, sizes=MANY)


@program("sizes")
def positions_that_are_scaled_to_a_grid(w):
    """As vision transformers at other resolutions: a square of positions is resized, unless it fits."""
    table = nn.Parameter(data(1, 2, 4, 4))

    @w.trace
    @t.no_grad()
    def f(x):
        b, c, h, v = x.shape
        places = table
        if (h, v) != table.shape[-2:]:
            places = F.interpolate(table, size=(h, v), mode="bilinear", align_corners=False)
        return (x + places).flatten(2).transpose(1, 2), h * v

    for b, h, v in w.rounds(
        (2, 4, 4), (3, 4, 4), (3, 6, 6), (2, 8, 6), (1, 5, 4), (1, 4, 4), (2, 3, 7), (4, 1, 2)
    ):
        w.once(f, data(b, 2, h, v))


@program("sizes")
def layers_are_chosen_by_a_size(w):
    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.by_name = nn.ModuleDict({"3": nn.Linear(3, 2), "4": nn.Linear(4, 2)})
            self.stack = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

        def forward(self, x):
            y = self.by_name[str(x.shape[-1])](x)
            for layer in self.stack[: x.shape[0] % 4]:
                y = layer(y).tanh()
            return y * len(self.stack[x.shape[0] % 4 :])

    module = Routed()
    w.see(module=module)
    f = w.trace(module)
    for n, k in w.rounds((4, 3), (6, 3), (8, 4), (5, 4), (3, 3), (7, 4), (1, 3), (2, 4)):
        w.once(f, data(n, k))


@program("sizes")
def layers_made_when_they_first_see_a_size(w):
    module = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d(), nn.Tanh())
    state = {"module": module}
    w.see(state=state)

    @w.trace
    def f(x):
        return state["module"](x) * x.shape[0]

    for n in w.rounds(4, 6, 8, 5, 3, 7):
        w.once(f, data(n, 3))


@program("sizes")
def a_state_of_the_batch_before(w):
    """As truncated training of a recurrent layer: the state is cut, or padded, to the next batch."""
    cell = nn.RNNCell(3, 2)
    state = {"h": None, "batches": []}
    w.see(state=state)

    @w.trace
    @t.no_grad()
    def f(x):
        n, h = x.shape[0], state["h"]
        if h is None:
            h = t.zeros(n, 2)
        elif h.shape[0] > n:
            h = h[:n]
        elif len(h) < n:
            h = t.cat([h, h.new_zeros(n - len(h), 2)])
        state["h"] = cell(x, h)
        state["batches"] = [*state["batches"][-1:], n]
        return state["h"].sum(0), h.shape

    for n in w.rounds(*ROWS):
        if n == 4:
            state["h"] = None
        w.once(f, data(n, 3))


@program("sizes")
def statistics_of_all_that_was_seen(w):
    """As a scaler of observations: count, mean and variance by Chan's formula, kept as buffers."""

    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", t.tensor(0.0))
            self.register_buffer("mean", t.zeros(3))
            self.register_buffer("m2", t.zeros(3))

        def forward(self, x):
            n = x.shape[0]
            delta = x.mean(0) - self.mean
            total = self.count + n
            self.m2 += x.var(0, unbiased=False) * n + delta**2 * self.count * n / total
            self.mean += delta * n / total
            self.count.copy_(total)
            return (x - self.mean) / (self.m2 / self.count + 1e-3).sqrt()

    module = Seen()
    w.see(module=module)
    f = w.trace(module)
    for n in w.rounds(*ROWS):
        if n == 4:
            module.count.zero_()
            module.mean.zero_()
            module.m2.zero_()
        w.once(f, data(n, 3))


@program("sizes")
def hooks_that_pad_and_cut(w):
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    lengths = []
    w.see(lengths=lengths)

    def pad(m, given):
        lengths[:] = [*lengths[-2:], given[0].shape[0]]
        return (F.pad(given[0], (0, 0, 0, -given[0].shape[0] % 4), value=1.0),)

    module.register_forward_pre_hook(pad)
    module.register_forward_hook(lambda m, given, y: (y[: lengths[-1]], y[lengths[-1] :].sum()))
    sized(w, module, rows, sizes=MANY)


@program("sizes")
def a_replay_of_what_was_seen(w):
    """A buffer in a ring: it is written at a place, read at drawn places, and tells how full it is."""

    class Replay:
        def __init__(self):
            self.data, self.at, self.full = t.zeros(10, 3), 0, False

        def __len__(self):
            return len(self.data) if self.full else self.at

        def add(self, x):
            place = (t.arange(x.shape[0]) + self.at) % len(self.data)
            self.data[place] = x
            self.full = self.full or self.at + x.shape[0] >= len(self.data)
            self.at = (self.at + x.shape[0]) % len(self.data)

    state = {"replay": Replay()}
    w.see(state=state)

    @w.trace
    def f(x):
        replay = state["replay"]
        replay.add(x)
        return replay.data[t.randint(0, len(replay), (4,))], len(replay), replay.data[: len(replay)].mean(0)

    for n in w.rounds(4, 6, 8, 5, 3, 2, 1, 7):
        if n == 4:
            state["replay"] = Replay()
        w.once(f, data(n, 3))


# ---- what leaves -------------------------------------------------------------------------------------------
@program("sizes")
def sizes_leave_in_many_shapes(w):
    def f(x):
        n = x.shape[0]
        told = {"n": n, "shape": x.shape, (n, 3): [n] * 2, n: f"{n}"}
        return (
            told,
            range(n),
            slice(0, n),
            {n, 3},
            (n / 2, n * 1.0, -n, n > 3),
            x[: n // 2].shape,
            type(x.shape)(x.shape),
        )

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def sizes_are_logged_and_printed(w):
    def f(x):
        n = x.shape[0]
        w.logger.info("batch of %d, %s", n, tuple(x.shape))
        print("rows:", n, x.shape, list(x.shape), f"{n / 3:5.1f}", x.stride(), sep=" | ")
        print(*(i for i in (n, n // 2)), end=f" of {n}\n")
        return x * 2

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_tensor_is_printed(w):
    def f(x):
        y = x[: x.shape[0] // 2] * 2
        print(f"{tuple(y.shape)}: {(y > 0).sum().item():>3} of {y.numel()} above 0")
        print("first", x[0, 0].item(), "of", len(x))
        return y

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def records_on_tensors_and_on_functions(w):
    def f(x):
        y = x * 2
        y.rows, y.kind = x.shape[0], f"{x.dim()}d"
        f.calls = getattr(f, "calls", 0) + 1
        f.longest = max(getattr(f, "longest", 0), len(x))
        return y, f.longest

    w.see(told=lambda: (f.calls, f.longest))
    f.calls, f.longest = 0, 0
    traced = w.trace(f)
    for n in w.rounds(*ROWS):
        w.once(traced, data(n, 3))


@program("sizes")
def a_context_that_measures_sizes(w):
    seen = []
    w.see(seen=seen)

    class Scope:
        def __init__(self, x):
            self.n = x.shape[0]

        def __enter__(self):
            seen.append(("in", self.n))
            return self

        def __exit__(self, kind, error, trace):
            seen.append(("out", self.n, kind is None))
            del seen[:-4]
            return kind is ZeroDivisionError

    @contextlib.contextmanager
    def scaled(x):
        yield x * len(x)
        seen.append(len(x))

    def f(x):
        y = x
        with Scope(x) as scope, scaled(x) as z:
            y = z * (12 // (scope.n - 5))
        return y.sum(0), scope.n

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def arrays_of_numpy_by_sizes(w):
    """What NumPy makes of sizes and of values becomes tensors, and the other way."""

    def f(x):
        n = x.shape[0]
        made = t.tensor(np.arange(n, dtype=np.float32))
        shape = np.array(x.shape)
        return (
            x * made[:, None],
            int(shape.prod()),
            t.tensor(np.ones((n, 2), np.float32)) * n,
            float(np.sqrt(n)),
            np.int64(n) * 2,
        )

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def products_and_zips_of_sizes(w):
    @w.trace
    def f(x, y):
        pairs = list(itertools.product(range(min(len(x), 2)), range(len(y) % 3)))
        total = sum(x[i].sum() * y[j].mean() for i, j in pairs) if pairs else x.new_zeros(())
        longer = [a is not None and b is not None for a, b in itertools.zip_longest(x.unbind(), y.unbind())]
        return total, longer, dict(zip("ab", (len(x), len(y)))), list(enumerate(y.shape, start=len(x)))

    for a, b in w.rounds((4, 5), (6, 7), (5, 8), (3, 3), (2, 4), (1, 2), (7, 1), (4, 4)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def numbers_of_bytes_and_strides(w):
    def f(x):
        y = x.t()
        return x * x.nbytes, x.element_size() * x.numel(), y.stride(), y.is_contiguous(), x.half().nbytes

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def budgets_of_tokens(w):
    """A batch is filled up to so many tokens: how many texts fit is decided by their lengths."""

    @w.trace
    def f(texts, budget):
        taken, longest = [], 0
        for text in sorted(texts, key=len, reverse=True):
            longest = max(longest, text.shape[0])
            if longest * (len(taken) + 1) > budget:
                break
            taken.append(text)
        if not taken:
            raise ValueError(f"a text of {longest} is longer than {budget}")
        return t.stack([F.pad(text, (0, longest - text.shape[0])) for text in taken]), len(texts) - len(taken)

    for lengths, budget in w.rounds(
        ((3, 4), 8),
        ((5, 6), 12),
        ((5, 6), 8),
        ((2, 7, 3), 14),
        ((4, 4, 4), 12),
        ((9,), 8),
        ((1, 1), 2),
        ((6, 2), 20),
    ):
        w.once(f, [data(n) for n in lengths], budget)


@program("sizes")
def an_epoch_of_batches_inside(w):
    """A data set is cut into batches in one call: the last is shorter, and may be dropped."""

    @w.trace
    def f(x, size, drop):
        total, count = t.zeros(3), 0
        order = t.arange(x.shape[0] - 1, -1, -1)
        for at in range(0, x.shape[0] - (size - 1) * drop, size):
            part = x[order[at : at + size]]
            total += part.mean(0) * part.shape[0] / size
            count += 1
        return total / max(count, 1), count

    for n, size, drop in w.rounds(
        (4, 2, False),
        (6, 2, False),
        (8, 3, False),
        (5, 2, True),
        (7, 3, True),
        (3, 4, True),
        (1, 2, False),
        (9, 4, False),
    ):
        w.once(f, data(n, 3), size, drop)
