"""Texts in the making: each in a thread, so many at once, others wait; and texts that become vectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from ..ir.errors import LaminaError
from ..runtime import Tensor
from ..runtime.modes import no_grad
from .batcher import Batcher
from .bounds import Bounds
from .meters import QUEUE, TOKENS
from .refusals import Refusal, busy
from .served_models import Scored, TextModel

Prompt = str | list[int]


@dataclass(frozen=True)
class Sampling:
    """How a text is drawn, as `generate` takes it."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    seed: int | None = None
    schema: Mapping[str, Any] | None = None
    logprobs: int | None = None


class Piece(NamedTuple):
    """A part of a text.  scores: of the tokens since the part before, where they were asked for."""

    text: str
    scores: Sequence[Scored] = ()


class _Encoding:
    """An encoder as the batcher runs it: an array of texts is one input, each a row."""

    def __init__(self, model: TextModel, most_rows: int):
        self.name, self.most_rows, self._model = model.name, most_rows, model.model

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with no_grad():
            found = self._model.embed([*arrays[0]])
        return [found.numpy() if isinstance(found, Tensor) else np.asarray(found)]


class Text:
    """One text: its pieces as they come, from any thread to the event loop.

    echo: whether the prompt is its first piece.  finish: "stop" or "length", once all pieces came.
    prompt_tokens, tokens: how many were read and written.
    """

    def __init__(self, echo: bool = False) -> None:
        self.echo, self.finish, self.prompt_tokens, self.tokens = echo, "", 0, 0
        self.unwanted = False  # nobody waits for it any more: its thread ends at the next piece
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[Piece | None | BaseException] = asyncio.Queue()

    def hand_over(self, piece: Piece | None | BaseException) -> None:
        self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)

    async def next(self) -> Piece | None:
        """The next piece; None after the last.  Raises what ended it."""
        piece = await self._pieces.get()
        if isinstance(piece, BaseException):
            raise piece
        return piece


class _First(NamedTuple):
    """The first token of a prompt, of which nothing tells how likely it is."""

    token: int
    logprob: float = 0.0
    top: Sequence[tuple[int, float]] = ()


class TextQueue:
    """A language model, or an encoder, with the requests that wait for it."""

    def __init__(self, served: TextModel, bounds: Bounds):
        self.name, self.model, self.bounds = served.name, served.model, bounds
        self.waiting = 0
        self._seconds = 1.0  # that a text takes, of late
        self._places = asyncio.Semaphore(bounds.generations)
        self._threads = ThreadPoolExecutor(bounds.generations, f"texts of {served.name}")
        self._length = QUEUE.labels(served.name)
        self.embed = Batcher(_Encoding(served, bounds.batch), bounds) if served.kind == "embeddings" else None

    async def pieces(
        self, prompt: Prompt | Callable[[], Prompt], sampling: Sampling, text: Text
    ) -> AsyncIterator[Piece]:
        """The pieces of a text, in order.  prompt: or what makes it, run in the text's thread.

        Raises Refusal: too many wait, it took too long, the model does not take it.
        """
        if self.waiting >= self.bounds.queue:
            raise busy(f"{self.waiting} requests wait for {self.name}", self._expected())
        until = asyncio.get_running_loop().time() + self.bounds.generate_timeout
        try:
            await self._place(until)
            started = monotonic()
            job = asyncio.get_running_loop().run_in_executor(
                self._threads, self._write, prompt, sampling, text
            )
            job.add_done_callback(lambda _: self._places.release())
            while True:  # a block of its own for each piece: who asks for the next may be another task
                async with asyncio.timeout_at(until):
                    piece = await text.next()
                if piece is None:
                    break
                yield piece
            self._seconds = 0.8 * self._seconds + 0.2 * (monotonic() - started)
        except TimeoutError:
            told = f"{self.name} did not end the text within {self.bounds.generate_timeout:g} s"
            raise Refusal(504, told) from None
        finally:
            text.unwanted = True

    async def _place(self, until: float) -> None:
        self.waiting += 1
        self._length.set(self.waiting)
        try:
            async with asyncio.timeout_at(until):
                await self._places.acquire()
        finally:
            self.waiting -= 1
            self._length.set(self.waiting)

    def _expected(self) -> float:
        return self._seconds * self.waiting / self.bounds.generations

    def _write(self, prompt: Prompt | Callable[[], Prompt], sampling: Sampling, text: Text) -> None:
        """Write a text, in a thread.  What goes wrong is handed over."""
        made: Any = None
        try:
            with no_grad():
                given = prompt() if callable(prompt) else prompt
                if isinstance(given, str) and len(given) > 2 * self.bounds.characters:  # by a chat template
                    told = f"the prompt has {len(given):,} characters, more than can be read"
                    raise Refusal(413, told)
                how = vars(sampling)
                if text.echo:
                    given, how = self._echoed(given, sampling, text)
                made = self.model.generate(given, **how)
                text.prompt_tokens, scored = len(made.prompt), 0
                for piece in made:
                    if text.unwanted:
                        return
                    text.hand_over(Piece(piece, made.scores[scored:]))
                    scored = len(made.scores)
            text.finish, text.tokens = made.finish or "stop", len(made.tokens)
            TOKENS.labels(self.name, "prompt").inc(text.prompt_tokens)
            TOKENS.labels(self.name, "completion").inc(text.tokens)
            text.hand_over(None)
        except (LaminaError, ValueError, TypeError) as error:
            told, code = getattr(error, "rule", None) or str(error), getattr(error, "code", None)
            refused = Refusal(400, f"{self.name}: {told[:1000]}", code=code)
            text.hand_over(error if isinstance(error, Refusal) else refused)
        except BaseException as error:
            text.hand_over(error)
        finally:
            if hasattr(made, "close"):
                made.close()

    def _echoed(self, prompt: Prompt, sampling: Sampling, text: Text) -> tuple[list[int], dict[str, Any]]:
        """Hand the prompt over.  Returns its tokens, and how to go on from them."""
        tokens = self.model.tokens(prompt) if isinstance(prompt, str) else prompt
        told = prompt if isinstance(prompt, str) else self.model.text(prompt)
        if sampling.logprobs is None:
            text.hand_over(Piece(told))
            return tokens, vars(sampling)
        cache, scores = self.model.cache(), []
        for each in self.model.scores(tokens, sampling.logprobs, cache):
            if text.unwanted:
                break
            scores.append(each)
        text.hand_over(Piece(told, [_First(tokens[0]), *scores]))
        return tokens, vars(sampling) | {"cache": cache}

    async def tokens(self, texts: Sequence[Prompt]) -> list[list[int]]:
        """The tokens of each text.  In a thread, for it may take seconds."""
        rows = lambda: [self.model.tokens(x) if isinstance(x, str) else x for x in texts]  # noqa: E731
        return await asyncio.get_running_loop().run_in_executor(self._threads, rows)

    @property
    def busy_since(self) -> float | None:
        return self.embed.busy_since if self.embed else None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self.embed:
            self.embed.close()
