"""Devices as their makers' data sheets state them, and what share of that is reached.

Rates are of dense numbers (data sheets of NVIDIA print twice that, for weights that are half zero) and of one
direction of a link.  Memory is in bytes of the data sheet's GB; what a device has beyond that (one of 80 GB
reports 85.5e9 bytes) is left to the driver's context and the buffers of the collectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .mesh_layout import PlanError

TERA, GIGA, MICRO = 1e12, 1e9, 1e-6


@dataclass(frozen=True)
class Link:
    """What joins devices: bytes a second of each device in one direction, and seconds of a step of a ring.

    tree: seconds of a step of a tree.  share: of the bandwidth, what long messages reach.
    """

    bandwidth: float
    latency: float
    tree: float
    share: float = 0.8

    @property
    def rate(self) -> float:
        """Bytes a second that long messages reach."""
        return self.bandwidth * self.share


@dataclass(frozen=True)
class Accelerator:
    """A device.

    peak: operations a second by precision.  memory: bytes.  bandwidth: of the memory, bytes a second.
    per_node: how many devices a node has.  node, network: the links within and between.
    products, attention: shares of the peak that large products and fused attention reach.
    streaming: share of the bandwidth that pointwise kernels reach.  launch: seconds that a kernel takes at
    least.  shared: whether the ranks of a node share one device, as processes share a CPU.
    """

    name: str
    peak: Mapping[str, float]
    memory: float
    bandwidth: float
    per_node: int
    node: Link
    network: Link
    products: float
    attention: float
    streaming: float = 0.9
    launch: float = 4 * MICRO
    shared: bool = False

    def among(self, ranks: int) -> Accelerator:
        """What each of some ranks of a node has of a device that they share; else the device itself."""
        if not self.shared or ranks == 1:
            return self
        return replace(
            self,
            peak={name: rate / ranks for name, rate in self.peak.items()},
            memory=self.memory / ranks,
            bandwidth=self.bandwidth / ranks,
            node=replace(self.node, bandwidth=self.node.bandwidth / ranks),
            per_node=ranks,
        )


def _nvidia(fp32: float, tf32: float, halves: float, fp8: float = 0) -> dict[str, float]:
    rates = {"fp32": fp32 * TERA, "tf32": tf32 * TERA, "bf16": halves * TERA, "fp16": halves * TERA}
    return rates | ({"fp8": fp8 * TERA} if fp8 else {})


# Seconds of a step: what NCCL's own model assumes of long messages (src/graph/tuning.cc, hwLat, version 2.20,
# "Simple": NVLink 3.4 us in a ring; a network 14 us in a ring and in a tree).  NVLink's tree is 4 us there.
NVLINK = {"latency": 3.4 * MICRO, "tree": 4 * MICRO}
NETWORK = {"latency": 14 * MICRO, "tree": 14 * MICRO}

# Shares of the peak.  Products of the A100, and streaming of all: fitted on three rows of published runs; of
# the H100, whose clock sinks under sustained loads, on one (a single product of 8192 reaches 0.81 on an H200:
# benchmarks/results/gpu.txt).  benchmarks/plan.py says which rows, and tests the others.  Those of B200 and
# MI300X are assumed, and held against nothing.
A100_PRODUCTS, H100_PRODUCTS, B200_PRODUCTS, MI300X_PRODUCTS = 0.74, 0.62, 0.60, 0.45
# Fused attention: Dao 2023, "FlashAttention-2", states up to 0.73 of an A100's peak forward, less backward.
# Forward kernels of 4096 tokens reach 0.52 of an H200's (benchmarks/results/gpu.txt).  Others are assumed.
A100_ATTENTION, H100_ATTENTION, OTHER_ATTENTION = 0.60, 0.45, 0.35

_A100 = Accelerator(
    # NVIDIA A100 data sheet (2021), SXM: 19.5, 156 and 312 TFLOP/s; 40 GB at 1,555 GB/s or 80 GB at 2,039;
    # NVLink 600 GB/s both ways.  A DGX A100 has eight, each with a network of 200 Gb/s.
    "a100-80", _nvidia(19.5, 156, 312), 80 * GIGA, 2039 * GIGA, 8,
    Link(300 * GIGA, **NVLINK), Link(25 * GIGA, **NETWORK), A100_PRODUCTS, A100_ATTENTION,
)  # fmt: skip
_H100 = Accelerator(
    # NVIDIA H100 data sheet, SXM: 67, 989, 1979 and 3958 TFLOP/s, the last three with sparsity; 80 GB at
    # 3.35 TB/s; NVLink 900 GB/s both ways.  A DGX H100 has eight, each with a network of 400 Gb/s.
    "h100", _nvidia(67, 494.5, 989.5, 1979), 80 * GIGA, 3350 * GIGA, 8,
    Link(450 * GIGA, **NVLINK), Link(50 * GIGA, **NETWORK), H100_PRODUCTS, H100_ATTENTION,
)  # fmt: skip
_TABLE = (
    replace(_A100, name="a100-40", memory=40 * GIGA, bandwidth=1555 * GIGA),
    _A100,
    _H100,
    # NVIDIA H200 data sheet, SXM: as the H100, but 141 GB at 4.8 TB/s.
    replace(_H100, name="h200", memory=141 * GIGA, bandwidth=4800 * GIGA),
    Accelerator(
        # NVIDIA DGX B200 data sheet: eight with 72 PFLOP/s of fp8 with sparsity, 1,440 GB at 64 TB/s and
        # 14.4 TB/s of NVLink both ways in all, 400 Gb/s of network each; fp32 by the HGX page, 75 TFLOP/s.
        "b200", _nvidia(75, 1125, 2250, 4500), 180 * GIGA, 8000 * GIGA, 8,
        Link(900 * GIGA, **NVLINK), Link(50 * GIGA, **NETWORK), B200_PRODUCTS, OTHER_ATTENTION,
    ),
    Accelerator(
        # AMD Instinct MI300X data sheet: 163.4, 653.7, 1307.4 and 2614.9 TFLOP/s; 192 GB at 5.3 TB/s; seven
        # links of 128 GB/s both ways to the other seven.  400 Gb/s of network each, as is usual; the steps of
        # rings as NVIDIA's.
        "mi300x", _nvidia(163.4, 653.7, 1307.4, 2614.9), 192 * GIGA, 5300 * GIGA, 8,
        Link(7 * 64 * GIGA, **NVLINK), Link(50 * GIGA, **NETWORK), MI300X_PRODUCTS, OTHER_ATTENTION,
    ),
)  # fmt: skip
DEVICES: dict[str, Accelerator] = {device.name: device for device in _TABLE}


def device_of(name: str) -> Accelerator:
    """A device of the table.  Raises PlanError for a name that it does not have."""
    if name not in DEVICES:
        known = ", ".join((*DEVICES, "cpu"))
        raise PlanError(f"plan(device): there is no device {name!r} in the table", f"one of: {known}")
    return DEVICES[name]
