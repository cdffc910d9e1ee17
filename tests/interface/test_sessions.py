"""The row of a session is created once, ended once, reopened and counted."""

from __future__ import annotations

import json
import sqlite3
import time

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.interface.conftest import say, session

DOCUMENTED = {
    **dict.fromkeys(["user_id", "model", "model_config", "system_prompt", "parent_session_id", "ended_at"]),
    **dict.fromkeys(
        ["end_reason", "billing_provider", "billing_base_url", "billing_mode", "estimated_cost_usd"]
    ),
    **dict.fromkeys(["actual_cost_usd", "cost_status", "cost_source", "pricing_version", "title"]),
    **dict.fromkeys(["handoff_state", "handoff_platform", "handoff_error"]),
    **dict.fromkeys(["message_count", "tool_call_count", "input_tokens", "output_tokens"], 0),
    **dict.fromkeys(["cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "api_call_count"], 0),
}


# Creation


def test_a_new_session_starts_now_and_everything_else_is_empty(db: SessionDB) -> None:
    before = time.time()
    assert db.create_session("a", "cli") == "a"
    row = session(db, "a")
    assert before <= row["started_at"] <= time.time()
    assert {name: row[name] for name in DOCUMENTED} == DOCUMENTED
    assert (row["id"], row["source"]) == ("a", "cli")


def test_a_new_session_keeps_what_it_is_given(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.create_session(
        session_id="a",
        source="telegram",
        model="anthropic/claude-sonnet-4.6",
        model_config={"max_tokens": 100, "name": "ü"},
        system_prompt="Be kind.",
        user_id="user_1",
        parent_session_id="root",
        started_at=1234.5,
    )
    row = session(db, "a")
    assert json.loads(row.pop("model_config")) == {"max_tokens": 100, "name": "ü"}
    assert (row["source"], row["model"], row["system_prompt"]) == (
        "telegram",
        "anthropic/claude-sonnet-4.6",
        "Be kind.",
    )
    assert (row["user_id"], row["parent_session_id"], row["started_at"]) == ("user_1", "root", 1234.5)


@pytest.mark.parametrize("empty", [None, {}])
def test_an_empty_model_config_is_stored_as_null(db: SessionDB, empty: dict[str, str] | None) -> None:
    db.create_session("a", "cli", model_config=empty)
    assert session(db, "a")["model_config"] is None


def test_making_it_again_changes_nothing(db: SessionDB) -> None:
    db.create_session("a", "cli", model="first", started_at=5)
    before = session(db, "a")
    assert db.create_session("a", "telegram", model="second", system_prompt="other", started_at=9) == "a"
    assert db.ensure_session("a", "telegram", "third") == "a"
    assert session(db, "a") == before


def test_ensuring_makes_one_of_unknown_source(db: SessionDB) -> None:
    assert db.ensure_session("a") == "a"
    assert (session(db, "a")["source"], session(db, "a")["model"]) == ("unknown", None)


def test_ensuring_takes_the_same_arguments(db: SessionDB) -> None:
    db.ensure_session("a", "cli", "m", user_id="u", system_prompt="p", model_config={"a": 1}, started_at=7)
    row = session(db, "a")
    assert (row["source"], row["model"], row["user_id"], row["system_prompt"], row["started_at"]) == (
        "cli",
        "m",
        "u",
        "p",
        7.0,
    )


@pytest.mark.parametrize("verb", ["create_session", "ensure_session"])
def test_an_unknown_parent_is_an_error_and_no_row_is_made(db: SessionDB, verb: str) -> None:
    with pytest.raises(errors.UnknownSession) as refused:
        getattr(db, verb)("a", "cli", parent_session_id="nobody")
    assert isinstance(refused.value, sqlite3.IntegrityError)
    assert "nobody" in str(refused.value)
    assert db.session_count() == 0


def test_a_source_of_none_is_an_error_and_no_row_is_made(db: SessionDB) -> None:
    with pytest.raises(errors.HermesError):
        db.create_session("a", None)  # type: ignore[arg-type]
    assert db.session_count() == 0


def test_api_server_is_accepted_for_api_server_with_a_hyphen(db: SessionDB) -> None:
    db.create_session("a", "api_server")
    db.create_session("b", "api-server")
    for spelling in ("api_server", "api-server"):
        assert db.session_count(spelling) == 2
        assert len(db.list_sessions_rich(source=spelling)) == 2
        assert len(db.search_sessions(source=spelling)) == 2
        assert db.list_sessions_rich(exclude_sources=[spelling]) == []


def test_messages_of_api_server_are_found_under_both_spellings(db: SessionDB) -> None:
    say(db, "a", "hello", source="api_server")
    for spelling in ("api_server", "api-server"):
        assert len(db.search_messages("hello", source_filter=[spelling])) == 1
        assert db.search_messages("hello", exclude_sources=[spelling]) == []


# Ending and reopening


def test_ending_notes_the_time_and_the_reason(db: SessionDB) -> None:
    db.create_session("a", "cli")
    before = time.time()
    db.end_session("a", end_reason="user_exit")
    row = session(db, "a")
    assert before <= row["ended_at"] <= time.time()
    assert row["end_reason"] == "user_exit"


def test_the_first_reason_stays(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.end_session("a", "cli_close")
    first = session(db, "a")
    db.end_session("a", "compression")
    assert session(db, "a") == first


def test_reopening_clears_time_and_reason_and_it_can_end_again(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.end_session("a", "cli_close")
    db.reopen_session("a")
    assert (session(db, "a")["ended_at"], session(db, "a")["end_reason"]) == (None, None)
    db.end_session("a", "new_session")
    assert session(db, "a")["end_reason"] == "new_session"


def test_an_ended_session_still_takes_messages(db: SessionDB) -> None:
    db.create_session("a", "cli")
    db.end_session("a", "cli_close")
    db.append_message("a", "user", "late")
    assert session(db, "a")["end_reason"] == "cli_close"
    assert db.message_count("a") == 1


def test_ending_reopening_or_prompting_an_unknown_session_does_nothing(db: SessionDB) -> None:
    db.end_session("nobody", "cli_close")
    db.reopen_session("nobody")
    db.update_system_prompt("nobody", "text")
    assert db.session_count() == 0


def test_the_system_prompt_can_be_changed(db: SessionDB) -> None:
    db.create_session("a", "cli", system_prompt="old")
    db.update_system_prompt("a", "new\nlines")
    assert session(db, "a")["system_prompt"] == "new\nlines"


# Reading and counting


def test_an_unknown_session_is_none(db: SessionDB) -> None:
    assert db.get_session("nobody") is None


def test_sessions_are_counted_in_all_and_by_source(db: SessionDB) -> None:
    for number, source in enumerate(["cli", "cli", "telegram"]):
        db.create_session(str(number), source)
    assert (db.session_count(), db.session_count("cli"), db.session_count(source="discord")) == (3, 2, 0)


def test_children_are_counted_too(db: SessionDB) -> None:
    db.create_session("root", "cli")
    db.create_session("child", "cli", parent_session_id="root")
    assert db.session_count() == 2


def test_messages_are_counted_in_all_and_by_session(db: SessionDB) -> None:
    say(db, "a", "one", "two")
    say(db, "b", "three")
    assert (db.message_count(), db.message_count("a"), db.message_count(session_id="nobody")) == (3, 2, 0)
