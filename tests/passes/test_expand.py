"""expand: golden texts, halves, ops inside of ops, and that values stay what they were."""

import numpy as np
import pytest
from fusing import arrays_for, t

from lamina.ir import Builder, graph_text, interpret, parse, verify
from lamina.ir.dtypes import float16, int64
from lamina.ir.op import REGISTRY as OPS
from lamina.passes.graphs.expand import expand
from lamina.passes.graphs.fuse import fuse

CASES = {
    "halves widen on the way in and are rounded on the way out": """
graph f(%x: f16[4,8]) -> (f16[4]) {
  %0 = std(%x) {dim=(1,), correction=1, keepdim=False} : f16[4]
  return %0
}""",
    "what is decomposed into what is decomposed, used by others and by itself": """
graph f(%x: f32[3,4], %y: i64[3]) -> (f32[]) {
  %0 = neg(%x) : f32[3,4]
  %1, %2, %3, %4 = softmax_cross_entropy(%0, %y, none) {ignore_index=-100, reduction="mean", label_smoothing=0.0} : f32[], f32[3], f32[3], f32[]
  %5 = std(%0) {dim=(0,1), correction=0, keepdim=False} : f32[]
  %6 = add(%1, %5) : f32[]
  return %6
}""",  # noqa: E501
    "kernels and what the host runs stay": """
graph f(%x: f32[3]) -> (f32[3], i64[3]) {
  %0 = exp(%x) : f32[3]
  %1, %2 = sort(%0) {dim=0, descending=False} : f32[3], i64[3]
  return %1, %2
}""",
}  # fmt: skip


def test_expand_golden(golden):
    texts = []
    for name, text in CASES.items():
        graph = parse(text)
        verify(graph)
        made = expand(graph)
        verify(made)
        assert expand(made) is made
        after = " the same" if made is graph else f"\n{graph_text(made)}"
        texts.append(f"# {name}\n{graph_text(graph)}\n->{after}")
    golden("passes/expand", "\n\n".join(texts))


def test_expand_keeps_the_users_lines():
    with Builder("f") as b:
        x = b.param(t(3, 4), "x")
        b.where = ("model.py", 7)
        graph = b.finish(OPS["std"](x, 1))
    assert {node.where for node in expand(graph).nodes} == {("model.py", 7)}


def test_expand_leaves_fused_nodes_closed():
    with Builder("f") as b:
        x = b.param(t(3, 4), "x")
        graph = fuse(b.finish(OPS["exp"](x) * 2.0))
    assert expand(graph) is graph


ROW = (("basic_index", (("index", (("int", 1), ("slice", 0, 4, 1))),)),)
CALLS = {
    "std": lambda x, k: OPS["std"](x, 1),
    "view_scatter": lambda x, k: OPS["view_scatter"](x, x[1] * 2.0, ROW),
    "softmax_cross_entropy": lambda x, k: OPS["softmax_cross_entropy"](x, k),
    "adam_update": lambda x, k: OPS["adam_update"](
        [x], [x], [x], [x * x], step=2.0, lr=0.1, weight_decay=0.1
    ),
    "sgd_update": lambda x, k: OPS["sgd_update"]([x], [x], [x], step=2.0, lr=0.1, momentum=0.9),
    "scatter_add": lambda x, k: OPS["scatter_add"](x, 0, OPS["reshape"](k, (1, 3)), x[:1, :3]),
}


@pytest.mark.parametrize("name", CALLS)
def test_expand_keeps_values(name):
    """One op of each kind; tests/ops runs every decomposition against its reference."""
    with Builder("f") as b:
        x, k = b.param(t(3, 4), "x"), b.param(t(3, dtype=int64), "k")
        made = CALLS[name](x, k)
        graph = b.finish(made[0] if isinstance(made, tuple) else made)
    assert expand(graph) is not graph
    expanded = expand(graph)
    verify(expanded)
    arrays = arrays_for(graph)
    np.testing.assert_allclose(interpret(expanded, *arrays)[0], interpret(graph, *arrays)[0], rtol=1e-5)


def test_expand_rounds_halves_where_eager_does():
    with Builder("f") as b:
        x = b.param(t(5, 33, dtype=float16), "x")
        graph = b.finish(OPS["std"](x, 1) * 3.0)
    (x,) = arrays_for(graph)
    assert (interpret(expand(graph), x)[0] == interpret(graph, x)[0]).all()
