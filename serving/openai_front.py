"""OpenAI's interface for language models: completions, chats, embeddings, the list of models.

What is not understood is refused by name rather than passed over.
Source: platform.openai.com/docs/api-reference.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from .bounded_json import written
from .fleet import Fleet
from .gate import call_of
from .refusals import Refusal
from .text_queue import Prompt, Sampling, Text, TextQueue

MOST_CHOICES, MOST_STOPS, MOST_TEXTS = 16, 16, 2048
CHECK_EVERY = 16  # pieces, between two looks whether the client is still there
# What may be asked for and changes no answer.
IGNORED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
# What is taken where it asks for nothing beyond what is done anyway.
NEUTRAL: dict[str, tuple] = {
    "logprobs": (None, False), "top_logprobs": (None, 0), "echo": (None, False), "suffix": (None, ""),
    "best_of": (None, 1), "presence_penalty": (None, 0), "frequency_penalty": (None, 0),
    "logit_bias": (None, {}), "tools": (None, []), "tool_choice": (None, "none"),
    "response_format": (None, {"type": "text"}), "parallel_tool_calls": (None, True, False),
    "modalities": (None, ["text"]), "reasoning_effort": (None,),
}  # fmt: skip
COMMON = {
    "model",
    "temperature",
    "top_p",
    "top_k",
    "n",
    "stream",
    "stream_options",
    "stop",
    "seed",
    "max_tokens",
}


class Fields:
    """The fields of a request, each looked at as it is taken.  Raises Refusal, which names the field."""

    def __init__(self, given: Any, known: set[str]):
        if not isinstance(given, dict):
            raise Refusal(400, "the body is an object")
        self.given = given
        for name, value in given.items():
            if name in NEUTRAL and not any(
                value == each and isinstance(value, bool) == isinstance(each, bool) for each in NEUTRAL[name]
            ):
                raise Refusal(400, f"{name} is not offered here", param=name)
            if name not in known | IGNORED | NEUTRAL.keys():
                raise Refusal(400, f"{name[:100]!r} is not known here", param=name[:100])

    def number(self, name: str, default: Any, least: float, most: float, kind: type = float) -> Any:
        """A number within bounds; an int where `kind` says so."""
        value = self.given.get(name)
        if value is None:
            return default
        kinds = (int,) if kind is int else (int, float)
        if type(value) not in kinds or not least <= value <= most:
            what = "a whole number" if kind is int else "a number"
            raise Refusal(
                400, f"{name} is {what} from {least:g} to {most:g}, not {str(value)[:50]}", param=name
            )
        return value

    def flag(self, name: str) -> bool:
        value = self.given.get(name)
        if value not in (None, True, False) or type(value) in (int, float):
            raise Refusal(400, f"{name} is true or false", param=name)
        return bool(value)

    def stops(self) -> tuple[str, ...]:
        value = self.given.get("stop")
        value = [] if value is None else [value] if isinstance(value, str) else value
        fits = isinstance(value, list) and len(value) <= MOST_STOPS
        if not fits or not all(isinstance(x, str) and x for x in value):
            raise Refusal(400, f"stop is a string, or up to {MOST_STOPS} of them", param="stop")
        return tuple(value)

    def sampling(self, default_tokens: int, most_tokens: int) -> Sampling:
        name = "max_completion_tokens" if "max_completion_tokens" in self.given else "max_tokens"
        return Sampling(
            self.number(name, min(default_tokens, most_tokens), 1, most_tokens, int),
            self.number("temperature", 1.0, 0, 2),
            self.number("top_p", 1.0, 0, 1),
            self.number("top_k", 0, 0, 1 << 31, int),
            self.stops(),
            self.number("seed", None, -(1 << 63), (1 << 63) - 1, int),
        )


def prompts_of(value: Any) -> list[Prompt]:
    """The prompts of a completion: one or several texts, or lists of tokens.  Raises Refusal."""
    if isinstance(value, str) or isinstance(value, list) and value and type(value[0]) is int:
        value = [value]
    if isinstance(value, list) and 0 < len(value) <= MOST_CHOICES:
        if all(isinstance(x, str) for x in value):
            return value
        if all(isinstance(x, list) and x and set(map(type, x)) == {int} for x in value):
            return value
    raise Refusal(
        400, f"prompt is a text or a list of tokens, or up to {MOST_CHOICES} of either", param="prompt"
    )


def texts_of(value: Any) -> list[str]:
    """The texts to embed: one or several.  Raises Refusal."""
    value = [value] if isinstance(value, str) else value
    if isinstance(value, list) and 0 < len(value) <= MOST_TEXTS and all(isinstance(x, str) for x in value):
        return value
    raise Refusal(400, f"input is a text, or a list of up to {MOST_TEXTS} of them", param="input")


def messages_of(value: Any) -> list[dict]:
    """The messages of a chat, with plain texts.  Raises Refusal."""
    if not isinstance(value, list) or not value:
        raise Refusal(400, "messages is a list of objects with role and content", param="messages")
    found = []
    for at, message in enumerate(value):
        where = f"messages[{at}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Refusal(400, f"{where} is an object with role and content", param=where)
        role = "system" if message["role"] == "developer" else message["role"]
        if role not in ("system", "user", "assistant"):
            raise Refusal(
                400, f"the role of {where} is system, user or assistant, not {role[:50]!r}", param=where
            )
        content = message.get("content")
        if isinstance(content, list) and all(
            isinstance(x, dict) and x.get("type") == "text" and isinstance(x.get("text"), str)
            for x in content
        ):
            content = "".join(x["text"] for x in content)
        if not isinstance(content, str):
            raise Refusal(
                400, f"the content of {where} is a text, or a list of parts of type text", param=where
            )
        found.append({"role": role, "content": content})
    return found


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


class Choices:
    """The texts that one request asks for, `n` for each prompt, as one answer or as a stream of pieces.

    is_chat: which of the two shapes the answer has.
    """

    def __init__(
        self, queue: TextQueue, prompts: list[Prompt | Callable[[], Prompt]], sampling: Sampling,
        count: int, is_chat: bool, tell_usage: bool,
    ):  # fmt: skip
        self.queue, self.is_chat, self.tell_usage = queue, is_chat, tell_usage
        seeds = [None if sampling.seed is None else sampling.seed + i for i in range(count)]
        self.jobs = [
            (prompt, Sampling(**{**vars(sampling), "seed": seed})) for prompt in prompts for seed in seeds
        ]
        self.count, self.texts = count, [Text() for _ in self.jobs]
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
            pieces: list[str] = []
            stream = self.queue.pieces(*job, text)
            try:
                async for piece in stream:
                    pieces.append(piece)
                    if len(pieces) % CHECK_EVERY == 0 and await request.is_disconnected():
                        raise ClientDisconnect
            finally:
                await stream.aclose()  # type: ignore[attr-defined]
            said = "".join(pieces)
            content = {"message": {"role": "assistant", "content": said}} if self.is_chat else {"text": said}
            choices.append({"index": at, **content, "finish_reason": text.finish, "logprobs": None})
        return self.about | {"object": self.object, "choices": choices, "usage": self.usage()}

    async def events(self) -> AsyncIterator[bytes]:
        """The texts piece by piece, as server-sent events.  Raises Refusal for what is refused at once."""
        begun = False
        try:
            for at, (job, text) in enumerate(zip(self.jobs, self.texts, strict=True)):
                role = self._event(at, {"role": "assistant", "content": ""}, None) if self.is_chat else b""
                stream = self.queue.pieces(*job, text)
                try:
                    async for piece in stream:
                        begun = True
                        yield role + self._event(at, piece, None)
                        role = b""
                finally:
                    await stream.aclose()  # type: ignore[attr-defined]
                begun = True
                yield role + self._event(at, {} if self.is_chat else "", text.finish)
            if self.tell_usage:
                yield self._sent({"choices": [], "usage": self.usage()})
            yield b"data: [DONE]\n\n"
        except Refusal as refusal:
            if not begun:
                raise
            yield b"data: " + written(refusal.body("/v1")) + b"\n\n"  # where clients look for it

    def _event(self, index: int, content: Any, finish: str | None) -> bytes:
        if self.is_chat:
            said = {"delta": {"content": content} if isinstance(content, str) else content}
        else:
            said = {"text": content}
        return self._sent({"choices": [{"index": index, **said, "finish_reason": finish, "logprobs": None}]})

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
        fields = Fields(await call.json(), COMMON | {"prompt"})
        queue = fleet.text(fields.given.get("model"), "text")
        call.model = queue.name
        prompts = prompts_of(fields.given.get("prompt"))
        call.read(sum(len(prompt) for prompt in prompts if isinstance(prompt, str)))
        count = fields.number("n", 1, 1, MOST_CHOICES, int)
        sampling = fields.sampling(16, fleet.bounds.max_tokens)
        choices = Choices(queue, [*prompts], sampling, count, False, told_usage(fields))
        return await answered(request, choices, fields.flag("stream"))

    async def chat(request: Request) -> Response:
        call = call_of(request, "openai")
        fields = Fields(await call.json(), COMMON | {"messages", "max_completion_tokens"})
        queue = fleet.text(fields.given.get("model"), "text")
        call.model = queue.name
        messages = messages_of(fields.given.get("messages"))
        call.read(sum(len(message["content"]) for message in messages))
        count = fields.number("n", 1, 1, MOST_CHOICES, int)
        sampling = fields.sampling(fleet.bounds.max_tokens, fleet.bounds.max_tokens)
        prompt = lambda: queue.model.prompt(messages)  # noqa: E731 - made in the text's thread
        choices = Choices(queue, [prompt], sampling, count, True, told_usage(fields))
        return await answered(request, choices, fields.flag("stream"))

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
        given = np.empty(len(texts), object)
        given[:] = texts
        assert queue.embed is not None
        (found,) = await queue.embed([given])
        found = found.astype(np.float32)
        if fields.given.get("dimensions") not in (None, found.shape[1]):
            raise Refusal(400, f"the vectors have {found.shape[1]} dimensions", param="dimensions")
        read = await queue.counted(texts)
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
