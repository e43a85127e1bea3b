"""What code is generated for: a value that is passed in, never a global."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Target:
    """A CPU level.

    lanes: elements of a vector, the same for every element type.
    cpu, features: LLVM's names for what instructions may be used.  The three levels below name only what all
    CPUs of the level have, so that their code runs on each of them; `binding.host_target` gives this
    machine's own.  The emitted text depends on the name and the lanes alone.
    """

    name: str
    lanes: int
    cpu: str
    features: str = ""

    @property
    def has_scalef(self) -> bool:
        """Whether one instruction scales 16 floats by powers of two (AVX-512)."""
        return self.lanes == 16

    @property
    def has_masks(self) -> bool:
        """Whether a load or store of 4-byte elements may leave lanes out."""
        return self.name != "baseline"

    @property
    def has_fma(self) -> bool:
        """Whether a fused multiply-add is an instruction; where not, it would be a call for each lane."""
        return self.name != "baseline"

    @property
    def has_halves(self) -> bool:
        """Whether half floats are converted by an instruction (F16C)."""
        return self.name != "baseline"

    @property
    def scalar(self) -> Target:
        """The same CPU, one element at a time."""
        return replace(self, lanes=1)


AVX512 = Target("avx512", 16, "x86-64-v4")
AVX2 = Target("avx2", 8, "x86-64-v3")
BASELINE = Target("baseline", 4, "x86-64-v2")
LEVELS = (AVX512, AVX2, BASELINE)
