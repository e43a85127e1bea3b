"""What programs written for `functorch` import: `lamina.func`, and what is there for older programs only."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from .. import func
from ..func import *  # noqa: F403
from ..func import functional_call, stack_module_state, vmap
from ..ir.errors import ArgumentValueError, StateError
from ..nn.module import Module
from ..runtime import Tensor
from ..runtime.refusal import refusing_names
from ..runtime.trees import flatten, spread


class FunctionalModuleWithBuffers(Module):
    """A module as a function of its parameters and buffers, in the order of their names."""

    def __init__(self, model: Module):
        super().__init__()
        self.stateless_model = model
        self.param_names = tuple(name for name, _ in model.named_parameters())
        self.buffer_names = tuple(name for name, _ in model.named_buffers())

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """Run the module with these, in the order of their names."""
        names = (*self.param_names, *self.buffer_names)
        state = dict(zip(names, (*params, *buffers), strict=True))
        return functional_call(self.stateless_model, state, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """The same for a module without buffers."""

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        """Run the module with these, in the order of their names."""
        return super().forward(params, (), *args, **kwargs)


def _apart(model: Module, kind: type, untracked: bool) -> tuple[Any, tuple, tuple]:
    made = copy.deepcopy(model)
    params, buffers = tuple(made.parameters()), tuple(made.buffers())
    for p in params if untracked else ():
        p.requires_grad_(False)
    return kind(made), params, buffers


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple:
    """Make func(params, *args) of a module without buffers, and copies of its parameters.

    disable_autograd_tracking: these ask for no gradients.  Raises StateError for a module with buffers.
    """
    if next(model.buffers(), None) is not None:
        raise StateError(
            "make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) "
            "instead."
        )
    return _apart(model, FunctionalModule, disable_autograd_tracking)[:2]


def make_functional_with_buffers(model: Module, disable_autograd_tracking: bool = False) -> tuple:
    """Make func(params, buffers, *args) of a module, and copies of its parameters and of its buffers."""
    return _apart(model, FunctionalModuleWithBuffers, disable_autograd_tracking)


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple:
    """Make what vmap runs modules of one class with: a function, and their parameters and buffers stacked.

    Raises what stack_module_state raises.
    """
    params, buffers = stack_module_state(models)
    func = make_functional_with_buffers(models[0])[0]
    return func, *(tuple(x.detach() for x in state.values()) for state in (params, buffers))


def chunk_vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunks: int = 2
) -> Callable:
    """vmap over so many parts of the examples, one after the other: `vmap(chunk_size=…)` by their number."""
    if chunks < 1:
        raise ArgumentValueError(f"chunk_vmap(chunks): must be 1 or more, not {chunks}")

    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, dims = (
            flatten(args)[1],
            spread(in_dims, args, "vmap: in_dims is not compatible with the structure of `inputs`"),
        )
        size = next((x.shape[d] for x, d in zip(leaves, dims) if d is not None and isinstance(x, Tensor)), 1)
        return vmap(func, in_dims, out_dims, randomness, chunk_size=max(1, -(-size // chunks)))(
            *args, **kwargs
        )

    return mapped


refusing_names(globals(), __name__)

__all__ = [
    "FunctionalModule", "FunctionalModuleWithBuffers", "chunk_vmap", "combine_state_for_ensemble",
    "make_functional", "make_functional_with_buffers",
]  # fmt: skip
__all__ += func.__all__
