"""Generating text: the tokens of a prompt go through the network, then one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np

from ..ir.errors import ArgumentValueError
from ..runtime.generator import Generator
from .attention_cache import AttentionCache
from .guided import Guide
from .token_choice import Sampling, Scored, scored
from .vocabulary import Vocabulary

Finish = Literal["stop", "length"]
# (tokens, how many were there before, a cache) -> logits of what follows
Network = Callable[[Sequence[int], int, AttentionCache], np.ndarray]


class ContextLengthError(ArgumentValueError):
    """A prompt that leaves no room in the context.  code: what OpenAI's clients know that as."""

    code = "context_length_exceeded"


class Generation(Iterator[str]):
    """An answer as it comes: an iterator of pieces of text, none of which ends within a character.

    tokens: those of the answer so far, without the one that ended it.  scores: how likely each was, where
    that was asked for.  finish: "stop" where the model ended the answer, a stop word came or what was asked
    for was complete, "length" where there was no more room; None before.  A stop word is not told, nor is the
    beginning of a character that never was completed.
    """

    def __init__(
        self,
        network: Network,
        vocabulary: Vocabulary,
        cache: AttentionCache,
        prompt: Sequence[int],
        sampling: Sampling,
        most: int,
        stop: Sequence[str],
        generator: Generator,
        guide: Guide | None = None,
        top: int | None = None,
    ):
        if not prompt:
            raise ArgumentValueError("generate(prompt): there is no token to go on from")
        if len(prompt) >= cache.longest:
            raise ContextLengthError(
                f"generate(prompt): {len(prompt)} tokens leave no room in a context of {cache.longest}",
                "shorten the prompt, or load the model with a longer context",
            )
        self.tokens: list[int] = []
        self.scores: list[Scored] = []
        self.finish: Finish | None = None
        self.prompt, self._most = [*prompt], most
        self._network, self._vocabulary, self._cache = network, vocabulary, cache
        self._sampling, self._generator = sampling, generator
        self._stop, self._text = Until(stop), vocabulary.stream()
        self._guide, self._top = guide, top

    def __next__(self) -> str:
        while self.finish is None:
            if len(self.tokens) >= self._most or len(self.prompt) + len(self.tokens) >= self._cache.longest:
                self.finish = "length"
                break
            logits = self._logits()
            allowed = logits if self._guide is None else self._guide.allowed(logits)
            token = self._sampling.choose(allowed, self._before(), self._generator, self.tokens)
            if token in self._vocabulary.ends:
                self.finish = "stop"
                break
            self.tokens.append(token)
            if self._top is not None:
                self.scores.append(scored(logits, token, self._top))
            piece = self._stop.told(self._text.step(token))
            if self._stop.met or self._guide is not None and self._guide.complete(token):
                self.finish = "stop"
            if piece:
                return piece
        if rest := self._stop.rest():
            return rest
        raise StopIteration

    def _logits(self) -> np.ndarray:
        """Run what the cache has not seen.  Returns f32[vocabulary]."""
        text = [*self.prompt, *self.tokens] if not self.tokens else None
        cache = self._cache
        if text is not None:
            known = min(cache.keep(text), len(text) - 1)
            new = text[known:]
        else:
            known, new = len(self.prompt) + len(self.tokens) - 1, self.tokens[-1:]
        del cache.tokens[known:]
        logits = self._network(new, known, cache)
        cache.tokens += new
        return logits

    def _before(self) -> Iterator[int]:
        yield from self.prompt
        yield from self.tokens


class Until:
    """Passes text on up to a stop word; what may be the beginning of one waits."""

    def __init__(self, words: Sequence[str]):
        words = (words,) if isinstance(words, str) else tuple(words)
        if not all(isinstance(word, str) and word for word in words):
            raise ArgumentValueError(f"generate(stop): stop words are texts that aren't empty, not {words}")
        self.words, self.waiting, self.met = words, "", False

    def told(self, piece: str) -> str:
        """What can be passed on now."""
        text = self.waiting + piece
        places = [at for word in self.words if (at := text.find(word)) >= 0]
        if places:
            self.waiting, self.met = "", True
            return text[: min(places)]
        held = max((_overlap(text, word) for word in self.words), default=0)
        self.waiting = text[len(text) - held :]
        return text[: len(text) - held]

    def rest(self) -> str:
        """What still waits, when nothing more comes."""
        text, self.waiting = self.waiting, ""
        return text


def _overlap(text: str, word: str) -> int:
    """How many characters at the end of a text are the beginning of a word."""
    for length in range(min(len(word) - 1, len(text)), 0, -1):
        if text.endswith(word[:length]):
            return length
    return 0
