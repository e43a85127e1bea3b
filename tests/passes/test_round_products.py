"""Products of f32 on tensor cores: golden text, what is laid out anew and what is not, meaning kept."""

from dataclasses import replace

import numpy as np
import pytest
from image_programs import Builder, check
from test_split_calls import same

import lamina
from lamina.ir.kernel import parse
from lamina.ir.kernel.verify import verify as verify_kernel
from lamina.jit.backend import options_of
from lamina.passes.programs import round_products as subject
from lamina.passes.programs.channels_last import channels_last
from lamina.passes.programs.image_layout import relayout
from lamina.passes.programs.program import Array, Call, Program, verify
from lamina.passes.programs.round_products import round_products, sums_apart
from lamina.passes.programs.split_calls import split_calls
from lamina.passes.schedules.gpu import Lanes, Precision
from lamina.passes.schedules.steps import Schedule
from lamina.passes.triton.defaults import default_schedule
from lamina.passes.triton.generate import generate, programs_of
from lamina.passes.triton.target import Target

PRODUCT = """\
kernel product(x: f32[{x}], w: f32[{w}]) -> (y: f32[{m},{n}]) {{
  parallel m:{m} n:{n}
  s = sum(k:{k}) (x[{at_x}] * w[{at_w}])
  y[m, n] = s
}}"""
ROUNDED = Schedule(Precision("tf32"))


def product(left: str = "m,k", right: str = "k,n", m: int = 24, k: int = 10, n: int = 20) -> Program:
    """A product of factors whose dimensions are the axes named."""
    x, w = (axes.translate({ord("m"): str(m), ord("k"): str(k), ord("n"): str(n)}) for axes in (left, right))
    text = PRODUCT.format(x=x, w=w, m=m, k=k, n=n, at_x=left, at_w=right)
    kernel = verify_kernel(parse(text))
    inputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.inputs)
    outputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.outputs)
    return verify(Program("net", inputs, (Call(kernel, inputs, outputs),), outputs))


@pytest.fixture
def any_size(monkeypatch):
    monkeypatch.setattr(subject, "LARGE", 1)
    monkeypatch.setattr(subject, "MEETS", 1)


def test_a_factor_is_copied_with_the_sum_innermost(golden, any_size):
    before = product("k,m", "k,n")
    after = round_products(before, "tf32")
    golden("passes/round_products", f"{before}\n\n{after}\n\n{after.calls[-1].kernel}\n")
    same(before, after)


@pytest.mark.parametrize("left, right", [("m,k", "n,k"), ("k,m", "n,k"), ("m,k", "k,n")])
def test_factors_of_which_one_has_it_so_are_read_where_they_are(left, right, any_size):
    before = product(left, right)
    after = round_products(before, "tf32")
    assert [c.how for c in after.calls] == [ROUNDED]
    same(before, after)


def test_factors_of_two_parts_are_copied(any_size):
    """They don't go through registers: without the copy a product takes twice as long on an H200."""
    for left, right, copies in (("m,k", "k,n", 1), ("k,m", "n,k", 1), ("m,k", "n,k", 0)):
        before = product(left, right)
        after = round_products(before, "tf32x3")
        assert len(after.calls) == 1 + copies and after.calls[-1].how == Schedule(Precision("tf32x3"))
        kernel = after.calls[-1].kernel
        assert all(kernel.buffers[a.buffer].offset(a.index).coefficient("k") == 1 for _, a in kernel.reads)
        same(before, after)


def test_two_that_have_it_otherwise_are_both_copied(any_size):
    before = product("k,m", "k,n")
    after = round_products(before, "tf32")
    assert len(after.calls) == 3 and after.calls[-1].how == ROUNDED
    kernel = after.calls[-1].kernel
    assert all(kernel.buffers[a.buffer].offset(a.index).coefficient("k") == 1 for _, a in kernel.reads)
    same(before, after)


def test_a_factor_of_other_units_has_the_sum_first(golden, monkeypatch):
    before = product("m,k", "n,k")
    assert sums_apart(before) is not before and sums_apart(before).steps == before.steps  # it is small
    monkeypatch.setattr(subject, "LARGE_SINGLE", 1)
    monkeypatch.setattr(subject, "MEETS_SINGLE", 1)
    after = sums_apart(before)
    golden("passes/sums_apart", f"{before}\n\n{after}\n\n{after.calls[-1].kernel}\n")
    same(before, after)
    for left, right in (("k,m", "n,k"), ("m,k", "k,n"), ("k,m", "k,n")):
        assert len(sums_apart(product(left, right)).calls) == 1
    rounded = round_products(before, "tf32")
    assert sums_apart(rounded).calls == rounded.calls


def test_a_matrix_that_two_products_read_is_copied_once(any_size):
    one = product("k,m", "k,n")
    (call,) = one.calls
    again = replace(call, outputs=tuple(Array("z", a.dtype, a.shape) for a in call.outputs))
    before = one.replace(steps=(call, again), results=(*call.outputs, *again.outputs), into=())
    after = round_products(before, "tf32")
    assert [c.name for c in after.calls] == ["relayout", "relayout", "product", "product"]
    same(before, after)


