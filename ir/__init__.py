"""Say what a computation is: types, values, graphs, their text form and verifier, and the operator set."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.ir")

from .dims import Condition, Dim, conditions, symbol
from .fused import fused
from .graph import Builder, Constant, Graph, Node, Value
from .interpret import interpret
from .printing import graph_text
from .specialise import specialise
from .text import parse
from .types import Device, Type, type_of
from .verify import verify
