"""Code of calls: phases, names, symbols, and agreement with the interpreter at every width."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from native import LEVELS_HERE, Native, call_of, each_level, run_code
from probes import PROBES
from test_kernel_llvm import close

from lamina.ir.kernel import interpret, parse, verify
from lamina.ir.kernel.types import NUMPY
from lamina.passes.kernels.collapse import collapsed
from lamina.passes.llvm.generate import code_of
from lamina.passes.schedules.cost import nanoseconds
from lamina.passes.schedules.default import default_schedule
from lamina.passes.schedules.steps import Unroll
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import AVX512, GOLDEN_COVE


@pytest.mark.parametrize("name", PROBES)
def test_code_agrees_with_the_interpreter(name):
    kernel, arrays = PROBES[name].kernel, PROBES[name].arrays()
    wanted = interpret(kernel, *arrays, exact=name not in ("dropout", "halves"))
    for target in LEVELS_HERE:
        for got, want in zip(run_code(kernel, arrays, target), wanted, strict=True):
            close(got, want, (name, target.name))


@each_level
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "i64", "i16", "u8", "bool"])
def test_every_remainder_of_a_vector_stays_in_its_array(dtype, target):
    """LLVM stored a masked single i16 as an i32: rows of every length, converted and stored, show that."""
    for n in range(1, 2 * target.lanes + 2):
        value = f"{dtype}(e[j])" if dtype != "f32" else "e[j]"
        kernel = verify(
            parse(f"""\
kernel k(x: f32[3,{n}]) -> (y: {dtype}[3,{n}]) {{
  parallel i:3
  hi = max(j:{n}) x[i, j]
  e[j] = (x[i, j] - hi) for j:{n}
  y[i, j] = {value} for j:{n}
}}""")
        )
        x = np.arange(3 * n, dtype=np.float32).reshape(3, n) % 7
        for got, want in zip(run_code(kernel, [x], target), interpret(kernel, x), strict=True):
            np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_folds_keep_their_order_within_a_lane():
    """The first of equal elements, though another axis than the fastest would fill a vector."""
    fold = "select((x[r, q] > hi), x[r, q], hi), select((x[r, q] > hi), coord(3*r+q), at)"
    right = "((right.hi > hi) | ((right.hi == hi) & (right.at < at)))"
    kernel = verify(
        parse(f"""\
kernel k(x: f32[32,3]) -> (y: i64[]) {{
  parallel
  hi, at = fold(r:32 q:3) {{
    init f32(-inf), i64(0)
    step {fold}
    merge select({right}, right.hi, hi), select({right}, right.at, at)
  }}
  y[] = at
}}""")
    )
    x = np.zeros((32, 3), np.float32)
    x[5, 2] = x[9, 0] = x[21, 1] = 1
    for target in LEVELS_HERE:
        assert run_code(kernel, [x], target)[0] == 17


def test_equal_kernels_share_code_whatever_their_name():
    kernel = PROBES["add"].kernel
    one = code_of(call_of(kernel), AVX512)
    two = code_of(call_of(kernel.replace(name="other")), AVX512)
    assert one.text == two.text and one.phases == two.phases
    assert two.kernel.name == "other"
    three = code_of(call_of(kernel, schedule("vectorise(j, 2) block(j, 64)")), AVX512)
    assert {p.symbol for p in one.phases}.isdisjoint(p.symbol for p in three.phases)


@pytest.mark.parametrize("name", ["add", "scatter_add", "matmul"])
def test_every_name_starts_with_the_hash(name):
    code = code_of(call_of(PROBES[name].kernel), AVX512)
    defined = re.findall(r"^define (internal )?void @([\w.]+)\(", code.text, re.M)
    entries = [symbol for inside, symbol in defined if not inside]
    assert entries == [phase.symbol for phase in code.phases]
    assert all(any(symbol.startswith(entry) for entry in entries) for _, symbol in defined)


def test_what_accumulates_is_filled_first_and_runs_in_order():
    code = code_of(call_of(PROBES["bincount"].kernel), AVX512)
    assert [phase.serial for phase in code.phases] == [False, True]


def test_rows_that_accumulate_are_shared_by_columns():
    """Units keep to columns of their own, each of which meets the rows in order."""
    kernel = verify(
        parse("""\
