"""Bodies that come compressed, by gzip or deflate, unpacked piece by piece.

A few kilobytes can stand for gigabytes: who takes the pieces counts them, and takes no more beyond a bound.
Source: RFC 9110, 8.4; RFC 1950 to 1952.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from .refusals import Refusal

PIECE = 256 << 10  # bytes that are unpacked at once
GZIP, ZLIB, RAW = 31, 15, -15  # zlib's words for the three forms
OFFERED = {"Accept-Encoding": "gzip, deflate"}


class Unpacker:
    """Unpacks one body.  Raises Refusal, when it is made for a coding that isn't known, and for damage."""

    def __init__(self, coding: str):
        self.coding = coding.strip().lower().removeprefix("x-")
        if self.coding not in ("gzip", "deflate"):
            told = f"a body's Content-Encoding is gzip or deflate, not {coding[:100]!r}"
            raise Refusal(415, told, headers=OFFERED)
        self._unpacks = zlib.decompressobj(GZIP) if self.coding == "gzip" else None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What these bytes unpack to, in pieces of at most `PIECE`."""
        if self._unpacks is None and data:
            # The name means zlib's form, whose first byte is 8 modulo 16; some send the bare stream within.
            self._unpacks = zlib.decompressobj(ZLIB if data[0] & 15 == 8 else RAW)
        if self._unpacks is None:
            return
        try:
            piece = bytes(PIECE)
            while (
                data or len(piece) == PIECE
            ):  # a full piece may have left some inside, with no bytes to come
                piece = self._unpacks.decompress(data, PIECE)
                data = self._unpacks.unconsumed_tail
                if piece:
                    yield piece
                if self._unpacks.unused_data:
                    raise Refusal(400, f"bytes follow the end of the body's {self.coding}")
        except zlib.error as error:
            raise Refusal(400, f"the body is no {self.coding}: {str(error)[:100]}") from None

    def end(self) -> None:
        """Look whether all of it came.  Raises Refusal."""
        if self._unpacks is None or not self._unpacks.eof:
            raise Refusal(400, f"the body's {self.coding} is cut short")
