"""How commands are detected, the properties in the command table, and one-line errors."""

from __future__ import annotations

import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes import errors
from hermes.gateway.commands.command_table import (
    ALIASES,
    BY_NAME,
    COMMANDS,
    FoundCommand,
    find_command,
    run_command,
)
from hermes_state import SessionDB
from tests.gateway.command_chat import Chat, dm, group

NAMES = sorted({*ALIASES, *(name for command in COMMANDS for name in command.names)})
HOLDS = """
import sys
from hermes_state import SessionDB

db = SessionDB()
db.leases.acquire(sys.argv[1], "cli", 60)
print("held", flush=True)
input()
"""
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).map(str.strip)


def found(text: str) -> FoundCommand:
    command = find_command(text)
    assert command is not None
    return command


@given(st.sampled_from(NAMES), st.data(), st.sampled_from(["", "@hermes_bot", "@B"]), WORDS)
def test_a_command_is_found_in_any_case_with_the_bots_name_and_with_words(
    name: str, data: st.DataObject, bot: str, words: str
) -> None:
    typed = "".join(data.draw(st.sampled_from([letter, letter.upper()])) for letter in name)
    command, named = found(f"/{typed}{bot} {words}"), BY_NAME.get(name)
    assert named is not None
    assert command.name == named.name
    if name in ALIASES:
        assert command.words == ""
    elif "--" not in named.usage:
        assert command.words == words


@given(st.text(max_size=40))
def test_any_text_is_a_command_or_is_not(text: str) -> None:
    result = find_command(text)
    assert (result is None) or text.lstrip().startswith("/")


@given(WORDS)
def test_text_without_a_slash_is_a_message(text: str) -> None:
    assert text.startswith("/") or find_command(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "/etc/hosts",
        "/etc/hosts is empty",
        "/usr/bin/env python",
        "/readme.md",
        "/",
        "//new",
        "/ new",
        "/24 is a subnet",
        "/r/python",
        "/new/title",
        "/new?",
        "look at /new",
        "/" + "x" * 40,
        "",
    ],
)
def test_a_path_or_a_number_is_not_a_command(text: str) -> None:
    assert find_command(text) is None


@pytest.mark.parametrize("dash", ["--", "—", "–", "−", "―", "‐‐"])
def test_the_dashes_that_telephones_make_of_two_hyphens_are_flags(dash: str) -> None:
    assert found(f"/insights {dash}days 7 {dash}source telegram").words == "--days 7 --source telegram"


def test_a_title_keeps_its_dashes() -> None:
    assert found("/title Rome —Paris").words == "Rome —Paris"


@pytest.mark.parametrize(
    ("typed", "near"), [("rset", "reset"), ("Sesions", "sessions"), ("undoo", "undo"), ("hlep", "help")]
)
async def test_a_mistyped_command_gets_a_suggestion_at_once(db: SessionDB, typed: str, near: str) -> None:
    chat = Chat(db, dm("ann"))
    assert found(f"/{typed} x").at_once
    assert await chat.types(f"/{typed}") == (
        f"There is no `/{typed}`. Did you mean `/{near}`? `/help` lists the commands."
    )
    assert chat.session_id is None


async def test_an_unknown_command_is_referred_to_help(db: SessionDB) -> None:
    assert await Chat(db, dm("ann")).types("/qqqqqq") == "There is no `/qqqqqq`. `/help` lists the commands."


def test_what_is_answered_at_once_and_what_stops_an_answer() -> None:
    at_once = {name for name in NAMES if found(f"/{name} x").at_once}
    shows = {"status", "why", "usage", "insights", "sessions", "search", "help", "start"}
    shows |= {"history", "memory", "skills", "model"}
    assert at_once == {*shows, "agents", "stop", "approve", "deny", "pair"}
    bare = {name for name in NAMES if found(f"/{name}").at_once}
    assert bare == at_once | {"resume", "title"}
    assert {name for name in NAMES if found(f"/{name}").stops} == {"new", "reset"}


def test_every_documented_command_is_there_and_fits_a_menu() -> None:
    documented = (
        "new reset title resume sessions search branch undo retry compress stop status why usage insights sethome topic"
        " handoff help"
    )
    assert set(documented.split()) <= set(NAMES)
    for command in COMMANDS:
        assert command.usage.split()[0] == f"/{command.name}"
        assert set(command.name) <= set(string.ascii_lowercase)
        assert 0 < len(command.summary) <= 100


async def test_help_shows_all_or_one(db: SessionDB) -> None:
    chat = Chat(db, dm("ann"))
    everything = await chat.types("/help")
    assert len(everything.splitlines()) == len(COMMANDS)
    assert all(f"`{one.usage}`" in everything for one in COMMANDS)
    assert await chat.types("/help undo") == await chat.types("/help /UNDO")
    assert (await chat.types("/help undo")).startswith("`/undo [n]`\n")
    assert await chat.types("/start abc") == everything
    assert await chat.types("/help undo 2") == await chat.types("/help undo")


@pytest.mark.parametrize("typed", ["undoo", "re", "qqqqqq"])
async def test_help_for_an_unknown_command_is_the_reply_to_that_command(db: SessionDB, typed: str) -> None:
    chat = Chat(db, dm("ann"))
    assert await chat.types(f"/help {typed}") == await chat.types(f"/{typed}")
    assert await chat.types(f"/help /{typed.upper()} x") == await chat.types(f"/{typed}")
    assert len(await chat.types(f"/help {'x' * 4000}")) < 200


async def test_a_missing_store_is_one_line_without_its_path(
    db: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    chat = Chat(db, dm("ann"))
    await chat.talks("hello")
    context = chat._make_context()
    db.close()
    answer = await run_command(found("/search x"), context)
    assert answer.text == "That is not possible at the moment; try again soon."
    assert len(caplog.records) == 1


async def test_a_command_without_the_lease_changes_nothing(db: SessionDB) -> None:
    chat = Chat(db, dm("ann"))
    session = await chat.talks("hello")
    await chat.begin()
    context = chat._make_context()
    db.leases.take_over(session, "cli")
    with pytest.raises(errors.LeaseLost):
        await run_command(found("/new"), context)
    assert chat.session_id == session


async def test_a_conversation_in_use_elsewhere_is_not_taken_over(db: SessionDB) -> None:
    chat = Chat(db, dm("ann"))
    old = await chat.talks("first", title="old")
    await chat.types("/new")
    elsewhere = subprocess.Popen(
        [sys.executable, "-c", HOLDS, old], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with elsewhere:
        assert elsewhere.stdout is not None
        assert elsewhere.stdout.readline() == b"held\n"
        new = chat.session_id
        for typed in ("/resume old", "/undo"):
            assert "in use elsewhere" in await chat.types(typed)
            assert chat.session_id == new
        elsewhere.kill()
    assert "Back in **old**" in await chat.types("/undo")
    assert chat.session_id == old


async def test_a_room_has_the_same_command_table(db: SessionDB) -> None:
    assert await Chat(db, group("ann")).types("/help") == await Chat(db, dm("ann")).types("/help")
