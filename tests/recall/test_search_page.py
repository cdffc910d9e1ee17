"""Each example on the documentation page about search is executed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes import clock
from hermes.recall.query.dates import read_date
from hermes_state import SessionDB

PAGE = (Path(__file__).parents[2] / "docs" / "search.md").read_text(encoding="utf-8")


def lines(kind: str) -> list[str]:
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def examples(kind: str) -> list[tuple[str, list[int]]]:
    return [
        (query.strip(), [int(number) for number in found.split()])
        for query, found in (line.rsplit("→", 1) for line in lines(kind))
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SessionDB, dict[int, int]]]:
    """Create the conversations and messages of the page. Return the store. Also return the number that the
    page gives each message, by message id."""
    numbers: dict[int, int] = {}
    with SessionDB(tmp_path_factory.mktemp("page") / "state.db") as db:
        for line in lines("conversations"):
            name, source, title, labels, workspace = shlex.split(line)
            db.create_session(name, source)
            if title != "-":
                db.set_session_title(name, title)
            if "pinned" in labels:
                db.pin_session(name)
            if "archived" in labels:
                db.set_session_archived(name, True)
            if tags := re.findall(r"#(\w+)", labels):
                db.add_tags(name, *tags)
            if workspace != "-":
                db.set_session_workspace(name, workspace)
        for line in lines("messages"):
            number, name, role, rest = line.split(maxsplit=3)
            when, text = re.split(r"\s{2,}", rest, maxsplit=1)
            span = read_date(when, clock.now())
            assert span is not None
            said = db.append_message(name, role, text, timestamp=span.start + 0.001)
            numbers[said] = int(number)
        yield db, numbers


Store = tuple[SessionDB, dict[int, int]]


def test_there_are_examples() -> None:
    assert len(examples("documented")) > 30
    assert len(examples("search")) > 40


@pytest.mark.parametrize(("query", "expected"), examples("documented"))
def test_a_documented_example_finds_what_the_page_says(store: Store, query: str, expected: list[int]) -> None:
    db, numbers = store
    assert sorted(numbers[row["id"]] for row in db.search_messages(query, limit=100)) == expected
    assert sorted(numbers[row["id"]] for row in db.search(query, limit=100)) == expected


@pytest.mark.parametrize(("query", "expected"), examples("search"))
def test_an_example_finds_what_the_page_says(store: Store, query: str, expected: list[int]) -> None:
    db, numbers = store
    assert sorted(numbers[row["id"]] for row in db.search(query, limit=100)) == expected


@pytest.mark.parametrize("line", lines("ranked"))
def test_a_ranked_example_finds_the_conversation_first(store: Store, line: str) -> None:
    db, _ = store
    query, expected = (half.strip() for half in line.rsplit("→", 1))
    assert db.search_sessions_ranked(query, limit=1)[0]["session_id"] == expected


def test_every_field_is_on_the_page() -> None:
    from hermes.recall.query.prompt_language import FIELDS, FLAGS

    for name in (*(f"{field}:" for field in FIELDS), *FLAGS):
        assert f"`{name}" in PAGE


def test_without_a_match_approximate_results_are_separate(store: Store) -> None:
    db, numbers = store
    found = db.search("retry budget umbrella")
    assert found == []
    assert {numbers[row["id"]] for row in found.nearest} >= {1, 2}
    assert db.search("retry budget").nearest == []
    assert db.search_messages("retry umbrella") == []
    assert db.search_messages("retry umbrella", relax=True).relaxed
