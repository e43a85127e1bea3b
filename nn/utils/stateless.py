"""Call a module with other parameters than its own, by PyTorch's older place and argument names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runtime import Tensor
from .. import stateless as func
from ..module import Module

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """As `lamina.func.functional_call`, which tells more."""
    return func.functional_call(
        module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict
    )


_functional_call = functional_call  # as programs called it that let weights be untied