kernel k(x: f32[40,9000], at: i64[40]) -> (y: f32[7,9000]) {
  parallel i:40 j:9000
  y[at[i], j] add= x[i, j]
}""")
    )
    code = code_of(call_of(kernel), AVX512)
    assert [(phase.serial, phase.units) for phase in code.phases] == [(False, 16), (False, 71)]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((40, 9000)).astype(np.float32), rng.integers(0, 7, 40)]
    for target in LEVELS_HERE:
        (got,) = run_code(kernel, arrays, target)
        np.testing.assert_array_equal(got, interpret(kernel, *arrays)[0])


def test_a_costly_kernel_is_estimated_to_take_longer():
    def cost(value):
        kernel = verify(
            parse(f"kernel k(x: f32[4096]) -> (y: f32[4096]) {{\n  parallel i:4096\n  y[i] = {value}\n}}")
        )
        (phase,) = code_of(call_of(kernel), AVX512).phases
        return phase.nanoseconds

    assert cost("x[i]") < cost("exp(x[i])") < cost("lgamma(x[i])")


def test_a_product_in_tiles_is_estimated_by_its_additions():
    """As a product of 256 x 64 x 384 was measured: 66 microseconds, of which 0.5 to 1.5 times are told."""
    kernel = verify(
        parse("""\
