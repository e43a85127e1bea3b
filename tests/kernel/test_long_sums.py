"""Products whose sums are long and read both factors along their rows: by strips, and in parts."""

from dataclasses import replace

import numpy as np
import pytest
from native import Native, each_level, guarded, untouched
from test_matmul import check, form, stated

from lamina.ir.dims import evaluate, hints, limits
from lamina.ir.errors import KernelError
from lamina.ir.kernel import NUMPY, interpret, parse, verify
from lamina.ir.kernel.substitute import bind
from lamina.passes.kernels.split_reductions import split_reductions
from lamina.passes.llvm.generate import code_of, open_code
from lamina.passes.programs.pack_matmuls import LONG_SUM, Options, pack_matmuls
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.schedules.default import default_schedule
from lamina.passes.schedules.steps import Roll, Schedule, Strips, Tile
from lamina.passes.schedules.target import AVX2, Target


def small(target: Target) -> Target:
    """The target with caches of so few bytes that factors of these sizes are far."""
    return replace(target, core=replace(target.core, cache=1 << 10))


SIZES = [(256, 64, 1030), (67, 33, 512), (40, 131, 777), (70, 200, 2049), (97, 1, 600), (300, 140, 530)]


@pytest.mark.sampled(4)
@each_level
@pytest.mark.parametrize("way", ["packed", "panels"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_long_sums_are_right(size, way, target):
    program, target = stated(form("tn", *size), "f32"), small(target)
    laid = pack_matmuls(program, target, Options(only=way))
    assert any(call.how and call.how.has(Strips) for call in laid.calls) is (size[1] > 1)
    check(program, target, Options(only=way))


@each_level
def test_long_sums_of_other_dtypes_and_batches(target):
    target = small(target)
    check(stated(form("tn", 70, 50, 900), "f64"), target)
    text = (
        "kernel k(x: f32[3,600,43], w: f32[3,600,35]) -> (y: f32[3,43,35]) {\n  parallel b:3 i:43 j:35\n"
        "  t = sum(k:600) (x[b, k, i] * w[b, k, j])\n  y[b, i, j] = exp((t * 0.01))\n}"
    )
    check(stated(text, "f32"), target)


@each_level
def test_what_follows_a_long_sum_runs_in_a_loop_where_it_is_long(target):
    """In as many rows as a tile has, so that the sums of a tile are stored once more."""
    text = (
        "kernel k(x: f32[1000,50], w: f32[1000,300]) -> (y: f32[50,300]) {\n  parallel i:50 j:300\n"
        "  t = sum(k:1000) (x[k, i] * w[k, j])\n"
        "  y[i, j] = (sin((t * 0.1)) + (cos((t * 0.1)) * erf((t * 0.1))))\n}"
    )
    program, target = stated(text, "f32"), small(target)
    (call,) = (call for call in pack_matmuls(program, target, Options(only="panels")).calls)
    how = call.how if call.how.has(Roll) else Schedule(*call.how.steps, Roll("i"))
    given = [np.random.default_rng(0).standard_normal(p.shape).astype(np.float32) for p in program.params]
    (wanted,) = interpret(call.kernel, *given)
    (out,) = [guarded(np.full(b.shape, 1, NUMPY[b.dtype])) for b in call.kernel.outputs]
    Native(code_of(Call(call.kernel, call.inputs, call.outputs, how), target), target)(*given, out)
    assert untouched(out)
    np.testing.assert_allclose(out, wanted, rtol=0, atol=128 * np.finfo(np.float32).eps * 40)


def test_a_small_result_is_summed_in_parts():
    """Of a large one the blocks are work enough for several threads."""

    def calls(*size: int | str) -> list[str]:
        text = form("tn", *size).replace("form(", "form[s1](" if "s1" in size else "form(")
        laid = pack_matmuls(stated(text, "f32"), AVX2)
        return ["" if call.how is None else str(call.how) for call in laid.calls]

    partial, total = calls(256, 64, 7224)
    assert partial == (
        "collapse() reorder(c, i, j) vectorise(j, 2) block(j, 64) peel(j) tile(i, 6) block(i, 258) "
        "strips(l, 65) copy(x, i)"
    )
    assert total == ""
    with limits({"s1": (1, 1 << 40)}), hints({"s1": 7224}):  # of any length, and in more blocks
        (whole,) = filter(None, calls(256, 64, "s1"))
    assert "block(j, 64) peel(j) tile(i, 6) block(i, 66) strips" in whole
    assert all("strips" in how for how in calls(1000, 900, 600) if how)
    assert not any("reorder(c" in how for how in calls(1000, 900, 600))
    assert not any("strips" in how for how in calls(256, 64, LONG_SUM - 1))
    assert not any("strips" in how for how in calls(8, 64, 72240))  # rows that two tiles hold
    assert not any("strips" in how for how in calls(64, 64, 2048))  # a left factor that stays near


@pytest.mark.parametrize("size", [(6, 5, 37), (3, 2, 40)])
def test_parts_mean_what_the_whole_means(size):
    kernel = verify(parse(form("tn", *size)))
    rng = np.random.default_rng(0)
    given = dict(
        zip(
            kernel.buffers,
            (rng.standard_normal(b.shape).astype(np.float32) for b in kernel.inputs),
            strict=False,
        )
    )
    (wanted,) = interpret(kernel, *given.values())
    first, last = split_reductions(kernel, 8)
    for part in (first, last):
        verify(part)
        made = interpret(part, *(given[b.name] for b in part.inputs))
        given |= zip((b.name for b in part.outputs), made, strict=True)
    np.testing.assert_allclose(given["y"], wanted, rtol=0, atol=1e-5)
    assert ("l:" in str(last)) is bool(size[2] % 8)


LONG = """kernel k[s](a: f32[s,37], b: f32[s,70]) -> (y: f32[37,70]) {
  parallel i:37 j:70
  t = sum(r:s) (a[r, i] * b[r, j])
  y[i, j] = max(t, 0.0)
}"""
COLUMNS = """kernel k[s,n](a: f32[s,83], b: f32[s,n]) -> (y: f32[83,n]) {
  parallel i:83 j:n
  t = sum(r:s) (a[r, i] * b[r, j])
  y[i, j] = t
}"""
ROWS = """kernel k[s,m](a: f32[s,m], b: f32[s,35]) -> (y: f32[m,35]) {
  parallel i:m j:35
  t = sum(r:s) (a[r, i] * b[r, j])
  y[i, j] = t
}"""


@each_level
@pytest.mark.parametrize("way", ["packed", "panels"])
@pytest.mark.parametrize("text", [LONG, COLUMNS, ROWS], ids=["sum", "columns", "rows"])
def test_long_sums_over_an_open_axis(text, way, target):
    kernel, rng = verify(parse(text)), np.random.default_rng(0)
    call, target, names = called(kernel), small(target), kernel.symbols
    with limits(dict.fromkeys(names, (1, 1 << 40))), hints(dict.fromkeys(names, 1000)):
        program = pack_matmuls(Program("p", call.inputs, (call,), call.outputs), target, Options(only=way))
        made = [step for step in program.steps if isinstance(step, Call)]
        assert made[-1].how.has(Strips) and len(made) == (2 if way == "packed" else 1)
        codes = [open_code(call, target) for call in made]
    assert None not in codes
    for sums, others in ((1, 40), (63, 7), (64, 64), (65, 129), (700, 200), (129, 1)):
        sizes = {name: sums if name == "s" else others for name in names}
        for step, code in zip(made, codes, strict=True):
            if any(evaluate(n, sizes) < least for n, least in code.least):
                continue
            bound = bind(step.kernel, **{n: sizes[n] for n in step.kernel.symbols})
            given = [guarded(rng.standard_normal(b.shape).astype(NUMPY[b.dtype])) for b in bound.inputs]
            (wanted,) = interpret(bound, *given)
            (out,) = [guarded(np.full(b.shape, 1, NUMPY[b.dtype])) for b in bound.outputs]
            Native(at_sizes(code, sizes), target)(*given, out)
            assert all(map(untouched, (*given, out))), f"{step.name} of {sizes} writes outside its arrays"
            bound_of = 128 * np.finfo(np.float32).eps * np.abs(wanted).max(initial=1)
            np.testing.assert_allclose(out, wanted, rtol=0, atol=bound_of, err_msg=f"{step.name} {sizes}")


def at_sizes(code, sizes):
    """A code whose numbers are those of some sizes."""
    phases = [replace(p, units=evaluate(p.units, sizes), nanoseconds=0.0) for p in code.phases]
    return replace(code, phases=tuple(phases), symbols=tuple(evaluate(n, sizes) for n in code.symbols))


def test_a_block_that_tiles_do_not_fill_is_refused():
    program = pack_matmuls(stated(form("tn", 256, 64, 600), "f32"), small(AVX2))
    (call,) = (call for call in program.calls if call.how is not None)
    steps = [Tile(s.axis, 7) if isinstance(s, Tile) else s for s in call.how.steps]
    with pytest.raises(KernelError, match="may leave their"):
        code_of(Call(call.kernel, call.inputs, call.outputs, Schedule(*steps)), AVX2)


def called(kernel):
    """A call of it, of arrays that have its buffers' names."""
    arrays = [Array(b.name, b.dtype, b.shape) for b in kernel.buffers.values()]
    return Call(kernel, tuple(arrays[: len(kernel.inputs)]), tuple(arrays[len(kernel.inputs) :]))


PLAIN = """kernel k(x: f32[61,1333]) -> (y: f32[1333]) {
  parallel j:1333
  t = sum(i:61) x[i, j]
  y[j] = t
}"""
TWO = """kernel k(x: f32[2,40,700], g: f32[2,40,700], m: f32[2,40]) -> (y: f32[2,700], z: f32[2,700]) {
  parallel b:2 j:700
  t = sum(i:40) (g[b, i, j] * (x[b, i, j] - m[b, i]))
  s = max(i:40) g[b, i, j]
  y[b, j] = (t * 0.5)
  z[b, j] = (s + t)
}"""
DOUBLE = PLAIN.replace("f32", "f64")
WHOLE = PLAIN.replace("f32", "i32").replace("sum", "min")
NARROW = PLAIN.replace("x: f32", "x: f16").replace("x[i, j]\n", "f32(x[i, j])\n")
OF_SIZES = """kernel k[r,c](x: f32[r,c]) -> (y: f32[c]) {
  parallel j:c
  t = sum(i:r) x[i, j]
  y[j] = max(t, 0.0)
}"""


@each_level
@pytest.mark.parametrize("text", [PLAIN, TWO, DOUBLE, WHOLE, NARROW])
def test_sums_over_rows_read_rows_from_one_end_to_the_other(text, target):
    kernel, rng = verify(parse(text)), np.random.default_rng(0)
    assert default_schedule(kernel, target).has(Strips)
    given = [guarded((rng.standard_normal(b.shape) * 9).astype(NUMPY[b.dtype])) for b in kernel.inputs]
    out = [guarded(np.full(b.shape, 1, NUMPY[b.dtype])) for b in kernel.outputs]
    Native(code_of(called(kernel), target), target)(*given, *out)
    assert all(map(untouched, (*given, *out)))
    for found, wanted in zip(out, interpret(kernel, *given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)


@each_level
def test_sums_over_any_number_of_rows_of_any_length(target):
    kernel, rng = verify(parse(OF_SIZES)), np.random.default_rng(0)
    with limits(dict.fromkeys(kernel.symbols, (1, 1 << 40))), hints(dict.fromkeys(kernel.symbols, 1000)):
        code = open_code(called(kernel), target)
    assert "slot" in code.text  # where sums wait
    for rows, columns in ((1, 1), (7, 1000), (8, 1024), (9, 1025), (64, 31), (130, 2100)):
        x = guarded(rng.standard_normal((rows, columns)).astype(np.float32))
        out = guarded(np.full(columns, 1, np.float32))
        Native(at_sizes(code, {"r": rows, "c": columns}), target)(x, out)
        assert untouched(x) and untouched(out)
        np.testing.assert_allclose(out, np.maximum(x.sum(0), 0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("text", [
    PLAIN.replace("1333", "60"),  # a row is one stretch
    PLAIN.replace("61", "31"),
    PLAIN.replace("x: f32[61,1333]", "x: f32[1333,61]").replace("x[i, j]", "x[j, i]"),  # along the rows
    PLAIN.replace("  y[j]", "  s = sum(i:61) abs((x[i, j] - t))\n  y[j]").replace("= t\n", "= s\n"),
])  # fmt: skip
def test_sums_that_are_not_over_long_rows_have_no_strips(text):
    assert not default_schedule(verify(parse(text)), AVX2).has(Strips)
