"""Files of exported models: damaged ones, and those whose author fixed every hash and length.

Native code is never mutated with its hash made to fit: it is code, and those who load it trust it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import tempfile
import weakref
import zipfile
from pathlib import Path
from typing import Any

import mutations
import numpy as np
from driver import Kind, Wrong, kind
from model_archive import joined, signed, split

import lamina
from lamina import jit, nn
from lamina.ir.dtypes import bfloat16
from lamina.ir.interpret import interpret
from lamina.ir.specialise import specialise
from lamina.ir.text import parse
from lamina.jit import ModelError, lamina_model, loaded
from lamina.jit.lamina_model import Model, read, tensors
from lamina.passes import cache

LEVEL = ["x86-64-v2"]
MOST = 1 << 26  # bytes that a file may ask for here
COMPILED = 25  # one of so many authored graphs is compiled, and compared with the interpreter
LARGEST = 1e6  # of weights that results are compared for


def _models() -> list[tuple[Any, tuple, Any]]:
    """Functions, example arguments, and which of their sizes change."""
    lamina.manual_seed(0)
    linear = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    conv = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    ).eval()
    scale = lamina.tensor([2.0, 3.0]).bfloat16()

    def structured(k, x, flags):
        return {"picked": x[k], "rest": [(x * scale).sum(-1), ("text", 3, None)], "any": flags.any()}

    x = lamina.ones(5, 2).bfloat16()

    def grown(x, y):
        wide = nn.functional.interpolate(y[None], scale_factor=2, mode="linear")
        return (x.reshape(-1, 2, 6) @ y).softmax(0), lamina.cat([x, x[1:]]).cumsum(0), wide

    sizes = {0: {0: "n"}, 1: {1: ("m", 1, 64)}}
    return [
        (linear, (lamina.ones(2, 6),), None),
        (conv, (lamina.ones(1, 2, 4, 4),), None),
        (structured, (lamina.tensor([0, 3]), x, lamina.tensor([True, False])), None),
        (grown, (lamina.ones(4, 6), lamina.ones(6, 5)), sizes),
    ]


@functools.cache
def _seeds() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, (model, example, sizes) in enumerate(_models()):
            path = Path(folder, f"{number}.lam")
            jit.export(model, path, *example, levels=LEVEL, dynamic=sizes)
            files.append(path.read_bytes())
    return files


class _File:
    """A file in memory that is written anew for each input, and its path."""

    def __init__(self) -> None:
        self.handle = os.memfd_create("hostile")
        weakref.finalize(self, os.close, self.handle)
        self.path = Path(f"/proc/self/fd/{self.handle}")

    def hold(self, data: bytes) -> Path:
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, data, 0)
        return self.path


@kind("lam")
def damaged_models() -> Kind:
    """Whatever damage does, a file is refused, or is the model that was exported, member by member."""
    seeds = _seeds()
    members, file = [split(data) for data in seeds], _File()

    def make(rng: random.Random) -> tuple[bytes, int]:
        number = rng.randrange(len(seeds))
        if rng.random() < 0.6:
            return mutations.damaged(rng, seeds[number], seeds), number
        # in members, with an archive that fits them: only the model's own hashes can tell
        parts = dict(members[number])
        name = rng.choice([*parts])
        parts[name] = mutations.damaged(rng, parts[name], [other[name] for other in members])
        return joined(parts, seeds[number][-64:]), number

    def check(made: tuple[bytes, int]) -> str:
        data, number = made
        manifest, found = read(file.hold(data))
        whole = members[number]
        if found | {"manifest.json": whole["manifest.json"]} != whole:
            raise Wrong("a damaged file is read as another model")
        if manifest != json.loads(whole["manifest.json"]):
            raise Wrong("a damaged manifest is believed")
        return "same"

    return Kind(make=make, check=check, refusals=(ModelError,), memory=1 << 28, share=2000)


# ---- files that an author made -----------------------------------------------------------------------------
def _edited(rng: random.Random, text: bytes) -> bytes:
    """A graph's text with its lines or words changed, so that much of it stays a graph."""
    lines = text.decode().split("\n")
    for _ in range(rng.choice((1, 1, 2))):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        words = [*lines[at]]
        way = rng.randrange(5)
        if way == 0:
            lines[at], lines[other] = lines[other], lines[at]
        elif way == 1:
            lines.insert(at, lines[other])
        elif way == 2 and any(c.isdigit() for c in words):
            place = rng.choice([i for i, c in enumerate(words) if c.isdigit()])
            words[place] = rng.choice(("0", "1", "2", "3", "7", "64", str(1 << 20), str(1 << 40), "n"))
            lines[at] = "".join(words)
        elif way == 3:
            pairs = (
                ("relu", "exp"),
                ("f32", "f64"),
                ("f32", "i64"),
                ("sum", "amax"),
                ("True", "False"),
                ("%", "@"),
            )
            old, new = rng.choice(pairs)
            lines[at] = lines[at].replace(old, new)
        else:
            del lines[at]
            lines = lines or [""]
    return "\n".join(lines).encode()


