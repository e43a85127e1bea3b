"""OpenAI's interface for language models: completions, chats, embeddings, the list of models.

Source: platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from .bounded_json import written
from .fleet import Fleet
from .gate import call_of
from .openai_fields import CHAT, COMPLETIONS, MOST_CHOICES, Fields, messages_of, prompts_of, texts_of
from .refusals import Refusal
from .served_models import Scored
from .text_queue import Piece, Prompt, Sampling, Text, TextQueue
from .tool_calls import Listener, Tools

LOWEST = -9999.0  # what OpenAI writes where a logarithm is -inf, which JSON has no word for
Spelled = Callable[[int], bytes]


def of_chat(scores: Sequence[Scored], spelled: Spelled) -> dict[str, Any]:
    """For a choice of a chat."""

    def about(token: int, logprob: float) -> dict[str, Any]:
        spelling = spelled(token)
        return {"token": _text(spelling), "logprob": max(logprob, LOWEST), "bytes": [*spelling]}

    content = [about(s.token, s.logprob) | {"top_logprobs": [about(*each) for each in s.top]} for s in scores]
    return {"content": content, "refusal": None}


def of_completion(scores: Sequence[Scored], spelled: Spelled, start: int, prompt: int = 0) -> dict[str, Any]:
    """For a choice of a completion.

    start: characters of the text before these tokens.  prompt: 1 where the first token begins the prompt, of
    which nothing tells how likely it is.
    """
    texts = [_text(spelled(s.token)) for s in scores]
    offsets = [*accumulate(map(len, texts), initial=start)][: len(texts)]
    tops: list[dict[str, float] | None] = []
    for s in scores:
        tops.append({})
        for token, logprob in [*s.top, (s.token, s.logprob)]:
            tops[-1].setdefault(_text(spelled(token)), max(logprob, LOWEST))
    logprobs: list[float | None] = [max(s.logprob, LOWEST) for s in scores]
    logprobs[:prompt], tops[:prompt] = [None] * prompt, [None] * prompt
    return {"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}


def _text(spelling: bytes) -> str:
    return spelling.decode(errors="replace")


CHECK_EVERY = 16  # pieces, between two looks whether the client is still there


class Choices:
    """The texts that one request asks for, `n` for each prompt, as one answer or as a stream of pieces.

    is_chat: which of the two shapes the answer has.  echo: whether prompts are told, too.  tools: the
    functions that may be called, where there are any.
    """

    def __init__(
        self, queue: TextQueue, prompts: list[Prompt | Callable[[], Prompt]], sampling: Sampling,
        count: int, is_chat: bool, tell_usage: bool, echo: bool = False, tools: Tools | None = None,
    ):  # fmt: skip
        self.queue, self.is_chat, self.tell_usage, self.tools = queue, is_chat, tell_usage, tools
        seeds = [None if sampling.seed is None else sampling.seed + i for i in range(count)]
        self.jobs = [(prompt, replace(sampling, seed=seed)) for prompt in prompts for seed in seeds]
        self.count, self.texts = count, [Text(echo) for _ in self.jobs]
        self.scored = sampling.logprobs is not None
        self.object = "chat.completion" if is_chat else "text_completion"
        self.about = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": queue.name,
        }

    def usage(self) -> dict[str, int]:
        """The tokens of all texts; each prompt counts once."""
        read = sum(text.prompt_tokens for text in self.texts[:: self.count])
        made = sum(text.tokens for text in self.texts)
        return {"prompt_tokens": read, "completion_tokens": made, "total_tokens": read + made}

    async def whole(self, request: Request) -> dict:
        """One answer with all texts."""
        choices = []
        for at, (job, text) in enumerate(zip(self.jobs, self.texts, strict=True)):
            pieces: list[Piece] = []
            stream = self.queue.pieces(*job, text)
            try:
                async for piece in stream:
                    pieces.append(piece)
                    if len(pieces) % CHECK_EVERY == 0 and await request.is_disconnected():
                        raise ClientDisconnect
            finally:
                await stream.aclose()  # type: ignore[attr-defined]
            said, finish = "".join(piece.text for piece in pieces), text.finish
            content: dict[str, Any] = {"text": said}
            if self.is_chat:
                said, calls = (said, []) if self.tools is None else self.tools.calls_in(said)
                message = {"role": "assistant", "content": said or None if calls else said, "refusal": None}
                content = {"message": message | ({"tool_calls": calls} if calls else {})}
                finish = "tool_calls" if calls else finish
            scores = [each for piece in pieces for each in piece.scores]
            logprobs = self._logprobs(scores, 0, text.echo)
            choices.append({"index": at, **content, "finish_reason": finish, "logprobs": logprobs})
        return self.about | {"object": self.object, "choices": choices, "usage": self.usage()}

    async def events(self) -> AsyncIterator[bytes]:
        """The texts piece by piece, as server-sent events.  Raises Refusal for what is refused at once."""
        begun = False
        try:
            for at, (job, text) in enumerate(zip(self.jobs, self.texts, strict=True)):
                role = self._event(at, {"role": "assistant", "content": ""}, None) if self.is_chat else b""
                stream, told, first = self.queue.pieces(*job, text), 0, text.echo
                listener = None if self.tools is None else Listener(self.tools)
                try:
                    async for piece in stream:
                        begun = True
                        said = piece.text if listener is None else listener.told(piece.text)
                        logprobs = self._logprobs(piece.scores, told, first)
                        if listener is not None and not said and not piece.scores:
                            continue
                        yield role + self._event(at, said, None, logprobs)
                        role, told, first = b"", told + len(piece.text), False
                finally:
                    await stream.aclose()  # type: ignore[attr-defined]
                begun = True
                rest, calls = ("", []) if listener is None else listener.rest()
                if rest:
                    role += self._event(at, rest, None)
                for number, call in enumerate(calls):
                    role += self._event(at, {"tool_calls": [{"index": number, **call}]}, None)
                finish = "tool_calls" if calls else text.finish
                yield role + self._event(at, {} if self.is_chat else "", finish)
            if self.tell_usage:
                yield self._sent({"choices": [], "usage": self.usage()})
            yield b"data: [DONE]\n\n"
        except Refusal as refusal:
            if not begun:
                raise
            yield b"data: " + written(refusal.body("/v1")) + b"\n\n"  # where clients look for it

    def _logprobs(self, scores: Sequence[Scored], start: int, begins: bool) -> dict | None:
        """What is told of tokens behind so many characters.  begins: whether the first begins the prompt."""
        if not self.scored:
            return None
        spelled = self.queue.model.spelled
        return of_chat(scores, spelled) if self.is_chat else of_completion(scores, spelled, start, begins)

    def _event(self, index: int, content: Any, finish: str | None, logprobs: dict | None = None) -> bytes:
        if self.is_chat:
            said = {"delta": {"content": content} if isinstance(content, str) else content}
        else:
            said = {"text": content}
        choice = {"index": index, **said, "finish_reason": finish, "logprobs": logprobs}
        return self._sent({"choices": [choice]})

    def _sent(self, value: dict) -> bytes:
        kind = self.object + (".chunk" if self.is_chat else "")
        return b"data: " + written(self.about | {"object": kind} | value) + b"\n\n"


def routes(fleet: Fleet) -> list[Route]:
    """The interface's paths, for these models."""

    async def answered(request: Request, choices: Choices, stream: bool) -> Response:
        call = call_of(request, "openai")
        if not stream:
            return call.answer(written(await choices.whole(request)))
        events = choices.events()
        first = await anext(events)  # what is refused at once still has a status of its own

        async def all_events() -> AsyncIterator[bytes]:
            yield first
            async for event in events:
                yield event

        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingResponse(all_events(), media_type="text/event-stream", headers=headers)

    def told_usage(fields: Fields) -> bool:
        options = fields.given.get("stream_options")
        if options is None:
            return False
        if not isinstance(options, dict):
            raise Refusal(400, "stream_options is an object", param="stream_options")
        return Fields(options, {"include_usage"}).flag("include_usage")

    async def completions(request: Request) -> Response:
        call = call_of(request, "openai")
        fields = Fields(await call.json(), COMPLETIONS)
        queue = fleet.text(fields.given.get("model"), "text")
        call.model = queue.name
        prompts = prompts_of(fields.given.get("prompt"))
        call.read(sum(len(prompt) for prompt in prompts if isinstance(prompt, str)))
        count = fields.number("n", 1, 1, MOST_CHOICES, int)
        sampling = fields.sampling(16, fleet.bounds.max_tokens, False)
        usage, echo = told_usage(fields), fields.flag("echo")
        choices = Choices(queue, [*prompts], sampling, count, False, usage, echo)
        return await answered(request, choices, fields.flag("stream"))

    async def chat(request: Request) -> Response:
        call = call_of(request, "openai")
        fields = Fields(await call.json(), CHAT)
        queue = fleet.text(fields.given.get("model"), "text")
        call.model = queue.name
        messages = messages_of(fields.given.get("messages"))
        call.read(sum(len(message["content"]) for message in messages))
        count = fields.number("n", 1, 1, MOST_CHOICES, int)
        sampling = fields.sampling(fleet.bounds.max_tokens, fleet.bounds.max_tokens, True)
        tools, more = tools_of(fields), fields.mapping("chat_template_kwargs")
        if tools is not None:
            more = more | {"tools": tools.given}
            if (demanded := tools.schema) is not None:
                sampling = replace(sampling, schema=demanded)
        if "messages" in more:
            raise Refusal(400, "messages are a field of their own", param="chat_template_kwargs")
        prompt = lambda: queue.model.prompt(messages, **more)  # noqa: E731 - made in the text's thread
        choices = Choices(queue, [prompt], sampling, count, True, told_usage(fields), tools=tools)
        return await answered(request, choices, fields.flag("stream"))

    def tools_of(fields: Fields) -> Tools | None:
        """The functions that may be called; None where there are none, or none may be."""
        given, choice = fields.given.get("tools"), fields.given.get("tool_choice")
        if not given and choice in (None, "none", "auto"):
            return None
        several = fields.given.get("parallel_tool_calls") is None or fields.flag("parallel_tool_calls")
        tools = Tools(given or [], None if choice == "none" else choice, *([] if several else [1]))
        return None if choice == "none" else tools

    async def embeddings(request: Request) -> Response:
        call = call_of(request, "openai")
        fields = Fields(await call.json(), {"model", "input", "encoding_format", "dimensions"})
        queue = fleet.text(fields.given.get("model"), "embeddings")
        call.model = queue.name
        texts = texts_of(fields.given.get("input"))
        call.read(sum(map(len, texts)))
        form = fields.given.get("encoding_format") or "float"
        if form not in ("float", "base64"):
            raise Refusal(400, "encoding_format is float or base64", param="encoding_format")
        rows = await queue.tokens(texts)
        given = np.empty(len(rows), object)
        for at, row in enumerate(rows):
            given[at] = row
        assert queue.embed is not None
        (found,) = await queue.embed([given])
        found = found.astype(np.float32)
        if fields.given.get("dimensions") not in (None, found.shape[1]):
            raise Refusal(400, f"the vectors have {found.shape[1]} dimensions", param="dimensions")
        read = sum(map(len, rows))
        vectors = (
            [base64.b64encode(row.tobytes()).decode() for row in found]
            if form == "base64"
            else found.tolist()
        )
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(vectors)]
        usage = {"prompt_tokens": read, "total_tokens": read}
        return call.answer(written({"object": "list", "data": data, "model": queue.name, "usage": usage}))

    async def models(request: Request) -> Response:
        call_of(request, "openai")
        data = [fleet.described(name) for name in fleet.models]
        return Response(written({"object": "list", "data": data}), media_type="application/json")

    async def model(request: Request) -> Response:
        call_of(request, "openai")
        about = fleet.described(request.path_params["name"])
        return Response(written(about), media_type="application/json")

    return [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name}", model),
    ]
