"""Distributions of angles."""

from __future__ import annotations

import math
from math import pi
from typing import Any

from ..runtime import Tensor, no_grad, ops
from ..runtime import random as draws
from . import constraints
from .distribution import Distribution


class VonMises(Distribution):
    """Angles about `loc`, in [-pi, pi); a normal distribution's kin on the circle."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    loc: Tensor
    concentration: Tensor

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None):
        self._take(validate_args, loc=loc, concentration=concentration)

    def log_prob(self, value):
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        # exp(-k) I0(k), so that a great k stays finite
        return k * ((value - self.loc).cos() - 1) - math.log(2 * pi) - ops.special_i0e(k).log()

    def sample(self, sample_shape=()):
        with no_grad():
            shape = self._extended_shape(sample_shape)
            angle = draws.draw("random_von_mises", operand=self.concentration.expand(shape))
            return (angle + pi + self.loc) % (2 * pi) - pi

    @property
    def mean(self):
        """The circular mean."""
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        """The circular variance."""
        return 1 - ops.special_i1e(self.concentration) / ops.special_i0e(self.concentration)
