"""Translates errors of an endpoint into one line for a person, and decides whether a retry can help.

Every provider words its errors differently. The patterns below cover the known wordings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit, urlunsplit

from hermes import clock
from hermes.agent.models.model import (
    BadRequest,
    ContextOverflow,
    ModelError,
    NoSuchModel,
    NotAuthorized,
    ProviderBusy,
    QuotaExceeded,
    Unreachable,
)
from hermes.errors import BadConfig, HermesError
from hermes.message_content import list_parts
from hermes.secrets import redact

LONGEST_LINE = 300
LONGEST_READ, DEEPEST = 10_000, 8
"""The limits for reading the body of an error response: characters of a text, and levels of nesting."""

OVERFLOW = re.compile(
    r"""context_length_exceeded | context_window_exceeded | exceed_context_size | max_context_length
    | (maximum|max\.?)\ context\ (length|size|window) | maximum\ (prompt|model|input)\ length\ is
    | context\ (length|size|window)\ (has\ been\ |was\ )?exceed | context\ length\ is\ only
    | exceed(s|ed|ing)?\ .{0,60}\bcontext\ (length|size|window|limit)
    | (longer|larger|greater)\ than\ .{0,40}\bcontext | context\ (the\ )?overflow | context\ length\ of\ only
    | (prompt|input|request)\ (is\ |was\ )?too\ (long|large)\b | too\ large\ for\ (the\ )?model
    | input\ token\ count\ .{0,60}exceed | input\ tokens?\ exceed | exceed(s|ed)?\ .{0,40}(number|amount)\ of\ tokens
    | input\ length\ .{0,60}exceed | prompt\ exceeds\ .{0,40}(length|limit)
    | reduce\ (the\ length\ of|your)\ .{0,20}(messages|prompt|input) | exceeded\ model\ token\ limit
    | tokens\ in\ request\ more\ than\ max\ tokens | too\ many\ (input\ |prompt\ )?tokens | string_above_max_length
    """,
    re.IGNORECASE | re.VERBOSE,
)
RATE = re.compile(r"per\W?(min|day|hour)|rate.?limit|\b(tpm|rpm|tpd)\b", re.IGNORECASE)
"""Error messages about a rate limit. Such a message can mention tokens, but a shorter context does not
help."""
NO_MODEL = re.compile(
    r"model_not_found|not a valid model|(invalid|unknown|unsupported|no such) model|"
    r"model\b.{0,120}\b(not found|does ?n[o']t exist|not exist|is not available|not supported|no longer)",
    re.IGNORECASE | re.DOTALL,
)
NO_MONEY = re.compile(
    r"insufficient.?(quota|funds|balance|credit)|exceeded your current quota|credit balance|payment required",
    re.IGNORECASE,
)
NO_KEY = re.compile(
    r"(invalid|incorrect|missing|no).{0,20}api.?key|api.?key.{0,20}(invalid|not valid)", re.IGNORECASE
)
UNSUPPORTED = re.compile(
    r"not\W?.{0,20}support|n't support|unsupported|unrecognized"
    r"|(unexpected|unknown|invalid) (field|parameter|argument|name)"
    r"|not permitted|not allowed|extra (inputs|fields)|requires? --|no endpoints found"
    r"|only supported by|unknown variant|must be a string|not a multimodal|missing data required",
    re.IGNORECASE,
)
"""Error messages which say that the endpoint does not support a part of the request."""
PICTURES = "pictures"
PART_PATTERNS = {
    "stream_options": re.compile(r"stream_options|include_usage"),
    "tools": re.compile(r"\btools?\b(?!s?\[)|tool.?(use|choice|call)|function.?call", re.IGNORECASE),
    "temperature": re.compile(r"\btemperature\b"),
    "max_tokens": re.compile(r"\bmax_tokens\b"),
    PICTURES: re.compile(r"image|vision|multimodal|content.{0,20} must be a string", re.IGNORECASE),
}
"""Optional parts of a request that some endpoints reject. Each pattern recognises the part in the endpoint's
error message."""

BUSY = {408, 409, 425, 429}
"""The HTTP status codes, besides 5xx, after which the same request may succeed later."""


NOT_AVAILABLE = "The model is not available just now."
NOT_ACCEPTED = "The model does not accept this request."
TOO_LONG = "The conversation is too long for the model."


class EndpointContext(NamedTuple):
    """The model and endpoint that a request goes to. The key is included so that it can be removed from every
    message."""

    model: str
    base_url: str
    key_env: str | None = None
    """The variable with the key; None if no variable belongs to the address."""
    key: str | None = None

    def __repr__(self) -> str:
        return f"Where({self.model!r}, {self.display_address!r})"

    @property
    def display_address(self) -> str:
        """The address without user name, password, query and fragment."""
        parts = urlsplit(self.base_url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class ProviderProblem(NamedTuple):
    error: ModelError
    again: bool = False
    """Whether the same request may succeed later."""
    after: float | None = None
    """The number of seconds that the endpoint asked to wait. None if it asked for nothing."""


def make_line(text: str, where: EndpointContext) -> str:
    """Return an endpoint's message as one line without keys."""
    if where.key:
        text = text.replace(where.key, "[redacted key]")
    line = " ".join(redact(text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def find_message(body: object, depth: int = 0) -> str:
    """Return the message in the body of an error response, from any known format; empty if there is none."""
    if depth > DEEPEST:
        return ""
    if isinstance(body, str):
        try:
            read = json.loads(body)
        except (ValueError, RecursionError):
            return "" if body.lstrip().startswith("<") else body[:LONGEST_READ]
        return find_message(read, depth + 1) if isinstance(read, dict | list) else body[:LONGEST_READ]
    if isinstance(body, list):
        return find_message(body[0], depth + 1) if body else ""
    if not isinstance(body, Mapping):
        return ""
    message = next((body[name] for name in ("message", "error", "detail", "msg") if body.get(name)), "")
    parts = [find_message(message, depth + 1)]
    raw = body["metadata"].get("raw") if isinstance(body.get("metadata"), Mapping) else None
    parts += [find_message(raw, depth + 1)] if raw else []
    parts += [str(body[name]) for name in ("code", "param") if isinstance(body.get(name), str)]
    parts += [kind for kind in (body.get("type"),) if isinstance(kind, str) and OVERFLOW.search(kind)]
    return " · ".join(dict.fromkeys(part for part in parts if part))


def hide_detail(error: HermesError) -> HermesError:
    """Return the error without the provider's error message and without addresses, for people who do not own
    the machine. An error that contains neither is returned unchanged."""
    # this program raises the derived types, whose messages are safe to show to everybody
    if type(error) is ContextOverflow:
        return ContextOverflow(TOO_LONG)
    if isinstance(error, BadRequest):
        return BadRequest(NOT_ACCEPTED)
    if isinstance(error, ContextOverflow):
        return error
    for kind in (ProviderBusy, Unreachable, NotAuthorized, NoSuchModel, ModelError, BadConfig):
        if isinstance(error, kind):
            return kind(NOT_AVAILABLE)
    return error


def translate_status(
    status: int, message: str, headers: Mapping[str, str], where: EndpointContext
) -> ProviderProblem:
    """Convert the error response of an endpoint to a `ProviderProblem`, which holds the error for the person and says
    whether a retry can help. `status` and `message` are those of the response."""
    detail = make_line(message, where) or _get_phrase(status)
    if 300 <= status < 400:
        return ProviderProblem(_make_redirect_error(status, headers, where))
    if is_overflow(status, message):
        return ProviderProblem(ContextOverflow(f"the conversation is too long for {where.model}: {detail}"))
    if status == 402 or NO_MONEY.search(message):
        return ProviderProblem(QuotaExceeded(f"{where.display_address} requires payment: {detail}"))
    if status in (401, 403) or (status == 400 and NO_KEY.search(message)):
        return ProviderProblem(_make_not_authorized(status, detail, where))
    if status in (400, 404) and NO_MODEL.search(message):
        return ProviderProblem(_make_no_such_model(detail, where))
    if status in BUSY or status >= 500:
        busy = ProviderBusy(f"{where.display_address} cannot answer now ({status}): {detail}")
        busy.retry_after, busy.is_rate_limit = parse_retry_after(headers), status == 429
        return ProviderProblem(busy, _lower_names(headers).get("x-should-retry") != "false", busy.retry_after)
    if status == 404:
        hint = "check the address, which usually ends in /v1"
        return ProviderProblem(BadRequest(f"there is no API at {where.display_address} ({detail}); {hint}"))
    return ProviderProblem(BadRequest(f"{where.display_address} rejected the request ({status}): {detail}"))


def is_overflow(status: int, message: str) -> bool:
    if status == 413:
        return True
    if status == 429:  # the request alone exceeds the limit per minute, so waiting does not help
        return bool(re.search(r"request too large", message, re.IGNORECASE))
    return status in (400, 422, 500) and bool(OVERFLOW.search(message)) and not RATE.search(message)


def find_refused_part(status: int, message: str, sent: Mapping[str, Any]) -> str | None:
    """Return the optional part of the request that the endpoint rejects; None if the error message names no
    such part."""
    if status not in (400, 404, 422, 500, 501) or not UNSUPPORTED.search(message) or OVERFLOW.search(message):
        return None
    parts = {*sent, PICTURES} if any(map(has_pictures, sent.get("messages", ()))) else set(sent)
    return next(
        (name for name, named in PART_PATTERNS.items() if name in parts and named.search(message)), None
    )


def has_pictures(message: Mapping[str, Any]) -> bool:
    return any(part.kind == "picture" for part in list_parts(message.get("content")))


def format_unreachable(where: EndpointContext, reason: str = "") -> str:
    detail = make_line(reason, where)
    hint = (
        "is the server running?"
        if "127.0.0.1" in where.display_address or "localhost" in where.display_address
        else ""
    )
    return f"{where.display_address} cannot be reached" + "".join(
        f": {part}" for part in (detail, hint) if part
    )


def make_lost(where: EndpointContext, reason: str) -> ProviderProblem:
    """Return the `ProviderProblem` for a lost connection to an endpoint or for an invalid response of it. It says
    that a retry can help."""
    return ProviderProblem(Unreachable(f"{where.display_address}: {make_line(reason, where)}"), again=True)


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds an endpoint asks to wait before a retry, according to the headers of its response.
    Return None if they do not say. The headers give the time in milliseconds, in seconds or as a date."""
    values = _lower_names(headers)
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(values[name]) * unit)
        except (KeyError, ValueError):
            continue
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(values["retry-after"]).timestamp() - clock.now())
    except (KeyError, ValueError):
        return None


def _make_redirect_error(status: int, headers: Mapping[str, str], where: EndpointContext) -> BadRequest:
    """Return the error for a redirect. Redirects are not followed, because the key would go to another
    address."""
    try:
        target = where._replace(base_url=urljoin(where.base_url, _lower_names(headers).get("location", "")))
        to = f" to {make_line(target.display_address, where)}"
    except ValueError:
        to = ""
    return BadRequest(
        f"{where.display_address} redirects{to} ({status}); redirects are not followed: set the right address"
    )


def _make_not_authorized(status: int, detail: str, where: EndpointContext) -> NotAuthorized:
    if not where.key:
        how = f"set {where.key_env}" if where.key_env else "name its variable in model.key_env"
        return NotAuthorized(f"{where.display_address} requires a key: {how}, or run `hermes setup`")
    what = "does not accept the key" if status != 403 else "does not allow this with the key"
    origin = f" in {where.key_env}" if where.key_env else ""
    return NotAuthorized(f"{where.display_address} {what}{origin}: {detail}")


def _make_no_such_model(detail: str, where: EndpointContext) -> NoSuchModel:
    return NoSuchModel(
        f"{where.display_address} has no model {where.model!r} ({detail}); `hermes setup` lists the available models"
    )


def _get_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status {status}"


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
