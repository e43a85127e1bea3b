"""Research programs as people write them, for benchmarks/research.py.

Each is a function of (torch, trace): the library, which is PyTorch or Lamina, and what the program decorates
its hot functions with. It returns a step, which takes its number and returns a number that shows what was
computed. Nothing in a program knows which of the libraries it runs on, or whether it is traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = Callable[[int], Any]
PROGRAMS: dict[str, Callable[[Any, Callable], Step]] = {}


def program(make: Callable[[Any, Callable], Step]) -> Callable[[Any, Callable], Step]:
    """Enter a program under its function's name."""
    PROGRAMS[make.__name__] = make
    return make
