"""A title in a chat is requested once, from a model over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.agent.factory import StandardFactory
from hermes.conversation.agents import StandardAgentProvider
from tests.agent.openai_server import ModelServer, Reply, says
from tests.gateway.local_gateway import ANN, LocalGateway


@pytest.fixture
def server() -> Iterator[ModelServer]:
    server = ModelServer()
    yield server
    server.close()


class WithServer(LocalGateway):
    def agents(self) -> StandardAgentProvider:
        return StandardAgentProvider(StandardFactory())


async def test_a_message_that_comes_while_a_title_is_made_asks_for_no_other(
    home: Path, server: ModelServer
) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(
        f"model: {{default: small-model, base_url: '{server.base_url}', max_retries: 0}}\n"
    )
    go_on = threading.Event()
    title = says("Naming of things")
    server.will(says("first answer"), Reply([go_on, *title.steps]), says("second answer"))
    try:
        async with WithServer() as gateway:
            await gateway.says(ANN, "hello there")
            await gateway.until(lambda: len(server.requests) == 2)
            await gateway.says(ANN, "and now?")
            await gateway.until(lambda: gateway.heard(ANN) == ["first answer", "second answer"])
            # a second request for a title would be made before the gateway has stopped
            go_on.set()
            session = gateway.session_of(ANN)
            await gateway.until(lambda: gateway.db.get_session_title(session) == "Naming of things")
    finally:
        go_on.set()
    asked = [str(one.body["messages"][0]["content"]) for one in server.requests]
    assert sum(text.startswith("Name a conversation") for text in asked) == 1
