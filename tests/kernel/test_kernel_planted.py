"""Planted bugs: each must be seen by the net meant for it, the verifier or the comparison of results."""

from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pytest
from native import LEVELS_HERE, run_code
from probes import PROBES
from test_kernel_llvm import SCHEDULES, close, untouched

from lamina.ir.errors import KernelError
from lamina.ir.kernel import interpret, parse, verify
from lamina.ir.kernel.affine import Affine
from lamina.passes.kernels import collapse, split_reductions
from lamina.passes.llvm import generate, reductions, units
from lamina.passes.llvm.binding import Compiled

# What a lowering might get wrong, as an edit of right text.
BROKEN_TEXT = {
    "else dropped": ("conv2d", " else 0]", "]"),
    "bound one too far": ("sum", "sum(j:100)", "sum(j:101)"),
    "axis swapped in a read": ("transpose", "x[j, i]", "x[i, j]"),
    "axis swapped in a store": ("transpose", "y[i, j]", "y[j, i]"),
    "written twice": ("add", "parallel i:37 j:100", "parallel i:37 j:100 k:2"),
    "part unwritten": ("add", "parallel i:37 j:100", "parallel i:36 j:100"),
    "rank dropped": ("matmul", "c[j]", "c[]"),
    "cast forgotten": ("halves", "f32(w[j])", "w[j]"),
    "combine forgotten": ("scatter_add", "add=", "="),
    "state of another type": ("argmax", "i64(0)", "i32(0)"),
}


@pytest.mark.parametrize("bug", BROKEN_TEXT)
def test_the_verifier_sees(bug):
    name, right, wrong = BROKEN_TEXT[bug]
    assert right in PROBES[name].text
    with pytest.raises(KernelError):
        verify(parse(PROBES[name].text.replace(right, wrong)))


# Valid kernels that compute something else: only comparing with the reference sees them.
WRONG_RESULT = {
    "pad by one less": ("conv2d", "2*i+r-1", "2*i+r"),
    "weights flipped": ("conv2d", "w[k, c, r, s]", "w[k, c, r, -s+2]"),
    "wrong operand": ("where", "x[i, j], y[j]", "y[j], x[i, j]"),
    "last of equals": ("argmax", "x[i, j] > best", "x[i, j] >= best"),
    "NaN lost": ("argmax", "(isnan(x[i, j]) & (best == best))", "(isnan(x[i, j]) & (best != best))"),
    "pool pads with zeros": ("max_pool2d", "else -inf", "else 0"),
    "indices not wrapped": ("gather", "(ids[i] + 50)", "(ids[i] + 49)"),
    "last instead of the sum": ("scatter_add", "add=", "set="),
    "one round of bits shared": ("dropout", "u32((n >> 32))", "u32(0)"),
}


@pytest.mark.parametrize("bug", WRONG_RESULT)
def test_the_comparison_sees(bug):
    name, right, wrong = WRONG_RESULT[bug]
    probe = PROBES[name]
    assert right in probe.text
    kernel = verify(parse(probe.text.replace(right, wrong)))
    with pytest.raises((AssertionError, KernelError)):
        for got, want in zip(interpret(kernel, *probe.arrays(), merged=False), probe.wanted(), strict=True):
            close(got, want, bug)


def _all_lanes(self, bound):
    return self.constant(True, "bool", wide=True)


def _keeps_one(right):
    return lambda self, word, totals: right(self, word, totals[:1])


def _leaks(self, key, make):
    if key not in self.scopes[0]:
        self.scopes[0][key] = make()
    return self.scopes[0][key]


# What the emitter might get wrong: the method, what stands in its place, and a probe that shows it.
BROKEN_EMITTER = {
    "tail mask all true": ("lanes_below", lambda right: _all_lanes, "softmax"),
    "guards dropped": ("guards", lambda right: lambda s, a, p: (None, None), "conv2d"),
    "lane guard dropped": ("guards", lambda right: lambda s, a, p: (right(s, a, p)[0], None), "conv2d"),
    "scalar guard dropped": ("guards", lambda right: lambda s, a, p: (None, right(s, a, p)[1]), "conv2d"),
    "one vector of several": ("paired", _keeps_one, "sum"),
    "one lane": ("horizontal", lambda right: lambda self, word, total: self.lane(total, 0), "sum"),
    "memo leaks out of loops": ("memo", lambda right: _leaks, "matmul"),
    "identity of another word": ("accumulate", None, "sum"),
}


