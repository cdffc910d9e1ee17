"""Which session a name refers to: an id, a prefix of an id, or a title. Also which conversations a filter
selects.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes.store.sessions.name_resolution import ResolvedName
from hermes.store.sessions.selection import Selection
from hermes_state import SessionDB
from tests.tiers import scale_examples


def create(
    db: SessionDB, session_id: str, title: str | None = None, at: float = 1e9, source: str = "cli"
) -> None:
    db.create_session(session_id, source, started_at=at)
    db.append_message(session_id, "user", f"said in {session_id}", timestamp=at)
    if title:
        db.set_session_title(session_id, title)


def test_an_exact_id_wins_over_a_title_and_a_title_over_a_beginning(db: SessionDB) -> None:
    create(db, "ab", title="abc")
    create(db, "abc")
    create(db, "abd", title="a")
    assert db.named("abc").id == "abc"
    assert db.named("a").id == "abd"
    assert db.named("ABC").id == "abc"


def test_part_of_a_title_is_enough_if_there_is_only_one(db: SessionDB) -> None:
    create(db, "one", title="Reise nach 广西")
    create(db, "two", title="100% sure_thing")
    assert db.named("reise").id == "one"
    assert db.named("广西").id == "one"
    assert db.named("0%").id == "two"
    assert db.named("e_t").id == "two"
    assert db.named("e%t") == ResolvedName(None, [])


def test_several_matches_are_listed_newest_first_and_none_is_chosen(db: SessionDB) -> None:
    create(db, "20250101_a", at=1e9)
    create(db, "20250102_b", title="plan", at=1.2e9)
    create(db, "20250103_c", at=1.1e9)
    named = db.named("2025")
    assert named.id is None
    assert [row["id"] for row in named.candidates] == ["20250102_b", "20250103_c", "20250101_a"]
    assert named.candidates[0]["title"] == "plan"
    assert named.candidates[1]["preview"] == "said in 20250103_c"


@pytest.mark.parametrize("name", ["", "   ", "nobody", "%", "_", "\\", "x" * 100_000, "\0"])
def test_an_unknown_name_finds_nothing(db: SessionDB, name: str) -> None:
    create(db, "one", title="title")
    assert db.named(name) == ResolvedName(None, [])


def test_a_title_leads_to_the_end_of_its_conversation_and_the_trash_has_no_names(db: SessionDB) -> None:
    create(db, "first", title="my project")
    db.begin_continuation("first", "summary", session_id="second")
    assert db.named("my project").id == "second"
    assert db.named("my project #2").id == "second"
    db.trash_session("first")
    assert db.named("my project") == ResolvedName(None, [])
    assert db.named("first") == ResolvedName(None, [])


def test_completions_begin_with_titles(db: SessionDB) -> None:
    create(db, "ga1")
    create(db, "other", title="Garden")
    assert [row["id"] for row in db.starting_with("ga")] == ["other", "ga1"]
    assert len(db.starting_with("", limit=1)) == 1


# ---------------------------------------------------------------- several sessions


def test_a_conversation_is_judged_and_selected_as_a_whole(db: SessionDB) -> None:
    create(db, "first", title="my project")
    db.begin_continuation("first", "summary", session_id="second")
    for number in range(3):
        db.append_message("second", "user", f"more {number}")
    create(db, "else", title="another")
    assert db.select_sessions(Selection(title="PROJECT")) == ["first", "second"]
    assert db.select_sessions(Selection(min_messages=5)) == ["first", "second"]
    assert db.select_sessions(Selection(max_messages=4)) == ["else"]


def test_subagents_are_selected_alone_or_with_their_conversation(db: SessionDB) -> None:
    create(db, "chat", title="chat")
    db.delegate("chat", session_id="helper")
    assert db.select_sessions(Selection(title="chat")) == ["chat"]
    assert db.select_sessions(Selection(title="chat"), subagents=True) == ["chat", "helper"]
    assert set(db.select_sessions(Selection())) == {"chat", "helper"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_messages": -1},
        {"max_messages": "3"},
        {"sources": "cli"},
        {"since": "yesterday"},
        {"title": 3},
        {"workspace": 3},
    ],
)
def test_bad_filters_are_refused(db: SessionDB, wrong: dict[str, Any]) -> None:
    with pytest.raises((errors.InvalidArgument, TypeError)):
        db.select_sessions(Selection(**wrong))


NAMES = st.sampled_from(["Plan", "plan B", "Straße", "広西", None])
SESSIONS = st.lists(
    st.tuples(st.sampled_from(["cli", "cron", "telegram"]), NAMES, st.integers(0, 3), st.integers(0, 9)),
    max_size=6,
)
WISHES = st.fixed_dictionaries(
    {},
    optional={
        "sources": st.lists(st.sampled_from(["cli", "cron"]), min_size=1, max_size=2),
        "title": st.sampled_from(["plan", "STRASSE", "広", "zzz"]),
        "min_messages": st.integers(0, 3),
        "max_messages": st.integers(0, 3),
        "since": st.integers(0, 9).map(float),
        "until": st.integers(0, 9).map(float),
    },
)


@settings(max_examples=scale_examples(240))
@given(sessions=SESSIONS, wishes=st.lists(WISHES, min_size=1, max_size=4))
def test_a_selection_is_what_a_loop_would_select(
    tmp_path_factory: pytest.TempPathFactory, sessions: list[Any], wishes: list[dict[str, Any]]
) -> None:
    folder: Path = tmp_path_factory.mktemp("selection")
    with SessionDB(folder / "state.db") as db:
        known = []
        for number, (source, title, messages, at) in enumerate(sessions):
            db.create_session(f"s{number}", source, started_at=float(at))
            for _ in range(messages):
                db.append_message(f"s{number}", "user", "x", timestamp=float(at))
            name = None if title is None else f"{title} {number}"
            db.set_session_title(f"s{number}", name)
            known.append((f"s{number}", source, name, messages, float(at)))
        for wish in wishes:
            expected = {
                session_id
                for session_id, source, name, messages, at in known
                if ("sources" not in wish or source in wish["sources"])
                and ("title" not in wish or wish["title"].casefold() in (name or "").casefold())
                and wish.get("min_messages", 0) <= messages <= wish.get("max_messages", 99)
                and wish.get("since", 0) <= at < wish.get("until", 99)
            }
            assert set(db.select_sessions(Selection(**wish))) == expected
