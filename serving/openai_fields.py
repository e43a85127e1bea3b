"""What requests of OpenAI's interface say, each field looked at as it is taken.

What is not understood is refused by name rather than passed over.
Source: platform.openai.com/docs/api-reference; fields of vLLM's and llama.cpp's servers beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .refusals import Refusal
from .text_queue import Prompt, Sampling
from .tool_calls import Tools

MOST_CHOICES, MOST_STOPS, MOST_TEXTS = 16, 16, 2048
MOST_TOP, MOST_BIASES = 20, 1024
# What may be asked for and changes no answer.
IGNORED = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention",
}  # fmt: skip
# What is taken where it asks for nothing beyond what is done anyway.
NEUTRAL: dict[str, tuple] = {
    "suffix": (None, ""), "best_of": (None, 1),
    "modalities": (None, ["text"]), "reasoning_effort": (None,), "verbosity": (None, "medium"),
    "prediction": (None,), "functions": (None, []), "function_call": (None, "none"), "audio": (None,),
    "web_search_options": (None,),
}  # fmt: skip
SAMPLING = {
    "temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "max_tokens", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "logit_bias", "logprobs", "response_format",
}  # fmt: skip
COMMON = SAMPLING | {"model", "stream", "stream_options"}
CHAT = COMMON | {
    "messages", "max_completion_tokens", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
    "chat_template_kwargs",
}  # fmt: skip
COMPLETIONS = COMMON | {"prompt", "echo"}


class Fields:
    """The fields of a request.  Raises Refusal, which names the field."""

    def __init__(self, given: Any, known: set[str]):
        if not isinstance(given, dict):
            raise Refusal(400, "the body is an object")
        self.given = given
        for name, value in given.items():
            if name in known | IGNORED:
                continue
            if name not in NEUTRAL:
                raise Refusal(400, f"{name[:100]!r} is not known here", param=name[:100])
            if not any(
                value == each and isinstance(value, bool) == isinstance(each, bool) for each in NEUTRAL[name]
            ):
                raise Refusal(400, f"{name} is not offered here", param=name)

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

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; an empty one where there is none."""
        value = self.given.get(name)
        if value is not None and not isinstance(value, dict):
            raise Refusal(400, f"{name} is an object", param=name)
        return value or {}

    def stops(self) -> tuple[str, ...]:
        value = self.given.get("stop")
        value = [] if value is None else [value] if isinstance(value, str) else value
        fits = isinstance(value, list) and len(value) <= MOST_STOPS
        if not fits or not all(isinstance(x, str) and x for x in value):
            raise Refusal(400, f"stop is a string, or up to {MOST_STOPS} of them", param="stop")
        return tuple(value)

    def biases(self) -> dict[int, float]:
        """What is added to logits, by token."""
        value = self.mapping("logit_bias")
        fits = len(value) <= MOST_BIASES and all(
            token.isascii() and token.isdigit() and len(token) < 10 for token in value
        )
        if not fits or not all(type(x) in (int, float) and -100 <= x <= 100 for x in value.values()):
            told = f"logit_bias is numbers from -100 to 100 by token, of up to {MOST_BIASES} tokens"
            raise Refusal(400, told, param="logit_bias")
        return {int(token): float(x) for token, x in value.items()}

    def logprobs(self, is_chat: bool) -> int | None:
        """Of how many tokens at each place probabilities are wanted; None where of none at all."""
        if not is_chat:
            none = self.given.get("logprobs") is False
            return None if none else self.number("logprobs", None, 0, MOST_TOP, int)
        count = self.number("top_logprobs", 0, 0, MOST_TOP, int)
        if not self.flag("logprobs"):
            if count:
                raise Refusal(400, "top_logprobs goes with logprobs: true", param="top_logprobs")
            return None
        return count

    def schema(self) -> Mapping[str, Any] | None:
        """The JSON schema that an answer is to fit; None where it may be any text."""
        form = self.mapping("response_format")
        kind = form.get("type", "text")
        if kind not in ("text", "json_object", "json_schema"):
            told = "the type of response_format is text, json_object or json_schema"
            raise Refusal(400, told, param="response_format")
        if kind == "text":
            return None
        inner = form.get("json_schema") if kind == "json_schema" else form
        schema = inner.get("schema") if isinstance(inner, dict) else None
        if kind == "json_object" and schema is None:
            return {"type": "object"}
        if not isinstance(schema, dict):
            told = "response_format is {type: json_schema, json_schema: {name, schema}}"
            raise Refusal(400, told, param="response_format")
        return schema

    def sampling(self, default_tokens: int, most_tokens: int, is_chat: bool) -> Sampling:
        completion = is_chat and self.given.get("max_completion_tokens") is not None
        name = "max_completion_tokens" if completion else "max_tokens"
        least = 1 if is_chat else 0
        top_p, top_k = self.number("top_p", 1.0, 0, 1), self.number("top_k", 0, -1, 1 << 31, int)
        return Sampling(
            self.number(name, min(default_tokens, most_tokens), least, most_tokens, int),
            self.number("temperature", 1.0, 0, 2),
            top_p or 1.0,
            max(top_k, 0) if top_p else 1,  # of a share of nothing the likeliest is left; vLLM's -1 is all
            self.number("min_p", 0.0, 0, 1),
            self.number("repetition_penalty", 1.0, 0.01, 100),
            self.number("presence_penalty", 0.0, -2, 2),
            self.number("frequency_penalty", 0.0, -2, 2),
            self.biases(),
            self.stops(),
            self.number("seed", None, -(1 << 63), (1 << 63) - 1, int),
            self.schema(),
            self.logprobs(is_chat),
        )


