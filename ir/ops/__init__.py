"""Hold the operator set: one record an operator, and nothing about an operator anywhere else.

Every module of this folder belongs to the set: a new file needs no entry in a list.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.ir.ops")

from importlib import import_module
from pkgutil import iter_modules

for _module in sorted(m.name for m in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
