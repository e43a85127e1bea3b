"""Serve scripts written for PyTorch: the names they use besides ops, and `python -m lamina run`."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.facade")

from . import amp, backends, compiler, cuda, fft, linalg, random, special, utils
from .modules import offer

offer()
