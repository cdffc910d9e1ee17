"""The Telegram adapter, built on the `Bot` class of python-telegram-bot.

The adapter does not use the polling of the library, which acknowledges messages before they are processed. Telegram
regards all updates before the requested offset as acknowledged. The adapter advances the offset past a message only
after the message is durable.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import httpx
from telegram import (
    Bot,
    CallbackQuery,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    ReplyParameters,
    Update,
)
from telegram.constants import ChatAction, ParseMode
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)
from telegram.request import HTTPXRequest

from hermes.gateway.adapter import (
    AdapterError,
    Capabilities,
    Choice,
    DeliveryUnknown,
    Misconfigured,
    RateLimited,
    Receive,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.http.retry_after import parse_retry_after
from hermes.gateway.inbound_events import Source
from hermes.gateway.platform_options import read_options
from hermes.gateway.platforms.telegram.declaration import TelegramOptions
from hermes.gateway.platforms.telegram.formatting import LONGEST, count_units, render_html, visible_text
from hermes.gateway.platforms.telegram.update_queues import Accept, UpdateQueues
from hermes.gateway.platforms.telegram.updates import GENERAL, UpdateReader, make_move
from hermes.gateway.platforms.telegram.webhook_updates import Webhook
from hermes.gateway.settings import PlatformSettings
from hermes.logs import get_logger
from hermes.secrets import redact
from hermes.text import replace_surrogates

LOG = get_logger(__name__)

# Without this setting, the library emits a deprecation warning for each rate limit.
os.environ.setdefault("PTB_TIMEDELTA", "true")

WANTED = ("message", "edited_message", "channel_post", "edited_channel_post", "callback_query")
LONGEST_CHOICE = 64
"""Maximum size of a button's callback data, in bytes."""
POLL_SECONDS = 30
BUSY_SECONDS = 0.25
"""Seconds between two polls while an update is not accepted yet."""
PATIENCE = 20.0
"""Timeout of a request in seconds. A poll may take `POLL_SECONDS` longer."""
CONNECTIONS = httpx.Limits(max_connections=64, max_keepalive_connections=16)
"""The HTTP client checks each idle connection at every request, so only as many are kept as deliveries run at once by
default."""
TYPING_PER_SECOND, TYPING_AT_ONCE = 5.0, 20
"""How often the typing indicator is shown in all chats together: on average, and at the same time. Telegram accepts
about 30 requests of a bot per second, and a crowd needs them for its answers."""
LONGEST_TOPIC = 128

_METHODS = re.compile(r"(?<!/)/bot(?=$|\{token\})")

Done = TypeVar("Done")
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
    RuntimeError,  # the client is closed
)
_TOO_MANY = "too many requests"


