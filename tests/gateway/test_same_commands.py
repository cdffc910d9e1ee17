"""The same commands in the terminal and in a chat result in the same conversations in the store."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console

from hermes.agent.components import AgentComponents, ModelChoice
from hermes.agent.events import Event, Moved
from hermes.agent.models.model import Model, Used
from hermes.agent.transcript import Record
from hermes.chat.input.prompt_line import PromptLine
from hermes.chat.terminal_loop import Chat
from hermes.chat.view.screen import Screen
from hermes.conversation.agents import AgentScope, StandardAgentProvider
from hermes.conversation.local_conversation import open_local_conversation
from hermes.gateway.inbound_events import Source
from hermes.gateway.sessions.session_keys import make_chat, make_principal
from hermes_state import SessionDB
from tests.chat.conftest import POSITION
from tests.chat.echo import PARTS, EchoModel
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, WithBrain
from tests.stored_rows import read_rows
from tests.tiers import scale_examples

Row = dict[str, Any]

SAY = "say"
NAMES = st.sampled_from(["Rome", "Paris", "Naples"])
NUMBERS = st.integers(1, 3)
SAID = st.integers(0, 9)
"""The index of a message whose text is searched for."""
STEP = st.one_of(
    st.just(SAY),
    st.just(SAY),
    st.sampled_from(["/undo", "/undo 2", "/redo", "/rewind undo", "/rewind 2", "/rewind 9", "/retry"]),
    st.sampled_from(["/compress", "/stop", "/new", "/reset", "/branch", "/fork"]),
    st.builds("{} {}".format, st.sampled_from(["/new", "/title", "/branch", "/resume"]), NAMES),
    NUMBERS.map("/resume {}".format),
)
GROUPS = st.one_of(
    st.tuples(STEP),
    st.tuples(STEP, STEP),
    st.tuples(NAMES.map("/new {}".format), st.just("/undo")),
    st.tuples(st.just("/sessions"), NUMBERS.map("/resume {}".format)),
    st.tuples(NAMES.map("/sessions {}".format), NUMBERS.map("/resume {}".format)),
    st.tuples(SAID.map(lambda number: f"/search {make_text(number)}"), st.just("/resume 1")),
)
"""The steps that one person takes before the other person continues."""
PEOPLE = st.sampled_from([0, 0, 0, 1])
STEPS = st.lists(st.tuples(PEOPLE, GROUPS), max_size=12)


def make_text(number: int) -> str:
    return f"said{number:03}x"


def typed_by(person: int, *steps: str) -> tuple[int, tuple[str, ...]]:
    return person, steps


NO_QUESTIONS = "approvals:\n  destructive_slash_confirm: false\n"


class Compressing:
    """A compressor that keeps the last exchange and summarises the rest."""

    def __init__(self, record: Record) -> None:
        self.record = record

    async def is_due(self, _rows: Sequence[Row], _used: Used | None) -> bool:
        return False

    def fit_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        return rows

    def compress(self, *, overflow: bool) -> AsyncIterator[Event]:
        return self.compress_by_hand(str(overflow))

    async def compress_by_hand(self, focus: str | None = None) -> AsyncIterator[Event]:
        ids = [row["id"] for row in await self.record.context()]
        if len(ids) > 2:
            await self.record.continue_with("summary", head=[], carried=ids[-2:], prompt="Repeat.")
            yield Moved(self.record.session_id, len(ids), 3)


COMPONENTS = PARTS._replace(make_compressor=lambda record, _working: Compressing(record))


class Echo(WithBrain):
    def make_model(self, wish: ModelChoice) -> Model:
        return EchoModel()


class EchoAgents(StandardAgentProvider):
    def _parts_of(self, scope: AgentScope) -> tuple[AgentComponents, Path]:
        return COMPONENTS, Path.home()


class EchoGateway(LocalGateway):
    def agents(self) -> StandardAgentProvider:
        return EchoAgents(Echo(self.brain))


class StoredConversation(NamedTuple):
    title: str | None
    relation: str | None
    parent: int | None
    """The index of the conversation from which this one was branched or continued."""
    is_ended: bool
    end_reason: str | None
    context: list[tuple[str, str]]
    own: list[tuple[str, bool]]
    """The messages that are stored in this conversation itself, as (text, whether the message is active)."""


class StoredState(NamedTuple):
    conversations: list[StoredConversation]
    live: int | None
    """The index of the person's current conversation. None if the current conversation has no messages."""
    queued_title: str | None


