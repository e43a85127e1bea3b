"""Answers that fit a JSON schema: which tokens may come next, by the library `llguidance`.

Source: github.com/guidance-ai/llguidance, docs/json_schema.md, says which words of JSON Schema are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..ir import lazy
from ..ir.errors import ArgumentValueError
from ..ir.locks import cached_property, fork_safe_lock
from .vocabulary import Vocabulary

MOST_SCHEMA = 1 << 18  # characters
# What may stand between the parts of JSON: models that are unsure write blanks without end.
BETWEEN = {"whitespace_pattern": r"[ \t\n]{0,32}"}


class Guides:
    """Makes guides for a vocabulary.  words: how many logits there are."""

    def __init__(self, vocabulary: Vocabulary, words: int):
        self.vocabulary, self.words = vocabulary, words
        self._lock = fork_safe_lock()

    def of(self, schema: Mapping[str, Any]) -> Guide:
        """What keeps one answer to a schema.  Raises ArgumentValueError for one that can't be followed."""
        library = lazy.load("llguidance", "language")
        try:
            text = json.dumps(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentValueError(f"generate(schema): it is no JSON: {error}") from None
        if len(text) > MOST_SCHEMA:
            raise ArgumentValueError(f"generate(schema): more than {MOST_SCHEMA:,} characters")
        with self._lock:
            tokenizer = self._tokenizer
        grammar = library.LLMatcher.grammar_from_json_schema(text, overrides=BETWEEN)
        ends = [token for token in self.vocabulary.ends if token < self.words]
        return Guide(library, tokenizer, grammar, self.words, ends)

    @cached_property
    def _tokenizer(self) -> Any:
        library = lazy.load("llguidance", "language")
        spelled = library.TokenizerWrapper(_Spelled(self.vocabulary, self.words))
        return library.LLTokenizer(spelled, n_vocab=self.words + 1)


class Guide:
    """Keeps one answer to a grammar.  ends: tokens that end answers; there may be several, or none."""

    def __init__(self, library: Any, tokenizer: Any, grammar: str, words: int, ends: list[int]):
        self._matcher, self._words = library.LLMatcher(tokenizer, grammar, log_level=0), words
        self._ends = ends
        self._look()

    def _look(self) -> None:
        if self._matcher.is_error():
            told = self._matcher.get_error().splitlines()[0][:500]
            raise ArgumentValueError(f"generate(schema): it can't be followed: {told}")

    def allowed(self, logits: np.ndarray) -> np.ndarray:
        """Logits with -inf for tokens that do not fit here.  Shapes: f32[vocabulary] -> the same."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._look()
        fits = np.unpackbits(bits, count=self._words + 1, bitorder="little").view(bool)
        fits[self._ends] = fits[-1]
        return np.where(fits[:-1], logits, np.float32(-np.inf))

    def complete(self, token: int) -> bool:
        """Take the token that was chosen; whether nothing can follow it."""
        self._matcher.consume_token(token)
        self._look()
        return self._matcher.is_stopped()


class _Spelled:
    """A vocabulary as `llguidance` asks for it, and a token behind all others that stands for every end."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary, words: int):
        known = vocabulary.spellings
        self.tokens = [*known, *[b""] * (words - len(known)), b"<|end|>"]
        self.eos_token_id = words
        added = vocabulary.tokenizer.get_added_tokens_decoder()
        self.special_token_ids = [words, *(token for token, each in added.items() if each.special)]
        self._tokenizer = vocabulary.tokenizer

    def __call__(self, text: bytes | str) -> list[int]:
        text = text.decode() if isinstance(text, bytes) else text
        return self._tokenizer.encode(text, add_special_tokens=False).ids
