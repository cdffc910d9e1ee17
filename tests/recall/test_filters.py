"""Each field of a query limits the search to exactly the messages that match the field. Tested on a real
store.
"""

from __future__ import annotations

import json

import pytest

from hermes.recall.query.operators import parse
from hermes.recall.tool.search_tool import session_search
from hermes.store.people import Principal
from hermes.store.values import MessageFilter, SearchRequest
from hermes_state import SessionDB
from tests.stored_rows import change_rows

CALL = [{"id": "1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}]


@pytest.fixture
def said(db: SessionDB) -> dict[str, int]:
    """Create one message of each kind. Return their ids by name."""
    ids: dict[str, int] = {}
    db.create_session("chat", "cli", model="anthropic/Claude-4")
    ids["asked"] = db.append_message("chat", "user", "word asked", timestamp=1000.0)
    ids["called"] = db.append_message("chat", "assistant", "word called", tool_calls=CALL, timestamp=2000.0)
    ids["result"] = db.append_message(
        "chat", "tool", "word result", tool_name="read_file", tool_call_id="1", timestamp=3000.0
    )
    ids["failed"] = db.append_message(
        "chat", "tool", "Error: word failed", tool_name="Terminal", tool_call_id="2", timestamp=4000.0
    )
    db.set_session_title("chat", "Ärger mit Δelta")
    db.set_session_workspace("chat", "/home/me/project")
    db.create_session("job", "cron", model="gpt-5")
    ids["job"] = db.append_message("job", "user", "word job", timestamp=5000.0)
    db.create_session("pinned", "telegram")
    ids["pinned"] = db.append_message("pinned", "user", "word pinned", timestamp=6000.0)
    db.pin_session("pinned")
    child = db.begin_continuation("pinned", "the summary")
    ids["continued"] = db.append_message(child, "user", "word continued", timestamp=7000.0)
    db.create_session("kept", "cli")
    ids["archived"] = db.append_message("kept", "user", "word archived", timestamp=8000.0)
    db.set_session_archived("kept", True)
    db.add_tags("chat", "Home", "later")
    db.add_tags(child, "home")
    return ids


WANTED: list[tuple[MessageFilter, str]] = [
    (MessageFilter(), "asked called result failed job pinned continued archived"),
    (MessageFilter(sources=("cli",)), "asked called result failed archived"),
    (MessageFilter(sources=("cli", "cron")), "asked called result failed job archived"),
    (MessageFilter(sources=()), ""),
    (MessageFilter(exclude_sources=("cli", "cron")), "pinned continued"),
    (MessageFilter(roles=("tool",)), "result failed"),
    (MessageFilter(roles=("user", "assistant"), sources=("cli",)), "asked called archived"),
    (MessageFilter(after=4000.0), "failed job pinned continued archived"),
    (MessageFilter(before=4000.0), "asked called result"),
    (MessageFilter(after=2000.0, before=4000.0), "called result"),
    (MessageFilter(tool="read_file"), "called result"),
    (MessageFilter(tool="READ_FILE"), "called result"),
    (MessageFilter(tool="terminal"), "failed"),
    (MessageFilter(tool="nothing"), ""),
    (MessageFilter(title="ärger MIT"), "asked called result failed"),
    (MessageFilter(title="δELTA"), "asked called result failed"),
    (MessageFilter(title="arger"), "asked called result failed"),
    (MessageFilter(title="%"), ""),
    (MessageFilter(model="claude"), "asked called result failed"),
    (MessageFilter(model="GPT"), "job"),
    (MessageFilter(workspace="project"), "asked called result failed"),
    (MessageFilter(workspace="me/project"), "asked called result failed"),
    (MessageFilter(workspace="/home/me/project"), "asked called result failed"),
    (MessageFilter(workspace="ject"), ""),
    (MessageFilter(kinds=("job",)), "job"),
    (MessageFilter(kinds=("chat",)), "asked called result failed pinned continued archived"),
    (MessageFilter(kinds=()), ""),
    (MessageFilter(errors_only=True), "failed"),
    (MessageFilter(calls_only=True), "called result failed"),
    (MessageFilter(pinned=True), "pinned continued"),
    (MessageFilter(pinned=False), "asked called result failed job archived"),
    (MessageFilter(archived=True), "archived"),
    (MessageFilter(tags=("home",)), "asked called result failed pinned continued"),
    (MessageFilter(tags=("home", "later")), "asked called result failed"),
    (MessageFilter(tags=("nothing",)), ""),
    (MessageFilter(exclude_tags=("later", "nothing")), "job pinned continued archived"),
    (MessageFilter(trashed=True), ""),
    (MessageFilter(archived=False), "asked called result failed job pinned continued"),
    (MessageFilter(but_conversations=("pinned", "job")), "asked called result failed archived"),
]


@pytest.mark.parametrize("indexed", [False, True], ids=["read", "indexed"])
def test_a_filter_finds_what_it_names(db: SessionDB, said: dict[str, int], indexed: bool) -> None:
    if indexed:
        db._engine.catch_up(5)
    tree = parse("word")
    assert tree is not None
    names_of = {number: name for name, number in said.items()}
    for wanted, names in WANTED:
        hits = db._engine.search(tree, SearchRequest(wanted, 100)).hits
        assert (wanted, sorted(names_of[hit.id] for hit in hits)) == (wanted, sorted(names.split()))


FIELDS = [
    ("word source:cli role:user", "asked archived"),
    ("word NOT source:cli", "job pinned continued"),
    ("word NOT role:user", "called result failed"),
    ("tool:read_file", "called result"),
    ('title:"ärger mit"', "asked called result failed"),
    ("model:claude has:tool", "called result failed"),
    ("has:error", "failed"),
    ("word is:pinned", "pinned continued"),
    ("word is:archived", "archived"),
    ("is:archived", "archived"),
    ("word NOT is:archived NOT is:pinned role:user", "asked job"),
    ("word tag:HOME NOT tag:later", "pinned continued"),
    ("kind:job", "job"),
    ("workspace:project role:tool", "result failed"),
    ("word after:1970-01-01T01:06:40Z before:1970-01-01T01:23:20Z", "failed"),
    ("before:2020 role:assistant", "called"),
]


def test_fields_find_what_they_name(db: SessionDB, said: dict[str, int]) -> None:
    names_of = {number: name for name, number in said.items()}
    for query, names in FIELDS:
        rows = db.search(query, limit=100)
        assert (query, sorted(names_of[row["id"]] for row in rows)) == (query, sorted(names.split()))


def test_fields_alone_find_the_newest_first_and_in_pages(db: SessionDB, said: dict[str, int]) -> None:
    newest = [said[name] for name in ("failed", "result", "called", "asked")]
    assert [row["id"] for row in db.search("title:ärger")] == newest
    assert [row["id"] for row in db.search("title:ärger", limit=2, offset=1)] == newest[1:3]
    assert db.search("title:ärger", limit=1)[0]["snippet"] == "Error: word failed"
    assert db.search("") == []
    assert db.search("title:ärger", limit=0) == []


def test_trashed_and_rewound_messages_are_not_found(db: SessionDB, said: dict[str, int]) -> None:
    db.trash_session("job")
    db.rewind_to_message("kept", said["archived"])
    assert {row["id"] for row in db.search("word")} == set(said.values()) - {said["job"], said["archived"]}
    assert db.search("kind:job") == []


def test_a_session_that_another_program_has_just_made_is_its_own_conversation(db: SessionDB) -> None:
    with SessionDB(db.db_path, read_only=True) as reader:
        change_rows(
            db, "INSERT INTO sessions (id, source, started_at, title) VALUES ('x', 'cli', 1, 'Foreign')"
        )
        change_rows(
            db, "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('x', 'user', 'word', 1)"
        )
        assert len(reader.search("word title:foreign")) == 1
        assert reader.search("word is:pinned") == []


@pytest.mark.parametrize(
    "calls", ['["plain"]', '{"name": "x"}', "no json", "[null, 5]", '[{"function": "x"}]', "", "[]", "null"]
)
def test_tool_calls_of_any_shape_do_no_harm(db: SessionDB, calls: str) -> None:
    db.create_session("s", "cli")
    number = db.append_message("s", "assistant", "word")
    change_rows(db, "UPDATE messages SET tool_calls = ? WHERE id = ?", calls, number)
    assert db.search("tool:terminal") == []
    assert len(db.search("has:tool word")) == int(calls not in ("", "[]", "null"))


def test_anthropic_names_of_tools_are_found(db: SessionDB) -> None:
    db.create_session("s", "cli")
    number = db.append_message("s", "assistant", "word", tool_calls=[{"type": "tool_use", "name": "Bash"}])
    assert [row["id"] for row in db.search("tool:bash")] == [number]


def test_a_person_finds_only_their_own_messages(db: SessionDB, said: dict[str, int]) -> None:
    ann = db.scoped(Principal("telegram", "ann", "dm", "dm-ann"))
    mine = ann.create_session()
    number = ann.append_message(mine, "user", "a word of my own")
    ann.set_session_title(mine, "Ärger")
    for query in ("word", "title:ärger", "source:telegram", "*wor*", "word NOT *zzz*"):
        assert [row["id"] for row in ann.search(query)] == [number]


def test_fields_alone_go_by_the_time_of_messages_and_not_by_their_ids(db: SessionDB) -> None:
    """An import stores old messages after newer ones, so the order of ids is not the order of time."""
    now = 1_700_000_000.0
    for name, times in {"new": (50, 10), "old": (40, 30, 20), "oldest": (5,), "empty": ()}.items():
        db.create_session(name, "telegram", started_at=now)
        for time in times:
            db.append_message(name, "user", f"{time}", timestamp=now + time)
    rows = db.search("source:telegram")
    assert [row["context"][-1]["content"] for row in rows if row["session_id"] == "oldest"] == ["5"]
    assert [row["timestamp"] - now for row in rows] == [50, 40, 30, 20, 10, 5]
    assert [row["timestamp"] - now for row in db.search("source:telegram", limit=2, offset=2)] == [30, 20]
    found = db.search_conversations("source:telegram")
    assert [row["conversation_id"] for row in found] == ["new", "old", "oldest"]
    assert {row["score"] for row in found} == {0.0}
    assert found.order == "newest"
    found = db.search_conversations("source:telegram", before=now + 45)
    assert [row["conversation_id"] for row in found] == ["old", "new", "oldest"]
    ranked = db.search_sessions_ranked("source:telegram")
    assert [row["conversation_id"] for row in ranked] == ["new", "old", "oldest"]
    assert ranked.order == "newest"
    ranked = db.search_sessions_ranked("source:telegram", before=now + 45)
    assert [row["conversation_id"] for row in ranked] == ["old", "new", "oldest"]
    ranked = db.search_sessions_ranked(["source:telegram before:2020-01-01", "source:telegram"])
    assert [row["conversation_id"] for row in ranked] == ["new", "old", "oldest"]
    answer = json.loads(session_search(db, {"query": "source:telegram"}))
    assert [result["session_id"] for result in answer["results"]] == ["new", "old", "oldest"]


def test_the_trash_is_searched_only_where_it_is_allowed(db: SessionDB, said: dict[str, int]) -> None:
    db.trash_session("job")
    found = db.search_conversations("is:trashed word", trash=True)
    assert [(row["conversation_id"], row["message_id"]) for row in found] == [("job", said["job"])]
    assert [row["session_id"] for row in db.search_conversations("is:trashed", trash=True)] == ["job"]
    assert all(row["session_id"] != "job" for row in db.search_conversations("word", trash=True))
    assert db.search_conversations("is:trashed word").reading.ignored == ("is:trashed",)
    assert db.search("is:trashed") == []
    assert all(row["session_id"] != "job" for row in db.search_sessions_ranked("is:trashed word"))


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("word after:2026 before:2025", "no time is after 2026-01-01T"),
        ("word source:cli NOT source:cli", "no source is left"),
        ("role:user NOT role:user", "a role or a flag is both required and excluded"),
        ("tag:a NOT tag:a", "the tag 'a' is both required and excluded"),
        ("kind:job NOT kind:job", "no kind is left"),
        ("is:pinned -is:pinned", "a role or a flag is both required and excluded"),
    ],
)
def test_fields_that_exclude_each_other_are_reported(db: SessionDB, query: str, reason: str) -> None:
    found = db.search_conversations(query)
    assert found == []
    assert (found.contradiction or "").startswith(reason)
    assert db.search_conversations("word NOT source:cli").contradiction is None
