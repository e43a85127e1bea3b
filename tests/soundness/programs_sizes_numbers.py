"""Programs whose results change their sizes by a number: an argument, an attribute, a counter, an item.

programs_sizes.py has those whose sizes come from the sizes of arguments.
"""

from __future__ import annotations

from battery import lib as t
from battery import program
from sized import ROWS, data_of, sized

nn, F = t.nn, t.nn.functional
data = data_of(t)


def rows(n):
    return n, 3


class Holder:
    def __init__(self, **given):
        vars(self).update(given)


@program("sizes")
def a_given_number_cuts(w):
    """Negative, none, and beyond the end too."""
    x = data(8, 3)
    w.see(x=x)

    @w.trace
    def f(k):
        y = x[:k]
        y += 1
        return y, x[k:].sum(0), x[k : k + 2], x[-k:].mean(0)

    for k in w.rounds(3, 4, 5, 7, 2, 8, 9, 1, 0, -1, -3, 6):
        w.once(f, k)


@program("sizes")
def given_numbers_make_tensors(w):
    @w.trace
    def f(a, b):
        y = t.zeros(a, b), t.full((b,), a), t.arange(a, a + b), t.arange(0, a, 2), t.linspace(a, b, a + 1)
        return (
            *y,
            t.eye(a, b) * b,
            t.ones(a).expand(b, a).sum(0),
            t.arange(a * 0.5),
            t.tril(t.ones(a, a), b - 4),
        )

    for a, b in w.rounds((3, 4), (4, 5), (5, 6), (6, 3), (7, 7), (2, 8), (1, 2), (0, 3), (8, 1), (9, 4)):
        w.once(f, a, b)


@program("sizes")
def a_number_and_a_size_agree_at_first(w):
    f = w.trace(
        lambda x, k: (x[:k] * 2, x.narrow(0, 0, k).shape, k == x.shape[0], x[: x.shape[0]].sum(0) / k)
    )
    for n, k in w.rounds((4, 4), (6, 6), (8, 8), (8, 5), (5, 7), (9, 3), (3, 3), (1, 1), (7, 2)):
        w.once(f, data(n, 3), k)


@program("sizes")
def an_attribute_is_a_length(w):
    state = Holder(length=3, step=2)

    @w.trace
    def f(x):
        y = x[: state.length]
        return F.pad(y, (0, 0, 0, state.step)), x[:: state.step], t.zeros(state.length * state.step) + 1

    for n, state.length, state.step in w.rounds(
        (8, 3, 2), (8, 4, 2), (9, 5, 3), (6, 5, 1), (6, 2, 4), (5, 1, 2), (7, 7, 1), (3, 4, 3), (4, 0, 2)
    ):
        w.once(f, data(n, 3))


@program("sizes")
def a_counter_makes_it_longer(w):
    state = Holder(at=0)
    w.see(state=state)
    table = data(20, 3)

    @w.trace
    def f(x):
        state.at += x.shape[0]
        if state.at > 20:
            state.at = x.shape[0]
        return table[state.at - x.shape[0] : state.at] + x, table[: state.at].sum(0), state.at

    for n in w.rounds(*ROWS):
        w.once(f, data(n, 3))


@program("sizes")
def a_tensor_of_one_number_is_a_length(w):
    @w.trace
    def f(x, k):
        n = int(k)
        return x[:n] * 2, x[k:].sum(0), t.zeros(n, 2) + k, x.split([n, x.shape[0] - n])[1]

    for n, k in w.rounds((4, 2), (6, 3), (8, 5), (8, 4), (5, 5), (3, 0), (7, 1), (9, 6)):
        w.once(f, data(n, 3), t.tensor(k))


