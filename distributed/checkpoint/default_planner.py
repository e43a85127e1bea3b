"""The planners under the name of the module that PyTorch has them in."""

from .planner import DefaultLoadPlanner, DefaultSavePlanner

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner"]