def _authored(rng: random.Random, members: dict[str, bytes], others: list[dict[str, bytes]]) -> bytes:
    parts, manifest = dict(members), json.loads(members["manifest.json"])
    way = rng.randrange(8)
    if way < 2:
        manifest = mutations.altered(rng, manifest)
    elif way == 2:
        stored = parts["weights.safetensors"]
        length = int.from_bytes(stored[:8], "little")
        header = json.dumps(mutations.altered(rng, json.loads(stored[8 : 8 + length]))).encode()
        parts["weights.safetensors"] = len(header).to_bytes(8, "little") + header + stored[8 + length :]
    elif way == 3:
        parts["weights.safetensors"] = mutations.damaged(rng, parts["weights.safetensors"])
    elif way < 6:
        parts["graph.txt"] = _edited(rng, parts["graph.txt"])
    elif way == 6:
        parts["graph.txt"] = mutations.damaged(
            rng, parts["graph.txt"], [other["graph.txt"] for other in others]
        )
    else:
        name, other = rng.choice([*parts]), rng.choice(others)
        step = rng.randrange(4)
        if step == 0:
            parts.pop(name)
        elif step == 1:
            parts[rng.choice(("x86-64-v3.so", "json.py", "../x", "", name + "\0x", name.upper()))] = parts[
                name
            ]
        elif step == 2:
            parts["manifest.json"], manifest = other["manifest.json"], json.loads(other["manifest.json"])
        else:
            return signed(
                parts, manifest, rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
            )
    parts.setdefault("manifest.json", b"{}")
    return signed(parts, manifest)


def _stub(self: Any, arrays: Any) -> list[np.ndarray]:
    """In place of native code: arrays of what it says that it returns."""
    return [lamina_model.aligned(shape, dtype) for shape, dtype in self.results]


