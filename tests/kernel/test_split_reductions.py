"""Long reductions in parts: golden kernels, refusals, agreement, and sums that do not depend on threads."""

import numpy as np
import pytest
from native import LEVELS_HERE, Native, call_of, run_code

from lamina.ir.kernel import interpret, parse, verify
from lamina.passes.kernels.collapse import canonical, collapsed
from lamina.passes.kernels.split_reductions import split_reductions
from lamina.passes.llvm import generate
from lamina.passes.llvm.generate import code_of, pieces
from lamina.passes.schedules.target import AVX512

SUM = """\
kernel sum(x: f32[100001]) -> (y: f32[]) {
  parallel
  s = sum(i:100001) x[i]
  y[] = s
}"""
SUM_SPLIT = """\
kernel sum(x: f32[100001]) -> (t0: f32[6]) {
  parallel c:6
  s = sum(l:16640) x[16640*c+l]
  t0[c] = s
}
kernel sum(x: f32[100001], t0: f32[6]) -> (y: f32[]) {
  parallel
  s = sum(c:6) t0[c]
  s_last = sum(l:161) x[l+99840]
  s_whole = (s + s_last)
  y[] = s_whole
}"""
VARIANCE = """\
kernel variance(x: f32[5,30011]) -> (m: f32[5], v: f32[5], z: f32[5,30011]) {
  parallel i:5
  s = sum(j:30011) x[i, j]
  mean = (s / 30011.0)
  d[j] = (x[i, j] - mean) for j:30011
  q = sum(j:30011) (d[j] * d[j])
  m[i] = mean
  v[i] = (q / 30011.0)
  z[i, j] = (d[j] / sqrt((q / 30011.0))) for j:30011
}"""
COLUMNS = """\
kernel columns(x: f32[3001,17]) -> (y: f32[17]) {
  parallel j:17
  s = sum(i:3001) x[i, j]
  y[j] = s
}"""
_RIGHT = "((right.hi > hi) | ((right.hi == hi) & (right.at < at)))"
ARGMAX = f"""\
kernel argmax(x: f32[2,50021]) -> (y: i64[2], m: f32[2]) {{
  parallel i:2
  hi, at = fold(j:50021) {{
    init f32(-inf), i64(9223372036854775807)
    step select((x[i, j] > hi), x[i, j], hi), select((x[i, j] > hi), coord(j), at)
    merge select({_RIGHT}, right.hi, hi), select({_RIGHT}, right.at, at)
  }}
  y[i] = at
  m[i] = hi
}}"""
SOFTMAX = """\
kernel softmax(x: f32[70000]) -> (y: f32[70000]) {
  parallel
  hi = max(j:70000) x[j]
  e[j] = exp((x[j] - hi)) for j:70000
  z = sum(j:70000) e[j]
  y[j] = (e[j] / z) for j:70000
}"""
SCAN = """\
kernel scan(x: f32[100000]) -> (y: f32[100000]) {
  parallel
  s = scan(i:100000) {
    init f32(0.0)
    step (s + x[i])
  }
  y[i] = s[i] for i:100000
}"""
NAMED = """\
kernel named(c: f32[70000], l: f32[1]) -> (t0: f32[70000]) {
  parallel
  t = max(t2:70000) c[t2]
  t1 = sum(t2:70000) exp((c[t2] - t))
  t1_last = sum(t2:70000) ((c[t2] - t) / t1)
  t1_whole = (t1_last / 70000.0)
  t0[t2] = (((c[t2] - t) / t1) + (t1_whole * l[0])) for t2:70000
}"""
FOLDED = """\
kernel folded(x: f32[100001], w: f32[3]) -> (y: f32[], y_: f32[]) {
  parallel
  m = max(j:3) abs(w[j])
  c = (m + 1.0)
  s, s_last = fold(i:100001) {
    init f32(0.0), f32(0.0)
    step (s + (x[i] / c)), max(s_last, x[i])
    merge (s + ((right.s * c) / (m + 1.0))), max(s_last, right.s_last)
  }
  y[] = s
  y_[] = s_last
}"""
ALL = {"sum": SUM, "variance": VARIANCE, "columns": COLUMNS, "argmax": ARGMAX, "softmax": SOFTMAX}
ALL |= {"named": NAMED, "folded": FOLDED}


