"""Trying a C library: a fresh process loads it, as C would, and its results are the function's."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.kernel.types import NUMPY
from ...jit.artifact import ExportError
from ...jit.export import arrays_of, compare
from ...jit.repro import plain
from .interface import Interface

# Standard input: the inputs, the sizes, the library and its weights.  Their files have no names that others
# could change.
_SCRIPT = """
import ctypes, io, os, sys
import numpy as np
name = sys.argv[1]
given = np.load(io.BytesIO(sys.stdin.buffer.read()))
def file_of(data):
    handle = os.memfd_create(name)
    with os.fdopen(handle, "wb", closefd=False) as file:
        file.write(data.tobytes())
    return f"/proc/self/fd/{handle}"
library = ctypes.CDLL(file_of(given["library"]))
if "weights" in given:
    assert getattr(library, name + "_load")(os.fsencode(file_of(given["weights"]))) == 0
tell = getattr(library, name + "_error")
tell.restype = ctypes.c_char_p
tell_level = getattr(library, name + "_level")
tell_level.restype = ctypes.c_char_p
results = {"level": np.array(tell_level().decode())}
for case in range(int(given["cases"])):
    inputs = [given[f"{case}.{n}"] for n in range(int(given["inputs"]))]
    sizes = np.ascontiguousarray(given[f"{case}.sizes"])
    outputs = []
    for n, (dtype, rank) in enumerate(zip(given["dtypes"], given["ranks"])):
        shape = np.zeros(int(rank), np.int64)
        assert getattr(library, name + "_output_shape")(
            n, ctypes.c_void_p(sizes.ctypes.data), ctypes.c_void_p(shape.ctypes.data)
        ) == 0
        outputs.append(np.empty(shape, str(dtype)))
    pointers = [(ctypes.c_void_p * max(1, len(x)))(*(a.ctypes.data for a in x)) for x in (inputs, outputs)]
    code = getattr(library, name + "_run")(
        *pointers, ctypes.c_void_p(sizes.ctypes.data), None, ctypes.c_size_t(0)
    )
    if code:
        sys.exit(tell(code).decode())
    results |= {f"{case}.{n}": x for n, x in enumerate(outputs)}
found = io.BytesIO()
np.savez(found, **results)
sys.stdout.buffer.write(found.getvalue())
"""


def tried(
    interface: Interface,
    library: bytes,
    weights: bytes | None,
    tries: Sequence[tuple[Sequence[np.ndarray], Any]],
    leaves: Sequence[int],
    level: str,
    noise: float,
) -> None:
    """Run a library on arguments, and compare with what is expected.  Raises ExportError.

    weights: those that lie beside.  leaves: of what the function returns, which output each is.  level: on
    which it is to run.  noise: as of `compare`.
    """
    outputs = interface.outputs
    given: dict[str, Any] = {
        "library": np.frombuffer(library, np.uint8),
        "cases": len(tries),
        "inputs": len(interface.inputs),
        "dtypes": np.array([plain(np.empty(0, NUMPY[port.dtype])).dtype.str for port in outputs]),
        "ranks": np.array([len(port.shape) for port in outputs], np.int64),
    }
    if weights is not None:
        given["weights"] = np.frombuffer(weights, np.uint8)
    for case, (arrays, _) in enumerate(tries):
        given |= {f"{case}.{n}": plain(array) for n, array in enumerate(arrays)}
        given[f"{case}.sizes"] = np.array(_sizes(interface, arrays), np.int64)
    data = io.BytesIO()
    np.savez(data, **given)
    command = [sys.executable, "-c", _SCRIPT, interface.name]
    done = subprocess.run(command, input=data.getvalue(), capture_output=True, timeout=600)
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines()
        raise ExportError("export: the library does not run in a fresh process", *said[-3:])
    with np.load(io.BytesIO(done.stdout)) as got:
        if (found := str(got["level"])) != level:
            raise ExportError(f"export: the library runs as {found} where {level} is meant")
        for case, (_, expected) in enumerate(tries):
            results = [got[f"{case}.{n}"] for n in leaves]
            compare([plain(array) for array in arrays_of(expected)], results, noise)


def _sizes(interface: Interface, arrays: Sequence[np.ndarray]) -> list[int]:
    """The sizes of these inputs."""
    found: dict[str, int] = {}
    for port, array in zip(interface.inputs, arrays, strict=True):
        for dim, n in zip(port.shape, array.shape, strict=True):
            found.setdefault(str(dim), n)
    return [found[size.symbol] for size in interface.sizes]
