"""Programs of kernels over arrays: built, laid out, planned, written down.

Imports graphs, kernels and schedules; generators of code import this.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.passes.programs")
