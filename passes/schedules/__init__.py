"""How kernels run on a target: schedules as lists of steps, and how they are chosen.

Imports `ir` and passes over kernels; generators of code import this.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.passes.schedules")
