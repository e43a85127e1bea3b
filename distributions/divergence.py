"""Which function computes the divergence of two distributions.

Tracing interprets this file as a user's: what the table holds for a pair is guarded.
"""

from __future__ import annotations

from ..ir.errors import MissingError
from ..runtime import Tensor
from .distribution import Distribution
from .registry import nearest, remember


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q): what is lost, in nats, where q is taken for p.  Shapes: [*batch].

    Raises MissingError for a pair that has none.
    """
    remember(type(p), type(q))
    found = nearest[type(p)][type(q)]
    if found is None:
        raise MissingError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}",
            "register_kl enters one",
        )
    return found(p, q)
