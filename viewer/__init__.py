"""Draws a compiled model as one page: its ops, the kernels they became, what each takes.

    lamina.jit.show(model, "model.html", x)

`python -m lamina show model.lam` does the same for files.  What is shown is gathered as plain data
(`subjects.py`, `graph_data.py`, `kernel_data.py`, `measuring.py`), which page.html draws.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.viewer")

from .show_model import show

__all__ = ["show"]
