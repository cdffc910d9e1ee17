"""Resets by time. Each reset happens once, the person is told, and the reset can be undone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
import time_machine

from hermes.config import config_file
from hermes.gateway.sessions import reset_scheduler
from hermes.gateway.settings import GatewaySettings, ResetPolicy
from tests.gateway.local_gateway import (
    ANN,
    BOB,
    WORKS_IN,
    LocalGateway,
    another_program,
    in_group,
    in_thread,
    settings_of,
)
from tests.stored_rows import change_rows

IDLE = ResetPolicy("idle", idle_minutes=60)
DAILY = ResetPolicy("daily", at_hour=4, timezone="UTC")
NOON = datetime(2026, 5, 4, 12, 0, 2, tzinfo=UTC)
HOUR, DAY = 3600.0, 86400.0


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(NOON, tick=True) as traveller:
        yield traveller


@pytest.fixture(autouse=True)
def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn off the periodic checks of the scheduler. A test runs a check by calling `looks`."""
    monkeypatch.setattr(reset_scheduler, "LOOK_EVERY_S", 1e6)


def idle(**changed: object) -> GatewaySettings:
    return settings_of(reset=IDLE.replace(**changed))


async def looks(gateway: LocalGateway) -> None:
    """Run one check of the scheduler."""
    for key in reset_scheduler._find_due_chats(gateway.app.context):
        await gateway.app.router.wake(key)


async def test_without_a_policy_nothing_is_reset(clock: time_machine.Traveller) -> None:
    async with LocalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        clock.shift(400 * DAY)
        await looks(gateway)
        await gateway.asks(ANN, "again")
        assert gateway.session_of(ANN) == old


