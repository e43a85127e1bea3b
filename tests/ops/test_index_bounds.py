"""Places that come from data: small eager calls, large ones and compiled ones refuse and accept the same."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina.ir.lowering import KernelForm
from lamina.ir.op import REGISTRY
from lamina.passes.graphs.lower import lower
from lamina.passes.kernels.index_check import trusted
from lamina.runtime import kernels, plan

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples as arrays
from checks import first_dtype
from harness import cases

ROWS = 4
TABLE = lamina.arange(float(3 * ROWS)).reshape(ROWS, 3)
LINE = lamina.arange(float(ROWS))
ONES = lamina.ones(1, 3)
SCORES = lamina.arange(float(ROWS)).reshape(1, ROWS)


@dataclass(frozen=True)
class Call:
    """A call with one place of a dimension of size ROWS.

    records: those that take the place.  wraps: negative places count from the end.  accepts: odd places that
    mean something.  backward: its gradient alone looks at the places too.
    """

    function: Callable
    value: lamina.Tensor
    records: tuple[str, ...]
    wraps: bool = False
    accepts: tuple[int, ...] = ()
    backward: bool = True


def column(i):
    return i.reshape(1, 1)


CALLS: dict[str, Call] = {
    "index_select": Call(lambda x, i: x.index_select(0, i), TABLE, ("index_select",)),
    "index_add": Call(lambda x, i: x.index_add(0, i, ONES, alpha=2), TABLE, ("index_add",), backward=False),
    "index_copy": Call(lambda x, i: x.index_copy(0, i, ONES), TABLE, ("index_copy",)),
    "index_copy of a scalar": Call(lambda x, i: x.index_copy(0, i, LINE[1]), LINE, ("index_copy",)),
    "index_fill": Call(lambda x, i: x.index_fill(0, i, 9.0), TABLE, ("index_fill",), wraps=True),
    "embedding": Call(lambda x, i: F.embedding(i, x), TABLE, ("embedding",)),
    "embedding padded": Call(lambda x, i: F.embedding(i, x, padding_idx=2), TABLE, ("embedding",)),
    "embedding_bag": Call(lambda x, i: F.embedding_bag(column(i), x), TABLE, ("embedding",)),
    "take": Call(lambda x, i: x.take(i), LINE, ("index",), wraps=True),
    "take_along_dim": Call(lambda x, i: x.take_along_dim(column(i), 0), TABLE, ("gather",), wraps=True),
    "take_along_dim of all": Call(lambda x, i: x.take_along_dim(i), LINE, ("gather",)),
    "gather": Call(lambda x, i: x.gather(0, column(i)), TABLE, ("gather",)),
    "gather along columns": Call(lambda x, i: x.gather(1, column(i)), SCORES, ("gather",)),
    "scatter": Call(lambda x, i: x.scatter(0, column(i), ONES), TABLE, ("scatter", "ungather")),
    "scatter of a number": Call(lambda x, i: x.scatter(0, column(i), 5.0), TABLE, ("scatter",)),
    "scatter added": Call(
        lambda x, i: x.scatter(0, column(i), ONES, reduce="add"), TABLE, ("scatter",), backward=False
    ),
    "scatter_add": Call(
        lambda x, i: x.scatter_add(0, column(i), ONES), TABLE, ("scatter_add",), backward=False
    ),
    **{
        f"scatter_reduce by {how}": Call(
            lambda x, i, how=how: x.scatter_reduce(0, column(i), ONES, how),
            TABLE,
            ("scatter_reduce",),
            backward=how != "sum",
        )
        for how in ("sum", "prod", "mean", "amax", "amin")
    },
    "x[i]": Call(lambda x, i: x[i], TABLE, ("index",), wraps=True),
    "x[:, i]": Call(lambda x, i: x[:, i], SCORES, ("index",), wraps=True),
    "x[i, i]": Call(
        lambda x, i: x[i, i], lamina.arange(float(ROWS * ROWS)).reshape(ROWS, ROWS), ("index",), wraps=True
    ),
    "index_put": Call(lambda x, i: x.index_put((i,), LINE[1]), TABLE, ("index_put", "unindex"), wraps=True),
    "index_put added": Call(
        lambda x, i: x.index_put((i,), ONES, accumulate=True),
        TABLE,
        ("index_put", "unindex"),
        wraps=True,
        backward=False,
    ),
    "cross_entropy": Call(
        F.cross_entropy, SCORES, ("softmax_cross_entropy",), accepts=(-100,), backward=False
    ),
    "cross_entropy weighted": Call(
        lambda x, i: F.cross_entropy(x, i, weight=LINE + 1, label_smoothing=0.1, reduction="sum"),
        SCORES,
        ("softmax_cross_entropy", "softmax_cross_entropy_grad"),
        accepts=(-100,),
    ),
    "nll_loss": Call(F.nll_loss, SCORES, ("gather",), accepts=(-100,)),
    "multi_margin_loss": Call(F.multi_margin_loss, SCORES, ("gather",)),
    "max_unpool1d": Call(
        lambda x, i: F.max_unpool1d(x, i.reshape(1, 1, 1), 4),
        LINE[1].reshape(1, 1, 1),
        ("spread_at", "pick_at"),
    ),
    "max_unpool2d": Call(
        lambda x, i: F.max_unpool2d(x, i.reshape(1, 1, 1, 1), 2), LINE[1].reshape(1, 1, 1, 1), ("spread_at",)
    ),
}
INT_DTYPES = (lamina.int64, lamina.int32, lamina.int16, lamina.int8)
ODD = (-1, -ROWS, -ROWS - 1, ROWS, ROWS + 1, -100, 2**31, 2**40, 2**63 - 1, -(2**63))
INSIDE = (0, 1, ROWS - 1)


def is_accepted(call: Call, place: int) -> bool:
    return 0 <= place < ROWS or place in call.accepts or (call.wraps and -ROWS <= place < 0)


def places_of(dtype) -> list[int]:
    limits = np.iinfo(dtype.numpy)
    return [n for n in (*INSIDE, *ODD) if limits.min <= n <= limits.max]


def outcome(function: Callable, *args):
    """The values, or the word refused."""
    try:
        return function(*args).tolist()
    except lamina.DimError:
        return "refused"


@pytest.fixture
def native(monkeypatch):
    """Every eager op is compiled at its first call, however small its arrays are."""
    monkeypatch.setattr(kernels, "WHEN", kernels.AT_ONCE)
    for name in ("LEAST", "PLAIN_LEAST"):
        monkeypatch.setattr(kernels, name, 0)
    monkeypatch.setattr(kernels, "SLOWER", frozenset())
    plan._forget()
    kernels.forget()
    yield
    plan._forget()
    kernels.forget()


def reads_places(op) -> bool:
    """Whether a kernel of one of the record's samples uses integers from its operands as places."""
    for case in cases(op, first_dtype(op), count=2):
        if any(trusted(lower(op, case.types, case.attrs))):
            return True
    return False


