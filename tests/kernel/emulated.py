"""Code for AArch64 on a machine of another kind: run_kernels.c and the kernels, under qemu's user emulation.

The emulation says what instructions compute.  It says nothing about time, nor of the order in which cores see
each other's stores: qemu keeps that of the machine that it runs on.
"""

import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from lamina.passes.llvm.binding import emit_position_independent
from lamina.passes.llvm.code import Code
from lamina.passes.llvm.elf import shared_object

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SYSTEM = Path("/usr/aarch64-linux-gnu")  # its C library
MISSING = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
SOURCE = Path(__file__).with_name("run_kernels.c")


def build(path: Path, *sources: str | Path) -> Path:
    """A program for AArch64 of C files and objects."""
    command = [
        COMPILER,
        "-O1",
        "-Wall",
        "-Werror",
        "-no-pie",
        "-rdynamic",
        *sources,
        "-o",
        path,
        "-ldl",
        "-lm",
    ]
    subprocess.run([*command, "-lpthread"], check=True)
    return path


def command(program: Path, *arguments: str | Path) -> list[str | Path]:
    return [EMULATOR, "-L", SYSTEM, program, *arguments]


class Emulator:
    """A running program that runs kernels.  `program` has some linked in; others it loads."""

    def __init__(self, program: Path | None = None):
        self._folder = tempfile.TemporaryDirectory(prefix="lamina-emulated-")
        self.folder = Path(self._folder.name)
        self._program, self._count = program or build(self.folder / "run_kernels", SOURCE), 0
        self._libraries: dict[str, Path] = {}
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            command(self._program), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1 << 16
        )

    def __enter__(self) -> "Emulator":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._folder.cleanup()

    def library(self, code: Code, target) -> Path:
        """The shared object of a code, made without a linker."""
        path = self._libraries.get(code.text)
        if path is None:
            path = self._libraries[code.text] = self.folder / f"kernel{len(self._libraries)}.so"
            data = emit_position_independent([*code.beside, code.text], target)
            path.write_bytes(shared_object(data, {phase.symbol for phase in code.phases}, path.name))
        return path

    def __call__(self, code: Code, arrays: list[np.ndarray], library="") -> bool:
        """Run the phases on the arrays, written in place; whether memory around them is as it was."""
        first = [next(k for k, one in enumerate(arrays) if one is array) for array in arrays]
        own = [array for k, array in enumerate(arrays) if first[k] == k]
        sizes = [
            a.nbytes if at == k else -1 - at for k, (a, at) in enumerate(zip(arrays, first, strict=True))
        ]
        words = [_text(str(library)), struct.pack(f"<{1 + len(arrays)}q", len(arrays), *sizes)]
        words += [array.tobytes() for array in own]
        symbols = code.symbols
        words.append(struct.pack(f"<{2 + len(symbols)}q", code.scratch, len(symbols), *symbols))
        words.append(struct.pack("<q", len(code.phases)))
        words += [
            _text(phase.symbol) + struct.pack("<2q", phase.units, phase.serial) for phase in code.phases
        ]
        self._process.stdin.write(b"".join(words))
        self._process.stdin.flush()
        (status,) = struct.unpack("<q", self._read(8, code))
        for array in own:
            array[...] = np.frombuffer(self._read(array.nbytes, code), array.dtype).reshape(array.shape)
        assert status >= 0, f"{code.kernel.name}: a phase's entry is missing"
        return bool(status)

    def _read(self, size: int, code: Code) -> bytes:
        data = self._process.stdout.read(size)
        if len(data) != size:
            status = self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._start()
            raise AssertionError(f"{code.kernel.name}: the emulated process ended with {status}")
        return data


def _text(text: str) -> bytes:
    data = os.fsencode(text)
    return struct.pack("<q", len(data)) + data
