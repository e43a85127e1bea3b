"""Operators on strings, which are arrays of Python's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ....runtime.allowance import afford
from ..declared import Node, OnnxError
from .registry import Value, as_host, operator

PER_TEXT, PER_CHARACTER = 64, 4  # bytes that a string takes, at the most
MOST = 1 << 32  # elements of a result whose size a number in a file tells


def _texts(node: Node, x: Value) -> np.ndarray:
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "OU":
        raise OnnxError(
            f"{node.op}: strings are wanted, not {getattr(x, 'dtype', type(x).__name__)}", str(node)
        )
    return x.astype(object)


def _each(function: Callable[[str], Any], x: np.ndarray, kind: Any) -> np.ndarray:
    """What a function makes of each string."""
    found = np.empty(x.size, kind)
    for n, text in enumerate(x.reshape(-1)):
        found[n] = function(text)
    return found.reshape(x.shape)


@operator("StringConcat", raw=True)
def string_concat(node: Node, x: Value, y: Value) -> np.ndarray:
    left, right = np.broadcast_arrays(_texts(node, x), _texts(node, y))
    afford((left.size,), PER_TEXT, node.op)
    afford((sum(map(len, left.flat)) + sum(map(len, right.flat)),), PER_CHARACTER, node.op)
    return np.asarray(left + right, object)


@operator("StringSplit", raw=True)
def string_split(node: Node, x: Value) -> tuple[np.ndarray, np.ndarray]:
    """The parts of each string, with empty ones after the last, and how many they are."""
    between, most = node.attr("delimiter", "") or None, node.attr("maxsplit", -1)
    parts = _each(lambda text: text.split(between, most), _texts(node, x), object)
    counts = _each(len, parts, np.int64)
    afford((parts.size, counts.max(initial=0)), 8, node.op)
    found = np.full((parts.size, counts.max(initial=0)), "", object)
    for row, own in zip(found, parts.reshape(-1), strict=True):
        row[: len(own)] = own
    return found.reshape(*parts.shape, -1) if parts.size else found.reshape(*parts.shape, 0), counts


CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@operator("StringNormalizer", raw=True)
def string_normalizer(node: Node, x: Value) -> np.ndarray:
    """Strings but for those to be left out, in another case: Unicode's, whatever `locale` says."""
    texts, action = _texts(node, x), node.attr("case_change_action", "NONE")
    if action not in CASES:
        raise OnnxError(f"{node.op}: {action!r} is none of {', '.join(CASES)}", str(node))
    if texts.ndim != 1 and (texts.ndim != 2 or len(texts) != 1):
        raise OnnxError(
            f"{node.op}: strings of shape [n] or [1, n] are wanted, not {[*texts.shape]}", str(node)
        )
    key = str if node.attr("is_case_sensitive", 0) else str.lower
    dropped = {key(word) for word in node.attr("stopwords", ())}
    kept = [CASES[action](text) for text in texts.reshape(-1) if key(text) not in dropped]
    return np.array(kept or [""], object).reshape((1,) * (texts.ndim - 1) + (-1,))


@operator("RegexFullMatch", raw=True)
def regex_full_match(node: Node, x: Value) -> np.ndarray:
    matches = _matcher(node)
    return _each(lambda text: bool(matches(text)), _texts(node, x), bool)


def _matcher(node: Node) -> Callable[[str], Any]:
    """The node's pattern, as RE2 has it: in linear time, where Python's own may hang."""
    try:
        import re2  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OnnxError(f"{node.op} needs the package google-re2", "pip install 'lamina[onnx]'") from error
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(node.attr("pattern", ""), options).fullmatch
    except re2.error as error:
        raise OnnxError(f"{node.op}: {node.attr('pattern', '')!r} is no pattern of RE2", str(error)) from None


def _grams(node: Node) -> dict[tuple[Any, ...], int]:
    """The number of each n-gram of the pool that is of a length to be looked for."""
    pool = node.attr("pool_strings") or node.attr("pool_int64s") or ()
    least, most = node.attrs["min_gram_length"], node.attrs["max_gram_length"]
    found, known = {}, 0
    for size, (start, end) in enumerate(pairwise((*node.attrs["ngram_counts"], len(pool))), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % size:
            raise OnnxError(f"{node.op}: {start} to {end} of the pool are no {size}-grams", str(node))
        for at in range(start, end, size):
            if least <= size <= most:
                found[pool[at : at + size]] = known
            known += 1
    return found


def _standing(line: list[Any], sizes: list[int], skipped: int) -> Iterator[tuple[Any, ...]]:
    """The n-grams of a row, with none to `skipped` elements between two of theirs; 1-grams once."""
    for apart in range(1, min(skipped, len(line)) + 2):
        for size in sizes:
            reach = apart * (size - 1)
            for start in range(len(line) - reach if size > 1 or apart == 1 else 0):
                yield tuple(line[start : start + reach + 1 : apart])


@operator("TfIdfVectorizer", raw=True)
def tf_idf_vectorizer(node: Node, x: Value) -> np.ndarray:
    """How often each n-gram of the pool stands in a row, or its weight where it does, or both multiplied."""
    grams, columns, mode = _grams(node), node.attrs["ngram_indexes"], node.attrs["mode"]
    weights = node.attr("weights") or (1.0,) * len(columns)
    if (
        min(columns, default=0) < 0
        or max(grams.values(), default=-1) >= len(columns)
        or len(weights) != len(columns)
    ):
        raise OnnxError(f"{node.op}: {len(columns)} indexes and {len(weights)} weights of n-grams", str(node))
    rows, width = as_host(x), max(columns, default=-1) + 1
    if mode not in ("TF", "IDF", "TFIDF") or rows.ndim > 2 or width * max(1, prod(rows.shape[:-1])) > MOST:
        raise OnnxError(f"{node.op}: the mode {mode!r} of {[*rows.shape]} in {width} columns", str(node))
    afford((max(1, prod(rows.shape[:-1])), width), 4, node.op)
    lines = rows.reshape((prod(rows.shape[:-1]), rows.shape[-1] if rows.ndim else 1))
    found = np.zeros((len(lines), width), np.float32)
    sizes = sorted({*map(len, grams)})
    for own, line in zip(found, lines.tolist(), strict=True):
        standing = (gram for gram in _standing(line, sizes, node.attrs["max_skip_count"]) if gram in grams)
        for gram, times in Counter(standing).items():
            each = (1 if mode == "IDF" else times) * (1 if mode == "TF" else weights[grams[gram]])
            own[columns[grams[gram]]] += each
    return found.reshape((*rows.shape[:-1], width))
