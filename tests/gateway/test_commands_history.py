"""`/undo`, `/redo`, `/retry`, `/resend`, `/compress` and `/stop` act on the last messages."""

from __future__ import annotations

import pytest

from hermes.gateway.commands.command_context import CommandReply
from hermes.gateway.settings import Keying
from hermes_state import SessionDB
from tests.gateway.command_chat import OWNED, Chat, dm, group, thread


@pytest.fixture
def ann(db: SessionDB) -> Chat:
    return Chat(db, dm("ann"))


def both(*said: str) -> list[str]:
    return [text for one in said for text in (one, f"Answer to: {one}")]


# /undo and /redo


async def test_an_exchange_is_undone_and_redone(ann: Chat) -> None:
    await ann.talks("one", "two\nlines", "three")
    assert await ann.types("/undo") == "↩ Took back “three” (2 messages). `/redo` brings it back."
    assert await ann.types("/undo") == "↩ Took back “two lines” (2 messages). `/redo` brings it back."
    assert ann.texts() == both("one")
    assert await ann.types("/redo") == "↪ Brought back 4 messages."
    assert ann.texts() == both("one", "two\nlines", "three")
    assert (await ann.types("/redo")).startswith("There is nothing to bring back")


async def test_several_exchanges_are_undone_at_once(ann: Chat) -> None:
    await ann.talks("one", "two", "three")
    assert (
        await ann.types("/undo 2")
        == "↩ Took back “two” and all after it (4 messages). `/redo` brings it back."
    )
    assert ann.texts() == both("one")
    await ann.types("/redo")
    await ann.types("/undo 99")
    assert ann.texts() == []


async def test_messages_undone_before_a_newer_message_cannot_be_redone(ann: Chat) -> None:
    await ann.talks("one", "two")
    await ann.types("/undo")
    await ann.talks("three")
    assert (await ann.types("/redo")).startswith("There is nothing to bring back")
    await ann.types("/undo")
    assert await ann.types("/redo") == "↪ Brought back 2 messages."
    assert ann.texts() == both("one", "three")


async def test_carried_messages_of_a_branch_are_undone_and_redone(ann: Chat) -> None:
    await ann.talks("one", "two")
    await ann.types("/branch")
    await ann.talks("three")
    await ann.types("/undo 2")
    assert ann.texts() == both("one")
    assert await ann.types("/redo") == "↪ Brought back 4 messages."
    assert ann.texts() == both("one", "two", "three")


@pytest.mark.parametrize("words", ["0", "-1", "all", "1 2", "1001", "9" * 5000])
async def test_the_number_of_exchanges_must_be_a_number(ann: Chat, words: str) -> None:
    await ann.talks("one")
    assert (await ann.types(f"/undo {words}")).startswith("Usage: `/undo [n]`\ntake back")
    assert ann.texts() == both("one")


async def test_a_new_start_can_be_undone_before_the_first_message(ann: Chat) -> None:
    old = await ann.talks("one", title="Rome")
    await ann.types("/new")
    new = ann.session_id
    assert new is not None
    assert await ann.types("/undo") == "↩ The new start is undone. Back in **Rome** (2 messages)."
    assert ann.session_id == old
    assert ann.row(old)["ended_at"] is None
    assert ann.row(new)["end_reason"] == "reset_undone"
    await ann.types("/undo")
    assert ann.texts() == []


async def test_a_new_start_that_was_undone_leaves_neither_a_title_nor_a_line(ann: Chat) -> None:
    await ann.talks("one", title="Rome")
    await ann.types("/new Paris")
    await ann.types("/undo")
    assert len((await ann.types("/resume")).splitlines()) == 2
    assert "**Paris**" in await ann.types("/new Paris")


async def test_a_new_start_with_messages_is_not_undone(ann: Chat) -> None:
    await ann.talks("one", title="Rome")
    await ann.types("/new")
    new = await ann.talks("two")
    assert "Took back “two”" in await ann.types("/undo")
    assert await ann.types("/undo") == "There is nothing to take back."
    assert ann.session_id == new


async def test_without_messages_nothing_is_undone(ann: Chat) -> None:
    assert await ann.types("/undo") == "Nothing was said here yet. There is nothing to take back."
    assert (await ann.types("/redo")).startswith("There is nothing to bring back")
    await ann.types("/title Rome")
    assert await ann.types("/undo") == "There is nothing to take back."


# /retry and /resend


async def test_the_last_question_is_asked_again(ann: Chat) -> None:
    await ann.talks("one", "*two*")
    answer = await ann.answer("/retry")
    assert answer == CommandReply(r"↻ Once more: “\*two\*”", "*two*")
    assert ann.texts() == both("one")


