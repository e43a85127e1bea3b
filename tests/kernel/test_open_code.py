"""Code for all sizes of a kernel's symbols: at each of many, what the interpreter makes of it there."""

from dataclasses import replace

import numpy as np
import pytest
from native import Native, each_level, guarded, untouched

from lamina.ir.dims import evaluate, hints, limits
from lamina.ir.kernel import NUMPY, interpret, parse, verify
from lamina.ir.kernel.substitute import bind
from lamina.passes.llvm.generate import open_code
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.schedules.default import KEPT_BYTES
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import BASELINE
from lamina.runtime import memory

KERNELS = {
    "rows": """kernel k[n](x: f32[n,5]) -> (y: f32[n,5]) {
  parallel i:n j:5
  y[i, j] = exp(x[i, j])
}""",
    "sums of columns": """kernel k[n](x: f32[n,19]) -> (y: f32[19]) {
  parallel j:19
  t = sum(i:n) x[i, j]
  y[j] = t
}""",
    "sum of all": """kernel k[n](x: f32[n,3]) -> (y: f32[]) {
  parallel
  t = sum(i:n j:3) x[i, j]
  y[] = t
}""",
    "product": """kernel k[m](a: f32[m,7], b: f32[7,18]) -> (y: f32[m,18]) {
  parallel i:m j:18
  t = sum(r:7) (a[i, r] * b[r, j])
  y[i, j] = t
}""",
    "product over an open axis": """kernel k[m,s](a: f32[m,s], b: f32[s,18]) -> (y: f32[m,18]) {
  parallel i:m j:18
  t = sum(r:s) (a[i, r] * b[r, j])
  y[i, j] = t
}""",
    "gram": """kernel k[n](x: f32[n,6]) -> (y: f32[n,n]) {
  parallel i:n j:n
  t = sum(r:6) (x[i, r] * x[j, r])
  y[i, j] = t
}""",
    "softmax": """kernel k[m,n](x: f32[m,n]) -> (y: f32[m,n]) {
  parallel i:m
  t = max(r:n) x[i, r]
  e[r] = exp((x[i, r] - t)) for r:n
  u = sum(r:n) e[r]
  y[i, r] = (e[r] / u) for r:n
}""",
    "scan": """kernel k[n](x: f32[n,9]) -> (y: f32[n,9]) {
  parallel j:9
  t[r] = scan(r:n) {
    init f32(0)
    step (t + x[r, j])
  }
  y[r, j] = t[r] for r:n
}""",
    "turned": """kernel k[n](x: f32[21,n]) -> (y: f32[n,21]) {
  parallel i:n j:21
  y[i, j] = x[j, i]
}""",
    "windows": """kernel k[n](x: f32[4,5,3,n], w: f32[3,3,3,6]) -> (y: f32[4,5,6,n]) {
  parallel i:4 j:5 k:6 b:n
  t = sum(r:3 s:3 c:3) (x[i+r-1, j+s-1, c, b else 0.0] * w[r, s, c, k])
  y[i, j, k, b] = max(t, 0.0)
}""",
    "windows that are strided": """kernel k[n](g: f32[4,n], w: f32[3,5]) -> (y: f32[9,5,n]) {
  parallel i:9 k:5 b:n
  t = sum(r:3) (select((remainder(coord(i-r), 2) == 0), g[floor_div(coord(i-r), 2), b else 0.0], 0) * w[r, k])
  y[i, k, b] = t
}""",
}
HOW = {
    name: schedule(f"residues() vectorise(b, 2, 4) tile(k, {tile}) bound()")
    for name, tile in (("windows", 6), ("windows that are strided", 5))
}
SIZES = 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 33, 64, 100


@pytest.mark.sampled(4)
@each_level
@pytest.mark.parametrize("name", KERNELS)
def test_one_code_for_all_sizes(name, target):
    kernel, rng = verify(parse(KERNELS[name])), np.random.default_rng(0)
    names = kernel.symbols
    runs: dict[int | None, Native] = {}
    with limits(dict.fromkeys(names, (1, 1 << 40))), hints(dict.fromkeys(names, 12)):
        call = Call(kernel, (), (), HOW.get(name))
        codes = {most: open_code(call, target, most) for most in (None, 4, 1)}
    assert None not in codes.values() and not codes[1].least
    for turn in range(2 * len(SIZES)):
        sizes = {
            n: SIZES[turn % len(SIZES)] if not at else int(rng.choice(SIZES)) for at, n in enumerate(names)
        }
        bound = bind(kernel, **sizes)
        arrays = [guarded(rng.standard_normal(b.shape).astype(NUMPY[b.dtype])) for b in bound.inputs]
        (wanted,) = interpret(bound, *arrays)
        for most, code in codes.items():
            if any(evaluate(n, sizes) < least for n, least in code.least):
                continue
            run = runs.setdefault(most, Native(code, target))
            run.code = at_sizes(code, sizes)
            (out,) = [guarded(np.full(b.shape, 1, NUMPY[b.dtype])) for b in bound.outputs]
            run(*arrays, out)
            assert all(map(untouched, (*arrays, out))), f"{name} of {sizes} writes outside its arrays"
            near = 2e-6 * np.abs(wanted).max()  # sums are in another order
            np.testing.assert_allclose(out, wanted, rtol=2e-6, atol=near, err_msg=f"{sizes} {most}")


