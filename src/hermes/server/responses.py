"""`/v1/responses`: create, stream, continue, get and delete responses.

A response is not stored separately, because the answer is part of the conversation. The id of a response contains the
session and the message that it answers. It is signed with the key of its owner.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hermes import clock
from hermes.agent.answer import Answer
from hermes.agent.models.finish_reasons import FILTERED, LENGTH, normalize_reason
from hermes.message_content import INTERRUPTED, PARTIAL
from hermes.server.api_errors import Refused, bad_request, response_not_found
from hermes.server.api_keys import Person
from hermes.server.completions import format_notes, refuse_tools
from hermes.server.conversations.conversation_match import find_answer
from hermes.server.conversations.locks import LockedConversation
from hermes.server.message_format import RequestMessages, convert_rows, read_messages
from hermes.server.request_handler import SILENT, RequestHandler, format_event
from hermes.server.turns import Piece, Turn

PREFIX, SIGNATURE = "resp_", 32


async def create_response(handler: RequestHandler, request: Request, person: Person) -> Response:
    name = handler.read_session_name(request)

    def parse(body: dict[str, Any]) -> tuple[Person, dict[str, Any], RequestMessages]:
        _refuse_unsupported(body)
        return handler.check_model(person, body), body, _read_input(body, handler.limits.most_messages)

    person, body, messages = await handler.read_body(request, person, parse)
    keep, streamed = body.get("store") is not False, body.get("stream") is True
    previous = body.get("previous_response_id")
    if name is not None and (previous is not None or not keep):
        other = "store: false" if previous is None else "previous_response_id"
        raise bad_request(f"a request cannot combine a named session with {other}")
    after = None if previous is None else decode_id(person, previous)
    handler.check_rate(person)
    await handler.check_budget(person)
    mark = await handler.identify_request(request, person, messages, name, previous, keep)
    messages = await handler.inline_pictures(request, person, messages)

    async def open_conversation() -> LockedConversation:
        if after is not None:
            return await handler.conversations.continue_after(person, *after, messages, is_temporary=not keep)
        if not keep:
            return await handler.conversations.begin_new(person, messages, is_temporary=True)
        return await handler.conversations.open(person, name, messages)

    turn = await handler.begin_turn(person, mark, messages, open_conversation)
    about = {
        "model": handler.model,
        "created_at": int(clock.now()),
        "instructions": body.get("instructions"),
        "previous_response_id": previous,
        "metadata": body.get("metadata") or {},
        "store": keep,
    }
    if streamed:
        return await handler.stream(
            request, turn, lambda pieces: _stream_events(handler, turn, pieces, about)
        )
    answer = await handler.answer(request, turn)
    return handler.respond(turn, _make_completed(turn, answer, about))


async def get_response(handler: RequestHandler, request: Request, person: Person) -> Response:
    session_id, message_id = decode_id(person, request.path_params["id"])
    answered = await handler.run_in_thread(
        person, find_answer, handler.get_store(person), session_id, message_id
    )
    texts = [message.content for message in convert_rows(answered.rows) if message.role == "assistant"]
    last = answered.rows[-1]
    about = {"model": handler.model, "created_at": int(last["timestamp"]), "store": True}
    cut = describe_incomplete(last["finish_reason"])
    status = "incomplete" if cut or last["finish_reason"] in (INTERRUPTED, PARTIAL) else "completed"
    output = [_make_message(message_id, texts[-1] if texts else "", status)]
    return JSONResponse(_make_response(request.path_params["id"], about, status, output) | cut)


async def delete_response(handler: RequestHandler, request: Request, person: Person) -> Response:
    response_id = request.path_params["id"]
    await handler.conversations.take_back(person, *decode_id(person, response_id))
    return JSONResponse({"id": response_id, "object": "response", "deleted": True})


# ---------------------------------------------------------------- ids


def encode_id(person: Person, session_id: str, message_id: int | None) -> str:
    if message_id is None:  # the message could not be stored, so the id cannot be used again
        return f"{PREFIX}{os.urandom(SIGNATURE // 2).hex()}"
    place = f"{message_id}:{session_id}".encode()
    text = base64.urlsafe_b64encode(place).decode().rstrip("=")
    return f"{PREFIX}{person.make_mark('response', place)}{text}"


def decode_id(person: Person, response_id: object) -> tuple[str, int]:
    """Return the session id and the message id that a response id contains. Raise a 404 error if the response id is
    invalid or was signed with another API key."""
    text = (
        response_id.removeprefix(PREFIX)
        if isinstance(response_id, str) and response_id.startswith(PREFIX)
        else ""
    )
    signature, encoded = text[:SIGNATURE], text[SIGNATURE:]
    try:
        place = base64.urlsafe_b64decode(encoded.encode() + b"=" * (-len(encoded) % 4))
        if not encoded or not hmac.compare_digest(
            signature.encode(), person.make_mark("response", place).encode()
        ):
            raise response_not_found()
        number, _, session_id = place.decode().partition(":")
        return session_id, int(number)
    except (binascii.Error, ValueError):
        raise response_not_found() from None


# ---------------------------------------------------------------- the input


def _read_input(body: Mapping[str, Any], most: int) -> RequestMessages:
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise bad_request("instructions must be text", "instructions")
    value = body.get("input")
    messages = [{"role": "user", "content": value}] if isinstance(value, str) else value
    return read_messages(messages, "input", most, instructions)


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    refuse_tools(body, "tools")
    for name in ("background", "conversation", "prompt"):
        if body.get(name):
            raise bad_request(f"{name} is not supported here", name, "unsupported")
    text = body.get("text")
    shape = text.get("format") if isinstance(text, Mapping) else None
    if shape not in (None, {"type": "text"}):
        raise bad_request("answers are plain text: text.format is not supported", "text", "unsupported")


# ---------------------------------------------------------------- the response


async def _stream_events(
    handler: RequestHandler, turn: Turn, pieces: AsyncIterator[Piece | None], about: Mapping[str, Any]
) -> AsyncIterator[bytes]:
    number = -1

    def format_body(kind: str, **body: Any) -> bytes:
        nonlocal number
        number += 1
        return format_event({"type": kind, "sequence_number": number, **body}, kind)

    response_id = _make_response_id(turn)
    place = {"item_id": _make_item_id(turn.answer.prompt_id), "output_index": 0, "content_index": 0}
    response = _make_response(response_id, about, "in_progress", [])
    yield format_body("response.created", response=response)
    yield format_body("response.in_progress", response=response)
    item = _make_message(turn.answer.prompt_id, None, "in_progress")
    yield format_body("response.output_item.added", output_index=0, item=item)
    yield format_body("response.content_part.added", **place, part=_make_text(""))
    sent_text = ""
    async for piece in pieces:
        if piece is None or piece.is_reasoning:  # keep the connection open
            yield SILENT
            continue
        sent_text += piece.text
        yield format_body("response.output_text.delta", **place, delta=piece.text, logprobs=[])
    answer = turn.answer
    if turn.failure is not None:
        yield format_body(
            "response.failed", response=_make_failed(response_id, about, turn.failure, answer, sent_text)
        )
        return
    yield format_body("response.output_text.done", **place, text=sent_text, logprobs=[])
    yield format_body("response.content_part.done", **place, part=_make_text(sent_text))
    cut = describe_incomplete(answer.reason)
    status = "incomplete" if cut else "completed"
    item = _make_message(answer.prompt_id, sent_text, status)
    yield format_body("response.output_item.done", output_index=0, item=item)
    handler.confirm_sent(turn)
    yield format_body(
        f"response.{status}",
        response=_make_response(response_id, about, status, [item], _format_usage(answer))
        | cut
        | format_notes(answer),
    )


def _make_completed(turn: Turn, answer: Answer, about: Mapping[str, Any]) -> dict[str, Any]:
    cut = describe_incomplete(answer.reason)
    status = "incomplete" if cut else "completed"
    output = [_make_message(answer.prompt_id, answer.whole_text, status)]
    return (
        _make_response(_make_response_id(turn), about, status, output, _format_usage(answer))
        | cut
        | format_notes(answer)
    )


def describe_incomplete(reason: str | None) -> dict[str, Any]:
    """Return a dictionary with the response field `incomplete_details`, if the token limit or a content filter cut the
    answer off. `reason` is the finish reason of the answer. For any other reason, the dictionary is empty."""
    cause = {LENGTH: "max_output_tokens", FILTERED: "content_filter"}.get(normalize_reason(reason) or "")
    return {"incomplete_details": {"reason": cause}} if cause else {}


def _make_failed(
    response_id: str, about: Mapping[str, Any], failure: Refused, answer: Answer, sent_text: str
) -> dict[str, Any]:
    output = [_make_message(answer.prompt_id, sent_text, "incomplete")] if sent_text else []
    error = {"code": "server_error", "message": failure.message}
    return {**_make_response(response_id, about, "failed", output), "error": error}


def _make_response_id(turn: Turn) -> str:
    return encode_id(turn.locked.person, turn.locked.current, turn.answer.prompt_id)


def _make_item_id(message_id: int | None) -> str:
    return f"msg_{'unstored' if message_id is None else message_id}"


def _make_message(message_id: int | None, text: str | None, status: str) -> dict[str, Any]:
    content = [] if text is None else [_make_text(text)]
    message = {"id": _make_item_id(message_id), "type": "message", "role": "assistant"}
    return {**message, "status": status, "content": content}


def _make_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _make_response(
    response_id: str,
    about: Mapping[str, Any],
    status: str,
    output: list[dict[str, Any]],
    usage: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "id": response_id,
        "object": "response",
        "status": status,
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        "output": output,
        "usage": usage,
        **about,
    }


def _format_usage(answer: Answer) -> dict[str, Any] | None:
    tokens = answer.tokens
    if tokens is None:
        return None
    sent, cached, answered, thought = tokens
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": answered,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": sent + answered,
    }
