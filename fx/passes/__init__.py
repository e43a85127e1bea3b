"""Offer passes over graphs."""

from . import infra, shape_prop

__all__ = ["infra", "shape_prop"]