SAME_REASONS = {
    "session_reset": "new",
    "new_session": "new",
    "session_switch": "switch",
    "resumed_other": "switch",
}
"""The documented end reasons differ between surfaces; these reasons count as equal."""
ALL_OF = "SELECT id FROM sessions WHERE owner = ? ORDER BY started_at, id"
NUMBERED = re.compile(r" \(\d+\)$")


def read_state(db: SessionDB, owner: str, live_id: str | None, queued_title: str | None) -> StoredState:
    """Return the sessions of `owner` that have messages, oldest first. Empty sessions are left out, because
    only a chat stores a session and its title before the first message."""
    exported = [
        record for (session_id,) in read_rows(db, ALL_OF, owner) if (record := db.export_session(session_id))
    ]
    kept = [
        record
        for record in exported
        if record["messages"] or record.get("context") or record.get("rewound_context")
    ]
    numbers = {record["id"]: number for number, record in enumerate(kept)}
    if queued_title is None and live_id is not None and live_id not in numbers:
        queued_title = db.get_session_title(live_id)
    return StoredState(
        [
            StoredConversation(
                record["title"],
                record["relation"],
                None if record["parent_session_id"] is None else numbers[record["parent_session_id"]],
                record["ended_at"] is not None,
                SAME_REASONS.get(record["end_reason"], record["end_reason"]),
                [(row["role"], row["content"]) for row in db.get_context(record["id"])],
                [(row["content"], bool(row["active"])) for row in record["messages"]],
            )
            for record in kept
        ],
        None if live_id is None else numbers.get(live_id),
        None
        if queued_title is None
        else NUMBERED.sub("", queued_title),  # the title gets a number when it is stored
    )


class Leaving(DummyOutput):
    """A terminal in which a person presses Esc at every question."""

    responds_to_cpr = True

    def __init__(self, pipe: PipeInput) -> None:
        self._pipe = pipe

    def ask_for_cpr(self) -> None:
        self._pipe.send_text(f"{POSITION}\x1b")


