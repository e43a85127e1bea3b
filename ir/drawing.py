"""Draws a graph as SVG: layers from top to bottom, one box a node; a fused node's box lists what it holds.

Params other than the first that is read (weights) are written into the boxes of their nodes, so that the
picture shows the flow of the data.  Layers by longest path, their order by the mean place of the sources.

Source: Sugiyama, Tagawa and Toda, Methods for visual understanding of hierarchical system structures, 1981.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from html import escape

from .fused import fused
from .graph import Constant, Graph, Node, Value

LINE, CHARACTER, PAD, GAP, BETWEEN = 15, 6.9, 9, 34, 22  # pixels; the character's width is that of 11.5 px
FILL = {"fused": "#dcebff", "node": "#f5f5f2", "param": "#e9f7e6", "result": "#fdeedd"}
EDGE = {"fused": "#1f5fbf", "node": "#9a9a92", "param": "#5b9a4c", "result": "#c98335"}
MOST = 14  # lines of a fused node's box before the rest is counted only


@dataclass(eq=False)
class _Box:
    kind: str
    lines: list[str]
    sources: list[_Box] = field(default_factory=list)
    layer: int = 0
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * CHARACTER + 2 * PAD

    @property
    def height(self) -> float:
        return len(self.lines) * LINE + 2 * PAD - 3


def svg(graph: Graph, title: str = "") -> str:
    """The picture of a graph, as the text of an SVG file."""
    boxes = _boxes(graph)
    layers = _placed(boxes)
    width = max([b.x + b.width / 2 for b in boxes] + [20 + 8.5 * len(title)]) + 20
    height = max((b.y + b.height for b in boxes), default=0) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans Mono, Menlo, monospace" '
        'font-size="11.5">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="20" y="24" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for box in boxes:
        parts += [_edge(source, box) for source in box.sources]
    for layer in layers:
        parts += [_drawn(box) for box in layer]
    return "\n".join([*parts, "</svg>", ""])


def _boxes(graph: Graph) -> list[_Box]:
    """A box for the data (the first param that is read), for each node, and for each result."""
    at: dict[Value, _Box] = {}
    boxes = []
    read = {v for node in graph.nodes for v in node.inputs}
    first = next((param for param in graph.params if param in read), None)
    if first is not None:
        at[first] = _Box("param", [f"{first.hint or 'input'}", str(first.type)])
        boxes.append(at[first])
    for node in graph.nodes:
        box = _Box("fused" if node.op is fused else "node", _text(node, at))
        box.sources = list(dict.fromkeys(at[v] for v in node.inputs if v is not None and v in at))
        at.update((v, box) for v in node.outputs)
        boxes.append(box)
    for value in graph.results:
        if value in at:
            boxes.append(_Box("result", [f"result {value.type}"], [at[value]]))
    return boxes


def _text(node: Node, at: dict[Value, _Box]) -> list[str]:
    held = node.attrs["body"].nodes if node.op is fused else ()
    lines = [f"one kernel of {len(held)}"] if held else [node.op.name]
    lines += [f"  {inner.op.name}" for inner in held[:MOST]]
    if len(held) > MOST:
        lines.append(f"  and {len(held) - MOST} more")
    weights = [v for v in dict.fromkeys(node.inputs) if v is not None and v not in at]
    weights = [v for v in weights if not (isinstance(v, Constant) and v.inline)]
    named = [v.hint or ("constant" if isinstance(v, Constant) else "weight") for v in weights]
    if named:
        lines.append("with " + ", ".join(named[:3]) + (f", {len(named) - 3} more" if len(named) > 3 else ""))
    lines.append(" ".join(str(v.type) for v in node.visible[:2]))
    return lines


def _placed(boxes: list[_Box]) -> list[list[_Box]]:
    """Give every box its place; return the layers."""
    layers: dict[int, list[_Box]] = defaultdict(list)
    for box in boxes:  # in order, so that sources have their layers already
        box.layer = max((s.layer + 1 for s in box.sources), default=0)
        layers[box.layer].append(box)
    y, found = 44.0, []
    middle = 20 + max((box.width for box in boxes), default=0.0) / 2
    for number in sorted(layers):
        row = layers[number]
        row.sort(key=lambda b: sum(s.x for s in b.sources) / len(b.sources) if b.sources else 0.0)
        x = 20.0
        for box in row:
            wanted = sum(s.x for s in box.sources) / len(box.sources) if box.sources else middle
            box.x = max(x + box.width / 2, wanted)
            box.y = y
            x = box.x + box.width / 2 + BETWEEN
        y += max(box.height for box in row) + GAP
        found.append(row)
    return found


def _edge(source: _Box, box: _Box) -> str:
    x0, y0, x1, y1 = source.x, source.y + source.height, box.x, box.y
    if box.layer > source.layer + 1 and abs(x0 - x1) < 1:  # around the boxes between
        side = x0 + max(source.width, box.width) / 2 + 90
        path = f"M{x0:.0f},{y0:.0f} C{side:.0f},{y0 + 40:.0f} {side:.0f},{y1 - 40:.0f} {x1:.0f},{y1:.0f}"
    else:
        half = (y1 - y0) / 2
        path = f"M{x0:.0f},{y0:.0f} C{x0:.0f},{y0 + half:.0f} {x1:.0f},{y1 - half:.0f} {x1:.0f},{y1:.0f}"
    arrow = f"M{x1 - 4:.0f},{y1 - 7:.0f} L{x1:.0f},{y1:.0f} L{x1 + 4:.0f},{y1 - 7:.0f}"
    return f'<path d="{path} {arrow}" fill="none" stroke="#666" stroke-width="1.2"/>'


def _drawn(box: _Box) -> str:
    x, y = box.x - box.width / 2, box.y
    lines = [
        f'<tspan x="{x + PAD:.0f}" y="{y + PAD + 9 + i * LINE:.0f}"'
        + (' font-weight="bold"' if i == 0 else ' fill="#555"' if i == len(box.lines) - 1 else "")
        + f' xml:space="preserve">{escape(line)}</tspan>'
        for i, line in enumerate(box.lines)
    ]
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="5" '
        f'fill="{FILL[box.kind]}" stroke="{EDGE[box.kind]}"/><text>{"".join(lines)}</text>'
    )
