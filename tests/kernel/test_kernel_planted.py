"""Planted bugs: each must be seen by the net meant for it, the verifier or the comparison of results."""

import numpy as np
import pytest
from probes import PROBES
from test_kernel_llvm import SCHEDULES, close, untouched

from lamina.ir.errors import KernelError
from lamina.ir.kernel import interpret, parse, verify
from lamina.passes.llvm import emit
from lamina.passes.llvm.binding import Compiled
from lamina.passes.llvm.target import AVX512

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
    return f"<{', '.join(['i1 1'] * self.lanes)}>"


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
    "horizontal keeps one": ("horizontal", _keeps_one, "sum"),
    "memo leaks out of loops": ("memo", lambda right: _leaks, "matmul"),
    "identity of another word": ("accumulate", None, "sum"),
}


@pytest.mark.parametrize("bug", BROKEN_EMITTER)
def test_the_llvm_comparison_sees(bug, monkeypatch):
    method, patch, name = BROKEN_EMITTER[bug]
    if patch is None:
        monkeypatch.setattr(emit, "identity", lambda word, dtype: 1)
    else:
        owner = next(c for c in emit.Emitter.__mro__ if method in vars(c))
        monkeypatch.setattr(owner, method, patch(vars(owner)[method]))
    probe = PROBES[name]
    wanted = interpret(probe.kernel, *probe.arrays(), exact=True)
    seen = False
    for schedule in [None, *SCHEDULES.get(name, [])]:
        # NaN around every array: what a dropped guard or mask reads is no number, and what it writes is seen
        outputs = [_surrounded(np.zeros(b.shape, np.float32)) for b in probe.kernel.outputs]
        arrays = [_surrounded(a) for a in probe.arrays()]
        try:
            Compiled(probe.kernel, schedule, AVX512)(*arrays, *outputs)
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
