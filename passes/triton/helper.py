"""A process that compiles beside the one that wants code: codes in, binaries out, until the input ends.

Run as a file, it imports Triton and the few modules of Lamina that know how to call it; Triton can't harm the
other process there, and one that is killed loses nothing.  Strings have their length of 8 bytes in front:
first JSON of where modules are found and of the folder for temporary files; then for each job the target's
name and the code's JSON as two packed pieces, answered by "made" and the packed binary, or by "refused" and
the JSON of why.
"""

import importlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import types
from pathlib import Path

IDLE = 60.0  # seconds without a job after which it ends by itself
PACKAGES = ("lamina", "lamina.ir", "lamina.passes", "lamina.passes.triton")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the other process to act on
    answer = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Triton prints what ptxas refuses
    first = _read(0)
    if first is None:
        return
    settings = json.loads(first)
    sys.path[:] = settings["path"]
    tempfile.tempdir = settings["folder"]
    try:
        _serve(answer)
    finally:
        shutil.rmtree(settings["folder"], ignore_errors=True)


def _serve(answer: int) -> None:
    _only_what_is_needed()
    cache = importlib.import_module("lamina.passes.cache")
    code = importlib.import_module("lamina.passes.triton.code")
    compiler = importlib.import_module("lamina.passes.triton.compiler")
    errors = importlib.import_module("lamina.ir.errors")
    target = importlib.import_module("lamina.passes.triton.target")
    compiler.begin_sooner()
    while select.select([0], [], [], IDLE)[0] and (job := _read(0)) is not None:
        name, text = cache.unpack(job)
        try:
            made = compiler.compile_code(code.Code.from_json(text), target.Target.named(name.decode()))
            _write(answer, cache.pack(b"made", made.packed()))
        except errors.KernelError as error:
            _write(answer, cache.pack(b"refused", json.dumps([error.rule, *error.details]).encode()))


def _only_what_is_needed() -> None:
    """Stand in for the packages, whose own modules would import all of Lamina: 400 ms, and NumPy."""
    root = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package


def _read(handle: int) -> bytes | None:
    """The next string, or None where the input has ended."""
    head = _exactly(handle, 8)
    return None if head is None else _exactly(handle, int.from_bytes(head, "little"))


def _exactly(handle: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = os.read(handle, min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def _write(handle: int, data: bytes) -> None:
    left = memoryview(len(data).to_bytes(8, "little") + data)
    while left:
        left = left[os.write(handle, left) :]


if __name__ == "__main__":
    main()
