"""What code is generated for: a value that is passed in, never a global."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar


@dataclass(frozen=True)
class Core:
    """What a core of a CPU was measured to take: by these figures kernels, layouts and threads are chosen.

    ghz: cycles of a nanosecond.  cache: bytes of its second level of cache.  near, far: bytes that it moves
    in a nanosecond, in that cache and beyond it.  cycles: of a vector of a word; a word that is not listed is
    a plain instruction, half a cycle.  library: cycles of a call of the C library, for each lane.  muladd:
    nanoseconds of a multiplication or an addition, on 16 lanes, in sums over channels.

    Of Winograd's transforms in a kernel whose lanes are channels: transform, nanoseconds of a vector at one
    position, into V or out of M; weight, of a byte of U, which comes from beyond the cache.  Of those whose
    lanes are images: image_gflops, of sums over channels; image_transform, nanoseconds of a vector of a tile
    and channel, and image_weight of one of a weight; image_near, image_far: bytes of U in a nanosecond.
    """

    ghz: float
    cache: int
    near: float
    far: float
    cycles: Mapping[str, float]
    library: float
    muladd: float
    transform: float
    weight: float
    image_gflops: float
    image_transform: float
    image_weight: float
    image_near: float
    image_far: float


# How many bytes of a weight are asked for before they are wanted: it comes from memory, once.  With 256 x 256
# channels on 14 x 14 that took 0.53 ms in place of 0.71 on a Zen 5 core, and 512 x 512 on 7 x 7 0.83 for 1.0.
AHEAD = 8 << 10

ZEN5 = Core(
    ghz=3.5,
    cache=1 << 20,
    near=150.0,
    far=25.0,
    cycles={
        "div": 8, "sqrt": 9, "rsqrt": 14, "exp": 10, "expm1": 12, "exp2": 10, "log": 14, "log1p": 20,
        "erf": 20, "sigmoid": 16, "tanh": 18, "sin": 24, "cos": 24, "erfinv": 30, "random_bits": 40,
        "pow": 40,
    },
    library=50,
    muladd=1 / 200,
    transform=1.5,
    weight=0.025,
    image_gflops=230,
    image_transform=28,
    image_weight=60,
    image_near=60,
    image_far=20,
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A CPU level.

    lanes: elements of a vector, the same for every element type.
    cpu, features: LLVM's names for what instructions may be used.  The three levels below name only what all
    CPUs of the level have, so that their code runs on each of them; `binding.host_target` gives this
    machine's own.  The emitted text depends on the name and the lanes alone.
    has_masks: a load or store of 4-byte elements may leave lanes out.  has_fma: a fused multiply-add is an
    instruction; where not, it would be a call for each lane.  has_halves: half floats are converted by an
    instruction.  scaled: lanes of the vector that one instruction scales by powers of two, 0 for none.
    core: what its code is chosen by.
    """

    language: ClassVar = "llvm"

    name: str
    lanes: int
    cpu: str
    features: str = ""
    has_masks: bool = field(default=False, compare=False)
    has_fma: bool = field(default=False, compare=False)
    has_halves: bool = field(default=False, compare=False)
    scaled: int = field(default=0, compare=False)
    core: Core = field(default=ZEN5, compare=False, repr=False)

    @property
    def has_scalef(self) -> bool:
        """Whether one instruction scales the floats of a vector by powers of two."""
        return self.lanes == self.scaled

    @property
    def registers(self) -> int:
        """Registers of vectors of so many lanes."""
        return 32 if self.lanes == 16 else 16

    @property
    def sums(self) -> int:
        """Vectors of sums that a tile of a product may hold.

        A few more and LLVM's scheduler runs out of registers: 13 rows x 2 vectors reach 150 GF/s on Zen 5
        where 12 x 2 reach 245.
        """
        return self.registers // 4 * 3

    @property
    def scalar(self) -> Target:
        """The same CPU, one element at a time."""
        return self.with_lanes(1)

    def with_lanes(self, lanes: int) -> Target:
        """The same CPU, in vectors of so many elements."""
        return replace(self, lanes=lanes)


AVX512 = Target("avx512", 16, "x86-64-v4", has_masks=True, has_fma=True, has_halves=True, scaled=16)
AVX2 = Target("avx2", 8, "x86-64-v3", has_masks=True, has_fma=True, has_halves=True)
BASELINE = Target("baseline", 4, "x86-64-v2")
LEVELS = (AVX512, AVX2, BASELINE)
