"""The one module that imports triton: Triton source to a cubin, without a GPU and without torch."""

from __future__ import annotations

import hashlib
import linecache
import types
from dataclasses import dataclass

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ...ir.kernel.form import Kernel
from .emit import lower
from .schedule import Schedule, default_schedule, grid

POINTERS = {"f64": "*fp64", "f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "bool": "*i1"}
POINTERS |= {
    "i64": "*i64",
    "i32": "*i32",
    "i16": "*i16",
    "i8": "*i8",
    "u8": "*u8",
    "u32": "*u32",
    "u64": "*u64",
}


@dataclass(frozen=True)
class Cubin:
    """Machine code for one GPU architecture, and what a launch of it needs.

    threads: of a block.  shared: bytes of shared memory.  grid: blocks.
    """

    name: str
    code: bytes
    ptx: str
    threads: int
    shared: int
    grid: int


def build(source: str, name: str) -> triton.JITFunction:
    """The function `name` of a module of generated source.

    Triton reads a function's source through linecache: an entry without a modification time stands for the
    file.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    path = f"<lamina-triton-{name}-{digest}>"
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    module = types.ModuleType(f"lamina_triton_{name}_{digest}")
    module.__file__ = path
    exec(compile(source, path, "exec"), module.__dict__)
    return module.__dict__[name]


def compile_kernel(kernel: Kernel, schedule: Schedule | None = None, architecture: int = 90) -> Cubin:
    """A cubin for sm_`architecture`.  The buffers are taken to be 16-byte aligned."""
    schedule = schedule or default_schedule(kernel)
    function = build(lower(kernel, schedule), kernel.name)
    signature = {f"{buffer.name}_ptr": POINTERS[buffer.dtype] for buffer in kernel.buffers.values()}
    aligned = {(k,): [["tt.divisibility", 16]] for k in range(len(signature))}
    binary = triton.compile(
        ASTSource(function, signature, {}, aligned),
        # the target is given, so that no driver is looked for: the search would import torch where it is
        # installed
        target=GPUTarget("cuda", architecture, 32),
        options={"num_warps": schedule.num_warps, "enable_fp_fusion": True},
    )
    return Cubin(
        binary.metadata.name,
        binary.asm["cubin"],
        binary.asm["ptx"],
        32 * binary.metadata.num_warps,
        binary.metadata.shared,
        grid(kernel, schedule),
    )