async def test_the_next_message_after_a_long_time_begins_a_new_conversation(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        clock.shift(59 * 60)
        await gateway.asks(ANN, "still here")
        assert gateway.session_of(ANN) == old
        clock.shift(61 * 60)
        replies = await gateway.asks(ANN, "again")
        assert len(replies) == 2
        assert replies[1] == "you said: again"
        assert gateway.talk(ANN) == ["again", "you said: again"]
        row = gateway.db.get_session(gateway.session_of(ANN))
        assert row is not None
        assert row["parent_session_id"] == old
        notice = next(call for call in gateway.platform.calls_of("send") if call.text == replies[0])
        assert notice.silent
        assert "idle" in (await gateway.asks(ANN, "/why"))[0].lower()


async def test_a_thread_has_a_policy_of_its_own(clock: time_machine.Traveller) -> None:
    async with LocalGateway(settings_of(reset_by_type={"thread": IDLE})) as gateway:
        places = (in_thread(ANN), in_group(ANN), ANN)
        for where in places:
            await gateway.asks(where, "hello")
        old = [gateway.session_of(where) for where in places]
        clock.shift(2 * HOUR)
        await looks(gateway)
        await gateway.until(lambda: gateway.session_of(places[0]) != old[0])
        assert [gateway.session_of(where) for where in places[1:]] == old[1:]
        await gateway.until(lambda: "reset_by_type.thread" in gateway.heard(places[0])[-1])


async def test_the_scheduler_resets_without_a_message_and_announces_it_once(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "hello")
        await gateway.asks(BOB, "hello")
        old = gateway.session_of(ANN)
        clock.shift(HOUR / 2)
        await gateway.asks(BOB, "and again")
        bobs = gateway.session_of(BOB)
        clock.shift(HOUR / 2 + 10)
        for _ in range(3):
            await looks(gateway)
            await gateway.until(lambda: len(gateway.heard(ANN)) == 2)
            await gateway.quiet()
        assert len(gateway.heard(ANN)) == 2
        assert gateway.session_of(ANN) != old
        assert gateway.session_of(BOB) == bobs
        assert await gateway.asks(ANN, "again") == ["you said: again"]


async def test_a_daily_reset_is_made_after_a_restart(clock: time_machine.Traveller) -> None:
    async with LocalGateway(settings_of(reset=DAILY)) as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        clock.shift(10 * HOUR)
        await gateway.restart()
        await gateway.asks(ANN, "the same day")
        assert gateway.session_of(ANN) == old
        clock.shift(10 * HOUR)
        await gateway.restart()
        await gateway.asks(ANN, "the next day")
        assert gateway.session_of(ANN) != old


async def test_a_message_that_waited_is_judged_by_when_it_was_sent(clock: time_machine.Traveller) -> None:
    async with LocalGateway(settings_of(reset=DAILY, drain_seconds=0.01)) as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        with another_program(WORKS_IN, old) as leave:
            clock.shift(10 * HOUR)
            await gateway.says(ANN, "sent before four")
            await gateway.until(lambda: len(gateway.heard(ANN)) == 2)
            leave()
            await gateway.restart()
            clock.shift(10 * HOUR)
        await gateway.restart()
        await gateway.quiet()
        assert "sent before four" in [row["content"] for row in gateway.db.get_messages(old)]


async def test_a_conversation_is_not_reset_during_an_answer(clock: time_machine.Traveller) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.holds("on")
        old = gateway.session_of(ANN)
        clock.shift(2 * HOUR)
        await looks(gateway)
        gateway.let_go("on")
        await gateway.quiet()
        assert "well, you said: hold on" in gateway.heard(ANN)
        assert [row["content"] for row in gateway.db.get_messages(old)] == [
            "hold on",
            "well, you said: hold on",
        ]


async def test_a_conversation_open_in_a_terminal_is_not_reset(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        with another_program(WORKS_IN, old):
            clock.shift(2 * HOUR)
            change_rows(gateway.db, "UPDATE leases SET expires_at = expires_at + 10000")
            await looks(gateway)
            mailbox = gateway.app.router._mailboxes[next(iter(gateway.app.router._mailboxes))]
            await gateway.until(lambda: mailbox.is_idle)
            assert gateway.session_of(ANN) == old
        assert len(gateway.heard(ANN)) == 1
        await looks(gateway)
        await gateway.until(lambda: gateway.session_of(ANN) != old)


async def test_a_process_in_the_background_keeps_its_conversation(clock: time_machine.Traveller) -> None:
    config_file.change("approvals.mode", "off")
    settings = settings_of(reset=IDLE, platform={"owners": frozenset({"1"})})
    async with LocalGateway(settings) as gateway:
        await gateway.asks(ANN, 'use terminal {"command": "sleep 60", "background": true}')
        old = gateway.session_of(ANN)
        clock.shift(2 * HOUR)
        await looks(gateway)
        await gateway.asks(ANN, "again")
        assert gateway.session_of(ANN) == old
        assert (await gateway.asks(ANN, "/status"))[0].splitlines()[-2:] == [
            "Resets: after 1h without a message",
            "Held off by: a background process",
        ]
        processes = gateway.app.context.agents.processes
        for process in processes.list_for(old):
            process.running.kill()
        await gateway.until(lambda: all(one.running.over for one in processes.list_for(old)))
        clock.shift(2 * HOUR)
        await gateway.asks(ANN, "again")
        assert gateway.session_of(ANN) != old


async def test_the_status_shows_how_long_a_process_delays_a_reset(clock: time_machine.Traveller) -> None:
    config_file.change("approvals.mode", "off")
    settings = settings_of(
        reset=IDLE.replace(bg_process_max_age_hours=3), platform={"owners": frozenset({"1"})}
    )
    async with LocalGateway(settings) as gateway:
        await gateway.asks(ANN, 'use terminal {"command": "sleep 60", "background": true}')
        (status,) = await gateway.asks(ANN, "/status")
        assert status.splitlines()[-2:] == [
            "Next: today 15:00",
            "Held off by: a background process, at most for another 3h",
        ]


async def test_the_status_shows_that_work_in_the_chat_delays_a_reset(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "hello")
        assert "Held off" not in (await gateway.asks(ANN, "/status"))[0]
        await gateway.says(ANN, "hold it")
        await gateway.holds("it")
        await gateway.says(ANN, "one more")
        await gateway.says(ANN, "/status")
        await gateway.until(lambda: "Held off" in gateway.heard(ANN)[-1])
        holds = "Held off by: the answer in progress, 1 message waiting for an answer"
        assert gateway.heard(ANN)[-1].splitlines()[-1] == holds
        gateway.let_go("it")
        await gateway.quiet()
        with another_program(WORKS_IN, gateway.session_of(ANN)):
            (status,) = await gateway.asks(ANN, "/status")
            assert status.splitlines()[-1] == "Held off by: another program that works in this conversation"


async def test_before_a_reset_the_agent_saves_its_memory(clock: time_machine.Traveller) -> None:
    async with LocalGateway(idle()) as gateway:
        for number in range(5):
            await gateway.asks(ANN, f"fact {number}")
        asked = len(gateway.brain.requests)
        clock.shift(2 * HOUR)
        await looks(gateway)
        await gateway.until(lambda: len(gateway.heard(ANN)) == 6)
        saving = gateway.brain.requests[asked]
        assert "about to leave your context" in str(saving.messages[-1]["content"])
        assert "fact 4" in str(saving.messages)
        assert not any("about to leave" in text for text in gateway.heard(ANN))


def savings(gateway: LocalGateway) -> list[str]:
    asked = (str(request.messages[-1]["content"]) for request in gateway.brain.requests)
    return [text for text in asked if "about to leave your context" in text]


@pytest.mark.parametrize("policy", [IDLE, DAILY])
async def test_the_agent_saves_before_every_reset_of_a_conversation_with_messages(
    clock: time_machine.Traveller, policy: ResetPolicy
) -> None:
    async with LocalGateway(settings_of(reset=policy)) as gateway:
        for number in range(1, 4):
            await gateway.asks(ANN, f"my name is Ann {number}")
            old = gateway.session_of(ANN)
            clock.shift(DAY)
            await looks(gateway)
            await gateway.until(lambda old=old: gateway.session_of(ANN) != old)  # type: ignore[misc]
            assert len(savings(gateway)) == number
        clock.shift(DAY)
        await looks(gateway)  # there was no message since then, so nothing is due
        assert len(savings(gateway)) == 3


async def test_the_agent_saves_when_the_next_message_makes_the_reset(clock: time_machine.Traveller) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "my name is Ann")
        old = gateway.session_of(ANN)
        await gateway.restart()
        clock.shift(DAY)
        await gateway.asks(ANN, "again")
        assert gateway.session_of(ANN) != old
        assert len(savings(gateway)) == 1


async def test_an_unreachable_model_does_not_prevent_a_reset(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "my name is Ann")
        old = gateway.session_of(ANN)
        gateway.brain.is_away = True
        clock.shift(DAY)
        await looks(gateway)
        await gateway.until(lambda: gateway.session_of(ANN) != old)
        await gateway.until(lambda: len(gateway.heard(ANN)) == 2)
        assert "automatically reset" in gateway.heard(ANN)[1]
        assert [row["content"] for row in gateway.db.get_messages(old)] == [
            "my name is Ann",
            "you said: my name is Ann",
        ]


async def test_undo_brings_the_conversation_back_and_it_stays(clock: time_machine.Traveller) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        clock.shift(2 * HOUR)
        await looks(gateway)
        await gateway.until(lambda: len(gateway.heard(ANN)) == 2)
        assert "undone" in (await gateway.asks(ANN, "/undo"))[0]
        assert gateway.session_of(ANN) == old
        await looks(gateway)
        await gateway.asks(ANN, "where were we?")
        assert gateway.session_of(ANN) == old
        assert gateway.talk(ANN)[0] == "hello"


async def test_a_resumed_old_conversation_is_not_reset_at_once(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        await gateway.asks(ANN, "/new")
        clock.shift(10 * DAY)
        await gateway.asks(ANN, "something else")
        await gateway.asks(ANN, f"/resume {old}")
        await gateway.asks(ANN, "where were we?")
        assert gateway.session_of(ANN) == old
        clock.shift(2 * HOUR)
        await gateway.asks(ANN, "much later")
        assert gateway.session_of(ANN) != old


async def test_undo_works_after_a_restart(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        clock.shift(2 * HOUR)
        await looks(gateway)
        await gateway.until(lambda: gateway.session_of(ANN) != old)
        await gateway.restart()
        await gateway.asks(ANN, "/undo")
        assert gateway.session_of(ANN) == old


async def test_a_command_is_not_activity_and_acts_on_the_current_session(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(idle()) as gateway:
        await gateway.asks(ANN, "hello")
        old = gateway.session_of(ANN)
        clock.shift(HOUR - 60)
        await gateway.asks(ANN, "/title Named")
        clock.shift(120)
        await gateway.asks(ANN, "again")
        assert gateway.session_of(ANN) != old


async def test_notify_false_makes_a_reset_silent(clock: time_machine.Traveller) -> None:
    async with LocalGateway(idle(notify=False)) as gateway:
        await gateway.asks(ANN, "hello")
        clock.shift(2 * HOUR)
        assert await gateway.asks(ANN, "again") == ["you said: again"]
        assert gateway.talk(ANN) == ["again", "you said: again"]


async def test_each_type_of_chat_has_its_policy(clock: time_machine.Traveller) -> None:
    async with LocalGateway(settings_of(reset_by_type={"group": IDLE})) as gateway:
        group = in_group(ANN)
        await gateway.asks(ANN, "hello")
        await gateway.asks(group, "hello")
        private, public = gateway.session_of(ANN), gateway.session_of(group)
        clock.shift(2 * HOUR)
        await looks(gateway)
        await gateway.until(lambda: gateway.session_of(group) != public)
        assert gateway.session_of(ANN) == private


async def test_in_a_group_the_notice_names_the_person_and_the_setting(
    clock: time_machine.Traveller,
) -> None:
    async with LocalGateway(settings_of(reset_by_type={"group": IDLE})) as gateway:
        for who in (ANN, BOB):
            await gateway.asks(in_group(who), "hello")
        clock.shift(2 * HOUR)
        await looks(gateway)
        await gateway.until(lambda: len(gateway.heard(in_group(ANN))) == 4)
        notices = [text.splitlines() for text in gateway.heard(in_group(ANN))[-2:]]
        assert {lines[0] for lines in notices} == {
            f"◐ Session of {name} automatically reset (inactive for 1h)." for name in ("Ann", "Bob")
        }
        assert all(lines[-1].startswith("`reset_by_type.group` in config.yaml") for lines in notices)
