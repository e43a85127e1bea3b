"""Writes what a stage of compilation got wrong as a script that shows it again.

    lamina-repro-<hash>/repro.py     the smallest graph, as text; run it, and it tells what differs
    lamina-repro-<hash>/inputs.npz   what the graph is run on

The folder is made in $LAMINA_REPRO_DIR, or where temporary files go.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from ..ir.dtypes import from_numpy_dtype
from ..ir.graph import Constant, Graph
from ..ir.text import parse
from ..passes.pipeline import Options
from .blame import Finding, functionalised, smallest
from .stages import Case, GraphPass, stage_named
from .targets import suited, target_of

VARIABLE = "LAMINA_REPRO_DIR"

SCRIPT = '''"""{title}

Run it as it stands: it tells what differs and ends with 1, or with 0 where nothing does.
"""

import sys
from pathlib import Path

from lamina.jit.repro import again

GRAPH = r"""
{graph}
"""

if __name__ == "__main__":
    inputs = Path(__file__).with_name("inputs.npz")
    sys.exit(again(GRAPH, inputs, stage={stage!r}, into={into!r}, frozen={frozen!r}, target={target!r}))
'''


def write(finding: Finding) -> Path | None:
    """Write the script; give its path, or None where the disk takes no file."""
    graph = finding.case.graph
    arrays = {f"param.{n}": a for n, a in enumerate(finding.case.arrays)}
    arrays |= {f"constant.{name}": c.data for name, c in graph.constants.items()}
    text = SCRIPT.format(
        title=finding.lines[0].replace("\\", "/").replace('"', "'"), graph=graph, stage=finding.by,
        into=finding.case.into, frozen=tuple(sorted(finding.case.frozen)), target=finding.case.target.name,
    )  # fmt: skip
    digest = blake2b(text.encode(), digest_size=6)
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).tobytes())
    folder = Path(os.environ.get(VARIABLE) or tempfile.gettempdir()) / f"lamina-repro-{digest.hexdigest()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.lstat().st_uid != os.getuid():
            return None  # its name can be told beforehand, and what is in it may be links
        np.savez(folder / "inputs.npz", **{name: plain(a) for name, a in arrays.items()})
        script = folder / "repro.py"
        script.write_text(text, encoding="utf-8")
    except OSError:
        return None
    return script


def again(
    text: str,
    inputs: Path,
    *,
    stage: str,
    into: Sequence[int | None],
    frozen: Sequence[int],
    target: str = "cpu",
) -> int:
    """Try a stage on a graph, and tell what differs.  Returns 1 if anything does, else 0."""
    with np.load(inputs) as file:
        kept = {name: file[name] for name in file.files}
    constants = {n.partition(".")[2]: a for n, a in kept.items() if n.startswith("constant.")}
    graph = parse(text, {n: _typed_constant(text, n, a) for n, a in constants.items()})
    arrays = tuple(_typed(kept[f"param.{n}"], p.dtype.numpy) for n, p in enumerate(graph.params))
    case = Case(graph, arrays, tuple(into), frozenset(frozen), target_of(target))
    print(graph)
    if stage == "pass functionalise":
        finding = functionalised(graph, arrays)
    else:
        tried = stage_named(stage, suited(Options(), case.target), case.target)
        fault = tried.fault(case)
        finding = None if fault is None else smallest(tried, case, fault)
        if isinstance(tried, GraphPass) and finding is not None:
            print("\n->\n", _after(tried, graph), sep="")
    if finding is None:
        print(f"\n{stage}: nothing differs")
        return 0
    print("", *finding.lines, sep="\n")
    return 1


def _after(stage: GraphPass, graph: Graph) -> str:
    try:
        return str(stage.step(graph))
    except Exception as error:  # what a wrong pass may raise is what is shown
        return f"{type(error).__name__}: {error}"


def plain(array: np.ndarray) -> np.ndarray:
    """The array as NumPy's own files can hold it: types that are not NumPy's own as their bits."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _typed(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return array if array.dtype == dtype else array.view(dtype)


def _typed_constant(text: str, name: str, array: np.ndarray) -> Constant:
    """A constant of the type that the graph's text says."""
    declared = next(line for line in text.splitlines() if line.strip().startswith(f"@{name} :"))
    if declared.partition(":")[2].strip().startswith("bf16"):
        array = array.view(np.dtype("bfloat16"))
    assert from_numpy_dtype(array.dtype) is not None, "it was a constant of a graph"
    return Constant(array, name)


__all__ = ["again", "write"]
