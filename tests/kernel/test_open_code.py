"""Code for all sizes of a kernel's symbols: at each of many, what the interpreter makes of it there."""

from dataclasses import replace

import numpy as np
import pytest
from native import Native, each_level, guarded, untouched

from lamina.ir.dims import evaluate, hints, limits
from lamina.ir.kernel import NUMPY, interpret, parse, verify
from lamina.ir.kernel.substitute import bind
from lamina.passes.llvm.generate import open_code
from lamina.passes.programs.program import Call

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
        codes = {most: open_code(Call(kernel, (), ()), target, most) for most in (None, 4, 1)}
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


def at_sizes(code, sizes):
    """A code whose numbers are those of some sizes."""
    phases = [replace(p, units=evaluate(p.units, sizes), nanoseconds=0.0) for p in code.phases]
    symbols = tuple(evaluate(n, sizes) for n in code.symbols)
    return replace(code, phases=tuple(phases), symbols=symbols)
