"""The output of `/sessions`, `/search`, `/status`, `/why`, `/usage` and `/insights` for each person."""

from __future__ import annotations

import pytest

from hermes import clock
from hermes.gateway.incidents import Incident
from hermes.gateway.settings import ResetPolicy
from hermes_state import SessionDB
from tests.gateway.command_chat import OWNED, Chat, dm, group, thread

DAILY, IDLE = "`session_reset: daily`", "`session_reset: idle`"
HINT = "`/resume` with a number, an id or a title continues a conversation."


@pytest.fixture
def ann(db: SessionDB) -> Chat:
    return Chat(db, dm("ann"))


# /sessions and /search


async def test_sessions_are_listed_like_those_to_resume_or_by_words(ann: Chat) -> None:
    rome = await ann.talks("where is the Colosseum", title="Rome")
    await ann.types("/new")
    await ann.talks("where is the Louvre", title="Paris")
    assert await ann.types("/sessions") == await ann.types("/resume")
    assert (await ann.types("/sessions colosseum")).splitlines() == [
        f"1. **Rome** · just now · `{rome}`",
        HINT,
    ]
    for words in ("Berlin", "none"):
        assert (await ann.types(f"/sessions {words}")).startswith("No conversation has that")


async def test_messages_are_found_with_their_chat(ann: Chat) -> None:
    rome = await ann.talks("the Colosseum opens at nine", title="Rome")
    await ann.types("/new")
    await ann.talks("nothing of that kind")
    lines = (await ann.types("/search colosseum")).splitlines()
    assert lines[0] == f"1. **Rome** · just now · `{rome}`"
    assert "**Colosseum** opens at nine" in lines[1]
    assert lines[2:] == [HINT]
    assert await ann.types("/search xylophone") == "Nothing was found."
    inside = (await ann.types("/search olosseu")).splitlines()
    assert inside[0] == "No word matches; found as part of a word: `olosseu`"
    assert inside[1] == lines[0]
    assert (await ann.types("/search")).startswith("Usage: `/search <words>`\n")


async def test_five_are_found_at_most(ann: Chat) -> None:
    for number in range(7):
        await ann.types("/new")
        await ann.talks(f"colosseum {number}")
    assert len((await ann.types("/search colosseum")).splitlines()) == 11


async def test_markup_in_messages_has_no_effect_in_an_answer(ann: Chat) -> None:
    await ann.talks("colosseum @everyone [x](http://evil.example) `rm`\n# /new", title="a](http://b.c) @bob")
    answer = await ann.types("/search colosseum")
    assert "@everyone" not in answer
    assert "@bob" not in answer
    assert "[x]" not in answer
    assert "://" not in answer
    assert len(answer.splitlines()) == 3


@pytest.mark.parametrize("typed", ["/search colosseum", "/sessions colosseum", "/sessions", "/resume"])
async def test_in_a_room_private_conversations_are_counted_and_not_shown(
    db: SessionDB, ann: Chat, typed: str
) -> None:
    for number in range(2):
        await ann.types("/new")
        await ann.talks(f"colosseum {number} PRIVATE")
    room = Chat(db, group("ann"))
    held_there = await room.talks("colosseum before all")
    elsewhere = Chat(db, group("ann", "other-room"))
    await elsewhere.talks("colosseum ELSEWHERE")
    answer = await room.types(typed)
    assert held_there in answer
    assert "PRIVATE" not in answer
    assert "ELSEWHERE" not in answer
    assert "3 private conversations not shown here: ask me in a private chat." in answer
    assert "PRIVATE" in await ann.types(typed)


async def test_a_shared_room_is_searched_by_all_who_are_in_it(db: SessionDB) -> None:
    ann, bob = Chat(db, thread("ann")), Chat(db, thread("bob"))
    session = await ann.talks("the colosseum is for all")
    assert session in await bob.types("/search colosseum")
    assert session in await bob.types("/sessions")


