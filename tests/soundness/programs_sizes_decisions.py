"""Programs whose arguments change their sizes: where Python decides by a size, looks up by it, or asserts.

programs_sizes.py has the plain ones; here sizes go through classes, containers and Python's own library.
"""

from __future__ import annotations

import bisect
import contextlib
import enum
import fractions
import functools
import heapq
import itertools
import statistics
import warnings
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple

from battery import lib as t
from battery import program
from sized import data_of, sized

F = t.nn.functional
data = data_of(t)
MANY = (4, 6, 8, 5, 3, 7, 2, 1, 9, 12, 10)


def rows(n):
    return n, 3


def line(n):
    return (n,)


# ---- by class and by name ----------------------------------------------------------------------------------
class Bucket(enum.IntEnum):
    SMALL = 4
    MIDDLE = 8
    LARGE = 16

    @classmethod
    def _missing_(cls, value):
        return next((bucket for bucket in cls if bucket >= value), cls.LARGE)


@program("sizes")
def a_bucket_is_found_by_a_size(w):
    def f(x):
        bucket = Bucket(x.shape[0])
        return F.pad(x, (0, 0, 0, bucket - x.shape[0])), bucket.name, bucket is Bucket.SMALL

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_place_among_sorted_bounds(w):
    bounds = [2, 4, 8]
    scales = [0.5, 1.0, 2.0, 4.0]

    def f(x):
        n = len(x)
        left, right = bisect.bisect_left(bounds, n), bisect.bisect(bounds, n)
        return x * scales[left] + right, bounds[left:]

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_size_is_a_truth(w):
    """One is True, and none is False, as keys too."""

    def f(x):
        n = x.shape[0]
        told = n == True, n or 7, n and 3, not n, {True: "one", 0: "none"}.get(n), [n].count(1)  # noqa: E712
        return (x * 2 if n else x + 1), told, n is True, isinstance(n, bool), type(n) is int

    sized(w, f, rows, sizes=(4, 6, 0, 8, 1, 5, 0, 3, 1, 2))


@program("sizes")
def a_size_is_looked_up_in_many_containers(w):
    first, second = {4: 0.5, 6: 1.5}, defaultdict(lambda: -1.0, {3: 2.5})
    w.see(second=second)

    def f(x):
        n = x.shape[0]
        chosen = first[n] if n in first else second[n]
        return x * chosen, n in frozenset((3, 8)), (n, 3) in {(4, 3), (9, 3)}, [4, 6, 8].count(n)

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_key_error_of_some_sizes(w):
    scales = {4: 0.5, 6: 1.5, 8: 2.5, 3: 1.0}
    sized(w, lambda x: x * scales[x.shape[0]] + len(x), rows, sizes=(4, 6, 8, 5, 3, 7, 4, 8, 9))


