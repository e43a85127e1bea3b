"""Programs of numbers that change on their way to a tensor: through functions, formats, records."""

from __future__ import annotations

import collections
import dataclasses
import enum
import fractions
import functools
import math
import operator
import statistics
import types
import typing

from battery import lib as t
from battery import program


def fed(w, f, *values):
    """Trace f and call it with each number."""
    f = w.trace(f)
    for n in w.rounds(*values):
        w.call(f, w.x, n)


# ---- functions of numbers ----------------------------------------------------------------------------------
@program("numbers that change", jax=True)
def a_cosine_of_a_counter(w):
    fed(w, lambda x, n: x * math.cos(math.pi * n / 10) + math.sin(n), 1, 2, 3, 4, 5)


@program("numbers that change", jax=True)
def an_exponential_and_a_logarithm(w):
    fed(w, lambda x, n: x * math.exp(-n / 4) + math.log1p(n) + math.log(n, 2), 1, 2, 4, 8)


@program("numbers that change", jax=True)
def a_warm_up_is_a_minimum(w):
    fed(w, lambda x, n: x * min(1.0, n / 3), 1, 2, 3, 4, 5)


@program("numbers that change", jax=True)
def a_minimum_of_three_in_any_order(w):
    fed(w, lambda x, n: x * min(3, n, 2.5) + max([n, 1, 4 - n]), 1, 2, 3, 4)


@program("numbers that change", jax=True)
def a_minimum_keeps_the_first_of_equals(w):
    @w.trace
    def f(x, n):
        return x * n, min(2, n), max(n, 2), min(n, 2)

    for n in w.rounds(1, 2, 2.0, 3.0, True):
        w.call(f, w.x, n)


@program("numbers that change", jax=True)
def a_bound_on_both_sides(w):
    fed(w, lambda x, n: x * max(-1.5, min(1.5, n)), -3.0, -1.0, 0.5, 2.0, 1.5)


@program("numbers that change", jax=True)
def halves_are_rounded_to_even(w):
    fed(w, lambda x, n: (x * round(n), round(n), round(n, 1)), 0.5, 1.5, 2.5, -0.5, 3.25)


@program("numbers that change", jax=True)
def tens_are_rounded(w):
    fed(w, lambda x, n: x * round(n, -1) + round(n, 0), 14, 15, 25, 26)


@program("numbers that change", jax=True)
def quotients_and_remainders(w):
    @w.trace
    def f(x, n):
        epoch, batch = divmod(n, 3)
        return x * epoch + batch

    for n in w.rounds(1, 2, 3, 4, 7):
        w.call(f, w.x, n)


@program("numbers that change", jax=True)
def a_remainder_of_floats(w):
    fed(w, lambda x, n: x * math.fmod(n, 1.5) + n % 1.5 + math.modf(n)[0], 1.0, 2.0, 4.0, -4.0)


@program("numbers that change", jax=True)
def floors_ceilings_and_truncations(w):
    fed(w, lambda x, n: x * math.floor(n) + math.ceil(n) + math.trunc(n) + int(n), 1.25, -1.25, 2.0, 3.75)


@program("numbers that change", jax=True)
def powers_with_negative_exponents(w):
    fed(w, lambda x, n: x * min(n**-0.5, n * 4**-1.5) + 2**-n + pow(n, 2), 1, 2, 4, 16)


@program("numbers in records")
def a_power_modulo(w):
    fed(w, lambda x, n: x * pow(3, n, 7), 1, 2, 3, 4, 5)


@program("numbers that change", jax=True)
def integers_through_gcd_and_factorial(w):
    fed(w, lambda x, n: x * math.gcd(n, 12) + math.factorial(n) + math.comb(6, n), 2, 3, 4, 6)


@program("numbers that change", jax=True)
def the_sign_of_a_number(w):
    fed(w, lambda x, n: x * math.copysign(2.0, n), 1.0, -1.0, 0.0, -0.0, 3.0)


@program("numbers that change", jax=True)
def a_number_is_finite_or_not(w):
    fed(w, lambda x, n: x * 2 if math.isfinite(n) else x * 3, 1.0, math.inf, 2.0, -math.inf, 3.0)


