"""No person receives text of another person, whatever they try.

Bob makes the same attempts in two gateways: one that Ann uses, and one that she never used. The messages that
he sees, and the requests that the model receives for him, must be identical in both. So he gets nothing from
Ann, and the answers for "not yours" and "not found" are the same. Only generated ids and row numbers differ.
They are removed before the comparison.

The attempts are generated from the table of commands and from the tools of Bob's agent. New commands and
tools are therefore included automatically.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes.agent.factory import FOR_EVERYBODY
from hermes.agent.tools import make_standard_tools
from hermes.gateway.commands import command_table
from hermes.gateway.inbound.pairing import Pairings
from hermes.gateway.inbound_events import Source
from hermes.gateway.ops.status_file import gateway_folder
from hermes.gateway.settings import GatewaySettings, Keying
from hermes_state import SessionDB
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, file, in_group, in_thread, settings_of

pytestmark = pytest.mark.full

SECRET, TITLE = "xyzzy", "Plugh Project"
KINDS = ("said", "title", "memory", "profile", "skill", "todo", "file-name", "file", "display", "chat-name")
OF_THE_MACHINE = [tool.name for tool in make_standard_tools() if tool.name not in FOR_EVERYBODY]
ALONE = Keying(group_sessions_per_user=True, thread_sessions_per_user=True)
DEFAULT = Keying()
ROOMS = Keying(group_sessions_per_user=False)
THREADS_ALONE = Keying(group_sessions_per_user=False, thread_sessions_per_user=True)

Place = Callable[[Source], Source]
PLACES: dict[str, Place] = {"dm": lambda who: who, "group": in_group, "thread": in_thread}

ID = re.compile(r"\d{8}\\?_\d{6}\\?_[0-9a-f]{8}")
NUMBERED = re.compile(r'("(?:\w*_)?(?:id|cursor)\\*": ?|\bmessage )\d+')
RANK = re.compile(r"^\d+\. ")
SIZED = re.compile(r"~[\d,]+|\b\d\d:\d\d\b|just now|\d+m ago")
"""Times, and token counts. Token counts depend on the message numbers in a request."""


class Known(NamedTuple):
    """Everything about Ann's conversations that Bob could know and use to guess."""

    ids: list[str]
    titles: list[str]
    message: int

    @property
    def words(self) -> list[str]:
        return [self.ids[0], self.ids[-1][:-1], self.titles[0], SECRET, "1"]


def secret(place: str, kind: str) -> str:
    return f"{SECRET}{place}{kind.replace('-', '')}"


async def ann_lives(gateway: LocalGateway, places: list[str]) -> Known:
    """Let Ann write her secrets in each of the chats `places`, in every way in which a person can write
    something."""
    ids, titles = [], []
    for name in places:
        word = {kind: secret(name, kind) for kind in KINDS}
        ann = PLACES[name](ANN)._replace(user_name=f"Ann {word['display']}", chat_name=word["chat-name"])
        await gateway.asks(ann, f"my word is {word['said']}")
        await gateway.asks(ann, "look", offered=[file(f"{word['file-name']}.txt", word["file"].encode())])
        for target, kind in (("memory", "memory"), ("user", "profile")):
            await gateway.asks(ann, _use("memory", action="add", target=target, content=word[kind]))
        await gateway.asks(
            ann,
            _use(
                "skill_manage", action="create", name=f"ann-{name}", description=word["skill"], content="Do."
            ),
        )
        item = {"id": "1", "content": word["todo"], "status": "pending"}
        await gateway.asks(ann, _use("todo", items=[item]))
        await gateway.asks(ann, f"/title {TITLE} {word['title']}")
        ids.append(gateway.session_of(ann))
        titles.append(f"{TITLE} {word['title']}")
        await gateway.asks(ann, f"/branch {TITLE} branch {name}")
        await gateway.asks(ann, f"on the branch {word['said']}")
        ids.append(gateway.session_of(ann))
    rows = gateway.db.get_messages(ids[0])
    return Known(ids, titles, rows[0]["id"])


def the_machine_has_secrets(home: Path) -> None:
    """Store secrets of the machine's owner in a terminal session and in memory."""
    folder = home / "memories"
    folder.mkdir(parents=True)
    for name in ("MEMORY.md", "USER.md"):
        (folder / name).write_text(f"{SECRET} of the machine")
    db = SessionDB()
    session = db.create_session("20200101_000000_0badcafe", "cli")
    db.append_message(session, "user", f"{SECRET} said in the terminal")
    db.set_session_title(session, f"{TITLE} of the terminal")
    db.close()


# ---------------------------------------------------------------- the attempts


def _use(tool: str, **arguments: object) -> str:
    return f"use {tool} {json.dumps(arguments)}"


