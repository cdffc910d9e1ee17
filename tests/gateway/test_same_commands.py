"""The same commands in the terminal and in a chat leave the same conversations in the store."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from hermes.agent.components import AgentComponents, ModelChoice
from hermes.agent.events import Event, Moved
from hermes.agent.models.model import Model, Used
from hermes.agent.transcript import StoredRecord
from hermes.chat.terminal_loop import Chat
from hermes.chat.view.screen import Screen
from hermes.conversation.agents import AgentScope, StandardAgentProvider
from hermes.conversation.local import open_local_conversation
from hermes_state import SessionDB
from tests.chat.echo import PARTS, EchoModel
from tests.gateway.local_gateway import ANN, LocalGateway, WithBrain
from tests.stored_rows import read_rows

Row = dict[str, Any]

NAMES = st.sampled_from(["Rome", "Paris", "Naples"])
SAY = "say"
STEPS = st.lists(
    st.one_of(
        st.just(SAY),
        st.just(SAY),
        st.sampled_from(["/undo", "/undo 2", "/redo", "/rewind undo", "/rewind 2", "/retry", "/compress"]),
        st.sampled_from(["/new", "/reset", "/branch", "/fork", "/resume 1", "/resume 2", "/rewind 9"]),
        st.builds("{} {}".format, st.sampled_from(["/new", "/title", "/branch", "/resume"]), NAMES),
    ),
    max_size=14,
)
NO_QUESTIONS = "approvals:\n  destructive_slash_confirm: false\n"


class Compressing:
    """Goes on from a summary and the last exchange."""

    def __init__(self, record: StoredRecord) -> None:
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
    """Which of the conversations it came from."""
    context: list[tuple[str, str]]
    own: list[tuple[str, bool]]
    """All its messages, and whether each is live."""


def read_conversations(db: SessionDB) -> list[StoredConversation]:
    """All sessions with messages, oldest first. Empty ones differ: a chat stores a session before anything is said."""
    rows = read_rows(db, "SELECT id FROM sessions ORDER BY started_at, id")
    exported = [record for (session_id,) in rows if (record := db.export_session(session_id))]
    kept = [
        record
        for record in exported
        if record["messages"] or record.get("context") or record.get("rewound_context")
    ]
    numbers = {record["id"]: number for number, record in enumerate(kept)}
    return [
        StoredConversation(
            record["title"],
            record["relation"],
            None if record["parent_session_id"] is None else numbers[record["parent_session_id"]],
            [(row["role"], row["content"]) for row in db.get_context(record["id"])],
            [(row["content"], bool(row["active"])) for row in record["messages"]],
        )
        for record in kept
    ]


def make_terminal(db: SessionDB, cwd: Path) -> Chat:
    conversation = open_local_conversation(db, COMPONENTS, cwd=cwd)
    return Chat(conversation, Screen(Console(file=io.StringIO(), width=100)))


@settings(
    max_examples=int(os.environ.get("HERMES_COMMAND_EXAMPLES", "20")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS)
@example(steps=[SAY, SAY, "/undo", SAY, "/undo", "/redo"])
@example(steps=[SAY, "/new Rome", "/undo", SAY, "/new Rome", SAY, "/resume Rome", SAY])
@example(
    steps=[SAY, SAY, "/branch Naples", "/undo 2", SAY, "/undo", "/redo", "/compress", SAY, "/undo 2", "/redo"]
)
async def test_both_surfaces_store_the_same(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, HERMES_HOME=folder):
        (Path(folder) / "config.yaml").write_text(NO_QUESTIONS)
        async with EchoGateway() as gateway:
            with SessionDB(Path(folder) / "terminal.db") as db:
                await compare(steps, gateway, db, Path(folder))


async def compare(steps: list[str], gateway: LocalGateway, db: SessionDB, cwd: Path) -> None:
    terminal = make_terminal(db, cwd)
    for number, step in enumerate(steps):
        # A chat stores a title at once, the terminal with the first message: one that is left before that differs.
        if step.startswith("/resume") and terminal.conversation.queued_title is not None:
            continue
        typed = f"m{number}" if step == SAY else step
        await terminal._handle_input(typed)
        await gateway.asks(ANN, typed)
        assert read_conversations(db) == read_conversations(gateway.db), steps[: number + 1]
    await terminal.conversation.leave()
