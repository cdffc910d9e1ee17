"""`POST /v1/chat/completions`. The answer is sent as a whole or streamed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from hermes import clock
from hermes.agent.answer import Answer
from hermes.agent.events import Note, NotStored
from hermes.agent.models.finish_reasons import normalize_reason
from hermes.server.api_errors import Refused, bad_request
from hermes.server.api_keys import Person
from hermes.server.message_format import NO_TOOLS, RequestMessages, read_messages
from hermes.server.request_handler import SILENT, RequestHandler, format_event
from hermes.server.turns import Piece, Turn

DONE = b"data: [DONE]\n\n"
TEXT_ONLY = ({"type": "text"}, None)


async def complete(handler: RequestHandler, request: Request, person: Person) -> Response:
    name = handler.read_session_name(request)

    def parse(body: dict[str, Any]) -> tuple[Person, bool, bool, RequestMessages]:
        _refuse_unsupported(body)
        streamed, with_usage = body.get("stream") is True, has_usage_option(body)
        return (
            handler.check_model(person, body),
            streamed,
            with_usage,
            read_messages(body.get("messages"), "messages", handler.limits.most_messages),
        )

    person, streamed, with_usage, messages = await handler.read_body(request, person, parse)
    handler.check_rate(person)
    await handler.check_budget(person)
    mark = await handler.identify_request(request, person, messages, name)
    messages = await handler.inline_pictures(request, person, messages)
    turn = await handler.begin_turn(
        person, mark, messages, lambda: handler.conversations.open(person, name, messages)
    )
    if streamed:
        return await stream_completion(handler, request, turn, with_usage)
    return handler.respond(turn, await make_completion(handler, request, turn))


async def stream_completion(
    handler: RequestHandler, request: Request, turn: Turn, with_usage: bool
) -> Response:
    return await handler.stream(
        request, turn, lambda pieces: _stream_chunks(handler, turn, pieces, with_usage)
    )


async def make_completion(handler: RequestHandler, request: Request, turn: Turn) -> dict[str, Any]:
    """Wait until the turn ends and return the completion object, which is the body of the response."""
    answer = await handler.answer(request, turn)
    message = {"role": "assistant", "content": answer.whole_text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    choice = {"index": 0, "message": message, "finish_reason": _get_finish_reason(answer), "logprobs": None}
    return {
        **_make_head(handler, "chat.completion"),
        "choices": [choice],
        "usage": _format_usage(answer),
        **format_notes(answer),
    }


def format_notes(answer: Answer) -> dict[str, Any]:
    """Return a dictionary with the response field for the notes of an answer. It is empty if the answer has no
    notes."""
    notes = [_format_note(note) for note in answer.notes]
    return {"hermes": {"notes": list(dict.fromkeys(notes))}} if notes else {}


def _format_note(note: Note | NotStored) -> str:
    if isinstance(note, Note):
        return note.text
    consequence = (
        "kept in a spool file until it can be stored" if note.spooled else "lost when the server ends"
    )
    return f"not stored ({note.why}); it is {consequence}"


def refuse_tools(body: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if body.get(name):
            raise Refused(400, NO_TOOLS, param=name, code="unsupported")


async def _stream_chunks(
    handler: RequestHandler, turn: Turn, pieces: AsyncIterator[Piece | None], with_usage: bool
) -> AsyncIterator[bytes]:
    head = _make_head(handler, "chat.completion.chunk") | ({"usage": None} if with_usage else {})

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": dict(delta), "finish_reason": reason, "logprobs": None}
        return format_event({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    async for piece in pieces:
        if piece is None:
            yield SILENT
        else:
            yield chunk({"reasoning_content" if piece.is_reasoning else "content": piece.text})
    answer = turn.answer
    if turn.failure is not None:
        yield format_event(turn.failure.body)
        return
    yield chunk({}, _get_finish_reason(answer))
    if with_usage:
        yield format_event({**head, "choices": [], "usage": _format_usage(answer), **format_notes(answer)})
    handler.confirm_sent(turn)
    yield DONE


def _make_head(handler: RequestHandler, kind: str) -> dict[str, Any]:
    completion_id = f"chatcmpl-{os.urandom(12).hex()}"
    return {"id": completion_id, "object": kind, "created": int(clock.now()), "model": handler.model}


def _get_finish_reason(answer: Answer) -> str:
    return normalize_reason(answer.reason) or "stop"


def _format_usage(answer: Answer) -> dict[str, Any] | None:
    tokens = answer.tokens
    if tokens is None:
        return None
    sent, cached, answered, thought = tokens
    return {
        "prompt_tokens": sent,
        "completion_tokens": answered,
        "total_tokens": sent + answered,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


def has_usage_option(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    if options is not None and not isinstance(options, Mapping):
        raise bad_request("stream_options must be an object", "stream_options")
    return bool(options and options.get("include_usage"))


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raise a 400 error for options that change the format of the answer. Other options, such as `temperature`, are
    ignored, because the settings of the agent apply."""
    refuse_tools(body, "tools", "functions")
    if body.get("n") not in (None, 1):
        raise bad_request("a request gets one answer: n must be 1", "n", "unsupported")
    if body.get("response_format") not in TEXT_ONLY:
        raise bad_request(
            "answers are plain text: response_format is not supported", "response_format", "unsupported"
        )
    if body.get("logprobs") or body.get("audio") or body.get("modalities") not in (None, ["text"]):
        raise bad_request("answers are plain text: logprobs and audio are not supported", code="unsupported")
