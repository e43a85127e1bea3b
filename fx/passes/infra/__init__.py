"""What passes over graph modules have in common, and what runs several."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.fx.passes.infra")

from . import pass_base, pass_manager

__all__ = ["pass_base", "pass_manager"]