class Telegram:
    name = "telegram"
    capabilities = Capabilities(max_length=LONGEST, edits=True, edit_every=2.0)

    def __init__(self, settings: PlatformSettings, folder: Path) -> None:
        options = read_options(TelegramOptions, settings)
        if not options.bot_token:
            raise Misconfigured("Telegram needs a bot token: set TELEGRAM_BOT_TOKEN.")
        # httpx logs every URL, and the URL contains the token.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        self._request = HTTPXRequest(
            read_timeout=PATIENCE,
            write_timeout=PATIENCE,
            connect_timeout=PATIENCE,
            pool_timeout=PATIENCE,
            httpx_kwargs={"limits": CONNECTIONS, "event_hooks": {"response": [_raise_server_failure]}},
        )
        base_url, file_url = api_addresses(options.base_url)
        self._bot = Bot(options.bot_token, base_url, file_url, self._request, self._request)
        self._everything = options.respond == "all"
        self._webhook: Webhook | None = None
        if options.webhook_url:
            self._webhook = Webhook.from_settings(
                options.webhook_url, options.webhook_secret or "", options.webhook_host, options.webhook_port
            )
        self._offset: int | None = None
        self._typing_left, self._typing_counted_at = float(TYPING_AT_ONCE), monotonic()
        """How many typing indicators may be shown now, as of the time of the last one."""
        self._moved: dict[str, str] = {}
        """The new ids of groups that became supergroups."""
        self._receive: Receive | None = None
        self._reporting: set[asyncio.Task[None]] = set()

    def measure(self, text: str) -> int:
        return count_units(text)

    # Receiving

    async def run(self, receive: Receive, ready: Callable[[], None]) -> None:
        """Run as the `Adapter` protocol specifies. An error of `receive` is raised unchanged, and the message is not
        acknowledged."""
        with _translate_errors("connect", repeatable=True):
            me = await self._bot.get_me()
        reader = UpdateReader(me, self._fetch, everything=self._everything)
        self._receive = receive

        async def accept(album: Sequence[Update]) -> None:
            if (pressed := album[0].callback_query) is not None:
                await self._accept_choice(pressed, reader, receive)
                return
            messages = [update.effective_message for update in album if update.effective_message]
            if messages and (move := reader.read_move(messages[0])) is not None:
                await receive(move, ())
                return
            edited = bool(album[0].edited_message or album[0].edited_channel_post)
            read = reader.read(messages, edited=edited) if messages else None
            if read:
                await receive(*read)

        if self._webhook:
            await self._listen(self._webhook, accept, ready)
        else:
            await self._poll(accept, ready)

    async def _accept_choice(self, pressed: CallbackQuery, reader: UpdateReader, receive: Receive) -> None:
        event = reader.read_choice(pressed)
        if event is None or event.source.message_id is None:
            return
        receipt = await receive(event, ())
        if receipt.state not in ("answered", "duplicate"):
            return  # authorised people can still press the buttons
        chat, message = event.source.chat_id, _parse_number(event.source.message_id)
        # Nothing else removes the buttons of a question that an earlier process asked. Both calls may fail.
        with suppress(AdapterError), _translate_errors("confirm a pressed button", repeatable=True):
            await self._bot.answer_callback_query(pressed.id)
        with suppress(AdapterError), _translate_errors("remove the buttons", repeatable=True):
            await self._bot.edit_message_reply_markup(chat, message)

    async def _poll(self, accept: Accept, ready: Callable[[], None]) -> None:
        with _translate_errors("remove its webhook", repeatable=True):
            await self._bot.delete_webhook()
        ready()
        queues = UpdateQueues(accept, self._offset)
        try:
            while True:
                with _translate_errors("return new messages", repeatable=True):
                    updates = await self._bot.get_updates(
                        queues.offset, timeout=POLL_SECONDS, allowed_updates=WANTED
                    )
                queues.add(updates)
                # While an update is not accepted, polls return at once, so they need a pause.
                await queues.settle(BUSY_SECONDS)
        finally:
            await queues.close()
            self._offset = queues.offset

    async def _listen(self, webhook: Webhook, accept: Accept, ready: Callable[[], None]) -> None:
        serving = asyncio.create_task(webhook.serve(self._bot, accept))
        try:
            with _translate_errors("set its webhook", repeatable=True), _translate_webhook_refusal():
                await self._bot.set_webhook(webhook.url, allowed_updates=WANTED, secret_token=webhook.secret)
            ready()
            await serving
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def fetch(self, reference: Mapping[str, Any]) -> bytes:
        return await self._fetch(reference["file_id"])

    async def _fetch(self, file_id: str) -> bytes:
        with _translate_errors("return a file", repeatable=True):
            file = await self._bot.get_file(file_id)
            try:
                return bytes(await file.download_as_bytearray())
            except InvalidToken as error:  # the library raises this for every 404
                raise Undeliverable("Telegram no longer has this file.") from error

    # Delivering

    async def send(
        self,
        to: Source,
        text: str,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
        choices: Sequence[Choice] = (),
    ) -> str | None:
        write = partial(
            self._bot.send_message,
            message_thread_id=_topic_number(to),
            reply_parameters=_make_reply(reply_to),
            disable_notification=silent,
            reply_markup=_make_keyboard(choices),
        )
        with _translate_errors("send a message"):
            return str((await self._write_formatted(to, text, write)).message_id)

    async def send_file(
        self,
        to: Source,
        name: str,
        content: bytes,
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        with _translate_errors("send a file"):
            sent = await self._call_in_chat(
                to,
                lambda chat: self._bot.send_document(
                    chat,
                    content,
                    filename=name,
                    message_thread_id=_topic_number(to),
                    reply_parameters=_make_reply(reply_to),
                    disable_notification=silent,
                ),
            )
        return str(sent.message_id)

    async def offer(
        self,
        to: Source,
        text: str,
        choices: Sequence[Choice],
        *,
        idempotency_key: str,
        reply_to: str | None = None,
        silent: bool = False,
    ) -> str | None:
        return await self.send(
            to, text, idempotency_key=idempotency_key, reply_to=reply_to, silent=silent, choices=choices
        )

    async def edit(self, to: Source, message_id: str, text: str) -> None:
        write = partial(self._bot.edit_message_text, message_id=_parse_number(message_id))
        with _translate_errors("edit a message", repeatable=True):
            try:
                await self._write_formatted(to, text, write)
            except BadRequest as error:
                if "message is not modified" not in error.message.lower():
                    raise

    async def typing(self, to: Source) -> None:
        """Show the typing indicator. It is left out if too many chats show it."""
        if not self._take_typing():
            return
        with _translate_errors("show the typing indicator", repeatable=True):
            await self._call_in_chat(
                to,
                lambda chat: self._bot.send_chat_action(
                    chat, ChatAction.TYPING, message_thread_id=_topic_number(to)
                ),
            )

    def _take_typing(self) -> bool:
        now = monotonic()
        regained = (now - self._typing_counted_at) * TYPING_PER_SECOND
        self._typing_left = min(float(TYPING_AT_ONCE), self._typing_left + regained)
        self._typing_counted_at = now
        if self._typing_left < 1:
            return False
        self._typing_left -= 1
        return True

    async def open_thread(self, to: Source, name: str) -> str | None:
        with _translate_errors("open a topic"):
            try:
                topic = await self._call_in_chat(
                    to,
                    lambda chat: self._bot.create_forum_topic(chat, replace_surrogates(name)[:LONGEST_TOPIC]),
                )
            except BadRequest as error:
                if "not a forum" in error.message.lower() or "not a supergroup" in error.message.lower():
                    return None
                raise
        return str(topic.message_thread_id)

    async def close(self) -> None:
        await asyncio.gather(*self._reporting)
        await self._request.shutdown()

    async def _write_formatted(self, to: Source, text: str, write: Callable[..., Awaitable[Done]]) -> Done:
        """Send or edit a message with `write`, a method of the bot, and return the result of `write`. The text is
        written as HTML, or as plain text if Telegram refuses the HTML or it is too long. If Telegram reports a new
        id of the chat, the message is written there."""
        mode: ParseMode | None = ParseMode.HTML
        formatted = render_html(text)
        if count_units(visible_text(formatted)) > LONGEST:
            formatted, mode = replace_surrogates(text), None
        chat, has_moved = self._moved.get(to.chat_id, to.chat_id), False
        while True:
            try:
                return await write(chat_id=chat, text=formatted, parse_mode=mode)
            except ChatMigrated as moved:
                if has_moved:
                    raise
                chat, has_moved = str(moved.new_chat_id), True
                self._note_move(to.chat_id, chat)
            except BadRequest as error:
                if mode is None or "can't parse entities" not in error.message.lower():
                    raise
                formatted, mode = replace_surrogates(text), None

    async def _call_in_chat(self, to: Source, call: Callable[[str], Awaitable[Done]]) -> Done:
        """Call `call` with the id of the chat in `to`, and return its result. If the chat has become a supergroup,
        use its new id."""
        try:
            return await call(self._moved.get(to.chat_id, to.chat_id))
        except ChatMigrated as moved:
            self._note_move(to.chat_id, str(moved.new_chat_id))
            return await call(self._moved[to.chat_id])

    def _note_move(self, old: str, new: str) -> None:
        """Remember the new id of a chat that became a supergroup, and report it to the gateway in the background."""
        self._moved[old] = new
        if self._receive is not None:
            task = asyncio.create_task(self._report_move(self._receive, old, new))
            self._reporting.add(task)
            task.add_done_callback(self._reporting.discard)

    async def _report_move(self, receive: Receive, old: str, new: str) -> None:
        try:
            await receive(make_move(old, new), ())
        except Exception as error:  # noqa: BLE001 - Telegram also reports the new id in a message
            LOG.warning("the new id of a Telegram group could not be stored: %s", redact(str(error)))


def _topic_number(to: Source) -> int | None:
    """Return the topic id for a message to the chat and thread in `to`. Return None for the General topic and for
    chats without topics, because Telegram expects no topic id there."""
    return _parse_number(to.thread_id) if to.thread_id and to.thread_id != GENERAL else None


def _make_reply(reply_to: str | None) -> ReplyParameters | None:
    if not reply_to:
        return None
    return ReplyParameters(_parse_number(reply_to), allow_sending_without_reply=True)


def _make_keyboard(choices: Sequence[Choice]) -> InlineKeyboardMarkup | None:
    """Return a keyboard with one button per row, one for each choice. Return None if there are no choices, or if
    the command of a choice is too long for a button. People then have to type the command."""
    if not choices or any(len(choice.text.encode()) > LONGEST_CHOICE for choice in choices):
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(choice.label, callback_data=choice.text)] for choice in choices]
    )


