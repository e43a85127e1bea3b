"""The one module that imports triton: Triton source to machine code, without a GPU and without torch.

Triton 3.6 and 3.9 were tried.  Importing this costs 150 ms, and Triton can abort the process it runs in
where its C++ asserts: so programs are compiled by helper.py, in processes of their own.
"""

from __future__ import annotations

import hashlib
import linecache
import tempfile
import types

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas_version
from triton.compiler import ASTSource, CompilationError

from ...ir.errors import KernelError
from ...ir.locks import fork_safe_lock
from . import ptx
from .binary import Binary
from .code import ALIGNMENT, Code
from .target import Target

# As on the CPU: products and sums round once (the default differs between versions), and libdevice's
# functions keep subnormal numbers.
ARITHMETIC = {"enable_fp_fusion": True, "enable_reflect_ftz": False}
TEXTS = {"cuda": ("cubin", "ptx"), "hip": ("hsaco", "amdgcn")}  # Triton's names of the code and of its text

_settings = fork_safe_lock()  # Triton's are of the process


def build(source: str, name: str) -> triton.JITFunction:
    """The function `name` of a module of generated source.

    Triton reads a function's source through linecache: an entry without a modification time stands for the
    file.
    """
    path = _path(source, name)
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    module = types.ModuleType(path)
    module.__file__ = path
    exec(compile(source, path, "exec"), module.__dict__)
    return module.__dict__[name]


def _path(source: str, name: str) -> str:
    return f"<lamina-triton-{name}-{hashlib.sha256(source.encode()).hexdigest()[:16]}>"


def begin_sooner() -> None:
    """For a process that does nothing else: spare it 300 ms in which Triton hashes all its libraries.

    It does so for keys in its cache on disk, which is not used here.
    """
    triton.runtime.cache.triton_key = lambda: triton.__version__


def compile_code(code: Code, target: Target) -> Binary:
    """The machine code of one kernel.

    Raises KernelError for source that Triton refuses, for a kernel that needs more shared memory than a block
    can have, and where this process can't compile since Triton interprets in it.
    """
    try:
        function = build(code.source, code.name)
        _refuse_interpreter(function, code)
        signature = dict(zip(function.arg_names, code.parameters, strict=True))
        steps = (ALIGNMENT if kind[0] == "*" else code.step for kind in code.parameters)
        aligned = {
            (k,): [["tt.divisibility", step]]
            for k, (is_aligned, step) in enumerate(zip(code.aligned, steps, strict=True))
            if is_aligned
        }
        source = ASTSource(function, signature, {}, aligned)
        options = {"num_warps": code.num_warps, "num_stages": code.num_stages}
        made = _compiled(source, target, options | ARITHMETIC)
    except KernelError:
        raise
    except Exception as error:  # Triton's own kinds, and whatever its passes raise
        raise _refusal(error, code, target) from None
    finally:
        linecache.cache.pop(_path(code.source, code.name), None)
    binary = _binary(made, target)
    if binary.shared > target.shared:
        raise KernelError(
            f"{code.name} needs {binary.shared} bytes of shared memory: a block of {target.name} has "
            f"{target.shared}",
            "smaller tiles, or a smaller num_stages, need less",
        )
    return binary


def _compiled(source: ASTSource, target: Target, options: dict):
    """Triton's result.  Its cache on disk, which can't be turned off, is in a folder that is removed."""
    with (
        _settings,
        tempfile.TemporaryDirectory(prefix="lamina-triton-") as folder,
        triton.knobs.cache.scope(),
        triton.knobs.runtime.scope(),
    ):
        triton.knobs.cache.dir = folder
        triton.knobs.runtime.add_stages_inspection_hook = _with_mended_ptx
        # the target is given, so that no driver is looked for: the search would import torch where it is
        # installed
        gpu = GPUTarget(target.backend, target.architecture, target.warp)
        return triton.compile(source, target=gpu, options=options)


def _with_mended_ptx(backend=None, stages=None, options=None, language=None, capability=None):
    """Triton's hook: given its stages it changes them, and given nothing it answers with parts of a key."""
    if stages is None:
        return "lamina", str(ptx.SOUND)
    if "ptx" in stages and not ptx.is_sound(get_ptxas_version(backend.target.arch)):
        make = stages["ptx"]
        stages["ptx"] = lambda source, metadata: ptx.without_pairs(make(source, metadata))
    return None


def _binary(made, target: Target) -> Binary:
    metadata = made.metadata
    code, text = TEXTS[target.backend]
    return Binary(
        metadata.name,
        made.asm[code],
        made.asm[text],
        metadata.num_warps,
        getattr(metadata, "num_ctas", 1),  # the rest is not there for every backend and version: then none
        metadata.shared,
        _scratch(metadata, "global_scratch"),
        _scratch(metadata, "profile_scratch"),
        target.name,
    )


def _scratch(metadata, name: str) -> tuple[int, int]:
    """(bytes, alignment)"""
    return getattr(metadata, f"{name}_size", 0) or 0, getattr(metadata, f"{name}_align", 1) or 1


# ---- refusals
def _refuse_interpreter(function: object, code: Code) -> None:
    # its own library is decorated when triton is imported, the kernel just now: either may be interpreted
    if not (isinstance(function, triton.JITFunction) and isinstance(tl.cdiv, triton.JITFunction)):
        raise KernelError(
            f"{code.name} can't be compiled in a process whose Triton interprets",
            "TRITON_INTERPRET was set when triton was imported",
            "compile in another process, without it",
        )


def _refusal(error: Exception, code: Code, target: Target) -> KernelError:
    """What Triton raised, with the line of the kernel's source."""
    chain: list[BaseException] = [error]  # outer ones say only that a call failed
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    places = [line for each in chain if (line := _line(each, code)) is not None]
    details = [f"line {line}: {code.source.splitlines()[line - 1].strip()}" for line in places[-1:]]
    message = getattr(chain[-1], "error_message", None) or str(chain[-1]) or type(chain[-1]).__name__
    details += [line.rstrip() for line in message.splitlines() if line.strip()]
    return KernelError(f"{code.name}: Triton {triton.__version__} refuses it for {target.name}", *details)


def _line(error: BaseException, code: Code) -> int | None:
    """The line of the source that an error is about, from 1 on."""
    if isinstance(error, SyntaxError):
        return error.lineno
    if not isinstance(error, CompilationError):
        return None
    # Triton counts from the function's first line
    before, function, _ = code.source.partition(error.src or code.source)
    inside = getattr(error.node, "lineno", None)
    return before.count("\n") + inside if inside and function else None
