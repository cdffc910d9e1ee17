"""Approvals in a chat. Only the owner can answer the question, and only while the turn waits for the answer."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from hermes import audit_log
from hermes.agent import transcript
from hermes.gateway.adapter import Capabilities, Undeliverable, Unreachable
from hermes.gateway.inbound.chat_approvals import NOTHING_WAITS
from hermes.gateway.inbound.pairing import Pairings
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.status_file import gateway_folder
from hermes.gateway.outbound import streaming
from hermes.gateway.settings import PlatformSettings, ResetPolicy
from tests.gateway.approval_gateway import OWNED, ApprovalGateway, ButtonPlatform, code_in, name_in
from tests.gateway.local_gateway import ANN, BOB, Platform, in_group, settings_of

TWO = 'both ask {"subject": "first"} {"subject": "second"}'


# ---------------------------------------------------------------- asking and answering


async def test_the_owner_approves_and_it_is_done() -> None:
    async with ApprovalGateway() as gateway:
        question = await gateway.asked(ANN, "rm -rf build", reason="it deletes a folder")
        assert "```\nrm -rf build\n```" in question
        assert "it deletes a folder" in question
        assert gateway.asker.done == []
        assert await gateway.asks(ANN, "/approve") == [
            f"✓ Approved, once. `{name_in(question)}`",
            "the tool said: done rm -rf build, once",
        ]
        assert gateway.asker.done == ["rm -rf build"]
        assert gateway.questions()[0].endswith("✓ Approved, once.")


async def test_the_owner_denies_and_the_model_is_told_why() -> None:
    async with ApprovalGateway() as gateway:
        await gateway.asked(ANN, "rm -rf build")
        await gateway.asks(ANN, "/deny  ask Bob first")
        assert gateway.asker.done == []
        assert gateway.results() == ["error: refused: ask Bob first"]
        assert gateway.questions()[0].endswith("✗ Denied.")


async def test_an_approval_by_name_and_for_the_workspace() -> None:
    async with ApprovalGateway() as gateway:
        more = {"scopes": ["command", "prefix"], "prefix": "git commit"}
        for words, result in (("always", "command"), ("like", "prefix"), ("once", "once")):
            name = name_in(await gateway.asked(ANN, f"git commit -m {words}", **more))
            await gateway.asks(ANN, f"/approve {words} {name.upper()}")
            assert gateway.results()[-1] == f"done git commit -m {words}, {result}"
        name = name_in(await gateway.asked(ANN, "write a", scopes=["edits"], diff="+new line"))
        await gateway.asks(ANN, f"/approve {name} always")
        assert gateway.results()[-1] == "done write a, edits"


async def test_an_invalid_answer_approves_nothing() -> None:
    async with ApprovalGateway() as gateway:
        name = name_in(await gateway.asked(ANN, "ls"))
        for words in ("always", "like", f"{name} always", f"{name} all of them", "please", "2", "k9"):
            before = len(gateway.heard(ANN))
            await gateway.says(ANN, f"/approve {words}")
            await gateway.until(lambda: len(gateway.heard(ANN)) > before)  # noqa: B023
        assert gateway.asker.done == []
        await gateway.asks(ANN, f"/approve {name}")
        assert gateway.asker.done == ["ls"]


async def test_a_typed_yes_is_a_message_like_any_other() -> None:
    async with ApprovalGateway() as gateway:
        await gateway.asked(ANN, "ls")
        for text in ("yes", "approve", "ok /approve"):
            await gateway.says(ANN, text)
        await gateway.says(ANN, "/approve", edits="said-1")  # an edited message is not an answer
        assert [one.state for one in gateway.db.inbox.list_waiting()] == ["working", *["queued"] * 4]
        assert gateway.asker.done == []
        await gateway.says(ANN, "/deny")
        await gateway.quiet()
        assert gateway.asker.done == []
        assert {"you said: yes", "you said: approve"} <= set(gateway.heard(ANN))


async def test_a_typed_yes_is_passed_to_the_answer_if_messages_are() -> None:
    settings = settings_of(platform={"owners": frozenset({"1"}), "busy": "steer"})
    async with ApprovalGateway(settings) as gateway:
        await gateway.asked(ANN, "ls")
        await gateway.says(ANN, "yes")
        await gateway.until(lambda: len(gateway.db.inbox.list_waiting()) == 2)
        assert gateway.asker.done == []
        await gateway.asks(ANN, "/deny")
        assert gateway.talk(ANN).count("yes") == 1
        assert gateway.asker.done == []


async def test_two_requests_are_distinguished() -> None:
    async with ApprovalGateway() as gateway:
        await gateway.says(ANN, TWO)
        await gateway.until(lambda: len(gateway.questions()) == 2)
        first, second = sorted(gateway.questions(), key=lambda text: "second" in text)
        await gateway.says(ANN, "/approve")
        await gateway.until(lambda: any("2 requests are waiting" in text for text in gateway.heard(ANN)))
        assert gateway.asker.done == []
        await gateway.says(ANN, f"/deny {name_in(first)} not that")
        await gateway.asks(ANN, f"/approve {name_in(second)}")
        assert gateway.asker.done == ["second"]
        assert sorted(gateway.results()) == ["done second, once", "error: refused: not that"]


# ---------------------------------------------------------------- who may answer


async def test_nobody_else_can_answer_or_learn_of_the_request() -> None:
    async with ApprovalGateway() as gateway:
        name = name_in(await gateway.asked(ANN, "ls"))
        others = (BOB, in_group(ANN), in_group(BOB), ANN._replace(thread_id="9"), BOB._replace(chat_id="1"))
        for who in others:
            for command in ("/approve", f"/approve {name}", "/deny", f"/deny {name}"):
                reply = await _answer_to(gateway, who, command)
                own = who.user_id == "1" and who.chat_type == "dm" and name in command
                assert reply == (f"No request `{name}` is waiting." if own else NOTHING_WAITS)
        assert gateway.asker.done == []
        await gateway.asks(ANN, "/approve")
        assert gateway.asker.done == ["ls"]


async def test_a_stranger_is_not_even_answered() -> None:
    settings = settings_of(platform={"owners": frozenset({"1"}), "allow_all": False})
    async with ApprovalGateway(settings, ButtonPlatform()) as gateway:
        question = await gateway.asked(ANN, "ls")
        assert (await gateway.says(BOB, f"/approve {name_in(question)}")).state == "unauthorised"
        platform = gateway.platform
        assert isinstance(platform, ButtonPlatform)
        (message,) = platform.buttons
        pressed = await platform.press(BOB._replace(chat_id="1"), message, f"/approve {name_in(question)}")
        assert pressed.state == "unauthorised"
        assert gateway.asker.done == []
        await gateway.asks(ANN, "/deny")


async def test_a_former_owner_cannot_answer() -> None:
    async with ApprovalGateway(settings_of(drain_seconds=0.05)) as gateway:
        pairings = Pairings(gateway_folder())
        await gateway.asks(ANN, f"/pair {pairings.make_code('telegram', owner=True)}")
        name = name_in(await gateway.asked(ANN, "ls"))
        assert pairings.revoke("telegram", "1")
        assert await _answer_to(gateway, ANN, f"/approve {name}") == NOTHING_WAITS
        assert gateway.asker.done == []


@pytest.mark.parametrize("who", [BOB, in_group(ANN)])
async def test_if_nobody_can_be_asked_the_action_is_refused_at_once(who: Source) -> None:
    async with ApprovalGateway() as gateway:
        (replies,) = await gateway.asks(who, 'use ask {"subject": "ls"}')
        assert "nobody can be asked for approval here" in replies
        assert gateway.asker.done == []


async def test_a_program_behind_a_secret_is_not_asked() -> None:
    webhook = PlatformSettings("webhook", owners=frozenset({"*"}), stream=False)
    settings = OWNED.replace(platforms={**OWNED.platforms, "webhook": webhook})
    async with ApprovalGateway(settings, Platform("webhook")) as gateway:
        source = ANN._replace(platform="webhook")
        (replies,) = await gateway.asks(source, 'use ask {"subject": "ls"}')
        assert "nobody can be asked for approval here" in replies
        assert (await gateway.asks(source, "/approve")) == [NOTHING_WAITS]


# ---------------------------------------------------------------- timing of answers


async def test_an_approval_that_was_sent_before_the_question_is_not_one() -> None:
    async with ApprovalGateway() as gateway:
        name = name_in(await gateway.asked(ANN, "ls"))
        reply = await _answer_to(gateway, ANN, "/approve", sent_at=1.0)
        assert reply.startswith("You sent that before")
        assert f"`/approve {name}`" in reply
        assert gateway.asker.done == []
        await gateway.asks(ANN, "/approve")
        assert gateway.asker.done == ["ls"]


async def test_an_approval_that_is_delivered_twice_does_not_approve_the_next_request() -> None:
    async with ApprovalGateway() as gateway:
        await gateway.asked(ANN, "first")
        await gateway.asks(ANN, "/approve", number="m")
        await gateway.asked(ANN, "second")
        await gateway.says(ANN, "/approve", number="m", sent_at=4e9)
        assert gateway.asker.done == ["first"]
        await gateway.asks(ANN, "/deny")


async def test_an_answered_request_cannot_be_answered_again() -> None:
    async with ApprovalGateway() as gateway:
        name = name_in(await gateway.asked(ANN, "ls"))
        await gateway.asks(ANN, f"/deny {name}")
        assert await gateway.asks(ANN, f"/approve {name}") == [f"The request has ended: `{name}`: ✗ Denied."]
        assert await gateway.asks(ANN, "/approve") == [f"{NOTHING_WAITS} The last was `{name}`: ✗ Denied."]
        assert await gateway.asks(ANN, "/approve b2b2") == ["No request `b2b2` is waiting."]
        assert gateway.asker.done == []


async def test_time_runs_out(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("approvals: {timeout_minutes: 0.01}\n")
    platform = ButtonPlatform()
    async with ApprovalGateway(platform=platform) as gateway:
        name = name_in(await gateway.asked(ANN, "ls"))
        await gateway.until(lambda: gateway.results() and not platform.buttons)
        await gateway.quiet()
        assert gateway.results() == ["error: refused: nobody answered within 1s"]
        assert f"⌛ Not done: nobody answered within 1s. `{name}`" in gateway.heard(ANN)
        assert gateway.questions()[0].endswith("⌛ Not done: nobody answered within 1s.")
        assert "nobody answered" in (await gateway.asks(ANN, f"/approve {name}"))[0]
        assert "nobody answered" in (await gateway.asks(ANN, "/why"))[0]
        assert gateway.asker.done == []


async def test_stop_while_it_waits() -> None:
    platform = ButtonPlatform()
    async with ApprovalGateway(platform=platform) as gateway:
        name = name_in(await gateway.asked(ANN, "ls"))
        assert await gateway.asks(ANN, "/stop") == ["⏹ Stopped."]
        await gateway.until(lambda: not platform.buttons)
        assert gateway.questions()[0].endswith("⏹ Not done: the turn was stopped.")
        assert "was stopped" in (await gateway.asks(ANN, f"/approve {name}"))[0]
        assert gateway.asker.done == []
        assert await gateway.asks(ANN, "next") == ["you said: next"]


async def test_a_message_that_interrupts_ends_the_question() -> None:
    settings = settings_of(platform={"owners": frozenset({"1"}), "busy": "interrupt"})
    async with ApprovalGateway(settings) as gateway:
        await gateway.asked(ANN, "ls")
        assert "you said: rather this" in await gateway.asks(ANN, "rather this")
        assert gateway.asker.done == []
        assert gateway.questions()[0].endswith("⏹ Not done: the turn was stopped.")


async def test_after_a_restart_the_question_is_asked_again_and_the_old_answer_is_invalid() -> None:
    settings = settings_of(platform={"owners": frozenset({"1"})}, drain_seconds=0.05)
    platform = ButtonPlatform()
    async with ApprovalGateway(settings, platform) as gateway:
        old = name_in(await gateway.asked(ANN, "ls"))
        sent = platform.where[next(iter(platform.buttons))]
        assert sent.chat_id == "1"
        gateway.brain.requests.clear()
        await gateway.restart()
        await gateway.until(lambda: gateway.brain.requests)
        await gateway.until(lambda: "⏹ Not done: I was restarted." in gateway.questions()[0])
        assert gateway.asker.done == []
        await gateway.quiet()
        new = name_in(await gateway.asked(ANN, "other"))
        assert old != new
        assert await _answer_to(gateway, ANN, f"/approve {old}") == f"No request `{old}` is waiting."
        assert (await _answer_to(gateway, ANN, "/approve", sent_at=1.0)).startswith("You sent that before")
        assert gateway.asker.done == []
        await gateway.asks(ANN, f"/approve {new}")
        assert gateway.asker.done == ["other"]


# ---------------------------------------------------------------- the displayed text


async def test_an_action_that_cannot_be_shown_completely_is_refused() -> None:
    async with ApprovalGateway() as gateway:
        replies = await gateway.asks(ANN, f"use ask {json.dumps({'subject': 'x' * 50_000})}")
        assert "too long to be shown here" in replies[0]
        assert "too long to be shown to the owner" in gateway.results()[0]
        assert gateway.asker.done == []


async def test_a_long_command_is_shown_in_parts_before_it_can_be_approved() -> None:
    platform = ButtonPlatform(can=Capabilities(max_length=1000, edits=True))
    async with ApprovalGateway(platform=platform) as gateway:
        command = "; ".join(f"echo {number}" for number in range(300))
        await gateway.asked(ANN, command)
        parts = [text for text in gateway.heard(ANN) if " part " in text]
        assert "".join(code for part in parts for code in code_in(part)) == command
        assert list(platform.buttons) == [f"m{len(parts) + 1}"]
        await gateway.asks(ANN, "/approve")
        assert gateway.asker.done == [command]


async def test_a_question_of_which_a_part_does_not_arrive_is_refused() -> None:
    platform = ButtonPlatform(can=Capabilities(max_length=1000, edits=True))
    platform.fail("send", Undeliverable("no"))
    async with ApprovalGateway(platform=platform) as gateway:
        await gateway.says(ANN, f"use ask {json.dumps({'subject': 'ls ' * 500})}")
        await gateway.until(lambda: gateway.db.routing.list_routes() and gateway.results())
        await gateway.quiet()
        assert "could not be delivered" in gateway.results()[0]
        assert gateway.asker.done == []


async def test_a_question_that_is_on_its_way_cannot_be_approved_without_its_name() -> None:
    async with ApprovalGateway() as gateway:
        await gateway.asks(ANN, "hello")
        gateway.platform.fail("send", Unreachable("later"))
        await gateway.says(ANN, 'use ask {"subject": "ls"}')
        await gateway.until(lambda: gateway.platform.calls_of("send")[1:])
        assert not gateway.questions()
        await gateway.says(ANN, "/approve", sent_at=4e9)
        assert gateway.asker.done == []
        await gateway.until(gateway.questions)
        await gateway.until(lambda: any("You sent that before" in text for text in gateway.heard(ANN)))
        await gateway.asks(ANN, "/approve")
        assert gateway.asker.done == ["ls"]


async def test_status_and_why_show_a_pending_approval() -> None:
    async with ApprovalGateway() as gateway:
        name = name_in(await gateway.asked(ANN, "rm -rf build"))
        assert f"Waiting for your approval: `{name}` `rm -rf build` (for 10m more)" in await _answer_to(
            gateway, ANN, "/status"
        )
        assert f"I wait for your approval (`{name}`)" in await _answer_to(gateway, ANN, "/why")
        await gateway.asks(ANN, "/approve")
        assert f"(`{name}`) was asked for. ✓ Approved" in await _answer_to(gateway, ANN, "/why")
        assert "Waiting for your approval" not in await _answer_to(gateway, ANN, "/status")


async def test_the_status_shows_that_an_approval_delays_a_reset() -> None:
    settings = settings_of(reset=ResetPolicy("idle"), platform={"owners": frozenset({"1"})})
    async with ApprovalGateway(settings) as gateway:
        await gateway.asked(ANN, "rm -rf build")
        holds = "Held off by: the answer in progress, 1 pending approval"
        assert (await _answer_to(gateway, ANN, "/status")).splitlines()[-1] == holds
        await gateway.asks(ANN, "/approve")


async def test_the_answer_comes_below_the_question() -> None:
    settings = settings_of(platform={"owners": frozenset({"1"}), "stream": True})
    async with ApprovalGateway(settings) as gateway:
        await gateway.says(ANN, 'late now {"subject": "ls"}')
        await gateway.until(lambda: gateway.heard(ANN))
        gateway.let_go("now")
        await gateway.until(gateway.questions)
        await gateway.asks(ANN, "/approve")
        assert gateway.heard(ANN)[0] == "Let me see.\n\n⏸ waiting for your approval, see below"
        assert gateway.heard(ANN)[1] == gateway.questions()[0]
        assert gateway.heard(ANN)[-1] == "the tool said: done ls, once"


async def test_no_typing_is_shown_while_an_approval_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "TYPING_EVERY", 0.02)
    async with ApprovalGateway() as gateway:
        await gateway.says(ANN, "hold on")
        await gateway.until(lambda: len(gateway.platform.calls_of("typing")) > 2)
        gateway.let_go("on")
        await gateway.quiet()
        await gateway.asked(ANN, "ls")
        typed = len(gateway.platform.calls_of("typing"))
        await gateway.says(BOB, "hold bob")
        await gateway.until(lambda: len(gateway.platform.calls_of("typing")) > typed + 5)
        assert {call.to.chat_id for call in gateway.platform.calls_of("typing")[typed:]} == {"2"}
        gateway.let_go("bob")
        await gateway.asks(ANN, "/approve")


async def test_the_lease_is_renewed_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "RENEW_S", 0.02)
    async with ApprovalGateway() as gateway:
        await gateway.asked(ANN, "ls")
        session = gateway.session_of(ANN)
        first = gateway.db.leases.find_holder(session)
        assert first is not None

        def is_renewed() -> bool:
            now = gateway.db.leases.find_holder(session)
            return now is not None and now.expires_at > first.expires_at

        await gateway.until(is_renewed)
        await gateway.asks(ANN, "/approve")


async def test_only_the_decision_is_in_the_audit_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "hermes.gateway.inbound.chat_approvals")
    async with ApprovalGateway() as gateway:
        await gateway.asked(ANN, "rm secret-name")
        await gateway.asks(ANN, "/approve")
    assert "an approval on telegram was given" in caplog.text
    assert "secret-name" not in caplog.text
    [entry] = [entry for entry in audit_log.read() if entry["action"] == "approval answered"]
    assert entry["details"] == {
        "subject": "rm secret-name",
        "allowed": True,
        "scope": None,
        "surface": "telegram",
    }


# ---------------------------------------------------------------- buttons


async def test_a_button_sends_its_command() -> None:
    platform = ButtonPlatform()
    async with ApprovalGateway(platform=platform) as gateway:
        name = name_in(await gateway.asked(ANN, "ls", scopes=["command"]))
        ((message, choices),) = platform.buttons.items()
        assert [choice.text for choice in choices] == [
            f"/approve {name}",
            f"/approve {name} always",
            f"/deny {name}",
        ]
        assert (await platform.press(ANN, message, choices[1].text)).state == "answered"
        await gateway.quiet()
        await gateway.until(lambda: not platform.buttons)
        assert gateway.results() == ["done ls, command"]
        assert (await platform.press(ANN, message, choices[0].text)).state == "answered"
        await gateway.quiet()
        assert gateway.heard(ANN)[-1].startswith("The request has ended")


async def test_a_button_can_send_no_other_text() -> None:
    platform = ButtonPlatform()
    async with ApprovalGateway(platform=platform) as gateway:
        await gateway.asked(ANN, "ls")
        (message,) = platform.buttons
        for text in ("yes", "/new", "/undo 3"):
            assert (await platform.press(ANN, message, text)).state == "ignored"
        assert len(gateway.db.inbox.list_waiting()) == 1
        await gateway.asks(ANN, "/deny")


async def _answer_to(
    gateway: ApprovalGateway, who: Source, command: str, sent_at: float | None = None
) -> str:
    """Send a command that is answered immediately, and return the answer."""
    before = len(gateway.heard(who))
    assert (await gateway.says(who, command, sent_at=sent_at)).state == "answered"
    await gateway.until(lambda: len(gateway.heard(who)) > before)
    return gateway.heard(who)[-1]