kernel k(x: f32[256,64], w: f32[64,384]) -> (y: f32[256,384]) {
  parallel i:256 j:384
  t = sum(k:64) (x[i, k] * w[k, j])
  y[i, j] = t
}""")
    )

    def cost(how: str) -> float:
        return nanoseconds(kernel, schedule(how), replace(AVX512, core=GOLDEN_COVE))

    whole = cost("vectorise(j, 3) tile(i, 8)")
    assert 33_000 < whole < 99_000
    assert whole < cost("vectorise(j, 1) tile(i, 8)") < cost("vectorise(j)")


def test_what_caches_do_not_hold_is_stored_past_them():
    """Where the output is aligned; elsewhere the same loop stores as usual."""
    text = "kernel k(x: f32[n]) -> (y: f32[n]) {\n  parallel i:n\n  y[i] = (x[i] * 2.0)\n}"
    large = code_of(
        call_of(verify(parse(text.replace("n]", "16777216]").replace(":n", ":16777216")))), AVX512
    )
    small = code_of(call_of(verify(parse(text.replace("n]", "4096]").replace(":n", ":4096")))), AVX512)
    assert "nontemporal" in large.text and "nontemporal" not in small.text
    for target in LEVELS_HERE:
        code = code_of(call_of(large.kernel), target)
        n = 10_007
        run = Native(replace(code, phases=(replace(code.phases[0], units=3),), symbols=(n,)), target)
        memory = np.zeros(n + 64, np.float32)
        start = -memory.ctypes.data % 64 // 4
        x = np.arange(n, dtype=np.float32)
        for offset in (start, start + 1):
            memory[:] = -1
            y = memory[offset : offset + n]
            run(x, y)
            np.testing.assert_array_equal(y, x * 2)
            assert (memory[:offset] == -1).all() and (memory[offset + n :] == -1).all()


@pytest.mark.parametrize("columns", [96, 100])
def test_panels_are_stored_past_the_caches(columns):
    """Where the rows' vectors begin as the output does; where that is aligned, and elsewhere as usual."""
    kernel = verify(
        parse(
            f"kernel k(x: f32[5,7], w: f32[7,{columns}]) -> (p: bool[5,{columns}], y: f32[5,{columns}]) {{\n"
            f"  parallel i:5 j:{columns}\n  t = sum(k:7) (x[i, k] * w[k, j])\n"
            "  p[i, j] = (t > 0.0)\n  y[i, j] = (t + 1.0)\n}"
        )
    )
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((5, 7), (7, columns)))
    for target in LEVELS_HERE:
        width = 2 * target.lanes
        how = schedule(f"vectorise(j, 2) block(j, {width}) peel(j) tile(i, 3) block(i, 6) stream()")
        code = code_of(call_of(kernel, how), target)
        assert ("!nontemporal" in code.text) == (columns % target.lanes == 0)
        for offset in (0, 1):
            p, y = (np.full(5 * columns + 128, 7, dtype) for dtype in (bool, np.float32))
            p, y = (a[-a.ctypes.data % 64 // a.itemsize + offset :] for a in (p, y))
            outputs = [a[: 5 * columns].reshape(5, columns) for a in (p, y)]
            Native(code, target)(x, w, *outputs)
            np.testing.assert_array_equal(outputs[0], x @ w > 0)
            np.testing.assert_array_equal(outputs[1], x @ w + 1)
            assert (y[5 * columns :] == 7).all()


def test_empty_and_scalar_kernels_have_code():
    from test_kernel_interpret import NONE, OUTSIDE, ROWS, SCALAR

    for target in LEVELS_HERE:
        assert run_code(verify(parse(SCALAR)), [np.array(3, np.float32)], target)[0] == 6
        for got, want in zip(
            run_code(verify(parse(ROWS)), [np.empty((4, 0), np.float32)], target),
            (0, 1, -np.inf, False, True),
            strict=True,
        ):
            assert (got == want).all()
        assert run_code(verify(parse(NONE)), [np.empty((0, 3), np.float32)], target)[0].shape == (0, 3)
        assert (run_code(verify(parse(OUTSIDE)), [np.empty(0, np.float32)], target)[0] == 5).all()


@each_level
def test_a_number_is_summed_over_an_axis_that_it_does_not_vary_over(target):
    """exp(x[i]) is one number for all lanes, which run along the axis of the store."""
    text = """\
kernel constant_row(x: f32[3,1]) -> (y: f32[3,33], s: f32[3]) {
  parallel i:3
  e = exp(x[i, 0])
  t = sum(r:33) e
  y[i, j] = x[i, 0] for j:33
  s[i] = t
}"""
    kernel, x = verify(parse(text)), np.array([[0.5], [-1.0], [2.0]], np.float32)
    y, s = run_code(kernel, [x], target)
    np.testing.assert_array_equal(y, np.repeat(x, 33, 1))
    np.testing.assert_allclose(s, 33 * np.exp(x[:, 0]), rtol=33 * 2.0**-24)  # one rounding for each addition


@each_level
@pytest.mark.parametrize(("word", "dtype"), [("exp", "f32"), ("tanh", "f32"), ("exp", "f64")])
def test_expressions_taller_than_the_stack_have_code(word, dtype, target):
    """Each word is some twenty simpler ones, inside of one another: 500 levels of several calls each."""
    values = ["x[i]", *(f"${n}" for n in range(24))]
    lines = [f"  {b} = ({word}({a}) * {dtype}(0.3))" for a, b in itertools.pairwise(values)]
    head = [f"kernel k(x: {dtype}[21]) -> (y: {dtype}[21]) {{", "  parallel i:21"]
    kernel = verify(parse("\n".join([*head, *lines, f"  y[i] = {values[-1]}", "}"])))
    x = np.linspace(-1, 1, 21).astype(dtype.replace("f", "float"))
    (got,) = run_code(kernel, [x], target)
    (want,) = interpret(kernel, x)
    close(got, want, (word, target.name))


@pytest.mark.parametrize("dtype", ["f32", "i32", "bf16", "f16", "i16", "i8", "u8", "bool"])
@pytest.mark.parametrize("taps", [2, 3, 5, 8, 9, 15, 16, 17, 21, 31, 63])
@pytest.mark.parametrize("order", ["t, c, k", "t, k, c", "c, t, k"])
def test_taps_come_first(taps, order, dtype):
    """Vectors along the taps of so many weights are transposed in registers, full or not."""
    check_relayout({"k": 37, "c": 5, "t": taps}, order, dtype)


@each_level
@pytest.mark.parametrize("value, length", [("{}", 1), ("exp({})", 15)])
def test_a_short_axis_of_several_vectors_is_transposed(value, length, target):
    """Up to four of them, unless its points are too much code."""
    for size in range(2, 5 * target.lanes):
        if size % target.lanes == 0:  # of which whole squares are made
            continue
        kernel = parse(
            f"kernel k(x: f32[100,{size}]) -> (y: f32[{size},100]) {{\n  parallel t:{size} n:100\n"
            f"  y[t, n] = {value.format('x[n, t]')}\n}}"
        )
        fits = size < target.lanes or size < 4 * target.lanes and size * length <= 1024
        assert (default_schedule(kernel, target).tiles == {"t": size}) == fits


@pytest.mark.parametrize("rows, columns", [(3, 3), (2, 3), (5, 5), (1, 7), (7, 3), (2, 16)])
@pytest.mark.parametrize(
    "step, dtype", [("tile", "f32"), ("tile", "i16"), ("tile", "i8"), ("tile", "bool"),
                    ("unroll", "f32"), ("unroll", "i16"), ("unroll", "i8")]
)  # fmt: skip
def test_taps_of_both_axes_are_transposed_together(step, dtype, rows, columns):
    """As many vectors as they fill, of all taps of a weight, in a copy and in a sum of products."""
    head, taps = f"w: {dtype}[37,3,{rows},{columns}]", f"r:{rows} s:{columns}"
    if step == "unroll":
        kernel = parse(
            f"kernel sums({head}, g: {dtype}[{rows},{columns}]) -> (y: {dtype}[3,37]) {{\n"
            f"  parallel c:3 k:37\n  t = sum({taps}) (w[k, c, r, s] * g[r, s])\n  y[c, k] = t\n}}"
        )
    else:
        kernel = parse(
            f"kernel pack({head}) -> (y: {dtype}[{rows},3,{columns},37]) {{\n"
            f"  parallel r:{rows} c:3 s:{columns} k:37\n  y[r, c, s, k] = w[k, c, r, s]\n}}"
        )
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 3, tuple(map(int, b.shape))).astype(NUMPY[dtype]) for b in kernel.inputs]
    for target in LEVELS_HERE:
        given = schedule(f"vectorise(k) {step}(r, {rows}) {step}(s, {columns})")
        if dtype == "f32":
            assert "gather" not in code_of(call_of(kernel, given), target).text
        (got,) = run_code(kernel, arrays, target, given)
        np.testing.assert_array_equal(got, interpret(kernel, *arrays)[0])


