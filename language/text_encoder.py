"""A model that makes vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError, ArgumentValueError
from ..jit import trace
from ..jit.observe.sizes import mark
from ..runtime import Tensor, tensor
from ..runtime.modes import no_grad
from ..runtime.tensor import tensor_of
from .encoder_network import EncoderNetwork
from .kept_network import KeptNetwork
from .vocabulary import Vocabulary

FIRST = 16  # tokens of the two texts that it is compiled with


class Encoder:
    """An encoder with its vocabulary, as `lamina.language.load` gives it.

    network: the module, which is called with tokens and a mask.  longest: tokens of a text; what is beyond is
    cut off.  width: numbers of a vector.
    """

    def __init__(self, network: EncoderNetwork, vocabulary: Vocabulary, longest: int, name: str):
        self.network, self.vocabulary = network, vocabulary
        self.longest, self.name, self.width = longest, name, network.config.width
        vocabulary.tokenizer.enable_truncation(longest)
        self.traced = trace(network, budget=None)
        self._kept = KeptNetwork(network, "rows of tokens and their mask", self.traced, self._recorded)

    def __repr__(self) -> str:
        return f"<Encoder {self.name}, {self.width} wide, texts of {self.longest} tokens>"

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, cut off where it is too long."""
        return self.vocabulary.tokens(text)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self.vocabulary.text(tokens)

    def embed(self, texts: Sequence[str | Sequence[int]], batch: int = 32) -> Tensor:
        """One vector for each text, in their order.  Returns f32[n, width].

        texts: or the tokens of each.  batch: how many texts, of about equal length, go through the network
        together.
        """
        if isinstance(texts, str) or not all(isinstance(text, str | list | tuple) for text in texts):
            raise ArgumentError("embed(texts): takes a list of texts, or of lists of tokens")
        tokens = [self.tokens(x) if isinstance(x, str) else self._checked(x) for x in texts]
        order = sorted(range(len(tokens)), key=lambda at: len(tokens[at]))
        found = np.empty((len(tokens), self.width), np.float32)
        for start in range(0, len(order), batch):
            places = order[start : start + batch]
            found[places] = self._run([tokens[at] for at in places]).numpy()
        return tensor(found)

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        """Tokens that somebody else made, cut off where they are too many."""
        words = self.network.config.vocabulary
        if not tokens or any(type(token) is not int or not 0 <= token < words for token in tokens):
            raise ArgumentValueError(f"embed(texts): tokens are whole numbers below {words}, at least one")
        return [*tokens[: self.longest]]

    def _run(self, rows: list[list[int]]) -> Tensor:
        ids, mask = self.padded(rows)
        found = self._kept(ids, mask)
        return self._traced(ids, mask) if found is None else tensor_of(found)

    def _traced(self, ids: Tensor, mask: Tensor) -> Tensor:
        for x in (ids, mask):
            mark(x, 0, 1, None)
            mark(x, 1, 1, None)
        with no_grad():
            return self.traced(ids, mask)

    def _recorded(self) -> tuple:
        """Record the network for all sizes; returns what it was called with."""
        first = self.padded([[0] * min(FIRST, self.longest)] * 2)
        self._traced(*first)
        return first

    @staticmethod
    def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Rows of tokens as long as the longest, and their mask.  Returns i64[b, t] twice."""
        longest = max([1, *map(len, rows)])
        ids: Any = np.zeros((2, len(rows), longest), np.int64)
        for at, row in enumerate(rows):
            ids[0, at, : len(row)], ids[1, at, : len(row)] = row, 1
        return tensor(ids[0]), tensor(ids[1])
