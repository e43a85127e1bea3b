"""A model that goes on from a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..ir.errors import ArgumentValueError
from ..ir.locks import cached_property
from ..jit import mark_dynamic, trace
from ..jit.observe.sizes import mark
from ..runtime import Tensor, tensor
from ..runtime.generator import Generator
from ..runtime.levels import array_of
from ..runtime.modes import no_grad
from ..runtime.tensor import tensor_of
from .attention_cache import AttentionCache
from .chat_template import ChatTemplate
from .decoder_network import Decoder
from .generating import Generation
from .guided import Guides
from .kept_network import KeptNetwork
from .token_choice import Sampling, Scored, scored
from .untrusted import CheckpointError
from .vocabulary import Vocabulary

PART = 512  # tokens of a prompt that go through the network together
FIRST = 16  # of those that it is compiled with
ROWS = 64  # of logits that are looked at together: of 151,936 words they take 39 MB


class LanguageModel:
    """A decoder with its vocabulary, as `lamina.language.load` gives it.

    network: the module, which is called with tokens.  vocabulary, template: None where the checkpoint has
    none.  context: how many tokens a prompt and its answer may have together.  Generations may run in turns
    and in threads: each has a cache of its own.
    """

    def __init__(
        self, network: Decoder, vocabulary: Vocabulary, template: ChatTemplate | None, context: int, name: str
    ):
        self.network, self.vocabulary, self.template = network, vocabulary, template
        self.context, self.name = context, name
        # One program for a prompt of any length, a single token, and a cache of any capacity.
        self.traced = trace(network, budget=None)
        self._kept = KeptNetwork(network, "tokens, and the rows that are wanted", self.traced, self._recorded)

    def __repr__(self) -> str:
        return f"<LanguageModel {self.name}, {len(self.network.layers)} layers, context {self.context}>"

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, begun as models of this kind ask for."""
        return self.vocabulary.tokens(text)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self.vocabulary.text(tokens)

    def spelled(self, token: int) -> bytes:
        """The bytes that a token adds to a text; of a special one, its name."""
        known = self.vocabulary.spellings
        return known[token] if token < len(known) else b""

    def prompt(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str:
        """A conversation as the model's chat template writes it, up to where its answer begins.

        messages: with "role" and "content" each.  more: names for the template.  Raises CheckpointError
        where there is no template, or it fails.
        """
        if self.template is None:
            raise CheckpointError(
                f"prompt(messages): {self.name} has no chat template: it continues texts",
                "hand generate() a text",
            )
        return self.template.render(messages, **more)

    def cache(self) -> AttentionCache:
        """A cache to hand to generations whose prompts begin alike, one after another."""
        return AttentionCache(self.network.config, self.context)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
        stop: Sequence[str] = (),
        seed: int | None = None,
        schema: Mapping[str, Any] | None = None,
        logprobs: int | None = None,
        cache: AttentionCache | None = None,
    ) -> Generation:
        """Go on from a text or from tokens; an iterator of pieces of text.

        temperature, top_p, top_k, min_p, penalties, logit_bias: as Sampling has them.  stop: texts that end
        the answer.  seed: of what is drawn; equal seeds give equal answers.  schema: a JSON schema that the
        answer fits, {} for any JSON.  logprobs: of so many of the likeliest tokens at each place are kept
        in `scores`, beside the one that was taken.  cache: of `cache()`, one's own for None.

        Raises ArgumentValueError for what is out of range, for a prompt that leaves no room and for a schema
        that can't be followed; MissingLibraryError for a schema without the library `llguidance`.
        """
        tokens = self.tokens(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
        bias = {int(token): float(each) for token, each in (logit_bias or {}).items()}
        self._check("generate(prompt)", tokens, logprobs)
        self._check("generate(logit_bias)", [*bias])
        if max_tokens < 0:
            raise ArgumentValueError(f"generate(max_tokens): a number from 0 on, not {max_tokens}")
        generator = Generator()
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        sampling = Sampling(
            temperature, top_p, top_k, min_p, repetition_penalty, presence_penalty, frequency_penalty, bias
        )
        cache = self.cache() if cache is None else cache
        guide = None if schema is None else self._guides.of(schema)
        return Generation(
            self._logits,
            self.vocabulary,
            cache,
            tokens,
            sampling,
            max_tokens,
            stop,
            generator,
            guide,
            logprobs,
        )

    def scores(
        self, tokens: Sequence[int], logprobs: int = 0, cache: AttentionCache | None = None
    ) -> Iterator[Scored]:
        """How likely each token is behind those before it, from the second on.

        logprobs: of so many of the likeliest at each place.  cache: as `generate` takes it, which then goes
        on from these tokens without computing them again.
        """
        self._check("scores(tokens)", tokens, logprobs)
        self._kept.ready()
        cache = self.cache() if cache is None else cache
        if not 0 < len(tokens) <= cache.longest:
            raise ArgumentValueError(f"scores(tokens): from 1 to {cache.longest} tokens, not {len(tokens)}")
        cache.tokens.clear()
        cache.reserve(len(tokens))
        for start in range(0, len(tokens), ROWS):
            part = tokens[start : start + ROWS]
            logits = self._run(part, start, cache, every=True).numpy()[0]
            cache.tokens += part
            for row, token in zip(logits, tokens[start + 1 : start + ROWS + 1]):
                yield scored(row, token, logprobs)

    def _check(self, call: str, tokens: Sequence[int], logprobs: int | None = None) -> None:
        """Raise ArgumentValueError for what is no token, or a count beyond all of them."""
        words = self.network.config.vocabulary
        if outside := [token for token in tokens if not 0 <= token < words]:
            raise ArgumentValueError(f"{call}: {outside[0]} is none of {words} tokens")
        if logprobs is not None and not 0 <= logprobs <= words:
            raise ArgumentValueError(f"{call}: logprobs is a number from 0 to {words}, not {logprobs}")

    @cached_property
    def _guides(self) -> Guides:
        return Guides(self.vocabulary, self.network.config.vocabulary)

    def _logits(self, tokens: Sequence[int], at: int, cache: AttentionCache) -> np.ndarray:
        """Run tokens from the place `at` on.  Returns f32[vocabulary], of what follows the last."""
        cache.reserve(at + len(tokens))
        for start in range(0, len(tokens), PART):
            logits = self._run(tokens[start : start + PART], at + start, cache)
        return array_of(logits)[0, -1]  # nobody else has it

    def _run(self, tokens: Sequence[int], at: int, cache: AttentionCache, every: bool = False) -> Tensor:
        """Logits behind the last token, or behind every one.  Returns f32[1, rows, vocabulary]."""
        arguments = self._arguments(tokens, at, cache, every)
        found = None if every else self._kept(*arguments)
        return self._traced(*arguments) if found is None else tensor_of(found)

    def _traced(self, *arguments: Any) -> Tensor:
        for x, dim in ((arguments[0], 1), (arguments[1], 0), (arguments[3], 0)):
            mark(x, dim, 1, None)
        for kept in chain(*arguments[2]):
            mark_dynamic(kept, 2)
        with no_grad():
            return self.traced(*arguments)

    def _arguments(self, tokens: Sequence[int], at: int, cache: AttentionCache, every: bool = False) -> tuple:
        """Of the network, as `_run` has them."""
        count = len(tokens)
        wanted = range(count) if every else [count - 1]
        return tensor([tokens]), tensor(range(at, at + count)), cache.kept, tensor(wanted)

    def _recorded(self) -> tuple:
        """Record the network; returns what it was called with.

        Code for all lengths is tuned to the length that it first meets, which is to be no single token's.
        """
        first, cache = [0] * min(FIRST, self.context), self.cache()
        args = self._arguments(first, 0, cache)
        self._traced(*args)
        return args
