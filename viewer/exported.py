"""What there is to be shown of a file that `export` wrote: its graph, compiled for this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError
from ..ir.specialise import specialise
from ..jit.lamina_model import Model, Sizes
from ..jit.loaded import blamed, bytes_for, checked, compiled, graph_of
from ..jit.tuning import drawn
from .subjects import Shown, subject

RUNS = 20  # of the file's own code, of which the quickest counts


def shown_of_file(
    path: Path, sizes: Mapping[str, int], trusted: bool, timed: bool, title: str | None
) -> Shown:
    """An exported model.

    sizes: by the names that it has for them; the least that it takes where nothing is said.  trusted: whether
    its own code runs, too.  Raises ModelError for a damaged file, ArgumentError for sizes that it does not
    take.
    """
    graph, manifest, weights = graph_of(path)
    found, chosen = _sizes(manifest, sizes)
    if found:
        with blamed(path):
            graph = checked(specialise(graph, found), bytes_for(path, None))
    count = len(graph.params) - len(weights)
    code = compiled(path, graph, count).code
    inputs = graph.params[: len(manifest["inputs"])]
    names = [name for name, *_ in manifest["inputs"]]
    about = [("file", path.name), *((name, str(p.type)) for name, p in zip(names, inputs))]
    if chosen:
        about.append(("sizes", ", ".join(f"{name} = {size}" for name, size in chosen.items())))
    about.append(("levels with code", ", ".join(manifest["levels"])))
    whole = None
    if trusted and timed:
        model = Model(path)
        given = [drawn(p.dtype.short, tuple(p.shape)) for p in inputs]
        whole = min(_seconds(model, given) for _ in range(RUNS))
    note = "the ops are those of the file: weights are folded, and ops written out, as it was exported"
    hints = zip(inputs, names)
    said = {p.hint: name for p, name in hints if p.hint}
    one = subject("the model", code, graph, said, notes=(note,))
    return Shown(title or path.name, tuple(about), (one,), whole=whole)


def _seconds(model: Model, given: list[np.ndarray]) -> float:
    start = perf_counter()
    model.run(*given)
    return perf_counter() - start


def _sizes(manifest: Mapping[str, Any], given: Mapping[str, int]) -> tuple[dict[str, int], dict[str, int]]:
    """What the symbols of a file's graph are, by their names and by those that its author gave them.

    Raises ArgumentError.
    """
    names = {label: (name, low) for name, label, low, _ in manifest.get("sizes", ())}
    if unknown := given.keys() - names.keys():
        known = ", ".join(names) if names else "none of its sizes can change"
        raise ArgumentError(f"show: the model has no size {', '.join(sorted(unknown))}", f"sizes: {known}")
    if not names:
        return {}, {}
    found = {name: given.get(label, low) for label, (name, low) in names.items()}
    sizes = Sizes(manifest)
    shapes = iter(sizes._shaped(found))
    arrays = []
    for _, _, shape in manifest["inputs"]:
        own = tuple(next(shapes) for _ in shape)
        arrays.append(np.broadcast_to(np.zeros((), np.float32), own))
    try:
        sizes.of(arrays)
    except ValueError as error:
        raise ArgumentError(f"show: {error}", "say others: --size NAME=NUMBER") from None
    return found, {label: found[name] for label, (name, _) in names.items()}
