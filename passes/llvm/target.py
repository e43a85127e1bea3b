"""What code is generated for: a value that is passed in, never a global."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A CPU level.  lanes: elements of a vector, the same for every element type."""

    name: str
    lanes: int

    @property
    def has_scalef(self) -> bool:
        """Whether one instruction scales 16 floats by powers of two (AVX-512)."""
        return self.lanes == 16

    @property
    def scalar(self) -> Target:
        """The same CPU, one element at a time."""
        return Target(self.name, 1)


AVX512 = Target("avx512", 16)
AVX2 = Target("avx2", 8)
BASELINE = Target("baseline", 4)
