"""Run a kernel's Triton source in Triton's interpreter, on NumPy arrays.

For processes of their own: TRITON_INTERPRET counts when triton is imported, and then nothing compiles.
"""

import os
from collections.abc import Sequence

os.environ["TRITON_INTERPRET"] = "1"

import interpreter_faults
import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle
from watched_memory import watch

from lamina.passes.triton.code import Code
from lamina.passes.triton.compiler import build
from lamina.passes.triton.emit import lower
from lamina.passes.triton.generate import POINTERS, written
from lamina.passes.triton.names import entry
from lamina.passes.triton.opening import Open
from lamina.passes.triton.schedule import grid
from lamina.passes.triton.spelling import TYPES

interpreter_faults.repair()


def pointer(array: np.ndarray, dtype: str) -> tl.tensor:
    """A ready pointer value: the interpreter passes on what has no data_ptr, and writes land in the array."""
    kind = tl.pointer_type(getattr(tl, TYPES[dtype]))
    return tl.tensor(TensorHandle(np.array([array.ctypes.data], np.uint64), kind), kind)


def launch(kernel, schedule, arrays: dict[str, np.ndarray], opens: Open = Open.NOTHING) -> None:
    """Run a kernel's source on the memory of its buffers, and nowhere else: no lane of a tile that is larger
    than what it covers may read there either.
    """
    if opens is not Open.NOTHING:
        code = written(kernel, schedule, opens=opens)
        launch_code(code, [arrays[buffer.name] for buffer in kernel.buffers.values()])
        return
    watch(lambda: [(array.ctypes.data, array.nbytes) for array in arrays.values() if array.nbytes])
    _run(
        lower(kernel, schedule), entry(kernel.name), grid(kernel, schedule),
        [pointer(arrays[b.name], b.dtype) for b in kernel.buffers.values()],
    )  # fmt: skip


def launch_code(code: Code, arrays: Sequence[np.ndarray]) -> None:
    """Run a code on arrays, and nowhere else."""
    watch(lambda: [(array.ctypes.data, array.nbytes) for array in arrays if array.nbytes])
    names = {text: name for name, text in POINTERS.items()}
    pointers = [pointer(array, names[kind]) for array, kind in zip(arrays, code.parameters, strict=False)]
    assert len(pointers) + len(code.numbers) == len(code.parameters)
    _run(code.source, code.name, code.grid, [*pointers, *code.numbers])


def _run(source: str, name: str, programs: int, arguments: list) -> None:
    if programs:
        with np.errstate(all="ignore"):
            build(source, name)[(programs,)](*arguments)
