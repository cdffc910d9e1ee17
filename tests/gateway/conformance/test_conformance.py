"""The behaviour of the gateway on every platform, as people on the platform see it. Only the text of the
model is simulated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.gateway.conformance import stage as has
from tests.gateway.conformance.echo_model import CODE, EchoModel, echo, held, long_words
from tests.gateway.conformance.gateway_process import Gateway, key_of
from tests.gateway.conformance.on_api_server import OnApiServer
from tests.gateway.conformance.on_matrix import OnMatrix
from tests.gateway.conformance.on_telegram import OnTelegram
from tests.gateway.conformance.on_webhook import Asking, CalledBack
from tests.gateway.conformance.stage import File, Person, Stage, Where, until

pytestmark = pytest.mark.full

Scenario = TypeVar("Scenario", bound=Callable[..., None])

STAGES: dict[str, Any] = {
    "telegram": OnTelegram,
    "matrix": OnMatrix,
    "webhook": Asking,
    "webhook-callback": CalledBack,
    "api-server": OnApiServer,
}
NEED_A_SERVER = {"matrix"}
"""Platforms that are tested against an external server, which takes long to start."""
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000 1f15c4890000000d49444154789c6360000002000001e221bc33"
    "0000000049454e44ae426082".replace(" ", "")
)
WORDS = count(1)


def needs(*features: str) -> Callable[[Scenario], Scenario]:
    """Return a decorator that generates a scenario only for platforms that have all of these features."""

    def marked(scenario: Scenario) -> Scenario:
        scenario.needs = frozenset(features)  # type: ignore[attr-defined]
        return scenario

    return marked


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "stage" in metafunc.fixturenames:
        needed: frozenset[str] = getattr(metafunc.function, "needs", frozenset())
        able = [
            pytest.param(name, marks=[pytest.mark.full] if name in NEED_A_SERVER else [])
            for name, one in STAGES.items()
            if needed <= one.can
        ]
        metafunc.parametrize("stage", able, indirect=True, scope="module")


@pytest.fixture(scope="module")
def model() -> Iterator[EchoModel]:
    server = EchoModel()
    yield server
    server.close()


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    made: Stage = STAGES[request.param]()
    yield made
    made.close()


@pytest.fixture(scope="module")
def operated(stage: Stage, model: EchoModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """Run one gateway for all scenarios of a platform."""
    made = Gateway(tmp_path_factory.mktemp(stage.platform), stage, model)
    yield made
    made.close()


@pytest.fixture
def gateway(operated: Gateway) -> Gateway:
    """Return the gateway, and start it if the previous scenario stopped it."""
    operated.be_up()
    return operated


@pytest.fixture
def word() -> str:
    """Return a word that no other scenario uses."""
    return f"kiwi{next(WORDS)}x"


def answers(stage: Stage, where: Where, *expected: str) -> None:
    """Wait until the chat shows exactly these messages."""
    until(
        lambda: stage.heard(where) == list(expected), lambda: f"{stage.heard(where)} is not {list(expected)}"
    )


def settled(stage: Stage, gateway: Gateway, person: Person, where: Where) -> None:
    """Wait until all earlier messages are processed. To do this, send another message and wait for its
    answer."""
    word = f"barrier{next(WORDS)}"
    stage.say(person, where, word)
    until(lambda: any(word in text for text in stage.heard(where)), lambda: gateway.log)


# ---------------------------------------------------------------- chats


def test_in_private(stage: Stage, gateway: Gateway, model: EchoModel, word: str) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"hello {word}")
    answers(stage, here, echo(f"hello {word}"))
    stage.say(ann, here, f"again {word}")
    answers(stage, here, echo(f"hello {word}"), echo(f"again {word}"))
    assert f"hello {word}" in model.request_text(f"again {word}")
    key = key_of(stage, here)
    assert gateway.messages_of(key) == [
        ("user", f"hello {word}"),
        ("assistant", echo(f"hello {word}")),
        ("user", f"again {word}"),
        ("assistant", echo(f"again {word}")),
    ]
    until(lambda: gateway.session(key)["title"])
    row = gateway.session(key)
    assert (row["source"], row["user_id"], row["title"]) == (stage.platform, ann.id, f"About {word}")
    if here.kind == "dm":
        assert (row["session_key"], row["chat_type"], row["chat_id"]) == (key, "dm", here.chat)


@needs(has.GROUPS)
def test_in_a_group_everybody_has_a_session_of_their_own(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann, bob = stage.person("Ann"), stage.person("Bob")
    group = stage.group(ann, bob)
    stage.say(ann, group, f"apple{word}")
    answers(stage, group, echo(f"apple{word}"))
    stage.say(bob, group, f"pear{word}")
    answers(stage, group, echo(f"apple{word}"), echo(f"pear{word}"))
    assert f"apple{word}" not in model.request_text(f"pear{word}")
    keys = key_of(stage, group, ann), key_of(stage, group, bob)
    assert [gateway.messages_of(key)[0][1] for key in keys] == [f"apple{word}", f"pear{word}"]
    assert [gateway.session(key)["user_id"] for key in keys] == [ann.id, bob.id]
    assert [gateway.session(key)["chat_type"] for key in keys] == ["group", "group"]
    assert stage.heard(stage.dm(ann)) == []


@needs(has.GROUPS, has.THREADS)
def test_a_thread_is_one_session_that_everybody_in_it_shares(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann, bob = stage.person("Ann"), stage.person("Bob")
    group = stage.group(ann, bob, threads=True)
    one, other = stage.thread(group, ann), stage.thread(group, bob)
    stage.say(ann, one, f"apple{word}")
    until(lambda: f"apple{word}" in "".join(stage.heard(one)))
    stage.say(bob, one, f"pear{word}")
    until(lambda: f"pear{word}" in "".join(stage.heard(one)))
    stage.say(bob, other, f"plum{word}")
    until(lambda: f"plum{word}" in "".join(stage.heard(other)))
    assert f"apple{word}" in model.request_text(f"pear{word}")
    assert "Bob" in model.request_text(f"pear{word}"), "who speaks is told where several do"
    assert f"apple{word}" not in model.request_text(f"plum{word}")
    assert (len(stage.heard(one)), len(stage.heard(other)), stage.heard(group)) == (2, 1, [])
    assert gateway.session(key_of(stage, one))["thread_id"] == one.thread
    assert len(gateway.messages_of(key_of(stage, one))) == 4


def test_two_people_at_the_same_time_have_separate_conversations(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann, bob = stage.person("Ann"), stage.person("Bob")
    stage.say(ann, stage.dm(ann), f"hold {word}")
    until(lambda: model.asked(word))
    stage.say(bob, stage.dm(bob), f"pear{word}")
    answers(stage, stage.dm(bob), echo(f"pear{word}"))
    model.let_go(word)
    until(lambda: stage.heard(stage.dm(ann)) == [held(word)], lambda: stage.heard(stage.dm(ann)))
    assert f"hold {word}" not in model.request_text(f"pear{word}")
    owners = {gateway.session(key_of(stage, stage.dm(one)))["owner"] for one in (ann, bob)}
    assert len(owners) == 2
    assert stage.heard(stage.dm(bob)) == [echo(f"pear{word}")]


# ---------------------------------------------------------------- messages, edits and files


@needs(has.EDITS)
def test_an_edit_of_the_last_message_is_answered_again(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    first = stage.say(ann, here, f"first {word}")
    answers(stage, here, echo(f"first {word}"))
    sent = stage.say(ann, here, f"wrnog {word}")
    answers(stage, here, echo(f"first {word}"), echo(f"wrnog {word}"))
    stage.edit(sent, f"right {word}")
    answers(stage, here, echo(f"first {word}"), echo(f"wrnog {word}"), echo(f"right {word}"))
    assert "wrnog" not in model.request_text(f"right {word}")
    assert [text for role, text in gateway.messages_of(key) if role == "user"] == [
        f"first {word}",
        f"right {word}",
    ]
    stage.edit(first, f"older {word}")  # a message that is followed by others is not changed
    settled(stage, gateway, ann, here)
    assert not model.asked(f"older {word}")


@needs(has.EDITS)
def test_an_edit_of_a_message_that_is_being_answered(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    sent = stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(f"hold {word}"))
    stage.edit(sent, f"hold better {word}")
    stage.edit(sent, f"right {word}")  # within the same second
    until(lambda: echo(f"right {word}") in stage.heard(here), lambda: (stage.heard(here), gateway.log))
    model.let_go(word)
    settled(stage, gateway, ann, here)
    assert held(word) not in stage.heard(here)
    assert f"hold {word}" not in model.request_text(f"right {word}")
    assert gateway.messages_of(key)[:2] == [("user", f"right {word}"), ("assistant", echo(f"right {word}"))]


def test_a_long_answer_is_sent_in_parts_that_the_platform_accepts(
    stage: Stage, gateway: Gateway, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"long {word}")
    until(lambda: long_words(word)[-1] in "".join(stage.heard(here)), lambda: stage.heard(here))
    parts = stage.heard(here)
    assert re.findall(rf"{word}\d+", "\n".join(parts)) == long_words(word)
    assert all(len(part) <= stage.max_length for part in parts)
    assert len(parts) > 1 or sum(map(len, parts)) < stage.max_length
    assert any(CODE in part for part in parts), "code that fits into one message is in one"


def test_a_picture_reaches_the_model(stage: Stage, gateway: Gateway, model: EchoModel, word: str) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"picture{word}", File("a.png", "image/png", PNG))
    until(lambda: f"picture{word}" in "".join(stage.heard(here)), lambda: gateway.log)
    [asked] = model.asked(f"picture{word}")
    kinds = [part["type"] for part in asked.body["messages"][-1]["content"]]
    assert kinds == ["text", "image_url"]


@needs(has.FILES)
def test_other_files_are_passed_on_or_the_reason_is_reported(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"notes{word}", File("notes.txt", "text/plain", f"buy milk {word}".encode()))
    until(lambda: f"notes{word}" in "".join(stage.heard(here)), lambda: gateway.log)
    assert f"buy milk {word}" in model.request_text(f"notes{word}")
    assert "notes.txt" in model.request_text(f"notes{word}")
    large = File("film.bin", "application/octet-stream", bytes(20_000_001))
    stage.say(ann, here, f"large{word}", large)
    until(lambda: f"large{word}" in "".join(stage.heard(here)), lambda: gateway.log)
    assert re.search(r"film\.bin: larger than 20 MB", model.request_text(f"large{word}"))
    assert not list((gateway.home / "gateway" / "incoming").iterdir()), "files are not kept beside the store"


# ---------------------------------------------------------------- access


@needs(has.STRANGERS)
def test_strangers_reach_neither_the_store_nor_the_model(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann, eve = stage.person("Ann"), stage.person("Eve", known=False)
    here = stage.dm(eve)
    stage.say(eve, here, f"let me in {word}", File("a.txt", "text/plain", f"file {word}".encode()))
    stage.say(eve, here, f"/new {word}")
    stage.say(eve, here, "/help")
    settled(stage, gateway, ann, stage.dm(ann))
    if has.GROUPS in stage.can:
        group = stage.group(ann, eve)
        stage.say(eve, group, f"and here {word}")
        settled(stage, gateway, ann, group)
        assert len(stage.heard(group)) == 1
    assert stage.heard(here) == []
    assert not model.was_ever_shown(word)
    assert not gateway.knows_of(word)


@needs(has.PAIRING)
def test_a_pairing_code_gives_access(stage: Stage, gateway: Gateway, model: EchoModel, word: str) -> None:
    eve = stage.person("Eve", known=False)
    here = stage.dm(eve)
    code = gateway.command("gateway", "pair", stage.platform)["code"]
    stage.say(eve, here, f"before {word}")
    stage.say(eve, here, f"/pair {code}")
    until(lambda: len(stage.heard(here)) == 1)
    assert "Welcome" in stage.heard(here)[0]
    stage.say(eve, here, f"after {word}")
    until(lambda: stage.heard(here)[1:] == [echo(f"after {word}")], lambda: stage.heard(here))
    assert not model.asked(f"before {word}")
    [paired] = gateway.command("gateway", "pair", "--list")
    assert (paired["platform"], paired["user_id"], paired["owner"]) == (stage.platform, eve.id, False)
    other = stage.person("Mallory", known=False)
    stage.say(other, stage.dm(other), f"/pair {code}")
    settled(stage, gateway, eve, here)
    assert stage.heard(stage.dm(other)) == []


# ---------------------------------------------------------------- failures of the connection


@needs(has.TWICE)
def test_a_message_that_is_delivered_twice_is_answered_once(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    sent = stage.say(ann, here, f"once {word}")
    stage.deliver_again(sent)
    answers(stage, here, echo(f"once {word}"))
    stage.deliver_again(sent)
    settled(stage, gateway, ann, here)
    assert len(stage.heard(here)) == 2
    assert len(model.asked(f"once {word}")) == 1


@needs(has.TWICE)
def test_messages_in_another_order_are_each_answered_once(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.deliver_reversed(ann, here, f"first {word}", f"second {word}")
    answers(stage, here, echo(f"second {word}"), echo(f"first {word}"))
    assert [text for role, text in gateway.messages_of(key_of(stage, here)) if role == "user"] == [
        f"second {word}",
        f"first {word}",
    ]
    assert len(model.asked(word)) == 2


@needs(has.LIMITS)
def test_a_rate_limited_answer_is_delivered_later(stage: Stage, gateway: Gateway, word: str) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.limit_next()
    for number in range(3):
        stage.say(ann, here, f"{number} {word}")
    answers(stage, here, *(echo(f"{number} {word}") for number in range(3)))
    assert stage.was_limited()


@needs(has.RECONNECTS)
def test_after_an_outage_of_the_platform_both_directions_work(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(word))
    stage.go_down()
    model.let_go(word)
    until(lambda: "not delivered" in gateway.log, lambda: gateway.log)
    stage.say(ann, here, f"meanwhile {word}")
    stage.come_back()
    until(lambda: stage.heard(here)[-1:] == [echo(f"meanwhile {word}")], lambda: stage.heard(here))
    assert [text for text in stage.heard(here) if text in (held(word), echo(f"meanwhile {word}"))] == [
        held(word),
        echo(f"meanwhile {word}"),
    ]


# ---------------------------------------------------------------- the end of the process


@needs(has.LATER)
def test_killed_while_the_model_answers(stage: Stage, gateway: Gateway, model: EchoModel, word: str) -> None:
    ann = stage.person("Ann")
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    sent = stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(word))
    stage.say(ann, here, f"next{word}")
    until(lambda: gateway.waiting(key) == 2)
    gateway.kill()
    model.let_go(word)
    gateway.be_up()
    answers(stage, here, held(word), echo(f"next{word}"))
    if has.TWICE in stage.can:
        stage.deliver_again(sent)
    settled(stage, gateway, ann, here)
    assert len(stage.heard(here)) == 3
    assert gateway.messages_of(key)[:4] == [
        ("user", f"hold {word}"),
        ("assistant", held(word)),
        ("user", f"next{word}"),
        ("assistant", echo(f"next{word}")),
    ]
    assert len(gateway.messages_of(key)) == 6


@needs(has.ASKS_AGAIN)
def test_killed_while_somebody_waits_for_the_answer(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(word))
    gateway.kill()
    model.let_go(word)
    gateway.be_up()
    answers(stage, here, held(word))
    assert gateway.messages_of(key_of(stage, here)) == [("user", f"hold {word}"), ("assistant", held(word))]


@needs(has.LATER, has.PREVIEWS)
def test_killed_while_the_answer_is_streamed(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"hold {word}")
    until(lambda: stage.heard(here), lambda: gateway.log)
    assert stage.heard(here)[0].startswith("I begin,")
    until(lambda: gateway.has_noted_preview(key_of(stage, here)))
    gateway.kill()
    model.let_go(word)
    gateway.be_up()
    answers(stage, here, held(word))


@needs(has.LATER, has.SWALLOWS)
def test_killed_while_the_answer_was_being_sent(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.swallow_next()
    stage.say(ann, here, f"hello {word}")
    until(stage.has_swallowed)
    answers(stage, here, echo(f"hello {word}"))
    gateway.kill()
    gateway.be_up()
    settled(stage, gateway, ann, here)
    visible = stage.heard(here)
    assert visible.count(echo(f"hello {word}")) == 1
    assert len([text for text in visible if "cannot tell whether it arrived" in text]) == (
        not stage.idempotent
    )
    assert len(model.asked(f"hello {word}")) == 1


def test_a_terminated_gateway_answers_first(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(word))
    if has.LATER in stage.can:
        stage.say(ann, here, f"next{word}")
        until(lambda: gateway.waiting(key) == 2)
    gateway.terminate()
    model.let_go(word)
    assert gateway.ended() == 0, gateway.log
    answers(stage, here, held(word))
    assert "Traceback" not in gateway.log
    if has.LATER in stage.can:
        gateway.be_up()
        answers(stage, here, held(word), echo(f"next{word}"))


# ---------------------------------------------------------------- commands


@needs(has.COMMANDS)
def test_a_new_conversation_and_back_to_the_old_one(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    stage.say(ann, here, f"apple{word}")
    until(lambda: len(stage.heard(here)) == 1)
    old = gateway.session(key)["id"]
    stage.say(ann, here, f"/new Fruit {word}")
    until(lambda: len(stage.heard(here)) == 2, lambda: stage.heard(here))
    assert "New conversation" in stage.heard(here)[1]
    stage.say(ann, here, f"pear{word}")
    until(lambda: len(stage.heard(here)) == 3)
    assert f"apple{word}" not in model.request_text(f"pear{word}")
    new = gateway.session(key)
    assert (new["title"], new["parent_session_id"], new["relation"]) == (f"Fruit {word}", old, "reset")
    stage.say(ann, here, f"/resume {old}")
    until(lambda: len(stage.heard(here)) == 4)
    assert gateway.session(key)["id"] == old
    stage.say(ann, here, f"plum{word}")
    until(lambda: len(stage.heard(here)) == 5)
    assert f"apple{word}" in model.request_text(f"plum{word}")
    assert f"pear{word}" not in model.request_text(f"plum{word}")


@needs(has.COMMANDS)
def test_the_last_exchange_is_undone(stage: Stage, gateway: Gateway, model: EchoModel, word: str) -> None:
    ann = stage.person("Ann")
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    for number, text in enumerate((f"apple{word}", f"pear{word}", "/undo", f"plum{word}"), 1):
        stage.say(ann, here, text)
        until(lambda: len(stage.heard(here)) == number, lambda: stage.heard(here))  # noqa: B023
    assert f"Took back “pear{word}”" in stage.heard(here)[2]
    assert f"apple{word}" in model.request_text(f"plum{word}")
    assert f"pear{word}" not in model.request_text(f"plum{word}")
    assert [text for role, text in gateway.messages_of(key) if role == "user"] == [
        f"apple{word}",
        f"plum{word}",
    ]


@needs(has.COMMANDS)
def test_an_answer_is_stopped(stage: Stage, gateway: Gateway, model: EchoModel, word: str) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(word))
    stage.say(ann, here, "/stop")
    until(lambda: any("Stopped" in text for text in stage.heard(here)), lambda: stage.heard(here))
    model.let_go(word)
    settled(stage, gateway, ann, here)
    assert held(word) not in stage.heard(here)


def asks_to_remove(stage: Stage, gateway: Gateway, owner: Person, word: str) -> tuple[str, Path]:
    """Make `owner` the owner and send a message in which the model asks to remove a folder. Return (name of
    the approval request, folder)."""
    here, folder = stage.dm(owner), gateway.person / word
    folder.mkdir()
    stage.say(owner, here, f"/pair {gateway.command('gateway', 'pair', stage.platform, '--owner')['code']}")
    until(lambda: stage.heard(here))
    stage.say(owner, here, f"remove {word}")
    asked = until(
        lambda: [text for text in stage.heard(here) if "May I do this?" in text],
        lambda: (stage.heard(here), gateway.log),
    )
    assert f"rm -rf {word}" in asked[0]
    return re.findall(r"/approve (\w{4})", asked[0])[0], folder


@needs(has.PAIRING, has.COMMANDS)
def test_only_the_owner_can_approve_a_command_and_only_by_command(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann, bob = stage.person("Ann"), stage.person("Bob")
    here, there = stage.dm(ann), stage.dm(bob)
    name, folder = asks_to_remove(stage, gateway, ann, word)
    stage.say(bob, there, f"/approve {name}")
    until(lambda: stage.heard(there) == ["Nothing is waiting for an approval."], lambda: stage.heard(there))
    stage.say(ann, here, f"yes {word}")
    until(lambda: gateway.waiting(key_of(stage, here)) == 2)
    assert folder.is_dir()
    stage.say(ann, here, f"/approve {name}")
    until(lambda: not folder.exists(), lambda: (stage.heard(here), gateway.log))
    until(lambda: echo(f"yes {word}") in stage.heard(here), lambda: (stage.heard(here), gateway.log))
    until(lambda: any("May I" in text and "✓ Approved, once." in text for text in stage.heard(here)))
    assert "Traceback" not in gateway.log


@needs(has.PAIRING, has.COMMANDS, has.LATER)
def test_killed_while_an_approval_waits(stage: Stage, gateway: Gateway, word: str) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    name, folder = asks_to_remove(stage, gateway, ann, word)
    gateway.kill()
    stage.say(ann, here, "/approve")
    gateway.be_up()
    stage.say(ann, here, f"/approve {name}")
    until(
        lambda: any(f"No request {name} is waiting" in text.replace("`", "") for text in stage.heard(here)),
        lambda: (stage.heard(here), gateway.log),
    )
    until(lambda: gateway.waiting(key_of(stage, here)) == 0, lambda: gateway.log)
    assert folder.is_dir()


# ---------------------------------------------------------------- messages during an answer


@needs(has.LATER)
def test_a_message_during_an_answer_waits(
    stage: Stage, gateway: Gateway, model: EchoModel, word: str
) -> None:
    ann = stage.person("Ann")
    here = stage.dm(ann)
    stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(word))
    stage.say(ann, here, f"next{word}")
    bob = stage.person("Bob")
    settled(stage, gateway, bob, stage.dm(bob))
    assert not model.asked(f"next{word}")
    model.let_go(word)
    answers(stage, here, held(word), echo(f"next{word}"))


@pytest.fixture
def busy(model: EchoModel, tmp_path: Path) -> Iterator[Callable[[str], tuple[Stage, Gateway]]]:
    """Return a function that runs a gateway with the given setting for messages that arrive during an
    answer."""
    with ExitStack() as running:

        def start(policy: str) -> tuple[Stage, Gateway]:
            stage = OnTelegram()
            running.callback(stage.close)
            gateway = Gateway(tmp_path / "busy", stage, model, busy=policy)
            running.callback(gateway.close)
            gateway.be_up()
            return stage, gateway

        yield start


def test_a_message_during_an_answer_interrupts_it(
    busy: Callable[[str], tuple[Stage, Gateway]], model: EchoModel, word: str
) -> None:
    stage, gateway = busy("interrupt")
    ann = stage.person("Ann")
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(word))
    stage.say(ann, here, f"next{word}")
    until(lambda: echo(f"next{word}") in stage.heard(here), lambda: (stage.heard(here), gateway.log))
    model.let_go(word)
    settled(stage, gateway, ann, here)
    assert held(word) not in stage.heard(here)
    assert f"hold {word}" in model.request_text(f"next{word}"), "what was asked before is known"
    people = [text for role, text in gateway.messages_of(key) if role == "user"]
    assert people[:2] == [f"hold {word}", f"next{word}"]


def test_a_message_during_an_answer_is_included_in_it(
    busy: Callable[[str], tuple[Stage, Gateway]], model: EchoModel, word: str
) -> None:
    stage, gateway = busy("steer")
    ann = stage.person("Ann")
    here, key = stage.dm(ann), key_of(stage, stage.dm(ann))
    stage.say(ann, here, f"hold {word}")
    until(lambda: model.asked(word))
    stage.say(ann, here, f"next{word}")
    until(lambda: gateway.waiting(key) == 2)
    bob = stage.person("Bob")
    settled(stage, gateway, bob, stage.dm(bob))
    model.let_go(word)
    until(lambda: echo(f"next{word}") in "".join(stage.heard(here)), lambda: (stage.heard(here), gateway.log))
    settled(stage, gateway, ann, here)
    assert len(model.asked(f"next{word}")) == 1
    assert f"hold {word}" in model.request_text(f"next{word}")
    assert [text for role, text in gateway.messages_of(key) if role == "user"][:2] == [
        f"hold {word}",
        f"next{word}",
    ]
    assert "".join(stage.heard(here)).count(echo(f"next{word}")) == 1
