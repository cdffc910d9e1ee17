"""Buttons on Telegram, with the real library, a local Bot API server, and a whole gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from hermes.gateway.adapter import Choice, OffersChoices, Receipt
from hermes.gateway.app import Gateway
from hermes.gateway.inbound_events import Event, OfferedFile, Source
from hermes.gateway.platforms.telegram.adapter import Telegram
from hermes.gateway.settings import GatewaySettings, PlatformSettings
from hermes_state import SessionDB
from tests.gateway.approval_gateway import ApprovalAgents, ApprovalBrain, Asker
from tests.gateway.local_gateway import WithBrain
from tests.gateway.telegram_server import BLOCKED, Person, Sent, TelegramServer

CHOICES = (Choice("✓ Once", "/approve k7f2"), Choice("✗ No", "/deny k7f2"))


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    server = TelegramServer()
    await server.start()
    yield server
    await server.stop()


def adapter_of(server: TelegramServer, folder: Path) -> Telegram:
    more = {"bot_token": server.token, "base_url": server.base_url}
    return Telegram(PlatformSettings("telegram", more=more), folder)


def offers_choices(adapter: Telegram) -> OffersChoices:
    return adapter  # checked by mypy


# ---------------------------------------------------------------- the adapter


class Heard:
    """A running adapter and the events that it delivers."""

    def __init__(self, server: TelegramServer, adapter: Telegram, state: str) -> None:
        self.server, self.adapter, self.state = server, adapter, state
        self.events: list[Event] = []

    async def receive(self, event: Event, offered: Sequence[OfferedFile]) -> Receipt:
        self.events.append(event)
        return Receipt(self.state)

    async def offered(self, to: Person) -> Sent:
        source = Source("telegram", str(to.id), user_id=str(to.id))
        await self.adapter.offer(source, "May I?", CHOICES, idempotency_key="1")
        return self.server.sent[-1]


@asynccontextmanager
async def heard_by(server: TelegramServer, folder: Path, state: str = "answered") -> AsyncIterator[Heard]:
    adapter = adapter_of(server, folder)
    heard, ready = Heard(server, adapter, state), asyncio.Event()
    task = asyncio.create_task(adapter.run(heard.receive, ready.set))
    await ready.wait()
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await adapter.close()


async def test_a_button_sends_its_text_as_the_person_who_pressed_it(
    server: TelegramServer, tmp_path: Path
) -> None:
    ann = server.person("Ann", "ann")
    async with heard_by(server, tmp_path) as heard:
        sent = await heard.offered(ann)
        assert sent.buttons == CHOICES
        update = server.press(ann, sent, CHOICES[0].text)
        await server.until(lambda: server.chosen == [update["callback_query"]["id"]])
        (event,) = heard.events
        assert (event.text, event.chosen) == ("/approve k7f2", update["callback_query"]["id"])
        source = event.source
        assert (source.chat_id, source.chat_type, source.user_id) == (str(ann.id), "dm", str(ann.id))
        assert (source.handle, source.message_id) == ("ann", str(sent.message_id))
        await server.until(lambda: not server.sent[0].buttons)
        assert "callback_query" in server.called("getUpdates")[-1]["allowed_updates"]
        server.deliver(update)
        await server.until_acknowledged()
        assert heard.events[1].message_id == event.message_id


@pytest.mark.parametrize("state", ["unauthorised", "ignored", "limited"])
async def test_an_ignored_press_leaves_the_buttons(
    server: TelegramServer, tmp_path: Path, state: str
) -> None:
    ann, bob = server.person("Ann"), server.person("Bob")
    async with heard_by(server, tmp_path, state) as heard:
        sent = await heard.offered(ann)
        server.press(bob, sent, CHOICES[0].text)
        await server.until_acknowledged()
        assert heard.events[0].source.user_id == str(bob.id)
        assert server.sent[0].buttons == CHOICES
        assert server.chosen == []


async def test_an_edit_removes_the_buttons(server: TelegramServer, tmp_path: Path) -> None:
    ann = server.person("Ann")
    async with heard_by(server, tmp_path) as heard:
        sent = await heard.offered(ann)
        source = Source("telegram", str(ann.id), user_id=str(ann.id))
        await heard.adapter.edit(source, str(sent.message_id), "May I? No.")
        assert server.sent[0].buttons == ()


async def test_a_press_counts_even_if_its_confirmation_fails(server: TelegramServer, tmp_path: Path) -> None:
    ann = server.person("Ann")
    async with heard_by(server, tmp_path) as heard:
        sent = await heard.offered(ann)
        server.will("answerCallbackQuery", BLOCKED)
        server.will("editMessageReplyMarkup", BLOCKED)
        server.press(ann, sent, CHOICES[1].text)
        await server.until_acknowledged()
        assert [event.text for event in heard.events] == ["/deny k7f2"]


async def test_a_text_that_no_button_can_carry_is_sent_without_buttons(
    server: TelegramServer, tmp_path: Path
) -> None:
    ann = server.person("Ann")
    async with heard_by(server, tmp_path) as heard:
        source = Source("telegram", str(ann.id), user_id=str(ann.id))
        await heard.adapter.offer(
            source, "May I?", [Choice("Yes", "/approve " + "ä" * 40)], idempotency_key="1"
        )
        assert server.sent[0].buttons == ()


# ---------------------------------------------------------------- the whole gateway


class TelegramGateway:
    """A gateway on Telegram. Ann is the owner, and Bob has access."""

    def __init__(self, server: TelegramServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.ann, self.bob = server.person("Ann"), server.person("Bob")
        self.asker, self.brain = Asker(), ApprovalBrain()

    async def __aenter__(self) -> TelegramGateway:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    async def start(self) -> None:
        owners, people = frozenset({str(self.ann.id)}), frozenset({str(self.bob.id)})
        platform = PlatformSettings("telegram", owners=owners, allowed_users=people, stream=False)
        settings = GatewaySettings(
            messages_per_minute=0, health_port=0, drain_seconds=0.05, platforms={"telegram": platform}
        )
        self.db = SessionDB(spool=True)
        adapters = {"telegram": adapter_of(self.server, self.folder)}
        self.app = Gateway(self.db, settings, adapters, ApprovalAgents(WithBrain(self.brain), self.asker))
        await self.app.start()

    async def end(self) -> None:
        await self.app.close()
        await asyncio.to_thread(self.db.close)

    async def asked(self, subject: str) -> Sent:
        """Make the model call the tool with `subject`. Return the message that asks Ann for the approval."""
        self.server.say(self.ann, f"use ask {json.dumps({'subject': subject})}")
        await self.server.until(lambda: any(one.buttons for one in self.server.sent))
        return next(one for one in self.server.sent if one.buttons)

    def texts(self, who: Person) -> list[str]:
        return [one.text for one in self.server.sent if one.chat_id == who.id]

    async def until_shown(self, who: Person, text: str) -> None:
        await self.server.until(lambda: any(text in one for one in self.texts(who)))


def _now(server: TelegramServer, sent: Sent) -> Sent:
    """Return a message in its current state."""
    return next(one for one in server.sent if one[:2] == sent[:2])


async def test_the_owner_approves_with_a_button(server: TelegramServer, tmp_path: Path) -> None:
    async with TelegramGateway(server, tmp_path) as gateway:
        sent = await gateway.asked("rm -rf `ls` <b>&amp;</b>")
        assert "rm -rf `ls` <b>&amp;</b>" in sent.text
        assert "<pre>rm -rf `ls` &lt;b&gt;&amp;amp;&lt;/b&gt;</pre>" in sent.source
        server.press(gateway.ann, sent, sent.buttons[0][1])
        await gateway.until_shown(gateway.ann, "the tool said: done rm -rf")
        await gateway.until_shown(gateway.ann, "it is refused.\n\n✓ Approved, once.")
        assert not any(one.buttons for one in server.sent)
        assert len(server.chosen) == 1


async def test_presses_and_messages_of_other_people_approve_nothing(
    server: TelegramServer, tmp_path: Path
) -> None:
    async with TelegramGateway(server, tmp_path) as gateway:
        sent = await gateway.asked("ls")
        stranger = server.person("Mallory")
        for who in (gateway.bob, stranger):
            server.press(who, sent, sent.buttons[0][1])
            server.say(who, sent.buttons[0][1])
        await gateway.until_shown(gateway.bob, "Nothing is waiting for an approval.")
        await server.until_acknowledged()
        assert gateway.asker.done == []
        assert gateway.texts(stranger) == []
        server.press(gateway.ann, sent, sent.buttons[-1][1])
        await gateway.until_shown(gateway.ann, "the tool said: error: refused:")
        assert gateway.asker.done == []


async def test_an_approval_typed_on_telegram(server: TelegramServer, tmp_path: Path) -> None:
    async with TelegramGateway(server, tmp_path) as gateway:
        sent = await gateway.asked("ls")
        server.say(gateway.ann, "yes")
        server.say(gateway.ann, sent.buttons[0][1])
        await gateway.until_shown(gateway.ann, "you said: yes")
        assert gateway.asker.done == ["ls"]
        await server.until(lambda: not any(one.buttons for one in server.sent))


async def test_buttons_from_before_a_restart_have_no_effect_and_are_removed(
    server: TelegramServer, tmp_path: Path
) -> None:
    async with TelegramGateway(server, tmp_path) as gateway:
        sent = await gateway.asked("ls")
        await gateway.end()
        await gateway.start()  # the old or the new gateway delivers the outcome of the question
        await server.until(lambda: not _now(server, sent).buttons)
        assert "Not done: I was restarted." in _now(server, sent).text
        server.press(gateway.ann, sent, sent.buttons[0][1])
        await gateway.until_shown(gateway.ann, f"No request {sent.buttons[0][1].split()[1]} is waiting.")
        assert gateway.asker.done == []


# ---------------------------------------------------------------- the local Bot API server


async def test_a_poll_whose_client_has_left_takes_no_update(server: TelegramServer) -> None:
    """An update that was not delivered must not count as delivered. Otherwise the next higher offset would
    acknowledge it."""
    ann = server.person("Ann")
    first = server.say(ann, "first", delivered=False)
    async with httpx.AsyncClient(trust_env=False, base_url=f"{server.base_url}{server.token}/") as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.get("getUpdates", params={"timeout": 30}, timeout=0.5)
        await server.until(lambda: not server.polls)
        server.deliver(first)
        answer = await client.get("getUpdates", params={"offset": first["update_id"] + 1}, timeout=30)
        assert [update["message"]["text"] for update in answer.json()["result"]] == ["first"]