async def test_a_room_that_was_a_private_chat_does_not_show_private_messages(
    db: SessionDB,
) -> None:
    before = Chat(db, dm("ann")._replace(chat_id="matrix-room"))
    await before.talks("colosseum PRIVATE")
    now = Chat(db, group("ann", "matrix-room"))
    answer = await now.types("/search colosseum")
    assert "PRIVATE" not in answer
    assert "1 private conversation not shown" in answer


# /status


async def test_the_status_shows_the_current_conversation(ann: Chat) -> None:
    session = await ann.talks("hello", title="Rome")
    ann.store.set_session_model(session, "some/model")
    ann.store.update_token_counts(session, input_tokens=1500, output_tokens=20)
    ann.working_since, ann.waiting = clock.now() - 65, 1
    lines = (await ann.types("/status")).splitlines()
    assert lines[:5] == [
        f"Session: `{session}`",
        "Title: Rome",
        "Messages: 2 in the context",
        "Used: 1.5K in, 20 out (`/usage` has the cost)",
        "Model: `some/model`",
    ]
    assert lines[5].startswith("Since: today ")
    assert lines[6:] == [
        "Working: for 1m (`/stop` stops it)",
        "Waiting: 1 message",
        "Platform: telegram, dm",
        "Resets: never automatically",
    ]


async def test_the_status_of_a_silent_chat(db: SessionDB) -> None:
    settings = OWNED.replace(reset_by_type={"thread": ResetPolicy("daily", timezone="UTC")})
    room = Chat(db, thread("ann"), settings)
    room.due = clock.now() + 3 * clock.DAY
    lines = (await room.types("/status")).splitlines()
    assert lines[:3] == [
        "Nothing was said here yet.",
        "Platform: telegram, thread, shared by everybody in this chat",
        "Resets: daily at 4:00",
    ]
    assert lines[3].startswith("Next: ")
    assert room.session_id is None


# /why


async def test_why_shows_incidents_newest_first(ann: Chat) -> None:
    first = await ann.talks("one", title="Rome")
    second = ann.store.begin_continuation(first, "they spoke", lease_epoch=ann.epoch)
    third = ann.store.reset(second, reason="idle")
    await ann.talks("two")
    fourth = ann.store.reset(third, reason="daily")
    await ann.talks("three")
    await ann.types("/new")
    await ann.types("/undo")
    await ann.types("/branch")
    ann.incidents = [Incident(clock.now() + 1, "It was paused: it had crashed three times.")]
    reply = await ann.types("/why")
    lines = [line.partition(": ")[2] for line in reply.splitlines()]
    kept = "The previous one is kept:"
    called, nothing_lost = rf"**Rome \#2** `{second}`", "Nothing is lost; `/search` finds it."
    assert lines == [
        "It was paused: it had crashed three times.",
        f"It branched off from `{fourth}` with `/branch`.",
        f"A reset was undone with `/undo`: back in `{fourth}`.",
        f"A new conversation began: the daily reset was due ({DAILY}). {kept} `/resume {third}`",
        f"A new conversation began: nobody had written for a long time ({IDLE}). {kept} `/resume {second}`",
        f"It became long: the earlier messages were summarised, and it continued as {called}. {nothing_lost}",
        f"The conversation **Rome** `{first}` began.",
        "never automatically",
    ]
    assert all(line.startswith("- today ") for line in reply.splitlines()[:-1])


async def test_why_shows_a_switch_and_who_requested_it(ann: Chat) -> None:
    rome = await ann.talks("one", title="Rome")
    await ann.types("/new")
    paris = await ann.talks("two", title="Paris")
    reply = await ann.types("/why")
    assert (
        f"A new conversation began: somebody sent `/new`. The previous one is kept: `/resume {rome}`" in reply
    )
    await ann.types("/resume Rome")
    reply = await ann.types("/why")
    assert (
        f"This chat left **Paris** for another conversation with `/resume`. Back: `/resume {paris}`" in reply
    )


