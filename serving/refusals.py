"""Why a request is not answered as it wanted: the status, a sentence, what else the client gets to know."""

from __future__ import annotations

from http import HTTPStatus

from ..ir.errors import LaminaError

# What OpenAI's clients call the kinds of errors, by status; others are "invalid_request_error".
KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded"}  # others are HTTP's words for the status


class Refusal(LaminaError):
    """A request that is answered with an error.

    status: HTTP's.  param: the part of the request that is to blame.  code: what OpenAI's clients know the
    fault as.  headers: further ones of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.param, self.headers = status, param, headers or {}
        self.code = code or CODES.get(status) or HTTPStatus(status).phrase.lower().replace(" ", "_")

    def body(self, path: str) -> dict:
        """What the protocol that this path belongs to says of an error."""
        if path == "/v2" or path.startswith("/v2/"):
            return {"error": self.rule}
        kind = KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.rule, "type": kind, "param": self.param, "code": self.code}}


def busy(what: str, seconds: float) -> Refusal:
    """Refuse because others wait already, and say in how many seconds it may be worth a try."""
    after = str(max(1, min(60, round(seconds + 0.5))))
    return Refusal(429, f"{what}; try again in {after} s", headers={"Retry-After": after})


def no_model(name: str, known: list[str]) -> Refusal:
    """Refuse a name that stands for no model here."""
    told = f"no model is named {name[:200]!r}; there are {', '.join(known)}"
    return Refusal(404, told, param="model", code="model_not_found")


class ServeError(LaminaError):
    """What is wrong with how the server was started."""