async def test_a_question_that_was_never_answered_is_asked_again_as_it_is_stored(ann: Chat) -> None:
    session = await ann.begin()
    content = [
        {"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    ]
    ann.store.append_message(session, "user", content, lease_epoch=ann.epoch)
    answer = await ann.answer("/retry")
    assert answer.repeats_last
    assert ann.store.get_context(session)[-1]["content"] == content
    assert answer.text == "↻ Once more: “what is this?”"


async def test_there_is_nothing_to_ask_again_or_to_send_again(ann: Chat) -> None:
    assert await ann.answer("/retry") == CommandReply("There is nothing to ask again.")
    assert await ann.types("/resend") == "There is no answer yet to send again."
    await ann.types("/title Rome")
    assert await ann.answer("/retry") == CommandReply("There is nothing to ask again.")


async def test_the_last_answer_is_sent_again_as_it_was(ann: Chat) -> None:
    session = await ann.talks("one")
    ann.store.append_message(session, "assistant", "**Bold** `code`\nand more", lease_epoch=ann.epoch)
    ann.store.append_message(session, "tool", "output", tool_name="terminal", lease_epoch=ann.epoch)
    assert await ann.types("/resend") == "**Bold** `code`\nand more"


# /compress and /stop


async def test_compress_reports_its_result(ann: Chat) -> None:
    assert "nothing to compress" in await ann.types("/compress")
    await ann.talks("one")
    answer = await ann.types("/compress the plan")
    assert answer.splitlines()[0] == "Compressed: 12 → 5 messages."
    await ann.types("/compress")
    assert ann.focus == ["the plan", None]


async def test_an_answer_is_stopped(ann: Chat) -> None:
    assert await ann.types("/stop") == "Nothing is running."
    ann.working_since, ann.waiting = 1.0, 2
    assert await ann.types("/stop") == "⏹ Stopped. 2 messages waiting; continuing with them."
    ann.working_since, ann.waiting = 1.0, 0
    assert await ann.types("/stop") == "⏹ Stopped."


# Shared conversations


@pytest.mark.parametrize("where", [thread, group])
async def test_in_a_shared_conversation_everybody_can_undo(db: SessionDB, where: object) -> None:
    assert callable(where)
    settings = OWNED.replace(keying=Keying(group_sessions_per_user=False))
    ann, bob = Chat(db, where("ann"), settings), Chat(db, where("bob"), settings)
    session = await ann.talks("one", "two")
    assert bob.session_id == session
    assert "Took back “two”" in await bob.types("/undo")
    await bob.types("/new")
    assert ann.session_id == bob.session_id != session
    await ann.types("/undo")
    assert ann.session_id == bob.session_id == session


# /rewind, /history and background tasks


async def test_a_chat_goes_back_to_a_message_by_its_number(ann: Chat) -> None:
    assert await ann.types("/rewind") == "Nothing was said here yet. There is nothing to go back to."
    await ann.talks("one", "two", "three")
    assert (await ann.types("/rewind")).splitlines() == [
        "1. “three”",
        "2. “two”",
        "3. “one”",
        "`/rewind` with a number rewinds to before that message.",
    ]
    assert "Took back “two” and all after it (4 messages)" in await ann.types("/rewind 2")
    assert ann.texts() == both("one")
    assert await ann.types("/rewind undo") == "↪ Brought back 4 messages."
    for number in ("4", "0", "0000000015", "9" * 5000):
        assert (await ann.types(f"/rewind {number}")).startswith("Usage: `/rewind [n or undo]`\n")
    for number in ("0", "1001", "0000000019999999999999999999", "9" * 5000):
        assert (await ann.types(f"/undo {number}")).startswith("Usage: `/undo [n]`\n")
    assert ann.texts() == both("one", "two", "three")


async def test_the_history_is_each_message_in_short(ann: Chat) -> None:
    assert await ann.types("/history") == "Nothing was said here yet."
    await ann.talks("*one*", "x" * 500)
    lines = (await ann.types("/history")).splitlines()
    assert lines[:2] == [r"**You**: \*one\*", r"**Hermes**: Answer to: \*one\*"]
    assert all(len(line) < 150 for line in lines)
    await ann.talks(*map(str, range(12)))
    lines = (await ann.types("/history")).splitlines()
    assert (lines[0], len(lines)) == ("… 8 messages before", 21)


async def test_background_processes_of_tools_are_ended(ann: Chat) -> None:
    await ann.talks("one")
    ann.processes = 2
    assert await ann.types("/stop") == "⏹ Stopped 2 background processes."
    ann.working_since = 1.0
    assert await ann.types("/stop") == "⏹ Stopped."
