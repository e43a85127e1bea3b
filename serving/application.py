"""The ASGI application of a worker: all fronts behind the gate."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Sequence
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from . import meters, open_inference, openai_front, own_front
from .bounded_json import written
from .bounds import Bounds
from .fleet import Fleet
from .gate import Gate, call_of
from .refusals import Refusal


def application(
    fleet: Fleet,
    bounds: Bounds,
    tokens: Sequence[str] = (),
    local: bool = True,
    reload: Callable[[], None] | None = None,
) -> Gate:
    """What answers the requests of one worker.  reload: what has the server load its models anew."""
    page, policy = _page()

    async def show(request: Request) -> Response:
        headers = {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}
        headers |= {"Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
        return Response(page, headers=headers, media_type="text/html; charset=utf-8")

    async def icon(request: Request) -> Response:
        return Response(status_code=204)

    async def health(request: Request) -> Response:
        about = {"status": "ok", "models": [*fleet.models], "generation": fleet.number, "worker": os.getpid()}
        return Response(written(about), media_type="application/json")

    async def metrics(request: Request) -> Response:
        return Response(meters.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def load_anew(request: Request) -> Response:
        call_of(request, "own")
        if not tokens or reload is None:
            raise Refusal(403, "a server without --token is loaded anew by a signal alone: kill -HUP PID")
        reload()
        return Response(written({"status": "loading"}), 202, media_type="application/json")

    router = Router(
        [
            *own_front.routes(fleet),  # the most frequent first: they are tried in order
            *open_inference.routes(fleet),
            *openai_front.routes(fleet),
            Route("/v1/reload", load_anew, methods=["POST"]),
            Route("/health", health),
            Route("/metrics", metrics),
            Route("/", show),
            Route("/favicon.ico", icon),
        ],
        redirect_slashes=False,
    )
    return Gate(router, bounds, tokens, local)


def _page() -> tuple[str, str]:
    """The page to try models in, and the policy that lets it run its own script and styles alone."""
    text = files(__package__).joinpath("page.html").read_text("utf-8")
    script, style = (
        base64.b64encode(
            hashlib.sha256(text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0].encode()).digest()
        )
        for tag in ("script", "style")
    )
    policy = (
        f"default-src 'none'; script-src 'sha256-{script.decode()}'; style-src 'sha256-{style.decode()}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy
