"""A conversation of the terminal continues in a chat. If the handoff fails, the conversation stays in the
terminal, and the person is told why.
"""

from __future__ import annotations

import asyncio

import pytest

from hermes.gateway.adapter import Undeliverable
from hermes.gateway.mirror.sessions_json import IndexFile
from hermes.gateway.sessions import handoffs
from hermes.gateway.sessions.legacy_routing import read_entries
from hermes.gateway.sessions.session_keys import find_owner
from hermes.gateway.sessions.session_lookup import restore_source
from hermes.gateway.settings import GatewaySettings, Keying, ResetPolicy
from tests.gateway.local_gateway import (
    ANN,
    BOB,
    WORKS_IN,
    LocalGateway,
    Platform,
    another_program,
    in_group,
    in_thread,
    settings_of,
)
from tests.stored_rows import change_rows


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handoffs, "LOOK_EVERY_S", 0.01)


def at_home(channel: str | None = "1", **more: object) -> GatewaySettings:
    return settings_of(platform={"home_channel": channel, **more})


def begun(gateway: LocalGateway) -> str:
    """Create a conversation in the terminal."""
    session = gateway.db.create_session(
        "20260504_120000_aaaaaaaa", "cli", system_prompt="the machine has a secret"
    )
    gateway.db.append_message(session, "user", "from the terminal")
    gateway.db.append_message(session, "assistant", "so it is")
    gateway.db.set_session_title(session, "Rome")
    return session


async def handed_over(
    gateway: LocalGateway, session: str, platform: str = "telegram"
) -> dict[str, str | None]:
    assert gateway.db.request_handoff(session, platform)

    def ended() -> bool:
        state = gateway.db.get_handoff_state(session)
        return state is not None and state["state"] in ("completed", "failed")

    await gateway.until(ended)
    state = gateway.db.get_handoff_state(session)
    assert state is not None
    return state


async def test_a_conversation_continues_in_the_private_chat_of_its_new_owner() -> None:
    async with LocalGateway(at_home()) as gateway:
        await gateway.asks(ANN, "hello")
        before = gateway.session_of(ANN)
        session = begun(gateway)
        assert (await handed_over(gateway, session))["state"] == "completed"
        assert "Rome" in gateway.heard(ANN)[-1]
        assert gateway.session_of(ANN) == session != before
        assert gateway.talk(ANN)[:2] == ["from the terminal", "so it is"]
        assert await gateway.asks(ANN, "and on") == ["you said: and on"]
        assert "the machine has a secret" not in gateway.brain.request_text


async def test_the_new_owner_is_known_before_their_first_message() -> None:
    """The new owner is known before that person writes a message. A reset by time and a rebuild from mirror
    files need this."""
    async with LocalGateway(at_home()) as gateway:
        session = begun(gateway)
        await handed_over(gateway, session)
        [route] = gateway.db.routing.list_by_session(session)
        keying = gateway.app.settings.keying
        owner = (gateway.db.get_session(session) or {})["owner"]
        assert owner == find_owner(ANN) == find_owner(restore_source(gateway.db, route, keying), keying)
        mirror = IndexFile(gateway.db, gateway.db.db_path.parent / "elsewhere")
        await asyncio.to_thread(mirror.write)
        entries, _ = read_entries(gateway.db.db_path.parent / "elsewhere" / "sessions.json")
        assert entries[route.session_key]["origin"]["user_id"] == ANN.user_id


async def test_a_later_conversation_belongs_to_that_platform() -> None:
    async with LocalGateway(at_home()) as gateway:
        await handed_over(gateway, begun(gateway))
        await gateway.asks(ANN, "/new")
        await gateway.asks(ANN, "hello")
        fresh = gateway.db.get_session(gateway.session_of(ANN)) or {}
        assert (fresh["source"], fresh["chat_type"], fresh["chat_id"]) == ("telegram", "dm", ANN.chat_id)
        assert fresh["owner"] == find_owner(ANN)


async def test_in_a_group_a_conversation_continues_in_a_new_shared_thread() -> None:
    async with LocalGateway(at_home("-9")) as gateway:
        session = begun(gateway)
        assert (await handed_over(gateway, session))["state"] == "completed"
        room = in_thread(BOB, "t1")
        assert "Rome" in gateway.heard(room)[0]
        assert gateway.session_of(room) == session
        answer = await gateway.asks(room, "and on")
        assert answer[0].endswith("and on")
        assert gateway.session_of(room) == session


@pytest.mark.parametrize(
    ("settings", "platform", "why"),
    [
        (at_home(None), "telegram", "no home channel"),
        (at_home(), "matrix", "not connected"),
    ],
)
async def test_a_conversation_that_cannot_be_handed_over_stays(
    settings: GatewaySettings, platform: str, why: str
) -> None:
    async with LocalGateway(settings) as gateway:
        session = begun(gateway)
        state = await handed_over(gateway, session, platform)
        assert state["state"] == "failed"
        assert why in str(state["error"])
        assert gateway.db.routing.list_by_session(session) == []
        assert gateway.db.get_session(session) is not None
        assert (gateway.db.get_session(session) or {})["owner"] == ""


async def test_a_group_without_threads_cannot_be_the_home_channel() -> None:
    async with LocalGateway(at_home("-9"), Platform(threads=False)) as gateway:
        state = await handed_over(gateway, begun(gateway))
        assert state["state"] == "failed"
        assert "without threads" in str(state["error"])


@pytest.mark.parametrize(
    "problem", [Undeliverable("we were thrown out"), ZeroDivisionError("a mistake of ours")]
)
async def test_a_handoff_that_could_not_be_announced_fails_and_the_next_succeeds(problem: Exception) -> None:
    async with LocalGateway(at_home()) as gateway:
        session = begun(gateway)
        gateway.platform.fail("send", problem)
        assert (await handed_over(gateway, session))["state"] == "failed"
        assert gateway.db.routing.list_by_session(session) == []
        assert (await handed_over(gateway, session))["state"] == "completed"
        assert gateway.session_of(ANN) == session


async def test_a_conversation_in_use_is_not_handed_over() -> None:
    async with LocalGateway(at_home()) as gateway:
        session = begun(gateway)
        with another_program(WORKS_IN, session):
            state = await handed_over(gateway, session)
        assert state["state"] == "failed"
        assert "another program" in str(state["error"])


async def test_a_handoff_to_a_busy_chat_waits() -> None:
    async with LocalGateway(at_home()) as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        session = begun(gateway)
        assert (await handed_over(gateway, session))["state"] == "completed"
        await gateway.says(ANN, "next")
        gateway.let_go("on")
        await gateway.quiet()
        assert gateway.heard(ANN)[-2:] == ["well, you said: hold on", "you said: next"]
        assert gateway.talk(ANN)[-2:] == ["next", "you said: next"]
        assert gateway.session_of(ANN) == session


async def test_the_former_chat_begins_another_conversation() -> None:
    """A conversation of Ann's chat is resumed in the terminal and handed over to Bob's chat. Ann's next
    message begins another conversation."""
    async with LocalGateway(at_home(BOB.chat_id)) as gateway:
        await gateway.asks(ANN, "hello")
        session = gateway.session_of(ANN)
        assert (await handed_over(gateway, session))["state"] == "completed"
        assert gateway.session_of(BOB) == session
        assert session not in str(await gateway.asks(ANN, "/status"))
        assert await gateway.asks(ANN, "still there?") == ["you said: still there?"]
        assert gateway.session_of(ANN) != session
        assert gateway.session_of(BOB) == session


async def test_a_handoff_waits_for_a_turn_that_is_about_to_end() -> None:
    async with LocalGateway(at_home(ANN.chat_id)) as gateway:
        session = gateway.db.create_session("of the terminal", "cli")
        lease = gateway.db.leases.acquire(session, "terminal")
        assert gateway.db.request_handoff(session, "telegram")
        await gateway.until(lambda: state_of(gateway, session) == "running")
        gateway.db.leases.release(lease)
        await gateway.until(lambda: state_of(gateway, session) != "running")
        assert state_of(gateway, session) == "completed"


def state_of(gateway: LocalGateway, session: str) -> str | None:
    handoff = gateway.db.get_handoff_state(session)
    return None if handoff is None else handoff["state"]


async def test_the_chats_of_its_owner_stay_in_what_is_handed_to_them() -> None:
    async with LocalGateway(at_home(ANN.chat_id)) as gateway:
        in_topic = ANN._replace(thread_id="3")
        await gateway.asks(in_topic, "hello")
        session = gateway.session_of(in_topic)
        assert (await handed_over(gateway, session))["state"] == "completed"
        assert gateway.session_of(ANN) == gateway.session_of(in_topic) == session


async def test_a_thread_that_is_spelled_as_a_person_there_has_a_key_of_its_own() -> None:
    somebody = in_group(BOB._replace(user_id="t1"))
    async with LocalGateway(at_home("-9")) as gateway:
        await gateway.asks(somebody, "hello")
        before, session = gateway.session_of(somebody), begun(gateway)
        assert (await handed_over(gateway, session))["state"] == "completed"
        assert gateway.session_of(in_thread(BOB, "t1")) == session
        assert gateway.session_of(somebody) == before


async def test_without_shared_threads_the_conversation_stays() -> None:
    settings = at_home("-9").replace(keying=Keying(thread_sessions_per_user=True))
    async with LocalGateway(settings) as gateway:
        state = await handed_over(gateway, begun(gateway))
        assert state["state"] == "failed"
        assert "thread_sessions_per_user" in str(state["error"])
        assert not gateway.platform.messages


async def test_a_reset_after_a_handoff_uses_the_new_owner() -> None:
    """After a restart, a reset knows the owner of the chat, although no message has named the owner yet."""
    rule = ResetPolicy("idle", idle_minutes=1)
    async with LocalGateway(at_home().replace(reset=rule)) as gateway:
        session = begun(gateway)
        assert (await handed_over(gateway, session))["state"] == "completed"
        await gateway.restart()
        change_rows(gateway.db, "UPDATE sessions SET last_person_at = 1 WHERE id = ?", session)
        key = "agent:main:telegram:dm:1"
        await gateway.app.router.wake(key)
        await gateway.until(lambda: "automatically reset" in gateway.heard(ANN)[-1])
        afresh = gateway.db.get_session(gateway.session_of(ANN))
        assert afresh is not None
        assert (afresh["parent_session_id"], afresh["relation"]) == (session, "reset")
        assert await gateway.asks(ANN, "and on") == ["you said: and on"]
        assert "Back in" in (await gateway.asks(ANN, f"/resume {session}"))[0]
