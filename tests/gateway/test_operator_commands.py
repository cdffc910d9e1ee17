"""`hermes gateway outbox`, `block` and `unblock`, with a running gateway process and without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hermes import audit_log
from hermes.gateway.inbound_events import Source
from hermes.gateway.outbound.delivery import OutgoingMessage
from hermes_state import SessionDB
from tests.cli.conftest import Hermes, hermes
from tests.gateway.conformance.echo_model import echo
from tests.gateway.conformance.stage import until
from tests.gateway.operated_gateway import OperatedGateway

__all__ = ["hermes"]

ANN = Source("telegram", "1", "Ann's chat", "dm", user_id="1", user_name="Ann")


@contextmanager
def opened(path: object = None) -> Iterator[SessionDB]:
    db = SessionDB()
    try:
        yield db
    finally:
        db.close()


def put(db: SessionDB, text: str, state: str = "queued", to: Source = ANN) -> int:
    """Put a message into the outbox, in the given state."""
    message = OutgoingMessage(to, text).to_dict()
    entry = db.outbox.enqueue(f"telegram:{to.chat_id}:{state}", "telegram", message, f"once:{text}")
    if state != "queued":
        claimed = db.outbox.claim(entry.session_key)
        assert claimed is not None
        if state == "unknown":
            db.outbox.mark_doubtful(entry.id)
        elif state != "sending":
            db.outbox.mark_failed(entry.id, "the chat is gone", retry=False)
    return entry.id


def test_the_outbox_is_listed_with_age_place_tries_and_error(hermes: Hermes) -> None:
    assert hermes("gateway", "outbox", "list").returncode == 1  # there is no store yet
    with opened() as db:
        waiting = put(db, "private text")
        for _ in range(3):
            db.outbox.claim("telegram:1:queued")
            db.outbox.mark_failed(waiting, "out of reach", retry=True)
        unknown, failed = put(db, "b", "unknown"), put(db, "c", "failed")
    shown = hermes("gateway", "outbox", "list").stdout
    assert "private text" not in shown
    first = next(line for line in shown.splitlines() if line.startswith(f"{waiting} "))
    assert first.split() == [
        *(str(waiting), "waiting", "just", "now", "telegram", "1", "Ann's", "chat", "3"),
        *("out", "of", "reach"),
    ]
    rows = json.loads(hermes("gateway", "outbox", "list", "--json").stdout)
    assert [(row["id"], row["state"], row["attempts"], row["error"]) for row in rows] == [
        (waiting, "waiting", 3, "out of reach"),
        (unknown, "unknown", 0, "the platform did not answer"),
        (failed, "failed", 1, "the chat is gone"),
    ]
    assert rows[0]["chat_id"] == "1"
    only = json.loads(hermes("gateway", "outbox", "list", "--state", "failed", "--json", "id").stdout)
    assert only == [{"id": failed}]
    assert json.loads(hermes("gateway", "outbox", "list", "--platform", "matrix", "--json").stdout) == []


def test_messages_are_dropped_after_a_question_and_stay_dropped(hermes: Hermes) -> None:
    with opened() as db:
        waiting, unknown = put(db, "a"), put(db, "b", "unknown")
    done = hermes("gateway", "outbox", "drop", str(waiting), stdin="n\n")
    assert done.returncode == 1
    assert "Drop 1 message?" in done.stdout
    assert hermes("gateway", "outbox", "drop", str(waiting), "--all-unknown", "--yes").returncode == 0
    assert hermes("gateway", "outbox", "drop", str(unknown), "--yes").returncode == 1
    with opened() as db:
        assert db.outbox.list_open() == []
        assert db.outbox.claim() is None
        put(db, "a")  # the same message is not posted again
        assert db.outbox.list_open() == []
    recorded = [entry for entry in audit_log.read() if entry["action"] == "outbox.dropped"]
    assert [entry["details"]["ids"] for entry in recorded] == [f"{waiting}, {unknown}"]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("resend",), 2, "name the ID of a message"),
        (("drop", "--yes"), 2, "name the ID of a message"),
        (("resend", "999"), 1, "there is no message 999"),
        (("resend", "x"), 2, "expected a whole number"),
        (("resend", "--all-unknown"), 1, "there is no such message"),
    ],
)
def test_a_wrong_choice_is_one_line(words: tuple[str, ...], code: int, why: str, hermes: Hermes) -> None:
    with opened() as db:
        put(db, "a", "failed")
    done = hermes("gateway", "outbox", *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1)
    assert why in done.stderr


def test_a_message_that_is_being_sent_is_not_changed(hermes: Hermes) -> None:
    with opened() as db:
        sending = put(db, "a", "sending")
        assert "is being sent" in hermes("gateway", "outbox", "resend", str(sending)).stderr
        done = hermes("gateway", "outbox", "drop", str(sending), "--yes")
    assert done.returncode == 1
    assert "is being sent or was sent" in done.stderr


def test_a_running_gateway_sends_again_at_once(operated: OperatedGateway) -> None:
    ann = operated.telegram.person("Ann")
    to = ANN._replace(chat_id=ann.id, user_id=ann.id)
    with opened() as db:
        put(db, "without a gateway", "failed", to)
    done = operated.run("gateway", "outbox", "resend", "--all-failed")
    assert done.stdout == "1 message queued again; the gateway is not running and sends it after its start.\n"
    operated.start()
    until(lambda: operated.heard(ann) == ["without a gateway"], lambda: operated.log)
    with opened() as db:
        put(db, "with a gateway", "unknown", to)
    assert operated.run("gateway", "outbox", "resend", "--all-unknown").stdout == "1 message queued again.\n"
    until(lambda: operated.heard(ann)[1:] == ["with a gateway"], lambda: operated.log)
    until(lambda: "No message" in operated.run("gateway", "outbox", "list").stdout)


def test_a_blocked_person_gets_no_answer_from_a_running_gateway(operated: OperatedGateway) -> None:
    ann, bob = operated.telegram.person("Ann"), operated.telegram.person("Bob")
    operated.start()
    assert operated.asks(ann, "before") == echo("before")
    operated.say(ann, "hold kiwi")
    until(lambda: operated.model.asked("kiwi"))
    operated.say(ann, "waiting")
    with opened() as db:
        until(lambda: len(db.inbox.list_waiting()) == 2)
    shown = len(operated.heard(ann))
    done = operated.run("gateway", "block", f"telegram:{ann.id}")
    assert done.stdout == f"telegram:{ann.id} is blocked and gets no more answers.\n"
    assert "is blocked already" in operated.run("gateway", "block", f"telegram:{ann.id}").stdout
    operated.model.let_go("kiwi")
    operated.say(ann, "after")
    assert operated.asks(bob, "hello") == echo("hello")
    with opened() as db:
        until(lambda: not db.inbox.list_waiting() and not db.outbox.list_waiting(), lambda: operated.log)
    assert not operated.model.asked("after")
    assert not operated.model.asked("waiting")
    assert not [text for text in operated.heard(ann)[1:] if "end: kiwi" in text]
    assert len(operated.heard(ann)) <= max(shown, 2)
    assert ann.id in operated.run("gateway", "block", "--list").stdout
    operated.kill()
    operated.start()  # the block is permanent
    operated.say(ann, "after a restart")
    assert operated.asks(bob, "again") == echo("again")
    assert not operated.model.asked("after a restart")
    assert operated.run("gateway", "unblock", f"telegram:{ann.id}").returncode == 0
    assert operated.asks(ann, "thank you") == echo("thank you")
    actions = [(entry["action"], entry["details"].get("user")) for entry in audit_log.read()]
    for action in ("access.admitted", "access.blocked", "access.refused", "access.unblocked"):
        assert (action, ann.id) in actions


def test_block_refuses_an_invalid_name(hermes: Hermes) -> None:
    for words, code in (
        (("block",), 2),
        (("block", "telegram:1", "--list"), 2),
        (("block", "ann"), 2),
        (("block", "icq:1"), 1),
        (("unblock", "telegram:1"), 1),
    ):
        done = hermes("gateway", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), words
