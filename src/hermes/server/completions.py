"""`POST /v1/chat/completions`, whole and streamed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hermes import clock
from hermes.agent.models.finish_reasons import normalize_reason
from hermes.server.api_errors import Refused, bad
from hermes.server.api_keys import Person
from hermes.server.message_format import NO_TOOLS, Asked, asked
from hermes.server.request_handler import SILENT, Desk, event, told_session
from hermes.server.turns import Answer, Piece, Turn

DONE = b"data: [DONE]\n\n"
TEXT_ONLY = ({"type": "text"}, None)


async def complete(desk: Desk, request: Request, person: Person) -> Response:
    name = desk.session_name(request)

    def understand(body: dict[str, Any]) -> tuple[bool, bool, Asked]:
        _refuse_what_is_not_here(body)
        desk.check_model(body)
        streamed, with_usage = body.get("stream") is True, _wants_usage(body)
        return streamed, with_usage, asked(body.get("messages"), "messages", desk.limits.most_messages)

    streamed, with_usage, said = await desk.read(request, person, understand)
    desk.limit(person)
    said = await desk.with_pictures(request, person, said)
    turn = await desk.turn(person, name, said)
    if streamed:
        return await desk.stream(request, turn, lambda pieces: _chunks(desk, turn, pieces, with_usage))
    answer = await desk.answer(request, turn)
    message = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    choice = {"index": 0, "message": message, "finish_reason": _reason(answer), "logprobs": None}
    told = {**_head(desk, "chat.completion"), "choices": [choice], "usage": _usage(answer), **notes(answer)}
    return JSONResponse(told, headers=told_session(turn))


def notes(answer: Answer) -> dict[str, Any]:
    """What whoever asked should know besides the answer; nothing if there is nothing."""
    return {"hermes": {"notes": list(dict.fromkeys(answer.notes))}} if answer.notes else {}


def refuse_tools(body: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if body.get(name):
            raise Refused(400, NO_TOOLS, param=name, code="unsupported")


async def _chunks(
    desk: Desk, turn: Turn, pieces: AsyncIterator[Piece | None], with_usage: bool
) -> AsyncIterator[bytes]:
    head = _head(desk, "chat.completion.chunk") | ({"usage": None} if with_usage else {})

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": dict(delta), "finish_reason": reason, "logprobs": None}
        return event({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    async for piece in pieces:
        if piece is None:
            yield SILENT
        else:
            yield chunk({"reasoning_content" if piece.is_reasoning else "content": piece.text})
    answer = turn.answer
    if answer.failure is not None:
        yield event(answer.failure.body)
        return
    yield chunk({}, _reason(answer))
    if with_usage:
        yield event({**head, "choices": [], "usage": _usage(answer), **notes(answer)})
    yield DONE


def _head(desk: Desk, kind: str) -> dict[str, Any]:
    made = f"chatcmpl-{os.urandom(12).hex()}"
    return {"id": made, "object": kind, "created": int(clock.now()), "model": desk.model}


def _reason(answer: Answer) -> str:
    return normalize_reason(answer.reason) or "stop"


def _usage(answer: Answer) -> dict[str, Any] | None:
    tokens = answer.tokens
    if tokens is None:
        return None
    sent, cached, said, thought = tokens
    return {
        "prompt_tokens": sent,
        "completion_tokens": said,
        "total_tokens": sent + said,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


def _wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    if options is not None and not isinstance(options, Mapping):
        raise bad("stream_options must be an object", "stream_options")
    return bool(options and options.get("include_usage"))


def _refuse_what_is_not_here(body: Mapping[str, Any]) -> None:
    """What would change the shape of the answer. What would only change its style is for the agent to decide."""
    refuse_tools(body, "tools", "functions")
    if body.get("n") not in (None, 1):
        raise bad("there is one answer to a request here: n must be 1", "n", "unsupported")
    if body.get("response_format") not in TEXT_ONLY:
        raise bad("answers are text here: response_format is not supported", "response_format", "unsupported")
    if body.get("logprobs") or body.get("audio") or body.get("modalities") not in (None, ["text"]):
        raise bad("answers are text here, without logprobs and audio", code="unsupported")