def inputs(kernel):
    rng = np.random.default_rng(0)
    return [rng.integers(-50, 50, b.shape).astype(np.float32) / 16 for b in kernel.inputs]


def test_a_sum_becomes_partial_sums_and_theirs():
    assert "\n".join(map(str, split_reductions(verify(parse(SUM))))) == SUM_SPLIT


def test_what_is_short_or_in_sequence_stays():
    assert split_reductions(verify(parse(SUM.replace("100001", "20000")))) is None
    assert split_reductions(verify(parse(SCAN))) is None


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", ALL)
def test_parts_verify_and_agree(name):
    """Interpreted one after another, and natively at every width."""
    kernel = verify(parse(ALL[name]))
    arrays = inputs(kernel)
    wanted = interpret(kernel, *arrays, exact=True)
    parts = split_reductions(kernel)
    held = dict(zip((b.name for b in kernel.inputs), arrays, strict=True))
    for part in map(verify, parts):
        results = interpret(part, *(held[b.name] for b in part.inputs))
        held.update(zip((b.name for b in part.outputs), results, strict=True))
    found = [[held[b.name] for b in kernel.outputs]]
    found += [run_code(kernel, arrays, target) for target in LEVELS_HERE]
    for outputs in found:
        for got, want in zip(outputs, wanted, strict=True):
            if want.dtype.kind == "f":  # f32 sums of 1e5 terms of size 1 in at least 16 partial sums
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ALL)
def test_results_do_not_depend_on_how_units_are_dealt_out(name, monkeypatch):
    monkeypatch.setattr(generate, "LONG_UNIT", 0.0)  # cut what is small, too
    generate._generic.cache_clear()
    kernel = verify(parse(ALL[name]))
    code = code_of(call_of(kernel), LEVELS_HERE[0])
    assert len(code.phases) > 1 and code.scratch
    run, results = Native(code, LEVELS_HERE[0]), []
    for parts in (1, 2, 7):
        outputs = [np.empty(b.shape, np.float32 if b.dtype == "f32" else np.int64) for b in kernel.outputs]
        run(*inputs(kernel), *outputs, parts=parts)
        results.append(outputs)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_collapsed_rows_are_split_too():
    kernel = canonical(collapsed(verify(parse(VARIANCE))))
    assert len(split_reductions(kernel)) == 5


def test_the_stores_of_a_norm_of_few_channels_go_along_its_images():
    """Its means and factors, of which there are as many arrays, are one number each for a channel: vectors of
    channels took 40 ms in place of 2.3 (16 channels of 112 x 112, batch 32; EPYC "Zen 4", 2026-11-26)."""
    text = """\
kernel norm(x: f32[16,3136,32], w: f32[16], b: f32[16]) -> (y: f32[16,3136,32], z: f32[16,3136,32]) {
  parallel i:16
  t = sum(p:3136 n:32) x[i, p, n]
  m = (t / 100352)
  v = sum(p:3136 n:32) ((x[i, p, n] - m) * (x[i, p, n] - m))
  y[i, p, n] = (((x[i, p, n] - m) * (rsqrt(v) * w[i])) + b[i]) for n:32 p:3136
  z[i, p, n] = ((x[i, p, n] - m) * rsqrt(v)) for n:32 p:3136
}
"""
    made, _ = pieces(canonical(collapsed(verify(parse(text)))), None, AVX512, False)
    assert len(made) > 1
    last = made[-1].kernel
    for store in last.stores:
        along = last.buffers[store.buffer].offset(store.index).coefficient(made[-1].schedule.axis)
        assert along == 1
