"""What a model costs, layer by layer: the numbers that all else is computed from.

All of it is per sample (a sequence, an image) and of the whole model, before anything is spread out.  What
tensor parallelism divides is `split`, what each of its ranks would hold is `whole`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .mesh_layout import PlanError


class Precision(NamedTuple):
    """bytes of an element of activations and parameters, of a gradient, of a float32 copy kept beside.

    peak: the rate that products run at.
    """

    name: str
    peak: str
    element: int
    gradient: int
    master: int


PRECISIONS = {
    "fp32": Precision("fp32", "fp32", 4, 4, 0),
    "tf32": Precision("tf32", "tf32", 4, 4, 0),
    "bf16": Precision("bf16", "bf16", 2, 2, 4),
    "fp16": Precision("fp16", "fp16", 2, 2, 4),
    # Products in eight bits; all that is stored as in bf16.
    "fp8": Precision("fp8", "fp8", 2, 2, 4),
}
# Bytes of states that an optimizer keeps for a parameter, in float32.
OPTIMIZERS = {"sgd": 0, "momentum": 4, "lion": 4, "adam": 8, "adamw": 8}


def precision_of(name: str) -> Precision:
    """A precision by name.  Raises PlanError."""
    if name not in PRECISIONS:
        raise PlanError(f"plan(precision): one of {', '.join(PRECISIONS)}, not {name!r}")
    return PRECISIONS[name]


def states_of(optimizer: str) -> int:
    """Bytes of states for a parameter.  Raises PlanError for an optimizer that is not in the table."""
    if optimizer not in OPTIMIZERS:
        raise PlanError(f"plan(optimizer): one of {', '.join(OPTIMIZERS)}, not {optimizer!r}")
    return OPTIMIZERS[optimizer]


@dataclass(frozen=True)
class Product:
    """`times` products of [rows, inner] and [inner, columns] in a forward.

    split: what tensor parallelism divides: "rows" (never), "inner", "columns", "times" (heads), "" (nothing).
    weighted: the right factor is a weight, so more samples are more rows; else more times.
    share: of the operations that are done, as where half of the scores are masked.
    unstored: the factor or result that stays in registers, "left" or "result", as scores do in fused
    attention.  core: part of attention's scores, which selective recomputation does again.
    experts: how many experts `times` counts; expert parallelism divides them and brings each more rows.
    """

    rows: float
    inner: float
    columns: float
    times: float = 1
    split: str = ""
    weighted: bool = True
    share: float = 1.0
    unstored: str = ""
    core: bool = False
    experts: bool = False

    @property
    def flops(self) -> float:
        """Operations of a forward of one sample: two for a multiplication and an addition."""
        return 2 * self.rows * self.inner * self.columns * self.times * self.share


@dataclass(frozen=True)
class LayerCosts:
    """A layer, or another part of a model that stays on one rank of the pipeline.

    split, whole, expert: parameters; tensors: in how many tensors.  products: of a forward.
    split_traffic, whole_traffic, core_traffic: bytes that pointwise kernels of a forward read and write; the
    last is that of attention's scores, which is split too.  kernels: how many run in a forward.
    split_saved, whole_saved, core_saved: bytes saved for backward, the last recomputed by "selective".
    input: bytes of what comes in, which full recomputation keeps and a pipeline sends.
    exchanges: all-reduces of tensor parallelism in a forward (as many in a backward), of `exchanged` bytes
    each.  routed: bytes that go to experts and come back.  context: bytes of keys and values, which context
    parallelism gathers.  block: whether it is one of the model's repeated layers.
    """

    name: str
    split: float = 0
    whole: float = 0
    expert: float = 0
    tensors: int = 0
    products: tuple[Product, ...] = ()
    split_traffic: float = 0
    whole_traffic: float = 0
    core_traffic: float = 0
    kernels: int = 0
    split_saved: float = 0
    whole_saved: float = 0
    core_saved: float = 0
    input: float = 0
    exchanges: float = 0
    exchanged: float = 0
    routed: float = 0
    context: float = 0
    block: bool = False

    @property
    def parameters(self) -> float:
        return self.split + self.whole + self.expert

    @property
    def flops(self) -> float:
        """Operations of products in a forward of one sample."""
        return sum(product.flops for product in self.products)

    @property
    def saved(self) -> float:
        """Bytes saved for backward by one sample, where nothing is recomputed or spread out."""
        return self.split_saved + self.whole_saved + self.core_saved


@dataclass(frozen=True)
class ModelCosts:
    """A model as its layers, in the order in which they run.

    sample: what one is called, and tokens: how many tokens it has (1 where it has none).
    heads, kv_heads, experts: what tensor and expert parallelism must divide; 0 where that is not known.
    tied: parameters of the first layer that the last one uses, too.  precision: what bytes are counted in.
    notes: what was assumed of it.
    """

    name: str
    layers: tuple[LayerCosts, ...]
    precision: Precision
    sample: str = "sample"
    tokens: int = 1
    heads: int = 0
    kv_heads: int = 0
    experts: int = 0
    tied: float = 0
    divisors: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> float:
        return sum(layer.parameters for layer in self.layers)

    @property
    def flops(self) -> float:
        """Operations of products in a forward and backward of one sample, nothing recomputed."""
        return 3 * sum(layer.flops for layer in self.layers)

    @property
    def blocks(self) -> int:
        return sum(layer.block for layer in self.layers)
