"""Programs whose arguments change their sizes: what Python makes of a size, and numbers of sizes.

Each calls its function on sizes in an order that makes symbols of them, and that shows a size which was kept
from an earlier call.  programs_sizes_views.py has those that cut and write by sizes, programs_sizes_kept.py
those that keep something, and that train.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator

from battery import lib as t
from battery import program
from sized import data_of, sized

F = t.nn.functional
data = data_of(t)


def rows(n):
    return n, 3


def line(n):
    return (n,)


def square(n):
    return n, n


# ---- decisions ---------------------------------------------------------------------------------------------
@program("sizes")
def a_chain_of_decisions_on_a_size(w):
    def f(x):
        n = x.shape[0]
        if n > 7:
            return x * 2
        elif n % 2:
            return x + n
        return x - 1 if 3 < n <= 5 else x * n

    sized(w, f, rows)


@program("sizes")
def a_while_over_a_size(w):
    def f(x):
        n, y = x.shape[0], x
        while n > 1:
            y, n = y * 0.5 + n, n // 2
        return y, n

    sized(w, f, rows)


@program("sizes")
def halving_until_one_is_left(w):
    def f(x):
        while x.shape[0] > 1:
            half = (x.shape[0] + 1) // 2
            x = x[:half] + F.pad(x[half:], (0, 0, 0, 2 * half - x.shape[0]))
        return x

    sized(w, f, rows)


@program("sizes")
def an_assertion_on_a_size(w):
    def f(x):
        assert x.shape[0] % 2 == 0, f"{x.shape[0]} rows are odd"
        return x.reshape(2, -1).sum(1)

    sized(w, f, line)


@program("sizes")
def two_sizes_are_compared(w):
    def f(x, y):
        if x.shape[0] < y.shape[0]:
            return x.sum() - y.sum()
        if x.shape == y.shape:
            return x * y
        return y.sum(0) + x.shape[0]

    f = w.trace(f)
    for a, b in w.rounds((4, 4), (6, 6), (8, 8), (5, 7), (7, 5), (3, 3), (2, 9), (9, 2), (1, 1)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def shapes_are_compared_with_tuples(w):
    def f(x):
        if x.shape == (6, 3):
            return x * 2
        if tuple(x.shape) in {(8, 3), (2, 3)} or x.size() == t.Size([5, 3]):
            return x * 3
        return x + (x.shape > (3, 9)) + (x.shape[:1] == (4,)) * 7

    sized(w, f, rows)


@program("sizes")
def a_size_is_among_others(w):
    def f(x):
        n = x.shape[0]
        y = x * 2 if n in (4, 8, 1) else x * 3
        return y + (n in range(2, 9, 3)) + (n not in [5, 6]), n in {3: 0, 9: 1}, 3 in x.shape

    sized(w, f, rows)


@program("sizes")
def any_and_all_of_sizes(w):
    def f(x, y):
        sizes = [*x.shape, *y.shape]
        if any(n == 1 for n in sizes):
            return x.sum() + y
        if all(n % 2 == 0 for n in (x.shape[0], y.shape[0])):
            return x.mean(0) + y.mean(0)
        return x.sum(0) * sum(n > 4 for n in sizes)

    sized(w, f, rows, lambda n: (n + 2, 3))


@program("sizes")
def sizes_are_sorted(w):
    def f(x, y):
        parts = sorted([y, x], key=lambda part: part.shape[0])
        longest = max((x, y), key=len)
        return parts[0].sum(0) - parts[1].mean(0), longest * 2, sorted(x.shape, reverse=True)

    f = w.trace(f)
    for a, b in w.rounds((4, 5), (6, 7), (8, 9), (7, 5), (3, 3), (9, 2), (1, 6)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def the_least_and_the_greatest_of_sizes(w):
    def f(x):
        n = x.shape[0]
        k = min(n, 5)
        return x[:k] * max(n, 6), min(x.shape), max(*x.shape, 7), x[max(0, n - 3) :]

    sized(w, f, rows)


@program("sizes")
def the_least_of_two_sizes_cuts_both(w):
    def f(x, y):
        k = min(len(x), len(y))
        return x[:k] + y[:k]

    f = w.trace(f)
    for a, b in w.rounds((4, 6), (6, 7), (8, 9), (7, 5), (3, 3), (9, 2), (1, 6), (5, 4)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def a_function_is_chosen_by_a_size(w):
    table = {4: t.sin, 6: t.cos, 8: t.exp}

    def f(x):
        return table.get(x.shape[0], t.neg)(x) + [1, 2, 3][x.shape[0] % 3]

    sized(w, f, rows)


@program("sizes")
def a_match_on_a_shape(w):
    def f(x):
        match x.shape:
            case (4, _):
                return x * 4
            case (n, 3) if n > 6:
                return x - n
            case [1, *rest]:
                return x + sum(rest)
        return x * 0.5

    sized(w, f, rows)


@program("sizes")
def a_try_around_a_size(w):
    def f(x):
        try:
            y = x.view(-1, 4)
        except RuntimeError as error:
            return x * 2, str(error)
        return y.sum(1), 12 // (x.shape[0] - 1)

    sized(w, f, lambda n: (2 * n,))


@program("sizes")
def a_division_by_a_size_less_five(w):
    sized(w, lambda x: x * (10 // (x.shape[0] - 5)) + 1 / (x.shape[0] - 5), rows)


# ---- what Python makes of sizes ----------------------------------------------------------------------------
@program("sizes")
def results_by_size_are_kept_in_a_dictionary(w):
    made = {}
    w.see(made=made)

    def f(x):
        key = x.shape[0], str(x.dtype)
        if key not in made:
            made[key] = t.arange(x.shape[0], dtype=t.float32)[:, None] * 0.25
        return x + made[key]

    sized(w, f, rows)


@program("sizes")
def a_cached_function_of_a_size(w):
    @functools.lru_cache(maxsize=3)
    def positions(n):
        return t.arange(n, dtype=t.float32)[:, None] / n

    sized(w, lambda x: x * positions(x.shape[0]) + positions(len(x)).sum(), rows)


@program("sizes")
def a_dictionary_keyed_by_a_shape(w):
    seen = {}
    w.see(seen=seen)

    def f(x):
        seen[x.shape] = seen.get(x.shape, 0) + 1
        seen.setdefault(tuple(x.shape)[::-1], []).append(x.shape[0])
        return x * seen[x.shape]

    sized(w, f, rows)


@program("sizes")
def a_set_of_sizes_grows(w):
    seen = set()
    w.see(seen=seen)

    def f(x):
        new = x.shape[0] not in seen
        seen.add(x.shape[0])
        return x * len(seen) + new

    sized(w, f, rows)


@program("sizes")
def sizes_in_texts(w):
    def f(x):
        n = x.shape[0]
        print(f"{n:>4} rows of {x.shape}", str(n).zfill(3), repr(x.size()), n)
        return x * len(f"{n}"), "x" * n, f"{n / 3:.2f}", hex(n), chr(n + 64)

    sized(w, f, rows, sizes=(4, 6, 8, 12, 5, 3, 120, 1))


@program("sizes")
def all_that_tells_a_size(w):
    def f(x):
        told = len(x), x.size(), x.size(0), x.size(-1), x.numel(), x.nelement(), x.nbytes, x.ndim, x.dim()
        return x.sum(), told, x.stride(), x.shape.numel(), x.element_size() * x.nelement(), x.T.stride()

    sized(w, f, rows)


@program("sizes")
def numbers_of_sizes_told_and_used(w):
    def f(x):
        return x * x.nbytes + x.stride(0) - x.t().stride(1) + x.shape.numel() / x.stride()[0]

    sized(w, f, lambda n: (3, n))


@program("sizes")
def methods_of_a_shape(w):
    def f(x):
        shape = x.shape
        found = shape.count(3), shape.index(3), shape + (1,), shape * 2, shape[::-1], shape[-1:], (2, *shape)
        return x.sum() + shape.count(3), found, [type(part).__name__ for part in found], hash(shape) % 7

    sized(w, f, rows)


@program("sizes")
def shapes_are_unpacked(w):
    def f(x):
        (n, *rest), (*most, last) = x.shape, x.shape
        a, b, c = x.size()
        return x.reshape(n * b, -1) * a, x.view(*rest, *most[:1]), x.permute(2, 0, 1).reshape(last, *most), c

    sized(w, f, lambda n: (n, 2, n + 1))


@program("sizes")
def a_shape_is_concatenated(w):
    def f(x):
        y = x.reshape(x.shape[:-1] + (3, 2))
        z = x.new_zeros(x.shape[:1] + y.shape[1:][::-1]) + 1
        return y.transpose(1, 2) * z, t.ones([*x.shape] * 1 + [2]).sum(0), t.Size([2]) + x.shape

    sized(w, f, lambda n: (n, 6))


@program("sizes")
def a_shape_with_one_size_replaced(w):
    def f(x):
        shape = list(x.shape)
        shape[0] //= 2
        shape.insert(1, 2)
        return x.reshape(shape).sum(1), [1] * x.shape[0], [0, 1] * (x.shape[0] // 2)

    sized(w, f, rows, sizes=(4, 6, 8, 2, 10, 4, 12))


@program("sizes")
def ones_for_broadcasting_by_repetition(w):
    def f(x, y):
        return x * y.view(-1, *[1] * (x.dim() - 1)), y.reshape((len(y),) + (1,) * (x.ndim - 1)) + x

    sized(w, f, lambda n: (n, 2, 3), line)


@program("sizes")
def conversions_of_a_size(w):
    def f(x):
        n = x.shape[0]
        numbers = int(n), float(n), bool(n - 1), complex(n), str(n), round(n, -1), abs(-n), -n, +n, ~n
        return x * float(n) + round(n / 3), numbers, n.bit_length(), n.real, n.__index__()

    sized(w, f, rows)


@program("sizes")
def functions_of_mathematics_of_a_size(w):
    def f(x):
        n = x.shape[0]
        y = x / math.sqrt(n) + math.log2(n) - math.ceil(n / 4) * math.floor(n / 3)
        return y + math.gcd(n, 12), math.isqrt(n), math.factorial(n), math.comb(9, n), math.pi * n

    sized(w, f, rows)


@program("sizes")
def arithmetic_of_a_size(w):
    def f(x):
        n = x.shape[0]
        q, r = divmod(n, 3)
        y = x * q + r + n // 2 - n % 4 + n**2 + 2**n + n**-1 + 7 // n + 7 % n + -n // 3 + -n % 3
        return y + (n & 3) + (n | 8) + (n ^ 5) + (n << 1) + (n >> 1), pow(n, 2, 5), n / 2, n * 0.1

    sized(w, f, rows)


@program("sizes")
def a_size_counts_in_loops(w):
    def f(x):
        total = x * 0
        for i in range(0, x.shape[0], 3):
            total = total + x[i] * i
        for i, row in enumerate(x):
            total = total + row * i
        for row, k in zip(x, range(2)):
            total = total - row * k
        return total

    sized(w, f, rows)


@program("sizes")
def a_size_cuts_a_list(w):
    scales = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5]

    def f(x):
        n = x.shape[0]
        y = x * sum(scales[:n]) + scales[-n % 6] + sum(itertools.islice(scales, n // 2))
        return y, scales[n - 3 :], scales[:: max(1, n // 2)], slice(n - 2).indices(5)

    sized(w, f, rows)


@program("sizes")
def reductions_of_a_shape(w):
    def f(x):
        most = functools.reduce(operator.mul, x.shape)
        return x / most + math.prod(x.shape[1:]) - sum(x.shape), operator.index(x.shape[0])

    sized(w, f, lambda n: (n, 2, n))


@program("sizes")
def sizes_in_records(w):
    @dataclasses.dataclass(frozen=True)
    class Sizes:
        rows: int
        columns: int

        @property
        def half(self):
            return self.rows // 2

    def f(x):
        sizes = Sizes(*x.shape)
        other = dataclasses.replace(sizes, columns=sizes.rows)
        return x[: sizes.half] * other.columns, sizes, other == Sizes(5, 5), {"n": sizes.rows}

    sized(w, f, rows)


@program("sizes")
def a_size_whose_tensor_is_not_used(w):
    sized(w, lambda x, y: (y * x.shape[0], y.sum() / (len(x) + 1)), rows, lambda n: (2,))


@program("sizes")
def a_size_that_is_a_bound_alone(w):
    def f(x, y):
        n = x.shape[0]
        return y.clamp(max=n - 4), t.arange((n - 1) * (n > 4), (n - 1) * (n > 4) + 2), y.masked_fill(y > 0, n)

    sized(w, f, rows, lambda n: (2,))


# ---- none, one and equal sizes -----------------------------------------------------------------------------
@program("sizes")
def sizes_down_to_none(w):
    sized(w, lambda x: (x * 2 + 1, x.sum(0), x.mean()), rows, sizes=(4, 6, 8, 1, 0, 5, 0, 1, 3))


@program("sizes")
def a_part_that_becomes_none(w):
    def f(x):
        n = x.shape[0]
        return x[1:] - x[:-1], x[: n // 2].sum(0), x[: n % 3] * 2, x[n - 2 :].mean(0)

    sized(w, f, rows, sizes=(4, 7, 10, 5, 3, 2, 1, 6, 9, 8))


@program("sizes")
def a_part_that_becomes_one_broadcasts(w):
    sized(w, lambda x, y: x[: x.shape[0] // 2] + y, rows, lambda n: (1 if n < 4 else n // 2, 3))


@program("sizes")
def a_remainder_that_is_a_size(w):
    def f(x):
        part = x[: x.shape[0] % 4]
        return part * 2, part.sum(0), part.shape, t.zeros(x.shape[0] % 4, 2) + 1

    sized(w, f, rows, sizes=(6, 7, 10, 11, 4, 5, 8, 9, 3, 2))


@program("sizes")
def halves_that_agree_and_later_differ(w):
    def f(x, y):
        return x[: x.shape[0] // 2] * y[: y.shape[0] // 2]

    f = w.trace(f)
    for a, b in w.rounds((4, 5), (6, 7), (8, 9), (9, 8), (8, 6), (7, 6), (2, 9), (9, 3), (1, 4)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def a_square_that_becomes_oblong(w):
    def f(x):
        y = x.t() + 1
        return y.sum(0), y @ x, x * y if x.shape[0] == x.shape[1] else x.flatten() * y.flatten()

    f = w.trace(f)
    for a, b in w.rounds((4, 4), (6, 6), (8, 8), (8, 5), (5, 8), (3, 3), (1, 4), (4, 1), (7, 7)):
        w.once(f, data(a, b))


@program("sizes")
def a_square_plus_its_transpose(w):
    """Eager takes it for a square, or for a row and a column."""
    f = w.trace(lambda x: x + x.t())
    for a, b in w.rounds((4, 4), (6, 6), (8, 8), (8, 5), (5, 1), (3, 3), (1, 4), (7, 7)):
        w.once(f, data(a, b))


@program("sizes")
def broadcasting_of_two_sizes(w):
    f = w.trace(lambda x, y: (x + y, (x * y).sum(), t.maximum(x, y).shape))
    for a, b in w.rounds((4, 1), (6, 1), (8, 1), (8, 8), (5, 5), (1, 7), (1, 9), (1, 1), (3, 2), (6, 6)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def oblong_sizes_change_places(w):
    f = w.trace(lambda x: (x.reshape(-1, 2) * x.shape[1], x.t().reshape(x.shape[0], -1), x.sum(1)))
    for a, b in w.rounds((3, 4), (4, 6), (6, 4), (4, 3), (12, 1), (1, 12), (2, 6), (6, 2)):
        w.once(f, data(a, b))


@program("sizes")
def one_tensor_twice_and_two_of_a_size(w):
    def f(x, y):
        x.add_(1)
        return y * 2, x is y, x + y

    f = w.trace(f)
    for n, twice in w.rounds((4, True), (6, True), (8, False), (5, True), (3, False), (7, True), (2, False)):
        x = data(n, 3)
        w.once(f, x, x if twice else data(n, 3))


@program("sizes")
def an_argument_and_a_part_of_it(w):
    def f(x, y):
        y.mul_(2)
        return x + 1, y.sum()

    f = w.trace(f)
    for n, k in w.rounds((4, 2), (6, 3), (8, 5), (5, 5), (3, 1), (7, 0), (9, 4)):
        x = data(n, 3)
        w.once(f, x, x[:k])


@program("sizes")
def arguments_that_are_cut_of_one_buffer(w):
    buffer = data(12, 3)
    w.see(buffer=buffer)

    def f(x, y):
        x += y.sum()
        return x.mean(0), y.mean(0)

    f = w.trace(f)
    for n, k in w.rounds((4, 5), (6, 7), (8, 9), (5, 4), (7, 2), (3, 3), (9, 8)):
        w.once(f, buffer[:n], buffer[k:])


@program("sizes")
def arguments_that_do_not_lie_in_order(w):
    def f(x):
        flat = x.reshape(-1)
        flat += 1
        return flat, x * 1, x.is_contiguous(), [s for s, n in zip(x.stride(), x.shape) if n > 1]

    f = w.trace(f)
    for n, how in w.rounds((4, 0), (6, 1), (8, 1), (5, 2), (7, 2), (1, 1), (3, 0), (9, 1), (6, 2), (1, 2)):
        w.once(f, [data(n, 4), data(4, n).t(), data(2 * n, 4)[::2]][how])


@program("sizes")
def arguments_that_are_expanded(w):
    f = w.trace(lambda x: (x * 2, x.reshape(-1)[:3], x.sum(0), x.stride()))
    for n, wide in w.rounds((4, False), (6, False), (6, True), (8, True), (5, True), (3, False), (1, True)):
        w.once(f, data(1, 3).expand(n, 3) if wide else data(n, 3))


@program("sizes")
def a_dimension_is_chosen_by_a_size(w):
    def f(x):
        d = x.shape[0] % 2
        return x.sum(d), x.unsqueeze(d).shape, x.transpose(0, d), x.cumsum(-1 - d), x.mean(d, keepdim=d > 0)

    sized(w, f, rows)


@program("sizes")
def squeezing_what_may_be_one(w):
    sized(w, lambda x: (x.squeeze(), x.squeeze(0) + 1, x[:, None].squeeze().sum(-1), x.squeeze().dim()), rows)


# ---- sizes that hang on data -------------------------------------------------------------------------------
@program("sizes")
def sizes_of_what_is_found(w):
    def f(x):
        found = x[x > 0]
        where = (x > 0).nonzero()
        return (
            found * 2,
            where.shape[0] + found.numel(),
            x.masked_select(x < 0).sum(),
            t.zeros(len(found)) + 1,
        )

    sized(w, f, rows)


@program("sizes")
def unique_values_of_a_size(w):
    def f(x):
        values, counts = (x * 2).round().unique(return_counts=True)
        return values, counts * values.shape[0], len(values) / x.shape[0]

    sized(w, f, rows)


@program("sizes")
def the_topmost_of_a_size(w):
    def f(x):
        n = x.shape[0]
        values, index = x.topk(max(1, n // 2))
        return (
            values,
            index,
            x.topk(min(n, 3)).values,
            x.kthvalue((n + 1) // 2).values,
            x.sort().values[n // 2],
        )

    sized(w, f, line)


@program("sizes")
def repeats_by_numbers_and_tensors(w):
    def f(x):
        n = x.shape[0]
        return (
            x.repeat_interleave(n // 2),
            x.repeat_interleave(t.arange(n)),
            t.repeat_interleave(x, 2).shape[0] - n,
        )

    sized(w, f, line)


@program("sizes")
def an_item_cuts_a_tensor(w):
    def f(x):
        k = int(x.argmax())
        return x[:k] * 2, x[k:].sum() + k, x.new_zeros(k + 1), int(x.sum().item()) % x.shape[0]

    sized(w, f, line)


# ---- values that hang on sizes -----------------------------------------------------------------------------
@program("sizes")
def means_and_variances(w):
    def f(x):
        n = x.shape[0]
        y = x.mean(0), x.var(0), x.std(0, correction=0), x.var(0, unbiased=n > 4), t.var_mean(x, 0)
        return y, x.sum(0) / n, (x - x.mean()).pow(2).sum() / (n - 1 or 1), x.norm() / n**0.5

    sized(w, f, rows)


@program("sizes")
def extremes_and_orders_of_none(w):
    sized(w, lambda x: (x.max(0).values, x.argmin(0), x.amax()), rows, sizes=(4, 6, 8, 0, 5, 0, 1, 3))


@program("sizes")
def medians_and_quantiles(w):
    sized(w, lambda x: (x.median(), x.quantile(0.3), x.median(0).values, x.logsumexp(0), x.cumsum(0)), rows)


@program("sizes")
def losses_by_reduction(w):
    def f(x, y):
        target = t.arange(x.shape[0]) % 3
        entropies = F.cross_entropy(x, target), F.cross_entropy(x, target, reduction="sum") / x.numel()
        return (
            *entropies,
            F.mse_loss(x, y),
            F.kl_div(x.log_softmax(1), (-y).softmax(1), reduction="batchmean"),
        )

    sized(w, f, rows, rows)


@program("sizes")
def a_scale_by_the_root_of_a_size(w):
    def f(x):
        n, d = x.shape
        scores = (x @ x.t()) * d**-0.5
        return scores.softmax(-1) @ x / math.sqrt(n), F.scaled_dot_product_attention(
            x[None], x[None], x[None]
        )

    sized(w, f, lambda n: (n, n + 2))


@program("sizes")
def normalized_over_a_size(w):
    def f(x):
        n = x.shape[1]
        return F.layer_norm(x, (n,)), F.layer_norm(x, x.shape[1:]), F.normalize(x, dim=0), x / x.shape[-1]

    sized(w, f, lambda n: (3, n))


@program("sizes")
def random_numbers_of_a_size(w):
    def f(x):
        n = x.shape[0]
        y = F.dropout(x, 0.5) + t.rand(n, 3), t.randn(n // 2 + 1), t.randperm(n), t.randint(0, n, (n,))
        return *y, t.rand(2), t.bernoulli(t.full((n,), 0.5)), t.randn_like(x[1:]), t.normal(0.0, 1.0, (n,))

    sized(w, f, rows)


@program("sizes")
def random_numbers_under_a_seed_of_a_size(w):
    def f(x):
        t.manual_seed(x.shape[0])
        return t.rand(x.shape[0]) + x, t.multinomial(t.ones(x.shape[0]), 1), t.rand(2)

    sized(w, f, line)


@program("sizes")
def an_image_is_scaled(w):
    def f(x):
        h, v = x.shape[-2:]
        y = F.interpolate(x, scale_factor=2), F.interpolate(x, size=(h // 2 + 1, v), mode="bilinear")
        return (
            *y,
            F.adaptive_avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, (h // 2 + 1, 1)),
            F.avg_pool2d(x, min(h, 2)),
        )

    sized(w, f, lambda n: (1, 2, n, n + 1), sizes=(4, 6, 8, 5, 3, 2, 7))


@program("sizes")
def padding_to_a_multiple(w):
    def f(x):
        n = x.shape[-1]
        y = F.pad(x, (0, -n % 4))
        return y.view(x.shape[0], -1, 4).mean(-1), F.pad(x, (n // 2, 0), value=n), F.pad(x, (1, -1))

    sized(w, f, lambda n: (2, n))


@program("sizes")
def padding_by_reflection(w):
    """It needs more elements than it adds."""
    sized(
        w,
        lambda x: (F.pad(x, (2, 2), mode="reflect"), F.pad(x, (x.shape[-1], 0), mode="circular")),
        lambda n: (1, 2, n),
    )


@program("sizes")
def convolutions_along_a_size(w):
    weight = data(2, 3, 3)

    def f(x):
        y = F.conv1d(x, weight, padding=1), F.conv1d(x, weight[..., :1], stride=2)
        return (
            *y,
            F.max_pool1d(x, 2),
            F.conv1d(x, weight),
            F.conv_transpose1d(x, weight.transpose(0, 1), stride=2),
        )

    sized(w, f, lambda n: (2, 3, n), sizes=(4, 6, 8, 5, 3, 2, 1, 9))


@program("sizes")
def a_kernel_as_long_as_its_input(w):
    def f(x):
        n = x.shape[-1]
        return (
            F.conv1d(x, t.ones(1, 1, n // 2 + 1)),
            F.avg_pool1d(x, n),
            F.max_pool1d(x, n // 2 + 1, stride=1),
        )

    sized(w, f, lambda n: (1, 1, n))


# ---- containers of tensors ---------------------------------------------------------------------------------
@program("sizes")
def tensors_by_name_that_share_a_size(w):
    @w.trace
    def f(batch, *, scale=1.0, mask=None):
        n = batch["x"].shape[0]
        y = batch["x"] * batch["w"][:, None] * scale
        return {"y": y if mask is None else y[mask], "n": n, **{k: v.sum() / n for k, v in batch.items()}}

    for n, k, masked in w.rounds((4, 4, 0), (6, 6, 0), (8, 8, 1), (5, 5, 1), (5, 4, 0), (3, 1, 0), (7, 7, 1)):
        batch = {"x": data(n, 3), "w": data(k)}
        w.once(f, batch, **({"mask": data(n) > 0} if masked else {"scale": 2.0}))


@program("sizes")
def a_list_of_tensors_of_many_sizes(w):
    def f(parts):
        longest = max(p.shape[0] for p in parts)
        padded = t.stack([F.pad(p, (0, longest - p.shape[0])) for p in parts])
        lengths = t.tensor([p.shape[0] for p in parts])
        mask = t.arange(longest)[None] < lengths[:, None]
        return (padded * mask).sum(1) / lengths, longest, mask

    f = w.trace(f)
    for sizes in w.rounds((4, 2), (6, 3), (8, 5), (5, 8), (3, 3), (1, 2), (4, 6, 2), (2, 7, 3), (9, 1)):
        w.once(f, [data(n) for n in sizes])


@program("sizes")
def records_of_tensors(w):
    @dataclasses.dataclass
    class Batch:
        x: object
        lengths: object

        def __len__(self):
            return self.x.shape[0]

    def f(batch):
        mask = t.arange(batch.x.shape[1])[None] < batch.lengths[:, None]
        return Batch((batch.x * mask).sum(1) / len(batch), batch.lengths + len(batch))

    f = w.trace(f)
    for n, k in w.rounds((4, 5), (6, 5), (8, 7), (5, 9), (3, 3), (2, 1), (7, 6)):
        w.once(f, Batch(data(n, k), t.arange(n) % k + 1))


@program("sizes")
def sizes_in_given_numbers_and_names(w):
    @w.trace
    def f(x, *sizes, dim=0, **named):
        y = x.narrow(dim, 0, min(sizes + (x.shape[dim],)))
        return y * named.get("scale", x.shape[dim]), len(sizes)

    for n, sizes, named in w.rounds(
        (4, (3,), {}),
        (6, (4,), {}),
        (8, (9,), {"dim": 1}),
        (5, (2, 4), {}),
        (3, (3,), {"scale": 3}),
        (7, (1,), {}),
    ):
        w.once(f, data(n, n + 1), *sizes, **named)
