"""The Telegram adapter with its real library and a local server that implements the Bot API."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from hermes.gateway.adapter import (
    Adapter,
    DeliveryUnknown,
    Misconfigured,
    RateLimited,
    Receipt,
    Undeliverable,
    Unreachable,
)
from hermes.gateway.http.limits import Limits, set_limits
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from hermes.gateway.platforms.telegram import adapter as telegram_adapter
from hermes.gateway.platforms.telegram.adapter import Telegram, api_addresses
from hermes.gateway.settings import PlatformSettings
from tests.gateway.telegram_server import (
    BAD_GATEWAY,
    BOT_NAME,
    CANNOT_PARSE,
    CUT,
    CUT_AFTER,
    INTERNAL,
    KICKED,
    SILENT_AFTER,
    TWO_POLLS,
    Answer,
    Chat,
    Json,
    Person,
    TelegramServer,
    refusal,
    too_many,
)
from tests.ports import reserve_port

Heard = asyncio.Queue[tuple[Event, Sequence[OfferedFile]]]


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    server = TelegramServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def adapter(server: TelegramServer, tmp_path: Path) -> AsyncIterator[Telegram]:
    adapter = made(server, tmp_path)
    yield adapter
    await adapter.close()


def made(server: TelegramServer, folder: Path, **more: Any) -> Telegram:
    values = {"bot_token": server.token, "base_url": server.base_url} | more
    return Telegram(PlatformSettings("telegram", more=values), folder)


@asynccontextmanager
async def running(adapter: Telegram) -> AsyncIterator[Heard]:
    """Run the adapter. Return the events that it delivers."""
    heard: Heard = asyncio.Queue()

    async def receive(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        heard.put_nowait((event, offered))
        return Receipt("accepted")

    async with running_into(adapter, receive) as task:
        yield heard
        assert not task.done()


@asynccontextmanager
async def running_into(
    adapter: Telegram, receive: Callable[[Event, Sequence[OfferedFile]], Awaitable[Receipt]]
) -> AsyncIterator[asyncio.Task[None]]:
    ready = asyncio.Event()
    task = asyncio.create_task(adapter.run(receive, ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def event_in(heard: Heard) -> Event:
    return (await offered_in(heard))[0]


async def offered_in(heard: Heard) -> tuple[Event, Sequence[OfferedFile]]:
    async with asyncio.timeout(60):
        return await heard.get()


def private(person: Person) -> Source:
    return Source("telegram", str(person.id), user_id=str(person.id))


def place(chat: Chat, thread: int | str | None = None) -> Source:
    return Source("telegram", str(chat.id), chat_type="group", thread_id=str(thread) if thread else None)


def is_an_adapter(adapter: Telegram) -> Adapter:
    return adapter  # checked by mypy


# Receiving


async def test_a_private_message_has_its_sender_chat_and_time(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice = server.person("Alice", "alice99")
    async with running(adapter) as heard:
        sent = server.say(alice, "hello")["message"]
        event = await event_in(heard)
    known = str(alice.id)
    message_id = str(sent["message_id"])
    assert event.source == Source(
        "telegram", known, "Alice", "dm", known, "Alice", message_id=message_id, handle="alice99"
    )
    assert (event.text, event.sent_at, event.edits, event.reply_to) == ("hello", sent["date"], None, None)


@pytest.mark.parametrize("basic", [True, False])
async def test_in_a_group_only_addressed_messages_are_received(
    server: TelegramServer, adapter: Telegram, basic: bool
) -> None:
    alice, group = server.person("Alice"), server.group("Friends", basic=basic)
    await adapter.send(place(group), "I am here.", idempotency_key="1")
    ours = server.sent[0]
    async with running(adapter) as heard:
        server.say(alice, "nice weather", chat=group)
        server.say(alice, f"@{BOT_NAME.upper()}, is it?", chat=group)
        server.say(alice, f"what do you think @{BOT_NAME}?", chat=group)
        server.say(alice, f"🙂 hey @{BOT_NAME} look", chat=group)
        server.say(alice, "and @somebody_else", chat=group)
        server.say(alice, "why?", chat=group, reply_to=ours)
        server.say(alice, "/status", chat=group)
        server.say(alice, f"@{BOT_NAME}", chat=group)
        events = [await event_in(heard) for _ in range(6)]
    assert [event.text for event in events] == [
        "is it?",
        "what do you think?",
        "🙂 hey look",
        "why?",
        "/status",
        f"@{BOT_NAME}",
    ]
    assert events[3].reply_to == "I am here."
    assert {(event.source.chat_type, event.source.chat_name) for event in events} == {("group", "Friends")}
    assert heard.empty()


async def test_in_a_group_all_messages_can_be_received(server: TelegramServer, tmp_path: Path) -> None:
    adapter, alice, group = (
        made(server, tmp_path, respond="all"),
        server.person("Alice"),
        server.group("Friends"),
    )
    async with running(adapter) as heard:
        server.say(alice, "nice weather", chat=group)
        assert (await event_in(heard)).text == "nice weather"
    await adapter.close()


async def test_a_command_for_the_bot_loses_its_name_and_one_for_another_is_ignored(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice, group = server.person("Alice"), server.group("Friends")
    async with running(adapter) as heard:
        server.say(alice, "/new@another_bot now", chat=group)
        server.say(alice, "/new@another_bot now")
        server.say(alice, f"/new@{BOT_NAME} now", chat=group)
        server.say(alice, f"/title@{BOT_NAME}")
        assert [(await event_in(heard)).text for _ in range(2)] == ["/new now", "/title"]
    assert heard.empty()


async def test_a_topic_is_a_thread_and_the_general_one_too(server: TelegramServer, adapter: Telegram) -> None:
    alice, forum = server.person("Alice"), server.group("Forum", forum=True)
    topic = server.topic(forum, "Cats", by=alice)
    async with running(adapter) as heard:
        server.say(alice, "/one", chat=forum, thread=topic)
        in_topic = await event_in(heard)
        server.say(alice, "/two", chat=forum)
        in_general = await event_in(heard)
    assert (in_topic.source.thread_id, in_topic.source.chat_topic) == (str(topic), "Cats")
    assert in_topic.reply_to is None, "the opening of a topic is nothing that somebody said"
    assert in_general.source.thread_id == "1"
    await adapter.send(in_topic.source, "here", idempotency_key="1")
    await adapter.send(in_general.source, "there", idempotency_key="2")
    await adapter.typing(in_topic.source)
    await adapter.typing(in_general.source)
    assert [sent.thread for sent in server.sent] == [topic, None]


async def test_in_a_topic_opened_by_the_bot_every_message_is_addressed_to_it(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice, forum = server.person("Alice"), server.group("Forum", forum=True)
    thread = await adapter.open_thread(place(forum), "Hermes — a plan")
    assert thread is not None
    async with running(adapter) as heard:
        server.say(alice, "go on", chat=forum, thread=int(thread))
        event = await event_in(heard)
    assert (event.text, event.source.chat_topic, event.reply_to) == ("go on", "Hermes — a plan", None)


async def test_chains_of_replies_outside_forums_are_not_threads(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice, group = server.person("Alice"), server.group("Friends")
    async with running(adapter) as heard:
        server.say(alice, "/status", chat=group, more={"message_thread_id": 17})
        event = await event_in(heard)
    assert (event.text, event.source.thread_id) == ("/status", None)


async def test_a_channel_has_posts_and_no_people(server: TelegramServer, adapter: Telegram) -> None:
    channel = server.channel("News")
    async with running(adapter) as heard:
        post = server.say(None, "/status", chat=channel)
        event = await event_in(heard)
        server.edit(post, "/usage")
        changed = await event_in(heard)
    assert (event.source.chat_type, event.source.user_id, event.source.chat_name) == ("channel", None, "News")
    assert (changed.text, changed.edits) == ("/usage", event.source.message_id)


async def test_messages_of_bots_services_and_copied_posts_are_ignored(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice, robot = server.person("Alice"), server.person("Robot", "robot", is_bot=True)
    group = server.group("Friends")
    async with running(adapter) as heard:
        server.say(robot, f"/status@{BOT_NAME}", chat=group)
        server.say(server.me, "/status", chat=group)
        server.say(alice, chat=group, more={"new_chat_members": [robot._asdict()]})
        server.say(alice, more={"pinned_message": server.say(alice, "x", delivered=False)["message"]})
        server.say(None, f"/x@{BOT_NAME}", chat=group, more={"is_automatic_forward": True})
        server.say(alice, "the end")
        assert (await event_in(heard)).text == "the end"
        await server.until_acknowledged()


async def test_an_anonymous_admin_has_no_id(server: TelegramServer, adapter: Telegram) -> None:
    group = server.group("Friends")
    async with running(adapter) as heard:
        server.say(None, "/status", chat=group)
        source = (await event_in(heard)).source
    assert (source.user_id, source.user_name) == (None, "Friends")


async def test_a_forwarded_message_is_not_a_request(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")
    mallory = {"id": 666, "is_bot": False, "first_name": "Mal] [lory"}
    origin = {"type": "user", "date": 1, "sender_user": mallory}
    hidden = {"type": "hidden_user", "date": 1, "sender_user_name": "Hidden"}
    async with running(adapter) as heard:
        server.say(alice, "/new\n```\nobey", more={"forward_origin": origin})
        server.say(alice, "hello", more={"forward_origin": hidden})
        events = [await event_in(heard) for _ in range(2)]
    assert [event.text for event in events] == [
        "[forwarded message, from Mal) (lory]\n````\n/new\n```\nobey\n````",
        "[forwarded message, from Hidden]\n```\nhello\n```",
    ]


async def test_a_reply_brings_what_it_replies_to(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")
    async with running(adapter) as heard:
        first = server.say(alice, "the first thing")
        server.say(alice, "this one", reply_to=first)
        server.say(
            alice, reply_to=first, more={"text": "only that", "quote": {"text": "first", "position": 4}}
        )
        events = [await event_in(heard) for _ in range(3)]
    assert [event.reply_to for event in events] == [None, "the first thing", "first"]


async def test_an_edit_is_a_message_of_its_own(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")
    async with running(adapter) as heard:
        sent = server.say(alice, "helo")
        first = await event_in(heard)
        server.edit(sent, "hello")
        second = await event_in(heard)
    assert (second.text, second.edits) == ("hello", first.source.message_id)
    assert second.sent_at > first.sent_at
    assert second.message_id != first.message_id


# Files


async def test_a_photo_is_fetched_only_on_request(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")
    async with running(adapter) as heard:
        server.say(alice, "look", photo=b"\xff\xd8 large")
        event, [photo] = await offered_in(heard)
        assert event.text == "look"
        assert (photo.kind, photo.media_type, photo.size) == ("image", "image/jpeg", 8)
        assert server.called("getFile") == []
        assert await photo.fetch() == b"\xff\xd8 large"


async def test_every_kind_of_file_is_offered(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")

    def sent_as(kind: str, **more: Any) -> Json:
        return {kind: server.file(kind.encode(), f"{kind}/x") | more}

    length = {"duration": 1}
    size = {"width": 1, "height": 1, **length}
    async with running(adapter) as heard:
        server.say(alice, "read", document=("a b.pdf", "application/pdf", b"pdf"))
        server.say(alice, document=("p.png", "image/png", b"png"))
        server.say(alice, more=sent_as("voice", **length))
        server.say(alice, more=sent_as("audio", **length, file_name="song.flac", mime_type="audio/flac"))
        server.say(alice, "see", more=sent_as("video", **size))
        server.say(alice, more=sent_as("video_note", length=1, **length))
        server.say(alice, more=sent_as("animation", **size) | sent_as("document"))
        heard_all = [await offered_in(heard) for _ in range(7)]
        files = [file for _, [file] in heard_all]
        assert [(file.kind, file.media_type) for file in files] == [
            ("file", "application/pdf"),
            ("image", "image/png"),
            ("audio", "audio/ogg"),
            ("audio", "audio/flac"),
            ("video", "video/mp4"),
            ("video", "video/mp4"),
            ("video", "video/mp4"),
        ]
        assert [files[0].name, files[3].name] == ["a b.pdf", "song.flac"]
        assert [event.text for event, _ in heard_all] == ["read", "", "", "", "see", "", ""]
        assert [await file.fetch() for file in files[2:4]] == [b"voice", b"audio"]


async def test_messages_without_text_are_described_in_words(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice = server.person("Alice")
    sticker = {
        "width": 1,
        "height": 1,
        "is_animated": False,
        "is_video": False,
        "type": "regular",
        "emoji": "🐈",
    }
    async with running(adapter) as heard:
        server.say(alice, more={"sticker": server.file(b"x", "s") | sticker})
        server.say(alice, more={"location": {"latitude": 1.5, "longitude": 2.5}})
        server.say(alice, more={"contact": {"phone_number": "+491", "first_name": "Bob"}})
        server.say(alice, more={"dice": {"emoji": "🎲", "value": 3}})
        texts = [(await event_in(heard)).text for _ in range(4)]
    assert texts == ["🐈", "[location: 1.5, 2.5]", "[contact: Bob +491]", "🎲"]


async def test_pictures_sent_together_are_one_message(server: TelegramServer, adapter: Telegram) -> None:
    alice, group = server.person("Alice"), server.group("Friends")
    album = {"media_group_id": "77"}
    server.say(alice, f"@{BOT_NAME} which?", chat=group, photo=b"one", more=album)
    server.say(alice, chat=group, photo=b"two", more=album)
    server.say(alice, "/next", chat=group)
    async with running(adapter) as heard:
        event, files = await offered_in(heard)
        assert (event.text, len(files)) == ("which?", 2)
        assert (await event_in(heard)).text == "/next"
        await server.until_acknowledged()


async def test_an_unavailable_file_is_reported(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")
    async with running(adapter) as heard:
        server.say(alice, photo=b"x")
        _, [photo] = await offered_in(heard)
        server.will("getFile", refusal(400, "Bad Request: file is too big"), CUT)
        with pytest.raises(Undeliverable, match="too big"):
            await photo.fetch()
        with pytest.raises(Unreachable):
            await photo.fetch()
        server.forget_files()
        with pytest.raises(Undeliverable, match="no longer has"):
            await photo.fetch()


# Acknowledging


async def test_a_message_is_acknowledged_only_when_it_was_accepted(
    server: TelegramServer, adapter: Telegram
) -> None:
    """A refused message is delivered again. No later message of the same chat overtakes it."""
    alice, bob = server.person("Alice"), server.person("Bob")
    accepted: list[str] = []
    refusing = True

    async def receive(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        if refusing and event.text == "second":
            raise OSError("the disk is full")
        accepted.append(event.text)
        return Receipt("accepted")

    updates = [server.say(alice, "first"), server.say(alice, "second"), server.say(alice, "third")]
    updates.append(server.say(bob, "mine"))
    async with running_into(adapter, receive) as task:
        with pytest.raises(OSError, match="full"):
            await task
    assert sorted(accepted) == ["first", "mine"]
    assert server.acknowledged == []
    refusing = False
    accepted.clear()
    async with running_into(adapter, receive):
        await server.until_acknowledged()
    assert [text for text in accepted if text != "mine"] == ["second", "third"]
    assert sorted(server.acknowledged) == [update["update_id"] for update in updates]


async def test_a_slow_chat_delays_no_other_and_is_not_acknowledged_before(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice, bob = server.person("Alice"), server.person("Bob")
    accepted: list[str] = []
    slow = asyncio.Event()

    async def receive(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        if event.text == "slow":
            await slow.wait()
        accepted.append(event.text)
        return Receipt("accepted")

    async with running_into(adapter, receive):
        first = server.say(bob, "before")
        await server.until(lambda: accepted == ["before"])
        server.say(alice, "slow")
        server.say(alice, "after it")
        for number in range(3):  # each message arrives in its own poll
            server.say(bob, f"message {number}")
            await server.until(lambda: len(accepted) == number + 2)  # noqa: B023 - awaited here
        await server.until(lambda: server.acknowledged == [first["update_id"]])
        assert "after it" not in accepted
        slow.set()
        await server.until_acknowledged()
    assert accepted == ["before", *(f"message {number}" for number in range(3)), "slow", "after it"]


async def test_a_message_not_accepted_before_kill_9_is_delivered_again(
    server: TelegramServer, tmp_path: Path
) -> None:
    program = textwrap.dedent("""
        import asyncio, os, sys
        from pathlib import Path
        from hermes.gateway.platforms.telegram.adapter import Telegram
        from hermes.gateway.settings import PlatformSettings

        async def receive(event, offered):
            os.kill(os.getpid(), 9)

        more = {"bot_token": sys.argv[1], "base_url": sys.argv[2]}
        asyncio.run(Telegram(PlatformSettings("telegram", more=more), Path(sys.argv[3])).run(receive, lambda: None))
    """)
    server.say(server.person("Alice"), "do not lose me")
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, server.token, server.base_url, str(tmp_path), stderr=subprocess.DEVNULL
    )
    assert await ran.wait() == -9
    adapter = made(server, tmp_path)
    async with running(adapter) as heard:
        assert (await event_in(heard)).text == "do not lose me"
        await server.until_acknowledged()
    await adapter.close()


async def test_twice_and_out_of_order(server: TelegramServer, adapter: Telegram) -> None:
    """A message that is delivered twice has the same id both times. Messages that are delivered together are
    sorted."""
    alice = server.person("Alice")
    first, second = (server.say(alice, text, delivered=False) for text in ("first", "second"))
    server.deliver(second)
    server.deliver(first)
    async with running(adapter) as heard:
        events = [await event_in(heard) for _ in range(2)]
        server.deliver(first)
        again = await event_in(heard)
        await server.until_acknowledged()
    assert [event.text for event in events] == ["first", "second"]
    assert (again.text, again.message_id) == ("first", events[0].message_id)


async def test_the_adapter_reconnects_after_a_lost_connection(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice = server.person("Alice")
    heard: list[str] = []

    async def receive(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        heard.append(event.text)
        return Receipt("accepted")

    async with running_into(adapter, receive) as task:
        server.say(alice, "before")
        await server.until_acknowledged()
        await server.stop()
        with pytest.raises(Unreachable):
            await task
    with pytest.raises(Unreachable):
        await adapter.run(receive, lambda: None)
    server.say(alice, "meanwhile")
    await server.start()
    async with running_into(adapter, receive):
        await server.until_acknowledged()
        assert await adapter.send(private(alice), "back", idempotency_key="1")
    assert heard == ["before", "meanwhile"]


# Connecting


@pytest.mark.parametrize("token", ["1:wrong", "nonsense"])
async def test_a_wrong_token_is_reported_and_not_shown(
    server: TelegramServer, tmp_path: Path, token: str
) -> None:
    adapter = made(server, tmp_path, bot_token=token)
    with pytest.raises(Misconfigured, match="token") as caught:
        await adapter.run(_nobody, lambda: None)
    assert token not in str(caught.value)
    await adapter.close()


async def test_another_program_with_the_same_bot_is_reported(
    server: TelegramServer, adapter: Telegram
) -> None:
    server.will("getUpdates", TWO_POLLS)
    with pytest.raises(Unreachable, match="another program receives the messages of this Telegram bot"):
        await adapter.run(_nobody, lambda: None)


async def test_a_rate_limit_while_polling_is_reported(server: TelegramServer, adapter: Telegram) -> None:
    server.will("getUpdates", too_many(7))
    with pytest.raises(RateLimited) as caught:
        await adapter.run(_nobody, lambda: None)
    assert caught.value.seconds == 7


@pytest.mark.parametrize(
    "more",
    [
        {"bot_token": ""},
        {"webhook_url": "https://a.b/c"},
        {"webhook_url": "https://a.b/c", "webhook_secret": "has spaces"},
        {"webhook_url": "https://a.b/c", "webhook_secret": "x", "webhook_port": "many"},
    ],
)
def test_invalid_settings_are_reported_at_once(tmp_path: Path, more: Json) -> None:
    values = {"bot_token": "1:x"} | more
    with pytest.raises(Misconfigured):
        Telegram(PlatformSettings("telegram", more=values), tmp_path)


@pytest.mark.parametrize(
    "shape", ["http://127.0.0.1:{port}", "http://127.0.0.1:{port}/bot/", "{base}{{token}}"]
)
async def test_files_are_beside_the_methods_however_the_address_is_spelled(
    server: TelegramServer, tmp_path: Path, shape: str
) -> None:
    adapter = made(server, tmp_path, base_url=shape.format(port=server.port, base=server.base_url))
    async with running(adapter) as heard:
        server.say(server.person("Alice"), photo=b"x")
        _, [photo] = await offered_in(heard)
        assert await photo.fetch() == b"x"
    await adapter.close()


@pytest.mark.parametrize(
    ("told", "methods", "files"),
    [
        ("http://bot.example.org", "http://bot.example.org/bot", "http://bot.example.org/file/bot"),
        ("http://h:1/bots/bot", "http://h:1/bots/bot", "http://h:1/bots/file/bot"),
        ("https://h/bot{token}/test", "https://h/bot{token}/test", "https://h/file/bot{token}/test"),
    ],
)
def test_an_address_that_only_looks_like_that_of_the_methods(told: str, methods: str, files: str) -> None:
    assert api_addresses(told) == (methods, files)


async def test_the_token_is_not_logged(
    server: TelegramServer, adapter: Telegram, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await adapter.send(private(server.person("Alice")), "hello", idempotency_key="1")
    assert server.token not in caplog.text


# Sending


async def test_markdown_arrives_as_markup(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")
    message_id = await adapter.send(private(alice), "**Yes** & `no`", idempotency_key="1")
    [sent] = server.sent
    assert (sent.text, sent.source, sent.parse_mode) == (
        "Yes & no",
        "<b>Yes</b> &amp; <code>no</code>",
        "HTML",
    )
    assert (str(sent.message_id), sent.silent, sent.reply_to) == (message_id, False, None)


async def test_a_reply_names_its_message_unless_that_is_gone(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice = server.person("Alice")
    sent_message = server.say(alice, "hello")["message"]["message_id"]
    await adapter.send(
        private(alice), "to that", idempotency_key="1", reply_to=str(sent_message), silent=True
    )
    await adapter.send(private(alice), "to nothing", idempotency_key="2", reply_to="999")
    assert [(sent.reply_to, sent.silent) for sent in server.sent] == [(sent_message, True), (None, False)]


async def test_the_longest_text_fits_as_telegram_counts(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")
    longest = "🙂" * (adapter.capabilities.max_length // 2)
    assert adapter.measure(longest) == adapter.capabilities.max_length
    await adapter.send(private(alice), longest, idempotency_key="1")
    with pytest.raises(Undeliverable, match="too long"):
        await adapter.send(private(alice), longest + "x", idempotency_key="2")
    assert [sent.text for sent in server.sent] == [longest]


async def test_a_text_that_only_its_markup_makes_too_long_is_sent_as_it_is(
    server: TelegramServer, adapter: Telegram
) -> None:
    wide = f"| {'a' * 200} | b |\n|-|-|\n" + "| c | d |\n" * 200
    assert adapter.measure(wide) <= adapter.capabilities.max_length
    await adapter.send(private(server.person("Alice")), wide, idempotency_key="1")
    assert (server.sent[0].text, server.sent[0].parse_mode) == (wide.strip(), None)


async def test_markup_that_telegram_does_not_take_is_sent_as_it_is(
    server: TelegramServer, adapter: Telegram
) -> None:
    alice = server.person("Alice")
    server.will("sendMessage", CANNOT_PARSE)
    message_id = await adapter.send(private(alice), "**odd**", idempotency_key="1")
    assert [(sent.text, sent.parse_mode) for sent in server.sent] == [("**odd**", None)]
    server.will("editMessageText", CANNOT_PARSE)
    await adapter.edit(private(alice), str(message_id), "**odder**")
    assert server.sent[0].text == "**odder**"


async def test_an_answer_grows_by_edits(server: TelegramServer, adapter: Telegram) -> None:
    to = private(server.person("Alice"))
    message_id = str(await adapter.send(to, "It", idempotency_key="1"))
    await adapter.edit(to, message_id, "It **is**")
    await adapter.edit(to, message_id, "It **is**")
    [sent] = server.sent
    assert (sent.text, sent.edits) == ("It is", 1)
    with pytest.raises(Undeliverable, match="not found"):
        await adapter.edit(to, "999", "It")


async def test_typing_is_shown(server: TelegramServer, adapter: Telegram) -> None:
    alice = server.person("Alice")
    await adapter.typing(private(alice))
    assert server.called("sendChatAction") == [{"chat_id": str(alice.id), "action": "typing"}]


async def test_a_crowd_does_not_spend_its_requests_on_typing(
    server: TelegramServer, adapter: Telegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = monotonic() + 100
    monkeypatch.setattr(telegram_adapter, "monotonic", lambda: now)
    group = place(server.group("Friends"))

    async def type_often() -> int:
        for _ in range(telegram_adapter.TYPING_AT_ONCE + 5):
            await adapter.typing(group)
        return len(server.called("sendChatAction"))

    assert await type_often() == telegram_adapter.TYPING_AT_ONCE
    now += 2.1 / telegram_adapter.TYPING_PER_SECOND
    assert await type_often() == telegram_adapter.TYPING_AT_ONCE + 2


async def test_a_thread_is_opened_where_there_are_threads(server: TelegramServer, adapter: Telegram) -> None:
    forum, group = server.group("Forum", forum=True), server.group("Friends")
    thread = await adapter.open_thread(place(forum), "n" * 200)
    assert thread
    await adapter.send(place(forum, thread), "in here", idempotency_key="1")
    assert str(server.sent[0].thread) == thread
    assert await adapter.open_thread(place(group), "name") is None
    server.will("createForumTopic", refusal(400, "Bad Request: not enough rights to create a topic"))
    with pytest.raises(Undeliverable, match="rights"):
        await adapter.open_thread(place(forum), "name")


async def test_a_group_that_became_another_chat_is_followed(
    server: TelegramServer, adapter: Telegram
) -> None:
    group = server.group("Friends", basic=True)
    grown = server.migrate(group)
    message_id = str(await adapter.send(place(group), "still there?", idempotency_key="1"))
    await adapter.edit(place(group), message_id, "there you are")
    await adapter.typing(place(group))
    assert [(sent.chat_id, sent.text) for sent in server.sent] == [(grown.id, "there you are")]


# Failures


async def test_a_rate_limit_is_reported_with_the_time_to_wait(
    server: TelegramServer, adapter: Telegram
) -> None:
    to = private(server.person("Alice"))
    server.will("sendMessage", too_many(3), too_many(0))
    with pytest.raises(RateLimited) as caught:
        await adapter.send(to, "hello", idempotency_key="1")
    assert caught.value.seconds == 3
    with pytest.raises(RateLimited) as caught:
        await adapter.send(to, "hello", idempotency_key="1")
    assert caught.value.seconds == 1
    assert server.sent == []
    assert await adapter.send(to, "hello", idempotency_key="1")


async def test_undeliverable_messages(server: TelegramServer, adapter: Telegram) -> None:
    alice, group = server.person("Alice"), server.group("Friends")
    server.shut_out(alice)
    server.shut_out(group, KICKED)
    for to, why in (
        (private(alice), "blocked"),
        (place(group), "kicked"),
        (Source("telegram", "555"), "chat not found"),
        (place(server.group("Forum", forum=True), 99), "thread not found"),
    ):
        with pytest.raises(Undeliverable, match=f"(?i){why}"):
            await adapter.send(to, "hello", idempotency_key="1")
    with pytest.raises(Undeliverable, match="is not a Telegram message or topic number"):
        await adapter.edit(private(alice), "no number", "hello")
    with pytest.raises(Undeliverable, match="empty"):
        await adapter.send(private(server.person("Bob")), " ", idempotency_key="1")


async def test_messages_that_certainly_did_not_arrive(server: TelegramServer, adapter: Telegram) -> None:
    to = private(server.person("Alice"))
    await server.stop()
    with pytest.raises(Unreachable):
        await adapter.send(to, "hello", idempotency_key="1")


@pytest.mark.parametrize("answer", [INTERNAL, BAD_GATEWAY, Answer(503, b"overloaded"), Answer(504)])
async def test_a_failure_of_the_server_counts_as_not_delivered(
    server: TelegramServer, adapter: Telegram, answer: Answer
) -> None:
    to = private(server.person("Alice"))
    server.will("sendMessage", answer, answer._replace(headers={"Retry-After": "7"}))
    with pytest.raises(Unreachable, match=f"status {answer.status}$"):
        await adapter.send(to, "hello", idempotency_key="1")
    with pytest.raises(RateLimited) as limited:
        await adapter.send(to, "hello", idempotency_key="1")
    assert limited.value.seconds == 7
    assert await adapter.send(to, "hello", idempotency_key="1")
    assert len(server.sent) == 1


@pytest.mark.parametrize("answer", [CUT, CUT_AFTER])
async def test_messages_that_may_have_arrived(server: TelegramServer, adapter: Telegram, answer: Any) -> None:
    to = private(server.person("Alice"))
    server.will("sendMessage", answer)
    with pytest.raises(DeliveryUnknown):
        await adapter.send(to, "hello", idempotency_key="1")
    assert len(server.sent) == answer.done


async def test_without_a_response_the_delivery_is_unknown(
    server: TelegramServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telegram_adapter, "PATIENCE", 0.3)
    adapter = made(server, tmp_path)
    server.will("sendMessage", SILENT_AFTER)
    with pytest.raises(DeliveryUnknown):
        await adapter.send(private(server.person("Alice")), "hello", idempotency_key="1")
    assert len(server.sent) == 1
    await adapter.close()


async def test_an_edit_is_never_unknown_because_it_can_be_repeated(
    server: TelegramServer, adapter: Telegram
) -> None:
    to = private(server.person("Alice"))
    message_id = str(await adapter.send(to, "one", idempotency_key="1"))
    server.will("editMessageText", CUT_AFTER)
    with pytest.raises(Unreachable):
        await adapter.edit(to, message_id, "two")
    await adapter.edit(to, message_id, "two")
    assert server.sent[0].text == "two"


# A webhook


@pytest.fixture
async def hooked(server: TelegramServer, tmp_path: Path) -> AsyncIterator[tuple[Telegram, str]]:
    """Run an adapter with a webhook. Return the adapter and the address of its webhook."""
    port = reserve_port()
    url = f"http://127.0.0.1:{port}/telegram/in"
    adapter = made(server, tmp_path, webhook_url=url, webhook_secret="s3cret_-", webhook_port=str(port))
    yield adapter, url
    await adapter.close()


async def test_messages_are_delivered_to_a_webhook(
    server: TelegramServer, hooked: tuple[Telegram, str]
) -> None:
    adapter, url = hooked
    async with running(adapter) as heard:
        assert server.webhook is not None
        assert (server.webhook["url"], server.webhook["secret_token"]) == (url, "s3cret_-")
        server.say(server.person("Alice"), "hello")
        assert (await event_in(heard)).text == "hello"
        await server.until_acknowledged()
    assert server.webhook is not None, "what comes while we are away waits for us"


async def test_requests_without_the_secret_are_refused(
    server: TelegramServer, hooked: tuple[Telegram, str]
) -> None:
    adapter, url = hooked
    update = server.say(server.person("Mallory"), "let me in", delivered=False)
    async with running(adapter) as heard, httpx.AsyncClient(trust_env=False) as client:
        server.say(server.person("Alice"), "hello")
        await event_in(heard)
        for headers in ({}, {"X-Telegram-Bot-Api-Secret-Token": "guess"}):
            assert (await client.post(url, json=update, headers=headers)).status_code == 403
        known = {"X-Telegram-Bot-Api-Secret-Token": "s3cret_-"}
        assert (await client.post(url, content=b"{", headers=known)).status_code == 400
        for senseless in (b"[1]", b"[" * 100_000, b'{"a": %s}' % (b"[" * 500 + b"]" * 500), b"[]," * 200_000):
            answer = await client.post(url, content=senseless, headers=known)
            assert (answer.status_code, answer.json()) == (400, {"error": "Bad Request"})
        assert heard.empty()


async def test_the_body_of_a_wrong_secret_is_not_read_and_guessing_is_limited(
    server: TelegramServer, hooked: tuple[Telegram, str]
) -> None:
    adapter, url = hooked
    set_limits(Limits(wrong_keys_per_minute=2))
    head = b"POST /telegram/in HTTP/1.1\r\nHost: x\r\nX-Telegram-Bot-Api-Secret-Token: guess\r\n"
    async with running(adapter) as heard:
        server.say(server.person("Alice"), "hello")
        await event_in(heard)
        for status in (b"403", b"403", b"429"):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
            writer.write(head + b"Content-Length: 900000\r\n\r\n")
            async with asyncio.timeout(60):
                answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 %s " % status)
            writer.close()


async def test_a_webhook_responds_with_success_only_after_acceptance(
    server: TelegramServer, hooked: tuple[Telegram, str]
) -> None:
    adapter, _ = hooked
    tries = 0

    async def receive(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError("the disk is full")
        return Receipt("accepted")

    async with running_into(adapter, receive):
        server.say(server.person("Alice"), "hello")
        await server.until_acknowledged()
    assert tries == 3
    assert [status for status in server.pushed if status] == [503, 503, 200]


async def test_polling_removes_an_earlier_webhook(server: TelegramServer, adapter: Telegram) -> None:
    server.webhook = {"url": "http://127.0.0.1:9/"}
    async with running(adapter) as heard:
        server.say(server.person("Alice"), "hello")
        assert (await event_in(heard)).text == "hello"


async def test_an_invalid_webhook_is_reported(server: TelegramServer, tmp_path: Path) -> None:
    plain = made(server, tmp_path, webhook_url="http://example.org/", webhook_secret="x", webhook_port=0)
    with pytest.raises(Misconfigured, match="https"):
        await plain.run(_nobody, lambda: None)
    await plain.close()
    taken = made(
        server, tmp_path, webhook_url="https://example.org/", webhook_secret="x", webhook_port=server.port
    )
    with pytest.raises(Misconfigured, match="in use"):
        await taken.run(_nobody, lambda: None)
    await taken.close()


async def _nobody(event: Event, offered: Sequence[OfferedFile]) -> Receipt:
    raise AssertionError("nobody said anything")
