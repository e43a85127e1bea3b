"""The graphs of a training step and of inference, before and after the compiler's passes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lamina import jit
from lamina.ir.drawing import svg
from lamina.ir.graph import Graph
from lamina.ir.own_files import replacing
from lamina.passes.graphs.freeze import freeze
from lamina.passes.pipeline import optimise

from .digits import Digits
from .train import BATCH, Training

WIDTH = 108  # characters of a printed line


class Compiled(NamedTuple):
    """A graph as recorded, the same after the passes, and the names of the kernels that run."""

    before: Graph
    after: Graph
    kernels: list[str]


class NotCompiled(Exception):
    """A traced function runs eagerly; the message is what it says of itself."""


def compiled(digits: Digits) -> tuple[Compiled, Compiled]:
    """Record a training step and inference, both on one batch.  Raises NotCompiled.

    Inference is shown without what is computed of weights alone, which runs only when they change.
    """
    training = Training(digits, 2, 0, jit.trace)
    images, labels = (x[:BATCH].contiguous() for x in digits.train)
    for _ in range(2):  # the first call only makes AdamW's states
        training.step(images, labels)
    training.inference(images)()
    step, inference = _looked_at(training.step), _looked_at(training.forward)
    weights = frozenset(range(1, len(inference.after.params)))
    return step, inference._replace(after=freeze(inference.after, weights)[1])


def must_be_compiled(traced: jit.TracedFunction) -> None:
    """Raise NotCompiled for what has run eagerly throughout."""
    if not traced.kernels():
        raise NotCompiled(traced.explain())


def _looked_at(traced: jit.TracedFunction) -> Compiled:
    must_be_compiled(traced)
    graph = traced.graph()
    return Compiled(graph, optimise(graph), traced.kernels())


def write(step: Compiled, inference: Compiled, out: Path, drawn: bool) -> list[str]:
    """Write the graphs as text and draw them.  Returns the names of the files."""
    names = []
    for prefix, found, what in (
        ("graph", inference, f"inference of {BATCH} digits"),
        ("step", step, f"a training step on {BATCH} digits"),
    ):
        for when, graph in (("before", found.before), ("after", found.after)):
            title = f"{what}, {'as recorded' if when == 'before' else 'after the passes'}"
            texts = {".txt": f"{graph}\n"} | ({".svg": svg(graph, title)} if drawn else {})
            for ending, text in texts.items():
                names.append(f"{prefix}-{when}{ending}")
                with replacing(str(out / names[-1])) as file:
                    file.write(text.encode())
    return names


def excerpt(graph: Graph, first: str, lines: int) -> str:
    """Lines of a graph's text, from the first that holds `first`, each cut to the width of a terminal."""
    text = str(graph).splitlines()
    at = next(i for i, line in enumerate(text) if first in line)
    return "\n".join(
        line if len(line) <= WIDTH else line[: WIDTH - 3] + "..." for line in text[at : at + lines]
    )
