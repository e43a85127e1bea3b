"""Sobol sequences, which PyTorch keeps under `torch.quasirandom`; SciPy computes them (extra `scipy`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.dtypes import DType, default_dtype
from ..ir.errors import ArgumentValueError
from ..ir.lazy import load
from ..runtime import Tensor, tensor
from ..runtime.random import randint
from ..runtime.refusal import refusing_methods


class SobolEngine:
    """Draws points of the unit cube that cover it more evenly than random ones.

    dimension: of the cube, at most MAXDIM.  scramble: shuffle digits and shift points at random, which keeps
    how evenly they lie; seed: for that.  The points are PyTorch's where they aren't scrambled.
    Source: Joe and Kuo, Constructing Sobol sequences with better two-dimensional projections, 2008.
    Raises ArgumentValueError.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None):
        if not 1 <= dimension <= self.MAXDIM:
            raise ArgumentValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}], not {dimension}"
            )
        self.dimension, self.scramble, self.seed, self.num_generated = dimension, scramble, seed, 0
        drawn = randint(0, 2**31, ()).item() if scramble and seed is None else seed
        qmc: Any = load("scipy.stats.qmc", "scipy")
        self._points = qmc.Sobol(dimension, scramble=scramble, bits=self.MAXBIT, rng=drawn)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next `n` points, in the default dtype where none is given.  Shapes: [n, dimension]."""
        if n < 0 or self.num_generated + n > 2**self.MAXBIT:
            raise ArgumentValueError(f"SobolEngine.draw: {n} points after {self.num_generated}")
        found = self._points.random(n) if n else np.empty((0, self.dimension))
        self.num_generated += n
        made = tensor(found, dtype=dtype or default_dtype())
        return made if out is None else out.resize_(made.shape).copy_(made)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: DType | None = None) -> Tensor:
        """The next 2**m points, which are balanced where they make the number of all a power of 2."""
        n, total = 2**m, self.num_generated + 2**m
        if total & (total - 1):
            raise ArgumentValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Begin anew."""
        self._points.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out `n` points."""
        self._points.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        said = f", seed={self.seed}" if self.seed is not None else ""
        return f"SobolEngine(dimension={self.dimension}{', scramble=True' if self.scramble else ''}{said})"


refusing_methods((SobolEngine,), "draw", "draw_base2", "fast_forward")

__all__ = ["SobolEngine"]
