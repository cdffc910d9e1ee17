"""`/new`, `/title`, `/resume`, `/branch` and `/handoff`: the resulting session of the chat, and the reply."""

from __future__ import annotations

import pytest

from hermes.gateway.settings import Keying
from hermes_state import SessionDB
from tests.gateway.command_chat import OWNED, Chat, dm, group, thread
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, in_thread


@pytest.fixture
def ann(db: SessionDB) -> Chat:
    return Chat(db, dm("ann"))


# /new


@pytest.mark.parametrize("typed", ["/new", "/reset"])
async def test_a_new_conversation_leaves_the_old_one_linked_and_saved(ann: Chat, typed: str) -> None:
    old = await ann.talks("hello", title="Rome")
    answer = await ann.types(typed)
    new = ann.session_id
    assert new not in (None, old)
    assert ann.saved == [old]
    assert ann.row()["relation"] == "reset"
    assert ann.row()["parent_session_id"] == old
    assert ann.row(old)["end_reason"] == "session_reset"
    assert ann.texts() == []
    assert answer == (
        "✨ **New conversation**\nYou left **Rome**: `/undo` before your next message brings it back,"
        f" `/resume {old}` at any time."
    )


async def test_a_conversation_compressed_while_it_is_left_ends_at_its_last_session(ann: Chat) -> None:
    first = await ann.talks("hello", title="Rome")
    ann.compresses_when_saving = True
    answer = await ann.types("/new")
    left = ann.row()["parent_session_id"]
    assert ann.row(left)["parent_session_id"] == first
    assert f"`/resume {left}`" in answer
    await ann.types("/undo")
    assert ann.session_id == left


async def test_a_new_conversation_can_have_a_title(ann: Chat) -> None:
    await ann.talks("hello", title="Rome")
    assert (await ann.types("/new  Paris in *spring*")).startswith(
        "✨ **New conversation**: **Paris in \\*spring\\***"
    )
    assert ann.row()["title"] == "Paris in *spring*"


async def test_a_title_in_use_gets_a_number(ann: Chat) -> None:
    await ann.talks("hello", title="Rome")
    assert "**Rome (2)**" in await ann.types("/new Rome")


async def test_an_invalid_title_does_not_prevent_a_new_start(ann: Chat) -> None:
    old = await ann.talks("hello")
    answer = await ann.types("/new " + "x" * 101)
    assert "Title too long (101 chars, max 100); the conversation has no title." in answer
    assert ann.session_id != old
    assert ann.row()["title"] is None


async def test_a_conversation_without_messages_is_not_left_behind(ann: Chat) -> None:
    assert await ann.types("/new") == "Nothing was said here yet. It is a new conversation already."
    assert ann.session_id is None
    await ann.talks("hello")
    await ann.types("/new")
    fresh = ann.session_id
    assert "already" in await ann.types("/new")
    assert await ann.types("/new Rome") == "Session title set: Rome"
    assert ann.session_id == fresh
    assert len(ann.saved) == 1


# /title


async def test_a_title_is_shown_and_set(ann: Chat) -> None:
    assert await ann.types("/title") == "No title yet. `/title name` gives it one."
    assert ann.session_id is None
    session = await ann.talks("hello")
    assert await ann.types("/title") == f"Session: `{session}`\nNo title yet. `/title name` gives it one."
    assert await ann.types("/title  My   Project ") == "Session title set: My Project"
    assert ann.row()["title"] == "My Project"
    assert await ann.types("/title") == f"Session: `{session}`\nTitle: My Project"
    assert await ann.types("/title \u200b") == "The title is removed."
    assert ann.row()["title"] is None


async def test_a_title_given_first_begins_the_conversation(ann: Chat) -> None:
    assert await ann.types("/title Rome") == "Session title set: Rome"
    assert ann.row()["title"] == "Rome"


async def test_invalid_titles_are_refused_in_one_line(ann: Chat) -> None:
    old = await ann.talks("hello", title="Rome")
    await ann.types("/new")
    assert (
        await ann.types("/title Rome")
        == f"Title 'Rome' is already in use by session {old.replace('_', chr(92) + '_')}."
    )
    assert await ann.types("/title " + "x" * 101) == "Title too long (101 chars, max 100)."


async def test_in_a_room_nobody_reads_the_id_of_a_private_conversation(db: SessionDB, ann: Chat) -> None:
    private = await ann.talks("hello", title="Rome")
    room = Chat(db, group("ann"))
    answer = await room.types("/title Rome")
    assert answer == "Another conversation of yours has that title."
    assert private not in answer


# /resume


async def three(chat: Chat) -> list[str]:
    made = []
    for title in ("Rome trip", "Roman numerals", "Paris"):
        await chat.types("/new")
        made.append(await chat.talks(f"about {title}", title=title))
    return made


