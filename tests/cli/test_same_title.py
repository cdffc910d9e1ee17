"""A title that several people use is ambiguous on the local command line. The command then lists all matches
and does nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.chat import conversation_lookup
from hermes.conversation.commands.lookup import find_conversation
from hermes.store.people import Principal
from hermes_state import SessionDB
from tests.cli.conftest import Hermes

ANN = Principal("telegram", "4711", "4711")
ROOM = Principal("discord", None, "lobby", "7", "group")
BOB = Principal("slack", "bob", "D1")


def add_session(db: SessionDB, who: Principal | None, title: str, name: str | None = None) -> str:
    if who is None:
        session_id = name or "local"
        db.create_session(session_id, "cli")
    else:
        session_id = db.scoped(who).create_session(
            shared=who.user is None, display_name="Family" if who is ROOM else None
        )
    db.append_message(session_id, "user", f"said by {who.platform if who else 'me'}")
    assert db.set_session_title(session_id, title)
    return session_id


@pytest.fixture
def three(db: SessionDB) -> dict[str, str]:
    return {
        "local": add_session(db, None, "trip"),
        "ann": add_session(db, ANN, "trip"),
        "room": add_session(db, ROOM, "trip"),
    }


COMMANDS = [
    ("sessions", "delete", "--yes", "trip"),
    ("sessions", "delete", "--yes", "--segment", "trip"),
    ("sessions", "delete", "--yes", "--purge", "trip"),
    ("sessions", "show", "trip"),
    ("sessions", "export", "--session-id", "trip", "-"),
    ("sessions", "rename", "trip", "another"),
    ("sessions", "pin", "trip"),
    ("sessions", "archive", "trip"),
    ("sessions", "tree", "trip"),
    ("-r", "trip", "-q", "hello"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_title_of_several_people_is_listed_and_nothing_is_done(
    db: SessionDB, hermes: Hermes, three: dict[str, str], command: tuple[str, ...]
) -> None:
    before = list(db.export_all())
    done = hermes(*command)
    assert (done.returncode, done.stdout) == (1, "")
    first, *lines = done.stderr.splitlines()
    assert first == "hermes: 'trip' could be any of these:"
    assert sorted(line.split()[0] for line in lines) == sorted(three.values())
    by_id = {line.split()[0]: line for line in lines}
    assert "on this machine" in by_id[three["local"]]
    assert "telegram, person 4711, dm 4711" in by_id[three["ann"]]
    assert "discord, everybody in the chat, group Family, thread 7" in by_id[three["room"]]
    assert list(db.export_all()) == before


def test_an_id_or_the_beginning_of_one_is_not_ambiguous(db: SessionDB, hermes: Hermes) -> None:
    add_session(db, ANN, "local")
    add_session(db, BOB, "local")
    add_session(db, None, "else", "locally")
    assert "said by me" in hermes("sessions", "show", "local").stdout
    assert "said by me" in hermes("sessions", "show", "locally").stdout


def test_a_unique_title_is_accepted_for_any_owner(db: SessionDB, hermes: Hermes) -> None:
    add_session(db, ANN, "hers")
    assert "said by telegram" in hermes("sessions", "show", "hers").stdout


def test_two_others_with_the_same_title_are_listed(db: SessionDB, hermes: Hermes) -> None:
    add_session(db, ANN, "trip #2")
    add_session(db, BOB, "trip #3")
    assert hermes("sessions", "delete", "--yes", "trip").returncode == 1
    assert db.session_count() == 2


def test_continuing_prefers_the_conversation_of_the_local_owner(db: SessionDB, three: dict[str, str]) -> None:
    assert find_conversation(db, "trip", lambda: None, preferred_owner="").id == "local"
    assert find_conversation(db, "tri", lambda: None, preferred_owner="").id == "local"
    assert find_conversation(db, "trip", lambda: None).id is None
    assert len(find_conversation(db, "trip", lambda: None).candidates) == 3
    db.trash_session("local")
    assert find_conversation(db, "trip", lambda: None, preferred_owner="").id is None


def test_continue_on_the_command_line_prefers_the_local_owner(
    db: SessionDB, hermes: Hermes, three: dict[str, str], tmp_path: Path
) -> None:
    done = hermes("-c", "trip", "-q", "hello", HERMES_MODEL="nothing-here")
    assert "could be any of these" not in done.stderr
    db.trash_session("local")
    done = hermes("-c", "trip", "-q", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert "could be any of these" in done.stderr
    assert db.message_count(three["ann"]) == db.message_count(three["room"]) == 1


def test_continuing_the_last_conversation_skips_those_of_other_people(db: SessionDB) -> None:
    add_session(db, None, "mine", "mine")
    add_session(db, None, "given", "given")
    db.adopt_conversation("given", ANN.owners[0])
    row = conversation_lookup.find_latest(db)
    assert row is not None
    assert row["id"] == "mine"


def test_a_former_title_of_several_people_is_not_restored(
    db: SessionDB, hermes: Hermes, three: dict[str, str]
) -> None:
    for session_id in three.values():
        db.trash_session(session_id)
    done = hermes("sessions", "trash", "restore", "trip")
    assert done.returncode == 1
    assert "telegram, person 4711" in done.stderr
    assert len(db.list_trash()) == 3


def test_a_persons_own_handle_prefers_their_own(db: SessionDB) -> None:
    mine = add_session(db, ANN, "trip")
    room = Principal("telegram", "4711", "4711")
    assert db.scoped(room).named("trip").id == mine