@program("numbers that change", jax=True)
def numbers_that_are_close(w):
    fed(w, lambda x, n: x + n if math.isclose(n, 1.0, rel_tol=0.1) else x - n, 1.0, 1.05, 1.2, 0.95)


@program("numbers that change", jax=True)
def a_distance_and_an_angle(w):
    fed(w, lambda x, n: x * math.hypot(3.0, n) + math.atan2(n, 2.0) + math.degrees(n), 1.0, 4.0, -4.0, 0.5)


@program("numbers that change", jax=True)
def a_chain_of_comparisons(w):
    fed(w, lambda x, n: x * (1 < n <= 3) + (n == 2) + (n != 4), 1, 2, 3, 4)


@program("numbers that change", jax=True)
def a_comparison_is_multiplied(w):
    fed(w, lambda x, n: x * (n > 2) * 5 + (not n) + -(n < 2), 0, 1, 2, 3)


@program("numbers that change", jax=True)
def and_and_or_give_numbers(w):
    fed(w, lambda x, n: x * (n or 7) + (n and 2) + (None if n > 5 else n or 1), 0, 1, 2.5, 0.0)


@program("numbers that change", jax=True)
def the_bits_of_a_counter(w):
    fed(w, lambda x, n: x * (n & 3) + (n | 4) + (n ^ 1) + (n << 2) + (n >> 1) + ~n, 1, 2, 3, 6)


@program("numbers in records")
def the_length_of_bits(w):
    fed(w, lambda x, n: x * n.bit_length() + n.bit_count(), 1, 2, 7, 8)


@program("numbers in records")
def a_float_gives_its_fraction(w):
    fed(w, lambda x, n: x * n.as_integer_ratio()[1] + n.is_integer(), 0.5, 1.0, 0.75, 0.125)


@program("numbers in records")
def a_fraction_of_the_standard_library(w):
    fed(w, lambda x, n: x * float(fractions.Fraction(n, 3) + 1), 1, 2, 3, 4)


@program("numbers in records")
def an_operator_is_called_by_name(w):
    fed(w, lambda x, n: x * operator.add(n, 1) + operator.truediv(n, 4) + operator.neg(n), 1, 2, 3, 4)


@program("numbers that change", jax=True)
def a_sum_of_products_of_numbers(w):
    fed(w, lambda x, n: x * sum(k * n for k in (1, 2, 3)) + math.prod([n, 2]), 1, 2, 3, 4)


@program("numbers in records")
def a_mean_of_the_standard_library(w):
    fed(w, lambda x, n: x * statistics.fmean([n, 2.0, 3.0]), 1.0, 2.0, 4.0, 7.0)


@program("numbers that change", jax=True)
def a_number_is_folded(w):
    fed(w, lambda x, n: x * functools.reduce(lambda a, k: a * n + k, (1, 2, 3), 0), 1, 2, 3, 4)


@program("numbers that change", jax=True)
def numbers_are_sorted(w):
    fed(w, lambda x, n: x * sorted((n, 2, 3))[1] + sorted([n, 2.5], reverse=True)[0], 1, 2, 3, 4)


@program("numbers that change", jax=True)
def a_range_ends_at_a_number(w):
    fed(w, lambda x, n: x * sum(range(n)) + len(range(0, n, 2)), 1, 2, 3, 5)


@program("numbers that change", jax=True)
def a_number_becomes_text_and_a_number_again(w):
    fed(w, lambda x, n: x * float(f"{n:.1f}") + int(str(n)[0]), 1.25, 2.5, 3.75, 4.0)


# ---- text of numbers ---------------------------------------------------------------------------------------
@program("text of numbers")
def a_number_in_many_formats(w):
    fed(w, lambda x, n: (x * n, f"{n:.3f}|{n:8.2e}|{n:>6}|{n:g}|{n!r}"), 0.5, 1.0, 1234.5, -2.0)


@program("text of numbers")
def an_integer_in_many_formats(w):
    fed(w, lambda x, n: (x * n, f"{n:04d}|{n:x}|{n:b}|{n:,}|{n:+d}"), 1, 20, 3000, -4)


