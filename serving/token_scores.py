"""How likely tokens were, in the two shapes that OpenAI's interface has for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from .served_models import Scored

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
