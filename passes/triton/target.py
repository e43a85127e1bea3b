"""What Triton compiles for: a value that is passed in, never the GPU of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.errors import KernelError

KIB = 1024

# Bytes of shared memory that one block may have: NVIDIA's CUDA C++ Programming Guide, the table of compute
# capabilities; for AMD the local data share of a work group, from the guides of the instruction sets.
_SHARED = {
    "sm_75": 64 * KIB,
    "sm_80": 163 * KIB,
    "sm_86": 99 * KIB,
    "sm_87": 163 * KIB,
    "sm_89": 99 * KIB,
    "sm_90": 227 * KIB,
    "sm_100": 227 * KIB,
    "sm_103": 227 * KIB,
    "sm_120": 99 * KIB,
    "sm_121": 99 * KIB,
    "gfx90a": 64 * KIB,
    "gfx942": 64 * KIB,
    "gfx950": 160 * KIB,
    "gfx1100": 64 * KIB,
}
NAMES = tuple(_SHARED)
_CDNA = "gfx9"  # how the names of that line begin, AMD's for computing


@dataclass(frozen=True)
class Target:
    """A GPU architecture.

    name: NVIDIA's or AMD's own ("sm_90", "gfx942").  backend, architecture: what Triton calls it.  warp: the
    threads that run together.  shared: bytes of shared memory that one block may have.  has_tma: whether a
    unit of its own copies tiles of tensors.  has_tf32: whether its tensor cores take parts of f32.  has_f32:
    whether they take f32 as it is.
    """

    language: ClassVar = "triton"

    name: str
    backend: str
    architecture: int | str
    warp: int
    shared: int
    has_tma: bool

    @property
    def has_tf32(self) -> bool:
        return self.backend == "cuda" and int(self.architecture) >= 80

    @property
    def has_f32(self) -> bool:
        return self.name.startswith(_CDNA)

    @property
    def has_room(self) -> bool:
        """Whether registers hold sums of 128 x 256: an RDNA thread has 256, and spills some."""
        return self.backend == "cuda" or self.has_f32

    @property
    def ahead(self) -> int:
        """How many steps of a product's loop are loaded at once: two is Triton's default for AMD's GPUs."""
        return 2 if self.backend == "hip" else 3

    def buffers(self, stages: int) -> int:
        """How many of so many steps that are loaded at once are in shared memory.

        AMD's GPUs but for gfx950 load into registers, which hold the last one.
        """
        return max(1, stages - 1) if self.backend == "hip" and self.name != "gfx950" else stages

    def warps(self, count: int) -> int:
        """The warps of this target that are as many threads as so many of 32, or one."""
        return max(1, count * 32 // self.warp)

    @classmethod
    def named(cls, name: str) -> Target:
        """The target of a name.  Raises KernelError for one that nothing is known of."""
        shared = _SHARED.get(name)
        if shared is None:
            raise KernelError(
                f"{name!r} is no GPU that kernels are compiled for", f"known: {', '.join(NAMES)}"
            )
        if name.startswith("gfx"):
            # CDNA runs 64 threads together, RDNA 32
            return cls(name, "hip", name, 64 if name.startswith(_CDNA) else 32, shared, False)
        number = int(name.removeprefix("sm_"))
        return cls(name, "cuda", number, 32, shared, number >= 90)


# For programs, which are the same for all: what every card from sm_80 on has.
ANY = Target("any", "cuda", 0, 32, 99 * KIB, False)
