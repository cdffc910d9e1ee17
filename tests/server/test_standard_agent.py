"""The standard agent over the API, with a local model server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.agent.factory import StandardFactory
from hermes.conversation.agents import StandardAgentProvider
from tests.agent.openai_server import ModelServer, calls, refuses, says, usage
from tests.server.api_gateway import ask, assistant, open_api_gateway, user


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, model_server: ModelServer) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-model")
    monkeypatch.setenv("HERMES_MODEL", "small-model")


async def test_instructions_tools_and_usage_go_through_the_real_agent(model_server: ModelServer) -> None:
    took = usage(prompt_tokens=20, completion_tokens=5, total_tokens=25)
    model_server.will(calls(("c1", "todo", "{}")), says("all done", used=took), says("A title"), says("more"))
    async with (
        open_api_gateway(agents=StandardAgentProvider(StandardFactory())) as gateway,
        gateway.openai() as client,
    ):
        messages = [{"role": "system", "content": "Speak like a pirate."}, user("what is to do?")]
        made = await client.chat.completions.create(model="hermes", messages=messages)
        assert made.choices[0].message.content == "all done"
        assert made.usage is not None
        assert made.usage.total_tokens == 25
        sent = model_server.requests[0].body
        assert "Speak like a pirate." in sent["messages"][0]["content"]
        names = {tool["function"]["name"] for tool in sent["tools"]}
        assert "todo" in names
        assert not names & {"terminal", "read_file", "write_file"}  # no owner is configured
        (row,) = gateway.db.search_sessions()
        config = json.loads(row["model_config"])
        assert (config["model"], config["endpoint"]) == ("small-model", model_server.base_url)
        assert "sk-of-the-model" not in row["model_config"]
        assert gateway.db.get_messages(row["id"])[-1]["token_count"] == 5


async def test_the_owner_has_the_tools_that_reach_the_machine(model_server: ModelServer) -> None:
    model_server.will(says("hello"))
    async with open_api_gateway(agents=StandardAgentProvider(StandardFactory()), owners=["*"]) as gateway:
        await ask(gateway, [user("hi")])
        names = {tool["function"]["name"] for tool in model_server.requests[0].body["tools"]}
        assert {"terminal", "read_file"} <= names


async def test_an_action_that_needs_approval_is_refused_over_the_api(
    model_server: ModelServer,
) -> None:
    kept = Path.home() / "kept"
    kept.mkdir(parents=True)
    model_server.will(calls(("c1", "terminal", '{"command": "rm -rf kept"}')), says("I may not"))
    async with open_api_gateway(agents=StandardAgentProvider(StandardFactory()), owners=["*"]) as gateway:
        assert (await ask(gateway, [user("tidy up")]))[0] == "I may not"
    result = model_server.requests[1].body["messages"][-1]
    assert (result["role"], "nobody can be asked for approval here" in result["content"]) == ("tool", True)
    assert kept.is_dir()


async def test_a_refusal_of_the_model_server_has_a_status(model_server: ModelServer) -> None:
    model_server.will(refuses(401, "wrong key"), says("now"))
    async with (
        open_api_gateway(agents=StandardAgentProvider(StandardFactory())) as gateway,
        gateway.http() as client,
    ):
        answer = await client.post("/v1/chat/completions", json={"messages": [user("hi")]})
        assert answer.status_code == 502
        assert answer.headers["x-should-retry"] == "false"
        assert "sk-of-the-model" not in answer.text
        reply, session = await ask(gateway, [user("hi")])
        assert reply == "now"
        assert gateway.db.message_count(session) == 2
        assert assistant(reply)["content"] == gateway.db.get_messages(session)[1]["content"]
