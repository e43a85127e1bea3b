"""Numbers that change from call to call: what is computed of them is an input, and compiled calls go on."""

import cmath
import math
from types import SimpleNamespace

import pytest

import lamina
from lamina import jit

X = lamina.tensor([1.0, -2.0])


def served(function, *each, recordings=2):
    """The traced function, after calls with each number that gave what plain ones give."""
    traced = jit.trace(function)
    for n in each:
        assert traced(X, n).tolist() == function(X, n).tolist(), n
    counts = traced.counts()
    assert counts["served"] == len(each) - recordings, traced.explain()
    return traced


def schedule(x, n):
    return x * (0.1 * 0.5 * (1 + math.cos(math.pi * n / 100)))


def fibonacci(x, n):
    a, b = n, n + 1
    for _ in range(64):
        a, b = b, a + b
    return x * (b / 1e15)


@pytest.mark.parametrize(
    "function",
    [
        schedule,
        fibonacci,
        lambda x, n: x * min(1, n / 10) + max(0.5, n / 2, 1.5),
        lambda x, n: x * min(5, n),
        lambda x, n: x * (n + 1) ** -0.5 * 0.9**n * pow(n + 1, 2),
        lambda x, n: x * (-3) ** n * 2**n,
        lambda x, n: x * round(n / 3, 2) * int(n * 1.5) * float(n) * abs(-n),
        lambda x, n: x * (n % 3) * (n // 2) * (n & 6) * (n << 2) * -n,
        lambda x, n: x * math.floor(n / 2) * math.sqrt(n) * math.exp(-n) * math.hypot(n, 1.0),
        lambda x, n: x * n if math.isfinite(n) and not math.isnan(n / 2) else x,
    ],
)
def test_numbers_computed_of_changing_ones_are_inputs(function):
    served(function, *range(8))


@pytest.mark.parametrize(
    "make",
    [
        lamina.tensor,
        lambda n: lamina.tensor(n / 3),
        lambda n: lamina.tensor(n, dtype=lamina.float64),
        lambda n: lamina.full((2, 3), n),
        lambda n: lamina.full((2,), -0.5 * n),
        lambda n: lamina.full((4,), fill_value=n, dtype=lamina.float32),
        lambda n: lamina.full((2,), n, dtype=lamina.int64).add_(1),
        lambda n: lamina.tensor([1.0, 2.0])[lamina.full((3,), n % 2, dtype=lamina.int64)],
    ],
)
def test_tensors_of_changing_numbers(make):
    traced = jit.trace(make)
    for n in range(7):
        got, want = traced(n), make(n)
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
        assert got.numpy().tobytes() == want.numpy().tobytes()
    assert traced.counts()["served"] == 5, traced.explain()


@pytest.mark.parametrize("dtype", [lamina.int32, lamina.bool, lamina.uint8])
def test_tensors_of_other_dtypes_hold_each_number_to_its_own(dtype):
    traced = jit.trace(lambda n: lamina.full((2,), n, dtype=dtype))
    for n in range(5):
        assert traced(n).tolist() == lamina.full((2,), n, dtype=dtype).tolist()


def test_numbers_beyond_what_a_float_holds_are_no_inputs():
    traced = jit.trace(lambda n: lamina.tensor(n * n))
    for n in (3, 4, 5, 1 << 30, 6):
        assert traced(n).tolist() == n * n
    with pytest.raises(lamina.ArgumentValueError):
        traced(1 << 40)


def test_class_that_a_number_changes_is_no_other_number():
    traced = jit.trace(lambda x, n: x * min(n, 2.5) if type(min(n, 2.5)) is int else x * -1)
    for n in (0, 1, 2, 3, 4, 1, 3):
        assert traced(X, n).tolist() == (X * n if n < 3 else X * -1).tolist()
    traced = jit.trace(lambda x, n: x * abs((n - 3) ** 0.5))  # complex below
    for n in (4, 5, 6, 2, 7, 1):
        assert traced(X, n).tolist() == (X * abs((n - 3) ** 0.5)).tolist()


def test_errors_of_computed_numbers_are_those_of_the_function():
    traced = served(lambda x, n: x * math.sqrt(n) * (1 / n) * math.log(n), 1, 2, 3, 4)
    for n, error in ((0, ZeroDivisionError), (-1, ValueError), (3, None)):
        if error is None:
            assert traced(X, n).tolist() == (X * math.sqrt(n) * (1 / n) * math.log(n)).tolist()
        else:
            with pytest.raises(error):
                traced(X, n)


def test_long_chains_of_operations_nest_nothing():
    def down(x, n):
        steps = 0
        while n > 0:
            steps, n = steps + n, n - 1
        return x * steps

    traced = jit.trace(down)
    for n in (1, 2, 3, 300, 300, 300):
        assert traced(X, n).tolist() == down(X, n).tolist()
    assert traced.counts()["served"] == 2, traced.explain()


def test_numbers_that_leave_are_what_the_function_gives():
    meter = SimpleNamespace(total=0, last=None)

    def count(x, n):
        meter.total += n
        meter.last = min(n, 3) * 2
        meter.half = (n + 1) // 2
        return x * n

    traced, totals = jit.trace(count), 0
    for n in range(2, 9):
        totals += n
        assert traced(X, n).tolist() == (X * n).tolist()
        assert (meter.total, meter.half, meter.last) == (totals, (n + 1) // 2, min(n, 3) * 2)
        assert all(type(held) is int for held in vars(meter).values())
    assert traced.counts()["served"] == 5, traced.explain()


@pytest.mark.parametrize(
    "then",
    [
        "held.sort()", "held.insert(0, 9)", "held.append(held[0])", "del held[2:]",
        "held[:] = [1, 2, held[0]]",
        "held[1] = held[0]", "held[1] = sum([*held])", "held[1] = max(held)", "held[1] = held.index(held[0])",
        "held[1] = 4 if 3 in held else 5", "a, b, *_ = held; held[1] = a + b", "held[1] = str(held)",
        "held[1] = held == [2, 0, 0]", "held[1] = list(enumerate(held))[0][1]", "held[-1] = held[-3] * 2",
    ],
)  # fmt: skip
def test_numbers_put_into_lists_are_seen_by_all_that_reads_these(then):
    scope = {}
    exec(f"def step(x, held):\n    held[0] += 1\n    {then}\n    return x * held[0]", scope)
    held, plain = [0, 0, 0], [0, 0, 0]
    traced = jit.trace(lambda x: scope["step"](x, held))
    for _ in range(6):
        assert traced(X).tolist() == scope["step"](X, plain).tolist()
        assert held == plain


def test_a_quotient_of_two_numbers_is_a_tensor_in_a_trace_too():
    def step(x, n):
        rows = lamina.div(x.shape[0], n, rounding_mode="trunc")
        return x.reshape(int(rows), -1).sum(0) * lamina.div(n, 4) + rows

    traced = jit.trace(step)
    for n in (2, 2, 2, 4, 4, 2, 4):
        x = lamina.randint(0, 9, (16, 3)).float()  # nothing is rounded
        assert (traced(x, n) == step(x, n)).all()
    assert traced.counts()["served"] >= 3, traced.explain()


@pytest.mark.parametrize("of", [2.5, 2 + 3j, 3, True])
@pytest.mark.parametrize(
    "asked",
    [
        lambda t: complex(t), lambda t: t.item(), lambda t: (t * 2).tolist(), lambda t: bool(t * 2),
        lambda t: abs(complex(t)), lambda t: complex(t).real, lambda t: cmath.exp(complex(t)),
        lambda t: t * complex(t), lambda t: t.item().conjugate(), lambda t: (t * 3).item().imag,
        lambda t: float((t * 2).real), lambda t: int((t * 2).real),
        lambda t: "abcdefghijk"[int(t.real) % 4 :],
    ],
)  # fmt: skip
def test_every_way_to_make_a_python_number_of_a_tensor_is_served(of, asked):
    traced = jit.trace(asked)
    for n in (1, 1, 2, 3, 1, 2, 3):
        wanted, found = asked(lamina.tensor(of) * n), traced(lamina.tensor(of) * n)
        assert str(wanted) == str(found)
    assert "raised" not in traced.explain()


def deleted(n):
    del n[0]


def named(n):
    n.name = 1


def written(n):
    n[0] = 1


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize(
    "asked",
    [
        lambda n: n(), lambda n: n[0], lambda n: n.name, lambda n: len(n), lambda n: [*n], lambda n: 3 in n,
        lambda n: n in n, lambda n: n + "a", lambda n: n < "a", lambda n: n @ n, lambda n: f"{n:zz}", deleted,
        named, written, lambda n: isinstance(1, n), lambda n: sorted(n),
        lambda n: (lambda *, a: a)(n), lambda n: math.sqrt(-n), lambda n: n // 0, lambda n: max(n),
        lambda n: ",".join([n]), lambda n: range(n, "a"), lambda n: {}[n],
        lambda n: hash([n]), lambda n: next(n),
    ],
)  # fmt: skip
def test_errors_of_numbers_that_change_name_pythons_types(asked, kind):
    def step(x, n):
        try:
            found = asked(n)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        return x * n, found

    traced = jit.trace(step)
    for n in range(2, 9):
        assert traced(X, kind(n))[1] == step(X, kind(n))[1]


RATES = [0.875, 0.5, 0.25, 0.75, 0.375, 0.125]
STEPS = (3, 1, 4, 1, 5, 9)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x * RATES[n],
        lambda x, n: x * (1 - RATES[-n]) ** 0.5 + RATES[n],
        lambda x, n: x * STEPS[n % 4] + n,
    ],
)
def test_a_number_of_a_list_at_a_place_that_changes(function):
    served(function, 0, 1, 2, 3, 1, 5)


def test_a_list_is_read_anew_at_each_call():
    rates = [*RATES]
    traced = jit.trace(lambda x, n: x * rates[n])
    for n in (0, 1, 2, 3, 4, 2, 1):
        assert traced(X, n).tolist() == (X * rates[n]).tolist()
        rates[n] += 1.0
        rates[2] = 7.5
    assert traced.counts()["recorded"] == 2
    rates[3] = 4  # an int, where the others are floats
    assert traced(X, 3).tolist() == (X * 4).tolist()
    del rates[3:]
    for call in (traced, lambda x, n: x * rates[n]):
        with pytest.raises(IndexError):
            call(X, 4)


def test_a_list_that_the_call_changes_first_is_read_as_it_is_then():
    rates = [*RATES]

    def moved(x, n):
        rates[0] = rates[0] + 1.0
        return x * rates[n]

    def plain(x, n):
        return x * rates[n]

    traced = jit.trace(moved)
    for n in (0, 1, 0, 2, 0, 0, 1):
        assert traced(X, n).tolist() == plain(X, n).tolist()
