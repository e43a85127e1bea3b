"""Launches on the fake driver run what the kernels' forms say, compiled for the CPU, on the fake's memory.

A hundred times as quick as Triton's interpreter, for whole programs: it shows that these launch the right
kernels on the right memory in the right order.  That a kernel's source does what its form says is shown
elsewhere, a kernel at a time.  Attention, which has no form, is what its record's reference says.

For processes with a cache of their own: of what another process generated the forms are not known.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from math import prod

import numpy as np
from fake_cuda import Launch

from lamina.ir.kernel import NUMPY, Kernel
from lamina.ir.kernel.form import Buffer
from lamina.passes.llvm.binding import Compiled
from lamina.passes.programs.program import Array, Whole
from lamina.passes.triton import generate, launches
from lamina.passes.triton.code import Code

_forms: dict[tuple, Kernel | Whole] = {}  # by name, numbers and grid of the code
compiled = cache(Compiled)


def note_forms() -> None:
    """From now on, remember the kernel of each code that is generated."""

    def noting(make: Callable[..., Code]) -> Callable[..., Code]:
        def making(form: Kernel | Whole, *how: object, **more: object) -> Code:
            code = make(form, *how, **more)
            _forms[code.name, code.numbers, code.grid] = form
            return code

        return making

    generate._generate = noting(generate._generate)
    launches.attention_code = noting(launches.attention_code)


def runs(
    launch: Launch, arguments: Sequence[int], pointers: int, blocks: Sequence[tuple[int, int]],
    touched: Callable[[np.ndarray, int, bool], None] | None = None,
) -> bool:  # fmt: skip
    """Run a launch's form on its arguments, the first of which are addresses; whether there is one.

    blocks: address and size of the memory that the launch may touch.  touched: told what it reads and writes.
    """
    form = _forms.get((launch.name, tuple(arguments[pointers:]), launch.grid[0]))
    if form is None:
        return False
    inputs = [x for x in form.inputs if x is not None]
    count = len(inputs)
    arrays = [
        _array(at, buffer, blocks)
        for at, buffer in zip(arguments[:pointers], (*inputs, *form.outputs), strict=True)
    ]
    for k, array in enumerate(arrays if touched is not None else ()):
        places = np.array(array.ctypes.data, np.int64)
        for n, by in zip(array.shape, array.strides, strict=True):
            places = np.add.outer(places, np.arange(n) * by)
        touched(places.astype(np.uint64).ravel(), array.itemsize, k >= count)
    if isinstance(form, Whole):
        given = iter(arrays)
        made = form.op.reference(*[x and next(given) for x in form.inputs], **form.attrs)
        for target, result in zip(given, made if isinstance(made, tuple) else (made,), strict=True):
            target[...] = result
        return True
    inplace = {buffer.inplace for buffer in form.outputs}
    for k, buffer in enumerate(form.inputs):
        # a program may write where it has read; native code, which divides work otherwise, may not
        if buffer.name not in inplace and any(np.may_share_memory(arrays[k], out) for out in arrays[count:]):
            arrays[k] = _array(at=arguments[k], buffer=buffer, blocks=blocks, apart=True)
    compiled(form)(*arrays)
    return True


def _array(
    at: int, buffer: Buffer | Array, blocks: Sequence[tuple[int, int]], apart: bool = False
) -> np.ndarray:
    """The elements of a buffer that begins at an address of the fake's memory; a copy of them, if `apart`."""
    dtype = np.dtype(NUMPY[buffer.dtype])
    shape = tuple(map(int, buffer.shape))
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    if isinstance(buffer, Buffer):
        strides = [*map(int, buffer.strides)]
    assert min(strides, default=0) >= 0, f"{buffer} goes backwards"
    reach = 0 if 0 in shape else 1 + sum((n - 1) * by for n, by in zip(shape, strides, strict=True))
    end = at + reach * dtype.itemsize
    if reach and not any(start <= at and end <= start + size for start, size in blocks):
        raise AssertionError(f"{buffer} lies at {at:#x} to {end:#x}, outside of what is allocated")
    line = np.frombuffer((ctypes.c_char * (end - at)).from_address(at), dtype)
    line = line.copy() if apart else line
    return np.lib.stride_tricks.as_strided(line, shape, [by * dtype.itemsize for by in strides])