def tried_commands(known: Known) -> list[str]:
    tried = []
    for command in command_table.COMMANDS:
        flags = re.findall(r"--\w+", command.usage)
        tried.append(f"/{command.name}")
        tried += [f"/{command.name} {word}" for word in known.words]
        tried += [f"/{command.name} {flag} {known.words[0]}" for flag in flags]
    return tried


def tried_tools(known: Known) -> list[str]:
    theirs = known.ids[0]
    searches: list[dict[str, object]] = [
        {},
        {"query": SECRET},
        {"query": [f"{SECRET}*", "my word", "plugh"]},
        {"query": f"title:{TITLE}"},
        {"query": f"session:{theirs}"},
        {"query": "word OR branch OR terminal", "limit": 10, "sort": "newest"},
        {"session_id": theirs},
        {"session_id": theirs[:-1]},
        {"session_id": TITLE},
        {"session_id": "20200101_000000_0badcafe"},
        {"session_id": theirs, "around_message_id": known.message},
        {"session_id": theirs, "around_message_id": known.message, "window": 0},
    ]
    return [
        *(_use("session_search", **one) for one in searches),
        *(_use("memory", action="read", target=target) for target in ("memory", "user")),
        _use("memory", action="remove", target="memory", old_text=SECRET),
        _use("skills_list"),
        *(_use("skill_view", name=name) for name in ("ann-dm", "../ann-dm", "../../people")),
        _use("todo"),
        *(_use(name, path="/", command="cat sessions.json", pattern=SECRET) for name in OF_THE_MACHINE),
    ]


async def bob_tries(gateway: LocalGateway, known: Known, places: list[str]) -> list[str]:
    """Run all attempts in all chats. Return what Bob sees and what the model receives."""
    seen = []
    for name in places:
        bob = PLACES[name](BOB)
        await gateway.asks(bob, "hello")
        await gateway.asks(bob, "and more", reply_to="who said what?", offered=[file("b.txt", b"mine")])
        for text in (*tried_tools(known), *tried_commands(known)):
            before = len(gateway.brain.requests)
            answers = await gateway.asks(bob, text)
            if text.startswith("/search"):
                answers = _without_ranks(answers)
            requests = [[one.messages, one.tools] for one in gateway.brain.requests[before:]]
            seen.append(json.dumps([name, text, answers, requests], ensure_ascii=False, default=str))
    return seen


def _without_ranks(answers: list[str]) -> list[str]:
    """Return the conversations that were found, sorted, without ranks and snippets.

    Ranks and snippets may differ, because they depend on how rare a word is in the whole store.
    """
    lines = [RANK.sub("", ID.sub("ID", line)) for answer in answers for line in answer.splitlines()]
    return sorted(line for line in lines if not line.startswith(" "))


def leveled(seen: list[str], known: Known) -> list[str]:
    """Replace each generated id by a number in the order of first occurrence, and remove row numbers."""
    made: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        found_id = found[0].replace("\\", "")
        return found_id if found_id in known.ids else made.setdefault(found_id, f"ID{len(made)}")

    return [SIZED.sub("N", NUMBERED.sub(r"\1N", ID.sub(named, text))) for text in seen]


