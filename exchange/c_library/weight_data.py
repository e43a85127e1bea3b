"""The weights of a C library: those of all levels as one run of bytes, what is equal once."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ...ir.kernel.types import NUMPY
from ...passes.llvm.binding import Library, emit_object, host_target
from ...passes.programs.memory_plan import aligned
from ...passes.programs.program import Program
from ...runtime.native import Executable

HASH = "lamina_hash"
_PRIME = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, of no pattern: 2^64 by the golden ratio
# Eight sums side by side, each of every eighth word: (sum ^ word) * prime, its high bits folded back.
HASH_TEXT = f"""
define hidden i64 @{HASH}(ptr %data, i64 %bytes) nounwind {{
entry:
  %end = getelementptr i8, ptr %data, i64 %bytes
  br label %next
next:
  %at = phi ptr [%data, %entry], [%beyond, %block]
  %sums = phi <8 x i64> [zeroinitializer, %entry], [%folded, %block]
  %more = icmp ult ptr %at, %end
  br i1 %more, label %block, label %lane
block:
  %words = load <8 x i64>, ptr %at, align 64
  %mixed = xor <8 x i64> %sums, %words
  %times = mul <8 x i64> %mixed, splat (i64 {_PRIME})
  %high = lshr <8 x i64> %times, splat (i64 29)
  %folded = xor <8 x i64> %times, %high
  %beyond = getelementptr i8, ptr %at, i64 64
  br label %next
lane:
  %n = phi i64 [0, %next], [%n.next, %lane]
  %sum = phi i64 [%bytes, %next], [%sum.next, %lane]
  %own = extractelement <8 x i64> %sums, i64 %n
  %both = xor i64 %sum, %own
  %product = mul i64 %both, {_PRIME}
  %top = lshr i64 %product, 32
  %sum.next = xor i64 %product, %top
  %n.next = add i64 %n, 1
  %again = icmp ult i64 %n.next, 8
  br i1 %again, label %lane, label %done
done:
  ret i64 %sum.next
}}
"""


@dataclass
class Weights:
    """Arrays one behind the other, each at a multiple of 64 bytes."""

    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    _known: dict[bytes, int] = field(default_factory=dict)

    def place(self, array: np.ndarray) -> int:
        """Where in the bytes an array lies, from now on."""
        data = np.ascontiguousarray(array).tobytes()
        key = hashlib.sha256(data).digest()
        if key not in self._known:
            self._known[key] = self.size
            self.pieces.append(data + bytes(aligned(len(data)) - len(data)))
            self.size += len(self.pieces[-1])
        return self._known[key]

    def data(self) -> bytes:
        return b"".join(self.pieces)


@cache
def _hash_code() -> Library:
    target = host_target()
    return Library([emit_object(HASH_TEXT.replace("hidden ", ""), target)], target)


def hash_of(data: bytes) -> int:
    """What the library makes of these bytes, whose number is a multiple of 64."""
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(_hash_code().address(HASH))
    memory = np.empty(len(data) + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return int(function(memory.ctypes.data + start, len(data)))


def packed(first: Program, weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a level's prologue makes of weights, with this machine's instructions."""
    if not first.results:
        return []
    given = [
        np.asarray(x, order="C").view(NUMPY[param.dtype])
        for x, param in zip(weights, first.params, strict=True)
    ]
    return list(Executable(first)(*given))
