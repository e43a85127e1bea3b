"""JSON of strangers: what it will cost is counted before it is parsed, and what parsing gives is checked.

Numbers that JSON has no word for are the strings "NaN", "Infinity" and "-Infinity", in and out, as in
Protocol Buffers' JSON; the bare words, which Python's parser takes, are refused.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np

from .refusals import Refusal

# What a value takes in Python at most, beyond its text: an empty list or dict in a list of its own, with what
# the garbage collector notes of both.  tests/serving/test_bounded_json.py measures the dearest texts.
BYTES_PER_VALUE = 200
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DEPTH = np.zeros(256, np.int8)
_DEPTH[[*b"[{"]], _DEPTH[[*b"]}"]] = 1, -1


def count(text: bytes) -> int:
    """How many values a text holds at most: each follows a comma, a colon, or what opens a list or an object.

    What stands in strings is counted along, so the bound may be too high, never too low.
    """
    return 1 + sum(map(text.count, (b",", b":", b"[", b"{")))


def parsed(text: bytes, values: int, depth: int) -> Any:
    """What a JSON text says.  Raises Refusal for one that holds more than so many values, or is deeper."""
    most = count(text)
    if most > values:
        raise Refusal(
            413, f"the JSON holds up to {most:,} values, more than {values:,}: send arrays as binary"
        )
    if text.count(b"[") + text.count(b"{") > depth and nesting(text) > depth:
        raise Refusal(400, f"the JSON is nested deeper than {depth}")
    try:
        return _STRICT.decode(text.decode())
    except RecursionError:
        raise Refusal(400, f"the JSON is nested deeper than {depth}") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, an int of thousands of digits
        raise Refusal(400, f"the body is no JSON: {str(error)[:200]}") from None


def nesting(text: bytes) -> int:
    """How deep lists and objects are nested at most, by their brackets outside of strings."""
    if b"\\" in text:
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(text.split(b'"')[::2])
    steps = _DEPTH[np.frombuffer(outside, np.uint8)]
    return int(np.cumsum(steps, dtype=np.int64).max(initial=0))


def _no_word(word: str) -> Any:
    raise ValueError(f'{word} is no word of JSON: write "{word}", a string')


def written(value: Any) -> bytes:
    """The JSON text of a value of lists, dicts, strings and numbers."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()
    except ValueError:  # what is not finite; or half of a surrogate pair, which came in as an escape
        return json.dumps(_spelled(value), separators=(",", ":")).encode()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, whose keys differ: of two that are equal one would be passed over."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice[:100]!r} comes twice in an object")
    return found


_STRICT = json.JSONDecoder(parse_constant=_no_word, object_pairs_hook=_object)


def _spelled(value: Any) -> Any:
    """The value with strings for numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _spelled(each) for key, each in value.items()}
    return [*map(_spelled, value)] if isinstance(value, list) else value
