"""What attention keeps of the tokens that it has seen."""

from __future__ import annotations

from itertools import chain

from ..ir.dtypes import float32
from ..runtime import Tensor, ops
from .decoder_network import DecoderConfig

SMALLEST = 128  # places


class AttentionCache:
    """Keys and values of one text, for one generation at a time.

    A later generation whose prompt begins as this text does, as the next turn of a conversation, computes
    what is new alone.  Memory grows by doubling up to `longest` places; a place takes 8 bytes for each
    layer, head of keys and number of a head.

    kept: for each layer keys and values, f32[1, key_heads, capacity, head_width].  tokens: those whose places
    are filled.
    """

    def __init__(self, config: DecoderConfig, longest: int):
        self.config, self.longest = config, longest
        self.tokens: list[int] = []
        self.kept = self._room(min(SMALLEST, longest))

    @property
    def capacity(self) -> int:
        """For how many tokens there is memory now."""
        return self.kept[0][0].shape[2]

    def _room(self, places: int) -> list[tuple[Tensor, Tensor]]:
        shape = (1, self.config.key_heads, places, self.config.head_width)
        return [
            (ops.zeros(shape, dtype=float32), ops.zeros(shape, dtype=float32)) for _ in self.config.layers
        ]

    def reserve(self, places: int) -> None:
        """Make room for so many tokens, of which there are at most `longest`."""
        capacity = before = self.capacity
        while capacity < places:
            capacity *= 2
        if capacity == before:
            return
        room = self._room(min(capacity, self.longest))
        for old, new in zip(chain(*self.kept), chain(*room)):
            new[:, :, :before] = old
        self.kept = room

    def keep(self, tokens: list[int]) -> int:
        """Forget what differs from a text's beginning; returns how many of its tokens are known."""
        same = 0
        for known, token in zip(self.tokens, tokens):
            if known != token:
                break
            same += 1
        del self.tokens[same:]  # later places hold what nothing looks at before it is written anew
        return same
