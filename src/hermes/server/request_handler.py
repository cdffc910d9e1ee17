"""The request handler: authentication, limits, request body, conversation and turn."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hermes.agent.answer import Answer
from hermes.db.scoped_store import ScopedStore
from hermes.gateway.context import GatewayContext
from hermes.gateway.http.address_rules import AllowedHosts
from hermes.gateway.http.client_address import find_client_address
from hermes.gateway.http.host import HOLD
from hermes.gateway.http.json_body import TooComplex, check_depth, check_value_count
from hermes.gateway.http.limits import current_guard
from hermes.gateway.ops.key_usage import KeyUsage
from hermes.server.api_errors import Refused, bad_request
from hermes.server.api_keys import PLATFORM, Keys, Person, get_fingerprint
from hermes.server.conversations.conversation_match import Conversations
from hermes.server.conversations.history_index import HistoryIndex
from hermes.server.conversations.locks import ConversationLocks, LockedConversation
from hermes.server.conversations.request_journal import RequestJournal, RequestMark, make_request_mark
from hermes.server.idempotency import HEADER, RepeatedRequests, check_key
from hermes.server.key_budget import check_budget, has_budget
from hermes.server.key_limits import Admission, Limits
from hermes.server.message_format import RequestMessages, encode_canonically
from hermes.server.pictures import Pictures
from hermes.server.turns import Piece, Turn
from hermes.server.workers import Workers

T = TypeVar("T")
P = ParamSpec("P")

SESSION = "X-Hermes-Session-Id"
LONGEST_NAME = 200
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
FIRST_WORD_S = 5.0
"""How long the server waits for the first text before it starts a stream, in seconds. If the turn fails within this
time, the response has the HTTP status of the error."""
SILENCE_S = 15.0
"""After this many seconds without text, the stream sends a comment line, so that proxies do not close the
connection."""
SILENT = b": still at work\n\n"


STOPPING_S = 5.0
PROBLEMS = {"revoked_api_key": "revoked", "expired_api_key": "expired"}


class ClientGone(Exception):
    """The client has disconnected."""


class RequestHandler:
    def __init__(
        self,
        context: GatewayContext,
        index: HistoryIndex,
        journal: RequestJournal,
        keys: Keys,
        usage: KeyUsage,
        model: str,
        limits: Limits,
        picture_hosts: AllowedHosts,
    ) -> None:
        self.context, self.keys, self.model, self.limits = context, keys, model, limits
        self.usage = usage
        self.admission = Admission(limits)
        self._workers = Workers()
        self._pictures = Pictures(picture_hosts, context.settings.largest_attachment_mb)
        self._locks = ConversationLocks(context, index, self._workers)
        self.conversations = Conversations(self._locks, index, journal)
        self.repeats = RepeatedRequests()
        self._turns: set[Turn] = set()
        self._in_progress: dict[str, Turn | None] = {}
        """The requests with an `Idempotency-Key` that are being answered: mark to turn. The turn is None until it
        begins."""
        self._writing: set[asyncio.Task[None]] = set()
        self._beginning = 0
        """The number of requests whose turn is about to begin."""
        self._commands: set[asyncio.Event] = set()
        """The running commands, each as an event that is set when the command ends."""
        self._closing = False

    # ---------------------------------------------------------------- authentication, limits and body

    def get_store(self, person: Person) -> ScopedStore:
        return self._locks.get_store(person)

    def find_person(self, request: Request) -> Person:
        authorization, address = request.headers.get("authorization", ""), find_client_address(request)
        try:
            person = self.keys.find_person(authorization)
            refused = None if person else _refuse_wrong_key()
        except Refused as problem:
            person, refused = None, problem
        if person is None:
            assert refused is not None
            raise self._slow_down(refused, authorization, address)
        if self.context.access.is_blocked(person.source):
            raise Refused(403, "this person is blocked", code="blocked")
        self.usage.note(person.name, address)
        return person

    def _slow_down(self, refused: Refused, authorization: str, address: str) -> Refused:
        """Record a failed authentication from the network address `address`. Return the error to send to the client:
        `refused`, or a 429 error if the address had too many failures and must wait."""
        problem = PROBLEMS.get(refused.code or "", "unknown")
        told = f"{problem}, fingerprint {get_fingerprint(authorization)}" if authorization else "missing"
        wait = current_guard().auth_failures.add(PLATFORM, address, "key", told)
        if not wait:
            return refused
        return Refused(
            429,
            "too many requests without a valid key from this address",
            code="rate_limit_exceeded",
            headers={"Retry-After": str(math.ceil(wait)), "Connection": "close"},
        )

    def check_rate(self, person: Person) -> None:
        """Raise an error if the person exceeds the message rate limit or the server is shutting down."""
        if self._closing:
            raise _refuse_ending()
        may, _ = self.context.access.check_rate(person.source)
        if not may:
            seconds = math.ceil(60 / self.context.settings.messages_per_minute)
            raise Refused(
                429,
                f"too many messages: one more every {seconds} s",
                code="rate_limit_exceeded",
                headers={"Retry-After": str(seconds)},
            )

    def check_model(self, person: Person, body: Mapping[str, Any]) -> Person:
        """Return `person` with the model that the request body names. Raise an error if there is no such model, or if
        the person's API key may not use it."""
        model, allowed = body.get("model"), person.limits.models
        if model is None or model == self.model:
            return person
        if model in allowed:
            return person._replace(model=str(model))
        if allowed:
            raise Refused(
                403,
                f"this key may not use the model {str(model)[:100]!r}, only {', '.join((self.model, *allowed))}",
                code="model_not_allowed",
                param="model",
            )
        raise Refused(
            404,
            f"there is no model {str(model)[:100]!r} here; there is {self.model!r}",
            code="model_not_found",
            param="model",
        )

    async def check_budget(self, person: Person) -> None:
        """Raise a 429 error if the API key of the person has used up its budget."""
        if has_budget(person.limits):
            zone = self.context.settings.reset.timezone
            await self.run_in_thread(person, check_budget, person, self.get_store(person), zone)

    async def run_in_thread(
        self, person: Person, work: Callable[P, T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run `work` in a worker thread and return its result. The number of threads per API key is limited."""
        return await self._workers.run(person.name, work, *args, **options)

    def reserve_thread(self, person: Person) -> AbstractAsyncContextManager[None]:
        """Return a context manager that occupies one of the worker threads that the person's API key may use. Used for
        work that runs in threads of other pools."""
        return self._workers.reserve(person.name)

    async def read_body(self, request: Request, person: Person, parse: Callable[[dict[str, Any]], T]) -> T:
        """Read the body of a request, which must be a JSON object. Call `parse` with the object, in a worker thread,
        and return its result."""
        # `request.body()` would keep the bytes in memory until the answer is sent.
        sent = b"".join([chunk async for chunk in request.stream()])
        return await self.run_in_thread(person, lambda: parse(_parse_body(sent)))

    async def inline_pictures(
        self, request: Request, person: Person, messages: RequestMessages
    ) -> RequestMessages:
        """Return the messages of a request with the pictures themselves, as data URLs, in place of URLs of pictures."""
        return await self._pictures.inline(person.name, messages, request.scope[HOLD])

    @staticmethod
    def read_session_name(request: Request) -> str | None:
        """Return the session name from the request header, or None. Raise a 400 error if the name is invalid."""
        name = request.headers.get(SESSION)
        if name is None:
            return None
        with suppress(UnicodeError):  # headers are read as Latin-1, but clients send UTF-8
            name = name.encode("latin-1").decode()
        if not name.strip() or len(name) > LONGEST_NAME or CONTROL.search(name):
            raise bad_request(
                f"{SESSION} must be a name of at most {LONGEST_NAME} characters, on one line", param=SESSION
            )
        return name

    # ---------------------------------------------------------------- a turn

    async def identify_request(
        self, request: Request, person: Person, messages: RequestMessages, *details: object
    ) -> RequestMark:
        """Return the mark of a request. If the client repeats the request, its mark is the same. `details` are further
        values of the request, besides the messages, that a repetition must have in common with it."""
        key = request.headers.get(HEADER)
        check_key(key)

        def make() -> RequestMark:
            about = json.dumps([messages.instructions, *details]).encode()
            sent = encode_canonically([*messages.before, messages.new])
            return make_request_mark(person, key, about + b"\0" + sent)

        return await self.run_in_thread(person, make)

    async def begin_turn(
        self,
        person: Person,
        mark: RequestMark,
        messages: RequestMessages,
        open_conversation: Callable[[], Awaitable[LockedConversation]],
    ) -> Turn:
        """Start the turn of a request. If an earlier copy of the request was accepted, the turn continues in the
        conversation of that copy. Otherwise it runs in the conversation that `open_conversation` returns."""
        running = self._in_progress.get(mark.mark)
        if mark.mark in self._in_progress and (running is None or not running.ended.is_set()):
            raise Refused(
                409,
                f"the request with this {HEADER} is still being answered",
                code="request_in_progress",
                headers={"Retry-After": "1"},
            )
        self._check_turns()
        if mark.has_key:
            self._in_progress[mark.mark] = None
        self._beginning += 1
        try:
            locked = await self.conversations.open_accepted(person, mark, messages)
            if locked is None:
                locked = await open_conversation()
            try:
                if self._closing:
                    raise _refuse_ending()
                if not locked.is_answered:
                    locked = await self.conversations.accept(locked, mark)
            except BaseException:
                await self._locks.leave(locked)
                raise
            turn = self.start_turn(locked)
        except BaseException:
            self._in_progress.pop(mark.mark, None)
            raise
        finally:
            self._beginning -= 1
        if mark.has_key:
            self._in_progress[mark.mark] = turn
            turn.task.add_done_callback(lambda _: self._forget_progress(mark.mark, turn))
        return turn

    def _forget_progress(self, mark: str, turn: Turn) -> None:
        if self._in_progress.get(mark) is turn:
            del self._in_progress[mark]

    def _check_turns(self) -> None:
        """Raise a 503 error if the API server already runs the maximum number of turns."""
        most = self.limits.concurrent_turns
        if self._beginning + sum(not turn.ended.is_set() for turn in self._turns) >= most:
            raise Refused(
                503,
                f"{most} requests are being answered already; try again in a moment",
                code="overloaded",
                headers={"Retry-After": "1"},
            )

    def confirm_sent(self, turn: Turn) -> None:
        """Mark the request of the turn as finished, unless the client has to send it again. Call this just before the
        last part of the response is sent."""
        if turn.is_final:
            self.conversations.finish(turn.locked)
            task = asyncio.create_task(self.conversations.write_finished(turn.locked))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    def respond(self, turn: Turn, body: Mapping[str, Any]) -> Response:
        """Return the response that contains the whole answer of a turn, `body`, and mark the request as finished."""
        response = JSONResponse(body, headers=make_session_headers(turn))
        self.confirm_sent(turn)
        return response

    def start_turn(self, locked: LockedConversation) -> Turn:
        """Start a turn in a locked conversation. The turn releases the conversation when it ends."""
        turn = Turn(
            self._locks,
            locked,
            self.context.metrics,
            self.context.limits.turns,
            lambda: self.keys.is_revoked(locked.person),
        )
        self._turns.add(turn)
        turn.task.add_done_callback(lambda _: self._turns.discard(turn))
        return turn

    @contextmanager
    def keep_open(self) -> Iterator[None]:
        """Note that a slash command is running while the context manager is open, so that the shutdown waits for it."""
        end = asyncio.Event()
        self._commands.add(end)
        try:
            yield
        finally:
            self._commands.discard(end)
            end.set()

    async def answer(self, request: Request, turn: Turn) -> Answer:
        """Wait until the turn ends and return its answer. If the turn failed, raise its error. If the client
        disconnects first, stop the turn."""
        await _wait_while_connected(request, turn, turn.ended.wait())
        if turn.failure is not None:
            raise _add_session(turn.failure, turn)
        return turn.answer

    async def stream(
        self,
        request: Request,
        turn: Turn,
        render: Callable[[AsyncIterator[Piece | None]], AsyncIterator[bytes]],
    ) -> Response:
        """Return a response that streams the answer of a turn. `render` turns the pieces of the answer into the bytes
        to send."""
        await _wait_while_connected(request, turn, turn.wait_until_begun(FIRST_WORD_S))
        if turn.ended.is_set() and turn.failure is not None and not turn.answer.whole_text:
            raise _add_session(turn.failure, turn)
        return _Stream(turn, render(turn.iterate_pieces(SILENCE_S)))

    async def close(self, seconds: float) -> None:
        """Refuse new turns and commands from now on. Wait up to `seconds` for those that are running, then stop the
        turns."""
        self._closing = True
        running = [end.wait() for end in (*(turn.ended for turn in self._turns), *self._commands)]
        if running:
            await asyncio.wait([asyncio.create_task(waiting) for waiting in running], timeout=seconds)
        await self.stop()

    async def stop(self) -> None:
        """Stop all turns. Wait a few seconds for their background work, such as generating titles."""
        tasks = [turn.task for turn in self._turns]
        for turn in self._turns:
            turn.stop()
        if tasks:
            await asyncio.wait(tasks, timeout=STOPPING_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._writing, return_exceptions=True)

    def open(self) -> None:
        self._closing = False

    def close_workers(self) -> None:
        self._workers.close()


class _Stream(StreamingResponse):
    """A streamed answer. The turn is stopped if the client disconnects."""

    def __init__(self, turn: Turn, words: AsyncIterator[bytes]) -> None:
        headers = {**make_session_headers(turn), "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(words, headers=headers, media_type="text/event-stream")
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if not self._turn.ended.is_set():
                self._turn.stop()


def _parse_body(sent: bytes) -> dict[str, Any]:
    try:
        check_value_count(sent)
        body = json.loads(sent)
        check_depth(body)
    except TooComplex as problem:
        raise Refused(413, str(problem), code="request_too_complex") from None
    except (ValueError, RecursionError):
        raise bad_request("the body is not JSON") from None
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    return body


def _refuse_wrong_key() -> Refused:
    return Refused(
        401,
        "a key is required: `Authorization: Bearer <key>`",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def make_session_headers(turn: Turn) -> dict[str, str]:
    return {SESSION: turn.locked.current.encode().decode("latin-1")}


def _add_session(failure: Refused, turn: Turn) -> Refused:
    """Add the header with the session id of the turn to an API error, so that the client can retry in the same session.
    Return the error."""
    failure.headers |= make_session_headers(turn)
    return failure


def format_event(body: Mapping[str, Any], name: str | None = None) -> bytes:
    """Return `body` as a server-sent event in JSON. `name` is the event's type, if it has one."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(body)}\n\n".encode()


def _refuse_ending() -> Refused:
    return Refused(503, "the server is shutting down", headers={"Retry-After": "5"})


async def _wait_while_connected(request: Request, turn: Turn, waiting: Coroutine[Any, Any, object]) -> None:
    """Wait until the coroutine `waiting` ends. If the client disconnects first, stop the turn and raise `ClientGone`.

    A stopped turn stores the part of the answer that it has.
    """
    something, leaving = asyncio.create_task(waiting), asyncio.create_task(_wait_for_disconnect(request))
    try:
        await asyncio.wait([something, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not something.done():
            turn.stop()
            await turn.ended.wait()
            raise ClientGone
    except asyncio.CancelledError:
        turn.stop()
        raise
    finally:
        something.cancel()
        leaving.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
