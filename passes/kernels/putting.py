"""The kernel of a `put`: what is scattered into zeros elsewhere, written over the array itself.

kernel index_put(c: f32[1024,64], x: f32[64], i: i64[]) -> (y: f32[1024,64] inplace c) {
  parallel i0:64
  y[i[], i0] set= x[i0]
}
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.graph import Graph, Value
from ...ir.kernel.form import Kernel, Store
from ...ir.kernel.verify import verify
from ...ir.op import REGISTRY
from ..graphs.compose import compose


def putting(body: Graph) -> Kernel:
    """The kernel of a graph of one node, `index_put` or `view_scatter`: the first of its params is written."""
    (node,), (base, *others) = body.nodes, body.params
    (out,) = body.results
    made = Value(out.type)
    if node.op is REGISTRY["index_put"]:
        attrs = {"shape": tuple(base.shape), "dims": node.attrs["dims"], "combine": "set"}
        op = REGISTRY["unindex"]
    else:
        attrs = {"shape": tuple(base.shape), "chain": node.attrs["chain"]}
        op = REGISTRY["unview"]
    alone = node.replace(op=op, inputs=node.inputs[1:], outputs=(made,), attrs=attrs)
    kernel = compose(Graph(body.name, tuple(others), (alone,), (made,)))
    (buffer,) = kernel.outputs
    name = f"{buffer.name}_before"
    while name in kernel.buffers or name in kernel.extents or name in kernel.dtypes:
        name += "_"
    stages = kernel.stages
    if op is REGISTRY["unview"]:  # no two meet
        stages = tuple(replace(s, combine=None) if isinstance(s, Store) else s for s in stages)
    given = replace(buffer, name=name)
    return verify(
        kernel.replace(
            name=node.op.name, inputs=(given, *kernel.inputs), outputs=(replace(buffer, inplace=name),),
            stages=stages,
        )
    )  # fmt: skip
