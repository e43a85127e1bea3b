"""The kernel of a `put`: what is scattered into zeros elsewhere, written over the array itself.

kernel index_put(c: f32[1024,64], x: f32[64], i: i64[]) -> (y: f32[1024,64] inplace c) {
  parallel i0:64
  y[i[], i0] set= x[i0]
}
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ir.graph import Builder, Graph, Node
from ...ir.kernel.form import Kernel, Store
from ...ir.kernel.verify import verify
from ...ir.op import REGISTRY
from ...ir.ops.along import along
from ...ir.ops.gather import cropped
from .compose import compose
from .expand import expand


def putting(body: Graph) -> Kernel:
    """The kernel of a graph of one node: the first of its params is written.  Raises Unsayable."""
    (node,), base = body.nodes, body.params[0]
    kernel = compose(expand(_scattered(node, body)))
    (buffer,) = kernel.outputs
    name = f"{buffer.name}_before"
    while name in kernel.buffers or name in kernel.extents or name in kernel.dtypes:
        name += "_"
    stages = kernel.stages
    if node.op is REGISTRY["view_scatter"]:  # no two meet
        stages = tuple([replace(s, combine=None) if isinstance(s, Store) else s for s in stages])
    inputs = (replace(buffer, name=name), *kernel.inputs)
    outputs = (replace(buffer, inplace=name),)
    assert buffer.shape == tuple(base.shape)
    return verify(kernel.replace(name=node.op.name, inputs=inputs, outputs=outputs, stages=stages))


def _scattered(node: Node, body: Graph) -> Graph:
    """What the node writes, in zeros."""
    attrs, shape = node.attrs, tuple(body.params[0].shape)
    with Builder(body.name) as b:
        given = {v: b.param(v.type, v.hint) for v in body.params[1:]}
        operands = [given.get(v, v) for v in node.inputs[1:] if v is not None]
        if node.op is REGISTRY["view_scatter"]:
            made = REGISTRY["unview"](operands[0], shape, attrs["chain"])
        elif node.op is REGISTRY["index_put"]:
            picks: list[Any] = [None] * (attrs["dims"][-1] + 1)
            for dim, index in zip(attrs["dims"], operands[1:], strict=True):
                picks[dim] = index
            made = REGISTRY["unindex"](operands[0], shape, tuple(picks), "set")
        else:
            index, value = operands
            if node.op is REGISTRY["index_copy"]:
                index = along(index, attrs["dim"], shape)
                value = REGISTRY["reshape"](value, tuple(index.shape))
            else:
                value = cropped(value, index)
            made = REGISTRY["ungather"](value, index, attrs["dim"], shape, "set")
        return b.finish([made])
