"""A conversation is moved to the trash as a whole. Then no read finds it. One call restores it, and after a
time limit it is deleted.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes.insights import InsightsEngine
from hermes.store.retention.deletion import Retention
from hermes.store.retention.trash import Trash
from hermes_state import SessionDB
from tests.store.repeating_engine import RepeatingEngine
from tests.stored_rows import change_rows, read_rows, read_value
from tests.tiers import scale_examples

DAY = 86_400.0


@pytest.fixture
def talk(db: SessionDB) -> SessionDB:
    """Create `one` → `two`, a subagent with its own subagent, a branch, and an unrelated session."""
    db.create_session("one", "cli", started_at=100.0)
    db.append_message("one", "user", "about pelicans")
    db.create_session("helper", "cli", parent_session_id="one", started_at=101.0)
    db.append_message("helper", "assistant", "pelicans looked up")
    db.create_session("helpers helper", "cli", parent_session_id="helper", started_at=102.0)
    db.end_session("one", "compression")
    db.create_session("two", "cli", parent_session_id="one", started_at=200.0)
    db.append_message("two", "user", "more about pelicans")
    db.set_session_title("one", "birds")
    db.set_session_title("two", "birds #2")
    db.end_session("two", "branched")
    db.create_session("branch", "cli", parent_session_id="two", started_at=300.0)
    db.append_message("branch", "user", "pelicans, otherwise")
    db.create_session("stranger", "cli", started_at=400.0)
    db.append_message("stranger", "user", "about pelicans, too")
    return db


THROWN = {"one", "two", "helper", "helpers helper"}
STAYING = {"branch", "stranger"}


def row(db: SessionDB, session_id: str) -> dict[str, Any]:
    found = db.get_session(session_id, include_trashed=True)
    assert found is not None
    return found


def everything_seen(db: SessionDB) -> dict[str, object]:
    """Return the results of all reads of the store. Two results are equal if nothing changed between them."""
    every = sorted(THROWN | STAYING)
    return {
        "rich": db.list_sessions_rich(limit=99),
        "by activity": db.list_sessions_rich(limit=99, order_by_last_active=True),
        "with children": db.list_sessions_rich(limit=99, include_children=True),
        "of a source": db.list_sessions_rich(source="cli", limit=99),
        "every": db.search_sessions(limit=99),
        "people's": db.list_conversations(include_hidden=True, limit=99),
        "count": (db.session_count(), db.session_count("cli"), db.message_count()),
        "found": {hit["session_id"] for hit in db.search_messages("pelicans", limit=99)},
        "by title": [db.get_session_by_title(name) for name in ("birds", "birds #2")],
        "resolved": [db.resolve_session_by_title(name) for name in ("birds", "birds #2")],
        "ids": [db.resolve_session_id(name) for name in every],
        "prefixes": [db.resolve_session_id(name[:3]) for name in every],
        "tips": [db.get_compression_tip(name) for name in every],
        "resumed": [db.resolve_resume_session_id(name) for name in every],
        "exported": [session["id"] for session in db.export_each()],
        "export": [db.export_session(name) for name in every],
        "candidates": db.list_prune_candidates(0),
        "handoffs": db.list_pending_handoffs(),
        "tags": db.all_tags(),
        "usage": db.usage_by_model(),
        "insights": {**InsightsEngine(db).generate(30_000), "generated_at": None},
    }


def test_the_whole_conversation_goes_with_its_subagents(talk: SessionDB) -> None:
    assert set(talk.trash_session("two")) == THROWN
    assert {name for name in THROWN | STAYING if row(talk, name)["trashed_at"] is not None} == THROWN
    assert talk.trash_session("one") == talk.trash_session("nobody") == []


def test_a_trashed_conversation_is_found_nowhere(talk: SessionDB) -> None:
    for name in ("one", "two"):
        talk.end_session(name, "x")
    talk.request_handoff("two", "telegram")
    talk.add_tags("one", "zoo")
    talk.record_usage("one", model="m", input_tokens=5)
    for name in THROWN:
        change_rows(talk, "UPDATE sessions SET ended_at = 1 WHERE id = ?", name)
    assert {one["id"] for one in talk.list_prune_candidates(0)} >= THROWN
    talk.trash_session("one")
    seen = everything_seen(talk)
    assert [one["id"] for one in talk.list_sessions_rich()] == ["stranger", "branch"]
    assert {one["id"] for one in talk.search_sessions()} == STAYING
    page = talk.list_conversations(include_hidden=True)
    assert ({one["id"] for one in page.rows}, page.total, page.hidden) == (STAYING, 2, {})
    assert seen["count"] == (2, 2, 2)
    assert seen["found"] == STAYING
    assert seen["by title"] == seen["resolved"] == [None, None]
    assert {name for name in THROWN | STAYING if talk.resolve_session_id(name)} == STAYING
    assert talk.resolve_session_id("help") is None
    assert {exported["id"] for exported in talk.export_all()} == STAYING
    assert talk.export_session("two") is None
    assert seen["candidates"] == seen["handoffs"] == seen["tags"] == []
    assert talk.claim_handoff("two") is talk.request_handoff("one", "telegram") is False
    assert talk.usage_by_model().total.calls == 0
    assert talk.get_next_title_in_lineage("birds") == "birds"
    assert talk.finalize_orphaned_compression_sessions() == 0


def test_the_trash_is_shown_on_request(talk: SessionDB) -> None:
    talk.trash_session("one")
    assert row(talk, "one")["trashed_at"] == pytest.approx(time.time(), abs=60)
    assert [one["content"] for one in talk.get_messages("two", include_trashed=True)] == [
        "more about pelicans"
    ]
    messages = talk.get_messages_as_conversation("two", include_trashed=True)
    assert [one["content"] for one in messages] == ["more about pelicans"]


@pytest.mark.parametrize("member", sorted(THROWN))
def test_restoring_one_session_restores_the_whole_conversation(talk: SessionDB, member: str) -> None:
    before = everything_seen(talk)
    talk.trash_session("one")
    assert set(talk.restore_session(member)) == THROWN
    assert everything_seen(talk) == before
    assert talk.restore_session(member) == talk.restore_session("nobody") == []
    keys = read_rows(talk, "SELECT key FROM state_meta WHERE key LIKE 'trashed%'")
    assert keys == []


def test_the_title_is_free_and_gets_a_number_after_a_restore_if_taken(talk: SessionDB) -> None:
    talk.trash_session("one")
    assert talk.set_session_title("stranger", "birds") is True
    assert talk.set_session_title("branch", "birds #2") is True
    talk.restore_session("one")
    assert [talk.get_session_title(name) for name in ("one", "two")] == ["birds (2)", "birds #2 (2)"]
    assert [talk.get_session_title(name) for name in ("stranger", "branch")] == ["birds", "birds #2"]
    assert row(talk, "one")["title_by"] == "store", "no person chose the number"


def test_nothing_in_the_trash_can_be_titled_pinned_tagged_or_bound(talk: SessionDB) -> None:
    talk.trash_session("one")
    assert talk.set_session_title("one", "fish") is False
    assert talk.set_auto_title_if_empty("one", "fish") is None
    assert talk.pin_session("one") is talk.set_session_archived("one", True) is False
    with pytest.raises(Exception, match="does not exist"):
        talk.add_tags("two", "x")
    with pytest.raises(Exception, match="does not exist"):
        talk.bind_telegram_topic(chat_id="1", thread_id="2", user_id="3", session_key="k", session_id="two")
    assert talk.set_session_title("stranger", "fish") is True


def test_the_chat_of_a_trashed_conversation_starts_a_new_session(talk: SessionDB) -> None:
    talk.bind_telegram_topic(chat_id="1", thread_id="2", user_id="3", session_key="k", session_id="two")
    change_rows(
        talk,
        "INSERT INTO routing (session_key, platform, chat_type, session_id, created_at, updated_at)"
        " VALUES ('mine', 'telegram', 'dm', 'two', 1, 1), ('theirs', 'telegram', 'group', 'branch', 1, 1)",
    )
    talk.trash_session("one")
    assert [found[0] for found in read_rows(talk, "SELECT session_key FROM routing")] == ["theirs"]
    assert talk.get_telegram_topic_binding(chat_id="1", thread_id="2") is None


def test_an_import_brings_a_session_back_with_its_title(talk: SessionDB) -> None:
    exported = talk.export_session("stranger")
    assert exported is not None
    talk.set_session_title("stranger", "kept")
    talk.trash_session("stranger")
    assert talk.import_sessions([exported], trusted=True).restored == ("stranger",)
    assert talk.get_session_title("stranger") == "kept"


def test_an_export_carries_nothing_of_the_trash(talk: SessionDB) -> None:
    talk.trash_session("one")
    assert "birds" not in str(list(talk.export_all()))


# ---------------------------------------------------------------- a single session


def test_a_trashed_session_is_separated_from_its_continuation_until_it_is_restored(talk: SessionDB) -> None:
    talk.add_tags("one", "zoo")
    before = everything_seen(talk)
    assert talk.trash_session("one", segment=True) == ["one"]
    assert {found["id"] for found in talk.list_sessions_rich()} == {"two", "branch", "stranger"}
    assert row(talk, "two")["root_id"] == "two"
    assert talk.tags_of("two") == ["zoo"]
    assert talk.restore_session("one") == ["one"]
    assert everything_seen(talk) == before


def test_without_its_last_session_a_conversation_ends_with_the_previous_one(talk: SessionDB) -> None:
    talk.trash_session("two", segment=True)
    assert talk.get_compression_tip("one") == "one"
    assert talk.resolve_session_by_title("birds") == "one"
    assert {found["id"] for found in talk.list_sessions_rich()} == {"one", "branch", "stranger"}


def test_sessions_trashed_at_different_times_are_restored_separately(talk: SessionDB) -> None:
    talk.trash_session("two", segment=True)
    assert set(talk.trash_session("one")) == THROWN - {"two"}
    assert talk.restore_session("two") == ["two"]
    assert set(talk.restore_session("helper")) == THROWN - {"two"}
    assert talk.get_compression_tip("one") == "two"


# ---------------------------------------------------------------- contents and expiry


def test_the_list_shows_when_a_conversation_will_be_deleted(talk: SessionDB) -> None:
    talk.trash_session("stranger")
    talk.trash_session("helper")
    talk.restore_session("helper")
    talk.trash_session("two")
    first, second = talk.list_trash()
    assert (first["id"], first["title"], first["preview"]) == ("one", "birds #2", "about pelicans")
    assert (set(first["sessions"]), first["message_count"], first["source"]) == (THROWN, 3, "cli")
    assert (second["id"], second["title"], second["sessions"]) == ("stranger", None, ["stranger"])
    assert first["goes_at"] == first["trashed_at"] + 30 * DAY
    assert talk.list_trash(trash_days=7)[0]["goes_at"] == first["trashed_at"] + 7 * DAY


def age(db: SessionDB, days: float) -> None:
    seconds = days * DAY
    older = "UPDATE sessions SET trashed_at = trashed_at - ?1, last_active = last_active - ?1"
    change_rows(db, f"{older} WHERE trashed_at IS NOT NULL", seconds)


def ids(db: SessionDB) -> set[str]:
    return {found[0] for found in read_rows(db, "SELECT id FROM sessions")}


def test_only_old_entries_are_deleted(talk: SessionDB) -> None:
    talk.trash_session("one")
    age(talk, 31)
    talk.trash_session("stranger")
    assert talk.empty_trash() == 4
    assert ids(talk) == STAYING
    assert [found["id"] for found in talk.list_trash()] == ["stranger"]
    assert talk.empty_trash(older_than_days=0) == 1
    assert ids(talk) == {"branch"}
    assert read_value(talk, "SELECT count(*) FROM state_meta WHERE key LIKE 'trashed%'") == 0
    assert talk.verify().ok


def test_a_branch_keeps_the_messages_that_it_carries(talk: SessionDB) -> None:
    change_rows(talk, "INSERT INTO carried_context VALUES ('branch', 0, 1, 1)")

    def spoken() -> list[str]:
        return [message["content"] for message in talk.get_messages_as_conversation("branch")]

    before = spoken()
    assert before == ["about pelicans", "pelicans, otherwise"]
    talk.trash_session("one")
    assert spoken() == before
    talk.empty_trash(0)
    assert spoken() == before


def test_a_purge_leaves_no_byte_of_the_trash(talk: SessionDB, home: Path) -> None:
    talk.set_session_title("stranger", "quetzalcoatlus")
    talk.add_tags("stranger", "archaeopteryx")
    talk.append_message("stranger", "user", "pteranodon")
    talk.trash_session("stranger")
    talk.backup()
    (home / "sessions").mkdir()
    (home / "sessions" / "stranger.jsonl").write_text("pteranodon")
    assert talk.empty_trash(0, purge=True) == 1
    for secret in (b"quetzalcoatlus", b"archaeopteryx", b"pteranodon"):
        held = [file.name for file in home.rglob("*") if file.is_file() and secret in file.read_bytes()]
        assert held == []
    assert {hit["session_id"] for hit in talk.search_messages("pelicans")} == THROWN - {"helpers helper"} | {
        "branch"
    }


def test_transcripts_are_removed_when_the_trash_is_emptied(talk: SessionDB, tmp_path: Path) -> None:
    file = tmp_path / "stranger.jsonl"
    file.write_text("{}")
    talk.trash_session("stranger")
    assert file.exists()
    talk.empty_trash(0, sessions_dir=tmp_path)
    assert not file.exists()


def test_a_session_that_another_program_still_writes_is_not_deleted(talk: SessionDB) -> None:
    talk.trash_session("stranger")
    age(talk, 31)
    change_rows(
        talk,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('stranger', 'user', 'still here', ?)",
        time.time(),
    )
    talk.search_sessions()
    assert talk.empty_trash() == 0
    assert talk.empty_trash(0) == 1


def store_contents(db: SessionDB) -> list[list[tuple[Any, ...]]]:
    """Return every row of the tables that a verb can change."""
    tables = ("sessions", "messages", "tags", "model_usage", "carried_context", "leases", "state_meta")
    return [read_rows(db, f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


WRITES: dict[str, Callable[[SessionDB, str], object]] = {
    "append": lambda db, name: db.append_message(name, "user", "where were we?"),
    "append in the past": lambda db, name: db.append_message(name, "user", "long ago", timestamp=5.0),
    "append an answer": lambda db, name: db.append_message(name, "assistant", "I have not noticed"),
    "append under a lease": lambda db, name: db.append_message(name, "user", "mine", lease_epoch=0),
    "replace": lambda db, name: db.replace_messages(name, [{"role": "user", "content": "other"}]),
    "rewind": lambda db, name: db.rewind_to_message(name, 1),
    "bring back": lambda db, name: db.restore_rewound(name),
    "continue": lambda db, name: db.begin_continuation(name, "a summary", []),
    "branch": lambda db, name: db.branch(name),
    "reset": lambda db, name: db.reset(name),
    "delegate": lambda db, name: db.create_session("new child", "cli", parent_session_id=name),
    "account": lambda db, name: db.record_usage(name, model="m", input_tokens=5),
    "lease": lambda db, name: db.leases.acquire(name, "test"),
    "create": lambda db, name: db.create_session(name, "cli"),
    "ensure": lambda db, name: db.ensure_session(name),
}


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("name", ["one", "two", "helper"])
def test_writing_to_the_trash_is_refused_as_for_an_unknown_session(
    talk: SessionDB, verb: str, name: str
) -> None:
    talk.trash_session("one")
    before = store_contents(talk)
    with pytest.raises(sqlite3.IntegrityError):
        WRITES[verb](talk, name)
    assert store_contents(talk) == before


def test_verbs_that_are_silent_about_unknown_sessions_are_silent_about_the_trash(talk: SessionDB) -> None:
    talk.trash_session("one")
    before = store_contents(talk)
    talk.end_session("two", "x")
    talk.reopen_session("one")
    talk.update_system_prompt("one", "another")
    talk.update_token_counts("one", input_tokens=5)
    talk.update_token_counts("one", input_tokens=5, absolute=True)
    talk.clear_messages("one")
    assert talk.set_session_title("one", "t") is talk.pin_session("one") is False
    assert talk.set_auto_title_if_empty("one", "t") is None
    assert store_contents(talk) == before


def test_reads_by_id_do_not_find_the_trash(talk: SessionDB) -> None:
    talk.record_usage("one", model="m", input_tokens=5)
    talk.trash_session("one")
    for name in ("one", "two", "helper"):
        assert talk.get_session(name) is None
        assert talk.get_session_title(name) is None
        assert talk.get_messages(name) == talk.get_context(name) == talk.leases.follow(name) == []
        assert talk.get_messages_as_conversation(name) == []
        assert talk.get_messages_as_conversation(name, include_ancestors=True) == []
        assert talk.list_recent_user_messages(name) == []
        assert talk.message_count(name) == 0
        assert talk.get_conversation_root(name) is None
        assert talk.family(name) is None
        assert talk.export_session(name) is None
        assert talk.usage_of(name).total.calls == talk.usage_of(name, family=True).total.calls == 0
        assert talk.get_compression_tip(name) == talk.resolve_resume_session_id(name) == name


def test_an_id_in_the_trash_is_not_given_to_another_session(talk: SessionDB) -> None:
    talk.trash_session("one")
    with pytest.raises(errors.SessionInTrash, match="'one' is in the trash"):
        talk.create_session("one", "cli")
    assert talk.delete_session("one")  # permanently
    talk.create_session("one", "cli")
    assert talk.get_messages("one") == []


def test_plain_sql_recognises_the_trash_by_one_column(talk: SessionDB) -> None:
    """Runs the SQL statements of docs/internals/retention.md."""
    talk.trash_session("one")
    text = (Path(__file__).parents[2] / "docs" / "internals" / "retention.md").read_text(encoding="utf-8")
    block = re.search(r"## The trash.*?```sql\n(.*?)```", text, re.DOTALL)
    assert block is not None
    statements = [statement.strip() for statement in block[1].split(";") if statement.strip()]
    found = [{row[0] for row in read_rows(talk, statement)} for statement in statements]
    assert found == [STAYING, STAYING, THROWN]


def test_maintenance_deletes_old_entries(talk: SessionDB) -> None:
    talk.trash_session("stranger")
    age(talk, 31)
    talk.trash_session("one")
    assert talk.maybe_auto_prune_and_vacuum() == {
        "skipped": False,
        "pruned": 0,
        "vacuumed": True,
        "emptied": 1,
    }
    assert ids(talk) == THROWN | {"branch"}
    assert talk.maybe_auto_prune_and_vacuum(min_interval_hours=0, trash_days=0)["emptied"] == 4


@pytest.mark.parametrize("days", [None, "30", -1, float("nan")])
def test_days_must_be_a_number(talk: SessionDB, days: Any) -> None:
    talk.trash_session("one")
    with pytest.raises(ValueError, match="older_than_days"):
        talk.empty_trash(days)
    assert len(talk.list_trash()) == 1


def test_a_repeated_call_returns_the_same_result(talk: SessionDB) -> None:
    trash = Trash(RepeatingEngine(talk))
    assert set(trash.trash_session("one")) == THROWN
    assert set(trash.restore("one")) == THROWN
    assert talk.get_session_title("one") == "birds"
    trash.trash_session("one")
    assert trash.empty(Retention(RepeatingEngine(talk)), 0) == 4
    assert trash.trash_session("nobody") == trash.restore("nobody") == []


# ---------------------------------------------------------------- algebra

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["trash", "segment", "restore", "title"]),
        st.integers(0, 5),
    ),
    max_size=12,
)
PARENTS = st.lists(
    st.tuples(st.integers(-1, 4), st.sampled_from(["compression", "branched", "x", None])),
    min_size=6,
    max_size=6,
)


@settings(max_examples=scale_examples(100))
@given(parents=PARENTS, steps=STEPS)
def test_a_restore_undoes_any_deletion(
    tmp_path_factory: pytest.TempPathFactory,
    parents: list[tuple[int, str | None]],
    steps: list[tuple[str, int]],
) -> None:
    with SessionDB(tmp_path_factory.mktemp("algebra") / "state.db", durability="normal") as db:
        for number, (above, ended) in enumerate(parents):
            parent = f"s{above}" if 0 <= above < number else None
            db.create_session(f"s{number}", "cli", parent_session_id=parent, started_at=float(number))
            db.append_message(f"s{number}", "user", f"word {number}", timestamp=100.0 + number)
            db.set_session_title(f"s{number}", f"title {number}")
            if ended is not None:
                db.end_session(f"s{number}", ended)

        def shape() -> list[tuple[Any, ...]]:
            columns = "id, parent_session_id, relation, root_id, listed, kind, title, trashed_at"
            sql = f"SELECT {columns} FROM sessions ORDER BY id"
            db.search_sessions()
            return read_rows(db, sql)

        before = shape()
        for step, number in steps:
            session_id = f"s{number}"
            if step == "restore":
                db.restore_session(session_id)
            elif step == "title":
                assert db.set_session_title(session_id, f"title {number}") == (
                    row(db, session_id)["trashed_at"] is None
                )
            else:
                db.trash_session(session_id, segment=step == "segment")
            live = {name for name, *_, trashed in shape() if trashed is None}
            assert {found["id"] for found in db.search_sessions(limit=99)} == live
            assert {hit["session_id"] for hit in db.search_messages("word", limit=99)} == live
            thrown = [name for found in db.list_trash() for name in found["sessions"]]
            assert sorted(thrown) == sorted({one[0] for one in before} - live)
            assert db.session_count() == len(live)
        for found in db.list_trash():
            db.restore_session(found["id"])
        assert shape() == before
        assert db.verify().ok
