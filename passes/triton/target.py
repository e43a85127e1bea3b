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


@dataclass(frozen=True)
class Target:
    """A GPU architecture.

    name: NVIDIA's or AMD's own ("sm_90", "gfx942").  backend, architecture: what Triton calls it.  warp: the
    threads that run together.  shared: bytes of shared memory that one block may have.  has_tma: whether a
    unit of its own copies tiles of tensors.  has_tf32: whether its tensor cores take parts of f32.
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

    @classmethod
    def named(cls, name: str) -> Target:
        """The target of a name.  Raises KernelError for one that nothing is known of."""
        shared = _SHARED.get(name)
        if shared is None:
            raise KernelError(
                f"{name!r} is no GPU that kernels are compiled for", f"known: {', '.join(NAMES)}"
            )
        if name.startswith("gfx"):
            # the ninth generation (CDNA) runs 64 threads together, later ones (RDNA) 32
            return cls(name, "hip", name, 64 if name.startswith("gfx9") else 32, shared, False)
        number = int(name.removeprefix("sm_"))
        return cls(name, "cuda", number, 32, shared, number >= 90)


# For programs, which are the same for all: what every card from sm_80 on has.
ANY = Target("any", "cuda", 0, 32, 99 * KIB, False)
