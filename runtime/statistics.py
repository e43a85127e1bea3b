"""What it took to make a compiled program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Statistics:
    """What it took to make an executable: seconds; objects that the cache had and had not; what it has."""

    compile_seconds: float = 0.0
    load_seconds: float = 0.0
    hits: int = 0
    misses: int = 0
    kernels: int = 0
    codes: int = 0
    arena: int = 0
