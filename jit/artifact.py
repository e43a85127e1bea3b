"""The file of an exported model: how it is written.  jit/lamina_model.py, which is part of it, reads it.

A stored zip archive, its members aligned to 64 bytes:

    lamina_model.py       the loader, for where NumPy is the only package
    manifest.json         inputs, outputs, weights, where nodes are from, what each level's code needs, hashes
    graph.txt             the graph in its canonical text: inputs, then weights
    weights.safetensors   the weights, norms folded into them; constants of the programs
    x86-64-v4.so …        one shared library for each level of CPU, all kernels in it
    sm_90.cubins …        one for each architecture of GPU: the cubin of each kernel, one behind the other

The manifest holds the hashes of the other members; its own is the archive's comment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..ir.dims import Condition, Dim, facts, hints, limits
from ..ir.errors import KernelError, LaminaError, Unsayable
from ..ir.graph import Graph
from ..ir.kernel.affine import Extent
from ..ir.kernel.text import parse as parse_kernel
from ..ir.own_files import replacing
from ..ir.placed import nodes_of
from ..ir.table import as_params
from ..ir.version import __version__
from ..ir.where import within
from ..nn import resizing
from ..passes.llvm import pool
from ..passes.llvm.binding import emit_position_independent, host_target
from ..passes.llvm.elf import shared_object
from ..passes.llvm.link import Linked, link
from ..passes.llvm.native_manifest import Native, NativeManifest
from ..passes.llvm.sized import Sized
from ..passes.pipeline import Options, to_program
from ..passes.programs.host_parts import Check, OnHost
from ..passes.programs.program import Program
from ..passes.programs.prologue import prologue
from ..passes.schedules.target import AVX2, AVX512, BASELINE, NEON, Target
from ..runtime.checkpoints.own_form import safetensors_bytes
from ..runtime.cuda import cubin, image
from ..runtime.workers import SPIN, USUAL_GRAIN
from .lamina_model import ARM, FORMAT, STATIC, WEIGHTS, WITH_GPUS, read, tensors
from .tuning import Tuned, with_schedules

LEVELS: dict[str, Target] = {"x86-64-v4": AVX512, "x86-64-v3": AVX2, "x86-64-v2": BASELINE, ARM: NEON}
MOST = 1 << 40  # of a size of which nothing else is said
LOADER = Path(__file__).with_name("lamina_model.py")
# What stands behind the loader in a file: it finds by name what the others define.
BEHIND = (
    *(Path(module.__file__) for module in (resizing, image, cubin)),
    LOADER.with_name("lamina_model_cuda.py"),
)
# Imports of each other, and of what the first text has done already.
_OF_OURS = re.compile(r"^from (?:__future__|\.[\w.]*) import (?:\([^)]*\)[^\n]*|[^(\n]*)\n", re.MULTILINE)
_ALIGN = 64
_POOL = {
    "size": pool.SIZE, "limit": pool.LIMIT, "alive": pool.ALIVE, "spin": pool.SPIN, "grain": pool.GRAIN,
    "wake": pool.WAKE, "launch": pool.LAUNCH, "spin_value": SPIN, "grain_value": USUAL_GRAIN,
}  # fmt: skip


class ExportError(LaminaError):
    """A traced function that no file can hold, or a file that does not compute what the function does."""


@dataclass(frozen=True)
class Range:
    """What the user calls a size, and between what it lies; is_said: whether the user said so."""

    name: str
    low: int = 1
    high: int = MOST
    is_said: bool = False

    def __str__(self) -> str:
        return f"{self.name} from {self.low} {'on' if self.high == MOST else f'to {self.high}'}"


@dataclass(frozen=True)
class Need:
    """A condition beside ranges.  words: the same for a reader, with the place that asked."""

    condition: Condition
    words: str


@dataclass
class Sizes:
    """The sizes of an exported model.

    ranges: by the names of symbols in the graph.  example: what they were.
    """

    ranges: dict[str, Range] = field(default_factory=dict)
    example: dict[str, int] = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)

    def words(self, dim: int | Dim) -> str:
        """A size as the user names it."""
        return re.sub(r"\bd\d+\b", lambda found: self.ranges[found[0]].name, str(dim))

    def fit(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes are among those that the model takes."""
        within = all(r.low <= sizes[name] <= r.high for name, r in self.ranges.items())
        return within and all(need.condition.holds(sizes) for need in self.needs)

    def others(self) -> Iterator[dict[str, int]]:
        """Other sizes than the example's, to try the file at: the least, and some that are larger."""
        least = {name: r.low for name, r in self.ranges.items()}
        larger = {
            name: min(n + 1 + at, self.ranges[name].high) for at, (name, n) in enumerate(self.example.items())
        }
        twice = {name: min(2 * n, self.ranges[name].high) for name, n in self.example.items()}
        for sizes in (least, larger, twice):
            if sizes != self.example and self.fit(sizes):
                yield sizes

    @contextmanager
    def known(self) -> Iterator[None]:
        """Programs of these symbols are made within this.

        All files' symbols lie between the same limits: proofs about kernels are kept by their texts.
        """
        needs = [need.condition for need in self.needs]
        ranges = {name: (said.low, said.high) for name, said in self.ranges.items()}
        with limits(dict.fromkeys(ranges, (1, MOST))), hints(self.example), facts(needs, ranges):
            yield


