"""Choosing the next token of logits: biases, penalties, temperature, top-k, top-p, min-p, in this order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isnan
from typing import NamedTuple

import numpy as np

from ..ir.dtypes import float64
from ..ir.errors import ArgumentValueError
from ..runtime import random
from ..runtime.generator import Generator

LEAST = float(np.finfo(np.float64).smallest_subnormal)
FEW = 1024  # tokens that are sorted first: they nearly always hold all of top_p


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn.

    temperature: logits are divided by it; 0 takes the likeliest.  top_k: so many of the likeliest, 0 for
    all.  top_p: the fewest of the likeliest that together have this probability.  min_p: those that have
    this share of the likeliest's probability.  repetition_penalty: what tokens that were there are less
    likely by: positive logits are divided by it, negative ones multiplied.  presence_penalty,
    frequency_penalty: what is taken off the logits of the answer's tokens, once, and for each time that they
    came.  logit_bias: what is added, by token.  Raises ArgumentValueError.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, fits, asked in (
            ("temperature", 0 <= self.temperature < float("inf"), "a number from 0 on"),
            ("top_p", 0 < self.top_p <= 1, "above 0, up to 1"),
            ("top_k", self.top_k >= 0, "a number from 0 on"),
            ("min_p", 0 <= self.min_p <= 1, "from 0 to 1"),
            ("repetition_penalty", 0 < self.repetition_penalty < float("inf"), "above 0"),
            ("presence_penalty", isfinite(self.presence_penalty), "a number"),
            ("frequency_penalty", isfinite(self.frequency_penalty), "a number"),
            ("logit_bias", not any(map(isnan, self.logit_bias.values())), "numbers by token"),
        ):
            if not fits:
                raise ArgumentValueError(f"generate({name}): {name} is {asked}, not {getattr(self, name)}")

    def choose(
        self, logits: np.ndarray, before: Iterable[int], generator: Generator, answer: Sequence[int] = ()
    ) -> int:
        """The next token.  Shapes: logits f32[vocabulary].  before: all tokens so far.  answer: the last."""
        logits = self.weighed(logits, before, answer)
        if self.temperature == 0 or self.top_k == 1:
            return int(logits.argmax())
        tokens, chances = self.candidates(logits)
        drawn = random.rand(1, generator=generator, dtype=float64).item()
        sums = chances.cumsum()
        return int(tokens[min(np.searchsorted(sums, drawn * sums[-1], "right"), len(tokens) - 1)])

    def weighed(self, logits: np.ndarray, before: Iterable[int], answer: Sequence[int]) -> np.ndarray:
        """Logits with biases and penalties.  Shapes: f32[vocabulary] -> the same."""
        rate, once, each = self.repetition_penalty, self.presence_penalty, self.frequency_penalty
        if rate == 1.0 and not once and not each and not self.logit_bias:
            return logits
        logits = logits.copy()
        for token, bias in self.logit_bias.items():
            logits[token] += bias
        if rate != 1.0:
            seen = np.unique(np.fromiter(before, np.int64))
            known = logits[seen]
            logits[seen] = np.where(known > 0, known / rate, known * rate)
        if once or each:
            said, times = np.unique(np.array(answer, np.int64), return_counts=True)
            logits[said] -= (once + each * times).astype(logits.dtype)
        return logits

    def candidates(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that may be drawn, and their probabilities."""
        scores = logits.astype(np.float64) / self.temperature
        if not np.isfinite(scores.max()):  # so small a temperature, or logits that are no numbers
            best = np.array([logits.argmax()])
            return best, np.ones(1)
        weights = np.exp(scores - scores.max())
        count = min(self.top_k or len(weights), len(weights))
        if count == len(weights) and self.top_p == 1:  # in any order
            order = np.flatnonzero(weights >= max(self.min_p, LEAST))  # the likeliest has the weight 1
            return order, weights[order] / weights[order].sum()
        order = _likeliest(weights, count, self.top_p)
        chances = weights[order] / (weights.sum() if count == len(weights) else weights[order].sum())
        if self.top_p < 1:
            chances = chances[: np.searchsorted(chances.cumsum(), self.top_p) + 1]
        if self.min_p > 0:
            chances = chances[chances >= self.min_p * chances[0]]
        return order[: len(chances)], chances / chances.sum()


def _likeliest(weights: np.ndarray, count: int, share: float) -> np.ndarray:
    """The places of the `count` greatest weights, in order; of fewer where those have the share of all.

    Cut off at `count` is the share of the cut: 1024 tokens that have it of all have it of the cut.
    """
    few = min(FEW, count)
    best = np.argpartition(weights, len(weights) - few)[len(weights) - few :]
    if few < count and weights[best].sum() < share * weights.sum():
        best = np.arange(len(weights))
    return best[np.lexsort((best, -weights[best]))][:count]  # of equal ones the first


class Scored(NamedTuple):
    """How likely a token was.  logprob: the logarithm of its probability, as the network has it, before
    biases, penalties and temperature.  top: the likeliest tokens at its place, with theirs.
    """

    token: int
    logprob: float
    top: list[tuple[int, float]]


def scored(logits: np.ndarray, token: int, count: int) -> Scored:
    """How likely a token is.  Shapes: logits f32[vocabulary].  count: of the likeliest beside it."""
    wide = logits.astype(np.float64)
    wide -= wide.max()
    wide -= np.log(np.exp(wide).sum())
    count = min(count, len(wide))
    best = np.argpartition(-wide, count - 1)[:count] if count else np.zeros(0, np.int64)
    top = [(int(each), float(wide[each])) for each in best[np.lexsort((best, -wide[best]))]]
    return Scored(token, float(wide[token]), top)
