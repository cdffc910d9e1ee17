"""The results of `search_messages`: the position of the match, and the messages before and after."""

from __future__ import annotations

import json

from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.stored_rows import change_rows


def call(command: str) -> list[dict[str, object]]:
    return [
        {"id": "c1", "function": {"name": "terminal", "arguments": json.dumps({"command": command})}},
    ]


def test_the_neighbours_are_those_that_count_cut_to_two_hundred_characters(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.create_session("t", "cli")
    db.append_message("s", "user", "b" * 300)
    db.append_message("t", "user", "of another session")
    db.append_message("s", "assistant", [{"type": "text", "text": "osprey " + "é" * 300}])
    question = db.append_message("s", "user", "to be taken back")
    db.rewind_to_message("s", question)
    db.append_message("s", "user", "a\0" + "c" * 300)
    (found,) = db.search_messages("osprey")
    assert found["context"] == [
        {"role": "user", "content": "b" * 200},
        {"role": "assistant", "content": "osprey " + "é" * 193},
        {"role": "user", "content": "a\0" + "c" * 198},
    ]


def test_at_the_ends_of_a_session_there_is_less_around_a_match(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "user", "first osprey")
    assert [one["content"] for one in db.search_messages("osprey")[0]["context"]] == ["first osprey"]
    db.append_message("s", "assistant", None, tool_calls=call("ls"))
    assert db.search_messages("osprey")[0]["context"][1:] == [{"role": "assistant", "content": ""}]


def test_a_match_in_a_tool_call_or_in_the_name_of_a_tool_is_shown(db: SessionDB) -> None:
    db.create_session("s", "cli")
    db.append_message("s", "assistant", "let me look", tool_calls=call("grep osprey"))
    db.append_message("s", "tool", "nothing", tool_name="heron_watch")
    db.append_message("s", "assistant", "an osprey", tool_calls=call("ls"))
    inside, said = sorted(db.search_messages("osprey"), key=lambda row: row["id"])
    assert "grep >>>osprey<<<" in inside["snippet"]
    assert inside["snippet"].startswith("let me look")
    assert said["snippet"] == "an >>>osprey<<<"
    assert db.search_messages("heron")[0]["snippet"] == "nothing\n>>>heron<<<_watch"


def test_a_match_in_a_call_that_another_program_wrote_with_escapes_is_shown(db: SessionDB) -> None:
    db.create_session("s", "cli")
    written = db.append_message("s", "assistant", "look", tool_calls=call("ls"))
    calls = json.dumps(call("grep café")).replace("r", "\\u0072")
    change_rows(db, "UPDATE messages SET tool_calls = ? WHERE id = ?", calls, written)
    assert ">>>café<<<" in db.search_messages("cafe")[0]["snippet"]
    assert ">>>grep<<<" in db.search_messages("grep")[0]["snippet"]


def test_a_person_is_shown_the_neighbours_in_their_own_session(db: SessionDB) -> None:
    ann, bob = (db.scoped(Principal("telegram", name, f"dm-{name}")) for name in ("ann", "bob"))
    mine, other = ann.create_session(), bob.create_session()
    for text in ("before", "an osprey", "after"):
        ann.append_message(mine, "user", text)
        bob.append_message(other, "user", "something else")
    (found,) = ann.search_messages("osprey")
    assert [one["content"] for one in found["context"]] == ["before", "an osprey", "after"]
    assert bob.search_messages("osprey") == []
