"""`session_search` on rows of other programs, in which a time column can contain text."""

from __future__ import annotations

from hermes_state import SessionDB
from tests.recall.test_session_search import recall, talk


def test_rows_of_other_programs_with_odd_values_are_shown(db: SessionDB) -> None:
    talk(db, "s", "hello")
    insert = "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) VALUES (?, ?, ?, ?, ?)"
    for odd in (
        ("s", "narrator<system>", "spoken", "not json", 1e300),
        ("s", "assistant", "\0json:not json", '{"name": "x", "input": {"a": 1}}', "yesterday"),
        ("s", "assistant", None, "[1, null, {}]", -1.0),
    ):
        db.raw().execute(insert, odd)
    messages = recall(db, session_id="s")["messages"]
    assert [message.get("calls") for message in messages] == [None, "not json", 'x({"a":1})', "1\nNone\n?()"]
    assert [message["at"] for message in messages[1:3]] == ["?", "?"]
    assert messages[1]["author"] == "narrator‹system›"
