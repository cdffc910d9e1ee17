"""Sends random requests. Checks which conversation each request continues and what is stored, against a list
of all conversations.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.agent.answer import Answer
from hermes.agent.events import Discarded, NotStored, Stored, TextDelta
from hermes.server.completions import format_notes
from hermes.server.conversations.history_index import HistoryIndex
from hermes.server.message_format import ChatMessage, convert_rows, encode_canonically, join_answers
from hermes.server.request_handler import SESSION
from tests.server.api_gateway import (
    ANNA,
    BERT,
    PEOPLE,
    ApiGateway,
    assistant,
    open_api_gateway,
    stream_to_client,
    user,
)
from tests.tiers import scale_examples

WORDS = st.sampled_from(["a", "b"])
NUMBERS = st.integers(0, 7)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from([ANNA, BERT]),
        st.one_of(
            st.tuples(st.just("fresh"), WORDS),
            st.tuples(st.just("extend"), NUMBERS, WORDS),
            st.tuples(st.just("extend"), NUMBERS, WORDS),
            st.tuples(st.just("cut"), NUMBERS, NUMBERS, WORDS),
            st.tuples(st.just("edit"), NUMBERS, NUMBERS, WORDS),
            st.tuples(st.just("theirs"), NUMBERS, WORDS),
            st.tuples(st.just("named"), NUMBERS, WORDS),
        ),
    ),
    max_size=10,
)
_examples = itertools.count()


class Held(NamedTuple):
    session: str
    messages: list[dict[str, Any]]


@contextmanager
def gateway_in_a_thread() -> Iterator[ApiGateway]:
    """Run the gateway in a thread, so that Hypothesis needs no event loop."""
    there: list[ApiGateway] = []
    ready, done = threading.Event(), threading.Event()

    async def live() -> None:
        async with open_api_gateway({"keys": PEOPLE}) as gateway:
            there.append(gateway)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    assert ready.wait(60)
    try:
        yield there[0]
    finally:
        done.set()
        thread.join()


def test_a_request_continues_exactly_the_conversation_that_it_extends() -> None:
    with gateway_in_a_thread() as gateway, httpx2.Client(base_url=gateway.address, trust_env=False) as client:

        def ask(key: str, messages: list[dict[str, Any]], session: str | None) -> tuple[str, str]:
            headers = {"Authorization": f"Bearer {key}"} | ({SESSION: session} if session else {})
            answer = client.post("/v1/chat/completions", json={"messages": messages}, headers=headers)
            assert answer.status_code == 200, answer.text
            return answer.json()["choices"][0]["message"]["content"], answer.headers[SESSION]

        @settings(max_examples=scale_examples(120))
        @given(ACTIONS)
        def check(actions: list[Any]) -> None:
            mark = f"example {next(_examples)}"
            held: dict[str, list[Held]] = {ANNA: [], BERT: []}
            for key, (kind, *rest) in actions:
                mine, theirs = held[key], held[BERT if key == ANNA else ANNA]
                request = _request(kind, rest, mine, theirs, mark)
                if request is None:
                    continue
                named = mine[rest[0] % len(mine)] if kind == "named" else None
                answer, session = ask(key, request, named.session if named else None)
                _take_in(mine, named, request, answer, session)
            for key, conversations in held.items():
                for conversation in conversations:
                    rows = gateway.db.get_messages(conversation.session)
                    assert [(row["role"], row["content"]) for row in rows] == [
                        (message["role"], message["content"]) for message in conversation.messages
                    ]
                    row = gateway.db.get_session(conversation.session)
                    assert row is not None
                    assert row["user_id"] == ("anna" if key == ANNA else "bert")

        check()


def _request(
    kind: str, rest: list[Any], mine: list[Held], theirs: list[Held], mark: str
) -> list[dict[str, Any]] | None:
    """Return the messages of a request of this kind. None if the kind needs an existing conversation and
    there is none."""
    new = user(f"{mark}: {rest[-1]}")
    if kind == "fresh":
        return [new]
    conversations = theirs if kind == "theirs" else mine
    if not conversations:
        return None
    before = conversations[rest[0] % len(conversations)].messages
    if kind == "cut":
        return [*before[: rest[1] % len(before)], new]
    if kind == "edit":
        at = rest[1] % len(before)
        changed = {**before[at], "content": before[at]["content"] + "!"}
        return [*before[:at], changed, *before[at + 1 :], new]
    return [*before, new]


def _take_in(mine: list[Held], named: Held | None, request: list[Any], told: str, session: str) -> None:
    """Check which conversation a request continued. Add the request and its answer to the list of
    conversations."""
    before, known = request[:-1], {one.session: one for one in mine}
    alike = [named] if named else [one for one in mine if before and one.messages == before]
    if alike:
        assert session in {one.session for one in alike}
        known[session].messages.extend([request[-1], assistant(told)])
    else:
        assert session not in known
        mine.append(Held(session, [*request, assistant(told)]))


# ---------------------------------------------------------------- the marks

CHANGES = st.lists(
    st.tuples(st.sampled_from("uvwxyz"), st.one_of(st.none(), st.sampled_from("abc")), st.booleans()),
    max_size=40,
)


@given(changes=CHANGES, most=st.integers(1, 4))
def test_marks_are_those_that_were_put_last_also_after_a_restart(
    tmp_path_factory: Any, changes: list[tuple[str, str | None, bool]], most: int
) -> None:
    file: Path = tmp_path_factory.mktemp("marks") / "known.jsonl"
    known, oracle = HistoryIndex(file, most), dict[str, str]()
    for conversation, mark, restart in changes:
        if oracle.get(conversation) != mark:
            oracle.pop(conversation, None)
            if mark is not None:
                oracle[conversation] = mark
            if len(oracle) > most:
                del oracle[next(iter(oracle))]
        known.put(conversation, mark)
        if restart:
            known = HistoryIndex(file, most)
            known.load()
        for one in "abc":
            assert known.find(one) == [name for name in reversed(oracle) if oracle[name] == one]


def test_a_truncated_line_does_not_affect_others(tmp_path: Path) -> None:
    file = tmp_path / "known.jsonl"
    known = HistoryIndex(file)
    known.put("one", "a")
    known.put("two", "b")
    whole = file.read_bytes()
    file.write_bytes(whole + b'["three", "c')
    known = HistoryIndex(file)
    known.load()
    known.put("four", "d")
    known = HistoryIndex(file)
    known.load()
    assert [known.find(mark) for mark in "abcd"] == [["one"], ["two"], [], ["four"]]


def test_the_file_does_not_grow_with_every_turn(tmp_path: Path) -> None:
    file = tmp_path / "known.jsonl"
    known = HistoryIndex(file)
    for number in range(25_000):
        known.put(f"session {number % 3}", f"mark {number}")
    assert len(file.read_bytes().splitlines()) <= 10_010
    again = HistoryIndex(file)
    again.load()
    assert again.find("mark 24999") == [f"session {24_999 % 3}"]


# ---------------------------------------------------------------- the spelling

SAID = st.lists(
    st.builds(ChatMessage, st.sampled_from(["user", "assistant"]), st.text('ab\n"\\,[]', max_size=3)),
    max_size=5,
)


@given(SAID, SAID)
def test_a_spelling_stands_for_one_conversation_only(
    one: list[ChatMessage], other: list[ChatMessage]
) -> None:
    assert (encode_canonically(join_answers(one)) == encode_canonically(join_answers(other))) == (
        join_answers(one) == join_answers(other)
    )
    assert join_answers(join_answers(one)) == join_answers(one)
    rows = [{"role": said.role, "content": said.content} for said in one]
    assert convert_rows([*rows, {"role": "tool", "content": "x"}]) == join_answers(one)
    assert json.loads(encode_canonically(join_answers(one))) == [list(said) for said in join_answers(one)]


# ---------------------------------------------------------------- an answer of several steps

STEPS = st.lists(
    st.tuples(
        st.lists(st.text("ab\n", max_size=2), max_size=3),  # the partial answer of a broken connection
        st.lists(st.text("ab\n", max_size=2), max_size=3),
    ),
    max_size=4,
)


@given(STEPS)
def test_a_client_receives_the_stored_answer(steps: list[tuple[list[str], list[str]]]) -> None:
    answer, visible = Answer(), ""
    rows: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for number, (lost, kept) in enumerate(steps):
        events: list[Any] = [TextDelta(text) for text in lost]
        events += [Discarded("it broke", 0.0)] if lost else []
        events += [*(TextDelta(text) for text in kept), Stored(number, "assistant")]
        visible += "".join(stream_to_client(answer, events))
        rows.append({"role": "assistant", "content": "".join(kept) or None})
    texts = [said.content for said in convert_rows(rows) if said.role == "assistant"]
    assert answer.whole_text == "".join(texts)
    if not any("".join(lost) for lost, _ in steps):
        assert visible == answer.whole_text


def test_an_answer_that_could_not_be_stored_has_a_note() -> None:
    answer = Answer()
    for event in (Stored(7, "user"), TextDelta("yes"), NotStored("assistant", "the disk is full", True)):
        answer.add(event)
    assert (answer.whole_text, answer.prompt_id) == ("yes", 7)
    text = format_notes(answer)["hermes"]["notes"]
    assert text == ["not stored (the disk is full); it is kept in a spool file until it can be stored"]