@each_level
def test_what_is_few_stays_in_the_caches(target):
    """With four symbols the sizes that schedules are chosen by make a large array.  What code without its
    stores past the caches leaves as it was, they write: nothing of a small one, most of a large one."""
    text = """kernel k[a,b,c,d](x: f32[a,b,c,d]) -> (y: f32[a,b,c,d]) {
  parallel i:a j:b k:c l:d
  y[i, j, k, l] = (x[i, j, k, l] + 1.0)
}"""
    kernel, times = verify(parse(text)), dict.fromkeys("abcd", 12)
    with limits(dict.fromkeys("abcd", (1, 1 << 40))), hints(times):
        code = open_code(Call(kernel, (), ()), target)
    kept = [line for line in code.text.splitlines() if "!nontemporal" not in line]
    run = Native(replace(code, text="\n".join(kept)), target)
    for sizes, most in (((8, 64, 25, 5), False), ((1, 256, 256, 257), True)):
        run.code = at_sizes(code, dict(zip("abcd", sizes, strict=True)))
        x, y = (memory.empty(sizes, np.dtype(np.float32)) for _ in range(2))
        x.fill(1)
        y.fill(0)
        run(x, y)
        missing = 1 - np.count_nonzero(y) / y.size
        assert missing > 0.99 if most else missing == 0


PRODUCTS = {
    "columns": """kernel k[m,n](a: f32[m,7], b: f32[7,n]) -> (y: f32[m,n]) {
  parallel i:m j:n
  t = sum(r:7) (a[i, r] * b[r, j])
  y[i, j] = max(t, 0.0)
}""",
    "batch, with all open": """kernel k[m,n,s](a: f32[2,m,s], b: f32[2,s,n]) -> (y: f32[2,m,n]) {
  parallel h:2 i:m j:n
  t = sum(r:s) (a[h, i, r] * b[h, r, j])
  y[h, i, j] = t
}""",
    "transposed": """kernel k[n](a: f32[2,n,5], b: f32[2,n,5]) -> (y: f32[2,n,n]) {
  parallel h:2 i:n j:n
  t = sum(r:5) (a[h, i, r] * b[h, j, r])
  y[h, i, j] = t
}""",
    "sum": """kernel k[s](a: f32[s,11], b: f32[s,21]) -> (y: f32[11,21]) {
  parallel i:11 j:21
  t = sum(r:s) (a[r, i] * b[r, j])
  y[i, j] = t
}""",
}


@pytest.mark.sampled(4)
@each_level
@pytest.mark.parametrize("way", ["packed", "panels"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_panels_at_all_sizes(name, way, target):
    kernel, rng = verify(parse(PRODUCTS[name])), np.random.default_rng(0)
    names = kernel.symbols
    arrays = [Array(b.name, b.dtype, b.shape) for b in kernel.buffers.values()]
    call = Call(kernel, tuple(arrays[:2]), (arrays[2],))
    with limits(dict.fromkeys(names, (1, 1 << 40))), hints(dict.fromkeys(names, 12)):
        program = pack_matmuls(Program("p", call.inputs, (call,), call.outputs), target, Options(only=way))
        made = [step for step in program.steps if isinstance(step, Call)]
        if (name, way) != ("transposed", "panels"):  # whose columns are no neighbours
            assert made[-1].how.peeled and len(made) == (2 if way == "packed" else 1)
        codes = [open_code(call, target, most) for most in (None, 1) for call in made]
    assert None not in codes
    runs = [Native(code, target) for code in codes]
    for size in SIZES:
        sizes = {n: size if not at else int(rng.choice(SIZES)) for at, n in enumerate(names)}
        for call, code, run in zip(made + made, codes, runs, strict=True):
            if any(evaluate(n, sizes) < least for n, least in code.least):
                continue
            bound = bind(call.kernel, **{n: sizes[n] for n in call.kernel.symbols})
            given = [guarded(rng.standard_normal(b.shape).astype(NUMPY[b.dtype])) for b in bound.inputs]
            (wanted,) = interpret(bound, *given)
            (out,) = [guarded(np.full(b.shape, 1, NUMPY[b.dtype])) for b in bound.outputs]
            run.code = at_sizes(code, sizes)
            run(*given, out)
            assert all(map(untouched, (*given, out))), f"{call.name} of {sizes} writes outside its arrays"
            near = 2e-6 * np.abs(wanted).max(initial=1)
            np.testing.assert_allclose(out, wanted, rtol=2e-6, atol=near, err_msg=f"{call.name} {sizes}")


def test_longer_rows_than_the_stack_holds_have_another_code():
    kernel = verify(parse(KERNELS["softmax"]))
    with limits(dict.fromkeys("mn", (1, 1 << 40))), hints(dict.fromkeys("mn", 12)):
        codes = [open_code(Call(kernel, (), ()), BASELINE, most) for most in (None, 4)]
    most = KEPT_BYTES // 4 // 2  # floats, of two rows at a time
    serves = [
        [all(evaluate(n, {"m": 8, "n": size}) >= least for n, least in code.least) for code in codes]
        for size in (most, most + 1)
    ]
    assert serves == [[True, True], [False, True]]


def at_sizes(code, sizes):
    """A code whose numbers are those of some sizes."""
    phases = [replace(p, units=evaluate(p.units, sizes), nanoseconds=0.0) for p in code.phases]
    symbols = tuple(evaluate(n, sizes) for n in code.symbols)
    return replace(code, phases=tuple(phases), symbols=symbols)
