"""Describe kernels, the form between a fused graph and LLVM or Triton: loops, bodies and index maps.

`parse` and `str` are the text, `verify` the rules, `interpret` the meaning in NumPy; `words` is the scalar
vocabulary, used as functions: `words.exp(x) * 2`.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.ir.kernel")

from . import philox, special, words
from .affine import Affine, as_affine
from .form import Axis, Buffer, Fold, Kernel, Local, Reduce, Store
from .interpret import check_arrays, check_indices, interpret
from .scalar import Expr, bitcast, cast, const, coordinate, op, read, ref, walk
from .substitute import Substitution, bind
from .text import parse
from .types import NUMPY
from .verify import verify
from .words import VOCABULARY, Word
