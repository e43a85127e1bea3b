"""What files of others say: JSON within a size, and fields of it within their ranges."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from reprlib import Repr
from typing import Any

import numpy as np

from ..ir.errors import LaminaError
from ..ir.files import open_regular

MOST_JSON = 64 << 20  # bytes: tokenizer.json of a vocabulary of 262,144 takes 33 MB
_UNSET: Any = object()
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a surrogate pair
_HALF_OF_BYTES = re.compile(_HALF.pattern.encode())
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def shown(value: Any) -> str:
    """A value of a file's for a message, which is short whatever the file says."""
    return _SHORT.repr(value)


class CheckpointError(LaminaError, ValueError):
    """A model's files that are not what they should be, or of a kind that is not known."""


def read_bytes(path: Path, most: int = MOST_JSON) -> bytes:
    """A file of at most so many bytes.  Raises CheckpointError."""
    try:
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > most:
                raise CheckpointError(f"{path} is larger than {most} bytes")
            return file.read(size)
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror or error}") from None


def mapped(path: Path) -> np.ndarray:
    """The bytes of a file, not yet read; what is written to them stays here.  Raises CheckpointError."""
    try:
        with open_regular(path) as file:
            return np.memmap(file, np.uint8, mode="c")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} can't be read: {error}") from None


def read_text(path: Path, most: int = MOST_JSON) -> str:
    """A file of UTF-8.  Raises CheckpointError."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is no UTF-8: {error.reason} at byte {error.start}") from None


def parsed(text: str | bytes, name: Any) -> Any:
    """What a text of JSON says.  Raises CheckpointError, also for texts in it that no UTF-8 can say."""
    try:
        found = json.loads(text)
        if (_HALF if isinstance(text, str) else _HALF_OF_BYTES).search(text):
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is no JSON: {error}") from None
    return found


def read_object(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """The object that a file of JSON holds.  Raises CheckpointError."""
    found = parsed(read_bytes(path, most), path)
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} holds a {type(found).__name__}, not an object")
    return found


class Fields:
    """Fields of a description, each read as what it must be.  `name` is the file's, for errors.

    A field that is null counts as absent.  Every getter raises CheckpointError.
    """

    def __init__(self, fields: Mapping[str, Any], name: str):
        self.fields, self.name = fields, name

    def __contains__(self, key: str) -> bool:
        return self.fields.get(key) is not None

    def _get(self, keys: str, default: Any) -> tuple[str, Any]:
        for key in keys.split("|"):  # other spellings of the same
            if key in self:
                return key, self.fields[key]
        if default is _UNSET:
            raise CheckpointError(f"{self.name} has no {keys.partition('|')[0]}")
        return keys, default

    def size(self, keys: str, default: Any = _UNSET, most: int = 1 << 20, least: int = 1) -> int:
        """A whole number from `least` to `most`."""
        key, value = self._get(keys, default)
        if type(value) is not int or not least <= value <= most:
            raise CheckpointError(
                f"{self.name}: {key} is {shown(value)}, and no number from {least} to {most}"
            )
        return value

    def number(self, keys: str, default: Any = _UNSET, least: float = 0.0, most: float = 1e12) -> float:
        """A number from `least` to `most`."""
        key, value = self._get(keys, default)
        if type(value) not in (int, float) or not least <= value <= most:
            raise CheckpointError(
                f"{self.name}: {key} is {shown(value)}, and no number from {least} to {most}"
            )
        return float(value)

    def flag(self, keys: str, default: Any = _UNSET) -> bool:
        """True or false."""
        key, value = self._get(keys, default)
        if type(value) is not bool:
            raise CheckpointError(f"{self.name}: {key} is {shown(value)}, neither true nor false")
        return value

    def word(self, keys: str, default: Any = _UNSET) -> str:
        """A string."""
        key, value = self._get(keys, default)
        if type(value) is not str:
            raise CheckpointError(f"{self.name}: {key} is {shown(value)}, and no string")
        return value

    def sequence(self, keys: str, default: Any = _UNSET) -> list[Any]:
        """A list."""
        key, value = self._get(keys, default)
        if type(value) is not list:
            raise CheckpointError(f"{self.name}: {key} is {shown(value)}, and no list")
        return value

    def within(self, key: str) -> Fields:
        """The fields of an object among the fields; none where it is absent."""
        value = self.fields.get(key)
        if not isinstance(value, dict | None):
            raise CheckpointError(f"{self.name}: {key} is {shown(value)}, and no object")
        return Fields(value or {}, f"{self.name}: {key}")


def replace_what_is_no_text(stream: Any) -> None:
    """Have a text stream read bytes that are no characters of its encoding as U+FFFD."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
