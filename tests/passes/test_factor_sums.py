"""Sums of products are taken apart where factors don't vary over what is summed, or sums over every point."""

import numpy as np
import pytest
from image_programs import kernel_of

from lamina.ir.kernel import interpret, parse, verify
from lamina.passes.programs import factor_sums as module
from lamina.passes.programs.factor_sums import factor_sums, factored
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.programs.program import interpret as interpret_program
from lamina.passes.programs.program_text import program_text
from lamina.passes.schedules.target import AVX512, LEVELS

INSIDE = "((coord(i-r+1) >= 0) & (coord(i-r+1) < 6))"
# the kernels, and the axes that each of those in its place goes over
CASES = {
    "a number": ("(f32(2.0) * w[k, j])", ["j k", "i j"]),
    "a number of each row": ("(c[i] * w[k, j])", ["j k", "i j"]),
    "a number of each column": ("(w[k, j] * d[j])", ["j k", "i j"]),
    "a number of each term": ("(e[k] * w[k, j])", ["j k", "i j"]),
    "what does not vary over one axis": ("(x[i, k] * (w[k, j] * v[r]))", ["r", "i j k"]),
    "a chain of products": ("((x[i, k] * u[k, r]) * v[r])", ["k r", "i k", "i j"]),
    "a condition": (f"(select({INSIDE}, x[i, k], f32(0.0)) * w[k, j])", ["i r", "i j k"]),
    "one within another": (
        "(select((coord(i-r+1) < 6), select((coord(i-r+1) >= 0), d[k], 0), 0) * u[k, r])",
        ["r k", "i r", "i j"],
    ),
    "nothing varies": ("(f32(1.0) * c[i])", ["i j"]),
    "an axis of nothing": ("(x[i, k] * w[k, j])", ["i j k"]),
}  # fmt: skip


def kernel(value: str):
    return verify(
        parse(
            "kernel f(x: f32[6,6], w: f32[6,6], u: f32[6,3], v: f32[3], c: f32[6], d: f32[6], e: f32[6]) -> "
            "(y: f32[6,6]) {\n  parallel i:6 j:6\n"
            f"  t = sum(k:6 r:3) {value}\n  y[i, j] = (t * c[j])\n}}"
        )
    )


def program(kernel) -> Program:
    inputs, outputs = (
        tuple(Array(b.name, b.dtype, b.shape) for b in buffers) for buffers in (kernel.inputs, kernel.outputs)
    )
    return Program("net", inputs, (Call(kernel, inputs, outputs),), outputs)


def arguments(kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(b.shape).astype(np.float32) for b in kernel.inputs]


def check(before: Program, after: Program) -> None:
    """The sums have 18 terms near 1: 18 roundings, of which 8 are of any size."""
    given = arguments(before.calls[0].kernel)
    for want, got in zip(interpret_program(before, *given), interpret_program(after, *given), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=18 * np.finfo(np.float32).eps * np.abs(want).max())


@pytest.mark.parametrize("name", CASES)
def test_what_is_summed_apart(name, monkeypatch):
    monkeypatch.setattr(module, "CALL", -1e9)  # whatever it costs
    form = kernel(CASES[name][0])
    made = factor_sums(program(form), AVX512)
    for call in made.calls:
        verify(call.kernel)
    assert [" ".join(axis.name for axis in call.kernel.axes) for call in made.calls] == CASES[name][1]
    check(program(form), made)


def test_what_is_updated_in_place_is_read_first(monkeypatch):
    monkeypatch.setattr(module, "CALL", -1e9)
    text = (
        "kernel f(p: f32[6,6], w: f32[6,6]) -> (y: f32[6,6] inplace p) {\n  parallel i:6 j:6\n"
        "  t = sum(k:6) (2.0 * w[k, j])\n  y[i, j] = (p[i, j] - t)\n}"
    )
    form = verify(parse(text))
    made = factor_sums(program(form), AVX512)
    assert [call.kernel.outputs[0].inplace for call in made.calls] == [None, "p"]
    form = verify(parse(text.replace("(p[i, j] - t)", "t")))
    assert [b.name for b in factored(form)[-1].inputs] == ["p", "s0"]


