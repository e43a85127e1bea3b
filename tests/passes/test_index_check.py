"""The kernel that checks indices finds exactly what the kernel interpreter refuses."""

import numpy as np
import pytest

from lamina.ir.errors import KernelError
from lamina.ir.kernel import parse, verify
from lamina.ir.kernel.interpret import check_indices, interpret
from lamina.passes.kernels.index_check import index_check, trusted

GATHER = """\
kernel gather(t: f32[6,4], r: i64[3]) -> (y: f32[3,4]) {
  parallel i:3 j:4
  y[i, j] = t[r[i], j]
}"""
SCATTER = """\
kernel scatter(x: f32[3,4], r: i32[3,4], s: i64[3]) -> (y: f32[4,5]) {
  parallel i:3 j:4
  y[s[i], r[i, j]] add= x[i, j]
}"""
SMALL = """\
kernel small(t: f32[200], r: u8[9]) -> (y: f32[9]) {
  parallel i:9
  y[i] = t[r[i]]
}"""
SHIFTED = """\
kernel shifted(t: f32[6], r: i64[3]) -> (y: f32[3]) {
  parallel i:3
  y[i] = t[(r[i] + coord(i))]
}"""


def kernel(text: str):
    return verify(parse(text))


def test_the_check_as_text():
    check, positions = index_check(kernel(GATHER))
    assert str(check) == (
        "kernel index_check(r: i64[3]) -> (bad: bool[1]) {\n"
        "  parallel\n"
        "  bad0 = any(i:3) ((r[i] < i64(0)) | (r[i] >= i64(6)))\n"
        "  bad[0] = bad0\n"
        "}"
    )
    assert positions == (1,)


@pytest.mark.parametrize("text", [GATHER, SCATTER, SMALL, SHIFTED])
def test_it_finds_what_the_interpreter_refuses(text):
    given = kernel(text)
    check, positions = index_check(given)
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        arrays = []
        for buffer in given.inputs:
            low, high = (0, 1) if buffer.dtype == "f32" else (0, 203) if buffer.dtype == "u8" else (-1, 6)
            dtype = {"f32": np.float32, "i64": np.int64, "i32": np.int32, "u8": np.uint8}[buffer.dtype]
            wild = rng.random() < 0.5
            values = rng.integers(low if wild else 0, high if wild else 2, buffer.shape)
            arrays.append(values.astype(dtype))
        (bad,) = interpret(check, *(arrays[n] for n in positions))
        try:
            check_indices(given, *arrays)
            refused = False
        except KernelError:
            refused = True
        assert bool(bad[0]) == refused
        seen.add(refused)
    assert seen == {True, False}


def test_what_needs_no_check_or_can_not_be_a_kernel():
    masked = kernel(GATHER.replace("j]\n}", "j else 0.0]\n}"))
    placed = kernel(SHIFTED.replace("(r[i] + coord(i))", "(coord(i) * i64(2))"))
    assert list(trusted(masked)) == list(trusted(placed)) == []
    staged = kernel(SHIFTED.replace("  y[i] = t[(r[i] + coord(i))]", "  m = r[i]\n  y[i] = t[m]"))
    nested = kernel(SHIFTED.replace("(r[i] + coord(i))", "r[r[i]]"))
    assert len(list(trusted(staged))) == 1 and index_check(staged) is None
    assert len(list(trusted(nested))) == 2 and index_check(nested) is None
