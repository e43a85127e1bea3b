"""Kernels that read a part of an array are given the part: golden, refusals, and what it is for."""

import pytest
from fusing import OPS, check_program, t

from lamina.ir import Builder
from lamina.ir.errors import GraphError
from lamina.ir.kernel import parse, verify
from lamina.ir.kernel.form import Kernel
from lamina.passes.graphs.fuse import fuse
from lamina.passes.kernels.slices import sliced
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs.program import Alias, Array, Program
from lamina.passes.programs.program import verify as verify_program
from lamina.passes.schedules.target import BASELINE

CASES = {
    "rows from one on": ("x: f32[8,4]", "f32[2,4]", "i:2 j:4", "y[i, j] = x[i+6, j]"),
    "two rows, apart": ("x: f32[8,4]", "f32[4]", "j:4", "y[j] = (x[2, j] + x[5, j])"),
    "a part of one row": ("x: f32[8,4]", "f32[2]", "j:2", "y[j] = x[3, j+1]"),
    "merged axes": ("x: f32[8,4]", "f32[2,2,4]", "i:2 k:2 j:4", "y[i, k, j] = x[2*i+k+4, j]"),
    "an index computed after the part": ("x: f32[8,4], at: i64[3]", "f32[3]", "i:3", "y[i] = x[5, at[i]]"),
}
WHOLE = {
    "all rows": ("x: f32[2,4]", "f32[2,4]", "i:2 j:4", "y[i, j] = x[i, j]"),
    "columns": ("x: f32[2,4]", "f32[2,2]", "i:2 j:2", "y[i, j] = x[i, j+2]"),
    "every other row": ("x: f32[8,4]", "f32[3,4]", "i:3 j:4", "y[i, j] = x[2*i, j]"),
    "backwards": ("x: f32[8,4]", "f32[2,4]", "i:2 j:4", "y[i, j] = x[-i+3, j]"),
    "guarded": ("x: f32[8,4]", "f32[4]", "j:4", "y[j] = x[2, j else 0.0]"),
    "a computed row": ("x: f32[8,4], at: i64[3]", "f32[3]", "i:3", "y[i] = x[at[i], 1]"),
    "nothing, behind the end": ("x: f32[8,4]", "f32[0]", "i:0", "y[i] = x[i+8, 1]"),
    "in place": ("x: f32[8,4]", "f32[8,4] inplace x", "j:4", "y[2, j] = x[2, j]"),
}


def kernel_of(inputs: str, result: str, axes: str, store: str) -> Kernel:
    return verify(parse(f"kernel k({inputs}) -> (y: {result}) {{\n  parallel {axes}\n  {store}\n}}"))


def test_sliced_golden(golden):
    texts = []
    for name, case in CASES.items():
        kernel, offsets = sliced(kernel_of(*case))
        texts.append(f"# {name}: from {', '.join(map(str, offsets))}\n{verify(kernel)}")
        assert sliced(kernel) == (kernel, (0,) * len(offsets))
    golden("passes/slices", "\n\n".join(texts))


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_read_whole_stays(name):
    kernel = kernel_of(*WHOLE[name])
    assert sliced(kernel)[0] is kernel


def recurrent(steps: int):
    with Builder("f") as b:
        x, w, h = b.param(t(steps, 4, 8), "x"), b.param(t(8, 8), "w"), b.param(t(4, 8), "h")
        for k in range(steps):
            h = OPS["tanh"](x[k] + h @ w)
        return fuse(b.finish([h]))


def test_equal_steps_are_one_code():
    program = check_program(recurrent(6), rtol=1e-5)  # six steps of sums of 8 terms
    codes = {code_of(call, BASELINE).text for call in program.calls}
    assert len(program.calls) == 6 and len(codes) == 1
    assert [step.offset for step in program.steps if isinstance(step, Alias)] == [32 * k for k in range(6)]


def test_a_part_is_one_array_for_all_its_readers():
    with Builder("f") as b:
        x, w = b.param(t(3, 4, 4), "x"), b.param(t(4, 4), "w")
        graph = b.finish([x[1] @ w, w @ x[1], x[1]])
    program = check_program(fuse(graph), rtol=1e-6)  # sums of 4 terms
    assert sum(isinstance(step, Alias) for step in program.steps) == 1


def test_a_part_that_is_not_inside_is_refused():
    x = Array("x", "f32", (3, 4))
    for offset in (-1, 9):
        step = Alias((x,), (Array("y", "f32", (4,)),), offset)
        with pytest.raises(GraphError, match="an alias has elements of its source"):
            verify_program(Program("f", (x,), (step,), step.outputs))