def test_every_record_that_takes_places_is_here():
    named = {name for call in CALLS.values() for name in call.records}
    kernels_of = [op for op in REGISTRY.values() if isinstance(op.lower, KernelForm)]
    reading = {op.name for op in kernels_of if reads_places(op)}
    assert reading >= {"gather", "ungather", "index", "unindex", "index_select", "embedding", "spread_at"}
    assert reading <= named, "add a call of each"


@pytest.mark.parametrize("name", CALLS)
def test_small_eager_call_accepts_what_the_rule_says(name):
    call = CALLS[name]
    for dtype in INT_DTYPES:
        for place in places_of(dtype):
            found = outcome(call.function, call.value, lamina.tensor([place], dtype=dtype))
            assert (found != "refused") == is_accepted(call, place), (place, dtype)


def assert_as_eager(call: Call, function: Callable, eager: Callable, dtypes) -> None:
    for dtype in dtypes:
        for place in places_of(dtype):
            index = lamina.tensor([place], dtype=dtype)
            wanted = outcome(eager, call.value, index)
            found = outcome(function, call.value, index)
            assert (found == "refused") == (wanted == "refused"), (
                f"{place} as {dtype.name}: {found}, eager {wanted}"
            )
            if wanted != "refused":
                assert np.allclose(found, wanted, rtol=1e-5, equal_nan=True), (place, dtype)


