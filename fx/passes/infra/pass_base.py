"""A pass over a graph module: what it returns, and what is looked at before and after it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from ....nn import Module
from ...graph_module import GraphModule


class PassResult(NamedTuple):
    """What a pass returns: the module, and whether it changed anything."""

    graph_module: Module
    modified: bool


class PassBase(ABC):
    """A pass: `call` is what it does; `requires` and `ensures` raise where a module does not suit."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Run it, between both looks."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Change the module, or make another."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027 - nothing, unless a pass says more
        """Look at the module before."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027
        """Look at the module after."""


__all__ = ["PassBase", "PassResult"]
