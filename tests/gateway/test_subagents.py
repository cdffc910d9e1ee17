"""Subagents of a chat: their owner, their visibility, `/agents`, and approvals, with a model over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes.agent.factory import StandardFactory
from hermes.config import config_file
from hermes.conversation.agents import StandardAgentProvider
from hermes.gateway.inbound_events import Source
from hermes.gateway.settings import GatewaySettings
from tests.agent.task_server import TaskServer, choose_server, delegate
from tests.gateway.approval_gateway import OWNED, name_in
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, in_group, in_thread, settings_of
from tests.stored_rows import read_rows

CAT = Source("telegram", "3", user_id="3", user_name="Cat")
BELONGING = "SELECT owner, user_id, source, chat_id, session_key FROM sessions WHERE id IN (?, ?)"


class WireGateway(LocalGateway):
    def __init__(self, settings: GatewaySettings | None = None) -> None:
        super().__init__(settings)

    def agents(self) -> StandardAgentProvider:
        return StandardAgentProvider(StandardFactory())

    def children(self, who: Source) -> list[dict[str, Any]]:
        """Return the sessions of all subagents of the conversation of `who`."""
        rows = self.db.search_sessions(limit=100)
        return [row for row in rows if row["parent_session_id"] == self.session_of(who)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskServer]:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "HERMES_MODEL"):
        monkeypatch.setenv(name, "")
    made = TaskServer()
    choose_server(made)
    yield made
    made.close()


async def test_a_subagent_has_the_owner_of_the_conversation(server: TaskServer) -> None:
    async with WireGateway() as gateway:
        for who in (ANN, in_group(BOB)):
            replies = await gateway.asks(who, delegate("say three owls"))
            assert "three owls" in replies[-1]
            (child,) = gateway.children(who)
            family = read_rows(gateway.db, BELONGING, child["id"], gateway.session_of(who))
            assert family[0] == family[1]
            assert family[0][0]
            assert (child["relation"], child["kind"]) == ("delegate", "child")
            names = {tool["function"]["name"] for tool in server.requests[-2].body["tools"]}
            assert names == {"skills_list", "skill_view", "session_search", "todo"}
        assert await gateway.asks(BOB, "/agents") == ["Nothing was said here yet. There are no subagents."]
        assert "say three owls · done" in (await gateway.asks(ANN, "/agents"))[0]
        assert (await gateway.asks(ANN, "/usage"))[0].startswith("**This conversation** · 3 calls")


async def test_agents_lists_and_stops_while_they_work(server: TaskServer) -> None:
    async with WireGateway() as gateway:
        await gateway.says(ANN, delegate("hold a", "hold b"))
        await gateway.until(lambda: {"hold a", "hold b"} <= set(server.heard))
        await gateway.says(ANN, "/agents")
        await gateway.until(lambda: any("hold b · running" in text for text in gateway.heard(ANN)))
        assert "**1** hold a · running" in gateway.heard(ANN)[-1]
        await gateway.says(BOB, "/agents stop")
        await gateway.says(ANN, "/agents stop 2")
        await gateway.until(lambda: "Stopping subagent 2." in gateway.heard(ANN))
        await gateway.says(ANN, "/agents never")
        await gateway.until(lambda: gateway.heard(ANN)[-1].startswith("Usage: `/agents [stop [n]]`\n"))
        server.let_go("a")
        await gateway.quiet()
        assert "1 of 2 tasks done" in gateway.heard(ANN)[-1]
        assert "the person stopped it" in gateway.heard(ANN)[-1]


async def test_stop_stops_the_subagents_too(server: TaskServer) -> None:
    async with WireGateway() as gateway:
        await gateway.says(ANN, delegate("hold a"))
        await gateway.until(lambda: "hold a" in server.heard)
        await gateway.asks(ANN, "/stop")
        (child,) = gateway.children(ANN)
        assert child["end_reason"] == "subagent_stopped"
        assert (await gateway.asks(ANN, "say on we go"))[-1] == "on we go"


async def test_the_live_message_says_what_they_do(server: TaskServer) -> None:
    async with WireGateway(settings_of(platform={"stream": True})) as gateway:
        await gateway.says(ANN, delegate("hold a", "hold b", "say c"))
        await gateway.until(lambda: any("3 subagents, 1 over" in text for text in gateway.heard(ANN)))
        server.let_go("a")
        server.let_go("b")
        await gateway.quiet()
        assert "3 of 3 tasks done" in gateway.heard(ANN)[-1]


async def test_the_owner_is_asked_and_told_which_subagent_asks(server: TaskServer, home: Path) -> None:
    async with WireGateway(OWNED) as gateway:
        await gateway.says(ANN, delegate('use write_file {"path": "~/owls.txt", "content": "three"}'))
        await gateway.until(lambda: any("May I do this?" in text for text in gateway.heard(ANN)))
        question = gateway.heard(ANN)[-1]
        assert "subagent 1" in question
        await gateway.asks(ANN, f"/approve {name_in(question)}")
        assert "1 of 1 task done" in gateway.heard(ANN)[-1]
    assert (Path.home() / "owls.txt").read_text() == "three"


async def test_the_number_of_subagents_per_hour_is_limited(server: TaskServer) -> None:
    config_file.change("delegation.tasks_per_hour", 3)
    async with WireGateway() as gateway:
        assert "2 of 2 tasks done" in (await gateway.asks(ANN, delegate("say a", "say b")))[-1]
        refused = (await gateway.asks(ANN, delegate("say c", "say d")))[-1]
        assert "error: a person may start 3 subagents per hour here, and 1 is left" in refused
        assert len(gateway.children(ANN)) == 2
        assert "3 of 3 tasks done" in (await gateway.asks(BOB, delegate("say e", "say f", "say g")))[-1]
        # Ann has one task left, which counts in all of her chats: private, in a group, in a shared thread.
        assert "and 1 is left" in (await gateway.asks(in_group(ANN), delegate("say h", "say i")))[-1]
        assert "1 of 1 task done" in (await gateway.asks(in_thread(ANN), delegate("say j")))[-1]
        assert "and 0 are left" in (await gateway.asks(in_thread(BOB), delegate("say k")))[-1]
        assert "and 0 are left" in (await gateway.asks(ANN, delegate("say l")))[-1]
        assert "2 of 2 tasks done" in (await gateway.asks(in_thread(CAT), delegate("say m", "say n")))[-1]


async def test_owners_may_start_any_number(server: TaskServer) -> None:
    config_file.change("delegation.tasks_per_hour", 1)
    async with WireGateway(OWNED) as gateway:
        for who in (ANN, in_group(ANN), in_thread(ANN)):
            assert "2 of 2 tasks done" in (await gateway.asks(who, delegate("say a", "say b")))[-1]
