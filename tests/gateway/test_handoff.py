"""A conversation is handed off from the terminal to a chat and back. The chat, the gateway and the Telegram
SDK are real and run in separate processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from tests.gateway.conformance.echo_model import EchoModel, echo
from tests.gateway.conformance.gateway_process import Gateway, key_of
from tests.gateway.conformance.on_telegram import OnTelegram
from tests.gateway.conformance.stage import Person, until
from tests.gateway.terminal import INTERRUPT, LEAVE, Terminal

pytestmark = pytest.mark.full

WORDS = count(1)


class HandoffSetup:
    """A gateway whose home channel is Ann's private chat, and terminals with the same home."""

    def __init__(
        self, folder: Any, stage: OnTelegram, model: EchoModel, ann: Person, **settings: Any
    ) -> None:
        self.stage, self.model, self.ann = stage, model, ann
        self.gateway = Gateway(folder, stage, model, **settings)
        self._open = ExitStack()

    def terminal(self, *words: str) -> Terminal:
        made = Terminal(self.gateway.environment, *words)
        self._open.callback(made.close)
        made.sees("❯")
        return made

    def conversation(self) -> tuple[Terminal, str, str]:
        """Start a conversation in a terminal. Return (terminal, session, word)."""
        word = f"apple{next(WORDS)}x"
        terminal = self.terminal()
        terminal.says(word)
        terminal.sees(echo(word))
        with self.gateway.store() as db:
            [row] = until(lambda: [one for one in db.search_sessions() if one["preview"] == word])
        return terminal, row["id"], word

    def state(self, session: str) -> dict[str, Any]:
        with self.gateway.store() as db:
            return db.get_handoff_state(session) or {}

    def close(self) -> None:
        self._open.close()
        self.gateway.close()


@pytest.fixture(scope="module")
def make_handoff(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., HandoffSetup]]:
    with ExitStack() as running:
        model = EchoModel()
        running.callback(model.close)

        def make(*, home: bool) -> HandoffSetup:
            stage = OnTelegram()
            running.callback(stage.close)
            ann = stage.person("Ann")
            settings = {"home_channel": ann.id} if home else {"owners": [ann.id]}
            handoff = HandoffSetup(tmp_path_factory.mktemp("handoff"), stage, model, ann, **settings)
            running.callback(handoff.close)
            return handoff

        yield make


@pytest.fixture(scope="module")
def usual(make_handoff: Callable[..., HandoffSetup]) -> HandoffSetup:
    return make_handoff(home=True)


@pytest.fixture
def handoff(usual: HandoffSetup) -> HandoffSetup:
    usual.gateway.be_up()
    return usual


def test_a_conversation_is_handed_to_telegram_and_back(handoff: HandoffSetup) -> None:
    stage, model, ann = handoff.stage, handoff.model, handoff.ann
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    terminal, session, apple = handoff.conversation()
    before = len(stage.heard(here))

    terminal.says("/handoff telegram")
    terminal.sees("The conversation continues on telegram.")
    assert terminal.ended() == 0
    assert handoff.state(session) == {"state": "completed", "platform": "telegram", "error": None}
    [arrived] = stage.heard(here)[before:]
    assert f"hermes -r {session}" in arrived

    pear = f"pear{apple}"
    stage.say(ann, here, pear)
    until(lambda: stage.heard(here)[before + 1 :] == [echo(pear)], lambda: stage.heard(here))
    assert apple in model.request_text(pear), "it is the same conversation"
    assert handoff.gateway.session(key)["id"] == session

    back = handoff.terminal("-r", session)
    back.sees(echo(pear))
    plum = f"plum{apple}"
    back.says(plum)
    back.sees(echo(plum))
    assert pear in model.request_text(plum)
    meanwhile = f"meanwhile{apple}"
    # the conversation is open in the terminal, so the message waits and the person is told
    stage.say(ann, here, meanwhile)
    until(lambda: "open elsewhere" in stage.heard(here)[-1], lambda: stage.heard(here))
    back.says("", LEAVE)
    assert back.ended() == 0
    until(lambda: stage.heard(here)[-1] == echo(meanwhile), lambda: stage.heard(here))
    assert plum in model.request_text(meanwhile)
    people = [text for role, text in handoff.gateway.messages_of(key) if role == "user"]
    assert people == [apple, pear, plum, meanwhile]


def test_a_platform_that_is_not_connected(handoff: HandoffSetup) -> None:
    terminal, session, apple = handoff.conversation()
    terminal.says("/handoff matrix")
    terminal.sees("Connected platforms: telegram")
    assert handoff.state(session).get("state") is None
    _goes_on(handoff, terminal, apple)


def test_a_platform_that_cannot_be_reached(handoff: HandoffSetup) -> None:
    terminal, session, apple = handoff.conversation()
    handoff.stage.refuse_everything()
    terminal.says("/handoff telegram")
    terminal.sees("Not handed over: Telegram could not send a message")
    assert handoff.state(session)["state"] == "failed"
    _goes_on(handoff, terminal, apple)


def test_cancelled_at_the_terminal(handoff: HandoffSetup) -> None:
    stage, here = handoff.stage, handoff.stage.dm(handoff.ann)
    terminal, session, apple = handoff.conversation()
    before = len(stage.heard(here))
    with handoff.gateway.frozen():
        terminal.says("/handoff telegram")
        until(lambda: handoff.state(session).get("state") == "pending")
        terminal.says("", INTERRUPT)
        terminal.sees("Not handed over: cancelled at the terminal")
    _goes_on(handoff, terminal, apple)
    stage.say(handoff.ann, here, f"barrier{apple}")
    until(lambda: echo(f"barrier{apple}") in stage.heard(here))
    assert handoff.state(session) == {
        "state": "failed",
        "platform": "telegram",
        "error": "cancelled at the terminal",
    }
    assert stage.heard(here)[before:] == [echo(f"barrier{apple}")]


def test_without_a_home_channel_until_one_is_set(make_handoff: Callable[..., HandoffSetup]) -> None:
    handoff = make_handoff(home=False)
    handoff.gateway.be_up()
    stage, here = handoff.stage, handoff.stage.dm(handoff.ann)
    terminal, session, apple = handoff.conversation()
    terminal.says("/handoff telegram")
    terminal.sees("Not handed over: telegram has no home channel")
    assert handoff.state(session)["state"] == "failed"
    _goes_on(handoff, terminal, apple)
    stage.say(handoff.ann, here, "/sethome")
    until(lambda: stage.heard(here))
    assert "This chat is now the home of telegram" in stage.heard(here)[0]
    terminal.says("/handoff telegram")
    terminal.sees("The conversation continues on telegram.")
    assert terminal.ended() == 0
    until(lambda: f"hermes -r {session}" in stage.heard(here)[-1], lambda: stage.heard(here))


def test_without_a_gateway(make_handoff: Callable[..., HandoffSetup]) -> None:
    handoff = make_handoff(home=True)
    terminal, session, apple = handoff.conversation()
    terminal.says("/handoff telegram")
    terminal.sees("No gateway runs for this home")
    assert handoff.state(session).get("state") is None
    _goes_on(handoff, terminal, apple)


def _goes_on(handoff: HandoffSetup, terminal: Terminal, apple: str) -> None:
    """Check that the conversation continues in the terminal."""
    more = f"more{apple}"
    terminal.says(more)
    terminal.sees(echo(more))
    assert apple in handoff.model.request_text(more)
