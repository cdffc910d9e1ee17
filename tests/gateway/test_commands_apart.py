"""Commands never reveal another person's id, title or text. A session of another person gets the same answer
as a session that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.gateway.commands.command_table import COMMANDS
from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.topics import UserTopics
from hermes_state import SessionDB
from tests.gateway.command_chat import Chat, dm, group, thread
from tests.tiers import scale_examples

SECRET = "xyzzy"
TITLE = "Plugh Project"
ID = re.compile(r"\d{8}\\?_\d{6}\\?_[0-9a-f]{8}")
PLACES: list[Callable[[str], Source]] = [dm, group, thread]


async def theirs(db: SessionDB) -> list[str]:
    """Store messages of Ann in private, in a group and elsewhere. Return the session ids."""
    ids = []
    for number, source in enumerate((dm("ann"), group("ann"), group("ann", "other"), dm("ann", "3"))):
        chat = Chat(db, source)
        ids.append(await chat.talks(f"my word is {SECRET}", "and more", title=f"{TITLE} {number}"))
        await chat.types("/branch")
        ids.append(await chat.talks(f"again {SECRET}", title=f"{TITLE} branch {number}"))
        chat.store.record_usage(ids[-1], model=f"model-{SECRET}", input_tokens=7)
        await chat.types(f"/new {TITLE} new {number}")
        ids.append(await chat.talks(f"once more {SECRET}"))
    return ids


def find_leaks(answer: str, ids: list[str]) -> list[str]:
    """Return the ids, titles and words of Ann that the answer contains."""
    return [word for word in (*ids, SECRET, TITLE) if word.casefold() in answer.casefold()]


def guesses(ids: list[str]) -> list[str]:
    titles = [f"{TITLE} 0", f"{TITLE} branch 1", f"{TITLE} new 1", "plugh", "Plugh Proj"]
    return [*ids, *(one[:-1] for one in ids), *titles, SECRET]


@pytest.mark.parametrize("place", PLACES)
async def test_a_foreign_session_looks_like_a_missing_one(
    db: SessionDB, place: Callable[[str], Source]
) -> None:
    ids = await theirs(db)
    bob = Chat(db, place("bob"))
    bob.topics = UserTopics(db, "dm-bob", "bob")
    bob.topics.enable()
    mine = await bob.talks("hello", title="Mine")
    for command in ("/resume", "/topic"):
        missing = await bob.types(f"{command} nothing of that kind")
        for guess in guesses(ids):
            assert await bob.types(f"{command} {guess}") == missing
    assert bob.session_id == mine


@pytest.mark.parametrize("place", PLACES)
async def test_every_answer_is_the_same_without_other_people(
    db: SessionDB, tmp_path: Path, place: Callable[[str], Source]
) -> None:
    """Except for generated ids, the answer is the same as in a store that contains no other person."""
    ids = await theirs(db)
    alone = SessionDB(tmp_path / "alone.db")
    try:
        bobs = Chat(db, place("bob")), Chat(alone, place("bob"))
        for command in (
            "/search",
            "/sessions",
            "/title",
            "/branch",
            "/new",
            "/compress",
            "/insights --source",
        ):
            for words in (ids[0], f"{TITLE} 0", SECRET):
                answers = []
                for bob in bobs:
                    await bob.talks("hello")
                    answers.append(ID.sub("ID", await bob.types(f"{command} {words}")))
                assert answers[0] == answers[1]
    finally:
        alone.close()


@pytest.mark.parametrize("place", PLACES)
async def test_no_command_reveals_other_people(db: SessionDB, place: Callable[[str], Source]) -> None:
    ids = await theirs(db)
    before = [db.get_session(one) for one in ids]
    for command in COMMANDS:
        bob = Chat(db, place("bob")._replace(user_id=f"bob-{command.name}"))
        bob.topics = UserTopics(db, "dm-bob", "bob")
        assert find_leaks(await bob.types(f"/{command.name}"), ids) == []
        await bob.talks("hello")
        assert find_leaks(await bob.types(f"/{command.name}"), ids) == []
    assert [db.get_session(one) for one in ids] == before


@pytest.mark.parametrize("place", [group, thread])
async def test_in_a_room_private_messages_are_not_shown_even_to_their_author(
    db: SessionDB, place: Callable[[str], Source]
) -> None:
    private = await Chat(db, dm("ann")).talks(f"my word is {SECRET}", title=TITLE)
    room = Chat(db, place("ann"))
    await room.talks("hello")
    for command in COMMANDS:
        words = " my word" if command.name == "search" else ""
        assert find_leaks(await room.types(f"/{command.name}{words}"), [private]) == []


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=scale_examples(120),
)
@given(
    name=st.sampled_from(sorted(one.name for one in COMMANDS)),
    words=st.lists(
        st.sampled_from([*"0123456789_*%\"'()-: #", "plugh", "xyz", "AND ", "OR ", "title:"]), max_size=8
    ).map("".join),
)
async def test_no_guess_reveals_other_people(db: SessionDB, name: str, words: str) -> None:
    ann = Chat(db, dm("ann"))
    if ann.session_id is None:
        await ann.talks(f"my word is {SECRET}", title=TITLE)
    mine = ann.session_id
    assert mine is not None
    bob = Chat(db, dm("bob"))
    await bob.talks("hello")
    answer = await bob.types(f"/{name} {words}")
    assert mine not in answer
    assert SECRET not in answer
    assert TITLE not in answer
    assert ann.session_id == mine
    assert ann.row()["title"] == TITLE