@program("sizes")
def subclasses_chosen_by_a_size(w):
    class Plan:
        def __init__(self, n):
            self.n = n

        def run(self, x):
            return x * self.n

    class Halving(Plan):
        def run(self, x):
            return super().run(x[: self.n // 2])

    def f(x):
        n = x.shape[0]
        plan = (Halving if n > 5 else Plan)(n)
        return plan.run(x), isinstance(plan, Halving), type(plan).__name__

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_method_by_the_name_of_a_dimension(w):
    class Ranks:
        def on_1(self, x):
            return x * 2

        def on_2(self, x):
            return x.sum(1)

        def on_3(self, x):
            return x.mean((1, 2)) - x.shape[-1]

    ranks = Ranks()

    @w.trace
    def f(x):
        return getattr(ranks, f"on_{x.dim()}")(x), f"{x.dim()}d of {x.shape[0]}"

    for shape in w.rounds((4,), (6,), (6, 3), (8, 5), (2, 3, 4), (5, 3, 2), (5,), (7, 1), (1, 1, 1), (9,)):
        w.once(f, data(*shape))


@program("sizes")
def an_order_of_tensors_by_size(w):
    """Equal sizes stay in the order that they came in."""

    @w.trace
    def f(parts):
        order = sorted(range(len(parts)), key=lambda i: (-parts[i].shape[0], i))
        longest = parts[order[0]]
        least = min(parts, key=len)
        return [parts[i] * i for i in order], longest.sum(0) - least.sum(0), order

    for sizes in w.rounds(
        (4, 6, 5), (5, 7, 6), (6, 8, 7), (8, 6, 7), (5, 5, 5), (3, 1, 2), (1, 1, 4), (2, 9, 9)
    ):
        w.once(f, [data(n, 3) + i for i, n in enumerate(sizes)])


@program("sizes")
def a_heap_and_a_merge_of_sizes(w):
    @w.trace
    def f(x, y):
        heap = [(x.shape[0], 0), (y.shape[0], 1), (5, 2)]
        heapq.heapify(heap)
        least, which = heapq.heappop(heap)
        return (x, y, x)[which] * least, heapq.nlargest(2, [x.shape[0], y.shape[0], 4]), heap

    for a, b in w.rounds((4, 6), (6, 8), (8, 7), (7, 9), (5, 5), (9, 3), (2, 1), (1, 2)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def shapes_are_ordered_as_tuples(w):
    @w.trace
    def f(x, y):
        low, high = sorted([x.shape, y.shape])
        told = x.shape < y.shape, max(x.shape, y.shape), x.shape[1:] == y.shape[1:], low <= (5, 3)
        return x.sum() * (x.shape >= y.shape) - y.sum(), told, low, high

    for a, b in w.rounds((4, 6), (6, 8), (8, 7), (7, 9), (5, 5), (9, 3), (2, 1), (1, 2), (3, 3)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def a_chained_comparison_that_stops_early(w):
    asked = []
    w.see(asked=asked)

    def bound(n):
        asked[:] = [*asked[-2:], n]
        return n

    def f(x):
        n = x.shape[0]
        if 3 < n < bound(n - 1 + n % 2 * 2) != 10:
            return x * n
        return x[: n // 2] if bound(n) > 2 and bound(n * 2) % 3 == 0 or n == 1 else x - n

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def an_assertion_of_shapes_with_a_text(w):
    @w.trace
    def f(x, y):
        assert x.shape == y.shape, f"{tuple(x.shape)} is not {tuple(y.shape)}: {x.shape[0] - y.shape[0]:+d}"
        assert x.ndim == 2 and x.size(1) > 1, ("columns", x.size(1))
        return x + y

    for (a, b), c in w.rounds(
        ((4, 4), 3), ((6, 6), 3), ((8, 7), 3), ((5, 5), 3), ((3, 3), 1), ((6, 8), 3), ((2, 2), 2), ((1, 1), 1)
    ):
        w.once(f, data(a, c), data(b, c))


@program("sizes")
def an_error_of_its_own_tells_the_sizes(w):
    class Short(ValueError):
        def __init__(self, n):
            super().__init__(f"{n} rows are too few")
            self.n = n

    def need(x, n):
        if len(x) < n:
            raise Short(len(x)) from KeyError(n)
        return x[:n]

    def f(x):
        y = need(x, 3)
        try:
            return need(x, 6).sum(0), y
        except Short as error:
            error.add_note(f"of {error.n + 1}")
            return y * error.n, error.args, str(error.__cause__)
        finally:
            y += 1

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_warning_for_some_sizes(w):
    def f(x):
        if x.shape[0] % 2:
            warnings.warn(f"{x.shape[0]} is odd", stacklevel=1)
        if x.shape[0] > 7:
            w.logger.warning("%d rows of %s", x.shape[0], x.shape)
        return x * 2

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_context_that_is_entered_for_some_sizes(w):
    weight = t.ones(3, requires_grad=True)

    def f(x):
        with t.no_grad() if x.shape[0] < 5 else contextlib.nullcontext():
            y = x * weight
        with contextlib.suppress(ZeroDivisionError):
            y = y + 6 // (x.shape[0] - 6)
        return y, y.requires_grad

    sized(w, f, rows, sizes=MANY)


# ---- by counting -------------------------------------------------------------------------------------------
@program("sizes")
def a_recursion_that_halves(w):
    """A sum in pairs: how deep it goes is decided by sizes."""

    def paired(x):
        n = x.shape[0]
        if n <= 2:
            return x.sum(0)
        return paired(x[: n // 2]) * 0.5 + paired(x[n // 2 :])

    sized(w, paired, rows, sizes=MANY)


@program("sizes")
def a_loop_with_an_else(w):
    def f(x):
        n = x.shape[0]
        for d in (2, 3, 5):
            if n % d == 0 and n > d:
                y = x.view(d, -1).sum(0) * d
                break
        else:
            y = x * n
        while (k := y.shape[0]) > 3:
            y = y[:-2] if k % 2 else y[::2]
        return y, k

    sized(w, f, line, sizes=MANY)


@program("sizes")
def counts_of_equal_sizes(w):
    Sizes = namedtuple("Sizes", "x y z")

    @w.trace
    def f(x, y, z):
        sizes = Sizes(len(x), len(y), len(z))
        counted = Counter(sizes)
        most, times = counted.most_common(1)[0]
        groups = [size for size, after in itertools.pairwise((*sizes, 0)) if size != after]
        return x.sum(0) * times + most, groups, sizes._replace(y=0), len(set(sizes)), sizes.index(most)

    for sizes in w.rounds(
        (4, 4, 6), (6, 6, 8), (8, 8, 8), (5, 7, 7), (3, 4, 3), (1, 2, 1), (9, 9, 2), (7, 5, 3)
    ):
        w.once(f, *(data(n, 3) for n in sizes))


@program("sizes")
def statistics_of_sizes(w):
    @w.trace
    def f(parts):
        sizes = [part.shape[0] for part in parts]
        middle = statistics.median(sizes)
        offsets = list(itertools.accumulate(sizes, initial=0))
        joined = t.cat(parts)
        halves = [joined[a:b].mean() for a, b in itertools.pairwise(offsets)]
        return joined * (middle - min(sizes)), halves, offsets, max(sizes) - statistics.fmean(sizes)

    for sizes in w.rounds((4, 6), (6, 9), (7, 8), (5, 5, 5), (3, 2, 8), (1, 1), (2, 7, 4), (9, 3)):
        w.once(f, [data(n) for n in sizes])


@program("sizes")
def fractions_and_roundings_of_sizes(w):
    def f(x):
        n = x.shape[0]
        share = fractions.Fraction(n, 6)
        y = x * float(share) + share.denominator - round(n / 4) + round(n * 2.5) - int(n * 0.3)
        return y, share.numerator, int(str(n)[-1]), n / 6 == 1.0, (n * 0.1).is_integer(), divmod(-n, 4)

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_queue_bounded_by_a_size(w):
    kept = {"queue": deque(maxlen=4)}
    w.see(kept=kept)

    def f(x):
        n = x.shape[0]
        if kept["queue"].maxlen != n // 2 + 1:
            kept["queue"] = deque(kept["queue"], maxlen=n // 2 + 1)
        kept["queue"].append(n)
        kept["queue"].rotate(n)
        return x * sum(kept["queue"]) + len(kept["queue"])

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def the_least_recently_used_size_is_dropped(w):
    kept = OrderedDict()
    w.see(kept=kept)

    @w.trace
    def f(x):
        n = x.shape[0]
        if n in kept:
            kept.move_to_end(n)
        else:
            kept[n] = t.arange(n)[:, None] / n
            if len(kept) > 2:
                kept.popitem(last=False)
        return x + kept[n], list(kept)

    for n in w.rounds(4, 6, 8, 6, 5, 6, 3, 3, 1, 5, 2):
        if n == 4:
            kept.clear()
        w.once(f, data(n, 3))


@program("sizes")
def defaults_and_closures_hold_sizes(w):
    def scaled(x, by=None, *, less=0):
        return x * (len(x) if by is None else by) - less

    def f(x):
        n = x.shape[0]
        later = [lambda y, k=k: y * k + n for k in (n, n // 2)]
        part = functools.partial(scaled, by=n - 1, less=n % 3)

        def count(y):
            nonlocal n
            n += y.shape[0]
            return y + n

        return [g(x) for g in later], part(x), count(x[1:]), scaled(x), n

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def zipped_strictly(w):
    weights = (0.5, 1.5, 2.5, 3.5)

    @w.trace
    def f(x):
        parts = x.split(2)
        return sum(part.sum(0) * weight for part, weight in zip(parts, weights, strict=len(x) > 7))

    for n in w.rounds(4, 6, 8, 5, 3, 7, 2, 10, 1, 12):
        w.once(f, data(n, 3))


@program("sizes")
def generators_that_are_cut_by_a_size(w):
    def windows(x, size):
        at = 0
        while at < x.shape[0]:
            step = yield x[at : at + size]
            at += step or size

    def f(x):
        parts = windows(x, 3)
        total = next(parts).sum(0)
        with contextlib.suppress(StopIteration):
            total = total + parts.send(2 if len(x) % 2 else 4).mean(0)
        return total, sum(1 for _ in parts)

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def texts_are_made_and_read_back(w):
    def f(x):
        n = x.shape[0]
        name = "x".join(map(str, x.shape))
        a, b = (int(part) for part in name.split("x"))
        layout = {"4x3": 0.5, "8x3": 2.0}.get(name, 1.0)
        return (
            x * layout + a // b,
            name,
            f"{n:03d}|{n!r:>4}|{x.shape!s}",
            "%d of %s" % (n, (n, b)),  # noqa: UP031
            name < "5",
        )

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_size_is_compared_with_a_number_of_a_tensor(w):
    limit = t.tensor(5)

    @w.trace
    def f(x, at):
        if x.shape[0] > limit:
            y = x * 2
        else:
            y = x - 1
        return (
            y,
            x.shape[0] == limit,
            limit - x.shape[0],
            (at < x.shape[0]) & (at >= 0),
            at.clamp(max=len(x) - 1),
        )

    for n, at in w.rounds((4, 3), (6, 7), (8, 8), (5, 2), (3, -1), (7, 6), (9, 9), (1, 0)):
        w.once(f, data(n, 3), t.tensor(at))
