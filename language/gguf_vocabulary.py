"""The vocabulary of a GGUF file as a tokenizer: byte pairs as GPT-2 has them, or SentencePiece's pieces."""

from __future__ import annotations

from typing import Any

from ..ir import lazy
from .untrusted import CheckpointError, Fields
from .vocabulary import Vocabulary, bytes_tokenizer, guarded, no_vocabulary

NORMAL, UNKNOWN, CONTROL, NAMED = 1, 2, 3, 4  # types of tokens
MOST_PIECE = 128  # characters, beyond which a piece is not looked at for parts
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# How texts are cut into words, by the names that files have for it; None: as GPT-2 does.
SPLITS = {
    "default": None,
    "gpt-2": None,
    "llama-bpe": _WORDS.format(digits="{1,3}"),
    "qwen2": _WORDS.format(digits=""),
}


def vocabulary_of(fields: Fields) -> Vocabulary:
    """The vocabulary that metadata describe.  Raises CheckpointError."""
    tokenizers = lazy.load("tokenizers", "language")
    kind, tokens = fields.word("tokenizer.ggml.model"), _texts(fields, "tokenizer.ggml.tokens")
    if kind == "gpt2":
        tokenizer = guarded(_of_pairs, tokenizers, fields, tokens, told=no_vocabulary(fields.name))
    elif kind == "llama":
        tokenizer = guarded(_of_pieces, tokenizers, fields, tokens, told=no_vocabulary(fields.name))
    else:
        raise CheckpointError(
            f"{fields.name}: a vocabulary of type {kind!r} is not known (gpt2 and llama are)"
        )
    kinds = fields.sequence("tokenizer.ggml.token_type", [])
    added = tokenizers.AddedToken
    for wanted, special in ((CONTROL, True), (NAMED, False)):
        named = [token for token, each in zip(tokens, kinds) if each == wanted and token]
        guarded(
            tokenizer.add_special_tokens if special else tokenizer.add_tokens,
            [added(token, special=special, normalized=False) for token in named],
            told=no_vocabulary(fields.name),
        )
    special = {
        f"{name}_token": tokens[at]
        for name in ("bos", "eos")
        if (at := _token(fields, name, len(tokens))) is not None
    }
    ends = {_token(fields, name, len(tokens)) for name in ("eos", "eot", "eom")} - {None}
    begins = fields.flag("tokenizer.ggml.add_bos_token", kind == "llama") and "bos_token" in special
    return Vocabulary(tokenizer, special.get("bos_token"), frozenset(ends), begins, special)


def _of_pairs(tokenizers: Any, fields: Fields, tokens: list[str]) -> Any:
    split = fields.word("tokenizer.ggml.pre", "default")
    if split not in SPLITS:
        raise CheckpointError(
            f"{fields.name}: texts are cut as {split!r} does, which is not known",
            f"known: {', '.join(SPLITS)}",
        )
    merges = [tuple(line.split(" ")) for line in _texts(fields, "tokenizer.ggml.merges")]
    return bytes_tokenizer(tokenizers, _numbered(tokens, fields), merges, SPLITS[split])


def _of_pieces(tokenizers: Any, fields: Fields, tokens: list[str]) -> Any:
    scores = fields.sequence("tokenizer.ggml.scores")
    words = _numbered(tokens, fields)
    if len(scores) != len(tokens) or not all(type(score) is float for score in scores):
        raise CheckpointError(f"{fields.name}: {len(scores)} scores for {len(tokens)} tokens")
    unknown = _token(fields, "unknown", len(tokens))
    found = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            words,
            _merges(words, scores),
            unk_token=None if unknown is None else tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    normalizers, decoders = tokenizers.normalizers, tokenizers.decoders
    steps, undone = [normalizers.Replace(" ", "▁")], [decoders.Replace("▁", " "), decoders.ByteFallback()]
    undone.append(decoders.Fuse())
    if fields.flag("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("▁"))
        undone.append(decoders.Strip(" ", 1, 0))
    found.normalizer, found.decoder = normalizers.Sequence(steps), decoders.Sequence(undone)
    return found


def _merges(words: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Pairs of pieces that are a piece, the one of the highest score first."""
    found = []
    for piece, at in words.items():
        if 2 <= len(piece) <= MOST_PIECE:
            halves = [(piece[:n], piece[n:]) for n in range(1, len(piece))]
            pairs = [(words[l], words[r], l, r) for l, r in halves if l in words and r in words]
            found += [(-scores[at], *pair) for pair in sorted(pairs)]
    return [(l, r) for _, _, _, l, r in sorted(found, key=lambda each: each[0])]


def _texts(fields: Fields, key: str) -> list[str]:
    found = fields.sequence(key)
    if not all(type(text) is str for text in found):
        raise CheckpointError(f"{fields.name}: {key} is no list of texts")
    return found


def _numbered(tokens: list[str], fields: Fields) -> dict[str, int]:
    found = {token: at for at, token in enumerate(tokens)}
    if len(found) < len(tokens):
        raise CheckpointError(f"{fields.name}: {len(tokens) - len(found)} tokens are there twice")
    return found


def _token(fields: Fields, name: str, count: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    return fields.size(key, most=count - 1, least=0) if key in fields else None