def _parse_number(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise Undeliverable(f"{name!r} is not a Telegram message or topic number") from None


def api_addresses(base_url: str) -> tuple[str, str]:
    """Return the two base URLs that the library needs for a Telegram server at `base_url`: that of the API methods
    (`…/bot`) and that of the files (`…/file/bot`)."""
    base = base_url.rstrip("/")
    match = _METHODS.search(base)
    before, after = (base[: match.start()], base[match.end() :]) if match else (base, "")
    return f"{before}/bot{after}", f"{before}/file/bot{after}"


@contextmanager
def _translate_webhook_refusal() -> Iterator[None]:
    """Within the `with` block, raise `Misconfigured` if Telegram refuses the configured webhook URL. A retry would
    fail too."""
    try:
        yield
    except BadRequest as error:
        raise Misconfigured(f"Telegram refused webhook_url: {error.message}") from error


# ---------------------------------------------------------------- errors of Telegram's library


@contextmanager
def _translate_errors(doing: str, *, repeatable: bool = False) -> Iterator[None]:
    """Translate Telegram errors to `AdapterError`.
    `doing` describes the action in the error message. `repeatable` means that the action is idempotent. If the result
    of such an action is unknown, it is retried like a failed action.
    """
    try:
        yield
    except TelegramError as error:
        raise _translate_error(error, doing, repeatable) from error


def _translate_error(error: TelegramError, doing: str, repeatable: bool) -> AdapterError:
    line = redact(f"Telegram could not {doing}: {error.message}")
    match error:
        case RetryAfter():
            return RateLimited(line, _parse_seconds(error.retry_after))
        case InvalidToken():
            return Misconfigured(redact(f"Telegram refused the bot token: {error.message}"))
        case Conflict():
            return Unreachable(f"another program receives the messages of this Telegram bot: {error.message}")
        case Forbidden() | BadRequest() | ChatMigrated():
            return Undeliverable(line)
        case NetworkError() if error.message.lower().startswith(_TOO_MANY):  # without a retry time
            return RateLimited(line, 1.0)
        case NetworkError() if isinstance(failure := error.__cause__, httpx.HTTPStatusError):
            line = f"Telegram could not {doing}: status {failure.response.status_code}"
            wait = parse_retry_after(failure.response.headers.get("Retry-After"))
            return Unreachable(line) if wait is None else RateLimited(line, wait)
        case _ if repeatable or isinstance(error.__cause__, _NEVER_SENT):
            return Unreachable(line)
        case _:
            return DeliveryUnknown(line)


async def _raise_server_failure(response: httpx.Response) -> None:
    """Raise `HTTPStatusError` for a 5xx response, because the library drops the status and the headers.
    The message counts as not delivered. Such a response comes from Telegram's front end, which could not forward the
    request, or from the API server before it has sent the message.
    """
    if response.is_server_error:
        raise httpx.HTTPStatusError("server error", request=response.request, response=response)


def _parse_seconds(wait: int | timedelta) -> float:
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)