@program("text of numbers")
def a_format_from_outside(w):
    form = ".2f"
    f = w.trace(lambda x, n: (x * n, format(n, form)))
    for form, n in w.rounds((".2f", 1.0), (".3e", 1.0), (".2f", 2.0), ("g", 3.0)):
        w.call(f, w.x, n)


@program("text of numbers")
def a_nested_width(w):
    width = 5
    f = w.trace(lambda x, n: (x * n, f"{n:{width}.{width - 3}f}"))
    for width, n in w.rounds((5, 1.0), (8, 1.0), (5, 2.5), (6, 2.5)):
        w.call(f, w.x, n)


@program("text of numbers")
def a_percentage_is_printed(w):
    @w.trace
    def f(x, n):
        print("%5.1f%% of %d, %s, %r" % (n * 100, int(n * 8), n, n))  # noqa: UP031
        return x * n

    for n in w.rounds(0.125, 0.25, 0.5, 1.0):
        w.call(f, w.x, n)


@program("text of numbers")
def a_template_takes_numbers_by_name(w):
    form = "{step} of {total:>3}: {rate:.4f}"
    fed(w, lambda x, n: (x * n, form.format(step=n, total=10, rate=1 / n)), 1, 2, 4, 8)


@program("text of numbers")
def a_line_is_joined_of_numbers(w):
    lines = []

    @w.trace
    def f(x, n):
        lines.append(", ".join(str(k * n) for k in range(3)))
        return x * n

    w.see(lines=lines)
    for n in w.rounds(1, 2, 3, 4):
        w.call(f, w.x, n)


@program("text of numbers")
def a_progress_bar_of_text(w):
    @w.trace
    def f(x, n):
        print("#" * n + "." * (5 - n), end="\r")
        return x * n

    for n in w.rounds(1, 2, 3, 5):
        w.call(f, w.x, n)


@program("text of numbers")
def a_name_is_made_of_a_number(w):
    weights = {f"layer{i}": t.tensor(float(i + 1)) for i in range(4)}
    fed(w, lambda x, n: x * weights[f"layer{n}"], 0, 1, 2, 3)


@program("text of numbers")
def an_attribute_is_named_by_a_number(w):
    held = types.SimpleNamespace(w0=1.0, w1=2.0, w2=4.0)
    f = w.trace(lambda x, n: x * getattr(held, f"w{n}"))
    for n, held.w1 in w.rounds((0, 2.0), (1, 2.0), (2, 2.0), (1, 3.0)):
        w.call(f, w.x, n)


# ---- numbers in records ------------------------------------------------------------------------------------
@dataclasses.dataclass
class Progress:
    step: int = 0
    best: float = math.inf
    rates: list = dataclasses.field(default_factory=list)

    @property
    def share(self):
        return self.step / 10

    def advanced(self, by=1):
        self.step += by
        return self


@dataclasses.dataclass(frozen=True)
class Setting:
    rate: float
    decay: float = 0.5

    def at(self, step):
        return self.rate * self.decay**step


class Where(typing.NamedTuple):
    epoch: int
    batch: int = 0

    @property
    def number(self):
        return self.epoch * 4 + self.batch


class Phase(enum.Enum):
    WARM = 1
    MAIN = 2
    COOL = 3


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Parts(enum.Flag):
    BODY = enum.auto()
    HEAD = enum.auto()
    TAIL = enum.auto()


@program("numbers in records")
def a_dataclass_counts(w):
    progress = Progress()

    @w.trace
    def f(x):
        progress.step += 1
        progress.rates.append(progress.share)
        return x * progress.share

    w.see(progress=progress)
    for progress.step in w.rounds(0, 10):
        progress.rates.clear()
        w.call(f, w.x)


@program("numbers in records")
def a_dataclass_is_replaced(w):
    setting = Setting(1.0)
    f = w.trace(lambda x, n: x * setting.at(n))
    for n in w.rounds(1, 2, 3, 1):
        setting = dataclasses.replace(setting, rate=setting.rate + 0.5 if setting.rate < 3 else 1.0)
        w.call(f, w.x, n)


