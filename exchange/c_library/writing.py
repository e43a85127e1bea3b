"""Write a function as a C library: a shared object, its header, and weights inside of it or beside."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...ir.errors import ArgumentError
from ...ir.graph import Graph
from ...ir.own_files import is_replaceable, replacing
from ...ir.table import as_params
from ...jit.artifact import (
    LEVELS,
    ExportError,
    Sizes,
    code_of_program,
    levels_here,
    programs,
    weights_of,
)
from ...jit.dynamic import labels
from ...jit.export import captured, frozen, levels_of, noise_of
from ...passes.llvm import pool
from ...passes.llvm.binding import emit_position_independent
from ...passes.llvm.elf import shared_object, undefined
from ...passes.pipeline import optimise
from . import cpu_code, entry_code, header_text, level_code, load_code, thread_code
from .interface import Interface, interface_of, library_name, output_labels, output_leaves
from .trial import tried
from .weight_data import Weights, hash_of, packed

# Functions of the C library that code may call; what it calls besides is of libm.
OF_LIBC = {
    "malloc", "free", "memcpy", "memset", "memmove", "syscall", "sched_yield", "sched_getcpu", "getpid",
    "sigprocmask", "pthread_create", "pthread_join", "open", "lseek", "mmap", "munmap", "close",
}  # fmt: skip

MOST = (1 << 31) - (1 << 27)  # bytes of weights that code reaches, with itself between


def write(
    function: Callable,
    path: str | os.PathLike,
    *example: Any,
    levels: Sequence[str] | None = None,
    dynamic: Mapping[Any, Any] | None = None,
    name: str | None = None,
    header: str | os.PathLike | None = None,
    weights: str | os.PathLike | None = None,
) -> None:
    """Write what `function` does on arguments of these kinds as a C library and its header.

    function, example, levels, dynamic: as of jit.export; levels are of one kind of processor.  name: what
    the library's symbols begin with, the file's stem unless given, without `lib`.  header: its path, the
    library's with `.h` unless given.  weights: the path of a file for them; they are in the library itself
    unless given.

    The library is loaded by a fresh process and gives the function's results, on each level that this
    machine runs, before a file appears under its name.  Code for other machines is written untried.

    Raises ExportError for a function that jit.export refuses, for arrays that are made of sizes that change,
    and where the library's results are not the function's; ArgumentError for a name that C does not take,
    and levels of several kinds.
    """
    chosen = _levels(levels)
    path = os.fspath(path)
    header = str(Path(os.fsdecode(path)).with_suffix(".h")) if header is None else os.fspath(header)
    own = library_name(name, Path(os.fsdecode(path)).stem)
    files = [os.fsdecode(each) for each in (path, header, weights) if each is not None]
    if len({os.path.realpath(each) for each in files}) < len(files):
        raise ArgumentError(f"export: the library, its header and its weights are files apart: {files}")
    for each in files:
        if not is_replaceable(each):
            raise ExportError(f"export: {each} is a folder, a pipe or a device", "name a file")
    found = captured(function, path, example, dynamic)
    with found.known():
        unfused, arrays = frozen(found.graph, found.recording, found.call)
        graph = optimise(unfused)
        count = len(found.arrays)
        outs = output_labels(found.outputs)
        interface = interface_of(
            own,
            list(zip(labels(function, example), graph.params[:count], strict=True)),
            [(outs.get(n, f"output{n}"), value) for n, value in enumerate(graph.results)],
            found.sizes,
            chosen,
            weights is not None,
        )
        made = _Made.of(graph, arrays, interface, found.sizes)
    name_of_file = os.path.basename(os.fsdecode(path))
    tries = [(found.arrays, found.expected), *found.others()]
    leaves, beside = output_leaves(found.outputs), made.weights if weights is not None else None
    here, noise = levels_here(), noise_of(graph)
    usable = [level for level in interface.levels if level in here]
    for alone in usable if len(interface.levels) > 1 else ():
        tried(interface, made.library((alone,), name_of_file), beside, tries, leaves, alone, noise)
    library = made.library(interface.levels, name_of_file)
    if usable:
        tried(interface, library, beside, tries, leaves, usable[0], noise)
    written = {path: library, header: header_text.text(interface).encode()}
    if weights is not None:
        written[os.fspath(weights)] = made.weights
    with ExitStack() as all_of_them:  # each takes its place when all are written, so that they go together
        for each, data in written.items():
            all_of_them.enter_context(replacing(each)).write(data)


def _levels(levels: Sequence[str] | None) -> tuple[str, ...]:
    """The levels, the best first.  Raises ArgumentError."""
    chosen = levels_of(levels)
    if len({LEVELS[level].platform.machine for level in chosen}) > 1:
        raise ArgumentError(
            f"export(levels): a library is for one kind of processor, and {', '.join(chosen)} are of two",
            "write one for each",
        )
    return tuple(level for level in LEVELS if level in chosen)


@dataclass(frozen=True)
class _Made:
    """The code of all levels, and the weights of them all."""

    interface: Interface
    objects: Mapping[str, bytes]
    weights: bytes

    @property
    def beside(self) -> bool:
        return self.interface.beside

    @classmethod
    def of(
        cls, graph: Graph, arrays: Mapping[str, np.ndarray], interface: Interface, sizes: Sizes | None
    ) -> _Made:
        """Compile a graph of inputs and weights.  Raises ExportError."""
        _, tables = as_params(graph)
        if tables:
            raise ExportError(
                f"export: {tables[0].attrs['name']} makes an array of sizes that change, which Python does",
                "resize to a size that is a number, or write a .lam file",
            )
        weights = Weights()
        objects = {
            level: _object(level, graph, list(arrays.values()), weights, interface, sizes)
            for level in interface.levels
        }
        data = weights.data()
        if interface.beside and not data:
            raise ExportError("export(weights): the model has none", "leave the argument out")
        if not interface.beside and len(data) > MOST:
            raise ExportError(
                f"export: code does not reach {len(data):,} bytes of weights in its own file",
                'write them to a file beside: weights="model.weights"',
            )
        return cls(interface, objects, data)

    def library(self, levels: tuple[str, ...], name: str) -> bytes:
        """The shared object, with these levels."""
        interface = replace(self.interface, levels=levels)
        target = LEVELS[levels[0]]
        base = replace(target, cpu="x86-64") if target.platform.machine == "x86_64" else target
        texts = [
            pool.text(target.platform),
            thread_code.text(interface, target.platform),
            cpu_code.text(levels),
            entry_code.text(interface, bool(self.weights)),
        ]
        if self.beside:
            texts.append(load_code.text(interface, len(self.weights), hash_of(self.weights)))
        objects = [emit_position_independent(texts, base), *(self.objects[level] for level in levels)]
        mathematics = set().union(*map(undefined, objects[1:])) - OF_LIBC
        needed = ("libm.so.6", "libc.so.6") if mathematics else ("libc.so.6",)
        blobs = {entry_code.WEIGHTS: self.weights} if self.weights and not self.beside else {}
        functions = cpu_code.functions(levels)
        return shared_object(objects, entry_code.exports(interface), name, needed, blobs, functions)


def _object(
    level: str,
    graph: Graph,
    arrays: Sequence[np.ndarray],
    weights: Weights,
    interface: Interface,
    sizes: Sizes | None,
) -> bytes:
    """The code of one level; what it reads is placed among the weights."""
    target, count = LEVELS[level], len(interface.inputs)
    program, first, main = programs(graph, count, target)
    before, kept = weights_of(program, first, main, count)
    code = code_of_program(main, target, level_code.entry_prefix(level), sizes)
    code_of_program(first, target, "lamina_prologue", None)  # refused as the rest is
    ready = [*(arrays[at] for at in kept), *packed(first, [arrays[at] for at in before])]
    read = {array for step in main.steps for array in step.inputs} | {*main.results}
    params = [
        weights.place(array) if param in read else 0
        for array, param in zip(ready, main.params[count:], strict=True)
    ]
    constants = [weights.place(array) for array in code.variants[0][0].constants]
    texts = dict.fromkeys(text for each, _ in code.variants for text in each.texts)
    texts[level_code.text(level, code, interface, params, constants)] = None
    return emit_position_independent(texts, target)
