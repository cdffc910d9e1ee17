"""The inbox and the outbox. An accepted message is processed once, and a queued message is delivered once,
even if a process dies.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import time_machine

from hermes import errors
from hermes.store.chats.inbox import InboxEntry
from hermes.store.chats.outbox import OutboxEntry
from hermes_state import SessionDB
from tests.stored_rows import change_rows, read_rows, read_value
from tests.survival.processes import Refused, Worker

CHAT_WORKERS = Path(__file__).with_name("chat_workers.py")


@pytest.fixture
def session(db: SessionDB) -> str:
    return db.create_session("s", "telegram")


def accept(db: SessionDB, text: str, key: str = "k", message: str | None = None) -> InboxEntry:
    entry = db.inbox.accept(key, "telegram", {"text": text}, message)
    assert entry is not None
    return entry


def claim(db: SessionDB, key: str = "k", epoch: int | None = None, session: str | None = None) -> InboxEntry:
    entry = db.inbox.claim(key, epoch, session)
    assert entry is not None
    return entry


def deliver(db: SessionDB, entry_id: int, message: str | int | None = None) -> bool:
    """Finish the delivery of an entry. Return whether its state is now `sent`."""
    db.outbox.finish_delivery(entry_id, message)
    return bool(read_value(db, "SELECT count(*) FROM outbox WHERE id = ? AND state = 'sent'", entry_id))


# --- inbox


def test_an_accepted_message_waits_until_it_is_processed(db: SessionDB) -> None:
    entry = db.inbox.accept("k", "telegram", {"text": "héllo", "n": [1, None]}, 7, "s")
    assert entry is not None
    assert entry.event == {"text": "héllo", "n": [1, None]}
    assert (entry.session_key, entry.platform, entry.platform_message_id) == ("k", "telegram", "7")
    assert (entry.session_id, entry.state, entry.epoch, entry.error) == ("s", "queued", None, None)
    assert db.inbox.list_waiting() == db.inbox.list_waiting("k") == [entry]
    assert db.inbox.list_waiting("other") == []

    claimed = claim(db)
    assert claimed == entry._replace(state="working", changed_at=claimed.changed_at)
    assert db.inbox.list_waiting() == [claimed]
    assert db.inbox.complete(claimed.id) is True
    assert db.inbox.list_waiting() == []


def test_the_same_platform_message_is_accepted_once(db: SessionDB) -> None:
    first = accept(db, "one", message="7")
    assert db.inbox.accept("k", "telegram", {"text": "one again"}, "7") is None
    claim(db)
    db.inbox.complete(first.id)
    assert db.inbox.accept("k", "telegram", {"text": "one again"}, 7) is None
    assert accept(db, "another chat", key="k2", message="7")
    assert db.inbox.accept("k", "discord", {"text": "another platform"}, "7")
    assert accept(db, "no id")
    assert accept(db, "no id")


def test_the_messages_of_a_chat_are_processed_in_order_one_at_a_time(db: SessionDB) -> None:
    first, second = accept(db, "one"), accept(db, "two")
    other = accept(db, "elsewhere", key="k2")
    assert [entry.session_key for entry in db.inbox.list_waiting()] == ["k", "k", "k2"]
    assert claim(db).id == first.id
    assert db.inbox.claim("k") is None
    assert claim(db, "k2").id == other.id
    db.inbox.complete(first.id)
    assert claim(db).id == second.id
    db.inbox.complete(second.id)
    assert db.inbox.claim("k") is None
    assert [entry.session_key for entry in db.inbox.list_waiting()] == ["k2"]


def test_waiting_messages_are_counted_until_they_are_done(db: SessionDB) -> None:
    counts = []
    accept(db, "one")
    accept(db, "two")
    for _ in range(2):
        counts.append((db.inbox.count_waiting(), len(db.inbox.list_waiting())))
        entry = claim(db)
        counts.append((db.inbox.count_waiting(), len(db.inbox.list_waiting())))
        db.inbox.complete(entry.id)
        db.outbox.enqueue("k", "telegram", {"text": "answer"}, f"once {entry.id}")
    assert counts == [(2, 2), (2, 2), (1, 1), (1, 1)]
    for left in (2, 1):
        assert (db.outbox.count_waiting(), len(db.outbox.list_waiting())) == (left, left)
        sending = db.outbox.claim()
        assert sending is not None
        assert db.outbox.count_waiting() == left
        db.outbox.finish_delivery(sending.id)
    assert (db.inbox.count_waiting(), db.outbox.count_waiting()) == (0, 0)


def test_only_a_claimed_message_can_be_completed(db: SessionDB) -> None:
    entry = accept(db, "one")
    assert db.inbox.complete(entry.id) is False
    assert db.inbox.complete(999) is False
    assert db.inbox.list_waiting() == [entry]
    claim(db)
    assert db.inbox.complete(entry.id) is True
    assert db.inbox.complete(entry.id) is True  # a second call has no effect
    assert db.inbox.fail(entry.id, "too late") is False


def test_a_failed_message_has_a_reason_and_does_not_block_the_next(db: SessionDB) -> None:
    first, second = accept(db, "one", message="1"), accept(db, "two")
    claim(db)
    assert db.inbox.fail(first.id, "no model " + "x" * 600) is True
    kept = read_value(db, "SELECT event_json FROM inbox WHERE id = ?", first.id)
    assert '"text":"one"' in kept
    assert '"no model xxx' in kept
    assert claim(db).id == second.id
    assert db.inbox.accept("k", "telegram", {"text": "one"}, "1") is None


def test_done_entries_keep_their_id_but_not_the_text(db: SessionDB) -> None:
    entry = accept(db, "a secret", message="1")
    claim(db)
    db.inbox.complete(entry.id)
    kept = read_value(db, "SELECT event_json FROM inbox")
    assert kept == "{}"


def test_old_done_entries_are_removed(db: SessionDB) -> None:
    accept(db, "zero", message="0")
    db.inbox.complete(claim(db).id)
    accept(db, "one", message="1")
    db.inbox.fail(claim(db).id, "why")
    waiting = accept(db, "two")
    assert db.inbox.forget_done(3600) == 0
    assert db.inbox.forget_done(-1) == 2
    assert db.inbox.list_waiting() == [waiting]
    assert accept(db, "one", message="1")


def test_deleting_a_session_leaves_nothing_of_it_in_the_mailboxes(db: SessionDB, session: str) -> None:
    failed = accept(db, "a secret")
    claim(db, session="s")
    db.inbox.fail(failed.id, "why")
    db.outbox.enqueue("k", "telegram", {"text": "a secret answer"}, "once", "s")
    queued = db.inbox.accept("k", "telegram", {"text": "not said yet"}, session_id="s")
    db.delete_session("s")
    assert db.inbox.list_waiting() == [queued]
    assert read_value(db, "SELECT count(*) FROM inbox") == 1
    assert read_value(db, "SELECT count(*) FROM outbox") == 0


# --- inbox and leases


def test_a_wrong_epoch_claims_and_completes_nothing(db: SessionDB, session: str) -> None:
    entry = accept(db, "one")
    old = db.leases.acquire("s", "worker").epoch
    assert claim(db, epoch=old, session="s").epoch == old
    new = db.leases.take_over("s", "other").epoch
    with pytest.raises(errors.LeaseLost):
        db.inbox.complete(entry.id, old)
    with pytest.raises(errors.LeaseLost):
        db.inbox.fail(entry.id, "why", old)
    with pytest.raises(errors.LeaseLost):
        db.inbox.claim("k", old, "s")
    with pytest.raises(errors.LeaseLost):  # the message is not claimed yet
        db.inbox.complete(entry.id, new)
    again = claim(db, epoch=new, session="s")
    assert (again.id, again.epoch) == (entry.id, new)
    assert db.inbox.claim("k", new, "s") is None
    assert db.inbox.complete(entry.id, new) is True


def test_messages_of_a_lost_lease_are_claimed_before_newer_ones(db: SessionDB, session: str) -> None:
    first, second = accept(db, "one"), accept(db, "two")
    claim(db, epoch=db.leases.acquire("s", "worker").epoch, session="s")
    epoch = db.leases.take_over("s", "other").epoch
    assert claim(db, epoch=epoch, session="s").id == first.id
    db.inbox.complete(first.id, epoch)
    assert claim(db, epoch=epoch, session="s").id == second.id


def test_the_routed_session_stands_for_its_chat(db: SessionDB, session: str) -> None:
    accept(db, "one")
    epoch = db.leases.acquire("s", "worker").epoch
    with pytest.raises(errors.InvalidArgument, match="together with a session"):
        db.inbox.claim("k", epoch)
    db.routing.route("k", "telegram", "dm", "42", "", "", "s")
    assert claim(db, epoch=epoch).session_id == "s"


@pytest.mark.parametrize("lives", [True, False])
def test_a_chat_that_moved_waits_only_for_work_under_a_valid_lease(
    db: SessionDB, session: str, lives: bool
) -> None:
    accept(db, "one")
    before = db.leases.acquire("s", "worker")
    claim(db, epoch=before.epoch, session="s")
    if not lives:
        db.leases.release(before)
    db.create_session("next", "telegram")
    now = db.leases.acquire("next", "worker").epoch
    assert (db.inbox.claim("k", now, "next") is None) == lives


def test_work_with_a_lease_replaces_work_without_one(db: SessionDB, session: str) -> None:
    entry = accept(db, "one")
    claim(db)
    assert db.inbox.claim("k") is None
    epoch = db.leases.acquire("s", "worker").epoch
    assert claim(db, epoch=epoch, session="s").id == entry.id
    assert db.inbox.claim("k") is None


# --- outbox


def put(db: SessionDB, text: str, key: str = "k", platform: str = "telegram") -> OutboxEntry:
    return db.outbox.enqueue(key, platform, {"text": text}, f"{key} {text}")


def send(db: SessionDB, key: str | None = None) -> OutboxEntry:
    entry = db.outbox.claim(key)
    assert entry is not None
    return entry


def test_a_delivery_waits_until_it_was_sent(db: SessionDB) -> None:
    entry = db.outbox.enqueue("k", "telegram", {"text": "hi"}, "once", "s")
    assert entry.payload == {"text": "hi"}
    assert (entry.session_key, entry.session_id, entry.platform) == ("k", "s", "telegram")
    assert (entry.idempotency_key, entry.state, entry.error) == ("once", "queued", None)
    assert db.outbox.list_waiting() == db.outbox.list_waiting("k") == [entry]
    assert db.outbox.list_waiting("other") == []
    claimed = send(db)
    assert claimed == entry._replace(state="sending", changed_at=claimed.changed_at)
    assert deliver(db, claimed.id, 99) is True
    assert deliver(db, claimed.id) is True
    assert db.outbox.list_waiting() == []
    known = db.outbox.enqueue("k", "telegram", {"text": "hi"}, "once")
    assert (known.id, known.state, known.platform_message_id) == (entry.id, "sent", "99")
    assert known.payload == {}


def test_the_same_idempotency_key_is_the_same_entry(db: SessionDB) -> None:
    first = put(db, "one")
    assert put(db, "one") == first
    send(db)
    assert put(db, "one").state == "sending"
    assert len(db.outbox.list_waiting()) == 1


def test_a_chat_is_delivered_in_order_one_at_a_time(db: SessionDB) -> None:
    first, second = put(db, "one"), put(db, "two")
    other = put(db, "elsewhere", key="k2")
    assert send(db).id == first.id
    assert db.outbox.claim("k") is None
    assert send(db).id == other.id
    assert db.outbox.claim() is None
    db.outbox.finish_delivery(first.id)
    assert send(db, "k").id == second.id


def test_a_retried_delivery_keeps_its_place_and_does_not_block_other_chats(db: SessionDB) -> None:
    first = put(db, "one")
    put(db, "two")
    other = put(db, "elsewhere", key="k2")
    send(db)
    assert db.outbox.mark_failed(first.id, "rate limit", retry=True) is True
    assert db.outbox.list_waiting("k")[0].error == "rate limit"
    assert send(db).id == other.id
    assert send(db).id == first.id


def test_a_failed_delivery_does_not_block_the_next(db: SessionDB) -> None:
    first, second = put(db, "one"), put(db, "two")
    send(db)
    assert db.outbox.mark_failed(first.id, "the chat is gone", retry=False) is True
    known = put(db, "one")
    assert (known.state, known.error, known.payload) == ("failed", "the chat is gone", {"text": "one"})
    assert db.outbox.mark_failed(first.id, "again", retry=True) is False
    assert send(db).id == second.id


def test_only_a_delivery_in_progress_can_succeed_or_fail(db: SessionDB) -> None:
    entry = put(db, "one")
    assert deliver(db, entry.id) is False
    assert db.outbox.mark_failed(entry.id, "why", retry=False) is False
    assert deliver(db, 999) is False
    assert db.outbox.list_waiting() == [entry]


def test_a_lost_lease_queues_no_delivery(db: SessionDB, session: str) -> None:
    old = db.leases.acquire("s", "worker").epoch
    kept = db.outbox.enqueue("k", "telegram", {"text": "in time"}, "one", "s", old)
    assert kept.epoch == old
    db.leases.take_over("s", "other")
    with pytest.raises(errors.LeaseLost):
        db.outbox.enqueue("k", "telegram", {"text": "too late"}, "two", "s", old)
    assert db.outbox.list_waiting() == [kept]


def test_old_settled_deliveries_are_removed(db: SessionDB) -> None:
    put(db, "one")
    waiting = put(db, "two")
    db.outbox.finish_delivery(send(db).id)
    assert db.outbox.forget_sent(3600) == 0
    assert db.outbox.forget_sent(-1) == 1
    assert db.outbox.list_waiting() == [waiting]
    assert put(db, "one").state == "queued"


def test_a_delivery_of_a_dead_process_is_repeated_only_if_that_is_safe(db: SessionDB) -> None:
    put(db, "mine", key="k0")
    mine = send(db)
    again, unknown = put(db, "one", key="k1", platform="matrix"), put(db, "two", key="k2")
    with Worker(CHAT_WORKERS) as victim:
        victim.ask("open_store", path=str(db.db_path))
        assert {victim.ask("claim_delivery"), victim.ask("claim_delivery")} == {again.id, unknown.id}
        assert db.outbox.recover_after_crash({"matrix"}) == []  # the process is alive
        victim.kill()
    (result,) = db.outbox.recover_after_crash({"matrix"})
    assert result == unknown._replace(state="unknown", changed_at=result.changed_at)
    assert db.outbox.recover_after_crash({"matrix"}) == []
    assert [(entry.id, entry.state) for entry in db.outbox.list_waiting()] == [
        (mine.id, "sending"),
        (again.id, "queued"),
    ]
    assert deliver(db, unknown.id, "5") is True  # the platform confirmed it later
    assert send(db).id == again.id


def test_a_sender_on_another_host_counts_as_alive_for_a_while(db: SessionDB) -> None:
    entry = put(db, "one")
    send(db)
    change_rows(db, "UPDATE outbox SET error = ?", '{"host":"elsewhere","pid":1,"start":"1"}')
    assert db.outbox.recover_after_crash(set()) == []
    assert db.outbox.mark_failed(entry.id, "not mine to say", retry=True) is False
    change_rows(db, "UPDATE outbox SET changed_at = ?", time.time() - 3600)
    assert [told.id for told in db.outbox.recover_after_crash(set())] == [entry.id]


# --- bad arguments


@pytest.mark.parametrize(
    "wrong",
    [
        lambda db: db.inbox.accept("k", "telegram", "text"),
        lambda db: db.inbox.accept("k", "telegram", {"when": object()}),
        lambda db: db.inbox.accept(None, "telegram", {}),
        lambda db: db.inbox.accept("k", None, {}),
        lambda db: db.inbox.claim("k", "1"),
        lambda db: db.inbox.complete(1, 1.5),
        lambda db: db.outbox.enqueue("k", "telegram", None, "once"),
        lambda db: db.outbox.enqueue("k", "telegram", {}, None),
        lambda db: db.outbox.recover_after_crash("matrix"),
        lambda db: db.outbox.forget_sent(float("nan")),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_written(
    db: SessionDB, wrong: Callable[[SessionDB], object]
) -> None:
    with pytest.raises(errors.InvalidArgument):
        wrong(db)
    assert db.inbox.list_waiting() == []
    assert db.outbox.list_waiting() == []


# --- real processes


def test_a_worker_suspended_during_a_take_over_completes_nothing(db: SessionDB, session: str) -> None:
    entry = accept(db, "one")
    with Worker(CHAT_WORKERS) as sleeper:
        sleeper.ask("open_store", path=str(db.db_path))
        epoch = sleeper.ask("acquire", session="s")
        assert sleeper.ask("claim_message", key="k", session="s", epoch=epoch) == entry.id
        assert db.inbox.claim("k") is None
        sleeper.signal(signal.SIGSTOP)
        mine = db.leases.take_over("s", "here").epoch
        assert claim(db, epoch=mine, session="s").id == entry.id
        sleeper.start("complete_message", entry=entry.id, epoch=epoch)
        sleeper.signal(signal.SIGCONT)
        with pytest.raises(Refused) as refused:
            sleeper.result()
        assert "LeaseLost" in refused.value.kinds
    assert [(known.state, known.epoch) for known in db.inbox.list_waiting()] == [("working", mine)]
    assert db.inbox.complete(entry.id, mine) is True


def test_every_accepted_message_is_processed_once_despite_kills(db: SessionDB, session: str) -> None:
    rng, messages, path = random.Random(7), 200, str(db.db_path)
    accepted: list[int] = []
    worked: list[str] = []
    while len(accepted) < messages or db.inbox.list_waiting("k"):
        with Worker(CHAT_WORKERS) as platform, Worker(CHAT_WORKERS) as worker:
            platform.start("accept_until_killed", path=path, key="k", first=len(accepted), last=messages)
            worker.start("work_until_killed", path=path, key="k", session="s")
            assert platform.line() == worker.line() == {"ready": True}
            time.sleep(rng.random() * 0.4)
            for victim in rng.sample([platform, worker], 2):
                victim.kill()
                time.sleep(rng.random() * 0.02)
            accepted += [said["accepted"] for said in platform.lines() if "accepted" in said]
            worked += [said["worked"] for said in worker.lines()]

    assert accepted == list(range(messages))
    states = read_rows(db, "SELECT state, count(*) FROM inbox GROUP BY state")
    assert states == [("done", messages)]
    assert [row["content"] for row in db.get_messages("s")] == [f"message {n}" for n in range(messages)]
    assert len(worked) == len(set(worked))
    assert db.verify().ok


# --- other functions for the gateway


def test_a_worker_can_claim_further_messages_of_its_chat(db: SessionDB, session: str) -> None:
    first, second = accept(db, "one"), accept(db, "two")
    lease = db.leases.acquire(session, "gateway")
    assert claim(db, epoch=lease.epoch, session=session).id == first.id
    assert db.inbox.claim("k", lease.epoch, session) is None
    along = db.inbox.claim("k", lease.epoch, session, alongside=True)
    assert along is not None
    assert along.id == second.id
    assert db.inbox.claim("k", lease.epoch, session, alongside=True) is None
    assert db.inbox.complete(first.id, lease.epoch)
    assert db.inbox.complete(second.id, lease.epoch)


def test_a_message_in_progress_is_not_claimed_by_another_worker(db: SessionDB, session: str) -> None:
    accept(db, "one"), accept(db, "two")
    theirs = db.leases.acquire(session, "gateway")
    claim(db, epoch=theirs.epoch, session=session)
    other = db.create_session("other", "telegram")
    mine = db.leases.acquire(other, "gateway")
    assert db.inbox.claim("k", mine.epoch, other, alongside=True) is None


def test_leases_of_two_conversations_with_the_same_epoch_are_distinguished(
    db: SessionDB, session: str
) -> None:
    """Epochs are times in milliseconds. So the leases of two conversations can have the same epoch."""
    accept(db, "one"), accept(db, "two")
    with time_machine.travel(2_000_000_000, tick=False):
        theirs = db.leases.acquire(session, "gateway")
        mine = db.leases.acquire(db.create_session("other", "telegram"), "gateway")
        claim(db, epoch=theirs.epoch, session=session)
        assert mine.epoch == theirs.epoch
        assert db.inbox.claim("k", mine.epoch, "other", alongside=True) is None


def test_a_message_that_is_claimed_again_is_marked(db: SessionDB, session: str) -> None:
    accept(db, "one")
    before = db.leases.acquire(session, "gateway")
    assert not claim(db, epoch=before.epoch, session=session).again
    after = db.leases.take_over(session, "gateway")
    assert claim(db, epoch=after.epoch, session=session).again


def test_a_delivery_without_an_answer_is_unknown_and_does_not_block_the_next(db: SessionDB) -> None:
    for number in (1, 2):
        db.outbox.enqueue("k", "telegram", {"text": str(number)}, f"once-{number}")
    first = db.outbox.claim("k")
    assert first is not None
    assert db.outbox.mark_doubtful(first.id) is True
    assert db.outbox.mark_doubtful(first.id) is False
    second = db.outbox.claim("k")
    assert second is not None
    assert second.payload == {"text": "2"}
    assert deliver(db, first.id, "77") is True  # the message had arrived


def test_after_a_crash_idempotent_deliveries_are_queued_again(db: SessionDB) -> None:
    db.outbox.enqueue("k", "telegram", {"text": "new"}, "new")
    db.outbox.enqueue("l", "telegram", {"text": "changed", "edits": "9"}, "edit")
    with Worker(CHAT_WORKERS) as victim:
        victim.ask("open_store", path=str(db.db_path))
        assert victim.ask("claim_delivery")
        assert victim.ask("claim_delivery")
        victim.kill()
    doubtful = db.outbox.recover_after_crash([], lambda payload: bool(payload.get("edits")))
    assert [entry.payload for entry in doubtful] == [{"text": "new"}]
    assert [entry.idempotency_key for entry in db.outbox.list_waiting()] == ["edit"]


def test_a_stopped_message_is_not_queued_again_without_its_text(db: SessionDB) -> None:
    entry = db.outbox.enqueue("key", "telegram", {"text": "hello"}, "once")
    db.outbox.drop_queued("key", "stopped in the chat")
    assert not db.outbox.requeue(entry.id)
    assert db.outbox.claim("key") is None


def test_the_end_of_a_delivery_tells_whether_the_chat_has_another_message(db: SessionDB) -> None:
    for number, key in enumerate(("one", "one", "two")):
        db.outbox.enqueue(key, "telegram", {"text": "hello"}, f"once {number}")
    first = db.outbox.claim("one")
    assert first is not None
    assert db.outbox.finish_delivery(first.id, "m1") is True
    second = db.outbox.claim("one")
    assert second is not None
    assert db.outbox.finish_delivery(second.id, "m2") is False