@program("numbers in records")
def a_dataclass_is_replaced_inside(w):
    setting = Setting(1.0)

    @w.trace
    def f(x):
        nonlocal setting
        setting = dataclasses.replace(setting, rate=setting.rate * 0.5)
        return x * setting.rate

    w.see(setting=lambda: setting)
    for rate in w.rounds(1.0, 3.0):
        setting = Setting(rate)
        w.call(f, w.x)


@program("numbers in records")
def a_dataclass_becomes_a_dict(w):
    f = w.trace(lambda x, p: (x * dataclasses.asdict(p)["step"], dataclasses.astuple(p)))
    for step in w.rounds(1, 2, 3):
        w.call(f, w.x, Progress(step, best=0.5, rates=[step]))


@program("numbers in records")
def a_dataclass_is_compared(w):
    first = Setting(1.0)
    f = w.trace(lambda x, s: x * 2 if s == first else x * s.rate)
    for first, rate in w.rounds((Setting(1.0), 1.0), (Setting(1.0), 3.0), (Setting(3.0), 3.0)):
        w.call(f, w.x, Setting(rate))


@program("numbers in records")
def a_method_of_a_dataclass_moves_it(w):
    progress = Progress()
    f = w.trace(lambda x, by: x * progress.advanced(by).step)
    w.see(progress=progress)
    for by in w.rounds(1, 2, 5):
        progress.step = 0
        w.call(f, w.x, by)


@program("numbers in records")
def a_named_tuple_goes_on(w):
    where = Where(0)

    @w.trace
    def f(x):
        nonlocal where
        where = where._replace(batch=where.batch + 1) if where.batch < 3 else Where(where.epoch + 1)
        return x * where.number

    w.see(where=lambda: where)
    for where in w.rounds(Where(0), Where(5, 2)):
        w.call(f, w.x)


@program("numbers in records")
def a_named_tuple_is_unpacked(w):
    @w.trace
    def f(x, where):
        epoch, batch = where
        return x * epoch + batch, where._asdict(), where[::-1]

    for where in w.rounds(Where(1, 2), Where(2, 1), Where(3)):
        w.call(f, w.x, where)


@program("numbers in records")
def a_named_tuple_is_made_and_returned(w):
    fed(w, lambda x, n: (x * n, Where(n, n + 1), Where(*divmod(n, 2))), 1, 2, 3, 4)


@program("numbers in records")
def an_enum_chooses(w):
    phase = Phase.WARM
    factors = {Phase.WARM: 0.5, Phase.MAIN: 1.0, Phase.COOL: 0.25}
    f = w.trace(lambda x: x * factors[phase] if phase is not Phase.COOL else x - phase.value)
    for phase in w.rounds(Phase.WARM, Phase.MAIN, Phase.COOL):
        w.call(f, w.x)


@program("numbers in records")
def an_enum_is_looked_up_by_a_number(w):
    fed(w, lambda x, n: x * 2 if Phase(n) is Phase.MAIN else x * len(Phase(n).name), 1, 2, 3)


@program("numbers in records")
def an_enum_that_is_an_integer(w):
    level = Level.LOW
    f = w.trace(lambda x, n: (x * level + n, level + n, level > n, level))
    for level, n in w.rounds((Level.LOW, 1), (Level.HIGH, 2), (Level.LOW, 3), (5, 3)):
        w.call(f, w.x, n)


@program("numbers in records")
def flags_are_joined(w):
    wanted = Parts.BODY

    @w.trace
    def f(x):
        if Parts.BODY in wanted:
            x = x * 2
        if wanted & Parts.HEAD:
            x = x + 1
        return x - (wanted | Parts.TAIL).value

    for wanted in w.rounds(Parts.BODY, Parts.BODY | Parts.HEAD, Parts.HEAD, Parts(0)):
        w.call(f, w.x)


