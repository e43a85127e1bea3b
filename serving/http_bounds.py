"""Bounds of connections that uvicorn has none for: how many there are, how long and how large headers may be.

uvicorn's parsers take headers of any length for any time, and a client that does not read its answer keeps
it.  Bodies are bounded where they are read (`gate.py`).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from .bounds import Bounds
from .refusals import ServeError

LINGER = 20_000  # milliseconds for which a client may take nothing of an answer


def answer(status: str, message: str) -> bytes:
    """A whole answer, for where there is no request yet that an application could answer."""
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
        f"content-length: {len(message)}\r\n\r\n{message}"
    ).encode()


class _Bounded:
    """Mixed into one of uvicorn's protocols.

    `_waited` is the timer of headers that have begun and are not whole; `_header_bytes` what came of them.
    """

    bounds: Bounds

    def connection_made(self: Any, transport: asyncio.Transport) -> None:
        self._header_bytes, self._waited = 0, None
        super().connection_made(transport)  # type: ignore[misc]
        if len(self.connections) > self.bounds.connections:
            self._refuse("503 Service Unavailable", "there are too many connections\n")
            return
        self._waited = self.loop.call_later(self.bounds.header_time, self._late)

    def connection_lost(self: Any, exc: Exception | None) -> None:
        self._headers_came()
        super().connection_lost(exc)  # type: ignore[misc]

    def data_received(self: Any, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before = self.cycle
        idle = before is None or before.response_complete
        ahead = not idle and not before.more_body  # headers of a request behind one that is being answered
        if idle and self._waited is None:  # the first bytes of a further request
            self._waited = self.loop.call_later(self.bounds.header_time, self._late)
        super().data_received(data)  # type: ignore[misc]
        if self.cycle is not before:
            self._headers_came()
        elif idle or ahead:
            self._header_bytes += len(data)
            if self._header_bytes > self.bounds.header_bytes:
                self._refuse("431 Request Header Fields Too Large", "the headers are too large\n")

    def _headers_came(self: Any) -> None:
        self._header_bytes = 0
        if self._waited is not None:
            self._waited.cancel()
            self._waited = None

    def _late(self: Any) -> None:
        self._waited = None
        self._refuse("408 Request Timeout", "the headers took too long\n")

    def _refuse(self: Any, status: str, message: str) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer(status, message))
            self.transport.close()


def protocol(bounds: Bounds, http: str = "auto") -> type[asyncio.Protocol]:
    """The class of connections, by httptools where it is installed.  http: "httptools" or "h11" to choose."""
    base: type = H11Protocol
    if http == "httptools" or http == "auto" and find_spec("httptools"):
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415 - needs httptools

        base = HttpToolsProtocol
    return type("BoundedProtocol", (_Bounded, base), {"bounds": bounds})


def listening(host: str, port: int, backlog: int = 2048) -> socket.socket:
    """A socket that listens, for workers to share.  Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LINGER)
    made.bind(address)
    made.listen(backlog)
    made.setblocking(False)
    made.set_inheritable(True)
    return made


def tls_of(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """TLS 1.2 and newer with a certificate; None without one.  Raises ServeError for files that don't fit.

    A key with a password is refused: workers that are started anew have nobody to ask for it.
    """
    if certificate is None:
        return None
    found = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    found.set_alpn_protocols(["http/1.1"])
    try:
        found.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:  # SSLError is an OSError
        of = certificate if key is None else f"{certificate} and {key}"
        raise ServeError(f"TLS does not start with {of}: {error}") from None
    return found