@pytest.mark.parametrize("dtype", ["f32", "i32", "bf16", "f16", "i16", "i8", "u8", "bool"])
@pytest.mark.parametrize("rows, columns", [(32, 64), (48, 16), (33, 48), (16, 47), (7, 96)])
def test_squares_of_registers_are_transposed(rows, columns, dtype):
    check_relayout({"r": rows, "c": columns}, "c, r", dtype)


def check_relayout(shape, order, dtype):
    """The axes of an array in another order, by all levels' code.  shape: the size of each, as they lie."""
    of = {axis: shape[axis] for axis in order.split(", ")}
    sizes = [",".join(map(str, each.values())) for each in (shape, of)]
    kernel = parse(
        f"kernel relayout(x: {dtype}[{sizes[0]}]) -> (y: {dtype}[{sizes[1]}]) {{\n"
        f"  parallel {' '.join(f'{a}:{n}' for a, n in of.items())}\n  y[{order}] = x[{', '.join(shape)}]\n}}"
    )
    x = np.random.default_rng(0).integers(0, 100, [*shape.values()]).astype(NUMPY[dtype])
    for target in LEVELS_HERE:
        (got,) = run_code(kernel, [x], target)
        np.testing.assert_array_equal(got, interpret(kernel, x)[0])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("batch", [16, 21])
def test_all_taps_of_a_depthwise_weight_are_summed_at_once(size, batch):
    """Of windows that leave the image, too: their vectors are guarded one by one."""
    kernel = parse(
        f"kernel grad(g: f32[7,5,6,{batch}], x: f32[7,5,6,{batch}]) -> (out: f32[6,{size},{size}]) {{\n"
        f"  parallel r:{size} s:{size} c:6\n  t = sum(i:7 j:5 n:{batch}) "
        "(g[i, j, c, n] * x[i+r-1, j+s-1, c, n else 0.0])\n  out[c, r, s] = t\n}"
    )
    g, x = np.random.default_rng(0).standard_normal((2, 7, 5, 6, batch)).astype(np.float32)
    for target in LEVELS_HERE:
        how = default_schedule(kernel, target)
        assert ("r" in how.tiles) == (1 < size <= 5 and size <= target.sums)
        (got,) = run_code(kernel, [g, x], target)
        np.testing.assert_allclose(got, interpret(kernel, g, x)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [2, 3, 5, 7, 15, 17])
def test_gradients_of_a_depthwise_convolution_on_narrow_images(width):
    """Rows that fill no vector are its lanes where some can be left out; all taps are written out."""
    images = f"f32[3,4,6,{width}]"
    to_weight = parse(
        f"kernel grad(g: {images}, x: {images}) -> (out: f32[4,3,3]) {{\n"
        f"  parallel c:4 r:3 s:3\n  t = sum(n:3 i:6 j:{width}) "
        "(g[n, c, i, j] * x[n, c, i+r-1, j+s-1 else 0.0])\n  out[c, r, s] = t\n}"
    )
    to_input = parse(
        f"kernel grad(g: {images}, w: f32[4,3,3]) -> (out: {images}) {{\n"
        f"  parallel n:3 c:4 i:6 j:{width}\n  t = sum(r:3 s:3) "
        "(g[n, c, i-r+1, j-s+1 else 0.0] * w[c, r, s])\n  out[n, c, i, j] = t\n}"
    )
    rng = np.random.default_rng(0)
    g, x = rng.standard_normal((2, 3, 4, 6, width)).astype(np.float32)
    w = rng.standard_normal((4, 3, 3)).astype(np.float32)
    for target in LEVELS_HERE:
        fits = width >= (3 if target.has_masks else target.lanes)
        by_weight, by_input = (default_schedule(kernel, target) for kernel in (to_weight, to_input))
        assert (by_weight.axis == "j" and "r" in by_weight.tiles) == (fits and target.sums >= 3)
        if fits:
            assert by_input.tiles == {"i": 4}
            assert [(step.axis, step.size) for step in by_input.of(Unroll)] == [("r", 3), ("s", 3)]
        for kernel, other in ((to_weight, x), (to_input, w)):
            (got,) = run_code(kernel, [g, other], target)
            np.testing.assert_allclose(got, interpret(kernel, g, other)[0], rtol=1e-4, atol=1e-4)


