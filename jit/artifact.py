"""The file of an exported model: how it is written.  jit/lamina_model.py, which is part of it, reads it.

A stored zip archive, its members aligned to 64 bytes:

    lamina_model.py       the loader, for where NumPy is the only package
    manifest.json         inputs, outputs, weights, what each level's code needs, hashes
    graph.txt             the graph in its canonical text: inputs, then weights
    weights.safetensors   the weights, norms folded into them; constants of the programs
    x86-64-v4.so …        one shared library for each level of CPU, all kernels in it

The manifest holds the hashes of the other members; its own is the archive's comment.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..ir.errors import ArgumentError, KernelError
from ..ir.graph import Graph
from ..ir.kernel.text import parse as parse_kernel
from ..ir.own_files import replacing
from ..ir.version import __version__
from ..passes.llvm import pool
from ..passes.llvm.binding import emit_position_independent, host_target
from ..passes.llvm.elf import shared_object
from ..passes.llvm.link import Linked, Native, link
from ..passes.pipeline import Options, to_program
from ..passes.programs.host_parts import Check
from ..passes.programs.program import Program
from ..passes.programs.prologue import prologue
from ..passes.schedules.target import AVX2, AVX512, BASELINE, NEON, Target
from ..runtime.checkpoints.own_form import safetensors_bytes
from ..runtime.workers import MOST_GRAIN, SPIN
from .lamina_model import ARM, FORMAT
from .tuning import Tuned, with_schedules

LEVELS: dict[str, Target] = {"x86-64-v4": AVX512, "x86-64-v3": AVX2, "x86-64-v2": BASELINE, ARM: NEON}
LOADER = Path(__file__).with_name("lamina_model.py")
_ALIGN = 64
_POOL = {
    "size": pool.SIZE, "limit": pool.LIMIT, "alive": pool.ALIVE, "spin": pool.SPIN, "grain": pool.GRAIN,
    "wake": pool.WAKE, "launch": pool.LAUNCH, "spin_value": SPIN, "grain_value": MOST_GRAIN,
}  # fmt: skip


def own_levels() -> list[str]:
    """The levels of machines of this kind."""
    machine = host_target().platform.machine
    return [name for name, level in LEVELS.items() if level.platform.machine == machine]


def levels_here() -> list[str]:
    """The levels that this machine runs, the best first."""
    return [name for name in own_levels() if LEVELS[name].lanes <= host_target().lanes]


def write(
    file: IO[bytes],
    graph: Graph,
    weights: Mapping[str, np.ndarray],
    outputs: Any,
    levels: Sequence[str],
    tuned: Mapping[str, Sequence[Tuned]] = {},
) -> None:
    """Write a model's file.

    graph: its inputs are the first params, the weights, by name, the last; all have
    hints.  outputs: the structure of what it returns, as `lamina_model` reads it.  tuned: for levels, what a
    search for schedules came to.  Raises ArgumentError for a graph that needs more than native code.
    """
    count = len(graph.params) - len(weights)
    stored = dict(weights)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "lamina": __version__,
        "inputs": [[p.hint, p.dtype.short, p.shape] for p in graph.params[:count]],
        "outputs": outputs,
        "weights": list(weights),
        "levels": {},
    }  # fmt: skip
    members = {
        "lamina_model.py": LOADER.read_bytes(),
        "graph.txt": str(graph).encode(),
    }
    for level in levels:
        about, library, constants = _level(graph, count, level, tuned.get(level, ()))
        manifest["levels"][level] = about
        members[about["library"]] = library
        stored |= constants
    stored |= {f"graph/{name}": constant.data for name, constant in graph.constants.items()}
    members["weights.safetensors"] = safetensors_bytes(stored)
    manifest["sha256"] = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    members["manifest.json"] = json.dumps(manifest).encode()
    _write_archive(file, members)


def programs(graph: Graph, count: int, target: Target) -> tuple[Program, Program, Program]:
    """A model's program, of so many inputs; and its two parts, that of the weights alone and the rest."""
    frozen = frozenset(range(count, len(graph.params)))
    program = to_program(graph, (None,) * len(graph.results), target, Options(frozen=frozen))
    return program, *prologue(program, frozen)


def _level(
    graph: Graph, count: int, level: str, tuned: Sequence[Tuned]
) -> tuple[dict[str, Any], bytes, dict[str, np.ndarray]]:
    """What the manifest says of a level, its library, and its programs' constants."""
    target = LEVELS[level]
    program, before, main = programs(graph, count, target)
    parts = {"prologue": before, "main": with_schedules(main, tuned)}
    about: dict[str, Any] = {"library": f"{level}.so", "pool": _POOL}
    texts: dict[str, None] = {pool.text(target.platform): None}
    exports = ["lamina_pool_worker", "lamina_pool_launch"]
    constants = {}
    for name, part in parts.items():
        linked = link(part, target, f"lamina_{name}")
        texts |= dict.fromkeys(linked.texts)
        exports += linked.manifest.symbols
        names = [f"{level}/{name}/{n}" for n in range(len(linked.constants))]
        constants |= dict(zip(names, linked.constants, strict=True))
        about[name] = _about(linked) | {"constants": names}
    # The main program takes the inputs, those weights that it reads as they are, then the prologue's results.
    position = {array: n - count for n, array in enumerate(program.params) if n >= count}
    about["frozen"] = [position[a] for a in parts["prologue"].params]
    mine = parts["main"].params
    about["kept"] = [position[a] for a in mine if a in position]
    behind = mine[count + len(about["kept"]) :]
    if mine[:count] != program.params[:count] or not position.keys().isdisjoint(behind):
        raise KernelError(f"{program.name}: the prologue put the params into another order")
    data = emit_position_independent(texts, target)
    return about, shared_object(data, exports, f"{level}.so"), constants


def _about(linked: Linked) -> dict[str, Any]:
    manifest = linked.manifest
    for part in manifest.parts:
        if isinstance(part, Check):
            name = parse_kernel(part.text).name
            raise ArgumentError(
                f"export: {name} reads at indices that it computes on the way, which only Python can check",
                "compute the indices outside, and pass them as an argument",
            )
        if not isinstance(part, Native):
            (op,) = (line.split(" = ")[1].split("(")[0] for line in part.text.splitlines() if " = " in line)
            raise ArgumentError(
                f"export: {op} has no kernel, and an exported model runs native code alone",
                "leave it out of the traced function, and call it on the model's outputs",
            )
    return {
        "params": manifest.params,
        "results": manifest.results,
        "arena": manifest.arena,
        "entries": manifest.symbols,
    }


def write_loader(path: str | os.PathLike) -> Path:
    """Write the loader as a file of its own, and return where; into a folder, under its name.

    Its `load(path)` imports nothing out of a model's file, unlike a file that stands on `sys.path`.
    """
    path = Path(path)
    path = path / LOADER.name if path.is_dir() else path
    with replacing(os.fspath(path)) as file:
        file.write(LOADER.read_bytes())
    return path


def _write_archive(file: IO[bytes], members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = hashlib.sha256(members["manifest.json"]).hexdigest().encode()
        for name, data in members.items():
            about = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            about.external_attr = 0o644 << 16
            start = file.tell() + 30 + len(name.encode())
            pad = -start % _ALIGN
            if pad:  # an extra field has four bytes of its own
                pad += _ALIGN * (pad < 4)
                about.extra = b"\xff\xff" + (pad - 4).to_bytes(2, "little") + bytes(pad - 4)
            archive.writestr(about, data)
