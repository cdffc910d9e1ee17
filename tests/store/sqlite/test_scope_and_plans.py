"""Which tables a scoped handle can read, and which indexes lists use."""

from __future__ import annotations

import re
from pathlib import Path

from hermes_state import SessionDB
from tests.store.test_people import ANN

# Tables without data of conversations. They are the same for every person.
HARMLESS = {
    "schema_version",
    "index_progress",
    "changed_messages",
    "changed_sessions",
    "sqlite_sequence",
    "messages_fts_words",
    "messages_fts_words_data",
    "messages_fts_words_idx",
    "messages_fts_words_docsize",
    "messages_fts_words_config",
    # the list of terms, which only a search of the whole store reads
    "messages_fts_words_terms",
    "messages_fts_words_edited",
    "messages_fts_words_grams",
    "messages_fts_words_grams_data",
    "messages_fts_words_grams_idx",
    "messages_fts_words_grams_config",
    "messages_fts_members",
    "messages_fts_blocks",
    "messages_fts_blocks_data",
    "messages_fts_blocks_idx",
    "messages_fts_blocks_docsize",
    "messages_fts_blocks_config",
}


def test_a_read_names_no_table_that_is_not_scoped(db: SessionDB) -> None:
    """A new table must be added to one of the two sets. The test fails for a table that is in neither."""
    from hermes.store import sqlite

    db.enable_telegram_topic_mode(chat_id="1", user_id="2")
    db.search("*part*")
    tables = {row[0] for row in db.raw().execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    text = Path(sqlite.__file__).with_name("scope.sql").read_text()
    scoped = set(re.findall(r"CREATE TEMP VIEW (\w+)", text))
    assert tables - HARMLESS == scoped & tables


def test_a_list_for_one_person_does_not_read_the_sessions_of_others(db: SessionDB) -> None:
    with db._engine.read(owners=ANN.owners) as reader:  # type: ignore[call-arg]
        from hermes.store.sessions.listing import BY_ACTIVITY

        plan = " ".join(str(row) for row in reader.rows("EXPLAIN QUERY PLAN " + BY_ACTIVITY[0], 20, 0))
    assert "idx_sessions_owner" in plan


def test_the_first_page_uses_an_index_without_sorting(db: SessionDB) -> None:
    from hermes.store.sessions.listing import PAGES

    for order in ("activity", "started"):
        sql = PAGES[order, False, False]
        plan = [
            row[3]
            for row in db.raw().execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?")).fetchall()
        ]
        assert any(
            f"idx_sessions_listed_{'active' if order == 'activity' else 'started'}" in line for line in plan
        )
        assert not any("TEMP B-TREE" in line for line in plan)


def test_the_queues_of_a_chat_are_read_without_those_of_others(db: SessionDB) -> None:
    from hermes.store.chats import inbox, origins, outbox, routing

    statements = {
        "inbox": (inbox.OLDEST, inbox.OLDEST_QUEUED, inbox.QUEUED, inbox.BEGUN, inbox.WAITING_IN_CHAT),
        "outbox": (outbox.OLDEST_IN_CHAT, outbox.WAITING_IN_CHAT, outbox.QUEUED_WITH, outbox.UNKNOWN),
        "sessions": (routing.BY_CHAT, routing.BY_KEY, routing.NEWEST_IS_TRASHED, origins.MADE_FOR),
    }
    for sql in (sql for group in statements.values() for sql in group):
        plan = db.raw().execute(f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?")).fetchall()
        assert not [row[3] for row in plan if row[3].startswith("SCAN")], sql
