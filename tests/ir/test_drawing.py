"""The pictures of graphs: well-formed, complete, and without boxes on top of each other."""

import xml.etree.ElementTree as ElementTree

from lamina.ir import dtypes
from lamina.ir.drawing import svg
from lamina.ir.graph import Builder, Graph
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of

SVG = "{http://www.w3.org/2000/svg}"


def residual() -> Graph:
    conv2d, relu = REGISTRY["conv2d"], REGISTRY["relu"]
    with Builder("net") as b:
        x = b.param(type_of(dtypes.float32, (1, 8, 8, 8)), "x")
        w = b.param(type_of(dtypes.float32, (8, 8, 3, 3)), "conv.weight")
        y = relu(conv2d(x, w, None, padding=1))
        return b.finish(relu(x + y))


def test_svg_shows_every_node_with_its_weights_and_escapes_its_title():
    root = ElementTree.fromstring(svg(residual(), "a < b & c"))
    lines = [element.text for element in root.iter(f"{SVG}tspan")]
    assert lines.count("relu") == 2 and "conv2d" in lines and "add" in lines
    assert "with conv.weight" in lines and "result f32[1,8,8,8]" in lines
    assert [t.text for t in root.iter(f"{SVG}text")][0] == "a < b & c"


def test_svg_boxes_do_not_overlap():
    boxes = [
        tuple(float(r.get(k)) for k in ("x", "y", "width", "height"))
        for r in ElementTree.fromstring(svg(residual())).iter(f"{SVG}rect")
        if r.get("x")
    ]
    assert len(boxes) == 6
    for i, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_svg_of_an_empty_graph_is_a_picture():
    with Builder("none") as b:
        graph = b.finish([])
    assert ElementTree.fromstring(svg(graph)).tag == f"{SVG}svg"