def test_copies_that_would_not_pay_are_not_made():
    (call,) = round_products(product(m=512, n=512, k=16), "tf32").calls
    assert call.how == ROUNDED
    assert len(round_products(product(m=subject.MEETS - 1, k=4096, n=4096), "tf32").calls) == 1
    large = product("k,m", "k,n", m=64, k=65536, n=128)
    assert round_products(large, "tf32").calls == large.calls  # nor is it rounded: that would not pay either
    assert len(round_products(product(right="n,k", m=4, k=65536, n=4096), "tf32").calls) == 1
    assert len(round_products(product("k,m", m=1024, n=1024, k=1024), "tf32").calls) == 3


def test_one_factor_that_lies_otherwise_is_read_in_registers():
    """Where a copy would not pay: 1 x 1 taps over images as they are given."""
    (call,) = round_products(product(m=subject.MEETS - 1, k=4096, n=4096), "tf32").calls
    source = generate(call.kernel, call.how).source
    assert call.how == ROUNDED and "& -8192" in source
    rows, columns = "n_tile[:, None]", "m_tile[None, :]"  # the factor that is not so has the rows
    assert rows.replace("n", "m", 1) in source and columns.replace("m", "n", 1) in source
    (call,) = product("m,k", "n,k").calls
    assert "& -8192" not in generate(call.kernel, ROUNDED).source


@pytest.mark.parametrize("left, right, rows", [("k,m", "n,k", "n"), ("m,k", "k,n", "m"), ("m,k", "n,k", "m")])
def test_other_units_have_the_sum_innermost_in_the_rows(left, right, rows):
    """A product of 4096 runs at 44 TF/s so on an H200, and at 14 where columns alone have it so."""
    (call,) = product(left, right, m=512, n=512, k=512).calls
    lanes = {step.dim: step.axes for step in default_schedule(call.kernel).steps if isinstance(step, Lanes)}
    assert lanes["m"] == (rows,)


def test_a_copy_is_not_copied_again(any_size):
    one = product("k,m", "k,n")
    (call,) = one.calls
    x = Array("given", "f32", (24, 10))
    copy = relayout(x, (1, 0), "x")
    whole = one.replace(
        params=(x, one.params[1]), steps=(copy, replace(call, inputs=(*copy.outputs, call.inputs[1])))
    )
    after = round_products(verify(whole), "tf32")
    assert [c.name for c in after.calls] == ["relayout", "product"] and after.calls[1].inputs[0] is x
    same(whole, after)
    kept = whole.replace(results=(*whole.results, *copy.outputs), into=())
    assert [c.name for c in round_products(kept, "tf32").calls] == ["relayout", "relayout", "product"]


def test_convolutions_take_weights_with_the_summed_channels_last():
    b = Builder("net", (2, 3, 6, 7))
    y = b.op("conv2d", b.image, b.param("w", (4, 3, 3, 3)))
    before = b.program(b.op("conv2d", y, b.param("v", (5, 4, 1, 1))))
    after = round_products(channels_last(before, sums_last=True), "tf32x3")
    convolutions = [call for call in after.calls if call.name == "conv2d"]
    assert [c.inputs[1].shape for c in convolutions] == [(3, 3, 4, 3), (1, 1, 5, 4)]
    assert all(str(c.how) == "precision(tf32x3)" for c in convolutions)
    check(before, after, 0)


def test_what_is_no_product_of_f32_is_left_alone():
    before = product()
    (call,) = before.calls
    text = str(call.kernel).replace("f32", "f64")
    kernel = verify_kernel(parse(text))
    inputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.inputs)
    outputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.outputs)
    doubles = Program("net", inputs, (Call(kernel, inputs, outputs),), outputs)
    assert [c.how for c in round_products(doubles, "tf32").calls] == [None]
    held = before.replace(steps=(replace(call, how=Schedule(Precision("ieee"))),))
    assert [str(c.how) for c in round_products(held, "tf32").calls] == ["precision(ieee)"]


def test_a_sum_that_few_programs_do_is_cut_and_its_parts_are_rounded():
    before = round_products(product("k,m", "k,n", m=64, n=64, k=65536), "tf32")
    after = split_calls(before, programs_of)
    assert len(after.calls) == 2 and {c.how for c in after.calls} == {ROUNDED}
    source = generate(after.calls[0].kernel, after.calls[0].how).source
    assert "input_precision='tf32'" in source


def test_a_precision_by_itself_leaves_tiles_to_the_target():
    (call,) = product("m,k", "n,k", m=4096, n=4096, k=4096).calls
    wide, narrow = (generate(call.kernel, ROUNDED, None, Target.named(t)) for t in ("sm_90", "sm_89"))
    assert "(128, 256,)" in wide.source and "(128, 128,)" in narrow.source
    assert "tf32" not in generate(call.kernel).source


@pytest.mark.parametrize(
    "word, given, wanted",
    [
        ("highest", None, "float32"),
        ("high", None, "tf32"),
        ("medium", None, "tf32"),
        ("high", "float32", "float32"),
        ("highest", "tf32x3", "tf32x3"),
    ],
)
def test_the_precision_is_what_the_trace_says_or_else_the_program(word, given, wanted):
    try:
        lamina.set_float32_matmul_precision(word)
        assert options_of(0, given).precision == wanted
    finally:
        lamina.set_float32_matmul_precision("highest")


def test_a_cpu_does_not_round_to_tf32():
    x = lamina.tensor(np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32))
    f, g = (lamina.jit.trace(lambda x: x @ x.T, precision=p) for p in ("float32", "tf32"))
    assert np.array_equal(f(x).numpy(), g(x).numpy()) and f.source() == g.source()
