"""Small texts to begin with: a graph and a kernel for each record's smallest samples, and the probes."""

from __future__ import annotations

import sys
from pathlib import Path

from lamina.ir.dtypes import float32, float64, int64
from lamina.ir.graph import Builder
from lamina.ir.lowering import Decomposition, NotLowered
from lamina.ir.op import REGISTRY
from lamina.passes.lower import lower

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "ops"), str(TESTS / "kernel"), str(TESTS / "ir")]
from checks import taken  # noqa: E402
from harness import cases  # noqa: E402

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
