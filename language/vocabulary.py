"""Text to tokens and back, by the library `tokenizers`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..ir import lazy
from ..ir.errors import ArgumentValueError
from ..ir.locks import cached_property
from .tokenizer_bounds import check_growth
from .untrusted import CheckpointError, Fields, read_object, read_text

# The letters that stand for bytes in byte-level vocabularies: what can be seen stands for itself, for
# the rest there are letters from 256 on.  Source: GPT-2's encoder.
_SEEN = [*range(33, 127), *range(161, 173), *range(174, 256)]
_UNSEEN = [byte for byte in range(256) if byte not in _SEEN]
BYTES = {chr(byte): byte for byte in _SEEN} | {chr(256 + n): byte for n, byte in enumerate(_UNSEEN)}
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Vocabulary:
    """tokenizer: of the library.  begin: text of the token that begins a text, where there is one.
    ends: tokens that end an answer.  begins: whether `begin` is put in front of texts here, as the tokenizer
    does not.
    """

    tokenizer: Any
    begin: str | None = None
    ends: frozenset[int] = frozenset()
    begins: bool = False
    special: dict[str, str] = field(default_factory=dict)  # as chat templates name them: bos_token …

    @property
    def size(self) -> int:
        """One more than the greatest token, without holes."""
        return max(self.tokenizer.get_vocab_size(with_added_tokens=True), 1)

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text; begun as models of this kind ask for, unless the text itself does so."""
        written = bool(self.begin) and text.startswith(self.begin)
        if self.begins and self.begin and not written:
            text = self.begin + text
        try:
            text.encode()  # the library takes a str that can't be for none at all
        except UnicodeEncodeError as error:
            raise ArgumentValueError(
                f"tokens(text): half a surrogate pair at {error.start} is no text"
            ) from None
        encode = partial(self.tokenizer.encode, add_special_tokens=not written)
        return guarded(encode, text, told="the vocabulary can't make tokens of the text").ids

    def text(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without special ones."""
        decode = partial(self.tokenizer.decode, skip_special_tokens=True)
        return guarded(
            decode, [int(token) for token in tokens], told="the vocabulary can't make text of the tokens"
        )

    @cached_property
    def spellings(self) -> list[bytes]:
        """By token, the bytes that it adds to a text; of special ones, their names."""
        added = self.tokenizer.get_added_tokens_decoder()
        decoder = self.tokenizer.decoder
        form = b"" if decoder is None else decoder.__getstate__()
        found = []
        for token in range(self.size):
            text = self.tokenizer.id_to_token(token) or ""
            if token in added:
                found.append(text.encode())
            elif b'"ByteLevel"' in form:
                found.append(bytes([BYTES[letter] for letter in text if letter in BYTES]))
            elif b'"ByteFallback"' in form and (byte := _BYTE.fullmatch(text)):
                found.append(bytes.fromhex(byte[1]))
            else:
                found.append(text.replace("▁", " ").encode())
        return found

    def stream(self) -> Stream:
        """What makes text of tokens that come one by one."""
        return Stream(self.tokenizer)


class Stream:
    """Text of tokens that come one by one; a character is told when it is whole."""

    def __init__(self, tokenizer: Any):
        self.tokenizer = tokenizer
        self.decoding = lazy.load("tokenizers.decoders").DecodeStream(skip_special_tokens=True)

    def step(self, token: int) -> str:
        """What can be told with this token.  Raises CheckpointError for one that is no token."""
        told = f"the vocabulary can't decode the token {token}"
        return guarded(self.decoding.step, self.tokenizer, token, told=told) or ""


def guarded(run: Any, *args: Any, told: str) -> Any:
    """What a function of the library `tokenizers` makes of a file's contents.

    Raises CheckpointError, which begins with `told`.
    """
    try:
        return run(*args)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # the library has one class for all; a panic of its Rust is no Exception
        raise CheckpointError(f"{told}: {error}") from None


def no_vocabulary(name: Any) -> str:
    """What is told of a file that is none."""
    return f"{name} is no vocabulary that the library tokenizers reads"


def read_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of a model's folder: tokenizer.json, or vocab.json with merges.txt.

    Raises CheckpointError; MissingLibraryError without the library.
    """
    tokenizers = lazy.load("tokenizers", "language")
    whole, words, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if whole.exists():
        tokenizer = guarded(tokenizers.Tokenizer.from_str, read_text(whole), told=no_vocabulary(whole))
    elif words.exists() and merges.exists():
        tokenizer = guarded(
            _of_merges, tokenizers, read_object(words), read_text(merges), told=no_vocabulary(merges)
        )
    else:
        spm = folder / "tokenizer.model"
        raise CheckpointError(
            f"{folder} has no tokenizer.json",
            *([f"{spm.name} is SentencePiece's: convert it, or load the model's GGUF file"] * spm.exists()),
        )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    check_growth(tokenizer, folder)
    special = _special(folder)
    begin = special.get("bos_token")
    ends = {tokenizer.token_to_id(special["eos_token"])} if "eos_token" in special else set()
    for name in ("generation_config.json", "config.json"):
        if (folder / name).exists():
            ends |= set(_ends(Fields(read_object(folder / name), name)))
    return Vocabulary(tokenizer, begin, frozenset(ends - {None}), special=special)


def _of_merges(tokenizers: Any, words: dict[str, int], merges: str) -> Any:
    """GPT-2's tokens of bytes."""
    lines = [line for line in merges.splitlines() if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    return bytes_tokenizer(tokenizers, words, pairs, None)


def bytes_tokenizer(
    tokenizers: Any, words: dict[str, int], pairs: Sequence[tuple[str, ...]], split: str | None
) -> Any:
    """A tokenizer of bytes that are merged in pairs.  split: a pattern of words; GPT-2's for None."""
    found = tokenizers.Tokenizer(tokenizers.models.BPE(words, pairs, ignore_merges=split is not None))
    level = tokenizers.pre_tokenizers.ByteLevel
    if split is None:
        found.pre_tokenizer = level(add_prefix_space=False)
    else:
        cut = tokenizers.pre_tokenizers.Split(tokenizers.Regex(split), "isolated")
        found.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
            [cut, level(add_prefix_space=False, use_regex=False)]
        )
    found.decoder = tokenizers.decoders.ByteLevel()
    end = "<|endoftext|>"
    if end in words:
        found.add_special_tokens([end])
    return found


def _special(folder: Path) -> dict[str, str]:
    """The special tokens that tokenizer_config.json names, by the names of their places."""
    path = folder / "tokenizer_config.json"
    found = {}
    for key, value in (read_object(path) if path.exists() else {}).items():
        if isinstance(value, dict):
            value = value.get("content")
        if key.endswith("_token") and isinstance(value, str):
            found[key] = value
    return found


def _ends(fields: Fields) -> list[int]:
    value = fields.fields.get("eos_token_id")
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(token) is int for token in found):
        raise CheckpointError(f"{fields.name}: eos_token_id is {value!r}, neither a token nor a list of them")
    return found


def read_template(folder: Path) -> str | None:
    """The chat template of a model's folder, where it has one.  Raises CheckpointError."""
    alone, path = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    if alone.exists():
        return read_text(alone, 1 << 20)
    value = read_object(path).get("chat_template") if path.exists() else None
    if isinstance(value, list):  # several, by name
        named = {each.get("name"): each.get("template") for each in value if isinstance(each, dict)}
        value = named.get("default")
    if not isinstance(value, str | None):
        raise CheckpointError(f"{path}: chat_template is a {type(value).__name__}, and no text")
    return value
