"""Sorting and its kin on tensors of a device: results beside the CPU's, launches and waits on the fake
driver, machine code that holds all in registers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_cuda import Fake, on_fake

import lamina
from lamina.passes.triton import order_text as text
from lamina.passes.triton.code import Code
from lamina.passes.triton.target import Target
from lamina.runtime.cuda import cubin, hsaco

DTYPES = {
    "bool": lamina.bool, "i8": lamina.int8, "u8": lamina.uint8, "i16": lamina.int16, "i32": lamina.int32,
    "i64": lamina.int64, "f16": lamina.float16, "bf16": lamina.bfloat16, "f32": lamina.float32,
    "f64": lamina.float64,
}  # fmt: skip
ROW = text.LONG  # the longest that one launch sorts


class Counted:
    """Calls on a device, beside the CPU's: how many kernels and waits each takes."""

    def __init__(self, fake: Fake):
        from cuda_interpreting import interpret_launches

        self.ran, self.fake = interpret_launches(fake), fake
        warnings.simplefilter("error")  # that an op goes through the host is one

    def __call__(self, function: Callable, *given: Any) -> tuple[list[str], int]:
        """Compare; return the kernels that ran, and how often the host waited before it read the results."""
        wanted = function(*given)
        there = [x.cuda() for x in given]
        lamina.cuda.synchronize()
        self.ran.clear()
        waits = self.fake.calls("cuStreamSynchronize")
        found = function(*there)
        waits = self.fake.calls("cuStreamSynchronize") - waits
        lamina.cuda.synchronize()
        names = [name.rpartition("_")[0] for name in self.ran]
        pairs = zip(*(x if isinstance(x, tuple) else (x,) for x in (found, wanted)), strict=True)
        for x, y in pairs:
            assert x.is_cuda and (x.dtype, x.shape) == (y.dtype, y.shape)
            bits = [z.cpu().contiguous().view(lamina.uint8).numpy() for z in (x, y) if z.ndim]
            assert not bits or np.array_equal(*bits), (x, y)  # -0 and which NaN it is, too
            assert bits or repr(x.item()) == repr(y.item())
        return names, waits


def hard(dtype: Any, *shape: int) -> Any:
    """Few distinct elements, so that many are equal, with what floats have besides: -0, infinities, NaN."""
    x = lamina.randint(-9, 9, shape)
    if dtype is lamina.bool:
        return x > 0
    if dtype.is_floating_point:
        special = lamina.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
        x = lamina.where(lamina.rand(*shape) < 0.4, special[lamina.randint(0, 5, shape)], x / 4)
        return lamina.where(x == -0.25, lamina.tensor(-float("nan")), x).to(dtype)
    least = lamina.iinfo(dtype).min
    x = lamina.where(x == 8, lamina.iinfo(dtype).max, x.abs() if least == 0 else x)
    return lamina.where(x == 7, least, x).to(dtype)


# ---- order
@on_fake(capacity=256 << 20)
def test_rows_of_every_type_are_sorted_as_on_the_cpu(fake: Fake):
    counted = Counted(fake)
    lamina.manual_seed(0)
    for dtype in DTYPES.values():
        for shape, dim in (((1,), 0), ((33,), 0), ((5, 40), 1), ((40, 3), 0), ((3, 9, 4), 1), ((2, 1025), 1)):
            x = hard(dtype, *shape)
            for descending in (False, True):
                names, waits = counted(lambda x, d=dim, e=descending: tuple(x.sort(d, e)), x)
                assert (names, waits) == (["sort_tiles"], 0), (dtype, shape)
    assert counted(lambda x: tuple(x.sort()), lamina.tensor(3.0))[0] == ["sort_tiles"]
    for shape in ((0,), (3, 0), (0, 3)):
        assert counted(lambda x: tuple(x.sort(0)), lamina.zeros(*shape))[0] == []
    assert counted(lambda x: x.argsort(0), hard(lamina.float32, 9, 4).t()[1:])[0][-1] == "sort_tiles"