@pytest.mark.parametrize("name", CALLS)
def test_native_eager_call_agrees(name, native, monkeypatch):
    call = CALLS[name]

    def plainly(x, i):
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "WHEN", kernels.NEVER)
            plan._forget()
            try:
                return call.function(x, i)
            finally:
                plan._forget()

    assert_as_eager(call, call.function, plainly, INT_DTYPES[:2])


def compiled(function: Callable, *args) -> Callable:
    """The function as it runs once it is compiled: recorded with places that are there."""
    traced = lamina.jit.trace(function)
    for _ in range(3):
        traced(*args)
    return traced


@pytest.mark.parametrize("name", CALLS)
def test_compiled_call_agrees(name):
    call = CALLS[name]
    for dtype in INT_DTYPES[:2]:
        traced = compiled(call.function, call.value, lamina.tensor([1], dtype=dtype))
        assert_as_eager(call, traced, call.function, [dtype])


@pytest.mark.parametrize("name", CALLS)
def test_call_inside_a_fused_kernel_agrees(name):
    call = CALLS[name]

    def fused(x, i):
        return (call.function(x * 2.0 + 1.0, (i ^ 0).clamp(-(2**63), 2**63 - 1)) * 3.0).exp()

    traced = compiled(fused, call.value / 99, lamina.tensor([1]))
    assert_as_eager(Call(fused, call.value / 99, ()), traced, fused, [lamina.int64])


# What the indexed operand of size ROWS is made of inside of one kernel, and what becomes of what was picked.
MADE_OF: dict[str, Callable] = {
    "a part": lambda x: x[2 : 2 + ROWS], "a computed part": lambda x: (x * 2)[:ROWS],
    "one repeated": lambda x: x[3:4].expand(ROWS), "a column": lambda x: x.reshape(-1, 2)[:ROWS, 1],
    "numbers": lambda x: lamina.arange(float(ROWS)), "ones": lambda x: lamina.ones(ROWS),
    "a padded part": lambda x: F.pad(x[3 : 1 + ROWS], (1, 1)), "a part backwards": lambda x: x[:ROWS].flip(0),
    "sums": lambda x: x[: 3 * ROWS].reshape(ROWS, 3).sum(1),
    "two parts": lambda x: lamina.cat([x[:1], x[5:8]]),
    "where": lambda x: lamina.where(x > 3, x, x * 3)[1 : 1 + ROWS],
}  # fmt: skip
BECOMES: dict[str, Callable] = {
    "itself": lambda y: y, "padded": lambda y: F.pad(y, (1, 2)), "cut": lambda y: y[1:] * 2,
    "joined": lambda y: lamina.cat([y, y[:1]])[2:], "repeated": lambda y: y.unsqueeze(0).expand(3, 3).sum(0),
    "chosen": lambda y: lamina.where(y > 1e9, y, 0.0),
}  # fmt: skip
PICKS: dict[str, Callable] = {
    "index": lambda x, i: x[i], "gather": lambda x, i: x.gather(0, i),
    "embedding": lambda x, i: F.embedding(i, x.reshape(-1, 1)).reshape(-1),
}  # fmt: skip