@dataclass(frozen=True)
class GpuCode:
    """What a file holds for one architecture.

    about: what its manifest says.  cubins: one behind the other.  constants: of its programs, by the names
    that the file's weights have them under.
    """

    about: dict[str, Any]
    cubins: bytes
    constants: Mapping[str, np.ndarray]


def gpus_in(path: Path) -> dict[str, GpuCode]:
    """The code for GPUs in a file, by architecture.  Raises ModelError."""
    manifest, members = read(path)
    stored = tensors(members[WEIGHTS])
    found = {}
    for name, about in manifest.get("gpus", {}).items():
        constants = {n: stored[n] for part in ("prologue", "main") for n in about[part]["constants"]}
        found[name] = GpuCode(about, members[about["cubins"]], constants)
    return found


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
    inputs: Sequence[str],
    weights: Mapping[str, np.ndarray],
    outputs: Any,
    levels: Sequence[str],
    tuned: Mapping[str, Sequence[Tuned]] = {},
    sizes: Sizes | None = None,
    gpus: Mapping[str, GpuCode] = {},
) -> None:
    """Write a model's file.

    graph: its inputs are the first params, the weights, by name, the last; all have hints.  inputs: what a
    reader knows them as.  outputs: the structure of what it returns, as `lamina_model` reads it.  tuned: for
    levels, what a search for schedules came to.  sizes: those that change, where there are such.  gpus: code
    for them, by architecture, where sizes don't change.  Raises ExportError for a graph that needs more than
    native code.
    """
    graph, tables = as_params(graph, len(graph.params) - len(weights))
    places, of_nodes = _places(graph)
    count = len(graph.params) - len(weights)  # with those that the loader makes of sizes
    stored = dict(weights)
    manifest: dict[str, Any] = {
        "format": FORMAT if sizes else WITH_GPUS if gpus else STATIC,
        "lamina": __version__,
        "inputs": [[n, p.dtype.short, _plain(p.shape)] for n, p in zip(inputs, graph.params)],
        "outputs": outputs,
        "weights": list(weights),
        "places": places,
        "nodes": of_nodes,
        "levels": {},
    }  # fmt: skip
    if sizes:
        manifest["sizes"] = [[name, r.name, r.low, r.high] for name, r in sizes.ranges.items()]
        manifest["tables"] = [
            [n.attrs["name"], _plain(n.attrs["args"]), n.attrs["dtype"].short, _plain(n.attrs["shape"])]
            for n in tables
        ]
        manifest["needs"] = [
            [str(need.condition.left), need.condition.relation, str(need.condition.right), need.words]
            for need in sizes.needs
        ]
    members = {
        "lamina_model.py": loader_text(),
        "graph.txt": str(graph).encode(),
    }
    for level in levels:
        about, library, constants = _level(graph, count, level, tuned.get(level, ()), sizes)
        manifest["levels"][level] = about
        members[about["library"]] = library
        stored |= constants
    if gpus:
        manifest["gpus"] = {name: code.about for name, code in gpus.items()}
    for code in gpus.values():
        members[code.about["cubins"]] = code.cubins
        stored |= code.constants
    stored |= {f"graph/{name}": constant.data for name, constant in graph.constants.items()}
    members["weights.safetensors"] = safetensors_bytes(stored)
    manifest["sha256"] = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    members["manifest.json"] = json.dumps(manifest).encode()
    _write_archive(file, members)


def _places(graph: Graph) -> tuple[list[tuple[str, int, str]], list[int]]:
    """Where nodes are from, each place once, and the number of its place for each node.

    A place is the file's own name, without the folders of who exports it, the line, and the modules.
    """
    known: dict[tuple[str, int, str], int] = {}
    found = []
    for node in nodes_of(graph):
        file, line = node.where or ("", 0)
        found.append(known.setdefault((os.path.basename(file), line, within(node.where)), len(known)))
    return list(known), found


def programs(graph: Graph, count: int, target: Target) -> tuple[Program, Program, Program]:
    """A model's program, of so many inputs; and its two parts, that of the weights alone and the rest."""
    frozen = frozenset(range(count, len(graph.params)))
    program = to_program(graph, (None,) * len(graph.results), target, Options(frozen=frozen))
    return program, *prologue(program, frozen)


