"""Snippets and titles are taken from answers, not from the reasoning before them."""

from __future__ import annotations

from hermes.agent.context.summary import extract_message
from hermes_state import SessionDB

ANSWER = "<think>Maybe the kettle is a budget question.</think>\n\nThe budget is 40 and no more."


def test_a_snippet_is_of_the_answer(db: SessionDB) -> None:
    db.create_session("one", "cli")
    db.append_message("one", "user", "how much?")
    db.append_message("one", "assistant", ANSWER)
    (found,) = db.search_messages("budget")
    assert found["snippet"].startswith("The >>>budget<<<")
    assert [one["content"] for one in found["context"]][-1] == "The budget is 40 and no more."
    (only_there,) = db.search_messages("kettle")
    assert ">>>kettle<<<" in only_there["snippet"]
    assert db.get_messages("one")[-1]["content"] == ANSWER


def test_a_summary_is_of_the_answer() -> None:
    assert extract_message({"role": "assistant", "content": ANSWER})[0] == "The budget is 40 and no more."
    assert extract_message({"role": "user", "content": ANSWER})[0] == ANSWER
