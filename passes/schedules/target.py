"""What code is generated for: a value that is passed in, never a global."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar


@dataclass(frozen=True)
class Core:
    """What a core of a CPU was measured to take: by these figures kernels, layouts and threads are chosen.

    ghz: cycles of a nanosecond.  cache, last: bytes of its second and its last level of cache.  near, far:
    bytes that it moves in a nanosecond, in the second one and beyond it.  cycles: of a vector of a word; a
    word that is not listed is a plain instruction, half a cycle.  library: cycles of a call of the C library,
    for each lane.  muladd: nanoseconds of a multiplication or an addition, on 16 lanes, in sums over
    channels.  pairs: what a sum of pairs of bfloat16 takes of one of f32.

    Of Winograd's transforms in a kernel whose lanes are channels: transform, nanoseconds of a vector at one
    position, into V or out of M; weight, of a byte of U, which comes from beyond the cache while others are
    multiplied. Of those whose lanes are images: image_gflops, of sums over channels; image_transform,
    nanoseconds of a vector of a tile and channel, and image_weight of one of a weight; image_near, image_far,
    image_memory: bytes of U in a nanosecond, where the cache holds it, where the last one does, and where
    none does, which is read by lines that lie apart.

    Of products of matrices (choose_product.py), bytes of a factor in a nanosecond: packs, that are packed;
    packs_far, where all of them are at least `packs_near`; packs_turned, where columns become rows that share
    the lines of a cache; packs_ragged, where those are tested one by one (2 heads of 256 keys of 64 take
    6 us, where each of 7 rows takes 1 us by dots: an Intel Xeon with AMX, one thread, 2026-11-27); lays, of a
    left one, that are laid along the sum; again, that are read once more where they lie, in caches, again_far
    where results push them out; strides, beyond them; collides, where rows share the lines of a cache;
    dots_far, of a far one, times rows of the other.  dots, nanoseconds by which a multiplication takes longer
    in vectors along the sum; lane_sum, of adding up the lanes of one.  tile, what a tile takes beside its
    sums, as so many of them; vectors, of columns beside each other in one of many rows, at most; steps, of a
    sum in an iteration; sums, in a tile of a convolution, at most; streams, bytes of results, from which on
    panels of them are stored past the caches.

    images: bytes in a nanosecond of a batch's images that are beyond the last cache, which layers read by
    short lines; 0 where that was not measured.
    """

    ghz: float
    cache: int
    last: int
    near: float
    far: float
    cycles: Mapping[str, float] = field(hash=False)
    library: float
    muladd: float
    transform: float
    weight: float
    image_gflops: float
    image_transform: float
    image_weight: float
    image_near: float
    image_far: float
    image_memory: float
    packs: float
    packs_far: float
    packs_turned: float
    strides: float
    collides: float
    dots_far: float
    lane_sum: float
    tile: float
    dots: float = 0.0
    pairs: float = 0.5
    packs_near: int = 4 << 20
    packs_ragged: float = 20.0
    lays: float = 60.0
    again: float = float("inf")
    again_far: float = float("inf")
    vectors: int = 2
    steps: int = 1
    sums: int = 16
    streams: float = float("inf")
    images: float = 0.0


LINE = 64  # bytes of a line of a cache

# How many bytes of a weight are asked for before they are wanted: it comes from memory, once.  With 256 x 256
# channels on 14 x 14 that took 0.53 ms in place of 0.71 on a Zen 5 core, and 512 x 512 on 7 x 7 0.83 for 1.0.
AHEAD = 8 << 10

ZEN5 = Core(
    ghz=3.5,
    cache=1 << 20,
    last=32 << 20,
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
    weight=0.04,
    image_gflops=230,
    image_transform=28,
    image_weight=60,
    image_near=60,
    image_far=20,
    image_memory=4,
    packs=60,
    packs_far=18,
    packs_turned=40,
    strides=400,
    collides=60,
    dots_far=1500,
    lane_sum=0.2,
    tile=2.0,
    images=16.0,
)  # fmt: skip

# Its vectors of 16 go through units of 8: half the multiplications in a nanosecond, 117 GF/s at most.
ZEN4 = replace(
    ZEN5,
    near=100.0,
    muladd=1 / 105,
    weight=0.045,
    image_gflops=112,
    packs=37,
    packs_far=12,
    packs_turned=12,
    lays=37,
    lane_sum=0.4,
    tile=0.2,
)

# Its second cache is twice as large, the lines of a page do not push each other out of it, and adding up the
# lanes of a sum takes longer (families.py, 2026-11-27).  By hand, the same day: a sum of pairs reaches 104
# GF/s where one of f32 reaches 185, and matrix registers 430 to 1,000.  Convolutions go by a Zen 5's figures.
# Six rows of four vectors load 10 registers for 24 additions, twelve of two 14: where somebody else is on the
# core's second thread, which takes half of the instructions begun, 1024 x 1024 x 1024 runs at 168 GF/s in
# place of 143.  A factor of 1024 x 256 runs at 180 packed, and at 139 where it lies (medians; 2026-11-28).
GOLDEN_COVE = replace(
    ZEN5,
    cache=2 << 20,
    near=40.0,
    packs=30,
    packs_far=11,
    packs_near=512 << 10,
    packs_turned=30,
    again=300,
    collides=150,
    lane_sum=0.5,
    muladd=1 / 185,
    pairs=1.8,
    tile=10.0,
    vectors=4,
    steps=2,
    sums=24,
    images=0.0,
)

# Vectors along the sum are slower than across it, and packing takes four times as long (families.py: the
# choice costs 1.7 % in place of 4.6; a Xeon of 2 GHz, one thread, 2026-12-01).  Convolutions go by a Zen 5's
# figures: ResNet-18 takes 26 ms by them, and 27.5 by twice their times.
SKYLAKE = replace(
    ZEN5,
    near=60.0,
    packs=15,
    packs_far=4,
    packs_turned=12,
    packs_near=1 << 20,
    packs_ragged=3,
    again=200,
    strides=20,
    again_far=60,
    collides=10,
    dots=0.01,
    lane_sum=2.5,
    vectors=4,
    steps=2,
    streams=8 << 20,
)

# By LLVM's name of the CPU; what is not listed is taken for a Zen 5, or for a Zen 4 if its vectors are of 8.
CORES = {
    "znver4": ZEN4, "sapphirerapids": GOLDEN_COVE, "graniterapids": GOLDEN_COVE, "skylake-avx512": SKYLAKE,
    "cascadelake": SKYLAKE,
}  # fmt: skip


@dataclass(frozen=True)
class Platform:
    """Linux on one kind of processor: what code that is not of vectors asks for.

    triple: LLVM's name of it.  fence: the intrinsic that makes stores past the caches seen by who is told of
    them; none where the atomic words that tell him order those stores too.  Of the thread pool (pool.py):
    pause, what a thread does that waits for another, as an instruction; clock, the instructions that make
    `{name}` the ticks of a clock, two to four in a nanosecond; declared, what both need; futex, affinity, the
    numbers of system calls, the latter of those that say on which processors a thread may run, and ask.  The
    relocations of an object follow from what it says itself (elf.py).
    """

    triple: str
    fence: str
    pause: str
    clock: str
    declared: str
    futex: int
    affinity: tuple[int, int]

    @property
    def machine(self) -> str:
        """The kind of processor, as LLVM and Linux call it."""
        return self.triple.split("-")[0]


X86_64 = Platform(
    triple="x86_64-unknown-linux-gnu",
    fence="llvm.x86.sse.sfence",
    pause="call void @llvm.x86.sse2.pause()",
    clock="  {name} = call i64 @llvm.readcyclecounter()",
    declared="""\
declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse2.pause()""",
    futex=202,
    affinity=(203, 204),
)

# Stores past the caches are ordered by a release, as all stores are.  The clock ticks 24 million to a billion
# times a second, and says how often: it is brought to some two in a nanosecond.  `yield` does nothing on most
# cores; `isb` takes some tens of cycles, as x86's pause does.
AARCH64 = Platform(
    triple="aarch64-unknown-linux-gnu",
    fence="",
    pause="call void @llvm.aarch64.isb(i32 15)",
    clock="""\
  {name}.count = call i64 @llvm.readcyclecounter()
  {name}.hertz = call i64 @llvm.read_register.i64(metadata !0)
  {name}.ticks = udiv i64 2147483648, {name}.hertz
  {name} = mul i64 {name}.count, {name}.ticks""",
    declared="""\
declare i64 @llvm.readcyclecounter()
declare i64 @llvm.read_register.i64(metadata)
declare void @llvm.aarch64.isb(i32)
!0 = !{!"CNTFRQ_EL0"}""",
    futex=98,
    affinity=(122, 123),
)


@dataclass(frozen=True)
class Target:
    """A CPU level.  What code is made follows from these fields alone, and not from the name.

    name: for people.  lanes: elements of a vector, the same for every element type.
    cpu, features: LLVM's names for what instructions may be used.  The levels below name only what all CPUs
    of the level have, so that their code runs on each of them; `binding.host_target` gives this machine's
    own.  tune: the CPU by whose model LLVM orders them; "" for that one.  needs: what LLVM must find on a
    machine that has the level.  platform: what is not about vectors.  registers: of vectors of so many lanes.
    attributes: what LLVM is told of every function.
    has_masks: a load or store of 4-byte elements may leave lanes out.  loses_masks: LLVM gets masked loads of
    two registers wrong (memory.py, `unknown`).  has_fma: a fused multiply-add is an instruction; where not,
    it would be a call for each lane.  has_halves: half floats are converted by an instruction.
    scalef: the intrinsic, of AVX-512, that scales the floats of a vector by powers of two; "" for none.
    pairs: the intrinsic that adds to each f32 the products of two bfloat16 and their neighbours; "" for none.
    matrix: the same of matrix registers, 16 rows by 16 columns of 16 pairs (AMX), which the process was
    allowed; "" for none.  byte_matrix: whether these take quads of bytes, too.
    quads: by lanes, the intrinsic that adds to each i32 the products of four bytes and as many i8;
    quads_signed: whether the former are i8 too, and not u8.  words: by lanes, the one that gives the products
    of two i16 and their neighbours, added up.  shorts: of a byte, an i8 and their neighbours, as an i16.
    truncates, rounds: by lanes, the one that makes i32 of f32, towards zero or to nearest, the least of all
    of what does not fit.  permutes: the one that takes lanes of a vector of floats by an i32 for each.
    narrow: the fields that are others of vectors of fewer lanes.
    core: what its code is chosen by.
    """

    language: ClassVar = "llvm"

    name: str
    lanes: int
    cpu: str
    features: str = ""
    tune: str = ""
    needs: tuple[str, ...] = ()
    platform: Platform = X86_64
    registers: int = 16
    attributes: str = ""
    has_masks: bool = False
    loses_masks: bool = False
    has_fma: bool = False
    has_halves: bool = False
    scalef: str = ""
    pairs: str = ""
    matrix: str = ""
    byte_matrix: bool = False
    quads: Mapping[int, str] = field(default_factory=dict, hash=False, repr=False)
    quads_signed: bool = False
    words: Mapping[int, str] = field(default_factory=dict, hash=False, repr=False)
    shorts: Mapping[int, str] = field(default_factory=dict, hash=False, repr=False)
    truncates: Mapping[int, str] = field(default_factory=dict, hash=False, repr=False)
    rounds: Mapping[int, str] = field(default_factory=dict, hash=False, repr=False)
    permutes: str = ""
    narrow: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    core: Core = field(default=ZEN5, hash=False, repr=False)

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
        """The same CPU, in vectors of so many elements: no more than it has."""
        return self if lanes == self.lanes else replace(self, lanes=lanes, **self.narrow)


# How wide vectors are, and that a function is to align its own stack.  Untold, LLVM finds out that vectors
# must be spilled when it is too late to align them.  Where they lie across two cache lines is then a matter
# of who calls: some gradients of weights took twice as long when a function on the way pushed two registers
# less (EPYC, 2026-11-22).  AArch64's stack is always aligned to a vector.
_WIDE, _NARROW = ('"stackrealign" "prefer-vector-width"="512"', '"stackrealign" "prefer-vector-width"="256"')

# By the models of Intel's earlier cores LLVM loads so far ahead that sums of a full tile leave registers:
# 12 x 2 vectors reach 148 GF/s in place of 185 (an Intel Xeon with AMX, one thread, 2026-11-27).
TUNE = "sapphirerapids"

# VNNI, of AVX-512 and of AVX alike: no level has it, this machine's own target may.
VNNI = {lanes: f"llvm.x86.avx512.vpdpbusd.{32 * lanes}" for lanes in (16, 8, 4)}
DOTPROD = {4: "llvm.aarch64.neon.sdot.v4i32.v16i8"}
WORDS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}
# What does not fit into 16 bits is cut: two products of a byte below 128 fit.
SHORTS = {
    16: "llvm.x86.avx512.pmaddubs.w.512",
    8: "llvm.x86.avx2.pmadd.ub.sw",
    4: "llvm.x86.ssse3.pmadd.ub.sw.128",
}
TRUNCATES = {4: "llvm.x86.sse2.cvttps2dq"}
TRUNCATES_AVX = TRUNCATES | {8: "llvm.x86.avx.cvtt.ps2dq.256"}
TRUNCATES_AVX512 = TRUNCATES_AVX | {16: "llvm.x86.avx512.mask.cvttps2dq.512"}
ROUNDS = {4: "llvm.x86.sse2.cvtps2dq"}
ROUNDS_AVX = ROUNDS | {8: "llvm.x86.avx.cvt.ps2dq.256"}
ROUNDS_AVX512 = ROUNDS_AVX | {16: "llvm.x86.avx512.mask.cvtps2dq.512"}

AVX512 = Target(
    "avx512",
    16,
    "x86-64-v4",
    tune=TUNE,
    needs=("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    registers=32,
    attributes=_WIDE,
    has_masks=True,
    has_fma=True,
    has_halves=True,
    scalef="llvm.x86.avx512.mask.scalef.ps.512",
    words=WORDS,
    shorts=SHORTS,
    truncates=TRUNCATES_AVX512,
    rounds=ROUNDS_AVX512,
    permutes="llvm.x86.avx512.permvar.sf.512",
    narrow={
        "registers": 16,
        "attributes": _NARROW,
        "scalef": "",
        "pairs": "",
        "matrix": "",
        "byte_matrix": False,
        "permutes": "",
    },  # fmt: skip
)
# No level has it, as not all CPUs of AVX-512 do; this machine's own target may.  Subnormal numbers are zeros
# to it, and each product is rounded as it is added.
AVX512_PAIRS = "llvm.x86.avx512bf16.dpbf16ps.512"
AMX_PAIRS = "tdpbf16ps"
AVX2 = Target(
    "avx2",
    8,
    "x86-64-v3",
    needs=("avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe"),
    attributes=_NARROW,
    has_masks=True,
    loses_masks=True,
    has_fma=True,
    has_halves=True,
    words=WORDS,
    shorts=SHORTS,
    truncates=TRUNCATES_AVX,
    rounds=ROUNDS_AVX,
    core=ZEN4,
)
BASELINE = Target(
    "baseline",
    4,
    "x86-64-v2",
    attributes=_NARROW,
    words=WORDS,
    shorts=SHORTS,
    truncates=TRUNCATES,
    rounds=ROUNDS,
)
# Every AArch64 has it.  It was run under emulation alone (tests/kernel/test_neon.py), and no core was
# measured: code is chosen by the figures of a Zen 5.
NEON = Target("neon", 4, "generic", platform=AARCH64, registers=32, has_fma=True, has_halves=True)
LEVELS = (AVX512, AVX2, BASELINE)  # of x86-64, the widest first
