"""A trace: events in the format of Claude Code, one per line, each with the id of the previous event."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from hermes_state import SessionDB
from tests.export.conftest import T, Written, compressed, talk
from tests.stored_rows import change_rows


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_an_event_has_its_envelope(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "hello"), cwd="/work", workspace="/work", git_branch="main")
    (event,) = events(written("trace", "a"))
    assert UUID(event.pop("uuid")).version == 7
    assert event == {
        "generator": "Hermes Sessions",
        "parentUuid": None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/work",
        "sessionId": "a",
        "version": "0.1.0",
        "gitBranch": "main",
        "type": "user",
        "message": {"role": "user", "content": "hello"},
        "timestamp": "2026-05-28T20:26:41.000Z",
    }


def test_events_are_a_chain(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "1"), ("assistant", "2"), ("user", "3"))
    chain = events(written("trace", "a"))
    assert [one["parentUuid"] for one in chain] == [None, *[one["uuid"] for one in chain[:-1]]]


def test_calls_reasoning_and_results_are_blocks(db: SessionDB, written: Written) -> None:
    talk(db, "a", model="m")
    call = {"id": "c1", "function": {"name": "terminal", "arguments": '{"command": "ls"}'}}
    db.append_message(
        "a", "assistant", "Looking.", tool_calls=[call], reasoning="Hm.", finish_reason="tool_calls"
    )
    db.append_message("a", "tool", "a.txt", tool_name="terminal", tool_call_id="c1")
    answer, result = events(written("trace", "a"))
    assert answer["message"]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "c1", "name": "terminal", "input": {"command": "ls"}},
    ]
    assert (answer["message"]["model"], answer["message"]["stop_reason"]) == ("m", "tool_use")
    assert result["type"] == "user"
    assert result["message"]["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": "a.txt"}]


def test_images_have_the_format_of_anthropic(db: SessionDB, written: Written) -> None:
    url = "data:image/png;base64,AAAA"
    talk(
        db, "a", ("user", [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}])
    )
    (event,) = events(written("trace", "a"))
    assert event["message"]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]


def test_a_compression_is_a_boundary_and_its_summary_says_so(db: SessionDB, written: Written) -> None:
    compressed(db)
    db.set_session_title("second", "the title")
    told = events(written("trace", "second"))
    assert [one["type"] for one in told] == ["user", "assistant", "user", "system", "user", "user", "summary"]
    boundary, summary, last, title = told[3:]
    assert boundary["subtype"] == "compact_boundary"
    assert (boundary["parentUuid"], boundary["logicalParentUuid"]) == (None, told[2]["uuid"])
    assert (summary["isCompactSummary"], summary["message"]["content"]) == (True, "the summary")
    assert {one["sessionId"] for one in told[:-1]} == {"second"}
    assert title == {"type": "summary", "summary": "the title", "leafUuid": last["uuid"]}


def test_subagents_are_side_chains(db: SessionDB, written: Written) -> None:
    talk(db, "a", ("user", "do it"))
    child = db.delegate("a", started_at=T + 5)
    db.append_message(child, "user", "this part")
    assert [one["isSidechain"] for one in events(written("trace", child))] == [True]


def test_a_row_of_another_program_has_the_same_uuid_each_time(db: SessionDB, written: Written) -> None:
    talk(db, "a")
    change_rows(
        db, "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('a', 'user', 'x', 1)"
    )
    assert written("trace", "a") == written("trace", "a")
    assert UUID(events(written("trace", "a"))[0]["uuid"]).version == 5