@pytest.mark.parametrize("becomes", BECOMES)
@pytest.mark.parametrize("pick", PICKS)
def test_place_in_what_a_kernel_computes_is_held_to_its_size(pick, becomes):
    """Not to the size of the array that stands behind it, or to none."""
    x, ask = lamina.arange(16.0) - 2, lambda f, i: outcome(f, x, lamina.tensor([1, i, 2]))
    for made_of in MADE_OF.values():

        def picked(x, i, made_of=made_of):
            return BECOMES[becomes](PICKS[pick](made_of(x), i))

        for place in (ROWS - 1, ROWS, -1, -ROWS - 1):
            traced = compiled(picked, x, lamina.tensor([1, 0, 2]))  # anew, as one that refused runs eagerly
            assert ask(traced, place) == ask(picked, place), (made_of, place)


@pytest.mark.parametrize("name", CALLS)
def test_compiled_gradient_agrees(name):
    call = CALLS[name]

    def both(x, i):
        x = x.detach().requires_grad_()
        y = call.function(x, i)
        y.sum().backward()
        return lamina.cat([y.detach().reshape(-1), x.grad.reshape(-1)])

    traced = compiled(both, call.value, lamina.tensor([1]))
    assert_as_eager(call, traced, both, [lamina.int64])


@pytest.mark.parametrize("name", CALLS)
def test_compiled_gradient_alone_agrees(name):
    """Of the forward nothing is then left that could look at the places."""
    call = CALLS[name]

    def gradient(x, i):
        x = x.detach().requires_grad_()
        call.function(x, i).sum().backward()
        return x.grad

    traced = compiled(gradient, call.value, lamina.tensor([1]))
    assert_as_eager(call, traced, gradient, [lamina.int64])


@pytest.mark.parametrize("name", CALLS)
def test_value_that_nobody_reads_refuses_too(name):
    """In the midst of other ops, as the only op, and where the whole step returns nothing."""
    call = CALLS[name]

    def beside(x, i):
        (call.function(x * 2.0 + 1.0, i + 0) * 3.0).exp()
        return x + 1.0

    def alone(x, i):
        call.function(x, i)
        return x

    def step(x, i):
        w = x.detach().requires_grad_()
        call.function(w, i).sum().backward()
        with lamina.no_grad():
            x -= 0.0 * w.grad
        return x

    def asked(x, i):
        y = call.function(x * 2.0, i)
        if x.sum() < -1e9:
            return y
        call.function(x * 3.0, i)
        if x.sum() > -1e9:
            return x - 1.0
        return x

    def live(x, i):
        w = x.detach().requires_grad_()
        return differentiated(w, i).detach()

    def history(w, i):
        call.function(w, i)
        return (w * w).sum()

    differentiated = compiled(history, call.value.clone().requires_grad_(), lamina.tensor([1]))
    for function in (beside, alone, step, asked):
        traced = compiled(function, call.value.clone(), lamina.tensor([1]))
        assert_as_eager(call, traced, function, [lamina.int64])
    assert_as_eager(call, live, lambda x, i: history(x, i), [lamina.int64])


def test_library_routine_that_nobody_reads_refuses_too():
    def checked(x):
        lamina.linalg.cholesky(x)
        return x + 1.0

    def counted(x):
        lamina.bincount(x)
        return x + 1

    for function, good, bad in (
        (checked, lamina.eye(3), -lamina.eye(3)),
        (counted, lamina.tensor([1, 2]), lamina.tensor([1, -2])),
    ):
        traced = compiled(function, good)
        assert traced.counts()["served"] == 2
        with pytest.raises(lamina.ArgumentValueError):
            traced(bad)


def test_refusal_that_the_function_catches_is_no_fault(recwarn):
    def safe(x):
        try:
            return lamina.linalg.cholesky(x) * 2.0
        except lamina.ArgumentValueError:
            return x

    traced = compiled(safe, lamina.eye(3))
    assert traced.counts()["served"] == 2
    assert (traced(-lamina.eye(3)) == -lamina.eye(3)).all()
    assert not recwarn.list
