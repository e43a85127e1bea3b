"""Copies between arrays that lie otherwise: one kernel for each number of dimensions, whatever the sizes."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np

from ...passes.triton.code import Code
from ...passes.triton.target import Target
from ..on_device import OnDevice
from ..triton_compiler import compiled
from .driver import Function
from .machine import Machine

ELEMENTS = 1024  # of one program
WORDS = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}  # what is moved in place of elements of so many bytes
NARROW = 1 << 31  # elements and distances that 32-bit numbers count


def copy_between(source: OnDevice, target: OnDevice) -> None:
    """Queue a copy of an array's elements over those of another of its shape and dtype; both on one device.

    They share no memory, or are the same.
    """
    at, size = source.memory.machine, source.itemsize
    if not source.size:
        return
    at.use()
    if source.flags.c_contiguous and target.flags.c_contiguous:
        if source.address != target.address:
            at.stream.copy(target.address, source.address, source.nbytes)
        return
    shape, steps, other = source.shape, source.strides, target.strides
    if size not in WORDS:  # a complex number of 16 bytes: its halves, side by side
        shape, steps, other, size = (*shape, 2), (*steps, 8), (*other, 8), 8
    axes = joined(shape, steps, other)
    reach = max(abs(n * step) for n, *both in axes for step in both)
    count = int(np.prod([n for n, *_ in axes], dtype=np.int64))
    wide = max(reach, count + ELEMENTS) >= NARROW
    function = _function(at, len(axes), size, wide)
    numbers = [number for n, here, there in axes for number in (n, here // size, there // size)]
    at.stream.launch(
        function, -(-count // ELEMENTS), source.address, target.address, count, *numbers, about="copy"
    )


def joined(shape: tuple[int, ...], *strides: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Dimensions, innermost first, each with its step in every array: none of size 1, and as few as there
    can be, as two that follow each other in all arrays are one."""
    found: list[tuple[int, ...]] = []
    for n, *steps in zip(reversed(shape), *map(reversed, strides), strict=True):
        if n == 1:
            continue
        if found and all(
            step == found[-1][0] * last for step, last in zip(steps, found[-1][1:], strict=True)
        ):
            found[-1] = (n * found[-1][0], *found[-1][1:])
        else:
            found.append((n, *steps))
    return found or [(1, *(0 for _ in strides))]


@cache
def code_of(rank: int, size: int, wide: bool) -> Code:
    """The kernel for so many dimensions of elements of so many bytes.  wide: places need 64 bits."""
    kind = "i64" if wide else "i32"
    numbers = [f"{name}{d}" for d in range(rank) for name in ("n", "s", "t")]
    lines = [f"    at = tl.program_id(0).to(tl.int{kind[1:]}) * {ELEMENTS} + tl.arange(0, {ELEMENTS})"]
    lines += ["    rest, a, b = at, at * 0, at * 0"]
    for d in range(rank):
        place = "rest" if d == rank - 1 else f"rest % n{d}"
        lines += [f"    i = {place}", f"    a += i * s{d}", f"    b += i * t{d}"]
        lines += [f"    rest = rest // n{d}"] if d < rank - 1 else []
    lines += ["    tl.store(target + b, tl.load(source + a, mask=at < count), mask=at < count)"]
    body = "\n".join(lines)
    name = "c" + hashlib.blake2b(f"{rank} {size} {wide} {body}".encode(), digest_size=10).hexdigest()
    head = f"def {name}(source, target, count, {', '.join(numbers)}):"
    text = f"import triton\nimport triton.language as tl\n\n\n@triton.jit\n{head}\n{body}\n"
    parameters = (*[f"*{WORDS[size]}"] * 2, *[kind] * (1 + 3 * rank))
    return Code(name, text, parameters, (False,) * len(parameters), 4, 1, 1)


def _function(at: Machine, rank: int, size: int, wide: bool) -> Function:
    found = at.copiers.get((rank, size, wide))
    if found is None:
        code = code_of(rank, size, wide)
        (found,) = at.functions([code], compiled([code], Target.named(at.target)))
        at.copiers[rank, size, wide] = found
    return found
