"""`plan`: how a training step of a model fits and runs on a mesh of devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..nn import Module
from ..runtime import Tensor
from .accelerators import Accelerator, device_of
from .calibration import calibrate
from .layer_costs import ModelCosts, states_of
from .layout_search import Searched, search
from .mesh_layout import Layout, Mesh, PlanError
from .plan_text import text_of
from .recorded_costs import recorded
from .step_time import Prediction, predict
from .transformer_costs import transformer

EVERY = 1 << 30  # devices of a node
EACH = 8  # samples for each device, where no batch is named


@dataclass(frozen=True)
class Plan:
    """What was planned: `print` it.

    best: predictions, the quickest first; of a layout that was given, that one.  searched: what a search
    found; None for a given layout.  measured: seconds of a step as it ran, if they were given.
    """

    costs: ModelCosts
    device: Accelerator
    mesh: Mesh
    batch: int
    optimizer: str
    best: tuple[Prediction, ...]
    searched: Searched | None = None
    measured: Mapping[str, float] | None = None

    @property
    def prediction(self) -> Prediction:
        """The quickest.  Raises PlanError where nothing fits."""
        if not self.best:
            raise PlanError("plan: no layout fits", *str(self).splitlines())
        return self.best[0]

    def __str__(self) -> str:
        return text_of(self)

    def data(self) -> dict[str, Any]:
        """The plan as what JSON can say."""
        searched = self.searched
        return {
            "model": {
                "name": self.costs.name, "parameters": self.costs.parameters,
                "layers": len(self.costs.layers),
                "flops_per_sample": self.costs.flops, "tokens_per_sample": self.costs.tokens,
                "precision": self.costs.precision.name, "notes": list(self.costs.notes),
            },
            "layers": [
                {
                    "name": layer.name, "parameters": layer.parameters, "forward_flops": layer.flops,
                    "saved_bytes": layer.saved, "input_bytes": layer.input,
                }
                for layer in self.costs.layers
            ],
            "device": asdict(self.device),
            "mesh": {"per_node": self.mesh.per_node, "nodes": self.mesh.nodes},
            "batch": self.batch,
            "optimizer": self.optimizer,
            "best": [data_of(prediction) for prediction in self.best],
            "tried": searched.tried if searched else 1,
            "fitting": searched.fitting if searched else int(self.best[0].fits),
            "refused": dict(searched.refused) if searched else {},
            "measured": dict(self.measured) if self.measured else None,
        }  # fmt: skip


def data_of(prediction: Prediction) -> dict[str, Any]:
    """A prediction as what JSON can say: bytes, seconds, operations."""
    return {
        "layout": asdict(prediction.layout),
        "micro_batches": prediction.micro_batches,
        "fits": prediction.fits,
        "memory": {**prediction.memory._asdict(), "total": prediction.memory.total},
        "seconds": prediction.seconds,
        "step": prediction.step,
        "tokens_per_second": prediction.tokens_per_second,
        "model_flops": prediction.flops,
        "executed_flops": prediction.executed,
        "utilisation": prediction.utilisation,
        "sent_bytes": prediction.sent,
        "links": prediction.links,
    }


def plan(
    model: ModelCosts | Module | str,
    *,
    mesh: str | int | Mesh,
    device: str | Accelerator = "h100",
    batch: int | None = None,
    example: Any = None,
    loss: Callable[..., Tensor] | None = None,
    precision: str | None = None,
    optimizer: str = "adamw",
    layout: str | Layout | None = None,
    measured: float | Mapping[str, float] | None = None,
    best: int = 10,
) -> Plan:
    """Plan a training step.

    model: costs, a text as `transformer` takes it, or a module on the meta device with its `example` (and
    `loss(model, *example)`).  mesh: "8x64" for 64 nodes of 8 devices.  device: a name of DEVICES, "cpu",
    which is measured, or an Accelerator.  batch: samples of a step over all devices; 8 for each unless given.
    precision: bf16, but fp32 on a CPU.  layout: one to look at; else all are searched, and `best` are kept.
    measured: seconds of a step that ran under the layout, in all or by kinds of `step_time.KINDS`.

    Raises PlanError for what does not divide, is not known, or makes no sense.
    """
    device = _device(device)
    precision = precision or ("fp32" if device.shared else "bf16")
    if isinstance(model, str):
        costs = transformer(model, precision=precision)
    elif isinstance(model, ModelCosts):
        costs = model
    else:
        costs = recorded(model, example, loss=loss, precision=precision)
    if costs.precision.peak not in device.peak:
        known = ", ".join(device.peak)
        raise PlanError(f"plan(precision): {device.name} has no {costs.precision.name}", f"it has: {known}")
    # processes that share a CPU are in one node, however many there are
    near = EVERY if device.shared else device.per_node
    shape = mesh if isinstance(mesh, Mesh) else Mesh.parse(mesh, near)
    states_of(optimizer)
    batch = EACH * shape.devices if batch is None else batch
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise PlanError(f"plan(batch): samples of a step, an int of at least 1, not {batch!r}")
    held = {"step": float(measured)} if isinstance(measured, (int, float)) else measured
    if held is not None and not all(seconds > 0 for seconds in held.values()):
        raise PlanError(f"plan(measured): seconds, above 0, not {measured!r}")
    if layout is not None:
        given = layout if isinstance(layout, Layout) else Layout.parse(layout)
        only = predict(costs, device, shape, given, batch, optimizer)
        return Plan(costs, device, shape, batch, optimizer, (only,), None, held)
    searched = search(costs, device, shape, batch, optimizer, best)
    return Plan(costs, device, shape, batch, optimizer, searched.best, searched, held)


def _device(device: str | Accelerator) -> Accelerator:
    if isinstance(device, Accelerator):
        return device
    return calibrate() if device == "cpu" else device_of(device)
