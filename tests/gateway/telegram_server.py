"""A local server that implements Telegram's Bot API as documented, for the real library.

    server = TelegramServer()
    await server.start()                         # server.base_url, server.token
    alice = server.person("Alice")
    server.say(alice, "hello")                   # in private; or chat=server.group("Friends")
    [answer] = await server.until_sent(1)        # messages of the bot: .text is the visible text
    await server.stop(); await server.start()    # the same port, with all data

Updates are kept until they are acknowledged: by a higher offset, or by a 2xx response of the webhook. A poll whose
client has disconnected receives nothing, and a newer poll ends an older one with 409. `deliver(update)` delivers an
update again, even if it was acknowledged. `say(..., delivered=False)` creates an update for later delivery, so that
messages can arrive twice and out of order. `press(person, sent, data)` presses a button below a message.
`will(method, answer, ...)` makes the next calls of `method` fail.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.gateway.telegram_markup import Refused, parsed
from tests.ports import reserve_port

Json = dict[str, Any]

LONGEST = 4096
BOT_ID = 4242
BOT_NAME = "hermes_test_bot"
PATIENCE_S = 60.0
KEEP_ALIVE_S = 75
"""The server keeps an idle connection open for longer than a client does, so no request uses a connection
that is closing."""

_FILES = {"animation", "audio", "document", "photo", "video", "video_note", "voice"}
_COMMAND = re.compile(r"(?<!\S)/\w+(?:@\w+)?")
_MENTION = re.compile(r"(?<!\S)@\w{3,}")


class Person(NamedTuple):
    id: int
    first_name: str
    username: str | None = None
    is_bot: bool = False


class Chat(NamedTuple):
    id: int
    type: str
    title: str | None = None
    is_forum: bool = False
    first_name: str | None = None


class Sent(NamedTuple):
    """A message of the bot in its current state."""

    chat_id: int
    message_id: int
    text: str
    """The visible text."""
    source: str
    """The text as the bot sent it."""
    parse_mode: str | None
    thread: int | None
    reply_to: int | None
    silent: bool
    edits: int = 0
    buttons: tuple[tuple[str, str], ...] = ()
    """Label and data of each button."""
    file: tuple[str, bytes] | None = None
    """Name and content of a sent document."""


class Answer(NamedTuple):
    """How a call fails. `done` tells whether the call takes effect before it fails."""

    status: int = 0
    """0 means that the connection is cut without a response."""
    body: Json | bytes = b""
    done: bool = False
    silent: bool = False
    """If true, the server does not respond and keeps the connection open."""
    headers: dict[str, str] | None = None


def refusal(code: int, description: str, **parameters: Any) -> Answer:
    body: Json = {"ok": False, "error_code": code, "description": description}
    return Answer(code, body | ({"parameters": parameters} if parameters else {}))


def too_many(seconds: int) -> Answer:
    return refusal(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)


BLOCKED = refusal(403, "Forbidden: bot was blocked by the user")
KICKED = refusal(403, "Forbidden: bot was kicked from the supergroup chat")
CHAT_NOT_FOUND = refusal(400, "Bad Request: chat not found")
CANNOT_PARSE = refusal(400, "Bad Request: can't parse entities: Unexpected end tag at byte offset 3")
UNAUTHORIZED = refusal(401, "Unauthorized")
NOT_FOUND = refusal(404, "Not Found")
TWO_POLLS = refusal(
    409,
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
)
HAS_WEBHOOK = refusal(
    409,
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
)
NOT_MODIFIED = refusal(
    400,
    "Bad Request: message is not modified: specified new message content and reply markup are "
    "exactly the same as a current content and reply markup of the message",
)
INTERNAL = refusal(500, "Internal Server Error")
BAD_GATEWAY = Answer(502, b"<html><head><title>502 Bad Gateway</title></head></html>")
CUT = Answer()
CUT_AFTER = Answer(done=True)
SILENT_AFTER = Answer(done=True, silent=True)


class Failed(Exception):
    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


class Waiting(NamedTuple):
    update: Json
    seen: list[bool]
    """Not empty if the update was delivered. Only then can an offset acknowledge it."""


class TelegramServer:
    def __init__(self, token: str = "4242:AAEhBP0av28dMZ6xv8lD0yxXH4cXZxUoTjA") -> None:
        self.token = token
        self.port = 0
        self.me = Person(BOT_ID, "Hermes", BOT_NAME, is_bot=True)
        self.calls: list[tuple[str, Json]] = []
        """Every call, with its method and parameters."""
        self.pushed: list[int] = []
        """The status of each response of the webhook."""
        self.webhook: Json | None = None
        self.acknowledged: list[int] = []
        """The ids of the acknowledged updates, in order of acknowledgement."""
        self.chosen: list[str] = []
        """The ids of the button presses that the bot has answered."""
        self._pressed: list[str] = []
        self._people: dict[int, Person] = {}
        self._chats: dict[int, Chat] = {}
        self._topics: dict[tuple[int, int], Json] = {}
        self._messages: dict[tuple[int, int], Json] = {}
        self._sent: dict[tuple[int, int], Sent] = {}
        self._files: dict[str, tuple[str, bytes]] = {}
        self._waiting: list[Waiting] = []
        self._trouble: defaultdict[str, deque[Answer]] = defaultdict(deque)
        self.downloads = asyncio.Event()
        """Downloads of files wait until this event is set."""
        self.downloads.set()
        self.downloading = 0
        """The number of downloads that wait."""
        self._moved: dict[int, int] = {}
        self._shut_out: dict[int, Answer] = {}
        self._ids = itertools.count(1000)
        self._update_ids = itertools.count(70_000)
        # 1 is the general topic.
        self._message_ids: defaultdict[int, itertools.count[int]] = defaultdict(lambda: itertools.count(2))
        self._changed = asyncio.Event()
        self.polls = 0
        """The number of polls that wait for updates."""
        self._poll = 0
        self._server: _Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # Start and stop

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/bot"

    async def start(self) -> None:
        self.port = self.port or reserve_port()
        listening = socket.create_server(("127.0.0.1", self.port))
        routes = [
            Route("/file/bot{token}/{path:path}", self._download, methods=["GET"]),
            Route("/bot{token}/{method}", self._call, methods=["GET", "POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._server = _Server(config)
        self._tasks = [
            asyncio.create_task(self._server.serve([listening])),
            asyncio.create_task(self._push()),
        ]

    async def stop(self) -> None:
        """Stop the server and cut all connections immediately."""
        server, self._server = self._server, None
        if server is None:
            return
        server.force_exit = True
        server.told_to_stop.set()
        for connection in list(server.server_state.connections):
            _transport(connection).abort()
        self._change_now()
        serving, pushing = self._tasks
        pushing.cancel()
        with suppress(asyncio.CancelledError):
            await pushing
        await serving
        await asyncio.gather(*server.server_state.tasks)

    async def until(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait until the condition is true."""
        async with asyncio.timeout(seconds):
            while not condition():
                # the condition may depend on a change that sends no notification
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._change(), 0.05)

    async def until_sent(self, count: int, seconds: float = PATIENCE_S) -> list[Sent]:
        """Wait until the bot has sent `count` messages. Return them in their current state."""
        await self.until(lambda: len(self._sent) >= count, seconds)
        return self.sent

    async def until_acknowledged(self, seconds: float = PATIENCE_S) -> None:
        """Wait until all updates are acknowledged."""
        await self.until(lambda: not self._waiting, seconds)

    # People and their actions

    def person(self, name: str, username: str | None = None, *, is_bot: bool = False) -> Person:
        person = Person(next(self._ids), name, username, is_bot)
        self._people[person.id] = person
        self._chats[person.id] = Chat(person.id, "private", first_name=name)
        return person

    def group(self, title: str, *, forum: bool = False, basic: bool = False) -> Chat:
        """Create a supergroup, with topics if `forum` is set, or a basic group if `basic` is set."""
        number = next(self._ids)
        chat = (
            Chat(-number, "group", title)
            if basic
            else Chat(-1_000_000_000_000 - number, "supergroup", title, forum)
        )
        return self._chats.setdefault(chat.id, chat)

    def channel(self, title: str) -> Chat:
        chat = Chat(-1_000_000_000_000 - next(self._ids), "channel", title)
        return self._chats.setdefault(chat.id, chat)

    def topic(self, chat: Chat, name: str, by: Person | None = None) -> int:
        """Open a topic in a forum and return its thread id."""
        opened = self._message(
            chat, by or self.me, {"forum_topic_created": {"name": name, "icon_color": 7322096}}
        )
        thread = int(opened["message_id"])
        opened |= {"message_thread_id": thread, "is_topic_message": True}
        self._topics[chat.id, thread] = opened
        return thread

    def say(
        self,
        user: Person | None,
        text: str | None = None,
        *,
        chat: Chat | None = None,
        thread: int | None = None,
        reply_to: Json | Sent | None = None,
        photo: bytes | None = None,
        document: tuple[str, str, bytes] | None = None,
        more: Json | None = None,
        delivered: bool = True,
    ) -> Json:
        """Create an update with a message of `user`. With a file, `text` is the caption of the file. In a
        channel, the message has no sender.

        `document` is (name, media type, content). The fields of `more` replace those of the message.
        """
        place = chat or self._chats[self._known(user).id]
        content: Json = {}
        if text is not None:
            has_file = photo is not None or document is not None or bool(_FILES & set(more or ()))
            name = "caption" if has_file else "text"
            content[name] = text
            if entities := self._entities(text):
                content["entities" if name == "text" else "caption_entities"] = entities
        if photo is not None:
            small = {"file_id": "thumb", "file_unique_id": "thumb", "width": 9, "height": 9, "file_size": 1}
            content["photo"] = [small, self.file(photo, "photos/file.jpg") | {"width": 90, "height": 90}]
        if document is not None:
            file = self.file(document[2], f"documents/{document[0]}")
            content["document"] = file | {"file_name": document[0], "mime_type": document[1]}
        message = self._message(place, user, content | (more or {}))
        if thread is not None:
            message |= {"message_thread_id": thread, "is_topic_message": True}
            message["reply_to_message"] = self._topics[place.id, thread]
        if reply_to is not None:
            message["reply_to_message"] = self._messages[_key(reply_to)]
        return self._update("channel_post" if place.type == "channel" else "message", message, delivered)

    def edit(self, said: Json, text: str, *, delivered: bool = True) -> Json:
        """Create an update that edits a message of a person."""
        kind, message = _content(said)
        changed = message | {"text": text, "edit_date": max(_now(), message["date"] + 1)}
        changed.pop("entities", None)
        if entities := self._entities(text):
            changed["entities"] = entities
        self._messages[_key(said)] = changed
        return self._update(f"edited_{kind}", changed, delivered)

    def press(self, user: Person, sent: Sent, data: str, *, delivered: bool = True) -> Json:
        """Press a button below a message of the bot. A client may send any `data`."""
        number = str(next(self._ids))
        self._pressed.append(number)
        pressed = {
            "id": number,
            "from": _user(user),
            "message": self._messages[sent.chat_id, sent.message_id],
            "chat_instance": "1",
            "data": data,
        }
        return self._update("callback_query", pressed, delivered)

    def deliver(self, update: Json) -> None:
        """Deliver an update, possibly again."""
        self._waiting.append(Waiting(update, []))
        self._change_now()

    def file(self, content: bytes, path: str) -> Json:
        """Add a file for `getFile`."""
        file_id = f"file{len(self._files)}"
        self._files[file_id] = (path, content)
        return {"file_id": file_id, "file_unique_id": f"u{file_id}", "file_size": len(content)}

    def forget_files(self) -> None:
        """Make the addresses of all files invalid."""
        self._files = {name: (f"gone/{path}", b"") for name, (path, _) in self._files.items()}

    # Failures

    def will(self, method: str, *answers: Answer) -> None:
        """Set the responses of the next calls of a method, in order."""
        self._trouble[method].extend(answers)

    def is_troubled(self, method: str) -> bool:
        """Return whether the next call of a method will fail."""
        return bool(self._trouble[method])

    def shut_out(self, chat: Chat | Person, answer: Answer = BLOCKED) -> None:
        """Block the bot in a private chat, or remove it from a group. Calls for this chat then get
        `answer`."""
        self._shut_out[chat.id] = answer

    def migrate(self, chat: Chat, by: Person | None = None) -> Chat:
        """Migrate a group to a supergroup. Return the supergroup, which is another chat. If `by` is set, both
        chats get a service message from that person."""
        grown = self.group(str(chat.title))
        self._moved[chat.id] = grown.id
        if by is not None:
            self.say(by, chat=chat, more={"migrate_to_chat_id": grown.id})
            self.say(by, chat=grown, more={"migrate_from_chat_id": chat.id})
        return grown

    # Results

    @property
    def sent(self) -> list[Sent]:
        """The messages of the bot in the order of sending, each in its current state."""
        return list(self._sent.values())

    def called(self, method: str) -> list[Json]:
        return [parameters for name, parameters in self.calls if name == method]

    # HTTP

    async def _call(self, request: Request) -> Response:
        if request.path_params["token"] != self.token:
            return _response(UNAUTHORIZED if ":" in request.path_params["token"] else NOT_FOUND)
        method = request.path_params["method"]
        parameters = await _parameters(request)
        self.calls.append((method, parameters))
        self._change_now()
        trouble = self._trouble[method].popleft() if self._trouble[method] else None
        if trouble is not None and not trouble.done:
            return await self._answered(request, trouble)
        verb = getattr(self, f"_do_{method}", None)
        if verb is None:
            return _response(NOT_FOUND)
        try:
            result = await (self._polled(request, parameters) if method == "getUpdates" else verb(parameters))
        except Failed as failed:
            return _response(failed.answer)
        finally:
            self._change_now()
        if trouble is not None:
            return await self._answered(request, trouble)
        return JSONResponse({"ok": True, "result": result})

    async def _answered(self, request: Request, answer: Answer) -> Response:
        while answer.silent and self._server is not None:
            await self._change()
        if answer.status == 0 and self._server is not None:
            for connection in list(self._server.server_state.connections):
                if getattr(connection, "scope", None) is request.scope:
                    _transport(connection).abort()
        return _response(answer)

    async def _download(self, request: Request) -> Response:
        if request.path_params["token"] != self.token:
            return _response(NOT_FOUND)
        for path, content in self._files.values():
            if path == request.path_params["path"]:
                self.downloading += 1
                await self.downloads.wait()
                self.downloading -= 1
                return Response(content)
        return _response(NOT_FOUND)

    async def _do_getMe(self, _: Json) -> Json:  # noqa: N802 - the methods have the names of Telegram's
        return _user(self.me) | {
            "can_join_groups": True,
            "can_read_all_group_messages": False,
            "supports_inline_queries": False,
        }

    async def _polled(self, request: Request, asked: Json) -> list[Json]:
        """Wait for updates and return the response of `getUpdates`. If the client disconnects first, no
        update counts as delivered."""
        self.polls += 1
        polling = asyncio.create_task(self._do_getUpdates(asked))
        leaving = asyncio.create_task(_disconnected(request))
        try:
            await asyncio.wait([polling, leaving], return_when=asyncio.FIRST_COMPLETED)
            return await polling if polling.done() else []
        finally:
            self.polls -= 1
            polling.cancel()
            leaving.cancel()
            await asyncio.gather(polling, leaving, return_exceptions=True)

    async def _do_getUpdates(self, asked: Json) -> list[Json]:  # noqa: N802
        if self.webhook is not None:
            raise Failed(HAS_WEBHOOK)
        self._poll += 1
        poll = self._poll
        self._change_now()  # ends an earlier poll
        offset = int(asked.get("offset") or 0)
        done = [one for one in self._waiting if one.seen and one.update["update_id"] < offset]
        self.acknowledged += [one.update["update_id"] for one in done]
        self._waiting = [one for one in self._waiting if one not in done]
        self._change_now()
        with suppress(TimeoutError):
            async with asyncio.timeout(float(asked.get("timeout") or 0)):
                while not self._waiting and poll == self._poll and self._server is not None:
                    await self._change()
        if poll != self._poll:
            raise Failed(TWO_POLLS)
        given = self._waiting[: int(asked.get("limit") or 100)]
        for update in given:
            update.seen.append(True)
        return [one.update for one in given]

    async def _do_setWebhook(self, asked: Json) -> bool:  # noqa: N802
        if not str(asked["url"]).startswith(("https://", "http://127.0.0.1")):
            raise Failed(refusal(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"))
        self.webhook = asked
        return True

    async def _do_deleteWebhook(self, _: Json) -> bool:  # noqa: N802
        self.webhook = None
        return True

    async def _do_sendMessage(self, asked: Json) -> Json:  # noqa: N802
        chat = self._reachable(asked)
        text = self._read(asked, too_long="message is too long")
        return self._send(chat, asked, text, asked["text"], {"text": text})

    async def _do_sendDocument(self, asked: Json) -> Json:  # noqa: N802
        chat = self._reachable(asked)
        (file,) = (value for value in asked.values() if isinstance(value, tuple))
        stored = self.file(file[1], f"documents/{file[0]}") | {"file_name": file[0]}
        return self._send(chat, asked, "", "", {"document": stored}, file)

    def _send(
        self,
        chat: Chat,
        asked: Json,
        text: str,
        source: str,
        content: Json,
        file: tuple[str, bytes] | None = None,
    ) -> Json:
        thread = self._thread(chat, asked)
        replied = json.loads(asked["reply_parameters"]) if "reply_parameters" in asked else {}
        target = self._messages.get((chat.id, int(replied.get("message_id", 0))))
        if replied and target is None and not replied.get("allow_sending_without_reply"):
            raise Failed(refusal(400, "Bad Request: message to be replied not found"))
        message = self._message(chat, self.me, content)
        if thread is not None:
            message |= {"message_thread_id": thread, "is_topic_message": True}
        if target is not None:
            message["reply_to_message"] = target
        self._sent[chat.id, message["message_id"]] = Sent(
            chat.id,
            message["message_id"],
            text,
            source,
            asked.get("parse_mode"),
            thread,
            target["message_id"] if target else None,
            asked.get("disable_notification") == "true",
            buttons=_buttons(asked),
            file=file,
        )
        return message

    async def _do_editMessageText(self, asked: Json) -> Json:  # noqa: N802
        chat = self._reachable(asked)
        key = chat.id, int(asked["message_id"])
        if key not in self._sent:
            raise Failed(refusal(400, "Bad Request: message to edit not found"))
        text, before = self._read(asked, too_long="MESSAGE_TOO_LONG"), self._sent[key]
        after = before._replace(
            text=text, source=asked["text"], parse_mode=asked.get("parse_mode"), buttons=_buttons(asked)
        )
        if after == before:
            raise Failed(NOT_MODIFIED)
        self._sent[key] = after._replace(edits=before.edits + 1)
        self._messages[key] |= {"text": text, "edit_date": _now()}
        return self._messages[key]

    async def _do_editMessageReplyMarkup(self, asked: Json) -> Json:  # noqa: N802
        chat = self._reachable(asked)
        key = chat.id, int(asked["message_id"])
        if key not in self._sent:
            raise Failed(refusal(400, "Bad Request: message to edit not found"))
        if self._sent[key].buttons == _buttons(asked):
            raise Failed(NOT_MODIFIED)
        self._sent[key] = self._sent[key]._replace(buttons=_buttons(asked))
        return self._messages[key]

    async def _do_answerCallbackQuery(self, asked: Json) -> bool:  # noqa: N802
        if asked["callback_query_id"] not in self._pressed:
            raise Failed(
                refusal(
                    400, "Bad Request: query is too old and response timeout expired or query ID is invalid"
                )
            )
        self._pressed.remove(asked["callback_query_id"])
        self.chosen.append(asked["callback_query_id"])
        return True

    async def _do_sendChatAction(self, asked: Json) -> bool:  # noqa: N802
        self._thread(self._reachable(asked), asked)
        return True

    async def _do_getFile(self, asked: Json) -> Json:  # noqa: N802
        if asked["file_id"] not in self._files:
            raise Failed(refusal(400, "Bad Request: wrong file_id or the file is temporarily unavailable"))
        path, content = self._files[asked["file_id"]]
        if len(content) > 20 * 1024 * 1024:
            raise Failed(refusal(400, "Bad Request: file is too big"))
        named = {"file_id": asked["file_id"], "file_unique_id": f"u{asked['file_id']}"}
        return named | {"file_size": len(content), "file_path": path.removeprefix("gone/")}

    async def _do_createForumTopic(self, asked: Json) -> Json:  # noqa: N802
        chat = self._reachable(asked)
        if not chat.is_forum:
            raise Failed(refusal(400, "Bad Request: the chat is not a forum"))
        thread = self.topic(chat, asked["name"])
        return {"message_thread_id": thread, "name": asked["name"], "icon_color": 7322096}

    async def _push(self) -> None:
        """Send waiting updates to the webhook in order, and retry each until it is accepted."""
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            while True:
                if self.webhook is None or not self._waiting:
                    await self._change()
                    continue
                update, headers = self._waiting[0], {}
                if secret := self.webhook.get("secret_token"):
                    headers["X-Telegram-Bot-Api-Secret-Token"] = secret
                try:
                    answer = await client.post(self.webhook["url"], json=update.update, headers=headers)
                    status = answer.status_code
                except httpx.HTTPError:
                    status = 0
                self.pushed.append(status)
                if 200 <= status < 300:
                    self._waiting.remove(update)
                    self.acknowledged.append(update.update["update_id"])
                else:
                    await asyncio.sleep(0.02)
                self._change_now()

    # Data of the server

    def _reachable(self, asked: Json) -> Chat:
        chat_id = int(asked["chat_id"])
        if chat_id in self._moved:
            raise Failed(
                refusal(
                    400,
                    "Bad Request: group chat was upgraded to a supergroup chat",
                    migrate_to_chat_id=self._moved[chat_id],
                )
            )
        if chat_id in self._shut_out:
            raise Failed(self._shut_out[chat_id])
        if chat_id not in self._chats:
            raise Failed(CHAT_NOT_FOUND)
        return self._chats[chat_id]

    def _thread(self, chat: Chat, asked: Json) -> int | None:
        if "message_thread_id" not in asked:
            return None
        thread = int(asked["message_thread_id"])
        if (chat.id, thread) not in self._topics:
            raise Failed(refusal(400, "Bad Request: message thread not found"))
        return thread

    def _read(self, asked: Json, too_long: str) -> str:
        """Return the visible text of a message. Raise an error if the server refuses the text."""
        text = str(asked.get("text", ""))
        if asked.get("parse_mode") == "HTML":
            try:
                text = parsed(text).text
            except Refused as refused:
                raise Failed(refusal(400, f"Bad Request: {refused}")) from refused
        if not text.strip():
            raise Failed(refusal(400, "Bad Request: message text is empty"))
        if _units(text) > LONGEST:
            raise Failed(refusal(400, f"Bad Request: {too_long}"))
        return text.strip()

    def _message(self, chat: Chat, by: Person | None, content: Json) -> Json:
        message: Json = {
            "message_id": next(self._message_ids[chat.id]),
            "date": _now(),
            "chat": {name: value for name, value in chat._asdict().items() if value},
        }
        if chat.type == "channel" or by is None:  # a channel or an anonymous admin
            message["sender_chat"] = message["chat"]
        else:
            message["from"] = _user(by)
        message |= content
        self._messages[chat.id, message["message_id"]] = message
        return message

    def _update(self, kind: str, message: Json, delivered: bool) -> Json:
        update = {"update_id": next(self._update_ids), kind: message}
        if delivered:
            self.deliver(update)
        return update

    def _entities(self, text: str) -> list[Json]:
        found = [("bot_command", one) for one in _COMMAND.finditer(text)]
        found += [("mention", one) for one in _MENTION.finditer(text)]
        return [
            {"type": kind, "offset": _units(text[: one.start()]), "length": _units(one[0])}
            for kind, one in found
        ]

    def _known(self, user: Person | None) -> Person:
        assert user is not None, "who speaks in private has a name"
        return user

    async def _change(self) -> None:
        await self._changed.wait()

    def _change_now(self) -> None:
        before, self._changed = self._changed, asyncio.Event()
        before.set()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.told_to_stop = asyncio.Event()

    async def main_loop(self) -> None:
        """Run until the server is stopped. The main loop of uvicorn would detect the stop only after a
        delay."""
        await self.told_to_stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything. The shutdown of uvicorn would wait for a tenth of a second."""
        for server in self.servers:
            server.close()
        for listening in sockets or ():
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers, so that those of the test stay."""
        yield


def _transport(connection: Any) -> asyncio.Transport:
    transport: asyncio.Transport = connection.transport
    return transport


async def _disconnected(request: Request) -> None:
    """Wait until the client has closed the connection. The request body must already have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _parameters(request: Request) -> Json:
    if request.headers.get("Content-Type", "").startswith("multipart/"):
        async with request.form() as parts:
            return {
                name: (part.filename, await part.read()) if isinstance(part, UploadFile) else part
                for name, part in parts.items()
            }
    form = parse_qs((await request.body()).decode(), keep_blank_values=True)
    given = {name: values[-1] for name, values in form.items()}
    return dict(request.query_params) | given


def _buttons(asked: Json) -> tuple[tuple[str, str], ...]:
    """Return (label, data) of each button of an inline keyboard. Raise an error for a keyboard that Telegram
    would refuse."""
    rows = json.loads(asked.get("reply_markup") or "{}").get("inline_keyboard", [])
    buttons = tuple((one["text"], one["callback_data"]) for row in rows for one in row)
    if any(not label or not 1 <= len(data.encode()) <= 64 for label, data in buttons):
        raise Failed(refusal(400, "Bad Request: BUTTON_DATA_INVALID"))
    return buttons


def _response(answer: Answer) -> Response:
    if isinstance(answer.body, bytes):
        return Response(answer.body, answer.status or 500, answer.headers)
    return JSONResponse(answer.body, answer.status, answer.headers)


def _user(person: Person) -> Json:
    return {name: value for name, value in person._asdict().items() if value is not None}


def _content(update: Json) -> tuple[str, Json]:
    for kind in ("message", "channel_post", "edited_message", "edited_channel_post"):
        if kind in update:
            return kind.removeprefix("edited_"), update[kind]
    raise AssertionError("not an update with a message")


def _key(said: Json | Sent) -> tuple[int, int]:
    if isinstance(said, Sent):
        return said.chat_id, said.message_id
    _, message = _content(said)
    return message["chat"]["id"], message["message_id"]


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _now() -> int:
    return int(time.time())