async def test_why_shows_a_handoff(db: SessionDB, ann: Chat) -> None:
    session = await ann.talks("one")
    db.request_handoff(session, "telegram")
    assert "It is being handed over to telegram." in await ann.types("/why")
    db.claim_handoff(session)
    db.fail_handoff(session, "no @home `channel`")
    reply = await ann.types("/why")
    assert "failed: no @" in reply
    assert "@home" not in reply


async def test_why_of_a_silent_chat_and_of_a_long_one(ann: Chat) -> None:
    assert await ann.types("/why") == "Nothing was said here yet.\nResets: never automatically"
    for number in range(12):
        await ann.talks(f"talk {number}")
        await ann.types("/new")
    lines = (await ann.types("/why")).splitlines()
    assert len(lines) == 12
    assert lines[10] == "- … and earlier incidents."


# /usage and /insights


async def test_the_usage_of_a_conversation_is_shown_by_model(ann: Chat) -> None:
    assert await ann.types("/usage") == "No model was used in this conversation yet."
    session = await ann.talks("one")
    assert await ann.types("/usage") == "No model was used in this conversation yet."
    ann.store.record_usage(session, model="big", input_tokens=2000, output_tokens=30, actual_cost_usd=0.5)
    ann.store.record_auxiliary_usage(session, model="small`", input_tokens=10, output_tokens=1)
    assert (await ann.types("/usage")).splitlines() == [
        "**This conversation** · 2 calls, 2.0K in, 31 out, $0.50",
        "- `big`: 1 call, 2.0K in, 30 out, $0.50",
        "- `small'` (auxiliary): 1 call, 10 in, 1 out",
    ]


async def test_insights_include_only_the_person_who_asks(db: SessionDB, ann: Chat) -> None:
    bob = Chat(db, dm("bob"))
    await ann.talks("one")
    for _ in range(3):
        await bob.talks("two")
        await bob.types("/new")
    db.create_session("local", "cli")
    reply = await ann.types("/insights")
    assert "**1 session** · 2 messages" in reply
    assert await ann.types("/insights 30") == reply == await ann.types("/insights —days 30")
    assert "last 7 days (source: telegram)" in await ann.types("/insights --days=7 --source telegram")
    assert "No sessions found" in await ann.types("/insights --source cli")


@pytest.mark.parametrize("words", ["x", "0", "--days", "--days x", "5 6", "99999", "--days " + "9" * 5000])
async def test_insights_that_cannot_be_understood(ann: Chat, words: str) -> None:
    answer = await ann.types(f"/insights {words}")
    assert answer.startswith("Usage: `/insights [days] [--days N] [--source S]`\n")


async def test_a_source_that_does_not_exist_is_one_line(ann: Chat) -> None:
    assert len((await ann.types("/insights --source `x`")).splitlines()) == 1


async def test_insights_are_not_shown_in_a_room(db: SessionDB, ann: Chat) -> None:
    await ann.talks("one")
    answer = await Chat(db, group("ann")).types("/insights")
    assert answer == "These numbers include your private conversations: ask me in a private chat."


# /memory, /skills, /model


async def test_memory_is_shown_in_private_and_in_shared_conversations(db: SessionDB, ann: Chat) -> None:
    assert await ann.types("/memory") == "Nothing is remembered yet."
    for chat in (ann, Chat(db, thread("ann"))):
        chat.memory = "Ann likes tea."
        assert await chat.types("/memory") == "Ann likes tea."
        assert await chat.types("/skills") == "- `cook`: makes soup"
    room = Chat(db, group("ann"))
    room.memory = "Ann likes tea."
    for typed in ("/memory", "/skills"):
        assert await room.types(typed) == "The answer is only for you: ask me in a private chat."


async def test_the_model_is_shown_and_is_the_same_for_all_chats(ann: Chat) -> None:
    assert await ann.types("/model") == "No model has answered yet."
    session = await ann.talks("one")
    ann.store.set_session_model(session, "some/model")
    assert await ann.types("/model") == "Model: `some/model`"
    assert (await ann.types("/model other")).startswith("All chats use the same model.")
    assert ann.row()["model"] == "some/model"
