"""Factors of bfloat16 that are multiplied in pairs: exact where they hold the numbers, and asked for."""

import random
from dataclasses import replace

import numpy as np
import pytest
from image_programs import Builder

import lamina
from lamina import nn
from lamina.ir.errors import Unsayable
from lamina.ir.kernel import parse
from lamina.passes.llvm.binding import emit_object, host_target, machine
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs.assign_layouts import Options as Layouts
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.program import Array, Call, Program, interpret, verify
from lamina.passes.programs.round_where_made import is_rounding, round_where_made
from lamina.passes.schedules.steps import Pairs
from lamina.passes.schedules.steps import parse as parse_schedule
from lamina.passes.schedules.target import AMX_PAIRS, AVX512, AVX512_PAIRS

PAIRS = replace(AVX512, features="+avx512bf16", pairs=AVX512_PAIRS)
HERE = host_target()
NATIVE = pytest.mark.skipif(
    not (HERE.pairs or HERE.matrix), reason="this CPU multiplies no pairs of bfloat16"
)


def whole(shape, seed=0, most=4) -> np.ndarray:
    """Small whole numbers, which bfloat16 holds, and so few of them are not 0 that it holds sums, too."""
    rng = np.random.default_rng(seed)
    kept = rng.random(shape) < 0.2
    return (rng.integers(-most, most + 1, shape) * kept).astype(np.float32)


def arranged(program: Program, rounds: bool = True, only: str | None = None) -> Program:
    laid = assign_layouts(program, PAIRS, Layouts(winograd=False, rounds=rounds))
    return verify(round_where_made(pack_matmuls(laid, PAIRS, Options(rounds=rounds, only=only))))


def same(before: Program, after: Program) -> int:
    """How many calls go in pairs, of a program that gives what another gives."""
    given = [whole(p.shape, n) for n, p in enumerate(before.params)]
    for one, other in zip(interpret(before, *given), interpret(after, *given), strict=True):
        np.testing.assert_array_equal(one, other)
    for call in after.calls:
        code_of(call, PAIRS)  # whose accesses are proved
    return sum(call.how is not None and call.how.has(Pairs) for call in after.calls)


# ---- programs
def products(seed: int) -> Program:
    rng = random.Random(seed)
    b = Builder("net", (*rng.choice(((), (3,))), rng.choice((1, 7, 70, 133)), rng.choice((32, 64, 198))))
    x = b.image
    outs = rng.choice((16, 37, 70, 200))
    kind = rng.choice(("linear", "matmul", "batched", "turned"))
    if kind == "linear":
        y = b.op("linear", x, b.param("w", (outs, x.shape[-1])), b.param("b", (outs,)))
    elif kind == "matmul":
        y = b.op("matmul", x, b.param("w", (x.shape[-1], outs)))
    elif kind == "batched":
        y = b.op("matmul", x, b.param("w", (*x.shape[:-2], x.shape[-1], outs)))
    else:  # its left factor lies across the sum
        y = b.op("matmul", b.op("transpose", x, dim0=-1, dim1=-2), b.param("w", (x.shape[-2], outs)))
    return b.program(b.op("relu", y))


@pytest.mark.parametrize("seed", range(30))
def test_products_in_pairs_are_exact_of_what_bfloat16_holds(seed):
    program = products(seed)
    for only in (None, "pairs"):
        same(program, arranged(program, only=only))


def test_most_products_go_in_pairs_where_that_is_asked_for_and_there_are_pairs():
    each = [products(seed) for seed in range(30)]
    assert sum(same(p, arranged(p)) for p in each) > 5
    assert sum(same(p, arranged(p, only="pairs")) for p in each) == 24  # the others' sums are of odd numbers
    for program in map(products, range(10)):
        assert same(program, arranged(program, rounds=False)) == 0
        plain = pack_matmuls(program, AVX512, Options(rounds=True))
        assert str(plain) == str(pack_matmuls(program, AVX512))


@pytest.mark.parametrize("how", [{}, {"stride": 2}, {"padding": 1}, {"padding": 2, "dilation": 2}], ids=str)
@pytest.mark.parametrize("channels", [32, 40])
@pytest.mark.parametrize("size", [1, 3])
def test_convolutions_in_pairs_are_exact_of_what_bfloat16_holds(size, channels, how):
    b = Builder("net", (2, channels, 11, 9))
    first = b.conv(b.image, 48, size, **how)
    second = b.conv(first, 20, 1, residual=None)
    program = b.program(b.op("add", second, second), first)
    beside = size == 1 and "padding" in how  # windows of one tap beside the image are not laid out by blocks
    assert same(program, arranged(program)) == (1 if beside else 2)