def differing(one: str, other: str) -> str:
    """Return the parts in which two long texts differ."""
    at = next(number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return f"{one[:60]}: {one[max(0, at - 80) : at + 80]!r} is not {other[max(0, at - 80) : at + 80]!r}"


async def without_ann(
    settings: GatewaySettings, known: Known, places: list[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    monkeypatch.setenv("HERMES_HOME", str(home))
    async with LocalGateway(settings) as gateway:
        return leveled(await bob_tries(gateway, known, places), known)


@pytest.mark.parametrize(
    ("keying", "anns", "bobs"),
    [
        (ROOMS, ["dm", "group", "thread"], ["dm"]),
        pytest.param(ROOMS, ["dm"], ["group"], marks=pytest.mark.full),
        (DEFAULT, ["dm", "group"], ["group"]),
        pytest.param(DEFAULT, ["dm", "group"], ["thread"], marks=pytest.mark.full),
        (ALONE, ["dm", "group", "thread"], ["thread"]),
        pytest.param(THREADS_ALONE, ["dm", "group", "thread"], ["thread"], marks=pytest.mark.full),
    ],
    ids=str,
)
async def test_bob_sees_the_same_with_and_without_ann(
    keying: Keying,
    anns: list[str],
    bobs: list[str],
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = settings_of(keying=keying)
    the_machine_has_secrets(home)
    async with LocalGateway(settings) as gateway:
        known = await ann_lives(gateway, anns)
        hers = [gateway.db.export_session(one) for one in known.ids]
        heard = [gateway.heard(PLACES[name](ANN)) for name in anns if name not in bobs]
        assert SECRET in json.dumps(hers)
        tried = await bob_tries(gateway, known, bobs)
        seen = leveled(tried, known)
        typed = "\n".join(known.words)
        words = [secret(name, kind) for name in anns for kind in KINDS]
        assert not [word for word in words if word not in typed and word in "\n".join(tried)]
        assert [gateway.db.export_session(one) for one in known.ids] == hers
        assert [gateway.heard(PLACES[name](ANN)) for name in anns if name not in bobs] == heard
    alone = await without_ann(settings, known, bobs, tmp_path / "alone", monkeypatch)
    for with_her, without_her in zip(seen, alone, strict=True):
        assert with_her == without_her, differing(with_her, without_her)


# ---------------------------------------------------------------- rooms and the terminal


@pytest.mark.parametrize("place", [in_group, in_thread])
async def test_a_room_shows_no_private_conversations(place: Place) -> None:
    """In a room, even the private conversations of the person who asks are not available, because the other
    people in the room would see them."""
    async with LocalGateway(settings_of(keying=ROOMS, platform={"owners": frozenset({"1"})})) as gateway:
        known = await ann_lives(gateway, ["dm"])
        await gateway.asks(place(BOB), "the word of this room is mellon")
        await gateway.asks(place(BOB), "/new")
        found = await gateway.asks(place(ANN), _use("session_search", query="word of this room"))
        assert "mellon" in found[0]
        outside = await gateway.asks(BOB, _use("session_search", query="word of this room"))
        assert "mellon" not in outside[0]
        before = len(gateway.brain.requests)
        for who in (ANN, BOB):
            await gateway.restart()  # so that Ann and Bob are each the first to write after a start
            for command in command_table.COMMANDS:
                for words in ("", " 1", " my word", f" {TITLE}", f" {known.ids[0]}"):
                    await gateway.asks(place(who), f"/{command.name}{words}")
            await gateway.asks(place(who), _use("session_search", query="my word"))
            await gateway.asks(place(who), _use("memory", action="read", target="memory"))
            await gateway.asks(place(who), _use("skills_list"))
        assert SECRET not in "\n".join(gateway.heard(place(ANN)))
        assert not any(SECRET in str(one.messages) for one in gateway.brain.requests[before:])


async def test_private_memory_is_available_to_its_person_only() -> None:
    async with LocalGateway() as gateway:
        add = _use("memory", action="add", target="user", content=SECRET)
        await gateway.asks(ANN, add)
        for who in (ANN, BOB, in_thread(ANN)):
            await gateway.asks(who, "/new")
            await gateway.asks(who, "hello")
            system = gateway.brain.requests[-1].messages[0]
            assert system["role"] == "system"
            assert (SECRET in system["content"]) is (who == ANN)


@pytest.mark.parametrize("keying", [DEFAULT, ALONE, ROOMS, THREADS_ALONE], ids=str)
async def test_only_the_owner_in_private_can_use_the_machine(keying: Keying) -> None:
    settings = settings_of(keying=keying, platform={"owners": frozenset({"1"})})
    async with LocalGateway(settings) as gateway:
        for who in (ANN, BOB):
            for place in PLACES.values():
                await gateway.asks(place(who), "hello")
                request = gateway.brain.requests[-1]
                tools = {one["function"]["name"] for one in request.tools}
                theirs = place(who) == ANN
                assert tools.isdisjoint(OF_THE_MACHINE) is not theirs
                assert "session_search" in tools
                assert ("Working directory" in request.messages[0]["content"]) is theirs


async def test_a_former_owner_cannot_use_the_machine() -> None:
    async with LocalGateway() as gateway:
        pairings = Pairings(gateway_folder())
        code = pairings.make_code("telegram", owner=True)
        await gateway.asks(ANN, f"/pair {code}")
        await gateway.asks(ANN, "hello")
        assert any(one["function"]["name"] == "terminal" for one in gateway.brain.requests[-1].tools)
        pairings.revoke("telegram", "1")
        await gateway.asks(ANN, "hello")
        assert not any(one["function"]["name"] == "terminal" for one in gateway.brain.requests[-1].tools)


async def test_the_files_of_the_operator_are_not_available_to_others(home: Path) -> None:
    async with LocalGateway() as gateway:
        await ann_lives(gateway, ["dm"])
    kept = [
        path for path in home.rglob("*") if path.is_file() and SECRET in path.read_text("utf-8", "ignore")
    ]
    assert kept
    for path in kept:
        assert path.stat().st_mode & 0o077 == 0
        assert SECRET not in str(path)