@pytest.mark.parametrize("bug", BROKEN_EMITTER)
def test_the_llvm_comparison_sees(bug, monkeypatch):
    method, patch, name = BROKEN_EMITTER[bug]
    if patch is None:
        monkeypatch.setattr(reductions, "identity", lambda word, dtype: 1)
    else:
        owner = next(c for c in units.Units.__mro__ if method in vars(c))
        monkeypatch.setattr(owner, method, patch(vars(owner)[method]))
    probe = PROBES[name]
    wanted = interpret(probe.kernel, *probe.arrays(), exact=True)
    seen = False
    for schedule in [None, *SCHEDULES.get(name, [])]:
        # NaN around every array: what a dropped guard or mask reads is no number, and what it writes is seen
        outputs = [_surrounded(np.zeros(b.shape, np.float32)) for b in probe.kernel.outputs]
        arrays = [_surrounded(a) for a in probe.arrays()]
        try:
            Compiled(probe.kernel, schedule, LEVELS_HERE[0])(*arrays, *outputs)
            for got, want in zip(outputs, wanted, strict=True):
                close(got, want, bug)
                assert untouched(got)
        except (AssertionError, KernelError):
            seen = True
    assert seen, f"{bug}: no schedule of {name} shows it"


ROOM = 4096  # elements: more than 16 rows of any probe, where a vector across rows would stray


def _surrounded(array: np.ndarray) -> np.ndarray:
    whole = np.empty(array.size + 2 * ROOM, array.dtype)
    whole.view(np.uint8)[...] = 0xFF  # as float32, NaN
    inner = whole[ROOM : ROOM + array.size].reshape(array.shape)
    inner[...] = array
    return inner


LONG_SUM = """\
kernel sum(x: f32[100001]) -> (y: f32[]) {
  parallel
  s = sum(i:100001) x[i]
  y[] = s
}"""
LAST = """\
kernel last(at: i64[40000], x: f32[40000]) -> (y: f32[9]) {
  parallel i:40000
  y[at[i]] set= x[i]
}"""
# What the making of code might get wrong: the module, the name in it, what stands in its place, and a kernel.
BROKEN_GENERATOR = {
    "nothing filled": (
        generate,
        "filling",
        lambda right: lambda kernel, buffer: None,
        PROBES["bincount"].text,
    ),
    "order forgotten": (generate, "_meets", lambda right: lambda kernel: False, LAST),
    "axes merged that run apart": (
        collapse,
        "_mergeable",
        lambda right: lambda groups, indices, extents: chain(*(map(pairwise, groups))),
        PROBES["add"].text,
    ),
    "left over dropped": (
        split_reductions._Split,
        "combined",
        lambda right: lambda self, stage, partials, part, last: right(self, stage, partials, part, None),
        LONG_SUM,
    ),
    "an open axis one short": (
        generate,
        "generalised",
        lambda right: lambda kernel: right(kernel) and _one_short(right(kernel)),
        PROBES["add"].text,
    ),
}


def _one_short(kernel):
    """The same stores one row further on."""
    return kernel.replace(
        stages=tuple(replace(s, index=(s.index[0] + Affine((), 1), *s.index[1:])) for s in kernel.stages)
    )


@pytest.mark.parametrize("bug", BROKEN_GENERATOR)
def test_running_code_sees(bug, monkeypatch):
    owner, name, patch, text = BROKEN_GENERATOR[bug]
    kernel, rng = verify(parse(text)), np.random.default_rng(0)
    arrays = [
        rng.integers(0, 4, b.shape) if b.dtype == "i64" else rng.standard_normal(b.shape).astype(np.float32)
        for b in kernel.inputs
    ]
    wanted = interpret(kernel, *arrays)
    monkeypatch.setattr(generate, "LONG_UNIT", 0.0)  # cut what is small, too

    def check():
        generate._generic.cache_clear()
        collapse.collapsed.cache_clear()
        for got, want in zip(run_code(kernel, arrays, LEVELS_HERE[0]), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)  # a wrong sum is off by more

    check()
    monkeypatch.setattr(owner, name, patch(vars(owner)[name]))
    with pytest.raises((AssertionError, KernelError)):  # the latter where what it writes may leave its arrays
        check()
    generate._generic.cache_clear()
