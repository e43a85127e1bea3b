"""The steps that say how a program on a GPU computes with tensors.

    softmax by lanes(rows, 2, i) along(row, 512, j) warps(4)
    matmul by lanes(m, 64, i) lanes(n, 64, j) along(k, 32, k) dot(s) group(8) warps(4) stages(3)

A program is one run of the code, and its number says which points it computes: one of each axis that no step
names.  A tensor has a dimension for each `lanes`, then one for an `along`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ...ir.errors import KernelError
from ...ir.kernel.form import Kernel
from .language import SIZES, Language, Step

IEEE = "ieee"
PRECISIONS = (IEEE, "tf32", "tf32x3")
WARPS, STAGES = 4, 3  # where no step says how many


class TensorStep(Step):
    """A step that Triton's generator knows."""

    language = Language.TRITON


class Powers(TensorStep):
    """A step whose sizes are powers of two: Triton has no others."""

    def check(self, kernel: Kernel) -> None:
        super().check(kernel)
        for size in (getattr(self, f.name) for f in fields(self) if f.name in SIZES):
            if size & (size - 1):
                raise KernelError(f"{kernel.name}: {self} is of a power of two")


@dataclass(frozen=True)
class Lanes(Powers):
    """Consecutive points of fused parallel axes, slowest axis first, are one dimension of the tensors."""

    name = "lanes"
    parallel = True
    dim: str
    size: int
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Along(Powers):
    """Fused local axes, the last of their stages, are a dimension: a program goes along it, `size` at a time.

    Other local axes are loops.  With `dot` the axes are of the product's sum.
    """

    name = "along"
    parallel = False
    dim: str
    size: int
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Serial(TensorStep):
    """Every program goes through all points of these axes, slowest first: points that meet have an order."""

    name = "serial"
    parallel = True
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Dot(TensorStep):
    """A sum of products runs on tensor cores: over two `lanes`, of M and of N, and an `along`, of K."""

    name = "dot"
    stage: str


@dataclass(frozen=True)
class Precision(TensorStep):
    """The f32 factors of a `dot` are multiplied as they are, ieee, rounded first, tf32, or as two parts so
    rounded each, tf32x3.  By itself it leaves all else to the default.
    """

    name = "precision"
    precision: str

    def check(self, kernel: Kernel) -> None:
        if self.precision not in PRECISIONS:
            raise KernelError(f"{kernel.name}: {self} is one of {', '.join(PRECISIONS)}")


@dataclass(frozen=True)
class Registers(TensorStep):
    """The factor of a `dot` that has the rows, one of f32 by tf32, is given to tensor cores in registers.

    From shared memory they read such factors with the sum innermost alone; in registers one that lies
    otherwise needs no copy.
    """

    name = "registers"


@dataclass(frozen=True)
class Descriptors(TensorStep):
    """The factors of a `dot` are matrices in memory, and a unit that is told of them loads their tiles: by an
    instruction of one thread each, without addresses and masks.
    """

    name = "descriptors"


@dataclass(frozen=True)
class Persistent(TensorStep):
    """At most so many programs are launched, each of which computes one tile after another."""

    name = "persistent"
    count: int


@dataclass(frozen=True)
class Group(TensorStep):
    """Rows of tiles of the last two `lanes` that are walked through together, and share columns in the L2."""

    name = "group"
    count: int


@dataclass(frozen=True)
class Warps(Powers):
    """The warps of a program; WARPS where there is no such step."""

    name = "warps"
    count: int


@dataclass(frozen=True)
class Stages(TensorStep):
    """Steps of a loop with a `dot` that are loaded ahead; STAGES where there is no such step."""

    name = "stages"
    count: int


GPU_STEPS = (
    Lanes, Along, Serial, Dot, Precision, Registers, Descriptors, Persistent, Group, Warps, Stages,
)  # fmt: skip
