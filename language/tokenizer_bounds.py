"""How far a tokenizer's steps may make a text longer.

The library `tokenizers` runs what tokenizer.json describes, and a process ends where it asks for memory that
there is not: forty steps that each write a letter twice are a few lines, and a million million letters.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from .untrusted import CheckpointError

MOST_GROWTH = 1024  # characters that one may become; a normaliser of SentencePiece's makes 18 of one
MOST_ADDED = 1024  # tokens, or characters, that are put around a text
MOST_WORD = 1000  # characters of a word whose parts are looked for, in the square of them
# Steps that write a character as several of the alphabet of bytes, or as a decomposition.
WIDER = {"ByteLevel": 4, "NFKC": 18, "NFKD": 18, "NFD": 4, "NFC": 3, "Nmt": 2, "Lowercase": 2, "Metaspace": 4,
         "BertNormalizer": 4}  # fmt: skip
INSIDE = ("normalizers", "pretokenizers", "decoders", "processors")


def check_growth(tokenizer: Any, name: Any) -> None:
    """Raises CheckpointError for a tokenizer whose steps make texts too long, or take too long."""
    growth, before = 1.0, 0
    for part in (tokenizer.normalizer, tokenizer.pre_tokenizer):
        growth *= _growth(_said(part), name)
    tokens = _said(tokenizer.post_processor)
    for each in _steps(tokens):
        factor, added = _template(each)
        growth, before = growth * factor, before + added
    for total in (growth, _growth(_said(tokenizer.decoder), name)):
        if total > MOST_GROWTH:
            raise CheckpointError(
                f"{name}: its steps make a text {total:.3g} times as long, and may {MOST_GROWTH} times"
            )
    word = getattr(tokenizer.model, "max_input_chars_per_word", 0)
    if before > MOST_ADDED or word > MOST_WORD:
        raise CheckpointError(f"{name}: {before} tokens around a text, or words of {word} characters")


def _said(part: Any) -> Any:
    """What a step of the library's says of itself, as tokenizer.json has it."""
    return {} if part is None else json.loads(part.__getstate__())


def _steps(said: Any) -> list[dict[str, Any]]:
    """A step and those inside of it, which run one after another."""
    inside = [inner for key in INSIDE for inner in said.get(key, ())]
    return [each for step in inside for each in _steps(step)] if inside else [said]


def _growth(said: Any, name: Any) -> float:
    """How many characters one may become in these steps."""
    total = 1.0
    for step in _steps(said):
        kind = step.get("type")
        if kind == "Replace":
            pattern, new = step["pattern"], len(step["content"])
            whole = pattern.get("String")  # a pattern may match nothing, before each character
            total *= max(1.0, new / len(whole)) if whole else 1 + new
        elif kind == "Precompiled":
            total *= _longest(step["precompiled_charsmap"])
        elif kind == "Prepend":
            if len(step["prepend"]) > MOST_ADDED:
                raise CheckpointError(f"{name}: {len(step['prepend'])} characters before each text")
        else:
            total *= WIDER.get(kind, 1)
    return total


def _longest(charsmap: str | None) -> int:
    """The longest text that a map of SentencePiece's has for a character, in characters."""
    data = base64.b64decode(charsmap or "")
    texts = data[4 + int.from_bytes(data[:4], "little") :]
    return max((len(text.decode(errors="replace")) for text in texts.split(b"\0")), default=1) or 1


def _template(said: dict[str, Any]) -> tuple[int, int]:
    """How often a step puts a text into what becomes of it, and how many tokens around."""
    single, special = said.get("single", ()), said.get("special_tokens", {})
    if said.get("type") != "TemplateProcessing":
        return 1, 2
    times = sum("Sequence" in piece for piece in single)
    around = [len(special[p["SpecialToken"]["id"]]["ids"]) for p in single if "SpecialToken" in p]
    return max(times, 1), sum(around)
