"""Which Triton would compile, as a text for keys: found without importing it, which takes 150 ms."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ...ir.lazy import MissingLibraryError
from .target import Target

# How the variables begin that Triton and the LLVM in it read; all of them may change what is compiled.
_READ = ("TRITON_", "MLIR_", "LLVM_", "AMDGCN_", "NVPTX_", "PTXAS_", "DISABLE_LLVM_OPT", "DISABLE_PTXAS_OPT")
# But for these: the helpers don't interpret, and Triton's own cache isn't used.
IGNORED = ("TRITON_INTERPRET", "TRITON_CACHE_DIR", "TRITON_HOME")
_ASSEMBLERS = {"TRITON_PTXAS_PATH": "ptxas", "TRITON_PTXAS_BLACKWELL_PATH": "ptxas-blackwell"}


def identity(target: Target) -> str:
    """All that decides what some source is compiled to, beside the source and the target.

    Triton's version and build, the versions of its assemblers (AMD's is a library of Triton's, and what it
    links), and the environment variables it reads.
    Raises MissingLibraryError where there is no Triton.
    """
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        raise MissingLibraryError(
            f"compiling for {target.name} takes triton, which is not installed", "pip install 'lamina[gpu]'"
        )
    root = str(Path(spec.origin).parent)
    parts = [_build(root)]
    if target.backend == "cuda":
        own = os.path.join(root, "backends", "nvidia", "bin")
        parts += [
            _assembler(os.environ.get(name) or os.path.join(own, tool)) for name, tool in _ASSEMBLERS.items()
        ]
    else:
        parts.append(_sizes(os.path.join(root, "backends", "amd", "lib"), "*"))
    return "\n".join([*parts, *settings()])


def settings() -> tuple[str, ...]:
    """The environment variables that Triton reads and that may change what is compiled: NAME=value."""
    found = (item for item in os.environ.items() if item[0].startswith(_READ) and item[0] not in IGNORED)
    return tuple(sorted(f"{name}={value}" for name, value in found))


@cache
def _build(root: str) -> str:
    """Triton's version, and the size of its library, in which builds of one version differ."""
    found = re.search(r"^__version__ = ['\"](.+)['\"]", Path(root, "__init__.py").read_text(), re.MULTILINE)
    version = "triton " + (found[1] if found else "of no version")
    return f"{version}\n{_sizes(os.path.join(root, '_C'), 'libtriton*.so')}"


@cache
def _sizes(folder: str, pattern: str) -> str:
    return "\n".join(sorted(f"{path.name} {path.stat().st_size}" for path in Path(folder).glob(pattern)))


@cache
def _assembler(path: str) -> str:
    """What a ptxas says of itself; 4 ms, once."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace")
    except OSError:
        return f"no {path}"
    return done.stdout
