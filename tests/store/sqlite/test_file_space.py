"""The file shrinks after a prune and after thinning, even while other processes use it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from hermes_state import SessionDB
from tests.interface.conftest import contents as contents_of
from tests.interface.conftest import say
from tests.store.test_retention import ago, contents


def words(number: int) -> str:
    return " ".join(f"word{(number * 7919 + step * 104_729) % 50_000}" for step in range(150))


def fill(db: SessionDB, sessions: int, each: int = 10) -> None:
    """Create conversations that are a hundred days old, each with `each` messages."""
    for number in range(sessions):
        db.import_sessions(
            [
                {
                    "id": f"m{number}",
                    "source": "cli",
                    "started_at": ago(100 + number),
                    "ended_at": ago(99),
                    "messages": [
                        {"role": "user", "content": words(number * each + at), "timestamp": ago(100 + number)}
                        for at in range(each)
                    ],
                }
            ]
        )


def size(db: SessionDB) -> int:
    return sum(path.stat().st_size for path in (db.db_path, Path(f"{db.db_path}-wal")) if path.exists())


def test_after_a_prune_the_file_is_as_small_as_what_is_left(db: SessionDB) -> None:
    fill(db, 150)
    kept = {f"m{number}" for number in range(10)}
    for name in kept:
        db.append_message(name, "user", "still used")
    db.search_messages("word1")
    db._engine.shrink()
    full = size(db)
    assert db.maybe_auto_prune_and_vacuum()["vacuumed"] is True
    assert size(db) < full * 0.25
    assert db.raw().execute("PRAGMA freelist_count").fetchone()[0] == 0
    entries = "SELECT sum(length(block)) FROM messages_fts_words_data"
    merged = db.raw().execute(entries).fetchone()[0]
    db.vacuum()
    assert merged <= db.raw().execute(entries).fetchone()[0] * 1.05, (
        "nothing of deleted messages is in the index"
    )
    assert {row["id"] for row in db.list_sessions_rich(limit=999)} == kept
    assert db.verify().ok


def test_after_thinning_the_file_is_smaller(db: SessionDB) -> None:
    db.create_session("old", "cli", started_at=ago(100))
    for number in range(40):
        db.append_message(
            "old", "tool", " ".join(words(number * 20 + at) for at in range(20)), timestamp=ago(100)
        )
    db.search_messages("word1")
    db._engine.shrink()
    full = size(db)
    db.thin()
    db._engine.shrink(pages_at_once=7)
    assert size(db) < full * 0.3
    assert db.verify().ok


def test_others_write_and_read_while_the_file_shrinks(db: SessionDB, home: Path) -> None:
    fill(db, 60)
    db.create_session("busy", "cli")
    db.prune_sessions(50)
    writing = (
        "from hermes_state import SessionDB; db = SessionDB()\n"
        "for n in range(200): db.append_message('busy', 'user', f'counted {n}')\n"
    )
    other = subprocess.Popen([sys.executable, "-c", writing], env={**os.environ, "HERMES_HOME": str(home)})
    try:
        while other.poll() is None:
            db._engine.shrink(pages_at_once=5)
    finally:
        assert other.wait() == 0
    assert contents(db, "busy") == [f"counted {n}" for n in range(200)]
    assert len(db.search_messages("counted", limit=999)) == 200
    assert db.verify().ok


def test_a_long_reader_does_not_prevent_it(db: SessionDB) -> None:
    fill(db, 60)
    raw = db.raw()
    raw.execute("BEGIN")
    raw.execute("SELECT count(*) FROM messages").fetchone()
    db.prune_sessions(50)
    db._engine.shrink()
    raw.execute("COMMIT")
    full = size(db)
    db._engine.shrink()
    assert size(db) < full * 0.5
    assert db.verify().ok


def test_a_file_without_incremental_vacuum_is_vacuumed(db: SessionDB) -> None:
    path = db.db_path
    fill(db, 30)
    db.close()
    plain = sqlite3.connect(path)
    plain.execute("PRAGMA auto_vacuum=NONE")
    plain.execute("VACUUM")
    plain.close()
    with SessionDB(path) as again:
        assert again.raw().execute("PRAGMA auto_vacuum").fetchone()[0] == 0
        full = size(again)
        again.prune_sessions(50)
        done = again._engine.shrink()
        assert size(again) == done.after < full * 0.5


def test_vacuum_releases_space_and_keeps_everything(db: SessionDB) -> None:
    say(db, "a", "needle", *(f"{nth} " * 2000 for nth in range(100)))
    say(db, "b", "kept needle")
    db.search_messages("needle")
    db.delete_session("a")
    db.raw().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = db.db_path.stat().st_size
    db.vacuum()
    assert db.db_path.stat().st_size < before
    assert contents_of(db.get_messages("b")) == ["kept needle"]
    assert [row["session_id"] for row in db.search_messages("needle")] == ["b"]
    assert db.verify().ok
