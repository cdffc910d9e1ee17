"""At most one process works in a conversation at a time. A process that lost its lease cannot write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hermes import errors
from hermes.store import processes
from hermes.store.chats.leases import Lease
from hermes_state import SessionDB
from tests.stored_rows import change_rows
from tests.survival.processes import Refused, Worker
from tests.tiers import scale_examples

CHAT_WORKERS = Path(__file__).with_name("chat_workers.py")


@pytest.fixture
def conversation(db: SessionDB) -> tuple[str, str]:
    """Create two sessions of one conversation."""
    db.create_session("first", "cli")
    db.end_session("first", "compression")
    db.create_session("second", "cli", parent_session_id="first")
    return "first", "second"


def fence(db: SessionDB, session_id: str) -> int:
    row = db.get_session(session_id)
    assert row is not None
    return int(row["lease_epoch"])


def held_by(db: SessionDB, **columns: object) -> None:
    """Set columns of the lease of `s`, as if another process held the lease."""
    for name, value in columns.items():
        change_rows(db, f"UPDATE leases SET {name} = ? WHERE conversation_id = 's'", value)


@pytest.fixture
def session(db: SessionDB) -> str:
    return db.create_session("s", "cli")


def test_a_lease_names_its_holder_its_session_and_its_end(db: SessionDB, session: str) -> None:
    lease = db.leases.acquire("s", "terminal", seconds=60)
    assert (lease.conversation_id, lease.session_id, lease.epoch) == ("s", "s", fence(db, "s"))
    assert (lease.holder.host, lease.holder.pid) == (os.uname().nodename, os.getpid())
    assert lease.holder.surface == "terminal"
    assert lease.expires_at - lease.since == pytest.approx(60)
    assert db.leases.find_holder("s") == lease


def test_a_second_process_is_told_who_holds_the_lease(db: SessionDB, session: str) -> None:
    mine = db.leases.acquire("s", "terminal")
    with pytest.raises(errors.LeaseHeld, match="terminal") as caught:
        db.leases.acquire("s", "gateway")
    assert caught.value.holder == mine
    assert db.leases.find_holder("s") == mine


def test_acquiring_again_renews_the_lease(db: SessionDB, session: str) -> None:
    first = db.leases.acquire("s", "terminal", seconds=10)
    again = db.leases.acquire("s", "terminal", seconds=100)
    assert again == first._replace(expires_at=again.expires_at)
    assert again.expires_at > first.expires_at


def test_renewing_moves_only_the_end(db: SessionDB, session: str) -> None:
    first = db.leases.acquire("s", "terminal", seconds=10)
    renewed = db.leases.renew(first, seconds=100)
    assert renewed == first._replace(expires_at=renewed.expires_at)
    assert db.leases.find_holder("s") == renewed


def test_taking_over_always_succeeds_and_fences_the_other_process(db: SessionDB, session: str) -> None:
    old = db.leases.acquire("s", "terminal")
    new = db.leases.take_over("s", "gateway")
    assert new.epoch > old.epoch
    with pytest.raises(errors.LeaseLost):
        db.leases.renew(old)
    with pytest.raises(errors.LeaseLost):
        db.append_message("s", "user", "too late", lease_epoch=old.epoch)
    assert db.leases.release(old) is False
    db.append_message("s", "user", "mine", lease_epoch=new.epoch)
    assert [row["content"] for row in db.get_messages("s")] == ["mine"]


def test_a_released_lease_is_free_and_the_next_epoch_is_higher(db: SessionDB, session: str) -> None:
    old = db.leases.acquire("s", "terminal")
    assert db.leases.release(old) is True
    assert db.leases.release(old) is False
    assert db.leases.find_holder("s") is None
    with pytest.raises(errors.LeaseLost):
        db.leases.renew(old)
    assert db.leases.acquire("s", "terminal").epoch > old.epoch


def test_an_expired_lease_is_free(db: SessionDB, session: str) -> None:
    old = db.leases.acquire("s", "terminal")
    held_by(db, expires_at=1.0)
    assert db.leases.find_holder("s") is None
    assert db.leases.acquire("s", "gateway").epoch > old.epoch


def test_an_expired_lease_that_nobody_took_can_be_renewed(db: SessionDB, session: str) -> None:
    old = db.leases.acquire("s", "terminal")
    held_by(db, expires_at=1.0)
    assert db.leases.renew(old).epoch == old.epoch
    assert db.leases.acquire("s", "terminal").epoch == old.epoch


def dead_pid() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


@pytest.mark.parametrize("sign", ["its pid is gone", "its pid is another process now"])
def test_a_dead_holder_on_this_host_is_recognised_at_once(db: SessionDB, session: str, sign: str) -> None:
    old = db.leases.acquire("s", "terminal", seconds=3600)
    if sign == "its pid is gone":
        held_by(db, holder_pid=dead_pid())
    else:
        held_by(db, holder_start="1")
    assert db.leases.find_holder("s") is None
    assert db.leases.acquire("s", "gateway").epoch > old.epoch


def test_a_holder_that_ended_but_was_not_waited_for_is_dead(db: SessionDB, session: str) -> None:
    db.leases.acquire("s", "terminal", seconds=3600)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held_by(db, holder_pid=child.pid, holder_start=processes.find_start(child.pid))
    assert db.leases.find_holder("s") is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but still in the process list
    assert db.leases.find_holder("s") is None
    child.communicate()


def test_a_holder_on_another_host_is_believed_until_it_expires(db: SessionDB, session: str) -> None:
    mine = db.leases.acquire("s", "terminal")
    held_by(db, holder_host="elsewhere", holder_pid=dead_pid())
    there = db.leases.find_holder("s")
    assert there is not None
    assert there.holder.host == "elsewhere"
    with pytest.raises(errors.LeaseHeld, match="elsewhere"):
        db.leases.acquire("s", "terminal")
    held_by(db, expires_at=1.0)
    assert db.leases.acquire("s", "terminal").epoch > mine.epoch


def test_without_proc_the_start_time_comes_from_ps_in_any_locale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = processes.find_start_by_ps(os.getpid())
    assert here
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert processes.find_start_by_ps(os.getpid()) == here
    assert processes.find_start_by_ps(dead_pid()) is None


# --- the conversation


def test_a_continuation_is_under_the_same_lease(db: SessionDB, conversation: tuple[str, str]) -> None:
    lease = db.leases.acquire("second", "terminal")
    assert lease.conversation_id == "first"
    assert db.leases.find_holder("first") == lease._replace(session_id="first")
    with pytest.raises(errors.LeaseHeld):
        db.leases.acquire("first", "gateway")
    assert (fence(db, "first"), fence(db, "second")) == (lease.epoch, lease.epoch)
    assert db.leases.acquire("first", "terminal").epoch == lease.epoch


def test_a_session_that_joins_later_is_under_the_same_lease(db: SessionDB, session: str) -> None:
    old = db.leases.acquire("s", "terminal")
    new = db.leases.take_over("s", "gateway")
    db.end_session("s", "compression")
    db.create_session("next", "cli", parent_session_id="s")
    with pytest.raises(errors.LeaseLost):
        db.append_message("next", "user", "too late", lease_epoch=old.epoch)
    db.append_message("next", "user", "mine", lease_epoch=new.epoch)
    assert db.leases.acquire("next", "gateway").epoch == new.epoch


def test_a_subagent_is_a_conversation_of_its_own(db: SessionDB, session: str) -> None:
    db.leases.acquire("s", "terminal")
    db.create_session("helper", "cli", parent_session_id="s")
    assert db.leases.find_holder("helper") is None
    assert fence(db, "helper") == 0


def test_when_the_first_session_is_deleted_its_holder_continues(
    db: SessionDB, conversation: tuple[str, str]
) -> None:
    lease = db.leases.acquire("second", "terminal")
    db.delete_session("first")
    assert db.leases.find_holder("second") == lease._replace(conversation_id="second")
    renewed = db.leases.renew(lease)
    assert renewed == lease._replace(conversation_id="second", expires_at=renewed.expires_at)
    assert db.leases.find_holder("second") == renewed
    db.append_message("second", "user", "still here", lease_epoch=lease.epoch)
    assert db.leases.release(renewed) is True


def test_a_lease_taken_over_after_a_deletion_is_lost(db: SessionDB, conversation: tuple[str, str]) -> None:
    lease = db.leases.acquire("second", "terminal")
    db.delete_session("first")
    other = db.leases.take_over("second", "gateway")
    assert other.epoch > lease.epoch
    with pytest.raises(errors.LeaseLost):
        db.leases.renew(lease)
    db.leases.release(other)
    with pytest.raises(errors.LeaseLost):
        db.leases.renew(lease)


def test_a_lease_of_a_deleted_session_is_lost(db: SessionDB, session: str) -> None:
    lease = db.leases.acquire("s", "terminal")
    db.delete_session("s")
    with pytest.raises(errors.LeaseLost):
        db.leases.renew(lease)


def test_a_row_replaced_by_another_program_does_not_bring_the_epoch_back(db: SessionDB, session: str) -> None:
    lease = db.leases.take_over("s", "terminal")
    change_rows(db, "UPDATE sessions SET lease_epoch = 0 WHERE id = 's'")
    assert db.leases.renew(lease).epoch == lease.epoch
    assert fence(db, "s") == lease.epoch
    change_rows(db, "UPDATE sessions SET lease_epoch = 0 WHERE id = 's'")
    assert db.leases.take_over("s", "gateway").epoch > lease.epoch


def test_a_session_that_another_program_has_just_inserted_can_be_leased(db: SessionDB, session: str) -> None:
    db.end_session("s", "compression")
    change_rows(
        db,
        "INSERT INTO sessions (id, source, parent_session_id, started_at) VALUES ('theirs', 'cli', 's', 99999999999)",
    )
    lease = db.leases.acquire("theirs", "terminal")
    assert lease.conversation_id == "s"
    assert (fence(db, "s"), fence(db, "theirs")) == (lease.epoch, lease.epoch)


def test_pruning_keeps_a_conversation_in_use(db: SessionDB) -> None:
    db.create_session("s", "cli", started_at=1000.0)
    db.end_session("s", "cli_close")
    lease = db.leases.acquire("s", "terminal")
    assert db.prune_sessions(1) == 0
    db.leases.release(lease)
    assert db.prune_sessions(1) == 1


# --- following


def test_a_follower_reads_the_new_messages(db: SessionDB, session: str) -> None:
    lease = db.leases.acquire("s", "terminal")
    first = db.append_message("s", "user", "one", lease_epoch=lease.epoch)
    db.append_message("s", "assistant", [{"type": "text", "text": "two"}], lease_epoch=lease.epoch)
    assert [row["content"] for row in db.leases.follow("s")] == ["one", [{"type": "text", "text": "two"}]]
    assert db.leases.follow("s", first) == db.get_messages("s")[1:]
    assert db.leases.follow("s", db.leases.follow("s")[-1]["id"]) == []


# --- bad arguments


@pytest.mark.parametrize(
    "ask",
    [
        lambda db: db.leases.acquire("s", "terminal", seconds=0),
        lambda db: db.leases.acquire("s", "terminal", seconds=float("nan")),
        lambda db: db.leases.take_over("s", "terminal", seconds=-1),
        lambda db: db.leases.acquire("s", 5),
        lambda db: db.leases.acquire(None, "terminal"),
        lambda db: db.leases.follow("s", "all"),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_written(
    db: SessionDB, session: str, ask: Callable[[SessionDB], object]
) -> None:
    with pytest.raises(errors.InvalidArgument):
        ask(db)
    assert db.leases.find_holder("s") is None


def test_an_unknown_session_cannot_be_worked_in(db: SessionDB) -> None:
    with pytest.raises(errors.UnknownSession):
        db.leases.acquire("nobody", "terminal")
    with pytest.raises(errors.UnknownSession):
        db.leases.take_over("nobody", "terminal")
    assert db.leases.find_holder("nobody") is None


def test_a_read_only_store_shows_the_holder(db: SessionDB, session: str) -> None:
    lease = db.leases.acquire("s", "terminal")
    with SessionDB(db.db_path, read_only=True) as reading:
        assert reading.leases.find_holder("s") == lease
        with pytest.raises(errors.StoreReadOnly):
            reading.leases.acquire("s", "terminal")


# --- real processes


def test_a_process_that_slept_through_a_take_over_is_refused(db: SessionDB, session: str) -> None:
    with Worker(CHAT_WORKERS) as sleeper:
        sleeper.ask("open_store", path=str(db.db_path))
        epoch = sleeper.ask("acquire", session="s")
        sleeper.ask("say_under_lease", session="s", text="before", epoch=epoch)
        with pytest.raises(errors.LeaseHeld) as caught:
            db.leases.acquire("s", "here")
        assert caught.value.holder.holder.pid == sleeper.pid

        sleeper.signal(signal.SIGSTOP)
        mine = db.leases.take_over("s", "here")
        db.append_message("s", "user", "meanwhile", lease_epoch=mine.epoch)
        sleeper.start("say_under_lease", session="s", text="too late", epoch=epoch)
        sleeper.signal(signal.SIGCONT)
        with pytest.raises(Refused) as refused:
            sleeper.result()
        assert "LeaseLost" in refused.value.kinds
        db.append_message("s", "user", "afterwards", lease_epoch=mine.epoch)
    assert [row["content"] for row in db.get_messages("s")] == ["before", "meanwhile", "afterwards"]


def test_the_lease_of_a_killed_process_is_free_at_once(db: SessionDB, session: str) -> None:
    with Worker(CHAT_WORKERS) as victim:
        victim.ask("open_store", path=str(db.db_path))
        epoch = victim.ask("acquire", session="s", seconds=3600)
        victim.kill()
    assert db.leases.acquire("s", "here").epoch > epoch


def test_only_one_of_many_processes_gets_the_lease(db: SessionDB, session: str) -> None:
    workers = [Worker(CHAT_WORKERS) for _ in range(4)]
    try:
        for worker in workers:
            worker.ask("open_store", path=str(db.db_path))
        for worker in workers:
            worker.start("acquire", session="s")
        got = []
        for worker in workers:
            try:
                got.append((worker.pid, worker.result()))
            except Refused as problem:
                assert "LeaseHeld" in problem.kinds  # noqa: PT017
        held = db.leases.find_holder("s")
        assert held is not None
        assert got == [(held.holder.pid, held.epoch)]
    finally:
        for worker in workers:
            worker.__exit__(None, None, None)


# --- any order of operations

SURFACES = st.sampled_from(["terminal", "gateway", "editor"])
SESSIONS = st.sampled_from(["first", "second"])


class AnyOrder(RuleBasedStateMachine):
    """Several surfaces acquire, renew, release and take over a lease in any order. The expected state
    consists of one epoch and one holder."""

    @initialize()
    def open(self) -> None:
        self.folder = TemporaryDirectory()
        self.db = SessionDB(Path(self.folder.name) / "state.db", durability="normal")
        self.db.create_session("first", "cli")
        self.db.end_session("first", "compression")
        self.db.create_session("second", "cli", parent_session_id="first")
        self.epoch = 0
        self.known: dict[str, Lease] = {}
        """The last lease that each surface got, even if the surface has lost it since."""
        self.holder: str | None = None
        self.standing = False
        self.appended = 0

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
            self.folder.cleanup()

    def granted(self, lease: Lease, surface: str) -> None:
        assert lease.epoch > self.epoch
        self.epoch, self.holder, self.standing = lease.epoch, surface, True
        self.known[surface] = lease

    @rule(session=SESSIONS, surface=SURFACES)
    def acquire(self, session: str, surface: str) -> None:
        if self.standing and self.holder != surface:
            with pytest.raises(errors.LeaseHeld) as caught:
                self.db.leases.acquire(session, surface)
            assert caught.value.holder.holder.surface == self.holder
            return
        lease = self.db.leases.acquire(session, surface)
        if self.holder == surface:
            assert lease.epoch == self.epoch
            self.known[surface], self.standing = lease, True
        else:
            self.granted(lease, surface)

    @rule(session=SESSIONS, surface=SURFACES)
    def take_over(self, session: str, surface: str) -> None:
        self.granted(self.db.leases.take_over(session, surface), surface)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        surface = data.draw(st.sampled_from(sorted(self.known)))
        lease = self.known[surface]
        if self.holder == surface and lease.epoch == self.epoch:
            self.known[surface], self.standing = self.db.leases.renew(lease), True
        else:
            with pytest.raises(errors.LeaseLost):
                self.db.leases.renew(lease)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        surface = data.draw(st.sampled_from(sorted(self.known)))
        lease = self.known[surface]
        held = self.holder == surface and lease.epoch == self.epoch
        assert self.db.leases.release(lease) is held
        if held:
            self.holder, self.standing = None, False

    @rule()
    def expire(self) -> None:
        change_rows(self.db, "UPDATE leases SET expires_at = 1.0 WHERE expires_at IS NOT NULL")
        self.standing = False

    @precondition(lambda self: self.known)
    @rule(session=SESSIONS, data=st.data())
    def append(self, session: str, data: st.DataObject) -> None:
        lease = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        if lease.epoch == self.epoch:
            self.db.append_message(session, "user", "said", lease_epoch=lease.epoch)
            self.appended += 1
        else:
            with pytest.raises(errors.LeaseLost):
                self.db.append_message(session, "user", "too late", lease_epoch=lease.epoch)

    @invariant()
    def at_most_one_holds_it_and_nothing_was_lost(self) -> None:
        if not hasattr(self, "db"):
            return
        result = [self.db.leases.find_holder(session) for session in ("first", "second")]
        assert [lease and lease.holder.surface for lease in result] == [
            self.holder if self.standing else None
        ] * 2
        assert self.db.message_count() == self.appended


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=scale_examples(100), stateful_step_count=30, deadline=None)
