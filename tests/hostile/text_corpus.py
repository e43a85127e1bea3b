"""Small texts to begin with: a graph and a kernel for each record's smallest samples, and the probes."""

from __future__ import annotations

import sys
from pathlib import Path

from lamina.ir.dtypes import float32, float64, int64
from lamina.ir.graph import Builder
from lamina.ir.lowering import Decomposition, NotLowered
from lamina.ir.op import REGISTRY
from lamina.passes.graphs.lower import lower
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.pack_matmuls import pack_matmuls
from lamina.passes.programs.program_text import program_text
from lamina.passes.schedules.target import AVX2

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS), str(TESTS / "ops"), str(TESTS / "kernel"), str(TESTS / "ir")]
from checks import taken  # noqa: E402
from harness import cases  # noqa: E402
from image_programs import random_images  # noqa: E402
from sample_programs import random_program  # noqa: E402
from training_programs import random_step  # noqa: E402

LARGEST = 1500  # characters of a text


def graph_texts() -> list[str]:
    """One node of each record, on its samples; and what the nodes of several are in a row."""
    found = []
    for case in _cases(4):
        with Builder("g") as b:
            operands = [None if t is None else b.param(t, "x") for t in case.types]
            node = b.emit(case.op, operands, case.attrs)
            found.append(str(b.finish(node.visible)))
    found += [NESTED, SYMBOLIC]
    return sorted({text for text in found if len(text) <= LARGEST})


def kernel_texts() -> list[str]:
    from probes import PROBES

    found = [probe.text for probe in PROBES.values()]
    for case in _cases(3):
        if not isinstance(case.op.lower, (NotLowered, Decomposition)):
            found.append(str(lower(case.op, case.types, case.attrs)))
    return sorted({text for text in found if len(text) <= LARGEST})


def program_texts() -> list[str]:
    """Random programs, networks and training steps as the layouts leave them; each way to run a kernel."""
    found = [program_text(random_program(seed)) for seed in range(200)]
    for seed in range(60):
        laid_out = pack_matmuls(assign_layouts(random_images(seed), AVX2), AVX2)
        found += [program_text(laid_out), program_text(random_step(seed))]
    for how in HOWS:
        found.append(ONE_CALL.replace("HOW", how))
    return sorted({text for text in found if len(text) <= LARGEST})


HOWS = (
    "scalar(j) tile(i, 2) unroll(r, 3) keep(e) block(j, 64) stream()",
    "collapse() reorder(j, i) pack(b, j) prefetch(b, 512) vectorise(j, 2) block(j, 16) peel(j) roll(i)",
    "residues() vectorise(n, 2, 8) tile(i, 2) bound() join() strips(r, 4) split(i, 2)",
    "winograd(4, 8, 6, 2)",
    "winograd(4, 1, 6, 2, False, 16)",
)
ONE_CALL = """\
kernel add(a: f32[2,3], b: f32[3]) -> (y: f32[2,3]) {
  parallel i:2 j:3
  y[i, j] = (a[i, j] + b[j])
}
program net(%x: f32[2,3]) -> (%y into %x, %indices) {
  @c: f32[3] = (1.5,-0.0,inf)
  %y: f32[2,3] = add(%x, @c) by HOW
  %row: f32[3] = alias(%y) {offset=3}
  %values: f32[3], %indices: i64[3] = host.sort(%row: f32[3]) {dim=0, descending=False}
}"""


def _cases(count: int):
    for _, op in sorted(REGISTRY.items()):
        for dtype in taken(op, (float32, float64, int64))[:2]:
            yield from cases(op, dtype, count=count)


NESTED = """\
graph outer(%x: f64[3]) -> (f64[3]) {
  %0 = fused(%x) {body=graph body(%a: f64[3]) -> (f64[3]) {
    %0 = mul(%a, %a) : f64[3]
    %1 = add(%0, 1.0:f64) : f64[3]
    return %1
  }} : f64[3]
  return %0
}"""
SYMBOLIC = """\
graph small(%x: f32[n,3], %0: i64[n,2*m]) -> (f32[n,3], i64[n,2*m]) {
  @table : f32[3]
  %1 = mul(%x, 2.5:f32) : f32[n,3]  # model.py:12
  %5 = add(%1, @table) : f32[n,3]
  %6 = size() {value=2*n+m*n} : i64[]
  %7 = mul(%0, %6) : i64[n,2*m]
  return %5, %7
}"""