@pytest.mark.parametrize(
    "form",
    [
        kernel_of("matmul", [(8, 9), (9, 10)]),
        kernel_of("conv2d", [(2, 8, 9, 9), (4, 8, 3, 3)], stride=1, padding=1, dilation=1, groups=1),
        kernel_of(
            "conv_input_grad", [(2, 4, 5, 5), (4, 8, 3, 3)], size=(9, 9), stride=2, padding=1, dilation=1,
            groups=1,
        ),
        parse("kernel f(x: i64[4], w: i64[8]) -> (y: i64[4]) {\n  parallel i:4\n"
              "  t = sum(k:8) (x[i] * w[k])\n  y[i] = t\n}"),
        parse("kernel f(x: f32[4], w: f32[8]) -> (y: f32[4]) {\n  parallel i:4\n"
              "  t = max(k:8) (x[i] * w[k])\n  y[i] = t\n}"),
        parse("kernel f(x: f32[4], w: f32[8], at: i64[4]) -> (y: f32[4]) {\n  parallel i:4\n"
              "  t = sum(k:8) (x[at[i]] * w[k])\n  y[i] = t\n}"),
        parse("kernel f(x: f32[4,1], w: f32[1,8]) -> (y: f32[4,8]) {\n  parallel i:4 j:8\n"
              "  t = sum(k:1) (x[i, k] * w[k, j])\n  y[i, j] = t\n}"),
    ],
    ids=["matmul", "conv2d", "strided", "whole numbers", "max", "trusted", "one term"],
)  # fmt: skip
def test_what_stays_as_it_is(form):
    assert factored(form) == [form]


def test_it_must_pay():
    form = kernel(CASES["a number of each row"][0])
    assert factor_sums(program(form), AVX512).calls[0].kernel is form


def test_a_convolution_of_what_is_expanded(golden):
    """For one number for each channel of each image: its gradients at every level, and their text."""
    text = (
        "kernel input_grad(c: f32[16,32], w: f32[32,32,3,3]) -> (y: f32[16,32,14,14]) {\n"
        "  parallel n:16 j:32 h:14 w_:14\n  t = sum(k:32 r:3 s:3) (select((((coord(h-r+1) >= 0) & "
        "(coord(h-r+1) < 14)) & ((coord(w_-s+1) >= 0) & (coord(w_-s+1) < 14))), c[n, k], f32(0.0))"
        " * w[k, j, r, s])\n  y[n, j, h, w_] = t\n}"
    )
    form = verify(parse(text))
    before = program(form)
    texts = {program_text(factor_sums(before, target)) for target in LEVELS}
    assert len(texts) == 1
    golden("passes/factor_sums", f"{program_text(before)}\n\n{texts.pop()}\n")
    # 32 * 9 terms near 1, which cancel to some sqrt(288)
    given = arguments(form)
    (want,), (got,) = (interpret_program(p, *given) for p in (before, factor_sums(before, AVX512)))
    np.testing.assert_allclose(got, want, rtol=0, atol=288 * np.finfo(np.float32).eps * np.abs(want).max())


@pytest.mark.parametrize("name", ["a number of each row", "a number of each column"])
def test_planted_what_is_taken_out_is_lost(name, monkeypatch):
    real = module._Factoring.multiplied
    lost = lambda self, factors, value=None: real(self, [] if value is not None else factors, value)  # noqa: E731
    monkeypatch.setattr(module._Factoring, "multiplied", lost)
    with pytest.raises(AssertionError):
        test_what_is_summed_apart(name, monkeypatch)


def test_interpreted_kernels_in_turn():
    """What is left of a kernel reads what the others made."""
    form = kernel(CASES["a chain of products"][0])
    values = dict(zip((b.name for b in form.inputs), arguments(form), strict=True))
    for part in factored(form):
        results = interpret(part, *(values[b.name] for b in part.inputs))
        values |= zip((b.name for b in part.outputs), results, strict=True)
    (want,) = interpret(form, *arguments(form))
    np.testing.assert_allclose(
        values["y"], want, rtol=0, atol=18 * np.finfo(np.float32).eps * np.abs(want).max()
    )
