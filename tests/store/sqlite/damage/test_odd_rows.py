"""Other programs have written unusual values. These values prevent neither an operation nor a repair."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.store.sqlite.damage.file_damage import (
    PAGE,
    SCHEMAS,
    assert_whole,
    ids_on_page,
    overwrite,
    pages_of,
    repaired,
    sql,
    stored_messages,
    zero,
)

ODD_ROWS = {
    "bytes for content": (
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES ('s0', 'user', x'6f6b61706920ff', 1.0)"
    ),
    "bytes for a tool": (
        "INSERT INTO messages (session_id, role, content, tool_name, tool_calls, timestamp)"
        " VALUES ('s0', 'tool', 'okapi', x'ff', x'fe', 1.0)"
    ),
    "bytes for a role": (
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s0', x'ff', 'okapi', 1.0)"
    ),
    "bytes for an id": (
        "INSERT INTO sessions (id, source, started_at) VALUES (x'0102', 'cli', 1.0);"
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES (x'0102', 'user', 'okapi', 1.0)"
    ),
    "a time in words": (
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES ('s0', 'user', 'okapi', '2024-05-01T10:00:00')"
    ),
    "times in words of a session": (
        "INSERT INTO sessions (id, source, started_at) VALUES ('w', 'cli', '2024-05-01T10:00:00');"
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES ('w', 'user', 'okapi', datetime('now'))"
    ),
    "counts in words": (
        "UPDATE sessions SET message_count = 'many', tool_call_count = 'some' WHERE id = 's0';"
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s0', 'user', 'okapi', 1.0)"
    ),
}


@pytest.mark.parametrize("odd", ODD_ROWS)
def test_an_odd_row_is_found_listed_and_exported_like_any_other(store: Path, odd: str) -> None:
    with sql(store) as connection:
        connection.execute(ODD_ROWS[odd]).fetchall()
    with SessionDB(store) as db:
        for _ in range(2):  # first without the index, then with it
            found = db.search_messages("okapi")
            assert len(found) == 1
            assert "okapi" in found[0]["snippet"]
            assert len(db.search_sessions_ranked("okapi")) == 1
            db.optimize()
        owner = found[0]["session_id"]
        assert owner in {row["id"] for row in db.list_sessions_rich(order_by_last_active=True)}
        exported = db.export_session(owner)
        assert exported is not None
        assert db.get_messages(owner) == exported["messages"]
        assert db.get_messages_as_conversation(owner)[-1]["content"].startswith("okapi")
        db.append_message(owner, "user", "goes on")
        assert len(db.search_messages("okapi")) == 1
        row = db.get_session(owner)
        assert row is not None
        assert isinstance(row["last_active"], float)
        assert db.verify().ok, db.verify().lines()
    assert "no problems found" in repaired(store).lines()[0]
    assert_whole(store)


@pytest.mark.parametrize("odd", ODD_ROWS)
def test_an_odd_row_does_not_prevent_the_repair_of_others(store: Path, odd: str) -> None:
    with sql(store) as connection:
        connection.execute(ODD_ROWS[odd]).fetchall()
    before = stored_messages(store)
    gone = ids_on_page(store, pages_of(store, "messages")[3])
    zero(store, "messages", at=3)
    repaired(store)
    assert stored_messages(store) == {number: row for number, row in before.items() if number not in gone}
    with SessionDB(store) as db:
        assert len(db.search_messages("okapi")) == 1
    assert_whole(store)


def test_a_session_without_an_id_prevents_nothing(home: Path) -> None:
    home.mkdir()
    path = home / "state.db"
    with sql(path) as connection:
        connection.execute((SCHEMAS / "v11.sql").read_text()).fetchall()
        connection.execute("INSERT INTO sessions (id, source, started_at) VALUES (NULL, 'cli', 1.0)")
        connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('a', 'cli', 2.0)")
    with SessionDB(path) as db:
        for at in range(200):
            db.append_message("a", "user", f"kept{at} " + "words " * 40)
        assert db.verify().ok, db.verify().lines()
    assert "no problems found" in repaired(path).lines()[0]
    zero(path, "messages", at=2)
    report = repaired(path)
    with SessionDB(path) as db:
        assert db.session_count() == 2 or "1 row of sessions, which violate its constraints" in report.lost
        assert len(db.get_messages("a")) > 150
    assert_whole(path)


def test_text_of_another_encoding_is_carried_over(home: Path) -> None:
    home.mkdir()
    path = home / "state.db"
    with sql(path) as connection:
        connection.execute("PRAGMA encoding='UTF-16'").fetchall()
        connection.execute((SCHEMAS / "v11.sql").read_text()).fetchall()
        connection.execute("INSERT INTO sessions (id, source, started_at) VALUES ('höhle', 'cli', 1.0)")
        for at in range(300):
            connection.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('höhle', 'user', ?, ?)",
                (f"日本{at} " + "text " * 50, float(at)),
            )
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    with pytest.raises(errors.MigrationFailed, match=r"UTF-16.*hermes sessions repair"):
        SessionDB(path)
    whole = path.read_bytes()
    looked = SessionDB.repair_file(path, check_only=True)
    assert not looked.ok
    assert "UTF-16" in looked.lines()[0]
    report = repaired(path)
    assert report.lost == ()
    with SessionDB(path) as db:
        assert [m["content"].split()[0] for m in db.get_messages("höhle")] == [f"日本{n}" for n in range(300)]
        assert db.get_messages("höhle")[0]["timestamp"] == 0.0
        assert len(db.search_messages("日本299")) == 1
    assert_whole(path)

    path.write_bytes(whole)
    page = pages_of(path, "messages")[3]
    gone = ids_on_page(path, page)
    overwrite(path, page)
    repaired(path)
    with SessionDB(path) as db:
        assert [m["id"] for m in db.get_messages("höhle")] == [n for n in range(1, 301) if n not in gone]
    assert_whole(path)


@pytest.mark.parametrize("seed", range(12))
def test_a_repair_recovers_every_page_that_was_not_overwritten(store: Path, seed: int) -> None:
    """Several pages are overwritten with zeros, with random bytes, or with the bytes of another page."""
    chance = random.Random(seed)
    before = stored_messages(store)
    count = store.stat().st_size // PAGE
    hit = set(chance.sample(range(1, count + 1), chance.randint(1, 8)))
    safe = {
        number
        for page in pages_of(store, "messages")
        if page not in hit
        for number in ids_on_page(store, page)
        if len(before[number]["content"]) < 1000
    }
    for page in hit:
        other = chance.choice([p for p in range(1, count + 1) if p not in hit])
        with store.open("rb") as file:
            file.seek((other - 1) * PAGE)
            twin = file.read(PAGE)
        overwrite(store, page, chance.choice([b"\0" * PAGE, chance.randbytes(PAGE), twin]))
    repaired(store)
    after = stored_messages(store)
    assert {number: after.get(number) for number in safe} == {number: before[number] for number in safe}
    assert set(after) <= set(before)
    assert_whole(store)