async def test_the_list_is_numbered_newest_first_and_numbers_are_understood(ann: Chat) -> None:
    rome, roman, paris = await three(ann)
    lines = (await ann.types("/resume")).splitlines()
    assert lines == [
        f"1. **Paris** · just now · `{paris}` (here)",
        f"2. **Roman numerals** · just now · `{roman}`",
        f"3. **Rome trip** · just now · `{rome}`",
        "`/resume` with a number, an id or a title continues a conversation.",
    ]
    answer = await ann.types("/resume 3")
    assert answer == f"↻ Back in **Rome trip** (2 messages).\nIts id: `{rome}`"
    assert ann.session_id == rome
    assert ann.row(rome)["ended_at"] is None
    assert ann.row(paris)["end_reason"] == "session_switch"
    assert ann.texts() == ["about Rome trip", "Answer to: about Rome trip"]


@pytest.mark.parametrize(
    "typed",
    [
        "Rome trip",
        '"Rome trip"',
        "“Rome trip”",
        "[Rome trip]",
        "<Rome trip>",
        "`Rome trip`",
        "rome t",
        "('trip')",
    ],
)
async def test_a_name_is_understood_however_it_is_wrapped(ann: Chat, typed: str) -> None:
    rome, *_ = await three(ann)
    await ann.types(f"/resume {typed}")
    assert ann.session_id == rome


async def test_an_id_and_the_beginning_of_one_are_understood(ann: Chat) -> None:
    rome, roman, _ = await three(ann)
    await ann.types(f"/resume {rome}")
    assert ann.session_id == rome
    await ann.types(f"/resume {roman[:-1]}")
    assert ann.session_id == roman


async def test_a_title_in_brackets_is_a_title(ann: Chat) -> None:
    old = await ann.talks("hello", title="[draft]")
    await ann.types("/new")
    await ann.talks("other", title="draft")
    await ann.types("/resume [draft]")
    assert ann.session_id == old


async def test_an_ambiguous_name_is_answered_with_the_candidates(ann: Chat) -> None:
    rome, roman, paris = await three(ann)
    answer = await ann.types("/resume rom")
    assert answer.startswith("Several conversations match:\n- **")
    assert rome in answer
    assert roman in answer
    assert paris not in answer
    assert ann.session_id == paris


async def test_segments_of_one_conversation_are_one(ann: Chat) -> None:
    first = await ann.talks("hello", title="Rome")
    second = ann.store.begin_continuation(first, "they said hello", lease_epoch=ann.epoch)
    await ann.types("/new")
    await ann.talks("other")
    for typed in ("/resume Rome", f"/resume {first}", "/resume rom"):
        await ann.types(typed)
        assert ann.session_id == second
        await ann.types("/new")
        await ann.talks("other")


async def test_numbers_beyond_the_list_are_not_prefixes_of_ids(ann: Chat) -> None:
    session = await ann.talks("hello")
    assert session.startswith("2")
    await ann.types("/new")
    await ann.talks("other")
    before = ann.session_id
    assert await ann.types("/resume 20") == "There is no such conversation. `/sessions` shows yours."
    assert ann.session_id == before
    ann.store.set_session_title(session, "20")
    await ann.types("/resume 20")
    assert ann.session_id == session


@pytest.mark.parametrize("typed", ["/sessions rom", "/search rome roman"])
async def test_a_number_refers_to_the_last_list_of_the_person(ann: Chat, typed: str) -> None:
    rome, roman, _ = await three(ann)
    listed = (await ann.types(typed)).splitlines()
    second = next(line for line in listed if line.startswith("2. "))
    await ann.types("/resume 2")
    assert f"`{ann.session_id}`" in second
    assert ann.session_id in (rome, roman)
    assert await ann.types("/resume 3") == "There is no such conversation. `/sessions` shows yours."
    await ann.types("/sessions")
    await ann.types("/resume 3")
    assert ann.session_id == rome


async def test_in_a_room_a_number_refers_to_the_list_of_its_sender() -> None:
    ann, bob = in_thread(ANN), in_thread(BOB)
    async with LocalGateway() as gateway:
        for place in ("rome", "paris"):
            await gateway.asks(ann, "/new")
            await gateway.asks(ann, place)
        assert "1. " in (await gateway.asks(ann, "/search rome"))[0]
        assert await gateway.asks(bob, "/resume 1") == ["Already on that session."]
        assert gateway.talk(ann)[0].endswith("paris")
        await gateway.asks(ann, "/resume 1")
        assert gateway.talk(bob)[0].endswith("rome")


async def test_in_a_room_nobody_uses_the_list_of_an_anonymous_sender(db: SessionDB) -> None:
    room = Chat(db, thread("ann")._replace(user_id=None))
    rome = await room.talks("rome")
    await room.types("/new")
    await room.talks("paris")
    assert rome in await room.types("/search rome")
    assert await room.types("/resume 1") == "Already on that session."


