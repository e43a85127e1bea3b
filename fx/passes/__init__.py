"""Offer passes over graphs."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.fx.passes")

from . import infra, shape_prop

__all__ = ["infra", "shape_prop"]
