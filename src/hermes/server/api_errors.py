"""API errors in the format that OpenAI clients expect."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

from hermes import clock, errors
from hermes.agent.models import model as models
from hermes.conversation.spending_limit import LimitReached
from hermes.secrets import redact_line

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
LONGEST_LINE = 500
DO_NOT_RETRY = {"X-Should-Retry": "false"}
"""The header that tells OpenAI's client not to retry. Used when a retry would not help, for example because the
server has already retried the model call."""
MESSAGES = {
    404: "there is nothing at this address",
    405: "this address does not accept this HTTP method",
    408: "the request was not received in time",
    413: "the request is too large",
    500: "internal error; see the log of the server",
    503: "the server is overloaded: try again in a moment",
}


class Refused(Exception):
    """The error for an API request that is refused. It has the HTTP status, the message and the error code of the
    response."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> Response:
        return JSONResponse(self.body, self.status, headers=self.headers)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> Refused:
    return Refused(400, message, param=param, code=code)


def refuse_with_status(status: int, headers: Mapping[str, str] | None = None) -> Refused:
    """Return the API error for a request that the HTTP server or the web framework refused with the HTTP status
    `status`."""
    return Refused(status, MESSAGES.get(status, HTTPStatus(status).phrase), headers=headers)


def format_error_body(status: int) -> bytes:
    """Return the body of an error response with the HTTP status `status`. Used for connections from which no request
    could be read."""
    return json.dumps(refuse_with_status(status).body).encode()


def session_not_found() -> Refused:
    """Return the 404 error for a session id. It is the same whether the session does not exist or belongs to another
    person."""
    return Refused(404, "there is no such session", code="session_not_found")


def response_not_found() -> Refused:
    return Refused(404, "there is no such response", code="response_not_found")


def translate_error(problem: Exception) -> Refused:
    """Return the API error for an error of the store or of the model."""
    line = _format_line(str(problem))
    match problem:
        case Refused():
            return problem
        case errors.LeaseHeld() | errors.LeaseLost():
            return Refused(409, line, code="session_busy", headers={"Retry-After": "5"})
        case errors.UnknownSession():
            return session_not_found()
        case errors.InvalidArgument():
            return bad_request(line)
        case models.ContextOverflow():
            return Refused(400, line, code="context_length_exceeded")
        case models.ProviderBusy() | models.Unreachable():
            return Refused(503, line, code="model_unavailable", headers=DO_NOT_RETRY)
        case models.ModelError():
            return Refused(502, line, code="model_error", headers=DO_NOT_RETRY)
        case LimitReached():
            wait = str(math.ceil(max(1.0, problem.resets_at - clock.now())))
            return Refused(
                429, line, code="daily_limit_reached", headers={**DO_NOT_RETRY, "Retry-After": wait}
            )
        case errors.StoreError():
            return Refused(503, line, code="store_unavailable", headers={"Retry-After": "5"})
        case errors.HermesError():
            return Refused(503, line, headers=DO_NOT_RETRY)
        case _:
            return refuse_with_status(500)


def _format_line(text: str) -> str:
    return redact_line(" ".join(text.split()), LONGEST_LINE)