@on_fake(capacity=256 << 20)
def test_long_rows_are_sorted_by_a_launch_for_each_doubling(fake: Fake):
    counted = Counted(fake)
    lamina.manual_seed(1)
    for name in ("u8", "f16", "f32", "i64"):
        for shape, dim, merges in (((2, ROW + 1), 1, 1), ((2 * ROW + 9, 2), 0, 2), ((4 * ROW + 3,), 0, 3)):
            x, descending = hard(DTYPES[name], *shape), merges == 2
            names, waits = counted(lambda x, d=dim, e=descending: tuple(x.sort(d, e)), x)
            assert (names, waits) == (["sort_tiles", *["merge"] * merges, "pick"], 0), (name, shape)
    assert counted(lambda x: tuple(x.sort()), hard(lamina.float32, ROW))[0] == ["sort_tiles"]


def distinct(*shape: int) -> Any:
    """Rows whose elements differ: of equal ones the CPU's topk says nothing."""
    rows = [lamina.randperm(shape[-1]) - shape[-1] // 2 for _ in range(int(np.prod(shape[:-1])))]
    return lamina.stack(rows).reshape(shape).float()


@on_fake(capacity=256 << 20)
def test_the_first_few_are_found_without_sorting_all(fake: Fake):
    counted = Counted(fake)
    lamina.manual_seed(2)
    for n, k, kernels in (
        (40, 3, ["sort_tiles"]), (ROW, ROW, ["sort_tiles"]), (ROW + 1, 5, ["sort_tiles"] * 2),
        (5 * ROW, ROW // 4, ["sort_tiles"] * 3), (ROW + 9, ROW // 2, ["sort_tiles", "merge", "pick"]),
    ):  # fmt: skip
        for largest in (True, False):
            x = distinct(2, n)
            x[0, n // 2] = float("nan")
            names, waits = counted(lambda x, k=k, e=largest: tuple(x.topk(k, 1, e)), x)
            assert (names, waits) == (kernels, 0), (n, k)
    assert counted(lambda x: tuple(x.topk(3, 0)), distinct(3, 9).t())[1] == 0
    assert counted(lambda x: tuple(x.topk(0)), distinct(2, 9))[0] == []
    for dtype in (lamina.int16, lamina.float64):
        assert counted(lambda x: tuple(x.topk(4, 1)), distinct(3, 99).to(dtype))[0] == ["sort_tiles"]


@on_fake(capacity=256 << 20)
def test_medians_and_kth_values(fake: Fake):
    counted = Counted(fake)
    lamina.manual_seed(3)
    for n, long in ((1, []), (2, []), (33, []), (ROW + 7, ["merge", "pick"])):
        for name in ("f32", "f16", "i64"):
            x = hard(DTYPES[name], 3, n)
            x[2] = lamina.arange(n).to(x.dtype) - n // 2  # a row without NaN
            k = (n + 2) // 3
            names, waits = counted(lambda x, k=k: tuple(x.kthvalue(k, 1)), x)
            assert (names, waits) == (["sort_tiles", *long], 0), (name, n)
            last = ["middle"] if name != "i64" else []
            names, waits = counted(lambda x: tuple(x.median(1, True)), x)
            assert (names, waits) == (["sort_tiles", *long, *last], 0), (name, n)
            counted(lambda x: x.median(), x)
            counted(lambda x: x[2].median(), x)
            if last:
                counted(lambda x: x.nanmedian(), x)
                counted(lambda x: tuple(x.nanmedian(1)), x[1:])
    nothing = lamina.full((5,), float("nan"))
    for function in (lamina.median, lamina.nanmedian):
        counted(function, nothing)
        counted(function, nothing[:0])


# ---- what values tell the size of
@on_fake(capacity=256 << 20)
def test_places_are_counted_with_one_wait(fake: Fake):
    counted = Counted(fake)
    lamina.manual_seed(4)
    for dtype in DTYPES.values():
        for shape in ((1,), (1025,), (3, 700), (2, 3, 400), (2, 2, 3, 5)):
            x = hard(dtype, *shape)
            x[(0,) * x.ndim] = 1
            names, waits = counted(lambda x: x.nonzero(), x)
            assert (names, waits) == (["count", "offsets", "places"], 1), (dtype, shape)
    assert counted(lambda x: x.nonzero(), lamina.zeros(4000))[0] == ["count", "offsets"]
    assert counted(lambda x: x.nonzero(), lamina.zeros(0, 3)) == ([], 0)
    assert counted(lambda x: x.argwhere(), lamina.tensor(2))[1] == 1
    assert counted(lambda x: tuple(x.nonzero(as_tuple=True)), hard(lamina.int32, 40, 9))[1] == 1
    x = lamina.randn(7, 300)
    assert counted(lambda x, m: x.masked_select(m), x, x > 0.5)[1] == 1
    assert counted(lambda x, m: x[m], x, x > 0.5)[1] == 1

    def written(x, m):
        y = x.clone()
        y[m] = 3.0
        return y

    counted(written, x, x > 0.5)


@on_fake(capacity=256 << 20)
def test_distinct_elements_are_counted_with_one_wait(fake: Fake):
    counted = Counted(fake)
    lamina.manual_seed(5)

    def parts(x):
        return x.unique(return_inverse=True, return_counts=True)

    for dtype in DTYPES.values():
        for shape in ((), (1,), (1030,), (30, 9)):
            x = hard(dtype, *shape)
            if dtype.is_floating_point:  # which zero it is, and the order of several NaN, are not said
                x = lamina.where(x == x, lamina.where(x == 0, x.abs(), x), 0.125)
                x.view(-1)[-1] = float("nan")
            names, waits = counted(parts, x)
            assert (names, waits) == (["sort_tiles", "count", "offsets", "runs", "of_runs"], 1), (
                dtype,
                shape,
            )
            counted(lambda x: x.unique_consecutive(return_inverse=True, return_counts=True), x)
    counted(parts, lamina.zeros(0))
    counted(lambda x: x.unique(dim=0, return_counts=True), hard(lamina.int16, 50))
    assert counted(parts, lamina.randint(0, 99, (ROW + 3,)))[0][:3] == ["sort_tiles", "merge", "pick"]
    for weights in ((), (lamina.randn(50).abs().round(),)):
        counted(lambda x, *w: x.bincount(*w, minlength=12), lamina.randint(0, 9, (50,)), *weights)
    counted(lambda x: x.bincount(minlength=4), lamina.zeros(0, dtype=lamina.int64))
    with pytest.raises(lamina.ir.errors.ArgumentValueError, match="non-negative"):
        lamina.tensor([1, -2]).cuda().bincount()


@on_fake()
def test_values_are_searched_by_one_launch(fake: Fake):
    counted = Counted(fake)
    lamina.manual_seed(6)
    for dtype in DTYPES.values():
        rows, given = hard(dtype, 3, 77).sort(1)[0], hard(dtype, 3, 20)
        for right in (False, True):
            for out in (False, True):
                names, waits = counted(
                    lambda x, y, r=right, o=out: lamina.searchsorted(x, y, right=r, out_int32=o), rows, given
                )
                assert (names, waits) == (["search"], 0)
                counted(lambda x, y, r=right: lamina.searchsorted(x, y, right=r), rows[0].clone(), given)
    counted(lambda x, y: lamina.bucketize(y, x), lamina.arange(9), lamina.randn(40) * 9)
    counted(lambda x, y: lamina.searchsorted(x, y), lamina.zeros(0), lamina.randn(4))
    counted(lambda x, y: lamina.searchsorted(x, y), lamina.randn(9).sort()[0], lamina.tensor(0.5))


# ---- sizes, gradients, and what still goes through the host
@on_fake(capacity=64 << 20)
def test_other_sizes_are_no_other_code(fake: Fake):
    from lamina.runtime.cuda.machine import machine

    Counted(fake)

    def all_of_it(x):
        x.sort(1), x.topk(2, 0), x.kthvalue(2, 1), x.median(1), x.nonzero(), x.unique(), x.sort(0)

    for shape in ((9, 70), (2, 700), (2, 2100)):  # one of each size of tile, and one of several
        all_of_it(lamina.randn(*shape).cuda())
    known = {*machine().by_hand}
    for shape in ((2, 3), (40, 8), (3, 1000), (200, 2), (2, 5000)):
        all_of_it(lamina.randn(*shape).cuda())
    assert {*machine().by_hand} == known


@on_fake(capacity=64 << 20)
def test_traced_programs_order_what_they_hold_on_the_device(fake: Fake):
    """With parts of arrays that begin anywhere, as the middle of a program hands them over."""
    counted = Counted(fake)

    def function(x, y):
        values, places = (x * 2).sort(1)
        first, _ = (x + 1).topk(3, 0)
        middles = x[1:].median(), x.nanmedian(), x[2].abs().kthvalue(2)[0], x.relu().median(1)[0]
        return values + 1, places, first * 2, lamina.searchsorted(values[1], y), *middles

    traced, program = lamina.jit.trace(function), lamina.jit.trace(function, target="cuda")
    lamina.manual_seed(8)
    for turn in range(3):
        x, y = distinct(5, 33), lamina.randn(7)
        names, waits = counted(lambda x, y: traced(x, y) if x.is_cuda else function(x, y), x, y)
        assert names.count("sort_tiles") == 6 and (turn == 0 or waits == 0), (names, waits)
        for a, b in zip(program(x, y), function(x, y), strict=True):
            assert a.tolist() == b.tolist()
    assert traced.counts()["served"] == program.counts()["served"] == 2


@on_fake()
def test_gradients_go_to_where_values_came_from(fake: Fake):
    Counted(fake)
    for function in (
        lambda x: x.sort(1)[0][:, :3].sum(), lambda x: x.topk(2, 0)[0].prod(), lambda x: x.median(1)[0].sum(),
        lambda x: x.kthvalue(2)[0].sum(), lambda x: x.median(), lambda x: x[x > 0].sum(),
    ):  # fmt: skip
        x = distinct(3, 6)
        there = x.cuda().requires_grad_()
        x.requires_grad_()
        function(x).backward()
        function(there).backward()
        assert there.grad is not None and (there.grad.cpu() == x.grad).all()


@on_fake()
def test_what_has_no_kernel_still_goes_through_the_host(fake: Fake):
    Counted(fake)
    x = lamina.randint(0, 2, (6, 2))
    with pytest.warns(UserWarning, match="unique_parts is computed on the host"):
        assert x.cuda().unique(dim=0).tolist() == x.unique(dim=0).tolist()


# ---- machine code
def codes() -> dict[str, Code]:
    """Every text that there is, by its name: some element types share theirs."""
    made = [text.offsets()]
    for dtype in text.KINDS:
        made += [
            text.tile(dtype, lanes, text.ORDERED, chosen) for lanes in (text.SHORT, ROW) for chosen in (0, 1)
        ]
        made += [text.tile(dtype, ROW, text.PLACES, chosen) for chosen in (0, 1)]
        made += [text.tile(dtype, ROW, text.KEYS), text.merge(dtype), text.picked(dtype)]
        made += [text.counted(dtype, what) for what in (text.TRUE, text.RUNS)]
        made += [text.places(dtype, rank) for rank in (1, 3)]
        made += [text.runs(dtype, ordered) for ordered in (False, True)]
        made += [text.of_runs(dtype), *(text.searched(dtype, out) for out in ("i32", "i64"))]
        made += [text.middle(dtype)] if dtype[0] in "fb" and dtype != "bool" else []
    return {code.name: code for code in made}


@pytest.mark.timeout(600)
def test_order_kernels_compile_and_spill_nothing(of_the_day):
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    from lamina.passes.triton.compiler import compile_code

    every = codes()
    assert len(every) > 90
    for turn, code in of_the_day(enumerate(every.values()), 7):
        for target in ("sm_90", ("sm_80", "sm_100", "gfx942")[turn % 3]):
            made = compile_code(code, Target.named(target))
            if target[0] == "g":
                spilt = hsaco.kernel(made.code, made.name).spills
            else:
                spilt = cubin.needs(made.code, made.name).stack
            assert spilt == 0, (code.name, target)
            assert made.shared <= 48 << 10 and not made.global_scratch[0]


def test_order_kernels_are_of_equal_text_where_they_do_the_same():
    assert text.tile("i8", ROW, text.KEYS).name == text.tile("bool", ROW, text.KEYS).name
    names = {text.tile(dtype, ROW, text.KEYS).name for dtype in ("f16", "bf16", "i16", "u8", "i8", "i32")}
    assert len(names) == 6
