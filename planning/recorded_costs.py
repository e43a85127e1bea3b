"""The costs of a model of one's own: it is run once forward, on the meta device, which takes no memory.

What is counted comes from there (`meta_recorder.py`): each op's operands and results, products, what nodes
save for backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentError
from ..nn import Module
from ..runtime import Tensor
from ..runtime.meta import META
from .layer_costs import ModelCosts, precision_of
from .mesh_layout import PlanError
from .meta_recorder import Recorder

HEADS = ("num_heads", "n_head", "n_heads", "num_attention_heads", "nhead")


def recorded(
    model: Module,
    example: Any,
    *,
    loss: Callable[..., Tensor] | None = None,
    precision: str = "bf16",
    name: str | None = None,
) -> ModelCosts:
    """The costs of a module on the meta device, called with `example` (a tensor, or a tuple of arguments).

    The first size of the first tensor counts as the batch.  loss: called with the module and the example's
    parts in place of the module.  Raises PlanError where values are asked for, which the meta device has not.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"recorded(model): a Module, not {type(model).__name__}")
    parts = example if isinstance(example, (tuple, list)) else (example,)
    tensors = [x for x in parts if isinstance(x, Tensor)]
    if not tensors or not tensors[0].ndim or not tensors[0].shape[0]:
        raise PlanError("recorded(example): begins with a tensor whose first size is the batch")
    away = [key for key, p in model.named_parameters() if p.device != META]
    if away or any(x.device != META for x in tensors):
        raise PlanError(
            f"recorded: model and example must be on the meta device{f' ({away[0]} is not)' if away else ''}",
            "make them in a block of `with lamina.device('meta'):`",
        )
    batch = int(tensors[0].shape[0])
    recorder = Recorder(model, precision_of(precision), batch)
    with recorder.listening():
        (loss or _called)(model, *parts)
    first = tensors[0]
    sequence = first.ndim == 2 and not first.dtype.is_floating_point
    layers = recorder.layers()
    return ModelCosts(
        name or type(model).__name__,
        layers,
        recorder.precision,
        "sequence" if sequence else "sample",
        int(first.shape[1]) if sequence else 1,
        *_heads(model),
        tied=recorder.tied,
        divisors=tuple(sorted(recorder.divisors)),
        notes=(
            "recorded once, forward, on the meta device",
            "ops are kernels of their own: nothing is fused",
        ),
    )


def _called(model: Module, *parts: Any) -> Any:
    return model(*parts)


def _heads(model: Module) -> tuple[int, int]:
    found = {
        getattr(m, key) for m in model.modules() for key in HEADS if isinstance(getattr(m, key, None), int)
    }
    heads = min(found, default=0)
    return heads, heads