class Person:
    """A person who takes the same steps twice: in a terminal with a separate store, and in a private chat."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source, self.owner = source, make_principal(source).person
        self.db = SessionDB(folder / f"terminal-{source.user_id}.db")
        conversation = open_local_conversation(self.db, COMPONENTS, cwd=folder)
        self.terminal = Chat(conversation, Screen(Console(file=io.StringIO(), width=100)))
        self.keyboard = ExitStack()
        pipe = self.keyboard.enter_context(create_pipe_input())
        self.terminal.prompt_line = PromptLine(
            DummyCompleter(), lambda: "", incognito=True, keyboard=pipe, output=Leaving(pipe)
        )

    async def types(self, gateway: LocalGateway, text: str) -> None:
        await self.terminal._handle_input(text)
        await self.terminal.conversation.settle()
        await gateway.asks(self.source, text)

    def read_terminal(self) -> StoredState:
        conversation = self.terminal.conversation
        live = conversation.session_id if conversation.exists else None
        return read_state(self.db, "", live, conversation.queued_title)

    def read_chat(self, gateway: LocalGateway) -> StoredState:
        route = gateway.db.routing.find(*make_chat(self.source, gateway.settings.keying))
        live = None if route is None else gateway.db.routing.find_live_session(route.session_key)
        return read_state(gateway.db, self.owner, live, None)

    async def close(self) -> None:
        await self.terminal.conversation.leave()
        self.keyboard.close()
        self.db.close()


@settings(
    max_examples=scale_examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(groups=STEPS)
@example(groups=[typed_by(0, SAY, SAY, "/undo", SAY, "/undo", "/redo")])
@example(groups=[typed_by(0, SAY, "/new Rome", "/undo", SAY, "/new Rome", SAY, "/resume Rome", SAY)])
@example(
    groups=[
        typed_by(0, SAY, SAY, "/branch Naples", "/undo 2", SAY, "/undo", "/redo"),
        typed_by(1, SAY, "/title Naples", "/new"),
        typed_by(0, "/compress", SAY, "/undo 2", "/redo"),
    ]
)
@example(
    groups=[
        typed_by(0, SAY, "/new", SAY, f"/search {make_text(0)}"),
        typed_by(1, SAY),
        typed_by(0, "/resume 1"),
    ]
)
@example(
    groups=[typed_by(0, SAY, "/new", SAY, "/new Rome", "/sessions", "/resume 2", "/new", "/title Rome", SAY)]
)
async def test_both_surfaces_store_the_same(groups: list[tuple[int, tuple[str, ...]]]) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, HERMES_HOME=folder):
        (Path(folder) / "config.yaml").write_text(NO_QUESTIONS)
        async with EchoGateway() as gateway:
            people = [Person(source, Path(folder)) for source in (ANN, BOB)]
            await compare([(people[number], step) for number, steps in groups for step in steps], gateway)
            for person in people:
                await person.close()


WORDED = [
    *("/title", "/branch", "/agents", "/usage", "/status", "/history", "/resume", "/resume 99", "/stop"),
    *(SAY, "/title Rome", "/title", "/new Paris", SAY, "/undo", "/undo many", "/redo", "/redo"),
    *("/search", "/search m9 m13", "/search xylophone", "/sessions Berlin", "/agents stop 9", "/agents stop"),
    *("/agents start", "/memory", "/skills", "/insights x", "/rewind 9", "/resend", "/usage"),
    *("/title \u200b", "/resume nowhere", "/sessions m", "/branch Naples", "/u", "/undoo", "/compress"),
    *("/status", "/new " + "x" * 101, "/new"),
]
OF_CHATS = ("Model:", "Since:", "Platform:", "Resets:", "- ", "  ", "1. ", "2. ")
"""The beginnings of lines that are not compared: lines that only a chat shows, and lists, which the terminal
shows as tables."""


async def test_both_surfaces_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(NO_QUESTIONS)
    with patch.dict(os.environ, HERMES_HOME=str(tmp_path)):
        async with EchoGateway() as gateway:
            person = Person(ANN, tmp_path)
            for number, step in enumerate(WORDED):
                typed = f"m{number}" if step == SAY else step
                person.terminal.screen.console.file = screen = io.StringIO()
                await person.terminal._handle_input(typed)
                await person.terminal.conversation.settle()
                answer = "\n".join(await gateway.asks(ANN, typed))
                lines = [line for line in answer.splitlines() if not line.startswith(OF_CHATS)]
                for line in lines:
                    assert remove_markup(line) in remove_markup(screen.getvalue()), step
            await person.close()


def remove_markup(text: str) -> str:
    """Return the words of `text` without markup, quotation marks, layout and ids. These differ between the
    surfaces."""
    bare = re.sub(r"\\(?=\W)|[`*“”\u2060]", "", text)
    return " ".join(re.sub(r"\d{8}_\d{6}_[0-9a-f]+", "id", bare).split())


async def compare(steps: list[tuple[Person, str]], gateway: LocalGateway) -> None:
    texts = map(make_text, count())
    for person, step in steps:
        # a chat has already stored the title of a new conversation, so the title finds it
        if step.removeprefix("/resume ").isalpha() and person.terminal.conversation.queued_title is not None:
            continue
        before = [other.read_chat(gateway) for other in {each for each, _ in steps} - {person}]
        await person.types(gateway, next(texts) if step == SAY else step)
        assert person.read_terminal() == person.read_chat(gateway), step
        assert before == [other.read_chat(gateway) for other in {each for each, _ in steps} - {person}]
