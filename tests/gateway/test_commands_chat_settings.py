"""`/sethome`, `/pair` and `/topic` change settings of a chat."""

from __future__ import annotations

import pytest

from hermes.gateway.sessions.topics import UserTopics
from hermes.gateway.settings import GatewaySettings, PlatformSettings
from hermes_state import SessionDB
from tests.gateway.command_chat import OWNED, Chat, dm, group, thread


def at(db: SessionDB, who: str, topic: str | None = None) -> Chat:
    chat = Chat(db, dm(who, topic))
    chat.topics = UserTopics(db, f"dm-{who}", who)
    return chat


# /sethome


def home_of(channel: str, kind: str, thread_id: str | None = None) -> dict[str, object]:
    values = {"home_channel": channel, "home_thread": thread_id, "home_type": kind, "home_user": "ann"}
    return {f"platforms.telegram.{name}": value for name, value in values.items()}


async def test_an_owner_makes_a_chat_the_home(db: SessionDB) -> None:
    chat = Chat(db, group("ann"))
    assert "This chat is now the home of telegram" in await chat.types("/sethome")
    assert chat.kept == home_of("room", "group")


async def test_settings_that_cannot_be_written_are_one_line(
    db: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    class ReadOnly(dict[str, object]):
        def __setitem__(self, name: str, value: object) -> None:
            raise PermissionError(13, "Permission denied", "/home/ann/config.yaml")

    chat = Chat(db, group("ann"))
    chat.kept = ReadOnly()
    assert await chat.types("/sethome") == "That is not possible at the moment; try again soon."
    assert "config.yaml" in caplog.text


async def test_a_thread_can_be_the_home_and_cease_to_be(db: SessionDB) -> None:
    chat = Chat(db, thread("ann"))
    await chat.types("/sethome")
    assert chat.kept == home_of("room", thread("ann").chat_type, "7")
    again = Chat(db, dm("ann"))
    await again.types("/sethome")
    assert again.kept == home_of("dm-ann", "dm")


@pytest.mark.parametrize(
    "settings",
    [OWNED, GatewaySettings(), GatewaySettings(platforms={"telegram": PlatformSettings("telegram")})],
)
async def test_only_an_owner_can_set_the_home(db: SessionDB, settings: GatewaySettings) -> None:
    for source in (dm("bob"), group("bob")._replace(user_id=None)):
        chat = Chat(db, source, settings)
        assert await chat.types("/sethome") == "Only an owner of this platform can choose its home."
        assert chat.kept == {}


# /pair


async def test_a_code_that_is_not_valid_is_reported(db: SessionDB) -> None:
    assert "This code is not valid" in await Chat(db, dm("ann")).types("/pair ABCD2345")
    assert await Chat(db, group("ann")).types("/pair ABCD2345") == "Send the code in a private chat."


# /topic


async def test_topics_exist_only_on_telegram(db: SessionDB) -> None:
    for typed in ("/topic", "/topic off", "/topic help"):
        assert (
            await Chat(db, dm("ann")).types(typed)
            == "Topics are available only in private chats on Telegram."
        )


async def test_topics_are_turned_on_and_off(db: SessionDB) -> None:
    chat = at(db, "ann")
    assert chat.topics is not None
    old = await chat.talks("hello", title="Rome")
    assert "turns topics on" in await chat.types("/topic help")
    assert not chat.topics.is_enabled()
    answer = await chat.types("/topic")
    assert answer.startswith("**Topics are on now.**")
    assert f"- **Rome** · just now · `{old}`" in answer
    assert chat.topics.is_enabled()
    assert (await chat.types("/topic")).startswith("Topics are on: ")
    assert (await chat.types("/topic OFF")).startswith("Topics are off.")
    assert not chat.topics.is_enabled()


async def test_a_conversation_continues_in_a_topic(db: SessionDB) -> None:
    chat = at(db, "ann")
    old = await chat.talks("hello", title="Rome")
    await chat.types("/new")
    topic = at(db, "ann", "5")
    assert topic.topics is not None
    assert await topic.types("/topic Rome") == "Topics are off; `/topic` turns them on."
    await chat.types("/topic")
    assert (await chat.types("/topic Rome")).startswith("Send this command in the topic")
    assert "Back in **Rome** (2 messages)" in await topic.types("/topic Rome")
    assert topic.session_id == old
    bound = topic.topics.find_binding("5")
    assert bound is not None
    assert (bound["session_id"], bound["session_key"]) == (old, "agent:main:telegram:dm:dm-ann:5")
    assert old not in await chat.types("/topic")
    other = at(db, "ann", "6")
    assert await other.types("/topic Rome") == "That conversation is already in another topic."
    assert other.session_id is None


async def test_conversations_of_rooms_and_of_others_are_not_offered(db: SessionDB) -> None:
    room = await Chat(db, thread("ann")).talks("for all")
    bobs = await at(db, "bob").talks("mine", title="Bob's")
    chat, topic = at(db, "ann"), at(db, "ann", "5")
    answer = await chat.types("/topic")
    assert room not in answer
    assert bobs not in answer
    missing = await topic.types("/topic nothing of that name")
    for guess in (bobs, bobs[:-1], "Bob's", "bob", room):
        assert await topic.types(f"/topic {guess}") == missing
    assert topic.session_id is None
    assert topic.topics is not None
    assert topic.topics.find_binding("5") is None
