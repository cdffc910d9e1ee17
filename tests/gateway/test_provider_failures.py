"""Failures of a provider in chats: fallback models answer, and only the owner sees the error text of the
provider.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.config import config_file
from tests.agent.openai_server import ModelServer, Reply, calls, refuses, says
from tests.gateway.local_gateway import ANN, BOB, in_group, in_thread, settings_of
from tests.gateway.served_gateway import ServedGateway

SECRET = "org-Q7w8 at node-7.provider.internal"
NEUTRAL = "⚠ The model is not available just now.\n\nYour message is stored. Use `/retry` to try again."


@pytest.mark.parametrize(
    "failure",
    [
        refuses(503, f"overloaded: {SECRET}"),
        refuses(429, f"You exceeded your current quota: {SECRET}"),
        refuses(402, f"payment required: {SECRET}"),
        refuses(404, f"model_not_found: {SECRET}"),
    ],
)
async def test_only_the_owner_in_a_private_chat_sees_the_error_of_the_provider(
    home: Path, model_server: ModelServer, failure: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(platform={"owners": frozenset({"1"})})
    async with ServedGateway(home, model_server, settings=settings) as gateway:
        for who in (BOB, in_group(BOB), in_group(ANN), in_thread(BOB)):
            model_server.will(failure)
            assert await gateway.asks(who, "hello") == [NEUTRAL]
        assert SECRET in caplog.text
        model_server.will(failure)
        (told,) = await gateway.asks(ANN, "hello")
        assert SECRET in told


async def test_a_rejected_request_is_reported_without_the_error_of_the_provider(
    home: Path, model_server: ModelServer
) -> None:
    async with ServedGateway(home, model_server) as gateway:
        model_server.will(refuses(400, f"bad schema: {SECRET}"))
        (told,) = await gateway.asks(BOB, "hello")
        assert told.startswith("⚠ The model does not accept this request.")


async def test_a_failed_subagent_of_a_stranger_hides_the_error_of_the_provider(
    home: Path, model_server: ModelServer
) -> None:
    async with ServedGateway(home, model_server) as gateway:
        model_server.will(
            calls(("c1", "delegate_task", json.dumps({"goal": "look"}))),
            refuses(503, f"overloaded: {SECRET}"),
            says("it failed"),
        )
        assert "it failed" in (await gateway.asks(BOB, "ask another"))[0]
        sent = json.dumps(model_server.requests[-1].body["messages"])
        assert "The model is not available just now." in sent
        assert SECRET not in sent


async def test_a_chat_is_answered_by_the_fallback_and_says_so(home: Path, model_server: ModelServer) -> None:
    second = ModelServer()
    try:
        async with ServedGateway(home, model_server, second) as gateway:
            model_server.will(refuses(503, f"overloaded: {SECRET}"))
            second.will(says("good morning"), says("good day"))
            note = "ⓘ first is not available just now; fallback-1 answered."
            assert await gateway.asks(BOB, "hello") == [f"good morning\n\n{note}"]
            assert await gateway.asks(ANN, "hello") == [f"good day\n\n{note}"]
            assert len(model_server.requests) == 1
            used = gateway.db.usage_of(gateway.session_of(BOB))
            assert [line.model for line in used.by_model] == ["fallback-1"]
    finally:
        second.close()


async def test_a_failed_compression_is_reported_without_the_error_of_the_provider(
    home: Path, model_server: ModelServer
) -> None:
    settings = settings_of(platform={"owners": frozenset({"1"})})
    gateway = ServedGateway(home, model_server, settings=settings)
    config_file.change_all([("compression.protect_first_n", 0), ("compression.protect_last_n", 1)])
    async with gateway:
        for who, is_told in ((BOB, False), (ANN, True)):
            for number in range(3):
                model_server.will(says(f"answer-{number}-" + "word-" * 3_000))
                await gateway.asks(who, f"question {number} " + "word " * 2_000)
            model_server.will(refuses(503, f"overloaded: {SECRET}"))
            (told,) = await gateway.asks(who, "/compress")
            assert "the conversation could not be compressed" in told
            assert (SECRET in told) is is_told