@program("numbers in records")
def an_enum_is_matched(w):
    @w.trace
    def f(x, phase, n):
        match phase, n:
            case Phase.WARM, k if k < 3:
                return x * k
            case Phase.WARM, _:
                return x - 1
            case Phase.MAIN | Phase.COOL, k:
                return x + k

    for phase, n in w.rounds((Phase.WARM, 1), (Phase.WARM, 4), (Phase.MAIN, 2), (Phase.COOL, 2)):
        w.call(f, w.x, phase, n)


@program("numbers in records")
def a_number_deep_in_containers(w):
    config = {"optim": {"lr": [0.1, (1, 2.0)]}, "on": True}
    f = w.trace(lambda x: x * config["optim"]["lr"][0] + config["optim"]["lr"][1][1] if config["on"] else x)
    w.see(config=config)
    for rate, deep, on in w.rounds((0.1, 2.0, True), (0.2, 2.0, True), (0.2, 3.0, True), (0.1, 3.0, False)):
        config["optim"]["lr"][:] = [rate, (1, deep)]
        config["on"] = on
        w.call(f, w.x)


@program("numbers in records")
def a_counter_per_name(w):
    counts = collections.defaultdict(int)

    @w.trace
    def f(x, name):
        counts[name] += 1
        return x * counts[name] + sum(counts.values())

    w.see(counts=counts)
    for name in w.rounds("a", "b", "a"):
        if name == "b":
            counts.clear()
        w.call(f, w.x, name)


@program("numbers in records")
def a_counter_of_the_standard_library_votes(w):
    votes = collections.Counter()

    @w.trace
    def f(x, n):
        votes[n % 3] += n
        return x * votes.most_common(1)[0][1], dict(votes), votes.total()

    w.see(votes=votes)
    for n in w.rounds(1, 2, 3, 4):
        w.call(f, w.x, n)
        if n == 4:
            votes.clear()


@program("numbers in records")
def a_window_of_numbers(w):
    window = collections.deque(maxlen=3)

    @w.trace
    def f(x, n):
        window.append(n)
        return x * sum(window) / len(window), window[0], max(window)

    w.see(window=window)
    for n in w.rounds(1.0, 2.0, 4.0, 8.0):
        w.call(f, w.x, n)


@program("numbers in records")
def a_table_of_rows_grows(w):
    rows = []

    @w.trace
    def f(x, n):
        rows.append({"n": n, "square": n * n, "pair": (n, -n)})
        del rows[:-3]
        return x * rows[0]["square"]

    w.see(rows=rows)
    for n in w.rounds(1, 2, 3, 4):
        w.call(f, w.x, n)


@program("numbers in records")
def the_number_of_calls_is_a_default(w):
    def f(x, count=[0], *, seen={}):
        count[0] += 1
        seen[count[0] % 3] = count[0]
        return x * count[0] + len(seen)

    g = w.trace(f)
    w.see(count=f.__defaults__[0], seen=f.__kwdefaults__["seen"])
    for start in w.rounds(0, 5):
        f.__defaults__[0][0] = start
        f.__kwdefaults__["seen"].clear()
        w.call(g, w.x)


@program("numbers in records")
def a_property_counts_its_reads(w):
    class Meter:
        reads = 0

        @property
        def value(self):
            self.reads += 1
            return self.reads * 0.5

    meter = Meter()
    f = w.trace(lambda x: x * meter.value + meter.value)
    w.see(meter=meter)
    for meter.reads in w.rounds(0, 10):
        w.call(f, w.x)


@program("numbers in records")
def the_arguments_of_a_program(w):
    args = types.SimpleNamespace(rate=0.1, steps=3, name="sgd")

    @w.trace
    def f(x):
        for _ in range(args.steps):
            x = x - args.rate * x
        return x if args.name == "sgd" else -x

    for values in w.rounds((0.1, 2, "sgd"), (0.2, 2, "sgd"), (0.2, 3, "sgd"), (0.1, 2, "adam")):
        args.rate, args.steps, args.name = values
        w.call(f, w.x)


@program("numbers in records")
def an_index_beyond_the_end_is_caught(w):
    @w.trace
    def f(x, at):
        try:
            return x[at] * 2
        except IndexError:
            return x.sum()

    for at in w.rounds(9, 8, 1, 7, 2):
        w.call(f, w.x, at)