def weights_of(program: Program, first: Program, main: Program, count: int) -> tuple[list[int], list[int]]:
    """Which weights, by number, the prologue takes, and which the main program takes as they are.

    The main program takes the inputs, those weights that it reads as they are, then the prologue's results.
    """
    position = {array: n - count for n, array in enumerate(program.params) if n >= count}
    kept = [position[a] for a in main.params if a in position]
    behind = main.params[count + len(kept) :]
    if main.params[:count] != program.params[:count] or not position.keys().isdisjoint(behind):
        raise KernelError(f"{program.name}: the prologue put the params into another order")
    return [position[a] for a in first.params], kept


def _level(
    graph: Graph, count: int, level: str, tuned: Sequence[Tuned], sizes: Sizes | None
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
        code = code_of_program(part, target, f"lamina_{name}", sizes if name == "main" else None)
        about[name] = _about(code)
        for each, _ in code.variants:
            texts |= dict.fromkeys(each.texts)
            exports += each.manifest.symbols
        data = code.variants[0][0].constants
        names = about[name]["constants"] = [f"{level}/{name}/{n}" for n in range(len(data))]
        constants |= dict(zip(names, data, strict=True))
    about["frozen"], about["kept"] = weights_of(program, before, parts["main"], count)
    data = emit_position_independent(texts, target)
    return about, shared_object(data, exports, f"{level}.so"), constants


@dataclass(frozen=True)
class ProgramCode:
    """A program as native code alone.

    variants: for open sizes several that serve all together, with each what it takes: extents, and what they
    must at least be; the last takes nothing.  offsets: names in their formulas, and what each is the greatest
    of; none where sizes are numbers.
    """

    variants: list[tuple[Linked, tuple[tuple[Extent, int], ...]]]
    offsets: Mapping[str, Sequence[Extent]] | None = None


def code_of_program(program: Program, target: Target, entry: str, sizes: Sizes | None) -> ProgramCode:
    """The code of a program, whose functions' names begin with `entry`.  Raises ExportError."""
    if sizes is None:
        found = ProgramCode([(link(program, target, entry), ())])
    else:
        sized = Sized(program, target)
        try:
            found = ProgramCode([*sized.variants(entry)], sized.plan.offsets)
        except Unsayable as error:
            raise ExportError(
                f"export(dynamic): {error.rule.partition(': ')[2]}, and a file's code serves all sizes",
                "leave that out of the traced function, or export without dynamic",
            ) from None
    need_native(found.variants[0][0].manifest)
    return found


def _about(code: ProgramCode) -> dict[str, Any]:
    """What the manifest says of a program."""
    manifest = code.variants[0][0].manifest
    about: dict[str, Any] = {
        "params": _kinds(manifest.params),
        "results": _kinds(manifest.results),
        "arena": _plain([manifest.arena])[0],
    }
    if code.offsets is None:
        return about | {"entries": manifest.symbols}
    about["offsets"] = [[name, _plain(ends)] for name, ends in code.offsets.items()]
    about["variants"] = [
        {
            "entries": each.manifest.symbols,
            "numbers": _plain(each.manifest.numbers),
            "least": [[str(extent), n] for extent, n in least],
        }
        for each, least in code.variants
    ]
    return about


def _plain(dims: Iterable[Any]) -> list[Any]:
    """Sizes, and other plain values, as JSON: a formula is its text."""
    return [str(n) if isinstance(n, Dim) else n for n in dims]


def _kinds(kinds: Iterable[tuple[str, tuple]]) -> list:
    return [[dtype, _plain(shape)] for dtype, shape in kinds]


def name_of_op(part: OnHost) -> str:
    """The op that a part of a program is, of which the host runs it."""
    (op,) = (line.split(" = ")[1].split("(")[0] for line in part.text.splitlines() if " = " in line)
    return op


def need_native(manifest: NativeManifest) -> None:
    """Raise ExportError for a program of which Python runs a part."""
    for part in manifest.parts:
        if isinstance(part, Check):
            name = parse_kernel(part.text).name
            raise ExportError(
                f"export: {name} reads at indices that it computes on the way, which only Python can check",
                "compute the indices outside, and pass them as an argument",
            )
        if not isinstance(part, Native):
            raise ExportError(
                f"export: {name_of_op(part)} has no kernel, and an exported model runs native code alone",
                "leave it out of the traced function, and call it on the model's outputs",
            )


def loader_text() -> bytes:
    """The loader as a module of its own, with what makes arrays of sizes and what runs on GPUs behind it."""
    behind = [_OF_OURS.sub("", path.read_text()) for path in BEHIND]
    return "\n\n".join([LOADER.read_text(), *behind]).encode()


def write_loader(path: str | os.PathLike) -> Path:
    """Write the loader as a file of its own, and return where; into a folder, under its name.

    Its `load(path)` imports nothing out of a model's file, unlike a file that stands on `sys.path`.
    """
    path = Path(path)
    path = path / LOADER.name if path.is_dir() else path
    with replacing(os.fspath(path)) as file:
        file.write(loader_text())
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
