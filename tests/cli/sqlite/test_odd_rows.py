"""Commands can show any row that another program has stored."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from hermes_state import SessionDB
from tests.cli.conftest import AddSession, Hermes

DAY = 86400


ODD_VALUES = """UPDATE sessions SET title = x'ff41', source = x'fe', model = x'fd', user_id = x'fc' WHERE id = 'bytes';
    UPDATE messages SET role = x'ff', tool_name = x'fe', tool_calls = x'fd' WHERE session_id = 'bytes';
    UPDATE sessions SET started_at = '2024-05-01 10:00' WHERE id IN ('words', 'more');
    UPDATE sessions SET ended_at = '2024-05-01 11:00' WHERE id = 'words';
    UPDATE messages SET timestamp = '2024-05-01 10:00' WHERE session_id = 'words';
    INSERT INTO sessions (id, source, started_at) VALUES (x'0102', 'cli', 1.0);
    INSERT INTO messages (session_id, role, content, timestamp) VALUES (x'0102', 'user', x'6f6b617069ff', 1.0)"""


@pytest.mark.parametrize(
    "words",
    [
        ("list",), ("list", "--json"), ("search", "okapi"), ("search", "okapi", "--json"), ("show", "bytes"),
        ("show", "words"), ("tree", "words"), ("stats",), ("prune", "--dry-run"), ("trash", "list"), ("verify",),
        *(("export", f"out.{form}") for form in ("jsonl", "md", "html")),
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_shows_rows_of_another_program(
    hermes: Hermes, add_session: AddSession, db: SessionDB, tmp_path: Path, words: tuple[str, ...]
) -> None:
    for name in ("bytes", "words", "gone"):
        add_session(name, "an okapi", age=100 * DAY)
    for parent, child in (("words", "more"), ("gone", "with it")):
        db.end_session(parent, "compression")
        db.create_session(child, "cli", parent_session_id=parent)
    connection = apsw.Connection(str(db.db_path))
    connection.execute(ODD_VALUES).fetchall()
    connection.execute("UPDATE sessions SET started_at = 'then' WHERE id = 'with it'").fetchall()
    connection.close()
    db.delete_session("gone")
    if words[0] == "export":
        words = (words[0], str(tmp_path / words[1]))
    result = hermes("sessions", *words)
    assert (result.returncode, result.stderr) == (0, "")
