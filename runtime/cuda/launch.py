"""What a launch hands to the driver: a kernel's parameters, each where the compiled code looks for it.

A kernel that Triton compiled takes its own arguments and then, always, two pointers to scratch memory: the
global one and the profiler's.  They lie one after another, each at a multiple of its size.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence

from ...ir.errors import ArgumentValueError, DeviceError

# Triton's names of scalar types, as `struct` writes them.  bf16 is packed from its bits.
SCALARS = {"i1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q"}
SCALARS |= {"u1": "?", "u8": "B", "u16": "H", "u32": "I", "u64": "Q"}
SCALARS |= {"fp16": "e", "bf16": "H", "fp32": "f", "fp64": "d"}
SCRATCH = ("*i8", "*i8")

Layout = tuple[tuple[int, int], ...]


def _code(type: str) -> str:
    if type.startswith("*"):
        return "Q"
    if type not in SCALARS:
        raise ArgumentValueError(
            f"a kernel's parameter is a pointer or a number, not {type}", f"numbers: {', '.join(SCALARS)}"
        )
    return SCALARS[type]


def layout(types: Sequence[str]) -> Layout:
    """Offset and size, in bytes, of each parameter of those Triton types and of the two scratch pointers."""
    places, end = [], 0
    for type in (*types, *SCRATCH):
        size = struct.calcsize(_code(type))
        start = end + -end % size
        places.append((start, size))
        end = start + size
    return tuple(places)


def check_layout(kernel: str, types: Sequence[str], found: Layout) -> None:
    """Raise DeviceError where the compiled kernel has its parameters in other places than `layout`."""
    expected = layout(types)
    if found == expected:
        return
    lines = [f"expected {len(expected)} parameters with the two of scratch memory, found {len(found)}"]
    for k, (ours, its) in enumerate(zip(expected, found)):
        if ours != its:
            type = (*types, *SCRATCH)[k]
            lines.append(
                f"parameter {k}, {type}: at {ours[0]}, {ours[1]} bytes; found at {its[0]}, {its[1]} bytes"
            )
    raise DeviceError(f"{kernel}: the compiled kernel's parameters lie where a launch puts them", *lines)


class Packer:
    """Writes the parameters of one kernel, for each thread in memory of its own.

    The driver reads parameters during the launch, so the memory is free again when that returns.
    """

    def __init__(self, types: Sequence[str]):
        self.types = (*types,)
        self.layout = layout(types)
        self.nbytes = sum(self.layout[-1])
        form, end = "<", 0
        for type, (start, size) in zip((*self.types, *SCRATCH), self.layout):
            form += "x" * (start - end) + _code(type)
            end = start + size
        self._struct = struct.Struct(form)
        self._bf16 = tuple(k for k, type in enumerate(self.types) if type == "bf16")
        self._thread = threading.local()

    def pack(self, values: Sequence[float], scratch: int = 0, profile: int = 0) -> int:
        """The address of an array of pointers to the parameters, as cuLaunchKernel takes them.

        What was there from this thread's last call is overwritten.  Raises ArgumentValueError for too many or
        few values and for one that its type cannot hold.
        """
        try:
            memory, pointers = self._thread.memory
        except AttributeError:
            memory, pointers = self._thread.memory = self._allocate()
        if self._bf16:
            values = [bf16_bits(v) if k in self._bf16 else v for k, v in enumerate(values)]
        try:
            self._struct.pack_into(memory, 0, *values, scratch, profile)
        except (struct.error, OverflowError, TypeError):
            raise self._refusal(values) from None
        return pointers

    def packed(self) -> bytes:
        """The bytes that this thread packed last."""
        return bytes(self._thread.memory[0])

    def _allocate(self) -> tuple[ctypes.Array, int]:
        memory = (ctypes.c_uint64 * -(-self.nbytes // 8))()  # of 8-byte words, for its alignment
        start = ctypes.addressof(memory)
        self._thread.pointers = (ctypes.c_void_p * len(self.layout))(*(start + at for at, _ in self.layout))
        return memory, ctypes.addressof(self._thread.pointers)

    def _refusal(self, values: Sequence[float]) -> ArgumentValueError:
        if len(values) != len(self.types):
            return ArgumentValueError(
                "a launch gives a kernel a value for each parameter",
                f"{len(self.types)} parameters: {', '.join(self.types)}",
                f"{len(values)} values",
            )
        for k, (type, value) in enumerate(zip(self.types, values)):
            try:
                struct.pack("<" + _code(type), value)
            except (struct.error, OverflowError, TypeError):
                return ArgumentValueError(
                    f"a kernel's parameter holds its value: {value!r} is no {type}", f"parameter {k}"
                )
        return ArgumentValueError("the addresses of scratch memory are 64-bit numbers")


def bf16_bits(value: float) -> int:
    """The upper half of a float32, rounded to nearest with ties to even; too large ones become infinite."""
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        bits = 0x7F800000 if value > 0 else 0xFF800000
    if value != value:
        return (bits >> 16) | 0x40  # quiet, or rounding could carry a NaN to infinity
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
