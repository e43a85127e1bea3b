"""Rotary positions: frequencies with their scalings, and the rotation.

Sources: Su et al., RoFormer, arXiv 2104.09864; Peng et al., YaRN, arXiv 2309.00071; Llama 3.1's model card.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..runtime import Tensor, ops
from .untrusted import CheckpointError, Fields

SCALINGS = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True)
class Rotary:
    """frequencies: radians a token, one for each pair of a head's numbers.  scale: of cosine and sine."""

    frequencies: tuple[float, ...]
    scale: float = 1.0


def rotary_of(theta: float, width: int, scaling: Fields, longest: int) -> Rotary:
    """The rotary positions that a description asks for.

    width: of a head.  scaling: `rope_scaling` of config.json, or `rope_parameters`.  Raises CheckpointError
    for a scaling that is not among SCALINGS.
    """
    plain = 1.0 / theta ** (np.arange(0, width, 2, dtype=np.float64) / width)
    kind = scaling.word("rope_type|type", "default")
    if kind not in SCALINGS:
        raise CheckpointError(
            f"{scaling.name}: the kind {kind!r} is not known", f"known: {', '.join(SCALINGS)}"
        )
    if kind == "default":
        return Rotary(tuple(plain.tolist()))
    factor = scaling.number("factor", least=1e-3)
    if kind == "linear":
        return Rotary(tuple((plain / factor).tolist()))
    original = scaling.size("original_max_position_embeddings", longest, most=1 << 30)
    if kind == "llama3":
        slow = scaling.number("low_freq_factor", least=1e-3)
        fast = scaling.number("high_freq_factor", least=1e-3)
        if fast <= slow:
            raise CheckpointError(
                f"{scaling.name}: high_freq_factor {fast} is not above low_freq_factor {slow}"
            )
        turns = original * plain / (2 * math.pi)  # within the length of training
        kept = np.clip((turns - slow) / (fast - slow), 0.0, 1.0)
        return Rotary(tuple((plain * kept + plain / factor * (1 - kept)).tolist()))
    return _yarn(plain, theta, width, factor, original, scaling)


def _yarn(
    plain: np.ndarray, theta: float, width: int, factor: float, original: int, scaling: Fields
) -> Rotary:
    def at(turns: float) -> float:
        """The pair that turns so often within the length of training."""
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    def attenuation(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    low, high = at(scaling.number("beta_fast", 32.0, 1e-3)), at(scaling.number("beta_slow", 1.0, 1e-3))
    if scaling.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = np.clip((np.arange(width // 2) - low) / max(high - low, 1e-3), 0.0, 1.0)
    if "attention_factor" in scaling:
        scale = scaling.number("attention_factor")
    elif "mscale" in scaling and "mscale_all_dim" in scaling:
        scale = attenuation(scaling.number("mscale")) / attenuation(scaling.number("mscale_all_dim"))
    else:
        scale = attenuation(1.0)
    return Rotary(tuple((plain / factor * ramp + plain * (1 - ramp)).tolist()), scale)


def angles(rotary: Tensor, scale: float, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine.  Shapes: rotary f32[d / 2], positions i64[t] -> f32[t, d] each."""
    turned = positions.float()[:, None] * rotary
    turned = ops.cat([turned, turned], -1)
    return turned.cos() * scale, turned.sin() * scale


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the pairs (x[i], x[i + d / 2]).  Shapes: f32[..., t, d] -> the same."""
    half = x.shape[-1] // 2
    other = ops.cat([-x[..., half:], x[..., :half]], -1)
    return x * cosine + other * sine
