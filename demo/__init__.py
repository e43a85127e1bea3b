"""Show Lamina at work: what `python -m lamina demo` runs."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.demo")

from .command import main

__all__ = ["main"]
