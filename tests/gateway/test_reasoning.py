"""Reasoning is not sent to a chat as the answer, and a truncated answer is marked."""

from __future__ import annotations

from hermes.agent.answer import collect_answer
from hermes.agent.models.finish_reasons import CUT_AT_LENGTH, NO_ANSWER_WITHIN_LENGTH
from hermes.agent.transcript import StoredRecord
from hermes.gateway.inbound.inbox_recovery import find_answer
from hermes.gateway.outbound.chat_reply import ChatReply
from hermes_state import SessionDB
from tests.agent.openai_server import ModelServer, Reply, chunk, says
from tests.agent.test_turn_over_http import a_turn


async def answered(db: SessionDB, server: ModelServer) -> tuple[ChatReply, StoredRecord]:
    record = StoredRecord(db)
    turn, model = a_turn(db, server, record)
    made = ChatReply(await collect_answer(turn.events("hello")), None)
    await record.close()
    await model.close()
    return made, record


async def test_only_the_answer_is_sent(db: SessionDB) -> None:
    server = ModelServer().will(says("<think>hm </think>\n\nThe answer."))
    try:
        made, record = await answered(db, server)
    finally:
        server.close()
    assert made.text == "The answer."
    rows = db.get_messages(record.session_id)
    assert rows[-1]["content"] == "<think>hm </think>\n\nThe answer."
    again = find_answer(rows)  # after a restart
    assert again is not None
    assert again["content"] == "The answer."


async def test_reasoning_without_an_opening_tag_is_not_sent(db: SessionDB) -> None:
    server = ModelServer().will(says("hm, yes\n</think>\n\nThe answer."))
    try:
        made, record = await answered(db, server)
    finally:
        server.close()
    assert made.text == "The answer."
    rows = db.get_messages(record.session_id)
    assert rows[-1]["content"] == "hm, yes\n</think>\n\nThe answer."
    again = find_answer(rows)
    assert again is not None
    assert again["content"] == "The answer."


async def test_a_truncated_answer_is_reported(db: SessionDB) -> None:
    server = ModelServer().will(
        says("Half.", finish="length"), Reply([chunk({"reasoning": "hm"}), chunk({}, "length")])
    )
    try:
        assert (await answered(db, server))[0].text == f"Half.\n\nⓘ {CUT_AT_LENGTH}"
        assert (await answered(db, server))[0].text == f"ⓘ {NO_ANSWER_WITHIN_LENGTH}"
    finally:
        server.close()
