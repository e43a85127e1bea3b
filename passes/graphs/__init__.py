"""Passes over graphs, and what becomes kernels of them.

Imports `ir` and rewrites of kernels.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.passes.graphs")
