"""A gateway with the real Telegram library, and a local server that fails. The tests check what people see
and that nothing is lost.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from hermes import clock
from hermes.gateway.app import Gateway
from hermes.gateway.inbound import albums
from hermes.gateway.inbound.received_files import incoming_folder
from hermes.gateway.outbound import delivery
from hermes.gateway.outbound.delivery import UNKNOWN
from hermes.gateway.platforms.telegram.adapter import Telegram
from hermes.gateway.platforms.webhook.adapter import Webhook
from hermes.gateway.platforms.webhook.signed_request import sign
from hermes.gateway.settings import Keying, PlatformSettings
from hermes_state import SessionDB
from tests.gateway.local_gateway import LocalGateway, Platform, settings_of
from tests.gateway.loopback_server import client_of
from tests.gateway.telegram_server import (
    BAD_GATEWAY,
    BOT_NAME,
    CUT,
    CUT_AFTER,
    INTERNAL,
    Answer,
    Chat,
    Person,
    TelegramServer,
    too_many,
)
from tests.ports import reserve_port


class WireGateway(LocalGateway):
    """A gateway that is connected to a `TelegramServer` by HTTP."""

    def __init__(
        self,
        server: TelegramServer,
        folder: Path,
        options: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(settings_of(**settings))
        self.server, self._folder, self._options = server, folder, options or {}

    async def _start(self) -> None:
        self.db = SessionDB(spool=True)
        more = {"bot_token": self.server.token, "base_url": self.server.base_url, **self._options}
        adapter = Telegram(PlatformSettings("telegram", more=more), self._folder)
        self.app = Gateway(self.db, self.settings, {"telegram": adapter}, self.agents())
        await self.app.start()

    def shown(self, chat: Person | Chat) -> list[str]:
        """Return the messages of the bot in a chat."""
        return [message.text for message in self.server.sent if message.chat_id == chat.id]

    async def shows(self, chat: Person | Chat, *texts: str) -> None:
        """Wait until the messages of the bot in a chat are these."""
        await self.until(lambda: len(self.shown(chat)) >= len(texts))
        await self.quiet()
        assert self.shown(chat) == list(texts)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TelegramServer]:
    monkeypatch.setattr(delivery, "FIRST_PAUSE_S", 0.02)
    server = TelegramServer()
    await server.start()
    yield server
    await server.stop()


@pytest.mark.parametrize(
    "answer",
    [
        BAD_GATEWAY,
        INTERNAL,
        Answer(503, b"", headers={"Retry-After": "1"}),
        too_many(1),
    ],
)
async def test_an_answer_is_delivered_after_a_failure_of_the_server(
    server: TelegramServer, tmp_path: Path, answer: Answer
) -> None:
    alice = server.person("Alice")
    server.will("sendMessage", answer, answer)
    async with WireGateway(server, tmp_path) as gateway:
        server.say(alice, "hello")
        await gateway.shows(alice, "you said: hello")
    assert len(server.called("sendMessage")) == 3


async def test_an_answer_is_delivered_after_a_refused_connection(
    server: TelegramServer, tmp_path: Path
) -> None:
    alice = server.person("Alice")
    async with WireGateway(server, tmp_path) as gateway:
        server.say(alice, "hold it")
        await gateway.holds("it")
        await server.stop()
        gateway.let_go("it")
        await gateway.until(gateway.db.outbox.list_waiting)
        await server.start()
        gateway.app.delivery.retry_now("telegram")
        await gateway.shows(alice, "well, you said: hold it")


@pytest.mark.parametrize("answer", [CUT, CUT_AFTER])
async def test_an_unknown_delivery_is_reported_and_resent_on_request(
    server: TelegramServer, tmp_path: Path, answer: Answer
) -> None:
    alice = server.person("Alice")
    arrived = ["you said: hello"] if answer.done else []
    notice = UNKNOWN.replace("`", "")
    server.will("sendMessage", answer)
    async with WireGateway(server, tmp_path) as gateway:
        server.say(alice, "hello")
        await gateway.shows(alice, *arrived, notice)
        server.say(alice, "more")
        await gateway.shows(alice, *arrived, notice, "you said: more")
        server.say(alice, "/resend")
        again = ("you said: hello", "↻ 1 message sent again.")
        await gateway.shows(alice, *arrived, notice, "you said: more", *again)


async def test_a_slow_file_delays_no_other_chat(server: TelegramServer, tmp_path: Path) -> None:
    """More people write than one poll returns. The message with the file is already acknowledged."""
    alice, others = server.person("Alice"), [server.person(f"Person {number}") for number in range(120)]
    server.downloads.clear()
    async with WireGateway(server, tmp_path) as gateway:
        server.say(alice, "what is it?", document=("a.txt", "text/plain", b"a cat"))
        await server.until(lambda: bool(server.downloading))
        for other in others:
            server.say(other, "hello")
        await server.until_acknowledged()
        await gateway.until(lambda: all(gateway.shown(other) for other in others))
        assert gateway.shown(alice) == []
        server.downloads.set()
        await gateway.until(lambda: gateway.shown(alice))
        assert "a cat" in gateway.shown(alice)[0]


async def test_a_file_is_fetched_after_a_restart(server: TelegramServer, tmp_path: Path) -> None:
    alice = server.person("Alice")
    server.downloads.clear()
    async with WireGateway(server, tmp_path, drain_seconds=0.1) as gateway:
        server.say(alice, "what is it?", document=("a.txt", "text/plain", b"a cat"))
        await server.until(lambda: bool(server.downloading))
        await gateway.restart()
        server.will("getFile", BAD_GATEWAY)
        server.downloads.set()
        await gateway.until(lambda: gateway.shown(alice))
        assert "a cat" in gateway.shown(alice)[0]
    assert list(incoming_folder().glob("*")) == []


async def test_a_very_long_answer_is_its_beginning_and_a_file(server: TelegramServer, tmp_path: Path) -> None:
    alice, group = server.person("Alice"), server.group("Friends")
    words = " ".join(f"word{number}" for number in range(6000))
    server.will("sendDocument", BAD_GATEWAY)
    async with WireGateway(server, tmp_path) as gateway:
        asked = server.say(alice, f"/history@{BOT_NAME}", chat=group)
        await gateway.until(lambda: gateway.shown(group))
        asked = server.say(alice, f"@{BOT_NAME} {words}", chat=group)
        await gateway.until(lambda: len(server.sent) == 3)
        await gateway.quiet()
        _, beginning, attached = server.sent
    assert beginning.text.startswith("you said: word0 word1 ")
    assert beginning.text.endswith("The whole text is in the attached file.")
    assert beginning.reply_to == asked["message"]["message_id"]
    assert attached.file == ("answer.md", f"you said: {words}".encode())
    assert attached.chat_id == group.id


async def test_a_long_answer_of_ten_parts_is_sent_in_parts(server: TelegramServer, tmp_path: Path) -> None:
    alice = server.person("Alice")
    async with WireGateway(server, tmp_path) as gateway:
        server.say(alice, " ".join(f"word{number:04}" for number in range(4000)))
        await gateway.until(lambda: gateway.shown(alice) and gateway.shown(alice)[-1].endswith("word3999"))
        await gateway.quiet()
    assert len(server.sent) == 9
    assert not any(message.file for message in server.sent)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("announced", [False, True])
async def test_a_group_that_becomes_a_supergroup_keeps_its_conversation(
    server: TelegramServer, tmp_path: Path, announced: bool, shared: bool
) -> None:
    """Telegram reports the migration in a message, and also when it refuses the next message to the old
    chat."""
    alice, group = server.person("Alice"), server.group("Friends", basic=True)
    keying = Keying(group_sessions_per_user=not shared)
    async with WireGateway(server, tmp_path, keying=keying) as gateway:
        server.say(alice, f"@{BOT_NAME} hold apple", chat=group)
        await gateway.holds("apple")
        grown = server.migrate(group, alice if announced else None)
        gateway.let_go("apple")
        await gateway.until(lambda: gateway.shown(grown))
        [session] = gateway.db.list_sessions_rich()
        await gateway.until(lambda: gateway.db.routing.list_routes()[0].chat_id == str(grown.id))
        server.say(alice, f"@{BOT_NAME} hello", chat=grown)
        await gateway.until(lambda: len(gateway.shown(grown)) == 2)
        assert "hold apple" in str(gateway.brain.requests[-1].messages)
        assert [row["id"] for row in gateway.db.list_sessions_rich()] == [session["id"]]
        server.say(alice, f"/sessions@{BOT_NAME}", chat=grown)
        await gateway.until(lambda: len(gateway.shown(grown)) == 3)
        assert "apple" in gateway.shown(grown)[2]
        await gateway.restart()
        server.say(alice, f"@{BOT_NAME} again", chat=grown)
        await gateway.until(lambda: len(gateway.shown(grown)) == 4)
        assert "hold apple" in str(gateway.brain.requests[-1].messages)


@pytest.mark.parametrize("webhook", [False, True])
async def test_an_album_that_arrives_in_several_polls_is_one_message(
    server: TelegramServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, webhook: bool
) -> None:
    monkeypatch.setattr(albums, "PAUSE_S", 1.0)
    alice, group, album = server.person("Alice"), server.group("Friends"), {"media_group_id": "77"}
    more = {}
    if webhook:
        port = reserve_port()
        more = {
            "webhook_url": f"http://127.0.0.1:{port}/in",
            "webhook_secret": "abc",
            "webhook_port": str(port),
        }
    async with WireGateway(
        server, tmp_path, options=more, messages_per_minute=1, platform={"busy": "interrupt"}
    ) as gateway:
        server.say(
            alice, f"@{BOT_NAME} which?", chat=group, document=("a.txt", "text/plain", b"one"), more=album
        )
        await server.until_acknowledged()
        second = server.say(alice, chat=group, document=("b.txt", "text/plain", b"two"), more=album)
        await server.until_acknowledged()
        server.say(alice, chat=group, document=("c.txt", "text/plain", b"three"), more=album)
        await gateway.until(lambda: gateway.shown(group))
        server.deliver(second)
        await server.until_acknowledged()
        await gateway.quiet()
        [request] = gateway.brain.requests
    text = str(request.messages[-1]["content"])
    assert [text.count(word) for word in ("which?", "one", "two", "three")] == [1, 1, 1, 1]
    assert len(gateway.shown(group)) == 1


async def test_parts_of_an_album_survive_a_restart(
    server: TelegramServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(albums, "PAUSE_S", 60.0)
    monkeypatch.setattr(albums, "LONGEST_S", 60.0)
    alice, album = server.person("Alice"), {"media_group_id": "77"}
    async with WireGateway(server, tmp_path, drain_seconds=0.1) as gateway:
        server.say(alice, document=("a.txt", "text/plain", b"one"), more=album)
        server.say(alice, "which?", document=("b.txt", "text/plain", b"two"), more=album)
        await server.until_acknowledged()
        server.say(alice, document=("c.txt", "text/plain", b"three"), more=album)
        await server.until_acknowledged()
        await gateway.until(
            lambda: any(entry.state == "working" for entry in gateway.db.inbox.list_waiting())
        )
        monkeypatch.setattr(albums, "PAUSE_S", 0.0)
        await gateway.restart()
        await gateway.until(lambda: gateway.shown(alice))
        await gateway.quiet()
        [request] = gateway.brain.requests
    text = str(request.messages[-1]["content"])
    assert [text.count(word) for word in ("which?", "one", "two", "three")] == [1, 1, 1, 1]


async def test_a_callback_without_a_response_is_sent_again_with_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver cuts the connection, responds with an error, cuts the connection again, and then confirms."""
    monkeypatch.setattr(delivery, "FIRST_PAUSE_S", 0.02)
    statuses = [0, 502, 0, 204]
    received: list[tuple[str, str]] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        headers = dict(line.split(": ", 1) for line in head.splitlines()[1:] if line)
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        received.append((headers["idempotency-key"], body["reply"]))
        if status := statuses.pop(0):
            writer.write(b"HTTP/1.1 %d Status\r\nContent-Length: 0\r\n\r\n" % status)
            await writer.drain()
        writer.close()

    callbacks = await asyncio.start_server(take, "127.0.0.1", 0)
    callback = f"127.0.0.1:{callbacks.sockets[0].getsockname()[1]}"
    port, key = reserve_port(), "a secret that is long enough"
    more = {"secret": key, "port": str(port), "callback_hosts": [callback]}
    webhook = Webhook(PlatformSettings("webhook", more=more), tmp_path)
    settings = settings_of(platforms={"webhook": PlatformSettings("webhook", allow_all=True)})
    gateway = LocalGateway(settings, webhook=cast(Platform, webhook))
    async with gateway:
        await gateway.until(lambda: webhook.port)
        body = json.dumps({"text": "hello", "user": "ann", "callback_url": f"http://{callback}/a"}).encode()
        headers = {"X-Hermes-Signature": sign(key.encode(), body, clock.now())}
        async with client_of(f"http://127.0.0.1:{port}") as client:
            answer = await client.post("/webhook", content=body, headers=headers)
        assert answer.status_code == 202
        await gateway.until(lambda: not statuses)
        await gateway.quiet()
    callbacks.close()
    assert len(set(received)) == 1
    assert received[0][1] == "you said: hello"
    assert len(received) == 4
