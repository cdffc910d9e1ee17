"""Random actions and failures. Each message is answered once, in its chat and in order."""

from __future__ import annotations

import random

import pytest

from hermes.gateway import platform_connections
from hermes.gateway.adapter import RateLimited, Unreachable
from hermes.gateway.outbound import delivery
from tests.gateway.local_gateway import ANN, BOB, LocalGateway, in_group, in_thread, settings_of

CHATS = (ANN, BOB, in_group(ANN), in_group(BOB), in_thread(ANN))
COMMANDS = ("/status", "/title T", "/branch", "/undo", "/redo", "/sessions", "/compress", "/resume 1", "/why")
"""Commands that do not stop an answer."""
STEPS = 40


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_connections, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(delivery, "FIRST_PAUSE_S", 0.01)


@pytest.mark.parametrize("busy", ["queue", "steer"])
@pytest.mark.parametrize("seed", range(5))
async def test_each_message_is_answered_once_and_in_order(seed: int, busy: str) -> None:
    dice = random.Random(seed)
    messages: dict[int, list[str]] = {number: [] for number in range(len(CHATS))}
    async with LocalGateway(settings_of(platform={"busy": busy, "stream": dice.random() < 0.5})) as gateway:
        for step in range(STEPS):
            match dice.choice(("say", "say", "say", "say", "twice", "command", "break", "restart", "lose")):
                case "say" | "twice" as how:
                    number = dice.randrange(len(CHATS))
                    text = f"word{step}"
                    for _ in range(1 if how == "say" else 2):
                        await gateway.says(CHATS[number], text, number=f"n{step}")
                    messages[number].append(text)
                case "command":
                    await gateway.says(dice.choice(CHATS), dice.choice(COMMANDS), number=f"n{step}")
                case "break":
                    problem = dice.choice((Unreachable("no net"), RateLimited("slow down", 0.01)))
                    gateway.platform.fail("send", problem)
                case "restart" if dice.random() < 0.3:
                    await gateway.restart()
                case "lose":
                    gateway.platform.disconnect()
                    await gateway.until(lambda: not gateway.platform.is_connected)
                    await gateway.until(lambda: gateway.platform.is_connected)
                case _:
                    pass
        await gateway.quiet()
        for number, texts in messages.items():
            heard = [answer.split() for answer in gateway.heard(CHATS[number]) if "you said" in answer]
            first = [next((at for at, words in enumerate(heard) if text in words), -1) for text in texts]
            assert first == sorted(first), (texts, heard)
            assert -1 not in first, (texts, heard)
            if busy == "queue":
                assert [words[-1] for words in heard if words[-1] in texts] == texts