@program("sizes")
def a_buffer_of_one_number_is_a_length(w):
    class Window(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("length", t.tensor(1))

        def forward(self, x):
            self.length += 1
            n = min(self.length.item(), x.shape[0])
            return x[-n:] * self.length, n

    module = Window()
    w.see(module=module)
    f = w.trace(module)
    for n in w.rounds(*ROWS):
        if n == 4:
            module.length.fill_(1)
        w.once(f, data(n, 3))


@program("sizes")
def lengths_in_a_tensor_part_a_batch(w):
    @w.trace
    def f(x, lengths):
        parts = x.split(lengths.tolist())
        longest = int(lengths.max())
        padded = t.stack([F.pad(part, (0, 0, 0, longest - len(part))) for part in parts])
        return padded.sum(1), padded.shape, nn.utils.rnn.pad_sequence(parts, batch_first=True)

    for lengths in w.rounds((2, 4), (3, 4), (1, 5), (2, 2, 3), (4, 1, 1), (6,), (3, 0, 2), (4, 4)):
        w.once(f, data(sum(lengths), 3), t.tensor(lengths))


@program("sizes")
def the_count_of_what_is_chosen_broadcasts(w):
    """One that is chosen is spread over all; as many as there are go each to its own."""

    @w.trace
    def f(x, y):
        chosen = x[x[:, 0] > 0]
        z = chosen + y if chosen.shape[0] in (1, y.shape[0]) else chosen
        return z, chosen.shape[0], t.zeros(chosen.shape[0]).sum()

    for values, n in w.rounds(
        ((1, 1, 1, 1), 4),
        ((1, 1, 1), 3),
        ((1, -1, 1, -1), 2),
        ((1, -1, -1), 3),
        ((-1, -1, 1), 5),
        ((-1, -1), 3),
        ((1, 1), 4),
        ((1,), 6),
    ):
        w.once(f, t.tensor(values).float()[:, None] * t.arange(1, 4), data(n, 3))


@program("sizes")
def a_schedule_of_lengths(w):
    """As a curriculum: the counter says how much of the batch is used, and a list says the lengths."""
    state = Holder(steps=0, lengths=[2, 4, 3, 8])
    w.see(state=state)

    @w.trace
    def f(x):
        k = state.lengths[state.steps % 4]
        state.steps += 1
        return x[:k].mean(0) * k, x[:k].shape[0]

    for n in w.rounds(4, 6, 8, 5, 3, 7, 2, 9):
        w.once(f, data(n, 3))


@program("sizes")
def a_k_is_a_size_or_a_number(w):
    @w.trace
    def f(x, k):
        n = x.shape[0]
        values, at = x.topk(min(k, n))
        least = x.topk(max(1, n - k), largest=False).values
        ranks = x.argsort().argsort()
        return (
            values * at,
            least,
            x.masked_fill(x < values[-1], 0.0),
            (ranks >= n - k).sum(),
            x.kthvalue(min(k, n)),
        )

    for n, k in w.rounds((4, 2), (6, 3), (8, 5), (5, 5), (3, 4), (7, 1), (9, 3), (1, 1), (2, 2)):
        w.once(f, data(n), k)


@program("sizes")
def numbers_repeat_and_roll(w):
    @w.trace
    def f(x, k):
        y = x.repeat(k, 1), x.repeat_interleave(k, 0), x.roll(k, 0), t.cat([x] * k), x.expand(k, *x.shape)
        return (
            *y,
            t.stack([x + i for i in range(k)]).sum(0),
            x.roll(-k, (0,)),
            x[:, None].repeat(1, k, 1).flatten(0, 1),
        )

    for n, k in w.rounds((4, 2), (6, 3), (8, 4), (5, 2), (3, 5), (1, 3), (7, 1), (2, 4)):
        w.once(f, data(n, 2), k)


@program("sizes")
def random_draws_of_given_sizes(w):
    """Each size draws other numbers of the one generator; what follows shows how many."""

    @w.trace
    def f(x, k, p):
        noise = t.randn(k, x.shape[0])
        y = F.dropout(x, p) + noise[0]
        if k > 3:
            y = y + t.rand_like(x)
        return y, t.randint(0, k, (k,)), t.randperm(x.shape[0])[:k], t.rand(1)

    for n, k, p in w.rounds(
        (4, 2, 0.5),
        (6, 3, 0.5),
        (8, 5, 0.25),
        (5, 4, 0.75),
        (3, 1, 0.5),
        (7, 6, 0.1),
        (1, 2, 0.5),
        (9, 3, 0.5),
    ):
        w.once(f, data(n), k, p)


@program("sizes")
def masks_dropped_by_a_generator_of_its_own(w):
    generator = t.Generator()
    w.see(state=lambda: generator.get_state().sum())

    @w.trace
    def f(x):
        n = x.shape[0]
        kept = t.rand(n, generator=generator) > 0.25
        return (
            x * kept[:, None] * (n / 0.75),
            t.randperm(n, generator=generator),
            t.randn(n // 2, generator=generator),
        )

    for n in w.rounds(*ROWS):
        generator.manual_seed(n // 2)
        w.once(f, data(n, 3))


@program("sizes")
def whole_numbers_that_sizes_overflow(w):
    """Counted in few bits, and in float32, products of sizes wrap and round."""

    def f(x):
        n = x.shape[0]
        small = t.tensor([100, -100, 3], dtype=t.int8)
        return (
            small * n, small + n, t.full((2,), n, dtype=t.uint8) * n, x * (2**24 + n) - 2.0**24, x + n**9,
            t.arange(3) * n**12, (t.arange(3, dtype=t.int32) + n) << 20, t.tensor(n / 3, dtype=t.float64) * 3,
            t.arange(3, dtype=t.float64) / n, t.tensor(n).to(t.bfloat16) / 3,
        )  # fmt: skip

    sized(w, f, lambda n: (n,), sizes=(4, 6, 8, 5, 3, 40, 100, 1, 2, 60))


@program("sizes")
def dtypes_that_numbers_of_sizes_promote_to(w):
    @w.trace
    def f(x):
        n = x.shape[0]
        return (
            [t.result_type(x, n).itemsize, t.result_type(x, n / 2).itemsize],
            x * n,
            x / n,
            x // max(n, 1),
            x ** (n % 3),
            x + n * 0.5,
            (x > n),
            t.where(x > 1, n, x),
        )

    for n, dtype in w.rounds(
        (4, "int64"),
        (6, "int64"),
        (6, "int8"),
        (8, "int8"),
        (5, "float16"),
        (7, "float16"),
        (3, "bool"),
        (9, "float64"),
        (2, "uint8"),
        (1, "int32"),
    ):
        w.once(f, t.arange(n).to(getattr(t, dtype)))