def test_a_depthwise_convolution_has_no_pairs():
    b = Builder("net", (1, 32, 8, 8))
    program = b.program(b.conv(b.image, 32, 3, groups=32, padding=1))
    assert same(program, arranged(program)) == 0


def test_the_program_says_it(golden):
    b = Builder("net", (1, 32, 8, 8))
    conv = b.conv(b.image, 32, 1)
    flat = b.alias(conv, (32, 64))
    after = arranged(b.program(b.op("linear", flat, b.param("w", (48, 64)))), only="pairs")
    kernels = "\n".join(str(call.kernel) for call in after.calls)
    golden("passes/pairs", f"{after}\n\n{kernels}\n")


# ---- the schedule
KERNEL = """\
kernel product(x: bf16[7,16], w: bf16[8,16,2]) -> (y: f32[7,16]) {
  parallel i:7 j:16
  t = sum(k:8 d:2) (f32(x[i, 2*k+d]) * f32(w[k, j, d]))
  y[i, j] = t
}"""
ACROSS = KERNEL.replace("w[k, j, d]", "w[j, k, d]").replace("[8,16,2]", "[16,8,2]")
HOW = "pairs(d) vectorise(j) tile(i, 7)"


def call_of(text: str, how: str) -> Call:
    kernel = parse(text)
    inputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.inputs)
    outputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.outputs)
    return Call(kernel, inputs, outputs, parse_schedule(how))


def test_a_pair_is_one_instruction():
    text = code_of(call_of(KERNEL, HOW), PAIRS).text
    assert text.count(f"@{AVX512_PAIRS}(<16 x float> %") == 7 and "fma" not in text
    if host_target().platform.machine == "x86_64":
        from llvmlite import binding as llvm

        assembly = machine(PAIRS).emit_assembly(llvm.parse_assembly(text))
        assert assembly.count("vdpbf16ps") == 7
        assert emit_object(text, PAIRS)


@pytest.mark.parametrize(
    ("kernel", "target"),
    [
        (ACROSS, PAIRS),
        (KERNEL.replace("bf16", "f16"), PAIRS),
        (KERNEL, AVX512),
        (KERNEL.replace("x[i, 2*k+d]", "x[i, 2*k]"), PAIRS),
    ],
    ids=["lanes", "halves", "target", "neighbours"],
)
def test_what_is_no_pair_is_refused(kernel, target):
    with pytest.raises(Unsayable, match="pair"):
        code_of(call_of(kernel, HOW), target)


# ---- rounding where it is made
ROUND = """\
kernel relu(x: f32[4,8]) -> (y: f32[4,8]) {
  parallel i:4 j:8
  y[i, j] = max(0, x[i, j])
}

kernel round(x: f32[32]) -> (y: bf16[32]) {
  parallel i:32
  y[i] = bf16(x[i])
}
"""


WIDE = "kernel wide(x: bf16[32]) -> (y: f32[32]) {\n  parallel i:32\n  y[i] = f32(x[i])\n}"


def of_two(b: Builder, *results) -> Program:
    relu, rounding = map(parse, ROUND.split("\n\n"))
    y = b.call(relu, b.image, name="y")
    flat = b.alias(y, (32,))
    b.steps.append(Call(rounding, (flat,), (Array("r", "bf16", (32,)),)))
    r = b.steps[-1].outputs[0]
    wide = b.call(parse(WIDE), r)
    found = {"wide": wide, "y": y, "r": r}
    return b.program(*(found[name] for name in results))


@pytest.mark.parametrize(
    ("results", "kernels", "outputs"),
    [
        (("wide",), ["relu", "wide"], ["bf16"]),
        (("wide", "y"), ["relu", "wide"], ["f32", "bf16"]),
        (("wide", "r"), ["relu", "round", "wide"], ["f32"]),
    ],
    ids=str,
)
def test_what_is_rounded_is_made_rounded(results, kernels, outputs):
    before = of_two(Builder("net", (4, 8)), *results)
    after = verify(round_where_made(before))
    assert [call.name for call in after.calls] == kernels
    assert [array.dtype for array in after.calls[0].outputs] == outputs
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    for one, other in zip(interpret(before, x), interpret(after, x), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "text",
    [
        "kernel f(x: f32[4,8]) -> (y: bf16[8,4]) {\n  parallel i:8 j:4\n  y[i, j] = bf16(x[j, i])\n}",
        "kernel f(x: f32[32]) -> (y: bf16[32]) {\n  parallel i:32\n  y[i] = bf16((x[i] + 1.0))\n}",
        "kernel f(x: f32[33]) -> (y: bf16[32]) {\n  parallel i:32\n  y[i] = bf16(x[i+1])\n}",
        "kernel f(x: f32[32]) -> (y: f16[32]) {\n  parallel i:32\n  y[i] = f16(x[i])\n}",
    ],
)
def test_what_does_more_is_no_rounding(text):
    kernel = parse(text)
    arrays = [
        tuple(Array(b.name, b.dtype, b.shape) for b in side) for side in (kernel.inputs, kernel.outputs)
    ]
    assert not is_rounding(Call(kernel, *arrays))


