"""The mesh of devices, and how a model is laid out on it.

Ranks are numbered so that the first axis of `Layout.order` changes quickest: it is what stands within a node.
Experts are spread over ranks that are data parallel to everything else: `ep` divides dp x cp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import prod
from typing import Any, NamedTuple

from ..ir.errors import ArgumentValueError

RECOMPUTE = ("none", "selective", "full")
AXES = ("tp", "cp", "dp", "pp")


class PlanError(ArgumentValueError):
    """A mesh, a layout or a description that no step can be planned for."""


class Mesh(NamedTuple):
    """per_node: devices of a node.  nodes: how many there are."""

    per_node: int
    nodes: int

    @property
    def devices(self) -> int:
        return self.per_node * self.nodes

    def __str__(self) -> str:
        return f"{self.per_node}x{self.nodes}"

    @classmethod
    def parse(cls, text: str | int, per_node: int) -> Mesh:
        """Read "8x64" (8 devices in each of 64 nodes) or "512" (as many nodes as that takes).

        Raises PlanError for anything else, for zero, and where the last node would not be full.
        """
        found = re.fullmatch(r"\s*(\d{1,6})(?:\s*[xX]\s*(\d{1,6}))?\s*", str(text))
        if not found or 0 in (sizes := [int(size) for size in found.groups() if size is not None]):
            raise PlanError(
                f"plan(mesh): devices of a node x nodes, both at least 1, not {text!r}",
                "8x64 are 64 nodes of 8 devices; 512 are as many nodes as that takes",
            )
        if len(sizes) == 2:
            return cls(*sizes)
        if sizes[0] <= per_node:
            return cls(sizes[0], 1)
        if sizes[0] % per_node:
            raise PlanError(
                f"plan(mesh): {sizes[0]} devices don't fill nodes of {per_node}",
                f"write the shape, as in {_shape(sizes[0])}",
            )
        return cls(per_node, sizes[0] // per_node)


def _shape(devices: int) -> str:
    within = max(size for size in range(1, 9) if devices % size == 0)
    return f"{within}x{devices // within}"


class Group(NamedTuple):
    """Ranks that communicate: how many, and how many of them are in one node."""

    size: int
    per_node: int

    @property
    def nodes(self) -> int:
        return -(-self.size // self.per_node)


@dataclass(frozen=True)
class Layout:
    """How a step is spread out.

    dp, tp, pp, cp: data, tensor, pipeline and context parallel; their product is the number of devices.
    ep: over how many of the dp x cp ranks experts are spread.  micro_batch: samples.  chunks: of layers that
    each rank of the pipeline holds, above 1 interleaved.  zero: 0, or what is sharded among dp x cp ranks:
    1 optimizer states, 2 gradients too, 3 parameters too.  recompute: "none", "selective" (the scores of
    attention) or "full" (each layer from its input).  sequence_parallel: what tensor parallelism does not
    split is split along the sequence.  overlap: collectives of data parallelism run beside the backward.
    bucketed: a layer's parameters are gathered at once, not tensor by tensor.  order: see the module.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batch: int = 1
    chunks: int = 1
    zero: int = 0
    recompute: str = "none"
    sequence_parallel: bool = True
    overlap: bool = True
    bucketed: bool = True
    order: tuple[str, ...] = AXES

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "cp", "ep", "micro_batch", "chunks"):
            if not isinstance(size := getattr(self, name), int) or isinstance(size, bool) or size < 1:
                raise PlanError(f"Layout({name}): an int of at least 1, not {size!r}")
        if self.zero not in range(4):
            raise PlanError(f"Layout(zero): 0, 1, 2 or 3, not {self.zero!r}")
        if self.recompute not in RECOMPUTE:
            raise PlanError(f"Layout(recompute): one of {', '.join(RECOMPUTE)}, not {self.recompute!r}")
        if sorted(self.order) != sorted(AXES):
            raise PlanError(f"Layout(order): {', '.join(AXES)} in some order, not {self.order!r}")

    @property
    def devices(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    def group(self, axes: tuple[str, ...], mesh: Mesh) -> Group:
        """The ranks that differ along some axes alone."""
        size, near, stride = prod(getattr(self, axis) for axis in axes), 1, 1
        for axis in self.order:
            extent = getattr(self, axis)
            if axis in axes:
                near *= min(extent, max(1, mesh.per_node // stride))
            stride *= extent
        return Group(size, max(1, min(near, size, mesh.per_node)))

    def experts_group(self, mesh: Mesh) -> Group:
        """The ranks that hold the experts of a layer: neighbours among those that are data parallel."""
        whole = self.group(("cp", "dp"), mesh)
        return Group(self.ep, min(self.ep, whole.per_node))

    def check(self, mesh: Mesh, batch: int) -> int:
        """The number of micro-batches.  Raises PlanError where mesh or batch can't be divided so."""
        if self.devices != mesh.devices:
            raise PlanError(
                f"plan(layout): dp x tp x pp x cp must be the devices of the mesh ({self.devices} != "
                f"{mesh.devices})",
                f"layout: {self}",
                f"mesh: {mesh}",
            )
        if (self.dp * self.cp) % self.ep:
            raise PlanError(f"plan(layout): ep must divide dp x cp ({self.ep}, {self.dp * self.cp})")
        if batch % (self.dp * self.micro_batch):
            raise PlanError(
                "plan(batch): dp x micro_batch must divide the batch "
                f"({self.dp} x {self.micro_batch}, {batch})"
            )
        micro_batches = batch // (self.dp * self.micro_batch)
        if self.chunks > 1 and (self.pp == 1 or micro_batches % self.pp):
            raise PlanError(
                "plan(layout): an interleaved pipeline takes micro-batches in rounds of pp "
                f"({micro_batches} micro-batches, pp={self.pp})",
                "use chunks=1",
            )
        return micro_batches

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Read "dp=8,tp=8,pp=8,micro_batch=1,zero=1,recompute=selective".  Raises PlanError."""
        kinds = {field.name: type(field.default) for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, word in assignments(text, "layout"):
            name = {"micro": "micro_batch", "sp": "sequence_parallel"}.get(name, name)
            if name not in kinds:
                raise PlanError(f"plan(layout): there is no {name!r}", f"one of: {', '.join(kinds)}")
            if kinds[name] is bool:
                values[name] = flag(word, name)
            elif kinds[name] is int:
                values[name] = whole(word, name)
            else:
                values[name] = tuple(word.split("-")) if name == "order" else word
        return cls(**values)

    def __str__(self) -> str:
        words = [f"{axis}={getattr(self, axis)}" for axis in ("dp", "tp", "pp", "cp", "ep")]
        words = [word for word in words if not word.endswith("=1")] or ["dp=1"]
        words.append(f"micro_batch={self.micro_batch}")
        words += [f"chunks={self.chunks}"] if self.chunks > 1 else []
        words += [f"zero={self.zero}"] if self.zero else []
        words += [f"recompute={self.recompute}"] if self.recompute != "none" else []
        words += [] if self.order == AXES else [f"order={'-'.join(self.order)}"]
        names = ("sequence_parallel", "overlap", "bucketed")
        return ",".join([*words, *(f"{name}=0" for name in names if not getattr(self, name))])


def assignments(text: str, argument: str) -> Iterator[tuple[str, str]]:
    """The (name, word) pairs of "a=1,b=2".  Raises PlanError for what is none, or is given twice."""
    seen = set()
    for each in filter(None, map(str.strip, text.split(","))):
        name, found, word = (part.strip() for part in each.partition("="))
        if not found or not name or not word:
            raise PlanError(f"plan({argument}): name=value, separated by commas, not {each!r}")
        if name in seen:
            raise PlanError(f"plan({argument}): {name} is given twice")
        seen.add(name)
        yield name, word


def whole(word: str, name: str) -> int:
    """An int of at least 0.  Raises PlanError."""
    if not re.fullmatch(r"\d{1,12}", word):
        raise PlanError(f"plan: {name} is a whole number, not {word!r}")
    return int(word)


def flag(word: str, name: str) -> bool:
    """0 or 1.  Raises PlanError."""
    if word.lower() not in ("0", "1", "false", "true"):
        raise PlanError(f"plan: {name} is 0 or 1, not {word!r}")
    return word.lower() in ("1", "true")