def _compare(model: loaded.Loaded, path: Path) -> None:
    """Raises Wrong where the compiled graph does not compute what its text says."""
    manifest, members = read(path)
    stored = {name: loaded._own(array) for name, array in tensors(members["weights.safetensors"]).items()}
    constants = {name.removeprefix("graph/"): array for name, array in stored.items()}
    graph = parse(members["graph.txt"].decode(), constants)
    if sizes := _sizes_of(manifest):
        with loaded.blamed(path):
            graph = loaded.checked(specialise(graph, sizes), MOST)
    tables = lamina_model.Sizes(manifest).tables(sizes, MOST) if sizes else []
    draw = np.random.default_rng(0)
    inputs = [
        draw.integers(0, 2, param.shape).astype(lamina_model.DTYPES[dtype])
        for (_, dtype, _), param in zip(model.inputs, graph.params, strict=False)
    ]
    inputs = [
        x.astype(np.float32).astype(bfloat16.numpy).view(np.uint16) if dtype == "bf16" else x
        for x, (_, dtype, _) in zip(inputs, model.inputs, strict=True)
    ]
    with np.errstate(all="ignore"):
        try:
            weights = [stored[name] for name in manifest["weights"]]
            wanted = interpret(graph, *map(loaded._own, inputs), *tables, *weights)
        except IndexError:  # an index that is out of range, which the compiled one refuses as well
            wanted = None
        try:
            found = model._run(*inputs)
        except IndexError:
            found = None
        except ValueError:
            if sizes:  # which this file does not take
                return
            raise
    if (wanted is None) != (found is None):
        raise Wrong("one of compiled and interpreted refuses an index")
    # Sums of numbers near the largest come to inf, -inf or nan by their order, or to what is left of them.
    floats = [
        w.astype(np.float64) for w in map(loaded._own, weights) if w.dtype.kind not in "biu"
    ]  # bfloat16 is of kind V
    moderate = all(np.abs(w[np.isfinite(w)]).max(initial=0) <= LARGEST for w in floats)
    leaves: list[tuple[int, Any]] = []

    def walk(tree: Any, value: Any) -> None:
        if isinstance(tree, int):
            leaves.append((tree, value))
        elif tree[0] == "dict":
            for key, inner in tree[1:]:
                walk(inner, value[key])
        elif tree[0] != "value":
            for inner, item in zip(tree[1:], value, strict=True):
                walk(inner, item)

    if found is not None:
        walk(manifest["outputs"], found)
    for at, value in leaves:
        a, b = np.asarray(loaded._own(value)), np.asarray(wanted[at])
        exact = a.dtype.kind in "biu"
        if not exact and not moderate and a.shape == b.shape:
            continue
        a, b = (a, b) if exact else (a.astype(np.float64), b.astype(np.float64))
        scale = max(np.abs(b[np.isfinite(b)]).max(initial=1.0) if not exact else 0, 1)
        if a.shape != b.shape or not (
            exact and (a == b).all() or np.allclose(a, b, 1e-2, 1e-2 * scale, True)
        ):
            raise Wrong("compiled and interpreted differ")


def _sizes_of(manifest: dict[str, Any]) -> dict[str, int]:
    """Sizes to try a file at whose sizes change."""
    return {name: 4 for name, *_ in manifest.get("sizes", ())}


def _run_native(path: Path) -> None:
    """Load a file, and call it where its formulas are only then evaluated.  Native code is stubbed."""
    model = Model(path, 1, max_bytes=MOST)
    if model.manifest["format"] != lamina_model.STATIC:
        shapes = [[n if isinstance(n, int) else 4 for n in shape] for _, _, shape in model.inputs]
        arrays = [
            np.zeros(shape, lamina_model.DTYPES[dtype])
            for (_, dtype, _), shape in zip(model.inputs, shapes, strict=True)
            if lamina_model.nbytes(dtype, shape) <= MOST
        ]
        with contextlib.suppress(ValueError, TypeError):  # sizes that it does not take
            model.run(*arrays)


@kind("lam-authored")
def authored_models() -> Kind:
    """What an author signs is refused, or fits wherever it is looked at; a graph does what it says."""
    members = [split(data) for data in _seeds()]
    file = _File()

    def make(rng: random.Random) -> tuple[bytes, bool]:
        return _authored(rng, rng.choice(members), members), rng.randrange(COMPILED) == 0

    def check(made: tuple[bytes, bool]) -> str:
        data, compiled = made
        cache._default = cache.Cache(None)
        lamina_model._Program.run = _stub
        path, said = file.hold(data), []
        for way in (lambda: _run_native(path), lambda: _understood(path, compiled)):
            try:
                way()
                said.append("taken")
            except ModelError:
                said.append("refused")
        return f"native {said[0]}, graph {said[1]}"

    def _understood(path: Path, compiled: bool) -> None:
        if compiled:
            _compare(loaded.Loaded(path, False, MOST), path)
        else:
            graph, manifest, _ = loaded.graph_of(path, MOST)
            if sizes := _sizes_of(manifest):
                with loaded.blamed(path):
                    loaded.checked(specialise(graph, sizes), MOST)

    return Kind(make=make, check=check, refusals=(ModelError,), batch=500, share=300)