# ---- as a user has it
def traced(function, *arguments):
    """A function's results at the lower precision, and how many instructions of pairs it has."""
    f = lamina.jit.trace(function, precision="bfloat16")
    for _ in range(2):
        found = f(*arguments)
    assert f.counts()["served"]
    return found, in_pairs(f.source())


def in_pairs(source: str) -> int:
    """Instructions on pairs, of vectors or of matrix registers."""
    return source.count(f"@{AVX512_PAIRS}(<16 x float> %") + source.count(f"@llvm.x86.{AMX_PAIRS}(i8 0")


@NATIVE
@pytest.mark.parametrize("m", [1, 5, 16, 40, 80])
@pytest.mark.parametrize(("k", "n"), [(64, 64), (98, 50), (256, 130), (63, 64)])
def test_products_of_whole_numbers_are_exact(m, k, n):
    """In pairs where that pays for packing a weight: 40 rows of 256 to 130 take 12 us in floats and 17 in
    pairs (an EPYC "Zen 5", one thread, 2026-12-01)."""
    x, w = whole((m, k), 1), whole((n, k), 2)
    with lamina.no_grad():
        y, pairs = traced(nn.functional.linear, lamina.tensor(x), lamina.tensor(w))
    np.testing.assert_array_equal(y.numpy(), x @ w.T)
    assert pairs > 0 if m * n * k > 2_000_000 and k % 2 == 0 else not (pairs and k % 2)


@NATIVE
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_training_steps_of_whole_numbers_are_exact(size, stride):
    """Gradients too: each factor of theirs is a number that bfloat16 holds."""
    x = whole((4, 32, 13, 13), 1, 2)
    w, v = whole((32, 32, size, size), 2, 1), whole((10, 32), 3, 1)

    def step(x, w, v):
        y = nn.functional.conv2d(x, w, stride=stride, padding=size // 2)
        return nn.functional.linear(y.sum((2, 3)), v)

    found = []
    for run in (step, lamina.jit.trace(step, precision="bfloat16")):
        for _ in range(2):
            given = [lamina.tensor(a, requires_grad=True) for a in (x, w, v)]
            run(*given).sum().backward()
        found.append([g.grad.numpy() for g in given])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=2**-7, atol=2**-7 * abs(one).max())


@NATIVE
def test_what_is_drawn_is_off_by_the_rounding_of_factors():
    lamina.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).eval()
    x = lamina.randn(50, 64)
    with lamina.no_grad():
        exact = model.double()(x.double()).numpy()
        model.float()
        found, pairs = traced(model, x)
    assert pairs > 0
    error = np.linalg.norm(found.numpy() - exact) / np.linalg.norm(exact)
    assert 2**-14 < error < 2**-7


@NATIVE
def test_a_model_of_bfloat16_goes_in_pairs_by_itself():
    lamina.manual_seed(0)
    model = nn.Linear(64, 48).to(lamina.bfloat16)
    x = lamina.randn(20, 64).to(lamina.bfloat16)
    f = lamina.jit.trace(model)
    with lamina.no_grad():
        for _ in range(2):
            y = f(x)
        wanted = model(x).float().numpy()
    assert in_pairs(f.source())
    np.testing.assert_allclose(y.float().numpy(), wanted, rtol=2**-7, atol=2**-8)


def test_other_dtypes_and_no_precision_are_as_ever():
    x = lamina.randn(20, 64, dtype=lamina.float64)
    w = lamina.randn(30, 64, dtype=lamina.float64)
    with lamina.no_grad():
        np.testing.assert_allclose(traced(nn.functional.linear, x, w)[0].numpy(), x.numpy() @ w.numpy().T)
    f = lamina.jit.trace(lambda x, w: x @ w.t())
    f(x.float(), w.float())
    assert not in_pairs(f.source())


def test_a_precision_that_there_is_not_is_refused():
    with pytest.raises(lamina.ArgumentError, match="float32.*bfloat16.*'float16'"):
        lamina.jit.trace(lambda x: x, precision="float16")


def test_what_is_verified_is_verified_in_float32():
    f = lamina.jit.trace(lambda x: x @ x, verify=True, precision="bfloat16")
    x = lamina.randn(32, 32)
    with lamina.no_grad():
        for _ in range(2):
            np.testing.assert_allclose(f(x).numpy(), x.numpy() @ x.numpy(), rtol=1e-5, atol=1e-5)
