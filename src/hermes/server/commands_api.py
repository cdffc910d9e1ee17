"""`/api/sessions/{id}/commands`: the slash commands that all surfaces share, for programs.

They are the commands of the terminal and of chat platforms, but the reply is sent as data. A command that changes
nothing runs without the lock of the conversation. Every other command holds the lock while it runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from hermes import errors
from hermes.agent.events import Event, Failed, Moved, Note
from hermes.conversation.commands import replies
from hermes.conversation.commands.command_types import (
    CommandContext,
    Option,
    SharedCommand,
    split_command,
)
from hermes.conversation.commands.shared_commands import COMMANDS
from hermes.conversation.commands.wording import describe_unknown
from hermes.conversation.conversation import Conversation
from hermes.conversation.file_restore import RestorePlan
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.commands.reply_markdown import format_line, format_reply
from hermes.gateway.http.host import HOLD
from hermes.gateway.http.limits import current_guard
from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.daily_limit import Budget, DailyLimit
from hermes.gateway.settings import ResetPolicy
from hermes.server.api_errors import Refused, bad_request, session_not_found, translate_error
from hermes.server.api_keys import Person
from hermes.server.completions import has_usage_option, make_completion, stream_completion
from hermes.server.conversations.locks import LockedConversation
from hermes.server.idempotency import HEADER
from hermes.server.key_limits import LONGEST_QUERY, check_query
from hermes.server.request_handler import SESSION, RequestHandler
from hermes.server.sessions_api import find_session, format_row

if TYPE_CHECKING:
    from hermes.agent.subagents import Subagents

NOT_SERVED = {"help": "GET /api/commands lists the commands"}
"""Shared commands that the API does not offer, and the text that names the alternative."""
SERVED = tuple(command for command in COMMANDS if command.name not in NOT_SERVED)

_BY_NAME = {name: command for command in COMMANDS for name in command.names}
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class CommandRequest(NamedTuple):
    command: SharedCommand
    words: str
    is_streamed: bool
    has_usage: bool

    @property
    def is_at_once(self) -> bool:
        return self.command.at_once or (self.command.bare_at_once and not self.words)


async def list_commands(_handler: RequestHandler, _request: Request, _person: Person) -> Response:
    commands = [
        {
            "name": command.name,
            "aliases": list(command.aliases),
            "usage": command.usage,
            "description": command.summary,
        }
        for command in SERVED
    ]
    return JSONResponse({"commands": commands})


async def run_command(handler: RequestHandler, request: Request, person: Person) -> Response:
    call = await handler.read_body(request, person, lambda body: _read_request(body, handler))
    session_id = request.path_params["id"]
    await find_session(handler, request, person)

    async def run() -> Response:
        if call.is_at_once:
            return await _show(handler, person, session_id, call)
        handler.check_rate(person)
        await handler.check_budget(person)
        with handler.keep_open():
            return await _change(handler, request, person, session_id, call)

    key = None if call.is_at_once or call.is_streamed else request.headers.get(HEADER)
    answer = await handler.repeats.answer_once(person.name, key, (session_id, call), run)
    if not isinstance(answer, StreamingResponse):  # the body stays in memory until the client has read it
        request.scope[HOLD](min(len(answer.body), current_guard().bodies.share))
    return answer


def _read_request(body: Mapping[str, Any], handler: RequestHandler) -> CommandRequest:
    text = body.get("command")
    typed = split_command(f"/{text.strip().removeprefix('/')}") if isinstance(text, str) else None
    if typed is None:
        raise bad_request("command must be a slash command with its arguments, such as `/undo 2`", "command")
    name = typed.name.lower()
    command = _BY_NAME.get(name)
    if command is None:
        served = [name for command in SERVED for name in command.names]
        text = format_line(describe_unknown(name, served, "GET /api/commands"))
        raise Refused(404, text, code="command_not_found", param="command")
    if command.name in NOT_SERVED:
        raise _refuse(f"/{command.name} is not available in the API: {NOT_SERVED[command.name]}")
    if command.name == "search":
        check_query(typed.words, handler.limits, "command")
    elif len(typed.words) > LONGEST_QUERY:
        raise bad_request(f"command is longer than {LONGEST_QUERY:,} characters", "command")
    return CommandRequest(command, typed.words, body.get("stream") is True, has_usage_option(body))


def _refuse(text: str) -> Refused:
    return Refused(400, ": ".join(text.splitlines()), code="command_refused", param="command")


# ---------------------------------------------------------------- running


async def _show(handler: RequestHandler, person: Person, session_id: str, call: CommandRequest) -> Response:
    """Run a slash command that changes nothing, without locking the conversation. Return the response with its
    reply."""
    conversation = await handler.conversations.view(person, session_id)
    async with handler.reserve_thread(person):
        reply = await _run(handler, person, conversation, call)
        return await _make_response(person, session_id, conversation, call, reply)


async def _change(
    handler: RequestHandler, request: Request, person: Person, session_id: str, call: CommandRequest
) -> Response:
    locked = await handler.conversations.open_session(person, session_id)
    conversation, is_left = locked.conversation, False
    try:
        reply = await _run(handler, person, conversation, call)
        events: Sequence[Event] = ()
        if isinstance(reply, replies.Compressing):
            events = await _read_events(reply.events)
        if isinstance(reply, replies.AskAgain):
            is_left = True  # the turn releases the conversation
            return await _ask_again(handler, request, locked, call, reply)
        return await _make_response(person, session_id, conversation, call, reply, events=events)
    finally:
        if not is_left:
            await handler.conversations.leave(locked)


async def _run(
    handler: RequestHandler, person: Person, conversation: Conversation[ScopedStore], call: CommandRequest
) -> replies.Reply:
    surface = ApiSurface(handler.context.agents.subagents)
    reply = await call.command.run(CommandContext(conversation.store, conversation, surface), call.words)
    match reply:
        case replies.Refused() | replies.WrongUsage():
            raise _refuse(await _format_text(person, conversation, reply))
        case replies.NotFound():
            raise session_not_found()
        case replies.Busy(session_id):
            raise translate_error(
                errors.LeaseHeld(f"session {session_id} is in use by somebody else; try again later")
            )
        case _:
            return reply


async def _read_events(events: AsyncIterator[Event]) -> list[Event]:
    """Run a compression by reading its events. Return its `Note` and `Moved` events. Raise an API error if the
    compression fails."""
    outcome: list[Event] = []
    async for event in events:
        if isinstance(event, Failed):
            raise translate_error(event.error)
        if isinstance(event, Note | Moved):
            outcome.append(event)
    return outcome


async def _ask_again(
    handler: RequestHandler,
    request: Request,
    locked: LockedConversation,
    call: CommandRequest,
    reply: replies.AskAgain,
) -> Response:
    turn = handler.start_turn(locked._replace(content=None if reply.is_stored else reply.content))
    if call.is_streamed:
        return await stream_completion(handler, request, turn, call.has_usage)
    completion = await make_completion(handler, request, turn)
    session_id = request.path_params["id"]
    conversation = await handler.conversations.view(locked.person, turn.locked.current)
    return await _make_response(locked.person, session_id, conversation, call, reply, completion=completion)


class ApiSurface:
    """The surface on which the slash commands of API requests run. A program cannot be asked questions, so every
    confirmation counts as given."""

    waiting, edits_files = 0, False

    def __init__(self, subagents: Subagents) -> None:
        self.subagents = subagents

    async def confirm(self, question: str) -> bool:
        return True

    async def choose(self, question: str, options: Sequence[Option]) -> str | None:
        return None

    async def confirm_restore(self, plan: RestorePlan, *, is_redo: bool) -> bool:
        return False


# ---------------------------------------------------------------- the response


async def _make_response(
    person: Person,
    requested_id: str,
    conversation: Conversation[ScopedStore],
    call: CommandRequest,
    reply: replies.Reply,
    *,
    events: Sequence[Event] = (),
    completion: Mapping[str, Any] | None = None,
) -> Response:
    is_compression = isinstance(reply, replies.Compressing)
    if is_compression:
        reply = replies.Compressing(_replay(events))
    session_id = conversation.session_id
    root = await asyncio.to_thread(conversation.store.get_conversation_root, session_id)
    body = {
        "object": "hermes.command",
        "command": call.command.name,
        "requested_session_id": requested_id,
        "session_id": session_id,
        "changed": session_id != requested_id,
        "kind": name_kind(reply),
        "text": await _format_text(person, conversation, reply),
        **({} if completion is None else {"completion": completion}),
    }

    def encode() -> Response:
        data = {"events": list(map(encode_event, events))} if is_compression else encode_reply(reply)
        return JSONResponse(body | {"data": data}, headers={SESSION: root or session_id})

    return await asyncio.to_thread(encode)


async def _replay(events: Iterable[Event]) -> AsyncIterator[Event]:
    for event in events:
        yield event


def name_kind(value: object) -> str:
    """Return the class name of a reply or an event in snake case, such as `took_back` for `TookBack`."""
    return _WORD_START.sub("_", type(value).__name__.removesuffix("Reply")).lower()


def encode_event(event: Event) -> dict[str, Any]:
    return {"kind": name_kind(event), **encode_reply(event)}


def encode_reply(value: Any) -> Any:
    """Return the reply of a slash command as JSON values.

    A named tuple becomes an object with its field names. The private columns of the server are removed from session
    rows.
    """
    match value:
        case tuple() if hasattr(value, "_asdict"):
            return {name: encode_reply(field) for name, field in value._asdict().items()}
        case list() | tuple():
            return [encode_reply(item) for item in value]
        case dict():
            return format_row(value)
        case _:
            return value


class _ApiChat(NamedTuple):
    """The `ReplyChat` for the Markdown formatter: the conversation of a program that uses the API."""

    working_since: float | None
    was_trashed: bool = False
    is_shared: bool = False
    waiting: int = 0
    waiting_approvals: tuple[()] = ()


class _ApiReplyContext(NamedTuple):
    """The `ReplyContext` of a program that uses the API. Conversations of the API are never reset
    automatically."""

    source: Source
    chat: _ApiChat
    policy: ResetPolicy = ResetPolicy()
    next_reset: Callable[[], None] = lambda: None
    can_approve: bool = False
    reset_holds: Callable[[], tuple[()]] = lambda: ()
    budget: Callable[[], Budget | None] = lambda: None


async def _format_text(person: Person, conversation: Conversation[ScopedStore], reply: replies.Reply) -> str:
    """Return the reply of a slash command as Markdown, in the format that it has on chat platforms."""
    limit, owner = conversation.scope.limit, conversation.scope.owner
    context = _ApiReplyContext(
        person.source,
        _ApiChat(conversation.working_since),
        budget=lambda: limit.read(conversation.store, owner) if isinstance(limit, DailyLimit) else None,
    )
    return (await format_reply(context, reply)).text