def test_a_short_axis_beside_one_of_a_store_is_no_tile():
    """Two parts of a joined result, whose stores have axes of their own: there is no block of those."""
    kernel = parse(
        "kernel join(b0: f32[2], b1: f32[32]) -> (b2: f32[1,17,1,2]) {\n  parallel a0:2\n"
        "  b2[0, a1, 0, a0] = b1[a0+2*a1] for a1:16\n  b2[0, a2+16, 0, a0] = b0[a0] for a2:1\n}"
    )
    arrays = [np.arange(2, dtype=np.float32), np.arange(32, dtype=np.float32)]
    for target in LEVELS_HERE:
        (want,), (got,) = interpret(kernel, *arrays), run_code(kernel, arrays, target)
        np.testing.assert_array_equal(got, want)


PLACES = """\
kernel spread(x: f32[3,5,{n}], at: i64[3,5,{n}]) -> (y: f32[3,4,6,{n}]) {{
  parallel c:3 p:5 n:{n}
  y[c, floor_div(at[c, p, n], 6), remainder(at[c, p, n], 6), n] add= x[c, p, n]
}}
"""


@each_level
@pytest.mark.parametrize("n", [1, 7, 16, 33, 64])
def test_places_are_added_up_along_an_axis_that_keeps_them_apart(n, target):
    """On vectors, which gather and scatter: no two lanes are one place, and two points of a lane may be."""
    kernel = verify(parse(PLACES.format(n=n)))
    rng = np.random.default_rng(n)
    x, at = rng.standard_normal((3, 5, n)).astype(np.float32), rng.integers(0, 24, (3, 5, n))
    (y,) = run_code(kernel, [x, at], target)
    wanted = np.zeros((3, 24, n), np.float32)
    for c, p, lane in itertools.product(range(3), range(5), range(n)):
        wanted[c, at[c, p, lane], lane] += x[c, p, lane]
    np.testing.assert_array_equal(y, wanted.reshape(3, 4, 6, n))


def test_a_place_of_two_dims_is_divided_by_nothing():
    one = collapsed(verify(parse(PLACES.format(n=64))))
    assert "floor_div" not in str(one) and one.outputs[0].shape == (3, 24, 64)
    assert default_schedule(one, AVX512).vectorised is not None
    read = PLACES.format(n=64).replace("add= x[c, p, n]", "= (x[c, p, n] + f32(at[c, p, n]))")
    other = parse(read.replace("remainder(at[c, p, n], 6)", "remainder(at[c, p, n], 5)"))
    assert "floor_div" in str(collapsed(other))
    meet = parse(PLACES.format(n=64).replace(", n] add=", ", remainder(at[c, p, n], 6)] add="))
    assert default_schedule(collapsed(meet), AVX512).vectorised is None


@pytest.mark.parametrize("width, lanes", [(3, 0), (4, 4), (7, 0), (8, 8), (12, 0), (16, 0)])
def test_rows_that_fill_a_shorter_vector_are_whole_ones(width, lanes):
    """And not the part of a vector that a mask leaves; rows that one axis holds share one code."""
    turned = parse(f"""\
kernel k(x: f32[5,6,{width}]) -> (y: f32[6,5,{width}]) {{
  parallel i:6 j:5 n:{width}
  y[i, j, n] = exp(x[j, i, n])
}}""")
    assert default_schedule(collapsed(turned), AVX512).vectorised.lanes == lanes
    (want,) = interpret(turned, x := np.random.default_rng(0).standard_normal((5, 6, width), np.float32))
    for target in LEVELS_HERE:
        np.testing.assert_allclose(run_code(turned, [x], target)[0], want, rtol=4 * 2.0**-23)
    rows = parse(
        f"kernel k(x: f32[{width}]) -> (y: f32[{width}]) {{\n  parallel n:{width}\n  y[n] = -x[n]\n}}"
    )
    assert default_schedule(collapsed(rows), AVX512).vectorised.lanes == 0
