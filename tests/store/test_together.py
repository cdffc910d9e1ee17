"""Combinations of features: related sessions, people, chats, leases, the trash and copies of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.stored_rows import change_rows, hold_transaction
from tests.survival.processes import impatient

ANN, BOB = (Principal("telegram", user, "room", chat_type="group") for user in ("ann", "bob"))


def read_context(db: Any, session_id: str, **how: Any) -> list[Any]:
    return [row["content"] for row in db.get_messages_as_conversation(session_id, **how)]


def talk(db: SessionDB, session_id: str, *texts: str) -> list[int]:
    return [db.append_message(session_id, "user", text) for text in texts]


@pytest.fixture
def other(tmp_path: Path) -> Any:
    with SessionDB(db_path=tmp_path / "other" / "state.db") as store:
        yield store


class TestContextAndCopies:
    def test_an_import_does_not_carry_messages_in_between(self, db: SessionDB, other: SessionDB) -> None:
        for name in ("p", "q"):
            db.create_session(name, "cli")
        for at in range(3):
            talk(db, "p", f"p{at}")
            talk(db, "q", f"secret q{at}")
        exported = db.export_session("p")
        assert exported is not None
        other.import_sessions([exported], trusted=True)
        branch = other.branch("p", end_parent=False)
        back = other.export_session(branch)
        assert back is not None
        db.import_sessions([back], trusted=True)
        assert read_context(db, branch) == ["p0", "p1", "p2"]

    def test_an_import_without_the_origin_says_so_and_is_completed_later(
        self, db: SessionDB, other: SessionDB
    ) -> None:
        db.create_session("s", "cli")
        child = db.begin_continuation("s", "sum", talk(db, "s", "one", "two"))
        alone, whole = db.export_session(child), list(db.export_each())
        assert alone is not None
        assert other.import_sessions([alone], trusted=True).incomplete == (child,)
        assert read_context(other, child) == ["sum"]
        assert other.import_sessions(whole, trusted=True).incomplete == ()
        assert read_context(other, child) == ["sum", "one", "two"]

    def test_rewound_messages_are_imported(self, db: SessionDB, other: SessionDB) -> None:
        db.create_session("s", "cli")
        ids = talk(db, "s", "one", "two", "three")
        branch = db.branch("s")
        db.rewind_to_message(branch, ids[1])
        other.import_sessions(db.export_each())
        assert read_context(other, branch) == ["one"]
        assert other.restore_rewound(branch) == 2
        assert db.restore_rewound(branch, ids[2]) == 1
        assert read_context(db, branch) == ["one", "three"]

    def test_replacing_in_the_origin_leaves_a_branch_as_it_was(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        ids = talk(db, "s", "one", "two", "three")
        branch = db.branch("s", ids[1], end_parent=False)
        db.replace_messages("s", [{"role": "user", "content": "one"}, {"role": "user", "content": "new"}])
        assert read_context(db, "s") == ["one", "new"]
        assert read_context(db, branch) == ["one", "two"]
        assert db.verify().ok

    def test_replacing_with_the_whole_context_stores_nothing_twice(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        child = db.begin_continuation("s", "sum", talk(db, "s", "one", "two"))
        talk(db, child, "three")
        context = db.get_messages_as_conversation(child)
        db.replace_messages(child, [*context, {"role": "user", "content": "four"}])
        assert read_context(db, child) == ["sum", "one", "two", "three", "four"]
        assert [row["content"] for row in db.get_messages(child)] == ["sum", "three", "four"]

    def test_a_purge_leaves_a_branch_whole_in_the_backups_too(self, db: SessionDB, other: SessionDB) -> None:
        db.create_session("s", "cli")
        talk(db, "s", "one", "two")
        branch = db.branch("s")
        talk(db, branch, "mine")
        db.outbox.enqueue("k", "telegram", {"text": "delivered once"}, "once", session_id="s")
        backup = db.backup()
        db.delete_session("s", purge=True)
        assert b"delivered once" not in backup.path.read_bytes()
        other.restore(backup.path)
        assert read_context(other, branch) == read_context(db, branch) == ["one", "two", "mine"]

    def test_the_conversation_contains_the_whole_context_once(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        talk(db, "s", "one")
        branches = [db.branch("s", end_parent=False) for _ in range(2)]
        db.delete_session("s")
        for branch in branches:
            assert read_context(db, branch, include_ancestors=True) == ["one"]

    def test_a_message_is_found_if_only_another_branch_rewound_it(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        ids = talk(db, "s", "albatross")
        first, second = (db.branch("s", end_parent=False) for _ in range(2))
        db.rewind_to_message(first, ids[0])
        db.delete_session("s")
        assert [hit["session_id"] for hit in db.search_messages("albatross")] == [second]

    def test_a_thinned_session_is_recognised_by_an_import(self, db: SessionDB) -> None:
        db.create_session("s", "cli", started_at=1.0)
        db.append_message("s", "tool", "x" * 50_000, timestamp=1.0)
        exported = db.export_session("s")
        assert exported is not None
        assert db.thin().messages == 1
        assert db.import_sessions([exported]).skipped == ("s",)

    def test_a_rewind_to_a_carried_message_is_possible(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        ids = talk(db, "s", "one", "two")
        child = db.begin_continuation("s", "sum", ids)
        assert [one["id"] for one in db.list_recent_user_messages(child)] == [ids[1], ids[0]]


class TestPeople:
    def test_a_session_of_a_room_and_one_of_a_person_cannot_be_related(self, db: SessionDB) -> None:
        ann, bob = db.scoped(ANN), db.scoped(BOB)
        room = ann.create_session(shared=True)
        with pytest.raises(errors.UnknownSession):
            ann.create_session(parent_session_id=room)
        with pytest.raises(errors.UnknownSession):
            ann.create_session(parent_session_id=ann.create_session(), shared=True)
        assert bob.trash_session(room) == [room]

    def test_a_shared_chat_goes_only_into_a_shared_session(self, db: SessionDB) -> None:
        ann, bob = db.scoped(ANN), db.scoped(BOB)
        room, private = ann.create_session(shared=True), bob.create_session()
        ann.route("k", room)
        with pytest.raises(errors.UnknownSession):
            bob.route("k", private)
        with pytest.raises(errors.UnknownSession):
            bob.switch_session("k", private)
        assert ann.find_live_session("k") == room
        assert bob.route("k:bob", private, alone=True).session_id == private

    def test_an_invented_lease_releases_nothing(self, db: SessionDB) -> None:
        ann, bob = db.scoped(ANN), db.scoped(BOB)
        hers, his = ann.create_session(), bob.create_session()
        lease, mine = ann.leases.acquire(hers, "chat"), bob.leases.acquire(his, "chat")
        bob.leases.release(mine._replace(conversation_id=hers, epoch=lease.epoch))
        assert ann.leases.find_holder(hers) is not None

    def test_a_platform_has_one_name(self, db: SessionDB) -> None:
        mine = db.scoped(Principal("api_server", "u")).create_session()
        assert db.scoped(Principal("api-server", "u")).get_session(mine) is not None

    def test_in_a_room_a_private_title_comes_first(self, db: SessionDB) -> None:
        ann = db.scoped(ANN)
        room, private = ann.create_session(shared=True), ann.create_session()
        for session_id in (room, private):
            ann.set_session_title(session_id, "plans")
        assert ann.tip("plans") == private

    def test_spooled_messages_come_before_the_next_write_of_a_person(self, home: Path) -> None:
        with SessionDB(spool=True) as db, SessionDB() as sibling:
            impatient(db, 0.05)
            ann = db.scoped(ANN)
            mine = ann.create_session()
            ann.append_message(mine, "user", "one")
            with hold_transaction(sibling), pytest.raises(errors.StoreBusy):
                ann.append_message(mine, "user", "two")
            assert read_context(ann, ann.branch(mine)) == ["one", "two"]


class TestChatsAndLeases:
    def test_an_epoch_is_never_given_twice(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        old = db.leases.acquire("s", "terminal")
        exported = db.export_session("s")
        assert exported is not None
        db.delete_session("s")
        db.import_sessions([exported])
        new = db.leases.take_over("s", "gateway")
        assert new.epoch > old.epoch
        with pytest.raises(errors.LeaseLost):
            db.append_message("s", "user", "late", lease_epoch=old.epoch)
        with pytest.raises(errors.LeaseLost):
            db.leases.renew(old)

    @pytest.mark.parametrize("how", ["delete_session", "trash_session"])
    def test_a_lease_outlives_the_first_session(self, db: SessionDB, how: str) -> None:
        db.create_session("s", "cli")
        lease = db.leases.acquire("s", "terminal")
        child = db.begin_continuation("s", "sum")
        getattr(db, how)("s", **({"segment": True} if how == "trash_session" else {}))
        held = db.leases.find_holder(child)
        assert held is not None
        assert held.epoch == lease.epoch
        with pytest.raises(errors.LeaseHeld):
            db.leases.acquire(child, "gateway")

    def test_following_continues_after_a_compression(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        last = talk(db, "s", "one")[0]
        child = db.begin_continuation("s", "sum")
        talk(db, child, "two")
        assert [row["content"] for row in db.leases.follow("s", last)] == ["sum", "two"]

    def test_a_message_claimed_under_a_lease_is_completed_under_it(self, db: SessionDB) -> None:
        db.create_session("s", "telegram")
        db.routing.route("k", "telegram", "dm", "1", "", "", "s")
        db.inbox.accept("k", "telegram", {"text": "hi"}, "m1")
        lease = db.leases.acquire("s", "gateway")
        entry = db.inbox.claim("k", lease.epoch)
        assert entry is not None
        with pytest.raises(errors.LeaseLost):
            db.inbox.complete(entry.id)
        assert db.inbox.complete(entry.id, lease.epoch)

    def test_a_chat_with_a_new_key_keeps_its_waiting_messages(self, db: SessionDB) -> None:
        db.create_session("s", "telegram")
        db.routing.route("k1", "telegram", "dm", "1", "", "", "s")
        db.inbox.accept("k1", "telegram", {"text": "hi"}, "m1")
        db.routing.route("k2", "telegram", "dm", "1", "", "", "s")
        assert db.inbox.accept("k2", "telegram", {"text": "hi"}, "m1") is None
        assert [entry.session_key for entry in db.inbox.list_waiting()] == ["k2"]

    def test_a_chat_follows_its_conversation_after_any_deletion(self, db: SessionDB) -> None:
        db.create_session("s", "telegram")
        child = db.begin_continuation("s", "sum")
        assert db.routing.route("k", "telegram", "dm", "1", "", "", "s").session_id == child
        db.delete_session(child)
        assert db.routing.find_live_session("k") == "s"
        again = db.begin_continuation("s", "sum")
        db.trash_session(again, segment=True)
        assert db.routing.find_live_session("k") == "s"
        assert db.begin_continuation("s", "sum") != again

    def test_a_lost_route_is_not_recovered_to_a_subagent_or_an_undone_reset(self, db: SessionDB) -> None:
        dm = ("telegram", "dm", "1", "", "")
        db.create_session("s", "telegram")
        db.routing.route("k", *dm, "s")
        talk(db, db.delegate("s"), "working")
        fresh = db.reset("s")
        db.undo_reset(fresh)
        talk(db, "s", "back")
        change_rows(db, "DELETE FROM routing")
        assert db.routing.recover(*dm) == "s"
        with pytest.raises(ValueError, match="not started by a reset that can still be undone"):
            db.undo_reset(fresh)

    def test_chats_stay_with_a_parent_that_stays_open(self, db: SessionDB) -> None:
        db.create_session("s", "telegram")
        db.routing.route("k", "telegram", "dm", "1", "", "", "s")
        db.branch("s", end_parent=False)
        assert db.routing.find_live_session("k") == "s"

    def test_a_redelivered_message_can_be_recognised(self, db: SessionDB) -> None:
        db.create_session("s", "telegram")
        assert not db.has_platform_message_id("s", "m1")
        db.append_message("s", "user", "hi", platform_message_id="m1")
        assert db.has_platform_message_id("s", "m1")


class TestTrash:
    def test_no_session_can_be_created_from_a_trashed_one(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        db.set_session_title("s", "plans")
        db.trash_session("s")
        db.create_session("t", "cli")
        db.set_session_title("t", "plans")
        with pytest.raises(errors.UnknownSession):
            db.begin_continuation("s", "sum", title="plans")
        with pytest.raises(errors.UnknownSession):
            db.delegate("s")
        assert [row["id"] for row in db.search_sessions()] == ["t"]
        assert db.restore_session("s") == ["s"]

    def test_a_family_without_its_trashed_sessions(self, db: SessionDB) -> None:
        db.create_session("s", "cli")
        branch = db.branch("s")
        db.trash_session("s")
        tree = db.family(branch)
        assert tree is not None
        assert tree.id == branch


def test_a_secret_in_a_tag_is_scrubbed(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.add_tags("s", "Sk-Live-ABCDEF123456")
    assert db.scrub("Sk-Live-ABCDEF123456").occurrences == 1
    assert db.tags_of("s") == ["[scrubbed]"]