def prompts_of(value: Any) -> list[Prompt]:
    """The prompts of a completion: one or several texts, or lists of tokens.  Raises Refusal."""
    if isinstance(value, str) or isinstance(value, list) and value and type(value[0]) is int:
        value = [value]
    if isinstance(value, list) and 0 < len(value) <= MOST_CHOICES:
        if all(isinstance(x, str) for x in value) or _are_tokens(value):
            return value
    raise Refusal(
        400, f"prompt is a text or a list of tokens, or up to {MOST_CHOICES} of either", param="prompt"
    )


def texts_of(value: Any) -> list[Prompt]:
    """What to embed: one or several texts, or lists of tokens.  Raises Refusal."""
    if isinstance(value, str) or isinstance(value, list) and value and type(value[0]) is int:
        value = [value]
    if isinstance(value, list) and 0 < len(value) <= MOST_TEXTS:
        if all(isinstance(x, str) for x in value) or _are_tokens(value):
            return value
    raise Refusal(400, f"input is a text or a list of tokens, or up to {MOST_TEXTS} of either", param="input")


def _are_tokens(value: list) -> bool:
    return all(isinstance(x, list) and x and set(map(type, x)) == {int} for x in value)


def messages_of(value: Any) -> list[dict]:
    """The messages of a chat, with plain texts.  Raises Refusal."""
    if not isinstance(value, list) or not value:
        raise Refusal(400, "messages is a list of objects with role and content", param="messages")
    return [_message(message, f"messages[{at}]") for at, message in enumerate(value)]


def _message(message: Any, where: str) -> dict:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Refusal(400, f"{where} is an object with role and content", param=where)
    role = "system" if message["role"] == "developer" else message["role"]
    if role not in ("system", "user", "assistant", "tool"):
        raise Refusal(
            400, f"the role of {where} is system, user, assistant or tool, not {role[:50]!r}", param=where
        )
    calls = Tools.called(message.get("tool_calls"), where) if role == "assistant" else []
    content = message.get("content")
    if isinstance(content, list) and all(map(_is_text, content)):
        content = "".join(x["text"] for x in content)
    if content is None and calls:
        content = ""
    if not isinstance(content, str):
        raise Refusal(400, f"the content of {where} is a text, or a list of parts of type text", param=where)
    found = {"role": role, "content": content} | ({"tool_calls": calls} if calls else {})
    for name in ("tool_call_id", "name"):
        if isinstance(message.get(name), str):
            found[name] = message[name]
    return found


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
