"""The way in and out: who may ask, bodies within bounds, errors as their protocol has them, what is counted.

Every request passes here before anything of its body is read, and every answer on its way out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from hmac import compare_digest
from time import monotonic
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from . import meters
from .bounded_json import BYTES_PER_VALUE, count, parsed, written
from .bounds import Bounds, Budget
from .content_coding import Unpacker
from .refusals import Refusal, busy

LOG = logging.getLogger("lamina.serving")
PUBLIC = {"/", "/health", "/v2/health/live", "/v2/health/ready", "/favicon.ico"}  # asked without a token
LOCAL = {"localhost", "127.0.0.1", "[::1]"}
BYTES_PER_CHARACTER = 300  # of a text that `tokenizers` takes apart: tokens with their places and spellings
PIECE = 256 << 10  # of a large answer: the next is handed on when the client took the last
LINGER_BYTES, LINGER_TIME = (
    1 << 20,
    1.0,
)  # of a refused body that are read, so that its sender sees the answer


class Gate:
    """An ASGI application around the routes.

    tokens: of which a client must show one; none: everybody may ask.  local: whether the server listens to
    this machine alone; then the Host of a request must be this machine, lest a page of another site get in by
    a name of its own.  draining: whether connections end with the next answer.
    """

    def __init__(self, router: Router, bounds: Bounds, tokens: Sequence[str] = (), local: bool = True):
        self.router, self.bounds, self.local = router, bounds, local
        self.draining = False
        self.budget = Budget(bounds.bodies)
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = monotonic()
        call = Call(self, Request(scope, receive), send)
        scope["lamina.call"], scope["app"] = call, self
        try:
            call.admit(self._tokens)
            await self.router(scope, receive, call.send)
        except ClientDisconnect:
            call.status = 499
        except HTTPException as error:
            told = {404: "there is no such path here", 405: f"{scope['method'][:20]} is not for this path"}
            why = told.get(error.status_code, error.detail)
            await call.refuse(Refusal(error.status_code, why, headers=dict(error.headers or {})))
        except Refusal as refusal:
            await call.refuse(refusal)
        except asyncio.CancelledError:  # the server's, where the grace is over
            if not self.draining:
                raise
            if not call.status:
                told = Refusal(503, "the server stopped before the answer was there")
                await call.refuse(told, linger=False)
        except Exception:
            LOG.exception("%s %s failed", scope["method"], scope["path"][:200])
            await call.refuse(Refusal(500, "the server failed; its log tells more"))
        finally:
            call.release()
            front, model = call.front, call.model
            meters.REQUESTS.labels(model, front, call.status).inc()
            meters.LATENCY.labels(model, front).observe(monotonic() - started)


class Call:
    """One request on its way: what it holds of the budget, and how its answer went out."""

    def __init__(self, gate: Gate, request: Request, send: Send):
        self.gate, self.request = gate, request
        self.front, self.model, self.status = "other", "", 0
        self._send, self._held, self._unread = send, 0, True

    # ---- who may ask ---------------------------------------------------------------------------------------
    def admit(self, tokens: Sequence[bytes]) -> None:
        """Raises Refusal for who may not ask."""
        headers, path = self.request.headers, self.request.scope["path"]
        host = headers.get("host", "")
        if self.gate.local and _name(host) not in LOCAL:
            raise Refusal(421, "this server answers for localhost alone: start it with --host to be reached")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refusal(403, "requests from pages of other sites are refused")
        if tokens and path not in PUBLIC and not self.shows(tokens):
            told = {"WWW-Authenticate": "Bearer"}
            raise Refusal(401, "a token is needed: Authorization: Bearer TOKEN", headers=told)

    def shows(self, tokens: Sequence[bytes]) -> bool:
        """Whether the request carries one of these tokens; how long it takes tells nothing of them."""
        kind, _, shown = self.request.headers.get("authorization", "").partition(" ")
        given = shown.strip().encode("latin-1") if kind.lower() == "bearer" else b""
        return any([compare_digest(given, token) for token in tokens])

    # ---- what it holds -------------------------------------------------------------------------------------
    def hold(self, count: int) -> None:
        """Take bytes of the budget until the answer is out.  Raises Refusal where there are none left."""
        if not self.gate.budget.take(count):
            raise busy("the requests at work hold all the memory that there is for them", 1)
        self._held += count
        meters.HELD.set(self.gate.budget.held)

    def release(self) -> None:
        self.gate.budget.give(self._held)
        meters.HELD.set(self.gate.budget.held)
        self._held = 0

    async def body(self) -> bytes:
        """The whole body, unpacked.  Raises Refusal: too large, packed or not; too slow; damaged."""
        bounds, headers = self.gate.bounds, self.request.headers
        too_large = Refusal(413, f"the body is larger than {bounds.body:,} bytes")
        coding = headers.get("content-encoding", "identity")
        unpacker = None if coding.strip().lower() == "identity" else Unpacker(coding)
        said = headers.get("content-length", "0")
        if not said.isdecimal() or len(said) > 18 or int(said) > bounds.body:
            raise too_large
        pieces, size = [], 0
        try:
            async with asyncio.timeout(bounds.body_time):
                async for came in self.request.stream():
                    for piece in (came,) if unpacker is None else unpacker.pieces(came):
                        self.hold(len(piece))
                        size += len(piece)
                        if size > bounds.body:
                            raise too_large
                        pieces.append(piece)
                        if unpacker is not None:  # a few bytes may be thousands of pieces
                            await asyncio.sleep(0)
        except TimeoutError:
            raise Refusal(408, f"the body did not come within {bounds.body_time:g} s") from None
        self._unread = False
        if unpacker is not None:
            unpacker.end()
        if size > PIECE:
            self.hold(size)  # the pieces, and what they are joined to
        return b"".join(pieces)

    async def json(self) -> Any:
        """The body's JSON, within bounds.  Raises Refusal."""
        return self.parsed(await self.body())

    def parsed(self, text: bytes) -> Any:
        """What a JSON text says; what that takes in memory is held.  Raises Refusal."""
        bounds = self.gate.bounds
        self.hold(BYTES_PER_VALUE * min(count(text), bounds.values))
        return parsed(text, bounds.values, bounds.depth)

    def read(self, characters: int) -> None:
        """Hold what it takes to make tokens of texts of so many characters.  Raises Refusal for too many."""
        most = self.gate.bounds.characters
        if characters > most:
            raise Refusal(413, f"the texts have {characters:,} characters, more than {most:,}")
        self.hold(BYTES_PER_CHARACTER * characters)

    # ---- the answer ----------------------------------------------------------------------------------------
    async def send(self, message: Any) -> None:
        """Hand a part of the answer on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            told = any(name == b"connection" for name, _ in message["headers"])
            if self.gate.draining and not told:
                message["headers"] = [*message["headers"], (b"connection", b"close")]
        await self._send(message)

    async def refuse(self, refusal: Refusal, linger: bool = True) -> None:
        """Answer with an error, where no answer has begun.  linger: read what comes of its body meanwhile."""
        if self.status:  # it had: all that is left is to end it short, which the client sees
            raise refusal
        headers = dict(refusal.headers)
        if self._unread and self.request.method not in ("GET", "HEAD"):
            headers["Connection"] = "close"
            if linger and refusal.status != 408:
                await self._linger()
        body = written(refusal.body(self.request.scope["path"]))
        await Response(body, refusal.status, headers, "application/json")(
            self.request.scope, self.request.receive, self.send
        )

    async def _linger(self) -> None:
        """Read some of a body that nobody wants: a socket closed over unread bytes takes the answer along."""
        size, receive = 0, self.request.receive
        try:
            async with asyncio.timeout(LINGER_TIME):
                while size < LINGER_BYTES:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return
        except TimeoutError:
            pass

    def answer(self, body: bytes, kind: str = "application/json", headers: dict | None = None) -> Response:
        """The answer with this body.  Raises Refusal where there is no memory for it."""
        self.hold(len(body))
        return Whole(body, 200, headers, kind)


class Whole(Response):
    """An answer whose body goes out in pieces, each when the client took the last."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.body) <= PIECE:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        body = memoryview(self.body)
        for at in range(0, len(body), PIECE):
            piece = bytes(body[at : at + PIECE])
            more = at + PIECE < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": more})


def _name(host: str) -> str:
    """The name in a Host header, without its port, in small letters."""
    host = host.lower()
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]


def call_of(request: Request, front: str) -> Call:
    """The call that a request is, of this front from here on."""
    call: Call = request.scope["lamina.call"]
    call.front = front
    return call
