"""Message search: operators, filters, and the format of a result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_state import SessionDB
from tests.interface.conftest import Row, compress, ids, say

KEYS = {
    *("id", "session_id", "role", "snippet", "timestamp", "tool_name", "source", "model", "session_started"),
    "context",
}
TEXTS = {
    "both": "docker deployment on friday",
    "docker": "the docker build",
    "kubernetes": "kubernetes cluster",
    "java": "python and java",
    "python": "python only",
    "phrase": "this is an exact phrase here",
    "apart": "phrase that is exact",
    "hyphen": "run docker-compose up",
    "dot": "edit config.yaml now",
    "underscore": "call my_func_name twice",
    "accent": "Das Café ist schön",
    "cjk": "大规模语言模型的部署",
    "kana": "日本語のテスト",
    "hangul": "한국어 검색",
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionDB]:
    """Create a session for each text, with the text as its only message."""
    with SessionDB(tmp_path_factory.mktemp("texts") / "state.db") as store:
        for name, text in TEXTS.items():
            say(store, name, text)
        yield store


def found(db: SessionDB, query: str, **wanted: Any) -> set[str]:
    return {row["session_id"] for row in db.search_messages(query, **wanted)}


def only(rows: list[Row]) -> Row:
    (row,) = rows
    return row


# Matches


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("docker deployment", {"both"}),
        ("deployment docker", {"both"}),
        ("docker AND deployment", {"both"}),
        ("docker", {"both", "docker", "hyphen"}),
        ("DOCKER", {"both", "docker", "hyphen"}),
        ("deployment OR kubernetes", {"both", "kubernetes"}),
        ("python NOT java", {"python"}),
        ('"exact phrase"', {"phrase"}),
        ("exact phrase", {"phrase", "apart"}),
        ("deploy", {"both"}),
        ("deploy*", {"both"}),
        ("kube* OR frid*", {"both", "kubernetes"}),
        ('"python only" OR "docker build"', {"python", "docker"}),
        ("docker-compose", {"hyphen"}),
        ("docker-build", set()),
        ("config.yaml", {"dot"}),
        ("config", {"dot"}),
        ("my_func_name", {"underscore"}),
        ("func_name", {"underscore"}),
        ("cafe", {"accent"}),
        ("CAFÉ schon", {"accent"}),
        ("大", {"cjk"}),
        ("模型", {"cjk"}),
        ("语言模型", {"cjk"}),
        ("模型 AND 部署", {"cjk"}),
        ("模型 NOT 部署", set()),
        ("模型 OR テスト", {"cjk", "kana"}),
        ("テスト", {"kana"}),
        ("本語の", {"kana"}),
        ("검색", {"hangul"}),
        ("한국", {"hangul"}),
        ("型模", set()),
        ("nothing", set()),
    ],
)
def test_what_a_query_finds(texts: SessionDB, query: str, names: set[str]) -> None:
    assert found(texts, query) == names


@pytest.mark.parametrize(
    "query", ["", "   ", "\n\t", '"', '""', '"  "', "*", "***", "AND", "OR", "NOT AND", "\u200b"]
)
def test_an_empty_query_finds_nothing(texts: SessionDB, query: str) -> None:
    assert texts.search_messages(query) == []


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("hello AND", set()),
        ("python AND", {"python", "java"}),
        ("OR python", {"python", "java"}),
        ('"python only', {"python"}),
        ("*kubernetes", set()),
        ("kubernetes**", {"kubernetes"}),
    ],
)
def test_incomplete_syntax_is_ignored(texts: SessionDB, query: str, names: set[str]) -> None:
    assert names <= found(texts, query)


@given(
    st.text(st.characters(exclude_categories=())) | st.text(st.sampled_from('"*()^{}+-:/.\\_ANDORT 大語a1'))
)
@example("a:b")
@example("path/to/file")
@example("NEAR(a b, 5)")
@example("content : docker")
@example("AND OR NOT")
@example("'; DROP TABLE messages; --")
@example("\ud800")
@example("\x00")
@example("x" * 5000)
@example("a OR " * 500)
def test_any_string_is_a_valid_query(texts: SessionDB, query: str) -> None:
    assert isinstance(texts.search_messages(query), list)


@pytest.mark.parametrize(
    "fields",
    [
        {"content": "needle"},
        {"content": "x", "tool_name": "needle"},
        {"content": "x", "tool_calls": [{"function": {"name": "needle", "arguments": "{}"}}]},
        {"content": "x", "tool_calls": [{"function": {"name": "run", "arguments": '{"path": "needle"}'}}]},
        {"content": [{"type": "text", "text": "the needle"}]},
    ],
)
def test_content_tool_name_and_tool_calls_are_searched(db: SessionDB, fields: dict[str, Any]) -> None:
    db.create_session("a", "cli")
    number = db.append_message("a", "assistant", **fields)
    assert ids(db.search_messages("needle")) == [number]


def test_a_message_is_found_as_soon_as_it_is_stored(db: SessionDB) -> None:
    db.create_session("a", "cli")
    for nth in range(30):
        number = db.append_message("a", "user", f"word{nth}")
        assert ids(db.search_messages(f"word{nth}")) == [number]


# Filters and pages


@pytest.fixture
def places(db: SessionDB) -> SessionDB:
    for source in ("cli", "telegram", "discord"):
        db.create_session(source, source)
        db.append_message(source, "user", "error")
        db.append_message(source, "assistant", "error")
    return db


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        ({}, 6),
        ({"source_filter": ["cli"]}, 2),
        ({"source_filter": ["cli", "discord"]}, 4),
        ({"source_filter": []}, 0),
        ({"source_filter": ["signal"]}, 0),
        ({"exclude_sources": ["telegram", "discord"]}, 2),
        ({"exclude_sources": []}, 6),
        ({"role_filter": ["user"]}, 3),
        ({"role_filter": ["user", "assistant"]}, 6),
        ({"role_filter": []}, 6),
        ({"role_filter": ["tool"]}, 0),
        ({"source_filter": ["cli", "telegram"], "exclude_sources": ["cli"], "role_filter": ["assistant"]}, 1),
        ({"limit": 4}, 4),
        ({"limit": 0}, 0),
        ({"offset": 5}, 1),
        ({"offset": 6}, 0),
    ],
)
def test_filters_combine(places: SessionDB, wanted: dict[str, Any], count: int) -> None:
    assert len(places.search_messages("error", **wanted)) == count


def test_arguments_may_be_given_by_position(places: SessionDB) -> None:
    assert len(places.search_messages("error", ["cli", "telegram"], ["telegram"], ["user"], 5, 0)) == 1


def test_pages_together_are_the_whole(places: SessionDB) -> None:
    pages = [only(places.search_messages("error", limit=1, offset=nth))["id"] for nth in range(6)]
    assert pages == ids(places.search_messages("error"))
    assert len(set(pages)) == 6


def test_twenty_results_unless_more_are_asked_for(db: SessionDB) -> None:
    say(db, "a", *["word"] * 25)
    assert len(db.search_messages("word")) == 20
    assert len(db.search_messages("word", limit=100)) == 25


def test_children_are_searched_too(db: SessionDB) -> None:
    say(db, "root", "needle")
    say(db, "subagent", "needle", parent_session_id="root")
    compress(db, "root", "tip", "needle")
    assert found(db, "needle") == {"root", "subagent", "tip"}


# The format of a result


def test_a_result_has_exactly_the_documented_keys(db: SessionDB) -> None:
    db.create_session("a", "cli", model="m", started_at=5)
    number = db.append_message("a", "tool", "the needle", tool_name="terminal", timestamp=7)
    row = only(db.search_messages("needle"))
    assert set(row) == KEYS
    assert {name: row[name] for name in KEYS - {"snippet", "context"}} == {
        "id": number,
        "session_id": "a",
        "role": "tool",
        "timestamp": 7.0,
        "tool_name": "terminal",
        "source": "cli",
        "model": "m",
        "session_started": 5.0,
    }


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("the docker build", "docker", "the >>>docker<<< build"),
        ("the Docker build", "docker", "the >>>Docker<<< build"),
        ("docker and docker", "docker", ">>>docker<<< and >>>docker<<<"),
        ("语言模型的部署", "模型", "语言>>>模型<<<的部署"),
        ("a café", "cafe", "a >>>café<<<"),
    ],
)
def test_the_snippet_marks_what_matched(db: SessionDB, text: str, query: str, marked: str) -> None:
    say(db, "a", text)
    assert only(db.search_messages(query))["snippet"] == marked


def test_the_snippet_of_a_long_text_is_short_and_around_the_match(db: SessionDB) -> None:
    say(db, "a", "before " * 500 + "needle " + "after " * 500)
    snippet = only(db.search_messages("needle"))["snippet"]
    assert ">>>needle<<<" in snippet
    assert snippet.startswith("...")
    assert snippet.endswith("...")
    assert len(snippet) < 600
