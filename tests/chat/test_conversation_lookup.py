"""Looks up a conversation. Any session of a conversation leads to its last session."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.chat.conversation_lookup import find_latest, find_latest_id
from hermes.conversation.commands import lookup
from hermes_state import SessionDB
from tests.tiers import scale_examples


def find_conversation(db: SessionDB, name: str) -> lookup.Lookup:
    return lookup.find_conversation(db, name, lambda: find_latest_id(db))


def a_family(db: SessionDB, name: str, title: str | None, segments: int) -> list[str]:
    """Create a conversation of `segments` sessions, joined by compression. Return their ids in order."""
    ids = [db.create_session(f"{name}_0", "cli")]
    if title is not None:
        db.set_session_title(ids[0], title)
    for number in range(1, segments):
        last = db.append_message(ids[-1], "user", f"message {number} of {name}")
        ids.append(db.begin_continuation(ids[-1], "a summary", [last], session_id=f"{name}_{number}"))
    db.append_message(ids[-1], "user", f"the last of {name}")
    return ids


families = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=scale_examples(40),
)
@given(sizes=families, data=st.data())
def test_every_name_of_a_conversation_leads_to_its_last_session(
    tmp_path: Path, sizes: list[int], data: st.DataObject
) -> None:
    with SessionDB(tmp_path / f"{len(list(tmp_path.iterdir()))}.db") as db:
        made = {
            f"project {number}": a_family(db, f"2025_{number}", f"project {number}", size)
            for number, size in enumerate(sizes)
        }
        title = data.draw(st.sampled_from(sorted(made)))
        ids = made[title]
        for name in (
            title,
            f" {title} ",
            f"“{title}”",
            *ids,
            *(f"{title} #{number}" for number in range(2, len(ids) + 1)),
        ):
            assert find_conversation(db, name).id == ids[-1]
        for row in find_conversation(
            db, "2025_"
        ).candidates:  # each of several conversations is one candidate, represented by its last session
            assert row["id"] in {one[-1] for one in made.values()}
        assert (find_conversation(db, "2025_").id is None) == (len(made) > 1)
        assert find_conversation(db, "no such thing") == lookup.Lookup(None)


def test_part_of_a_title_is_enough_if_it_says_which(db: SessionDB) -> None:
    a_family(db, "one", "refactoring auth", 3)
    a_family(db, "two", "refactoring billing", 1)
    assert find_conversation(db, "auth").id == "one_2"
    assert find_conversation(db, "REFACTORING b").id == "two_0"
    assert [row["id"] for row in find_conversation(db, "refactoring").candidates] == ["two_0", "one_2"]


def test_the_latest_is_by_activity_and_never_a_child_or_an_empty_one(db: SessionDB, tmp_path: Path) -> None:
    db.create_session("older_start", "cli", started_at=1000.0, cwd=str(tmp_path), workspace=str(tmp_path))
    db.create_session("newer_start", "cli", started_at=2000.0)
    db.append_message("newer_start", "user", "x", timestamp=2000.0)
    db.append_message("older_start", "user", "x", timestamp=3000.0)
    db.create_session("empty", "cli", started_at=4000.0)
    db.create_session("elsewhere", "telegram", started_at=5000.0)
    db.append_message("elsewhere", "user", "x", timestamp=5000.0)
    child = db.delegate("newer_start")
    db.append_message(child, "user", "x", timestamp=6000.0)

    def newest(workspace: Path | None = None) -> str | None:
        row = find_latest(db, workspace)
        return None if row is None else row["id"]

    assert newest() == "older_start"
    assert newest(tmp_path) == "older_start"
    assert newest(tmp_path / "other") is None
    assert find_conversation(db, "latest").id == "older_start"
    twig = db.branch("newer_start")
    assert newest() == twig
    db.set_session_title("newer_start", "latest")
    assert find_conversation(db, "latest").id == "newer_start"


def test_the_latest_is_found_behind_many_empty_ones(db: SessionDB) -> None:
    db.create_session("one", "cli", started_at=1000.0)
    db.append_message("one", "user", "x", timestamp=1000.0)
    for number in range(30):
        db.create_session(f"empty_{number}", "cli", started_at=2000.0 + number)
    row = find_latest(db)
    assert row is not None
    assert row["id"] == "one"
