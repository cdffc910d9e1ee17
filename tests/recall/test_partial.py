"""If no message contains a word of the query, the search looks for longer words that contain it. The results
say so.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from hermes.recall.tool.search_tool import session_search
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests import warm_command

ANN = Principal("telegram", "ann", "dm", "dm-ann")
CALL = [{"id": "c1", "function": {"name": "run_pipeline", "arguments": '{"target": "fooQuxBarService"}'}}]


@pytest.fixture
def said(db: SessionDB) -> dict[str, int]:
    db.create_session("code", "cli")
    return {
        "code": db.append_message("code", "user", "call getUserByIdAndName before the deploy"),
        "other": db.append_message("code", "assistant", "the deploy went well"),
        "call": db.append_message("code", "assistant", "", tool_calls=CALL),
        "tool": db.append_message("code", "tool", "ok", tool_name="browser_navigate"),
    }


@pytest.mark.parametrize("state", ["unindexed", "indexed", "listed", "read only"])
@pytest.mark.parametrize(
    ("query", "expected", "parts"),
    [
        ("serById", "code", ("serById",)),
        ("SERBYID deploy", "code", ("SERBYID",)),
        ("serById yIdAn", "code", ("serById", "yIdAn")),
        ("serById NOT well", "code", ("serById",)),
        ('serById "the deploy"', "code", ("serById",)),
        ("uxBarSer", "call", ("uxBarSer",)),
        ("_pipel", "call", ("_pipel",)),
        ("wser_navi", "tool", ("wser_navi",)),
    ],
)
def test_a_word_that_no_message_contains_is_found_inside_words(
    db: SessionDB, said: dict[str, int], state: str, query: str, expected: str, parts: tuple[str, ...]
) -> None:
    if state != "unindexed":
        db._engine.catch_up(5)
    if state == "listed":
        db.search("*deploy*")
    with SessionDB(db.db_path, read_only=True) as reader:
        asked = reader if state == "read only" else db
        for search in (asked.search_messages, asked.search):
            found = search(query)
            assert [row["id"] for row in found] == [said[expected]]
            assert (found.partial, found.parts, found.relaxed) == (True, parts, False)


@pytest.mark.parametrize("query", ["deploy", "user", "getuserbyidandname", "depl*", '"the deploy"'])
def test_words_that_are_found_stay_words(db: SessionDB, said: dict[str, int], query: str) -> None:
    db.append_message("code", "user", "deployment usernames xdeploy")
    found = db.search_messages(query)
    assert found
    assert (found.partial, found.parts) == (False, ())
    assert all("xdeploy" not in row["snippet"] for row in found) or query == "depl*"


@pytest.mark.parametrize("query", ["se", '"serById"', "serById*", "deploy unheardof", "deploy NOT loy"])
def test_which_words_are_not_searched_as_parts(db: SessionDB, said: dict[str, int], query: str) -> None:
    """Words of two letters, phrases, prefixes and exclusions are not tried as parts of words. All other words
    of the query must still be present."""
    found = db.search_messages(query)
    assert not found.partial
    assert bool(found) == ("NOT" in query)


def test_the_part_is_marked_and_pages_continue(db: SessionDB) -> None:
    db.create_session("s", "cli")
    expected = [db.append_message("s", "user", f"see prefixQuokkaSuffix{number}") for number in range(12)]
    assert ">>>kkaSuf<<<" in db.search_messages("kkaSuf")[0]["snippet"]
    pages = [db.search_messages("kkaSuf", limit=5, offset=offset, sort="oldest") for offset in (0, 5, 10, 15)]
    assert [row["id"] for page in pages for row in page] == expected
    assert [page.partial for page in pages] == [True] * 4
    assert [page.capped for page in pages] == [True, True, False, False]


def test_filters_and_strictness_hold(db: SessionDB, said: dict[str, int]) -> None:
    assert not db.search_messages("serById", role_filter=["tool"])
    assert not db.search_messages("serById", source_filter=["telegram"])
    assert not db.search_messages("serById", relax=False)
    # A message of another role contains the whole word. The filter excludes that message.
    db.append_message("code", "assistant", "serById")
    assert [row["id"] for row in db.search_messages("serById", role_filter=["user"])] == [said["code"]]


def test_a_person_finds_parts_of_their_own_words_only(db: SessionDB, said: dict[str, int]) -> None:
    ann = db.scoped(ANN)
    mine = ann.append_message(ann.create_session(), "user", "setUserByIdOnce")
    found = ann.search_messages("serById")
    assert ([row["id"] for row in found], found.partial) == ([mine], True)
    assert not ann.search_messages("ByIdAnd")


def test_parts_of_words_are_tried_before_approximate_matches(db: SessionDB, said: dict[str, int]) -> None:
    near = db.search_messages("what was it that we did about the deploy of unheardof?")
    assert (near.partial, near.relaxed) == (False, True)
    found = db.search_messages("serById unheardof", relax=True)
    assert (found.partial, bool(found)) == (False, found.relaxed)


def test_every_surface_says_that_a_part_of_a_word_was_found(db: SessionDB, said: dict[str, int]) -> None:
    found = db.search_conversations("serById")
    assert [(row["session_id"], row["exact"], row["partial"]) for row in found] == [("code", True, True)]
    assert ">>>serById<<<" in found[0]["snippet"].replace("serByid", "serById")
    typing = db.search_conversations("serByI", unfinished=True)
    assert (len(typing), typing.partial) == (1, True)
    ranked = db.search_sessions_ranked("serById")
    assert ([row["session_id"] for row in ranked], ranked.partial) == (["code"], True)
    assert ">>>" in ranked[0]["snippet"]
    assert "part of a word: serById" in ranked[0]["why"]
    assert "parts of longer words" in session_search(db, {"query": "serById"})
    assert not db.search_conversations("deploy").partial


def test_the_command_says_that_a_part_of_a_word_was_found(home: Path) -> None:
    with SessionDB() as db:
        db.create_session("code", "cli")
        db.append_message("code", "user", "call getUserByIdAndName")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return warm_command.run(["search", *words])

    result: Any = run("serById")
    assert result.returncode == 0, result.stderr
    assert "no word matches; found as part of a word: serById" in result.stdout
    assert "part of a word" not in run("call").stdout
