"""An invalid argument raises one clear error of the classes in `hermes.errors`. Nothing is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from hermes import errors
from hermes_state import SessionDB
from tests.interface.conftest import say, session
from tests.stored_rows import read_rows

Verb = Callable[[Any], Any]
NAN, LIST = math.nan, ["x"]

BAD_WRITES: dict[str, Verb] = {
    "create: id None": lambda db: db.create_session(None, "cli"),
    "create: id number": lambda db: db.create_session(5, "cli"),
    "create: id bytes": lambda db: db.create_session(b"x", "cli"),
    "create: source None": lambda db: db.create_session("new", None),
    "create: source number": lambda db: db.create_session("new", 5),
    "create: source empty": lambda db: db.create_session("new", ""),
    "create: source blank": lambda db: db.create_session("new", " \t\n"),
    "ensure: source empty": lambda db: db.ensure_session("new", ""),
    "ensure: source blank": lambda db: db.ensure_session("a", "\u00a0"),
    "route: platform blank": lambda db: db.routing.route("k", " ", "dm", "1", None, None, "a"),
    "inbox: platform empty": lambda db: db.inbox.accept("k", "", {}),
    "outbox: platform empty": lambda db: db.outbox.enqueue("k", "", {}, "once"),
    "create: model list": lambda db: db.create_session("new", "cli", model=LIST),
    "create: model_config text": lambda db: db.create_session("new", "cli", model_config="text"),
    "create: system_prompt list": lambda db: db.create_session("new", "cli", system_prompt=LIST),
    "create: user_id list": lambda db: db.create_session("new", "cli", user_id=LIST),
    "create: parent list": lambda db: db.create_session("new", "cli", parent_session_id=LIST),
    "create: started_at text": lambda db: db.create_session("new", "cli", started_at="yesterday"),
    "create: started_at nan": lambda db: db.create_session("new", "cli", started_at=NAN),
    "create: started_at infinite": lambda db: db.create_session("new", "cli", started_at=math.inf),
    "ensure: source None": lambda db: db.ensure_session("new", None),
    "end: reason list": lambda db: db.end_session("a", LIST),
    "prompt: list": lambda db: db.update_system_prompt("a", LIST),
    "tokens: text": lambda db: db.update_token_counts("a", input_tokens="many"),
    "tokens: cost text": lambda db: db.update_token_counts("a", estimated_cost_usd="much"),
    "tokens: id None": lambda db: db.update_token_counts(None, 1),
    "append: role None": lambda db: db.append_message("a", None, "x"),
    "append: role number": lambda db: db.append_message("a", 5, "x"),
    "append: session None": lambda db: db.append_message(None, "user", "x"),
    "append: tool_name list": lambda db: db.append_message("a", "tool", "x", tool_name=LIST),
    "append: tool_call_id list": lambda db: db.append_message("a", "tool", "x", tool_call_id=LIST),
    "append: token_count text": lambda db: db.append_message("a", "user", "x", token_count="many"),
    "append: finish_reason list": lambda db: db.append_message("a", "user", "x", finish_reason=LIST),
    "append: reasoning list": lambda db: db.append_message("a", "assistant", "x", reasoning=LIST),
    "append: timestamp text": lambda db: db.append_message("a", "user", "x", timestamp="now"),
    "append: timestamp enormous": lambda db: db.append_message("a", "user", "x", timestamp=10**400),
    "append: timestamp nan": lambda db: db.append_message("a", "user", "x", timestamp=NAN),
    "replace: None": lambda db: db.replace_messages("a", None),
    "replace: number": lambda db: db.replace_messages("a", 5),
    "replace: list of text": lambda db: db.replace_messages("a", ["x"]),
    "title: number": lambda db: db.set_session_title("a", 5),
    "title: list": lambda db: db.set_session_title("a", LIST),
    "title: too long": lambda db: db.set_session_title("a", "x" * 101),
    "meta: key None": lambda db: db.set_meta(None, "x"),
    "meta: value list": lambda db: db.set_meta("key", LIST),
}
BAD_READS: dict[str, Verb] = {
    "list: limit text": lambda db: db.list_sessions_rich(limit="ten"),
    "list: offset text": lambda db: db.list_sessions_rich(offset="ten"),
    "list: source list": lambda db: db.list_sessions_rich(source=LIST),
    "list: excluded number": lambda db: db.list_sessions_rich(exclude_sources=5),
    "search: limit text": lambda db: db.search_messages("hello", limit="ten"),
    "search: sources number": lambda db: db.search_messages("hello", source_filter=5),
    "search: roles number": lambda db: db.search_messages("hello", role_filter=5),
    "open: path number": lambda db: SessionDB(5),  # type: ignore[arg-type]
    "open: durability": lambda db: SessionDB(durability="some"),
}

ASKED_WITH_HALF_A_CHARACTER: dict[str, Verb] = {
    "get_session": lambda db: db.get_session("\ud800"),
    "get_messages": lambda db: db.get_messages("\ud800"),
    "conversation": lambda db: db.get_messages_as_conversation("\ud800", include_ancestors=True),
    "resolve_session_id": lambda db: db.resolve_session_id("\ud800"),
    "resolve_session_by_title": lambda db: db.resolve_session_by_title("\ud800"),
    "get_session_by_title": lambda db: db.get_session_by_title("\ud800"),
    "get_session_title": lambda db: db.get_session_title("\ud800"),
    "get_meta": lambda db: db.get_meta("\ud800"),
    "list by source": lambda db: db.list_sessions_rich(source="\ud800"),
    "search by source": lambda db: db.search_messages("hello", source_filter=["\ud800"]),
    "count by source": lambda db: db.session_count("\ud800"),
    "end_session": lambda db: db.end_session("\ud800", "cli_close"),
}

TABLES = ("sessions", "messages", "state_meta", "model_usage")


def everything(db: SessionDB) -> list[list[Any]]:
    return [read_rows(db, f"SELECT * FROM {table}") for table in TABLES]


@pytest.fixture
def a(db: SessionDB) -> SessionDB:
    say(db, "a", "hello", "again")
    db.search_messages("hello")
    db.list_sessions_rich()
    return db


@pytest.mark.parametrize("verb", BAD_WRITES.values(), ids=BAD_WRITES.keys())
def test_invalid_values_are_one_clear_error_and_not_written(a: SessionDB, verb: Verb) -> None:
    before = everything(a)
    with pytest.raises(errors.HermesError) as refused:
        verb(a)
    assert str(refused.value).strip()
    assert "\n" not in str(refused.value)
    assert everything(a) == before
    assert a.append_message("a", "user", "still here") > 2


@pytest.mark.parametrize("source", ["", "  ", "\n"])
def test_a_blank_source_is_a_value_error(a: SessionDB, source: str) -> None:
    for verb in (a.create_session, a.ensure_session):
        with pytest.raises(ValueError, match="source must not be empty"):
            verb("new", source)
    assert a.get_session("new") is None


@pytest.mark.parametrize("source", ["", "  ", None])
def test_an_import_without_a_source_gets_the_source_unknown(a: SessionDB, source: str | None) -> None:
    a.import_sessions([{"id": "new", "source": source, "messages": [{"role": "user", "content": "x"}]}])
    row = a.get_session("new")
    assert row is not None
    assert row["source"] == "unknown"


@pytest.mark.parametrize("verb", BAD_READS.values(), ids=BAD_READS.keys())
def test_an_invalid_query_is_one_clear_error(a: SessionDB, verb: Verb) -> None:
    with pytest.raises((errors.HermesError, TypeError, ValueError)) as refused:
        verb(a)
    assert str(refused.value).strip()
    assert "\n" not in str(refused.value)
    assert len(a.search_messages("hello")) == 1


@pytest.mark.parametrize("verb", ASKED_WITH_HALF_A_CHARACTER.values(), ids=ASKED_WITH_HALF_A_CHARACTER.keys())
def test_an_impossible_name_finds_nothing(a: SessionDB, verb: Verb) -> None:
    try:
        found = verb(a)
    except errors.HermesError:
        return
    assert not found


def test_a_session_named_with_half_a_character_is_refused_or_works(db: SessionDB) -> None:
    try:
        db.create_session("id\ud800", "cli")
    except errors.HermesError:
        return
    db.append_message("id\ud800", "user", "hello")
    assert len(db.get_messages("id\ud800")) == 1


@pytest.mark.parametrize("absolute", [False, True])
@pytest.mark.parametrize("lost", [None, NAN])
def test_a_counter_is_never_lost(a: SessionDB, lost: Any, absolute: bool) -> None:
    a.update_token_counts("a", input_tokens=5)
    try:
        a.update_token_counts("a", input_tokens=lost, absolute=absolute)
    except errors.HermesError:
        assert session(a, "a")["input_tokens"] == 5
    assert type(session(a, "a")["input_tokens"]) is int


def test_one_source_instead_of_a_list_is_refused_or_understood(a: SessionDB) -> None:
    try:
        found = a.search_messages("hello", source_filter="cli")
    except errors.HermesError:
        return
    assert len(found) == 1
