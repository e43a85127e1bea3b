"""Models for the tests of pages: small ones, and one whose names attack the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import lamina
from lamina import nn

# Ends of blocks, of strings, of lines as JavaScript counts them, of comments; markup; words of objects; and
# the page's own places.
HOSTILE = (
    "</script><script>hacked = 1</script>", '"><img src=x onerror="hacked = 1">', "'-hacked-'",
    "a\u2028b\u2029c", "<!--<script>", "]]>", "__proto__", "constructor", "{{DATA}}", "${hacked = 1}",
    "\ud800", "&lt;b&gt;",
)  # fmt: skip


class Block(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return nn.functional.relu(self.norm(self.conv(x)) + x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(Block(8), Block(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


def net() -> nn.Module:
    lamina.manual_seed(0)
    return Net().eval()


def hostile() -> nn.Module:
    """A module whose parts have such names, as far as a module's may be so."""
    made = nn.Sequential()
    for name in HOSTILE:
        if "." not in name and not hasattr(made, name):
            made.add_module(name, nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    return made.eval()


def data_of(path: Path) -> dict[str, Any]:
    """What a page holds."""
    found = re.search('<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def onnx_model(path: Path, names: tuple[str, ...] = (), branches: bool = True) -> Path:
    """An ONNX model: a product, a branch by a value, a softmax.  names: of nodes that follow."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def tensor(name: str, value: Any) -> Any:
        return numpy_helper.from_array(np.asarray(value, np.float32), name)

    def kind(name: str, shape: list[Any] | None = None) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    node = helper.make_node
    yes = helper.make_graph([node("Relu", ["h"], ["t"], name="/yes/Relu")], "yes", [], [kind("t")])
    no = helper.make_graph([node("Neg", ["h"], ["e"], name="/no/Neg")], "no", [], [kind("e")])
    nodes = [
        node("Gemm", ["x", "w", "b"], ["h"], name="/layers/layers.0/Gemm"),
        node("ReduceMean", ["h"], ["m"], keepdims=0, name="/layers/Mean"),
        node("Greater", ["m", "b0"], ["c"], name="/Greater"),
        node("If", ["c"], ["y"], name="/choose/If", then_branch=yes, else_branch=no),
        node("Softmax", ["y"], ["s"], axis=-1, name="/head/Softmax"),
    ]
    if not branches:
        nodes = [nodes[0], node("Softmax", ["h"], ["s"], axis=-1, name="/head/Softmax")]
    for n, name in enumerate(names):
        nodes.append(node("Neg", [nodes[-1].output[0]], [f"{name}{n}"], name=name))
    initial = [tensor("w", np.eye(4)), tensor("b", np.zeros(4)), tensor("b0", -1.0)]
    results = [kind(nodes[-1].output[0])]
    graph = helper.make_graph(nodes, "g", [kind("x", ["batch", 4])], results, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return path
