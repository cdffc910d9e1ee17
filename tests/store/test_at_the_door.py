"""An invalid argument raises one clear error and loses no data, or it is converted to the nearest valid
value.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.stored_rows import change_rows

HUGE = 10**400


@pytest.mark.parametrize("path", [5, "a\0b", b"a\0b", object()])
def test_an_invalid_path(path: Any) -> None:
    with pytest.raises(errors.InvalidArgument, match="db_path must be a path"):
        SessionDB(path)


NONSENSE: dict[str, Callable[[SessionDB], object]] = {
    "an id too large for a number": lambda db: db.get_session(HUGE),  # type: ignore[arg-type]
    "an id that is a list": lambda db: db.get_messages_as_conversation(["a"], include_ancestors=True),  # type: ignore[arg-type]
    "the tip of a list": lambda db: db.get_compression_tip(["a"]),  # type: ignore[arg-type]
    "an import of nothing": lambda db: db.import_sessions(None),  # type: ignore[arg-type]
    "an import of one session": lambda db: db.import_sessions({"id": "x"}),  # type: ignore[dict-item]
    "an import from the end of time": lambda db: db.import_sessions(
        [{"id": "x", "messages": [{"role": "user", "content": "y", "timestamp": HUGE}]}]
    ),
    "no limit": lambda db: db.list_unlinked_telegram_sessions_for_user(
        chat_id="1",
        user_id="1",
        limit=None,  # type: ignore[arg-type]
    ),
    "a query that is none": lambda db: db._sanitize_fts5_query(None),  # type: ignore[arg-type]
    "a time without end": lambda db: db.replace_messages(
        "a", [{"role": "user", "content": "y", "timestamp": float("inf")}]
    ),
    "a time that is no number": lambda db: db.replace_messages(
        "a", [{"role": "user", "content": "y", "timestamp": float("nan")}]
    ),
    "a time of four hundred digits": lambda db: db.replace_messages(
        "a", [{"role": "user", "content": "y", "timestamp": HUGE}]
    ),
    "a folder that is a number": lambda db: db.delete_session("a", sessions_dir=5),  # type: ignore[arg-type]
    "days that are no number": lambda db: db.prune_sessions(float("nan")),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_an_invalid_argument_is_one_error_and_changes_nothing(db: SessionDB, case: str) -> None:
    db.create_session("a", "cli")
    db.append_message("a", "user", "kept")
    with pytest.raises(errors.InvalidArgument) as caught:
        NONSENSE[case](db)
    assert "\n" not in str(caught.value)
    assert [row["content"] for row in db.get_messages("a")] == ["kept"]
    assert db.session_count() == 1


def test_a_very_large_number_of_days_prunes_nothing(db: SessionDB) -> None:
    db.create_session("a", "cli", started_at=1.0)
    db.end_session("a", "done")
    assert db.prune_sessions(HUGE) == 0
    assert db.prune_sessions(float("inf")) == 0
    assert db.session_count() == 1


def test_maintenance_with_invalid_arguments_does_not_run(db: SessionDB) -> None:
    assert "retention_days" in db.maybe_auto_prune_and_vacuum(retention_days=float("nan"))["error"]
    assert db.maybe_auto_prune_and_vacuum()["skipped"] is False


def test_values_that_json_cannot_represent_are_stored_as_text(db: SessionDB) -> None:
    db.create_session("a", "cli", model_config={"place": Path("/x"), "size": 1})
    db.append_message("a", "assistant", None, tool_calls=[{"id": "c", "at": Path("/x")}])
    session = db.get_session("a")
    assert session is not None
    assert session["model_config"] == '{"place":"/x","size":1}'
    assert db.get_messages("a")[0]["tool_calls"] == [{"id": "c", "at": "/x"}]


@pytest.mark.parametrize("said", [5, 5.5, True, 2**70])
def test_a_number_is_stored_and_previewed_in_the_same_form(db: SessionDB, said: Any) -> None:
    db.create_session("a", "cli")
    db.append_message("a", "user", said)
    assert db.list_sessions_rich()[0]["preview"] == db.get_messages("a")[0]["content"] == str(said)
    assert db.verify().ok


def test_an_id_is_not_a_pattern(db: SessionDB) -> None:
    for name in ("abc", "L" * 1500):
        db.create_session(name, "cli")
    assert db.resolve_session_id("abc\0zzz") is None
    assert db.resolve_session_id("L" * 1500) == "L" * 1500
    assert db.resolve_session_id("L" * 1400) is None


def test_a_source_may_have_any_name(db: SessionDB) -> None:
    for name in ("a", "b", "a|b"):
        db.create_session(f"of {name}", name)
    assert {row["source"] for row in db.list_sessions_rich(exclude_sources=["a|b"])} == {"a", "b"}
    assert [row["source"] for row in db.list_conversations(sources=["a|b"]).rows] == ["a|b"]


@pytest.mark.parametrize("asked", ["api_server", "api-server"])
def test_a_source_in_another_spelling_is_the_same(db: SessionDB, asked: str) -> None:
    change_rows(db, "INSERT INTO sessions (id, source, started_at) VALUES ('api-1', 'api_server', 1.0)")
    change_rows(
        db,
        "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('api-1', 'user', 'pelicans', 2.0)",
    )
    assert len(db.search_messages("pelicans", source_filter=[asked])) == 1
    assert db.search_messages("pelicans", exclude_sources=[asked]) == []
    assert db.session_count(asked) == 1
    assert [row["source"] for row in db.list_sessions_rich(source=asked)] == ["api-server"]
    assert db.list_sessions_rich(exclude_sources=[asked]) == []


def test_sessions_that_are_their_own_ancestors_are_listed(db: SessionDB) -> None:
    for name in ("a", "b", "below"):
        db.create_session(name, "cli")
    for child, parent in (("a", "b"), ("b", "a"), ("below", "a")):
        change_rows(db, "UPDATE sessions SET parent_session_id = ? WHERE id = ?", parent, child)
    assert {row["id"] for row in db.list_sessions_rich()} == {"a", "b"}
    assert {row["id"] for row in db.list_conversations().rows} == {"a", "b"}
    assert db.verify().ok
