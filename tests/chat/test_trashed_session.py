"""The session of an open conversation is moved to the trash. The conversation then continues in a new
session, and a notice says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.events import Done, Event, Note, NotStored, TextDelta, ToolStarted
from hermes.chat.one_shot import ask
from hermes.conversation.conversation import Conversation
from hermes.conversation.local_conversation import open_local_conversation
from hermes_state import SessionDB
from tests.chat.echo import PARTS


@pytest.fixture
async def conversation(db: SessionDB, tmp_path: Path) -> AsyncIterator[Conversation[SessionDB]]:
    held = open_local_conversation(db, PARTS, cwd=tmp_path)
    yield held
    await held.close()


async def hear(
    conversation: Conversation[SessionDB],
    text: str,
    on: Callable[[Event], bool] = lambda _: False,
    then: Callable[[], Any] = lambda: None,
) -> list[Event]:
    """Run one turn and return its events. Call `then` once, after the first event for which `on` returns
    True."""
    heard: list[Event] = []
    done = False
    async for event in conversation.say(text):
        heard.append(event)
        if not done and on(event):
            done = True
            then()
    return heard


def notes_of(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Note)]


def contents_of(db: SessionDB, session_id: str) -> list[tuple[str, Any]]:
    return [(row["role"], row["content"]) for row in db.get_messages(session_id)]


@pytest.mark.parametrize("how", ["trash_session", "delete_session"])
async def test_the_next_message_begins_a_new_session(
    db: SessionDB, conversation: Conversation[SessionDB], tmp_path: Path, how: str
) -> None:
    await hear(conversation, "hello")
    old = conversation.session_id
    getattr(db, how)(old)
    heard = await hear(conversation, "where were we?")
    new = conversation.session_id
    assert new != old
    (note,) = notes_of(heard)
    assert note.startswith(f"Session {old} was deleted or moved to the trash.")
    assert f"continues in a new session, {new}" in note
    assert not any(isinstance(event, NotStored) for event in heard)
    assert contents_of(db, new) == [("user", "where were we?"), ("assistant", "you said: where were we?")]
    row = db.get_session(new)
    assert row is not None
    assert (row["parent_session_id"], row["cwd"], row["system_prompt"]) == (None, str(tmp_path), "Repeat.")
    assert db.leases.find_holder(new) is not None
    assert notes_of(await hear(conversation, "and now?")) == []
    assert conversation.session_id == new
    if how == "trash_session":
        assert db.restore_session(old) == [old]
        assert [content for _, content in contents_of(db, old)] == ["hello", "you said: hello"]


async def test_a_resumed_conversation_does_the_same(
    db: SessionDB, conversation: Conversation[SessionDB], tmp_path: Path
) -> None:
    db.create_session("old", "cli", cwd=str(tmp_path))
    db.append_message("old", "user", "before")
    await conversation.switch_to("old")
    db.trash_session("old")
    told: list[str] = []
    answered = await ask(conversation, "hello", told.append)
    assert (answered.text, answered.problem) == ("you said: hello", None)
    assert len(told) == 1
    assert "was deleted or moved to the trash" in told[0]
    assert [content for _, content in contents_of(db, conversation.session_id)] == [
        "hello",
        "you said: hello",
    ]
    assert [row["content"] for row in db.get_messages("old", include_trashed=True)] == ["before"]


async def test_a_session_trashed_during_an_answer_loses_nothing_of_the_turn(
    db: SessionDB, conversation: Conversation[SessionDB]
) -> None:
    await hear(conversation, "hello")
    old = conversation.session_id
    heard = await hear(
        conversation, "slow 2", lambda event: isinstance(event, TextDelta), lambda: db.trash_session(old)
    )
    assert conversation.session_id != old
    assert len(notes_of(heard)) == 1
    assert isinstance(heard[-1], Done)
    assert contents_of(db, conversation.session_id) == [("user", "slow 2"), ("assistant", "0 1 ")]


async def test_a_session_trashed_while_a_tool_runs_keeps_the_call_with_its_result(
    db: SessionDB, conversation: Conversation[SessionDB]
) -> None:
    await hear(conversation, "hello")
    old = conversation.session_id
    heard = await hear(
        conversation,
        "use look here",
        lambda event: isinstance(event, ToolStarted),
        lambda: db.trash_session(old),
    )
    assert isinstance(heard[-1], Done)
    assert len(notes_of(heard)) == 1
    rows = db.get_messages(conversation.session_id)
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
    assert rows[1]["tool_calls"][0]["id"] == rows[2]["tool_call_id"]


async def test_leaving_a_trashed_conversation_leaves_it_in_the_trash(db: SessionDB, tmp_path: Path) -> None:
    conversation = open_local_conversation(db, PARTS, cwd=tmp_path)
    await hear(conversation, "hello")
    old = conversation.session_id
    db.trash_session(old)
    await conversation.close()
    row = db.get_session(old, include_trashed=True)
    assert row is not None
    assert (row["ended_at"], row["trashed_at"] is not None) == (None, True)
    assert db.session_count() == 0
