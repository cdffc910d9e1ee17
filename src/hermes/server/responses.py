"""`/v1/responses`: made, streamed, gone on from, looked at again, deleted.

Nothing is stored for it. The id of a response says which message of the person it answers, and is signed with the key
it was made for; what was answered is in the conversation.
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
from hermes.agent.models.finish_reasons import FILTERED, LENGTH, normalize_reason
from hermes.server.api_errors import Refused, bad, no_such_response
from hermes.server.api_keys import Person
from hermes.server.completions import notes, refuse_tools
from hermes.server.conversation_match import answer_to
from hermes.server.message_format import Asked, asked, stored
from hermes.server.request_handler import SILENT, Desk, event, told_session
from hermes.server.turns import Answer, Piece, Turn

PREFIX, SIGNATURE = "resp_", 32


async def create(desk: Desk, request: Request, person: Person) -> Response:
    name = desk.session_name(request)

    def understand(body: dict[str, Any]) -> tuple[dict[str, Any], Asked]:
        _refuse_what_is_not_here(body)
        desk.check_model(body)
        return body, _said(body, desk.limits.most_messages)

    body, said = await desk.read(request, person, understand)
    keep, streamed = body.get("store") is not False, body.get("stream") is True
    previous = body.get("previous_response_id")
    if name is not None and (previous is not None or not keep):
        other = "store: false" if previous is None else "previous_response_id"
        raise bad(f"a named session and {other} cannot be asked for together")
    after = None if previous is None else read_id(person, previous)
    desk.limit(person)
    said = await desk.with_pictures(request, person, said)
    if after is not None:
        finding = desk.conversations.after(person, *after, said, fleeting=not keep)
        turn = await desk.turn_at(finding)
    elif not keep:
        turn = await desk.turn_at(desk.conversations.begun(person, said, fleeting=True))
    else:
        turn = await desk.turn(person, name, said)
    about = {
        "model": desk.model,
        "created_at": int(clock.now()),
        "instructions": body.get("instructions"),
        "previous_response_id": previous,
        "metadata": body.get("metadata") or {},
        "store": keep,
    }
    if streamed:
        return await desk.stream(request, turn, lambda pieces: _events(turn, pieces, about))
    answer = await desk.answer(request, turn)
    return JSONResponse(_completed(turn, answer, about), headers=told_session(turn))


async def get(desk: Desk, request: Request, person: Person) -> Response:
    session_id, message_id = read_id(person, request.path_params["id"])
    answered = await desk.work(person, answer_to, desk.store(person), session_id, message_id)
    texts = [one.content for one in stored(answered.rows) if one.role == "assistant"]
    last = answered.rows[-1]
    about = {"model": desk.model, "created_at": int(last["timestamp"]), "store": True}
    cut = incomplete(last["finish_reason"])
    status = "incomplete" if cut or last["finish_reason"] == "interrupted" else "completed"
    output = [_message(message_id, texts[-1] if texts else "", status)]
    return JSONResponse(_response(request.path_params["id"], about, status, output) | cut)


async def delete(desk: Desk, request: Request, person: Person) -> Response:
    made = request.path_params["id"]
    await desk.conversations.take_back(person, *read_id(person, made))
    return JSONResponse({"id": made, "object": "response", "deleted": True})


# ---------------------------------------------------------------- ids


def new_id(person: Person, session_id: str, message_id: int | None) -> str:
    if message_id is None:  # it could not be stored, and so nobody can come back to it
        return f"{PREFIX}{os.urandom(SIGNATURE // 2).hex()}"
    place = f"{message_id}:{session_id}".encode()
    told = base64.urlsafe_b64encode(place).decode().rstrip("=")
    return f"{PREFIX}{person.mark('response', place)}{told}"


def read_id(person: Person, made: object) -> tuple[str, int]:
    """The session and the message. What was made for another key is not known here, like what never was."""
    text = made.removeprefix(PREFIX) if isinstance(made, str) and made.startswith(PREFIX) else ""
    signature, told = text[:SIGNATURE], text[SIGNATURE:]
    try:
        place = base64.urlsafe_b64decode(told.encode() + b"=" * (-len(told) % 4))
        if not told or not hmac.compare_digest(signature.encode(), person.mark("response", place).encode()):
            raise no_such_response()
        number, _, session_id = place.decode().partition(":")
        return session_id, int(number)
    except (binascii.Error, ValueError):
        raise no_such_response() from None


# ---------------------------------------------------------------- what is said


def _said(body: Mapping[str, Any], most: int) -> Asked:
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise bad("instructions must be text", "instructions")
    said = body.get("input")
    messages = [{"role": "user", "content": said}] if isinstance(said, str) else said
    return asked(messages, "input", most, instructions)


def _refuse_what_is_not_here(body: Mapping[str, Any]) -> None:
    refuse_tools(body, "tools")
    for name in ("background", "conversation", "prompt"):
        if body.get(name):
            raise bad(f"{name} is not supported here", name, "unsupported")
    text = body.get("text")
    shape = text.get("format") if isinstance(text, Mapping) else None
    if shape not in (None, {"type": "text"}):
        raise bad("answers are plain text here: text.format is not supported", "text", "unsupported")


# ---------------------------------------------------------------- what is answered


async def _events(
    turn: Turn, pieces: AsyncIterator[Piece | None], about: Mapping[str, Any]
) -> AsyncIterator[bytes]:
    number = -1

    def told(kind: str, **body: Any) -> bytes:
        nonlocal number
        number += 1
        return event({"type": kind, "sequence_number": number, **body}, kind)

    made = _id_of(turn)
    place = {"item_id": _item_id(turn.answer.said), "output_index": 0, "content_index": 0}
    begun = _response(made, about, "in_progress", [])
    yield told("response.created", response=begun)
    yield told("response.in_progress", response=begun)
    item = _message(turn.answer.said, None, "in_progress")
    yield told("response.output_item.added", output_index=0, item=item)
    yield told("response.content_part.added", **place, part=_text(""))
    shown = ""
    async for piece in pieces:
        if piece is None or piece.is_reasoning:  # nothing is to be shown, but the answer is being made
            yield SILENT
            continue
        shown += piece.text
        yield told("response.output_text.delta", **place, delta=piece.text, logprobs=[])
    answer = turn.answer
    if answer.failure is not None:
        yield told("response.failed", response=_failed(made, about, answer.failure, answer, shown))
        return
    yield told("response.output_text.done", **place, text=shown, logprobs=[])
    yield told("response.content_part.done", **place, part=_text(shown))
    cut = incomplete(answer.reason)
    status = "incomplete" if cut else "completed"
    item = _message(answer.said, shown, status)
    yield told("response.output_item.done", output_index=0, item=item)
    yield told(
        f"response.{status}",
        response=_response(made, about, status, [item], _usage(answer)) | cut | notes(answer),
    )


def _completed(turn: Turn, answer: Answer, about: Mapping[str, Any]) -> dict[str, Any]:
    cut = incomplete(answer.reason)
    status = "incomplete" if cut else "completed"
    output = [_message(answer.said, answer.text, status)]
    return _response(_id_of(turn), about, status, output, _usage(answer)) | cut | notes(answer)


def incomplete(reason: str | None) -> dict[str, Any]:
    """What tells that an answer was cut short; nothing if it was not."""
    told = {LENGTH: "max_output_tokens", FILTERED: "content_filter"}.get(normalize_reason(reason) or "")
    return {"incomplete_details": {"reason": told}} if told else {}


def _failed(
    made: str, about: Mapping[str, Any], failure: Refused, answer: Answer, shown: str
) -> dict[str, Any]:
    output = [_message(answer.said, shown, "incomplete")] if shown else []
    error = {"code": "server_error", "message": failure.message}
    return {**_response(made, about, "failed", output), "error": error}


def _id_of(turn: Turn) -> str:
    return new_id(turn.place.person, turn.place.current, turn.answer.said)


def _item_id(message_id: int | None) -> str:
    return f"msg_{'unstored' if message_id is None else message_id}"


def _message(message_id: int | None, text: str | None, status: str) -> dict[str, Any]:
    content = [] if text is None else [_text(text)]
    made = {"id": _item_id(message_id), "type": "message", "role": "assistant"}
    return {**made, "status": status, "content": content}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response(
    made: str,
    about: Mapping[str, Any],
    status: str,
    output: list[dict[str, Any]],
    usage: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    return {
        "id": made,
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


def _usage(answer: Answer) -> dict[str, Any] | None:
    tokens = answer.tokens
    if tokens is None:
        return None
    sent, cached, said, thought = tokens
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": said,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": sent + said,
    }