async def test_resuming_the_current_conversation_changes_nothing(ann: Chat) -> None:
    await ann.talks("hello", title="Rome")
    assert await ann.types("/resume Rome") == "Already on that session."


async def test_a_chat_without_messages_can_resume_a_conversation(db: SessionDB, ann: Chat) -> None:
    old = await ann.talks("hello", title="Rome")
    ann.store.leases.release(ann.store.leases.acquire(old, "gateway"))
    topic = Chat(db, dm("ann", "9"))
    await topic.types("/resume Rome")
    assert topic.session_id == old
    listed = (await topic.types("/resume")).splitlines()
    assert len(listed) == 2, "the session that was begun for it, and left at once, is in no list"


async def test_only_ten_are_listed(ann: Chat) -> None:
    for number in range(12):
        await ann.types("/new")
        await ann.talks(f"talk {number}")
    lines = (await ann.types("/resume")).splitlines()
    assert len(lines) == 12
    assert lines[10] == "… and more. `/sessions words` finds them."


async def test_an_empty_list_says_so(ann: Chat) -> None:
    assert await ann.types("/resume") == "There are no conversations yet."


async def test_a_shared_room_can_resume_only_shared_conversations(db: SessionDB, ann: Chat) -> None:
    await ann.talks("my secret", title="Mine")
    room = Chat(db, thread("ann"))
    shared = await room.talks("for all", title="Ours")
    await room.types("/new")
    now = await room.talks("next")
    assert await room.types("/resume Mine") == (
        "That conversation is private: it cannot be opened where others can read it. Ask me in a private chat."
    )
    assert room.session_id == now
    answer = await room.types("/resume")
    assert "Mine" not in answer
    assert "1 private conversation not shown here" in answer
    await Chat(db, thread("bob")).types("/resume Ours")
    assert room.session_id == shared


async def test_a_change_of_sharing_does_not_change_owners(db: SessionDB) -> None:
    together = OWNED.replace(keying=Keying(group_sessions_per_user=False))
    alone, shared = Chat(db, group("ann")), Chat(db, group("ann"), together)
    mine, ours = await alone.talks("a", title="Mine"), await shared.talks("b", title="Ours")
    assert ours not in await alone.types("/resume")
    assert mine not in await shared.types("/resume")
    assert await alone.types("/resume Ours") == (
        "That conversation is shared in this room; this one is only yours."
    )
    assert "is private" in await shared.types("/resume Mine")
    assert (alone.session_id, shared.session_id) == (mine, ours)


async def test_a_shared_room_resumes_its_own_of_two_conversations_with_the_same_title(
    db: SessionDB, ann: Chat
) -> None:
    await ann.talks("my secret", title="Plan")
    room = Chat(db, thread("ann"))
    shared = await room.talks("for all", title="Plan")
    await room.types("/new")
    await room.talks("next")
    await room.types("/resume Plan")
    assert room.session_id == shared


async def test_a_private_conversation_is_not_resumed_in_a_group(db: SessionDB, ann: Chat) -> None:
    private = await ann.talks("my secret", title="Mine")
    room = Chat(db, group("ann"))
    open_one = await room.talks("before all", title="Open")
    await room.types("/new")
    await room.talks("next")
    for typed in ("Mine", private, private[:-1], "min"):
        assert "is private" in await room.types(f"/resume {typed}")
    await room.types("/resume Open")
    assert room.session_id == open_one


# /branch and /handoff


async def test_a_branch_has_the_context_and_leaves_the_original_unchanged(ann: Chat) -> None:
    old = await ann.talks("hello", title="Rome")
    answer = await ann.types("/branch Naples")
    assert answer == (
        "⑂ **On a branch now**: **Naples**\nIt has all messages so far. The original is unchanged:"
        f" `/resume {old}`"
    )
    assert ann.session_id != old
    assert ann.row()["relation"] == "branch"
    assert ann.texts() == ["hello", "Answer to: hello"]
    await ann.talks("more")
    await ann.types(f"/resume {old}")
    assert ann.texts() == ["hello", "Answer to: hello"]


async def test_a_branch_without_a_name_gets_a_number(ann: Chat) -> None:
    await ann.talks("hello", title="Rome")
    assert "**Rome (2)**" in await ann.types("/fork")


async def test_a_conversation_without_messages_has_no_branch(ann: Chat) -> None:
    assert await ann.types("/branch") == "Nothing was said here yet. There is nothing to branch from."
    assert ann.session_id is None


async def test_a_branch_with_an_invalid_title_is_not_created(ann: Chat) -> None:
    old = await ann.talks("hello")
    assert await ann.types("/branch " + "x" * 101) == "Title too long (101 chars, max 100)."
    assert ann.session_id == old


async def test_a_conversation_can_be_handed_to_the_terminal(ann: Chat) -> None:
    assert "nothing to hand over" in await ann.types("/handoff")
    session = await ann.talks("hello")
    assert f"`hermes -r {session}`" in await ann.types("/handoff")
