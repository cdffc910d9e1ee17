"""The same commands in the terminal and over the API result in the same conversations in the store."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes.conversation.agents import AgentScope, LiveRecord, PreparedAgent, build_agent
from hermes.db.session_db import AnyStore
from tests.chat.echo import make_tools
from tests.gateway.local_gateway import ANN
from tests.gateway.test_same_commands import (
    COMPONENTS,
    NO_QUESTIONS,
    SAY,
    STEP,
    Person,
    StoredConversation,
    StoredState,
    read_state,
)
from tests.server.api_gateway import ApiGateway, ParrotAgents, ask, open_api_gateway, user
from tests.tiers import scale_examples


class CompressingAgents(ParrotAgents):
    async def prepare_agent(self, scope: AgentScope, store: AnyStore, record: LiveRecord) -> PreparedAgent:
        return build_agent(COMPONENTS, scope, store, record, self.model, make_tools(False), Path.home())


@settings(
    max_examples=scale_examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEP, max_size=14))
@example(steps=[SAY, "/undo", SAY, "/undo", "/redo"])
@example(steps=["/new Rome", "/undo", SAY, "/new Rome", SAY, "/resume Rome", SAY])
@example(steps=[SAY, "/branch Naples", "/undo 2", SAY, "/undo", "/redo", "/compress", SAY, "/retry", "/redo"])
async def test_the_api_and_the_terminal_store_the_same(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, HERMES_HOME=folder):
        (Path(folder) / "config.yaml").write_text(NO_QUESTIONS)
        async with open_api_gateway({"requests_per_minute": 100_000}, CompressingAgents()) as gateway:
            person = Person(ANN, Path(folder))
            await compare([SAY, *steps], gateway, person)
            await person.close()


async def compare(steps: list[str], gateway: ApiGateway, person: Person) -> None:
    """Run the steps in the terminal and over the API. Compare the stored conversations after each step.

    The first step must be a message. Before it, an API client has no session that it could name.
    """
    terminal, session = person.terminal, "mine"
    async with gateway.http() as client:
        for number, step in enumerate(steps):
            # The API stores a title immediately, and the terminal stores it with the first message. A
            # conversation that is left before its first message therefore differs between them.
            if step.startswith("/resume") and terminal.conversation.queued_title is not None:
                continue
            typed = f"m{number}" if step == SAY else step
            await terminal._handle_input(typed)
            await terminal.conversation.settle()
            if step == SAY:
                _, session = await ask(gateway, [user(typed)], session=session)
            else:
                answer = await client.post(f"/api/sessions/{session}/commands", json={"command": typed})
                assert answer.status_code in (200, 400, 404), answer.text
                session = answer.json().get("session_id", session)
            row = gateway.db.get_session(session)
            assert row is not None
            stored = read_state(gateway.db, row["owner"], None, None)
            assert list_contents(person.read_terminal()) == list_contents(stored), steps[: number + 1]


def list_contents(state: StoredState) -> list[StoredConversation]:
    """Return the conversations without the fields that say whether and why they ended. These fields differ
    between the surfaces, because an API client can continue any session."""
    return [conversation._replace(is_ended=False, end_reason=None) for conversation in state.conversations]
